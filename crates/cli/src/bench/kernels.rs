//! The time of each kernel of some work on a GPU.

use std::collections::HashMap;
use std::io::Write;

use serde_json::{Value, json};
use warpwave_gpu::{KernelTime, Stream};

use super::super::{Failure, Outcome};
use super::median;

/// All launches of one kernel.
pub struct KernelTotal {
    name: String,
    count: usize,
    pub seconds: f64,
}

impl KernelTotal {
    /// The facts as JSON.
    pub fn json(&self) -> Value {
        json!({ "name": self.name, "launches": self.count, "seconds": self.seconds })
    }
}

/// Times each kernel of `work` in the median of some runs; the slowest first.
pub fn totals(stream: &Stream, runs: usize, mut work: impl FnMut() -> Outcome) -> Result<Vec<KernelTotal>, Failure> {
    // The overhead of the events themselves.
    let (empty, nothing) = stream.time_kernels(|| (0..9).try_for_each(|_| stream.enqueue_external((), |_| ())))?;
    empty?;
    let nothing = median(nothing.iter().map(|time| time.seconds).collect());
    let mut all = Vec::new();
    for _ in 0..runs {
        let (done, times) = stream.time_kernels(&mut work)?;
        done?;
        all.push(times);
    }
    let sum = |times: &[KernelTime]| times.iter().map(|time| time.seconds).sum::<f64>();
    all.sort_by(|a, b| sum(a).total_cmp(&sum(b)));
    let mut by_name = HashMap::new();
    for time in all.get(runs / 2).into_iter().flatten() {
        let total = by_name.entry(time.name.clone()).or_insert_with(|| KernelTotal { name: time.name.clone(), count: 0, seconds: 0.0 });
        total.count += 1;
        total.seconds += (time.seconds - nothing).max(0.0);
    }
    let mut totals: Vec<KernelTotal> = by_name.into_values().collect();
    totals.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    Ok(totals)
}

/// Prints a line per kernel, of the slowest `most`.
pub fn print(out: &mut dyn Write, totals: &[KernelTotal], most: usize) -> Outcome {
    for KernelTotal { name, count, seconds } in totals.iter().take(most) {
        writeln!(out, "  {:>9.1} us  {count:>4} x {:>7.1}  {name}", seconds * 1e6, seconds * 1e6 / *count as f64)?;
    }
    Ok(())
}
