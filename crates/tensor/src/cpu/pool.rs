//! The thread pool.
//!
//! Decoding a token of a small model is hundreds of jobs of 20 to 100 µs, and waking a sleeping thread takes as long. So workers spin for
//! a while before they sleep. Tasks of a job are claimed one by one, by the caller too: a worker that the system does not schedule costs
//! nothing, since the others take its tasks.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// How long a worker spins before it sleeps.
const SPIN: Duration = Duration::from_micros(300);

/// A job of several tasks, on the caller's stack.
struct Job {
    task: *const (dyn Fn(usize) + Sync),
    tasks: usize,
    next: AtomicUsize,
    /// Workers that may still join.
    openings: AtomicUsize,
    panicked: AtomicBool,
}

/// State shared with the workers.
struct Shared {
    /// Incremented for each job.
    generation: AtomicU64,
    /// The current job.
    job: Mutex<Option<*const Job>>,
    /// Workers running the job.
    running: AtomicUsize,
    asleep: AtomicUsize,
    wake: Condvar,
}

// SAFETY: the pointer is dereferenced only by workers counted in `running`; the job outlives them, and no worker joins afterwards.
unsafe impl Send for Shared {}
// SAFETY: as above; the job's closure is `Sync`.
unsafe impl Sync for Shared {}

struct Pool {
    shared: Arc<Shared>,
    /// Workers started so far; locked by the caller whose job is in the pool.
    workers: Mutex<usize>,
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| {
        let shared = Shared {
            generation: AtomicU64::new(0),
            job: Mutex::new(None),
            running: AtomicUsize::new(0),
            asleep: AtomicUsize::new(0),
            wake: Condvar::new(),
        };
        Pool { shared: Arc::new(shared), workers: Mutex::new(0) }
    })
}

static DEFAULT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static HERE: Cell<usize> = const { Cell::new(0) };
}

/// Sets the default number of threads, the caller included; 0 uses all processors.
pub fn set_threads(count: usize) {
    DEFAULT.store(count, Ordering::Relaxed);
}

/// Returns the number of threads for calls from this thread.
pub fn threads() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    match (HERE.get(), DEFAULT.load(Ordering::Relaxed)) {
        (0, 0) => *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, |count| count.get())),
        (0, count) | (count, _) => count,
    }
}

/// Runs a closure with a number of threads for its calls; 0 uses all processors.
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

/// Calls `task` with each number below `tasks`, on several threads; on this thread alone if the workers are busy.
pub(super) fn parallel(tasks: usize, task: &(dyn Fn(usize) + Sync)) {
    let threads = threads().min(tasks);
    let free = if threads > 1 { pool().workers.try_lock().ok() } else { None };
    let Some(mut workers) = free else {
        (0..tasks).for_each(task);
        return;
    };
    let shared = &pool().shared;
    while *workers + 1 < threads {
        let shared = Arc::clone(shared);
        let started = thread::Builder::new().name(format!("warpwave-cpu-{}", *workers + 1)).spawn(move || run_worker(&shared));
        if started.is_err() {
            break;
        }
        *workers += 1;
    }
    // SAFETY: only the lifetime changes; no thread holds the pointer when this function returns.
    let task: *const (dyn Fn(usize) + Sync) =
        unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(task) };
    let job = Job { task, tasks, next: AtomicUsize::new(0), openings: AtomicUsize::new(threads - 1), panicked: AtomicBool::new(false) };
    *lock(&shared.job) = Some(&raw const job);
    shared.generation.fetch_add(1, Ordering::SeqCst);
    if shared.asleep.load(Ordering::SeqCst) > 0 {
        drop(lock(&shared.job));
        shared.wake.notify_all();
    }
    let own = catch_unwind(AssertUnwindSafe(|| work(&job)));
    // From here on no worker joins; running ones finish their task.
    job.next.store(tasks, Ordering::Relaxed);
    *lock(&shared.job) = None;
    let mut rounds = 0u32;
    while shared.running.load(Ordering::Acquire) > 0 {
        rounds += 1;
        // Yields to a worker that was descheduled.
        if rounds < 2000 { std::hint::spin_loop() } else { thread::yield_now() }
    }
    drop(workers);
    match own {
        Err(panic) => resume_unwind(panic),
        Ok(()) => assert!(!job.panicked.load(Ordering::Relaxed), "a task panicked on another thread"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn work(job: &Job) {
    // SAFETY: the closure outlives the job.
    let task = unsafe { &*job.task };
    loop {
        let i = job.next.fetch_add(1, Ordering::Relaxed);
        if i >= job.tasks {
            return;
        }
        task(i);
    }
}

fn run_worker(shared: &Shared) {
    // Nested calls run on this thread alone.
    HERE.set(1);
    let mut seen = 0;
    loop {
        seen = wait(shared, seen);
        let job = {
            let current = lock(&shared.job);
            // SAFETY: the job lives while the lock is held.
            let job = current.map(|job| unsafe { &*job });
            let joins =
                |job: &&Job| job.openings.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |openings| openings.checked_sub(1)).is_ok();
            // After the lock is released it lives on, since the caller waits for running workers.
            let job = job.filter(joins);
            shared.running.fetch_add(usize::from(job.is_some()), Ordering::Relaxed);
            job
        };
        if let Some(job) = job {
            if catch_unwind(AssertUnwindSafe(|| work(job))).is_err() {
                job.panicked.store(true, Ordering::Relaxed);
            }
            shared.running.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Waits for the next job and returns its generation.
fn wait(shared: &Shared, seen: u64) -> u64 {
    let start = Instant::now();
    let mut rounds = 0u32;
    loop {
        let generation = shared.generation.load(Ordering::SeqCst);
        if generation != seen {
            return generation;
        }
        rounds += 1;
        if !rounds.is_multiple_of(64) {
            std::hint::spin_loop();
            continue;
        }
        // Lets other threads run.
        thread::yield_now();
        if start.elapsed() > SPIN {
            break;
        }
    }
    let mut job = lock(&shared.job);
    shared.asleep.fetch_add(1, Ordering::SeqCst);
    loop {
        let generation = shared.generation.load(Ordering::SeqCst);
        if generation != seen {
            shared.asleep.fetch_sub(1, Ordering::SeqCst);
            return generation;
        }
        job = shared.wake.wait(job).unwrap_or_else(|poisoned| poisoned.into_inner());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_runs_once_with_concurrent_callers() {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..300 {
                        let counts: Vec<AtomicUsize> = (0..round % 40).map(|_| AtomicUsize::new(0)).collect();
                        with_threads(1 + round % 4, || {
                            parallel(counts.len(), &|i| {
                                counts[i].fetch_add(1, Ordering::Relaxed);
                                // Tasks may be parallel themselves.
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
    fn a_panic_is_propagated_and_workers_survive() {
        for _ in 0..20 {
            let panic = catch_unwind(|| with_threads(3, || parallel(50, &|i| assert!(i != 33, "task {i}"))));
            assert!(panic.is_err());
            let sum = AtomicUsize::new(0);
            with_threads(3, || parallel(50, &|i| _ = sum.fetch_add(i, Ordering::Relaxed)));
            assert_eq!(sum.into_inner(), 1225);
        }
    }

    #[test]
    fn the_innermost_number_of_threads_applies() {
        assert_eq!(with_threads(3, || with_threads(2, threads)), 2);
        assert_eq!(with_threads(3, || with_threads(0, threads)), thread::available_parallelism().map_or(1, |count| count.get()));
    }
}
