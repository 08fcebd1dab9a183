//! Comparisons: a bit per lane.

use super::{Semantics, compare_op};
use crate::exec::float::F16;
use crate::exec::valu::Compare;

/// Returns the class of a float as a bit of `v_cmp_class`'s mask.
fn class(negative: bool, exponent: Exponent, quiet: bool) -> u32 {
    match (exponent, negative) {
        (Exponent::Nan, _) => {
            if quiet {
                1 << 1
            } else {
                1 << 0
            }
        }
        (Exponent::Infinite, true) => 1 << 2,
        (Exponent::Normal, true) => 1 << 3,
        (Exponent::Denormal, true) => 1 << 4,
        (Exponent::Zero, true) => 1 << 5,
        (Exponent::Zero, false) => 1 << 6,
        (Exponent::Denormal, false) => 1 << 7,
        (Exponent::Normal, false) => 1 << 8,
        (Exponent::Infinite, false) => 1 << 9,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Exponent {
    Zero,
    Denormal,
    Normal,
    Infinite,
    Nan,
}

/// Classifies a magnitude, given the smallest normal number and infinity.
fn magnitude_class(magnitude: u64, min_normal: u64, infinity: u64) -> Exponent {
    match magnitude {
        0 => Exponent::Zero,
        m if m < min_normal => Exponent::Denormal,
        m if m < infinity => Exponent::Normal,
        m if m == infinity => Exponent::Infinite,
        _ => Exponent::Nan,
    }
}

fn class32(value: f32) -> u32 {
    let bits = value.to_bits();
    class(bits >> 31 != 0, magnitude_class(u64::from(bits & 0x7fff_ffff), 0x0080_0000, 0x7f80_0000), bits & 0x0040_0000 != 0)
}

fn class64(value: f64) -> u32 {
    let bits = value.to_bits();
    let kind = magnitude_class(bits & 0x7fff_ffff_ffff_ffff, 0x0010_0000_0000_0000, 0x7ff0_0000_0000_0000);
    class(bits >> 63 != 0, kind, bits & 0x0008_0000_0000_0000 != 0)
}

fn class16(value: F16) -> u32 {
    class(value.0 >> 15 != 0, magnitude_class(u64::from(value.0 & 0x7fff), 0x0400, 0x7c00), value.0 & 0x200 != 0)
}

/// Comparisons: types and relation. Each has a `v_cmp` and a `v_cmpx` form.
macro_rules! comparisons {
    ($($name:ident, $x:ident: ($a:ident: $A:ty, $b:ident: $B:ty) = $relation:expr;)*) => {
        /// Comparisons that write a lane mask.
        pub mod plain { use super::*; $( comparisons!(@one $name, false, $a: $A, $b: $B, $relation); )* }
        mod writes_exec { use super::*; $( comparisons!(@one $x, true, $a: $A, $b: $B, $relation); )* }

        /// Returns the semantics of the comparison called `name`.
        pub fn find(name: &str) -> Option<Semantics> {
            Some(match name {
                $( stringify!($name) => compare_op::<plain::$name>(), stringify!($x) => compare_op::<writes_exec::$x>(), )*
                _ => return None,
            })
        }
    };
    (@one $name:ident, $exec:literal, $a:ident: $A:ty, $b:ident: $B:ty, $relation:expr) => {
        #[allow(non_camel_case_types)]
        pub struct $name;
        impl Compare for $name {
            type A = $A;
            type B = $B;
            const EXEC: bool = $exec;
            #[inline(always)]
            #[allow(unused_variables)]
            fn f($a: $A, $b: $B) -> bool { $relation }
        }
    };
}

#[rustfmt::skip]
// With NaNs, `a < b || a > b` is not `a != b`.
#[allow(clippy::neg_cmp_op_on_partial_ord, clippy::nonminimal_bool, clippy::double_comparisons)]
mod table {
    use super::*;
    comparisons! {
        v_cmp_f_i16, v_cmpx_f_i16: (a: i16, b: i16) = false;
        v_cmp_lt_i16, v_cmpx_lt_i16: (a: i16, b: i16) = a < b;
        v_cmp_eq_i16, v_cmpx_eq_i16: (a: i16, b: i16) = a == b;
        v_cmp_le_i16, v_cmpx_le_i16: (a: i16, b: i16) = a <= b;
        v_cmp_gt_i16, v_cmpx_gt_i16: (a: i16, b: i16) = a > b;
        v_cmp_ne_i16, v_cmpx_ne_i16: (a: i16, b: i16) = a != b;
        v_cmp_ge_i16, v_cmpx_ge_i16: (a: i16, b: i16) = a >= b;
        v_cmp_t_i16, v_cmpx_t_i16: (a: i16, b: i16) = true;
        v_cmp_f_u16, v_cmpx_f_u16: (a: u16, b: u16) = false;
        v_cmp_lt_u16, v_cmpx_lt_u16: (a: u16, b: u16) = a < b;
        v_cmp_eq_u16, v_cmpx_eq_u16: (a: u16, b: u16) = a == b;
        v_cmp_le_u16, v_cmpx_le_u16: (a: u16, b: u16) = a <= b;
        v_cmp_gt_u16, v_cmpx_gt_u16: (a: u16, b: u16) = a > b;
        v_cmp_ne_u16, v_cmpx_ne_u16: (a: u16, b: u16) = a != b;
        v_cmp_ge_u16, v_cmpx_ge_u16: (a: u16, b: u16) = a >= b;
        v_cmp_t_u16, v_cmpx_t_u16: (a: u16, b: u16) = true;
        v_cmp_f_i32, v_cmpx_f_i32: (a: i32, b: i32) = false;
        v_cmp_lt_i32, v_cmpx_lt_i32: (a: i32, b: i32) = a < b;
        v_cmp_eq_i32, v_cmpx_eq_i32: (a: i32, b: i32) = a == b;
        v_cmp_le_i32, v_cmpx_le_i32: (a: i32, b: i32) = a <= b;
        v_cmp_gt_i32, v_cmpx_gt_i32: (a: i32, b: i32) = a > b;
        v_cmp_ne_i32, v_cmpx_ne_i32: (a: i32, b: i32) = a != b;
        v_cmp_ge_i32, v_cmpx_ge_i32: (a: i32, b: i32) = a >= b;
        v_cmp_t_i32, v_cmpx_t_i32: (a: i32, b: i32) = true;
        v_cmp_f_u32, v_cmpx_f_u32: (a: u32, b: u32) = false;
        v_cmp_lt_u32, v_cmpx_lt_u32: (a: u32, b: u32) = a < b;
        v_cmp_eq_u32, v_cmpx_eq_u32: (a: u32, b: u32) = a == b;
        v_cmp_le_u32, v_cmpx_le_u32: (a: u32, b: u32) = a <= b;
        v_cmp_gt_u32, v_cmpx_gt_u32: (a: u32, b: u32) = a > b;
        v_cmp_ne_u32, v_cmpx_ne_u32: (a: u32, b: u32) = a != b;
        v_cmp_ge_u32, v_cmpx_ge_u32: (a: u32, b: u32) = a >= b;
        v_cmp_t_u32, v_cmpx_t_u32: (a: u32, b: u32) = true;
        v_cmp_f_i64, v_cmpx_f_i64: (a: i64, b: i64) = false;
        v_cmp_lt_i64, v_cmpx_lt_i64: (a: i64, b: i64) = a < b;
        v_cmp_eq_i64, v_cmpx_eq_i64: (a: i64, b: i64) = a == b;
        v_cmp_le_i64, v_cmpx_le_i64: (a: i64, b: i64) = a <= b;
        v_cmp_gt_i64, v_cmpx_gt_i64: (a: i64, b: i64) = a > b;
        v_cmp_ne_i64, v_cmpx_ne_i64: (a: i64, b: i64) = a != b;
        v_cmp_ge_i64, v_cmpx_ge_i64: (a: i64, b: i64) = a >= b;
        v_cmp_t_i64, v_cmpx_t_i64: (a: i64, b: i64) = true;
        v_cmp_f_u64, v_cmpx_f_u64: (a: u64, b: u64) = false;
        v_cmp_lt_u64, v_cmpx_lt_u64: (a: u64, b: u64) = a < b;
        v_cmp_eq_u64, v_cmpx_eq_u64: (a: u64, b: u64) = a == b;
        v_cmp_le_u64, v_cmpx_le_u64: (a: u64, b: u64) = a <= b;
        v_cmp_gt_u64, v_cmpx_gt_u64: (a: u64, b: u64) = a > b;
        v_cmp_ne_u64, v_cmpx_ne_u64: (a: u64, b: u64) = a != b;
        v_cmp_ge_u64, v_cmpx_ge_u64: (a: u64, b: u64) = a >= b;
        v_cmp_t_u64, v_cmpx_t_u64: (a: u64, b: u64) = true;
        v_cmp_f_f16, v_cmpx_f_f16: (a: F16, b: F16) = false;
        v_cmp_lt_f16, v_cmpx_lt_f16: (a: F16, b: F16) = a.to_f32() < b.to_f32();
        v_cmp_eq_f16, v_cmpx_eq_f16: (a: F16, b: F16) = a.to_f32() == b.to_f32();
        v_cmp_le_f16, v_cmpx_le_f16: (a: F16, b: F16) = a.to_f32() <= b.to_f32();
        v_cmp_gt_f16, v_cmpx_gt_f16: (a: F16, b: F16) = a.to_f32() > b.to_f32();
        v_cmp_lg_f16, v_cmpx_lg_f16: (a: F16, b: F16) = a.to_f32() < b.to_f32() || a.to_f32() > b.to_f32();
        v_cmp_ge_f16, v_cmpx_ge_f16: (a: F16, b: F16) = a.to_f32() >= b.to_f32();
        v_cmp_o_f16, v_cmpx_o_f16: (a: F16, b: F16) = !a.to_f32().is_nan() && !b.to_f32().is_nan();
        v_cmp_u_f16, v_cmpx_u_f16: (a: F16, b: F16) = a.to_f32().is_nan() || b.to_f32().is_nan();
        v_cmp_nge_f16, v_cmpx_nge_f16: (a: F16, b: F16) = !(a.to_f32() >= b.to_f32());
        v_cmp_nlg_f16, v_cmpx_nlg_f16: (a: F16, b: F16) = !(a.to_f32() < b.to_f32() || a.to_f32() > b.to_f32());
        v_cmp_ngt_f16, v_cmpx_ngt_f16: (a: F16, b: F16) = !(a.to_f32() > b.to_f32());
        v_cmp_nle_f16, v_cmpx_nle_f16: (a: F16, b: F16) = !(a.to_f32() <= b.to_f32());
        v_cmp_neq_f16, v_cmpx_neq_f16: (a: F16, b: F16) = !(a.to_f32() == b.to_f32());
        v_cmp_nlt_f16, v_cmpx_nlt_f16: (a: F16, b: F16) = !(a.to_f32() < b.to_f32());
        v_cmp_tru_f16, v_cmpx_tru_f16: (a: F16, b: F16) = true;
        v_cmp_class_f16, v_cmpx_class_f16: (a: F16, b: u32) = class16(a) & b != 0;
        v_cmp_f_f32, v_cmpx_f_f32: (a: f32, b: f32) = false;
        v_cmp_lt_f32, v_cmpx_lt_f32: (a: f32, b: f32) = a < b;
        v_cmp_eq_f32, v_cmpx_eq_f32: (a: f32, b: f32) = a == b;
        v_cmp_le_f32, v_cmpx_le_f32: (a: f32, b: f32) = a <= b;
        v_cmp_gt_f32, v_cmpx_gt_f32: (a: f32, b: f32) = a > b;
        v_cmp_lg_f32, v_cmpx_lg_f32: (a: f32, b: f32) = a < b || a > b;
        v_cmp_ge_f32, v_cmpx_ge_f32: (a: f32, b: f32) = a >= b;
        v_cmp_o_f32, v_cmpx_o_f32: (a: f32, b: f32) = !a.is_nan() && !b.is_nan();
        v_cmp_u_f32, v_cmpx_u_f32: (a: f32, b: f32) = a.is_nan() || b.is_nan();
        v_cmp_nge_f32, v_cmpx_nge_f32: (a: f32, b: f32) = !(a >= b);
        v_cmp_nlg_f32, v_cmpx_nlg_f32: (a: f32, b: f32) = !(a < b || a > b);
        v_cmp_ngt_f32, v_cmpx_ngt_f32: (a: f32, b: f32) = !(a > b);
        v_cmp_nle_f32, v_cmpx_nle_f32: (a: f32, b: f32) = !(a <= b);
        v_cmp_neq_f32, v_cmpx_neq_f32: (a: f32, b: f32) = !(a == b);
        v_cmp_nlt_f32, v_cmpx_nlt_f32: (a: f32, b: f32) = !(a < b);
        v_cmp_tru_f32, v_cmpx_tru_f32: (a: f32, b: f32) = true;
        v_cmp_class_f32, v_cmpx_class_f32: (a: f32, b: u32) = class32(a) & b != 0;
        v_cmp_f_f64, v_cmpx_f_f64: (a: f64, b: f64) = false;
        v_cmp_lt_f64, v_cmpx_lt_f64: (a: f64, b: f64) = a < b;
        v_cmp_eq_f64, v_cmpx_eq_f64: (a: f64, b: f64) = a == b;
        v_cmp_le_f64, v_cmpx_le_f64: (a: f64, b: f64) = a <= b;
        v_cmp_gt_f64, v_cmpx_gt_f64: (a: f64, b: f64) = a > b;
        v_cmp_lg_f64, v_cmpx_lg_f64: (a: f64, b: f64) = a < b || a > b;
        v_cmp_ge_f64, v_cmpx_ge_f64: (a: f64, b: f64) = a >= b;
        v_cmp_o_f64, v_cmpx_o_f64: (a: f64, b: f64) = !a.is_nan() && !b.is_nan();
        v_cmp_u_f64, v_cmpx_u_f64: (a: f64, b: f64) = a.is_nan() || b.is_nan();
        v_cmp_nge_f64, v_cmpx_nge_f64: (a: f64, b: f64) = !(a >= b);
        v_cmp_nlg_f64, v_cmpx_nlg_f64: (a: f64, b: f64) = !(a < b || a > b);
        v_cmp_ngt_f64, v_cmpx_ngt_f64: (a: f64, b: f64) = !(a > b);
        v_cmp_nle_f64, v_cmpx_nle_f64: (a: f64, b: f64) = !(a <= b);
        v_cmp_neq_f64, v_cmpx_neq_f64: (a: f64, b: f64) = !(a == b);
        v_cmp_nlt_f64, v_cmpx_nlt_f64: (a: f64, b: f64) = !(a < b);
        v_cmp_tru_f64, v_cmpx_tru_f64: (a: f64, b: f64) = true;
        v_cmp_class_f64, v_cmpx_class_f64: (a: f64, b: u32) = class64(a) & b != 0;
    }
}
pub use table::{find, plain};
