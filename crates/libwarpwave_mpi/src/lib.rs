//! `libwarpwave_mpi.so`: the MPI functions that are interposed between a program and its MPI library.
//!
//! Preload it (`LD_PRELOAD`) or link it before the MPI library. `MPI_Allreduce` and `MPI_Allreduce_c`, in C and Fortran, are implemented by
//! `warpwave-allreduce`. The nonblocking and persistent forms are forwarded to the MPI library, or fail with
//! `MPI_ERR_UNSUPPORTED_OPERATION` if it lacks them. With an unsupported MPI library every call goes to the next library that exports the
//! same name. The functions have the contracts that the MPI standard defines.
//!
//! ```console
//! $ LD_PRELOAD=libwarpwave_mpi.so mpirun -np 4 ./prog
//! ```
#![warn(missing_docs)]

mod fortran;

use std::ffi::{CStr, c_int, c_void};

use warpwave_allreduce::abi::{Handle, Mpi};
use warpwave_allreduce::allreduce::{Call, allreduce, native_accepts};

type In = *const c_void;
type Out = *mut c_void;

/// Returns the function of this name in the libraries loaded after this one.
fn next(name: &CStr) -> Option<*const c_void> {
    // SAFETY: the name is NUL-terminated.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    (!found.is_null()).then_some(found.cast_const())
}

/// Returned if no library exports the function: `MPI_ERR_BUFFER`, an error in every ABI.
const NOT_FOUND: c_int = 1;

macro_rules! forward {
    ($name:literal ( $($arg:expr),* ) as fn($($ty:ty),*)) => {
        match next($name) {
            // SAFETY: the MPI standard defines the signature.
            Some(found) => unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($ty),*) -> c_int>(found)($($arg),*) },
            None => NOT_FOUND,
        }
    };
}

/// `MPI_Allreduce`.
///
/// # Safety
/// As the MPI standard requires.
// SAFETY: name and signature are those of the MPI standard.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Allreduce(send: In, recv: Out, count: c_int, datatype: Handle, op: Handle, comm: Handle) -> c_int {
    let Some(mpi) = Mpi::get() else {
        return forward!(c"MPI_Allreduce"(send, recv, count, datatype, op, comm) as fn(In, Out, c_int, Handle, Handle, Handle));
    };
    let (datatype, op, comm) = (mpi.handle(datatype), mpi.handle(op), mpi.handle(comm));
    // SAFETY: guaranteed by the caller.
    unsafe { allreduce(mpi, &Call { send, recv, count: count.into(), datatype, op, comm, large: false }) }
}

/// `MPI_Allreduce_c`, with a 64-bit count.
///
/// # Safety
/// As the MPI standard requires.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Allreduce_c(send: In, recv: Out, count: i64, datatype: Handle, op: Handle, comm: Handle) -> c_int {
    let Some(mpi) = Mpi::get() else {
        return forward!(c"MPI_Allreduce_c"(send, recv, count, datatype, op, comm) as fn(In, Out, i64, Handle, Handle, Handle));
    };
    let (datatype, op, comm) = (mpi.handle(datatype), mpi.handle(op), mpi.handle(comm));
    // SAFETY: guaranteed by the caller.
    unsafe { allreduce(mpi, &Call { send, recv, count, datatype, op, comm, large: true }) }
}

/// Exports functions that forward to the MPI library, or raise an error if it lacks the function.
macro_rules! forward_request {
    ($( $name:ident = $call:ident, $symbol:literal ( $send:ident, $recv:ident, $($arg:ident : $ty:ty),* ) on $comm:ident returns $request:ident; )*) => { $(
        #[doc = concat!("`", stringify!($name), "`, forwarded to the MPI library.")]
        ///
        /// # Safety
        /// As the MPI standard requires.
        // SAFETY: name and signature are those of the MPI standard.
        #[allow(clippy::too_many_arguments)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($send: In, $recv: Out, $($arg: $ty),*) -> c_int {
            let Some(mpi) = Mpi::get() else {
                return forward!($symbol ($send, $recv, $($arg),*) as fn(In, Out, $($ty),*));
            };
            let call = mpi.calls.$call.filter(|_| native_accepts(mpi, $send, $recv));
            // SAFETY: guaranteed by the caller.
            unsafe { call.map_or_else(|| mpi.raise_unsupported(mpi.handle($comm), $request), |call| call($send, $recv, $($arg),*)) }
        }
    )* };
}

forward_request! {
    MPI_Iallreduce = iallreduce, c"MPI_Iallreduce" (send, recv, count: c_int, datatype: Handle, op: Handle, comm: Handle, request: *mut Handle) on comm returns request;
    MPI_Iallreduce_c = iallreduce_large, c"MPI_Iallreduce_c" (send, recv, count: i64, datatype: Handle, op: Handle, comm: Handle, request: *mut Handle) on comm returns request;
    MPI_Allreduce_init = allreduce_init, c"MPI_Allreduce_init" (send, recv, count: c_int, datatype: Handle, op: Handle, comm: Handle, info: Handle, request: *mut Handle) on comm returns request;
    MPI_Allreduce_init_c = allreduce_init_large, c"MPI_Allreduce_init_c" (send, recv, count: i64, datatype: Handle, op: Handle, comm: Handle, info: Handle, request: *mut Handle) on comm returns request;
}

/// `MPI_Finalize`, which prints the call counters if they are enabled.
///
/// # Safety
/// As the MPI standard requires.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Finalize() -> c_int {
    let Some(mpi) = Mpi::get() else { return forward!(c"MPI_Finalize"() as fn()) };
    warpwave_allreduce::stats::print();
    // SAFETY: guaranteed by the caller.
    unsafe { (mpi.calls.finalize)() }
}
