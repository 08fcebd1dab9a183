//! Data flow in one function: which variables hold thread indices, lanes, warp indices, lane masks, or data.
//!
//! Assignments are followed in source order. A value is a lane only if it is derived from `threadIdx.x` (or from a parameter or call with
//! such a name) by an operation that preserves lanes; values that are scaled, loaded or incremented by a loop are data. This separates
//! the 32 of bit sets and quantized blocks from the 32 of a warp.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;

use super::code::{Code, REACH, Unit, contains};
use super::warp::{self, Op};

/// The meaning of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// Anything else.
    Data,
    /// A thread's index in its block.
    Thread,
    /// A thread's index in the grid.
    Global,
    /// A lane of a warp.
    Lane,
    /// The low five bits of a grid index: a lane, or a bit of a word.
    GlobalLane,
    /// A warp index.
    Warp,
    /// A lane mask: the result of a ballot.
    Mask,
    /// A lane mask made by shifting.
    LaneBits,
    /// A group of `coalesced_threads()`.
    Coalesced,
}

/// A declared width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// 32 bits or fewer, signed.
    Signed32,
    /// 32 bits or fewer, unsigned.
    Unsigned32,
    /// `bool`, to which a mask converts without loss.
    Bool,
    /// 64 bits, `auto`, or an unknown type.
    Other,
}

/// What is known of a variable from one position on.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// The position.
    pub at: usize,
    /// Its meaning.
    pub value: Value,
    /// Its width.
    pub width: Width,
    /// The first token of its type, if this is a declaration.
    pub type_at: Option<usize>,
}

/// The variables of a function.
pub struct Flow<'c, 'a> {
    code: &'c Code<'a>,
    types: &'c Types<'a>,
    variables: HashMap<&'a [u8], Vec<Variable>>,
    /// The recursion depth of [`Flow::value`].
    depth: Cell<usize>,
}

/// Types of 32 bits that a file declares outside of functions.
#[derive(Default)]
pub struct Types<'a> {
    /// Class members, by name; `Other` if two disagree.
    members: HashMap<&'a [u8], Width>,
    /// Type aliases.
    aliases: HashMap<&'a [u8], Width>,
}

impl<'a> Types<'a> {
    /// Reads the declarations outside of functions.
    pub fn new(code: &Code<'a>, units: &[Unit<'a>]) -> Types<'a> {
        let mut types = Types::default();
        let mut from = 0;
        for to in units.iter().map(|unit| unit.head.start).chain([code.len()]) {
            let mut i = from;
            while i < to {
                if code.is(i, b"using") && code.is(i + 2, b"=") {
                    if let Some((end, width)) = type_words(code, i + 3)
                        && code.is(end, b";")
                    {
                        types.aliases.insert(code.text(i + 1), width);
                    }
                    i += 3;
                } else if let Some((name, width)) = declaration(code, i) {
                    if code.before(i, b"typedef") {
                        types.aliases.insert(code.text(name), width);
                    } else {
                        types.member(code, name, width, to);
                    }
                    i = name;
                }
                i += 1;
            }
            from = units.get(units.partition_point(|unit| unit.head.start < to)).map_or(code.len(), |unit| unit.body.end);
        }
        types
    }

    /// Adds a member and those after its commas.
    fn member(&mut self, code: &Code<'a>, mut name: usize, width: Width, to: usize) {
        while name < to && code.is_name(name) {
            let known = self.members.entry(code.text(name)).or_insert(width);
            if *known != width {
                *known = Width::Other;
            }
            if !code.is(name + 1, b",") || code.parent(name).is_some_and(|open| code.is(open, b"(")) {
                return;
            }
            name += 2;
        }
    }

    /// The width of a member of this name.
    pub fn member_width(&self, name: &[u8]) -> Width {
        self.members.get(name).copied().unwrap_or(Width::Other)
    }
}

impl<'c, 'a> Flow<'c, 'a> {
    /// Follows the assignments of a function. `device`: parameter names are trusted.
    pub fn new(code: &'c Code<'a>, types: &'c Types<'a>, unit: &Unit<'a>, device: bool) -> Flow<'c, 'a> {
        let mut flow = Flow { code, types, variables: HashMap::new(), depth: Cell::new(0) };
        flow.walk(unit.head.clone(), device);
        flow.walk(unit.body.clone(), false);
        flow
    }

    /// Returns what is known of a name at `at`.
    pub fn variable(&self, name: &[u8], at: usize) -> Option<&Variable> {
        self.variables.get(name)?.iter().rev().take(REACH).find(|variable| variable.at <= at)
    }

    fn walk(&mut self, range: Range<usize>, parameters: bool) {
        let code = self.code;
        let mut i = range.start;
        // Incremented loop variables become data after the loop's header.
        let mut stepped: Vec<(usize, &'a [u8])> = Vec::new();
        while i < range.end {
            while let Some((_, name)) = stepped.pop_if(|(end, _)| i >= *end) {
                self.learn(name, i, Value::Data, None, None);
            }
            let text = code.text(i);
            if text == b"for" && code.is(i + 1, b"(") {
                if let Some((name, end)) = self.stepped(i + 1) {
                    stepped.push((end, name));
                }
            } else if let Some((name_at, width)) = declaration(code, i) {
                let name = code.text(name_at);
                let value = if parameters { by_name(name) } else { Value::Data };
                self.learn(name, name_at, value, Some(width), Some(i));
                i = name_at;
                continue;
            } else if code.is(i + 1, b"=") && code.is_name(i) && !code.before(i, b".") && !code.before(i, b"->") {
                let end = expression_end(code, i + 2, range.end);
                let mut value = self.value(i + 2..end);
                // A block of one warp: the thread index is the lane, if the name says so.
                if value == Value::Thread && contains(text, b"lane") {
                    value = Value::Lane;
                } else if value == Value::GlobalLane {
                    value = if contains(text, b"lane") { Value::Lane } else { Value::Data };
                }
                let declared = i > 0 && (code.is_name(i - 1) || code.is(i - 1, b">")) && !code.before(i, b"return");
                let known = self.variables.get(text).and_then(|all| all.last()).map(|v| (v.width, v.type_at, v.at));
                let (width, type_at) = match known {
                    Some((width, type_at, at)) if at == i || !declared => (width, type_at),
                    _ if declared => (self.types.aliases.get(code.text(i - 1)).copied().unwrap_or(Width::Other), None),
                    _ => (Width::Other, None),
                };
                // An explicitly narrowed mask is reported there and is not a mask from here on.
                let narrowed = width == Width::Other && begins_with_cast(code, i + 2);
                if value == Value::Mask && (width == Width::Bool || narrowed) {
                    value = Value::Data;
                }
                self.learn(text, i + 2, value, Some(width), type_at);
            }
            i += 1;
        }
    }

    fn learn(&mut self, name: &'a [u8], at: usize, value: Value, width: Option<Width>, type_at: Option<usize>) {
        let all = self.variables.entry(name).or_default();
        let width = width.or_else(|| all.last().map(|last| last.width)).unwrap_or(Width::Other);
        all.push(Variable { at, value, width, type_at });
    }

    /// The variable that the `for` header at `open` increments, and the end of the header's first part.
    fn stepped(&self, open: usize) -> Option<(&'a [u8], usize)> {
        let code = self.code;
        let close = code.partner(open)?;
        let first = (open..close.min(open + REACH)).find(|k| code.is(*k, b";"))?;
        let step = (first + 1..close.min(first + REACH)).find(|k| code.is(*k, b";"))?;
        let mut k = step + 1;
        while k < close {
            let adds = code.is(k + 1, b"+=") || code.is(k + 1, b"++") || code.is(k + 1, b"=") || code.before(k, b"++");
            if code.is_name(k) && adds {
                return Some((code.text(k), first));
            }
            k += 1;
        }
        None
    }

    /// The meaning of the name or `threadIdx.x` that ends at `i`; `None` if `i` is neither.
    pub fn operand_ending(&self, i: usize) -> Option<Value> {
        let code = self.code;
        if code.is(i, b")") {
            let open = code.partner(i)?;
            let call = open > 0 && code.is_name(open - 1) && !is_type_word(code.text(open - 1));
            return Some(if call { self.value(open - 1..i + 1) } else { self.value(open + 1..i) });
        }
        if !code.is_name(i) {
            return None;
        }
        if i >= 2 && code.is(i - 1, b".") {
            return Some(if code.is(i, b"x") && code.is(i - 2, b"threadIdx") { Value::Thread } else { Value::Data });
        }
        Some(self.variable(code.text(i), i).map_or(Value::Data, |variable| variable.value))
    }

    /// The meaning of the operand that starts at `i`.
    pub fn operand_beginning(&self, i: usize) -> Value {
        let code = self.code;
        match code.partner(i) {
            Some(close) if code.is(i, b"(") => self.value(i + 1..close),
            _ if code.is(i, b"threadIdx") && code.is(i + 2, b"x") => Value::Thread,
            _ if code.is_name(i) && code.is(i + 1, b"(") => self.value(i..code.partner(i + 1).map_or(i + 1, |close| close + 1)),
            _ if code.is_name(i) && !code.is(i + 1, b"[") && !code.is(i + 1, b".") => {
                self.variable(code.text(i), i).map_or(Value::Data, |variable| variable.value)
            }
            _ => Value::Data,
        }
    }

    /// The meaning of an expression; data if it is nested too deeply.
    pub fn value(&self, range: Range<usize>) -> Value {
        const DEEPEST: usize = 8;
        if self.depth.get() >= DEEPEST {
            return Value::Data;
        }
        self.depth.set(self.depth.get() + 1);
        let value = self.value_of(range);
        self.depth.set(self.depth.get() - 1);
        value
    }

    fn value_of(&self, range: Range<usize>) -> Value {
        let code = self.code;
        let end = range.end.min(range.start.saturating_add(REACH)).min(code.len());
        let (mut thread, mut global, mut scaled_warp) = (false, false, false);
        let mut found = Value::Data;
        let mut i = range.start;
        while i < end {
            let text = code.text(i);
            match text {
                b"[" => i = code.partner(i).unwrap_or(i).max(i),
                b"(" if is_scaled(code, i) => i = code.partner(i).unwrap_or(i).max(i),
                b"?" | b"==" | b"!=" | b"<=" | b"&&" | b"||" | b"!" | b"<" => return Value::Data,
                b">" if code.shift_right(i) => {
                    match code.number(i + 2) {
                        Some(5) => found = warp_of(found, thread),
                        _ if matches!(found, Value::Mask | Value::LaneBits) => {}
                        _ if contains(code.text(i + 2), b"warp") => found = warp_of(found, thread),
                        _ => return Value::Data,
                    }
                    i += 2;
                }
                b">" => return Value::Data,
                b"<<" => {
                    let one = i > 0 && matches!(code.number(i - 1), Some(1 | 2 | 0xffff_ffff));
                    if one && matches!(self.operand_beginning(i + 1), Value::Lane) {
                        found = if found == Value::Mask { found } else { Value::LaneBits };
                        i = code.partner(i + 1).unwrap_or(i + 1).max(i + 1);
                    } else if found != Value::Mask && found != Value::LaneBits {
                        return Value::Data;
                    }
                }
                b"%" | b"&" | b"/" => {
                    let next = i + 1;
                    let size = code.is(next, b"warpSize") || contains(code.text(next), b"warp") || warp_size_less_one(code, next);
                    let literal = code.number(next);
                    let warps = text == b"/" && (size || literal == Some(32));
                    let lanes = text == b"%" && (size || literal == Some(32)) || text == b"&" && (size || literal == Some(31));
                    match found {
                        // One bit of a mask is not a mask.
                        Value::Mask | Value::LaneBits if text == b"&" && literal == Some(1) => return Value::Data,
                        Value::Mask | Value::LaneBits => {}
                        _ if warps => found = warp_of(found, thread),
                        _ if lanes && global => found = Value::GlobalLane,
                        _ if lanes && thread => found = Value::Lane,
                        Value::Lane if lanes => {}
                        Value::Data if !thread => {}
                        _ => return Value::Data,
                    }
                    if warps || lanes {
                        i += 1;
                    }
                }
                b"threadIdx" if code.is(i + 2, b"x") => {
                    if !times(code, i, i + 3) {
                        thread = true;
                        found = wider(found, Value::Thread);
                    }
                    i += 2;
                }
                b"threadIdx" => i += 2,
                b"blockIdx" => {
                    global = true;
                    i += 2;
                }
                b"lane_id" | b"laneid" if code.is(i + 1, b"(") => found = wider(found, Value::Lane),
                b"coalesced_threads" => return Value::Coalesced,
                _ if code.is_name(i) && code.is(i + 1, b"(") && !is_type_word(text) => {
                    match warp::op(text) {
                        Some(Op::Ballot | Op::Match | Op::ActiveMask) => found = Value::Mask,
                        // The broadcast of a lane or warp index keeps its meaning.
                        Some(Op::Shuffle | Op::Shift | Op::Butterfly) => {
                            let masked = usize::from(text.ends_with(b"_sync"));
                            let argument = code.arguments(i + 1).into_iter().nth(masked).unwrap_or(i..i);
                            found = wider(found, self.value(argument));
                        }
                        Some(_) => {}
                        None if matches!(text, b"min" | b"max" | b"size_t") => {
                            i += 1;
                            continue;
                        }
                        // The rank in a block is a thread index; in a tile it is safe.
                        None if text == b"thread_rank" && ranks_a_block(code, i) => {
                            thread = true;
                            found = wider(found, Value::Thread);
                        }
                        None if (code.before(i, b".") || code.before(i, b"->")) && !code.before(i, b"::") => {}
                        // A wrapper of `__ballot_sync`.
                        None if contains(text, b"ballot") => found = Value::Mask,
                        None if contains(text, b"lane") && !contains(text, b"mask") => found = wider(found, Value::Lane),
                        None => {}
                    }
                    i = code.partner(i + 1).unwrap_or(i + 1).max(i + 1);
                }
                _ if text.ends_with(b"_cast") && code.is(i + 1, b"<") => {
                    i = (i + 1..end.min(i + 12)).find(|k| code.is(*k, b">")).unwrap_or(i + 1);
                }
                _ if code.is_name(i) && !code.before(i, b".") && !code.before(i, b"->") => {
                    if let Some(variable) = self.variable(text, i) {
                        let value = variable.value;
                        if times(code, i, i + 1) {
                            scaled_warp |= value == Value::Warp;
                        } else if value == Value::Mask || value == Value::LaneBits {
                            found = if found == Value::Mask { found } else { value };
                        } else if value != Value::Data {
                            thread |= matches!(value, Value::Thread | Value::Global);
                            global |= value == Value::Global;
                            found = wider(found, value);
                        }
                    }
                }
                _ => {}
            }
            i += 1;
        }
        match found {
            Value::Thread if global => Value::Global,
            Value::Lane if scaled_warp => Value::Thread,
            _ => found,
        }
    }
}

/// Whether `i` is a member of a thread-block group.
fn ranks_a_block(code: &Code<'_>, i: usize) -> bool {
    let mut group = i.saturating_sub(2);
    // `this_thread_block().thread_rank()`.
    if code.is(group, b")") {
        group = code.partner(group).unwrap_or(group).saturating_sub(1);
    }
    contains(code.text(group), b"block") || contains(code.text(group), b"cta")
}

/// `(unsigned)…` or `static_cast<unsigned>(…)`.
fn begins_with_cast(code: &Code<'_>, i: usize) -> bool {
    let word = if code.is(i, b"(") { i + 1 } else { i + 2 };
    let cast = code.is(i, b"(") || code.is(i, b"static_cast");
    cast && matches!(code.text(word), b"unsigned" | b"int" | b"uint32_t" | b"int32_t" | b"uint") && !code.is(word + 1, b"long")
}

/// The meaning of a parameter by its name.
fn by_name(name: &[u8]) -> Value {
    const TIDS: &[&[u8]] = &[b"tid", b"thread_id", b"threadid", b"thread_idx"];
    let bare: Vec<u8> = name.iter().filter(|b| **b != b'_').map(u8::to_ascii_lowercase).collect();
    match bare.as_slice() {
        b"lane" | b"laneid" | b"laneidx" | b"warplane" | b"mylane" => Value::Lane,
        b"warp" | b"warpid" | b"warpidx" | b"wid" => Value::Warp,
        b"ballot" | b"votes" | b"lanemask" | b"activemask" => Value::Mask,
        _ if TIDS.iter().any(|tid| name.eq_ignore_ascii_case(tid)) => Value::Thread,
        _ => Value::Data,
    }
}

fn warp_of(found: Value, thread: bool) -> Value {
    if thread || matches!(found, Value::Thread | Value::Global) { Value::Warp } else { found }
}

/// The more specific meaning of two summands.
fn wider(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Data, other) | (other, Value::Data) => other,
        (Value::Mask, _) | (_, Value::Mask) => Value::Mask,
        (Value::Lane, Value::Warp) | (Value::Warp, Value::Lane) => Value::Thread,
        (a, _) => a,
    }
}

/// Whether the operand `first..end` is multiplied or shifted left.
fn times(code: &Code<'_>, first: usize, end: usize) -> bool {
    let before = first >= 2 && code.is(first - 1, b"*") && !is_type_word(code.text(first - 2)) || code.before(first, b"<<");
    before || code.is(end, b"*") || code.is(end, b"<<")
}

/// Whether a parenthesized group is a factor.
fn is_scaled(code: &Code<'_>, open: usize) -> bool {
    code.partner(open).is_some_and(|close| times(code, open, close + 1))
}

/// Whether it is `(warpSize - 1)` or the like.
fn warp_size_less_one(code: &Code<'_>, open: usize) -> bool {
    code.is(open, b"(") && contains(code.text(open + 1), b"warp") && code.is(open + 2, b"-") && code.number(open + 3) == Some(1)
}

/// The end of an expression: its `;`, a `,`, or the bracket around it.
pub fn expression_end(code: &Code<'_>, from: usize, limit: usize) -> usize {
    let limit = limit.min(from.saturating_add(REACH));
    let mut i = from;
    while i < limit {
        match code.text(i) {
            b"(" | b"[" | b"{" => i = code.partner(i).unwrap_or(i).max(i),
            b";" | b"," | b")" | b"]" | b"}" => return i,
            _ => {}
        }
        i += 1;
    }
    limit
}

/// Whether a word is part of a built-in type.
pub fn is_type_word(word: &[u8]) -> bool {
    matches!(
        word,
        b"unsigned"
            | b"signed"
            | b"int"
            | b"long"
            | b"short"
            | b"char"
            | b"bool"
            | b"auto"
            | b"const"
            | b"volatile"
            | b"float"
            | b"double"
            | b"uint"
            | b"size_t"
            | b"constexpr"
            | b"register"
            | b"uint32_t"
            | b"int32_t"
            | b"uint64_t"
            | b"int64_t"
            | b"uint16_t"
            | b"int16_t"
            | b"uint8_t"
            | b"int8_t"
            | b"ulong"
            | b"uchar"
            | b"ushort"
    )
}

/// A declaration with a built-in type that starts at `i`: the position of its name, and its width.
fn declaration(code: &Code<'_>, i: usize) -> Option<(usize, Width)> {
    let (k, width) = type_words(code, i)?;
    let names = code.is_name(k) && matches!(code.text(k + 1), b"=" | b";" | b"," | b")" | b"[" | b":" | b"{");
    names.then_some((k, width))
}

/// A built-in type that starts at `i`: its end, and its width.
fn type_words(code: &Code<'_>, i: usize) -> Option<(usize, Width)> {
    if !is_type_word(code.text(i)) || i > 0 && is_type_word(code.text(i - 1)) {
        return None;
    }
    let mut k = i;
    let (mut width, mut wide) = (Width::Other, false);
    while k < i + 10 {
        match code.text(k) {
            b"unsigned" | b"uint" | b"uint32_t" | b"uint16_t" | b"uint8_t" => width = Width::Unsigned32,
            b"int" | b"int32_t" | b"short" | b"char" | b"signed" if width != Width::Unsigned32 => width = Width::Signed32,
            b"long" | b"uint64_t" | b"int64_t" | b"size_t" | b"auto" | b"float" | b"double" | b"ulong" => wide = true,
            b"bool" => width = Width::Bool,
            b"*" | b"&" | b"__restrict__" | b"__restrict" => {}
            word if is_type_word(word) => {}
            _ => break,
        }
        k += 1;
    }
    Some((k, if wide { Width::Other } else { width }))
}
