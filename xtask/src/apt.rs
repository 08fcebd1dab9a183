//! Debian and Ubuntu packages of the tools that the tests need: names and installation.

use std::collections::BTreeMap;
use std::fmt;
use std::process::{Command, Stdio};

use crate::run::{self, Result, say};

/// Supported versions of clang, newest first.
pub const CLANG_VERSIONS: [u32; 6] = [20, 19, 18, 17, 16, 15];

/// The version in both Debian 12 and 13, also used for development.
const DEBIAN_CLANG: u32 = 19;

/// A tool that is installed as packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requirement {
    /// The compiler and linker for AMD GPUs.
    Clang,
    /// LLVM binary tools, for inspecting code objects.
    Llvm,
    /// ROCm device libraries (bitcode).
    DeviceLibs,
    /// HIP headers, which the driver table is checked against.
    HipHeaders,
    /// Python with `venv`, for wheels.
    Venv,
    /// Open MPI, for tests of the interposer.
    OpenMpi,
    /// MPICH, for tests of the interposer.
    Mpich,
    /// A Fortran compiler for test programs.
    Fortran,
    /// `ip`, to simulate several nodes on one machine.
    Ip,
    /// A browser and its driver, for the chat page.
    Chromium,
    /// A load balancer, for several workers.
    Haproxy,
}

impl Requirement {
    /// Returns its packages, if they have the same names on all releases.
    fn packages(self) -> &'static [&'static str] {
        match self {
            Requirement::Clang | Requirement::Llvm | Requirement::DeviceLibs => &[],
            Requirement::HipHeaders => &["libamdhip64-dev"],
            Requirement::Venv => &["python3-venv"],
            Requirement::OpenMpi => &["openmpi-bin", "libopenmpi-dev"],
            Requirement::Mpich => &["mpich", "libmpich-dev"],
            Requirement::Fortran => &["gfortran"],
            Requirement::Ip => &["iproute2"],
            Requirement::Chromium => &["chromium", "chromium-driver"],
            Requirement::Haproxy => &["haproxy"],
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Requirement::Clang => "clang 15 or newer and its lld",
            Requirement::Llvm => "LLVM binary tools",
            Requirement::DeviceLibs => "ROCm device libraries",
            Requirement::HipHeaders => "HIP headers",
            Requirement::Venv => "Python venv",
            Requirement::OpenMpi => "Open MPI",
            Requirement::Mpich => "MPICH",
            Requirement::Fortran => "a Fortran compiler",
            Requirement::Ip => "ip",
            Requirement::Chromium => "Chromium and its driver",
            Requirement::Haproxy => "HAProxy",
        })
    }
}

/// Packages available in a release.
struct Release {
    id: &'static str,
    version: &'static str,
    clang: std::ops::RangeInclusive<u32>,
    device_libs: &'static str,
    hip_headers: bool,
}

/// Known releases, for machines without package lists.
const RELEASES: [Release; 4] = [
    Release { id: "debian", version: "12", clang: 15..=19, device_libs: "rocm-device-libs", hip_headers: true },
    Release { id: "debian", version: "13", clang: 17..=19, device_libs: "rocm-device-libs-17", hip_headers: true },
    Release { id: "ubuntu", version: "22.04", clang: 15..=15, device_libs: "rocm-device-libs", hip_headers: false },
    Release { id: "ubuntu", version: "24.04", clang: 15..=20, device_libs: "rocm-device-libs-17", hip_headers: true },
];

/// Tools available in all releases.
const EVERYWHERE: [Requirement; 6] =
    [Requirement::Venv, Requirement::OpenMpi, Requirement::Mpich, Requirement::Fortran, Requirement::Ip, Requirement::Haproxy];

/// Contents of `/etc/os-release`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Os {
    /// `debian`, `ubuntu`, `fedora`.
    pub id: String,
    /// `12`, `24.04`; empty on rolling releases.
    pub version: String,
    /// Related distributions (`ID_LIKE`).
    pub like: Vec<String>,
}

impl Os {
    /// Reads that of this machine.
    pub fn here() -> Os {
        let text = std::fs::read_to_string("/etc/os-release").or_else(|_| std::fs::read_to_string("/usr/lib/os-release"));
        Os::parse(&text.unwrap_or_default())
    }

    /// Parses `KEY=value` lines.
    pub fn parse(text: &str) -> Os {
        let value = |key: &str| {
            let found = text.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='));
            found.unwrap_or_default().trim_matches(['"', '\'']).to_owned()
        };
        Os { id: value("ID"), version: value("VERSION_ID"), like: value("ID_LIKE").split_whitespace().map(str::to_owned).collect() }
    }

    /// Returns whether the distribution uses apt.
    pub fn has_apt(&self) -> bool {
        let family = |id: &str| id == "debian" || id == "ubuntu";
        family(&self.id) || self.like.iter().any(|id| family(id))
    }

    /// Returns whether the release is known to have the package.
    fn is_known_to_have(&self, package: &str) -> bool {
        let Some(release) = RELEASES.iter().find(|r| r.id == self.id && r.version == self.version) else { return false };
        match package {
            "libamdhip64-dev" => release.hip_headers,
            // Ubuntu has it as a snap only.
            "chromium" | "chromium-driver" => release.id == "debian",
            name if EVERYWHERE.iter().any(|need| need.packages().contains(&name)) => true,
            name if name.starts_with("rocm-device-libs") => name == release.device_libs,
            name => name.rsplit('-').next().and_then(|v| v.parse().ok()).is_some_and(|v| release.clang.contains(&v)),
        }
    }

    /// Returns the versions of clang in order of preference.
    fn clang_versions(&self) -> Vec<u32> {
        let mut versions = CLANG_VERSIONS.to_vec();
        if self.id == "debian" {
            versions.sort_by_key(|v| *v != DEBIAN_CLANG);
        }
        versions
    }
}

/// The packages for a list of needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Packages to install.
    pub packages: Vec<String>,
    /// Tools without an available package.
    pub unknown: Vec<Requirement>,
}

/// Returns every package name that could be needed, for one call of apt-cache.
fn candidates() -> Vec<String> {
    let fixed = EVERYWHERE.iter().chain(&[Requirement::HipHeaders, Requirement::Chromium]).flat_map(|need| need.packages());
    let mut names: Vec<String> = std::iter::once(&"rocm-device-libs").chain(fixed).map(|name| (*name).to_owned()).collect();
    for version in CLANG_VERSIONS {
        names.extend(["clang", "lld", "llvm", "rocm-device-libs"].map(|name| format!("{name}-{version}")));
    }
    names
}

/// Chooses package names. `clang` is the installed version, if any; `offered` returns whether apt has a package.
pub fn choose(os: &Os, needs: &[Requirement], clang: Option<u32>, offered: &dyn Fn(&str) -> bool) -> Choice {
    let pair_offered = |v: &u32| offered(&format!("clang-{v}")) && offered(&format!("lld-{v}"));
    let version = clang.or_else(|| os.clang_versions().into_iter().find(pair_offered));
    let mut choice = Choice::default();
    for &need in needs {
        let names: Vec<String> = match (need, version) {
            (Requirement::Clang, Some(v)) => vec![format!("clang-{v}"), format!("lld-{v}")],
            (Requirement::Llvm, Some(v)) => vec![format!("llvm-{v}")],
            (Requirement::Clang | Requirement::Llvm, None) => Vec::new(),
            (Requirement::DeviceLibs, _) => {
                // Debian 13 names them after the clang they were built with. A newer clang reads older bitcode, but not vice versa.
                let newest = version.unwrap_or(DEBIAN_CLANG);
                let numbered = CLANG_VERSIONS.into_iter().filter(|v| *v <= newest).map(|v| format!("rocm-device-libs-{v}"));
                std::iter::once("rocm-device-libs".to_owned()).chain(numbered).find(|name| offered(name)).into_iter().collect()
            }
            (need, _) => need.packages().iter().map(|name| (*name).to_owned()).collect(),
        };
        if !names.is_empty() && names.iter().all(|name| offered(name)) {
            choice.packages.extend(names);
        } else {
            choice.unknown.push(need);
        }
    }
    choice
}

/// Parses the candidate version of each package from `apt-cache policy`; skips packages without one.
pub fn parse_policy(text: &str) -> BTreeMap<String, String> {
    let mut offered = BTreeMap::new();
    let mut package = "";
    for line in text.lines() {
        if !line.starts_with(' ') {
            package = line.trim_end_matches(':');
        } else if let Some(version) = line.trim().strip_prefix("Candidate: ").filter(|v| *v != "(none)") {
            offered.insert(package.to_owned(), version.to_owned());
        }
    }
    offered
}

/// How apt-get can be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rights {
    Root,
    Sudo,
    None,
}

fn rights() -> Rights {
    let id = run::quiet(Command::new("id").arg("-u")).unwrap_or_default();
    if id.trim() == "0" {
        Rights::Root
    } else if run::quiet(Command::new("sudo").args(["-n", "true"])).is_some() {
        Rights::Sudo
    } else {
        Rights::None
    }
}

fn apt_get(rights: Rights) -> Command {
    let mut command = Command::new("env");
    if rights == Rights::Sudo {
        command = Command::new("sudo");
        command.args(["-n", "env"]);
    }
    // Another apt may be running on a machine that has just started; wait for its lock.
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120"]);
    // dpkg prints several lines per package; errors go to stderr.
    command.stdout(Stdio::null());
    command
}

fn offered_now() -> BTreeMap<String, String> {
    // Avoid translated output.
    let text = run::quiet(Command::new("apt-cache").env("LC_ALL", "C").arg("policy").args(candidates()));
    parse_policy(&text.unwrap_or_default())
}

fn print_unknown(os: &Os, unknown: &[Requirement]) {
    for need in unknown {
        println!("{} {}: no package found for {need}.", os.id, os.version);
    }
}

/// Returns the command that installs `packages`.
pub fn install_line(packages: &[String]) -> String {
    format!("sudo apt-get update && sudo apt-get install -y --no-install-recommends {}", packages.join(" "))
}

/// Installs packages; `clang` is the installed version, if any. Without permission it prints the command to run instead. The caller
/// searches for the tools again to find out what is still missing.
pub fn install(needs: &[Requirement], clang: Option<u32>, may_install: bool) -> Result<()> {
    let os = Os::here();
    if !os.has_apt() || run::quiet(Command::new("apt-get").arg("--version")).is_none() {
        println!(
            "apt not found. Install with your package manager: clang 15 or newer with lld \
             and llvm, ROCm device libraries, HIP headers, python3 with venv, Open MPI, MPICH, gfortran, iproute2, Chromium with its driver, and HAProxy."
        );
        return Ok(());
    }
    let choose_now = |offered: &BTreeMap<String, String>| choose(&os, needs, clang, &|name| offered.contains_key(name));
    let rights = if may_install { rights() } else { Rights::None };
    if rights == Rights::None {
        // A fresh machine may have no package lists: use the packages known for its release.
        let offered = offered_now();
        let choice = choose(&os, needs, clang, &|name| offered.contains_key(name) || os.is_known_to_have(name));
        print_unknown(&os, &choice.unknown);
        if !choice.packages.is_empty() {
            let why = if may_install { "No permission to install the missing tools" } else { "Some tools are missing" };
            println!("{why}. Run:\n\n    {}\n", install_line(&choice.packages));
        }
        return Ok(());
    }
    let mut choice = choose_now(&offered_now());
    let mut lists_are_fresh = false;
    if !choice.unknown.is_empty() {
        say("updating the package lists");
        run::checked(apt_get(rights).arg("update"))?;
        lists_are_fresh = true;
        choice = choose_now(&offered_now());
    }
    print_unknown(&os, &choice.unknown);
    if choice.packages.is_empty() {
        return Ok(());
    }
    say(format!("installing {} (a minute or two)", choice.packages.join(" ")));
    let install = || run::checked(apt_get(rights).args(["install", "-y", "--no-install-recommends"]).args(&choice.packages));
    match install() {
        // Outdated lists may refer to files removed from the mirror.
        Err(_) if !lists_are_fresh => {
            say("updating the package lists and trying again");
            run::checked(apt_get(rights).arg("update"))?;
            install()
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Requirement; 5] =
        [Requirement::Clang, Requirement::Llvm, Requirement::DeviceLibs, Requirement::HipHeaders, Requirement::Venv];
    const MPI: [Requirement; 4] = [Requirement::OpenMpi, Requirement::Mpich, Requirement::Fortran, Requirement::Ip];

    fn os(id: &str, version: &str) -> Os {
        Os { id: id.into(), version: version.into(), like: Vec::new() }
    }

    #[test]
    fn os_release_is_parsed_with_and_without_quotes() {
        let debian = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"\nID=debian\nVERSION_CODENAME=bookworm\n";
        assert_eq!(Os::parse(debian), os("debian", "12"));
        let mint = Os::parse("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\nVERSION_ID='21.3'\n");
        assert_eq!((mint.id.as_str(), mint.version.as_str()), ("linuxmint", "21.3"));
        assert!(mint.has_apt());
        assert!(!Os::parse("ID=fedora\nVERSION_ID=41").has_apt());
        assert_eq!(Os::parse(""), Os::default());
    }

    #[test]
    fn debian_takes_clang_19_even_when_a_newer_one_is_offered() {
        let choice = choose(&os("debian", "12"), &ALL, None, &|name| !name.starts_with("rocm-device-libs-"));
        assert_eq!(choice.packages, ["clang-19", "lld-19", "llvm-19", "rocm-device-libs", "libamdhip64-dev", "python3-venv"]);
        assert_eq!(choice.unknown, []);
    }

    #[test]
    fn ubuntu_takes_the_newest_clang_that_has_its_linker() {
        let jammy = |name: &str| ["clang-15", "lld-15", "llvm-15", "clang-17", "rocm-device-libs", "python3-venv"].contains(&name);
        let choice = choose(&os("ubuntu", "22.04"), &ALL, None, &jammy);
        assert_eq!(choice.packages, ["clang-15", "lld-15", "llvm-15", "rocm-device-libs", "python3-venv"]);
        assert_eq!(choice.unknown, [Requirement::HipHeaders]);
    }

    #[test]
    fn without_package_lists_the_release_determines_packages() {
        let packages = |id, version| {
            let os = os(id, version);
            choose(&os, &ALL, None, &|name| os.is_known_to_have(name)).packages.join(" ")
        };
        assert_eq!(packages("debian", "12"), "clang-19 lld-19 llvm-19 rocm-device-libs libamdhip64-dev python3-venv");
        assert_eq!(packages("debian", "13"), "clang-19 lld-19 llvm-19 rocm-device-libs-17 libamdhip64-dev python3-venv");
        assert_eq!(packages("ubuntu", "22.04"), "clang-15 lld-15 llvm-15 rocm-device-libs python3-venv");
        assert_eq!(packages("ubuntu", "24.04"), "clang-20 lld-20 llvm-20 rocm-device-libs-17 libamdhip64-dev python3-venv");
        assert_eq!(packages("ubuntu", "19.10"), "");
    }

    #[test]
    fn both_mpis_come_with_their_headers_on_every_release() {
        for release in &RELEASES {
            let os = os(release.id, release.version);
            let choice = choose(&os, &MPI, None, &|name| os.is_known_to_have(name));
            assert_eq!(choice.packages, ["openmpi-bin", "libopenmpi-dev", "mpich", "libmpich-dev", "gfortran", "iproute2"]);
            assert!(choice.packages.iter().all(|name| candidates().contains(name)));
        }
    }

    #[test]
    fn an_mpi_without_headers_is_not_usable() {
        let choice = choose(&os("debian", "12"), &[Requirement::Mpich], None, &|name| name == "mpich");
        assert_eq!((choice.packages.len(), choice.unknown), (0, vec![Requirement::Mpich]));
    }

    #[test]
    fn an_installed_clang_determines_the_llvm_version() {
        let choice = choose(&os("ubuntu", "24.04"), &[Requirement::Llvm], Some(17), &|_| true);
        assert_eq!(choice.packages, ["llvm-17"]);
    }

    #[test]
    fn numbered_device_libraries_are_never_newer_than_clang() {
        let offered = |name: &str| ["rocm-device-libs-20", "rocm-device-libs-17", "clang-19", "lld-19"].contains(&name);
        let choice = choose(&os("debian", "13"), &[Requirement::Clang, Requirement::DeviceLibs], None, &offered);
        assert_eq!(choice.packages, ["clang-19", "lld-19", "rocm-device-libs-17"]);
    }

    #[test]
    fn empty_package_lists_leave_everything_unknown() {
        let choice = choose(&os("debian", "12"), &ALL, None, &|_| false);
        assert_eq!((choice.packages.len(), choice.unknown.len()), (0, ALL.len()));
    }

    #[test]
    fn policy_leaves_out_packages_without_a_candidate() {
        let text = "clang-19:\n  Installed: (none)\n  Candidate: 1:19.1.7-3\n  Version table:\n     1:19.1.7-3 500\n        500 http://x y\n\
                    lld-19:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n";
        let offered = parse_policy(text);
        assert_eq!(offered.into_iter().collect::<Vec<_>>(), [("clang-19".to_owned(), "1:19.1.7-3".to_owned())]);
    }
}
