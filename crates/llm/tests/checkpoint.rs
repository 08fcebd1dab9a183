//! Checkpoints: folders and GGUF files are the same model, and what is wrong with them is named.

mod fixtures;

use std::borrow::Cow;
use std::fs;
use std::path::PathBuf;

use half::bf16;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use warpwave_kernels::{DType, Glu, Quant, RopePairs, RopeScaling};
use warpwave_llm::{Checkpoint, Config, Family, MemoryPlan, Precision, RopeConfig};
use warpwave_tensor::{Device, KvCacheType};
use warpwave_weights::{Array, Error, Gguf, Kind, TensorInfo, Value, write_gguf};

use fixtures::{changed, config, oracle, says, set, temporary};

const FAMILIES: [&str; 8] = ["llama3", "llama_bias", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3"];

/// Families with weights of their own names.
const MORE: [&str; 16] = [
    "deepseek_v2",
    "deepseek_v3",
    "falcon",
    "gemma",
    "gpt_neox",
    "gpt_oss",
    "granite",
    "llama_headdim",
    "mixtral",
    "olmo2",
    "phi",
    "phimoe",
    "qwen2_moe",
    "qwen3_moe",
    "stablelm",
    "starcoder2",
];

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

#[test]
fn oracle_configurations_are_read() {
    let llama = config(&oracle("llama3"));
    assert_eq!((llama.family, llama.pairs, llama.glu), (Family::Llama, RopePairs::Interleaved, Glu::Silu));
    assert_eq!((llama.vocab, llama.hidden, llama.layers, llama.heads, llama.kv_heads), (320, 64, 3, 4, 2));
    assert_eq!((llama.head_dim, llama.feed_forward, llama.context, llama.norm_eps), (16, 112, 512, 1e-6));
    assert_eq!((llama.bos, llama.eos.as_slice(), llama.attention_scale, llama.embedding_scale), (Some(1), &[2][..], 0.25, 1.0));
    assert_eq!((llama.sliding_window, llama.sliding_layers.as_slice(), llama.rope_sliding.as_ref()), (None, &[false; 3][..], None));
    let scaling = RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 64 };
    let ((ours, factor), (expected, _)) = (llama.rope.frequencies(512), scaling.frequencies(16, 500_000.0));
    assert!(factor == 1.0 && ours.len() == 8 && ours.iter().zip(&expected).all(|(a, b)| (a / b - 1.0).abs() < 3e-7));
    assert!(ours[7] < llama.rope.base.powf(-14.0 / 16.0) as f32 / 7.0, "low frequencies are scaled");

    let mistral = config(&oracle("mistral"));
    assert_eq!((mistral.family, mistral.sliding_window, mistral.sliding_layers), (Family::Mistral, Some(12), vec![true; 3]));
    let qwen2 = config(&oracle("qwen2"));
    assert_eq!((qwen2.family, qwen2.pairs, qwen2.sliding_window, qwen2.kv_heads), (Family::Qwen2, RopePairs::Halves, None, 1));
    assert_eq!(qwen2.rope, RopeConfig::plain(10_000.0, 16));
    let qwen3 = config(&oracle("qwen3"));
    assert_eq!((qwen3.family, qwen3.head_dim), (Family::Qwen3, 32));
    let gemma2 = config(&oracle("gemma2"));
    assert_eq!((gemma2.family, gemma2.glu, gemma2.embedding_scale), (Family::Gemma2, Glu::Gelu, 8.0));
    assert_eq!((gemma2.sliding_window, gemma2.sliding_layers.as_slice()), (Some(10), &[true, false, true][..]));
    assert_eq!((gemma2.attention_softcap, gemma2.logit_softcap, gemma2.attention_scale), (Some(50.0), Some(30.0), 0.25));
    let gemma3 = config(&oracle("gemma3"));
    assert_eq!((gemma3.sliding_window, gemma3.sliding_layers.as_slice()), (Some(8), &[true, true, true, true, true, false][..]));
    assert_eq!((gemma3.rope.base, gemma3.rope_sliding), (1e6, Some(RopeConfig::plain(10_000.0, 16))));
    assert_eq!((gemma3.attention_softcap, gemma3.logit_softcap), (None, None));
    let phi3 = config(&oracle("phi3"));
    assert_eq!((phi3.family, phi3.pairs, phi3.norm_eps, phi3.sliding_window), (Family::Phi3, RopePairs::Halves, 1e-5, None));
}

#[test]
fn all_weights_have_their_names() {
    for family in FAMILIES {
        let model = Checkpoint::open(oracle(family)).unwrap();
        let layer: &[&str] = match family {
            "llama3" | "mistral" => {
                &["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"]
            }
            "llama_bias" => &[
                "attn_norm",
                "attn_q",
                "attn_q.bias",
                "attn_k",
                "attn_k.bias",
                "attn_v",
                "attn_v.bias",
                "attn_output",
                "attn_output.bias",
                "ffn_norm",
                "ffn_gate",
                "ffn_gate.bias",
                "ffn_up",
                "ffn_up.bias",
                "ffn_down",
                "ffn_down.bias",
            ],
            "qwen2" => &[
                "attn_norm",
                "attn_q",
                "attn_q.bias",
                "attn_k",
                "attn_k.bias",
                "attn_v",
                "attn_v.bias",
                "attn_output",
                "ffn_norm",
                "ffn_gate",
                "ffn_up",
                "ffn_down",
            ],
            "qwen3" => &[
                "attn_norm",
                "attn_q",
                "attn_k",
                "attn_v",
                "attn_q_norm",
                "attn_k_norm",
                "attn_output",
                "ffn_norm",
                "ffn_gate",
                "ffn_up",
                "ffn_down",
            ],
            "gemma2" => &[
                "attn_norm",
                "attn_q",
                "attn_k",
                "attn_v",
                "attn_output",
                "post_attention_norm",
                "ffn_norm",
                "ffn_gate",
                "ffn_up",
                "ffn_down",
                "post_ffw_norm",
            ],
            "gemma3" => &[
                "attn_norm",
                "attn_q",
                "attn_k",
                "attn_v",
                "attn_q_norm",
                "attn_k_norm",
                "attn_output",
                "post_attention_norm",
                "ffn_norm",
                "ffn_gate",
                "ffn_up",
                "ffn_down",
                "post_ffw_norm",
            ],
            _ => &["attn_norm", "attn_qkv", "attn_output", "ffn_norm", "ffn_up", "ffn_down"],
        };
        let whole = |name: &str| if name.ends_with(".bias") { name.to_owned() } else { format!("{name}.weight") };
        let mut expected = vec!["token_embd.weight".to_owned()];
        for number in 0..model.config().layers {
            expected.extend(layer.iter().map(|name| format!("blk.{number}.{}", whole(name))));
        }
        expected.push("output_norm.weight".into());
        let tied = ["qwen2", "gemma2", "gemma3"].contains(&family);
        if !tied {
            expected.push("output.weight".into());
        }
        assert_eq!(model.names().collect::<Vec<_>>(), expected, "{family}");
        assert_eq!(model.is_tied(), tied);
        let listed: Vec<_> = model.config().weights(tied).collect();
        // Biases are required of Qwen2 alone.
        let required = model.infos().filter(|info| family == "qwen2" || !info.name.ends_with(".bias"));
        assert!(required.map(|info| (info.name, info.shape)).eq(listed), "{family}");
        assert!(model.get("blk.0.attn_z.weight").unwrap_err().to_string().contains("`blk.0.attn_z.weight`"));
    }
}

#[test]
fn weights_of_folders_get_the_conventions_of_gguf() {
    for family in FAMILIES {
        let model = Checkpoint::open(oracle(family)).unwrap();
        let bytes = fs::read(oracle(family).join("model.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let same = |name: &str, source: &str| {
            let (ours, theirs) = (model.get(name).unwrap(), file.tensor(source).unwrap());
            assert_eq!((ours.kind, ours.shape.as_slice()), (Kind::Plain(DType::F32), theirs.shape()), "{family} {name}");
            assert_eq!(&*ours.bytes, theirs.data(), "{family} {name}");
            assert!(matches!(ours.bytes, Cow::Borrowed(_)), "{name} needs no copy");
        };
        let layer = "model.layers.1";
        same("token_embd.weight", "model.embed_tokens.weight");
        same("blk.1.ffn_down.weight", &format!("{layer}.mlp.down_proj.weight"));
        same("blk.1.attn_output.weight", &format!("{layer}.self_attn.o_proj.weight"));
        match family {
            "llama3" | "mistral" => {
                for (name, source, heads) in [("attn_q", "q_proj", 4), ("attn_k", "k_proj", 2)] {
                    let ours = floats(&model.get(&format!("blk.1.{name}.weight")).unwrap().bytes);
                    let theirs = floats(file.tensor(&format!("{layer}.self_attn.{source}.weight")).unwrap().data());
                    for (head, pair, part) in (0..heads).flat_map(|h| (0..8).flat_map(move |p| [(h, p, 0), (h, p, 1)])) {
                        let (ours_row, theirs_row) = (head * 16 + 2 * pair + part, head * 16 + 8 * part + pair);
                        assert_eq!(ours[ours_row * 64..][..64], theirs[theirs_row * 64..][..64], "{family} {name} {head} {pair} {part}");
                    }
                }
                same("blk.1.attn_v.weight", &format!("{layer}.self_attn.v_proj.weight"));
                same("blk.1.ffn_norm.weight", &format!("{layer}.post_attention_layernorm.weight"));
                same("output.weight", "lm_head.weight");
            }
            "llama_bias" => {
                same("blk.1.attn_v.bias", &format!("{layer}.self_attn.v_proj.bias"));
                same("blk.1.attn_output.bias", &format!("{layer}.self_attn.o_proj.bias"));
                for part in ["gate", "up", "down"] {
                    same(&format!("blk.1.ffn_{part}.bias"), &format!("{layer}.mlp.{part}_proj.bias"));
                }
            }
            "gemma2" | "gemma3" => {
                let norms = [
                    ("attn_norm", "input_layernorm"),
                    ("post_attention_norm", "post_attention_layernorm"),
                    ("ffn_norm", "pre_feedforward_layernorm"),
                    ("post_ffw_norm", "post_feedforward_layernorm"),
                ];
                let more = [("attn_q_norm", "self_attn.q_norm"), ("attn_k_norm", "self_attn.k_norm")];
                for (name, source) in norms.into_iter().chain(more.into_iter().filter(|_| family == "gemma3")) {
                    let ours = floats(&model.get(&format!("blk.1.{name}.weight")).unwrap().bytes);
                    let theirs = floats(file.tensor(&format!("{layer}.{source}.weight")).unwrap().data());
                    assert!(ours.iter().zip(&theirs).all(|(ours, theirs)| *ours == theirs + 1.0) && ours.len() == theirs.len(), "{name}");
                }
                same("blk.1.attn_q.weight", &format!("{layer}.self_attn.q_proj.weight"));
            }
            "phi3" => {
                same("blk.1.attn_qkv.weight", &format!("{layer}.self_attn.qkv_proj.weight"));
                same("blk.1.ffn_up.weight", &format!("{layer}.mlp.gate_up_proj.weight"));
            }
            _ => {
                same("blk.1.attn_k.weight", &format!("{layer}.self_attn.k_proj.weight"));
                same("blk.1.ffn_gate.weight", &format!("{layer}.mlp.gate_proj.weight"));
                if family == "qwen2" {
                    same("blk.1.attn_q.bias", &format!("{layer}.self_attn.q_proj.bias"));
                } else {
                    same("blk.1.attn_q_norm.weight", &format!("{layer}.self_attn.q_norm.weight"));
                }
            }
        }
    }
}

#[test]
fn gguf_in_f32_is_the_same_model() {
    let folder = temporary();
    for family in FAMILIES.into_iter().chain(MORE) {
        let model = Checkpoint::open(oracle(family)).unwrap();
        let path = folder.path().join(format!("{family}.gguf"));
        let mut last = (0, 1);
        model.write_gguf(&path, Some(Kind::Plain(DType::F32)), |done, total| last = (done, total)).unwrap();
        assert!(last.0 == last.1 && last.0 > 100_000, "{last:?}");
        let again = Checkpoint::open(&path).unwrap();
        assert_eq!(again.config(), model.config(), "{family}");
        assert!(again.names().eq(model.names()));
        for name in model.names() {
            let (old, new) = (model.get(name).unwrap(), again.get(name).unwrap());
            assert_eq!((old.kind, &old.shape), (new.kind, &new.shape), "{family} {name}");
            assert!(old.bytes == new.bytes, "{family} {name}");
        }
        // And once more, from GGUF to GGUF.
        let second = folder.path().join("second.gguf");
        again.write_gguf(&second, None, |_, _| ()).unwrap();
        let second = Checkpoint::open(&second).unwrap();
        assert_eq!(second.config(), model.config());
        assert!(model.names().all(|name| model.get(name).unwrap().bytes == second.get(name).unwrap().bytes));
    }
}

#[test]
fn other_types_are_as_near_as_they_can_be() {
    let folder = temporary();
    let path = folder.path().join("model.gguf");
    let model = Checkpoint::open(oracle("llama3")).unwrap();
    // Rows of 64 and, in `ffn_down`, of 112: neither is whole blocks of 256, and the latter not of 32.
    let [f16, bf16] = [DType::F16, DType::Bf16].map(Kind::Plain);
    let [q8_0, q4_k, q5_0] = [Quant::Q8_0, Quant::Q4K, Quant::Q5_0].map(Kind::Quant);
    // Q5_0 clips what is as large as the largest and of the other sign: a step of 1/16.
    let cases =
        [(f16, f16, f16, f16, 0.0005), (bf16, bf16, bf16, bf16, 0.004), (q8_0, q8_0, q8_0, f16, 0.005), (q4_k, q5_0, q8_0, f16, 0.064)];
    for (to, expected, output, down, bound) in cases {
        model.write_gguf(&path, Some(to), |_, _| ()).unwrap();
        let file = Gguf::open(&path).unwrap();
        assert_eq!(file.tensor("blk.0.attn_norm.weight").unwrap().kind, Kind::Plain(DType::F32));
        assert_eq!(file.tensor("blk.0.ffn_down.weight").unwrap().kind, down);
        assert_eq!(file.tensor("output.weight").unwrap().kind, output);
        let again = Checkpoint::open(&path).unwrap();
        assert_eq!(again.config(), model.config());
        again.write_gguf(folder.path().join("back.gguf"), Some(Kind::Plain(DType::F32)), |_, _| ()).unwrap();
        let back = Checkpoint::open(folder.path().join("back.gguf")).unwrap();
        assert_eq!(again.get("blk.2.attn_q.weight").unwrap().kind, expected);
        for name in model.names() {
            let (old, new) = (floats(&model.get(name).unwrap().bytes), floats(&back.get(name).unwrap().bytes));
            let largest = old.iter().fold(0f32, |a, x| a.max(x.abs()));
            let worst = old.iter().zip(&new).fold(0f32, |a, (x, y)| a.max((x - y).abs()));
            assert!(worst <= bound * largest, "{to} {name}: {worst} of {largest}");
            assert!(worst > 0.0 || name.contains("norm"), "{to} {name} was converted");
        }
    }
    let error = model.write_gguf(&path, Some(Kind::Quant(Quant::Int8)), |_, _| ()).unwrap_err().to_string();
    assert!(error.contains("int8"), "{error}");
}

#[test]
fn older_forms_of_angles_are_the_same() {
    let same = |family: &str, pairs: Json| {
        let folder = changed(family, set(pairs));
        assert_eq!(config(folder.path()), config(&oracle(family)), "{family}");
    };
    let llama3 =
        json!({"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64});
    same("llama3", json!({"rope_parameters": "remove", "rope_theta": 500000.0, "rope_scaling": llama3}));
    same("llama3", json!({"head_dim": "remove"}));
    same("mistral", json!({"rope_parameters": "remove", "rope_scaling": null}));
    same(
        "gemma3",
        json!({"rope_parameters": "remove", "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "layer_types": "remove", "_sliding_window_pattern": "remove", "sliding_window_pattern": 6}),
    );
    same(
        "gemma3",
        json!({"rope_parameters": "remove", "layer_types": "remove", "_sliding_window_pattern": "remove", "attn_logit_softcapping": "remove"}),
    );
    same(
        "gemma2",
        json!({"rope_parameters": "remove", "layer_types": "remove", "attn_logit_softcapping": "remove", "final_logit_softcapping": "remove", "tie_word_embeddings": "remove"}),
    );
    same("qwen2", json!({"rope_parameters": "remove", "rope_theta": 10000.0, "layer_types": "remove", "sliding_window": 131072}));
    same("phi3", json!({"rope_parameters": "remove", "rope_theta": 10000.0}));
}

#[test]
fn angles_are_stretched_as_said() {
    let rope = |family: &str, scaling: Json| {
        let folder = changed(family, set(json!({"rope_parameters": "remove", "rope_theta": 10000.0, "rope_scaling": scaling})));
        let model = Checkpoint::open(folder.path()).unwrap();
        // All forms go through GGUF.
        let path = folder.path().join("model.gguf");
        model.write_gguf(&path, None, |_, _| ()).unwrap();
        assert_eq!(Checkpoint::open(&path).unwrap().config(), model.config());
        model.config().rope.clone()
    };
    assert_eq!(rope("qwen2", json!({"type": "linear", "factor": 4.0})).scaling, RopeScaling::Linear(4.0));
    assert_eq!(rope("qwen2", json!({"rope_type": "dynamic", "factor": 4.0})).scaling, RopeScaling::None);
    let yarn = rope("qwen2", json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}));
    assert_eq!(
        (yarn.scaling, yarn.attention_factor),
        (RopeScaling::Yarn { factor: 4.0, fast: 32.0, slow: 1.0, original: 128, truncate: true }, None)
    );
    let short: Vec<f32> = (0..8).map(|i| 1.0 + i as f32 / 8.0).collect();
    let long: Vec<f32> = (0..8).map(|i| 1.0 + i as f32).collect();
    let scaling = json!({"type": "longrope", "short_factor": short, "long_factor": long, "original_max_position_embeddings": 64});
    let stretched = rope("phi3", scaling);
    // 512 positions from 64: √(1 + ln 8 / ln 64).
    assert!((stretched.attention_factor.unwrap() - 1.5f64.sqrt()).abs() < 1e-7);
    let (plain, _) = RopeScaling::None.frequencies(16, 10000.0);
    let ((near, factor), (far, _)) = (stretched.frequencies(64), stretched.frequencies(65));
    assert_eq!(Some(factor), stretched.attention_factor);
    assert!(near.iter().zip(&plain).zip(&short).all(|((a, b), c)| *a == b / c));
    assert!(far.iter().zip(&plain).zip(&long).all(|((a, b), c)| *a == b / c));
}

#[test]
fn windows_tokens_and_nested_configurations_are_read() {
    let window = |family: &str, pairs: Json| {
        let config = config(changed(family, set(pairs)).path());
        (config.sliding_window, config.sliding_layers)
    };
    let sliding = json!({"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 1, "layer_types": "remove"});
    assert_eq!(window("qwen2", sliding), (Some(9), vec![false, true, true]));
    assert_eq!(window("mistral", json!({"sliding_window": null})), (None, vec![false; 3]));
    assert_eq!(window("phi3", json!({"sliding_window": 7})), (Some(7), vec![true; 3]));
    assert_eq!(window("gemma2", json!({"layer_types": ["full_attention", "full_attention", "sliding_attention"]})).1, [false, false, true]);

    let folder = changed("qwen3", set(json!({"eos_token_id": [2, 7]})));
    fs::write(folder.path().join("generation_config.json"), r#"{"eos_token_id": [7, 9]}"#).unwrap();
    assert_eq!(config(folder.path()).eos, [2, 7, 9]);
    let path = folder.path().join("model.gguf");
    Checkpoint::open(folder.path()).unwrap().write_gguf(&path, None, |_, _| ()).unwrap();
    assert_eq!(config(&path).eos, [2, 7, 9]);

    let nested =
        changed("gemma3", |config| *config = json!({"model_type": "gemma3", "text_config": config.clone(), "eos_token_id": [1, 106]}));
    assert_eq!(config(nested.path()), config(&oracle("gemma3")), "the inner object counts first");
    let scaled = config(changed("gemma2", set(json!({"query_pre_attn_scalar": 64}))).path());
    assert_eq!(scaled.attention_scale, 0.125);
}

#[test]
fn absurd_configurations_are_named() {
    let cases = [
        ("llama3", json!({"num_attention_heads": 0}), ["num_attention_heads", "0"]),
        ("llama3", json!({"num_attention_heads": 3}), ["num_attention_heads", "got 3"]),
        ("llama3", json!({"num_attention_heads": 5, "head_dim": "remove"}), ["num_attention_heads", "64"]),
        ("llama3", json!({"num_key_value_heads": 0}), ["num_key_value_heads", "0"]),
        ("llama3", json!({"num_hidden_layers": 1u64 << 60}), ["num_hidden_layers", "1152921504606846976"]),
        ("llama3", json!({"num_hidden_layers": 0}), ["num_hidden_layers", "0"]),
        ("llama3", json!({"num_hidden_layers": 4}), ["model.layers.3.input_layernorm.weight", "missing"]),
        ("llama3", json!({"num_hidden_layers": 2}), ["model.layers.2.", "unexpected"]),
        ("llama3", json!({"num_hidden_layers": -1}), ["num_hidden_layers", "-1"]),
        ("llama3", json!({"hidden_size": 1u64 << 62}), ["hidden_size", "4611686018427387904"]),
        ("llama3", json!({"head_dim": 1u64 << 24}), ["num_attention_heads", "16777216"]),
        ("llama3", json!({"head_dim": 15}), ["rope", "15"]),
        ("llama3", json!({"vocab_size": 321}), ["model.embed_tokens.weight", "[321, 64]"]),
        ("llama3", json!({"vocab_size": "many"}), ["vocab_size", "many"]),
        ("llama3", json!({"hidden_act": "relu"}), ["hidden_act", "relu"]),
        ("llama3", json!({"mlp_bias": true}), ["model.layers.0.mlp.gate_proj.bias", "missing"]),
        ("llama3", json!({"num_local_experts": 8}), ["num_local_experts", "mixture-of-experts"]),
        ("llama3", json!({"model_type": "bert"}), ["model_type", "bert"]),
        ("llama3", json!({"model_type": "remove"}), ["model_type", "missing"]),
        ("llama3", json!({"rms_norm_eps": -1.0}), ["rms_norm_eps", "-1"]),
        ("llama3", json!({"max_position_embeddings": 0}), ["max_position_embeddings", "0"]),
        ("llama3", json!({"rope_parameters": {"rope_type": "llama3", "factor": 0.0}}), ["rope_parameters.factor", "invalid scaling"]),
        ("llama3", json!({"rope_parameters": {"rope_type": "spiral"}}), ["rope_parameters.rope_type", "spiral"]),
        ("llama3", json!({"rope_parameters": {"rope_theta": 0.0}}), ["rope_parameters", "base"]),
        ("llama3", json!({"rope_parameters": 7}), ["rope_parameters", "7"]),
        ("llama3", json!({"eos_token_id": -1}), ["eos_token_id", "-1"]),
        ("qwen2", json!({"rope_parameters": {"rope_type": "linear"}}), ["rope_parameters.factor", "missing"]),
        ("qwen2", json!({"rope_parameters": {"rope_type": "linear", "factor": -1.0}}), ["rope_parameters", "invalid scaling"]),
        ("gemma2", json!({"layer_types": ["full_attention"]}), ["layer_types", "expected 3 entries"]),
        ("gemma2", json!({"layer_types": ["a", "b", "c"]}), ["layer_types", "\"a\""]),
        ("gemma2", json!({"query_pre_attn_scalar": 0}), ["query_pre_attn_scalar", "inf"]),
        ("gemma2", json!({"final_logit_softcapping": -3.0}), ["final_logit_softcapping", "-3"]),
        ("gemma3", json!({"sliding_window_pattern": 0, "layer_types": "remove"}), ["sliding_window_pattern", "0"]),
        ("gemma3", json!({"sliding_window": 0}), ["sliding_window", "at least 1"]),
        ("phi3", json!({"partial_rotary_factor": 0.0, "rope_parameters": "remove"}), ["partial_rotary_factor", "0"]),
        (
            "phi3",
            json!({"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}}),
            ["rope_parameters", "expected 8 frequency factors"],
        ),
    ];
    for (family, pairs, words) in cases {
        says(changed(family, set(pairs)).path(), &words);
    }
    let folder = changed("llama3", |_| ());
    fs::write(folder.path().join("config.json"), "{\"a\": \u{ff}").unwrap();
    says(folder.path(), &["config.json", "invalid JSON"]);
    fs::write(folder.path().join("config.json"), "[".repeat(100_000)).unwrap();
    says(folder.path(), &["config.json", "invalid JSON"]);
    fs::remove_file(folder.path().join("config.json")).unwrap();
    says(folder.path(), &["config.json"]);
    says(&folder.path().join("none.gguf"), &["none.gguf"]);
}

/// A GGUF file with other metadata or tensors than the oracle's.
fn rewritten(folder: &TempDir, change: impl Fn(&mut Vec<(Cow<'_, str>, Value<'_>)>, &mut Vec<TensorInfo>)) -> PathBuf {
    let (good, path) = (folder.path().join("good.gguf"), folder.path().join("changed.gguf"));
    Checkpoint::open(oracle("llama3")).unwrap().write_gguf(&good, None, |_, _| ()).unwrap();
    let file = Gguf::open(&good).unwrap();
    let mut metadata = file.metadata().map(|(key, value)| (key.into(), value)).collect();
    let mut tensors: Vec<_> = file.tensors().map(|t| TensorInfo { name: t.name.into(), kind: t.kind, shape: t.shape.to_vec() }).collect();
    change(&mut metadata, &mut tensors);
    let data = |index: usize| Ok::<_, Error>(vec![0x3f; tensors[index].kind.bytes(&tensors[index].shape).unwrap()].into());
    write_gguf(&path, &metadata, &tensors, data, |_, _| ()).unwrap();
    path
}

#[test]
fn absurd_gguf_files_are_named() {
    let folder = temporary();
    let key = |key: &'static str, value: Option<Value<'static>>, words: &[&str]| {
        let path = rewritten(&folder, |metadata, _| {
            metadata.retain(|(name, _)| name != key);
            metadata.extend(value.clone().map(|value| (key.into(), value)));
        });
        says(&path, words);
    };
    key("general.architecture", None, &["general.architecture", "missing"]);
    key("general.architecture", Some("bert".into()), &["general.architecture", "bert"]);
    key("llama.block_count", None, &["llama.block_count", "missing"]);
    key("llama.block_count", Some(u64::MAX.into()), &["llama.block_count", "18446744073709551615"]);
    key("llama.block_count", Some("three".into()), &["llama.block_count", "string"]);
    key("llama.block_count", Some(4u32.into()), &["`blk.3.attn_norm.weight`", "missing"]);
    key("llama.attention.head_count", Some(0u32.into()), &["attention.head_count", "0"]);
    key("llama.attention.head_count_kv", Some(3u32.into()), &["attention.head_count", "3"]);
    key("llama.expert_count", Some(8u32.into()), &["llama.expert_count", "experts"]);
    key("llama.rope.scaling.type", Some("spiral".into()), &["llama.rope.scaling.type", "spiral"]);
    key("llama.rope.freq_base", Some(f32::NAN.into()), &["rope", "NaN"]);
    key("llama.rope.dimension_count", Some(18u32.into()), &["rope", "18"]);
    key("llama.attention.layer_norm_rms_epsilon", None, &["layer_norm_rms_epsilon", "missing"]);
    key("llama.attention.value_length", Some(8u32.into()), &["value_length", "8"]);

    let tensors = |change: fn(&mut Vec<TensorInfo>), words: &[&str]| says(&rewritten(&folder, |_, tensors| change(tensors)), words);
    tensors(|tensors| tensors.retain(|t| t.name != "blk.1.ffn_up.weight"), &["`blk.1.ffn_up.weight`", "missing", "[112, 64]"]);
    tensors(|tensors| tensors.retain(|t| t.name != "token_embd.weight"), &["`token_embd.weight`", "missing"]);
    tensors(|tensors| tensors[3].shape.reverse(), &["`blk.0.attn_k.weight`", "[32, 64]", "[64, 32]"]);
    tensors(|tensors| tensors[2].name = "blk.0.attn_q.strange".into(), &["blk.0.attn_q.weight", "missing"]);
    let more = TensorInfo { name: "blk.0.ffn_gate_inp.weight".into(), kind: Kind::Plain(DType::F32), shape: vec![8, 64] };
    says(&rewritten(&folder, |_, tensors| tensors.push(more.clone())), &["`blk.0.ffn_gate_inp.weight`", "unexpected"]);
    tensors(|tensors| tensors[1].kind = Kind::Plain(DType::I32), &["`blk.0.attn_norm.weight`", "i32"]);
    tensors(|tensors| tensors.last_mut().unwrap().shape = vec![7], &["rope", "got 7"]);
    tensors(|tensors| tensors.last_mut().unwrap().kind = Kind::Plain(DType::F16), &["`rope_freqs.weight`", "f16"]);

    // A file cut anywhere is refused by the reader.
    let whole = fs::read(folder.path().join("good.gguf")).unwrap();
    let cut = folder.path().join("cut.gguf");
    for length in [0, 3, 20, 200, 3000, whole.len() / 2, whole.len() - 32] {
        fs::write(&cut, &whole[..length]).unwrap();
        says(&cut, &["cut.gguf"]);
    }
}

#[test]
fn the_tokenizer_goes_along() {
    let folder = changed("llama3", |_| ());
    let put = |name: &str, json: Json| fs::write(folder.path().join(name), json.to_string()).unwrap();
    let tokenizer = json!({
        "added_tokens": [{"id": 1, "content": "<s>", "special": true}, {"id": 5, "content": "<tool>", "special": false}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
        "post_processor": {"type": "Sequence", "processors": [{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}], "special_tokens": {"<s>": {"ids": [1]}}}]},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 2, "ab": 3, "Ġab": 4}, "merges": ["a b", ["Ġ", "ab"]]}
    });
    put("tokenizer.json", tokenizer.clone());
    put(
        "tokenizer_config.json",
        json!({"chat_template": [{"name": "other", "template": "no"}, {"name": "default", "template": "{{ yes }}"}]}),
    );
    let path = folder.path().join("model.gguf");
    let write = || Checkpoint::open(folder.path()).unwrap().write_gguf(&path, None, |_, _| ());
    write().unwrap();
    let file = Gguf::open(&path).unwrap();
    assert_eq!(file.need_str("tokenizer.ggml.model").unwrap(), "gpt2");
    assert_eq!(file.need_str("tokenizer.ggml.pre").unwrap(), "gpt-2");
    let tokens: Vec<_> = file.need_strs("tokenizer.ggml.tokens").unwrap().collect();
    assert_eq!((tokens.len(), &tokens[..7]), (320, &["a", "<s>", "b", "ab", "Ġab", "<tool>", "[PAD6]"][..]));
    assert_eq!(file.need_i64s("tokenizer.ggml.token_type").unwrap()[..7], [1, 3, 1, 1, 1, 4, 5]);
    assert_eq!(file.need_strs("tokenizer.ggml.merges").unwrap().collect::<Vec<_>>(), ["a b", "Ġ ab"]);
    assert_eq!(file.need_str("tokenizer.chat_template").unwrap(), "{{ yes }}");
    assert!(file.need_bool("tokenizer.ggml.add_bos_token").unwrap());
    assert_eq!((file.need_u64("tokenizer.ggml.bos_token_id").unwrap(), file.need_u64("tokenizer.ggml.eos_token_id").unwrap()), (1, 2));
    assert_eq!(serde_json::from_str::<Json>(file.need_str("tokenizer.huggingface.json").unwrap()).unwrap(), tokenizer);

    // From GGUF to GGUF all of it goes along.
    let second = folder.path().join("second.gguf");
    Checkpoint::open(&path).unwrap().write_gguf(&second, Some(Kind::Quant(Quant::Q8_0)), |_, _| ()).unwrap();
    let second = Gguf::open(&second).unwrap();
    let all = |file: &Gguf| -> Vec<String> {
        let texts = file.metadata().filter(|(key, _)| key.starts_with("tokenizer."));
        texts.map(|(key, value)| format!("{key} {value:?}")).collect()
    };
    assert_eq!(all(&second), all(&file));
    assert_eq!((file.need_u64("general.file_type").unwrap(), second.need_u64("general.file_type").unwrap()), (0, 7));

    // SentencePiece: bytes, and scores in the order of merges.
    put(
        "tokenizer.json",
        json!({
            "normalizer": {"type": "Prepend", "prepend": "▁"},
            "model": {"type": "BPE", "byte_fallback": true, "unk_token": "<unk>", "vocab": {"<unk>": 0, "<0x0A>": 1, "a": 2, "b": 3, "ab": 4, "aba": 5},
                      "merges": ["a b", "ab a"]}
        }),
    );
    write().unwrap();
    let file = Gguf::open(&path).unwrap();
    assert_eq!(file.need_str("tokenizer.ggml.model").unwrap(), "llama");
    assert_eq!(file.need_i64s("tokenizer.ggml.token_type").unwrap()[..6], [2, 6, 1, 1, 1, 1]);
    let scores = file.need_f32s("tokenizer.ggml.scores").unwrap();
    assert!(scores[4] > scores[5] && file.need_bool("tokenizer.ggml.add_space_prefix").unwrap());

    put("tokenizer.json", json!({"model": {"type": "BPE", "vocab": {"a": 320}, "merges": []}}));
    let error = write().unwrap_err().to_string();
    assert!(error.contains("model.vocab") && error.contains("320"), "{error}");
    put("tokenizer.json", json!({"model": {"type": "BPE", "vocab": {"a": 3}, "merges": [["a"]]}}));
    let error = write().unwrap_err().to_string();
    assert!(error.contains("model.merges") && error.contains("entry 0"), "{error}");
}

#[test]
fn memory_is_counted() {
    // Llama 3.1 8B: 8,030,261,248 weights; 32 layers of 8 heads of 128 for keys and for values.
    let config = Config {
        vocab: 128_256,
        hidden: 4096,
        layers: 32,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        feed_forward: 14_336,
        ..config(&oracle("llama3"))
    };
    let weights: usize = config.weights(false).map(|(_, shape)| shape.iter().product::<usize>()).sum();
    assert_eq!(weights, 8_030_261_248);
    let plan = |cache, context| {
        let (devices, precision, chunk) = (vec![Device::Cpu], Precision::Fast, Some(512));
        MemoryPlan { devices, weights: None, precision, kv_cache: Some(cache), context, cache_tokens: None, chunk }
    };
    let random = Checkpoint::random(Config { sliding_layers: vec![false; 32], ..config }, Kind::Plain(DType::Bf16)).unwrap();
    let memory = random.memory(&plan(KvCacheType::F16, 8192)).unwrap()[0];
    // Norms are f32.
    assert_eq!(memory.weights, 2 * (weights + (2 * 32 + 1) * 4096) as u64);
    assert_eq!((memory.kv_per_token, memory.kv), (131_072, 1 << 30));
    // The residual stream and its norm, gate and up, and their product; and the step's inputs.
    let activations = (2 * 4096 + 3 * 14_336) * 512 * 4;
    assert!((activations..activations + (1 << 20)).contains(&memory.activations), "{memory:?}");
    assert_eq!(memory.total(), memory.weights + memory.kv + memory.activations + memory.scratch);
    let model = Checkpoint::open(oracle("llama3")).unwrap();
    let file = fs::metadata(oracle("llama3").join("model.safetensors")).unwrap().len();
    let plain = model.memory(&plan(KvCacheType::F32, 512)).unwrap()[0];
    assert!(plain.weights < file && plain.weights > file - 5000, "all but the header");
    assert_eq!(plain.kv_per_token, 3 * 2 * 2 * 16 * 4);
    let of_four = MemoryPlan { cache_tokens: Some(4 * 512), ..plan(KvCacheType::F32, 512) };
    assert_eq!(model.memory(&of_four).unwrap()[0].kv, 4 * plain.kv);
    let quantized = MemoryPlan { weights: Some(Kind::Quant(Quant::Q8_0)), ..plan(KvCacheType::F16, 512) };
    assert!(model.memory(&quantized).unwrap()[0].weights < plain.weights / 2);
}

/// Uses everything in a configuration that was accepted.
fn use_config(model: &Checkpoint) {
    let config = model.config();
    for rope in [Some(&config.rope), config.rope_sliding.as_ref()].into_iter().flatten() {
        let (frequencies, factor) = rope.frequencies(config.context);
        assert!(frequencies.len() == rope.rotary_dim / 2 && frequencies.iter().all(|frequency| frequency.is_finite()), "{rope:?}");
        assert!(factor.is_finite());
    }
    assert_eq!(config.sliding_layers.len(), config.layers);
    let plan = MemoryPlan { chunk: Some(usize::MAX), ..MemoryPlan::new([Device::Cpu], usize::MAX) };
    assert!(model.memory(&plan).unwrap()[0].total() > 0);
}

#[test]
fn no_value_of_any_key_panics() {
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(3),
        json!(u64::MAX),
        json!(1u64 << 31),
        json!(1e308),
        json!(1e-308),
        json!("text"),
        json!([]),
        json!([-1, "x"]),
        json!({}),
        json!({"rope_type": "yarn", "factor": 1e300, "beta_fast": 1e-300}),
        json!({"rope_type": "longrope", "short_factor": [], "long_factor": [], "factor": 1e300}),
    ];
    let (mut good, mut bad) = (0, 0);
    for family in FAMILIES.into_iter().chain(["deepseek_v3", "falcon", "gpt_oss", "qwen2_moe"]) {
        let folder = changed(family, |_| ());
        let path = folder.path().join("config.json");
        let config: Json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let outer = config.as_object().unwrap().keys().map(|key| (None, key));
        let inner = config["rope_parameters"].as_object().into_iter().flatten().map(|(key, _)| (Some("rope_parameters"), key));
        for (within, key) in outer.chain(inner) {
            for value in &values {
                let mut config = config.clone();
                match within {
                    None => config[key] = value.clone(),
                    Some(within) => config[within][key] = value.clone(),
                }
                fs::write(&path, config.to_string()).unwrap();
                match Checkpoint::open(folder.path()) {
                    Ok(model) => {
                        use_config(&model);
                        good += 1;
                    }
                    Err(error) => {
                        assert!(error.to_string().len() < 600, "{error}");
                        bad += 1;
                    }
                }
            }
        }
    }
    assert!(good > 300 && bad > 300, "{good} opened, {bad} did not");

    let folder = temporary();
    let values: [Value<'static>; 6] =
        [0u32.into(), u64::MAX.into(), f32::INFINITY.into(), "text".into(), Array::bools([true; 3]).into(), true.into()];
    let good = folder.path().join("good.gguf");
    Checkpoint::open(oracle("gemma3")).unwrap().write_gguf(&good, None, |_, _| ()).unwrap();
    let bytes = fs::read(&good).unwrap();
    let file = Gguf::from_bytes("good", bytes).unwrap();
    let tensors: Vec<_> = file.tensors().map(|t| TensorInfo { name: t.name.into(), kind: t.kind, shape: t.shape.to_vec() }).collect();
    for (key, _) in file.metadata() {
        for value in &values {
            let metadata: Vec<(Cow<str>, Value)> =
                file.metadata().map(|(k, v)| (k.into(), if k == key { value.clone() } else { v })).collect();
            let data = |index: usize| Ok::<_, Error>(file.tensor(&tensors[index].name).unwrap().bytes.into());
            write_gguf(&good, &metadata, &tensors, data, |_, _| ()).unwrap();
            if let Ok(model) = Checkpoint::open(&good) {
                use_config(&model);
            }
        }
    }
}

#[test]
fn folders_in_bf16_with_biases_or_vision_parts_are_read() {
    for family in ["gemma3", "llama3"] {
        let folder = changed(family, set(json!({"attention_bias": true})));
        let path = folder.path().join("model.safetensors");
        let bytes = fs::read(&path).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let halves = |data: &[u8]| -> Vec<u8> { floats(data).into_iter().flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect() };
        let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> =
            file.iter().map(|(name, view)| (name.to_owned(), view.shape().to_vec(), halves(view.data()))).collect();
        if family == "llama3" {
            for (layer, (letter, rows)) in (0..3).flat_map(|layer| [("q", 64), ("k", 32), ("v", 32)].map(|part| (layer, part))) {
                let numbers = (0..rows).flat_map(|row| bf16::from_f32(row as f32).to_le_bytes()).collect();
                tensors.push((format!("model.layers.{layer}.self_attn.{letter}_proj.bias"), vec![rows], numbers));
            }
        }
        if family == "gemma3" {
            // As in vision-language models.
            tensors.iter_mut().for_each(|(name, _, _)| *name = format!("language_model.{name}"));
            tensors.push(("vision_tower.patches.weight".into(), vec![1], vec![0; 2]));
        }
        let views: Vec<_> =
            tensors.iter().map(|(name, shape, data)| (name, TensorView::new(Dtype::BF16, shape.clone(), data).unwrap())).collect();
        fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();

        let model = Checkpoint::open(folder.path()).unwrap();
        let matrix = model.get("blk.0.ffn_up.weight").unwrap();
        assert_eq!(matrix.kind, Kind::Plain(DType::Bf16));
        assert_eq!(&*matrix.bytes, halves(file.tensor("model.layers.0.mlp.up_proj.weight").unwrap().data()));
        let norm = model.get("blk.0.attn_norm.weight").unwrap();
        assert_eq!(norm.kind, Kind::Plain(DType::F32));
        let one = if family == "gemma3" { 1.0 } else { 0.0 };
        let expected = floats(file.tensor("model.layers.0.input_layernorm.weight").unwrap().data());
        let expected: Vec<f32> = expected.into_iter().map(|x| bf16::from_f32(x).to_f32() + one).collect();
        assert_eq!(floats(&norm.bytes), expected);
        if family == "llama3" {
            let [q, v] = ["q", "v"].map(|letter| floats(&model.get(&format!("blk.2.attn_{letter}.bias")).unwrap().bytes));
            assert_eq!(q[..4], [0.0, 8.0, 1.0, 9.0], "rows of a head's halves alternate");
            assert_eq!((q[15], q[16], q[17]), (15.0, 16.0, 24.0));
            assert_eq!(v[..3], [0.0, 1.0, 2.0]);
        }
        let (gguf, second) = (folder.path().join("model.gguf"), folder.path().join("second.gguf"));
        model.write_gguf(&gguf, None, |_, _| ()).unwrap();
        let again = Checkpoint::open(&gguf).unwrap();
        assert!(model.names().all(|name| model.get(name).unwrap().bytes == again.get(name).unwrap().bytes));
        assert_eq!(again.names().count(), model.names().count());
        // To f32 and back nothing is lost.
        again.write_gguf(&second, Some(Kind::Plain(DType::F32)), |_, _| ()).unwrap();
        let wide = Checkpoint::open(&second).unwrap();
        assert_eq!(wide.get("output_norm.weight").unwrap().bytes, model.get("output_norm.weight").unwrap().bytes);
        wide.write_gguf(&gguf, Some(Kind::Plain(DType::Bf16)), |_, _| ()).unwrap();
        let back = Checkpoint::open(&gguf).unwrap();
        assert!(model.names().all(|name| model.get(name).unwrap().bytes == back.get(name).unwrap().bytes));
    }
}
