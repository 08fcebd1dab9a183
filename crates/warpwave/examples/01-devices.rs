// Teaches: listing the devices of a machine and their properties.
//
// No vendor library is linked: `warpwave::devices` opens the CUDA driver and the HIP runtime at run time. A missing driver is reported
// with a reason, not an error, so the same program runs with NVIDIA, with AMD, with both and with neither.
//
// Run it: `cargo run --example 01-devices`

use warpwave::gpu::Error;

fn main() -> Result<(), Error> {
    let registry = warpwave::devices();

    // One backend per vendor, in the order that `auto` tries them, then the virtual GPU.
    for backend in registry.backends() {
        match &backend.driver {
            Ok(driver) => println!("{}: {} {}, {}", backend.label, driver.vendor(), driver.version(), driver.library().display()),
            // The error lists every file that was tried.
            Err(error) => println!("{}: {error}", backend.label),
        }
    }

    // A device that is listed but cannot be opened is an `Err`.
    let gpus = registry.physical().into_iter().collect::<Result<Vec<_>, _>>()?;
    if gpus.is_empty() {
        println!("No GPU on this machine.");
    }
    let emulated = registry.emulated().into_iter().collect::<Result<Vec<_>, _>>()?;
    for device in gpus.iter().chain(&emulated) {
        let info = device.info();
        let memory = device.memory()?;
        println!("{}: {}, {}", info.name, info.model, info.arch);
        // Code must not assume 32 lanes: a wave has 64 on AMD CDNA.
        println!("  {} compute units, waves of {} lanes", info.compute_units, info.wave_size);
        println!("  {} of {} bytes free", memory.free, memory.total);
        println!("  blocks of up to {} threads and {} bytes of shared memory", info.max_threads_per_block, info.shared_per_block_max);

        assert!(matches!(info.wave_size, 32 | 64));
        assert!(memory.free <= memory.total);
        // A second lookup returns the same device with the same memory pool.
        assert_eq!(&registry.get(&info.name)?, device);
    }
    Ok(())
}
