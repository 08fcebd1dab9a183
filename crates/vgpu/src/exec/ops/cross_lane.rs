//! Cross-lane operations.

use super::{Semantics, single};
use crate::exec::decoded::{OperandType, Step};
use crate::exec::valu::source;
use crate::exec::wave::{LANES, Lanes, Wave};
use crate::exec::{Env, Outcome};

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
        // row_newbcast (gfx90a): one lane of a row to all of it.
        0x150..=0x15f => Some(row + n),
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
    let lane = source(w, s, 1, &mut lane).0[0] as usize % LANES;
    let value = source(w, s, 0, &mut buffer).0[lane];
    w.set_scalar(s.inst.dst, value);
    Outcome::Continue
}

/// `v_writelane_b32`: ignores EXEC.
fn write_lane(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (mut value, mut lane) = (Lanes([0; LANES]), Lanes([0; LANES]));
    let value = source(w, s, 0, &mut value).0[0];
    let lane = source(w, s, 1, &mut lane).0[0] as usize % LANES;
    w.vgpr_mut(s.inst.dst).0[lane] = value;
    Outcome::Continue
}

fn swap(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let (a, b) = (*w.vgpr(s.inst.src[0]), *w.vgpr(s.inst.dst));
    w.write_vgpr(s.inst.dst, &a);
    w.write_vgpr(s.inst.src[0], &b);
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
        // row_newbcast:3
        assert_eq!(dpp_source(0x153, 40), Some(35));
    }
}
