//! Kernel faults make the device fail, with a text that describes the fault; and the limits set by the environment.

mod common;

use std::sync::Once;

use common::hip::{NULL, hip, kernel, launch, memory, plain, sentence, stream};

/// Selects a device of the test's own, because a fault makes it unusable.
fn device(ordinal: i32) {
    static START: Once = Once::new();
    START.call_once(|| {
        // SAFETY: the first call of any test here comes through this, before anything reads the environment.
        unsafe {
            std::env::set_var("WARPWAVE_VGPU_DEVICES", "gfx90a,gfx90a,gfx90a,gfx90a,gfx90a");
            std::env::set_var("WARPWAVE_VGPU_MEMORY", "64M");
            std::env::set_var("WARPWAVE_VGPU_LIMIT", "3M");
        }
    });
    assert_eq!(hip!(set_device(ordinal)), 0);
}

#[test]
fn a_store_outside_memory_fails_only_its_device() {
    device(0);
    let Some(code) = common::compile("gfx90a", &[]) else { return };
    let (_, function) = kernel(&code, c"outside");
    let (stream, address) = (stream(1), memory(4096));
    assert_eq!(launch(function, address, stream), 0);
    assert_eq!(hip!(stream_synchronize(stream)), 700);
    let text = sentence(700);
    assert!(text.contains("kernel `outside`") && text.contains("writes 4 bytes"), "{text}");
    // From now on every call fails with the same error, except that memory can be freed.
    let mut other = 0;
    for code in [
        launch(function, address, stream),
        hip!(stream_query(stream)),
        hip!(device_synchronize()),
        hip!(mem_alloc(&mut other, 64)),
        hip!(fill_u8_async(address, 0, 64, stream)),
        hip!(mem_info(&mut 0, &mut 0)),
    ] {
        assert_eq!(code, 700);
    }
    assert_eq!(hip!(mem_free(address)), 0);
    assert_eq!(hip!(set_device(4)), 0);
    assert_eq!(hip!(device_synchronize()), 0);
    // A reset makes the device usable again.
    assert_eq!(hip!(set_device(0)), 0);
    assert_eq!(plain("hipDeviceReset"), 0);
    assert_eq!(hip!(fill_u8_async(memory(64), 1, 64, stream)), 0);
    assert_eq!(hip!(stream_synchronize(stream)), 0);
}

#[test]
fn a_trap_is_an_assert_error() {
    device(1);
    let Some(code) = common::compile("gfx90a", &[]) else { return };
    let (_, function) = kernel(&code, c"stops");
    assert_eq!(launch(function, memory(64), NULL), 0);
    assert_eq!(hip!(device_synchronize()), 710);
    assert!(sentence(710).contains("kernel `stops`"), "{}", sentence(710));
}

#[test]
fn an_endless_kernel_is_stopped_at_the_limit() {
    device(2);
    let Some(code) = common::compile("gfx90a", &[]) else { return };
    let (_, function) = kernel(&code, c"endless");
    let address = memory(64);
    assert_eq!(hip!(fill_u8_async(address, 0, 64, NULL)), 0);
    assert_eq!(launch(function, address, NULL), 0);
    assert_eq!(hip!(stream_synchronize(NULL)), 702);
    assert!(sentence(702).contains("WARPWAVE_VGPU_LIMIT"), "{}", sentence(702));
}

#[test]
fn allocations_beyond_the_device_memory_fail() {
    device(3);
    let (mut free, mut total, mut more) = (0, 0, 0);
    let first = memory(40 << 20);
    assert_eq!(hip!(mem_info(&mut free, &mut total)), 0);
    assert_eq!((free, total), (24 << 20, 64 << 20));
    assert_eq!(hip!(mem_alloc(&mut more, 25 << 20)), 2);
    assert_eq!(hip!(managed_alloc(&mut more, 25 << 20, 1)), 2);
    assert_eq!(hip!(mem_free(first)), 0);
    assert_eq!(hip!(mem_alloc(&mut more, 64 << 20)), 0);
    assert_eq!(hip!(mem_free(more)), 0);
}

/// The faults above, reported by native code.
#[test]
fn native_code_reports_the_same_faults() {
    const MODE: &str = "WARPWAVE_VGPU_NATIVE";
    if std::env::var_os(MODE).is_some_and(|mode| mode == "always") {
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap()).env(MODE, "always").output().unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}
