//! Allreduce algorithms as data: for each rank a list of steps, executed identically on host and device memory.
//!
//! A step sends a range of the working buffer to one rank and at the same time receives a range from one rank, which replaces the local
//! elements or is reduced into them. Every element of the result is computed either by one rank alone and then distributed, or by all
//! ranks from the same operands in the same order, so the results are bitwise identical on all ranks.

use std::ops::Range;

/// What to do with received elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecvAction {
    /// Replace the local elements.
    Replace,
    /// `local = received op local`: the received elements come from lower ranks.
    ReduceLeft,
    /// `local = local op received`: the received elements come from higher ranks.
    ReduceRight,
}

/// A range of elements to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Send {
    /// Destination rank.
    pub to: usize,
    /// Elements of the working buffer.
    pub range: Range<usize>,
}

/// A range of elements to recv.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recv {
    /// Source rank.
    pub from: usize,
    /// Elements of the working buffer.
    pub range: Range<usize>,
    /// What to do with the received elements.
    pub action: RecvAction,
}

/// One exchange. At least one of `send` and `recv` is set, and neither has an empty range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// What this rank sends.
    pub send: Option<Send>,
    /// What this rank receives.
    pub recv: Option<Recv>,
}

/// The participating ranks in order, and this rank's index among them.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    /// Ranks of the communicator.
    pub ranks: &'a [usize],
    /// Index of this rank in `ranks`.
    pub index: usize,
}

struct Steps(Vec<Step>);

impl Steps {
    fn push(&mut self, send: Option<Send>, recv: Option<Recv>) {
        let send = send.filter(|part| !part.range.is_empty());
        let recv = recv.filter(|part| !part.range.is_empty());
        if send.is_some() || recv.is_some() {
            self.0.push(Step { send, recv });
        }
    }

    fn send(&mut self, to: usize, range: &Range<usize>) {
        self.push(Some(Send { to, range: range.clone() }), None);
    }

    fn recv(&mut self, from: usize, range: &Range<usize>, action: RecvAction) {
        self.push(None, Some(Recv { from, range: range.clone(), action }));
    }

    fn exchange(&mut self, with: usize, send: &Range<usize>, recv: &Range<usize>, action: RecvAction) {
        self.push(Some(Send { to: with, range: send.clone() }), Some(Recv { from: with, range: recv.clone(), action }));
    }
}

/// Returns the operand order for data from group index `other`.
fn order(other: usize, index: usize) -> RecvAction {
    if other < index { RecvAction::ReduceLeft } else { RecvAction::ReduceRight }
}

/// Recursive doubling: each rank exchanges the whole range with partners at doubling distances. Fewest messages.
pub fn recursive_doubling(group: Group, range: Range<usize>) -> Vec<Step> {
    fold_to_power_of_two(group, &range, |steps, group| {
        let mut distance = 1;
        while distance < group.ranks.len() {
            let partner = group.index ^ distance;
            steps.exchange(group.ranks[partner], &range, &range, order(partner, group.index));
            distance *= 2;
        }
    })
}

/// Rabenseifner: reduce-scatter by recursive halving, then allgather by recursive doubling. Each rank sends about twice the range.
pub fn rabenseifner(group: Group, range: Range<usize>) -> Vec<Step> {
    fold_to_power_of_two(group, &range, |steps, group| {
        let mut halves = Vec::new();
        let (mut mine, mut distance) = (range.clone(), group.ranks.len() / 2);
        while distance > 0 {
            let partner = group.index ^ distance;
            let middle = mine.start + mine.len() / 2;
            let (low, high) = (mine.start..middle, middle..mine.end);
            let (kept, sent) = if group.index < partner { (low, high) } else { (high, low) };
            steps.exchange(group.ranks[partner], &sent, &kept, order(partner, group.index));
            halves.push((partner, sent));
            mine = kept;
            distance /= 2;
        }
        for (partner, sent) in halves.into_iter().rev() {
            steps.exchange(group.ranks[partner], &mine, &sent, RecvAction::Replace);
            mine = mine.start.min(sent.start)..mine.end.max(sent.end);
        }
    })
}

/// Reduces the group to a power of two: in each of the first pairs, one rank gives its data to the other and receives the result at the
/// end. `middle` adds the steps of the remaining ranks.
fn fold_to_power_of_two(group: Group, range: &Range<usize>, middle: impl FnOnce(&mut Steps, Group)) -> Vec<Step> {
    let mut steps = Steps(Vec::new());
    let Some(power) = group.ranks.len().checked_ilog2().map(|bits| 1usize << bits) else { return steps.0 };
    let pairs = group.ranks.len() - power;
    let in_pair = group.index < 2 * pairs;
    if in_pair && group.index.is_multiple_of(2) {
        let partner = group.ranks[group.index + 1];
        steps.send(partner, range);
        steps.recv(partner, range, RecvAction::Replace);
        return steps.0;
    }
    if in_pair {
        steps.recv(group.ranks[group.index - 1], range, RecvAction::ReduceLeft);
    }
    let ranks: Vec<usize> = (0..power).map(|index| group.ranks[if index < pairs { 2 * index + 1 } else { index + pairs }]).collect();
    let index = if in_pair { group.index / 2 } else { group.index - pairs };
    middle(&mut steps, Group { ranks: &ranks, index });
    if in_pair {
        steps.send(group.ranks[group.index - 1], range);
    }
    steps.0
}

/// Returns block `index` of `range` divided into `blocks` of nearly equal size.
pub fn block(range: &Range<usize>, blocks: usize, index: usize) -> Range<usize> {
    let at = |index: usize| range.start + (range.len() as u128 * index as u128 / blocks as u128) as usize;
    at(index)..at(index + 1)
}

/// Ring: a reduce-scatter and an allgather, each over `n - 1` steps in which every rank sends and receives one block.
pub fn ring(group: Group, range: Range<usize>) -> Vec<Step> {
    let mut steps = Steps(Vec::new());
    ring_reduce_scatter(&mut steps, group, &range);
    ring_allgather(&mut steps, group, &range);
    steps.0
}

/// Appends a ring reduce-scatter: afterwards each rank has its own block of the result.
fn ring_reduce_scatter(steps: &mut Steps, group: Group, range: &Range<usize>) {
    let blocks = group.ranks.len();
    let (next, previous) = ((group.index + 1) % blocks, (group.index + blocks - 1) % blocks);
    for step in 1..blocks {
        // Block `p` starts at the rank after its owner and reaches the owner last.
        let sent = block(range, blocks, (group.index + blocks - step) % blocks);
        let received = block(range, blocks, (group.index + 2 * blocks - step - 1) % blocks);
        let recv = Recv { from: group.ranks[previous], range: received, action: RecvAction::ReduceLeft };
        steps.push(Some(Send { to: group.ranks[next], range: sent }), Some(recv));
    }
}

/// Appends a ring allgather of the blocks.
fn ring_allgather(steps: &mut Steps, group: Group, range: &Range<usize>) {
    let blocks = group.ranks.len();
    let (next, previous) = ((group.index + 1) % blocks, (group.index + blocks - 1) % blocks);
    for step in 0..blocks - 1 {
        let sent = block(range, blocks, (group.index + blocks - step) % blocks);
        let received = block(range, blocks, (group.index + 2 * blocks - step - 1) % blocks);
        let recv = Recv { from: group.ranks[previous], range: received, action: RecvAction::Replace };
        steps.push(Some(Send { to: group.ranks[next], range: sent }), Some(recv));
    }
}

/// Hierarchical: within each node first, then between the nodes. `nodes[r]` is the node of rank `r`.
///
/// If all nodes have the same number of ranks, every rank exchanges its block between the nodes; otherwise the first rank of each node
/// exchanges the whole range.
pub fn hierarchical(rank: usize, nodes: &[usize], range: Range<usize>) -> Vec<Step> {
    let mut members: Vec<Vec<usize>> = Vec::new();
    let mut seen: Vec<usize> = Vec::new();
    for (rank, node) in nodes.iter().enumerate() {
        match seen.iter().position(|known| known == node) {
            Some(at) => members[at].push(rank),
            None => {
                seen.push(*node);
                members.push(vec![rank]);
            }
        }
    }
    let home = members.iter().position(|ranks| ranks.contains(&rank)).unwrap_or_default();
    let local = Group { ranks: &members[home], index: members[home].iter().position(|member| *member == rank).unwrap_or_default() };
    let size = local.ranks.len();
    let mut steps = Steps(Vec::new());
    if members.iter().all(|ranks| ranks.len() == size) {
        ring_reduce_scatter(&mut steps, local, &range);
        let across: Vec<usize> = members.iter().map(|ranks| ranks[local.index]).collect();
        steps.0.extend(rabenseifner(Group { ranks: &across, index: home }, block(&range, size, local.index)));
        ring_allgather(&mut steps, local, &range);
        return steps.0;
    }
    let mut distance = 1;
    while distance < size {
        if local.index & distance != 0 {
            steps.send(local.ranks[local.index - distance], &range);
            break;
        }
        if local.index + distance < size {
            steps.recv(local.ranks[local.index + distance], &range, RecvAction::ReduceRight);
        }
        distance *= 2;
    }
    if local.index == 0 {
        let across: Vec<usize> = members.iter().map(|ranks| ranks[0]).collect();
        steps.0.extend(rabenseifner(Group { ranks: &across, index: home }, range.clone()));
    }
    let mut distance = size.next_power_of_two() / 2;
    while distance > 0 {
        if local.index.is_multiple_of(2 * distance) && local.index + distance < size {
            steps.send(local.ranks[local.index + distance], &range);
        } else if local.index % (2 * distance) == distance {
            steps.recv(local.ranks[local.index - distance], &range, RecvAction::Replace);
        }
        distance /= 2;
    }
    steps.0
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};

    use super::*;

    /// Runs all ranks' steps in one process on lists of (rank, index): no operand may be duplicated or missing.
    fn simulate(np: usize, count: usize, in_order: bool, steps_of: impl Fn(usize) -> Vec<Step>) {
        let plans: Vec<Vec<Step>> = (0..np).map(steps_of).collect();
        type Cell = Vec<(usize, usize)>;
        let mut buffers: Vec<Vec<Cell>> = (0..np).map(|rank| (0..count).map(|i| vec![(rank, i)]).collect()).collect();
        let mut channels: HashMap<(usize, usize), VecDeque<Vec<Cell>>> = HashMap::new();
        let (mut at, mut sent) = (vec![0; np], vec![false; np]);
        loop {
            let mut progressed = false;
            for rank in 0..np {
                let Some(step) = plans[rank].get(at[rank]) else { continue };
                if !sent[rank] {
                    if let Some(send) = &step.send {
                        assert!(!send.range.is_empty() && send.to != rank);
                        channels.entry((rank, send.to)).or_default().push_back(buffers[rank][send.range.clone()].to_vec());
                    }
                    (sent[rank], progressed) = (true, true);
                }
                if let Some(recv) = &step.recv {
                    let Some(message) = channels.get_mut(&(recv.from, rank)).and_then(VecDeque::pop_front) else { continue };
                    assert_eq!(message.len(), recv.range.len(), "sender and receiver disagree on the range");
                    for (local, message) in buffers[rank][recv.range.clone()].iter_mut().zip(message) {
                        match recv.action {
                            RecvAction::Replace => *local = message,
                            RecvAction::ReduceLeft => *local = [message, std::mem::take(local)].concat(),
                            RecvAction::ReduceRight => local.extend(message),
                        }
                    }
                }
                (at[rank], sent[rank], progressed) = (at[rank] + 1, false, true);
            }
            if !progressed {
                break;
            }
        }
        assert!((0..np).all(|rank| at[rank] == plans[rank].len()), "deadlock");
        assert!(channels.values().all(VecDeque::is_empty), "unreceived message");
        for rank in 0..np {
            assert_eq!(buffers[rank], buffers[0], "ranks differ in operands or order");
            for (i, cell) in buffers[rank].iter().enumerate() {
                let mut sorted = cell.clone();
                if !in_order {
                    sorted.sort_unstable();
                }
                assert_eq!(sorted, (0..np).map(|rank| (rank, i)).collect::<Vec<_>>(), "an operand is duplicated or missing");
            }
        }
    }

    const COUNTS: [usize; 8] = [1, 2, 3, 5, 8, 31, 32, 100];

    #[test]
    fn every_rank_gets_every_element_once() {
        for np in (1..=9).chain([16, 21, 33]) {
            let ranks: Vec<usize> = (0..np).collect();
            for count in COUNTS {
                simulate(np, count, true, |index| recursive_doubling(Group { ranks: &ranks, index }, 0..count));
                simulate(np, count, false, |index| rabenseifner(Group { ranks: &ranks, index }, 0..count));
                simulate(np, count, false, |index| ring(Group { ranks: &ranks, index }, 0..count));
            }
        }
    }

    #[test]
    fn hierarchical_works_with_any_node_sizes() {
        for np in (1..=9).chain([12]) {
            for count in COUNTS {
                for node_size in 1..=np {
                    simulate(np, count, false, |me| hierarchical(me, &(0..np).map(|rank| rank / node_size).collect::<Vec<_>>(), 0..count));
                    simulate(np, count, false, |me| {
                        hierarchical(me, &(0..np).map(|rank| 7 * (rank % node_size)).collect::<Vec<_>>(), 0..count)
                    });
                }
            }
        }
    }
}
