//! One call of `MPI_Allreduce`: who does it, and how.
//!
//! The path is chosen from what all ranks share: count, type, operation, number of ranks and the agreed settings. Where a rank's own
//! buffers are decides nothing about messages. Once the first message is sent there is no way back: what fails then is raised
//! through the communicator's error handler.

use std::ffi::{c_int, c_void};

use crate::Failure;
use crate::abi::{Handle, Mpi};
use crate::comm::{Comm, lock};
use crate::element::{Element, Op};
use crate::host::Host;
use crate::schedule::{self, Group, Step};
use crate::settings::{self, Local};
use crate::stats;
use crate::table::Algorithm;

/// Bytes of a message where an algorithm overlaps sending and combining.
const SEGMENT: usize = 128 << 10;
/// The largest message: MPI counts bytes in 31 bits.
const LARGEST: usize = 1 << 30;

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
    pub unsafe fn native(&self, mpi: &Mpi) -> c_int {
        let Call { send, receive, count, datatype, op, comm, large } = *self;
        match (large, mpi.calls.allreduce_large, c_int::try_from(count)) {
            // SAFETY: the program's arguments.
            (true, Some(call), _) => unsafe { call(send, receive, count, datatype, op, comm) },
            // SAFETY: as above.
            (_, _, Ok(count)) => unsafe { (mpi.calls.allreduce)(send, receive, count, datatype, op, comm) },
            _ => mpi.unsupported,
        }
    }
}

/// Does what `MPI_Allreduce` does.
///
/// # Safety
/// The arguments are as MPI asks for.
pub unsafe fn allreduce(mpi: &'static Mpi, call: &Call) -> c_int {
    match plan(mpi, call) {
        None => {
            stats::count(Algorithm::Native, 0, false);
            // SAFETY: the caller's promise.
            unsafe { call.native(mpi) }
        }
        Some(plan) => {
            let (bytes, algorithm) = (plan.bytes(), plan.algorithm);
            stats::count(algorithm, bytes, false);
            // SAFETY: the caller's promise.
            match unsafe { plan.run(mpi, call) } {
                Ok(()) => 0,
                Err(failure) => raise(mpi, call.comm, &failure, algorithm),
            }
        }
    }
}

/// Tells the communicator's error handler.
fn raise(mpi: &Mpi, comm: Handle, failure: &Failure, algorithm: Algorithm) -> c_int {
    let code = match failure {
        Failure::Mpi(code) => *code,
        Failure::Gpu(why) => {
            settings::warn(format_args!("{}: {why}", algorithm.name()));
            mpi.other
        }
    };
    // SAFETY: the program's communicator. The handler may end the program.
    unsafe { (mpi.calls.comm_call_errhandler)(comm, code) };
    code
}

/// A call that this library carries out.
struct Plan {
    comm: &'static Comm,
    element: Element,
    op: Op,
    count: usize,
    algorithm: Algorithm,
}

/// Decides; `None` leaves the call to the MPI.
#[inline]
fn plan(mpi: &'static Mpi, call: &Call) -> Option<Plan> {
    let (element, op) = (mpi.element(call.datatype)?, mpi.op(call.op)?);
    let count = usize::try_from(call.count).ok().filter(|count| *count > 0)?;
    if !element.allows(op) || call.send == call.receive.cast_const() {
        // The MPI knows best how to complain.
        return None;
    }
    let comm = Comm::of(mpi, call.comm)?;
    if comm.inter || comm.ranks == 1 {
        return None;
    }
    let bytes = count as u64 * element.repr.size() as u64;
    let chosen = if bytes < comm.native_below { Algorithm::Native } else { comm.host.get(bytes).unwrap_or(Algorithm::Native) };
    let algorithm = match chosen {
        Algorithm::Native if mpi.is_wrong(element, op) => Algorithm::RecursiveDoubling,
        Algorithm::Native => return None,
        // All buffers are in host memory.
        chosen if chosen.needs_devices() => Algorithm::Rabenseifner,
        chosen => chosen,
    };
    comm.wire(mpi)?;
    Some(Plan { comm, element, op, count, algorithm })
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
        let bytes = if self.algorithm == Algorithm::Ring { LARGEST } else { SEGMENT };
        bytes / self.element.repr.size()
    }

    /// # Safety
    /// The call's buffers hold its elements.
    unsafe fn run(&self, mpi: &'static Mpi, call: &Call) -> Result<(), Failure> {
        let wire = self.comm.wire(mpi).ok_or(Failure::Mpi(mpi.other))?;
        let steps = self.steps(mpi)?;
        if Local::get().debug {
            let (name, np) = (self.algorithm.name(), self.comm.ranks);
            eprintln!(
                "warpwave-mpi: rank {} of {np}: {} bytes of {:?} {:?}: {name}",
                self.comm.rank,
                self.bytes(),
                self.element.repr,
                self.op
            );
        }
        let own = call.receive.cast::<u8>();
        let origin = if call.send == mpi.in_place { own.cast_const() } else { call.send.cast() };
        let mut scratch = lock(&self.comm.scratch);
        // SAFETY: the caller's promise; send and receive buffers are apart unless in place, and `op` is allowed.
        let host = unsafe { Host::new(wire, (self.element.repr, self.op), (own, origin, self.count), &mut scratch, self.segment()) };
        host.run(&steps)
    }
}
