//! The memory estimate matches what is allocated.

#[path = "../../tensor/tests/common/mod.rs"]
mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use warpwave_kernels::{DType, Quant};
use warpwave_llm::{
    Checkpoint, Config, Error, LoadOptions, Logits, MemoryEstimate, MemoryPlan, Model, RopeConfig, Runner, RunnerOptions, Sequence,
};
use warpwave_tensor::{Device, Gpu};
use warpwave_test_support::full_run;
use warpwave_weights::Kind;

/// Serializes the tests: they measure the pools of the same devices.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Loads a model and fills its context with a prompt and four decoded tokens; returns the estimate of each device.
fn use_up(checkpoint: &Checkpoint, devices: &[Device], context: usize, chunk: usize) -> Vec<MemoryEstimate> {
    let device = &devices[0];
    let plan = MemoryPlan { chunk: Some(chunk), ..MemoryPlan::new(devices.to_vec(), context) };
    let estimate = checkpoint.memory(&plan).unwrap();
    let model = Model::load_tensor_parallel(checkpoint, devices, LoadOptions::default(), &mut |_| ()).unwrap();
    let mut runner = Runner::new(model, RunnerOptions { context, chunk: Some(chunk), ..RunnerOptions::default() }).unwrap();
    let prompt: Vec<u32> = (0..context as u32 - 4).map(|i| i * 7919 % checkpoint.config().vocab as u32).collect();
    for _ in 0..if device.is_virtual() { 1 } else { 3 } {
        let mut sequence = Sequence::default();
        let started = Instant::now();
        runner.forward(&mut [(&mut sequence, &prompt)], Logits::Last).unwrap().to_vec::<f32>().unwrap();
        println!("{device} {} tokens in chunks of {chunk}: {:.1} ms", prompt.len(), started.elapsed().as_secs_f64() * 1e3);
        for token in 0..4 {
            runner.forward(&mut [(&mut sequence, &[token])], Logits::Last).unwrap();
        }
        device.synchronize().unwrap();
    }
    estimate
}

fn ratio(what: &str, device: &Device, estimate: &MemoryEstimate, taken: u64) -> f64 {
    let share = taken as f64 / estimate.total() as f64;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let MemoryEstimate { weights, kv, activations, scratch, .. } = *estimate;
    let [weights, kv, activations, scratch, total, taken] = [weights, kv, activations, scratch, estimate.total(), taken].map(mib);
    let sum = format!("{weights:.1} + {kv:.1} + {activations:.1} + {scratch:.1} = {total:.1} MiB");
    println!("{device} {what}: estimated {sum}; allocated {taken:.1} MiB, ratio {share:.3}");
    share
}

/// Measured by the pool.
#[test]
fn the_estimate_of_a_small_model_is_within_10_percent() {
    let _alone = alone();
    let shape =
        Config { vocab: 1000, hidden: 256, layers: 2, heads: 4, kv_heads: 2, head_dim: 64, feed_forward: 1024, ..Config::llama_8b() };
    let config =
        Config { context: 512, sliding_layers: vec![false; 2], attention_scale: 0.125, rope: RopeConfig::plain(10_000.0, 64), ..shape };
    for kind in [Kind::Plain(DType::Bf16), Kind::Quant(Quant::Q4K)] {
        // A new device each time: the pool records its peak.
        let devices = common::devices().into_iter().filter(Device::is_virtual);
        for device in devices {
            let Device::Gpu(gpu) = &device else { continue };
            let checkpoint = Checkpoint::random(config.clone(), kind).unwrap();
            let estimate = use_up(&checkpoint, std::slice::from_ref(&device), 100, 64)[0];
            let taken = gpu.stream.device().pool_stats().peak_allocated as u64;
            let share = ratio(&kind.to_string(), &device, &estimate, taken);
            assert!((0.9..=1.1).contains(&share), "{kind} on {device}: {share}");
        }
    }
}

/// Three KV heads for two devices.
fn small() -> Config {
    let shape =
        Config { vocab: 1000, hidden: 256, layers: 2, heads: 6, kv_heads: 3, head_dim: 128, feed_forward: 1280, ..Config::llama_8b() };
    Config { context: 512, sliding_layers: vec![false; 2], attention_scale: 0.125, rope: RopeConfig::plain(10_000.0, 128), ..shape }
}

/// Measured by the pool of each device.
#[test]
fn the_estimate_of_tensor_parallel_is_within_10_percent() {
    let _alone = alone();
    let config = small();
    for kind in [Kind::Plain(DType::Bf16), Kind::Quant(Quant::Q4K)] {
        let checkpoint = Checkpoint::random(config.clone(), kind).unwrap();
        for devices in common::groups().into_iter().filter(|devices| devices[0].is_virtual()) {
            let estimates = use_up(&checkpoint, &devices, 100, 64);
            for (device, estimate) in devices.iter().zip(&estimates) {
                let Device::Gpu(gpu) = device else { continue };
                let taken = gpu.stream.device().pool_stats().peak_allocated as u64;
                let share = ratio(&kind.to_string(), device, estimate, taken);
                assert!((0.9..=1.1).contains(&share), "{kind} on {device}: {share}");
            }
            // Norms are replicated, everything else is split.
            let plan = MemoryPlan { chunk: Some(64), ..MemoryPlan::new([Device::Cpu], 100) };
            let (whole, norms) = (checkpoint.memory(&plan).unwrap()[0], (2 * 2 + 1) * 256 * 4);
            assert_eq!(estimates.iter().map(|estimate| estimate.weights).sum::<u64>(), whole.weights + norms);
        }
    }
}

/// The second device has too little memory: the error names it, and both devices free everything.
#[test]
fn a_failure_on_one_device_frees_all() {
    let _alone = alone();
    let checkpoint = Checkpoint::random(small(), Kind::Quant(Quant::Q8_0)).unwrap();
    for devices in common::groups() {
        let gpus: Vec<_> = devices.iter().filter_map(|device| if let Device::Gpu(gpu) = device { Some(gpu) } else { None }).collect();
        let [first, second] = gpus[..] else { continue };
        if first.stream.device() == second.stream.device() {
            continue;
        }
        let load = || Model::load_tensor_parallel(&checkpoint, &devices, LoadOptions::default(), &mut |_| ());
        let in_use = || [first, second].map(|gpu| gpu.stream.device().pool_stats().in_use);
        let before = in_use();
        second.stream.device().set_pool_cap(Some(400 << 10));
        let error = load().map(drop).unwrap_err();
        let of_weights = matches!(&error, Error::OutOfMemory { device, what, .. } if device == devices[1].name() && what.contains("blk."));
        assert!(of_weights, "{error}");
        assert_eq!(in_use(), before, "{devices:?}");
        second.stream.device().set_pool_cap(None);
        let model = load().unwrap();
        second.stream.device().set_pool_cap(Some(second.stream.device().pool_stats().in_use + (100 << 10)));
        let error = Runner::new(model, RunnerOptions { context: 4096, ..RunnerOptions::default() }).map(drop).unwrap_err();
        let of_keys = matches!(&error, Error::OutOfMemory { device, what, .. } if device == devices[1].name() && what.contains("KV cache"));
        assert!(of_keys, "{error}");
        second.stream.device().set_pool_cap(None);
        assert_eq!(in_use(), before, "{devices:?}: the model is freed");
    }
}

/// The estimate runs a forward pass without data: fast, whatever the model's size.
#[test]
fn the_estimate_of_a_70b_model_takes_less_than_a_second() {
    let shape = Config { hidden: 8192, layers: 80, heads: 64, feed_forward: 28_672, ..Config::llama_8b() };
    let config = Config { sliding_layers: vec![false; 80], ..shape };
    let checkpoint = Checkpoint::random(config, Kind::Quant(Quant::Q4K)).unwrap();
    for devices in [vec![Device::Cpu], vec![Device::Cpu; 8]] {
        let started = Instant::now();
        let estimates = checkpoint.memory(&MemoryPlan::new(devices, 131_072)).unwrap();
        let seconds = started.elapsed().as_secs_f64();
        let total: u64 = estimates.iter().map(MemoryEstimate::total).sum();
        println!("{} devices: {:.1} GiB, estimated in {seconds:.3} s", estimates.len(), total as f64 / f64::from(1 << 30));
        assert!((70 << 30..200 << 30).contains(&total), "{estimates:?}");
        // Debug builds on a loaded machine are slower.
        assert!(seconds < if cfg!(debug_assertions) { 10.0 } else { 1.0 }, "{seconds} s");
    }
}

/// Measured by the driver's free memory, with an 8B model and a context of 4096.
#[test]
fn the_estimate_of_a_large_model_is_within_5_percent() {
    if !full_run() {
        return println!("skipped: WARPWAVE_TEST_FULL=1 asks for it");
    }
    let _alone = alone();
    for kind in [Kind::Plain(DType::Bf16), Kind::Quant(Quant::Q4K)] {
        let checkpoint = Checkpoint::random(Config::llama_8b(), kind).unwrap();
        // New devices each time: a pool keeps its peak.
        for device in common::devices() {
            let Device::Gpu(gpu) = &device else { continue };
            if device.is_virtual() || free(gpu) < 32 << 30 {
                continue;
            }
            let before = stable_free(gpu);
            let chunk = RunnerOptions::default_chunk(&device);
            let estimate = use_up(&checkpoint, std::slice::from_ref(&device), 4096, chunk)[0];
            // The pool keeps its peak, although the model is freed.
            let share = ratio(&format!("{kind}, chunks of {chunk}"), &device, &estimate, before - free(gpu));
            assert!((0.95..=1.05).contains(&share), "{kind} on {device} in chunks of {chunk}: {share}");
        }
    }
}

/// Free memory, once processes that ended before have released theirs.
fn stable_free(gpu: &Gpu) -> u64 {
    loop {
        let before = free(gpu);
        std::thread::sleep(Duration::from_millis(500));
        if free(gpu) == before {
            return before;
        }
    }
}

fn free(gpu: &Gpu) -> u64 {
    gpu.stream.synchronize().unwrap();
    gpu.stream.device().memory().unwrap().free as u64
}
