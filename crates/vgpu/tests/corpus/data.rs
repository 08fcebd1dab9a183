//! Element types and tolerances.

use bytemuck::Pod;
use half::{bf16, f16};

/// A kernel's element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElemType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

/// The Rust type of an [`ElemType`].
pub trait Elem: Pod {
    const KIND: ElemType;
    /// Exact, but for 64-bit integers.
    fn wide(self) -> f64;
}

macro_rules! elements {
    ($($ty:ty = $kind:ident),*) => { $(
        impl Elem for $ty {
            const KIND: ElemType = ElemType::$kind;
            fn wide(self) -> f64 {
                self as f64
            }
        }
    )* };
}
elements!(u8 = U8, i8 = I8, u16 = U16, i16 = I16, u32 = U32, i32 = I32, u64 = U64, i64 = I64, f32 = F32, f64 = F64);

impl Elem for f16 {
    const KIND: ElemType = ElemType::F16;
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

impl Elem for bf16 {
    const KIND: ElemType = ElemType::Bf16;
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

impl ElemType {
    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            ElemType::U8 | ElemType::I8 => 1,
            ElemType::U16 | ElemType::I16 | ElemType::F16 | ElemType::Bf16 => 2,
            ElemType::U32 | ElemType::I32 | ElemType::F32 => 4,
            ElemType::U64 | ElemType::I64 | ElemType::F64 => 8,
        }
    }

    /// Returns an element's value, for comparison and messages.
    pub fn read(self, bytes: &[u8]) -> f64 {
        fn value<T: Elem>(bytes: &[u8]) -> f64 {
            bytemuck::pod_read_unaligned::<T>(bytes).wide()
        }
        match self {
            ElemType::U8 => value::<u8>(bytes),
            ElemType::I8 => value::<i8>(bytes),
            ElemType::U16 => value::<u16>(bytes),
            ElemType::I16 => value::<i16>(bytes),
            ElemType::U32 => value::<u32>(bytes),
            ElemType::I32 => value::<i32>(bytes),
            ElemType::U64 => value::<u64>(bytes),
            ElemType::I64 => value::<i64>(bytes),
            ElemType::F16 => value::<f16>(bytes),
            ElemType::Bf16 => value::<bf16>(bytes),
            ElemType::F32 => value::<f32>(bytes),
            ElemType::F64 => value::<f64>(bytes),
        }
    }

    /// Returns significand bits, the lowest normal exponent and the largest number of a float type.
    fn format(self) -> Option<(i32, i32, f64)> {
        match self {
            ElemType::F16 => Some((11, -14, 65504.0)),
            ElemType::Bf16 => Some((8, -126, f64::from(bf16::MAX))),
            ElemType::F32 => Some((24, -126, f64::from(f32::MAX))),
            ElemType::F64 => Some((53, -1022, f64::MAX)),
            _ => None,
        }
    }

    fn is_float(self) -> bool {
        self.format().is_some()
    }

    /// Returns the ulp at `x`.
    fn ulp(self, x: f64) -> f64 {
        let Some((bits, lowest, _)) = self.format() else { return 1.0 };
        let exponent = if x == 0.0 { lowest } else { exponent_of(x).max(lowest) };
        power_of_two(exponent - bits + 1)
    }
}

/// The exponent of a number: `2^e <= |x| < 2^(e+1)`.
pub fn exponent_of(x: f64) -> i32 {
    let biased = (x.to_bits() >> 52 & 0x7ff) as i32;
    if biased == 0 { exponent_of(x * 2f64.powi(64)) - 64 } else { biased - 1023 }
}

/// `2^e`, denormals too.
pub fn power_of_two(e: i32) -> f64 {
    if e < -1000 { 2f64.powi(-1000) * 2f64.powi(e + 1000) } else { 2f64.powi(e) }
}

/// How far a result may be from the reference.
#[derive(Debug, Clone, Copy)]
pub enum Tolerance {
    /// In ulps of the reference.
    Ulps(f64),
    /// `relative * |reference| + absolute`.
    Near(f64, f64),
}

/// Correctly rounded: half an ulp, plus the reference's own error.
pub const ROUNDED: Tolerance = Tolerance::Ulps(0.5001);

impl Tolerance {
    /// Returns why `got` is out of tolerance; `None` if it is within.
    pub fn refuses(self, kind: ElemType, got: f64, expected: f64) -> Option<String> {
        if expected.is_nan() || got.is_nan() {
            return (expected.is_nan() != got.is_nan()).then(|| "one is not a number".to_owned());
        }
        if got == expected {
            return None;
        }
        let largest = kind.format().map_or(f64::INFINITY, |(_, _, largest)| largest);
        // Where the reference overflows, both the largest number and infinity are accepted.
        let reach = |x: f64| x.clamp(-largest, largest);
        let (got, expected) = if kind.is_float() && expected.abs() >= largest { (reach(got), reach(expected)) } else { (got, expected) };
        let error = (got - expected).abs();
        match self {
            Tolerance::Ulps(most) => {
                let ulps = error / kind.ulp(expected);
                (ulps.is_nan() || ulps > most).then(|| format!("{ulps:.3} ulps away, {most} allowed"))
            }
            Tolerance::Near(relative, absolute) => {
                let most = relative * expected.abs() + absolute;
                (error.is_nan() || error > most).then(|| format!("{error:.3e} away, {most:.3e} allowed"))
            }
        }
    }
}
