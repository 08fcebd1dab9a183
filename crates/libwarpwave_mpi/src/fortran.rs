//! Fortran's names.
//!
//! MPICH's Fortran library calls the C function, which is ours already: its own entry is called. Open MPI's does not, so handles and
//! sentinels are converted here, as it does.

use std::ffi::{CStr, c_int, c_void};

use warpwave_allreduce::abi::{Flavor, Handle, Mpi};
use warpwave_allreduce::allreduce::{Call, allreduce};

use crate::{In, Out, next};

type Arguments = unsafe extern "C" fn(In, Out, *const c_int, *const c_int, *const c_int, *const c_int, *mut c_int);

/// Open MPI's conversion of an integer to a handle.
fn from_fortran(mpi: &Mpi, name: &str, number: c_int) -> Option<Handle> {
    let found = mpi.symbol(name)?;
    // SAFETY: the MPI standard fixes the shape of these functions.
    let convert = unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn(c_int) -> Handle>(found) };
    // SAFETY: any number may be asked about.
    Some(unsafe { convert(number) })
}

/// Whether `buffer` is one of the variables that stand for a constant in Fortran.
fn stands_for(mpi: &Mpi, buffer: In, what: &str) -> bool {
    let names = [
        format!("mpi_fortran_{what}_"),
        format!("mpi_fortran_{what}"),
        format!("mpi_fortran_{what}__"),
        format!("MPI_FORTRAN_{}", what.to_uppercase()),
    ];
    names.iter().any(|name| mpi.symbol(name) == Some(buffer))
}

unsafe fn call(
    name: &CStr,
    (send, receive): (In, Out),
    (count, datatype, op, comm): (*const c_int, *const c_int, *const c_int, *const c_int),
    error: *mut c_int,
) {
    let openmpi = Mpi::get().filter(|mpi| mpi.flavor == Flavor::OpenMpi);
    let converted = openmpi.and_then(|mpi| {
        // SAFETY: Fortran passes addresses of integers.
        let (datatype, op, comm) = unsafe { (*datatype, *op, *comm) };
        let handles = (
            from_fortran(mpi, "PMPI_Type_f2c", datatype)?,
            from_fortran(mpi, "PMPI_Op_f2c", op)?,
            from_fortran(mpi, "PMPI_Comm_f2c", comm)?,
        );
        Some((mpi, handles))
    });
    let code = if let Some((mpi, (datatype, op, comm))) = converted {
        let bottom = |buffer: In| if stands_for(mpi, buffer, "bottom") { std::ptr::null() } else { buffer };
        let send = if stands_for(mpi, send, "in_place") { mpi.in_place } else { bottom(send) };
        let receive = bottom(receive).cast_mut();
        // SAFETY: an address of an integer.
        let count = i64::from(unsafe { *count });
        // SAFETY: the caller's promise.
        unsafe { allreduce(mpi, &Call { send, receive, count, datatype, op, comm, large: false }) }
    } else if let Some(found) = next(name) {
        // SAFETY: every MPI's function of this name has this shape.
        return unsafe { std::mem::transmute::<*const c_void, Arguments>(found)(send, receive, count, datatype, op, comm, error) };
    } else {
        crate::REFUSED
    };
    // The newer interface may leave it out.
    if !error.is_null() {
        // SAFETY: the address of an integer.
        unsafe { *error = code };
    }
}

macro_rules! export {
    ($($name:ident)*) => { $(
        /// Fortran's, by reference.
        ///
        /// # Safety
        /// As the MPI standard asks.
        #[allow(non_snake_case)]
        // SAFETY: the name is MPI's, and so is the function's shape.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(send: In, receive: Out, count: *const c_int, datatype: *const c_int, op: *const c_int, comm: *const c_int, error: *mut c_int) {
            let name = const { match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) { Ok(name) => name, Err(_) => panic!() } };
            // SAFETY: the caller's promise.
            unsafe { call(name, (send, receive), (count, datatype, op, comm), error) }
        }
    )* };
}

export!(mpi_allreduce_ mpi_allreduce__ mpi_allreduce MPI_ALLREDUCE mpi_allreduce_f08_);
