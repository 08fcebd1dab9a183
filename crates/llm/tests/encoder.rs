//! A small BERT with known states and embeddings (`oracles/bert`, made with transformers 4.57.1): on all devices, alone and in batches, from
//! folders and from GGUF files written by this crate.

#[path = "../../tensor/tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use warpwave_kernels::Quant;
use warpwave_llm::{Encoder, EncoderCheckpoint, EncoderInput, EncoderPooling, Error};
use warpwave_tensor::Device;
use warpwave_test_support::workspace_root;
use warpwave_weights::Kind;

const HIDDEN: usize = 32;
const LONGEST: usize = 40;

fn folder() -> PathBuf {
    workspace_root().join("crates/llm/tests/oracles/bert")
}

/// A copy of the folder, with some of its files replaced.
fn copy(replaced: &[(&str, &str)]) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    std::fs::create_dir(copy.path().join("1_Pooling")).unwrap();
    for name in ["config.json", "model.safetensors", "modules.json", "sentence_bert_config.json", "1_Pooling/config.json"] {
        std::fs::copy(folder().join(name), copy.path().join(name)).unwrap();
    }
    for (name, text) in replaced {
        std::fs::write(copy.path().join(name), text).unwrap();
    }
    copy
}

struct Expected {
    tokens: Vec<Vec<u32>>,
    types: Vec<Vec<u32>>,
    bytes: Vec<u8>,
}

impl Expected {
    fn read() -> Expected {
        let bytes = std::fs::read(folder().join("expected.safetensors")).unwrap();
        let ints = |name: &str| -> Vec<u32> {
            let file = SafeTensors::deserialize(&bytes).unwrap();
            file.tensor(name).unwrap().data().as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
        };
        let [ids, types, mask] = ["input_ids", "token_type_ids", "attention_mask"].map(ints);
        let rows = |values: &[u32]| -> Vec<Vec<u32>> {
            let rows = values.chunks(LONGEST).zip(mask.chunks(LONGEST));
            rows.map(|(row, mask)| row[..mask.iter().sum::<u32>() as usize].to_vec()).collect()
        };
        let (tokens, types) = (rows(&ids), rows(&types));
        assert_eq!(tokens.iter().map(Vec::len).collect::<Vec<_>>(), [40, 27]);
        Expected { tokens, types, bytes }
    }

    fn inputs(&self) -> Vec<EncoderInput<'_>> {
        self.tokens.iter().zip(&self.types).map(|(tokens, types)| EncoderInput { tokens, types: Some(types) }).collect()
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        file.tensor(name).unwrap().data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }
}

fn load(path: impl AsRef<Path>, device: &Device) -> Encoder {
    Encoder::load(&EncoderCheckpoint::open(path).unwrap(), device).unwrap()
}

fn worst(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().all(|value| value.is_finite()));
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn states_and_embeddings_are_those_of_transformers() {
    let expected = Expected::read();
    let (states, mean) = (expected.floats("last_hidden_state"), expected.floats("mean_normalized"));
    for device in common::devices() {
        let encoder = load(folder(), &device);
        let found = encoder.hidden_states(&expected.inputs()).unwrap();
        assert_eq!(found.shape(), [2, LONGEST, HIDDEN]);
        let found = found.to_vec::<f32>().unwrap();
        for (row, tokens) in expected.tokens.iter().enumerate() {
            let here = row * LONGEST * HIDDEN..(row * LONGEST + tokens.len()) * HIDDEN;
            let off = worst(&found[here.clone()], &states[here]);
            assert!(off < 2e-4, "{}: row {row} is off by {off}", device.name());
        }
        let off = worst(&encoder.embed(&expected.inputs()).unwrap().concat(), &mean);
        assert!(off < 1e-5, "{}: {off}", device.name());
    }
}

#[test]
fn pooling_and_normalization_follow_the_folder() {
    let expected = Expected::read();
    let cls = r#"{ "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false, "word_embedding_dimension": 32 }"#;
    let plain = r#"[{ "path": "", "type": "sentence_transformers.models.Transformer" },
                    { "path": "1_Pooling", "type": "sentence_transformers.models.Pooling" }]"#;
    for (replaced, name, pooling) in [
        (&[][..], "mean_normalized", EncoderPooling::Mean),
        (&[("1_Pooling/config.json", cls)][..], "cls_normalized", EncoderPooling::Cls),
        (&[("modules.json", plain)], "mean", EncoderPooling::Mean),
        (&[("1_Pooling/config.json", cls), ("modules.json", plain)], "cls", EncoderPooling::Cls),
    ] {
        let copy = copy(replaced);
        let gguf = copy.path().join("model.gguf");
        EncoderCheckpoint::open(copy.path()).unwrap().write_gguf(&gguf, None, |_, _| ()).unwrap();
        for path in [copy.path(), &gguf] {
            assert!(EncoderCheckpoint::is_encoder(path));
            let encoder = load(path, &Device::Cpu);
            assert_eq!((encoder.config().pooling, encoder.config().normalize), (pooling, name.ends_with("normalized")));
            let off = worst(&encoder.embed(&expected.inputs()).unwrap().concat(), &expected.floats(name));
            assert!(off < 1e-5, "{name} of {}: {off}", path.display());
        }
    }
}

#[test]
fn a_batch_gives_what_each_text_gives_alone() {
    let encoder = load(folder(), &Device::Cpu);
    // More than a step, of all lengths.
    let texts: Vec<Vec<u32>> =
        (0..300).map(|number| (0..1 + number % 64).map(|i| ((number * 7 + i * 13) % 320) as u32).collect()).collect();
    let inputs: Vec<EncoderInput<'_>> = texts.iter().map(|tokens| EncoderInput::new(tokens)).collect();
    let together = encoder.embed(&inputs).unwrap();
    for (number, input) in inputs.iter().enumerate().step_by(7) {
        let off = worst(&together[number], &encoder.embed(&[*input]).unwrap()[0]);
        assert!(off < 1e-6, "text {number}: {off}");
    }
    assert!(worst(&together[0], &together[1]) > 0.01);
}

#[test]
fn quantized_files_are_close() {
    let expected = Expected::read();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    for (quant, bound) in [(Quant::Q8_0, 0.01), (Quant::Q4_0, 0.15)] {
        let kind = Some(Kind::Quant(quant));
        EncoderCheckpoint::open(self::folder()).unwrap().write_gguf(&path, kind, |_, _| ()).unwrap();
        for device in common::devices() {
            let off = worst(&load(&path, &device).embed(&expected.inputs()).unwrap().concat(), &expected.floats("mean_normalized"));
            assert!(off < bound && off > 0.0, "{quant} on {}: {off}", device.name());
        }
    }
}

/// The vocabulary of the model's size: special tokens, letters and their continuations, some words.
fn vocabulary() -> String {
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(str::to_owned);
    let letters = ('a'..='z').flat_map(|letter| [letter.to_string(), format!("##{letter}")]);
    let words = ["hello", "world", "##ing", "embed", "##ding", "!", ",", "."].map(str::to_owned);
    let tokens: Vec<String> = special.into_iter().chain(letters).chain(words).collect();
    let unused = (tokens.len()..320).map(|number| format!("[unused{number}]"));
    tokens.iter().cloned().chain(unused).collect::<Vec<_>>().join("\n")
}

#[test]
fn texts_become_pieces_of_words() {
    let copy = copy(&[("vocab.txt", &vocabulary())]);
    let gguf = copy.path().join("model.gguf");
    let files = EncoderCheckpoint::open(copy.path()).unwrap();
    files.write_gguf(&gguf, None, |_, _| ()).unwrap();
    let lines: Vec<String> = vocabulary().lines().map(str::to_owned).collect();
    let id = |token: &str| lines.iter().position(|line| line == token).unwrap() as u32;
    for (text, pieces) in [
        ("Hello, world!", &["hello", ",", "world", "!"][..]),
        ("embedding  embeds", &["embed", "##ding", "embed", "##s"]),
        ("H\u{e9}llo \u{4e2d}", &["hello", "[UNK]"]),
        ("", &[]),
    ] {
        let expected: Vec<u32> = ["[CLS]"].iter().chain(pieces).chain(&["[SEP]"]).map(|piece| id(piece)).collect();
        assert_eq!(files.tokenizer().unwrap().encode(text).unwrap(), expected, "{text:?}");
        assert_eq!(
            EncoderCheckpoint::open(&gguf).unwrap().tokenizer().unwrap().encode(text).unwrap(),
            expected,
            "{text:?} of the GGUF file"
        );
    }
}

#[test]
fn invalid_inputs_and_files_are_errors() {
    let encoder = load(folder(), &Device::Cpu);
    let long = vec![5; 65];
    assert!(matches!(encoder.embed(&[EncoderInput::new(&long)]), Err(Error::ContextExceeded { tokens: 65, context: 64 })));
    assert!(matches!(encoder.embed(&[EncoderInput::new(&[5]), EncoderInput::new(&[])]), Err(Error::NoTokens)));
    assert!(matches!(encoder.embed(&[EncoderInput::new(&[320])]), Err(Error::TokenOutOfRange { token: 320, vocab: 320 })));
    let types = EncoderInput { tokens: &[5], types: Some(&[2]) };
    assert!(matches!(encoder.embed(&[types]), Err(Error::TokenOutOfRange { token: 2, vocab: 2 })));
    assert!(encoder.embed(&[]).unwrap().is_empty());
    assert!(!EncoderCheckpoint::is_encoder(workspace_root().join("crates/llm/tests/oracles/llama3")));

    let config = std::fs::read_to_string(folder().join("config.json")).unwrap();
    let with = |from: &str, to: &str| {
        assert!(config.contains(from), "{from}");
        config.replace(from, to)
    };
    for (name, text, expected) in [
        ("config.json", with("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4"), "missing"),
        ("config.json", with("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2"), "unexpected in an encoder with 2 layers"),
        ("config.json", with("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4000000000000"), "1 to 1024"),
        ("config.json", with("\"hidden_size\": 32", "\"hidden_size\": 64"), "expected shape [320, 64]"),
        ("config.json", with("\"num_attention_heads\": 4", "\"num_attention_heads\": 0"), "number of heads"),
        ("config.json", with("\"num_attention_heads\": 4", "\"num_attention_heads\": 5"), "not divisible by the number of heads, 5"),
        ("config.json", with("\"absolute\"", "\"relative_key\""), "expected absolute"),
        ("config.json", with("\"gelu\"", "\"silu\""), "hidden_act"),
        ("modules.json", "[{ \"type\": \"sentence_transformers.models.Dense\" }]".to_owned(), "unsupported module"),
        ("modules.json", "[{ \"type\": \"x.Pooling\", \"path\": \"../1_Pooling\" }]".to_owned(), "plain directory name"),
        ("modules.json", "{}".to_owned(), "expected an array"),
        ("1_Pooling/config.json", "{ \"pooling_mode_max_tokens\": true }".to_owned(), "expected mean_tokens or cls_token alone"),
    ] {
        let copy = copy(&[(name, &text)]);
        let error = EncoderCheckpoint::open(copy.path()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
