//! Autotuning: finds the fastest settings on a device.

use warpwave_gpu::{Buffer, Device, Stream};
use warpwave_jit::Jit;

use crate::dtype::DType;
use crate::elementwise::{Binary, Unary};
use crate::error::Result;
use crate::kernels::{Kernels, launch_error};
use crate::layout::Layout;
use crate::tuning::{Tuning, TuningParam};
use crate::view::{View, ViewMut};

/// A measured setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// The parameter.
    pub param: TuningParam,
    /// Its value.
    pub value: u32,
    /// Time of the affected operations, in microseconds.
    pub micros: f64,
    /// Whether it was kept.
    pub kept: bool,
}

/// A value must be this much faster than the default to be kept; less is noise.
const WORTH: f64 = 0.99;
/// Runs of each operation; the median counts.
const RUNS: usize = 15;

/// Tries every value of every parameter with operations over `bytes` bytes each, and returns the fastest settings. `tried` is called after
/// each trial.
pub fn tune(device: &Device, jit: &Jit, bytes: usize, mut tried: impl FnMut(Trial)) -> Result<Tuning> {
    let mut probe = Probe::new(device, bytes)?;
    let mut tuning = Tuning::default();
    // The block size last: it is chosen for the final kernels.
    for param in TuningParam::ALL.into_iter().rev() {
        let (mut best, mut usual) = (f64::INFINITY, f64::INFINITY);
        for (place, value) in param.choices().iter().copied().enumerate() {
            let mut candidate = tuning.clone();
            candidate.set(param, value);
            let micros = probe.micros(&Kernels::with_tuning(device, jit, candidate.clone()), param)?;
            if place == 0 {
                usual = micros;
            }
            let kept = micros < best && (place == 0 || micros < usual * WORTH);
            if kept {
                (best, tuning) = (micros, candidate);
            }
            tried(Trial { param, value, micros, kept });
        }
    }
    Ok(tuning)
}

/// Memory to run operations on.
struct Probe {
    stream: Stream,
    input: Buffer<u8>,
    out: Buffer<u8>,
}

impl Probe {
    fn new(device: &Device, bytes: usize) -> Result<Probe> {
        let make = || {
            let stream = device.stream()?;
            let mut input = stream.alloc::<u8>(bytes)?;
            // Neither zero, NaN nor subnormal as floats of any width.
            stream.fill(&mut input, 0x3b)?;
            let out = stream.alloc::<u8>(bytes)?;
            Ok(Probe { stream, input, out })
        };
        make().map_err(launch_error("tune"))
    }

    /// Time of the operations that a parameter affects.
    fn micros(&mut self, kernels: &Kernels, param: TuningParam) -> Result<f64> {
        let all = param == TuningParam::Block;
        let mut total = 0.0;
        for dtype in [DType::F32, DType::Bf16] {
            if all || param == TuningParam::UnrollFill {
                total += self.median(dtype, |stream, _, out| kernels.fill(stream, 1.5, out))?;
            }
            if all || param == TuningParam::UnrollOne {
                total += self.median(dtype, |stream, x, out| kernels.unary(stream, Unary::Neg, x, out))?;
            }
            if all || param == TuningParam::UnrollMany {
                total += self.median(dtype, |stream, x, out| kernels.binary(stream, Binary::Add, x, x, out))?;
            }
            if all || param == TuningParam::UnrollHeavy {
                for op in [Unary::Exp, Unary::Tanh, Unary::Gelu] {
                    total += self.median(dtype, |stream, x, out| kernels.unary(stream, op, x, out))?;
                }
            }
            if all || param == TuningParam::UnrollHeaviest {
                total += self.median(dtype, |stream, x, out| kernels.unary(stream, Unary::Erf, x, out))?;
            }
        }
        if all || param == TuningParam::UnrollCast {
            for (from, to) in [(DType::F32, DType::Bf16), (DType::Bf16, DType::F32)] {
                total += self.median_of(from, to, |stream, x, out| kernels.cast(stream, x, out))?;
            }
        }
        Ok(total)
    }

    fn median(&mut self, dtype: DType, run: impl Fn(&Stream, &View<'_>, &mut ViewMut<'_>) -> Result<()>) -> Result<f64> {
        self.median_of(dtype, dtype, run)
    }

    fn median_of(&mut self, from: DType, to: DType, run: impl Fn(&Stream, &View<'_>, &mut ViewMut<'_>) -> Result<()>) -> Result<f64> {
        let layout = Layout::contiguous(&[self.out.len() / from.size().max(to.size())])?;
        let x = View::of_bytes(&self.input, from, layout)?;
        let mut out = ViewMut::of_bytes(&mut self.out, to, layout)?;
        // The first run compiles.
        run(&self.stream, &x, &mut out)?;
        let mut times = Vec::with_capacity(RUNS);
        for _ in 0..RUNS {
            let begin = self.stream.record().map_err(launch_error("tune"))?;
            run(&self.stream, &x, &mut out)?;
            let end = self.stream.record().map_err(launch_error("tune"))?;
            let took = end.synchronize().and_then(|()| begin.elapsed_ms(&end)).map_err(launch_error("tune"))?;
            times.push(f64::from(took) * 1e3);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[RUNS / 2])
    }
}
