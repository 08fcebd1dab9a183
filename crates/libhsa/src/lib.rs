//! `libhsa-runtime64.so.1` over the virtual AMD GPU, for AMD's own HIP runtime and the libraries above it, unmodified.
//!
//! # What it promises
//!
//! The library exports the names of AMD's ROCr, with its symbol version. `table.rs` lists them: what implements each, or the status that
//! it returns because the virtual GPU does not support it. Such a call is logged with `WARPWAVE_LOG=debug`.
//! * Handles are checked: null, foreign and destroyed ones are errors (or, for functions without a status, have no effect).
//! * The cards are those of `WARPWAVE_VGPU_DEVICES`; by default there is one gfx90a.
//! * Kernels run with the checks of hardware instead of the strict ones of Warpwave's own HIP layer: see
//!   [`Packet`](warpwave_vgpu::exec::Packet). A fault is printed and reported to the program; AMD's HIP runtime then aborts it.
//!
//! # What it leaves to the caller
//!
//! Pointers must be valid, as HSA's documentation asks. Images, IPC, virtual memory management, shared virtual memory, interoperation with
//! graphics and agent dispatch are not supported.
//!
//! # Modules
//!
//! `agent`, `pool` and `system` describe the machine; `signal`, `queue`, `copy` and `executable` are the objects that programs create;
//! `processor` executes the packets of a queue.
//!
//! # Example
//!
//! ```sh
//! mkdir rocr && ln -s "$PWD/target/release/libhsa_runtime64.so" rocr/libhsa-runtime64.so.1
//! LD_LIBRARY_PATH=rocr WARPWAVE_VGPU_DEVICES=gfx90a ./my_rocm_program
//! ```

mod agent;
mod copy;
mod executable;
mod log;
mod pool;
mod processor;
mod queue;
mod runtime;
mod signal;
mod status;
mod system;
mod table;
mod types;

use std::ffi::{c_char, c_void};
use std::sync::atomic::AtomicI64;

use crate::status::Status;
use crate::types::*;

macro_rules! export {
    (
        status { $( $name:ident ( $($arg:ident : $ty:ty),* ) = $module:ident; )* }
        value { $( $other:ident ( $($other_arg:ident : $other_ty:ty),* ) -> $ret:ty = $other_module:ident :: $body:ident; )* }
        refused { $( $refused:ident = $status:ident; )* }
    ) => {
        $(
            /// The HSA function of this name.
            ///
            /// # Safety
            /// Arguments must be valid as HSA's documentation asks.
            #[allow(clippy::too_many_arguments, unused_unsafe)]
            // SAFETY: the function has the signature that HSA defines for the name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> u32 {
                // SAFETY: the caller's promise.
                unsafe { $module::$name($($arg),*) }.map_or_else(|status: Status| status.0, |()| 0)
            }
        )*
        $(
            /// The HSA function of this name.
            ///
            /// # Safety
            /// Arguments must be valid as HSA's documentation asks.
            #[allow(clippy::too_many_arguments, unused_unsafe)]
            // SAFETY: the function has the signature that HSA defines for the name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $other($($other_arg: $other_ty),*) -> $ret {
                // SAFETY: the caller's promise.
                unsafe { $other_module::$body($($other_arg),*) }
            }
        )*
        $(
            /// Returns that the function is not supported. It reads no arguments.
            // SAFETY: C functions may be called with arguments that they do not read.
            #[unsafe(no_mangle)]
            pub extern "C" fn $refused() -> u32 {
                log::debug(format_args!("{} is not supported", stringify!($refused)));
                Status::$status.0
            }
        )*
    };
}

table::hsa_functions!(export);

/// Marks this library as the virtual GPU.
#[allow(non_upper_case_globals)]
// SAFETY: the name is unique.
#[unsafe(no_mangle)]
pub static warpwave_virtual_gpu: u8 = 1;
