//! Elements in host memory: read in row-major order, widened to a type to compute in, rounded and written back.

use std::borrow::Cow;

use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use warpwave_kernels::{DType, Layout, Scalar};

use crate::backend::{Operand, OperandMut, Storage};
use crate::error::{Result, wrong_device, wrong_type};

/// The host memory of a tensor as elements of a type.
pub(super) fn memory<T: Pod>(storage: &Storage) -> Result<&[T]> {
    match storage {
        Storage::Cpu(words) => Ok(bytemuck::cast_slice(words)),
        other => Err(wrong_device("read", "the tensor", other.kind(), "cpu")),
    }
}

pub(super) fn memory_mut<T: Pod>(storage: &mut Storage) -> Result<&mut [T]> {
    match storage {
        Storage::Cpu(words) => Ok(bytemuck::cast_slice_mut(words)),
        other => Err(wrong_device("write", "the tensor", other.kind(), "cpu")),
    }
}

/// Calls `f` with the offset and length of each run of the last dimension, in row-major order, and with the stride within it.
fn runs(layout: &Layout, mut f: impl FnMut(usize, usize, usize)) {
    if layout.is_empty() {
        return;
    }
    let (shape, strides) = (layout.shape(), layout.strides());
    let Some((inner, stride)) = shape.last().copied().zip(strides.last().copied()) else { return f(layout.offset(), 1, 1) };
    let outer = shape.len() - 1;
    let mut index = vec![0; outer];
    loop {
        let start = layout.offset() + index.iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>();
        f(start, inner, stride);
        let Some(d) = (0..outer).rev().find(|d| index[*d] + 1 < shape[*d]) else { return };
        index[d] += 1;
        index[d + 1..].fill(0);
    }
}

fn contiguous_range(layout: &Layout) -> Option<std::ops::Range<usize>> {
    let start = if layout.is_empty() { 0 } else { layout.offset() };
    layout.is_contiguous().then(|| start..start + layout.len())
}

/// The elements in row-major order, borrowed where they are contiguous. `T` has the size of the element type.
pub(super) fn read<'a, T: Pod>(x: &Operand<'a>) -> Result<Cow<'a, [T]>> {
    debug_assert_eq!(size_of::<T>(), x.dtype.size());
    let memory = memory::<T>(x.storage)?;
    if let Some(range) = contiguous_range(&x.layout) {
        return Ok(Cow::Borrowed(&memory[range]));
    }
    let mut out = Vec::with_capacity(x.layout.len());
    runs(&x.layout, |start, len, stride| match stride {
        1 => out.extend_from_slice(&memory[start..start + len]),
        _ => out.extend((0..len).map(|i| memory[start + i * stride])),
    });
    Ok(Cow::Owned(out))
}

/// Lets `fill` write all elements in row-major order: in place where they are contiguous, else through a copy that starts as zeros.
pub(super) fn write<T: Pod>(out: &mut OperandMut<'_>, fill: impl FnOnce(&mut [T]) -> Result<()>) -> Result<()> {
    debug_assert_eq!(size_of::<T>(), out.dtype.size());
    let layout = out.layout;
    let memory = memory_mut::<T>(out.storage)?;
    if let Some(range) = contiguous_range(&layout) {
        return fill(&mut memory[range]);
    }
    let mut dense = vec![T::zeroed(); layout.len()];
    fill(&mut dense)?;
    let mut rest = &dense[..];
    runs(&layout, |start, len, stride| {
        let (run, after) = rest.split_at(len);
        run.iter().enumerate().for_each(|(i, x)| memory[start + i * stride] = *x);
        rest = after;
    });
    Ok(())
}

/// Lets `change` update all elements in row-major order, in place where they are contiguous.
pub(super) fn update<T: Pod>(x: &mut OperandMut<'_>, change: impl FnOnce(&mut [T]) -> Result<()>) -> Result<()> {
    let old = if x.layout.is_contiguous() { None } else { Some(read::<T>(&x.as_operand())?.into_owned()) };
    write(x, |out| {
        if let Some(old) = &old {
            out.copy_from_slice(old);
        }
        change(out)
    })
}

/// Row-major bytes, borrowed where the elements are contiguous.
pub(super) fn bytes<'a>(x: &Operand<'a>) -> Result<Cow<'a, [u8]>> {
    fn of<T: Pod>(elements: Cow<'_, [T]>) -> Cow<'_, [u8]> {
        match elements {
            Cow::Borrowed(elements) => Cow::Borrowed(bytemuck::cast_slice(elements)),
            Cow::Owned(elements) => Cow::Owned(bytemuck::cast_slice(&elements).to_vec()),
        }
    }
    Ok(match x.dtype.size() {
        1 => read::<u8>(x)?,
        2 => of(read::<u16>(x)?),
        4 => of(read::<u32>(x)?),
        _ => of(read::<u64>(x)?),
    })
}

/// Writes row-major bytes.
pub(super) fn write_bytes(out: &mut OperandMut<'_>, bytes: &[u8]) -> Result<()> {
    fn to<T: Pod>(out: &mut OperandMut<'_>, bytes: &[u8]) -> Result<()> {
        write::<T>(out, |out| {
            bytemuck::cast_slice_mut(out).copy_from_slice(bytes);
            Ok(())
        })
    }
    match out.dtype.size() {
        1 => to::<u8>(out, bytes),
        2 => to::<u16>(out, bytes),
        4 => to::<u32>(out, bytes),
        _ => to::<u64>(out, bytes),
    }
}

/// Float elements as `f32`; borrowed where they are contiguous `f32`.
pub(super) fn floats<'a>(x: &Operand<'a>) -> Result<Cow<'a, [f32]>> {
    let mut out;
    match x.dtype {
        DType::F32 => return read(x),
        DType::F16 => {
            out = vec![0.0; x.layout.len()];
            read::<f16>(x)?.convert_to_f32_slice(&mut out);
        }
        DType::Bf16 => {
            out = vec![0.0; x.layout.len()];
            read::<bf16>(x)?.convert_to_f32_slice(&mut out);
        }
        DType::F64 => out = read::<f64>(x)?.iter().map(|x| *x as f32).collect(),
        DType::F8E4M3 | DType::F8E5M2 => {
            let format = fp8_format(x.dtype);
            out = read::<u8>(x)?.iter().map(|x| fp8_to_f32(*x, format)).collect();
        }
        found => return Err(wrong_type("read", "the tensor", found, "a float type")),
    }
    Ok(Cow::Owned(out))
}

/// Integer elements.
pub(super) fn ints(x: &Operand<'_>) -> Result<Vec<i64>> {
    fn of<T: Pod + Into<i64>>(x: &Operand<'_>) -> Result<Vec<i64>> {
        Ok(read::<T>(x)?.iter().map(|x| (*x).into()).collect())
    }
    match x.dtype {
        DType::U8 => of::<u8>(x),
        DType::I16 => of::<i16>(x),
        DType::I32 => of::<i32>(x),
        DType::U32 => of::<u32>(x),
        DType::I64 => of::<i64>(x),
        found => Err(wrong_type("read", "the tensor", found, "an integer type")),
    }
}

/// Elements in the type that the CPU computes in: `f64` for `f64`, `f32` for other floats, `i64` for integers.
pub(super) enum Values {
    F32(Vec<f32>),
    F64(Vec<f64>),
    I64(Vec<i64>),
}

impl Values {
    pub fn of(x: &Operand<'_>) -> Result<Values> {
        Ok(match x.dtype {
            DType::F64 => Values::F64(read::<f64>(x)?.into_owned()),
            dtype if dtype.is_integer() => Values::I64(ints(x)?),
            _ => Values::F32(floats(x)?.into_owned()),
        })
    }

    /// A scalar in the type that elements of `dtype` are computed in.
    pub fn scalar(value: Scalar, dtype: DType) -> Values {
        match dtype {
            DType::F64 => Values::F64(vec![value.to_f64()]),
            _ if dtype.is_integer() => Values::I64(vec![value.to_i64()]),
            _ => Values::F32(vec![value.to_f64() as f32]),
        }
    }

    /// Writes the values, row-major. Floats round to nearest even, and truncate and saturate to integers; integers wrap.
    pub fn store(self, out: &mut OperandMut<'_>) -> Result<()> {
        macro_rules! store {
            ($ty:ty, $f32:expr, $f64:expr, $i64:expr) => {
                write::<$ty>(out, |out| {
                    match &self {
                        Values::F32(x) => out.iter_mut().zip(x).for_each(|(out, x)| *out = $f32(*x)),
                        Values::F64(x) => out.iter_mut().zip(x).for_each(|(out, x)| *out = $f64(*x)),
                        Values::I64(x) => out.iter_mut().zip(x).for_each(|(out, x)| *out = $i64(*x)),
                    }
                    Ok(())
                })
            };
        }
        macro_rules! native {
            ($ty:ty) => {
                store!($ty, |x: f32| x as $ty, |x: f64| x as $ty, |x: i64| x as $ty)
            };
        }
        macro_rules! half {
            ($ty:ty) => {
                store!($ty, <$ty>::from_f32, |x| <$ty>::from_f32(to_odd(x)), |x| <$ty>::from_f32(to_odd(exact_bits(x))))
            };
        }
        match out.dtype {
            DType::U8 => native!(u8),
            DType::I16 => native!(i16),
            DType::I32 => native!(i32),
            DType::U32 => native!(u32),
            DType::I64 => native!(i64),
            DType::F32 => native!(f32),
            DType::F64 => native!(f64),
            DType::F16 => half!(f16),
            DType::Bf16 => half!(bf16),
            DType::F8E4M3 | DType::F8E5M2 => {
                let format = fp8_format(out.dtype);
                store!(u8, |x: f32| f64_to_fp8(x.into(), format), |x| f64_to_fp8(x, format), |x| f64_to_fp8(exact_bits(x), format))
            }
            found => Err(wrong_type("write", "the result", found, "one of DType::COMPUTE")),
        }
    }
}

/// An `i64` as an `f64` that rounds on to narrower floats as the integer itself does: cut-off bits are kept as a sticky bit.
fn exact_bits(value: i64) -> f64 {
    if value.unsigned_abs() >> 53 == 0 {
        return value as f64;
    }
    ((value >> 11) | i64::from(value & 0x7ff != 0)) as f64 * 2048.0
}

/// Rounds to odd: rounding the result on to 16 bits is the same as rounding the value once.
fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    if value.is_nan() || f64::from(near) == value {
        return near;
    }
    let beyond = f64::from(near).abs() > value.abs();
    f32::from_bits((near.to_bits() - u32::from(beyond)) | 1)
}

/// An fp8 format: mantissa bits, exponent bias, the bits of its largest number, and whether it has infinities.
#[derive(Clone, Copy)]
pub(super) struct Fp8 {
    mantissa: i32,
    bias: i32,
    largest: u8,
    infinities: bool,
}

pub(super) fn fp8_format(dtype: DType) -> Fp8 {
    match dtype {
        DType::F8E4M3 => Fp8 { mantissa: 3, bias: 7, largest: 0x7e, infinities: false },
        _ => Fp8 { mantissa: 2, bias: 15, largest: 0x7b, infinities: true },
    }
}

pub(super) fn fp8_to_f32(bits: u8, format: Fp8) -> f32 {
    let Fp8 { mantissa, bias, largest, infinities } = format;
    let (sign, size) = (if bits & 0x80 == 0 { 1.0 } else { -1.0 }, bits & 0x7f);
    if size > largest {
        return if infinities && size == largest + 1 { sign * f32::INFINITY } else { f32::NAN };
    }
    let (exponent, fraction) = (i32::from(size) >> mantissa, i32::from(size) & ((1 << mantissa) - 1));
    let (units, exponent) = if exponent == 0 { (fraction, 1) } else { (fraction | 1 << mantissa, exponent) };
    sign * units as f32 * 2f32.powi(exponent - bias - mantissa)
}

/// Rounds to nearest even; what is too large saturates, infinities too.
pub(super) fn f64_to_fp8(value: f64, format: Fp8) -> u8 {
    if value.is_nan() {
        return 0x7f;
    }
    let Fp8 { mantissa, bias, largest, .. } = format;
    let exponent = ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(1 - bias);
    // Exact: a multiple of the last bit at that exponent.
    let units = (value.abs() * 2f64.powi(mantissa - exponent)).round_ties_even();
    let bits = f64::from((exponent + bias - 1) << mantissa) + units;
    let size = if bits > f64::from(largest) { largest } else { bits as u8 };
    size | u8::from(value.is_sign_negative()) << 7
}
