//! One maker per key: the lock protocol between processes.
//!
//! Each key has its own lock file, created by whoever needs it and locked with `flock`. Three rules make it right:
//!
//! 1. Only the holder of the lock removes the file, while holding it.
//! 2. Whoever obtains the lock checks that the path still names the file it locked; if not, that file was removed by the holder
//!    before, the lock on it keeps nobody out, and the attempt starts again.
//! 3. The kernel drops the lock when the holder's file descriptor goes, so a killed holder blocks nobody. Its file stays behind and
//!    is an ordinary lock file for the next one.
//!
//! Rules 1 and 2 together mean that lock files exist only for keys in the making, and that leftovers can be swept by taking their
//! lock first. The alternative, a fixed set of files shared by many keys, needs no removal but deadlocks as soon as one entry is
//! created while creating another whose key falls on the same file. With a file per key, nested use waits in a circle only if the entries
//! themselves depend on each other in a circle.
//!
//! The lock saves work; correctness never rests on it. If it fails (someone empties the folder by hand, a network file system with a
//! late view of the folder), two processes make the same entry, and the later atomic rename wins.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

thread_local! {
    /// The lock files this thread holds. A second lock on one of them would wait for this thread for ever.
    static HELD: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
}

/// A held lock; dropping it removes the file and lets the next one in.
pub(super) struct KeyLock {
    file: File,
    path: PathBuf,
    /// `HELD` belongs to the thread that took the lock, so the lock must be dropped there.
    not_send: PhantomData<*const ()>,
}

impl KeyLock {
    /// Waits for the lock.
    pub(super) fn acquire(path: &Path) -> io::Result<Self> {
        loop {
            let file = open(path, true)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => {
                    tracing::info!(lock = %path.display(), "another process or thread is creating this cache entry; waiting");
                    wait(&file)?;
                }
            }
            if names(path, &file)? {
                return Ok(Self::held(file, path));
            }
        }
    }

    /// Takes the lock of a file that exists, unless someone has it.
    pub(super) fn try_acquire_existing(path: &Path) -> io::Result<Option<Self>> {
        let file = open(path, false)?;
        match file.try_lock() {
            Ok(()) if names(path, &file)? => Ok(Some(Self::held(file, path))),
            Ok(()) | Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Whether the calling thread holds the lock at `path`.
    pub(super) fn is_held_here(path: &Path) -> bool {
        HELD.with_borrow(|held| held.iter().any(|one| one == path))
    }

    fn held(file: File, path: &Path) -> Self {
        HELD.with_borrow_mut(|held| held.push(path.to_owned()));
        Self { file, path: path.to_owned(), not_send: PhantomData }
    }
}

impl Drop for KeyLock {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| held.retain(|one| *one != self.path));
        // Failures leave a file behind or a descriptor to close; the first is swept later, the second happens right after this.
        if names(&self.path, &self.file).unwrap_or(false) {
            let _ = fs::remove_file(&self.path);
        }
        // Said explicitly, because closing is not enough while a child forked meanwhile has a copy of the descriptor.
        let _ = self.file.unlock();
    }
}

fn open(path: &Path, create: bool) -> io::Result<File> {
    // Not through symlinks (the file must be ours), and never waiting for the other end of a pipe of that name.
    let options = || {
        let mut options = OpenOptions::new();
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        options
    };
    // Open for writing, because NFS turns `flock` into a record lock that demands it; where the file is another user's, reading must do.
    match options().write(true).create(create).truncate(false).open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => options().read(true).open(path).map_err(|_| error),
        opened => opened,
    }
}

fn wait(file: &File) -> io::Result<()> {
    loop {
        match file.lock() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Whether `path` is a name of the open `file`. The open descriptor keeps the inode from being reused, so equal numbers mean the same file.
fn names(path: &Path, file: &File) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn never_two_holders_although_each_removes_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one.lock");
        let [inside, rounds, overlaps] = [const { AtomicU32::new(0) }; 3];
        let hold = |pause| {
            overlaps.fetch_add(inside.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            thread::sleep(pause);
            inside.fetch_sub(1, Ordering::SeqCst);
        };
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..150 {
                        let _lock = KeyLock::acquire(&path).unwrap();
                        hold(Duration::from_micros(20));
                        rounds.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            // The sweeper is a party to the protocol, too.
            scope.spawn(|| {
                while rounds.load(Ordering::SeqCst) < 8 * 150 {
                    if let Ok(Some(_lock)) = KeyLock::try_acquire_existing(&path) {
                        hold(Duration::ZERO);
                    }
                    thread::yield_now();
                }
            });
        });
        assert_eq!(overlaps.into_inner(), 0, "the lock had two holders at a time");
        assert!(!path.exists(), "the last holder left the file behind");
    }

    #[test]
    fn a_held_lock_is_known_to_its_thread_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one.lock");
        let lock = KeyLock::acquire(&path).unwrap();
        assert!(KeyLock::is_held_here(&path));
        assert!(!thread::scope(|scope| scope.spawn(|| KeyLock::is_held_here(&path)).join().unwrap()));
        assert!(KeyLock::try_acquire_existing(&path).unwrap().is_none());
        drop(lock);
        assert!(!KeyLock::is_held_here(&path));
    }

    #[test]
    fn a_symlink_in_the_lock_files_place_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, target) = (folder.path().join("one.lock"), folder.path().join("target"));
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(KeyLock::acquire(&path).is_err());
        assert!(!target.exists());
    }
}
