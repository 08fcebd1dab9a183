//! AVX-512 and AVX2 vectors.

use std::arch::x86_64::*;

use super::simd::{Kernel, LANES, Simd};

/// Runs a kernel with AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
pub fn run_avx512<K: Kernel>(kernel: K) -> K::Out {
    kernel.run::<Avx512>()
}

/// Runs a kernel with AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn run_avx2<K: Kernel>(kernel: K) -> K::Out {
    kernel.run::<Avx2>()
}

/// One 512-bit register.
#[derive(Clone, Copy)]
pub struct Avx512;

/// Two 256-bit registers.
#[derive(Clone, Copy)]
pub struct Avx2;

/// Functions over intrinsics. They are only reached through `dispatch`, which checks that the processor has the instructions.
macro_rules! instructions {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) $(-> $out:ty)? { $($body:tt)* })*) => { $(
        $(#[$doc])*
        #[inline(always)]
        fn $name($($arg: $ty),*) $(-> $out)? {
            // SAFETY: the processor has the instructions, see above; memory is accessed through references to as many bytes as the
            // instruction reads or writes, at any alignment.
            unsafe { $($body)* }
        }
    )* };
}

impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    const WIDE_TILES: bool = true;
    const SIGNED_ZERO: i32 = 128;

    #[inline(always)]
    fn prefetch(bytes: &[u8]) {
        prefetch_lines(bytes);
    }

    instructions! {
        fn splat(x: f32) -> __m512 { _mm512_set1_ps(x) }
        fn load(from: &[f32; LANES]) -> __m512 { _mm512_loadu_ps(from.as_ptr()) }
        fn store(x: __m512, to: &mut [f32; LANES]) { _mm512_storeu_ps(to.as_mut_ptr(), x) }
        fn f16(from: &[u8; 2 * LANES]) -> __m512 { _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())) }
        fn bf16(from: &[u8; 2 * LANES]) -> __m512 {
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast()))))
        }
        fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
        fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
        fn sum(x: __m512) -> f32 { _mm512_reduce_add_ps(x) }
        fn splat_i(x: i32) -> __m512i { _mm512_set1_epi32(x) }
        fn words(from: &[u8; 4 * LANES]) -> __m512i { _mm512_loadu_si512(from.as_ptr().cast()) }
        fn bytes(from: &[u8; LANES]) -> __m512i { _mm512_cvtepu8_epi32(_mm_loadu_si128(from.as_ptr().cast())) }
        fn signed_bytes(from: &[u8; LANES]) -> __m512i { _mm512_cvtepi8_epi32(_mm_loadu_si128(from.as_ptr().cast())) }
        fn and(a: __m512i, b: __m512i) -> __m512i { _mm512_and_si512(a, b) }
        fn or(a: __m512i, b: __m512i) -> __m512i { _mm512_or_si512(a, b) }
        fn shl(a: __m512i, by: u32) -> __m512i { _mm512_sll_epi32(a, _mm_cvtsi32_si128(by as i32)) }
        fn shr(a: __m512i, by: u32) -> __m512i { _mm512_srl_epi32(a, _mm_cvtsi32_si128(by as i32)) }
        fn add_i(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi32(a, b) }
        fn to_f(a: __m512i) -> __m512 { _mm512_cvtepi32_ps(a) }
        fn from_bits(a: __m512i) -> __m512 { _mm512_castsi512_ps(a) }
        fn look_up(table: &[i8; 16], a: __m512i) -> __m512i {
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), a)
        }
        fn dot(sum: __m512i, codes: __m512i, x: i32) -> __m512i { _mm512_dpbusd_epi32(sum, codes, _mm512_set1_epi32(x)) }
        fn signed(a: __m512i) -> __m512i { _mm512_xor_si512(a, _mm512_set1_epi8(-128)) }
        fn dot_signed(sum: __m512i, codes: __m512i, x: i32) -> __m512i { _mm512_dpbusd_epi32(sum, codes, _mm512_set1_epi32(x)) }
    }
}

impl Simd for Avx2 {
    type F = [__m256; 2];
    type I = [__m256i; 2];
    const WIDE_TILES: bool = false;
    const SIGNED_ZERO: i32 = 0;

    #[inline(always)]
    fn prefetch(bytes: &[u8]) {
        prefetch_lines(bytes);
    }
    #[inline(always)]
    fn signed(a: [__m256i; 2]) -> [__m256i; 2] {
        a
    }

    instructions! {
        fn splat(x: f32) -> [__m256; 2] { [_mm256_set1_ps(x); 2] }
        fn load(from: &[f32; LANES]) -> [__m256; 2] { [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))] }
        fn store(x: [__m256; 2], to: &mut [f32; LANES]) {
            _mm256_storeu_ps(to.as_mut_ptr(), x[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), x[1]);
        }
        fn f16(from: &[u8; 2 * LANES]) -> [__m256; 2] {
            let [a, b] = halves_of(from);
            [_mm256_cvtph_ps(a), _mm256_cvtph_ps(b)]
        }
        fn bf16(from: &[u8; 2 * LANES]) -> [__m256; 2] {
            halves_of(from).map(|half| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(half))))
        }
        fn add(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
        fn mul(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
        fn fma(a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
            [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])]
        }
        fn sum(x: [__m256; 2]) -> f32 {
            let x = _mm256_add_ps(x[0], x[1]);
            let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
        }
        fn splat_i(x: i32) -> [__m256i; 2] { [_mm256_set1_epi32(x); 2] }
        fn words(from: &[u8; 4 * LANES]) -> [__m256i; 2] {
            [_mm256_loadu_si256(from.as_ptr().cast()), _mm256_loadu_si256(from.as_ptr().add(32).cast())]
        }
        fn bytes(from: &[u8; LANES]) -> [__m256i; 2] {
            let x = _mm_loadu_si128(from.as_ptr().cast());
            [_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(x))]
        }
        fn signed_bytes(from: &[u8; LANES]) -> [__m256i; 2] {
            let x = _mm_loadu_si128(from.as_ptr().cast());
            [_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(x))]
        }
        fn and(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] { [_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])] }
        fn or(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] { [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])] }
        fn shl(a: [__m256i; 2], by: u32) -> [__m256i; 2] {
            let by = _mm_cvtsi32_si128(by as i32);
            [_mm256_sll_epi32(a[0], by), _mm256_sll_epi32(a[1], by)]
        }
        fn shr(a: [__m256i; 2], by: u32) -> [__m256i; 2] {
            let by = _mm_cvtsi32_si128(by as i32);
            [_mm256_srl_epi32(a[0], by), _mm256_srl_epi32(a[1], by)]
        }
        fn add_i(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] { [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])] }
        fn to_f(a: [__m256i; 2]) -> [__m256; 2] { [_mm256_cvtepi32_ps(a[0]), _mm256_cvtepi32_ps(a[1])] }
        fn from_bits(a: [__m256i; 2]) -> [__m256; 2] { [_mm256_castsi256_ps(a[0]), _mm256_castsi256_ps(a[1])] }
        fn look_up(table: &[i8; 16], a: [__m256i; 2]) -> [__m256i; 2] {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            [_mm256_shuffle_epi8(table, a[0]), _mm256_shuffle_epi8(table, a[1])]
        }
        // Two products of a code below 128 and a byte fit in 16 bits.
        fn dot(sum: [__m256i; 2], codes: [__m256i; 2], x: i32) -> [__m256i; 2] {
            let (x, ones) = (_mm256_set1_epi32(x), _mm256_set1_epi16(1));
            let pairs = [_mm256_maddubs_epi16(codes[0], x), _mm256_maddubs_epi16(codes[1], x)];
            [
                _mm256_add_epi32(sum[0], _mm256_madd_epi16(pairs[0], ones)),
                _mm256_add_epi32(sum[1], _mm256_madd_epi16(pairs[1], ones)),
            ]
        }
        // |codes| times bytes that carry the sign of the product: twice 128 · 127 still fits in 16 bits.
        fn dot_signed(sum: [__m256i; 2], codes: [__m256i; 2], x: i32) -> [__m256i; 2] {
            let (x, ones) = (_mm256_set1_epi32(x), _mm256_set1_epi16(1));
            let pairs = codes.map(|codes| _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes)));
            [
                _mm256_add_epi32(sum[0], _mm256_madd_epi16(pairs[0], ones)),
                _mm256_add_epi32(sum[1], _mm256_madd_epi16(pairs[1], ones)),
            ]
        }
    }
}

instructions! {
    fn prefetch_lines(bytes: &[u8]) {
        for line in bytes.chunks(64) {
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
    }
    fn halves_of(from: &[u8; 2 * LANES]) -> [__m128i; 2] {
        [_mm_loadu_si128(from.as_ptr().cast()), _mm_loadu_si128(from.as_ptr().add(16).cast())]
    }
}
