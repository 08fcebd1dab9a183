//! Checks whether a model fits into device memory, with a breakdown.

use std::fmt::Write as _;

use warpwave_kernels::DType;
use warpwave_llm::{Checkpoint, Memory, Plan, RunnerOptions};
use warpwave_tensor::Device;

use super::super::{Failure, failed, human_bytes};
use super::{ModelArgs, parse_weight_type};

/// Memory a model needs on its devices, and what is free.
pub(super) struct MemoryEstimate {
    pub plan: Plan,
    /// One per device.
    pub devices: Vec<DeviceEstimate>,
    /// KV cache type.
    pub cache: DType,
}

/// Memory of one device.
pub(crate) struct DeviceEstimate {
    pub memory: Memory,
    /// Free bytes, if known.
    pub free: Option<u64>,
}

impl MemoryEstimate {
    /// Estimates the memory of a model; reduces the chunk size if memory is short and the user did not set it.
    pub fn new(checkpoint: &Checkpoint, devices: &[Device], args: &ModelArgs, context: usize) -> Result<MemoryEstimate, Failure> {
        let first = devices.first().ok_or_else(|| failed("no device given"))?;
        let cache = match args.cache {
            Some(cache) => cache,
            None => checkpoint.cache_type(args.kind, args.precision(), first)?,
        };
        let chunk = args.chunk.map_or_else(|| RunnerOptions::chunk_on(first), |chunk| chunk as usize);
        let (devices, matrices, precision) = (devices.to_vec(), args.kind, args.precision());
        let mut plan = Plan { devices, matrices, precision, cache: Some(cache), context, chunk };
        let mut memory = checkpoint.memory(&plan)?;
        let free: Vec<Option<u64>> = plan.devices.iter().map(Device::free_memory).collect();
        while args.chunk.is_none() && plan.chunk > RunnerOptions::SMALLEST_CHUNK && fits(&plan.devices, &memory, &free) == Some(false) {
            plan.chunk /= 2;
            memory = checkpoint.memory(&plan)?;
        }
        let devices = memory.into_iter().zip(free).map(|(memory, free)| DeviceEstimate { memory, free }).collect();
        Ok(MemoryEstimate { plan, devices, cache })
    }

    /// Returns whether the model fits; `None` if the free memory of a device is unknown.
    pub fn fits(&self) -> Option<bool> {
        self.fits_as(&self.devices.iter().map(|device| device.memory).collect::<Vec<_>>())
    }

    fn fits_as(&self, memory: &[Memory]) -> Option<bool> {
        fits(&self.plan.devices, memory, &self.devices.iter().map(|device| device.free).collect::<Vec<_>>())
    }

    /// Returns the breakdown as text, one line per item.
    pub fn breakdown(&self) -> String {
        let MemoryEstimate { plan, devices, cache } = self;
        let mut text = String::new();
        for (device, DeviceEstimate { memory, free }) in plan.devices.iter().zip(devices) {
            if devices.len() > 1 {
                _ = writeln!(text, "{device}, {}:", free.map_or("free memory unknown".to_owned(), |free| format!("{} free", human(free))));
            }
            let mut line = |item: &str, bytes: u64, detail: String| _ = writeln!(text, "  {item:16} {:>10}{detail}", human(bytes));
            line("weights", memory.weights, String::new());
            line("KV cache", memory.kv, format!("  {} tokens x {} of {cache}", plan.context, human(memory.kv_per_token)));
            let chunk = plan.chunk.min(plan.context);
            line("activations", memory.activations, format!("  chunk of {chunk} tokens, logits of one"));
            if memory.scratch > 0 {
                line("scratch", memory.scratch, "  matmul workspace, captured graphs, pool overhead".to_owned());
            }
            line("total", memory.total(), String::new());
        }
        text
    }

    /// Returns why the model cannot be loaded and which options would help; `None` if it fits.
    pub fn refusal(&self, checkpoint: &Checkpoint, name: &str) -> Result<Option<String>, Failure> {
        if self.fits() != Some(false) {
            return Ok(None);
        }
        let mut text = match (&self.plan.devices[..], &self.devices[..]) {
            ([device], [DeviceEstimate { free: Some(free), .. }]) => {
                let place = if device.is_cpu() { "the CPU".to_owned() } else { device.to_string() };
                format!("{name} does not fit into memory: {place} has {} free\n", human(*free))
            }
            (devices, _) => format!("{name} does not fit into the memory of {} devices\n", devices.len()),
        };
        text.push_str(&self.breakdown());
        let mut options = Vec::new();
        let mut context = self.plan.context / 2;
        // An option that cannot be planned does not help.
        let fits = |plan: Plan| checkpoint.memory(&plan).ok().filter(|memory| self.fits_as(memory) == Some(true));
        while context >= 256 {
            if fits(Plan { context, ..self.plan.clone() }).is_some() {
                options.push(format!("--context {context}"));
                break;
            }
            context /= 2;
        }
        for name in ["q8_0", "q4_k"] {
            if let Some(memory) = fits(Plan { matrices: parse_weight_type(name).ok(), ..self.plan.clone() }) {
                let total = memory.iter().map(Memory::total).fold(0, u64::saturating_add);
                options.push(format!("--as {name} ({} total)", human(total)));
            }
        }
        if self.cache == DType::F32 && fits(Plan { cache: Some(DType::F16), ..self.plan.clone() }).is_some() {
            options.push("--cache f16".to_owned());
        }
        match options.is_empty() {
            true => {
                let more = if self.plan.devices.len() == 1 {
                    "another --device, or several GPUs (--device cuda:0,cuda:1)"
                } else {
                    "or more GPUs"
                };
                _ = write!(text, "A smaller --context or --as q4_k does not help; use a smaller model, {more}.");
            }
            false => _ = write!(text, "It would fit with {}.", options.join(" or ")),
        }
        Ok(Some(text))
    }
}

/// Returns whether the devices have enough memory. The CPU and virtual devices share host memory.
fn fits(devices: &[Device], memory: &[Memory], free: &[Option<u64>]) -> Option<bool> {
    let needed = |filter: &dyn Fn(&Device) -> bool| {
        let parts = devices.iter().zip(memory).filter(|(device, _)| filter(device));
        parts.map(|(_, memory)| memory.total()).fold(0, u64::saturating_add)
    };
    let host_bytes = needed(&|device| device.is_cpu() || device.is_virtual());
    let host = (host_bytes > 0).then(|| (host_bytes, Device::Cpu.free_memory()));
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

/// Formats a byte count.
pub(super) fn human(bytes: u64) -> String {
    human_bytes(usize::try_from(bytes).unwrap_or(usize::MAX))
}
