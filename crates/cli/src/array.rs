//! A typed, shaped block of bytes: what files, arguments and results have in common.
//!
//! Contract: the bytes are little-endian elements in C order, and there are exactly as many as type and shape ask for.
//! [`Array::new`] checks that; code that builds an [`Array`] by its fields can check with [`Array::check`], and every
//! function here that could go wrong on a mismatched array does.

use crate::{dtype::DType, scalar::Scalar};
use std::fmt;

/// The most dimensions an array can have: NumPy's own limit, so that whatever is written here can be loaded there.
pub const MAX_DIMENSIONS: usize = 64;

/// The most bytes an array can have: the user address space of today's 64-bit processors, 2^47, or of a 32-bit process.
///
/// A size under this limit can still be refused by the operating system; a larger one is a typing mistake.
pub const MAX_BYTES: usize = if usize::BITS >= 64 { (1u64 << 47) as usize } else { isize::MAX as usize };

/// Elements of one type, in a shape.
#[derive(Clone, PartialEq, Eq)]
pub struct Array {
    /// The type of each element.
    pub dtype: DType,
    /// The length of each dimension, outermost first; empty for a single value without dimensions.
    pub shape: Vec<usize>,
    /// The elements, little-endian, in C order.
    pub bytes: Vec<u8>,
}

/// A shape that cannot be, or does not go with its bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// More than [`MAX_DIMENSIONS`].
    #[error("{found} dimensions; at most {MAX_DIMENSIONS} are possible")]
    TooManyDimensions {
        /// How many there were.
        found: usize,
    },
    /// More than [`MAX_BYTES`].
    #[error("{dtype}{} needs more than {MAX_BYTES} bytes, the most a process can address", ShapeText(.shape))]
    TooLarge {
        /// The element type.
        dtype: DType,
        /// The shape asked for.
        shape: Vec<usize>,
    },
    /// Not the number of bytes that type and shape ask for.
    #[error("{dtype}{} takes {expected} bytes, but there are {found}", ShapeText(.shape))]
    WrongLength {
        /// The element type.
        dtype: DType,
        /// The shape.
        shape: Vec<usize>,
        /// The bytes they take.
        expected: usize,
        /// The bytes there are.
        found: usize,
    },
}

/// Shows a shape the way arguments spell it: `[64,32]`.
pub struct ShapeText<'a>(pub &'a [usize]);

impl fmt::Display for ShapeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (axis, length) in self.0.iter().enumerate() {
            write!(f, "{}{length}", if axis == 0 { "" } else { "," })?;
        }
        f.write_str("]")
    }
}

/// The bytes an array of this type and shape takes.
///
/// A shape with a zero in it takes none, however large its other dimensions.
pub fn byte_len(dtype: DType, shape: &[usize]) -> Result<usize, ShapeError> {
    if shape.len() > MAX_DIMENSIONS {
        return Err(ShapeError::TooManyDimensions { found: shape.len() });
    }
    if shape.contains(&0) {
        return Ok(0);
    }
    let bytes = shape.iter().try_fold(dtype.size(), |bytes, &length| bytes.checked_mul(length));
    bytes.filter(|&bytes| bytes <= MAX_BYTES).ok_or_else(|| ShapeError::TooLarge { dtype, shape: shape.to_vec() })
}

impl Array {
    /// An array of these parts, if they go together.
    pub fn new(dtype: DType, shape: Vec<usize>, bytes: Vec<u8>) -> Result<Self, ShapeError> {
        let array = Array { dtype, shape, bytes };
        array.check()?;
        Ok(array)
    }

    /// Whether the bytes are as many as type and shape ask for.
    pub fn check(&self) -> Result<(), ShapeError> {
        let expected = byte_len(self.dtype, &self.shape)?;
        if self.bytes.len() == expected {
            return Ok(());
        }
        Err(ShapeError::WrongLength { dtype: self.dtype, shape: self.shape.clone(), expected, found: self.bytes.len() })
    }

    /// How many elements the bytes hold.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// True without a single element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements in C order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Scalar> + '_ {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| (word << 8) | u64::from(byte));
        self.bytes.chunks_exact(self.dtype.size()).map(move |bytes| Scalar::from_low_bytes(self.dtype, word(bytes)))
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_values(self, 16))
    }
}

/// The first `n` values in C order, after type and shape, and how many more there are: `f32[4] = 0.0, 1.0, ... (2 more)`.
pub fn format_values(array: &Array, n: usize) -> String {
    let mut parts: Vec<String> = array.iter().take(n).map(|value| value.to_string()).collect();
    if array.is_empty() {
        parts.push("(no values)".to_owned());
    } else if n < array.len() {
        parts.push(format!("... ({} more)", array.len() - n));
    }
    format!("{}{} = {}", array.dtype, ShapeText(&array.shape), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_products_and_zero_wins() {
        assert_eq!(byte_len(DType::F32, &[2, 3]), Ok(24));
        assert_eq!(byte_len(DType::F64, &[]), Ok(8));
        assert_eq!(byte_len(DType::F64, &[usize::MAX, 0, usize::MAX]), Ok(0));
    }

    #[test]
    fn sizes_past_the_address_space_are_refused() {
        assert_eq!(byte_len(DType::U8, &[MAX_BYTES]), Ok(MAX_BYTES));
        let error = byte_len(DType::U8, &[MAX_BYTES + 1]).unwrap_err();
        assert_eq!(error.to_string(), "u8[140737488355329] needs more than 140737488355328 bytes, the most a process can address");
        assert!(matches!(byte_len(DType::F32, &[usize::MAX, 2]), Err(ShapeError::TooLarge { .. })));
    }

    #[test]
    fn dimensions_are_limited_as_in_numpy() {
        assert_eq!(byte_len(DType::U8, &[1; 64]), Ok(1));
        assert_eq!(byte_len(DType::U8, &[1; 65]).unwrap_err().to_string(), "65 dimensions; at most 64 are possible");
    }

    #[test]
    fn bytes_must_match_the_shape() {
        let error = Array::new(DType::I16, vec![2, 2], vec![0; 7]).unwrap_err();
        assert_eq!(error.to_string(), "i16[2,2] takes 8 bytes, but there are 7");
        assert!(Array::new(DType::I16, vec![2, 2], vec![0; 8]).is_ok());
    }

    #[test]
    fn values_are_shown_with_type_shape_and_rest() {
        let array = Array::new(DType::I16, vec![3], vec![1, 0, 0xfe, 0xff, 3, 0]).unwrap();
        assert_eq!(format_values(&array, 2), "i16[3] = 1, -2, ... (1 more)");
        assert_eq!(format_values(&array, 3), "i16[3] = 1, -2, 3");
        assert_eq!(format_values(&array, 0), "i16[3] = ... (3 more)");
        assert_eq!(format_values(&Array::new(DType::Bool, vec![], vec![1]).unwrap(), 9), "bool[] = true");
        assert_eq!(format_values(&Array::new(DType::F32, vec![0, 4], vec![]).unwrap(), 9), "f32[0,4] = (no values)");
    }
}
