//! Keeping the folder below its cap, and sweeping what killed processes left in it.
//!
//! Runs after each write, and looks at the whole folder then: the folder is the only state that all processes share, and next to the
//! compilation that came before, a scan costs nothing worth a second bookkeeping that could be wrong.
//!
//! Evictions by several processes at once need no lock. Each goes through the same files in the same order, counts a file that
//! another removed first as freed, and so stops at the same place. An entry removed while it is being read is read to its end; one
//! used or rewritten after the scan and removed all the same is a later miss.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::Key;
use super::folder::{self, Found, Kind};
use super::lock::KeyLock;

/// A temporary or lock file this old has lost its process. Writing takes seconds, since the payload is complete before it starts;
/// making may take longer, but then the lock file is locked and stays.
const STALE: Duration = Duration::from_secs(60 * 60);

/// Removes the least recently used entries until at most `max_bytes` remain, sparing `keep`, and sweeps stale files.
pub(super) fn enforce(folder: &Path, max_bytes: u64, keep: &Key) -> io::Result<()> {
    let now = SystemTime::now();
    let (mut entries, others): (Vec<Found>, Vec<Found>) =
        folder::scan(folder)?.into_iter().partition(|found| matches!(found.kind, Kind::Entry { .. }));
    for other in others {
        if is_stale(&other, now) {
            let swept = match other.kind {
                Kind::Temp => folder::remove(&other.path),
                Kind::Lock => sweep_lock(&other.path),
                Kind::Entry { .. } | Kind::Memo => Ok(()),
            };
            if let Err(error) = swept {
                tracing::debug!(file = %other.path.display(), %error, "a stale file could not be removed");
            }
        }
    }

    let mut total: u64 = entries.iter().map(|entry| entry.bytes).sum();
    if total <= max_bytes {
        return Ok(());
    }
    // An entry "used" in the future (a clock set back) would outlive all others: it counts as never used.
    entries.sort_by_cached_key(|entry| {
        (if entry.modified > now + STALE { SystemTime::UNIX_EPOCH } else { entry.modified }, entry.path.clone())
    });
    let mut failure = None;
    for entry in entries {
        if total <= max_bytes {
            break;
        }
        if matches!(entry.kind, Kind::Entry { key, .. } if key == *keep) {
            continue;
        }
        match folder::remove(&entry.path) {
            Ok(()) => {
                tracing::debug!(entry = %entry.path.display(), bytes = entry.bytes, "evicted");
                total -= entry.bytes;
            }
            // In a folder shared with other users one entry may not be ours to remove while the next is.
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) if total > max_bytes => Err(error),
        _ => Ok(()),
    }
}

/// Whether a temporary or lock file is old enough to be swept.
pub(super) fn is_stale(found: &Found, now: SystemTime) -> bool {
    now.duration_since(found.modified).is_ok_and(|age| age > STALE)
}

/// Removes a lock file that nobody holds, by the rules of [`super::lock`]: taking the lock and dropping it is removing the file.
pub(super) fn sweep_lock(path: &Path) -> io::Result<()> {
    match KeyLock::try_acquire_existing(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
