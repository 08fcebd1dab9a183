//! Where a buffer is: one program that first has no GPU library, and then loads them.

mod common;

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::require;
use warpwave_allreduce::gpu::place_of;
use warpwave_gpu::library::Library;
use warpwave_gpu::{Device, Driver, HostBuffer, UnifiedBuffer, Vendor, loaded_drivers};

/// What stands in for HIP's runtime, if it is built.
fn stand_in() -> Option<PathBuf> {
    let own = std::env::current_exe().unwrap();
    own.ancestors().skip(1).take(2).map(|folder| folder.join("libamdhip64.so")).find(|file| file.exists())
}

/// The loaded driver that has devices.
fn of(vendor: Vendor) -> &'static loaded_drivers::LoadedDriver {
    let mut loaded = loaded_drivers::all().filter(|driver| driver.vendor() == vendor && driver.is_initialized());
    loaded.find(|driver| driver.driver().is_ok_and(|driver| !driver.device_names().is_empty())).unwrap()
}

fn memory_of(device: &Device) {
    let stream = device.stream().unwrap();
    let buffer = stream.alloc::<u8>(1000).unwrap();
    let place = place_of((buffer.device_ptr() + 999) as *const c_void).unwrap().unwrap();
    assert!(!place.unified && place.device.device().name() == device.name());
    let again = place_of(buffer.device_ptr() as *const c_void).unwrap().unwrap();
    assert!(Arc::ptr_eq(&place.device, &again.device));
    let pinned = HostBuffer::<u8>::zeroed(device, 1000).unwrap();
    assert!(place_of(pinned.host_ptr().cast()).unwrap().is_none());
    if let Ok(unified) = UnifiedBuffer::<u8>::zeroed(device, 1000) {
        assert!(place_of(unified.device_ptr() as *const c_void).unwrap().unwrap().unified);
    }
    let own = 1u8;
    assert!(place_of((&raw const own).cast()).unwrap().is_none());
}

#[test]
fn memory_is_found_where_the_program_allocated_it() {
    let own = [0u8; 16];
    let host = own.as_ptr().cast::<c_void>();
    assert!(place_of(host).unwrap().is_none() && place_of(std::ptr::null()).unwrap().is_none());
    let start = Instant::now();
    for _ in 0..100_000 {
        assert!(std::hint::black_box(place_of(std::hint::black_box(host))).unwrap().is_none());
    }
    let each = start.elapsed() / 100_000;
    eprintln!("{each:?} to find host memory without a GPU library");
    assert!(each < Duration::from_micros(5));

    if let Ok(driver) = Driver::cuda()
        && !driver.device_names().is_empty()
    {
        memory_of(&of(Vendor::Nvidia).driver().unwrap().device(0).unwrap());
        memory_of(&driver.device(0).unwrap());
    }
    let Some(stand_in) = stand_in() else {
        require(false, "no libamdhip64.so beside this test (cargo build -p warpwave-libamdhip64)");
        return;
    };
    Library::open_file("the program's HIP", &stand_in).unwrap();
    memory_of(&of(Vendor::Amd).driver().unwrap().device(0).unwrap());
}
