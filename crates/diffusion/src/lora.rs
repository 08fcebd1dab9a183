//! LoRA files: low-rank changes of weights, in the names of diffusers, PEFT and kohya.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use warpwave_kernels::DType;
use warpwave_tensor::{Device, Tensor};
use warpwave_weights::{Kind, Safetensors};

use crate::error::{Error, Result, bad_argument, bad_weight};
use crate::names::{Naming, Transform};

/// A network that LoRAs change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Network {
    Denoiser,
    Text(usize),
}

/// Starts of names and their networks; the longest of those that fit counts.
const PREFIXES: [(&str, Network); 12] = [
    ("unet.", Network::Denoiser),
    ("transformer.", Network::Denoiser),
    ("diffusion_model.", Network::Denoiser),
    ("lora_unet_", Network::Denoiser),
    ("lora_transformer_", Network::Denoiser),
    ("text_encoder.", Network::Text(0)),
    ("text_encoder_2.", Network::Text(1)),
    ("lora_te_", Network::Text(0)),
    ("lora_te1_", Network::Text(0)),
    ("lora_te2_", Network::Text(1)),
    ("lora_te3_", Network::Text(2)),
    ("text_encoder_3.", Network::Text(2)),
];

/// Ends of names.
const DOWN: [&str; 4] = [".lora_A.weight", ".lora.down.weight", ".lora_down.weight", ".lora_linear_layer.down.weight"];
const UP: [&str; 4] = [".lora_B.weight", ".lora.up.weight", ".lora_up.weight", ".lora_linear_layer.up.weight"];
const ALPHA: &str = ".alpha";

/// The change of one layer by one file.
struct Change {
    path: String,
    /// The layer's name in the file.
    name: String,
    /// (rank, columns) and (rows, rank)
    down: Tensor,
    up: Tensor,
    scale: f64,
    used: AtomicBool,
}

/// The changes of a network.
pub(crate) struct Loras {
    /// By the layer's name with underscores.
    changes: HashMap<String, Vec<Change>>,
    /// The network's original names, which files may use too.
    original: Naming,
}

/// The changes of all networks.
pub(crate) struct AllLoras(HashMap<Network, Loras>);

/// The parts of a layer's change while a file is read.
#[derive(Default)]
struct Parts {
    name: String,
    down: Option<Tensor>,
    up: Option<Tensor>,
    alpha: Option<f32>,
}

impl AllLoras {
    /// Reads files with their strengths. `original` are the denoiser's original names.
    pub fn read<P: AsRef<Path>>(files: &[(P, f32)], original: Naming) -> Result<AllLoras> {
        let mut all = HashMap::new();
        for (path, strength) in files {
            let path = path.as_ref();
            if !strength.is_finite() {
                return Err(bad_argument("set_loras", format!("{}: expected a finite strength, got {strength}", path.display())));
            }
            for ((network, layer), parts) in read(path)? {
                let original = if network == Network::Denoiser { original } else { Naming::Diffusers };
                let loras = all.entry(network).or_insert_with(|| Loras { changes: HashMap::new(), original });
                loras.changes.entry(layer).or_default().push(change(path, parts, f64::from(*strength))?);
            }
        }
        Ok(AllLoras(all))
    }

    pub fn of(&self, network: Network) -> Option<&Loras> {
        self.0.get(&network)
    }

    /// The networks that are changed.
    pub fn networks(&self) -> Vec<Network> {
        self.0.keys().copied().collect()
    }

    /// Fails if a layer was not found in the networks, which have been loaded by now.
    pub fn check_used(&self) -> Result<()> {
        let changes = self.0.values().flat_map(|loras| loras.changes.values().flatten());
        match changes.filter(|change| !change.used.load(Ordering::Relaxed)).min_by(|a, b| a.name.cmp(&b.name)) {
            Some(change) => {
                Err(bad_weight(&change.path, &change.name, "the model has no such layer; the LoRA was trained for another model family"))
            }
            None => Ok(()),
        }
    }
}

/// Reads a file's tensors by network and layer.
fn read(path: &Path) -> Result<HashMap<(Network, String), Parts>> {
    let shown = path.display().to_string();
    let file = Safetensors::open(path)?;
    let mut layers: HashMap<(Network, String), Parts> = HashMap::new();
    for tensor in file.tensors() {
        let bad = |reason: String| bad_weight(&shown, tensor.name, reason);
        let prefixes = PREFIXES.iter().filter(|(prefix, _)| tensor.name.starts_with(prefix));
        let Some((prefix, network)) = prefixes.max_by_key(|(prefix, _)| prefix.len()) else {
            return Err(bad(
                "unknown LoRA key: expected one that starts with unet., transformer., text_encoder., lora_unet_ or lora_te".into()
            ));
        };
        let rest = &tensor.name[prefix.len()..];
        let ends = DOWN.iter().chain(&UP).chain([&ALPHA]);
        let Some(end) = ends.copied().find(|end| rest.ends_with(*end)) else {
            return Err(bad("unknown LoRA key: expected one that ends with lora_A, lora_B, lora.down, lora.up, lora_down or lora_up, and .weight, or with .alpha".into()));
        };
        let layer = &rest[..rest.len() - end.len()];
        let Kind::Plain(dtype) = tensor.kind else { return Err(bad(format!("expected a float type, got {}", tensor.kind))) };
        if !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16 | DType::F64) {
            return Err(bad(format!("expected a float type, got {dtype}")));
        }
        let values = Tensor::from_bytes(tensor.bytes, dtype, tensor.shape, &Device::Cpu)?.cast(DType::F32)?;
        let parts = layers.entry((*network, layer.replace('.', "_"))).or_default();
        parts.name = tensor.name[..tensor.name.len() - end.len()].to_owned();
        if end == ALPHA {
            let alpha = values.to_vec::<f32>()?;
            let &[alpha] = &alpha[..] else { return Err(bad(format!("expected one element, got {}", alpha.len()))) };
            parts.alpha = Some(alpha);
        } else if tensor.shape.len() < 2 || values.is_empty() {
            return Err(bad(format!("expected a matrix or a convolution kernel, got shape {:?}", tensor.shape)));
        } else if DOWN.contains(&end) {
            let rank = tensor.shape[0];
            parts.down = Some(values.reshape(&[rank, values.len() / rank])?);
        } else {
            let rows = tensor.shape[0];
            parts.up = Some(values.reshape(&[rows, values.len() / rows])?);
        }
    }
    Ok(layers)
}

fn change(path: &Path, parts: Parts, strength: f64) -> Result<Change> {
    let path = path.display().to_string();
    let bad = |reason: String| bad_weight(&path, &parts.name, reason);
    let (Some(down), Some(up)) = (&parts.down, &parts.up) else {
        return Err(bad("expected both a down and an up matrix".into()));
    };
    let rank = down.size(0);
    if up.size(1) != rank {
        return Err(bad(format!("the down matrix has rank {rank}, the up matrix {}", up.size(1))));
    }
    let scale = strength * f64::from(parts.alpha.unwrap_or(rank as f32)) / rank as f64;
    Ok(Change { down: down.clone(), up: up.clone(), scale, used: AtomicBool::new(false), name: parts.name, path })
}

impl Loras {
    /// The changes of a layer, and what is done with them.
    fn find(&self, name: &str) -> Vec<(&Change, Transform)> {
        let Some(layer) = name.strip_suffix(".weight") else { return Vec::new() };
        let mut names = vec![(layer.to_owned(), Transform::None)];
        if self.original != Naming::Diffusers {
            let stored = self.original.stored(name).into_iter();
            names.extend(stored.filter_map(|(name, transform)| Some((name.strip_suffix(".weight")?.to_owned(), transform))));
            names.dedup();
        }
        let changes = |(name, transform): (String, Transform)| {
            let found = self.changes.get(&name.replace('.', "_"));
            found.into_iter().flatten().map(move |change| (change, transform))
        };
        names.into_iter().flat_map(changes).collect()
    }

    /// Whether a weight is changed.
    pub fn has(&self, name: &str) -> bool {
        !self.find(name).is_empty()
    }

    /// The sum of the changes of a weight, in `f32` on the CPU.
    pub fn delta(&self, name: &str, shape: &[usize]) -> Result<Option<Tensor>> {
        let mut sum: Option<Tensor> = None;
        for (change, transform) in self.find(name) {
            change.used.store(true, Ordering::Relaxed);
            let (rows, columns) = (change.up.size(0), change.down.size(1));
            let wanted: usize = shape[1..].iter().product();
            let part = match transform {
                Transform::Part(part, parts) if rows.is_multiple_of(parts) => Some((part * (rows / parts), rows / parts)),
                Transform::Rows(start, count) if start < rows => Some((start, count.unwrap_or(rows - start))),
                Transform::None | Transform::SwapHalves => Some((0, rows)),
                _ => None,
            };
            let fits = |(start, count): &(usize, usize)| columns == wanted && *count == shape[0] && start + count <= rows;
            let Some((start, count)) = part.filter(fits) else {
                return Err(change.bad(format!("a LoRA delta of {rows} × {columns} does not fit the layer's weights of shape {shape:?}")));
            };
            let delta = (change.up.narrow(0, start, count)?.matmul(&change.down)? * change.scale)?;
            let delta = match transform {
                Transform::SwapHalves => Tensor::cat(&[delta.narrow(0, rows / 2, rows - rows / 2)?, delta.narrow(0, 0, rows / 2)?], 0)?,
                _ => delta,
            };
            let delta = delta.reshape(shape)?;
            sum = Some(match sum {
                Some(sum) => (sum + delta)?,
                None => delta,
            });
        }
        Ok(sum)
    }
}

impl Change {
    fn bad(&self, reason: String) -> Error {
        bad_weight(&self.path, &self.name, reason)
    }
}
