//! What the environment asks for.
//!
//! Ranks may see different environments. What decides about messages is therefore agreed on: rank 0 of a communicator says it, and
//! the others follow ([`crate::comm`]).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use crate::abi::Flavor;
use crate::comm::lock;
use crate::table::{Algorithm, BadTable, Memory, Sizes, Table, bytes};

/// The settings that all ranks of a communicator must share, as text that can be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shared {
    text: String,
}

/// Settings of this process alone.
#[derive(Debug, Clone, Copy)]
pub struct Local {
    /// Count, and print the counts at the end.
    pub stats: bool,
    /// Say what is chosen.
    pub debug: bool,
    /// Say what could not be done.
    pub warn: bool,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn is_on(name: &str) -> bool {
    variable(name).is_some_and(|value| !matches!(value.as_str(), "0" | "no" | "off" | "false"))
}

impl Local {
    pub fn get() -> Local {
        static LOCAL: OnceLock<Local> = OnceLock::new();
        *LOCAL.get_or_init(|| Local {
            stats: is_on("WARPWAVE_MPI_STATS"),
            debug: is_on("WARPWAVE_MPI_DEBUG") || is_on("CAIL_DEBUG"),
            warn: !matches!(variable("CAIL_WARN").as_deref(), Some("0")),
        })
    }
}

/// Tells the user, on standard error.
pub fn warn(text: impl std::fmt::Display) {
    if Local::get().warn {
        eprintln!("warpwave-mpi: {text}");
    }
}

/// The same, for what would come with every call.
pub fn warn_once(text: impl std::fmt::Display) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let text = text.to_string();
    if lock(&SAID).insert(text.clone()) {
        warn(text);
    }
}

impl Shared {
    /// What this process's environment asks for. What cannot be read is said, and left out.
    pub fn from_environment() -> &'static Shared {
        static SHARED: OnceLock<Shared> = OnceLock::new();
        SHARED.get_or_init(|| {
            let table = tuned().and_then(|path| {
                let read = std::fs::read_to_string(&path).map_err(|error| error.to_string());
                let table = read.and_then(|text| text.parse::<Table>().map_err(|BadTable(why)| why));
                table.map_err(|why| warn(format_args!("{}: {why}; the built-in table is used", path.display()))).ok()
            });
            let mut lines = Vec::new();
            if let Some(sizes) = chosen() {
                lines.push(format!("all {sizes}"));
            }
            lines.extend(table.unwrap_or_else(Table::built_in).to_string().lines().map(str::to_owned));
            Shared { text: lines.join("\n") }
        })
    }

    /// As it is sent.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// As it came. It was written by this library, perhaps of another version: what it cannot read is the MPI's.
    pub fn from_text(text: String) -> Shared {
        Shared { text }
    }

    /// The algorithms for calls on a communicator of `ranks`.
    pub fn sizes(&self, flavor: Flavor, memory: Memory, ranks: usize) -> Sizes {
        let (all, rest) = match self.text.split_once('\n') {
            Some((first, rest)) if first.starts_with("all ") => (first[4..].parse().ok(), rest),
            _ => (None, self.text.as_str()),
        };
        let table = || rest.parse::<Table>().unwrap_or_default().sizes(flavor, memory, ranks);
        all.unwrap_or_else(table)
    }
}

/// The table to use: the one `WARPWAVE_MPI_TABLE` names, or what was tuned on this machine.
fn tuned() -> Option<PathBuf> {
    variable("WARPWAVE_MPI_TABLE").map(PathBuf::from).or_else(|| tuned_path().filter(|path| path.exists()))
}

/// Where a tuned table is kept.
pub fn tuned_path() -> Option<PathBuf> {
    let config = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| Some(PathBuf::from(variable("HOME")?).join(".config")))?;
    Some(config.join("warpwave/mpi.table"))
}

/// `WARPWAVE_MPI_ALGO`, or the older names of CAIL.
fn chosen() -> Option<Sizes> {
    let parsed = |name: &str| {
        let value = variable(name).filter(|value| value != "auto")?;
        value.parse::<Sizes>().map_err(|BadTable(why)| warn(format_args!("{name}: {why}; the table is used"))).ok()
    };
    let size = |name: &str| {
        let value = variable(name)?;
        bytes(&value).map_err(|BadTable(why)| warn(format_args!("{name}: {why}"))).ok()
    };
    if let Some(sizes) = parsed("WARPWAVE_MPI_ALGO") {
        return Some(sizes);
    }
    let (algorithm, least, small) = (parsed("CAIL_ALGO"), size("CAIL_MIN_MSG_SIZE"), size("CAIL_MSG_SMALL_THRESHOLD"));
    if algorithm.is_none() && least.is_none() && small.is_none() {
        return None;
    }
    let least = least.unwrap_or(32 << 10);
    let small = small.unwrap_or(256 << 10).max(least);
    let name = |bytes: u64| algorithm.as_ref().and_then(|sizes| sizes.get(bytes)).map(Algorithm::name);
    let (low, high) = (name(least).unwrap_or("recursive_doubling"), name(small).unwrap_or("rabenseifner"));
    let ranges = [("native", 0, least), (low, least, small)];
    let ranges = ranges.iter().filter(|(_, from, to)| from < to).map(|(name, from, to)| format!("{name}:{from}-{to};"));
    format!("{}{high}:{small}-", ranges.collect::<String>()).parse().ok()
}
