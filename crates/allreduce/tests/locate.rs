//! Locating buffers in a process that first has no GPU library loaded, and then loads them. Needs a process of its own.

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpwave_allreduce::gpu::locate;
use warpwave_gpu::library::Library;
use warpwave_gpu::{Device, Driver, HostBuffer, UnifiedBuffer, Vendor, loaded_drivers};
use warpwave_test_support::require;

/// Returns the virtual GPU's HIP library, if it is built.
fn virtual_hip() -> Option<PathBuf> {
    let own = std::env::current_exe().unwrap();
    own.ancestors().skip(1).take(2).map(|folder| folder.join("libamdhip64.so")).find(|file| file.exists())
}

/// Returns the loaded driver of a vendor that has devices.
fn driver_of(vendor: Vendor) -> &'static loaded_drivers::LoadedDriver {
    let mut loaded = loaded_drivers::all().filter(|driver| driver.vendor() == vendor && driver.is_initialized());
    loaded.find(|driver| driver.driver().is_ok_and(|driver| !driver.device_names().is_empty())).unwrap()
}

fn check_memory(device: &Device) {
    let stream = device.stream().unwrap();
    let buffer = stream.alloc::<u8>(1000).unwrap();
    let location = locate((buffer.device_ptr() + 999) as *const c_void).unwrap().unwrap();
    assert!(!location.unified && location.device.device().name() == device.name());
    let again = locate(buffer.device_ptr() as *const c_void).unwrap().unwrap();
    assert!(Arc::ptr_eq(&location.device, &again.device));
    let pinned = HostBuffer::<u8>::zeroed(device, 1000).unwrap();
    assert!(locate(pinned.host_ptr().cast()).unwrap().is_none());
    if let Ok(unified) = UnifiedBuffer::<u8>::zeroed(device, 1000) {
        assert!(locate(unified.device_ptr() as *const c_void).unwrap().unwrap().unified);
    }
    let own = 1u8;
    assert!(locate((&raw const own).cast()).unwrap().is_none());
}

#[test]
fn buffers_are_located_on_the_device_that_allocated_them() {
    let own = [0u8; 16];
    let host = own.as_ptr().cast::<c_void>();
    assert!(locate(host).unwrap().is_none() && locate(std::ptr::null()).unwrap().is_none());
    let start = Instant::now();
    for _ in 0..100_000 {
        assert!(std::hint::black_box(locate(std::hint::black_box(host))).unwrap().is_none());
    }
    let each = start.elapsed() / 100_000;
    eprintln!("{each:?} to locate host memory without a GPU library");
    assert!(each < Duration::from_micros(5));

    if let Ok(driver) = Driver::cuda()
        && !driver.device_names().is_empty()
    {
        check_memory(&driver_of(Vendor::Nvidia).driver().unwrap().device(0).unwrap());
        check_memory(&driver.device(0).unwrap());
    }
    let Some(library) = virtual_hip() else {
        require(false, "libamdhip64.so next to this test program (cargo build -p warpwave-libamdhip64)");
        return;
    };
    Library::open_file("HIP", &library).unwrap();
    check_memory(&driver_of(Vendor::Amd).driver().unwrap().device(0).unwrap());
}
