//! Vectors of 16 lanes, so that each kernel is written once: as one register of AVX-512, as two of AVX2, or as a plain array.

use std::cell::Cell;
use std::sync::OnceLock;

/// The instructions that kernels are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Path {
    /// Plain Rust.
    Portable,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 with VNNI.
    Avx512,
}

impl Path {
    /// Those that this processor has, the best one last.
    pub fn available() -> Vec<Path> {
        #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
        let mut paths = vec![Path::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c") {
                paths.push(Path::Avx2);
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vnni")
                {
                    paths.push(Path::Avx512);
                }
            }
        }
        paths
    }

    /// What kernels called from this thread use.
    pub fn current() -> Path {
        static BEST: OnceLock<Path> = OnceLock::new();
        FORCED.get().unwrap_or_else(|| *BEST.get_or_init(|| *Path::available().last().unwrap_or(&Path::Portable)))
    }

    /// Runs something with these instructions, for tests and measurements. Without effect if the processor lacks them.
    pub fn force<R>(self, run: impl FnOnce() -> R) -> R {
        struct Restore(Option<Path>);
        impl Drop for Restore {
            fn drop(&mut self) {
                FORCED.set(self.0);
            }
        }
        let _restore = Restore(FORCED.get());
        if Path::available().contains(&self) {
            FORCED.set(Some(self));
        }
        run()
    }
}

thread_local! {
    static FORCED: Cell<Option<Path>> = const { Cell::new(None) };
}

/// Lanes of a vector.
pub const LANES: usize = 16;

/// 16 lanes of `f32`, and 16 of 32 bits that are numbers or four bytes each.
pub trait Simd: Copy {
    type F: Copy;
    type I: Copy;
    /// Vectors that a tile of sums can be of without leaving the registers: 16, or 4.
    const MANY: bool;
    /// What [`Simd::signed`] adds to signed bytes.
    const SIGNED_ZERO: i32;

    /// Asks for bytes that will be read soon.
    fn prefetch(bytes: &[u8]);

    fn splat(x: f32) -> Self::F;
    fn load(from: &[f32; LANES]) -> Self::F;
    fn store(x: Self::F, to: &mut [f32; LANES]);
    fn f16(from: &[u8; 2 * LANES]) -> Self::F;
    fn bf16(from: &[u8; 2 * LANES]) -> Self::F;
    fn add(a: Self::F, b: Self::F) -> Self::F;
    fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// a · b + c
    fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    fn sum(x: Self::F) -> f32;

    fn splat_i(x: i32) -> Self::I;
    fn words(from: &[u8; 4 * LANES]) -> Self::I;
    fn bytes(from: &[u8; LANES]) -> Self::I;
    fn signed_bytes(from: &[u8; LANES]) -> Self::I;
    fn and(a: Self::I, b: Self::I) -> Self::I;
    fn or(a: Self::I, b: Self::I) -> Self::I;
    fn shl(a: Self::I, by: u32) -> Self::I;
    fn shr(a: Self::I, by: u32) -> Self::I;
    fn add_i(a: Self::I, b: Self::I) -> Self::I;
    fn to_f(a: Self::I) -> Self::F;
    /// Adds the products of a lane's four codes, below 128, with the four signed bytes of `x`, none of which is -128.
    fn dot(sum: Self::I, codes: Self::I, x: i32) -> Self::I;
    /// Signed bytes as [`Simd::dot_signed`] takes them.
    fn signed(a: Self::I) -> Self::I;
    /// [`Simd::dot`] with what [`Simd::signed`] gave.
    fn dot_signed(sum: Self::I, codes: Self::I, x: i32) -> Self::I;
}

/// Something to compute with the instructions of a path. `run` and all that it calls must be inlined.
pub trait Kernel {
    type Out;
    fn run<S: Simd>(self) -> Self::Out;
}

/// Runs a kernel with the instructions of a path.
#[inline]
pub fn dispatch<K: Kernel>(path: Path, kernel: K) -> K::Out {
    match path {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Path::current` and `Path::force` give only what the processor was asked for.
        Path::Avx512 => unsafe { super::x86::run_avx512(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Path::Avx2 => unsafe { super::x86::run_avx2(kernel) },
        _ => kernel.run::<Plain>(),
    }
}

/// Rows that a tile of products takes of those left.
#[inline(always)]
pub fn tile_rows<S: Simd>(left: usize) -> usize {
    match left {
        16.. if S::MANY => 16,
        8.. if S::MANY => 8,
        4.. => 4,
        2.. => 2,
        _ => 1,
    }
}

/// Runs a block for each number below a constant of at most 16, written out: sums stay in registers only if their places are constants,
/// and the compiler leaves long loops as they are.
macro_rules! unrolled {
    ($count:expr, |$t:ident| $body:block) => { unrolled!(@ $count, $t, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15) };
    (@ $count:expr, $t:ident, $body:block, $($n:literal)*) => { $(
        if $count > $n {
            let $t: usize = $n;
            $body
        }
    )* };
}
pub(super) use unrolled;

/// Arrays of 16.
#[derive(Clone, Copy)]
pub struct Plain;

#[inline(always)]
fn each<A: Copy, B: Copy, C>(a: [A; LANES], b: [B; LANES], f: impl Fn(A, B) -> C) -> [C; LANES] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Simd for Plain {
    type F = [f32; LANES];
    type I = [i32; LANES];
    const MANY: bool = false;
    const SIGNED_ZERO: i32 = 0;

    #[inline(always)]
    fn prefetch(_: &[u8]) {}
    #[inline(always)]
    fn splat(x: f32) -> Self::F {
        [x; LANES]
    }
    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self::F {
        *from
    }
    #[inline(always)]
    fn store(x: Self::F, to: &mut [f32; LANES]) {
        *to = x;
    }
    #[inline(always)]
    fn f16(from: &[u8; 2 * LANES]) -> Self::F {
        std::array::from_fn(|i| half::f16::from_le_bytes([from[2 * i], from[2 * i + 1]]).to_f32())
    }
    #[inline(always)]
    fn bf16(from: &[u8; 2 * LANES]) -> Self::F {
        std::array::from_fn(|i| f32::from_bits(u32::from(u16::from_le_bytes([from[2 * i], from[2 * i + 1]])) << 16))
    }
    #[inline(always)]
    fn add(a: Self::F, b: Self::F) -> Self::F {
        each(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn mul(a: Self::F, b: Self::F) -> Self::F {
        each(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // Rounded twice: without the instruction `mul_add` is a slow function.
        Self::add(Self::mul(a, b), c)
    }
    #[inline(always)]
    fn sum(x: Self::F) -> f32 {
        x.iter().sum()
    }

    #[inline(always)]
    fn splat_i(x: i32) -> Self::I {
        [x; LANES]
    }
    #[inline(always)]
    fn words(from: &[u8; 4 * LANES]) -> Self::I {
        std::array::from_fn(|i| i32::from_le_bytes([from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]]))
    }
    #[inline(always)]
    fn bytes(from: &[u8; LANES]) -> Self::I {
        from.map(i32::from)
    }
    #[inline(always)]
    fn signed_bytes(from: &[u8; LANES]) -> Self::I {
        from.map(|byte| i32::from(byte as i8))
    }
    #[inline(always)]
    fn and(a: Self::I, b: Self::I) -> Self::I {
        each(a, b, |a, b| a & b)
    }
    #[inline(always)]
    fn or(a: Self::I, b: Self::I) -> Self::I {
        each(a, b, |a, b| a | b)
    }
    #[inline(always)]
    fn shl(a: Self::I, by: u32) -> Self::I {
        a.map(|a| a << by)
    }
    #[inline(always)]
    fn shr(a: Self::I, by: u32) -> Self::I {
        a.map(|a| (a as u32 >> by) as i32)
    }
    #[inline(always)]
    fn add_i(a: Self::I, b: Self::I) -> Self::I {
        each(a, b, i32::wrapping_add)
    }
    #[inline(always)]
    fn to_f(a: Self::I) -> Self::F {
        a.map(|a| a as f32)
    }
    #[inline(always)]
    fn dot(sum: Self::I, codes: Self::I, x: i32) -> Self::I {
        Self::dot_signed(sum, codes, x)
    }
    #[inline(always)]
    fn signed(a: Self::I) -> Self::I {
        a
    }
    #[inline(always)]
    fn dot_signed(sum: Self::I, codes: Self::I, x: i32) -> Self::I {
        let x = x.to_le_bytes().map(|byte| i32::from(byte as i8));
        each(sum, codes, |sum, codes| {
            let codes = codes.to_le_bytes();
            (0..4).fold(sum, |sum, i| sum + i32::from(codes[i] as i8) * x[i])
        })
    }
}
