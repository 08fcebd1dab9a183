//! Memory estimates, and networks that are loaded on demand.

#[path = "support/device.rs"]
mod device;

use std::ops::ControlFlow;
use std::path::PathBuf;

use warpwave_diffusion::{Checkpoint, LoadOptions, MemoryEstimate, RandomModel, Request, generate};
use warpwave_kernels::DType;
use warpwave_tensor::Device;

fn folder(name: &str) -> PathBuf {
    warpwave_test_support::workspace_root().join("crates/diffusion/tests/fixtures/models").join(name)
}

const RESIDENT: LoadOptions = LoadOptions { dtype: Some(DType::F32), on_demand: false };
const ON_DEMAND: LoadOptions = LoadOptions { dtype: Some(DType::F32), on_demand: true };

#[test]
fn networks_on_demand_give_the_same_pictures() {
    for (name, lora) in [("sd15", Some("lora_kohya.safetensors")), ("sdxl", None), ("flux-schnell", None)] {
        let checkpoint = Checkpoint::open(folder(name)).unwrap();
        let mut request = Request::new(checkpoint.info(), "a fox");
        (request.width, request.height, request.steps, request.pictures) = (Some(64), Some(64), 2, 2);
        let pictures = |options: LoadOptions| {
            let mut model = checkpoint.load(&device::device(), options).unwrap();
            let run = |model: &_| generate(model, &request, &mut |_| ControlFlow::Continue(())).unwrap().pictures;
            let plain = run(&model);
            let Some(lora) = lora else { return [plain.clone(), plain] };
            model.set_loras(&[(folder(name).join(lora), 0.8)]).unwrap();
            let changed = run(&model);
            assert!(changed != plain);
            model.set_loras::<PathBuf>(&[]).unwrap();
            assert!(run(&model) == plain);
            [plain, changed]
        };
        assert!(pictures(RESIDENT) == pictures(ON_DEMAND), "{name}");
    }
}

fn estimate(model: RandomModel, dtype: DType, on_demand: bool, size: usize) -> MemoryEstimate {
    let checkpoint = Checkpoint::random(model).unwrap();
    let mut request = Request::new(checkpoint.info(), "");
    (request.width, request.height) = (Some(size), Some(size));
    checkpoint.memory(&Device::Cpu, LoadOptions { dtype: Some(dtype), on_demand }, &request).unwrap()
}

#[test]
fn estimates_of_published_sizes_are_plausible() {
    for model in [RandomModel::Sd15, RandomModel::Sdxl, RandomModel::FluxDev] {
        for on_demand in [false, true] {
            let found = estimate(model, DType::Bf16, on_demand, 1024);
            println!("{model} on_demand={on_demand}: {found:?} {:.2} GB", found.total() as f64 / 1e9);
        }
    }
}
