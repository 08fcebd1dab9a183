//! Pre-tokenizers of byte-level vocabularies: how a text is split into words before bytes are merged. GGUF files only name them.

use serde_json::Value;
use tokenizers::SplitDelimiterBehavior;
use tokenizers::normalizers::{NFC, NormalizerWrapper};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};

use super::Result;
use crate::text_error::{TextError, malformed};

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// As OpenAI's cl100k: up to three digits per word.
const DIGITS3: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The same, with one digit per word.
const DIGITS1: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// As OpenAI's o200k.
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// A pre-tokenizer.
pub(super) struct PreTokenizer {
    patterns: &'static [&'static str],
    /// Whether a word that is a token is not split further (`ignore_merges`).
    pub whole_words: bool,
    /// Whether texts are normalized to NFC first.
    nfc: bool,
    /// Whether prompts begin with BOS if the file does not say.
    pub add_bos: bool,
}

const fn split(patterns: &'static [&'static str]) -> PreTokenizer {
    PreTokenizer { patterns, whole_words: false, nfc: false, add_bos: false }
}

/// Supported names, as errors list them.
const KNOWN: &str = "default, gpt-2, smollm, starcoder, refact, command-r, llama-bpe, dbrx, qwen2, stablelm2, tekken, gpt-4o, llama4";

/// Returns the GGUF name of a `tokenizer.json`'s pre-tokenizer, if it has one.
pub(crate) fn pre_tokenizer_name(tokenizer: &Value) -> Option<&'static str> {
    const NAMES: [&str; 8] = ["gpt-2", "smollm", "llama-bpe", "dbrx", "qwen2", "stablelm2", "tekken", "gpt-4o"];
    let nfc = match &tokenizer["normalizer"] {
        Value::Null => false,
        normalizer => (normalizer["type"] == "NFC").then_some(true)?,
    };
    let whole_words = tokenizer["model"]["ignore_merges"] == true;
    let splitter = &tokenizer["pre_tokenizer"];
    let single = std::slice::from_ref(splitter);
    let (last, steps) = splitter["pretokenizers"].as_array().map_or(single, Vec::as_slice).split_last()?;
    let mut patterns = steps.iter().map(pattern).collect::<Option<Vec<&str>>>()?;
    if last["type"] != "ByteLevel" || last["add_prefix_space"] != false {
        return None;
    }
    if last["use_regex"] != false {
        patterns.push(GPT2);
    }
    let same = |other: PreTokenizer| other.patterns == patterns && (other.whole_words, other.nfc) == (whole_words, nfc);
    NAMES.into_iter().find(|name| PreTokenizer::named(Some(name)).is_ok_and(same))
}

/// The pattern of one step of a `tokenizer.json`, if words are its matches and the text between them.
fn pattern(step: &Value) -> Option<&str> {
    match step["type"].as_str()? {
        "Digits" if step["individual_digits"] == true => Some(r"\p{N}"),
        "Split" => {
            let pattern = step["pattern"]["Regex"].as_str()?;
            match step["behavior"].as_str()? {
                "Isolated" => Some(pattern),
                // The pattern matches everything: removing what does not match removes nothing.
                "Removed" if step["invert"] == true && pattern.ends_with(r"|\s+") => Some(pattern),
                _ => None,
            }
        }
        _ => None,
    }
}

impl PreTokenizer {
    /// Returns the pre-tokenizer that `tokenizer.ggml.pre` names.
    pub(super) fn named(name: Option<&str>) -> Result<Self> {
        Ok(match name.unwrap_or("default") {
            "default" => split(&[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
            "gpt-2" | "phi-2" | "olmo" | "mpt" | "jina-es" | "jina-de" | "jina-v1-en" | "jina-v2-es" | "jina-v2-de" | "roberta-bpe" => {
                split(&[GPT2])
            }
            "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" => split(&[r"\p{N}", GPT2]),
            "llama-bpe" | "llama3" | "llama-v3" | "falcon3" => PreTokenizer { whole_words: true, add_bos: true, ..split(&[DIGITS3]) },
            "dbrx" | "smaug-bpe" | "phi-4" => split(&[DIGITS3]),
            "qwen2" | "deepseek-r1-qwen" => PreTokenizer { nfc: true, ..split(&[DIGITS1]) },
            "stablelm2" => split(&[DIGITS1]),
            "tekken" => PreTokenizer { whole_words: true, add_bos: true, ..split(&[TEKKEN]) },
            "gpt-4o" | "llama4" => split(&[O200K]),
            other => {
                return Err(TextError::Unknown { place: "tokenizer.ggml.pre".into(), found: other.into(), expected: KNOWN.into() });
            }
        })
    }

    pub(super) fn normalizer(&self) -> Option<NormalizerWrapper> {
        self.nfc.then(|| NFC.into())
    }

    pub(super) fn pre_tokenizer(&self) -> Result<PreTokenizerWrapper> {
        let mut steps = Vec::new();
        for pattern in self.patterns {
            let step = Split::new(SplitPattern::Regex((*pattern).to_owned()), SplitDelimiterBehavior::Isolated, false);
            steps.push(step.map_err(|error| malformed(format!("pattern {pattern}"), error.to_string()))?.into());
        }
        steps.push(ByteLevel::new(false, true, false).into());
        Ok(Sequence::new(steps).into())
    }
}
