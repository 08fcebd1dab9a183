//! The Fortran bindings of `MPI_Allreduce`.
//!
//! MPICH's Fortran bindings call the C function `MPI_Allreduce`, which is already interposed, so calls are forwarded to them. Open MPI's
//! call `PMPI_Allreduce`, so handles and sentinel addresses are converted here.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::OnceLock;

use warpwave_allreduce::abi::{Flavor, Handle, Mpi};
use warpwave_allreduce::allreduce::{Call, allreduce};

use crate::{In, Out, next};

type Arguments = unsafe extern "C" fn(In, Out, *const c_int, *const c_int, *const c_int, *const c_int, *mut c_int);
type Convert = unsafe extern "C" fn(c_int) -> Handle;

/// Libraries with Fortran bindings, for programs that load them outside the global scope, as Python modules do.
const FORTRAN_LIBRARIES: [&CStr; 6] =
    [c"libmpi_mpifh.so.40", c"libmpi_usempif08.so.40", c"libmpifort.so.12", c"libmpichfort.so.12", c"libmpi_mpifh.so", c"libmpifort.so"];

/// Returns a symbol of a loaded Fortran library.
fn fortran_symbol(name: &CStr) -> Option<*const c_void> {
    FORTRAN_LIBRARIES.iter().find_map(|library| {
        // SAFETY: RTLD_NOLOAD loads nothing and runs no initializers; both names are NUL-terminated.
        let found = unsafe {
            let handle = libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
            if handle.is_null() { std::ptr::null_mut() } else { libc::dlsym(handle, name.as_ptr()) }
        };
        (!found.is_null()).then_some(found.cast_const())
    })
}

/// Conversion of Open MPI's Fortran handles and sentinels to C.
struct Conversions {
    datatype: Convert,
    op: Convert,
    comm: Convert,
    /// Addresses of the Fortran variable `MPI_IN_PLACE`.
    in_place: Vec<usize>,
    /// Addresses of the Fortran variable `MPI_BOTTOM`.
    bottom: Vec<usize>,
}

impl Conversions {
    fn get(mpi: &Mpi) -> Option<&'static Conversions> {
        static FOUND: OnceLock<Option<Conversions>> = OnceLock::new();
        FOUND.get_or_init(|| Conversions::find(mpi)).as_ref()
    }

    fn find(mpi: &Mpi) -> Option<Conversions> {
        let function = |name: &str| {
            let found = mpi.symbol(name)?;
            // SAFETY: the MPI standard defines the signature.
            Some(unsafe { std::mem::transmute::<*const c_void, Convert>(found) })
        };
        // Fortran compilers use four kinds of name mangling.
        let variables = |name: &str| {
            let lower = format!("mpi_fortran_{name}");
            let names = [format!("{lower}_"), lower.clone(), format!("{lower}__"), lower.to_uppercase()];
            let find = |name: &String| [mpi.symbol(name), CString::new(name.as_str()).ok().and_then(|name| fortran_symbol(&name))];
            names.iter().flat_map(find).flatten().map(|address| address as usize).collect()
        };
        Some(Conversions {
            datatype: function("PMPI_Type_f2c")?,
            op: function("PMPI_Op_f2c")?,
            comm: function("PMPI_Comm_f2c")?,
            in_place: variables("in_place"),
            bottom: variables("bottom"),
        })
    }
}

unsafe fn call(
    name: &CStr,
    (send, recv): (In, Out),
    (count, datatype, op, comm): (*const c_int, *const c_int, *const c_int, *const c_int),
    error: *mut c_int,
) {
    let openmpi = Mpi::get().filter(|mpi| mpi.flavor == Flavor::OpenMpi);
    let code = if let Some((mpi, convert)) = openmpi.and_then(|mpi| Some((mpi, Conversions::get(mpi)?))) {
        let bottom = |buffer: In| if convert.bottom.contains(&(buffer as usize)) { std::ptr::null() } else { buffer };
        let send = if convert.in_place.contains(&(send as usize)) { mpi.in_place } else { bottom(send) };
        let recv = bottom(recv).cast_mut();
        // SAFETY: Fortran passes addresses of integers, and any integer may be converted.
        let (count, datatype, op, comm) =
            unsafe { (i64::from(*count), (convert.datatype)(*datatype), (convert.op)(*op), (convert.comm)(*comm)) };
        // SAFETY: guaranteed by the caller.
        unsafe { allreduce(mpi, &Call { send, recv, count, datatype, op, comm, large: false }) }
    } else if let Some(found) = next(name).or_else(|| fortran_symbol(name)) {
        // SAFETY: this binding has the same signature in every MPI library.
        return unsafe { std::mem::transmute::<*const c_void, Arguments>(found)(send, recv, count, datatype, op, comm, error) };
    } else {
        eprintln!("warpwave-mpi: no MPI library exports {}", name.to_string_lossy());
        std::process::abort();
    };
    // Optional in mpi_f08.
    if !error.is_null() {
        // SAFETY: Fortran passes the address of an integer.
        unsafe { *error = code };
    }
}

macro_rules! export {
    ($($name:ident)*) => { $(
        /// Fortran binding of `MPI_Allreduce`.
        ///
        /// # Safety
        /// As the MPI standard requires.
        #[allow(non_snake_case)]
        // SAFETY: name and signature are those of the Fortran binding.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(send: In, recv: Out, count: *const c_int, datatype: *const c_int, op: *const c_int, comm: *const c_int, error: *mut c_int) {
            let name = const { match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) { Ok(name) => name, Err(_) => panic!() } };
            // SAFETY: guaranteed by the caller.
            unsafe { call(name, (send, recv), (count, datatype, op, comm), error) }
        }
    )* };
}

export!(mpi_allreduce_ mpi_allreduce__ mpi_allreduce MPI_ALLREDUCE mpi_allreduce_f08_);
