//! Noise schedules: the noise levels that a sampler visits, and the timesteps that the denoiser gets there.

use std::sync::OnceLock;

use serde_json::Value;

use crate::error::{Result, bad_argument};
use crate::info::{ModelInfo, Prediction};
use crate::sampler::Sampler;

/// Timesteps of training.
const TRAINED: usize = 1000;
/// The most steps of a run.
pub const MAX_STEPS: usize = 150;
/// The exponent of the Karras schedule.
const RHO: f64 = 7.0;

/// How the noise levels of a run are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// Trained levels at equal distances from the last one.
    Simple,
    /// Karras et al. 2022, with ρ = 7.
    Karras,
    /// Equal distances of log σ.
    Exponential,
    /// Equal distances of the timestep, without the last one.
    SgmUniform,
    /// Trained levels at equal distances from the second one. More steps than asked for if these do not divide 1000.
    DdimUniform,
    /// diffusers' `leading` timesteps.
    Leading,
    /// diffusers' `trailing` timesteps.
    Trailing,
    /// diffusers' `linspace` timesteps.
    Linspace,
}

impl Schedule {
    /// All schedules.
    pub const ALL: [Schedule; 8] = [
        Schedule::Simple,
        Schedule::Karras,
        Schedule::Exponential,
        Schedule::SgmUniform,
        Schedule::DdimUniform,
        Schedule::Leading,
        Schedule::Trailing,
        Schedule::Linspace,
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Schedule::Simple => "simple",
            Schedule::Karras => "karras",
            Schedule::Exponential => "exponential",
            Schedule::SgmUniform => "sgm_uniform",
            Schedule::DdimUniform => "ddim_uniform",
            Schedule::Leading => "leading",
            Schedule::Trailing => "trailing",
            Schedule::Linspace => "linspace",
        }
    }

    /// Returns the schedule with a name.
    pub fn from_name(name: &str) -> Option<Schedule> {
        Schedule::ALL.into_iter().find(|schedule| schedule.name() == name)
    }

    /// The name that A1111 writes into images.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Schedule::Simple => "Simple",
            Schedule::Karras => "Karras",
            Schedule::Exponential => "Exponential",
            Schedule::SgmUniform => "SGM Uniform",
            Schedule::DdimUniform => "DDIM",
            Schedule::Leading => "Leading",
            Schedule::Trailing => "Trailing",
            Schedule::Linspace => "Linspace",
        }
    }

    /// The model's own schedule: the spacing in its scheduler configuration, else the sampler's default.
    fn of_model(info: &ModelInfo, sampler: Sampler) -> Schedule {
        let named = info.scheduler_config.as_ref().and_then(|config| config.get("timestep_spacing")).and_then(Value::as_str);
        named.and_then(Schedule::from_name).unwrap_or(match sampler {
            Sampler::Ddim | Sampler::Ddpm => Schedule::Leading,
            _ => Schedule::Linspace,
        })
    }
}

/// A noise level: a latent there is `signal` · image + `noise` · random numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// The factor of the image.
    pub signal: f64,
    /// The factor of the random numbers.
    pub noise: f64,
}

impl Level {
    /// The level of a variance-preserving model: signal² + noise² = 1.
    pub fn preserving(sigma: f64) -> Level {
        let signal = 1.0 / (1.0 + sigma * sigma).sqrt();
        Level { signal, noise: sigma * signal }
    }

    /// The level of a rectified flow: signal + noise = 1.
    pub fn flow(sigma: f64) -> Level {
        Level { signal: 1.0 - sigma, noise: sigma }
    }

    /// Returns noise / signal.
    pub fn sigma(self) -> f64 {
        self.noise / self.signal
    }

    /// Returns half the logarithm of the signal-to-noise ratio.
    pub fn lambda(self) -> f64 {
        self.signal.ln() - self.noise.ln()
    }
}

/// One call of the denoiser, and the level it leads to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// What the denoiser gets: 0 to 999, or σ of a flow.
    pub timestep: f64,
    /// The level before the step.
    pub level: Level,
    /// The level after it.
    pub next: Level,
}

/// The steps of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The steps, from noise to image.
    pub steps: Vec<Step>,
    /// The factor of the random numbers that a run from pure noise starts with.
    pub initial: f64,
}

impl Plan {
    /// Plans a run of about `steps` steps: [`Schedule::DdimUniform`] may take more. Without a schedule it is the model's own.
    ///
    /// `tokens` is the number of positions of Flux's transformer, which shifts the schedule of Flux dev.
    pub fn new(info: &ModelInfo, sampler: Sampler, schedule: Option<Schedule>, steps: usize, tokens: usize) -> Result<Plan> {
        if steps == 0 || steps > MAX_STEPS {
            return Err(bad_argument("plan", format!("expected 1 to {MAX_STEPS} steps, got {steps}")));
        }
        if info.prediction == Prediction::Flow {
            return flow(sampler, schedule, steps, flow_shift(info.scheduler_config.as_ref(), tokens));
        }
        let schedule = schedule.unwrap_or_else(|| Schedule::of_model(info, sampler));
        Ok(match schedule {
            Schedule::Leading | Schedule::Trailing | Schedule::Linspace => spaced(sampler, schedule, steps),
            _ => {
                let table = trained_sigmas();
                let sigmas = named(schedule, steps, table, |t| sigma_of(t, table));
                Plan::through(sigmas.into_iter().map(|sigma| (timestep_of(sigma, table), Level::preserving(sigma))), 1.0)
            }
        })
    }

    /// The plan through levels that ends without noise.
    fn through(points: impl IntoIterator<Item = (f64, Level)>, initial: f64) -> Plan {
        let points: Vec<(f64, Level)> = points.into_iter().collect();
        let next = points.iter().skip(1).map(|(_, level)| *level).chain([Level { signal: 1.0, noise: 0.0 }]);
        let steps = points.iter().zip(next).map(|((timestep, level), next)| Step { timestep: *timestep, level: *level, next });
        Plan { steps: steps.collect(), initial }
    }

    /// Leaves out the first steps for a run from an image: `strength` 1 keeps all, 0 none.
    pub fn shorten(&mut self, strength: f64, flow: bool) -> Result<()> {
        if !(strength > 0.0 && strength <= 1.0) {
            return Err(bad_argument("strength", format!("expected a number > 0 and <= 1, got {strength}")));
        }
        let count = self.steps.len();
        let kept = count as f64 * strength;
        let skipped = if flow { (count as f64 - kept) as usize } else { count - (kept as usize).min(count) };
        if skipped >= count {
            let least = 1.0 / count as f64;
            return Err(bad_argument(
                "strength",
                format!("strength {strength} with {count} steps leaves no steps; expected at least {least:.3}, or more steps"),
            ));
        }
        self.steps.drain(..skipped);
        Ok(())
    }
}

/// σ of the trained timesteps: β are the squares of equally spaced roots, from 0.00085 to 0.012. Rounded to `f32` where training did.
fn trained_sigmas() -> &'static [f64] {
    static SIGMAS: OnceLock<Vec<f64>> = OnceLock::new();
    SIGMAS.get_or_init(|| {
        let (first, last) = (0.00085f64.sqrt() as f32, 0.012f64.sqrt() as f32);
        let step = (last - first) / (TRAINED - 1) as f32;
        let root = |i: usize| if i < TRAINED / 2 { first + step * i as f32 } else { last - step * (TRAINED - 1 - i) as f32 };
        let mut product = 1.0;
        let sigmas = (0..TRAINED).map(|i| {
            product *= f64::from(1.0 - root(i) * root(i));
            let kept = product as f32;
            f64::from(((1.0 - kept) / kept).sqrt())
        });
        sigmas.collect()
    })
}

/// σ of a real timestep: log σ is interpolated.
fn sigma_of(timestep: f64, table: &[f64]) -> f64 {
    let (low, high, weight) = neighbors(timestep, table);
    ((1.0 - weight) * low.ln() + weight * high.ln()).exp()
}

/// σ of a real timestep as diffusers has it: σ itself is interpolated.
fn linear_sigma_of(timestep: f64, table: &[f64]) -> f64 {
    let (low, high, weight) = neighbors(timestep, table);
    (1.0 - weight) * low + weight * high
}

fn neighbors(timestep: f64, table: &[f64]) -> (f64, f64, f64) {
    let timestep = timestep.clamp(0.0, (table.len() - 1) as f64);
    let low = timestep.floor() as usize;
    (table[low], table[(low + 1).min(table.len() - 1)], timestep - low as f64)
}

/// The inverse of [`sigma_of`].
fn timestep_of(sigma: f64, table: &[f64]) -> f64 {
    let low = table.partition_point(|own| *own <= sigma).saturating_sub(1).min(table.len() - 2);
    let (below, above) = (table[low].ln(), table[low + 1].ln());
    low as f64 + ((sigma.max(1e-10).ln() - below) / (above - below)).clamp(0.0, 1.0)
}

/// `count` numbers from `from` to `to`, both included; only `from` if it is one. Rounded as NumPy does, which decides about halves.
fn linspace(from: f64, to: f64, count: usize) -> impl Iterator<Item = f64> {
    let last = count.saturating_sub(1).max(1);
    let step = (to - from) / last as f64;
    (0..count).map(move |i| if i == last { to } else { from + i as f64 * step })
}

fn karras(highest: f64, lowest: f64, steps: usize) -> Vec<f64> {
    linspace(highest.powf(1.0 / RHO), lowest.powf(1.0 / RHO), steps).map(|root| root.powf(RHO)).collect()
}

fn exponential(highest: f64, lowest: f64, steps: usize) -> Vec<f64> {
    linspace(highest.ln(), lowest.ln(), steps).map(f64::exp).collect()
}

/// The σ of a schedule with a name of its own, over a table of trained σ.
fn named(schedule: Schedule, steps: usize, table: &[f64], sigma_of: impl Fn(f64) -> f64) -> Vec<f64> {
    let count = table.len();
    let (lowest, highest) = (table[0], table[count - 1]);
    match schedule {
        Schedule::Karras => karras(highest, lowest, steps),
        Schedule::Exponential => exponential(highest, lowest, steps),
        Schedule::SgmUniform => linspace((count - 1) as f64, 0.0, steps + 1).take(steps).map(sigma_of).collect(),
        Schedule::DdimUniform => {
            let mut sigmas: Vec<f64> = table.iter().skip(1).step_by((count / steps).max(1)).copied().collect();
            sigmas.reverse();
            sigmas
        }
        _ => (0..steps).map(|i| table[count - 1 - (i as f64 * (count as f64 / steps as f64)) as usize]).collect(),
    }
}

/// diffusers' spacings of timesteps, with a `steps_offset` of 1. They depend on the sampler.
fn spaced(sampler: Sampler, spacing: Schedule, steps: usize) -> Plan {
    let table = trained_sigmas();
    let last = (TRAINED - 1) as f64;
    let timesteps: Vec<f64> = match spacing {
        // The multistep samplers space one step more, and leave out the last.
        Schedule::Leading if sampler.is_multistep() => (1..=steps).rev().map(|i| (i * (TRAINED / (steps + 1)) + 1) as f64).collect(),
        Schedule::Leading => (0..steps).rev().map(|i| (i * (TRAINED / steps) + 1) as f64).collect(),
        Schedule::Trailing => {
            let ratio = TRAINED as f64 / steps as f64;
            (0..steps).map(|i| (TRAINED as f64 - i as f64 * ratio).round_ties_even() - 1.0).collect()
        }
        _ => {
            let count = if sampler.is_multistep() { steps + 1 } else { steps };
            let spaced: Vec<f64> = linspace(0.0, last, count).collect();
            let is_real = matches!(sampler, Sampler::Euler | Sampler::EulerAncestral);
            spaced.into_iter().rev().take(steps).map(|t| if is_real { t } else { t.round_ties_even() }).collect()
        }
    };
    let level = |timestep: f64| Level::preserving(linear_sigma_of(timestep, table));
    if sampler == Sampler::Ddim {
        // A step goes down by 1000 / steps, whatever the next timestep, and the last one ends at the first trained level.
        let down = (TRAINED / steps) as f64;
        let step = |timestep: &f64| Step { timestep: *timestep, level: level(*timestep), next: level((timestep - down).max(0.0)) };
        return Plan { steps: timesteps.iter().map(step).collect(), initial: 1.0 };
    }
    let mut plan = Plan::through(timesteps.into_iter().map(|timestep| (timestep, level(timestep))), 1.0);
    if matches!(sampler, Sampler::Euler | Sampler::EulerAncestral) && spacing != Schedule::Leading {
        plan.initial = plan.steps[0].level.noise;
    }
    plan
}

/// How much a flow's schedule is shifted toward noise: by the number of the transformer's positions, or by a constant.
fn flow_shift(config: Option<&Value>, tokens: usize) -> f64 {
    let number = |key: &str, default: f64| config.and_then(|config| config.get(key)).and_then(Value::as_f64).unwrap_or(default);
    let dynamic = config.and_then(|config| config.get("use_dynamic_shifting")).and_then(Value::as_bool).unwrap_or(false);
    if !dynamic {
        return number("shift", 1.0);
    }
    let (few, many) = (number("base_image_seq_len", 256.0), number("max_image_seq_len", 4096.0));
    let (low, high) = (number("base_shift", 0.5), number("max_shift", 1.15));
    (low + (high - low) * (tokens as f64 - few) / (many - few)).exp()
}

fn shifted(sigma: f64, shift: f64) -> f64 {
    shift * sigma / (1.0 + (shift - 1.0) * sigma)
}

/// The plan of a rectified flow.
fn flow(sampler: Sampler, schedule: Option<Schedule>, steps: usize, shift: f64) -> Result<Plan> {
    if sampler.is_ancestral() {
        let expected = "euler, ddim, dpm_solver_multistep or uni_pc";
        return Err(bad_argument(
            "sampler",
            format!("{} does not support rectified-flow models such as Flux; expected {expected}", sampler.name()),
        ));
    }
    let count = steps as f64;
    // The logarithm of a signal of 0 is infinite, so the multistep samplers start a little below.
    let highest = if sampler.is_multistep() { 1.0 - 1.0 / TRAINED as f64 } else { 1.0 };
    let own = |i: usize| {
        let sigma = if sampler.is_multistep() { highest * (1.0 - i as f64 / count) } else { 1.0 - i as f64 / count };
        shifted(sigma, shift)
    };
    let sigmas: Vec<f64> = match schedule {
        None => (0..steps).map(own).collect(),
        Some(Schedule::Karras) => karras(own(0), own(steps - 1), steps),
        Some(Schedule::Exponential) => exponential(own(0), own(steps - 1), steps),
        Some(schedule @ (Schedule::Simple | Schedule::SgmUniform | Schedule::DdimUniform)) => {
            let at = |t: f64| shifted((t + 1.0) / TRAINED as f64, shift);
            let table: Vec<f64> = (0..TRAINED).map(|t| at(t as f64)).collect();
            named(schedule, steps, &table, at).into_iter().map(|sigma| sigma.min(shifted(highest, shift))).collect()
        }
        Some(schedule) => {
            let expected = "simple, karras, exponential, sgm_uniform or ddim_uniform";
            return Err(bad_argument(
                "schedule",
                format!("rectified-flow models do not support the schedule {}; expected {expected}", schedule.name()),
            ));
        }
    };
    // diffusers gives its multistep samplers whole timesteps.
    let is_whole = schedule.is_none() && sampler.is_multistep();
    let timestep = |sigma: f64| if is_whole { (sigma * TRAINED as f64).floor() / TRAINED as f64 } else { sigma };
    Ok(Plan::through(sigmas.into_iter().map(|sigma| (timestep(sigma), Level::flow(sigma))), 1.0))
}
