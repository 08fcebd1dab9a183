//! How byte-level vocabularies cut a text into words before they merge bytes: GGUF files only give a name for it.

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
/// As OpenAI's cl100k: numbers in threes.
const THREES: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The same, each digit alone.
const ONES: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// As OpenAI's o200k.
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// How a text is cut.
pub(super) struct Cut {
    patterns: &'static [&'static str],
    /// A word that is a token is that token, whatever the merges say.
    pub whole_words: bool,
    /// Texts are brought to Unicode's composed form first.
    composed: bool,
    /// Prompts begin with a mark if the file does not say.
    pub add_bos: bool,
}

const fn cut(patterns: &'static [&'static str]) -> Cut {
    Cut { patterns, whole_words: false, composed: false, add_bos: false }
}

/// Names that are known, as errors print them.
const KNOWN: &str = "default, gpt-2, smollm, starcoder, refact, command-r, llama-bpe, dbrx, qwen2, stablelm2, tekken, gpt-4o, llama4";

/// The name for what a `tokenizer.json` does, if it is exactly what one of the names stands for.
pub(crate) fn cut_name(tokenizer: &Value) -> Option<&'static str> {
    const NAMES: [&str; 8] = ["gpt-2", "smollm", "llama-bpe", "dbrx", "qwen2", "stablelm2", "tekken", "gpt-4o"];
    let composed = match &tokenizer["normalizer"] {
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
    let same = |cut: Cut| cut.patterns == patterns && (cut.whole_words, cut.composed) == (whole_words, composed);
    NAMES.into_iter().find(|name| Cut::named(Some(name)).is_ok_and(same))
}

/// What one step of a `tokenizer.json` makes words of, if they are the matches and what is between them.
fn pattern(step: &Value) -> Option<&str> {
    match step["type"].as_str()? {
        "Digits" if step["individual_digits"] == true => Some(r"\p{N}"),
        "Split" => {
            let pattern = step["pattern"]["Regex"].as_str()?;
            match step["behavior"].as_str()? {
                "Isolated" => Some(pattern),
                // A pattern with alternatives for everything: to take all but its matches away takes nothing.
                "Removed" if step["invert"] == true && pattern.ends_with(r"|\s+") => Some(pattern),
                _ => None,
            }
        }
        _ => None,
    }
}

impl Cut {
    /// The way that `tokenizer.ggml.pre` names.
    pub(super) fn named(name: Option<&str>) -> Result<Self> {
        Ok(match name.unwrap_or("default") {
            "default" => cut(&[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
            "gpt-2" | "phi-2" | "olmo" | "mpt" | "jina-es" | "jina-de" | "jina-v1-en" | "jina-v2-es" | "jina-v2-de" | "roberta-bpe" => {
                cut(&[GPT2])
            }
            "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" => cut(&[r"\p{N}", GPT2]),
            "llama-bpe" | "llama3" | "llama-v3" | "falcon3" => Cut { whole_words: true, add_bos: true, ..cut(&[THREES]) },
            "dbrx" | "smaug-bpe" | "phi-4" => cut(&[THREES]),
            "qwen2" | "deepseek-r1-qwen" => Cut { composed: true, ..cut(&[ONES]) },
            "stablelm2" => cut(&[ONES]),
            "tekken" => Cut { whole_words: true, add_bos: true, ..cut(&[TEKKEN]) },
            "gpt-4o" | "llama4" => cut(&[O200K]),
            other => {
                return Err(TextError::Unknown { place: "tokenizer.ggml.pre".into(), found: other.into(), known: KNOWN.into() });
            }
        })
    }

    pub(super) fn normalizer(&self) -> Option<NormalizerWrapper> {
        self.composed.then(|| NFC.into())
    }

    pub(super) fn pre_tokenizer(&self) -> Result<PreTokenizerWrapper> {
        let mut steps = Vec::new();
        for pattern in self.patterns {
            let split = Split::new(SplitPattern::Regex((*pattern).to_owned()), SplitDelimiterBehavior::Isolated, false);
            steps.push(split.map_err(|error| malformed(format!("the pattern {pattern}"), error.to_string()))?.into());
        }
        steps.push(ByteLevel::new(false, true, false).into());
        Ok(Sequence::new(steps).into())
    }
}
