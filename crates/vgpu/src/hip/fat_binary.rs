//! Fat binaries of compiled HIP programs: registered before `main`, with kernels and variables named by host addresses.
//!
//! The code is loaded on a device on first use there.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::{Arc, Mutex};

use super::error::{HipError, Status};
use super::module::{self, Function, function_attr};
use super::runtime::{Device, lock, runtime};
use super::types::{Dim3, Handle, Out, Text};
use super::{copy, launch, occupancy, stream};
use crate::code_object::{LoadedCodeObject, Variable};

/// `HIPF`.
const WRAPPER: u32 = 0x4849_5046;

/// The compiler's wrapper around a fat binary.
#[repr(C)]
struct Wrapper {
    magic: u32,
    version: u32,
    image: *const c_void,
}

/// The fat binary of a program or a shared library.
pub(super) struct FatBinary {
    image: usize,
    /// Loaded code objects by device ordinal.
    loaded: Mutex<HashMap<u32, Arc<LoadedCodeObject>>>,
}

impl FatBinary {
    fn on(&self, device: &Device) -> Result<Arc<LoadedCodeObject>, HipError> {
        let mut loaded = lock(&self.loaded);
        if let Some(code_object) = loaded.get(&device.ordinal) {
            return Ok(code_object.clone());
        }
        // SAFETY: `register`'s caller keeps the image valid until `unregister`.
        let code_object = Arc::new(unsafe { module::load_image(self.image as *const c_void, device) }?);
        loaded.insert(device.ordinal, code_object.clone());
        Ok(code_object)
    }
}

/// Kernels and variables by the host addresses that stand for them.
#[derive(Default)]
pub(super) struct HostSymbols {
    functions: HashMap<usize, (Arc<FatBinary>, String)>,
    variables: HashMap<usize, (Arc<FatBinary>, String)>,
}

/// # Safety
/// `wrapper` must be null or a fat binary wrapper whose image stays valid until `unregister`.
pub(super) unsafe fn register(wrapper: *const c_void) -> Handle {
    let add = || {
        if wrapper.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: it is not null; the rest is the caller's promise.
        let wrapper = unsafe { wrapper.cast::<Wrapper>().read_unaligned() };
        if wrapper.magic != WRAPPER || wrapper.version != 1 || wrapper.image.is_null() {
            return Err(HipError::INVALID_IMAGE);
        }
        Ok(runtime()?.fats.add(Arc::new(FatBinary { image: wrapper.image as usize, loaded: Mutex::default() })))
    };
    // The function cannot report an error: later uses do not find the symbols.
    add().unwrap_or(std::ptr::null_mut())
}

pub(super) fn unregister(fat: Handle) {
    let Ok(runtime) = runtime() else { return };
    let Ok(fat) = runtime.fats.remove(fat) else { return };
    let mut registered = lock(&runtime.registered);
    registered.functions.retain(|_, (owner, _)| !Arc::ptr_eq(owner, &fat));
    registered.variables.retain(|_, (owner, _)| !Arc::ptr_eq(owner, &fat));
}

#[allow(clippy::too_many_arguments)]
pub(super) fn function(
    fat: Handle,
    host: *const c_void,
    _device_function: *mut c_char,
    name: Text,
    _limit: c_uint,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_size: *mut c_void,
    _grid_size: *mut c_void,
    _wave: *mut c_int,
) {
    let add = || {
        let entry = (runtime()?.fats.get(fat)?, name.read()?);
        lock(&runtime()?.registered).functions.insert(host as usize, entry);
        Ok::<(), HipError>(())
    };
    let _ = add();
}

#[allow(clippy::too_many_arguments)]
pub(super) fn variable(
    fat: Handle,
    host: *mut c_void,
    _host_name: *mut c_char,
    name: Text,
    _external: c_int,
    _bytes: usize,
    _constant: c_int,
    _global: c_int,
) {
    let add = || {
        let entry = (runtime()?.fats.get(fat)?, name.read()?);
        lock(&runtime()?.registered).variables.insert(host as usize, entry);
        Ok::<(), HipError>(())
    };
    let _ = add();
}

/// Returns the kernel of a host address on a device.
fn kernel(host: *const c_void, device: &Arc<Device>) -> Result<Arc<Function>, HipError> {
    let (fat, name) = lock(&runtime()?.registered).functions.get(&(host as usize)).cloned().ok_or(HipError::INVALID_FUNCTION)?;
    Function::named(device, &fat.on(device)?, &name).map(Arc::new).ok_or(HipError::INVALID_FUNCTION)
}

/// Returns the variable of a host address on the current device.
fn symbol(host: *const c_void) -> Result<Variable, HipError> {
    let runtime = runtime()?;
    let (fat, name) = lock(&runtime.registered).variables.get(&(host as usize)).cloned().ok_or(HipError::INVALID_SYMBOL)?;
    fat.on(runtime.healthy()?)?.variable(&name).cloned().ok_or(HipError::INVALID_SYMBOL)
}

thread_local! {
    /// Launch configurations that `<<<…>>>` pushed and the kernel's host stub pops.
    static CONFIGURATIONS: RefCell<Vec<(Dim3, Dim3, usize, usize)>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn push_configuration(grid: Dim3, block: Dim3, shared: usize, stream: Handle) -> Status {
    CONFIGURATIONS.with_borrow_mut(|all| all.push((grid, block, shared, stream as usize)));
    Ok(())
}

pub(super) fn pop_configuration(grid: Out<Dim3>, block: Out<Dim3>, shared: Out<usize>, stream: Out<Handle>) -> Status {
    let last = CONFIGURATIONS.with_borrow_mut(Vec::pop).ok_or(HipError::MISSING_CONFIGURATION)?;
    grid.put(last.0)?;
    block.put(last.1)?;
    shared.put(last.2)?;
    stream.put(last.3 as Handle)
}

/// # Safety
/// `parameters` must be null or point to a pointer to a value of each kernel parameter.
unsafe fn launch_as(
    host: *const c_void,
    grid: Dim3,
    block: Dim3,
    parameters: *mut *mut c_void,
    shared: usize,
    handle: Handle,
    cooperative: bool,
) -> Status {
    let device = stream::of(handle)?.device.clone();
    device.check()?;
    let shared = u32::try_from(shared).map_err(|_| HipError::INVALID_VALUE)?;
    // SAFETY: the caller's promise.
    unsafe { launch::with_parameters(&kernel(host, &device)?, grid.all(), block.all(), shared, handle, parameters, cooperative) }
}

/// # Safety
/// `parameters` must be null or point to a pointer to a value of each kernel parameter.
pub(super) unsafe fn launch(
    host: *const c_void,
    grid: Dim3,
    block: Dim3,
    parameters: *mut *mut c_void,
    shared: usize,
    stream: Handle,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { launch_as(host, grid, block, parameters, shared, stream, false) }
}

/// # Safety
/// `parameters` must be null or point to a pointer to a value of each kernel parameter.
pub(super) unsafe fn launch_cooperative(
    host: *const c_void,
    grid: Dim3,
    block: Dim3,
    parameters: *mut *mut c_void,
    shared: c_uint,
    stream: Handle,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { launch_as(host, grid, block, parameters, shared as usize, stream, true) }
}

pub(super) fn symbol_address(out: Out<u64>, host: *const c_void) -> Status {
    out.put(symbol(host)?.address)
}

pub(super) fn symbol_size(out: Out<usize>, host: *const c_void) -> Status {
    out.put(symbol(host)?.bytes as usize)
}

/// Returns the address of `bytes` bytes of a variable, at `offset`.
fn part(host: *const c_void, bytes: usize, offset: usize) -> Result<u64, HipError> {
    let variable = symbol(host)?;
    let end = (offset as u64).checked_add(bytes as u64).filter(|end| *end <= variable.bytes);
    end.map(|_| variable.address + offset as u64).ok_or(HipError::INVALID_VALUE)
}

/// # Safety
/// Host memory that is not registered must be valid for the copy until it is done.
pub(super) unsafe fn to_symbol_async(
    host: *const c_void,
    from: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
    stream: Handle,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { copy::copy_async(part(host, bytes, offset)? as *mut c_void, from, bytes, kind, stream) }
}

/// # Safety
/// Host memory that is not registered must be valid for the copy until it is done.
pub(super) unsafe fn from_symbol_async(
    to: *mut c_void,
    host: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
    stream: Handle,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { copy::copy_async(to, part(host, bytes, offset)? as *const c_void, bytes, kind, stream) }
}

/// # Safety
/// Host memory that is not registered must be valid for the copy until it is done.
pub(super) unsafe fn to_symbol(host: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { copy::copy(part(host, bytes, offset)? as *mut c_void, from, bytes, kind) }
}

/// # Safety
/// Host memory that is not registered must be valid for the copy until it is done.
pub(super) unsafe fn from_symbol(to: *mut c_void, host: *const c_void, bytes: usize, offset: usize, kind: c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { copy::copy(to, part(host, bytes, offset)? as *const c_void, bytes, kind) }
}

/// `hipFuncAttributes`.
#[repr(C)]
pub struct FunctionAttributes {
    binary_version: c_int,
    cache_mode: c_int,
    constant_bytes: usize,
    local_bytes: usize,
    max_dynamic_shared: c_int,
    max_threads: c_int,
    registers: c_int,
    preferred_carveout: c_int,
    ptx_version: c_int,
    shared_bytes: usize,
}

pub(super) fn function_attributes(out: Out<FunctionAttributes>, host: *const c_void) -> Status {
    let function = kernel(host, runtime()?.healthy()?)?;
    let get = |number| module::attribute_of(&function, number);
    out.put(FunctionAttributes {
        binary_version: get(function_attr::BINARY_VERSION)?,
        cache_mode: get(function_attr::CACHE_MODE_CA)?,
        constant_bytes: 0,
        local_bytes: usize::try_from(get(function_attr::LOCAL_SIZE_BYTES)?).unwrap_or(0),
        max_dynamic_shared: get(function_attr::MAX_DYNAMIC_SHARED_SIZE_BYTES)?,
        max_threads: get(function_attr::MAX_THREADS_PER_BLOCK)?,
        registers: get(function_attr::NUM_REGS)?,
        preferred_carveout: get(function_attr::PREFERRED_SHARED_MEMORY_CARVEOUT)?,
        ptx_version: get(function_attr::PTX_VERSION)?,
        shared_bytes: usize::try_from(get(function_attr::SHARED_SIZE_BYTES)?).unwrap_or(0),
    })
}

/// Nothing to set: every kernel may use all LDS.
pub(super) fn set_attribute(host: *const c_void, _attribute: c_int, _value: c_int) -> Status {
    kernel(host, runtime()?.healthy()?).map(drop)
}

pub(super) fn set_cache(host: *const c_void, _preference: c_int) -> Status {
    kernel(host, runtime()?.healthy()?).map(drop)
}

pub(super) fn max_active_blocks(out: Out<c_int>, host: *const c_void, block: c_int, shared: usize) -> Status {
    occupancy::active(out, &*kernel(host, runtime()?.healthy()?)?, block, shared)
}

pub(super) fn max_active_blocks_with_flags(out: Out<c_int>, host: *const c_void, block: c_int, shared: usize, _flags: c_uint) -> Status {
    max_active_blocks(out, host, block, shared)
}

pub(super) fn best_block(grid: Out<c_int>, block: Out<c_int>, host: *const c_void, shared: usize, limit: c_int) -> Status {
    occupancy::best(grid, block, &*kernel(host, runtime()?.healthy()?)?, shared, limit)
}
