//! Weights from one type to another, and checkpoints to GGUF files.

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
use super::{Checkpoint, Source, gguf, vocabulary};

/// Elements that are converted at once, whole blocks of all types: what is between two types stays in the cache.
const AT_ONCE: usize = 1 << 14;

/// Whether weights of this type can be read and written.
pub(super) fn known(kind: Kind) -> bool {
    match kind {
        Kind::Plain(dtype) => matches!(dtype, DType::F32 | DType::F16 | DType::Bf16),
        Kind::Quant(quant) => quant.gguf_type().is_some(),
    }
}

/// Elements as floats; as many bytes as make `out`.
fn floats(kind: Kind, bytes: &[u8], out: &mut [f32]) {
    let halves = || bytes.as_chunks::<2>().0.iter().map(|bytes| u16::from_le_bytes(*bytes));
    match kind {
        Kind::Quant(quant) => cpu::dequantize(quant, bytes, out),
        Kind::Plain(DType::F16) => out.iter_mut().zip(halves()).for_each(|(out, bits)| *out = f16::from_bits(bits).to_f32()),
        Kind::Plain(DType::Bf16) => out.iter_mut().zip(halves()).for_each(|(out, bits)| *out = bf16::from_bits(bits).to_f32()),
        Kind::Plain(_) => out.iter_mut().zip(bytes.as_chunks::<4>().0).for_each(|(out, bytes)| *out = f32::from_le_bytes(*bytes)),
    }
}

/// Floats as elements of a type.
fn elements(kind: Kind, x: &[f32], out: &mut [u8]) {
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

/// All elements as floats. The type is [`known`].
pub(super) fn to_f32(kind: Kind, bytes: &[u8]) -> Vec<f32> {
    let (block, size) = kind.block();
    let mut out = vec![0.0; bytes.len() / size * block];
    floats(kind, &bytes[..out.len() / block * size], &mut out);
    out
}

/// Weights of one type as another, on all processors. Both types are [`known`], and the rows whole blocks of both.
pub(super) fn convert(from: Kind, bytes: &[u8], to: Kind) -> Vec<u8> {
    let size = |kind: Kind, elements: usize| elements / kind.block().0 * kind.block().1;
    let elements_in_all = bytes.len() / from.block().1 * from.block().0;
    let mut out = vec![0; size(to, elements_in_all)];
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let each = elements_in_all.div_ceil(threads).max(1).next_multiple_of(AT_ONCE);
    let pieces = Mutex::new(bytes.chunks(size(from, each)).zip(out.chunks_mut(size(to, each))));
    let work = || {
        let mut between = vec![0.0; AT_ONCE];
        loop {
            let Some((bytes, out)) = pieces.lock().unwrap_or_else(PoisonError::into_inner).next() else { return };
            for (bytes, out) in bytes.chunks(size(from, AT_ONCE)).zip(out.chunks_mut(size(to, AT_ONCE))) {
                let between = &mut between[..bytes.len() / from.block().1 * from.block().0];
                floats(from, bytes, between);
                elements(to, between, out);
            }
        }
    };
    thread::scope(|scope| {
        // Where memory is short there may be no more threads: this one is enough.
        let _ = (1..threads).try_for_each(|_| thread::Builder::new().spawn_scoped(scope, work).map(drop));
        work();
    });
    out
}

/// The type that a weight gets. Norms and biases are `f32`. The matrix of the output counts more than others: among weights of 4 bits it
/// gets 6. Rows that are no whole blocks get a type of about as many bits and blocks of 32, or `f16`.
pub(super) fn target(info: &TensorInfo, to: Option<Kind>, tied: bool) -> Kind {
    let [_, columns] = info.shape[..] else { return Kind::Plain(DType::F32) };
    let quant = match to {
        None => return info.kind,
        Some(Kind::Plain(dtype)) => return Kind::Plain(dtype),
        Some(Kind::Quant(quant)) => quant,
    };
    let output = info.name == if tied { "token_embd.weight" } else { "output.weight" };
    let quant = if output && quant == Quant::Q4K { Quant::Q6K } else { quant };
    let small = match quant {
        Quant::Q4K => Quant::Q5_0,
        Quant::Q5K => Quant::Q5_1,
        Quant::Q6K => Quant::Q8_0,
        other => other,
    };
    let fitting = [quant, small].into_iter().find(|quant| columns.is_multiple_of(quant.block_size()));
    fitting.map_or(Kind::Plain(DType::F16), Kind::Quant)
}

/// The number that GGUF files have for a model that is mostly of this type.
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
        Kind::Quant(Quant::Q4K) => 14,
        Kind::Quant(Quant::Q5K) => 16,
        Kind::Quant(Quant::Q6K) => 18,
        _ => return None,
    })
}

impl Checkpoint {
    /// The tensors as [`Checkpoint::write_gguf`] would write them.
    pub fn converted(&self, to: Option<Kind>) -> Result<Vec<TensorInfo>> {
        if let Some(kind) = to.filter(|kind| !known(*kind)) {
            return Err(bad_key(&self.path, "the type", format!("weights cannot be written as {kind}; take f32, f16, bf16, q8_0, q4_k")));
        }
        let tied = self.is_tied();
        Ok(self.infos().map(|info| TensorInfo { kind: target(&info, to, tied), ..info }).collect())
    }

    /// Writes the model as a GGUF file, with its tokenizer. `to` is the type of the weights, which otherwise keep theirs; norms and
    /// biases are `f32` always, and some matrices get a type of more bits. `progress` hears of the bytes written, and of all.
    pub fn write_gguf(&self, path: impl AsRef<Path>, to: Option<Kind>, progress: impl FnMut(u64, u64)) -> Result<()> {
        let mut infos = self.converted(to)?;
        let weights = infos.len();
        let metadata = self.metadata(&infos)?;
        let mut extra = Vec::new();
        let rope = &self.config.rope;
        let factors = match &rope.long {
            Some(long) => vec![(gguf::FACTORS[1], &rope.factors), (gguf::FACTORS[2], &long.factors)],
            None => vec![(gguf::FACTORS[0], &rope.factors)],
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

    /// A GGUF file's metadata go along; a folder's are made.
    fn metadata(&self, infos: &[TensorInfo]) -> Result<Vec<(Cow<'_, str>, Value<'_>)>> {
        let made = ["general.file_type", "general.quantization_version", "general.alignment"];
        let mut metadata: Vec<(Cow<'_, str>, Value<'_>)> = match &self.source {
            Source::Gguf(file) => {
                let kept = |key: &str| !made.contains(&key) && !key.starts_with("split.");
                file.metadata().filter(|(key, _)| kept(key)).map(|(key, value)| (key.into(), value)).collect()
            }
            Source::Random { .. } => gguf::metadata(&self.config),
            Source::Folder { folder, .. } => {
                let tokenizer = vocabulary::metadata(folder, &self.config)?;
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
