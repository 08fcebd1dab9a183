//! Memory estimates, and networks that are loaded on demand.

#[path = "support/device.rs"]
mod device;

use std::ops::ControlFlow;
use std::path::PathBuf;

use warpwave_diffusion::{Checkpoint, LoadOptions, RandomModel, Request, generate};
use warpwave_jit::Jit;
use warpwave_kernels::DType;
use warpwave_tensor::Device;
use warpwave_test_support::virtual_device;

fn folder(name: &str) -> PathBuf {
    warpwave_test_support::workspace_root().join("crates/diffusion/tests/fixtures/models").join(name)
}

const RESIDENT: LoadOptions = LoadOptions { dtype: Some(DType::F32), on_demand: false };
const ON_DEMAND: LoadOptions = LoadOptions { dtype: Some(DType::F32), on_demand: true };

#[test]
fn networks_on_demand_give_the_same_images() {
    for (name, lora) in [("sd15", Some("lora_kohya.safetensors")), ("sdxl", None), ("flux-schnell", None)] {
        let checkpoint = Checkpoint::open(folder(name)).unwrap();
        let mut request = Request::new(checkpoint.info(), "a fox");
        (request.width, request.height, request.steps, request.images) = (Some(64), Some(64), 2, 2);
        let images = |options: LoadOptions| {
            let mut model = checkpoint.load(&device::device(), options).unwrap();
            let run = |model: &_| generate(model, &request, &mut |_| ControlFlow::Continue(())).unwrap().images;
            let plain = run(&model);
            let Some(lora) = lora else { return [plain.clone(), plain] };
            model.set_loras(&[(folder(name).join(lora), 0.8)]).unwrap();
            let changed = run(&model);
            assert!(changed != plain);
            model.set_loras::<PathBuf>(&[]).unwrap();
            assert!(run(&model) == plain);
            [plain, changed]
        };
        assert!(images(RESIDENT) == images(ON_DEMAND), "{name}");
    }
}

fn estimate(model: RandomModel, dtype: DType, on_demand: bool, size: usize) -> f64 {
    let checkpoint = Checkpoint::random(model).unwrap();
    let mut request = Request::new(checkpoint.info(), "");
    (request.width, request.height) = (Some(size), Some(size));
    let found = checkpoint.memory(&Device::Cpu, LoadOptions { dtype: Some(dtype), on_demand }, &request).unwrap();
    assert_eq!((found.overhead, found.total()), (0, found.weights + found.phase));
    println!("{model} {size} on_demand={on_demand}: {found:?}");
    found.total() as f64 / 1e9
}

/// Weights of the published sizes are known: 0.86, 2.57 and 11.9 billion of the denoisers, 0.12, 0.82 and 4.9 of the text encoders.
#[test]
fn estimates_of_published_sizes_are_plausible() {
    for (model, resident, on_demand) in [
        (RandomModel::Sd15, 2.13..4.5, 1.72..4.2),
        (RandomModel::Sdxl, 6.93..9.5, 5.13..7.7),
        (RandomModel::FluxDev, 33.7..36.5, 23.8..34.0),
    ] {
        assert!(
            resident.contains(&estimate(model, DType::Bf16, false, 1024)) && on_demand.contains(&estimate(model, DType::Bf16, true, 1024))
        );
    }
    // Twice the type, and larger images, take more; in tiles, four times the pixels do not take four times the memory.
    let sizes = [512, 1024, 2048].map(|size| estimate(RandomModel::Sdxl, DType::Bf16, true, size));
    assert!(sizes[0] < sizes[1] && sizes[1] <= sizes[2] && sizes[2] < 2.0 * sizes[1], "{sizes:?}");
    assert!(estimate(RandomModel::Sdxl, DType::F32, true, 512) > 1.9 * sizes[0]);
}

/// What was in use at most is what was estimated. The pool may hold more while there is free memory.
#[test]
fn a_gpu_needs_what_was_estimated() {
    for (name, options) in [("sd15", RESIDENT), ("sdxl", ON_DEMAND)] {
        let Some(gpu) = virtual_device("gfx90a") else { return };
        let device = Device::gpu(&gpu, &Jit::default()).unwrap();
        let checkpoint = Checkpoint::open(folder(name)).unwrap();
        let mut request = Request::new(checkpoint.info(), "a fox");
        (request.width, request.height, request.steps) = (Some(256), Some(256), 2);
        let estimated = checkpoint.memory(&device, options, &request).unwrap().total() as f64;
        let model = checkpoint.load(&device, options).unwrap();
        generate(&model, &request, &mut |_| ControlFlow::Continue(())).unwrap();
        let peak = gpu.pool_stats().peak_in_use as f64;
        println!("{name}: {:.3}", peak / estimated);
        assert!((0.8..1.3).contains(&(peak / estimated)), "{name} {options:?}: estimated {estimated}, {peak} used");
    }
}
