//! Matrix instructions: where every element of every matrix lies, and what comes out.
//!
//! `layouts.tsv` holds facts read off AMD's Matrix Instruction Calculator for every instruction it lists on CDNA 1 to 3. All the
//! layouts are linear in the bits of the indices, so a layout is the place of each power of two: for the bits of the block, then
//! of the row, then of the column, which register (`v`), lane (`l`) and bit (`.`) it adds. The fourth matrix, K, holds the indices
//! of sparse instructions, 4 bits for 4 columns of A. C is laid out as D.

use super::asm::*;
use super::exact::{self, BF16, Exact, F16, F32, Kind};
use std::collections::HashMap;
use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::Bench;
use warpwave_vgpu::isa::{Field, Format, rows};

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

fn write(bench: &mut Bench, base: usize, place: Place, bits: usize, value: u64) {
    let [register, lane, bit] = place;
    for n in 0..bits.div_ceil(32) {
        let mut lanes = bench.v(base + register + n);
        let width = bits.min(32);
        let mask = ((1u64 << width) - 1) as u32;
        lanes[lane] = lanes[lane] & !(mask << bit) | ((value >> (32 * n)) as u32 & mask) << bit;
        bench.set_v(base + register + n, lanes);
    }
}

fn read(bench: &Bench, base: usize, place: Place, wide: bool) -> u64 {
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
    let mut bench = Bench::new(arch);
    let file = if accumulation { 256 } else { 0 };
    let result = |bench: &Bench, index| {
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
    for row in rows().iter().filter(|row| row.format == Format::VOP3P && row.name.contains("mfma")) {
        for arch in Arch::ALL.into_iter().filter(|&arch| row.on(arch)) {
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

/// `cbsz` and `abid`: one block of A for several; `blgp`: B's lanes broadcast or turned, and on f64 signs instead.
#[test]
fn broadcasts() {
    let layouts = layouts();
    for arch in Arch::ALL {
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
