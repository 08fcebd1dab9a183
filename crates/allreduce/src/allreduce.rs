//! One call of `MPI_Allreduce`: who does it, and how.
//!
//! The path is chosen from what all ranks share: count, type, operation, number of ranks and the agreed settings. Where a rank's own
//! buffers are decides nothing about messages: where GPUs may be in play, the ranks first tell each other in large calls, and in small
//! ones each rank brings its own elements to the host. Once the first message is sent there is no way back: what fails then is raised
//! through the communicator's error handler.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use warpwave_gpu::{DevicePtr, Vendor};

use crate::Failure;
use crate::abi::{Handle, Mpi};
use crate::comm::{Comm, lock};
use crate::device::OnDevice;
use crate::element::{Element, Op};
use crate::gpu::{self, Kernels, Lane, Place, Staging};
use crate::host::Host;
use crate::nccl::Nccl;
use crate::schedule::{self, Group, Step};
use crate::settings::{self, Local};
use crate::stats;
use crate::table::Algorithm;
use crate::wire::Wire;

/// Bytes of a message where an algorithm overlaps sending and combining.
const SEGMENT: usize = 128 << 10;
/// The same where a buffer is on a device: copies and kernels have a price of their own.
const DEVICE_SEGMENT: usize = 1 << 20;
/// The largest message: MPI counts bytes in 31 bits.
const LARGEST: usize = 1 << 30;
/// From this many bytes on the ranks tell each other where their buffers are, if they may be on devices.
const ASK_FROM: u64 = 16 << 10;

/// Where the MPI is wrong: from this many bytes on, what each rank sends counts for more than the number of messages.
const HALVED_FROM: u64 = 1 << 20;

/// The arguments of a call. Handles are as [`Mpi::handle`] gives them.
#[derive(Clone, Copy)]
pub struct Call {
    pub send: *const c_void,
    pub receive: *mut c_void,
    pub count: i64,
    pub datatype: Handle,
    pub op: Handle,
    pub comm: Handle,
    /// The form with 64-bit counts.
    pub large: bool,
}

impl Call {
    /// Leaves it to the MPI.
    ///
    /// # Safety
    /// The arguments are the program's.
    unsafe fn native(&self, mpi: &Mpi) -> c_int {
        let Call { send, receive, count, datatype, op, comm, large } = *self;
        match (large, mpi.calls.allreduce_large, c_int::try_from(count)) {
            // SAFETY: the program's arguments.
            (true, Some(call), _) => unsafe { call(send, receive, count, datatype, op, comm) },
            // SAFETY: as above.
            (_, _, Ok(count)) => unsafe { (mpi.calls.allreduce)(send, receive, count, datatype, op, comm) },
            _ => mpi.refuse(comm, mpi.unsupported),
        }
    }
}

/// Where this rank's buffers are; `None` is host memory.
#[derive(Default)]
struct Places {
    send: Option<Place>,
    receive: Option<Place>,
}

impl Places {
    fn of(mpi: &Mpi, send: *const c_void, receive: *const c_void) -> gpu::Result<Places> {
        if !gpu::in_use() {
            return Ok(Places::default());
        }
        let receive_place = gpu::place_of(receive)?;
        let send_place = if send == mpi.in_place { receive_place.clone() } else { gpu::place_of(send)? };
        Ok(Places { send: send_place, receive: receive_place })
    }

    fn on_device(&self) -> bool {
        self.send.is_some() || self.receive.is_some()
    }

    /// Whether the MPI can be given the addresses as they are.
    fn are_for(&self, mpi: &Mpi) -> bool {
        [&self.send, &self.receive].into_iter().flatten().all(|place| place.unified || is_aware(mpi, place) == Some(true))
    }
}

/// Whether the MPI takes addresses of this device, if it says.
fn is_aware(mpi: &Mpi, place: &Place) -> Option<bool> {
    let query = match place.device.device().driver().vendor() {
        Vendor::Nvidia => mpi.calls.query_cuda,
        Vendor::Amd => mpi.calls.query_rocm,
    };
    // SAFETY: a plain question.
    query.map(|query| unsafe { query() } == 1)
}

/// Does what `MPI_Allreduce` does.
///
/// # Safety
/// The arguments are as MPI asks for.
pub unsafe fn allreduce(mpi: &'static Mpi, call: &Call) -> c_int {
    let places = match Places::of(mpi, call.send, call.receive.cast_const()) {
        Ok(places) => places,
        Err(error) => return raise(mpi, call.comm, &error.into()),
    };
    let outcome = plan(mpi, call, &places).and_then(|plan| match plan {
        None => {
            stats::count(Algorithm::Native, 0, places.on_device());
            // SAFETY: the caller's promise.
            unsafe { leave(mpi, call, &places) }
        }
        Some(plan) => {
            stats::count(plan.algorithm, plan.bytes(), places.on_device());
            // SAFETY: the caller's promise.
            let outcome = unsafe { plan.run(mpi, call, &places) };
            if outcome.is_err() {
                plan.comm.broken.store(true, Ordering::Relaxed);
                // What was asked for may still come.
                std::mem::forget(std::mem::take(&mut *lock(&plan.comm.scratch)));
            }
            outcome.map(|()| 0)
        }
    });
    outcome.unwrap_or_else(|failure| raise(mpi, call.comm, &failure))
}

/// Tells the communicator's error handler.
#[cold]
fn raise(mpi: &Mpi, comm: Handle, failure: &Failure) -> c_int {
    let code = match failure {
        Failure::Mpi(code) => *code,
        Failure::Gpu(why) => {
            settings::warn(why);
            mpi.other
        }
    };
    mpi.refuse(comm, code)
}

/// Whether the MPI itself may be given these buffers in a call that it completes later: it does not say that it cannot. Says why not.
pub fn may_leave(mpi: &Mpi, send: *const c_void, receive: *const c_void) -> bool {
    let refuses = |place: &Place| !place.unified && is_aware(mpi, place) == Some(false);
    let places = Places::of(mpi, send, receive).unwrap_or_default();
    let fits = ![&places.send, &places.receive].into_iter().flatten().any(refuses);
    if !fits {
        settings::warn("this MPI does not take buffers on a device in nonblocking and persistent calls");
    }
    fits
}

/// Leaves a call to the MPI, with copies of what it cannot reach.
///
/// # Safety
/// The arguments are the program's.
unsafe fn leave(mpi: &Mpi, call: &Call, places: &Places) -> Result<c_int, Failure> {
    let Some(place) = places.receive.as_ref().or(places.send.as_ref()) else {
        // SAFETY: the caller's promise.
        return Ok(unsafe { call.native(mpi) });
    };
    let visit = place.device.visit()?;
    let lane = visit.lane()?;
    if places.are_for(mpi) || call.count <= 0 {
        // What the program has queued is done before the MPI looks.
        lane.mark()?.synchronize()?;
        // SAFETY: the caller's promise.
        return Ok(unsafe { call.native(mpi) });
    }
    let (mut low, mut extent, mut true_low, mut true_extent) = (0, 0, 0, 0);
    // SAFETY: the outputs outlive the calls; a type that is none is the MPI's to refuse.
    let known = unsafe {
        (mpi.calls.type_get_extent)(call.datatype, &mut low, &mut extent) == 0
            && (mpi.calls.type_get_true_extent)(call.datatype, &mut true_low, &mut true_extent) == 0
    };
    let span = (call.count as isize - 1).checked_mul(extent).and_then(|bytes| bytes.checked_add(true_extent));
    let Some(span) = span.filter(|span| known && extent >= 0 && *span >= 0) else {
        settings::warn_once("elements that lie backwards in device memory cannot be copied to the host; copy them yourself");
        return Err(Failure::Mpi(mpi.unsupported));
    };
    let span = span as usize;
    // SAFETY: the buffers hold the elements that the call names, gaps included.
    unsafe {
        let in_place = call.send == mpi.in_place;
        // Elements without gaps are all written; else what lies between them makes the round trip.
        let whole = !in_place && mpi.element(call.datatype).is_some_and(|element| !element.repr.has_padding());
        let receive = Copy::of(&lane, places.receive.as_ref(), call.receive.cast_const(), true_low, span, !whole)?;
        let send = if in_place { None } else { Copy::of(&lane, places.send.as_ref(), call.send, true_low, span, true)? };
        lane.synchronize()?;
        let address = |copy: &Option<Copy>, own: *const c_void| copy.as_ref().map_or(own, |copy| copy.address);
        let copied = Call { send: address(&send, call.send), receive: address(&receive, call.receive.cast_const()).cast_mut(), ..*call };
        let code = copied.native(mpi);
        if let Some(receive) = receive.filter(|_| code == 0) {
            lane.from_host((call.receive as isize + true_low) as DevicePtr, receive.staging.as_ptr(), span)?;
            lane.synchronize()?;
        }
        Ok(code)
    }
}

/// A device buffer's copy on the host.
struct Copy<'l> {
    staging: Staging<'l>,
    /// What stands for the buffer's own address.
    address: *const c_void,
}

impl<'l> Copy<'l> {
    /// # Safety
    /// `span` bytes from `low` behind `buffer` must be readable for the device.
    unsafe fn of(
        lane: &'l Lane<'l>,
        place: Option<&Place>,
        buffer: *const c_void,
        low: isize,
        span: usize,
        filled: bool,
    ) -> Result<Option<Copy<'l>>, Failure> {
        if place.is_none_or(|place| place.unified) {
            return Ok(None);
        }
        let staging = lane.staging(span)?;
        if filled {
            // SAFETY: the caller's promise; the lane is waited for before anybody looks.
            unsafe { lane.to_host(staging.as_ptr(), (buffer as isize + low) as DevicePtr, span) }?;
        }
        let address = staging.as_ptr().cast::<u8>().wrapping_offset(-low).cast_const().cast();
        Ok(Some(Copy { staging, address }))
    }
}

/// A call that this library carries out.
struct Plan {
    comm: &'static Comm,
    element: Element,
    op: Op,
    count: usize,
    algorithm: Algorithm,
    /// Some rank's buffers are on a device, as all ranks know.
    devices: bool,
}

/// Decides; `None` leaves the call to the MPI.
#[inline]
fn plan(mpi: &'static Mpi, call: &Call, places: &Places) -> Result<Option<Plan>, Failure> {
    let (Some(element), Some(op)) = (mpi.element(call.datatype), mpi.op(call.op)) else { return Ok(None) };
    let Some(count) = usize::try_from(call.count).ok().filter(|count| *count > 0) else { return Ok(None) };
    // The MPI knows best how to complain.
    if !element.allows(op) || call.send == call.receive.cast_const() {
        return Ok(None);
    }
    let Some(comm) = Comm::of(mpi, call.comm) else { return Ok(None) };
    if comm.inter || comm.ranks == 1 {
        return Ok(None);
    }
    if comm.broken.load(Ordering::Relaxed) {
        settings::warn_once("an earlier call on this communicator failed half-way; free it and make a new one");
        return Err(Failure::Mpi(mpi.other));
    }
    let bytes = count as u64 * element.repr.size() as u64;
    let asked = if comm.gpus && bytes >= ASK_FROM { ask(mpi, comm, (element, op), call, places)? } else { None };
    let chosen = match (asked, bytes < comm.native_below) {
        (Some(algorithm), _) => Some(algorithm),
        (None, true) => None,
        (None, false) => comm.host.get(bytes),
    };
    let algorithm = match chosen.unwrap_or(Algorithm::Native) {
        Algorithm::Native if mpi.is_wrong(element, op) => {
            if bytes < HALVED_FROM {
                Algorithm::RecursiveDoubling
            } else {
                Algorithm::Rabenseifner
            }
        }
        Algorithm::Native => return Ok(None),
        chosen if chosen.needs_devices() && asked.is_none() => Algorithm::Rabenseifner,
        chosen => chosen,
    };
    Ok(comm.wire(mpi).map(|_| Plan { comm, element, op, count, algorithm, devices: asked.is_some() }))
}

/// Asks all ranks where their buffers are; where one is on a device, the algorithm for that. Collective.
fn ask(
    mpi: &'static Mpi,
    comm: &'static Comm,
    (element, op): (Element, Op),
    call: &Call,
    places: &Places,
) -> Result<Option<Algorithm>, Failure> {
    let bytes = call.count as u64 * element.repr.size() as u64;
    let chosen = comm.device.get(bytes).unwrap_or(Algorithm::Native);
    let whole = match (&places.send, &places.receive) {
        (Some(send), Some(receive)) if Arc::ptr_eq(&send.device, &receive.device) => Some(&receive.device),
        _ => None,
    };
    // Devices read elements at multiples of their alignment only.
    let whole = whole.filter(|_| is_aligned(mpi, call, element));
    let (other_nccl, other_ipc) = whole.map_or((true, true), |context| comm.is_elsewhere(context));
    let no_kernel = || chosen.needs_devices() && whole.is_some_and(|context| context.kernels(element.repr, op).is_err());
    let no_ipc = other_ipc || no_kernel();
    let [any_device, no_nccl, no_ipc] = comm.any_of(mpi, [places.on_device(), other_nccl, no_ipc])?;
    if !any_device {
        return Ok(None);
    }
    if !chosen.needs_devices() {
        return Ok(Some(chosen));
    }
    if let Some(context) = whole {
        let nccl = chosen == Algorithm::Nccl && !no_nccl && Nccl::takes(element, op);
        if nccl && comm.nccl(mpi, context)?.is_some() {
            return Ok(Some(Algorithm::Nccl));
        }
        if !no_ipc && comm.ipc(mpi, context)?.is_some() {
            return Ok(Some(Algorithm::Ipc));
        }
    }
    Ok(Some(Algorithm::Rabenseifner))
}

/// Whether both buffers are where a device can read elements.
fn is_aligned(mpi: &Mpi, call: &Call, element: Element) -> bool {
    let send = if call.send == mpi.in_place { call.receive.cast_const() } else { call.send };
    [send, call.receive.cast_const()].iter().all(|buffer| (*buffer as u64).is_multiple_of(gpu::alignment(element.repr)))
}

impl Plan {
    fn bytes(&self) -> u64 {
        self.count as u64 * self.element.repr.size() as u64
    }

    /// This rank's steps.
    fn steps(&self, mpi: &'static Mpi) -> Result<Vec<Step>, Failure> {
        let (rank, range) = (self.comm.rank, 0..self.count);
        let ranks: Vec<usize> = (0..self.comm.ranks).collect();
        let group = Group { ranks: &ranks, me: rank };
        Ok(match self.algorithm {
            Algorithm::RecursiveDoubling => schedule::recursive_doubling(group, range),
            Algorithm::Ring | Algorithm::SegmentedRing => schedule::ring(group, range),
            Algorithm::Hierarchical => schedule::hierarchical(rank, self.comm.nodes(mpi)?, range),
            Algorithm::Rabenseifner | Algorithm::Native | Algorithm::Ipc | Algorithm::Nccl => schedule::rabenseifner(group, range),
        })
    }

    /// Elements in a message.
    fn segment(&self) -> usize {
        let bytes = match (self.devices, self.algorithm) {
            (true, _) => DEVICE_SEGMENT,
            (false, Algorithm::Ring) => LARGEST,
            (false, _) => SEGMENT,
        };
        bytes / self.element.repr.size()
    }

    /// # Safety
    /// The call's buffers hold its elements.
    unsafe fn run(&self, mpi: &'static Mpi, call: &Call, places: &Places) -> Result<(), Failure> {
        let wire = self.comm.wire(mpi).ok_or(Failure::Mpi(mpi.other))?;
        if Local::get().debug {
            let (name, np) = (self.algorithm.name(), self.comm.ranks);
            let (repr, op, bytes) = (self.element.repr, self.op, self.bytes());
            let nodes = if self.algorithm == Algorithm::Hierarchical {
                format!(" on {} nodes", self.comm.nodes(mpi)?.iter().collect::<BTreeSet<_>>().len())
            } else {
                String::new()
            };
            eprintln!("warpwave-mpi: rank {} of {np}: {bytes} bytes of {repr:?} {op:?}: {name}{nodes}", self.comm.rank);
        }
        let own = call.receive.cast::<u8>();
        let origin = if call.send == mpi.in_place { own.cast_const() } else { call.send.cast() };
        if let (Some(place), true) = (&places.receive, self.algorithm.needs_devices()) {
            let buffers = (own as DevicePtr, origin as DevicePtr, self.count);
            if self.algorithm == Algorithm::Nccl
                && let Some(nccl) = self.comm.nccl(mpi, &place.device)?
            {
                // SAFETY: the caller's promise; all buffers are on the device, as the ranks agreed.
                return Ok(unsafe { nccl.run((self.element, self.op), buffers) }?);
            }
            if let Some(ipc) = self.comm.ipc(mpi, &place.device)? {
                let kernels = place.device.kernels(self.element.repr, self.op)?;
                // SAFETY: as above.
                return unsafe { ipc.run((wire, self.comm.rank), (self.element.repr, &kernels), buffers) };
            }
        }
        let steps = self.steps(mpi)?;
        match (&places.receive, &places.send) {
            // SAFETY: the caller's promise.
            (None, None) => unsafe { self.on_host(wire, &steps, own, origin) },
            // SAFETY: as above.
            (Some(place), _) => unsafe { self.on_device(wire, &steps, (own, origin), call, place, places) },
            // Only the send buffer is on a device: its elements come to the host.
            (None, Some(place)) => {
                let visit = place.device.visit()?;
                let lane = visit.lane()?;
                let kept = lane.staging(self.bytes() as usize)?;
                // SAFETY: the caller's promise; the copy is done when it is read, and not the program's to see.
                unsafe {
                    lane.to_host(kept.as_ptr(), origin as DevicePtr, self.bytes() as usize)?;
                    lane.synchronize()?;
                    self.on_host(wire, &steps, own, kept.as_ptr().cast())
                }
            }
        }
    }

    /// # Safety
    /// Both buffers are host memory and hold the call's elements; they are apart or the same.
    unsafe fn on_host(&self, wire: Wire, steps: &[Step], own: *mut u8, origin: *const u8) -> Result<(), Failure> {
        let mut scratch = lock(&self.comm.scratch);
        // SAFETY: the caller's promise; `op` is allowed.
        let host = unsafe { Host::new(wire, (self.element.repr, self.op), (own, origin, self.count), &mut scratch, self.segment()) };
        host.run(steps)
    }

    /// # Safety
    /// `own` is memory of `place`; both buffers hold the call's elements and are apart or the same.
    unsafe fn on_device(
        &self,
        wire: Wire,
        steps: &[Step],
        (own, origin): (*mut u8, *const u8),
        call: &Call,
        place: &Place,
        places: &Places,
    ) -> Result<(), Failure> {
        let (repr, bytes) = (self.element.repr, self.bytes() as usize);
        let kernels = if self.devices && is_aligned(wire.mpi, call, self.element) { self.kernels(place) } else { None };
        let visit = place.device.visit()?;
        let (up, down) = (visit.lane()?, visit.lane()?);
        let Some(kernels) = kernels else {
            // Small, or no compiler: the elements come to the host and go back.
            let kept = up.staging(bytes)?;
            let (address, in_place) = (kept.as_ptr().cast::<u8>(), std::ptr::eq(own, origin));
            // SAFETY: the caller's promise; the copies are waited for. Padding of the receive buffer makes the round trip.
            unsafe {
                if in_place || repr.has_padding() {
                    up.to_host(address.cast(), own as DevicePtr, bytes)?;
                }
                let source = (!in_place && places.send.is_some()).then(|| up.staging(bytes)).transpose()?;
                if let Some(source) = &source {
                    up.to_host(source.as_ptr(), origin as DevicePtr, bytes)?;
                }
                up.synchronize()?;
                let from = match &source {
                    Some(source) => source.as_ptr().cast::<u8>().cast_const(),
                    None if in_place => address.cast_const(),
                    None => origin,
                };
                self.on_host(wire, steps, address, from)?;
                up.from_host(own as DevicePtr, address.cast(), bytes)?;
            }
            return Ok(up.synchronize()?);
        };
        if !std::ptr::eq(own, origin) {
            // Where there is padding to leave alone, the elements are brought to the device first and stored by a kernel.
            let elsewhere = places.send.as_ref().is_none_or(|send| !Arc::ptr_eq(&send.device, &place.device));
            let brought = (elsewhere && repr.has_padding()).then(|| up.scratch(bytes)).transpose()?;
            let (own, origin) = (own as DevicePtr, origin as DevicePtr);
            // SAFETY: the caller's promise; what was brought has the room for it.
            unsafe {
                match (&places.send, &brought) {
                    (send, Some(brought)) => {
                        match send {
                            Some(_) => up.copy(brought.address(), origin, bytes)?,
                            None => up.from_host(brought.address(), origin as *const c_void, bytes)?,
                        }
                        up.combine(&kernels, own, brought.address(), self.count, schedule::Take::Store)?;
                    }
                    (None, None) => up.from_host(own, origin as *const c_void, bytes)?,
                    (Some(_), None) => up.combine(&kernels, own, origin, self.count, schedule::Take::Store)?,
                }
            }
        }
        let aware = is_aware(wire.mpi, place) == Some(true);
        let run = OnDevice { wire, repr, kernels: &kernels, down: &down, up: &up, own: own as DevicePtr, segment: self.segment(), aware };
        // SAFETY: the caller's promise.
        unsafe { run.run(steps) }
    }

    /// The kernels on this rank's device; without a compiler there are none, which is said once.
    fn kernels(&self, place: &Place) -> Option<Arc<Kernels>> {
        place.device.kernels(self.element.repr, self.op).map_err(|error| settings::warn_once(&error)).ok()
    }
}
