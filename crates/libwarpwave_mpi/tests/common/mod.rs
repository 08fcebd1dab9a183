//! The installed MPI libraries, and C and Fortran programs compiled and run with them.
#![allow(dead_code)] // each test program uses a part
#![allow(unused_imports)]

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Sources of the programs, embedded because the bundle has no repository.
const PROGRAMS: [(&str, &str); 9] = [
    ("aware.c", include_str!("../programs/aware.c")),
    ("f08.f90", include_str!("../programs/f08.f90")),
    ("f77.f90", include_str!("../programs/f77.f90")),
    ("faulty.c", include_str!("../programs/faulty.c")),
    ("gpu.h", include_str!("../programs/gpu.h")),
    ("interaction.c", include_str!("../programs/interaction.c")),
    ("link.c", include_str!("../programs/link.c")),
    ("matrix.c", include_str!("../programs/matrix.c")),
    ("rccl.c", include_str!("../programs/rccl.c")),
];

/// The message-based algorithms.
pub const ALGORITHMS: [&str; 5] = ["recursive_doubling", "ring", "segmented_ring", "rabenseifner", "hierarchical"];

pub use warpwave_test_support::{full_run as full, require, seed};

/// Returns the interposer, built with the tests.
pub fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    // Next to the test program, or in the bundle's folder.
    let folders = own.ancestors().skip(1).take(2).flat_map(|folder| [folder.to_owned(), folder.join("lib")]);
    let found = folders.map(|folder| folder.join("libwarpwave_mpi.so")).find(|file| file.exists());
    found.expect("cargo builds the library before its tests")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    OpenMpi,
    Mpich,
}

/// An installed MPI library.
#[derive(Debug)]
pub struct Mpi {
    pub kind: Kind,
    cc: String,
    fortran: String,
    run: String,
}

/// Returns the virtual GPU as a HIP library, built with the tests.
fn virtual_gpu() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join("libamdhip64.so")).find(|file| file.exists());
    found.expect("cargo builds the virtual GPU before the tests")
}

/// Returns whether an NVIDIA GPU is present.
pub fn has_nvidia() -> bool {
    Path::new("/dev/nvidiactl").exists()
}

/// Sets the variables with which ranks use virtual GPUs, a different one each, unless an NVIDIA GPU is present.
pub fn virtual_gpu_env(run: Run<'_>) -> Run<'_> {
    if has_nvidia() {
        return run;
    }
    let run = run.variable("WARPWAVE_HIP_LIB", virtual_gpu().to_str().unwrap());
    run.variable("WARPWAVE_VGPU_DEVICES", "gfx90a,gfx942,gfx908").variable("WARPWAVE_VGPU_THREADS", "1")
}

/// Returns the output of a program that succeeds.
fn output_of(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

impl Mpi {
    /// Finds an MPI library: Debian's suffixed names, which several can have side by side, then the plain names.
    pub fn find(kind: Kind) -> Option<Mpi> {
        let (suffix, words, packages) = match kind {
            Kind::OpenMpi => (".openmpi", ["Open MPI", "OpenRTE"], "openmpi-bin libopenmpi-dev"),
            Kind::Mpich => (".mpich", ["HYDRA", "MPICH"], "mpich libmpich-dev"),
        };
        for suffix in [suffix, ""] {
            let name = |tool: &str| format!("{tool}{suffix}");
            let is_it = |text: String| words.iter().any(|word| text.contains(word));
            if output_of(&name("mpirun"), "--version").is_some_and(is_it) && output_of(&name("mpicc"), "-show").is_some() {
                return Some(Mpi { kind, cc: name("mpicc"), fortran: name("mpifort"), run: name("mpirun") });
            }
        }
        require(false, &format!("{kind:?} (apt install {packages})"));
        None
    }

    /// Returns all installed MPI libraries.
    pub fn all() -> Vec<Mpi> {
        [Kind::OpenMpi, Kind::Mpich].into_iter().filter_map(Mpi::find).collect()
    }

    pub fn has_fortran(&self) -> bool {
        output_of(&self.fortran, "--version").is_some()
    }

    /// Compiles a program with extra arguments, once per test process.
    pub fn compile(&self, source: &str, arguments: &[&str]) -> PathBuf {
        static DONE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
        static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
        let folder = FOLDER.get_or_init(|| tempfile::tempdir().unwrap()).path().join(format!("{:?}", self.kind));
        let (stem, language) = source.split_once('.').unwrap();
        let output = folder.join(stem);
        let mut done = DONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if done.contains(&output) {
            return output;
        }
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in PROGRAMS {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let mut command = Command::new(if language == "c" { &self.cc } else { &self.fortran });
        command.current_dir(&folder).args(if language == "c" { &["-std=c11", "-D_GNU_SOURCE", "-Wall", "-pthread"][..] } else { &["-w"] });
        command.arg("-O2").arg("-o").arg(&output).arg(folder.join(source));
        let compiled = command.args(arguments).args(["-lm", "-ldl"]).output().unwrap();
        assert!(compiled.status.success(), "{command:?}: {}", String::from_utf8_lossy(&compiled.stderr));
        done.insert(output.clone());
        output
    }

    /// Prepares a run of a compiled program.
    pub fn run<'a>(&'a self, program: &'a Path, np: usize) -> Run<'a> {
        Run {
            mpi: self,
            program,
            np,
            arguments: Vec::new(),
            variables: Vec::new(),
            limit: Duration::from_secs(180),
            before: Vec::new(),
            hosts: Vec::new(),
        }
    }
}

/// An `mpirun` command.
pub struct Run<'a> {
    mpi: &'a Mpi,
    program: &'a Path,
    np: usize,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
    limit: Duration,
    before: Vec<String>,
    hosts: Vec<String>,
}

/// The result of a run.
pub struct Ended {
    pub success: bool,
    pub timed_out: bool,
    pub took: Duration,
    pub out: String,
    pub err: String,
    /// The command line, for messages.
    pub line: String,
}

impl Run<'_> {
    pub fn args<S: ToString>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.to_string()));
        self
    }

    pub fn variable(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.retain(|(known, _)| *known != name);
        self.variables.push((name, value.into()));
        self
    }

    /// Preloads the library with this algorithm and call counters.
    pub fn preloaded(self, algorithm: &str) -> Self {
        self.variable("LD_PRELOAD", library().to_str().unwrap())
            .variable("WARPWAVE_MPI_ALGO", algorithm)
            .variable("WARPWAVE_MPI_STATS", "1")
    }

    /// Starts `mpirun` through another command, with host arguments.
    pub fn through(mut self, before: Vec<String>, hosts: Vec<String>) -> Self {
        (self.before, self.hosts) = (before, hosts);
        self
    }

    pub fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    fn command(&self) -> Command {
        let mut words = self.before.iter().chain([&self.mpi.run]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).args(&self.hosts);
        match self.mpi.kind {
            Kind::OpenMpi => {
                // Without the AVX op component, whose 8- and 16-bit sums saturate, its own results are right too.
                command.args(["--allow-run-as-root", "--oversubscribe", "--mca", "op", "^avx"]);
                self.variables.iter().for_each(|(name, value)| _ = command.args(["-x", &format!("{name}={value}")]));
            }
            Kind::Mpich => self.variables.iter().for_each(|(name, value)| _ = command.args(["-genv", name, value])),
        }
        command.args(["-np", &self.np.to_string()]).arg(self.program).args(&self.arguments);
        command
    }

    /// Runs it. One run at a time in this process, because oversubscribed ranks wait for each other by spinning.
    pub fn go(self) -> Ended {
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Files, not pipes: a rank that outlives mpirun would keep a pipe open.
        let (mut out, mut err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap()).process_group(0);
        let start = Instant::now();
        let mut child = command.spawn().unwrap();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if start.elapsed() > self.limit {
                terminate(&mut child);
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let success = status.is_some_and(|status| status.success());
        let (out, err) = (read(&mut out), read(&mut err));
        Ended { success, timed_out: status.is_none(), took: start.elapsed(), out, err, line: format!("{command:?}") }
    }
}

fn read(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns every descendant of a process: Open MPI puts each rank into a process group of its own.
fn descendants(parent: i32) -> Vec<i32> {
    let numbers = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let children = numbers.filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the name, which may contain anything: state and parent.
        stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok()) == Some(parent)
    });
    children.flat_map(|pid| descendants(pid).into_iter().chain([pid])).collect()
}

/// Terminates mpirun and every rank, with SIGTERM first.
fn terminate(child: &mut Child) {
    let group = child.id().cast_signed();
    let ranks = descendants(group);
    // SAFETY: signals only the process group created above.
    unsafe { libc::kill(-group, libc::SIGTERM) };
    let asked = Instant::now();
    while asked.elapsed() < Duration::from_secs(3) && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(50));
    }
    for target in ranks.into_iter().chain([-group]) {
        // SAFETY: as above.
        unsafe { libc::kill(target, libc::SIGKILL) };
    }
    child.wait().unwrap();
}

impl Ended {
    /// Panics with the command line and its output unless `ok`.
    #[track_caller]
    pub fn check(&self, ok: bool, what: &str) {
        let tail = |text: &str| text.lines().rev().take(25).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n");
        let time = if self.timed_out { "timed out" } else { "ended" };
        assert!(
            ok,
            "{what}\n{}\n{time} after {:.1} s\n--- stdout\n{}\n--- stderr\n{}",
            self.line,
            self.took.as_secs_f64(),
            tail(&self.out),
            tail(&self.err)
        );
    }

    /// Returns each rank's call counters, by rank.
    pub fn stats(&self, np: usize) -> Vec<serde_json::Value> {
        let lines = self.err.lines().filter_map(|line| line.split_once("warpwave-mpi stats ")?.1.trim().parse().ok());
        let mut stats: Vec<serde_json::Value> = lines.collect();
        stats.sort_by_key(|stats| stats["rank"].as_u64());
        let ranks: Vec<_> = stats.iter().map(|stats| stats["rank"].as_u64()).collect();
        self.check(ranks == (0..np as u64).map(Some).collect::<Vec<_>>(), "expected one line of counters per rank");
        stats
    }

    /// Checks that `algorithm` executed at least `min` calls on each rank.
    pub fn check_handled(&self, np: usize, algorithm: &str, min: u64) {
        for stats in self.stats(np) {
            let calls = stats[algorithm].as_u64().unwrap_or(0);
            self.check(calls >= min, &format!("{algorithm} executed {calls} calls on a rank, expected at least {min}: {stats}"));
        }
    }
}
