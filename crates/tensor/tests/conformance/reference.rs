//! An independent reference: elements as `f64`, computed by definition, one by one.

use half::{bf16, f16};
use warpwave_kernels::DType;
use warpwave_tensor::{Device, Tensor};
use warpwave_test_support::Random;

/// Types of every operation.
pub const TYPES: [DType; 11] = [
    DType::U8,
    DType::I16,
    DType::I32,
    DType::U32,
    DType::I64,
    DType::F16,
    DType::Bf16,
    DType::F32,
    DType::F64,
    DType::F8E4M3,
    DType::F8E5M2,
];
/// Types of matrix products, norms and attention.
pub const FLOATS: [DType; 4] = [DType::F16, DType::Bf16, DType::F32, DType::F64];

fn fp8(bits: u8, mantissa: i32, bias: i32) -> f64 {
    let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits & 0x7f) >> mantissa, f64::from(bits & ((1 << mantissa) - 1)) / f64::from(1 << mantissa));
    sign * if exponent == 0 { fraction * 2f64.powi(1 - bias) } else { (1.0 + fraction) * 2f64.powi(exponent - bias) }
}

/// The value of an element.
pub fn decode(dtype: DType, bytes: &[u8]) -> f64 {
    let word = bytes.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    match dtype {
        DType::U8 | DType::U32 => word as f64,
        DType::I16 => f64::from(word as i16),
        DType::I32 => f64::from(word as i32),
        DType::I64 => word as i64 as f64,
        DType::F16 => f16::from_bits(word as u16).to_f64(),
        DType::Bf16 => bf16::from_bits(word as u16).to_f64(),
        DType::F32 => f64::from(f32::from_bits(word as u32)),
        DType::F64 => f64::from_bits(word),
        DType::F8E4M3 if word & 0x7f == 0x7f => f64::NAN,
        DType::F8E4M3 => fp8(word as u8, 3, 7),
        DType::F8E5M2 if word & 0x7f > 0x7c => f64::NAN,
        DType::F8E5M2 if word & 0x7f == 0x7c => f64::INFINITY,
        DType::F8E5M2 => fp8(word as u8, 2, 15),
        other => panic!("{other} is not tested"),
    }
}

/// A random element within ±`limit`, or `0..limit` for unsigned types.
fn encode(random: &mut Random, dtype: DType, limit: f64) -> Vec<u8> {
    let float = random.uniform(-limit, limit);
    let int = float as i64;
    match dtype {
        DType::U8 => vec![int.unsigned_abs() as u8],
        DType::I16 => (int as i16).to_le_bytes().to_vec(),
        DType::I32 => (int as i32).to_le_bytes().to_vec(),
        DType::U32 => (int.unsigned_abs() as u32).to_le_bytes().to_vec(),
        DType::I64 => int.to_le_bytes().to_vec(),
        DType::F16 => f16::from_f64(float).to_le_bytes().to_vec(),
        DType::Bf16 => bf16::from_f64(float).to_le_bytes().to_vec(),
        DType::F32 => (float as f32).to_le_bytes().to_vec(),
        DType::F64 => float.to_le_bytes().to_vec(),
        _ => loop {
            let code = random.next_u64() as u8;
            let value = decode(dtype, &[code]);
            if value.is_finite() && value.abs() <= limit {
                return vec![code];
            }
        },
    }
}

/// The largest relative rounding error of a type.
pub fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::Bf16 => 2f64.powi(-8),
        DType::F32 => 2f64.powi(-24),
        DType::F64 => 2f64.powi(-53),
        DType::F8E4M3 => 2f64.powi(-4),
        DType::F8E5M2 => 2f64.powi(-3),
        _ => 0.0,
    }
}

/// A value as a type stores it: integers wrap, f16 overflows, fp8 saturates; rounding is left to the comparison.
pub fn stored(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::U8 => value as i64 as u8 as f64,
        DType::I16 => f64::from(value as i64 as i16),
        DType::I32 => f64::from(value as i64 as i32),
        DType::U32 => f64::from(value as i64 as u32),
        DType::F16 if value.abs() >= 65520.0 => value.signum() * f64::INFINITY,
        DType::F8E4M3 => value.clamp(-448.0, 448.0),
        DType::F8E5M2 => value.clamp(-57344.0, 57344.0),
        _ => value,
    }
}

/// A tensor of the reference, row-major.
#[derive(Debug, Clone)]
pub struct Reference {
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
}

/// Every index of a shape, row-major.
pub fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![vec![]], |all, size| {
        all.iter().flat_map(|index| (0..*size).map(move |i| index.iter().copied().chain([i]).collect())).collect()
    })
}

impl Reference {
    pub fn new(shape: &[usize], f: impl Fn(&[usize]) -> f64) -> Reference {
        Reference { shape: shape.to_vec(), values: indices(shape).iter().map(|index| f(index)).collect() }
    }

    /// An element; dimensions are broadcast, missing ones in front are ignored.
    pub fn at(&self, index: &[usize]) -> f64 {
        let index = &index[index.len() - self.shape.len()..];
        let position = index.iter().zip(&self.shape).fold(0, |position, (i, size)| position * size + if *size == 1 { 0 } else { *i });
        self.values[position]
    }

    pub fn map(&self, f: impl Fn(f64) -> f64) -> Reference {
        Reference { shape: self.shape.clone(), values: self.values.iter().map(|x| f(*x)).collect() }
    }
}

/// How an input lies in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Layout {
    Contiguous,
    /// The first and the last dimension swapped.
    Transposed,
    /// A part of a larger tensor, with an offset.
    Narrowed,
}

pub const LAYOUTS: [Layout; 3] = [Layout::Contiguous, Layout::Transposed, Layout::Narrowed];

/// A random tensor on a device, and its reference.
pub fn input(random: &mut Random, dtype: DType, shape: &[usize], layout: Layout, limit: f64, device: &Device) -> (Tensor, Reference) {
    let mut base = shape.to_vec();
    let last = shape.len().saturating_sub(1);
    match layout {
        _ if shape.is_empty() => (),
        Layout::Contiguous => (),
        Layout::Transposed => base.swap(0, last),
        Layout::Narrowed => {
            base[0] += 2;
            base[last] += 3;
        }
    }
    let elements: Vec<Vec<u8>> = (0..base.iter().product()).map(|_| encode(random, dtype, limit)).collect();
    let tensor = Tensor::from_bytes(&elements.concat(), dtype, &base, device).unwrap();
    let all = Reference { shape: base, values: elements.iter().map(|bytes| decode(dtype, bytes)).collect() };
    match layout {
        Layout::Transposed if !shape.is_empty() => {
            let swapped = |index: &[usize]| {
                let mut index = index.to_vec();
                index.swap(0, last);
                all.at(&index)
            };
            (tensor.transpose(0, -1).unwrap(), Reference::new(shape, swapped))
        }
        Layout::Narrowed if !shape.is_empty() => {
            let tensor = tensor.narrow(0, 1, base_len(&all.shape, 0, 2, last)).unwrap();
            let tensor = tensor.narrow(-1, if last == 0 { 1 } else { 2 }, shape[last]).unwrap();
            let moved = |index: &[usize]| {
                let mut index = index.to_vec();
                index[0] += 1;
                index[last] += if last == 0 { 1 } else { 2 };
                all.at(&index)
            };
            (tensor, Reference::new(shape, moved))
        }
        _ => (tensor, all),
    }
}

/// The length of the first narrowing: all but the surplus, which a one-dimensional tensor keeps for the second.
fn base_len(base: &[usize], d: usize, surplus: usize, last: usize) -> usize {
    if last == 0 { base[d] - 1 } else { base[d] - surplus }
}

/// Compares a result with the reference: `ulps` roundings of the larger of the value and `scale`.
pub fn compare(what: &str, found: &Tensor, expected: &Reference, ulps: f64, scale: f64) {
    assert_eq!(found.shape(), expected.shape, "{what}");
    let dtype = found.dtype();
    // Below the smallest normal number errors are absolute.
    let tiny = match dtype {
        DType::F16 => 2f64.powi(-25),
        DType::F8E4M3 => 2f64.powi(-10),
        DType::F8E5M2 => 2f64.powi(-17),
        _ => 0.0,
    };
    let bytes = found.host_bytes().unwrap();
    for (i, (bytes, expected)) in bytes.chunks(dtype.size()).zip(&expected.values).enumerate() {
        let (found, expected) = (decode(dtype, bytes), stored(dtype, *expected));
        // The reference of f64 is rounded itself.
        let ulps = if dtype == DType::F64 { 4.0 * ulps } else { ulps };
        let bound = epsilon(dtype) * ulps * expected.abs().max(scale) + tiny;
        let close = found == expected || (found.is_nan() && expected.is_nan()) || (found - expected).abs() <= bound * 1.0001;
        assert!(close, "{what}: element {i} is {found}, expected {expected} within {bound}");
    }
}
