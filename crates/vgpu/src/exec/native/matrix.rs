//! Matrix products (MFMA, WMMA) as loops over the columns of the result.
//!
//! The elements of a row of the result, and those of a row of B, are in adjacent lanes. So the loop over columns is the inner one, and the
//! compiler vectorizes it. Sums are computed in the order and with the roundings of the interpreter's function.

use super::lanes::{GROUP, Narrow, Vector, Wide};
use super::vector::Width;
use super::{Context, Function};
use crate::arch::Arch;
use crate::exec::decoded::{SourceKind, Step};
use crate::exec::float::{F16, bf16_to_f32, flush32};
use crate::exec::ops::matrix::{Adder, Element, Shape, aligned, power, shapes};
use crate::exec::ops::wmma::{self, Product, SIDE};
use crate::exec::wave::{LANES, Wave};
use crate::exec::{Env, Outcome};

/// The most rows, columns and elements along k of all blocks.
const MAX_SIDE: usize = 32;
const MAX_DEPTH: usize = 32;

/// A source as f32: for each element along k of each block, the lanes of the other dimension.
type Source = [[f32; MAX_SIDE]; MAX_DEPTH];

/// Reads a source whose other dimension has `side` elements.
#[inline(always)]
fn read(w: &Wave, number: u16, shape: &Shape, side: usize, flush: bool, out: &mut Source) {
    let each = shape.depth_per_lane();
    for block in 0..shape.blocks {
        for k in 0..shape.k {
            let first = side * (block + shape.blocks * (k / each));
            let bit = k % each * shape.a.bits();
            let from = &w.vgpr(number + (bit / 32) as u16).0[first..first + side];
            let to = &mut out[block * shape.k + k][..side];
            for lane in 0..side {
                let bits = from[lane] >> (bit % 32);
                to[lane] = match shape.a {
                    Element::F16 => half(bits as u16, flush),
                    Element::Bf16 => {
                        let value = bf16_to_f32(bits as u16);
                        if flush { f32::from_bits(flush32(value.to_bits())) } else { value }
                    }
                    _ => f32::from_bits(bits),
                };
            }
        }
    }
}

#[inline(always)]
fn half(bits: u16, flush: bool) -> f32 {
    let bits = if flush && bits & 0x7c00 == 0 { bits & 0x8000 } else { bits };
    F16(bits).to_f32()
}

#[inline(always)]
fn flushed<const FLUSH: bool>(value: f32) -> f32 {
    let bits = value.to_bits();
    let denormal = FLUSH & (bits & 0x7f80_0000 == 0);
    f32::from_bits(if denormal { bits & 0x8000_0000 } else { bits })
}

/// Returns the products of an element of A and a row of B.
#[inline(always)]
fn products<const N: usize, const FLUSH: bool>(a: f32, b: &[f32; MAX_SIDE]) -> [f32; N] {
    let mut products = [0.0; N];
    for j in 0..N {
        // A product with a zero is a positive zero; one that underflows keeps its sign. No branches: the compiler vectorizes it.
        let zero = (a == 0.0) | (b[j] == 0.0);
        products[j] = flushed::<FLUSH>(a * b[j] + if zero { 0.0 } else { -0.0 });
    }
    products
}

#[inline(always)]
fn sum<const N: usize, const FLUSH: bool>(a: &[f32; N], b: &[f32; N]) -> [f32; N] {
    let mut sums = [0.0; N];
    for j in 0..N {
        sums[j] = flushed::<FLUSH>(a[j] + b[j]);
    }
    sums
}

/// Adds groups of `G` products, each summed pairwise.
#[inline(always)]
fn add_pairs<const N: usize, const G: usize, const FLUSH: bool>(a: &[f32], b: &[[f32; MAX_SIDE]], sums: &mut [f32; N]) {
    for k in (0..a.len()).step_by(G) {
        let mut group = sum::<N, FLUSH>(&products::<N, FLUSH>(a[k], &b[k]), &products::<N, FLUSH>(a[k + 1], &b[k + 1]));
        if G == 4 {
            let high = sum::<N, FLUSH>(&products::<N, FLUSH>(a[k + 2], &b[k + 2]), &products::<N, FLUSH>(a[k + 3], &b[k + 3]));
            group = sum::<N, FLUSH>(&group, &high);
        }
        for j in 0..N {
            sums[j] = flushed::<FLUSH>(flushed::<FLUSH>(sums[j]) + group[j]);
        }
    }
}

/// Adds the products of a row of A and the columns of B to `sums`.
#[inline(always)]
fn add_products<const N: usize>(shape: &Shape, adder: Adder, a: &[f32; MAX_DEPTH], b: &[[f32; MAX_SIDE]], sums: &mut [f32; N]) {
    let a = &a[..shape.k];
    match (shape.a, adder) {
        (Element::F32, _) => {
            for k in 0..shape.k {
                for j in 0..N {
                    sums[j] = a[k].mul_add(b[k][j], sums[j]);
                }
            }
        }
        (_, Adder::Pairs { group: 2, flush: true }) => add_pairs::<N, 2, true>(a, b, sums),
        (_, Adder::Pairs { group: 2, flush: false }) => add_pairs::<N, 2, false>(a, b, sums),
        (_, Adder::Pairs { flush: true, .. }) => add_pairs::<N, 4, true>(a, b, sums),
        (_, Adder::Pairs { flush: false, .. }) => add_pairs::<N, 4, false>(a, b, sums),
        (_, Adder::Aligned { .. } | Adder::Exact) => {}
    }
}

/// Values of a source in f64, and the exponents by which gfx942 aligns them, in the order of [`Source`].
struct Scaled<const N: usize> {
    values: [[f64; N]; MAX_DEPTH],
    exponents: [[i32; N]; MAX_DEPTH],
}

impl<const N: usize> Scaled<N> {
    #[inline(always)]
    fn new(source: &Source, depth: usize, least: i32) -> Scaled<N> {
        let mut scaled = Scaled { values: [[0.0; N]; MAX_DEPTH], exponents: [[0; N]; MAX_DEPTH] };
        for k in 0..depth {
            for j in 0..N {
                scaled.values[k][j] = f64::from(source[k][j]);
            }
            scaled.exponents[k] = exponents(&scaled.values[k], least);
        }
        scaled
    }
}

/// Returns the exponents by which gfx942 aligns values, as the interpreter's function `exponent`.
#[inline(always)]
fn exponents<const N: usize>(values: &[f64; N], least: i32) -> [i32; N] {
    let mut exponents = [0; N];
    for j in 0..N {
        // Every value of the smaller types is normal in f64.
        let exponent = (values[j].to_bits() >> 52 & 0x7ff) as i32 - 1023;
        exponents[j] = if values[j] == 0.0 { -126 } else { exponent.max(least) };
    }
    exponents
}

/// From this exponent on a sum of products may overflow, or is not a number.
const MAY_OVERFLOW: i32 = 126;

/// Adds `G` products of row `i` of A, from `first` on, to each sum as gfx942 does.
#[inline(always)]
fn add_aligned<const N: usize, const G: usize>(shape: &Shape, a: &Scaled<N>, b: &Scaled<N>, [i, first]: [usize; 2], sums: &mut [f32; N]) {
    let old = *sums;
    let mut top = [i32::MIN; N];
    for k in first..first + G {
        let exponent = a.exponents[k][i];
        for j in 0..N {
            top[j] = top[j].max(exponent + b.exponents[k][j]);
        }
    }
    let mut special = false;
    let (mut scale, mut total, mut wide) = ([0.0; N], [0.0; N], [0.0; N]);
    for j in 0..N {
        special |= (top[j] >= MAY_OVERFLOW) | !old[j].is_finite();
        scale[j] = power(24 - top[j]);
        wide[j] = f64::from(old[j]);
    }
    for k in first..first + G {
        let value = a.values[k][i];
        for j in 0..N {
            total[j] += (value * b.values[k][j] * scale[j]).trunc();
        }
    }
    let addends = exponents(&wide, -126);
    for j in 0..N {
        let highest = top[j].max(addends[j]);
        let total = (total[j] * power(7 + top[j] - highest)).floor() * power(highest - 31);
        let addend = (wide[j] * power(24 - highest)).floor() * power(highest - 24);
        sums[j] = (total + addend + 0.0) as f32;
    }
    if special {
        for j in (0..N).filter(|&j| top[j] >= MAY_OVERFLOW || !old[j].is_finite()) {
            let terms: [(f64, f64); G] = std::array::from_fn(|k| (a.values[first + k][i], b.values[first + k][j]));
            sums[j] = aligned(&terms, old[j], shape);
        }
    }
}

/// Returns C if all of its elements are equal.
#[inline(always)]
fn constant_addend(w: &Wave, s: &Step) -> Option<u32> {
    match s.kind[2] {
        SourceKind::Vector => None,
        SourceKind::Constant => Some(s.constant[2] as u32),
        SourceKind::Scalar => Some(w.scalar(s.inst.src[2])),
    }
}

/// Dwords of bytes along k of all blocks.
const MAX_DWORDS: usize = MAX_DEPTH / 4;

/// A product of bytes. Sums are integers that wrap, so their order does not matter.
#[inline(always)]
fn run_bytes<S: Vector>(w: &mut Wave, s: &Step, shape: &Shape) {
    let (each, groups) = (shape.depth_per_lane() / 4, shape.n / GROUP);
    let constant = constant_addend(w, s);
    // For each dword of bytes along k of each block: the even and the odd bytes of A's rows, and of B's columns.
    let mut a = [[[0u32; MAX_SIDE]; 2]; MAX_DWORDS];
    // SAFETY: the CPU has the vector instructions of `S`; rows are within the arrays, and groups of lanes within the registers.
    unsafe {
        let mut b = [[[S::splat(0); MAX_SIDE / GROUP]; 2]; MAX_DWORDS];
        let dwords = shape.k / 4;
        for at in 0..(dwords * shape.blocks).min(MAX_DWORDS) {
            let (block, dword) = (at / dwords, at % dwords);
            let first = shape.n * (block + shape.blocks * (dword / each));
            let number = (dword % each) as u16;
            for group in 0..groups {
                let lanes = first + GROUP * group;
                let [even, odd] = S::load(w.vgpr(s.inst.src[0] + number).0[lanes..lanes + GROUP].as_ptr()).signed_bytes();
                even.store(a[at][0][GROUP * group..][..GROUP].as_mut_ptr());
                odd.store(a[at][1][GROUP * group..][..GROUP].as_mut_ptr());
                let [even, odd] = S::load(w.vgpr(s.inst.src[1] + number).0[lanes..lanes + GROUP].as_ptr()).signed_bytes();
                (b[at][0][group], b[at][1][group]) = (even, odd);
            }
        }
        for block in 0..shape.blocks {
            for i in 0..shape.m {
                let (first, register) = shape.result(i, 0, block);
                for group in 0..groups {
                    let lanes = first + GROUP * group;
                    let mut sum = match constant {
                        Some(bits) => S::splat(bits),
                        None => S::load(w.vgpr(s.inst.src[2] + register as u16).0[lanes..lanes + GROUP].as_ptr()),
                    };
                    for at in block * dwords..((block + 1) * dwords).min(MAX_DWORDS) {
                        sum = sum.add(S::splat(a[at][0][i]).dot2(b[at][0][group]));
                        sum = sum.add(S::splat(a[at][1][i]).dot2(b[at][1][group]));
                    }
                    sum.store(w.vgpr_mut(s.inst.dst + register as u16).0[lanes..lanes + GROUP].as_mut_ptr());
                }
            }
        }
    }
}

/// Returns a row of C.
#[inline(always)]
fn read_row<const N: usize>(w: &Wave, s: &Step, constant: Option<u32>, first: usize, register: usize) -> [f32; N] {
    let mut sums = [f32::from_bits(constant.unwrap_or(0)); N];
    if constant.is_none() {
        let c = &w.vgpr(s.inst.src[2] + register as u16).0[first..first + N];
        for j in 0..N {
            sums[j] = f32::from_bits(c[j]);
        }
    }
    sums
}

/// Writes a row of the result. No other row depends on what it replaces: `find` checked it.
#[inline(always)]
fn write_row<const N: usize>(w: &mut Wave, s: &Step, first: usize, register: usize, sums: &[f32; N]) {
    let to = &mut w.vgpr_mut(s.inst.dst + register as u16).0[first..first + N];
    for j in 0..N {
        to[j] = sums[j].to_bits();
    }
}

/// Runs a product with `N` columns.
#[inline(always)]
fn run<const N: usize>(w: &mut Wave, s: &Step, e: &mut Env<'_>, shape: &Shape) {
    let flush = e.code.arch == Arch::Gfx90a && matches!(shape.a, Element::F16 | Element::Bf16);
    let adder = Adder::new(shape, e.code.arch, s.inst.desc.name);
    let (mut a, mut b) = ([[0.0; MAX_SIDE]; MAX_DEPTH], [[0.0; MAX_SIDE]; MAX_DEPTH]);
    read(w, s.inst.src[0], shape, shape.m, flush, &mut a);
    read(w, s.inst.src[1], shape, N, flush, &mut b);
    let constant = constant_addend(w, s);
    if let (Adder::Aligned { group }, Element::F16 | Element::Bf16) = (adder, shape.a) {
        let least = if shape.a == Element::F16 { -14 } else { -126 };
        let depth = shape.k * shape.blocks;
        let (a, b) = (Scaled::<N>::new(&a, depth, least), Scaled::<N>::new(&b, depth, least));
        for block in 0..shape.blocks {
            for i in 0..shape.m {
                let (first, register) = shape.result(i, 0, block);
                let mut sums = read_row::<N>(w, s, constant, first, register);
                for k in (block * shape.k..(block + 1) * shape.k).step_by(group) {
                    match group {
                        2 => add_aligned::<N, 2>(shape, &a, &b, [i, k], &mut sums),
                        4 => add_aligned::<N, 4>(shape, &a, &b, [i, k], &mut sums),
                        _ => add_aligned::<N, 8>(shape, &a, &b, [i, k], &mut sums),
                    }
                }
                write_row(w, s, first, register, &sums);
            }
        }
        return;
    }
    for block in 0..shape.blocks {
        let b = &b[block * shape.k..];
        for i in 0..shape.m {
            let (first, register) = shape.result(i, 0, block);
            let mut row = [0.0; MAX_DEPTH];
            for k in 0..shape.k {
                row[k] = a[block * shape.k + k][i];
            }
            let mut sums = read_row::<N>(w, s, constant, first, register);
            add_products::<N>(shape, adder, &row, b, &mut sums);
            write_row(w, s, first, register, &sums);
        }
    }
}

/// A dense WMMA product of 16-bit floats with an f32 result. Sums are f64, as in the interpreter's function.
#[inline(always)]
fn run_wmma(w: &mut Wave, s: &Step, env: &Env<'_>, ty: wmma::Element, convert: impl Fn(u16) -> f32) {
    let (arch, wave_size) = (env.code.arch, w.wave_size);
    let mut sources = [[[0f64; SIDE]; SIDE]; 2];
    for (n, matrix) in sources.iter_mut().enumerate() {
        for (k, to) in matrix.iter_mut().enumerate() {
            // The rows of A, and the columns of B, are in adjacent lanes.
            let (first, index) = Product::source(0, k, SIDE, ty, arch, wave_size);
            let from = &w.vgpr(s.inst.src[n] + (index / 2) as u16).0[first..first + SIDE];
            for i in 0..SIDE {
                to[i] = f64::from(convert((from[i] >> (16 * (index % 2))) as u16));
            }
        }
    }
    let mut out = [[0u32; SIDE]; SIDE];
    for i in 0..SIDE {
        let (first, index) = Product::result(i, 0, arch, wave_size);
        let mut sums = [f64::from(f32::from_bits(s.constant[2] as u32)); SIDE];
        if s.kind[2] == SourceKind::Vector {
            let from = &w.vgpr(s.inst.src[2] + index as u16).0[first..first + SIDE];
            for j in 0..SIDE {
                sums[j] = f64::from(f32::from_bits(from[j]));
            }
        }
        for k in 0..SIDE {
            for j in 0..SIDE {
                sums[j] += sources[0][k][i] * sources[1][k][j];
            }
        }
        for j in 0..SIDE {
            out[i][j] = (sums[j] as f32).to_bits();
        }
    }
    for (i, row) in out.iter().enumerate() {
        let (first, index) = Product::result(i, 0, arch, wave_size);
        w.vgpr_mut(s.inst.dst + index as u16).0[first..first + SIDE].copy_from_slice(row);
    }
}

#[inline(always)]
fn multiply<S: Vector>(w: &mut Wave, s: &Step, c: &mut Context<'_, '_>) -> u32 {
    match s.inst.desc.name {
        "v_wmma_f32_16x16x16_f16" => run_wmma(w, s, c.env, wmma::Element::F16, |bits| F16(bits).to_f32()),
        "v_wmma_f32_16x16x16_bf16" => run_wmma(w, s, c.env, wmma::Element::Bf16, bf16_to_f32),
        _ => run_mfma::<S>(w, s, c),
    }
    Outcome::Continue as u32
}

#[inline(always)]
fn run_mfma<S: Vector>(w: &mut Wave, s: &Step, c: &mut Context<'_, '_>) {
    match shapes().get(s.inst.desc.name) {
        Some(shape) if shape.a == Element::I8 => run_bytes::<S>(w, s, shape),
        Some(shape) if shape.n == 16 => run::<16>(w, s, c.env, shape),
        Some(shape) => run::<32>(w, s, c.env, shape),
        None => {}
    }
}

#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
unsafe extern "sysv64" fn narrow(w: &mut Wave, s: &Step, c: &mut Context<'_, '_>) -> u32 {
    multiply::<Narrow>(w, s, c)
}

#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512cd")]
unsafe extern "sysv64" fn wide(w: &mut Wave, s: &Step, c: &mut Context<'_, '_>) -> u32 {
    multiply::<Wide>(w, s, c)
}

/// Returns the function of a matrix product; `None` if it has none here.
pub fn find(step: &Step, width: Width) -> Option<Function> {
    let inst = &step.inst;
    // `cbsz`, `abid` and `blgp` of MFMA rearrange the sources.
    let plain = inst.neg == 0 && inst.neg_hi == 0 && inst.op_sel == 0;
    let vectors = step.kind[0] == SourceKind::Vector && step.kind[1] == SourceKind::Vector;
    let function = match width {
        Width::W256 => narrow as Function,
        Width::W512 => wide as Function,
    };
    if matches!(inst.desc.name, "v_wmma_f32_16x16x16_f16" | "v_wmma_f32_16x16x16_bf16") {
        return (plain && vectors && step.kind[2] != SourceKind::Scalar).then_some(function);
    }
    let shape = shapes().get(inst.desc.name)?;
    let known = matches!(shape.a, Element::F32 | Element::F16 | Element::Bf16 | Element::I8) && shape.a == shape.b && !shape.sparse;
    // Small blocks are arranged in another way.
    let sides = shape.m == shape.n && matches!(shape.n, 16 | 32) && shape.k * shape.blocks <= MAX_DEPTH;
    // The result may replace C, but not overlap with it in another way.
    let registers = (shape.m * shape.n * shape.blocks / LANES) as u16;
    let apart = step.kind[2] != SourceKind::Vector || inst.src[2] == inst.dst || inst.src[2].abs_diff(inst.dst) >= registers;
    (plain && vectors && known && sides && apart).then_some(function)
}
