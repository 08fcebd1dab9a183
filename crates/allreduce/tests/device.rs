//! Device contexts: stream order with the program's work, buffer reuse, thread safety, and an unchanged current device.

mod common;

use std::ffi::c_void;
use std::time::Duration;

use common::contexts;
use warpwave_allreduce::datatype::{Op, Repr};
use warpwave_allreduce::schedule::RecvAction;
use warpwave_gpu::{Device, Handle, Vendor};

/// A function of the driver's library.
macro_rules! symbol {
    ($device:expr, $cuda:literal, $hip:literal, $ty:ty) => {{
        let device: &Device = $device;
        let name = if device.info().vendor == Vendor::Nvidia { $cuda } else { $hip };
        let address = device.driver().symbol(name).unwrap();
        // SAFETY: the signature is the vendor's.
        unsafe { std::mem::transmute::<*const c_void, $ty>(address) }
    }};
}

#[test]
fn work_follows_what_the_program_queued_on_the_default_stream() {
    unsafe extern "C" fn sleep(_data: *mut c_void) {
        std::thread::sleep(Duration::from_millis(50));
    }
    for context in contexts() {
        type HostFunction = unsafe extern "C" fn(*mut c_void);
        let device = context.device();
        let launch =
            symbol!(device, "cuLaunchHostFunc", "hipLaunchHostFunc", unsafe extern "C" fn(Handle, HostFunction, *mut c_void) -> i32);
        let fill = symbol!(device, "cuMemsetD8Async", "hipMemsetD8Async", unsafe extern "C" fn(u64, u8, usize, Handle) -> i32);
        let null = std::ptr::null_mut();
        let buffer = device.stream().unwrap().alloc_zeroed::<u8>(100).unwrap();
        device.synchronize().unwrap();
        // SAFETY: the signatures are the vendor's, the function needs no data, and the buffer lives until the stream is synchronized.
        assert!(unsafe { launch(null, sleep, null) == 0 && fill(buffer.device_ptr(), 7, 100, null) == 0 });
        let guard = context.enter().unwrap();
        let stream = guard.stream().unwrap();
        let mut found = [0u8; 100];
        // SAFETY: as above.
        unsafe { stream.copy_to_host(found.as_mut_ptr().cast(), buffer.device_ptr(), 100) }.unwrap();
        stream.synchronize().unwrap();
        assert_eq!(found, [7; 100], "on {}", device.name());
    }
}

#[test]
fn streams_wait_for_events_and_buffers_are_reused() {
    for context in contexts() {
        let kernels = context.kernels(Repr::I32, Op::Sum).unwrap();
        let mut addresses = Vec::new();
        for round in 0..3i32 {
            let guard = context.enter().unwrap();
            let (one, two) = (guard.stream().unwrap(), guard.stream().unwrap());
            let staging = one.staging(4000).unwrap();
            let scratch = one.scratch(8000).unwrap();
            assert!(staging.bytes() >= 4000);
            // SAFETY: the staging buffer holds 1000 integers, and nothing else uses it.
            let numbers = unsafe { std::slice::from_raw_parts_mut(staging.as_ptr().cast::<i32>(), 1000) };
            numbers.iter_mut().enumerate().for_each(|(i, x)| *x = i as i32 + round);
            let (inout, input) = (scratch.address(), scratch.address() + 4000);
            // SAFETY: the scratch buffer holds twice 1000 integers; the second stream waits for the first.
            unsafe {
                one.copy_from_host(inout, staging.as_ptr(), 4000).unwrap();
                one.copy(input, inout, 4000).unwrap();
                let copied = one.record_event().unwrap();
                two.wait_event(&copied).unwrap();
                two.apply(&kernels, inout, input, 1000, RecvAction::ReduceRight).unwrap();
                two.copy_to_host(staging.as_ptr(), inout, 4000).unwrap();
            }
            let done = two.record_event().unwrap();
            done.synchronize().unwrap();
            assert!(done.is_done().unwrap());
            assert!(numbers.iter().enumerate().all(|(i, x)| *x == 2 * (i as i32 + round)));
            addresses.push((staging.as_ptr() as usize, inout));
            let another = one.staging(4000).unwrap();
            assert_ne!(another.as_ptr(), staging.as_ptr());
        }
        assert!(addresses.iter().all(|used| used.1 == addresses[0].1), "{addresses:?}");
        assert!(addresses[1..].iter().any(|used| used.0 == addresses[0].0), "{addresses:?}");
    }
}

#[test]
fn threads_do_not_disturb_each_other() {
    for context in contexts() {
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let context = &context;
                scope.spawn(move || {
                    for round in 0..10 {
                        let kernels = context.kernels(Repr::U64, Op::Prod).unwrap();
                        let guard = context.enter().unwrap();
                        let stream = guard.stream().unwrap();
                        let (staging, scratch) = (stream.staging(8000).unwrap(), stream.scratch(16000).unwrap());
                        let data = vec![thread * 10 + round; 1000];
                        let mut found = vec![0u64; 1000];
                        // SAFETY: all buffers hold 1000 integers, the scratch buffer twice as many.
                        unsafe {
                            staging.as_ptr().cast::<u64>().copy_from(data.as_ptr(), 1000);
                            stream.copy_from_host(scratch.address(), staging.as_ptr(), 8000).unwrap();
                            stream.copy(scratch.address() + 8000, scratch.address(), 8000).unwrap();
                            stream.apply(&kernels, scratch.address(), scratch.address() + 8000, 1000, RecvAction::ReduceLeft).unwrap();
                            stream.copy_to_host(found.as_mut_ptr().cast(), scratch.address(), 8000).unwrap();
                        }
                        stream.synchronize().unwrap();
                        assert!(found.iter().all(|x| *x == data[0] * data[0]));
                    }
                });
            }
        });
    }
}

#[test]
fn the_current_device_of_the_thread_is_restored() {
    for context in contexts() {
        let device = context.device();
        let get = symbol!(device, "cuCtxGetCurrent", "hipGetDevice", unsafe extern "C" fn(*mut usize) -> i32);
        let ask = || {
            let mut current = 0usize;
            // SAFETY: the output is large enough for a context or an ordinal.
            assert_eq!(unsafe { get(&mut current) }, 0);
            current
        };
        let other = device.driver().device(device.driver().device_names().len() - 1).unwrap();
        // A thread whose current device is another one, or, with CUDA, none.
        std::thread::scope(|scope| {
            let work = || {
                if other != *device {
                    other.memory().unwrap();
                }
                let before = ask();
                context.kernels(Repr::I32, Op::Max).unwrap();
                let guard = context.enter().unwrap();
                drop(guard.stream().unwrap().scratch(100).unwrap());
                drop(guard);
                assert_eq!(ask(), before, "on {}", device.name());
            };
            scope.spawn(work).join().unwrap();
        });
    }
}
