//! Vector memory instructions: global, flat, scratch and buffer.

mod address;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::atomic::{self, Rmw};
use super::decoded::{Handler, Step};
use super::ops::PerRow;
use super::simd::{DwordCount, Dwords, SimdVariants, simd_variants};
use super::wave::{LANES, Lanes, Lanes64, Wave};
use super::{Env, Outcome};
use crate::isa::{Format, InstDesc, flag, operand};
use address::{LaneAddresses, Location, check_range, checked_memory, lane_addresses, locate, read, write};

/// How the dwords of an aligned, in-bounds scratch access are arranged.
enum ScratchRows {
    /// All lanes at one offset: full registers, from this row on.
    Same(usize),
    /// Each lane at its own offset.
    Own,
}

#[inline(always)]
fn scratch_rows(w: &Wave, offsets: &Lanes, exec: u64, bytes: u32) -> Option<ScratchRows> {
    let first = offsets.0[w.first_lane()];
    let (mut differ, mut misaligned, mut max) = (0, 0, 0);
    for lane in 0..LANES {
        let active = 0u32.wrapping_sub((exec >> lane & 1) as u32);
        differ |= (offsets.0[lane] ^ first) & active;
        misaligned |= offsets.0[lane] & active & 3;
        max = max.max(offsets.0[lane] & active);
    }
    if misaligned != 0 || exec == 0 || max.checked_add(bytes).is_none_or(|end| end > w.scratch_size & !3) {
        return None;
    }
    Some(if differ == 0 { ScratchRows::Same(first as usize / 4) } else { ScratchRows::Own })
}

/// Copies the active lanes of `values` to `to`.
#[inline(always)]
fn masked_copy(to: &mut [u32], values: &Lanes, mask: &Lanes) {
    for lane in 0..to.len().min(LANES) {
        to[lane] = to[lane] & !mask.0[lane] | values.0[lane] & mask.0[lane];
    }
}

/// Returns the address of lane 0's dword when the active lanes' dwords are adjacent and those of all lanes may be accessed: because all
/// lanes are active, or because they are a row of the wavefront's scratch.
#[inline(always)]
fn contiguous_row(w: &Wave, addresses: &Lanes64, exec: u64) -> Option<u64> {
    let lane = w.first_lane();
    let first = addresses.0[lane].wrapping_sub(4 * lane as u64);
    let mut differ = 0;
    for lane in 0..LANES {
        let active = 0u64.wrapping_sub(exec >> lane & 1);
        differ |= (addresses.0[lane] ^ first.wrapping_add(4 * lane as u64)) & active;
    }
    let (start, end, _) = w.recent_ranges[0];
    let own = first >= start && first.saturating_add(4 * w.lanes() as u64) <= end && (first - start).is_multiple_of(4);
    (differ == 0 && exec != 0 && (exec == w.full_exec() || own && exec == w.exec)).then_some(first)
}

/// Reads dwords. Aligned pairs are read at once, as on hardware, so that both halves of another workgroup's store arrive together.
///
/// # Safety
/// The dwords must be readable.
#[inline(always)]
unsafe fn read_words<C: DwordCount>(address: u64) -> [u32; 4] {
    let (mut words, at) = ([0; 4], address as *const u32);
    let mut n = 0;
    while n < C::N {
        // SAFETY: the caller's promise; an atomic is aligned.
        unsafe {
            if n + 1 < C::N && address.is_multiple_of(8) {
                let pair = AtomicU64::from_ptr(at.add(n).cast_mut().cast()).load(Ordering::Relaxed);
                (words[n], words[n + 1]) = (pair as u32, (pair >> 32) as u32);
                n += 2;
            } else {
                words[n] = at.add(n).read_unaligned();
                n += 1;
            }
        }
    }
    words
}

/// Writes dwords, aligned pairs at once.
///
/// # Safety
/// The dwords must be writable.
#[inline(always)]
unsafe fn write_words<C: DwordCount>(address: u64, words: [u32; 4]) {
    let at = address as *mut u32;
    let mut n = 0;
    while n < C::N {
        // SAFETY: the caller's promise; an atomic is aligned.
        unsafe {
            if n + 1 < C::N && address.is_multiple_of(8) {
                let pair = u64::from(words[n]) | u64::from(words[n + 1]) << 32;
                AtomicU64::from_ptr(at.add(n).cast()).store(pair, Ordering::Relaxed);
                n += 2;
            } else {
                at.add(n).write_unaligned(words[n]);
                n += 1;
            }
        }
    }
}

simd_variants!(loads, load_dwords, DwordCount);

/// Loads dwords of each lane.
#[inline(always)]
fn load_dwords<C: DwordCount>(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let (target, exec) = lane_addresses(w, s);
    let bytes = 4 * C::N as u32;
    let lanes = w.lanes();
    let mut out = [Lanes([0; LANES]); 4];
    let out = &mut out[..C::N];
    if let LaneAddresses::Scratch(offsets) = &target
        && s.inst.flags & flag::LDS == 0
        && let Some(rows) = scratch_rows(w, offsets, exec, bytes)
    {
        for (n, register) in out.iter_mut().enumerate() {
            match rows {
                ScratchRows::Same(row) => register.0[..lanes].copy_from_slice(&w.scratch[(row + n) * lanes..][..lanes]),
                ScratchRows::Own => {
                    for lane in (0..LANES).filter(|lane| exec >> lane & 1 != 0) {
                        register.0[lane] = w.scratch[(offsets.0[lane] as usize / 4 + n) * lanes + lane];
                    }
                }
            }
            w.write_vgpr(s.inst.dst + n as u16, register);
        }
        return Outcome::Continue;
    }
    match checked_memory(w, s, e, &target, exec, bytes, false) {
        Err(()) => return Outcome::Fault,
        Ok(Some(addresses)) => {
            let row = if C::N == 1 { contiguous_row(w, &addresses, exec) } else { None };
            if let Some(first) = row {
                // SAFETY: `checked_memory` checked every lane's address, and together they are these bytes, or the row is of the wave's
                // own scratch.
                unsafe { std::ptr::copy_nonoverlapping(first as *const u8, out[0].0.as_mut_ptr().cast(), 4 * lanes) };
            } else {
                for lane in 0..LANES {
                    if exec >> lane & 1 != 0 {
                        // SAFETY: `checked_memory` checked the range; it stays while the kernel runs.
                        let words = unsafe { read_words::<C>(addresses.0[lane]) };
                        for (register, word) in out.iter_mut().zip(words) {
                            register.0[lane] = word;
                        }
                    }
                }
            }
        }
        Ok(None) => {
            for lane in 0..LANES {
                if exec >> lane & 1 != 0 {
                    let Some(location) = locate(w, s, e, &target, lane, bytes, false) else { return Outcome::Fault };
                    // SAFETY: `locate` checked the location for this access.
                    let value = unsafe { read(w, e, lane, &location, bytes) };
                    for (n, register) in out.iter_mut().enumerate() {
                        register.0[lane] = (value >> (32 * n)) as u32;
                    }
                }
            }
        }
    }
    if s.inst.flags & flag::LDS != 0 {
        return to_lds(w, s, e, &out[0], 4);
    }
    for (n, register) in out.iter().enumerate() {
        w.write_vgpr(s.inst.dst + n as u16, register);
    }
    Outcome::Continue
}

simd_variants!(stores, store_dwords, DwordCount);

/// Stores dwords of each lane.
#[inline(always)]
fn store_dwords<C: DwordCount>(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let (target, exec) = lane_addresses(w, s);
    let bytes = 4 * C::N as u32;
    let (data, lanes) = (data_register(s), w.lanes());
    if let LaneAddresses::Scratch(offsets) = &target
        && let Some(rows) = scratch_rows(w, offsets, exec, bytes)
    {
        for n in 0..C::N {
            let (values, mask) = (*w.vgpr(data + n as u16), w.mask);
            match rows {
                ScratchRows::Same(row) => masked_copy(&mut w.scratch[(row + n) * lanes..][..lanes], &values, &mask),
                ScratchRows::Own => {
                    for lane in (0..LANES).filter(|lane| exec >> lane & 1 != 0) {
                        w.scratch[(offsets.0[lane] as usize / 4 + n) * lanes + lane] = values.0[lane];
                    }
                }
            }
        }
        return Outcome::Continue;
    }
    match checked_memory(w, s, e, &target, exec, bytes, true) {
        Err(()) => return Outcome::Fault,
        Ok(Some(addresses)) => {
            let row = if C::N == 1 { contiguous_row(w, &addresses, exec) } else { None };
            if let Some(first) = row.filter(|_| exec == w.full_exec()) {
                let values = w.vgpr(data);
                // SAFETY: `checked_memory` checked every lane's address, and together they are these bytes.
                unsafe { std::ptr::copy_nonoverlapping(values.0.as_ptr().cast(), first as *mut u8, 4 * lanes) };
            } else if let Some(first) = row {
                let (values, mask) = (*w.vgpr(data), w.mask);
                // The row is in the wavefront's own scratch, which no other thread accesses.
                let at = (first - w.scratch_base) as usize / 4;
                masked_copy(&mut w.scratch[at..at + lanes], &values, &mask);
            } else {
                for lane in 0..LANES {
                    if exec >> lane & 1 != 0 {
                        let words = std::array::from_fn(|n| if n < C::N { w.vgpr(data + n as u16).0[lane] } else { 0 });
                        // SAFETY: `checked_memory` checked the range; it stays while the kernel runs.
                        unsafe { write_words::<C>(addresses.0[lane], words) };
                    }
                }
            }
        }
        Ok(None) => {
            for lane in 0..LANES {
                if exec >> lane & 1 != 0 {
                    let Some(location) = locate(w, s, e, &target, lane, bytes, true) else { return Outcome::Fault };
                    let value = (0..C::N).fold(0u128, |value, n| value | u128::from(w.vgpr(data + n as u16).0[lane]) << (32 * n));
                    // SAFETY: `locate` checked the location for this access.
                    unsafe { write(w, e, lane, &location, bytes, value) };
                }
            }
        }
    }
    Outcome::Continue
}

/// Returns the register with a store's data: MUBUF has it where loads have the destination.
fn data_register(s: &Step) -> u16 {
    if s.inst.desc.format == Format::MUBUF { s.inst.dst } else { s.inst.src[1] }
}

/// Which half of the register a byte or word load writes.
#[derive(Clone, Copy, PartialEq)]
pub enum DestHalf {
    /// All of it, extended.
    Full,
    /// The low half; the rest is preserved.
    Low,
    /// The high half; the rest is preserved.
    High,
}

/// A byte or word load.
pub trait SubDwordLoad {
    const BYTES: u32;
    const SIGNED: bool;
    const DEST: DestHalf;
    /// Whether the data goes to LDS.
    const TO_LDS: bool;
}

simd_variants!(subdword_loads, load_subdword, SubDwordLoad);

#[inline(always)]
fn load_subdword<L: SubDwordLoad>(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let (target, exec) = lane_addresses(w, s);
    let mut raw = Lanes([0; LANES]);
    match &target {
        LaneAddresses::Memory(addresses) => {
            if !check_range(w, s, e, addresses, exec, L::BYTES, false) {
                return Outcome::Fault;
            }
            for lane in 0..LANES {
                if exec >> lane & 1 != 0 {
                    // SAFETY: the range was checked; it stays while the kernel runs.
                    raw.0[lane] = unsafe {
                        match L::BYTES {
                            1 => u32::from((addresses.0[lane] as *const u8).read()),
                            _ => u32::from((addresses.0[lane] as *const u16).read_unaligned()),
                        }
                    };
                }
            }
        }
        _ => {
            for lane in 0..LANES {
                if exec >> lane & 1 != 0 {
                    let Some(location) = locate(w, s, e, &target, lane, L::BYTES, false) else { return Outcome::Fault };
                    // SAFETY: `locate` checked the location for this access.
                    raw.0[lane] = unsafe { read(w, e, lane, &location, L::BYTES) } as u32;
                }
            }
        }
    }
    let mut out = *w.vgpr(s.inst.dst);
    for lane in 0..LANES {
        let value = match (L::BYTES, L::SIGNED) {
            (1, true) => raw.0[lane] as u8 as i8 as i32 as u32,
            (2, true) => raw.0[lane] as u16 as i16 as i32 as u32,
            _ => raw.0[lane],
        };
        let old = out.0[lane];
        out.0[lane] = match L::DEST {
            DestHalf::Full => value,
            DestHalf::Low => old & 0xffff_0000 | value & 0xffff,
            DestHalf::High => old & 0xffff | value << 16,
        };
    }
    if L::TO_LDS || s.inst.flags & flag::LDS != 0 {
        return to_lds(w, s, e, &out, 4);
    }
    w.write_vgpr(s.inst.dst, &out);
    Outcome::Continue
}

/// A byte or word store.
pub trait SubDwordStore {
    const BYTES: u32;
    const HIGH: bool;
}

simd_variants!(subdword_stores, store_subdword, SubDwordStore);

#[inline(always)]
fn store_subdword<L: SubDwordStore>(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let (target, exec) = lane_addresses(w, s);
    let data = *w.vgpr(data_register(s));
    let value = |lane: usize| if L::HIGH { data.0[lane] >> 16 } else { data.0[lane] };
    if let LaneAddresses::Memory(addresses) = &target {
        if !check_range(w, s, e, addresses, exec, L::BYTES, true) {
            return Outcome::Fault;
        }
        for lane in 0..LANES {
            if exec >> lane & 1 != 0 {
                // SAFETY: the range was checked; it stays while the kernel runs.
                unsafe {
                    match L::BYTES {
                        1 => (addresses.0[lane] as *mut u8).write(value(lane) as u8),
                        _ => (addresses.0[lane] as *mut u16).write_unaligned(value(lane) as u16),
                    }
                }
            }
        }
        return Outcome::Continue;
    }
    for lane in 0..LANES {
        if exec >> lane & 1 != 0 {
            let Some(location) = locate(w, s, e, &target, lane, L::BYTES, true) else { return Outcome::Fault };
            // SAFETY: `locate` checked the location for this access.
            unsafe { write(w, e, lane, &location, L::BYTES, u128::from(value(lane))) };
        }
    }
    Outcome::Continue
}

/// Writes loaded data to LDS, one dword per lane from M0's offset on.
fn to_lds(w: &mut Wave, s: &Step, e: &mut Env, values: &Lanes, bytes: u32) -> Outcome {
    let base = u64::from(w.sgprs[usize::from(operand::M0)] & 0xffff) + u64::from(s.inst.imm as u32 & 0xfff);
    for lane in 0..LANES {
        if w.exec >> lane & 1 != 0 {
            let at = base + 4 * lane as u64;
            if at + u64::from(bytes) > u64::from(e.lds_size) {
                if e.dispatch.hardware {
                    continue;
                }
                e.lds_fault(w, s, lane, at, bytes);
                return Outcome::Fault;
            }
            // SAFETY: the range of LDS was checked just now.
            unsafe { write(w, e, lane, &Location::Shared(at as usize), bytes, u128::from(values.0[lane])) };
        }
    }
    Outcome::Continue
}

fn load_to_lds_dword(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let mut step = s.clone();
    step.inst.flags |= flag::LDS;
    load_dwords::<Dwords<1>>(w, &step, e)
}

macro_rules! subdword {
    (
        loads { $($load:ident: $bytes:literal, $signed:literal, $part:ident, $to_lds:literal;)* }
        stores { $($store:ident: $stored:literal, $high:literal;)* }
    ) => {
        $(
            struct $load;
            impl SubDwordLoad for $load {
                const BYTES: u32 = $bytes;
                const SIGNED: bool = $signed;
                const DEST: DestHalf = DestHalf::$part;
                const TO_LDS: bool = $to_lds;
            }
        )*
        $(
            struct $store;
            impl SubDwordStore for $store {
                const BYTES: u32 = $stored;
                const HIGH: bool = $high;
            }
        )*
    };
}

subdword! {
    loads {
        LoadUbyte: 1, false, Full, false;
        LoadSbyte: 1, true, Full, false;
        LoadUshort: 2, false, Full, false;
        LoadSshort: 2, true, Full, false;
        LoadLdsUbyte: 1, false, Full, true;
        LoadLdsSbyte: 1, true, Full, true;
        LoadLdsUshort: 2, false, Full, true;
        LoadLdsSshort: 2, true, Full, true;
        LoadUbyteLow: 1, false, Low, false;
        LoadUbyteHigh: 1, false, High, false;
        LoadSbyteLow: 1, true, Low, false;
        LoadSbyteHigh: 1, true, High, false;
        LoadShortLow: 2, false, Low, false;
        LoadShortHigh: 2, false, High, false;
    }
    stores {
        StoreByte: 1, false;
        StoreByteHigh: 1, true;
        StoreShort: 2, false;
        StoreShortHigh: 2, true;
    }
}

/// Applies `change` atomically to the `bytes` (4 or 8) at `address` and returns the old value.
///
/// # Safety
/// The range must be readable and writable, and `address` aligned to `bytes`.
pub unsafe fn atomic_rmw(address: u64, bytes: u32, change: impl Fn(u64) -> u64) -> u64 {
    if bytes == 8 {
        // SAFETY: the caller's promise.
        let cell = unsafe { AtomicU64::from_ptr(address as *mut u64) };
        let mut old = cell.load(Ordering::Relaxed);
        while let Err(now) = cell.compare_exchange_weak(old, change(old), Ordering::AcqRel, Ordering::Acquire) {
            old = now;
        }
        old
    } else {
        // SAFETY: the caller's promise.
        let cell = unsafe { AtomicU32::from_ptr(address as *mut u32) };
        let mut old = cell.load(Ordering::Relaxed);
        while let Err(now) = cell.compare_exchange_weak(old, change(u64::from(old)) as u32, Ordering::AcqRel, Ordering::Acquire) {
            old = now;
        }
        u64::from(old)
    }
}

/// Returns [`atomic_op`] of an instruction.
pub fn operation(s: &Step) -> Option<(Rmw, u32)> {
    static KNOWN: PerRow<(Rmw, u32)> = PerRow::new();
    KNOWN.get(s.inst.desc, |row| atomic_op(row.semantics)).copied()
}

/// Returns the operation of an atomic's mnemonic and the bytes of its value.
pub fn atomic_op(name: &str) -> Option<(Rmw, u32)> {
    let op = name.split_once("atomic_")?.1;
    let (op, bytes) = match op.strip_suffix("_x2") {
        Some(op) => (op, 8),
        None => (op, if op.ends_with("f64") { 8 } else { 4 }),
    };
    Some((atomic::find(op, bytes)?, bytes))
}

fn atomic_handler(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let Some((op, bytes)) = operation(s) else { return Outcome::Fault };
    let (target, exec) = lane_addresses(w, s);
    let data = data_register(s);
    let words = (bytes / 4) as u16;
    let mut old = [Lanes([0; LANES]), Lanes([0; LANES])];
    for lane in 0..LANES {
        if exec >> lane & 1 == 0 {
            continue;
        }
        let Some(location) = locate(w, s, e, &target, lane, bytes, true) else { return Outcome::Fault };
        let word = |w: &Wave, n: u16| u64::from(w.vgpr(data + n).0[lane]);
        // A compare-and-swap has the new value first, then the comparison value.
        let value = |w: &Wave, from: u16| if words == 2 { word(w, from) | word(w, from + 1) << 32 } else { word(w, from) };
        let (new, compare) = (value(w, 0), value(w, words));
        let before = match location {
            Location::Memory(address) => {
                if !address.is_multiple_of(u64::from(bytes)) {
                    return e.misaligned_fault(w, s, lane, address, bytes);
                }
                // SAFETY: `locate` checked the range, and the alignment was checked just now.
                unsafe { atomic_rmw(address, bytes, |old| op(old, new, compare)) }
            }
            _ => {
                // SAFETY: `locate` checked the location for this access.
                unsafe {
                    let before = read(w, e, lane, &location, bytes) as u64;
                    write(w, e, lane, &location, bytes, u128::from(op(before, new, compare)));
                    before
                }
            }
        };
        old[0].0[lane] = before as u32;
        old[1].0[lane] = (before >> 32) as u32;
    }
    if s.inst.flags & flag::GLC != 0 {
        for n in 0..words {
            w.write_vgpr(s.inst.dst + n, &old[usize::from(n)]);
        }
    }
    Outcome::Continue
}

fn nop(_: &mut Wave, _: &Step, _: &mut Env) -> Outcome {
    Outcome::Continue
}

/// Returns the handlers of a vector memory instruction.
pub fn find(row: &InstDesc) -> Option<SimdVariants> {
    let name = row.semantics;
    let op = name.split_once('_')?.1;
    if atomic_op(name).is_some() {
        return Some([atomic_handler; 3]);
    }
    let handler: Handler = match op {
        "load_dword" => return Some(loads::<Dwords<1>>()),
        "load_dwordx2" => return Some(loads::<Dwords<2>>()),
        "load_dwordx3" => return Some(loads::<Dwords<3>>()),
        "load_dwordx4" => return Some(loads::<Dwords<4>>()),
        "store_dword" => return Some(stores::<Dwords<1>>()),
        "store_dwordx2" => return Some(stores::<Dwords<2>>()),
        "store_dwordx3" => return Some(stores::<Dwords<3>>()),
        "store_dwordx4" => return Some(stores::<Dwords<4>>()),
        "load_ubyte" => return Some(subdword_loads::<LoadUbyte>()),
        "load_sbyte" => return Some(subdword_loads::<LoadSbyte>()),
        "load_ushort" => return Some(subdword_loads::<LoadUshort>()),
        "load_sshort" => return Some(subdword_loads::<LoadSshort>()),
        "load_lds_ubyte" => return Some(subdword_loads::<LoadLdsUbyte>()),
        "load_lds_sbyte" => return Some(subdword_loads::<LoadLdsSbyte>()),
        "load_lds_ushort" => return Some(subdword_loads::<LoadLdsUshort>()),
        "load_lds_sshort" => return Some(subdword_loads::<LoadLdsSshort>()),
        "load_lds_dword" => load_to_lds_dword,
        "load_ubyte_d16" => return Some(subdword_loads::<LoadUbyteLow>()),
        "load_ubyte_d16_hi" => return Some(subdword_loads::<LoadUbyteHigh>()),
        "load_sbyte_d16" => return Some(subdword_loads::<LoadSbyteLow>()),
        "load_sbyte_d16_hi" => return Some(subdword_loads::<LoadSbyteHigh>()),
        "load_short_d16" => return Some(subdword_loads::<LoadShortLow>()),
        "load_short_d16_hi" => return Some(subdword_loads::<LoadShortHigh>()),
        "store_byte" => return Some(subdword_stores::<StoreByte>()),
        "store_byte_d16_hi" => return Some(subdword_stores::<StoreByteHigh>()),
        "store_short" => return Some(subdword_stores::<StoreShort>()),
        "store_short_d16_hi" => return Some(subdword_stores::<StoreShortHigh>()),
        "wbl2" | "invl2" | "inv" | "wbinvl1" | "wbinvl1_vol" => nop,
        _ => return None,
    };
    Some([handler; 3])
}
