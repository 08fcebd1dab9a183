//! Attention without a cache, and normalization of groups of channels.

use warpwave_kernels::DType;
use warpwave_tensor::Tensor;

use crate::Context;
use crate::reference::{Layout, Reference, compare, epsilon, input};

/// Head sizes that GPUs have a kernel for, and others; with and without a bias.
pub fn attention(context: &mut Context<'_>) {
    const HEADS: usize = 2;
    let dtype = context.dtype;
    for (dim, queries, keys, biased) in context.sample([(8, 3, 5, false), (12, 70, 3, false), (8, 4, 6, true), (40, 2, 9, false)], 2) {
        let (q, q_reference) = context.input_within(&[2, queries, HEADS, dim], 1.0);
        let (k, k_reference) = context.input(&[2, keys, HEADS, dim]);
        let (v, v_reference) = context.input(&[2, keys, HEADS, dim]);
        let (bias, bias_reference) = input(context.random, DType::F32, &[HEADS, queries, keys], Layout::Contiguous, 2.0, context.device);
        let found = q.attention(&k, &v, 0.3, biased.then_some(&bias)).unwrap();
        let expected = Reference::new(&[2, queries, HEADS, dim], |index| {
            let &[row, query, head, d] = index else { panic!("{index:?}") };
            let score = |key: usize| {
                let dot: f64 = (0..dim).map(|i| q_reference.at(&[row, query, head, i]) * k_reference.at(&[row, key, head, i])).sum();
                (dot * f64::from(0.3f32) + if biased { bias_reference.at(&[head, query, key]) } else { 0.0 }).exp()
            };
            let total: f64 = (0..keys).map(score).sum();
            (0..keys).map(|key| score(key) / total * v_reference.at(&[row, key, head, d])).sum()
        });
        // Weights are rounded to the type of the values on matrix units.
        compare("dense attention", &found, &expected, 32.0 * (epsilon(dtype) / epsilon(DType::F32)).min(2.0), 4.0);
    }
    let (q, k) = (context.input(&[1, 2, 2, 8]).0, context.input(&[1, 3, 1, 8]).0);
    let message = |result: Result<Tensor, warpwave_tensor::Error>| result.unwrap_err().to_string();
    assert!(message(q.attention(&k, &k, 1.0, None)).contains("expected keys and values of (1, at least 1, 2, 8)"));
    let none = context.input(&[1, 0, 2, 8]).0;
    assert!(message(q.attention(&none, &none, 1.0, None)).contains("at least 1"));
    let k = context.input(&[1, 3, 2, 8]).0;
    let bias = Tensor::zeros(DType::F32, &[3, 2, 3], context.device).unwrap();
    assert!(message(q.attention(&k, &k, 1.0, Some(&bias))).contains("expected a bias of shape [2, 2, 3]"));
    assert_eq!(none.attention(&k, &k, 1.0, None).unwrap().shape(), [1, 0, 2, 8]);
}

/// In both orders of channels.
pub fn group_norm(context: &mut Context<'_>) {
    const EPSILON: f32 = 1e-3;
    for (channels, groups, height, width) in context.sample([(6, 3, 4, 5), (4, 4, 3, 3), (8, 1, 2, 7), (32, 4, 40, 30)], 2) {
        let (x, reference) = context.input(&[2, channels, height, width]);
        let ((weight, weights), (bias, biases)) = (context.input(&[channels]), context.input(&[channels]));
        let per_group = channels / groups;
        let statistics: Vec<(f64, f64)> = (0..2 * groups)
            .map(|i| {
                let (image, first) = (i / groups, i % groups * per_group);
                let all = (first..first + per_group).flat_map(|c| (0..height * width).map(move |p| [image, c, p / width, p % width]));
                let all: Vec<f64> = all.map(|index| reference.at(&index)).collect();
                let mean = all.iter().sum::<f64>() / all.len() as f64;
                (mean, all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / all.len() as f64)
            })
            .collect();
        let expected = Reference::new(&reference.shape, |index| {
            let (mean, variance) = statistics[index[0] * groups + index[1] / per_group];
            let normal = (reference.at(index) - mean) / (variance + f64::from(EPSILON)).sqrt();
            normal * weights.values[index[1]] + biases.values[index[1]]
        });
        compare("group_norm", &x.group_norm(groups, &weight, &bias, EPSILON).unwrap(), &expected, 16.0, 8.0);
        let nhwc = x.permute(&[0, 2, 3, 1]).unwrap().copied().unwrap().permute(&[0, 3, 1, 2]).unwrap();
        let found = nhwc.group_norm(groups, &weight, &bias, EPSILON).unwrap();
        assert_eq!(found.layout().strides()[1], 1, "the result is NHWC too");
        compare("group_norm of NHWC", &found, &expected, 16.0, 8.0);
    }
    let (x, weight) = (context.input(&[1, 6, 2, 2]).0, context.input(&[6]).0);
    assert!(x.group_norm(4, &weight, &weight, EPSILON).unwrap_err().to_string().contains("6 channels cannot be split into 4 groups"));
    assert_eq!(context.input(&[0, 6, 2, 2]).0.group_norm(2, &weight, &weight, EPSILON).unwrap().shape(), [0, 6, 2, 2]);
}
