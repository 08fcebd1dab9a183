//! Element-wise comparison of arrays with a tolerance.
//!
//! Per element, with `a` the result and `b` the expected value:
//!
//! * integers and bool must be equal; the tolerance does not apply;
//! * floats match when they are equal, when both are NaN, or when both are finite and `|a - b| <= tol * (1 + |b|)`. That is
//!   an absolute tolerance near zero and a relative one elsewhere. A tolerance of `0.0` requires equality (`-0.0` equals `0.0`);
//! * an infinity matches only itself, NaN only NaN.
//!
//! Arrays of different type or shape are an error.

use crate::{
    array::{Array, ShapeError, ShapeText},
    value::Value,
};
use std::fmt;

use warpwave_kernels::{DType, Scalar};

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Number of elements compared.
    pub elements: usize,
    /// Number of mismatches.
    pub mismatches: usize,
    /// The largest `|a - b|` over all elements, matching ones included; infinite where only one is NaN or infinite.
    pub max_abs_diff: f64,
    /// The largest `|a - b| / |b|` over all elements; infinite where `b` is zero and `a` is not.
    pub max_rel_diff: f64,
    /// The first mismatch in C order.
    pub first_mismatch: Option<Mismatch>,
}

/// One element that did not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Its index in C order.
    pub index: usize,
    /// The value in the first array.
    pub found: Value,
    /// The value in the second array.
    pub expected: Value,
}

impl Comparison {
    /// Returns whether every element matched.
    pub fn is_match(&self) -> bool {
        self.mismatches == 0
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison { elements, mismatches, max_abs_diff, max_rel_diff, first_mismatch } = self;
        match first_mismatch {
            None => write!(f, "all {elements} values match")?,
            Some(Mismatch { index, found, expected }) => {
                write!(f, "{mismatches} of {elements} values differ; first at index {index}: got {found}, expected {expected}")?
            }
        }
        write!(f, " (max abs diff {max_abs_diff:e}, max rel diff {max_rel_diff:e})")
    }
}

/// The arrays cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// Different element types.
    #[error("cannot compare {found} with {expected}")]
    DType {
        /// Type of the first array.
        found: DType,
        /// Type of the second array.
        expected: DType,
    },
    /// Different shapes.
    #[error("cannot compare shape {} with shape {}", ShapeText(.found), ShapeText(.expected))]
    Shape {
        /// Shape of the first array.
        found: Vec<usize>,
        /// Shape of the second array.
        expected: Vec<usize>,
    },
    /// The byte length of an array does not match its shape.
    #[error(transparent)]
    Inconsistent(#[from] ShapeError),
}

/// Compares the result `a` with the expected `b` by the rule in the [module documentation](self).
///
/// With a NaN or negative `tol` only equal values match.
pub fn compare(a: &Array, b: &Array, tol: f64) -> Result<Comparison, CompareError> {
    a.check()?;
    b.check()?;
    if a.dtype != b.dtype {
        return Err(CompareError::DType { found: a.dtype, expected: b.dtype });
    }
    if a.shape != b.shape {
        return Err(CompareError::Shape { found: a.shape.clone(), expected: b.shape.clone() });
    }
    let mut comparison = Comparison { elements: a.len(), mismatches: 0, max_abs_diff: 0.0, max_rel_diff: 0.0, first_mismatch: None };
    for (index, (found, expected)) in a.iter().zip(b.iter()).enumerate() {
        let (matches, diff, relative_to) = compare_scalars(found.scalar(), expected.scalar(), tol);
        if diff > 0.0 {
            comparison.max_abs_diff = comparison.max_abs_diff.max(diff);
            // An infinite difference from an infinite value would be NaN.
            let relative = if diff.is_infinite() { diff } else { diff / relative_to };
            comparison.max_rel_diff = comparison.max_rel_diff.max(relative);
        }
        if !matches {
            comparison.mismatches += 1;
            comparison.first_mismatch.get_or_insert(Mismatch { index, found, expected });
        }
    }
    Ok(comparison)
}

/// Returns whether the values match, their absolute difference, and `|expected|`.
fn compare_scalars(found: Scalar, expected: Scalar, tol: f64) -> (bool, f64, f64) {
    match (found, expected) {
        (Scalar::Int(a), Scalar::Int(b)) => (a == b, a.abs_diff(b) as f64, b.unsigned_abs() as f64),
        (Scalar::Float(a), Scalar::Float(b)) if a == b || a.is_nan() && b.is_nan() => (true, 0.0, b.abs()),
        (Scalar::Float(a), Scalar::Float(b)) if a.is_finite() && b.is_finite() => {
            let diff = (a - b).abs();
            (diff <= tol * (1.0 + b.abs()), diff, b.abs())
        }
        // Also covers Int against Float, which cannot occur: both arrays have the same type.
        _ => (false, f64::INFINITY, f64::INFINITY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(values: &[f32]) -> Array {
        Array::new(DType::F32, vec![values.len()], values.iter().flat_map(|value| value.to_le_bytes()).collect()).unwrap()
    }

    fn i64s(values: &[i64]) -> Array {
        Array::new(DType::I64, vec![values.len()], values.iter().flat_map(|value| value.to_le_bytes()).collect()).unwrap()
    }

    #[test]
    fn equal_arrays_match_without_tolerance() {
        let array = f32s(&[1.0, f32::NAN, f32::INFINITY, -0.0]);
        let comparison = compare(&array, &f32s(&[1.0, f32::NAN, f32::INFINITY, 0.0]), 0.0).unwrap();
        assert_eq!(comparison, Comparison { elements: 4, mismatches: 0, max_abs_diff: 0.0, max_rel_diff: 0.0, first_mismatch: None });
        assert_eq!(comparison.to_string(), "all 4 values match (max abs diff 0e0, max rel diff 0e0)");
    }

    #[test]
    fn tolerance_is_absolute_near_zero_and_relative_far_away() {
        assert!(compare(&f32s(&[0.25]), &f32s(&[0.0]), 0.25).unwrap().is_match());
        assert!(!compare(&f32s(&[0.25]), &f32s(&[0.0]), 0.249).unwrap().is_match());
        assert!(compare(&f32s(&[5.0]), &f32s(&[3.0]), 0.5).unwrap().is_match());
        assert!(!compare(&f32s(&[5.5]), &f32s(&[3.0]), 0.5).unwrap().is_match());
    }

    #[test]
    fn tolerance_is_measured_from_the_expected_side() {
        assert!(compare(&f32s(&[1.0]), &f32s(&[3.0]), 0.5).unwrap().is_match());
        assert!(!compare(&f32s(&[3.0]), &f32s(&[1.0]), 0.5).unwrap().is_match());
    }

    #[test]
    fn first_mismatch_and_largest_differences_are_reported() {
        let comparison = compare(&f32s(&[1.0, 2.5, 9.0]), &f32s(&[1.0, 2.0, 8.0]), 0.0).unwrap();
        assert_eq!((comparison.mismatches, comparison.max_abs_diff, comparison.max_rel_diff), (2, 1.0, 0.25));
        assert_eq!(comparison.first_mismatch.unwrap().index, 1);
        assert_eq!(
            comparison.to_string(),
            "2 of 3 values differ; first at index 1: got 2.5, expected 2.0 (max abs diff 1e0, max rel diff 2.5e-1)"
        );
    }

    #[test]
    fn non_finite_values_match_only_themselves() {
        for (found, expected) in [(1.0, f32::INFINITY), (f32::INFINITY, f32::NEG_INFINITY), (f32::NAN, 1.0), (1.0, f32::NAN)] {
            let comparison = compare(&f32s(&[found]), &f32s(&[expected]), f64::INFINITY).unwrap();
            assert_eq!(comparison.mismatches, 1, "{found} {expected}");
            assert_eq!((comparison.max_abs_diff, comparison.max_rel_diff), (f64::INFINITY, f64::INFINITY));
        }
    }

    #[test]
    fn a_nan_tolerance_requires_equality() {
        assert!(!compare(&f32s(&[1.0]), &f32s(&[1.5]), f64::NAN).unwrap().is_match());
        assert!(compare(&f32s(&[1.5]), &f32s(&[1.5]), f64::NAN).unwrap().is_match());
    }

    #[test]
    fn integers_beyond_f64_precision_are_compared_exactly() {
        let comparison = compare(&i64s(&[i64::MAX, 4]), &i64s(&[i64::MAX - 1, 4]), 1.0).unwrap();
        assert_eq!((comparison.mismatches, comparison.max_abs_diff), (1, 1.0));
        assert_eq!(comparison.first_mismatch.unwrap().expected.to_string(), "9223372036854775806");
    }

    #[test]
    fn a_zero_expectation_has_an_infinite_relative_difference() {
        assert_eq!(compare(&i64s(&[1]), &i64s(&[0]), 0.0).unwrap().max_rel_diff, f64::INFINITY);
    }

    #[test]
    fn different_types_and_shapes_are_errors() {
        let error = compare(&f32s(&[1.0]), &i64s(&[1]), 0.0).unwrap_err();
        assert_eq!(error.to_string(), "cannot compare f32 with i64");
        let error = compare(&f32s(&[1.0]), &f32s(&[1.0, 2.0]), 0.0).unwrap_err();
        assert_eq!(error.to_string(), "cannot compare shape [1] with shape [2]");
        let broken = Array { bytes: vec![0; 3], ..f32s(&[1.0]) };
        assert!(matches!(compare(&broken, &f32s(&[1.0]), 0.0), Err(CompareError::Inconsistent(_))));
    }
}
