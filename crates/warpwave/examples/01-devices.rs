// Teaches: finding the GPUs of a machine, and what is known about each.
//
// Nothing is linked: the CUDA driver and the HIP runtime are opened when `Gpus::discover` runs. A vendor that is absent is a state
// with a reason, not an error, so the same program runs with NVIDIA, with AMD, with both and with neither.
//
// Run it: `cargo run --example 01-devices`

use warpwave::gpu::{Error, Gpus};

fn main() -> Result<(), Error> {
    let gpus = Gpus::discover();

    // One backend per vendor, in the order that `auto` tries them.
    for backend in gpus.backends() {
        match &backend.driver {
            Ok(driver) => println!("{}: {} {}, {}", backend.label, driver.vendor(), driver.version(), driver.library().display()),
            // The error knows every place that was looked at (`tried`); printed, it is one sentence.
            Err(error) => println!("{}: {error}", backend.label),
        }
    }

    // A device that is listed but cannot be opened would be an `Err` here.
    let devices = gpus.devices().into_iter().collect::<Result<Vec<_>, _>>()?;
    if devices.is_empty() {
        println!("No GPU on this machine.");
    }
    for device in &devices {
        let info = device.info();
        let memory = device.memory()?;
        println!("{}: {}, {}", info.name, info.model, info.arch);
        // Code must not assume 32 lanes: a wave has 64 on AMD's CDNA cards.
        println!("  {} compute units, waves of {} lanes", info.compute_units, info.wave_size);
        println!("  {} of {} bytes free", memory.free, memory.total);
        println!("  blocks of up to {} threads and {} bytes of shared memory", info.max_threads_per_block, info.shared_per_block_max);

        assert!(matches!(info.wave_size, 32 | 64));
        assert!(memory.free <= memory.total);
        // Asking for a device by name gives the same device, with the same memory pool.
        assert_eq!(&gpus.device(&info.name)?, device);
    }
    Ok(())
}
