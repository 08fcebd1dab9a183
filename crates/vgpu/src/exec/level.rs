//! Which of the CPU's vector instructions the lanes use.

/// A set of vector instructions; each is a superset of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every x86-64 or other CPU has.
    Portable,
    /// AVX2 with FMA.
    Avx2,
    /// AVX-512.
    Avx512,
}

impl Level {
    /// What this CPU has; `WARPWAVE_VGPU_SIMD=portable|avx2|avx512` asks for less.
    pub fn detect() -> Level {
        let best = Level::best();
        match std::env::var("WARPWAVE_VGPU_SIMD").as_deref() {
            Ok("portable") => Level::Portable,
            Ok("avx2") => best.min(Level::Avx2),
            _ => best,
        }
    }

    /// The most this CPU has.
    pub fn best() -> Level {
        best()
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn best() -> Level {
    use std::arch::is_x86_feature_detected as has;
    let avx2 = has!("avx2") && has!("fma") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("popcnt");
    let avx512 = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") && has!("avx512cd");
    match (avx2, avx512) {
        (true, true) => Level::Avx512,
        (true, false) => Level::Avx2,
        _ => Level::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn best() -> Level {
    Level::Portable
}

/// The three forms of a generic handler, by [`Level`].
pub type Forms = [super::code::Handler; 3];

/// How many registers a memory instruction moves, as a type.
pub trait Words: 'static {
    /// The number.
    const N: usize;
}

/// A number of registers.
pub struct Count<const N: usize>;

impl<const N: usize> Words for Count<N> {
    const N: usize = N;
}

/// `forms!(f::<Op>)`: `f` must be an `#[inline(always)]` function of the handler's shape.
macro_rules! leveled {
    ($forms:ident, $body:ident, $bound:path) => {
        /// The handler for each level.
        pub fn $forms<O: $bound>() -> $crate::exec::level::Forms {
            unsafe fn portable<O: $bound>(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
                $body::<O>(w, s, e)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
            unsafe fn avx2<O: $bound>(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
                $body::<O>(w, s, e)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512cd")]
            unsafe fn avx512<O: $bound>(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
                $body::<O>(w, s, e)
            }
            #[cfg(not(target_arch = "x86_64"))]
            use {portable as avx2, portable as avx512};
            [portable::<O>, avx2::<O>, avx512::<O>]
        }
    };
}
pub(crate) use leveled;
