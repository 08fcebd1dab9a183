//! Which tensors a model has: their names in GGUF files and in Hugging Face's, their shapes, and how one becomes the other.

use crate::config::{Config, Family};

/// What becomes of a folder's tensor. GGUF's are as they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// Rows of each head go from halves to neighbours, as [`Config::pairs`] says of the family.
    Interleave,
    /// A norm that multiplies by 1 + weight gets its 1.
    AddOne,
}

/// A tensor of a model.
#[derive(Debug)]
pub(super) struct Part {
    /// GGUF's name.
    pub name: String,
    /// Hugging Face's, without what comes before `layers`.
    pub folder: String,
    pub shape: Vec<usize>,
    pub required: bool,
    pub change: Change,
}

/// The tensors of a model, in the order in which they are used. The output is its own where `tied` does not say that it is the embedding;
/// where that is not known it may be missing.
pub(super) fn parts(config: &Config, tied: Option<bool>) -> Vec<Part> {
    let Config { hidden, head_dim, feed_forward, vocab, .. } = *config;
    let (queries, keys) = (config.heads * head_dim, config.kv_heads * head_dim);
    let gemma = matches!(config.family, Family::Gemma2 | Family::Gemma3);
    let phi = config.family == Family::Phi3;
    let turned = if matches!(config.family, Family::Llama | Family::Mistral) { Change::Interleave } else { Change::None };
    let norm = if gemma { Change::AddOne } else { Change::None };
    let normed = matches!(config.family, Family::Qwen3 | Family::Gemma3);
    let biased = config.family == Family::Qwen2;
    let qkv = [("q", queries, turned), ("k", keys, turned), ("v", keys, Change::None)];

    let mut parts = vec![Part::new("token_embd.weight", "embed_tokens.weight", &[vocab, hidden], Change::None)];
    for layer in 0..config.layers {
        let from = parts.len();
        let mut add = |name: &str, folder: &str, shape: &[usize], change| parts.push(Part::new(name, folder, shape, change));
        add("attn_norm.weight", "input_layernorm.weight", &[hidden], norm);
        if phi {
            add("attn_qkv.weight", "self_attn.qkv_proj.weight", &[queries + 2 * keys, hidden], Change::None);
        } else {
            for (letter, rows, change) in qkv {
                add(&format!("attn_{letter}.weight"), &format!("self_attn.{letter}_proj.weight"), &[rows, hidden], change);
                // Some Llamas have them, too.
                add(&format!("attn_{letter}.bias"), &format!("self_attn.{letter}_proj.bias"), &[rows], change);
            }
        }
        if normed {
            add("attn_q_norm.weight", "self_attn.q_norm.weight", &[head_dim], norm);
            add("attn_k_norm.weight", "self_attn.k_norm.weight", &[head_dim], norm);
        }
        add("attn_output.weight", "self_attn.o_proj.weight", &[hidden, queries], Change::None);
        if gemma {
            add("post_attention_norm.weight", "post_attention_layernorm.weight", &[hidden], norm);
            add("ffn_norm.weight", "pre_feedforward_layernorm.weight", &[hidden], norm);
        } else {
            add("ffn_norm.weight", "post_attention_layernorm.weight", &[hidden], norm);
        }
        if phi {
            add("ffn_up.weight", "mlp.gate_up_proj.weight", &[2 * feed_forward, hidden], Change::None);
        } else {
            add("ffn_gate.weight", "mlp.gate_proj.weight", &[feed_forward, hidden], Change::None);
            add("ffn_up.weight", "mlp.up_proj.weight", &[feed_forward, hidden], Change::None);
        }
        add("ffn_down.weight", "mlp.down_proj.weight", &[hidden, feed_forward], Change::None);
        if gemma {
            add("post_ffw_norm.weight", "post_feedforward_layernorm.weight", &[hidden], norm);
        }
        for part in parts.iter_mut().skip(from) {
            part.required = biased || !part.name.ends_with(".bias");
            part.name = format!("blk.{layer}.{}", part.name);
            part.folder = format!("layers.{layer}.{}", part.folder);
        }
    }
    parts.push(Part::new("output_norm.weight", "norm.weight", &[hidden], norm));
    if tied != Some(true) {
        let output = Part::new("output.weight", "lm_head.weight", &[vocab, hidden], Change::None);
        parts.push(Part { required: tied == Some(false), ..output });
    }
    parts
}

impl Part {
    fn new(name: &str, folder: &str, shape: &[usize], change: Change) -> Part {
        Part { name: name.to_owned(), folder: folder.to_owned(), shape: shape.to_vec(), required: true, change }
    }
}
