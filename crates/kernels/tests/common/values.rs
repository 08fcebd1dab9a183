//! Elements as numbers: decoding, rounding and drawing them, written without a look at the kernels.

use half::{bf16, f16};
use warpwave_kernels::DType;

use super::Random;

/// An element's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    Int(i128),
    Real(f64),
}

impl Value {
    pub fn real(self) -> f64 {
        match self {
            Value::Real(value) => value,
            Value::Int(value) => panic!("{value} is not a float"),
        }
    }

    pub fn int(self) -> i128 {
        match self {
            Value::Int(value) => value,
            Value::Real(value) => panic!("{value} is not an integer"),
        }
    }
}

/// A float format: bits of precision with the implicit one, the lowest exponent, the largest number.
pub fn format(dtype: DType) -> (i32, i32, f64) {
    match dtype {
        DType::F16 => (11, -14, 65504.0),
        DType::Bf16 => (8, -126, f64::from(bf16::MAX)),
        DType::F32 => (24, -126, f64::from(f32::MAX)),
        DType::F64 => (53, -1022, f64::MAX),
        DType::F8E4M3 => (4, -6, 448.0),
        DType::F8E5M2 => (3, -14, 57344.0),
        _ => panic!("{dtype} is not a float"),
    }
}

/// The smallest and largest integer.
pub fn range(dtype: DType) -> (i128, i128) {
    let bits = 8 * dtype.size() as u32;
    if dtype.is_signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

pub fn decode(dtype: DType, bytes: &[u8]) -> Value {
    let mut room = [0; 8];
    room[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(room);
    match dtype {
        DType::F16 => Value::Real(f16::from_bits(bits as u16).to_f64()),
        DType::Bf16 => Value::Real(bf16::from_bits(bits as u16).to_f64()),
        DType::F32 => Value::Real(f64::from(f32::from_bits(bits as u32))),
        DType::F64 => Value::Real(f64::from_bits(bits)),
        DType::F8E4M3 => Value::Real(fp8(bits as u8, 3, 7, false)),
        DType::F8E5M2 => Value::Real(fp8(bits as u8, 2, 15, true)),
        _ => Value::Int(wrap(dtype, i128::from(bits))),
    }
}

fn fp8(bits: u8, mantissa: i32, bias: i32, ieee: bool) -> f64 {
    let (exponent, fraction) = (i32::from(bits & 0x7f) >> mantissa, f64::from(bits & ((1 << mantissa) - 1)));
    let top = exponent == (0x7f >> mantissa);
    let size = if ieee && top {
        if fraction == 0.0 { f64::INFINITY } else { f64::NAN }
    } else if !ieee && bits & 0x7f == 0x7f {
        f64::NAN
    } else if exponent == 0 {
        fraction * 2f64.powi(1 - bias - mantissa)
    } else {
        (1.0 + fraction * 2f64.powi(-mantissa)) * 2f64.powi(exponent - bias)
    };
    if bits & 0x80 != 0 { -size } else { size }
}

/// An integer wrapped to its type.
pub fn wrap(dtype: DType, value: i128) -> i128 {
    let (low, high) = range(dtype);
    (value - low).rem_euclid(high - low + 1) + low
}

/// The spacing of a type at a value (one ulp).
pub fn ulp(dtype: DType, value: f64) -> f64 {
    let (precision, lowest, largest) = format(dtype);
    let exponent = (value.abs().min(largest).to_bits() >> 52) as i32 - 1023;
    let last = exponent.max(lowest) - precision + 1;
    // Below f64's own lowest exponent a power is not made in one step.
    2f64.powi(last + 200) * 2f64.powi(-200)
}

/// The nearest number of a type, halves to even. What is stored as fp8 saturates.
pub fn round(dtype: DType, value: f64) -> f64 {
    if dtype == DType::F64 || value.is_nan() || value == 0.0 {
        return value;
    }
    let largest = format(dtype).2;
    let saturates = matches!(dtype, DType::F8E4M3 | DType::F8E5M2);
    if value.is_infinite() {
        return if saturates { largest.copysign(value) } else { value };
    }
    let step = ulp(dtype, value);
    let near = (value / step).round_ties_even() * step;
    match near.abs() > largest {
        true if saturates => largest.copysign(value),
        true => f64::INFINITY.copysign(value),
        false => near,
    }
}

/// Rounds an integer, which an `f64` may not hold, to a type.
pub fn round_int(dtype: DType, value: i128) -> f64 {
    let precision = format(dtype).0 as u32;
    let (size, used) = (value.unsigned_abs(), 128 - value.unsigned_abs().leading_zeros());
    let mut near = size as f64;
    if used > precision {
        let cut = used - precision;
        let (kept, rest, half) = (size >> cut, size & ((1 << cut) - 1), 1 << (cut - 1));
        let up = rest > half || (rest == half && kept & 1 == 1);
        near = (kept + u128::from(up)) as f64 * 2f64.powi(cut as i32);
    }
    round(dtype, if value < 0 { -near } else { near })
}

/// The bytes of a value that the type holds exactly.
pub fn encode(dtype: DType, value: Value) -> Vec<u8> {
    let bits = match (dtype, value) {
        (DType::F16, Value::Real(v)) => u64::from(f16::from_f32(v as f32).to_bits()),
        (DType::Bf16, Value::Real(v)) => u64::from(bf16::from_f32(v as f32).to_bits()),
        (DType::F32, Value::Real(v)) => u64::from((v as f32).to_bits()),
        (DType::F64, Value::Real(v)) => v.to_bits(),
        (_, Value::Real(v)) => {
            let same = |bits: &u8| decode(dtype, &[*bits]).real().to_bits() == v.to_bits();
            u64::from((0..=255u8).find(same).unwrap_or(0x7f))
        }
        (_, Value::Int(v)) => v as u64,
    };
    bits.to_le_bytes()[..dtype.size()].to_vec()
}

/// An element with all that is awkward: any bits, both zeros, infinities and NaN, halves, and numbers of ordinary size.
pub fn draw(dtype: DType, random: &mut Random) -> Vec<u8> {
    let any = random.next_u64().to_le_bytes()[..dtype.size()].to_vec();
    if dtype.is_integer() {
        let (low, high) = range(dtype);
        let value = match random.below(8) {
            0..3 => return any,
            3 => [low, high, low + 1, high - 1][random.below(4)],
            _ => wrap(dtype, random.below(21) as i128 - 10),
        };
        return encode(dtype, Value::Int(value));
    }
    let value = match random.below(16) {
        0 => [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.0, -1.0][random.below(7)],
        1 | 2 => return any,
        3..6 => random.below(33) as f64 / 2.0 - 8.0,
        6..9 => random.unit() * 2.0 - 1.0,
        _ => random.unit() * 20.0 - 10.0,
    };
    encode(dtype, Value::Real(round(dtype, value)))
}

/// How far a result may be from the reference, in units of its type's last place: half a unit of rounding, and the computation's own.
pub fn tolerance(dtype: DType, ulps: f64) -> f64 {
    match dtype {
        // The reference is itself an f64, one or two units off.
        DType::F64 => ulps + 2.0,
        DType::F32 => ulps.max(0.5),
        _ => 0.5 + ulps * 2f64.powi(format(dtype).0 - 24),
    }
}
