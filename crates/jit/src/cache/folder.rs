//! The cache's folder: what the files in it are called, and which of them are the cache's own.
//!
//! The folder is flat. A file belongs to the cache only if it is a regular file (not a symlink, a pipe, a folder) with one of the
//! names below; everything else in the folder belongs to others and is neither counted nor touched.
//!
//! | name | what |
//! |---|---|
//! | `<key>.ww<version>` | an entry of that format version |
//! | `<key>.wwlock` | the lock of a key in the making |
//! | `ww-tmp-<random>` | a file being written, renamed to its final name when whole |
//! | `ww-memo` | the memo |

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tempfile::NamedTempFile;

use super::{FORMAT, Key};

const TEMP_PREFIX: &str = "ww-tmp-";
const MEMO: &str = "ww-memo";

/// What a file of the cache is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Entry { key: Key, version: u32 },
    Lock,
    Temp,
    Memo,
}

/// A file of the cache, as a scan of the folder saw it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) kind: Kind,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// For an entry, its last use: see `touch` in the parent module.
    pub(super) modified: SystemTime,
}

pub(super) fn entry_path(folder: &Path, key: &Key) -> PathBuf {
    folder.join(format!("{key}.ww{FORMAT}"))
}

pub(super) fn lock_path(folder: &Path, key: &Key) -> PathBuf {
    folder.join(format!("{key}.wwlock"))
}

pub(super) fn memo_path(folder: &Path) -> PathBuf {
    folder.join(MEMO)
}

/// Returns the kind of file with this name; `None` for names the cache never uses.
fn kind_of(name: &str) -> Option<Kind> {
    if name == MEMO {
        return Some(Kind::Memo);
    }
    if let Some(random) = name.strip_prefix(TEMP_PREFIX) {
        return (random.len() == 6 && random.bytes().all(|c| c.is_ascii_alphanumeric())).then_some(Kind::Temp);
    }
    let (key, rest) = name.split_once(".ww")?;
    let key = key.parse().ok()?;
    if rest == "lock" {
        return Some(Kind::Lock);
    }
    let version = rest.parse().ok()?;
    // One spelling per version: `.ww01` and `.ww+1` would parse, too.
    (u32::to_string(&version) == rest).then_some(Kind::Entry { key, version })
}

/// Makes the folder, for its owner alone unless it is there already (as the XDG rules want it).
pub(super) fn create(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Opens a file of the cache for reading: never through a symlink, never waiting for the other end of a pipe, regular files only.
pub(super) fn open(path: &Path) -> io::Result<(File, fs::Metadata)> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok((file, metadata))
}

/// Writes a whole file or nothing: readers see the old file, no file, or all of the new one.
///
/// No fsync: after a power cut the new name may stand before the new bytes, and the checksums turn that into a miss.
pub(super) fn replace(folder: &Path, path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    // The umask decides who may read, as for any file: in a folder shared by a group, entries are of use to the group.
    let permissions = fs::Permissions::from_mode(0o666);
    let mut temp: NamedTempFile =
        tempfile::Builder::new().prefix(TEMP_PREFIX).rand_bytes(6).permissions(permissions).tempfile_in(folder)?;
    write(temp.as_file_mut())?;
    temp.persist(path)?;
    Ok(())
}

/// Returns all files of the cache in `folder`; empty if the folder does not exist. Files that vanish during the scan are skipped.
pub(super) fn scan(folder: &Path) -> io::Result<Vec<Found>> {
    let listing = match fs::read_dir(folder) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for item in listing {
        let item = item?;
        let Some(kind) = item.file_name().to_str().and_then(kind_of) else { continue };
        // `DirEntry::metadata` does not follow symlinks.
        let Ok(metadata) = item.metadata() else { continue };
        if metadata.is_file() {
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            found.push(Found { kind, path: item.path(), bytes: metadata.len(), modified });
        }
    }
    Ok(found)
}

/// Removes a file; that it is gone already is as good.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::KeyBuilder;

    fn name(path: PathBuf) -> String {
        path.file_name().unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn the_cache_knows_the_names_it_gives() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let key = KeyBuilder::new().finish();
        assert_eq!(kind_of(&name(entry_path(folder, &key))), Some(Kind::Entry { key, version: FORMAT }));
        assert_eq!(kind_of(&name(lock_path(folder, &key))), Some(Kind::Lock));
        assert_eq!(kind_of(&name(memo_path(folder))), Some(Kind::Memo));
        let mut temps = Vec::new();
        let failed = replace(folder, &folder.join("never"), |_| {
            temps = scan(folder).unwrap();
            Err(io::Error::other("stop here"))
        });
        assert!(failed.is_err());
        assert_eq!(temps.iter().map(|found| found.kind).collect::<Vec<_>>(), [Kind::Temp]);
        assert_eq!(fs::read_dir(folder).unwrap().count(), 0, "a failed write left something behind");
    }

    #[test]
    fn names_that_only_look_similar_are_foreign() {
        let key = KeyBuilder::new().finish().to_string();
        let foreign = [
            format!("{key}.ww01"),
            format!("{key}.ww+1"),
            format!("{key}.ww"),
            format!("{key}.ww1.bak"),
            format!("{key}.wwlock~"),
            format!("{}.ww1", key.to_uppercase()),
            format!("{}.ww1", &key[1..]),
            format!("x{key}.ww1"),
            key,
            "ww-tmp-".into(),
            "ww-tmp-notes.txt".into(),
            "ww-memory".into(),
        ];
        for name in foreign {
            assert_eq!(kind_of(&name), None, "{name}");
        }
    }

    #[test]
    fn a_scan_sees_regular_files_only() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let key = |text: &[u8]| KeyBuilder::new().field("", text).finish();
        fs::create_dir(entry_path(folder, &key(b"folder"))).unwrap();
        fs::write(folder.join("outside"), "keep").unwrap();
        std::os::unix::fs::symlink("outside", entry_path(folder, &key(b"link"))).unwrap();
        fs::write(entry_path(folder, &key(b"file")), "seen").unwrap();
        let found = scan(folder).unwrap();
        assert_eq!(found.iter().map(|found| &found.path).collect::<Vec<_>>(), [&entry_path(folder, &key(b"file"))]);
    }
}
