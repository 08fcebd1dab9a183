//! Allreduce through NCCL or RCCL, which have the same functions.

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock};

use warpwave_gpu::library::{Library, Search, python_folders};
use warpwave_gpu::{Device, DevicePtr, Handle, Stream, Vendor, rocm_library_folders};

use crate::Error;
use crate::abi::Mpi;
use crate::comm::{Comm, lock};
use crate::datatype::{Datatype, Op, Repr};
use crate::gpu::{self, DeviceContext};

/// `ncclUniqueId`: identifies a communicator to all its ranks.
#[derive(Clone, Copy)]
#[repr(C)]
struct UniqueId([u8; 128]);

macro_rules! functions {
    ($( $name:ident = $symbol:literal ( $($ty:ty),* ) -> $out:ty; )*) => {
        /// The library's functions.
        struct Functions {
            $( $name: unsafe extern "C" fn($($ty),*) -> $out, )*
            _library: Library,
        }

        impl Functions {
            fn load(library: Library) -> Option<Functions> {
                $( let $name = library.symbol($symbol)?; )*
                Some(Functions {
                    // SAFETY: the signature is that of nccl.h.
                    $( $name: unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($ty),*) -> $out>($name) }, )*
                    _library: library,
                })
            }
        }
    };
}

functions! {
    get_unique_id = "ncclGetUniqueId" (*mut UniqueId) -> c_int;
    init_rank = "ncclCommInitRank" (*mut Handle, c_int, UniqueId, c_int) -> c_int;
    all_reduce = "ncclAllReduce" (*const c_void, *mut c_void, usize, c_int, c_int, Handle, Handle) -> c_int;
    destroy = "ncclCommDestroy" (Handle) -> c_int;
    error_string = "ncclGetErrorString" (c_int) -> *const c_char;
}

fn search(vendor: Vendor) -> Search {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    match vendor {
        Vendor::Nvidia => Search {
            what: "NCCL",
            variable: "WARPWAVE_NCCL_LIB",
            names: names(&["libnccl.so.2"]),
            folders: python_folders().into_iter().map(|folder| folder.join("nvidia/nccl/lib")).collect(),
        },
        Vendor::Amd => Search {
            what: "RCCL",
            variable: "WARPWAVE_RCCL_LIB",
            names: names(&["librccl.so.1", "librccl.so"]),
            folders: rocm_library_folders(),
        },
    }
}

impl Functions {
    fn get(vendor: Vendor) -> Option<&'static Functions> {
        static LOADED: [OnceLock<Option<Functions>>; 2] = [OnceLock::new(), OnceLock::new()];
        LOADED[usize::from(vendor == Vendor::Amd)].get_or_init(|| Functions::open(vendor)).as_ref()
    }

    fn open(vendor: Vendor) -> Option<Functions> {
        Functions::load(Library::open(&search(vendor)).ok()?)
    }

    fn check(&self, call: &'static str, code: c_int) -> gpu::Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: any code is accepted; the string is static.
        let text = unsafe { (self.error_string)(code).as_ref().map(|text| CStr::from_ptr(text).to_string_lossy().into_owned()) };
        Err(gpu::Error::Nccl { call, why: text.unwrap_or_else(|| format!("error {code}")) })
    }
}

/// A NCCL or RCCL communicator.
pub struct Nccl {
    functions: &'static Functions,
    context: Arc<DeviceContext>,
    handle: Handle,
    /// A non-blocking stream: a kernel that waits for other ranks must not delay the program's work on the default stream.
    stream: Stream,
    /// Serializes calls.
    call_lock: Mutex<()>,
}

// SAFETY: the handle may be used from any thread, one at a time, which the lock ensures.
unsafe impl Send for Nccl {}
// SAFETY: as above.
unsafe impl Sync for Nccl {}

/// Returns the `ncclDataType_t` of a representation.
fn nccl_datatype(repr: Repr) -> Option<c_int> {
    Some(match repr {
        Repr::I8 => 0,
        Repr::U8 => 1,
        Repr::I32 => 2,
        Repr::U32 => 3,
        Repr::I64 => 4,
        Repr::U64 => 5,
        Repr::F16 => 6,
        Repr::F32 => 7,
        Repr::F64 => 8,
        Repr::Bf16 => 9,
        _ => return None,
    })
}

/// Returns the `ncclRedOp_t` of an operator.
fn nccl_op(op: Op) -> Option<c_int> {
    Some(match op {
        Op::Sum => 0,
        Op::Prod => 1,
        Op::Max => 2,
        Op::Min => 3,
        _ => return None,
    })
}

impl Nccl {
    /// Returns whether NCCL supports this operator on this datatype.
    pub fn supports(datatype: Datatype, op: Op) -> bool {
        nccl_datatype(datatype.repr).is_some() && nccl_op(op).is_some()
    }

    /// Creates the communicator. Collective; succeeds on all ranks or on none (`None`): every rank needs the library and a GPU of its
    /// own, all of one vendor.
    pub fn set_up(mpi: &'static Mpi, comm: &Comm, context: &Arc<DeviceContext>) -> Result<Option<Nccl>, Error> {
        let device = context.device();
        let vendor = device.driver().vendor();
        let functions = Functions::get(vendor);
        if comm.any(mpi, functions.is_none())? || comm.any(mpi, vendor == Vendor::Nvidia)? && comm.any(mpi, vendor == Vendor::Amd)? {
            return Ok(None);
        }
        let Some(functions) = functions else { return Ok(None) };
        let info = device.info();
        let name = info.uuid.as_ref().or(info.pci.as_ref()).map_or_else(|| info.name.clone(), Clone::clone);
        let mut mine = [0u8; 64];
        mine.iter_mut().zip(format!("{} {name}", comm.nodes(mpi)?[comm.rank]).bytes()).for_each(|(to, from)| *to = from);
        let mut all = vec![[0u8; 64]; comm.ranks];
        comm.allgather(mpi, &mine, all.as_flattened_mut())?;
        if all.iter().collect::<HashSet<_>>().len() < comm.ranks {
            return Ok(None);
        }
        let mut id = UniqueId([0; 128]);
        // SAFETY: the output outlives the call.
        let no_id = comm.rank == 0 && unsafe { (functions.get_unique_id)(&mut id) } != 0;
        // Everything that can fail on a single rank precedes ncclCommInitRank, which blocks until all ranks call it and uses the current device.
        let guard = context.enter();
        let stream = device.stream().and_then(|stream| device.make_current().map(|()| stream));
        if comm.any(mpi, no_id || guard.is_err() || stream.is_err())? {
            return Ok(None);
        }
        let (Ok(_guard), Ok(stream)) = (guard, stream) else { return Ok(None) };
        comm.bcast(mpi, &mut id.0)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the output outlives the call, the rank is below the number of ranks, and the id is rank 0's.
        let joined = unsafe { (functions.init_rank)(&mut handle, comm.ranks as c_int, id, comm.rank as c_int) };
        if comm.any(mpi, joined != 0)? {
            return Ok(None);
        }
        Ok(Some(Nccl { functions, context: context.clone(), handle, stream, call_lock: Mutex::new(()) }))
    }

    /// Returns the device that it was set up for.
    pub fn device(&self) -> &Device {
        self.context.device()
    }

    /// Reduces all ranks' elements at `send` into `recv`.
    ///
    /// # Safety
    /// Both must be memory of this device with `count` elements, identical or disjoint, and [`Nccl::supports`] must hold.
    pub unsafe fn run(&self, (datatype, op): (Datatype, Op), (recv, send, count): (DevicePtr, DevicePtr, usize)) -> gpu::Result<()> {
        let (Some(datatype), Some(op)) = (nccl_datatype(datatype.repr), nccl_op(op)) else { return Ok(()) };
        let guard = self.context.enter()?;
        let ordered = guard.stream()?;
        let call_lock = lock(&self.call_lock);
        // The pooled stream follows the program's work on the default stream; this stream waits for it.
        ordered.record_event()?.block_stream(&self.stream)?;
        // SAFETY: guaranteed by the caller; the stream is synchronized below.
        let code = unsafe {
            (self.functions.all_reduce)(send as *const c_void, recv as *mut c_void, count, datatype, op, self.handle, self.stream.raw())
        };
        self.functions.check("ncclAllReduce", code)?;
        drop(call_lock);
        Ok(self.stream.synchronize()?)
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        // SAFETY: created once, and this is the last use.
        unsafe { (self.functions.destroy)(self.handle) };
    }
}
