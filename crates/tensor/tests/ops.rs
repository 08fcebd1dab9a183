//! Tensors on every device: agreement of CPU and GPU over the full range of values, views, transfers, graphs, printing and files.

mod common;

use half::{bf16, f16};
use warpwave_gpu::HostBuffer;
use warpwave_jit::Jit;
use warpwave_kernels::{Binary, Conv, DType, Element, Quant, Reduce, Unary};
use warpwave_tensor::{Device, Linear, Matrix, Precision, Tensor, safetensors};
use warpwave_test_support::Random;
use warpwave_test_support::full_run;

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

/// Relative tolerance of a type.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 1.0 / 1024.0,
        DType::Bf16 => 1.0 / 128.0,
        DType::F32 => 4e-6,
        DType::F64 => 1e-14,
        _ => 0.0,
    }
}

/// Compares results of the CPU and a GPU, up to rounding; sums are of values up to 4.
fn agree(what: &str, here: &Tensor, there: &Tensor) {
    let sums = ["sum", "mean", "var", "matmul", "layer_norm", "log_softmax"].contains(&what);
    let floor = if sums { 8.0 } else { 1e-3 };
    assert_eq!((here.shape(), here.dtype()), (there.shape(), there.dtype()), "{what}");
    if here.dtype().is_integer() {
        assert_eq!(here.host_bytes().unwrap(), there.host_bytes().unwrap(), "{what} {here:?}");
        return;
    }
    let wide = |x: &Tensor| x.to_device(&Device::Cpu).unwrap().cast(DType::F64).unwrap().to_vec::<f64>().unwrap();
    let close = tolerance(here.dtype());
    for (i, (a, b)) in wide(here).into_iter().zip(wide(there)).enumerate() {
        let near = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= close * (a.abs().max(b.abs()) + floor);
        assert!(near, "{what} of {:?}: element {i} is {a} on the CPU and {b} on {}", here, there.device());
    }
}

/// A random sample, since each case compiles a kernel.
fn some<T>(random: &mut Random, all: impl IntoIterator<Item = T>, most: usize) -> Vec<T> {
    let mut all: Vec<T> = all.into_iter().collect();
    while !full_run() && all.len() > most {
        all.swap_remove((random.unit() * all.len() as f64) as usize);
    }
    all
}

#[test]
fn cpu_and_gpu_agree() {
    let mut random = random();
    for device in common::devices().into_iter().filter(|device| !device.is_cpu()) {
        for dtype in some(&mut random, TYPES, 3) {
            let a = tensor(&mut random, dtype, &[3, 5, 7]);
            let b = tensor(&mut random, dtype, &[5, 1]);
            let moved = |x: &Tensor| x.to_device(&device).unwrap();
            let (transposed, transposed_there) = (a.transpose(0, 2).unwrap(), moved(&a).transpose(0, 2).unwrap());
            for op in some(&mut random, Unary::ALL.into_iter().filter(|op| op.takes(dtype)), 3) {
                agree(op.name(), &transposed.unary(op).unwrap(), &transposed_there.unary(op).unwrap());
            }
            for op in some(&mut random, Binary::ALL.into_iter().filter(|op| op.takes(dtype)), 2) {
                agree(op.name(), &a.binary(op, &b).unwrap(), &moved(&a).binary(op, &moved(&b)).unwrap());
            }
            let reductions = Reduce::ALL.into_iter().filter(|op| !op.results(dtype).is_empty() && op.name() != "prod");
            for op in some(&mut random, reductions, 2) {
                for axes in [&[2][..], &[0], &[0, 2], &[0, 1, 2]] {
                    agree(op.name(), &transposed.reduce(op, axes).unwrap(), &transposed_there.reduce(op, axes).unwrap());
                }
            }
            let (mask, no) = (a.binary(Binary::Lt, &b).unwrap(), tensor(&mut random, dtype, &[7]));
            agree("where", &mask.where_cond(&a, &no).unwrap(), &moved(&mask).where_cond(&moved(&a), &moved(&no)).unwrap());
            agree("affine", &a.affine(3, -1).unwrap(), &moved(&a).affine(3, -1).unwrap());
            for to in some(&mut random, TYPES, 2) {
                agree("cast", &transposed.cast(to).unwrap(), &transposed_there.cast(to).unwrap());
            }
            if !dtype.is_integer() {
                for axis in 0..3 {
                    agree("softmax", &transposed.softmax(axis).unwrap(), &transposed_there.softmax(axis).unwrap());
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
fn views_share_storage_and_writes_copy_it() {
    for device in common::devices() {
        let a = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3], &device).unwrap();
        let mut row = a.narrow(0, 1, 1).unwrap();
        let transposed = a.transpose(0, 1).unwrap();
        row.scale_in_place(10.0).unwrap();
        assert_eq!(row.to_vec::<f32>().unwrap(), [40.0, 50.0, 60.0]);
        assert_eq!(a.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(transposed.to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert_eq!(transposed.reshape(&[6]).unwrap().to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        let split = a.narrow(1, 0, 2).unwrap().reshape(&[2, 2, 1]).unwrap();
        assert_eq!(split.to_vec::<f32>().unwrap(), [1.0, 2.0, 4.0, 5.0]);
        let none = Tensor::zeros(DType::F32, &[0, 3], &device).unwrap();
        assert!(none.unary(Unary::Exp).unwrap().to_vec::<f32>().unwrap().is_empty());
        assert!(a.reshape(&[4]).is_err() && a.to_vec::<f64>().is_err() && a.permute(&[0, 0]).is_err());
        assert!(a.binary(Binary::Add, &Tensor::zeros(DType::F32, &[2], &device).unwrap()).is_err());
    }
}

#[test]
fn cat_along_every_dimension() {
    for device in common::devices() {
        let a = Tensor::new(&[1u32, 2, 3, 4, 5, 6], &[2, 3], &device).unwrap();
        let transposed = a.transpose(0, 1).unwrap();
        let none = Tensor::zeros(DType::U32, &[2, 0], &device).unwrap();
        let wide = Tensor::cat(&[a.narrow(1, 1, 2).unwrap(), none.clone(), a.clone()], 1).unwrap();
        assert_eq!((wide.shape(), wide.to_vec::<u32>().unwrap()), (&[2, 5][..], vec![2, 3, 1, 2, 3, 5, 6, 4, 5, 6]), "{device}");
        let high = Tensor::cat(&[transposed.clone(), transposed.narrow(0, 2, 1).unwrap()], 0).unwrap();
        assert_eq!((high.shape(), high.to_vec::<u32>().unwrap()), (&[4, 2][..], vec![1, 4, 2, 5, 3, 6, 3, 6]), "{device}");
        let empty = Tensor::zeros(DType::U32, &[0, 3], &device).unwrap();
        assert_eq!(Tensor::cat(&[empty.clone(), empty.clone()], 1).unwrap().shape(), [0, 6], "{device}");
        assert_eq!(Tensor::cat(std::slice::from_ref(&a), 1).unwrap().to_vec::<u32>().unwrap(), a.to_vec::<u32>().unwrap());
        let floats = Tensor::zeros(DType::F32, &[2, 3], &device).unwrap();
        for (parts, d) in [(vec![], 0), (vec![a.clone()], 2), (vec![a.clone(), transposed.clone()], 1), (vec![a.clone(), floats], 0)] {
            assert!(Tensor::cat(&parts, d).is_err(), "{device}: {parts:?} along {d}");
        }
        if !device.is_cpu() {
            let here = Tensor::zeros(DType::U32, &[2, 3], &Device::Cpu).unwrap();
            assert!(matches!(Tensor::cat(&[a, here], 0), Err(warpwave_tensor::Error::Device { .. })));
        }
    }
}

/// Copies between GPUs, of any layout, are ordered after queued work of the source and before later work of the target.
#[test]
fn transfers_between_gpus() {
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
fn a_graph_reads_page_locked_memory_at_each_launch() {
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

/// Opening and closing a device, with its BLAS handle, does not end captures on other streams of it.
#[test]
fn captures_survive_other_users_of_the_device() {
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

#[test]
fn arange_counts_to_an_excluded_end() {
    for device in common::devices() {
        assert_eq!(Tensor::arange(2u32, 9, 3, &device).unwrap().to_vec::<u32>().unwrap(), [2, 5, 8]);
        assert_eq!(Tensor::arange(5i64, -1, -2, &device).unwrap().to_vec::<i64>().unwrap(), [5, 3, 1]);
        assert_eq!(Tensor::arange(0.0f32, 1.0, 0.25, &device).unwrap().to_vec::<f32>().unwrap(), [0.0, 0.25, 0.5, 0.75]);
        for (start, end, step) in [(3, 3, 1), (1, 0, 2), (0, 1, -2)] {
            assert!(Tensor::arange(start, end, step, &device).unwrap().is_empty(), "{start} {end} {step}");
        }
        assert!(Tensor::arange(0i32, 3, 0, &device).is_err() && Tensor::arange(0.0f64, f64::NAN, 1.0, &device).is_err());
    }
}

#[test]
fn negative_dimensions_count_from_the_end() {
    let x = Tensor::arange(0i64, 24, 1, &Device::Cpu).unwrap().reshape(&[2, 3, 4]).unwrap();
    assert_eq!((x.size(-1), x.size(-3), x.size(0usize)), (4, 2, 2));
    assert_eq!(x.transpose(0, -1).unwrap().shape(), [4, 3, 2]);
    assert_eq!(x.t().unwrap().shape(), [2, 4, 3]);
    assert_eq!(x.permute(&[-1, 0, 1]).unwrap().shape(), [4, 2, 3]);
    assert_eq!(x.unsqueeze(-1).unwrap().shape(), [2, 3, 4, 1]);
    assert_eq!(x.unsqueeze(0).unwrap().squeeze(0).unwrap().shape(), [2, 3, 4]);
    assert_eq!(x.sum(&[-1, 0]).unwrap().shape(), [3]);
    assert_eq!(x.max_keepdim(&[1]).unwrap().shape(), [2, 1, 4]);
    assert_eq!(x.narrow(-2, 1, 2).unwrap().shape(), [2, 2, 4]);
    for (error, expected) in [
        (x.transpose(0, 3).unwrap_err(), "transpose: dimension 3 is out of range for shape [2, 3, 4]"),
        (x.sum(&[-4]).unwrap_err(), "sum: dimension -4 is out of range for shape [2, 3, 4]"),
        (x.sum(&[1, -2]).unwrap_err(), "sum: dimension -2 is given twice"),
        (x.squeeze(1).unwrap_err(), "squeeze: dimension 1 of shape [2, 3, 4] must have size 1"),
    ] {
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn tensors_print_their_values() {
    let print = |tensor: warpwave_tensor::Result<Tensor>| tensor.unwrap().to_string();
    let cpu = &Device::Cpu;
    assert_eq!(
        print(Tensor::new(&[1.0f32, -2.5, 0.0, 10.0], &[2, 2], cpu)),
        "[[ 1.0000, -2.5000],\n [ 0.0000, 10.0000]]\nf32[2, 2] on cpu"
    );
    assert_eq!(print(Tensor::new(&[1.0f32, 2.0], &[2], cpu)), "[1., 2.]\nf32[2] on cpu");
    assert_eq!(print(Tensor::new(&[7u8], &[], cpu)), "7\nu8[] on cpu");
    assert_eq!(print(Tensor::zeros(DType::I32, &[0, 3], cpu)), "[]\ni32[0, 3] on cpu");
    assert_eq!(print(Tensor::new(&[1e-6f64, 1.0], &[2], cpu)), "[1.0000e-6,  1.0000e0]\nf64[2] on cpu");
    assert_eq!(print(Tensor::new(&[f32::NAN, 0.5], &[2], cpu)), "[   nan, 0.5000]\nf32[2] on cpu");
    assert_eq!(print(Tensor::arange(0u32, 2000, 1, cpu)), "[   0,    1,    2, ..., 1997, 1998, 1999]\nu32[2000] on cpu");
    let large = print(Tensor::arange(0i64, 10_000, 1, cpu).and_then(|x| x.reshape(&[100, 100])));
    assert_eq!(large.lines().count(), 8, "{large}");
    assert!(large.starts_with("[[   0,    1,    2, ...,   97,   98,   99],\n [ 100,"), "{large}");
    assert_eq!(print(Tensor::zeros(DType::F32, &[2, 1, 1], cpu)), "[[[0.]],\n\n [[0.]]]\nf32[2, 1, 1] on cpu");
}

#[test]
fn safetensors_round_trip() {
    let folder = std::env::temp_dir().join(format!("warpwave-tensor-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (mut random, path) = (random(), folder.join("tensors.safetensors"));
    let tensors: Vec<(String, Tensor)> = TYPES.map(|dtype| (format!("x.{dtype}"), tensor(&mut random, dtype, &[3, 5]))).into();
    // A view is written row-major.
    let transposed = tensors[7].1.t().unwrap();
    let named = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).chain([("transposed", &transposed)]);
    safetensors::save(named, &path).unwrap();
    for device in common::devices() {
        let loaded = safetensors::load(&path, &device).unwrap();
        assert_eq!(loaded.len(), tensors.len() + 1);
        assert_eq!(loaded["transposed"].host_bytes().unwrap(), transposed.host_bytes().unwrap());
        for (name, tensor) in &tensors {
            let found = &loaded[name];
            assert_eq!((found.dtype(), found.shape(), found.device()), (tensor.dtype(), tensor.shape(), &device));
            assert_eq!(found.host_bytes().unwrap(), tensor.host_bytes().unwrap(), "{name}");
        }
    }
    let twice = [("x", &tensors[0].1), ("x", &tensors[1].1)];
    assert!(safetensors::save(twice, &path).unwrap_err().to_string().contains("duplicate tensor name"));
    assert!(safetensors::load(folder.join("missing"), &Device::Cpu).is_err());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn npy_round_trip() {
    let folder = std::env::temp_dir().join(format!("warpwave-tensor-npy-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (mut random, path) = (random(), folder.join("x.npy"));
    for dtype in TYPES {
        let x = tensor(&mut random, dtype, &[3, 5]).t().unwrap();
        x.write_npy(&path).unwrap();
        for device in common::devices() {
            let found = Tensor::read_npy(&path, &device).unwrap();
            assert_eq!((found.dtype(), found.shape(), found.device()), (dtype, &[5, 3][..], &device));
            assert_eq!(found.host_bytes().unwrap(), x.host_bytes().unwrap(), "{dtype} on {device}");
        }
    }
    let fp8 = Tensor::zeros(DType::F8E4M3, &[2], &Device::Cpu).unwrap();
    assert!(fp8.write_npy(&path).unwrap_err().to_string().contains("f8e4m3"));
    std::fs::write(&path, "no array").unwrap();
    assert!(Tensor::read_npy(&path, &Device::Cpu).unwrap_err().to_string().contains("x.npy"));
    std::fs::remove_dir_all(folder).unwrap();
}

/// The meta device allocates what the other device does, and counts it.
#[test]
fn the_meta_device_counts_memory() {
    for like in common::devices() {
        let device = Device::meta(&like);
        let Device::Meta(meta) = &device else { unreachable!() };
        assert_eq!((device.is_cpu(), device.is_virtual(), device.name()), (like.is_cpu(), like.is_virtual(), "meta"));
        let x = Tensor::zeros(DType::F32, &[40, 64], &device).unwrap();
        assert_eq!(meta.memory().current, 40 * 64 * 4);
        let sum = (&x + &x).unwrap();
        assert_eq!((sum.shape(), meta.memory().peak), (&[40, 64][..], 2 * 40 * 64 * 4));
        drop(sum);
        meta.reset_peak();
        let matrix = Matrix::quantized_meta(Quant::Q8_0, 5, 64, &device).unwrap();
        assert_eq!(matrix.bytes() as u64, meta.memory().current - 40 * 64 * 4);
        let linear = Linear::new(vec![matrix], None).unwrap();
        let before = meta.memory().current;
        let out = linear.forward(&x, DType::F32, Precision::Fast).unwrap();
        let result = 40 * 5 * 4;
        // A GPU dequantizes weights to f16, and scales and converts activations.
        let temporary = if like.is_cpu() { 0 } else { 5 * 64 * 2 + 40 * 64 * (4 + 2) };
        assert_eq!((meta.memory().peak - before, meta.memory().current - before), (result + temporary, result), "{like}");
        assert!(meta.memory().pooled >= meta.memory().peak);
        assert!(out.to_vec::<f32>().unwrap_err().to_string().contains("a device other than meta"));
        assert!(out.to_string().contains("f32[40, 5] on meta"));
        assert!(Matrix::quantized_meta(Quant::Q8_0, 5, 64, &like).is_err());
    }
}

#[test]
fn a_missing_gpu_gives_the_cpu() {
    assert!(Device::cuda_if_available(1000).unwrap().is_cpu());
    Device::gpu_if_available().unwrap().synchronize().unwrap();
}

#[test]
fn large_images_are_convolved_in_strips_without_seams() {
    // Columns of this image have more elements than the CPU holds at once.
    let (channels, size) = (32, 256);
    let mut random = random();
    let values: Vec<f32> = (0..channels * size * size).map(|_| random.below(1000) as f32 / 500.0 - 1.0).collect();
    let x = Tensor::new(&values, &[1, channels, size, size], &Device::Cpu).unwrap();
    let weights: Vec<f32> = (0..2 * channels * 9).map(|_| random.below(1000) as f32 / 500.0 - 1.0).collect();
    let w = Tensor::new(&weights, &[2, channels, 3, 3], &Device::Cpu).unwrap();
    let conv = Conv::new().padding(1);
    let whole = x.conv2d(&w, None, &conv).unwrap();
    for start in [0, 100, 200] {
        let part = x.narrow(2, start, 56).unwrap().conv2d(&w, None, &conv).unwrap();
        let [part, whole] = [part.narrow(2, 1, 54), whole.narrow(2, start + 1, 54)].map(|x| x.unwrap().to_vec::<f32>().unwrap());
        let gap = part.iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(gap < 1e-4, "rows from {start} differ by {gap}");
    }
}
