//! Sampling tokens from logits.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch, Stream};

use crate::common::heads::{INDEX_DTYPES, check_dtype, check_shape, packed, pointer, sizes, strides, width};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::{Kernels, check_no_overlap, check_same_dtype, launch_error, shape_error};
use crate::program::{Program, SourceFile, source_file};
use crate::view::{View, ViewMut};

static SAMPLE: SourceFile = source_file!("sample/sample.cu", &[""]);
static GREEDY: SourceFile = source_file!("sample/greedy.cu", &["_partial", "_combine"]);
static PENALTY: SourceFile = source_file!("sample/penalty.cu", &[""]);

/// Types of logits.
const LOGITS: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];
/// Threads of a block.
const THREADS: u32 = 512;
const GREEDY_THREADS: u32 = 256;
/// Tokens per block of the greedy kernel.
const PART: usize = 16 * GREEDY_THREADS as usize;

/// Sampling parameters. Filters apply in the order `top_k`, `top_p`, `min_p`; ties with the last kept token are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Divisor of the logits. 0 is greedy: the largest logit, the first of equals.
    pub temperature: f32,
    /// Keeps the k largest; 0 keeps all.
    pub top_k: usize,
    /// Nucleus sampling: keeps the smallest set with cumulative probability >= p; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens with at least this fraction of the largest probability; 0 keeps all.
    pub min_p: f32,
}

impl Sampling {
    /// Greedy sampling.
    pub const GREEDY: Sampling = Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0 };
}

/// Source of random numbers.
#[derive(Debug, Clone, Copy)]
pub enum RandomSource<'a> {
    /// Given numbers: `f32` in [0, 1), of (rows).
    Values(View<'a>),
    /// A counter-based generator (Philox): row `i` uses number `offset + i`.
    Seed {
        /// The seed.
        seed: u64,
        /// The number of the first row.
        offset: u64,
    },
}

/// Penalties of tokens that occurred before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Penalties {
    /// Positive logits are divided by it, others multiplied; 1 has no effect.
    pub repetition: f32,
    /// Subtracted once per token that occurred.
    pub presence: f32,
    /// Subtracted per occurrence.
    pub frequency: f32,
}

/// Parameters of the sampling kernel.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Params {
    logits: [i64; 2],
    random: i64,
    tokens: i64,
    logprobs: i64,
    seed: u64,
    offset: u64,
    vocabulary: i32,
    top_k: i32,
    inv_temperature: f32,
    top_p: f32,
    min_p: f32,
    padding: f32,
}

/// Parameters of the greedy kernels.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GreedyParams {
    logits: [i64; 2],
    tokens: i64,
    logprobs: i64,
    vocabulary: i32,
    parts: i32,
}

/// Parameters of the penalty kernel.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PenaltyParams {
    logits: [i64; 2],
    tokens: [i64; 2],
    vocabulary: i32,
    length: i32,
    repetition: f32,
    presence: f32,
    frequency: f32,
    padding: f32,
}

fn program(dtype: DType, vectors: bool) -> Program {
    Program::new(&SAMPLE, "sample", &[dtype.name()], &[("VECTORS", vectors.into()), ("THREADS", THREADS)])
}

fn greedy_program(dtype: DType, vectors: bool) -> Program {
    Program::new(&GREEDY, "greedy", &[dtype.name()], &[("VECTORS", vectors.into()), ("THREADS", GREEDY_THREADS)])
}

fn penalty(dtype: DType, count: DType) -> Program {
    Program::new(&PENALTY, "penalty", &[dtype.name(), count.name()], &[])
}

fn bad(op: &str, reason: &str) -> Error {
    Error::BadArgument { op: op.to_owned(), reason: reason.to_owned() }
}

fn stride(view: &View<'_>) -> i64 {
    strides::<1>(view.layout())[0]
}

impl Kernels {
    /// Samples a token per row of logits of (rows, vocabulary), as `u32` of (rows), and optionally its log probability under the unmodified
    /// logits, as `f32`.
    ///
    /// The same random numbers yield the same tokens. NaN logits are never sampled unless all are NaN.
    pub fn sample(
        &self,
        stream: &Stream,
        logits: &View<'_>,
        sampling: &Sampling,
        random: RandomSource<'_>,
        tokens: &mut ViewMut<'_>,
        logprobs: Option<&mut ViewMut<'_>>,
    ) -> Result<()> {
        let op = "sample";
        let (tokens, logprobs) = (tokens.as_view(), logprobs.as_ref().map(|logprobs| logprobs.as_view()));
        check_dtype(op, "logits", logits, &LOGITS)?;
        let [rows, vocabulary] = sizes(op, "logits", logits, "rows, vocabulary")?;
        check_same_dtype(op, "tokens", tokens, DType::U32)?;
        check_shape(op, "tokens", &tokens, &[rows])?;
        if let Some(logprobs) = &logprobs {
            check_same_dtype(op, "log probabilities", *logprobs, DType::F32)?;
            check_shape(op, "log probabilities", logprobs, &[rows])?;
        }
        let (given, seed, offset) = match random {
            RandomSource::Values(given) => {
                check_same_dtype(op, "random params", given, DType::F32)?;
                check_shape(op, "random params", &given, &[rows])?;
                (Some(given), 0, 0)
            }
            RandomSource::Seed { seed, offset } => (None, seed, offset),
        };
        let Sampling { temperature, top_k, top_p, min_p } = *sampling;
        let greedy = temperature == 0.0;
        if !(temperature.is_finite() && temperature >= 0.0 && (greedy || (1.0 / temperature).is_finite())) {
            return Err(bad(op, "temperature must be finite and >= 0"));
        }
        if !(0.0..=1.0).contains(&top_p) || !(0.0..=1.0).contains(&min_p) {
            return Err(bad(op, "top_p and min_p must be between 0 and 1"));
        }
        let inputs = [Some(("logits", *logits)), given.map(|given| ("random params", given))];
        let outs = [Some(("tokens", tokens)), logprobs.map(|logprobs| ("log probabilities", logprobs))];
        self.check_devices(op, stream, inputs.into_iter().chain(outs).flatten())?;
        for (what, view) in inputs.into_iter().flatten() {
            outs.iter().flatten().try_for_each(|(_, out)| check_no_overlap(op, what, &view, out))?;
        }
        // The sum of all weights must fit 64 bits.
        let most = if greedy { 1 << 30 } else { (1 << 20) - 1 };
        if rows > 0 && !((1..=most).contains(&vocabulary) && i32::try_from(rows).is_ok()) {
            return Err(shape_error(op, "logits", logits, format!("(rows, vocabulary) with a vocabulary of 1 to {most}")));
        }
        if rows == 0 {
            return Ok(());
        }
        if greedy {
            return self.largest(stream, logits, tokens, logprobs);
        }
        let params = Params {
            logits: strides(logits.layout()),
            random: given.map_or(0, |given| stride(&given)),
            tokens: stride(&tokens),
            logprobs: logprobs.map_or(0, |logprobs| stride(&logprobs)),
            seed,
            offset,
            vocabulary: vocabulary as i32,
            top_k: top_k.min(vocabulary) as i32,
            inv_temperature: 1.0 / temperature,
            top_p,
            min_p,
            padding: 0.0,
        };
        let kernels = self.load(&program(logits.dtype(), packed(logits, width(&[logits.dtype()]))))?;
        let args = (logits.start(), pointer(given), tokens.start(), pointer(logprobs), Arg::value(&params));
        // SAFETY: the kernel was compiled for this type; it reads the logits and random numbers and writes only the results.
        unsafe { kernels[0].launch(stream, Launch::new([rows as u32, 1, 1], [THREADS, 1, 1]), args) }.map_err(launch_error(op))
    }

    /// Finds the largest logit of each row of checked views.
    fn largest(&self, stream: &Stream, logits: &View<'_>, tokens: View<'_>, logprobs: Option<View<'_>>) -> Result<()> {
        let op = "sample";
        let &[rows, vocabulary] = logits.layout().shape() else { return Ok(()) };
        let parts = vocabulary.div_ceil(PART);
        let Some(blocks) = rows.checked_mul(parts).and_then(|blocks| i32::try_from(blocks).ok()) else {
            return Err(shape_error(op, "logits", logits, "with fewer rows (exceeds the maximum grid size)"));
        };
        let params = GreedyParams {
            logits: strides(logits.layout()),
            tokens: stride(&tokens),
            logprobs: logprobs.map_or(0, |logprobs| stride(&logprobs)),
            vocabulary: vocabulary as i32,
            parts: parts as i32,
        };
        let params = Arg::value(&params);
        let kernels = self.load(&greedy_program(logits.dtype(), packed(logits, width(&[logits.dtype()]))))?;
        // Per part of a row: the best key and token in 64 bits, and a sum.
        let mut scratch = stream.alloc::<u64>(2 * rows * parts).map_err(launch_error(op))?;
        let launch = |blocks: u32| Launch::new([blocks, 1, 1], [GREEDY_THREADS, 1, 1]).pdl();
        // SAFETY: the kernels were compiled for this type; they read the logits, write only the results, and the scratch memory has an
        // entry per part of each row.
        unsafe { kernels[0].launch(stream, launch(blocks as u32), (logits.start(), &mut scratch, params)) }.map_err(launch_error(op))?;
        // SAFETY: as above.
        unsafe { kernels[1].launch(stream, launch(rows as u32), (tokens.start(), pointer(logprobs), &scratch, params)) }
            .map_err(launch_error(op))
    }

    /// Penalizes tokens that occurred before: logits of (rows, vocabulary), token ids as `i32`, `u32` or `i64` of (rows, tokens).
    ///
    /// Out-of-range token ids are ignored. The time grows with the square of the number of tokens.
    pub fn penalize(&self, stream: &Stream, penalties: &Penalties, tokens: &View<'_>, logits: &mut ViewMut<'_>) -> Result<()> {
        let (op, logits) = ("penalty", logits.as_view());
        check_dtype(op, "logits", &logits, &LOGITS)?;
        check_dtype(op, "tokens", tokens, &INDEX_DTYPES)?;
        let [rows, vocabulary] = sizes(op, "logits", &logits, "rows, vocabulary")?;
        let [_, length] = sizes(op, "tokens", tokens, "rows, tokens")?;
        check_shape(op, "tokens", tokens, &[rows, length])?;
        let Penalties { repetition, presence, frequency } = *penalties;
        if !(repetition > 0.0 && [repetition, presence, frequency].iter().all(|x| x.is_finite())) {
            return Err(bad(op, "penalties must be finite, and the repetition penalty > 0"));
        }
        self.check_devices(op, stream, [("logits", logits), ("tokens", *tokens)].into_iter())?;
        check_no_overlap(op, "tokens", tokens, &logits)?;
        let fits = |number: usize| i32::try_from(number).ok().filter(|number| *number <= 1 << 30);
        let (Some(rows_32), Some(vocabulary), Some(length)) = (fits(rows), fits(vocabulary), fits(length)) else {
            return Err(shape_error(op, "logits", &logits, "with at most 2^30 rows and at most 2^30 tokens per row"));
        };
        if logits.layout().is_empty() || tokens.layout().is_empty() {
            return Ok(());
        }
        let (logit_strides, token_strides) = (strides(logits.layout()), strides(tokens.layout()));
        let params = PenaltyParams {
            logits: logit_strides,
            tokens: token_strides,
            vocabulary,
            length,
            repetition,
            presence,
            frequency,
            padding: 0.0,
        };
        let kernels = self.load(&penalty(logits.dtype(), tokens.dtype()))?;
        let launch = Launch::new([rows_32 as u32, 1, 1], [256, 1, 1]);
        // SAFETY: the kernel was compiled for these types; it writes only logits of tokens in the vocabulary, each by one thread.
        unsafe { kernels[0].launch(stream, launch, (logits.start(), tokens.start(), Arg::value(&params))) }.map_err(launch_error(op))
    }
}

/// Lists the programs; token ids are `u32`.
pub(crate) fn programs() -> Vec<Program> {
    LOGITS
        .into_iter()
        .flat_map(|dtype| {
            [
                program(dtype, true),
                program(dtype, false),
                greedy_program(dtype, true),
                greedy_program(dtype, false),
                penalty(dtype, DType::U32),
            ]
        })
        .collect()
}
