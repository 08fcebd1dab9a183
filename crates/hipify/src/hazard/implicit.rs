//! Implicit warps: warp-synchronous code on shared memory (0213), and the size of a coalesced group (0217).

use super::code::contains;
use super::flow::Value;
use super::{Hazard, View, hazard};
use crate::diagnostic::Severity;

/// Runs both rules.
pub fn check(view: &View<'_, '_>, found: &mut Vec<Hazard>) {
    tail(view, found);
    coalesced(view, found);
}

/// `s[t] += s[t + 32]; s[t] += s[t + 16]; …`: three or more halving steps, 16 among them, without synchronization.
fn tail(view: &View<'_, '_>, found: &mut Vec<Hazard>) {
    let code = view.code;
    let mut first = 0;
    // Array, index, offset, and the number of steps so far.
    let mut run: Option<(&[u8], &[u8], u64, usize)> = None;
    let mut told = false;
    for i in view.unit.body.clone() {
        let next = code.text(i + 1);
        if next != b"(" && next != b"[" || !code.is_name(i) {
            continue;
        }
        let name = code.text(i);
        if contains(name, b"sync") || contains(name, b"barrier") {
            run = None;
            told = false;
            continue;
        }
        let step = code.is(i + 1, b"[") && code.is_name(i + 2) && code.is(i + 3, b"+") && code.is(i + 5, b"]");
        let Some(distance) = code.number(i + 4).filter(|n| step && n.is_power_of_two() && *n <= 32) else { continue };
        let index = code.text(i + 2);
        run = match run {
            Some((array, by, last, steps)) if array == name && by == index && distance * 2 == last => {
                Some((array, by, distance, steps + 1))
            }
            Some((array, by, last, steps)) if array == name && by == index && distance == last => Some((array, by, last, steps)),
            _ => {
                first = i;
                told = false;
                Some((name, index, distance, 1))
            }
        };
        // It starts at 16 or 32, so three steps include the one of 8.
        if let Some((_, _, distance, steps)) = run
            && steps >= 3
            && !told
            && distance << (steps - 1) >= 16
        {
            told = true;
            found.push(hazard(
                213,
                Severity::Warning,
                code.span(first, first + 5),
                "code assumes that 32 threads run in lockstep, which is not guaranteed; AMD wavefronts can have 64 lanes",
                "put `__syncthreads()` (or `__syncwarp()`, separating reads from writes) between the accesses, or reduce with shuffles",
            ));
        }
    }
}

/// `group.size() == 32` on a coalesced group.
fn coalesced(view: &View<'_, '_>, found: &mut Vec<Hazard>) {
    let code = view.code;
    for i in view.unit.body.clone() {
        let asks = matches!(code.text(i), b"size" | b"num_threads") && code.before(i, b".") && code.is(i + 1, b"(") && code.is(i + 2, b")");
        if !asks || i < 2 {
            continue;
        }
        let group = view.flow.operand_ending(i - 2);
        let compares = matches!(code.text(i + 3), b"==" | b"!=" | b">=" | b"<" | b"<=" | b">");
        if group == Some(Value::Coalesced) && compares && code.number(i + 4) == Some(32) {
            found.push(hazard(
                217,
                Severity::Warning,
                code.span(i - 2, i + 4),
                "size of a coalesced group compared with 32; it can be 64 on wave64",
                "compare with `warpSize`, or use `tiled_partition<32>`, which always has 32 threads",
            ));
        }
    }
}
