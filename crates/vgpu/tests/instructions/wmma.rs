//! WMMA and SWMMAC, the matrix instructions of RDNA 3 and 4: register layouts and results in both wave sizes.
//!
//! `wmma_layouts.tsv` holds facts read off AMD's Matrix Instruction Calculator, as `layouts.tsv` does for MFMA: after the generation, the
//! wave size and the names, for each matrix its size and what each bit of the row and of the column adds to register (`v`), lane (`l`) and
//! bit (`.`). K holds the indices of sparse instructions, 4 bits for 4 columns of A. C is laid out as D.

use super::asm::Numbers;
use super::exact::{self, BF16, Exact, F16};
use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::TestWave;
use warpwave_vgpu::isa::{Format, inst_descs};

/// Register, lane, bit.
type Place = [usize; 3];

struct Layout {
    size: [usize; 2],
    places: [Vec<Place>; 2],
}

impl Layout {
    fn parse(text: &str) -> Layout {
        let place = |text: &str| {
            let mut place = [0; 3];
            for part in text.split('+').filter(|part| *part != "0") {
                place["vl.".find(&part[..1]).unwrap()] = part[1..].parse().unwrap();
            }
            place
        };
        let words: Vec<&str> = text.split(' ').collect();
        let size: Vec<usize> = words[1].split('x').map(|n| n.parse().unwrap()).collect();
        let places: Vec<Vec<Place>> = words[2].split(';').map(|bits| bits.split(',').map(place).collect()).collect();
        Layout { size: size.try_into().unwrap(), places: places.try_into().unwrap() }
    }

    fn at(&self, index: [usize; 2]) -> Place {
        let mut sum = [0; 3];
        for (index, places) in index.into_iter().zip(&self.places) {
            for (_, place) in places.iter().enumerate().filter(|(bit, _)| index >> bit & 1 != 0) {
                sum = std::array::from_fn(|n| sum[n] + place[n]);
            }
        }
        sum
    }

    /// Returns the bits of a lane's register that the matrix takes, given the bits of an element.
    fn width(&self, element: usize) -> usize {
        self.places.iter().flatten().map(|place| place[2]).sum::<usize>() + element
    }
}

/// Returns the bits of an element type and how it encodes a small integer.
fn encode(ty: &str, value: i64) -> (usize, u32) {
    let float = |exponent: u32, fraction: u32| {
        if value == 0 {
            return 0;
        }
        let top = value.unsigned_abs().ilog2();
        let rest = ((value.unsigned_abs() as u32 - (1 << top)) << fraction) >> top;
        let bias = (1 << (exponent - 1)) - 1;
        u32::from(value < 0) << (exponent + fraction) | (top + bias) << fraction | rest
    };
    match ty {
        "f16" => (16, Exact::int(value).round(F16, exact::NEAREST) as u32),
        "bf16" => (16, Exact::int(value).round(BF16, exact::NEAREST) as u32),
        "fp8" => (8, float(4, 3)),
        "bf8" => (8, float(5, 2)),
        "iu8" => (8, value as u32 & 0xff),
        "iu4" => (4, value as u32 & 0xf),
        "f32" => (32, (value as f32).to_bits()),
        "i32" => (32, value as u32),
        _ => panic!("{ty}"),
    }
}

/// Register numbers.
const A: usize = 10;
const B: usize = 20;
const K: usize = 40;
const C: usize = 64;
const D: usize = 128;
/// What the result's registers hold before.
const BEFORE: u32 = 0x5a5a_a5a5;

fn write(bench: &mut TestWave, base: usize, [register, lane, bit]: Place, bits: usize, value: u32) {
    let mut lanes = bench.v(base + register);
    let mask = u32::MAX >> (32 - bits);
    lanes[lane] = lanes[lane] & !(mask << bit) | (value & mask) << bit;
    bench.set_v(base + register, lanes);
}

struct Setup<'a> {
    arch: Arch,
    lanes: usize,
    name: &'a str,
    layouts: &'a [Layout],
    /// gfx11: the upper half of the result's registers. Sparse: the part of the index register.
    part: usize,
}

fn check(setup: &Setup<'_>) {
    let Setup { arch, lanes, name, layouts, part } = *setup;
    let sparse = name.starts_with("v_swmmac");
    let words: Vec<&str> = name.split('_').collect();
    let (result, a_type, b_type) = (words[2], words[4], words[words.len() - 1]);
    let [rows, depth] = layouts[0].size;
    let columns = layouts[1].size[1];
    // gfx11 has one 16-bit result in each register.
    let halves = arch == Arch::Gfx1100 && encode(result, 0).0 == 16;
    let mut bench = if lanes == 32 { TestWave::wave32(arch) } else { TestWave::new(arch) };
    (D..D + 8).for_each(|register| bench.set_v(register, [BEFORE; 64]));
    let mut numbers = Numbers(lanes as u64 + part as u64);
    let mut small = || (numbers.next() % 7) as i64 - 3;
    // Every lane of gfx11 holds a whole row, repeated in each sixteen lanes.
    let copies = if arch == Arch::Gfx1100 { lanes / 16 } else { 1 };
    let put = |bench: &mut TestWave, base: usize, place: Place, ty: &str, value: i64| {
        let (bits, code) = encode(ty, value);
        (0..copies).for_each(|copy| write(bench, base, [place[0], place[1] + 16 * copy, place[2]], bits, code));
    };
    let mut a = vec![0; rows * depth];
    let mut b = vec![0; depth * columns];
    let mut c = vec![0; rows * columns];
    for row in 0..rows {
        for group in 0..if sparse { depth / 4 } else { 0 } {
            let pairs = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]];
            let pair: [usize; 2] = pairs[(small() + 3) as usize % 6];
            let mut place = layouts[3].at([row, 4 * group]);
            place[2] += part * layouts[3].width(4);
            write(&mut bench, K, place, 4, (pair[0] | pair[1] << 2) as u32);
            let mut place = layouts[0].at([row, 4 * group]);
            for column in pair {
                a[row * depth + 4 * group + column] = small();
                put(&mut bench, A, place, a_type, a[row * depth + 4 * group + column]);
                place[2] += encode(a_type, 0).0;
            }
        }
        for k in 0..if sparse { 0 } else { depth } {
            a[row * depth + k] = small();
            put(&mut bench, A, layouts[0].at([row, k]), a_type, a[row * depth + k]);
        }
        for column in 0..columns {
            c[row * columns + column] = 5 * small();
            let (bits, code) = encode(result, c[row * columns + column]);
            let mut place = layouts[2].at([row, column]);
            place[2] += if halves { 16 * part } else { 0 };
            write(&mut bench, if sparse { D } else { C }, place, bits, code);
        }
    }
    for k in 0..depth {
        for column in 0..columns {
            b[k * columns + column] = small();
            put(&mut bench, B, layouts[1].at([k, column]), b_type, b[k * columns + column]);
        }
    }
    let row = inst_descs().iter().find(|row| row.format == Format::VOP3P && row.supports(arch) && row.name == name);
    let opcode = u32::from(row.unwrap_or_else(|| panic!("{arch} has no {name}")).opcode);
    let op_sel = if halves { 4 * part } else { part } as u32;
    let signed = if a_type.starts_with("iu") { 3 } else { 0 };
    let third = if sparse { K } else { C } as u32;
    let first = 0b1_1001_1000 << 23 | opcode << 16 | 1 << 14 | op_sel << 11 | D as u32;
    bench.set_exec(0x5);
    bench.run(&[first, signed << 29 | 3 << 27 | (256 + third) << 18 | (256 + B as u32) << 9 | (256 + A as u32)]).unwrap();
    for row in 0..rows {
        for column in 0..columns {
            let sum: i64 = c[row * columns + column] + (0..depth).map(|k| a[row * depth + k] * b[k * columns + column]).sum::<i64>();
            let [register, lane, mut bit] = layouts[2].at([row, column]);
            bit += if halves { 16 * part } else { 0 };
            let (bits, code) = encode(result, sum);
            let word = bench.v(D + register)[lane];
            let place = format!("{arch} wave{lanes} {name} part {part}: D[{row}][{column}]");
            assert_eq!(word >> bit & (u32::MAX >> (32 - bits)), code, "{place}");
            if halves {
                assert_eq!(word >> (16 - bit) & 0xffff, BEFORE >> (16 - bit) & 0xffff, "{place}: the other half");
            }
        }
    }
}

#[test]
fn every_wmma_layout_and_product() {
    let mut seen = 0;
    for line in include_str!("wmma_layouts.tsv").lines() {
        let mut cells = line.split('\t');
        let (device, names) = (cells.next().unwrap(), cells.next().unwrap());
        let layouts: Vec<Layout> = cells.map(Layout::parse).collect();
        let (generation, lanes) = device.split_once(' ').unwrap();
        let arch = if generation == "gfx11" { Arch::Gfx1100 } else { Arch::Gfx1201 };
        for name in names.split(' ') {
            let half = arch == Arch::Gfx1100 && (name.contains("_f16_16x") || name.contains("_bf16_16x"));
            let parts = if half { 2 } else { layouts.get(3).map_or(1, |index| 32 / index.width(4)) };
            for part in 0..parts {
                check(&Setup { arch, lanes: lanes.parse().unwrap(), name, layouts: &layouts, part });
            }
            seen += 1;
        }
    }
    // 6 of gfx11, 11 dense and 11 sparse of gfx12, in both wave sizes.
    assert_eq!(seen, 2 * (6 + 11 + 11));
}
