//! Native code against the interpreter: random programs give the same registers, LDS, memory, scratch and faults in both.
//!
//! Most programs are straight-line code; every fourth one has branches and loops. Each runs from eight states.
//! `WARPWAVE_FUZZ_SECONDS` sets the duration (default 5; 60 in the full suite). With `WARPWAVE_FUZZ_INSTRUCTIONS` or
//! `WARPWAVE_FUZZ_PROGRAMS` it runs instead until each architecture had as many instructions (each execution from a state counts) and
//! straight-line programs. `WARPWAVE_FUZZ_ARCH` chooses one architecture, `WARPWAVE_SEED` repeats a run.

// Lanes are indices.
#![allow(clippy::needless_range_loop)]

mod generate;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use generate::{ADDRESS, BUFFER, OFFSET, Part, RESOURCE, Random, SMALL, assemble, is_excluded, parts, shorter};
use warpwave_test_support::{full_run, seed};
use warpwave_vgpu::arch::WaveSize;
use warpwave_vgpu::exec::{TestProgram, TestWave, is_executed};
use warpwave_vgpu::isa::{InstDesc, decode, disassemble, inst_descs};
use warpwave_vgpu::memory::{Allocation, MemoryKind};
use warpwave_vgpu::{Arch, Target};

/// Dwords of the memory that programs may access.
const BUFFER_WORDS: usize = 1024;

/// The start of a program: registers and memory.
struct Start {
    vgprs: Vec<[u32; 64]>,
    sgprs: Vec<u32>,
    exec: u64,
    scc: bool,
    memory: Vec<u32>,
    /// Whether the buffer resource describes the wavefront's scratch.
    in_scratch: bool,
}

impl Start {
    fn new(random: &mut Random, buffer: u64) -> Start {
        let (uniform, in_scratch) = (random.chance(3), random.chance(4));
        let mut vgprs: Vec<[u32; 64]> = (0..64)
            .map(|_| {
                let same = random.value();
                std::array::from_fn(|_| if uniform { same } else { random.value() })
            })
            .collect();
        // Adjacent, equal, or any addresses.
        // Unaligned accesses fault on some architectures, which ends the program.
        let align = if random.chance(16) { 1 } else { 16 };
        let stride = random.of(&[0u32, 1, 2, 4, 8, 16, 5]).next_multiple_of(align.min(8));
        let arbitrary = random.chance(4);
        for lane in 0..64 {
            let offset = if arbitrary { random.below(2048) as u32 / align * align } else { stride * lane as u32 };
            let offset = if random.chance(20_000) && !in_scratch { random.next() as u32 } else { offset };
            let address = buffer + u64::from(offset % 2048);
            vgprs[ADDRESS as usize][lane] = address as u32;
            vgprs[ADDRESS as usize + 1][lane] = (address >> 32) as u32;
            vgprs[OFFSET as usize][lane] = offset;
        }
        let mut sgprs: Vec<u32> = (0..64).map(|_| random.value()).collect();
        sgprs[BUFFER as usize] = buffer as u32;
        sgprs[BUFFER as usize + 1] = (buffer >> 32) as u32;
        let resource = [buffer as u32, (buffer >> 32) as u32, 4 * BUFFER_WORDS as u32, 0];
        sgprs[RESOURCE as usize..][..4].copy_from_slice(&resource);
        sgprs[SMALL as usize] = 16 * random.below(16) as u32;
        let exec = match random.below(4) {
            0 | 1 => u64::MAX,
            2 => (1u64 << random.below(64)) - 1,
            _ => random.next() & random.next(),
        };
        let memory = (0..BUFFER_WORDS).map(|_| random.value()).collect();
        Start { vgprs, sgprs, exec, scc: random.chance(2), memory, in_scratch }
    }
}

/// Everything a program can change.
#[derive(PartialEq)]
struct End {
    /// The lanes of 512 vector registers, then the scalar registers and SCC.
    registers: Vec<u32>,
    memory: Vec<u32>,
    lds: Vec<u8>,
    scratch: Vec<u32>,
    result: Result<(), String>,
}

/// Dwords of scratch that programs reach, of all lanes.
const SCRATCH_WORDS: usize = 640 * 64;

impl End {
    fn of(wave: &mut TestWave, memory: Vec<u32>, result: Result<(), String>) -> End {
        let mut registers = Vec::with_capacity(64 * COMPARED + 129);
        (0..COMPARED).for_each(|n| registers.extend(wave.v(n)));
        registers.extend((0..128).map(|n| wave.s(n)));
        registers.push(u32::from(wave.scc()));
        End { registers, memory, lds: wave.lds().to_vec(), scratch: wave.scratch().to_vec(), result }
    }
}

/// Vector registers that are compared, with accumulation registers.
const COMPARED: usize = 512;

/// Returns the name of a compared value.
fn register_name(at: usize) -> String {
    match at.checked_sub(64 * COMPARED) {
        None => format!("v{} in lane {}", at / 64, at % 64),
        Some(128) => "scc".to_owned(),
        Some(n) => format!("s{n}"),
    }
}

/// Returns what LDS holds at the start.
fn lds_pattern() -> &'static [u8] {
    static PATTERN: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    PATTERN.get_or_init(|| (0..64 << 10).map(|n| (n * 37 / 8) as u8).collect())
}

/// A wavefront for each mode, used for all programs of a target: they are large.
struct Waves {
    target: Target,
    modes: [TestWave; 2],
}

impl Waves {
    fn new(target: Target) -> Waves {
        let wave = || if target.wave_size == WaveSize::Wave32 { TestWave::wave32(target.arch) } else { TestWave::new(target.arch) };
        Waves { target, modes: [wave(), wave()] }
    }

    /// Runs a program interpreted and natively. Returns the ends if they differ; whether the program ran to its end otherwise.
    fn compare(&mut self, program: &TestProgram, start: &Start, buffer: &mut [u32]) -> Result<bool, Box<[End; 2]>> {
        let [interpreted, native] = &mut self.modes;
        let one = run(interpreted, program, start, buffer, self.target.wave_size, false);
        let memory = buffer.to_vec();
        let other = run(native, program, start, buffer, self.target.wave_size, true);
        if one == other && memory == buffer && interpreted.is_same(native) {
            return Ok(one.is_ok());
        }
        Err(Box::new([End::of(interpreted, memory, one), End::of(native, buffer.to_vec(), other)]))
    }
}

/// Sets a wavefront and the buffer to the start of a program, and runs it.
fn run(
    wave: &mut TestWave,
    program: &TestProgram,
    start: &Start,
    buffer: &mut [u32],
    wave_size: WaveSize,
    native: bool,
) -> Result<(), String> {
    buffer.copy_from_slice(&start.memory);
    let address = buffer.as_mut_ptr() as u64;
    let allocation = Allocation { start: address, bytes: 4 * buffer.len() as u64, kind: MemoryKind::Registered, read_only: false };
    // SAFETY: the buffer outlives the registration, and is not accessed while the program runs.
    unsafe { wave.memory().register(allocation) };
    for (n, values) in start.vgprs.iter().enumerate() {
        wave.set_v(n, *values);
        wave.set_v(256 + n, *values);
    }
    for n in 0..128 {
        wave.set_s(n, start.sgprs.get(usize::from(n)).copied().unwrap_or(0));
    }
    wave.set_s(106, start.sgprs[0]);
    wave.set_s(107, start.sgprs[1]);
    wave.set_exec(start.exec);
    wave.set_scc(start.scc);
    wave.lds().copy_from_slice(lds_pattern());
    let scratch = wave.scratch();
    let used = scratch.len().min(SCRATCH_WORDS);
    scratch[..used].fill(0);
    let base = scratch.as_ptr() as u64;
    let in_scratch = start.in_scratch && !scratch.is_empty();
    if in_scratch {
        // As the driver describes it: swizzled, with the lane number as the index, 32 or 64 of which are interleaved.
        let interleaved = if wave_size == WaveSize::Wave32 { 2 } else { 3 };
        let resource = [base as u32, (base >> 32) as u32 | 1 << 31, u32::MAX, interleaved << 21 | 1 << 23];
        (0..4).for_each(|n| wave.set_s(RESOURCE as u16 + n, resource[usize::from(n)]));
    }
    let result = if native { wave.run_native(program).map(drop) } else { wave.run_program(program) };
    wave.memory().unregister(address);
    if in_scratch {
        // Each wavefront has scratch of its own: neither its address nor faults that state one are compared.
        (0..4).for_each(|n| wave.set_s(RESOURCE as u16 + n, 0));
        return result.map_err(|_| "fault".to_owned());
    }
    // The nearest allocation may be of the launch itself.
    result.map_err(|fault| fault.to_string().split(", outside every").next().unwrap_or_default().to_owned())
}

/// Returns whether all differences are NaNs with different payloads: which of two NaNs an operation returns depends on how the compiler
/// ordered the operands of the interpreter's function.
fn only_nans_differ(interpreted: &End, native: &End) -> bool {
    let is_nan = |bits: u32| bits & 0x7fff_ffff > 0x7f80_0000;
    let is_half_nan = |bits: u32| bits & 0x7fff > 0x7c00;
    let same_halves = |a: u32, b: u32| {
        [0, 16].iter().all(|n| {
            let (a, b) = (a >> n & 0xffff, b >> n & 0xffff);
            a == b || is_half_nan(a) && is_half_nan(b)
        })
    };
    let is_wide_nan = |end: &End, at: usize| end.registers.get(at).is_some_and(|bits| bits & 0x7fff_ffff >= 0x7ff0_0000);
    interpreted.result == native.result
        && interpreted.memory == native.memory
        && interpreted.lds == native.lds
        && interpreted.scratch == native.scratch
        && interpreted.registers.iter().zip(&native.registers).enumerate().all(|(at, (&a, &b))| {
            // The high half of an f64 is in the same lane of the next register.
            let wide = |at| is_wide_nan(interpreted, at) && is_wide_nan(native, at);
            a == b || at < 64 * COMPARED && (is_nan(a) && is_nan(b) || same_halves(a, b) || wide(at) || wide(at + 64))
        })
}

/// Describes the first difference.
fn difference(interpreted: &End, native: &End) -> String {
    if interpreted.result != native.result {
        return format!("interpreted: {:?}, native: {:?}", interpreted.result, native.result);
    }
    if let Some(at) = (0..interpreted.registers.len()).find(|&at| interpreted.registers[at] != native.registers[at]) {
        let (one, other) = (interpreted.registers[at], native.registers[at]);
        return format!("{}: interpreted {one:#x}, native {other:#x}", register_name(at));
    }
    "memory, LDS or scratch".to_owned()
}

/// Returns the ends of a program in both modes if they differ.
fn differ(waves: &mut Waves, parts: &[Part], start: &Start, buffer: &mut [u32]) -> Option<Box<[End; 2]>> {
    waves.compare(&program(waves.target.arch, parts), start, buffer).err()
}

/// Returns a program, with an instruction at its end to branch to.
fn program(arch: Arch, parts: &[Part]) -> TestProgram {
    const S_NOP: u32 = 0xbf80_0000;
    let mut words = assemble(arch, parts);
    words.push(S_NOP);
    TestProgram::new(arch, &words)
}

/// Removes parts as long as the ends still differ.
fn shrink(waves: &mut Waves, mut program: Vec<Part>, start: &Start, buffer: &mut [u32]) -> Vec<Part> {
    while let Some(shorter) = shorter(&program).into_iter().find(|parts| differ(waves, parts, start, buffer).is_some()) {
        program = shorter;
    }
    program
}

/// Describes a program whose ends differ; `None` if NaNs are the reason, whose payloads programs store and compute with.
fn failure(waves: &mut Waves, program: Vec<Part>, start: &Start, buffer: &mut [u32]) -> Option<String> {
    let target = waves.target;
    let program = shrink(waves, program, start, buffer);
    let [interpreted, native] = *differ(waves, &program, start, buffer)?;
    if only_nans_differ(&interpreted, &native) {
        return None;
    }
    let words = assemble(target.arch, &program);
    let (mut text, mut at) = (Vec::new(), 0);
    while let Ok(inst) = decode(target.arch, words.get(at..).unwrap_or_default()) {
        text.push(disassemble(target, &inst, None));
        at += usize::from(inst.words);
    }
    let what = difference(&interpreted, &native);
    Some(format!("{}, {:?}, exec {:#x}:\n    {}\n  {what}", target.arch, target.wave_size, start.exec, text.join("\n    ")))
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not an integer")))
}

/// When to end.
struct Goal {
    /// The end, unless there is something to reach.
    until: Option<Instant>,
    /// Instructions and straight-line programs of each architecture.
    instructions: u64,
    programs: u64,
}

impl Goal {
    fn from_env() -> Goal {
        let (instructions, programs) = (number("WARPWAVE_FUZZ_INSTRUCTIONS"), number("WARPWAVE_FUZZ_PROGRAMS"));
        let seconds = number("WARPWAVE_FUZZ_SECONDS").unwrap_or(if full_run() { 60 } else { 5 });
        let until = (instructions.is_none() && programs.is_none()).then(|| Instant::now() + Duration::from_secs(seconds));
        Goal { until, instructions: instructions.unwrap_or(0), programs: programs.unwrap_or(0) }
    }

    /// Returns whether no further program of an architecture is needed.
    fn is_reached(&self, counts: &Counts) -> bool {
        match self.until {
            Some(until) => Instant::now() >= until,
            None => {
                counts.instructions.load(Ordering::Relaxed) >= self.instructions && counts.programs.load(Ordering::Relaxed) >= self.programs
            }
        }
    }
}

/// What had the same effect in both modes.
#[derive(Default)]
struct Counts {
    /// Straight-line programs, and their instructions from each state from which they ran to their end.
    programs: AtomicU64,
    instructions: AtomicU64,
    /// Programs with branches and loops.
    branching: AtomicU64,
}

/// States from which a program runs.
const STARTS: usize = 8;

/// What a thread needs for its programs.
struct Worker {
    waves: Vec<Waves>,
    buffer: Vec<u32>,
}

impl Worker {
    /// Runs a random program. Returns a description if its effects differ.
    fn try_one(&mut self, arch: Arch, rows: &[&InstDesc], counts: &Counts, random: &mut Random) -> Option<String> {
        let target = Target { arch, wave_size: random.of(arch.wave_sizes()) };
        let known = self.waves.iter().position(|waves| waves.target == target);
        let at = known.unwrap_or_else(|| {
            self.waves.push(Waves::new(target));
            self.waves.len() - 1
        });
        let (waves, buffer) = (&mut self.waves[at], &mut self.buffer);
        let longest = random.of(&[40, 200]);
        let length = 1 + random.below(longest);
        let levels = if random.chance(4) { 3 } else { 0 };
        let parts = parts(arch, rows, length, levels, random);
        let program = program(arch, &parts);
        for _ in 0..STARTS {
            let start = Start::new(random, buffer.as_ptr() as u64);
            match waves.compare(&program, &start, buffer) {
                Ok(true) if levels == 0 => _ = counts.instructions.fetch_add(length as u64, Ordering::Relaxed),
                Ok(_) => {}
                Err(ends) if only_nans_differ(&ends[0], &ends[1]) => {}
                Err(_) => {
                    if let Some(text) = failure(waves, parts.clone(), &start, buffer) {
                        return Some(text);
                    }
                }
            }
        }
        let counter = if levels == 0 { &counts.programs } else { &counts.branching };
        counter.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// Returns whether this machine has native code.
fn has_native_code() -> bool {
    let program = TestProgram::new(Arch::Gfx90a, &[0]);
    matches!(TestWave::new(Arch::Gfx90a).run_native(&program), Ok(true) | Err(_))
}

#[test]
fn random_programs_have_the_same_effect() {
    if !has_native_code() {
        println!("no native code on this machine");
        return;
    }
    let (seed, goal) = (seed(), Goal::from_env());
    let only: Option<Arch> = std::env::var("WARPWAVE_FUZZ_ARCH").ok().map(|name| name.parse().expect("WARPWAVE_FUZZ_ARCH"));
    let architectures: Vec<(Arch, Vec<&InstDesc>, Counts)> = Arch::ALL
        .into_iter()
        .filter(|arch| only.is_none_or(|only| only == *arch))
        .map(|arch| {
            let rows = inst_descs().iter().filter(|row| row.supports(arch) && is_executed(row) && !is_excluded(row));
            (arch, rows.collect(), Counts::default())
        })
        .collect();
    let (next, failures) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let work = || {
        let mut worker = Worker { waves: Vec::new(), buffer: vec![0; BUFFER_WORDS] };
        while failures.lock().unwrap().len() < 8 && !architectures.iter().all(|(.., counts)| goal.is_reached(counts)) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (arch, rows, counts) = &architectures[at as usize % architectures.len()];
            if !goal.is_reached(counts) {
                let wrong = worker.try_one(*arch, rows, counts, &mut Random::of_program(seed, at));
                failures.lock().unwrap().extend(wrong);
            }
        }
    };
    std::thread::scope(|scope| (0..std::thread::available_parallelism().map_or(1, usize::from)).for_each(|_| _ = scope.spawn(work)));
    for (arch, _, counts) in &architectures {
        let [programs, instructions, branching] =
            [&counts.programs, &counts.instructions, &counts.branching].map(|count| count.load(Ordering::Relaxed));
        println!("{arch}: {instructions} instructions in {programs} straight-line programs, {branching} programs with branches");
    }
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    // Native code is never writable while it is executable.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    assert!(!maps.lines().any(|line| line.contains(" rwx")), "{maps}");
}
