//! Whole runs against diffusers 0.35.2: final latents and images of seven pipelines.
//!
//! They run on the CPU, or on the GPU that `WARPWAVE_DEVICE` names. The references' random numbers are inputs here. The matrix of samplers and schedules is sampled; `WARPWAVE_TEST_FULL=1` runs all of it.

mod support;

use std::collections::HashMap;
use std::ops::ControlFlow;

use support::reference::{Reference, check_image};
use warpwave_diffusion::{Draws, Error, Mask, Preview, Request, Sampler, Schedule, TinyAutoencoder, generate};
use warpwave_tensor::Tensor;
use warpwave_test_support::{Random, full_run, seed};

const NAMED: [Schedule; 5] = [Schedule::Simple, Schedule::Karras, Schedule::Exponential, Schedule::SgmUniform, Schedule::DdimUniform];

#[test]
fn every_sampler_takes_every_schedule() {
    let mut random = Random::new(seed());
    for name in ["sd15", "sd21", "sdxl"] {
        let reference = Reference::open(name);
        for sampler in Sampler::ALL {
            let chosen = random.below(NAMED.len());
            for (i, schedule) in NAMED.into_iter().enumerate() {
                if !full_run() && (i != chosen || name != "sd15" && random.below(3) > 0) {
                    continue;
                }
                let key = format!("matrix/{}/{}", sampler.name(), schedule.name());
                let steps = reference.number("matrix_steps") as usize;
                let request = Request { sampler, schedule: Some(schedule), steps, ..reference.request() };
                reference.check_latents(&reference.generate(&request), &reference.last(&reference.samplers, &key), &key);
            }
        }
    }
}

#[test]
fn samplers_follow_the_model_s_own_schedule() {
    let mut random = Random::new(seed());
    for name in ["sd15", "sd21", "sdxl"] {
        let reference = Reference::open(name);
        let chosen = random.below(Sampler::ALL.len());
        for (i, sampler) in Sampler::ALL.into_iter().enumerate() {
            if !full_run() && name != "sd15" && i != chosen {
                continue;
            }
            let key = format!("native/{}", sampler.name());
            let made = reference.generate(&Request { sampler, ..reference.request() });
            reference.check_latents(&made, &reference.last(&reference.samplers, &key), &key);
            check_image(&made.images[0], &reference.samplers[&format!("{key}/image")].to_vec::<u8>().unwrap(), &key);
        }
    }
}

#[test]
fn guidance_can_be_off() {
    for name in ["sd15", "sdxl"] {
        let reference = Reference::open(name);
        for guidance in [0.0, 1.0] {
            let made = reference.generate(&Request { guidance, ..reference.request() });
            reference.check_latents(&made, &reference.last(&reference.samplers, "no_guidance/euler"), "no_guidance");
            check_image(&made.images[0], &reference.samplers["no_guidance/euler/image"].to_vec::<u8>().unwrap(), name);
        }
    }
}

#[test]
fn spacings_can_be_asked_for() {
    let reference = Reference::open("sd15");
    for sampler in [Sampler::Ddim, Sampler::Euler] {
        for schedule in [Schedule::Leading, Schedule::Trailing, Schedule::Linspace] {
            let key = format!("spacing/{}_{}", sampler.name(), schedule.name());
            let made = reference.generate(&Request { sampler, schedule: Some(schedule), ..reference.request() });
            reference.check_latents(&made, &reference.last(&reference.samplers, &key), &key);
        }
    }
}

#[test]
fn turbo_takes_few_steps() {
    let reference = Reference::open("sdxl-turbo");
    let defaults = Request::new(reference.model.info(), "");
    assert_eq!((defaults.sampler, defaults.steps, defaults.guidance), (Sampler::EulerAncestral, 4, 0.0));
    for steps in [1, 2, 4] {
        let key = format!("turbo/{steps}");
        let made = reference.generate(&Request { steps, ..reference.request() });
        reference.check_latents(&made, &reference.last(&reference.samplers, &key), &key);
        check_image(&made.images[0], &reference.samplers[&format!("{key}/image")].to_vec::<u8>().unwrap(), &key);
    }
}

#[test]
fn a_run_starts_from_an_image() {
    for name in ["sd15", "sd21", "sdxl", "sdxl-turbo", "flux-schnell", "flux-dev"] {
        let reference = Reference::open(name);
        for strength in [0.8, 0.5] {
            let key = format!("img2img/{strength:?}");
            if !reference.expected.contains_key(&format!("{key}/final")) {
                continue;
            }
            let steps = if reference.case["op_steps"].is_null() { "img2img_steps" } else { "op_steps" };
            let request = Request {
                init: Some(reference.image("vae/image")),
                strength,
                steps: reference.number(steps) as usize,
                sampler: Sampler::Euler,
                ..reference.request()
            };
            let made = reference.generate(&request);
            reference.check_latents(&made, &reference.last(&reference.expected, &key), &key);
            check_image(&made.images[0], reference.image(&format!("{key}/image")).rgb(), &format!("{name} {key}"));
        }
    }
}

#[test]
fn inpainting_repaints_the_mask_and_keeps_the_rest() {
    for name in ["sd15", "sd21", "sdxl", "sd15-inpaint", "flux-schnell", "flux-dev"] {
        let reference = Reference::open(name);
        let (image, mask) = (reference.image("inpaint/image"), &reference.expected["inpaint/mask"]);
        let values = mask.to_vec::<u8>().unwrap();
        let mut compared = 0;
        for strength in [1.0, 0.8, 0.75] {
            let key = format!("inpaint/{strength:?}");
            if !reference.expected.contains_key(&format!("{key}/final")) {
                continue;
            }
            let steps = if reference.case["op_steps"].is_null() { "inpaint_steps" } else { "op_steps" };
            let request = Request {
                init: Some(image.clone()),
                mask: Some(Mask::new(mask.size(1), mask.size(0), values.clone()).unwrap()),
                strength,
                steps: reference.number(steps) as usize,
                ..reference.request()
            };
            let made = reference.generate(&request);
            reference.check_latents(&made, &reference.last(&reference.expected, &key), &key);
            // diffusers decodes all of it; here the pixels outside of the mask are those of the image.
            let mut pasted = reference.image(&format!("{key}/result")).rgb().to_vec();
            for i in (0..values.len()).filter(|i| values[*i] < 128) {
                pasted[3 * i..3 * i + 3].copy_from_slice(&image.rgb()[3 * i..3 * i + 3]);
                assert_eq!(made.images[0].rgb()[3 * i..3 * i + 3], pasted[3 * i..3 * i + 3]);
            }
            check_image(&made.images[0], &pasted, &format!("{name} {key}"));
            compared += 1;
        }
        assert!(compared > 0, "{name}");
    }
}

/// The request with its initial noise replaced.
fn with_noise(reference: &Reference, noise: Tensor) -> Request {
    Request { draws: Some(Draws::new("noise", HashMap::from([("noise/init".to_owned(), noise)]))), steps: 4, ..reference.request() }
}

#[test]
fn sizes_need_not_fill_the_levels() {
    for (name, sizes) in [("sd15", &[(72, 88), (256, 256)][..]), ("sd21", &[(88, 64)]), ("sdxl", &[(72, 56)])] {
        let reference = Reference::open(name);
        for (height, width) in sizes {
            let key = format!("odd/{height}x{width}");
            let noise = reference.expected[&format!("{key}/noise")].clone();
            let request = Request { height: Some(*height), width: Some(*width), ..with_noise(&reference, noise) };
            let made = reference.generate(&request);
            reference.check_latents(&made, &reference.last(&reference.expected, &key), &key);
            assert_eq!((made.images[0].height(), made.images[0].width()), (*height, *width));
            if let Some(image) = reference.expected.get(&format!("{key}/image")) {
                check_image(&made.images[0], &image.to_vec::<u8>().unwrap(), &key);
            }
        }
    }
}

#[test]
fn images_of_a_batch_are_single_images() {
    let reference = Reference::open("sd15");
    let (noise, expected) = (&reference.expected["batch/noise"], reference.expected["batch/final"].floats().unwrap());
    let prompts = [reference.case["prompts"][0].as_str().unwrap().to_owned(), "it's a FOX!! \\(really?\\)  two   spaces".to_owned()];
    for (k, prompt) in prompts.into_iter().enumerate() {
        let one = noise.narrow(0, k, 1).unwrap().contiguous().unwrap();
        let made = reference.generate(&Request { prompt, ..with_noise(&reference, one) });
        reference.check_latents(&made, &expected[k * expected.len() / 2..][..expected.len() / 2], "batch");
    }
    for name in ["sd15", "sdxl", "flux-dev"] {
        let reference = Reference::open(name);
        let sampler = if name == "flux-dev" { Sampler::Euler } else { Sampler::EulerAncestral };
        let request = Request { draws: None, seed: 41, steps: 3, sampler, ..reference.request() };
        let three = reference.generate(&Request { images: 3, ..request.clone() });
        assert_eq!((three.images.len(), three.latents.size(0)), (3, 3));
        for k in 0..3 {
            let one = reference.generate(&Request { seed: 41 + k, ..request.clone() });
            let row = three.latents.narrow(0, k as usize, 1).unwrap().floats().unwrap();
            reference.check_latents(&one, &row, "one of three");
            check_image(&one.images[0], three.images[k as usize].rgb(), name);
        }
        assert_ne!(three.images[0], three.images[1]);
    }
}

#[test]
fn flux_follows_its_shifted_schedule() {
    for name in ["flux-schnell", "flux-dev"] {
        let reference = Reference::open(name);
        let request = Request { negative: None, ..reference.request() };
        let cases = [
            ("native/euler", Request { ..request.clone() }),
            ("native/euler", Request { sampler: Sampler::Ddim, ..request.clone() }),
            ("true_cfg/euler", Request { negative: reference.request().negative, true_guidance: 3.0, ..request.clone() }),
            ("option/euler_karras", Request { schedule: Some(Schedule::Karras), ..request.clone() }),
            ("option/euler_exponential", Request { schedule: Some(Schedule::Exponential), ..request.clone() }),
            ("option/dpm_solver_multistep_flow", Request { sampler: Sampler::DpmSolverMultistep, ..request.clone() }),
            ("option/uni_pc_flow", Request { sampler: Sampler::UniPc, ..request }),
        ];
        for (key, request) in cases {
            let made = reference.generate(&request);
            reference.check_latents(&made, &reference.last(&reference.samplers, key), key);
            check_image(&made.images[0], &reference.samplers[&format!("{key}/image")].to_vec::<u8>().unwrap(), key);
        }
    }
}

#[test]
fn a_run_reports_every_step_and_can_be_ended() {
    let reference = Reference::open("sd15");
    let preview = Preview::fit(&reference.model).unwrap();
    let request = Request { schedule: Some(Schedule::DdimUniform), steps: 7, ..reference.request() };
    // 7 does not divide 1000, so there is one step more.
    let mut seen = Vec::new();
    let made = generate(&reference.model, &request, &mut |progress| {
        let image = progress.preview(&preview).unwrap();
        seen.push((progress.step, progress.total, image.width(), image.height()));
        ControlFlow::Continue(())
    });
    assert!(made.is_ok());
    assert_eq!(seen, (1..=8).map(|step| (step, 8, 8, 8)).collect::<Vec<_>>());
    // A small autoencoder shows the image in its size; here it is one with random weights.
    let tiny = TinyAutoencoder::open(support::fixtures().join("models/taesd"), &support::device::device()).unwrap();
    let preview = Preview::tiny(tiny);
    let mut images = Vec::new();
    let made = generate(&reference.model, &Request { steps: 1, ..request.clone() }, &mut |progress| {
        images.push(progress.preview(&preview).unwrap());
        ControlFlow::Continue(())
    });
    assert!(made.is_ok() && images[0].width() == 64 && images[0].height() == 64);
    let mut calls = 0;
    let ended = generate(&reference.model, &request, &mut |progress| {
        calls += 1;
        if progress.step == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(ended, Err(Error::Cancelled)) && calls == 3);
}

#[test]
fn wrong_requests_are_errors() {
    let (reference, inpaint, flux) = (Reference::open("sd15"), Reference::open("sd15-inpaint"), Reference::open("flux-dev"));
    let error =
        |of: &Reference, request: Request| generate(&of.model, &request, &mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
    let request = reference.request();
    let mask = Mask::new(2, 2, vec![0; 4]).unwrap();
    for (text, changed) in [
        ("multiple of 8", Request { width: Some(65), ..request.clone() }),
        ("multiple of 8", Request { height: Some(0), ..request.clone() }),
        ("multiple of 8", Request { height: Some(1 << 40), ..request.clone() }),
        ("1 to 150 steps", Request { steps: 0, ..request.clone() }),
        ("1 to 16", Request { images: 0, ..request.clone() }),
        ("1 to 16", Request { images: usize::MAX, ..request.clone() }),
        ("0 to 100", Request { guidance: f64::NAN, ..request.clone() }),
        ("needs an initial image", Request { mask: Some(mask), ..request.clone() }),
        ("leaves no step", Request { init: Some(reference.image("vae/image")), strength: 0.01, ..request.clone() }),
        ("> 0 and <= 1", Request { init: Some(reference.image("vae/image")), strength: 2.0, ..request.clone() }),
        ("noise/init", Request { draws: Some(Draws::new("empty", HashMap::new())), ..request.clone() }),
        ("only Flux supports", Request { true_guidance: 2.0, ..request.clone() }),
        ("at most 65536 bytes", Request { prompt: "x".repeat(65_537), ..request.clone() }),
        ("chunks", Request { prompt: "BREAK ".repeat(40), ..request }),
    ] {
        let found = error(&reference, changed);
        assert!(found.contains(text), "expected {text}, got {found}");
    }
    assert!(error(&inpaint, Request::new(inpaint.model.info(), "a fox")).contains("inpainting model needs"));
    let request = flux.request();
    assert!(error(&flux, Request { sampler: Sampler::EulerAncestral, ..request.clone() }).contains("rectified-flow"));
    assert!(error(&flux, Request { width: Some(72), ..request }).contains("multiple of 16"));
}

#[test]
fn loras_change_a_run() {
    for name in ["sd15", "sdxl", "flux-dev"] {
        let mut reference = Reference::open(name);
        let formats = if name == "flux-dev" { &["diffusers"][..] } else { &["diffusers", "kohya"] };
        let plain = reference.generate(&reference.request()).latents.floats().unwrap();
        for format in formats {
            let strength = 0.5f32;
            let file = support::fixtures().join("models").join(name).join(format!("lora_{format}.safetensors"));
            reference.model.set_loras(&[(file, strength)]).unwrap();
            let made = reference.generate(&reference.request());
            reference.check_latents(&made, &reference.last(&reference.expected, &format!("lora/{format}/0.5")), format);
        }
        reference.model.set_loras::<&str>(&[]).unwrap();
        assert_eq!(reference.generate(&reference.request()).latents.floats().unwrap(), plain, "{name}");
    }
}

/// The state before the first step and after each, as diffusers reports it.
#[test]
fn trajectories_have_the_scale_and_order_of_diffusers() {
    for (name, key, bound) in [("sd15", "native/euler_ancestral", 5e-5), ("flux-dev", "native/euler", 2e-4)] {
        let reference = Reference::open(name);
        let sampler = if name == "sd15" { Sampler::EulerAncestral } else { Sampler::Euler };
        let request = Request { sampler, trajectory: true, ..reference.request() };
        let states = reference.generate(&request).trajectory;
        let wanted = &reference.samplers[&format!("{key}/latents")];
        assert_eq!(states.len(), wanted.size(0), "{name}");
        for (k, state) in states.iter().enumerate() {
            let wanted = wanted.narrow(0, k, 1).unwrap();
            assert_eq!(state.shape(), &wanted.shape()[1..], "{name} {k}");
            let (found, wanted) = (state.floats().unwrap(), wanted.floats().unwrap());
            let largest = wanted.iter().fold(0.0f32, |most, value| most.max(value.abs()));
            assert!(found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() <= bound * largest), "{name} {k}");
        }
    }
}
