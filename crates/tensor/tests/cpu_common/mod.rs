//! What the tests of the CPU's operations share.
#![allow(dead_code)]

use half::f16;
use warpwave_kernels::Quant;
use warpwave_tensor::cpu::{Path, with_threads};

/// GGUF's types.
pub const QUANTS: [Quant; 9] =
    [Quant::Q4_0, Quant::Q4_1, Quant::Q5_0, Quant::Q5_1, Quant::Q8_0, Quant::Q8_1, Quant::Q4K, Quant::Q5K, Quant::Q6K];

/// Numbers that look random.
pub struct Random(u64);

impl Random {
    /// With a seed of its own, which is printed.
    pub fn new(test: &str) -> Random {
        let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64);
        let seed = std::env::var("WARPWAVE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(nanos);
        println!("{test}: WARPWAVE_TEST_SEED={seed}");
        Random(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// About as a normal distribution has them.
    pub fn normal(&mut self) -> f32 {
        let sum: f64 = (0..6).map(|_| self.bits() as f64 / u64::MAX as f64 - 0.5).sum();
        (sum * std::f64::consts::SQRT_2) as f32
    }

    pub fn normals(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.normal()).collect()
    }

    /// Blocks of random codes with scales of a usual size.
    pub fn blocks(&mut self, quant: Quant, count: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..count * quant.block_bytes()).map(|_| self.bits() as u8).collect();
        let halves: &[usize] = match quant {
            Quant::Q4_0 | Quant::Q5_0 | Quant::Q8_0 => &[0],
            Quant::Q6K => &[208],
            _ => &[0, 2],
        };
        for block in bytes.chunks_exact_mut(quant.block_bytes()) {
            for at in halves {
                let half = f16::from_f32(0.01 * self.normal());
                block[*at..at + 2].copy_from_slice(&half.to_le_bytes());
            }
        }
        bytes
    }
}

/// Number `i` of a block, by the format's definition.
pub fn weight(quant: Quant, b: &[u8], i: usize) -> f64 {
    let half = |at: usize| f16::from_le_bytes([b[at], b[at + 1]]).to_f64();
    let nibble = |from: usize, run: usize| {
        let byte = b[from + i / (2 * run) * run + i % run];
        f64::from(if (i / run).is_multiple_of(2) { byte & 15 } else { byte >> 4 })
    };
    let fifth = |from: usize| f64::from(b[from + i / 8] >> (i % 8) & 1) * 16.0;
    let six_bits = |code: f64| {
        let j = i / 32;
        let (d, m) = if j < 4 {
            (b[4 + j] & 63, b[8 + j] & 63)
        } else {
            ((b[8 + j] & 15) | (b[j] >> 6) << 4, (b[8 + j] >> 4) | (b[4 + j] >> 6) << 4)
        };
        half(0) * f64::from(d) * code - half(2) * f64::from(m)
    };
    match quant {
        Quant::Q4_0 => half(0) * (nibble(2, 16) - 8.0),
        Quant::Q4_1 => half(0) * nibble(4, 16) + half(2),
        Quant::Q5_0 => half(0) * (nibble(6, 16) + fifth(2) - 16.0),
        Quant::Q5_1 => half(0) * (nibble(8, 16) + fifth(4)) + half(2),
        Quant::Q8_0 => half(0) * f64::from(b[2 + i] as i8),
        Quant::Q8_1 => half(0) * f64::from(b[4 + i] as i8),
        Quant::Q4K => six_bits(nibble(16, 32)),
        Quant::Q5K => six_bits(nibble(48, 32) + f64::from(b[16 + i % 32] >> (i / 32) & 1) * 16.0),
        Quant::Q6K => {
            let (part, quarter, l) = (i / 128, i / 32 % 4, i % 32);
            let low = b[part * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
            let high = b[128 + part * 32 + l] >> (quarter * 2) & 3;
            half(208) * f64::from(b[192 + i / 16] as i8) * (f64::from(low | high << 4) - 32.0)
        }
        _ => unreachable!(),
    }
}

/// What blocks stand for.
pub fn weights(quant: Quant, data: &[u8]) -> Vec<f64> {
    let blocks = data.chunks_exact(quant.block_bytes());
    blocks.flat_map(|block| (0..quant.block_size()).map(|i| weight(quant, block, i))).collect()
}

/// Runs a test with each path of this processor and with 1 and 2 threads.
pub fn everywhere(test: impl Fn(Path, usize)) {
    for path in Path::available() {
        for threads in [1, 2] {
            path.force(|| with_threads(threads, || test(path, threads)));
        }
    }
}
