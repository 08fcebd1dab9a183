//! Failures of a driver, on the fake one.

use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg, sys::CUresult};
use cudarc::nvrtc::Ptx;
use warpwave_gpu::Devices;
use warpwave_gpu::fake::{Fake, Fakes, image};

fn context(fakes: &Fakes) -> std::sync::Arc<CudaContext> {
    let devices: Devices = fakes.devices();
    CudaContext::of_device(&devices.physical().remove(0).unwrap()).unwrap()
}

#[test]
fn a_failed_call_is_an_error_and_leaks_nothing() {
    for (fake, copy, alloc) in [(Fake::nvidia(), "cuMemcpyHtoDAsync_v2", "cuMemAlloc_v2"), (Fake::amd(), "hipMemcpyHtoDAsync", "hipMalloc")]
    {
        let fakes = fake.install();
        {
            let context = context(&fakes);
            let stream = context.default_stream();
            fakes.fail(copy, 1, 999);
            let error = stream.clone_htod(&[1f32; 8]).unwrap_err();
            assert!(error.to_string().contains(copy), "{error}");
            assert_eq!(stream.clone_dtoh(&stream.clone_htod(&[1f32; 8]).unwrap()).unwrap(), [1.0; 8]);
            // Freed memory is tried first, so both attempts fail.
            fakes.fail(alloc, 1, 2);
            fakes.fail(alloc, 2, 2);
            let error = stream.alloc_zeros::<u8>(100 << 20).unwrap_err();
            assert_eq!(error.0, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
            stream.synchronize().unwrap();
        }
        assert_eq!((fakes.device_bytes(), fakes.live_objects()), (0, 0));
    }
}

#[test]
fn kernels_run_on_both_vendors_and_a_lost_device_says_so() {
    for fake in [Fake::nvidia(), Fake::amd()] {
        let fakes = fake.install();
        fakes.kernel("twice", &[8, 4], |call| {
            // SAFETY: the test passes that many elements, and nothing else uses them now.
            unsafe { call.memory::<f32>(0, call.value::<u32>(1) as usize) }.iter_mut().for_each(|x| *x *= 2.0);
        });
        let context = context(&fakes);
        let stream = context.default_stream();
        let function =
            context.load_module(Ptx::from_src(String::from_utf8(image(&["twice"])).unwrap())).unwrap().load_function("twice").unwrap();
        let mut x = stream.clone_htod(&[1f32, 2.0, 3.0]).unwrap();
        let mut builder = stream.launch_builder(&function);
        builder.arg(&mut x).arg(&3u32);
        // SAFETY: the arguments have the kernel's types.
        unsafe { builder.launch(LaunchConfig::for_num_elems(3)) }.unwrap();
        // Work on the fake is deferred: reading waits for it.
        assert_eq!(stream.clone_dtoh(&x).unwrap(), [2.0, 4.0, 6.0]);
        fakes.lose_device();
        let error = stream.clone_dtoh(&x).unwrap_err();
        assert_eq!(error.0, CUresult::CUDA_ERROR_LAUNCH_FAILED, "{error}");
        assert!(stream.synchronize().is_err());
    }
}

#[test]
fn copies_between_devices_of_both_vendors() {
    let fakes = Fakes::install([Fake::nvidia().devices(2), Fake::amd()]);
    {
        let devices: Vec<_> = fakes.devices().physical().into_iter().map(Result::unwrap).collect();
        let contexts: Vec<_> = devices.iter().map(|device| CudaContext::of_device(device).unwrap()).collect();
        assert_ne!(contexts[0], contexts[1]);
        let source = contexts[0].default_stream().clone_htod(&[1u32, 2, 3]).unwrap();
        for context in &contexts {
            let stream = context.default_stream();
            let copy = stream.clone_dtod(&source.slice(1..)).unwrap();
            assert_eq!(stream.clone_dtoh(&copy).unwrap(), [2, 3], "{context:?}");
        }
    }
    assert_eq!(fakes.device_bytes(), 0);
}
