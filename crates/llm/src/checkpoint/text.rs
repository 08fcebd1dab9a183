//! The tokenizer that comes with a model.

use super::error::bad_key;
use super::{Checkpoint, Source};
use crate::error::Result;
use crate::tokenizer::{Tokenizer, Vocabulary};

impl Checkpoint {
    /// The tokenizer that came with the weights. Of a GGUF file it is the whole `tokenizer.json` that it may have
    /// (`tokenizer.huggingface.json`), and else, or where that is of a kind that is not known, what it says of its vocabulary.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        match &self.source {
            Source::Gguf(file) => match Tokenizer::from_json_of(file)? {
                Some(tokenizer) => Ok(tokenizer),
                None => Ok(Tokenizer::from_gguf(&Vocabulary::of(file)?)?),
            },
            Source::Folder { folder, .. } => Ok(Tokenizer::from_file(folder)?),
            Source::Random { .. } => Err(bad_key(&self.path, "the tokenizer", "random weights have none: give ids of tokens").into()),
        }
    }
}
