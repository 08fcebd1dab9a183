//! Single files of real size: their sizes are read from the shapes alone. The files are sparse and the device only counts memory, so
//! nothing of that size is read or allocated.

use std::io::Write;
use std::path::Path;

use warpwave_diffusion::{Checkpoint, Family, LoadOptions, OpenOptions, Prediction};
use warpwave_kernels::DType;
use warpwave_tensor::Device;

/// Names and shapes of a checkpoint with original names, below a prefix.
struct Names<'a>(&'a mut Vec<(String, Vec<usize>)>, String);

impl Names<'_> {
    fn at(&mut self, name: impl AsRef<str>) -> Names<'_> {
        Names(self.0, format!("{}{}", self.1, name.as_ref()))
    }

    fn weight(&mut self, name: &str, shape: &[usize]) {
        self.0.push((format!("{}{name}.weight", self.1), shape.to_vec()));
    }

    /// A weight and its bias.
    fn both(&mut self, name: &str, shape: &[usize]) {
        self.weight(name, shape);
        self.0.push((format!("{}{name}.bias", self.1), vec![shape[0]]));
    }
}

struct Unet {
    depth: [usize; 4],
    mid: usize,
    multipliers: &'static [usize],
    cross: usize,
    added: Option<usize>,
    inputs: usize,
    /// Whether projections have two dimensions.
    linear: bool,
}

fn resnet(mut to: Names<'_>, inputs: usize, outputs: usize) {
    to.both("in_layers.0", &[inputs]);
    to.both("in_layers.2", &[outputs, inputs, 3, 3]);
    to.both("emb_layers.1", &[outputs, 1280]);
    to.both("out_layers.0", &[outputs]);
    to.both("out_layers.3", &[outputs, outputs, 3, 3]);
    if inputs != outputs {
        to.both("skip_connection", &[outputs, inputs, 1, 1]);
    }
}

fn transformer(mut to: Names<'_>, c: usize, unet: &Unet, depth: usize) {
    let projection: &[usize] = if unet.linear { &[c, c] } else { &[c, c, 1, 1] };
    to.both("norm", &[c]);
    to.both("proj_in", projection);
    to.both("proj_out", projection);
    for i in 0..depth {
        let mut to = to.at(format!("transformer_blocks.{i}."));
        for (attention, keys) in [("attn1", c), ("attn2", unet.cross)] {
            to.weight(&format!("{attention}.to_q"), &[c, c]);
            to.weight(&format!("{attention}.to_k"), &[c, keys]);
            to.weight(&format!("{attention}.to_v"), &[c, keys]);
            to.both(&format!("{attention}.to_out.0"), &[c, c]);
        }
        to.both("ff.net.0.proj", &[8 * c, c]);
        to.both("ff.net.2", &[c, 4 * c]);
        (1..=3).for_each(|norm| to.both(&format!("norm{norm}"), &[c]));
    }
}

fn unet(mut to: Names<'_>, unet: &Unet) {
    to.both("time_embed.0", &[1280, 320]);
    to.both("time_embed.2", &[1280, 1280]);
    if let Some(width) = unet.added {
        to.both("label_emb.0.0", &[1280, width]);
        to.both("label_emb.0.2", &[1280, 1280]);
    }
    to.both("input_blocks.0.0", &[320, unet.inputs, 3, 3]);
    let (mut skips, mut block, mut width) = (vec![320], 0, 320);
    for (level, multiplier) in unet.multipliers.iter().enumerate() {
        for _ in 0..2 {
            block += 1;
            resnet(to.at(format!("input_blocks.{block}.0.")), width, 320 * multiplier);
            width = 320 * multiplier;
            if unet.depth[level] > 0 {
                transformer(to.at(format!("input_blocks.{block}.1.")), width, unet, unet.depth[level]);
            }
            skips.push(width);
        }
        if level + 1 < unet.multipliers.len() {
            block += 1;
            to.both(&format!("input_blocks.{block}.0.op"), &[width, width, 3, 3]);
            skips.push(width);
        }
    }
    resnet(to.at("middle_block.0."), width, width);
    transformer(to.at("middle_block.1."), width, unet, unet.mid);
    resnet(to.at("middle_block.2."), width, width);
    block = 0;
    for (level, multiplier) in unet.multipliers.iter().enumerate().rev() {
        for i in 0..3 {
            resnet(to.at(format!("output_blocks.{block}.0.")), width + skips.pop().unwrap(), 320 * multiplier);
            width = 320 * multiplier;
            if unet.depth[level] > 0 {
                transformer(to.at(format!("output_blocks.{block}.1.")), width, unet, unet.depth[level]);
            }
            if i == 2 && level > 0 {
                let at = if unet.depth[level] > 0 { 2 } else { 1 };
                to.both(&format!("output_blocks.{block}.{at}.conv"), &[width, width, 3, 3]);
            }
            block += 1;
        }
    }
    to.both("out.0", &[320]);
    to.both("out.2", &[4, 320, 3, 3]);
}

fn autoencoder(mut to: Names<'_>) {
    let block = |mut to: Names<'_>, inputs: usize, outputs: usize| {
        to.both("norm1", &[inputs]);
        to.both("conv1", &[outputs, inputs, 3, 3]);
        to.both("norm2", &[outputs]);
        to.both("conv2", &[outputs, outputs, 3, 3]);
        if inputs != outputs {
            to.both("nin_shortcut", &[outputs, inputs, 1, 1]);
        }
    };
    for half in ["encoder.", "decoder."] {
        let mut to = to.at(half);
        block(to.at("mid.block_1."), 512, 512);
        block(to.at("mid.block_2."), 512, 512);
        to.both("mid.attn_1.norm", &[512]);
        ["q", "k", "v", "proj_out"].iter().for_each(|name| to.both(&format!("mid.attn_1.{name}"), &[512, 512, 1, 1]));
    }
    let (mut encoder, mut width) = (to.at("encoder."), 128);
    encoder.both("conv_in", &[128, 3, 3, 3]);
    for (level, channels) in [128, 256, 512, 512].into_iter().enumerate() {
        for i in 0..2 {
            block(encoder.at(format!("down.{level}.block.{i}.")), width, channels);
            width = channels;
        }
        if level < 3 {
            encoder.both(&format!("down.{level}.downsample.conv"), &[width, width, 3, 3]);
        }
    }
    encoder.both("norm_out", &[512]);
    encoder.both("conv_out", &[8, 512, 3, 3]);
    let mut decoder = to.at("decoder.");
    decoder.both("conv_in", &[512, 4, 3, 3]);
    for (level, channels) in [128, 256, 512, 512].into_iter().enumerate().rev() {
        for i in 0..3 {
            block(decoder.at(format!("up.{level}.block.{i}.")), width, channels);
            width = channels;
        }
        if level > 0 {
            decoder.both(&format!("up.{level}.upsample.conv"), &[width, width, 3, 3]);
        }
    }
    decoder.both("norm_out", &[128]);
    decoder.both("conv_out", &[3, 128, 3, 3]);
    to.both("quant_conv", &[8, 8, 1, 1]);
    to.both("post_quant_conv", &[4, 4, 1, 1]);
}

fn clip(mut to: Names<'_>) {
    to.weight("embeddings.token_embedding", &[49408, 768]);
    to.weight("embeddings.position_embedding", &[77, 768]);
    for i in 0..12 {
        let mut to = to.at(format!("encoder.layers.{i}."));
        ["q_proj", "k_proj", "v_proj", "out_proj"].iter().for_each(|name| to.both(&format!("self_attn.{name}"), &[768, 768]));
        to.both("mlp.fc1", &[3072, 768]);
        to.both("mlp.fc2", &[768, 3072]);
        ["layer_norm1", "layer_norm2"].iter().for_each(|name| to.both(name, &[768]));
    }
    to.both("final_layer_norm", &[768]);
}

fn open_clip(mut to: Names<'_>, width: usize, layers: usize, projection: bool) {
    to.weight("token_embedding", &[49408, width]);
    to.0.push((format!("{}positional_embedding", to.1), vec![77, width]));
    for i in 0..layers {
        let mut to = to.at(format!("transformer.resblocks.{i}."));
        to.0.push((format!("{}attn.in_proj_weight", to.1), vec![3 * width, width]));
        to.0.push((format!("{}attn.in_proj_bias", to.1), vec![3 * width]));
        to.both("attn.out_proj", &[width, width]);
        to.both("mlp.c_fc", &[4 * width, width]);
        to.both("mlp.c_proj", &[width, 4 * width]);
        ["ln_1", "ln_2"].iter().for_each(|name| to.both(name, &[width]));
    }
    to.both("ln_final", &[width]);
    if projection {
        to.0.push((format!("{}text_projection", to.1), vec![width, width]));
    }
}

/// Writes a sparse file of f16 zeros.
fn write(path: &Path, tensors: &[(String, Vec<usize>)]) {
    let mut offset = 0;
    let mut header = serde_json::Map::new();
    for (name, shape) in tensors {
        let end = offset + 2 * shape.iter().product::<usize>();
        let entry = serde_json::json!({"dtype": "F16", "shape": shape, "data_offsets": [offset, end]});
        assert!(header.insert(name.clone(), entry).is_none(), "{name} twice");
        offset = end;
    }
    let mut text = serde_json::to_vec(&header).unwrap();
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut file = std::fs::File::create(path).unwrap();
    file.write_all(&(text.len() as u64).to_le_bytes()).unwrap();
    file.write_all(&text).unwrap();
    file.set_len((8 + text.len() + offset) as u64).unwrap();
}

/// Opens a file of these tensors, and loads it; returns the facts and the bytes of all weights in `f32`.
fn loaded(tensors: &[(String, Vec<usize>)]) -> (warpwave_diffusion::ModelInfo, u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    write(&path, tensors);
    let checkpoint = Checkpoint::open(&path).unwrap();
    let device = Device::meta(&Device::Cpu);
    let model = checkpoint.load(&device, LoadOptions { dtype: Some(DType::F32), ..LoadOptions::default() }).unwrap();
    let Device::Meta(meta) = &device else { panic!("not a meta device") };
    let bytes = meta.memory().current;
    drop(model);
    (checkpoint.info().clone(), bytes)
}

/// Published numbers of parameters.
const UNET_1: u64 = 859_520_964;
const UNET_XL: u64 = 2_567_463_684;
const AUTOENCODER: u64 = 83_653_863;
const CLIP_L: u64 = 123_060_480;
const CLIP_G: u64 = 694_659_840;
/// What 5 more input channels add.
const INPAINT: u64 = 5 * 320 * 9;

#[test]
fn version_1_is_read_from_its_shapes() {
    for (inputs, inpaint) in [(4, false), (9, true)] {
        let mut all = Vec::new();
        let sizes = Unet { depth: [1, 1, 1, 0], mid: 1, multipliers: &[1, 2, 4, 4], cross: 768, added: None, inputs, linear: false };
        unet(Names(&mut all, "model.diffusion_model.".into()), &sizes);
        autoencoder(Names(&mut all, "first_stage_model.".into()));
        clip(Names(&mut all, "cond_stage_model.transformer.text_model.".into()));
        all.push(("model_ema.decay".into(), vec![]));
        let (info, bytes) = loaded(&all);
        assert_eq!((info.family, info.prediction, info.inpaint, info.default_size), (Family::Sd1, Prediction::Epsilon, inpaint, 512));
        assert_eq!(info.parameters, UNET_1 + AUTOENCODER + CLIP_L + if inpaint { INPAINT } else { 0 });
        assert_eq!(bytes, 4 * info.parameters, "all weights are loaded, each once");
    }
}

#[test]
fn version_2_is_read_from_its_shapes() {
    let mut all = Vec::new();
    let sizes = Unet { depth: [1, 1, 1, 0], mid: 1, multipliers: &[1, 2, 4, 4], cross: 1024, added: None, inputs: 4, linear: true };
    unet(Names(&mut all, "model.diffusion_model.".into()), &sizes);
    autoencoder(Names(&mut all, "first_stage_model.".into()));
    open_clip(Names(&mut all, "cond_stage_model.model.".into()), 1024, 24, false);
    let (info, bytes) = loaded(&all);
    // Zeros: a bias without deviation means that noise is predicted.
    assert_eq!((info.family, info.prediction, info.inpaint), (Family::Sd2, Prediction::Epsilon, false));
    assert_eq!(info.text_encoders[0].pad, 0);
    // The last of the text encoder's layers is not used.
    let layer = 12 * 1024 * 1024 + 13 * 1024;
    assert_eq!(bytes, 4 * (info.parameters - layer));
}

#[test]
fn xl_is_read_from_its_shapes() {
    let mut all = Vec::new();
    let sizes = Unet { depth: [0, 2, 10, 0], mid: 10, multipliers: &[1, 2, 4], cross: 2048, added: Some(2816), inputs: 4, linear: true };
    unet(Names(&mut all, "model.diffusion_model.".into()), &sizes);
    autoencoder(Names(&mut all, "first_stage_model.".into()));
    clip(Names(&mut all, "conditioner.embedders.0.transformer.text_model.".into()));
    open_clip(Names(&mut all, "conditioner.embedders.1.model.".into()), 1280, 32, true);
    let (info, bytes) = loaded(&all);
    assert_eq!((info.family, info.prediction, info.default_size), (Family::Sdxl, Prediction::Epsilon, 1024));
    assert_eq!((info.vae_scaling, info.zeros_for_no_negative), (0.13025, true));
    assert_eq!(info.parameters, UNET_XL + AUTOENCODER + CLIP_L + CLIP_G);
    assert_eq!(bytes, 4 * info.parameters, "all weights are loaded, each once");
    let pads: Vec<u32> = info.text_encoders.iter().map(|text| text.pad).collect();
    assert_eq!(pads, [49407, 0]);
}

fn flux(mut to: Names<'_>, guidance: bool) {
    const WIDTH: usize = 3072;
    to.both("img_in", &[WIDTH, 64]);
    to.both("txt_in", &[WIDTH, 4096]);
    let embedders = [("time_in", 256), ("vector_in", 768), ("guidance_in", 256)];
    for (name, inputs) in &embedders[..if guidance { 3 } else { 2 }] {
        to.both(&format!("{name}.in_layer"), &[WIDTH, *inputs]);
        to.both(&format!("{name}.out_layer"), &[WIDTH, WIDTH]);
    }
    let norms = |to: &mut Names<'_>, name: &str| {
        for norm in ["query_norm", "key_norm"] {
            to.0.push((format!("{}{name}.{norm}.scale", to.1), vec![128]));
        }
    };
    for i in 0..19 {
        let mut to = to.at(format!("double_blocks.{i}."));
        for stream in ["img", "txt"] {
            to.both(&format!("{stream}_mod.lin"), &[6 * WIDTH, WIDTH]);
            to.both(&format!("{stream}_attn.qkv"), &[3 * WIDTH, WIDTH]);
            to.both(&format!("{stream}_attn.proj"), &[WIDTH, WIDTH]);
            to.both(&format!("{stream}_mlp.0"), &[4 * WIDTH, WIDTH]);
            to.both(&format!("{stream}_mlp.2"), &[WIDTH, 4 * WIDTH]);
            norms(&mut to, &format!("{stream}_attn.norm"));
        }
    }
    for i in 0..38 {
        let mut to = to.at(format!("single_blocks.{i}."));
        to.both("modulation.lin", &[3 * WIDTH, WIDTH]);
        to.both("linear1", &[7 * WIDTH, WIDTH]);
        to.both("linear2", &[WIDTH, 5 * WIDTH]);
        norms(&mut to, "norm");
    }
    to.both("final_layer.adaLN_modulation.1", &[2 * WIDTH, WIDTH]);
    to.both("final_layer.linear", &[64, WIDTH]);
}

#[test]
fn flux_is_read_from_its_shapes() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models/flux-dev");
    let folder = tempfile::tempdir().unwrap();
    // A base for the other networks, without a configuration of the transformer.
    for network in ["text_encoder", "text_encoder_2", "vae", "tokenizer", "tokenizer_2"] {
        std::fs::create_dir(folder.path().join(network)).unwrap();
        for file in std::fs::read_dir(fixture.join(network)).unwrap().map(Result::unwrap) {
            std::fs::write(folder.path().join(network).join(file.file_name()), std::fs::read(file.path()).unwrap()).unwrap();
        }
    }
    let options = OpenOptions { base: Some(folder.path().to_owned()), vae: None };
    let counts = [(Family::FluxDev, 11_901_408_320u64), (Family::FluxSchnell, 11_891_178_560)].map(|(family, parameters)| {
        let mut all = Vec::new();
        flux(Names(&mut all, String::new()), family == Family::FluxDev);
        let path = folder.path().join("model.safetensors");
        write(&path, &all);
        let info = Checkpoint::open_with(&path, &options).unwrap().info().clone();
        assert_eq!((info.family, info.prediction, info.size_multiple), (family, Prediction::Flow, 16));
        info.parameters - parameters
    });
    // What is left are the base's networks.
    let others = Checkpoint::open(&fixture).unwrap().info().parameters;
    assert!(counts[0] == counts[1] && counts[0] < others, "{counts:?}");
}
