//! Files in all layouts, LoRA files, and damaged ones.

mod reference;

use std::path::Path;

use reference::{Expected, assert_close, assert_same_run, conditioning, device, euler, extra, folder, gap, load, tokens};
use warpwave_diffusion::{Checkpoint, Error, LoadOptions, Model, OpenOptions, TinyAutoencoder};
use warpwave_kernels::DType;
use warpwave_tensor::{Device, Tensor};
use warpwave_test_support::{Random, seed};

fn open(path: &Path, options: &OpenOptions) -> Model {
    Checkpoint::open_with(path, options)
        .unwrap()
        .load(&device(), LoadOptions { dtype: Some(DType::F32), ..LoadOptions::default() })
        .unwrap()
}

/// What all networks of a model compute: text, pooled text, denoiser, and both ways of the autoencoder.
fn outputs(name: &str, model: &Model) -> Vec<Vec<u32>> {
    let expected = Expected::of(name);
    let encoded = model.encode(&tokens(model, &expected, 0), 0).unwrap();
    let latent = if name.starts_with("flux") { "transformer/latent" } else { "unet/latent" };
    let denoised = model.denoise(&expected.get(latent), 0.8, &encoded, &extra(name, &expected)).unwrap();
    let (mean, logvar) = model.vae_encode(&expected.image(), None).unwrap();
    let decoded = model.vae_decode(&expected.get("vae/latent"), None).unwrap();
    let all = [Some(encoded.context), encoded.pooled, Some(denoised), Some(mean), Some(logvar), Some(decoded)];
    let bits = |x: Tensor| x.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect();
    all.into_iter().flatten().map(bits).collect()
}

#[test]
fn single_files_and_folders_are_the_same_model() {
    for name in ["sd15", "sd21", "sdxl"] {
        let (whole, single) = (load(name), folder(name).join("single_file.safetensors"));
        let base = OpenOptions { base: Some(folder(name)), vae: None };
        let opened = open(&single, &base);
        assert_eq!(outputs(name, &opened), outputs(name, &whole), "{name}");
        let (single, whole) = (opened.info(), whole.info());
        assert_eq!((single.family, single.prediction, single.inpaint), (whole.family, whole.prediction, whole.inpaint), "{name}");
        assert_eq!(single.text_encoders, whole.text_encoders, "{name}");
    }
}

#[test]
fn original_flux_and_autoencoder_files_are_the_same_model() {
    let name = "flux-dev";
    let options = OpenOptions { base: Some(folder(name)), vae: Some(folder(name).join("ae.safetensors")) };
    let opened = open(&folder(name).join("single_file.safetensors"), &options);
    assert_eq!(outputs(name, &opened), outputs(name, &load(name)));
    let vae = OpenOptions { base: None, vae: Some(folder("sdxl").join("vae")) };
    let other = open(&folder("sd15"), &vae);
    let expected = Expected::of("sdxl");
    assert_close(&other.vae_decode(&expected.get("vae/latent"), None).unwrap(), &expected.get("vae/decoded"), 5e-5, "other autoencoder");
    assert_eq!(other.info().vae_scaling, 0.13025);
}

#[test]
fn a_single_file_without_a_base_says_what_it_lacks() {
    let file = |name: &str| folder(name).join("single_file.safetensors");
    let text = Checkpoint::open(file("flux-dev")).unwrap_err().to_string();
    // The tiny model's heads are not Flux's, so its configuration is needed.
    assert!(text.contains("single_file.safetensors: tensor `axes_dims_rope`") || text.contains("base directory"), "{text}");
    let text = Checkpoint::open(file("sd15")).unwrap_err().to_string();
    assert!(text.contains("single_file.safetensors: tensor `norm_num_groups`: 8 channels cannot be split into 32 groups"), "{text}");
}

/// A copy of a model in a temporary folder.
fn copy(name: &str) -> tempfile::TempDir {
    fn copy_all(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
            if path.is_dir() { copy_all(&path, &to) } else { std::fs::write(&to, std::fs::read(&path).unwrap()).unwrap() }
        }
    }
    let to = tempfile::tempdir().unwrap();
    copy_all(&folder(name), to.path());
    to
}

#[test]
fn variants_and_mixed_types_are_the_same_model() {
    let model = copy("sd15");
    let unet = model.path().join("unet");
    std::fs::rename(unet.join("diffusion_pytorch_model.safetensors"), unet.join("diffusion_pytorch_model.fp16.safetensors")).unwrap();
    let text = model.path().join("text_encoder");
    let file = warpwave_weights::Safetensors::open(text.join("model.safetensors")).unwrap();
    // Every second tensor in f32: the same values.
    let tensors = file.tensors().enumerate().map(|(i, tensor)| {
        let x = Tensor::from_bytes(tensor.bytes, DType::F16, tensor.shape, &Device::Cpu).unwrap();
        (tensor.name.to_owned(), if i % 2 == 0 { x.cast(DType::F32).unwrap() } else { x })
    });
    let tensors: Vec<_> = tensors.collect();
    warpwave_tensor::safetensors::save(tensors.iter().map(|(name, x)| (name.as_str(), x)), text.join("mixed.safetensors")).unwrap();
    drop(file);
    std::fs::rename(text.join("mixed.safetensors"), text.join("model.safetensors")).unwrap();
    let opened = open(model.path(), &OpenOptions::default());
    assert_eq!(outputs("sd15", &opened), outputs("sd15", &load("sd15")));
}

#[test]
fn loras_change_text_and_denoiser_and_can_be_removed() {
    for (name, format, file) in [
        ("sd15", "diffusers", "lora_diffusers.safetensors"),
        ("sd15", "kohya", "lora_kohya.safetensors"),
        ("sdxl", "diffusers", "lora_diffusers.safetensors"),
        ("sdxl", "kohya", "lora_kohya.safetensors"),
    ] {
        let (mut model, expected) = (load(name), Expected::of(name));
        let before = outputs(name, &model);
        for strength in [1.0f32, 0.5] {
            model.set_loras(&[(folder(name).join(file), strength)]).unwrap();
            let text = model.encode(&tokens(&model, &expected, 0), 0).unwrap().context;
            let wanted = expected.get(&format!("lora/{format}/{strength:?}/text"));
            assert_close(&text, &wanted, 2e-5, &format!("{name} {format} {strength}"));
            assert!(gap(&text, &expected.get("text/prompt")) > 1e-2);
            let (guidance, leading) = if name == "sdxl" { (5.0, true) } else { (7.5, false) };
            let wanted = expected.get(&format!("lora/{format}/{strength:?}/final"));
            assert_same_run(&euler(name, &model, 8, guidance, leading), &wanted, &format!("{name} {format} {strength}"));
        }
        // Two of half the strength are one.
        let path = folder(name).join(file);
        model.set_loras(&[(&path, 0.5), (&path, 0.5)]).unwrap();
        let text = model.encode(&tokens(&model, &expected, 0), 0).unwrap().context;
        assert_close(&text, &expected.get(&format!("lora/{format}/1.0/text")), 2e-5, name);
        model.set_loras::<&Path>(&[]).unwrap();
        assert_eq!(outputs(name, &model), before, "{name} {format}");
    }
}

#[test]
fn a_lora_of_another_model_is_an_error_and_changes_nothing() {
    let mut model = load("sd15");
    let before = outputs("sd15", &model);
    for file in ["sdxl/lora_kohya.safetensors", "flux-dev/lora_diffusers.safetensors", "sd15/text_encoder/model.safetensors"] {
        let error = model.set_loras(&[(folder(file), 1.0)]).unwrap_err();
        assert!(matches!(&error, Error::Weight { path, .. } if path.ends_with(file)), "{error}");
    }
    assert!(model.set_loras(&[(folder("sd15/lora_kohya.safetensors"), f32::NAN)]).unwrap_err().to_string().contains("finite strength"));
    assert_eq!(outputs("sd15", &model), before);
}

#[test]
fn loras_of_flux_apply_to_folders_and_original_files() {
    let name = "flux-dev";
    let expected = Expected::of(name);
    let options = OpenOptions { base: Some(folder(name)), vae: None };
    let (mut whole, mut single) = (load(name), open(&folder(name).join("single_file.safetensors"), &options));
    let before = outputs(name, &whole);
    let lora = [(folder(name).join("lora_diffusers.safetensors"), 1.0)];
    whole.set_loras(&lora).unwrap();
    single.set_loras(&lora).unwrap();
    assert_eq!(outputs(name, &whole), outputs(name, &single));
    assert_ne!(outputs(name, &whole), before);
    // Euler with the changed weights, as the reference ran it: 6 steps of the shifted schedule.
    let mu = reference::case(name)["mu"].as_f64().unwrap();
    let shifted = |t: f64| mu.exp() / (mu.exp() + 1.0 / t - 1.0);
    let steps = 6;
    let mut sigmas: Vec<f64> = (0..steps).map(|i| shifted(1.0 + i as f64 / (steps - 1) as f64 * (1.0 / steps as f64 - 1.0))).collect();
    sigmas.push(0.0);
    let (mut x, conditioning) = (expected.get("noise/init"), conditioning(&expected, &device()));
    for pair in sigmas.windows(2) {
        let v = whole.denoise(&x, pair[0] as f32, &conditioning, &extra(name, &expected)).unwrap();
        x = (x + (v * (pair[1] - pair[0])).unwrap()).unwrap();
    }
    let [height, width] = [x.size(2), x.size(3)];
    let packed = x.reshape(&[1, 16, height / 2, 2, width / 2, 2]).unwrap().permute(&[0, 2, 4, 1, 3, 5]).unwrap();
    let packed = packed.reshape(&[1, height * width / 4, 64]).unwrap();
    let wanted = expected.get("lora/diffusers/1.0/final");
    let largest = wanted.to_vec::<f32>().unwrap().into_iter().fold(0.0, |max: f32, x| max.max(x.abs()));
    assert_close(&packed, &wanted, 2e-4 * largest, "six steps with a LoRA");
}

#[test]
fn the_preview_autoencoder_computes_what_the_reference_does() {
    let tiny = TinyAutoencoder::open(folder("taesd"), &device()).unwrap();
    let expected = Expected::of("taesd");
    assert_close(&tiny.decode(&expected.get("latent")).unwrap(), &expected.get("decoded"), 5e-5, "decoded preview");
    let image = expected.get("image").cast(DType::F32).unwrap().unsqueeze(0).unwrap().permute(&[0, 3, 1, 2]).unwrap();
    let image = ((image / 127.5).unwrap() - 1.0).unwrap();
    assert_close(&tiny.encode(&image).unwrap(), &expected.get("encoded"), 5e-5, "encoded preview");
}

#[test]
fn tiles_of_the_whole_image_are_the_image_and_smaller_ones_resemble_it() {
    let (model, expected) = (load("sd15"), Expected::of("sd15"));
    let latents = expected.get("vae/latent");
    let whole = model.vae_decode(&latents, None).unwrap();
    assert_eq!(gap(&model.vae_decode(&latents, Some(64)).unwrap(), &whole), 0.0);
    // A repeated latent: tiles see the same statistics everywhere but at their borders.
    let row = Tensor::cat(&vec![latents.clone(); 3], 3).unwrap();
    let large = Tensor::cat(&[row.clone(), row.narrow(3, 0, 24).unwrap()], 2).unwrap();
    let whole = model.vae_decode(&large, None).unwrap();
    let tiled = model.vae_decode(&large, Some(128)).unwrap();
    assert_eq!(tiled.shape(), [1, 3, 128, 192]);
    let (mean, logvar) = model.vae_encode(&whole.clamp(-1, 1).unwrap(), Some(128)).unwrap();
    assert_eq!((mean.shape(), logvar.shape()), (&[1, 4, 16, 24][..], &[1, 4, 16, 24][..]));
    let (whole_mean, _) = model.vae_encode(&whole.clamp(-1, 1).unwrap(), None).unwrap();
    for (tiled, whole) in [(tiled, whole), (mean, whole_mean)] {
        let energy = |x: &Tensor| x.sqr().unwrap().mean(&[0, 1, 2, 3]).unwrap().to_scalar::<f32>().unwrap();
        let error = energy(&(&tiled - &whole).unwrap()) / energy(&whole);
        assert!(error < 0.05, "relative energy of the difference: {error}");
    }
}

/// Edits a file of a copied model and returns the error of loading it.
fn broken(name: &str, file: &str, edit: impl FnOnce(Vec<u8>) -> Vec<u8>) -> String {
    let model = copy(name);
    let path = model.path().join(file);
    std::fs::write(&path, edit(std::fs::read(&path).unwrap())).unwrap();
    let loaded = Checkpoint::open(model.path()).and_then(|checkpoint| checkpoint.load(&Device::Cpu, LoadOptions::default()));
    loaded.expect_err("a damaged model must not load").to_string()
}

fn replaced(from: &str, to: &str) -> impl FnOnce(Vec<u8>) -> Vec<u8> {
    let (from, to) = (from.to_owned(), to.to_owned());
    move |bytes| {
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains(&from), "{from} is not in the file");
        text.replacen(&from, &to, 1).into_bytes()
    }
}

#[test]
fn damaged_files_are_errors_that_name_file_and_key() {
    let unet = "unet/diffusion_pytorch_model.safetensors";
    let text = broken("sd15", unet, |bytes| bytes[..bytes.len() - 100].to_vec());
    assert!(text.contains(unet) && text.contains("truncated"), "{text}");
    for length in [0, 7, 8, 100] {
        assert!(broken("sd15", unet, |bytes| bytes[..length].to_vec()).contains(unet));
    }
    let rename = |bytes: Vec<u8>| {
        let at = bytes.windows(15).position(|window| window == b"conv_out.weight").unwrap();
        [&bytes[..at], b"conv_owt.weight", &bytes[at + 15..]].concat()
    };
    let text = broken("sd15", unet, rename);
    assert!(text.ends_with("tensor `conv_out.weight`: missing tensor"), "{text}");
    let text = broken("sd15", "unet/config.json", replaced("\"cross_attention_dim\": 32", "\"cross_attention_dim\": 48"));
    assert!(text.contains("attn2.to_k.weight`: expected shape [8, 48], got [8, 32]"), "{text}");
    for (file, from, to, expected) in [
        (
            "unet/config.json",
            "\"norm_num_groups\": 8",
            "\"norm_num_groups\": 0",
            "`norm_num_groups`: expected a size from 1 to 1048576, got 0",
        ),
        (
            "unet/config.json",
            "\"layers_per_block\": 1",
            "\"layers_per_block\": 99999",
            "`layers_per_block`: expected at most 64, got 99999",
        ),
        ("unet/config.json", "\"in_channels\": 4", "\"in_channels\": 1e30", "`in_channels`: expected a size"),
        ("unet/config.json", "\"act_fn\": \"silu\"", "\"act_fn\": \"gelu\"", "`act_fn`: unsupported value \"gelu\"; expected \"silu\""),
        ("unet/config.json", "{", "[", "unet/config.json: `file`: invalid JSON"),
        ("text_encoder/config.json", "\"num_attention_heads\": 4", "\"num_attention_heads\": 5", "`num_attention_heads`: 32 channels"),
        (
            "text_encoder/config.json",
            "\"num_hidden_layers\": 3",
            "\"num_hidden_layers\": 4",
            "layers.3.layer_norm1.weight`: missing tensor",
        ),
        ("vae/config.json", "\"latent_channels\": 4", "\"latent_channels\": 5", "the denoiser has 4 input channels; expected 5"),
        ("tokenizer/merges.txt", "\n", "\nfoo\n", "merges.txt: line 2: expected two tokens of the vocabulary, got \"foo\""),
        ("tokenizer/vocab.json", "<|startoftext|>", "<|other|>", "`<|startoftext|>`: missing token"),
        (
            "scheduler/scheduler_config.json",
            "\"steps_offset\"",
            "\"prediction_type\": \"sample\", \"steps_offset\"",
            "`prediction_type`: unsupported",
        ),
        ("model_index.json", "UNet2DConditionModel", "Other", "`unet`: expected UNet2DConditionModel"),
    ] {
        let text = broken("sd15", file, replaced(from, to));
        assert!(text.contains(expected), "{file}: {text}");
    }
    let text = broken("flux-dev", "transformer/config.json", replaced("\"attention_head_dim\": 16", "\"attention_head_dim\": 12"));
    assert!(text.contains("`axes_dims_rope`: expected three even sizes that add up to 12, got [4, 6, 6]"), "{text}");
    let text = broken("flux-dev", "tokenizer_2/tokenizer.json", |bytes| bytes[..bytes.len() / 2].to_vec());
    assert!(text.contains("tokenizer_2/tokenizer.json"), "{text}");
    let model = copy("flux-dev");
    std::fs::remove_file(model.path().join("transformer/diffusion_pytorch_model-00002-of-00003.safetensors")).unwrap();
    let text = Checkpoint::open(model.path()).unwrap_err().to_string();
    assert!(text.contains("00002-of-00003.safetensors is missing"), "{text}");
    let empty = tempfile::tempdir().unwrap();
    let text = Checkpoint::open(empty.path()).unwrap_err().to_string();
    assert!(text.contains("no model_index.json found"), "{text}");
    let text = Checkpoint::open(folder("sd15/vae/diffusion_pytorch_model.safetensors")).unwrap_err().to_string();
    assert!(text.contains("not a known model"), "{text}");
    assert!(matches!(Checkpoint::open(empty.path().join("none.safetensors")), Err(Error::Weights(_))));
}

#[test]
fn quantized_flux_files_are_their_dequantized_weights() {
    use std::borrow::Cow;
    use warpwave_kernels::Quant;
    use warpwave_weights::{Kind, Safetensors, TensorInfo, write_gguf};
    let name = "flux-dev";
    let original = Safetensors::open(folder(name).join("single_file.safetensors")).unwrap();
    let files = tempfile::tempdir().unwrap();
    let (mut infos, mut data, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    for tensor in original.tensors() {
        let values = Tensor::from_bytes(tensor.bytes, DType::Bf16, tensor.shape, &Device::Cpu).unwrap().floats().unwrap();
        // As converters do: matrices of whole blocks, without the first layers' odd sizes.
        let quantized = tensor.shape.len() == 2 && tensor.shape[1] % 32 == 0;
        let (kind, bytes, values) = if quantized {
            let mut blocks = vec![0; Quant::Q8_0.row_bytes(values.len()).unwrap()];
            warpwave_tensor::cpu::quantize(Quant::Q8_0, &values, &mut blocks);
            let mut back = vec![0.0; values.len()];
            warpwave_tensor::cpu::dequantize(Quant::Q8_0, &blocks, &mut back);
            assert_ne!(back, values);
            (Kind::Quant(Quant::Q8_0), blocks, back)
        } else {
            (Kind::Plain(DType::F32), values.iter().flat_map(|x| x.to_le_bytes()).collect(), values)
        };
        infos.push(TensorInfo { name: tensor.name.to_owned(), kind, shape: tensor.shape.to_vec() });
        data.push(bytes);
        plain.push((tensor.name.to_owned(), Tensor::new(&values, tensor.shape, &Device::Cpu).unwrap()));
    }
    assert!(infos.iter().filter(|info| info.kind == Kind::Quant(Quant::Q8_0)).count() > 30);
    let (gguf, dequantized) = (files.path().join("flux.gguf"), files.path().join("flux.safetensors"));
    let bytes = |i: usize| Ok::<_, warpwave_weights::Error>(Cow::Borrowed(&data[i][..]));
    write_gguf(&gguf, &[], &infos, bytes, |_, _| {}).unwrap();
    warpwave_tensor::safetensors::save(plain.iter().map(|(name, x)| (name.as_str(), x)), &dequantized).unwrap();
    let options = OpenOptions { base: Some(folder(name)), vae: None };
    let expected = Expected::of(name);
    let run = |path: &Path| {
        let model = open(path, &options);
        model.denoise(&expected.get("transformer/latent"), 0.75, &conditioning(&expected, &device()), &extra(name, &expected)).unwrap()
    };
    let found = run(&gguf);
    assert_close(&found, &run(&dequantized), 2e-4, "Q8_0");
    let whole = load(name);
    let exact = whole.denoise(&expected.get("transformer/latent"), 0.75, &conditioning(&expected, &device()), &extra(name, &expected));
    let gap = gap(&found, &exact.unwrap());
    assert!(gap > 1e-4 && gap < 0.5, "the effect of Q8_0 is {gap}");
}

#[test]
fn random_damage_is_an_error_or_harmless() {
    let mut random = Random::new(seed());
    let model = copy("sd15");
    let files = [
        "unet/diffusion_pytorch_model.safetensors",
        "text_encoder/model.safetensors",
        "unet/config.json",
        "vae/config.json",
        "text_encoder/config.json",
        "tokenizer/vocab.json",
        "tokenizer/merges.txt",
        "scheduler/scheduler_config.json",
        "model_index.json",
        "lora_kohya.safetensors",
    ];
    let mut errors = 0;
    for file in files {
        let path = model.path().join(file);
        let whole = std::fs::read(&path).unwrap();
        for _ in 0..12 {
            let mut damaged = whole.clone();
            for _ in 0..1 + random.below(4) {
                // Headers and configurations are at the start.
                let at = random.below(damaged.len().min(4000));
                damaged[at] = match random.below(3) {
                    0 => random.below(256) as u8,
                    1 => b'0' + random.below(10) as u8,
                    _ => damaged[at] ^ (1 << random.below(8)),
                };
            }
            std::fs::write(&path, &damaged).unwrap();
            let opened = Checkpoint::open(model.path()).and_then(|checkpoint| checkpoint.load(&Device::Cpu, LoadOptions::default()));
            let used = opened.and_then(|mut opened| {
                opened.tokenize(0, "a red fox")?;
                opened.set_loras(&[(model.path().join("lora_kohya.safetensors"), 1.0)])
            });
            errors += usize::from(used.is_err());
        }
        std::fs::write(&path, &whole).unwrap();
    }
    assert!(errors > 30, "only {errors} of 120 damaged files were noticed");
}

#[test]
fn eight_bit_floats_are_their_values() {
    let models = [DType::F8E4M3, DType::F32].map(|dtype| {
        let model = copy("sd15");
        let path = model.path().join("unet/diffusion_pytorch_model.safetensors");
        let tensors: Vec<(String, Tensor)> = warpwave_tensor::safetensors::load(&path, &Device::Cpu).unwrap().into_iter().collect();
        let rounded = |x: &Tensor| x.cast(DType::F8E4M3).unwrap().cast(dtype).unwrap();
        let tensors: Vec<(String, Tensor)> = tensors.iter().map(|(name, x)| (name.clone(), rounded(x))).collect();
        warpwave_tensor::safetensors::save(tensors.iter().map(|(name, x)| (name.as_str(), x)), &path).unwrap();
        outputs("sd15", &open(model.path(), &OpenOptions::default()))
    });
    assert_eq!(models[0], models[1]);
    assert_ne!(models[0], outputs("sd15", &load("sd15")));
}
