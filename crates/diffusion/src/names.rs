//! The names of weights in original single files, from their names in the diffusers layout.

/// What is done with a stored tensor before use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transform {
    /// Nothing.
    None,
    /// Takes one of several equal parts of the rows: `(part, parts)`.
    Part(usize, usize),
    /// Takes rows from a start on; to the end without a count.
    Rows(usize, Option<usize>),
    /// Swaps rows and columns.
    Transposed,
    /// Swaps the first and the second half of the rows.
    SwapHalves,
}

/// How the tensors of a part are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// As in the diffusers layout.
    Diffusers,
    /// Original UNet with this many ResNets per level.
    Unet { layers: usize },
    /// Original autoencoder with this many levels.
    Vae { levels: usize },
    /// OpenCLIP's text encoder.
    OpenClip,
    /// Flux's transformer with this many channels.
    Flux { width: usize },
}

impl Naming {
    /// Returns the names under which a tensor may be stored, the most likely first.
    pub fn stored(self, name: &str) -> Vec<(String, Transform)> {
        match self {
            Naming::Diffusers => plain(name),
            Naming::Unet { layers } => unet(name, layers).into_iter().map(|name| (name, Transform::None)).collect(),
            Naming::Vae { levels } => vec![(vae(name, levels), Transform::None)],
            Naming::OpenClip => vec![open_clip(name)],
            Naming::Flux { width } => vec![flux(name, width)],
        }
    }
}

/// Replaces the first of the prefixes that fits.
fn replace_prefix(name: &str, table: &[(&str, &str)]) -> String {
    let found = table.iter().find_map(|(from, to)| Some(format!("{to}{}", name.strip_prefix(from)?)));
    found.unwrap_or_else(|| name.to_owned())
}

/// Old autoencoders name the attention differently.
fn plain(name: &str) -> Vec<(String, Transform)> {
    let mut names = vec![(name.to_owned(), Transform::None)];
    if let Some((front, end)) = name.split_once("mid_block.attentions.0.") {
        let old = replace_prefix(end, &[("to_q.", "query."), ("to_k.", "key."), ("to_v.", "value."), ("to_out.0.", "proj_attn.")]);
        names.push((format!("{front}mid_block.attentions.0.{old}"), Transform::None));
    }
    names
}

/// Splits `LIST.I.REST`.
fn indexed<'a>(name: &'a str, list: &str) -> Option<(usize, &'a str)> {
    let (index, rest) = name.strip_prefix(list)?.strip_prefix('.')?.split_once('.')?;
    Some((index.parse().ok()?, rest))
}

fn unet_resnet(rest: &str) -> String {
    replace_prefix(
        rest,
        &[
            ("norm1.", "in_layers.0."),
            ("conv1.", "in_layers.2."),
            ("time_emb_proj.", "emb_layers.1."),
            ("norm2.", "out_layers.0."),
            ("conv2.", "out_layers.3."),
            ("conv_shortcut.", "skip_connection."),
        ],
    )
}

fn unet(name: &str, layers: usize) -> Vec<String> {
    let stride = layers + 1;
    let block = |list: &str, first: usize, rest: &str| -> Option<String> {
        if let Some((j, rest)) = indexed(rest, "resnets") {
            return Some(format!("{list}.{}.0.{}", first + j, unet_resnet(rest)));
        }
        let (j, rest) = indexed(rest, "attentions")?;
        Some(format!("{list}.{}.1.{rest}", first + j))
    };
    if let Some((i, rest)) = indexed(name, "down_blocks") {
        if let Some(rest) = rest.strip_prefix("downsamplers.0.conv.") {
            return vec![format!("input_blocks.{}.0.op.{rest}", (i + 1) * stride)];
        }
        return block("input_blocks", 1 + i * stride, rest).into_iter().collect();
    }
    if let Some((i, rest)) = indexed(name, "up_blocks") {
        if let Some(rest) = rest.strip_prefix("upsamplers.0.conv.") {
            // After the attention where there is one.
            return [2, 1].map(|at| format!("output_blocks.{}.{at}.conv.{rest}", i * stride + layers)).to_vec();
        }
        return block("output_blocks", i * stride, rest).into_iter().collect();
    }
    if let Some(rest) = name.strip_prefix("mid_block.") {
        return match (indexed(rest, "resnets"), rest.strip_prefix("attentions.0.")) {
            (Some((j, rest)), _) => vec![format!("middle_block.{}.{}", 2 * j, unet_resnet(rest))],
            (None, Some(rest)) => vec![format!("middle_block.1.{rest}")],
            (None, None) => Vec::new(),
        };
    }
    vec![replace_prefix(
        name,
        &[
            ("conv_in.", "input_blocks.0.0."),
            ("time_embedding.linear_1.", "time_embed.0."),
            ("time_embedding.linear_2.", "time_embed.2."),
            ("add_embedding.linear_1.", "label_emb.0.0."),
            ("add_embedding.linear_2.", "label_emb.0.2."),
            ("conv_norm_out.", "out.0."),
            ("conv_out.", "out.2."),
        ],
    )]
}

fn vae(name: &str, levels: usize) -> String {
    let Some((half, rest)) = name.split_once('.').filter(|(half, _)| ["encoder", "decoder"].contains(half)) else {
        return name.to_owned();
    };
    let resnet = |rest: &str| replace_prefix(rest, &[("conv_shortcut.", "nin_shortcut.")]);
    let level = |list: &str, i: usize, rest: &str, sampler: &str, to: &str| match indexed(rest, "resnets") {
        Some((j, rest)) => format!("{list}.{i}.block.{j}.{}", resnet(rest)),
        None => format!("{list}.{i}.{}", replace_prefix(rest, &[(sampler, to)])),
    };
    let rest = if let Some((i, rest)) = indexed(rest, "down_blocks") {
        level("down", i, rest, "downsamplers.0.", "downsample.")
    } else if let Some((i, rest)) = indexed(rest, "up_blocks") {
        level("up", levels.saturating_sub(1 + i), rest, "upsamplers.0.", "upsample.")
    } else if let Some((j, rest)) = rest.strip_prefix("mid_block.").and_then(|rest| indexed(rest, "resnets")) {
        format!("mid.block_{}.{}", j + 1, resnet(rest))
    } else if let Some(rest) = rest.strip_prefix("mid_block.attentions.0.") {
        let table = [("group_norm.", "norm."), ("to_q.", "q."), ("to_k.", "k."), ("to_v.", "v."), ("to_out.0.", "proj_out.")];
        format!("mid.attn_1.{}", replace_prefix(rest, &table))
    } else {
        replace_prefix(rest, &[("conv_norm_out.", "norm_out.")])
    };
    format!("{half}.{rest}")
}

fn open_clip(name: &str) -> (String, Transform) {
    if name == "text_projection.weight" {
        return ("text_projection".to_owned(), Transform::Transposed);
    }
    let name = name.strip_prefix("text_model.").unwrap_or(name);
    let Some((i, rest)) = name.strip_prefix("encoder.").and_then(|name| indexed(name, "layers")) else {
        let table = [
            ("embeddings.token_embedding.", "token_embedding."),
            ("embeddings.position_embedding.weight", "positional_embedding"),
            ("final_layer_norm.", "ln_final."),
        ];
        return (replace_prefix(name, &table), Transform::None);
    };
    let block = format!("transformer.resblocks.{i}");
    for (part, projection) in ["q", "k", "v"].iter().enumerate() {
        if let Some(end) = rest.strip_prefix(&format!("self_attn.{projection}_proj.")) {
            return (format!("{block}.attn.in_proj_{end}"), Transform::Part(part, 3));
        }
    }
    let table = [
        ("layer_norm1.", "ln_1."),
        ("layer_norm2.", "ln_2."),
        ("self_attn.", "attn."),
        ("mlp.fc1.", "mlp.c_fc."),
        ("mlp.fc2.", "mlp.c_proj."),
    ];
    (format!("{block}.{}", replace_prefix(rest, &table)), Transform::None)
}

fn flux(name: &str, width: usize) -> (String, Transform) {
    if let Some((i, rest)) = indexed(name, "transformer_blocks") {
        return flux_double(&format!("double_blocks.{i}"), rest);
    }
    if let Some((i, rest)) = indexed(name, "single_transformer_blocks") {
        let block = format!("single_blocks.{i}");
        for (part, linear) in ["attn.to_q.", "attn.to_k.", "attn.to_v.", "proj_mlp."].iter().enumerate() {
            if let Some(end) = rest.strip_prefix(linear) {
                return (format!("{block}.linear1.{end}"), Transform::Rows(part * width, (part < 3).then_some(width)));
            }
        }
        let table = [
            ("norm.linear.", "modulation.lin."),
            ("attn.norm_q.weight", "norm.query_norm.scale"),
            ("attn.norm_k.weight", "norm.key_norm.scale"),
            ("proj_out.", "linear2."),
        ];
        return (format!("{block}.{}", replace_prefix(rest, &table)), Transform::None);
    }
    if let Some(end) = name.strip_prefix("norm_out.linear.") {
        // One has scale and shift, the other shift and scale.
        return (format!("final_layer.adaLN_modulation.1.{end}"), Transform::SwapHalves);
    }
    let embedders = [("timestep_embedder", "time_in"), ("guidance_embedder", "guidance_in"), ("text_embedder", "vector_in")];
    for (embedder, original) in embedders {
        if let Some(rest) = name.strip_prefix("time_text_embed.").and_then(|name| name.strip_prefix(embedder)) {
            let rest = replace_prefix(rest, &[(".linear_1.", ".in_layer."), (".linear_2.", ".out_layer.")]);
            return (format!("{original}{rest}"), Transform::None);
        }
    }
    let table = [("x_embedder.", "img_in."), ("context_embedder.", "txt_in."), ("proj_out.", "final_layer.linear.")];
    (replace_prefix(name, &table), Transform::None)
}

fn flux_double(block: &str, rest: &str) -> (String, Transform) {
    let projections = [
        ("attn.to_q.", "img_attn", 0),
        ("attn.to_k.", "img_attn", 1),
        ("attn.to_v.", "img_attn", 2),
        ("attn.add_q_proj.", "txt_attn", 0),
        ("attn.add_k_proj.", "txt_attn", 1),
        ("attn.add_v_proj.", "txt_attn", 2),
    ];
    for (from, to, part) in projections {
        if let Some(end) = rest.strip_prefix(from) {
            return (format!("{block}.{to}.qkv.{end}"), Transform::Part(part, 3));
        }
    }
    let table = [
        ("norm1.linear.", "img_mod.lin."),
        ("norm1_context.linear.", "txt_mod.lin."),
        ("attn.norm_q.weight", "img_attn.norm.query_norm.scale"),
        ("attn.norm_k.weight", "img_attn.norm.key_norm.scale"),
        ("attn.norm_added_q.weight", "txt_attn.norm.query_norm.scale"),
        ("attn.norm_added_k.weight", "txt_attn.norm.key_norm.scale"),
        ("attn.to_out.0.", "img_attn.proj."),
        ("attn.to_add_out.", "txt_attn.proj."),
        ("ff.net.0.proj.", "img_mlp.0."),
        ("ff.net.2.", "img_mlp.2."),
        ("ff_context.net.0.proj.", "txt_mlp.0."),
        ("ff_context.net.2.", "txt_mlp.2."),
    ];
    (format!("{block}.{}", replace_prefix(rest, &table)), Transform::None)
}
