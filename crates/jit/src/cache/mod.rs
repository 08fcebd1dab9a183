//! The disk cache of compiled code, shared by all processes of a user.
//!
//! # Guarantees
//!
//! - **Integrity.** [`Cache::get`] returns what was stored under that key, verified by SHA-256. A damaged or truncated entry, or one of
//!   another format version or key, is a miss, and the next [`Cache::get_or_try_insert`] replaces it.
//! - **Availability.** A folder that is read-only, full, missing, not a folder, or without locks only disables caching: the failure is logged
//!   once with `tracing::warn!`, and the outcome is [`Outcome::Uncached`].
//! - **Each entry is compiled once.** Of all threads and processes that request a missing key, one creates it and the others wait; if it is
//!   killed, the next one takes over.
//! - **Bounded size.** Writing evicts the least recently used entries until the folder is below its limit.
//! - **Own files only.** Other files in the folder are not counted or removed, and symlinks are not followed.
//!
//! # Left to the caller
//!
//! - The key must cover everything the bytes depend on.
//! - Errors are not cached: if creating an entry fails, the waiting callers retry one after another.
//! - Writers of the folder are trusted: checksums detect damage, not attacks. The folder is created with access for its owner only.
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! use warpwave_jit::cache::{Cache, Entry, KeyBuilder, Outcome};
//!
//! let compile = || std::fs::read("/dev/null").map(|code| Entry { meta: "{}".into(), payload: code });
//!
//! let cache = Cache::at(folder.path(), 1 << 20);
//! let key = KeyBuilder::new().field("source", b"...").field("target", b"sm_90").finish();
//! let (entry, outcome) = cache.get_or_try_insert(&key, compile)?;
//! assert_eq!(outcome, Outcome::Miss);
//! assert_eq!(cache.get(&key), Some(entry));
//! # Ok::<(), std::io::Error>(())
//! ```

mod admin;
mod entry;
mod evict;
mod folder;
mod key;
mod lock;
mod memo;
mod settings;

use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

pub use admin::{Cleared, Failure, Listed, Report, Stats};
pub use entry::Entry;
pub use key::{Key, KeyBuilder, ParseKeyError};
pub use memo::Memo;
pub use settings::DEFAULT_MAX_BYTES;

use entry::ReadError;
use lock::KeyLock;

/// The version of the entry format and of the key's encoding. Part of each key and each entry's file name, so that binaries with
/// different formats share a folder without seeing each other's entries (they do share the cap).
const FORMAT: u32 = 1;

/// A hit renews the entry's time of last use only if that is older than this: eviction needs no finer order, and a hot entry should
/// not cost a write on each use.
const TOUCH_AFTER: Duration = Duration::from_secs(60);

/// Where an entry came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was in the cache, or another thread or process put it there while this one waited.
    Hit,
    /// It was created now and stored.
    Miss,
    /// It was created now and not stored: the cache is disabled or failed, or the entry exceeds the limit.
    Uncached,
}

/// A handle on a cache folder, or on none. Cloning is cheap and clones share everything; all methods can be called from any thread.
#[derive(Clone, Debug)]
pub struct Cache {
    /// `None`: disabled.
    shared: Option<Arc<Shared>>,
    memo: Memo,
}

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    max_bytes: u64,
    warn_once: WarnOnce,
}

impl Cache {
    /// Opens the cache that the environment configures:
    ///
    /// - `WARPWAVE_CACHE=off` disables it;
    /// - `WARPWAVE_CACHE_DIR` is its folder, otherwise `$XDG_CACHE_HOME/warpwave`, otherwise `$HOME/.cache/warpwave`;
    /// - `WARPWAVE_CACHE_MAX_BYTES` is its cap, a number of bytes or `512M`, `2G`, …; otherwise [`DEFAULT_MAX_BYTES`].
    ///
    /// Invalid values and a missing folder are logged as warnings.
    pub fn from_env() -> Self {
        settings::cache(|name| std::env::var_os(name))
    }

    /// The cache in `folder`, of at most `max_bytes` (the sum of the entries' file sizes). Nothing is created before the first write.
    /// An empty path disables the cache with a warning.
    pub fn at(folder: impl AsRef<Path>, max_bytes: u64) -> Self {
        // Made absolute now, so that a later change of the working directory does not move the cache.
        let folder = match std::path::absolute(&folder) {
            Ok(folder) => folder,
            Err(error) => {
                tracing::warn!("kernel cache: cannot use directory {:?}: {error}; caching is disabled", folder.as_ref());
                return Self::disabled();
            }
        };
        let warn_once = WarnOnce::default();
        let memo = Memo::at(&folder, warn_once.clone());
        Self { shared: Some(Arc::new(Shared { folder, max_bytes, warn_once })), memo }
    }

    /// Creates a cache that stores nothing: every [`Cache::get`] is a miss, every outcome [`Outcome::Uncached`].
    pub fn disabled() -> Self {
        Self { shared: None, memo: Memo::in_process() }
    }

    /// The cache's folder, which need not exist yet; `None` if the cache is disabled.
    pub fn path(&self) -> Option<&Path> {
        self.shared.as_deref().map(|shared| &*shared.folder)
    }

    /// The memo in the cache's folder, or one in memory if the cache is disabled.
    pub fn memo(&self) -> &Memo {
        &self.memo
    }

    /// Returns the entry of `key` if it exists and is intact. Takes no lock and reads one file only.
    pub fn get(&self, key: &Key) -> Option<Entry> {
        self.shared.as_ref()?.lookup(key, true)
    }

    /// Returns the entry of `key`; creates it with `make` and stores it if it is missing.
    ///
    /// While one thread or process creates an entry, others that request the same key wait. `make` may use the cache for other keys; a
    /// request for its own key from the same thread is not cached instead of deadlocking. (From another thread that `make` waits for, it
    /// deadlocks.) Errors of `make` are returned; nothing else is an error.
    pub fn get_or_try_insert<E>(&self, key: &Key, make: impl FnOnce() -> Result<Entry, E>) -> Result<(Entry, Outcome), E> {
        let Some(shared) = &self.shared else { return Ok((make()?, Outcome::Uncached)) };
        if let Some(entry) = shared.lookup(key, true) {
            return Ok((entry, Outcome::Hit));
        }
        let Some(lock) = shared.lock(key) else { return Ok((make()?, Outcome::Uncached)) };
        // The previous holder of the lock may have created it. Damage was reported by the first lookup.
        if let Some(entry) = shared.lookup(key, false) {
            return Ok((entry, Outcome::Hit));
        }
        let entry = make()?;
        let stored = shared.store(key, &entry);
        drop(lock); // Waiting callers need not wait for the eviction.
        if !stored {
            return Ok((entry, Outcome::Uncached));
        }
        if let Err(error) = evict::enforce(&shared.folder, shared.max_bytes, key) {
            shared.warn_once.report("enforce the size limit of", &shared.folder, &error);
        }
        Ok((entry, Outcome::Miss))
    }
}

impl Shared {
    fn lookup(&self, key: &Key, report_damage: bool) -> Option<Entry> {
        let path = folder::entry_path(&self.folder, key);
        let read = || {
            let (file, metadata) = folder::open(&path)?;
            let entry = entry::read(&file, metadata.len(), key)?;
            touch(&file, &metadata);
            Ok(entry)
        };
        match read() {
            Ok(entry) => return Some(entry),
            Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(ReadError::Io(error)) => self.warn_once.report("read", &path, &error),
            Err(ReadError::Damaged(reason)) if report_damage => {
                tracing::warn!(entry = %path.display(), reason, "corrupt cache entry ignored; it will be replaced");
            }
            Err(ReadError::Damaged(_)) => {}
        }
        None
    }

    fn lock(&self, key: &Key) -> Option<KeyLock> {
        let path = folder::lock_path(&self.folder, key);
        if KeyLock::is_held_here(&path) {
            tracing::debug!(%key, "recursive request for a cache entry that this thread is creating; not cached");
            return None;
        }
        match folder::create(&self.folder).and_then(|()| KeyLock::acquire(&path)) {
            Ok(lock) => Some(lock),
            Err(error) => {
                self.warn_once.report("lock", &path, &error);
                None
            }
        }
    }

    fn store(&self, key: &Key, entry: &Entry) -> bool {
        let bytes = entry::file_len(entry);
        if bytes > self.max_bytes {
            tracing::debug!(%key, bytes, cap = self.max_bytes, "the entry is larger than the cache size limit; not stored");
            return false;
        }
        let path = folder::entry_path(&self.folder, key);
        match folder::replace(&self.folder, &path, |file| entry::write(file, key, entry)) {
            Ok(()) => true,
            Err(error) => {
                self.warn_once.report("write", &path, &error);
                false
            }
        }
    }
}

/// Notes a use of an entry in its modification time, which nothing else needs: entries never change in place. (The access time would
/// be the natural place, but most systems mount with `relatime` or `noatime`.) Times in the future are put right. Failure means a
/// folder that is not ours to write, and then eviction is not ours either.
fn touch(file: &File, metadata: &fs::Metadata) {
    let now = SystemTime::now();
    let recent = metadata.modified().is_ok_and(|used| now.duration_since(used).is_ok_and(|age| age <= TOUCH_AFTER));
    if !recent {
        let _ = file.set_modified(now);
    }
}

/// Reports a failing folder once: a read-only folder fails for each kernel in the same way.
#[derive(Clone, Debug, Default)]
struct WarnOnce(Arc<AtomicBool>);

impl WarnOnce {
    fn report(&self, action: &str, path: &Path, error: &dyn Error) {
        let path = path.display();
        if self.0.swap(true, Ordering::Relaxed) {
            tracing::debug!("kernel cache: cannot {action} {path}: {error}");
        } else {
            tracing::warn!(
                "kernel cache: cannot {action} {path}: {error}; continuing without the cache (shown once). \
                 Set WARPWAVE_CACHE_DIR to use another directory, or WARPWAVE_CACHE=off to disable the cache"
            );
        }
    }
}

#[cfg(test)]
mod tests;
