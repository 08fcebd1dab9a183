//! A tokenizer of a Hugging Face folder: `tokenizer.json`, and beside it `tokenizer_config.json`, `special_tokens_map.json` and
//! `chat_template.jinja`, as far as they are there; or of a GGUF file that has `tokenizer.json` in one of its keys.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use warpwave_weights::Gguf;

use super::bytes::bytes_of;
use super::{MOST_TOKENS, Marks, Result, Said, Spelling, Tokenizer};
use crate::text_error::{TextError, malformed};

/// Bytes of a file at most.
const LARGEST_FILE: u64 = 1 << 28;
/// Where a GGUF file has a whole `tokenizer.json`.
const KEY: &str = "tokenizer.huggingface.json";

/// The parts of `tokenizer.json` that are checked before the library reads it: it trusts them.
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

/// Whether a `tokenizer.json` says that it is no BPE.
fn is_of_another_kind(text: &str) -> bool {
    let read: Option<serde_json::Value> = serde_json::from_str(text).ok();
    read.is_some_and(|read| read["model"]["type"].as_str().is_some_and(|kind| kind != "BPE"))
}

impl Tokenizer {
    /// The tokenizer of a folder, or of a file `tokenizer.json` and those beside it.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let path = if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() };
        let beside = |name: &str| -> Result<Option<Vec<u8>>> {
            let path = path.with_file_name(name);
            if path.exists() { read(&path).map(Some) } else { Ok(None) }
        };
        let map = |name: &str| -> Result<Value> {
            let text = beside(name)?.unwrap_or_else(|| b"{}".into());
            serde_json::from_slice(&text).map_err(|error| malformed(name, error.to_string()))
        };
        let (config, special) = (map("tokenizer_config.json")?, map("special_tokens_map.json")?);
        let template = beside("chat_template.jinja")?
            .map(|text| String::from_utf8(text).map_err(|error| malformed("chat_template.jinja", error.to_string())))
            .transpose()?;
        let said = |inner: &tokenizers::Tokenizer| {
            let named = |key: &str| -> Result<Option<u32>> {
                let Some(name) = [&config, &special].into_iter().find_map(|map| token_name(&map[key])) else { return Ok(None) };
                let id = inner.token_to_id(name).ok_or_else(|| malformed(key, format!("{name:?} is no token")))?;
                Ok(Some(id))
            };
            let template = template.or_else(|| template_of(&config["chat_template"]));
            Ok(Said { bos: named("bos_token")?, eos: named("eos_token")?, add_bos: config["add_bos_token"].as_bool(), template })
        };
        Self::from_json(&read(&path)?, said).map_err(within(path.display().to_string()))
    }

    /// The tokenizer that a GGUF file has as a whole `tokenizer.json`, if it has one: that says more than the vocabulary.
    pub(crate) fn from_json_of(file: &Gguf) -> Result<Option<Self>> {
        let Some(text) = file.get_str(KEY)? else { return Ok(None) };
        let said = Said::of(file)?;
        let said = |inner: &tokenizers::Tokenizer| {
            // Ids of the model's configuration need not be the tokenizer's.
            let there = |id: &u32| inner.id_to_token(*id).is_some();
            Ok(Said { bos: said.bos.filter(there), eos: said.eos.filter(there), ..said })
        };
        match Self::from_json(text.as_bytes(), said) {
            // What we do not know may still be known from the vocabulary.
            Err(TextError::Unknown { .. }) => Ok(None),
            Err(_) if is_of_another_kind(text) => Ok(None),
            read => read.map(Some).map_err(within(format!("{}: {KEY}", file.path()))),
        }
    }

    fn from_json(text: &[u8], said: impl FnOnce(&tokenizers::Tokenizer) -> Result<Said>) -> Result<Self> {
        let whole = |reason: String| malformed("the text", reason);
        let file: File = serde_json::from_slice(text).map_err(|error| whole(format!("{error} (only BPE models are known)")))?;
        check(&file)?;
        // The library is not made for hostile files: whatever it does not check must not end the process.
        let inner = std::panic::catch_unwind(|| tokenizers::Tokenizer::from_bytes(text))
            .map_err(|_| whole("the library cannot read it".into()))?
            .map_err(|error| whole(error.to_string()))?;

        let (spelling, space_first) = spelling_of(&file.decoder)?;
        let last = file.model.vocab.values().chain(file.added_tokens.iter().map(|added| &added.id)).max().copied().unwrap_or(0);
        let mut bytes: Vec<Option<Box<[u8]>>> = vec![None; last as usize + 1];
        for (token, id) in &file.model.vocab {
            if bytes[*id as usize].replace(bytes_of(token, spelling)).is_some() {
                return Err(malformed("model.vocab", format!("{token:?} has the id {id}, which another token has too")));
            }
        }
        let mut special = HashSet::new();
        for added in &file.added_tokens {
            let found = inner.token_to_id(&added.content);
            if found != Some(added.id) {
                let reason = format!("{:?} has the id {}, but its place in the vocabulary gives {found:?}", added.content, added.id);
                return Err(malformed("added_tokens", reason));
            }
            let raw = || added.content.as_bytes().into();
            bytes[added.id as usize] = Some(if spelling == Spelling::ByteLevel { raw() } else { bytes_of(&added.content, spelling) });
            if added.special {
                special.insert(added.id);
            }
        }

        let Said { bos, eos, add_bos, template } = said(&inner)?;
        // What the library puts around nothing is what it puts around a text.
        let around = inner.encode("", true).map_err(|error| malformed("post_processor", error.to_string()))?;
        let add_bos = add_bos.unwrap_or_else(|| bos.is_some() && around.get_ids().first() == bos.as_ref());
        let marks = Marks { bos, eos, add_bos, template };
        Tokenizer::new(inner, bytes, special, space_first, marks)
    }
}

/// An error of a part, with the name of the whole.
fn within(whole: String) -> impl FnOnce(TextError) -> TextError {
    move |error| match error {
        TextError::Malformed { place, reason } => malformed(format!("{whole}: {place}"), reason),
        TextError::Unknown { place, found, known } => TextError::Unknown { place: format!("{whole}: {place}"), found, known },
        error => error,
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let failed = |source| TextError::Read { path: path.to_owned(), source };
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > LARGEST_FILE {
        return Err(malformed(path.display().to_string(), format!("it has {size} bytes; no more than {LARGEST_FILE} are read")));
    }
    std::fs::read(path).map_err(failed)
}

/// What the library takes for granted.
fn check(file: &File) -> Result<()> {
    let model = &file.model;
    if let Some(kind) = model.kind.as_deref().filter(|kind| *kind != "BPE") {
        return Err(TextError::Unknown { place: "model.type".into(), found: kind.into(), known: "BPE".into() });
    }
    for (name, affix) in
        [("continuing_subword_prefix", &model.continuing_subword_prefix), ("end_of_word_suffix", &model.end_of_word_suffix)]
    {
        if let Some(affix) = affix.as_deref().filter(|affix| !affix.is_empty()) {
            return Err(TextError::Unknown { place: format!("model.{name}"), found: affix.into(), known: "none".into() });
        }
    }
    let ids = model.vocab.iter().map(|(token, id)| (token, *id));
    let added = file.added_tokens.iter().map(|added| (&added.content, added.id));
    if let Some((token, id)) = ids.chain(added).find(|(_, id)| *id as usize >= MOST_TOKENS) {
        return Err(malformed("model.vocab", format!("{token:?} has the id {id}; ids below {MOST_TOKENS} are possible")));
    }
    let mut joined = String::new();
    for (number, merge) in model.merges.iter().enumerate() {
        let here = || format!("model.merges[{number}]");
        let (left, right) = match merge {
            Merge::Pair(left, right) => (left.as_str(), right.as_str()),
            Merge::Text(text) => text.split_once(' ').ok_or_else(|| malformed(here(), format!("{text:?} is not two tokens")))?,
        };
        joined.clear();
        joined.extend([left, right]);
        if let Some(missing) = [left, right, &joined].into_iter().find(|token| !model.vocab.contains_key(*token)) {
            return Err(malformed(here(), format!("{missing:?} is no token")));
        }
    }
    Ok(())
}

/// How pieces stand for bytes, and whether a text loses its first space.
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
    let known = "ByteLevel, Metaspace, Replace of ▁".to_owned();
    let found = decoder.to_string().chars().take(200).collect();
    Err(TextError::Unknown { place: "decoder".into(), found, known })
}

/// Tokens are named by their text, or by an object that has it.
fn token_name(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}

/// A template by itself, or the default one of several.
fn template_of(value: &Value) -> Option<String> {
    let listed = || {
        let templates = value.as_array()?;
        templates.iter().find(|template| template["name"] == "default").or(templates.first())?["template"].as_str()
    };
    value.as_str().or_else(listed).map(str::to_owned)
}
