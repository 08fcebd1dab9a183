//! Operations on the CPU beside those of GPUs, whose kernels have references of their own: both must agree.

mod common;

use half::{bf16, f16};
use warpwave_gpu::HostBuffer;
use warpwave_jit::Jit;
use warpwave_kernels::{Binary, DType, Element, Reduce, Unary};
use warpwave_tensor::{Device, Tensor};
use warpwave_test_support::Random;

fn random() -> Random {
    Random::new(warpwave_test_support::seed())
}

const TYPES: [DType; 9] = [DType::U8, DType::I16, DType::I32, DType::U32, DType::I64, DType::F16, DType::Bf16, DType::F32, DType::F64];

fn tensor(random: &mut Random, dtype: DType, shape: &[usize]) -> Tensor {
    fn of<T: Element>(random: &mut Random, shape: &[usize], f: impl Fn(f64) -> T) -> Tensor {
        let data: Vec<T> = (0..shape.iter().product()).map(|_| f(random.unit() * 8.0 - 4.0)).collect();
        Tensor::new(&data, shape, &Device::Cpu).unwrap()
    }
    match dtype {
        DType::U8 => of(random, shape, |x| (x * 30.0) as i64 as u8),
        DType::I16 => of(random, shape, |x| (x * 5e3) as i16),
        DType::I32 => of(random, shape, |x| (x * 5e8) as i32),
        DType::U32 => of(random, shape, |x| (x * 1e9) as i64 as u32),
        DType::I64 => of(random, shape, |x| (x * 2e18) as i64),
        DType::F16 => of(random, shape, f16::from_f64),
        DType::Bf16 => of(random, shape, bf16::from_f64),
        DType::F32 => of(random, shape, |x| x as f32),
        _ => of(random, shape, |x| x),
    }
}

/// Digits of a type, as a share of the number.
fn digits(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 1.0 / 1024.0,
        DType::Bf16 => 1.0 / 128.0,
        DType::F32 => 4e-6,
        DType::F64 => 1e-14,
        _ => 0.0,
    }
}

/// Both are equal but for the last digits, of the numbers or of sums of some that are up to 4.
fn agree(what: &str, here: &Tensor, there: &Tensor) {
    let sums = ["sum", "mean", "var", "matmul", "layer_norm", "log_softmax"].contains(&what);
    let floor = if sums { 8.0 } else { 1e-3 };
    assert_eq!((here.shape(), here.dtype()), (there.shape(), there.dtype()), "{what}");
    if here.dtype().is_integer() {
        assert_eq!(here.host_bytes().unwrap(), there.host_bytes().unwrap(), "{what} {here:?}");
        return;
    }
    let wide = |x: &Tensor| x.to_device(&Device::Cpu).unwrap().cast(DType::F64).unwrap().to_vec::<f64>().unwrap();
    let close = digits(here.dtype());
    for (i, (a, b)) in wide(here).into_iter().zip(wide(there)).enumerate() {
        let near = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= close * (a.abs().max(b.abs()) + floor);
        assert!(near, "{what} of {:?}: element {i} is {a} on the CPU and {b} on {}", here, there.device());
    }
}

/// Some of many: each costs a compile of its kernel.
fn some<T>(random: &mut Random, all: impl IntoIterator<Item = T>, most: usize) -> Vec<T> {
    let mut all: Vec<T> = all.into_iter().collect();
    while !common::full() && all.len() > most {
        all.swap_remove((random.unit() * all.len() as f64) as usize);
    }
    all
}

#[test]
fn both_give_the_same() {
    let mut random = random();
    for device in common::devices().into_iter().filter(|device| !device.is_cpu()) {
        for dtype in some(&mut random, TYPES, 3) {
            let a = tensor(&mut random, dtype, &[3, 5, 7]);
            let b = tensor(&mut random, dtype, &[5, 1]);
            let moved = |x: &Tensor| x.to_device(&device).unwrap();
            // A view that lies in another order.
            let (turned, turned_there) = (a.transpose(0, 2).unwrap(), moved(&a).transpose(0, 2).unwrap());
            for op in some(&mut random, Unary::ALL.into_iter().filter(|op| op.takes(dtype)), 3) {
                agree(op.name(), &turned.unary(op).unwrap(), &turned_there.unary(op).unwrap());
            }
            for op in some(&mut random, Binary::ALL.into_iter().filter(|op| op.takes(dtype)), 2) {
                agree(op.name(), &a.binary(op, &b).unwrap(), &moved(&a).binary(op, &moved(&b)).unwrap());
            }
            let reductions = Reduce::ALL.into_iter().filter(|op| !op.results(dtype).is_empty() && op.name() != "prod");
            for op in some(&mut random, reductions, 2) {
                for axes in [&[2][..], &[0], &[0, 2], &[0, 1, 2]] {
                    agree(op.name(), &turned.reduce(op, axes).unwrap(), &turned_there.reduce(op, axes).unwrap());
                }
            }
            let (mask, no) = (a.binary(Binary::Lt, &b).unwrap(), tensor(&mut random, dtype, &[7]));
            agree("where", &mask.where_cond(&a, &no).unwrap(), &moved(&mask).where_cond(&moved(&a), &moved(&no)).unwrap());
            agree("affine", &a.affine(3, -1).unwrap(), &moved(&a).affine(3, -1).unwrap());
            for to in some(&mut random, TYPES, 2) {
                agree("cast", &turned.cast(to).unwrap(), &turned_there.cast(to).unwrap());
            }
            if !dtype.is_integer() {
                for axis in 0..3 {
                    agree("softmax", &turned.softmax(axis).unwrap(), &turned_there.softmax(axis).unwrap());
                    agree("log_softmax", &a.log_softmax(axis).unwrap(), &moved(&a).log_softmax(axis).unwrap());
                }
                let (w, bias) = (tensor(&mut random, dtype, &[7]), tensor(&mut random, dtype, &[7]));
                agree(
                    "layer_norm",
                    &a.layer_norm(&w, &bias, 1e-5).unwrap(),
                    &moved(&a).layer_norm(&moved(&w), &moved(&bias), 1e-5).unwrap(),
                );
                let c = tensor(&mut random, dtype, &[7, 4]);
                agree("matmul", &a.matmul(&c).unwrap(), &moved(&a).matmul(&moved(&c)).unwrap());
            }
        }
    }
}

#[test]
fn views_share_memory_and_writers_get_their_own() {
    for device in common::devices() {
        let a = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3], &device).unwrap();
        let mut row = a.narrow(0, 1, 1).unwrap();
        let turned = a.transpose(0, 1).unwrap();
        row.scale_in_place(10.0).unwrap();
        assert_eq!(row.to_vec::<f32>().unwrap(), [40.0, 50.0, 60.0]);
        assert_eq!(a.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(turned.to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert_eq!(turned.reshape(&[6]).unwrap().to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        let split = a.narrow(1, 0, 2).unwrap().reshape(&[2, 2, 1]).unwrap();
        assert_eq!(split.to_vec::<f32>().unwrap(), [1.0, 2.0, 4.0, 5.0]);
        let none = Tensor::zeros(DType::F32, &[0, 3], &device).unwrap();
        assert!(none.unary(Unary::Exp).unwrap().to_vec::<f32>().unwrap().is_empty());
        assert!(a.reshape(&[4]).is_err() && a.to_vec::<f64>().is_err() && a.permute(&[0, 0]).is_err());
        assert!(a.binary(Binary::Add, &Tensor::zeros(DType::F32, &[2], &device).unwrap()).is_err());
    }
}

#[test]
fn tensors_go_side_by_side() {
    for device in common::devices() {
        let a = Tensor::new(&[1u32, 2, 3, 4, 5, 6], &[2, 3], &device).unwrap();
        let turned = a.transpose(0, 1).unwrap();
        let none = Tensor::zeros(DType::U32, &[2, 0], &device).unwrap();
        let wide = Tensor::cat(&[a.narrow(1, 1, 2).unwrap(), none.clone(), a.clone()], 1).unwrap();
        assert_eq!((wide.shape(), wide.to_vec::<u32>().unwrap()), (&[2, 5][..], vec![2, 3, 1, 2, 3, 5, 6, 4, 5, 6]), "{device}");
        let high = Tensor::cat(&[turned.clone(), turned.narrow(0, 2, 1).unwrap()], 0).unwrap();
        assert_eq!((high.shape(), high.to_vec::<u32>().unwrap()), (&[4, 2][..], vec![1, 4, 2, 5, 3, 6, 3, 6]), "{device}");
        let empty = Tensor::zeros(DType::U32, &[0, 3], &device).unwrap();
        assert_eq!(Tensor::cat(&[empty.clone(), empty.clone()], 1).unwrap().shape(), [0, 6], "{device}");
        assert_eq!(Tensor::cat(std::slice::from_ref(&a), 1).unwrap().to_vec::<u32>().unwrap(), a.to_vec::<u32>().unwrap());
        let floats = Tensor::zeros(DType::F32, &[2, 3], &device).unwrap();
        for (parts, d) in [(vec![], 0), (vec![a.clone()], 2), (vec![a.clone(), turned.clone()], 1), (vec![a.clone(), floats], 0)] {
            assert!(Tensor::cat(&parts, d).is_err(), "{device}: {parts:?} along {d}");
        }
        if !device.is_cpu() {
            let here = Tensor::zeros(DType::U32, &[2, 3], &Device::Cpu).unwrap();
            assert!(matches!(Tensor::cat(&[a, here], 0), Err(warpwave_tensor::Error::Device { .. })));
        }
    }
}

/// From one GPU to another: behind what was queued before, before what is queued next, whatever the layout.
#[test]
fn tensors_go_from_gpu_to_gpu() {
    let mut random = random();
    for devices in common::groups() {
        for dtype in TYPES {
            let here = tensor(&mut random, dtype, &[5, 7, 3]);
            let there = here.to_device(&devices[0]).unwrap();
            let part = |x: &Tensor| x.narrow(1, 2, 4).unwrap().transpose(0, 2).unwrap();
            let moved = part(&there).copied().unwrap().to_device(&devices[1]).unwrap();
            assert_eq!(moved.device(), &devices[1]);
            let again = part(&there).to_device(&devices[1]).unwrap().to_device(&devices[0]).unwrap();
            for (what, found) in [("copied", moved), ("there and back", again)] {
                assert_eq!(found.shape(), [3, 4, 5]);
                assert_eq!(found.host_bytes().unwrap(), part(&here).host_bytes().unwrap(), "{dtype} {what} on {devices:?}");
            }
            let none = there.narrow(0, 0, 0).unwrap().to_device(&devices[1]).unwrap();
            assert_eq!((none.shape(), none.host_bytes().unwrap().len()), (&[0, 7, 3][..], 0));
        }
    }
}

#[test]
fn a_graph_reads_page_locked_memory_each_time() {
    for device in common::devices() {
        let Device::Gpu(gpu) = &device else { continue };
        let mut host = HostBuffer::<u8>::zeroed(gpu.stream.device(), 8).unwrap();
        assert!(Tensor::from_pinned(&host, DType::I32, &[3], gpu).is_err());
        let step = || Tensor::from_pinned(&host, DType::I32, &[2], gpu).unwrap().narrow(0, 1, 1).unwrap().unary(Unary::Neg).unwrap();
        let (plain, mut captured) = (step(), None);
        assert_eq!(plain.to_vec::<i32>().unwrap(), [0]);
        let graph = gpu.stream.capture_graph(|_| {
            captured = Some(step());
            Ok(())
        });
        let graph = graph.unwrap().instantiate().unwrap();
        for number in [7i32, -9] {
            host.as_mut_slice().unwrap()[4..].copy_from_slice(&number.to_ne_bytes());
            graph.launch(&gpu.stream).unwrap();
            assert_eq!(captured.as_ref().unwrap().to_vec::<i32>().unwrap(), [-number]);
        }
    }
}

/// Who is done with a GPU, its library of products included, does not end what others capture on it.
#[test]
fn captures_go_on_while_others_come_and_go() {
    for device in common::devices() {
        let Device::Gpu(gpu) = &device else { continue };
        let rounds = if device.is_virtual() { 3 } else { 200 };
        std::thread::scope(|scope| {
            let others = scope.spawn(|| {
                for _ in 0..rounds {
                    let other = Device::gpu(gpu.stream.device(), &Jit::default()).unwrap();
                    let x = Tensor::new(&vec![1f32; 64 * 64], &[64, 64], &other).unwrap();
                    assert_eq!(x.matmul(&x).unwrap().to_vec::<f32>().unwrap(), vec![64.0; 64 * 64]);
                }
            });
            let mut x = Tensor::new(&[1f32; 256], &[256], &device).unwrap();
            x.scale_in_place(1.0).unwrap();
            let mut captured = 0;
            loop {
                let graph = gpu.stream.capture_graph(|_| {
                    (0..20).for_each(|_| x.scale_in_place(1.0).unwrap());
                    Ok(())
                });
                graph.unwrap();
                captured += 1;
                if others.is_finished() {
                    break;
                }
            }
            println!("{device}: {captured} captures");
        });
    }
}
