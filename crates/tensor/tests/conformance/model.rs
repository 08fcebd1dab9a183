//! Operations of models: norms, gated units, rotary embedding, linear layers and attention.

use warpwave_kernels::{DType, Glu, Quant, RopePairs, Window};
use warpwave_tensor::{AttentionInputs, AttentionParams, BLOCK_SIZE, Batch, BatchInput, KvCache, Linear, Matrix, Precision, Rope, Tensor};

use crate::Context;
use crate::reference::{Layout, Reference, compare, epsilon, input};

const EPSILON: f32 = 1e-5;

/// A result in the row's type, or for `f32` also in 16 bits.
fn results(dtype: DType) -> Vec<DType> {
    if dtype == DType::F32 { vec![DType::F32, DType::F16, DType::Bf16] } else { vec![dtype] }
}

pub fn norm(context: &mut Context<'_>) {
    let columns = 10;
    let (x, reference) = context.input(&[3, 2, columns]);
    let ((weight, weights), (bias, biases)) = (context.input(&[columns]), context.input(&[columns]));
    let rms = |x: &Reference| {
        Reference::new(&x.shape, |index| {
            let row = (0..columns).map(|i| x.at(&[index[0], index[1], i]).powi(2)).sum::<f64>();
            x.at(index) / (row / columns as f64 + f64::from(EPSILON)).sqrt() * weights.values[index[2]]
        })
    };
    for to in context.sample(results(context.dtype), 1) {
        compare("rms_norm", &x.rms_norm_as(&weight, EPSILON, to).unwrap(), &rms(&reference), 8.0, 1.0);
        let (more, more_reference) = context.input(&[3, 2, columns]);
        let mut residual = x.clone();
        let normed = residual.add_rms_norm(&more, &weight, EPSILON, to).unwrap();
        let sum = Reference::new(&reference.shape, |index| reference.at(index) + more_reference.at(index));
        compare("the residual", &residual, &sum, 1.0, 0.0);
        compare("add_rms_norm", &normed, &rms(&sum), 24.0, 1.0);
    }
    let layer = Reference::new(&reference.shape, |index| {
        let row: Vec<f64> = (0..columns).map(|i| reference.at(&[index[0], index[1], i])).collect();
        let mean = row.iter().sum::<f64>() / columns as f64;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / columns as f64;
        (reference.at(index) - mean) / (variance + f64::from(EPSILON)).sqrt() * weights.values[index[2]] + biases.values[index[2]]
    });
    compare("layer_norm", &x.layer_norm(&weight, &bias, EPSILON).unwrap(), &layer, 16.0, 4.0);
    assert!(x.rms_norm(&context.input(&[columns + 1]).0, EPSILON).unwrap_err().to_string().contains("does not match the last dimension"));
    assert_eq!(context.input(&[0, columns]).0.rms_norm(&weight, EPSILON).unwrap().shape(), [0, columns]);
}

pub fn glu(context: &mut Context<'_>) {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    for op in context.sample(Glu::ALL, 2) {
        let up = |x: f64| if op == Glu::Clamped { x.clamp(-7.0, 7.0) + 1.0 } else { x };
        let gate = |x: f64| match op {
            Glu::Silu => x * sigmoid(x),
            Glu::Gelu => 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()),
            Glu::GeluErf => 0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt())),
            Glu::Relu => x.max(0.0),
            Glu::Sigmoid => sigmoid(x),
            Glu::Clamped => x.min(7.0) * sigmoid(1.702 * x.min(7.0)),
            _ => panic!("{op:?} has no reference"),
        };
        for to in context.sample(results(context.dtype), 1) {
            let (x, reference) = context.input(&[3, 14]);
            let expected = Reference::new(&[3, 7], |index| gate(reference.at(index)) * up(reference.at(&[index[0], index[1] + 7])));
            compare(op.name(), &x.glu(op, to).unwrap(), &expected, 8.0, 1.0);
        }
    }
    assert!(context.input(&[3, 5]).0.glu(Glu::Silu, context.dtype).unwrap_err().to_string().contains("even last dimension"));
}

pub fn rope(context: &mut Context<'_>) {
    let (device, dtype) = (context.device, context.dtype);
    let positions = [0u32, 3, 17, 400];
    let ids = Tensor::new(&positions, &[4], device).unwrap();
    let frequencies = [1.0f32, 0.3, 0.01];
    let tensor = Tensor::new(&frequencies, &[3], device).unwrap();
    for pairs in [RopePairs::Interleaved, RopePairs::Halves] {
        let (x, reference) = context.input(&[4, 2, 8]);
        let rope = Rope { pairs, frequencies: tensor.clone(), factor: 1.5 };
        let mut rotated = x.clone();
        rotated.rope_in_place(&rope.at(&ids).unwrap()).unwrap();
        let expected = Reference::new(&[4, 2, 8], |index| {
            let (token, i) = (index[0], index[2]);
            if i >= 6 {
                return reference.at(index);
            }
            let halves = pairs == RopePairs::Halves;
            let (pair, second, other) = match halves {
                true => (i % 3, i >= 3, if i >= 3 { i - 3 } else { i + 3 }),
                false => (i / 2, i % 2 == 1, i ^ 1),
            };
            let (sin, cos) = f64::from(positions[token] as f32 * frequencies[pair]).sin_cos();
            let other = reference.at(&[token, index[1], other]);
            1.5 * if second { other * sin + reference.at(index) * cos } else { reference.at(index) * cos - other * sin }
        });
        // Sines are computed in f32, whatever the type, and large angles are reduced with an error of their own.
        let ulps = f64::max(16.0, 1e-5 / epsilon(dtype));
        compare("rope", &rotated, &expected, ulps, 4.0);
        compare("the original", &x, &reference, 0.0, 0.0);
        let error = context.input(&[3, 2, 8]).0.rope_in_place(&rope.at(&ids).unwrap()).unwrap_err().to_string();
        assert!(error.contains("expected 3 positions, one per token, got 4"), "{error}");
        let error = context.input(&[3, 4]).0.rope_in_place(&rope.at(&ids).unwrap()).unwrap_err().to_string();
        assert_eq!(error, "rope: expected (tokens, heads, head_dim), got [3, 4]");
    }
}

pub fn linear(context: &mut Context<'_>) {
    let (device, dtype, layout) = (context.device, context.dtype, context.layout);
    let columns = 32;
    for vectors in [1, 5, 40] {
        let (x, reference) = context.input(&[vectors, columns]);
        let weight = |context: &mut Context<'_>, rows: usize| input(context.random, dtype, &[rows, columns], layout, 1.0, device);
        let (first, second) = (weight(context, 6), weight(context, 3));
        let (bias, biases) = input(context.random, dtype, &[9], Layout::Contiguous, 1.0, device);
        let parts = [&first, &second].map(|(weights, _)| Matrix::plain(weights.clone()).unwrap());
        let linear = Linear::new(parts.into(), Some(bias)).unwrap();
        let expected = Reference::new(&[vectors, 9], |index| {
            let (weights, row) = if index[1] < 6 { (&first.1, index[1]) } else { (&second.1, index[1] - 6) };
            (0..columns).map(|i| reference.at(&[index[0], i]) * weights.at(&[row, i])).sum::<f64>() + biases.values[index[1]]
        });
        compare("linear", &linear.forward(&x, dtype, Precision::Exact).unwrap(), &expected, 16.0, 16.0);
        let empty = x.narrow(0, 0, 0).unwrap();
        assert_eq!(linear.forward(&empty, dtype, Precision::Exact).unwrap().shape(), [0, 9]);
    }
    assert!(Linear::new(vec![], None).unwrap_err().to_string().contains("at least one weight matrix"));
    if dtype == DType::F32 {
        quantized(context);
    }
}

/// Q8_0: blocks of 32 signed bytes with an `f16` scale.
fn quantized(context: &mut Context<'_>) {
    let (rows, columns) = (5, 64);
    let mut blocks = Vec::new();
    let mut weights = Vec::new();
    for _ in 0..rows * columns / 32 {
        let scale = half::f16::from_f64(context.random.uniform(0.001, 0.01));
        let codes: Vec<i8> = (0..32).map(|_| context.random.next_u64() as i8).collect();
        blocks.extend(scale.to_le_bytes());
        blocks.extend(codes.iter().map(|code| *code as u8));
        weights.extend(codes.iter().map(|code| scale.to_f64() * f64::from(*code)));
    }
    let matrix = Matrix::quantized(Quant::Q8_0, &blocks, rows, columns, context.device).unwrap();
    let linear = Linear::new(vec![matrix.clone()], None).unwrap();
    for vectors in [1, 40] {
        let (x, reference) = context.input(&[vectors, columns]);
        let expected = Reference::new(&[vectors, rows], |index| {
            (0..columns).map(|i| reference.at(&[index[0], i]) * weights[index[1] * columns + i]).sum()
        });
        compare("exact", &linear.forward(&x, DType::F32, Precision::Exact).unwrap(), &expected, 64.0, 16.0);
        // Weights and activations have at least 11 bits: each term is off by at most two roundings of 2^-11.
        let fast = linear.forward(&x, DType::F32, Precision::Fast).unwrap().to_vec::<f32>().unwrap();
        for (i, (found, expected)) in fast.iter().zip(&expected.values).enumerate() {
            let magnitude: f64 = (0..columns).map(|c| (reference.at(&[i / rows, c]) * weights[i % rows * columns + c]).abs()).sum();
            let bound = 2f64.powi(-10) * magnitude + 1e-5;
            assert!((f64::from(*found) - expected).abs() <= bound, "fast: element {i} is {found}, expected {expected} within {bound}");
        }
    }
    let ids = Tensor::new(&[4u32, 0, 99], &[3], context.device).unwrap();
    let expected = Reference::new(&[3, columns], |index| match [4, 0, 99][index[0]] {
        row if row < rows => weights[row * columns + index[1]],
        _ => 0.0,
    });
    compare("quantized embedding", &matrix.embedding(&ids, DType::F32).unwrap(), &expected, 2.0, 0.0);
}

pub fn embedding(context: &mut Context<'_>) {
    let (table, reference) = context.input(&[6, 5]);
    let ids = [5u32, 0, 3, 3, 6];
    let tensor = Tensor::new(&ids, &[5], context.device).unwrap();
    let expected = Reference::new(&[5, 5], |index| match ids[index[0]] as usize {
        row if row < 6 => reference.at(&[row, index[1]]),
        _ => 0.0,
    });
    compare("embedding", &table.embedding(&tensor).unwrap(), &expected, 0.0, 0.0);
    let matrix = Matrix::plain(table).unwrap();
    for to in context.sample([DType::F32, DType::F16], 1) {
        compare("embedding as", &matrix.embedding(&tensor, to).unwrap(), &expected, 1.0, 0.0);
    }
}

/// Attention over a cache of the row's type, with grouped heads: decoding, sequences of several tokens, and drafts of a tree.
pub fn attention(context: &mut Context<'_>) {
    const HEADS: usize = 4;
    const KV_HEADS: usize = 2;
    const DIM: usize = 32;
    let (device, dtype) = (context.device, context.dtype);
    for (lengths, queries) in [([20usize, 5], [1usize, 1]), ([20, 5], [3, 5]), ([20, 5], [4, 4])] {
        let blocks = [vec![3u32, 1], vec![0]];
        let mut all = BatchInput { query_starts: vec![0], table_width: 2, ..BatchInput::default() };
        for ((length, queries), blocks) in lengths.iter().zip(queries).zip(&blocks) {
            for position in length - queries..*length {
                all.token_ids.push(0);
                all.positions.push(position as u32);
                all.slots.push(blocks[position / BLOCK_SIZE] * BLOCK_SIZE as u32 + (position % BLOCK_SIZE) as u32);
            }
            all.query_starts.push(all.token_ids.len() as u32);
            all.kv_lengths.push(*length as u32);
            all.block_table.extend(blocks.iter().copied().chain([u32::MAX]).take(2));
        }
        // Earlier keys and values of both sequences, appended as one batch of their own.
        let mut earlier =
            BatchInput { query_starts: vec![0], table_width: 2, block_table: all.block_table.clone(), ..BatchInput::default() };
        for (length, blocks) in lengths.iter().zip(&blocks) {
            for position in 0..*length {
                earlier.token_ids.push(0);
                earlier.positions.push(position as u32);
                earlier.slots.push(blocks[position / BLOCK_SIZE] * BLOCK_SIZE as u32 + (position % BLOCK_SIZE) as u32);
            }
            earlier.query_starts.push(earlier.token_ids.len() as u32);
            earlier.kv_lengths.push(*length as u32);
        }
        let tokens = all.token_ids.len();
        let ((keys, key_reference), (values, value_reference)) = (context.input(&[25, KV_HEADS, DIM]), context.input(&[25, KV_HEADS, DIM]));
        let (query, query_reference) = context.input_within(&[tokens, HEADS, DIM], 1.0);
        let mut cache = KvCache::new(device, dtype.name().parse().unwrap(), 1, 4, KV_HEADS, DIM).unwrap();
        cache.append(0, &keys, &values, &Batch::new(&earlier, device).unwrap()).unwrap();
        let batch = Batch::new(&all, device).unwrap();
        let windows = [Window::CAUSAL, Window::sliding(4), Window { left: Some(3), right: Some(1) }, Window { left: None, right: Some(2) }];
        for window in context.sample(windows, 2) {
            let soft_cap = [None, Some(2.0f32)][context.random.below(2)];
            let params = AttentionParams { scale: 0.2, window, soft_cap, dtype: DType::F32 };
            let (sinks, sink_reference) = input(context.random, DType::F32, &[HEADS], Layout::Contiguous, 2.0, device);
            let words: Vec<i64> = (0..tokens).map(|_| context.random.next_u64() as i64).collect();
            let tree = Tensor::new(&words, &[tokens], device).unwrap();
            for (name, with_sinks, with_tree) in [
                ("attention", false, false),
                ("attention with sinks", true, false),
                ("attention of a tree", false, true),
                ("all", true, true),
            ] {
                let inputs = AttentionInputs { sinks: with_sinks.then_some(&sinks), tree: with_tree.then_some(&tree) };
                let found = cache.attend_with(0, &query, &batch, &params, &inputs).unwrap();
                let expected = Reference::new(&[tokens, HEADS * DIM], |index| {
                    let (token, head, d) = (index[0], index[1] / DIM, index[1] % DIM);
                    let sequence = usize::from(token >= queries[0]);
                    let (first, position) = (sequence * lengths[0], all.positions[token] as usize);
                    let draft = lengths[sequence] - queries[sequence];
                    let seen = |key: &usize| match with_tree && *key >= draft {
                        true => words[token] >> (key - draft) & 1 == 1,
                        false => {
                            let (left, right) = (position.saturating_sub(*key), key.saturating_sub(position));
                            window.left.is_none_or(|most| left <= most) && window.right.is_none_or(|most| right <= most)
                        }
                    };
                    let kv = head / (HEADS / KV_HEADS);
                    let weight = |key: usize| {
                        let dot: f64 =
                            (0..DIM).map(|i| query_reference.at(&[token, head, i]) * key_reference.at(&[first + key, kv, i])).sum();
                        soft_cap.map_or(dot * 0.2, |cap| f64::from(cap) * (dot * 0.2 / f64::from(cap)).tanh()).exp()
                    };
                    let seen: Vec<usize> = (0..lengths[sequence]).filter(seen).collect();
                    let sink = if with_sinks { sink_reference.at(&[head]).exp() } else { 0.0 };
                    let total: f64 = sink + seen.iter().map(|key| weight(*key)).sum::<f64>();
                    let sum: f64 = seen.iter().map(|key| weight(*key) * value_reference.at(&[first + key, kv, d])).sum();
                    if total == 0.0 { 0.0 } else { sum / total }
                });
                // Weights are rounded to the type of the values on matrix units.
                let ulps = 32.0 * epsilon(dtype) / epsilon(DType::F32);
                compare(name, &found.reshape(&[tokens, HEADS * DIM]).unwrap(), &expected, ulps, 2.0);
            }
        }
    }
}
