//! The cache of keys and values: what does not fit is an error on every device, never a panic or other memory.

mod common;

use warpwave_kernels::{DType, RopePairs};
use warpwave_tensor::{Attend, BLOCK, Device, KvCache, Rope, Step, StepNumbers, Tensor};

const HEADS: usize = 2;
const DIM: usize = 32;

/// Two sequences: three tokens behind 14 others, and two first ones. Of four blocks the second sequence has the last.
fn good() -> StepNumbers {
    StepNumbers {
        ids: vec![1, 2, 3, 4, 5],
        positions: vec![14, 15, 16, 0, 1],
        slots: vec![14, 15, 32, 48, 49],
        starts: vec![0, 3, 5],
        lengths: vec![17, 2],
        table: vec![0, 2, 3, u32::MAX],
        width: 2,
    }
}

fn random(shape: &[usize], device: &Device) -> Tensor {
    let len = shape.iter().product::<usize>();
    let floats: Vec<f32> = (0..len).map(|i| ((i * 7919 + 13) % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::new(&floats, shape, device).unwrap()
}

#[test]
fn numbers_that_contradict_each_other_are_refused() {
    type Change = fn(&mut StepNumbers);
    let cases: [(&str, Change); 11] = [
        ("4 positions", |n| _ = n.positions.pop()),
        ("4 slots", |n| _ = n.slots.pop()),
        ("starts", |n| _ = n.starts.pop()),
        ("starts", |n| n.starts[0] = 1),
        ("starts", |n| n.starts[2] = 6),
        ("tokens from 4 to 5", |n| (n.starts[1], n.lengths[1]) = (4, 0)),
        ("tokens from 9 to 5", |n| (n.starts[1], n.lengths[0]) = (9, 30)),
        ("a table of 3 blocks", |n| _ = n.table.pop()),
        ("more than 2 blocks", |n| n.lengths[0] = 2 * BLOCK as u32 + 1),
        ("no place", |n| n.slots[1] = u32::MAX),
        ("no place", |n| n.positions[1] = 1 << 31),
    ];
    for device in common::devices() {
        Step::new(&good(), &device).unwrap();
        for (expected, change) in cases {
            let mut numbers = good();
            change(&mut numbers);
            let error = Step::new(&numbers, &device).err().expect(expected).to_string();
            assert!(error.contains(expected), "{device}: {error}, and not {expected}");
            if let Device::Gpu(gpu) = &device {
                let mut pinned = good().to_pinned(gpu).unwrap();
                assert!(numbers.write_pinned(&mut pinned).is_err() && numbers.to_pinned(gpu).is_err(), "{expected}");
                assert!(Step::from_pinned(&numbers, &pinned, gpu).is_err(), "{expected}");
            }
        }
        if let Device::Gpu(gpu) = &device {
            let more = StepNumbers { width: 5, table: vec![0; 10], ..good() };
            let error = more.write_pinned(&mut good().to_pinned(gpu).unwrap()).unwrap_err().to_string();
            assert!(error.contains("bytes of numbers"), "{error}");
        }
    }
}

#[test]
fn turned_queries_find_the_same_everywhere() {
    let how = |to| Attend { scale: 0.25, window: None, cap: None, to };
    let mut expected = Vec::new();
    for device in [Device::Cpu].into_iter().chain(common::devices()) {
        let step = Step::new(&good(), &device).unwrap();
        let frequencies: Vec<f32> = (0..DIM / 2).map(|i| 0.7f32.powi(i as i32)).collect();
        let frequencies = Tensor::new(&frequencies, &[DIM / 2], &device).unwrap();
        let (rope, positions) = (Rope { pairs: RopePairs::Halves, frequencies, factor: 1.0 }, step.positions().unwrap());
        let at = rope.at(&positions).unwrap();
        // Side by side, as products leave them.
        let all = random(&[5, 4 * HEADS, DIM], &device);
        let part = |first: usize, heads: usize| all.narrow(1, first, heads).unwrap();
        let (queries, keys, values) = (part(0, 2 * HEADS), part(2 * HEADS, HEADS), part(3 * HEADS, HEADS));
        for (dtype, to, off) in [(DType::F32, DType::F32, 1e-5), (DType::F16, DType::F32, 2e-3), (DType::F32, DType::Bf16, 8e-3)] {
            let mut cache = KvCache::new(&device, dtype, 1, 4, HEADS, DIM).unwrap();
            let turned = cache.append_turned(0, &at, queries.clone(), keys.clone(), &values, &step).unwrap();
            let found = cache.attend(0, &turned, &step, &how(to)).unwrap();
            assert_eq!(found.dtype(), to, "{device}");
            let found = found.floats().unwrap();
            if expected.is_empty() {
                expected.clone_from(&found);
            }
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() <= off, "{device}, {dtype} to {to}: {found} and {expected}");
            }
        }
        // Not turned, they find something else.
        let mut cache = KvCache::new(&device, DType::F32, 1, 4, HEADS, DIM).unwrap();
        cache.append(0, &keys, &values, &step).unwrap();
        let found = cache.attend(0, &queries, &step, &how(DType::F32)).unwrap().floats().unwrap();
        assert!(found.iter().zip(&expected).any(|(found, expected)| (found - expected).abs() > 0.01), "{device}");

        let mut refused = |expected: &str, queries: &Tensor, keys: &Tensor| {
            let error = cache.append_turned(0, &at, queries.clone(), keys.clone(), &keys.clone(), &step).unwrap_err().to_string();
            assert!(error.contains(expected), "{device}: {error}");
        };
        refused("4 tokens", &queries, &keys.narrow(0, 0, 4).unwrap());
        refused("5 positions", &queries.narrow(0, 0, 4).unwrap(), &keys);
        refused("16 pairs", &random(&[5, HEADS, DIM / 2], &device), &keys);
    }
}

#[test]
fn a_cache_takes_only_what_it_has_room_for() {
    for device in common::devices() {
        let mut cache = KvCache::new(&device, DType::F32, 1, 4, HEADS, DIM).unwrap();
        let how = Attend { scale: 1.0, window: None, cap: None, to: DType::F32 };
        let (keys, queries) = (random(&[5, HEADS, DIM], &device), random(&[5, 2 * HEADS, DIM], &device));
        let step = Step::new(&good(), &device).unwrap();
        cache.append(0, &keys, &keys, &step).unwrap();
        let before = cache.attend(0, &queries, &step, &how).unwrap().to_vec::<f32>().unwrap();
        // The first token of the second sequence sees itself alone.
        assert_eq!(before[3 * 4 * DIM..][..DIM], keys.to_vec::<f32>().unwrap()[3 * HEADS * DIM..][..DIM], "{device}");

        let beyond = [
            StepNumbers { slots: vec![14, 15, 32, 48, 4 * BLOCK as u32], ..good() },
            StepNumbers { table: vec![0, 4, 3, 0], ..good() },
            StepNumbers { table: vec![u32::MAX, 2, 3, 0], ..good() },
        ];
        for numbers in beyond {
            let step = Step::new(&numbers, &device).unwrap();
            let error = cache.append(0, &keys, &keys, &step).unwrap_err().to_string();
            assert!(error.contains("and there are 4"), "{device}: {error}");
            assert!(cache.attend(0, &queries, &step, &how).unwrap_err().to_string().contains("and there are 4"), "{device}");
        }
        let narrow = random(&[5, HEADS, DIM / 2], &device);
        let fewer = random(&[4, HEADS, DIM], &device);
        let odd = random(&[5, HEADS + 1, DIM], &device);
        for (keys, values, expected) in
            [(&narrow, &narrow, "heads of 16"), (&keys, &narrow, "values of"), (&fewer, &fewer, "4 tokens"), (&odd, &odd, "3 heads")]
        {
            let error = cache.append(0, keys, values, &step).unwrap_err().to_string();
            assert!(error.contains(expected), "{device}: {error}");
        }
        for (queries, expected) in [(&narrow, "heads of 16"), (&fewer, "4 tokens"), (&odd, "3 heads")] {
            let error = cache.attend(0, queries, &step, &how).unwrap_err().to_string();
            assert!(error.contains(expected), "{device}: {error}");
        }
        assert!(cache.append(1, &keys, &keys, &step).unwrap_err().to_string().contains("no layer 1 in 1"));
        assert!(cache.attend(1, &queries, &step, &how).unwrap_err().to_string().contains("no layer 1 in 1"));
        if !device.is_cpu() {
            let here = Step::new(&good(), &Device::Cpu).unwrap();
            assert!(cache.append(0, &keys, &keys, &here).unwrap_err().to_string().contains("the step is on cpu"));
            let elsewhere = random(&[5, 2 * HEADS, DIM], &Device::Cpu);
            assert!(cache.attend(0, &elsewhere, &step, &how).unwrap_err().to_string().contains("the queries is on cpu"));
        }
        assert_eq!(cache.attend(0, &queries, &step, &how).unwrap().to_vec::<f32>().unwrap(), before, "{device}: nothing was written");
    }
}
