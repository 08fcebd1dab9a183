//! What is kept for each communicator of the program.
//!
//! It hangs on the communicator as an attribute, which the MPI deletes with it. Nothing here is copied to duplicates.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::Failure;
use crate::abi::{Handle, Mpi};
use crate::gpu::DeviceContext;
use crate::ipc::Ipc;
use crate::nccl::Nccl;
use crate::settings::{self, Shared};
use crate::table::{Memory, Sizes};
use crate::wire::Wire;

/// A communicator as this library sees it.
pub struct Comm {
    pub rank: usize,
    pub ranks: usize,
    /// Between two groups: left to the MPI.
    pub inter: bool,
    /// Some rank may hold buffers on a GPU: where the buffers are is then asked for in every large call.
    pub gpus: bool,
    pub host: Sizes,
    pub device: Sizes,
    /// Below this many bytes the MPI does all host calls.
    pub native_below: u64,
    handle: Handle,
    private: OnceLock<Option<Handle>>,
    nodes: OnceLock<Vec<usize>>,
    ipc: OnceLock<Option<Ipc>>,
    nccl: OnceLock<Option<Nccl>>,
    /// Room for what is received in host memory.
    pub scratch: Mutex<Vec<u8>>,
    /// A call failed after its first message: what is still under way belongs to no call.
    pub broken: AtomicBool,
}

/// Counts deletions: a handle may come back as another communicator.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// A communicator that a thread has used: handle, generation and what hangs on it.
type Used = (Handle, u64, *const Comm);

thread_local! {
    /// The last ones of this thread: programs change between a few.
    static LAST: [Cell<Used>; 4] = const { [const { Cell::new((0, 0, std::ptr::null())) }; 4] };
    /// Which one of them is replaced next.
    static OLDEST: Cell<usize> = const { Cell::new(0) };
}

/// Set when the MPI begins to end: its own communicators go with it then, and ours with them.
static ENDING: AtomicBool = AtomicBool::new(false);

fn key(mpi: &Mpi) -> Option<c_int> {
    static KEY: OnceLock<Option<c_int>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let (mut key, mut end) = (0, 0);
        // SAFETY: the functions live as long as the process, and the outputs outlive the calls.
        let made = unsafe {
            // The standard deletes the attributes of MPI_COMM_SELF as the first thing in MPI_Finalize, whoever calls it.
            (mpi.calls.comm_create_keyval)(not_copied, ended, &mut end, std::ptr::null_mut()) == 0
                && (mpi.calls.comm_set_attr)(mpi.comm_self, end, std::ptr::null_mut()) == 0
                && (mpi.calls.comm_create_keyval)(not_copied, deleted, &mut key, std::ptr::null_mut()) == 0
        };
        made.then_some(key)
    })
}

/// Duplicates of a communicator start anew.
unsafe extern "C" fn not_copied(_: Handle, _: c_int, _: *mut c_void, _: *mut c_void, _: *mut c_void, copy: *mut c_int) -> c_int {
    // SAFETY: the MPI gives room for its flag.
    unsafe { *copy = 0 };
    0
}

/// Called by the MPI at the beginning of its end.
unsafe extern "C" fn ended(_: Handle, _: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
    ENDING.store(true, Ordering::Release);
    crate::stats::print();
    0
}

/// Called by the MPI when a communicator with our attribute is freed.
unsafe extern "C" fn deleted(_: Handle, _: c_int, value: *mut c_void, _: *mut c_void) -> c_int {
    GENERATION.fetch_add(1, Ordering::Release);
    if value.is_null() {
        return 0;
    }
    // SAFETY: the attribute's value is a box made in `Comm::look_up`, deleted once.
    let comm = unsafe { Box::from_raw(value.cast::<Comm>()) };
    if ENDING.load(Ordering::Acquire) {
        // What it holds on devices ends with the process.
        std::mem::forget(comm);
        return 0;
    }
    if let (Some(Some(private)), Some(mpi)) = (comm.private.get(), Mpi::get()) {
        let mut private = *private;
        // SAFETY: it is ours, and no message is under way on it.
        unsafe { (mpi.calls.comm_free)(&mut private) };
    }
    0
}

impl Comm {
    /// What is kept for `handle`. The first call on a communicator is collective: all its ranks must come here.
    ///
    /// `None` where the MPI refuses: it then says so itself in the call that follows.
    #[inline]
    pub fn of(mpi: &'static Mpi, handle: Handle) -> Option<&'static Comm> {
        let generation = GENERATION.load(Ordering::Acquire);
        let known = LAST.with(|used| used.iter().map(Cell::get).find(|(last, seen, _)| *last == handle && *seen == generation));
        if let Some((.., comm)) = known {
            // SAFETY: no communicator was deleted since, and it lives until its deletion. The program may not free it during a call.
            return unsafe { comm.as_ref() };
        }
        let comm = Comm::look_up(mpi, handle)?;
        let place = OLDEST.replace((OLDEST.get() + 1) % 4);
        LAST.with(|used| used[place].set((handle, generation, comm)));
        Some(comm)
    }

    #[cold]
    fn look_up(mpi: &'static Mpi, handle: Handle) -> Option<&'static Comm> {
        let mut initialized = 0;
        // SAFETY: a question that may be asked at any time.
        unsafe { (mpi.calls.initialized)(&mut initialized) };
        // Without the world model there is no communicator whose end tells that the MPI ends.
        if handle == mpi.comm_null || initialized == 0 {
            return None;
        }
        let key = key(mpi)?;
        let (mut value, mut found) = (std::ptr::null_mut::<c_void>(), 0);
        // SAFETY: the outputs outlive the call; a handle that is none is an error.
        if unsafe { (mpi.calls.comm_get_attr)(handle, key, &mut value, &mut found) } != 0 {
            return None;
        }
        if found == 0 {
            let comm = Box::into_raw(Box::new(Comm::make(mpi, handle)?));
            // SAFETY: the box is handed to the attribute, which gives it back in `deleted`.
            if unsafe { (mpi.calls.comm_set_attr)(handle, key, comm.cast()) } != 0 {
                // SAFETY: nobody else has it.
                drop(unsafe { Box::from_raw(comm) });
                return None;
            }
            value = comm.cast();
        }
        // SAFETY: the attribute's value is such a box.
        unsafe { value.cast::<Comm>().as_ref() }
    }

    fn make(mpi: &'static Mpi, handle: Handle) -> Option<Comm> {
        let (mut rank, mut ranks, mut inter) = (0, 0, 0);
        // SAFETY: the outputs outlive the calls.
        let asked = unsafe {
            (mpi.calls.comm_test_inter)(handle, &mut inter) == 0
                && (mpi.calls.comm_rank)(handle, &mut rank) == 0
                && (mpi.calls.comm_size)(handle, &mut ranks) == 0
        };
        if !asked {
            return None;
        }
        let (rank, ranks) = (usize::try_from(rank).ok()?, usize::try_from(ranks).ok()?);
        let mine = Shared::from_environment();
        let (shared, gpus) = if inter != 0 || ranks == 1 { (mine.clone(), false) } else { agree(mpi, handle, mine).ok()? };
        let host = shared.sizes(mpi.flavor, Memory::Host, ranks);
        let device = shared.sizes(mpi.flavor, Memory::Device, ranks);
        Some(Comm {
            rank,
            ranks,
            inter: inter != 0,
            gpus,
            native_below: host.native_below(),
            host,
            device,
            handle,
            private: OnceLock::new(),
            nodes: OnceLock::new(),
            ipc: OnceLock::new(),
            nccl: OnceLock::new(),
            scratch: Mutex::default(),
            broken: AtomicBool::new(false),
        })
    }

    /// The way to the other ranks, on a communicator of its own. Its making is collective.
    pub fn wire(&self, mpi: &'static Mpi) -> Option<Wire<'static>> {
        let made = *self.private.get_or_init(|| {
            let (mut group, mut private) = (0, mpi.comm_null);
            // SAFETY: a communicator of the same ranks, without the attributes that a duplicate would take along; the outputs outlive
            // the calls. Errors on it come back as codes and go to the user's handler from there.
            unsafe {
                let made = (mpi.calls.comm_group)(self.handle, &mut group) == 0
                    && (mpi.calls.comm_create)(self.handle, group, &mut private) == 0
                    && (mpi.calls.comm_set_errhandler)(private, mpi.errors_return) == 0;
                (mpi.calls.group_free)(&mut group);
                made.then_some(private)
            }
        });
        made.map(|comm| Wire { mpi, comm, crowded: crowded() })
    }

    /// Which of `mine` hold for any rank. Collective.
    pub fn any_of<const N: usize>(&self, mpi: &'static Mpi, mine: [bool; N]) -> Result<[bool; N], Failure> {
        let (mine, mut all) = (mine.map(c_int::from), [0 as c_int; N]);
        // SAFETY: as many integers go in and out, in the program's own collective call.
        checked(unsafe {
            (mpi.calls.allreduce)(mine.as_ptr().cast(), all.as_mut_ptr().cast(), N as c_int, mpi.int, mpi.op_max, self.handle)
        })?;
        Ok(all.map(|flag| flag != 0))
    }

    /// Whether `mine` holds for any rank. Collective.
    pub fn any(&self, mpi: &'static Mpi, mine: bool) -> Result<bool, Failure> {
        self.any_of(mpi, [mine]).map(|[all]| all)
    }

    /// All ranks' bytes, one after the other. Collective.
    pub fn gather(&self, mpi: &'static Mpi, mine: &[u8], all: &mut [u8]) -> Result<(), Failure> {
        assert_eq!(all.len(), mine.len() * self.ranks);
        let length = mine.len() as c_int;
        // SAFETY: there is room for what comes.
        checked(unsafe {
            (mpi.calls.allgather)(mine.as_ptr().cast(), length, mpi.byte, all.as_mut_ptr().cast(), length, mpi.byte, self.handle)
        })
    }

    /// Rank 0's bytes to all. Collective.
    pub fn tell(&self, mpi: &'static Mpi, bytes: &mut [u8]) -> Result<(), Failure> {
        // SAFETY: all ranks have as many bytes.
        checked(unsafe { (mpi.calls.bcast)(bytes.as_mut_ptr().cast(), bytes.len() as c_int, mpi.byte, 0, self.handle) })
    }

    /// Whether NCCL, and whether the shared memory, were set up for another device than `context`'s.
    pub fn is_elsewhere(&self, context: &DeviceContext) -> (bool, bool) {
        let nccl = self.nccl.get().is_some_and(|made| made.as_ref().is_some_and(|made| made.device() != context.device()));
        let ipc = self.ipc.get().is_some_and(|made| made.as_ref().is_some_and(|made| made.device() != context.device()));
        (nccl, ipc)
    }

    /// The ranks' shared device memory, if there can be any. The first call is collective.
    pub fn ipc(&self, mpi: &'static Mpi, context: &Arc<DeviceContext>) -> Result<Option<&Ipc>, Failure> {
        if let Some(made) = self.ipc.get() {
            return Ok(made.as_ref());
        }
        let made = Ipc::set_up(mpi, self, context)?;
        Ok(self.ipc.get_or_init(|| made).as_ref())
    }

    /// NCCL or RCCL for these ranks, if they have it. The first call is collective.
    pub fn nccl(&self, mpi: &'static Mpi, context: &Arc<DeviceContext>) -> Result<Option<&Nccl>, Failure> {
        if let Some(made) = self.nccl.get() {
            return Ok(made.as_ref());
        }
        let made = Nccl::set_up(mpi, self, context)?;
        Ok(self.nccl.get_or_init(|| made).as_ref())
    }

    /// Each rank's node, named by one of its ranks. The first call is collective.
    pub fn nodes(&self, mpi: &'static Mpi) -> Result<&[usize], Failure> {
        if let Some(known) = self.nodes.get() {
            return Ok(known);
        }
        let mut local = mpi.comm_null;
        let mut first = self.rank as c_int;
        let mut firsts = vec![0 as c_int; self.ranks];
        // SAFETY: the outputs outlive the calls and have room for what comes; the communicator made here is freed here.
        unsafe {
            checked((mpi.calls.comm_split_type)(self.handle, mpi.shared, self.rank as c_int, mpi.info_null, &mut local))?;
            let told = checked((mpi.calls.bcast)((&raw mut first).cast(), 1, mpi.int, 0, local));
            (mpi.calls.comm_free)(&mut local);
            told?;
            checked((mpi.calls.allgather)((&raw const first).cast(), 1, mpi.int, firsts.as_mut_ptr().cast(), 1, mpi.int, self.handle))?;
        }
        Ok(self.nodes.get_or_init(|| firsts.into_iter().map(|first| first as usize).collect()))
    }
}

fn checked(code: c_int) -> Result<(), Failure> {
    if code == 0 { Ok(()) } else { Err(Failure::Mpi(code)) }
}

/// Rank 0's settings for all, and whether anybody may have a GPU.
fn agree(mpi: &Mpi, handle: Handle, mine: &Shared) -> Result<(Shared, bool), Failure> {
    let hash =
        mine.text().bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)) as c_int & c_int::MAX;
    let facts = [c_int::from(crate::gpu::possible()), hash, !hash];
    let mut all = [0 as c_int; 3];
    // SAFETY: three integers go in and out. It is the user's communicator: within its collective call another one is no conflict.
    checked(unsafe { (mpi.calls.allreduce)(facts.as_ptr().cast(), all.as_mut_ptr().cast(), 3, mpi.int, mpi.op_max, handle) })?;
    let gpus = all[0] != 0;
    if all[1] == !all[2] {
        return Ok((mine.clone(), gpus));
    }
    settings::warn("the ranks' settings differ; those of rank 0 are used");
    let mut text = mine.text().as_bytes().to_vec();
    let mut length = text.len() as c_int;
    // SAFETY: one integer.
    checked(unsafe { (mpi.calls.bcast)((&raw mut length).cast(), 1, mpi.int, 0, handle) })?;
    text.resize(length.max(0) as usize, 0);
    // SAFETY: the text has room for as many bytes as rank 0 sends.
    checked(unsafe { (mpi.calls.bcast)(text.as_mut_ptr().cast(), length, mpi.byte, 0, handle) })?;
    Ok((Shared::from_text(String::from_utf8_lossy(&text).into_owned()), gpus))
}

/// Whether this machine has fewer cores than ranks of this program.
fn crowded() -> bool {
    static CROWDED: OnceLock<bool> = OnceLock::new();
    *CROWDED.get_or_init(|| {
        let told =
            ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"];
        let told = told.iter().find_map(|name| std::env::var(name).ok()?.parse::<usize>().ok());
        let ranks = told.or_else(|| {
            let (mpi, mut size) = (Mpi::get()?, 0);
            // SAFETY: the output outlives the call.
            unsafe { (mpi.calls.comm_size)(mpi.comm_world, &mut size) };
            usize::try_from(size).ok()
        });
        // SAFETY: a plain question.
        let cores = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        ranks.unwrap_or(1) > usize::try_from(cores).unwrap_or(1)
    })
}

/// The guard of a mutex, whatever happened to another holder.
pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
