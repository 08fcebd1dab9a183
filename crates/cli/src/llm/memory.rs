//! Whether a model fits a device, with the arithmetic.

use std::fmt::Write as _;

use warpwave_kernels::DType;
use warpwave_llm::{Checkpoint, Memory, Plan, RunnerOptions};
use warpwave_tensor::Device;

use super::super::{Failure, failed, human_bytes};
use super::{Which, kind};

/// What a model needs on its devices, and what there is.
pub(super) struct Need {
    pub plan: Plan,
    /// Of each device.
    pub parts: Vec<Part>,
    /// The type of keys and values.
    pub cache: DType,
}

/// A device's part.
pub(crate) struct Part {
    pub memory: Memory,
    /// Bytes that are free, where the system says.
    pub free: Option<u64>,
}

impl Need {
    pub fn of(checkpoint: &Checkpoint, devices: &[Device], which: &Which, context: usize) -> Result<Need, Failure> {
        let first = devices.first().ok_or_else(|| failed("no device was named"))?;
        let cache = match which.cache {
            Some(cache) => cache,
            None => checkpoint.cache_type(which.kind, which.precision(), first)?,
        };
        let chunk = which.chunk.map_or_else(|| RunnerOptions::chunk_on(first), |chunk| chunk as usize);
        let (devices, matrices, precision) = (devices.to_vec(), which.kind, which.precision());
        let mut plan = Plan { devices, matrices, precision, cache: Some(cache), context, chunk };
        let mut memory = checkpoint.memory(&plan)?;
        let free: Vec<Option<u64>> = plan.devices.iter().map(Device::free_memory).collect();
        // Where memory is short a prompt goes in smaller pieces, unless their size was given.
        while which.chunk.is_none() && plan.chunk > RunnerOptions::SMALLEST_CHUNK && fits(&plan.devices, &memory, &free) == Some(false) {
            plan.chunk /= 2;
            memory = checkpoint.memory(&plan)?;
        }
        let parts = memory.into_iter().zip(free).map(|(memory, free)| Part { memory, free }).collect();
        Ok(Need { plan, parts, cache })
    }

    pub fn fits(&self) -> Option<bool> {
        self.fits_as(&self.parts.iter().map(|part| part.memory).collect::<Vec<_>>())
    }

    fn fits_as(&self, memory: &[Memory]) -> Option<bool> {
        fits(&self.plan.devices, memory, &self.parts.iter().map(|part| part.free).collect::<Vec<_>>())
    }

    /// The sum, a line for each part.
    pub fn arithmetic(&self) -> String {
        let Need { plan, parts, cache } = self;
        let mut text = String::new();
        for (device, Part { memory, free }) in plan.devices.iter().zip(parts) {
            if parts.len() > 1 {
                _ = writeln!(
                    text,
                    "{device}, {}:",
                    free.map_or("free memory not known".to_owned(), |free| format!("{} free", human(free)))
                );
            }
            let mut line = |what: &str, bytes: u64, how: String| _ = writeln!(text, "  {what:16} {:>10}{how}", human(bytes));
            line("weights", memory.weights, String::new());
            line("keys and values", memory.kv, format!("  {} tokens x {} of {cache}", plan.context, human(memory.kv_per_token)));
            let at_once = plan.chunk.min(plan.context);
            line("activations", memory.activations, format!("  {at_once} tokens at once, and the logits of one"));
            if memory.scratch > 0 {
                line("scratch", memory.scratch, "  products at work, captured steps, the pool".to_owned());
            }
            line("together", memory.total(), String::new());
        }
        text
    }

    /// Why the model cannot be loaded, and what would help; nothing where it fits.
    pub fn refusal(&self, checkpoint: &Checkpoint, name: &str) -> Result<Option<String>, Failure> {
        if self.fits() != Some(false) {
            return Ok(None);
        }
        let mut text = match (&self.plan.devices[..], &self.parts[..]) {
            ([device], [Part { free: Some(free), .. }]) => {
                let place = if device.is_cpu() { "this computer".to_owned() } else { device.to_string() };
                format!("{name} does not fit: {place} has {} free\n", human(*free))
            }
            (devices, _) => format!("{name} does not fit on {} devices\n", devices.len()),
        };
        text.push_str(&self.arithmetic());
        let mut helps = Vec::new();
        let mut context = self.plan.context / 2;
        // What cannot be divided like this does not help.
        let fits = |plan: Plan| checkpoint.memory(&plan).ok().filter(|memory| self.fits_as(memory) == Some(true));
        while context >= 256 {
            if fits(Plan { context, ..self.plan.clone() }).is_some() {
                helps.push(format!("--context {context}"));
                break;
            }
            context /= 2;
        }
        for name in ["q8_0", "q4_k"] {
            if let Some(memory) = fits(Plan { matrices: kind(name).ok(), ..self.plan.clone() }) {
                let total = memory.iter().map(Memory::total).fold(0, u64::saturating_add);
                helps.push(format!("--as {name} ({} together)", human(total)));
            }
        }
        if self.cache == DType::F32 && fits(Plan { cache: Some(DType::F16), ..self.plan.clone() }).is_some() {
            helps.push("--cache f16".to_owned());
        }
        match helps.is_empty() {
            true => {
                let more = if self.plan.devices.len() == 1 {
                    "another --device, or several GPUs (--device cuda:0,cuda:1)"
                } else {
                    "or more GPUs"
                };
                _ = write!(text, "Neither a smaller --context nor --as q4_k would make it fit: take a smaller model, {more}.");
            }
            false => _ = write!(text, "It would fit with {}.", helps.join(", or with ")),
        }
        Ok(Some(text))
    }
}

/// Whether devices have these bytes; those in the computer's own memory need them together.
fn fits(devices: &[Device], memory: &[Memory], free: &[Option<u64>]) -> Option<bool> {
    let needed = |which: &dyn Fn(&Device) -> bool| {
        let parts = devices.iter().zip(memory).filter(|(device, _)| which(device));
        parts.map(|(_, memory)| memory.total()).fold(0, u64::saturating_add)
    };
    let of_computer = needed(&|device| device.is_cpu() || device.is_virtual());
    let computer = (of_computer > 0).then(|| (of_computer, Device::Cpu.free_memory()));
    let each = devices.iter().zip(free).map(|(device, free)| (needed(&|other| other.name() == device.name()), *free));
    let mut all = Some(true);
    for (needed, free) in each.chain(computer) {
        match free {
            Some(free) if needed > free => return Some(false),
            Some(_) => {}
            None => all = None,
        }
    }
    all
}

pub(super) fn human(bytes: u64) -> String {
    human_bytes(usize::try_from(bytes).unwrap_or(usize::MAX))
}
