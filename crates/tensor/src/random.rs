//! Random tensors.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use warpwave_kernels::{DType, Distribution, Philox};

use crate::device::Device;
use crate::error::{Result, shape};
use crate::tensor::Tensor;

/// A source of random tensors: the same seed gives the same tensors on every device.
///
/// Each tensor takes the next numbers of the seed (Philox 4x32-10), and [`Random::state`] says where the next one begins. Threads may share
/// a source. A captured graph repeats the numbers that it was captured with.
///
/// ```
/// use warpwave_kernels::DType;
/// use warpwave_tensor::{Device, Random};
///
/// let random = Random::new(42);
/// let weights = random.normal(0.0, 0.02, DType::F32, &[3, 4], &Device::Cpu)?;
/// let state = random.state();
/// let order = random.permutation(10, &Device::Cpu)?.to_vec::<u32>()?;
/// random.set_state(state);
/// assert_eq!(random.permutation(10, &Device::Cpu)?.to_vec::<u32>()?, order);
/// # Ok::<(), warpwave_tensor::Error>(())
/// ```
#[derive(Debug)]
pub struct Random {
    next: Mutex<Philox>,
}

impl Random {
    /// Creates a source that begins with the first numbers of a seed.
    pub fn new(seed: u64) -> Random {
        Random::at(Philox { seed, ..Philox::default() })
    }

    /// Creates a source that begins anywhere. Different streams of a seed are independent.
    pub fn at(state: Philox) -> Random {
        Random { next: Mutex::new(state) }
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.state().seed
    }

    /// Starts again with the first numbers of a seed.
    pub fn set_seed(&self, seed: u64) {
        self.set_state(Philox { seed, ..Philox::default() });
    }

    /// Returns the seed and the position of the next tensor.
    pub fn state(&self) -> Philox {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Continues at a state.
    pub fn set_state(&self, state: Philox) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Takes the blocks of `n` elements.
    fn take(&self, distribution: &Distribution, dtype: DType, n: usize) -> Philox {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let at = *next;
        next.position = at.position.wrapping_add(n.div_ceil(distribution.elements_per_block(dtype)) as u64);
        at
    }

    /// Returns a tensor of any distribution.
    pub fn tensor(&self, distribution: Distribution, dtype: DType, shape: &[usize], device: &Device) -> Result<Tensor> {
        // Before numbers are taken, and before memory is.
        distribution.draw(dtype)?;
        Tensor::build(device, dtype, shape, |backend, out| {
            backend.random(&distribution, self.take(&distribution, dtype, out.layout.len()), out)
        })
    }

    /// Returns `f32`, `f64`, `f16` or `bf16` elements evenly distributed over `low..high`; `high` is excluded, also after rounding.
    pub fn uniform(&self, low: f64, high: f64, dtype: DType, shape: &[usize], device: &Device) -> Result<Tensor> {
        self.tensor(Distribution::Uniform { low, high }, dtype, shape, device)
    }

    /// Returns normally distributed `f32`, `f64`, `f16` or `bf16` elements.
    pub fn normal(&self, mean: f64, deviation: f64, dtype: DType, shape: &[usize], device: &Device) -> Result<Tensor> {
        self.tensor(Distribution::Normal { mean, deviation }, dtype, shape, device)
    }

    /// Returns integers of a range.
    pub fn integers<T: Into<i128>>(&self, range: Range<T>, dtype: DType, shape: &[usize], device: &Device) -> Result<Tensor> {
        self.tensor(Distribution::Integers { low: range.start.into(), high: range.end.into() }, dtype, shape, device)
    }

    /// Returns elements that are 1 with a probability, else 0.
    pub fn bernoulli(&self, probability: f64, dtype: DType, shape: &[usize], device: &Device) -> Result<Tensor> {
        self.tensor(Distribution::Bernoulli { probability }, dtype, shape, device)
    }

    /// Returns a random order of `0..n`, as `u32`.
    pub fn permutation(&self, n: usize, device: &Device) -> Result<Tensor> {
        if u32::try_from(n).is_err() {
            return Err(shape("permutation", format!("{n} elements exceed the limit of 2^32 - 1")));
        }
        let keys = Distribution::PERMUTATION_KEYS;
        Tensor::build(device, DType::U32, &[n], |backend, out| backend.permutation(self.take(&keys, DType::I64, n), out))
    }
}
