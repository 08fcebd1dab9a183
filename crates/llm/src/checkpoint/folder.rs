//! Reads the configuration of a Hugging Face folder.

use std::collections::HashSet;
use std::path::Path;

use serde_json::Value;
use warpwave_kernels::{ExpertScore, Glu, RopeScaling, Routing};

use super::error::{Result, bad_key};
use super::family::Traits;
use super::json::{self, Keys};
use super::packed::Packing;
use super::tensors::Forms;
use super::validate::{self, Names};
use crate::config::{Config, Family, LongRope, MlaConfig, MoeConfig, RopeConfig};

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
    factors: "embedding_multiplier / residual_multiplier / logits_scaling",
    experts: "num_experts",
    q_lora: "q_lora_rank",
    kv_lora: "kv_lora_rank",
    value_dim: "v_head_dim",
    expert_feed_forward: "moe_intermediate_size",
    shared_feed_forward: "shared_expert_intermediate_size",
};

/// Names of the norms' epsilon: each family has one of them.
const NORM_EPS: [&str; 4] = ["rms_norm_eps", "layer_norm_eps", "norm_epsilon", "layer_norm_epsilon"];

/// Keys that change what a model computes, and the value that changes nothing. Other values are refused, except in families that read them.
const NEUTRAL: [(&str, &str, &[Family]); 10] = [
    ("swiglu_limit", "7.0", &[]),
    ("alibi", "false", &[]),
    ("qk_layernorm", "false", &[]),
    ("use_qk_norm", "false", &[]),
    ("clip_qkv", "null", &[]),
    ("logit_scale", "1.0", &[]),
    ("embedding_multiplier", "1.0", &[Family::Granite]),
    ("attention_multiplier", "1.0", &[Family::Granite]),
    ("residual_multiplier", "1.0", &[Family::Granite]),
    ("logits_scaling", "1.0", &[Family::Granite]),
];

/// A folder's configuration.
pub(super) struct FolderConfig {
    pub config: Config,
    pub forms: Forms,
    /// Whether gate, up and down projections must have biases. Attention biases are used if the file has them.
    pub mlp_bias: bool,
    /// How matrices are packed, if they are.
    pub packing: Option<Packing>,
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
    let traits = traits(&keys)?;
    let family = traits.family;
    neutral(&keys, family)?;
    let new_gemma = matches!(family, Family::Gemma2 | Family::Gemma3);
    // Gemma's files omit keys that have the family's default.
    let or = |key: &str, gemma2: usize, gemma3: usize| -> Result<usize> {
        let default = if family == Family::Gemma2 { Some(gemma2) } else { (family == Family::Gemma3).then_some(gemma3) };
        keys.need(key, keys.usize(key)?.or(default))
    };
    let layers = validate::layers(&shown, NAMES.layers, or(NAMES.layers, 26, 26)?)?;
    let (hidden, heads) = (or(NAMES.hidden, 2304, 2304)?, or(NAMES.heads, 8, 8)?);
    let kv_heads = match kv_heads(&keys, family)? {
        Some(kv_heads) => kv_heads,
        None => {
            if new_gemma {
                4
            } else {
                heads
            }
        }
    };
    let mla = if family == Family::Deepseek { Some(latent_attention(&keys)?) } else { None };
    let head_dim = match keys.usize(NAMES.head_dim)? {
        // Of latent attention this key is the rotated part.
        _ if mla.is_some() => {
            let [keys, rotated] = ["qk_nope_head_dim", "qk_rope_head_dim"].map(|key| keys.need(key, keys.usize(key)?));
            keys?.saturating_add(rotated?)
        }
        Some(head_dim) => head_dim,
        None if traits.gemma => 256,
        None if heads > 0 && hidden.is_multiple_of(heads) => hidden / heads,
        None => return Err(keys.bad(NAMES.heads, format!("the hidden size {hidden} is not divisible by the number of heads, {heads}"))),
    };
    validate::size(&shown, NAMES.head_dim, head_dim)?;
    // Falcon's files omit keys that have the family's default.
    let falcon = |value: usize| (family == Family::Falcon).then_some(value);
    let context = match falcon(2048) {
        Some(default) => keys.usize(NAMES.context)?.unwrap_or(default),
        None => or(NAMES.context, 8192, 131_072)?,
    };
    let feed_forward = match falcon(hidden.saturating_mul(4)) {
        Some(default) => keys.usize("ffn_hidden_size")?.unwrap_or(default),
        None => or(NAMES.feed_forward, 9216, 9216)?,
    };
    let (sliding_window, sliding_layers) = windows(&keys, traits, layers)?;
    let rotated = if mla.is_some() { keys.usize("qk_rope_head_dim")? } else { None };
    let (rope, rope_sliding) = ropes(&keys, traits, rotated.unwrap_or(head_dim), context)?;
    activation(&keys, traits)?;
    let softcap = |key: &str, default: f64| -> Result<Option<f32>> {
        let default = (family == Family::Gemma2 && !keys.has(key)).then_some(default);
        Ok(keys.f64(key)?.or(default).map(|cap| cap as f32))
    };
    let factor = |key: &str| -> Result<f64> { Ok(keys.f64(key)?.filter(|_| family == Family::Granite).unwrap_or(1.0)) };
    let attention_scale = match family {
        Family::Granite => factor("attention_multiplier")?,
        _ if new_gemma => 1.0 / keys.f64(NAMES.scale)?.unwrap_or(256.0).sqrt(),
        Family::Deepseek => yarn_score_scale(&keys)? / (head_dim as f64).sqrt(),
        _ => 1.0 / (head_dim as f64).sqrt(),
    };
    let norm_eps = NORM_EPS.into_iter().find_map(|key| keys.f64(key).transpose()).transpose()?;
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
        feed_forward,
        context,
        norm: traits.norm,
        norm_eps: norm_eps.unwrap_or(traits.norm_eps) as f32,
        parallel: parallel(&keys, traits)?,
        rope,
        rope_sliding,
        pairs: traits.pairs,
        sliding_window,
        sliding_layers,
        attention_scale: attention_scale as f32,
        attention_softcap: softcap("attn_logit_softcapping", 50.0)?,
        logit_softcap: softcap("final_logit_softcapping", 30.0)?,
        embedding_scale: (traits.embedding_scale(hidden) * factor("embedding_multiplier")?) as f32,
        residual_scale: factor("residual_multiplier")? as f32,
        logit_scale: (1.0 / factor("logits_scaling")?) as f32,
        glu: traits.glu,
        gated: traits.gated,
        mla,
        moe: moe(&keys, traits, layers)?,
        bos: keys.ids("bos_token_id")?.first().copied(),
        eos: eos_tokens(folder, &keys)?,
    };
    validate::config(&shown, &NAMES, &config)?;
    let tied = keys.bool("tie_word_embeddings")?.unwrap_or(traits.tied);
    let mut forms = Forms::of_config(&config, Some(tied));
    let packing = quantization(&keys, family, &mut forms)?;
    if family == Family::Falcon && config.parallel {
        let new = keys.bool("new_decoder_architecture")?.unwrap_or(false);
        forms.two_norms = new && keys.usize("num_ln_in_parallel_attn")?.unwrap_or(2) == 2;
    }
    // Phi 3 has no such biases, whatever the key says.
    let mlp_bias = keys.bool("mlp_bias")?.unwrap_or(false) && family != Family::Phi3;
    Ok(FolderConfig { config, forms, mlp_bias, packing })
}

fn traits(keys: &Keys<'_>) -> Result<&'static Traits> {
    let name = keys.need("model_type", keys.str("model_type")?)?;
    Traits::of_model_type(name)
        .ok_or_else(|| keys.bad("model_type", format!("unsupported model type `{name}`; expected {}", Traits::model_types())))
}

/// Fails for keys of features that are not supported.
fn neutral(keys: &Keys<'_>, family: Family) -> Result<()> {
    for (key, value, readers) in NEUTRAL {
        let Some(found) = keys.get(key).filter(|_| !readers.contains(&family)) else { continue };
        let text = found.to_string();
        let same = found.as_f64().map_or_else(|| text == value, |found| value.parse() == Ok(found));
        if !same {
            return Err(keys.bad(key, format!("unsupported value {found}; expected {value}")));
        }
    }
    Ok(())
}

/// How a quantized folder's matrices are packed. MXFP4 is a form of gpt-oss's experts.
fn quantization(keys: &Keys<'_>, family: Family, forms: &mut Forms) -> Result<Option<Packing>> {
    let Some(own) = keys.object("quantization_config")? else { return Ok(None) };
    let found = own.str("quant_method")?.unwrap_or("none");
    if found == "mxfp4" && family == Family::GptOss {
        forms.mxfp4 = true;
        return Ok(None);
    }
    match Packing::of_config(&own, found)? {
        Some(packing) => Ok(Some(packing)),
        None => Err(own.bad(
            "quant_method",
            format!("unsupported method {found}; expected fp8, gptq or awq, a model that is not quantized, or a GGUF file"),
        )),
    }
}

/// The number of KV heads, if the file says it.
fn kv_heads(keys: &Keys<'_>, family: Family) -> Result<Option<usize>> {
    match family {
        Family::Falcon => {}
        // Keys and values are expanded for all heads.
        Family::Deepseek => return Ok(None),
        _ => return keys.usize(NAMES.kv_heads),
    }
    let new = keys.bool("new_decoder_architecture")?.unwrap_or(false);
    if !new && keys.bool("multi_query")?.unwrap_or(true) { Ok(Some(1)) } else { keys.usize("num_kv_heads") }
}

/// Names of the number of experts.
const EXPERTS: [&str; 3] = ["num_local_experts", "num_experts", "n_routed_experts"];

/// The experts.
fn moe(keys: &Keys<'_>, traits: &Traits, layers: usize) -> Result<Option<MoeConfig>> {
    let key = EXPERTS.into_iter().find(|key| keys.get(key).is_some_and(|value| value.as_bool() != Some(false)));
    let Some(mut routing) = traits.routing else {
        return match key {
            Some(key) => Err(keys.bad(key, "mixture-of-experts models of this family are unsupported")),
            None => Ok(None),
        };
    };
    let key = key.unwrap_or(NAMES.experts);
    let experts = keys.need(key, keys.usize(key)?)?;
    let used = "num_experts_per_tok";
    routing.used = keys.need(used, keys.usize(used)?)?;
    routing.normalize = keys.bool("norm_topk_prob")?.unwrap_or(routing.normalize);
    if let ExpertScore::SparseMixer { epsilon } = &mut routing.score {
        *epsilon = keys.f64("router_jitter_noise")?.map_or(*epsilon, |noise| noise as f32);
    }
    if traits.family == Family::Deepseek {
        deepseek_routing(keys, &mut routing)?;
    }
    let leading = keys.usize("first_k_dense_replace")?.filter(|_| traits.family == Family::Deepseek).unwrap_or(0);
    let dense: Vec<usize> = match keys.array("mlp_only_layers")? {
        Some(layers) => layers.iter().filter_map(|layer| usize::try_from(layer.as_u64()?).ok()).collect(),
        None => Vec::new(),
    };
    let step = keys.usize("decoder_sparse_step")?.unwrap_or(1);
    let sparse = |layer: usize| layer >= leading && !dense.contains(&layer) && step > 0 && (layer + 1).is_multiple_of(step);
    let feed_forward = match keys.usize(NAMES.expert_feed_forward)? {
        Some(feed_forward) => feed_forward,
        None => keys.need(NAMES.feed_forward, keys.usize(NAMES.feed_forward)?)?,
    };
    let shared_feed_forward = match traits.family {
        Family::Deepseek => keys.usize("n_shared_experts")?.unwrap_or(0).saturating_mul(feed_forward),
        _ if traits.gated_shared => keys.usize(NAMES.shared_feed_forward)?.unwrap_or(0),
        _ => 0,
    };
    Ok(Some(MoeConfig { experts, feed_forward, shared_feed_forward, routing, sparse_layers: (0..layers).map(sparse).collect() }))
}

/// DeepSeek's routing. Version 2 chooses by softmax, version 3 by sigmoid with a bias.
fn deepseek_routing(keys: &Keys<'_>, routing: &mut Routing) -> Result<()> {
    let third = keys.str("model_type")? == Some("deepseek_v3");
    let expect = |key: &str, expected: &[&str]| match keys.str(key)? {
        Some(found) if !expected.contains(&found) => {
            Err(keys.bad(key, format!("unsupported value `{found}`; expected {}", expected.join(" or "))))
        }
        found => Ok(found),
    };
    let score = expect("scoring_func", if third { &["sigmoid"] } else { &["softmax"] })?;
    let method = expect("topk_method", if third { &["noaux_tc"] } else { &["greedy", "group_limited_greedy"] })?;
    debug_assert!(score.is_none_or(|score| (score == "sigmoid") == third));
    if third {
        routing.score = ExpertScore::Sigmoid;
        routing.group_sum_of_two = true;
        routing.normalize = keys.bool("norm_topk_prob")?.unwrap_or(true);
    } else if routing.normalize {
        return Err(keys.bad("norm_topk_prob", "unsupported value true; expected false"));
    }
    if third || method == Some("group_limited_greedy") {
        routing.groups = keys.usize("n_group")?.unwrap_or(1);
        routing.used_groups = keys.usize("topk_group")?.unwrap_or(1);
    }
    routing.scale = keys.f64("routed_scaling_factor")?.unwrap_or(1.0) as f32;
    match keys.usize("moe_layer_freq")? {
        None | Some(1) => Ok(()),
        Some(other) => Err(keys.bad("moe_layer_freq", format!("unsupported value {other}; expected 1"))),
    }
}

/// The sizes of latent attention.
fn latent_attention(keys: &Keys<'_>) -> Result<MlaConfig> {
    if keys.bool("attention_bias")? == Some(true) {
        return Err(keys.bad("attention_bias", "unsupported value true; expected false"));
    }
    if keys.bool("rope_interleave")? == Some(false) {
        return Err(keys.bad("rope_interleave", "unsupported value false; expected true"));
    }
    let need = |key: &str| keys.need(key, keys.usize(key)?);
    Ok(MlaConfig { q_lora: keys.usize(NAMES.q_lora)?, kv_lora: need(NAMES.kv_lora)?, value_dim: need(NAMES.value_dim)? })
}

/// The factor of the scores that DeepSeek's YaRN has.
fn yarn_score_scale(keys: &Keys<'_>) -> Result<f64> {
    let Some(own) = keys.object("rope_parameters")?.or(keys.object("rope_scaling")?) else { return Ok(1.0) };
    let all = own.f64("mscale_all_dim")?.unwrap_or(0.0);
    let factor = own.f64("factor")?.filter(|factor| *factor > 1.0).unwrap_or(1.0);
    Ok((0.1 * all * factor.ln() + 1.0).powi(2))
}

/// Whether attention and feed-forward are parallel.
fn parallel(keys: &Keys<'_>, traits: &Traits) -> Result<bool> {
    let key = match traits.family {
        Family::Falcon if keys.bool("new_decoder_architecture")?.unwrap_or(false) => return Ok(true),
        Family::Falcon => "parallel_attn",
        Family::StableLm | Family::GptNeox => "use_parallel_residual",
        _ => return Ok(traits.parallel),
    };
    Ok(keys.bool(key)?.unwrap_or(traits.parallel))
}

fn activation(keys: &Keys<'_>, traits: &Traits) -> Result<()> {
    for key in ["hidden_activation", "hidden_act", "activation", "activation_function"] {
        let Some(name) = keys.str(key)? else { continue };
        let known: &[&str] = match traits.glu {
            // Gemma 1 uses the approximation, whatever the older key says.
            Glu::Gelu if traits.family == Family::Gemma && key == "hidden_act" => &["gelu", "gelu_pytorch_tanh"],
            Glu::Gelu => &["gelu_pytorch_tanh", "gelu_tanh", "gelu_new", "gelu_fast"],
            Glu::GeluErf => &["gelu"],
            // gpt-oss's own variant has no name.
            _ => &["silu", "swish"],
        };
        return if known.contains(&name) { Ok(()) } else { Err(keys.bad(key, format!("unsupported activation `{name}` for this family"))) };
    }
    Ok(())
}

/// The sliding window, and which layers have it.
fn windows(keys: &Keys<'_>, traits: &Traits, layers: usize) -> Result<(Option<usize>, Vec<bool>)> {
    let family = traits.family;
    let window = match keys.usize(NAMES.window)? {
        None if !keys.has(NAMES.window) => traits.window.flatten(),
        window => window,
    };
    let used = match family {
        Family::Qwen2 | Family::Qwen3 | Family::Qwen2Moe | Family::Qwen3Moe => keys.bool("use_sliding_window")?.unwrap_or(false),
        _ => traits.window.is_some(),
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
            Family::Qwen2 | Family::Qwen3 | Family::Qwen2Moe | Family::Qwen3Moe => {
                let first = keys.usize("max_window_layers")?.unwrap_or(28);
                (0..layers).map(|layer| layer >= first).collect()
            }
            Family::Gemma2 | Family::GptOss => (0..layers).map(|layer| layer % 2 == 0).collect(),
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
fn ropes(keys: &Keys<'_>, traits: &Traits, head_dim: usize, context: usize) -> Result<(RopeConfig, Option<RopeConfig>)> {
    let family = traits.family;
    let new = keys.object("rope_parameters")?;
    let flat = new.clone().or(keys.object("rope_scaling")?);
    let (full, local) = match &new {
        Some(new) => (new.object("full_attention")?, new.object("sliding_attention")?),
        None => (None, None),
    };
    let default = if family == Family::Gemma3 { 1e6 } else { 10_000.0 };
    let theta = keys.f64("rope_theta")?.or(keys.f64("rotary_emb_base")?).unwrap_or(default);
    let part = keys.f64("partial_rotary_factor")?.or(keys.f64("rotary_pct")?).unwrap_or(traits.partial_rotary);
    let head = Head { dim: head_dim, rotated: part, context, truncate_yarn: true };
    let rope = rope(keys, full.or(flat).as_ref(), theta, &head)?;
    let sliding = match (local, family) {
        (Some(local), _) => Some(self::rope(keys, Some(&local), 10_000.0, &head)?),
        (None, Family::Gemma3) => Some(self::rope(keys, None, keys.f64("rope_local_base_freq")?.unwrap_or(10_000.0), &head)?),
        _ => None,
    };
    Ok((rope, sliding))
}

/// What RoPE parameters refer to.
struct Head {
    dim: usize,
    /// The rotated part, where the parameters do not say.
    rotated: f64,
    context: usize,
    /// Whether YaRN rounds, where the parameters do not say.
    truncate_yarn: bool,
}

/// RoPE of one set of parameters. `keys` are those of the whole file, where some files keep parameters of RoPE.
fn rope(keys: &Keys<'_>, parameters: Option<&Keys<'_>>, theta: f64, head: &Head) -> Result<RopeConfig> {
    let Head { dim: head_dim, rotated, context, .. } = *head;
    let part = match parameters {
        Some(parameters) => parameters.f64("partial_rotary_factor")?,
        None => None,
    };
    let part = part.unwrap_or(rotated);
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
            let truncate = own.bool("truncate")?.unwrap_or(head.truncate_yarn);
            rope.scaling = RopeScaling::Yarn { factor, fast, slow, original, truncate };
            let mscale = |scale: f64| if factor > 1.0 { 0.1 * scale * factor.ln() + 1.0 } else { 1.0 };
            let mscales = own.f64("mscale")?.zip(own.f64("mscale_all_dim")?).filter(|(mscale, all)| *mscale != 0.0 && *all != 0.0);
            rope.attention_factor = own.f64("attention_factor")?.or(mscales.map(|(one, all)| mscale(one) / mscale(all)));
        }
        "longrope" | "su" => {
            let original = original.unwrap_or(context);
            rope.frequency_factors = own.need("short_factor", own.f32s("short_factor")?)?;
            let long = own.need("long_factor", own.f32s("long_factor")?)?;
            rope.long = Some(LongRope { original_context: original, frequency_factors: long });
            let scale = own.f64("factor")?.unwrap_or(context as f64 / original as f64);
            // Phi-MoE gives the factors of short and long contexts.
            let mscales = (own.f64("short_mscale")?, own.f64("long_mscale")?);
            if mscales.0 != mscales.1 {
                return Err(own.bad("long_mscale", "must equal short_mscale; other values are unsupported"));
            }
            rope.attention_factor = Some(own.f64("attention_factor")?.or(mscales.0).unwrap_or(longrope_attention_factor(scale, original)));
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
