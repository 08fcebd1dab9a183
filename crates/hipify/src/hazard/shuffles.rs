//! Shuffles that assume a 32-lane warp: 0210 and 0211.
//!
//! The fix is a width of 32. It is the default on NVIDIA, and makes a wave64 behave as two warps on AMD. It is not offered in a file that
//! uses `warpSize`: there it would silently leave out half of a wave.

use std::collections::HashSet;
use std::ops::Range;

use super::code::{Code, REACH};
use super::warp::{Call, Op};
use super::{Hazard, View, edit, hazard};
use crate::diagnostic::Severity;
use crate::edit::Edit;

/// Runs both rules. `by_32`: the function computes lanes with 32.
pub fn check(view: &View<'_, '_>, by_32: bool, found: &mut Vec<Hazard>) {
    let code = view.code;
    let open: Vec<&Call> =
        view.facts.calls.iter().filter(|call| call.is_shuffle() && call.lane.is_some() && call.width.is_none()).collect();
    if open.is_empty() {
        return;
    }
    let distance = |call: &Call| call.lane.clone().and_then(|lane| code.literal(lane));
    // An offset of 32 shows that wave64 was considered.
    if open.iter().any(|call| call.op != Op::Shuffle && distance(call) == Some(32)) {
        return;
    }

    // Insert the width before the closing parenthesis; no fix if other code works on full waves.
    let fix = |closes: &mut dyn Iterator<Item = usize>| -> Option<Vec<Edit>> {
        let insert = |close: usize| edit((code.span(close, close).0, code.span(close, close).0), ", 32");
        (!view.whole_waves).then(|| closes.map(insert).collect())
    };
    let mut covered: HashSet<usize> = HashSet::new();
    for i in view.unit.body.clone() {
        if !code.is(i, b"for") || !code.is(i + 1, b"(") {
            continue;
        }
        let Some((name, literal, body)) = halving_loop(code, i, view.unit.body.end) else { continue };
        let from = open.partition_point(|call| call.at < body.start);
        let inside: Vec<&&Call> =
            open[from..].iter().take(REACH).take_while(|call| call.at < body.end).filter(|call| uses(code, call, name)).collect();
        if inside.is_empty() {
            continue;
        }
        covered.extend(inside.iter().map(|call| call.at));
        let mut hazard = hazard(
            210,
            Severity::Warning,
            code.span(literal, literal),
            "shuffle loop covers 32 lanes; the halves of a wave64 are never combined",
            "start at `warpSize / 2` (or end at `warpSize`), or pass a width of 32 to the shuffle to work in segments of 32",
        );
        hazard.fix = fix(&mut inside.iter().map(|call| call.close));
        found.push(hazard);
    }

    for call in open.iter().filter(|call| call.op != Op::Shuffle) {
        if !covered.contains(&call.at) && halves_by_hand(code, call, &view.unit.body) {
            covered.insert(call.at);
            let mut hazard = hazard(
                210,
                Severity::Warning,
                code.span(call.at, call.close),
                "shuffle loop starts at 16 and covers 32 lanes; the halves of a wave64 are never combined",
                "start at `warpSize / 2`, or pass a width of 32 to the shuffle to work in segments of 32",
            );
            hazard.fix = fix(&mut std::iter::once(call.close));
            found.push(hazard);
        }
    }

    let unrolled: Vec<&&Call> =
        open.iter().filter(|call| call.op != Op::Shuffle && distance(call).is_some_and(|n| n.is_power_of_two() && n <= 16)).collect();
    if let Some(first) = unrolled.iter().find(|call| distance(call) == Some(16)) {
        covered.extend(unrolled.iter().map(|call| call.at));
        let mut hazard = hazard(
            210,
            Severity::Warning,
            code.span(first.at, first.close),
            "unrolled shuffles with offsets up to 16 combine 32 lanes; a wave64 also needs an offset of 32",
            "add a shuffle with offset 32 if `warpSize` is 64, or pass a width of 32 to each shuffle to work in segments of 32",
        );
        hazard.fix = fix(&mut unrolled.iter().map(|call| call.close));
        found.push(hazard);
    }

    for call in open.iter().filter(|call| !covered.contains(&call.at)) {
        let literal = distance(call);
        let upper = call.op == Op::Shuffle && literal.is_some_and(|lane| (16..32).contains(&lane));
        // A butterfly with less than 32 stays within 32 lanes.
        let inside = call.op == Op::Butterfly && literal.is_some_and(|n| n < 32);
        if !upper && (!by_32 || inside) {
            continue;
        }
        let (severity, message) = if upper {
            (Severity::Warning, "source lane assumes a 32-lane warp; in wave64, lane indices go up to 63")
        } else {
            (Severity::Note, "this code assumes 32 lanes, but this shuffle spans all 64 lanes of a wave64")
        };
        let help = "pass a width of 32 to stay within 32 lanes, or compute lanes with `warpSize` throughout";
        let mut hazard = hazard(211, severity, code.span(call.at, call.close), message, help);
        hazard.fix = fix(&mut std::iter::once(call.close));
        found.push(hazard);
    }
}

fn uses(code: &Code<'_>, call: &Call, name: &[u8]) -> bool {
    call.lane.clone().is_some_and(|lane| lane.take(REACH).any(|i| code.is(i, name)))
}

/// `int d = 16; while (d > 0) { … shuffle by d …; d >>= 1; }`.
fn halves_by_hand(code: &Code<'_>, call: &Call, body: &Range<usize>) -> bool {
    const NEAR: usize = 64;
    let Some(lane) = call.lane.clone().filter(|lane| lane.len() == 1 && code.is_name(lane.start)) else { return false };
    let name = code.text(lane.start);
    let before = body.start.max(call.at.saturating_sub(NEAR))..call.at;
    let after = call.close..body.end.min(call.close + NEAR);
    let looped = before.clone().any(|k| code.is(k, b"while") || code.is(k, b"do"));
    let begins =
        before.into_iter().any(|k| code.is(k, name) && code.is(k + 1, b"=") && code.number(k + 2) == Some(16) && code.is(k + 3, b";"));
    let halves = after.into_iter().any(|k| {
        let shift = code.shift_right(k + 1) && code.is(k + 3, b"=") && code.number(k + 4) == Some(1);
        code.is(k, name) && (shift || code.is(k + 1, b"/=") && code.number(k + 2) == Some(2))
    });
    looped && begins && halves
}

/// A loop that halves from 16 or doubles from 1 up to 32: its variable, the literal, and its body.
fn halving_loop<'a>(code: &Code<'a>, at: usize, limit: usize) -> Option<(&'a [u8], usize, Range<usize>)> {
    let close = code.partner(at + 1)?;
    let equals = (at + 2..close.min(at + 8)).find(|k| code.is(*k, b"="))?;
    let name = code.text(equals - 1);
    let begins = code.number(equals + 1)?;
    if !code.is(equals + 2, b";") {
        return None;
    }
    let condition_end = (equals + 3..close.min(equals + REACH)).find(|k| code.is(*k, b";"))?;
    let step = condition_end + 1..close.min(condition_end + 16);
    let halves = step.clone().any(|k| {
        code.is(k, b"/=") && code.number(k + 1) == Some(2)
            || code.is(k, b"/") && code.number(k + 1) == Some(2)
            || code.shift_right(k) && (code.number(k + 2) == Some(1) || code.is(k + 2, b"=") && code.number(k + 3) == Some(1))
    });
    let doubles = step.clone().any(|k| {
        (code.is(k, b"*=") || code.is(k, b"*")) && code.number(k + 1) == Some(2)
            || (code.is(k, b"<<=") || code.is(k, b"<<")) && code.number(k + 1) == Some(1)
            || code.is(k, b"+=") && code.is(k + 1, name)
    });
    let body = close + 1..code.statement_end(close + 1, limit);
    if begins == 16 && halves {
        return Some((name, equals + 1, body));
    }
    let bound = (equals + 3..condition_end).find(|k| {
        code.is(*k, b"<") && code.number(k + 1) == Some(32) || code.is(*k, b"<=") && matches!(code.number(k + 1), Some(16 | 31))
    })?;
    (doubles && begins <= 16).then_some((name, bound + 1, body))
}
