//! Allreduce algorithms as data: for each rank a list of steps, which host and device memory carry out alike.
//!
//! A step sends a range of the working buffer to a rank and takes a range from a rank, both at once. What came is stored, or combined
//! with what is there. The operand of the lower ranks always stands first, so all ranks compute the same bits.

use std::ops::Range;

/// What to do with received elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// They replace what is there.
    Store,
    /// `own = received op own`: they come from lower ranks.
    Before,
    /// `own = own op received`: they come from higher ranks.
    After,
}

/// A range of elements that goes to a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Send {
    pub to: usize,
    pub range: Range<usize>,
}

/// A range of elements that comes from a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receive {
    pub from: usize,
    pub range: Range<usize>,
    pub take: Take,
}

/// One exchange; at least one half is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    pub send: Option<Send>,
    pub receive: Option<Receive>,
}
