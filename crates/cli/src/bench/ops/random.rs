//! Random elements.

use warpwave_kernels::{DType, Distribution, Layout, Philox, ViewMut};

use super::case::{Bench, Case, Run, Sizes, Work, torch_type};

pub fn cases(sizes: Sizes) -> Vec<Case> {
    let uniform = Distribution::Uniform { low: 0.0, high: 1.0 };
    let normal = Distribution::Normal { mean: 0.0, deviation: 1.0 };
    let integers = Distribution::Integers { low: 0, high: 1000 };
    let mut cases: Vec<Case> = [
        (uniform, DType::F32, "uniform_()"),
        (uniform, DType::Bf16, "uniform_()"),
        (normal, DType::F32, "normal_()"),
        (normal, DType::F16, "normal_()"),
        (normal, DType::F64, "normal_()"),
        (integers, DType::I32, "random_(0, 1000)"),
        (integers, DType::I64, "random_(0, 1000)"),
        (Distribution::Bernoulli { probability: 0.3 }, DType::U8, "bernoulli_(0.3)"),
    ]
    .map(|(distribution, dtype, call)| case(sizes, distribution, dtype, call))
    .into();
    cases.push(permutation(sizes));
    cases
}

fn case(sizes: Sizes, distribution: Distribution, dtype: DType, call: &str) -> Case {
    let len = sizes.of((1 << 30) / dtype.size(), 4096);
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (mut out, layout) = (bench.room(dtype, len)?, Layout::contiguous(&[len])?);
        let run: Run = Box::new(move || {
            let at = Philox { seed: 1, ..Philox::default() };
            Ok(kernels.random(&stream, &distribution, at, &mut ViewMut::of_bytes(&mut out, dtype, layout)?)?)
        });
        Ok(run)
    };
    let setup = format!("x = torch.empty({len}, dtype={}, device='cuda')", torch_type(dtype));
    Case::new(format!("{} {dtype} {len}", distribution.name()), Work::Bytes((len * dtype.size()) as u64), make)
        .torch(setup, format!("x.{call}"))
}

fn permutation(sizes: Sizes) -> Case {
    let len = sizes.of(1 << 20, 3000);
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (mut out, layout) = (bench.room(DType::I64, len)?, Layout::contiguous(&[len])?);
        let run: Run = Box::new(move || {
            let at = Philox { seed: 1, ..Philox::default() };
            Ok(kernels.permutation(&stream, at, &mut ViewMut::of_bytes(&mut out, DType::I64, layout)?)?)
        });
        Ok(run)
    };
    Case::new(format!("permutation i64 {len}"), Work::Small, make).torch("", format!("torch.randperm({len}, device='cuda')"))
}
