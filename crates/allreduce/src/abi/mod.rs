//! The program's MPI library, detected at run time: its functions, handles and constants.
//!
//! Three ABIs are supported: Open MPI (handles are pointers to global variables), MPICH and its derivatives (32-bit integers) and the
//! MPI-5 standard ABI (small integers in pointers). All handles are stored as `usize`: each kind is passed in one register. With any
//! other MPI library this crate does nothing.

mod handles;
mod symbols;

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::datatype::{Class, Datatype, Op, Repr};
use symbols::SymbolScope;

/// An MPI handle: a pointer or an integer.
pub type Handle = usize;

/// An attribute copy function, called when a communicator is duplicated.
pub type CopyAttribute = unsafe extern "C" fn(Handle, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;

/// An attribute delete function, called when an attribute or its communicator is deleted.
pub type DeleteAttribute = unsafe extern "C" fn(Handle, c_int, *mut c_void, *mut c_void) -> c_int;

/// The ABI of an MPI library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    /// Open MPI.
    OpenMpi,
    /// MPICH and its derivatives: Intel MPI, MVAPICH, Cray MPICH.
    Mpich,
    /// The MPI-5 standard ABI.
    Standard,
}

impl Flavor {
    /// Returns the name used in tuning tables.
    pub fn name(self) -> &'static str {
        match self {
            Flavor::OpenMpi => "openmpi",
            Flavor::Mpich => "mpich",
            Flavor::Standard => "abi",
        }
    }
}

/// Declares the MPI functions by their profiling names. An MPI library that lacks a required one is not supported.
macro_rules! functions {
    (
        required { $( $required:ident = $required_symbol:literal ( $($required_ty:ty),* ); )* }
        optional { $( $optional:ident = $optional_symbol:literal ( $($optional_ty:ty),* ); )* }
    ) => {
        /// The MPI library's functions. Each returns an MPI error code, 0 for success.
        #[allow(missing_docs)] // named after the MPI functions
        pub struct Functions {
            $( pub $required: unsafe extern "C" fn($($required_ty),*) -> c_int, )*
            $( pub $optional: Option<unsafe extern "C" fn($($optional_ty),*) -> c_int>, )*
        }

        impl Functions {
            fn find(scope: &SymbolScope) -> Option<Functions> {
                $( let $required = scope.symbol($required_symbol)?; )*
                $( let $optional = scope.symbol($optional_symbol); )*
                Some(Functions {
                    // SAFETY: the MPI standard defines the signature; handles fit into a register in every ABI.
                    $( $required: unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($required_ty),*) -> c_int>($required) }, )*
                    // SAFETY: as above.
                    $( $optional: $optional.map(|found| unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($optional_ty),*) -> c_int>(found) }), )*
                })
            }
        }
    };
}

type In = *const c_void;
type Out = *mut c_void;

functions! {
    required {
        allreduce = "PMPI_Allreduce" (In, Out, c_int, Handle, Handle, Handle);
        finalize = "PMPI_Finalize" ();
        library_version = "PMPI_Get_library_version" (*mut c_char, *mut c_int);
        initialized = "PMPI_Initialized" (*mut c_int);
        comm_rank = "PMPI_Comm_rank" (Handle, *mut c_int);
        comm_size = "PMPI_Comm_size" (Handle, *mut c_int);
        comm_test_inter = "PMPI_Comm_test_inter" (Handle, *mut c_int);
        comm_group = "PMPI_Comm_group" (Handle, *mut Handle);
        group_free = "PMPI_Group_free" (*mut Handle);
        comm_create = "PMPI_Comm_create" (Handle, Handle, *mut Handle);
        comm_split_type = "PMPI_Comm_split_type" (Handle, c_int, c_int, Handle, *mut Handle);
        comm_free = "PMPI_Comm_free" (*mut Handle);
        comm_create_keyval = "PMPI_Comm_create_keyval" (CopyAttribute, DeleteAttribute, *mut c_int, *mut c_void);
        comm_set_attr = "PMPI_Comm_set_attr" (Handle, c_int, *mut c_void);
        comm_get_attr = "PMPI_Comm_get_attr" (Handle, c_int, *mut *mut c_void, *mut c_int);
        comm_set_errhandler = "PMPI_Comm_set_errhandler" (Handle, Handle);
        comm_call_errhandler = "PMPI_Comm_call_errhandler" (Handle, c_int);
        sendrecv = "PMPI_Sendrecv" (In, c_int, Handle, c_int, c_int, Out, c_int, Handle, c_int, c_int, Handle, *mut c_void);
        isend = "PMPI_Isend" (In, c_int, Handle, c_int, c_int, Handle, *mut Handle);
        irecv = "PMPI_Irecv" (Out, c_int, Handle, c_int, c_int, Handle, *mut Handle);
        wait = "PMPI_Wait" (*mut Handle, *mut c_void);
        test = "PMPI_Test" (*mut Handle, *mut c_int, *mut c_void);
        bcast = "PMPI_Bcast" (Out, c_int, Handle, c_int, Handle);
        allgather = "PMPI_Allgather" (In, c_int, Handle, Out, c_int, Handle, Handle);
        barrier = "PMPI_Barrier" (Handle);
        type_get_extent = "PMPI_Type_get_extent" (Handle, *mut isize, *mut isize);
        type_get_true_extent = "PMPI_Type_get_true_extent" (Handle, *mut isize, *mut isize);
    }
    optional {
        iallreduce = "PMPI_Iallreduce" (In, Out, c_int, Handle, Handle, Handle, *mut Handle);
        allreduce_large = "PMPI_Allreduce_c" (In, Out, i64, Handle, Handle, Handle);
        iallreduce_large = "PMPI_Iallreduce_c" (In, Out, i64, Handle, Handle, Handle, *mut Handle);
        allreduce_init = "PMPI_Allreduce_init" (In, Out, c_int, Handle, Handle, Handle, Handle, *mut Handle);
        allreduce_init_large = "PMPI_Allreduce_init_c" (In, Out, i64, Handle, Handle, Handle, Handle, *mut Handle);
        query_cuda = "MPIX_Query_cuda_support" ();
        query_rocm = "MPIX_Query_rocm_support" ();
    }
}

/// The program's MPI library.
#[allow(missing_docs)] // constants named after MPI's
pub struct Mpi {
    pub flavor: Flavor,
    /// First line of `MPI_Get_library_version`.
    pub version: String,
    pub calls: Functions,
    pub in_place: *const c_void,
    pub status_ignore: *mut c_void,
    pub comm_world: Handle,
    pub comm_self: Handle,
    pub comm_null: Handle,
    pub info_null: Handle,
    pub errors_return: Handle,
    pub request_null: Handle,
    pub byte: Handle,
    pub int: Handle,
    pub op_max: Handle,
    /// `MPI_COMM_TYPE_SHARED`
    pub shared: c_int,
    /// `MPI_ERR_UNSUPPORTED_OPERATION`
    pub unsupported: c_int,
    /// `MPI_ERR_OTHER`
    pub other: c_int,
    datatypes: HandleMap<Datatype>,
    ops: HandleMap<Op>,
    scope: SymbolScope,
}

// SAFETY: the pointers are addresses of functions and constants, valid for the life of the process.
unsafe impl Send for Mpi {}
// SAFETY: as above.
unsafe impl Sync for Mpi {}

impl Mpi {
    /// Returns the MPI library of this process, searched once. `None` if no supported one is loaded.
    pub fn get() -> Option<&'static Mpi> {
        static MPI: OnceLock<Option<Mpi>> = OnceLock::new();
        MPI.get_or_init(|| Mpi::detect(SymbolScope::loaded()?)).as_ref()
    }

    fn detect(scope: SymbolScope) -> Option<Mpi> {
        let calls = Functions::find(&scope)?;
        let mut text = vec![0u8; 8192];
        let mut length = 0;
        // SAFETY: the buffer exceeds MPI_MAX_LIBRARY_VERSION_STRING, and the call is allowed before MPI_Init.
        unsafe { (calls.library_version)(text.as_mut_ptr().cast(), &mut length) };
        text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(0));
        let text = String::from_utf8_lossy(&text);
        let version = text.lines().next().unwrap_or_default().trim().to_owned();
        let flavor = if scope.library_of("PMPI_Allreduce").is_some_and(|file| file.contains("libmpi_abi")) {
            Flavor::Standard
        } else if scope.symbol("ompi_mpi_comm_world").is_some() {
            Flavor::OpenMpi
        } else if ["MPICH", "Intel", "MVAPICH", "MPT", "BXI"].iter().any(|family| text.contains(family)) {
            Flavor::Mpich
        } else {
            return None;
        };
        let variable = |name: &str| scope.symbol(name).map_or(0, |address| address as usize);
        let handle = |openmpi: &str, mpich: u32, standard: u32| match flavor {
            Flavor::OpenMpi => variable(openmpi),
            Flavor::Mpich => mpich as usize,
            Flavor::Standard => standard as usize,
        };
        let constant = |openmpi: usize, mpich: usize, standard: usize| match flavor {
            Flavor::OpenMpi => openmpi,
            Flavor::Mpich => mpich,
            Flavor::Standard => standard,
        };
        let datatypes = handles::DATATYPES.iter().map(|row| (handle(row.openmpi, row.mpich, row.standard), row.datatype));
        let ops = handles::OPS.iter().map(|row| (handle(row.openmpi, row.mpich, row.standard), row.op));
        let extent_matches = |(handle, datatype): &(Handle, Datatype)| match flavor {
            _ if *handle == 0 => false,
            // Open MPI exports variables for datatypes that its compilers lack; those have no size.
            Flavor::OpenMpi => {
                let (mut low, mut extent) = (0, 0);
                // SAFETY: the handle is the address of a predefined datatype.
                unsafe { (calls.type_get_extent)(*handle, &mut low, &mut extent) == 0 && extent == datatype.repr.size() as isize }
            }
            // The handle of a basic datatype encodes its size.
            Flavor::Mpich => *handle >> 24 != 0x4c || (*handle >> 8) & 0xff == datatype.repr.size(),
            Flavor::Standard => true,
        };
        let datatypes = HandleMap::new(datatypes.filter(extent_matches));
        let ops = HandleMap::new(ops.filter(|(handle, _)| *handle != 0));
        Some(Mpi {
            flavor,
            version,
            in_place: constant(1, usize::MAX, 1) as *const c_void,
            status_ignore: constant(0, 1, 0) as *mut c_void,
            comm_world: handle("ompi_mpi_comm_world", 0x4400_0000, 0x101),
            comm_self: handle("ompi_mpi_comm_self", 0x4400_0001, 0x102),
            comm_null: handle("ompi_mpi_comm_null", 0x0400_0000, 0x100),
            info_null: handle("ompi_mpi_info_null", 0x1c00_0000, 0x130),
            errors_return: handle("ompi_mpi_errors_return", 0x5400_0001, 0x143),
            request_null: handle("ompi_request_null", 0x2c00_0000, 0x180),
            byte: handle("ompi_mpi_byte", 0x4c00_010d, 0x247),
            int: handle("ompi_mpi_int", 0x4c00_0405, 0x209),
            op_max: handle("ompi_mpi_op_max", 0x5800_0001, 0x23),
            shared: constant(0, 1, 221) as c_int,
            unsupported: constant(52, 44, 55) as c_int,
            other: constant(16, 15, 16) as c_int,
            calls,
            datatypes,
            ops,
            scope,
        })
    }

    /// Returns the handle in a register: MPICH's are 32 bits wide, and the upper half is undefined.
    #[inline]
    pub fn handle(&self, raw: usize) -> Handle {
        if self.flavor == Flavor::Mpich { raw & 0xffff_ffff } else { raw }
    }

    /// Returns the datatype of a handle, or `None` if this library does not reduce it.
    #[inline]
    pub fn datatype(&self, handle: Handle) -> Option<Datatype> {
        self.datatypes.get(handle)
    }

    /// Returns the operator of a handle, or `None` for user-defined operators.
    #[inline]
    pub fn op(&self, handle: Handle) -> Option<Op> {
        self.ops.get(handle)
    }

    /// Returns the handle of a datatype.
    pub fn datatype_handle(&self, datatype: Datatype) -> Option<Handle> {
        self.datatypes.key_of(datatype)
    }

    /// Returns the handle of an operator.
    pub fn op_handle(&self, op: Op) -> Option<Handle> {
        self.ops.key_of(op)
    }

    /// Returns the address of a symbol of the MPI library, or of its Fortran bindings.
    pub fn symbol(&self, name: &str) -> Option<*const c_void> {
        self.scope.symbol(name)
    }

    /// Raises an error on a communicator, and returns its code.
    pub fn raise_error(&self, comm: Handle, code: c_int) -> c_int {
        // SAFETY: the communicator is the program's. Its error handler may abort the program.
        unsafe { (self.calls.comm_call_errhandler)(comm, code) };
        code
    }

    /// Raises `MPI_ERR_UNSUPPORTED_OPERATION` for a call that returns a request, and sets the request to null.
    ///
    /// # Safety
    /// `request` must be valid for writing a request.
    pub unsafe fn raise_unsupported(&self, comm: Handle, request: *mut Handle) -> c_int {
        // SAFETY: guaranteed by the caller; MPICH's requests are 32 bits wide, the others' 64.
        unsafe {
            if self.flavor == Flavor::Mpich {
                request.cast::<u32>().write(self.request_null as u32);
            } else {
                request.write(self.request_null);
            }
        }
        self.raise_error(comm, self.unsupported)
    }

    /// Returns whether widely used versions of this MPI library compute a wrong result.
    pub fn has_wrong_result(&self, datatype: Datatype, op: Op) -> bool {
        use Repr::{F16, I8, I16, I64, U8, U16, U32, U64};
        let compares = matches!(op, Op::Min | Op::Max);
        match (self.flavor, datatype.repr) {
            // The AVX op component saturates.
            (Flavor::OpenMpi, I8 | U8 | I16 | U16) => op == Op::Sum,
            // Signed and unsigned comparison are confused.
            (Flavor::OpenMpi, U64) => compares,
            (Flavor::OpenMpi, I64) => compares && datatype.class == Class::FortranInteger,
            (Flavor::Mpich | Flavor::Standard, U8 | U16 | U32 | U64) => compares,
            // The program is aborted.
            (Flavor::Mpich | Flavor::Standard, F16) => true,
            _ => false,
        }
    }
}

/// A hash map from handles, with a few dozen entries and a lookup in every call.
struct HandleMap<T> {
    slots: Vec<Option<(Handle, T)>>,
}

impl<T: Copy + PartialEq> HandleMap<T> {
    const SLOTS: usize = 256;

    fn new(entries: impl Iterator<Item = (Handle, T)>) -> HandleMap<T> {
        let mut slots = vec![None; Self::SLOTS];
        for (handle, value) in entries {
            let mut at = Self::slot(handle);
            // Linear probing; at most a third of the slots is used.
            while slots[at].is_some_and(|(known, _)| known != handle) {
                at = (at + 1) % Self::SLOTS;
            }
            if slots[at].is_none() {
                slots[at] = Some((handle, value));
            }
        }
        HandleMap { slots }
    }

    #[inline]
    fn slot(handle: Handle) -> usize {
        (handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 56
    }

    #[inline]
    fn get(&self, handle: Handle) -> Option<T> {
        let mut at = Self::slot(handle);
        while let Some((known, value)) = self.slots[at] {
            if known == handle {
                return Some(value);
            }
            at = (at + 1) % Self::SLOTS;
        }
        None
    }

    fn key_of(&self, value: T) -> Option<Handle> {
        self.slots.iter().flatten().find(|(_, known)| *known == value).map(|(handle, _)| *handle)
    }
}
