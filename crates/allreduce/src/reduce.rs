//! Reductions in host memory (as `MPI_Reduce_local`).
//!
//! The operand of the lower ranks is always the left one, so that floating-point sums, and minima with NaN or signed zeros, are bitwise
//! identical on all ranks. Integers wrap on overflow; half-precision values are computed as `f32` and rounded after each operation.

use half::{bf16, f16, slice::HalfFloatSliceExt as _};

use crate::datatype::{Op, Repr};

/// Which operand comes from the lower ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// `inout = inout op input`
    InoutFirst,
    /// `inout = input op inout`
    InputFirst,
}

/// Reduces `count` elements at `input` into those at `inout`.
///
/// # Safety
/// Both must hold `count` elements of `repr`, and must not overlap; `inout` must be writable. Any alignment is accepted. `op` must be
/// allowed on the datatype ([`crate::datatype::Datatype::supports`]).
pub unsafe fn reduce_local(repr: Repr, op: Op, order: Order, inout: *mut u8, input: *const u8, count: usize) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
        // SAFETY: the CPU has the features; the rest is guaranteed by the caller.
        return unsafe { reduce_avx2(repr, op, order, inout, input, count) };
    }
    // SAFETY: guaranteed by the caller.
    unsafe { reduce_any(repr, op, order, inout, input, count) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn reduce_avx2(repr: Repr, op: Op, order: Order, inout: *mut u8, input: *const u8, count: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { reduce_any(repr, op, order, inout, input, count) }
}

#[inline(always)]
unsafe fn reduce_any(repr: Repr, op: Op, order: Order, inout: *mut u8, input: *const u8, count: usize) {
    macro_rules! each {
        ($ty:ty, $f:expr) => {
            // SAFETY: guaranteed by the caller; the type matches `repr`.
            unsafe { each::<$ty>(order, inout.cast(), input.cast(), count, $f) }
        };
    }
    macro_rules! integer {
        ($ty:ty) => {
            match op {
                Op::Sum => each!($ty, |a, b| a.wrapping_add(b)),
                Op::Prod => each!($ty, |a, b| a.wrapping_mul(b)),
                Op::Min => each!($ty, |a, b| a.min(b)),
                Op::Max => each!($ty, |a, b| a.max(b)),
                Op::Land => each!($ty, |a, b| (a != 0 && b != 0) as $ty),
                Op::Lor => each!($ty, |a, b| (a != 0 || b != 0) as $ty),
                Op::Lxor => each!($ty, |a, b| ((a != 0) != (b != 0)) as $ty),
                Op::Band => each!($ty, |a, b| a & b),
                Op::Bor => each!($ty, |a, b| a | b),
                Op::Bxor => each!($ty, |a, b| a ^ b),
                Op::MinLoc | Op::MaxLoc => unreachable!("MPI_MINLOC and MPI_MAXLOC require a pair datatype, such as MPI_FLOAT_INT"),
            }
        };
    }
    macro_rules! float {
        ($each:ident, $ty:ty) => {
            match op {
                Op::Sum => $each!($ty, |a, b| a + b),
                Op::Prod => $each!($ty, |a, b| a * b),
                Op::Min => $each!($ty, |a, b| if b < a { b } else { a }),
                Op::Max => $each!($ty, |a, b| if b > a { b } else { a }),
                _ => unreachable!("the operator does not support floating-point datatypes"),
            }
        };
    }
    macro_rules! half {
        ($ty:ty, $f:expr) => {
            // SAFETY: guaranteed by the caller; the type matches `repr`.
            unsafe { halves::<$ty>(order, inout.cast(), input.cast(), count, $f) }
        };
    }
    macro_rules! complex {
        ($each:ident, $ty:ty) => {
            match op {
                Op::Sum => $each!([$ty; 2], |a, b| [a[0] + b[0], a[1] + b[1]]),
                Op::Prod => $each!([$ty; 2], |a, b| [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]),
                _ => unreachable!("the operator does not support complex datatypes"),
            }
        };
    }
    macro_rules! pair {
        ($value:ty, $loc:ty) => {
            // SAFETY: guaranteed by the caller; the types match `repr`.
            unsafe { pairs::<$value, $loc>(op == Op::MinLoc, order, inout.cast(), input.cast(), count) }
        };
    }
    match repr {
        Repr::I8 => integer!(i8),
        Repr::U8 => integer!(u8),
        Repr::I16 => integer!(i16),
        Repr::U16 => integer!(u16),
        Repr::I32 => integer!(i32),
        Repr::U32 => integer!(u32),
        Repr::I64 => integer!(i64),
        Repr::U64 => integer!(u64),
        Repr::F16 => float!(half, f16),
        Repr::Bf16 => float!(half, bf16),
        Repr::F32 => float!(each, f32),
        Repr::F64 => float!(each, f64),
        Repr::Complex4 => {
            let f = |a: [f16; 2], b: [f16; 2]| {
                let (a, b) = (a.map(f16::to_f32), b.map(f16::to_f32));
                let sum = [a[0] + b[0], a[1] + b[1]];
                let product = [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]];
                (if op == Op::Sum { sum } else { product }).map(f16::from_f32)
            };
            each!([f16; 2], f)
        }
        Repr::Complex8 => complex!(each, f32),
        Repr::Complex16 => complex!(each, f64),
        Repr::FloatInt => pair!(f32, i32),
        Repr::DoubleInt => pair!(f64, i32),
        Repr::LongInt => pair!(i64, i32),
        Repr::IntInt => pair!(i32, i32),
        Repr::ShortInt => pair!(i16, i32),
        Repr::FloatFloat => pair!(f32, f32),
        Repr::DoubleDouble => pair!(f64, f64),
    }
}

/// # Safety
/// As [`reduce_local`].
#[inline(always)]
unsafe fn each<T: Copy>(order: Order, inout: *mut T, input: *const T, count: usize, f: impl Fn(T, T) -> T) {
    // SAFETY: the caller guarantees the elements and that the two ranges do not overlap.
    let (inout, input) = unsafe {
        (
            &mut *std::ptr::slice_from_raw_parts_mut(inout.cast::<Packed<T>>(), count),
            std::slice::from_raw_parts(input.cast::<Packed<T>>(), count),
        )
    };
    match order {
        Order::InoutFirst => inout.iter_mut().zip(input).for_each(|(inout, input)| inout.0 = f(inout.0, input.0)),
        Order::InputFirst => inout.iter_mut().zip(input).for_each(|(inout, input)| inout.0 = f(input.0, inout.0)),
    }
}

/// An element at an unaligned address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Packed<T>(T);

/// Reduces half-precision elements, converted to `f32` block by block.
///
/// # Safety
/// As [`reduce_local`].
#[inline(always)]
unsafe fn halves<T: Half>(order: Order, inout: *mut T, input: *const T, count: usize, f: impl Fn(f32, f32) -> f32) {
    const BLOCK: usize = 256;
    let (mut halves, mut left, mut right) = ([T::ZERO; BLOCK], [0f32; BLOCK], [0f32; BLOCK]);
    let mut at = 0;
    while at < count {
        let block = BLOCK.min(count - at);
        for (source, floats) in [(inout.cast_const(), &mut left), (input, &mut right)] {
            // SAFETY: both hold `at + block` elements; bytes are copied, so any alignment is accepted.
            unsafe { std::ptr::copy_nonoverlapping(source.add(at).cast::<u8>(), halves.as_mut_ptr().cast(), block * size_of::<T>()) };
            T::widen(&halves[..block], &mut floats[..block]);
        }
        for (left, right) in left[..block].iter_mut().zip(&right[..block]) {
            *left = if order == Order::InoutFirst { f(*left, *right) } else { f(*right, *left) };
        }
        T::narrow(&left[..block], &mut halves[..block]);
        // SAFETY: as above, and `inout` is writable.
        unsafe { std::ptr::copy_nonoverlapping(halves.as_ptr().cast::<u8>(), inout.add(at).cast(), block * size_of::<T>()) };
        at += block;
    }
}

trait Half: Copy {
    const ZERO: Self;
    fn widen(from: &[Self], to: &mut [f32]);
    fn narrow(from: &[f32], to: &mut [Self]);
}

macro_rules! impl_half {
    ($ty:ty) => {
        impl Half for $ty {
            const ZERO: Self = <$ty>::ZERO;
            fn widen(from: &[Self], to: &mut [f32]) {
                from.convert_to_f32_slice(to);
            }
            fn narrow(from: &[f32], to: &mut [Self]) {
                to.convert_from_f32_slice(from);
            }
        }
    };
}
impl_half!(f16);
impl_half!(bf16);

/// A value and its location, in C layout.
#[derive(Clone, Copy)]
#[repr(C)]
struct ValueLoc<V, P> {
    value: V,
    loc: P,
}

/// Minimum or maximum with its location; ties take the smaller location. Padding is left unchanged.
///
/// # Safety
/// As [`reduce_local`].
#[inline(always)]
unsafe fn pairs<V: Copy + PartialOrd, P: Copy + PartialOrd>(
    minimum: bool,
    order: Order,
    inout: *mut ValueLoc<V, P>,
    input: *const ValueLoc<V, P>,
    count: usize,
) {
    for i in 0..count {
        // SAFETY: both hold `count` pairs; fields are accessed one by one, at any alignment.
        unsafe {
            let (inout, input) = (inout.add(i), input.add(i));
            let (value, loc) = (&raw mut (*inout).value, &raw mut (*inout).loc);
            let mine = (value.read_unaligned(), loc.read_unaligned());
            let theirs = ((&raw const (*input).value).read_unaligned(), (&raw const (*input).loc).read_unaligned());
            let (a, b) = if order == Order::InoutFirst { (mine, theirs) } else { (theirs, mine) };
            let second = if minimum { b.0 < a.0 } else { b.0 > a.0 };
            let chosen = if second || (a.0 == b.0 && b.1 < a.1) { b } else { a };
            value.write_unaligned(chosen.0);
            loc.write_unaligned(chosen.1);
        }
    }
}

/// Copies `count` elements; padding in `to` is left unchanged.
///
/// # Safety
/// As [`reduce_local`].
pub unsafe fn copy_elements(repr: Repr, to: *mut u8, from: *const u8, count: usize) {
    let size = repr.size();
    // Offset and length of the fields of each element.
    let fields: &[(usize, usize)] = match repr {
        Repr::DoubleInt | Repr::LongInt => &[(0, 12)],
        Repr::ShortInt => &[(0, 2), (4, 4)],
        _ => {
            // SAFETY: guaranteed by the caller.
            return unsafe { std::ptr::copy_nonoverlapping(from, to, count * size) };
        }
    };
    for i in 0..count {
        for (offset, len) in fields {
            let at = i * size + offset;
            // SAFETY: inside element `i`.
            unsafe { std::ptr::copy_nonoverlapping(from.add(at), to.add(at), *len) };
        }
    }
}
