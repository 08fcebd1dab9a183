//! The launchers of MPIs: finding one, telling them apart, and what to tell them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::FileHeader;

use super::super::{Failure, failed, usage};
use super::{Choice, words};

/// Those whose launchers and libraries are called alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    OpenMpi,
    /// MPICH and what is made of it: Intel MPI, MVAPICH, Cray's.
    Mpich,
}

impl Family {
    pub const ALL: [Family; 2] = [Family::OpenMpi, Family::Mpich];

    /// As `--mpi` has it.
    pub fn name(self) -> &'static str {
        match self {
            Family::OpenMpi => "openmpi",
            Family::Mpich => "mpich",
        }
    }

    /// As people write it.
    pub fn title(self) -> &'static str {
        match self {
            Family::OpenMpi => "Open MPI",
            Family::Mpich => "MPICH",
        }
    }

    /// Names of launchers, those of this family alone first.
    fn launchers(self) -> &'static [&'static str] {
        match self {
            Family::OpenMpi => &["mpirun.openmpi", "mpiexec.openmpi", "mpirun", "mpiexec"],
            Family::Mpich => &["mpirun.mpich", "mpiexec.mpich", "mpiexec.hydra", "mpirun", "mpiexec"],
        }
    }

    /// Names of the library.
    pub fn libraries(self) -> &'static [&'static str] {
        match self {
            Family::OpenMpi => &["libmpi.so.40", "libmpi.so.20"],
            Family::Mpich => &["libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1", "libmpi_abi.so.0"],
        }
    }

    /// The family of a library that a program is linked to.
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

    /// The family and version that a launcher's `--version` tells.
    fn of_version(text: &str) -> Option<(Family, String)> {
        let family = if ["Open MPI", "OpenRTE", "open-mpi.org"].iter().any(|mark| text.contains(mark)) {
            Family::OpenMpi
        } else if ["HYDRA", "Intel(R) MPI", "MPICH", "MVAPICH"].iter().any(|mark| text.contains(mark)) {
            Family::Mpich
        } else {
            return None;
        };
        let is_version = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
        let version = text.split(|c: char| c.is_whitespace() || c == ',').find(is_version).unwrap_or("of unknown version");
        Some((family, version.to_owned()))
    }
}

/// What starts the ranks.
#[derive(Debug, Clone)]
pub struct Launcher {
    pub path: PathBuf,
    pub family: Family,
    pub version: String,
}

impl Launcher {
    /// The program at `path`, if it is a launcher.
    fn at(path: &Path) -> Option<Launcher> {
        let output = Command::new(path).arg("--version").stdin(Stdio::null()).output().ok()?;
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        let (family, version) = Family::of_version(&text)?;
        Some(Launcher { path: path.to_owned(), family, version })
    }

    /// The first of a family in `PATH`.
    fn of(family: Family) -> Option<Launcher> {
        let found = family.launchers().iter().flat_map(|name| in_path(name));
        found.filter_map(|path| Launcher::at(&path)).find(|launcher| launcher.family == family)
    }

    /// Every launcher in `PATH`, each once whatever its names.
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

    /// The launcher that the user names; else that of the MPI a program is linked to; else the first there is.
    pub fn choose(named: Option<&str>, linked: Option<Family>) -> Result<Launcher, Failure> {
        let names = |family: Family| family.launchers().join(", ");
        let none = |family: Family| format!("no launcher of {} is in PATH (looked for {})", family.title(), names(family));
        let by_name = |name: &str| Family::ALL.into_iter().find(|family| family.name() == name);
        match (named, linked) {
            (Some(name), _) if by_name(name).is_some() => {
                let family = by_name(name).unwrap_or(Family::OpenMpi);
                Launcher::of(family).ok_or_else(|| failed(format!("{}; name one with --mpi PATH", none(family))))
            }
            (Some(name), _) => {
                let path = if name.contains('/') { Some(PathBuf::from(name)) } else { in_path(name).next() };
                let path = path.filter(|path| path.is_file());
                let path = path.ok_or_else(|| usage(format!("--mpi {name}: neither openmpi, mpich nor a launcher's path")))?;
                let wrong = || usage(format!("--mpi {name}: its --version names no MPI that is known (Open MPI, MPICH and its family)"));
                Launcher::at(&path).ok_or_else(wrong)
            }
            (None, Some(family)) => Launcher::of(family).ok_or_else(|| {
                failed(format!("the program is linked to {}, and {}; name one with --mpi PATH", family.title(), none(family)))
            }),
            (None, None) => {
                let found = ["mpirun", "mpiexec"].iter().flat_map(|name| in_path(name)).find_map(|path| Launcher::at(&path));
                let found = found.or_else(|| Family::ALL.into_iter().find_map(Launcher::of));
                let fix = "install one (apt install openmpi-bin, or mpich), or name it with --mpi PATH";
                found.ok_or_else(|| failed(format!("no MPI launcher is in PATH (looked for {}); {fix}", names(Family::Mpich))))
            }
        }
    }

    /// Where its MPI's library may be: by the folders beside the launcher's, then by the loader.
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

/// Files of that name in the folders of `PATH`.
fn in_path(name: &str) -> impl Iterator<Item = PathBuf> {
    let folders: Vec<PathBuf> = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    let name = name.to_owned();
    folders.into_iter().map(move |folder| folder.join(&name)).filter(|file| file.is_file())
}

/// The file that is started for `program`, as launchers look for it.
pub fn resolve(program: &str) -> Result<PathBuf, Failure> {
    let path = if program.contains('/') { Some(PathBuf::from(program)) } else { in_path(program).next() };
    path.filter(|path| path.is_file()).ok_or_else(|| {
        let here = Path::new(program).is_file() && !program.contains('/');
        let more = if here { format!("; did you mean ./{program}?") } else { String::new() };
        usage(format!("there is no program {program}{more}"))
    })
}

/// The MPI that a program is linked to; a script or a program that loads its MPI later tells nothing.
pub fn linked(program: &Path) -> Option<Family> {
    let data = std::fs::read(program).ok()?;
    needed(&data).ok()?.iter().find_map(|name| Family::of_library(name))
}

/// The libraries that a program needs.
fn needed(data: &[u8]) -> object::read::Result<Vec<String>> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let table = header.sections(endian, data)?.dynamic_table(endian, data)?;
    let names =
        table.iter().filter(|entry| entry.tag == DT_NEEDED).map(|entry| Ok(String::from_utf8_lossy(table.string(entry)?).into_owned()));
    names.collect()
}

/// Ranks of a program with the library in front of its MPI.
pub struct Job {
    pub launcher: Launcher,
    pub np: u32,
    pub library: PathBuf,
    /// Variables for the ranks beyond those that are set here.
    pub set: Vec<(&'static str, String)>,
    pub words: Vec<String>,
}

impl Job {
    pub fn new(choice: &Choice, np: u32, launcher: Launcher) -> Result<Job, Failure> {
        Ok(Job { launcher, np, library: super::library::find()?, set: Vec::new(), words: words(&choice.launcher_args)? })
    }

    /// The whole command line, `program` and its arguments at its end.
    pub fn line(&self, program: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
        let set = self.set.iter().map(|(name, value)| ((*name).into(), value.into()));
        let is_ours = |name: &OsString| name.to_string_lossy().starts_with("WARPWAVE_") || name.to_string_lossy().starts_with("CAIL_");
        let mut inherited: Vec<(OsString, OsString)> = std::env::vars_os().filter(|(name, _)| is_ours(name)).collect();
        inherited.retain(|(name, _)| !self.set.iter().any(|(known, _)| name == known));
        inherited.sort();
        let mut preload = self.library.clone().into_os_string();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        let variables = std::iter::once(("LD_PRELOAD".into(), preload)).chain(set).chain(inherited);
        let mut line: Vec<OsString> = vec![self.launcher.path.clone().into()];
        match self.launcher.family {
            Family::OpenMpi => {
                line.extend(["-np".into(), self.np.to_string().into()]);
                if self.is_crowded() {
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
        line.extend(self.words.iter().map(OsString::from));
        line.extend(program);
        line
    }

    /// More ranks than cores, unless somebody else says which machines there are.
    fn is_crowded(&self) -> bool {
        let told = ["host", "-H", "map-by", "oversubscribe", "hwthread"];
        let managed = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"];
        self.np as usize > cores()
            && !self.words.iter().any(|word| told.iter().any(|option| word.contains(option)))
            && !managed.iter().any(|name| std::env::var_os(name).is_some())
    }
}

/// Cores, as Open MPI counts them: those that share one count once.
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
    fn launchers_are_told_apart_by_what_they_say() {
        let tell = |text: &str| Family::of_version(text).map(|(family, version)| (family.name(), version));
        let openmpi = "mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/";
        assert_eq!(tell(openmpi), Some(("openmpi", "4.1.4".to_owned())));
        assert_eq!(tell("mpirun (Open MPI) 5.0.11\n"), Some(("openmpi", "5.0.11".to_owned())));
        assert_eq!(tell("HYDRA build details:\n    Version:      4.0.2\n"), Some(("mpich", "4.0.2".to_owned())));
        let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307 (id: d82b3071db)";
        assert_eq!(tell(intel), Some(("mpich", "2021.9".to_owned())));
        assert_eq!(tell("slurm 23.02"), None);
    }

    #[test]
    fn a_program_s_mpi_is_known_by_its_library() {
        let of = |name: &str| Family::of_library(name).map(Family::name);
        let names = ["libmpi.so.40", "libmpi_mpifh.so.40", "libmpich.so.12", "libmpi.so.12", "libmpi_abi.so.0", "libmpifort.so.12"];
        assert_eq!(names.map(of), ["openmpi", "openmpi", "mpich", "mpich", "mpich", "mpich"].map(Some));
        assert_eq!(["libm.so.6", "libmpi.so", "libmpfr.so.6"].map(of), [None; 3]);
        let own = std::env::current_exe().unwrap();
        assert!(needed(&std::fs::read(own).unwrap()).unwrap().iter().any(|name| name.starts_with("libc.so")));
        assert!(needed(b"#!/bin/sh\n").is_err());
    }
}
