//! Samplers without a network: with the exact denoiser of a Gaussian, whose trajectories are known.

mod support;

use serde_json::json;
use support::info;
use warpwave_diffusion::{Generator, Level, Plan, Prediction, Sampler, Schedule, Solver};

const MEAN: f64 = 0.7;

/// What the best denoiser of images drawn from a normal distribution returns.
fn output(prediction: Prediction, level: Level, deviation: f64, x: &[f32]) -> Vec<f32> {
    let Level { signal, noise } = level;
    let variance = signal * signal * deviation * deviation + noise * noise;
    let one = |x: &f32| {
        let away = f64::from(*x) - signal * MEAN;
        let random = noise * away / variance;
        let image = MEAN + signal * deviation * deviation * away / variance;
        (match prediction {
            Prediction::Epsilon => random,
            Prediction::V => signal * random - noise * image,
            Prediction::Flow => random - image,
        }) as f32
    };
    x.iter().map(one).collect()
}

fn run(
    sampler: Sampler,
    prediction: Prediction,
    schedule: Option<Schedule>,
    steps: usize,
    deviation: f64,
    count: usize,
) -> (f64, Vec<f32>, Vec<f32>) {
    let plan = Plan::new(&info(prediction, json!({})), sampler, schedule, steps, 256).unwrap();
    let mut generator = Generator::new(3);
    let start = generator.normal(count);
    let mut x = start.clone();
    let mut solver = Solver::new(sampler, prediction);
    for (i, step) in plan.steps.iter().enumerate() {
        let out = output(prediction, step.level, deviation, &x);
        let noise = sampler.is_ancestral().then(|| generator.normal(count));
        solver.step(step, plan.steps.len() - 1 - i, &mut x, &out, noise.as_deref()).unwrap();
    }
    (plan.steps[0].level.sigma(), start, x)
}

/// The largest distance from where the differential equation ends.
fn error(sampler: Sampler, prediction: Prediction, schedule: Option<Schedule>, steps: usize) -> f64 {
    let deviation = 0.5;
    let (sigma, start, end) = run(sampler, prediction, schedule, steps, deviation, 64);
    let signal = if prediction == Prediction::Flow { 1.0 / (1.0 + sigma) } else { 1.0 / (1.0 + sigma * sigma).sqrt() };
    let exact = |x: &f32| match signal {
        // Pure noise of a flow.
        0.0 => MEAN + f64::from(*x) * deviation,
        _ => MEAN + (f64::from(*x) / signal - MEAN) * deviation / (deviation * deviation + sigma * sigma).sqrt(),
    };
    start.iter().zip(&end).map(|(start, end)| (exact(start) - f64::from(*end)).abs()).fold(0.0, f64::max)
}

#[test]
fn a_single_possible_image_is_found_in_any_number_of_steps() {
    for sampler in Sampler::ALL {
        for prediction in [Prediction::Epsilon, Prediction::V, Prediction::Flow] {
            if prediction == Prediction::Flow && sampler.is_ancestral() {
                continue;
            }
            for steps in [1, 2, 3, 10] {
                let (_, _, end) = run(sampler, prediction, Some(Schedule::Simple), steps, 0.0, 32);
                assert!(end.iter().all(|x| (f64::from(*x) - MEAN).abs() < 1e-4), "{sampler:?} {prediction:?} {steps}: {end:?}");
            }
        }
    }
}

#[test]
fn deterministic_samplers_converge_with_their_order() {
    for prediction in [Prediction::Epsilon, Prediction::V, Prediction::Flow] {
        let schedule = if prediction == Prediction::Flow { Schedule::SgmUniform } else { Schedule::Exponential };
        let [coarse, fine] = [20, 40].map(|steps| error(Sampler::Euler, prediction, Some(schedule), steps));
        assert!(coarse < 0.2 && coarse / fine > 1.7, "euler, {prediction:?}: {coarse} with 20 steps, {fine} with 40");
        for sampler in [Sampler::DpmSolverMultistep, Sampler::UniPc] {
            // What remains is the jump from the last level to the end, which is of order 1.
            let found = error(sampler, prediction, Some(schedule), 20);
            assert!(found < 0.3 * fine, "{sampler:?}, {prediction:?}: {found} with 20 steps, euler {fine} with 40");
        }
    }
}

#[test]
fn euler_and_ddim_are_one_method() {
    for schedule in [Schedule::Simple, Schedule::Karras, Schedule::Exponential, Schedule::SgmUniform, Schedule::DdimUniform] {
        let [one, other] = [Sampler::Euler, Sampler::Ddim].map(|sampler| run(sampler, Prediction::V, Some(schedule), 7, 0.5, 16).2);
        assert_eq!(one, other);
        let [one, other] =
            [Sampler::EulerAncestral, Sampler::Ddpm].map(|sampler| run(sampler, Prediction::V, Some(schedule), 7, 0.5, 16).2);
        assert_eq!(one, other);
    }
}

#[test]
fn ancestral_samplers_draw_from_the_distribution() {
    let (_, start, end) = run(Sampler::EulerAncestral, Prediction::Epsilon, Some(Schedule::SgmUniform), 100, 0.5, 20_000);
    let count = end.len() as f64;
    let mean = end.iter().map(|x| f64::from(*x)).sum::<f64>() / count;
    let variance = end.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / count;
    assert!((mean - MEAN).abs() < 0.02 && (variance.sqrt() - 0.5).abs() < 0.05, "mean {mean}, deviation {}", variance.sqrt());
    // The start is forgotten.
    let product = start.iter().zip(&end).map(|(start, end)| f64::from(*start) * (f64::from(*end) - mean)).sum::<f64>() / count;
    assert!(product.abs() < 0.02, "{product}");
}

#[test]
fn wrong_lengths_are_errors() {
    let step = Plan::new(&info(Prediction::Epsilon, json!({})), Sampler::Euler, None, 1, 0).unwrap().steps[0];
    let mut x = [0.0; 4];
    assert!(Solver::new(Sampler::Euler, Prediction::Epsilon).step(&step, 0, &mut x, &[0.0; 3], None).is_err());
    assert!(Solver::new(Sampler::Ddpm, Prediction::Epsilon).step(&step, 0, &mut x, &[0.0; 4], Some(&[0.0; 5])).is_err());
    assert!(Solver::new(Sampler::Ddpm, Prediction::Epsilon).step(&step, 0, &mut x, &[0.0; 4], None).is_err());
}
