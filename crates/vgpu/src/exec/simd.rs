//! The CPU's vector instruction sets that handlers are compiled for.

/// A set of CPU vector instructions; each includes the ones before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimdLevel {
    /// The baseline of the compilation target.
    Portable,
    /// AVX2 with FMA.
    Avx2,
    /// AVX-512.
    Avx512,
}

impl SimdLevel {
    /// Returns the level to use: the CPU's best, or a lower one set by `WARPWAVE_VGPU_SIMD=portable|avx2|avx512`.
    pub fn detect() -> SimdLevel {
        let best = SimdLevel::best();
        match std::env::var("WARPWAVE_VGPU_SIMD").as_deref() {
            Ok("portable") => SimdLevel::Portable,
            Ok("avx2") => best.min(SimdLevel::Avx2),
            _ => best,
        }
    }

    /// Returns the best level that this CPU supports.
    pub fn best() -> SimdLevel {
        best()
    }

    /// Returns the name, as `WARPWAVE_VGPU_SIMD` takes it.
    pub fn name(self) -> &'static str {
        match self {
            SimdLevel::Portable => "portable",
            SimdLevel::Avx2 => "avx2",
            SimdLevel::Avx512 => "avx512",
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn best() -> SimdLevel {
    use std::arch::is_x86_feature_detected as has;
    let avx2 = has!("avx2") && has!("fma") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("popcnt");
    let avx512 = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") && has!("avx512cd");
    match (avx2, avx512) {
        (true, true) => SimdLevel::Avx512,
        (true, false) => SimdLevel::Avx2,
        _ => SimdLevel::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn best() -> SimdLevel {
    SimdLevel::Portable
}

/// A handler compiled for each [`SimdLevel`], indexed by it.
pub type SimdVariants = [super::decoded::Handler; 3];

/// A number of dwords as a type.
pub trait DwordCount: 'static {
    /// The number.
    const N: usize;
}

/// `N` dwords.
pub struct Dwords<const N: usize>;

impl<const N: usize> DwordCount for Dwords<N> {
    const N: usize = N;
}

/// `simd_variants!(variants, body, Bound)` defines `variants::<O>()`, which returns the [`SimdVariants`] of `body::<O>`.
///
/// `body` has the signature of a handler and is `#[inline(always)]`, so that each variant compiles it with its own target features.
macro_rules! simd_variants {
    ($variants:ident, $body:ident, $bound:path) => {
        /// Returns the handler for each SIMD level.
        pub fn $variants<O: $bound>() -> $crate::exec::simd::SimdVariants {
            fn portable<O: $bound>(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
                $body::<O>(w, s, e)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
            fn avx2<O: $bound>(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
                $body::<O>(w, s, e)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512cd")]
            fn avx512<O: $bound>(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
                $body::<O>(w, s, e)
            }
            #[cfg(not(target_arch = "x86_64"))]
            use {portable as avx2, portable as avx512};
            [portable::<O>, avx2::<O>, avx512::<O>]
        }
    };
}
pub(crate) use simd_variants;
