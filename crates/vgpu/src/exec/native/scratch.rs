//! Accesses to scratch where all lanes have the same offset: rows of dwords, one for each lane.

use super::lanes::{GROUP, Vector};
use crate::exec::Env;
use crate::exec::decoded::Step;
use crate::exec::resource::BufferResource;
use crate::exec::wave::Wave;
use crate::isa::{Format, flag, operand};

/// Returns where the row of the first dword begins in the wavefront's scratch, in dwords, if `words` rows from there on are accessed.
#[inline(always)]
fn first_row(w: &Wave, s: &Step, words: usize) -> Option<usize> {
    let (inst, lanes) = (&s.inst, w.lanes());
    if inst.desc.format == Format::SCRATCH {
        let base = if inst.base == operand::NONE { 0 } else { w.scalar(inst.base) };
        let offset = base.wrapping_add(inst.imm as u32);
        let end = offset.checked_add(4 * words as u32)?;
        let usable = inst.flags & flag::VADDR == 0 && offset & 3 == 0 && end <= w.scratch_size & !3;
        return usable.then_some(offset as usize / 4 * lanes);
    }
    // A buffer that is scratch: its lanes' dwords are interleaved.
    if inst.flags & (flag::OFFEN | flag::IDXEN) != 0 || words > 1 || inst.imm & 3 != 0 {
        return None;
    }
    let resource = BufferResource::read(w, inst.base);
    if !resource.swizzle || !resource.add_tid || 1 << resource.index_stride_log2 != lanes {
        return None;
    }
    let soffset = match inst.offset {
        number @ operand::INLINE..=operand::INLINE_INT_MAX => u64::from(number - operand::INLINE),
        number => u64::from(w.scalar(number)),
    };
    let row = u64::from(inst.imm as u32) << resource.index_stride_log2;
    let at = resource.base.wrapping_add(soffset).wrapping_add(row).wrapping_sub(w.scratch_base);
    at.is_multiple_of(4).then_some(usize::try_from(at / 4).ok()?)
}

/// Loads `N` dwords of each lane.
#[inline(always)]
pub fn scratch_load<S: Vector, const N: usize>(w: &mut Wave, s: &Step, _: &mut Env<'_>) -> Option<()> {
    let (at, lanes) = (first_row(w, s, N)?, w.lanes());
    w.scratch.get(at..at.checked_add(N * lanes)?)?;
    for n in 0..N {
        for first in (0..lanes).step_by(GROUP) {
            let mask = w.mask.0[first..].as_ptr();
            let active = (w.exec >> first) as u32 & 0xffff;
            // SAFETY: the rows are within the scratch and the groups within the registers; the CPU has the vector instructions of `S`.
            unsafe {
                let values = S::load(w.scratch.as_ptr().add(at + n * lanes + first));
                values.store_masked(w.vgpr_mut(s.inst.dst + n as u16).0[first..].as_mut_ptr(), active, mask);
            }
        }
    }
    Some(())
}

/// Stores `N` dwords of each lane.
#[inline(always)]
pub fn scratch_store<S: Vector, const N: usize>(w: &mut Wave, s: &Step, _: &mut Env<'_>) -> Option<()> {
    let (at, lanes) = (first_row(w, s, N)?, w.lanes());
    w.scratch.get(at..at.checked_add(N * lanes)?)?;
    let data = if s.inst.desc.format == Format::MUBUF { s.inst.dst } else { s.inst.src[1] };
    for n in 0..N {
        for first in (0..lanes).step_by(GROUP) {
            let mask = w.mask.0[first..].as_ptr();
            let active = (w.exec >> first) as u32 & 0xffff;
            // SAFETY: as in `scratch_load`.
            unsafe {
                let values = S::load(w.vgpr(data + n as u16).0[first..].as_ptr());
                values.store_masked(w.scratch.as_mut_ptr().add(at + n * lanes + first), active, mask);
            }
        }
    }
    Some(())
}
