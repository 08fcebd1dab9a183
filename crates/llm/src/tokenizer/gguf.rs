//! Tokenizers from the vocabulary in GGUF metadata.

use std::collections::{HashMap, HashSet};

use tokenizers::AddedToken;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::{NormalizerWrapper, Prepend, Replace, Sequence};
use warpwave_weights::Gguf;

use super::bytes::{byte_token, bytes_of};
use super::pre::PreTokenizer;
use super::{END_OF_TEXT, END_OF_TURN, FileSettings, MAX_TOKENS, Result, Settings, Spelling, Tokenizer};
use crate::text_error::{TextError, malformed};

/// The longest token in bytes: SentencePiece tokens are split at each character to find merges.
const MAX_TOKEN_BYTES: usize = 2048;
/// The largest vocabulary in bytes.
const MAX_BYTES: usize = 1 << 27;

// Values of `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;

/// The vocabulary of a GGUF file: the values of `tokenizer.ggml.*` and `tokenizer.chat_template`.
#[derive(Debug, Clone, Default)]
pub struct Vocabulary<'a> {
    /// `model`: `gpt2` (byte-level BPE) or `llama` (SentencePiece).
    pub model: &'a str,
    /// `pre`: the pre-tokenizer, for `gpt2`.
    pub pre: Option<&'a str>,
    /// `tokens`.
    pub tokens: Vec<&'a [u8]>,
    /// `scores`: SentencePiece merges the largest first. Empty if absent.
    pub scores: Vec<f32>,
    /// `token_type`. Empty if absent: all tokens are normal.
    pub types: Vec<i32>,
    /// `merges`, for `gpt2`: two tokens separated by a space.
    pub merges: Vec<&'a [u8]>,
    /// `bos_token_id`.
    pub bos: Option<u32>,
    /// `eos_token_id`.
    pub eos: Option<u32>,
    /// `unknown_token_id`.
    pub unknown: Option<u32>,
    /// `add_bos_token`.
    pub add_bos: Option<bool>,
    /// `add_space_prefix`.
    pub add_space_prefix: Option<bool>,
    /// Whether special tokens absorb following spaces. Not in the file: true for the architecture `phi3`.
    pub strip_after_special: bool,
    /// `tokenizer.chat_template`.
    pub template: Option<String>,
}

fn key(name: &str) -> String {
    format!("tokenizer.ggml.{name}")
}

fn id(file: &Gguf, name: &str) -> Result<Option<u32>> {
    let Some(id) = file.get_u64(&key(name))? else { return Ok(None) };
    u32::try_from(id).map(Some).map_err(|_| malformed(key(name), format!("token id {id} is out of range")))
}

impl FileSettings {
    /// Reads the settings of a file.
    pub(super) fn from_gguf(file: &Gguf) -> Result<Self> {
        Ok(Self {
            bos: id(file, "bos_token_id")?,
            eos: id(file, "eos_token_id")?,
            add_bos: file.get_bool(&key("add_bos_token"))?,
            template: file.get_str("tokenizer.chat_template")?.map(str::to_owned),
        })
    }
}

impl<'a> Vocabulary<'a> {
    /// Reads the vocabulary of a file.
    pub fn of(file: &'a Gguf) -> Result<Self> {
        let strings = |name: &str| -> Result<Vec<&'a [u8]>> {
            Ok(file.get_strs(&key(name))?.map(|strings| strings.map(str::as_bytes).collect()).unwrap_or_default())
        };
        let FileSettings { bos, eos, add_bos, template } = FileSettings::from_gguf(file)?;
        // Unknown token types are treated as normal tokens.
        let types = file.get_i64s(&key("token_type"))?.unwrap_or_default().into_iter().map(|kind| kind as i32).collect();
        Ok(Self {
            model: file.need_str(&key("model"))?,
            pre: file.get_str(&key("pre"))?,
            tokens: strings("tokens")?,
            scores: file.get_f32s(&key("scores"))?.unwrap_or_default(),
            types,
            merges: strings("merges")?,
            bos,
            eos,
            unknown: id(file, "unknown_token_id")?,
            add_bos,
            add_space_prefix: file.get_bool(&key("add_space_prefix"))?,
            strip_after_special: file.get_str("general.architecture")? == Some("phi3"),
            template,
        })
    }
}

fn text<'a>(what: &str, number: usize, bytes: &'a [u8]) -> Result<&'a str> {
    std::str::from_utf8(bytes).map_err(|error| malformed(format!("{what}[{number}]"), format!("invalid UTF-8: {error}")))
}

/// Reads and checks the tokens; returns their text, and ids by text.
fn read_tokens<'a>(vocabulary: &Vocabulary<'a>) -> Result<(Vec<&'a str>, HashMap<&'a str, u32>)> {
    let place = "tokenizer.ggml.tokens";
    let count = vocabulary.tokens.len();
    if !(1..=MAX_TOKENS).contains(&count) {
        return Err(malformed(place, format!("expected 1 to {MAX_TOKENS} tokens, got {count}")));
    }
    let all: usize = vocabulary.tokens.iter().map(|token| token.len()).sum();
    if all > MAX_BYTES {
        return Err(malformed(place, format!("{all} bytes exceed the maximum of {MAX_BYTES}")));
    }
    for (name, found) in [("scores", vocabulary.scores.len()), ("token_type", vocabulary.types.len())] {
        if found != 0 && found != count {
            return Err(malformed(format!("tokenizer.ggml.{name}"), format!("expected {count} entries, one per token, got {found}")));
        }
    }
    let mut tokens = Vec::with_capacity(count);
    let mut ids = HashMap::with_capacity(count);
    for (number, bytes) in vocabulary.tokens.iter().enumerate() {
        if bytes.len() > MAX_TOKEN_BYTES {
            let reason = format!("{} bytes exceed the maximum of {MAX_TOKEN_BYTES}", bytes.len());
            return Err(malformed(format!("{place}[{number}]"), reason));
        }
        let token = text(place, number, bytes)?;
        if let Some(first) = ids.insert(token, number as u32) {
            return Err(malformed(format!("{place}[{number}]"), format!("{token:?} is a duplicate of token {first}")));
        }
        tokens.push(token);
    }
    Ok((tokens, ids))
}

/// Reads and checks the merges of a byte-level vocabulary.
fn read_merges(merges: &[&[u8]], ids: &HashMap<&str, u32>) -> Result<Vec<(String, String)>> {
    let place = "tokenizer.ggml.merges";
    if merges.len() > 4 * MAX_TOKENS {
        return Err(malformed(place, format!("{} merges exceed the maximum of {}", merges.len(), 4 * MAX_TOKENS)));
    }
    let mut pairs = Vec::with_capacity(merges.len());
    let mut joined = String::new();
    for (number, bytes) in merges.iter().enumerate() {
        let here = || format!("{place}[{number}]");
        let merge = text(place, number, bytes)?;
        let (left, right) = merge
            .split_once(' ')
            .filter(|(left, right)| !left.is_empty() && !right.is_empty())
            .ok_or_else(|| malformed(here(), format!("expected two tokens separated by a space, got {merge:?}")))?;
        joined.clear();
        joined.extend([left, right]);
        if let Some(missing) = [left, right, &joined].into_iter().find(|token| !ids.contains_key(token)) {
            return Err(malformed(here(), format!("{missing:?} is not in the vocabulary")));
        }
        pairs.push((left.to_owned(), right.to_owned()));
    }
    Ok(pairs)
}

/// The merges that scores imply: all pairs of tokens that form a third, by the third's score, largest first.
fn merges_of_scores(tokens: &[&str], ids: &HashMap<&str, u32>, scores: &[f32], merged: impl Fn(u32) -> bool) -> Vec<(String, String)> {
    let mut found: Vec<(u32, u32, u32)> = Vec::new();
    for (whole, token) in (0u32..).zip(tokens) {
        if !merged(whole) {
            continue;
        }
        let part = |text: &str| ids.get(text).copied().filter(|id| merged(*id));
        let splits = token.char_indices().skip(1).map(|(at, _)| token.split_at(at));
        found.extend(splits.filter_map(|(left, right)| Some((whole, part(left)?, part(right)?))));
    }
    let score = |id: u32| scores.get(id as usize).copied().unwrap_or(0.0);
    found.sort_by(|a, b| score(b.0).total_cmp(&score(a.0)).then_with(|| a.cmp(b)));
    let text = |id: u32| tokens[id as usize].to_owned();
    found.into_iter().map(|(_, left, right)| (text(left), text(right))).collect()
}

impl Tokenizer {
    /// Creates a tokenizer from the vocabulary of a GGUF file.
    pub fn from_gguf(vocabulary: &Vocabulary<'_>) -> Result<Self> {
        let (tokens, ids) = read_tokens(vocabulary)?;
        // Older converters mark end-of-turn tokens as normal.
        let kind = |id: u32| match tokens.get(id as usize) {
            Some(token) if END_OF_TURN.contains(token) || END_OF_TEXT.contains(token) => CONTROL,
            _ => vocabulary.types.get(id as usize).copied().unwrap_or(NORMAL),
        };
        let builder = BPE::builder();
        let (spelling, builder, normalizer, pre_tokenizer, space_first, add_bos) = match vocabulary.model {
            "gpt2" => {
                let pre = PreTokenizer::named(vocabulary.pre)?;
                let builder = builder.vocab_and_merges(owned(&ids), read_merges(&vocabulary.merges, &ids)?).ignore_merges(pre.whole_words);
                (Spelling::ByteLevel, builder, pre.normalizer(), Some(pre.pre_tokenizer()?), false, pre.add_bos)
            }
            "llama" => {
                if let Some((number, score)) = vocabulary.scores.iter().enumerate().find(|(_, score)| score.is_nan()) {
                    return Err(malformed(format!("tokenizer.ggml.scores[{number}]"), format!("expected a number, got {score}")));
                }
                let merged = |id: u32| matches!(kind(id), NORMAL | USER_DEFINED);
                let merges = merges_of_scores(&tokens, &ids, &vocabulary.scores, merged);
                let has_bytes = (0u32..).zip(&tokens).any(|(id, token)| kind(id) == BYTE && byte_token(token).is_some());
                let mut builder = builder.vocab_and_merges(owned(&ids), merges).byte_fallback(has_bytes).fuse_unk(true);
                let unknown = vocabulary.unknown.or_else(|| (0..tokens.len() as u32).find(|id| kind(*id) == UNKNOWN));
                if let Some(id) = unknown {
                    let token = tokens.get(id as usize).ok_or_else(|| {
                        malformed(
                            "tokenizer.ggml.unknown_token_id",
                            format!("token id {id} is out of range: there are {} tokens", tokens.len()),
                        )
                    })?;
                    builder = builder.unk_token((*token).to_owned());
                }
                let space_first = vocabulary.add_space_prefix.unwrap_or(true);
                (Spelling::SentencePiece, builder, Some(spaces(space_first)?), None, space_first, true)
            }
            other => {
                let expected = "gpt2, llama".to_owned();
                return Err(TextError::Unknown { place: "tokenizer.ggml.model".into(), found: other.into(), expected });
            }
        };
        let failed = |error: tokenizers::Error| malformed("tokenizer.ggml", error.to_string());
        let mut inner = tokenizers::Tokenizer::new(builder.build().map_err(failed)?);
        inner.with_normalizer(normalizer).map_err(failed)?;
        inner.with_pre_tokenizer(pre_tokenizer);

        let mut special = HashSet::new();
        let mut added = Vec::new();
        let mut bytes = Vec::with_capacity(tokens.len());
        for (id, token) in (0u32..).zip(&tokens) {
            let kind = kind(id);
            if matches!(kind, CONTROL | UNKNOWN) {
                special.insert(id);
            }
            let written = matches!(kind, CONTROL | UNKNOWN | USER_DEFINED);
            if written && !token.is_empty() {
                let strip = vocabulary.strip_after_special && kind == CONTROL && !matches!(*token, "<s>" | "<|endoftext|>");
                added.push(AddedToken::from(*token, special.contains(&id)).normalized(false).rstrip(strip));
            }
            // User-defined SentencePiece tokens may be spelled with `▁` or with spaces: both mean spaces.
            let verbatim = written && !(kind == USER_DEFINED && spelling == Spelling::SentencePiece);
            bytes.push(Some(if verbatim { token.as_bytes().into() } else { bytes_of(token, spelling) }));
        }
        inner.add_tokens(added).map_err(failed)?;

        let settings = Settings {
            bos: vocabulary.bos,
            eos: vocabulary.eos,
            add_bos: vocabulary.add_bos.unwrap_or(add_bos),
            template: vocabulary.template.clone(),
        };
        Tokenizer::new(inner, bytes, special, space_first, settings)
    }
}

fn owned(ids: &HashMap<&str, u32>) -> tokenizers::models::bpe::Vocab {
    ids.iter().map(|(token, id)| ((*token).to_owned(), *id)).collect()
}

/// The normalizer for SentencePiece's spaces, which prepends one if `first`.
fn spaces(first: bool) -> Result<NormalizerWrapper> {
    let replace: NormalizerWrapper = Replace::new(" ", "▁").map_err(|error| malformed("spaces", error.to_string()))?.into();
    Ok(if first { Sequence::new(vec![Prepend::new("▁".to_owned()).into(), replace]).into() } else { replace })
}
