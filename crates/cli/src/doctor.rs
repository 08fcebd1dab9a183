//! `warpwave doctor`: each vendor's chain, link by link, with the fix for the first that breaks.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use warpwave_gpu::{Device, Driver, Error, Gpus, Launch};
use warpwave_jit::Tool;

use super::{Context, Failure, Outcome, failed, inspect};

#[derive(clap::Args)]
#[command(
    after_help = "Example: warpwave doctor\n\nExits 0 when every GPU that is plugged in works, and where there is none; 1 when a GPU is there and does not work."
)]
pub(super) struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A link of the chain: what was looked at, and what was found.
struct Link {
    name: &'static str,
    found: Result<String, Broken>,
}

struct Broken {
    what: String,
    fix: String,
}

struct Chain {
    name: String,
    links: Vec<Link>,
    /// A card is plugged in, so a broken link is a fault and not just an absent vendor.
    hardware: bool,
}

impl Chain {
    /// Adds a link; the chain ends at the first that breaks.
    fn link(&mut self, name: &'static str, found: Result<String, Broken>) -> bool {
        let holds = found.is_ok();
        self.links.push(Link { name, found });
        holds
    }

    fn broken(&self) -> Option<&Broken> {
        self.links.iter().find_map(|link| link.found.as_ref().err())
    }
}

fn broken<T>(what: impl Into<String>, fix: impl Into<String>) -> Result<T, Broken> {
    Err(Broken { what: what.into(), fix: fix.into() })
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    let gpus = (context.gpus)();
    let chains: Vec<Chain> = gpus.backends().iter().map(|backend| examine(&gpus, &backend.label)).collect();
    let compilers = compilers(context);
    if args.json {
        let chains: Vec<Value> = chains.iter().map(chain_json).collect();
        let compilers: Vec<Value> = compilers.iter().map(link_json).collect();
        context.print_json(&json!({ "chains": chains, "compilers": compilers }))?;
    } else {
        for chain in &chains {
            writeln!(context.out, "{}", chain.name)?;
            chain.links.iter().try_for_each(|link| print_link(context.out, link))?;
        }
        writeln!(context.out, "compilers")?;
        compilers.iter().try_for_each(|link| print_link(context.out, link))?;
    }
    let faults: Vec<&str> =
        chains.iter().filter(|chain| chain.hardware && chain.broken().is_some()).map(|chain| chain.name.as_str()).collect();
    if faults.is_empty() { Ok(()) } else { Err(failed(format!("a device is there but does not work: {}", faults.join(", ")))) }
}

fn print_link(out: &mut dyn Write, link: &Link) -> std::io::Result<()> {
    match &link.found {
        Ok(text) => writeln!(out, "  ok   {:16} {text}", link.name),
        Err(broken) => writeln!(out, "  --   {:16} {}\n       to fix: {}", link.name, broken.what, broken.fix),
    }
}

fn chain_json(chain: &Chain) -> Value {
    let links: Vec<Value> = chain.links.iter().map(link_json).collect();
    json!({ "name": chain.name, "hardware": chain.hardware, "works": chain.broken().is_none(), "links": links })
}

fn link_json(link: &Link) -> Value {
    match &link.found {
        Ok(text) => json!({ "link": link.name, "ok": true, "found": text }),
        Err(broken) => json!({ "link": link.name, "ok": false, "found": broken.what, "fix": broken.fix }),
    }
}

/// Each compiler: where it is, or what to do about its absence.
fn compilers(context: &Context<'_>) -> Vec<Link> {
    let tools = context.jit.toolchains();
    let first = |tools: &[Tool], variable: &str, install: &str| match tools.first() {
        Some(Tool::Clang(clang)) if clang.device_libs.is_empty() => broken(
            format!("{}, but no device library (ocml.bc)", clang.path.display()),
            "apt install rocm-device-libs, or set WARPWAVE_DEVICE_LIBS",
        ),
        Some(tool) => Ok(tool.path().display().to_string()),
        None => match std::env::var(variable) {
            Ok(path) if !path.is_empty() => {
                broken(format!("{variable} names {path}, which is not there"), format!("correct or unset {variable}"))
            }
            _ => broken("not found", install),
        },
    };
    vec![
        Link { name: "clang (AMD)", found: first(&tools.clang, "WARPWAVE_CLANG", "apt install clang-19 lld-19 rocm-device-libs") },
        Link { name: "hipRTC (AMD)", found: first(&tools.hiprtc, "WARPWAVE_HIPRTC_LIB", "comes with ROCm; not needed beside clang") },
        Link {
            name: "NVRTC (NVIDIA)",
            found: first(&tools.nvrtc, "WARPWAVE_NVRTC_LIB", "pip install nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12"),
        },
    ]
}

fn examine(gpus: &Gpus, label: &str) -> Chain {
    let mut chain = Chain { name: label.to_owned(), links: Vec::new(), hardware: false };
    let system = match label {
        "cuda" => nvidia_system(&mut chain),
        "rocm" => amd_system(&mut chain),
        _ => true,
    };
    let driver = gpus.backends().iter().find(|backend| backend.label == label).map(|backend| backend.driver.clone());
    let Some(driver) = driver else { return chain };
    if gpus.backends().iter().any(|backend| backend.label == label && backend.is_virtual) {
        examine_virtual(&mut chain, driver);
        return chain;
    }
    // Without the node the rest cannot work, but which library is installed is still worth telling.
    if !system && !matches!(&driver, Ok(driver) if !driver.device_names().is_empty()) {
        let library = match &driver {
            Ok(driver) => Ok(format!("{} {} at {}", driver.vendor(), driver.version(), driver.library().display())),
            Err(error) => broken(absence(error), "comes after the link above"),
        };
        chain.link("library", library);
        return chain;
    }
    examine_driver(&mut chain, label, driver);
    chain
}

/// The virtual GPU is always there: what is broken about it is a setting, or ours.
fn examine_virtual(chain: &mut Chain, driver: warpwave_gpu::Result<Arc<Driver>>) {
    chain.hardware = true;
    match driver {
        Err(error) => _ = chain.link("settings", broken(error.to_string(), "correct or unset that variable")),
        Ok(driver) if driver.device_names().is_empty() => {
            _ = chain.link("devices", Ok("none, as WARPWAVE_VGPU_DEVICES asks".to_owned()));
        }
        Ok(driver) => {
            let fix = "no hardware is involved: please report this";
            examine_devices(chain, &driver, fix, fix);
        }
    }
}

/// Why a library could not be opened, with every place that was looked at.
fn absence(error: &Error) -> String {
    match error {
        Error::NotAvailable { tried, .. } => format!("{error}; looked for:\n{:26}{}", "", tried.join(&format!("\n{:26}", ""))),
        other => other.to_string(),
    }
}

fn examine_driver(chain: &mut Chain, label: &str, driver: warpwave_gpu::Result<Arc<Driver>>) {
    let driver = match driver {
        Ok(driver) => driver,
        Err(error) => {
            let fix = match label {
                "cuda" => "install the NVIDIA driver (apt install nvidia-driver), or set WARPWAVE_CUDA_LIB to its libcuda.so.1",
                _ => {
                    "install ROCm's runtime (apt install libamdhip64-5, or AMD's rocm packages), or set WARPWAVE_HIP_LIB to its libamdhip64.so"
                }
            };
            let what = if let Error::NotAvailable { tried, .. } = &error {
                format!("{error}; tried {}", tried.join("; "))
            } else {
                error.to_string()
            };
            chain.link("library", broken(what, fix));
            return;
        }
    };
    chain.link("library", Ok(driver.library().display().to_string()));
    chain.link("version", Ok(format!("{} {}", driver.vendor(), driver.version())));
    let missing = driver.missing_symbols();
    let symbols = if missing.is_empty() {
        "all calls are there".to_owned()
    } else {
        format!("{} calls this version lacks: {}", missing.len(), missing.join(", "))
    };
    chain.link("symbols", Ok(symbols));
    if driver.device_names().is_empty() {
        let fix = match label {
            "cuda" => "check `nvidia-smi` and CUDA_VISIBLE_DEVICES; after a driver update reboot, or reload the nvidia module",
            _ => "check `rocminfo`, HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES, and that the card is in ROCm's support list",
        };
        chain.link("devices", broken("the driver sees no device", fix));
        return;
    }
    let fix = "another process may hold all of its memory or have locked it (nvidia-smi, rocm-smi); a device that was lost comes back after a reboot";
    examine_devices(chain, &driver, fix, "the driver may be older than the card; update it");
}

/// A copy and a launch on each device, and what to do where one fails.
fn examine_devices(chain: &mut Chain, driver: &Arc<Driver>, fix: &str, fix_launch: &str) {
    chain.link("devices", Ok(driver.device_names().join(", ")));
    for ordinal in 0..driver.device_names().len() {
        let opened = driver.device(ordinal).map_err(Failure::from);
        let alloc = opened.and_then(|device| first_allocation(&device).map(|text| (device, text)));
        let device = match alloc {
            Ok((device, text)) => {
                chain.link("first allocation", Ok(text));
                device
            }
            Err(failure) => {
                chain.link("first allocation", broken(failure.message, fix));
                return;
            }
        };
        let launched = first_launch(&device).map_err(|failure| Broken { what: failure.message, fix: fix_launch.to_owned() });
        if !chain.link("first launch", launched) {
            return;
        }
    }
}

fn first_allocation(device: &Device) -> Result<String, Failure> {
    let stream = device.stream()?;
    let data: Vec<u32> = (0..1 << 16).collect();
    if stream.download(&stream.upload(&data)?)? != data {
        return Err(failed("a copy to the device came back changed"));
    }
    Ok(format!("{}: 256 KiB there and back", device.name()))
}

/// Runs the embedded kernel, so that no compiler is needed.
fn first_launch(device: &Device) -> Result<String, Failure> {
    let bundle = inspect::embedded()?;
    let target = match bundle.choose(device) {
        Ok(part) => part.target.to_string(),
        // Not a fault of the machine.
        Err(error) => return Ok(format!("not tried: {error}")),
    };
    let kernel = bundle.load(device)?.kernel("vector_add")?;
    let stream = device.stream()?;
    let n = 1000;
    let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let (x, y) = (stream.upload(&a)?, stream.upload(&vec![1.0f32; n])?);
    let mut sum = stream.alloc_zeroed::<f32>(n)?;
    // SAFETY: the kernel is ours, `vector_add(const float*, const float*, float*, int)`, and stays within n elements.
    unsafe { kernel.launch(&stream, Launch::for_elements(n, 256), (&x, &y, &mut sum, n as i32))? };
    let right = stream.download(&sum)?.iter().zip(&a).all(|(sum, a)| *sum == a + 1.0);
    if right {
        Ok(format!("{}: the embedded {target} kernel ran, and its sums are right", device.name()))
    } else {
        Err(failed("the embedded kernel gave wrong sums"))
    }
}

fn nvidia_system(chain: &mut Chain) -> bool {
    if Path::new("/dev/dxg").exists() {
        // WSL has this node for GPUs of every vendor.
        return chain.link("device node", Ok("/dev/dxg (WSL)".to_owned()));
    }
    let nodes = numbered("/dev", "nvidia");
    chain.hardware = !nodes.is_empty() || pci_vendor("0x10de");
    let found = match nodes.first() {
        Some(node) => Ok(format!("{} and {} more", node.display(), nodes.len() - 1)),
        None if pci_vendor("0x10de") => broken(
            "an NVIDIA card is plugged in, but /dev/nvidia0 is missing",
            "load the kernel module: modprobe nvidia, or install the driver (apt install nvidia-driver)",
        ),
        None => broken(
            "no /dev/nvidia0, and no NVIDIA card on the PCI bus",
            "plug in an NVIDIA GPU, or pass one to this machine or container (--gpus all)",
        ),
    };
    let Ok(first) = found else { return chain.link("device node", found) };
    chain.link("device node", Ok(first));
    let control = PathBuf::from("/dev/nvidiactl");
    let opened = nodes.iter().chain([&control]).try_for_each(|node| open(node));
    let permission = opened
        .map(|()| "the nodes can be opened".to_owned())
        .or_else(|what| broken(what, "chmod 0666 the nodes, or fix NVreg_DeviceFileMode in /etc/modprobe.d"));
    if !chain.link("permissions", permission) {
        return false;
    }
    let module = fs::read_to_string("/proc/driver/nvidia/version").map(|text| text.lines().next().unwrap_or_default().to_owned());
    let module = module.or_else(|_| broken("/proc/driver/nvidia/version is missing", "load the kernel module: modprobe nvidia"));
    chain.link("kernel driver", module)
}

fn amd_system(chain: &mut Chain) -> bool {
    let kfd = Path::new("/dev/kfd");
    chain.hardware = kfd.exists() || pci_vendor("0x1002");
    let renders = numbered("/dev/dri", "renderD");
    let found = if kfd.exists() {
        Ok(format!("/dev/kfd and {} render nodes", renders.len()))
    } else if pci_vendor("0x1002") {
        broken(
            "an AMD card is plugged in, but /dev/kfd is missing",
            "load the kernel module: modprobe amdgpu; in a container pass --device=/dev/kfd --device=/dev/dri",
        )
    } else {
        broken(
            "no /dev/kfd, and no AMD card on the PCI bus",
            "plug in an AMD GPU, or pass one to this machine or container (--device=/dev/kfd --device=/dev/dri)",
        )
    };
    if !chain.link("device node", found) {
        return false;
    }
    let opened = [kfd.to_owned()].iter().chain(&renders).try_for_each(|node| open(node));
    let permission = opened
        .map(|()| "the nodes can be opened".to_owned())
        .or_else(|what| broken(what, "add the user to the groups render and video (usermod -aG render,video $USER), and log in again"));
    if !chain.link("permissions", permission) {
        return false;
    }
    let module = fs::read_to_string("/sys/module/amdgpu/version").map(|text| format!("amdgpu {}", text.trim()));
    let module = module.or_else(|_| {
        if Path::new("/sys/module/amdgpu").exists() {
            Ok("amdgpu, of the kernel itself".to_owned())
        } else {
            broken("the module amdgpu is not loaded", "modprobe amdgpu")
        }
    });
    chain.link("kernel driver", module)
}

/// `prefix0`, `prefix1` … in a folder.
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
