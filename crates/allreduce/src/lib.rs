//! `MPI_Allreduce` over any MPI and any GPU: what `libwarpwave_mpi.so` does, without its exported names.
//!
//! Nothing links to an MPI. The library of the program is found at run time, its handles are told apart by [`abi`], and whatever is
//! not handled here goes to it unchanged.
//!
//! | room | what it promises |
//! |---|---|
//! | [`abi`] | the program's MPI, its functions and what its handles mean |
//! | [`element`], [`combine`] | types and operations, apart from any MPI's names for them; combining them in host memory |
//! | [`schedule`] | the algorithms as data: who sends which range to whom |
//! | [`table`], [`settings`] | which algorithm for which call, and what the environment says about it |
//! | [`comm`] | what is kept for a communicator, and what its ranks agree on |
//! | [`wire`], [`host`], [`device`] | messages, and steps carried out on host and on device memory |
//! | [`ipc`], [`nccl`] | the ways between GPUs that need no message |
//! | [`gpu`] | where a buffer lies, and copies and operations in device memory |
//! | [`mod@allreduce`] | one call: who does it, and how |

pub mod abi;
pub mod allreduce;
pub mod combine;
pub mod comm;
pub mod device;
pub mod element;
pub mod gpu;
pub mod host;
pub mod ipc;
pub mod nccl;
pub mod schedule;
pub mod settings;
pub mod stats;
pub mod table;
pub mod wire;

/// Why a call could not be carried through.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// The MPI's error code.
    #[error("MPI error {0}")]
    Mpi(std::ffi::c_int),
    /// Work on a device failed.
    #[error(transparent)]
    Gpu(#[from] gpu::Error),
}
