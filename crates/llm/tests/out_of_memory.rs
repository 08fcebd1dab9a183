//! Running out of memory while loading: an error with the missing bytes and their purpose, and all memory is freed.
//!
//! The test measures free memory, so it is the only one in its program.

#[path = "../../tensor/tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use warpwave_gpu::Buffer;
use warpwave_kernels::{DType, Quant};
use warpwave_llm::{Checkpoint, Config, Error, LoadOptions, Logits, Model, RopeConfig, Runner, RunnerOptions, Sequence};
use warpwave_tensor::{Device, Gpu};
use warpwave_weights::Kind;

const CHILD: &str = "WARPWAVE_TEST_LIMITED";

/// A random model with 4 MiB per layer at 8 bits.
fn model(layers: usize, kind: Kind) -> Checkpoint {
    let shape = Config { vocab: 1000, hidden: 512, layers, heads: 8, kv_heads: 2, head_dim: 64, feed_forward: 2048, ..Config::llama_8b() };
    let (rope, sliding_layers) = (RopeConfig::plain(10_000.0, 64), vec![false; layers]);
    Checkpoint::random(Config { context: 4096, sliding_layers, attention_scale: 0.125, rope, ..shape }, kind).unwrap()
}

fn load(checkpoint: &Checkpoint, device: &Device) -> warpwave_llm::Result<Model> {
    Model::load(checkpoint, device, LoadOptions::default(), &mut |_| ())
}

fn weights(checkpoint: &Checkpoint) -> u64 {
    checkpoint.infos().map(|info| info.kind.bytes(&info.shape).unwrap() as u64).sum()
}

/// Computes one token.
fn works(runner: &mut Runner) {
    let logits = runner.forward(&mut [(&mut Sequence::default(), &[1])], Logits::Last).unwrap().to_vec::<f32>().unwrap();
    assert!(logits.iter().all(|x| x.is_finite()) && logits.iter().any(|x| *x != 0.0));
}

fn free(gpu: &Gpu) -> u64 {
    gpu.stream.synchronize().unwrap();
    gpu.stream.device().memory().unwrap().free as u64
}

/// Allocates until about `left` bytes are free.
fn fill(gpu: &Arc<Gpu>, left: u64) -> Vec<Buffer<u8>> {
    let mut taken = Vec::new();
    loop {
        let more = free(gpu).saturating_sub(left);
        // The pool rounds up, and some drivers allocate large pages only.
        let asked = more - more / 32;
        if more < 3 << 20 {
            return taken;
        }
        match gpu.stream.alloc(asked as usize) {
            Ok(buffer) => taken.push(buffer),
            Err(_) => return taken,
        }
    }
}

/// Checks that the error is consistent; returns its fields.
fn facts(error: Error) -> (String, u64, u64) {
    let text = error.to_string();
    let Error::OutOfMemory { what, needed, free, rest, missing, .. } = error else { panic!("{text}") };
    let free = free.expect("the system says what is free");
    // A driver may keep a little free memory back.
    assert!(needed + rest > free, "{text}");
    assert_eq!(missing, needed + rest - free, "{text}");
    assert!(text.contains(&what) && text.contains("short") && text.contains("free"), "{text}");
    println!("{text}");
    (what, missing, free)
}

/// With memory for a step but not for its graph, steps run without graphs.
fn without_graphs(device: &Device, gpu: &Arc<Gpu>) {
    let limited = gpu.stream.device();
    let options = RunnerOptions { context: 16, graphs: false, ..RunnerOptions::default() };
    let mut runner = Runner::new(load(&model(6, Kind::Quant(Quant::Q8_0)), device).unwrap(), options).unwrap();
    let mut feed = |graphs: bool| {
        runner.use_graphs(graphs);
        let logits = runner.forward(&mut [(&mut Sequence::default(), &[1])], Logits::Last)?;
        Ok::<_, Error>(logits.to_vec::<f32>()?)
    };
    let plain = feed(false).unwrap();
    let mut cap = limited.pool_stats().in_use;
    let enough = loop {
        cap += 16 << 10;
        limited.set_pool_cap(Some(cap));
        match feed(false) {
            Ok(_) => break cap,
            Err(error) => assert!(matches!(error, Error::OutOfMemory { .. }), "{device}: {error}"),
        }
    };
    let taken = limited.pool_stats().in_use;
    let without: Vec<_> = (0..2).map(|_| (feed(true), limited.pool_stats().in_use)).collect();
    limited.set_pool_cap(None);
    for (logits, in_use) in without {
        assert_eq!((logits.unwrap(), in_use), (plain.clone(), taken), "{device}, {enough} bytes: no graph is kept");
    }
    assert_eq!(feed(true).unwrap(), plain, "{device}");
    assert!(limited.pool_stats().in_use > taken, "{device}: with memory a graph is kept");
}

fn on_gpu(device: &Device, gpu: &Arc<Gpu>) {
    let checkpoint = model(6, Kind::Quant(Quant::Q8_0));
    let all = weights(&checkpoint);
    // The driver's own allocations at first use do not count.
    works(&mut Runner::new(load(&checkpoint, device).unwrap(), RunnerOptions { context: 16, ..RunnerOptions::default() }).unwrap());
    device.trim().unwrap();
    let whole = free(gpu);

    let taken = fill(gpu, all / 2);
    let before = free(gpu);
    assert!(before < all, "{device}: {before} bytes are free, too many for this");
    let (what, missing, _) = facts(load(&checkpoint, device).map(drop).unwrap_err());
    assert!(what.contains("blk.") && !what.contains("blk.0."), "{device}: it ended at {what}, not in the middle");
    // Some drivers allocate a page at first, and free it.
    assert!(free(gpu) >= before, "{device}: of {before} bytes only {} are free again", free(gpu));
    // The missing bytes match the arithmetic, except for page and size-class rounding.
    let (expected, slack) = (all - before, all / 4);
    assert!(missing + slack >= expected && missing <= expected + slack, "{device}: {missing} bytes, and {expected} by the arithmetic");
    drop(taken);
    device.trim().unwrap();

    let taken = fill(gpu, all + all / 8 + (16 << 20));
    let before = free(gpu);
    let context = 1 << 17;
    let model = load(&checkpoint, device).unwrap();
    let (what, missing, left) = facts(Runner::new(model, RunnerOptions { context, ..RunnerOptions::default() }).map(drop).unwrap_err());
    assert!(what.contains("the KV cache of 131072 tokens"), "{what}");
    // Six layers, two heads of 64 elements of 16 bits, K and V.
    assert_eq!(missing, context as u64 * 6 * 2 * 64 * 2 * 2 - left);
    assert!(free(gpu) >= before, "{device}: of {before} bytes only {} are free again: the model is gone, too", free(gpu));
    drop(taken);
    device.trim().unwrap();

    assert!(free(gpu) >= whole, "{device}: of {whole} bytes only {} are free again: something stays behind", free(gpu));
    works(&mut Runner::new(load(&checkpoint, device).unwrap(), RunnerOptions::default()).unwrap());
}

/// Private memory of this process in bytes.
fn own() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// Limits the private memory of this process.
fn limit(bytes: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls have a struct of their own shape to read or write.
    let done = unsafe {
        libc::getrlimit(libc::RLIMIT_DATA, &mut limit) == 0 && {
            limit.rlim_cur = bytes.min(limit.rlim_max);
            libc::setrlimit(libc::RLIMIT_DATA, &limit) == 0
        }
    };
    assert!(done, "{}", std::io::Error::last_os_error());
}

/// In a separate process with limited memory: the allocator would reuse what an earlier model freed.
fn on_cpu(folder: &Path) {
    let [large, small] = ["large", "small"].map(|size| Checkpoint::open(folder.join(format!("{size}.gguf"))).unwrap());
    let works = |model: Model| works(&mut Runner::new(model, RunnerOptions { context: 16, ..RunnerOptions::default() }).unwrap());
    // Threads start at first use and stay.
    works(load(&small, &Device::Cpu).unwrap());
    limit(own() + weights(&large) * 5 / 8);
    for _ in 0..3 {
        let (what, missing, _) = facts(load(&large, &Device::Cpu).map(drop).unwrap_err());
        assert!(what.contains("blk."), "{what}");
        assert!(missing > weights(&large) / 16, "{missing} of {}", weights(&large));
    }
    // A smaller model still fits under the same limit: the memory was freed.
    works(load(&small, &Device::Cpu).unwrap());
    limit(u64::MAX);
    works(load(&large, &Device::Cpu).unwrap());
}

#[test]
fn running_out_of_memory_is_an_error_and_frees_all() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return on_cpu(&PathBuf::from(folder));
    }
    for kind in [Kind::Quant(Quant::Q8_0), Kind::Plain(DType::Bf16)] {
        let folder = tempfile::tempdir().unwrap();
        for (size, layers) in [("large", 12), ("small", 2)] {
            model(layers, kind).write_gguf(folder.path().join(format!("{size}.gguf")), None, |_, _| ()).unwrap();
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        let child = child.args(["--exact", "running_out_of_memory_is_an_error_and_frees_all", "--nocapture"]);
        assert!(child.env(CHILD, folder.path()).status().unwrap().success(), "a CPU with little memory, weights of {kind}");
    }
    for device in common::devices() {
        if let Device::Gpu(gpu) = &device {
            on_gpu(&device, gpu);
            without_graphs(&device, gpu);
        }
    }
}
