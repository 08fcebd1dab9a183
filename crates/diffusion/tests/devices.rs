//! Other types, and the same code on a virtual GPU.

mod reference;

use reference::{Expected, assert_close, conditioning, extra, folder, gap, tokens};
use warpwave_diffusion::{Checkpoint, LoadOptions, Model};
use warpwave_jit::Jit;
use warpwave_kernels::DType;
use warpwave_tensor::{Device, Tensor};
use warpwave_test_support::virtual_device;

fn load(name: &str, device: &Device, dtype: DType) -> Model {
    Checkpoint::open(folder(name)).unwrap().load(device, LoadOptions { dtype: Some(dtype), ..LoadOptions::default() }).unwrap()
}

/// The denoiser's output for the first timestep, and the expected one.
fn denoised(name: &str, model: &Model) -> (Tensor, Tensor) {
    let expected = Expected::of(name);
    let part = if name.starts_with("flux") { "transformer" } else { "unet" };
    let timestep = expected.get(&format!("{part}/timesteps")).to_vec::<f32>().unwrap()[0];
    let latent = expected.get(&format!("{part}/latent")).to_device(model.device()).unwrap();
    let out = model.denoise(&latent, timestep, &conditioning(&expected, model.device()), &extra(name, &expected)).unwrap();
    let mut out = out.to_device(&Device::Cpu).unwrap();
    if part == "transformer" {
        let [height, width] = [out.size(2), out.size(3)];
        let patches = out.reshape(&[1, 16, height / 2, 2, width / 2, 2]).unwrap().permute(&[0, 2, 4, 1, 3, 5]).unwrap();
        out = patches.reshape(&[1, height * width / 4, 64]).unwrap();
    }
    (out, expected.get(&format!("{part}/out")).narrow(0, 0, 1).unwrap().squeeze(0).unwrap())
}

#[test]
fn sixteen_bits_stay_close_on_the_cpu() {
    for (dtype, bound) in [(DType::F16, 0.02), (DType::Bf16, 0.1)] {
        for name in ["sd15", "sd15-inpaint", "sd21", "sdxl"] {
            let model = load(name, &Device::Cpu, dtype);
            assert_eq!(model.dtype(), dtype);
            let (out, wanted) = denoised(name, &model);
            assert!(gap(&out, &wanted) > 0.0, "{name}: the type has no effect");
            assert_close(&out, &wanted, bound, &format!("{name} in {dtype}"));
        }
    }
    let (out, wanted) = denoised("flux-dev", &load("flux-dev", &Device::Cpu, DType::Bf16));
    assert_close(&out, &wanted, 0.2, "flux-dev in bf16");
}

#[test]
fn xl_autoencoder_does_not_overflow_in_f16() {
    let expected = Expected::of("sdxl");
    let model = load("sdxl", &Device::Cpu, DType::F16);
    let latent = expected.get("vae/latent").to_device(&Device::Cpu).unwrap();
    // In `f32`, to the bit.
    assert_close(&model.vae_decode(&latent, None).unwrap(), &expected.get("vae/decoded"), 5e-5, "decoded");
    let large = (latent * 1000.0).unwrap();
    assert!(model.vae_decode(&large, None).unwrap().to_vec::<f32>().unwrap().iter().all(|x| x.is_finite()));
}

#[test]
fn a_virtual_gpu_computes_the_same() {
    let Some(gpu) = virtual_device("gfx90a") else { return };
    let device = Device::gpu(&gpu, &Jit::default()).unwrap();
    for name in ["sdxl", "flux-dev"] {
        let model = load(name, &device, DType::F32);
        let expected = Expected::of(name);
        let (out, wanted) = denoised(name, &model);
        assert_close(&out, &wanted, if name == "sdxl" { 5e-5 } else { 2e-4 }, &format!("{name} on {device}"));
        let text = model.encode(&tokens(&model, &expected, 0), 0).unwrap();
        assert_close(&text.context.to_device(&Device::Cpu).unwrap(), &expected.get("text/prompt"), 2e-5, "text");
        let pooled = text.pooled.unwrap().to_device(&Device::Cpu).unwrap();
        assert_close(&pooled, &expected.get("text/pooled"), 2e-5, "pooled text");
    }
    let model = load("sd15", &device, DType::F16);
    let (out, wanted) = denoised("sd15", &model);
    assert_close(&out, &wanted, 0.02, "sd15 in f16");
    let expected = Expected::of("sd15");
    let on_device = |name: &str| expected.get(name).to_device(&device).unwrap();
    let decoded = model.vae_decode(&on_device("vae/latent"), None).unwrap().to_device(&Device::Cpu).unwrap();
    assert_close(&decoded, &expected.get("vae/decoded"), 5e-5, "decoded");
    let (mean, _) = model.vae_encode(&expected.image().to_device(&device).unwrap(), None).unwrap();
    assert_close(&mean.to_device(&Device::Cpu).unwrap(), &expected.get("vae/mean"), 5e-5, "mean");
}
