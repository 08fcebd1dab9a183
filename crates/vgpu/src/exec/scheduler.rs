//! The scheduler: runs the workgroups of a launch on worker threads, their wavefronts in time slices.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::decoded::Step;
use super::dispatch::Dispatch;
use super::native::{self, Interpretation};
use super::wave::{NO_RANGE, RECENT_RANGES, State, Wave, gpr_index};
use super::{DecodedCode, Env, Limit, Outcome, Stats, lds};
use crate::code_object::Kernel;
use crate::fault::Fault;
use crate::isa::operand;

/// Instructions of a wavefront's time slice.
const WAVE_SLICE: i64 = 4096;
/// Time slices of a workgroup before the worker switches to another one, so that workgroups that wait for each other make progress.
const GROUP_SLICES: u32 = 64;
/// Workgroups after which hot code is translated before the launch ends.
const LONG_LAUNCH: u64 = 64;
/// Resident workgroups of a worker, and the memory they may take. A cooperative launch keeps all of its workgroups resident.
const MAX_RESIDENT: usize = 256;
const MAX_RESIDENT_BYTES: usize = 512 << 20;
/// The most wavefronts of a cooperative launch.
const MAX_COOPERATIVE_WAVES: u64 = 1 << 20;

/// Wavefronts kept for later launches: their registers are large, and most kernels are small.
#[allow(clippy::vec_box)] // A wavefront is more than a KiB, and moves between workgroups and the pool.
static WAVE_POOL: Mutex<Vec<Box<Wave>>> = Mutex::new(Vec::new());
/// Wavefronts in the pool, and the most dwords of scratch of each.
const POOL_WAVES: usize = 64;
const POOL_SCRATCH_WORDS: usize = 1 << 18;

/// Recently accessed allocations, without the wavefront's scratch.
type KnownRanges = [(u64, u64, bool); RECENT_RANGES - 1];

/// A resident workgroup.
struct Workgroup {
    id: [u32; 3],
    #[allow(clippy::vec_box)]
    waves: Vec<Box<Wave>>,
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
    /// CPU time of the workers in nanoseconds, if it is counted.
    cpu_time: AtomicU64,
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
        cpu_time: AtomicU64::new(0),
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
    let counts_cpu_time = super::COUNTS_CPU_TIME.load(Ordering::Relaxed);
    let time = if counts_cpu_time { Duration::from_nanos(shared.cpu_time.into_inner()) } else { shared.started.elapsed() };
    dispatch.code_object.code.native.translate_hot(&dispatch.code_object.code);
    match shared.fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(fault) => Err(fault),
        None => served.map(|()| Stats {
            instructions: shared.instructions.into_inner(),
            lane_operations: shared.lane_operations.into_inner(),
            time,
        }),
    }
}

/// Returns the number of worker threads: `WARPWAVE_VGPU_THREADS`, or all cores.
fn thread_count() -> usize {
    // Counting cores reads several files, which takes longer than a small launch.
    static CORES: OnceLock<usize> = OnceLock::new();
    let configured = std::env::var("WARPWAVE_VGPU_THREADS").ok().and_then(|text| text.parse().ok());
    configured.unwrap_or_else(|| *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))).max(1)
}

/// The threads of a launch, and the most wavefronts that are resident at a time.
pub struct Plan {
    pub threads: usize,
    pub waves: usize,
}

/// Plans a launch of `total` workgroups of `workitems` workitems.
pub fn plan_threads(total: u64, kernel: &Kernel, workitems: u64, cooperative: bool) -> Result<Plan, Fault> {
    let threads = thread_count().min(usize::try_from(total).unwrap_or(usize::MAX));
    // A worker starts a workgroup before it looks at its resident ones, which makes one more.
    let resident = if cooperative { total } else { total.min((MAX_RESIDENT as u64 + 1) * threads as u64) };
    let waves = resident.saturating_mul(workitems.div_ceil(u64::from(kernel.descriptor.wave_size().lanes())));
    if cooperative && waves > MAX_COOPERATIVE_WAVES {
        let reason = format!("{waves} wavefronts in a cooperative launch; at most {MAX_COOPERATIVE_WAVES} can be resident");
        return Err(Fault::InvalidLaunch { kernel: kernel.name.clone(), reason });
    }
    Ok(Plan { threads, waves: waves as usize })
}

/// Runs workgroups until none are left, then returns their wavefronts to the pool.
fn worker(shared: &LaunchState<'_>) {
    let before = super::COUNTS_CPU_TIME.load(Ordering::Relaxed).then(thread_cpu_time);
    let mut idle: Vec<Workgroup> = Vec::new();
    work(shared, &mut idle);
    let mut kept = WAVE_POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let free = POOL_WAVES.saturating_sub(kept.len());
    kept.extend(idle.into_iter().flat_map(|group| group.waves).filter(|wave| wave.scratch.len() <= POOL_SCRATCH_WORDS).take(free));
    if let Some(before) = before {
        let time = (thread_cpu_time() - before).saturating_sub(super::CLOCK_TIME.load(Ordering::Relaxed));
        shared.cpu_time.fetch_add(time, Ordering::Relaxed);
    }
}

/// Returns the CPU time of this thread in nanoseconds; 0 where the system does not tell.
pub fn thread_cpu_time() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a local variable.
        if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) } == 0 {
            return 1_000_000_000 * time.tv_sec as u64 + time.tv_nsec as u64;
        }
    }
    0
}

/// Runs resident workgroups in turn until all ended.
fn work(shared: &LaunchState<'_>, idle: &mut Vec<Workgroup>) {
    let mut resident: VecDeque<Workgroup> = VecDeque::new();
    let mut known = [NO_RANGE; RECENT_RANGES - 1];
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
        match run_slice(shared, &mut group, &mut known) {
            Ok(true) => idle.push(group),
            Ok(false) => {
                shared.dispatch.code_object.code.native.translate_hot(&shared.dispatch.code_object.code);
                resident.push_back(group);
            }
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
    if number % LONG_LAUNCH == LONG_LAUNCH - 1 {
        shared.dispatch.code_object.code.native.translate_hot(&shared.dispatch.code_object.code);
    }
    let [gx, gy, _] = shared.dispatch.grid.map(u64::from);
    let id = [number % gx, number / gx % gy, number / (gx * gy)].map(|n| n as u32);
    let mut group = idle.pop().unwrap_or_else(|| {
        let mut kept = WAVE_POOL.lock().unwrap_or_else(PoisonError::into_inner);
        let waves = (0..shared.dispatch.waves_per_workgroup()).map(|_| kept.pop().unwrap_or_else(|| Box::new(Wave::new()))).collect();
        Workgroup { id, waves, lds: vec![0; shared.dispatch.lds as usize + lds::GUARD] }
    });
    group.id = id;
    for (number, wave) in group.waves.iter_mut().enumerate() {
        shared.dispatch.init_wave(wave, number as u32, id);
    }
    Some(group)
}

/// Runs a workgroup until it ends (`true`) or its time slices are used up. `known` are recently accessed allocations.
fn run_slice(shared: &LaunchState<'_>, group: &mut Workgroup, known: &mut KnownRanges) -> Result<bool, Fault> {
    let code: &DecodedCode = &shared.dispatch.code_object.code;
    let mut env = Env {
        code,
        dispatch: shared.dispatch,
        lds: &mut group.lds,
        lds_size: shared.dispatch.lds,
        workgroup: group.id,
        waves: group.waves.len() as u32,
        clock: shared.started,
        fault: None,
    };
    for _ in 0..GROUP_SLICES {
        let mut executed = Executed::default();
        let mut result = Ok(());
        for wave in group.waves.iter_mut().filter(|wave| wave.state == State::Ready) {
            if wave.recent_ranges[1] == NO_RANGE {
                // Another wavefront of the launch accessed the same allocations.
                wave.recent_ranges[1..].copy_from_slice(known);
            }
            result = run_wave(wave, &mut env, &mut executed);
            known.copy_from_slice(&wave.recent_ranges[1..]);
            if result.is_err() {
                break;
            }
        }
        if let Some(interpretation) = &executed.interpretation {
            code.native.end(interpretation, executed.interpreted);
        }
        let done = shared.instructions.fetch_add(executed.instructions, Ordering::Relaxed) + executed.instructions;
        shared.lane_operations.fetch_add(executed.lane_operations, Ordering::Relaxed);
        result?;
        let Some(wave) = group.waves.iter().find(|wave| wave.state != State::Done) else { return Ok(true) };
        check_limit(shared, wave, &env, done)?;
        if shared.stop.load(Ordering::Relaxed) {
            return Ok(true);
        }
        if group.waves.iter().all(|wave| wave.state != State::Ready) {
            release_barrier(&mut group.waves);
        }
    }
    Ok(false)
}

/// What wavefronts executed in a time slice.
#[derive(Default)]
struct Executed {
    instructions: u64,
    /// Vector instructions times active lanes.
    lane_operations: u64,
    /// Where instructions were interpreted first, if they are to be counted, and how many were.
    interpretation: Option<Interpretation>,
    interpreted: u64,
}

/// Releases the barrier when no wavefront can run; ended wavefronts do not count, as on hardware.
fn release_barrier(waves: &mut [Box<Wave>]) {
    for wave in waves.iter_mut().filter(|wave| wave.state == State::Barrier) {
        wave.state = State::Ready;
    }
}

fn check_limit(shared: &LaunchState<'_>, wave: &Wave, env: &Env<'_>, done: u64) -> Result<(), Fault> {
    let limit = match shared.limit {
        Limit::None => return Ok(()),
        Limit::Instructions(max) if done > max => format!("{max} instructions"),
        Limit::Time(max) if shared.started.elapsed() > max => format!("{} s", Duration::as_secs_f64(&max)),
        _ => return Ok(()),
    };
    Err(Fault::LimitExceeded { location: env.location_at(wave, wave.pc), limit })
}

/// Runs a wavefront until its time slice ends, it waits, ends, or faults.
fn run_wave(wave: &mut Wave, env: &mut Env<'_>, executed: &mut Executed) -> Result<(), Fault> {
    let code = env.code;
    let mut left = WAVE_SLICE;
    let mut announced = false;
    let mut interpreted = 0;
    let mut result = Ok(());
    while left > 0 {
        let outcome = match code.native.entry(wave.pc, wave.wave_size).filter(|_| native::is_usual(wave)) {
            Some(entry) => native::run(entry, wave, env, &mut left, &mut executed.lane_operations),
            None => {
                if !announced {
                    announced = true;
                    // The wavefronts of a workgroup usually run the same code.
                    if executed.interpreted == 0 || code.native.is_eager() {
                        executed.interpretation = code.native.begin(code, wave.pc, env.dispatch.entry, wave.wave_size);
                        continue;
                    }
                }
                left -= 1;
                interpreted += 1;
                interpret(wave, env, &mut executed.lane_operations)
            }
        };
        match outcome {
            Outcome::Continue => {}
            Outcome::Yield => {
                result = env.serve_hostcalls();
                break;
            }
            Outcome::Stop => break,
            Outcome::Fault => {
                result = Err(env.fault.take().unwrap_or_else(|| {
                    let location = env.location_at(wave, wave.pc);
                    Fault::Illegal { location, what: "internal error: the instruction failed without reporting a reason".to_owned() }
                }));
                break;
            }
        }
    }
    executed.interpreted += interpreted;
    executed.instructions += (WAVE_SLICE - left) as u64;
    result
}

/// Executes one instruction.
#[inline(always)]
pub fn interpret(wave: &mut Wave, env: &mut Env<'_>, lane_operations: &mut u64) -> Outcome {
    let Some(step) = env.code.step(wave.pc) else {
        let location = env.location_at(wave, wave.pc);
        env.fault = Some(Fault::Illegal { location, what: "execution ran past the end of the code".to_owned() });
        return Outcome::Fault;
    };
    wave.pc += usize::from(step.inst.words);
    if step.vector {
        *lane_operations += u64::from(wave.active_lanes);
    }
    if wave.gpr_indexing && step.vector {
        let step = apply_gpr_indexing(wave, step);
        // SAFETY: the handler was compiled for the CPU's SIMD level.
        return unsafe { (step.run)(wave, &step, env) };
    }
    // SAFETY: the handler was compiled for the CPU's SIMD level.
    unsafe { (step.run)(wave, step, env) }
}

/// Returns the instruction with M0's index added to the VGPR operands that M0's mode bits select. Memory instructions are not indexed.
#[cold]
fn apply_gpr_indexing(wave: &Wave, step: &Step) -> Step {
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
