//! The tokenizer that comes with a model.

use super::{Checkpoint, Source};
use crate::error::Result;
use crate::tokenizer::{Tokenizer, Vocabulary};

impl Checkpoint {
    /// Reads the tokenizer. In a GGUF file that is the embedded `tokenizer.json` (`tokenizer.huggingface.json`) if there is one of a
    /// supported type, otherwise the vocabulary in the metadata (`tokenizer.ggml.*`). That of a model with random weights decodes ids as
    /// numbers and encodes nothing.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        match &self.source {
            Source::Gguf(file) => match Tokenizer::from_embedded_json(file)? {
                Some(tokenizer) => Ok(tokenizer),
                None => Ok(Tokenizer::from_gguf(&Vocabulary::of(file)?)?),
            },
            Source::Folder { folder, .. } => Ok(Tokenizer::from_file(folder)?),
            Source::Random { .. } => Ok(Tokenizer::numbers(self.config.vocab)?),
        }
    }
}
