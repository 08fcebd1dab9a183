//! Quantization to and from GGUF blocks.

use half::f16;
use warpwave_kernels::Quant;

/// The values that codes of IQ4_NL and IQ4_XS select.
pub(super) const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The values that codes of MXFP4 select, doubled so that they are integers.
pub(super) const MXFP4_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Quantizes elements to blocks. Types with blocks of 32 round to the nearest code; those with blocks of 256 search for the scales of
/// least error, weighted so that large values count more. Blocks with NaN or infinity hold undefined codes.
///
/// # Panics
/// If the slices do not hold the same number of full blocks, or for types whose scales are not in their blocks (`Int8`, `Int4`).
pub fn quantize(quant: Quant, x: &[f32], out: &mut [u8]) {
    check(quant, x.len(), out.len());
    for (x, out) in x.chunks_exact(quant.block_size()).zip(out.chunks_exact_mut(quant.block_bytes())) {
        match quant {
            Quant::Q4_0 => {
                let (d, codes) = symmetric(x, 15);
                put_half(out, 0, d);
                put_nibbles(&mut out[2..], &codes);
            }
            Quant::Q4_1 => {
                let (d, m, codes) = from_minimum(x, 15);
                put_half(out, 0, d);
                put_half(out, 2, m);
                put_nibbles(&mut out[4..], &codes);
            }
            Quant::Q5_0 => {
                let (d, codes) = symmetric(x, 31);
                put_half(out, 0, d);
                put_fifths(&mut out[2..], &codes);
                put_nibbles(&mut out[6..], &codes);
            }
            Quant::Q5_1 => {
                let (d, m, codes) = from_minimum(x, 31);
                put_half(out, 0, d);
                put_half(out, 2, m);
                put_fifths(&mut out[4..], &codes);
                put_nibbles(&mut out[8..], &codes);
            }
            Quant::Q8_0 => {
                let (d, codes) = bytes(x);
                put_half(out, 0, d);
                out[2..].copy_from_slice(&codes.map(|code| code as u8));
            }
            Quant::Q8_1 => {
                let (d, codes) = bytes(x);
                put_half(out, 0, d);
                put_half(out, 2, codes.iter().map(|code| i32::from(*code)).sum::<i32>() as f32 * d);
                out[4..].copy_from_slice(&codes.map(|code| code as u8));
            }
            Quant::Q4K => {
                let codes = put_runs(x, 15, out);
                put_pairs_of_runs(&mut out[16..], &codes);
            }
            Quant::Q5K => {
                let codes = put_runs(x, 31, out);
                for (l, byte) in out[16..48].iter_mut().enumerate() {
                    *byte = (0..8).map(|run| (codes[run * 32 + l] >> 4) << run).sum();
                }
                put_pairs_of_runs(&mut out[48..], &codes);
            }
            Quant::Q6K => put_q6k(x, out),
            Quant::Q2K => put_q2k(x, out),
            Quant::Q3K => put_q3k(x, out),
            Quant::Q8K => put_q8k(x, out),
            Quant::Iq4Nl => {
                let d = search_iq4(x);
                put_half(out, 0, d);
                let factor = inverse(half(out, 0));
                put_nibbles(&mut out[2..], &std::array::from_fn(|i| iq4_code(x[i] * factor)));
            }
            Quant::Iq4Xs => put_iq4_xs(x, out),
            Quant::Mxfp4 => put_mxfp4(x, out),
            _ => unreachable!("checked"),
        }
    }
}

/// Dequantizes blocks.
///
/// # Panics
/// As [`quantize`] does.
pub fn dequantize(quant: Quant, data: &[u8], out: &mut [f32]) {
    check(quant, out.len(), data.len());
    for (b, out) in data.chunks_exact(quant.block_bytes()).zip(out.chunks_exact_mut(quant.block_size())) {
        match quant {
            Quant::Q4_0 => nibbles(&b[2..], &[0; 4], half(b, 0), half(b, 0) * -8.0, out),
            Quant::Q4_1 => nibbles(&b[4..], &[0; 4], half(b, 0), half(b, 2), out),
            Quant::Q5_0 => nibbles(&b[6..], &b[2..6], half(b, 0), half(b, 0) * -16.0, out),
            Quant::Q5_1 => nibbles(&b[8..], &b[4..8], half(b, 0), half(b, 2), out),
            Quant::Q8_0 => signed(&b[2..], half(b, 0), out),
            Quant::Q8_1 => signed(&b[4..], half(b, 0), out),
            Quant::Q4K | Quant::Q5K => {
                let low = if quant == Quant::Q4K { &b[16..] } else { &b[48..] };
                for (run, out) in out.chunks_exact_mut(32).enumerate() {
                    let (d, m) = six_bits(&b[4..16], run);
                    let (d, m) = (half(b, 0) * f32::from(d), -(half(b, 2) * f32::from(m)));
                    for (l, out) in out.iter_mut().enumerate() {
                        let high = if quant == Quant::Q5K { (b[16 + l] >> run & 1) << 4 } else { 0 };
                        *out = d * f32::from((low[run / 2 * 32 + l] >> (run % 2 * 4) & 15) | high) + m;
                    }
                }
            }
            Quant::Q6K => {
                for (run, out) in out.chunks_exact_mut(16).enumerate() {
                    let d = half(b, 208) * f32::from(b[192 + run] as i8);
                    let (part, quarter) = (run / 8, run / 2 % 4);
                    for (l, out) in out.iter_mut().enumerate() {
                        let l = run % 2 * 16 + l;
                        let low = b[part * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
                        let high = b[128 + part * 32 + l] >> (quarter * 2) & 3;
                        *out = d * (f32::from(low | high << 4) - 32.0);
                    }
                }
            }
            Quant::Q2K => {
                for (run, out) in out.chunks_exact_mut(16).enumerate() {
                    let (d, m) = (half(b, 80) * f32::from(b[run] & 15), -(half(b, 82) * f32::from(b[run] >> 4)));
                    for (l, out) in out.iter_mut().enumerate() {
                        *out = d * f32::from(quarter(&b[16..], run, l)) + m;
                    }
                }
            }
            Quant::Q3K => {
                for (run, out) in out.chunks_exact_mut(16).enumerate() {
                    let d = half(b, 108) * f32::from(signed_six_bits(&b[96..], run));
                    for (l, out) in out.iter_mut().enumerate() {
                        let third = b[run % 2 * 16 + l] >> (run / 2) & 1;
                        *out = d * (f32::from(quarter(&b[32..], run, l) | third << 2) - 4.0);
                    }
                }
            }
            Quant::Q8K => signed(&b[4..], f32::from_le_bytes([b[0], b[1], b[2], b[3]]), out),
            Quant::Iq4Nl => looked_up(&IQ4_VALUES, &b[2..], half(b, 0), out),
            Quant::Iq4Xs => {
                for (run, out) in out.chunks_exact_mut(32).enumerate() {
                    let (low, high) = (b[4 + run / 2] >> (run % 2 * 4) & 15, b[2 + run / 4] >> (run % 4 * 2) & 3);
                    looked_up(&IQ4_VALUES, &b[8 + run * 16..], half(b, 0) * (f32::from(low | high << 4) - 32.0), out);
                }
            }
            Quant::Mxfp4 => looked_up(&MXFP4_VALUES, &b[1..], e8m0_half(b[0]), out),
            _ => unreachable!("checked"),
        }
    }
}

fn check(quant: Quant, elements: usize, bytes: usize) {
    assert!(quant.gguf_type().is_some(), "{quant} stores its scales outside its blocks, which is not supported here");
    assert_eq!(quant.row_bytes(elements), Some(bytes), "data length of {elements} {quant} elements in bytes");
}

fn half(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

fn put_half(bytes: &mut [u8], at: usize, value: f32) {
    bytes[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
}

/// Scale and minimum of a run of Q4_K and Q5_K, from its 12 bytes.
pub(super) fn six_bits(b: &[u8], run: usize) -> (u8, u8) {
    if run < 4 {
        (b[run] & 63, b[run + 4] & 63)
    } else {
        ((b[run + 4] & 15) | (b[run - 4] >> 6) << 4, (b[run + 4] >> 4) | (b[run] >> 6) << 4)
    }
}

/// Scale of a run of Q3_K, from its 12 bytes.
fn signed_six_bits(b: &[u8], run: usize) -> i8 {
    let (low, high) = (b[run % 8] >> (run / 8 * 4) & 15, b[8 + run % 4] >> (run / 4 * 2) & 3);
    (low | high << 4) as i8 - 32
}

/// 2-bit code `l` of a run of 16: four runs of 32 share 32 bytes.
fn quarter(b: &[u8], run: usize, l: usize) -> u8 {
    b[run / 8 * 32 + run % 2 * 16 + l] >> (run / 2 % 4 * 2) & 3
}

/// 2^(e - 128): half of what the e8m0 number stands for.
fn e8m0_half(e: u8) -> f32 {
    // The smallest two are subnormal.
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (u32::from(e) - 1) << 23 })
}

fn looked_up(table: &[i8; 16], codes: &[u8], d: f32, out: &mut [f32]) {
    for i in 0..16 {
        out[i] = d * f32::from(table[usize::from(codes[i] & 15)]);
        out[i + 16] = d * f32::from(table[usize::from(codes[i] >> 4)]);
    }
}

fn nibbles(low: &[u8], fifths: &[u8], d: f32, m: f32, out: &mut [f32]) {
    let fifths = u32::from_le_bytes([fifths[0], fifths[1], fifths[2], fifths[3]]);
    for i in 0..16 {
        let code = |nibble: u8, i: usize| f32::from(nibble | ((fifths >> i & 1) as u8) << 4);
        out[i] = d * code(low[i] & 15, i) + m;
        out[i + 16] = d * code(low[i] >> 4, i + 16) + m;
    }
}

fn signed(codes: &[u8], d: f32, out: &mut [f32]) {
    for (out, code) in out.iter_mut().zip(codes) {
        *out = d * f32::from(*code as i8);
    }
}

fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// The element of largest magnitude.
fn largest(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |max: f32, v| if v.abs() > max.abs() { *v } else { max })
}

/// The element of largest magnitude gets the lowest code; ties round up.
fn symmetric(x: &[f32], max: u8) -> (f32, [u8; 32]) {
    let zero = f32::from(max.div_ceil(2));
    let d = largest(x) / -zero;
    let factor = inverse(d);
    (d, std::array::from_fn(|i| ((x[i] * factor + (zero + 0.5)) as u8).min(max)))
}

fn from_minimum(x: &[f32], max: u8) -> (f32, f32, [u8; 32]) {
    let (low, high) = x.iter().fold((f32::MAX, f32::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
    let d = (high - low) / f32::from(max);
    let factor = inverse(d);
    (d, low, std::array::from_fn(|i| (((x[i] - low) * factor + 0.5) as u8).min(max)))
}

fn bytes(x: &[f32]) -> (f32, [i8; 32]) {
    let d = largest(x).abs() / 127.0;
    let factor = inverse(d);
    (d, std::array::from_fn(|i| (x[i] * factor).round() as i8))
}

/// Packs the lower 4 bits of 32 codes into 16 bytes: code i in the low nibble, code i + 16 in the high one.
fn put_nibbles(out: &mut [u8], codes: &[u8; 32]) {
    for i in 0..16 {
        out[i] = (codes[i] & 15) | (codes[i + 16] & 15) << 4;
    }
}

fn put_fifths(out: &mut [u8], codes: &[u8; 32]) {
    for (byte, codes) in out.iter_mut().zip(codes.chunks_exact(8)) {
        *byte = codes.iter().enumerate().map(|(i, code)| (code >> 4 & 1) << i).sum();
    }
}

/// Packs the lower 4 bits of 256 codes: two runs of 32 share 32 bytes.
fn put_pairs_of_runs(out: &mut [u8], codes: &[u8; 256]) {
    for (out, codes) in out.chunks_exact_mut(32).zip(codes.chunks_exact(64)) {
        for (l, byte) in out.iter_mut().enumerate() {
            *byte = (codes[l] & 15) | (codes[l + 32] & 15) << 4;
        }
    }
}

/// Writes the scales of eight runs to the first 16 bytes of a block, and returns the codes for the scales as rounded.
fn put_runs(x: &[f32], max: u8, out: &mut [u8]) -> [u8; 256] {
    let mut lines = [(0f32, 0f32); 8];
    for (line, x) in lines.iter_mut().zip(x.chunks_exact(32)) {
        *line = search_line::<32>(x, f32::from(max));
    }
    let (max_d, max_m) = lines.iter().fold((0f32, 0f32), |(d, m), line| (d.max(line.0), m.max(line.1)));
    let (d, m) = (f16::from_f32(max_d / 63.0), f16::from_f32(max_m / 63.0));
    let part = |value: f32, max: f32| (value * inverse(max / 63.0)).round_ties_even().clamp(0.0, 63.0) as u8;
    let parts = lines.map(|line| (part(line.0, max_d), part(line.1, max_m)));
    put_half(out, 0, d.to_f32());
    put_half(out, 2, m.to_f32());
    for i in 0..4 {
        let ((d, m), (later_d, later_m)) = (parts[i], parts[i + 4]);
        out[4 + i] = d | later_d >> 4 << 6;
        out[8 + i] = m | later_m >> 4 << 6;
        out[12 + i] = (later_d & 15) | later_m << 4;
    }
    let mut codes = [0; 256];
    for (i, code) in codes.iter_mut().enumerate() {
        let scale = d.to_f32() * f32::from(parts[i / 32].0);
        let minimum = m.to_f32() * f32::from(parts[i / 32].1);
        if scale > 0.0 {
            *code = ((x[i] + minimum) / scale).round_ties_even().clamp(0.0, f32::from(max)) as u8;
        }
    }
    codes
}

/// The d and m of least weighted error of d · code - m, over several ranges of codes.
fn search_line<const N: usize>(x: &[f32], max: f32) -> (f32, f32) {
    let (low, high) = x.iter().fold((0f32, x[0]), |(low, high), v| (low.min(*v), high.max(*v)));
    let mut best = (f32::INFINITY, (high - low) / max, -low);
    if high.partial_cmp(&low) != Some(std::cmp::Ordering::Greater) {
        return (best.1, best.2);
    }
    let rms = (x.iter().map(|v| v * v).sum::<f32>() / N as f32).sqrt();
    let weight: [f32; N] = std::array::from_fn(|i| rms + x[i].abs());
    let weights: f32 = weight.iter().sum();
    let values: f32 = weight.iter().zip(x).map(|(w, v)| w * v).sum();
    for step in 0..=20 {
        let factor = (max - 1.0 + 0.1 * step as f32) / (high - low);
        let code: [f32; N] = std::array::from_fn(|i| (factor * (x[i] - low)).round_ties_even().clamp(0.0, max));
        let (mut sum, mut square, mut product) = (0f32, 0f32, 0f32);
        for i in 0..N {
            let weighted = weight[i] * code[i];
            sum += weighted;
            square += weighted * code[i];
            product += weighted * x[i];
        }
        // Least squares through codes and values, with an offset of at max zero; degenerate if all codes are equal.
        let spread = weights * square - sum * sum;
        let (mut slope, mut start) = ((weights * product - values * sum) / spread, (square * values - sum * product) / spread);
        if !(start <= 0.0 && spread > 1e-4 * weights * square) {
            (slope, start) = (product / square, 0.0);
        }
        let error: f32 = (0..N).map(|i| weight[i] * (slope * code[i] + start - x[i]).powi(2)).sum();
        if error < best.0 && slope > 0.0 {
            best = (error, slope, -start);
        }
    }
    (best.1, best.2)
}

fn put_q6k(x: &[f32], out: &mut [u8]) {
    let mut scales = [0f32; 16];
    for (scale, x) in scales.iter_mut().zip(x.chunks_exact(16)) {
        *scale = search_scale(x, 32.0);
    }
    let d = largest(&scales) / -128.0;
    let parts = scales.map(|scale| (scale * inverse(d)).round_ties_even().clamp(-128.0, 127.0) as i8);
    let d = f16::from_f32(d);
    out.fill(0);
    put_half(out, 208, d.to_f32());
    for (i, v) in x.iter().enumerate() {
        let factor = inverse(d.to_f32() * f32::from(parts[i / 16]));
        let code = ((v * factor).round_ties_even().clamp(-32.0, 31.0) as i8 + 32) as u8;
        let (part, quarter, l) = (i / 128, i / 32 % 4, i % 32);
        out[part * 64 + quarter % 2 * 32 + l] |= (code & 15) << (quarter / 2 * 4);
        out[128 + part * 32 + l] |= (code >> 4) << (quarter * 2);
    }
    for (to, part) in out[192..208].iter_mut().zip(parts) {
        *to = part as u8;
    }
}

/// Stores the lower 2 bits of 256 codes: four runs of 32 share 32 bytes.
fn put_quarters(out: &mut [u8], codes: &[u8; 256]) {
    for (out, codes) in out.chunks_exact_mut(32).zip(codes.chunks_exact(128)) {
        for (l, byte) in out.iter_mut().enumerate() {
            *byte = (0..4).map(|run| (codes[run * 32 + l] & 3) << (2 * run)).sum();
        }
    }
}

fn put_q2k(x: &[f32], out: &mut [u8]) {
    let mut lines = [(0f32, 0f32); 16];
    for (line, x) in lines.iter_mut().zip(x.chunks_exact(16)) {
        *line = search_line::<16>(x, 3.0);
    }
    let (max_d, max_m) = lines.iter().fold((0f32, 0f32), |(d, m), line| (d.max(line.0), m.max(line.1)));
    put_half(out, 80, max_d / 15.0);
    put_half(out, 82, max_m / 15.0);
    let part = |value: f32, max: f32| (value * inverse(max / 15.0)).round_ties_even().clamp(0.0, 15.0) as u8;
    let mut codes = [0; 256];
    for (run, line) in lines.iter().enumerate() {
        let (part_d, part_m) = (part(line.0, max_d), part(line.1, max_m));
        out[run] = part_d | part_m << 4;
        let (scale, minimum) = (half(out, 80) * f32::from(part_d), half(out, 82) * f32::from(part_m));
        for (code, x) in codes[run * 16..][..16].iter_mut().zip(&x[run * 16..]) {
            if scale > 0.0 {
                *code = ((x + minimum) / scale).round_ties_even().clamp(0.0, 3.0) as u8;
            }
        }
    }
    put_quarters(&mut out[16..80], &codes);
}

fn put_q3k(x: &[f32], out: &mut [u8]) {
    let mut scales = [0f32; 16];
    for (scale, x) in scales.iter_mut().zip(x.chunks_exact(16)) {
        *scale = search_scale(x, 4.0);
    }
    let d = largest(&scales) / -32.0;
    out.fill(0);
    put_half(out, 108, d);
    let mut codes = [0; 256];
    for (run, scale) in scales.iter().enumerate() {
        let part = (scale * inverse(d)).round_ties_even().clamp(-32.0, 31.0);
        let bits = (part as i8 + 32) as u8;
        out[96 + run % 8] |= (bits & 15) << (run / 8 * 4);
        out[104 + run % 4] |= (bits >> 4) << (run / 4 * 2);
        let factor = inverse(half(out, 108) * part);
        for (l, x) in x[run * 16..][..16].iter().enumerate() {
            let code = ((x * factor).round_ties_even().clamp(-4.0, 3.0) as i8 + 4) as u8;
            codes[run * 16 + l] = code;
            out[run % 2 * 16 + l] |= (code >> 2) << (run / 2);
        }
    }
    put_quarters(&mut out[32..96], &codes);
}

fn put_q8k(x: &[f32], out: &mut [u8]) {
    let max = largest(x);
    let factor = if max == 0.0 { 0.0 } else { -127.0 / max };
    out[..4].copy_from_slice(&inverse(factor).to_le_bytes());
    for (run, x) in x.chunks_exact(16).enumerate() {
        let mut sum = 0i16;
        for (l, x) in x.iter().enumerate() {
            let code = (x * factor).round_ties_even().clamp(-127.0, 127.0) as i8;
            out[4 + run * 16 + l] = code as u8;
            sum += i16::from(code);
        }
        out[260 + 2 * run..][..2].copy_from_slice(&sum.to_le_bytes());
    }
}

/// The largest value's power of two becomes 4; of equally near numbers the smaller is taken.
fn put_mxfp4(x: &[f32], out: &mut [u8]) {
    let power = largest(x).abs().to_bits() >> 23;
    out[0] = power.saturating_sub(2) as u8;
    let d = e8m0_half(out[0]);
    let codes = std::array::from_fn(|i| {
        let code = [0.5, 1.5, 2.5, 3.5, 5.0, 7.0, 10.0].iter().filter(|between| x[i].abs() > *between * d).count() as u8;
        if code > 0 && x[i] < 0.0 { code + 8 } else { code }
    });
    put_nibbles(&mut out[1..], &codes);
}

fn put_iq4_xs(x: &[f32], out: &mut [u8]) {
    let mut scales = [0f32; 8];
    for (scale, x) in scales.iter_mut().zip(x.chunks_exact(32)) {
        *scale = search_iq4(x);
    }
    let d = largest(&scales) / -32.0;
    out.fill(0);
    put_half(out, 0, d);
    for (run, scale) in scales.iter().enumerate() {
        let part = (scale * inverse(d)).round_ties_even().clamp(-32.0, 31.0);
        let bits = (part as i8 + 32) as u8;
        out[2 + run / 4] |= (bits >> 4) << (run % 4 * 2);
        out[4 + run / 2] |= (bits & 15) << (run % 2 * 4);
        let factor = inverse(half(out, 0) * part);
        put_nibbles(&mut out[8 + run * 16..], &std::array::from_fn(|i| iq4_code(x[run * 32 + i] * factor)));
    }
}

/// The code of the nearest of [`IQ4_VALUES`].
fn iq4_code(x: f32) -> u8 {
    let between = |pair: &[i8]| (f32::from(pair[0]) + f32::from(pair[1])) / 2.0;
    IQ4_VALUES.windows(2).filter(|pair| x > between(pair)).count() as u8
}

/// The scale of [`IQ4_VALUES`] of least error weighted by squares, over several values of the largest element.
fn search_iq4(x: &[f32]) -> f32 {
    search(x, -7..=7, |step, v| f32::from(IQ4_VALUES[usize::from(iq4_code((f32::from(step) - 127.0) * v))]))
}

/// The scale of codes from -`zero` to `zero` - 1 of least error weighted by squares, over several ranges.
fn search_scale(x: &[f32], zero: f32) -> f32 {
    search(x, -9..=9, |step, v| (-(zero + 0.1 * f32::from(step)) * v).round_ties_even().clamp(-zero, zero - 1.0))
}

/// The scale of least error weighted by squares, over several ways to encode elements relative to the largest.
fn search(x: &[f32], steps: std::ops::RangeInclusive<i8>, encode: impl Fn(i8, f32) -> f32) -> f32 {
    let max = largest(x);
    let (mut best, mut scale) = (0f32, 0f32);
    if max == 0.0 {
        return 0.0;
    }
    for step in steps {
        let (mut product, mut square) = (0f32, 0f32);
        for v in x {
            // Relative to the largest, so that no square overflows.
            let (size, code) = (v / max, encode(step, v / max));
            product += size * size * size * code;
            square += size * size * code * code;
        }
        let gain = product * product / square;
        if gain > best {
            (best, scale) = (gain, product / square * max);
        }
    }
    scale
}
