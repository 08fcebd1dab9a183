//! The files of an encoder: Hugging Face folders, with the pooling of sentence-transformers, and GGUF files.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use warpwave_kernels::{DType, Unary};
use warpwave_weights::{Array, Gguf, Kind, Safetensors, Tensor, TensorInfo, Value, write_gguf};

use super::tokenizer::KEY;
use super::{EncoderConfig, EncoderPooling, EncoderTokenizer};
use crate::checkpoint::CheckpointError;
use crate::checkpoint::convert::{convert, is_supported, target, to_f32};
use crate::checkpoint::error::{Result, bad_key, bad_tensor};
use crate::checkpoint::json::{self, Keys};
use crate::text_error::TextError;

/// Sizes above this are not read: more than any encoder has.
const LARGEST: usize = 1 << 24;
/// The key of a GGUF file that says whether embeddings have length 1; without it they have.
const NORMALIZE: &str = "bert.normalize_embeddings";
/// Tensors that embeddings do not need, by the beginning of their names: the pooler and the heads of training tasks.
const IGNORED: [&str; 4] = ["pooler.", "cls.", "classifier.", "embeddings.position_ids"];

enum Source {
    Gguf(Gguf),
    Folder { folder: PathBuf, files: Safetensors },
}

impl Source {
    fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        match self {
            Source::Gguf(file) => file.tensor(name),
            Source::Folder { files, .. } => files.tensor(name),
        }
    }
}

/// A GGUF file or a Hugging Face folder of an encoder. Weights have GGUF's names.
pub struct EncoderCheckpoint {
    path: String,
    config: EncoderConfig,
    source: Source,
    /// Names in the file, by GGUF's, in the order of use.
    names: Vec<(String, String)>,
    by_name: HashMap<String, usize>,
}

/// A weight as the file has it.
pub(super) struct Stored<'a> {
    pub kind: Kind,
    pub shape: &'a [usize],
    pub bytes: &'a [u8],
}

impl EncoderCheckpoint {
    /// Whether a path is an encoder: a GGUF file of architecture `bert`, or a folder whose `config.json` has that `model_type`.
    pub fn is_encoder(path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        if path.is_dir() {
            return json::read(&path.join("config.json")).is_ok_and(|config| config["model_type"] == "bert");
        }
        path.is_file() && Gguf::open(path).is_ok_and(|file| matches!(file.get_str("general.architecture"), Ok(Some("bert"))))
    }

    /// Opens a `.gguf` file, or a folder with `config.json` and safetensors. Fails if a weight is missing, unknown or of the wrong shape.
    pub fn open(path: impl AsRef<Path>) -> Result<EncoderCheckpoint> {
        let path = path.as_ref();
        let (config, source) = match path.is_dir() {
            true => {
                let config = folder_config(path)?;
                (config, Source::Folder { folder: path.to_owned(), files: Safetensors::open(path)? })
            }
            false => {
                let file = Gguf::open(path)?;
                (gguf_config(&file)?, Source::Gguf(file))
            }
        };
        let path = path.display().to_string();
        // Some folders have the model in an object of its own.
        let prefix = match &source {
            Source::Folder { files, .. } if files.tensor("bert.embeddings.word_embeddings.weight").is_some() => "bert.",
            _ => "",
        };
        let mut names = Vec::new();
        for (name, hf_name, shape) in specs(&config) {
            let own = if matches!(source, Source::Gguf(_)) { name.clone() } else { format!("{prefix}{hf_name}") };
            let Some(tensor) = source.tensor(&own) else {
                return Err(bad_tensor(&path, &own, format!("missing; expected shape {shape:?}")));
            };
            if tensor.shape != shape {
                return Err(bad_tensor(&path, &own, format!("expected shape {shape:?}, got {:?}", tensor.shape)));
            }
            if !is_supported(tensor.kind) || (shape.len() == 1 && matches!(tensor.kind, Kind::Quant(_))) {
                return Err(bad_tensor(&path, &own, format!("unsupported weight type {}", tensor.kind)));
            }
            names.push((name, own));
        }
        let found: Vec<&str> = match &source {
            Source::Gguf(file) => file.tensors().map(|tensor| tensor.name).collect(),
            Source::Folder { files, .. } => files.tensors().map(|tensor| tensor.name).collect(),
        };
        let unknown = |name: &&str| {
            let bare = name.strip_prefix(prefix).unwrap_or(name);
            !IGNORED.iter().any(|ignored| bare.starts_with(ignored)) && names.iter().all(|(_, own)| own != name)
        };
        if let Some(name) = found.into_iter().find(unknown) {
            return Err(bad_tensor(&path, name, format!("unexpected in an encoder with {} layers", config.layers)));
        }
        let by_name = names.iter().enumerate().map(|(index, (name, _))| (name.clone(), index)).collect();
        Ok(EncoderCheckpoint { path, config, source, names, by_name })
    }

    /// Returns the architecture.
    pub fn config(&self) -> &EncoderConfig {
        &self.config
    }

    /// Returns the file or folder, as errors name it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the names of the weights, in the order of use.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.iter().map(|(name, _)| &**name)
    }

    /// Reads the tokenizer.
    pub fn tokenizer(&self) -> Result<EncoderTokenizer, TextError> {
        match &self.source {
            Source::Gguf(file) => EncoderTokenizer::from_gguf(file),
            Source::Folder { folder, .. } => EncoderTokenizer::from_folder(folder),
        }
    }

    pub(super) fn need(&self, name: &str) -> Result<Stored<'_>> {
        let own = self.by_name.get(name).and_then(|index| self.names.get(*index)).map(|(_, own)| own);
        let tensor = own.and_then(|own| self.source.tensor(own)).ok_or_else(|| bad_tensor(&self.path, name, "not in the model"))?;
        Ok(Stored { kind: tensor.kind, shape: tensor.shape, bytes: tensor.bytes })
    }

    pub(super) fn get_f32(&self, name: &str) -> Result<Vec<f32>> {
        let weight = self.need(name)?;
        Ok(to_f32(weight.kind, weight.bytes))
    }

    /// Writes the model and its tokenizer as a GGUF file. `to` is the type of the matrices of the layers and of the word embedding; default:
    /// the file's types. `progress` receives the bytes written and those of all tensors.
    pub fn write_gguf(&self, path: impl AsRef<Path>, to: Option<Kind>, progress: impl FnMut(u64, u64)) -> Result<()> {
        if let Some(kind) = to.filter(|kind| !is_supported(*kind)) {
            return Err(bad_key(&self.path, "weights", format!("cannot convert to {kind}; use f32, f16, bf16 or a GGUF type")));
        }
        if self.config.activation != Unary::GeluErf {
            return Err(bad_key(&self.path, "hidden_act", "GGUF files of encoders support only the activation gelu"));
        }
        let mut infos = Vec::new();
        for (name, _) in &self.names {
            let Stored { kind, shape, .. } = self.need(name)?;
            let info = TensorInfo { name: name.clone(), kind, shape: shape.to_vec() };
            // Positions and types are few.
            let kind = match name.starts_with("position_embd") || name.starts_with("token_types") {
                true => Kind::Plain(DType::F32),
                false => target(&info, to, false),
            };
            infos.push(TensorInfo { kind, ..info });
        }
        let data = |index: usize| -> Result<Cow<'_, [u8]>> {
            let (weight, kind) = (self.need(&infos[index].name)?, infos[index].kind);
            Ok(if weight.kind == kind { weight.bytes.into() } else { convert(weight.kind, weight.bytes, kind).into() })
        };
        write_gguf(path, &self.metadata()?, &infos, data, progress)
    }

    fn metadata(&self) -> Result<Vec<(Cow<'static, str>, Value<'static>)>> {
        let EncoderConfig { vocab, hidden, layers, heads, feed_forward, context, token_types, norm_eps, .. } = self.config;
        let pooling = match self.config.pooling {
            EncoderPooling::Mean => 1u32,
            EncoderPooling::Cls => 2,
        };
        let number = |value: usize| Value::from(value as u32);
        let mut metadata: Vec<(Cow<'static, str>, Value<'static>)> = vec![
            ("general.architecture".into(), "bert".into()),
            ("bert.context_length".into(), number(context)),
            ("bert.embedding_length".into(), number(hidden)),
            ("bert.feed_forward_length".into(), number(feed_forward)),
            ("bert.block_count".into(), number(layers)),
            ("bert.attention.head_count".into(), number(heads)),
            ("bert.attention.layer_norm_epsilon".into(), norm_eps.into()),
            ("bert.attention.causal".into(), false.into()),
            ("bert.pooling_type".into(), pooling.into()),
            (NORMALIZE.into(), self.config.normalize.into()),
            ("tokenizer.ggml.token_type_count".into(), number(token_types)),
            ("general.quantization_version".into(), 2u32.into()),
        ];
        let has_tokenizer = match &self.source {
            Source::Gguf(file) => file.get_str(KEY)?.is_some() || file.value("tokenizer.ggml.tokens").is_some(),
            Source::Folder { folder, .. } => ["tokenizer.json", "vocab.txt"].iter().any(|name| folder.join(name).is_file()),
        };
        if has_tokenizer {
            let tokenizer = self.tokenizer().map_err(|error| bad_key(&self.path, "tokenizer", error.to_string()))?;
            let tokens = tokenizer.gguf_tokens(vocab);
            let special = |token: &&String| token.starts_with('[') && token.ends_with(']');
            metadata.push(("tokenizer.ggml.model".into(), "bert".into()));
            metadata.push(("tokenizer.ggml.pre".into(), "default".into()));
            metadata.push(("tokenizer.ggml.tokens".into(), Array::strs(tokens.iter().map(String::as_str)).into()));
            metadata.push((
                "tokenizer.ggml.token_type".into(),
                Array::i32s(tokens.iter().map(|token| if special(&token) { 3 } else { 1 })).into(),
            ));
            for (key, token) in [("unknown", "[UNK]"), ("seperator", "[SEP]"), ("padding", "[PAD]"), ("cls", "[CLS]"), ("mask", "[MASK]")] {
                if let Some(id) = tokenizer.id(token) {
                    metadata.push((format!("tokenizer.ggml.{key}_token_id").into(), id.into()));
                }
            }
            metadata.push((KEY.into(), tokenizer.json().to_owned().into()));
        }
        Ok(metadata)
    }
}

/// GGUF's and Hugging Face's names of all weights, and their shapes.
fn specs(config: &EncoderConfig) -> Vec<(String, String, Vec<usize>)> {
    let EncoderConfig { vocab, hidden, layers, feed_forward, positions, token_types, .. } = *config;
    let mut specs = Vec::new();
    let mut add = |name: &str, hf_name: &str, shape: &[usize]| specs.push((name.to_owned(), hf_name.to_owned(), shape.to_vec()));
    let both = |add: &mut dyn FnMut(&str, &str, &[usize]), name: &str, hf_name: &str, shape: &[usize]| {
        add(&format!("{name}.weight"), &format!("{hf_name}.weight"), shape);
        add(&format!("{name}.bias"), &format!("{hf_name}.bias"), &shape[..1]);
    };
    add("token_embd.weight", "embeddings.word_embeddings.weight", &[vocab, hidden]);
    add("position_embd.weight", "embeddings.position_embeddings.weight", &[positions, hidden]);
    add("token_types.weight", "embeddings.token_type_embeddings.weight", &[token_types, hidden]);
    both(&mut add, "token_embd_norm", "embeddings.LayerNorm", &[hidden]);
    for layer in 0..layers {
        for (name, hf_name, shape) in [
            ("attn_q", "attention.self.query", &[hidden, hidden][..]),
            ("attn_k", "attention.self.key", &[hidden, hidden]),
            ("attn_v", "attention.self.value", &[hidden, hidden]),
            ("attn_output", "attention.output.dense", &[hidden, hidden]),
            ("attn_output_norm", "attention.output.LayerNorm", &[hidden]),
            ("ffn_up", "intermediate.dense", &[feed_forward, hidden]),
            ("ffn_down", "output.dense", &[hidden, feed_forward]),
            ("layer_output_norm", "output.LayerNorm", &[hidden]),
        ] {
            both(&mut add, &format!("blk.{layer}.{name}"), &format!("encoder.layer.{layer}.{hf_name}"), shape);
        }
    }
    specs
}

/// Fails for sizes that no encoder has.
fn checked(config: EncoderConfig, bad: impl Fn(&str, String) -> CheckpointError) -> Result<EncoderConfig> {
    let EncoderConfig { vocab, hidden, layers, heads, feed_forward, context, positions, token_types, .. } = config;
    for (what, size) in [
        ("vocabulary", vocab),
        ("hidden size", hidden),
        ("number of heads", heads),
        ("intermediate size", feed_forward),
        ("context", context),
        ("number of positions", positions),
        ("number of token types", token_types),
    ] {
        if !(1..=LARGEST).contains(&size) {
            return Err(bad("config", format!("the {what} must be from 1 to {LARGEST}, got {size}")));
        }
    }
    if !(1..=1024).contains(&layers) {
        return Err(bad("config", format!("the number of layers must be from 1 to 1024, got {layers}")));
    }
    if !hidden.is_multiple_of(heads) {
        return Err(bad("config", format!("the hidden size {hidden} is not divisible by the number of heads, {heads}")));
    }
    if context > positions {
        return Err(bad("config", format!("the context length {context} exceeds the {positions} position embeddings")));
    }
    if !(config.norm_eps > 0.0 && config.norm_eps < 1.0) {
        return Err(bad("config", format!("norm_eps must be > 0 and < 1, got {}", config.norm_eps)));
    }
    Ok(config)
}

fn folder_config(folder: &Path) -> Result<EncoderConfig> {
    let path = folder.join("config.json");
    let (shown, config) = (path.display().to_string(), json::read(&path)?);
    let keys = Keys::new(&shown, config.as_object().into_iter().collect());
    let need = |key: &str| keys.need(key, keys.usize(key)?);
    for (key, expected) in [("model_type", "bert"), ("position_embedding_type", "absolute")] {
        if let Some(found) = keys.str(key)?.filter(|found| *found != expected) {
            return Err(keys.bad(key, format!("unsupported value `{found}`; expected {expected}")));
        }
    }
    let activation = match keys.str("hidden_act")?.unwrap_or("gelu") {
        "gelu" => Unary::GeluErf,
        "gelu_new" | "gelu_pytorch_tanh" => Unary::Gelu,
        "relu" => Unary::Relu,
        found => return Err(keys.bad("hidden_act", format!("unsupported value `{found}`; expected gelu, gelu_new or relu"))),
    };
    let positions = need("max_position_embeddings")?;
    let limits = folder.join("sentence_bert_config.json");
    let limit = match limits.is_file() {
        true => {
            let (shown, limits) = (limits.display().to_string(), json::read(&limits)?);
            Keys::new(&shown, limits.as_object().into_iter().collect()).usize("max_seq_length")?
        }
        false => None,
    };
    let (pooling, normalize) = modules(folder)?;
    let config = EncoderConfig {
        vocab: need("vocab_size")?,
        hidden: need("hidden_size")?,
        layers: need("num_hidden_layers")?,
        heads: need("num_attention_heads")?,
        feed_forward: need("intermediate_size")?,
        context: limit.unwrap_or(positions).min(positions),
        positions,
        token_types: keys.usize("type_vocab_size")?.unwrap_or(2),
        norm_eps: keys.f64("layer_norm_eps")?.unwrap_or(1e-12) as f32,
        activation,
        pooling,
        normalize,
    };
    checked(config, |key, reason| keys.bad(key, reason))
}

/// Pooling, and whether embeddings are normalized, of sentence-transformers' `modules.json`; without that file, the normalized mean.
fn modules(folder: &Path) -> Result<(EncoderPooling, bool)> {
    let path = folder.join("modules.json");
    let (mut pooling, mut normalize) = (EncoderPooling::Mean, false);
    if !path.is_file() {
        return Ok((pooling, true));
    }
    let (shown, modules) = (path.display().to_string(), json::read(&path)?);
    let bad = |reason: String| bad_key(&shown, "modules", reason);
    for module in modules.as_array().ok_or_else(|| bad("expected an array".to_owned()))? {
        let kind = module["type"].as_str().unwrap_or("none");
        match kind.rsplit('.').next() {
            Some("Transformer") => {}
            Some("Normalize") => normalize = true,
            Some("Pooling") => {
                let name = module["path"].as_str().unwrap_or("");
                // The list must not refer to files outside the folder.
                if Path::new(name).file_name() != Some(name.as_ref()) {
                    return Err(bad(format!("`{name}` is not a plain directory name (no path separators allowed)")));
                }
                pooling = pooling_of(&folder.join(name).join("config.json"))?;
            }
            _ => return Err(bad(format!("unsupported module `{kind}`; expected Transformer, Pooling and Normalize"))),
        }
    }
    Ok((pooling, normalize))
}

fn pooling_of(path: &Path) -> Result<EncoderPooling> {
    let (shown, config) = (path.display().to_string(), json::read(path)?);
    let modes: Vec<&str> =
        config.as_object().into_iter().flatten().filter(|(_, on)| **on == Json::Bool(true)).map(|(key, _)| &**key).collect();
    let modes: Vec<&str> = modes.into_iter().filter(|key| key.starts_with("pooling_mode_")).collect();
    match modes[..] {
        ["pooling_mode_mean_tokens"] => Ok(EncoderPooling::Mean),
        ["pooling_mode_cls_token"] => Ok(EncoderPooling::Cls),
        _ => Err(bad_key(&shown, "pooling_mode", format!("expected mean_tokens or cls_token alone, got {modes:?}"))),
    }
}

fn gguf_config(file: &Gguf) -> Result<EncoderConfig> {
    let bad = |key: &str, reason: String| bad_key(file.path(), key, reason);
    let architecture = file.need_str("general.architecture")?;
    if architecture != "bert" {
        return Err(bad("general.architecture", format!("unsupported value `{architecture}`; expected bert")));
    }
    let need = |key: &str| -> Result<usize> {
        let number = file.need_u64(&format!("bert.{key}"))?;
        usize::try_from(number).map_err(|_| bad(key, format!("{number} is too large")))
    };
    let rows = |name: &str| match file.tensor(name).map(|tensor| tensor.shape) {
        Some(&[rows, _]) => Ok(rows),
        _ => Err(bad_tensor(file.path(), name, "missing, or not a matrix")),
    };
    if file.get_bool("bert.attention.causal")? == Some(true) {
        return Err(bad("bert.attention.causal", "unsupported value true; expected false".to_owned()));
    }
    let pooling = match file.get_u64("bert.pooling_type")? {
        None | Some(0 | 1) => EncoderPooling::Mean,
        Some(2) => EncoderPooling::Cls,
        Some(other) => return Err(bad("bert.pooling_type", format!("unsupported value {other}; expected 1 (mean) or 2 (CLS)"))),
    };
    let positions = rows("position_embd.weight")?;
    let config = EncoderConfig {
        vocab: rows("token_embd.weight")?,
        hidden: need("embedding_length")?,
        layers: need("block_count")?,
        heads: need("attention.head_count")?,
        feed_forward: need("feed_forward_length")?,
        context: need("context_length")?.min(positions),
        positions,
        token_types: rows("token_types.weight")?,
        norm_eps: file.need_f32("bert.attention.layer_norm_epsilon")?,
        activation: Unary::GeluErf,
        pooling,
        normalize: file.get_bool(NORMALIZE)?.unwrap_or(true),
    };
    checked(config, bad)
}
