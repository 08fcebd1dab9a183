//! Writes a Hugging Face folder's tokenizer as GGUF metadata.

use std::borrow::Cow;
use std::path::Path;

use serde_json::{Map, Value as Json};
use warpwave_weights::{Array, Value};

use super::error::{CheckpointError, Result};
use super::json::{self, Keys};
use crate::config::Config;
use crate::tokenizer::pre_tokenizer_name;

type Metadata = Vec<(Cow<'static, str>, Value<'static>)>;

/// GGUF's token types.
mod kind {
    pub const NORMAL: i32 = 1;
    pub const UNKNOWN: i32 = 2;
    pub const CONTROL: i32 = 3;
    pub const USER_DEFINED: i32 = 4;
    pub const UNUSED: i32 = 5;
    pub const BYTE: i32 = 6;
}

/// Returns the metadata of a folder's tokenizer, if it has one: GGUF's own keys for BPE models, and `tokenizer.json` embedded unchanged.
pub(super) fn metadata(folder: &Path, config: &Config) -> Result<Metadata> {
    let path = folder.join("tokenizer.json");
    if !path.is_file() {
        return Ok(Vec::new());
    }
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(&path).map_err(|source| CheckpointError::Io { path: shown.clone(), source })?;
    let json = json::read(&path)?;
    let sibling = |name: &str| {
        let path = folder.join(name);
        if path.is_file() { json::read(&path) } else { Ok(Json::Null) }
    };
    let (settings_json, special) = (sibling("tokenizer_config.json")?, sibling("special_tokens_map.json")?);
    let settings_shown = folder.join("tokenizer_config.json").display().to_string();
    let settings = Keys::new(&settings_shown, settings_json.as_object().into_iter().collect());
    let keys = Keys::new(&shown, json.as_object().into_iter().collect());

    let mut out: Metadata = Vec::new();
    let model = keys.need("model", keys.object("model")?)?;
    if model.str("type")?.is_none_or(|kind| kind == "BPE") {
        bpe(&json, &keys, &model, config, &mut out)?;
    }
    // The tokenizer's files take precedence over the model's configuration.
    let named = |key: &str| {
        let name = |map: &Json| map[key].as_str().or_else(|| map[key]["content"].as_str()).map(str::to_owned);
        id_of(&json, &name(&settings_json).or_else(|| name(&special))?)
    };
    let (bos, eos) = (named("bos_token"), named("eos_token"));
    for (key, id) in [("bos_token_id", bos), ("eos_token_id", eos)] {
        if let Some(id) = id {
            add(&mut out, key, id);
        }
    }
    let begins = match settings.bool("add_bos_token")? {
        Some(begins) => begins,
        None => bos.or(config.bos).is_some_and(|bos| begins_with(&json, bos)),
    };
    add(&mut out, "add_bos_token", begins);
    if let Some(ends) = settings.bool("add_eos_token")? {
        add(&mut out, "add_eos_token", ends);
    }
    if let Some(template) = template(folder, &settings)? {
        out.push(("tokenizer.chat_template".into(), template.into()));
    }
    out.push(("tokenizer.huggingface.json".into(), text.into()));
    Ok(out)
}

fn add(out: &mut Metadata, key: &str, value: impl Into<Value<'static>>) {
    out.push((format!("tokenizer.ggml.{key}").into(), value.into()));
}

/// The id of a token by its text.
fn id_of(tokenizer: &Json, text: &str) -> Option<u32> {
    let added = tokenizer["added_tokens"].as_array().into_iter().flatten().find(|added| added["content"] == text);
    let id = added.map_or(&tokenizer["model"]["vocab"][text], |added| &added["id"]);
    id.as_u64().and_then(|id| id.try_into().ok())
}

/// Adds tokens, their types, and merges or scores.
fn bpe(tokenizer: &Json, keys: &Keys<'_>, model: &Keys<'_>, config: &Config, out: &mut Metadata) -> Result<()> {
    let vocabulary = model.need("vocab", model.get("vocab").and_then(Json::as_object))?;
    let sentencepiece = model.bool("byte_fallback")?.unwrap_or(false);
    let mut tokens: Vec<Option<(&str, i32)>> = vec![None; config.vocab];
    let unknown = model.str("unk_token")?;
    for (text, id) in vocabulary {
        let kind = match text {
            text if Some(&**text) == unknown => kind::UNKNOWN,
            text if sentencepiece && is_byte(text) => kind::BYTE,
            _ => kind::NORMAL,
        };
        *slot(model, "vocab", text, id, &mut tokens)? = Some((text, kind));
    }
    for added in keys.array("added_tokens")?.into_iter().flatten() {
        let text = added.get("content").and_then(Json::as_str);
        let text = text.ok_or_else(|| keys.bad("added_tokens", "an entry has no `content`"))?;
        let special = added.get("special").and_then(Json::as_bool).unwrap_or(false);
        let kind = match special {
            _ if Some(text) == unknown => kind::UNKNOWN,
            true => kind::CONTROL,
            false => kind::USER_DEFINED,
        };
        *slot(keys, "added_tokens", text, added.get("id").unwrap_or(&Json::Null), &mut tokens)? = Some((text, kind));
    }
    let merges = merges(model)?;
    add(out, "model", if sentencepiece { "llama" } else { "gpt2" });
    // If the pre-tokenizer has no GGUF name, the key is omitted: readers then use a default, and llama.cpp warns. A wrong name would be used
    // silently.
    if let Some(name) = if sentencepiece { Some("default") } else { pre_tokenizer_name(tokenizer) } {
        add(out, "pre", name);
    }
    let texts: Vec<Cow<'_, str>> = tokens
        .iter()
        .enumerate()
        .map(|(id, token)| match token {
            // GGUF files spell these with spaces.
            Some((text, kind::USER_DEFINED)) if sentencepiece => text.replace('▁', " ").into(),
            Some((text, _)) => (*text).into(),
            None => format!("[PAD{id}]").into(),
        })
        .collect();
    add(out, "tokens", Array::strs(texts.iter().map(|text| &**text)));
    add(out, "token_type", Array::i32s(tokens.iter().map(|token| token.map_or(kind::UNUSED, |(_, kind)| kind))));
    if sentencepiece {
        // The first merge has the highest score; tokens without a merge have the lowest.
        let mut scores = vec![-(merges.len() as f32); tokens.len()];
        for (rank, (first, second)) in merges.iter().enumerate().rev() {
            let id = vocabulary.get(&format!("{first}{second}")).and_then(Json::as_u64).and_then(|id| usize::try_from(id).ok());
            if let Some(score) = id.and_then(|id| scores.get_mut(id)) {
                *score = -(rank as f32);
            }
        }
        add(out, "scores", Array::f32s(scores));
        add(out, "add_space_prefix", prepends(keys));
    } else {
        let merges: Vec<String> = merges.iter().map(|(first, second)| format!("{first} {second}")).collect();
        add(out, "merges", Array::strs(merges.iter().map(String::as_str)));
    }
    if let Some(id) = unknown.and_then(|text| vocabulary.get(text)).and_then(Json::as_u64).and_then(|id| u32::try_from(id).ok()) {
        add(out, "unknown_token_id", id);
    }
    Ok(())
}

/// The entry of a token by its id.
fn slot<'a, 't>(
    keys: &Keys<'_>,
    key: &str,
    text: &str,
    id: &Json,
    tokens: &'a mut [Option<(&'t str, i32)>],
) -> Result<&'a mut Option<(&'t str, i32)>> {
    let count = tokens.len();
    let entry = id.as_u64().and_then(|id| tokens.get_mut(usize::try_from(id).ok()?));
    entry.ok_or_else(|| keys.bad(key, format!("token {text:?} has id {id}, out of range for a vocabulary of {count}")))
}

fn is_byte(text: &str) -> bool {
    text.len() == 6 && text.starts_with("<0x") && text.ends_with('>')
}

/// Reads the merges: strings with a space, or pairs of strings.
fn merges<'a>(model: &Keys<'a>) -> Result<Vec<(&'a str, &'a str)>> {
    let merge = |merge: &'a Json| match merge {
        Json::String(text) => text.split_once(' '),
        Json::Array(pair) => match pair.as_slice() {
            [first, second] => first.as_str().zip(second.as_str()),
            _ => None,
        },
        _ => None,
    };
    let merges = model.array("merges")?.map_or(&[][..], Vec::as_slice);
    let one = |(index, json)| merge(json).ok_or_else(|| model.bad("merges", format!("entry {index}: expected two strings, got {json}")));
    merges.iter().enumerate().map(one).collect()
}

/// Whether encoding prepends a space.
fn prepends(keys: &Keys<'_>) -> bool {
    let normalizer = keys.get("normalizer").map(Json::to_string).unwrap_or_default();
    let splitter = keys.get("pre_tokenizer").map(Json::to_string).unwrap_or_default();
    normalizer.contains("\"Prepend\"")
        || (splitter.contains("\"Metaspace\"")
            && !splitter.contains("\"prepend_scheme\":\"never\"")
            && !splitter.contains("\"add_prefix_space\":false"))
}

/// Whether the tokenizer prepends BOS to each text.
fn begins_with(json: &Json, bos: u32) -> bool {
    fn templates<'a>(processor: &'a Json, out: &mut Vec<&'a Map<String, Json>>) {
        let Some(object) = processor.as_object() else { return };
        match object.get("type").and_then(Json::as_str) {
            Some("TemplateProcessing") => out.push(object),
            // Sequences are not nested.
            Some("Sequence") => {
                let parts = object.get("processors").and_then(Json::as_array).into_iter().flatten();
                out.extend(
                    parts.filter_map(Json::as_object).filter(|part| part.get("type").and_then(Json::as_str) == Some("TemplateProcessing")),
                );
            }
            _ => (),
        }
    }
    let mut found = Vec::new();
    templates(json.get("post_processor").unwrap_or(&Json::Null), &mut found);
    found.iter().any(|template| {
        let first = template.get("single").and_then(|single| single.get(0)).and_then(|first| first.get("SpecialToken"));
        let name = first.and_then(|first| first.get("id")).and_then(Json::as_str);
        let ids = name.and_then(|name| template.get("special_tokens")?.get(name)?.get("ids")?.as_array());
        ids.is_some_and(|ids| ids.iter().any(|id| id.as_u64() == Some(bos.into())))
    })
}

/// The chat template: a separate file, or in the settings, single or one of several.
fn template(folder: &Path, settings: &Keys<'_>) -> Result<Option<String>> {
    let path = folder.join("chat_template.jinja");
    if path.is_file() {
        let read = std::fs::read_to_string(&path);
        return read.map(Some).map_err(|source| CheckpointError::Io { path: path.display().to_string(), source });
    }
    Ok(match settings.get("chat_template") {
        None => None,
        Some(Json::String(template)) => Some(template.clone()),
        Some(Json::Array(several)) => {
            let named = |one: &&Json| one.get("name").and_then(Json::as_str) == Some("default");
            let one = several.iter().find(named).and_then(|one| one.get("template")).and_then(Json::as_str);
            Some(one.ok_or_else(|| settings.bad("chat_template", "no template is named `default`"))?.to_owned())
        }
        Some(other) => return Err(settings.bad("chat_template", format!("expected a string, got {other}"))),
    })
}
