//! What blocks stand for and how they are made, number by number.

use half::f16;
use warpwave_kernels::Quant;

/// Quantized rows on the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Varlen {
    pub quant: Quant,
    pub shape: [usize; 2],
    pub codes: Vec<u8>,
    /// Of Int8 as they are, of Int4 what an `f16` holds.
    pub scales: Vec<f32>,
    pub zeros: Option<Vec<u8>>,
}

/// A weight is `scale * code + minimum`.
#[derive(Debug, Clone, Copy)]
pub struct Weight {
    pub scale: f64,
    pub code: f64,
    pub minimum: f64,
}

impl Weight {
    pub fn value(self) -> f64 {
        self.scale * self.code + self.minimum
    }

    /// As large as what it is computed from.
    pub fn size(self) -> f64 {
        (self.scale * self.code).abs() + self.minimum.abs()
    }
}

fn half(bytes: &[u8], at: usize) -> f64 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f64()
}

/// What codes of IQ4_NL and IQ4_XS select.
const IQ4: [f64; 16] = [-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0];

/// Number `i` of a block of GGUF's.
fn weight(quant: Quant, b: &[u8], i: usize) -> Weight {
    // 4 bits of two runs of 32 share 32 bytes, as two of 16 share 16 in the small blocks.
    let nibble = |from: usize, run: usize| {
        let byte = b[from + i / (2 * run) * run + i % run];
        f64::from(if (i / run).is_multiple_of(2) { byte & 15 } else { byte >> 4 })
    };
    let fifth = |from: usize| f64::from(b[from + i / 8] >> (i % 8) & 1) * 16.0;
    let plain = |code: f64| Weight { scale: half(b, 0), code, minimum: 0.0 };
    let with_minimum = |code: f64| Weight { scale: half(b, 0), code, minimum: half(b, 2) };
    let quarter = |from: usize| f64::from(b[from + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3);
    let six_bits = |code: f64| {
        let j = i / 32;
        let (d, m) = if j < 4 {
            (b[4 + j] & 63, b[8 + j] & 63)
        } else {
            ((b[8 + j] & 15) | (b[j] >> 6) << 4, (b[8 + j] >> 4) | (b[4 + j] >> 6) << 4)
        };
        Weight { scale: half(b, 0) * f64::from(d), code, minimum: -half(b, 2) * f64::from(m) }
    };
    match quant {
        Quant::Q4_0 => plain(nibble(2, 16) - 8.0),
        Quant::Q4_1 => with_minimum(nibble(4, 16)),
        Quant::Q5_0 => plain(nibble(6, 16) + fifth(2) - 16.0),
        Quant::Q5_1 => with_minimum(nibble(8, 16) + fifth(4)),
        Quant::Q8_0 => plain(f64::from(b[2 + i] as i8)),
        Quant::Q8_1 => plain(f64::from(b[4 + i] as i8)),
        Quant::Q4K => six_bits(nibble(16, 32)),
        Quant::Q5K => six_bits(nibble(48, 32) + f64::from(b[16 + i % 32] >> (i / 32) & 1) * 16.0),
        Quant::Q6K => {
            let (part, quarter, l) = (i / 128, i / 32 % 4, i % 32);
            let low = b[part * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
            let high = b[128 + part * 32 + l] >> (quarter * 2) & 3;
            let scale = half(b, 208) * f64::from(b[192 + i / 16] as i8);
            Weight { scale, code: f64::from(low | high << 4) - 32.0, minimum: 0.0 }
        }
        Quant::Q2K => {
            let (d, m) = (f64::from(b[i / 16] & 15), f64::from(b[i / 16] >> 4));
            Weight { scale: half(b, 80) * d, code: quarter(16), minimum: -half(b, 82) * m }
        }
        Quant::Q3K => {
            let (s, third) = (i / 16, f64::from(b[i % 32] >> (i / 32) & 1));
            let part = (b[96 + s % 8] >> (s / 8 * 4) & 15) | (b[104 + s % 4] >> (s / 4 * 2) & 3) << 4;
            Weight { scale: half(b, 108) * (f64::from(part) - 32.0), code: quarter(32) + third * 4.0 - 4.0, minimum: 0.0 }
        }
        Quant::Q8K => {
            let scale = f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            Weight { scale, code: f64::from(b[4 + i] as i8), minimum: 0.0 }
        }
        Quant::Iq4Nl => plain(IQ4[nibble(2, 16) as usize]),
        Quant::Iq4Xs => {
            let (s, high) = (i / 32, u16::from_le_bytes([b[2], b[3]]));
            let part = u16::from(b[4 + s / 2] >> (s % 2 * 4) & 15) | (high >> (2 * s) & 3) << 4;
            Weight { scale: half(b, 0) * (f64::from(part) - 32.0), code: IQ4[nibble(8, 16) as usize], minimum: 0.0 }
        }
        Quant::Mxfp4 => {
            let code = nibble(1, 16) as usize;
            let size = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][code % 8];
            Weight { scale: 2f64.powi(i32::from(b[0]) - 127), code: if code < 8 { size } else { -size }, minimum: 0.0 }
        }
        Quant::Int8 | Quant::Int4(_) => unreachable!(),
        _ => unreachable!("a type that this reference does not know"),
    }
}

impl Varlen {
    pub fn weight(&self, row: usize, column: usize) -> Weight {
        let columns = self.shape[1];
        match self.quant {
            Quant::Int8 => {
                Weight { scale: f64::from(self.scales[row]), code: f64::from(self.codes[row * columns + column] as i8), minimum: 0.0 }
            }
            Quant::Int4(group) => {
                let (byte, at) = (self.codes[(row * columns + column) / 32 * 16 + column % 16], (row * columns + column) / group);
                let code = f64::from(if column % 32 < 16 { byte & 15 } else { byte >> 4 });
                let (scale, zero) = (f64::from(self.scales[at]), self.zeros.as_ref().map_or(8, |zeros| zeros[at]));
                Weight { scale, code, minimum: -scale * f64::from(zero) }
            }
            quant => {
                let (size, bytes) = (quant.block_size(), quant.block_bytes());
                let block = &self.codes[(row * columns + column) / size * bytes..][..bytes];
                weight(quant, block, column % size)
            }
        }
    }
}

fn halves(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect()
}

fn nibbles(codes: &[u8]) -> Vec<u8> {
    (0..16).map(|i| codes[i] & 15 | (codes[i + 16] & 15) << 4).collect()
}

fn fifths(codes: &[u8]) -> Vec<u8> {
    (0..4).map(|k| (0..8).map(|i| (codes[8 * k + i] >> 4 & 1) << i).sum()).collect()
}

fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// A block of 32, in the arithmetic of the formats' definition: `f32`, each step rounded.
pub fn pack32(quant: Quant, x: &[f32]) -> Vec<u8> {
    let largest = x.iter().fold(0f32, |most, v| if v.abs() > most.abs() { *v } else { most });
    let (low, high) = x.iter().fold((f32::MAX, f32::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
    let symmetric = |most: i32| -> (f32, Vec<u8>) {
        let zero = (most + 1) / 2;
        let d = largest / -zero as f32;
        (d, x.iter().map(|v| ((v * inverse(d) + (zero as f32 + 0.5)) as i8 as i32).min(most) as u8).collect())
    };
    let above = |most: u8| -> (f32, Vec<u8>) {
        let d = (high - low) / f32::from(most);
        (d, x.iter().map(|v| (((v - low) * inverse(d) + 0.5) as u8).min(most)).collect())
    };
    let d = largest.abs() / 127.0;
    let bytes: Vec<i8> = x.iter().map(|v| (v * inverse(d)).round() as i8).collect();
    let as_bytes = || bytes.iter().map(|code| *code as u8).collect::<Vec<u8>>();
    match quant {
        Quant::Q4_0 => {
            let (d, codes) = symmetric(15);
            [halves(&[d]), nibbles(&codes)].concat()
        }
        Quant::Q5_0 => {
            let (d, codes) = symmetric(31);
            [halves(&[d]), fifths(&codes), nibbles(&codes)].concat()
        }
        Quant::Q4_1 => {
            let (d, codes) = above(15);
            [halves(&[d, low]), nibbles(&codes)].concat()
        }
        Quant::Q5_1 => {
            let (d, codes) = above(31);
            [halves(&[d, low]), fifths(&codes), nibbles(&codes)].concat()
        }
        Quant::Q8_0 => [halves(&[d]), as_bytes()].concat(),
        Quant::Mxfp4 => {
            // 6, the largest number, is half again as large as the power of two of the largest.
            let power = if largest == 0.0 { -127 } else { (f64::from(largest.abs()).log2().floor() as i32 - 2).max(-127) };
            let numbers = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
            let codes: Vec<u8> = x
                .iter()
                .map(|v| {
                    let off = |i: usize| (f64::from(v.abs()) / 2f64.powi(power) - numbers[i]).abs();
                    let code = (0..8).fold(0, |best, i| if off(i) < off(best) { i } else { best }) as u8;
                    if code > 0 && *v < 0.0 { code | 8 } else { code }
                })
                .collect();
            [vec![(power + 127) as u8], nibbles(&codes)].concat()
        }
        Quant::Q8_1 => {
            let sum: i32 = bytes.iter().map(|code| i32::from(*code)).sum();
            [halves(&[d, sum as f32 * d]), as_bytes()].concat()
        }
        _ => unreachable!(),
    }
}

/// A block of Q8_K, in the arithmetic of the format's definition.
pub fn pack_q8k(x: &[f32]) -> Vec<u8> {
    let largest = x.iter().fold(0f32, |most, v| if v.abs() > most.abs() { *v } else { most });
    let factor = if largest == 0.0 { 0.0 } else { -127.0 / largest };
    let codes: Vec<i8> = x.iter().map(|v| (v * factor).round_ties_even().min(127.0) as i8).collect();
    let sums = codes.chunks(16).flat_map(|run| run.iter().map(|code| i16::from(*code)).sum::<i16>().to_le_bytes());
    inverse(factor).to_le_bytes().into_iter().chain(codes.iter().map(|code| *code as u8)).chain(sums).collect()
}

/// A row with one scale of bytes.
pub fn pack_int8(x: &[f32]) -> (Vec<u8>, f32) {
    let d = x.iter().fold(0f32, |most, v| most.max(v.abs())) / 127.0;
    (x.iter().map(|v| (v * inverse(d)).round() as i8 as u8).collect(), d)
}

/// A group of 4-bit codes with its scale and zero.
pub fn pack_int4(x: &[f32], with_zero: bool) -> (Vec<u8>, f16, u8) {
    let (low, high) = x.iter().fold((0f32, 0f32), |(low, high), v| (low.min(*v), high.max(*v)));
    let scale = f16::from_f32(if with_zero { (high - low) / 15.0 } else { (high / 7.0).max(low / -8.0) });
    let factor = inverse(scale.to_f32());
    let zero = if with_zero { (-low * factor).round_ties_even().clamp(0.0, 15.0) } else { 8.0 };
    let code = |v: &f32| v.mul_add(factor, zero).round_ties_even().clamp(0.0, 15.0) as u8;
    let codes: Vec<u8> = x.iter().map(code).collect();
    (codes.chunks(32).flat_map(nibbles).collect(), scale, zero as u8)
}

/// Elements, in a type whose scales are searched, as a plain search makes them: what it stands for, and what an error counts at each number.
pub fn searched(quant: Quant, x: &[f32]) -> Vec<(f64, f64)> {
    let x: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
    let half = |value: f64| f64::from(f16::from_f32(value as f32));
    let weights: Vec<f64> = match quant {
        Quant::Q4K | Quant::Q5K | Quant::Q2K => {
            let run = if quant == Quant::Q2K { 16 } else { 32 };
            let usual = |run: &[f64]| (run.iter().map(|v| v * v).sum::<f64>() / run.len() as f64).sqrt();
            x.chunks(run).flat_map(|run| run.iter().map(|v| usual(run) + v.abs()).collect::<Vec<_>>()).collect()
        }
        _ => x.iter().map(|v| v * v).collect(),
    };
    // Elements of a run, the codes' least, and the least of the scales as stored.
    let signed = match quant {
        Quant::Q6K => Some((16, -32.0, -128.0)),
        Quant::Q3K => Some((16, -4.0, -32.0)),
        Quant::Iq4Xs => Some((32, -127.0, -32.0)),
        Quant::Iq4Nl => Some((32, -127.0, 0.0)),
        _ => None,
    };
    let values: Vec<f64> = if let Some((run, least, part_least)) = signed {
        let code = |v: f64| match quant {
            Quant::Iq4Nl | Quant::Iq4Xs => IQ4.into_iter().fold(IQ4[0], |best, c| if (v - c).abs() < (v - best).abs() { c } else { best }),
            _ => v.round().clamp(least, -least - 1.0),
        };
        let scales: Vec<f64> = x.chunks(run).zip(weights.chunks(run)).map(|(x, w)| symmetric_scale(x, w, least, code)).collect();
        let largest = scales.iter().fold(0f64, |most, v| if v.abs() > most.abs() { *v } else { most });
        let part =
            |scale: f64| if largest == 0.0 { 0.0 } else { (scale * part_least / largest).round().clamp(part_least, -part_least - 1.0) };
        let scale = |i: usize| if part_least == 0.0 { half(scales[i / run]) } else { half(largest / part_least) * part(scales[i / run]) };
        let value = |(i, v): (usize, &f64)| if scale(i) == 0.0 { 0.0 } else { scale(i) * code(v / scale(i)) };
        x.iter().enumerate().map(value).collect()
    } else {
        let (run, most, parts) = match quant {
            Quant::Q2K => (16, 3.0, 15.0),
            Quant::Q4K => (32, 15.0, 63.0),
            _ => (32, 31.0, 63.0),
        };
        let lines: Vec<(f64, f64)> = x.chunks(run).zip(weights.chunks(run)).map(|(x, w)| line(x, w, most)).collect();
        let (most_d, most_m) = lines.iter().fold((0f64, 0f64), |(d, m), line| (d.max(line.0), m.max(line.1)));
        let stored = |value: f64, most: f64| if most == 0.0 { 0.0 } else { half(most / parts) * (value * parts / most).round().min(parts) };
        let value = |(i, v): (usize, &f64)| {
            let (d, m) = (stored(lines[i / run].0, most_d), stored(lines[i / run].1, most_m));
            if d == 0.0 { -m } else { d * ((v + m) / d).round().clamp(0.0, most) - m }
        };
        x.iter().enumerate().map(value).collect()
    };
    values.into_iter().zip(weights).collect()
}

fn symmetric_scale(x: &[f64], weights: &[f64], least: f64, code: impl Fn(f64) -> f64) -> f64 {
    let largest = x.iter().fold(0f64, |most, v| if v.abs() > most.abs() { *v } else { most });
    let mut best = (0.0, 0.0);
    let steps = if least == -127.0 { (7, 1.0) } else { (9, 0.1) };
    for step in -steps.0..=steps.0 {
        let factor = (least - steps.1 * f64::from(step)) / largest;
        let sum = |f: &dyn Fn(f64, f64) -> f64| x.iter().zip(weights).map(|(v, w)| w * f(*v, code(v * factor))).sum::<f64>();
        let (product, square) = (sum(&|v, code| v * code), sum(&|_, code| code * code));
        if product * product / square > best.0 {
            best = (product * product / square, product / square);
        }
    }
    best.1
}

/// Scale and minimum (below which nothing is, as a positive number) of numbers.
fn line(x: &[f64], weights: &[f64], most: f64) -> (f64, f64) {
    let (low, high) = x.iter().fold((0f64, f64::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
    let mut best = (f64::MAX, 0.0, -low);
    if high <= low {
        return (0.0, -low);
    }
    for step in 0..=20 {
        let code = |v: f64| ((v - low) * (most - 1.0 + 0.1 * f64::from(step)) / (high - low)).round().clamp(0.0, most);
        let sum = |f: &dyn Fn(f64, f64) -> f64| x.iter().zip(weights).map(|(v, w)| w * f(*v, code(*v))).sum::<f64>();
        let (n, q, v) = (sum(&|_, _| 1.0), sum(&|_, q| q), sum(&|v, _| v));
        let (qq, qv) = (sum(&|_, q| q * q), sum(&|v, q| q * v));
        let mut start = (qq * v - q * qv) / (n * qq - q * q);
        let mut slope = (n * qv - v * q) / (n * qq - q * q);
        if start > 0.0 {
            (start, slope) = (0.0, qv / qq);
        }
        let error = sum(&|v, q| (slope * q + start - v).powi(2));
        if error < best.0 {
            best = (error, slope, -start);
        }
    }
    (best.1, best.2)
}
