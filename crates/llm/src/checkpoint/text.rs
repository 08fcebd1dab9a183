//! The tokenizer that comes with a model.

use super::error::bad_key;
use super::{Checkpoint, Source};
use crate::error::Result;
use crate::tokenizer::{Tokenizer, Vocabulary};

impl Checkpoint {
    /// The tokenizer that came with the weights.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        match &self.source {
            Source::Gguf(file) => Ok(Tokenizer::from_gguf(&Vocabulary::of(file)?)?),
            Source::Folder { folder, .. } => Ok(Tokenizer::from_file(folder)?),
            Source::Random { .. } => Err(bad_key(&self.path, "the tokenizer", "random weights have none: give ids of tokens").into()),
        }
    }
}
