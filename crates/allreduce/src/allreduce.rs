//! One `MPI_Allreduce` call: algorithm selection and execution.
//!
//! The algorithm is selected from values that all ranks share: count, datatype, operator, communicator size and the agreed settings. A
//! rank's own buffer location does not affect its messages: if GPUs may be in use, the ranks first agree on the kind of memory in large
//! calls, and in small ones each rank copies its own elements to the host. After the first message nothing falls back: later errors
//! are raised through the communicator's error handler.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use warpwave_gpu::{DevicePtr, Vendor};

use crate::Error;
use crate::abi::{Handle, Mpi};
use crate::comm::{Comm, lock};
use crate::datatype::{Datatype, Op};
use crate::device::DeviceExecutor;
use crate::gpu::{self, DeviceLocation, Kernels, PooledStream, StagingBuffer};
use crate::host::HostExecutor;
use crate::log::{self, CallInfo};
use crate::nccl::Nccl;
use crate::schedule::{self, Group, RecvAction, Step};
use crate::settings::ProcessSettings;
use crate::stats;
use crate::table::Algorithm;
use crate::transport::Transport;

/// Segment size in bytes for host memory.
const SEGMENT: usize = 128 << 10;
/// Segment size in bytes if a buffer is in device memory, where copies and kernel launches add latency.
const DEVICE_SEGMENT: usize = 1 << 20;
/// Largest message in bytes: MPI counts are 31-bit integers.
const MAX_MESSAGE: usize = 1 << 30;
/// Size in bytes from which the ranks agree on the kind of memory, if GPUs may be in use.
const AGREE_MIN: u64 = 16 << 10;
/// Size in bytes from which Rabenseifner replaces recursive doubling where the MPI library's result would be wrong.
const RABENSEIFNER_MIN: u64 = 1 << 20;

/// The arguments of an `MPI_Allreduce` call. Handles are those that [`Mpi::handle`] returns.
#[derive(Clone, Copy)]
#[allow(missing_docs)] // named after MPI's parameters
pub struct Call {
    pub send: *const c_void,
    pub recv: *mut c_void,
    pub count: i64,
    pub datatype: Handle,
    pub op: Handle,
    pub comm: Handle,
    /// `MPI_Allreduce_c`, with a 64-bit count.
    pub large: bool,
}

impl Call {
    /// Forwards the call to the MPI library.
    ///
    /// # Safety
    /// The arguments must be valid for `MPI_Allreduce`.
    unsafe fn forward(&self, mpi: &Mpi) -> c_int {
        let Call { send, recv, count, datatype, op, comm, large } = *self;
        match (large, mpi.calls.allreduce_large, c_int::try_from(count)) {
            // SAFETY: guaranteed by the caller.
            (true, Some(call), _) => unsafe { call(send, recv, count, datatype, op, comm) },
            // SAFETY: as above.
            (_, _, Ok(count)) => unsafe { (mpi.calls.allreduce)(send, recv, count, datatype, op, comm) },
            _ => mpi.raise_error(comm, mpi.unsupported),
        }
    }
}

/// Locations of this rank's buffers; `None` is host memory.
#[derive(Default)]
struct BufferLocations {
    send: Option<DeviceLocation>,
    recv: Option<DeviceLocation>,
}

impl BufferLocations {
    fn new(mpi: &Mpi, send: *const c_void, recv: *const c_void) -> gpu::Result<BufferLocations> {
        if !gpu::is_active() {
            return Ok(BufferLocations::default());
        }
        let recv_location = gpu::locate(recv)?;
        let send_location = if send == mpi.in_place { recv_location.clone() } else { gpu::locate(send)? };
        Ok(BufferLocations { send: send_location, recv: recv_location })
    }

    fn on_device(&self) -> bool {
        self.send.is_some() || self.recv.is_some()
    }

    /// Returns whether the MPI library can access the buffers itself.
    fn are_accessible(&self, mpi: &Mpi) -> bool {
        [&self.send, &self.recv].into_iter().flatten().all(|location| location.unified || is_gpu_aware(mpi, location) == Some(true))
    }
}

/// Returns whether the MPI library accepts addresses of this device, or `None` if it cannot be queried.
fn is_gpu_aware(mpi: &Mpi, location: &DeviceLocation) -> Option<bool> {
    let query = match location.device.device().driver().vendor() {
        Vendor::Nvidia => mpi.calls.query_cuda,
        Vendor::Amd => mpi.calls.query_rocm,
    };
    // SAFETY: the query has no preconditions.
    query.map(|query| unsafe { query() } == 1)
}

/// Executes `MPI_Allreduce`, and returns its error code.
///
/// # Safety
/// The arguments must be valid for `MPI_Allreduce`.
pub unsafe fn allreduce(mpi: &'static Mpi, call: &Call) -> c_int {
    let locations = match BufferLocations::new(mpi, call.send, call.recv.cast_const()) {
        Ok(locations) => locations,
        Err(error) => return raise(mpi, call.comm, &error.into()),
    };
    let outcome = decide(mpi, call, &locations).and_then(|decision| match decision {
        Decision::Native { comm, reason } => {
            stats::count(Algorithm::Native, 0, locations.on_device());
            if ProcessSettings::get().debug {
                log_native(mpi, call, comm, reason);
            }
            // SAFETY: guaranteed by the caller.
            unsafe { call_native(mpi, call, &locations) }
        }
        Decision::Run(plan) => {
            stats::count(plan.algorithm, plan.bytes(), locations.on_device());
            // SAFETY: guaranteed by the caller.
            let outcome = unsafe { plan.run(mpi, call, &locations) };
            if outcome.is_err() {
                plan.comm.broken.store(true, Ordering::Relaxed);
                // Pending receives may still write to it.
                std::mem::forget(std::mem::take(&mut *lock(&plan.comm.scratch)));
            }
            outcome.map(|()| 0)
        }
    });
    outcome.unwrap_or_else(|error| raise(mpi, call.comm, &error))
}

/// Raises an error on the communicator.
#[cold]
fn raise(mpi: &Mpi, comm: Handle, error: &Error) -> c_int {
    let code = match error {
        Error::Mpi(code) => *code,
        Error::Gpu(why) => {
            log::warn(why);
            mpi.other
        }
    };
    mpi.raise_error(comm, code)
}

/// Returns whether the MPI library may be given these buffers in a nonblocking or persistent call, and warns if not.
pub fn native_accepts(mpi: &Mpi, send: *const c_void, recv: *const c_void) -> bool {
    let rejects = |location: &DeviceLocation| !location.unified && is_gpu_aware(mpi, location) == Some(false);
    let locations = BufferLocations::new(mpi, send, recv).unwrap_or_default();
    let accepted = ![&locations.send, &locations.recv].into_iter().flatten().any(rejects);
    if !accepted {
        log::warn(
            "nonblocking and persistent MPI_Allreduce on device buffers require a GPU-aware MPI library; use one, or use host buffers",
        );
    }
    accepted
}

/// Calls the MPI library, with host copies of buffers that it cannot access.
///
/// # Safety
/// The arguments must be valid for `MPI_Allreduce`.
unsafe fn call_native(mpi: &Mpi, call: &Call, locations: &BufferLocations) -> Result<c_int, Error> {
    let Some(location) = locations.recv.as_ref().or(locations.send.as_ref()) else {
        // SAFETY: guaranteed by the caller.
        return Ok(unsafe { call.forward(mpi) });
    };
    let guard = location.device.enter()?;
    let stream = guard.stream()?;
    if locations.are_accessible(mpi) || call.count <= 0 {
        // The program's work on the default stream must have completed before MPI reads the buffers.
        stream.record_event()?.synchronize()?;
        // SAFETY: guaranteed by the caller.
        return Ok(unsafe { call.forward(mpi) });
    }
    let (mut lower_bound, mut extent, mut true_lower_bound, mut true_extent) = (0, 0, 0, 0);
    // SAFETY: the outputs outlive the calls; MPI rejects an invalid datatype.
    let valid = unsafe {
        (mpi.calls.type_get_extent)(call.datatype, &mut lower_bound, &mut extent) == 0
            && (mpi.calls.type_get_true_extent)(call.datatype, &mut true_lower_bound, &mut true_extent) == 0
    };
    let span = (call.count as isize - 1).checked_mul(extent).and_then(|bytes| bytes.checked_add(true_extent));
    let Some(span) = span.filter(|span| valid && extent >= 0 && *span >= 0) else {
        log::warn_once("MPI_Allreduce on device buffers: datatypes with a negative extent are not supported; use host buffers");
        return Err(Error::Mpi(mpi.unsupported));
    };
    let span = span as usize;
    // SAFETY: the buffers hold the elements of the call, gaps included.
    unsafe {
        let in_place = call.send == mpi.in_place;
        // Gaps between elements must be preserved: the receive buffer is copied first unless every byte will be written.
        let overwritten = !in_place && mpi.datatype(call.datatype).is_some_and(|datatype| !datatype.repr.has_padding());
        let recv = HostCopy::new(&stream, locations.recv.as_ref(), call.recv.cast_const(), true_lower_bound, span, !overwritten)?;
        let send = if in_place { None } else { HostCopy::new(&stream, locations.send.as_ref(), call.send, true_lower_bound, span, true)? };
        stream.synchronize()?;
        let address = |copy: &Option<HostCopy>, buffer: *const c_void| copy.as_ref().map_or(buffer, |copy| copy.address);
        let copied = Call { send: address(&send, call.send), recv: address(&recv, call.recv.cast_const()).cast_mut(), ..*call };
        let code = copied.forward(mpi);
        if let Some(recv) = recv.filter(|_| code == 0) {
            stream.copy_from_host((call.recv as isize + true_lower_bound) as DevicePtr, recv.staging.as_ptr(), span)?;
            stream.synchronize()?;
        }
        Ok(code)
    }
}

/// A host copy of a device buffer.
struct HostCopy<'s> {
    staging: StagingBuffer<'s>,
    /// Address to pass to MPI in place of the buffer's.
    address: *const c_void,
}

impl<'s> HostCopy<'s> {
    /// Returns `None` if the host can access the buffer.
    ///
    /// # Safety
    /// The device must be able to read `span` bytes at `buffer + lower_bound`.
    unsafe fn new(
        stream: &'s PooledStream<'s>,
        location: Option<&DeviceLocation>,
        buffer: *const c_void,
        lower_bound: isize,
        span: usize,
        filled: bool,
    ) -> Result<Option<HostCopy<'s>>, Error> {
        if location.is_none_or(|location| location.unified) {
            return Ok(None);
        }
        let staging = stream.staging(span)?;
        if filled {
            // SAFETY: guaranteed by the caller; the stream is synchronized before the copy is read.
            unsafe { stream.copy_to_host(staging.as_ptr(), (buffer as isize + lower_bound) as DevicePtr, span) }?;
        }
        let address = staging.as_ptr().cast::<u8>().wrapping_offset(-lower_bound).cast_const().cast();
        Ok(Some(HostCopy { staging, address }))
    }
}

/// Who executes a call.
enum Decision {
    /// The MPI library.
    Native { comm: Option<&'static Comm>, reason: &'static str },
    /// This library.
    Run(Plan),
}

/// A call that this library executes.
struct Plan {
    comm: &'static Comm,
    datatype: Datatype,
    op: Op,
    count: usize,
    algorithm: Algorithm,
    /// What determined the algorithm, for debug messages.
    reason: &'static str,
    /// The ranks have agreed that some buffer is in device memory.
    device_buffers: bool,
}

/// Decides who executes a call, and how.
#[inline]
fn decide(mpi: &'static Mpi, call: &Call, locations: &BufferLocations) -> Result<Decision, Error> {
    let native = |comm, reason| Ok(Decision::Native { comm, reason });
    let Some(count) = usize::try_from(call.count).ok().filter(|count| *count > 0) else { return native(None, "no elements") };
    let (Some(datatype), Some(op)) = (mpi.datatype(call.datatype), mpi.op(call.op)) else {
        if ProcessSettings::get().cail {
            log::warn_once("MPI_Allreduce: unsupported datatype or operator; using the MPI library's implementation");
        }
        return native(None, "datatype or operator not supported");
    };
    // The MPI library reports invalid arguments.
    if !datatype.supports(op) || call.send == call.recv.cast_const() {
        return native(None, "invalid arguments");
    }
    let Some(comm) = Comm::get(mpi, call.comm) else { return native(None, "null communicator, or MPI is not initialized") };
    if comm.inter || comm.ranks == 1 {
        return native(Some(comm), if comm.inter { "intercommunicator" } else { "one rank" });
    }
    if comm.broken.load(Ordering::Relaxed) {
        log::warn_once(
            "an earlier MPI_Allreduce on this communicator failed and left messages pending; free the communicator and create a new one",
        );
        return Err(Error::Mpi(mpi.other));
    }
    let bytes = count as u64 * datatype.repr.size() as u64;
    let agreed = if comm.gpus && bytes >= AGREE_MIN { agree(mpi, comm, (datatype, op), call, locations)? } else { None };
    let selected = match (agreed, bytes < comm.native_below) {
        (Some(algorithm), _) => Some(algorithm),
        (None, true) => None,
        (None, false) => comm.host.get(bytes),
    };
    let (algorithm, reason) = match selected.unwrap_or(Algorithm::Native) {
        Algorithm::Native if mpi.has_wrong_result(datatype, op) => {
            let algorithm = if bytes < RABENSEIFNER_MIN { Algorithm::RecursiveDoubling } else { Algorithm::Rabenseifner };
            (algorithm, "the MPI library returns wrong results for this datatype and operator")
        }
        Algorithm::Native => return native(Some(comm), &comm.source),
        selected if selected.needs_device_buffers() && agreed.is_none() => (Algorithm::Rabenseifner, "buffers in host memory"),
        selected => (selected, comm.source.as_str()),
    };
    if comm.transport(mpi).is_none() {
        return native(Some(comm), "MPI_Comm_dup failed");
    }
    Ok(Decision::Run(Plan { comm, datatype, op, count, algorithm, reason, device_buffers: agreed.is_some() }))
}

/// Agrees with all ranks on the kind of memory, and returns the algorithm if any rank has a device buffer. Collective.
fn agree(
    mpi: &'static Mpi,
    comm: &'static Comm,
    (datatype, op): (Datatype, Op),
    call: &Call,
    locations: &BufferLocations,
) -> Result<Option<Algorithm>, Error> {
    let bytes = call.count as u64 * datatype.repr.size() as u64;
    let selected = comm.device.get(bytes).unwrap_or(Algorithm::Native);
    // The device of both buffers, if it is the same and can access their elements.
    let context = match (&locations.send, &locations.recv) {
        (Some(send), Some(recv)) if Arc::ptr_eq(&send.device, &recv.device) => Some(&recv.device),
        _ => None,
    };
    let context = context.filter(|_| is_aligned(mpi, call, datatype));
    let (other_nccl, other_ipc) = context.map_or((true, true), |context| comm.bound_to_other_device(context));
    let no_kernel = || selected.needs_device_buffers() && context.is_some_and(|context| context.kernels(datatype.repr, op).is_err());
    let no_ipc = other_ipc || no_kernel();
    let [any_device, no_nccl, no_ipc] = comm.any_of(mpi, [locations.on_device(), other_nccl, no_ipc])?;
    if !any_device {
        return Ok(None);
    }
    if !selected.needs_device_buffers() {
        return Ok(Some(selected));
    }
    if let Some(context) = context {
        let nccl = selected == Algorithm::Nccl && !no_nccl && Nccl::supports(datatype, op);
        if nccl && comm.nccl(mpi, context)?.is_some() {
            return Ok(Some(Algorithm::Nccl));
        }
        if !no_ipc && comm.ipc(mpi, context)?.is_some() {
            return Ok(Some(Algorithm::Ipc));
        }
    }
    Ok(Some(Algorithm::Rabenseifner))
}

/// Returns whether both buffers are aligned as devices require.
fn is_aligned(mpi: &Mpi, call: &Call, datatype: Datatype) -> bool {
    let send = if call.send == mpi.in_place { call.recv.cast_const() } else { call.send };
    [send, call.recv.cast_const()].iter().all(|buffer| (*buffer as u64).is_multiple_of(gpu::alignment(datatype.repr)))
}

/// Prints why a call goes to the MPI library.
#[cold]
fn log_native(mpi: &Mpi, call: &Call, comm: Option<&Comm>, reason: &str) {
    let (mut rank, mut ranks) = (0, 0);
    if comm.is_none() {
        // SAFETY: the outputs outlive the calls.
        unsafe {
            (mpi.calls.comm_rank)(mpi.comm_world, &mut rank);
            (mpi.calls.comm_size)(mpi.comm_world, &mut ranks);
        }
    }
    let (rank, ranks) = comm.map_or((rank as usize, ranks as usize), |comm| (comm.rank, comm.ranks));
    let (datatype, op) = (mpi.datatype(call.datatype), mpi.op(call.op));
    let operation = match (datatype, op) {
        (Some(datatype), Some(op)) => format!("{:?} {op:?}", datatype.repr),
        _ => "unsupported datatype or operator".to_owned(),
    };
    let bytes = call.count.max(0) as u64 * datatype.map_or(0, |datatype| datatype.repr.size() as u64);
    log::initialized(mpi);
    CallInfo { rank, ranks, bytes, operation: &operation, algorithm: Algorithm::Native.name(), reason }.print();
}

impl Plan {
    fn bytes(&self) -> u64 {
        self.count as u64 * self.datatype.repr.size() as u64
    }

    /// Returns this rank's steps.
    fn steps(&self, mpi: &'static Mpi) -> Result<Vec<Step>, Error> {
        let (rank, range) = (self.comm.rank, 0..self.count);
        let ranks: Vec<usize> = (0..self.comm.ranks).collect();
        let group = Group { ranks: &ranks, index: rank };
        Ok(match self.algorithm {
            Algorithm::RecursiveDoubling => schedule::recursive_doubling(group, range),
            Algorithm::Ring | Algorithm::SegmentedRing => schedule::ring(group, range),
            Algorithm::Hierarchical => schedule::hierarchical(rank, self.comm.nodes(mpi)?, range),
            Algorithm::Rabenseifner | Algorithm::Native | Algorithm::Ipc | Algorithm::Nccl => schedule::rabenseifner(group, range),
        })
    }

    /// Returns the number of elements per message.
    fn segment(&self) -> usize {
        let bytes = match (self.device_buffers, self.algorithm) {
            (true, _) => DEVICE_SEGMENT,
            (false, Algorithm::Ring) => MAX_MESSAGE,
            (false, _) => SEGMENT,
        };
        bytes / self.datatype.repr.size()
    }

    #[cold]
    fn log(&self, mpi: &'static Mpi) -> Result<(), Error> {
        let (repr, op) = (self.datatype.repr, self.op);
        let reason = match self.algorithm {
            Algorithm::Hierarchical => {
                let nodes = self.comm.nodes(mpi)?.iter().collect::<BTreeSet<_>>().len();
                format!("{}, {nodes} nodes", self.reason)
            }
            _ => self.reason.to_owned(),
        };
        log::initialized(mpi);
        CallInfo {
            rank: self.comm.rank,
            ranks: self.comm.ranks,
            bytes: self.bytes(),
            operation: &format!("{repr:?} {op:?}"),
            algorithm: self.algorithm.name(),
            reason: &reason,
        }
        .print();
        Ok(())
    }

    /// # Safety
    /// The call's buffers must hold its elements.
    unsafe fn run(&self, mpi: &'static Mpi, call: &Call, locations: &BufferLocations) -> Result<(), Error> {
        let transport = self.comm.transport(mpi).ok_or(Error::Mpi(mpi.other))?;
        if ProcessSettings::get().debug {
            self.log(mpi)?;
        }
        let recv = call.recv.cast::<u8>();
        let send = if call.send == mpi.in_place { recv.cast_const() } else { call.send.cast() };
        if let (Some(location), true) = (&locations.recv, self.algorithm.needs_device_buffers()) {
            let buffers = (recv as DevicePtr, send as DevicePtr, self.count);
            if self.algorithm == Algorithm::Nccl
                && let Some(nccl) = self.comm.nccl(mpi, &location.device)?
            {
                // SAFETY: guaranteed by the caller; the ranks have agreed that all buffers are on their devices.
                return Ok(unsafe { nccl.run((self.datatype, self.op), buffers) }?);
            }
            if let Some(ipc) = self.comm.ipc(mpi, &location.device)? {
                let kernels = location.device.kernels(self.datatype.repr, self.op)?;
                // SAFETY: as above.
                return unsafe { ipc.run((transport, self.comm.rank), (self.datatype.repr, &kernels), buffers) };
            }
        }
        let steps = self.steps(mpi)?;
        match (&locations.recv, &locations.send) {
            // SAFETY: guaranteed by the caller.
            (None, None) => unsafe { self.on_host(transport, &steps, recv, send) },
            // SAFETY: as above.
            (Some(location), _) => unsafe { self.on_device(transport, &steps, (recv, send), call, location, locations) },
            // Only the send buffer is in device memory: it is copied to the host.
            (None, Some(location)) => {
                let guard = location.device.enter()?;
                let stream = guard.stream()?;
                let staging = stream.staging(self.bytes() as usize)?;
                // SAFETY: guaranteed by the caller; the copy has completed before it is read.
                unsafe {
                    stream.copy_to_host(staging.as_ptr(), send as DevicePtr, self.bytes() as usize)?;
                    stream.synchronize()?;
                    self.on_host(transport, &steps, recv, staging.as_ptr().cast())
                }
            }
        }
    }

    /// # Safety
    /// Both buffers must be host memory that holds the call's elements, identical or disjoint.
    unsafe fn on_host(&self, transport: Transport, steps: &[Step], recv: *mut u8, send: *const u8) -> Result<(), Error> {
        let mut scratch = lock(&self.comm.scratch);
        let operation = (self.datatype.repr, self.op);
        // SAFETY: guaranteed by the caller; `op` is allowed on the datatype.
        let executor = unsafe { HostExecutor::new(transport, operation, (recv, send, self.count), &mut scratch, self.segment()) };
        executor.run(steps)
    }

    /// # Safety
    /// `recv` must be memory of `location`; both buffers must hold the call's elements, identical or disjoint.
    unsafe fn on_device(
        &self,
        transport: Transport,
        steps: &[Step],
        (recv, send): (*mut u8, *const u8),
        call: &Call,
        location: &DeviceLocation,
        locations: &BufferLocations,
    ) -> Result<(), Error> {
        let (repr, bytes) = (self.datatype.repr, self.bytes() as usize);
        let kernels = if self.device_buffers && is_aligned(transport.mpi, call, self.datatype) { self.kernels(location) } else { None };
        let guard = location.device.enter()?;
        let (h2d, d2h) = (guard.stream()?, guard.stream()?);
        let Some(kernels) = kernels else {
            // Small message, or no kernel: reduce on the host.
            let staged_recv = h2d.staging(bytes)?;
            let (address, in_place) = (staged_recv.as_ptr().cast::<u8>(), std::ptr::eq(recv, send));
            // SAFETY: guaranteed by the caller; the copies are synchronized. Padding of the receive buffer is preserved by copying it.
            unsafe {
                if in_place || repr.has_padding() {
                    h2d.copy_to_host(address.cast(), recv as DevicePtr, bytes)?;
                }
                let staged_send = (!in_place && locations.send.is_some()).then(|| h2d.staging(bytes)).transpose()?;
                if let Some(staged) = &staged_send {
                    h2d.copy_to_host(staged.as_ptr(), send as DevicePtr, bytes)?;
                }
                h2d.synchronize()?;
                let source = match &staged_send {
                    Some(staged) => staged.as_ptr().cast::<u8>().cast_const(),
                    None if in_place => address.cast_const(),
                    None => send,
                };
                self.on_host(transport, steps, address, source)?;
                h2d.copy_from_host(recv as DevicePtr, address.cast(), bytes)?;
            }
            return Ok(h2d.synchronize()?);
        };
        if !std::ptr::eq(recv, send) {
            // A kernel copies elements with padding, which needs them on this device.
            let elsewhere = locations.send.as_ref().is_none_or(|send| !Arc::ptr_eq(&send.device, &location.device));
            let scratch = (elsewhere && repr.has_padding()).then(|| h2d.scratch(bytes)).transpose()?;
            let (recv, send) = (recv as DevicePtr, send as DevicePtr);
            // SAFETY: guaranteed by the caller; the scratch buffer holds the elements.
            unsafe {
                match (&locations.send, &scratch) {
                    (location, Some(scratch)) => {
                        match location {
                            Some(_) => h2d.copy(scratch.address(), send, bytes)?,
                            None => h2d.copy_from_host(scratch.address(), send as *const c_void, bytes)?,
                        }
                        h2d.apply(&kernels, recv, scratch.address(), self.count, RecvAction::Replace)?;
                    }
                    (None, None) => h2d.copy_from_host(recv, send as *const c_void, bytes)?,
                    (Some(_), None) => h2d.apply(&kernels, recv, send, self.count, RecvAction::Replace)?,
                }
            }
        }
        let gpu_aware = is_gpu_aware(transport.mpi, location) == Some(true);
        let (buffer, segment) = (recv as DevicePtr, self.segment());
        let executor = DeviceExecutor { transport, repr, kernels: &kernels, d2h: &d2h, h2d: &h2d, buffer, segment, gpu_aware };
        // SAFETY: guaranteed by the caller.
        unsafe { executor.run(steps) }
    }

    /// Returns the kernels on this rank's device, or `None` with one warning if they cannot be built.
    fn kernels(&self, location: &DeviceLocation) -> Option<Arc<Kernels>> {
        location.device.kernels(self.datatype.repr, self.op).map_err(|error| log::warn_once(&error)).ok()
    }
}
