//! Element types of the kernels, and tolerances.
//!
//! On the host every element is an `f64`, which represents every value that the tests use (64-bit integers stay below 2⁵³).

use candle_core::DType;
use half::{bf16, f16};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ty {
    U8,
    U32,
    I16,
    I32,
    I64,
    F8,
    F16,
    Bf16,
    F32,
    F64,
}

/// Type suffixes of kernel names. candle spells fp8 in two ways.
const NAMES: [(&str, Ty); 11] = [
    ("f8_e4m3", Ty::F8),
    ("fp8_e4m3", Ty::F8),
    ("bf16", Ty::Bf16),
    ("f16", Ty::F16),
    ("f32", Ty::F32),
    ("f64", Ty::F64),
    ("u8", Ty::U8),
    ("u32", Ty::U32),
    ("i16", Ty::I16),
    ("i32", Ty::I32),
    ("i64", Ty::I64),
];

impl Ty {
    /// Splits `uexp_f32` into `uexp` and `f32`.
    pub fn at_end(name: &str) -> Option<(&str, Ty)> {
        NAMES.iter().find_map(|(end, ty)| Some((name.strip_suffix(end)?.strip_suffix('_')?, *ty)))
    }

    pub fn named(name: &str) -> Option<Ty> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, ty)| *ty)
    }

    pub fn bytes(self) -> usize {
        match self {
            Ty::U8 | Ty::F8 => 1,
            Ty::I16 | Ty::F16 | Ty::Bf16 => 2,
            Ty::U32 | Ty::I32 | Ty::F32 => 4,
            Ty::I64 | Ty::F64 => 8,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Ty::F8 | Ty::F16 | Ty::Bf16 | Ty::F32 | Ty::F64)
    }

    /// The type in which candle computes the reference: exact for integers, more precise than the kernel for floats.
    pub fn reference(self) -> DType {
        match self {
            Ty::U8 => DType::U8,
            Ty::U32 => DType::U32,
            Ty::I16 | Ty::I32 | Ty::I64 => DType::I64,
            _ => DType::F64,
        }
    }

    /// Machine epsilon, and the smallest positive number.
    fn steps(self) -> (f64, f64) {
        match self {
            Ty::F8 => (2f64.powi(-3), 2f64.powi(-9)),
            Ty::F16 => (2f64.powi(-10), 2f64.powi(-24)),
            Ty::Bf16 => (2f64.powi(-7), 2f64.powi(-133)),
            Ty::F32 => (2f64.powi(-23), 2f64.powi(-149)),
            Ty::F64 => (f64::EPSILON, f64::from_bits(1)),
            _ => (0.0, 0.0),
        }
    }

    /// Machine epsilon.
    pub fn epsilon(self) -> f64 {
        self.steps().0
    }

    /// The ulp at `value`.
    pub fn ulp(self, value: f64) -> f64 {
        let (epsilon, least) = self.steps();
        if value == 0.0 || !value.is_finite() {
            return least;
        }
        (epsilon * 2f64.powi(value.abs().log2().floor() as i32)).max(least)
    }

    /// The largest finite number of the small types.
    pub fn most(self) -> f64 {
        match self {
            Ty::F8 => 448.0,
            Ty::F16 => 65504.0,
            Ty::U8 => 255.0,
            Ty::I16 => 32767.0,
            Ty::I32 => 2147483647.0,
            Ty::U32 => 4294967295.0,
            _ => f64::INFINITY,
        }
    }

    /// Rounds to the type.
    pub fn round(self, value: f64) -> f64 {
        self.decode(&self.encode(&[value]))[0]
    }

    pub fn encode(self, values: &[f64]) -> Vec<u8> {
        let mut out = Vec::with_capacity(values.len() * self.bytes());
        for &v in values {
            match self {
                Ty::U8 => out.push(v as u8),
                Ty::U32 => out.extend((v as u32).to_le_bytes()),
                Ty::I16 => out.extend((v as i16).to_le_bytes()),
                Ty::I32 => out.extend((v as i32).to_le_bytes()),
                Ty::I64 => out.extend((v as i64).to_le_bytes()),
                Ty::F8 => out.push(to_fp8(v)),
                Ty::F16 => out.extend(nearest(v, f16::from_f64(v).to_bits(), |bits| f16::from_bits(bits).to_f64()).to_le_bytes()),
                Ty::Bf16 => out.extend(nearest(v, bf16::from_f64(v).to_bits(), |bits| bf16::from_bits(bits).to_f64()).to_le_bytes()),
                Ty::F32 => out.extend((v as f32).to_le_bytes()),
                Ty::F64 => out.extend(v.to_le_bytes()),
            }
        }
        out
    }

    pub fn decode(self, bytes: &[u8]) -> Vec<f64> {
        let one = |chunk: &[u8]| {
            let mut room = [0; 8];
            room[..chunk.len()].copy_from_slice(chunk);
            let bits = u64::from_le_bytes(room);
            match self {
                Ty::U8 | Ty::U32 => bits as f64,
                Ty::I16 => f64::from(bits as i16),
                Ty::I32 => f64::from(bits as i32),
                Ty::I64 => bits as i64 as f64,
                Ty::F8 => from_fp8(bits as u8),
                Ty::F16 => f16::from_bits(bits as u16).to_f64(),
                Ty::Bf16 => bf16::from_bits(bits as u16).to_f64(),
                Ty::F32 => f64::from(f32::from_bits(bits as u32)),
                Ty::F64 => f64::from_bits(bits),
            }
        };
        bytes.chunks_exact(self.bytes()).map(one).collect()
    }
}

/// Rounds to nearest even by comparing neighbors. `half` looks only at the upper 32 bits of a double, and so mistakes values just above a
/// midpoint for the midpoint.
fn nearest(value: f64, near: u16, number: impl Fn(u16) -> f64) -> u16 {
    let distance = |bits: u16| (number(bits) - value).abs();
    let better = |a: u16, b: u16| distance(b) < distance(a) || distance(a) == distance(b) && a & 1 == 1;
    [near.wrapping_sub(1), near.wrapping_add(1)].into_iter().fold(near, |best, other| if better(best, other) { other } else { best })
}

/// E4M3: 4 exponent bits with bias 7, no infinities, one NaN per sign.
fn from_fp8(bits: u8) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    let size = match exponent {
        0 => fraction * 2f64.powi(-9),
        15 if bits & 7 == 7 => f64::NAN,
        _ => (8.0 + fraction) * 2f64.powi(exponent - 10),
    };
    if bits & 0x80 == 0 { size } else { -size }
}

/// Rounds to nearest even, saturating.
fn to_fp8(value: f64) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    if value.is_nan() {
        return 0x7f;
    }
    let size = value.abs();
    let distance = |bits: u8| ((from_fp8(bits) - size).abs(), bits & 1);
    let nearest = (0..0x7f).min_by(|a, b| distance(*a).partial_cmp(&distance(*b)).expect("no NaN is among them"));
    sign | nearest.expect("there are numbers")
}

/// A tolerance.
#[derive(Debug, Clone, Copy)]
pub enum Near {
    /// Equal, except for signs of zeros and NaN payloads.
    Exact,
    /// Within this many ulps of the result's type.
    Ulps(f64),
    /// Within this distance, plus half an ulp for rounding to the type.
    Within(f64),
}

impl Near {
    pub fn accepts(self, ty: Ty, got: f64, wanted: f64) -> bool {
        let wanted = if ty == Ty::F8 { wanted.clamp(-448.0, 448.0) } else { wanted };
        if got == wanted || got.is_nan() && wanted.is_nan() {
            return true;
        }
        // The reference is in doubles: for doubles it has the same error again.
        let sides = if ty == Ty::F64 { 2.0 } else { 1.0 };
        match self {
            Near::Exact => false,
            Near::Ulps(n) => (got - wanted).abs() <= sides * n * ty.ulp(wanted).max(ty.ulp(got)),
            Near::Within(distance) => (got - wanted).abs() <= sides * (distance + 0.5 * ty.ulp(wanted)),
        }
    }
}

#[test]
fn halves_are_rounded_once() {
    let middle = 1.0 + 2f64.powi(-11);
    let above = middle + 2f64.powi(-50);
    assert_eq!((Ty::F16.round(middle), Ty::F16.round(above)), (1.0, 1.0 + 2f64.powi(-10)));
    assert_eq!((Ty::F16.round(3.0 * middle), Ty::F16.round(0.0), Ty::Bf16.round(-1.0)), (3.0 + 2f64.powi(-9), 0.0, -1.0));
}

#[test]
fn every_fp8_number_comes_back() {
    for bits in (0..=255).filter(|bits| bits & 0x7f != 0x7f) {
        assert_eq!(to_fp8(from_fp8(bits)), bits);
    }
    assert_eq!((to_fp8(1e9), to_fp8(-1e9), from_fp8(0x7e), from_fp8(1)), (0x7e, 0xfe, 448.0, 2f64.powi(-9)));
    // Halfway between 16 and 18, and between 18 and 20.
    assert_eq!((from_fp8(to_fp8(17.0)), from_fp8(to_fp8(19.0))), (16.0, 20.0));
}
