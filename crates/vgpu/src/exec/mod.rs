//! Execution: workgroups of wavefronts, of 32 or 64 lanes, on the CPU's cores.
//!
//! # How one instruction executes
//!
//! Follow `v_add_f32_e32 v2, v0, v1` from the bytes of a code object to the write of `v2`.
//!
//! 1. **Load.** [`LoadedCodeObject::load`] maps the ELF segments into memory, applies relocations, and hands the executable dwords to
//!    `DecodedCode`, which has one empty slot per dword. Nothing is decoded yet.
//! 2. **Dispatch.** [`launch`] builds a `Dispatch` (`dispatch.rs`): it checks the launch against the kernel descriptor, lays out the
//!    kernarg segment with the hidden arguments, and writes the dispatch packet. `init_wave` sets the registers a wavefront starts
//!    with: user SGPRs, workgroup ids, workitem ids in `v0`, EXEC, `MODE`.
//! 3. **Schedule.** `scheduler.rs` runs one worker per thread. A worker takes the next workgroup of the grid and runs its wavefronts in
//!    time slices. `run_wave` is the interpreter's loop: it fetches the step at `wave.pc`, advances `pc`, and calls the step's handler.
//! 4. **Decode**, when the slot at `pc` is empty. [`isa::decode`](crate::isa::decode) finds the encoding from the top bits (`0` at bit
//!    31: VOP2) and the opcode, looks the pair up in the instruction table (`isa/gfx9.tsv`), and fills an [`Inst`](crate::isa::Inst)
//!    with operand numbers: `dst` = 258, `src` = [256, 257].
//! 5. **Prepare.** `decoded.rs` turns the `Inst` into a `Step` and stores it in the slot. `ops::semantics` finds the handler by
//!    mnemonic; `ops/float.rs` has the line `v_add_f32(a: f32, b: f32) -> f32 { a + b }`. The step records where each source comes
//!    from, the values of constants, and whether any modifier (neg, abs, omod, clamp, SDWA, DPP) applies.
//! 6. **Execute.** The handler is `run::<v_add_f32>` of `valu.rs`, compiled once per [`SimdLevel`]. Without modifiers and with the default
//!    `MODE` it reads all 64 lanes of both sources, computes all 64 results in one vectorized loop, and calls `Wave::write_vgpr`, which
//!    stores the lanes that EXEC enables. With modifiers, `run_modified` does the same lane by lane.
//! 7. **Continue.** The handler returns an `Outcome`. `Continue` fetches the next step; `Yield` (sleep, hostcall) and `Stop` (barrier,
//!    `s_endpgm`) end the time slice; `Fault` ends the launch with a [`Fault`] that names kernel, workgroup, wavefront and
//!    instruction.
//!
//! Memory instructions (`vmem.rs`, `smem.rs`, `lds.rs`) differ in step 6: they compute the lanes' addresses, check them against the
//! allocations of [`Memory`], and only then access host memory.
//!
//! # Native code
//!
//! Code that was interpreted for about 0.1 ms is translated to AVX-512 or AVX2 instructions (`native/`), and `run_wave` runs that instead of
//! steps 4 to 7: `v_add_f32` becomes a `vaddps` in a loop over 16 or 8 lanes at a time, together with the vector instructions around it.
//! Rare instructions call the same handlers. The interpreter stays the reference; `tests/differential.rs` compares both.
//!
//! Every handler has the signature `fn(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome`: the wavefront, the step, and everything the
//! wavefront shares with others. Wait counts (`s_waitcnt`) are no-ops, because every instruction completes before the next one starts.

mod atomic;
mod decoded;
mod dispatch;
mod float;
mod gws;
mod hostcall;
mod lds;
#[cfg(all(target_arch = "x86_64", unix))]
mod native;
#[cfg(not(all(target_arch = "x86_64", unix)))]
#[path = "native/absent.rs"]
mod native;
mod ops;
mod packet;
mod resource;
mod salu;
mod salu_float;
mod scheduler;
mod simd;
mod smem;
mod test_wave;
mod valu;
mod vmem;
mod wave;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use packet::Packet;
pub use simd::SimdLevel;
pub use test_wave::{TestProgram, TestWave};

/// Returns whether an instruction is executed; others end the launch with an error that names them.
pub fn is_executed(row: &'static crate::isa::InstDesc) -> bool {
    ops::semantics(row).is_some()
}

pub(crate) use decoded::DecodedCode;

use crate::code_object::{Kernel, LoadedCodeObject};
use crate::fault::{Fault, FaultLocation};
use crate::isa::operand;
use crate::memory::Memory;
use decoded::Step;
use wave::Wave;

/// Flat addresses of LDS begin here.
const SHARED_APERTURE: u64 = 0x0001_0000_0000_0000;
/// Flat addresses of a lane's scratch begin here.
const PRIVATE_APERTURE: u64 = 0x0002_0000_0000_0000;
/// The last offset in an aperture.
const APERTURE_LIMIT: u64 = 0xffff_ffff;

/// Trap ids of `s_trap`, as the AMDGPU backend uses them.
mod trap_id {
    /// `llvm.debugtrap`: ignored without a debugger.
    pub const DEBUG_TRAP: i32 = 3;
}

/// Returns the value of an aperture operand.
fn aperture_value(number: u16) -> u64 {
    match number {
        operand::SHARED_BASE => SHARED_APERTURE,
        operand::SHARED_LIMIT => SHARED_APERTURE + APERTURE_LIMIT,
        operand::PRIVATE_BASE => PRIVATE_APERTURE,
        _ => PRIVATE_APERTURE + APERTURE_LIMIT,
    }
}

/// A launch configuration.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// Workgroups in each dimension.
    pub grid: [u32; 3],
    /// Workitems of a workgroup in each dimension.
    pub block: [u32; 3],
    /// Bytes of LDS beyond the kernel's own.
    pub dynamic_lds: u32,
    /// The explicit arguments, at the offsets that the kernel's metadata states. [`launch`] fills in the hidden ones.
    pub arguments: Vec<u8>,
    /// Whether workgroups may synchronize with each other: all of them are kept resident.
    pub cooperative: bool,
}

/// When to stop a kernel that does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Never.
    None,
    /// After this many instructions of all wavefronts together.
    Instructions(u64),
    /// After this time.
    Time(Duration),
}

/// Execution statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Instructions of wavefronts.
    pub instructions: u64,
    /// Vector instructions times their active lanes.
    pub lane_operations: u64,
    /// Wall-clock time, or CPU time after [`count_cpu_time`].
    pub time: Duration,
}

/// Whether launches count CPU time.
static COUNTS_CPU_TIME: AtomicBool = AtomicBool::new(false);
/// Nanoseconds between two readings of the clock of CPU time.
static CLOCK_TIME: AtomicU64 = AtomicU64::new(0);

/// From now on [`Stats::time`] is the CPU time of the threads that run wavefronts: for benchmarks on busy machines.
pub fn count_cpu_time() {
    let between = (0..1000).map(|_| {
        let before = scheduler::thread_cpu_time();
        scheduler::thread_cpu_time() - before
    });
    CLOCK_TIME.store(between.min().unwrap_or(0), Ordering::Relaxed);
    COUNTS_CPU_TIME.store(true, Ordering::Relaxed);
}

static TOTAL: Mutex<Stats> = Mutex::new(Stats { instructions: 0, lane_operations: 0, time: Duration::ZERO });

/// Returns the statistics of all launches of this process that ended without a fault.
pub fn totals() -> Stats {
    *TOTAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a kernel to its end. `print` receives what the kernel prints.
pub fn launch(
    code_object: &LoadedCodeObject,
    kernel: &Kernel,
    launch: &Launch,
    memory: &Arc<Memory>,
    limit: Limit,
    print: &(dyn Fn(&str) + Sync),
) -> Result<Stats, Fault> {
    run(&dispatch::Dispatch::new(code_object, kernel, launch, memory, print)?, limit)
}

/// Runs the kernel of a dispatch packet to its end, with the checks that hardware makes. See [`Packet`].
pub fn launch_packet(
    code_object: &LoadedCodeObject,
    kernel: &Kernel,
    packet: &Packet,
    memory: &Arc<Memory>,
    limit: Limit,
) -> Result<Stats, Fault> {
    run(&dispatch::Dispatch::from_packet(code_object, kernel, packet, memory)?, limit)
}

fn run(dispatch: &dispatch::Dispatch<'_>, limit: Limit) -> Result<Stats, Fault> {
    let stats = scheduler::run(dispatch, limit)?;
    let mut total = TOTAL.lock().unwrap_or_else(PoisonError::into_inner);
    total.instructions += stats.instructions;
    total.lane_operations += stats.lane_operations;
    total.time += stats.time;
    Ok(stats)
}

/// What the interpreter's loop does after an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Outcome {
    /// Execute the next instruction.
    Continue,
    /// End the time slice; the wavefront stays ready.
    Yield,
    /// End the time slice; the wavefront's state changed.
    Stop,
    /// End the launch; [`Env::fault`] holds the reason.
    Fault,
}

/// What a wavefront shares with others: its code, its dispatch and its workgroup.
pub(crate) struct Env<'a> {
    code: &'a DecodedCode,
    dispatch: &'a dispatch::Dispatch<'a>,
    /// The workgroup's LDS, and [`lds::GUARD`] bytes behind it if the launch ignores accesses outside.
    lds: &'a mut [u8],
    /// Bytes of LDS.
    lds_size: u32,
    workgroup: [u32; 3],
    /// Wavefronts of the workgroup.
    waves: u32,
    clock: Instant,
    fault: Option<Fault>,
}

impl Env<'_> {
    /// Returns the workgroup's linear index in the grid.
    fn workgroup_index(&self) -> u64 {
        let [x, y, z] = self.workgroup.map(u64::from);
        let [gx, gy, _] = self.dispatch.grid.map(u64::from);
        x + gx * (y + gy * z)
    }

    /// Returns the location of an instruction that was just executed.
    fn location(&self, w: &Wave, s: &Step) -> Box<FaultLocation> {
        self.location_at(w, w.pc.saturating_sub(usize::from(s.inst.words)))
    }

    /// Returns the location of the instruction at a dword.
    fn location_at(&self, w: &Wave, at: usize) -> Box<FaultLocation> {
        Box::new(FaultLocation {
            kernel: self.dispatch.kernel.name.clone(),
            offset: 4 * at as u64,
            instruction: self.code.disassemble(at, w.wave_size).unwrap_or_default(),
            workgroup: self.workgroup,
            wave: w.index,
        })
    }

    /// Returns whether the wavefront may access this memory. Caches the allocation in the wavefront: none is removed while a kernel runs.
    fn can_access(&self, w: &mut Wave, address: u64, bytes: u32, write: bool) -> bool {
        let Some(end) = address.checked_add(u64::from(bytes)) else { return false };
        if w.recent_ranges.iter().any(|&(start, stop, writable)| address >= start && end <= stop && (writable || !write)) {
            return true;
        }
        match self.dispatch.memory.find_range(address, u64::from(bytes)) {
            Some(range) if !write || !range.read_only => {
                // The first entry is the wavefront's own scratch.
                w.next_range = w.next_range % (wave::RECENT_RANGES as u8 - 1) + 1;
                w.recent_ranges[usize::from(w.next_range)] = (range.start, range.end(), !range.read_only);
                true
            }
            _ => false,
        }
    }

    fn memory_fault(&mut self, w: &Wave, s: &Step, lane: usize, address: u64, bytes: u32, write: bool) {
        let near = self.dispatch.memory.nearest(address);
        self.fault = Some(Fault::Memory { location: self.location(w, s), lane: lane as u32, address, bytes, write, near });
    }

    fn lds_fault(&mut self, w: &Wave, s: &Step, lane: usize, address: u64, bytes: u32) {
        let size = self.lds_size;
        self.fault = Some(Fault::Lds { location: self.location(w, s), lane: lane as u32, address, bytes, size });
    }

    fn scratch_fault(&mut self, w: &Wave, s: &Step, lane: usize, offset: u32, bytes: u32) {
        let (address, size) = (u64::from(offset), w.scratch_size);
        self.fault = Some(Fault::Scratch { location: self.location(w, s), lane: lane as u32, address, bytes, size });
    }

    fn misaligned_fault(&mut self, w: &Wave, s: &Step, lane: usize, address: u64, bytes: u32) -> Outcome {
        self.fault = Some(Fault::Misaligned { location: self.location(w, s), lane: lane as u32, address, bytes });
        Outcome::Fault
    }

    fn unsupported(&mut self, w: &Wave, s: &Step, what: String) -> Outcome {
        self.fault = Some(Fault::Unsupported { location: self.location(w, s), what });
        Outcome::Fault
    }

    fn illegal(&mut self, w: &Wave, s: &Step, what: String) -> Outcome {
        self.fault = Some(Fault::Illegal { location: self.location(w, s), what });
        Outcome::Fault
    }

    fn trap(&mut self, w: &Wave, s: &Step) -> Outcome {
        if s.inst.imm & 0xff == trap_id::DEBUG_TRAP {
            return Outcome::Continue;
        }
        // Prints pending messages first. A failing hostcall no longer matters.
        let _ = self.serve_hostcalls();
        let message = self.dispatch.hostcall.last_message();
        self.fault = Some(Fault::Trap { location: self.location(w, s), message });
        Outcome::Fault
    }

    /// Serves the hostcalls that kernels have queued.
    fn serve_hostcalls(&self) -> Result<(), Fault> {
        self.dispatch.serve_hostcalls()
    }
}
