//! Text to tokens and back, with the vocabulary of a model: of a Hugging Face folder ([`Tokenizer::from_file`]) or of GGUF metadata
//! ([`Tokenizer::from_gguf`]). Both become an object of the `tokenizers` crate for encoding, and a table of bytes for decoding: what a
//! token adds to a text then never depends on which tokens come behind it, which streaming needs.

mod bytes;
mod gguf;
mod json;
mod pre;

use std::collections::HashSet;

use tokenizers::{AddedVocabulary, Model, OffsetReferential, OffsetType, PreTokenizer};

pub use gguf::Vocabulary;
pub(crate) use pre::cut_name;

use crate::detokenise::Detokenizer;
use crate::text_error::{TextError, malformed};

type Result<T, E = TextError> = std::result::Result<T, E>;

/// Tokens that a vocabulary has at most: more than any has, and few enough for a table.
const MOST_TOKENS: usize = 1 << 22;

/// Tokens that end a turn. They end generation where the model's template writes them.
const TURN_ENDS: [&str; 7] = ["<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|end_of_turn|>", "<|eot|>"];
/// Tokens that end a text, whatever the template writes.
const TEXT_ENDS: [&str; 2] = ["<|endoftext|>", "<|end_of_text|>"];

/// How the pieces of a vocabulary stand for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// A character for each byte.
    ByteLevel,
    /// `▁` for a space, `<0x0A>` for a byte.
    SentencePiece,
}

/// What a file says about its tokens beside their text.
#[derive(Debug, Default)]
struct Marks {
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    template: Option<String>,
}

/// The same as far as a file says it.
struct Said {
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: Option<bool>,
    template: Option<String>,
}

/// Text to tokens and back.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The added tokens, with the special ones read as plain text.
    plain: AddedVocabulary,
    /// What each token adds to a text; none where ids are skipped.
    bytes: Vec<Option<Box<[u8]>>>,
    special: HashSet<u32>,
    /// Whether encoding puts a space before a text, which decoding takes off.
    space_first: bool,
    marks: Marks,
    ends: Vec<u32>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("len", &self.len()).field("marks", &self.marks).field("ends", &self.ends).finish_non_exhaustive()
    }
}

impl Tokenizer {
    fn new(
        inner: tokenizers::Tokenizer,
        bytes: Vec<Option<Box<[u8]>>>,
        special: HashSet<u32>,
        space_first: bool,
        marks: Marks,
    ) -> Result<Self> {
        for (name, id) in [("bos", marks.bos), ("eos", marks.eos)] {
            if let Some(id) = id.filter(|id| bytes.get(*id as usize).is_none_or(Option::is_none)) {
                return Err(malformed(
                    format!("{name} token"),
                    format!("its id is {id}, but there is no such token among {}", bytes.len()),
                ));
            }
        }
        let mut plain = inner.get_added_vocabulary().clone();
        plain.set_encode_special_tokens(true);
        let mut tokenizer = Self { inner, plain, bytes, special, space_first, marks, ends: Vec::new() };
        tokenizer.ends = tokenizer.find_ends();
        Ok(tokenizer)
    }

    fn find_ends(&self) -> Vec<u32> {
        let template = self.marks.template.as_deref();
        let turns = TURN_ENDS.iter().filter(|name| template.is_none_or(|template| template.contains(**name)));
        let named = turns.chain(&TEXT_ENDS).filter_map(|name| self.id(name));
        let mut ends: Vec<u32> = self.marks.eos.into_iter().collect();
        for id in named {
            if !ends.contains(&id) {
                ends.push(id);
            }
        }
        ends
    }

    /// The tokens of a text, without those that begin and end it. With `special`, special tokens that are written in the text (such as
    /// `<|im_start|>`) become those tokens; without, they are text like any other: what users write cannot end their turn.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let failed = |error: tokenizers::Error| TextError::Encode { bytes: text.len(), reason: error.to_string() };
        let added = if special { self.inner.get_added_vocabulary() } else { &self.plain };
        let mut pieces = added.extract_and_normalize(self.inner.get_normalizer(), text);
        if let Some(splitter) = self.inner.get_pre_tokenizer() {
            splitter.pre_tokenize(&mut pieces).map_err(failed)?;
        }
        pieces.tokenize(|piece| self.inner.get_model().tokenize(piece.get())).map_err(failed)?;
        let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::None);
        Ok(splits.into_iter().flat_map(|(_, _, tokens)| tokens.iter().flatten()).map(|token| token.id).collect())
    }

    /// The tokens of a prompt, which the model goes on with: as [`Tokenizer::encode`], with the token that the model wants before a text,
    /// unless the text already begins with it (chat templates write it out). There is no end behind it, though the file may ask for one
    /// (`add_eos_token`): that is for whole texts.
    pub fn encode_prompt(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let mut ids = self.encode(text, special)?;
        if let Some(bos) = self.marks.bos.filter(|bos| self.marks.add_bos && ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    /// The text of tokens, with special tokens written out or left out. Bytes that are no UTF-8 become `U+FFFD`; ids that are no tokens
    /// are left out.
    pub fn decode(&self, ids: &[u32], special: bool) -> String {
        let mut detokenizer = Detokenizer::new(self).special(special);
        let mut text: String = ids.iter().map(|id| detokenizer.push(*id)).collect();
        text.push_str(&detokenizer.finish());
        text
    }

    /// What a token adds to a text, before a SentencePiece text loses its first space. It need not be UTF-8 by itself.
    pub fn token(&self, id: u32) -> Option<&[u8]> {
        self.bytes.get(id as usize)?.as_deref()
    }

    /// The token that is spelt so in the vocabulary.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Whether a token is a mark for the model rather than text.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.marks.bos
    }

    /// Whether a prompt begins with [`Tokenizer::bos`].
    pub fn adds_bos(&self) -> bool {
        self.marks.add_bos
    }

    /// The tokens that end generation; the first is the one that the file names, if it names one.
    pub fn eos(&self) -> &[u32] {
        &self.ends
    }

    /// The chat template that came with the vocabulary.
    pub fn template(&self) -> Option<&str> {
        self.marks.template.as_deref()
    }

    /// The number of ids: one more than the largest.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn space_first(&self) -> bool {
        self.space_first
    }

    /// The spelling of a token that templates write: `bos_token`, `eos_token`.
    pub(crate) fn spelt(&self, id: Option<u32>) -> String {
        id.and_then(|id| self.inner.id_to_token(id)).unwrap_or_default()
    }

    /// The token that the file names as the end of a text.
    pub(crate) fn named_eos(&self) -> Option<u32> {
        self.marks.eos
    }
}
