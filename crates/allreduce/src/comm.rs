//! Cached state of each communicator of the program.
//!
//! It is an attribute of the communicator, which MPI deletes with it. Duplicates start without it.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::abi::{Handle, Mpi};
use crate::gpu::DeviceContext;
use crate::ipc::Ipc;
use crate::log;
use crate::nccl::Nccl;
use crate::settings::CommSettings;
use crate::table::{Memory, Selection};
use crate::transport::Transport;
use crate::{Error, check};

/// A communicator of the program.
pub struct Comm {
    pub rank: usize,
    pub ranks: usize,
    /// An intercommunicator, which is left to the MPI library.
    pub inter: bool,
    /// A rank may have buffers in GPU memory: large calls then first agree on where the buffers are.
    pub gpus: bool,
    /// Algorithms for host and for device memory.
    pub host: Selection,
    pub device: Selection,
    /// What determines the algorithms, for debug messages.
    pub source: String,
    /// Host messages below this size go to the MPI library.
    pub native_below: u64,
    handle: Handle,
    private: OnceLock<Option<Handle>>,
    nodes: OnceLock<Vec<usize>>,
    ipc: OnceLock<Option<Ipc>>,
    nccl: OnceLock<Option<Nccl>>,
    /// Receive slots in host memory.
    pub scratch: Mutex<Vec<u8>>,
    /// A call failed after its first message: pending messages would be matched by later calls.
    pub broken: AtomicBool,
}

/// Number of deleted communicators: a handle may be reused for another communicator.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// A communicator that a thread has used: handle, generation and cached state.
type CacheEntry = (Handle, u64, *const Comm);

thread_local! {
    /// Recently used communicators: programs alternate between a few.
    static RECENT: [Cell<CacheEntry>; 4] = const { [const { Cell::new((0, 0, std::ptr::null())) }; 4] };
    /// The entry to replace next.
    static OLDEST: Cell<usize> = const { Cell::new(0) };
}

/// `MPI_Finalize` has begun: MPI frees all communicators itself.
static FINALIZING: AtomicBool = AtomicBool::new(false);

/// Returns the attribute key of [`Comm`], created on first use.
fn keyval(mpi: &Mpi) -> Option<c_int> {
    static KEYVAL: OnceLock<Option<c_int>> = OnceLock::new();
    *KEYVAL.get_or_init(|| {
        let (mut comm_key, mut finalize_key) = (0, 0);
        // SAFETY: the functions live as long as the process, and the outputs outlive the calls.
        let created = unsafe {
            // MPI_Finalize deletes the attributes of MPI_COMM_SELF first, even when the program calls PMPI_Finalize.
            (mpi.calls.comm_create_keyval)(copy_nothing, on_finalize, &mut finalize_key, std::ptr::null_mut()) == 0
                && (mpi.calls.comm_set_attr)(mpi.comm_self, finalize_key, std::ptr::null_mut()) == 0
                && (mpi.calls.comm_create_keyval)(copy_nothing, on_comm_free, &mut comm_key, std::ptr::null_mut()) == 0
        };
        created.then_some(comm_key)
    })
}

/// Attribute copy function: duplicates of a communicator get no attribute.
unsafe extern "C" fn copy_nothing(_: Handle, _: c_int, _: *mut c_void, _: *mut c_void, _: *mut c_void, copy: *mut c_int) -> c_int {
    // SAFETY: MPI passes a valid pointer to its flag.
    unsafe { *copy = 0 };
    0
}

/// Attribute delete function of `MPI_COMM_SELF`, called at the start of `MPI_Finalize`.
unsafe extern "C" fn on_finalize(_: Handle, _: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
    FINALIZING.store(true, Ordering::Release);
    crate::stats::print();
    0
}

/// Attribute delete function, called when a communicator is freed.
unsafe extern "C" fn on_comm_free(_: Handle, _: c_int, value: *mut c_void, _: *mut c_void) -> c_int {
    GENERATION.fetch_add(1, Ordering::Release);
    if value.is_null() {
        return 0;
    }
    // SAFETY: the attribute's value is a box created in `Comm::lookup`, deleted once.
    let comm = unsafe { Box::from_raw(value.cast::<Comm>()) };
    if FINALIZING.load(Ordering::Acquire) {
        // Its device resources are released when the process exits.
        std::mem::forget(comm);
        return 0;
    }
    if let (Some(Some(private)), Some(mpi)) = (comm.private.get(), Mpi::get()) {
        let mut private = *private;
        // SAFETY: the communicator was created here, and no message is pending on it.
        unsafe { (mpi.calls.comm_free)(&mut private) };
    }
    0
}

impl Comm {
    /// Returns the state of a communicator. The first call on a communicator is collective.
    ///
    /// Returns `None` if MPI rejects the handle: the forwarded call then reports the error.
    #[inline]
    pub fn get(mpi: &'static Mpi, handle: Handle) -> Option<&'static Comm> {
        let generation = GENERATION.load(Ordering::Acquire);
        let known = RECENT.with(|recent| recent.iter().map(Cell::get).find(|(last, seen, _)| *last == handle && *seen == generation));
        if let Some((.., comm)) = known {
            // SAFETY: no communicator was deleted since, and the state lives until then. A program must not free a communicator in use.
            return unsafe { comm.as_ref() };
        }
        let comm = Comm::lookup(mpi, handle)?;
        let oldest = OLDEST.replace((OLDEST.get() + 1) % 4);
        RECENT.with(|recent| recent[oldest].set((handle, generation, comm)));
        Some(comm)
    }

    #[cold]
    fn lookup(mpi: &'static Mpi, handle: Handle) -> Option<&'static Comm> {
        let mut initialized = 0;
        // SAFETY: MPI_Initialized may be called at any time.
        unsafe { (mpi.calls.initialized)(&mut initialized) };
        // With the sessions model MPI_COMM_SELF does not exist, and so no callback at finalization.
        if handle == mpi.comm_null || initialized == 0 {
            return None;
        }
        let key = keyval(mpi)?;
        let (mut value, mut found) = (std::ptr::null_mut::<c_void>(), 0);
        // SAFETY: the outputs outlive the call; MPI rejects an invalid handle.
        if unsafe { (mpi.calls.comm_get_attr)(handle, key, &mut value, &mut found) } != 0 {
            return None;
        }
        if found == 0 {
            let comm = Box::into_raw(Box::new(Comm::create(mpi, handle)?));
            // SAFETY: the attribute owns the box until `on_comm_free`.
            if unsafe { (mpi.calls.comm_set_attr)(handle, key, comm.cast()) } != 0 {
                // SAFETY: the box was not stored.
                drop(unsafe { Box::from_raw(comm) });
                return None;
            }
            value = comm.cast();
        }
        // SAFETY: the attribute's value is a box created above.
        unsafe { value.cast::<Comm>().as_ref() }
    }

    fn create(mpi: &'static Mpi, handle: Handle) -> Option<Comm> {
        let (mut rank, mut ranks, mut inter) = (0, 0, 0);
        // SAFETY: the outputs outlive the calls.
        let valid = unsafe {
            (mpi.calls.comm_test_inter)(handle, &mut inter) == 0
                && (mpi.calls.comm_rank)(handle, &mut rank) == 0
                && (mpi.calls.comm_size)(handle, &mut ranks) == 0
        };
        if !valid {
            return None;
        }
        let (rank, ranks) = (usize::try_from(rank).ok()?, usize::try_from(ranks).ok()?);
        let mine = CommSettings::from_env();
        let (settings, gpus) = if inter != 0 || ranks == 1 { (mine.clone(), false) } else { agree_on_settings(mpi, handle, mine).ok()? };
        let host = settings.selection(mpi.flavor, Memory::Host, ranks);
        let device = settings.selection(mpi.flavor, Memory::Device, ranks);
        Some(Comm {
            rank,
            ranks,
            inter: inter != 0,
            gpus,
            native_below: host.native_below(),
            host,
            device,
            source: settings.source().to_owned(),
            handle,
            private: OnceLock::new(),
            nodes: OnceLock::new(),
            ipc: OnceLock::new(),
            nccl: OnceLock::new(),
            scratch: Mutex::default(),
            broken: AtomicBool::new(false),
        })
    }

    /// Returns point-to-point messages on a private communicator. The first call is collective.
    pub fn transport(&self, mpi: &'static Mpi) -> Option<Transport<'static>> {
        let private = *self.private.get_or_init(|| {
            let (mut group, mut private) = (0, mpi.comm_null);
            // MPI_Comm_create, because MPI_Comm_dup would copy the program's attributes. Errors are returned as codes and then raised
            // on the program's communicator.
            // SAFETY: the handles are valid, and the outputs outlive the calls.
            unsafe {
                let created = (mpi.calls.comm_group)(self.handle, &mut group) == 0
                    && (mpi.calls.comm_create)(self.handle, group, &mut private) == 0
                    && (mpi.calls.comm_set_errhandler)(private, mpi.errors_return) == 0;
                (mpi.calls.group_free)(&mut group);
                created.then_some(private)
            }
        });
        private.map(|comm| Transport { mpi, comm, oversubscribed: is_oversubscribed() })
    }

    /// Returns which of `mine` are true on any rank. Collective.
    pub fn any_of<const N: usize>(&self, mpi: &'static Mpi, mine: [bool; N]) -> Result<[bool; N], Error> {
        let (mine, mut all) = (mine.map(c_int::from), [0 as c_int; N]);
        // SAFETY: both arrays have N integers; all ranks are in the same collective call.
        check(unsafe {
            (mpi.calls.allreduce)(mine.as_ptr().cast(), all.as_mut_ptr().cast(), N as c_int, mpi.int, mpi.op_max, self.handle)
        })?;
        Ok(all.map(|flag| flag != 0))
    }

    /// Returns whether `mine` is true on any rank. Collective.
    pub fn any(&self, mpi: &'static Mpi, mine: bool) -> Result<bool, Error> {
        self.any_of(mpi, [mine]).map(|[all]| all)
    }

    /// Gathers all ranks' bytes in rank order (`MPI_Allgather`). Collective.
    pub fn allgather(&self, mpi: &'static Mpi, mine: &[u8], all: &mut [u8]) -> Result<(), Error> {
        assert_eq!(all.len(), mine.len() * self.ranks);
        let length = mine.len() as c_int;
        // SAFETY: `all` holds every rank's bytes.
        check(unsafe {
            (mpi.calls.allgather)(mine.as_ptr().cast(), length, mpi.byte, all.as_mut_ptr().cast(), length, mpi.byte, self.handle)
        })
    }

    /// Broadcasts rank 0's bytes (`MPI_Bcast`). Collective.
    pub fn bcast(&self, mpi: &'static Mpi, bytes: &mut [u8]) -> Result<(), Error> {
        // SAFETY: all ranks pass the same number of bytes.
        check(unsafe { (mpi.calls.bcast)(bytes.as_mut_ptr().cast(), bytes.len() as c_int, mpi.byte, 0, self.handle) })
    }

    /// Returns whether NCCL, and whether IPC, were set up for a device other than `context`'s.
    pub fn bound_to_other_device(&self, context: &DeviceContext) -> (bool, bool) {
        let nccl = self.nccl.get().is_some_and(|state| state.as_ref().is_some_and(|state| state.device() != context.device()));
        let ipc = self.ipc.get().is_some_and(|state| state.as_ref().is_some_and(|state| state.device() != context.device()));
        (nccl, ipc)
    }

    /// Returns the ranks' shared device memory, or `None` if it cannot be set up. The first call is collective.
    pub fn ipc(&self, mpi: &'static Mpi, context: &Arc<DeviceContext>) -> Result<Option<&Ipc>, Error> {
        if let Some(ipc) = self.ipc.get() {
            return Ok(ipc.as_ref());
        }
        let ipc = Ipc::set_up(mpi, self, context)?;
        Ok(self.ipc.get_or_init(|| ipc).as_ref())
    }

    /// Returns the NCCL or RCCL communicator, or `None` if it cannot be set up. The first call is collective.
    pub fn nccl(&self, mpi: &'static Mpi, context: &Arc<DeviceContext>) -> Result<Option<&Nccl>, Error> {
        if let Some(nccl) = self.nccl.get() {
            return Ok(nccl.as_ref());
        }
        let nccl = Nccl::set_up(mpi, self, context)?;
        Ok(self.nccl.get_or_init(|| nccl).as_ref())
    }

    /// Returns each rank's node, identified by the node's first rank. The first call is collective.
    pub fn nodes(&self, mpi: &'static Mpi) -> Result<&[usize], Error> {
        if let Some(known) = self.nodes.get() {
            return Ok(known);
        }
        let mut local = mpi.comm_null;
        let mut first = self.rank as c_int;
        let mut firsts = vec![0 as c_int; self.ranks];
        // SAFETY: the outputs outlive the calls and are large enough; the communicator created here is freed here.
        unsafe {
            check((mpi.calls.comm_split_type)(self.handle, mpi.shared, self.rank as c_int, mpi.info_null, &mut local))?;
            let result = check((mpi.calls.bcast)((&raw mut first).cast(), 1, mpi.int, 0, local));
            (mpi.calls.comm_free)(&mut local);
            result?;
            check((mpi.calls.allgather)((&raw const first).cast(), 1, mpi.int, firsts.as_mut_ptr().cast(), 1, mpi.int, self.handle))?;
        }
        Ok(self.nodes.get_or_init(|| firsts.into_iter().map(|first| first as usize).collect()))
    }
}

/// Returns rank 0's settings, and whether any rank may use a GPU. Collective.
fn agree_on_settings(mpi: &Mpi, handle: Handle, mine: &CommSettings) -> Result<(CommSettings, bool), Error> {
    let hash =
        mine.text().bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)) as c_int & c_int::MAX;
    // The maximum of `!hash` is the complement of the minimum: the hashes are equal iff both agree.
    let mine_facts = [c_int::from(crate::gpu::is_possible()), hash, !hash];
    let mut all = [0 as c_int; 3];
    // SAFETY: both arrays have three integers. Using the program's communicator is safe because all ranks are in its collective call.
    check(unsafe { (mpi.calls.allreduce)(mine_facts.as_ptr().cast(), all.as_mut_ptr().cast(), 3, mpi.int, mpi.op_max, handle) })?;
    let gpus = all[0] != 0;
    if all[1] == !all[2] {
        return Ok((mine.clone(), gpus));
    }
    log::warn("settings differ between ranks; using those of rank 0");
    let mut text = mine.text().as_bytes().to_vec();
    let mut length = text.len() as c_int;
    // SAFETY: one integer.
    check(unsafe { (mpi.calls.bcast)((&raw mut length).cast(), 1, mpi.int, 0, handle) })?;
    text.resize(length.max(0) as usize, 0);
    // SAFETY: the text holds as many bytes as rank 0 sends.
    check(unsafe { (mpi.calls.bcast)(text.as_mut_ptr().cast(), length, mpi.byte, 0, handle) })?;
    Ok((CommSettings::from_text(String::from_utf8_lossy(&text).into_owned()), gpus))
}

/// Returns whether this node has fewer cores than ranks of this program.
fn is_oversubscribed() -> bool {
    static OVERSUBSCRIBED: OnceLock<bool> = OnceLock::new();
    *OVERSUBSCRIBED.get_or_init(|| {
        let variables =
            ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"];
        let local_size = variables.iter().find_map(|name| std::env::var(name).ok()?.parse::<usize>().ok());
        let ranks = local_size.or_else(|| {
            let (mpi, mut size) = (Mpi::get()?, 0);
            // SAFETY: the output outlives the call.
            unsafe { (mpi.calls.comm_size)(mpi.comm_world, &mut size) };
            usize::try_from(size).ok()
        });
        // SAFETY: sysconf has no preconditions.
        let cores = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        ranks.unwrap_or(1) > usize::try_from(cores).unwrap_or(1)
    })
}

/// Locks a mutex, even if another holder panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
