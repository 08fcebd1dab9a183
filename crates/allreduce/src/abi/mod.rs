//! The program's MPI: found at run time, its handles and constants told apart.
//!
//! Three binary interfaces are known: Open MPI's (handles are pointers to its variables), that of MPICH and its family (handles are
//! 32-bit numbers) and the MPI-5 standard's (small numbers in pointers). A handle is a `usize` here, whatever it is there: a register
//! holds either. An MPI that is none of the three is left alone.

mod find;
mod names;

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::element::{Class, Element, Op, Repr};
use find::Finder;

/// An MPI handle: a pointer or a number.
pub type Handle = usize;

/// Asked when a communicator is duplicated whether an attribute goes along.
pub type CopyAttribute = unsafe extern "C" fn(Handle, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;

/// Called when an attribute is deleted, with its communicator.
pub type DeleteAttribute = unsafe extern "C" fn(Handle, c_int, *mut c_void, *mut c_void) -> c_int;

/// Whose binary interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    OpenMpi,
    Mpich,
    /// The MPI-5 standard's.
    Standard,
}

impl Flavor {
    pub fn name(self) -> &'static str {
        match self {
            Flavor::OpenMpi => "openmpi",
            Flavor::Mpich => "mpich",
            Flavor::Standard => "abi",
        }
    }
}

/// MPI's functions by their profiling names. The first group is needed; without one of them the MPI is left alone.
macro_rules! functions {
    (
        needed { $( $needed:ident = $needed_symbol:literal ( $($needed_ty:ty),* ); )* }
        optional { $( $optional:ident = $optional_symbol:literal ( $($optional_ty:ty),* ); )* }
    ) => {
        /// Addresses of the MPI's functions; each returns an MPI error code, 0 for success.
        pub struct Functions {
            $( pub $needed: unsafe extern "C" fn($($needed_ty),*) -> c_int, )*
            $( pub $optional: Option<unsafe extern "C" fn($($optional_ty),*) -> c_int>, )*
        }

        impl Functions {
            fn find(finder: &Finder) -> Option<Functions> {
                $( let $needed = finder.symbol($needed_symbol)?; )*
                $( let $optional = finder.symbol($optional_symbol); )*
                Some(Functions {
                    // SAFETY: the MPI standard fixes the shape of the function of this name; handles fit a register in every MPI.
                    $( $needed: unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($needed_ty),*) -> c_int>($needed) }, )*
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
    needed {
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

/// The program's MPI.
pub struct Mpi {
    pub flavor: Flavor,
    /// What it says of itself, its first line.
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
    elements: Map<Element>,
    ops: Map<Op>,
    finder: Finder,
}

// SAFETY: the pointers are addresses of functions and constants, which never change.
unsafe impl Send for Mpi {}
// SAFETY: as above.
unsafe impl Sync for Mpi {}

impl Mpi {
    /// The MPI that this process has loaded, looked for once; `None` when there is none, or none that is known.
    pub fn get() -> Option<&'static Mpi> {
        static MPI: OnceLock<Option<Mpi>> = OnceLock::new();
        MPI.get_or_init(|| Mpi::of(Finder::loaded()?)).as_ref()
    }

    fn of(finder: Finder) -> Option<Mpi> {
        let calls = Functions::find(&finder)?;
        let mut text = vec![0u8; 8192];
        let mut length = 0;
        // SAFETY: the standard's largest version text fits, and the call may precede MPI_Init.
        unsafe { (calls.library_version)(text.as_mut_ptr().cast(), &mut length) };
        text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(0));
        let text = String::from_utf8_lossy(&text);
        let version = text.lines().next().unwrap_or_default().trim().to_owned();
        let flavor = if finder.library_of("PMPI_Allreduce").is_some_and(|file| file.contains("libmpi_abi")) {
            Flavor::Standard
        } else if finder.symbol("ompi_mpi_comm_world").is_some() {
            Flavor::OpenMpi
        } else if ["MPICH", "Intel", "MVAPICH", "MPT", "BXI"].iter().any(|family| text.contains(family)) {
            Flavor::Mpich
        } else {
            return None;
        };
        let variable = |name: &str| finder.symbol(name).map_or(0, |address| address as usize);
        let pick = |openmpi: &str, mpich: u32, standard: u32| match flavor {
            Flavor::OpenMpi => variable(openmpi),
            Flavor::Mpich => mpich as usize,
            Flavor::Standard => standard as usize,
        };
        let one_of = |openmpi: usize, mpich: usize, standard: usize| match flavor {
            Flavor::OpenMpi => openmpi,
            Flavor::Mpich => mpich,
            Flavor::Standard => standard,
        };
        let elements = names::TYPES.iter().map(|name| (pick(name.openmpi, name.mpich, name.standard), name.element));
        let ops = names::OPS.iter().map(|name| (pick(name.openmpi, name.mpich, name.standard), name.op));
        let extent_is_right = |(handle, element): &(Handle, Element)| match flavor {
            _ if *handle == 0 => false,
            // Its variables are there for types that its compilers lacked, too: those have no size.
            Flavor::OpenMpi => {
                let (mut low, mut extent) = (0, 0);
                // SAFETY: the handle is the address of one of its predefined types.
                unsafe { (calls.type_get_extent)(*handle, &mut low, &mut extent) == 0 && extent == element.repr.size() as isize }
            }
            // The handle of a basic type carries its size.
            Flavor::Mpich => *handle >> 24 != 0x4c || (*handle >> 8) & 0xff == element.repr.size(),
            Flavor::Standard => true,
        };
        let elements = Map::new(elements.filter(extent_is_right));
        let ops = Map::new(ops.filter(|(handle, _)| *handle != 0));
        Some(Mpi {
            flavor,
            version,
            in_place: one_of(1, usize::MAX, 1) as *const c_void,
            status_ignore: one_of(0, 1, 0) as *mut c_void,
            comm_world: pick("ompi_mpi_comm_world", 0x4400_0000, 0x101),
            comm_self: pick("ompi_mpi_comm_self", 0x4400_0001, 0x102),
            comm_null: pick("ompi_mpi_comm_null", 0x0400_0000, 0x100),
            info_null: pick("ompi_mpi_info_null", 0x1c00_0000, 0x130),
            errors_return: pick("ompi_mpi_errors_return", 0x5400_0001, 0x143),
            request_null: pick("ompi_request_null", 0x2c00_0000, 0x180),
            byte: pick("ompi_mpi_byte", 0x4c00_010d, 0x247),
            int: pick("ompi_mpi_int", 0x4c00_0405, 0x209),
            op_max: pick("ompi_mpi_op_max", 0x5800_0001, 0x23),
            shared: one_of(0, 1, 221) as c_int,
            unsupported: one_of(52, 44, 55) as c_int,
            other: one_of(16, 15, 16) as c_int,
            calls,
            elements,
            ops,
            finder,
        })
    }

    /// A handle as it came in a register: MPICH's are 32 bits wide, and the upper half is anything.
    #[inline]
    pub fn handle(&self, raw: usize) -> Handle {
        if self.flavor == Flavor::Mpich { raw & 0xffff_ffff } else { raw }
    }

    /// What the type behind `handle` is, if this library reduces it.
    #[inline]
    pub fn element(&self, handle: Handle) -> Option<Element> {
        self.elements.get(handle)
    }

    /// What the operation behind `handle` is.
    #[inline]
    pub fn op(&self, handle: Handle) -> Option<Op> {
        self.ops.get(handle)
    }

    /// The handle of a type, for programs that speak to the MPI through this table.
    pub fn datatype(&self, element: Element) -> Option<Handle> {
        self.elements.key_of(element)
    }

    /// The handle of an operation.
    pub fn operation(&self, op: Op) -> Option<Handle> {
        self.ops.key_of(op)
    }

    /// The address of any symbol of the program's MPI and its Fortran half.
    pub fn symbol(&self, name: &str) -> Option<*const c_void> {
        self.finder.symbol(name)
    }

    /// Refuses a call: the communicator's error handler hears of it.
    pub fn refuse(&self, comm: Handle, code: c_int) -> c_int {
        // SAFETY: the program's communicator. The handler may end the program.
        unsafe { (self.calls.comm_call_errhandler)(comm, code) };
        code
    }

    /// The same for a call that would have given a request.
    ///
    /// # Safety
    /// `request` must be the program's place for a request.
    pub unsafe fn refuse_request(&self, comm: Handle, request: *mut Handle) -> c_int {
        // SAFETY: MPICH's requests are 32 bits wide, the others' 64.
        unsafe {
            if self.flavor == Flavor::Mpich {
                request.cast::<u32>().write(self.request_null as u32);
            } else {
                request.write(self.request_null);
            }
        }
        self.refuse(comm, self.unsupported)
    }

    /// Whether the MPI itself gives the wrong result, in versions that are in wide use.
    pub fn is_wrong(&self, element: Element, op: Op) -> bool {
        use Repr::{F16, I8, I16, I64, U8, U16, U32, U64};
        let compares = matches!(op, Op::Min | Op::Max);
        match (self.flavor, element.repr) {
            // Its vector units add with saturation.
            (Flavor::OpenMpi, I8 | U8 | I16 | U16) => op == Op::Sum,
            // Some are compared as if they had, or had not, a sign.
            (Flavor::OpenMpi, U64) => compares,
            (Flavor::OpenMpi, I64) => compares && element.class == Class::FortranInteger,
            (Flavor::Mpich | Flavor::Standard, U8 | U16 | U32 | U64) => compares,
            // It ends the program.
            (Flavor::Mpich | Flavor::Standard, F16) => true,
            _ => false,
        }
    }
}

/// Handles to values: a few dozen entries, looked up in every call.
struct Map<T> {
    slots: Vec<Option<(Handle, T)>>,
}

impl<T: Copy + PartialEq> Map<T> {
    const SLOTS: usize = 256;

    fn new(entries: impl Iterator<Item = (Handle, T)>) -> Map<T> {
        let mut slots = vec![None; Self::SLOTS];
        for (handle, value) in entries {
            let mut at = Self::slot(handle);
            // At most a third of the slots is ever taken.
            while slots[at].is_some_and(|(known, _)| known != handle) {
                at = (at + 1) % Self::SLOTS;
            }
            if slots[at].is_none() {
                slots[at] = Some((handle, value));
            }
        }
        Map { slots }
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

    fn key_of(&self, wanted: T) -> Option<Handle> {
        self.slots.iter().flatten().find(|(_, value)| *value == wanted).map(|(handle, _)| *handle)
    }
}
