//! The element types a kernel argument can have, and their names.
//!
//! Each type has one lowercase name (`f32`), which [`Display`](fmt::Display) writes and [`FromStr`] reads; the CUDA
//! spellings `half`, `float`, `double`, `int` and `uint` are read as well but never written. Names are case-sensitive.
//!
//! # bfloat16 and NumPy
//!
//! NumPy has no bfloat16. The rule here follows the `ml_dtypes` package, the common extension that adds it:
//!
//! * written as `|V2` (two raw bytes per element), so the file cannot be mistaken for integers or for f16, and reading it
//!   back gives bf16 again;
//! * `|V2` and `<V2` (what `ml_dtypes` itself writes) are read as bf16;
//! * `<u2` is read as u16, and [`Buffer::materialize`](crate::spec::Buffer::materialize) takes such a file where the
//!   argument says bf16, because plain NumPy users keep bfloat16 bits in a `uint16` array.
//!
//! In Python, `numpy.load(f).view(ml_dtypes.bfloat16)` gives the values of either kind of file.

use std::{fmt, str::FromStr};

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 16-bit integer.
    U16,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 32-bit integer.
    U32,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 64-bit integer.
    U64,
    /// Signed 64-bit integer.
    I64,
    /// IEEE 754 half precision.
    F16,
    /// bfloat16: the upper half of an f32.
    Bf16,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
    /// One byte; zero is false, anything else true.
    Bool,
}

use DType::*;

/// Whether a file's elements have to be byte-swapped to become little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// As arrays here store them, or single bytes.
    Little,
    /// The most significant byte first.
    Big,
}

impl DType {
    /// Every type, in the order error messages list them.
    pub const ALL: [DType; 13] = [U8, I8, U16, I16, U32, I32, U64, I64, F16, Bf16, F32, F64, Bool];

    /// The canonical name, such as `f32`.
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
            Bool => "bool",
        }
    }

    /// Bytes per element: 1, 2, 4 or 8.
    pub fn size(self) -> usize {
        match self {
            U8 | I8 | Bool => 1,
            U16 | I16 | F16 | Bf16 => 2,
            U32 | I32 | F32 => 4,
            U64 | I64 | F64 => 8,
        }
    }

    /// True for the floating-point types.
    pub fn is_float(self) -> bool {
        matches!(self, F16 | Bf16 | F32 | F64)
    }

    /// The smallest and largest value of an integer type (bool counts as 0 to 1); `None` for floats.
    pub fn int_range(self) -> Option<(i128, i128)> {
        match self {
            F16 | Bf16 | F32 | F64 => None,
            Bool => Some((0, 1)),
            U8 | U16 | U32 | U64 => Some((0, (1 << (8 * self.size())) - 1)),
            I8 | I16 | I32 | I64 => Some((-1 << (8 * self.size() - 1), (1 << (8 * self.size() - 1)) - 1)),
        }
    }

    /// The `descr` string that a `.npy` header carries for little-endian data of this type.
    pub fn npy_descr(self) -> &'static str {
        match self {
            U8 => "|u1",
            I8 => "|i1",
            U16 => "<u2",
            I16 => "<i2",
            U32 => "<u4",
            I32 => "<i4",
            U64 => "<u8",
            I64 => "<i8",
            F16 => "<f2",
            Bf16 => "|V2",
            F32 => "<f4",
            F64 => "<f8",
            Bool => "|b1",
        }
    }

    /// The type and byte order a `.npy` `descr` string stands for, or `None` where no type here matches.
    pub fn from_npy_descr(descr: &str) -> Option<(DType, ByteOrder)> {
        let (order, code) = descr.split_at_checked(1)?;
        let dtype = DType::ALL.into_iter().find(|dtype| &dtype.npy_descr()[1..] == code)?;
        match order {
            "<" => Some((dtype, ByteOrder::Little)),
            "|" if dtype.npy_descr().starts_with('|') => Some((dtype, ByteOrder::Little)),
            // Raw bytes have no order to swap, so a big-endian V2 says nothing that can be relied on.
            ">" if dtype != Bf16 => Some((dtype, ByteOrder::Big)),
            _ => None,
        }
    }

    /// Every name, separated by commas, for messages.
    pub fn names() -> String {
        DType::ALL.map(DType::name).join(", ")
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no [`DType`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown type {found:?}; valid types: {}", DType::names())]
pub struct UnknownDType {
    /// The name as given.
    pub found: String,
}

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(name: &str) -> Result<Self, UnknownDType> {
        match name {
            "half" => Ok(F16),
            "float" => Ok(F32),
            "double" => Ok(F64),
            "int" => Ok(I32),
            "uint" => Ok(U32),
            _ => DType::ALL.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| UnknownDType { found: name.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back_to_its_type() {
        for dtype in DType::ALL {
            assert_eq!(dtype.to_string().parse(), Ok(dtype));
        }
        assert_eq!(Bf16.to_string(), "bf16");
    }

    #[test]
    fn cuda_spellings_are_aliases() {
        let parsed = ["half", "float", "double", "int", "uint"].map(|name| name.parse::<DType>().unwrap());
        assert_eq!(parsed, [F16, F32, F64, I32, U32]);
    }

    #[test]
    fn an_unknown_name_lists_the_valid_ones() {
        let message = "F32".parse::<DType>().unwrap_err().to_string();
        assert_eq!(message, "unknown type \"F32\"; valid types: u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64, bool");
    }

    #[test]
    fn integer_ranges_are_those_of_rust() {
        assert_eq!(U8.int_range(), Some((0, u8::MAX.into())));
        assert_eq!(I8.int_range(), Some((i8::MIN.into(), i8::MAX.into())));
        assert_eq!(U64.int_range(), Some((0, u64::MAX.into())));
        assert_eq!(I64.int_range(), Some((i64::MIN.into(), i64::MAX.into())));
        assert_eq!(Bool.int_range(), Some((0, 1)));
        assert_eq!(F16.int_range(), None);
    }

    #[test]
    fn descr_round_trips_and_agrees_with_the_size() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_npy_descr(dtype.npy_descr()), Some((dtype, ByteOrder::Little)));
            assert!(dtype.npy_descr().ends_with(&dtype.size().to_string()));
        }
    }

    #[test]
    fn descr_byte_order_is_told_apart() {
        assert_eq!(DType::from_npy_descr(">f4"), Some((F32, ByteOrder::Big)));
        assert_eq!(DType::from_npy_descr("<V2"), Some((Bf16, ByteOrder::Little)));
        for refused in [">V2", "|f4", "=f4", "<f16", "<c8", "<U4", "<M8[ns]", "f4", "", "é", "|O"] {
            assert_eq!(DType::from_npy_descr(refused), None, "{refused}");
        }
    }
}
