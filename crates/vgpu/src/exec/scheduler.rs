//! The scheduler: runs the workgroups of a launch on worker threads, their wavefronts in time slices.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::decoded::Step;
use super::dispatch::Dispatch;
use super::wave::{State, Wave, gpr_index};
use super::{DecodedCode, Env, Limit, Outcome, Stats};
use crate::fault::{Fault, FaultLocation};
use crate::isa::operand;

/// Instructions of a wavefront's time slice.
const WAVE_SLICE: u64 = 4096;
/// Time slices of a workgroup before the worker switches to another one, so that workgroups that wait for each other make progress.
const GROUP_SLICES: u32 = 64;
/// Resident workgroups of a worker, and the memory they may take. A cooperative launch keeps all of its workgroups resident.
const MAX_RESIDENT: usize = 256;
const MAX_RESIDENT_BYTES: usize = 512 << 20;

/// Wavefronts kept for later launches: their registers are large, and most kernels are small.
static WAVE_POOL: Mutex<Vec<Wave>> = Mutex::new(Vec::new());
/// Wavefronts in the pool, and the most dwords of scratch of each.
const POOL_WAVES: usize = 64;
const POOL_SCRATCH_WORDS: usize = 1 << 18;

/// A resident workgroup.
struct Workgroup {
    id: [u32; 3],
    waves: Vec<Wave>,
    lds: Vec<u8>,
}

/// State shared by the workers of a launch.
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

/// Runs all workgroups of a launch.
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

/// Returns the number of worker threads: `WARPWAVE_VGPU_THREADS`, or all cores.
fn thread_count() -> usize {
    let configured = std::env::var("WARPWAVE_VGPU_THREADS").ok().and_then(|text| text.parse().ok());
    configured.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
}

/// Returns the threads for a launch of `total` workgroups, and the most workgroups that are resident at a time.
pub fn plan_threads(total: u64, cooperative: bool) -> (usize, u64) {
    let threads = thread_count().min(usize::try_from(total).unwrap_or(usize::MAX));
    // A worker starts a workgroup before it looks at its resident ones, which makes one more.
    let max = if cooperative { total } else { total.min((MAX_RESIDENT as u64 + 1) * threads as u64) };
    (threads, max)
}

/// Runs workgroups until none are left, then returns their wavefronts to the pool.
fn worker(shared: &LaunchState<'_>) {
    let mut idle: Vec<Workgroup> = Vec::new();
    work(shared, &mut idle);
    let mut kept = WAVE_POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let free = POOL_WAVES.saturating_sub(kept.len());
    kept.extend(idle.into_iter().flat_map(|group| group.waves).filter(|wave| wave.scratch.len() <= POOL_SCRATCH_WORDS).take(free));
}

/// Runs resident workgroups in turn until all ended.
fn work(shared: &LaunchState<'_>, idle: &mut Vec<Workgroup>) {
    let mut resident: VecDeque<Workgroup> = VecDeque::new();
    let max = if shared.dispatch.cooperative {
        usize::MAX
    } else {
        (MAX_RESIDENT_BYTES / shared.dispatch.workgroup_bytes()).clamp(2, MAX_RESIDENT)
    };
    loop {
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        // Start new workgroups first: resident ones may be waiting for them.
        let new_group = if resident.len() < max { next_workgroup(shared, idle) } else { None };
        let Some(mut group) = new_group.or_else(|| resident.pop_front()) else { return };
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

/// Starts the next workgroup of the grid, reusing the memory of a finished one.
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

/// Runs a workgroup until it ends (`true`) or its time slices are used up.
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

/// Releases the barrier when no wavefront can run; ended wavefronts do not count, as on hardware. Returns `true` when all ended.
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
        Limit::Instructions(max) if done > max => format!("{max} instructions"),
        Limit::Time(max) if shared.started.elapsed() > max => format!("{} s", Duration::as_secs_f64(&max)),
        _ => return Ok(()),
    };
    let instruction = env.code.disassemble(wave.pc, wave.wave_size).unwrap_or_default();
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

/// Runs a wavefront until its time slice ends, it waits, ends, or faults.
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
            result = Err(Fault::Illegal { location: Box::new(location), what: "execution ran past the end of the code".to_owned() });
            break;
        };
        wave.pc += usize::from(step.inst.words);
        if step.vector {
            lane_operations += u64::from(wave.active_lanes);
        }
        let outcome = if wave.gpr_indexing && step.vector {
            let step = apply_gpr_indexing(wave, step);
            // SAFETY: the handler was compiled for the CPU's SIMD level.
            unsafe { (step.run)(wave, &step, env) }
        } else {
            // SAFETY: the handler was compiled for the CPU's SIMD level.
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
                result = Err(env.fault.take().unwrap_or_else(|| Fault::Illegal {
                    location: env.location(wave, step),
                    what: "internal error: the instruction failed without reporting a reason".to_owned(),
                }));
                break;
            }
        }
    }
    wave.instructions += WAVE_SLICE - left;
    wave.lane_operations += lane_operations;
    result
}

/// Returns the instruction with M0's index added to the VGPR operands that M0's mode bits select. Memory instructions are not indexed.
#[cold]
pub fn apply_gpr_indexing(wave: &Wave, step: &Step) -> Step {
    let mut step = step.clone();
    if !step.inst.desc.format.is_valu() {
        return step;
    }
    let m0 = wave.sgprs[usize::from(operand::M0)];
    let index = gpr_index::INDEX.get(m0) as u16;
    for n in 0..3 {
        if gpr_index::SRC[n].is_set(m0) && step.inst.src[n] >= operand::VGPR {
            step.inst.src[n] += index;
        }
    }
    if gpr_index::DST.is_set(m0) && step.inst.dst >= operand::VGPR {
        step.inst.dst += index;
    }
    step
}
