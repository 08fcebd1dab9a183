//! The cache within one process: outcomes, eviction, housekeeping, failing folders. Several processes: `tests/cache_torture.rs`.

use std::cell::Cell;
use std::convert::Infallible;
use std::os::unix::fs::symlink;
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tempfile::TempDir;

use super::*;

fn key(name: &str) -> Key {
    KeyBuilder::new().field("name", name.as_bytes()).finish()
}

fn entry(name: &str, bytes: usize) -> Entry {
    Entry { meta: format!("{{\"name\":\"{name}\"}}"), payload: name.bytes().cycle().take(bytes).collect() }
}

fn ask(cache: &Cache, name: &str, bytes: usize) -> Outcome {
    let (got, outcome) = cache.get_or_try_insert(&key(name), || Ok::<_, Infallible>(entry(name, bytes))).unwrap();
    assert_eq!(got, entry(name, bytes));
    outcome
}

fn set_age(cache: &Cache, name: &str, age: Duration) {
    let path = folder::entry_path(cache.path().unwrap(), &key(name));
    File::open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
}

fn age(cache: &Cache, name: &str) -> Duration {
    let path = folder::entry_path(cache.path().unwrap(), &key(name));
    fs::metadata(path).unwrap().modified().unwrap().elapsed().unwrap_or_default()
}

fn new_cache(max_bytes: u64) -> (TempDir, Cache) {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path().join("made/on/demand"), max_bytes);
    (folder, cache)
}

const MINUTES: Duration = Duration::from_secs(60);

#[test]
fn made_once_then_found_also_through_a_second_handle() {
    let (_folder, cache) = new_cache(1 << 20);
    assert_eq!(cache.get(&key("a")), None);
    assert!(!cache.path().unwrap().exists(), "looking created the folder");
    assert_eq!(ask(&cache, "a", 10), Outcome::Miss);
    assert_eq!(ask(&cache, "a", 10), Outcome::Hit);
    assert_eq!(ask(&Cache::at(cache.path().unwrap(), 0), "a", 10), Outcome::Hit);
    assert_eq!(ask(&cache, "empty", 0), Outcome::Miss);
    assert_eq!(cache.get(&key("empty")), Some(entry("empty", 0)));
    let names: Vec<_> = fs::read_dir(cache.path().unwrap()).unwrap().collect();
    assert_eq!(names.len(), 2, "lock or temporary files were left: {names:?}");
}

#[test]
fn a_disabled_cache_makes_each_time() {
    let cache = Cache::disabled();
    assert_eq!((ask(&cache, "a", 1), ask(&cache, "a", 1)), (Outcome::Uncached, Outcome::Uncached));
    assert_eq!((cache.get(&key("a")), cache.path(), cache.stats().entries), (None, None, 0));
    assert_eq!((cache.verify(), cache.clear()), (Report::default(), Cleared::default()));
}

#[test]
fn an_empty_path_is_no_folder_and_not_the_working_directory() {
    let warnings = warnings_of(|| assert_eq!(ask(&Cache::at("", 1 << 20), "a", 1), Outcome::Uncached));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[test]
fn an_error_of_the_maker_is_returned_and_nothing_is_stored() {
    let (_folder, cache) = new_cache(1 << 20);
    assert_eq!(cache.get_or_try_insert(&key("a"), || Err("does not compile")), Err("does not compile"));
    assert_eq!(fs::read_dir(cache.path().unwrap()).unwrap().count(), 0);
    assert_eq!(ask(&cache, "a", 1), Outcome::Miss);
}

#[test]
fn a_panic_of_the_maker_frees_the_key() {
    let (_folder, cache) = new_cache(1 << 20);
    let panicking = std::panic::AssertUnwindSafe(|| {
        cache.get_or_try_insert::<Infallible>(&key("a"), || std::panic::resume_unwind(Box::new("on purpose")))
    });
    assert!(std::panic::catch_unwind(panicking).is_err());
    assert_eq!(ask(&cache, "a", 1), Outcome::Miss);
}

#[test]
fn making_may_use_the_cache_even_for_the_same_key() {
    let (_folder, cache) = new_cache(1 << 20);
    let inner = Cell::new(None);
    let outer = cache.get_or_try_insert(&key("a"), || {
        inner.set(Some((ask(&cache, "b", 1), ask(&cache, "a", 1))));
        Ok::<_, Infallible>(entry("a", 1))
    });
    assert_eq!(outer.unwrap().1, Outcome::Miss);
    assert_eq!(inner.get(), Some((Outcome::Miss, Outcome::Uncached)));
}

#[test]
fn threads_that_ask_at_once_share_one_making() {
    let (_folder, cache) = new_cache(1 << 20);
    let made = AtomicU32::new(0);
    let make = || {
        made.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(50));
        Ok::<_, Infallible>(entry("a", 1000))
    };
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| cache.get_or_try_insert(&key("a"), make).unwrap().1)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(made.load(Ordering::SeqCst), 1);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::Hit).count(), 7);
}

#[test]
fn the_least_recently_used_go_first_and_only_as_many_as_needed() {
    let size = entry::file_len(&entry("a", 1000));
    let (_folder, cache) = new_cache(4 * size);
    for (name, age) in [("a", 40), ("b", 30), ("c", 20), ("d", 10)] {
        assert_eq!(ask(&cache, name, 1000), Outcome::Miss);
        set_age(&cache, name, age * MINUTES);
    }
    assert_eq!(ask(&cache, "a", 1000), Outcome::Hit); // The oldest, and now the most recently used.
    assert_eq!(ask(&cache, "e", 1000), Outcome::Miss);
    let left = || ["a", "b", "c", "d", "e", "f"].into_iter().filter(|name| cache.get(&key(name)).is_some()).collect::<String>();
    assert_eq!(cache.stats().bytes, 4 * size);
    // `left` is itself a use of all that are left, so their ages are set again.
    assert_eq!(left(), "acde");
    for (name, age) in [("c", 40), ("a", 30), ("d", 20), ("e", 10)] {
        set_age(&cache, name, age * MINUTES);
    }
    assert_eq!(ask(&cache, "f", 2000), Outcome::Miss); // Needs the room of two.
    assert_eq!(left(), "def");
    let stats = cache.stats();
    assert!(stats.bytes <= stats.max_bytes && stats.entries == 3, "{stats:?}");
}

#[test]
fn what_was_just_written_stays_even_if_it_looks_oldest() {
    let size = entry::file_len(&entry("a", 1000));
    let (_folder, cache) = new_cache(size);
    assert_eq!(ask(&cache, "a", 1000), Outcome::Miss);
    let path = folder::entry_path(cache.path().unwrap(), &key("a"));
    let soon = SystemTime::now() + MINUTES / 2; // A neighbor's clock that is a little ahead.
    File::open(path).unwrap().set_modified(soon).unwrap();
    assert_eq!(ask(&cache, "b", 1000), Outcome::Miss);
    assert_eq!((cache.get(&key("a")), cache.get(&key("b"))), (None, Some(entry("b", 1000))));
}

#[test]
fn an_entry_used_in_the_far_future_does_not_live_for_ever() {
    let size = entry::file_len(&entry("a", 1000));
    let (_folder, cache) = new_cache(2 * size);
    for name in ["a", "b"] {
        ask(&cache, name, 1000);
    }
    let path = folder::entry_path(cache.path().unwrap(), &key("a"));
    File::open(&path).unwrap().set_modified(SystemTime::now() + 1000 * MINUTES).unwrap();
    ask(&cache, "c", 1000);
    assert!(!path.exists());
    ask(&cache, "a", 1000);
    File::open(&path).unwrap().set_modified(SystemTime::now() + 1000 * MINUTES).unwrap();
    assert_eq!(ask(&cache, "a", 1000), Outcome::Hit);
    assert!(fs::metadata(&path).unwrap().modified().unwrap() <= SystemTime::now(), "a use did not put the time right");
}

#[test]
fn an_entry_larger_than_the_cap_is_not_stored_and_displaces_nothing() {
    let size = entry::file_len(&entry("a", 1000));
    let (_folder, cache) = new_cache(size);
    assert_eq!(ask(&cache, "a", 1000), Outcome::Miss);
    assert_eq!(ask(&cache, "b", 1001), Outcome::Uncached);
    assert_eq!(ask(&cache, "a", 1000), Outcome::Hit);
}

#[test]
fn a_hit_renews_the_time_of_use_only_after_a_minute() {
    let (_folder, cache) = new_cache(1 << 20);
    ask(&cache, "a", 1);
    set_age(&cache, "a", MINUTES / 2);
    ask(&cache, "a", 1);
    assert!(age(&cache, "a") >= MINUTES / 2, "renewed too early");
    set_age(&cache, "a", 2 * MINUTES);
    ask(&cache, "a", 1);
    assert!(age(&cache, "a") < MINUTES, "not renewed");
}

#[test]
fn leftovers_of_killed_processes_are_swept_when_old_and_nobody_holds_them() {
    let (_folder, cache) = new_cache(1 << 20);
    ask(&cache, "a", 1);
    let folder = cache.path().unwrap();
    let file = |name: String, age: Duration| {
        let path = folder.join(name);
        File::create(&path).unwrap().set_modified(SystemTime::now() - age).unwrap();
        path
    };
    let old_temp = file("ww-tmp-abcdef".into(), 61 * MINUTES);
    let young_temp = file("ww-tmp-ghijkl".into(), 50 * MINUTES);
    let old_lock = file(format!("{}.wwlock", key("x")), 61 * MINUTES);
    let held_lock = file(format!("{}.wwlock", key("y")), 61 * MINUTES);
    let held = File::open(&held_lock).unwrap();
    held.lock().unwrap();
    let foreign = file("ww-tmp-notes.txt".into(), 61 * MINUTES);
    ask(&cache, "b", 1);
    assert_eq!([&old_temp, &old_lock].map(|path| path.exists()), [false, false]);
    assert_eq!([&young_temp, &held_lock, &foreign].map(|path| path.exists()), [true, true, true]);
    drop(held);
    assert_eq!(ask(&cache, "y", 1), Outcome::Miss, "a leftover lock file stops its key");
}

#[test]
fn listing_and_stats_say_what_is_there() {
    let (_folder, cache) = new_cache(1 << 20);
    assert_eq!(cache.stats(), Stats { entries: 0, bytes: 0, max_bytes: 1 << 20, oldest: None, newest: None });
    for (name, age) in [("old", 20), ("new", 10)] {
        ask(&cache, name, 100);
        set_age(&cache, name, age * MINUTES);
    }
    ask(&cache, "damaged", 100);
    set_age(&cache, "damaged", 30 * MINUTES);
    let path = folder::entry_path(cache.path().unwrap(), &key("damaged"));
    let used = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "short").unwrap();
    File::open(&path).unwrap().set_modified(used).unwrap();

    let listed = cache.entries();
    let bytes = entry::file_len(&entry("old", 100));
    assert_eq!(listed.iter().map(|one| one.key).collect::<Vec<_>>(), [key("new"), key("old"), key("damaged")]);
    assert_eq!(listed.iter().map(|one| one.bytes).collect::<Vec<_>>(), [bytes, bytes, 5]);
    assert_eq!(
        listed.iter().map(|one| one.meta.as_deref()).collect::<Vec<_>>(),
        [Some(r#"{"name":"new"}"#), Some(r#"{"name":"old"}"#), None]
    );
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.bytes), (3, 2 * bytes + 5));
    assert_eq!((stats.oldest, stats.newest), (Some(used), Some(listed[0].last_used)));
}

#[test]
fn verify_removes_what_is_damaged_and_nothing_else() {
    let (_folder, cache) = new_cache(1 << 20);
    for name in ["a", "b", "c"] {
        ask(&cache, name, 100);
    }
    let folder = cache.path().unwrap();
    let path = folder::entry_path(folder, &key("b"));
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let other = folder.join(format!("{}.ww999", key("later")));
    fs::write(&other, "a format to come").unwrap();
    assert_eq!(cache.verify(), Report { good: 2, damaged: 1, other_versions: 1, failed: vec![] });
    assert!(!path.exists() && other.exists());
    assert_eq!(cache.verify(), Report { good: 2, damaged: 0, other_versions: 1, failed: vec![] });
}

#[test]
fn clear_removes_the_caches_own_files_and_no_others() {
    let (outer, cache) = new_cache(1 << 20);
    for name in ["a", "b"] {
        ask(&cache, name, 100);
    }
    let folder = cache.path().unwrap();
    let memo = folder::memo_path(folder);
    fs::write(&memo, "").unwrap();
    let lock = folder::lock_path(folder, &key("x"));
    fs::write(&lock, "").unwrap();

    let outside = outer.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "keep").unwrap();
    let held_lock = folder::lock_path(folder, &key("y"));
    let held = File::create(&held_lock).unwrap();
    held.lock().unwrap();
    let mut foreign = vec![held_lock];
    let link = |target: &Path, at: PathBuf| {
        symlink(target, &at).unwrap();
        at
    };
    foreign.push(link(&outside.join("precious"), folder::entry_path(folder, &key("link"))));
    foreign.push(link(&outside, folder::entry_path(folder, &key("link to a folder"))));
    let thesis = folder.join("thesis.tex");
    fs::write(&thesis, "keep").unwrap();
    foreign.push(thesis);
    let subfolder = folder.join(format!("{}.ww1", key("subfolder")));
    fs::create_dir(&subfolder).unwrap();
    fs::write(subfolder.join("inside"), "keep").unwrap();
    foreign.push(subfolder.join("inside"));

    let bytes = 2 * entry::file_len(&entry("a", 100));
    assert_eq!(cache.clear(), Cleared { entries: 2, bytes, failed: vec![] });
    assert_eq!((memo.exists(), lock.exists(), cache.stats().entries), (false, false, 0));
    for path in foreign {
        assert!(fs::symlink_metadata(&path).is_ok(), "{} was removed", path.display());
    }
    assert_eq!(fs::read(outside.join("precious")).unwrap(), b"keep");
    assert_eq!(cache.clear(), Cleared::default());
}

#[test]
fn a_symlink_in_an_entrys_place_is_replaced_not_followed() {
    let (outer, cache) = new_cache(1 << 20);
    ask(&cache, "a", 10);
    let (path, target) = (folder::entry_path(cache.path().unwrap(), &key("a")), outer.path().join("target"));
    fs::rename(&path, &target).unwrap();
    let before = fs::read(&target).unwrap();
    symlink(&target, &path).unwrap();
    assert_eq!(cache.get(&key("a")), None);
    assert_eq!(ask(&cache, "a", 10), Outcome::Miss);
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
    assert_eq!(fs::read(target).unwrap(), before);
}

/// Opening a pipe naively blocks until its other end is opened.
#[test]
fn a_pipe_in_an_entrys_place_does_not_hang() {
    let (_folder, cache) = new_cache(1 << 20);
    ask(&cache, "a", 10);
    let path = folder::entry_path(cache.path().unwrap(), &key("a"));
    fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert_eq!(ask(&cache, "a", 10), Outcome::Miss);
    assert_eq!(ask(&cache, "a", 10), Outcome::Hit);
}

/// Counts the warnings of the calling thread.
struct Warnings(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{}={value:?} ", field.name());
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text.0);
    }
}

fn warnings_of(work: impl FnOnce()) -> Vec<String> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    tracing::subscriber::with_default(Warnings(heard.clone()), work);
    std::mem::take(&mut *heard.lock().unwrap())
}

#[test]
fn trouble_with_the_folder_is_said_once_and_names_the_place() {
    let outer = tempfile::tempdir().unwrap();
    let file = outer.path().join("a-file");
    fs::write(&file, "not a folder").unwrap();
    for folder in [file.clone(), file.join("below"), PathBuf::from("/proc/no/such/folder"), PathBuf::from("/dev/null")] {
        let cache = Cache::at(&folder, 1 << 20);
        let warnings = warnings_of(|| {
            for name in ["a", "a", "b"] {
                assert_eq!(ask(&cache.clone(), name, 10), Outcome::Uncached, "{}", folder.display());
            }
            let old = Path::new("/bin/sh");
            assert_eq!(cache.memo().get_or(old, "kind", || Ok("value".into())).unwrap(), "value");
            assert_eq!(cache.get(&key("a")), None);
            assert_eq!(cache.stats().entries, 0);
        });
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains(folder.to_str().unwrap()), "{warnings:?}");
    }
    assert_eq!(fs::read(file).unwrap(), b"not a folder");
}

#[test]
fn a_damaged_entry_is_reported_once_and_replaced() {
    let (_folder, cache) = new_cache(1 << 20);
    ask(&cache, "a", 10);
    fs::write(folder::entry_path(cache.path().unwrap(), &key("a")), "garbage").unwrap();
    let warnings = warnings_of(|| assert_eq!(ask(&cache, "a", 10), Outcome::Miss));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings_of(|| assert_eq!(ask(&cache, "a", 10), Outcome::Hit)).is_empty());
}

/// The best of many, because the figure is about the cache and not about what else the machine is doing.
#[test]
fn a_hit_of_100_kb_takes_less_than_a_millisecond() {
    let (_folder, cache) = new_cache(1 << 30);
    ask(&cache, "a", 100_000);
    let best = (0..200).map(|_| {
        let start = Instant::now();
        assert!(cache.get(&key("a")).is_some());
        start.elapsed()
    });
    let best = best.min().unwrap();
    println!("best hit of 100 kB: {best:?}");
    assert!(best < Duration::from_millis(1), "{best:?}");
}
