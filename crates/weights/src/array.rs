//! Typed, shaped arrays in host memory, used for files, kernel arguments and results.
//!
//! Contract: elements are little-endian and in C order, and the byte length matches type and shape. [`Array::new`] checks this. Code
//! that sets the fields directly can call [`Array::check`]; functions in this module that rely on it check first.

use std::fmt;

use warpwave_kernels::DType;

use crate::value::Value;

/// The maximum number of dimensions, equal to NumPy's limit.
pub const MAX_DIMENSIONS: usize = 64;

/// The maximum size of an array in bytes: the user address space, 2^47 on 64-bit processors.
///
/// Smaller arrays can still fail to allocate.
pub const MAX_BYTES: usize = if usize::BITS >= 64 { (1u64 << 47) as usize } else { isize::MAX as usize };

/// An n-dimensional array of one element type.
#[derive(Clone, PartialEq, Eq)]
pub struct Array {
    /// Element type.
    pub dtype: DType,
    /// Length of each dimension, outermost first; empty for a 0-d array.
    pub shape: Vec<usize>,
    /// The elements, little-endian, in C order.
    pub bytes: Vec<u8>,
}

/// An invalid shape, or one that does not match the data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// More than [`MAX_DIMENSIONS`].
    #[error("too many dimensions: {found}; the maximum is {MAX_DIMENSIONS}")]
    TooManyDimensions {
        /// Number of dimensions given.
        found: usize,
    },
    /// More than [`MAX_BYTES`].
    #[error("{dtype}{} exceeds the maximum array size of {MAX_BYTES} bytes", ShapeText(.shape))]
    TooLarge {
        /// The element type.
        dtype: DType,
        /// The requested shape.
        shape: Vec<usize>,
    },
    /// The byte length does not match type and shape.
    #[error("{dtype}{} needs {expected} bytes, got {found}", ShapeText(.shape))]
    WrongLength {
        /// The element type.
        dtype: DType,
        /// The shape.
        shape: Vec<usize>,
        /// Expected bytes.
        expected: usize,
        /// Actual bytes.
        found: usize,
    },
}

/// Formats a shape as in `--arg`: `[64,32]`.
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

/// Returns the byte length of an array of this type and shape.
///
/// A shape with a zero dimension has length 0, whatever its other dimensions.
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
    /// Creates an array; fails if the byte length does not match type and shape.
    pub fn new(dtype: DType, shape: Vec<usize>, bytes: Vec<u8>) -> Result<Self, ShapeError> {
        let array = Array { dtype, shape, bytes };
        array.check()?;
        Ok(array)
    }

    /// Checks that the byte length matches type and shape.
    pub fn check(&self) -> Result<(), ShapeError> {
        let expected = byte_len(self.dtype, &self.shape)?;
        if self.bytes.len() == expected {
            return Ok(());
        }
        Err(ShapeError::WrongLength { dtype: self.dtype, shape: self.shape.clone(), expected, found: self.bytes.len() })
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// Returns whether the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the elements in C order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Value> + '_ {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| (word << 8) | u64::from(byte));
        self.bytes.chunks_exact(self.dtype.size()).map(move |bytes| Value::from_low_bytes(self.dtype, word(bytes)))
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_values(self, 16))
    }
}

/// Formats type, shape and the first `n` values in C order: `f32[4] = 0.0, 1.0, ... (2 more)`.
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
    fn byte_len_is_the_product_and_zero_if_any_dimension_is_zero() {
        assert_eq!(byte_len(DType::F32, &[2, 3]), Ok(24));
        assert_eq!(byte_len(DType::F64, &[]), Ok(8));
        assert_eq!(byte_len(DType::F64, &[usize::MAX, 0, usize::MAX]), Ok(0));
    }

    #[test]
    fn sizes_beyond_the_address_space_are_rejected() {
        assert_eq!(byte_len(DType::U8, &[MAX_BYTES]), Ok(MAX_BYTES));
        let error = byte_len(DType::U8, &[MAX_BYTES + 1]).unwrap_err();
        assert_eq!(error.to_string(), "u8[140737488355329] exceeds the maximum array size of 140737488355328 bytes");
        assert!(matches!(byte_len(DType::F32, &[usize::MAX, 2]), Err(ShapeError::TooLarge { .. })));
    }

    #[test]
    fn dimensions_are_limited_as_in_numpy() {
        assert_eq!(byte_len(DType::U8, &[1; 64]), Ok(1));
        assert_eq!(byte_len(DType::U8, &[1; 65]).unwrap_err().to_string(), "too many dimensions: 65; the maximum is 64");
    }

    #[test]
    fn bytes_must_match_the_shape() {
        let error = Array::new(DType::I16, vec![2, 2], vec![0; 7]).unwrap_err();
        assert_eq!(error.to_string(), "i16[2,2] needs 8 bytes, got 7");
        assert!(Array::new(DType::I16, vec![2, 2], vec![0; 8]).is_ok());
    }

    #[test]
    fn format_values_shows_type_shape_and_remaining_count() {
        let array = Array::new(DType::I16, vec![3], vec![1, 0, 0xfe, 0xff, 3, 0]).unwrap();
        assert_eq!(format_values(&array, 2), "i16[3] = 1, -2, ... (1 more)");
        assert_eq!(format_values(&array, 3), "i16[3] = 1, -2, 3");
        assert_eq!(format_values(&array, 0), "i16[3] = ... (3 more)");
        assert_eq!(format_values(&Array::new(DType::Bool, vec![], vec![1]).unwrap(), 9), "bool[] = true");
        assert_eq!(format_values(&Array::new(DType::F32, vec![0, 4], vec![]).unwrap(), 9), "f32[0,4] = (no values)");
    }
}
