//! Element types, and scalar arguments.

use std::fmt;
use std::str::FromStr;

use bytemuck::Pod;
use half::{bf16, f16};

/// The type of an array element.
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
    /// IEEE 754 half precision.
    F16,
    /// bfloat16: the upper half of an `f32`.
    Bf16,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
    /// OCP fp8 with a 4-bit exponent: up to 448, NaN but no infinities.
    F8E4M3,
    /// OCP fp8 with a 5-bit exponent: up to 57344.
    F8E5M2,
    /// 8-bit signed integer. Not supported by the kernels of this crate.
    I8,
    /// 16-bit unsigned integer. Not supported by the kernels of this crate.
    U16,
    /// 64-bit unsigned integer. Not supported by the kernels of this crate.
    U64,
    /// One byte, 0 for false. Not supported by the kernels of this crate, which use `U8` for masks.
    Bool,
}

use DType::*;

impl DType {
    /// All types, in the order messages list them.
    pub const ALL: [DType; 15] = [U8, I8, U16, I16, U32, I32, U64, I64, F16, Bf16, F32, F64, F8E4M3, F8E5M2, Bool];

    /// The types that the kernels of this crate compute with; views have one of these.
    pub const COMPUTE: [DType; 11] = [U8, I16, I32, U32, I64, F16, Bf16, F32, F64, F8E4M3, F8E5M2];

    /// Returns the size of an element in bytes, which is also its alignment.
    pub fn size(self) -> usize {
        match self {
            U8 | I8 | F8E4M3 | F8E5M2 | Bool => 1,
            U16 | I16 | F16 | Bf16 => 2,
            I32 | U32 | F32 => 4,
            I64 | U64 | F64 => 8,
        }
    }

    /// Returns the name, such as `f32`; kernels use the same names.
    pub fn name(self) -> &'static str {
        match self {
            U8 => "u8",
            I8 => "i8",
            U16 => "u16",
            I16 => "i16",
            U32 => "u32",
            I32 => "i32",
            U64 => "u64",
            I64 => "i64",
            F16 => "f16",
            Bf16 => "bf16",
            F32 => "f32",
            F64 => "f64",
            F8E4M3 => "f8e4m3",
            F8E5M2 => "f8e5m2",
            Bool => "bool",
        }
    }

    /// Returns the names of these types, separated by commas, for messages.
    pub fn names(types: &[DType]) -> String {
        types.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ")
    }

    /// Returns the name of the type in CUDA C++.
    pub fn cuda_name(self) -> &'static str {
        match self {
            U8 => "unsigned char",
            I8 => "signed char",
            U16 => "unsigned short",
            I16 => "short",
            U32 => "unsigned int",
            I32 => "int",
            U64 => "unsigned long long",
            I64 => "long long",
            F16 => "__half",
            Bf16 => "__nv_bfloat16",
            F32 => "float",
            F64 => "double",
            F8E4M3 => "__nv_fp8_e4m3",
            F8E5M2 => "__nv_fp8_e5m2",
            Bool => "bool",
        }
    }

    /// Returns whether this is an integer type; `Bool` is not.
    pub fn is_integer(self) -> bool {
        matches!(self, U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64)
    }

    /// Returns whether this is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, F16 | Bf16 | F32 | F64 | F8E4M3 | F8E5M2)
    }

    /// Returns whether the type has negative values.
    pub fn is_signed(self) -> bool {
        self.is_float() || matches!(self, I8 | I16 | I32 | I64)
    }

    /// Returns the smallest and largest value of an integer type (0 and 1 for `Bool`); `None` for floats.
    pub fn int_range(self) -> Option<(i128, i128)> {
        let bits = 8 * self.size();
        match self {
            Bool => Some((0, 1)),
            U8 | U16 | U32 | U64 => Some((0, (1 << bits) - 1)),
            I8 | I16 | I32 | I64 => Some((-1 << (bits - 1), (1 << (bits - 1)) - 1)),
            _ => None,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is not a [`DType`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown type {name:?}; valid types: {}", DType::names(&DType::ALL))]
pub struct ParseDTypeError {
    /// The name.
    pub name: String,
}

impl FromStr for DType {
    type Err = ParseDTypeError;

    /// Parses a name (`f32`), a CUDA C++ name (`float`), or one of the aliases `half` and `uint`.
    fn from_str(name: &str) -> Result<DType, ParseDTypeError> {
        match name {
            "half" => Ok(F16),
            "uint" => Ok(U32),
            _ => {
                let found = DType::ALL.into_iter().find(|dtype| dtype.name() == name || dtype.cuda_name() == name);
                found.ok_or_else(|| ParseDTypeError { name: name.to_owned() })
            }
        }
    }
}

/// A Rust type that is an element type. The fp8 types have none; their views are created from bytes.
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

/// A scalar argument, converted to the element type of the operation.
///
/// For integer types a float is truncated toward zero and saturates to 64 bits; integers wrap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// An integer; wide enough for both `i64` and `u64`.
    Int(i128),
    /// A float.
    Float(f64),
}

impl Scalar {
    /// Returns the value as `f64`; large integers are rounded.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Int(value) => value as f64,
            Scalar::Float(value) => value,
        }
    }

    /// Returns the value as `i64`: a float is truncated and saturates, an integer wraps.
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::Int(value) => value as i64,
            Scalar::Float(value) => value as i64,
        }
    }

    /// Returns the bits of an element with this value: floats are rounded to nearest even, integers wrap.
    ///
    /// Values too large for fp8 saturate; for the other float types they become infinite.
    pub fn to_bits(self, dtype: DType) -> u64 {
        // An integer of more than 53 bits does not fit an f64. Folding the low bits into one sticky bit is enough for the narrower types.
        let exact = match self {
            Scalar::Int(value) if value.unsigned_abs() >> 53 != 0 && dtype != F64 => {
                ((value >> 12) | i128::from(value & 0xfff != 0)) as f64 * 4096.0
            }
            _ => self.to_f64(),
        };
        match dtype {
            U8 | I8 => u64::from(self.to_i64() as u8),
            U16 | I16 => u64::from(self.to_i64() as u16),
            U32 | I32 => u64::from(self.to_i64() as u32),
            U64 | I64 => self.to_i64() as u64,
            F16 => u64::from(f16::from_f32(round_to_odd(exact)).to_bits()),
            Bf16 => u64::from(bf16::from_f32(round_to_odd(exact)).to_bits()),
            F32 => u64::from((exact as f32).to_bits()),
            F64 => exact.to_bits(),
            F8E4M3 => u64::from(fp8(exact, 3, 7, 0x7e)),
            F8E5M2 => u64::from(fp8(exact, 2, 15, 0x7b)),
            Bool => u64::from(self != Scalar::Int(0) && self != Scalar::Float(0.0)),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Int(value) => write!(f, "{value}"),
            Scalar::Float(value) if value.is_nan() => f.write_str("nan"),
            Scalar::Float(value) => write!(f, "{value:?}"),
        }
    }
}

/// Rounds to odd: an inexact result takes the neighboring `f32` with an odd last bit.
///
/// A later rounding to 16 bits then gives the same result as rounding the `f64` directly. (The `f64` conversions of `half` round twice or
/// drop low bits, depending on the processor.)
fn round_to_odd(value: f64) -> f32 {
    let near = value as f32;
    if value.is_nan() || f64::from(near) == value {
        return near;
    }
    let beyond = f64::from(near).abs() > value.abs();
    f32::from_bits((near.to_bits() - u32::from(beyond)) | 1)
}

/// Returns the nearest fp8 value, given its mantissa bits, exponent bias and largest value.
fn fp8(value: f64, mantissa: i32, bias: i32, largest: u8) -> u8 {
    if value.is_nan() {
        return 0x7f;
    }
    let exponent = ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(1 - bias);
    // In units of the last place; exact.
    let units = (value.abs() * 2f64.powi(mantissa - exponent)).round_ties_even();
    let bits = f64::from((exponent + bias - 1) << mantissa) + units;
    let magnitude = if bits > f64::from(largest) { largest } else { bits as u8 };
    magnitude | u8::from(value.is_sign_negative()) << 7
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
scalars!(u8 => Int, i8 => Int, u16 => Int, i16 => Int, u32 => Int, i32 => Int, u64 => Int, i64 => Int, f32 => Float, f64 => Float);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_to_their_type() {
        for dtype in DType::ALL {
            assert_eq!(dtype.to_string().parse(), Ok(dtype));
            assert_eq!(dtype.cuda_name().parse(), Ok(dtype));
        }
        let aliases = ["half", "float", "double", "int", "uint"].map(|name| name.parse::<DType>().unwrap());
        assert_eq!(aliases, [F16, F32, F64, I32, U32]);
    }

    #[test]
    fn an_unknown_name_lists_the_valid_ones() {
        let message = "F32".parse::<DType>().unwrap_err().to_string();
        let valid = "u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2, bool";
        assert_eq!(message, format!("unknown type \"F32\"; valid types: {valid}"));
    }

    #[test]
    fn integer_ranges_are_those_of_rust() {
        assert_eq!(U8.int_range(), Some((0, u8::MAX.into())));
        assert_eq!(I8.int_range(), Some((i8::MIN.into(), i8::MAX.into())));
        assert_eq!(U64.int_range(), Some((0, u64::MAX.into())));
        assert_eq!(I64.int_range(), Some((i64::MIN.into(), i64::MAX.into())));
        assert_eq!(Bool.int_range(), Some((0, 1)));
        for dtype in DType::ALL {
            assert_eq!(dtype.int_range().is_none(), dtype.is_float(), "{dtype}");
        }
    }

    #[test]
    fn values_have_the_bits_of_the_nearest_element() {
        let f8 = |value: f64| [F8E4M3, F8E5M2].map(|dtype| Scalar::Float(value).to_bits(dtype));
        assert_eq!(f8(1.0), [0x38, 0x3c]);
        assert_eq!(f8(-0.0), [0x80, 0x80]);
        assert_eq!(f8(448.0), [0x7e, 0x5f]);
        assert_eq!(f8(f64::INFINITY), [0x7e, 0x7b]);
        assert_eq!(f8(2f64.powi(-9)), [0x01, 0x18]);
        assert_eq!(f8(2f64.powi(-10)), [0x00, 0x14], "a tie goes to the even zero");
        assert_eq!(f8(2f64.powi(-10) * 1.01), [0x01, 0x14]);
        assert_eq!(f8(1.0625), [0x38, 0x3c], "a tie goes to the even mantissa");
        assert_eq!(Scalar::Int((1 << 60) + (1 << 52) + 1).to_bits(Bf16), u64::from(bf16::from_f64(2f64.powi(60)).to_bits()) + 1);
        assert_eq!(Scalar::Int(-1).to_bits(I16), 0xffff);
        assert_eq!(Scalar::from(u64::MAX).to_bits(U64), u64::MAX);
        assert_eq!(Scalar::Float(1e30).to_bits(I64), i64::MAX as u64);
        assert_eq!([0.0, 0.5].map(|value| Scalar::Float(value).to_bits(Bool)), [0, 1]);
    }

    /// One more than a tie, in a bit that an `f64` cannot hold.
    #[test]
    fn large_integers_are_rounded_once() {
        for sign in [1, -1] {
            for (tie, up) in [((1i128 << 62) + (1 << 38), (1i128 << 62) + (1 << 39)), ((1 << 63) + (1 << 39), (1 << 63) + (1 << 40))] {
                let bits = |value: i128| u64::from((value as f32).to_bits());
                assert_eq!(Scalar::Int(sign * (tie + 1)).to_bits(F32), bits(sign * up), "{tie}");
                assert_eq!(Scalar::Int(sign * tie).to_bits(F32), bits(sign * tie), "{tie}");
            }
        }
    }
}
