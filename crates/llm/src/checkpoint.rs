//! A model's files: configuration, weights and tokenizer, from GGUF or Hugging Face folders.

mod convert;
mod error;
mod folder;
mod gguf;
mod json;
mod memory;
mod random;
mod tensors;
mod tokenizer;
mod tokenizer_metadata;
mod validate;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use warpwave_kernels::DType;
use warpwave_weights::{Gguf, Kind, Safetensors, Tensor, TensorInfo};

use crate::config::Config;
pub use error::CheckpointError;
use error::{Result, bad_tensor};
use folder::FolderConfig;
pub use memory::{MemoryEstimate, MemoryPlan};
pub(crate) use memory::{StepMemory, kv_cache_type};
use tensors::{TensorSpec, Transform, tensor_specs};

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
    },
    /// No files: random weights.
    Random {
        kind: Kind,
    },
}

/// Prefixes of tensor names in Hugging Face folders, and of `lm_head`. The second and third are of vision-language models.
const PREFIXES: [(&str, &str); 3] = [("model.", ""), ("language_model.model.", "language_model."), ("model.language_model.", "")];
/// Tensors that are ignored: not part of the language model, or computed from the configuration. Prefixes and suffixes of names.
const IGNORED_PREFIXES: [&str; 4] = ["vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."];
const IGNORED_SUFFIXES: [&str; 3] = ["rotary_emb.inv_freq", "attn_rot_embd.weight", "attn.masked_bias"];

impl Checkpoint {
    /// Opens a `.gguf` file, or a folder with `config.json` and safetensors. Fails if a weight is missing, unknown or of the wrong shape.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        let path = path.as_ref();
        let shown = path.display().to_string();
        if path.is_dir() {
            let FolderConfig { config, tied, mlp_bias } = folder::config(path)?;
            let source = Source::Folder { folder: path.to_owned(), files: Safetensors::open(path)? };
            let mut specs = tensor_specs(&config, Some(tied));
            let mlp_biases = specs.iter_mut().filter(|spec| spec.name.contains(".ffn_") && spec.name.ends_with(".bias"));
            mlp_biases.for_each(|spec| spec.required = mlp_bias);
            Checkpoint::new(shown, config, specs, source, Some(tied))
        } else {
            let file = Gguf::open(path)?;
            let config = gguf::config(&file)?;
            let specs = tensor_specs(&config, None);
            Checkpoint::new(shown, config, specs, Source::Gguf(file), None)
        }
    }

    fn new(path: String, config: Config, specs: Vec<TensorSpec>, source: Source, tied: Option<bool>) -> Result<Checkpoint> {
        let (prefix, head) = match &source {
            Source::Gguf(_) | Source::Random { .. } => ("", ""),
            Source::Folder { files, .. } => {
                let has = |prefix: &str| files.tensor(&format!("{prefix}embed_tokens.weight")).is_some();
                PREFIXES.into_iter().find(|(prefix, _)| has(prefix)).unwrap_or(PREFIXES[0])
            }
        };
        let mut known = Vec::new();
        let mut names = HashSet::new();
        for spec in specs {
            let name = match &source {
                Source::Gguf(_) | Source::Random { .. } => spec.name.clone(),
                Source::Folder { .. } => format!("{}{}", if spec.hf_name.starts_with("lm_head") { head } else { prefix }, spec.hf_name),
            };
            match source.tensor(&name) {
                Some(tensor) => check_tensor(&path, &spec, &tensor)?,
                None if spec.required => {
                    let reason = format!("missing; expected shape {:?}", spec.shape);
                    return Err(bad_tensor(&path, &name, reason));
                }
                None => continue,
            }
            names.insert(name.clone());
            known.push((spec, name));
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
            _ if spec.shape.len() < 2 => Kind::Plain(DType::F32),
            Source::Random { kind } => *kind,
            source => source.tensor(name)?.kind,
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
        let found = tensor.and_then(|(spec, name)| Some((spec, self.source.tensor(name)?)));
        let (spec, tensor) = found.ok_or_else(|| bad_tensor(&self.path, name, "not in the model"))?;
        let transform = if self.gguf().is_some() { Transform::None } else { spec.transform };
        let (mut kind, mut bytes) = (tensor.kind, Cow::Borrowed(tensor.bytes));
        if spec.shape.len() < 2 && (kind != Kind::Plain(DType::F32) || transform == Transform::AddOne) {
            let one = if transform == Transform::AddOne { 1.0 } else { 0.0 };
            bytes = convert::to_f32(kind, &bytes).iter().flat_map(|x| (x + one).to_le_bytes()).collect::<Vec<u8>>().into();
            kind = Kind::Plain(DType::F32);
        }
        if transform == Transform::Interleave {
            bytes = interleave(&bytes, spec.shape.first().copied().unwrap_or(0), self.config.head_dim).into();
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
        tensor_specs(self, Some(tied)).into_iter().filter(|spec| spec.required).map(|spec| (spec.name, spec.shape))
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

    fn names(&self) -> Vec<&str> {
        match self {
            Source::Gguf(file) => file.tensors().map(|tensor| tensor.name).collect(),
            Source::Folder { files, .. } => files.tensors().map(|tensor| tensor.name).collect(),
            Source::Random { .. } => Vec::new(),
        }
    }
}

fn check_tensor(path: &str, spec: &TensorSpec, tensor: &Tensor<'_>) -> Result<()> {
    let bad = |reason| Err(bad_tensor(path, tensor.name, reason));
    if tensor.shape != spec.shape {
        return bad(format!("expected shape {:?}, got {:?}", spec.shape, tensor.shape));
    }
    if !convert::is_supported(tensor.kind) {
        return bad(format!("unsupported weight type {}", tensor.kind));
    }
    if spec.shape.len() < 2 && matches!(tensor.kind, Kind::Quant(_)) {
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
