//! What a person wants of the cache: how much is in it, what, is it whole, away with it.
//!
//! None of this is on the way of a compilation, so it reads the folder at leisure. Other processes may use the cache meanwhile.

use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use super::entry::{self, ReadError};
use super::folder::{self, Found, Kind};
use super::{Cache, FORMAT, Key, evict};

/// The size of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Entries in the folder, also those of other format versions.
    pub entries: u64,
    /// The sum of their file sizes.
    pub bytes: u64,
    /// The cap; 0 if the cache is disabled.
    pub max_bytes: u64,
    /// The last use (to about a minute) of the entry that would be evicted first.
    pub oldest: Option<SystemTime>,
    /// The last use of the entry used most recently.
    pub newest: Option<SystemTime>,
}

/// One entry in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: Key,
    /// The size of its file.
    pub bytes: u64,
    /// When it was last used, to about a minute.
    pub last_used: SystemTime,
    /// The caller's text, checked; `None` if the entry is damaged or of another format version. The payload is not checked here.
    pub meta: Option<String>,
}

/// What [`Cache::verify`] found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Whole entries.
    pub good: u64,
    /// Damaged entries. They were removed, save those in `failed`.
    pub damaged: u64,
    /// Entries of other format versions, which only a binary with that format can check.
    pub other_versions: u64,
    /// Files that could not be read, or not removed.
    pub failed: Vec<Failure>,
}

/// What [`Cache::clear`] removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cleared {
    /// Entries removed, also those of other format versions.
    pub entries: u64,
    /// The sum of their file sizes.
    pub bytes: u64,
    /// Files that could not be removed.
    pub failed: Vec<Failure>,
}

/// A file or folder that an operation could not deal with, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {action} {}: {reason}", path.display())]
pub struct Failure {
    /// What was to be done: `read`, `remove`.
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// The system's reason.
    pub reason: String,
}

impl Failure {
    fn new(action: &'static str, path: PathBuf, error: impl ToString) -> Self {
        Self { action, path, reason: error.to_string() }
    }
}

impl Cache {
    /// How much is in the cache. All zero if it is disabled or the folder cannot be read (which is logged).
    pub fn stats(&self) -> Stats {
        let max_bytes = self.shared.as_ref().map_or(0, |shared| shared.max_bytes);
        let entries = self.scan_or_report();
        let entries: Vec<&Found> = entries.iter().filter(|found| matches!(found.kind, Kind::Entry { .. })).collect();
        Stats {
            entries: entries.len() as u64,
            bytes: entries.iter().map(|entry| entry.bytes).sum(),
            max_bytes,
            oldest: entries.iter().map(|entry| entry.modified).min(),
            newest: entries.iter().map(|entry| entry.modified).max(),
        }
    }

    /// All entries, the most recently used first.
    pub fn entries(&self) -> Vec<Listed> {
        let list = |found: Found| {
            let Kind::Entry { key, version } = found.kind else { return None };
            let head = || -> Result<_, ReadError> {
                let (file, metadata) = folder::open(&found.path)?;
                entry::read_head(file, metadata.len(), &key)
            };
            let meta = if version == FORMAT { head().ok().map(|head| head.meta) } else { None };
            Some(Listed { key, bytes: found.bytes, last_used: found.modified, meta })
        };
        let mut entries: Vec<Listed> = self.scan_or_report().into_iter().filter_map(list).collect();
        entries.sort_by_key(|entry| (std::cmp::Reverse(entry.last_used), entry.key));
        entries
    }

    /// Reads and checks every entry, and removes those that are damaged.
    pub fn verify(&self) -> Report {
        let mut report = Report::default();
        for found in self.scan_into(&mut report.failed) {
            let Kind::Entry { key, version } = found.kind else { continue };
            if version != FORMAT {
                report.other_versions += 1;
                continue;
            }
            let check = || {
                let (file, metadata) = folder::open(&found.path)?;
                entry::read(file, metadata.len(), &key)
            };
            match check() {
                Ok(_) => report.good += 1,
                Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
                Err(ReadError::Io(error)) => report.failed.push(Failure::new("read", found.path, error)),
                Err(ReadError::Damaged(reason)) => {
                    tracing::warn!(entry = %found.path.display(), reason, "corrupt cache entry; removing it");
                    report.damaged += 1;
                    if let Err(error) = folder::remove(&found.path) {
                        report.failed.push(Failure::new("remove", found.path, error));
                    }
                }
            }
        }
        report
    }

    /// Removes all entries, the memo, and what killed processes left behind: only files the cache itself made.
    ///
    /// Processes at work are not disturbed: what they are writing at this moment appears afterwards.
    pub fn clear(&self) -> Cleared {
        let mut cleared = Cleared::default();
        for found in self.scan_into(&mut cleared.failed) {
            let removed = match found.kind {
                Kind::Entry { .. } | Kind::Memo => folder::remove(&found.path),
                Kind::Lock => evict::sweep_lock(&found.path),
                Kind::Temp if evict::is_stale(&found, SystemTime::now()) => folder::remove(&found.path),
                Kind::Temp => Ok(()),
            };
            match (removed, found.kind) {
                (Ok(()), Kind::Entry { .. }) => {
                    cleared.entries += 1;
                    cleared.bytes += found.bytes;
                }
                (Ok(()), _) => {}
                (Err(error), _) => cleared.failed.push(Failure::new("remove", found.path, error)),
            }
        }
        cleared
    }

    fn scan_into(&self, failed: &mut Vec<Failure>) -> Vec<Found> {
        let Some(shared) = &self.shared else { return Vec::new() };
        folder::scan(&shared.folder).unwrap_or_else(|error| {
            failed.push(Failure::new("read", shared.folder.clone(), error));
            Vec::new()
        })
    }

    fn scan_or_report(&self) -> Vec<Found> {
        let Some(shared) = &self.shared else { return Vec::new() };
        folder::scan(&shared.folder).unwrap_or_else(|error| {
            shared.warn_once.report("read", &shared.folder, &error);
            Vec::new()
        })
    }
}
