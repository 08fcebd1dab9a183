//! Allreduce algorithms as data: for each rank a list of steps, which host and device memory carry out alike.
//!
//! A step sends a range of the working buffer to a rank and takes a range from a rank, both at once. What came is stored, or combined
//! with what is there. Every element of the result is computed by one rank alone and then handed on, or by all ranks from the same
//! operands in the same order: so all ranks end with the same bits.

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

/// One exchange; at least one half is there, and no half is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    pub send: Option<Send>,
    pub receive: Option<Receive>,
}

/// The ranks that work together, in order, and this rank's place among them.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    pub ranks: &'a [usize],
    pub me: usize,
}

struct Steps(Vec<Step>);

impl Steps {
    fn push(&mut self, send: Option<Send>, receive: Option<Receive>) {
        let send = send.filter(|half| !half.range.is_empty());
        let receive = receive.filter(|half| !half.range.is_empty());
        if send.is_some() || receive.is_some() {
            self.0.push(Step { send, receive });
        }
    }

    fn send(&mut self, to: usize, range: &Range<usize>) {
        self.push(Some(Send { to, range: range.clone() }), None);
    }

    fn receive(&mut self, from: usize, range: &Range<usize>, take: Take) {
        self.push(None, Some(Receive { from, range: range.clone(), take }));
    }

    fn exchange(&mut self, with: usize, send: &Range<usize>, receive: &Range<usize>, take: Take) {
        self.push(Some(Send { to: with, range: send.clone() }), Some(Receive { from: with, range: receive.clone(), take }));
    }
}

/// Whether data of place `other` goes before that of place `me`.
fn order(other: usize, me: usize) -> Take {
    if other < me { Take::Before } else { Take::After }
}

/// All ranks exchange everything with partners at doubling distances: fewest messages.
pub fn recursive_doubling(group: Group, range: Range<usize>) -> Vec<Step> {
    folded(group, &range, |steps, group| {
        let mut distance = 1;
        while distance < group.ranks.len() {
            let partner = group.me ^ distance;
            steps.exchange(group.ranks[partner], &range, &range, order(partner, group.me));
            distance *= 2;
        }
    })
}

/// Reduce-scatter by halving, then allgather by doubling: each element crosses the wire about twice.
pub fn rabenseifner(group: Group, range: Range<usize>) -> Vec<Step> {
    folded(group, &range, |steps, group| {
        let mut halves = Vec::new();
        let (mut mine, mut distance) = (range.clone(), group.ranks.len() / 2);
        while distance > 0 {
            let partner = group.me ^ distance;
            let middle = mine.start + mine.len() / 2;
            let (low, high) = (mine.start..middle, middle..mine.end);
            let (kept, given) = if group.me < partner { (low, high) } else { (high, low) };
            steps.exchange(group.ranks[partner], &given, &kept, order(partner, group.me));
            halves.push((partner, given));
            mine = kept;
            distance /= 2;
        }
        for (partner, given) in halves.into_iter().rev() {
            steps.exchange(group.ranks[partner], &mine, &given, Take::Store);
            mine = mine.start.min(given.start)..mine.end.max(given.end);
        }
    })
}

/// Brings the number of ranks to a power of two: of the first pairs, one hands its data to the other and gets the result in the end.
fn folded(group: Group, range: &Range<usize>, middle: impl FnOnce(&mut Steps, Group)) -> Vec<Step> {
    let mut steps = Steps(Vec::new());
    let Some(power) = group.ranks.len().checked_ilog2().map(|bits| 1usize << bits) else { return steps.0 };
    let pairs = group.ranks.len() - power;
    let in_pair = group.me < 2 * pairs;
    if in_pair && group.me.is_multiple_of(2) {
        let keeper = group.ranks[group.me + 1];
        steps.send(keeper, range);
        steps.receive(keeper, range, Take::Store);
        return steps.0;
    }
    if in_pair {
        steps.receive(group.ranks[group.me - 1], range, Take::Before);
    }
    let ranks: Vec<usize> = (0..power).map(|place| group.ranks[if place < pairs { 2 * place + 1 } else { place + pairs }]).collect();
    let me = if in_pair { group.me / 2 } else { group.me - pairs };
    middle(&mut steps, Group { ranks: &ranks, me });
    if in_pair {
        steps.send(group.ranks[group.me - 1], range);
    }
    steps.0
}

/// The part of `range` that place `index` of `parts` owns.
pub fn part(range: &Range<usize>, parts: usize, index: usize) -> Range<usize> {
    let at = |index: usize| range.start + (range.len() as u128 * index as u128 / parts as u128) as usize;
    at(index)..at(index + 1)
}

/// Parts travel around the ring and grow, then travel once more: every rank sends and receives all the time.
pub fn ring(group: Group, range: Range<usize>) -> Vec<Step> {
    let mut steps = Steps(Vec::new());
    scatter_ring(&mut steps, group, &range);
    gather_ring(&mut steps, group, &range);
    steps.0
}

/// After it, each place has its own part of the result.
fn scatter_ring(steps: &mut Steps, group: Group, range: &Range<usize>) {
    let parts = group.ranks.len();
    let (next, previous) = ((group.me + 1) % parts, (group.me + parts - 1) % parts);
    for step in 1..parts {
        // Part `p` starts after its owner and comes to it last.
        let given = part(range, parts, (group.me + parts - step) % parts);
        let taken = part(range, parts, (group.me + 2 * parts - step - 1) % parts);
        let receive = Receive { from: group.ranks[previous], range: taken, take: Take::Before };
        steps.push(Some(Send { to: group.ranks[next], range: given }), Some(receive));
    }
}

/// The parts, each at its place, to all.
fn gather_ring(steps: &mut Steps, group: Group, range: &Range<usize>) {
    let parts = group.ranks.len();
    let (next, previous) = ((group.me + 1) % parts, (group.me + parts - 1) % parts);
    for step in 0..parts - 1 {
        let given = part(range, parts, (group.me + parts - step) % parts);
        let taken = part(range, parts, (group.me + 2 * parts - step - 1) % parts);
        let receive = Receive { from: group.ranks[previous], range: taken, take: Take::Store };
        steps.push(Some(Send { to: group.ranks[next], range: given }), Some(receive));
    }
}

/// Within each node first, then between the nodes. `nodes[r]` tells rank `r`'s node.
///
/// With as many ranks on each node, every rank carries its part between the nodes; else the first rank of a node carries all.
pub fn hierarchical(rank: usize, nodes: &[usize], range: Range<usize>) -> Vec<Step> {
    let mut members: Vec<Vec<usize>> = Vec::new();
    let mut names: Vec<usize> = Vec::new();
    for (rank, node) in nodes.iter().enumerate() {
        match names.iter().position(|known| known == node) {
            Some(at) => members[at].push(rank),
            None => {
                names.push(*node);
                members.push(vec![rank]);
            }
        }
    }
    let home = members.iter().position(|ranks| ranks.contains(&rank)).unwrap_or_default();
    let local = Group { ranks: &members[home], me: members[home].iter().position(|member| *member == rank).unwrap_or_default() };
    let size = local.ranks.len();
    let mut steps = Steps(Vec::new());
    if members.iter().all(|ranks| ranks.len() == size) {
        scatter_ring(&mut steps, local, &range);
        let across: Vec<usize> = members.iter().map(|ranks| ranks[local.me]).collect();
        steps.0.extend(rabenseifner(Group { ranks: &across, me: home }, part(&range, size, local.me)));
        gather_ring(&mut steps, local, &range);
        return steps.0;
    }
    let mut distance = 1;
    while distance < size {
        if local.me & distance != 0 {
            steps.send(local.ranks[local.me - distance], &range);
            break;
        }
        if local.me + distance < size {
            steps.receive(local.ranks[local.me + distance], &range, Take::After);
        }
        distance *= 2;
    }
    if local.me == 0 {
        let across: Vec<usize> = members.iter().map(|ranks| ranks[0]).collect();
        steps.0.extend(rabenseifner(Group { ranks: &across, me: home }, range.clone()));
    }
    let mut distance = size.next_power_of_two() / 2;
    while distance > 0 {
        if local.me.is_multiple_of(2 * distance) && local.me + distance < size {
            steps.send(local.ranks[local.me + distance], &range);
        } else if local.me % (2 * distance) == distance {
            steps.receive(local.ranks[local.me - distance], &range, Take::Store);
        }
        distance /= 2;
    }
    steps.0
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};

    use super::*;

    /// Runs all ranks' steps in one process, with values that are lists of (rank, index): nothing may come twice or be missing.
    fn simulate(np: usize, count: usize, in_order: bool, steps_of: impl Fn(usize) -> Vec<Step>) {
        let plans: Vec<Vec<Step>> = (0..np).map(steps_of).collect();
        type Cell = Vec<(usize, usize)>;
        let mut buffers: Vec<Vec<Cell>> = (0..np).map(|rank| (0..count).map(|i| vec![(rank, i)]).collect()).collect();
        let mut wires: HashMap<(usize, usize), VecDeque<Vec<Cell>>> = HashMap::new();
        let (mut at, mut sent) = (vec![0; np], vec![false; np]);
        loop {
            let mut moved = false;
            for rank in 0..np {
                let Some(step) = plans[rank].get(at[rank]) else { continue };
                if !sent[rank] {
                    if let Some(send) = &step.send {
                        assert!(!send.range.is_empty() && send.to != rank);
                        wires.entry((rank, send.to)).or_default().push_back(buffers[rank][send.range.clone()].to_vec());
                    }
                    (sent[rank], moved) = (true, true);
                }
                if let Some(receive) = &step.receive {
                    let Some(came) = wires.get_mut(&(receive.from, rank)).and_then(VecDeque::pop_front) else { continue };
                    assert_eq!(came.len(), receive.range.len(), "both ends agree on the range");
                    for (own, came) in buffers[rank][receive.range.clone()].iter_mut().zip(came) {
                        match receive.take {
                            Take::Store => *own = came,
                            Take::Before => *own = [came, std::mem::take(own)].concat(),
                            Take::After => own.extend(came),
                        }
                    }
                }
                (at[rank], sent[rank], moved) = (at[rank] + 1, false, true);
            }
            if !moved {
                break;
            }
        }
        assert!((0..np).all(|rank| at[rank] == plans[rank].len()), "a rank waits for ever");
        assert!(wires.values().all(VecDeque::is_empty), "a message nobody takes");
        for rank in 0..np {
            assert_eq!(buffers[rank], buffers[0], "the same operands in the same order on all ranks");
            for (i, cell) in buffers[rank].iter().enumerate() {
                let mut sorted = cell.clone();
                if !in_order {
                    sorted.sort_unstable();
                }
                assert_eq!(sorted, (0..np).map(|rank| (rank, i)).collect::<Vec<_>>(), "each rank's element once");
            }
        }
    }

    const COUNTS: [usize; 8] = [1, 2, 3, 5, 8, 31, 32, 100];

    #[test]
    fn every_rank_gets_every_element_once() {
        for np in (1..=9).chain([16, 21, 33]) {
            let ranks: Vec<usize> = (0..np).collect();
            for count in COUNTS {
                simulate(np, count, true, |me| recursive_doubling(Group { ranks: &ranks, me }, 0..count));
                simulate(np, count, false, |me| rabenseifner(Group { ranks: &ranks, me }, 0..count));
                simulate(np, count, false, |me| ring(Group { ranks: &ranks, me }, 0..count));
            }
        }
    }

    #[test]
    fn nodes_of_any_size_work() {
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
