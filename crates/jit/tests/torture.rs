//! Many processes, one cold cache, real compilers: each kernel is compiled once, and nobody gets another's code.

mod common;

use std::collections::HashMap;
use std::process::{Command, Stdio};

use common::temporary_jit;
use sha2::{Digest, Sha256};
use warpwave_jit::cache::{Cache, Outcome};
use warpwave_jit::{CompilerChoice, Jit, KernelSource, Target};

const PROCESSES: usize = 16;
const KERNELS: usize = 20;
const FOLDER: &str = "WARPWAVE_TORTURE_FOLDER";

fn target() -> Target {
    "gfx90a".parse().unwrap()
}

fn kernel(index: usize) -> KernelSource {
    let text = format!("extern \"C\" __global__ void kernel_{index}(int* p) {{ *p = {index}; }}\n");
    KernelSource::from_text(format!("kernel_{index}.cu"), text).unwrap()
}

/// What one process does: asks for every kernel, beginning somewhere else than the others.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let start: usize = std::env::var("WARPWAVE_TORTURE_START").unwrap().parse().unwrap();
    let jit = Jit::new(Cache::at(folder, 1 << 30));
    for step in 0..KERNELS {
        let index = (start + step) % KERNELS;
        let built = jit.build(&kernel(index), &target(), CompilerChoice::Auto).unwrap();
        let names: Vec<&str> = built.compiled.code_object.kernels.iter().map(|k| k.name.as_str()).collect();
        assert_eq!(names, [format!("kernel_{index}")], "another's code");
        let sum: String = Sha256::digest(&built.compiled.binary).iter().map(|b| format!("{b:02x}")).collect();
        println!("BUILT {index} {:?} {sum}", built.outcome);
    }
}

fn ask_from_all_processes(folder: &std::path::Path) -> HashMap<(usize, String), usize> {
    let children: Vec<_> = (0..PROCESSES)
        .map(|i| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "child", "--nocapture"])
                .env(FOLDER, folder)
                .env("WARPWAVE_TORTURE_START", (i % 3 * 7).to_string())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut outcomes = HashMap::new();
    let mut sums: HashMap<usize, String> = HashMap::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().filter_map(|l| l.split("BUILT ").nth(1)).map(|l| l.split(' ').collect()).collect();
        assert_eq!(lines.len(), KERNELS);
        for line in lines {
            let index = line[0].parse().unwrap();
            assert_eq!(sums.entry(index).or_insert_with(|| line[2].to_owned()), line[2], "two processes got different code");
            *outcomes.entry((index, line[1].to_owned())).or_default() += 1;
        }
    }
    outcomes
}

#[test]
fn sixteen_processes_compile_each_kernel_once_and_damage_is_never_served() {
    if std::env::var_os(FOLDER).is_some() {
        return;
    }
    let Some((jit, folder)) = temporary_jit(&target()) else { return };
    let cache = jit.cache().path().unwrap().to_owned();
    let outcomes = ask_from_all_processes(&cache);
    for index in 0..KERNELS {
        assert_eq!(outcomes[&(index, format!("{:?}", Outcome::Miss))], 1, "kernel {index} was compiled more than once");
        assert_eq!(outcomes[&(index, format!("{:?}", Outcome::Hit))], PROCESSES - 1);
    }
    // A byte of every entry: all are compiled again, once each, and the code is right.
    let mut damaged = 0;
    for (at, entry) in std::fs::read_dir(&cache).unwrap().map(|e| e.unwrap().path()).enumerate() {
        if entry.extension().is_some_and(|e| e == "ww1") {
            let mut bytes = std::fs::read(&entry).unwrap();
            let place = at * 7919 % bytes.len();
            bytes[place] ^= 1 << (at % 8);
            std::fs::write(&entry, bytes).unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, KERNELS);
    let outcomes = ask_from_all_processes(&cache);
    for index in 0..KERNELS {
        assert_eq!(outcomes[&(index, format!("{:?}", Outcome::Miss))], 1, "kernel {index}");
    }
    drop(folder);
}
