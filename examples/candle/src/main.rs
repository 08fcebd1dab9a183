//! A candle program: a small network on device 0, in floats and with quantized weights, compared with the CPU.

use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{Device, Module, Result, Tensor};
use candle_nn::ops::softmax;

/// Two layers with weights that a seed on the CPU determines.
struct Network {
    first: Tensor,
    second: QMatMul,
}

impl Network {
    fn new(weights: &[Tensor; 2], device: &Device) -> Result<Network> {
        let second = QTensor::quantize(&weights[1].to_device(device)?, GgmlDType::Q4K)?;
        Ok(Network { first: weights[0].to_device(device)?, second: QMatMul::from_qtensor(second)? })
    }

    /// Returns probabilities.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = x.matmul(&self.first)?.gelu()?;
        softmax(&(self.second.forward(&hidden)? * 0.2)?, 1)
    }
}

fn main() -> Result<()> {
    let (cpu, gpu) = (Device::Cpu, Device::new_cuda(0)?);
    let weights = [Tensor::randn(0f32, 0.1, (64, 256), &cpu)?, Tensor::randn(0f32, 0.1, (10, 256), &cpu)?];
    // Up to 8 rows and more of them take different ways through the quantized product.
    for rows in [3, 20] {
        let x = Tensor::randn(0f32, 1.0, (rows, 64), &cpu)?;
        let expected = Network::new(&weights, &cpu)?.forward(&x)?;
        let found = Network::new(&weights, &gpu)?.forward(&x.to_device(&gpu)?)?.to_device(&cpu)?;
        println!("{found:.3}");
        let difference = (expected - found)?.abs()?.max_all()?.to_scalar::<f32>()?;
        if difference > 0.01 {
            candle_core::bail!("probabilities of {rows} rows differ from the CPU's by {difference}");
        }
        println!("{rows} rows agree with the CPU: probabilities differ by {difference:.1e} at most");
    }
    // Numbers drawn on the device are repeated by their seed.
    let draw = || {
        gpu.set_seed(7)?;
        Tensor::randn(0f32, 1.0, 1000, &gpu)?.to_vec1::<f32>()
    };
    if draw()? != draw()? {
        candle_core::bail!("the same seed gave other random numbers");
    }
    println!("random numbers repeat");
    Ok(())
}
