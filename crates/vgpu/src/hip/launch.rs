//! Launches: shape and arguments checked, then queued.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use super::code::{Code, Status};
use super::module::Function;
use super::runtime::runtime;
use super::types::Handle;
use super::{card, occupancy, op, stream};
use crate::exec::Launch;
use crate::program::{Argument, Kernel};

/// `HIP_LAUNCH_PARAM_BUFFER_POINTER`, `…_SIZE` and `…_END`; CUDA's end is 0.
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;

/// Where a launch's arguments stand.
struct Given {
    /// A pointer to each argument.
    each: *mut *mut c_void,
    /// A list that names a block of them.
    block: *mut *mut c_void,
}

#[allow(clippy::too_many_arguments)]
pub(super) fn launch(
    function: Handle,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: Handle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Status {
    let function = runtime()?.functions.get(function)?;
    let given = Given { each: parameters, block: extra };
    queue(&function, [gx, gy, gz], [bx, by, bz], shared, stream, &given, false)
}

#[allow(clippy::too_many_arguments)]
pub(super) fn launch_cooperative(
    function: Handle,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: Handle,
    parameters: *mut *mut c_void,
) -> Status {
    let function = runtime()?.functions.get(function)?;
    let given = Given { each: parameters, block: std::ptr::null_mut() };
    queue(&function, [gx, gy, gz], [bx, by, bz], shared, stream, &given, true)
}

/// The same for a kernel at hand, with a pointer to each argument.
pub(super) fn with_parameters(
    function: &Arc<Function>,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Handle,
    parameters: *mut *mut c_void,
    cooperative: bool,
) -> Status {
    queue(function, grid, block, shared, stream, &Given { each: parameters, block: std::ptr::null_mut() }, cooperative)
}

fn queue(
    function: &Arc<Function>,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Handle,
    given: &Given,
    cooperative: bool,
) -> Status {
    let (kernel, stream) = (function.kernel()?, stream::of(stream)?);
    if !Arc::ptr_eq(&function.device, &stream.device) {
        return Err(Code::INVALID_HANDLE);
    }
    stream.device.check()?;
    check_shape(function, kernel, grid, block, shared, cooperative)?;
    let arguments = arguments(kernel, given)?;
    let launch = Launch { grid, block, shared, arguments, cooperative };
    stream.submit(op::kernel(&function.program, kernel, launch)?)
}

fn check_shape(function: &Function, kernel: &Kernel, grid: [u32; 3], block: [u32; 3], shared: u32, cooperative: bool) -> Status {
    let (card, arch) = (function.device.card, function.device.arch);
    for (groups, threads) in grid.into_iter().zip(block) {
        let fits = (1..=card::MAX_GRID).contains(&groups) && (1..=card::MAX_BLOCK).contains(&threads);
        // The hardware counts threads, not groups, in 32 bits.
        if !fits || u64::from(groups) * u64::from(threads) > u64::from(u32::MAX) {
            return Err(Code::INVALID_CONFIGURATION);
        }
    }
    let threads: u64 = block.iter().map(|n| u64::from(*n)).product();
    if threads > u64::from(occupancy::largest_block(card, arch, kernel)) {
        return Err(Code::INVALID_CONFIGURATION);
    }
    if u64::from(kernel.descriptor.group_segment) + u64::from(shared) > u64::from(card::LDS) {
        return Err(Code::INVALID_VALUE);
    }
    if cooperative {
        let room = occupancy::blocks_per_unit(card, arch, kernel, threads as u32, u64::from(shared));
        let groups: u128 = grid.iter().map(|n| u128::from(*n)).product();
        if groups > u128::from(room) * u128::from(card.compute_units) {
            return Err(Code::COOPERATIVE_TOO_LARGE);
        }
    }
    Ok(())
}

/// The explicit arguments, laid out as the metadata says.
fn arguments(kernel: &Kernel, given: &Given) -> Result<Vec<u8>, Code> {
    let explicit: Vec<&Argument> = kernel.arguments.iter().filter(|argument| !argument.hidden()).collect();
    let end = explicit.iter().map(|argument| argument.offset as usize + argument.size as usize).max().unwrap_or(0);
    let mut bytes = vec![0; end];
    if !given.block.is_null() {
        let block = block(given.block)?;
        if block.len() < end {
            return Err(Code::INVALID_VALUE);
        }
        bytes.copy_from_slice(&block[..end]);
        return Ok(bytes);
    }
    if given.each.is_null() && !explicit.is_empty() {
        return Err(Code::INVALID_VALUE);
    }
    for (index, argument) in explicit.into_iter().enumerate() {
        // SAFETY: the application hands one pointer for each parameter of the kernel.
        let from = unsafe { given.each.add(index).read() };
        if from.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: each points to a value of its parameter's size.
        let value = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), argument.size as usize) };
        bytes[argument.offset as usize..][..value.len()].copy_from_slice(value);
    }
    Ok(bytes)
}

/// The block that a list of keys and values names.
fn block<'a>(list: *mut *mut c_void) -> Result<&'a [u8], Code> {
    let (mut start, mut size) = (std::ptr::null::<u8>(), None);
    for index in 0.. {
        // SAFETY: the list goes on until its end mark; a key has a value behind it.
        let key = unsafe { list.add(2 * index).read() } as usize;
        // The end, which HIP and CUDA number differently; anything else ends it too.
        if key != BUFFER_POINTER && key != BUFFER_SIZE {
            break;
        }
        // SAFETY: as above.
        let value = unsafe { list.add(2 * index + 1).read() };
        if key == BUFFER_POINTER {
            start = value.cast();
        } else if !value.is_null() {
            // SAFETY: the value of this key points to a size.
            size = Some(unsafe { value.cast::<usize>().read_unaligned() });
        }
    }
    match size {
        Some(0) => Ok(&[]),
        // SAFETY: the application hands a block of that size.
        Some(size) if !start.is_null() => Ok(unsafe { std::slice::from_raw_parts(start, size) }),
        _ => Err(Code::INVALID_VALUE),
    }
}
