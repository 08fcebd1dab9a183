//! Settings from the environment.
//!
//! Ranks may have different environments. Settings that affect messages are therefore those of rank 0, broadcast once per communicator
//! ([`CommSettings`]); the others are read by each process ([`ProcessSettings`]).
//!
//! CAIL's variables are accepted: `CAIL_ALGO`, `CAIL_MIN_MSG_SIZE` (default 32768), `CAIL_MSG_SMALL_THRESHOLD` (default 262144),
//! `CAIL_DEBUG` and `CAIL_WARN`. If one of the first three is set, messages below the minimum size go to the MPI library, those below
//! the small-message threshold use recursive doubling, and larger ones Rabenseifner. `WARPWAVE_MPI_ALGO` overrides them.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::abi::Flavor;
use crate::log;
use crate::table::{Algorithm, Memory, ParseError, Selection, Table, parse_size};

const ALGO: &str = "WARPWAVE_MPI_ALGO";
const TABLE: &str = "WARPWAVE_MPI_TABLE";
const CAIL_ALGO: &str = "CAIL_ALGO";

/// Settings that all ranks of a communicator must share, as text that can be broadcast.
///
/// The first line may be `forced SOURCE SELECTION`; the rest is a tuning table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommSettings {
    text: String,
}

/// Settings of this process alone.
#[derive(Debug, Clone, Copy)]
pub struct ProcessSettings {
    /// Count calls and print the counters at `MPI_Finalize`.
    pub stats: bool,
    /// Print the algorithm of each call.
    pub debug: bool,
    /// Print warnings.
    pub warn: bool,
    /// Print messages in CAIL's form: a `CAIL_*` variable is set.
    pub cail: bool,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn is_enabled(name: &str) -> bool {
    variable(name).is_some_and(|value| !matches!(value.as_str(), "0" | "no" | "off" | "false"))
}

impl ProcessSettings {
    /// Returns the settings, read from the environment once.
    pub fn get() -> ProcessSettings {
        static SETTINGS: OnceLock<ProcessSettings> = OnceLock::new();
        *SETTINGS.get_or_init(|| ProcessSettings {
            stats: is_enabled("WARPWAVE_MPI_STATS"),
            debug: is_enabled("WARPWAVE_MPI_DEBUG") || is_enabled("CAIL_DEBUG"),
            warn: !matches!(variable("CAIL_WARN").as_deref(), Some("0")),
            cail: std::env::vars_os().any(|(name, _)| name.to_string_lossy().starts_with("CAIL_")),
        })
    }
}

impl CommSettings {
    /// Returns this process's settings. Invalid ones are reported and ignored.
    pub fn from_env() -> &'static CommSettings {
        static SETTINGS: OnceLock<CommSettings> = OnceLock::new();
        SETTINGS.get_or_init(|| {
            let table = table_path().and_then(|path| {
                let read = std::fs::read_to_string(&path).map_err(|error| error.to_string());
                let table = read.and_then(|text| text.parse::<Table>().map_err(|ParseError(why)| why));
                table.map_err(|why| log::invalid_setting(format_args!("{}: {why}; using the built-in table", path.display()))).ok()
            });
            let mut lines = Vec::new();
            if let Some((source, selection)) = forced_by_env() {
                lines.push(format!("forced {source} {selection}"));
            }
            lines.extend(table.unwrap_or_else(Table::built_in).to_string().lines().map(str::to_owned));
            CommSettings { text: lines.join("\n") }
        })
    }

    /// Returns the text to broadcast.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Creates settings from broadcast text. Rules that this version cannot parse select the MPI library.
    pub fn from_text(text: String) -> CommSettings {
        CommSettings { text }
    }

    /// Returns the algorithms for all calls on a communicator of `ranks` ranks.
    pub fn selection(&self, flavor: Flavor, memory: Memory, ranks: usize) -> Selection {
        self.forced().unwrap_or_else(|| self.table().parse::<Table>().unwrap_or_default().selection(flavor, memory, ranks))
    }

    /// Returns the algorithms that an environment variable prescribes for all communicators.
    pub fn forced(&self) -> Option<Selection> {
        self.forced_line()?.1.parse().ok()
    }

    /// Returns what determines the algorithm: an environment variable, or the tuning table.
    pub fn source(&self) -> &str {
        self.forced_line().map_or("tuning table", |(source, _)| source)
    }

    /// Returns the rules as lines for display.
    pub fn rules(&self) -> impl Iterator<Item = String> {
        let forced = self.forced_line().map(|(source, selection)| format!("{source}={selection}"));
        forced.into_iter().chain(self.table().lines().map(str::to_owned))
    }

    fn forced_line(&self) -> Option<(&str, &str)> {
        self.text.lines().next()?.strip_prefix("forced ")?.split_once(' ')
    }

    fn table(&self) -> &str {
        match self.text.split_once('\n') {
            Some((first, rest)) if first.starts_with("forced ") => rest,
            _ => &self.text,
        }
    }
}

/// Returns the table file: the one `WARPWAVE_MPI_TABLE` names, or the tuned table of this machine if it exists.
fn table_path() -> Option<PathBuf> {
    variable(TABLE).map(PathBuf::from).or_else(|| default_table_path().filter(|path| path.exists()))
}

/// Returns where `warpwave mpi tune` stores its table.
pub fn default_table_path() -> Option<PathBuf> {
    let config = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| Some(PathBuf::from(variable("HOME")?).join(".config")))?;
    Some(config.join("warpwave/mpi.table"))
}

/// Returns the variable that prescribes algorithms, and what it prescribes.
fn forced_by_env() -> Option<(&'static str, Selection)> {
    let parsed = |name: &str| {
        let value = variable(name).filter(|value| value != "auto")?;
        value.parse::<Selection>().map_err(|ParseError(why)| log::invalid_setting(format_args!("{name}: {why}; using auto"))).ok()
    };
    let size = |name: &str| {
        let value = variable(name)?;
        parse_size(&value).map_err(|ParseError(why)| log::invalid_setting(format_args!("{name}: {why}; using the default"))).ok()
    };
    if let Some(selection) = parsed(ALGO) {
        return Some((ALGO, selection));
    }
    let (algorithm, min_size, small) = (parsed(CAIL_ALGO), size("CAIL_MIN_MSG_SIZE"), size("CAIL_MSG_SMALL_THRESHOLD"));
    if algorithm.is_none() && min_size.is_none() && small.is_none() {
        return None;
    }
    let source = if algorithm.is_some() { CAIL_ALGO } else { "CAIL_MIN_MSG_SIZE,CAIL_MSG_SMALL_THRESHOLD" };
    let min_size = min_size.unwrap_or(32 << 10);
    let small = small.unwrap_or(256 << 10).max(min_size);
    let name = |bytes: u64| algorithm.as_ref().and_then(|selection| selection.get(bytes)).map(Algorithm::name);
    let (low, high) = (name(min_size).unwrap_or("recursive_doubling"), name(small).unwrap_or("rabenseifner"));
    let ranges = [("native", 0, min_size), (low, min_size, small)];
    let ranges = ranges.iter().filter(|(_, from, to)| from < to).map(|(name, from, to)| format!("{name}:{from}-{to};"));
    Some((source, format!("{}{high}:{small}-", ranges.collect::<String>()).parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forced_selection_precedes_the_table() {
        let settings = CommSettings::from_text("forced CAIL_ALGO ring:0-\nany host 2- native:0-".to_owned());
        assert_eq!(settings.source(), "CAIL_ALGO");
        assert_eq!(settings.selection(Flavor::Mpich, Memory::Host, 2).get(5), Some(Algorithm::Ring));
        assert_eq!(settings.rules().collect::<Vec<_>>(), ["CAIL_ALGO=ring:0-", "any host 2- native:0-"]);
        let settings = CommSettings::from_text("any host 2- rabenseifner:0-".to_owned());
        assert_eq!((settings.source(), settings.forced()), ("tuning table", None));
        assert_eq!(settings.selection(Flavor::Mpich, Memory::Host, 2).get(5), Some(Algorithm::Rabenseifner));
    }
}
