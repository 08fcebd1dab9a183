//! Whether a configuration is one that can be.

use warpwave_kernels::RopeScaling;

use super::error::{Result, bad_key};
use crate::config::{Config, RopeConfig};

/// More of anything than this is a mistake, or an attempt to have memory taken.
const MOST: usize = 1 << 24;
/// More layers than any model has.
const LAYERS: usize = 4096;

/// Names of the keys of a file, for errors.
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
    pub cap: &'static str,
}

/// Layers, before anything is made of as many.
pub(super) fn layers(path: &str, key: &str, layers: usize) -> Result<usize> {
    if (1..=LAYERS).contains(&layers) { Ok(layers) } else { Err(bad_key(path, key, format!("{layers} is not from 1 to {LAYERS}"))) }
}

/// A number of elements, before anything is made of as many.
pub(super) fn count(path: &str, key: &str, count: usize) -> Result<usize> {
    if (1..=MOST).contains(&count) { Ok(count) } else { Err(bad_key(path, key, format!("{count} is not from 1 to {MOST}"))) }
}

/// Checks numbers against each other.
pub(super) fn config(path: &str, names: &Names, config: &Config) -> Result<()> {
    let counts = [
        (names.vocab, config.vocab),
        (names.hidden, config.hidden),
        (names.heads, config.heads),
        (names.kv_heads, config.kv_heads),
        (names.head_dim, config.head_dim),
        (names.feed_forward, config.feed_forward),
    ];
    for (key, number) in counts {
        count(path, key, number)?;
    }
    layers(path, names.layers, config.layers)?;
    if config.context == 0 || config.context > 1 << 31 {
        return Err(bad_key(path, names.context, format!("{} is not from 1 to 2³¹", config.context)));
    }
    let Config { heads, kv_heads, head_dim, .. } = *config;
    if !heads.is_multiple_of(kv_heads) {
        return Err(bad_key(path, names.heads, format!("{heads} heads cannot share {kv_heads} heads of keys")));
    }
    if heads.saturating_mul(head_dim) > MOST {
        return Err(bad_key(path, names.heads, format!("{heads} heads of {head_dim} elements are more than {MOST}")));
    }
    if !(config.norm_eps.is_finite() && config.norm_eps >= 0.0) {
        return Err(bad_key(path, names.norm_eps, format!("{} is no small number", config.norm_eps)));
    }
    if config.window == Some(0) {
        return Err(bad_key(path, names.window, "a window of no keys sees nothing"));
    }
    if !(config.score_scale.is_finite() && config.score_scale > 0.0) {
        return Err(bad_key(path, names.scale, format!("{} is no scale of scores", config.score_scale)));
    }
    if let Some(cap) = [config.score_cap, config.logit_cap].into_iter().flatten().find(|cap| !(cap.is_finite() && *cap > 0.0)) {
        return Err(bad_key(path, names.cap, format!("{cap} is no soft cap")));
    }
    for rope in [Some(&config.rope), config.rope_windowed.as_ref()].into_iter().flatten() {
        angles(head_dim, rope).map_err(|reason| bad_key(path, names.rope, reason))?;
    }
    Ok(())
}

fn angles(head_dim: usize, rope: &RopeConfig) -> Result<(), String> {
    let RopeConfig { base, rotated, .. } = *rope;
    if !(base.is_finite() && base > 1.0) {
        return Err(format!("{base} is no base of angles"));
    }
    if rotated < 2 || rotated > head_dim || !rotated.is_multiple_of(2) {
        return Err(format!("{rotated} elements of a head of {head_dim} cannot be turned in pairs"));
    }
    let good = |number: f64| number.is_finite() && number > 0.0;
    let scaling = match rope.scaling {
        RopeScaling::Linear(factor) | RopeScaling::Ntk(factor) => good(factor),
        RopeScaling::Llama3 { factor, low, high, original } => good(factor) && good(low) && high > low && original > 0,
        RopeScaling::Yarn { factor, fast, slow, original } => good(factor) && good(slow) && fast > slow && original > 0,
        _ => true,
    };
    if !scaling {
        return Err(format!("{:?} stretches nothing", rope.scaling));
    }
    let long = rope.long.as_ref().map(|long| &long.factors);
    for factors in [Some(&rope.factors), long].into_iter().flatten().filter(|factors| !factors.is_empty()) {
        if factors.len() != rotated / 2 {
            return Err(format!("{} factors are not one for each of {} pairs", factors.len(), rotated / 2));
        }
        if let Some(factor) = factors.iter().find(|factor| !(1e-6..=1e6).contains(*factor)) {
            return Err(format!("{factor} is no factor of a frequency"));
        }
    }
    if let Some(attention) = rope.attention.filter(|attention| !good(*attention)) {
        return Err(format!("{attention} is no factor of attention"));
    }
    Ok(())
}
