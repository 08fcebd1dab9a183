//! Random numbers with a printed, repeatable seed.

use half::{bf16, f16};

/// SplitMix64.
pub struct Rng(u64);

impl Rng {
    /// Creates a generator for one purpose: the same seed and words give the same numbers, whatever else runs.
    pub fn new(seed: u64, words: &[&str]) -> Rng {
        let mut rng = Rng(seed);
        for byte in words.iter().flat_map(|word| word.bytes().chain([0])) {
            rng.0 = rng.0.wrapping_add(u64::from(byte));
            rng.0 = rng.next();
        }
        rng
    }

    /// 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// One of `from..to`.
    pub fn range(&mut self, from: usize, to: usize) -> usize {
        from + self.below(to - from)
    }

    /// In `[low, high)`.
    pub fn real(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * ((self.next() >> 11) as f64 / (1u64 << 53) as f64)
    }

    /// Returns any value of a type, with edge cases more often than by chance.
    pub fn any<T: Any>(&mut self) -> T {
        T::any(self)
    }

    /// Many.
    pub fn many<T: Any>(&mut self, n: usize) -> Vec<T> {
        (0..n).map(|_| self.any()).collect()
    }

    /// Many reals in a range.
    pub fn f32s(&mut self, n: usize, low: f64, high: f64) -> Vec<f32> {
        (0..n).map(|_| self.real(low, high) as f32).collect()
    }

    /// Many reals in a range.
    pub fn f64s(&mut self, n: usize, low: f64, high: f64) -> Vec<f64> {
        (0..n).map(|_| self.real(low, high)).collect()
    }

    /// Many halves in a range.
    pub fn f16s(&mut self, n: usize, low: f64, high: f64) -> Vec<f16> {
        (0..n).map(|_| f16::from_f32(self.real(low, high) as f32)).collect()
    }

    /// Many bfloat16s in a range.
    pub fn bf16s(&mut self, n: usize, low: f64, high: f64) -> Vec<bf16> {
        (0..n).map(|_| bf16::from_f32(self.real(low, high) as f32)).collect()
    }

    /// Many integers below a bound.
    pub fn indexes(&mut self, n: usize, end: usize) -> Vec<i32> {
        (0..n).map(|_| self.below(end) as i32).collect()
    }
}

/// Types with edge cases.
pub trait Any: Sized {
    /// One of them.
    fn any(rng: &mut Rng) -> Self;
}

macro_rules! integers {
    ($($ty:ty),*) => { $(
        impl Any for $ty {
            fn any(rng: &mut Rng) -> $ty {
                match rng.below(8) {
                    0 => [0, 1, <$ty>::MAX, <$ty>::MIN, <$ty>::MAX - 1, 2, 7][rng.below(7)],
                    1 => (rng.next() % 256) as $ty,
                    _ => rng.next() as $ty,
                }
            }
        }
    )* };
}
integers!(u8, i8, u16, i16, u32, i32, u64, i64);
