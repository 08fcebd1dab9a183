// Teaches: tensors, with the same operations on the CPU and on a GPU.
//
// A tensor has a shape, a type and a device. Views (a slice, a transpose, a broadcast) share its storage; operations return a new tensor
// on the same device. Operators return a `Result`, since shapes may not fit.
//
// Run it: `cargo run --example 10-tensors`

use std::error::Error;

use warpwave::tensor::{Device, Tensor};

/// Attention weights: softmax(q · kᵀ / √d).
fn weights(q: &Tensor, k: &Tensor) -> warpwave::tensor::Result<Tensor> {
    let scale = 1.0 / (q.size(-1) as f64).sqrt();
    (q.matmul(&k.t()?)? * scale)?.softmax(-1)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut devices = vec![Device::Cpu];
    let gpu = warpwave::tensor_device("auto")?;
    if !gpu.is_cpu() {
        devices.push(gpu);
    }
    let queries: Vec<f32> = (0..12).map(|i| (i as f32 * 0.7).sin()).collect();
    let keys: Vec<f32> = (0..20).map(|i| (i as f32 * 0.3).cos()).collect();

    let mut expected: Option<Vec<f32>> = None;
    for device in &devices {
        let q = Tensor::new(&queries, &[3, 4], device)?;
        let k = Tensor::new(&keys, &[5, 4], device)?;
        let found = weights(&q, &k)?;
        assert_eq!(found.shape(), [3, 5]);
        println!("{found}");
        // A GPU sums in another order: equal up to rounding.
        let values = found.to_vec::<f32>()?;
        let expected = expected.get_or_insert_with(|| values.clone());
        assert!(values.iter().zip(expected).all(|(a, b)| (a - *b).abs() < 1e-6));

        // A slice is a view; the first row is broadcast to all rows.
        let differences = (&found - &found.narrow(0, 0, 1)?)?;
        assert_eq!(differences.abs()?.max(&[1])?.to_vec::<f32>()?[0], 0.0);
        println!("largest weight of each query: {:?}", found.argmax(-1)?.to_vec::<u32>()?);
    }

    // Shapes that do not fit are errors, before anything is computed.
    let (a, b) = (Tensor::new(&[1.0f32; 6], &[2, 3], &Device::Cpu)?, Tensor::new(&[1.0f32; 4], &[2, 2], &Device::Cpu)?);
    if let Err(error) = a.matmul(&b) {
        println!("rejected: {error}");
    }
    Ok(())
}
