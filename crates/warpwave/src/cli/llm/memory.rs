//! Whether a model fits a device, with the arithmetic.

use std::fmt::Write as _;

use warpwave_kernels::DType;
use warpwave_llm::{Checkpoint, Memory, Plan, RunnerOptions};
use warpwave_tensor::Device;

use super::super::{Failure, human_bytes};
use super::{Which, kind};

/// What a model needs on a device, and what there is.
pub(super) struct Need {
    pub plan: Plan,
    pub memory: Memory,
    /// The type of keys and values.
    pub cache: DType,
    /// Bytes that are free, where the system says.
    pub free: Option<u64>,
}

impl Need {
    pub fn of(checkpoint: &Checkpoint, device: &Device, which: &Which, context: usize) -> Result<Need, Failure> {
        let cache = match which.cache {
            Some(cache) => cache,
            None => checkpoint.multiplied(which.kind, device)?,
        };
        let free = device.free_memory();
        let chunk = which.chunk.map_or_else(|| RunnerOptions::chunk_on(device), |chunk| chunk as usize);
        let (device, matrices, precision) = (device.clone(), which.kind, which.precision());
        let mut plan = Plan { device, matrices, precision, cache: Some(cache), context, chunk };
        let mut memory = checkpoint.memory(&plan)?;
        // Where memory is short a prompt goes in smaller pieces, unless their size was given.
        while which.chunk.is_none() && plan.chunk > RunnerOptions::SMALLEST_CHUNK && free.is_some_and(|free| memory.total() > free) {
            plan.chunk /= 2;
            memory = checkpoint.memory(&plan)?;
        }
        Ok(Need { plan, memory, cache, free })
    }

    pub fn fits(&self) -> Option<bool> {
        self.free.map(|free| self.memory.total() <= free)
    }

    /// The sum, a line for each part.
    pub fn arithmetic(&self) -> String {
        let Need { plan, memory, cache, .. } = self;
        let mut text = String::new();
        let mut line = |what: &str, bytes: u64, how: String| _ = writeln!(text, "  {what:16} {:>10}{how}", human(bytes));
        line("weights", memory.weights, String::new());
        line("keys and values", memory.kv, format!("  {} tokens x {} of {cache}", plan.context, human(memory.kv_per_token)));
        let at_once = plan.chunk.min(plan.context);
        line("activations", memory.activations, format!("  {at_once} tokens at once, and the logits of one"));
        if memory.scratch > 0 {
            line("scratch", memory.scratch, "  products at work, captured steps, the pool".to_owned());
        }
        line("together", memory.total(), String::new());
        text
    }

    /// Why the model cannot be loaded, and what would help; nothing where it fits.
    pub fn refusal(&self, checkpoint: &Checkpoint, device: &Device, name: &str) -> Result<Option<String>, Failure> {
        let (Some(false), Some(free)) = (self.fits(), self.free) else { return Ok(None) };
        let place = if device.is_cpu() { "this computer".to_owned() } else { device.to_string() };
        let mut text = format!("{name} does not fit: {place} has {} free\n{}", human(free), self.arithmetic());
        let mut helps = Vec::new();
        let mut context = self.plan.context / 2;
        let total = |plan: Plan| -> Result<u64, Failure> { Ok(checkpoint.memory(&plan)?.total()) };
        while context >= 256 {
            if total(Plan { context, ..self.plan.clone() })? <= free {
                helps.push(format!("--context {context}"));
                break;
            }
            context /= 2;
        }
        for name in ["q8_0", "q4_k"] {
            let total = total(Plan { matrices: kind(name).ok(), ..self.plan.clone() })?;
            if total <= free {
                helps.push(format!("--as {name} ({} together)", human(total)));
            }
        }
        if self.cache == DType::F32 && total(Plan { cache: Some(DType::F16), ..self.plan.clone() })? <= free {
            helps.push("--cache f16".to_owned());
        }
        match helps.is_empty() {
            true => {
                text.push_str("Neither a smaller --context nor --as q4_k would make it fit: take a smaller model, or another --device.")
            }
            false => _ = write!(text, "It would fit with {}.", helps.join(", or with ")),
        }
        Ok(Some(text))
    }
}

pub(super) fn human(bytes: u64) -> String {
    human_bytes(usize::try_from(bytes).unwrap_or(usize::MAX))
}
