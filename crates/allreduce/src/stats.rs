//! Call counters, printed with `WARPWAVE_MPI_STATS=1`.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::abi::Mpi;
use crate::settings::ProcessSettings;
use crate::table::Algorithm;

static CALLS: [AtomicU64; Algorithm::ALL.len()] = [const { AtomicU64::new(0) }; Algorithm::ALL.len()];
static DEVICE: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Counts a call if statistics are enabled.
#[inline]
pub fn count(algorithm: Algorithm, bytes: u64, on_device: bool) {
    if ProcessSettings::get().stats {
        CALLS[algorithm as usize].fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(bytes, Ordering::Relaxed);
        DEVICE.fetch_add(u64::from(on_device), Ordering::Relaxed);
    }
}

/// Prints this rank's counters as one line on standard error, if statistics are enabled. Only the first call prints.
pub fn print() {
    static PRINTED: AtomicBool = AtomicBool::new(false);
    let (true, Some(mpi), false) = (ProcessSettings::get().stats, Mpi::get(), PRINTED.swap(true, Ordering::Relaxed)) else { return };
    let mut rank = -1;
    // SAFETY: the output outlives the call; MPI is not finalized yet.
    unsafe { (mpi.calls.comm_rank)(mpi.comm_world, &mut rank) };
    let counts = CALLS.each_ref().map(|count| count.load(Ordering::Relaxed));
    let by_name: String = Algorithm::ALL
        .iter()
        .zip(counts)
        .filter(|(algorithm, count)| *count > 0 || **algorithm == Algorithm::Native)
        .map(|(algorithm, count)| format!(",\"{}\":{count}", algorithm.name()))
        .collect();
    let (calls, device, bytes) = (counts.iter().sum::<u64>(), DEVICE.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    let line = format!("warpwave-mpi stats {{\"rank\":{rank},\"calls\":{calls}{by_name},\"device\":{device},\"bytes\":{bytes}}}\n");
    // One write, because the ranks share standard error.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
