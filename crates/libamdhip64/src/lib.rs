//! `libamdhip64.so` over the virtual AMD GPU, for C and C++ programs that load or link the HIP runtime.
//!
//! # What it promises
//!
//! The library exports every function of [`warpwave_vgpu::hip`] under its HIP name. Programs that clang compiled for gfx908, gfx90a or
//! gfx942 run unmodified; the devices are those of `WARPWAVE_VGPU_DEVICES`. It also exports the marker `warpwave_virtual_gpu`, by which
//! Warpwave's own search for AMD's runtime recognizes and skips it.
//!
//! # What it leaves to the caller
//!
//! Pointers must be valid, as HIP's documentation asks. Functions of HIP that the virtual GPU lacks are not exported: linking against
//! them fails.
//!
//! # Example
//!
//! ```sh
//! LD_LIBRARY_PATH=target/release WARPWAVE_VGPU_DEVICES=gfx90a ./my_hip_program
//! ```

use std::ffi::{c_char, c_int, c_uint, c_void};

use warpwave_vgpu::hip::types::*;
use warpwave_vgpu::hip::{FunctionAttributes, PointerAttributes, functions};

macro_rules! export {
    (
        status { $( $symbol:ident ( $($arg:ident : $ty:ty),* ) = $subject:ident :: $body:ident; )* }
        other { $( $other:ident ( $($other_arg:ident : $other_ty:ty),* ) -> $ret:ty = $other_subject:ident :: $other_body:ident; )* }
    ) => {
        $(
            /// The HIP function of this name.
            ///
            /// # Safety
            /// Arguments must be valid as HIP's documentation asks.
            #[allow(non_snake_case, clippy::too_many_arguments)]
            // SAFETY: the function has the signature that HIP defines for the name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $symbol($($arg: $ty),*) -> c_int {
                // SAFETY: the caller's promise.
                unsafe { functions::$symbol($($arg),*) }
            }
        )*
        $(
            /// The HIP function of this name.
            ///
            /// # Safety
            /// Arguments must be valid as HIP's documentation asks.
            #[allow(non_snake_case, clippy::too_many_arguments)]
            // SAFETY: the function has the signature that HIP defines for the name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $other($($other_arg: $other_ty),*) -> $ret {
                // SAFETY: the caller's promise.
                unsafe { functions::$other($($other_arg),*) }
            }
        )*
    };
}

warpwave_vgpu::hip_functions!(export);

/// Marks this library as the virtual GPU, so that a search for AMD's runtime skips it.
#[allow(non_upper_case_globals)]
// SAFETY: the name is unique.
#[unsafe(no_mangle)]
pub static warpwave_virtual_gpu: u8 = 1;
