//! WMMA: matrix products of 16 rows and columns over a wavefront of RDNA 3 and 4, dense and 2:4 sparse.
//!
//! The lane and register of an element follow from the generation, the wave size and the type; the tests compare them with AMD's matrix
//! instruction calculator. EXEC is ignored: all lanes take part. Products are exact and their sum rounds once; how hardware rounds in
//! between is not documented.

use super::convert::{E4M3, E5M2, ocp_to_f32};
use super::{Semantics, single};
use crate::arch::{Arch, Generation, WaveSize};
use crate::exec::decoded::{OperandType, SourceKind, Step};
use crate::exec::float::{F16, bf16_to_f32, f32_to_bf16};
use crate::exec::wave::Wave;
use crate::exec::{Env, Outcome};

/// Rows of A and columns of B.
pub const SIDE: usize = 16;

/// An element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    F32,
    I32,
    F16,
    Bf16,
    Fp8,
    Bf8,
    /// 8 bits; neg says whether they are signed.
    Iu8,
    /// 4 bits; neg says whether they are signed.
    Iu4,
}

impl Element {
    fn parse(name: &str) -> Option<Element> {
        Some(match name {
            "f32" => Element::F32,
            "i32" => Element::I32,
            "f16" => Element::F16,
            "bf16" => Element::Bf16,
            "fp8" => Element::Fp8,
            "bf8" => Element::Bf8,
            "iu8" => Element::Iu8,
            "iu4" => Element::Iu4,
            _ => return None,
        })
    }

    fn bits(self) -> usize {
        match self {
            Element::F32 | Element::I32 => 32,
            Element::F16 | Element::Bf16 => 16,
            Element::Fp8 | Element::Bf8 | Element::Iu8 => 8,
            Element::Iu4 => 4,
        }
    }
}

/// A product of 16×k by k×16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    pub k: usize,
    pub a: Element,
    pub b: Element,
    pub result: Element,
    pub sparse: bool,
}

/// A place in the registers of an operand: the lane, and the index among the elements that it holds.
pub type Place = (usize, usize);

impl Product {
    /// Parses a mnemonic such as `v_wmma_f32_16x16x16_f16` or `v_swmmac_f32_16x16x32_fp8_bf8`.
    pub fn parse(name: &str) -> Option<Product> {
        let sparse = name.starts_with("v_swmmac_");
        let rest = name.strip_prefix("v_wmma_").or_else(|| name.strip_prefix("v_swmmac_"))?;
        let (result, rest) = rest.split_once('_')?;
        let (size, types) = rest.split_once('_')?;
        let (a, b) = types.split_once('_').unwrap_or((types, types));
        Some(Product {
            k: size.rsplit_once('x')?.1.parse().ok()?,
            a: Element::parse(a)?,
            b: Element::parse(b)?,
            result: Element::parse(result)?,
            sparse,
        })
    }

    /// Returns where row (column) `i` of A (B) has its element `k` of `count`. A sparse A counts stored elements.
    pub fn source(i: usize, k: usize, count: usize, ty: Element, arch: Arch, wave_size: WaveSize) -> Place {
        if arch.generation() < Generation::Gfx12 {
            // Every lane of a row has all of it; the lanes above 16 repeat the lower ones.
            return (i, k);
        }
        // In wave32 each half of the lanes has half of the elements: 16-bit types alternate.
        let (group, index) = if ty.bits() == 16 {
            let chunk = count / 4;
            (k / chunk % 2, k / (2 * chunk) * chunk + k % chunk)
        } else {
            (k / (count / 2), k % (count / 2))
        };
        let each = count / 2;
        // In wave64 the upper half of the registers is in the upper half of the lanes.
        if wave_size == WaveSize::Wave64 && each * ty.bits() > 32 {
            (i + SIDE * group + 32 * (index / (each / 2)), index % (each / 2))
        } else {
            (i + SIDE * group, index)
        }
    }

    /// Returns where element (i, j) of the result is. 16-bit results of gfx11 take one half of a register each.
    pub fn result(i: usize, j: usize, arch: Arch, wave_size: WaveSize) -> Place {
        let groups = wave_size.lanes() as usize / SIDE;
        if arch.generation() < Generation::Gfx12 {
            return (j + SIDE * (i % groups), i / groups);
        }
        let (group, index) = (i / 8, i % 8);
        match wave_size {
            WaveSize::Wave32 => (j + SIDE * group, index),
            WaveSize::Wave64 => (j + SIDE * group + 32 * (index / 4), index % 4),
        }
    }
}

/// Returns the bits of an element.
fn element(w: &Wave, number: u16, (lane, index): Place, bits: usize) -> u32 {
    let word = w.vgpr(number + (index * bits / 32) as u16).0[lane];
    if bits == 32 { word } else { word >> (index * bits % 32) & ((1 << bits) - 1) }
}

/// Returns the value of an element of source `n`, with neg applied: to each half of a register, or as the sign of integers.
fn value(s: &Step, n: usize, bits: u32, ty: Element, index: usize) -> f64 {
    let (low, high) = (s.inst.neg >> n & 1, s.inst.neg_hi >> n & 1);
    let flip = u16::from(if index.is_multiple_of(2) { low } else { high }) << 15;
    match ty {
        Element::F16 => f64::from(F16(bits as u16 ^ flip).to_f32()),
        Element::Bf16 => f64::from(bf16_to_f32(bits as u16 ^ flip)),
        Element::Fp8 => f64::from(ocp_to_f32(bits as u8, E4M3)),
        Element::Bf8 => f64::from(ocp_to_f32(bits as u8, E5M2)),
        Element::Iu8 if low != 0 => f64::from(bits as u8 as i8),
        Element::Iu4 if low != 0 => f64::from((bits << 28) as i32 >> 28),
        Element::Iu8 | Element::Iu4 | Element::I32 | Element::F32 => f64::from(bits),
    }
}

/// Fills a row of A; `row` has an element for each k.
fn row_of_a(w: &Wave, s: &Step, e: &Env, product: &Product, i: usize, row: &mut [f64]) {
    let arch = e.code.arch;
    let bits = product.a.bits();
    let stored = if product.sparse { product.k / 2 } else { product.k };
    for k in 0..stored {
        let place = Product::source(i, k, stored, product.a, arch, w.wave_size);
        let number = value(s, 0, element(w, s.inst.src[0], place, bits), product.a, place.1);
        if !product.sparse {
            row[k] = number;
            continue;
        }
        // Two of each four elements are stored; the third source has two index bits for each, and `op_sel` selects a part of it.
        let each = if w.wave_size == WaveSize::Wave64 && stored / 2 * bits > 32 { stored / 4 } else { stored / 2 };
        let part = usize::from(s.inst.op_sel) * 2 * each % 32;
        let index = w.vgpr(s.inst.src[2]).0[place.0] >> part >> (2 * place.1) & 3;
        row[k / 2 * 4 + index as usize] += number;
    }
}

/// Returns the addend, with neg and abs applied.
fn addend(w: &Wave, s: &Step, product: &Product, (lane, index): Place, half_registers: bool) -> f64 {
    let number = if product.sparse { s.inst.dst } else { s.inst.src[2] };
    let raw = if !product.sparse && s.kind[2] != SourceKind::Vector {
        match s.kind[2] {
            SourceKind::Constant => s.constant[2] as u32,
            _ => w.scalar(number),
        }
    } else if half_registers {
        w.vgpr(number + index as u16).0[lane] >> if s.inst.op_sel & 4 != 0 { 16 } else { 0 }
    } else {
        element(w, number, (lane, index), product.result.bits())
    };
    let value = match product.result {
        Element::F16 => f64::from(F16(raw as u16).to_f32()),
        Element::Bf16 => f64::from(bf16_to_f32(raw as u16)),
        Element::I32 => return f64::from(raw as i32),
        _ => f64::from(f32::from_bits(raw)),
    };
    let value = if s.inst.neg_hi & 4 != 0 && !product.sparse { value.abs() } else { value };
    if s.inst.neg & 4 != 0 && !product.sparse { -value } else { value }
}

/// Rounds a sum to the result type.
fn rounded(sum: f64, ty: Element, clamp: bool) -> u32 {
    match ty {
        Element::F16 => F16::from_f64(sum).0.into(),
        Element::Bf16 => f32_to_bf16(sum as f32).into(),
        // The sum is exact: it is below 2^53.
        Element::I32 if clamp => sum.clamp(f64::from(i32::MIN), f64::from(i32::MAX)) as i32 as u32,
        Element::I32 => sum as i64 as u32,
        _ => (sum as f32).to_bits(),
    }
}

fn multiply(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let Some(product) = Product::parse(s.inst.desc.name) else { return super::unsupported(w, s, e) };
    let (k, arch, wave_size) = (product.k, e.code.arch, w.wave_size);
    // gfx11 has one 16-bit result in each register; `op_sel` selects the half.
    let half_registers = product.result.bits() == 16 && arch.generation() < Generation::Gfx12;
    let mut columns = vec![0.0; SIDE * k];
    for j in 0..SIDE {
        for n in 0..k {
            let place = Product::source(j, n, k, product.b, arch, wave_size);
            columns[j * k + n] = value(s, 1, element(w, s.inst.src[1], place, product.b.bits()), product.b, place.1);
        }
    }
    let mut out = Vec::with_capacity(SIDE * SIDE);
    let mut row = vec![0.0; k];
    for i in 0..SIDE {
        row.fill(0.0);
        row_of_a(w, s, e, &product, i, &mut row);
        for j in 0..SIDE {
            let place = Product::result(i, j, arch, wave_size);
            let c = addend(w, s, &product, place, half_registers);
            let sum = row.iter().zip(&columns[j * k..]).fold(c, |sum, (a, b)| sum + a * b);
            out.push((place, rounded(sum, product.result, s.inst.clamp)));
        }
    }
    for ((lane, index), bits) in out {
        let (register, high) = match product.result.bits() {
            32 => {
                w.vgpr_mut(s.inst.dst + index as u16).0[lane] = bits;
                continue;
            }
            _ if half_registers => (index, s.inst.op_sel & 4 != 0),
            _ => (index / 2, index % 2 != 0),
        };
        let word = &mut w.vgpr_mut(s.inst.dst + register as u16).0[lane];
        *word = if high { *word & 0xffff | bits << 16 } else { *word & 0xffff_0000 | bits };
    }
    Outcome::Continue
}

/// Returns the semantics of the instruction called `name`.
pub fn find(name: &str) -> Option<Semantics> {
    let product = Product::parse(name)?;
    let c = if product.result.bits() == 16 { OperandType::B16 } else { OperandType::B32 };
    Some(single(multiply, [OperandType::B32, OperandType::B32, c]))
}
