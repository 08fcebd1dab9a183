//! Quantized KV caches: an element is a code of one byte times a scale of `f16`.

use std::sync::OnceLock;

use half::f16;
use warpwave_kernels::{CacheCodes, DType};

use super::values::{f64_to_fp8, fp8_format, fp8_to_f32};

/// Keys or values of (blocks, block size, heads, head_dim).
#[derive(Debug, Clone, Copy)]
pub struct Codes<'a> {
    /// How elements are stored.
    pub kind: CacheCodes,
    /// A byte for each element.
    pub codes: &'a [u8],
    /// Scales of (blocks, block size, heads, [`CacheCodes::groups`]).
    pub scales: &'a [f16],
}

/// A mutable [`Codes`].
pub(super) struct CodesMut<'a> {
    pub kind: CacheCodes,
    pub codes: &'a mut [u8],
    pub scales: &'a mut [f16],
}

/// The largest magnitude of a code.
fn largest_code(kind: CacheCodes) -> f32 {
    match kind {
        CacheCodes::Q8_0 => 127.0,
        CacheCodes::F8E4M3 => 448.0,
    }
}

/// Elements that share a scale.
fn group(kind: CacheCodes, dim: usize) -> usize {
    match kind {
        CacheCodes::Q8_0 => 32,
        CacheCodes::F8E4M3 => dim.max(1),
    }
}

/// The values of all codes of fp8.
fn fp8_values() -> &'static [f32; 256] {
    static VALUES: OnceLock<[f32; 256]> = OnceLock::new();
    VALUES.get_or_init(|| std::array::from_fn(|bits| fp8_to_f32(bits as u8, fp8_format(DType::F8E4M3))))
}

impl CodesMut<'_> {
    /// Quantizes a head of `x.len()` elements, the `number`-th of the cache. A group with a value that is not finite becomes NaN; scales
    /// that exceed `f16` saturate.
    pub(super) fn put(&mut self, number: usize, x: &[f32]) {
        let (dim, size) = (x.len(), group(self.kind, x.len()));
        let groups = x.chunks(size).zip(self.codes[number * dim..][..dim].chunks_mut(size));
        for ((x, codes), to) in groups.zip(&mut self.scales[number * self.kind.groups(dim)..]) {
            // The integer order of magnitudes has NaN last.
            let largest = f32::from_bits(x.iter().map(|x| x.abs().to_bits()).max().unwrap_or(0));
            let scale = match largest.is_finite() {
                true => (largest / largest_code(self.kind)).min(f16::MAX.to_f32()),
                false => f32::NAN,
            };
            match self.kind {
                CacheCodes::Q8_0 => {
                    *to = f16::from_f32(scale);
                    // As in GGUF, codes are of the scale before it is rounded.
                    let code = |x: &f32| if scale > 0.0 { (x / scale).round_ties_even().clamp(-127.0, 127.0) as i8 as u8 } else { 0 };
                    codes.iter_mut().zip(x).for_each(|(code_of, x)| *code_of = code(x));
                }
                CacheCodes::F8E4M3 => {
                    // At least the smallest normal number, so that rounding the scale does not cost precision.
                    *to = f16::from_f32(if scale < f16::MIN_POSITIVE.to_f32() { f16::MIN_POSITIVE.to_f32() } else { scale });
                    let scale = to.to_f32();
                    codes.iter_mut().zip(x).for_each(|(code, x)| *code = f64_to_fp8((x / scale).into(), fp8_format(DType::F8E4M3)));
                }
            }
        }
    }
}

impl Codes<'_> {
    /// Converts the head of `to.len()` elements that begins at element `at`.
    #[inline(always)]
    pub(super) fn get(&self, at: usize, to: &mut [f32]) {
        let (dim, size) = (to.len(), group(self.kind, to.len()));
        let groups = to.chunks_mut(size).zip(self.codes[at..at + dim].chunks(size));
        for ((to, codes), scale) in groups.zip(&self.scales[at / dim * self.kind.groups(dim)..]) {
            let scale = scale.to_f32();
            match self.kind {
                CacheCodes::Q8_0 => to.iter_mut().zip(codes).for_each(|(to, code)| *to = f32::from(*code as i8) * scale),
                CacheCodes::F8E4M3 => {
                    let values = fp8_values();
                    to.iter_mut().zip(codes).for_each(|(to, code)| *to = values[usize::from(*code)] * scale);
                }
            }
        }
    }
}
