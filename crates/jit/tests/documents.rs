//! Selection, memory, compilation and consistency, each in one small test: a machine without a GPU is an outcome, and a kernel's result
//! depends on its input.

mod common;

use common::{example, jit, temporary_jit};
use warpwave_gpu::fake::{Fake, Fakes};
use warpwave_gpu::{DeviceSpec, Devices, Launch, Selection, Vendor};
use warpwave_jit::{CompilerChoice, KernelSource};

#[test]
fn test_backend_selection() {
    match Devices::hardware().select(&DeviceSpec::Auto).unwrap() {
        Selection::Gpu(device) => assert!(matches!(device.info().vendor, Vendor::Nvidia | Vendor::Amd)),
        Selection::Cpu { reasons } => {
            assert_eq!(reasons.len(), Devices::hardware().backends().len(), "one reason per backend: {reasons:?}")
        }
    }
}

#[test]
fn test_rocm_memory_allocation() {
    let fakes = Fake::amd().install();
    let device = fakes.driver().unwrap().device(0).unwrap();
    let stream = device.stream().unwrap();
    let buffer = stream.alloc::<u8>(1 << 20).unwrap();
    assert_eq!(device.pool_stats().in_use, 1 << 20);
    drop(buffer);
    device.trim_pool().unwrap();
    assert_eq!(fakes.device_bytes(), 0);
}

#[test]
fn test_kernel_compilation_rocm() {
    let target = "gfx90a".parse().unwrap();
    let Some((jit, _folder)) = temporary_jit(&target) else { return };
    let text = "extern \"C\" __global__ void test_kernel(int* data, int n) {\n\
                    int idx = blockIdx.x * blockDim.x + threadIdx.x;\n\
                    if (idx < n) data[idx] = idx * 2;\n}\n";
    let source = KernelSource::from_text("test_kernel.cu", text).unwrap();
    let built = jit.build(&source, &target, CompilerChoice::Auto).unwrap();
    assert!(!built.compiled.binary.is_empty());
    let kernel = built.compiled.code_object.find("test_kernel").unwrap();
    assert_eq!(kernel.explicit_args().map(|arg| arg.size).collect::<Vec<_>>(), [8, 4]);
    assert_eq!(kernel.wave_size, 64);
}

#[test]
fn test_cross_backend_consistency() {
    const N: usize = 1024;
    let expected: Vec<i32> = (0..N as i32).map(|i| 2 * i).collect();
    let run = |gpus: &Devices, devices: &mut usize| {
        for device in gpus.physical() {
            let device = device.unwrap();
            let Ok(module) = jit().load(&device, &example("index_times_two.cu")) else {
                return eprintln!("no compiler for {}", device.info().arch);
            };
            let stream = device.stream().unwrap();
            let mut out = stream.upload(&[1; N]).unwrap();
            let kernel = module.kernel("index_times_two").unwrap();
            // SAFETY: the types are the kernel's, and it stays within N elements.
            unsafe { kernel.launch(&stream, Launch::for_elements(N, 256), (&mut out, N as i32)).unwrap() };
            assert!(stream.download(&out).unwrap() == expected, "on {}", device.name());
            *devices += 1;
        }
    };
    let mut devices = 0;
    run(&Devices::hardware(), &mut devices);
    // Both vendors' code objects through one process, executed by the fake.
    let fakes = Fakes::install([Fake::nvidia(), Fake::amd()]);
    fakes.kernel("index_times_two", &[8, 4], |call| {
        // SAFETY: the buffer has that many elements.
        unsafe { call.memory::<i32>(0, call.value::<i32>(1) as usize) }.iter_mut().zip(0..).for_each(|(x, i)| *x = 2 * i);
    });
    run(&fakes.devices(), &mut devices);
    eprintln!("consistent on {devices} devices");
}
