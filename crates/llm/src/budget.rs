//! Whether a model fits into the memory of its devices, and what would make it fit.

use std::fmt;

use warpwave_kernels::Quant;
use warpwave_tensor::{Device, KvCacheType};
use warpwave_weights::Kind;

use crate::checkpoint::{Checkpoint, MemoryEstimate, MemoryPlan};
use crate::error::{Result, human_bytes};
use crate::runner::RunnerOptions;

/// The smallest context that is suggested.
const SMALLEST_CONTEXT: usize = 256;

/// Memory that a model needs on each device, and what is free there.
///
/// Prints as a table with one line per kind of memory.
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    /// The plan, with `chunk` resolved.
    pub plan: MemoryPlan,
    /// Type of the KV cache.
    pub kv_cache: KvCacheType,
    /// One per device of the plan.
    pub devices: Vec<DeviceBudget>,
}

/// A device's part of a [`MemoryBudget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceBudget {
    /// Bytes needed.
    pub estimate: MemoryEstimate,
    /// Bytes free, if known.
    pub free: Option<u64>,
}

/// A model that does not fit, with the estimate and changes that would make it fit.
#[derive(Debug, Clone)]
pub struct MemoryShortage {
    /// The model's file or name.
    pub model: String,
    /// The estimate.
    pub budget: MemoryBudget,
    /// Changes each of which makes the model fit.
    pub alternatives: Vec<Alternative>,
}

/// A change that makes a model fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Alternative {
    /// A smaller context, in tokens.
    Context(usize),
    /// Weights of a smaller type, and the bytes needed in total then.
    Weights(Kind, u64),
    /// A KV cache of a smaller type.
    KvCache(KvCacheType),
}

impl MemoryBudget {
    /// Estimates the memory of a plan. Without a given chunk the default one is halved while the model does not fit.
    pub fn new(checkpoint: &Checkpoint, mut plan: MemoryPlan) -> Result<MemoryBudget> {
        let first = plan.first_device()?.clone();
        let kv_cache = match plan.kv_cache {
            Some(dtype) => dtype,
            None => checkpoint.kv_cache_type(plan.weights, plan.precision, &first)?,
        };
        plan.kv_cache = Some(kv_cache);
        let (given, mut chunk) = (plan.chunk.is_some(), plan.chunk.unwrap_or_else(|| RunnerOptions::default_chunk(&first)));
        plan.chunk = Some(chunk);
        let mut estimates = checkpoint.memory(&plan)?;
        let free: Vec<Option<u64>> = plan.devices.iter().map(Device::free_memory).collect();
        while !given && chunk > RunnerOptions::SMALLEST_CHUNK && fits(&plan.devices, &estimates, &free) == Some(false) {
            chunk /= 2;
            plan.chunk = Some(chunk);
            estimates = checkpoint.memory(&plan)?;
        }
        let devices = estimates.into_iter().zip(free).map(|(estimate, free)| DeviceBudget { estimate, free }).collect();
        Ok(MemoryBudget { plan, kv_cache, devices })
    }

    /// Returns whether the model fits; `None` if free memory is unknown.
    pub fn fits(&self) -> Option<bool> {
        self.fits_as(&self.devices.iter().map(|device| device.estimate).collect::<Vec<_>>())
    }

    fn fits_as(&self, estimates: &[MemoryEstimate]) -> Option<bool> {
        fits(&self.plan.devices, estimates, &self.devices.iter().map(|device| device.free).collect::<Vec<_>>())
    }

    /// Returns changes each of which makes the model fit.
    pub fn alternatives(&self, checkpoint: &Checkpoint) -> Vec<Alternative> {
        // A plan that cannot be split over the devices does not help.
        let fitting = |plan: MemoryPlan| checkpoint.memory(&plan).ok().filter(|estimates| self.fits_as(estimates) == Some(true));
        let mut found = Vec::new();
        let mut context = self.plan.context / 2;
        while context >= SMALLEST_CONTEXT {
            // As many sequences, each of a smaller context.
            let cache_tokens = self.plan.cache_tokens.map(|tokens| tokens / (self.plan.context / context));
            if fitting(MemoryPlan { context, cache_tokens, ..self.plan.clone() }).is_some() {
                found.push(Alternative::Context(context));
                break;
            }
            context /= 2;
        }
        for kind in [Quant::Q8_0, Quant::Q4K].map(Kind::Quant) {
            if let Some(estimates) = fitting(MemoryPlan { weights: Some(kind), ..self.plan.clone() }) {
                let total = estimates.iter().map(MemoryEstimate::total).fold(0, u64::saturating_add);
                found.push(Alternative::Weights(kind, total));
            }
        }
        // The largest smaller type that fits.
        let smaller: &[KvCacheType] = match self.kv_cache {
            KvCacheType::F32 => &[KvCacheType::F16, KvCacheType::Q8_0],
            KvCacheType::F16 | KvCacheType::Bf16 => &[KvCacheType::Q8_0],
            KvCacheType::F8E4M3 | KvCacheType::Q8_0 => &[],
        };
        let fits = |kind: &&KvCacheType| fitting(MemoryPlan { kv_cache: Some(**kind), ..self.plan.clone() }).is_some();
        found.extend(smaller.iter().find(fits).map(|kind| Alternative::KvCache(*kind)));
        found
    }

    /// Returns the bytes needed on all devices together.
    pub fn total(&self) -> u64 {
        self.devices.iter().map(|device| device.estimate.total()).fold(0, u64::saturating_add)
    }

    /// Returns the bytes of weights on all devices together.
    pub fn weights(&self) -> u64 {
        self.devices.iter().map(|device| device.estimate.weights).fold(0, u64::saturating_add)
    }
}

impl fmt::Display for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryBudget { plan, kv_cache, devices } = self;
        for (device, DeviceBudget { estimate, free }) in plan.devices.iter().zip(devices) {
            if devices.len() > 1 {
                writeln!(f, "{device}, {}:", free.map_or("free memory unknown".to_owned(), |free| format!("{} free", human_bytes(free))))?;
            }
            let mut line = |name: &str, bytes: u64, note: String| writeln!(f, "  {name:16} {:>10}{note}", human_bytes(bytes));
            line("weights", estimate.weights, String::new())?;
            let per_token = human_bytes(estimate.kv_per_token);
            line("KV cache", estimate.kv, format!("  {} tokens x {per_token} of {kv_cache}", plan.capacity()))?;
            let chunk = plan.chunk.unwrap_or(plan.context).min(plan.context);
            line("activations", estimate.activations, format!("  chunk of {chunk} tokens, logits of one token"))?;
            if estimate.scratch > 0 {
                line("scratch", estimate.scratch, "  matmul workspace, captured graphs, pool overhead".to_owned())?;
            }
            line("total", estimate.total(), String::new())?;
        }
        Ok(())
    }
}

impl MemoryShortage {
    /// Returns the first line: which model, and the free memory of its device.
    pub fn summary(&self) -> String {
        match (&self.budget.plan.devices[..], &self.budget.devices[..]) {
            ([device], [DeviceBudget { free: Some(free), .. }]) => {
                let place = if device.is_cpu() { "the CPU".to_owned() } else { device.to_string() };
                format!("{} does not fit into memory: {place} has {} free", self.model, human_bytes(*free))
            }
            (devices, _) => format!("{} does not fit into the memory of {} devices", self.model, devices.len()),
        }
    }
}

impl fmt::Display for MemoryShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.summary(), self.budget)?;
        if self.alternatives.is_empty() {
            return f.write_str("Use a smaller model or more devices.");
        }
        let alternatives: Vec<String> = self.alternatives.iter().map(ToString::to_string).collect();
        write!(f, "The model would fit with {}.", alternatives.join(" or "))
    }
}

impl std::error::Error for MemoryShortage {}

impl fmt::Display for Alternative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Alternative::Context(tokens) => write!(f, "a context of {tokens} tokens"),
            Alternative::Weights(kind, total) => write!(f, "weights as {kind} ({} total)", human_bytes(*total)),
            Alternative::KvCache(kind) => write!(f, "a KV cache of {kind}"),
        }
    }
}

/// Whether devices have this memory. The CPU and virtual GPUs share the host's.
fn fits(devices: &[Device], estimates: &[MemoryEstimate], free: &[Option<u64>]) -> Option<bool> {
    let needed = |filter: &dyn Fn(&Device) -> bool| {
        let parts = devices.iter().zip(estimates).filter(|(device, _)| filter(device));
        parts.map(|(_, estimate)| estimate.total()).fold(0, u64::saturating_add)
    };
    let on_host = needed(&|device| device.is_cpu() || device.is_virtual());
    let host = (on_host > 0).then(|| (on_host, Device::Cpu.free_memory()));
    let each = devices.iter().zip(free).map(|(device, free)| (needed(&|other| other.name() == device.name()), *free));
    let mut all = Some(true);
    for (needed, free) in each.chain(host) {
        match free {
            Some(free) if needed > free => return Some(false),
            Some(_) => {}
            None => all = None,
        }
    }
    all
}
