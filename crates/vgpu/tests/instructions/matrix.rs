//! Matrix instructions: register layouts and results.
//!
//! `layouts.tsv` holds facts read off AMD's Matrix Instruction Calculator for every instruction it lists on CDNA 1 to 3. All the
//! layouts are linear in the bits of the indices, so a layout is the place of each power of two: for the bits of the block, then
//! of the row, then of the column, which register (`v`), lane (`l`) and bit (`.`) it adds. The fourth matrix, K, holds the indices
//! of sparse instructions, 4 bits for 4 columns of A. C is laid out as D.

use super::asm::*;
use super::exact::{self, BF16, Exact, F16, F32, Kind};
use std::collections::HashMap;
use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::TestWave;
use warpwave_vgpu::isa::{Field, Format, inst_descs};

/// Register, lane, bit.
type Place = [usize; 3];

#[derive(Clone, Debug)]
struct Layout {
    size: [usize; 3],
    places: [Vec<Place>; 3],
}

impl Layout {
    fn parse(text: &str) -> Layout {
        let mut words = text.split(' ');
        let (_, size, places) = (words.next(), words.next().unwrap(), words.next().unwrap());
        let place = |text: &str| {
            let mut place = [0; 3];
            for part in text.split('+').filter(|part| *part != "0") {
                place["vl.".find(&part[..1]).unwrap()] = part[1..].parse().unwrap();
            }
            place
        };
        let dimension = |text: &str| if text == "-" { Vec::new() } else { text.split(',').map(place).collect() };
        let parts: Vec<_> = places.split(';').map(dimension).collect();
        let size: Vec<usize> = size.split('x').map(|n| n.parse().unwrap()).collect();
        Layout { size: size.try_into().unwrap(), places: parts.try_into().unwrap() }
    }

    fn at(&self, index: [usize; 3]) -> Place {
        let mut sum = [0; 3];
        for (index, places) in index.into_iter().zip(&self.places) {
            for (bit, place) in places.iter().enumerate().filter(|(bit, _)| index >> bit & 1 != 0) {
                assert!(bit < 6);
                sum = std::array::from_fn(|n| sum[n] + place[n]);
            }
        }
        sum
    }
}

/// A, B, D and for sparse instructions K.
fn layouts() -> HashMap<&'static str, Vec<Layout>> {
    let mut all = HashMap::new();
    for line in include_str!("layouts.tsv").lines() {
        let (names, rest) = line.split_once('\t').unwrap();
        let parsed: Vec<Layout> = rest.split('\t').map(Layout::parse).collect();
        for name in names.split(' ') {
            all.insert(name, parsed.clone());
        }
    }
    all
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Element {
    Int8,
    Float(Kind),
    F64,
    /// Exponent and fraction bits, bias one more than usual.
    Tiny(u32, u32),
}

impl Element {
    fn bits(self) -> usize {
        match self {
            Element::Int8 | Element::Tiny(..) => 8,
            Element::Float(kind) => (1 + kind.exponent + kind.fraction) as usize,
            Element::F64 => 64,
        }
    }

    fn encode(self, value: i64) -> u64 {
        match self {
            Element::Int8 => value as u64 & 0xff,
            Element::Float(kind) => Exact::int(value).round(kind, exact::NEAREST),
            Element::F64 => (value as f64).to_bits(),
            Element::Tiny(exponent, fraction) => {
                if value == 0 {
                    return 0;
                }
                let top = value.unsigned_abs().ilog2();
                let rest = (value.unsigned_abs() - (1 << top)) << fraction >> top;
                let bias = 1 << (exponent - 1);
                u64::from(value < 0) << 7 | u64::from(top + bias) << fraction | rest
            }
        }
    }
}

/// The elements of A and B by the instruction's name.
fn elements(name: &str) -> [Element; 2] {
    let one = |text: &str| match text {
        "fp8" => Element::Tiny(4, 3),
        "bf8" => Element::Tiny(5, 2),
        _ => panic!("{text}"),
    };
    let parts: Vec<&str> = name.split('_').collect();
    if name.contains("p8") || name.contains("bf8") {
        return [one(parts[parts.len() - 2]), one(parts[parts.len() - 1])];
    }
    let element = match name {
        n if n.ends_with("f64") => Element::F64,
        n if n.ends_with("i8") => Element::Int8,
        n if n.contains("bf16") => Element::Float(BF16),
        n if n.ends_with("f16") => Element::Float(F16),
        _ => Element::Float(F32),
    };
    [element; 2]
}

struct Setup {
    arch: Arch,
    name: &'static str,
    cbsz: u32,
    abid: u32,
    blgp: u32,
    accumulation: bool,
}

/// Register numbers on the bench: D and C move to the accumulation file.
const A: usize = 10;
const B: usize = 20;
const K: usize = 40;
const C: usize = 64;
const D: usize = 128;

fn write(bench: &mut TestWave, base: usize, place: Place, bits: usize, value: u64) {
    let [register, lane, bit] = place;
    for n in 0..bits.div_ceil(32) {
        let mut lanes = bench.v(base + register + n);
        let width = bits.min(32);
        let mask = ((1u64 << width) - 1) as u32;
        lanes[lane] = lanes[lane] & !(mask << bit) | ((value >> (32 * n)) as u32 & mask) << bit;
        bench.set_v(base + register + n, lanes);
    }
}

fn read(bench: &TestWave, base: usize, place: Place, wide: bool) -> u64 {
    let [register, lane, _] = place;
    let low = u64::from(bench.v(base + register)[lane]);
    if wide { low | u64::from(bench.v(base + register + 1)[lane]) << 32 } else { low }
}

/// The lane that B's lane `lane` is read from.
fn group(blgp: u32, lane: usize) -> usize {
    match blgp {
        0 => lane,
        1 => lane % 32,
        2 => lane % 32 + 32,
        3 => (lane + 16) % 64,
        n => lane % 16 + 16 * (n as usize - 4),
    }
}

fn check(setup: &Setup, layouts: &HashMap<&str, Vec<Layout>>, seed: u64) {
    let Setup { arch, name, cbsz, abid, blgp, accumulation } = *setup;
    let layout = layouts.get(name).unwrap_or_else(|| panic!("no layout for {name}"));
    let sparse = name.contains("smfmac");
    let [a_element, b_element] = elements(name);
    let wide = a_element == Element::F64;
    let [blocks, rows, columns] = layout[2].size;
    let depth = layout[0].size[2];
    assert_eq!((layout[0].size, layout[1].size), ([blocks, rows, depth], [blocks, depth, columns]), "{name}");
    let mut numbers = Numbers(seed);
    let mut small = |element: Element| {
        let number = numbers.next();
        if element == Element::Int8 { i64::from(number as i8) } else { (number % 7) as i64 - 3 }
    };
    let mut bench = TestWave::new(arch);
    let file = if accumulation { 256 } else { 0 };
    let result = |bench: &TestWave, index| {
        let bits = read(bench, D + file, layout[2].at(index), wide);
        match (wide, name.contains("_i32_")) {
            (true, _) => f64::from_bits(bits),
            (_, true) => f64::from(bits as u32 as i32),
            _ => f64::from(f32::from_bits(bits as u32)),
        }
    };
    // Dense matrices, block by block; the places of B are found by the lane that is read.
    let mut a = HashMap::new();
    let mut b = HashMap::new();
    let mut c = HashMap::new();
    for block in 0..blocks {
        for row in 0..rows {
            if sparse {
                for group in 0..depth / 4 {
                    // Two of four columns: their numbers, two bits each.
                    let [first, second] = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]][small(Element::Int8).rem_euclid(6) as usize];
                    let mut place = layout[3].at([block, row, 4 * group]);
                    let set = if cbsz != 0 { 0 } else { abid as usize * if a_element.bits() == 16 { 8 } else { 16 } };
                    place[2] += set;
                    write(&mut bench, K, place, 4, (first | second << 2) as u64);
                    let mut place = layout[0].at([block, row, 4 * group]);
                    for column in [first, second] {
                        let value = small(a_element);
                        a.insert((block, row, 4 * group + column), value);
                        write(&mut bench, A, place, a_element.bits(), a_element.encode(value));
                        place[2] += a_element.bits();
                    }
                }
            } else {
                for k in 0..depth {
                    let value = small(a_element);
                    a.insert((block, row, k), value);
                    write(&mut bench, A, layout[0].at([block, row, k]), a_element.bits(), a_element.encode(value));
                }
            }
            for column in 0..columns {
                let value = small(Element::Float(F32)) * 5;
                c.insert((block, row, column), value);
                let (bits, encoded) = match (wide, name.contains("_i32_")) {
                    (true, _) => (64, (value as f64).to_bits()),
                    (_, true) => (32, value as u64 & 0xffff_ffff),
                    _ => (32, u64::from((value as f32).to_bits())),
                };
                let base = if sparse { D } else { C };
                write(&mut bench, base + file, layout[2].at([block, row, column]), bits, encoded);
            }
        }
        for k in 0..depth {
            for column in 0..columns {
                let value = small(b_element);
                let place = layout[1].at([block, k, column]);
                b.insert(place, value);
                write(&mut bench, B, place, b_element.bits(), b_element.encode(value));
            }
        }
    }
    let base = vop3(arch, name);
    let third = if sparse { V + K as u16 } else { V + C as u16 };
    let src = [V + A as u16, V + B as u16, third];
    // gfx908 has no bit for the file: it is always the accumulation registers.
    let clamp = accumulation && arch != Arch::Gfx908;
    let inst = Vop3 { dst: D as u16, src, abs: cbsz, op_sel: abid, op_sel_hi: 0, neg: blgp, clamp, ..base };
    bench.set_exec(0x5);
    bench.run(&inst.words()).unwrap_or_else(|fault| panic!("{arch:?} {name}: {fault}"));
    for block in 0..blocks {
        let shared = (1usize << if sparse { 0 } else { cbsz }) - 1;
        let from = if shared == 0 { block } else { block & !shared | abid as usize };
        for row in 0..rows {
            for column in 0..columns {
                let mut sum = c[&(block, row, column)] as f64 * if wide && blgp & 4 != 0 { -1.0 } else { 1.0 };
                for k in 0..depth {
                    let mut place = layout[1].at([block, k, column]);
                    let mut sign = 1.0;
                    if wide {
                        sign *= if blgp & 1 != 0 { -1.0 } else { 1.0 } * if blgp & 2 != 0 { -1.0 } else { 1.0 };
                    } else {
                        place[1] = group(blgp, place[1]);
                    }
                    sum += sign * a.get(&(from, row, k)).copied().unwrap_or(0) as f64 * b[&place] as f64;
                }
                let got = result(&bench, [block, row, column]);
                assert_eq!(got, sum, "{arch:?} {name} cbsz {cbsz} abid {abid} blgp {blgp}: D[{block}][{row}][{column}]");
            }
        }
    }
}

/// Every matrix instruction of every architecture, lanes that are off included: matrices are of the whole wave.
#[test]
fn every_layout_and_product() {
    let layouts = layouts();
    let mut seen = 0;
    for row in inst_descs().iter().filter(|row| row.format == Format::VOP3P && row.name.contains("mfma")) {
        for arch in GFX9.into_iter().filter(|&arch| row.supports(arch)) {
            for accumulation in if arch == Arch::Gfx908 { &[true][..] } else { &[false, true][..] } {
                check(&Setup { arch, name: row.name, cbsz: 0, abid: 0, blgp: 0, accumulation: *accumulation }, &layouts, 17);
            }
            seen += 1;
            // As many registers as the layout fills.
            let [.., last] = [[0; 3], layouts[row.name][2].at(layouts[row.name][2].size.map(|n| n - 1))];
            let wide = row.name.contains("_f64_");
            assert_eq!(usize::from(row.registers(Field::Dst)), last[0] + if wide { 2 } else { 1 }, "{}", row.name);
        }
    }
    assert_eq!(seen, 20 + 27 + 46);
}

/// `cbsz` and `abid`: one block of A for several; `blgp`: B's lanes broadcast or rotated, and on f64 signs instead.
#[test]
fn broadcasts() {
    let layouts = layouts();
    for arch in GFX9.into_iter().filter(|arch| *arch != Arch::Gfx906) {
        let of = |old: &'static str, new: &'static str| if arch == Arch::Gfx942 { new } else { old };
        for (name, most) in [
            (of("v_mfma_f32_32x32x1f32", "v_mfma_f32_32x32x1_2b_f32"), 1),
            (of("v_mfma_f32_16x16x1f32", "v_mfma_f32_16x16x1_4b_f32"), 2),
            (of("v_mfma_f32_4x4x1f32", "v_mfma_f32_4x4x1_16b_f32"), 4),
            (of("v_mfma_f32_16x16x4f16", "v_mfma_f32_16x16x4_4b_f16"), 2),
            (of("v_mfma_i32_4x4x4i8", "v_mfma_i32_4x4x4_16b_i8"), 4),
        ] {
            for cbsz in 0..=most {
                for abid in 0..1 << cbsz {
                    check(&Setup { arch, name, cbsz, abid, blgp: 0, accumulation: true }, &layouts, 5);
                }
            }
            for blgp in 0..8 {
                check(&Setup { arch, name, cbsz: 0, abid: 0, blgp, accumulation: true }, &layouts, 6);
            }
            check(&Setup { arch, name, cbsz: 1, abid: 1, blgp: 3, accumulation: true }, &layouts, 7);
        }
    }
    for (arch, name) in
        [(Arch::Gfx90a, "v_mfma_f64_16x16x4f64"), (Arch::Gfx942, "v_mfma_f64_16x16x4_f64"), (Arch::Gfx942, "v_mfma_f64_4x4x4_4b_f64")]
    {
        for blgp in 0..8 {
            check(&Setup { arch, name, cbsz: 0, abid: 0, blgp, accumulation: false }, &layouts, 8);
        }
    }
    for (name, sets) in [
        ("v_smfmac_f32_16x16x32_f16", 4),
        ("v_smfmac_f32_32x32x16_bf16", 4),
        ("v_smfmac_i32_16x16x64_i8", 2),
        ("v_smfmac_f32_32x32x32_fp8_bf8", 2),
    ] {
        for abid in 0..sets {
            for cbsz in 0..2 {
                check(&Setup { arch: Arch::Gfx942, name, cbsz, abid, blgp: 0, accumulation: false }, &layouts, 9);
            }
        }
    }
}

/// One element of a product, all others 0: `a` and `b` are the row and the column, as bits.
fn element_of(arch: Arch, name: &'static str, layouts: &HashMap<&str, Vec<Layout>>, a: &[u64], b: &[u64], c: u64) -> u64 {
    let layout = &layouts[name];
    let [a_element, b_element] = elements(name);
    let wide = a_element == Element::F64;
    let mut bench = TestWave::new(arch);
    for (k, (&x, &y)) in a.iter().zip(b).enumerate() {
        write(&mut bench, A, layout[0].at([0, 0, k]), a_element.bits(), x);
        write(&mut bench, B, layout[1].at([0, k, 0]), b_element.bits(), y);
    }
    write(&mut bench, C + 256, layout[2].at([0, 0, 0]), if wide { 64 } else { 32 }, c);
    let src = [V + A as u16, V + B as u16, V + C as u16];
    let inst = Vop3 { dst: D as u16, src, op_sel_hi: 0, clamp: arch != Arch::Gfx908, ..vop3(arch, name) };
    bench.run(&inst.words()).unwrap_or_else(|fault| panic!("{arch:?} {name}: {fault}"));
    read(&bench, D + 256, layout[2].at([0, 0, 0]), wide)
}

/// Dense float instructions with the type of their elements and how many are added.
fn dense_floats(layouts: &HashMap<&str, Vec<Layout>>) -> Vec<(Arch, &'static str, Kind, usize)> {
    let mut all = Vec::new();
    for row in inst_descs().iter().filter(|row| row.name.starts_with("v_mfma_f")) {
        let kind = match elements(row.name)[0] {
            Element::Float(kind) => kind,
            Element::F64 => exact::F64,
            _ => continue,
        };
        all.extend(GFX9.into_iter().filter(|&arch| row.supports(arch)).map(|arch| (arch, row.name, kind, layouts[row.name][0].size[2])));
    }
    assert!(all.len() > 40, "{}", all.len());
    all
}

/// Infinities and NaNs anywhere; a product that overflows on the way.
#[test]
fn specials() {
    let layouts = layouts();
    for (arch, name, kind, depth) in dense_floats(&layouts) {
        let out = if kind == exact::F64 { exact::F64 } else { F32 };
        let one = (kind.bias() as u64) << kind.fraction;
        let (inf, nan) = (kind.infinity(false), kind.quieted(kind.infinity(false)));
        let minus = |bits: u64| kind.signed(true, bits);
        let run = |a: &[u64], b: &[u64], c: u64| element_of(arch, name, &layouts, a, b, c);
        let last = depth - 1;
        // One special in the last place, ones everywhere else.
        let with = |special: u64| (0..depth).map(|k| if k == last { special } else { one }).collect::<Vec<_>>();
        let ones = vec![one; depth];
        for (what, got, expected) in [
            ("infinity in A", run(&with(inf), &ones, 0), Some(out.infinity(false))),
            ("infinity in B", run(&ones, &with(minus(inf)), 0), Some(out.infinity(true))),
            ("infinity times 0", run(&with(inf), &with(0), 0), None),
            ("NaN in A", run(&with(nan), &ones, 0), None),
            ("NaN in B", run(&ones, &with(minus(nan)), 0), None),
            ("signaling NaN", run(&with(inf + 1), &ones, 0), None),
            ("NaN times 0", run(&with(nan), &vec![0; depth], 0), None),
            ("infinity in C", run(&ones, &ones, out.infinity(true)), Some(out.infinity(true))),
            ("NaN in C", run(&ones, &ones, out.quieted(out.infinity(false))), None),
            ("infinity against C", run(&with(inf), &ones, out.infinity(true)), None),
            ("nothing", run(&vec![0; depth], &ones, 0), Some(0)),
        ] {
            let fine = expected.map_or(out.is_quiet(got), |bits| got == bits);
            assert!(fine, "{arch:?} {name}: {what}: {got:x}, not {expected:x?}");
        }
        if depth > 1 {
            let mut row = ones.clone();
            (row[0], row[1]) = (inf, minus(inf));
            assert!(out.is_quiet(run(&row, &ones, 0)), "{arch:?} {name}: infinities of both signs");
            // bf16 and xf32 reach as far as f32: a product that it cannot hold is infinite at once, and its opposite does not help.
            if kind == BF16 || name.ends_with("xf32") {
                let large = kind.infinity(false) - (1 << kind.fraction);
                (row[0], row[1]) = (large, minus(large));
                let mut column = ones.clone();
                (column[0], column[1]) = (large, large);
                assert!(out.is_quiet(run(&row, &column, 0)), "{arch:?} {name}: overflow in both directions");
                row[1] = one;
                assert_eq!(run(&row, &column, 0), out.infinity(false), "{arch:?} {name}: overflow");
            }
        }
    }
}

/// gfx90a makes denormals of 16-bit matrices zero, on the way in and out and in the addend (AMD's notes in MIOpen: "MI200 MFMA behavior
/// specifics"); all others keep them.
#[test]
fn denormals() {
    let layouts = layouts();
    for (arch, name, kind, depth) in dense_floats(&layouts) {
        let out = if kind == exact::F64 { exact::F64 } else { F32 };
        let one = (kind.bias() as u64) << kind.fraction;
        let flushes = arch == Arch::Gfx90a && kind.fraction < 23;
        // xf32 has ten bits of fraction.
        let tiny = if name.ends_with("xf32") { 1 << 13 } else { 1 };
        let mut row = vec![0; depth];
        row[depth - 1] = tiny;
        let ones = vec![one; depth];
        let kept = Exact::of(kind, tiny).round(out, exact::NEAREST);
        for (what, got) in
            [("in A", element_of(arch, name, &layouts, &row, &ones, 0)), ("in B", element_of(arch, name, &layouts, &ones, &row, 0))]
        {
            assert_eq!(got, if flushes { 0 } else { kept }, "{arch:?} {name} {what}");
        }
        let got = element_of(arch, name, &layouts, &vec![0; depth], &ones, 3);
        assert_eq!(got, if flushes { 0 } else { 3 }, "{arch:?} {name} in C");
        // A product of normal numbers that f32 has as a denormal: 2^-70 squared. f16 has nothing that small.
        if kind == BF16 {
            row[depth - 1] = 57 << 7;
            let got = element_of(arch, name, &layouts, &row, &row, 0);
            assert_eq!(got, if flushes { 0 } else { 1 << 9 }, "{arch:?} {name} in D");
        }
    }
}

/// xf32 is f32 without its last 13 bits: dropped, not rounded (the reference of AMD's Tensile does so, and the matrix cores did).
#[test]
fn xf32_truncation() {
    let layouts = layouts();
    for name in ["v_mfma_f32_16x16x8_xf32", "v_mfma_f32_32x32x4_xf32"] {
        let one = 0x3f80_0000u64;
        for (bits, expected) in [
            (0x3f80_1fff, one),
            (0x3f80_2000, 0x3f80_2000),
            (0x3f80_3000, 0x3f80_2000),
            (0x3f80_3fff, 0x3f80_2000),
            (0xbf80_3fff, 0xbf80_2000),
            (0x7f7f_ffff, 0x7f7f_e000),
            (0x0000_1fff, 0),
            (0x007f_ffff, 0x007f_e000),
            (0x7f80_0000, 0x7f80_0000),
        ] {
            assert_eq!(element_of(Arch::Gfx942, name, &layouts, &[bits], &[one], 0), expected, "{name} {bits:x} in A");
            assert_eq!(element_of(Arch::Gfx942, name, &layouts, &[one], &[bits], 0), expected, "{name} {bits:x} in B");
        }
        // The addend is a whole f32.
        assert_eq!(element_of(Arch::Gfx942, name, &layouts, &[0], &[0], 0x3f80_1fff), 0x3f80_1fff);
        // A NaN whose only bits are dropped stays one.
        assert!(F32.is_quiet(element_of(Arch::Gfx942, name, &layouts, &[0x7f80_0001], &[one], 0)));
    }
}

/// Where sums are rounded. AMD does not say; experiments did (Xie and others, "MMA-Sim", 2025). f64 and f32 are chains of `fma`.
#[test]
fn order_of_sums() {
    let layouts = layouts();
    let half = |x: f64| Exact::of(exact::F64, x.to_bits()).round(F16, exact::NEAREST);
    let halves = |arch, name, a: &[f64], b: &[f64], c: f32| {
        let bits = |row: &[f64]| row.iter().map(|&x| if x == 0.0 { 0 } else { half(x) }).collect::<Vec<_>>();
        f32::from_bits(element_of(arch, name, &layouts, &bits(a), &bits(b), c.to_bits().into()) as u32)
    };
    let two = |n: i32| 2f64.powi(n);
    for arch in [Arch::Gfx908, Arch::Gfx90a] {
        // Pairs: (2^24 + 1) + (1 + 1) loses the 1 beside the large one only.
        let got = halves(arch, "v_mfma_f32_4x4x4f16", &[two(12), 1.0, 1.0, 1.0], &[two(12), 1.0, 1.0, 1.0], 0.0);
        assert_eq!(got, 16777218.0, "{arch:?}");
        // The addend comes last: 2^24 + ((1 + 1) + (1 + 0)) is 2^24 + 3, to even.
        let got = halves(arch, "v_mfma_f32_4x4x4f16", &[1.0, 1.0, 1.0, 0.0], &[1.0; 4], 16777216.0);
        assert_eq!(got, 16777220.0, "{arch:?}");
        // bf16 without `_1k` goes by twos: 2^24 + (1 + 0), then + (1 + 0) again.
        let one = 0x3f80;
        let got = element_of(arch, "v_mfma_f32_16x16x8bf16", &layouts, &[one, 0, one, 0], &[one; 4], 0x4b80_0000);
        assert_eq!(f32::from_bits(got as u32), 16777216.0, "{arch:?}");
    }
    let one = 0x3f80;
    let got = element_of(Arch::Gfx90a, "v_mfma_f32_16x16x16bf16_1k", &layouts, &[one, 0, one, 0], &[one; 4], 0x4b80_0000);
    assert_eq!(f32::from_bits(got as u32), 16777218.0);
    let name = "v_mfma_f32_16x16x16_f16";
    // gfx942 cuts products off 24 bits below the largest: beside 2^25 three ones are lost, beside 2^24 they are not.
    let got = halves(Arch::Gfx942, name, &[two(12), 1.0, 1.0, 1.0], &[two(13), 1.0, 1.0, 1.0], 0.0);
    assert_eq!(got, 33554432.0);
    let got = halves(Arch::Gfx942, name, &[two(12), 1.0, 1.0], &[two(12), 1.0, 1.0], 0.0);
    assert_eq!(got, 16777218.0);
    // The addend is rounded down, not to zero: -1 beside 2^26 is -4.
    let got = halves(Arch::Gfx942, name, &[two(13)], &[two(13)], -1.0);
    assert_eq!(got, 67108860.0);
    let got = halves(Arch::Gfx942, name, &[two(13)], &[two(13)], 1.0);
    assert_eq!(got, 67108864.0);
    // Eight at a time: what the first eight lose is lost, the next see only their sum.
    let mut row = vec![1.0; 16];
    row[0] = two(12);
    let mut column = vec![1.0; 16];
    column[0] = two(13);
    assert_eq!(halves(Arch::Gfx942, name, &row, &column, 0.0), 33554432.0 + 8.0);
}
