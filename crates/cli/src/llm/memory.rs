//! Messages about models that do not fit into memory.

use warpwave_llm::{Alternative, MemoryShortage};

use super::super::human_bytes;

/// Returns why a model does not fit, and which options would help.
pub(super) fn refusal(shortage: &MemoryShortage) -> String {
    let options: Vec<String> = shortage.alternatives.iter().filter_map(option).collect();
    let advice = if !options.is_empty() {
        format!("The model would fit with {}.", options.join(" or "))
    } else {
        let more =
            if shortage.budget.devices.len() == 1 { "another --device, or several GPUs (--device cuda:0,cuda:1)" } else { "or more GPUs" };
        format!("Neither a smaller --context nor --dtype q4_k is enough; use a smaller model, {more}.")
    };
    format!("{}\n{}{advice}", shortage.summary(), shortage.budget)
}

fn option(alternative: &Alternative) -> Option<String> {
    match alternative {
        Alternative::Context(tokens) => Some(format!("--context {tokens}")),
        Alternative::Weights(kind, total) => Some(format!("--dtype {kind} ({} total)", human(*total))),
        Alternative::KvCache(dtype) => Some(format!("--kv-cache-type {dtype}")),
        _ => None,
    }
}

/// Formats a byte count.
pub(super) fn human(bytes: u64) -> String {
    human_bytes(usize::try_from(bytes).unwrap_or(usize::MAX))
}
