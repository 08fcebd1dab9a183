//! What the variables of one function hold: thread indices, lanes, warps, lane masks, or data.
//!
//! Assignments are followed in the order of the text. A value is a lane only if it comes from `threadIdx.x` (or a parameter or call
//! whose name says so) by an operation that leaves a lane; what was scaled, read from memory or stepped by a loop is data. That keeps
//! the 32s of bit sets and quantised blocks apart from the 32 of a warp.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;

use super::code::{Code, REACH, Unit, contains};
use super::warp::{self, Op};

/// What a value is.
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
    /// The low five bits of an index in the grid: a lane, or a bit of a word.
    GlobalLane,
    /// A warp's number.
    Warp,
    /// A set of lanes: a ballot's result.
    Mask,
    /// A set of lanes made by shifting.
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
    /// A truth value, which a mask becomes without loss.
    Bool,
    /// 64 bits, `auto`, or a type we do not know.
    Other,
}

/// A variable from one place on.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Where this was learnt.
    pub at: usize,
    /// What it holds.
    pub value: Value,
    /// Its width.
    pub width: Width,
    /// The first token of its type, where this is a declaration.
    pub type_at: Option<usize>,
}

/// The variables of a function.
pub struct Flow<'c, 'a> {
    code: &'c Code<'a>,
    types: &'c Types<'a>,
    variables: HashMap<&'a [u8], Vec<Variable>>,
    /// How deep [`Flow::value`] is in itself.
    depth: Cell<usize>,
}

/// Types of 32 bits that a file declares outside of functions.
#[derive(Default)]
pub struct Types<'a> {
    /// Members of classes, by name; `Other` where two disagree.
    members: HashMap<&'a [u8], Width>,
    /// Other names of such types.
    aliases: HashMap<&'a [u8], Width>,
}

impl<'a> Types<'a> {
    /// Reads what lies between functions.
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

    /// A member and those behind its commas.
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
    /// Follows the assignments of a function. `device`: names of parameters may be believed.
    pub fn new(code: &'c Code<'a>, types: &'c Types<'a>, unit: &Unit<'a>, device: bool) -> Flow<'c, 'a> {
        let mut flow = Flow { code, types, variables: HashMap::new(), depth: Cell::new(0) };
        flow.walk(unit.head.clone(), device);
        flow.walk(unit.body.clone(), false);
        flow
    }

    /// What is known of a name at `at`.
    pub fn variable(&self, name: &[u8], at: usize) -> Option<&Variable> {
        self.variables.get(name)?.iter().rev().take(REACH).find(|variable| variable.at <= at)
    }

    fn walk(&mut self, range: Range<usize>, parameters: bool) {
        let code = self.code;
        let mut i = range.start;
        // Loop variables that step become data once the loop's header is over.
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
                // A block of one warp: the thread is the lane, if the name says so.
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
                // What was narrowed on purpose, or to a truth, is told there and is no mask any more.
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

    /// The variable that a `for` header at `open` steps by addition, and where the header's first part ends.
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

    /// What a name or `threadIdx.x` that ends at `i` is; `None` if `i` is neither.
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

    /// What an operand that begins at `i` is.
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

    /// What an expression gives; data, where it is nested too deeply to follow.
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
                        // One bit of a mask is no mask.
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
                        // A broadcast of a lane or warp is one still.
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
                        // The rank in a block is a thread; in a tile it is safe by itself.
                        None if text == b"thread_rank" && ranks_a_block(code, i) => {
                            thread = true;
                            found = wider(found, Value::Thread);
                        }
                        None if (code.before(i, b".") || code.before(i, b"->")) && !code.before(i, b"::") => {}
                        // A function of the reader's own around `__ballot_sync`.
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

/// Whether `i` is the member of a group whose name says block.
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

/// A parameter is believed to be what its name says.
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

/// Of two summands, the one that says more.
fn wider(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Data, other) | (other, Value::Data) => other,
        (Value::Mask, _) | (_, Value::Mask) => Value::Mask,
        (Value::Lane, Value::Warp) | (Value::Warp, Value::Lane) => Value::Thread,
        (a, _) => a,
    }
}

/// Whether the operand of the tokens `first..end` is multiplied or shifted up.
fn times(code: &Code<'_>, first: usize, end: usize) -> bool {
    let before = first >= 2 && code.is(first - 1, b"*") && !is_type_word(code.text(first - 2)) || code.before(first, b"<<");
    before || code.is(end, b"*") || code.is(end, b"<<")
}

/// Whether a group is a factor.
fn is_scaled(code: &Code<'_>, open: usize) -> bool {
    code.partner(open).is_some_and(|close| times(code, open, close + 1))
}

/// `(warpSize - 1)`, under any name of that kind.
fn warp_size_less_one(code: &Code<'_>, open: usize) -> bool {
    code.is(open, b"(") && contains(code.text(open + 1), b"warp") && code.is(open + 2, b"-") && code.number(open + 3) == Some(1)
}

/// Where an expression ends: at its `;`, a `,`, or the bracket around it.
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

/// Words that types are made of.
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

/// A declaration whose type of plain words begins at `i`: where its name is, and its width.
fn declaration(code: &Code<'_>, i: usize) -> Option<(usize, Width)> {
    let (k, width) = type_words(code, i)?;
    let names = code.is_name(k) && matches!(code.text(k + 1), b"=" | b";" | b"," | b")" | b"[" | b":" | b"{");
    names.then_some((k, width))
}

/// A type of plain words that begins at `i`: its end, and its width.
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
