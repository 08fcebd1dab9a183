// Teaches: a kernel from its CUDA C++ text to a checked result.
//
// `Jit` compiles the text for the current device: with NVRTC for NVIDIA, with clang (or hipRTC) for AMD. The result is kept on
// disk, so the second run starts no compiler.
//
// Run it: `cargo run --example 03-run-a-kernel`

use std::error::Error;

use warpwave::gpu::Launch;
use warpwave::jit::{Jit, KernelSource};

/// y = factor * x + y. `extern "C"` keeps the name as it is; C++ names and templates work too, by their symbols.
const SAXPY: &str = r#"
extern "C" __global__ void saxpy(float factor, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i] + y[i];
}
"#;

fn main() -> Result<(), Box<dyn Error>> {
    // The name stands in compiler messages, as a file name would.
    let source = KernelSource::from_text("saxpy.cu", SAXPY)?;

    let device = warpwave::device("auto")?;

    let jit = Jit::default();
    let kernel = jit.load(&device, &source)?.kernel("saxpy")?;

    let n = 10_000;
    let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let stream = device.stream()?;
    let on_device = stream.upload(&x)?;
    let mut y = stream.upload(&vec![1.0f32; n])?;

    // Numbers and buffers in the kernel's order. Their count and sizes are checked; a `u64` for `int n` would be refused.
    let block = kernel.optimal_block_size(0, 1);
    // SAFETY: the arguments have the types of saxpy's parameters, and it touches the first n elements of each buffer only.
    unsafe { kernel.launch(&stream, Launch::for_elements(n, block), (2.5f32, &on_device, &mut y, n as i32))? };

    // The same in plain Rust. These values are small enough for every product and sum to be exact.
    for (x, y) in x.iter().zip(stream.download(&y)?) {
        assert_eq!(y, 2.5 * x + 1.0);
    }
    println!("saxpy on {} ({}): {n} elements are right", device.name(), device.info().model);

    // A launch that cannot work is refused before the driver sees it.
    // SAFETY: it is refused, so nothing runs.
    let refused = unsafe { kernel.launch(&stream, Launch::for_elements(n, block), (2.5f32, &on_device)) };
    println!("refused: {}", refused.unwrap_err());
    Ok(())
}
