//! Which requests a step computes: decoding first, then prompts within a budget, then the queue.

use std::collections::HashSet;
use std::time::Instant;

use warpwave_tensor::BLOCK_SIZE;

use super::blocks::Key;
use super::{Engine, Order};
use crate::generate::FinishReason;

impl Engine {
    /// Gives every decoding request the block of its next token; preempts others if there are not enough. Returns whether requests ended.
    pub(super) fn ensure_blocks(&mut self) -> bool {
        let mut ended = false;
        let orders: Vec<Order> = self.running.keys().copied().collect();
        for order in orders {
            // Preempted by one before it.
            while let Some(job) = self.running.get(&order) {
                if !job.is_decoding() || job.sink.is_full() || job.blocks.len() * BLOCK_SIZE > job.computed {
                    break;
                }
                if let Some(block) = self.blocks.allocate() {
                    if let Some(job) = self.running.get_mut(&order) {
                        job.blocks.push(block);
                    }
                    break;
                }
                match self.victim() {
                    Some(victim) => self.preempt(victim),
                    None => {
                        // Alone, and the cache is full.
                        if let Some(mut job) = self.running.remove(&order) {
                            self.blocks.release(job.blocks.drain(..));
                            job.finish(FinishReason::Context, self.tokenizer.as_deref());
                            ended = true;
                        }
                    }
                }
            }
        }
        ended
    }

    /// The running request to preempt: of those with the lowest priority the one that loses the fewest computed tokens, then the newest. The
    /// first in order whose reader keeps up is never preempted, so that it ends.
    fn victim(&self) -> Option<Order> {
        let cost = |order: &Order| {
            let job = &self.running[order];
            let lost = job.blocks.iter().filter(|block| !self.blocks.is_shared(**block)).count();
            (-job.request.priority, lost, -order.0, u64::MAX - order.1)
        };
        let first = self.running.iter().find(|(_, job)| !job.sink.is_full()).map(|(order, _)| *order);
        self.running.keys().copied().filter(|order| Some(*order) != first).min_by_key(cost)
    }

    /// Puts a running request back into the queue, at its place, without its blocks.
    fn preempt(&mut self, order: Order) {
        let Some(mut job) = self.running.remove(&order) else { return };
        self.blocks.release(job.blocks.drain(..));
        job.computed = 0;
        job.published = 0;
        job.pooled.clear();
        job.preemptions += 1;
        self.stats.preemptions += 1;
        self.waiting.insert(order, job);
    }

    /// Selects the requests of a step and how many tokens of each are computed.
    pub(super) fn plan(&mut self) -> Vec<(Order, usize)> {
        let ready = |job: &super::Job| job.is_decoding() && !job.sink.is_full() && job.blocks.len() * BLOCK_SIZE > job.computed;
        let mut plan: Vec<(Order, usize)> =
            self.running.iter().filter(|(_, job)| ready(job)).map(|(order, _)| (*order, 1)).take(self.options.step_tokens).collect();
        let mut budget = self.options.step_tokens - plan.len();
        if !plan.is_empty() {
            budget = budget.min(self.options.prompt_tokens);
        }
        for (order, job) in self.running.iter().filter(|(_, job)| !job.is_decoding()) {
            let count = (job.tokens.len() - job.computed).min(budget);
            if count == 0 {
                break;
            }
            budget -= count;
            plan.push((*order, count));
        }
        self.admit(&mut plan, budget);
        plan
    }

    /// Starts waiting requests, in order, while budget and blocks last.
    fn admit(&mut self, plan: &mut Vec<(Order, usize)>, mut budget: usize) {
        let mut computing: HashSet<Key> = HashSet::new();
        for job in self.running.values().filter(|job| !job.is_decoding()) {
            computing.extend(&job.keys[job.published..]);
        }
        let orders: Vec<Order> = self.waiting.keys().copied().collect();
        for order in orders {
            if budget == 0 || self.running.len() >= self.options.max_running {
                return;
            }
            let Some(job) = self.waiting.get_mut(&order) else { continue };
            let reuse = self.options.prefix_cache && job.request.reuse;
            if self.options.prefix_cache {
                job.extend_keys();
            }
            // The last token is always computed, for its logits.
            let possible = if reuse { ((job.tokens.len() - 1) / BLOCK_SIZE).min(job.keys.len()) } else { 0 };
            let hits: Vec<u32> = job.keys[..possible].iter().map_while(|key| self.blocks.find(key)).collect();
            if job.keys[..possible].get(hits.len()).is_some_and(|key| computing.contains(key)) {
                // Another request is computing the same prompt: its blocks are shared in one of the next steps.
                continue;
            }
            hits.iter().for_each(|block| self.blocks.share(*block));
            let needed = job.tokens.len().div_ceil(BLOCK_SIZE) - hits.len();
            // A block in reserve for each running request, or it would be preempted soon.
            let reserve = self.running.len().min(self.blocks.total() / 32 + 1);
            if needed + reserve > self.blocks.available() {
                self.blocks.release(hits.into_iter());
                return;
            }
            let Some(mut job) = self.waiting.remove(&order) else { continue };
            job.computed = hits.len() * BLOCK_SIZE;
            job.published = hits.len();
            job.blocks = hits;
            job.blocks.extend((0..needed).filter_map(|_| self.blocks.allocate()));
            if job.started.is_none() {
                self.admission.leave(job.prompt_len);
                self.stats.prompt_tokens += job.prompt_len as u64;
                if reuse {
                    self.stats.prefix_queries += job.prompt_len as u64;
                    self.stats.prefix_hits += job.computed as u64;
                }
                job.start(Instant::now());
            }
            computing.extend(&job.keys[job.published..]);
            let count = (job.tokens.len() - job.computed).min(budget);
            budget -= count;
            plan.push((order, count));
            self.running.insert(order, job);
        }
    }
}
