//! One device API over the CUDA and HIP drivers.
//!
//! The drivers are opened at run time: the same binary drives NVIDIA and AMD GPUs and starts on a machine with neither. A missing library is
//! [`Error::NotAvailable`], a missing symbol an error of that call alone.
//!
//! | layer | contents |
//! |---|---|
//! | `table` | one row per driver call, raw, resolved at its first use |
//! | `vendor`, `driver` | differences between the vendors; error codes become [`Error`]s |
//! | [`Device`], [`Stream`], [`Buffer`], [`Kernel`] … | owned and checked types, usable from any thread |
//!
//! The crate checks lengths, bounds, devices, launch limits, and the number and sizes of kernel arguments. It leaves to the caller the types
//! of kernel arguments and the kernel's memory accesses (so [`Kernel::launch`] is `unsafe`), and the order of work on different streams
//! ([`Stream::wait`]).
//!
//! ```
//! use warpwave_gpu::{DeviceSpec, Devices, Selection};
//!
//! # fn main() -> Result<(), warpwave_gpu::Error> {
//! match Devices::hardware().select(&DeviceSpec::Auto)? {
//!     Selection::Gpu(device) => {
//!         let stream = device.stream()?;
//!         let numbers = stream.upload(&[1.0f32, 2.0, 3.0])?;
//!         assert_eq!(stream.download(&numbers)?, [1.0, 2.0, 3.0]);
//!     }
//!     Selection::Cpu { reasons } => println!("no GPU: {}", reasons.join("; ")),
//! }
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

mod arch;
mod args;
pub mod code_object;
mod device;
mod devices;
mod driver;
mod error;
mod event;
#[cfg(feature = "fake")]
pub mod fake;
mod graph;
pub mod hardware;
mod host_view;
mod ipc;
mod launch;
pub mod library;
pub mod loaded_drivers;
mod memory;
mod module;
mod pool;
mod stream;
mod table;
mod tensor_map;
mod timing;
mod vendor;

pub use arch::{Arch, AsyncCopy, ComputeCapability, Gfx, InvalidArch, MatrixUnits, Variant};
pub use args::{Arg, Args};
pub use device::{CurrentDevice, Device, DeviceInfo, MemoryInfo};
pub use devices::{Backend, DEVICE_VARIABLE, DeviceSpec, Devices, Selection};
pub use driver::{Driver, Version, cuda_search, hip_search, rocm_library_folders};
pub use error::{Error, Result};
pub use event::Event;
pub use graph::{Graph, GraphExec};
pub use host_view::{HostView, HostViewMut};
pub use ipc::IpcMemory;
pub use launch::{Launch, default_block_size};
pub use memory::{Buffer, HostBuffer, MemoryRange, Slice, SliceMut, UnifiedBuffer};
pub use module::{Kernel, Module};
pub use pool::PoolStats;
pub use stream::{Priorities, Stream};
pub use table::{
    Copy2d, Copy2dSide, DevicePtr, Extent, Failure, Handle, IpcHandle, LaunchAttribute, LaunchConfig, MemLocation, PitchedPtr, Row,
    Slot as TableSlot, Source, Table, Vendor,
};
pub use tensor_map::{Im2col, TensorMap, TensorMemory};
pub use timing::KernelTime;
pub use vendor::{Attribute, MemoryKind};
