//! The MPI functions that this library puts in front of the program's MPI: `libwarpwave_mpi.so`.
//!
//! The names are MPI's; what they do is in `warpwave-allreduce`. A call that comes before an MPI is there, or with one that is not known,
//! goes to the next library that has the name.

mod fortran;

use std::ffi::{CStr, c_int, c_void};

use warpwave_allreduce::abi::{Handle, Mpi};
use warpwave_allreduce::allreduce::{Call, allreduce, may_leave};

type In = *const c_void;
type Out = *mut c_void;

/// The function of that name in the libraries after this one.
fn next(name: &CStr) -> Option<*const c_void> {
    // SAFETY: the name ends with 0.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    (!found.is_null()).then_some(found.cast_const())
}

/// An error class that every MPI knows as no success: `MPI_ERR_BUFFER`.
const REFUSED: c_int = 1;

macro_rules! forward {
    ($name:literal ( $($arg:expr),* ) as fn($($ty:ty),*)) => {
        match next($name) {
            // SAFETY: the MPI standard fixes the shape of the function of this name.
            Some(found) => unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($ty),*) -> c_int>(found)($($arg),*) },
            None => REFUSED,
        }
    };
}

/// MPI's.
///
/// # Safety
/// As the MPI standard asks.
// SAFETY: the name is MPI's, and so is the function's shape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Allreduce(send: In, receive: Out, count: c_int, datatype: Handle, op: Handle, comm: Handle) -> c_int {
    let Some(mpi) = Mpi::get() else {
        return forward!(c"MPI_Allreduce"(send, receive, count, datatype, op, comm) as fn(In, Out, c_int, Handle, Handle, Handle));
    };
    let (datatype, op, comm) = (mpi.handle(datatype), mpi.handle(op), mpi.handle(comm));
    // SAFETY: the caller's promise.
    unsafe { allreduce(mpi, &Call { send, receive, count: count.into(), datatype, op, comm, large: false }) }
}

/// MPI's, with a 64-bit count.
///
/// # Safety
/// As the MPI standard asks.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Allreduce_c(send: In, receive: Out, count: i64, datatype: Handle, op: Handle, comm: Handle) -> c_int {
    let Some(mpi) = Mpi::get() else {
        return forward!(c"MPI_Allreduce_c"(send, receive, count, datatype, op, comm) as fn(In, Out, i64, Handle, Handle, Handle));
    };
    let (datatype, op, comm) = (mpi.handle(datatype), mpi.handle(op), mpi.handle(comm));
    // SAFETY: the caller's promise.
    unsafe { allreduce(mpi, &Call { send, receive, count, datatype, op, comm, large: true }) }
}

/// What this library does not do itself, handed to the MPI as it came; where the MPI has no such function, an error says so.
macro_rules! pass {
    ($( $name:ident = $call:ident, $symbol:literal ( $send:ident, $receive:ident, $($arg:ident : $ty:ty),* ) on $comm:ident gives $request:ident; )*) => { $(
        /// MPI's.
        ///
        /// # Safety
        /// As the MPI standard asks.
        // SAFETY: the name is MPI's, and so is the function's shape.
        #[allow(clippy::too_many_arguments)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($send: In, $receive: Out, $($arg: $ty),*) -> c_int {
            let Some(mpi) = Mpi::get() else {
                return forward!($symbol ($send, $receive, $($arg),*) as fn(In, Out, $($ty),*));
            };
            let call = mpi.calls.$call.filter(|_| may_leave(mpi, $send, $receive));
            // SAFETY: the caller's promise.
            unsafe { call.map_or_else(|| mpi.refuse_request(mpi.handle($comm), $request), |call| call($send, $receive, $($arg),*)) }
        }
    )* };
}

pass! {
    MPI_Iallreduce = iallreduce, c"MPI_Iallreduce" (send, receive, count: c_int, datatype: Handle, op: Handle, comm: Handle, request: *mut Handle) on comm gives request;
    MPI_Iallreduce_c = iallreduce_large, c"MPI_Iallreduce_c" (send, receive, count: i64, datatype: Handle, op: Handle, comm: Handle, request: *mut Handle) on comm gives request;
    MPI_Allreduce_init = allreduce_init, c"MPI_Allreduce_init" (send, receive, count: c_int, datatype: Handle, op: Handle, comm: Handle, info: Handle, request: *mut Handle) on comm gives request;
    MPI_Allreduce_init_c = allreduce_init_large, c"MPI_Allreduce_init_c" (send, receive, count: i64, datatype: Handle, op: Handle, comm: Handle, info: Handle, request: *mut Handle) on comm gives request;
}

/// MPI's.
///
/// # Safety
/// As the MPI standard asks.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Finalize() -> c_int {
    let Some(mpi) = Mpi::get() else { return forward!(c"MPI_Finalize"() as fn()) };
    warpwave_allreduce::stats::print();
    // SAFETY: the caller's promise.
    unsafe { (mpi.calls.finalize)() }
}
