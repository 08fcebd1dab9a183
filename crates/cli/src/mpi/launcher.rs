//! MPI launchers: finding and identifying them, and building their command lines.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::FileHeader;

use super::super::{Failure, failed, usage};
use super::{LauncherArgs, split_words};

/// MPI implementations whose launchers and libraries have the same interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    OpenMpi,
    /// MPICH and its derivatives: Intel MPI, MVAPICH, Cray MPICH.
    Mpich,
}

impl Family {
    pub const ALL: [Family; 2] = [Family::OpenMpi, Family::Mpich];

    /// Returns the value of `--mpi`.
    pub fn name(self) -> &'static str {
        match self {
            Family::OpenMpi => "openmpi",
            Family::Mpich => "mpich",
        }
    }

    /// Returns the name for messages.
    pub fn title(self) -> &'static str {
        match self {
            Family::OpenMpi => "Open MPI",
            Family::Mpich => "MPICH",
        }
    }

    /// Returns the launcher names, specific ones first.
    fn launchers(self) -> &'static [&'static str] {
        match self {
            Family::OpenMpi => &["mpirun.openmpi", "mpiexec.openmpi", "mpirun", "mpiexec"],
            Family::Mpich => &["mpirun.mpich", "mpiexec.mpich", "mpiexec.hydra", "mpirun", "mpiexec"],
        }
    }

    /// Returns the library names.
    pub fn libraries(self) -> &'static [&'static str] {
        match self {
            Family::OpenMpi => &["libmpi.so.40", "libmpi.so.20"],
            Family::Mpich => &["libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1", "libmpi_abi.so.0"],
        }
    }

    /// Returns the family of an MPI library by its file name.
    fn of_library(name: &str) -> Option<Family> {
        if name.starts_with("libmpich") || name.starts_with("libmpi_abi") {
            return Some(Family::Mpich);
        }
        let (_, version) = name.strip_prefix("libmpi")?.rsplit_once(".so.")?;
        match version {
            "40" | "20" => Some(Family::OpenMpi),
            "12" => Some(Family::Mpich),
            _ => None,
        }
    }

    /// Parses the output of a launcher's `--version`.
    fn of_version(text: &str) -> Option<(Family, String)> {
        let family = if ["Open MPI", "OpenRTE", "open-mpi.org"].iter().any(|mark| text.contains(mark)) {
            Family::OpenMpi
        } else if ["HYDRA", "Intel(R) MPI", "MPICH", "MVAPICH"].iter().any(|mark| text.contains(mark)) {
            Family::Mpich
        } else {
            return None;
        };
        let is_version = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
        let version = text.split(|c: char| c.is_whitespace() || c == ',').find(is_version).unwrap_or("(unknown version)");
        Some((family, version.to_owned()))
    }
}

/// A program that starts ranks, such as `mpirun`.
#[derive(Debug, Clone)]
pub struct Launcher {
    pub path: PathBuf,
    pub family: Family,
    pub version: String,
}

impl Launcher {
    /// Returns the launcher at `path`, or `None` if it is not one.
    fn at(path: &Path) -> Option<Launcher> {
        let output = Command::new(path).arg("--version").stdin(Stdio::null()).output().ok()?;
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        let (family, version) = Family::of_version(&text)?;
        Some(Launcher { path: path.to_owned(), family, version })
    }

    /// Returns the first launcher of a family in `PATH`.
    fn find(family: Family) -> Option<Launcher> {
        let found = family.launchers().iter().flat_map(|name| in_path(name));
        found.filter_map(|path| Launcher::at(&path)).find(|launcher| launcher.family == family)
    }

    /// Returns every launcher in `PATH`, without duplicates.
    pub fn all() -> Vec<Launcher> {
        let mut seen = Vec::new();
        let names = Family::ALL.iter().flat_map(|family| family.launchers());
        let fresh = names.flat_map(|name| in_path(name)).filter(|path| {
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            let is_new = !seen.contains(&real);
            seen.push(real);
            is_new
        });
        fresh.filter_map(|path| Launcher::at(&path)).collect()
    }

    /// Returns the launcher that the user names, that of the MPI the program is linked against, or the first in `PATH`.
    pub fn choose(named: Option<&str>, linked: Option<Family>) -> Result<Launcher, Failure> {
        let names = |family: Family| family.launchers().join(", ");
        let none = |family: Family| format!("no {} launcher found in PATH (tried {})", family.title(), names(family));
        let by_name = |name: &str| Family::ALL.into_iter().find(|family| family.name() == name);
        match (named, linked) {
            (Some(name), _) if by_name(name).is_some() => {
                let family = by_name(name).unwrap_or(Family::OpenMpi);
                Launcher::find(family).ok_or_else(|| failed(format!("{}; pass one with --mpi PATH", none(family))))
            }
            (Some(name), _) => {
                let path = if name.contains('/') { Some(PathBuf::from(name)) } else { in_path(name).next() };
                let path = path.filter(|path| path.is_file());
                let path = path.ok_or_else(|| usage(format!("--mpi {name}: expected openmpi, mpich, or the path of a launcher")))?;
                let wrong = || usage(format!("--mpi {name}: not an Open MPI or MPICH launcher (unrecognized --version output)"));
                Launcher::at(&path).ok_or_else(wrong)
            }
            (None, Some(family)) => Launcher::find(family).ok_or_else(|| {
                failed(format!("the program is linked against {}, but {}; pass one with --mpi PATH", family.title(), none(family)))
            }),
            (None, None) => {
                let found = ["mpirun", "mpiexec"].iter().flat_map(|name| in_path(name)).find_map(|path| Launcher::at(&path));
                let found = found.or_else(|| Family::ALL.into_iter().find_map(Launcher::find));
                let fix = "install one (apt install openmpi-bin, or mpich), or pass one with --mpi PATH";
                found.ok_or_else(|| failed(format!("no MPI launcher found in PATH (tried {}); {fix}", names(Family::Mpich))))
            }
        }
    }

    /// Returns candidates for the MPI library: relative to the launcher, then by name for the dynamic loader.
    pub fn libraries(&self) -> Vec<PathBuf> {
        let names = self.family.libraries();
        let mut all = Vec::new();
        for path in [self.path.canonicalize().ok(), Some(self.path.clone())].into_iter().flatten() {
            let Some(prefix) = path.parent().and_then(Path::parent) else { continue };
            let folders = ["lib", "lib64", "lib/x86_64-linux-gnu", "lib/release"].map(|folder| prefix.join(folder));
            all.extend(folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name))).filter(|file| file.exists()));
        }
        all.extend(names.iter().map(PathBuf::from));
        all
    }
}

/// Returns the files of this name in `PATH`.
fn in_path(name: &str) -> impl Iterator<Item = PathBuf> {
    let folders: Vec<PathBuf> = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    let name = name.to_owned();
    folders.into_iter().map(move |folder| folder.join(&name)).filter(|file| file.is_file())
}

/// Resolves a program as launchers do: a path, or a name in `PATH`.
pub fn resolve(program: &str) -> Result<PathBuf, Failure> {
    let path = if program.contains('/') { Some(PathBuf::from(program)) } else { in_path(program).next() };
    path.filter(|path| path.is_file()).ok_or_else(|| {
        let here = Path::new(program).is_file() && !program.contains('/');
        let hint = if here { format!("; did you mean ./{program}?") } else { String::new() };
        usage(format!("program not found: {program}{hint}"))
    })
}

/// Returns the MPI that a program is linked against; `None` for scripts and programs that load MPI at run time.
pub fn linked(program: &Path) -> Option<Family> {
    let data = std::fs::read(program).ok()?;
    needed(&data).ok()?.iter().find_map(|name| Family::of_library(name))
}

/// Returns the `DT_NEEDED` libraries of an ELF file.
fn needed(data: &[u8]) -> object::read::Result<Vec<String>> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let table = header.sections(endian, data)?.dynamic_table(endian, data)?;
    let names =
        table.iter().filter(|entry| entry.tag == DT_NEEDED).map(|entry| Ok(String::from_utf8_lossy(table.string(entry)?).into_owned()));
    names.collect()
}

/// Open MPI's option, and ours.
const ALLOW_RUN_AS_ROOT: &str = "--allow-run-as-root";

/// A program to run on several ranks with the library preloaded.
pub struct Job {
    pub launcher: Launcher,
    pub np: u32,
    pub library: PathBuf,
    /// Environment variables for the ranks.
    pub env: Vec<(&'static str, String)>,
    /// Extra launcher arguments.
    pub launcher_args: Vec<String>,
    /// Pass `--allow-run-as-root` to Open MPI.
    pub allow_run_as_root: bool,
}

impl Job {
    pub fn new(args: &LauncherArgs, np: u32, launcher: Launcher) -> Result<Job, Failure> {
        Ok(Job {
            launcher,
            np,
            library: super::library::find()?,
            env: Vec::new(),
            launcher_args: split_words(&args.launcher_args)?,
            allow_run_as_root: args.allow_run_as_root,
        })
    }

    /// Fails if Open MPI would refuse to run as root.
    pub fn check_root(&self) -> Result<(), Failure> {
        // SAFETY: geteuid has no preconditions.
        let root = unsafe { libc::geteuid() } == 0;
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| value == "1");
        let by_env = is_set("OMPI_ALLOW_RUN_AS_ROOT") && is_set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");
        let allowed = self.allow_run_as_root || by_env || self.launcher_args.iter().any(|word| word == ALLOW_RUN_AS_ROOT);
        if self.launcher.family == Family::OpenMpi && root && !allowed {
            let reason = "Open MPI refuses to run as root, because a faulty program could damage the system";
            return Err(failed(format!("{reason}; pass --allow-run-as-root (safe in most containers), or run as another user")));
        }
        Ok(())
    }

    /// Returns the command line of the launcher, ending with `program` and its arguments.
    pub fn command_line(&self, program: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
        let env = self.env.iter().map(|(name, value)| ((*name).into(), value.into()));
        let is_ours = |name: &OsString| name.to_string_lossy().starts_with("WARPWAVE_") || name.to_string_lossy().starts_with("CAIL_");
        let mut inherited: Vec<(OsString, OsString)> = std::env::vars_os().filter(|(name, _)| is_ours(name)).collect();
        inherited.retain(|(name, _)| !self.env.iter().any(|(known, _)| name == known));
        inherited.sort();
        let mut preload = self.library.clone().into_os_string();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        let variables = std::iter::once(("LD_PRELOAD".into(), preload)).chain(env).chain(inherited);
        let mut line: Vec<OsString> = vec![self.launcher.path.clone().into()];
        match self.launcher.family {
            Family::OpenMpi => {
                line.extend(["-np".into(), self.np.to_string().into()]);
                if self.allow_run_as_root {
                    line.push(ALLOW_RUN_AS_ROOT.into());
                }
                if self.is_oversubscribed() {
                    line.push("--oversubscribe".into());
                }
                for (name, value) in variables {
                    let mut assignment = name;
                    assignment.push("=");
                    assignment.push(value);
                    line.extend(["-x".into(), assignment]);
                }
            }
            Family::Mpich => {
                line.extend(["-n".into(), self.np.to_string().into()]);
                variables.for_each(|(name, value)| line.extend(["-genv".into(), name, value]));
            }
        }
        line.extend(self.launcher_args.iter().map(OsString::from));
        line.extend(program);
        line
    }

    /// Returns whether there are more ranks than cores, unless a resource manager or the user assigns the slots.
    fn is_oversubscribed(&self) -> bool {
        let placement = ["host", "-H", "map-by", "oversubscribe", "hwthread"];
        let managed = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"];
        self.np as usize > cores()
            && !self.launcher_args.iter().any(|word| placement.iter().any(|option| word.contains(option)))
            && !managed.iter().any(|name| std::env::var_os(name).is_some())
    }
}

/// Returns the number of physical cores, which Open MPI counts as slots.
fn cores() -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let siblings = |cpu: usize| std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")).ok();
    let distinct: std::collections::BTreeSet<String> = (0..threads).filter_map(siblings).collect();
    if distinct.is_empty() { threads } else { distinct.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_identified_by_their_version_output() {
        let identify = |text: &str| Family::of_version(text).map(|(family, version)| (family.name(), version));
        let openmpi = "mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/";
        assert_eq!(identify(openmpi), Some(("openmpi", "4.1.4".to_owned())));
        assert_eq!(identify("mpirun (Open MPI) 5.0.11\n"), Some(("openmpi", "5.0.11".to_owned())));
        assert_eq!(identify("HYDRA build details:\n    Version:      4.0.2\n"), Some(("mpich", "4.0.2".to_owned())));
        let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307 (id: d82b3071db)";
        assert_eq!(identify(intel), Some(("mpich", "2021.9".to_owned())));
        assert_eq!(identify("slurm 23.02"), None);
    }

    #[test]
    fn the_mpi_of_a_program_is_identified_by_its_library() {
        let of = |name: &str| Family::of_library(name).map(Family::name);
        let names = ["libmpi.so.40", "libmpi_mpifh.so.40", "libmpich.so.12", "libmpi.so.12", "libmpi_abi.so.0", "libmpifort.so.12"];
        assert_eq!(names.map(of), ["openmpi", "openmpi", "mpich", "mpich", "mpich", "mpich"].map(Some));
        assert_eq!(["libm.so.6", "libmpi.so", "libmpfr.so.6"].map(of), [None; 3]);
        let own = std::env::current_exe().unwrap();
        assert!(needed(&std::fs::read(own).unwrap()).unwrap().iter().any(|name| name.starts_with("libc.so")));
        assert!(needed(b"#!/bin/sh\n").is_err());
    }
}
