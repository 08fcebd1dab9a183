//! One value of any element type: parsed from text, rounded, and shown again.
//!
//! Contract: a [`Scalar`] made here always holds a value of its type. Integers are range-checked, never wrapped. Numbers
//! that a float type cannot hold exactly are rounded to nearest, ties to even; a finite number too large for the type is
//! refused rather than turned into infinity. Every NaN made here has the same bits, so equal texts give equal bytes on
//! every machine. [`Display`](fmt::Display) writes the shortest text that [`Scalar::parse`] reads back to the same value.

use crate::dtype::DType;
use half::{bf16, f16};
use std::fmt;

/// A number before it is given an element type's width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// For integers and bool (0 or 1); wide enough for both i64 and u64.
    Int(i128),
    /// For the float types.
    Float(f64),
}

impl Number {
    /// The value as f64; large integers are rounded.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Float(value) => value,
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Int(value) => write!(f, "{value}"),
            Number::Float(value) => write_float(f, value, value.is_nan()),
        }
    }
}

/// One value with its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scalar {
    dtype: DType,
    /// Little-endian; zero past the type's size, so that the derived equality is the value's.
    bytes: [u8; 8],
}

/// Why a text is no value of a type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScalarError {
    /// Not written the way the type's values are.
    #[error("expected {}, found {found:?}", expected(*.dtype))]
    Malformed {
        /// The type asked for.
        dtype: DType,
        /// The text as given.
        found: String,
    },
    /// A number, but not one the type can hold.
    #[error("{found} does not fit {dtype} ({})", range_text(*.dtype))]
    OutOfRange {
        /// The type asked for.
        dtype: DType,
        /// The number as given.
        found: String,
    },
}

fn expected(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "true or false",
        _ if dtype.is_float() => "a number such as 2.5, -1e-3, inf or nan",
        _ => "an integer such as 7, -7 or 0xff",
    }
}

fn range_text(dtype: DType) -> String {
    match dtype.int_range() {
        Some((min, max)) => format!("{min} to {max}"),
        None => match dtype {
            DType::F16 => "largest finite value 65504".to_owned(),
            DType::Bf16 => format!("largest finite value {:e}", bf16::MAX.to_f32()),
            DType::F32 => format!("largest finite value {:e}", f32::MAX),
            _ => format!("largest finite value {:e}", f64::MAX),
        },
    }
}

impl Scalar {
    /// The value `number` as `dtype`: `None` for an integer out of range, a finite number that would round to infinity, or
    /// a float offered to an integer type.
    pub fn new(dtype: DType, number: Number) -> Option<Self> {
        match (dtype.int_range(), number) {
            (Some((min, max)), Number::Int(value)) if (min..=max).contains(&value) => Some(Self::from_low_bytes(dtype, value as u64)),
            (None, Number::Int(value)) => Self::new(dtype, Number::Float(value as f64)),
            (None, Number::Float(value)) => {
                let scalar = Self::round(dtype, value);
                (scalar.to_f64().is_finite() || !value.is_finite()).then_some(scalar)
            }
            _ => None,
        }
    }

    /// Reads `text` as a value of `dtype`.
    ///
    /// Integers are decimal or, after `0x`, hexadecimal, with an optional sign. Floats are decimal, with `inf` and `nan`.
    /// The 16-bit floats are read as f64 first.
    pub fn parse(dtype: DType, text: &str) -> Result<Self, ScalarError> {
        let malformed = || ScalarError::Malformed { dtype, found: text.to_owned() };
        let out_of_range = || ScalarError::OutOfRange { dtype, found: text.to_owned() };
        match (dtype, text) {
            (DType::Bool, "true" | "1") => Ok(Self::from_low_bytes(dtype, 1)),
            (DType::Bool, "false" | "0") => Ok(Self::from_low_bytes(dtype, 0)),
            (DType::Bool, _) => Err(malformed()),
            // Through f64 the text would be rounded twice.
            (DType::F32, _) => {
                let value: f32 = text.parse().map_err(|_| malformed())?;
                let number = if value.is_infinite() && has_digits(text) { None } else { Some(Number::Float(value.into())) };
                number.and_then(|number| Self::new(dtype, number)).ok_or_else(out_of_range)
            }
            _ => Self::new(dtype, parse_number(dtype, text)?).ok_or_else(out_of_range),
        }
    }

    /// The value whose little-endian bytes these are; `None` unless there are exactly [`DType::size`] of them.
    pub fn from_bytes(dtype: DType, bytes: &[u8]) -> Option<Self> {
        let mut padded = [0; 8];
        padded.get_mut(..bytes.len())?.copy_from_slice(bytes);
        (bytes.len() == dtype.size()).then_some(Scalar { dtype, bytes: padded })
    }

    /// The value's type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The value as the kernel receives it: [`DType::size`] little-endian bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.dtype.size()]
    }

    /// The value, exactly.
    pub fn number(&self) -> Number {
        let word = u64::from_le_bytes(self.bytes);
        match self.dtype {
            DType::Bool => Number::Int((word != 0).into()),
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => Number::Int(word.into()),
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
                let unused = 64 - 8 * self.dtype.size() as u32;
                Number::Int((((word << unused) as i64) >> unused).into())
            }
            DType::F16 => Number::Float(f16::from_bits(word as u16).to_f64()),
            DType::Bf16 => Number::Float(bf16::from_bits(word as u16).to_f64()),
            DType::F32 => Number::Float(f32::from_bits(word as u32).into()),
            DType::F64 => Number::Float(f64::from_bits(word)),
        }
    }

    /// The value as f64; 64-bit integers are rounded.
    pub fn to_f64(&self) -> f64 {
        self.number().to_f64()
    }

    /// `value` as the float type `dtype`, to nearest even, to infinity where too large.
    pub(crate) fn round(dtype: DType, value: f64) -> Self {
        let word: u64 = match dtype {
            DType::F16 if value.is_nan() => f16::NAN.to_bits().into(),
            DType::Bf16 if value.is_nan() => bf16::NAN.to_bits().into(),
            DType::F32 if value.is_nan() => 0x7fc0_0000,
            DType::F64 if value.is_nan() => 0x7ff8_0000_0000_0000,
            DType::F16 => f16::from_f32(round_to_odd(value)).to_bits().into(),
            DType::Bf16 => bf16::from_f32(round_to_odd(value)).to_bits().into(),
            DType::F32 => (value as f32).to_bits().into(),
            _ => value.to_bits(),
        };
        Self::from_low_bytes(dtype, word)
    }

    /// The type's share of `word`; the rest is dropped.
    pub(crate) fn from_low_bytes(dtype: DType, word: u64) -> Self {
        let unused = 64 - 8 * dtype.size() as u32;
        Scalar { dtype, bytes: ((word << unused) >> unused).to_le_bytes() }
    }
}

/// `text` as a number of `dtype`'s kind, not checked against its range.
pub(crate) fn parse_number(dtype: DType, text: &str) -> Result<Number, ScalarError> {
    let malformed = || ScalarError::Malformed { dtype, found: text.to_owned() };
    let out_of_range = || ScalarError::OutOfRange { dtype, found: text.to_owned() };
    if dtype.is_float() {
        let value: f64 = text.parse().map_err(|_| malformed())?;
        return if value.is_infinite() && has_digits(text) { Err(out_of_range()) } else { Ok(Number::Float(value)) };
    }
    let (negative, magnitude) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, radix) = match magnitude.strip_prefix("0x").or_else(|| magnitude.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (magnitude, 10),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err(malformed());
    }
    let value = i128::from_str_radix(digits, radix).map_err(|_| out_of_range())?;
    Ok(Number::Int(if negative { -value } else { value }))
}

/// Tells `1e999`, which overflowed, from `inf`, which was meant.
fn has_digits(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
}

/// `value` as f32, an inexact result taking whichever neighbour has an odd last bit.
///
/// Rounding to odd keeps the memory of what was cut off, so the later rounding to 16 bits is as if done from f64 at once.
/// `half`'s own f64 conversions round twice, or drop low bits, depending on the processor they run on.
fn round_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let widened = f64::from(nearest);
    if widened == value || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    let away = widened.abs() < value.abs();
    // The sign is kept: only the magnitude moves, and copysign covers a zero that came from a tiny negative value.
    let bits = nearest.abs().to_bits();
    f32::from_bits(if away { bits + 1 } else { bits - 1 }).copysign(value as f32)
}

fn write_float(f: &mut fmt::Formatter<'_>, value: &dyn fmt::Debug, nan: bool) -> fmt::Result {
    if nan { f.write_str("nan") } else { write!(f, "{value:?}") }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.dtype, self.number()) {
            (DType::Bool, Number::Int(value)) => write!(f, "{}", value != 0),
            (DType::F64, Number::Float(value)) => write_float(f, &value, value.is_nan()),
            // At f32 width: an f32 0.1 is shown as 0.1, not as the f64 nearest to it.
            (_, Number::Float(value)) => write_float(f, &(value as f32), value.is_nan()),
            (_, Number::Int(value)) => write!(f, "{value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(dtype: DType, text: &str) -> Vec<u8> {
        Scalar::parse(dtype, text).unwrap().bytes().to_vec()
    }

    fn message(dtype: DType, text: &str) -> String {
        Scalar::parse(dtype, text).unwrap_err().to_string()
    }

    #[test]
    fn integers_are_read_in_both_radices_and_at_both_ends() {
        assert_eq!(bytes(DType::I32, "-7"), (-7i32).to_le_bytes());
        assert_eq!(bytes(DType::U32, "0xff"), 255u32.to_le_bytes());
        assert_eq!(bytes(DType::I8, "-0x80"), [0x80]);
        assert_eq!(bytes(DType::U64, "18446744073709551615"), [0xff; 8]);
        assert_eq!(bytes(DType::I64, "-9223372036854775808"), i64::MIN.to_le_bytes());
        assert_eq!(bytes(DType::U8, "+1"), [1]);
    }

    #[test]
    fn integers_out_of_range_name_the_range() {
        assert_eq!(message(DType::U8, "300"), "300 does not fit u8 (0 to 255)");
        assert_eq!(message(DType::U8, "-1"), "-1 does not fit u8 (0 to 255)");
        assert_eq!(message(DType::I8, "0x80"), "0x80 does not fit i8 (-128 to 127)");
        let huge = "9".repeat(50);
        assert_eq!(message(DType::U64, &huge), format!("{huge} does not fit u64 (0 to 18446744073709551615)"));
    }

    #[test]
    fn malformed_integers_say_what_one_looks_like() {
        assert_eq!(message(DType::I32, "2.5"), "expected an integer such as 7, -7 or 0xff, found \"2.5\"");
        for text in ["", "-", "0x", "--1", "-+1", "0x-1", "1e3", "0xfg", "１", " 1"] {
            assert!(matches!(Scalar::parse(DType::I32, text), Err(ScalarError::Malformed { .. })), "{text}");
        }
    }

    #[test]
    fn floats_take_inf_and_nan_with_fixed_bits() {
        assert_eq!(bytes(DType::F32, "-inf"), f32::NEG_INFINITY.to_le_bytes());
        assert_eq!(bytes(DType::F32, "nan"), 0x7fc0_0000u32.to_le_bytes());
        assert_eq!(bytes(DType::F32, "-nan"), 0x7fc0_0000u32.to_le_bytes());
        assert_eq!(bytes(DType::F64, "nan"), 0x7ff8_0000_0000_0000u64.to_le_bytes());
        assert_eq!(bytes(DType::F16, "nan"), 0x7e00u16.to_le_bytes());
        assert_eq!(bytes(DType::Bf16, "nan"), 0x7fc0u16.to_le_bytes());
        assert_eq!(bytes(DType::F16, "inf"), 0x7c00u16.to_le_bytes());
    }

    #[test]
    fn finite_floats_do_not_become_infinite() {
        assert_eq!(message(DType::F16, "70000"), "70000 does not fit f16 (largest finite value 65504)");
        assert_eq!(message(DType::F32, "1e39"), "1e39 does not fit f32 (largest finite value 3.4028235e38)");
        assert_eq!(message(DType::F64, "1e309"), "1e309 does not fit f64 (largest finite value 1.7976931348623157e308)");
        assert_eq!(message(DType::Bf16, "3.4e38"), "3.4e38 does not fit bf16 (largest finite value 3.3895314e38)");
        assert_eq!(bytes(DType::F16, "65519"), 0x7bffu16.to_le_bytes());
    }

    #[test]
    fn half_floats_round_once_to_nearest_even() {
        // 1 + 2^-11 is the tie between 0x3c00 and 0x3c01: even wins. A hair above it, which f32 cannot see, goes up.
        let tie = 1.0 + f64::powi(2.0, -11);
        assert_eq!(Scalar::round(DType::F16, tie).bytes(), 0x3c00u16.to_le_bytes());
        assert_eq!(Scalar::round(DType::F16, tie + f64::powi(2.0, -40)).bytes(), 0x3c01u16.to_le_bytes());
        assert_eq!(Scalar::round(DType::F16, -tie - f64::powi(2.0, -40)).bytes(), 0xbc01u16.to_le_bytes());
        assert_eq!(Scalar::round(DType::F16, tie + f64::powi(2.0, -10)).bytes(), 0x3c02u16.to_le_bytes());
        assert_eq!(Scalar::round(DType::F16, tie + f64::powi(2.0, -10) - f64::powi(2.0, -40)).bytes(), 0x3c01u16.to_le_bytes());
        assert_eq!(Scalar::round(DType::Bf16, 1.0 + f64::powi(2.0, -8) + f64::powi(2.0, -40)).bytes(), 0x3f81u16.to_le_bytes());
        assert_eq!(Scalar::round(DType::F16, -1e-300).bytes(), 0x8000u16.to_le_bytes());
        assert_eq!(Scalar::round(DType::F16, 1e300).bytes(), 0x7c00u16.to_le_bytes());
        assert_eq!(Scalar::round(DType::F16, f64::NEG_INFINITY).bytes(), 0xfc00u16.to_le_bytes());
    }

    #[test]
    fn every_half_value_survives_text() {
        for bits in 0..=u16::MAX {
            for dtype in [DType::F16, DType::Bf16] {
                let value = Scalar::from_bytes(dtype, &bits.to_le_bytes()).unwrap();
                let again = Scalar::parse(dtype, &value.to_string()).unwrap();
                assert!(again == value || value.to_f64().is_nan() && again.to_f64().is_nan(), "{dtype} {bits:#x}");
            }
        }
    }

    #[test]
    fn text_is_the_shortest_for_the_type() {
        assert_eq!(Scalar::parse(DType::F32, "0.1").unwrap().to_string(), "0.1");
        assert_eq!(Scalar::parse(DType::F64, "1e300").unwrap().to_string(), "1e300");
        assert_eq!(Scalar::parse(DType::F32, "-NaN").unwrap().to_string(), "nan");
        assert_eq!(Scalar::parse(DType::I16, "-0x10").unwrap().to_string(), "-16");
        assert_eq!(Scalar::from_bytes(DType::Bool, &[2]).unwrap().to_string(), "true");
    }

    #[test]
    fn f32_text_is_rounded_once() {
        // Just above the tie of 1 and its successor; as an f64 it would be the tie itself, and so become 1.
        assert_eq!(bytes(DType::F32, "1.00000005960464477540"), 1.000_000_1f32.to_le_bytes());
    }

    #[test]
    fn bool_takes_words_and_digits_only() {
        assert_eq!((bytes(DType::Bool, "true"), bytes(DType::Bool, "0")), (vec![1], vec![0]));
        assert_eq!(message(DType::Bool, "True"), "expected true or false, found \"True\"");
    }

    #[test]
    fn from_bytes_wants_the_exact_size() {
        assert_eq!(Scalar::from_bytes(DType::I16, &[1]), None);
        assert_eq!(Scalar::from_bytes(DType::I16, &[0; 9]), None);
        assert_eq!(Scalar::from_bytes(DType::I16, &[0xfe, 0xff]).unwrap().number(), Number::Int(-2));
    }

    #[test]
    fn a_float_is_not_silently_an_integer() {
        assert_eq!(Scalar::new(DType::I32, Number::Float(1.0)), None);
        assert_eq!(Scalar::new(DType::F32, Number::Int(3)).unwrap().to_f64(), 3.0);
    }
}
