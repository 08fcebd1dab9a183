//! Reads the configuration of a Hugging Face folder.

use std::collections::HashSet;
use std::path::Path;

use serde_json::Value;
use warpwave_kernels::{Glu, RopePairs, RopeScaling};

use super::error::{Result, bad_key};
use super::json::{self, Keys};
use super::validate::{self, Names};
use crate::config::{Config, Family, LongRope, RopeConfig};

const NAMES: Names = Names {
    vocab: "vocab_size",
    hidden: "hidden_size",
    layers: "num_hidden_layers",
    heads: "num_attention_heads",
    kv_heads: "num_key_value_heads",
    head_dim: "head_dim",
    feed_forward: "intermediate_size",
    context: "max_position_embeddings",
    norm_eps: "rms_norm_eps",
    rope: "rope_parameters",
    window: "sliding_window",
    scale: "query_pre_attn_scalar",
    softcap: "attn_logit_softcapping / final_logit_softcapping",
};

/// A folder's configuration.
pub(super) struct FolderConfig {
    pub config: Config,
    /// Whether the output is tied to the embedding.
    pub tied: bool,
    /// Whether gate, up and down projections must have biases. Attention biases are used if the file has them.
    pub mlp_bias: bool,
}

/// Reads `config.json` and `generation_config.json`.
pub(super) fn config(folder: &Path) -> Result<FolderConfig> {
    let path = folder.join("config.json");
    let shown = path.display().to_string();
    let json = json::read(&path)?;
    let Value::Object(top) = &json else { return Err(bad_key(&shown, "file", "expected a JSON object")) };
    // Vision-language models keep the language model's keys in an object of their own.
    let text = top.get("text_config").and_then(Value::as_object);
    let keys = Keys::new(&shown, text.into_iter().chain([top]).collect());
    let family = family(&keys)?;
    let gemma = matches!(family, Family::Gemma2 | Family::Gemma3);
    // Gemma's files omit keys that have the family's default.
    let or = |key: &str, gemma2: usize, gemma3: usize| -> Result<usize> {
        let default = if family == Family::Gemma2 { Some(gemma2) } else { (family == Family::Gemma3).then_some(gemma3) };
        keys.need(key, keys.usize(key)?.or(default))
    };
    let layers = validate::layers(&shown, NAMES.layers, or(NAMES.layers, 26, 26)?)?;
    let (hidden, heads) = (or(NAMES.hidden, 2304, 2304)?, or(NAMES.heads, 8, 8)?);
    let kv_heads = match keys.usize(NAMES.kv_heads)? {
        Some(kv_heads) => kv_heads,
        None => {
            if gemma {
                4
            } else {
                heads
            }
        }
    };
    let head_dim = match keys.usize(NAMES.head_dim)? {
        Some(head_dim) => head_dim,
        None if gemma => 256,
        None if heads > 0 && hidden.is_multiple_of(heads) => hidden / heads,
        None => return Err(keys.bad(NAMES.heads, format!("the hidden size {hidden} is not a multiple of {heads} heads"))),
    };
    validate::size(&shown, NAMES.head_dim, head_dim)?;
    let context = or(NAMES.context, 8192, 131_072)?;
    let (sliding_window, sliding_layers) = windows(&keys, family, layers)?;
    let (rope, rope_sliding) = ropes(&keys, family, head_dim, context)?;
    let glu = if gemma { Glu::Gelu } else { Glu::Silu };
    activation(&keys, glu)?;
    if keys.get("num_local_experts").is_some_and(|value| value.as_bool() != Some(false)) {
        return Err(keys.bad("num_local_experts", "mixture-of-experts models are unsupported"));
    }
    let softcap = |key: &str, default: f64| -> Result<Option<f32>> {
        let default = (family == Family::Gemma2 && !keys.has(key)).then_some(default);
        Ok(keys.f64(key)?.or(default).map(|cap| cap as f32))
    };
    let scalar = if gemma { keys.f64(NAMES.scale)?.unwrap_or(256.0) } else { head_dim as f64 };
    let name = keys.str("_name_or_path")?.filter(|name| !name.is_empty()).map(str::to_owned);
    let config = Config {
        family,
        name: name.or_else(|| Some(folder.file_name()?.to_string_lossy().into_owned())),
        vocab: or(NAMES.vocab, 256_000, 262_208)?,
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        feed_forward: or(NAMES.feed_forward, 9216, 9216)?,
        context,
        norm_eps: keys.f64(NAMES.norm_eps)?.unwrap_or(if family == Family::Phi3 { 1e-5 } else { 1e-6 }) as f32,
        rope,
        rope_sliding,
        pairs: pairs(family),
        sliding_window,
        sliding_layers,
        attention_scale: (1.0 / scalar.sqrt()) as f32,
        attention_softcap: softcap("attn_logit_softcapping", 50.0)?,
        logit_softcap: softcap("final_logit_softcapping", 30.0)?,
        embedding_scale: embedding_scale(family, hidden),
        glu,
        bos: keys.ids("bos_token_id")?.first().copied(),
        eos: eos_tokens(folder, &keys)?,
    };
    validate::config(&shown, &NAMES, &config)?;
    let tied = keys.bool("tie_word_embeddings")?.unwrap_or(gemma);
    // Phi 3 has no such biases, whatever the key says.
    let mlp_bias = keys.bool("mlp_bias")?.unwrap_or(false) && family != Family::Phi3;
    Ok(FolderConfig { config, tied, mlp_bias })
}

/// Which elements of a head form a RoPE pair, in GGUF's row order.
pub(super) fn pairs(family: Family) -> RopePairs {
    if matches!(family, Family::Llama | Family::Mistral) { RopePairs::Interleaved } else { RopePairs::Halves }
}

/// The factor of the embeddings.
pub(super) fn embedding_scale(family: Family, hidden: usize) -> f32 {
    if matches!(family, Family::Gemma2 | Family::Gemma3) { (hidden as f64).sqrt() as f32 } else { 1.0 }
}

fn family(keys: &Keys<'_>) -> Result<Family> {
    let name = keys.need("model_type", keys.str("model_type")?)?;
    Ok(match name {
        "llama" => Family::Llama,
        "mistral" => Family::Mistral,
        "qwen2" => Family::Qwen2,
        "qwen3" => Family::Qwen3,
        "gemma2" => Family::Gemma2,
        "gemma3" | "gemma3_text" => Family::Gemma3,
        "phi3" => Family::Phi3,
        _ => {
            return Err(keys.bad(
                "model_type",
                format!("unsupported model type `{name}`; expected llama, mistral, qwen2, qwen3, gemma2, gemma3 or phi3"),
            ));
        }
    })
}

fn activation(keys: &Keys<'_>, glu: Glu) -> Result<()> {
    for key in ["hidden_activation", "hidden_act"] {
        let Some(name) = keys.str(key)? else { continue };
        let known = match glu {
            Glu::Gelu => ["gelu_pytorch_tanh", "gelu_tanh"].contains(&name),
            _ => ["silu", "swish"].contains(&name),
        };
        return if known { Ok(()) } else { Err(keys.bad(key, format!("unsupported activation `{name}` for this family"))) };
    }
    Ok(())
}

/// The sliding window, and which layers have it.
fn windows(keys: &Keys<'_>, family: Family, layers: usize) -> Result<(Option<usize>, Vec<bool>)> {
    let window = match keys.usize(NAMES.window)? {
        None if !keys.has(NAMES.window) && !matches!(family, Family::Llama | Family::Phi3) => Some(4096),
        window => window,
    };
    let used = match family {
        Family::Llama => false,
        Family::Qwen2 | Family::Qwen3 => keys.bool("use_sliding_window")?.unwrap_or(false),
        _ => true,
    };
    let Some(window) = window.filter(|_| used) else { return Ok((None, vec![false; layers])) };
    let sliding: Vec<bool> = if let Some(types) = keys.array("layer_types")? {
        if types.len() != layers {
            return Err(keys.bad("layer_types", format!("expected {layers} entries, one per layer, got {}", types.len())));
        }
        let is_sliding = |kind: &Value| match kind.as_str() {
            Some("sliding_attention") => Ok(true),
            Some("full_attention") => Ok(false),
            _ => Err(keys.bad("layer_types", format!("expected \"sliding_attention\" or \"full_attention\", got {kind}"))),
        };
        types.iter().map(is_sliding).collect::<Result<_>>()?
    } else {
        match family {
            Family::Qwen2 | Family::Qwen3 => {
                let first = keys.usize("max_window_layers")?.unwrap_or(28);
                (0..layers).map(|layer| layer >= first).collect()
            }
            Family::Gemma2 => (0..layers).map(|layer| layer % 2 == 0).collect(),
            Family::Gemma3 => {
                let given = keys.usize("sliding_window_pattern")?.or(keys.usize("_sliding_window_pattern")?);
                let period = given.unwrap_or(6);
                if period == 0 {
                    return Err(keys.bad("sliding_window_pattern", "must be at least 1, got 0"));
                }
                (1..=layers).map(|layer| !layer.is_multiple_of(period)).collect()
            }
            _ => vec![true; layers],
        }
    };
    Ok((sliding.contains(&true).then_some(window), sliding))
}

/// RoPE, and that of sliding-window layers.
fn ropes(keys: &Keys<'_>, family: Family, head_dim: usize, context: usize) -> Result<(RopeConfig, Option<RopeConfig>)> {
    let new = keys.object("rope_parameters")?;
    let flat = new.clone().or(keys.object("rope_scaling")?);
    let (full, local) = match &new {
        Some(new) => (new.object("full_attention")?, new.object("sliding_attention")?),
        None => (None, None),
    };
    let default = if family == Family::Gemma3 { 1e6 } else { 10_000.0 };
    let theta = keys.f64("rope_theta")?.unwrap_or(default);
    let rope = rope(keys, full.or(flat).as_ref(), theta, head_dim, context)?;
    let sliding = match (local, family) {
        (Some(local), _) => Some(self::rope(keys, Some(&local), 10_000.0, head_dim, context)?),
        (None, Family::Gemma3) => Some(self::rope(keys, None, keys.f64("rope_local_base_freq")?.unwrap_or(10_000.0), head_dim, context)?),
        _ => None,
    };
    Ok((rope, sliding))
}

/// RoPE of one set of parameters. `keys` are those of the whole file, where some files keep parameters of RoPE.
fn rope(keys: &Keys<'_>, parameters: Option<&Keys<'_>>, theta: f64, head_dim: usize, context: usize) -> Result<RopeConfig> {
    let part = match parameters {
        Some(parameters) => parameters.f64("partial_rotary_factor")?,
        None => None,
    };
    let part = part.or(keys.f64("partial_rotary_factor")?).unwrap_or(1.0);
    if !(part > 0.0 && part <= 1.0) {
        return Err(keys.bad("partial_rotary_factor", format!("must be > 0 and <= 1, got {part}")));
    }
    let mut rope = RopeConfig::plain(theta, (head_dim as f64 * part) as usize);
    let Some(own) = parameters else { return Ok(rope) };
    rope.base = own.f64("rope_theta")?.unwrap_or(theta);
    let kind = own.str("rope_type")?.or(own.str("type")?).unwrap_or("default");
    let original = own.usize("original_max_position_embeddings")?.or(keys.usize("original_max_position_embeddings")?);
    let factor = |default: Option<f64>| own.need("factor", own.f64("factor")?.or(default));
    match kind {
        // Dynamic scaling applies beyond the model's own context only.
        "default" | "dynamic" => (),
        "linear" => rope.scaling = RopeScaling::Linear(factor(None)?),
        "llama3" => {
            let (low, high) = (own.f64("low_freq_factor")?.unwrap_or(1.0), own.f64("high_freq_factor")?.unwrap_or(4.0));
            let scaling = RopeScaling::Llama3 { factor: factor(Some(8.0))?, low, high, original: original.unwrap_or(8192) };
            rope.frequency_factors = llama3_factors(scaling, &rope).map_err(|reason| own.bad("factor", reason))?;
        }
        "yarn" => {
            let original = original.unwrap_or(context);
            let factor = factor(Some(context as f64 / original as f64))?;
            let (fast, slow) = (own.f64("beta_fast")?.unwrap_or(32.0), own.f64("beta_slow")?.unwrap_or(1.0));
            rope.scaling = RopeScaling::Yarn { factor, fast, slow, original };
            rope.attention_factor = own.f64("attention_factor")?;
        }
        "longrope" | "su" => {
            let original = original.unwrap_or(context);
            rope.frequency_factors = own.need("short_factor", own.f32s("short_factor")?)?;
            let long = own.need("long_factor", own.f32s("long_factor")?)?;
            rope.long = Some(LongRope { original_context: original, frequency_factors: long });
            let scale = own.f64("factor")?.unwrap_or(context as f64 / original as f64);
            rope.attention_factor = Some(own.f64("attention_factor")?.unwrap_or(longrope_attention_factor(scale, original)));
        }
        _ => {
            let reason = format!("unsupported type `{kind}`; expected default, linear, dynamic, llama3, yarn or longrope");
            return Err(own.bad("rope_type", reason));
        }
    }
    Ok(rope)
}

/// LongRoPE's factor of cosine and sine for a context extended by `scale`.
pub(super) fn longrope_attention_factor(scale: f64, original: usize) -> f64 {
    // Rounded to `f32`, which is what files store.
    if scale > 1.0 { f64::from((1.0 + scale.ln() / (original as f64).ln()).sqrt() as f32) } else { 1.0 }
}

/// Llama 3's scaling as frequency factors, as GGUF files store it.
fn llama3_factors(scaling: RopeScaling, rope: &RopeConfig) -> Result<Vec<f32>, String> {
    let RopeScaling::Llama3 { factor, low, high, original } = scaling else { return Ok(Vec::new()) };
    validate::check_scaling(&scaling)?;
    if rope.base <= 1.0 || rope.base.is_nan() {
        return Err(format!("the RoPE base must be > 1, got {}", rope.base));
    }
    let frequencies = (0..rope.rotary_dim / 2).map(|pair| rope.base.powf(-2.0 * pair as f64 / rope.rotary_dim as f64));
    let factor = |frequency: f64| {
        let times = original as f64 * frequency / std::f64::consts::TAU;
        let kept = ((times - low) / (high - low)).clamp(0.0, 1.0);
        (1.0 / (kept + (1.0 - kept) / factor)) as f32
    };
    Ok(frequencies.map(factor).collect())
}

/// The end-of-sequence tokens of both files.
fn eos_tokens(folder: &Path, keys: &Keys<'_>) -> Result<Vec<u32>> {
    let mut eos = keys.ids("eos_token_id")?;
    let path = folder.join("generation_config.json");
    if path.is_file() {
        let (shown, json) = (path.display().to_string(), json::read(&path)?);
        eos.extend(Keys::new(&shown, json.as_object().into_iter().collect()).ids("eos_token_id")?);
    }
    let mut seen = HashSet::new();
    eos.retain(|id| seen.insert(*id));
    Ok(eos)
}
