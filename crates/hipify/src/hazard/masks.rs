//! Lane masks: passed (0201, 0202), stored (0203), counted (0204), shifted (0205) and compared (0206).

use std::collections::HashSet;
use std::ops::Range;

use super::code::{Code, REACH};
use super::constants::{Constants, full_mask};
use super::flow::{Value, Width, expression_end, is_type_word};
use super::{Hazard, View, edit, hazard, within};
use crate::diagnostic::Severity;
use crate::edit::Edit;
use crate::lex::Kind;

/// The help for a full mask.
pub const FULL_HELP: &str = "use `~0ull`: it truncates to the same 32-bit mask on NVIDIA and selects all 64 lanes on AMD";

const WIDE: &str = "unsigned long long";

/// Runs the mask rules. `unit` is the index of the function; in `guards` only some lanes are active.
pub fn check(view: &View<'_, '_>, unit: usize, guards: &[Range<usize>], constants: &mut Constants<'_>, found: &mut Vec<Hazard>) {
    passed(view, unit, guards, constants, found);
    // The first tokens of the types that a fix widens to 64 bits.
    let mut widened = HashSet::new();
    for i in view.unit.body.clone() {
        match view.code.text(i) {
            b"=" => kept(view, i, &mut widened, found),
            b"return" => returned(view, i, found),
            b"__popc" | b"__ffs" | b"__clz" | b"__brev" | b"__fns" => counted(view, i, &widened, found),
            b"<<" => shifted(view, i, i + 1, found),
            b">" if view.code.shift_right(i) => shifted(view, i, i + 2, found),
            b"==" | b"!=" => compared(view, i, constants, found),
            _ => cast(view, i, found),
        }
    }
}

fn passed(view: &View<'_, '_>, unit: usize, guards: &[Range<usize>], constants: &mut Constants<'_>, found: &mut Vec<Hazard>) {
    let code = view.code;
    // A macro sees the constants of the file, not those of functions.
    let unit = (!view.unit.head.is_empty()).then_some(unit);
    for call in &view.facts.calls {
        let Some(mask) = call.mask.clone().filter(|mask| !mask.is_empty() && mask.len() <= 8) else { continue };
        let texts: Vec<&[u8]> = mask.clone().map(|i| code.text(i)).collect();
        let span = code.span(mask.start, mask.end - 1);
        if let [name] = texts.as_slice()
            && code.is_name(mask.start)
            && constants.use_mask(name, unit)
        {
            continue;
        }
        if full_mask(&texts) {
            let message = "32-bit full mask covers half of a wave64, and HIP requires a 64-bit mask";
            let mut hazard = hazard(201, Severity::Error, span, message, FULL_HELP);
            if !within(guards, call.at) {
                hazard.fix = Some(vec![edit(span, "~0ull")]);
            }
            found.push(hazard);
        } else if code.literal(mask).is_some_and(|value| value < 0xffff_ffff) {
            found.push(hazard(
                202,
                Severity::Warning,
                span,
                "mask selects lanes 0 to 31 only; lanes 32 to 63 of a wave64 may also be active here",
                "build a 64-bit mask of the participating lanes, or use a cooperative-groups tile",
            ));
        }
    }
}

fn narrow(width: Width) -> bool {
    matches!(width, Width::Signed32 | Width::Unsigned32)
}

fn stored_hazard() -> Hazard {
    hazard(
        203,
        Severity::Error,
        (0, 0),
        "lane mask stored in 32 bits; lanes 32 to 63 of a wave64 are lost",
        "store it as `unsigned long long` (or `auto`), and use the 64-bit intrinsics (`__popcll`, `__ffsll`, …)",
    )
}

/// `unsigned m = __ballot_sync(…)`, also to an element of an array.
fn kept(view: &View<'_, '_>, equals: usize, widened: &mut HashSet<usize>, found: &mut Vec<Hazard>) {
    let code = view.code;
    let mut target = match equals.checked_sub(1) {
        Some(target) => target,
        None => return,
    };
    if code.is(target, b"]") {
        let Some(open) = code.partner(target).filter(|open| *open > 0) else { return };
        target = open - 1;
    }
    if !code.is_name(target) {
        return;
    }
    let (width, type_at) = if code.before(target, b".") || code.before(target, b"->") {
        (view.types.member_width(code.text(target)), None)
    } else {
        view.flow.variable(code.text(target), equals + 1).map_or((Width::Other, None), |variable| (variable.width, variable.type_at))
    };
    let end = expression_end(code, equals + 1, view.unit.body.end);
    if !narrow(width) || view.flow.value(equals + 1..end) != Value::Mask {
        return;
    }
    let mut hazard = stored_hazard();
    let span = code.span(target, end.saturating_sub(1));
    (hazard.diagnostic.start, hazard.diagnostic.end) = span;
    if target + 1 == equals && code.is(end, b";") {
        hazard.fix = widen(view, type_at, target, end);
        widened.extend(type_at.filter(|_| hazard.fix.is_some()));
    }
    found.push(hazard);
}

/// Widens a declaration to 64 bits, if every use of the name allows it.
fn widen(view: &View<'_, '_>, type_at: Option<usize>, name_at: usize, end: usize) -> Option<Vec<Edit>> {
    let code = view.code;
    let mut first = type_at?;
    while matches!(code.text(first), b"const" | b"constexpr" | b"register") {
        first += 1;
    }
    let plain = first < name_at && (first..name_at).all(|i| is_type_word(code.text(i)) && !code.is(i, b"volatile"));
    if !plain {
        return None;
    }
    let name = code.text(name_at);
    if view.unit.body.end.saturating_sub(end) > 16 * REACH {
        return None;
    }
    let uses = (end..view.unit.body.end).filter(|i| code.is(*i, name));
    for i in uses {
        if !allows_64_bits(code, i) {
            return None;
        }
    }
    Some(vec![edit(code.span(first, name_at - 1), WIDE)])
}

/// Whether a use has the same meaning if the variable has 64 bits, the upper 32 being zero.
fn allows_64_bits(code: &Code<'_>, i: usize) -> bool {
    // A complement, a negation, or the variable's address.
    if code.before(i, b"~") || code.before(i, b"-") || code.before(i, b"&") && i >= 2 && matches!(code.text(i - 2), b"(" | b",") {
        return false;
    }
    // Part of a larger operand: a shift or a sum before the comparison.
    let first = i > 0 && matches!(code.text(i - 1), b"(" | b"," | b"=" | b"return" | b"&&" | b"||" | b";");
    if first && (code.is(i + 1, b"==") || code.is(i + 1, b"!=")) && code.number(i + 2) == Some(0) || code.before(i, b"!") {
        return true;
    }
    let name = code.text(i);
    // `m &= m - 1` clears the lowest bit in any width.
    if code.is(i + 1, b"&=") && code.is(i + 2, name) && code.is(i + 3, b"-") && code.number(i + 4) == Some(1) {
        return true;
    }
    if i >= 2 && code.is(i - 1, b"&=") && code.is(i - 2, name) && code.is(i + 1, b"-") && code.number(i + 2) == Some(1) {
        return true;
    }
    let alone = code.is(i + 1, b")") && code.before(i, b"(") && i >= 2;
    alone && matches!(code.text(i - 2), b"if" | b"while") || in_count(code, i)
}

/// Whether it is in the argument of a bit intrinsic that has a 64-bit form.
fn in_count(code: &Code<'_>, i: usize) -> bool {
    let mut inner = i;
    for _ in 0..4 {
        let Some(open) = code.parent(inner) else { return false };
        if open == 0 || !code.is(open, b"(") {
            return false;
        }
        if code.is_name(open - 1) {
            let counts = matches!(code.text(open - 1), b"__popc" | b"__ffs" | b"__popcll" | b"__ffsll");
            return counts && code.partner(open).is_some_and(|close| is_width_free(code, open + 1..close));
        }
        inner = open;
    }
    false
}

/// Whether a mask expression has the same bits in 32 bits as in 64 with the upper half zero: masks combined with `&` and `|`, and
/// `(1 << lane) - 1`. A complement, a sum or another shift would change the upper half.
fn is_width_free(code: &Code<'_>, range: Range<usize>) -> bool {
    let mut i = range.start;
    if range.len() > REACH {
        return false;
    }
    while i < range.end {
        match code.text(i) {
            b"~" | b"!" | b"?" | b"+" | b"*" | b"^" | b"%" | b"/" | b">" | b"[" => return false,
            b"<<" if i == 0 || code.number(i - 1) != Some(1) => return false,
            b"-" => {
                let open = if i > 0 && code.is(i - 1, b")") { code.partner(i - 1) } else { None };
                if code.number(i + 1) != Some(1) || !open.is_some_and(|open| code.is(open + 2, b"<<")) {
                    return false;
                }
            }
            // Arguments of a call do not matter.
            b"(" if i > range.start && code.is_name(i - 1) => i = code.partner(i).unwrap_or(i).max(i),
            _ => {}
        }
        i += 1;
    }
    true
}

/// `return __ballot_sync(…)` from a function with a 32-bit return type.
fn returned(view: &View<'_, '_>, at: usize, found: &mut Vec<Hazard>) {
    let code = view.code;
    let end = expression_end(code, at + 1, view.unit.body.end);
    if view.flow.value(at + 1..end) != Value::Mask {
        return;
    }
    let Some(name) = view.unit.head.clone().find(|i| code.is(*i, view.unit.name)) else { return };
    let words = (view.unit.head.start.max(name.saturating_sub(6))..name).map(|i| code.text(i));
    if is_narrow_type(words) {
        let mut hazard = stored_hazard();
        (hazard.diagnostic.start, hazard.diagnostic.end) = code.span(at, end.saturating_sub(1));
        found.push(hazard);
    }
}

/// Whether these words are a 32-bit type.
fn is_narrow_type<'t>(words: impl Iterator<Item = &'t [u8]>) -> bool {
    let mut narrow = false;
    for word in words {
        match word {
            b"unsigned" | b"int" | b"uint" | b"uint32_t" | b"int32_t" => narrow = true,
            b"long" | b"uint64_t" | b"int64_t" | b"auto" | b"bool" | b"*" | b"short" | b"char" => return false,
            _ => {}
        }
    }
    narrow
}

/// `(unsigned)__ballot_sync(…)` and `static_cast<int>(__ballot_sync(…))`.
fn cast(view: &View<'_, '_>, i: usize, found: &mut Vec<Hazard>) {
    let code = view.code;
    let (first, words, operand) = if code.is(i, b"(") {
        let Some(close) = code.partner(i).filter(|close| *close <= i + 3 && *close > i + 1) else { return };
        let call = i > 0 && code.is_name(i - 1) && !code.is(i - 1, b"return");
        if call || code.is(close + 1, b")") {
            return;
        }
        (i, i + 1..close, close + 1)
    } else if code.is(i, b"static_cast") && code.is(i + 1, b"<") {
        let Some(close) = (i + 2..i + 6).find(|k| code.is(*k, b">")) else { return };
        (i, i + 2..close, close + 1)
    } else if is_type_word(code.text(i)) && code.is(i + 1, b"(") && !(i > 0 && is_type_word(code.text(i - 1))) {
        (i, i..i + 1, i + 1)
    } else {
        return;
    };
    if !words.clone().all(|k| is_type_word(code.text(k))) || !is_narrow_type(words.map(|k| code.text(k))) {
        return;
    }
    if matches!(view.flow.operand_beginning(operand), Value::Mask) {
        // The result may be reported already where it is stored.
        let span = code.span(first, operand);
        if found.last().is_some_and(|last| last.diagnostic.code == 203 && last.diagnostic.end > span.0) {
            return;
        }
        let mut hazard = stored_hazard();
        (hazard.diagnostic.start, hazard.diagnostic.end) = span;
        found.push(hazard);
    }
}

/// `__popc(__ballot_sync(…))`.
fn counted(view: &View<'_, '_>, at: usize, widened: &HashSet<usize>, found: &mut Vec<Hazard>) {
    let code = view.code;
    let Some(close) = code.partner(at + 1).filter(|_| code.is(at + 1, b"(")) else { return };
    let Some(argument) = code.arguments(at + 1).into_iter().next() else { return };
    if !matches!(view.flow.value(argument.clone()), Value::Mask | Value::LaneBits) {
        return;
    }
    let name = String::from_utf8_lossy(code.text(at));
    let mut hazard = hazard(
        204,
        Severity::Error,
        code.span(at, close),
        format!("`{name}` takes 32 bits of a lane mask that has 64 on wave64"),
        "use the 64-bit form: `__popcll`, `__ffsll`, `__brevll`, or `__clzll` (`31 - __clz(m)` becomes `63 - __clzll(m)`)",
    );
    // Sign extension would set the upper half.
    let free = is_width_free(code, argument.clone());
    let signed = argument.take(REACH).filter(|i| code.is_name(*i)).any(|i| {
        view.flow.variable(code.text(i), i).is_some_and(|variable| {
            let mask = matches!(variable.value, Value::Mask | Value::LaneBits);
            mask && variable.width == Width::Signed32 && !variable.type_at.is_some_and(|type_at| widened.contains(&type_at))
        })
    });
    let span = code.span(at, at);
    hazard.fix = match code.text(at) {
        _ if signed || !free => None,
        b"__popc" => Some(vec![edit(span, "__popcll")]),
        b"__ffs" => Some(vec![edit(span, "__ffsll")]),
        // Only the index of the highest lane has the same meaning in both widths.
        b"__clz" if at >= 2 && code.is(at - 1, b"-") && code.number(at - 2) == Some(31) && is_first(code, at - 2) => {
            Some(vec![edit(code.span(at - 2, at - 2), "63"), edit(span, "__clzll")])
        }
        _ => None,
    };
    found.push(hazard);
}

/// Whether a summand is the first of its expression.
fn is_first(code: &Code<'_>, i: usize) -> bool {
    i > 0 && matches!(code.text(i - 1), b"=" | b"(" | b"," | b"return" | b"[" | b"?" | b":")
}

/// `1u << lane`, `0xffffffffu >> (31 - lane)`.
fn shifted(view: &View<'_, '_>, operator: usize, right: usize, found: &mut Vec<Hazard>) {
    let code = view.code;
    let Some(left) = operator.checked_sub(1).filter(|left| code.kind(*left, Kind::Number)) else { return };
    if view.facts.segmented || code.text(left).iter().any(|b| matches!(b, b'l' | b'L')) {
        return;
    }
    let value = code.number(left);
    let up = code.is(operator, b"<<");
    let bits = match value {
        Some(1 | 2) => up,
        Some(0xffff_ffff) => true,
        Some(0) => left > 0 && code.is(left - 1, b"~"),
        _ => false,
    };
    if !bits || view.flow.operand_beginning(right) != Value::Lane {
        return;
    }
    let end = code.partner(right).filter(|_| code.is(right, b"(")).unwrap_or(right);
    let first = if value == Some(0) { left - 1 } else { left };
    let mut hazard = hazard(
        205,
        Severity::Error,
        code.span(first, end),
        "32-bit shift by a lane index; lane indices of a wave64 go up to 63",
        "shift `1ull`, and store the result as `unsigned long long`",
    );
    if value == Some(1) {
        let literal = edit(code.span(left, left), "1ull");
        if in_count(code, left) {
            hazard.fix = Some(vec![literal]);
        } else if let Some(mut edits) = declared(view, left) {
            edits.push(literal);
            hazard.fix = Some(edits);
        }
    }
    found.push(hazard);
}

/// For `unsigned m = (1u << lane) - 1;`, the edit of the declaration.
fn declared(view: &View<'_, '_>, left: usize) -> Option<Vec<Edit>> {
    let code = view.code;
    let start = code.statement_start(left);
    // Only `1u << lane` and `(1u << lane) - 1`: other sums may mix widths.
    let mut equals = left.checked_sub(1)?;
    while equals > start && code.is(equals, b"(") {
        equals -= 1;
    }
    if !code.is(equals, b"=") || equals == 0 {
        return None;
    }
    let variable = view.flow.variable(code.text(equals - 1), equals)?;
    let end = expression_end(code, equals + 1, view.unit.body.end);
    let tail_is_plain = (left..end).all(|i| !matches!(code.text(i), b"|" | b"&" | b"^" | b"~" | b"?"));
    if variable.width != Width::Unsigned32 || !code.is(end, b";") || !tail_is_plain {
        return None;
    }
    widen(view, variable.type_at, equals - 1, end)
}

/// `__ballot_sync(…) == 0xffffffff`.
fn compared(view: &View<'_, '_>, at: usize, constants: &mut Constants<'_>, found: &mut Vec<Hazard>) {
    let code = view.code;
    let Some(left) = at.checked_sub(1) else { return };
    let full = |range: Range<usize>| {
        let texts: Vec<&[u8]> = range.clone().map(|i| code.text(i)).collect();
        full_mask(&texts) || range.len() == 1 && code.is_name(range.start) && constants.is_full_mask(texts[0])
    };
    let right_end = expression_end(code, at + 1, at + 4);
    let right_full = (at + 2..=right_end.min(at + 3)).any(|end| full(at + 1..end));
    let left_full = full(left..at) || left > 0 && full(left - 1..at);
    let mask = right_full && view.flow.operand_ending(left) == Some(Value::Mask)
        || left_full && view.flow.operand_beginning(at + 1) == Value::Mask;
    if mask {
        found.push(hazard(
            206,
            Severity::Error,
            code.span(left, right_end.saturating_sub(1).max(at + 1)),
            "lane mask compared with a 32-bit full mask; the mask of a full wave64 has 64 bits set",
            "use `__all_sync`, or compare with `__activemask()`",
        ));
    }
}
