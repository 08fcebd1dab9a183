//! Converts weights between types, and writes checkpoints as GGUF files.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

use half::{bf16, f16};
use warpwave_kernels::{DType, Quant};
use warpwave_tensor::cpu;
use warpwave_weights::{Kind, TensorInfo, Value, write_gguf};

use super::error::{Result, bad_key};
use super::tensors::is_vector;
use super::{Checkpoint, Source, gguf, tokenizer_metadata};

/// In the names of routers.
pub(super) const ROUTER: &str = ".ffn_gate_inp.";

/// Elements converted per step: whole blocks of all types, few enough to stay in the CPU's cache.
const BATCH: usize = 1 << 14;

/// Whether weights of this type can be read and written.
pub(crate) fn is_supported(kind: Kind) -> bool {
    match kind {
        Kind::Plain(dtype) => matches!(dtype, DType::F32 | DType::F16 | DType::Bf16),
        Kind::Quant(quant) => quant.gguf_type().is_some(),
    }
}

/// Converts elements to `f32`. `bytes` are those of `out.len()` elements.
fn decode(kind: Kind, bytes: &[u8], out: &mut [f32]) {
    let halves = || bytes.as_chunks::<2>().0.iter().map(|bytes| u16::from_le_bytes(*bytes));
    match kind {
        Kind::Quant(quant) => cpu::dequantize(quant, bytes, out),
        Kind::Plain(DType::F16) => out.iter_mut().zip(halves()).for_each(|(out, bits)| *out = f16::from_bits(bits).to_f32()),
        Kind::Plain(DType::Bf16) => out.iter_mut().zip(halves()).for_each(|(out, bits)| *out = bf16::from_bits(bits).to_f32()),
        Kind::Plain(_) => out.iter_mut().zip(bytes.as_chunks::<4>().0).for_each(|(out, bytes)| *out = f32::from_le_bytes(*bytes)),
    }
}

/// Converts `f32` to elements of a type.
fn encode(kind: Kind, x: &[f32], out: &mut [u8]) {
    fn put<const N: usize>(out: &mut [u8], values: impl Iterator<Item = [u8; N]>) {
        out.as_chunks_mut::<N>().0.iter_mut().zip(values).for_each(|(out, value)| *out = value);
    }
    match kind {
        Kind::Quant(quant) => cpu::quantize(quant, x, out),
        Kind::Plain(DType::F16) => put(out, x.iter().map(|x| f16::from_f32(*x).to_le_bytes())),
        Kind::Plain(DType::Bf16) => put(out, x.iter().map(|x| bf16::from_f32(*x).to_le_bytes())),
        Kind::Plain(_) => put(out, x.iter().map(|x| x.to_le_bytes())),
    }
}

/// Returns all elements as `f32`. The type is [supported](is_supported).
pub(crate) fn to_f32(kind: Kind, bytes: &[u8]) -> Vec<f32> {
    let (block, size) = kind.block();
    let mut out = vec![0.0; bytes.len() / size * block];
    decode(kind, &bytes[..out.len() / block * size], &mut out);
    out
}

/// Converts weights to another type, on all cores. Both types are [supported](is_supported), and rows are whole blocks of both.
pub(crate) fn convert(from: Kind, bytes: &[u8], to: Kind) -> Vec<u8> {
    let size = |kind: Kind, elements: usize| elements / kind.block().0 * kind.block().1;
    let count = bytes.len() / from.block().1 * from.block().0;
    let mut out = vec![0; size(to, count)];
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let each = count.div_ceil(threads).max(1).next_multiple_of(BATCH);
    let chunks = Mutex::new(bytes.chunks(size(from, each)).zip(out.chunks_mut(size(to, each))));
    let work = || {
        let mut floats = vec![0.0; BATCH];
        loop {
            let Some((bytes, out)) = chunks.lock().unwrap_or_else(PoisonError::into_inner).next() else { return };
            for (bytes, out) in bytes.chunks(size(from, BATCH)).zip(out.chunks_mut(size(to, BATCH))) {
                let floats = &mut floats[..bytes.len() / from.block().1 * from.block().0];
                decode(from, bytes, floats);
                encode(to, floats, out);
            }
        }
    };
    thread::scope(|scope| {
        // If no thread can be started, this one does the work.
        let _ = (1..threads).try_for_each(|_| thread::Builder::new().spawn_scoped(scope, work).map(drop));
        work();
    });
    out
}

/// The type a weight is converted to. Norms and biases are `f32`. The output matrix matters more than others: with 2- to 4-bit weights it
/// gets 6 bits. Rows that are not whole blocks get a type with about as many bits and blocks of 32, or `f16`.
pub(crate) fn target(info: &TensorInfo, to: Option<Kind>, tied: bool) -> Kind {
    let Some(columns) = info.shape.last().copied().filter(|_| !is_vector(&info.name, &info.shape)) else {
        return Kind::Plain(DType::F32);
    };
    // Rounding a router's weights changes which experts are chosen.
    if to.is_some() && info.name.contains(ROUTER) {
        return Kind::Plain(DType::F32);
    }
    let quant = match to {
        None => return info.kind,
        Some(Kind::Plain(dtype)) => return Kind::Plain(dtype),
        Some(Kind::Quant(quant)) => quant,
    };
    let output = info.name == if tied { "token_embd.weight" } else { "output.weight" };
    let few_bits = matches!(quant, Quant::Q2K | Quant::Q3K | Quant::Q4K | Quant::Iq4Xs | Quant::Mxfp4);
    let quant = if output && few_bits { Quant::Q6K } else { quant };
    let small = match quant {
        Quant::Q2K | Quant::Q3K | Quant::Iq4Xs => Quant::Iq4Nl,
        Quant::Q4K => Quant::Q5_0,
        Quant::Q5K => Quant::Q5_1,
        Quant::Q6K => Quant::Q8_0,
        other => other,
    };
    let fitting = [quant, small].into_iter().find(|quant| columns.is_multiple_of(quant.block_size()));
    fitting.map_or(Kind::Plain(DType::F16), Kind::Quant)
}

/// GGUF's `general.file_type` of a model that is mostly of this type.
fn file_type(kind: Kind) -> Option<u32> {
    Some(match kind {
        Kind::Plain(DType::F32) => 0,
        Kind::Plain(DType::F16) => 1,
        Kind::Plain(DType::Bf16) => 32,
        Kind::Quant(Quant::Q4_0) => 2,
        Kind::Quant(Quant::Q4_1) => 3,
        Kind::Quant(Quant::Q8_0) => 7,
        Kind::Quant(Quant::Q5_0) => 8,
        Kind::Quant(Quant::Q5_1) => 9,
        Kind::Quant(Quant::Q2K) => 10,
        Kind::Quant(Quant::Q3K) => 11,
        Kind::Quant(Quant::Q4K) => 14,
        Kind::Quant(Quant::Q5K) => 16,
        Kind::Quant(Quant::Q6K) => 18,
        Kind::Quant(Quant::Iq4Nl) => 25,
        Kind::Quant(Quant::Iq4Xs) => 30,
        Kind::Quant(Quant::Mxfp4) => 38,
        _ => return None,
    })
}

impl Checkpoint {
    /// Returns names, types and shapes of the weights as [`Checkpoint::write_gguf`] converts them.
    pub fn converted(&self, to: Option<Kind>) -> Result<Vec<TensorInfo>> {
        if let Some(kind) = to.filter(|kind| !is_supported(*kind)) {
            return Err(bad_key(&self.path, "weights", format!("cannot convert to {kind}; use f32, f16, bf16 or a GGUF type")));
        }
        let tied = self.is_tied();
        Ok(self.infos().map(|info| TensorInfo { kind: target(&info, to, tied), ..info }).collect())
    }

    /// Writes the model and its tokenizer as a GGUF file.
    ///
    /// `to` is the type of the weight matrices; default: the file's types. Norms and biases are always `f32`, and some matrices get a type
    /// with more bits. `progress` receives the bytes written and those of all tensors.
    pub fn write_gguf(&self, path: impl AsRef<Path>, to: Option<Kind>, progress: impl FnMut(u64, u64)) -> Result<()> {
        let mut infos = self.converted(to)?;
        let weights = infos.len();
        let metadata = self.metadata(&infos)?;
        let mut extra = Vec::new();
        let rope = &self.config.rope;
        let factors = match &rope.long {
            Some(long) => vec![(gguf::FACTORS[1], &rope.frequency_factors), (gguf::FACTORS[2], &long.frequency_factors)],
            None => vec![(gguf::FACTORS[0], &rope.frequency_factors)],
        };
        for (name, factors) in factors.into_iter().filter(|(_, factors)| !factors.is_empty()) {
            infos.push(TensorInfo { name: name.to_owned(), kind: Kind::Plain(DType::F32), shape: vec![factors.len()] });
            extra.push(factors.iter().flat_map(|factor| factor.to_le_bytes()).collect::<Vec<u8>>());
        }
        let data = |index: usize| -> Result<Cow<'_, [u8]>> {
            if let Some(extra) = index.checked_sub(weights).and_then(|index| extra.get(index)) {
                return Ok(Cow::Borrowed(extra));
            }
            let (name, kind) = (&infos[index].name, infos[index].kind);
            let weight = self.get(name)?;
            Ok(if weight.kind == kind { weight.bytes } else { convert(weight.kind, &weight.bytes, kind).into() })
        };
        write_gguf(path, &metadata, &infos, data, progress)
    }

    /// The metadata: those of a GGUF file are kept, those of a folder are created.
    fn metadata(&self, infos: &[TensorInfo]) -> Result<Vec<(Cow<'_, str>, Value<'_>)>> {
        let replaced = ["general.file_type", "general.quantization_version", "general.alignment"];
        let mut metadata: Vec<(Cow<'_, str>, Value<'_>)> = match &self.source {
            Source::Gguf(file) => {
                let kept = |key: &str| !replaced.contains(&key) && !key.starts_with("split.");
                file.metadata().filter(|(key, _)| kept(key)).map(|(key, value)| (key.into(), value)).collect()
            }
            Source::Random { .. } => gguf::metadata(&self.config),
            Source::Folder { folder, .. } => {
                let tokenizer = tokenizer_metadata::metadata(folder, &self.config)?;
                let mut metadata = gguf::metadata(&self.config);
                metadata.retain(|(key, _)| tokenizer.iter().all(|(other, _)| other != key));
                metadata.extend(tokenizer);
                metadata
            }
        };
        let mut bytes = HashMap::<Kind, usize>::new();
        for info in infos {
            *bytes.entry(info.kind).or_default() += info.kind.bytes(&info.shape).unwrap_or(0);
        }
        let mostly = bytes.iter().max_by_key(|(_, bytes)| **bytes).map(|(kind, _)| *kind);
        if let Some(number) = mostly.and_then(file_type) {
            metadata.push(("general.file_type".into(), number.into()));
        }
        if bytes.keys().any(|kind| matches!(kind, Kind::Quant(_))) {
            metadata.push(("general.quantization_version".into(), 2u32.into()));
        }
        let mut seen = HashSet::new();
        metadata.retain(|(key, _)| seen.insert(key.clone()));
        Ok(metadata)
    }
}
