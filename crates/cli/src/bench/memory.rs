//! `warpwave bench memory`: pooled allocation, pinned copies and pool overhead.

use std::ffi::c_void;
use std::time::Instant;

use warpwave_gpu::{Buffer, Device, Handle, HostBuffer, Vendor};

use super::super::{Failure, failed};
use super::{Bound, Row, median};

const MIB: usize = 1 << 20;

type RawAlloc = unsafe extern "C" fn(*mut u64, usize) -> i32;
type RawFree = unsafe extern "C" fn(u64) -> i32;
type RawUpload = unsafe extern "C" fn(u64, *const c_void, usize, Handle) -> i32;
type RawDownload = unsafe extern "C" fn(*mut c_void, u64, usize, Handle) -> i32;

fn symbol(device: &Device, cuda: &str, hip: &str) -> Result<*const c_void, Failure> {
    let name = if device.info().vendor == Vendor::Nvidia { cuda } else { hip };
    device.driver().symbol(name).ok_or_else(|| failed(format!("the driver does not export {name}")))
}

fn ok(code: i32) -> Result<(), Failure> {
    if code == 0 { Ok(()) } else { Err(failed(format!("raw driver call returned error {code}"))) }
}

pub(super) fn measure(device: &Device) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for size in [2 * MIB, 16 * MIB, 256 * MIB] {
        rows.push(allocation(device, size)?);
    }
    rows.extend(copies(device)?);
    rows.extend(pool_overhead(device)?);
    Ok(rows)
}

/// Measures allocation and release of one size, interleaved with raw calls.
fn allocation(device: &Device, bytes: usize) -> Result<Row, Failure> {
    // SAFETY: the vendors' call has this shape; the driver table's row of it is checked against their headers.
    let alloc = unsafe { std::mem::transmute::<*const c_void, RawAlloc>(symbol(device, "cuMemAlloc_v2", "hipMalloc")?) };
    // SAFETY: as above.
    let free = unsafe { std::mem::transmute::<*const c_void, RawFree>(symbol(device, "cuMemFree_v2", "hipFree")?) };
    let stream = device.stream()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..220 {
        let start = Instant::now();
        drop(stream.alloc::<u8>(bytes)?);
        let our_time = start.elapsed().as_secs_f64();
        let mut ptr = 0;
        let start = Instant::now();
        // SAFETY: the output outlives the call, and what was allocated is freed.
        unsafe {
            ok(alloc(&mut ptr, bytes))?;
            ok(free(ptr))?;
        }
        let raw_time = start.elapsed().as_secs_f64();
        if round >= 20 {
            ours.push(our_time * 1e6);
            theirs.push(raw_time * 1e6);
        }
    }
    device.trim_pool()?;
    let (ours, theirs) = (median(ours), median(theirs));
    let what = format!("allocate and free {} MiB", bytes / MIB);
    Ok(Row { what, ours, raw: Some(theirs), unit: "µs", ratio: theirs / ours, target: Some((Bound::AtLeast, 20.0)) })
}

fn copies(device: &Device) -> Result<Vec<Row>, Failure> {
    const BYTES: usize = 100_000_000;
    // SAFETY: as above.
    let upload = unsafe { std::mem::transmute::<*const c_void, RawUpload>(symbol(device, "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync")?) };
    // SAFETY: as above.
    let download =
        unsafe { std::mem::transmute::<*const c_void, RawDownload>(symbol(device, "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync")?) };
    let stream = device.stream()?;
    let mut host = HostBuffer::<u8>::zeroed(device, BYTES)?;
    for (i, byte) in host.as_mut_slice()?.iter_mut().enumerate() {
        *byte = (i * 31) as u8;
    }
    let mut buffer = stream.alloc::<u8>(BYTES)?;
    let address = host.as_mut_slice()?.as_mut_ptr().cast::<c_void>();
    let mut times: [Vec<f64>; 4] = Default::default();
    for round in 0..23 {
        let timed = |work: &mut dyn FnMut() -> Result<(), Failure>| -> Result<f64, Failure> {
            let start = Instant::now();
            work()?;
            stream.synchronize()?;
            Ok(start.elapsed().as_secs_f64())
        };
        // SAFETY: both ranges are BYTES long and live, and the copy is waited for.
        let raw_up = timed(&mut || ok(unsafe { upload(buffer.device_ptr(), address, BYTES, stream.raw()) }))?;
        // SAFETY: as above.
        let raw_down = timed(&mut || ok(unsafe { download(address, buffer.device_ptr(), BYTES, stream.raw()) }))?;
        let our_up = timed(&mut || Ok(stream.copy_from_pinned(&host, &mut buffer)?))?;
        let our_down = timed(&mut || Ok(stream.copy_to_pinned(&buffer, &mut host)?))?;
        if round >= 3 {
            for (list, time) in times.iter_mut().zip([our_up, raw_up, our_down, raw_down]) {
                list.push(BYTES as f64 / time / 1e9);
            }
        }
    }
    let [our_up, raw_up, our_down, raw_down] = times.map(median);
    let row = |what: &str, ours: f64, raw: f64| Row {
        what: what.to_owned(),
        ours,
        raw: Some(raw),
        unit: "GB/s",
        ratio: ours / raw,
        target: Some((Bound::AtLeast, 0.97)),
    };
    Ok(vec![row("pinned copy to the device, 100 MB", our_up, raw_up), row("pinned copy to the host, 100 MB", our_down, raw_down)])
}

/// Runs a random trace of 1 to 64 MiB allocations with up to 4 GiB (or half of the free memory) live, and returns the peak pool size
/// relative to the peak requested size, and the pool hit rate.
fn pool_overhead(device: &Device) -> Result<Vec<Row>, Failure> {
    let live = (4usize << 30).min(device.memory()?.free / 2);
    let stream = device.stream()?;
    device.trim_pool()?;
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    };
    let mut alive: Vec<Buffer<u8>> = Vec::new();
    let (mut total, mut worst) = (0usize, 0.0f64);
    let (mut peak_held, mut peak_requested) = (0usize, 0usize);
    let before = device.pool_stats();
    for _ in 0..4000 {
        let spread = [MIB, 8 * MIB, 63 * MIB][random(3)];
        let bytes = MIB + random(spread);
        while total + bytes > live {
            total -= alive.swap_remove(random(alive.len())).len();
        }
        alive.push(stream.alloc(bytes)?);
        total += bytes;
        let stats = device.pool_stats();
        peak_requested = peak_requested.max(stats.requested);
        peak_held = peak_held.max(stats.allocated);
        worst = worst.max(stats.allocated as f64 / peak_requested as f64);
    }
    let stats = device.pool_stats();
    let hits = (stats.hits - before.hits) as f64 / 4000.0;
    let overhead = (peak_held as f64 / peak_requested as f64 - 1.0) * 100.0;
    Ok(vec![
        Row {
            what: "pool overhead relative to peak requested bytes, mixed trace".to_owned(),
            ours: overhead,
            raw: None,
            unit: "%",
            ratio: overhead / 100.0,
            target: Some((Bound::AtMost, 0.05)),
        },
        Row { what: "pool hit rate, mixed trace".to_owned(), ours: hits * 100.0, raw: None, unit: "%", ratio: hits, target: None },
    ])
}
