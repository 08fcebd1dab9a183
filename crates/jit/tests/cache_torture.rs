//! The disk cache under many processes, damage, kill -9, read-only and full folders.
//!
//! Tests start this very binary again for the processes they need: [`child`] is what those run. Folders that are read-only or full are
//! file systems mounted in a mount namespace of the child, which the kernel takes down with it, whatever happens to the test.
//! Where that is not allowed, the tests say that they were skipped; with `WARPWAVE_REQUIRE_ALL=1` they fail instead.

use std::convert::Infallible;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use warpwave_jit::cache::{Cache, Entry, Key, KeyBuilder, Outcome};
use warpwave_test_support::{Random, require, seed};

const ROLE: &str = "WARPWAVE_TORTURE_ROLE";
const FOLDER: &str = "WARPWAVE_TORTURE_FOLDER";
const NUMBER: &str = "WARPWAVE_TORTURE_NUMBER";
const PATIENCE: Duration = Duration::from_secs(20);

// ---------------------------------------------------------------------------------------------------------------- the processes

/// The body of the processes that the tests below start.
#[test]
#[ignore = "started by the other tests, in a process of its own"]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let number = std::env::var(NUMBER).unwrap().parse().unwrap();
    match role.as_str() {
        "stampede" => stampede_child(&folder, number),
        "churn" => churn_child(&folder, number),
        "hang" => hang_child(&folder),
        "write-large" => drop(Cache::at(cache_in(&folder), 1 << 30).get_or_try_insert(&key(number), || Ok::<_, Infallible>(large(number)))),
        "read-only" => read_only_child(&folder),
        "full" => full_child(&folder),
        other => panic!("no role {other}"),
    }
}

fn child_command(role: &str, folder: &Path, number: usize) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(FOLDER, folder).env(NUMBER, number.to_string()).stdin(Stdio::null());
    command
}

/// Processes that do not outlive the test.
struct Children(Vec<Child>);

impl Children {
    fn start(role: &str, folder: &Path, numbers: std::ops::Range<usize>) -> Self {
        Self(numbers.map(|number| child_command(role, folder, number).stdout(Stdio::null()).spawn().unwrap()).collect())
    }

    fn all_succeed(mut self) {
        for child in &mut self.0 {
            until("a child ends", || child.try_wait().unwrap().is_some());
            assert!(child.wait().unwrap().success(), "a child failed; its output is above");
        }
    }

    /// SIGKILL: no destructor runs, nothing is cleaned up.
    fn kill(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.kill();
    }
}

// ------------------------------------------------------------------------------------------------------------------------ helpers

fn key(number: usize) -> Key {
    KeyBuilder::new().field("number", &number.to_le_bytes()).finish()
}

/// The right bytes of a key: of a size and content that no other key has.
fn entry(number: usize) -> Entry {
    let payload = (0..1000 + 37 * number).map(|i| ((i * (number + 1)) >> 3) as u8 ^ number as u8).collect();
    Entry { meta: format!("{{\"number\":{number}}}"), payload }
}

fn large(number: usize) -> Entry {
    Entry { meta: "{}".into(), payload: vec![number as u8; 32 << 20] }
}

fn ask(cache: &Cache, number: usize) -> Outcome {
    let (got, outcome) = cache.get_or_try_insert(&key(number), || Ok::<_, Infallible>(entry(number))).unwrap();
    assert!(got == entry(number), "wrong bytes for key {number}");
    outcome
}

fn cache_in(folder: &Path) -> PathBuf {
    folder.join("cache")
}

fn entry_file(cache: &Cache, number: usize) -> PathBuf {
    cache.path().unwrap().join(format!("{}.ww1", key(number)))
}

fn files_with(folder: &Path, part: &str) -> Vec<PathBuf> {
    let Ok(listing) = fs::read_dir(folder) else { return Vec::new() };
    listing.map(|item| item.unwrap().path()).filter(|path| path.to_str().unwrap().contains(part)).collect()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain until {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

// -------------------------------------------------------------------------------------------------------------- many processes

const PROCESSES: usize = 16;
const KEYS: usize = 20;

fn stampede_child(folder: &Path, number: usize) {
    let cache = Cache::at(cache_in(folder), 1 << 30);
    File::create(folder.join(format!("ready-{number}"))).unwrap();
    until("the start is given", || folder.join("go").exists());
    for i in 0..KEYS {
        // Half of them in the same order, half spread out: both herds and meetings from different sides.
        let asked = if number.is_multiple_of(2) { i } else { (i + number) % KEYS };
        let make = || {
            let mut log = OpenOptions::new().append(true).create(true).open(folder.join("log")).unwrap();
            log.write_all(format!("{asked}\n").as_bytes()).unwrap();
            thread::sleep(Duration::from_millis(5));
            Ok::<_, Infallible>(entry(asked))
        };
        let (got, outcome) = cache.get_or_try_insert(&key(asked), make).unwrap();
        assert!(got == entry(asked), "wrong bytes for key {asked}");
        assert_ne!(outcome, Outcome::Uncached);
    }
}

#[test]
fn sixteen_processes_make_each_of_twenty_keys_once() {
    let folder = tempfile::tempdir().unwrap();
    let children = Children::start("stampede", folder.path(), 0..PROCESSES);
    until("all children are ready", || files_with(folder.path(), "ready-").len() == PROCESSES);
    File::create(folder.path().join("go")).unwrap();
    children.all_succeed();

    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    let mut made: Vec<usize> = log.lines().map(|line| line.parse().unwrap()).collect();
    made.sort();
    assert_eq!(made, (0..KEYS).collect::<Vec<_>>());
    let cache = Cache::at(cache_in(folder.path()), 1 << 30);
    assert_eq!(cache.verify().good, KEYS as u64);
    assert_eq!(fs::read_dir(cache.path().unwrap()).unwrap().count(), KEYS, "lock or temporary files were left");
}

const CHURN_CAP: u64 = 20_000;

/// Far more is asked for than fits, while one process checks and empties the cache all the time.
fn churn_child(folder: &Path, number: usize) {
    let cache = Cache::at(cache_in(folder), CHURN_CAP);
    let mut random = Random::new(seed());
    let mut ask_many = || (0..100).for_each(|_| assert_ne!(ask(&cache, random.below(40)), Outcome::Uncached));
    let cleared = folder.join("cleared");
    if number == 0 {
        for _ in 0..30 {
            let report = cache.verify();
            assert_eq!((report.damaged, &report.failed[..]), (0, &[][..]));
            assert_eq!(cache.clear().failed, []);
            thread::sleep(Duration::from_millis(3));
        }
        File::create(cleared).unwrap();
    } else {
        while !cleared.exists() {
            ask_many();
        }
        ask_many();
    }
}

#[test]
fn eviction_and_clearing_under_other_processes_feet_break_nothing() {
    let folder = tempfile::tempdir().unwrap();
    Children::start("churn", folder.path(), 0..5).all_succeed();
    let cache = Cache::at(cache_in(folder.path()), CHURN_CAP);
    let (stats, report) = (cache.stats(), cache.verify());
    assert!(stats.bytes <= CHURN_CAP && stats.entries > 0, "{stats:?}");
    assert_eq!((report.good, report.damaged), (stats.entries, 0));
    assert_eq!(files_with(cache.path().unwrap(), "lock").len() + files_with(cache.path().unwrap(), "tmp-").len(), 0);
}

// ----------------------------------------------------------------------------------------------------------------------- damage

#[test]
fn random_damage_in_every_entry_is_never_served() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path().join("cache"), 1 << 30);
    let mut random = Random::new(seed());
    for round in 0..20 {
        for number in 0..KEYS {
            assert_eq!(ask(&cache, number), if round == 0 { Outcome::Miss } else { Outcome::Hit });
        }
        for number in 0..KEYS {
            let file = entry_file(&cache, number);
            let mut bytes = fs::read(&file).unwrap();
            // Half of the time in the header, which is a small part of the file and has the most to get wrong.
            let end = if random.below(2) == 0 { 150 } else { bytes.len() };
            let at = random.below(end);
            bytes[at] ^= 1 + random.below(255) as u8;
            fs::write(file, bytes).unwrap();
            assert_eq!(cache.get(&key(number)), None, "round {round}, key {number}: byte {at} is wrong and was not noticed");
            assert_eq!(ask(&cache, number), Outcome::Miss, "round {round}, key {number}: not remade");
        }
    }
}

#[test]
fn an_entry_cut_at_any_length_is_never_served() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path().join("cache"), 1 << 30);
    let small = Entry { meta: "{}".into(), payload: b"small".to_vec() };
    let ask = || cache.get_or_try_insert(&key(0), || Ok::<_, Infallible>(small.clone())).unwrap();
    assert_eq!(ask(), (small.clone(), Outcome::Miss));
    let whole = fs::read(entry_file(&cache, 0)).unwrap();
    for len in 0..whole.len() {
        fs::write(entry_file(&cache, 0), &whole[..len]).unwrap();
        assert_eq!(cache.get(&key(0)), None, "cut to {len} bytes");
        assert_eq!(ask(), (small.clone(), Outcome::Miss), "cut to {len} bytes");
        assert_eq!(ask(), (small.clone(), Outcome::Hit));
    }
}

#[test]
fn an_entry_under_another_keys_name_is_never_served() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path().join("cache"), 1 << 30);
    assert_eq!((ask(&cache, 1), ask(&cache, 2)), (Outcome::Miss, Outcome::Miss));
    fs::copy(entry_file(&cache, 1), entry_file(&cache, 2)).unwrap();
    assert_eq!(cache.get(&key(2)), None);
    assert_eq!((ask(&cache, 2), ask(&cache, 1)), (Outcome::Miss, Outcome::Hit));
}

// ---------------------------------------------------------------------------------------------------------------------- kill -9

/// Never comes back from making, and has started a compiler of its own that outlives it.
fn hang_child(folder: &Path) {
    let make = || -> Result<Entry, Infallible> {
        let mut compiler =
            Command::new("sleep").arg("60").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        fs::write(folder.join("pid.new"), compiler.id().to_string()).unwrap();
        fs::rename(folder.join("pid.new"), folder.join("pid")).unwrap();
        compiler.wait().unwrap();
        unreachable!("the test kills this process");
    };
    let _ = Cache::at(cache_in(folder), 1 << 30).get_or_try_insert(&key(0), make);
}

/// The process id of a killed child's child, which nobody else ends.
struct Orphan(String);

impl Drop for Orphan {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-9", &self.0]).status();
    }
}

#[test]
fn when_a_maker_is_killed_those_who_wait_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut maker = Children::start("hang", folder.path(), 0..1);
    until("the child is inside make", || folder.path().join("pid").exists());
    let compiler = Orphan(fs::read_to_string(folder.path().join("pid")).unwrap());
    let cache = Cache::at(cache_in(folder.path()), 1 << 30);
    assert_eq!(ask(&cache, 1), Outcome::Miss, "another key has nothing to wait for");

    let waiters: Vec<_> = (0..3)
        .map(|_| {
            thread::spawn({
                let cache = cache.clone();
                move || ask(&cache, 0)
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(150));
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "the key is being made and nobody waited for it");
    maker.kill();
    until("the waiting threads have the entry", || waiters.iter().all(|waiter| waiter.is_finished()));
    assert!(Path::new("/proc").join(&compiler.0).exists(), "the compiler should have outlived the maker: does it keep the lock?");

    let mut outcomes: Vec<Outcome> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
    outcomes.sort_by_key(|outcome| *outcome != Outcome::Miss);
    assert_eq!(outcomes, [Outcome::Miss, Outcome::Hit, Outcome::Hit]);
}

#[test]
fn when_a_writer_is_killed_half_way_its_key_is_free_and_its_file_swept() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(cache_in(folder.path()), 1 << 30);
    // The kill must fall between the temporary file's creation and its renaming. It nearly always does.
    let number = (0..10)
        .find(|&number| {
            let mut writer = Children::start("write-large", folder.path(), number..number + 1);
            until("a temporary file is there", || {
                !files_with(&cache_in(folder.path()), "ww-tmp-").is_empty() || entry_file(&cache, number).exists()
            });
            writer.kill();
            !files_with(&cache_in(folder.path()), "ww-tmp-").is_empty()
        })
        .expect("no writer was caught in ten attempts");
    assert!(!entry_file(&cache, number).exists());
    assert_eq!(cache.get(&key(number)), None);
    assert_eq!(ask(&cache, number), Outcome::Miss);

    let leftover = files_with(&cache_in(folder.path()), "ww-tmp-").pop().unwrap();
    assert_eq!(ask(&cache, 100), Outcome::Miss);
    assert!(leftover.exists(), "it may be a living writer's: too young to be swept");
    File::open(&leftover).unwrap().set_modified(SystemTime::now() - Duration::from_secs(2 * 3600)).unwrap();
    assert_eq!(ask(&cache, 101), Outcome::Miss);
    assert!(!leftover.exists(), "not swept");
}

// ------------------------------------------------------------------------------------------------- read-only and full folders

/// Runs `role` with `folder/cache` being a file system of its own. Says why not, if that is not possible.
fn run_mounted(role: &str, folder: &Path, options: &str) -> Result<(), String> {
    let mount_point = cache_in(folder);
    fs::create_dir_all(&mount_point).unwrap();
    let in_namespace = |script: &str, command: Command| {
        let mut unshare = Command::new("unshare");
        // Root mounts as it is; others become root in a user namespace, where that is allowed.
        let is_root = fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
        unshare.args(if is_root { &["--mount"][..] } else { &["--user", "--map-root-user", "--mount"] });
        unshare.args(["sh", "-c", &format!("mount -t tmpfs -o {options} tmpfs \"$1\" && shift && {script}"), "sh"]).arg(&mount_point);
        unshare.arg(command.get_program()).args(command.get_args());
        unshare.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        unshare
    };
    match in_namespace("true", Command::new("true")).output() {
        Err(error) => return Err(format!("unshare: {error}")),
        Ok(output) if !output.status.success() => return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Ok(_) => {}
    }
    let output = in_namespace("exec \"$@\"", child_command(role, folder, 0)).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    Ok(())
}

fn read_only_child(folder: &Path) {
    let mount_point = cache_in(folder);
    use_read_only(&mount_point, || {
        assert!(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(&mount_point).status().unwrap().success());
    });
}

/// Fills a cache, makes its folder read-only, and uses it.
fn use_read_only(folder: &Path, make_read_only: impl FnOnce()) {
    assert_eq!(ask(&Cache::at(folder, 1 << 30), 0), Outcome::Miss);
    let old = SystemTime::now() - Duration::from_secs(3600);
    File::open(entry_file(&Cache::at(folder, 0), 0)).unwrap().set_modified(old).unwrap();
    make_read_only();
    assert!(File::create(folder.join("x")).is_err(), "the folder is not read-only; the test shows nothing");

    let cache = Cache::at(folder, 1 << 30);
    assert_eq!(ask(&cache, 0), Outcome::Hit);
    assert_eq!((ask(&cache, 1), ask(&cache, 1)), (Outcome::Uncached, Outcome::Uncached));
    assert_eq!(cache.memo().get_or(Path::new("/bin/sh"), "kind", || Ok("value".into())).unwrap(), "value");
    assert_eq!(cache.verify().good, 1);
    let cleared = cache.clear();
    assert_eq!((cleared.entries, cleared.failed.len()), (0, 1), "{cleared:?}");
    assert_eq!(ask(&cache, 0), Outcome::Hit);
    // A folder that is not there and cannot be created.
    assert_eq!(ask(&Cache::at(folder.join("below"), 1 << 30), 1), Outcome::Uncached);
}

#[test]
fn a_read_only_folder_serves_what_it_has_and_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let Err(reason) = run_mounted("read-only", folder.path(), "size=1m") else { return };
    // Without mounts, permissions do, except for root, who has them all.
    let probe = folder.path().join("probe");
    fs::create_dir(&probe).unwrap();
    let forbid = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o555)).unwrap();
    forbid(&probe);
    if File::create(probe.join("x")).is_ok() {
        require(false, &format!("a read-only folder: cannot mount ({reason}), and this user may write despite permissions"));
        return;
    }
    let cache = folder.path().join("by-permission");
    let used = std::panic::catch_unwind(|| use_read_only(&cache, || forbid(&cache)));
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o755)).unwrap();
    used.unwrap();
}

fn full_child(folder: &Path) {
    let mount_point = cache_in(folder);
    let cache = Cache::at(&mount_point, 1 << 30);
    let outcomes: Vec<Outcome> = (0..60).map(|number| ask(&cache, number)).collect();
    let stored = outcomes.iter().filter(|outcome| **outcome == Outcome::Miss).count();
    assert!((5..60).contains(&stored), "the disk should be full after some entries, not after {stored}");
    assert_eq!(files_with(&mount_point, "ww-tmp-"), [] as [PathBuf; 0], "a failed write left its file on a full disk");
    let report = cache.verify();
    assert_eq!((report.good, report.damaged), (stored as u64, 0));
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let expected = if outcome == Outcome::Miss { Outcome::Hit } else { Outcome::Uncached };
        assert_eq!(ask(&cache, number), expected, "key {number}");
    }
    assert_eq!(cache.memo().get_or(Path::new("/bin/sh"), "kind", || Ok("value".into())).unwrap(), "value");
    assert_eq!(cache.clear().entries, stored as u64);
    assert_eq!(ask(&cache, 59), Outcome::Miss, "with room again it should store again");
}

#[test]
fn a_full_disk_stops_nothing_and_leaves_no_halves() {
    let folder = tempfile::tempdir().unwrap();
    if let Err(reason) = run_mounted("full", folder.path(), "size=64k") {
        require(false, &format!("a full disk: cannot mount ({reason})"));
    }
}
