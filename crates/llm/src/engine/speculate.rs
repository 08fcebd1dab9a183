//! Speculation: tokens that followed the same words before are computed together with the next one, and kept as far as they are the ones
//! that sampling draws. The text is the one without speculation.

use super::job::Job;
use super::{Engine, Order};
use crate::error::Result;
use crate::runner::Span;

use warpwave_tensor::BLOCK_SIZE;

/// The largest batch that speculates: in larger ones, tokens of other requests use the device better.
const MAX_BATCH: usize = 8;
/// Tokens that must have occurred before in the same order; longer matches are preferred.
const MATCHES: [usize; 2] = [3, 2];
/// The most steps without a draft after drafts that were wrong.
const MAX_PAUSE: u32 = 64;

impl Engine {
    /// Drafts tokens for a step that only continues texts; returns whether there are any.
    pub(super) fn draft(&mut self, plan: &[(Order, usize)]) -> bool {
        let most = self.options.speculative;
        let decoding = |order: &Order| self.running.get(order).is_some_and(Job::is_decoding);
        if most == 0
            || plan.len() > MAX_BATCH
            || plan.len() * (most + 1) > self.options.step_tokens
            || !plan.iter().all(|(order, _)| decoding(order))
        {
            return false;
        }
        let mut any = false;
        for (order, _) in plan {
            let Some(job) = self.running.get_mut(order) else { continue };
            job.draft(most);
            // Others are not preempted for a guess.
            while job.blocks.len() * BLOCK_SIZE < job.computed + job.ahead.len() {
                match self.blocks.allocate() {
                    Some(block) => job.blocks.push(block),
                    None => job.ahead.truncate(job.blocks.len() * BLOCK_SIZE - job.computed),
                }
            }
            self.stats.drafted_tokens += job.ahead.len() as u64 - 1;
            any |= job.ahead.len() > 1;
        }
        any
    }

    /// Computes the next token of each request with its draft, and keeps what sampling draws.
    pub(super) fn verify(&mut self, plan: &[(Order, usize)]) -> Result<()> {
        let mut spans = Vec::new();
        let mut open = Vec::new();
        let mut row = 0;
        for (order, _) in plan {
            let job = &self.running[order];
            let len = job.computed + job.ahead.len();
            spans.push(Span { blocks: &job.blocks[..len.div_ceil(BLOCK_SIZE)], len, tokens: &job.ahead });
            // The draft that the row's token is compared with comes next.
            open.push((row, *order, 1));
            row += job.ahead.len();
        }
        let logits = self.runner.forward_all(&spans)?;
        while !open.is_empty() {
            let rows: Vec<(usize, Order)> = open.iter().map(|(row, order, _)| (*row, *order)).collect();
            let sampled = self.sample(&logits, &rows)?;
            let mut next = Vec::new();
            for ((row, order, place), token) in open.into_iter().zip(sampled) {
                let Some(job) = self.running.get_mut(&order) else { continue };
                job.computed += 1;
                let drawn = token.as_ref().ok().map(|token| token.id);
                if self.take(order, token) {
                    continue;
                }
                let Some(job) = self.running.get_mut(&order) else { continue };
                match job.ahead.get(place) {
                    Some(draft) if drawn == Some(*draft) => {
                        self.stats.accepted_tokens += 1;
                        job.misses = 0;
                        next.push((row + 1, order, place + 1));
                    }
                    Some(_) if place == 1 => {
                        job.misses = (job.misses * 2 + 1).min(MAX_PAUSE);
                        job.pause = job.misses;
                    }
                    _ => (),
                }
            }
            open = next;
        }
        if self.options.prefix_cache {
            for (order, _) in plan {
                if let Some(job) = self.running.get_mut(order) {
                    job.publish(&mut self.blocks);
                }
            }
        }
        Ok(())
    }
}

impl Job {
    /// Sets `ahead` to the last token and what followed its like before, at most `most` tokens.
    fn draft(&mut self, most: usize) {
        self.ahead.clear();
        self.ahead.extend(self.tokens.last());
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        // The token that is drawn after the last draft needs a place too.
        let most = most.min(self.remaining().saturating_sub(1));
        self.ahead.extend_from_slice(continuation(&self.tokens, most));
    }
}

/// What followed the last earlier occurrence of the last tokens, at most `most` tokens.
fn continuation(tokens: &[u32], most: usize) -> &[u32] {
    for count in MATCHES {
        let Some(end) = tokens.len().checked_sub(count).filter(|_| most > 0) else { continue };
        let (before, last) = tokens.split_at(end);
        // The occurrence may reach into the last tokens: repetitions of one token are found.
        let found = (0..before.len()).rev().find(|start| tokens[*start..].starts_with(last));
        if let Some(start) = found {
            let from = start + count;
            return &tokens[from..(from + most).min(tokens.len())];
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_longest_occurrence_is_continued() {
        assert_eq!(continuation(&[1, 2, 3, 4, 5, 6, 1, 2, 3], 2), [4, 5]);
        assert_eq!(continuation(&[1, 2, 3, 4, 9, 2, 3, 7, 1, 2, 3], 4), [4, 9, 2, 3], "three tokens before two");
        assert_eq!(continuation(&[1, 2, 7, 1, 2, 8, 1, 2], 1), [8], "the last one");
        assert_eq!(continuation(&[5, 5, 5, 5], 3), [5]);
        assert_eq!(continuation(&[1, 2, 3], 3), [0; 0]);
        assert_eq!(continuation(&[1], 3), [0; 0]);
        assert_eq!(continuation(&[1, 2, 1, 2], 0), [0; 0]);
    }
}
