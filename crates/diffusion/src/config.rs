//! The sizes of networks: from configuration files, or from the shapes of a single file's tensors.

use serde_json::json;

use crate::error::{Error, Result, bad_weight};
use crate::json::Config;
use crate::weights::Part;

/// A UNet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UnetConfig {
    pub in_channels: usize,
    pub out_channels: usize,
    /// Channels of each level, from full resolution down.
    pub channels: Vec<usize>,
    /// ResNets of a level on the way down; one more on the way up.
    pub layers: usize,
    /// Transformer blocks of each level on the way down; 0 without attention.
    pub depth: Vec<usize>,
    /// Transformer blocks in the middle.
    pub mid_depth: usize,
    /// Attention heads of each level.
    pub heads: Vec<usize>,
    /// Width of the text.
    pub cross: usize,
    pub groups: usize,
    pub eps: f32,
    /// Whether the transformers' projections are linear layers instead of 1 × 1 convolutions.
    pub linear_projection: bool,
    /// XL: sinusoids of each size, and the width of pooled text and sinusoids.
    pub added: Option<(usize, usize)>,
}

impl UnetConfig {
    pub fn read(config: &Config) -> Result<UnetConfig> {
        for (key, supported) in [
            ("act_fn", json!("silu")),
            ("mid_block_type", json!("UNetMidBlock2DCrossAttn")),
            ("class_embed_type", json!(null)),
            ("num_class_embeds", json!(null)),
            ("encoder_hid_dim_type", json!(null)),
            ("time_cond_proj_dim", json!(null)),
            ("dual_cross_attention", json!(false)),
            ("only_cross_attention", json!(false)),
            ("center_input_sample", json!(false)),
            ("resnet_time_scale_shift", json!("default")),
            ("time_embedding_type", json!("positional")),
            ("attention_type", json!("default")),
            ("conv_in_kernel", json!(3)),
            ("conv_out_kernel", json!(3)),
            ("downsample_padding", json!(1)),
        ] {
            config.expect(key, &supported)?;
        }
        let channels = config.sizes("block_out_channels")?;
        let levels = channels.len();
        let blocks = config.strings("down_block_types")?;
        let up = config.strings("up_block_types")?;
        if blocks.len() != levels || up.len() != levels {
            let found = [blocks.len(), up.len()];
            return Err(config.bad("down_block_types", format!("expected {levels} block types each for down and up blocks, got {found:?}")));
        }
        let layers = config.size_or("layers_per_block", 2)?;
        if layers > 64 {
            return Err(config.bad("layers_per_block", format!("expected at most 64, got {layers}")));
        }
        let depths = config.size_per_level("transformer_layers_per_block", levels, 1)?;
        let mut depth = Vec::new();
        for (level, (down, up)) in blocks.iter().zip(up.iter().rev()).enumerate() {
            depth.push(match (*down, *up) {
                ("CrossAttnDownBlock2D", "CrossAttnUpBlock2D") => depths[level],
                ("DownBlock2D", "UpBlock2D") => 0,
                _ => return Err(config.bad("down_block_types", format!("unsupported block types of a level: {down} and {up}"))),
            });
        }
        // Named after the size of a head, but their number in all known files.
        let key = if config.get("num_attention_heads").is_some() { "num_attention_heads" } else { "attention_head_dim" };
        let heads = config.size_per_level(key, levels, 8)?;
        let added = match config.string("addition_embed_type")? {
            None => None,
            Some("text_time") => Some((config.size("addition_time_embed_dim")?, config.size("projection_class_embeddings_input_dim")?)),
            Some(other) => return Err(config.bad("addition_embed_type", format!("unsupported value `{other}`; expected `text_time`"))),
        };
        if let Some((sinusoids, width)) = added
            && (!sinusoids.is_multiple_of(2) || sinusoids.checked_mul(6).is_none_or(|all| all >= width))
        {
            let reason = format!("expected an even number less than {width} / 6, got {sinusoids}");
            return Err(config.bad("addition_time_embed_dim", reason));
        }
        let this = UnetConfig {
            in_channels: config.size("in_channels")?,
            out_channels: config.size_or("out_channels", 4)?,
            layers,
            mid_depth: depths[levels - 1],
            depth,
            heads,
            cross: config.size("cross_attention_dim")?,
            groups: config.size_or("norm_num_groups", 32)?,
            eps: config.number("norm_eps", 1e-5)? as f32,
            linear_projection: config.flag("use_linear_projection", false)?,
            added,
            channels,
        };
        this.check().map_err(|(key, reason)| config.bad(key, reason))?;
        Ok(this)
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        for (channels, heads) in self.channels.iter().zip(&self.heads) {
            if !channels.is_multiple_of(self.groups) {
                return Err(("norm_num_groups", format!("{channels} channels cannot be split into {} groups", self.groups)));
            }
            if !channels.is_multiple_of(*heads) {
                return Err(("attention_head_dim", format!("{channels} channels cannot be split into {heads} heads")));
            }
        }
        if !self.channels[0].is_multiple_of(2) {
            return Err(("block_out_channels", format!("the first entry must be even, got {}", self.channels[0])));
        }
        Ok(())
    }

    /// Reads the sizes of a single file's UNet.
    pub fn infer(part: &Part) -> Result<UnetConfig> {
        let shape = |name: &str| part.shape(name);
        let conv_in = shape("conv_in.weight")?;
        let [_, in_channels, ..] = conv_in[..] else { return Err(bad_weight(part.path(), "conv_in.weight", "expected 4 dimensions")) };
        let original = |name: String| part.file_has(&name);
        // `input_blocks` of level i are the ResNets and then the downsampling.
        let op = (1..64).find(|i| original(format!("input_blocks.{i}.0.op.weight")));
        let stride = op.ok_or_else(|| bad_weight(part.path(), "input_blocks.3.0.op.weight", "missing tensor"))?;
        let mut levels = 1;
        while levels < 16 && original(format!("input_blocks.{}.0.op.weight", levels * stride)) {
            levels += 1;
        }
        let (mut channels, mut depth) = (Vec::new(), Vec::new());
        let mut cross = None;
        for level in 0..levels {
            let block = format!("down_blocks.{level}");
            channels.push(shape(&format!("{block}.resnets.0.conv2.weight"))?[0]);
            let found = blocks_of(part, &format!("{block}.attentions.0"));
            if found > 0 {
                let keys = shape(&format!("{block}.attentions.0.transformer_blocks.0.attn2.to_k.weight"))?;
                cross = keys.get(1).copied();
            }
            depth.push(found);
        }
        let cross = cross.ok_or_else(|| bad_weight(part.path(), "input_blocks", "no cross attention found"))?;
        let added = match part.find("add_embedding.linear_1.weight") {
            true => Some((256, *shape("add_embedding.linear_1.weight")?.get(1).unwrap_or(&0))),
            false => None,
        };
        // Versions 2 and XL have heads of 64, version 1 has 8 of them.
        let heads = channels.iter().map(|channels| if cross == 768 { 8 } else { (channels / 64).max(1) }).collect();
        let projection = shape("mid_block.attentions.0.proj_in.weight")?;
        let this = UnetConfig {
            in_channels,
            out_channels: shape("conv_out.weight")?[0],
            layers: stride - 1,
            mid_depth: blocks_of(part, "mid_block.attentions.0"),
            depth,
            heads,
            cross,
            groups: 32,
            eps: 1e-5,
            linear_projection: projection.len() == 2,
            added,
            channels,
        };
        this.check().map_err(|(key, reason)| bad_weight(part.path(), key, reason))?;
        Ok(this)
    }
}

/// The number of transformer blocks below a name.
fn blocks_of(part: &Part, attention: &str) -> usize {
    (0..64).take_while(|i| part.find(&format!("{attention}.transformer_blocks.{i}.norm1.weight"))).count()
}

/// An autoencoder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct VaeConfig {
    pub latent_channels: usize,
    pub channels: Vec<usize>,
    pub layers: usize,
    pub groups: usize,
    pub quant_convs: bool,
    pub scaling: f64,
    pub shift: f64,
    /// Whether it overflows in `f16`.
    pub upcast: bool,
}

impl VaeConfig {
    pub fn read(config: &Config) -> Result<VaeConfig> {
        for (key, supported) in [
            ("_class_name", json!("AutoencoderKL")),
            ("act_fn", json!("silu")),
            ("mid_block_add_attention", json!(true)),
            ("in_channels", json!(3)),
            ("out_channels", json!(3)),
            ("latents_mean", json!(null)),
            ("latents_std", json!(null)),
        ] {
            config.expect(key, &supported)?;
        }
        let channels = config.sizes("block_out_channels")?;
        let groups = config.size_or("norm_num_groups", 32)?;
        if let Some(found) = channels.iter().find(|channels| !channels.is_multiple_of(groups)) {
            return Err(config.bad("norm_num_groups", format!("{found} channels cannot be split into {groups} groups")));
        }
        let quant_convs = config.flag("use_quant_conv", true)?;
        config.expect("use_post_quant_conv", &json!(quant_convs))?;
        let layers = config.size_or("layers_per_block", 2)?;
        if layers > 64 {
            return Err(config.bad("layers_per_block", format!("expected at most 64, got {layers}")));
        }
        Ok(VaeConfig {
            latent_channels: config.size_or("latent_channels", 4)?,
            channels,
            layers,
            groups,
            quant_convs,
            scaling: config.number("scaling_factor", 0.18215)?,
            shift: config.number("shift_factor", 0.0)?,
            upcast: config.flag("force_upcast", true)?,
        })
    }

    /// Reads the sizes of an autoencoder with original names; `scaling` and `shift` are those of the family.
    pub fn infer(part: &Part, scaling: f64, shift: f64) -> Result<VaeConfig> {
        let levels = (0..16).take_while(|i| part.find(&format!("encoder.down_blocks.{i}.resnets.0.conv1.weight"))).count();
        let level = |i: usize| Ok(part.shape(&format!("encoder.down_blocks.{i}.resnets.0.conv2.weight"))?[0]);
        let channels = (0..levels).map(level).collect::<Result<Vec<_>>>()?;
        let layers = (0..64).take_while(|i| part.find(&format!("encoder.down_blocks.0.resnets.{i}.conv1.weight"))).count();
        let conv_in = part.shape("decoder.conv_in.weight")?;
        let latent_channels = *conv_in.get(1).unwrap_or(&0);
        if channels.is_empty() || channels.iter().any(|channels| !channels.is_multiple_of(32)) {
            let reason = format!("expected multiples of 32 channels, got {channels:?}");
            return Err(bad_weight(part.path(), "encoder.down", reason));
        }
        let quant_convs = part.find("quant_conv.weight");
        Ok(VaeConfig { latent_channels, channels, layers, groups: 32, quant_convs, scaling, shift, upcast: true })
    }
}

/// The activation of CLIP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClipActivation {
    /// x · sigmoid(1.702 x).
    QuickGelu,
    /// By the error function.
    Gelu,
}

/// A CLIP text encoder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClipConfig {
    pub vocab: usize,
    pub width: usize,
    pub layers: usize,
    pub heads: usize,
    pub feed_forward: usize,
    pub positions: usize,
    pub activation: ClipActivation,
    pub eps: f32,
    /// The id whose position is pooled; `None` takes the largest id.
    pub eos: Option<u32>,
    pub projection: Option<usize>,
}

impl ClipConfig {
    pub fn read(config: &Config) -> Result<ClipConfig> {
        let activation = match config.string("hidden_act")? {
            None | Some("quick_gelu") => ClipActivation::QuickGelu,
            Some("gelu") => ClipActivation::Gelu,
            Some(other) => return Err(config.bad("hidden_act", format!("unsupported value `{other}`; expected `quick_gelu` or `gelu`"))),
        };
        let eos = config.get("eos_token_id").and_then(serde_json::Value::as_u64).and_then(|id| u32::try_from(id).ok());
        let projected = config.get("architectures").is_some_and(|names| names.to_string().contains("WithProjection"));
        let this = ClipConfig {
            vocab: config.size("vocab_size")?,
            width: config.size("hidden_size")?,
            layers: config.size("num_hidden_layers")?,
            heads: config.size("num_attention_heads")?,
            feed_forward: config.size("intermediate_size")?,
            positions: config.size_or("max_position_embeddings", 77)?,
            activation,
            eps: config.number("layer_norm_eps", 1e-5)? as f32,
            // Published files say 2, which no text contains; the library then takes the largest id.
            eos: eos.filter(|eos| *eos != 2),
            projection: if projected { Some(config.size("projection_dim")?) } else { None },
        };
        if this.layers > 256 {
            return Err(config.bad("num_hidden_layers", format!("expected at most 256, got {}", this.layers)));
        }
        if !this.width.is_multiple_of(this.heads) {
            return Err(config.bad("num_attention_heads", format!("{} channels cannot be split into {} heads", this.width, this.heads)));
        }
        Ok(this)
    }

    /// Reads the sizes of a single file's text encoder. `unused` last layers are left out.
    pub fn infer(part: &Part, unused: usize) -> Result<ClipConfig> {
        let tokens = part.shape("text_model.embeddings.token_embedding.weight")?;
        let positions = part.shape("text_model.embeddings.position_embedding.weight")?;
        let [vocab, width] = tokens[..] else { return Err(bad_weight(part.path(), "token_embedding.weight", "expected 2 dimensions")) };
        let layer = |i: &usize| part.find(&format!("text_model.encoder.layers.{i}.layer_norm1.weight"));
        let layers = (0..256).take_while(layer).count().saturating_sub(unused);
        let feed_forward = part.shape("text_model.encoder.layers.0.mlp.fc1.weight")?[0];
        let projection = match part.find("text_projection.weight") {
            true => Some(part.shape("text_projection.weight")?[0]),
            false => None,
        };
        if layers == 0 || width < 64 || !width.is_multiple_of(64) {
            let reason = format!("expected at least 1 layer and a multiple of 64 channels, got {layers} and {width}");
            return Err(bad_weight(part.path(), "token_embedding.weight", reason));
        }
        Ok(ClipConfig {
            vocab,
            width,
            layers,
            heads: width / 64,
            feed_forward,
            positions: positions[0],
            activation: if width == 768 { ClipActivation::QuickGelu } else { ClipActivation::Gelu },
            eps: 1e-5,
            eos: None,
            projection,
        })
    }
}

/// A T5 encoder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct T5Config {
    pub vocab: usize,
    pub width: usize,
    pub head_dim: usize,
    pub heads: usize,
    pub layers: usize,
    pub feed_forward: usize,
    pub buckets: usize,
    pub max_distance: usize,
    pub eps: f32,
}

impl T5Config {
    pub fn read(config: &Config) -> Result<T5Config> {
        config.expect("feed_forward_proj", &json!("gated-gelu"))?;
        let this = T5Config {
            vocab: config.size("vocab_size")?,
            width: config.size("d_model")?,
            head_dim: config.size("d_kv")?,
            heads: config.size("num_heads")?,
            layers: config.size("num_layers")?,
            feed_forward: config.size("d_ff")?,
            buckets: config.size_or("relative_attention_num_buckets", 32)?,
            max_distance: config.size_or("relative_attention_max_distance", 128)?,
            eps: config.number("layer_norm_epsilon", 1e-6)? as f32,
        };
        if this.layers > 256 {
            return Err(config.bad("num_layers", format!("expected at most 256, got {}", this.layers)));
        }
        if this.buckets < 4 || !this.buckets.is_multiple_of(4) || this.max_distance <= this.buckets / 4 {
            let reason = format!("expected a multiple of 4 that is less than 4 · {}, got {}", this.max_distance, this.buckets);
            return Err(config.bad("relative_attention_num_buckets", reason));
        }
        Ok(this)
    }
}

/// Flux's transformer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FluxConfig {
    /// Channels of a 2 × 2 patch.
    pub in_channels: usize,
    pub heads: usize,
    pub head_dim: usize,
    /// Elements of a head for each position axis.
    pub axes: Vec<usize>,
    pub double_blocks: usize,
    pub single_blocks: usize,
    pub feed_forward: usize,
    /// Width of the text and of the pooled text.
    pub text: usize,
    pub pooled: usize,
    pub guidance: bool,
}

impl FluxConfig {
    /// Channels of the hidden state.
    pub fn width(&self) -> usize {
        self.heads * self.head_dim
    }

    pub fn read(config: &Config) -> Result<FluxConfig> {
        config.expect("patch_size", &json!(1))?;
        let in_channels = config.size("in_channels")?;
        config.expect("out_channels", &json!(in_channels))?;
        let (heads, head_dim) = (config.size("num_attention_heads")?, config.size("attention_head_dim")?);
        let axes = if config.get("axes_dims_rope").is_some() { config.sizes("axes_dims_rope")? } else { vec![16, 56, 56] };
        let this = FluxConfig {
            in_channels,
            heads,
            head_dim,
            axes,
            double_blocks: config.size("num_layers")?,
            single_blocks: config.size("num_single_layers")?,
            feed_forward: heads.saturating_mul(head_dim).saturating_mul(4),
            text: config.size("joint_attention_dim")?,
            pooled: config.size("pooled_projection_dim")?,
            guidance: config.flag("guidance_embeds", false)?,
        };
        this.check().map_err(|(key, reason)| config.bad(key, reason))?;
        Ok(this)
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        if self.axes.len() != 3 || self.axes.iter().any(|axis| axis % 2 != 0) || self.axes.iter().sum::<usize>() != self.head_dim {
            let reason = format!("expected three even sizes that add up to {}, got {:?}", self.head_dim, self.axes);
            return Err(("axes_dims_rope", reason));
        }
        if !self.in_channels.is_multiple_of(4) {
            return Err(("in_channels", format!("expected a multiple of 4, got {}", self.in_channels)));
        }
        if self.double_blocks.max(self.single_blocks) > 1024 {
            return Err(("num_layers", format!("expected at most 1024, got {}", self.double_blocks.max(self.single_blocks))));
        }
        Ok(())
    }

    /// Reads the sizes of a single file's transformer.
    pub fn infer(part: &Part) -> Result<FluxConfig> {
        let pair = |name: &str| match part.shape(name)?[..] {
            [rows, columns] => Ok((rows, columns)),
            ref found => Err(bad_weight(part.path(), name, format!("expected 2 dimensions, got {found:?}"))),
        };
        let (width, in_channels) = pair("x_embedder.weight")?;
        let head_dim = part.shape("transformer_blocks.0.attn.norm_q.weight")?[0];
        let count = |list: &str| (0..1024).take_while(|i| part.find(&format!("{list}.{i}.attn.norm_q.weight"))).count();
        let axes = if head_dim == 128 { vec![16, 56, 56] } else { Vec::new() };
        if head_dim == 0 || !width.is_multiple_of(head_dim) {
            return Err(bad_weight(part.path(), "img_in.weight", format!("{width} channels cannot be split into heads of {head_dim}")));
        }
        let this = FluxConfig {
            in_channels,
            heads: width / head_dim,
            head_dim,
            axes,
            double_blocks: count("transformer_blocks"),
            single_blocks: count("single_transformer_blocks"),
            feed_forward: pair("transformer_blocks.0.ff.net.0.proj.weight")?.0,
            text: pair("context_embedder.weight")?.1,
            pooled: pair("time_text_embed.text_embedder.linear_1.weight")?.1,
            guidance: part.find("time_text_embed.guidance_embedder.linear_1.weight"),
        };
        this.check().map_err(|(key, reason)| bad_weight(part.path(), key, reason))?;
        Ok(this)
    }
}

/// A preview autoencoder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TinyConfig {
    pub latent_channels: usize,
    pub encoder: TinyHalf,
    pub decoder: TinyHalf,
}

/// The way in or out of a preview autoencoder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TinyHalf {
    pub channels: usize,
    /// Blocks of each level.
    pub blocks: Vec<usize>,
}

impl TinyConfig {
    pub fn read(config: &Config) -> Result<TinyConfig> {
        for (key, supported) in [
            ("_class_name", json!("AutoencoderTiny")),
            ("act_fn", json!("relu")),
            ("in_channels", json!(3)),
            ("out_channels", json!(3)),
            ("latent_magnitude", json!(3)),
            ("latent_shift", json!(0.5)),
            ("upsampling_scaling_factor", json!(2)),
            ("upsample_fn", json!("nearest")),
        ] {
            config.expect(key, &supported)?;
        }
        let half = |channels_key: &str, blocks: &str| -> Result<TinyHalf> {
            let (channels, counts) = (config.sizes(channels_key)?, config.sizes(blocks)?);
            if channels.len() != counts.len() || channels.len() < 2 || counts.iter().any(|count| *count > 64) {
                return Err(config.bad(blocks, format!("expected {} numbers of at most 64, got {counts:?}", channels.len().max(2))));
            }
            if channels.iter().any(|found| *found != channels[0]) {
                return Err(config.bad(channels_key, format!("expected the same number of channels in all blocks, got {channels:?}")));
            }
            Ok(TinyHalf { channels: channels[0], blocks: counts })
        };
        Ok(TinyConfig {
            latent_channels: config.size_or("latent_channels", 4)?,
            encoder: half("encoder_block_out_channels", "num_encoder_blocks")?,
            decoder: half("decoder_block_out_channels", "num_decoder_blocks")?,
        })
    }
}

/// An error about a path that holds no model.
pub(crate) fn unknown(path: &str, reason: impl Into<String>) -> Error {
    Error::Unknown { path: path.to_owned(), reason: reason.into() }
}
