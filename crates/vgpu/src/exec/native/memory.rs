//! Memory instructions, faster than the interpreter's functions for the usual accesses.
//!
//! A function checks all active lanes before it accesses anything. If they are not all in one allocation, or in the LDS, it leaves the
//! instruction to the interpreter's function, which also reports faults. Sixteen lanes whose addresses are adjacent or equal are accessed
//! together.

use super::atomic::{global, local};
use super::lanes::{GROUP, Narrow, Vector, Wide};
use super::scratch::{scratch_load, scratch_store};
use super::vector::Width;
use super::{Context, Function};
use crate::arch::Generation;
use crate::exec::decoded::Step;
use crate::exec::wave::{LANES, Lanes, Wave};
use crate::exec::{Env, Outcome, lds, vmem};
use crate::isa::{Field, Format, flag, operand};

const GROUPS: usize = LANES / GROUP;
/// All lanes of a group.
const ALL: u32 = 0xffff;
/// Offsets are below this, so that they are positive as `i32`.
const MAX_OFFSET: u64 = 0x7fff_ffff;

/// The checked addresses of an access.
pub struct Place {
    pub base: *mut u8,
    /// Each lane's offset from `base`; inactive lanes have one that may be read.
    pub offsets: Lanes,
    pub exec: u64,
}

/// How the addresses of a group are arranged.
#[derive(Clone, Copy, PartialEq)]
enum Pattern {
    /// All equal.
    Same,
    /// Adjacent, in the order of the lanes.
    Adjacent,
    /// In any other way, or with inactive lanes.
    Other,
}

/// A value in memory, and how a register holds it.
trait Value: 'static {
    const BYTES: usize;
    /// Reads one value.
    ///
    /// # Safety
    /// It must be readable.
    unsafe fn read(from: *const u8) -> u32;
    /// Reads adjacent values.
    ///
    /// # Safety
    /// They must be readable, and the CPU must have the vector instructions.
    unsafe fn read_adjacent<S: Vector>(from: *const u8) -> S;
    /// Writes one value.
    ///
    /// # Safety
    /// It must be writable.
    unsafe fn write(to: *mut u8, value: u32);
    /// Writes adjacent values.
    ///
    /// # Safety
    /// They must be writable, and the CPU must have the vector instructions.
    unsafe fn write_adjacent<S: Vector>(to: *mut u8, values: S);
}

macro_rules! values {
    ($($name:ident: $memory:ty, $load:ident, $store:ident, |$value:ident| $widen:expr;)*) => {$(
        struct $name;
        impl Value for $name {
            const BYTES: usize = size_of::<$memory>();
            #[inline(always)]
            unsafe fn read(from: *const u8) -> u32 {
                // SAFETY: the caller's promise.
                let $value = unsafe { from.cast::<$memory>().read_unaligned() };
                $widen
            }
            #[inline(always)]
            unsafe fn read_adjacent<S: Vector>(from: *const u8) -> S {
                // SAFETY: the caller's promise.
                unsafe { S::$load(from.cast()) }
            }
            #[inline(always)]
            unsafe fn write(to: *mut u8, value: u32) {
                // SAFETY: the caller's promise.
                unsafe { to.cast::<$memory>().write_unaligned(value as $memory) }
            }
            #[inline(always)]
            unsafe fn write_adjacent<S: Vector>(to: *mut u8, values: S) {
                // SAFETY: the caller's promise.
                unsafe { values.$store(to.cast()) }
            }
        }
    )*};
}

values! {
    Dword: u32, load, store, |value| value;
    Ubyte: u8, load_u8, store_u8, |value| value.into();
    Sbyte: i8, load_i8, store_u8, |value| i32::from(value) as u32;
    Ushort: u16, load_u16, store_u16, |value| value.into();
    Sshort: i16, load_i16, store_u16, |value| i32::from(value) as u32;
}

impl Place {
    /// Returns the active lanes of a group.
    #[inline(always)]
    fn active(&self, group: usize) -> u32 {
        (self.exec >> (GROUP * group)) as u32 & ALL
    }

    #[inline(always)]
    fn pattern<S: Vector>(&self, group: usize, bytes: usize) -> Pattern {
        let mut steps = [0; GROUP];
        let mut lane = 0;
        while lane < GROUP {
            steps[lane] = (bytes * lane) as u32;
            lane += 1;
        }
        if self.active(group) != ALL {
            return Pattern::Other;
        }
        // SAFETY: the CPU has the vector instructions of `S`, and the group is within the register.
        unsafe {
            let offsets = S::load(self.offsets.0.as_ptr().add(GROUP * group));
            let distances = offsets.sub(S::splat(offsets.first()));
            if distances.equal(S::load(steps.as_ptr())) == ALL {
                Pattern::Adjacent
            } else if distances.equal(S::splat(0)) == ALL {
                Pattern::Same
            } else {
                Pattern::Other
            }
        }
    }

    /// Reads `N` values of each lane, `offset` bytes behind its address, into the registers from `number` on.
    ///
    /// # Safety
    /// The values must be readable, and the CPU must have the vector instructions of `S`.
    #[inline(always)]
    unsafe fn read<S: Vector, V: Value, const N: usize>(&self, w: &mut Wave, number: u16, offset: usize) {
        for group in 0..GROUPS {
            let first = GROUP * group;
            let at = &self.offsets.0[first..first + GROUP];
            let pattern = self.pattern::<S>(group, N * V::BYTES);
            // SAFETY: the caller's promise; adjacent values of all lanes are the values of each.
            unsafe {
                let from = self.base.add(offset);
                let mut values = [S::splat(0); N];
                match pattern {
                    Pattern::Same => {
                        for n in 0..N {
                            values[n] = S::splat(V::read(from.add(at[0] as usize + n * V::BYTES)));
                        }
                    }
                    Pattern::Adjacent if N == 1 => values[0] = V::read_adjacent(from.add(at[0] as usize)),
                    _ if N == 4 && V::BYTES == 4 => values.copy_from_slice(&S::gather4(from, at.as_ptr())[..N]),
                    _ if V::BYTES == 4 => {
                        let at = S::load(at.as_ptr());
                        // Pairs are read at once, so that both halves of another workgroup's store arrive together.
                        if N >= 2 {
                            values[..2].copy_from_slice(&at.gather2(from));
                        }
                        if N % 2 == 1 {
                            values[N - 1] = at.gather(from.add(4 * (N - 1)));
                        }
                    }
                    _ => {
                        let mut each = [0; GROUP];
                        for lane in 0..GROUP {
                            each[lane] = V::read(from.add(at[lane] as usize));
                        }
                        values[0] = S::load(each.as_ptr());
                    }
                }
                for n in 0..N {
                    let mask = w.mask.0.as_ptr().add(first);
                    let to = w.vgpr_mut(number + n as u16).0.as_mut_ptr().add(first);
                    match self.active(group) {
                        ALL => values[n].store(to),
                        active => values[n].store_masked(to, active, mask),
                    }
                }
            }
        }
    }

    /// Writes a value of the active lanes of a group, `offset` bytes behind its address.
    ///
    /// # Safety
    /// The values must be writable, and the CPU must have the vector instructions of `S`.
    #[inline(always)]
    unsafe fn write<S: Vector, V: Value>(&self, group: usize, pattern: Pattern, offset: usize, values: &Lanes) {
        let first = GROUP * group;
        let (at, values) = (&self.offsets.0[first..first + GROUP], &values.0[first..first + GROUP]);
        // SAFETY: the caller's promise.
        unsafe {
            let to = self.base.add(offset);
            if pattern == Pattern::Adjacent {
                V::write_adjacent(to.add(at[0] as usize), S::load(values.as_ptr()));
            } else {
                let mut active = self.active(group);
                if active == ALL {
                    for lane in 0..GROUP {
                        V::write(to.add(at[lane] as usize), values[lane]);
                    }
                    return;
                }
                while active != 0 {
                    let lane = active.trailing_zeros() as usize;
                    V::write(to.add(at[lane] as usize), values[lane]);
                    active &= active - 1;
                }
            }
        }
    }
}

/// Returns the offsets of an LDS access: one if `unit` is 0, else two in units of `unit` accesses.
#[inline(always)]
fn lds_offsets(s: &Step, bytes: u32, unit: u32) -> ([u32; 2], usize) {
    let imm = s.inst.imm as u32;
    if unit == 0 { ([imm, 0], 1) } else { ([(imm & 0xff) * unit * bytes, (imm >> 8 & 0xff) * unit * bytes], 2) }
}

/// Returns the place of an LDS access that extends `extent` bytes beyond the lanes' addresses.
#[inline(always)]
pub fn lds_place<S: Vector>(w: &Wave, s: &Step, e: &mut Env<'_>, extent: u32) -> Option<Place> {
    let last = e.lds_size.checked_sub(extent)?;
    let mut offsets = *w.vgpr(s.inst.src[0]);
    let mut outside = 0;
    for group in 0..GROUPS {
        // SAFETY: the CPU has the vector instructions of `S`, and the group is within the register.
        unsafe {
            let offsets = S::load(offsets.0.as_ptr().add(GROUP * group));
            outside |= u64::from(offsets.greater(S::splat(last))) << (GROUP * group);
        }
    }
    if outside & w.exec != 0 || s.inst.flags & flag::GDS != 0 {
        return None;
    }
    mask_offsets(&mut offsets, w);
    Some(Place { base: e.lds.as_mut_ptr(), offsets, exec: w.exec })
}

/// Sets the offsets of inactive lanes to 0.
#[inline(always)]
fn mask_offsets(offsets: &mut Lanes, w: &Wave) {
    if w.exec != u64::MAX {
        for lane in 0..LANES {
            offsets.0[lane] &= w.mask.0[lane];
        }
    }
}

#[inline(always)]
fn lds_read<S: Vector, V: Value, const N: usize, const UNIT: u32>(w: &mut Wave, s: &Step, e: &mut Env<'_>) -> Option<()> {
    let bytes = (N * V::BYTES) as u32;
    let (offsets, count) = lds_offsets(s, bytes, UNIT);
    let place = lds_place::<S>(w, s, e, offsets[0].max(offsets[1]) + bytes)?;
    for which in 0..count {
        // SAFETY: `lds_place` checked the addresses with the largest offset.
        unsafe { place.read::<S, V, N>(w, s.inst.dst + (which * N) as u16, offsets[which] as usize) };
    }
    Some(())
}

#[inline(always)]
fn lds_write<S: Vector, V: Value, const N: usize, const UNIT: u32>(w: &mut Wave, s: &Step, e: &mut Env<'_>) -> Option<()> {
    let bytes = (N * V::BYTES) as u32;
    let (offsets, count) = lds_offsets(s, bytes, UNIT);
    let place = lds_place::<S>(w, s, e, offsets[0].max(offsets[1]) + bytes)?;
    let mut patterns = [Pattern::Other; GROUPS];
    if N == 1 {
        for group in 0..GROUPS {
            patterns[group] = place.pattern::<S>(group, V::BYTES);
        }
    }
    for which in 0..count {
        for n in 0..N {
            let values = w.vgpr(s.inst.src[1 + which] + n as u16);
            for group in 0..GROUPS {
                // SAFETY: `lds_place` checked the addresses with the largest offset.
                unsafe { place.write::<S, V>(group, patterns[group], offsets[which] as usize + n * V::BYTES, values) };
            }
        }
    }
    Some(())
}

/// Returns the start and the end of the allocation that contains an address.
#[inline(always)]
fn range(w: &mut Wave, e: &mut Env<'_>, address: u64, write: bool) -> Option<(u64, u64)> {
    if let Some(range) = recent_range(w, address, write) {
        return Some(range);
    }
    if e.can_access(w, address, 1, write) { recent_range(w, address, write) } else { None }
}

#[inline(always)]
fn recent_range(w: &Wave, address: u64, write: bool) -> Option<(u64, u64)> {
    for (start, end, writable) in w.recent_ranges {
        if address >= start && address < end && (writable || !write) {
            return Some((start, end));
        }
    }
    None
}

/// Returns the place of an access to memory.
#[inline(always)]
pub fn memory_place<S: Vector>(w: &mut Wave, s: &Step, e: &mut Env<'_>, bytes: usize, write: bool) -> Option<Place> {
    let inst = &s.inst;
    let exec = w.exec;
    if exec == 0 {
        return None;
    }
    let mut outside = 0;
    if inst.desc.format == Format::GLOBAL && inst.base != operand::NONE {
        let base = w.scalar64(inst.base).wrapping_add_signed(i64::from(inst.imm));
        let (_, end) = range(w, e, base, write)?;
        let last = (end - base).checked_sub(bytes as u64)?.min(MAX_OFFSET);
        let mut offsets = *w.vgpr(inst.src[0]);
        for group in 0..GROUPS {
            // SAFETY: the CPU has the vector instructions of `S`, and the group is within the register.
            unsafe {
                let offsets = S::load(offsets.0.as_ptr().add(GROUP * group));
                outside |= u64::from(offsets.greater(S::splat(last as u32))) << (GROUP * group);
            }
        }
        mask_offsets(&mut offsets, w);
        return (outside & exec == 0).then_some(Place { base: base as *mut u8, offsets, exec });
    }
    let lane = w.first_lane();
    let first = u64::from(w.vgpr(inst.src[0]).0[lane]) | u64::from(w.vgpr(inst.src[0] + 1).0[lane]) << 32;
    let (start, end) = range(w, e, first.wrapping_add_signed(i64::from(inst.imm)), write)?;
    let (low, high) = (w.vgpr(inst.src[0]), w.vgpr(inst.src[0] + 1));
    let last = (end - start).checked_sub(bytes as u64)?.min(MAX_OFFSET);
    // What is subtracted from the registers' values to get offsets from the start.
    let minus = start.wrapping_sub(inst.imm as i64 as u64);
    let mut offsets = Lanes([0; LANES]);
    for group in 0..GROUPS {
        let first = GROUP * group;
        // SAFETY: the CPU has the vector instructions of `S`, and the group is within the registers.
        unsafe {
            let (low, high) = (S::load(low.0.as_ptr().add(first)), S::load(high.0.as_ptr().add(first)));
            let (minus_low, minus_high) = (S::splat(minus as u32), (minus >> 32) as u32);
            let borrows = minus_low.greater(low);
            // The difference has a high half of 0.
            let near = high.equal(S::splat(minus_high)) & !borrows | high.equal(S::splat(minus_high.wrapping_add(1))) & borrows;
            let difference = low.sub(minus_low);
            let beyond = difference.greater(S::splat(last as u32));
            difference.store(offsets.0.as_mut_ptr().add(first));
            outside |= u64::from((beyond | !near) & ALL) << first;
        }
    }
    if outside & exec != 0 {
        return None;
    }
    mask_offsets(&mut offsets, w);
    Some(Place { base: start as *mut u8, offsets, exec })
}

/// Returns the address of the first lane if all lanes are active and access adjacent memory, which it checks: the most frequent case.
#[inline(always)]
fn adjacent_place<S: Vector>(w: &mut Wave, s: &Step, e: &mut Env<'_>, bytes: usize, write: bool) -> Option<u64> {
    let (inst, lanes) = (&s.inst, w.lanes());
    if w.exec != w.full_exec() {
        return None;
    }
    let has_base = inst.desc.format == Format::GLOBAL && inst.base != operand::NONE;
    let low = w.vgpr(inst.src[0]);
    let high = if has_base { None } else { Some(w.vgpr(inst.src[0] + 1)) };
    let mut steps = [0; GROUP];
    for lane in 0..GROUP {
        steps[lane] = (bytes * lane) as u32;
    }
    let total = (bytes * lanes) as u32;
    // The low halves must not wrap.
    low.0[0].checked_add(total)?;
    let mut same = ALL;
    for group in 0..lanes / GROUP {
        let first = GROUP * group;
        // SAFETY: the CPU has the vector instructions of `S`, and the group is within the registers.
        unsafe {
            let expected = S::load(steps.as_ptr());
            let distances = S::load(low.0.as_ptr().add(first)).sub(S::splat(low.0[0] + (bytes * first) as u32));
            same &= distances.equal(expected);
            if let Some(high) = high {
                same &= S::load(high.0.as_ptr().add(first)).equal(S::splat(high.0[0]));
            }
        }
    }
    if same != ALL {
        return None;
    }
    let start = match high {
        Some(high) => u64::from(low.0[0]) | u64::from(high.0[0]) << 32,
        None => w.scalar64(inst.base).wrapping_add(u64::from(low.0[0])),
    };
    let address = start.wrapping_add_signed(i64::from(inst.imm));
    let (_, end) = range(w, e, address, write)?;
    (end - address >= u64::from(total)).then_some(address)
}

#[inline(always)]
fn load<S: Vector, V: Value, const N: usize>(w: &mut Wave, s: &Step, e: &mut Env<'_>) -> Option<()> {
    if N != 3
        && let Some(address) = adjacent_place::<S>(w, s, e, N * V::BYTES, false)
    {
        // SAFETY: the CPU has the vector instructions of `S`.
        let mut values = [[unsafe { S::splat(0) }; N]; GROUPS];
        let groups = w.lanes() / GROUP;
        for group in 0..groups {
            let from = (address as *const u8).wrapping_add(GROUP * group * N * V::BYTES);
            // SAFETY: `adjacent_place` checked the memory; no allocation is removed while a kernel runs. The CPU has the vector instructions.
            unsafe {
                match N {
                    1 => values[group][0] = V::read_adjacent(from),
                    2 => values[group].copy_from_slice(&S::load2(from.cast())[..N]),
                    _ => values[group].copy_from_slice(&S::load4(from.cast())[..N]),
                }
            }
        }
        for n in 0..N {
            let to = w.vgpr_mut(s.inst.dst + n as u16).0.as_mut_ptr();
            for group in 0..groups {
                // SAFETY: the group is within the register.
                unsafe { values[group][n].store(to.add(GROUP * group)) };
            }
        }
        return Some(());
    }
    let place = memory_place::<S>(w, s, e, N * V::BYTES, false)?;
    // SAFETY: `memory_place` checked the addresses; no allocation is removed while a kernel runs.
    unsafe { place.read::<S, V, N>(w, s.inst.dst, 0) };
    Some(())
}

/// Loads into half of a register; the other half stays.
#[inline(always)]
fn load_half<S: Vector, V: Value, const HIGH: bool>(w: &mut Wave, s: &Step, e: &mut Env<'_>) -> Option<()> {
    let place = memory_place::<S>(w, s, e, V::BYTES, false)?;
    let old = *w.vgpr(s.inst.dst);
    // SAFETY: as in `load`.
    unsafe { place.read::<S, V, 1>(w, s.inst.dst, 0) };
    let mut values = *w.vgpr(s.inst.dst);
    for lane in 0..LANES {
        let (old, value) = (old.0[lane], values.0[lane]);
        values.0[lane] = if HIGH { old & 0xffff | value << 16 } else { old & 0xffff_0000 | value & 0xffff };
    }
    w.write_vgpr(s.inst.dst, &values);
    Some(())
}

#[inline(always)]
fn store<S: Vector, V: Value, const N: usize>(w: &mut Wave, s: &Step, e: &mut Env<'_>) -> Option<()> {
    if N <= 2
        && let Some(address) = adjacent_place::<S>(w, s, e, N * V::BYTES, true)
    {
        let from = w.vgpr(s.inst.src[1]).0.as_ptr();
        let second = w.vgpr(s.inst.src[1] + 1).0.as_ptr();
        for group in 0..w.lanes() / GROUP {
            let to = (address as *mut u8).wrapping_add(GROUP * group * N * V::BYTES);
            // SAFETY: `adjacent_place` checked the memory; no allocation is removed while a kernel runs. The CPU has the vector instructions.
            unsafe {
                let first = S::load(from.add(GROUP * group));
                if N == 1 {
                    V::write_adjacent(to, first);
                } else {
                    S::store2([first, S::load(second.add(GROUP * group))], to.cast());
                }
            }
        }
        return Some(());
    }
    let place = memory_place::<S>(w, s, e, N * V::BYTES, true)?;
    for group in 0..GROUPS {
        let first = GROUP * group;
        if N == 1 {
            let pattern = place.pattern::<S>(group, V::BYTES);
            // SAFETY: `memory_place` checked the addresses; no allocation is removed while a kernel runs.
            unsafe { place.write::<S, V>(group, pattern, 0, w.vgpr(s.inst.src[1])) };
        } else if N == 4 {
            // SAFETY: as above; the CPU has the vector instructions of `S`.
            unsafe {
                let mut words = [S::splat(0); 4];
                for n in 0..4 {
                    words[n] = S::load(w.vgpr(s.inst.src[1] + n as u16).0.as_ptr().add(first));
                }
                let rows = S::rows(words);
                for lane in (0..GROUP).filter(|lane| place.active(group) >> lane & 1 != 0) {
                    let to = place.base.add(place.offsets.0[first + lane] as usize);
                    to.cast::<std::arch::x86_64::__m128i>().write_unaligned(rows[lane % 4][lane / 4]);
                }
            }
        } else {
            // Lanes may overlap: one after the other. Pairs are written at once.
            for lane in (first..first + GROUP).filter(|lane| place.exec >> lane & 1 != 0) {
                let word = |n: u16| w.vgpr(s.inst.src[1] + n).0[lane];
                let pair = u64::from(word(0)) | u64::from(word(1)) << 32;
                // SAFETY: as above.
                unsafe {
                    let to = place.base.add(place.offsets.0[lane] as usize);
                    to.cast::<u64>().write_unaligned(pair);
                    if N == 3 {
                        V::write(to.add(8), word(2));
                    }
                }
            }
        }
    }
    Some(())
}

/// `ds_bpermute_b32`: each lane fetches a value; inactive lanes provide 0.
#[inline(always)]
fn bpermute<S: Vector>(w: &mut Wave, s: &Step, e: &mut Env<'_>) -> Option<()> {
    let (mut data, mut at) = (*w.vgpr(s.inst.src[1]), *w.vgpr(s.inst.src[0]));
    mask_offsets(&mut data, w);
    // Any lane, or on gfx10 and gfx11 one of the same 32.
    let halves = matches!(e.code.arch.generation(), Generation::Gfx10 | Generation::Gfx11);
    let lanes = if halves { 32 } else { w.lanes() as u32 };
    let keep = if halves { 32 } else { 0 };
    for lane in 0..LANES {
        at.0[lane] = at.0[lane].wrapping_add(s.inst.imm as u32) >> 2 & (lanes - 1) | lane as u32 & keep;
    }
    for group in 0..w.lanes() / GROUP {
        let first = GROUP * group;
        // SAFETY: the numbers are below 64, and the group is within the register; the CPU has the vector instructions of `S`.
        unsafe {
            let picked = S::load(at.0.as_ptr().add(first)).pick(&data);
            let (active, mask) = ((w.exec >> first) as u32 & ALL, w.mask.0.as_ptr().add(first));
            let to = w.vgpr_mut(s.inst.dst).0.as_mut_ptr().add(first);
            match active {
                ALL => picked.store(to),
                active => picked.store_masked(to, active, mask),
            }
        }
    }
    Some(())
}

/// Loads scalar registers.
#[inline(always)]
fn scalar_load<S: Vector>(w: &mut Wave, s: &Step, e: &mut Env<'_>) -> Option<()> {
    let inst = &s.inst;
    let offset = if inst.offset == operand::NONE { 0 } else { u64::from(w.scalar(inst.offset)) };
    let address = w.scalar64(inst.base).wrapping_add(offset).wrapping_add_signed(i64::from(inst.imm)) & !3;
    let words = usize::from(inst.desc.registers(Field::Dst));
    let (_, end) = range(w, e, address, false)?;
    let to = w.sgprs.get_mut(usize::from(inst.dst)..)?.get_mut(..words)?;
    if end - address < 4 * words as u64 || usize::from(inst.dst) + words > usize::from(operand::NULL) {
        return None;
    }
    for (n, to) in to.iter_mut().enumerate() {
        // SAFETY: `range` found the allocation, and its end was compared above; no allocation is removed while a kernel runs.
        *to = unsafe { (address as *const u32).add(n).read_unaligned() };
    }
    Some(())
}

/// Returns the function of a memory instruction; `None` if it has none of its own here.
pub fn find(step: &Step, width: Width) -> Option<Function> {
    /// Returns a function that native code calls.
    macro_rules! function {
        ($body:ident $(, $argument:tt)*) => {{
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
            unsafe extern "sysv64" fn narrow(w: &mut Wave, s: &Step, c: &mut Context<'_, '_>) -> u32 {
                finish($body::<Narrow $(, $argument)*>(w, s, c.env), w, s, c)
            }
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512cd")]
            unsafe extern "sysv64" fn wide(w: &mut Wave, s: &Step, c: &mut Context<'_, '_>) -> u32 {
                finish($body::<Wide $(, $argument)*>(w, s, c.env), w, s, c)
            }
            match width {
                Width::W256 => narrow as Function,
                Width::W512 => wide as Function,
            }
        }};
    }
    let name = step.inst.desc.semantics;
    if step.inst.flags & flag::LDS != 0 {
        return None;
    }
    Some(match step.inst.desc.format {
        Format::SMEM if name.starts_with("s_load_dword") => function!(scalar_load),
        Format::DS => match name {
            "ds_read_b32" => function!(lds_read, Dword, 1, 0),
            "ds_read_b64" => function!(lds_read, Dword, 2, 0),
            "ds_read_b96" => function!(lds_read, Dword, 3, 0),
            "ds_read_b128" => function!(lds_read, Dword, 4, 0),
            "ds_read2_b32" => function!(lds_read, Dword, 1, 1),
            "ds_read2st64_b32" => function!(lds_read, Dword, 1, 64),
            "ds_read2_b64" => function!(lds_read, Dword, 2, 1),
            "ds_read2st64_b64" => function!(lds_read, Dword, 2, 64),
            "ds_read_u8" => function!(lds_read, Ubyte, 1, 0),
            "ds_read_i8" => function!(lds_read, Sbyte, 1, 0),
            "ds_read_u16" => function!(lds_read, Ushort, 1, 0),
            "ds_read_i16" => function!(lds_read, Sshort, 1, 0),
            "ds_write_b32" => function!(lds_write, Dword, 1, 0),
            "ds_write_b64" => function!(lds_write, Dword, 2, 0),
            "ds_write_b96" => function!(lds_write, Dword, 3, 0),
            "ds_write_b128" => function!(lds_write, Dword, 4, 0),
            "ds_write2_b32" => function!(lds_write, Dword, 1, 1),
            "ds_write2st64_b32" => function!(lds_write, Dword, 1, 64),
            "ds_write2_b64" => function!(lds_write, Dword, 2, 1),
            "ds_write2st64_b64" => function!(lds_write, Dword, 2, 64),
            "ds_write_b8" => function!(lds_write, Ubyte, 1, 0),
            "ds_write_b16" => function!(lds_write, Ushort, 1, 0),
            "ds_bpermute_b32" => function!(bpermute),
            _ if lds::atomic_of(step).is_some() => function!(local),
            _ => return None,
        },
        Format::GLOBAL | Format::FLAT => match name.split_once('_')?.1 {
            "load_dword" => function!(load, Dword, 1),
            "load_dwordx2" => function!(load, Dword, 2),
            "load_dwordx3" => function!(load, Dword, 3),
            "load_dwordx4" => function!(load, Dword, 4),
            "load_ubyte" => function!(load, Ubyte, 1),
            "load_sbyte" => function!(load, Sbyte, 1),
            "load_ushort" => function!(load, Ushort, 1),
            "load_sshort" => function!(load, Sshort, 1),
            "load_ubyte_d16" => function!(load_half, Ubyte, false),
            "load_ubyte_d16_hi" => function!(load_half, Ubyte, true),
            "load_sbyte_d16" => function!(load_half, Sbyte, false),
            "load_sbyte_d16_hi" => function!(load_half, Sbyte, true),
            "load_short_d16" => function!(load_half, Ushort, false),
            "load_short_d16_hi" => function!(load_half, Ushort, true),
            "store_dword" => function!(store, Dword, 1),
            "store_dwordx2" => function!(store, Dword, 2),
            "store_dwordx3" => function!(store, Dword, 3),
            "store_dwordx4" => function!(store, Dword, 4),
            "store_byte" => function!(store, Ubyte, 1),
            "store_short" => function!(store, Ushort, 1),
            _ if vmem::operation(step).is_some() => function!(global),
            _ => return None,
        },
        Format::SCRATCH | Format::MUBUF => match name.split_once('_')?.1 {
            "load_dword" => function!(scratch_load, 1),
            "load_dwordx2" => function!(scratch_load, 2),
            "load_dwordx3" => function!(scratch_load, 3),
            "load_dwordx4" => function!(scratch_load, 4),
            "store_dword" => function!(scratch_store, 1),
            "store_dwordx2" => function!(scratch_store, 2),
            "store_dwordx3" => function!(scratch_store, 3),
            "store_dwordx4" => function!(scratch_store, 4),
            _ => return None,
        },
        _ => return None,
    })
}

/// Returns the outcome of an instruction: that of the interpreter's function if this one could not run it.
#[inline(always)]
fn finish(done: Option<()>, w: &mut Wave, s: &Step, c: &mut Context<'_, '_>) -> u32 {
    match done {
        Some(()) => Outcome::Continue as u32,
        // SAFETY: the handler was prepared for this CPU's SIMD level.
        None => unsafe { (s.run)(w, s, c.env) as u32 },
    }
}
