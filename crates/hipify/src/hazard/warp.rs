//! The operations that lanes do together, and what a function does with them.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::code::{Code, Unit, contains};

/// A warp-wide operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// `__shfl_sync`: from a lane by number.
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
    /// `__reduce_add_sync` and its like.
    Reduce,
    /// `__syncwarp`.
    Sync,
    /// `__activemask`.
    ActiveMask,
}

/// The operation of this name.
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

/// A call of such an operation.
#[derive(Debug)]
pub struct Call {
    /// Where its name is.
    pub at: usize,
    /// Its `)`.
    pub close: usize,
    /// What it does.
    pub op: Op,
    /// The mask, where it has one.
    pub mask: Option<Range<usize>>,
    /// For a shuffle, its lane, distance or pattern.
    pub lane: Option<Range<usize>>,
    /// For a shuffle, its width.
    pub width: Option<Range<usize>>,
}

impl Call {
    /// Whether it is one of the shuffles.
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

/// What a function does with its warp.
pub struct Facts {
    /// Its warp-wide operations.
    pub calls: Vec<Call>,
    /// Calls of functions that work on a warp: where their names are.
    pub helpers: Vec<usize>,
    /// It runs on the device, as far as can be seen.
    pub device: bool,
    /// It treats a wave as segments of 32 lanes: each shuffle names a width of 32 or less, and nothing asks the whole wave. Then
    /// lanes counted by 32 are right on any wave.
    pub segmented: bool,
    /// It calls functions that the file does not hold, at these names.
    called: Vec<usize>,
}

impl Facts {
    /// Whether lanes work together here.
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

/// The facts of all functions of a file, each knowing what those it calls do.
pub fn facts(code: &Code<'_>, units: &[Unit<'_>], is_32: &dyn Fn(&[u8]) -> bool) -> Vec<Facts> {
    let mut all: Vec<Facts> = units.iter().map(|unit| Facts::read(code, unit)).collect();
    let defined: HashMap<&[u8], usize> = units.iter().enumerate().map(|(k, unit)| (unit.name, k)).collect();
    // A function works on a warp if one that it calls does; three steps are as deep as code goes in practice.
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
    // `warp.reduce(…)` is a member of a group, which knows its size.
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
