//! GPU-aware `MPI_Allreduce` over whichever MPI library the program uses.
//!
//! This crate implements what `libwarpwave_mpi.so` exports: it detects the MPI library at run time ([`abi`]), selects an algorithm from
//! a tuning table ([`table`], [`settings`]) and runs it on host or device memory ([`mod@allreduce`]).
//!
//! # Contract
//! - No MPI library is linked. Open MPI, MPICH and its derivatives, and the MPI-5 standard ABI are supported; with any other MPI
//!   library [`abi::Mpi::get`] returns `None` and the caller must forward every call.
//! - The algorithm depends only on values that all ranks share: count, datatype, operator, communicator size and rank 0's settings. The
//!   location of a rank's own buffers never changes which messages it sends.
//! - All ranks get bitwise identical results. Integers wrap on overflow.
//! - Messages travel on a private communicator, so they cannot match the program's receives.
//! - An error before the first message falls back to the MPI library. A later one is raised through the communicator's error handler.
//! - The caller guarantees what the MPI standard requires of a caller: valid handles, buffers of `count` elements, and the same call on
//!   every rank.
//!
//! ```
//! use warpwave_allreduce::abi::Flavor;
//! use warpwave_allreduce::table::{Algorithm, Memory, Table};
//!
//! # fn main() -> Result<(), warpwave_allreduce::table::ParseError> {
//! let table: Table = "openmpi host 2 native:0-64k;ring:64k-".parse()?;
//! let selection = table.selection(Flavor::OpenMpi, Memory::Host, 2);
//! assert_eq!(selection.get(1 << 20), Some(Algorithm::Ring));
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//! | module | contents |
//! |---|---|
//! | [`abi`] | the program's MPI library: its functions, handles and constants |
//! | [`datatype`], `reduce` | datatypes and reduction operators; reductions in host memory |
//! | [`schedule`] | the algorithms as data: which rank sends which range to which rank |
//! | [`table`], [`settings`] | the tuning table and the environment variables |
//! | `comm` | cached state of a communicator, and what its ranks agree on |
//! | `transport`, `host`, `device` | point-to-point messages, and schedules executed on host and on device memory |
//! | `ipc`, `nccl` | reductions between GPUs without MPI messages: CUDA/HIP IPC, NCCL and RCCL |
//! | [`gpu`] | locating buffers; copies and reductions in device memory |
//! | [`mod@allreduce`] | one call: algorithm selection and execution |
//! | [`log`], [`stats`] | messages and call counters |
#![warn(missing_docs)]

pub mod abi;
pub mod allreduce;
mod comm;
pub mod datatype;
mod device;
pub mod gpu;
mod host;
mod ipc;
pub mod log;
mod nccl;
mod reduce;
pub mod schedule;
pub mod settings;
pub mod stats;
pub mod table;
mod transport;

/// Why an allreduce failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The MPI library returned this error code.
    #[error("the MPI library returned error code {0}")]
    Mpi(std::ffi::c_int),
    /// An operation on a device failed.
    #[error(transparent)]
    Gpu(#[from] gpu::Error),
}

/// Maps an MPI return code: 0 is success.
fn check(code: std::ffi::c_int) -> Result<(), Error> {
    if code == 0 { Ok(()) } else { Err(Error::Mpi(code)) }
}
