//! Lane and warp indices computed with 32: 0207, 0212, 0216 and 0218.
//!
//! A literal 32 counts as the warp size only if a thread index is divided by it, and only if the function uses warp-level operations or
//! a name mentions warps: a block split into rows of 32 threads for a shared-memory tile is right on any wave size.

use std::ops::Range;

use super::code::{Code, REACH, contains};
use super::flow::{Value, expression_end};
use super::warp::Op;
use super::{Hazard, View, hazard};
use crate::diagnostic::Severity;

/// Whether a name mentions lanes or warps.
fn mentions_warps(name: &[u8]) -> bool {
    contains(name, b"lane") || contains(name, b"warp") || name == b"wid"
}

/// Whether a name is a warp count.
fn counts_warps(name: &[u8]) -> bool {
    let bare: Vec<u8> = name.iter().filter(|b| **b != b'_').map(u8::to_ascii_lowercase).collect();
    let has = |word: &[u8]| contains(&bare, word);
    has(b"warps") && !has(b"warpsi") && !has(b"warpst") || has(b"numwarp") || has(b"nwarp") || has(b"warpcount") || has(b"warpnum")
}

/// Reports 0216. Returns the ranges in which only some threads of the first warp are active.
pub fn guards(view: &View<'_, '_>, found: &mut Vec<Hazard>) -> Vec<Range<usize>> {
    let code = view.code;
    let mut out = Vec::new();
    for i in view.unit.body.clone() {
        if !code.is(i, b"if") || !code.is(i + 1, b"(") {
            continue;
        }
        let Some(close) = code.partner(i + 1) else { continue };
        let guard = (i + 2..close.min(i + REACH)).find(|k| {
            let first = code.is(*k, b"<") && code.number(k + 1) == Some(32) || code.is(*k, b"<=") && code.number(k + 1) == Some(31);
            first && view.flow.operand_ending(k - 1) == Some(Value::Thread)
        });
        let Some(guard) = guard else { continue };
        let body = close + 1..code.statement_end(close + 1, view.unit.body.end);
        let from = view.facts.calls.partition_point(|call| call.at < body.start);
        let calls = view.facts.calls[from..].iter().take_while(|call| call.at < body.end);
        let works = calls.take(REACH).any(|call| call.op != Op::Sync && call.width.is_none());
        let helper = view.facts.helpers.get(view.facts.helpers.partition_point(|at| *at < body.start)).is_some_and(|at| *at < body.end);
        if (works || helper) && !view.facts.segmented {
            found.push(hazard(
                216,
                Severity::Warning,
                code.span(guard - 1, guard + 1),
                "condition selects 32 threads, half of a wave64; the warp-level code inside runs with lanes 32 to 63 disabled",
                "use `threadIdx.x < warpSize` (with the identity value for unused lanes), or pass a width of 32 to every shuffle",
            ));
        }
        out.push(body);
    }
    out
}

/// Reports 0207, 0212 and 0218. Returns whether the function computes lanes with 32.
pub fn check(view: &View<'_, '_>, found: &mut Vec<Hazard>) -> bool {
    let code = view.code;
    if view.facts.segmented {
        return false;
    }
    let mut by_32 = false;
    for i in view.unit.body.clone().skip(1) {
        let text = code.text(i);
        let number = |k: usize| code.number(k);
        let hit = match text {
            b"&" | b"&=" if number(i + 1) == Some(31) => Some((Kind::Lane, i + 1)),
            b"%" | b"%=" if number(i + 1) == Some(32) => Some((Kind::Lane, i + 1)),
            b"/" | b"/=" if number(i + 1) == Some(32) => Some((Kind::Warp, i + 1)),
            b">" if number(i + 2) == Some(5) && code.shift_right(i) => Some((Kind::Warp, i + 2)),
            b"*" if number(i + 1) == Some(32) => is_index(view, i - 1, Value::Warp).then_some((Kind::WarpSize, i + 1)),
            b"*" if number(i - 1) == Some(32) && code.is_name(i + 1) => {
                is_index(view, i + 1, Value::Warp).then_some((Kind::WarpSize, i + 1))
            }
            b"<<" if number(i + 1) == Some(5) => is_index(view, i - 1, Value::Warp).then_some((Kind::WarpSize, i + 1)),
            b"==" | b"!=" if number(i + 1) == Some(31) => is_index(view, i - 1, Value::Lane).then_some((Kind::WarpSize, i + 1)),
            b"for" => {
                stride(view, i, found);
                None
            }
            _ => None,
        };
        let Some((kind, last)) = hit else { continue };
        let operand = view.flow.operand_ending(i - 1).unwrap_or(Value::Data);
        let first = operand_start(code, i - 1);
        let span = code.span(first, last);
        if kind == Kind::WarpSize || is_lane(view, operand, kind, i, last) {
            by_32 = true;
            let message = match kind {
                Kind::Lane => "lane index assumes 32 lanes per warp; on wave64, lanes 32 to 63 also get indices 0 to 31",
                Kind::Warp => "warp index assumes 32 threads per warp; on a wave64 GPU, each wave gets two warp indices",
                Kind::WarpSize => "warp size assumed to be 32; the last lane of a wave64 is 63",
            };
            let help = "use `warpSize` (`% warpSize`, `/ warpSize`), or pass a width of 32 to every shuffle and vote in tiles of 32";
            found.push(hazard(207, Severity::Warning, span, message, help));
        } else if kind == Kind::Warp && is_warp_count(view, i, first, last) {
            found.push(hazard(
                212,
                Severity::Warning,
                span,
                "number of warps assumes 32 threads per warp; on a wave64 GPU the block has half as many waves",
                "divide by `warpSize` (on the host: `cudaDeviceProp::warpSize`), rounding up",
            ));
        }
    }
    by_32
}

/// Whether the operand that ends at `i` is a warp or lane index and is used as one.
fn is_index(view: &View<'_, '_>, i: usize, value: Value) -> bool {
    view.flow.operand_ending(i) == Some(value) && (view.facts.collective() || mentions_warps(view.code.text(i)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lane,
    Warp,
    WarpSize,
}

/// The first token of the operand that ends at `i`.
fn operand_start(code: &Code<'_>, i: usize) -> usize {
    if code.is(i, b")") {
        let open = code.partner(i).unwrap_or(i);
        return if open > 0 && code.is_name(open - 1) { open - 1 } else { open };
    }
    if i >= 2 && code.is(i - 1, b".") { i - 2 } else { i }
}

/// Whether dividing an operand by 32 gives a lane or warp index here.
fn is_lane(view: &View<'_, '_>, operand: Value, kind: Kind, at: usize, last: usize) -> bool {
    let code = view.code;
    if !matches!(operand, Value::Thread | Value::Global | Value::Lane) || operand == Value::Lane && kind == Kind::Warp {
        return false;
    }
    if operand == Value::Global && addresses_bits(code, at, last) {
        return false;
    }
    let result = result_name(code, at);
    let named = match result {
        Some(name) => mentions_warps(name),
        None => false,
    };
    let returns = mentions_warps(view.unit.name) && code.is(code.statement_start(at), b"return");
    named || returns || view.facts.collective()
}

/// Whether the index addresses a bit: `bits[i / 32]` and `1u << (i % 32)` in one statement.
fn addresses_bits(code: &Code<'_>, at: usize, last: usize) -> bool {
    let start = code.statement_start(at);
    let end = (last..last.saturating_add(REACH).min(code.len())).find(|k| code.is(*k, b";")).unwrap_or(last);
    (start.max(at.saturating_sub(REACH))..end).any(|k| {
        let cuts = code.is(k, b"&") && code.number(k + 1) == Some(31) || code.is(k, b"%") && code.number(k + 1) == Some(32);
        if !cuts {
            return false;
        }
        match code.parent(k) {
            Some(open) if open > 1 && code.is(open, b"(") => code.is(open - 1, b"<<") || code.shift_right(open - 2),
            _ => false,
        }
    })
}

/// The variable that the expression around `at` initializes or sets.
fn result_name<'a>(code: &Code<'a>, at: usize) -> Option<&'a [u8]> {
    let mut k = at;
    for _ in 0..64 {
        k = k.checked_sub(1)?;
        match code.text(k) {
            b")" | b"]" => k = code.partner(k)?,
            b"(" if k > 0 && code.is_name(k - 1) && !matches!(code.text(k - 1), b"int" | b"unsigned" | b"min" | b"max" | b"return") => {
                return None;
            }
            b"=" => return k.checked_sub(1).filter(|name| code.is_name(*name)).map(|name| code.text(name)),
            b";" | b"{" | b"}" | b"," | b"[" | b"?" => return None,
            b"&=" | b"%=" | b"/=" => return Some(code.text(k - 1)),
            _ => {}
        }
    }
    None
}

/// `blockDim.x / 32`, or any division by 32 whose result is named as a warp count.
fn is_warp_count(view: &View<'_, '_>, at: usize, first: usize, last: usize) -> bool {
    let code = view.code;
    // Rounding up to a multiple.
    if code.is(last + 1, b"*") && code.number(last + 2) == Some(32) || code.is(last + 1, b")") && code.is(last + 2, b"*") {
        return false;
    }
    if result_name(code, at).is_some_and(counts_warps) {
        return true;
    }
    let returns = counts_warps(view.unit.name) && code.is(code.statement_start(at), b"return");
    let block = (first..at).take(REACH).any(|k| code.is(k, b"blockDim") || contains(code.text(k), b"block_size"));
    returns || block && view.facts.collective()
}

/// `for (int i = lane; i < n; i += 32)`.
fn stride(view: &View<'_, '_>, at: usize, found: &mut Vec<Hazard>) {
    let code = view.code;
    let Some(close) = code.partner(at + 1).filter(|close| *close < at + REACH) else { return };
    let header = at + 2..close;
    let Some(step) = header.clone().find(|k| code.is(*k, b"+=") && code.number(k + 1) == Some(32)) else { return };
    let Some(equals) = header.clone().find(|k| code.is(*k, b"=")) else { return };
    let begins = view.flow.value(equals + 1..expression_end(code, equals + 1, close));
    // The first term decides: `base + lane` strides through a row like `lane`.
    if begins == Value::Lane && code.is(step - 1, code.text(equals - 1)) {
        found.push(hazard(
            218,
            Severity::Warning,
            code.span(step - 1, step + 1),
            "lane loop has a stride of 32; with 64 lanes every item is processed twice",
            "use a stride of `warpSize`",
        ));
    }
}
