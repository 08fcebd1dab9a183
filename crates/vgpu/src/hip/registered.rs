//! What compiled HIP programs bring along: their code, registered before `main`, and kernels and variables named by host addresses.
//!
//! A program's code is loaded on a device when something of it is first used there.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::{Arc, Mutex};

use super::code::{Code, Status};
use super::module::{self, Function};
use super::runtime::{Device, lock, runtime};
use super::types::{Dim3, Handle, Out, Text};
use super::{copy, launch, occupancy, stream};
use crate::program::{Program, Variable};

/// `HIPF`.
const WRAPPER: u32 = 0x4849_5046;

/// What a compiler puts around a program's code.
#[repr(C)]
struct Wrapper {
    magic: u32,
    version: u32,
    image: *const c_void,
}

/// The code of a program or a shared library, for every device it has some for.
pub(super) struct Fat {
    image: usize,
    /// By device.
    loaded: Mutex<HashMap<u32, Arc<Program>>>,
}

impl Fat {
    fn on(&self, device: &Device) -> Result<Arc<Program>, Code> {
        let mut loaded = lock(&self.loaded);
        if let Some(program) = loaded.get(&device.ordinal) {
            return Ok(program.clone());
        }
        let program = Arc::new(module::load_image(self.image as *const c_void, device)?);
        loaded.insert(device.ordinal, program.clone());
        Ok(program)
    }
}

/// Names by the addresses that stand for them on the host.
#[derive(Default)]
pub(super) struct Registered {
    functions: HashMap<usize, (Arc<Fat>, String)>,
    variables: HashMap<usize, (Arc<Fat>, String)>,
}

pub(super) fn fat_binary(wrapper: *const c_void) -> Handle {
    let add = || {
        if wrapper.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: it is not null, and compilers hand a wrapper.
        let wrapper = unsafe { wrapper.cast::<Wrapper>().read_unaligned() };
        if wrapper.magic != WRAPPER || wrapper.version != 1 || wrapper.image.is_null() {
            return Err(Code::INVALID_IMAGE);
        }
        Ok(runtime()?.fats.add(Arc::new(Fat { image: wrapper.image as usize, loaded: Mutex::default() })))
    };
    // There is no way to say that it failed: what is used of it later is not found.
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
        Ok::<(), Code>(())
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
        Ok::<(), Code>(())
    };
    let _ = add();
}

/// The kernel behind a host address, on a device.
fn kernel(host: *const c_void, device: &Arc<Device>) -> Result<Arc<Function>, Code> {
    let (fat, name) = lock(&runtime()?.registered).functions.get(&(host as usize)).cloned().ok_or(Code::INVALID_FUNCTION)?;
    Function::named(device, &fat.on(device)?, &name).map(Arc::new).ok_or(Code::INVALID_FUNCTION)
}

/// The variable behind a host address, on the thread's device.
fn symbol(host: *const c_void) -> Result<Variable, Code> {
    let runtime = runtime()?;
    let (fat, name) = lock(&runtime.registered).variables.get(&(host as usize)).cloned().ok_or(Code::INVALID_SYMBOL)?;
    fat.on(runtime.working()?)?.variable(&name).cloned().ok_or(Code::INVALID_SYMBOL)
}

thread_local! {
    /// What `<<<…>>>` says, until the kernel's stub asks.
    static CONFIGURATIONS: RefCell<Vec<(Dim3, Dim3, usize, usize)>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn push_configuration(grid: Dim3, block: Dim3, shared: usize, stream: Handle) -> Status {
    CONFIGURATIONS.with_borrow_mut(|all| all.push((grid, block, shared, stream as usize)));
    Ok(())
}

pub(super) fn pop_configuration(grid: Out<Dim3>, block: Out<Dim3>, shared: Out<usize>, stream: Out<Handle>) -> Status {
    let last = CONFIGURATIONS.with_borrow_mut(Vec::pop).ok_or(Code::MISSING_CONFIGURATION)?;
    grid.put(last.0)?;
    block.put(last.1)?;
    shared.put(last.2)?;
    stream.put(last.3 as Handle)
}

fn launch_as(
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
    let shared = u32::try_from(shared).map_err(|_| Code::INVALID_VALUE)?;
    launch::with_parameters(&kernel(host, &device)?, grid.all(), block.all(), shared, handle, parameters, cooperative)
}

pub(super) fn launch(host: *const c_void, grid: Dim3, block: Dim3, parameters: *mut *mut c_void, shared: usize, stream: Handle) -> Status {
    launch_as(host, grid, block, parameters, shared, stream, false)
}

pub(super) fn launch_cooperative(
    host: *const c_void,
    grid: Dim3,
    block: Dim3,
    parameters: *mut *mut c_void,
    shared: c_uint,
    stream: Handle,
) -> Status {
    launch_as(host, grid, block, parameters, shared as usize, stream, true)
}

pub(super) fn symbol_address(out: Out<u64>, host: *const c_void) -> Status {
    out.put(symbol(host)?.address)
}

pub(super) fn symbol_size(out: Out<usize>, host: *const c_void) -> Status {
    out.put(symbol(host)?.bytes as usize)
}

/// The address of `bytes` bytes of a variable, from an offset on.
fn part(host: *const c_void, bytes: usize, offset: usize) -> Result<u64, Code> {
    let variable = symbol(host)?;
    let end = (offset as u64).checked_add(bytes as u64).filter(|end| *end <= variable.bytes);
    end.map(|_| variable.address + offset as u64).ok_or(Code::INVALID_VALUE)
}

pub(super) fn to_symbol_async(
    host: *const c_void,
    from: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
    stream: Handle,
) -> Status {
    copy::copy_async(part(host, bytes, offset)? as *mut c_void, from, bytes, kind, stream)
}

pub(super) fn from_symbol_async(to: *mut c_void, host: *const c_void, bytes: usize, offset: usize, kind: c_int, stream: Handle) -> Status {
    copy::copy_async(to, part(host, bytes, offset)? as *const c_void, bytes, kind, stream)
}

pub(super) fn to_symbol(host: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: c_int) -> Status {
    copy::copy(part(host, bytes, offset)? as *mut c_void, from, bytes, kind)
}

pub(super) fn from_symbol(to: *mut c_void, host: *const c_void, bytes: usize, offset: usize, kind: c_int) -> Status {
    copy::copy(to, part(host, bytes, offset)? as *const c_void, bytes, kind)
}

/// `hipFuncAttributes`.
#[repr(C)]
pub struct FunctionAttributes {
    binary_version: c_int,
    cache_mode: c_int,
    constant_bytes: usize,
    local_bytes: usize,
    most_dynamic_shared: c_int,
    most_threads: c_int,
    registers: c_int,
    carve_out: c_int,
    ptx_version: c_int,
    shared_bytes: usize,
}

pub(super) fn function_attributes(out: Out<FunctionAttributes>, host: *const c_void) -> Status {
    let function = kernel(host, runtime()?.working()?)?;
    let get = |number| module::attribute_of(&function, number);
    out.put(FunctionAttributes {
        binary_version: get(6)?,
        cache_mode: get(7)?,
        constant_bytes: 0,
        local_bytes: usize::try_from(get(3)?).unwrap_or(0),
        most_dynamic_shared: get(8)?,
        most_threads: get(0)?,
        registers: get(4)?,
        carve_out: get(9)?,
        ptx_version: get(5)?,
        shared_bytes: usize::try_from(get(1)?).unwrap_or(0),
    })
}

/// Nothing needs to be set: every kernel may have all shared memory.
pub(super) fn set_attribute(host: *const c_void, _attribute: c_int, _value: c_int) -> Status {
    kernel(host, runtime()?.working()?).map(drop)
}

pub(super) fn set_cache(host: *const c_void, _preference: c_int) -> Status {
    kernel(host, runtime()?.working()?).map(drop)
}

pub(super) fn max_active_blocks(out: Out<c_int>, host: *const c_void, block: c_int, shared: usize) -> Status {
    occupancy::active(out, &*kernel(host, runtime()?.working()?)?, block, shared)
}

pub(super) fn best_block(grid: Out<c_int>, block: Out<c_int>, host: *const c_void, shared: usize, limit: c_int) -> Status {
    occupancy::best(grid, block, &*kernel(host, runtime()?.working()?)?, shared, limit)
}
