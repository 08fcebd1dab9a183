//! Which tensors a model has: names in GGUF and Hugging Face files, shapes, and the conversion from one to the other.

use warpwave_kernels::ExpertScore;

use super::family::{Biases, QkNorm, Traits};
use crate::config::{Config, Family, MlaConfig, MoeConfig, NormKind};

/// How a Hugging Face tensor becomes GGUF's. Tensors of GGUF files stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transform {
    None,
    /// Reorders the rows of each head from two halves to adjacent pairs, as [`Config::pairs`] of the family requires.
    Interleave,
    /// Adds 1 to a norm weight that is stored without it.
    AddOne,
    /// Takes every second column of matrices of (experts, columns, rows), from this one on, and transposes them. In MXFP4, every second row.
    Experts {
        first: usize,
        step: usize,
    },
    /// Takes every second element of each expert's bias, from this one on.
    ExpertBiases {
        first: usize,
        step: usize,
    },
    /// Reorders fused QKV rows, which are the Q, K and V heads of one KV head after the other, to all Q, then all K, then all V.
    Ungroup,
}

/// A tensor of a model.
#[derive(Debug)]
pub(super) struct TensorSpec {
    /// GGUF's name.
    pub name: String,
    /// Hugging Face's name, without the prefix before `layers`.
    pub hf_name: String,
    /// GGUF's shape.
    pub shape: Vec<usize>,
    pub required: bool,
    pub transform: Transform,
    /// Where the file has a tensor per expert: their number. `{}` in the names is the expert's.
    pub experts: Option<usize>,
    /// The shape in Hugging Face folders, if it is another.
    pub hf_shape: Option<Vec<usize>>,
    /// The name in this GGUF file, if it is another.
    pub gguf_name: Option<String>,
}

impl TensorSpec {
    /// Whether this is a norm or bias, which are always `f32`.
    pub fn is_vector(&self) -> bool {
        is_vector(&self.name, &self.shape)
    }
}

/// Whether a tensor is a norm or bias, which are always `f32`.
pub(super) fn is_vector(name: &str, shape: &[usize]) -> bool {
    shape.len() < 2 || name.ends_with(".bias")
}

/// The form of a model's tensors, where files of one family differ.
#[derive(Debug, Clone, Copy)]
pub(super) struct Forms {
    /// Whether the output is the embedding; if unknown, the output is optional.
    pub tied: Option<bool>,
    /// Whether Q, K and V are one matrix.
    pub fused_qkv: bool,
    /// Whether parallel blocks have a norm each.
    pub two_norms: bool,
    /// Whether each expert's matrices are tensors of their own.
    pub split_experts: bool,
    /// Whether the key and value projections of latent attention are tensors of their own.
    pub split_kv_b: bool,
    /// Whether gpt-oss's experts are stored as MXFP4 blocks.
    pub mxfp4: bool,
}

impl Forms {
    /// The usual form in a Hugging Face folder.
    pub fn of_config(config: &Config, tied: Option<bool>) -> Forms {
        let traits = Traits::of(config.family);
        Forms {
            tied,
            fused_qkv: traits.fused_qkv.is_some(),
            two_norms: !config.parallel || traits.parallel_norms,
            split_experts: !traits.sinks,
            split_kv_b: false,
            mxfp4: false,
        }
    }

    /// The form of a GGUF file with these tensors.
    pub fn of_gguf(has: impl Fn(&str) -> bool) -> Forms {
        let two_norms = ["blk.0.ffn_norm.weight", "blk.0.attn_norm_2.weight"].into_iter().any(&has);
        let split_experts = has("blk.0.ffn_gate.0.weight");
        Forms {
            tied: None,
            fused_qkv: has("blk.0.attn_qkv.weight"),
            two_norms,
            split_experts,
            split_kv_b: has("blk.0.attn_k_b.weight"),
            mxfp4: false,
        }
    }
}

/// Returns the tensors of a model, in the order of use.
pub(super) fn tensor_specs(config: &Config, forms: Forms) -> Vec<TensorSpec> {
    let Config { hidden, head_dim, feed_forward, vocab, .. } = *config;
    let traits = Traits::of(config.family);
    let (q, kv) = (config.heads * head_dim, config.kv_heads * head_dim);
    let rotated = if traits.pairs == warpwave_kernels::RopePairs::Interleaved { Transform::Interleave } else { Transform::None };
    let norm = if traits.gemma { Transform::AddOne } else { Transform::None };

    let mut specs = Specs { traits, norm, layer_norm: config.norm == NormKind::Layer, layer: None, all: Vec::new() };
    specs.add("token_embd", &[vocab, hidden], Transform::None);
    for layer in 0..config.layers {
        specs.layer = Some(layer);
        // In GGUF files of Falcon, `attn_norm` is the feed-forward's if there are two.
        let falcon_norms = config.family == Family::Falcon && config.parallel && forms.two_norms;
        if falcon_norms {
            specs.norm("attn_norm", "ln_mlp", hidden);
            specs.norm("attn_norm_2", "ln_attn", hidden);
        } else if traits.pre_norms {
            specs.norm("attn_norm", traits.hf_name("attn_norm"), hidden);
        }
        if let Some(mla) = &config.mla {
            specs.latent_attention(config, mla, forms.split_kv_b);
        } else if forms.fused_qkv {
            specs.linear("attn_qkv", &[q + 2 * kv, hidden], traits.fused_qkv.unwrap_or(Transform::None));
        } else {
            for (name, rows, transform) in [("attn_q", q, rotated), ("attn_k", kv, rotated), ("attn_v", kv, Transform::None)] {
                specs.linear(name, &[rows, hidden], transform);
            }
        }
        let widths = match traits.qk_norm {
            QkNorm::None => None,
            QkNorm::Head => Some([head_dim; 2]),
            QkNorm::Width => Some([q, kv]),
        };
        if let Some([q, k]) = widths {
            specs.add("attn_q_norm", &[q], norm);
            specs.add("attn_k_norm", &[k], norm);
        }
        if traits.sinks {
            specs.named("attn_sinks.weight", "self_attn.sinks", &[config.heads], Transform::None);
        }
        let values = config.mla.as_ref().map_or(q, |mla| config.heads * mla.value_dim);
        specs.linear("attn_output", &[hidden, values], Transform::None);
        if traits.post_norms || traits.sinks {
            specs.norm("post_attention_norm", traits.hf_name("post_attention_norm"), hidden);
        }
        if traits.pre_norms && forms.two_norms && !falcon_norms && !traits.sinks {
            specs.norm("ffn_norm", traits.hf_name("ffn_norm"), hidden);
        }
        match config.moe.as_ref().filter(|moe| moe.sparse_layers.get(layer) == Some(&true)) {
            Some(moe) if traits.sinks => specs.biased_experts(moe, hidden, forms.mxfp4),
            Some(moe) => specs.experts(moe, hidden, forms.split_experts),
            None => {
                if config.gated && !traits.fused_gate_up {
                    specs.linear("ffn_gate", &[feed_forward, hidden], Transform::None);
                }
                let up = if traits.fused_gate_up { 2 * feed_forward } else { feed_forward };
                specs.linear("ffn_up", &[up, hidden], Transform::None);
                specs.linear("ffn_down", &[hidden, feed_forward], Transform::None);
            }
        }
        if traits.post_norms {
            specs.norm("post_ffw_norm", traits.hf_name("post_ffw_norm"), hidden);
        }
    }
    specs.layer = None;
    specs.norm("output_norm", traits.hf_name("output_norm"), hidden);
    if forms.tied != Some(true) {
        specs.add("output", &[vocab, hidden], Transform::None).required = forms.tied == Some(false);
        if traits.output_bias {
            specs.bias("output", &[vocab], Transform::None);
        }
    }
    specs.all
}

/// The tensors listed so far, and what the next ones have in common.
struct Specs {
    traits: &'static Traits,
    norm: Transform,
    layer_norm: bool,
    /// The layer of the next tensors.
    layer: Option<usize>,
    all: Vec<TensorSpec>,
}

impl Specs {
    /// Adds a tensor by its two names, without what surrounds them in a layer.
    fn named(&mut self, name: &str, hf_name: &str, shape: &[usize], transform: Transform) -> &mut TensorSpec {
        let (name, hf_name) = match self.layer {
            Some(layer) => (format!("blk.{layer}.{name}"), format!("{}.{layer}.{hf_name}", self.traits.hf_name("blk"))),
            None => (name.to_owned(), hf_name.to_owned()),
        };
        let index = self.all.len();
        let shape = shape.to_vec();
        self.all.push(TensorSpec { name, hf_name, shape, required: true, transform, experts: None, hf_shape: None, gguf_name: None });
        &mut self.all[index]
    }

    fn add(&mut self, name: &'static str, shape: &[usize], transform: Transform) -> &mut TensorSpec {
        let hf_name = self.traits.hf_name(name);
        self.named(&format!("{name}.weight"), &format!("{hf_name}.weight"), shape, transform)
    }

    fn bias(&mut self, name: &'static str, shape: &[usize], transform: Transform) -> &mut TensorSpec {
        let hf_name = self.traits.hf_name(name);
        self.named(&format!("{name}.bias"), &format!("{hf_name}.bias"), shape, transform)
    }

    /// Adds the projections of latent attention.
    fn latent_attention(&mut self, config: &Config, mla: &MlaConfig, split: bool) {
        let Config { hidden, heads, head_dim, .. } = *config;
        let MlaConfig { q_lora, kv_lora, value_dim } = *mla;
        let rotated = config.rope.rotary_dim;
        let keys = head_dim.saturating_sub(rotated);
        match q_lora {
            Some(q_lora) => {
                self.add("attn_q_a", &[q_lora, hidden], Transform::None);
                self.add("attn_q_a_norm", &[q_lora], Transform::None);
                self.add("attn_q_b", &[heads * head_dim, q_lora], Transform::None);
            }
            None => _ = self.add("attn_q", &[heads * head_dim, hidden], Transform::None),
        }
        self.add("attn_kv_a_mqa", &[kv_lora + rotated, hidden], Transform::None);
        self.add("attn_kv_a_norm", &[kv_lora], Transform::None);
        if split {
            self.add("attn_k_b", &[heads, kv_lora, keys], Transform::None);
            self.add("attn_v_b", &[heads, value_dim, kv_lora], Transform::None);
        } else {
            self.add("attn_kv_b", &[heads * (keys + value_dim), kv_lora], Transform::None);
        }
    }

    /// Adds gpt-oss's router and experts, with biases. In Hugging Face folders gate and up projections alternate.
    fn biased_experts(&mut self, moe: &MoeConfig, hidden: usize, mxfp4: bool) {
        let MoeConfig { experts, feed_forward, .. } = *moe;
        self.linear("ffn_gate_inp", &[experts, hidden], Transform::None);
        let parts = [
            ("ffn_gate_exps", "gate_up_proj", (0, 2), [feed_forward, hidden]),
            ("ffn_up_exps", "gate_up_proj", (1, 2), [feed_forward, hidden]),
            ("ffn_down_exps", "down_proj", (0, 1), [hidden, feed_forward]),
        ];
        for (name, hf_name, (first, step), [rows, columns]) in parts {
            let ending = if mxfp4 { "_blocks" } else { "" };
            let shape = [experts, rows, columns];
            let spec = self.named(
                &format!("{name}.weight"),
                &format!("mlp.experts.{hf_name}{ending}"),
                &shape,
                Transform::Experts { first, step },
            );
            spec.hf_shape = Some(if mxfp4 { vec![experts, rows * step, columns / 32, 16] } else { vec![experts, columns, rows * step] });
            let spec = self.named(
                &format!("{name}.bias"),
                &format!("mlp.experts.{hf_name}_bias"),
                &[experts, rows],
                Transform::ExpertBiases { first, step },
            );
            spec.hf_shape = Some(vec![experts, rows * step]);
        }
    }

    /// Adds a router, the matrices of the experts, and those of the shared one.
    fn experts(&mut self, moe: &MoeConfig, hidden: usize, split: bool) {
        let MoeConfig { experts, feed_forward, shared_feed_forward: shared, .. } = *moe;
        self.add("ffn_gate_inp", &[experts, hidden], Transform::None);
        if moe.routing.score == ExpertScore::Sigmoid {
            self.named("exp_probs_b.bias", "mlp.gate.e_score_correction_bias", &[experts], Transform::None);
        }
        let parts = [
            ("ffn_gate_exps", "ffn_gate", [experts, feed_forward, hidden]),
            ("ffn_up_exps", "ffn_up", [experts, feed_forward, hidden]),
            ("ffn_down_exps", "ffn_down", [experts, hidden, feed_forward]),
        ];
        let layer = self.layer.unwrap_or(0);
        for (name, each, shape) in parts {
            let spec = self.add(name, &shape, Transform::None);
            spec.experts = split.then_some(experts);
            spec.gguf_name = split.then(|| format!("blk.{layer}.{each}.{{}}.weight"));
        }
        if shared > 0 {
            if self.traits.gated_shared {
                self.add("ffn_gate_inp_shexp", &[hidden], Transform::None);
            }
            for (name, shape) in
                [("ffn_gate_shexp", [shared, hidden]), ("ffn_up_shexp", [shared, hidden]), ("ffn_down_shexp", [hidden, shared])]
            {
                self.add(name, &shape, Transform::None);
            }
        }
    }

    /// Adds the weights of a norm of the residual stream.
    fn norm(&mut self, name: &str, hf_name: &str, size: usize) {
        self.named(&format!("{name}.weight"), &format!("{hf_name}.weight"), &[size], self.norm);
        if self.layer_norm {
            self.named(&format!("{name}.bias"), &format!("{hf_name}.bias"), &[size], Transform::None);
        }
    }

    /// Adds a matrix, and a bias if the family has it.
    fn linear(&mut self, name: &'static str, shape: &[usize], transform: Transform) {
        let biases = self.traits.biases;
        self.add(name, shape, transform);
        if biases != Biases::None {
            let qkv = ["attn_q", "attn_k", "attn_v"].contains(&name);
            let required = biases == Biases::All || (biases == Biases::Qkv && qkv);
            self.bias(name, &shape[..1], transform).required = required;
        }
    }
}
