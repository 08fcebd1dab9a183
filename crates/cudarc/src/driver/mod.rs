//! The driver: devices, memory, streams, modules and launches.

mod context;
mod launch;
mod memory;
mod module;
pub mod result;
mod slice;
mod stream;
pub mod sys;
mod traits;

/// The safe types, under the path that they have in the real crate, too.
pub mod safe {
    pub use super::context::CudaContext;
    pub use super::launch::{LaunchArgs, LaunchConfig, PushKernelArg};
    pub use super::module::{CudaFunction, CudaModule};
    pub use super::slice::{CudaSlice, CudaView, CudaViewMut};
    pub use super::stream::{CudaEvent, CudaStream};
    pub use super::traits::{DevicePtr, DevicePtrMut, DeviceRepr, DeviceSlice, HostSlice, SyncOnDrop, ValidAsZeroBits};
}

pub use result::DriverError;
pub use safe::*;
