//! `warpwave bench launch`: launch overhead over the raw driver call.

use std::ffi::c_void;
use std::time::Instant;

use warpwave_gpu::{Device, Handle, Launch, Vendor};

use super::super::{Failure, failed, inspect};
use super::{Bound, Row, median};

type RawLaunch = unsafe extern "C" fn(Handle, u32, u32, u32, u32, u32, u32, u32, Handle, *mut *mut c_void, *mut *mut c_void) -> i32;

/// Launches per batch; below the queue depth at which drivers block the caller.
const BATCH: usize = 200;
const ROUNDS: usize = 300;

pub(super) fn measure(device: &Device) -> Result<Vec<Row>, Failure> {
    let kernel = inspect::embedded()?.load(device)?.kernel("vector_add")?;
    let stream = device.stream()?;
    let n = 256;
    let (a, b) = (stream.alloc_zeroed::<f32>(n)?, stream.alloc_zeroed::<f32>(n)?);
    let mut c = stream.alloc_zeroed::<f32>(n)?;
    let symbol = if device.info().vendor == Vendor::Nvidia { "cuLaunchKernel" } else { "hipModuleLaunchKernel" };
    let address = device.driver().symbol(symbol).ok_or_else(|| failed(format!("the driver does not export {symbol}")))?;
    // SAFETY: the vendors' launch call has this shape; the driver table's row of it is checked against their headers.
    let raw = unsafe { std::mem::transmute::<*const c_void, RawLaunch>(address) };
    let (mut pa, mut pb, mut pc, mut count) = (a.device_ptr(), b.device_ptr(), c.device_ptr(), n as i32);
    let mut params: [*mut c_void; 4] = [(&raw mut pa).cast(), (&raw mut pb).cast(), (&raw mut pc).cast(), (&raw mut count).cast()];
    let launch = Launch::for_elements(n, 256);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // Interleaved, so that clock changes affect both.
    for round in 0..ROUNDS + 20 {
        let start = Instant::now();
        for _ in 0..BATCH {
            // SAFETY: the kernel and the stream are live, and the arguments are the kernel's.
            let code = unsafe { raw(kernel.raw(), 1, 1, 1, 256, 1, 1, 0, stream.raw(), params.as_mut_ptr(), std::ptr::null_mut()) };
            if code != 0 {
                return Err(failed(format!("{symbol} returned error {code}")));
            }
        }
        let raw_time = start.elapsed().as_secs_f64();
        stream.synchronize()?;
        let start = Instant::now();
        for _ in 0..BATCH {
            // SAFETY: the arguments are the kernel's, and it stays within n elements.
            unsafe { kernel.launch(&stream, launch, (&a, &b, &mut c, n as i32))? };
        }
        let our_time = start.elapsed().as_secs_f64();
        stream.synchronize()?;
        if round >= 20 {
            ours.push(our_time / BATCH as f64 * 1e6);
            theirs.push(raw_time / BATCH as f64 * 1e6);
        }
    }
    let (ours, theirs) = (median(ours), median(theirs));
    Ok(vec![Row {
        what: "launch with 4 arguments".to_owned(),
        ours,
        raw: Some(theirs),
        unit: "µs",
        ratio: ours / theirs,
        target: Some((Bound::AtMost, 1.10)),
    }])
}
