//! What can be wrong with a call.

use std::sync::Arc;

use warpwave_jit::JitError;

use crate::dtype::DType;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation did not happen. Nothing was launched or written.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No layout is like this.
    #[error("shape {shape:?} with strides {strides:?}: {reason}")]
    BadLayout {
        /// The shape.
        shape: Vec<usize>,
        /// The strides.
        strides: Vec<usize>,
        /// Why not.
        reason: String,
    },
    /// A layout reaches beyond the memory.
    #[error("the layout reaches element {last}, the memory has {len} of {dtype}")]
    OutOfBounds {
        /// The last element that is reached, from 0.
        last: usize,
        /// Whole elements that there are.
        len: usize,
        /// Their type.
        dtype: DType,
    },
    /// Memory that starts between elements.
    #[error("address {address:#x} is no multiple of the {} bytes of {dtype}", dtype.size())]
    Misaligned {
        /// The address.
        address: u64,
        /// The type.
        dtype: DType,
    },
    /// A view or a stream of another device.
    #[error("{op}: {what} is on {found}, the kernels are for {expected}")]
    WrongDevice {
        /// The operation.
        op: String,
        /// What is elsewhere.
        what: &'static str,
        /// Its device.
        found: String,
        /// The kernels' device.
        expected: String,
    },
    /// A type that does not fit.
    #[error("{op}: {what} is of {found}; it takes {expected}")]
    WrongType {
        /// The operation.
        op: String,
        /// Which view.
        what: &'static str,
        /// Its type.
        found: DType,
        /// What would fit.
        expected: String,
    },
    /// A shape that does not fit.
    #[error("{op}: {what} has the shape {found:?}; {expected}")]
    WrongShape {
        /// The operation.
        op: String,
        /// Which view.
        what: &'static str,
        /// Its shape.
        found: Vec<usize>,
        /// What would fit.
        expected: String,
    },
    /// A number or a choice that the operation does not take.
    #[error("{op}: {reason}")]
    BadArgument {
        /// The operation.
        op: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Memory that would be read and written in no certain order.
    #[error("{op}: {what}")]
    Overlap {
        /// The operation.
        op: String,
        /// What overlaps.
        what: String,
    },
    /// The kernels did not compile or load.
    #[error("{op} on {device}: {reason}")]
    Kernel {
        /// The operation.
        op: String,
        /// The device.
        device: String,
        /// Why.
        #[source]
        reason: Arc<JitError>,
    },
    /// The driver refused the launch.
    #[error("{op}: {reason}")]
    Launch {
        /// The operation.
        op: String,
        /// Why.
        #[source]
        reason: Arc<warpwave_gpu::Error>,
    },
    /// The vendor's library is not there.
    #[error("{op}: {reason}")]
    NotAvailable {
        /// The operation.
        op: String,
        /// Why.
        #[source]
        reason: Arc<warpwave_gpu::Error>,
    },
    /// The vendor's library cannot do it, or failed.
    #[error("{op}: {library}: {reason}")]
    Library {
        /// The operation.
        op: String,
        /// The library.
        library: &'static str,
        /// Why.
        reason: String,
    },
}
