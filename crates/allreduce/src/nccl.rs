//! NCCL and RCCL, which reduce between GPUs themselves; both have the same functions.

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock};

use warpwave_gpu::library::{Library, Search, python_folders};
use warpwave_gpu::{Device, DevicePtr, Handle, Stream, Vendor, rocm_library_folders};

use crate::Failure;
use crate::abi::Mpi;
use crate::comm::{Comm, lock};
use crate::element::{Element, Op, Repr};
use crate::gpu::{self, DeviceContext};

/// What ranks find each other by.
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
            fn of_library(library: Library) -> Option<Functions> {
                $( let $name = library.symbol($symbol)?; )*
                Some(Functions {
                    // SAFETY: the library's documentation fixes the shape of the function of this name.
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
    fn of(vendor: Vendor) -> Option<&'static Functions> {
        static LOADED: [OnceLock<Option<Functions>>; 2] = [OnceLock::new(), OnceLock::new()];
        LOADED[usize::from(vendor == Vendor::Amd)].get_or_init(|| Functions::open(vendor)).as_ref()
    }

    fn open(vendor: Vendor) -> Option<Functions> {
        Functions::of_library(Library::open(&search(vendor)).ok()?)
    }

    fn checked(&self, call: &'static str, code: c_int) -> gpu::Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: any code may be asked about; the text is the library's.
        let text = unsafe { (self.error_string)(code).as_ref().map(|text| CStr::from_ptr(text).to_string_lossy().into_owned()) };
        Err(gpu::Error::Nccl { call, why: text.unwrap_or_else(|| format!("error {code}")) })
    }
}

/// A communicator of the library.
pub struct Nccl {
    functions: &'static Functions,
    context: Arc<DeviceContext>,
    handle: Handle,
    /// Apart from the default stream: a kernel that waits for other ranks must not hold up what the program queues there.
    stream: Stream,
    /// One call at a time.
    turn: Mutex<()>,
}

// SAFETY: the handle may be used from any thread, one at a time, which the lock sees to.
unsafe impl Send for Nccl {}
// SAFETY: as above.
unsafe impl Sync for Nccl {}

/// The library's number of an element's type.
fn number(repr: Repr) -> Option<c_int> {
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

fn operation(op: Op) -> Option<c_int> {
    Some(match op {
        Op::Sum => 0,
        Op::Prod => 1,
        Op::Max => 2,
        Op::Min => 3,
        _ => return None,
    })
}

impl Nccl {
    /// Whether the library has this operation on this type.
    pub fn takes(element: Element, op: Op) -> bool {
        number(element.repr).is_some() && operation(op).is_some()
    }

    /// Makes the ranks known to each other. Collective; all ranks get it, or none: the library must be on all, and each rank must
    /// have a GPU of its own.
    pub fn set_up(mpi: &'static Mpi, comm: &Comm, context: &Arc<DeviceContext>) -> Result<Option<Nccl>, Failure> {
        let device = context.device();
        let vendor = device.driver().vendor();
        let functions = Functions::of(vendor);
        if comm.any(mpi, functions.is_none())? || comm.any(mpi, vendor == Vendor::Nvidia)? && comm.any(mpi, vendor == Vendor::Amd)? {
            return Ok(None);
        }
        let Some(functions) = functions else { return Ok(None) };
        let info = device.info();
        let name = info.uuid.as_ref().or(info.pci.as_ref()).map_or_else(|| info.name.clone(), Clone::clone);
        let mut mine = [0u8; 64];
        mine.iter_mut().zip(format!("{} {name}", comm.nodes(mpi)?[comm.rank]).bytes()).for_each(|(to, from)| *to = from);
        let mut all = vec![[0u8; 64]; comm.ranks];
        comm.gather(mpi, &mine, all.as_flattened_mut())?;
        if all.iter().collect::<HashSet<_>>().len() < comm.ranks {
            return Ok(None);
        }
        let mut id = UniqueId([0; 128]);
        // SAFETY: the output outlives the call.
        let no_id = comm.rank == 0 && unsafe { (functions.get_unique_id)(&mut id) } != 0;
        // All that can fail on one rank alone comes before the ranks wait for each other in the library, which takes the thread's device.
        let visit = context.visit();
        let stream = device.stream().and_then(|stream| device.make_current().map(|()| stream));
        if comm.any(mpi, no_id || visit.is_err() || stream.is_err())? {
            return Ok(None);
        }
        let (Ok(_visit), Ok(stream)) = (visit, stream) else { return Ok(None) };
        comm.tell(mpi, &mut id.0)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the output outlives the call, the rank is one of as many, and the id is rank 0's.
        let joined = unsafe { (functions.init_rank)(&mut handle, comm.ranks as c_int, id, comm.rank as c_int) };
        if comm.any(mpi, joined != 0)? {
            return Ok(None);
        }
        Ok(Some(Nccl { functions, context: context.clone(), handle, stream, turn: Mutex::new(()) }))
    }

    /// The device it was set up for.
    pub fn device(&self) -> &Device {
        self.context.device()
    }

    /// Combines all ranks' elements at `origin` into `own`.
    ///
    /// # Safety
    /// Both are memory of this device with `count` elements, apart or the same, and [`Nccl::takes`] them.
    pub unsafe fn run(&self, (element, op): (Element, Op), (own, origin, count): (DevicePtr, DevicePtr, usize)) -> gpu::Result<()> {
        let (Some(number), Some(operation)) = (number(element.repr), operation(op)) else { return Ok(()) };
        let visit = self.context.visit()?;
        let lane = visit.lane()?;
        let turn = lock(&self.turn);
        // What the program has queued comes first.
        lane.mark()?.before(&self.stream)?;
        // SAFETY: the caller's promise; the stream is waited for below.
        let code = unsafe {
            (self.functions.all_reduce)(
                origin as *const c_void,
                own as *mut c_void,
                count,
                number,
                operation,
                self.handle,
                self.stream.raw(),
            )
        };
        self.functions.checked("ncclAllReduce", code)?;
        drop(turn);
        Ok(self.stream.synchronize()?)
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        // SAFETY: made once, and this is its last use.
        unsafe { (self.functions.destroy)(self.handle) };
    }
}
