//! Conversions between all types. Integers wrap; floats convert to integers only in range, because C++ leaves the rest undefined.

use half::{bf16, f16};

use super::case::{Case, Run};
use super::data::{Elem, ROUNDED};
use super::rng::Rng;

/// A type's inputs for a conversion.
trait Source: Elem {
    const NAME: &'static str;
    /// A number within `[low, high]`, of the kind that is wanted: an integer's range, or all there are.
    fn make(rng: &mut Rng, low: f64, high: f64) -> Self;
}

/// A type to convert to.
trait Sink: Elem {
    const NAME: &'static str;
    /// What an integer becomes; `None` where the number itself is the answer.
    fn wrap(value: i128) -> Option<Self>;
    /// What a floating-point number, which fits, becomes.
    fn cut(value: f64) -> Option<Self>;
    /// What conversions from floating-point (or integers, for small floats) may be asked for.
    const RANGE: (f64, f64);
}

macro_rules! integers {
    ($($ty:ident)*) => { $(
        impl Source for $ty {
            const NAME: &'static str = stringify!($ty);
            fn make(rng: &mut Rng, low: f64, high: f64) -> $ty {
                loop {
                    let (least, most) = (low.max(<$ty>::MIN as f64), high.min(<$ty>::MAX as f64));
                    let value: $ty = if rng.below(2) == 0 { rng.any() } else { rng.real(least, most) as $ty };
                    if (low..=high).contains(&(value as f64)) {
                        return value;
                    }
                }
            }
        }
        impl Sink for $ty {
            const NAME: &'static str = stringify!($ty);
            // The nearest f64 below the type's limit.
            const RANGE: (f64, f64) = {
                let most = <$ty>::MAX as f64;
                (<$ty>::MIN as f64, if <$ty>::BITS == 64 { most * (1.0 - 1e-6) } else { most })
            };
            fn wrap(value: i128) -> Option<$ty> {
                Some(value as $ty)
            }
            fn cut(value: f64) -> Option<$ty> {
                Some(value as $ty)
            }
        }
    )* };
}
integers!(u8 i8 u16 i16 u32 i32 u64 i64);

macro_rules! floats {
    ($($ty:ident: $range:expr, $make:expr;)*) => { $(
        impl Source for $ty {
            const NAME: &'static str = stringify!($ty);
            fn make(rng: &mut Rng, low: f64, high: f64) -> $ty {
                let make: fn(f64) -> $ty = $make;
                loop {
                    // As many small numbers as large ones.
                    let size = (rng.real(-8.0, low.abs().max(high).ln())).exp();
                    let value = make(if rng.below(2) == 0 { size } else { -size });
                    if (low..=high).contains(&value.wide()) {
                        return value;
                    }
                }
            }
        }
        impl Sink for $ty {
            const NAME: &'static str = stringify!($ty);
            const RANGE: (f64, f64) = (-$range, $range);
            fn wrap(_: i128) -> Option<$ty> {
                None
            }
            fn cut(_: f64) -> Option<$ty> {
                None
            }
        }
    )* };
}
// Larger integers are rounded twice on their way through f32.
floats! {
    f16: 65504.0, |x| f16::from_f32(x as f32);
    bf16: 16_777_216.0, |x| bf16::from_f32(x as f32);
    f32: 1e30, |x| x as f32;
    f64: 1e30, |x| x;
}

fn is_integer(name: &str) -> bool {
    name.starts_with(['u', 'i'])
}

fn cast<S: Source + Whole, D: Sink>(source: &'static str) -> Case {
    Case::new(format!("cast_{}_{}", S::NAME, D::NAME), source, |rng, _| {
        let n = rng.range(150, 400);
        let everything = is_integer(S::NAME) && !matches!(D::NAME, "f16" | "bf16");
        let (low, high) = if everything { (-1e30, 1e30) } else { D::RANGE };
        let mut x: Vec<S> = (0..n).map(|_| S::make(rng, low, high)).collect();
        if S::NAME == "f64" && D::NAME == "bf16" {
            // Rounded once, not twice.
            x = x.into_iter().map(|x| S::through_f32(x)).collect();
        }
        let run = Run::flat(n).input(&x);
        let exact: Option<Vec<D>> =
            if is_integer(S::NAME) { x.iter().map(|x| D::wrap(x.whole())).collect() } else { x.iter().map(|x| D::cut(x.wide())).collect() };
        match exact {
            Some(expected) => run.exact(&expected).n(n),
            // A 64-bit integer does not fit f64 either; the reference's error is far below f32's, and f64's is compared exactly.
            None => run.close::<D>(x.iter().map(|x| x.wide()).collect(), ROUNDED).n(n),
        }
    })
}

/// An integer's value; floats have none.
trait Whole: Source {
    fn whole(self) -> i128 {
        0
    }
    fn through_f32(self) -> Self {
        self
    }
}
macro_rules! whole {
    ($($ty:ident)*) => { $( impl Whole for $ty { fn whole(self) -> i128 { i128::from(self) } } )* };
}
whole!(u8 i8 u16 i16 u32 i32 u64 i64);
impl Whole for f16 {}
impl Whole for bf16 {}
impl Whole for f32 {}
impl Whole for f64 {
    fn through_f32(self) -> f64 {
        f64::from(self as f32)
    }
}

fn to_all<S: Whole>(source: &'static str) -> Vec<Case> {
    vec![
        cast::<S, u8>(source),
        cast::<S, i8>(source),
        cast::<S, u16>(source),
        cast::<S, i16>(source),
        cast::<S, u32>(source),
        cast::<S, i32>(source),
        cast::<S, u64>(source),
        cast::<S, i64>(source),
        cast::<S, f16>(source),
        cast::<S, bf16>(source),
        cast::<S, f32>(source),
        cast::<S, f64>(source),
    ]
}

pub fn cases() -> Vec<Case> {
    let (integers, floats) = ("casts_integers.cu", "casts_floats.cu");
    let all = [
        to_all::<u8>(integers),
        to_all::<i8>(integers),
        to_all::<u16>(integers),
        to_all::<i16>(integers),
        to_all::<u32>(integers),
        to_all::<i32>(integers),
        to_all::<u64>(integers),
        to_all::<i64>(integers),
        to_all::<f16>(floats),
        to_all::<bf16>(floats),
        to_all::<f32>(floats),
        to_all::<f64>(floats),
    ];
    all.into_iter().flatten().collect()
}
