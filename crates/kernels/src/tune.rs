//! Finds the choices that are fastest on a device.

use warpwave_gpu::{Buffer, Device, Stream};
use warpwave_jit::Jit;

use crate::dtype::DType;
use crate::elementwise::{Binary, Unary};
use crate::error::Result;
use crate::kernels::{Kernels, refused};
use crate::layout::Layout;
use crate::tuning::{Knob, Tuning};
use crate::view::{View, ViewMut};

/// A choice that was tried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// The knob.
    pub knob: Knob,
    /// What it was set to.
    pub value: u32,
    /// Microseconds that the operations it matters to took together.
    pub micros: f64,
    /// Whether it was kept.
    pub kept: bool,
}

/// How much faster a choice must be than the usual one to be kept: less is noise.
const WORTH: f64 = 0.99;
/// Runs of each operation, of which the median counts.
const RUNS: usize = 15;

/// Tries every choice of every knob with operations over so many bytes each, and gives the fastest. Each trial is told as it ends.
pub fn tune(device: &Device, jit: &Jit, bytes: usize, mut tried: impl FnMut(Trial)) -> Result<Tuning> {
    let mut probe = Probe::new(device, bytes)?;
    let mut tuning = Tuning::default();
    // The block's size last: it is chosen for the kernels as they will be.
    for knob in Knob::ALL.into_iter().rev() {
        let (mut best, mut usual) = (f64::INFINITY, f64::INFINITY);
        for (place, value) in knob.choices().iter().copied().enumerate() {
            let mut candidate = tuning.clone();
            candidate.set(knob, value);
            let micros = probe.micros(&Kernels::with_tuning(device, jit, candidate.clone()), knob)?;
            if place == 0 {
                usual = micros;
            }
            let kept = micros < best && (place == 0 || micros < usual * WORTH);
            if kept {
                (best, tuning) = (micros, candidate);
            }
            tried(Trial { knob, value, micros, kept });
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
            // Numbers that are neither zero nor strange as floats of any width.
            stream.fill(&mut input, 0x3b)?;
            let out = stream.alloc::<u8>(bytes)?;
            Ok(Probe { stream, input, out })
        };
        make().map_err(refused("tune"))
    }

    /// What the operations take together that a knob matters to.
    fn micros(&mut self, kernels: &Kernels, knob: Knob) -> Result<f64> {
        let all = knob == Knob::Block;
        let mut total = 0.0;
        for dtype in [DType::F32, DType::Bf16] {
            if all || knob == Knob::UnrollFill {
                total += self.median(dtype, |stream, _, out| kernels.fill(stream, 1.5, out))?;
            }
            if all || knob == Knob::UnrollOne {
                total += self.median(dtype, |stream, x, out| kernels.unary(stream, Unary::Neg, x, out))?;
            }
            if all || knob == Knob::UnrollMany {
                total += self.median(dtype, |stream, x, out| kernels.binary(stream, Binary::Add, x, x, out))?;
            }
            if all || knob == Knob::UnrollHeavy {
                for op in [Unary::Exp, Unary::Tanh, Unary::Gelu] {
                    total += self.median(dtype, |stream, x, out| kernels.unary(stream, op, x, out))?;
                }
            }
            if all || knob == Knob::UnrollHeaviest {
                total += self.median(dtype, |stream, x, out| kernels.unary(stream, Unary::Erf, x, out))?;
            }
        }
        if all || knob == Knob::UnrollCast {
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
        // What is compiled at first is not what is asked for.
        run(&self.stream, &x, &mut out)?;
        let mut times = Vec::with_capacity(RUNS);
        for _ in 0..RUNS {
            let begin = self.stream.record().map_err(refused("tune"))?;
            run(&self.stream, &x, &mut out)?;
            let end = self.stream.record().map_err(refused("tune"))?;
            let took = end.synchronize().and_then(|()| begin.elapsed_ms(&end)).map_err(refused("tune"))?;
            times.push(f64::from(took) * 1e3);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[RUNS / 2])
    }
}
