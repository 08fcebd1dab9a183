//! Configurations of the families that are not Llama's relatives, and of their experts.

mod fixtures;

use serde_json::json;
use warpwave_kernels::{ExpertScore, Glu, RopeScaling, Routing};
use warpwave_llm::{MlaConfig, NormKind};

use fixtures::{changed, config, oracle, says, set};

/// The configurations of the other families, as far as they differ from Llama's.
#[test]
fn more_configurations_are_read() {
    let read = |family: &str| config(&oracle(family));
    let falcon = read("falcon");
    assert_eq!(
        (falcon.norm, falcon.norm_eps, falcon.parallel, falcon.gated, falcon.glu),
        (NormKind::Layer, 1e-5, true, false, Glu::GeluErf)
    );
    assert_eq!((falcon.kv_heads, falcon.feed_forward, falcon.rope.rotary_dim), (1, 128, 8));
    let gemma = read("gemma");
    assert_eq!((gemma.glu, gemma.embedding_scale, gemma.attention_scale, gemma.kv_heads), (Glu::Gelu, 32f32.sqrt(), 0.25, 1));
    let neox = read("gpt_neox");
    assert_eq!((neox.rope.rotary_dim, neox.parallel, neox.gated, neox.kv_heads), (4, true, false, 2));
    let granite = read("granite");
    assert_eq!((granite.embedding_scale, granite.attention_scale, granite.residual_scale, granite.logit_scale), (6.0, 0.2, 0.4, 1.0 / 3.0));
    assert_eq!((read("llama_headdim").head_dim, read("olmo2").rope.base), (24, 500_000.0));
    let oss = read("gpt_oss");
    assert_eq!((oss.glu, oss.sliding_window, oss.sliding_layers), (Glu::Clamped, Some(8), vec![true, false]));
    let yarn = RopeScaling::Yarn { factor: 4.0, fast: 32.0, slow: 1.0, original: 128, truncate: false };
    assert_eq!((oss.rope.scaling, oss.rope.attention_factor), (yarn, None));
    let phi = read("phi");
    assert_eq!((phi.rope.rotary_dim, phi.parallel, phi.norm, phi.glu), (8, true, NormKind::Layer, Glu::Gelu));
    let stablelm = read("stablelm");
    assert_eq!((stablelm.rope.rotary_dim, stablelm.parallel, stablelm.gated), (4, false, true));
    let starcoder = read("starcoder2");
    assert_eq!((starcoder.sliding_window, starcoder.rope.base, starcoder.gated), (Some(10), 100_000.0, false));
}

#[test]
fn experts_are_read() {
    let moe = |family: &str| config(&oracle(family)).moe.unwrap();
    let mixtral = moe("mixtral");
    assert_eq!((mixtral.experts, mixtral.feed_forward, mixtral.shared_feed_forward, mixtral.sparse_layers), (4, 64, 0, vec![true; 2]));
    assert_eq!(mixtral.routing, Routing { normalize: true, ..Routing::new(2, ExpertScore::Softmax) });
    let qwen2 = moe("qwen2_moe");
    assert_eq!((qwen2.experts, qwen2.feed_forward, qwen2.shared_feed_forward, qwen2.sparse_layers), (6, 32, 48, vec![true, false, true]));
    assert_eq!(qwen2.routing, Routing::new(2, ExpertScore::Softmax));
    assert_eq!(moe("qwen3_moe").routing, Routing { normalize: true, ..Routing::new(3, ExpertScore::Softmax) });
    let third = moe("deepseek_v3");
    assert_eq!((third.experts, third.feed_forward, third.shared_feed_forward, third.sparse_layers), (8, 20, 20, vec![false, true, true]));
    let sigmoid = Routing { normalize: true, scale: 2.5, ..Routing::new(3, ExpertScore::Sigmoid) };
    assert_eq!(third.routing, Routing { groups: 4, used_groups: 2, group_sum_of_two: true, ..sigmoid });
    assert_eq!(moe("deepseek_v2").routing, Routing { scale: 1.5, ..Routing::new(2, ExpertScore::Softmax) });
    let read = config(&oracle("deepseek_v3"));
    assert_eq!((read.head_dim, read.rope.rotary_dim, read.mla), (16, 8, Some(MlaConfig { q_lora: Some(24), kv_lora: 16, value_dim: 12 })));
    assert!((read.attention_scale - 0.25 * (0.1 * 4f32.ln() + 1.0).powi(2)).abs() < 1e-6 && read.rope.attention_factor == Some(1.0));
    assert_eq!(moe("gpt_oss").routing, Routing { normalize: true, ..Routing::new(2, ExpertScore::ChosenSoftmax) });
    assert_eq!(moe("phimoe").routing, Routing::new(2, ExpertScore::SparseMixer { epsilon: 0.05 }));
}

/// The configurations of transformers 5 keep all RoPE parameters in one object.
#[test]
fn both_forms_of_rope_parameters_are_the_same() {
    for (family, part) in [("gpt_neox", Some(0.25)), ("phi", Some(0.5)), ("stablelm", Some(0.25)), ("granite", None), ("falcon", None)] {
        let folder = changed(family, |config| {
            let mut rope = json!({"rope_type": "default", "rope_theta": config["rope_theta"]});
            if let Some(part) = part {
                rope["partial_rotary_factor"] = json!(part);
            }
            for key in ["rope_theta", "rope_scaling", "partial_rotary_factor", "rotary_pct", "rotary_emb_base"] {
                config.as_object_mut().unwrap().remove(key);
            }
            config["rope_parameters"] = rope;
        });
        assert_eq!(config(folder.path()), config(&oracle(family)), "{family}");
    }
}

#[test]
fn unsupported_values_are_named() {
    let cases = [
        ("llama3", json!({"attention_multiplier": 0.5}), ["attention_multiplier", "0.5"]),
        ("llama3", json!({"quantization_config": {"quant_method": "bitsandbytes"}}), ["quantization_config.quant_method", "bitsandbytes"]),
        ("gpt_oss", json!({"swiglu_limit": 5.0}), ["swiglu_limit", "5"]),
        ("falcon", json!({"alibi": true}), ["alibi", "true"]),
        ("mixtral", json!({"num_experts_per_tok": 5}), ["num_experts", "1 to 4 experts per token, got 5"]),
        ("mixtral", json!({"num_local_experts": 0}), ["num_experts", "0"]),
        ("mixtral", json!({"num_local_experts": 5}), ["block_sparse_moe.gate.weight", "[5, 32]"]),
        ("deepseek_v2", json!({"topk_method": "random"}), ["topk_method", "random"]),
        ("deepseek_v2", json!({"norm_topk_prob": true}), ["norm_topk_prob", "true"]),
        ("deepseek_v3", json!({"scoring_func": "softmax"}), ["scoring_func", "softmax"]),
        ("deepseek_v3", json!({"n_group": 3}), ["num_experts", "8 experts cannot be divided into 3 groups"]),
        ("deepseek_v3", json!({"v_head_dim": 17}), ["v_head_dim", "17"]),
        ("deepseek_v3", json!({"rope_interleave": false}), ["rope_interleave", "false"]),
        ("qwen2_moe", json!({"mlp_only_layers": []}), ["model.layers.1.mlp.gate.weight", "missing"]),
        ("phi", json!({"qk_layernorm": true}), ["qk_layernorm", "true"]),
        ("phi", json!({"hidden_act": "gelu"}), ["hidden_act", "gelu"]),
        ("granite", json!({"logits_scaling": 0.0}), ["logits_scaling", "inf"]),
        ("gpt_neox", json!({"partial_rotary_factor": 0.0}), ["partial_rotary_factor", "0"]),
    ];
    for (family, pairs, words) in cases {
        says(changed(family, set(pairs)).path(), &words);
    }
}
