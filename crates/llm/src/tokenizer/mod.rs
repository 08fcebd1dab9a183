//! Tokenizers of Hugging Face folders ([`Tokenizer::from_file`]) and of GGUF metadata ([`Tokenizer::from_gguf`]).
//!
//! Encoding uses the `tokenizers` crate. Decoding uses a table of bytes per token: a token's text then does not depend on the tokens after
//! it, which streaming needs.

mod bytes;
mod gguf;
mod json;
mod pre;

use std::collections::HashSet;

use tokenizers::{AddedVocabulary, Model, OffsetReferential, OffsetType, PreTokenizer};

pub use gguf::Vocabulary;
pub(crate) use pre::pre_tokenizer_name;

use crate::detokenize::Detokenizer;
use crate::text_error::{TextError, malformed};

type Result<T, E = TextError> = std::result::Result<T, E>;

/// The largest supported vocabulary: more than any has, and few enough for a table.
const MAX_TOKENS: usize = 1 << 22;

/// End-of-turn tokens. They end generation if the model's chat template uses them.
const END_OF_TURN: [&str; 7] = ["<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|end_of_turn|>", "<|eot|>"];
/// End-of-text tokens, independent of the template.
const END_OF_TEXT: [&str; 2] = ["<|endoftext|>", "<|end_of_text|>"];

/// How the tokens of a vocabulary are spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// One character per byte.
    ByteLevel,
    /// `▁` for a space, `<0x0A>` for a byte.
    SentencePiece,
}

/// Special tokens and chat template of a tokenizer.
#[derive(Debug, Default)]
struct Settings {
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    template: Option<String>,
}

/// [`Settings`] as read from a file.
struct FileSettings {
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: Option<bool>,
    template: Option<String>,
}

/// Converts text to tokens and back.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The added tokens, with special tokens encoded as plain text.
    plain: AddedVocabulary,
    /// Each token's text; `None` for unused ids.
    bytes: Vec<Option<Box<[u8]>>>,
    special: HashSet<u32>,
    /// Whether encoding prepends a space, which decoding removes.
    space_first: bool,
    settings: Settings,
    eos: Vec<u32>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("len", &self.len())
            .field("settings", &self.settings)
            .field("eos", &self.eos)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    fn new(
        inner: tokenizers::Tokenizer,
        bytes: Vec<Option<Box<[u8]>>>,
        special: HashSet<u32>,
        space_first: bool,
        settings: Settings,
    ) -> Result<Self> {
        for (name, id) in [("bos", settings.bos), ("eos", settings.eos)] {
            if let Some(id) = id.filter(|id| bytes.get(*id as usize).is_none_or(Option::is_none)) {
                return Err(malformed(format!("{name} token"), format!("id {id} is not in the vocabulary of {} tokens", bytes.len())));
            }
        }
        let mut plain = inner.get_added_vocabulary().clone();
        plain.set_encode_special_tokens(true);
        let mut tokenizer = Self { inner, plain, bytes, special, space_first, settings, eos: Vec::new() };
        tokenizer.eos = tokenizer.find_eos();
        Ok(tokenizer)
    }

    /// Returns a tokenizer whose tokens are their ids as text, each after a space. It encodes every text as no tokens.
    pub(crate) fn numbers(count: usize) -> Result<Self> {
        let inner = tokenizers::Tokenizer::new(tokenizers::models::bpe::BPE::default());
        let bytes = (0..count).map(|id| Some(format!(" {id}").into_bytes().into())).collect();
        Self::new(inner, bytes, HashSet::new(), false, Settings::default())
    }

    fn find_eos(&self) -> Vec<u32> {
        let template = self.settings.template.as_deref();
        let turns = END_OF_TURN.iter().filter(|name| template.is_none_or(|template| template.contains(**name)));
        let named = turns.chain(&END_OF_TEXT).filter_map(|name| self.id(name));
        let mut eos: Vec<u32> = self.settings.eos.into_iter().collect();
        for id in named {
            if !eos.contains(&id) {
                eos.push(id);
            }
        }
        eos
    }

    /// Encodes a text, without BOS and EOS.
    ///
    /// With `special`, special tokens in the text (such as `<|im_start|>`) are encoded as such; without, they are plain text, so that a user's
    /// text cannot end a turn.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let failed = |error: tokenizers::Error| TextError::Encode { bytes: text.len(), reason: error.to_string() };
        let added = if special { self.inner.get_added_vocabulary() } else { &self.plain };
        let mut words = added.extract_and_normalize(self.inner.get_normalizer(), text);
        if let Some(splitter) = self.inner.get_pre_tokenizer() {
            splitter.pre_tokenize(&mut words).map_err(failed)?;
        }
        words.tokenize(|word| self.inner.get_model().tokenize(word.get())).map_err(failed)?;
        let splits = words.get_splits(OffsetReferential::Original, OffsetType::None);
        Ok(splits.into_iter().flat_map(|(_, _, tokens)| tokens.iter().flatten()).map(|token| token.id).collect())
    }

    /// Encodes a prompt: as [`Tokenizer::encode`], with BOS prepended if the model uses it and the text does not begin with it (chat templates
    /// include it). EOS is never appended, even with `add_eos_token`, which is meant for complete texts.
    pub fn encode_prompt(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let mut ids = self.encode(text, special)?;
        if let Some(bos) = self.settings.bos.filter(|bos| self.settings.add_bos && ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    /// Decodes tokens; `special`: whether special tokens are included. Invalid UTF-8 becomes `U+FFFD`; out-of-range ids are skipped.
    pub fn decode(&self, ids: &[u32], special: bool) -> String {
        let mut detokenizer = Detokenizer::new(self).special(special);
        let mut text: String = ids.iter().map(|id| detokenizer.push(*id)).collect();
        text.push_str(&detokenizer.finish());
        text
    }

    /// Returns a token's bytes, with SentencePiece's leading space. They need not be valid UTF-8.
    pub fn token(&self, id: u32) -> Option<&[u8]> {
        self.bytes.get(id as usize)?.as_deref()
    }

    /// Returns the id of a token by its spelling in the vocabulary.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Returns whether a token is special: a control token rather than text.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }

    /// Returns the beginning-of-sequence token.
    pub fn bos(&self) -> Option<u32> {
        self.settings.bos
    }

    /// Returns whether prompts begin with [`Tokenizer::bos`].
    pub fn adds_bos(&self) -> bool {
        self.settings.add_bos
    }

    /// Returns the tokens that end generation. The first is the file's EOS token, if it names one.
    pub fn eos(&self) -> &[u32] {
        &self.eos
    }

    /// Returns the chat template, if the files have one.
    pub fn template(&self) -> Option<&str> {
        self.settings.template.as_deref()
    }

    /// Returns the number of ids: the largest plus one.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether the vocabulary is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn space_first(&self) -> bool {
        self.space_first
    }

    /// The spelling of a token, as templates use it for `bos_token` and `eos_token`.
    pub(crate) fn spelling(&self, id: Option<u32>) -> String {
        id.and_then(|id| self.inner.id_to_token(id)).unwrap_or_default()
    }

    /// The EOS token named by the file.
    pub(crate) fn named_eos(&self) -> Option<u32> {
        self.settings.eos
    }
}
