//! Mixture of experts: routing, grouped products and weighted sums.

use warpwave_kernels::{DType, ExpertScore, Quant, Routing};
use warpwave_tensor::{Experts, Precision, Tensor, cpu};

use crate::Context;
use crate::reference::{Layout, Reference, compare, epsilon, input};

/// The expected experts and weights of a token, written from the papers.
fn routed(routing: &Routing, logits: &[f64], bias: &[f64]) -> Vec<(usize, f64)> {
    let total: f64 = logits.iter().map(|x| x.exp()).sum();
    let score = |x: f64| match routing.score {
        ExpertScore::Softmax => x.exp() / total,
        ExpertScore::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        _ => x,
    };
    let each = logits.len() / routing.groups;
    let biased = |expert: usize| score(logits[expert]) + bias[expert];
    let group = |group: usize| {
        let mut scores: Vec<f64> = (group * each..(group + 1) * each).map(biased).collect();
        scores.sort_by(|a, b| b.total_cmp(a));
        if routing.group_sum_of_two && each > 1 { scores[0] + scores[1] } else { scores[0] }
    };
    let mut groups: Vec<usize> = (0..routing.groups).collect();
    groups.sort_by(|a, b| group(*b).total_cmp(&group(*a)));
    let eligible = &groups[..routing.used_groups];
    let mut experts: Vec<usize> = (0..logits.len()).filter(|expert| eligible.contains(&(expert / each))).collect();
    experts.sort_by(|a, b| biased(*b).total_cmp(&biased(*a)));
    let mut weights: Vec<f64> = experts[..routing.used].iter().map(|expert| score(logits[*expert])).collect();
    match routing.score {
        ExpertScore::ChosenSoftmax => weights.iter_mut().for_each(|x| *x = x.exp()),
        ExpertScore::SparseMixer { epsilon } => {
            for (position, weight) in weights.iter_mut().enumerate() {
                let most = logits[experts[position]];
                let rest = experts[position..].iter().map(|expert| logits[*expert]);
                let near = rest.filter(|x| (most - x) / x.abs().max(most) <= 2.0 * f64::from(epsilon));
                *weight = 1.0 / near.map(|x| (x - most).exp()).sum::<f64>();
            }
        }
        _ => {}
    }
    let sum: f64 = weights.iter().sum();
    if routing.normalize || routing.score == ExpertScore::ChosenSoftmax {
        weights.iter_mut().for_each(|weight| *weight /= sum);
    }
    experts.into_iter().zip(weights).map(|(expert, weight)| (expert, weight * f64::from(routing.scale))).collect()
}

fn routings() -> Vec<Routing> {
    let plain = |score| Routing::new(2, score);
    let groups = Routing { groups: 4, used_groups: 2, group_sum_of_two: true, ..plain(ExpertScore::Sigmoid) };
    vec![
        Routing { normalize: true, ..plain(ExpertScore::Softmax) },
        Routing { used: 5, scale: 1.5, ..plain(ExpertScore::Softmax) },
        Routing { used: 3, normalize: true, scale: 2.5, ..groups },
        Routing { groups: 3, used_groups: 1, ..plain(ExpertScore::Softmax) },
        plain(ExpertScore::ChosenSoftmax),
        plain(ExpertScore::SparseMixer { epsilon: 0.2 }),
    ]
}

pub fn moe(context: &mut Context<'_>) {
    route(context);
    let dtype = context.dtype;
    // Rows and columns that are whole vectors, and not.
    for (tokens, rows, columns) in context.sample([(1, 24, 64), (7, 37, 20), (40, 16, 1100)], 2) {
        let (weights, reference) = context.input_within(&[EXPERTS, rows, columns], 0.5);
        let experts = Experts::plain(&weights).unwrap();
        let at = |expert: usize, row: usize, column: usize| reference.at(&[expert, row, column]);
        products(context, &experts, [tokens, rows, columns], &at, 32.0);
        let empty = input(context.random, dtype, &[0, columns], Layout::Contiguous, 1.0, context.device).0;
        let none = Tensor::zeros(DType::F32, &[0, EXPERTS], context.device).unwrap().route(&routings()[0], None).unwrap();
        assert_eq!(experts.forward(&empty, &none, dtype, Precision::Exact).unwrap().shape(), [0, rows]);
    }
    for quant in context
        .sample([Quant::Q4_0, Quant::Q5_1, Quant::Q8_0, Quant::Q4K, Quant::Q6K, Quant::Q2K, Quant::Q3K, Quant::Iq4Xs, Quant::Mxfp4], 1)
    {
        let (rows, columns) = (19, 512);
        let floats: Vec<f32> = (0..EXPERTS * rows * columns).map(|_| context.random.unit() as f32 - 0.5).collect();
        let mut blocks = vec![0; EXPERTS * rows * quant.row_bytes(columns).unwrap()];
        cpu::quantize(quant, &floats, &mut blocks);
        let mut stored = vec![0.0; floats.len()];
        cpu::dequantize(quant, &blocks, &mut stored);
        let experts = Experts::quantized(quant, &blocks, [EXPERTS, rows, columns], context.device).unwrap();
        let at = |expert: usize, row: usize, column: usize| f64::from(stored[(expert * rows + row) * columns + column]);
        products(context, &experts, [9, rows, columns], &at, 64.0);
    }
}

const EXPERTS: usize = 12;

fn route(context: &mut Context<'_>) {
    for routing in routings() {
        for (tokens, biased) in [(1, false), (9, true)] {
            let (logits, reference) = input(context.random, DType::F32, &[tokens, EXPERTS], context.layout, 3.0, context.device);
            let (bias, biases) = input(context.random, DType::F32, &[EXPERTS], Layout::Contiguous, 0.3, context.device);
            let biased = biased && routing.score == ExpertScore::Sigmoid;
            let choice = logits.route(&routing, biased.then_some(&bias)).unwrap();
            let ids = choice.ids().to_vec::<u32>().unwrap();
            let expected: Vec<Vec<(usize, f64)>> = (0..tokens)
                .map(|token| {
                    let row: Vec<f64> = (0..EXPERTS).map(|expert| reference.at(&[token, expert])).collect();
                    let zero = vec![0.0; EXPERTS];
                    routed(&routing, &row, if biased { &biases.values } else { &zero })
                })
                .collect();
            for (token, expected) in expected.iter().enumerate() {
                let found: Vec<usize> = ids[token * routing.used..][..routing.used].iter().map(|id| *id as usize).collect();
                let wanted: Vec<usize> = expected.iter().map(|(expert, _)| *expert).collect();
                assert_eq!(found, wanted, "{routing:?}, token {token}");
            }
            let weights = Reference::new(&[tokens, routing.used], |index| expected[index[0]][index[1]].1);
            compare("moe_route", choice.weights(), &weights, 64.0, 0.1);
        }
    }
    let logits = Tensor::zeros(DType::F32, &[2, EXPERTS], context.device).unwrap();
    let error = logits.route(&Routing::new(13, ExpertScore::Softmax), None).err().unwrap().to_string();
    assert!(error.contains("1 to 12 experts per token, got 13"), "{error}");
    let grouped = Routing { groups: 5, ..Routing::new(2, ExpertScore::Softmax) };
    assert!(logits.route(&grouped, None).err().unwrap().to_string().contains("12 experts cannot be divided into 5 groups"));
}

/// The products of tokens and of assignments, with and without a bias, and their weighted sums.
fn products(
    context: &mut Context<'_>,
    experts: &Experts,
    [tokens, rows, columns]: [usize; 3],
    weight: &dyn Fn(usize, usize, usize) -> f64,
    ulps: f64,
) {
    let (device, dtype) = (context.device, context.dtype);
    let routing = Routing { used: 3, ..routings()[0] };
    let logits = input(context.random, DType::F32, &[tokens, EXPERTS], Layout::Contiguous, 3.0, device).0;
    let choice = logits.route(&routing, None).unwrap();
    let ids = choice.ids().to_vec::<u32>().unwrap();
    let (bias, biases) = input(context.random, DType::F32, &[EXPERTS, rows], Layout::Contiguous, 1.0, device);
    let shares = [(tokens, 3, false), (3 * tokens, 1, true)];
    for (vectors, share, biased) in shares {
        let (x, reference) = context.input_within(&[vectors, columns], 0.5);
        let experts = if biased { experts.clone().with_bias(&bias).unwrap() } else { experts.clone() };
        let found = experts.forward(&x, &choice, DType::F32, Precision::Exact).unwrap();
        let expected = Reference::new(&[3 * tokens, rows], |index| {
            let expert = ids[index[0]] as usize;
            let term = if biased { biases.at(&[expert, index[1]]) } else { 0.0 };
            term + (0..columns).map(|k| reference.at(&[index[0] / share, k]) * weight(expert, index[1], k)).sum::<f64>()
        });
        compare("grouped_matmul", &found, &expected, ulps, 8.0);
        let narrow = experts.forward(&x, &choice, dtype, Precision::Exact).unwrap();
        compare("grouped_matmul", &narrow, &expected, ulps.min(8.0) + ulps * epsilon(DType::F32) / epsilon(dtype), 8.0);
        let weights = choice.weights().to_vec::<f32>().unwrap();
        let sums = Reference::new(&[tokens, rows], |index| {
            (0..3).map(|j| f64::from(weights[index[0] * 3 + j]) * expected.at(&[index[0] * 3 + j, index[1]])).sum()
        });
        compare("moe_combine", &choice.combine(&found).unwrap(), &sums, ulps, 8.0);
    }
    let short = context.input(&[2, columns]).0;
    assert!(
        tokens == 2
            || experts.forward(&short, &choice, dtype, Precision::Exact).unwrap_err().to_string().contains("expected an input of shape")
    );
}
