//! Random numbers: Warpwave's generator (Philox 4x32-10) under cuRAND's names.
//!
//! The numbers depend on the seed and on what was drawn before, and are the same on every device. They differ from cuRAND's for the same
//! seed; uniform ones are of 0..1 without 1, cuRAND's without 0.

use std::sync::{Arc, Mutex};

use warpwave::kernels::{Distribution, Layout, Philox, ViewMut};

use crate::driver::{CudaStream, DevicePtrMut, DriverError};
use crate::gpu::lock;
use result::{CurandError, NormalFill, UniformFill};

/// Errors and the element types.
pub mod result {
    use warpwave::kernels::{DType, Distribution};

    use super::sys;
    use crate::driver::DriverError;

    /// Why numbers could not be drawn.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
    #[error("random numbers: {0}")]
    pub struct CurandError(pub DriverError);

    /// Types with uniform random numbers.
    pub trait UniformFill<T> {
        /// The element type and the distribution.
        fn uniform() -> (DType, Distribution);
    }

    /// Types with normally distributed random numbers.
    pub trait NormalFill<T> {
        /// The element type and the distribution.
        fn normal(mean: T, deviation: T) -> (DType, Distribution);
    }

    macro_rules! fills {
        ($($ty:ident: $dtype:expr),*) => { $(
            impl UniformFill<$ty> for sys::curandGenerator_t {
                fn uniform() -> (DType, Distribution) {
                    ($dtype, Distribution::Uniform { low: 0.0, high: 1.0 })
                }
            }

            impl NormalFill<$ty> for sys::curandGenerator_t {
                fn normal(mean: $ty, deviation: $ty) -> (DType, Distribution) {
                    ($dtype, Distribution::Normal { mean: mean.into(), deviation: deviation.into() })
                }
            }
        )* };
    }
    fills!(f32: DType::F32, f64: DType::F64);
}

/// Types of the library below.
pub mod sys {
    #![allow(non_camel_case_types)]

    /// Names the element types that can be drawn; see [`super::result`].
    pub struct curandGenerator_t(());
}

/// A generator of random numbers on a device.
pub struct CudaRng {
    stream: Arc<CudaStream>,
    at: Mutex<Philox>,
}

impl CudaRng {
    /// Creates a generator whose work is queued on a stream. The same seed gives the same numbers.
    pub fn new(seed: u64, stream: Arc<CudaStream>) -> Result<CudaRng, CurandError> {
        Ok(CudaRng { stream, at: Mutex::new(Philox { seed, ..Philox::default() }) })
    }

    /// Begins the numbers of a seed.
    pub fn set_seed(&mut self, seed: u64) -> Result<(), CurandError> {
        *lock(&self.at) = Philox { seed, ..Philox::default() };
        Ok(())
    }

    /// Fills device memory with evenly distributed numbers of 0..1.
    pub fn fill_with_uniform<T, Dst: DevicePtrMut<T>>(&self, destination: &mut Dst) -> Result<(), CurandError>
    where
        sys::curandGenerator_t: UniformFill<T>,
    {
        self.fill(destination, <sys::curandGenerator_t as UniformFill<T>>::uniform())
    }

    /// Fills device memory with normally distributed numbers.
    pub fn fill_with_normal<T, Dst: DevicePtrMut<T>>(&self, destination: &mut Dst, mean: T, deviation: T) -> Result<(), CurandError>
    where
        sys::curandGenerator_t: NormalFill<T>,
    {
        self.fill(destination, <sys::curandGenerator_t as NormalFill<T>>::normal(mean, deviation))
    }

    fn fill<T, Dst: DevicePtrMut<T>>(
        &self,
        destination: &mut Dst,
        (dtype, distribution): (warpwave::kernels::DType, Distribution),
    ) -> Result<(), CurandError> {
        let len = destination.len();
        let (address, _guard) = destination.device_ptr_mut(&self.stream);
        let gpu = &self.stream.context().gpu;
        let draw = || -> Result<(), DriverError> {
            gpu.check()?;
            if len == 0 {
                return Ok(());
            }
            let part = gpu.find_range(address, len * dtype.size(), "random numbers")?;
            // SAFETY: the destination is borrowed exclusively, and the work is queued before this returns.
            let slice = unsafe { part.slice()?.assume_mut() };
            let mut out = ViewMut::of_bytes(slice, dtype, Layout::contiguous(&[len])?)?;
            let mut at = lock(&self.at);
            gpu.kernels.random(self.stream.raw(), &distribution, *at, &mut out)?;
            at.position = at.position.wrapping_add(len.div_ceil(distribution.elements_per_block(dtype)) as u64);
            Ok(())
        };
        draw().map_err(CurandError)
    }
}
