//! What the files of each family leave unsaid: names, conventions and defaults.

use warpwave_kernels::{ExpertScore, Glu, RopePairs, Routing};

use super::tensors::Transform;
use crate::config::{Family, NormKind};

/// Which biases the linear layers of a family have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Biases {
    None,
    /// Those that the file has.
    Optional,
    /// Q, K and V; others if the file has them.
    Qkv,
    /// All of a layer.
    All,
}

/// A per-head norm of Q and K, or one over all heads together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QkNorm {
    None,
    Head,
    Width,
}

/// The conventions of a family.
pub(super) struct Traits {
    pub family: Family,
    /// `model_type` in `config.json`.
    pub model_types: &'static [&'static str],
    /// `general.architecture` in GGUF files.
    pub architecture: &'static str,
    pub pairs: RopePairs,
    pub norm: NormKind,
    /// Where `config.json` has no epsilon.
    pub norm_eps: f64,
    /// Norms before attention and feed-forward, and after them.
    pub pre_norms: bool,
    pub post_norms: bool,
    /// Hugging Face's norm weights lack a + 1, and the embeddings are scaled by √hidden.
    pub gemma: bool,
    pub qk_norm: QkNorm,
    pub biases: Biases,
    pub glu: Glu,
    pub gated: bool,
    /// Gate and up projections are one matrix.
    pub fused_gate_up: bool,
    /// Q, K and V are one matrix in Hugging Face folders, which becomes GGUF's by this.
    pub fused_qkv: Option<Transform>,
    /// Whether attention and feed-forward are parallel, where the file does not say.
    pub parallel: bool,
    /// Whether parallel blocks have a norm each.
    pub parallel_norms: bool,
    /// Whether the output is the embedding, where `config.json` does not say.
    pub tied: bool,
    /// The output has a bias.
    pub output_bias: bool,
    /// The rotated part of a head, where `config.json` does not say.
    pub partial_rotary: f64,
    /// Whether `config.json`'s sliding window counts, and the window without the key.
    pub window: Option<Option<usize>>,
    /// Attention sinks, and biases of the experts, which Hugging Face folders store as gpt-oss does.
    pub sinks: bool,
    /// Whether YaRN rounds the ends of its ramp, where the file does not say.
    pub truncate_yarn: bool,
    /// Whether the shared expert has a gate.
    pub gated_shared: bool,
    /// How tokens are routed to experts, if the family has them.
    pub routing: Option<Routing>,
    /// Hugging Face's names of weights that differ from [`LLAMA_NAMES`], by GGUF's.
    pub names: &'static [(&'static str, &'static str)],
}

const LLAMA: Traits = Traits {
    family: Family::Llama,
    model_types: &["llama"],
    architecture: "llama",
    pairs: RopePairs::Interleaved,
    norm: NormKind::Rms,
    norm_eps: 1e-6,
    pre_norms: true,
    post_norms: false,
    gemma: false,
    qk_norm: QkNorm::None,
    biases: Biases::Optional,
    glu: Glu::Silu,
    gated: true,
    fused_gate_up: false,
    fused_qkv: None,
    parallel: false,
    parallel_norms: false,
    tied: false,
    output_bias: false,
    partial_rotary: 1.0,
    window: None,
    sinks: false,
    truncate_yarn: true,
    gated_shared: false,
    routing: None,
    names: &[],
};
/// Experts are chosen by a softmax over all, which is what most families do.
const SOFTMAX: Routing =
    Routing { used: 2, score: ExpertScore::Softmax, normalize: true, scale: 1.0, groups: 1, used_groups: 1, group_sum_of_two: false };
const MIXTRAL_NAMES: [(&str, &str); 4] = [
    ("ffn_gate_inp", "block_sparse_moe.gate"),
    ("ffn_gate_exps", "block_sparse_moe.experts.{}.w1"),
    ("ffn_up_exps", "block_sparse_moe.experts.{}.w3"),
    ("ffn_down_exps", "block_sparse_moe.experts.{}.w2"),
];
const QWEN2: Traits = Traits {
    family: Family::Qwen2,
    model_types: &["qwen2"],
    architecture: "qwen2",
    pairs: RopePairs::Halves,
    biases: Biases::Qkv,
    window: Some(Some(4096)),
    ..LLAMA
};
const GEMMA: Traits = Traits {
    family: Family::Gemma,
    model_types: &["gemma"],
    architecture: "gemma",
    pairs: RopePairs::Halves,
    gemma: true,
    glu: Glu::Gelu,
    tied: true,
    ..LLAMA
};
const GEMMA2: Traits = Traits {
    family: Family::Gemma2,
    model_types: &["gemma2"],
    architecture: "gemma2",
    post_norms: true,
    window: Some(Some(4096)),
    names: &[
        ("post_attention_norm", "post_attention_layernorm"),
        ("ffn_norm", "pre_feedforward_layernorm"),
        ("post_ffw_norm", "post_feedforward_layernorm"),
    ],
    ..GEMMA
};
/// LayerNorm with biases, and biases everywhere.
const LAYER_NORM: Traits = Traits { pairs: RopePairs::Halves, norm: NormKind::Layer, norm_eps: 1e-5, biases: Biases::All, ..LLAMA };

/// All families.
static ALL: [Traits; 21] = [
    LLAMA,
    Traits { family: Family::Mistral, model_types: &["mistral"], window: Some(Some(4096)), ..LLAMA },
    QWEN2,
    Traits {
        family: Family::Qwen3,
        model_types: &["qwen3"],
        architecture: "qwen3",
        biases: Biases::Optional,
        qk_norm: QkNorm::Head,
        ..QWEN2
    },
    GEMMA2,
    Traits { family: Family::Gemma3, model_types: &["gemma3", "gemma3_text"], architecture: "gemma3", qk_norm: QkNorm::Head, ..GEMMA2 },
    Traits {
        family: Family::Phi3,
        model_types: &["phi3"],
        architecture: "phi3",
        pairs: RopePairs::Halves,
        norm_eps: 1e-5,
        biases: Biases::None,
        fused_gate_up: true,
        fused_qkv: Some(Transform::None),
        window: Some(None),
        names: &[("attn_qkv", "self_attn.qkv_proj"), ("ffn_up", "mlp.gate_up_proj")],
        ..LLAMA
    },
    GEMMA,
    Traits {
        family: Family::Phi,
        model_types: &["phi"],
        architecture: "phi2",
        glu: Glu::Gelu,
        gated: false,
        parallel: true,
        output_bias: true,
        partial_rotary: 0.5,
        names: &[("attn_output", "self_attn.dense"), ("ffn_up", "mlp.fc1"), ("ffn_down", "mlp.fc2"), ("output_norm", "final_layernorm")],
        ..LAYER_NORM
    },
    Traits {
        family: Family::Olmo2,
        model_types: &["olmo2"],
        architecture: "olmo2",
        pairs: RopePairs::Halves,
        norm_eps: 1e-5,
        pre_norms: false,
        post_norms: true,
        qk_norm: QkNorm::Width,
        names: &[("post_attention_norm", "post_attention_layernorm"), ("post_ffw_norm", "post_feedforward_layernorm")],
        ..LLAMA
    },
    Traits { family: Family::Granite, model_types: &["granite"], architecture: "granite", ..LLAMA },
    Traits {
        family: Family::StableLm,
        model_types: &["stablelm"],
        architecture: "stablelm",
        biases: Biases::Optional,
        partial_rotary: 0.25,
        ..LAYER_NORM
    },
    Traits {
        family: Family::Starcoder2,
        model_types: &["starcoder2"],
        architecture: "starcoder2",
        glu: Glu::Gelu,
        gated: false,
        tied: true,
        window: Some(None),
        names: &[("ffn_up", "mlp.c_fc"), ("ffn_down", "mlp.c_proj")],
        ..LAYER_NORM
    },
    Traits {
        family: Family::GptNeox,
        model_types: &["gpt_neox"],
        architecture: "gptneox",
        glu: Glu::GeluErf,
        gated: false,
        fused_qkv: Some(Transform::Ungroup),
        parallel: true,
        parallel_norms: true,
        partial_rotary: 0.25,
        names: &[
            ("token_embd", "embed_in"),
            ("attn_qkv", "attention.query_key_value"),
            ("attn_output", "attention.dense"),
            ("ffn_up", "mlp.dense_h_to_4h"),
            ("ffn_down", "mlp.dense_4h_to_h"),
            ("output_norm", "final_layer_norm"),
            ("output", "embed_out"),
        ],
        ..LAYER_NORM
    },
    Traits {
        family: Family::Falcon,
        model_types: &["falcon"],
        architecture: "falcon",
        biases: Biases::Optional,
        glu: Glu::GeluErf,
        gated: false,
        fused_qkv: Some(Transform::Ungroup),
        parallel: true,
        tied: true,
        names: &[
            ("token_embd", "word_embeddings"),
            ("blk", "h"),
            ("attn_qkv", "self_attention.query_key_value"),
            ("attn_output", "self_attention.dense"),
            ("ffn_up", "mlp.dense_h_to_4h"),
            ("ffn_down", "mlp.dense_4h_to_h"),
            ("output_norm", "ln_f"),
        ],
        ..LAYER_NORM
    },
    Traits {
        family: Family::Mixtral,
        model_types: &["mixtral"],
        norm_eps: 1e-5,
        window: Some(None),
        routing: Some(SOFTMAX),
        names: &MIXTRAL_NAMES,
        ..LLAMA
    },
    Traits {
        family: Family::Qwen2Moe,
        model_types: &["qwen2_moe"],
        architecture: "qwen2moe",
        gated_shared: true,
        routing: Some(Routing { normalize: false, ..SOFTMAX }),
        ..QWEN2
    },
    Traits {
        family: Family::Qwen3Moe,
        model_types: &["qwen3_moe"],
        architecture: "qwen3moe",
        biases: Biases::Optional,
        qk_norm: QkNorm::Head,
        routing: Some(SOFTMAX),
        ..QWEN2
    },
    Traits {
        family: Family::PhiMoe,
        model_types: &["phimoe"],
        architecture: "phimoe",
        output_bias: true,
        window: Some(None),
        routing: Some(Routing { score: ExpertScore::SparseMixer { epsilon: 0.01 }, normalize: false, ..SOFTMAX }),
        names: &MIXTRAL_NAMES,
        ..LAYER_NORM
    },
    Traits {
        family: Family::GptOss,
        model_types: &["gpt_oss"],
        architecture: "gpt-oss",
        pairs: RopePairs::Halves,
        norm_eps: 1e-5,
        biases: Biases::All,
        glu: Glu::Clamped,
        window: Some(Some(128)),
        sinks: true,
        truncate_yarn: false,
        routing: Some(Routing { score: ExpertScore::ChosenSoftmax, ..SOFTMAX }),
        names: &[("post_attention_norm", "post_attention_layernorm"), ("ffn_gate_inp", "mlp.router")],
        ..LLAMA
    },
    Traits {
        family: Family::Deepseek,
        model_types: &["deepseek_v2", "deepseek_v3"],
        architecture: "deepseek2",
        biases: Biases::None,
        routing: Some(Routing { normalize: false, ..SOFTMAX }),
        names: &[
            ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
            ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
            ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
            ("attn_q_a", "self_attn.q_a_proj"),
            ("attn_q_a_norm", "self_attn.q_a_layernorm"),
            ("attn_q_b", "self_attn.q_b_proj"),
            ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"),
            ("attn_kv_a_norm", "self_attn.kv_a_layernorm"),
            ("attn_kv_b", "self_attn.kv_b_proj"),
        ],
        ..LLAMA
    },
];

/// Hugging Face's names of weights by GGUF's, without the prefix before `layers`. "blk" is the list of layers.
const LLAMA_NAMES: [(&str, &str); 23] = [
    ("token_embd", "embed_tokens"),
    ("blk", "layers"),
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_exps", "mlp.experts.{}.gate_proj"),
    ("ffn_up_exps", "mlp.experts.{}.up_proj"),
    ("ffn_down_exps", "mlp.experts.{}.down_proj"),
    ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
    ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
    ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
    ("output_norm", "norm"),
    ("output", "lm_head"),
];

impl Traits {
    /// The conventions of a family.
    pub fn of(family: Family) -> &'static Traits {
        // The table has an entry for each family: tested.
        ALL.iter().find(|traits| traits.family == family).unwrap_or(&LLAMA)
    }

    /// The family of a `model_type`.
    pub fn of_model_type(name: &str) -> Option<&'static Traits> {
        ALL.iter().find(|traits| traits.model_types.contains(&name))
    }

    /// The first family of a GGUF architecture.
    pub fn of_architecture(name: &str) -> Option<&'static Traits> {
        ALL.iter().find(|traits| traits.architecture == name)
    }

    /// All known values of `model_type`, for errors.
    pub fn model_types() -> String {
        listed(ALL.iter().flat_map(|traits| traits.model_types).copied())
    }

    /// All known architectures, for errors.
    pub fn architectures() -> String {
        listed(ALL.iter().map(|traits| traits.architecture))
    }

    /// The factor of the embeddings.
    pub fn embedding_scale(&self, hidden: usize) -> f64 {
        if self.gemma { (hidden as f64).sqrt() } else { 1.0 }
    }

    /// Hugging Face's name of a weight, by GGUF's.
    pub fn hf_name(&self, name: &'static str) -> &'static str {
        let named = self.names.iter().chain(&LLAMA_NAMES).find(|(gguf, _)| *gguf == name);
        named.map_or(name, |(_, hf_name)| hf_name)
    }
}

fn listed(names: impl Iterator<Item = &'static str>) -> String {
    let mut unique: Vec<&str> = Vec::new();
    names.for_each(|name| {
        if !unique.contains(&name) {
            unique.push(name)
        }
    });
    match unique.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => unique.concat(),
    }
}
