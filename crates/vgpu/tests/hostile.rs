//! Fuzzing: malformed code objects and random machine code give an error, never a crash, and never write outside the given memory.
//!
//! `WARPWAVE_FUZZ_SECONDS` sets the duration (default 5; 60 in the full suite, with a random seed), `WARPWAVE_SEED` repeats a run.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpwave_test_support::{full_run, seed};
use warpwave_vgpu::Arch;
use warpwave_vgpu::code_object::LoadedCodeObject;
use warpwave_vgpu::exec::{Launch, Limit, launch};
use warpwave_vgpu::memory::{Allocation, Memory, MemoryKind};

/// A random number generator; the seed is printed.
struct Random(u64);

impl Random {
    fn new() -> Random {
        // The same cases in every short run, unless a seed is given.
        let seed = if full_run() || std::env::var_os("WARPWAVE_SEED").is_some() { seed() } else { 1 };
        // The generator has no state 0.
        Random(seed.max(1))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n.max(1)
    }
}

fn duration() -> Duration {
    let given = std::env::var("WARPWAVE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(if full_run() { 60 } else { 5 }))
}

const WORDS: usize = 4096;
const GUARD: u32 = 0x5eed_5eed;

/// Loads `bytes` and launches every kernel, with guards around its memory. Returns the kernels that loaded and that ended.
fn run(bytes: &[u8], arch: Arch) -> (usize, usize) {
    let memory = Arc::new(Memory::new());
    let Ok(program) = LoadedCodeObject::load(bytes, arch, 0, &memory) else { return (0, 0) };
    // Guards on both sides of the memory that the kernel may write.
    let mut block = vec![GUARD; 3 * WORDS];
    let inner = block[WORDS..].as_mut_ptr() as u64;
    let allocation = Allocation { start: inner, bytes: 4 * WORDS as u64, kind: MemoryKind::Registered, read_only: false };
    // SAFETY: the block lives until it is unregistered, and is not accessed while kernels run.
    unsafe { memory.register(allocation) };
    let mut ended = 0;
    for kernel in &program.kernels {
        let mut arguments = inner.to_le_bytes().to_vec();
        arguments.extend([0, 0, 128, 63]);
        arguments.extend((WORDS as u32).to_le_bytes());
        arguments.resize(arguments.len().max(kernel.descriptor.kernarg_size.min(4096) as usize), 0);
        let launch_of = Launch { grid: [2, 1, 1], block: [64, 1, 1], dynamic_lds: 256, arguments, cooperative: false };
        let result = launch(&program, kernel, &launch_of, &memory, Limit::Instructions(20_000), &|_| {});
        ended += usize::from(result.is_ok());
        // Every fault can be formatted.
        if let Err(fault) = result {
            assert!(!fault.to_string().is_empty());
        }
    }
    let loaded = program.kernels.len();
    drop(program);
    memory.unregister(inner);
    let outside = block[..WORDS].iter().chain(&block[2 * WORDS..]);
    assert!(outside.copied().all(|word| word == GUARD), "a kernel wrote outside its memory");
    (loaded, ended)
}

/// Mutates bytes between `from` and `to`: bits, bytes, words, copied runs.
fn mutate(bytes: &mut [u8], from: usize, to: usize, random: &mut Random) {
    for _ in 0..1 + random.below(16) {
        let at = from + random.below(to - from);
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 | 3 => {
                let word = random.next() as u32;
                let at = at & !3;
                if at + 4 <= to {
                    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
                }
            }
            4 => {
                let (length, other) = (random.below(32).min(to - at), from + random.below(to - from));
                let run = bytes[other..(other + length).min(to)].to_vec();
                bytes[at..at + run.len()].copy_from_slice(&run);
            }
            _ => bytes[at] = [0, 0xff, 0x7f, 0x80][random.below(4)],
        }
    }
}

#[test]
fn mutated_machine_code_is_harmless() {
    let mut random = Random::new();
    let objects: Vec<(Arch, Vec<u8>)> = Arch::ALL.into_iter().filter_map(|arch| Some((arch, common::compile(arch.name(), &[])?))).collect();
    if objects.is_empty() {
        return;
    }
    for (arch, bytes) in &objects {
        assert!(run(bytes, *arch).0 > 0, "{arch}: the code object is right before it is changed");
    }
    let start = Instant::now();
    let (mut cases, mut loaded, mut ended) = (0, 0, 0);
    while start.elapsed() < duration() {
        let (arch, original) = &objects[random.below(objects.len())];
        let mut bytes = original.clone();
        // Mostly the code itself, sometimes the whole file.
        let text = text_of(original);
        let (from, to) = if random.below(4) == 0 { (0, bytes.len()) } else { text };
        mutate(&mut bytes, from, to, &mut random);
        if random.below(32) == 0 {
            bytes.truncate(random.below(original.len()));
        }
        let (more_loaded, more_ended) = run(&bytes, *arch);
        (cases, loaded, ended) = (cases + 1, loaded + more_loaded, ended + more_ended);
    }
    println!("{cases} code objects, {loaded} kernels loaded, {ended} ran to their end");
    assert!(cases > 20 && loaded > cases, "most changed code objects still load");
}

/// Returns the file range of the executable code.
fn text_of(bytes: &[u8]) -> (usize, usize) {
    use object::{Object as _, ObjectSection as _};
    let file = object::File::parse(bytes).unwrap();
    let (start, size) = file.section_by_name(".text").and_then(|section| section.file_range()).unwrap();
    (start as usize, (start + size) as usize)
}
