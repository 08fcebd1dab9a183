//! `warpwave doctor`: checks each backend from device node to first launch and suggests a fix for the first failing check.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use warpwave_gpu::{Device, Devices, Driver, Error, Launch, Vendor};
use warpwave_jit::archive::VARIABLE;
use warpwave_jit::{Archive, Target, Tool};

use super::{Context, Failure, Outcome, failed, inspect};

#[derive(clap::Args)]
#[command(
    after_help = "Example: warpwave doctor\n\nExit code: 0 if every GPU works or none is present, 1 if a GPU is present but does not work."
)]
pub(super) struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// One check and its result.
struct Check {
    name: &'static str,
    result: Result<String, Problem>,
}

/// A failed check.
struct Problem {
    message: String,
    fix: String,
}

/// The checks of one backend, in order of dependency.
struct Report {
    name: String,
    checks: Vec<Check>,
    /// Whether a card is installed: if so, a failed check is an error.
    hardware: bool,
}

impl Report {
    /// Adds a check and returns whether it passed; callers stop at the first failure.
    fn check(&mut self, name: &'static str, result: Result<String, Problem>) -> bool {
        let passed = result.is_ok();
        self.checks.push(Check { name, result });
        passed
    }

    fn problem(&self) -> Option<&Problem> {
        self.checks.iter().find_map(|check| check.result.as_ref().err())
    }
}

fn problem<T>(message: impl Into<String>, fix: impl Into<String>) -> Result<T, Problem> {
    Err(Problem { message: message.into(), fix: fix.into() })
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    let gpus = (context.gpus)();
    let reports: Vec<Report> = gpus.backends().iter().map(|backend| examine(&gpus, &backend.label)).collect();
    let archives = archives(context);
    let compilers = compilers(context);
    if args.json {
        let backends: Vec<Value> = reports.iter().map(report_json).collect();
        let compilers: Vec<Value> = compilers.iter().map(check_json).collect();
        let archive = |archive: &Archive| {
            let targets = inspect::archive_counts(archive);
            let target = |(target, programs): &(Target, usize)| json!({ "target": target.to_string(), "programs": programs });
            json!({ "file": archive.name(), "targets": targets.iter().map(target).collect::<Vec<_>>() })
        };
        let archives: Vec<Value> = context.jit.archives().iter().map(archive).collect();
        context.print_json(&json!({ "backends": backends, "compilers": compilers, "archives": archives }))?;
    } else {
        for report in &reports {
            writeln!(context.out, "{}", report.name)?;
            report.checks.iter().try_for_each(|check| print_check(context.out, check))?;
        }
        writeln!(context.out, "compilers")?;
        compilers.iter().try_for_each(|check| print_check(context.out, check))?;
        writeln!(context.out, "kernel archives")?;
        archives.iter().try_for_each(|check| print_check(context.out, check))?;
    }
    let faults: Vec<&str> =
        reports.iter().filter(|report| report.hardware && report.problem().is_some()).map(|report| report.name.as_str()).collect();
    if faults.is_empty() { Ok(()) } else { Err(failed(format!("devices present but not working: {}", faults.join(", ")))) }
}

fn print_check(out: &mut dyn Write, check: &Check) -> std::io::Result<()> {
    match &check.result {
        Ok(text) => writeln!(out, "  ok   {:16} {text}", check.name),
        Err(problem) => writeln!(out, "  --   {:16} {}\n       fix: {}", check.name, problem.message, problem.fix),
    }
}

fn report_json(report: &Report) -> Value {
    let checks: Vec<Value> = report.checks.iter().map(check_json).collect();
    json!({ "name": report.name, "hardware": report.hardware, "ok": report.problem().is_none(), "checks": checks })
}

fn check_json(check: &Check) -> Value {
    match &check.result {
        Ok(text) => json!({ "name": check.name, "ok": true, "detail": text }),
        Err(problem) => json!({ "name": check.name, "ok": false, "detail": problem.message, "fix": problem.fix }),
    }
}

/// Lists the archives that kernels are loaded from.
fn archives(context: &Context<'_>) -> Vec<Check> {
    let describe = |archive: &Archive| {
        let targets: Vec<String> =
            inspect::archive_counts(archive).iter().map(|(target, programs)| format!("{target} ({programs} programs)")).collect();
        Check { name: "archive", result: Ok(format!("{}: {}", archive.name(), targets.join(", "))) }
    };
    let mut found: Vec<Check> = context.jit.archives().iter().map(describe).collect();
    if found.is_empty() {
        found.push(Check { name: "archive", result: Ok(format!("none (optional; set {VARIABLE} to their directory)")) });
    }
    found
}

/// Returns the names of a vendor's devices that archives have code for, and of the others.
fn archived_devices(context: &Context<'_>, vendor: Vendor) -> [Vec<String>; 2] {
    let mut names = [Vec::new(), Vec::new()];
    let archives = context.jit.archives();
    // Opening devices takes a while.
    if archives.is_empty() {
        return names;
    }
    for driver in (context.gpus)().backends().iter().filter_map(|backend| backend.driver.as_ref().ok()) {
        if driver.vendor() != vendor {
            continue;
        }
        for device in (0..driver.device_names().len()).filter_map(|ordinal| driver.device(ordinal).ok()) {
            let has_code = archives.iter().any(|archive| archive.supports(device.info().arch));
            names[usize::from(!has_code)].push(device.name().to_owned());
        }
    }
    names
}

/// Checks each compiler: its path, or how to install it. Where archives have code for all of a vendor's devices, it may be missing.
fn compilers(context: &Context<'_>) -> Vec<Check> {
    let missing = |vendor: Vendor, install: &str| match archived_devices(context, vendor) {
        [archived, _] if archived.is_empty() => problem("not found", install),
        [archived, others] if others.is_empty() => Ok(format!("not found; kernel archives have code for {}", archived.join(", "))),
        [archived, others] => {
            let (archived, others) = (archived.join(", "), others.join(", "));
            problem(format!("not found; kernel archives have code for {archived}, but not for {others}"), install)
        }
    };
    let tools = context.jit.toolchains();
    let first = |tools: &[Tool], variable: &str, vendor: Vendor, install: &str| match tools.first() {
        Some(Tool::Clang(clang)) if clang.device_libs.is_empty() => problem(
            format!("{} found, but the device libraries (ocml.bc) are missing", clang.path.display()),
            "apt install rocm-device-libs, or set WARPWAVE_DEVICE_LIBS",
        ),
        Some(tool) => Ok(tool.path().display().to_string()),
        None => match std::env::var(variable) {
            Ok(path) if !path.is_empty() => problem(format!("{variable}={path}: file not found"), format!("fix or unset {variable}")),
            _ => missing(vendor, install),
        },
    };
    vec![
        Check {
            name: "clang (AMD)",
            result: first(&tools.clang, "WARPWAVE_CLANG", Vendor::Amd, "apt install clang-19 lld-19 rocm-device-libs"),
        },
        Check {
            name: "hipRTC (AMD)",
            result: first(&tools.hiprtc, "WARPWAVE_HIPRTC_LIB", Vendor::Amd, "install ROCm (optional if clang is available)"),
        },
        Check {
            name: "NVRTC (NVIDIA)",
            result: first(
                &tools.nvrtc,
                "WARPWAVE_NVRTC_LIB",
                Vendor::Nvidia,
                "pip install nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12",
            ),
        },
    ]
}

fn examine(gpus: &Devices, label: &str) -> Report {
    let mut report = Report { name: label.to_owned(), checks: Vec::new(), hardware: false };
    let system = match label {
        "cuda" => nvidia_system(&mut report),
        "rocm" => amd_system(&mut report),
        _ => true,
    };
    let driver = gpus.backends().iter().find(|backend| backend.label == label).map(|backend| backend.driver.clone());
    let Some(driver) = driver else { return report };
    if gpus.backends().iter().any(|backend| backend.label == label && backend.is_virtual) {
        examine_virtual(&mut report, driver);
        return report;
    }
    // Without the device node nothing else can work, but the installed library is still useful to know.
    if !system && !matches!(&driver, Ok(driver) if !driver.device_names().is_empty()) {
        let library = match &driver {
            Ok(driver) => Ok(format!("{} {} at {}", driver.vendor(), driver.version(), driver.library().display())),
            Err(error) => problem(absence(error), "resolve the failed check above first"),
        };
        report.check("library", library);
        return report;
    }
    examine_driver(&mut report, label, driver);
    report
}

/// Checks the virtual GPU. It needs no hardware, so a failure is a wrong setting or a bug.
fn examine_virtual(report: &mut Report, driver: warpwave_gpu::Result<Arc<Driver>>) {
    report.hardware = true;
    match driver {
        Err(error) => _ = report.check("settings", problem(error.to_string(), "fix or unset the variable named in the message")),
        Ok(driver) if driver.device_names().is_empty() => {
            _ = report.check("devices", Ok("none (WARPWAVE_VGPU_DEVICES)".to_owned()));
        }
        Ok(driver) => {
            let fix = "this is a bug in warpwave; please report it";
            examine_devices(report, &driver, fix, fix);
        }
    }
}

/// Formats why a library could not be loaded, with every path searched.
fn absence(error: &Error) -> String {
    match error {
        Error::NotAvailable { tried, .. } => format!("{error}; searched:\n{:26}{}", "", tried.join(&format!("\n{:26}", ""))),
        other => other.to_string(),
    }
}

fn examine_driver(report: &mut Report, label: &str, driver: warpwave_gpu::Result<Arc<Driver>>) {
    let driver = match driver {
        Ok(driver) => driver,
        Err(error) => {
            let fix = match label {
                "cuda" => "install the NVIDIA driver (apt install nvidia-driver), or set WARPWAVE_CUDA_LIB to its libcuda.so.1",
                _ => {
                    "install ROCm's runtime (apt install libamdhip64-5, or AMD's rocm packages), or set WARPWAVE_HIP_LIB to its libamdhip64.so"
                }
            };
            let message = if let Error::NotAvailable { tried, .. } = &error {
                format!("{error}; searched: {}", tried.join("; "))
            } else {
                error.to_string()
            };
            report.check("library", problem(message, fix));
            return;
        }
    };
    report.check("library", Ok(driver.library().display().to_string()));
    report.check("version", Ok(format!("{} {}", driver.vendor(), driver.version())));
    let missing = driver.missing_symbols();
    let symbols = if missing.is_empty() {
        "all functions found".to_owned()
    } else {
        format!("{} functions missing in this version: {}", missing.len(), missing.join(", "))
    };
    report.check("symbols", Ok(symbols));
    if driver.device_names().is_empty() {
        let fix = match label {
            "cuda" => "check `nvidia-smi` and CUDA_VISIBLE_DEVICES; after a driver update, reboot or reload the nvidia module",
            _ => "check `rocminfo`, HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES, and that ROCm supports the card",
        };
        report.check("devices", problem("the driver reports no devices", fix));
        return;
    }
    let fix = "another process may be using all GPU memory, or the GPU may be in exclusive mode (see nvidia-smi, rocm-smi); \
               if the device was lost, reboot";
    examine_devices(report, &driver, fix, "the driver may be too old for the card; update it");
}

/// Checks an allocation, a copy and a launch on each device.
fn examine_devices(report: &mut Report, driver: &Arc<Driver>, fix: &str, fix_launch: &str) {
    report.check("devices", Ok(driver.device_names().join(", ")));
    for ordinal in 0..driver.device_names().len() {
        let opened = driver.device(ordinal).map_err(Failure::from);
        let alloc = opened.and_then(|device| first_allocation(&device).map(|text| (device, text)));
        let device = match alloc {
            Ok((device, text)) => {
                report.check("first allocation", Ok(text));
                device
            }
            Err(failure) => {
                report.check("first allocation", problem(failure.message, fix));
                return;
            }
        };
        let launched = first_launch(&device).map_err(|failure| Problem { message: failure.message, fix: fix_launch.to_owned() });
        if !report.check("first launch", launched) {
            return;
        }
    }
}

fn first_allocation(device: &Device) -> Result<String, Failure> {
    let stream = device.stream()?;
    let data: Vec<u32> = (0..1 << 16).collect();
    if stream.download(&stream.upload(&data)?)? != data {
        return Err(failed("data copied to the device and back differs"));
    }
    Ok(format!("{}: copied 256 KiB to the device and back", device.name()))
}

/// Runs the embedded kernel, which needs no compiler.
fn first_launch(device: &Device) -> Result<String, Failure> {
    let bundle = inspect::embedded()?;
    let target = match bundle.choose(device) {
        Ok(part) => part.target.to_string(),
        // Not an error: the embedded bundle has no code for this GPU.
        Err(error) => return Ok(format!("skipped: {error}")),
    };
    let kernel = bundle.load(device)?.kernel("vector_add")?;
    let stream = device.stream()?;
    let n = 1000;
    let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let (x, y) = (stream.upload(&a)?, stream.upload(&vec![1.0f32; n])?);
    let mut sum = stream.alloc_zeroed::<f32>(n)?;
    // SAFETY: the kernel is ours, `vector_add(const float*, const float*, float*, int)`, and stays within n elements.
    unsafe { kernel.launch(&stream, Launch::for_elements(n, 256), (&x, &y, &mut sum, n as i32))? };
    let correct = stream.download(&sum)?.iter().zip(&a).all(|(sum, a)| *sum == a + 1.0);
    if correct {
        Ok(format!("{}: embedded {target} kernel ran with correct results", device.name()))
    } else {
        Err(failed("the embedded kernel returned wrong results"))
    }
}

fn nvidia_system(report: &mut Report) -> bool {
    if Path::new("/dev/dxg").exists() {
        // WSL uses this node for GPUs of every vendor.
        return report.check("device node", Ok("/dev/dxg (WSL)".to_owned()));
    }
    let nodes = numbered("/dev", "nvidia");
    report.hardware = !nodes.is_empty() || pci_vendor("0x10de");
    let found = match nodes.first() {
        Some(node) => Ok(format!("{} and {} more", node.display(), nodes.len() - 1)),
        None if pci_vendor("0x10de") => problem(
            "an NVIDIA card is installed, but /dev/nvidia0 is missing",
            "load the kernel module: modprobe nvidia, or install the driver (apt install nvidia-driver)",
        ),
        None => problem(
            "/dev/nvidia0 not found; no NVIDIA card on the PCI bus",
            "install an NVIDIA GPU, or pass one through to this VM or container (--gpus all)",
        ),
    };
    let Ok(first) = found else { return report.check("device node", found) };
    report.check("device node", Ok(first));
    let control = PathBuf::from("/dev/nvidiactl");
    let opened = nodes.iter().chain([&control]).try_for_each(|node| open(node));
    let permission = opened
        .map(|()| "device nodes are accessible".to_owned())
        .or_else(|message| problem(message, "run `chmod 0666 /dev/nvidia*`, or fix NVreg_DeviceFileMode in /etc/modprobe.d"));
    if !report.check("permissions", permission) {
        return false;
    }
    let module = fs::read_to_string("/proc/driver/nvidia/version").map(|text| text.lines().next().unwrap_or_default().to_owned());
    let module = module.or_else(|_| problem("/proc/driver/nvidia/version is missing", "load the kernel module: modprobe nvidia"));
    report.check("kernel driver", module)
}

fn amd_system(report: &mut Report) -> bool {
    let kfd = Path::new("/dev/kfd");
    report.hardware = kfd.exists() || pci_vendor("0x1002");
    let renders = numbered("/dev/dri", "renderD");
    let found = if kfd.exists() {
        Ok(format!("/dev/kfd and {} render nodes", renders.len()))
    } else if pci_vendor("0x1002") {
        problem(
            "an AMD card is installed, but /dev/kfd is missing",
            "load the kernel module: modprobe amdgpu; in a container, pass --device=/dev/kfd --device=/dev/dri",
        )
    } else {
        problem(
            "/dev/kfd not found; no AMD card on the PCI bus",
            "install an AMD GPU, or pass one through to this VM or container (--device=/dev/kfd --device=/dev/dri)",
        )
    };
    if !report.check("device node", found) {
        return false;
    }
    let opened = [kfd.to_owned()].iter().chain(&renders).try_for_each(|node| open(node));
    let permission = opened.map(|()| "device nodes are accessible".to_owned()).or_else(|message| {
        problem(message, "add the user to the groups render and video (usermod -aG render,video $USER), and log in again")
    });
    if !report.check("permissions", permission) {
        return false;
    }
    let module = fs::read_to_string("/sys/module/amdgpu/version").map(|text| format!("amdgpu {}", text.trim()));
    let module = module.or_else(|_| {
        if Path::new("/sys/module/amdgpu").exists() {
            Ok("amdgpu (in-tree)".to_owned())
        } else {
            problem("kernel module amdgpu is not loaded", "modprobe amdgpu")
        }
    });
    report.check("kernel driver", module)
}

/// Lists `prefix0`, `prefix1`, ... in a directory.
fn numbered(folder: &str, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_numbered =
        |name: &str| name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()));
    let mut all: Vec<PathBuf> =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(is_numbered)).map(|entry| entry.path()).collect();
    all.sort();
    all
}

fn pci_vendor(vendor: &str) -> bool {
    let devices = fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    // Class 03 is a display controller, 12 a processing accelerator.
    let is_gpu = |folder: PathBuf| {
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        read("vendor").trim() == vendor && (read("class").starts_with("0x03") || read("class").starts_with("0x12"))
    };
    devices.map(|entry| entry.path()).any(is_gpu)
}

fn open(node: &Path) -> Result<(), String> {
    fs::OpenOptions::new().read(true).write(true).open(node).map(drop).map_err(|error| format!("{}: {error}", node.display()))
}
