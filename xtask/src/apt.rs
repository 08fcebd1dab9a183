//! Debian's and Ubuntu's packages: which names there are for what the tests need, and installing them.

use std::collections::BTreeMap;
use std::fmt;
use std::process::{Command, Stdio};

use crate::run::{self, Result, say};

/// Versions of clang that compile for AMD GPUs well enough, the newest first.
pub const CLANG_VERSIONS: [u32; 6] = [20, 19, 18, 17, 16, 15];

/// The version Debian 12 and 13 both have, and the one the project is developed with.
const DEBIAN_CLANG: u32 = 19;

/// One thing to have that comes as packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The compiler and linker for AMD GPUs.
    Clang,
    /// LLVM's binary tools, which the tests look into code objects with.
    Llvm,
    /// AMD's device libraries (bitcode).
    DeviceLibs,
    /// HIP's headers, which the driver table is checked against.
    HipHeaders,
    /// Python with its `venv` module, for NVIDIA's wheels.
    Venv,
    /// The first of the two MPIs that the interposer is tested with.
    OpenMpi,
    /// The second.
    Mpich,
    /// A compiler for the test programs in Fortran.
    Fortran,
    /// `ip`, which makes several nodes of one machine.
    Ip,
}

impl Need {
    /// Its packages, where they are called the same everywhere.
    fn packages(self) -> &'static [&'static str] {
        match self {
            Need::Clang | Need::Llvm | Need::DeviceLibs => &[],
            Need::HipHeaders => &["libamdhip64-dev"],
            Need::Venv => &["python3-venv"],
            Need::OpenMpi => &["openmpi-bin", "libopenmpi-dev"],
            Need::Mpich => &["mpich", "libmpich-dev"],
            Need::Fortran => &["gfortran"],
            Need::Ip => &["iproute2"],
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Need::Clang => "clang 15 or newer and its lld",
            Need::Llvm => "LLVM's binary tools",
            Need::DeviceLibs => "AMD's device libraries",
            Need::HipHeaders => "HIP's headers",
            Need::Venv => "Python's venv",
            Need::OpenMpi => "Open MPI",
            Need::Mpich => "MPICH",
            Need::Fortran => "a Fortran compiler",
            Need::Ip => "ip",
        })
    }
}

/// What the package lists of a release hold.
struct Release {
    id: &'static str,
    version: &'static str,
    clang: std::ops::RangeInclusive<u32>,
    device_libs: &'static str,
    hip_headers: bool,
}

/// The releases the tools are known to install on, for machines that have not fetched their lists.
const RELEASES: [Release; 4] = [
    Release { id: "debian", version: "12", clang: 15..=19, device_libs: "rocm-device-libs", hip_headers: true },
    Release { id: "debian", version: "13", clang: 17..=19, device_libs: "rocm-device-libs-17", hip_headers: true },
    Release { id: "ubuntu", version: "22.04", clang: 15..=15, device_libs: "rocm-device-libs", hip_headers: false },
    Release { id: "ubuntu", version: "24.04", clang: 15..=20, device_libs: "rocm-device-libs-17", hip_headers: true },
];

/// What every one of them has.
const EVERYWHERE: [Need; 5] = [Need::Venv, Need::OpenMpi, Need::Mpich, Need::Fortran, Need::Ip];

/// What `/etc/os-release` says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Os {
    /// `debian`, `ubuntu`, `fedora`.
    pub id: String,
    /// `12`, `24.04`; empty on rolling releases.
    pub version: String,
    /// Families it belongs to.
    pub like: Vec<String>,
}

impl Os {
    /// This machine's.
    pub fn here() -> Os {
        let text = std::fs::read_to_string("/etc/os-release").or_else(|_| std::fs::read_to_string("/usr/lib/os-release"));
        Os::parse(&text.unwrap_or_default())
    }

    /// Reads the shell-like `KEY=value` lines.
    pub fn parse(text: &str) -> Os {
        let value = |key: &str| {
            let found = text.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='));
            found.unwrap_or_default().trim_matches(['"', '\'']).to_owned()
        };
        Os { id: value("ID"), version: value("VERSION_ID"), like: value("ID_LIKE").split_whitespace().map(str::to_owned).collect() }
    }

    /// Whether packages come with apt.
    pub fn has_apt(&self) -> bool {
        let family = |id: &str| id == "debian" || id == "ubuntu";
        family(&self.id) || self.like.iter().any(|id| family(id))
    }

    /// Whether the release has the package, as far as is known without its lists.
    fn is_known_to_have(&self, package: &str) -> bool {
        let Some(release) = RELEASES.iter().find(|r| r.id == self.id && r.version == self.version) else { return false };
        match package {
            "libamdhip64-dev" => release.hip_headers,
            name if EVERYWHERE.iter().any(|need| need.packages().contains(&name)) => true,
            name if name.starts_with("rocm-device-libs") => name == release.device_libs,
            name => name.rsplit('-').next().and_then(|v| v.parse().ok()).is_some_and(|v| release.clang.contains(&v)),
        }
    }

    /// Versions of clang in the order to try them.
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
    /// To install.
    pub packages: Vec<String>,
    /// Needs no known package was offered for.
    pub unknown: Vec<Need>,
}

/// Every name that could be asked for, for one question to apt-cache.
fn candidates() -> Vec<String> {
    let fixed = EVERYWHERE.iter().chain(&[Need::HipHeaders]).flat_map(|need| need.packages());
    let mut names: Vec<String> = std::iter::once(&"rocm-device-libs").chain(fixed).map(|name| (*name).to_owned()).collect();
    for version in CLANG_VERSIONS {
        names.extend(["clang", "lld", "llvm", "rocm-device-libs"].map(|name| format!("{name}-{version}")));
    }
    names
}

/// Chooses package names. `clang` is the version already there, if any; `offered` says whether apt knows a name.
pub fn choose(os: &Os, needs: &[Need], clang: Option<u32>, offered: &dyn Fn(&str) -> bool) -> Choice {
    let pair_offered = |v: &u32| offered(&format!("clang-{v}")) && offered(&format!("lld-{v}"));
    let version = clang.or_else(|| os.clang_versions().into_iter().find(pair_offered));
    let mut choice = Choice::default();
    for &need in needs {
        let names: Vec<String> = match (need, version) {
            (Need::Clang, Some(v)) => vec![format!("clang-{v}"), format!("lld-{v}")],
            (Need::Llvm, Some(v)) => vec![format!("llvm-{v}")],
            (Need::Clang | Need::Llvm, None) => Vec::new(),
            (Need::DeviceLibs, _) => {
                // Debian 13 names them after the clang they were built with; a newer clang reads older bitcode, not the
                // other way round.
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

/// The candidate version of each package in the words of `apt-cache policy`; packages without one are left out.
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

/// How apt-get may be run here.
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
    // Another apt may be at work on a machine that has just started; wait for its lock rather than fail.
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120"]);
    // dpkg has four lines to say on each of a hundred packages; what goes wrong is said on stderr.
    command.stdout(Stdio::null());
    command
}

fn offered_now() -> BTreeMap<String, String> {
    // The output is translated otherwise.
    let text = run::quiet(Command::new("apt-cache").env("LC_ALL", "C").arg("policy").args(candidates()));
    parse_policy(&text.unwrap_or_default())
}

fn say_unknown(os: &Os, unknown: &[Need]) {
    for need in unknown {
        println!("{} {} offers no package with {need}.", os.id, os.version);
    }
}

/// The one command that installs `packages`.
pub fn install_line(packages: &[String]) -> String {
    format!("sudo apt-get update && sudo apt-get install -y --no-install-recommends {}", packages.join(" "))
}

/// Installs what `needs` ask for; `clang` is the version already there, if any. Without the rights it prints the one
/// command to run instead. What could not be had is found by the caller, who looks at the tools themselves.
pub fn install(needs: &[Need], clang: Option<u32>, may_install: bool) -> Result<()> {
    let os = Os::here();
    if !os.has_apt() || run::quiet(Command::new("apt-get").arg("--version")).is_none() {
        println!(
            "There is no apt here, so nothing is installed for you. Install with your package manager: clang 15 or newer with lld \
             and llvm, ROCm's device libraries, HIP's headers, python3 with venv, Open MPI, MPICH, gfortran and iproute2."
        );
        return Ok(());
    }
    let choose_now = |offered: &BTreeMap<String, String>| choose(&os, needs, clang, &|name| offered.contains_key(name));
    let rights = if may_install { rights() } else { Rights::None };
    if rights == Rights::None {
        // A fresh machine has no package lists and offers nothing: name what its release is known to have.
        let offered = offered_now();
        let choice = choose(&os, needs, clang, &|name| offered.contains_key(name) || os.is_known_to_have(name));
        say_unknown(&os, &choice.unknown);
        if !choice.packages.is_empty() {
            let why = if may_install { "This user may not install the missing tools" } else { "Some tools are missing" };
            println!("{why}. Run this once:\n\n    {}\n", install_line(&choice.packages));
        }
        return Ok(());
    }
    let mut choice = choose_now(&offered_now());
    let mut lists_are_fresh = false;
    if !choice.unknown.is_empty() {
        say("fetching the package lists");
        run::checked(apt_get(rights).arg("update"))?;
        lists_are_fresh = true;
        choice = choose_now(&offered_now());
    }
    say_unknown(&os, &choice.unknown);
    if choice.packages.is_empty() {
        return Ok(());
    }
    say(format!("installing {} (a minute or two)", choice.packages.join(" ")));
    let install = || run::checked(apt_get(rights).args(["install", "-y", "--no-install-recommends"]).args(&choice.packages));
    match install() {
        // Old lists name files the mirror no longer has.
        Err(_) if !lists_are_fresh => {
            say("fetching the package lists and trying again");
            run::checked(apt_get(rights).arg("update"))?;
            install()
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Need; 5] = [Need::Clang, Need::Llvm, Need::DeviceLibs, Need::HipHeaders, Need::Venv];
    const MPI: [Need; 4] = [Need::OpenMpi, Need::Mpich, Need::Fortran, Need::Ip];

    fn os(id: &str, version: &str) -> Os {
        Os { id: id.into(), version: version.into(), like: Vec::new() }
    }

    #[test]
    fn os_release_is_read_with_and_without_quotes() {
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
        assert_eq!(choice.unknown, [Need::HipHeaders]);
    }

    #[test]
    fn without_package_lists_the_release_decides() {
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
    fn an_mpi_without_its_headers_is_none() {
        let choice = choose(&os("debian", "12"), &[Need::Mpich], None, &|name| name == "mpich");
        assert_eq!((choice.packages.len(), choice.unknown), (0, vec![Need::Mpich]));
    }

    #[test]
    fn a_clang_that_is_there_decides_the_version_of_the_rest() {
        let choice = choose(&os("ubuntu", "24.04"), &[Need::Llvm], Some(17), &|_| true);
        assert_eq!(choice.packages, ["llvm-17"]);
    }

    #[test]
    fn numbered_device_libraries_are_never_newer_than_clang() {
        let offered = |name: &str| ["rocm-device-libs-20", "rocm-device-libs-17", "clang-19", "lld-19"].contains(&name);
        let choice = choose(&os("debian", "13"), &[Need::Clang, Need::DeviceLibs], None, &offered);
        assert_eq!(choice.packages, ["clang-19", "lld-19", "rocm-device-libs-17"]);
    }

    #[test]
    fn empty_package_lists_leave_every_need_unknown() {
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
