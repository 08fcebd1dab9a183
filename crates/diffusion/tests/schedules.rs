//! Noise levels and timesteps against tables: the five named schedules by their published formulas, and diffusers 0.35.2's own spacings.

mod support;

use serde_json::json;
use support::{info, load};
use warpwave_diffusion::{Plan, Prediction, Sampler, Schedule};

const STEPS: [usize; 10] = [1, 2, 4, 5, 8, 20, 25, 30, 50, 150];

/// 1e-5 relative.
fn check_sigmas(plan: &Plan, expected: &[f32], ratio: impl Fn(&warpwave_diffusion::Step) -> f64, case: &str) {
    assert_eq!(plan.steps.len() + 1, expected.len(), "{case}");
    for (i, (step, expected)) in plan.steps.iter().zip(expected).enumerate() {
        let (found, expected) = (ratio(step), f64::from(*expected));
        assert!((found - expected).abs() <= 1e-5 * expected, "{case}: step {i}: expected σ {expected}, got {found}");
        let next = plan.steps.get(i + 1).map_or((1.0, 0.0), |next| (next.level.signal, next.level.noise));
        assert_eq!((step.next.signal, step.next.noise), next, "{case}: step {i}");
    }
    assert_eq!(expected[plan.steps.len()], 0.0, "{case}");
}

fn check_timesteps(plan: &Plan, expected: &[f32], case: &str) {
    assert_eq!(plan.steps.len(), expected.len(), "{case}");
    for (step, expected) in plan.steps.iter().zip(expected) {
        assert!((step.timestep - f64::from(*expected)).abs() <= 1e-3, "{case}: expected {expected}, got {}", step.timestep);
    }
}

#[test]
fn named_schedules_are_those_of_their_formulas() {
    let tables = load("schedules.safetensors");
    let table = |name: String| tables[&name].to_vec::<f32>().unwrap();
    let model = info(Prediction::Epsilon, json!({}));
    for steps in STEPS {
        for name in ["simple", "karras", "exponential", "sgm_uniform", "ddim_uniform"] {
            let case = format!("{steps}/{name}");
            for sampler in Sampler::ALL {
                let plan = Plan::new(&model, sampler, Schedule::from_name(name), steps, 0).unwrap();
                check_sigmas(&plan, &table(format!("{case}/sigmas")), |step| step.level.sigma(), &case);
                check_timesteps(&plan, &table(format!("{case}/timesteps")), &case);
                assert_eq!(plan.initial, 1.0);
            }
        }
    }
}

#[test]
fn own_schedules_are_those_of_diffusers() {
    let tables = load("schedules.safetensors");
    let mut compared = 0;
    for (sampler, spacing, steps) in Sampler::ALL.into_iter().flat_map(|sampler| {
        ["leading", "trailing", "linspace"].into_iter().flat_map(move |spacing| STEPS.map(|steps| (sampler, spacing, steps)))
    }) {
        let case = format!("{steps}/{}/{spacing}", sampler.name());
        // The spacing comes from the scheduler's configuration, or is asked for.
        let model = info(Prediction::Epsilon, json!({ "timestep_spacing": spacing }));
        let plan = Plan::new(&model, sampler, None, steps, 0).unwrap();
        let asked = Plan::new(&info(Prediction::V, json!({})), sampler, Schedule::from_name(spacing), steps, 0).unwrap();
        assert_eq!(plan, asked, "{case}");
        check_timesteps(&plan, &tables[&format!("{case}/timesteps")].to_vec::<f32>().unwrap(), &case);
        if let Some(sigmas) = tables.get(&format!("{case}/sigmas")) {
            check_sigmas(&plan, &sigmas.to_vec::<f32>().unwrap(), |step| step.level.sigma(), &case);
            compared += 1;
        }
        let scaled = matches!(sampler, Sampler::Euler | Sampler::EulerAncestral) && spacing != "leading";
        assert_eq!(plan.initial, if scaled { plan.steps[0].level.noise } else { 1.0 }, "{case}");
    }
    assert_eq!(compared, 4 * 3 * STEPS.len());
}

#[test]
fn ddim_goes_down_evenly_and_ends_at_the_first_trained_level() {
    let sigmas = load("schedules.safetensors")["sigmas_train"].to_vec::<f32>().unwrap();
    let plan = Plan::new(&info(Prediction::Epsilon, json!({})), Sampler::Ddim, None, 8, 0).unwrap();
    for (i, step) in plan.steps.iter().enumerate() {
        let at = |timestep: f64| f64::from(sigmas[timestep.max(0.0) as usize]);
        assert_eq!(step.timestep, 876.0 - 125.0 * i as f64);
        assert!((step.level.sigma() / at(step.timestep) - 1.0).abs() < 1e-5);
        assert!((step.next.sigma() / at(step.timestep - 125.0) - 1.0).abs() < 1e-5);
    }
}

#[test]
fn samplers_have_their_own_default_spacing() {
    for (sampler, first) in [
        (Sampler::Euler, 999.0),
        (Sampler::EulerAncestral, 999.0),
        (Sampler::DpmSolverMultistep, 999.0),
        (Sampler::UniPc, 999.0),
        (Sampler::Ddim, 876.0),
        (Sampler::Ddpm, 876.0),
    ] {
        assert_eq!(Plan::new(&info(Prediction::Epsilon, json!({})), sampler, None, 8, 0).unwrap().steps[0].timestep, first);
    }
}

#[test]
fn flows_are_shifted_by_their_configuration() {
    let tables = load("schedules.safetensors");
    let dynamic = json!({ "base_image_seq_len": 256, "base_shift": 0.5, "max_image_seq_len": 4096, "max_shift": 1.15, "shift": 3.0,
        "use_dynamic_shifting": true });
    let cases = [
        ("schnell", json!({ "shift": 1.0, "use_dynamic_shifting": false }), 1024),
        ("sd3", json!({ "shift": 3.0 }), 1024),
        ("dev_256", dynamic.clone(), 256),
        ("dev_1024", dynamic.clone(), 1024),
        ("dev_4096", dynamic, 4096),
    ];
    for (name, config, tokens) in cases {
        for steps in STEPS {
            let case = format!("{steps}/flow/{name}");
            let plan = Plan::new(&info(Prediction::Flow, config.clone()), Sampler::Euler, None, steps, tokens).unwrap();
            check_sigmas(&plan, &tables[&format!("{case}/sigmas")].to_vec::<f32>().unwrap(), |step| step.level.noise, &case);
            assert!(plan.steps.iter().all(|step| step.timestep == step.level.noise && step.level.signal == 1.0 - step.level.noise));
        }
    }
}

#[test]
fn a_flow_takes_the_named_schedules() {
    let model = info(Prediction::Flow, json!({ "shift": 1.0 }));
    let sigmas = |schedule, sampler| {
        let plan = Plan::new(&model, sampler, Some(schedule), 4, 256).unwrap();
        plan.steps.iter().map(|step| (step.level.noise * 1e4).round() / 1e4).collect::<Vec<_>>()
    };
    assert_eq!(sigmas(Schedule::Simple, Sampler::Euler), [1.0, 0.75, 0.5, 0.25]);
    assert_eq!(sigmas(Schedule::SgmUniform, Sampler::Euler), [1.0, 0.7503, 0.5005, 0.2507]);
    assert_eq!(sigmas(Schedule::DdimUniform, Sampler::Euler), [0.752, 0.502, 0.252, 0.002]);
    assert_eq!(sigmas(Schedule::Simple, Sampler::UniPc), [0.999, 0.75, 0.5, 0.25]);
    for schedule in [Schedule::Leading, Schedule::Trailing, Schedule::Linspace] {
        assert!(Plan::new(&model, Sampler::Euler, Some(schedule), 4, 256).unwrap_err().to_string().contains(schedule.name()));
    }
    for sampler in [Sampler::EulerAncestral, Sampler::Ddpm] {
        assert!(Plan::new(&model, sampler, None, 4, 256).unwrap_err().to_string().contains(sampler.name()));
    }
}

#[test]
fn strength_keeps_the_last_steps() {
    let plan = |prediction, steps, strength| {
        let flow = prediction == Prediction::Flow;
        let mut plan = Plan::new(&info(prediction, json!({})), Sampler::Euler, None, steps, 256).unwrap();
        let whole = plan.clone();
        plan.shorten(strength, flow).map(|()| {
            assert_eq!(plan.steps[..], whole.steps[whole.steps.len() - plan.steps.len()..]);
            plan.steps.len()
        })
    };
    for (steps, strength, kept, of_flow) in [(10, 0.8, 8, 8), (10, 0.75, 7, 8), (5, 0.5, 2, 3), (10, 1.0, 10, 10), (20, 0.05, 1, 1)] {
        assert_eq!(plan(Prediction::Epsilon, steps, strength).unwrap(), kept, "{steps} {strength}");
        assert_eq!(plan(Prediction::Flow, steps, strength).unwrap(), of_flow, "{steps} {strength}");
    }
    assert!(plan(Prediction::Epsilon, 10, 0.09).unwrap_err().to_string().contains("leaves no step"));
    for strength in [0.0, -1.0, 1.01, f64::NAN] {
        assert!(plan(Prediction::Epsilon, 10, strength).is_err());
    }
}

#[test]
fn numbers_of_steps_are_bounded() {
    for steps in [0, 151, usize::MAX] {
        let error = Plan::new(&info(Prediction::Epsilon, json!({})), Sampler::Euler, None, steps, 0).unwrap_err();
        assert!(error.to_string().contains("1 to 150 steps"), "{error}");
    }
}

#[test]
fn names_are_read_back() {
    for schedule in Schedule::ALL {
        assert_eq!(Schedule::from_name(schedule.name()), Some(schedule));
    }
    for sampler in Sampler::ALL {
        assert_eq!(Sampler::from_name(sampler.name()), Some(sampler));
    }
    assert_eq!((Schedule::from_name("Karras"), Sampler::from_name("")), (None, None));
}
