//! Threads that share a piece of work.
//!
//! A token of a small model is hundreds of pieces of 20 to 100 µs: waking a sleeping thread takes as long. So helpers look for the next
//! piece for a while before they sleep. Parts are taken one by one, and the caller takes them too: a helper that a busy machine does not
//! run costs nothing, for the others take what it does not.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// How long a helper looks for work before it sleeps.
const AWAKE: Duration = Duration::from_micros(300);

/// Work in parts, on the caller's stack.
struct Job {
    part: *const (dyn Fn(usize) + Sync),
    parts: usize,
    next: AtomicUsize,
    /// Helpers that may join.
    places: AtomicUsize,
    panicked: AtomicBool,
}

/// What helpers look at.
struct Shared {
    /// Changes when there is a new job.
    number: AtomicU64,
    /// The job, while it lasts.
    job: Mutex<Option<*const Job>>,
    /// Helpers inside of the job.
    inside: AtomicUsize,
    asleep: AtomicUsize,
    wake: Condvar,
}

// SAFETY: the pointer is followed only by helpers counted in `inside`, and the job stays until there are none and none can join.
unsafe impl Send for Shared {}
// SAFETY: as above; what the job points to is `Sync`.
unsafe impl Sync for Shared {}

struct Pool {
    shared: Arc<Shared>,
    /// Helpers that were started; held by whoever has a job in the pool.
    helpers: Mutex<usize>,
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| {
        let shared = Shared {
            number: AtomicU64::new(0),
            job: Mutex::new(None),
            inside: AtomicUsize::new(0),
            asleep: AtomicUsize::new(0),
            wake: Condvar::new(),
        };
        Pool { shared: Arc::new(shared), helpers: Mutex::new(0) }
    })
}

static DEFAULT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static HERE: Cell<usize> = const { Cell::new(0) };
}

/// How many threads work from now on, the caller's included; 0 for as many as there are processors.
pub fn set_threads(count: usize) {
    DEFAULT.store(count, Ordering::Relaxed);
}

/// How many threads work for calls from this one.
pub fn threads() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    match (HERE.get(), DEFAULT.load(Ordering::Relaxed)) {
        (0, 0) => *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, |count| count.get())),
        (0, count) | (count, _) => count,
    }
}

/// Runs something with so many threads for its calls.
pub fn with_threads<R>(count: usize, run: impl FnOnce() -> R) -> R {
    struct Restore(usize);
    impl Drop for Restore {
        fn drop(&mut self) {
            HERE.set(self.0);
        }
    }
    let _restore = Restore(HERE.replace(count));
    run()
}

/// Calls `part` with each number below `parts`, on several threads. Those of a caller who finds the helpers busy run on its own.
pub(super) fn parallel(parts: usize, part: &(dyn Fn(usize) + Sync)) {
    let threads = threads().min(parts);
    let free = if threads > 1 { pool().helpers.try_lock().ok() } else { None };
    let Some(mut helpers) = free else {
        (0..parts).for_each(part);
        return;
    };
    let shared = &pool().shared;
    while *helpers + 1 < threads {
        let shared = Arc::clone(shared);
        let started = thread::Builder::new().name(format!("warpwave-cpu-{}", *helpers + 1)).spawn(move || help(&shared));
        if started.is_err() {
            break;
        }
        *helpers += 1;
    }
    // SAFETY: only the lifetime changes; nobody has the pointer when this function ends.
    let part: *const (dyn Fn(usize) + Sync) =
        unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(part) };
    let job = Job { part, parts, next: AtomicUsize::new(0), places: AtomicUsize::new(threads - 1), panicked: AtomicBool::new(false) };
    *lock(&shared.job) = Some(&raw const job);
    shared.number.fetch_add(1, Ordering::SeqCst);
    if shared.asleep.load(Ordering::SeqCst) > 0 {
        drop(lock(&shared.job));
        shared.wake.notify_all();
    }
    let own = catch_unwind(AssertUnwindSafe(|| work(&job)));
    // From here on nobody joins; those inside finish their part.
    job.next.store(parts, Ordering::Relaxed);
    *lock(&shared.job) = None;
    let mut rounds = 0u32;
    while shared.inside.load(Ordering::Acquire) > 0 {
        rounds += 1;
        // A helper that lost its processor gets this one.
        if rounds < 2000 { std::hint::spin_loop() } else { thread::yield_now() }
    }
    drop(helpers);
    match own {
        Err(panic) => resume_unwind(panic),
        Ok(()) => assert!(!job.panicked.load(Ordering::Relaxed), "a part of the work panicked on another thread"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn work(job: &Job) {
    // SAFETY: the function outlives the job.
    let part = unsafe { &*job.part };
    loop {
        let i = job.next.fetch_add(1, Ordering::Relaxed);
        if i >= job.parts {
            return;
        }
        part(i);
    }
}

fn help(shared: &Shared) {
    // What parts call runs on this thread alone.
    HERE.set(1);
    let mut seen = 0;
    loop {
        seen = wait(shared, seen);
        let job = {
            let place = lock(&shared.job);
            // SAFETY: while the lock is held the job, if there is one, stays.
            let job = place.map(|job| unsafe { &*job });
            let joins = |job: &&Job| job.places.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |places| places.checked_sub(1)).is_ok();
            // Behind the lock it stays because the caller waits for those inside.
            let job = job.filter(joins);
            shared.inside.fetch_add(usize::from(job.is_some()), Ordering::Relaxed);
            job
        };
        if let Some(job) = job {
            if catch_unwind(AssertUnwindSafe(|| work(job))).is_err() {
                job.panicked.store(true, Ordering::Relaxed);
            }
            shared.inside.fetch_sub(1, Ordering::Release);
        }
    }
}

/// The number of the next job.
fn wait(shared: &Shared, seen: u64) -> u64 {
    let start = Instant::now();
    let mut rounds = 0u32;
    loop {
        let number = shared.number.load(Ordering::SeqCst);
        if number != seen {
            return number;
        }
        rounds += 1;
        if !rounds.is_multiple_of(64) {
            std::hint::spin_loop();
            continue;
        }
        // Whoever else wants the processor gets it.
        thread::yield_now();
        if start.elapsed() > AWAKE {
            break;
        }
    }
    let mut job = lock(&shared.job);
    shared.asleep.fetch_add(1, Ordering::SeqCst);
    loop {
        let number = shared.number.load(Ordering::SeqCst);
        if number != seen {
            shared.asleep.fetch_sub(1, Ordering::SeqCst);
            return number;
        }
        job = shared.wake.wait(job).unwrap_or_else(|poisoned| poisoned.into_inner());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_runs_once_whoever_else_asks() {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..300 {
                        let counts: Vec<AtomicUsize> = (0..round % 40).map(|_| AtomicUsize::new(0)).collect();
                        with_threads(1 + round % 4, || {
                            parallel(counts.len(), &|i| {
                                counts[i].fetch_add(1, Ordering::Relaxed);
                                // Parts may share work themselves.
                                parallel(2, &|_| ());
                            });
                        });
                        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_comes_back_and_the_helpers_stay() {
        for _ in 0..20 {
            let panic = catch_unwind(|| with_threads(3, || parallel(50, &|i| assert!(i != 33, "part {i}"))));
            assert!(panic.is_err());
            let sum = AtomicUsize::new(0);
            with_threads(3, || parallel(50, &|i| _ = sum.fetch_add(i, Ordering::Relaxed)));
            assert_eq!(sum.into_inner(), 1225);
        }
    }

    #[test]
    fn the_number_of_threads_is_the_nearest_one_given() {
        assert_eq!(with_threads(3, || with_threads(2, threads)), 2);
        assert_eq!(with_threads(3, || with_threads(0, threads)), thread::available_parallelism().map_or(1, |count| count.get()));
    }
}
