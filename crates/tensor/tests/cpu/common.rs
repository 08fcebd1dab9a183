//! Helpers of the CPU tests.

use half::f16;
use warpwave_kernels::Quant;
use warpwave_tensor::cpu::{Isa, with_threads};

/// GGUF quantization types.
pub const QUANTS: [Quant; 9] =
    [Quant::Q4_0, Quant::Q4_1, Quant::Q5_0, Quant::Q5_1, Quant::Q8_0, Quant::Q8_1, Quant::Q4K, Quant::Q5K, Quant::Q6K];

/// Random inputs with a seed of their own, which is printed.
pub struct Random(warpwave_test_support::Random);

impl Random {
    pub fn new(test: &str) -> Random {
        println!("{test}");
        Random(warpwave_test_support::Random::new(warpwave_test_support::seed()))
    }

    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0.below(end)
    }

    pub fn normal(&mut self) -> f32 {
        self.0.normal() as f32
    }

    pub fn normals(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.normal()).collect()
    }

    /// Blocks of random codes with realistic scales.
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

/// Element `i` of a block, by the definition of the format.
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

/// Dequantized blocks.
pub fn weights(quant: Quant, data: &[u8]) -> Vec<f64> {
    let blocks = data.chunks_exact(quant.block_bytes());
    blocks.flat_map(|block| (0..quant.block_size()).map(|i| weight(quant, block, i))).collect()
}

/// Runs a test with each instruction set of this processor, and with 1 and 2 threads.
pub fn everywhere(test: impl Fn(Isa, usize)) {
    for isa in Isa::available() {
        for threads in [1, 2] {
            isa.force(|| with_threads(threads, || test(isa, threads)));
        }
    }
}
