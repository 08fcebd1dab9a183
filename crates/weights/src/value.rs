//! Values of any element type: parsing, rounding and formatting.
//!
//! Contract: a [`Value`] is always valid for its type. Integers are range-checked and never wrap. Floats are rounded to nearest even; a
//! finite number too large for the type is an error. Every NaN created here has the same bits, so equal text gives equal bytes on every
//! machine. [`Display`](fmt::Display) writes the shortest text that [`Value::parse`] reads back to the same value.

use half::{bf16, f16};
use std::fmt;
use warpwave_kernels::{DType, Scalar};

/// One element with its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value {
    dtype: DType,
    /// Little-endian, zero-padded, so that the derived equality compares values.
    bytes: [u8; 8],
}

/// Text that is not a value of a type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Malformed.
    #[error("expected {}, got {found:?}", expected(*.dtype))]
    Malformed {
        /// The type.
        dtype: DType,
        /// The text.
        found: String,
    },
    /// Out of range for the type.
    #[error("{found} does not fit in {dtype} ({})", range_text(*.dtype))]
    OutOfRange {
        /// The type.
        dtype: DType,
        /// The number.
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
            DType::F8E4M3 => "largest finite value 448".to_owned(),
            DType::F8E5M2 => "largest finite value 57344".to_owned(),
            _ => format!("largest finite value {:e}", f64::MAX),
        },
    }
}

impl Value {
    /// Converts a scalar to `dtype`; `None` if an integer is out of range, a float would overflow, or a float is given for an integer
    /// type.
    pub fn new(dtype: DType, scalar: Scalar) -> Option<Self> {
        match (dtype.int_range(), scalar) {
            (Some((min, max)), Scalar::Int(value)) if (min..=max).contains(&value) => Some(Self::from_low_bytes(dtype, value as u64)),
            (None, Scalar::Int(value)) => Self::new(dtype, Scalar::Float(value as f64)),
            (None, Scalar::Float(value)) => {
                let rounded = Self::round(dtype, value);
                let overflows = match dtype {
                    // Larger values saturate instead of becoming infinite; e4m3 has no infinity at all.
                    DType::F8E4M3 => value.abs() > 464.0,
                    DType::F8E5M2 => value.is_finite() && value.abs() >= 61440.0,
                    _ => value.is_finite() && rounded.to_f64().is_infinite(),
                };
                (!overflows).then_some(rounded)
            }
            _ => None,
        }
    }

    /// Parses a value of type `dtype`.
    ///
    /// Integers are decimal, or hexadecimal after `0x`, with an optional sign. Floats are decimal, or `inf` or `nan`; those narrower than
    /// f32 are parsed as f64 first.
    pub fn parse(dtype: DType, text: &str) -> Result<Self, ValueError> {
        let malformed = || ValueError::Malformed { dtype, found: text.to_owned() };
        let out_of_range = || ValueError::OutOfRange { dtype, found: text.to_owned() };
        match (dtype, text) {
            (DType::Bool, "true" | "1") => Ok(Self::from_low_bytes(dtype, 1)),
            (DType::Bool, "false" | "0") => Ok(Self::from_low_bytes(dtype, 0)),
            (DType::Bool, _) => Err(malformed()),
            // Parsing as f64 would round twice.
            (DType::F32, _) => {
                let value: f32 = text.parse().map_err(|_| malformed())?;
                let number = if value.is_infinite() && has_digits(text) { None } else { Some(Scalar::Float(value.into())) };
                number.and_then(|number| Self::new(dtype, number)).ok_or_else(out_of_range)
            }
            _ => Self::new(dtype, parse_scalar(dtype, text)?).ok_or_else(out_of_range),
        }
    }

    /// Creates a value from little-endian bytes; `None` unless their number is [`DType::size`].
    pub fn from_bytes(dtype: DType, bytes: &[u8]) -> Option<Self> {
        let mut padded = [0; 8];
        padded.get_mut(..bytes.len())?.copy_from_slice(bytes);
        (bytes.len() == dtype.size()).then_some(Value { dtype, bytes: padded })
    }

    /// Returns the type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the bytes as a kernel receives them: [`DType::size`] bytes, little-endian.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.dtype.size()]
    }

    /// Returns the exact value.
    pub fn scalar(&self) -> Scalar {
        let word = u64::from_le_bytes(self.bytes);
        match self.dtype {
            DType::Bool => Scalar::Int((word != 0).into()),
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => Scalar::Int(word.into()),
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
                let unused = 64 - 8 * self.dtype.size() as u32;
                Scalar::Int((((word << unused) as i64) >> unused).into())
            }
            DType::F16 => Scalar::Float(f16::from_bits(word as u16).to_f64()),
            DType::Bf16 => Scalar::Float(bf16::from_bits(word as u16).to_f64()),
            DType::F32 => Scalar::Float(f32::from_bits(word as u32).into()),
            DType::F64 => Scalar::Float(f64::from_bits(word)),
            DType::F8E4M3 => Scalar::Float(f8e4m3_to_f64(word as u8)),
            // The upper byte of an f16.
            DType::F8E5M2 => Scalar::Float(f16::from_bits((word as u16) << 8).to_f64()),
        }
    }

    /// Returns the value as f64; 64-bit integers are rounded.
    pub fn to_f64(&self) -> f64 {
        self.scalar().to_f64()
    }

    /// Rounds `value` to the float type `dtype`, to nearest even; values too large become infinite, or saturate for fp8.
    pub fn round(dtype: DType, value: f64) -> Self {
        // One NaN for all: signs and payloads differ between machines.
        let value = if value.is_nan() { f64::NAN } else { value };
        let word = match dtype {
            DType::F8E5M2 if value == f64::INFINITY => 0x7c,
            DType::F8E5M2 if value == f64::NEG_INFINITY => 0xfc,
            _ => Scalar::Float(value).to_bits(dtype),
        };
        Self::from_low_bytes(dtype, word)
    }

    /// Creates a value from the low bytes of `word`.
    pub fn from_low_bytes(dtype: DType, word: u64) -> Self {
        let unused = 64 - 8 * dtype.size() as u32;
        Value { dtype, bytes: ((word << unused) >> unused).to_le_bytes() }
    }
}

/// Parses an integer or a float, depending on `dtype`, without checking its range.
pub fn parse_scalar(dtype: DType, text: &str) -> Result<Scalar, ValueError> {
    let malformed = || ValueError::Malformed { dtype, found: text.to_owned() };
    let out_of_range = || ValueError::OutOfRange { dtype, found: text.to_owned() };
    if dtype.is_float() {
        let value: f64 = text.parse().map_err(|_| malformed())?;
        return if value.is_infinite() && has_digits(text) { Err(out_of_range()) } else { Ok(Scalar::Float(value)) };
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
    Ok(Scalar::Int(if negative { -value } else { value }))
}

/// Distinguishes `1e999`, which overflowed, from `inf`.
fn has_digits(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
}

fn f8e4m3_to_f64(bits: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    let magnitude = match (exponent, bits & 7) {
        (15, 7) => f64::NAN,
        (0, _) => mantissa * f64::powi(2.0, -9),
        _ => (8.0 + mantissa) * f64::powi(2.0, exponent - 10),
    };
    if bits & 0x80 == 0 { magnitude } else { -magnitude }
}

fn write_float(f: &mut fmt::Formatter<'_>, value: &dyn fmt::Debug, nan: bool) -> fmt::Result {
    if nan { f.write_str("nan") } else { write!(f, "{value:?}") }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.dtype, self.scalar()) {
            (DType::Bool, Scalar::Int(value)) => write!(f, "{}", value != 0),
            (DType::F64, Scalar::Float(value)) => write_float(f, &value, value.is_nan()),
            // As f32: 0.1 prints as 0.1, not as the nearest f64.
            (_, Scalar::Float(value)) => write_float(f, &(value as f32), value.is_nan()),
            (_, Scalar::Int(value)) => write!(f, "{value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(dtype: DType, text: &str) -> Vec<u8> {
        Value::parse(dtype, text).unwrap().bytes().to_vec()
    }

    fn message(dtype: DType, text: &str) -> String {
        Value::parse(dtype, text).unwrap_err().to_string()
    }

    #[test]
    fn integers_are_parsed_in_both_radices_and_at_both_limits() {
        assert_eq!(bytes(DType::I32, "-7"), (-7i32).to_le_bytes());
        assert_eq!(bytes(DType::U32, "0xff"), 255u32.to_le_bytes());
        assert_eq!(bytes(DType::I8, "-0x80"), [0x80]);
        assert_eq!(bytes(DType::U64, "18446744073709551615"), [0xff; 8]);
        assert_eq!(bytes(DType::I64, "-9223372036854775808"), i64::MIN.to_le_bytes());
        assert_eq!(bytes(DType::U8, "+1"), [1]);
    }

    #[test]
    fn integers_out_of_range_show_the_range() {
        assert_eq!(message(DType::U8, "300"), "300 does not fit in u8 (0 to 255)");
        assert_eq!(message(DType::U8, "-1"), "-1 does not fit in u8 (0 to 255)");
        assert_eq!(message(DType::I8, "0x80"), "0x80 does not fit in i8 (-128 to 127)");
        let huge = "9".repeat(50);
        assert_eq!(message(DType::U64, &huge), format!("{huge} does not fit in u64 (0 to 18446744073709551615)"));
    }

    #[test]
    fn malformed_integers_show_an_example() {
        assert_eq!(message(DType::I32, "2.5"), "expected an integer such as 7, -7 or 0xff, got \"2.5\"");
        for text in ["", "-", "0x", "--1", "-+1", "0x-1", "1e3", "0xfg", "１", " 1"] {
            assert!(matches!(Value::parse(DType::I32, text), Err(ValueError::Malformed { .. })), "{text}");
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
        assert_eq!(message(DType::F16, "70000"), "70000 does not fit in f16 (largest finite value 65504)");
        assert_eq!(message(DType::F32, "1e39"), "1e39 does not fit in f32 (largest finite value 3.4028235e38)");
        assert_eq!(message(DType::F64, "1e309"), "1e309 does not fit in f64 (largest finite value 1.7976931348623157e308)");
        assert_eq!(message(DType::Bf16, "3.4e38"), "3.4e38 does not fit in bf16 (largest finite value 3.3895314e38)");
        assert_eq!(bytes(DType::F16, "65519"), 0x7bffu16.to_le_bytes());
    }

    #[test]
    fn half_floats_round_once_to_nearest_even() {
        // 1 + 2^-11 is the tie between 0x3c00 and 0x3c01: even wins. A value slightly above it, not representable in f32, rounds up.
        let tie = 1.0 + f64::powi(2.0, -11);
        assert_eq!(Value::round(DType::F16, tie).bytes(), 0x3c00u16.to_le_bytes());
        assert_eq!(Value::round(DType::F16, tie + f64::powi(2.0, -40)).bytes(), 0x3c01u16.to_le_bytes());
        assert_eq!(Value::round(DType::F16, -tie - f64::powi(2.0, -40)).bytes(), 0xbc01u16.to_le_bytes());
        assert_eq!(Value::round(DType::F16, tie + f64::powi(2.0, -10)).bytes(), 0x3c02u16.to_le_bytes());
        assert_eq!(Value::round(DType::F16, tie + f64::powi(2.0, -10) - f64::powi(2.0, -40)).bytes(), 0x3c01u16.to_le_bytes());
        assert_eq!(Value::round(DType::Bf16, 1.0 + f64::powi(2.0, -8) + f64::powi(2.0, -40)).bytes(), 0x3f81u16.to_le_bytes());
        assert_eq!(Value::round(DType::F16, -1e-300).bytes(), 0x8000u16.to_le_bytes());
        assert_eq!(Value::round(DType::F16, 1e300).bytes(), 0x7c00u16.to_le_bytes());
        assert_eq!(Value::round(DType::F16, f64::NEG_INFINITY).bytes(), 0xfc00u16.to_le_bytes());
    }

    #[test]
    fn every_half_value_survives_text() {
        for bits in 0..=u16::MAX {
            for dtype in [DType::F16, DType::Bf16] {
                let value = Value::from_bytes(dtype, &bits.to_le_bytes()).unwrap();
                let again = Value::parse(dtype, &value.to_string()).unwrap();
                assert!(again == value || value.to_f64().is_nan() && again.to_f64().is_nan(), "{dtype} {bits:#x}");
            }
        }
    }

    #[test]
    fn every_fp8_value_survives_text_and_finite_values_do_not_saturate() {
        for bits in 0..=u8::MAX {
            for dtype in [DType::F8E4M3, DType::F8E5M2] {
                let value = Value::from_bytes(dtype, &[bits]).unwrap();
                let again = Value::parse(dtype, &value.to_string()).unwrap();
                assert!(again == value || value.to_f64().is_nan() && again.to_f64().is_nan(), "{dtype} {bits:#x}");
            }
        }
        assert_eq!(bytes(DType::F8E4M3, "464"), [0x7e]);
        assert_eq!(message(DType::F8E4M3, "465"), "465 does not fit in f8e4m3 (largest finite value 448)");
        assert_eq!(message(DType::F8E4M3, "inf"), "inf does not fit in f8e4m3 (largest finite value 448)");
        assert_eq!(message(DType::F8E5M2, "61440"), "61440 does not fit in f8e5m2 (largest finite value 57344)");
        assert_eq!(bytes(DType::F8E5M2, "-inf"), [0xfc]);
    }

    #[test]
    fn text_is_the_shortest_for_the_type() {
        assert_eq!(Value::parse(DType::F32, "0.1").unwrap().to_string(), "0.1");
        assert_eq!(Value::parse(DType::F64, "1e300").unwrap().to_string(), "1e300");
        assert_eq!(Value::parse(DType::F32, "-NaN").unwrap().to_string(), "nan");
        assert_eq!(Value::parse(DType::I16, "-0x10").unwrap().to_string(), "-16");
        assert_eq!(Value::from_bytes(DType::Bool, &[2]).unwrap().to_string(), "true");
    }

    #[test]
    fn f32_text_is_rounded_once() {
        // Just above the tie of 1 and its successor; as an f64 it would be the tie itself, and so become 1.
        assert_eq!(bytes(DType::F32, "1.00000005960464477540"), 1.000_000_1f32.to_le_bytes());
    }

    #[test]
    fn bool_accepts_true_false_1_and_0() {
        assert_eq!((bytes(DType::Bool, "true"), bytes(DType::Bool, "0")), (vec![1], vec![0]));
        assert_eq!(message(DType::Bool, "True"), "expected true or false, got \"True\"");
    }

    #[test]
    fn from_bytes_needs_the_exact_size() {
        assert_eq!(Value::from_bytes(DType::I16, &[1]), None);
        assert_eq!(Value::from_bytes(DType::I16, &[0; 9]), None);
        assert_eq!(Value::from_bytes(DType::I16, &[0xfe, 0xff]).unwrap().scalar(), Scalar::Int(-2));
    }

    #[test]
    fn a_float_is_not_silently_an_integer() {
        assert_eq!(Value::new(DType::I32, Scalar::Float(1.0)), None);
        assert_eq!(Value::new(DType::F32, Scalar::Int(3)).unwrap().to_f64(), 3.0);
    }
}
