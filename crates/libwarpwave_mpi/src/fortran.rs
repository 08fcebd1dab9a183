//! Fortran's names.
//!
//! MPICH's Fortran library calls the C function, which is ours already: its own entry is called. Open MPI's does not, so handles and
//! sentinels are converted here, as it does.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::OnceLock;

use warpwave_allreduce::abi::{Flavor, Handle, Mpi};
use warpwave_allreduce::allreduce::{Call, allreduce};

use crate::{In, Out, next};

type Arguments = unsafe extern "C" fn(In, Out, *const c_int, *const c_int, *const c_int, *const c_int, *mut c_int);
type Convert = unsafe extern "C" fn(c_int) -> Handle;

/// The MPIs' Fortran halves, for programs that keep them out of the global scope (Python's modules do).
const HALVES: [&CStr; 6] =
    [c"libmpi_mpifh.so.40", c"libmpi_usempif08.so.40", c"libmpifort.so.12", c"libmpichfort.so.12", c"libmpi_mpifh.so", c"libmpifort.so"];

/// A symbol of a Fortran half that is loaded.
fn in_halves(name: &CStr) -> Option<*const c_void> {
    HALVES.iter().find_map(|half| {
        // SAFETY: with RTLD_NOLOAD nothing is loaded or started; both names end with 0.
        let found = unsafe {
            let handle = libc::dlopen(half.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
            if handle.is_null() { std::ptr::null_mut() } else { libc::dlsym(handle, name.as_ptr()) }
        };
        (!found.is_null()).then_some(found.cast_const())
    })
}

/// What Open MPI's integers and variables stand for.
struct Conversions {
    datatype: Convert,
    op: Convert,
    comm: Convert,
    /// Addresses that stand for a constant.
    in_place: Vec<usize>,
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
            // SAFETY: the MPI standard fixes the shape of these functions.
            Some(unsafe { std::mem::transmute::<*const c_void, Convert>(found) })
        };
        // Compilers write the names of Fortran's variables in four ways.
        let variables = |what: &str| {
            let lower = format!("mpi_fortran_{what}");
            let names = [format!("{lower}_"), lower.clone(), format!("{lower}__"), lower.to_uppercase()];
            let found = |name: &String| [mpi.symbol(name), CString::new(name.as_str()).ok().and_then(|name| in_halves(&name))];
            names.iter().flat_map(found).flatten().map(|address| address as usize).collect()
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
    (send, receive): (In, Out),
    (count, datatype, op, comm): (*const c_int, *const c_int, *const c_int, *const c_int),
    error: *mut c_int,
) {
    let openmpi = Mpi::get().filter(|mpi| mpi.flavor == Flavor::OpenMpi);
    let code = if let Some((mpi, convert)) = openmpi.and_then(|mpi| Some((mpi, Conversions::get(mpi)?))) {
        let bottom = |buffer: In| if convert.bottom.contains(&(buffer as usize)) { std::ptr::null() } else { buffer };
        let send = if convert.in_place.contains(&(send as usize)) { mpi.in_place } else { bottom(send) };
        let receive = bottom(receive).cast_mut();
        // SAFETY: Fortran passes addresses of integers, and any integer may be converted.
        let (count, datatype, op, comm) =
            unsafe { (i64::from(*count), (convert.datatype)(*datatype), (convert.op)(*op), (convert.comm)(*comm)) };
        // SAFETY: the caller's promise.
        unsafe { allreduce(mpi, &Call { send, receive, count, datatype, op, comm, large: false }) }
    } else if let Some(found) = next(name).or_else(|| in_halves(name)) {
        // SAFETY: every MPI's function of this name has this shape.
        return unsafe { std::mem::transmute::<*const c_void, Arguments>(found)(send, receive, count, datatype, op, comm, error) };
    } else {
        eprintln!("warpwave-mpi: no MPI has {}", name.to_string_lossy());
        std::process::abort();
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
