//! How byte-level vocabularies cut a text into words before they merge bytes: GGUF files only give a name for it.

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
