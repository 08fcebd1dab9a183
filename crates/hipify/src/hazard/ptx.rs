//! Inline PTX that depends on the warp: 0214 and 0215.

use super::{Hazard, View, hazard};
use crate::diagnostic::Severity;
use crate::lex::Kind;

const REGISTERS: &[&[u8]] = &[b"%laneid", b"%warpid", b"%nwarpid", b"%lanemask_", b"%WARP_SZ", b"WARP_SZ"];

const INSTRUCTIONS: &[&[u8]] = &[b"shfl.", b"vote.", b"activemask", b"match.any", b"match.all", b"redux.", b"bar.warp"];

/// Instructions that are not translated.
const NO_COUNTERPART: &[&[u8]] = &[b"elect.sync", b"ldmatrix", b"stmatrix", b"mma.", b"movmatrix"];

/// Checks each `asm` statement.
pub fn check(view: &View<'_, '_>, found: &mut Vec<Hazard>) {
    let code = view.code;
    for i in view.unit.body.clone() {
        if !matches!(code.text(i), b"asm" | b"__asm__" | b"__asm") {
            continue;
        }
        let Some(open) = (i + 1..i + 4).find(|k| code.is(*k, b"(")) else { continue };
        let close = code.partner(open).unwrap_or(view.unit.body.end);
        let strings = || (open..close).filter(|k| code.kind(*k, Kind::String));
        let has = |k: usize, words: &[&[u8]]| {
            let text = code.text(k);
            words.iter().any(|word| text.windows(word.len()).any(|window| window == *word))
        };
        if let Some(k) = strings().find(|k| has(*k, REGISTERS)) {
            found.push(hazard(
                214,
                Severity::Warning,
                code.span(k, k),
                "inline PTX reads a lane or warp special register, which assumes 32-lane warps; the translation uses the wave size, which can be 64",
                "use `threadIdx.x % warpSize` (or `__lane_id()` in HIP) for the lane, and a 64-bit mask such as `(1ull << lane) - 1`",
            ));
        }
        let missing = strings().find(|k| has(*k, NO_COUNTERPART));
        if let Some(k) = missing.or_else(|| strings().find(|k| has(*k, INSTRUCTIONS))) {
            let (severity, message) = match missing {
                Some(_) => (Severity::Error, "inline PTX instruction works on a 32-lane warp and has no AMD equivalent"),
                None => (Severity::Warning, "inline PTX instruction takes a 32-bit lane mask; its translation works on the full wave"),
            };
            found.push(hazard(
                215,
                severity,
                code.span(k, k),
                message,
                "use the intrinsic (`__shfl_sync`, `__ballot_sync`, `__match_any_sync`, …) with a 64-bit mask, or rocWMMA for `mma`",
            ));
        }
    }
}
