//! The memo: facts about files that cost something to find out, such as a compiler's version or a header's hash.
//!
//! A fact holds as long as its file is the same file: same path, size, inode, modification time and change time. The change time is
//! there because tools set the modification time back (`cp -p`, `tar`, `rsync`), and nothing sets the change time. A file changed within
//! the last [`SETTLE`] is not remembered at all: a second change in the same tick of the file system's clock would not show.
//!
//! All facts lie in one file, since a process that starts warm asks for hundreds of them: one read instead of as many as the headers
//! themselves would take. Each new fact rewrites that file, merged with what others wrote meanwhile, and renames it into place.
//! Two processes that do so at the same moment lose one fact, which costs finding it out again; a lock would cost more.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Key, WarnOnce, folder};

/// The coarsest clock among the file systems one meets (FAT: two seconds).
const SETTLE: Duration = Duration::from_secs(2);
/// Above this many facts the oldest are forgotten, so that headers in folders with random names do not pile up.
const MAX_FACTS: usize = 4096;
/// More is not a memo of ours. With it, a damaged or foreign file cannot ask for the machine's memory.
const MAX_FILE: u64 = 64 << 20;
/// Starts the first line of the file; the SHA-256 of everything after that line ends it.
const TITLE: &str = "warpwave-memo 1 ";

/// Remembers facts about files, in the cache's folder and in memory. Cloning is cheap and clones share their memory.
#[derive(Clone, Debug)]
pub struct Memo(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The cache's folder; `None` for a memo in memory only.
    folder: Option<PathBuf>,
    state: Mutex<State>,
    warn_once: WarnOnce,
}

#[derive(Debug, Default)]
struct State {
    facts: HashMap<Subject, Fact>,
    /// The memo file as it was when last read, to read it again only when it has changed.
    seen: Option<Stamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Subject {
    path: String,
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Fact {
    stamp: Stamp,
    /// When it was found out, in seconds since 1970.
    made: u64,
    value: String,
}

/// Metadata that changes when a file does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    size: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            size: metadata.size(),
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    fn has_settled(&self, now: SystemTime) -> bool {
        let (seconds, nanos) = self.changed;
        let changed = Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanos).unwrap_or(0));
        since_1970(now).checked_sub(changed).is_some_and(|age| age >= SETTLE)
    }
}

impl Memo {
    /// The memo in a cache's folder. Nothing is read or created before the first use.
    pub(super) fn at(folder: &Path, warn_once: WarnOnce) -> Self {
        Self::new(Some(folder.to_owned()), warn_once)
    }

    /// A memo that ends with the process.
    pub fn in_process() -> Self {
        Self::new(None, WarnOnce::default())
    }

    fn new(folder: Option<PathBuf>, warn_once: WarnOnce) -> Self {
        Self(Arc::new(Shared { folder, state: Mutex::default(), warn_once }))
    }

    /// The fact of that `kind` about the file at `path`, computed with `make` if it is missing or the file has changed.
    ///
    /// The fact must depend on nothing but that file (symlinks are followed): for a wrapper script, ask about what it starts.
    /// Several threads or processes may find out the same fact at the same time. Fails if the file cannot be looked at or `make` fails;
    /// a failure of the memo itself is logged once and is not an error.
    pub fn get_or(&self, path: &Path, kind: &str, make: impl FnOnce() -> io::Result<String>) -> io::Result<String> {
        self.get_or_at(path, kind, SystemTime::now, make)
    }

    fn get_or_at(
        &self,
        path: &Path,
        kind: &str,
        now: impl Fn() -> SystemTime,
        make: impl FnOnce() -> io::Result<String>,
    ) -> io::Result<String> {
        let path = std::path::absolute(path)?;
        let metadata = std::fs::metadata(&path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        let stamp = Stamp::of(&metadata);
        // The file is text; a path that is not cannot be in it, and is too rare for a second spelling.
        let Some(text) = path.to_str() else { return make() };
        let subject = Subject { path: text.to_owned(), kind: kind.to_owned() };
        if let Some(value) = self.recall(&subject, &stamp) {
            return Ok(value);
        }
        // The stamp and the clock are read before `make` reads the file. Should the file change meanwhile, the fact is filed under a
        // stamp that the file had once and, its change time being settled, never has again.
        let settled = stamp.has_settled(now());
        let value = make()?;
        if settled {
            self.remember(subject, Fact { stamp, made: since_1970(now()).as_secs(), value: value.clone() });
        }
        Ok(value)
    }

    fn recall(&self, subject: &Subject, stamp: &Stamp) -> Option<String> {
        let known = |state: &State| state.facts.get(subject).filter(|fact| fact.stamp == *stamp).map(|fact| fact.value.clone());
        let mut state = self.state();
        known(&state).or_else(|| {
            self.merge_from_disk(&mut state);
            known(&state)
        })
    }

    fn remember(&self, subject: Subject, fact: Fact) {
        let mut state = self.state();
        self.merge_from_disk(&mut state);
        state.facts.insert(subject, fact);
        if state.facts.len() > MAX_FACTS {
            let mut by_age: Vec<(u64, Subject)> = state.facts.iter().map(|(subject, fact)| (fact.made, subject.clone())).collect();
            by_age.sort_by_key(|&(made, _)| made);
            // Down to three quarters, not to the brim, or each new fact would sort all of them.
            for (_, subject) in &by_age[..by_age.len() - MAX_FACTS / 4 * 3] {
                state.facts.remove(subject);
            }
        }
        let Some(folder) = &self.0.folder else { return };
        let path = folder::memo_path(folder);
        let text = encode(&state.facts);
        let written = folder::create(folder).and_then(|()| folder::replace(folder, &path, |file| file.write_all(text.as_bytes())));
        // `seen` stays as it is: by the time one could look at the new file, it may be another process's.
        if let Err(error) = written {
            self.0.warn_once.report("write", &path, &error);
        }
    }

    /// Takes over what is in the file and newer than what is in memory. Nothing in it is believed without a look at its subject, so
    /// the choice between two facts is about saving work only.
    fn merge_from_disk(&self, state: &mut State) {
        let Some(folder) = &self.0.folder else { return };
        let path = folder::memo_path(folder);
        let read = || -> io::Result<Option<(Stamp, String)>> {
            let (file, metadata) = folder::open(&path)?;
            let stamp = Stamp::of(&metadata);
            if state.seen.as_ref() == Some(&stamp) || metadata.len() > MAX_FILE {
                return Ok(None);
            }
            let mut bytes = Vec::new();
            file.take(MAX_FILE).read_to_end(&mut bytes)?;
            // Damaged text fails the checksum; it need not fail here.
            Ok(Some((stamp, String::from_utf8_lossy(&bytes).into_owned())))
        };
        match read() {
            Ok(Some((stamp, text))) => {
                state.seen = Some(stamp);
                for (subject, fact) in decode(&text).unwrap_or_default() {
                    if state.facts.get(&subject).is_none_or(|mine| mine.made < fact.made) {
                        state.facts.insert(subject, fact);
                    }
                }
            }
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.0.warn_once.report("read", &path, &error),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves a map of facts, each of which is checked when used.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn encode(facts: &HashMap<Subject, Fact>) -> String {
    let facts: Vec<(&Subject, &Fact)> = facts.iter().collect();
    // Strings and numbers under string keys: there is nothing in it that JSON cannot say.
    let body = serde_json::to_string(&facts).unwrap_or_default();
    format!("{TITLE}{}\n{body}", checksum(&body))
}

/// The facts in a memo file; `None` if it is damaged or not a memo file.
fn decode(text: &str) -> Option<Vec<(Subject, Fact)>> {
    let (sum, body) = text.strip_prefix(TITLE)?.split_once('\n')?;
    if sum != checksum(body) {
        return None;
    }
    serde_json::from_str(body).ok()
}

fn checksum(body: &str) -> String {
    Key::from_bytes(Sha256::digest(body).into()).to_string()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::thread;

    use super::*;

    /// A file to ask about, and clocks that stand long after its last change or right at it.
    struct Subjects {
        folder: tempfile::TempDir,
    }

    fn later() -> SystemTime {
        SystemTime::now() + Duration::from_secs(60)
    }

    impl Subjects {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("clang"), "version 1").unwrap();
            Self { folder }
        }
        fn file(&self) -> PathBuf {
            self.folder.path().join("clang")
        }
        fn cache(&self) -> PathBuf {
            self.folder.path().join("cache")
        }
        fn memo(&self) -> Memo {
            Memo::at(&self.cache(), WarnOnce::default())
        }
        /// Asks for the file's text; returns it and whether it had to be found out.
        fn ask(&self, memo: &Memo) -> (String, bool) {
            let made = Cell::new(false);
            let value = memo.get_or_at(&self.file(), "text", later, || {
                made.set(true);
                fs::read_to_string(self.file())
            });
            (value.unwrap(), made.get())
        }
    }

    #[test]
    fn a_fact_is_found_out_once_per_folder_not_once_per_process() {
        let subjects = Subjects::new();
        assert_eq!(subjects.ask(&subjects.memo()), ("version 1".into(), true));
        assert_eq!(subjects.ask(&subjects.memo()), ("version 1".into(), false));
    }

    #[test]
    fn without_a_folder_facts_last_as_long_as_the_memo() {
        let subjects = Subjects::new();
        let memo = Memo::in_process();
        assert_eq!(subjects.ask(&memo), ("version 1".into(), true));
        assert_eq!(subjects.ask(&memo.clone()), ("version 1".into(), false));
        assert_eq!(subjects.ask(&Memo::in_process()), ("version 1".into(), true));
        assert!(!subjects.cache().exists());
    }

    #[test]
    fn kinds_and_paths_are_kept_apart() {
        let subjects = Subjects::new();
        let memo = subjects.memo();
        let other = subjects.folder.path().join("other");
        fs::write(&other, "version 1").unwrap();
        for (path, kind, value) in [(&subjects.file(), "a", "1"), (&subjects.file(), "b", "2"), (&other, "a", "3")] {
            assert_eq!(memo.get_or_at(path, kind, later, || Ok(value.into())).unwrap(), value);
        }
        assert_eq!(memo.get_or_at(&subjects.file(), "a", later, || Ok("wrong".into())).unwrap(), "1");
    }

    #[test]
    fn a_changed_file_is_looked_at_again_even_with_its_old_time_and_size() {
        let subjects = Subjects::new();
        let memo = subjects.memo();
        subjects.ask(&memo);
        let modified = fs::metadata(subjects.file()).unwrap().modified().unwrap();
        thread::sleep(Duration::from_millis(30)); // The kernel's clock for files ticks every 1 to 10 ms.
        fs::write(subjects.file(), "version 2").unwrap();
        fs::File::options().write(true).open(subjects.file()).unwrap().set_modified(modified).unwrap();
        assert_eq!(fs::metadata(subjects.file()).unwrap().modified().unwrap(), modified);
        assert_eq!(subjects.ask(&memo), ("version 2".into(), true));
        // A replaced file, as a package manager does it.
        fs::write(subjects.folder.path().join("new"), "version 3").unwrap();
        fs::rename(subjects.folder.path().join("new"), subjects.file()).unwrap();
        assert_eq!(subjects.ask(&memo), ("version 3".into(), true));
        assert_eq!(subjects.ask(&memo), ("version 3".into(), false));
    }

    #[test]
    fn a_fact_about_a_file_that_changed_meanwhile_is_not_used() {
        let subjects = Subjects::new();
        let memo = subjects.memo();
        let changing = || {
            fs::write(subjects.file(), "version 1.1")?;
            Ok("half old, half new".into())
        };
        memo.get_or_at(&subjects.file(), "text", later, changing).unwrap();
        assert_eq!(subjects.ask(&memo), ("version 1.1".into(), true));
    }

    #[test]
    fn a_file_changed_just_now_is_not_remembered() {
        let subjects = Subjects::new();
        let memo = subjects.memo();
        for value in ["first", "second"] {
            assert_eq!(memo.get_or(&subjects.file(), "text", || Ok(value.into())).unwrap(), value);
        }
    }

    #[test]
    fn failures_are_returned_and_not_remembered() {
        let subjects = Subjects::new();
        let memo = subjects.memo();
        let failed = memo.get_or_at(&subjects.file(), "text", later, || Err(io::Error::other("broken compiler")));
        assert_eq!(failed.unwrap_err().to_string(), "broken compiler");
        assert_eq!(subjects.ask(&memo), ("version 1".into(), true));
        let missing = memo.get_or(&subjects.folder.path().join("gone"), "text", || Ok("?".into())).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(missing.to_string().contains("gone"), "{missing}");
    }

    #[test]
    fn a_damaged_memo_file_is_an_empty_one() {
        let subjects = Subjects::new();
        subjects.ask(&subjects.memo());
        let path = folder::memo_path(&subjects.cache());
        let good = fs::read(&path).unwrap();
        for at in (0..good.len()).step_by(7) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(&path, &bad).unwrap();
            assert_eq!(subjects.ask(&subjects.memo()), ("version 1".into(), true), "byte {at} changed");
            assert_eq!(subjects.ask(&subjects.memo()), ("version 1".into(), false), "byte {at} changed: not repaired");
        }
        for bad in [&b""[..], b"\xff\xfe", b"warpwave-memo 1 ", &good[..good.len() / 2]] {
            fs::write(&path, bad).unwrap();
            assert_eq!(subjects.ask(&subjects.memo()), ("version 1".into(), true));
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(subjects.ask(&subjects.memo()), ("version 1".into(), true));
    }

    /// Sixteen memos without shared memory, as in sixteen processes: no fact may be wrong, the file stays whole, and all who wrote
    /// often enough are in it at the end.
    #[test]
    fn concurrent_writers_leave_a_whole_file() {
        let subjects = Subjects::new();
        thread::scope(|scope| {
            for writer in 0..16 {
                let subjects = &subjects;
                scope.spawn(move || {
                    let memo = subjects.memo();
                    for round in 0..10 {
                        let value = format!("{writer}/{round}");
                        assert_eq!(memo.get_or_at(&subjects.file(), &value, later, || Ok(value.clone())).unwrap(), value);
                    }
                });
            }
        });
        let facts = decode(&fs::read_to_string(folder::memo_path(&subjects.cache())).unwrap()).expect("the file is damaged");
        assert!(facts.iter().all(|(subject, fact)| subject.kind == fact.value));
        assert!(facts.len() >= 10, "the last writer alone had ten facts, the file has {}", facts.len());
    }

    #[test]
    fn old_facts_make_room_for_new_ones() {
        let subjects = Subjects::new();
        let memo = Memo::in_process();
        for i in 0..=MAX_FACTS {
            let now = || later() + Duration::from_secs(i as u64);
            memo.get_or_at(&subjects.file(), &i.to_string(), now, || Ok(i.to_string())).unwrap();
        }
        assert_eq!(memo.state().facts.len(), MAX_FACTS / 4 * 3);
        let unknown = |i: usize| memo.get_or_at(&subjects.file(), &i.to_string(), later, || Err(io::Error::other("forgotten"))).is_err();
        assert!(unknown(0) && !unknown(MAX_FACTS));
    }
}
