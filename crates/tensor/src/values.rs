//! Elements on the CPU as numbers to compute with: floats of 32 bits and less as `f32`, doubles as `f64`, whole numbers as `i64`.

use half::{bf16, f16};
use warpwave_kernels::{DType, Scalar};

use crate::error::{Error, Result};
use crate::tensor::Tensor;

pub(crate) enum Values {
    F32(Vec<f32>),
    F64(Vec<f64>),
    I64(Vec<i64>),
}

fn unknown(dtype: DType) -> Error {
    Error::Type { op: "an operation on the CPU", what: "the tensor", found: dtype, expected: "types other than fp8; move it to a GPU" }
}

impl Values {
    pub fn of(tensor: &Tensor) -> Result<Values> {
        fn ints<T: warpwave_kernels::Element + Into<i64>>(tensor: &Tensor) -> Result<Values> {
            Ok(Values::I64(tensor.host::<T>()?.iter().map(|x| (*x).into()).collect()))
        }
        match tensor.dtype() {
            DType::U8 => ints::<u8>(tensor),
            DType::I16 => ints::<i16>(tensor),
            DType::I32 => ints::<i32>(tensor),
            DType::U32 => ints::<u32>(tensor),
            DType::I64 => ints::<i64>(tensor),
            DType::F64 => Ok(Values::F64(tensor.host::<f64>()?.into_owned())),
            DType::F32 => Ok(Values::F32(tensor.host::<f32>()?.into_owned())),
            DType::F16 => Ok(Values::F32(tensor.host::<f16>()?.iter().map(|x| x.to_f32()).collect())),
            DType::Bf16 => Ok(Values::F32(tensor.host::<bf16>()?.iter().map(|x| x.to_f32()).collect())),
            dtype => Err(unknown(dtype)),
        }
    }

    /// A number, `n` times, of the kind that a type is computed with.
    pub fn repeated(value: Scalar, dtype: DType, n: usize) -> Values {
        let (float, int) = match value {
            Scalar::Int(value) => (value as f64, value),
            Scalar::Float(value) => (value, value as i64),
        };
        match dtype {
            DType::F64 => Values::F64(vec![float; n]),
            _ if dtype.is_integer() => Values::I64(vec![int; n]),
            _ => Values::F32(vec![float as f32; n]),
        }
    }

    /// A tensor of these numbers. Floats are rounded to nearest, cut off and saturated to whole numbers; whole numbers wrap.
    pub fn into_tensor(self, dtype: DType, shape: &[usize]) -> Result<Tensor> {
        macro_rules! ints {
            ($ty:ty) => {
                Tensor::on_cpu::<$ty>(shape, |out| {
                    match &self {
                        Values::F32(x) => out.iter_mut().zip(x).for_each(|(out, x)| *out = *x as $ty),
                        Values::F64(x) => out.iter_mut().zip(x).for_each(|(out, x)| *out = *x as $ty),
                        Values::I64(x) => out.iter_mut().zip(x).for_each(|(out, x)| *out = *x as $ty),
                    }
                    Ok(())
                })
            };
        }
        macro_rules! halves {
            ($ty:ty) => {
                Tensor::on_cpu::<$ty>(shape, |out| {
                    match &self {
                        Values::F32(x) => out.iter_mut().zip(x).for_each(|(out, x)| *out = <$ty>::from_f32(*x)),
                        Values::F64(x) => out.iter_mut().zip(x).for_each(|(out, x)| *out = <$ty>::from_f32(to_odd(*x))),
                        Values::I64(x) => out.iter_mut().zip(x).for_each(|(out, x)| *out = <$ty>::from_f32(to_odd(exactly(*x)))),
                    }
                    Ok(())
                })
            };
        }
        match dtype {
            DType::U8 => ints!(u8),
            DType::I16 => ints!(i16),
            DType::I32 => ints!(i32),
            DType::U32 => ints!(u32),
            DType::I64 => ints!(i64),
            DType::F32 => ints!(f32),
            DType::F64 => ints!(f64),
            DType::F16 => halves!(f16),
            DType::Bf16 => halves!(bf16),
            dtype => Err(unknown(dtype)),
        }
    }
}

/// A whole number as a double that rounds further as the number itself does: what is cut off is remembered in the last bit.
fn exactly(value: i64) -> f64 {
    if value.unsigned_abs() >> 53 == 0 {
        return value as f64;
    }
    ((value >> 11) | i64::from(value & 0x7ff != 0)) as f64 * 2048.0
}

/// A float with an odd last bit where the value lies between two: rounding it further is as rounding the value.
fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    if value.is_nan() || f64::from(near) == value {
        return near;
    }
    let beyond = f64::from(near).abs() > value.abs();
    f32::from_bits((near.to_bits() - u32::from(beyond)) | 1)
}
