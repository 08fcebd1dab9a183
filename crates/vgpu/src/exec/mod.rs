//! Execution: groups of waves, 64 lanes each, on the CPU's cores.

mod atomic;
mod bench;
mod code;
mod dispatch;
mod float;
mod group;
mod gws;
mod hostcall;
mod lanes;
mod lds;
mod level;
mod ops;
mod scalar;
mod smem;
mod vmem;
mod wave;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use bench::Bench;
pub use code::Code;
pub use level::Level;

use crate::fault::{Fault, Place};
use crate::isa::operand;
use crate::memory::Memory;
use crate::program::{Kernel, Program};
use code::Step;
use wave::Wave;

/// Flat addresses of shared memory begin here.
const SHARED: u64 = 0x0001_0000_0000_0000;
/// Flat addresses of a lane's scratch begin here.
const PRIVATE: u64 = 0x0002_0000_0000_0000;

/// The operand that names an aperture, as a value.
fn aperture(number: u16) -> u64 {
    match number {
        operand::SHARED_BASE => SHARED,
        operand::SHARED_LIMIT => SHARED + 0xffff_ffff,
        operand::PRIVATE_BASE => PRIVATE,
        _ => PRIVATE + 0xffff_ffff,
    }
}

/// What a launch asks for.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// Groups in each dimension.
    pub grid: [u32; 3],
    /// Work-items of a group in each dimension.
    pub block: [u32; 3],
    /// Bytes of LDS besides the kernel's own.
    pub shared: u32,
    /// The explicit arguments, laid out as the kernel's metadata says; hidden ones are filled in by the launch.
    pub arguments: Vec<u8>,
    /// The groups may wait for each other: all are kept running.
    pub cooperative: bool,
}

/// When to stop a kernel that does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Never.
    None,
    /// After that many instructions of all waves together.
    Instructions(u64),
    /// After that long.
    Time(Duration),
}

/// What launches did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Instructions of waves.
    pub instructions: u64,
    /// Vector instructions times their active lanes.
    pub lane_operations: u64,
    /// How long it took.
    pub time: Duration,
}

static TOTAL: Mutex<Stats> = Mutex::new(Stats { instructions: 0, lane_operations: 0, time: Duration::ZERO });

/// What all launches of this process did so far, those that failed left out.
pub fn totals() -> Stats {
    *TOTAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a kernel to its end. `print` gets what the device prints.
pub fn launch(
    program: &Program,
    kernel: &Kernel,
    launch: &Launch,
    memory: &Arc<Memory>,
    limit: Limit,
    print: &(dyn Fn(&str) + Sync),
) -> Result<Stats, Fault> {
    let dispatch = dispatch::Dispatch::new(program, kernel, launch, memory, print)?;
    let stats = group::run(&dispatch, limit)?;
    let mut total = TOTAL.lock().unwrap_or_else(PoisonError::into_inner);
    total.instructions += stats.instructions;
    total.lane_operations += stats.lane_operations;
    total.time += stats.time;
    Ok(stats)
}

/// What an instruction's handler tells the wave's loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Next,
    /// Let another wave run.
    Yield,
    /// The wave's state changed.
    Stop,
    /// [`Env::fault`] says why.
    Fault,
}

/// What a wave sees besides itself.
pub struct Env<'a> {
    code: &'a Code,
    dispatch: &'a dispatch::Dispatch<'a>,
    lds: &'a mut [u8],
    group: [u32; 3],
    waves: u32,
    clock: Instant,
    fault: Option<Fault>,
}

impl Env<'_> {
    /// The group's number in the grid.
    fn group_number(&self) -> u64 {
        let [x, y, z] = self.group.map(u64::from);
        let [gx, gy, _] = self.dispatch.grid.map(u64::from);
        x + gx * (y + gy * z)
    }

    fn place(&self, w: &Wave, s: &Step) -> Box<Place> {
        let at = w.pc.saturating_sub(usize::from(s.inst.words));
        Box::new(Place {
            kernel: self.dispatch.kernel.name.clone(),
            offset: 4 * at as u64,
            instruction: self.code.text(at).unwrap_or_else(|| s.inst.row.name.to_owned()),
            group: self.group,
            wave: w.number,
        })
    }

    /// Whether the wave may touch this memory. What it finds is remembered: nothing goes away while a kernel runs.
    fn reachable(&self, w: &mut Wave, address: u64, bytes: u32, write: bool) -> bool {
        let Some(end) = address.checked_add(u64::from(bytes)) else { return false };
        if w.ranges.iter().any(|&(start, stop, writable)| address >= start && end <= stop && (writable || !write)) {
            return true;
        }
        match self.dispatch.memory.holds(address, u64::from(bytes)) {
            Some(range) if !write || !range.read_only => {
                // The first entry is the wave's own scratch.
                w.next_range = w.next_range % 3 + 1;
                w.ranges[usize::from(w.next_range)] = (range.start, range.end(), !range.read_only);
                true
            }
            _ => false,
        }
    }

    fn bad_access(&mut self, w: &Wave, s: &Step, lane: usize, address: u64, bytes: u32, write: bool) {
        let near = self.dispatch.memory.nearest(address);
        self.fault = Some(Fault::Memory { place: self.place(w, s), lane: lane as u32, address, bytes, write, near });
    }

    fn bad_shared(&mut self, w: &Wave, s: &Step, lane: usize, address: u64, bytes: u32) {
        let size = self.lds.len() as u32;
        self.fault = Some(Fault::Shared { place: self.place(w, s), lane: lane as u32, address, bytes, size });
    }

    fn bad_scratch(&mut self, w: &Wave, s: &Step, lane: usize, offset: u32, bytes: u32) {
        let (address, size) = (u64::from(offset), w.scratch_size);
        self.fault = Some(Fault::Scratch { place: self.place(w, s), lane: lane as u32, address, bytes, size });
    }

    fn misaligned(&mut self, w: &Wave, s: &Step, lane: usize, address: u64, bytes: u32) -> Flow {
        self.fault = Some(Fault::Misaligned { place: self.place(w, s), lane: lane as u32, address, bytes });
        Flow::Fault
    }

    fn unsupported(&mut self, w: &Wave, s: &Step, what: String) -> Flow {
        self.fault = Some(Fault::Unsupported { place: self.place(w, s), what });
        Flow::Fault
    }

    fn illegal(&mut self, w: &Wave, s: &Step, what: String) -> Flow {
        self.fault = Some(Fault::Illegal { place: self.place(w, s), what });
        Flow::Fault
    }

    fn trap(&mut self, w: &Wave, s: &Step) -> Flow {
        // 2 is the trap of `abort` and `assert`; 3 is a debugger's, which is not there.
        if s.inst.imm & 0xff == 3 {
            return Flow::Next;
        }
        // What it said before comes out first; what it asked besides no longer matters.
        let _ = self.message();
        let message = self.dispatch.hostcall.last_words();
        self.fault = Some(Fault::Trap { place: self.place(w, s), message });
        Flow::Fault
    }

    /// The device rang: answer what it asks of the host.
    fn message(&self) -> Result<(), Fault> {
        self.dispatch.serve()
    }
}
