//! Combining elements in host memory.
//!
//! The operand of the lower ranks stands first, always: sums of floats, and minima with NaN or zeros of both signs, then have the
//! same bits on all ranks. Integers wrap; half-precision values are combined as `f32` and rounded after each operation.

use half::{bf16, f16, slice::HalfFloatSliceExt as _};

use crate::element::{Op, Repr};

/// Which operand is the lower ranks'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// `own = own op other`
    OwnFirst,
    /// `own = other op own`
    OtherFirst,
}

/// Combines `count` elements at `other` into those at `own`.
///
/// # Safety
/// Both must hold `count` elements of `repr`, `own` for writing, and not overlap. Alignment does not matter. The standard must allow
/// `op` on the element ([`crate::element::Element::allows`]).
pub unsafe fn combine(repr: Repr, op: Op, order: Order, own: *mut u8, other: *const u8, count: usize) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
        // SAFETY: the features are there; the rest is the caller's promise.
        return unsafe { combine_avx2(repr, op, order, own, other, count) };
    }
    // SAFETY: the caller's promise.
    unsafe { combine_any(repr, op, order, own, other, count) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn combine_avx2(repr: Repr, op: Op, order: Order, own: *mut u8, other: *const u8, count: usize) {
    // SAFETY: the caller's promise.
    unsafe { combine_any(repr, op, order, own, other, count) }
}

#[inline(always)]
unsafe fn combine_any(repr: Repr, op: Op, order: Order, own: *mut u8, other: *const u8, count: usize) {
    macro_rules! each {
        ($ty:ty, $f:expr) => {
            // SAFETY: the caller's promise; the type is that of `repr`.
            unsafe { each::<$ty>(order, own.cast(), other.cast(), count, $f) }
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
                Op::MinLoc | Op::MaxLoc => unreachable!("no pair"),
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
                _ => unreachable!("no operation on floats"),
            }
        };
    }
    macro_rules! half {
        ($ty:ty, $f:expr) => {
            // SAFETY: the caller's promise; the type is that of `repr`.
            unsafe { halves::<$ty>(order, own.cast(), other.cast(), count, $f) }
        };
    }
    macro_rules! complex {
        ($each:ident, $ty:ty) => {
            match op {
                Op::Sum => $each!([$ty; 2], |a, b| [a[0] + b[0], a[1] + b[1]]),
                Op::Prod => $each!([$ty; 2], |a, b| [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]),
                _ => unreachable!("no operation on complex numbers"),
            }
        };
    }
    macro_rules! pair {
        ($value:ty, $place:ty) => {
            // SAFETY: the caller's promise; the types are those of `repr`.
            unsafe { pairs::<$value, $place>(op == Op::MinLoc, order, own.cast(), other.cast(), count) }
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
/// As [`combine`].
#[inline(always)]
unsafe fn each<T: Copy>(order: Order, own: *mut T, other: *const T, count: usize, f: impl Fn(T, T) -> T) {
    // SAFETY: the caller vouches for the elements and that the two do not overlap.
    let (own, other) = unsafe {
        (
            &mut *std::ptr::slice_from_raw_parts_mut(own.cast::<Packed<T>>(), count),
            std::slice::from_raw_parts(other.cast::<Packed<T>>(), count),
        )
    };
    match order {
        Order::OwnFirst => own.iter_mut().zip(other).for_each(|(own, other)| own.0 = f(own.0, other.0)),
        Order::OtherFirst => own.iter_mut().zip(other).for_each(|(own, other)| own.0 = f(other.0, own.0)),
    }
}

/// An element at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Packed<T>(T);

/// Half-precision elements, converted by blocks.
///
/// # Safety
/// As [`combine`].
#[inline(always)]
unsafe fn halves<T: Half>(order: Order, own: *mut T, other: *const T, count: usize, f: impl Fn(f32, f32) -> f32) {
    const BLOCK: usize = 256;
    let (mut halves, mut left, mut right) = ([T::ZERO; BLOCK], [0f32; BLOCK], [0f32; BLOCK]);
    let mut at = 0;
    while at < count {
        let block = BLOCK.min(count - at);
        for (source, floats) in [(own.cast_const(), &mut left), (other, &mut right)] {
            // SAFETY: `at + block` elements are there; bytes are copied, so alignment does not matter.
            unsafe { std::ptr::copy_nonoverlapping(source.add(at).cast::<u8>(), halves.as_mut_ptr().cast(), block * size_of::<T>()) };
            T::widen(&halves[..block], &mut floats[..block]);
        }
        for (left, right) in left[..block].iter_mut().zip(&right[..block]) {
            *left = if order == Order::OwnFirst { f(*left, *right) } else { f(*right, *left) };
        }
        T::narrow(&left[..block], &mut halves[..block]);
        // SAFETY: as above, and `own` may be written.
        unsafe { std::ptr::copy_nonoverlapping(halves.as_ptr().cast::<u8>(), own.add(at).cast(), block * size_of::<T>()) };
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

/// A value and its place, as C lays them out.
#[derive(Clone, Copy)]
#[repr(C)]
struct Placed<V, P> {
    value: V,
    place: P,
}

/// Least or greatest values with their places; equal values take the smaller place. Padding stays as it is.
///
/// # Safety
/// As [`combine`].
#[inline(always)]
unsafe fn pairs<V: Copy + PartialOrd, P: Copy + PartialOrd>(
    least: bool,
    order: Order,
    own: *mut Placed<V, P>,
    other: *const Placed<V, P>,
    count: usize,
) {
    for i in 0..count {
        // SAFETY: `count` pairs are there; the fields are read and written by themselves, at any address.
        unsafe {
            let (own, other) = (own.add(i), other.add(i));
            let (value, place) = (&raw mut (*own).value, &raw mut (*own).place);
            let mine = (value.read_unaligned(), place.read_unaligned());
            let theirs = ((&raw const (*other).value).read_unaligned(), (&raw const (*other).place).read_unaligned());
            let (a, b) = if order == Order::OwnFirst { (mine, theirs) } else { (theirs, mine) };
            let second = if least { b.0 < a.0 } else { b.0 > a.0 };
            let chosen = if second || (a.0 == b.0 && b.1 < a.1) { b } else { a };
            value.write_unaligned(chosen.0);
            place.write_unaligned(chosen.1);
        }
    }
}

/// Copies `count` elements; what is padding in `own` stays as it is.
///
/// # Safety
/// As [`combine`].
pub unsafe fn store(repr: Repr, own: *mut u8, other: *const u8, count: usize) {
    let size = repr.size();
    // The bytes of each element that carry something.
    let parts: &[(usize, usize)] = match repr {
        Repr::DoubleInt | Repr::LongInt => &[(0, 12)],
        Repr::ShortInt => &[(0, 2), (4, 4)],
        _ => {
            // SAFETY: the caller's promise.
            return unsafe { std::ptr::copy_nonoverlapping(other, own, count * size) };
        }
    };
    for i in 0..count {
        for (from, len) in parts {
            let at = i * size + from;
            // SAFETY: inside element `i`.
            unsafe { std::ptr::copy_nonoverlapping(other.add(at), own.add(at), *len) };
        }
    }
}
