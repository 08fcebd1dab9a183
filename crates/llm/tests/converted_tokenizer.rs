//! The tokenizer of a GGUF file of our own is that of the folder it was made of.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use warpwave_llm::Checkpoint;
use warpwave_test_support::workspace_root;
use warpwave_weights::{Error, Gguf, TensorInfo, Value, write_gguf};

fn oracle() -> PathBuf {
    workspace_root().join("crates/llm/tests/oracles/llama3")
}

/// A folder with the configuration of a small model; in memory where there is one, for what is written here is synced to its disk.
fn small_model(change: impl FnOnce(&mut Json)) -> TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let mut config = read_json(&oracle().join("config.json"));
    change(&mut config);
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    folder
}

const THREES: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

fn bytes_behind(regex: &str) -> Json {
    let split = json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
    json!({"type": "Sequence", "pretokenizers": [split, {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})
}

/// A folder of a small model with as many tokens as all tokenizers here, and one of these.
fn with_tokenizer(fixture: &str, change: impl FnOnce(&mut Json, &mut Json)) -> TempDir {
    const VOCAB: usize = 800;
    let folder = small_model(|config| config["vocab_size"] = VOCAB.into());
    let bytes = fs::read(oracle().join("model.safetensors")).unwrap();
    let longer = |(name, tensor): (String, TensorView<'_>)| {
        let (mut shape, mut data) = (tensor.shape().to_vec(), tensor.data().to_vec());
        if shape[0] == 320 {
            data.resize(data.len() / 320 * VOCAB, 0);
            shape[0] = VOCAB;
        }
        (name, shape, data)
    };
    let tensors: Vec<_> = SafeTensors::deserialize(&bytes).unwrap().tensors().into_iter().map(longer).collect();
    let views: Vec<_> =
        tensors.iter().map(|(name, shape, data)| (name, TensorView::new(Dtype::F32, shape.clone(), data).unwrap())).collect();
    fs::write(folder.path().join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    let from = fixtures().join(fixture);
    let [mut tokenizer, mut settings] = ["tokenizer.json", "tokenizer_config.json"].map(|name| read_json(&from.join(name)));
    change(&mut tokenizer, &mut settings);
    fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    fs::write(folder.path().join("tokenizer_config.json"), settings.to_string()).unwrap();
    folder
}

fn fixtures() -> PathBuf {
    workspace_root().join("crates/llm/tests/fixtures/text/tokenizers")
}

fn read_json(path: &Path) -> Json {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// A GGUF file without some of its keys.
fn without(file: &Path, is_left_out: impl Fn(&str) -> bool) -> PathBuf {
    let other = file.with_file_name("without.gguf");
    let file = Gguf::open(file).unwrap();
    let metadata: Vec<_> = file.metadata().filter(|(key, _)| !is_left_out(key)).map(|(key, value)| (key.into(), value)).collect();
    let tensors: Vec<_> = file.tensors().map(|t| TensorInfo { name: t.name.into(), kind: t.kind, shape: t.shape.to_vec() }).collect();
    let data = |index: usize| Ok::<_, Error>(file.tensor(&tensors[index].name).unwrap().bytes.into());
    write_gguf(&other, &metadata, &tensors, data, |_, _| ()).unwrap();
    other
}

/// Texts are the same tokens, and tokens the same texts, by the folder, by its GGUF file, and by that file's vocabulary alone.
#[test]
fn converted_models_have_the_same_tokenizer() {
    type Change = fn(&mut Json, &mut Json);
    let as_it_is: Change = |_, _| ();
    // As Gemma: spaces are tokens of their own, which are added and no marks, and nothing goes before a text.
    let spaces: Change = |tokenizer, settings| {
        tokenizer["normalizer"] = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
        tokenizer["decoder"]["decoders"].as_array_mut().unwrap().pop();
        tokenizer["model"]["vocab"]["▁▁"] = 755.into();
        tokenizer["model"]["merges"].as_array_mut().unwrap().insert(0, json!(["▁", "▁"]));
        let added = json!({"id": 755, "content": "▁▁", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false});
        tokenizer["added_tokens"].as_array_mut().unwrap().push(added);
        settings["add_eos_token"] = true.into();
    };
    // As Llama 3: a word that is a token is that token, though no merges make it.
    let whole_words: Change = |tokenizer, _| {
        tokenizer["pre_tokenizer"] = bytes_behind(THREES);
        tokenizer["model"]["vocab"]["ĠZxqvb"] = 700.into();
        tokenizer["model"]["ignore_merges"] = true.into();
    };
    let merged_words: Change = |tokenizer, _| {
        tokenizer["pre_tokenizer"] = bytes_behind(THREES);
        tokenizer["model"]["vocab"]["ĠZxqvb"] = 700.into();
    };
    let fewer_words: Change = |tokenizer, _| tokenizer["pre_tokenizer"] = bytes_behind(O200K);
    let unknown: Change = |tokenizer, _| tokenizer["pre_tokenizer"] = bytes_behind(r"\p{L}{1,2}|\P{L}");
    let mut cases: Vec<(&str, Change, Option<&str>)> = vec![
        ("gpt2", as_it_is, Some("gpt-2")),
        ("mistral_nemo", as_it_is, Some("tekken")),
        ("pieces", as_it_is, Some("default")),
        ("qwen3", as_it_is, Some("qwen2")),
        ("smollm2", as_it_is, Some("smollm")),
    ];
    let there = fs::read_dir(fixtures()).unwrap().filter(|folder| folder.as_ref().unwrap().path().join("tokenizer.json").exists());
    assert_eq!(there.count(), cases.len(), "all are here");
    cases.extend([
        ("pieces", spaces, Some("default")),
        ("gpt2", whole_words, Some("llama-bpe")),
        ("gpt2", merged_words, Some("dbrx")),
        ("gpt2", fewer_words, Some("gpt-4o")),
        ("gpt2", unknown, None),
    ]);
    for (fixture, change, name) in cases {
        let folder = with_tokenizer(fixture, change);
        let path = folder.path().join("model.gguf");
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        checkpoint.write_gguf(&path, None, |_, _| ()).unwrap();
        let file = Gguf::open(&path).unwrap();
        assert_eq!(file.get_str("tokenizer.ggml.pre").unwrap(), name, "{fixture}");
        assert!(!file.need_strs("tokenizer.ggml.tokens").unwrap().any(|token| token == "▁▁"), "added tokens are as in a text");
        let expected = checkpoint.tokenizer().unwrap();
        let mut files = vec![path.clone()];
        // Without a name the vocabulary alone does not say how words are cut.
        files.extend(name.map(|_| without(&path, |key| key == "tokenizer.huggingface.json")));
        let read = read_json(&fixtures().join(fixture).join("cases.json"));
        let texts = read["cases"].as_array().unwrap().iter().map(|case| case[0].as_str().unwrap());
        let more = ["a  b", "  a", "   a    b", "I'LL we'Re HTTPServer 1234567", "a Zxqvb Zxqvbs\n\n Zxqvb", "<s> a</s>", ""];
        let texts: Vec<&str> = texts.chain(more).collect();
        assert_eq!(expected.encode("a Zxqvb", true).unwrap().contains(&700), name == Some("llama-bpe"), "{fixture} {name:?}");
        for file in files {
            let found = Checkpoint::open(&file).unwrap().tokenizer().unwrap();
            let here = format!("{fixture} {name:?} {}", file.display());
            assert_eq!(
                (found.adds_bos(), found.eos(), found.template()),
                (expected.adds_bos(), expected.eos(), expected.template()),
                "{here}"
            );
            assert!(expected.bos().is_none() || found.bos() == expected.bos(), "{here}");
            for text in &texts {
                for special in [true, false] {
                    let ids = expected.encode(text, special).unwrap();
                    assert_eq!(found.encode(text, special).unwrap(), ids, "{here}: {text:?} {special}");
                    assert_eq!(found.decode(&ids, special), expected.decode(&ids, special), "{here}: {text:?} {special}");
                }
                // No end behind what goes on, though the settings may ask for one.
                let prompt = found.encode_prompt(text, true).unwrap();
                assert_eq!(prompt, expected.encode_prompt(text, true).unwrap(), "{here}: {text:?}");
                assert!(prompt.ends_with(&found.encode(text, true).unwrap()), "{here}: {text:?}");
            }
            if let Some(id) = found.id("▁▁").or(found.id("  ")) {
                assert_eq!(found.token(id), Some(&b"  "[..]), "{here}");
            }
        }
    }
}

#[test]
fn a_bad_tokenizer_in_a_file_is_named() {
    let folder = with_tokenizer("smollm2", |_, _| ());
    let path = folder.path().join("model.gguf");
    Checkpoint::open(folder.path()).unwrap().write_gguf(&path, None, |_, _| ()).unwrap();
    let file = Gguf::open(&path).unwrap();
    let good = file.need_str("tokenizer.huggingface.json").unwrap();
    let tensors: Vec<_> = file.tensors().map(|t| TensorInfo { name: t.name.into(), kind: t.kind, shape: t.shape.to_vec() }).collect();
    let unigram = good.replace("\"type\":\"BPE\"", "\"type\":\"Unigram\"");
    for (text, said) in [(&good[..good.len() / 2], Some("EOF")), ("", Some("EOF")), ("[]", Some("BPE")), (&unigram, None)] {
        let mut metadata: Vec<(Cow<'_, str>, Value<'_>)> = file.metadata().map(|(key, value)| (key.into(), value)).collect();
        metadata.iter_mut().filter(|(key, _)| key == "tokenizer.huggingface.json").for_each(|(_, value)| *value = text.into());
        let bad = folder.path().join("bad.gguf");
        let data = |index: usize| Ok::<_, Error>(file.tensor(&tensors[index].name).unwrap().bytes.into());
        write_gguf(&bad, &metadata, &tensors, data, |_, _| ()).unwrap();
        let found = Checkpoint::open(&bad).unwrap().tokenizer();
        // Of an unknown type: the vocabulary is used.
        let Some(said) = said else {
            assert_eq!(
                found.unwrap().encode("a b", true).unwrap(),
                Checkpoint::open(&path).unwrap().tokenizer().unwrap().encode("a b", true).unwrap()
            );
            continue;
        };
        let error = found.expect_err("an invalid tokenizer").to_string();
        assert!(["bad.gguf", "tokenizer.huggingface.json", said].iter().all(|word| error.contains(word)), "{error:?} should say {said:?}");
    }
}

#[test]
fn ends_are_found_by_their_texts() {
    let folder = small_model(|config| config["eos_token_id"] = 2.into());
    fs::copy(oracle().join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    let tokenizer = json!({
        "added_tokens": [{"id": 2, "content": "<|end_of_text|>", "special": true}, {"id": 9, "content": "<|eot_id|>", "special": true}],
        "model": {"type": "BPE", "vocab": {"<|im_end|>": 0}, "merges": []}
    });
    fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let path = folder.path().join("model.gguf");
    Checkpoint::open(folder.path()).unwrap().write_gguf(&path, None, |_, _| ()).unwrap();
    assert_eq!(Checkpoint::open(&path).unwrap().config().eos, [2], "our own files say what they are");
    let other = without(&path, |key| key.starts_with("warpwave."));
    assert_eq!(Checkpoint::open(&other).unwrap().config().eos, [2, 9], "a normal token that looks like EOS is not one");
}
