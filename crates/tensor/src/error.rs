//! What can go wrong with tensors.

use warpwave_kernels::DType;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device failed.
    #[error(transparent)]
    Gpu(#[from] warpwave_gpu::Error),
    /// An operation of the kernel library was refused or failed.
    #[error(transparent)]
    Kernels(#[from] warpwave_kernels::Error),
    /// The system gives no memory.
    #[error("out of memory: {bytes} bytes asked for{}", .free.map(|free| format!(", {free} bytes free")).unwrap_or_default())]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
        /// Bytes that are free, where the system says.
        free: Option<u64>,
    },
    /// Shapes do not fit.
    #[error("{op}: {reason}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// What does not fit what.
        reason: String,
    },
    /// A type that the operation does not take.
    #[error("{op}: {what} is of {found}; it takes {expected}")]
    Type {
        /// The operation.
        op: &'static str,
        /// Which tensor.
        what: &'static str,
        /// Its type.
        found: DType,
        /// The types that would do.
        expected: &'static str,
    },
    /// Tensors of different devices.
    #[error("{op}: {what} is on {found}, the others are on {expected}; move it with `to_device`")]
    Device {
        /// The operation.
        op: &'static str,
        /// Which tensor.
        what: &'static str,
        /// Where it is.
        found: String,
        /// Where the others are.
        expected: String,
    },
}

/// Refuses shapes, in words.
pub(crate) fn shape(op: &'static str, reason: impl Into<String>) -> Error {
    Error::Shape { op, reason: reason.into() }
}
