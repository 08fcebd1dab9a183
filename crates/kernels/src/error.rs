//! Errors of this crate.

use std::sync::Arc;

use warpwave_jit::JitError;

use crate::dtype::DType;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation was not launched. Nothing was written.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid layout.
    #[error("shape {shape:?} with strides {strides:?}: {reason}")]
    BadLayout {
        /// The shape.
        shape: Vec<usize>,
        /// The strides.
        strides: Vec<usize>,
        /// The reason.
        reason: String,
    },
    /// The layout exceeds the memory.
    #[error("layout out of bounds: the last element has index {last}, but the buffer has {len} elements of {dtype}")]
    OutOfBounds {
        /// Index of the last element the layout reaches.
        last: usize,
        /// Number of elements in the memory.
        len: usize,
        /// The element type.
        dtype: DType,
    },
    /// Misaligned memory.
    #[error("address {address:#x} is not aligned to {} bytes (required for {dtype})", dtype.size())]
    Misaligned {
        /// The address.
        address: u64,
        /// The element type.
        dtype: DType,
    },
    /// A view or stream of another device.
    #[error("{op}: expected {what} on {expected}, got {found}")]
    WrongDevice {
        /// The operation.
        op: String,
        /// The argument.
        what: &'static str,
        /// Its device.
        found: String,
        /// The kernels' device.
        expected: String,
    },
    /// An unsupported element type.
    #[error("{op}: {what}: expected {expected}, got {found}")]
    WrongType {
        /// The operation.
        op: String,
        /// The argument.
        what: &'static str,
        /// Its type.
        found: DType,
        /// The supported types.
        expected: String,
    },
    /// An unsupported shape.
    #[error("{op}: {what}: expected shape {expected}, got {found:?}")]
    WrongShape {
        /// The operation.
        op: String,
        /// The argument.
        what: &'static str,
        /// Its shape.
        found: Vec<usize>,
        /// The expected shape.
        expected: String,
    },
    /// An invalid argument.
    #[error("{op}: {reason}")]
    BadArgument {
        /// The operation.
        op: String,
        /// The reason.
        reason: String,
    },
    /// Overlapping memory: the order of reads and writes would be undefined.
    #[error("{op}: {what}")]
    Overlap {
        /// The operation.
        op: String,
        /// What overlaps.
        what: String,
    },
    /// The kernels failed to compile or load.
    #[error("{op} on {device}: {reason}")]
    Kernel {
        /// The operation.
        op: String,
        /// The device.
        device: String,
        /// The cause.
        #[source]
        reason: Arc<JitError>,
    },
    /// The driver rejected the launch or an allocation.
    #[error("{op}: {reason}")]
    Launch {
        /// The operation.
        op: String,
        /// The cause.
        #[source]
        reason: Arc<warpwave_gpu::Error>,
    },
    /// The vendor's library is not available.
    #[error("{op}: {reason}")]
    NotAvailable {
        /// The operation.
        op: String,
        /// The cause.
        #[source]
        reason: Arc<warpwave_gpu::Error>,
    },
    /// The vendor's library failed or does not support the operation.
    #[error("{op}: {library}: {reason}")]
    Library {
        /// The operation.
        op: String,
        /// The library.
        library: &'static str,
        /// The reason.
        reason: String,
    },
}
