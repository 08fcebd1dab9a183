//! LDS, scalar, global, flat and scratch memory with gfx11's encodings and names.

use super::rdna_asm::*;
use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::TestWave;
use warpwave_vgpu::isa::Format;
use warpwave_vgpu::memory::MemoryKind;

const ARCH: Arch = Arch::Gfx1100;

/// Flat addresses of LDS begin here; the aperture's number is this device's own.
const SHARED_BASE: u64 = 0x0001_0000_0000_0000;

fn bytes(bench: &mut TestWave, at: usize, count: usize) -> Vec<u8> {
    bench.lds()[at..at + count].to_vec()
}

fn word(bench: &mut TestWave, at: usize) -> u32 {
    u32::from_le_bytes(bench.lds()[at..at + 4].try_into().unwrap())
}

/// Loads and stores of every width, at an address of 16 bytes per lane plus the instruction's offset.
#[test]
fn lds_widths() {
    for (store, load, words) in [
        ("ds_store_b32", "ds_load_b32", 1),
        ("ds_store_b64", "ds_load_b64", 2),
        ("ds_store_b96", "ds_load_b96", 3),
        ("ds_store_b128", "ds_load_b128", 4),
    ] {
        let mut bench = TestWave::wave32(ARCH);
        bench.set_exec(0xffff_fffe);
        bench.set_v(10, std::array::from_fn(|lane| 16 * lane as u32));
        (0..4).for_each(|n| bench.set_v(20 + n, std::array::from_fn(|lane| 1000 * n as u32 + lane as u32)));
        bench.run(&rdna_ds(ARCH, store, 0, 10, [20, 0], 512)).unwrap();
        bench.run(&rdna_ds(ARCH, load, 2, 10, [0, 0], 512)).unwrap();
        for lane in 0..32 {
            for n in 0..words {
                let expected = if lane == 0 { 0 } else { 1000 * n as u32 + lane as u32 };
                assert_eq!((bench.v(2 + n)[lane], word(&mut bench, 512 + 16 * lane + 4 * n)), (expected, expected), "{store} {lane} {n}");
            }
        }
    }
    let mut bench = TestWave::wave32(ARCH);
    bench.set_v(10, std::array::from_fn(|lane| 4 * lane as u32));
    bench.set_v(20, [0x1122_3344; 64]);
    bench.run(&rdna_ds(ARCH, "ds_store_b16", 0, 10, [20, 0], 0)).unwrap();
    assert_eq!(bytes(&mut bench, 4, 4), [0x44, 0x33, 0, 0]);
    bench.run(&rdna_ds(ARCH, "ds_store_b16_d16_hi", 0, 10, [20, 0], 2)).unwrap();
    assert_eq!(bytes(&mut bench, 4, 4), [0x44, 0x33, 0x22, 0x11]);
    bench.set_v(2, [0xdead_beef; 64]);
    bench.run(&rdna_ds(ARCH, "ds_load_u8_d16_hi", 2, 10, [0, 0], 3)).unwrap();
    assert_eq!(bench.v(2)[1], 0x0011_beef);
    bench.run(&rdna_ds(ARCH, "ds_load_i8", 2, 10, [0, 0], 0)).unwrap();
    assert_eq!(bench.v(2)[1], 0x44);
}

/// Two addresses: offsets count elements, or 64 of them.
#[test]
fn lds_pairs() {
    let mut bench = TestWave::wave32(ARCH);
    bench.set_exec(1);
    (20..24).for_each(|n| bench.set_v(n, [n as u32; 64]));
    bench.set_v(10, [8; 64]);
    let pair = |first: u32, second: u32| second << 8 | first;
    bench.run(&rdna_ds(ARCH, "ds_store_2addr_b32", 0, 10, [20, 21], pair(1, 3))).unwrap();
    assert_eq!((word(&mut bench, 12), word(&mut bench, 20)), (20, 21));
    bench.run(&rdna_ds(ARCH, "ds_store_2addr_stride64_b32", 0, 10, [22, 23], pair(1, 2))).unwrap();
    assert_eq!((word(&mut bench, 8 + 256), word(&mut bench, 8 + 512)), (22, 23));
    bench.run(&rdna_ds(ARCH, "ds_load_2addr_b32", 2, 10, [0, 0], pair(3, 1))).unwrap();
    assert_eq!((bench.v(2)[0], bench.v(3)[0]), (21, 20));
    bench.run(&rdna_ds(ARCH, "ds_store_2addr_b64", 0, 10, [20, 22], pair(10, 12))).unwrap();
    assert_eq!((word(&mut bench, 88), word(&mut bench, 92), word(&mut bench, 104), word(&mut bench, 108)), (20, 21, 22, 23));
    bench.run(&rdna_ds(ARCH, "ds_load_2addr_b64", 2, 10, [0, 0], pair(12, 10))).unwrap();
    assert_eq!([2, 3, 4, 5].map(|n| bench.v(n)[0]), [22, 23, 20, 21]);
    bench.run(&rdna_ds(ARCH, "ds_store_2addr_stride64_b64", 0, 10, [22, 20], pair(2, 3))).unwrap();
    assert_eq!((word(&mut bench, 8 + 1024), word(&mut bench, 12 + 1536)), (22, 21));
    bench.run(&rdna_ds(ARCH, "ds_load_2addr_stride64_b64", 2, 10, [0, 0], pair(3, 2))).unwrap();
    assert_eq!([2, 3, 4, 5].map(|n| bench.v(n)[0]), [20, 21, 22, 23]);
    bench.run(&rdna_ds(ARCH, "ds_storexchg_2addr_stride64_rtn_b64", 2, 10, [22, 22], pair(3, 2))).unwrap();
    assert_eq!([2, 3, 4, 5].map(|n| bench.v(n)[0]), [20, 21, 22, 23]);
    bench.run(&rdna_ds(ARCH, "ds_load_2addr_stride64_b32", 2, 10, [0, 0], pair(2, 1))).unwrap();
    assert_eq!((bench.v(2)[0], bench.v(3)[0]), (23, 22));
    bench.run(&rdna_ds(ARCH, "ds_storexchg_2addr_stride64_rtn_b32", 2, 10, [20, 21], pair(1, 2))).unwrap();
    assert_eq!((bench.v(2)[0], bench.v(3)[0], word(&mut bench, 8 + 256), word(&mut bench, 8 + 512)), (22, 23, 20, 21));
    bench.run(&rdna_ds(ARCH, "ds_storexchg_rtn_b64", 2, 10, [20, 0], 80)).unwrap();
    assert_eq!((bench.v(2)[0], bench.v(3)[0], word(&mut bench, 88)), (20, 21, 20));
    bench.run(&rdna_ds(ARCH, "ds_storexchg_2addr_rtn_b32", 2, 10, [23, 22], pair(1, 3))).unwrap();
    assert_eq!((bench.v(2)[0], bench.v(3)[0], word(&mut bench, 12), word(&mut bench, 20)), (20, 21, 23, 22));
}

/// `ds_cmpstore` has the new value in the first data operand, the value to compare with in the second: the other way round than GFX9.
#[test]
fn lds_atomics() {
    let mut bench = TestWave::wave32(ARCH);
    bench.set_exec(1);
    bench.set_v(10, [64; 64]);
    bench.set_v(20, [700; 64]);
    bench.set_v(21, [5; 64]);
    let mut rtn = |name: &str, memory: u32, expected: u32| {
        bench.lds()[64..68].copy_from_slice(&memory.to_le_bytes());
        bench.run(&rdna_ds(ARCH, name, 2, 10, [20, 21], 0)).unwrap();
        assert_eq!((bench.v(2)[0], word(&mut bench, 64)), (memory, expected), "{name} {memory}");
    };
    rtn("ds_cmpstore_rtn_b32", 5, 700);
    rtn("ds_cmpstore_rtn_b32", 6, 6);
    rtn("ds_add_rtn_u32", u32::MAX, 699);
    rtn("ds_inc_rtn_u32", 699, 700);
    rtn("ds_inc_rtn_u32", 700, 0);
    rtn("ds_dec_rtn_u32", 0, 700);
    rtn("ds_dec_rtn_u32", 701, 700);
    rtn("ds_min_rtn_u32", 900, 700);
    rtn("ds_max_rtn_u32", 900, 900);
    rtn("ds_and_rtn_b32", 0xff, 700 & 0xff);
    rtn("ds_or_rtn_b32", 0xff, 700 | 0xff);
    rtn("ds_xor_rtn_b32", 0xff, 700 ^ 0xff);
    rtn("ds_storexchg_rtn_b32", 3, 700);
    bench.lds()[64..68].copy_from_slice(&5u32.to_le_bytes());
    bench.run(&rdna_ds(ARCH, "ds_cmpstore_b32", 0, 10, [20, 21], 0)).unwrap();
    assert_eq!(word(&mut bench, 64), 700);
    bench.run(&rdna_ds(ARCH, "ds_add_u32", 0, 10, [21, 0], 0)).unwrap();
    assert_eq!(word(&mut bench, 64), 705);
    bench.run(&rdna_ds(ARCH, "ds_max_u32", 0, 10, [20, 0], 0)).unwrap();
    assert_eq!(word(&mut bench, 64), 705);
}

/// A wavefront with a buffer of 4 KiB whose dwords hold their numbers; its address is in `s[10:11]` and `v[10:11]`.
fn with_buffer() -> (TestWave, u64) {
    let mut bench = TestWave::wave32(ARCH);
    let start = bench.memory().allocate(4096, MemoryKind::Device(0)).unwrap();
    for n in 0..1024u64 {
        write(start + 4 * n, n as u32);
    }
    bench.set_s(10, start as u32);
    bench.set_s(11, (start >> 32) as u32);
    (bench, start)
}

fn write(address: u64, value: u32) {
    // SAFETY: the callers pass addresses within an allocation that lives.
    unsafe { (address as *mut u32).write(value) };
}

fn read(address: u64) -> u32 {
    // SAFETY: the callers pass addresses within an allocation that lives.
    unsafe { (address as *const u32).read() }
}

#[test]
fn scalar_loads() {
    let (mut bench, _) = with_buffer();
    for (name, count) in [("s_load_b32", 1), ("s_load_b64", 2), ("s_load_b128", 4), ("s_load_b256", 8), ("s_load_b512", 16)] {
        (20..40).for_each(|n| bench.set_s(n, 7777));
        bench.run(&smem_gfx11(name, 20, 10, 64)).unwrap();
        for n in 0..17 {
            assert_eq!(bench.s(20 + n), if n < count { 16 + u32::from(n) } else { 7777 }, "{name} {n}");
        }
    }
    // A negative offset, from the middle of the buffer.
    bench.set_s(10, bench.s(10) + 256);
    bench.run(&smem_gfx11("s_load_b32", 20, 10, -8)).unwrap();
    assert_eq!(bench.s(20), 62);
}

#[test]
fn global_loads_and_stores() {
    let (mut bench, start) = with_buffer();
    bench.set_v(12, std::array::from_fn(|lane| 16 * lane as u32));
    let address = |offset| Address { vector: Some(12), scalar: Some(10), offset };
    for (name, count) in [("global_load_b32", 1), ("global_load_b64", 2), ("global_load_b96", 3), ("global_load_b128", 4)] {
        bench.run(&flat_gfx11(Format::GLOBAL, name, 2, 0, address(32), false)).unwrap();
        for lane in 0..32 {
            (0..count).for_each(|n| assert_eq!(bench.v(2 + n)[lane], 8 + 4 * lane as u32 + n as u32, "{name} {lane}"));
        }
    }
    bench.set_v(12, [0x80; 64]);
    write(start + 0x7c, 0x8182_8384);
    bench.set_v(2, [0xdead_beef; 64]);
    for (name, expected) in [
        ("global_load_u8", 0x84),
        ("global_load_i8", 0xffff_ff84),
        ("global_load_u16", 0x8384),
        ("global_load_i16", 0xffff_8384),
        ("global_load_d16_hi_b16", 0x8384_8384),
        ("global_load_d16_hi_u8", 0x0084_8384),
        ("global_load_d16_i8", 0x0084_ff84),
        ("global_load_d16_hi_i8", 0xff84_ff84),
    ] {
        bench.run(&flat_gfx11(Format::GLOBAL, name, 2, 0, address(-4), false)).unwrap();
        assert_eq!(bench.v(2)[0], expected, "{name}");
    }
    // Without a scalar base, the address is in a VGPR pair.
    bench.set_exec(1);
    bench.set_v(14, [start as u32; 64]);
    bench.set_v(15, [(start >> 32) as u32; 64]);
    bench.set_v(20, [0x1122_3344; 64]);
    let pair = Address { vector: Some(14), scalar: None, offset: 16 };
    for (name, expected) in [("global_store_b8", 0x0000_0044), ("global_store_b16", 0x3344), ("global_store_d16_hi_b8", 0x3322)] {
        bench.run(&flat_gfx11(Format::GLOBAL, name, 0, 20, pair, false)).unwrap();
        assert_eq!(read(start + 16), expected, "{name}");
    }
    for (name, count) in [("global_store_b32", 1), ("global_store_b64", 2), ("global_store_b96", 3), ("global_store_b128", 4)] {
        (0..4).for_each(|n| bench.set_v(20 + n, [5000 + n as u32; 64]));
        bench.run(&flat_gfx11(Format::GLOBAL, name, 0, 20, Address { offset: 256, ..pair }, false)).unwrap();
        (0..count).for_each(|n| assert_eq!(read(start + 256 + 4 * n), 5000 + n as u32, "{name}"));
    }
    bench.set_v(20, [0x1122_3344; 64]);
    bench.run(&flat_gfx11(Format::GLOBAL, "global_atomic_add_u32", 2, 20, pair, true)).unwrap();
    assert_eq!((bench.v(2)[0], read(start + 16)), (0x3322, 0x1122_6666));
    // The new value first, the value to compare with after it.
    bench.set_v(21, [0x1122_6666; 64]);
    bench.run(&flat_gfx11(Format::GLOBAL, "global_atomic_cmpswap_b32", 2, 20, pair, true)).unwrap();
    assert_eq!((bench.v(2)[0], read(start + 16)), (0x1122_6666, 0x1122_3344));
}

#[test]
fn flat_memory_and_lds() {
    let (mut bench, start) = with_buffer();
    bench.set_exec(3);
    // Lane 0 in memory, lane 1 in LDS.
    bench.lds()[40..44].copy_from_slice(&4321u32.to_le_bytes());
    let target = [start + 40, SHARED_BASE + 40];
    bench.set_v(12, std::array::from_fn(|lane| target[lane.min(1)] as u32));
    bench.set_v(13, std::array::from_fn(|lane| (target[lane.min(1)] >> 32) as u32));
    let address = Address { vector: Some(12), scalar: None, offset: 0 };
    bench.run(&flat_gfx11(Format::FLAT, "flat_load_b32", 2, 0, address, false)).unwrap();
    assert_eq!((bench.v(2)[0], bench.v(2)[1]), (10, 4321));
    for (name, count) in [("flat_load_b64", 2), ("flat_load_b96", 3), ("flat_load_b128", 4)] {
        bench.run(&flat_gfx11(Format::FLAT, name, 2, 0, address, false)).unwrap();
        (0..count).for_each(|n| assert_eq!(bench.v(2 + n)[0], 10 + n as u32, "{name}"));
    }
    bench.set_v(20, [100; 64]);
    bench.run(&flat_gfx11(Format::FLAT, "flat_atomic_add_u32", 2, 20, address, true)).unwrap();
    assert_eq!((bench.v(2)[0], read(start + 40), word(&mut bench, 40)), (10, 110, 4421));
    bench.run(&flat_gfx11(Format::FLAT, "flat_store_b32", 0, 20, Address { offset: 4, ..address }, false)).unwrap();
    assert_eq!((read(start + 44), word(&mut bench, 44)), (100, 100));
}

/// Atomics of flat and global memory, of 32 and 64 bits: memory, operand, result.
#[test]
fn memory_atomics() {
    let cases: [(&str, u32, u32, u32); 11] = [
        ("flat_atomic_swap_b32", 9, 700, 700),
        ("flat_atomic_sub_u32", 9, 700, 9u32.wrapping_sub(700)),
        ("flat_atomic_min_u32", 900, 700, 700),
        ("flat_atomic_max_u32", 900, 700, 900),
        ("flat_atomic_and_b32", 0xff, 700, 700 & 0xff),
        ("flat_atomic_or_b32", 0xff, 700, 700 | 0xff),
        ("flat_atomic_xor_b32", 0xff, 700, 700 ^ 0xff),
        ("flat_atomic_inc_u32", 700, 700, 0),
        ("flat_atomic_inc_u32", 9, 700, 10),
        ("flat_atomic_dec_u32", 0, 700, 700),
        ("flat_atomic_dec_u32", 9, 700, 8),
    ];
    let (mut bench, start) = with_buffer();
    bench.set_exec(1);
    bench.set_v(12, [start as u32; 64]);
    bench.set_v(13, [(start >> 32) as u32; 64]);
    let address = Address { vector: Some(12), scalar: None, offset: 16 };
    for (name, memory, operand, expected) in cases {
        write(start + 16, memory);
        bench.set_v(20, [operand; 64]);
        bench.run(&flat_gfx11(Format::FLAT, name, 2, 20, address, true)).unwrap();
        assert_eq!((bench.v(2)[0], read(start + 16)), (memory, expected), "{name} {memory}");
    }
    let wide: [(Format, &str, u64, u64); 4] = [
        (Format::FLAT, "flat_atomic_add_u64", u64::MAX, 1 << 40 | 5),
        (Format::FLAT, "flat_atomic_inc_u64", 6, 7),
        (Format::FLAT, "flat_atomic_swap_b64", 6, 1 << 40 | 6),
        (Format::GLOBAL, "global_atomic_add_u64", 6, 1 << 40 | 12),
    ];
    bench.set_v(20, [6; 64]);
    bench.set_v(21, [1 << 8; 64]);
    for (format, name, memory, expected) in wide {
        write(start + 16, memory as u32);
        write(start + 20, (memory >> 32) as u32);
        bench.run(&flat_gfx11(format, name, 2, 20, address, true)).unwrap();
        let returned = u64::from(bench.v(2)[0]) | u64::from(bench.v(3)[0]) << 32;
        let stored = u64::from(read(start + 16)) | u64::from(read(start + 20)) << 32;
        assert_eq!((returned, stored), (memory, expected), "{name}");
    }
}

/// Each lane has its own scratch; the address is a VGPR, an SGPR, both or neither.
#[test]
fn scratch() {
    let mut bench = TestWave::wave32(ARCH);
    bench.set_v(20, std::array::from_fn(|lane| 0x8000_8080 + lane as u32));
    bench.set_v(12, [8; 64]);
    bench.set_s(14, 16);
    let none = Address { vector: None, scalar: None, offset: 28 };
    let both = Address { vector: Some(12), scalar: Some(14), offset: 4 };
    bench.run(&flat_gfx11(Format::SCRATCH, "scratch_store_b32", 0, 20, both, false)).unwrap();
    for address in
        [none, both, Address { vector: Some(12), scalar: None, offset: 20 }, Address { vector: None, scalar: Some(14), offset: 12 }]
    {
        bench.set_v(2, [0; 64]);
        bench.run(&flat_gfx11(Format::SCRATCH, "scratch_load_b32", 2, 0, address, false)).unwrap();
        assert!((0..32).all(|lane| bench.v(2)[lane] == 0x8000_8080 + lane as u32));
    }
    for (name, expected) in
        [("scratch_load_u8", 0x80), ("scratch_load_i8", 0xffff_ff80), ("scratch_load_u16", 0x8080), ("scratch_load_i16", 0xffff_8080)]
    {
        bench.run(&flat_gfx11(Format::SCRATCH, name, 2, 0, none, false)).unwrap();
        assert_eq!(bench.v(2)[0], expected, "{name}");
    }
    (20..24).for_each(|n| bench.set_v(n, [n as u32; 64]));
    let at = Address { vector: None, scalar: None, offset: 64 };
    for (store, load, count) in [
        ("scratch_store_b64", "scratch_load_b64", 2),
        ("scratch_store_b96", "scratch_load_b96", 3),
        ("scratch_store_b128", "scratch_load_b128", 4),
    ] {
        bench.run(&flat_gfx11(Format::SCRATCH, store, 0, 20, at, false)).unwrap();
        bench.run(&flat_gfx11(Format::SCRATCH, load, 2, 0, at, false)).unwrap();
        (0..count).for_each(|n| assert_eq!(bench.v(2 + n)[31], 20 + n as u32, "{load} {n}"));
    }
    bench.run(&flat_gfx11(Format::SCRATCH, "scratch_store_b8", 0, 21, at, false)).unwrap();
    bench.run(&flat_gfx11(Format::SCRATCH, "scratch_store_b16", 0, 22, Address { offset: 66, ..at }, false)).unwrap();
    bench.run(&flat_gfx11(Format::SCRATCH, "scratch_load_b32", 2, 0, at, false)).unwrap();
    assert_eq!(bench.v(2)[0], 0x0016_0015);
}
