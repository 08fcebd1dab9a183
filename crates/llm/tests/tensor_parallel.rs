//! Tensor parallel: the same logits as on one device, however unevenly the model is split.

#[path = "../../tensor/tests/common/mod.rs"]
mod common;

use warpwave_kernels::{DType, Quant};
use warpwave_llm::{Checkpoint, Config, Error, LoadOptions, Logits, Model, RopeConfig, Runner, RunnerOptions, Sequence};
use warpwave_tensor::{Device, KvCacheType, Precision};
use warpwave_test_support::test_model;
use warpwave_weights::{Gguf, Kind, Tensor, TensorInfo, write_gguf};

/// Six KV heads, two of which make a block of 256 columns, and a vocabulary and feed-forward that are multiples of neither 2 nor 3 parts.
fn model() -> Checkpoint {
    let shape =
        Config { vocab: 333, hidden: 256, layers: 2, heads: 12, kv_heads: 6, head_dim: 64, feed_forward: 1280, ..Config::llama_8b() };
    let config =
        Config { context: 512, sliding_layers: vec![false; 2], attention_scale: 0.125, rope: RopeConfig::plain(10_000.0, 64), ..shape };
    Checkpoint::random(config, Kind::Plain(DType::Bf16)).unwrap()
}

fn runner(checkpoint: &Checkpoint, weights: Option<Kind>, precision: Precision, devices: &[Device]) -> Runner {
    let options = LoadOptions { precision, weights, ..LoadOptions::default() };
    let model = Model::load_tensor_parallel(checkpoint, devices, options, &mut |_| ()).unwrap();
    let kv_cache = Some(KvCacheType::F32);
    Runner::new(model, RunnerOptions { context: 256, chunk: Some(24), kv_cache, ..RunnerOptions::default() }).unwrap()
}

/// The logits of a prompt in chunks, of all tokens after it, and of a batch of two sequences.
fn logits(runner: &mut Runner) -> Vec<f32> {
    let (mut a, mut b) = (Sequence::default(), Sequence::default());
    let prompt: Vec<u32> = (0..40).map(|i| i * 7 % 333).collect();
    let mut all = runner.forward(&mut [(&mut a, &prompt)], Logits::Last).unwrap().to_vec::<f32>().unwrap();
    all.extend(runner.forward(&mut [(&mut a, &[5, 332, 0])], Logits::All).unwrap().to_vec::<f32>().unwrap());
    all.extend(runner.forward(&mut [(&mut a, &[17]), (&mut b, &prompt[..9])], Logits::Last).unwrap().to_vec::<f32>().unwrap());
    all.extend(runner.forward(&mut [(&mut b, &[1])], Logits::Last).unwrap().to_vec::<f32>().unwrap());
    all
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| if b.is_finite() { (a - b).abs() } else { f32::INFINITY }).fold(0.0, f32::max)
}

#[test]
fn several_devices_give_the_logits_of_one() {
    let checkpoint = model();
    for kind in [Kind::Plain(DType::F32), Kind::Quant(Quant::Q8_0), Kind::Quant(Quant::Q4K)] {
        let whole = logits(&mut runner(&checkpoint, Some(kind), Precision::Exact, &[Device::Cpu]));
        assert_eq!(whole.len(), 7 * 333);
        // Three; and eight, of which some share a KV head.
        let many = if kind == Kind::Quant(Quant::Q4K) { 3 } else { 8 };
        let groups = common::groups().into_iter().chain([vec![Device::Cpu; 3], vec![Device::Cpu; many]]);
        for devices in groups {
            let divided = logits(&mut runner(&checkpoint, Some(kind), Precision::Exact, &devices));
            let size = whole.iter().fold(0f32, |most, x| most.max(x.abs()));
            let far = distance(&whole, &divided);
            println!("{kind} on {devices:?}: {far:.1e} of logits up to {size:.1}");
            assert!(size > 0.1 && far <= 1e-4 * size, "{kind} on {devices:?}: {far} of {size}");
        }
    }
}

#[test]
fn a_real_model_gives_the_same_logits() {
    let Some(file) = test_model() else { return };
    let checkpoint = Checkpoint::open(file).unwrap();
    let mut found = [1, 2, 3].map(|devices| logits(&mut runner(&checkpoint, None, Precision::Exact, &vec![Device::Cpu; devices])));
    let whole = std::mem::take(&mut found[0]);
    for (devices, divided) in found.iter().enumerate().skip(1) {
        let far = distance(&whole, divided);
        println!("{} devices: {far:.1e}", devices + 1);
        assert!(far <= 2e-3, "{} devices: {far}", devices + 1);
    }
}

/// Files of mostly 4-bit weights have wider V matrices: QKV is then several products.
#[test]
fn mixed_weight_types_give_the_same_logits() {
    let dir = tempfile::tempdir().unwrap();
    let [small, large, mixed] = ["small", "large", "mixed"].map(|name| dir.path().join(format!("{name}.gguf")));
    model().write_gguf(&small, Some(Kind::Quant(Quant::Q4K)), |_, _| ()).unwrap();
    model().write_gguf(&large, Some(Kind::Quant(Quant::Q8_0)), |_, _| ()).unwrap();
    let [small, large] = [small, large].map(|file| Gguf::open(file).unwrap());
    let is_large = |name: &str| ["attn_v.weight", "ffn_down.weight"].iter().any(|end| name.ends_with(end));
    let tensors: Vec<_> =
        small.tensors().map(|tensor| if is_large(tensor.name) { large.tensor(tensor.name).unwrap() } else { tensor }).collect();
    let info = |tensor: &Tensor<'_>| TensorInfo { name: tensor.name.to_owned(), kind: tensor.kind, shape: tensor.shape.to_vec() };
    let infos: Vec<_> = tensors.iter().map(info).collect();
    let metadata: Vec<_> = small.metadata().map(|(key, value)| (key.into(), value)).collect();
    let data = |index: usize| Ok::<_, warpwave_weights::Error>(tensors[index].bytes.into());
    write_gguf(&mixed, &metadata, &infos, data, |_, _| ()).unwrap();

    let checkpoint = Checkpoint::open(&mixed).unwrap();
    let whole = logits(&mut runner(&checkpoint, None, Precision::Exact, &[Device::Cpu]));
    let size = whole.iter().fold(0f32, |most, x| most.max(x.abs()));
    for devices in common::groups().into_iter().chain([vec![Device::Cpu; 3]]) {
        // In 15 bits or in f16, each partial sum has its own rounding.
        for (precision, bound) in [(Precision::Exact, 1e-4), (Precision::Fast, 1e-2)] {
            let far = distance(&whole, &logits(&mut runner(&checkpoint, None, precision, &devices)));
            println!("{precision:?} on {devices:?}: {far:.1e} of logits up to {size:.1}");
            assert!(size > 0.1 && far <= bound * size, "{precision:?} on {devices:?}: {far} of {size}");
        }
    }
}

#[test]
fn impossible_splits_are_refused() {
    let checkpoint = model();
    let load = |weights: Kind, devices: &[Device]| {
        let options = LoadOptions { weights: Some(weights), ..LoadOptions::default() };
        Model::load_tensor_parallel(&checkpoint, devices, options, &mut |_| ()).map(drop).unwrap_err()
    };
    let plain = Kind::Plain(DType::F32);
    let message = |kind: Kind, devices: usize| load(kind, &vec![Device::Cpu; devices]).to_string();
    assert_eq!(message(plain, 13), "cannot split 12 heads over 13 devices; use fewer devices");
    let blocks = "cannot split 6 KV heads in groups of 2 over 4 devices; use fewer devices";
    assert_eq!(message(Kind::Quant(Quant::Q4K), 4), blocks);
    assert_eq!(message(Kind::Quant(Quant::Q4K), 12), "cannot split 12 heads in groups of 4 over 12 devices; use fewer devices");
    assert!(matches!(load(plain, &[]), Error::Devices(_)));
    for device in common::devices().into_iter().filter(|device| !device.is_cpu()) {
        let name = device.name().to_owned();
        let error = load(plain, &[device, Device::Cpu]);
        assert!(error.to_string().ends_with(&format!("got \"{name},cpu\"")), "{error}");
    }
}
