//! The caching pool: nothing leaks, nothing is handed out while work still uses it, little is held beyond need.

mod common;

use std::collections::HashMap;

use common::on_every_device;
use proptest::prelude::*;
use warpwave_gpu::fake::Fake;
use warpwave_gpu::{Buffer, Device, Error, Launch, PoolStats, Stream};

const MIB: usize = 1 << 20;

fn assert_balanced(stats: PoolStats) {
    assert_eq!(stats.allocated, stats.in_use + stats.pooled, "{stats:?}");
    assert!(stats.requested <= stats.in_use && stats.in_use <= stats.peak_in_use, "{stats:?}");
    assert!(stats.allocated <= stats.peak_allocated, "{stats:?}");
}

#[test]
fn ten_thousand_allocations_leak_nothing() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        drop(stream.alloc::<u8>(MIB).unwrap());
        place.device.trim_pool().unwrap();
        let before = place.device.memory().unwrap().free;
        for i in 0..10_000usize {
            let buffer = stream.alloc::<u8>(1 + i * 37 % 65_536).unwrap();
            assert_eq!(buffer.device_ptr() % 256, 0, "aligned");
        }
        let stats = place.device.pool_stats();
        assert_balanced(stats);
        assert_eq!((stats.in_use, stats.requested), (0, 0));
        assert!(stats.hits > 9_000, "{stats:?}");
        place.device.trim_pool().unwrap();
        assert_eq!(place.device.pool_stats().allocated, 0);
        let after = place.device.memory().unwrap().free;
        // Other processes may use a real device.
        let slack = if place.fakes.is_some() { 0 } else { MIB };
        assert!(after + slack >= before, "{before} bytes free before, {after} after");
    });
}

#[test]
fn memory_of_the_same_stream_is_reused_at_once() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        let first = stream.alloc::<f32>(1000).unwrap();
        let address = first.device_ptr();
        drop(first);
        assert_eq!(stream.alloc::<f32>(1000).unwrap().device_ptr(), address);
        let stats = place.device.pool_stats();
        assert_eq!((stats.hits, stats.misses), (1, 1));
    });
}

#[test]
fn another_stream_does_not_get_memory_that_may_be_in_use() {
    on_every_device(|place| {
        let (first, second) = (place.device.stream().unwrap(), place.device.stream().unwrap());
        let mut buffer = first.alloc::<u32>(1 << 20).unwrap();
        let address = buffer.device_ptr();
        first.zero(&mut buffer).unwrap();
        drop(buffer);
        assert_ne!(second.alloc::<u32>(1 << 20).unwrap().device_ptr(), address);
    });
}

#[test]
fn a_stream_that_used_anothers_memory_is_waited_for() {
    on_every_device(|place| {
        let Some(kernel) = place.kernel("add_index") else { return };
        let (home, other) = (place.device.stream().unwrap(), place.device.stream().unwrap());
        let n = 1 << 16;
        let mut buffer = home.upload(&vec![0u32; n]).unwrap();
        let address = buffer.device_ptr();
        // SAFETY: the types are the kernel's, and it stays within n elements.
        unsafe { kernel.launch(&other, Launch::for_elements(n, 256), (&mut buffer, n as u32)) }.unwrap();
        let mut copy = other.alloc::<u32>(n).unwrap();
        other.copy(&buffer, &mut copy).unwrap();
        drop(buffer);
        // Whatever `home` gets now, filling it must not reach the copy above.
        let mut next = home.alloc::<u32>(n).unwrap();
        home.fill(&mut next, 7).unwrap();
        home.synchronize().unwrap();
        let expected: Vec<u32> = (0..n as u32).collect();
        assert!(other.download(&copy).unwrap() == expected, "the copy saw memory that was handed out too early");
        drop(next);
        other.synchronize().unwrap();
        // Once `other` is done the block is back.
        let all: Vec<Buffer<u32>> = (0..3).map(|_| home.alloc(n).unwrap()).collect();
        assert!(all.iter().any(|b| b.device_ptr() == address));
    });
}

#[test]
fn memory_of_a_dropped_stream_is_for_everyone_once_its_work_is_done() {
    on_every_device(|place| {
        let second = place.device.stream().unwrap();
        let first = place.device.stream().unwrap();
        let mut buffer = first.alloc::<u32>(1 << 16).unwrap();
        let address = buffer.device_ptr();
        first.zero(&mut buffer).unwrap();
        drop((buffer, first));
        place.device.synchronize().unwrap();
        assert_eq!(second.alloc::<u32>(1 << 16).unwrap().device_ptr(), address);
    });
}

#[test]
fn out_of_memory_trims_and_tries_once_more() {
    let fakes = Fake::nvidia().memory(64 * MIB).install();
    let device = fakes.driver().unwrap().device(0).unwrap();
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    drop(stream.alloc::<u8>(20 * MIB).unwrap());
    assert_eq!(device.pool_stats().pooled, 20 * MIB);
    // Too large while the pool holds the 20 MiB of the other stream.
    let big = other.alloc::<u8>(60 * MIB).unwrap();
    assert_eq!(device.pool_stats().pooled, 0);
    let error = stream.alloc::<u8>(20 * MIB).unwrap_err();
    let expected = Error::OutOfMemory { device: "cuda:0".into(), requested: 20 * MIB, free: 4 * MIB, total: 64 * MIB, in_use: 60 * MIB };
    assert_eq!(error, expected);
    drop(big);
    assert!(stream.alloc::<u8>(60 * MIB).is_ok(), "the layer recovers");
}

#[test]
fn out_of_memory_at_any_call_is_an_error_and_nothing_is_lost() {
    for nth in 1..=6 {
        let fakes = Fake::amd().install();
        let device = fakes.driver().unwrap().device(0).unwrap();
        let stream = device.stream().unwrap();
        fakes.fail("hipMalloc", nth, 2);
        fakes.fail("hipMalloc", nth, 1052);
        let buffers: Vec<_> = (0..6).map(|i| stream.alloc::<u8>((i + 1) * MIB)).collect();
        let failed = buffers.iter().filter(|b| b.is_err()).count();
        assert!(failed <= 1);
        drop(buffers);
        assert_balanced(device.pool_stats());
        device.trim_pool().unwrap();
        assert_eq!(fakes.device_bytes(), 0);
    }
}

#[test]
fn the_cap_holds_and_says_so() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        place.device.set_pool_cap(Some(10 * MIB));
        let kept = stream.alloc::<u8>(6 * MIB).unwrap();
        drop(stream.alloc::<u8>(4 * MIB).unwrap());
        // Fits after the pooled 4 MiB were given back.
        drop(stream.alloc::<u8>(3 * MIB).unwrap());
        let error = stream.alloc::<u8>(5 * MIB).unwrap_err();
        assert_eq!(error, Error::PoolCap { device: place.device.name().into(), cap: 10 * MIB, requested: 5 * MIB, in_use: 6 * MIB });
        assert!(place.device.pool_stats().peak_allocated <= 10 * MIB);
        place.device.set_pool_cap(None);
        assert!(stream.alloc::<u8>(5 * MIB).is_ok());
        drop(kept);
    });
}

#[test]
fn the_cap_waits_for_work_rather_than_refuse() {
    let fakes = Fake::nvidia().install();
    let device = fakes.driver().unwrap().device(0).unwrap();
    let (home, other) = (device.stream().unwrap(), device.stream().unwrap());
    device.set_pool_cap(Some(100 * MIB));
    let mut buffer = home.alloc::<u8>(80 * MIB).unwrap();
    other.zero(&mut buffer).unwrap();
    drop(buffer);
    assert!(home.alloc::<u8>(80 * MIB).is_ok(), "nothing is in use");
}

#[test]
fn memory_whose_stream_is_gone_is_reused() {
    let fakes = Fake::nvidia().install();
    let device = fakes.driver().unwrap().device(0).unwrap();
    let other = device.stream().unwrap();
    for _ in 0..5 {
        let home = device.stream().unwrap();
        let mut buffer = home.alloc::<u8>(MIB).unwrap();
        other.zero(&mut buffer).unwrap();
        drop((buffer, home));
        other.synchronize().unwrap();
        device.synchronize().unwrap();
    }
    let stats = device.pool_stats();
    assert!(stats.hits >= 3 && stats.allocated <= 2 * MIB, "{stats:?}");
}

/// A trace of allocations of 1 to 64 MiB, about `live` bytes alive at a time.
fn mixed_trace(device: &Device, stream: &Stream, seed: u64, live: usize) -> PoolStats {
    let mut state = seed;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut alive: Vec<Buffer<u8>> = Vec::new();
    for _ in 0..2000 {
        let spread = [MIB, 8 * MIB, 63 * MIB][random(3)];
        let bytes = MIB + random(spread);
        while alive.iter().map(Buffer::len).sum::<usize>() + bytes > live {
            alive.swap_remove(random(alive.len()));
        }
        alive.push(stream.alloc(bytes).unwrap());
        let stats = device.pool_stats();
        assert!(stats.allocated as f64 <= stats.peak_requested as f64 * 1.05, "{stats:?}");
    }
    device.pool_stats()
}

#[test]
fn a_mixed_trace_holds_less_than_five_percent_beyond_need() {
    let fakes = Fake::nvidia().memory(2 << 30).install();
    let device = fakes.driver().unwrap().device(0).unwrap();
    let stream = device.stream().unwrap();
    let stats = mixed_trace(&device, &stream, 7, 1 << 30);
    assert_balanced(stats);
    let held = stats.peak_allocated as f64 / stats.peak_requested as f64;
    eprintln!("held / asked for at the peak: {held:.4}; {stats:?}");
    assert!(held < 1.05);
}

#[derive(Debug, Clone)]
enum Step {
    Alloc { stream: usize, bytes: usize },
    Free(usize),
    UseOn { buffer: usize, stream: usize },
    Trim,
    Sync(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..3usize, 1..3_000_000usize).prop_map(|(stream, bytes)| Step::Alloc { stream, bytes }),
        3 => (0..64usize).prop_map(Step::Free),
        3 => (0..64usize, 0..3usize).prop_map(|(buffer, stream)| Step::UseOn { buffer, stream }),
        1 => Just(Step::Trim),
        1 => (0..3usize).prop_map(Step::Sync),
    ];
    proptest::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Live buffers never overlap, and the figures add up, whatever the order of calls.
    #[test]
    fn live_buffers_never_overlap(steps in steps()) {
        let fakes = Fake::amd().memory(256 * MIB).install();
        let device = fakes.driver().unwrap().device(0).unwrap();
        let streams: Vec<Stream> = (0..3).map(|_| device.stream().unwrap()).collect();
        let mut alive: Vec<Buffer<u8>> = Vec::new();
        for step in steps {
            match step {
                Step::Alloc { stream, bytes } => match streams[stream].alloc(bytes) {
                    Ok(buffer) => alive.push(buffer),
                    Err(error) => prop_assert!(matches!(error, Error::OutOfMemory { .. }), "{error}"),
                },
                Step::Free(index) if !alive.is_empty() => drop(alive.swap_remove(index % alive.len())),
                Step::UseOn { buffer, stream } if !alive.is_empty() => {
                    let index = buffer % alive.len();
                    streams[stream].zero(&mut alive[index]).unwrap();
                }
                Step::Trim => _ = device.trim_pool().unwrap(),
                Step::Sync(stream) => streams[stream].synchronize().unwrap(),
                _ => {}
            }
            let mut ranges: Vec<(u64, u64)> = alive.iter().map(|b| (b.device_ptr(), b.device_ptr() + b.len() as u64)).collect();
            ranges.sort_unstable();
            prop_assert!(ranges.windows(2).all(|w| w[0].1 <= w[1].0));
            let stats = device.pool_stats();
            prop_assert_eq!(stats.allocated, stats.in_use + stats.pooled);
            prop_assert_eq!(stats.requested, alive.iter().map(Buffer::len).sum::<usize>());
            prop_assert_eq!(stats.allocated, fakes.device_bytes());
        }
        drop(alive);
        drop(streams);
        device.trim_pool().unwrap();
        drop(device);
        prop_assert_eq!(fakes.live_objects(), 0, "everything was given back");
    }
}

#[test]
fn everything_is_given_back_when_the_last_handle_goes() {
    let fakes = Fake::nvidia().devices(2).install();
    let driver = fakes.driver().unwrap();
    let device = driver.device(1).unwrap();
    let stream = device.stream().unwrap();
    let mut kept: HashMap<usize, Buffer<u8>> = HashMap::new();
    for i in 0..50 {
        kept.insert(i, stream.alloc(i * 1000 + 1).unwrap());
    }
    let event = stream.record().unwrap();
    let graph = stream.capture_graph(|s| s.alloc_zeroed::<u8>(100).map(drop)).unwrap();
    let exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    drop((kept, event, graph, exec, stream));
    drop(device);
    assert_eq!(fakes.live_objects(), 0);
}
