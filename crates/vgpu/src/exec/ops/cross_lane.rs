//! Cross-lane operations.

use super::{Semantics, single};
use crate::exec::decoded::{OperandType, SourceKind, Step};
use crate::exec::valu::source;
use crate::exec::wave::{LANES, Lanes, Wave};
use crate::exec::{Env, Outcome};
use crate::isa::operand;

/// Returns the lane that a DPP control reads for `lane`; `None` outside the wavefront or row.
pub fn dpp_source(ctrl: u16, lane: usize) -> Option<usize> {
    let (row, at) = (lane & !15, lane & 15);
    let n = usize::from(ctrl & 15);
    let within = |from: Option<usize>| from.filter(|&from| from < 16).map(|from| row + from);
    match ctrl {
        0x000..=0x0ff => Some(lane & !3 | usize::from(ctrl >> (2 * (lane & 3)) & 3)),
        0x101..=0x10f => within(Some(at + n)),
        0x111..=0x11f => within(at.checked_sub(n)),
        0x121..=0x12f => Some(row + (at + 16 - n) % 16),
        // wave_shl, wave_rol, wave_shr, wave_ror.
        0x130 => (lane + 1 < LANES).then_some(lane + 1),
        0x134 => Some((lane + 1) % LANES),
        0x138 => lane.checked_sub(1),
        0x13c => Some((lane + LANES - 1) % LANES),
        0x140 => Some(row + 15 - at),
        0x141 => Some(lane & !7 | 7 - (lane & 7)),
        // row_bcast:15, row_bcast:31: the last lane of a row to the next row; lane 31 to the upper half.
        0x142 => (lane >= 16).then(|| row - 1),
        0x143 => (lane >= 32).then_some(31),
        // row_newbcast (gfx90a), row_share (RDNA): one lane of a row to all of it.
        0x150..=0x15f => Some(row + n),
        // row_xmask (RDNA).
        0x160..=0x16f => Some(row + (at ^ n)),
        _ => None,
    }
}

/// `v_readfirstlane_b32`: reads lane 0 when EXEC is 0.
fn read_first(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let mut buffer = Lanes([0; LANES]);
    let value = source(w, s, 0, &mut buffer).0[w.first_lane()];
    w.set_scalar(s.inst.dst, value);
    Outcome::Continue
}

/// `v_readlane_b32`: ignores EXEC.
fn read_lane(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (mut buffer, mut lane) = (Lanes([0; LANES]), Lanes([0; LANES]));
    let lane = source(w, s, 1, &mut lane).0[0] as usize % w.lanes();
    let value = source(w, s, 0, &mut buffer).0[lane];
    w.set_scalar(s.inst.dst, value);
    Outcome::Continue
}

/// `v_writelane_b32`: ignores EXEC.
fn write_lane(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (mut value, mut lane) = (Lanes([0; LANES]), Lanes([0; LANES]));
    let value = source(w, s, 0, &mut value).0[0];
    let lane = source(w, s, 1, &mut lane).0[0] as usize % w.lanes();
    w.vgpr_mut(s.inst.dst).0[lane] = value;
    Outcome::Continue
}

fn swap(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (a, b) = (*w.vgpr(s.inst.src[0]), *w.vgpr(s.inst.dst));
    w.write_vgpr(s.inst.dst, &a);
    w.write_vgpr(s.inst.src[0], &b);
    Outcome::Continue
}

/// `v_swap_b16`: exchanges halves, which may be of one register.
fn swap_halves_of_registers(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (from, to) = (s.inst.src[0], s.inst.dst);
    let (from_at, to_at) = (16 * u32::from(s.inst.op_sel & 1), 16 * u32::from(s.inst.op_sel >> 3 & 1));
    let replaced = |old: u32, at: u32, half: u32| old & !(0xffff << at) | (half & 0xffff) << at;
    let (a, b) = (*w.vgpr(from), *w.vgpr(to));
    w.write_vgpr(to, &Lanes(std::array::from_fn(|lane| replaced(b.0[lane], to_at, a.0[lane] >> from_at))));
    let a = *w.vgpr(from);
    w.write_vgpr(from, &Lanes(std::array::from_fn(|lane| replaced(a.0[lane], from_at, b.0[lane] >> to_at))));
    Outcome::Continue
}

/// Bits of `op_sel` of the permutations within and across rows.
mod select {
    /// Inactive lanes are read too.
    pub const FETCH_INACTIVE: u8 = 1;
    /// A lane whose source is inactive reads 0 instead of keeping its value.
    pub const BOUND_CTRL: u8 = 2;
}

/// Permutes the first source: each lane reads the lane that `from` returns.
fn permute(w: &mut Wave, s: &Step, from: impl Fn(&Wave, usize) -> usize) {
    let mut buffer = Lanes([0; LANES]);
    let values = *source(w, s, 0, &mut buffer);
    let mut out = *w.vgpr(s.inst.dst);
    for lane in 0..w.lanes() {
        let at = from(w, lane) % LANES;
        if w.exec >> at & 1 != 0 || s.inst.op_sel & select::FETCH_INACTIVE != 0 {
            out.0[lane] = values.0[at];
        } else if s.inst.op_sel & select::BOUND_CTRL != 0 {
            out.0[lane] = 0;
        }
    }
    w.write_vgpr(s.inst.dst, &out);
}

/// Returns the lane of a row that 64 bits of selectors, four for each lane, name.
fn selected_lane(w: &Wave, s: &Step, lane: usize) -> usize {
    let value = |n: usize| match s.kind[n] {
        SourceKind::Constant => s.constant[n] as u32,
        _ => w.scalar(s.inst.src[n]),
    };
    let selectors = u64::from(value(1)) | u64::from(value(2)) << 32;
    (selectors >> (4 * (lane & 15)) & 15) as usize
}

/// `v_permlane16_b32`: any permutation within each row of 16 lanes.
fn permute_row(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    permute(w, s, |w, lane| lane & !15 | selected_lane(w, s, lane));
    Outcome::Continue
}

/// `v_permlanex16_b32`: reads the other row of each pair.
fn permute_other_row(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    permute(w, s, |w, lane| (lane & !15 ^ 16) | selected_lane(w, s, lane));
    Outcome::Continue
}

/// `v_permlane16_var_b32`: the selector of each lane is in a vector register.
fn permute_row_var(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let selectors = *w.vgpr(s.inst.src[1]);
    permute(w, s, |_, lane| lane & !15 | selectors.0[lane] as usize & 15);
    Outcome::Continue
}

/// `v_permlanex16_var_b32`.
fn permute_other_row_var(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let selectors = *w.vgpr(s.inst.src[1]);
    permute(w, s, |_, lane| (lane & !15 ^ 16) | selectors.0[lane] as usize & 15);
    Outcome::Continue
}

/// `v_permlane64_b32`: exchanges the halves of a wave64, whatever EXEC says of the source lanes; does nothing in wave32.
fn swap_halves(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    if w.lanes() == LANES {
        let mut buffer = Lanes([0; LANES]);
        let values = *source(w, s, 0, &mut buffer);
        let out = Lanes(std::array::from_fn(|lane| values.0[lane ^ 32]));
        w.write_vgpr(s.inst.dst, &out);
    }
    Outcome::Continue
}

/// Returns a VGPR number plus an offset.
fn moved(number: u16, offset: u32) -> u16 {
    operand::VGPR + (u32::from(number - operand::VGPR).wrapping_add(offset) & 0xff) as u16
}

/// Moves between VGPRs whose numbers M0 offsets: the source's, the destination's.
fn move_relative(w: &mut Wave, s: &Step, source_offset: u32, dst_offset: u32) -> Outcome {
    let value = if s.inst.src[0] >= operand::VGPR {
        *w.vgpr(moved(s.inst.src[0], source_offset))
    } else {
        let mut buffer = Lanes([0; LANES]);
        *source(w, s, 0, &mut buffer)
    };
    w.write_vgpr(moved(s.inst.dst, dst_offset), &value);
    Outcome::Continue
}

fn m0(w: &Wave) -> u32 {
    w.sgprs[usize::from(operand::M0)]
}

fn movreld(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let m0 = m0(w);
    move_relative(w, s, 0, m0)
}

fn movrels(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let m0 = m0(w);
    move_relative(w, s, m0, 0)
}

fn movrelsd(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let m0 = m0(w);
    move_relative(w, s, m0, m0)
}

/// `v_movrelsd_2_b32`: M0 has an offset for each operand.
fn movrelsd_2(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let m0 = m0(w);
    move_relative(w, s, m0 & 0x3ff, m0 >> 16 & 0x3ff)
}

fn swaprel(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let m0 = m0(w);
    let (from, to) = (moved(s.inst.src[0].max(operand::VGPR), m0 & 0x3ff), moved(s.inst.dst, m0 >> 16 & 0x3ff));
    let (a, b) = (*w.vgpr(from), *w.vgpr(to));
    w.write_vgpr(to, &a);
    w.write_vgpr(from, &b);
    Outcome::Continue
}

/// Returns the semantics of the instruction called `name`.
pub fn find(name: &str) -> Option<Semantics> {
    Some(single(
        match name {
            "v_readfirstlane_b32" => read_first,
            "v_readlane_b32" => read_lane,
            "v_writelane_b32" => write_lane,
            "v_swap_b32" => swap,
            "v_swap_b16" => swap_halves_of_registers,
            "v_permlane16_b32" => permute_row,
            "v_permlanex16_b32" => permute_other_row,
            "v_permlane16_var_b32" => permute_row_var,
            "v_permlanex16_var_b32" => permute_other_row_var,
            "v_permlane64_b32" => swap_halves,
            "v_movreld_b32" => movreld,
            "v_movrels_b32" => movrels,
            "v_movrelsd_b32" => movrelsd,
            "v_movrelsd_2_b32" => movrelsd_2,
            "v_swaprel_b32" => swaprel,
            _ => return None,
        },
        [OperandType::B32; 3],
    ))
}

#[cfg(test)]
mod tests {
    use super::dpp_source;

    #[test]
    fn controls_read_the_lanes_that_amd_names() {
        // quad_perm:[1,0,3,2]
        assert_eq!((0..4).map(|lane| dpp_source(0xb1, lane)).collect::<Vec<_>>(), [1, 0, 3, 2].map(Some));
        // row_shl:1 moves values to lower lanes.
        assert_eq!((dpp_source(0x101, 14), dpp_source(0x101, 15), dpp_source(0x101, 16)), (Some(15), None, Some(17)));
        // row_shr:1 moves values to higher lanes.
        assert_eq!((dpp_source(0x111, 0), dpp_source(0x111, 17)), (None, Some(16)));
        // row_ror:1
        assert_eq!((dpp_source(0x121, 0), dpp_source(0x121, 1)), (Some(15), Some(0)));
        // wave_shr:1, wave_rol:1
        assert_eq!((dpp_source(0x138, 0), dpp_source(0x138, 32), dpp_source(0x134, 63)), (None, Some(31), Some(0)));
        // row_mirror, row_half_mirror
        assert_eq!((dpp_source(0x140, 16), dpp_source(0x141, 8)), (Some(31), Some(15)));
        // row_bcast:15, row_bcast:31
        assert_eq!((dpp_source(0x142, 20), dpp_source(0x142, 40), dpp_source(0x143, 50)), (Some(15), Some(31), Some(31)));
        // row_newbcast:3, row_xmask:5
        assert_eq!((dpp_source(0x153, 40), dpp_source(0x165, 40)), (Some(35), Some(45)));
    }
}
