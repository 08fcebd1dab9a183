//! Hostcalls with AMD's device library: printf, assert, malloc; and grid barriers.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use warpwave_test_support::{full_run, seed};
use warpwave_vgpu::Arch;
use warpwave_vgpu::arch::Generation;
use warpwave_vgpu::code_object::LoadedCodeObject;
use warpwave_vgpu::exec::{self, Launch, Limit, Stats};
use warpwave_vgpu::fault::Fault;
use warpwave_vgpu::memory::{Memory, MemoryKind};

const SOURCE: &str = include_str!("kernels/hostcall.hip");

/// Returns the architectures to test: all of them, or three that a seed selects, with one of RDNA at least.
fn archs() -> Vec<Arch> {
    static CHOSEN: OnceLock<Vec<Arch>> = OnceLock::new();
    let choose = || {
        if let Some(folder) = std::env::var_os(INSIDE) {
            return Arch::ALL.into_iter().filter(|arch| Path::new(&folder).join(arch.name()).exists()).collect();
        }
        if full_run() {
            return Arch::ALL.to_vec();
        }
        let (gfx9, rdna): (Vec<Arch>, Vec<Arch>) = Arch::ALL.into_iter().partition(|arch| !arch.is_rdna());
        let seed = seed() as usize;
        vec![gfx9[seed % gfx9.len()], rdna[seed / 7 % rdna.len()], rdna[(seed / 7 + 1) % rdna.len()]]
    };
    CHOSEN.get_or_init(choose).clone()
}

/// Returns the folder of AMD's device library.
fn library() -> Option<PathBuf> {
    let chosen = std::env::var_os("WARPWAVE_DEVICE_LIBS").map(PathBuf::from);
    let usual = ["/usr/lib/x86_64-linux-gnu/amdgcn/bitcode", "/opt/rocm/amdgcn/bitcode"].map(PathBuf::from);
    let found = chosen.into_iter().chain(usual).map(|folder| folder.join("ockl.bc")).find(|file| file.exists());
    warpwave_test_support::require(found.is_some(), "AMD's device library (apt install rocm-device-libs)");
    found
}

/// Set in the child processes that repeat these tests: the folder of their code objects.
const INSIDE: &str = "WARPWAVE_TEST_INSIDE";

fn compile(arch: Arch, more: &[&str]) -> Option<Vec<u8>> {
    let library = library()?;
    let version = match arch {
        Arch::Gfx906 => "-DISA=9006",
        Arch::Gfx908 => "-DISA=9008",
        Arch::Gfx90a => "-DISA=9010",
        Arch::Gfx942 => "-DISA=9402",
        Arch::Gfx1010 => "-DISA=10100",
        Arch::Gfx1030 => "-DISA=10300",
        Arch::Gfx1100 => "-DISA=11000",
        Arch::Gfx1201 => "-DISA=12001",
    };
    let wave64 = if arch.wave_size() == 64 { "-DWAVE64=1" } else { "-DWAVE64=0" };
    let library = library.to_string_lossy();
    let mut options = vec!["-std=c++17", version, wave64, "-Xclang", "-mlink-builtin-bitcode", "-Xclang", &library];
    options.extend(more);
    common::compile_text(SOURCE, arch.name(), &options)
}

/// Returns the kernels with default options, compiled once.
fn code(arch: Arch) -> Option<Vec<u8>> {
    static CODE: [OnceLock<Option<Vec<u8>>>; Arch::ALL.len()] = [const { OnceLock::new() }; Arch::ALL.len()];
    let make = || match std::env::var_os(INSIDE) {
        Some(folder) => Some(std::fs::read(Path::new(&folder).join(arch.name())).unwrap()),
        None => compile(arch, &[]),
    };
    CODE[arch as usize].get_or_init(make).clone()
}

/// The loaded kernels.
struct Loaded {
    program: LoadedCodeObject,
    memory: Arc<Memory>,
}

/// The result of a launch.
struct Ran {
    result: Result<Stats, Fault>,
    /// What it printed, call by call.
    printed: Vec<String>,
}

impl Ran {
    fn text(&self) -> String {
        assert!(self.result.is_ok(), "{}", self.result.as_ref().unwrap_err());
        self.printed.concat()
    }
}

impl Loaded {
    fn new(arch: Arch, more: &[&str]) -> Option<Loaded> {
        let code = if more.is_empty() { code(arch)? } else { compile(arch, more)? };
        let memory = Arc::new(Memory::new());
        let program = LoadedCodeObject::load(&code, arch, 0, &memory).unwrap();
        Some(Loaded { program, memory })
    }

    fn run(&self, kernel: &str, grid: u32, block: u32, cooperative: bool, arguments: &[u64]) -> Ran {
        let kernel = self.program.kernel(kernel).unwrap();
        let arguments = arguments.iter().flat_map(|word| word.to_le_bytes()).collect();
        let launch = Launch { grid: [grid, 1, 1], block: [block, 1, 1], dynamic_lds: 0, arguments, cooperative };
        let printed = Mutex::new(Vec::new());
        let print = |text: &str| printed.lock().unwrap().push(text.to_owned());
        let result = exec::launch(&self.program, kernel, &launch, &self.memory, Limit::Time(Duration::from_secs(300)), &print);
        Ran { result, printed: printed.into_inner().unwrap() }
    }

    fn words(&self, count: usize) -> u64 {
        let start = self.memory.allocate(4 * count, MemoryKind::Device(0)).unwrap();
        // SAFETY: just allocated, of that size.
        unsafe { std::ptr::write_bytes(start as *mut u32, 0, count) };
        start
    }
}

fn read(start: u64, count: usize) -> Vec<u32> {
    // SAFETY: the tests read what they allocated, once no kernel runs.
    unsafe { std::slice::from_raw_parts(start as *const u32, count) }.to_vec()
}

/// Runs a test for each architecture with a global wave sync, which grid barriers of the device library use.
fn each_with_gws(test: impl Fn(&Loaded)) {
    each(|loaded| {
        if loaded.program.kernel("grid_sync").is_some() {
            test(loaded);
        }
    });
}

/// Runs a test for each architecture.
fn each(test: impl Fn(&Loaded)) {
    for arch in archs() {
        let Some(loaded) = Loaded::new(arch, &[]) else { return };
        test(&loaded);
    }
}

#[test]
fn every_printf_conversion_works() {
    let expected = "\
        d -42 +42 00042 i -7 u 4294967254\n\
        x 2a X 2A # 0x2a 0X2A o 52 #052\n\
        ld -5000000000 lld -9223372036854775808 lu 18446744073709551615 zu 7 jd -3 td 9 hd -1 hhu 255 hx ffff\n\
        c A s text p 0x1234 (nil) %\n\
        f 1.500000 F -2.250000 e 1.234500e+05 E 1.234500E-05 g 0.0001 G 1E+20 a 0x1.8p+1\n\
        [     1.500] [1.5       ] [0000001.50] [        hi] [hi        ] [he]\n\
        [      7] [7      ] [3.142] [hel]\n\
        float 0.100000 char z short -5\n";
    each(|loaded| assert_eq!(loaded.run("conversions", 1, 1, false, &[]).text(), expected));
}

#[test]
fn printf_takes_up_to_twenty_arguments_and_returns_the_length() {
    each(|loaded| {
        let out = loaded.words(2);
        let ran = loaded.run("counts", 1, 1, false, &[out]);
        assert_eq!(ran.text(), "nothing else\n1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20\n");
        assert_eq!(read(out, 2), [13, 51]);
    });
}

#[test]
fn strings_of_any_length_arrive_complete() {
    let line = |n: usize| (0..n).map(|i| char::from(b'a' + (i % 26) as u8)).collect::<String>();
    each(|loaded| {
        let text = loaded.memory.allocate(4096, MemoryKind::Device(0)).unwrap();
        for length in [0, 1, 6, 7, 8, 9, 54, 55, 56, 57, 111, 112, 113, 1000, 4000] {
            let bytes = line(length) + "\0";
            // SAFETY: the room is larger than every text.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), text as *mut u8, bytes.len()) };
            let ran = loaded.run("strings", 1, 1, false, &[text, length as u64]);
            assert_eq!(ran.text(), format!("{length}: <{}> and <{}> \n", line(length), line(length)));
        }
        let long = loaded.run("long_format", 1, 1, false, &[]).text();
        assert_eq!(long, format!("{}1{}2.5{}\n", line(100), line(100), line(100)));
    });
}

#[test]
fn every_lane_prints_complete_lines_in_order() {
    let (groups, items) = (7u32, 150u32);
    each(|loaded| {
        let ran = loaded.run("lanes", groups, items, false, &[]);
        let text = ran.text();
        let mut seen = std::collections::HashMap::<(u32, u32), Vec<u32>>::new();
        for line in text.lines() {
            let numbers: Vec<u32> = line.strip_prefix("at ").unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
            let [group, item, turn, check] = numbers[..] else { panic!("{line}") };
            assert_eq!(check, group * 1000 + item);
            seen.entry((group, item)).or_default().push(turn);
        }
        assert_eq!(seen.len(), (groups * items) as usize);
        assert!(seen.values().all(|turns| *turns == [0, 1, 2]));
        // One call of `print` for each printf.
        assert!(ran.printed.iter().all(|text| text.lines().count() == 1 && text.ends_with('\n')));
    });
}

#[test]
fn divergent_lanes_print_their_own_output() {
    each(|loaded| {
        let ran = loaded.run("divergent", 1, 64, false, &[]);
        ran.text();
        let mut lines = ran.printed;
        lines.sort();
        let mut expected: Vec<String> = (0..64).filter(|i| i % 3 == 0).map(|i| format!("three {i}\n")).collect();
        expected.extend((0..64).filter(|i| i % 3 == 1).map(|i| format!("one {i} of {:.1}\n", f64::from(i) / 2.0)));
        expected.push("last 63\n".to_owned());
        expected.extend((0..5).flat_map(|lane| (0..lane).map(move |n| format!("loop {lane} {n}\n"))));
        expected.sort();
        assert_eq!(lines, expected);
    });
}

#[test]
fn many_workgroups_print_with_packets_for_the_resident_ones() {
    let Some(loaded) = Loaded::new(archs()[0], &[]) else { return };
    let ran = loaded.run("one_line", 2000, 64, false, &[]);
    ran.text();
    let mut lines: Vec<u32> = ran.printed.iter().map(|line| line.trim().parse().unwrap()).collect();
    lines.sort_unstable();
    assert!(lines.into_iter().eq(0..2000));
}

#[test]
fn unoptimized_code_and_older_code_object_versions_print_too() {
    if std::env::var_os(INSIDE).is_some() {
        return;
    }
    for more in [&["-O0"][..], &["-mcode-object-version=4", "-DABI=400"], &["-mcode-object-version=6", "-DABI=600"]] {
        let Some(loaded) = Loaded::new(Arch::Gfx90a, more) else { return };
        assert_eq!(loaded.run("one_line", 3, 64, false, &[]).text().lines().count(), 3, "{more:?}");
    }
}

#[test]
fn a_failed_assertion_is_printed_and_part_of_the_fault() {
    each(|loaded| {
        let ran = loaded.run("asserts", 2, 64, false, &[41]);
        let words = "kernels.cu:7: asserts: Device-side assertion `x == 42' failed.";
        assert!(ran.printed.iter().any(|line| line.trim_end() == words), "{:?}", ran.printed);
        match ran.result {
            Err(Fault::Trap { message, .. }) => assert_eq!(message, words),
            other => panic!("{other:?}"),
        }
        assert!(loaded.run("asserts", 2, 64, false, &[42]).result.is_ok());
    });
}

#[test]
fn unknown_services_are_named() {
    each(|loaded| {
        for (service, words) in [(1u64, "host function"), (9, "service 9"), (2, "was never started")] {
            let ran = loaded.run("service", 3, 64, false, &[service, 7 << 8]);
            let fault = ran.result.unwrap_err();
            assert!(matches!(fault, Fault::Hostcall { .. }) && fault.to_string().contains(words), "{fault}");
        }
    });
}

#[test]
fn a_kernel_that_corrupts_the_buffer_affects_only_itself() {
    let Some(loaded) = Loaded::new(archs()[0], &[]) else { return };
    for (word, value) in [(4u64, u64::MAX), (4, 0x1_0000_0001), (3, u64::MAX), (5, u64::MAX), (0, 8), (1, 8), (2, 8)] {
        let kernel = loaded.program.kernel("spoils").unwrap();
        let arguments = [word, value].iter().flat_map(|word| word.to_le_bytes()).collect();
        let launch = Launch { grid: [2, 1, 1], block: [64, 1, 1], dynamic_lds: 0, arguments, cooperative: false };
        // It may end, fault or wait forever.
        let _ = exec::launch(&loaded.program, kernel, &launch, &loaded.memory, Limit::Instructions(1_000_000), &|_| ());
    }
    // The corruption ends with its launch.
    assert_eq!(loaded.run("one_line", 1, 64, false, &[]).text(), "0\n");
}

#[test]
fn workgroups_of_a_cooperative_launch_synchronize() {
    for (kernel, groups, items) in [("grid_sync", 40, 130), ("grid_sync", 600, 64), ("grid_sync", 1, 64), ("multi_grid_sync", 40, 130)] {
        each_with_gws(|loaded| {
            let (counter, out) = (loaded.words(8), loaded.words(groups as usize));
            let ran = loaded.run(kernel, groups, items, true, &[counter, out]);
            ran.text();
            // Each workgroup saw, in each round, everything written before the barrier.
            assert_eq!(read(out, groups as usize), vec![0; groups as usize]);
            assert_eq!(read(counter, 5), vec![groups; 5]);
        });
    }
}

#[test]
fn spinning_grid_barriers_work_in_a_cooperative_launch() {
    each(|loaded| {
        let (counter, out) = (loaded.words(8), loaded.words(300));
        loaded.run("counter_sync", 300, 64, true, &[counter, out]).text();
        assert_eq!(read(out, 300), vec![0; 300]);
    });
}

#[test]
fn a_grid_barrier_in_a_regular_launch_is_a_fault() {
    each_with_gws(|loaded| {
        let (counter, out) = (loaded.words(8), loaded.words(4));
        let fault = loaded.run("grid_sync", 4, 64, false, &[counter, out]).result.unwrap_err();
        assert!(fault.to_string().contains("cooperative"), "{fault}");
        assert_eq!(loaded.run("grid_facts", 4, 64, false, &[out]).text(), "");
        assert_eq!(read(out, 4), [0, 0, 0, 0]);
        loaded.run("grid_facts", 4, 64, true, &[out]).text();
        assert_eq!(read(out, 4), [1, 1, 0, 256]);
    });
}

#[test]
fn kernels_allocate_memory_and_free_it_in_a_later_launch() {
    each(|loaded| {
        // The allocator waits with a clock that device libraries before ROCm 5.3 do not have for gfx11 and later.
        if loaded.program.arch.generation() >= Generation::Gfx11 {
            return;
        }
        let (pointers, sums) = (loaded.memory.allocate(8 * 256, MemoryKind::Device(0)).unwrap(), loaded.words(256));
        for bytes in [16u64, 100, 3000, 100_000] {
            loaded.run("allocates", 4, 64, false, &[pointers, bytes]).text();
            loaded.run("uses", 4, 64, false, &[pointers, sums, bytes]).text();
            let expected: Vec<u32> = (0..256).map(|n| n * (bytes as u32 / 4)).collect();
            assert_eq!(read(sums, 256), expected, "{bytes}");
        }
    });
}

#[test]
fn everything_works_on_one_thread_and_on_several() {
    if std::env::var_os(INSIDE).is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for arch in archs() {
        let Some(code) = code(arch) else { return };
        std::fs::write(folder.path().join(arch.name()), code).unwrap();
    }
    // The number of threads is a setting of the process.
    for threads in ["1", "2", "5"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let ran = command.env(INSIDE, folder.path()).env("WARPWAVE_VGPU_THREADS", threads).output().unwrap();
        assert!(ran.status.success(), "{threads} threads: {}", String::from_utf8_lossy(&ran.stdout));
    }
}
