//! Element types and scalars.

use std::fmt;
use std::str::FromStr;

use bytemuck::Pod;
use half::{bf16, f16};

/// The type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// 8-bit unsigned integer.
    U8,
    /// 16-bit signed integer.
    I16,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit signed integer.
    I64,
    /// IEEE half precision.
    F16,
    /// bfloat16: the upper half of an `f32`.
    Bf16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
    /// OCP fp8 E4M3: up to 448, with NaN, without infinities.
    F8E4M3,
    /// OCP fp8 E5M2: up to 57344.
    F8E5M2,
}

impl DType {
    /// All types.
    pub const ALL: [DType; 11] = [
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

    /// Size in bytes; elements are aligned to it.
    pub fn size(self) -> usize {
        match self {
            DType::U8 | DType::F8E4M3 | DType::F8E5M2 => 1,
            DType::I16 | DType::F16 | DType::Bf16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::F64 => 8,
        }
    }

    /// The name, here and in the kernels.
    pub fn name(self) -> &'static str {
        match self {
            DType::U8 => "u8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::I64 => "i64",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F8E4M3 => "f8e4m3",
            DType::F8E5M2 => "f8e5m2",
        }
    }

    /// The name in CUDA C++.
    pub fn cuda_name(self) -> &'static str {
        match self {
            DType::U8 => "unsigned char",
            DType::I16 => "short",
            DType::I32 => "int",
            DType::U32 => "unsigned int",
            DType::I64 => "long long",
            DType::F16 => "__half",
            DType::Bf16 => "__nv_bfloat16",
            DType::F32 => "float",
            DType::F64 => "double",
            DType::F8E4M3 => "__nv_fp8_e4m3",
            DType::F8E5M2 => "__nv_fp8_e5m2",
        }
    }

    /// Whether it is an integer type.
    pub fn is_integer(self) -> bool {
        matches!(self, DType::U8 | DType::I16 | DType::I32 | DType::U32 | DType::I64)
    }

    /// Whether it has negative values.
    pub fn is_signed(self) -> bool {
        !matches!(self, DType::U8 | DType::U32)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An unknown type name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown element type `{name}`; expected one of u8, i16, i32, u32, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2")]
pub struct ParseDTypeError {
    /// The name.
    pub name: String,
}

impl FromStr for DType {
    type Err = ParseDTypeError;
    fn from_str(name: &str) -> Result<DType, ParseDTypeError> {
        let known = DType::ALL.into_iter().find(|dtype| dtype.name() == name || dtype.cuda_name() == name);
        known.ok_or_else(|| ParseDTypeError { name: name.to_owned() })
    }
}

/// A Rust type that is an element type. The fp8 types have none: create their views from bytes.
pub trait Element: Pod {
    /// The element type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($ty:ty = $dtype:ident),*) => { $(
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
        }
    )* };
}
elements!(u8 = U8, i16 = I16, i32 = I32, u32 = U32, i64 = I64, f16 = F16, bf16 = Bf16, f32 = F32, f64 = F64);

/// A scalar argument. For integer views a float is truncated to 64 bits, saturating.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
}

impl Scalar {
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Scalar::Int(value) => value as f64,
            Scalar::Float(value) => value,
        }
    }

    pub(crate) fn as_i64(self) -> i64 {
        match self {
            Scalar::Int(value) => value,
            Scalar::Float(value) => value as i64,
        }
    }

    /// The bits of an element of this value: floats round to nearest, integers wrap.
    pub(crate) fn bits(self, dtype: DType) -> u64 {
        // An f64 cannot hold 64 bits; a sticky bit is enough, as all narrower types have fewer digits.
        let exact = match self {
            Scalar::Int(value) if value.unsigned_abs() >> 54 != 0 && dtype != DType::F64 => {
                ((value >> 8) | i64::from(value & 255 != 0)) as f64 * 256.0
            }
            _ => self.as_f64(),
        };
        match dtype {
            DType::U8 => u64::from(self.as_i64() as u8),
            DType::I16 => u64::from(self.as_i64() as u16),
            DType::I32 | DType::U32 => u64::from(self.as_i64() as u32),
            DType::I64 => self.as_i64() as u64,
            DType::F16 => u64::from(f16::from_f32(to_odd(exact)).to_bits()),
            DType::Bf16 => u64::from(bf16::from_f32(to_odd(exact)).to_bits()),
            DType::F32 => u64::from((exact as f32).to_bits()),
            DType::F64 => exact.to_bits(),
            DType::F8E4M3 => u64::from(fp8(exact, 3, 7, 0x7e)),
            DType::F8E5M2 => u64::from(fp8(exact, 2, 15, 0x7b)),
        }
    }
}

/// Rounds to odd: rounding the result again equals rounding the value once. (`half` looks only at the upper 32 bits of an `f64`.)
fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    if value.is_nan() || f64::from(near) == value {
        return near;
    }
    let beyond = f64::from(near).abs() > value.abs();
    f32::from_bits((near.to_bits() - u32::from(beyond)) | 1)
}

/// Rounds to fp8, given its mantissa bits, exponent bias and largest code.
fn fp8(value: f64, mantissa: i32, bias: i32, largest: u8) -> u8 {
    if value.is_nan() {
        return 0x7f;
    }
    let exponent = ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(1 - bias);
    // Exact, in units of the last place.
    let units = (value.abs() * 2f64.powi(mantissa - exponent)).round_ties_even();
    let bits = f64::from((exponent + bias - 1) << mantissa) + units;
    let size = if bits > f64::from(largest) { largest } else { bits as u8 };
    size | u8::from(value.is_sign_negative()) << 7
}

macro_rules! scalars {
    ($($ty:ty => $kind:ident),*) => { $(
        impl From<$ty> for Scalar {
            fn from(value: $ty) -> Scalar {
                Scalar::$kind(value.into())
            }
        }
    )* };
}
scalars!(u8 => Int, i16 => Int, i32 => Int, u32 => Int, i64 => Int, f32 => Float, f64 => Float);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for dtype in DType::ALL {
            assert_eq!(dtype.to_string().parse(), Ok(dtype));
            assert_eq!(dtype.cuda_name().parse(), Ok(dtype));
        }
        assert!("f8".parse::<DType>().unwrap_err().to_string().contains("f8e4m3"));
    }

    #[test]
    fn values_have_the_bits_of_the_nearest_element() {
        let f8 = |value: f64| [DType::F8E4M3, DType::F8E5M2].map(|dtype| Scalar::Float(value).bits(dtype));
        assert_eq!(f8(1.0), [0x38, 0x3c]);
        assert_eq!(f8(-0.0), [0x80, 0x80]);
        assert_eq!(f8(448.0), [0x7e, 0x5f]);
        assert_eq!(f8(f64::INFINITY), [0x7e, 0x7b]);
        assert_eq!(f8(2f64.powi(-9)), [0x01, 0x18]);
        assert_eq!(f8(2f64.powi(-10)), [0x00, 0x14], "a tie goes to the even zero");
        assert_eq!(f8(2f64.powi(-10) * 1.01), [0x01, 0x14]);
        assert_eq!(f8(1.0625), [0x38, 0x3c], "a tie goes to the even mantissa");
        assert_eq!(Scalar::Int((1 << 60) + (1 << 52) + 1).bits(DType::Bf16), u64::from(bf16::from_f64(2f64.powi(60)).to_bits()) + 1);
        assert_eq!(Scalar::Int(-1).bits(DType::I16), 0xffff);
        assert_eq!(Scalar::Float(1e30).bits(DType::I64), i64::MAX as u64);
    }
}
