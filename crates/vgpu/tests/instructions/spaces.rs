//! Loads and stores in every address space: AMD's pseudocode of FLAT, GLOBAL, SCRATCH and SMEM, and its chapters on their addresses.

use super::asm::*;
use super::memory::{OPERATIONS, atomic, peek, poke, values};
use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::TestWave;
use warpwave_vgpu::fault::Fault;
use warpwave_vgpu::isa::Format;
use warpwave_vgpu::memory::MemoryKind;

/// `saddr` for `off`.
const OFF: u32 = 0x7f;

/// A FLAT instruction of any segment; `vector` is gfx942's bit for the vector address of SCRATCH.
struct Flat {
    format: Format,
    dst: u32,
    addr: u32,
    data: u32,
    saddr: u32,
    offset: i32,
    glc: bool,
    vector: bool,
}

impl Flat {
    fn new(format: Format) -> Flat {
        Flat { format, dst: 2, addr: 10, data: 20, saddr: OFF, offset: 0, glc: false, vector: true }
    }

    fn words(&self, arch: Arch, stem: &str) -> [u32; 2] {
        let (segment, prefix) = match self.format {
            Format::FLAT => (0, "flat"),
            Format::SCRATCH => (1, "scratch"),
            _ => (2, "global"),
        };
        let opcode = u32::from(row(arch, self.format, &format!("{prefix}_{stem}")).opcode);
        let offset = self.offset as u32 & if self.format == Format::FLAT { 0xfff } else { 0x1fff };
        let vector = u32::from(self.format == Format::SCRATCH && arch == Arch::Gfx942 && self.vector) << 13;
        [
            0b110111 << 26 | opcode << 18 | u32::from(self.glc) << 16 | segment << 14 | vector | offset,
            self.dst << 24 | self.saddr << 16 | self.data << 8 | self.addr,
        ]
    }
}

/// What a load leaves, from what was there and the bytes from its address on.
type Load = (&'static str, fn(u32, &[u8]) -> Vec<u32>);
const LOADS: [Load; 14] = [
    ("load_ubyte", |_, b| vec![b[0].into()]),
    ("load_sbyte", |_, b| vec![b[0] as i8 as u32]),
    ("load_ushort", |_, b| vec![half(b).into()]),
    ("load_sshort", |_, b| vec![half(b) as i16 as u32]),
    ("load_dword", |_, b| words(b, 1)),
    ("load_dwordx2", |_, b| words(b, 2)),
    ("load_dwordx3", |_, b| words(b, 3)),
    ("load_dwordx4", |_, b| words(b, 4)),
    ("load_ubyte_d16", |old, b| vec![old & 0xffff_0000 | u32::from(b[0])]),
    ("load_ubyte_d16_hi", |old, b| vec![old & 0xffff | u32::from(b[0]) << 16]),
    ("load_sbyte_d16", |old, b| vec![old & 0xffff_0000 | u32::from(b[0] as i8 as u16)]),
    ("load_sbyte_d16_hi", |old, b| vec![old & 0xffff | (b[0] as i8 as u32) << 16]),
    ("load_short_d16", |old, b| vec![old & 0xffff_0000 | u32::from(half(b))]),
    ("load_short_d16_hi", |old, b| vec![old & 0xffff | u32::from(half(b)) << 16]),
];

/// The bytes that a store leaves, from four registers.
type Store = (&'static str, fn([u32; 4]) -> Vec<u8>);
const STORES: [Store; 8] = [
    ("store_byte", |x| vec![x[0] as u8]),
    ("store_byte_d16_hi", |x| vec![(x[0] >> 16) as u8]),
    ("store_short", |x| x[0].to_le_bytes()[..2].to_vec()),
    ("store_short_d16_hi", |x| x[0].to_le_bytes()[2..].to_vec()),
    ("store_dword", |x| bytes(&x[..1])),
    ("store_dwordx2", |x| bytes(&x[..2])),
    ("store_dwordx3", |x| bytes(&x[..3])),
    ("store_dwordx4", |x| bytes(&x)),
];

fn half(b: &[u8]) -> u16 {
    u16::from_le_bytes([b[0], b[1]])
}

fn words(b: &[u8], count: usize) -> Vec<u32> {
    b.chunks_exact(4).take(count).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Bytes that are negative as often as not, different in each lane.
fn pattern(lane: usize) -> [u8; 64] {
    std::array::from_fn(|n| (n * 37 + lane * 11 + 0x91) as u8)
}

fn set_pair(bench: &mut TestWave, register: usize, address: impl Fn(usize) -> u64) {
    bench.set_v(register, std::array::from_fn(|lane| address(lane) as u32));
    bench.set_v(register + 1, std::array::from_fn(|lane| (address(lane) >> 32) as u32));
}

/// Flat addresses of `space`: each lane has 64 bytes to itself.
fn flat_addresses(bench: &mut TestWave, arch: Arch, space: &str, memory: u64) -> [u64; 64] {
    let aperture = match space {
        "shared" => 235,
        _ => 237,
    };
    bench.run(&[sop1(arch, "s_mov_b64", 20, aperture)]).unwrap();
    let base = u64::from(bench.s(20)) | u64::from(bench.s(21)) << 32;
    std::array::from_fn(|lane| match space {
        "memory" => memory + lane as u64 * 64,
        "shared" => base + 512 + lane as u64 * 64,
        // The same offset in every lane's own.
        _ => base + 64,
    })
}

/// Writes every lane's pattern with stores of 16 bytes.
fn fill(bench: &mut TestWave, arch: Arch, addresses: &[u64; 64]) {
    bench.set_exec(u64::MAX);
    for part in 0..4usize {
        set_pair(bench, 30, |lane| addresses[lane] + 16 * part as u64);
        for n in 0..4 {
            bench.set_v(40 + n, std::array::from_fn(|lane| words(&pattern(lane)[16 * part + 4 * n..], 1)[0]));
        }
        bench.run(&Flat { addr: 30, data: 40, ..Flat::new(Format::FLAT) }.words(arch, "store_dwordx4")).unwrap();
    }
}

/// Each lane's 64 bytes.
fn dump(bench: &mut TestWave, arch: Arch, addresses: &[u64; 64]) -> Vec<[u8; 64]> {
    bench.set_exec(u64::MAX);
    let mut all = vec![[0; 64]; 64];
    for part in 0..4usize {
        set_pair(bench, 30, |lane| addresses[lane] + 16 * part as u64);
        bench.run(&Flat { addr: 30, dst: 40, ..Flat::new(Format::FLAT) }.words(arch, "load_dwordx4")).unwrap();
        for n in 0..4 {
            for (lane, bytes) in all.iter_mut().enumerate() {
                bytes[16 * part + 4 * n..][..4].copy_from_slice(&bench.v(40 + n)[lane].to_le_bytes());
            }
        }
    }
    all
}

/// Runs every load and store through `place`, which gives the instruction for an address `offset` bytes into each lane's own.
fn every_form(arch: Arch, bench: &mut TestWave, addresses: &[u64; 64], what: &str, place: &dyn Fn(&mut TestWave, i32) -> Flat) {
    const EXEC: u64 = 0xf00f_1248_8421_fff7;
    let on = |lane: usize| EXEC >> lane & 1 != 0;
    fill(bench, arch, addresses);
    for (stem, expect) in LOADS {
        for offset in [0, 4, 8, 20] {
            (2..6).for_each(|register| bench.set_v(register, [OLD as u32; 64]));
            let inst = place(bench, offset);
            bench.set_exec(EXEC);
            bench.run(&inst.words(arch, stem)).unwrap_or_else(|fault| panic!("{arch:?} {what} {stem}: {fault}"));
            for lane in 0..64 {
                let mut expected = [OLD as u32; 4];
                if on(lane) {
                    let left = expect(OLD as u32, &pattern(lane)[offset as usize..]);
                    expected[..left.len()].copy_from_slice(&left);
                }
                let got = [2, 3, 4, 5].map(|register| bench.v(register)[lane]);
                assert_eq!(got, expected, "{arch:?} {what} {stem} at {offset} lane {lane}");
            }
        }
    }
    let data = |lane: usize| [0x8899_aabb + lane as u32, 0x1122_3344, 0xdead_0000 | lane as u32, 0xcafe_f00d];
    for (stem, expect) in STORES {
        for offset in [0, 4, 28] {
            fill(bench, arch, addresses);
            (0..4).for_each(|n| bench.set_v(20 + n, std::array::from_fn(|lane| data(lane)[n])));
            let inst = place(bench, offset);
            bench.set_exec(EXEC);
            bench.run(&inst.words(arch, stem)).unwrap_or_else(|fault| panic!("{arch:?} {what} {stem}: {fault}"));
            for (lane, got) in dump(bench, arch, addresses).into_iter().enumerate() {
                let mut expected = pattern(lane);
                if on(lane) {
                    let written = expect(data(lane));
                    expected[offset as usize..][..written.len()].copy_from_slice(&written);
                }
                assert_eq!(got, expected, "{arch:?} {what} {stem} at {offset} lane {lane}");
            }
        }
    }
}

/// `flat_*`: the address says which space; the offset is added, and is not negative.
#[test]
fn flat() {
    for arch in GFX9 {
        let mut bench = TestWave::new(arch);
        let memory = bench.memory().allocate(4096, MemoryKind::Device(0)).unwrap();
        for space in ["memory", "shared", "private"] {
            let addresses = flat_addresses(&mut bench, arch, space, memory);
            every_form(arch, &mut bench, &addresses, space, &|bench, offset| {
                // Part of the offset in the instruction.
                let within = offset.min(12);
                set_pair(bench, 10, |lane| addresses[lane] + (offset - within) as u64);
                Flat { offset: within, ..Flat::new(Format::FLAT) }
            });
        }
        // Lanes of one instruction in all three.
        let spaces = ["memory", "shared", "private"].map(|space| flat_addresses(&mut bench, arch, space, memory));
        let mixed = std::array::from_fn(|lane| spaces[lane % 3][lane]);
        every_form(arch, &mut bench, &mixed, "mixed", &|bench, offset| {
            set_pair(bench, 10, |lane| mixed[lane]);
            Flat { offset, ..Flat::new(Format::FLAT) }
        });
        // Nowhere.
        bench.set_exec(1 << 7);
        set_pair(&mut bench, 10, |_| 0x10);
        let fault = bench.run(&Flat::new(Format::FLAT).words(arch, "load_dword")).unwrap_err();
        assert!(matches!(fault, Fault::Memory { lane: 7, address: 0x10, .. }), "{fault}");
        bench.memory().free(memory);
    }
}

/// `global_*`: a 64-bit vector address, or a scalar one and 32 bits without a sign; the offset has one.
#[test]
fn global() {
    for arch in GFX9 {
        let mut bench = TestWave::new(arch);
        let memory = bench.memory().allocate(8192, MemoryKind::Device(0)).unwrap();
        let addresses = std::array::from_fn(|lane| memory + 4096 + lane as u64 * 64);
        every_form(arch, &mut bench, &addresses, "vector", &|bench, offset| {
            set_pair(bench, 10, |lane| addresses[lane] + 4096);
            Flat { offset: offset - 4096, ..Flat::new(Format::GLOBAL) }
        });
        every_form(arch, &mut bench, &addresses, "scalar", &|bench, offset| {
            let base = memory.wrapping_sub(0x9000_0000);
            bench.set_s(6, base as u32);
            bench.set_s(7, (base >> 32) as u32);
            bench.set_v(10, std::array::from_fn(|lane| 0x9000_0000 + 96 + lane as u32 * 64));
            bench.set_v(11, [0x5555_5555; 64]);
            Flat { saddr: 6, offset: offset + 4000, ..Flat::new(Format::GLOBAL) }
        });
        bench.memory().free(memory);
    }
}

/// `scratch_*`: offsets in each lane's own memory, from a vector register, a scalar one, on gfx942 from both.
#[test]
fn scratch() {
    for arch in GFX9 {
        let mut bench = TestWave::new(arch);
        let addresses = flat_addresses(&mut bench, arch, "private", 0);
        let base = addresses[0] as u32;
        every_form(arch, &mut bench, &addresses, "vector", &|bench, offset| {
            bench.set_v(10, [base + 300; 64]);
            Flat { offset: offset - 300, ..Flat::new(Format::SCRATCH) }
        });
        every_form(arch, &mut bench, &addresses, "scalar", &|bench, offset| {
            bench.set_v(10, [0x5555_5555; 64]);
            bench.set_s(6, base + 100);
            Flat { saddr: 6, offset: offset - 100, vector: false, ..Flat::new(Format::SCRATCH) }
        });
        if arch == Arch::Gfx942 {
            every_form(arch, &mut bench, &addresses, "both", &|bench, offset| {
                bench.set_v(10, [40; 64]);
                bench.set_s(6, base - 40);
                Flat { saddr: 6, offset, ..Flat::new(Format::SCRATCH) }
            });
        }
        // Each lane at an offset of its own.
        let apart: [u64; 64] = std::array::from_fn(|lane| addresses[lane] + 64 * (lane as u64 % 4));
        every_form(arch, &mut bench, &apart, "apart", &|bench, offset| {
            bench.set_v(10, apart.map(|address| address as u32));
            Flat { offset, ..Flat::new(Format::SCRATCH) }
        });
        bench.set_v(10, [0x7fff_fff0; 64]);
        let fault = bench.run(&Flat::new(Format::SCRATCH).words(arch, "load_dword")).unwrap_err();
        assert!(matches!(fault, Fault::Scratch { .. }), "{fault}");
    }
}

/// `flat_atomic_*` in memory and in shared memory.
#[test]
fn flat_atomics() {
    for arch in GFX9 {
        let mut bench = TestWave::new(arch);
        let memory = bench.memory().allocate(4096, MemoryKind::Device(0)).unwrap();
        for space in ["memory", "shared"] {
            let addresses = flat_addresses(&mut bench, arch, space, memory);
            let set = |bench: &mut TestWave, lane: usize, value: u64| match space {
                "memory" => poke(addresses[lane], &value.to_le_bytes()),
                _ => bench.lds()[512 + 64 * lane..][..8].copy_from_slice(&value.to_le_bytes()),
            };
            let get = |bench: &mut TestWave, lane: usize| match space {
                "memory" => u64::from_le_bytes(peek(addresses[lane])),
                _ => u64::from_le_bytes(bench.lds()[512 + 64 * lane..][..8].try_into().unwrap()),
            };
            for bits in [32u32, 64] {
                let suffix = if bits == 64 { "_x2" } else { "" };
                for operation in OPERATIONS.into_iter().filter(|name| *name != "rsub").chain(["cmpswap"]) {
                    for chunk in values(bits).chunks(64) {
                        for glc in [true, false] {
                            bench.set_exec(u64::MAX);
                            bench.set_v(2, [0x77; 64]);
                            bench.set_v(3, [0x77; 64]);
                            set_pair(&mut bench, 10, |lane| addresses[lane] - 8);
                            let data = |lane: usize| chunk.get(lane).map_or(0, |pair| pair.1);
                            set_pair(&mut bench, 20, data);
                            // Compared with: what is there in every other lane.
                            let compared = |lane: usize| chunk.get(lane).map_or(0, |pair| pair.0 ^ (lane as u64 & 1));
                            let at = if bits == 64 { 22 } else { 21 };
                            if operation == "cmpswap" {
                                set_pair(&mut bench, at, compared);
                            }
                            (0..64).for_each(|lane| set(&mut bench, lane, chunk.get(lane).map_or(0, |pair| pair.0)));
                            let inst = Flat { glc, offset: 8, ..Flat::new(Format::FLAT) };
                            bench.run(&inst.words(arch, &format!("atomic_{operation}{suffix}"))).unwrap();
                            for (lane, &(old, new)) in chunk.iter().enumerate() {
                                let expected = match operation {
                                    "cmpswap" => [new, old][lane & 1],
                                    _ => atomic(operation, old, new, bits),
                                };
                                assert_eq!(get(&mut bench, lane), expected, "{arch:?} {space} {operation}{suffix} {old:x} {new:x}");
                                let got = u64::from(bench.v(2)[lane]) | u64::from(bench.v(3)[lane]) << 32;
                                let mask = if bits == 64 { u64::MAX } else { 0xffff_ffff };
                                let returned = if glc { old } else { 0x77_0000_0077 };
                                assert_eq!(got & mask, returned & mask, "{arch:?} {space} {operation}{suffix} glc {glc}");
                            }
                        }
                    }
                }
            }
        }
        bench.memory().free(memory);
    }
}

/// A scalar memory instruction: data from `s32`, base `s[4:5]` or `s[4:7]`.
fn smem(arch: Arch, name: &str, imm: Option<i32>, soffset: Option<u32>, glc: bool) -> [u32; 2] {
    let opcode = u32::from(row(arch, Format::SMEM, name).opcode);
    let first = 0b110000 << 26 | opcode << 18 | u32::from(glc) << 16 | 32 << 6 | 2;
    match (imm, soffset) {
        (Some(imm), None) => [first | 1 << 17, imm as u32 & 0x1f_ffff],
        (None, Some(register)) => [first, register],
        (Some(imm), Some(register)) => [first | 1 << 17 | 1 << 14, register << 25 | imm as u32 & 0x1f_ffff],
        (None, None) => [first, 0],
    }
}

/// The base, an offset of 21 bits with a sign or a register or both, whole words; buffers end where their resource says.
#[test]
fn scalar_memory() {
    for arch in GFX9 {
        let mut bench = TestWave::new(arch);
        let memory = bench.memory().allocate(4096, MemoryKind::Device(0)).unwrap();
        let word = |at: u64| 0x5000_0000 + at as u32;
        let reset = || (0..1024u64).for_each(|n| poke(memory + 4 * n, &word(4 * n).to_le_bytes()));
        reset();
        let ways: [(Option<i32>, Option<u32>, u64); 6] = [
            (Some(0), None, 0),
            (Some(64), None, 64),
            (Some(-64), None, 0u64.wrapping_sub(64)),
            (None, Some(9), 40),
            (Some(-8), Some(9), 32),
            (Some(7), None, 4),
        ];
        for (name, count) in [
            ("s_load_dword", 1),
            ("s_load_dwordx2", 2),
            ("s_load_dwordx4", 4),
            ("s_load_dwordx8", 8),
            ("s_load_dwordx16", 16),
            ("s_buffer_load_dword", 1),
            ("s_buffer_load_dwordx2", 2),
            ("s_buffer_load_dwordx4", 4),
            ("s_buffer_load_dwordx8", 8),
            ("s_buffer_load_dwordx16", 16),
        ] {
            for (imm, soffset, offset) in ways {
                let buffer = name.contains("buffer");
                if buffer && imm.is_some_and(|imm| imm < 0) {
                    continue;
                }
                let base = memory + 1024;
                bench.set_s(4, base as u32);
                bench.set_s(5, (base >> 32) as u32);
                bench.set_s(6, 96);
                bench.set_s(7, 0);
                bench.set_s(9, 40);
                (32..50).for_each(|register| bench.set_s(register, 0x77));
                bench.run(&smem(arch, name, imm, soffset, false)).unwrap();
                for n in 0..18u64 {
                    let at = offset.wrapping_add(4 * n);
                    let expected = match n < count {
                        false => 0x77,
                        true if buffer && at >= 96 => 0,
                        true => word(1024u64.wrapping_add(at)),
                    };
                    assert_eq!(bench.s(32 + n as u16), expected, "{arch:?} {name} {imm:?} {soffset:?} word {n}");
                }
            }
        }
        for (name, count) in [
            ("s_store_dword", 1u64),
            ("s_store_dwordx2", 2),
            ("s_store_dwordx4", 4),
            ("s_buffer_store_dword", 1),
            ("s_buffer_store_dwordx2", 2),
            ("s_buffer_store_dwordx4", 4),
        ] {
            for (imm, offset) in [(0, 0u64), (84, 84), (92, 92)] {
                reset();
                bench.set_s(6, 96);
                (0..5).for_each(|n| bench.set_s(32 + n, 0xabc0 + u32::from(n)));
                bench.run(&smem(arch, name, Some(imm), None, false)).unwrap();
                for n in 0..40u64 {
                    let index = n.wrapping_sub(offset / 4);
                    let written = index < count && (!name.contains("buffer") || 4 * n < 96);
                    let expected = if written { 0xabc0 + index as u32 } else { word(1024 + 4 * n) };
                    assert_eq!(u32::from_le_bytes(peek(memory + 1024 + 4 * n)), expected, "{arch:?} {name} {imm} word {n}");
                }
            }
        }
        // Clocks go on.
        for name in ["s_memtime", "s_memrealtime"] {
            let mut read = || {
                bench.run(&smem(arch, name, None, None, false)).unwrap();
                bench.s(33)
            };
            assert_eq!([read(), read()], [0, 0], "{arch:?} {name}: the bench's clock is young");
        }
        for name in ["s_dcache_inv", "s_dcache_wb", "s_dcache_inv_vol", "s_dcache_wb_vol"] {
            bench.run(&smem(arch, name, None, None, false)).unwrap();
        }
        // Nowhere, and beyond the end.
        bench.set_s(4, 0x10);
        bench.set_s(5, 0);
        assert!(matches!(bench.run(&smem(arch, "s_load_dword", Some(0), None, false)), Err(Fault::Memory { .. })), "{arch:?}");
        bench.memory().free(memory);
    }
}

/// Atomics of the whole wave: once, not for each lane.
#[test]
fn scalar_atomics() {
    for arch in GFX9 {
        let mut bench = TestWave::new(arch);
        let memory = bench.memory().allocate(256, MemoryKind::Device(0)).unwrap();
        for prefix in ["s_atomic", "s_buffer_atomic"] {
            for bits in [32u32, 64] {
                let suffix = if bits == 64 { "_x2" } else { "" };
                for operation in OPERATIONS.into_iter().filter(|name| *name != "rsub").chain(["cmpswap"]) {
                    let name = format!("{prefix}_{operation}{suffix}");
                    for (n, (old, new)) in values(bits).into_iter().enumerate() {
                        for glc in [true, false] {
                            poke(memory + 16, &old.to_le_bytes());
                            bench.set_s(4, memory as u32);
                            bench.set_s(5, (memory >> 32) as u32);
                            bench.set_s(6, 256);
                            bench.set_s(7, 0);
                            bench.set_s(32, new as u32);
                            bench.set_s(33, (new >> 32) as u32);
                            if operation == "cmpswap" {
                                let compared = old ^ (n as u64 & 1);
                                let at = if bits == 64 { 34 } else { 33 };
                                bench.set_s(at, compared as u32);
                                bench.set_s(at + 1, (compared >> 32) as u32);
                            }
                            bench.run(&smem(arch, &name, Some(16), None, glc)).unwrap();
                            let expected = match operation {
                                "cmpswap" => [new, old][n & 1],
                                _ => atomic(operation, old, new, bits),
                            };
                            assert_eq!(u64::from_le_bytes(peek(memory + 16)), expected, "{arch:?} {name} {old:x} {new:x}");
                            assert_eq!(bench.s(32), if glc { old } else { new } as u32, "{arch:?} {name} glc {glc}");
                        }
                    }
                }
            }
        }
        bench.memory().free(memory);
    }
}
