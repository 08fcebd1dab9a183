//! Warp-level operations, and how a function uses them.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::code::{Code, Unit, contains};

/// A warp-level operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// `__shfl_sync`.
    Shuffle,
    /// `__shfl_up_sync` and `__shfl_down_sync`.
    Shift,
    /// `__shfl_xor_sync`.
    Butterfly,
    /// `__ballot_sync`.
    Ballot,
    /// `__any_sync`, `__all_sync`.
    Vote,
    /// `__match_any_sync`, `__match_all_sync`.
    Match,
    /// `__reduce_add_sync` and the like.
    Reduce,
    /// `__syncwarp`.
    Sync,
    /// `__activemask`.
    ActiveMask,
}

/// Returns the operation of this name.
pub fn op(name: &[u8]) -> Option<Op> {
    let rest = name.strip_prefix(b"__")?;
    Some(match rest {
        b"shfl_sync" | b"shfl" => Op::Shuffle,
        b"shfl_up_sync" | b"shfl_up" | b"shfl_down_sync" | b"shfl_down" => Op::Shift,
        b"shfl_xor_sync" | b"shfl_xor" => Op::Butterfly,
        b"ballot_sync" | b"ballot" => Op::Ballot,
        b"any_sync" | b"any" | b"all_sync" | b"all" => Op::Vote,
        b"match_any_sync" | b"match_all_sync" => Op::Match,
        b"syncwarp" => Op::Sync,
        b"activemask" => Op::ActiveMask,
        _ if rest.starts_with(b"reduce_") && rest.ends_with(b"_sync") => Op::Reduce,
        _ => return None,
    })
}

/// A call of a warp-level operation.
#[derive(Debug)]
pub struct Call {
    /// The position of its name.
    pub at: usize,
    /// Its `)`.
    pub close: usize,
    /// The operation.
    pub op: Op,
    /// The mask, if it has one.
    pub mask: Option<Range<usize>>,
    /// The lane, delta or lane mask of a shuffle.
    pub lane: Option<Range<usize>>,
    /// The width of a shuffle.
    pub width: Option<Range<usize>>,
}

impl Call {
    /// Whether it is a shuffle.
    pub fn is_shuffle(&self) -> bool {
        matches!(self.op, Op::Shuffle | Op::Shift | Op::Butterfly)
    }

    fn read(code: &Code<'_>, at: usize) -> Option<Call> {
        let op = op(code.text(at))?;
        if !code.is(at + 1, b"(") || code.before(at, b".") || code.before(at, b"->") {
            return None;
        }
        let close = code.partner(at + 1)?;
        let arguments = code.arguments(at + 1);
        let masked = op == Op::Sync || code.text(at).ends_with(b"_sync");
        let mut arguments = arguments.into_iter();
        let mask = if masked { arguments.next() } else { None };
        let (mut lane, mut width) = (None, None);
        if matches!(op, Op::Shuffle | Op::Shift | Op::Butterfly) {
            arguments.next();
            lane = arguments.next();
            width = arguments.next();
        }
        Some(Call { at, close, op, mask, lane, width })
    }
}

/// How a function uses its warp.
pub struct Facts {
    /// Its warp-level operations.
    pub calls: Vec<Call>,
    /// Positions of calls of functions that use warp-level operations.
    pub helpers: Vec<usize>,
    /// Whether it looks like device code.
    pub device: bool,
    /// Whether it works in segments of 32 lanes: each shuffle has a width of at most 32, and no operation spans the full wave. Lane
    /// indices computed with 32 are then right on any wave size.
    pub segmented: bool,
    /// Positions of other calls.
    called: Vec<usize>,
}

impl Facts {
    /// Whether it uses warp-level operations.
    pub fn collective(&self) -> bool {
        !self.helpers.is_empty() || self.calls.iter().any(|call| call.op != Op::Sync)
    }

    fn read(code: &Code<'_>, unit: &Unit<'_>) -> Facts {
        let mut facts = Facts { calls: Vec::new(), helpers: Vec::new(), device: false, segmented: false, called: Vec::new() };
        facts.device = unit.head.is_empty()
            || unit.head.clone().any(|i| {
                let word = code.text(i);
                contains(word, b"device") || contains(word, b"global") || contains(word, b"kernel")
            });
        for i in unit.body.clone() {
            if !code.is_name(i) {
                continue;
            }
            if code.is(i, b"threadIdx") {
                facts.device = true;
            } else if let Some(call) = Call::read(code, i) {
                facts.calls.push(call);
                facts.device = true;
            } else if code.is(i + 1, b"(") || code.is(i + 1, b"<") {
                facts.called.push(i);
            }
        }
        facts
    }
}

/// Returns the facts of all functions of a file, including what the functions they call do.
pub fn facts(code: &Code<'_>, units: &[Unit<'_>], is_32: &dyn Fn(&[u8]) -> bool) -> Vec<Facts> {
    let mut all: Vec<Facts> = units.iter().map(|unit| Facts::read(code, unit)).collect();
    let defined: HashMap<&[u8], usize> = units.iter().enumerate().map(|(k, unit)| (unit.name, k)).collect();
    // A function uses warp-level operations if one that it calls does; three levels are enough in practice.
    let mut warp_wide: HashSet<&[u8]> = units.iter().zip(&all).filter(|(_, f)| f.collective()).map(|(unit, _)| unit.name).collect();
    for _ in 0..3 {
        for (unit, facts) in units.iter().zip(&mut all) {
            facts.helpers = facts.called.iter().copied().filter(|i| is_helper(code, *i, &defined, &warp_wide)).collect();
            if facts.collective() {
                warp_wide.insert(unit.name);
            }
        }
    }
    let mut segmented: HashSet<&[u8]> = HashSet::new();
    for _ in 0..3 {
        for (unit, facts) in units.iter().zip(&mut all) {
            let shuffles = facts.calls.iter().all(|call| match call.op {
                Op::Sync => true,
                _ if call.is_shuffle() => call.width.clone().is_some_and(|width| is_narrow(code, width, is_32)),
                _ => false,
            });
            let helpers = facts.helpers.iter().all(|i| segmented.contains(code.text(*i)));
            facts.segmented = shuffles && helpers && facts.collective();
            if facts.segmented {
                segmented.insert(unit.name);
            }
        }
    }
    all
}

fn is_helper(code: &Code<'_>, i: usize, defined: &HashMap<&[u8], usize>, warp_wide: &HashSet<&[u8]>) -> bool {
    let name = code.text(i);
    if warp_wide.contains(name) {
        return true;
    }
    let wmma = matches!(name, b"load_matrix_sync" | b"store_matrix_sync" | b"mma_sync");
    // `warp.reduce(…)` is a member of a group, which has its own size.
    wmma || contains(name, b"warp") && name != b"warpSize" && !defined.contains_key(name) && !code.before(i, b".") && is_work(name)
}

/// Names such as `warpReduceSum`, as opposed to `warp_id` and `warp_count`.
fn is_work(name: &[u8]) -> bool {
    const WORDS: &[&[u8]] =
        &[b"reduce", b"scan", b"sum", b"max", b"min", b"sort", b"shuffle", b"shfl", b"ballot", b"broadcast", b"vote", b"prefix", b"merge"];
    WORDS.iter().any(|word| contains(name, word))
}

/// A width of 32 lanes or fewer.
fn is_narrow(code: &Code<'_>, width: Range<usize>, is_32: &dyn Fn(&[u8]) -> bool) -> bool {
    match code.literal(width.clone()) {
        Some(value) => value <= 32,
        None => width.len() == 1 && is_32(code.text(width.start)),
    }
}
