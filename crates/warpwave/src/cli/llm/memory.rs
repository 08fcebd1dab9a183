//! Whether a model fits a device, with the arithmetic.

use std::fmt::Write as _;

use warpwave_kernels::DType;
use warpwave_llm::{Checkpoint, Memory};
use warpwave_tensor::Device;
use warpwave_weights::Kind;

use super::super::{Failure, human_bytes};
use super::{Which, kind};

/// What a model needs on a device, and what there is.
pub(super) struct Need {
    pub memory: Memory,
    /// The type of keys and values.
    pub cache: DType,
    pub context: usize,
    /// Bytes that are free, where the system says.
    pub free: Option<u64>,
}

impl Need {
    pub fn of(checkpoint: &Checkpoint, device: &Device, which: &Which, context: usize) -> Result<Need, Failure> {
        let cache = match which.cache {
            Some(cache) => cache,
            None => flowing(checkpoint, device.is_cpu(), which.kind)?,
        };
        Ok(Need { memory: checkpoint.memory(which.kind, cache, context)?, cache, context, free: device.free_memory() })
    }

    pub fn fits(&self) -> Option<bool> {
        self.free.map(|free| self.memory.total() <= free)
    }

    /// The sum, a line for each part.
    pub fn arithmetic(&self) -> String {
        let Need { memory, cache, context, .. } = self;
        let mut text = String::new();
        let mut line = |what: &str, bytes: u64, how: String| _ = writeln!(text, "  {what:16} {:>10}{how}", human(bytes));
        line("weights", memory.weights, String::new());
        line("keys and values", memory.kv, format!("  {context} tokens x {} of {cache}", human(memory.kv_per_token)));
        line("activations", memory.activations, format!("  {} tokens at once, and the logits of one", 512.min(*context)));
        line("together", memory.total(), String::new());
        text
    }

    /// Why the model cannot be loaded, and what would help; nothing where it fits.
    pub fn refusal(&self, checkpoint: &Checkpoint, device: &Device, which: &Which, name: &str) -> Result<Option<String>, Failure> {
        let (Some(false), Some(free)) = (self.fits(), self.free) else { return Ok(None) };
        let place = if device.is_cpu() { "this computer".to_owned() } else { device.to_string() };
        let mut text = format!("{name} does not fit: {place} has {} free\n{}", human(free), self.arithmetic());
        let mut helps = Vec::new();
        let mut context = self.context / 2;
        while context >= 256 {
            if checkpoint.memory(which.kind, self.cache, context)?.total() <= free {
                helps.push(format!("--context {context}"));
                break;
            }
            context /= 2;
        }
        for name in ["q8_0", "q4_k"] {
            let memory = checkpoint.memory(kind(name).ok(), self.cache, self.context)?;
            if memory.total() <= free {
                helps.push(format!("--as {name} ({} together)", human(memory.total())));
            }
        }
        if self.cache == DType::F32 && checkpoint.memory(which.kind, DType::F16, self.context)?.total() <= free {
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

/// The type of what flows between the layers, which keys and values have where nothing else is said.
fn flowing(checkpoint: &Checkpoint, is_cpu: bool, to: Option<Kind>) -> Result<DType, Failure> {
    let infos = checkpoint.converted(to)?;
    let kind = infos.iter().find(|info| info.name == "blk.0.attn_output.weight").map(|info| info.kind);
    Ok(match kind {
        Some(Kind::Plain(dtype @ (DType::F16 | DType::Bf16))) if !is_cpu => dtype,
        _ => DType::F32,
    })
}

pub(super) fn human(bytes: u64) -> String {
    human_bytes(usize::try_from(bytes).unwrap_or(usize::MAX))
}
