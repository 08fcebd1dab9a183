//! A model's files: configuration, weights and tokenizer, from GGUF or Hugging Face folders.

pub(crate) mod convert;
pub(crate) mod error;
mod family;
mod folder;
mod gguf;
pub(crate) mod json;
mod memory;
mod packed;
mod random;
mod tensors;
mod tokenizer;
mod tokenizer_metadata;
mod validate;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use warpwave_kernels::{DType, Quant};
use warpwave_weights::{Gguf, Kind, Safetensors, Tensor, TensorInfo};

use crate::config::Config;
pub use error::CheckpointError;
use error::{Result, bad_tensor};
use folder::FolderConfig;
pub use memory::{MemoryEstimate, MemoryPlan};
pub(crate) use memory::{StepMemory, kv_cache_type};
use packed::{Packed, Packing};
use tensors::{Forms, TensorSpec, Transform, tensor_specs};

/// A weight of a model.
#[derive(Debug, Clone)]
pub struct Weight<'a> {
    /// The element type.
    pub kind: Kind,
    /// The dimensions, outermost first.
    pub shape: Vec<usize>,
    /// The elements; borrowed from the file if no conversion is needed.
    pub bytes: Cow<'a, [u8]>,
}

/// A GGUF file or a Hugging Face folder.
///
/// Weights have GGUF's names and conventions in both cases, see [`Config`]. Norms and biases are `f32`.
pub struct Checkpoint {
    path: String,
    config: Config,
    source: Source,
    /// Each tensor with its name in the file.
    tensors: Vec<(TensorSpec, String)>,
    by_name: HashMap<String, usize>,
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint").field("path", &self.path).field("config", &self.config).finish_non_exhaustive()
    }
}

enum Source {
    Gguf(Gguf),
    Folder {
        folder: PathBuf,
        files: Safetensors,
        packing: Option<Packing>,
    },
    /// No files: random weights.
    Random {
        kind: Kind,
    },
}

/// Prefixes of tensor names in Hugging Face folders, and of `lm_head`. The second and third are of vision-language models.
const PREFIXES: [(&str, &str); 6] = [
    ("model.", ""),
    ("language_model.model.", "language_model."),
    ("model.language_model.", ""),
    ("gpt_neox.", ""),
    ("transformer.", ""),
    // Models without a head, such as those for embeddings.
    ("", ""),
];
/// Names of the output, which have the prefix of the head.
const HEADS: [&str; 2] = ["lm_head.", "embed_out."];
/// Tensors that are ignored: not part of the language model, or computed from the configuration. Prefixes and suffixes of names.
const IGNORED_PREFIXES: [&str; 4] = ["vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."];
const IGNORED_SUFFIXES: [&str; 5] =
    ["rotary_emb.inv_freq", "attn_rot_embd.weight", "attn.masked_bias", "attention.masked_bias", "attention.bias"];

impl Checkpoint {
    /// Opens a `.gguf` file, or a folder with `config.json` and safetensors. Fails if a weight is missing, unknown or of the wrong shape.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        let path = path.as_ref();
        let shown = path.display().to_string();
        if path.is_dir() {
            let FolderConfig { config, forms, mlp_bias, packing } = folder::config(path)?;
            let source = Source::Folder { folder: path.to_owned(), files: Safetensors::open(path)?, packing };
            let mut specs = tensor_specs(&config, forms);
            let mlp_biases = specs.iter_mut().filter(|spec| spec.name.contains(".ffn_") && spec.name.ends_with(".bias"));
            mlp_biases.for_each(|spec| spec.required |= mlp_bias);
            Checkpoint::new(shown, config, specs, source, forms.tied)
        } else {
            let file = Gguf::open(path)?;
            let config = gguf::config(&file)?;
            let specs = tensor_specs(&config, Forms::of_gguf(|name| file.tensor(name).is_some()));
            Checkpoint::new(shown, config, specs, Source::Gguf(file), None)
        }
    }

    fn new(path: String, config: Config, specs: Vec<TensorSpec>, source: Source, tied: Option<bool>) -> Result<Checkpoint> {
        let (prefix, head) = match &source {
            Source::Gguf(_) | Source::Random { .. } => ("", ""),
            Source::Folder { files, .. } => {
                let embedding = specs.first().map_or("", |spec| &spec.hf_name);
                let has = |prefix: &str| files.tensor(&format!("{prefix}{embedding}")).is_some();
                PREFIXES.into_iter().find(|(prefix, _)| has(prefix)).unwrap_or(PREFIXES[0])
            }
        };
        let mut known = Vec::new();
        let mut names = HashSet::new();
        for spec in specs {
            let name = match &source {
                Source::Gguf(_) => spec.gguf_name.as_ref().unwrap_or(&spec.name).clone(),
                Source::Random { .. } => spec.name.clone(),
                Source::Folder { .. } => {
                    let is_head = HEADS.iter().any(|head| spec.hf_name.starts_with(head));
                    format!("{}{}", if is_head { head } else { prefix }, spec.hf_name)
                }
            };
            let mut parts = expert_names(&spec, &name);
            let of_file = spec.hf_shape.as_ref().filter(|_| matches!(source, Source::Folder { .. })).unwrap_or(&spec.shape);
            let shape = if spec.experts.is_some() { &of_file[1..] } else { &of_file[..] };
            let (mut kind, mut packed) = (None, Vec::new());
            for name in &parts {
                if let Some(found) = source.packed(name) {
                    found.check(&path, shape)?;
                    kind = Some(found.kind());
                    packed.extend(found.names());
                    continue;
                }
                match source.tensor(name) {
                    Some(tensor) => check_tensor(&path, &spec, shape, &tensor, *kind.get_or_insert(tensor.kind))?,
                    None if spec.required => {
                        return Err(bad_tensor(&path, name, format!("missing; expected shape {shape:?}")));
                    }
                    None => {}
                }
            }
            if let Some(scales) = mxfp4_scales(&name) {
                if spec.shape.last().is_none_or(|columns| !columns.is_multiple_of(32)) {
                    return Err(bad_tensor(&path, &name, format!("expected rows of a multiple of 32 elements, got {:?}", spec.shape)));
                }
                let (expected, found) = (&shape[..shape.len().saturating_sub(1)], source.tensor(&scales));
                if found.as_ref().is_none_or(|found| found.shape != expected || found.kind != Kind::Plain(DType::U8)) {
                    let shown = found.map_or_else(|| "no tensor".to_owned(), |found| format!("{} of {:?}", found.kind, found.shape));
                    return Err(bad_tensor(&path, &scales, format!("expected u8 of shape {expected:?}, got {shown}")));
                }
                parts.push(scales);
            }
            parts.extend(packed);
            if kind.is_some() {
                names.extend(parts);
                known.push((spec, name));
            }
        }
        let tied_output = format!("{head}lm_head.weight");
        for name in source.names() {
            let ignored = IGNORED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                || IGNORED_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
                || gguf::FACTORS.contains(&name)
                || (tied == Some(true) && name == tied_output);
            if !ignored && !names.contains(name) {
                let reason = format!("unexpected in a {:?} model with {} layers", config.family, config.layers);
                return Err(bad_tensor(&path, name, reason));
            }
        }
        let by_name = known.iter().enumerate().map(|(index, (spec, _))| (spec.name.clone(), index)).collect();
        Ok(Checkpoint { path, config, source, tensors: known, by_name })
    }

    /// Returns the file or folder, as errors name it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the architecture.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the GGUF file, if it is one. Its metadata hold the tokenizer.
    pub fn gguf(&self) -> Option<&Gguf> {
        if let Source::Gguf(file) = &self.source { Some(file) } else { None }
    }

    /// Returns the Hugging Face folder, if it is one. It holds `tokenizer.json`.
    pub fn folder(&self) -> Option<&Path> {
        if let Source::Folder { folder, .. } = &self.source { Some(folder) } else { None }
    }

    /// Returns whether the output matrix is the embedding.
    pub fn is_tied(&self) -> bool {
        !self.by_name.contains_key("output.weight")
    }

    /// Returns the names of the weights, in the order of use.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.iter().map(|(spec, _)| &*spec.name)
    }

    /// Returns names, types and shapes of the weights.
    pub fn infos(&self) -> impl Iterator<Item = TensorInfo> {
        self.tensors.iter().filter_map(|tensor| self.info_of(tensor))
    }

    fn info_of(&self, (spec, name): &(TensorSpec, String)) -> Option<TensorInfo> {
        let kind = match &self.source {
            _ if spec.is_vector() => Kind::Plain(DType::F32),
            Source::Folder { .. } if mxfp4_scales(name).is_some() => Kind::Quant(Quant::Mxfp4),
            Source::Random { kind } => *kind,
            source => {
                let names = expert_names(spec, name);
                let name = names.first()?;
                source.packed(name).map(|packed| packed.kind()).or_else(|| Some(source.tensor(name)?.kind))?
            }
        };
        Some(TensorInfo { name: spec.name.clone(), kind, shape: spec.shape.clone() })
    }

    /// Returns whether the model has a weight of this name.
    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Returns a weight by its name.
    pub fn get(&self, name: &str) -> Result<Weight<'_>> {
        let tensor = self.by_name.get(name).and_then(|index| self.tensors.get(*index));
        if let (Source::Random { kind }, Some((spec, _))) = (&self.source, tensor) {
            return Ok(random::weight(name, &spec.shape, *kind));
        }
        let missing = || bad_tensor(&self.path, name, "not in the model");
        let (spec, file_name) = tensor.ok_or_else(missing)?;
        let transform = if self.gguf().is_some() { Transform::None } else { spec.transform };
        let parts = expert_names(spec, file_name);
        let parts: Option<Vec<(Kind, Cow<'_, [u8]>)>> = parts.iter().map(|part| self.source.elements(part)).collect();
        let mut parts = parts.ok_or_else(missing)?;
        let (mut kind, mut bytes) = match &parts[..] {
            [_] => parts.remove(0),
            [(first, _), ..] => (*first, parts.iter().flat_map(|(_, bytes)| bytes.iter()).copied().collect::<Vec<u8>>().into()),
            [] => return Err(missing()),
        };
        if spec.is_vector() && (kind != Kind::Plain(DType::F32) || transform == Transform::AddOne) {
            let one = if transform == Transform::AddOne { 1.0 } else { 0.0 };
            bytes = convert::to_f32(kind, &bytes).iter().flat_map(|x| (x + one).to_le_bytes()).collect::<Vec<u8>>().into();
            kind = Kind::Plain(DType::F32);
        }
        let rows = spec.shape.first().copied().unwrap_or(0);
        let Config { heads, kv_heads, head_dim, .. } = self.config;
        match transform {
            Transform::Interleave => bytes = interleave(&bytes, rows, head_dim).into(),
            // With one KV head the order is the same.
            Transform::Experts { first, step } => match mxfp4_scales(file_name).and_then(|scales| self.source.tensor(&scales)) {
                Some(scales) => {
                    let columns = spec.shape.last().copied().unwrap_or(0);
                    (kind, bytes) = (Kind::Quant(Quant::Mxfp4), packed::mxfp4(&bytes, scales.bytes, columns, first, step).into());
                }
                None => bytes = transposed(&bytes, &spec.shape, kind.block().1, first, step).into(),
            },
            Transform::ExpertBiases { first, step } => {
                bytes = bytes.as_chunks::<4>().0.iter().skip(first).step_by(step).flatten().copied().collect::<Vec<u8>>().into();
            }
            Transform::Ungroup if kv_heads > 1 => bytes = ungroup(&bytes, rows, heads / kv_heads, head_dim).into(),
            _ => {}
        }
        Ok(Weight { kind, shape: spec.shape.clone(), bytes })
    }

    /// Returns a weight converted as [`Checkpoint::write_gguf`] converts it.
    pub fn get_as(&self, name: &str, to: Option<Kind>) -> Result<Weight<'_>> {
        let weight = self.get(name)?;
        let info = TensorInfo { name: name.to_owned(), kind: weight.kind, shape: weight.shape.clone() };
        let kind = convert::target(&info, to, self.is_tied());
        if kind == weight.kind {
            return Ok(weight);
        }
        let bytes = convert::convert(weight.kind, &weight.bytes, kind).into();
        Ok(Weight { kind, bytes, ..weight })
    }

    /// Returns a weight's elements as `f32`.
    pub fn get_f32(&self, name: &str) -> Result<Vec<f32>> {
        let weight = self.get(name)?;
        Ok(convert::to_f32(weight.kind, &weight.bytes))
    }
}

impl Config {
    /// Returns names and shapes of the required weights; `tied`: whether the output matrix is the embedding.
    pub fn weights(&self, tied: bool) -> impl Iterator<Item = (String, Vec<usize>)> {
        tensor_specs(self, Forms::of_config(self, Some(tied))).into_iter().filter(|spec| spec.required).map(|spec| (spec.name, spec.shape))
    }
}

impl Source {
    fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        match self {
            Source::Gguf(file) => file.tensor(name),
            Source::Folder { files, .. } => files.tensor(name),
            Source::Random { .. } => None,
        }
    }

    /// A matrix that is packed in a way that GGUF files do not have.
    fn packed(&self, name: &str) -> Option<Packed<'_>> {
        match self {
            Source::Folder { files, packing: Some(packing), .. } => packing.find(files, name),
            _ => None,
        }
    }

    /// A tensor's type and elements, unpacked if it is packed.
    fn elements(&self, name: &str) -> Option<(Kind, Cow<'_, [u8]>)> {
        match self.packed(name) {
            Some(packed) => Some((packed.kind(), packed.unpack().into())),
            None => self.tensor(name).map(|tensor| (tensor.kind, Cow::Borrowed(tensor.bytes))),
        }
    }

    fn names(&self) -> Vec<&str> {
        match self {
            Source::Gguf(file) => file.tensors().map(|tensor| tensor.name).collect(),
            Source::Folder { files, .. } => files.tensors().map(|tensor| tensor.name).collect(),
            Source::Random { .. } => Vec::new(),
        }
    }
}

/// The names of a tensor's parts in the file: one, or one per expert.
fn expert_names(spec: &TensorSpec, name: &str) -> Vec<String> {
    match spec.experts {
        Some(experts) => (0..experts).map(|expert| name.replace("{}", &expert.to_string())).collect(),
        None => vec![name.to_owned()],
    }
}

/// The name of the scales of a tensor of MXFP4 blocks.
fn mxfp4_scales(name: &str) -> Option<String> {
    Some(format!("{}_scales", name.strip_suffix("_blocks")?))
}

/// Fails unless a tensor, or a part of it, has this shape and type.
fn check_tensor(path: &str, spec: &TensorSpec, shape: &[usize], tensor: &Tensor<'_>, kind: Kind) -> Result<()> {
    let bad = |reason| Err(bad_tensor(path, tensor.name, reason));
    // Some files store a vector as a matrix of one row.
    let found = if shape.len() == 1 && tensor.shape.first() == Some(&1) { &tensor.shape[1..] } else { tensor.shape };
    if found != shape && tensor.shape != shape {
        return bad(format!("expected shape {shape:?}, got {:?}", tensor.shape));
    }
    if tensor.kind != kind {
        return bad(format!("expected {kind}, the type of the other experts, got {}", tensor.kind));
    }
    let is_mxfp4 = mxfp4_scales(tensor.name).is_some() && tensor.kind == Kind::Plain(DType::U8);
    if !is_mxfp4 && !convert::is_supported(tensor.kind) {
        return bad(format!("unsupported weight type {}", tensor.kind));
    }
    if spec.is_vector() && matches!(tensor.kind, Kind::Quant(_)) {
        return bad(format!("expected f32 for a vector, got {}", tensor.kind));
    }
    Ok(())
}

/// Reorders the rows of each head from two halves to adjacent pairs.
fn interleave(bytes: &[u8], rows: usize, head_dim: usize) -> Vec<u8> {
    let row = bytes.len() / rows.max(1);
    let mut out = Vec::with_capacity(bytes.len());
    for head in bytes.chunks_exact((head_dim * row).max(1)) {
        let (first, second) = head.split_at(head.len() / 2);
        for (first, second) in first.chunks_exact(row.max(1)).zip(second.chunks_exact(row.max(1))) {
            out.extend(first);
            out.extend(second);
        }
    }
    out
}

/// Reorders rows that are, for each KV head, its Q heads, K and V, to all Q, then all K, then all V.
fn ungroup(bytes: &[u8], rows: usize, queries: usize, head_dim: usize) -> Vec<u8> {
    let head = bytes.len() / rows.max(1) * head_dim;
    let group = ((queries + 2) * head).max(1);
    let parts = [0..queries * head, queries * head..(queries + 1) * head, (queries + 1) * head..(queries + 2) * head];
    parts.into_iter().flat_map(|part| bytes.chunks_exact(group).flat_map(move |group| group[part.clone()].iter().copied())).collect()
}

/// Transposes matrices of (experts, columns, rows · step) to (experts, rows, columns), taking every `step`-th row from `first` on.
fn transposed(bytes: &[u8], shape: &[usize], size: usize, first: usize, step: usize) -> Vec<u8> {
    let &[experts, rows, columns] = shape else { return bytes.to_vec() };
    let mut out = Vec::with_capacity(experts * rows * columns * size);
    for expert in bytes.chunks_exact((columns * rows * step * size).max(1)) {
        for row in 0..rows {
            for column in 0..columns {
                out.extend_from_slice(&expert[(column * rows * step + row * step + first) * size..][..size]);
            }
        }
    }
    out
}
