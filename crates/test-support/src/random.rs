//! Random numbers that a seed repeats.

/// A SplitMix64 generator.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator; neighboring seeds give unrelated sequences.
    pub fn new(seed: u64) -> Random {
        let mut random = Random(seed);
        let state = random.next_u64();
        Random(state)
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// Returns an integer in `0..limit`; `limit` must not be 0.
    pub fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next_u64()) * limit as u128) >> 64) as usize
    }

    /// Returns a float in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / 2f64.powi(53)
    }

    /// Returns a float in `[low, high)`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + self.unit() * (high - low)
    }

    /// Returns a float of the normal distribution with mean 0 and variance 1.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Returns one of the items, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_sequence_and_neighbors_differ() {
        let sequence = |seed| {
            (0..8)
                .map({
                    let mut random = Random::new(seed);
                    move |_| random.next_u64()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(sequence(7), sequence(7));
        assert!(sequence(7).iter().zip(sequence(8)).all(|(a, b)| *a != b));
    }

    #[test]
    fn distributions_have_their_moments() {
        let mut random = Random::new(3);
        let n = 100_000;
        let normal: Vec<f64> = (0..n).map(|_| random.normal()).collect();
        let mean = normal.iter().sum::<f64>() / f64::from(n);
        let variance = normal.iter().map(|x| x * x).sum::<f64>() / f64::from(n);
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
        let below: Vec<usize> = (0..n).map(|_| random.below(5)).collect();
        assert!((0..5).all(|value| (18_000..22_000).contains(&below.iter().filter(|one| **one == value).count())));
        assert!((0..n).map(|_| random.uniform(-2.0, 3.0)).all(|x| (-2.0..3.0).contains(&x)));
    }
}
