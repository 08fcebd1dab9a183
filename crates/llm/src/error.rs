//! Errors of this crate.

use crate::budget::MemoryShortage;

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong when a model is loaded or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device failed.
    #[error(transparent)]
    Gpu(#[from] warpwave_gpu::Error),
    /// A tensor operation failed.
    #[error(transparent)]
    Tensor(#[from] warpwave_tensor::Error),
    /// A model file is invalid.
    #[error(transparent)]
    Checkpoint(#[from] crate::checkpoint::CheckpointError),
    /// A weight file is invalid.
    #[error(transparent)]
    Weights(#[from] warpwave_weights::Error),
    /// Tokenizer, chat template or sampling parameters are invalid.
    #[error(transparent)]
    Text(#[from] crate::text_error::TextError),
    /// A token id is out of range.
    #[error("token id {token} is out of range: the vocabulary has {vocab} tokens")]
    TokenOutOfRange {
        /// The token id.
        token: u32,
        /// Tokens of the vocabulary.
        vocab: usize,
    },
    /// A sequence of a batch got no new tokens.
    #[error("no tokens to process: each sequence needs at least one new token")]
    NoTokens,
    /// A sequence belongs to another runner.
    #[error("the sequence belongs to another runner's KV cache")]
    OtherRunner,
    /// The model has no layers.
    #[error("the model has no layers")]
    NoLayers,
    /// Matrices of experts that are multiplied together have different types.
    #[error("{name}: expected matrices of one type, got {} and {}; convert the model to another type", found[0], found[1])]
    ExpertTypes {
        /// The weights.
        name: String,
        /// Their types.
        found: [warpwave_weights::Kind; 2],
    },
    /// The model cannot be split over this many devices.
    #[error(
        "cannot split {count} {what}{} over {devices} devices; use fewer devices",
        if *granularity > 1 { format!(" in groups of {granularity}") } else { String::new() }
    )]
    Split {
        /// What is split.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many must stay on one device.
        granularity: usize,
        /// The number of devices.
        devices: usize,
    },
    /// The devices cannot share a model.
    #[error("tensor parallelism requires only GPUs or only CPUs, got {0:?}")]
    Devices(String),
    /// The model does not fit into the free memory. Nothing was allocated.
    #[error(transparent)]
    DoesNotFit(Box<MemoryShortage>),
    /// An allocation failed. All memory allocated for the operation was freed.
    #[error(
        "out of memory on {device} for {what}: {} requested, {}, {} short{}",
        human_bytes(*needed),
        free.map_or("free memory unknown".to_owned(), |free| format!("{} free", human_bytes(free))),
        human_bytes(*missing),
        if *rest > 0 { format!(" (including {} for later allocations)", human_bytes(*rest)) } else { String::new() }
    )]
    OutOfMemory {
        /// The device.
        device: String,
        /// What the memory was for: a weight, the KV cache or a step.
        what: String,
        /// Bytes requested.
        needed: u64,
        /// Bytes that were free, if known.
        free: Option<u64>,
        /// Bytes of the same kind that would have been requested next.
        rest: u64,
        /// Bytes missing for all of it.
        missing: u64,
    },
    /// The KV cache is full.
    #[error("the KV cache is full: {tokens} tokens requested, {free} free")]
    CacheFull {
        /// Tokens requested.
        tokens: usize,
        /// Tokens free.
        free: usize,
    },
    /// A sequence would become longer than the context.
    #[error("the sequence would have {tokens} tokens, more than the context of {context}")]
    ContextExceeded {
        /// Tokens the sequence would have.
        tokens: usize,
        /// The context length.
        context: usize,
    },
    /// A prompt leaves no room in the context.
    #[error("the prompt has {tokens} tokens and the context is {context}: the prompt fills the context")]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// The context length.
        context: usize,
    },
}

impl Error {
    /// Turns an allocation failure into [`Error::OutOfMemory`] with its purpose and the bytes that would have followed. Other errors stay.
    pub(crate) fn out_of_memory_for(self, what: impl FnOnce() -> String, rest: u64) -> Error {
        use warpwave_gpu::Error as GpuError;
        use warpwave_tensor::Error as TensorError;
        let gpu_error = match &self {
            Error::Gpu(error) | Error::Tensor(TensorError::Gpu(error)) => Some(error),
            // A kernel's workspace.
            Error::Tensor(TensorError::Kernels(warpwave_kernels::Error::Launch { reason, .. })) => Some(&**reason),
            _ => None,
        };
        // A GPU's error names the device.
        let (device, needed, free) = match (&self, gpu_error) {
            (_, Some(GpuError::OutOfMemory { device, requested, free, .. })) => (&**device, *requested as u64, Some(*free as u64)),
            (_, Some(GpuError::PoolCap { device, cap, requested, in_use })) => {
                (&**device, *requested as u64, Some(cap.saturating_sub(*in_use) as u64))
            }
            // Host memory, for whichever device.
            (Error::Tensor(TensorError::OutOfMemory { bytes, free }), _) => ("cpu", *bytes as u64, *free),
            _ => return self,
        };
        let missing = needed.saturating_add(rest).saturating_sub(free.unwrap_or(0));
        Error::OutOfMemory { device: device.to_owned(), what: what(), needed, free, rest, missing }
    }
}

pub(crate) fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog2() as usize / 10).min(UNITS.len());
    format!("{:.1} {}", bytes as f64 / (1u64 << (10 * power)) as f64, UNITS[power - 1])
}
