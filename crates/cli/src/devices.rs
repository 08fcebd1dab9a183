//! `warpwave devices`.

use std::io::Write;

use serde_json::{Value, json};
use warpwave_gpu::{Backend, Device, DeviceInfo, Devices, Error, MemoryInfo};

use super::{Context, Outcome, human_bytes};

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave devices --json | jq -r '.devices[].name'\n\nExit code: 0, even if no GPU is found.")]
pub(super) struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    let gpus = (context.gpus)();
    let devices = gpus.physical();
    if args.json {
        let backends = |is_virtual| gpus.backends().iter().filter(|b| b.is_virtual == is_virtual).map(backend_json).collect::<Vec<Value>>();
        let list = |devices: &[warpwave_gpu::Result<Device>]| {
            let entry = |device: &warpwave_gpu::Result<Device>| match device {
                Ok(device) => device_json(device.info(), device.memory().ok()),
                Err(error) => json!({ "error": error.to_string() }),
            };
            devices.iter().map(entry).collect::<Vec<Value>>()
        };
        return context.print_json(&json!({
            "backends": backends(false),
            "devices": list(&devices),
            "virtual_backends": backends(true),
            "virtual_devices": list(&gpus.emulated()),
        }));
    }
    let out = &mut context.out;
    for backend in gpus.backends().iter().filter(|backend| !backend.is_virtual) {
        match &backend.driver {
            Ok(driver) => {
                let count = driver.device_names().len();
                let plural = if count == 1 { "device" } else { "devices" };
                writeln!(
                    out,
                    "{:6} {} {} ({count} {plural}), {}",
                    backend.label,
                    driver.vendor(),
                    driver.version(),
                    driver.library().display()
                )?;
            }
            Err(error) => {
                writeln!(out, "{:6} absent: {error}", backend.label)?;
                if let Error::NotAvailable { tried, .. } = error {
                    let more = if tried.len() > 1 { format!(" (and {} more; see --json)", tried.len() - 1) } else { String::new() };
                    writeln!(out, "       searched {}{more}", tried.first().map_or("nothing", String::as_str))?;
                }
            }
        }
    }
    if devices.is_empty() {
        writeln!(out, "\nNo GPU found. Run `warpwave doctor` to diagnose; `warpwave compile` needs no GPU.")?;
    }
    for device in devices {
        match device {
            Err(error) => writeln!(out, "\n{error}")?,
            Ok(device) => {
                let info = device.info();
                writeln!(out, "\n{}  {}", info.name, info.model)?;
                let tier = info.card.as_ref().map(|card| format!(", {} ({})", card.generation, card.tier)).unwrap_or_default();
                writeln!(out, "  architecture   {}{tier}", info.arch)?;
                writeln!(out, "  compute units  {}, wave size {}", info.compute_units, info.wave_size)?;
                let free = device.memory().map(|memory| format!(", {} free", human_bytes(memory.free))).unwrap_or_default();
                writeln!(out, "  memory         {}{free}", human_bytes(info.total_memory))?;
                writeln!(out, "  shared memory  {} per block", human_bytes(info.shared_per_block_max))?;
                let location = [info.pci.as_deref(), info.uuid.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(", ");
                writeln!(out, "  location       {location}")?;
            }
        }
    }
    print_virtual(out, &gpus)
}

/// Prints one line per virtual device.
fn print_virtual(out: &mut dyn Write, gpus: &Devices) -> Outcome {
    for backend in gpus.backends().iter().filter(|backend| backend.is_virtual) {
        if let Err(error) = &backend.driver {
            writeln!(out, "\n{:6} absent: {error}", backend.label)?;
        }
    }
    let devices = gpus.emulated();
    if !devices.is_empty() {
        writeln!(out, "\nVirtual GPUs (AMD machine code executed on the CPU), for `--device`:")?;
    }
    for device in devices {
        match device {
            Err(error) => writeln!(out, "  {error}")?,
            Ok(device) => {
                let info = device.info();
                let memory = human_bytes(info.total_memory);
                writeln!(
                    out,
                    "  {:14} {}, {}, {} CUs, wave size {}, {memory}",
                    info.name, info.model, info.arch, info.compute_units, info.wave_size
                )?;
            }
        }
    }
    Ok(())
}

fn backend_json(backend: &Backend) -> Value {
    match &backend.driver {
        Ok(driver) => json!({
            "name": backend.label,
            "state": if driver.device_names().is_empty() { "no device" } else { "ready" },
            "api": driver.vendor().to_string(),
            "version": driver.version().to_string(),
            "library": driver.library(),
            "devices": driver.device_names(),
        }),
        Err(error) => {
            let tried = if let Error::NotAvailable { tried, .. } = error { tried.clone() } else { Vec::new() };
            json!({ "name": backend.label, "state": "absent", "reason": error.to_string(), "tried": tried })
        }
    }
}

fn device_json(info: &DeviceInfo, memory: Option<MemoryInfo>) -> Value {
    json!({
        "name": info.name,
        "model": info.model,
        "api": info.vendor.to_string(),
        "arch": info.arch.to_string(),
        "is_virtual": info.is_virtual,
        "wave_size": info.wave_size,
        "compute_units": info.compute_units,
        "total_memory": info.total_memory,
        "free_memory": memory.map(|m| m.free),
        "shared_memory_per_block": info.shared_per_block_max,
        "max_threads_per_block": info.max_threads_per_block,
        "registers_per_block": info.registers_per_block,
        "clock_khz": info.clock_khz,
        "memory_clock_khz": info.memory_clock_khz,
        "memory_bus_bits": info.memory_bus_bits,
        "l2_bytes": info.l2_bytes,
        "uuid": info.uuid,
        "pci": info.pci,
        "unified_memory": info.unified_memory,
        "cooperative_launch": info.cooperative_launch,
        "integrated": info.integrated,
        "generation": info.card.as_ref().map(|card| card.generation),
        "tier": info.card.as_ref().map(|card| card.tier),
    })
}
