//! WordPiece tokenizers: of `tokenizer.json`, of `vocab.txt`, and of GGUF files.

use std::path::Path;

use serde_json::{Map, Value, json};
use warpwave_weights::Gguf;

use crate::text_error::{TextError, malformed};

type Result<T, E = TextError> = std::result::Result<T, E>;

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 1 << 26;
/// The GGUF key of an embedded `tokenizer.json`.
pub(super) const KEY: &str = "tokenizer.huggingface.json";
/// The sign of the beginning of a word in GGUF files, where `##` is left out.
const BEGINNING: char = '\u{2581}';
/// Special tokens: the file must have those that surround a text.
const SPECIAL: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];

/// Converts texts to the tokens of an encoder.
#[derive(Debug)]
pub struct EncoderTokenizer {
    inner: tokenizers::Tokenizer,
    /// The file that makes the same tokenizer.
    json: String,
}

impl EncoderTokenizer {
    /// Reads `tokenizer.json` of a folder, or else `vocab.txt`.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let path = folder.join("tokenizer.json");
        if path.is_file() {
            return Self::from_json(&read(&path)?).map_err(|error| malformed(path.display().to_string(), error.to_string()));
        }
        let path = folder.join("vocab.txt");
        let text = read(&path)?;
        let tokens: Vec<String> = text.lines().map(str::to_owned).collect();
        let settings = folder.join("tokenizer_config.json");
        let settings: Value = match settings.is_file() {
            true => serde_json::from_str(&read(&settings)?).map_err(|error| malformed("tokenizer_config.json", error.to_string()))?,
            false => Value::Null,
        };
        let lowercase = settings["do_lower_case"].as_bool().unwrap_or(true);
        Self::from_tokens(&tokens, lowercase).map_err(|error| malformed(path.display().to_string(), error.to_string()))
    }

    /// Reads the tokenizer of a GGUF file: an embedded `tokenizer.json`, or else the list of tokens; texts are then lowercased.
    pub fn from_gguf(file: &Gguf) -> Result<Self> {
        if let Some(text) = file.get_str(KEY)? {
            return Self::from_json(text).map_err(|error| malformed(format!("{}: {KEY}", file.path()), error.to_string()));
        }
        let model = file.need_str("tokenizer.ggml.model")?;
        if model != "bert" {
            let place = format!("{}: tokenizer.ggml.model", file.path());
            return Err(TextError::Unknown { place, found: model.to_owned(), expected: "bert".to_owned() });
        }
        let tokens: Vec<String> = file.need_strs("tokenizer.ggml.tokens")?.map(unmarked).collect();
        Self::from_tokens(&tokens, true)
    }

    /// A tokenizer of a list of tokens.
    fn from_tokens(tokens: &[String], lowercase: bool) -> Result<Self> {
        let vocab: Map<String, Value> = tokens.iter().enumerate().map(|(id, token)| (token.clone(), id.into())).collect();
        if vocab.len() != tokens.len() {
            return Err(malformed(
                "vocabulary",
                format!("{} tokens, but only {} distinct ones; tokens must be unique", tokens.len(), vocab.len()),
            ));
        }
        let id = |token: &str| vocab.get(token).cloned().ok_or_else(|| malformed("vocabulary", format!("{token} is missing")));
        let added = |token: &str| {
            let no = false;
            let id = vocab.get(token)?;
            Some(json!({ "id": id, "content": token, "single_word": no, "lstrip": no, "rstrip": no, "normalized": no, "special": true }))
        };
        let piece = |token: &str| json!({ "SpecialToken": { "id": token, "type_id": 0 } });
        let surrounding = |token: &str| -> Result<Value> { Ok(json!({ "id": token, "ids": [id(token)?], "tokens": [token] })) };
        let template = json!([piece("[CLS]"), { "Sequence": { "id": "A", "type_id": 0 } }, piece("[SEP]")]);
        let json = json!({
            "version": "1.0",
            "added_tokens": SPECIAL.into_iter().filter_map(added).collect::<Vec<Value>>(),
            "normalizer": {
                "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": lowercase,
            },
            "pre_tokenizer": { "type": "BertPreTokenizer" },
            "post_processor": {
                "type": "TemplateProcessing", "single": template, "pair": template,
                "special_tokens": { "[CLS]": surrounding("[CLS]")?, "[SEP]": surrounding("[SEP]")? },
            },
            "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
            "model": {
                "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab,
            },
        });
        Self::from_json(&json.to_string())
    }

    fn from_json(text: &str) -> Result<Self> {
        let json: Value = serde_json::from_str(text).map_err(|error| malformed("file", error.to_string()))?;
        let model = &json["model"];
        if model["type"] != "WordPiece" {
            let found = model["type"].as_str().unwrap_or("none").to_owned();
            return Err(TextError::Unknown { place: "model.type".to_owned(), found, expected: "WordPiece".to_owned() });
        }
        let unknown = model["unk_token"].as_str().unwrap_or("[UNK]");
        if model["vocab"].get(unknown).is_none() {
            return Err(malformed("model.vocab", format!("the unknown token {unknown:?} is missing")));
        }
        // The crate may panic on hostile files.
        let read = std::panic::catch_unwind(|| tokenizers::Tokenizer::from_bytes(text));
        let mut inner = read
            .map_err(|_| malformed("file", "the tokenizers crate cannot read this file"))?
            .map_err(|error| malformed("file", error.to_string()))?;
        // Padding is up to the batch, and a text that is too long is an error, not cut.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|error| malformed("truncation", error.to_string()))?;
        Ok(EncoderTokenizer { inner, json: text.to_owned() })
    }

    /// Encodes a text with the tokens around it, such as `[CLS]` and `[SEP]`.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let failed = |error: tokenizers::Error| TextError::Encode { bytes: text.len(), reason: error.to_string() };
        Ok(self.inner.encode(text, true).map_err(failed)?.get_ids().to_vec())
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Returns whether the vocabulary is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The `tokenizer.json` of this tokenizer.
    pub(super) fn json(&self) -> &str {
        &self.json
    }

    /// The tokens as GGUF files spell them, up to `count`; unused ids get a name.
    pub(super) fn gguf_tokens(&self, count: usize) -> Vec<String> {
        (0..count as u32).map(|id| self.inner.id_to_token(id).map_or_else(|| format!("[PAD{id}]"), |token| marked(&token))).collect()
    }

    /// The id of a token.
    pub(super) fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }
}

/// A token as GGUF files spell it: beginnings of words are marked instead of their continuations.
fn marked(token: &str) -> String {
    match token.strip_prefix("##") {
        Some(rest) => rest.to_owned(),
        None if is_special(token) => token.to_owned(),
        None => format!("{BEGINNING}{token}"),
    }
}

fn unmarked(token: &str) -> String {
    match token.strip_prefix(BEGINNING) {
        Some(rest) => rest.to_owned(),
        None if is_special(token) => token.to_owned(),
        None => format!("##{token}"),
    }
}

fn is_special(token: &str) -> bool {
    token.starts_with('[') && token.ends_with(']')
}

fn read(path: &Path) -> Result<String> {
    let failed = |source| TextError::Read { path: path.to_owned(), source };
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > MAX_FILE {
        return Err(malformed(path.display().to_string(), format!("{size} bytes exceed the maximum of {MAX_FILE}")));
    }
    std::fs::read_to_string(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_gguf_files_are_spelled_as_there() {
        for (token, there) in [("the", "\u{2581}the"), ("##ing", "ing"), ("[CLS]", "[CLS]"), (".", "\u{2581}."), ("##.", ".")] {
            assert_eq!((marked(token), unmarked(there)), (there.to_owned(), token.to_owned()));
        }
    }
}
