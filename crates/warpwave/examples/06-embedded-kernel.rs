// Teaches: a program that carries its kernels compiled, and needs no compiler where it runs.
//
// The bundle `vector_add.wwb` holds the code of one source for several GPUs of both vendors. It was made with
// `warpwave compile vector_add.cu --target gfx90a,…,sm_90,compute_52 --bundle vector_add.wwb`; example 08 makes one in Rust.
//
// Run it: `cargo run --example 06-embedded-kernel`

use std::error::Error;

use warpwave::gpu::Launch;
use warpwave::jit::embed;

fn main() -> Result<(), Box<dyn Error>> {
    // The path is relative to this file, as for `include_bytes!`. The checksum is verified here.
    let bundle = embed!("../../../examples/kernels/vector_add.wwb")?;
    let targets: Vec<String> = bundle.parts.iter().map(|part| part.target.to_string()).collect();
    println!("{} was compiled for {}", bundle.source, targets.join(", "));
    assert!(targets.contains(&"gfx90a".to_owned()) && targets.contains(&"sm_90".to_owned()));

    let device = warpwave::device("auto")?;

    // AMD code runs on its own architecture only; NVIDIA machine code on later minor versions too, and PTX on all later GPUs.
    let part = bundle.choose(&device)?;
    println!("{} is {} and gets the code of {}", device.name(), device.info().arch, part.target);
    let kernel = bundle.load(&device)?.kernel("vector_add")?;

    let n = 5000;
    let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let b: Vec<f32> = (0..n).map(|i| 0.5 * i as f32).collect();
    let stream = device.stream()?;
    let (x, y) = (stream.upload(&a)?, stream.upload(&b)?);
    let mut sum = stream.alloc::<f32>(n)?;

    // SAFETY: `vector_add(const float*, const float*, float*, int)` touches the first n elements of each buffer only.
    unsafe { kernel.launch(&stream, Launch::for_elements(n, 256), (&x, &y, &mut sum, n as i32))? };

    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(stream.download(&sum)?, expected);
    println!("vector_add on {}: {n} sums are right", device.info().model);
    Ok(())
}
