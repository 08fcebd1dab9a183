//! HIP's functions under their C names: the virtual GPU for programs that load `libamdhip64.so` themselves.
//!
//! The list is the virtual GPU's own, so that both have the same functions.

use std::ffi::{c_char, c_int, c_uint, c_void};

use warpwave_vgpu::hip::types::*;
use warpwave_vgpu::hip::{FunctionAttributes, PointerAttributes, functions};

macro_rules! export {
    (
        status { $( $symbol:ident ( $($arg:ident : $ty:ty),* ) = $subject:ident :: $body:ident; )* }
        other { $( $other:ident ( $($other_arg:ident : $other_ty:ty),* ) -> $ret:ty = $other_subject:ident :: $other_body:ident; )* }
    ) => {
        $(
            /// HIP's.
            ///
            /// # Safety
            /// As HIP's documentation asks.
            #[allow(non_snake_case, clippy::too_many_arguments)]
            // SAFETY: the name is HIP's, and so is the function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $symbol($($arg: $ty),*) -> c_int {
                // SAFETY: the caller's promises are passed on.
                unsafe { functions::$symbol($($arg),*) }
            }
        )*
        $(
            /// HIP's.
            ///
            /// # Safety
            /// As HIP's documentation asks.
            #[allow(non_snake_case, clippy::too_many_arguments)]
            // SAFETY: as above.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $other($($other_arg: $other_ty),*) -> $ret {
                // SAFETY: as above.
                unsafe { functions::$other($($other_arg),*) }
            }
        )*
    };
}

warpwave_vgpu::hip_functions!(export);

/// Marks this library as the virtual GPU, so that a search for AMD's runtime skips it.
#[allow(non_upper_case_globals)]
// SAFETY: nobody else has this name.
#[unsafe(no_mangle)]
pub static warpwave_virtual_gpu: u8 = 1;
