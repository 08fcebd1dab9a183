//! Every network against what diffusers computes with the same weights, in `f32` on the CPU, or on the GPU that
//! `WARPWAVE_DEVICE` names.

mod reference;

use reference::{Expected, assert_close, case, conditioning, device, extra, folder, gap, load, tokens};
use warpwave_diffusion::{Checkpoint, Family, Prediction, TextEncoderKind, Tokens};
use warpwave_kernels::DType;
use warpwave_tensor::Tensor;

const MODELS: [&str; 6] = ["sd15", "sd15-inpaint", "sd21", "sdxl", "flux-schnell", "flux-dev"];

#[test]
fn facts_are_read_from_the_files() {
    let info = |name: &str| Checkpoint::open(folder(name)).unwrap().info().clone();
    let found = MODELS.map(|name| {
        let info = info(name);
        assert_eq!(info.latent_scale, 8);
        assert!(info.scheduler_config.is_some());
        assert!(info.parameters > 100_000 && info.bytes == 2 * info.parameters, "{name}: {} {}", info.parameters, info.bytes);
        (info.family, info.prediction, info.inpaint, info.latent_channels, info.size_multiple)
    });
    let expected = [
        (Family::Sd1, Prediction::Epsilon, false, 4, 8),
        (Family::Sd1, Prediction::Epsilon, true, 4, 8),
        (Family::Sd2, Prediction::V, false, 4, 8),
        (Family::Sdxl, Prediction::Epsilon, false, 4, 8),
        (Family::FluxSchnell, Prediction::Flow, false, 16, 16),
        (Family::FluxDev, Prediction::Flow, false, 16, 16),
    ];
    assert_eq!(found, expected);
    assert_eq!((info("sd15").vae_scaling, info("sdxl").vae_scaling), (0.18215, 0.13025));
    assert_eq!((info("flux-dev").vae_scaling, info("flux-dev").vae_shift), (0.3611, 0.1159));
    assert!(info("sdxl").zeros_for_no_negative && !info("sd15").zeros_for_no_negative);
    let rows = info("flux-schnell").text_encoders.iter().map(|text| (text.kind, text.row_length)).collect::<Vec<_>>();
    assert_eq!(rows, [(TextEncoderKind::Clip, 77), (TextEncoderKind::T5, 256)]);
    assert_eq!(info("flux-dev").text_encoders[1].row_length, 512);
}

#[test]
fn token_ids_are_those_of_the_reference() {
    for name in MODELS {
        let (model, expected, case) = (load(name), Expected::of(name), case(name));
        let prompts: Vec<&str> = case["prompts"].as_array().unwrap().iter().map(|prompt| prompt.as_str().unwrap()).collect();
        assert_eq!(prompts.len(), 6);
        for encoder in 0..model.info().text_encoders.len() {
            for (i, prompt) in prompts.iter().enumerate() {
                let wanted = expected.ids(&format!("{}/{i}", ["tokens", "tokens_2"][encoder])).remove(0);
                let ids = model.tokenize(encoder, prompt).unwrap();
                assert_eq!(model.row(encoder, &ids, wanted.len()).unwrap(), wanted, "{name}, encoder {encoder}, {prompt:?}");
            }
        }
    }
}

#[test]
fn text_is_encoded_as_by_the_reference() {
    for name in MODELS {
        let (model, expected) = (load(name), Expected::of(name));
        for (prompt, text, pooled) in [(0, "text/prompt", "text/pooled"), (1, "text/negative", "text/negative_pooled")] {
            let found = model.encode(&tokens(&model, &expected, prompt), 0).unwrap();
            assert_close(&found.context, &expected.get(text), 2e-5, &format!("{name} {text}"));
            assert_eq!(found.pooled.is_some(), expected.has(pooled));
            if let Some(found) = found.pooled {
                assert_close(&found, &expected.get(pooled), 2e-5, &format!("{name} {pooled}"));
            }
        }
    }
    let (model, expected) = (load("sd15"), Expected::of("sd15"));
    let skipped = model.encode(&tokens(&model, &expected, 0), 1).unwrap();
    assert_close(&skipped.context, &expected.get("text/clip_skip_1"), 2e-5, "clip skip");
}

#[test]
fn rows_of_a_batch_do_not_influence_each_other() {
    for name in ["sdxl", "flux-dev"] {
        let (model, expected) = (load(name), Expected::of(name));
        let [one, two] = [0, 1].map(|prompt| tokens(&model, &expected, prompt));
        let both = one.encoders.iter().zip(&two.encoders).map(|(one, two)| [one.clone(), two.clone()].concat()).collect();
        let found = model.encode(&Tokens { encoders: both }, 0).unwrap();
        assert_close(&found.context.narrow(0, 1, 1).unwrap(), &expected.get("text/negative"), 2e-5, name);
        let pooled = found.pooled.unwrap().narrow(0, 0, 1).unwrap();
        assert_close(&pooled, &expected.get("text/pooled"), 2e-5, name);
    }
}

#[test]
fn chunks_of_a_long_prompt_are_one_context() {
    let (model, expected) = (load("sd15"), Expected::of("sd15"));
    let rows = expected.ids("long/tokens");
    let chunks = rows.len();
    assert!(chunks > 1);
    let found = model.encode(&Tokens { encoders: vec![rows] }, 0).unwrap().context;
    let context = found.reshape(&[1, chunks * 77, found.size(2)]).unwrap();
    assert_close(&context, &expected.get("long/text"), 2e-5, "long text");
    let conditioning = warpwave_diffusion::Conditioning { context, pooled: None };
    let out = model.denoise(&expected.get("unet/latent"), 981.0, &conditioning, &extra("sd15", &expected)).unwrap();
    assert_close(&out, &expected.get("long/unet_out"), 5e-5, "long prompt");
}

#[test]
fn unets_compute_what_the_reference_does() {
    for name in ["sd15", "sd15-inpaint", "sd21", "sdxl"] {
        let (model, expected) = (load(name), Expected::of(name));
        let (conditioning, extra) = (conditioning(&expected, &device()), extra(name, &expected));
        let timesteps = expected.get("unet/timesteps").to_vec::<f32>().unwrap();
        assert_eq!(timesteps, [981.0, 500.25, 1.0]);
        for (i, timestep) in timesteps.into_iter().enumerate() {
            let out = model.denoise(&expected.get("unet/latent"), timestep, &conditioning, &extra).unwrap();
            let wanted = expected.get("unet/out").narrow(0, i, 1).unwrap().squeeze(0).unwrap();
            assert_close(&out, &wanted, 5e-5, &format!("{name} at {timestep}"));
        }
    }
}

#[test]
fn images_of_a_batch_are_computed_independently() {
    for (name, latent) in [("sdxl", "unet/latent"), ("flux-dev", "transformer/latent")] {
        let (model, expected) = (load(name), Expected::of(name));
        let one = conditioning(&expected, &device());
        let twice = |x: &Tensor| Tensor::cat(&[x.clone(), (x * 0.5).unwrap()], 0).unwrap();
        let both = warpwave_diffusion::Conditioning { context: twice(&one.context), pooled: one.pooled.as_ref().map(twice) };
        let (latents, extra) = (expected.get(latent), extra(name, &expected));
        let alone = model.denoise(&latents, 0.7, &one, &extra).unwrap();
        let found = model.denoise(&twice(&latents), 0.7, &both, &extra).unwrap();
        assert_close(&found.narrow(0, 0, 1).unwrap(), &alone, 5e-5, name);
        assert!(gap(&found.narrow(0, 1, 1).unwrap(), &alone) > 1e-2);
    }
}

#[test]
fn flux_computes_what_the_reference_does() {
    for name in ["flux-schnell", "flux-dev"] {
        let (model, expected) = (load(name), Expected::of(name));
        let (conditioning, extra) = (conditioning(&expected, &device()), extra(name, &expected));
        let latent = expected.get("transformer/latent");
        let [height, width] = [latent.size(2), latent.size(3)];
        for (i, timestep) in expected.get("transformer/timesteps").to_vec::<f32>().unwrap().into_iter().enumerate() {
            let out = model.denoise(&latent, timestep, &conditioning, &extra).unwrap();
            // The reference has patches: (1, height / 2 · width / 2, channels · 2 · 2).
            let patches = out.reshape(&[1, 16, height / 2, 2, width / 2, 2]).unwrap().permute(&[0, 2, 4, 1, 3, 5]).unwrap();
            let patches = patches.reshape(&[1, height * width / 4, 64]).unwrap();
            let wanted = expected.get("transformer/out").narrow(0, i, 1).unwrap().squeeze(0).unwrap();
            assert_close(&patches, &wanted, 2e-4, &format!("{name} at {timestep}"));
        }
    }
}

#[test]
fn autoencoders_compute_what_the_reference_does() {
    for name in MODELS {
        let (model, expected) = (load(name), Expected::of(name));
        let decoded = model.vae_decode(&expected.get("vae/latent"), None).unwrap();
        assert_close(&decoded, &expected.get("vae/decoded"), 5e-5, &format!("{name} decoded"));
        let (mean, logvar) = model.vae_encode(&expected.image(), None).unwrap();
        assert_close(&mean, &expected.get("vae/mean"), 5e-5, &format!("{name} mean"));
        assert_close(&logvar, &expected.get("vae/logvar"), 5e-5, &format!("{name} logvar"));
    }
}

#[test]
fn inputs_that_do_not_fit_are_errors() {
    let (model, expected) = (load("sdxl"), Expected::of("sdxl"));
    let (good, extra) = (conditioning(&expected, &device()), extra("sdxl", &expected));
    let latents = expected.get("unet/latent");
    let message = |result: Result<Tensor, warpwave_diffusion::Error>| result.unwrap_err().to_string();
    let three = Tensor::zeros(DType::F32, &[1, 3, 8, 8], &device()).unwrap();
    assert_eq!(
        message(model.denoise(&three, 1.0, &good, &extra)),
        "denoise: expected latents of shape (images, 4, height, width), got [1, 3, 8, 8]"
    );
    let text = message(model.denoise(&latents, 1.0, &good, &Default::default()));
    assert_eq!(text, "denoise: this model needs pooled text and six time ids");
    assert!(message(model.denoise(&latents, f32::NAN, &good, &extra)).contains("finite timestep"));
    let two = Tensor::cat(&[latents.clone(), latents.clone()], 0).unwrap();
    assert!(
        message(model.denoise(&two, 1.0, &good, &extra)).starts_with("denoise: expected a context of (2, tokens, 56), got [1, 77, 56]")
    );
    let odd = Tensor::zeros(DType::F32, &[1, 3, 60, 64], &device()).unwrap();
    let text = model.vae_encode(&odd, None).unwrap_err().to_string();
    assert_eq!(text, "vae_encode: expected (images, 3, height, width) in multiples of 8, got [1, 3, 60, 64]");
    assert!(model.vae_decode(&latents, Some(100)).unwrap_err().to_string().contains("multiple of 64 pixels, got 100"));
    assert!(model.tokenize(2, "a").unwrap_err().to_string().contains("text encoder 2 is out of range: the model has 2"));
    let wide = Tokens { encoders: vec![vec![vec![999_999; 77]]; 2] };
    assert_eq!(model.encode(&wide, 0).unwrap_err().to_string(), "encode: token id 999999 is out of range: the vocabulary has 717 tokens");
    assert!(model.encode(&Tokens { encoders: vec![vec![vec![1; 77]]] }, 0).unwrap_err().to_string().contains("2 text encoders"));
    let rows = Tokens { encoders: vec![vec![vec![1; 77]]; 2] };
    assert!(model.encode(&rows, usize::MAX).unwrap_err().to_string().contains("cannot skip"));
    assert!(model.encode(&Tokens { encoders: vec![vec![vec![1; 78]]; 2] }, 0).unwrap_err().to_string().contains("1 to 77"));
    let flux = load("flux-dev");
    let expected = Expected::of("flux-dev");
    let good = conditioning(&expected, &device());
    let text = message(flux.denoise(&expected.get("transformer/latent"), 0.5, &good, &Default::default()));
    assert_eq!(text, "denoise: this model needs a guidance scale");
}
