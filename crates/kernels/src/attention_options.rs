//! What attention can be asked for, long or one token at a time.

use crate::view::View;

/// How queries see keys. A query's place is that of its own token among the keys: the last query's is the last key's.
#[derive(Debug, Clone, Copy)]
pub struct AttentionOptions<'a> {
    /// What the products are multiplied with; usually 1/√(head dimension).
    pub scale: f32,
    /// Whether a query sees no key behind its place.
    pub causal: bool,
    /// Of the keys those alone that are fewer than so many places away: with 1, a query sees its own key alone.
    pub window: Option<usize>,
    /// Scores become `cap · tanh(score / cap)`, before anything is added to them.
    pub soft_cap: Option<f32>,
    /// ALiBi: `f32` of (query heads); a score loses the head's slope times the distance.
    pub alibi: Option<View<'a>>,
}

impl AttentionOptions<'_> {
    /// Each query sees all keys.
    pub fn new(scale: f32) -> Self {
        AttentionOptions { scale, causal: false, window: None, soft_cap: None, alibi: None }
    }

    /// Each query sees its own key and those before it.
    pub fn causal(scale: f32) -> Self {
        AttentionOptions { causal: true, ..AttentionOptions::new(scale) }
    }
}

/// Keys and values, in any layout by their strides.
#[derive(Debug, Clone, Copy)]
pub struct KeyValues<'a> {
    /// (sequences, keys, heads, dimension); with `table` (blocks, keys of a block, heads, dimension).
    pub keys: View<'a>,
    /// The same shape.
    pub values: View<'a>,
    /// Paged: which block holds a sequence's keys, `u32` or `i32` of (sequences, blocks of the longest). Numbers that are no block's
    /// are not followed: their keys count as not there.
    pub table: Option<View<'a>>,
    /// How many keys each sequence has, `u32` or `i32` of (sequences); without it, all that there is room for. More than there is room
    /// for is cut.
    pub lengths: Option<View<'a>>,
}
