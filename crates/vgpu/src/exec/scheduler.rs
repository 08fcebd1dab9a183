//! Groups on the CPU's cores: each has its waves take turns, and the groups of a worker take turns too.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::decoded::Step;
use super::dispatch::Dispatch;
use super::wave::{State, Wave};
use super::{DecodedCode, Env, Limit, Outcome, Stats};
use crate::fault::{Fault, FaultLocation};
use crate::isa::{Format, operand};

/// Instructions of a wave's turn.
const WAVE_SLICE: u64 = 4096;
/// Turns of a group before another group of the worker gets one: groups that wait for each other all get on.
const GROUP_SLICES: u32 = 64;
/// Groups a worker keeps started at once, and the memory they may take; a cooperative launch keeps all.
const MAX_RESIDENT: usize = 256;
const MAX_RESIDENT_BYTES: usize = 512 << 20;

/// Waves that no launch uses: their registers are large, and most kernels are small.
static WAVE_POOL: Mutex<Vec<Wave>> = Mutex::new(Vec::new());
/// How many are kept, and the most words of scratch they may have.
const POOL_WAVES: usize = 64;
const POOL_SCRATCH_WORDS: usize = 1 << 18;

/// A group in flight.
struct Workgroup {
    id: [u32; 3],
    waves: Vec<Wave>,
    lds: Vec<u8>,
}

/// What the workers of a launch share.
struct LaunchState<'a> {
    dispatch: &'a Dispatch<'a>,
    limit: Limit,
    started: Instant,
    next: AtomicU64,
    total: u64,
    stop: AtomicBool,
    fault: Mutex<Option<Fault>>,
    instructions: AtomicU64,
    lane_operations: AtomicU64,
}

/// Runs all groups of a launch.
pub fn run(dispatch: &Dispatch<'_>, limit: Limit) -> Result<Stats, Fault> {
    let total = dispatch.grid.iter().map(|n| u64::from(*n)).product::<u64>();
    let shared = LaunchState {
        dispatch,
        limit,
        started: Instant::now(),
        next: AtomicU64::new(0),
        total,
        stop: AtomicBool::new(false),
        fault: Mutex::new(None),
        instructions: AtomicU64::new(0),
        lane_operations: AtomicU64::new(0),
    };
    let cores = dispatch.threads;
    if cores <= 1 {
        worker(&shared);
    } else {
        std::thread::scope(|scope| {
            for _ in 1..cores {
                scope.spawn(|| worker(&shared));
            }
            worker(&shared);
        });
    }
    let served = dispatch.serve_hostcalls();
    match shared.fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(fault) => Err(fault),
        None => served.map(|()| Stats {
            instructions: shared.instructions.into_inner(),
            lane_operations: shared.lane_operations.into_inner(),
            time: shared.started.elapsed(),
        }),
    }
}

/// Threads of a launch: all cores, or as many as `WARPWAVE_VGPU_THREADS` says.
fn thread_count() -> usize {
    let asked = std::env::var("WARPWAVE_VGPU_THREADS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
}

/// Threads for a launch of `total` groups, and the most groups that are started and have not ended at any time.
pub fn plan_threads(total: u64, cooperative: bool) -> (usize, u64) {
    let threads = thread_count().min(usize::try_from(total).unwrap_or(usize::MAX));
    // A worker starts a group before it looks at those it has: one more than stay.
    let most = if cooperative { total } else { total.min((MAX_RESIDENT as u64 + 1) * threads as u64) };
    (threads, most)
}

/// Takes groups until there are none, and keeps their waves for the next launch.
fn worker(shared: &LaunchState<'_>) {
    let mut idle: Vec<Workgroup> = Vec::new();
    work(shared, &mut idle);
    let mut kept = WAVE_POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let room = POOL_WAVES.saturating_sub(kept.len());
    kept.extend(idle.into_iter().flat_map(|group| group.waves).filter(|wave| wave.scratch.len() <= POOL_SCRATCH_WORDS).take(room));
}

/// Lets groups take turns until all ended.
fn work(shared: &LaunchState<'_>, idle: &mut Vec<Workgroup>) {
    let mut resident: VecDeque<Workgroup> = VecDeque::new();
    let most = if shared.dispatch.cooperative {
        usize::MAX
    } else {
        (MAX_RESIDENT_BYTES / shared.dispatch.workgroup_bytes()).clamp(2, MAX_RESIDENT)
    };
    loop {
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        // A new group first, while there is room: groups that wait may wait for it.
        let fresh = if resident.len() < most { next_workgroup(shared, idle) } else { None };
        let Some(mut group) = fresh.or_else(|| resident.pop_front()) else { return };
        match run_slice(shared, &mut group) {
            Ok(true) => idle.push(group),
            Ok(false) => resident.push_back(group),
            Err(fault) => {
                let mut first = shared.fault.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(fault);
                shared.stop.store(true, Ordering::Relaxed);
                return;
            }
        }
    }
}

/// The next group of the grid, in the memory of one that ended where there is one.
fn next_workgroup(shared: &LaunchState<'_>, idle: &mut Vec<Workgroup>) -> Option<Workgroup> {
    let number = shared.next.fetch_add(1, Ordering::Relaxed);
    if number >= shared.total {
        return None;
    }
    let [gx, gy, _] = shared.dispatch.grid.map(u64::from);
    let id = [number % gx, number / gx % gy, number / (gx * gy)].map(|n| n as u32);
    let mut group = idle.pop().unwrap_or_else(|| {
        let mut kept = WAVE_POOL.lock().unwrap_or_else(PoisonError::into_inner);
        let waves = (0..shared.dispatch.waves_per_workgroup()).map(|_| kept.pop().unwrap_or_else(Wave::new)).collect();
        Workgroup { id, waves, lds: vec![0; shared.dispatch.lds as usize] }
    });
    group.id = id;
    for (number, wave) in group.waves.iter_mut().enumerate() {
        shared.dispatch.init_wave(wave, number as u32, id);
    }
    Some(group)
}

/// Runs a group until it ends (`true`) or has had its turns.
fn run_slice(shared: &LaunchState<'_>, group: &mut Workgroup) -> Result<bool, Fault> {
    let code: &DecodedCode = &shared.dispatch.code_object.code;
    let mut env = Env {
        code,
        dispatch: shared.dispatch,
        lds: &mut group.lds,
        workgroup: group.id,
        waves: group.waves.len() as u32,
        clock: shared.started,
        fault: None,
    };
    for _ in 0..GROUP_SLICES {
        let mut ready = 0;
        for wave in group.waves.iter_mut().filter(|wave| wave.state == State::Ready) {
            ready += 1;
            let (instructions, lane_operations) = (wave.instructions, wave.lane_operations);
            let result = run_wave(wave, &mut env);
            let done =
                shared.instructions.fetch_add(wave.instructions - instructions, Ordering::Relaxed) + wave.instructions - instructions;
            shared.lane_operations.fetch_add(wave.lane_operations - lane_operations, Ordering::Relaxed);
            result?;
            check_limit(shared, wave, &env, done)?;
        }
        if shared.stop.load(Ordering::Relaxed) {
            return Ok(true);
        }
        if ready == 0 && release_barrier(&mut group.waves) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Opens the barrier when no wave runs: those that ended no longer count, as on the hardware. `true` when all ended.
fn release_barrier(waves: &mut [Wave]) -> bool {
    let mut ended = true;
    for wave in waves.iter_mut().filter(|wave| wave.state == State::Barrier) {
        wave.state = State::Ready;
        ended = false;
    }
    ended
}

fn check_limit(shared: &LaunchState<'_>, wave: &Wave, env: &Env<'_>, done: u64) -> Result<(), Fault> {
    let limit = match shared.limit {
        Limit::None => return Ok(()),
        Limit::Instructions(most) if done > most => format!("{most} instructions"),
        Limit::Time(most) if shared.started.elapsed() > most => format!("{} s", Duration::as_secs_f64(&most)),
        _ => return Ok(()),
    };
    let instruction = env.code.disassemble(wave.pc).unwrap_or_default();
    Err(Fault::LimitExceeded {
        location: Box::new(FaultLocation {
            kernel: shared.dispatch.kernel.name.clone(),
            offset: 4 * wave.pc as u64,
            instruction,
            workgroup: env.workgroup,
            wave: wave.index,
        }),
        limit,
    })
}

/// Runs a wave until its turn ends, it waits, ends, or faults.
fn run_wave(wave: &mut Wave, env: &mut Env<'_>) -> Result<(), Fault> {
    let code = env.code;
    let mut left = WAVE_SLICE;
    let mut lane_operations = 0u64;
    let mut result = Ok(());
    while left > 0 {
        left -= 1;
        let Some(step) = code.step(wave.pc) else {
            let location = FaultLocation {
                kernel: env.dispatch.kernel.name.clone(),
                offset: 4 * wave.pc as u64,
                instruction: String::new(),
                workgroup: env.workgroup,
                wave: wave.index,
            };
            result = Err(Fault::Illegal { location: Box::new(location), what: "it ran past the end of the program".to_owned() });
            break;
        };
        wave.pc += usize::from(step.inst.words);
        if step.vector {
            lane_operations += u64::from(wave.active_lanes);
        }
        let outcome = if wave.gpr_indexing && step.vector {
            let step = apply_gpr_indexing(wave, step);
            // SAFETY: the handler was chosen for the CPU's level.
            unsafe { (step.run)(wave, &step, env) }
        } else {
            // SAFETY: the handler was chosen for the CPU's level.
            unsafe { (step.run)(wave, step, env) }
        };
        match outcome {
            Outcome::Continue => {}
            Outcome::Yield => {
                result = env.serve_hostcalls();
                break;
            }
            Outcome::Stop => break,
            Outcome::Fault => {
                result = Err(env
                    .fault
                    .take()
                    .unwrap_or_else(|| Fault::Illegal { location: env.location(wave, step), what: "the instruction failed".to_owned() }));
                break;
            }
        }
    }
    wave.instructions += WAVE_SLICE - left;
    wave.lane_operations += lane_operations;
    result
}

/// The instruction with the low byte of `m0` added to the vector registers that bits 12 and up of it name: the sources, then the
/// destination. Only arithmetic is indexed, not memory.
#[cold]
pub fn apply_gpr_indexing(wave: &Wave, step: &Step) -> Step {
    let mut step = step.clone();
    if !matches!(step.inst.desc.format, Format::VOP1 | Format::VOP2 | Format::VOPC | Format::VOP3 | Format::VOP3P) {
        return step;
    }
    let m0 = wave.sgprs[usize::from(operand::M0)];
    let index = (m0 & 0xff) as u16;
    for n in 0..3 {
        if m0 >> (12 + n) & 1 != 0 && step.inst.src[n] >= operand::VGPR {
            step.inst.src[n] += index;
        }
    }
    if m0 >> 15 & 1 != 0 && step.inst.dst >= operand::VGPR {
        step.inst.dst += index;
    }
    step
}
