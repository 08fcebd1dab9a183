//! Tokenizers from `tokenizer.json`: of a Hugging Face folder, with the optional `tokenizer_config.json`, `special_tokens_map.json` and
//! `chat_template.jinja`, or embedded in a GGUF file.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use warpwave_weights::Gguf;

use super::bytes::bytes_of;
use super::{FileSettings, MAX_TOKENS, Result, Settings, Spelling, Tokenizer};
use crate::text_error::{TextError, malformed};

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 1 << 28;
/// The GGUF key of an embedded `tokenizer.json`.
const KEY: &str = "tokenizer.huggingface.json";

/// The parts of `tokenizer.json` that are checked before the `tokenizers` crate reads it, which trusts them.
#[derive(Deserialize)]
struct File {
    model: ModelPart,
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    decoder: Value,
}

#[derive(Deserialize)]
struct ModelPart {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    vocab: HashMap<String, u32>,
    merges: Vec<Merge>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Text(String),
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
    special: bool,
}

/// Whether a `tokenizer.json` has a model other than BPE.
fn has_other_model(text: &str) -> bool {
    let read: Option<serde_json::Value> = serde_json::from_str(text).ok();
    read.is_some_and(|read| read["model"]["type"].as_str().is_some_and(|kind| kind != "BPE"))
}

impl Tokenizer {
    /// Reads the tokenizer of a Hugging Face folder, or a `tokenizer.json` with the files next to it.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let path = if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() };
        let sibling = |name: &str| -> Result<Option<Vec<u8>>> {
            let path = path.with_file_name(name);
            if path.exists() { read(&path).map(Some) } else { Ok(None) }
        };
        let map = |name: &str| -> Result<Value> {
            let text = sibling(name)?.unwrap_or_else(|| b"{}".into());
            serde_json::from_slice(&text).map_err(|error| malformed(name, error.to_string()))
        };
        let (config, special) = (map("tokenizer_config.json")?, map("special_tokens_map.json")?);
        let template = sibling("chat_template.jinja")?
            .map(|text| String::from_utf8(text).map_err(|error| malformed("chat_template.jinja", error.to_string())))
            .transpose()?;
        let settings = |inner: &tokenizers::Tokenizer| {
            let named = |key: &str| -> Result<Option<u32>> {
                let Some(name) = [&config, &special].into_iter().find_map(|map| token_name(&map[key])) else { return Ok(None) };
                let id = inner.token_to_id(name).ok_or_else(|| malformed(key, format!("{name:?} is not in the vocabulary")))?;
                Ok(Some(id))
            };
            let template = template.or_else(|| template_of(&config["chat_template"]));
            let add_bos = config["add_bos_token"].as_bool();
            Ok(FileSettings { bos: named("bos_token")?, eos: named("eos_token")?, add_bos, template })
        };
        Self::from_json(&read(&path)?, settings).map_err(within(path.display().to_string()))
    }

    /// Reads the `tokenizer.json` embedded in a GGUF file, if there is one of a supported type. It is more precise than the vocabulary.
    pub(crate) fn from_embedded_json(file: &Gguf) -> Result<Option<Self>> {
        let Some(text) = file.get_str(KEY)? else { return Ok(None) };
        let settings = FileSettings::from_gguf(file)?;
        let settings = |inner: &tokenizers::Tokenizer| {
            // The model's configuration may name ids that the tokenizer lacks.
            let there = |id: &u32| inner.id_to_token(*id).is_some();
            Ok(FileSettings { bos: settings.bos.filter(there), eos: settings.eos.filter(there), ..settings })
        };
        match Self::from_json(text.as_bytes(), settings) {
            // The vocabulary in the metadata may still be of a supported type.
            Err(TextError::Unknown { .. }) => Ok(None),
            Err(_) if has_other_model(text) => Ok(None),
            read => read.map(Some).map_err(within(format!("{}: {KEY}", file.path()))),
        }
    }

    fn from_json(text: &[u8], settings: impl FnOnce(&tokenizers::Tokenizer) -> Result<FileSettings>) -> Result<Self> {
        let invalid = |reason: String| malformed("file", reason);
        let file: File = serde_json::from_slice(text).map_err(|error| invalid(format!("{error} (only BPE models are supported)")))?;
        check(&file)?;
        // The crate may panic on hostile files.
        let inner = std::panic::catch_unwind(|| tokenizers::Tokenizer::from_bytes(text))
            .map_err(|_| invalid("the tokenizers crate cannot read this file".into()))?
            .map_err(|error| invalid(error.to_string()))?;

        let (spelling, space_first) = spelling_of(&file.decoder)?;
        let last = file.model.vocab.values().chain(file.added_tokens.iter().map(|added| &added.id)).max().copied().unwrap_or(0);
        let mut bytes: Vec<Option<Box<[u8]>>> = vec![None; last as usize + 1];
        for (token, id) in &file.model.vocab {
            if bytes[*id as usize].replace(bytes_of(token, spelling)).is_some() {
                return Err(malformed("model.vocab", format!("{token:?} has id {id}, which is already used by another token")));
            }
        }
        let mut special = HashSet::new();
        for added in &file.added_tokens {
            let found = inner.token_to_id(&added.content);
            if found != Some(added.id) {
                let reason = format!("{:?} has id {}, but its position in the vocabulary implies id {found:?}", added.content, added.id);
                return Err(malformed("added_tokens", reason));
            }
            let raw = || added.content.as_bytes().into();
            bytes[added.id as usize] = Some(if spelling == Spelling::ByteLevel { raw() } else { bytes_of(&added.content, spelling) });
            if added.special {
                special.insert(added.id);
            }
        }

        let FileSettings { bos, eos, add_bos, template } = settings(&inner)?;
        // Encoding an empty text shows which tokens the post-processor adds.
        let around = inner.encode("", true).map_err(|error| malformed("post_processor", error.to_string()))?;
        let add_bos = add_bos.unwrap_or_else(|| bos.is_some() && around.get_ids().first() == bos.as_ref());
        let settings = Settings { bos, eos, add_bos, template };
        Tokenizer::new(inner, bytes, special, space_first, settings)
    }
}

/// Prefixes an error with the file's name.
fn within(whole: String) -> impl FnOnce(TextError) -> TextError {
    move |error| match error {
        TextError::Malformed { place, reason } => malformed(format!("{whole}: {place}"), reason),
        TextError::Unknown { place, found, expected } => TextError::Unknown { place: format!("{whole}: {place}"), found, expected },
        error => error,
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let failed = |source| TextError::Read { path: path.to_owned(), source };
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > MAX_FILE {
        return Err(malformed(path.display().to_string(), format!("{size} bytes exceed the maximum of {MAX_FILE}")));
    }
    std::fs::read(path).map_err(failed)
}

/// Checks what the `tokenizers` crate takes for granted.
fn check(file: &File) -> Result<()> {
    let model = &file.model;
    if let Some(kind) = model.kind.as_deref().filter(|kind| *kind != "BPE") {
        return Err(TextError::Unknown { place: "model.type".into(), found: kind.into(), expected: "BPE".into() });
    }
    for (name, affix) in
        [("continuing_subword_prefix", &model.continuing_subword_prefix), ("end_of_word_suffix", &model.end_of_word_suffix)]
    {
        if let Some(affix) = affix.as_deref().filter(|affix| !affix.is_empty()) {
            return Err(TextError::Unknown { place: format!("model.{name}"), found: affix.into(), expected: "none".into() });
        }
    }
    let ids = model.vocab.iter().map(|(token, id)| (token, *id));
    let added = file.added_tokens.iter().map(|added| (&added.content, added.id));
    if let Some((token, id)) = ids.chain(added).find(|(_, id)| *id as usize >= MAX_TOKENS) {
        return Err(malformed("model.vocab", format!("{token:?} has id {id}; ids must be below {MAX_TOKENS}")));
    }
    let mut joined = String::new();
    for (number, merge) in model.merges.iter().enumerate() {
        let here = || format!("model.merges[{number}]");
        let (left, right) = match merge {
            Merge::Pair(left, right) => (left.as_str(), right.as_str()),
            Merge::Text(text) => text.split_once(' ').ok_or_else(|| malformed(here(), format!("expected two tokens, got {text:?}")))?,
        };
        joined.clear();
        joined.extend([left, right]);
        if let Some(missing) = [left, right, &joined].into_iter().find(|token| !model.vocab.contains_key(*token)) {
            return Err(malformed(here(), format!("{missing:?} is not in the vocabulary")));
        }
    }
    Ok(())
}

/// How tokens are spelled, and whether decoding removes a leading space.
fn spelling_of(decoder: &Value) -> Result<(Spelling, bool)> {
    let single = std::slice::from_ref(decoder);
    let steps = decoder["decoders"].as_array().map_or(single, Vec::as_slice);
    let named = |name: &str| steps.iter().find(|step| step["type"] == name);
    if named("ByteLevel").is_some() {
        return Ok((Spelling::ByteLevel, false));
    }
    let strips = named("Strip").is_some_and(|strip| strip["start"].as_u64().unwrap_or(0) > 0);
    if let Some(spaces) = named("Metaspace") {
        let first = spaces["prepend_scheme"].as_str().map_or_else(|| spaces["add_prefix_space"] != false, |scheme| scheme != "never");
        return Ok((Spelling::SentencePiece, first));
    }
    if named("Replace").is_some_and(|replace| replace["pattern"]["String"] == "▁" && replace["content"] == " ") {
        return Ok((Spelling::SentencePiece, strips));
    }
    let expected = "ByteLevel, Metaspace, Replace of ▁".to_owned();
    let found = decoder.to_string().chars().take(200).collect();
    Err(TextError::Unknown { place: "decoder".into(), found, expected })
}

/// A token's name: a string, or an object with `content`.
fn token_name(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}

/// A single template, or the default one of several.
fn template_of(value: &Value) -> Option<String> {
    let listed = || {
        let templates = value.as_array()?;
        templates.iter().find(|template| template["name"] == "default").or(templates.first())?["template"].as_str()
    };
    value.as_str().or_else(listed).map(str::to_owned)
}
