//! Tokenizers of CLIP (byte-level BPE) and T5 (unigram).

use std::path::Path;

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::json::{Config, read};

/// More tokens than any vocabulary has.
const MAX_TOKENS: u64 = 1 << 22;
const BOS: &str = "<|startoftext|>";
const EOS: &str = "<|endoftext|>";
/// How CLIP splits texts before the merges.
const WORDS: &str = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";
/// Typographic characters that CLIP's tokenizer replaces.
const REPLACED: [(&[char], &str); 9] = [
    (&['\u{2018}', '\u{2019}', '\u{201a}', '\u{201b}', '\u{2bc}'], "'"),
    (&['\u{201c}', '\u{201d}', '\u{201e}', '\u{201f}'], "\""),
    (&['\u{fb00}'], "ff"),
    (&['\u{fb01}'], "fi"),
    (&['\u{fb02}'], "fl"),
    (&['\u{fb03}'], "ffi"),
    (&['\u{fb04}'], "ffl"),
    (&['\u{fb05}'], "ſt"),
    (&['\u{fb06}'], "st"),
];

/// A text encoder's tokenizer.
#[derive(Debug)]
pub(crate) struct Tokenizer {
    path: String,
    inner: tokenizers::Tokenizer,
    bos: Option<u32>,
    eos: u32,
    pad: u32,
    clip: bool,
}

impl Tokenizer {
    /// Reads CLIP's `vocab.json` and `merges.txt`.
    pub fn clip(folder: &Path) -> Result<Tokenizer> {
        let path = folder.display().to_string();
        let bad = |reason: String| Error::Tokenizer { path: path.clone(), reason };
        let vocab = Config::read(&folder.join("vocab.json"))?;
        let invalid = |id: &Value| id.as_u64().is_none_or(|id| id >= MAX_TOKENS);
        let value = vocab.value();
        if let Some((token, id)) = value.as_object().and_then(|vocab| vocab.iter().find(|(_, id)| invalid(id))) {
            return Err(vocab.bad(token, format!("expected a token id below {MAX_TOKENS}, got {id}")));
        }
        let text = read(&folder.join("merges.txt"))?;
        let text = std::str::from_utf8(&text).map_err(|error| bad(format!("merges.txt: {error}")))?;
        let header = usize::from(text.starts_with("#version"));
        let lines = text.lines().enumerate().skip(header).filter(|(_, line)| !line.trim().is_empty());
        let mut merges = Vec::new();
        for (i, line) in lines {
            let pair = line.split_once(' ').filter(|(left, right)| {
                [*left, *right, &format!("{left}{right}")].iter().all(|token| vocab.get(token).is_some()) && !right.contains(' ')
            });
            let (left, right) =
                pair.ok_or_else(|| bad(format!("merges.txt: line {}: expected two tokens of the vocabulary, got {line:?}", i + 1)))?;
            merges.push(json!([left, right]));
        }
        let id = |token: &str| vocab.get(token).and_then(Value::as_u64).map(|id| id as u32);
        let need = |token: &str| id(token).ok_or_else(|| vocab.bad(token, "missing token"));
        let (bos, eos) = (need(BOS)?, need(EOS)?);
        let special = |content: &str, id: u32| {
            json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                "special": true})
        };
        let pad_token = pad_token(folder)?;
        let mut added = vec![special(BOS, bos), special(EOS, eos)];
        let pad = match pad_token.filter(|token| token != EOS && token != BOS) {
            Some(token) => {
                let id = need(&token)?;
                // In a text it stands for itself, never for a part of a longer token.
                added.push(special(&token, id));
                id
            }
            None => eos,
        };
        let tokenizer = json!({
            "version": "1.0",
            "added_tokens": added,
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "NFC"},
                {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
                {"type": "Lowercase"},
            ]},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": WORDS}, "behavior": "Removed", "invert": true},
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            ]},
            "model": {"type": "BPE", "unk_token": EOS, "continuing_subword_prefix": "", "end_of_word_suffix": "</w>",
                "fuse_unk": false, "vocab": value, "merges": merges},
        });
        let inner = build(&path, tokenizer.to_string().as_bytes())?;
        Ok(Tokenizer { inner, bos: Some(bos), eos, pad, clip: true, path })
    }

    /// Reads T5's `tokenizer.json`.
    pub fn t5(folder: &Path) -> Result<Tokenizer> {
        let file = folder.join("tokenizer.json");
        let path = file.display().to_string();
        let mut inner = build(&path, &read(&file)?)?;
        // A file saved after use may pad and cut.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|error| Error::Tokenizer { path: path.clone(), reason: error.to_string() })?;
        let need = |token: &str| {
            let missing = || Error::Tokenizer { path: path.clone(), reason: format!("the vocabulary has no token {token}") };
            inner.token_to_id(token).ok_or_else(missing)
        };
        let (eos, pad) = (need("</s>")?, need("<pad>")?);
        Ok(Tokenizer { inner, bos: None, eos, pad, clip: false, path })
    }

    /// The id that fills rows.
    pub fn pad(&self) -> u32 {
        self.pad
    }

    /// The ids of a text, without BOS, EOS and padding.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut text = text.to_owned();
        if self.clip {
            for (from, to) in REPLACED {
                text = text.replace(from, to);
            }
        }
        let encoded = self.inner.encode(text.trim(), false);
        let encoded = encoded.map_err(|error| Error::Tokenizer { path: self.path.clone(), reason: error.to_string() })?;
        Ok(encoded.get_ids().to_vec())
    }

    /// A row of `length` ids: BOS where there is one, the ids as far as they fit, EOS and padding.
    pub fn row(&self, ids: &[u32], length: usize) -> Vec<u32> {
        let room = length.saturating_sub(1 + usize::from(self.bos.is_some()));
        let mut row: Vec<u32> = self.bos.into_iter().chain(ids.iter().copied().take(room)).chain([self.eos]).collect();
        row.resize(length, self.pad);
        row
    }
}

fn build(path: &str, text: &[u8]) -> Result<tokenizers::Tokenizer> {
    let bad = |reason: String| Error::Tokenizer { path: path.to_owned(), reason };
    // The crate may panic on hostile files.
    std::panic::catch_unwind(|| tokenizers::Tokenizer::from_bytes(text))
        .map_err(|_| bad("the tokenizers crate cannot read this file".into()))?
        .map_err(|error| bad(error.to_string()))
}

/// The padding token that the folder's files name.
fn pad_token(folder: &Path) -> Result<Option<String>> {
    for name in ["special_tokens_map.json", "tokenizer_config.json"] {
        let path = folder.join(name);
        if !path.is_file() {
            continue;
        }
        let config = Config::read(&path)?;
        let found = config.get("pad_token").map(|token| token["content"].as_str().or(token.as_str()).map(str::to_owned));
        match found {
            Some(Some(token)) => return Ok(Some(token)),
            Some(None) => return Err(config.bad("pad_token", "expected a string, or an object with `content`")),
            None => {}
        }
    }
    Ok(None)
}
