//! A program that loaded the HIP runtime itself is detected.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use warpwave_gpu::library::Library;
use warpwave_gpu::{MemoryKind, Vendor, loaded_drivers};

/// Returns the library that was built for this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let folders = own.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join("libamdhip64.so")).find(|file| file.exists());
    found.expect("cargo builds the library before its tests")
}

#[test]
fn a_driver_is_found_once_the_program_has_loaded_it() {
    assert!(loaded_drivers::all().next().is_none());
    let start = Instant::now();
    for _ in 0..100_000 {
        assert!(std::hint::black_box(loaded_drivers::all().next()).is_none());
    }
    let each = start.elapsed() / 100_000;
    eprintln!("{each:?} to find no driver");
    assert!(each < Duration::from_micros(2));

    let program = Library::open_file("the program's HIP", &library()).unwrap();
    let hip = loaded_drivers::all().find(|driver| driver.vendor() == Vendor::Amd).expect("it is loaded");
    assert!(loaded_drivers::all().all(|driver| driver.vendor() == Vendor::Amd) && hip.is_initialized());
    let driver = hip.driver().unwrap();
    assert_eq!(driver.label(), "rocm");
    assert_eq!(driver.symbol("hipMalloc"), program.symbol("hipMalloc"), "the very instance");
    assert!(std::sync::Arc::ptr_eq(driver, loaded_drivers::all().next().unwrap().driver().unwrap()));
    let device = driver.device(0).unwrap();
    let buffer = device.stream().unwrap().alloc::<u8>(100).unwrap();
    assert_eq!(driver.memory_kind_of(buffer.device_ptr() + 50).unwrap(), Some(MemoryKind::Device));
    assert_eq!(driver.device_of(buffer.device_ptr()), Some(0));
}
