// Teaches: the kernel library: views of memory, and operations that are checked before they are launched.
//
// `Kernels` belongs to a device and compiles what is asked of it when it is first asked. A view is memory with a type and a layout; a
// layout may be transposed, a part, or repeated, and nothing is copied for it.
//
// Run it: `cargo run --example 09-kernels`; without a GPU it takes the virtual AMD GPU.

use std::error::Error;

use warpwave::jit::{CompilerChoice, Jit, Target};
use warpwave::kernels::{Activation, Kernels, Layout, Matmul, View, ViewMut};

fn main() -> Result<(), Box<dyn Error>> {
    let device = warpwave::device("auto")?;
    let jit = Jit::default();
    if let Err(error) = jit.toolchains().choose(&Target::of(&device), CompilerChoice::Auto) {
        println!("Skipped: {error}");
        return Ok(());
    }
    let (kernels, stream) = (Kernels::new(&device, &jit), device.stream()?);

    // Two rows of x, and a matrix whose rows are what each result is made of, as models keep their weights.
    let x = stream.upload(&[1.0f32, 2.0, 3.0, -1.0, 0.0, 1.0])?;
    let weights = stream.upload(&[1.0f32, 0.0, 0.0, 0.0, 1.0, 1.0])?;
    let bias = stream.upload(&[0.5f32, -1.0])?;
    let mut result = stream.alloc::<f32>(4)?;

    // relu(x · weightsᵀ + bias), in one kernel. The bias is one row, repeated for each row of the result.
    let x = View::new(&x, Layout::contiguous(&[2, 3])?)?;
    let weights = View::new(&weights, Layout::contiguous(&[2, 3])?.transpose(0, 1)?)?;
    let bias = View::new(&bias, Layout::contiguous(&[1, 2])?)?;
    let layer = Matmul::new().bias(bias).activation(Activation::Relu);
    kernels.matmul(&stream, &layer, &x, &weights, &mut ViewMut::new(&mut result, Layout::contiguous(&[2, 2])?)?)?;
    assert_eq!(stream.download(&result)?, [1.5, 4.0, 0.0, 0.0]);

    // In place; the next operation on a stream sees what the one before wrote.
    kernels.softmax_in_place(&stream, &mut ViewMut::new(&mut result, Layout::contiguous(&[2, 2])?)?, 1)?;
    let rows = stream.download(&result)?;
    assert!((rows[0] + rows[1] - 1.0).abs() < 1e-6 && rows[2..] == [0.5, 0.5]);
    println!("{}: relu(x · wᵀ + b), then softmax of each row: {rows:?}", device.name());

    // What does not fit is refused, and nothing is written.
    let mut small = stream.alloc::<f32>(3)?;
    let refused = kernels.matmul(&stream, &layer, &x, &weights, &mut ViewMut::new(&mut small, Layout::contiguous(&[1, 3])?)?);
    println!("refused: {}", refused.unwrap_err());
    Ok(())
}
