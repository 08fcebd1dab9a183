// Teaches: tensors, whose operations are the same on a CPU and on a GPU.
//
// A tensor has a shape, a type and a device. Views of it (a part, transposed, repeated) share its memory; an operation makes a new tensor
// on the same device.
//
// Run it: `cargo run --example 10-tensors`

use std::error::Error;

use warpwave::kernels::Binary;
use warpwave::tensor::{Device, Tensor};

/// The scores of each query with each key, as weights: softmax(q · kᵀ / √d).
fn weights(q: &Tensor, k: &Tensor) -> warpwave::tensor::Result<Tensor> {
    let scale = 1.0 / (q.size(1) as f64).sqrt();
    q.matmul(&k.transpose(0, 1)?)?.affine(scale, 0.0)?.softmax(1)
}

fn main() -> Result<(), Box<dyn Error>> {
    let devices = [Device::Cpu, warpwave::tensor_device("auto")?];
    let queries: Vec<f32> = (0..12).map(|i| (i as f32 * 0.7).sin()).collect();
    let keys: Vec<f32> = (0..20).map(|i| (i as f32 * 0.3).cos()).collect();

    let mut first: Option<Vec<f32>> = None;
    for device in &devices {
        let q = Tensor::new(&queries, &[3, 4], device)?;
        let k = Tensor::new(&keys, &[5, 4], device)?;
        let found = weights(&q, &k)?;
        assert_eq!(found.shape(), [3, 5]);
        let values = found.to_vec::<f32>()?;
        println!("{}: {values:.3?}", device.name());
        // A GPU sums in another order: equal but for the last digits.
        let first: &[f32] = first.get_or_insert_with(|| values.clone());
        assert!(values.iter().zip(first).all(|(a, b)| (a - b).abs() < 1e-6));

        // A part of a tensor is a view; the shorter operand is repeated.
        let row = found.narrow(0, 0, 1)?;
        let differences = found.binary(Binary::Sub, &row)?.to_vec::<f32>()?;
        assert!(differences[..5].iter().all(|value| *value == 0.0));
    }

    // What cannot be is an error that says why.
    let (a, b) = (Tensor::new(&[1.0f32; 6], &[2, 3], &Device::Cpu)?, Tensor::new(&[1.0f32; 4], &[2, 2], &Device::Cpu)?);
    println!("refused: {}", a.matmul(&b).unwrap_err());
    Ok(())
}
