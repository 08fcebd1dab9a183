//! What can go wrong with models.

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device failed.
    #[error(transparent)]
    Gpu(#[from] warpwave_gpu::Error),
    /// An operation on tensors was refused or failed.
    #[error(transparent)]
    Tensor(#[from] warpwave_tensor::Error),
    /// A model's file.
    #[error(transparent)]
    Checkpoint(#[from] crate::checkpoint::CheckpointError),
    /// A file of weights.
    #[error(transparent)]
    Weights(#[from] warpwave_weights::Error),
    /// Text, tokens or a template.
    #[error(transparent)]
    Text(#[from] crate::text_error::TextError),
    /// A token that the vocabulary does not have.
    #[error("there is no token {token}: the vocabulary has {vocab}")]
    NoToken {
        /// The token.
        token: u32,
        /// Tokens of the vocabulary.
        vocab: usize,
    },
    /// Nothing to compute.
    #[error("a sequence was given no tokens")]
    NoTokens,
    /// A sequence whose keys and values are in another runner's cache.
    #[error("a sequence belongs to another runner: its keys and values are in that one's cache")]
    OtherRunner,
    /// A model without layers.
    #[error("the model has no layers")]
    NoLayers,
    /// The cache is full.
    #[error("{wanted} more tokens do not fit: the cache has room for {there}; give it more with --context, or end other sequences")]
    Room {
        /// Tokens that were to go in.
        wanted: usize,
        /// Tokens that there is room for.
        there: usize,
    },
}
