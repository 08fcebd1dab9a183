//! Reads and writes the configuration of a GGUF file.

use std::borrow::Cow;
use std::collections::HashSet;

use warpwave_kernels::{DType, ExpertScore, RopeScaling, Routing};
use warpwave_weights::{Array, Gguf, Kind, Value};

use super::convert::to_f32;
use super::error::{Result, bad_key, bad_tensor};
use super::family::Traits;
use super::folder::longrope_attention_factor;
use super::validate::{self, Names};
use crate::config::{Config, Family, LongRope, MlaConfig, MoeConfig, NormKind, RopeConfig};

const NAMES: Names = Names {
    vocab: "token_embd.weight",
    hidden: "embedding_length",
    layers: "block_count",
    heads: "attention.head_count",
    kv_heads: "attention.head_count_kv",
    head_dim: "attention.key_length",
    feed_forward: "feed_forward_length",
    context: "context_length",
    norm_eps: "attention.layer_norm_rms_epsilon",
    rope: "rope",
    window: "attention.sliding_window",
    scale: "attention.scale",
    softcap: "attn_logit_softcapping / final_logit_softcapping",
    factors: "embedding_scale / residual_scale / logit_scale",
    experts: "expert_count",
    q_lora: "attention.q_lora_rank",
    kv_lora: "attention.kv_lora_rank",
    value_dim: "attention.value_length",
    expert_feed_forward: "expert_feed_forward_length",
    shared_feed_forward: "expert_shared_feed_forward_length",
};

/// The norms' epsilon: each kind of norm has its key.
const LAYER_NORM_EPS: &str = "attention.layer_norm_epsilon";
const PARALLEL: &str = "use_parallel_residual";
const USED_EXPERTS: &str = "expert_used_count";
const NORMALIZE: &str = "expert_weights_norm";
const EXPERT_SCALE: &str = "expert_weights_scale";
/// 1: softmax, 2: sigmoid.
const GATING: &str = "expert_gating_func";
const GROUPS: &str = "expert_group_count";
const USED_GROUPS: &str = "expert_group_used_count";
const SHARED_EXPERTS: &str = "expert_shared_count";
const DENSE_LAYERS: &str = "leading_dense_block_count";
/// A tenth of `mscale_all_dim`.
const YARN_MULTIPLIER: &str = "rope.scaling.yarn_log_multiplier";
/// The tolerance of the sparse mixer: this crate's own key.
const JITTER_KEY: &str = "warpwave.router_jitter_noise";

/// Tensors with RoPE frequency factors: for all contexts, for short and for long ones.
pub(super) const FACTORS: [&str; 3] = ["rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"];
/// All end-of-sequence tokens; the standard keys hold three.
const EOS_KEY: &str = "warpwave.eos_token_ids";
/// End-of-sequence tokens by their text, for files that name only one by id.
const EOS_TEXTS: [&str; 8] =
    ["<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|end_of_turn|>"];

/// Typed access to the keys of an architecture.
struct Keys<'a> {
    file: &'a Gguf,
    architecture: &'a str,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn usize(&self, key: &str) -> Result<Option<usize>> {
        Ok(self.file.get_u64(&self.name(key))?.map(|number| usize::try_from(number).unwrap_or(usize::MAX)))
    }

    fn need(&self, key: &str) -> Result<usize> {
        self.usize(key)?.ok_or_else(|| bad_key(self.file.path(), &self.name(key), "missing key"))
    }

    fn f32(&self, key: &str) -> Result<Option<f32>> {
        Ok(self.file.get_f32(&self.name(key))?)
    }
}

/// Reads the architecture.
pub(super) fn config(file: &Gguf) -> Result<Config> {
    let architecture = file.need_str("general.architecture")?;
    let keys = Keys { file, architecture };
    let window = keys.usize(NAMES.window)?;
    let traits = Traits::of_architecture(architecture).ok_or_else(|| {
        let reason = format!("unsupported architecture `{architecture}`; expected {}", Traits::architectures());
        bad_key(file.path(), "general.architecture", reason)
    })?;
    // Several families may have one architecture.
    let family = match traits.family {
        Family::Llama if keys.usize(NAMES.experts)?.is_some_and(|experts| experts > 0) => Family::Mixtral,
        Family::Llama if window.is_some_and(|window| window > 0) => Family::Mistral,
        family => family,
    };
    let traits = Traits::of(family);
    let embedding = file.tensor("token_embd.weight").ok_or_else(|| bad_tensor(file.path(), "token_embd.weight", "missing"))?;
    let layers = validate::layers(file.path(), &keys.name(NAMES.layers), keys.need(NAMES.layers)?)?;
    let (hidden, heads) = (keys.need(NAMES.hidden)?, keys.need(NAMES.heads)?);
    // Newer files of latent attention state the sizes of the cached vectors instead, and those of heads by keys of their own.
    let [key_length, value_length] = [NAMES.head_dim, NAMES.value_dim].map(|key| match keys.usize(&format!("{key}_mla")) {
        Ok(None) => keys.usize(key),
        found => found,
    });
    let (head_dim, value_dim) = (key_length?, value_length?);
    let head_dim = match head_dim {
        Some(head_dim) => head_dim,
        None if heads > 0 && hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            let reason = format!("the hidden size {hidden} is not divisible by the number of heads, {heads}");
            return Err(bad_key(file.path(), &keys.name(NAMES.heads), reason));
        }
    };
    let mla = match keys.usize(NAMES.kv_lora)?.filter(|_| traits.family == Family::Deepseek) {
        Some(kv_lora) => {
            let value_dim = value_dim.ok_or_else(|| bad_key(file.path(), &keys.name(NAMES.value_dim), "missing key"))?;
            Some(MlaConfig { q_lora: keys.usize(NAMES.q_lora)?.filter(|size| *size > 0), kv_lora, value_dim })
        }
        None if traits.family == Family::Deepseek => return Err(bad_key(file.path(), &keys.name(NAMES.kv_lora), "missing key")),
        None => None,
    };
    if let Some(values) = value_dim.filter(|values| *values != head_dim && mla.is_none()) {
        let reason = format!("must equal attention.key_length {head_dim}, got {values}");
        return Err(bad_key(file.path(), &keys.name("attention.value_length"), reason));
    }
    let context = keys.need(NAMES.context)?;
    let (sliding_window, sliding_layers) = windows(&keys, family, window, layers)?;
    let mut rope = rope(&keys, head_dim, context)?;
    let mut attention_scale = attention_scale(family, layers, hidden, heads, head_dim);
    if let (RopeScaling::Yarn { factor, .. }, Family::Deepseek) = (rope.scaling, family) {
        // The factor of YaRN is that of the scores instead.
        rope.attention_factor = rope.attention_factor.or(Some(1.0));
        let multiplier = keys.f32(YARN_MULTIPLIER)?.unwrap_or(0.0);
        attention_scale *= (1.0 + f64::from(multiplier) * factor.ln()).powi(2) as f32;
    }
    let rope_sliding = match (keys.f32("rope.freq_base_swa")?, family) {
        (Some(base), _) => Some(RopeConfig::plain(base.into(), rope.rotary_dim)),
        (None, Family::Gemma3) => Some(RopeConfig::plain(10_000.0, rope.rotary_dim)),
        _ => None,
    };
    let softcap = |key: &str, default: f32| -> Result<Option<f32>> {
        let given = keys.f32(key)?.or((family == Family::Gemma2).then_some(default));
        Ok(given.filter(|cap| *cap != 0.0))
    };
    let eps_key = norm_eps_key(family, traits.norm);
    // Of StableLM, llama.cpp's files say it by their tensors.
    let by_tensors = if family == Family::StableLm { file.tensor("blk.0.ffn_norm.weight").is_none() } else { traits.parallel };
    let parallel = file.get_bool(&keys.name(PARALLEL))?.filter(|_| family == Family::GptNeox).unwrap_or(by_tensors);
    let factor = |key: &str| -> Result<Option<f32>> { Ok(keys.f32(key)?.filter(|_| family == Family::Granite)) };
    let config = Config {
        family,
        name: file.get_str("general.name")?.map(str::to_owned),
        vocab: embedding.shape.first().copied().unwrap_or(0),
        hidden,
        layers,
        heads,
        kv_heads: if mla.is_some() { heads } else { keys.usize(NAMES.kv_heads)?.unwrap_or(heads) },
        head_dim,
        feed_forward: keys.need(NAMES.feed_forward)?,
        context,
        norm: traits.norm,
        norm_eps: keys.f32(eps_key)?.ok_or_else(|| bad_key(file.path(), &keys.name(eps_key), "missing key"))?,
        parallel,
        rope,
        rope_sliding,
        pairs: traits.pairs,
        sliding_window,
        sliding_layers,
        attention_scale: match keys.f32(NAMES.scale)? {
            Some(scale) => scale,
            None => attention_scale,
        },
        attention_softcap: softcap("attn_logit_softcapping", 50.0)?,
        logit_softcap: softcap("final_logit_softcapping", 30.0)?,
        embedding_scale: factor("embedding_scale")?.unwrap_or(traits.embedding_scale(hidden) as f32),
        residual_scale: factor("residual_scale")?.unwrap_or(1.0),
        logit_scale: factor("logit_scale")?.map_or(1.0, |divisor| 1.0 / divisor),
        glu: traits.glu,
        gated: traits.gated,
        mla,
        moe: moe(&keys, traits, layers)?,
        bos: id(file, "tokenizer.ggml.bos_token_id")?,
        eos: eos_tokens(file)?,
    };
    validate::config(file.path(), &NAMES, &config)?;
    Ok(config)
}

/// The experts.
fn moe(keys: &Keys<'_>, traits: &Traits, layers: usize) -> Result<Option<MoeConfig>> {
    let bad = |key: &str, reason: String| bad_key(keys.file.path(), &keys.name(key), reason);
    let experts = keys.usize(NAMES.experts)?.unwrap_or(0);
    let Some(mut routing) = traits.routing else {
        return if experts == 0 { Ok(None) } else { Err(bad(NAMES.experts, format!("{experts} experts are unsupported in this family"))) };
    };
    let used = keys.usize(USED_EXPERTS)?;
    routing.used = used.ok_or_else(|| bad(NAMES.experts, format!("{experts} experts, but `{}` is missing", keys.name(USED_EXPERTS))))?;
    if let Some(normalize) = keys.file.get_bool(&keys.name(NORMALIZE))? {
        routing.normalize = normalize;
    }
    routing.scale = keys.f32(EXPERT_SCALE)?.filter(|scale| *scale != 0.0).unwrap_or(routing.scale);
    if let ExpertScore::SparseMixer { epsilon } = &mut routing.score {
        *epsilon = keys.file.get_f32(JITTER_KEY)?.unwrap_or(*epsilon);
    }
    match keys.usize(GATING)? {
        None | Some(0 | 1) => {}
        Some(2) => routing = Routing { score: ExpertScore::Sigmoid, group_sum_of_two: true, ..routing },
        Some(other) => return Err(bad(GATING, format!("unsupported value {other}; expected 1 (softmax) or 2 (sigmoid)"))),
    }
    routing.groups = keys.usize(GROUPS)?.unwrap_or(1).max(1);
    routing.used_groups = keys.usize(USED_GROUPS)?.unwrap_or(1).max(1);
    let feed_forward = match keys.usize(NAMES.expert_feed_forward)? {
        Some(feed_forward) => feed_forward,
        None => keys.need(NAMES.feed_forward)?,
    };
    let router = |layer: usize| keys.file.tensor(&format!("blk.{layer}.ffn_gate_inp.weight")).is_some();
    let shared_feed_forward = match keys.usize(NAMES.shared_feed_forward)? {
        Some(size) => size,
        None => keys.usize(SHARED_EXPERTS)?.unwrap_or(0).saturating_mul(feed_forward),
    };
    Ok(Some(MoeConfig { experts, feed_forward, shared_feed_forward, routing, sparse_layers: (0..layers).map(router).collect() }))
}

fn norm_eps_key(family: Family, norm: NormKind) -> &'static str {
    match norm {
        NormKind::Layer if family != Family::PhiMoe => LAYER_NORM_EPS,
        _ => NAMES.norm_eps,
    }
}

/// The attention scale where the file has none. The largest Gemma models do not use head_dim.
fn attention_scale(family: Family, layers: usize, hidden: usize, heads: usize, head_dim: usize) -> f32 {
    let largest = matches!((family, layers), (Family::Gemma2, 46) | (Family::Gemma3, 62));
    let size = if largest && heads > 0 { hidden / heads } else { head_dim };
    (1.0 / (size as f64).sqrt()) as f32
}

fn id(file: &Gguf, key: &str) -> Result<Option<u32>> {
    // Some files write 2³² - 1 for none.
    Ok(file.get_u64(key)?.and_then(|id| u32::try_from(id).ok()).filter(|id| *id != u32::MAX))
}

/// The end-of-sequence tokens: those named by keys, and those known by their text.
fn eos_tokens(file: &Gguf) -> Result<Vec<u32>> {
    if let Some(ids) = file.get_i64s(EOS_KEY)? {
        let ids: Option<Vec<u32>> = ids.into_iter().map(|id| u32::try_from(id).ok()).collect();
        return ids.ok_or_else(|| bad_key(file.path(), EOS_KEY, "expected token ids from 0 to 2^32 - 1"));
    }
    let mut eos = Vec::new();
    for key in ["eos", "eot", "eom"] {
        eos.extend(id(file, &format!("tokenizer.ggml.{key}_token_id"))?);
    }
    let types = file.get_i64s("tokenizer.ggml.token_type")?.unwrap_or_default();
    // Control or user-defined.
    let special = |id: usize| types.get(id).is_none_or(|kind| [3, 4].contains(kind));
    let texts = file.get_strs("tokenizer.ggml.tokens")?.into_iter().flatten().enumerate();
    eos.extend(texts.filter(|(id, text)| EOS_TEXTS.contains(text) && special(*id)).map(|(id, _)| id as u32));
    let mut seen = HashSet::new();
    eos.retain(|id| seen.insert(*id));
    Ok(eos)
}

/// Sliding-window layers where each `period`-th layer has full attention; 0: none has.
fn period(period: usize, layers: usize) -> Vec<bool> {
    (0..layers).map(|layer| period == 0 || layer % period < period - 1).collect()
}

/// The family's default for [`period`].
fn default_period(family: Family) -> usize {
    match family {
        Family::Gemma2 | Family::GptOss => 2,
        Family::Gemma3 => 6,
        _ => 0,
    }
}

fn windows(keys: &Keys<'_>, family: Family, window: Option<usize>, layers: usize) -> Result<(Option<usize>, Vec<bool>)> {
    let window = window.or((family == Family::Gemma2).then_some(4096)).filter(|window| *window > 0);
    let Some(window) = window else { return Ok((None, vec![false; layers])) };
    let key = keys.name("attention.sliding_window_pattern");
    let sliding = match keys.file.value(&key) {
        None => period(default_period(family), layers),
        Some(Value::Array(_)) => keys.file.need_bools(&key)?,
        Some(_) => period(keys.usize("attention.sliding_window_pattern")?.unwrap_or(0), layers),
    };
    if sliding.len() != layers {
        let reason = format!("expected {layers} entries, one per layer, got {}", sliding.len());
        return Err(bad_key(keys.file.path(), &key, reason));
    }
    Ok((sliding.contains(&true).then_some(window), sliding))
}

fn rope(keys: &Keys<'_>, head_dim: usize, context: usize) -> Result<RopeConfig> {
    let base = keys.f32("rope.freq_base")?.unwrap_or(10_000.0);
    let mut rope = RopeConfig::plain(base.into(), keys.usize("rope.dimension_count")?.unwrap_or(head_dim));
    let kind = keys.file.get_str(&keys.name("rope.scaling.type"))?.unwrap_or("none");
    let factor = keys.f32("rope.scaling.factor")?.map(f64::from);
    let original = keys.usize("rope.scaling.original_context_length")?.unwrap_or(context);
    let attention = keys.f32("rope.scaling.attn_factor")?.map(f64::from);
    match kind {
        "none" | "longrope" => rope.attention_factor = attention,
        "linear" => rope.scaling = RopeScaling::Linear(factor.unwrap_or(1.0)),
        "yarn" => {
            let fast = keys.f32("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0).into();
            let slow = keys.f32("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0).into();
            let factor = factor.unwrap_or(1.0);
            let truncate = Traits::of_architecture(keys.architecture).is_none_or(|traits| traits.truncate_yarn);
            rope.scaling = RopeScaling::Yarn { factor, fast, slow, original, truncate };
            rope.attention_factor = attention.map(|attention| attention * yarn_attention_factor(factor));
        }
        _ => {
            let reason = format!("unsupported type `{kind}`; expected none, linear, yarn or longrope");
            return Err(bad_key(keys.file.path(), &keys.name("rope.scaling.type"), reason));
        }
    }
    let [all, short, long] = FACTORS.map(|name| factors(keys.file, name));
    rope.frequency_factors = all?.or(short?).unwrap_or_default();
    if let Some(long) = long? {
        rope.long = Some(LongRope { original_context: original, frequency_factors: long });
        let scale = context as f64 / original.max(1) as f64;
        rope.attention_factor = rope.attention_factor.or(Some(longrope_attention_factor(scale, original)));
    }
    Ok(rope)
}

/// YaRN's default factor of cosine and sine.
fn yarn_attention_factor(factor: f64) -> f64 {
    if factor > 1.0 { 0.1 * factor.ln() + 1.0 } else { 1.0 }
}

fn factors(file: &Gguf, name: &str) -> Result<Option<Vec<f32>>> {
    let Some(tensor) = file.tensor(name) else { return Ok(None) };
    match tensor.kind {
        Kind::Plain(DType::F32) => Ok(Some(to_f32(tensor.kind, tensor.bytes))),
        kind => Err(bad_tensor(file.path(), name, format!("expected f32, got {kind}"))),
    }
}

/// Returns a configuration as GGUF metadata.
pub(super) fn metadata(config: &Config) -> Vec<(Cow<'static, str>, Value<'static>)> {
    let architecture = Traits::of(config.family).architecture;
    let mut out: Vec<(Cow<'static, str>, Value<'static>)> = vec![("general.architecture".into(), architecture.into())];
    if let Some(name) = &config.name {
        out.push(("general.name".into(), name.clone().into()));
    }
    let mut add = |key: &str, value: Value<'static>| out.push((format!("{architecture}.{key}").into(), value));
    let count = |number: usize| Value::from(u32::try_from(number).unwrap_or(u32::MAX));
    add(NAMES.layers, count(config.layers));
    add(NAMES.context, count(config.context));
    add(NAMES.hidden, count(config.hidden));
    add(NAMES.feed_forward, count(config.feed_forward));
    add(NAMES.heads, count(config.heads));
    add(NAMES.kv_heads, count(config.kv_heads));
    add(NAMES.head_dim, count(config.head_dim));
    add(NAMES.value_dim, count(config.mla.as_ref().map_or(config.head_dim, |mla| mla.value_dim)));
    if let Some(mla) = &config.mla {
        add(NAMES.kv_lora, count(mla.kv_lora));
        if let Some(q_lora) = mla.q_lora {
            add(NAMES.q_lora, count(q_lora));
        }
    }
    add(norm_eps_key(config.family, config.norm), config.norm_eps.into());
    if config.family == Family::GptNeox {
        add(PARALLEL, config.parallel.into());
    }
    if let Some(moe) = &config.moe {
        add(NAMES.experts, count(moe.experts));
        add(USED_EXPERTS, count(moe.routing.used));
        add(NAMES.expert_feed_forward, count(moe.feed_forward));
        add(NORMALIZE, moe.routing.normalize.into());
        add(EXPERT_SCALE, moe.routing.scale.into());
        if config.family == Family::Deepseek {
            add(DENSE_LAYERS, count(moe.sparse_layers.iter().take_while(|sparse| !**sparse).count()));
            add(SHARED_EXPERTS, count(moe.shared_feed_forward / moe.feed_forward.max(1)));
            add(GATING, count(if moe.routing.score == ExpertScore::Sigmoid { 2 } else { 1 }));
        }
        if moe.routing.groups > 1 {
            add(GROUPS, count(moe.routing.groups));
            add(USED_GROUPS, count(moe.routing.used_groups));
        }
        if moe.shared_feed_forward > 0 {
            add(NAMES.shared_feed_forward, count(moe.shared_feed_forward));
        }
    }
    if config.family == Family::Granite {
        add("embedding_scale", config.embedding_scale.into());
        add("residual_scale", config.residual_scale.into());
        add("logit_scale", (1.0 / config.logit_scale).into());
    }
    add("vocab_size", count(config.vocab));
    let RopeConfig { base, rotary_dim, .. } = config.rope;
    add("rope.freq_base", (base as f32).into());
    add("rope.dimension_count", count(rotary_dim));
    let mut attention = config.rope.attention_factor;
    match config.rope.scaling {
        RopeScaling::Linear(factor) => {
            add("rope.scaling.type", "linear".into());
            add("rope.scaling.factor", (factor as f32).into());
        }
        RopeScaling::Yarn { factor, fast, slow, original, .. } => {
            add("rope.scaling.type", "yarn".into());
            add("rope.scaling.factor", (factor as f32).into());
            add("rope.scaling.original_context_length", count(original));
            add("rope.scaling.yarn_beta_fast", (fast as f32).into());
            add("rope.scaling.yarn_beta_slow", (slow as f32).into());
            if config.family == Family::Deepseek {
                let scale = f64::from(config.attention_scale) * (config.head_dim as f64).sqrt();
                add(YARN_MULTIPLIER, (((scale.sqrt() - 1.0) / factor.ln()) as f32).into());
                attention = attention.filter(|attention| *attention != 1.0);
            }
            attention = attention.map(|attention| attention / yarn_attention_factor(factor));
        }
        _ => (),
    }
    if let Some(long) = &config.rope.long {
        add("rope.scaling.type", "longrope".into());
        add("rope.scaling.original_context_length", count(long.original_context));
    }
    if let Some(attention) = attention {
        add("rope.scaling.attn_factor", (attention as f32).into());
    }
    if let Some(rope) = &config.rope_sliding {
        add("rope.freq_base_swa", (rope.base as f32).into());
    }
    let gemma = matches!(config.family, Family::Gemma2 | Family::Gemma3);
    if config.sliding_window.is_some() || gemma || config.family == Family::Phi3 {
        add(NAMES.window, count(config.sliding_window.unwrap_or(0)));
    }
    if config.sliding_window.is_some() && config.sliding_layers != period(default_period(config.family), config.layers) {
        add("attention.sliding_window_pattern", Array::bools(config.sliding_layers.iter().copied()).into());
    }
    for (key, cap) in [("attn_logit_softcapping", config.attention_softcap), ("final_logit_softcapping", config.logit_softcap)] {
        if cap.is_some() || config.family == Family::Gemma2 {
            add(key, cap.unwrap_or(0.0).into());
        }
    }
    if config.attention_scale != attention_scale(config.family, config.layers, config.hidden, config.heads, config.head_dim) {
        add(NAMES.scale, config.attention_scale.into());
    }
    if let Some(ExpertScore::SparseMixer { epsilon }) = config.moe.as_ref().map(|moe| moe.routing.score) {
        out.push((JITTER_KEY.into(), epsilon.into()));
    }
    let tokens = [("bos", config.bos), ("eos", config.eos.first().copied()), ("eot", config.eos.get(1).copied())];
    for (name, id) in tokens.into_iter().filter_map(|(name, id)| Some((name, id?))) {
        out.push((format!("tokenizer.ggml.{name}_token_id").into(), id.into()));
    }
    out.push((EOS_KEY.into(), Array::u32s(config.eos.iter().copied()).into()));
    out
}
