//! Vectors of 16 lanes, so that each kernel is written once: one AVX-512 register, two AVX2 registers, or an array.

use std::cell::Cell;
use std::sync::OnceLock;

/// An instruction set that kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Portable Rust.
    Portable,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 with VNNI.
    Avx512,
}

impl Isa {
    /// Returns the instruction sets of this processor, the best one last.
    pub fn available() -> Vec<Isa> {
        #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
        let mut all = vec![Isa::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c") {
                all.push(Isa::Avx2);
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vnni")
                {
                    all.push(Isa::Avx512);
                }
            }
        }
        all
    }

    /// Returns the instruction set that kernels called from this thread use.
    pub fn current() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        FORCED.get().unwrap_or_else(|| *BEST.get_or_init(|| *Isa::available().last().unwrap_or(&Isa::Portable)))
    }

    /// Runs a closure with this instruction set, for tests and benchmarks. No effect if the processor lacks it.
    pub fn force<R>(self, run: impl FnOnce() -> R) -> R {
        struct Restore(Option<Isa>);
        impl Drop for Restore {
            fn drop(&mut self) {
                FORCED.set(self.0);
            }
        }
        let _restore = Restore(FORCED.get());
        if Isa::available().contains(&self) {
            FORCED.set(Some(self));
        }
        run()
    }
}

thread_local! {
    static FORCED: Cell<Option<Isa>> = const { Cell::new(None) };
}

/// Lanes of a vector.
pub const LANES: usize = 16;

/// 16 lanes of `f32`, and 16 lanes of 32 bits that are an `i32` or four bytes each.
pub trait Simd: Copy {
    type F: Copy;
    type I: Copy;
    /// Whether a tile of 16 accumulators fits the registers; otherwise 4 do.
    const WIDE_TILES: bool;
    /// The bias that [`Simd::signed`] adds to signed bytes.
    const SIGNED_ZERO: i32;

    /// Prefetches bytes into the cache.
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
    /// The lanes' bits as `f32`.
    fn from_bits(a: Self::I) -> Self::F;
    /// Looks up each byte, below 16, in a table of signed bytes.
    fn look_up(table: &[i8; 16], a: Self::I) -> Self::I;
    /// Adds the dot product of a lane's four codes, below 128, and the four signed bytes of `x`, none of which is -128.
    fn dot(sum: Self::I, codes: Self::I, x: i32) -> Self::I;
    /// Converts signed bytes to the form of [`Simd::dot_signed`].
    fn signed(a: Self::I) -> Self::I;
    /// [`Simd::dot`] of signed bytes converted by [`Simd::signed`].
    fn dot_signed(sum: Self::I, codes: Self::I, x: i32) -> Self::I;
}

/// A computation that runs with any instruction set. `run` and everything it calls must be inlined.
pub trait Kernel {
    type Out;
    fn run<S: Simd>(self) -> Self::Out;
}

/// Runs a kernel with an instruction set.
#[inline]
pub fn dispatch<K: Kernel>(isa: Isa, kernel: K) -> K::Out {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Isa::current` and `Isa::force` return only instruction sets that the processor reported.
        Isa::Avx512 => unsafe { super::x86::run_avx512(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 => unsafe { super::x86::run_avx2(kernel) },
        _ => kernel.run::<Portable>(),
    }
}

/// Rows of the next tile.
#[inline(always)]
pub fn tile_rows<S: Simd>(left: usize) -> usize {
    match left {
        16.. if S::WIDE_TILES => 16,
        8.. if S::WIDE_TILES => 8,
        4.. => 4,
        2.. => 2,
        _ => 1,
    }
}

/// Unrolls a block for each number below a constant of at most 16: accumulators stay in registers only if their indices are constants,
/// and the compiler does not unroll long loops.
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

/// Arrays of 16 elements.
#[derive(Clone, Copy)]
pub struct Portable;

#[inline(always)]
fn each<A: Copy, B: Copy, C>(a: [A; LANES], b: [B; LANES], f: impl Fn(A, B) -> C) -> [C; LANES] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Simd for Portable {
    type F = [f32; LANES];
    type I = [i32; LANES];
    const WIDE_TILES: bool = false;
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
        // Rounded twice: without an FMA instruction `mul_add` is a slow function call.
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
    fn from_bits(a: Self::I) -> Self::F {
        a.map(|a| f32::from_bits(a as u32))
    }
    #[inline(always)]
    fn look_up(table: &[i8; 16], a: Self::I) -> Self::I {
        a.map(|a| i32::from_le_bytes(a.to_le_bytes().map(|byte| table[usize::from(byte & 15)] as u8)))
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
