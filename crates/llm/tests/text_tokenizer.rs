//! Tokenizers against what the reference libraries make of the same texts (`fixtures/text/make_tokenizers.py`): read from `tokenizer.json`,
//! and rebuilt from what a GGUF file would say of the same vocabulary.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use warpwave_llm::{Detokenizer, StopStrings, TextError, Tokenizer, Vocabulary};
use warpwave_test_support::workspace_root;
use warpwave_weights::{Array, Value};

fn fixtures() -> PathBuf {
    workspace_root().join("crates/llm/tests/fixtures/text/tokenizers")
}

fn json(path: &Path) -> Json {
    serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON")
}

/// What a GGUF file would say.
#[derive(Default)]
struct Gguf {
    model: String,
    pre: Option<String>,
    tokens: Vec<String>,
    scores: Vec<f32>,
    types: Vec<i32>,
    merges: Vec<String>,
    bos: Option<u32>,
    eos: Option<u32>,
    space_prefix: bool,
    template: Option<String>,
}

impl Gguf {
    fn vocabulary(&self) -> Vocabulary<'_> {
        Vocabulary {
            model: &self.model,
            pre: self.pre.as_deref(),
            tokens: self.tokens.iter().map(String::as_bytes).collect(),
            scores: self.scores.clone(),
            types: self.types.clone(),
            merges: self.merges.iter().map(String::as_bytes).collect(),
            bos: self.bos,
            eos: self.eos,
            add_space_prefix: Some(self.space_prefix),
            template: self.template.clone(),
            ..Vocabulary::default()
        }
    }

    /// As converters to GGUF write it.
    fn of(folder: &Path) -> Self {
        let cases = json(&folder.join("cases.json"));
        let mut gguf = Self { pre: cases["pre"].as_str().map(Into::into), space_prefix: true, ..Self::default() };
        gguf.model = cases["model"].as_str().expect("a model").into();
        if let Some(tokens) = cases["vocabulary"]["tokens"].as_array() {
            gguf.tokens = tokens.iter().map(|token| token.as_str().expect("a token").into()).collect();
            let numbers = |name: &str| cases["vocabulary"][name].as_array().expect("numbers").iter().map(|x| x.as_f64().expect("a number"));
            gguf.scores = numbers("scores").map(|score| score as f32).collect();
            gguf.types = numbers("types").map(|kind| kind as i32).collect();
            gguf.space_prefix = cases["add_space_prefix"] != false;
            return gguf;
        }
        let file = json(&folder.join("tokenizer.json"));
        let pieces = gguf.model == "llama";
        let vocab = file["model"]["vocab"].as_object().expect("a vocabulary");
        let added: HashMap<u64, (&str, bool)> = file["added_tokens"]
            .as_array()
            .expect("added tokens")
            .iter()
            .map(|t| (t["id"].as_u64().expect("an id"), (t["content"].as_str().expect("a text"), t["special"] == true)))
            .collect();
        let mut tokens: HashMap<u64, &str> = vocab.iter().map(|(token, id)| (id.as_u64().expect("an id"), token.as_str())).collect();
        tokens.extend(added.iter().map(|(id, (token, _))| (*id, *token)));
        for id in 0..tokens.len() as u64 {
            let token = tokens[&id];
            let (kind, token) = match added.get(&id) {
                Some((_, true)) => (if token == "<unk>" { 2 } else { 3 }, token.to_owned()),
                Some((_, false)) => (4, if pieces { token.replace('▁', " ") } else { token.to_owned() }),
                None => (if pieces && token.starts_with("<0x") { 6 } else { 1 }, token.to_owned()),
            };
            gguf.types.push(kind);
            gguf.tokens.push(token);
        }
        let pair = |merge: &Json| match merge.as_array() {
            Some(pair) => format!("{} {}", pair[0].as_str().expect("a text"), pair[1].as_str().expect("a text")),
            None => merge.as_str().expect("a text").to_owned(),
        };
        let merges: Vec<String> = file["model"]["merges"].as_array().expect("merges").iter().map(pair).collect();
        if pieces {
            // What is merged first has the largest score.
            gguf.scores = vec![0.0; gguf.tokens.len()];
            for (rank, merge) in merges.iter().enumerate().rev() {
                gguf.scores[vocab[&merge.replace(' ', "")].as_u64().expect("an id") as usize] = -(rank as f32);
            }
        } else {
            gguf.merges = merges;
        }
        gguf.space_prefix = file["normalizer"].to_string().contains("Prepend");
        let config = json(&folder.join("tokenizer_config.json"));
        let id = |name: &str| gguf.tokens.iter().position(|token| Some(token.as_str()) == config[name].as_str()).map(|id| id as u32);
        (gguf.bos, gguf.eos) = (id("bos_token"), id("eos_token"));
        gguf.template = config["chat_template"].as_str().map(Into::into);
        gguf
    }
}

fn ids(value: &Json) -> Vec<u32> {
    value.as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

/// Texts whose tokens or whose way back differ from the reference's.
fn differences(tokenizer: &Tokenizer, cases: &[Json]) -> Vec<String> {
    let mut found = Vec::new();
    for case in cases {
        let text = case[0].as_str().expect("a text");
        for (special, expected) in [(true, &case[1]), (false, &case[2])] {
            if expected.is_null() {
                continue;
            }
            let got = tokenizer.encode(text, special).expect("tokens");
            if got != ids(expected) {
                found.push(format!("{text:?} (special {special}): {got:?}, not {expected}"));
            }
        }
        let from = if case[1].is_null() { &case[2] } else { &case[1] };
        let back = tokenizer.decode(&ids(from), false);
        if Some(back.as_str()) != case[3].as_str() {
            found.push(format!("back: {back:?}, not {}", case[3]));
        }
    }
    found
}

fn check(folder: &Path, allowed: usize) {
    let cases = json(&folder.join("cases.json"));
    let cases = cases["cases"].as_array().expect("cases");
    assert!(cases.len() > 50);
    let gguf = Gguf::of(folder);
    let start = std::time::Instant::now();
    let rebuilt = Tokenizer::from_gguf(&gguf.vocabulary()).expect("a tokenizer");
    println!("{}: rebuilt in {:?}", folder.display(), start.elapsed());
    let mut tokenizers = vec![("rebuilt", rebuilt)];
    if folder.join("model.gguf").exists() {
        let file = warpwave_weights::Gguf::open(folder.join("model.gguf")).expect("a GGUF file");
        let vocabulary = Vocabulary::of(&file).expect("a vocabulary");
        tokenizers.push(("of a GGUF file", Tokenizer::from_gguf(&vocabulary).expect("a tokenizer")));
    }
    if folder.join("tokenizer.json").exists() {
        let start = std::time::Instant::now();
        tokenizers.push(("from JSON", Tokenizer::from_file(folder).expect("a tokenizer")));
        println!("{}: read in {:?}", folder.display(), start.elapsed());
    }
    let marks = |tokenizer: &Tokenizer| (tokenizer.bos(), tokenizer.eos().to_vec(), tokenizer.len());
    for (how, tokenizer) in &tokenizers {
        assert_eq!(marks(tokenizer), marks(&tokenizers[0].1), "{} {how}", folder.display());
    }
    for (how, tokenizer) in tokenizers {
        let found = differences(&tokenizer, cases);
        found.iter().take(3).for_each(|found| println!("  {found}"));
        println!("{} {how}: {} texts, {} differences", folder.display(), cases.len(), found.len());
        assert!(
            found.len() <= allowed,
            "{} {how}: {} differences:\n{}",
            folder.display(),
            found.len(),
            found[..found.len().min(12)].join("\n")
        );
    }
}

#[test]
fn texts_become_the_tokens_that_the_reference_gives() {
    let mut count = 0;
    for folder in std::fs::read_dir(fixtures()).expect("fixtures") {
        check(&folder.expect("a folder").path(), 0);
        count += 1;
    }
    assert_eq!(count, 7);
}

/// The same with complete vocabularies.
#[test]
#[ignore = "needs WARPWAVE_TOKENIZERS, a folder written by make_tokenizers.py"]
fn whole_vocabularies_agree() {
    let folder = std::env::var_os("WARPWAVE_TOKENIZERS").expect("WARPWAVE_TOKENIZERS");
    for folder in std::fs::read_dir(folder).expect("folders") {
        let folder = folder.expect("a folder").path();
        // Of the text with `▁▁` (see the script): once with special tokens, once without.
        let lossy = folder.ends_with("gemma2") || folder.ends_with("gemma3");
        check(&folder, if lossy { 2 } else { 0 });
    }
}

/// The real vocabularies, cut.
fn small(name: &str) -> (Gguf, Tokenizer) {
    let gguf = Gguf::of(&fixtures().join(name));
    let tokenizer = Tokenizer::from_gguf(&gguf.vocabulary()).expect("a tokenizer");
    (gguf, tokenizer)
}

#[test]
fn tokenizers_are_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    let (_, tokenizer) = small("smollm2");
    shared(&tokenizer);
    let text = "Hello, you 12 🙂";
    let ids = tokenizer.encode(text, true).expect("tokens");
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| tokenizer.encode(text, true).expect("tokens"))).collect();
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().expect("tokens"), ids));
    });
}

#[test]
fn marks_of_the_model() {
    let (gguf, tokenizer) = small("smollm2");
    assert_eq!(tokenizer.bos(), tokenizer.id("<|im_start|>"));
    // The file's own end, and the end of a text.
    assert_eq!(tokenizer.eos(), [tokenizer.id("<|im_end|>").expect("a token"), tokenizer.id("<|endoftext|>").expect("a token")]);
    assert!(!tokenizer.adds_bos() && tokenizer.template().is_some() && !tokenizer.is_empty());
    assert_eq!(tokenizer.len(), gguf.tokens.len());
    assert_eq!(tokenizer.encode_prompt("<|im_start|>", true).expect("tokens"), [1]);
    assert!(!tokenizer.encode_prompt("<|im_start|>", false).expect("tokens").contains(&1));
    assert_eq!((tokenizer.token(1), tokenizer.token(u32::MAX)), (Some(&b"<|im_start|>"[..]), None));
    assert!(tokenizer.is_special(1) && !tokenizer.is_special(100));

    // The end of a turn ends generation and never shows, even where the file calls it a normal token.
    let plain = Tokenizer::from_gguf(&Vocabulary { types: vec![1; gguf.tokens.len()], ..gguf.vocabulary() }).expect("a tokenizer");
    assert_eq!(plain.eos(), tokenizer.eos());
    assert_eq!(plain.decode(&plain.encode("a<|im_end|>", true).expect("tokens"), false), "a");

    // SentencePiece files put a mark before a text unless they say otherwise; it is not doubled.
    let (gguf, tokenizer) = small("pieces");
    let bos = tokenizer.bos().expect("a token");
    let ids = tokenizer.encode_prompt("a", true).expect("tokens");
    assert_eq!(ids[0], bos);
    assert_eq!(tokenizer.encode_prompt("<s>a", true).expect("tokens"), ids);
    let quiet = Tokenizer::from_gguf(&Vocabulary { add_bos: Some(false), ..gguf.vocabulary() }).expect("a tokenizer");
    assert_eq!(quiet.encode_prompt("a", true).expect("tokens"), ids[1..]);
}

/// Tokens that a file adds to SentencePiece are text, be they spelt as pieces or as they are.
#[test]
fn added_spaces_are_spaces() {
    for spelt in ["▁▁", "  "] {
        let tokens: Vec<&[u8]> = vec![b"<unk>", b"a", "▁".as_bytes(), spelt.as_bytes()];
        let vocabulary =
            Vocabulary { model: "llama", tokens, types: vec![2, 1, 1, 4], add_space_prefix: Some(false), ..Vocabulary::default() };
        let tokenizer = Tokenizer::from_gguf(&vocabulary).expect("a tokenizer");
        assert_eq!(tokenizer.encode("a  a", true).expect("tokens"), [1, 3, 1], "{spelt:?}");
        assert_eq!(tokenizer.decode(&[1, 3, 1, 2], false), "a  a ", "{spelt:?}");
    }
}

#[test]
fn special_tokens_may_take_the_spaces_behind_them() {
    let (gguf, tokenizer) = small("pieces");
    let strict = Tokenizer::from_gguf(&Vocabulary { strip_after_special: true, ..gguf.vocabulary() }).expect("a tokenizer");
    let text = "</s> \n a";
    assert_ne!(tokenizer.encode(text, true).expect("tokens"), strict.encode(text, true).expect("tokens"));
    assert_eq!(tokenizer.encode("</s>a", true).expect("tokens"), strict.encode(text, true).expect("tokens"));
}

#[test]
fn pieces_of_text_are_whole_characters_and_add_up() {
    for name in ["smollm2", "pieces", "qwen3"] {
        let (_, tokenizer) = small(name);
        for text in ["naïve 🙂👩‍👩‍👧‍👦 日本語", " leading", "  two", "a", "", "\u{301}x"] {
            let ids = tokenizer.encode(text, true).expect("tokens");
            let mut detokenizer = Detokenizer::new(&tokenizer);
            let pieces: Vec<String> = ids.iter().map(|id| detokenizer.push(*id)).collect();
            assert!(!pieces.iter().any(|piece| piece.contains('\u{fffd}')), "{name} {text:?}: {pieces:?}");
            // Qwen composes characters before it encodes; none of these is changed by that.
            assert_eq!(pieces.concat() + &detokenizer.finish(), text, "{name}");
            if text.contains('🙂') {
                assert!(pieces.iter().any(String::is_empty), "{name}: no character was held back");
            }
        }
    }
}

#[test]
fn spaces_at_the_start_belong_to_what_goes_on() {
    let (_, tokenizer) = small("pieces");
    let ids = tokenizer.encode("the", true).expect("tokens");
    let text = |mut detokenizer: Detokenizer<'_>| ids.iter().map(|id| detokenizer.push(*id)).collect::<String>();
    assert_eq!(text(Detokenizer::new(&tokenizer)), "the");
    assert_eq!(text(Detokenizer::continuing(&tokenizer)), " the");
    // Special tokens neither show nor count as the start.
    let with_mark = [vec![tokenizer.bos().expect("a token")], ids.clone()].concat();
    assert_eq!(tokenizer.decode(&with_mark, false), "the");
    assert_eq!(tokenizer.decode(&with_mark, true), "<s>the");
}

#[test]
fn bytes_that_are_no_text_are_shown_as_such() {
    let (_, tokenizer) = small("pieces");
    let byte = |byte: u8| tokenizer.id(&format!("<0x{byte:02X}>")).expect("a token");
    let mut detokenizer = Detokenizer::continuing(&tokenizer);
    // The beginning of a character, and then another's: the first can no longer become one.
    assert_eq!(detokenizer.push(byte(0xe6)), "");
    assert_eq!(detokenizer.push(byte(0xc3)), "\u{fffd}");
    assert_eq!(detokenizer.push(byte(0xa9)), "é");
    assert_eq!(detokenizer.push(byte(0xff)), "\u{fffd}");
    assert_eq!(detokenizer.push(byte(0xf0)), "");
    assert_eq!(detokenizer.push(u32::MAX), "");
    assert_eq!(detokenizer.finish(), "\u{fffd}");
    assert_eq!(detokenizer.finish(), "");
}

#[test]
fn stop_strings_are_found_across_pieces_and_never_shown() {
    // Whatever the pieces are cut into: the same text comes out.
    for (text, stops, expected, found) in [
        ("Hello<|im_end|>more", &["<|im_end|>"][..], "Hello", Some("<|im_end|>")),
        ("a <|im_ <|im_end no", &["<|im_end|>"], "a <|im_ <|im_end no", None),
        ("aaab", &["aab"], "a", Some("aab")),
        ("日本語。終わり", &["。終"], "日本語", Some("。終")),
        ("xENDy", &["END", "ENDING", ""], "x", Some("END")),
        ("User: hi", &["\n\nUser:", "User:"], "", Some("User:")),
        ("nothing", &[], "nothing", None),
    ] {
        let characters: Vec<char> = text.chars().collect();
        for size in 1..=characters.len() {
            let mut stop = StopStrings::new(stops.iter().copied());
            let mut shown = String::new();
            for piece in characters.chunks(size) {
                shown.push_str(&stop.push(&piece.iter().collect::<String>()));
            }
            shown.push_str(&stop.finish());
            assert_eq!((shown.as_str(), stop.found()), (expected, found), "{text:?} in pieces of {size}");
        }
    }
    // What cannot become a stop string is not held back.
    let mut stop = StopStrings::new(["<stop>"]);
    assert_eq!((stop.push("abc<s").as_str(), stop.push("x").as_str()), ("abc", "<sx"));
    assert_eq!(stop.push("<stop>tail"), "");
    assert_eq!((stop.push("more").as_str(), stop.finish().as_str()), ("", ""));
}

#[test]
fn a_gguf_file_says_what_a_vocabulary_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.gguf");
    let write = |change: &[(&'static str, Value<'static>)]| {
        let (gguf, _) = small("smollm2");
        let strs = |texts: &[String]| Value::from(Array::strs(texts.iter().map(String::as_str)));
        let mut keys: Vec<(Cow<'_, str>, Value<'_>)> = vec![
            ("general.architecture".into(), "phi3".into()),
            ("tokenizer.ggml.model".into(), "gpt2".into()),
            ("tokenizer.ggml.pre".into(), "smollm".into()),
            ("tokenizer.ggml.tokens".into(), strs(&gguf.tokens)),
            ("tokenizer.ggml.token_type".into(), Array::i32s(gguf.types.iter().copied()).into()),
            ("tokenizer.ggml.merges".into(), strs(&gguf.merges)),
            ("tokenizer.ggml.bos_token_id".into(), Value::U32(1)),
            ("tokenizer.ggml.eos_token_id".into(), Value::U32(2)),
            ("tokenizer.ggml.add_bos_token".into(), Value::Bool(true)),
            ("tokenizer.chat_template".into(), "<|im_end|>".into()),
        ];
        for (key, value) in change {
            keys.retain(|(old, _)| old != key);
            keys.push(((*key).into(), value.clone()));
        }
        warpwave_weights::write_gguf::<warpwave_weights::Error>(&path, &keys, &[], |_| Ok(Cow::Borrowed(&[])), |_, _| {}).expect("a file");
        warpwave_weights::Gguf::open(&path).expect("a file")
    };
    let file = write(&[]);
    let vocabulary = Vocabulary::of(&file).expect("a vocabulary");
    assert!(vocabulary.strip_after_special && vocabulary.scores.is_empty());
    let (_, expected) = small("smollm2");
    let found = Tokenizer::from_gguf(&vocabulary).expect("a tokenizer");
    assert_eq!(found.encode("a 12 café", true).expect("tokens"), expected.encode("a 12 café", true).expect("tokens"));
    assert_eq!((found.bos(), found.eos(), found.adds_bos(), found.template()), (Some(1), &[2, 0][..], true, Some("<|im_end|>")));
    for (key, value) in [
        ("tokenizer.ggml.model", Value::U32(3)),
        ("tokenizer.ggml.tokens", Value::U32(3)),
        ("tokenizer.ggml.merges", Array::i32s([1]).into()),
        ("tokenizer.ggml.eos_token_id", Value::U64(1 << 40)),
        ("tokenizer.ggml.eos_token_id", "two".into()),
    ] {
        let file = write(&[(key, value)]);
        let error = Vocabulary::of(&file).expect_err("a refusal").to_string();
        assert!(error.contains(key), "{error}");
    }
}

/// What a bad vocabulary says.
fn refusal(change: impl FnOnce(&mut Vocabulary<'_>)) -> String {
    let (gguf, _) = small("smollm2");
    let mut vocabulary = gguf.vocabulary();
    change(&mut vocabulary);
    Tokenizer::from_gguf(&vocabulary).expect_err("a refusal").to_string()
}

#[test]
fn bad_vocabularies_are_refused_by_name_and_number() {
    static LONG: [u8; 5000] = [b'a'; 5000];
    for (error, said) in [
        (refusal(|v| v.tokens[7] = b"a\xff"), "tokens[7]: invalid UTF-8"),
        (refusal(|v| v.tokens[9] = v.tokens[8]), "tokens[9]"),
        (refusal(|v| v.tokens[9] = &LONG), "tokens[9]: 5000 bytes"),
        (refusal(|v| v.tokens.clear()), "got 0"),
        (refusal(|v| v.types.truncate(5)), "token_type: expected"),
        (refusal(|v| v.scores = vec![0.0]), "scores: expected"),
        (refusal(|v| v.merges[3] = b"nothing here"), "merges[3]: \"nothing\" is not in the vocabulary"),
        (refusal(|v| v.merges[3] = b"nothing"), "merges[3]: expected two tokens"),
        (refusal(|v| v.merges[3] = b" "), "merges[3]"),
        (refusal(|v| v.merges[3] = b"\xc3 a"), "merges[3]: invalid UTF-8"),
        // Two tokens whose whole is longer than any token.
        (refusal(|v| v.merges[3] = b"<|endoftext|> <|endoftext|>"), "merges[3]"),
        (refusal(|v| v.bos = Some(u32::MAX)), "bos token: id 4294967295"),
        (refusal(|v| v.eos = Some(100_000)), "eos token: id 100000"),
        (refusal(|v| v.model = "wpm"), "tokenizer.ggml.model: unknown value \"wpm\""),
        (refusal(|v| v.pre = Some("nonsense")), "tokenizer.ggml.pre: unknown value \"nonsense\""),
        (refusal(|v| (v.model, v.unknown) = ("llama", Some(100_000))), "unknown_token_id: token id 100000"),
        (refusal(|v| (v.model, v.scores) = ("llama", vec![f32::NAN; v.tokens.len()])), "scores[0]: expected a number, got NaN"),
    ] {
        assert!(error.contains(said), "{error}, not {said}");
    }
}

#[test]
fn odd_vocabularies_do_no_harm() {
    // Empty tokens, no types, no scores, no merges, unknown types, empty merges.
    let tokens: Vec<&[u8]> = vec![b"", b"a", b"b", b"ab", " ".as_bytes(), "▁".as_bytes()];
    for model in ["gpt2", "llama"] {
        for types in [vec![], vec![3; 6], vec![4; 6], vec![6; 6], vec![i32::MIN; 6], vec![2; 6]] {
            let vocabulary = Vocabulary { model, tokens: tokens.clone(), types, ..Vocabulary::default() };
            let tokenizer = Tokenizer::from_gguf(&vocabulary).expect("a tokenizer");
            for text in ["", "ab ba", "日本", "\0", "▁", "c"] {
                for special in [true, false] {
                    // A character without a token may be an error; it must not be anything worse.
                    let ids = tokenizer.encode(text, special).unwrap_or_default();
                    assert!(ids.iter().all(|id| *id < 6));
                    tokenizer.decode(&ids, special);
                }
            }
        }
    }
}

/// What a folder with a changed `tokenizer.json` says.
fn file_refusal(change: impl FnOnce(&mut Json)) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let from = fixtures().join("pieces");
    let mut file = json(&from.join("tokenizer.json"));
    change(&mut file);
    std::fs::write(folder.path().join("tokenizer.json"), file.to_string()).expect("a file");
    std::fs::copy(from.join("tokenizer_config.json"), folder.path().join("tokenizer_config.json")).expect("a file");
    Tokenizer::from_file(folder.path()).expect_err("a refusal").to_string()
}

#[test]
fn bad_files_are_refused_by_place() {
    let missing = Tokenizer::from_file("/nowhere/at/all").expect_err("a refusal");
    assert!(matches!(&missing, TextError::Read { path, .. } if path.ends_with("all")), "{missing}");
    for (error, said) in [
        (file_refusal(|file| *file = Json::Null), "tokenizer.json"),
        (file_refusal(|file| file["model"]["type"] = "Unigram".into()), "model.type: unknown value \"Unigram\""),
        (file_refusal(|file| file["model"]["vocab"] = Json::Array(vec![])), "tokenizer.json"),
        (file_refusal(|file| file["model"]["vocab"]["<s>"] = u64::MAX.into()), "tokenizer.json"),
        (file_refusal(|file| file["model"]["vocab"]["<s>"] = 4_000_000_000u64.into()), "\"<s>\" has id 4000000000"),
        (file_refusal(|file| file["model"]["vocab"]["<s>"] = 2.into()), "id 2"),
        (
            file_refusal(|file| file["model"]["merges"][2] = serde_json::json!(["zz", "q"])),
            "model.merges[2]: \"zz\" is not in the vocabulary",
        ),
        (file_refusal(|file| file["model"]["merges"][2] = "a".into()), "model.merges[2]"),
        (file_refusal(|file| file["model"]["merges"][2] = serde_json::json!(["<0x00>", "<0x01>"])), "model.merges[2]"),
        (file_refusal(|file| file["model"]["continuing_subword_prefix"] = "##".into()), "continuing_subword_prefix: unknown value \"##\""),
        (file_refusal(|file| file["decoder"] = Json::Null), "decoder: unknown value \"null\""),
        (file_refusal(|file| file["added_tokens"][1]["id"] = 70.into()), "added_tokens: \"<s>\" has id 70"),
        (file_refusal(|file| file["pre_tokenizer"] = serde_json::json!({"type": "Nothing"})), "tokenizer.json"),
        (file_refusal(|file| file["added_tokens"][1]["content"] = "<other>".into()), "added_tokens: \"<other>\" has id 1"),
    ] {
        assert!(error.contains(said), "{error}, not {said}");
    }
}

#[test]
fn long_texts_take_no_longer_than_they_should() {
    for name in ["smollm2", "pieces"] {
        let (_, tokenizer) = small(name);
        for text in [" ".repeat(50_000), "a".repeat(50_000), "the cat\n".repeat(5_000), "<|im_start|>".repeat(3_000)] {
            let start = std::time::Instant::now();
            let ids = tokenizer.encode(&text, true).expect("tokens");
            assert!(tokenizer.decode(&ids, true).len() >= text.len() - 1, "{name}");
            assert!(start.elapsed().as_secs() < 10, "{name}: {:?}", start.elapsed());
        }
    }
}
