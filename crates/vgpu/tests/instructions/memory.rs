//! Memory: AMD's pseudocode of DS and GLOBAL atomics, and its chapter on buffer addressing.

use super::asm::*;
use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::TestWave;
use warpwave_vgpu::isa::Format;
use warpwave_vgpu::memory::MemoryKind;

/// What an atomic leaves in memory, from what was there and the data; 32 bits are extended as the operation needs.
pub fn atomic(name: &str, old: u64, data: u64, bits: u32) -> u64 {
    let signed = |x: u64| (x << (64 - bits)) as i64 >> (64 - bits);
    let value = match name {
        "add" => old.wrapping_add(data),
        "sub" => old.wrapping_sub(data),
        "rsub" => data.wrapping_sub(old),
        "inc" => {
            if old >= data {
                0
            } else {
                old + 1
            }
        }
        "dec" => {
            if old == 0 || old > data {
                data
            } else {
                old - 1
            }
        }
        "smin" => signed(old).min(signed(data)) as u64,
        "smax" => signed(old).max(signed(data)) as u64,
        "umin" => old.min(data),
        "umax" => old.max(data),
        "and" => old & data,
        "or" => old | data,
        "xor" => old ^ data,
        "swap" => data,
        _ => panic!("{name}"),
    };
    if bits == 64 { value } else { value & 0xffff_ffff }
}

pub const OPERATIONS: [&str; 13] = ["add", "sub", "rsub", "inc", "dec", "smin", "smax", "umin", "umax", "and", "or", "xor", "swap"];

pub fn values(bits: u32) -> Vec<(u64, u64)> {
    let all: Vec<u64> = [0, 1, 2, 5, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 32, 1 << 63, u64::MAX]
        .into_iter()
        .map(|x: u64| if bits == 64 { x } else { x & 0xffff_ffff })
        .collect();
    all.iter().flat_map(|&a| all.iter().map(move |&b| (a, b))).collect()
}

#[test]
fn shared_atomics() {
    for arch in GFX9 {
        for bits in [32u32, 64] {
            for operation in OPERATIONS {
                let suffix = match operation {
                    "smin" | "smax" => format!("i{bits}"),
                    "and" | "or" | "xor" | "swap" => format!("b{bits}"),
                    _ => format!("u{bits}"),
                };
                let stem = match operation {
                    "smin" | "umin" => "min",
                    "smax" | "umax" => "max",
                    "swap" => "wrxchg",
                    other => other,
                };
                for returns in [true, false] {
                    if stem == "wrxchg" && !returns {
                        continue;
                    }
                    let name = format!("ds_{stem}{}_{suffix}", if returns { "_rtn" } else { "" });
                    for chunk in values(bits).chunks(64) {
                        let mut bench = TestWave::new(arch);
                        let at = |lane: usize| 512 + lane * 8;
                        for (lane, (old, _)) in chunk.iter().enumerate() {
                            bench.lds()[at(lane)..at(lane) + 8].copy_from_slice(&old.to_le_bytes());
                        }
                        bench.set_exec(if chunk.len() == 64 { u64::MAX } else { (1 << chunk.len()) - 1 });
                        bench.set_s(124, u32::MAX);
                        bench.set_v(10, std::array::from_fn(|lane| at(lane) as u32 - 16));
                        bench.set_v(20, std::array::from_fn(|lane| chunk.get(lane).map_or(0, |pair| pair.1 as u32)));
                        bench.set_v(21, std::array::from_fn(|lane| chunk.get(lane).map_or(0, |pair| (pair.1 >> 32) as u32)));
                        bench.run(&ds(arch, &name, 2, 10, [20, 0], 16)).unwrap();
                        for (lane, &(old, data)) in chunk.iter().enumerate() {
                            let left = u64::from_le_bytes(bench.lds()[at(lane)..at(lane) + 8].try_into().unwrap());
                            assert_eq!(left, atomic(operation, old, data, bits), "{arch:?} {name} {old:x} {data:x}");
                            let got = u64::from(bench.v(2)[lane]) | u64::from(bench.v(3)[lane]) << 32;
                            if returns {
                                assert_eq!(if bits == 64 { got } else { got & 0xffff_ffff }, old, "{name}");
                            }
                        }
                    }
                }
            }
        }
        // Lanes that meet at one address are served one after the other; every old value is a different one.
        let mut bench = TestWave::new(arch);
        bench.set_s(124, u32::MAX);
        bench.set_v(20, [3; 64]);
        bench.run(&ds(arch, "ds_add_rtn_u32", 2, 10, [20, 0], 0)).unwrap();
        assert_eq!(bench.lds()[..4], 192u32.to_le_bytes());
        let mut olds = bench.v(2);
        olds.sort_unstable();
        assert_eq!(olds, std::array::from_fn(|lane| lane as u32 * 3));
        // Compare and store: the first data is compared, the second stored; masked or; wrap.
        for (name, old, [x, y], expected) in [
            ("ds_cmpst_rtn_b32", 5u32, [5u32, 9u32], 9u32),
            ("ds_cmpst_rtn_b32", 6, [5, 9], 6),
            ("ds_mskor_rtn_b32", 0xff, [0x0f, 0x1000], 0x10f0),
            ("ds_wrap_rtn_b32", 10, [3, 100], 7),
            ("ds_wrap_rtn_b32", 2, [3, 100], 102),
            ("ds_add_rtn_f32", 1.5f32.to_bits(), [2.25f32.to_bits(), 0], 3.75f32.to_bits()),
            ("ds_min_rtn_f32", (-0.5f32).to_bits(), [0.25f32.to_bits(), 0], (-0.5f32).to_bits()),
            ("ds_max_rtn_f32", (-0.5f32).to_bits(), [0.25f32.to_bits(), 0], 0.25f32.to_bits()),
        ] {
            let mut bench = TestWave::new(arch);
            bench.set_s(124, u32::MAX);
            bench.set_exec(1);
            bench.lds()[..4].copy_from_slice(&old.to_le_bytes());
            bench.set_v(20, [x; 64]);
            bench.set_v(21, [y; 64]);
            bench.run(&ds(arch, name, 2, 10, [20, 21], 0)).unwrap();
            assert_eq!((bench.lds()[..4].to_vec(), bench.v(2)[0]), (expected.to_le_bytes().to_vec(), old), "{arch:?} {name}");
        }
    }
}

#[test]
fn shared_loads_and_stores() {
    for arch in GFX9 {
        let mut bench = TestWave::new(arch);
        bench.set_s(124, u32::MAX);
        for (n, byte) in bench.lds()[..4096].iter_mut().enumerate() {
            *byte = (n * 37 + 11) as u8;
        }
        let memory = bench.lds()[..4096].to_vec();
        let word = |at: usize| u32::from_le_bytes(memory[at..at + 4].try_into().unwrap());
        bench.set_exec(1);
        bench.set_v(10, [64; 64]);
        for (name, offset, expected) in [
            ("ds_read_u8", 5, u32::from(memory[69])),
            ("ds_read_i8", 5, memory[69] as i8 as u32),
            ("ds_read_u16", 6, word(70) & 0xffff),
            ("ds_read_i16", 6, word(70) as u16 as i16 as u32),
            ("ds_read_u8_d16", 5, 0xcafe_0000 | u32::from(memory[69])),
            ("ds_read_i8_d16", 5, 0xcafe_0000 | memory[69] as i8 as u16 as u32),
            ("ds_read_u8_d16_hi", 5, 0xb00b | u32::from(memory[69]) << 16),
            ("ds_read_u16_d16", 6, 0xcafe_0000 | word(70) & 0xffff),
            ("ds_read_u16_d16_hi", 6, 0xb00b | word(70) << 16),
            ("ds_read_b32", 8, word(72)),
        ] {
            bench.set_v(2, [0xcafe_b00b; 64]);
            bench.run(&ds(arch, name, 2, 10, [0, 0], offset)).unwrap();
            assert_eq!(bench.v(2)[0], expected, "{arch:?} {name}");
        }
        // Two places: offsets in units of the element, or of 64 elements.
        bench.run(&ds(arch, "ds_read2_b32", 2, 10, [0, 0], 3 | 5 << 8)).unwrap();
        assert_eq!([bench.v(2)[0], bench.v(3)[0]], [word(64 + 12), word(64 + 20)]);
        bench.run(&ds(arch, "ds_read2_b64", 2, 10, [0, 0], 3 | 5 << 8)).unwrap();
        assert_eq!([2, 3, 4, 5].map(|n| bench.v(n)[0]), [88, 92, 104, 108].map(word));
        bench.run(&ds(arch, "ds_read2st64_b32", 2, 10, [0, 0], 1 | 2 << 8)).unwrap();
        assert_eq!([bench.v(2)[0], bench.v(3)[0]], [word(64 + 256), word(64 + 512)]);
        bench.run(&ds(arch, "ds_read_b128", 2, 10, [0, 0], 16)).unwrap();
        assert_eq!([2, 3, 4, 5].map(|n| bench.v(n)[0]), [80, 84, 88, 92].map(word));
        bench.run(&ds(arch, "ds_read_b96", 2, 10, [0, 0], 16)).unwrap();
        assert_eq!([2, 3, 4].map(|n| bench.v(n)[0]), [80, 84, 88].map(word));
        bench.set_v(20, [0x1122_3344; 64]);
        bench.set_v(21, [0x5566_7788; 64]);
        bench.run(&ds(arch, "ds_write_b8_d16_hi", 0, 10, [20, 0], 0)).unwrap();
        bench.run(&ds(arch, "ds_write_b16_d16_hi", 0, 10, [20, 0], 2)).unwrap();
        bench.run(&ds(arch, "ds_write2_b32", 0, 10, [20, 21], 2 | 4 << 8)).unwrap();
        bench.run(&ds(arch, "ds_write_b64", 0, 10, [20, 0], 32)).unwrap();
        let read = |bench: &mut TestWave, at: usize| u32::from_le_bytes(bench.lds()[at..at + 4].try_into().unwrap());
        assert_eq!(bench.lds()[64], 0x22);
        assert_eq!(read(&mut bench, 64) >> 16, 0x1122);
        assert_eq!([72, 80, 96, 100].map(|at| read(&mut bench, at)), [0x1122_3344, 0x5566_7788, 0x1122_3344, 0x5566_7788]);
    }
}

pub fn poke(address: u64, bytes: &[u8]) {
    // SAFETY: the tests below write within what they allocated.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
}

pub fn peek<const N: usize>(address: u64) -> [u8; N] {
    // SAFETY: as above; every byte was written before.
    unsafe { std::ptr::read_unaligned(address as *const [u8; N]) }
}

fn global(arch: Arch, name: &str, dst: u32, addr: u32, data: u32, offset: u32, glc: bool) -> [u32; 2] {
    let opcode = u32::from(row(arch, Format::GLOBAL, name).opcode);
    [0b110111 << 26 | opcode << 18 | u32::from(glc) << 16 | 2 << 14 | offset & 0x1fff, dst << 24 | 0x7f << 16 | data << 8 | addr]
}

#[test]
fn global_atomics() {
    for arch in GFX9 {
        for bits in [32u32, 64] {
            for operation in OPERATIONS.into_iter().filter(|name| *name != "rsub") {
                let name = format!("global_atomic_{operation}{}", if bits == 64 { "_x2" } else { "" });
                let all = values(bits);
                let mut bench = TestWave::new(arch);
                let base = bench.memory().allocate(4096, MemoryKind::Device(0)).unwrap();
                for chunk in all.chunks(64) {
                    for (lane, (old, _)) in chunk.iter().enumerate() {
                        poke(base + lane as u64 * 8, &old.to_le_bytes());
                    }
                    bench.set_exec(if chunk.len() == 64 { u64::MAX } else { (1 << chunk.len()) - 1 });
                    // A negative offset.
                    let address = |lane: usize| base + lane as u64 * 8 + 24;
                    bench.set_v(10, std::array::from_fn(|lane| address(lane) as u32));
                    bench.set_v(11, std::array::from_fn(|lane| (address(lane) >> 32) as u32));
                    bench.set_v(20, std::array::from_fn(|lane| chunk.get(lane).map_or(0, |pair| pair.1 as u32)));
                    bench.set_v(21, std::array::from_fn(|lane| chunk.get(lane).map_or(0, |pair| (pair.1 >> 32) as u32)));
                    for glc in [true, false] {
                        bench.set_v(2, [0x77; 64]);
                        for (lane, (old, _)) in chunk.iter().enumerate() {
                            poke(base + lane as u64 * 8, &old.to_le_bytes());
                        }
                        bench.run(&global(arch, &name, 2, 10, 20, -24i32 as u32, glc)).unwrap();
                        for (lane, &(old, data)) in chunk.iter().enumerate() {
                            let left = u64::from_le_bytes(peek(base + lane as u64 * 8));
                            assert_eq!(left, atomic(operation, old, data, bits), "{arch:?} {name} {old:x} {data:x}");
                            assert_eq!(bench.v(2)[lane], if glc { old as u32 } else { 0x77 }, "{name} glc {glc}");
                        }
                    }
                }
                bench.memory().free(base);
            }
        }
        // Compare and swap: the new value first, then what is compared.
        let mut bench = TestWave::new(arch);
        let base = bench.memory().allocate(256, MemoryKind::Device(0)).unwrap();
        bench.set_exec(1);
        bench.set_v(10, [base as u32; 64]);
        bench.set_v(11, [(base >> 32) as u32; 64]);
        for (old, expected) in [(5u32, 9u32), (6, 6)] {
            poke(base, &old.to_le_bytes());
            bench.set_v(20, [9; 64]);
            bench.set_v(21, [5; 64]);
            bench.run(&global(arch, "global_atomic_cmpswap", 2, 10, 20, 0, true)).unwrap();
            assert_eq!((u32::from_le_bytes(peek(base)), bench.v(2)[0]), (expected, old), "{arch:?}");
        }
        if arch == Arch::Gfx906 {
            // It has no float atomics.
            continue;
        }
        poke(base, &1.5f32.to_le_bytes());
        bench.set_v(20, [2.25f32.to_bits(); 64]);
        bench.run(&global(arch, "global_atomic_add_f32", 2, 10, 20, 0, false)).unwrap();
        assert_eq!(f32::from_le_bytes(peek(base)), 3.75);
        poke(base, &0x3c00_4000u32.to_le_bytes());
        bench.set_v(20, [0x4000_3c00; 64]);
        bench.run(&global(arch, "global_atomic_pk_add_f16", 2, 10, 20, 0, false)).unwrap();
        assert_eq!(u32::from_le_bytes(peek(base)), 0x4200_4200);
        if arch != Arch::Gfx908 {
            for (name, expected) in [("global_atomic_add_f64", -0.5f64), ("global_atomic_min_f64", -2.5), ("global_atomic_max_f64", 2.0)] {
                poke(base, &2f64.to_le_bytes());
                bench.set_v(20, [(-2.5f64).to_bits() as u32; 64]);
                bench.set_v(21, [((-2.5f64).to_bits() >> 32) as u32; 64]);
                bench.run(&global(arch, name, 2, 10, 20, 0, true)).unwrap();
                assert_eq!(f64::from_le_bytes(peek(base)), expected, "{arch:?} {name}");
                assert_eq!(bench.v(3)[0], (2f64.to_bits() >> 32) as u32);
            }
        }
        bench.memory().free(base);
    }
}

/// `base + soffset + ...`: raw, structured and swizzled buffers; what is out of range reads 0 and is not written.
#[test]
fn buffers() {
    for arch in GFX9 {
        let mut bench = TestWave::new(arch);
        let base = bench.memory().allocate(16384, MemoryKind::Device(0)).unwrap();
        for n in 0..4096u32 {
            poke(base + u64::from(n) * 4, &(0x5000_0000 + n * 4).to_le_bytes());
        }
        let mut load = |stride: u32,
                        records: u32,
                        swizzle: Option<u32>,
                        [offen, idxen]: [u32; 2],
                        imm: u32,
                        soffset: u32,
                        registers: [[u32; 64]; 2]| {
            bench.set_s(4, base as u32);
            bench.set_s(5, (base >> 32) as u32 & 0xffff | stride << 16 | u32::from(swizzle.is_some()) << 31);
            bench.set_s(6, records);
            // 32-bit data; the stride of swizzled indices.
            bench.set_s(7, 4 << 15 | swizzle.unwrap_or(0) << 21);
            bench.set_s(8, soffset);
            bench.set_v(10, registers[0]);
            bench.set_v(11, registers[1]);
            bench.set_v(2, [7; 64]);
            let opcode = u32::from(row(arch, Format::MUBUF, "buffer_load_dword").opcode);
            let words = [0b111000 << 26 | opcode << 18 | idxen << 13 | offen << 12 | imm, 8 << 24 | 1 << 16 | 2 << 8 | 10];
            bench.run(&words).unwrap();
            bench.v(2)
        };
        let lanes: [u32; 64] = std::array::from_fn(|lane| lane as u32);
        let none = [0; 64];
        // Raw: offsets from everywhere, range in bytes.
        let got = load(0, 16384, None, [1, 0], 20, 32, [lanes.map(|n| n * 8), none]);
        assert_eq!(got, lanes.map(|n| 0x5000_0000 + n * 8 + 52));
        let got = load(0, 256, None, [1, 0], 0, 0, [lanes.map(|n| n * 8), none]);
        assert_eq!(got, lanes.map(|n| if n * 8 < 256 { 0x5000_0000 + n * 8 } else { 0 }));
        // Structured: index times stride, range in records.
        let got = load(24, 40, None, [0, 1], 8, 0, [lanes, none]);
        assert_eq!(got, lanes.map(|n| if n < 40 { 0x5000_0000 + n * 24 + 8 } else { 0 }));
        let got = load(24, 64, None, [1, 1], 4, 0, [lanes, lanes.map(|n| n % 4 * 4)]);
        assert_eq!(got, lanes.map(|n| 0x5000_0000 + n * 24 + n % 4 * 4 + 4));
        // Swizzled: elements of 4 bytes, index strides of 8, 16, 32 and 64.
        for (code, width) in [(0, 8), (1, 16), (2, 32), (3, 64)] {
            let got = load(16, 64, Some(code), [1, 1], 0, 0, [lanes, lanes.map(|n| n % 4 * 4)]);
            let expected = lanes.map(|n| {
                let offset = n % 4 * 4;
                0x5000_0000 + (n / width * 16 + offset) * width + n % width * 4
            });
            assert_eq!(got, expected, "{arch:?} {width}");
            // Compilers address scratch from negative offsets: the sum wraps.
            let got = load(16, 64, Some(code), [1, 1], 12, 0, [lanes, [8u32.wrapping_neg(); 64]]);
            let expected = lanes.map(|n| 0x5000_0000 + (n / width * 16 + 4) * width + n % width * 4);
            assert_eq!(got, expected, "{arch:?} {width}");
        }
        bench.memory().free(base);
    }
}
