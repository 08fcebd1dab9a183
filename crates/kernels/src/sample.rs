//! Picking tokens of logits.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch, Stream};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::headers;
use crate::heads::{COUNTS, one_of, packed, pointer, same_shape, sizes, steps, width};
use crate::kernels::{Kernels, apart, refused, same_type, wrong_shape};
use crate::source::{File, Recipe};
use crate::view::{View, ViewMut};

const LOGITS_TEXT: &str = include_str!("cu/logits.cuh");
static SAMPLE: File =
    File { name: "sample.cu", texts: &[headers::TYPES, headers::PACK, LOGITS_TEXT, include_str!("cu/sample.cu")], kernels: &[""] };
static GREEDY: File = File {
    name: "greedy.cu",
    texts: &[headers::TYPES, headers::PACK, headers::EARLY, LOGITS_TEXT, include_str!("cu/greedy.cu")],
    kernels: &["_parts", "_finish"],
};
static PENALTY: File = File { name: "penalty.cu", texts: &[headers::TYPES, include_str!("cu/penalty.cu")], kernels: &[""] };

/// The types of logits.
const LOGITS: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];
/// Threads of a block.
const THREADS: u32 = 512;
const GREEDY_THREADS: u32 = 256;
/// Tokens that a block looks at for the largest, as the kernel has them for each thread.
const PART: usize = 16 * GREEDY_THREADS as usize;

/// How tokens are picked. They are kept by `top_k`, of those by `top_p`, and of those by `min_p`; what equals the last that is kept is kept
/// too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// What logits are divided by. With 0 the largest is picked, the first of them.
    pub temperature: f32,
    /// The largest so many; 0 keeps all.
    pub top_k: usize,
    /// The largest that have so much of the probability together; 1 keeps all.
    pub top_p: f32,
    /// Those that are at least so likely, as a share of the likeliest; 0 keeps all.
    pub min_p: f32,
}

impl Sampling {
    /// The largest.
    pub const GREEDY: Sampling = Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0 };
}

/// Where random numbers come from.
#[derive(Debug, Clone, Copy)]
pub enum Randomness<'a> {
    /// `f32` from 0 to 1, of (rows).
    Given(View<'a>),
    /// Of a generator: row `i` has its number `offset + i`.
    Seed {
        /// The seed.
        seed: u64,
        /// The first row's number.
        offset: u64,
    },
}

/// By how much tokens that are in a text already are made less likely.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Penalties {
    /// Logits above 0 are divided by it, others multiplied; 1 leaves them.
    pub repetition: f32,
    /// What is taken off, once.
    pub presence: f32,
    /// What is taken off for each time that it is there.
    pub frequency: f32,
}

/// As the struct of the kernel.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Numbers {
    logits: [i64; 2],
    random: i64,
    tokens: i64,
    logs: i64,
    seed: u64,
    offset: u64,
    vocabulary: i32,
    top_k: i32,
    sharpness: f32,
    top_p: f32,
    min_p: f32,
    padding: f32,
}

/// As the struct of the kernel.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GreedyNumbers {
    logits: [i64; 2],
    tokens: i64,
    logs: i64,
    vocabulary: i32,
    parts: i32,
}

/// As the struct of the kernel.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PenaltyNumbers {
    logits: [i64; 2],
    text: [i64; 2],
    vocabulary: i32,
    length: i32,
    repetition: f32,
    presence: f32,
    frequency: f32,
    padding: f32,
}

fn recipe(dtype: DType, vectors: bool) -> Recipe {
    Recipe::new(&SAMPLE, "sample", &[dtype.name()], &[("VECTORS", vectors.into()), ("THREADS", THREADS)])
}

fn greedy_recipe(dtype: DType, vectors: bool) -> Recipe {
    Recipe::new(&GREEDY, "greedy", &[dtype.name()], &[("VECTORS", vectors.into()), ("THREADS", GREEDY_THREADS)])
}

fn penalty(dtype: DType, count: DType) -> Recipe {
    Recipe::new(&PENALTY, "penalty", &[dtype.name(), count.name()], &[])
}

fn bad(op: &str, reason: &str) -> Error {
    Error::BadArgument { op: op.to_owned(), reason: reason.to_owned() }
}

fn step(view: &View<'_>) -> i64 {
    steps::<1>(view.layout())[0]
}

impl Kernels {
    /// A token of each row of logits of (rows, vocabulary), as `u32` of (rows); and, if asked for, the logarithm of the probability that the
    /// logits as they are give it, as `f32`. The same random numbers give the same tokens. NaN is never picked beside numbers.
    pub fn sample(
        &self,
        stream: &Stream,
        logits: &View<'_>,
        sampling: &Sampling,
        random: Randomness<'_>,
        tokens: &mut ViewMut<'_>,
        logs: Option<&mut ViewMut<'_>>,
    ) -> Result<()> {
        let op = "sample";
        let (tokens, logs) = (tokens.as_view(), logs.as_ref().map(|logs| logs.as_view()));
        one_of(op, "the logits", logits, &LOGITS)?;
        let [rows, vocabulary] = sizes(op, "the logits", logits, "rows, vocabulary")?;
        same_type(op, "the tokens", tokens, DType::U32)?;
        same_shape(op, "the tokens", &tokens, &[rows])?;
        if let Some(logs) = &logs {
            same_type(op, "the logarithms", *logs, DType::F32)?;
            same_shape(op, "the logarithms", logs, &[rows])?;
        }
        let (given, seed, offset) = match random {
            Randomness::Given(given) => {
                same_type(op, "the random numbers", given, DType::F32)?;
                same_shape(op, "the random numbers", &given, &[rows])?;
                (Some(given), 0, 0)
            }
            Randomness::Seed { seed, offset } => (None, seed, offset),
        };
        let Sampling { temperature, top_k, top_p, min_p } = *sampling;
        let greedy = temperature == 0.0;
        if !(temperature.is_finite() && temperature >= 0.0 && (greedy || (1.0 / temperature).is_finite())) {
            return Err(bad(op, "the temperature is a number, not below 0"));
        }
        if !(0.0..=1.0).contains(&top_p) || !(0.0..=1.0).contains(&min_p) {
            return Err(bad(op, "top_p and min_p are shares, from 0 to 1"));
        }
        let inputs = [Some(("the logits", *logits)), given.map(|given| ("the random numbers", given))];
        let outs = [Some(("the tokens", tokens)), logs.map(|logs| ("the logarithms", logs))];
        self.check_devices(op, stream, inputs.into_iter().chain(outs).flatten())?;
        for (what, view) in inputs.into_iter().flatten() {
            outs.iter().flatten().try_for_each(|(_, out)| apart(op, what, &view, out))?;
        }
        // The weights of so many add up in 64 bits.
        let most = if greedy { 1 << 30 } else { (1 << 20) - 1 };
        if rows > 0 && !((1..=most).contains(&vocabulary) && i32::try_from(rows).is_ok()) {
            return Err(wrong_shape(op, "the logits", logits, format!("there is a token to pick, and no more than {most}")));
        }
        if rows == 0 {
            return Ok(());
        }
        if greedy {
            return self.largest(stream, logits, tokens, logs);
        }
        let numbers = Numbers {
            logits: steps(logits.layout()),
            random: given.map_or(0, |given| step(&given)),
            tokens: step(&tokens),
            logs: logs.map_or(0, |logs| step(&logs)),
            seed,
            offset,
            vocabulary: vocabulary as i32,
            top_k: top_k.min(vocabulary) as i32,
            sharpness: 1.0 / temperature,
            top_p,
            min_p,
            padding: 0.0,
        };
        let kernels = self.load(&recipe(logits.dtype(), packed(logits, width(&[logits.dtype()]))))?;
        let args = (logits.start(), pointer(given), tokens.start(), pointer(logs), Arg::value(&numbers));
        // SAFETY: the kernel was made for this type; it reads the logits' and random numbers' places and writes the results' alone.
        unsafe { kernels[0].launch(stream, Launch::new([rows as u32, 1, 1], [THREADS, 1, 1]), args) }.map_err(refused(op))
    }

    /// The largest of each row, of views that were checked.
    fn largest(&self, stream: &Stream, logits: &View<'_>, tokens: View<'_>, logs: Option<View<'_>>) -> Result<()> {
        let op = "sample";
        let &[rows, vocabulary] = logits.layout().shape() else { return Ok(()) };
        let parts = vocabulary.div_ceil(PART);
        let Some(blocks) = rows.checked_mul(parts).and_then(|blocks| i32::try_from(blocks).ok()) else {
            return Err(wrong_shape(op, "the logits", logits, "they are more than one launch takes"));
        };
        let numbers = GreedyNumbers {
            logits: steps(logits.layout()),
            tokens: step(&tokens),
            logs: logs.map_or(0, |logs| step(&logs)),
            vocabulary: vocabulary as i32,
            parts: parts as i32,
        };
        let numbers = Arg::value(&numbers);
        let kernels = self.load(&greedy_recipe(logits.dtype(), packed(logits, width(&[logits.dtype()]))))?;
        // Of each part the largest, in 64 bits, and a sum.
        let mut room = stream.alloc::<u64>(2 * rows * parts).map_err(refused(op))?;
        let launch = |blocks: u32| Launch::new([blocks, 1, 1], [GREEDY_THREADS, 1, 1]).pdl();
        // SAFETY: the kernels were made for this type; they read the logits' places, write the results' alone, and there is room for each
        // part of each row.
        unsafe { kernels[0].launch(stream, launch(blocks as u32), (logits.start(), &mut room, numbers)) }.map_err(refused(op))?;
        // SAFETY: as above.
        unsafe { kernels[1].launch(stream, launch(rows as u32), (tokens.start(), pointer(logs), &room, numbers)) }.map_err(refused(op))
    }

    /// Makes the tokens of each row's text less likely: logits of (rows, vocabulary), texts as `i32`, `u32` or `i64` of (rows, tokens). Tokens
    /// that are none of the vocabulary's are passed over. The time grows with the square of the length.
    pub fn penalize(&self, stream: &Stream, penalties: &Penalties, text: &View<'_>, logits: &mut ViewMut<'_>) -> Result<()> {
        let (op, logits) = ("penalty", logits.as_view());
        one_of(op, "the logits", &logits, &LOGITS)?;
        one_of(op, "the texts", text, &COUNTS)?;
        let [rows, vocabulary] = sizes(op, "the logits", &logits, "rows, vocabulary")?;
        let [_, length] = sizes(op, "the texts", text, "rows, tokens")?;
        same_shape(op, "the texts", text, &[rows, length])?;
        let Penalties { repetition, presence, frequency } = *penalties;
        if !(repetition > 0.0 && [repetition, presence, frequency].iter().all(|x| x.is_finite())) {
            return Err(bad(op, "penalties are numbers, that of repetition above 0"));
        }
        self.check_devices(op, stream, [("the logits", logits), ("the texts", *text)].into_iter())?;
        apart(op, "the texts", text, &logits)?;
        let fits = |number: usize| i32::try_from(number).ok().filter(|number| *number <= 1 << 30);
        let (Some(rows_32), Some(vocabulary), Some(length)) = (fits(rows), fits(vocabulary), fits(length)) else {
            return Err(wrong_shape(op, "the logits", &logits, "there are no more than 2³⁰ rows and tokens"));
        };
        if logits.layout().is_empty() || text.layout().is_empty() {
            return Ok(());
        }
        let (logit_steps, text_steps) = (steps(logits.layout()), steps(text.layout()));
        let numbers =
            PenaltyNumbers { logits: logit_steps, text: text_steps, vocabulary, length, repetition, presence, frequency, padding: 0.0 };
        let kernels = self.load(&penalty(logits.dtype(), text.dtype()))?;
        let launch = Launch::new([rows_32 as u32, 1, 1], [256, 1, 1]);
        // SAFETY: the kernel was made for these types; it writes logits of tokens of the vocabulary alone, each by one thread.
        unsafe { kernels[0].launch(stream, launch, (logits.start(), text.start(), Arg::value(&numbers))) }.map_err(refused(op))
    }
}

/// Programs of these operations.
pub(crate) fn recipes() -> Vec<Recipe> {
    LOGITS
        .into_iter()
        .flat_map(|dtype| {
            [recipe(dtype, true), recipe(dtype, false), greedy_recipe(dtype, true), greedy_recipe(dtype, false), penalty(dtype, DType::U32)]
        })
        .collect()
}
