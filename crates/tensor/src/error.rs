//! Errors of tensor operations.

use std::sync::Arc;

use warpwave_kernels::DType;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed. Arguments are checked before anything is computed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device operation failed.
    #[error(transparent)]
    Gpu(#[from] warpwave_gpu::Error),
    /// The kernel library rejected or failed an operation.
    #[error(transparent)]
    Kernels(#[from] warpwave_kernels::Error),
    /// The system is out of memory.
    #[error("out of memory: requested {bytes} bytes{}", .free.map(|free| format!(", {free} bytes free")).unwrap_or_default())]
    OutOfMemory {
        /// Requested bytes.
        bytes: usize,
        /// Free bytes, where the system reports them.
        free: Option<u64>,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    File(Arc<warpwave_weights::Error>),
    /// A `.npy` file could not be read or written.
    #[error(transparent)]
    Npy(Arc<warpwave_weights::npy::FileError>),
    /// Invalid or mismatched shapes, dimensions or arguments.
    #[error("{op}: {reason}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// What was expected, and what came.
        reason: String,
    },
    /// An unsupported element type.
    #[error("{op}: {what}: expected {expected}, got {found}")]
    Type {
        /// The operation.
        op: &'static str,
        /// The argument.
        what: &'static str,
        /// Its type.
        found: DType,
        /// The supported types.
        expected: &'static str,
    },
    /// Tensors on different devices.
    #[error("{op}: expected {what} on {expected}, got {found}; move it with `to_device`")]
    Device {
        /// The operation.
        op: &'static str,
        /// The argument.
        what: &'static str,
        /// Its device.
        found: String,
        /// The device of the other arguments.
        expected: String,
    },
}

/// An error of reading or writing a file.
impl Error {
    /// Whether a GPU has too little memory, or its pool reached its limit.
    pub fn is_out_of_device_memory(&self) -> bool {
        let error = match self {
            Error::Gpu(error) => error,
            // A kernel's workspace.
            Error::Kernels(warpwave_kernels::Error::Launch { reason, .. }) => reason,
            _ => return false,
        };
        matches!(error, warpwave_gpu::Error::OutOfMemory { .. } | warpwave_gpu::Error::PoolCap { .. })
    }
}

pub(crate) fn file_error(error: warpwave_weights::Error) -> Error {
    Error::File(Arc::new(error))
}

/// A shape error.
pub(crate) fn shape(op: &'static str, reason: impl Into<String>) -> Error {
    Error::Shape { op, reason: reason.into() }
}

/// A type error.
pub(crate) fn wrong_type(op: &'static str, what: &'static str, found: DType, expected: &'static str) -> Error {
    Error::Type { op, what, found, expected }
}

/// A device error.
pub(crate) fn wrong_device(op: &'static str, what: &'static str, found: &str, expected: &str) -> Error {
    Error::Device { op, what, found: found.to_owned(), expected: expected.to_owned() }
}
