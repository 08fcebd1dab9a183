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
    /// A model that so many devices cannot share.
    #[error(
        "{devices} devices cannot share {count} {what}{}; take fewer devices",
        if *together > 1 { format!(", {together} of which stay together") } else { String::new() }
    )]
    Divide {
        /// What was to be divided.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many stay together.
        together: usize,
        /// Devices.
        devices: usize,
    },
    /// Devices that cannot share a model.
    #[error("a model is on one device, or divided among several GPUs or virtual ones, or among CPUs, not on {0}")]
    Devices(String),
    /// There is not enough memory. What had been taken is given back.
    #[error(
        "out of memory on {device} at {what}: {} asked for, {}; {} are missing{}; \
         --as q4_k or q8_0 makes weights smaller, a smaller --context, or --cache f16 where it is f32, the cache, a smaller --chunk a step",
        human(*needed),
        free.map_or("free memory not known".to_owned(), |free| format!("{} free", human(free))),
        human(*missing),
        if *rest > 0 { format!(" for it and the {} behind it", human(*rest)) } else { String::new() }
    )]
    OutOfMemory {
        /// The device.
        device: String,
        /// What the memory was for: a weight, or keys and values.
        what: String,
        /// Bytes asked for.
        needed: u64,
        /// Bytes that were free, where the system says.
        free: Option<u64>,
        /// Bytes of the same kind that would have come behind it.
        rest: u64,
        /// Bytes that are missing for all of it.
        missing: u64,
    },
    /// The cache is full.
    #[error("{wanted} more tokens do not fit: the cache has room for {there}; give it more with --context, or end other sequences")]
    Room {
        /// Tokens that were to go in.
        wanted: usize,
        /// Tokens that there is room for.
        there: usize,
    },
}

impl Error {
    /// The same where memory was missing, with what it was for and the bytes that would have come behind it.
    pub(crate) fn at(self, what: impl FnOnce() -> String, rest: u64) -> Error {
        use warpwave_gpu::Error as OfGpu;
        use warpwave_tensor::Error as OfTensor;
        let of_gpu = match &self {
            Error::Gpu(error) | Error::Tensor(OfTensor::Gpu(error)) => Some(error),
            // What a kernel works in.
            Error::Tensor(OfTensor::Kernels(warpwave_kernels::Error::Launch { reason, .. })) => Some(&**reason),
            _ => None,
        };
        // A GPU's error says which one it is.
        let (device, needed, free) = match (&self, of_gpu) {
            (_, Some(OfGpu::OutOfMemory { device, requested, free, .. })) => (&**device, *requested as u64, Some(*free as u64)),
            (_, Some(OfGpu::PoolCap { device, cap, requested, in_use })) => {
                (&**device, *requested as u64, Some(cap.saturating_sub(*in_use) as u64))
            }
            // Of the computer's own, whatever it was for.
            (Error::Tensor(OfTensor::OutOfMemory { bytes, free }), _) => ("cpu", *bytes as u64, *free),
            _ => return self,
        };
        let missing = needed.saturating_add(rest).saturating_sub(free.unwrap_or(0));
        Error::OutOfMemory { device: device.to_owned(), what: what(), needed, free, rest, missing }
    }
}

fn human(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let power = (bytes.ilog2() as usize / 10).min(UNITS.len());
    format!("{:.1} {}", bytes as f64 / (1u64 << (10 * power)) as f64, UNITS[power - 1])
}
