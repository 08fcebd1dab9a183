//! Native code on systems without it: everything is interpreted.

use std::sync::Arc;

use super::decoded::DecodedCode;
use super::simd::SimdLevel;
use super::wave::Wave;
use super::{Env, Outcome};
use crate::arch::WaveSize;

/// The place of interpreted code.
pub struct Interpretation;

/// No native code.
pub struct NativeCode;

impl NativeCode {
    pub fn new(_: usize, _: SimdLevel) -> NativeCode {
        NativeCode
    }

    #[inline]
    pub fn entry(&self, _: usize, _: WaveSize) -> Option<usize> {
        None
    }

    pub fn is_eager(&self) -> bool {
        false
    }

    pub fn begin(&self, _: &DecodedCode, _: usize, _: usize, _: WaveSize) -> Option<Interpretation> {
        None
    }

    pub fn end(&self, _: &Interpretation, _: u64) {}

    pub fn translate_hot(&self, _: &Arc<DecodedCode>) {}

    pub fn is_enabled(&self) -> bool {
        false
    }

    pub fn translate_now(&self, _: &DecodedCode, _: usize, _: WaveSize) -> Result<(), String> {
        Err("not supported".to_owned())
    }
}

pub fn is_usual(_: &Wave) -> bool {
    false
}

pub fn run(_: usize, _: &mut Wave, _: &mut Env<'_>, _: &mut i64, _: &mut u64) -> Outcome {
    Outcome::Continue
}
