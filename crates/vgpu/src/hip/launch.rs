//! Kernel launches.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use super::error::{HipError, Status};
use super::module::Function;
use super::runtime::runtime;
use super::types::Handle;
use super::{model, occupancy, stream, work};
use crate::code_object::{Argument, Kernel};
use crate::exec::Launch;

/// Keys of the `extra` parameter: `HIP_LAUNCH_PARAM_BUFFER_POINTER` and `…_SIZE`.
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;

/// The arguments of a launch.
struct KernelParams {
    /// `kernelParams`: a pointer to each argument.
    each: *mut *mut c_void,
    /// `extra`: a list that names a buffer with all arguments.
    block: *mut *mut c_void,
}

/// # Safety
/// The parameters must be null or as HIP asks: a pointer to a value of each kernel parameter, or a terminated list of keys and values.
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn launch(
    function: Handle,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    dynamic_lds: c_uint,
    stream: Handle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Status {
    let function = runtime()?.functions.get(function)?;
    let given = KernelParams { each: parameters, block: extra };
    // SAFETY: the caller's promise.
    unsafe { queue(&function, [gx, gy, gz], [bx, by, bz], dynamic_lds, stream, &given, false) }
}

/// # Safety
/// The parameters must be null or as HIP asks: a pointer to a value of each kernel parameter, or a terminated list of keys and values.
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn launch_cooperative(
    function: Handle,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    dynamic_lds: c_uint,
    stream: Handle,
    parameters: *mut *mut c_void,
) -> Status {
    let function = runtime()?.functions.get(function)?;
    let given = KernelParams { each: parameters, block: std::ptr::null_mut() };
    // SAFETY: the caller's promise.
    unsafe { queue(&function, [gx, gy, gz], [bx, by, bz], dynamic_lds, stream, &given, true) }
}

/// Launches a kernel with a pointer to each argument.
///
/// # Safety
/// The parameters must be null or as HIP asks: a pointer to a value of each kernel parameter, or a terminated list of keys and values.
pub(super) unsafe fn with_parameters(
    function: &Arc<Function>,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_lds: u32,
    stream: Handle,
    parameters: *mut *mut c_void,
    cooperative: bool,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        queue(function, grid, block, dynamic_lds, stream, &KernelParams { each: parameters, block: std::ptr::null_mut() }, cooperative)
    }
}

/// # Safety
/// The parameters must be null or as HIP asks: a pointer to a value of each kernel parameter, or a terminated list of keys and values.
unsafe fn queue(
    function: &Arc<Function>,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_lds: u32,
    stream: Handle,
    given: &KernelParams,
    cooperative: bool,
) -> Status {
    let (kernel, stream) = (function.kernel()?, stream::of(stream)?);
    if !Arc::ptr_eq(&function.device, &stream.device) {
        return Err(HipError::INVALID_HANDLE);
    }
    stream.device.check()?;
    check_shape(function, kernel, grid, block, dynamic_lds, cooperative)?;
    // SAFETY: the caller's promise.
    let arguments = unsafe { arguments(kernel, given) }?;
    let launch = Launch { grid, block, dynamic_lds, arguments, cooperative };
    stream.submit(work::kernel(&function.code_object, kernel, launch)?)
}

fn check_shape(function: &Function, kernel: &Kernel, grid: [u32; 3], block: [u32; 3], dynamic_lds: u32, cooperative: bool) -> Status {
    let (model, arch) = (function.device.model, function.device.arch);
    for (groups, threads) in grid.into_iter().zip(block) {
        let fits = (1..=model::MAX_GRID).contains(&groups) && (1..=model::MAX_BLOCK).contains(&threads);
        // The hardware counts workitems, not workgroups, in 32 bits.
        if !fits || u64::from(groups) * u64::from(threads) > u64::from(u32::MAX) {
            return Err(HipError::INVALID_CONFIGURATION);
        }
    }
    let threads: u64 = block.iter().map(|n| u64::from(*n)).product();
    if threads > u64::from(occupancy::largest_block(model, arch, kernel)) {
        return Err(HipError::INVALID_CONFIGURATION);
    }
    if u64::from(kernel.descriptor.group_segment_fixed_size) + u64::from(dynamic_lds) > u64::from(model::LDS) {
        return Err(HipError::INVALID_VALUE);
    }
    if cooperative {
        let blocks = occupancy::blocks_per_unit(model, arch, kernel, threads as u32, u64::from(dynamic_lds));
        let groups: u128 = grid.iter().map(|n| u128::from(*n)).product();
        if groups > u128::from(blocks) * u128::from(model.compute_units) {
            return Err(HipError::COOPERATIVE_TOO_LARGE);
        }
    }
    Ok(())
}

/// Returns the explicit arguments at the offsets that the metadata states.
///
/// # Safety
/// The parameters must be null or as HIP asks: a pointer to a value of each kernel parameter, or a terminated list of keys and values.
unsafe fn arguments(kernel: &Kernel, given: &KernelParams) -> Result<Vec<u8>, HipError> {
    let explicit: Vec<&Argument> = kernel.arguments.iter().filter(|argument| !argument.is_hidden()).collect();
    let end = explicit.iter().map(|argument| argument.offset as usize + argument.size as usize).max().unwrap_or(0);
    let mut bytes = vec![0; end];
    if !given.block.is_null() {
        // SAFETY: the caller's promise.
        let block = unsafe { block(given.block) }?;
        if block.len() < end {
            return Err(HipError::INVALID_VALUE);
        }
        bytes.copy_from_slice(&block[..end]);
        return Ok(bytes);
    }
    if given.each.is_null() && !explicit.is_empty() {
        return Err(HipError::INVALID_VALUE);
    }
    for (index, argument) in explicit.into_iter().enumerate() {
        // SAFETY: the caller's promise: one pointer for each parameter.
        let from = unsafe { given.each.add(index).read() };
        if from.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: the caller's promise: it points to a value of the parameter's size.
        let value = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), argument.size as usize) };
        bytes[argument.offset as usize..][..value.len()].copy_from_slice(value);
    }
    Ok(bytes)
}

/// Returns the argument buffer of an `extra` list.
///
/// # Safety
/// `list` must be a terminated list of keys and values, and its values valid.
unsafe fn block<'a>(list: *mut *mut c_void) -> Result<&'a [u8], HipError> {
    let (mut start, mut size) = (std::ptr::null::<u8>(), None);
    for index in 0.. {
        // SAFETY: the caller's promise: the list is terminated, and a value follows each key.
        let key = unsafe { list.add(2 * index).read() } as usize;
        // The end marker differs between HIP and CUDA; any other key ends the list too.
        if key != BUFFER_POINTER && key != BUFFER_SIZE {
            break;
        }
        // SAFETY: as above.
        let value = unsafe { list.add(2 * index + 1).read() };
        if key == BUFFER_POINTER {
            start = value.cast();
        } else if !value.is_null() {
            // SAFETY: the caller's promise: the value of this key points to a size.
            size = Some(unsafe { value.cast::<usize>().read_unaligned() });
        }
    }
    match size {
        Some(0) => Ok(&[]),
        // SAFETY: the caller's promise: the buffer has that size.
        Some(size) if !start.is_null() => Ok(unsafe { std::slice::from_raw_parts(start, size) }),
        _ => Err(HipError::INVALID_VALUE),
    }
}
