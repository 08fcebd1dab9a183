//! Memory that this crate did not allocate, the program's own streams and current device, and memory shared between processes.

mod common;

use std::ffi::c_void;
use std::process::Command;
use std::time::Duration;

use common::{on_every_device, virtual_driver};
use warpwave_gpu::fake::Fake;
use warpwave_gpu::{Buffer, Devices, Error, Handle, IpcHandle, Launch, Vendor};

/// The shape that a symbol of the driver has.
macro_rules! symbol {
    ($driver:expr, $name:literal, $ty:ty) => {{
        let address = $driver.symbol($name).unwrap();
        // SAFETY: the shape is HIP's of that name.
        unsafe { std::mem::transmute::<*const c_void, $ty>(address) }
    }};
}

#[test]
fn addresses_of_others_are_copied_and_given_to_kernels() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        let data: Vec<u32> = (0..1000).collect();
        let (one, two) = (stream.alloc::<u32>(1000).unwrap(), stream.alloc::<u32>(1000).unwrap());
        let mut back = vec![0u32; 998];
        let bytes = back.len() * 4;
        // SAFETY: the buffers have 1000 elements, `back` has 998, and all live until the wait below.
        unsafe {
            stream.copy_raw_from_host(data.as_ptr().cast(), one.device_ptr(), 4000).unwrap();
            stream.copy_raw(one.device_ptr(), two.device_ptr(), 4000).unwrap();
            if let Some(kernel) = place.kernel("add_index") {
                kernel.launch(&stream, Launch::for_elements(998, 256), (two.device_ptr() + 4, 998u32)).unwrap();
            }
            stream.copy_raw_to_host(two.device_ptr() + 4, back.as_mut_ptr().cast(), bytes).unwrap();
            stream.copy_raw(0, 0, 0).unwrap();
        }
        stream.synchronize().unwrap();
        let launched = place.kernel("add_index").is_some();
        assert!(back.iter().enumerate().all(|(i, x)| *x == i as u32 + 1 + if launched { i as u32 } else { 0 }));
    });
}

#[test]
fn the_current_device_of_the_thread_is_restored() {
    for fake in [Fake::nvidia(), Fake::amd()] {
        let fakes = fake.devices(2).install();
        let driver = fakes.driver().unwrap();
        let other = driver.device(1).unwrap();
        let ask = || {
            let mut answer = 0usize;
            let get = match driver.vendor() {
                Vendor::Nvidia => symbol!(driver, "cuCtxGetCurrent", unsafe extern "C" fn(*mut usize) -> i32),
                Vendor::Amd => symbol!(driver, "hipGetDevice", unsafe extern "C" fn(*mut usize) -> i32),
            };
            // SAFETY: the output has room for a context or an ordinal.
            let status = unsafe { get(&mut answer) };
            assert_eq!(status, 0);
            answer
        };
        let before = ask();
        {
            let _kept = driver.keep_current().unwrap();
            other.stream().unwrap().upload(&[1u8]).unwrap();
            assert_ne!(ask(), before);
        }
        assert_eq!(ask(), before);
    }
}

#[test]
fn a_blocking_stream_waits_for_the_default_stream() {
    let driver = virtual_driver();
    let device = driver.device(0).unwrap();
    let launch = symbol!(driver, "hipLaunchHostFunc", unsafe extern "C" fn(Handle, unsafe extern "C" fn(*mut c_void), *mut c_void) -> i32);
    let fill = symbol!(driver, "hipMemsetD8Async", unsafe extern "C" fn(u64, u8, usize, Handle) -> i32);
    unsafe extern "C" fn sleep(_data: *mut c_void) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let stream = device.blocking_stream().unwrap();
    let buffer = stream.alloc_zeroed::<u8>(100).unwrap();
    stream.synchronize().unwrap();
    let null = std::ptr::null_mut();
    // SAFETY: the shapes are HIP's, the function needs no data, and the buffer lives until the download is done.
    assert!(unsafe { launch(null, sleep, null) == 0 && fill(buffer.device_ptr(), 7, 100, null) == 0 });
    assert_eq!(stream.download(&buffer).unwrap(), [7; 100]);
}

#[test]
fn asking_about_host_memory_leaves_no_error_behind() {
    let driver = virtual_driver();
    driver.device(0).unwrap().memory().unwrap();
    let peek = symbol!(driver, "hipPeekAtLastError", unsafe extern "C" fn() -> i32);
    let own = 1u8;
    assert_eq!(driver.memory_kind_of((&raw const own) as u64).unwrap(), None);
    // SAFETY: no arguments.
    assert_eq!(unsafe { peek() }, 0);
}

#[test]
fn a_handle_opens_an_allocation_and_closes_it_when_dropped() {
    for fake in [Fake::nvidia(), Fake::amd(), Fake::amd().version(50_221_153)] {
        let fakes = fake.install();
        let device = fakes.driver().unwrap().device(0).unwrap();
        let stream = device.stream().unwrap();
        let pooled = stream.alloc::<u8>(10).unwrap();
        assert!(matches!(pooled.ipc_handle(), Err(Error::Unsupported { .. })));
        assert!(Buffer::<u8>::dedicated(&device, 0).unwrap().is_empty());
        let live = fakes.live_objects();
        let mut shared = Buffer::<u32>::dedicated(&device, 1000).unwrap();
        stream.fill(&mut shared, 5).unwrap();
        // SAFETY: the buffer outlives what is opened; the fake lets a process open its own.
        let opened = unsafe { device.open_ipc(shared.ipc_handle().unwrap()) }.unwrap();
        assert_eq!((opened.device_ptr(), opened.device()), (shared.device_ptr(), &device));
        drop(opened);
        // SAFETY: the driver rejects invalid handles.
        assert!(matches!(unsafe { device.open_ipc(IpcHandle([1; 64])) }, Err(Error::Driver { code: 1, .. })));
        drop(shared);
        assert_eq!(fakes.live_objects(), live);
    }
}

#[test]
fn a_virtual_gpu_shares_no_memory_and_says_so() {
    let device = virtual_driver().device(0).unwrap();
    let buffer = Buffer::<u8>::dedicated(&device, 10).unwrap();
    assert!(matches!(buffer.ipc_handle(), Err(Error::MissingSymbol { symbol: "hipIpcGetMemHandle", .. })));
    // SAFETY: the call is not there.
    let opened = unsafe { device.open_ipc(IpcHandle([0; 64])) };
    assert!(matches!(opened, Err(Error::MissingSymbol { symbol: "hipIpcOpenMemHandle", .. })));
}

/// The handle that a parent gives this process, in hexadecimal.
const VARIABLE: &str = "WARPWAVE_TEST_IPC_HANDLE";

#[test]
fn processes_share_memory_of_a_real_gpu() {
    let Some(device) = Devices::hardware().physical().into_iter().flatten().next() else {
        return eprintln!("skipped: no GPU");
    };
    let stream = device.stream().unwrap();
    if let Ok(text) = std::env::var(VARIABLE) {
        let mut handle = IpcHandle([0; 64]);
        handle.0.iter_mut().enumerate().for_each(|(i, byte)| *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap());
        // SAFETY: the parent keeps the memory until this process is gone.
        let opened = unsafe { device.open_ipc(handle) }.unwrap();
        let mut data = vec![0u32; 1000];
        // SAFETY: the parent's buffer has 1000 elements.
        unsafe { stream.copy_raw_to_host(opened.device_ptr(), data.as_mut_ptr().cast(), 4000) }.unwrap();
        stream.synchronize().unwrap();
        data.iter_mut().for_each(|x| *x *= 3);
        // SAFETY: as above.
        unsafe { stream.copy_raw_from_host(data.as_ptr().cast(), opened.device_ptr(), 4000) }.unwrap();
        return stream.synchronize().unwrap();
    }
    // Two small ones: neither handle may mean the other.
    let (mut one, mut two) = (Buffer::<u32>::dedicated(&device, 1000).unwrap(), Buffer::<u32>::dedicated(&device, 1000).unwrap());
    for (buffer, first) in [(&mut one, 0), (&mut two, 5000)] {
        let data: Vec<u32> = (first..first + 1000).collect();
        stream.copy_from_host(&data, &mut *buffer).unwrap();
        let handle: String = buffer.ipc_handle().unwrap().0.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut child = Command::new(std::env::current_exe().unwrap());
        let status = child.args(["--exact", "processes_share_memory_of_a_real_gpu"]).env(VARIABLE, handle).status().unwrap();
        assert!(status.success());
        assert_eq!(stream.download(&*buffer).unwrap(), data.iter().map(|x| x * 3).collect::<Vec<_>>());
    }
}
