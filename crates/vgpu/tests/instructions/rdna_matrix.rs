//! WMMA on gfx11 in wave32: AMD's register layouts. Lane `n` holds row (column) `n % 16` of A (B); the two halves of the wavefront
//! hold the same. Register `r` of lane `n` has row `2 r + n / 16` and column `n % 16` of the result.

use super::asm::*;
use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::TestWave;

const ARCH: Arch = Arch::Gfx1100;

type Matrix = [[i32; 16]; 16];

/// Small integers, which every element type and every order of summation keeps exact.
fn matrix(seed: u64, most: u64) -> Matrix {
    let mut numbers = Numbers(seed);
    std::array::from_fn(|_| std::array::from_fn(|_| (numbers.next() % (2 * most + 1)) as i32 - most as i32))
}

fn expected(a: &Matrix, b: &Matrix, c: &Matrix, row: usize, column: usize) -> i32 {
    (0..16).map(|k| a[row][k] * b[k][column]).sum::<i32>() + c[row][column]
}

/// Writes the vectors of a source, element `k` of `bits` bits after element `k - 1`, from register `first`.
fn set_source(bench: &mut TestWave, first: usize, bits: usize, element: impl Fn(usize, usize) -> u32) {
    let each = 32 / bits;
    for register in 0..16 / each {
        let word = |lane: usize| (0..each).fold(0, |word, at| word | element(lane % 16, register * each + at) << (bits * at));
        bench.set_v(first + register, std::array::from_fn(word));
    }
}

fn half(value: i32) -> u32 {
    half::f16::from_f32(value as f32).to_bits().into()
}

fn brain(value: i32) -> u32 {
    (value as f32).to_bits() >> 16
}

/// Runs `v[40:47] = v[10:17] * v[20:27] + v[30:37]` and calls `check` with each result's row, column and register value.
fn product(inst: Vop3, bench: &mut TestWave, check: impl Fn(usize, usize, u32)) {
    // EXEC does not matter.
    bench.set_exec(0x0000_ff01);
    bench.run(&Vop3 { dst: 40, ..inst }.words()).unwrap();
    for register in 0..8 {
        (0..32).for_each(|lane| check(2 * register + lane / 16, lane % 16, bench.v(40 + register)[lane]));
    }
}

#[test]
fn float_products() {
    let (a, b, c) = (matrix(1, 8), matrix(2, 8), matrix(3, 30));
    for (name, convert) in [("v_wmma_f32_16x16x16_f16", half as fn(i32) -> u32), ("v_wmma_f32_16x16x16_bf16", brain)] {
        let mut bench = TestWave::wave32(ARCH);
        set_source(&mut bench, 10, 16, |row, k| convert(a[row][k]));
        set_source(&mut bench, 20, 16, |column, k| convert(b[k][column]));
        for register in 0..8 {
            bench.set_v(30 + register, std::array::from_fn(|lane| (c[(2 * register + lane / 16) % 16][lane % 16] as f32).to_bits()));
        }
        product(vop3(ARCH, name), &mut bench, |row, column, bits| {
            assert_eq!(f32::from_bits(bits), expected(&a, &b, &c, row, column) as f32, "{name} {row} {column}");
        });
    }
}

/// Results of 16 bits are in the low halves; `op_sel` moves them and the addends to the high ones.
#[test]
fn half_products() {
    let (a, b, c) = (matrix(4, 3), matrix(5, 3), matrix(6, 9));
    for (name, convert) in [("v_wmma_f16_16x16x16_f16", half as fn(i32) -> u32), ("v_wmma_bf16_16x16x16_bf16", brain)] {
        for op_sel in [0, 4] {
            let shift = 4 * op_sel;
            let mut bench = TestWave::wave32(ARCH);
            set_source(&mut bench, 10, 16, |row, k| convert(a[row][k]));
            set_source(&mut bench, 20, 16, |column, k| convert(b[k][column]));
            for register in 0..8 {
                bench.set_v(30 + register, std::array::from_fn(|lane| convert(c[(2 * register + lane / 16) % 16][lane % 16]) << shift));
            }
            product(Vop3 { op_sel, ..vop3(ARCH, name) }, &mut bench, |row, column, bits| {
                assert_eq!(bits >> shift & 0xffff, convert(expected(&a, &b, &c, row, column)), "{name} {op_sel} {row} {column}");
            });
        }
    }
}

/// `neg` makes a source signed.
#[test]
fn integer_products() {
    let (a, b, c) = (matrix(7, 7), matrix(8, 7), matrix(9, 1000));
    for (name, bits) in [("v_wmma_i32_16x16x16_iu8", 8), ("v_wmma_i32_16x16x16_iu4", 4)] {
        let mask = (1 << bits) - 1;
        for neg in 0..4 {
            let value = |value: i32, signed: bool| if signed { value } else { value & mask };
            let left: Matrix = a.map(|row| row.map(|x| value(x, neg & 1 != 0)));
            let right: Matrix = b.map(|row| row.map(|x| value(x, neg & 2 != 0)));
            let mut bench = TestWave::wave32(ARCH);
            set_source(&mut bench, 10, bits, |row, k| (a[row][k] & mask) as u32);
            set_source(&mut bench, 20, bits, |column, k| (b[k][column] & mask) as u32);
            for register in 0..8 {
                bench.set_v(30 + register, std::array::from_fn(|lane| c[(2 * register + lane / 16) % 16][lane % 16] as u32));
            }
            product(Vop3 { neg, ..vop3(ARCH, name) }, &mut bench, |row, column, bits| {
                assert_eq!(bits as i32, expected(&left, &right, &c, row, column), "{name} {neg} {row} {column}");
            });
        }
    }
}
