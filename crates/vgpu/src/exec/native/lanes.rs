//! Sixteen lanes in registers of the CPU, for the functions that native code calls.

use std::arch::x86_64::*;

use crate::exec::wave::Lanes;

/// Lanes that are processed together.
pub const GROUP: usize = 16;

/// A dword of each of sixteen lanes.
///
/// # Safety
/// The methods may only be called where the CPU has the vector instructions of the implementation: AVX2 or AVX-512. Pointers are to as
/// many bytes as the method reads or writes, with any alignment.
pub trait Vector: Copy {
    /// Reads adjacent dwords.
    unsafe fn load(from: *const u32) -> Self;
    /// Reads adjacent bytes or words, and extends them.
    unsafe fn load_u8(from: *const u8) -> Self;
    unsafe fn load_i8(from: *const u8) -> Self;
    unsafe fn load_u16(from: *const u8) -> Self;
    unsafe fn load_i16(from: *const u8) -> Self;
    /// Writes adjacent dwords.
    unsafe fn store(self, to: *mut u32);
    /// Writes adjacent dwords whose bit of `bits` is set; `mask` has the same bits as dwords. The others are written as they are: a masked
    /// store would not forward its data to a load that follows.
    unsafe fn store_masked(self, to: *mut u32, bits: u32, mask: *const u32);
    /// Returns a value in all lanes.
    unsafe fn splat(value: u32) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    /// Returns the even and the odd bytes of each dword, as signed 16-bit integers.
    unsafe fn signed_bytes(self) -> [Self; 2];
    /// Multiplies signed 16-bit integers, and adds both products of each dword.
    unsafe fn dot2(self, other: Self) -> Self;
    /// Returns the lanes that are equal, a bit each.
    unsafe fn equal(self, other: Self) -> u32;
    /// Returns the lanes that are greater, unsigned.
    unsafe fn greater(self, other: Self) -> u32;
    /// Returns the first lane's value.
    unsafe fn first(self) -> u32;
    /// Reads a dword at each lane's offset, which is below 2^31.
    unsafe fn gather(self, base: *const u8) -> Self;
    /// Returns for each lane the one of `from` whose number it has; numbers are below 64.
    unsafe fn pick(self, from: &Lanes) -> Self;
    /// Reads two dwords at each lane's offset, both at once.
    unsafe fn gather2(self, base: *const u8) -> [Self; 2];
    /// Reads four dwords at each offset.
    unsafe fn gather4(base: *const u8, offsets: *const u32) -> [Self; 4];
    /// Reads pairs of adjacent dwords, one after the other: the first dwords, and the second ones.
    unsafe fn load2(from: *const u32) -> [Self; 2];
    /// Reads adjacent rows of four dwords.
    unsafe fn load4(from: *const u32) -> [Self; 4];
    /// Writes pairs of dwords.
    unsafe fn store2(words: [Self; 2], to: *mut u32);
    /// Writes the low bytes, or words.
    unsafe fn store_u8(self, to: *mut u8);
    unsafe fn store_u16(self, to: *mut u8);
    /// Makes four adjacent dwords of each lane: the rows of lanes 0, 4, 8, 12, then 1, 5, 9, 13, …
    unsafe fn rows(words: [Self; 4]) -> [[__m128i; 4]; 4];
}

/// AVX-512.
#[derive(Clone, Copy)]
pub struct Wide(__m512i);

/// AVX2.
#[derive(Clone, Copy)]
pub struct Narrow([__m256i; 2]);

/// Transposes 4×4 dwords in each 128 bits.
macro_rules! transposed {
    ($rows:expr, $low32:ident, $high32:ident, $low64:ident, $high64:ident) => {{
        let [a, b, c, d] = $rows;
        let (ab, cd) = ($low32(a, b), $low32(c, d));
        let (ab_high, cd_high) = ($high32(a, b), $high32(c, d));
        [$low64(ab, cd), $high64(ab, cd), $low64(ab_high, cd_high), $high64(ab_high, cd_high)]
    }};
}

/// Reads four dwords at a lane's offset.
///
/// # Safety
/// They must be readable.
#[inline(always)]
unsafe fn row(base: *const u8, offsets: *const u32, lane: usize) -> __m128i {
    // SAFETY: the caller's promise.
    unsafe { _mm_loadu_si128(base.add(offsets.add(lane).read() as usize).cast()) }
}

// The functions are compiled into callers with the CPU's vector instructions: no closures, which would be compiled without.
impl Vector for Wide {
    #[inline(always)]
    unsafe fn load(from: *const u32) -> Wide {
        // SAFETY: the caller's promise.
        unsafe { Wide(_mm512_loadu_si512(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Wide {
        // SAFETY: the caller's promise.
        unsafe { Wide(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> Wide {
        // SAFETY: the caller's promise.
        unsafe { Wide(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_u16(from: *const u8) -> Wide {
        // SAFETY: the caller's promise.
        unsafe { Wide(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_i16(from: *const u8) -> Wide {
        // SAFETY: the caller's promise.
        unsafe { Wide(_mm512_cvtepi16_epi32(_mm256_loadu_si256(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn store_masked(self, to: *mut u32, bits: u32, _: *const u32) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_si512(to.cast(), _mm512_mask_mov_epi32(_mm512_loadu_si512(to.cast()), bits as u16, self.0)) }
    }
    #[inline(always)]
    unsafe fn splat(value: u32) -> Wide {
        // SAFETY: the caller's promise.
        unsafe { Wide(_mm512_set1_epi32(value as i32)) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Wide) -> Wide {
        // SAFETY: the caller's promise.
        unsafe { Wide(_mm512_add_epi32(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn signed_bytes(self) -> [Wide; 2] {
        // SAFETY: the caller's promise.
        unsafe { [Wide(_mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(self.0))), Wide(_mm512_srai_epi16::<8>(self.0))] }
    }
    #[inline(always)]
    unsafe fn dot2(self, other: Wide) -> Wide {
        // SAFETY: the caller's promise.
        unsafe { Wide(_mm512_madd_epi16(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Wide) -> Wide {
        // SAFETY: the caller's promise.
        unsafe { Wide(_mm512_sub_epi32(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn equal(self, other: Wide) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_cmpeq_epi32_mask(self.0, other.0).into() }
    }
    #[inline(always)]
    unsafe fn greater(self, other: Wide) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_cmpgt_epu32_mask(self.0, other.0).into() }
    }
    #[inline(always)]
    unsafe fn first(self) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_cvtsi512_si32(self.0) as u32 }
    }
    #[inline(always)]
    unsafe fn gather(self, base: *const u8) -> Wide {
        // SAFETY: the caller's promise.
        unsafe { Wide(_mm512_i32gather_epi32::<1>(self.0, base.cast())) }
    }
    #[inline(always)]
    unsafe fn pick(self, from: &Lanes) -> Wide {
        // SAFETY: the caller's promise.
        unsafe {
            let from = from.0.as_ptr().cast::<__m512i>();
            let low = _mm512_permutex2var_epi32(_mm512_load_si512(from), self.0, _mm512_load_si512(from.add(1)));
            let high = _mm512_permutex2var_epi32(_mm512_load_si512(from.add(2)), self.0, _mm512_load_si512(from.add(3)));
            Wide(_mm512_mask_mov_epi32(low, _mm512_test_epi32_mask(self.0, _mm512_set1_epi32(32)), high))
        }
    }
    #[inline(always)]
    unsafe fn gather2(self, base: *const u8) -> [Wide; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let low = _mm512_i32gather_epi64::<1>(_mm512_castsi512_si256(self.0), base.cast());
            let high = _mm512_i32gather_epi64::<1>(_mm512_extracti64x4_epi64::<1>(self.0), base.cast());
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
            [Wide(_mm512_permutex2var_epi32(low, even, high)), Wide(_mm512_permutex2var_epi32(low, odd, high))]
        }
    }
    #[inline(always)]
    unsafe fn gather4(base: *const u8, offsets: *const u32) -> [Wide; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            let mut rows = [_mm512_setzero_si512(); 4];
            for n in 0..4 {
                let quarter = _mm512_castsi128_si512(row(base, offsets, n));
                let half = _mm512_inserti32x4::<1>(quarter, row(base, offsets, 4 + n));
                let most = _mm512_inserti32x4::<2>(half, row(base, offsets, 8 + n));
                rows[n] = _mm512_inserti32x4::<3>(most, row(base, offsets, 12 + n));
            }
            let [a, b, c, d] =
                transposed!(rows, _mm512_unpacklo_epi32, _mm512_unpackhi_epi32, _mm512_unpacklo_epi64, _mm512_unpackhi_epi64);
            [Wide(a), Wide(b), Wide(c), Wide(d)]
        }
    }
    #[inline(always)]
    unsafe fn load2(from: *const u32) -> [Wide; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let (first, second) = (_mm512_loadu_si512(from.cast()), _mm512_loadu_si512(from.add(16).cast()));
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
            [Wide(_mm512_permutex2var_epi32(first, even, second)), Wide(_mm512_permutex2var_epi32(first, odd, second))]
        }
    }
    #[inline(always)]
    unsafe fn load4(from: *const u32) -> [Wide; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            let mut rows = [_mm512_setzero_si512(); 4];
            for n in 0..4 {
                rows[n] = _mm512_loadu_si512(from.add(16 * n).cast());
            }
            // Two dwords of eight lanes each, then one of sixteen.
            let first = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
            let third = _mm512_or_si512(first, _mm512_set1_epi32(2));
            let (low, high) = (_mm512_permutex2var_epi32(rows[0], first, rows[1]), _mm512_permutex2var_epi32(rows[2], first, rows[3]));
            let (low2, high2) = (_mm512_permutex2var_epi32(rows[0], third, rows[1]), _mm512_permutex2var_epi32(rows[2], third, rows[3]));
            [
                Wide(_mm512_shuffle_i64x2::<0x44>(low, high)),
                Wide(_mm512_shuffle_i64x2::<0xee>(low, high)),
                Wide(_mm512_shuffle_i64x2::<0x44>(low2, high2)),
                Wide(_mm512_shuffle_i64x2::<0xee>(low2, high2)),
            ]
        }
    }
    #[inline(always)]
    unsafe fn store2(words: [Wide; 2], to: *mut u32) {
        // SAFETY: the caller's promise.
        unsafe {
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
            _mm512_storeu_si512(to.cast(), _mm512_permutex2var_epi32(words[0].0, low, words[1].0));
            _mm512_storeu_si512(to.add(16).cast(), _mm512_permutex2var_epi32(words[0].0, high, words[1].0));
        }
    }
    #[inline(always)]
    unsafe fn store_u8(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(self.0)) }
    }
    #[inline(always)]
    unsafe fn store_u16(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(self.0)) }
    }
    #[inline(always)]
    unsafe fn rows(words: [Wide; 4]) -> [[__m128i; 4]; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            let words = [words[0].0, words[1].0, words[2].0, words[3].0];
            let rows = transposed!(words, _mm512_unpacklo_epi32, _mm512_unpackhi_epi32, _mm512_unpacklo_epi64, _mm512_unpackhi_epi64);
            let mut quarters = [[_mm_setzero_si128(); 4]; 4];
            for n in 0..4 {
                quarters[n] = [
                    _mm512_castsi512_si128(rows[n]),
                    _mm512_extracti32x4_epi32::<1>(rows[n]),
                    _mm512_extracti32x4_epi32::<2>(rows[n]),
                    _mm512_extracti32x4_epi32::<3>(rows[n]),
                ];
            }
            quarters
        }
    }
}

impl Narrow {
    #[inline(always)]
    unsafe fn bits(low: __m256i, high: __m256i) -> u32 {
        // SAFETY: the caller's promise.
        let (low, high) = unsafe { (_mm256_movemask_ps(_mm256_castsi256_ps(low)), _mm256_movemask_ps(_mm256_castsi256_ps(high))) };
        (low | high << 8) as u32
    }
    /// Returns the lanes' bits of `mask`, which are at most 16, as words.
    #[inline(always)]
    unsafe fn low_words(self, mask: u32) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe {
            let mask = _mm256_set1_epi32(mask as i32);
            let packed = _mm256_packus_epi32(_mm256_and_si256(self.0[0], mask), _mm256_and_si256(self.0[1], mask));
            _mm256_permute4x64_epi64::<0xd8>(packed)
        }
    }
    /// Compares signed values.
    #[inline(always)]
    unsafe fn greater_signed(self, other: Narrow) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { Narrow::bits(_mm256_cmpgt_epi32(self.0[0], other.0[0]), _mm256_cmpgt_epi32(self.0[1], other.0[1])) }
    }
}

impl Vector for Narrow {
    #[inline(always)]
    unsafe fn load(from: *const u32) -> Narrow {
        // SAFETY: the caller's promise.
        unsafe { Narrow([_mm256_loadu_si256(from.add(0).cast()), _mm256_loadu_si256(from.add(8).cast())]) }
    }
    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Narrow {
        // SAFETY: the caller's promise.
        unsafe {
            Narrow([_mm256_cvtepu8_epi32(_mm_loadl_epi64(from.add(0).cast())), _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.add(8).cast()))])
        }
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> Narrow {
        // SAFETY: the caller's promise.
        unsafe {
            Narrow([_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.add(0).cast())), _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.add(8).cast()))])
        }
    }
    #[inline(always)]
    unsafe fn load_u16(from: *const u8) -> Narrow {
        // SAFETY: the caller's promise.
        unsafe {
            Narrow([
                _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(0).cast())),
                _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(16).cast())),
            ])
        }
    }
    #[inline(always)]
    unsafe fn load_i16(from: *const u8) -> Narrow {
        // SAFETY: the caller's promise.
        unsafe {
            Narrow([
                _mm256_cvtepi16_epi32(_mm_loadu_si128(from.add(0).cast())),
                _mm256_cvtepi16_epi32(_mm_loadu_si128(from.add(16).cast())),
            ])
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        for n in 0..2 {
            // SAFETY: the caller's promise.
            unsafe { _mm256_storeu_si256(to.add(8 * n).cast(), self.0[n]) };
        }
    }
    #[inline(always)]
    unsafe fn store_masked(self, to: *mut u32, _: u32, mask: *const u32) {
        for n in 0..2 {
            // SAFETY: the caller's promise.
            unsafe {
                let (old, mask) = (_mm256_loadu_si256(to.add(8 * n).cast()), _mm256_loadu_si256(mask.add(8 * n).cast()));
                _mm256_storeu_si256(to.add(8 * n).cast(), _mm256_blendv_epi8(old, self.0[n], mask));
            }
        }
    }
    #[inline(always)]
    unsafe fn splat(value: u32) -> Narrow {
        // SAFETY: the caller's promise.
        Narrow([unsafe { _mm256_set1_epi32(value as i32) }; 2])
    }
    #[inline(always)]
    unsafe fn add(self, other: Narrow) -> Narrow {
        // SAFETY: the caller's promise.
        unsafe { Narrow([_mm256_add_epi32(self.0[0], other.0[0]), _mm256_add_epi32(self.0[1], other.0[1])]) }
    }
    #[inline(always)]
    unsafe fn signed_bytes(self) -> [Narrow; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let [a, b] = self.0;
            let (even_a, even_b) = (_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(a)), _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(b)));
            [Narrow([even_a, even_b]), Narrow([_mm256_srai_epi16::<8>(a), _mm256_srai_epi16::<8>(b)])]
        }
    }
    #[inline(always)]
    unsafe fn dot2(self, other: Narrow) -> Narrow {
        // SAFETY: the caller's promise.
        unsafe { Narrow([_mm256_madd_epi16(self.0[0], other.0[0]), _mm256_madd_epi16(self.0[1], other.0[1])]) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Narrow) -> Narrow {
        // SAFETY: the caller's promise.
        unsafe { Narrow([_mm256_sub_epi32(self.0[0], other.0[0]), _mm256_sub_epi32(self.0[1], other.0[1])]) }
    }
    #[inline(always)]
    unsafe fn equal(self, other: Narrow) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { Narrow::bits(_mm256_cmpeq_epi32(self.0[0], other.0[0]), _mm256_cmpeq_epi32(self.0[1], other.0[1])) }
    }
    #[inline(always)]
    unsafe fn greater(self, other: Narrow) -> u32 {
        // SAFETY: the caller's promise.
        unsafe {
            // There is a signed comparison only.
            let sign = Narrow::splat(0x8000_0000);
            self.sub(sign).greater_signed(other.sub(sign))
        }
    }
    #[inline(always)]
    unsafe fn first(self) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_cvtsi256_si32(self.0[0]) as u32 }
    }
    #[inline(always)]
    unsafe fn gather(self, base: *const u8) -> Narrow {
        // SAFETY: the caller's promise.
        unsafe { Narrow([_mm256_i32gather_epi32::<1>(base.cast(), self.0[0]), _mm256_i32gather_epi32::<1>(base.cast(), self.0[1])]) }
    }
    #[inline(always)]
    unsafe fn pick(self, from: &Lanes) -> Narrow {
        // SAFETY: the caller's promise.
        unsafe {
            let from = from.0.as_ptr().cast::<i32>();
            Narrow([_mm256_i32gather_epi32::<4>(from, self.0[0]), _mm256_i32gather_epi32::<4>(from, self.0[1])])
        }
    }
    #[inline(always)]
    unsafe fn gather2(self, base: *const u8) -> [Narrow; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let mut halves = [[_mm256_setzero_si256(); 2]; 2];
            for n in 0..2 {
                let low = _mm256_i32gather_epi64::<1>(base.cast(), _mm256_castsi256_si128(self.0[n]));
                let high = _mm256_i32gather_epi64::<1>(base.cast(), _mm256_extracti128_si256::<1>(self.0[n]));
                // Even and odd dwords, then the lanes in order.
                let (low, high) = (_mm256_castsi256_ps(low), _mm256_castsi256_ps(high));
                let even = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(low, high));
                let odd = _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(low, high));
                halves[n] = [_mm256_permute4x64_epi64::<0xd8>(even), _mm256_permute4x64_epi64::<0xd8>(odd)];
            }
            let [low, high] = halves;
            [Narrow([low[0], high[0]]), Narrow([low[1], high[1]])]
        }
    }
    #[inline(always)]
    unsafe fn gather4(base: *const u8, offsets: *const u32) -> [Narrow; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            let mut halves = [[_mm256_setzero_si256(); 4]; 2];
            for half in 0..2 {
                let mut rows = [_mm256_setzero_si256(); 4];
                for n in 0..4 {
                    rows[n] = _mm256_set_m128i(row(base, offsets, 8 * half + 4 + n), row(base, offsets, 8 * half + n));
                }
                halves[half] =
                    transposed!(rows, _mm256_unpacklo_epi32, _mm256_unpackhi_epi32, _mm256_unpacklo_epi64, _mm256_unpackhi_epi64);
            }
            let [a, b] = halves;
            [Narrow([a[0], b[0]]), Narrow([a[1], b[1]]), Narrow([a[2], b[2]]), Narrow([a[3], b[3]])]
        }
    }
    #[inline(always)]
    unsafe fn load2(from: *const u32) -> [Narrow; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let mut halves = [[_mm256_setzero_si256(); 2]; 2];
            for n in 0..2 {
                let low = _mm256_loadu_ps(from.add(16 * n).cast());
                let high = _mm256_loadu_ps(from.add(16 * n + 8).cast());
                // Even and odd dwords, then the lanes in order.
                let even = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(low, high));
                let odd = _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(low, high));
                halves[n] = [_mm256_permute4x64_epi64::<0xd8>(even), _mm256_permute4x64_epi64::<0xd8>(odd)];
            }
            let [low, high] = halves;
            [Narrow([low[0], high[0]]), Narrow([low[1], high[1]])]
        }
    }
    #[inline(always)]
    unsafe fn load4(from: *const u32) -> [Narrow; 4] {
        let mut offsets = [0; GROUP];
        for lane in 0..GROUP {
            offsets[lane] = 16 * lane as u32;
        }
        // SAFETY: the caller's promise.
        unsafe { Narrow::gather4(from.cast(), offsets.as_ptr()) }
    }
    #[inline(always)]
    unsafe fn store2(words: [Narrow; 2], to: *mut u32) {
        for n in 0..2 {
            // SAFETY: the caller's promise.
            unsafe {
                let (low, high) =
                    (_mm256_unpacklo_epi32(words[0].0[n], words[1].0[n]), _mm256_unpackhi_epi32(words[0].0[n], words[1].0[n]));
                _mm256_storeu_si256(to.add(16 * n).cast(), _mm256_permute2x128_si256::<0x20>(low, high));
                _mm256_storeu_si256(to.add(16 * n + 8).cast(), _mm256_permute2x128_si256::<0x31>(low, high));
            }
        }
    }
    #[inline(always)]
    unsafe fn store_u8(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            let words = self.low_words(0xff);
            let bytes = _mm256_permute4x64_epi64::<0x08>(_mm256_packus_epi16(words, words));
            _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(bytes));
        }
    }
    #[inline(always)]
    unsafe fn store_u16(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_si256(to.cast(), self.low_words(0xffff)) }
    }
    #[inline(always)]
    unsafe fn rows(words: [Narrow; 4]) -> [[__m128i; 4]; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            let mut quarters = [[_mm_setzero_si128(); 4]; 4];
            for half in 0..2 {
                let words = [words[0].0[half], words[1].0[half], words[2].0[half], words[3].0[half]];
                let rows = transposed!(words, _mm256_unpacklo_epi32, _mm256_unpackhi_epi32, _mm256_unpacklo_epi64, _mm256_unpackhi_epi64);
                for n in 0..4 {
                    quarters[n][2 * half] = _mm256_castsi256_si128(rows[n]);
                    quarters[n][2 * half + 1] = _mm256_extracti128_si256::<1>(rows[n]);
                }
            }
            quarters
        }
    }
}
