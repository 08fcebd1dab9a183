// Teaches: compiling for GPUs that are not here, reading what the compiler made, and writing a bundle to ship.
//
// No GPU and no driver is needed: clang compiles for AMD, NVRTC for NVIDIA. A build script can do the same and embed the file
// (example 06). On the command line: `warpwave compile FILE.cu --target gfx90a,sm_90 --bundle FILE.wwb`.
//
// Run it: `cargo run --example 08-compile-ahead`

use std::error::Error;

use warpwave::jit::{Bundle, CompileError, CompilerChoice, Jit, KernelSource, Target};

/// The sum of each block, by shuffles within a wave and shared memory between waves; right for waves of 32 and of 64 lanes.
const BLOCK_SUM: &str = r#"
extern "C" __global__ void block_sum(const float *in, float *out, int n) {
    __shared__ float partial[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = i < n ? in[i] : 0.0f;
    for (int offset = warpSize / 2; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int wave = 1; wave < blockDim.x / warpSize; ++wave) sum += partial[wave];
        out[blockIdx.x] = sum;
    }
}
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let source = KernelSource::from_text("block_sum.cu", BLOCK_SUM)?;
    let jit = Jit::default();

    let mut targets: Vec<Target> = Vec::new();
    for name in ["gfx90a", "sm_90"] {
        let target: Target = name.parse()?;
        let built = match jit.build(&source, &target, CompilerChoice::Auto) {
            Ok(built) => built,
            // The message names the package that has one.
            Err(CompileError::NoCompiler(missing)) => {
                println!("{target}: no compiler for it here; to install one: {}", missing.install);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        // `Made` the first time; `Hit` from then on, and then no compiler is started.
        println!("{target}: {:?} in {:.1} ms with {}", built.outcome, built.took.as_secs_f64() * 1e3, built.compiler);
        for kernel in &built.compiled.code_object.kernels {
            println!(
                "  {}: {} registers, {} bytes of shared memory, {} arguments",
                kernel.name,
                kernel.vgprs,
                kernel.static_shared,
                kernel.explicit_args().count()
            );
            assert_eq!((kernel.name.as_str(), kernel.static_shared, kernel.explicit_args().count()), ("block_sum", 128, 3));
        }
        targets.push(target);
    }
    if targets.is_empty() {
        return Ok(());
    }

    // All of it in one file. Everything is in the cache by now.
    let path = std::env::temp_dir().join(format!("block_sum-{}.wwb", std::process::id()));
    let bundle = Bundle::compile(&jit, &source, &targets)?;
    std::fs::write(&path, bundle.to_bytes())?;

    let bytes = std::fs::read(&path)?;
    let read = Bundle::from_bytes(&bytes)?;
    std::fs::remove_file(&path)?;
    assert_eq!(read, bundle);
    // A stale bundle can be told from its source.
    assert!(read.is_of(&source));
    println!("a bundle of {} targets has {} bytes", read.parts.len(), bytes.len());
    Ok(())
}
