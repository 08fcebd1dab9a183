//! MFMA: matrix products over a wavefront, dense and 2:4 sparse.
//!
//! The lane and register of an element follow from the shape; the tests compare them with AMD's matrix instruction calculator.
//! EXEC is ignored: all lanes take part.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::convert::{bf8_to_f32, fp8_to_f32};
use super::{Semantics, single};
use crate::arch::Arch;
use crate::exec::decoded::{OperandType, SourceKind, Step};
use crate::exec::float::{F16, bf16_to_f32, flush32, frexp_exponent};
use crate::exec::wave::{LANES, Wave};
use crate::exec::{Env, Outcome};
use crate::isa::{Field, inst_descs};

/// An element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    F64,
    F32,
    /// f32 truncated to TF32.
    Xf32,
    F16,
    Bf16,
    I8,
    Fp8,
    Bf8,
}

impl Element {
    pub fn bits(self) -> usize {
        match self {
            Element::F64 => 64,
            Element::F32 | Element::Xf32 => 32,
            Element::F16 | Element::Bf16 => 16,
            Element::I8 | Element::Fp8 | Element::Bf8 => 8,
        }
    }
}

/// The shape of a matrix instruction: `blocks` products of m×k by k×n.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub blocks: usize,
    pub a: Element,
    pub b: Element,
    pub sparse: bool,
}

impl Shape {
    /// Parses a mnemonic, given the registers of B.
    fn parse(name: &str, b_registers: usize) -> Option<Shape> {
        let rest = name.strip_prefix("v_mfma_").or_else(|| name.strip_prefix("v_smfmac_"))?;
        let rest = rest.split_once('_')?.1;
        let size_end = rest.rmatch_indices('x').find_map(|(at, _)| {
            let digits = rest[at + 1..].chars().take_while(char::is_ascii_digit).count();
            (digits > 0).then_some(at + 1 + digits)
        })?;
        let mut sizes = rest[..size_end].split('x').map(|n| n.parse::<usize>().ok());
        let (m, n, k) = (sizes.next()??, sizes.next()??, sizes.next()??);
        let types = rest[size_end..].trim_start_matches('_').trim_end_matches("_1k");
        let types = types.split_once("b_").filter(|(count, _)| count.parse::<u32>().is_ok()).map_or(types, |(_, types)| types);
        let element = |text: &str| {
            Some(match text {
                "f64" => Element::F64,
                "f32" => Element::F32,
                "xf32" => Element::Xf32,
                "f16" => Element::F16,
                "bf16" => Element::Bf16,
                "i8" => Element::I8,
                "fp8" => Element::Fp8,
                "bf8" => Element::Bf8,
                _ => return None,
            })
        };
        let (a, b) = types.split_once('_').unwrap_or((types, types));
        let (a, b) = (element(a)?, element(b)?);
        let each = b_registers * 32 / b.bits();
        Some(Shape { m, n, k, blocks: LANES * each / (n * k), a, b, sparse: name.contains("smfmac") })
    }

    /// Returns the elements along k that a lane holds of B (and of A, when it is dense).
    pub fn depth_per_lane(&self) -> usize {
        self.k * self.n * self.blocks / LANES
    }

    /// Returns lane and index of element (i, k) of A, which has `side` rows; the same for (k, j) of B.
    pub fn source(&self, side: usize, i: usize, k: usize, block: usize) -> (usize, usize) {
        let each = self.depth_per_lane();
        (i + side * (block + self.blocks * (k / each)), k % each)
    }

    /// Returns lane and register (register pair for f64) of element (i, j) of the result.
    pub fn result(&self, i: usize, j: usize, block: usize) -> (usize, usize) {
        if self.a == Element::F64 {
            return if self.m == 4 { (j + 4 * block + 16 * i, 0) } else { (j + 16 * (i % 4), i / 4) };
        }
        if self.m == 4 {
            return (j + 4 * block, i);
        }
        let groups = LANES / self.n;
        let per_block = self.m / groups;
        (j + self.n * (i / 4 % groups), block * per_block + i / (4 * groups) * 4 + i % 4)
    }
}

/// Returns all shapes by mnemonic.
pub fn shapes() -> &'static HashMap<&'static str, Shape> {
    static SHAPES: LazyLock<HashMap<&'static str, Shape>> = LazyLock::new(|| {
        inst_descs().iter().filter_map(|row| Some((row.name, Shape::parse(row.name, usize::from(row.registers(Field::Src(1))))?))).collect()
    });
    &SHAPES
}

/// Returns the bits of the element at index `place` of those in the registers from `number` on.
fn element(w: &Wave, number: u16, lane: usize, place: usize, bits: usize) -> u64 {
    let word = |n: usize| u64::from(w.vgpr(number + n as u16).0[lane]);
    match bits {
        64 => word(2 * place) | word(2 * place + 1) << 32,
        32 => word(place),
        _ => word(place * bits / 32) >> (place * bits % 32) & ((1 << bits) - 1),
    }
}

/// Returns the value of a float element.
fn value(bits: u64, ty: Element, flush: bool) -> f64 {
    let half = |value: f32, denormal: bool| if flush && denormal { 0f64.copysign(f64::from(value)) } else { f64::from(value) };
    match ty {
        Element::F64 => f64::from_bits(bits),
        Element::F32 => f64::from(f32::from_bits(bits as u32)),
        // Keep ten mantissa bits; NaN stays NaN.
        Element::Xf32 => {
            let single = f32::from_bits(bits as u32);
            f64::from(if single.is_nan() { single } else { f32::from_bits(bits as u32 & !0x1fff) })
        }
        Element::F16 => half(F16(bits as u16).to_f32(), bits & 0x7c00 == 0),
        Element::Bf16 => half(bf16_to_f32(bits as u16), bits & 0x7f80 == 0),
        Element::Fp8 => f64::from(fp8_to_f32(bits as u8)),
        Element::Bf8 => f64::from(bf8_to_f32(bits as u8)),
        Element::I8 => f64::from(bits as u8 as i8),
    }
}

/// Returns the lane that B is read from under a `blgp` pattern.
fn swizzled(blgp: u8, lane: usize) -> usize {
    match blgp {
        0 => lane,
        1 => lane & 31,
        2 => 32 + (lane & 31),
        3 => (lane + 16) % LANES,
        n => 16 * (usize::from(n) - 4) + (lane & 15),
    }
}

fn multiply(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let Some(&shape) = shapes().get(s.inst.desc.name) else {
        return super::unsupported(w, s, e);
    };
    let Shape { m, n, k, blocks, .. } = shape;
    // gfx90a flushes f16 and bf16 denormals in every `MODE`.
    let flush = e.code.arch == Arch::Gfx90a && matches!(shape.a, Element::F16 | Element::Bf16);
    let (cbsz, abid, blgp) = (s.inst.neg_hi, usize::from(s.inst.op_sel), s.inst.neg);
    let double = shape.a == Element::F64;
    let mut a = vec![0f64; m * k * blocks];
    let mut b = vec![0f64; k * n * blocks];
    for block in 0..blocks {
        // A group of 2^cbsz blocks shares the A of its abid-th block.
        let group = 1usize << cbsz;
        let from = if double || cbsz == 0 || shape.sparse { block } else { block / group * group + abid % group };
        for i in 0..m {
            if shape.sparse {
                sparse_row(w, s, &shape, i, flush, &mut a[i * k..(i + 1) * k]);
                continue;
            }
            for kk in 0..k {
                let (lane, place) = shape.source(m, i, kk, from.min(blocks - 1));
                let x = value(element(w, s.inst.src[0], lane, place, shape.a.bits()), shape.a, flush);
                a[(block * m + i) * k + kk] = if double && blgp & 1 != 0 { -x } else { x };
            }
        }
        for kk in 0..k {
            for j in 0..n {
                let (lane, place) = shape.source(n, j, kk, block);
                let lane = if double { lane } else { swizzled(blgp, lane) };
                let x = value(element(w, s.inst.src[1], lane, place, shape.b.bits()), shape.b, flush);
                b[(block * k + kk) * n + j] = if double && blgp & 2 != 0 { -x } else { x };
            }
        }
    }
    let adder = Adder::new(&shape, e.code.arch, s.inst.desc.name);
    // C: registers, or one constant for every element; sparse forms accumulate into the destination.
    let addend = if shape.sparse { s.inst.dst } else { s.inst.src[2] };
    let constant = (!shape.sparse && s.kind[2] != SourceKind::Vector).then(|| match s.kind[2] {
        SourceKind::Constant => s.constant[2],
        _ => u64::from(w.scalar(addend)),
    });
    let mut out = Vec::with_capacity(m * n * blocks);
    for block in 0..blocks {
        for i in 0..m {
            for j in 0..n {
                let (lane, register) = shape.result(i, j, block);
                let c = constant.unwrap_or_else(|| element(w, addend, lane, register, if double { 64 } else { 32 }));
                let row = &a[(block * m + i) * k..][..k];
                let column = b[block * k * n..].iter().skip(j).step_by(n);
                out.push((lane, register, sum(&shape, adder, row, column, c, double && blgp & 4 != 0)));
            }
        }
    }
    for (lane, register, bits) in out {
        if double {
            w.vgpr_mut(s.inst.dst + 2 * register as u16).0[lane] = bits as u32;
            w.vgpr_mut(s.inst.dst + 2 * register as u16 + 1).0[lane] = (bits >> 32) as u32;
        } else {
            w.vgpr_mut(s.inst.dst + register as u16).0[lane] = bits as u32;
        }
    }
    Outcome::Continue
}

/// How products are summed. The behavior of the matrix cores was determined by experiment (Xie et al., "MMA-Sim", 2025).
#[derive(Clone, Copy)]
pub enum Adder {
    /// gfx908 and gfx90a: groups of products, each summed pairwise, then added to the accumulator. Every addition rounds to f32; gfx90a
    /// flushes denormals.
    Pairs { group: usize, flush: bool },
    /// gfx942: groups of products, truncated 24 bits below the largest, added to the accumulator, then rounded.
    Aligned { group: usize },
    /// One rounding at the end: the behavior of sparse products has not been determined.
    Exact,
}

impl Adder {
    pub fn new(shape: &Shape, arch: Arch, name: &str) -> Adder {
        match (shape.a, arch) {
            _ if shape.sparse => Adder::Exact,
            (Element::Xf32, _) => Adder::Aligned { group: 4 },
            (Element::Fp8 | Element::Bf8, _) => Adder::Aligned { group: 16 },
            (_, Arch::Gfx942) => Adder::Aligned { group: 8.min(shape.k) },
            (Element::Bf16, _) if !name.ends_with("_1k") => Adder::Pairs { group: 2, flush: arch == Arch::Gfx90a },
            _ => Adder::Pairs { group: 4, flush: arch == Arch::Gfx90a },
        }
    }
}

/// Sums products pairwise.
fn in_pairs(terms: &[(f64, f64)], flush: bool) -> f32 {
    let sum = match terms {
        [] => 0.0,
        // A zero is positive.
        [(x, y)] => (x * y + 0.0) as f32,
        _ => {
            let (low, high) = terms.split_at(terms.len() / 2);
            in_pairs(low, flush) + in_pairs(high, flush)
        }
    };
    flushed(sum, flush)
}

fn flushed(value: f32, flush: bool) -> f32 {
    if flush { f32::from_bits(flush32(value.to_bits())) } else { value }
}

/// Returns a power of two.
#[inline(always)]
pub fn power(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// Returns the exponent by which gfx942 aligns a value: denormals have the smallest of their type, 0 has that of f32.
fn exponent(value: f64, ty: Element) -> i32 {
    let least = match ty {
        Element::F16 => -14,
        Element::Fp8 => -7,
        Element::Bf8 => -15,
        _ => -126,
    };
    if value == 0.0 { -126 } else { (frexp_exponent(value) - 1).max(least) }
}

/// Returns the largest exponent of the products, and their truncated sum in units 24 bits below it.
fn cut_off<'a>(terms: impl Iterator<Item = &'a (f64, f64)> + Clone, shape: &Shape) -> (i32, f64) {
    let top = terms.clone().map(|&(x, y)| exponent(x, shape.a) + exponent(y, shape.b)).max().unwrap_or(0);
    (top, terms.map(|&(x, y)| (x * y * power(24 - top)).trunc()).sum())
}

/// Adds a group of products to `sum` as gfx942 does.
pub fn aligned(terms: &[(f64, f64)], sum: f32, shape: &Shape) -> f32 {
    let products = || terms.iter().map(|(x, y)| x * y);
    let all = products().sum::<f64>() + f64::from(sum);
    if !all.is_finite() {
        return all as f32;
    }
    // Overflow of f32 is infinity.
    let limit = power(128);
    match (products().any(|product| product >= limit), products().any(|product| product <= -limit)) {
        (true, true) => return f32::NAN,
        (true, false) => return f32::INFINITY,
        (false, true) => return f32::NEG_INFINITY,
        (false, false) => {}
    }
    let tiny = matches!(shape.a, Element::Fp8 | Element::Bf8);
    let (top, total) = if tiny {
        // Even and odd products separately, then both.
        let ((e0, s0), (e1, s1)) = (cut_off(terms.iter().step_by(2), shape), cut_off(terms.iter().skip(1).step_by(2), shape));
        let top = e0.max(e1);
        (top, (s0 * power(e0 - top)).floor() + (s1 * power(e1 - top)).floor())
    } else {
        cut_off(terms.iter(), shape)
    };
    let addend = exponent(f64::from(sum), Element::F32);
    let highest = top.max(addend);
    let total = (total * power(7 + top - highest)).floor() * power(highest - 31);
    let addend = if tiny && addend < highest - 25 { 0.0 } else { (f64::from(sum) * power(24 - highest)).floor() * power(highest - 24) };
    (total + addend + 0.0) as f32
}

/// Computes a row times a column plus `c`.
fn sum<'a>(shape: &Shape, adder: Adder, row: &[f64], column: impl Iterator<Item = &'a f64>, c: u64, negate: bool) -> u64 {
    let terms = row.iter().zip(column);
    match shape.a {
        Element::F64 => {
            let c = f64::from_bits(c);
            terms.fold(if negate { -c } else { c }, |sum, (x, y)| x.mul_add(*y, sum)).to_bits()
        }
        Element::F32 => {
            let c = f32::from_bits(c as u32);
            u64::from(terms.fold(c, |sum, (x, y)| (*x as f32).mul_add(*y as f32, sum)).to_bits())
        }
        Element::I8 => {
            let products = terms.fold(0i64, |sum, (x, y)| sum + (*x * *y) as i64);
            u64::from((products as u32).wrapping_add(c as u32))
        }
        _ => {
            let c = f32::from_bits(c as u32);
            let mut pairs = [(0.0, 0.0); 64];
            let pairs = &mut pairs[..row.len()];
            pairs.iter_mut().zip(terms).for_each(|(pair, (x, y))| *pair = (*x, *y));
            let total = match adder {
                Adder::Pairs { group, flush } => {
                    pairs.chunks(group).fold(flushed(c, flush), |sum, group| flushed(sum + in_pairs(group, flush), flush))
                }
                Adder::Aligned { group } => pairs.chunks(group).fold(c, |sum, group| aligned(group, sum, shape)),
                Adder::Exact => pairs.iter().fold(f64::from(c), |sum, (x, y)| sum + x * y) as f32,
            };
            u64::from(total.to_bits())
        }
    }
}

/// Expands a row of a sparse A: two of each four elements are stored, and the third source has their indices.
fn sparse_row(w: &Wave, s: &Step, shape: &Shape, i: usize, flush: bool, row: &mut [f64]) {
    let bits = shape.a.bits();
    // A lane holds half as many values as of B, with two index bits each.
    let each = shape.depth_per_lane() / 2;
    let set_bits = 2 * each;
    let sets = 32 / set_bits;
    let set = if s.inst.neg_hi == 0 { usize::from(s.inst.op_sel) % sets } else { 0 };
    row.fill(0.0);
    for group in 0..shape.k / shape.depth_per_lane() {
        let lane = i + shape.m * group;
        let index = w.vgpr(s.inst.src[2]).0[lane] >> (set * set_bits);
        for place in 0..each {
            let within = (index >> (2 * place) & 3) as usize;
            let at = group * shape.depth_per_lane() + place / 2 * 4 + within;
            row[at] += value(element(w, s.inst.src[0], lane, place, bits), shape.a, flush);
        }
    }
}

/// Returns the semantics of the instruction called `name`.
pub fn find(name: &str) -> Option<Semantics> {
    let shape = shapes().get(name)?;
    let c = if shape.a == Element::F64 { OperandType::F64 } else { OperandType::B32 };
    Some(single(multiply, [OperandType::B32, OperandType::B32, c]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_matrix_instruction_has_a_shape_that_fills_its_registers() {
        let mut count = 0;
        for row in inst_descs().iter().filter(|row| row.name.contains("mfma")) {
            let shape = shapes().get(row.name).unwrap_or_else(|| panic!("{}", row.name));
            count += 1;
            let words = if shape.a == Element::F64 { 2 } else { 1 };
            assert_eq!(shape.m * shape.n * shape.blocks * words, LANES * usize::from(row.registers(Field::Dst)), "{}", row.name);
            let a_values = LANES * usize::from(row.registers(Field::Src(0))) * 32 / shape.a.bits();
            let stored = if shape.sparse { 2 } else { 1 };
            assert_eq!(shape.m * shape.k * shape.blocks, a_values * stored, "{}", row.name);
            // Every element of the result has its own lane and register.
            let mut places = std::collections::HashSet::new();
            for block in 0..shape.blocks {
                for i in 0..shape.m {
                    for j in 0..shape.n {
                        assert!(places.insert(shape.result(i, j, block)), "{}", row.name);
                    }
                }
            }
        }
        assert!(count > 60, "{count}");
    }
}
