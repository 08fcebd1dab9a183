//! The tuning table: the algorithm by MPI library, kind of memory, number of ranks and message size.
//!
//! A table is text with one rule per line. The first matching rule applies:
//!
//! ```text
//! # MPI     memory  ranks  sizes in bytes
//! openmpi   host    2      native:0-256k;rabenseifner:256k-
//! any       device  2-     recursive_doubling:0-64k;ring:64k-
//! ```

use std::fmt;
use std::str::FromStr;

use crate::abi::Flavor;

/// An allreduce algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// The MPI library's own `MPI_Allreduce`.
    Native,
    /// Recursive doubling: fewest messages.
    RecursiveDoubling,
    /// Ring reduce-scatter and allgather, one message per block.
    Ring,
    /// Ring with blocks in segments, so that sending and reducing overlap.
    SegmentedRing,
    /// Reduce-scatter by recursive halving, allgather by recursive doubling.
    Rabenseifner,
    /// Within each node first, then between the nodes.
    Hierarchical,
    /// Ranks of one node read each other's GPU memory (CUDA or HIP IPC).
    Ipc,
    /// NCCL or RCCL.
    Nccl,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Algorithm; 8] = [
        Algorithm::Native,
        Algorithm::RecursiveDoubling,
        Algorithm::Ring,
        Algorithm::SegmentedRing,
        Algorithm::Rabenseifner,
        Algorithm::Hierarchical,
        Algorithm::Ipc,
        Algorithm::Nccl,
    ];

    /// Returns the name used in tables and environment variables.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Native => "native",
            Algorithm::RecursiveDoubling => "recursive_doubling",
            Algorithm::Ring => "ring",
            Algorithm::SegmentedRing => "segmented_ring",
            Algorithm::Rabenseifner => "rabenseifner",
            Algorithm::Hierarchical => "hierarchical",
            Algorithm::Ipc => "ipc",
            Algorithm::Nccl => "nccl",
        }
    }

    /// Returns whether it requires all buffers to be in GPU memory.
    pub fn needs_device_buffers(self) -> bool {
        matches!(self, Algorithm::Ipc | Algorithm::Nccl)
    }
}

impl FromStr for Algorithm {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Algorithm, ParseError> {
        let text = if text == "rccl" { "nccl" } else { text };
        Algorithm::ALL
            .into_iter()
            .find(|known| known.name() == text)
            .ok_or_else(|| ParseError(format!("unknown algorithm {text:?}; expected one of auto, {}", algorithm_names())))
    }
}

/// The names of all algorithms, for messages.
fn algorithm_names() -> String {
    Algorithm::ALL.map(Algorithm::name).join(", ")
}

/// The kind of memory that a call's buffers are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// All buffers are in host memory.
    Host,
    /// At least one rank's buffer is in GPU memory.
    Device,
}

/// Why a table, selection or size is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

/// Algorithms by message size, as ranges of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection(Vec<(u64, u64, Algorithm)>);

impl Selection {
    /// Creates a selection of one algorithm for all sizes.
    pub fn all(algorithm: Algorithm) -> Selection {
        Selection(vec![(0, u64::MAX, algorithm)])
    }

    /// Returns the algorithm for a message of `bytes` bytes, or `None` outside all ranges.
    pub fn get(&self, bytes: u64) -> Option<Algorithm> {
        self.0.iter().find(|(from, to, _)| (*from..*to).contains(&bytes)).map(|(.., algorithm)| *algorithm)
    }

    /// Returns the size below which all messages go to the MPI library.
    pub fn native_below(&self) -> u64 {
        let mut edge = 0;
        while let Some((_, to, _)) =
            self.0.iter().find(|(from, to, algorithm)| *from <= edge && edge < *to && *algorithm == Algorithm::Native)
        {
            edge = *to;
        }
        edge
    }
}

impl FromStr for Selection {
    type Err = ParseError;

    /// `ring`, or `recursive_doubling:0-8k;ring:8k-1m;rabenseifner:1m-`.
    fn from_str(text: &str) -> Result<Selection, ParseError> {
        let mut ranges = Vec::new();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, range) = part.split_once(':').unwrap_or((part, "0-"));
            let (from, to) = range
                .split_once('-')
                .ok_or_else(|| ParseError(format!("invalid size range {range:?}; expected FROM-TO, such as 8k-1m")))?;
            let from = if from.trim().is_empty() { 0 } else { parse_size(from)? };
            let to = if matches!(to.trim(), "" | "max" | "inf") { u64::MAX } else { parse_size(to)? };
            if from >= to {
                return Err(ParseError(format!("empty size range {range:?}; expected FROM-TO with FROM < TO")));
            }
            ranges.push((from, to, name.trim().parse()?));
        }
        if ranges.is_empty() {
            return Err(ParseError(format!("missing algorithm; expected one of auto, {}", algorithm_names())));
        }
        Ok(Selection(ranges))
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (from, to, algorithm)) in self.0.iter().enumerate() {
            let end = if *to == u64::MAX { String::new() } else { format_size(*to) };
            write!(f, "{}{}:{}-{end}", if index == 0 { "" } else { ";" }, algorithm.name(), format_size(*from))?;
        }
        Ok(())
    }
}

/// Parses a size in bytes such as `8k`, `1m`, `2g` or `1000`.
pub fn parse_size(text: &str) -> Result<u64, ParseError> {
    let text = text.trim();
    let bad = || ParseError(format!("invalid size {text:?}; expected bytes, such as 4096, 8k, 1m or 2g"));
    let (digits, shift) = match text.chars().last().ok_or_else(bad)?.to_ascii_lowercase() {
        'k' => (&text[..text.len() - 1], 10),
        'm' => (&text[..text.len() - 1], 20),
        'g' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| bad())?;
    number.checked_mul(1 << shift).ok_or_else(bad)
}

/// Formats a size as [`parse_size`] reads it.
pub fn format_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "g"), (20, "m"), (10, "k")] {
        if bytes > 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// One line of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    /// `None` matches any MPI library.
    flavor: Option<String>,
    memory: Memory,
    ranks: (usize, usize),
    selection: Selection,
}

/// Tuning rules. The first matching rule applies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table(Vec<Rule>);

impl Table {
    /// Returns the built-in table. `warpwave mpi tune` measures one for this machine.
    pub fn built_in() -> Table {
        include_str!("default.table").parse().unwrap_or_default()
    }

    /// Returns the algorithms for calls of one kind; without a matching rule, the MPI library.
    pub fn selection(&self, flavor: Flavor, memory: Memory, ranks: usize) -> Selection {
        let matches = |rule: &&Rule| {
            rule.flavor.as_deref().is_none_or(|name| name == flavor.name())
                && rule.memory == memory
                && (rule.ranks.0..=rule.ranks.1).contains(&ranks)
        };
        self.0.iter().find(matches).map_or_else(|| Selection::all(Algorithm::Native), |rule| rule.selection.clone())
    }
}

impl FromStr for Table {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Table, ParseError> {
        let mut rules = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<_> = line.split_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            let parse = || -> Result<Rule, ParseError> {
                let [flavor, memory, ranks, sizes] = words[..] else {
                    return Err(ParseError(format!("expected four fields (MPI, memory, ranks, sizes), got {}", words.len())));
                };
                let flavor = match flavor {
                    "any" => None,
                    "openmpi" | "mpich" | "abi" => Some(flavor.to_owned()),
                    _ => return Err(ParseError(format!("unknown MPI {flavor:?}; expected openmpi, mpich, abi or any"))),
                };
                let memory = match memory {
                    "host" => Memory::Host,
                    "device" => Memory::Device,
                    _ => return Err(ParseError(format!("unknown memory type {memory:?}; expected host or device"))),
                };
                let number = |text: &str, empty: usize| match text {
                    "" => Ok(empty),
                    text => text.parse().map_err(|_| ParseError(format!("invalid number of ranks {text:?}; expected N, N-, or N-M"))),
                };
                let ranks = match ranks.split_once('-') {
                    Some((from, to)) => (number(from, 0)?, number(to, usize::MAX)?),
                    None => (number(ranks, 0)?, number(ranks, 0)?),
                };
                Ok(Rule { flavor, memory, ranks, selection: sizes.parse()? })
            };
            rules.push(parse().map_err(|ParseError(why)| ParseError(format!("line {}: {why}", index + 1)))?);
        }
        Ok(Table(rules))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for rule in &self.0 {
            let ranks = match rule.ranks {
                (from, to) if from == to => from.to_string(),
                (from, usize::MAX) => format!("{from}-"),
                (from, to) => format!("{from}-{to}"),
            };
            let memory = if rule.memory == Memory::Host { "host" } else { "device" };
            writeln!(f, "{:8} {memory:7} {ranks:6} {}", rule.flavor.as_deref().unwrap_or("any"), rule.selection)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_round_trips() {
        let table: Table = include_str!("default.table").parse().unwrap();
        assert!(!table.0.is_empty());
        assert_eq!(table.to_string().parse::<Table>().unwrap(), table);
    }

    #[test]
    fn ranges_choose_by_size() {
        let sizes: Selection = "recursive_doubling:0-8k;ring:8k-1m;rabenseifner:1m-".parse().unwrap();
        let chosen = [0, 8191, 8192, (1 << 20) - 1, 1 << 20, u64::MAX - 1].map(|bytes| sizes.get(bytes).unwrap().name());
        assert_eq!(chosen, ["recursive_doubling", "recursive_doubling", "ring", "ring", "rabenseifner", "rabenseifner"]);
        assert_eq!("ring".parse::<Selection>().unwrap().get(5), Some(Algorithm::Ring));
        assert_eq!("ring:1k-2k".parse::<Selection>().unwrap().get(5), None);
        assert_eq!("native:0-4k;native:4k-8k;ring:8k-".parse::<Selection>().unwrap().native_below(), 8192);
    }

    #[test]
    fn errors_name_what_was_expected() {
        for (text, part) in [
            ("rong", "unknown algorithm \"rong\""),
            ("ring:8k", "invalid size range"),
            ("ring:2k-1k", "empty"),
            ("ring:1x-2k", "invalid size"),
            ("ring:0-99999999999g", "invalid size"),
            ("", "missing algorithm"),
        ] {
            let error = text.parse::<Selection>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        for (text, part) in [
            ("openmpi host 2", "four fields"),
            ("lam host 2 ring", "expected openmpi"),
            ("any tape 2 ring", "expected host"),
            ("# fine\nany host two ring", "line 2"),
        ] {
            let error = text.parse::<Table>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
