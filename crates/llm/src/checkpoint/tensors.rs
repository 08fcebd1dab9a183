//! Which tensors a model has: names in GGUF and Hugging Face files, shapes, and the conversion from one to the other.

use crate::config::{Config, Family};

/// How a Hugging Face tensor becomes GGUF's. Tensors of GGUF files stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transform {
    None,
    /// Reorders the rows of each head from two halves to adjacent pairs, as [`Config::pairs`] of the family requires.
    Interleave,
    /// Adds 1 to a norm weight that is stored without it.
    AddOne,
}

/// A tensor of a model.
#[derive(Debug)]
pub(super) struct TensorSpec {
    /// GGUF's name.
    pub name: String,
    /// Hugging Face's name, without the prefix before `layers`.
    pub hf_name: String,
    pub shape: Vec<usize>,
    pub required: bool,
    pub transform: Transform,
}

/// Returns the tensors of a model, in the order of use. `tied`: whether the output is the embedding; if unknown, the output is optional.
pub(super) fn tensor_specs(config: &Config, tied: Option<bool>) -> Vec<TensorSpec> {
    let Config { hidden, head_dim, feed_forward, vocab, .. } = *config;
    let (q, kv) = (config.heads * head_dim, config.kv_heads * head_dim);
    let gemma = matches!(config.family, Family::Gemma2 | Family::Gemma3);
    let phi = config.family == Family::Phi3;
    let rotated = if matches!(config.family, Family::Llama | Family::Mistral) { Transform::Interleave } else { Transform::None };
    let norm = if gemma { Transform::AddOne } else { Transform::None };
    let qk_norm = matches!(config.family, Family::Qwen3 | Family::Gemma3);

    let mut specs = vec![TensorSpec::new("token_embd.weight", "embed_tokens.weight", &[vocab, hidden], Transform::None)];
    for layer in 0..config.layers {
        let from = specs.len();
        let mut add = |name: &str, hf_name: &str, shape: &[usize], transform| specs.push(TensorSpec::new(name, hf_name, shape, transform));
        add("attn_norm.weight", "input_layernorm.weight", &[hidden], norm);
        if phi {
            add("attn_qkv.weight", "self_attn.qkv_proj.weight", &[q + 2 * kv, hidden], Transform::None);
        } else {
            for (letter, rows, transform) in [("q", q, rotated), ("k", kv, rotated), ("v", kv, Transform::None)] {
                add(&format!("attn_{letter}.weight"), &format!("self_attn.{letter}_proj.weight"), &[rows, hidden], transform);
                add(&format!("attn_{letter}.bias"), &format!("self_attn.{letter}_proj.bias"), &[rows], transform);
            }
        }
        if qk_norm {
            add("attn_q_norm.weight", "self_attn.q_norm.weight", &[head_dim], norm);
            add("attn_k_norm.weight", "self_attn.k_norm.weight", &[head_dim], norm);
        }
        add("attn_output.weight", "self_attn.o_proj.weight", &[hidden, q], Transform::None);
        if !phi {
            add("attn_output.bias", "self_attn.o_proj.bias", &[hidden], Transform::None);
        }
        if gemma {
            add("post_attention_norm.weight", "post_attention_layernorm.weight", &[hidden], norm);
            add("ffn_norm.weight", "pre_feedforward_layernorm.weight", &[hidden], norm);
        } else {
            add("ffn_norm.weight", "post_attention_layernorm.weight", &[hidden], norm);
        }
        if phi {
            add("ffn_up.weight", "mlp.gate_up_proj.weight", &[2 * feed_forward, hidden], Transform::None);
            add("ffn_down.weight", "mlp.down_proj.weight", &[hidden, feed_forward], Transform::None);
        } else {
            let ffn = [("gate", [feed_forward, hidden]), ("up", [feed_forward, hidden]), ("down", [hidden, feed_forward])];
            for (part, shape) in ffn {
                add(&format!("ffn_{part}.weight"), &format!("mlp.{part}_proj.weight"), &shape, Transform::None);
                add(&format!("ffn_{part}.bias"), &format!("mlp.{part}_proj.bias"), &shape[..1], Transform::None);
            }
        }
        if gemma {
            add("post_ffw_norm.weight", "post_feedforward_layernorm.weight", &[hidden], norm);
        }
        for spec in specs.iter_mut().skip(from) {
            // Qwen2 always has QKV biases. All others are optional: some Llama models have them.
            let qkv_bias = ["attn_q.bias", "attn_k.bias", "attn_v.bias"].contains(&&*spec.name);
            spec.required = !spec.name.ends_with(".bias") || (qkv_bias && config.family == Family::Qwen2);
            spec.name = format!("blk.{layer}.{}", spec.name);
            spec.hf_name = format!("layers.{layer}.{}", spec.hf_name);
        }
    }
    specs.push(TensorSpec::new("output_norm.weight", "norm.weight", &[hidden], norm));
    if tied != Some(true) {
        let output = TensorSpec::new("output.weight", "lm_head.weight", &[vocab, hidden], Transform::None);
        specs.push(TensorSpec { required: tied == Some(false), ..output });
    }
    specs
}

impl TensorSpec {
    fn new(name: &str, hf_name: &str, shape: &[usize], transform: Transform) -> TensorSpec {
        TensorSpec { name: name.to_owned(), hf_name: hf_name.to_owned(), shape: shape.to_vec(), required: true, transform }
    }
}
