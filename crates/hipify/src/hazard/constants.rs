//! Constants for a full mask (0201) and the warp size (0208), reported at their definitions, and `warpSize` used as a compile-time
//! constant (0209).

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::code::{Code, REACH, Unit, contains, parse};
use super::flow::is_type_word;
use super::{Hazard, edit, hazard};
use crate::diagnostic::Severity;
use crate::lex::{Kind, Lexed};

/// A name that is defined as a full mask.
struct FullMask {
    /// The function it is in.
    unit: Option<usize>,
    /// The tokens of the source in which its uses are counted.
    scope: Range<usize>,
    /// From name to value.
    span: (u32, u32),
    /// The span of its value.
    value: (u32, u32),
    /// The span of its type, if a fix must change that too.
    kind: Option<(u32, u32)>,
    /// Whether the definition has a form that can be changed.
    simple: bool,
    /// The number of uses as a mask.
    uses: usize,
}

/// The constants of a file.
#[derive(Default)]
pub struct Constants<'a> {
    masks: HashMap<&'a [u8], Vec<FullMask>>,
    /// Names with another value in another branch of an `#if`.
    not_masks: HashSet<&'a [u8]>,
    /// Warp size constants, with their spans.
    sizes: HashMap<&'a [u8], Vec<(u32, u32)>>,
    not_sizes: HashSet<&'a [u8]>,
    /// The file uses the built-in `warpSize`.
    pub whole_waves: bool,
}

impl<'a> Constants<'a> {
    /// Collects the definitions of a file.
    pub fn new(lexed: &Lexed<'a>, code: &Code<'a>, units: &[Unit<'a>]) -> Constants<'a> {
        let mut constants = Constants::default();
        for i in 0..lexed.tokens.len() {
            if !lexed.tokens[i].in_directive || !lexed.is(i, b"define") || !lexed.tokens.get(i + 2).is_some_and(|t| t.in_directive) {
                continue;
            }
            let mut texts: Vec<&[u8]> = Vec::with_capacity(6);
            let mut last = i + 1;
            while texts.len() < 7 && lexed.tokens.get(last + 1).is_some_and(|t| t.in_directive && lexed.text(last + 1) != b"#") {
                last += 1;
                texts.push(lexed.text(last));
            }
            let start = lexed.tokens[i + 1].start;
            let value = (lexed.tokens[i + 2].start, lexed.tokens[last].end);
            let definition =
                FullMask { unit: None, scope: 0..lexed.tokens.len(), span: (start, value.1), value, kind: None, simple: true, uses: 0 };
            constants.define(lexed.text(i + 1), &texts, definition);
        }
        for i in 1..code.len() {
            constants.whole_waves |= code.is(i, b"warpSize") && !code.is(i - 1, b".") && !code.is(i - 1, b"->");
            if !(code.is(i, b"=") || code.is(i, b"{")) || !code.is_name(i - 1) {
                continue;
            }
            // Other values matter only for names that mention warps.
            let number = code.kind(i + 1, Kind::Number) || matches!(code.text(i + 1), b"-" | b"~" | b"(" | b"UINT_MAX");
            if !number && !mentions_warps(code.text(i - 1)) {
                continue;
            }
            // The `)` of a parameter list also ends a value.
            let ends = |k: usize| match code.text(k) {
                b";" | b"," | b"}" | b">" | b"" => true,
                b")" => code.partner(k).is_none_or(|open| open < i),
                _ => false,
            };
            let Some(stop) = (i + 1..i + 8).find(|k| ends(*k)).filter(|stop| *stop > i + 1) else { continue };
            let name = code.text(i - 1);
            let texts: Vec<&[u8]> = (i + 1..stop).map(|k| code.text(k)).collect();
            let number = units.partition_point(|unit| unit.body.end <= i);
            let unit = units.get(number).filter(|unit| unit.head.start <= i).map(|_| number);
            let scope = unit.map_or(0..lexed.tokens.len(), |n| {
                code.token(units[n].head.start)..code.token(units[n].body.end.saturating_sub(1)).saturating_add(1)
            });
            let mut first = i - 1;
            while first > 0 && i - first < 8 && is_type_word(code.text(first - 1)) {
                first -= 1;
            }
            let qualifiers = (first..i - 1).take_while(|k| matches!(code.text(*k), b"const" | b"constexpr" | b"volatile")).count();
            let typed = first + qualifiers < i - 1;
            let automatic = typed && code.is(i - 2, b"auto");
            let definition = FullMask {
                unit,
                scope,
                span: code.span(i - 1, stop - 1),
                value: code.span(i + 1, stop - 1),
                kind: (typed && !automatic).then(|| code.span(first + qualifiers, i - 2)),
                simple: typed && code.is(i, b"=") && code.is(stop, b";"),
                uses: 0,
            };
            constants.define(name, &texts, definition);
        }
        constants
    }

    fn define(&mut self, name: &'a [u8], value: &[&[u8]], definition: FullMask) {
        if let Some(literal) = single(value)
            && sizes_a_warp(name).contains(&literal)
        {
            self.sizes.entry(name).or_default().push(definition.span);
            return;
        }
        if mentions_warps(name) {
            self.not_sizes.insert(name);
        }
        if full_mask(value) {
            self.masks.entry(name).or_default().push(definition);
        } else if definition.unit.is_none() && mentions_warps(name) {
            self.not_masks.insert(name);
        }
    }

    /// Whether the file defines this name as a warp size of 32.
    pub fn is_warp_size(&self, name: &[u8]) -> bool {
        self.sizes.contains_key(name) && !self.not_sizes.contains(name)
    }

    /// Records the use of a name as a mask. Returns whether it is a 32-bit full mask.
    pub fn use_mask(&mut self, name: &[u8], unit: Option<usize>) -> bool {
        let Some(all) = self.masks.get_mut(name) else { return false };
        let mut any = false;
        for mask in all.iter_mut().take(REACH) {
            if mask.unit.is_none() || mask.unit == unit {
                mask.uses += 1;
                any = true;
            }
        }
        any
    }

    /// Whether this name is a 32-bit full mask.
    pub fn is_full_mask(&self, name: &[u8]) -> bool {
        self.masks.contains_key(name)
    }

    /// Reports the definitions.
    pub fn report(&self, lexed: &Lexed<'_>, found: &mut Vec<Hazard>) {
        for (name, places) in &self.sizes {
            if self.not_sizes.contains(name) {
                continue;
            }
            for place in places {
                let text = String::from_utf8_lossy(name);
                found.push(hazard(
                    208,
                    Severity::Warning,
                    *place,
                    format!("`{text}` defines the warp size as 32; AMD wavefronts can have 64 lanes"),
                    "define it per architecture (64 on GCN and CDNA), or use `warpSize`; if it is the size of a smaller group, rename it",
                ));
            }
        }
        let mut counts: HashMap<&[u8], Vec<usize>> = HashMap::new();
        if self.masks.values().flatten().any(|mask| mask.uses > 0) {
            for i in 0..lexed.tokens.len() {
                if let Some((name, _)) = self.masks.get_key_value(lexed.text(i)) {
                    counts.entry(name).or_default().push(i);
                }
            }
        }
        for (name, masks) in &self.masks {
            if self.not_masks.contains(name) {
                continue;
            }
            for mask in masks {
                let named = mask.unit.is_none() && contains(name, b"mask") && (contains(name, b"full") || contains(name, b"warp"));
                if mask.uses == 0 && !named {
                    continue;
                }
                let text = String::from_utf8_lossy(name);
                let mut hazard = hazard(
                    201,
                    Severity::Error,
                    mask.span,
                    format!("full mask `{text}` has 32 bits, half of a wave64; HIP requires a 64-bit mask"),
                    super::masks::FULL_HELP,
                );
                let seen = counts.get(name).map_or(0, |places| {
                    places.partition_point(|at| *at < mask.scope.end) - places.partition_point(|at| *at < mask.scope.start)
                });
                if mask.simple && mask.uses > 0 && masks.len() == 1 && seen == mask.uses + 1 {
                    let mut edits = vec![edit(mask.value, "~0ull")];
                    edits.extend(mask.kind.map(|kind| edit(kind, "unsigned long long")));
                    hazard.fix = Some(edits);
                }
                found.push(hazard);
            }
        }
        directives(lexed, found);
    }
}

/// Whether a name may be a warp size or mask.
fn mentions_warps(name: &[u8]) -> bool {
    contains(name, b"warp") || contains(name, b"lane") || contains(name, b"mask")
}

/// A number, possibly in parentheses.
fn single(value: &[&[u8]]) -> Option<u64> {
    match value {
        [number] | [b"(", number, b")"] => parse(number),
        _ => None,
    }
}

/// Whether these tokens are a 32-bit full mask.
pub fn full_mask(value: &[&[u8]]) -> bool {
    let narrow = |number: &[u8]| !number.iter().any(|b| matches!(b, b'l' | b'L'));
    match value {
        [b"UINT_MAX"] => true,
        [number] => parse(number) == Some(0xffff_ffff),
        [b"-", number] => parse(number) == Some(1) && narrow(number),
        [b"~", number] => parse(number) == Some(0) && narrow(number),
        [b"(", inner @ .., b")"] if !inner.contains(&b")".as_slice()) => full_mask(inner),
        [b"(", b"unsigned" | b"int" | b"uint32_t" | b"uint", b")", rest @ ..] => full_mask(rest),
        [b"(", b"unsigned", b"int", b")", rest @ ..] => full_mask(rest),
        [b"unsigned" | b"uint32_t" | b"uint", b"(", inner @ .., b")"] => full_mask(inner),
        [b"static_cast", b"<", b"unsigned" | b"uint32_t" | b"uint", b">", b"(", inner @ .., b")"] => full_mask(inner),
        _ => false,
    }
}

/// The values of this name that imply a warp size of 32.
fn sizes_a_warp(name: &[u8]) -> &'static [u64] {
    if !contains(name, b"warp") && !contains(name, b"lane") {
        return &[];
    }
    let bare: Vec<u8> = name.iter().filter(|b| **b != b'_').map(u8::to_ascii_lowercase).collect();
    let has = |word: &[u8]| contains(&bare, word);
    match bare.as_slice() {
        b"warp" | b"kwarp" | b"numlanes" | b"knumlanes" | b"lanes" | b"nlanes" => &[32],
        _ if has(b"warps") && !has(b"warpsize") && !has(b"warpsz") && !has(b"warpshift") => &[],
        _ if has(b"log") || has(b"shift") || has(b"bits") => &[5],
        _ if has(b"mask") => &[31],
        _ if has(b"warpsize") || has(b"warpsz") || has(b"warpthreads") || has(b"perwarp") && (has(b"threads") || has(b"lanes")) => &[32],
        _ if has(b"warpwidth") || has(b"warplanes") || has(b"sizeofwarp") => &[32],
        _ => &[],
    }
}

const CONSTANT_MESSAGE: &str = "`warpSize` is not a compile-time constant: its value is known only when the kernel runs";
const CONSTANT_HELP: &str = "use a template parameter or a macro set for the device, or size arrays for 64 lanes";

/// `#if warpSize == 32`.
fn directives(lexed: &Lexed<'_>, found: &mut Vec<Hazard>) {
    let mut condition = false;
    for (i, token) in lexed.tokens.iter().enumerate().filter(|(_, token)| token.in_directive) {
        match lexed.text(i) {
            b"#" => condition = false,
            b"if" | b"elif" => condition = true,
            b"warpSize" if condition => {
                found.push(hazard(
                    209,
                    Severity::Error,
                    (token.start, token.end),
                    "`warpSize` is not a macro; `#if` evaluates it as 0",
                    CONSTANT_HELP,
                ));
            }
            _ => {}
        }
    }
}

/// Finds `warpSize` where a constant expression is required.
pub fn compile_time(code: &Code<'_>, constants: &Constants<'_>, found: &mut Vec<Hazard>) {
    const NAME: &[u8] = b"warpSize";
    if constants.sizes.contains_key(NAME) || constants.not_sizes.contains(NAME) {
        return;
    }
    for i in 0..code.len() {
        if code.is(i, NAME) && !code.before(i, b".") && !code.before(i, b"->") && needs_constant(code, i) {
            found.push(hazard(209, Severity::Error, code.span(i, i), CONSTANT_MESSAGE, CONSTANT_HELP));
        }
    }
}

fn needs_constant(code: &Code<'_>, i: usize) -> bool {
    if code.before(i, b"case") {
        return true;
    }
    // A template argument: `f<warpSize>`, `f<warpSize, 4>(…)`.
    if i >= 2 && code.is(i - 1, b"<") && code.is_name(i - 2) {
        let closes = (i + 1..i + 9).take_while(|k| !matches!(code.text(*k), b";" | b")" | b"&&" | b"||")).find(|k| code.is(*k, b">"));
        if closes.is_some_and(|k| code.is(i + 1, b">") || code.is(k + 1, b"(") || code.is_name(k + 1)) {
            return true;
        }
    }
    let mut inner = i;
    for _ in 0..8 {
        let Some(open) = code.parent(inner) else { break };
        if code.is(open, b"{") {
            break;
        }
        if code.is(open, b"(") && open > 0 && matches!(code.text(open - 1), b"static_assert" | b"constexpr") {
            return true;
        }
        if code.is(open, b"[") && open >= 2 && code.is_name(open - 1) {
            // `T name[…]`: a declaration, as opposed to `name[…]` in an expression.
            let before = open - 2;
            let declares = code.is_name(before) && !matches!(code.text(before), b"return" | b"else" | b"do") || code.is(before, b">");
            return declares && !code.is(open - 1, b"return");
        }
        inner = open;
    }
    let start = code.statement_start(i);
    (start..i).take(REACH).any(|k| code.is(k, b"constexpr") && !code.is(k + 1, b"("))
}
