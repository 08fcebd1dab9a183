//! Validates configurations read from files.

use warpwave_kernels::RopeScaling;

use super::error::{Result, bad_key};
use crate::config::{Config, RopeConfig};

/// The largest plausible size. More is a broken file, or one made to exhaust memory.
const MAX_SIZE: usize = 1 << 24;
/// More layers than any model has.
const MAX_LAYERS: usize = 4096;

/// A file's names of the keys, for errors.
pub(super) struct Names {
    pub vocab: &'static str,
    pub hidden: &'static str,
    pub layers: &'static str,
    pub heads: &'static str,
    pub kv_heads: &'static str,
    pub head_dim: &'static str,
    pub feed_forward: &'static str,
    pub context: &'static str,
    pub norm_eps: &'static str,
    pub rope: &'static str,
    pub window: &'static str,
    pub scale: &'static str,
    pub softcap: &'static str,
    pub factors: &'static str,
    pub experts: &'static str,
    pub q_lora: &'static str,
    pub kv_lora: &'static str,
    pub value_dim: &'static str,
    pub expert_feed_forward: &'static str,
    pub shared_feed_forward: &'static str,
}

/// Checks the number of layers, before anything is allocated for them.
pub(super) fn layers(path: &str, key: &str, layers: usize) -> Result<usize> {
    in_range(path, key, layers, MAX_LAYERS)
}

/// Checks a size, before anything is allocated for it.
pub(super) fn size(path: &str, key: &str, size: usize) -> Result<usize> {
    in_range(path, key, size, MAX_SIZE)
}

fn in_range(path: &str, key: &str, value: usize, max: usize) -> Result<usize> {
    if (1..=max).contains(&value) { Ok(value) } else { Err(bad_key(path, key, format!("must be from 1 to {max}, got {value}"))) }
}

/// Checks a configuration as a whole.
pub(super) fn config(path: &str, names: &Names, config: &Config) -> Result<()> {
    let sizes = [
        (names.vocab, config.vocab),
        (names.hidden, config.hidden),
        (names.heads, config.heads),
        (names.kv_heads, config.kv_heads),
        (names.head_dim, config.head_dim),
        (names.feed_forward, config.feed_forward),
    ];
    for (key, value) in sizes {
        size(path, key, value)?;
    }
    layers(path, names.layers, config.layers)?;
    in_range(path, names.context, config.context, 1 << 31)?;
    let Config { heads, kv_heads, head_dim, .. } = *config;
    if !heads.is_multiple_of(kv_heads) {
        return Err(bad_key(path, names.heads, format!("must be a multiple of the number of KV heads ({kv_heads}), got {heads}")));
    }
    if heads.saturating_mul(head_dim) > MAX_SIZE {
        return Err(bad_key(path, names.heads, format!("heads x head_dim must be at most {MAX_SIZE}, got {heads} x {head_dim}")));
    }
    if !(config.norm_eps.is_finite() && config.norm_eps >= 0.0) {
        return Err(bad_key(path, names.norm_eps, format!("norm_eps must be finite and >= 0, got {}", config.norm_eps)));
    }
    if config.sliding_window == Some(0) {
        return Err(bad_key(path, names.window, "the sliding window must be at least 1, got 0"));
    }
    if !positive(config.attention_scale.into()) {
        return Err(bad_key(path, names.scale, format!("the attention scale must be finite and > 0, got {}", config.attention_scale)));
    }
    if let Some(mla) = &config.mla {
        size(path, names.kv_lora, mla.kv_lora)?;
        size(path, names.q_lora, mla.q_lora.unwrap_or(1))?;
        if mla.value_dim == 0 || mla.value_dim > head_dim {
            return Err(bad_key(path, names.value_dim, format!("expected 1 to {head_dim}, the head_dim of keys, got {}", mla.value_dim)));
        }
    }
    if let Some(moe) = &config.moe {
        size(path, names.experts, moe.experts)?;
        size(path, names.expert_feed_forward, moe.feed_forward)?;
        in_range(path, names.shared_feed_forward, moe.shared_feed_forward.saturating_add(1), MAX_SIZE)?;
        moe.routing.check(moe.experts).map_err(|error| bad_key(path, names.experts, error.to_string()))?;
        if !positive(moe.routing.scale.into()) {
            return Err(bad_key(
                path,
                names.experts,
                format!("the scale of expert weights must be finite and > 0, got {}", moe.routing.scale),
            ));
        }
    }
    let factors = [config.embedding_scale, config.residual_scale, config.logit_scale];
    if let Some(factor) = factors.into_iter().find(|factor| !positive((*factor).into())) {
        return Err(bad_key(path, names.factors, format!("frequency factors must be finite and > 0, got {factor}")));
    }
    let softcaps = [config.attention_softcap, config.logit_softcap].into_iter().flatten();
    if let Some(cap) = softcaps.into_iter().find(|cap| !positive((*cap).into())) {
        return Err(bad_key(path, names.softcap, format!("a soft cap must be finite and > 0, got {cap}")));
    }
    for rope in [Some(&config.rope), config.rope_sliding.as_ref()].into_iter().flatten() {
        check_rope(head_dim, rope).map_err(|reason| bad_key(path, names.rope, reason))?;
    }
    Ok(())
}

fn positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

fn check_rope(head_dim: usize, rope: &RopeConfig) -> Result<(), String> {
    let RopeConfig { base, rotary_dim, .. } = *rope;
    if !(base.is_finite() && base > 1.0) {
        return Err(format!("the RoPE base must be finite and > 1, got {base}"));
    }
    if rotary_dim < 2 || rotary_dim > head_dim || !rotary_dim.is_multiple_of(2) {
        return Err(format!("the rotary dimension must be even and from 2 to head_dim {head_dim}, got {rotary_dim}"));
    }
    check_scaling(&rope.scaling)?;
    let long = rope.long.as_ref().map(|long| &long.frequency_factors);
    for factors in [Some(&rope.frequency_factors), long].into_iter().flatten().filter(|factors| !factors.is_empty()) {
        if factors.len() != rotary_dim / 2 {
            return Err(format!("expected {} frequency factors, one per pair, got {}", rotary_dim / 2, factors.len()));
        }
        if let Some(factor) = factors.iter().find(|factor| !(1e-6..=1e6).contains(*factor)) {
            return Err(format!("a frequency factor must be from 1e-6 to 1e6, got {factor}"));
        }
    }
    match rope.attention_factor {
        Some(factor) if !positive(factor) => Err(format!("the attention factor must be finite and > 0, got {factor}")),
        _ => Ok(()),
    }
}

/// Checks the parameters of a context extension.
pub(super) fn check_scaling(scaling: &RopeScaling) -> Result<(), String> {
    let valid = match *scaling {
        RopeScaling::Linear(factor) | RopeScaling::Ntk(factor) => positive(factor),
        RopeScaling::Llama3 { factor, low, high, original } => {
            positive(factor) && positive(low) && positive(high) && high > low && original > 0
        }
        RopeScaling::Yarn { factor, fast, slow, original, .. } => positive(factor) && positive(slow) && fast > slow && original > 0,
        _ => true,
    };
    if valid { Ok(()) } else { Err(format!("invalid scaling parameters: {scaling:?}")) }
}
