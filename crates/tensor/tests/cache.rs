//! The KV cache: invalid input is an error on every device, never a panic or an out-of-bounds access.

mod common;

use warpwave_kernels::{DType, RopePairs, Window};
use warpwave_tensor::{AttentionInputs, AttentionParams, BLOCK_SIZE, Batch, BatchInput, Device, KvCache, KvCacheType, Rope, Tensor};

const HEADS: usize = 2;
const DIM: usize = 32;

/// Two sequences: three tokens after 14 others, and two first tokens. The second sequence has the last of four blocks.
fn good() -> BatchInput {
    BatchInput {
        token_ids: vec![1, 2, 3, 4, 5],
        positions: vec![14, 15, 16, 0, 1],
        slots: vec![14, 15, 32, 48, 49],
        query_starts: vec![0, 3, 5],
        kv_lengths: vec![17, 2],
        block_table: vec![0, 2, 3, u32::MAX],
        table_width: 2,
    }
}

fn random(shape: &[usize], device: &Device) -> Tensor {
    let len = shape.iter().product::<usize>();
    let floats: Vec<f32> = (0..len).map(|i| ((i * 7919 + 13) % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::new(&floats, shape, device).unwrap()
}

#[test]
fn inconsistent_batches_are_rejected() {
    type Change = fn(&mut BatchInput);
    let cases: [(&str, Change); 11] = [
        ("4 positions", |n| _ = n.positions.pop()),
        ("4 slots", |n| _ = n.slots.pop()),
        ("query_starts", |n| _ = n.query_starts.pop()),
        ("query_starts", |n| n.query_starts[0] = 1),
        ("query_starts", |n| n.query_starts[2] = 6),
        ("tokens 4..5", |n| (n.query_starts[1], n.kv_lengths[1]) = (4, 0)),
        ("tokens 9..5", |n| (n.query_starts[1], n.kv_lengths[0]) = (9, 30)),
        ("block table has 3 entries", |n| _ = n.block_table.pop()),
        ("more than fit in 2 blocks", |n| n.kv_lengths[0] = 2 * BLOCK_SIZE as u32 + 1),
        ("exceeds 2147483647", |n| n.slots[1] = u32::MAX),
        ("exceeds 2147483647", |n| n.positions[1] = 1 << 31),
    ];
    for device in common::devices() {
        Batch::new(&good(), &device).unwrap();
        for (expected, change) in cases {
            let mut input = good();
            change(&mut input);
            let error = Batch::new(&input, &device).err().expect(expected).to_string();
            assert!(error.contains(expected), "{device}: {error}, and not {expected}");
            if let Device::Gpu(gpu) = &device {
                let mut pinned = good().to_pinned(gpu).unwrap();
                assert!(input.write_pinned(&mut pinned).is_err() && input.to_pinned(gpu).is_err(), "{expected}");
                assert!(Batch::from_pinned(&input, &pinned, gpu).is_err(), "{expected}");
            }
        }
        if let Device::Gpu(gpu) = &device {
            let more = BatchInput { table_width: 5, block_table: vec![0; 10], ..good() };
            let error = more.write_pinned(&mut good().to_pinned(gpu).unwrap()).unwrap_err().to_string();
            assert!(error.contains("pinned buffer has"), "{error}");
        }
    }
}

#[test]
fn attention_is_the_same_on_every_device() {
    let params = |dtype| AttentionParams { scale: 0.25, window: Window::CAUSAL, soft_cap: None, dtype };
    let mut expected = Vec::new();
    for device in [Device::Cpu].into_iter().chain(common::devices()) {
        let batch = Batch::new(&good(), &device).unwrap();
        let frequencies: Vec<f32> = (0..DIM / 2).map(|i| 0.7f32.powi(i as i32)).collect();
        let frequencies = Tensor::new(&frequencies, &[DIM / 2], &device).unwrap();
        let (rope, positions) = (Rope { pairs: RopePairs::Halves, frequencies, factor: 1.0 }, batch.positions().unwrap());
        let at = rope.at(&positions).unwrap();
        // Views of one tensor, as a fused QKV projection gives them.
        let all = random(&[5, 4 * HEADS, DIM], &device);
        let part = |first: usize, heads: usize| all.narrow(1, first, heads).unwrap();
        let (queries, keys, values) = (part(0, 2 * HEADS), part(2 * HEADS, HEADS), part(3 * HEADS, HEADS));
        // Keys and values are below 1 and scores below 8: a code is off by at most 1/254 of 1 with q8_0 and by 1/16 of itself with fp8.
        let cases = [
            (KvCacheType::F32, DType::F32, 1e-5),
            (KvCacheType::F16, DType::F32, 2e-3),
            (KvCacheType::F32, DType::Bf16, 8e-3),
            (KvCacheType::Q8_0, DType::F32, 2e-2),
            (KvCacheType::F8E4M3, DType::F32, 1e-1),
        ];
        for (kind, to, off) in cases {
            let mut cache = KvCache::new(&device, kind, 1, 4, HEADS, DIM).unwrap();
            let rotated = cache.rope_append(0, &at, queries.clone(), keys.clone(), &values, &batch).unwrap();
            let found = cache.attend(0, &rotated, &batch, &params(to)).unwrap();
            assert_eq!(found.dtype(), to, "{device}");
            let found = found.floats().unwrap();
            if expected.is_empty() {
                expected.clone_from(&found);
            }
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() <= off, "{device}, {kind} to {to}: {found} and {expected}");
            }
        }
        // Without rope the result differs.
        let mut cache = KvCache::new(&device, KvCacheType::F32, 1, 4, HEADS, DIM).unwrap();
        cache.append(0, &keys, &values, &batch).unwrap();
        let found = cache.attend(0, &queries, &batch, &params(DType::F32)).unwrap().floats().unwrap();
        assert!(found.iter().zip(&expected).any(|(found, expected)| (found - expected).abs() > 0.01), "{device}");

        let mut rejected = |expected: &str, queries: &Tensor, keys: &Tensor| {
            let error = cache.rope_append(0, &at, queries.clone(), keys.clone(), &keys.clone(), &batch).unwrap_err().to_string();
            assert!(error.contains(expected), "{device}: {error}");
        };
        rejected("expected 5 tokens (the size of the batch), got 4", &queries, &keys.narrow(0, 0, 4).unwrap());
        rejected("expected 4 positions, one per token, got 5", &queries.narrow(0, 0, 4).unwrap(), &keys);
        rejected("16 rotary pairs", &random(&[5, HEADS, DIM / 2], &device), &keys);
    }
}

/// Prompts and decode steps with a window, a soft cap and sinks.
#[test]
fn quantized_caches_take_the_options_of_attention() {
    let steps = BatchInput {
        token_ids: vec![3, 5],
        positions: vec![16, 1],
        slots: vec![32, 49],
        query_starts: vec![0, 1, 2],
        kv_lengths: vec![17, 2],
        ..good()
    };
    let params = AttentionParams { scale: 0.25, window: Window { left: Some(3), right: Some(0) }, soft_cap: Some(2.0), dtype: DType::F32 };
    let mut expected: Vec<Vec<f32>> = Vec::new();
    for device in [Device::Cpu].into_iter().chain(common::devices()) {
        let [keys, values] = [1.0, -1.0].map(|sign| random(&[5, HEADS, DIM], &device).affine(sign, 0.0).unwrap());
        let sinks = Tensor::new(&[0.5f32, -1.0, 2.0, 0.0], &[2 * HEADS], &device).unwrap();
        for (kind, off) in [(KvCacheType::F32, 1e-5), (KvCacheType::Q8_0, 2e-2), (KvCacheType::F8E4M3, 1e-1)] {
            let mut cache = KvCache::new(&device, kind, 1, 4, HEADS, DIM).unwrap();
            cache.append(0, &keys, &values, &Batch::new(&good(), &device).unwrap()).unwrap();
            for (i, input) in [good(), steps.clone()].iter().enumerate() {
                let queries = random(&[input.token_ids.len(), 2 * HEADS, DIM], &device);
                let batch = Batch::new(input, &device).unwrap();
                let inputs = AttentionInputs { sinks: Some(&sinks), tree: None };
                let found = cache.attend_with(0, &queries, &batch, &params, &inputs).unwrap().floats().unwrap();
                if expected.len() == i {
                    expected.push(found.clone());
                }
                for (found, expected) in found.iter().zip(&expected[i]) {
                    assert!((found - expected).abs() <= off, "{device}, {kind}, batch {i}: {found} and {expected}");
                }
                let words = Tensor::new(&vec![-1i64; input.token_ids.len()], &[input.token_ids.len()], &device).unwrap();
                let inputs = AttentionInputs { sinks: None, tree: Some(&words) };
                let with_tree = cache.attend_with(0, &queries, &batch, &params, &inputs);
                if kind == KvCacheType::F32 || device == Device::Cpu {
                    with_tree.unwrap();
                } else {
                    let error = with_tree.unwrap_err().to_string();
                    assert!(error.contains("a tree mask cannot be combined with a quantized cache"), "{device}: {error}");
                }
            }
        }
        let error = KvCache::new(&device, KvCacheType::Q8_0, 1, 4, HEADS, 264).err().unwrap().to_string();
        assert!(error.contains("head_dim 264 is not supported; a cache of type q8_0 supports up to 256"), "{error}");
    }
}

#[test]
fn out_of_range_and_mismatched_input_is_rejected() {
    for device in common::devices() {
        let mut cache = KvCache::new(&device, KvCacheType::F32, 1, 4, HEADS, DIM).unwrap();
        let params = AttentionParams { scale: 1.0, window: Window::CAUSAL, soft_cap: None, dtype: DType::F32 };
        let (keys, queries) = (random(&[5, HEADS, DIM], &device), random(&[5, 2 * HEADS, DIM], &device));
        let batch = Batch::new(&good(), &device).unwrap();
        cache.append(0, &keys, &keys, &batch).unwrap();
        let before = cache.attend(0, &queries, &batch, &params).unwrap().to_vec::<f32>().unwrap();
        // The first token of the second sequence attends to itself alone.
        assert_eq!(before[3 * 4 * DIM..][..DIM], keys.to_vec::<f32>().unwrap()[3 * HEADS * DIM..][..DIM], "{device}");

        let out_of_range = [
            BatchInput { slots: vec![14, 15, 32, 48, 4 * BLOCK_SIZE as u32], ..good() },
            BatchInput { block_table: vec![0, 4, 3, 0], ..good() },
            BatchInput { block_table: vec![u32::MAX, 2, 3, 0], ..good() },
        ];
        for input in out_of_range {
            let batch = Batch::new(&input, &device).unwrap();
            let error = cache.append(0, &keys, &keys, &batch).unwrap_err().to_string();
            assert!(error.contains("for a cache of 4 blocks"), "{device}: {error}");
            assert!(cache.attend(0, &queries, &batch, &params).unwrap_err().to_string().contains("for a cache of 4 blocks"), "{device}");
        }
        let narrow = random(&[5, HEADS, DIM / 2], &device);
        let fewer = random(&[4, HEADS, DIM], &device);
        let odd = random(&[5, HEADS + 1, DIM], &device);
        for (keys, values, expected) in [
            (&narrow, &narrow, "head_dim 16"),
            (&keys, &narrow, "keys and values must have the same shape"),
            (&fewer, &fewer, "expected 5 tokens (the size of the batch), got 4"),
            (&odd, &odd, "3 heads"),
        ] {
            let error = cache.append(0, keys, values, &batch).unwrap_err().to_string();
            assert!(error.contains(expected), "{device}: {error}");
        }
        for (queries, expected) in
            [(&narrow, "head_dim 16"), (&fewer, "expected 5 tokens (the size of the batch), got 4"), (&odd, "3 query heads")]
        {
            let error = cache.attend(0, queries, &batch, &params).unwrap_err().to_string();
            assert!(error.contains(expected), "{device}: {error}");
        }
        assert!(cache.append(1, &keys, &keys, &batch).unwrap_err().to_string().contains("layer 1 is out of range"));
        assert!(cache.attend(1, &queries, &batch, &params).unwrap_err().to_string().contains("layer 1 is out of range"));
        if !device.is_cpu() {
            let on_cpu = Batch::new(&good(), &Device::Cpu).unwrap();
            let error = cache.append(0, &keys, &keys, &on_cpu).unwrap_err().to_string();
            assert!(error.contains(&format!("expected the batch on {device}, got cpu")), "{error}");
            let elsewhere = random(&[5, 2 * HEADS, DIM], &Device::Cpu);
            let error = cache.attend(0, &elsewhere, &batch, &params).unwrap_err().to_string();
            assert!(error.contains(&format!("expected the query tensor on {device}, got cpu")), "{error}");
        }
        assert_eq!(cache.attend(0, &queries, &batch, &params).unwrap().to_vec::<f32>().unwrap(), before, "{device}: nothing was written");
    }
}

#[test]
fn types_of_caches_have_names_and_sizes() {
    for kind in KvCacheType::ALL {
        assert_eq!(kind.name().parse::<KvCacheType>(), Ok(kind));
    }
    assert!("q4_0".parse::<KvCacheType>().unwrap_err().to_string().contains("valid types: f32, f16, bf16, f8e4m3, q8_0"));
    // Q8_0 as in GGUF: 34 bytes for 32 elements.
    let bytes = |kind| KvCache::bytes_per_token(kind, 2, 8, 128);
    assert_eq!(bytes(KvCacheType::F16), 2 * 2 * 8 * 256);
    assert_eq!(bytes(KvCacheType::Q8_0), 2 * 2 * 8 * 4 * 34);
    assert_eq!(bytes(KvCacheType::F8E4M3), 2 * 2 * 8 * 130);
}
