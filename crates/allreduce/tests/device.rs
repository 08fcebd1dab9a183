//! What a context promises: order with the program's work, memory that is used again, many threads, and nothing left changed.

mod common;

use std::ffi::c_void;
use std::time::Duration;

use common::contexts;
use warpwave_allreduce::element::{Op, Repr};
use warpwave_allreduce::schedule::Take;
use warpwave_gpu::{Device, Handle, Vendor};

/// A function of the driver's library.
macro_rules! symbol {
    ($device:expr, $cuda:literal, $hip:literal, $ty:ty) => {{
        let device: &Device = $device;
        let name = if device.info().vendor == Vendor::Nvidia { $cuda } else { $hip };
        let address = device.driver().symbol(name).unwrap();
        // SAFETY: the shape is the vendor's of that name.
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
        // SAFETY: the shapes are the vendor's, the function needs no data, and the buffer lives until the lane is waited for.
        assert!(unsafe { launch(null, sleep, null) == 0 && fill(buffer.device_ptr(), 7, 100, null) == 0 });
        let visit = context.visit().unwrap();
        let lane = visit.lane().unwrap();
        let mut found = [0u8; 100];
        // SAFETY: as above.
        unsafe { lane.to_host(found.as_mut_ptr().cast(), buffer.device_ptr(), 100) }.unwrap();
        lane.synchronize().unwrap();
        assert_eq!(found, [7; 100], "on {}", device.name());
    }
}

#[test]
fn lanes_wait_for_marks_and_memory_is_used_again() {
    for context in contexts() {
        let kernels = context.kernels(Repr::I32, Op::Sum).unwrap();
        let mut addresses = Vec::new();
        for round in 0..3i32 {
            let visit = context.visit().unwrap();
            let (one, two) = (visit.lane().unwrap(), visit.lane().unwrap());
            let staging = one.staging(4000).unwrap();
            let scratch = one.scratch(8000).unwrap();
            assert!(staging.bytes() >= 4000);
            // SAFETY: the staging has room for 1000 numbers, and nothing else uses it.
            let numbers = unsafe { std::slice::from_raw_parts_mut(staging.as_ptr().cast::<i32>(), 1000) };
            numbers.iter_mut().enumerate().for_each(|(i, x)| *x = i as i32 + round);
            let (own, other) = (scratch.address(), scratch.address() + 4000);
            // SAFETY: the scratch holds twice 1000 numbers; the second lane waits for the first.
            unsafe {
                one.from_host(own, staging.as_ptr(), 4000).unwrap();
                one.copy(other, own, 4000).unwrap();
                let copied = one.mark().unwrap();
                two.wait(&copied).unwrap();
                two.combine(&kernels, own, other, 1000, Take::After).unwrap();
                two.to_host(staging.as_ptr(), own, 4000).unwrap();
            }
            let done = two.mark().unwrap();
            done.synchronize().unwrap();
            assert!(done.is_done().unwrap());
            assert!(numbers.iter().enumerate().all(|(i, x)| *x == 2 * (i as i32 + round)));
            addresses.push((staging.as_ptr() as usize, own));
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
                        let visit = context.visit().unwrap();
                        let lane = visit.lane().unwrap();
                        let (staging, scratch) = (lane.staging(8000).unwrap(), lane.scratch(16000).unwrap());
                        let data = vec![thread * 10 + round; 1000];
                        let mut found = vec![0u64; 1000];
                        // SAFETY: all have room for 1000 numbers, the scratch for twice as many.
                        unsafe {
                            staging.as_ptr().cast::<u64>().copy_from(data.as_ptr(), 1000);
                            lane.from_host(scratch.address(), staging.as_ptr(), 8000).unwrap();
                            lane.copy(scratch.address() + 8000, scratch.address(), 8000).unwrap();
                            lane.combine(&kernels, scratch.address(), scratch.address() + 8000, 1000, Take::Before).unwrap();
                            lane.to_host(found.as_mut_ptr().cast(), scratch.address(), 8000).unwrap();
                        }
                        lane.synchronize().unwrap();
                        assert!(found.iter().all(|x| *x == data[0] * data[0]));
                    }
                });
            }
        });
    }
}

#[test]
fn the_threads_current_device_stays() {
    for context in contexts() {
        let device = context.device();
        let get = symbol!(device, "cuCtxGetCurrent", "hipGetDevice", unsafe extern "C" fn(*mut usize) -> i32);
        let ask = || {
            let mut current = 0usize;
            // SAFETY: the output has room for a context or an ordinal.
            assert_eq!(unsafe { get(&mut current) }, 0);
            current
        };
        let other = device.driver().device(device.driver().device_names().len() - 1).unwrap();
        // A thread that has another device current, or with CUDA none.
        std::thread::scope(|scope| {
            let work = || {
                if other != *device {
                    other.memory().unwrap();
                }
                let before = ask();
                context.kernels(Repr::I32, Op::Max).unwrap();
                let visit = context.visit().unwrap();
                drop(visit.lane().unwrap().scratch(100).unwrap());
                drop(visit);
                assert_eq!(ask(), before, "on {}", device.name());
            };
            scope.spawn(work).join().unwrap();
        });
    }
}
