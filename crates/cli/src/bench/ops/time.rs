//! How long a thing takes: medians, with the device's cache emptied before each run.

use std::time::{Duration, Instant};

use warpwave_gpu::{Event, Stream};
use warpwave_kernels::{DType, Layout, Reduce, View, ViewMut};

use super::super::super::Failure;
use super::super::median;
use super::case::{Bench, Run};

/// Floats that are read between runs: more than any cache holds. Written, they would still have to go to memory while the run is timed.
const FLUSH: usize = 64 << 20;
/// How long the runs of one measurement take together, about.
pub const SPAN: Duration = Duration::from_millis(40);
/// The same where a card computes at its limit of power: it takes a while to find the clock for what it does, and what was done before
/// must not count.
pub const LONG_SPAN: Duration = Duration::from_millis(150);

/// A clock on a stream.
pub struct Timer {
    stream: Stream,
    flush: Option<Run>,
}

impl Timer {
    /// A virtual device has no cache to empty.
    pub fn new(bench: &Bench, small: bool) -> Result<Timer, Failure> {
        let flush = if small { None } else { Some(flush(bench)?) };
        Ok(Timer { stream: bench.stream.clone(), flush })
    }

    /// Seconds of one run, the median of many.
    pub fn seconds(&mut self, run: &mut Run, span: Duration) -> Result<f64, Failure> {
        // What is compiled or allocated at first is not what is asked for.
        run()?;
        self.stream.synchronize()?;
        let once = self.batch(run, 2)?;
        let span = if self.flush.is_some() { span.as_secs_f64() } else { 0.0 };
        let runs = (span / once.max(1e-6)).clamp(3.0, 100.0) as usize;
        self.batch(run, runs)
    }

    fn batch(&mut self, run: &mut Run, runs: usize) -> Result<f64, Failure> {
        let device = self.stream.device().clone();
        let mut events = Vec::with_capacity(runs);
        for _ in 0..runs {
            if let Some(flush) = &mut self.flush {
                flush()?;
            }
            let (start, end) = (Event::new(&device)?, Event::new(&device)?);
            start.record(&self.stream)?;
            run()?;
            end.record(&self.stream)?;
            events.push((start, end));
        }
        self.stream.synchronize()?;
        let times: Result<Vec<f64>, _> = events.iter().map(|(start, end)| start.elapsed_ms(end).map(|ms| f64::from(ms) / 1e3)).collect();
        Ok(median(times?))
    }
}

/// Leaves nothing of what ran before in the cache, and nothing that is still to be written.
fn flush(bench: &Bench) -> Result<Run, Failure> {
    let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
    let (from, mut to) = (bench.normal(DType::F32, FLUSH)?, bench.room(DType::F32, 1)?);
    let (all, one) = (Layout::contiguous(&[FLUSH])?, Layout::contiguous(&[1])?);
    Ok(Box::new(move || {
        let (x, mut y) = (View::of_bytes(&from, DType::F32, all)?, ViewMut::of_bytes(&mut to, DType::F32, one)?);
        Ok(kernels.reduce(&stream, Reduce::Sum, &x, &[0], &mut y)?)
    }))
}

/// Seconds of one run on the CPU, the median of some.
pub fn on_cpu(run: &mut Run) -> Result<f64, Failure> {
    run()?;
    let mut times = Vec::new();
    let begin = Instant::now();
    while times.len() < 3 || (times.len() < 20 && begin.elapsed() < SPAN) {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(median(times))
}
