//! A model's files: what it is, and its weights, whichever files it comes in.

mod check;
mod convert;
mod error;
mod folder;
mod gguf;
mod json;
mod load;
mod memory;
mod parts;
mod random;
mod text;
mod vocabulary;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use warpwave_kernels::DType;
use warpwave_weights::{Gguf, Kind, Safetensors, Tensor, TensorInfo};

use crate::config::Config;
pub use error::CheckpointError;
use error::{Result, bad_tensor};
pub use memory::{Memory, Plan};
pub(crate) use memory::{Moments, cache_type};
use parts::{Change, Part, parts};

/// A weight of a model.
#[derive(Debug, Clone)]
pub struct Weight<'a> {
    /// The type of its elements.
    pub kind: Kind,
    /// Its dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Its elements: in place where the file has them as they should be.
    pub bytes: Cow<'a, [u8]>,
}

/// A GGUF file or a Hugging Face folder. Weights have GGUF's names and conventions, whichever it is: see [`Config`]. Norms and biases are
/// `f32`.
pub struct Checkpoint {
    path: String,
    config: Config,
    source: Source,
    /// Each with its name in the file.
    parts: Vec<(Part, String)>,
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
    /// No files: weights are random numbers.
    Random {
        kind: Kind,
    },
}

/// What may come before the names of a folder's tensors: the second and third in models that see.
const PREFIXES: [(&str, &str); 3] = [("model.", ""), ("language_model.model.", "language_model."), ("model.language_model.", "")];
/// What folders and files have that is not a weight of a language model, or is known otherwise: beginnings and ends of names.
const OTHERS: [&str; 4] = ["vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."];
const OTHER_ENDS: [&str; 3] = ["rotary_emb.inv_freq", "attn_rot_embd.weight", "attn.masked_bias"];

impl Checkpoint {
    /// Opens a `.gguf` file, or a folder with `config.json` and safetensors, and checks that all weights are there and of the right shape.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        let path = path.as_ref();
        let shown = path.display().to_string();
        if path.is_dir() {
            let (config, tied) = folder::config(path)?;
            let source = Source::Folder { folder: path.to_owned(), files: Safetensors::open(path)? };
            Checkpoint::new(shown, config, Some(tied), source)
        } else {
            let file = Gguf::open(path)?;
            Checkpoint::new(shown, gguf::config(&file)?, None, Source::Gguf(file))
        }
    }

    fn new(path: String, config: Config, tied: Option<bool>, source: Source) -> Result<Checkpoint> {
        let (prefix, head) = match &source {
            Source::Gguf(_) | Source::Random { .. } => ("", ""),
            Source::Folder { files, .. } => {
                let has = |prefix: &str| files.tensor(&format!("{prefix}embed_tokens.weight")).is_some();
                PREFIXES.into_iter().find(|(prefix, _)| has(prefix)).unwrap_or(PREFIXES[0])
            }
        };
        let mut known = Vec::new();
        let mut names = HashSet::new();
        for part in parts(&config, tied) {
            let name = match &source {
                Source::Gguf(_) | Source::Random { .. } => part.name.clone(),
                Source::Folder { .. } => format!("{}{}", if part.folder.starts_with("lm_head") { head } else { prefix }, part.folder),
            };
            match source.tensor(&name) {
                Some(tensor) => check_tensor(&path, &part, &tensor)?,
                None if part.required => {
                    let reason = format!("it is missing; it should be {:?}", part.shape);
                    return Err(bad_tensor(&path, &name, reason));
                }
                None => continue,
            }
            names.insert(name.clone());
            known.push((part, name));
        }
        let tied_output = format!("{head}lm_head.weight");
        for name in source.names() {
            let other = OTHERS.iter().any(|start| name.starts_with(start))
                || OTHER_ENDS.iter().any(|end| name.ends_with(end))
                || gguf::FACTORS.contains(&name)
                || (tied == Some(true) && name == tied_output);
            if !other && !names.contains(name) {
                let reason = format!("it is no part of a model of {} layers of the family {:?}", config.layers, config.family);
                return Err(bad_tensor(&path, name, reason));
            }
        }
        let by_name = known.iter().enumerate().map(|(index, (part, _))| (part.name.clone(), index)).collect();
        Ok(Checkpoint { path, config, source, parts: known, by_name })
    }

    /// What the model is.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The GGUF file, if it is one: its metadata have the tokenizer.
    pub fn gguf(&self) -> Option<&Gguf> {
        if let Source::Gguf(file) = &self.source { Some(file) } else { None }
    }

    /// The folder, if it is one: `tokenizer.json` is in it.
    pub fn folder(&self) -> Option<&Path> {
        if let Source::Folder { folder, .. } = &self.source { Some(folder) } else { None }
    }

    /// Whether the output's matrix is the embedding's.
    pub fn is_tied(&self) -> bool {
        !self.by_name.contains_key("output.weight")
    }

    /// The names of the weights, in the order in which they are used.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.parts.iter().map(|(part, _)| &*part.name)
    }

    /// The weights without their elements.
    pub fn infos(&self) -> impl Iterator<Item = TensorInfo> {
        self.parts.iter().filter_map(|part| self.info_of(part))
    }

    /// A weight without its elements.
    fn info_of(&self, (part, name): &(Part, String)) -> Option<TensorInfo> {
        let kind = match &self.source {
            _ if part.shape.len() < 2 => Kind::Plain(DType::F32),
            Source::Random { kind } => *kind,
            source => source.tensor(name)?.kind,
        };
        Some(TensorInfo { name: part.name.clone(), kind, shape: part.shape.clone() })
    }

    /// A weight by its name.
    pub fn get(&self, name: &str) -> Result<Weight<'_>> {
        let part = self.by_name.get(name).and_then(|index| self.parts.get(*index));
        if let (Source::Random { kind }, Some((part, _))) = (&self.source, part) {
            return Ok(random::weight(name, &part.shape, *kind));
        }
        let found = part.and_then(|(part, name)| Some((part, self.source.tensor(name)?)));
        let (part, tensor) = found.ok_or_else(|| bad_tensor(&self.path, name, "the model has none of this name"))?;
        let change = if self.gguf().is_some() { Change::None } else { part.change };
        let (mut kind, mut bytes) = (tensor.kind, Cow::Borrowed(tensor.bytes));
        if part.shape.len() < 2 && (kind != Kind::Plain(DType::F32) || change == Change::AddOne) {
            let one = if change == Change::AddOne { 1.0 } else { 0.0 };
            bytes = convert::to_f32(kind, &bytes).iter().flat_map(|x| (x + one).to_le_bytes()).collect::<Vec<u8>>().into();
            kind = Kind::Plain(DType::F32);
        }
        if change == Change::Interleave {
            bytes = interleave(&bytes, part.shape.first().copied().unwrap_or(0), self.config.head_dim).into();
        }
        Ok(Weight { kind, shape: part.shape.clone(), bytes })
    }
}

impl Config {
    /// Names and shapes of a model's weights, those that it may lack left out; `tied` says that the output's matrix is the embedding's.
    pub fn weights(&self, tied: bool) -> impl Iterator<Item = (String, Vec<usize>)> {
        parts(self, Some(tied)).into_iter().filter(|part| part.required).map(|part| (part.name, part.shape))
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

fn check_tensor(path: &str, part: &Part, tensor: &Tensor<'_>) -> Result<()> {
    let bad = |reason| Err(bad_tensor(path, tensor.name, reason));
    if tensor.shape != part.shape {
        return bad(format!("it should be {:?}, and is {:?}", part.shape, tensor.shape));
    }
    if !convert::known(tensor.kind) {
        return bad(format!("weights of type {} are not read", tensor.kind));
    }
    if part.shape.len() < 2 && matches!(tensor.kind, Kind::Quant(_)) {
        return bad(format!("a vector should be f32, and is {}", tensor.kind));
    }
    Ok(())
}

/// Rows of heads, from (first half, second half) to pairs of one of each.
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
