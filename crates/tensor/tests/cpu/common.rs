//! Helpers of the CPU tests.

use half::f16;
use warpwave_kernels::Quant;
use warpwave_tensor::cpu::{Isa, with_threads};

/// GGUF quantization types.
pub const QUANTS: [Quant; 15] = [
    Quant::Q4_0,
    Quant::Q4_1,
    Quant::Q5_0,
    Quant::Q5_1,
    Quant::Q8_0,
    Quant::Q8_1,
    Quant::Q2K,
    Quant::Q3K,
    Quant::Q4K,
    Quant::Q5K,
    Quant::Q6K,
    Quant::Q8K,
    Quant::Iq4Nl,
    Quant::Iq4Xs,
    Quant::Mxfp4,
];

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
            Quant::Q4_0 | Quant::Q5_0 | Quant::Q8_0 | Quant::Iq4Nl | Quant::Iq4Xs => &[0],
            Quant::Q2K => &[80, 82],
            Quant::Q3K => &[108],
            Quant::Q6K => &[208],
            Quant::Q8K | Quant::Mxfp4 => &[],
            _ => &[0, 2],
        };
        for block in bytes.chunks_exact_mut(quant.block_bytes()) {
            for at in halves {
                let half = f16::from_f32(0.01 * self.normal());
                block[*at..at + 2].copy_from_slice(&half.to_le_bytes());
            }
            match quant {
                Quant::Q8K => block[..4].copy_from_slice(&(0.01 * self.normal()).to_le_bytes()),
                Quant::Mxfp4 => block[0] = 110 + self.below(20) as u8,
                _ => {}
            }
        }
        bytes
    }
}

/// The values of IQ4_NL and IQ4_XS.
const IQ4: [f64; 16] = [-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0];

/// Element `i` of a block, by the definition of the format.
pub fn weight(quant: Quant, b: &[u8], i: usize) -> f64 {
    let half = |at: usize| f16::from_le_bytes([b[at], b[at + 1]]).to_f64();
    let nibble = |from: usize, run: usize| {
        let byte = b[from + i / (2 * run) * run + i % run];
        f64::from(if (i / run).is_multiple_of(2) { byte & 15 } else { byte >> 4 })
    };
    let fifth = |from: usize| f64::from(b[from + i / 8] >> (i % 8) & 1) * 16.0;
    let quarter = |from: usize| f64::from(b[from + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3);
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
        Quant::Q2K => half(80) * f64::from(b[i / 16] & 15) * quarter(16) - half(82) * f64::from(b[i / 16] >> 4),
        Quant::Q3K => {
            // 16 low nibbles in 8 bytes, then 16 pairs of bits in 4.
            let (s, third) = (i / 16, f64::from(b[i % 32] >> (i / 32) & 1));
            let part = (b[96 + s % 8] >> (s / 8 * 4) & 15) | (b[104 + s % 4] >> (s / 4 * 2) & 3) << 4;
            half(108) * (f64::from(part) - 32.0) * (quarter(32) + third * 4.0 - 4.0)
        }
        Quant::Q8K => f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]])) * f64::from(b[4 + i] as i8),
        Quant::Iq4Nl => half(0) * IQ4[nibble(2, 16) as usize],
        Quant::Iq4Xs => {
            let (s, high) = (i / 32, u16::from_le_bytes([b[2], b[3]]));
            let part = f64::from(u16::from(b[4 + s / 2] >> (s % 2 * 4) & 15) | (high >> (2 * s) & 3) << 4) - 32.0;
            half(0) * part * IQ4[nibble(8, 16) as usize]
        }
        Quant::Mxfp4 => {
            let code = nibble(1, 16) as u32;
            // e2m1: a sign, two bits of exponent with a bias of 1, one bit of mantissa.
            let (exponent, mantissa) = (code >> 1 & 3, f64::from(code & 1));
            let size = if exponent == 0 { mantissa / 2.0 } else { (1.0 + mantissa / 2.0) * 2f64.powi(exponent as i32 - 1) };
            (if code & 8 == 0 { size } else { -size }) * 2f64.powi(i32::from(b[0]) - 127)
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
