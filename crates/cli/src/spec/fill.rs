//! Computes the contents of a [`Buffer`].

use super::{Buffer, Init, MaterializeError};
use crate::{
    array::{Array, byte_len},
    npy,
    value::Value,
};
use std::path::Path;

use warpwave_kernels::{DType, Scalar};

pub(super) fn materialize(buffer: &Buffer) -> Result<Array, MaterializeError> {
    let dtype = buffer.dtype;
    if let Init::File(path) = &buffer.init {
        return load(path, dtype, buffer.shape());
    }
    let shape = buffer.shape.clone().unwrap_or_default();
    let size = byte_len(dtype, &shape)?;
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(size).is_err() {
        return Err(MaterializeError::OutOfMemory { dtype, shape, bytes: size });
    }
    let count = size / dtype.size();
    match &buffer.init {
        Init::Zeros | Init::File(_) => bytes.resize(size, 0),
        Init::Ones => fill(&mut bytes, count, |_| to_value(dtype, Scalar::Int(1))),
        Init::Fill(value) => fill(&mut bytes, count, |_| *value),
        Init::Iota { start, step } => fill(&mut bytes, count, |index| to_value(dtype, iota_element(*start, *step, index))),
        Init::Rand { seed, range: None } => fill(&mut bytes, count, |index| rand_default(dtype, splitmix64(*seed, index))),
        Init::Rand { seed, range: Some((lo, hi)) } => {
            fill(&mut bytes, count, |index| rand_between(dtype, *lo, *hi, splitmix64(*seed, index)))
        }
    }
    Ok(Array::new(dtype, shape, bytes)?)
}

fn load(path: &Path, dtype: DType, shape: Option<&[usize]>) -> Result<Array, MaterializeError> {
    let mut array = npy::read_file(path)?;
    if dtype == DType::Bf16 && array.dtype == DType::U16 {
        array.dtype = DType::Bf16;
    }
    if array.dtype != dtype {
        return Err(MaterializeError::WrongDType { path: path.to_owned(), found: array.dtype, expected: dtype });
    }
    match shape {
        Some(expected) if expected != array.shape => {
            Err(MaterializeError::WrongShape { path: path.to_owned(), found: array.shape, expected: expected.to_vec() })
        }
        _ => Ok(array),
    }
}

fn fill(bytes: &mut Vec<u8>, count: usize, element: impl Fn(usize) -> Value) {
    (0..count).for_each(|index| bytes.extend_from_slice(element(index).bytes()));
}

/// Converts a scalar to the type; the parser has checked the range.
fn to_value(dtype: DType, scalar: Scalar) -> Value {
    match scalar {
        Scalar::Int(value) if !dtype.is_float() => Value::from_low_bytes(dtype, value as u64),
        scalar => Value::round(dtype, scalar.to_f64()),
    }
}

pub(super) fn iota_element(start: Scalar, step: Scalar, index: usize) -> Scalar {
    match (start, step) {
        (Scalar::Int(start), Scalar::Int(step)) => Scalar::Int(start + step * index as i128),
        (start, step) => Scalar::Float(start.to_f64() + step.to_f64() * index as f64),
    }
}

/// Returns output `index` of SplitMix64 (Steele, Lea and Flood, 2014); it does not depend on earlier outputs.
fn splitmix64(seed: u64, index: usize) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(index as u64 + 1));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn rand_default(dtype: DType, random: u64) -> Value {
    let unit = |precision: i32| Value::round(dtype, unit_interval(random, precision));
    match dtype {
        DType::Bool => Value::from_low_bytes(dtype, random >> 63),
        DType::F8E5M2 => unit(3),
        DType::F8E4M3 => unit(4),
        DType::F16 => unit(11),
        DType::Bf16 => unit(8),
        DType::F32 => unit(24),
        DType::F64 => unit(53),
        _ => Value::from_low_bytes(dtype, random >> (64 - 8 * dtype.size())),
    }
}

/// Returns the top `precision` bits as a fraction in [0, 1).
fn unit_interval(random: u64, precision: i32) -> f64 {
    (random >> (64 - precision)) as f64 * f64::powi(2.0, -precision)
}

fn rand_between(dtype: DType, lo: Scalar, hi: Scalar, random: u64) -> Value {
    if let (Scalar::Int(lo), Scalar::Int(hi)) = (lo, hi) {
        // The product is below 2^128.
        let offset = (u128::from(random) * hi.abs_diff(lo)) >> 64;
        return to_value(dtype, Scalar::Int(lo + offset as i128));
    }
    let (lo, hi) = (lo.to_f64(), hi.to_f64());
    let value = Value::round(dtype, lo + (hi - lo) * unit_interval(random, 53));
    if value.to_f64() < hi { value } else { Value::round(dtype, lo) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published outputs of the reference implementation for this seed.
    #[test]
    fn the_generator_is_splitmix64() {
        let outputs: Vec<u64> = (0..5).map(|index| splitmix64(1234567, index)).collect();
        assert_eq!(outputs, [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]);
    }

    #[test]
    fn the_unit_interval_excludes_one() {
        for precision in [3, 4, 8, 11, 24, 53] {
            let largest = unit_interval(u64::MAX, precision);
            assert!(largest < 1.0 && largest + f64::powi(2.0, -precision) == 1.0);
        }
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
            assert!(rand_default(dtype, u64::MAX).to_f64() < 1.0);
            assert_eq!(rand_default(dtype, 0).to_f64(), 0.0);
        }
    }

    #[test]
    fn ranges_exclude_their_end() {
        let between = |dtype, lo, hi, random| rand_between(dtype, lo, hi, random).to_f64();
        assert_eq!(between(DType::U8, Scalar::Int(0), Scalar::Int(256), u64::MAX), 255.0);
        assert_eq!(between(DType::I8, Scalar::Int(-3), Scalar::Int(3), u64::MAX), 2.0);
        assert_eq!(between(DType::I8, Scalar::Int(-3), Scalar::Int(3), 0), -3.0);
        // The largest draw rounds up to the excluded end and is replaced by the start.
        assert_eq!(between(DType::F16, Scalar::Float(1.0), Scalar::Float(2.0), u64::MAX), 1.0);
        assert_eq!(between(DType::F32, Scalar::Float(1.0), Scalar::Float(2.0), 1 << 63), 1.5);
        let full = rand_between(DType::I64, Scalar::Int(i64::MIN.into()), Scalar::Int(1 << 63), u64::MAX);
        assert_eq!(full.scalar(), Scalar::Int(i64::MAX.into()));
    }
}
