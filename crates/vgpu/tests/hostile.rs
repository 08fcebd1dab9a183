//! Fuzzing: malformed code objects and random machine code give an error, never a crash, and never access memory outside of what they
//! were given, nor run beyond their limit.
//!
//! `WARPWAVE_FUZZ_SECONDS` sets the duration (default 5; 60 in the full suite, with a random seed), `WARPWAVE_FUZZ_ARCH` chooses one
//! architecture, `WARPWAVE_SEED` repeats a run. The code objects that are changed are compiled with clang, or are the files
//! `NAME.ARCHITECTURE.hsaco` of the folder `WARPWAVE_FUZZ_OBJECTS`.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use warpwave_test_support::{Random, full_run, seed};
use warpwave_vgpu::Arch;
use warpwave_vgpu::code_object::{Kernel, LoadedCodeObject};
use warpwave_vgpu::exec::{Launch, Limit, launch};
use warpwave_vgpu::memory::{Allocation, Memory, MemoryKind};

fn duration() -> Duration {
    let given = std::env::var("WARPWAVE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(if full_run() { 60 } else { 5 }))
}

/// Bytes of the memory that kernels may access: whole pages.
const BYTES: usize = 16 << 10;
/// Instructions after which a kernel is stopped, and the time that this takes at most on a busy machine.
const LIMIT: u64 = 20_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Memory between pages that cannot be accessed: reads and writes beyond its ends crash the test.
struct Fenced(*mut u8);

impl Fenced {
    fn new() -> Fenced {
        // SAFETY: an anonymous mapping at an address that the system chooses affects no other memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), 3 * BYTES, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let inner = start.cast::<u8>().wrapping_add(BYTES);
        // SAFETY: the range is within the mapping.
        assert_eq!(unsafe { libc::mprotect(inner.cast(), BYTES, libc::PROT_READ | libc::PROT_WRITE) }, 0);
        Fenced(inner)
    }

    fn address(&self) -> u64 {
        self.0 as u64
    }

    /// Fills it with small floats.
    fn fill(&mut self) {
        for n in 0..BYTES / 4 {
            // SAFETY: the range is mapped, and nothing else accesses it between launches.
            unsafe { self.0.cast::<u32>().add(n).write((n as f32 / 64.0).to_bits()) };
        }
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.0.wrapping_sub(BYTES).cast(), 3 * BYTES) };
    }
}

/// Arguments of a kernel: the memory for each pointer, small integers for other values.
fn arguments(kernel: &Kernel, address: u64, random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0; kernel.descriptor.kernarg_size.min(4096) as usize];
    for argument in kernel.arguments.iter().filter(|argument| !argument.is_hidden()) {
        let value = if argument.value_kind == "global_buffer" { address } else { random.below(200) as u64 };
        let (from, size) = (argument.offset as usize, (argument.size as usize).min(8));
        if let Some(to) = bytes.get_mut(from..from.saturating_add(size)) {
            to.copy_from_slice(&value.to_le_bytes()[..size]);
        }
    }
    bytes
}

/// Loads `bytes` and launches every kernel. Returns the kernels that loaded and that ended.
fn run(bytes: &[u8], arch: Arch, block: &mut Fenced, random: &mut Random) -> (usize, usize) {
    let memory = Arc::new(Memory::new());
    let Ok(program) = LoadedCodeObject::load(bytes, arch, 0, &memory) else { return (0, 0) };
    let allocation = Allocation { start: block.address(), bytes: BYTES as u64, kind: MemoryKind::Registered, read_only: false };
    // SAFETY: the block lives until it is unregistered, and is not accessed while kernels run.
    unsafe { memory.register(allocation) };
    block.fill();
    let mut ended = 0;
    for kernel in &program.kernels {
        let threads = *random.pick(&[64, 64, 32, 256, 100]);
        let launch_of = Launch {
            grid: [2, 1, 1],
            block: [threads, 1, 1],
            dynamic_lds: 256,
            arguments: arguments(kernel, block.address(), random),
            cooperative: false,
        };
        let result = launch(&program, kernel, &launch_of, &memory, Limit::Instructions(LIMIT), &|_| {});
        ended += usize::from(result.is_ok());
        // Every fault can be formatted.
        if let Err(fault) = result {
            assert!(!fault.to_string().is_empty());
        }
    }
    let loaded = program.kernels.len();
    drop(program);
    memory.unregister(block.address());
    (loaded, ended)
}

/// Mutates bytes between `from` and `to`: bits, bytes, words, copied runs.
fn mutate(bytes: &mut [u8], from: usize, to: usize, random: &mut Random) {
    for _ in 0..1 + random.below(16) {
        let at = from + random.below(to - from);
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next_u32() as u8,
            2 | 3 => {
                let word = random.next_u32();
                let at = at & !3;
                if at + 4 <= to {
                    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
                }
            }
            4 => {
                let (length, other) = (random.below(32).min(to - at), from + random.below(to - from));
                let run = bytes[other..(other + length).min(to)].to_vec();
                let length = run.len().min(to - at);
                bytes[at..at + length].copy_from_slice(&run[..length]);
            }
            _ => bytes[at] = *random.pick(&[0, 0xff, 0x7f, 0x80]),
        }
    }
}

/// Returns the code objects to change.
fn objects() -> Vec<(Arch, Vec<u8>)> {
    let only: Option<Arch> = std::env::var("WARPWAVE_FUZZ_ARCH").ok().map(|name| name.parse().expect("WARPWAVE_FUZZ_ARCH"));
    let wanted = |arch: &Arch| only.is_none_or(|only| only == *arch);
    let Some(folder) = std::env::var_os("WARPWAVE_FUZZ_OBJECTS") else {
        let wanted = Arch::ALL.into_iter().filter(wanted);
        return wanted.filter_map(|arch| Some((arch, common::compile(arch.name(), &[])?))).collect();
    };
    let mut objects: Vec<(Arch, Vec<u8>)> = Vec::new();
    for entry in std::fs::read_dir(folder).expect("WARPWAVE_FUZZ_OBJECTS").flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let Some(arch) = name.strip_suffix(".hsaco").and_then(|name| name.rsplit('.').next()?.parse().ok()) else { continue };
        if wanted(&arch) {
            objects.push((arch, std::fs::read(entry.path()).unwrap()));
        }
    }
    assert!(!objects.is_empty(), "WARPWAVE_FUZZ_OBJECTS has no code objects");
    objects.sort();
    objects
}

/// Counters of a run.
#[derive(Default)]
struct Counts {
    cases: AtomicU64,
    loaded: AtomicUsize,
    ended: AtomicUsize,
}

/// Changes and runs code objects until the time is over. `started` is when the current case began.
fn worker(objects: &[(Arch, Vec<u8>)], seed: u64, until: Instant, counts: &Counts, started: &Mutex<Instant>) {
    let mut block = Fenced::new();
    while Instant::now() < until {
        let case = counts.cases.fetch_add(1, Ordering::Relaxed);
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(case));
        let (arch, original) = random.pick(objects);
        let mut bytes = original.clone();
        // Mostly the code itself, sometimes the whole file.
        let (from, to) = if random.below(4) == 0 { (0, bytes.len()) } else { text_of(original) };
        mutate(&mut bytes, from, to, &mut random);
        if random.below(32) == 0 {
            bytes.truncate(random.below(original.len()));
        }
        *started.lock().unwrap() = Instant::now();
        let (loaded, ended) = run(&bytes, *arch, &mut block, &mut random);
        counts.loaded.fetch_add(loaded, Ordering::Relaxed);
        counts.ended.fetch_add(ended, Ordering::Relaxed);
    }
}

#[test]
fn mutated_machine_code_is_harmless() {
    let objects = objects();
    if objects.is_empty() {
        return;
    }
    // The same cases in every short run, unless a seed is given.
    let seed = if full_run() || std::env::var_os("WARPWAVE_SEED").is_some() { seed() } else { 1 };
    for (arch, bytes) in &objects {
        let loaded = run(bytes, *arch, &mut Fenced::new(), &mut Random::new(seed)).0;
        assert!(loaded > 0, "{arch}: the code object is right before it is changed");
    }
    let (until, counts, over) = (Instant::now() + duration(), Counts::default(), AtomicBool::new(false));
    let running: Vec<_> = (0..std::thread::available_parallelism().map_or(1, usize::from)).map(|_| Mutex::new(Instant::now())).collect();
    std::thread::scope(|scope| {
        let workers: Vec<_> = running.iter().map(|started| scope.spawn(|| worker(&objects, seed, until, &counts, started))).collect();
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if running.iter().any(|started| started.lock().unwrap().elapsed() > PATIENCE) {
                    eprintln!("a kernel does not end: one of the {} cases of seed {seed}", counts.cases.load(Ordering::Relaxed));
                    std::process::abort();
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        over.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    let (cases, loaded, ended) = (counts.cases.into_inner(), counts.loaded.into_inner(), counts.ended.into_inner());
    println!("{cases} code objects, {loaded} kernels loaded, {ended} ran to their end");
    assert!(cases > 20 && loaded as u64 > cases, "most changed code objects still load");
}

/// Returns the file range of the executable code.
fn text_of(bytes: &[u8]) -> (usize, usize) {
    use object::{Object as _, ObjectSection as _};
    let file = object::File::parse(bytes).unwrap();
    let (start, size) = file.section_by_name(".text").and_then(|section| section.file_range()).unwrap();
    (start as usize, (start + size) as usize)
}

/// The same with native code, which is checked like the interpreter.
#[test]
fn mutated_machine_code_is_harmless_as_native_code() {
    const MODE: &str = "WARPWAVE_VGPU_NATIVE";
    if std::env::var_os(MODE).is_some_and(|mode| mode == "always") {
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap()).arg("--nocapture").env(MODE, "always").output().unwrap();
    let (output, errors) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success(), "{}\n{output}\n{errors}", child.status);
    println!("native code: {}", output.lines().find(|line| line.contains("code objects")).unwrap_or_default());
}
