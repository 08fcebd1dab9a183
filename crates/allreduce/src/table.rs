//! Which algorithm for which call: rules by MPI, kind of memory, number of ranks and size.
//!
//! A table is text, one rule a line, the first that fits counts:
//!
//! ```text
//! # MPI     memory  ranks  sizes in bytes
//! openmpi   host    2      native:0-256k;rabenseifner:256k-
//! any       device  2-     recursive_doubling:0-64k;ring:64k-
//! ```

use std::fmt;
use std::str::FromStr;

use crate::abi::Flavor;

/// How a call is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// By the MPI itself.
    Native,
    RecursiveDoubling,
    Ring,
    /// The ring, its parts cut into segments that overlap sending and combining.
    SegmentedRing,
    Rabenseifner,
    /// Within the nodes, then between them.
    Hierarchical,
    /// Ranks of one node read each other's GPU memory.
    Ipc,
    /// NCCL or RCCL.
    Nccl,
}

impl Algorithm {
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

    /// Whether it works only where all buffers are on GPUs.
    pub fn needs_devices(self) -> bool {
        matches!(self, Algorithm::Ipc | Algorithm::Nccl)
    }
}

impl FromStr for Algorithm {
    type Err = BadTable;

    fn from_str(text: &str) -> Result<Algorithm, BadTable> {
        let text = if text == "rccl" { "nccl" } else { text };
        Algorithm::ALL.into_iter().find(|known| known.name() == text).ok_or_else(|| {
            let names: Vec<_> = Algorithm::ALL.iter().map(|known| known.name()).collect();
            BadTable(format!("no algorithm is called {text:?}; there are auto, {}", names.join(", ")))
        })
    }
}

/// Where the buffers of a call are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// All in host memory.
    Host,
    /// At least one on a GPU.
    Device,
}

/// A table, or a part of it, that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadTable(pub String);

/// Algorithms by size: each from its first byte to before the next one's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes(Vec<(u64, u64, Algorithm)>);

impl Sizes {
    /// One algorithm for all sizes.
    pub fn all(algorithm: Algorithm) -> Sizes {
        Sizes(vec![(0, u64::MAX, algorithm)])
    }

    /// The algorithm for `bytes`, if a range holds it.
    pub fn get(&self, bytes: u64) -> Option<Algorithm> {
        self.0.iter().find(|(from, to, _)| (*from..*to).contains(&bytes)).map(|(.., algorithm)| *algorithm)
    }

    /// The size up to which the MPI does everything itself.
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

impl FromStr for Sizes {
    type Err = BadTable;

    /// `ring`, or `recursive_doubling:0-8k;ring:8k-1m;rabenseifner:1m-`.
    fn from_str(text: &str) -> Result<Sizes, BadTable> {
        let mut ranges = Vec::new();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, range) = part.split_once(':').unwrap_or((part, "0-"));
            let (from, to) = range.split_once('-').ok_or_else(|| BadTable(format!("{range:?} is no range of sizes, such as 8k-1m")))?;
            let from = if from.trim().is_empty() { 0 } else { bytes(from)? };
            let to = if matches!(to.trim(), "" | "max" | "inf") { u64::MAX } else { bytes(to)? };
            if from >= to {
                return Err(BadTable(format!("the range {range:?} is empty")));
            }
            ranges.push((from, to, name.trim().parse()?));
        }
        if ranges.is_empty() { Err(BadTable("no algorithm is named".to_owned())) } else { Ok(Sizes(ranges)) }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (from, to, algorithm)) in self.0.iter().enumerate() {
            let end = if *to == u64::MAX { String::new() } else { short(*to) };
            write!(f, "{}{}:{}-{end}", if index == 0 { "" } else { ";" }, algorithm.name(), short(*from))?;
        }
        Ok(())
    }
}

/// A size such as `8k`, `1m`, `2g` or `1000`.
pub fn bytes(text: &str) -> Result<u64, BadTable> {
    let text = text.trim();
    let bad = || BadTable(format!("{text:?} is no size in bytes, such as 4096, 8k, 1m or 2g"));
    let (digits, shift) = match text.chars().last().ok_or_else(bad)?.to_ascii_lowercase() {
        'k' => (&text[..text.len() - 1], 10),
        'm' => (&text[..text.len() - 1], 20),
        'g' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| bad())?;
    number.checked_mul(1 << shift).ok_or_else(bad)
}

/// The size as [`bytes`] reads it.
pub fn short(bytes: u64) -> String {
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
    /// `None`: any.
    flavor: Option<String>,
    memory: Memory,
    ranks: (usize, usize),
    sizes: Sizes,
}

/// All rules, the first that fits counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table(Vec<Rule>);

impl Table {
    /// What was measured on this project's machines; `warpwave mpi tune` measures anew.
    pub fn built_in() -> Table {
        include_str!("table.txt").parse().unwrap_or_default()
    }

    /// The algorithms for calls of one kind; where no rule fits, the MPI does it.
    pub fn sizes(&self, flavor: Flavor, memory: Memory, ranks: usize) -> Sizes {
        let fits = |rule: &&Rule| {
            rule.flavor.as_deref().is_none_or(|name| name == flavor.name())
                && rule.memory == memory
                && (rule.ranks.0..=rule.ranks.1).contains(&ranks)
        };
        self.0.iter().find(fits).map_or_else(|| Sizes::all(Algorithm::Native), |rule| rule.sizes.clone())
    }
}

impl FromStr for Table {
    type Err = BadTable;

    fn from_str(text: &str) -> Result<Table, BadTable> {
        let mut rules = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<_> = line.split_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            let read = || -> Result<Rule, BadTable> {
                let [flavor, memory, ranks, sizes] = words[..] else {
                    return Err(BadTable("a rule has four words: MPI, memory, ranks, sizes".to_owned()));
                };
                let flavor = match flavor {
                    "any" => None,
                    "openmpi" | "mpich" | "abi" => Some(flavor.to_owned()),
                    _ => return Err(BadTable(format!("{flavor:?} is none of openmpi, mpich, abi, any"))),
                };
                let memory = match memory {
                    "host" => Memory::Host,
                    "device" => Memory::Device,
                    _ => return Err(BadTable(format!("{memory:?} is neither host nor device"))),
                };
                let number = |text: &str, empty: usize| match text {
                    "" => Ok(empty),
                    text => text.parse().map_err(|_| BadTable(format!("{text:?} is no number of ranks"))),
                };
                let ranks = match ranks.split_once('-') {
                    Some((from, to)) => (number(from, 0)?, number(to, usize::MAX)?),
                    None => (number(ranks, 0)?, number(ranks, 0)?),
                };
                Ok(Rule { flavor, memory, ranks, sizes: sizes.parse()? })
            };
            rules.push(read().map_err(|BadTable(why)| BadTable(format!("line {}: {why}", index + 1)))?);
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
            writeln!(f, "{:8} {memory:7} {ranks:6} {}", rule.flavor.as_deref().unwrap_or("any"), rule.sizes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_reads_and_prints_itself() {
        let table: Table = include_str!("table.txt").parse().unwrap();
        assert!(!table.0.is_empty());
        assert_eq!(table.to_string().parse::<Table>().unwrap(), table);
    }

    #[test]
    fn ranges_choose_by_size() {
        let sizes: Sizes = "recursive_doubling:0-8k;ring:8k-1m;rabenseifner:1m-".parse().unwrap();
        let chosen = [0, 8191, 8192, (1 << 20) - 1, 1 << 20, u64::MAX - 1].map(|bytes| sizes.get(bytes).unwrap().name());
        assert_eq!(chosen, ["recursive_doubling", "recursive_doubling", "ring", "ring", "rabenseifner", "rabenseifner"]);
        assert_eq!("ring".parse::<Sizes>().unwrap().get(5), Some(Algorithm::Ring));
        assert_eq!("ring:1k-2k".parse::<Sizes>().unwrap().get(5), None);
        assert_eq!("native:0-4k;native:4k-8k;ring:8k-".parse::<Sizes>().unwrap().native_below(), 8192);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            ("rong", "no algorithm is called \"rong\""),
            ("ring:8k", "is no range of sizes"),
            ("ring:2k-1k", "empty"),
            ("ring:1x-2k", "is no size"),
            ("ring:0-99999999999g", "is no size"),
            ("", "no algorithm is named"),
        ] {
            let error = text.parse::<Sizes>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        for (text, part) in [
            ("openmpi host 2", "four words"),
            ("lam host 2 ring", "none of openmpi"),
            ("any tape 2 ring", "neither host"),
            ("# fine\nany host two ring", "line 2"),
        ] {
            let error = text.parse::<Table>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
