//! Memory, copies, launches, streams and events on the virtual GPU.

mod common;

use std::sync::Arc;

use common::context;
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, CudaView, DevicePtr, DeviceSlice, LaunchConfig, PushKernelArg, result, sys};
use cudarc::nvrtc::{Ptx, compile_ptx};
use half::{bf16, f16};

const SOURCE: &str = r#"
extern "C" __global__ void scale(float *out, const float *x, float factor, size_t n) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * factor;
}
extern "C" __global__ void slow(float *x, int rounds) {
    float y = *x;
    for (int i = 0; i < rounds; ++i) y = y * 1.000001f + 1.0f;
    *x = y;
}
struct Pair { int a; float b; };
extern "C" __global__ void sizes(double *out, unsigned char a, short b, bool c, long long d, Pair e) { *out = a + b + c + d + e.a + e.b; }
extern "C" __global__ void broken(float *x) { *x = undeclared; }
extern "C" __global__ void beyond(float *x) { x[1 << 20] = 1; }
"#;

fn function(stream: &Arc<CudaStream>, name: &str) -> CudaFunction {
    stream.context().load_module(compile_ptx(SOURCE).unwrap()).unwrap().load_function(name).unwrap()
}

fn scale(stream: &CudaStream, scale: &CudaFunction, out: &mut CudaSlice<f32>, x: &CudaView<'_, f32>, factor: f32) {
    let n = x.len();
    let mut builder = stream.launch_builder(scale);
    builder.arg(out).arg(x).arg(&factor).arg(&n);
    // SAFETY: the arguments have the kernel's types, and it stays within n elements.
    unsafe { builder.launch(LaunchConfig::for_num_elems(n as u32)) }.unwrap();
}

#[test]
fn elements_of_every_type_come_back() {
    let Some(context) = context() else { return };
    let stream = context.default_stream();
    macro_rules! round_trip {
        ($($values:expr),*) => { $(
            let values = $values;
            assert_eq!(stream.clone_dtoh(&stream.clone_htod(&values).unwrap()).unwrap(), values);
        )* };
    }
    round_trip!([true, false], [1u8, 255], [-5i16], [i32::MIN, 7], [u32::MAX], [i64::MIN], [u64::MAX], [1.5f32, -0.0], [f64::MAX]);
    round_trip!([f16::from_f32(0.5)], [bf16::from_f32(-3.0)], [float8::F8E4M3::from_f32(1.5)]);
    let none = stream.clone_htod::<f32, _>(&[]).unwrap();
    assert!(none.is_empty() && stream.clone_dtoh(&none).unwrap().is_empty());
    assert_eq!(stream.clone_dtoh(&stream.alloc_zeros::<f32>(3).unwrap()).unwrap(), [0.0; 3]);
    assert!(stream.clone_dtoh(&stream.alloc_zeros::<u8>(0).unwrap()).unwrap().is_empty());
}

#[test]
fn views_are_parts() {
    let Some(context) = context() else { return };
    let stream = context.default_stream();
    let mut data = stream.clone_htod(&(0..10).collect::<Vec<i32>>()).unwrap();
    assert_eq!((data.len(), data.num_bytes()), (10, 40));
    assert_eq!(stream.clone_dtoh(&data.slice(2..5)).unwrap(), [2, 3, 4]);
    assert_eq!(stream.clone_dtoh(&data.slice(2..).slice(1..=2)).unwrap(), [3, 4]);
    assert!(data.slice(10..).is_empty() && data.try_slice(5..11).is_none() && data.try_slice(usize::MAX..).is_none());
    let inverted = std::ops::Range { start: 4, end: 3 };
    assert!(data.try_slice(inverted).is_none() && data.try_slice(..=usize::MAX).is_none());
    stream.memcpy_htod(&[-1, -2], &mut data.slice_mut(4..8)).unwrap();
    let copy = data.try_clone().unwrap();
    stream.memset_zeros(&mut data.slice_mut(..9)).unwrap();
    assert_eq!(stream.clone_dtoh(&copy).unwrap(), [0, 1, 2, 3, -1, -2, 6, 7, 8, 9]);
    assert_eq!(stream.clone_dtoh(&data).unwrap(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    stream.memcpy_dtod(&copy.slice(1..4), &mut data.slice_mut(6..)).unwrap();
    let mut host = [0; 12];
    stream.memcpy_dtoh(&data, &mut host).unwrap();
    assert_eq!(host, [0, 0, 0, 0, 0, 0, 1, 2, 3, 9, 0, 0]);
    // Addresses are those of the elements.
    let (whole, _guard) = data.device_ptr(&stream);
    let view = data.slice(3..);
    assert_eq!(view.device_ptr(&stream).0, whole + 12);
}

#[test]
fn copies_to_less_memory_are_errors() {
    let Some(context) = context() else { return };
    let stream = context.default_stream();
    let mut data = stream.alloc_zeros::<f32>(4).unwrap();
    let other = stream.alloc_zeros::<f32>(5).unwrap();
    assert!(stream.memcpy_htod(&[0.0; 5], &mut data).is_err());
    assert!(stream.memcpy_dtod(&other, &mut data).is_err());
    assert!(stream.memcpy_dtoh(&other, &mut [0.0f32; 4]).is_err());
    // SAFETY: the allocation fails.
    let error = unsafe { stream.alloc::<f64>(usize::MAX / 4) }.unwrap_err();
    assert!(error.to_string().contains("address space"), "{error}");
    // SAFETY: as above.
    let error = unsafe { stream.alloc::<u8>(1 << 50) }.unwrap_err();
    assert_eq!(error.0, sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    assert!(error.to_string().contains("bytes requested"), "{error}");
    assert_eq!(stream.clone_dtoh(&data).unwrap(), [0.0; 4]);
}

#[test]
fn kernels_get_their_arguments() {
    let Some(context) = context() else { return };
    let stream = context.default_stream();
    let kernel = function(&stream, "scale");
    let x = stream.clone_htod(&[1.0f32, 2.0, 3.0, 4.0]).unwrap();
    let mut out = stream.alloc_zeros::<f32>(3).unwrap();
    scale(&stream, &kernel, &mut out, &x.slice(1..), 0.5);
    assert_eq!(stream.clone_dtoh(&out).unwrap(), [1.0, 1.5, 2.0]);

    #[repr(C)]
    struct Pair(i32, f32);
    // SAFETY: plain numbers.
    unsafe impl cudarc::driver::DeviceRepr for Pair {}
    let sizes = function(&stream, "sizes");
    let mut sum = stream.alloc_zeros::<f64>(1).unwrap();
    let mut builder = stream.launch_builder(&sizes);
    builder.arg(&mut sum).arg(&200u8).arg(&-3i16).arg(&true).arg(&(1i64 << 20)).arg(&Pair(5, 0.25));
    let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
    // SAFETY: the arguments have the kernel's types.
    unsafe { builder.launch(one) }.unwrap();
    assert_eq!(stream.clone_dtoh(&sum).unwrap(), [203.25 + (1i64 << 20) as f64]);
}

#[test]
fn wrong_launches_are_errors_and_name_the_kernel() {
    let Some(context) = context() else { return };
    let stream = context.default_stream();
    let kernel = function(&stream, "scale");
    let mut x = stream.alloc_zeros::<f32>(4).unwrap();
    let launch = |builder: &mut cudarc::driver::LaunchArgs<'_>, block: u32, shared: u32| {
        let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (block, 1, 1), shared_mem_bytes: shared };
        // SAFETY: the launch is refused.
        unsafe { builder.launch(config) }.map(|_| ()).unwrap_err().to_string()
    };
    let error = launch(stream.launch_builder(&kernel).arg(&mut x), 1, 0);
    assert!(error.contains("scale") && error.contains("4 arguments"), "{error}");
    let other = stream.alloc_zeros::<f32>(4).unwrap();
    let error = launch(stream.launch_builder(&kernel).arg(&mut x).arg(&other).arg(&1.0f64).arg(&4usize), 1, 0);
    assert!(error.contains("4 bytes, got 8"), "{error}");
    for (block, shared) in [(0, 0), (4096, 0), (1, 1 << 20)] {
        let error = launch(stream.launch_builder(&kernel).arg(&mut x).arg(&other).arg(&1.0f32).arg(&4usize), block, shared);
        assert!(error.contains("cannot launch `scale`"), "{error}");
    }
    // Nothing is left of it.
    assert_eq!(stream.clone_dtoh(&x).unwrap(), [0.0; 4]);
}

#[test]
fn code_that_cannot_be_loaded_says_why() {
    let Some(context) = context() else { return };
    let module = context.load_module(compile_ptx(SOURCE).unwrap()).unwrap();
    // The broken kernel does not stop the others, which were compiled without it.
    assert!(module.load_function("scale").is_ok());
    let error = module.load_function("broken").unwrap_err();
    assert_eq!(error.0, sys::CUresult::CUDA_ERROR_INVALID_SOURCE);
    assert!(error.to_string().contains("undeclared") && error.to_string().contains("source.cu:13"), "{error}");
    assert_eq!(module.load_function("absent").unwrap_err().0, sys::CUresult::CUDA_ERROR_NOT_FOUND);
    let error = context.load_module(Ptx::from_src(".version 8.0\n.target sm_90\n")).unwrap_err();
    assert!(error.to_string().contains("gfx90a"), "{error}");
    assert!(context.load_module(Ptx::from_file("/does/not/exist.ptx")).unwrap_err().to_string().contains("/does/not/exist.ptx"));
    assert!(context.load_module(Ptx::from_binary(vec![0x7f; 9])).is_err());
    assert!(compile_ptx("a\0b").is_err());
}

#[test]
fn streams_wait_for_each_other_where_they_share_memory() {
    let Some(context) = context() else { return };
    let (first, second) = (context.default_stream(), context.new_stream().unwrap());
    assert_ne!(first, second);
    let (slow, kernel) = (function(&first, "slow"), function(&first, "scale"));
    let rounds = 200_000i32;
    let mut expected = 1.0f32;
    for _ in 0..rounds {
        expected = expected.mul_add(1.000_001, 1.0);
    }
    for _ in 0..3 {
        let mut x = first.clone_htod(&[1.0f32]).unwrap();
        let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the arguments have the kernel's types.
        unsafe { first.launch_builder(&slow).arg(&mut x).arg(&rounds).launch(one) }.unwrap();
        // Reads on another stream what the slow kernel writes.
        let mut out = second.alloc_zeros::<f32>(1).unwrap();
        scale(&second, &kernel, &mut out, &x.as_view(), 2.0);
        // Memory is freed while both streams may use it, and taken again.
        drop(x);
        let again = first.clone_htod(&[-1.0f32]).unwrap();
        let found = second.clone_dtoh(&out).unwrap()[0];
        assert!((found / (2.0 * expected) - 1.0).abs() < 1e-3, "{found} {expected}");
        assert_eq!(first.clone_dtoh(&again).unwrap(), [-1.0]);
    }
}

#[test]
fn events_order_and_measure() {
    let Some(context) = context() else { return };
    let stream = context.default_stream();
    let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
    let start = stream.record_event(timed).unwrap();
    let forked = stream.fork().unwrap();
    forked.join(&stream).unwrap();
    let end = stream.record_event(timed).unwrap();
    end.synchronize().unwrap();
    assert!(start.is_complete() && end.is_complete());
    assert!(start.elapsed_ms(&end).unwrap() >= 0.0);
    assert!(context.new_event(None).unwrap().elapsed_ms(&end).is_err());
    assert_eq!(stream.capture_status(), Ok(sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE));
    stream.synchronize().unwrap();
    context.synchronize().unwrap();
}

#[test]
fn slices_outlive_what_they_were_made_with() {
    let Some(context) = context() else { return };
    let data = {
        let stream = context.new_stream().unwrap();
        stream.clone_htod(&[1u32, 2, 3]).unwrap()
    };
    drop(context);
    let stream = data.stream().clone();
    let handle = stream.cu_stream();
    assert!(!handle.is_null());
    let clone = data.clone();
    drop(data);
    assert_eq!(stream.clone_dtoh(&clone).unwrap(), [1, 2, 3]);
}

#[test]
fn threads_share_a_device() {
    let Some(context) = context() else { return };
    let (context, kernel) = (&context, &function(&context.default_stream(), "scale"));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                // Half of the threads share the default stream.
                let stream = if thread % 2 == 0 { context.per_thread_stream() } else { context.new_stream().unwrap() };
                for round in 1..20usize {
                    let x = stream.clone_htod(&vec![round as f32; 100 * round]).unwrap();
                    let mut out = stream.alloc_zeros::<f32>(100 * round).unwrap();
                    scale(&stream, kernel, &mut out, &x.as_view(), thread as f32);
                    drop(x);
                    assert_eq!(stream.clone_dtoh(&out).unwrap(), vec![(thread * round) as f32; 100 * round]);
                }
            });
        }
    });
}

#[test]
fn properties_are_those_of_the_device() {
    let Some(context) = context() else { return };
    assert_eq!(context.compute_capability(), Ok((9, 0)));
    let attribute = |attribute| {
        // SAFETY: none is needed.
        unsafe { result::device::get_attribute(context.cu_device(), attribute) }.unwrap()
    };
    assert_eq!(attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE), 64);
    assert_eq!(attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), context.device().info().compute_units as i32);
    // SAFETY: as above.
    assert!(unsafe { result::device::get_attribute(-1, sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE) }.is_err());
    assert!(context.is_event_tracking());
    // SAFETY: as above.
    unsafe { context.disable_event_tracking() };
    assert!(!context.is_event_tracking());
    let (free, total) = context.mem_get_info().unwrap();
    assert!(free <= total && total > 0);
}
