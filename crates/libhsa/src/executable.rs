//! Code object readers, executables and their symbols.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use warpwave_vgpu::code_object::LoadedCodeObject;
use warpwave_vgpu::loader::LoadError;

use crate::agent::{self, Agent};
use crate::log;
use crate::runtime::{Runtime, lock, put, runtime, visit, write};
use crate::status::{Result, Status};
use crate::types::{Handle, VisitAgentSymbol, VisitSymbol};

/// The largest code object in a file.
const MAX_FILE: u64 = 1 << 31;

/// A code object that was not loaded yet.
enum Code {
    /// Memory of the program, which it keeps until it destroys the reader.
    Borrowed(usize, usize),
    Owned(Vec<u8>),
}

/// An executable: code objects for devices.
#[derive(Default)]
struct Executable {
    is_frozen: bool,
    profile: u32,
    rounding: u32,
    loaded: Vec<(usize, Arc<LoadedCodeObject>)>,
    /// Symbols that were asked for, by device and name.
    symbols: HashMap<(usize, String), Handle>,
}

/// A symbol.
#[derive(Clone)]
struct Symbol {
    executable: Handle,
    device: usize,
    name: String,
    code_object: Arc<LoadedCodeObject>,
    /// The kernel's index; a variable otherwise.
    kernel: Option<usize>,
}

/// A loaded kernel.
struct LoadedKernel {
    device: usize,
    code_object: Arc<LoadedCodeObject>,
    index: usize,
}

/// The readers, executables and symbols of the process by handle.
#[derive(Default)]
pub struct Executables {
    last: AtomicU64,
    readers: Mutex<HashMap<Handle, Arc<Code>>>,
    executables: Mutex<HashMap<Handle, Executable>>,
    symbols: Mutex<HashMap<Handle, Symbol>>,
    /// Loaded kernels by the address of their descriptor.
    kernels: RwLock<HashMap<u64, LoadedKernel>>,
}

impl Executables {
    /// Returns a handle that no other reader, executable or symbol had.
    fn new_handle(&self) -> Handle {
        // Even as an address it is invalid.
        0x5745_5845_0000_0001 + 2 * self.last.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the kernel of a dispatch packet's `kernel_object`.
    pub fn kernel(&self, object: u64, device: usize) -> Option<(Arc<LoadedCodeObject>, usize)> {
        let kernels = self.kernels.read().unwrap_or_else(PoisonError::into_inner);
        let kernel = kernels.get(&object).filter(|kernel| kernel.device == device)?;
        Some((kernel.code_object.clone(), kernel.index))
    }

    fn add_reader(&self, code: Code) -> Handle {
        let handle = self.new_handle();
        lock(&self.readers).insert(handle, Arc::new(code));
        handle
    }
}

/// # Safety
/// The memory must stay valid until the reader is destroyed, and `to` be null or writable.
pub unsafe fn hsa_code_object_reader_create_from_memory(code: usize, bytes: usize, to: *mut Handle) -> Result {
    let executables = &runtime()?.executables;
    if code == 0 || bytes == 0 || to.is_null() {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    unsafe { write(to, executables.add_reader(Code::Borrowed(code, bytes))) }
}

/// # Safety
/// `to` must be null or writable.
pub unsafe fn hsa_code_object_reader_create_from_file(file: i32, to: *mut Handle) -> Result {
    let executables = &runtime()?.executables;
    if file < 0 {
        return Err(Status::INVALID_FILE);
    }
    // SAFETY: the descriptor is the caller's, who keeps it open; it is not closed here.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(file) });
    let bytes = file.metadata().map_err(|_| Status::INVALID_FILE)?.len();
    if bytes == 0 || bytes > MAX_FILE {
        return Err(Status::INVALID_FILE);
    }
    let mut code = vec![0; bytes as usize];
    file.read_exact_at(&mut code, 0).map_err(|_| Status::INVALID_FILE)?;
    // SAFETY: the caller's promise.
    unsafe { write(to, executables.add_reader(Code::Owned(code))) }
}

pub fn hsa_code_object_reader_destroy(reader: Handle) -> Result {
    lock(&runtime()?.executables.readers).remove(&reader).map(|_| ()).ok_or(Status::INVALID_CODE_OBJECT_READER)
}

/// # Safety
/// `to` must be null or writable.
pub unsafe fn hsa_executable_create_alt(profile: u32, rounding: u32, _options: *const c_char, to: *mut Handle) -> Result {
    let executables = &runtime()?.executables;
    if profile > 1 || rounding > 2 || to.is_null() {
        return Err(Status::INVALID_ARGUMENT);
    }
    let handle = executables.new_handle();
    lock(&executables.executables).insert(handle, Executable { profile, rounding, ..Executable::default() });
    // SAFETY: the caller's promise.
    unsafe { write(to, handle) }
}

/// # Safety
/// As for [`hsa_executable_create_alt`]. `state` is `hsa_executable_state_t`.
pub unsafe fn hsa_executable_create(profile: u32, state: u32, options: *const c_char, to: *mut Handle) -> Result {
    if state != 0 {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    unsafe { hsa_executable_create_alt(profile, 0, options, to) }
}

/// No kernel of the executable may run.
pub fn hsa_executable_destroy(executable: Handle) -> Result {
    let executables = &runtime()?.executables;
    let removed = lock(&executables.executables).remove(&executable).ok_or(Status::INVALID_EXECUTABLE)?;
    lock(&executables.symbols).retain(|_, symbol| symbol.executable != executable);
    let mut kernels = executables.kernels.write().unwrap_or_else(PoisonError::into_inner);
    for kernel in removed.loaded.iter().flat_map(|(_, code_object)| &code_object.kernels) {
        kernels.remove(&kernel.kernel_object);
    }
    Ok(())
}

fn load(runtime: &'static Runtime, device: usize, code: &Code) -> Result<Arc<LoadedCodeObject>> {
    let bytes = match code {
        // SAFETY: the program promised to keep the memory until it destroys the reader, which it may not do during this call.
        Code::Borrowed(start, bytes) => unsafe { std::slice::from_raw_parts(*start as *const u8, *bytes) },
        Code::Owned(bytes) => bytes,
    };
    let loaded = LoadedCodeObject::load(bytes, runtime.devices[device].arch, device as u32, &runtime.memory);
    loaded.map(Arc::new).map_err(|error| {
        log::warn(format_args!("cannot load a code object of {} bytes: {error}", bytes.len()));
        match error {
            LoadError::OtherArch { .. } | LoadError::NotInBundle { .. } => Status::INCOMPATIBLE_ARGUMENTS,
            LoadError::OutOfMemory { .. } => Status::OUT_OF_RESOURCES,
            _ => Status::INVALID_CODE_OBJECT,
        }
    })
}

/// # Safety
/// `to` must be null or writable.
pub unsafe fn hsa_executable_load_agent_code_object(
    executable: Handle,
    agent: Handle,
    reader: Handle,
    _options: *const c_char,
    to: *mut Handle,
) -> Result {
    let runtime = runtime()?;
    let executables = &runtime.executables;
    let (device, _) = runtime.device(agent)?;
    match lock(&executables.executables).get(&executable) {
        None => return Err(Status::INVALID_EXECUTABLE),
        Some(executable) if executable.is_frozen => return Err(Status::FROZEN_EXECUTABLE),
        Some(_) => {}
    }
    let code = lock(&executables.readers).get(&reader).cloned().ok_or(Status::INVALID_CODE_OBJECT_READER)?;
    let loaded = load(runtime, device, &code)?;
    let mut kernels = executables.kernels.write().unwrap_or_else(PoisonError::into_inner);
    for (index, kernel) in loaded.kernels.iter().enumerate() {
        kernels.insert(kernel.kernel_object, LoadedKernel { device, code_object: loaded.clone(), index });
    }
    drop(kernels);
    lock(&executables.executables).get_mut(&executable).ok_or(Status::INVALID_EXECUTABLE)?.loaded.push((device, loaded));
    // The handle of the loaded code object may be left out.
    if to.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { write(to, executables.new_handle()) }
}

pub fn hsa_executable_freeze(executable: Handle, _options: *const c_char) -> Result {
    let mut executables = lock(&runtime()?.executables.executables);
    let executable = executables.get_mut(&executable).ok_or(Status::INVALID_EXECUTABLE)?;
    if std::mem::replace(&mut executable.is_frozen, true) { Err(Status::FROZEN_EXECUTABLE) } else { Ok(()) }
}

/// # Safety
/// `to` must be null or writable.
pub unsafe fn hsa_executable_validate(executable: Handle, to: *mut u32) -> Result {
    let executables = lock(&runtime()?.executables.executables);
    executables.get(&executable).ok_or(Status::INVALID_EXECUTABLE)?;
    // SAFETY: the caller's promise.
    unsafe { write(to, 0) }
}

/// # Safety
/// `to` must be null or writable.
pub unsafe fn hsa_executable_validate_alt(executable: Handle, _options: *const c_char, to: *mut u32) -> Result {
    // SAFETY: the caller's promise.
    unsafe { hsa_executable_validate(executable, to) }
}

/// # Safety
/// `to` must be null or writable for the attribute's type.
pub unsafe fn hsa_executable_get_info(executable: Handle, attribute: u32, to: *mut c_void) -> Result {
    let executables = lock(&runtime()?.executables.executables);
    let executable = executables.get(&executable).ok_or(Status::INVALID_EXECUTABLE)?;
    // SAFETY: the caller's promise.
    unsafe {
        match attribute {
            1 => put(to, executable.profile),
            2 => put(to, u32::from(executable.is_frozen)),
            3 => put(to, executable.rounding),
            _ => Err(Status::INVALID_ARGUMENT),
        }
    }
}

/// Returns the symbol of a name: a kernel's ends with `.kd`.
fn find(executable: &Executable, owner: Handle, device: Option<usize>, name: &str) -> Option<Symbol> {
    executable.loaded.iter().filter(|(of, _)| device.is_none_or(|device| device == *of)).find_map(|(device, code_object)| {
        let is_kernel = |kernel: &str| name.strip_suffix(".kd") == Some(kernel) || name == kernel;
        let kernel = code_object.kernels.iter().position(|kernel| is_kernel(&kernel.name));
        (kernel.is_some() || code_object.variable(name).is_some()).then(|| Symbol {
            executable: owner,
            device: *device,
            name: name.to_owned(),
            code_object: code_object.clone(),
            kernel,
        })
    })
}

impl Executables {
    fn symbol(&self, owner: Handle, device: Option<usize>, name: &str) -> Result<Handle> {
        let mut executables = lock(&self.executables);
        let executable = executables.get_mut(&owner).ok_or(Status::INVALID_EXECUTABLE)?;
        let symbol = find(executable, owner, device, name).ok_or(Status::INVALID_SYMBOL_NAME)?;
        let key = (symbol.device, symbol.name.clone());
        let handle = *executable.symbols.entry(key).or_insert_with(|| self.new_handle());
        lock(&self.symbols).entry(handle).or_insert(symbol);
        Ok(handle)
    }

    /// Returns the symbols of an executable, of one device or of all.
    fn all_symbols(&self, owner: Handle, device: Option<usize>) -> Result<Vec<Handle>> {
        let mut names = Vec::new();
        let executables = lock(&self.executables);
        let loaded = &executables.get(&owner).ok_or(Status::INVALID_EXECUTABLE)?.loaded;
        for (of, code_object) in loaded.iter().filter(|(of, _)| device.is_none_or(|device| device == *of)) {
            names.extend(code_object.kernels.iter().map(|kernel| (*of, format!("{}.kd", kernel.name))));
            names.extend(code_object.variables.iter().map(|variable| (*of, variable.name.clone())));
        }
        drop(executables);
        names.into_iter().map(|(of, name)| self.symbol(owner, Some(of), &name)).collect()
    }
}

/// # Safety
/// `name` must be a C string, `agent` null or readable and `to` writable, unless null.
pub unsafe fn hsa_executable_get_symbol_by_name(executable: Handle, name: *const c_char, agent: *const Handle, to: *mut Handle) -> Result {
    let runtime = runtime()?;
    if name.is_null() || to.is_null() {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    let (name, agent) = unsafe { (CStr::from_ptr(name), agent.as_ref()) };
    let device = agent.map(|agent| runtime.device(*agent)).transpose()?.map(|(index, _)| index);
    let name = name.to_str().map_err(|_| Status::INVALID_SYMBOL_NAME)?;
    let symbol = runtime.executables.symbol(executable, device, name)?;
    // SAFETY: the caller's promise.
    unsafe { write(to, symbol) }
}

/// # Safety
/// As for [`hsa_executable_get_symbol_by_name`].
pub unsafe fn hsa_executable_get_symbol(
    executable: Handle,
    _module: *const c_char,
    name: *const c_char,
    agent: Handle,
    _convention: i32,
    to: *mut Handle,
) -> Result {
    // SAFETY: the caller's promise.
    unsafe { hsa_executable_get_symbol_by_name(executable, name, &agent, to) }
}

/// # Safety
/// `callback` must accept an executable, a symbol and `data`.
pub unsafe fn hsa_executable_iterate_symbols(executable: Handle, callback: VisitSymbol, data: *mut c_void) -> Result {
    let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
    let symbols = runtime()?.executables.all_symbols(executable, None)?;
    // SAFETY: the caller's promise.
    visit(symbols, |symbol| unsafe { callback(executable, symbol, data) })
}

/// # Safety
/// `callback` must accept an executable, an agent, a symbol and `data`.
pub unsafe fn hsa_executable_iterate_agent_symbols(
    executable: Handle,
    agent: Handle,
    callback: VisitAgentSymbol,
    data: *mut c_void,
) -> Result {
    let runtime = runtime()?;
    let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
    let Agent::Gpu(device, _) = runtime.agent(agent)? else { return Ok(()) };
    let symbols = runtime.executables.all_symbols(executable, Some(device))?;
    // SAFETY: the caller's promise.
    visit(symbols, |symbol| unsafe { callback(executable, agent, symbol, data) })
}

/// # Safety
/// `to` must be null or writable for the attribute's type.
pub unsafe fn hsa_executable_symbol_get_info(symbol: Handle, attribute: u32, to: *mut c_void) -> Result {
    let known = lock(&runtime()?.executables.symbols).get(&symbol).cloned();
    let symbol = known.ok_or(Status::INVALID_EXECUTABLE_SYMBOL)?;
    let kernel = symbol.kernel.and_then(|index| symbol.code_object.kernels.get(index));
    let variable = symbol.code_object.variable(&symbol.name).filter(|_| kernel.is_none());
    // SAFETY: the caller's promise.
    unsafe {
        match (attribute, kernel, variable) {
            // Kind: kernel or variable.
            (0, _, _) => put(to, u32::from(kernel.is_some())),
            (1, _, _) => put(to, symbol.name.len() as u32),
            (2, _, _) if to.is_null() => Err(Status::INVALID_ARGUMENT),
            (2, _, _) => {
                std::ptr::copy_nonoverlapping(symbol.name.as_ptr(), to.cast(), symbol.name.len());
                Ok(())
            }
            (3, _, _) => put(to, 0u32),
            (4, _, _) => Ok(()),
            // Linkage: program.
            (5, _, _) => put(to, 1u32),
            (17, _, _) => put(to, true),
            (20, _, _) => put(to, agent::handle(symbol.device)),
            (22, Some(kernel), _) => put(to, kernel.kernel_object),
            (11, Some(kernel), _) => put(to, kernel.descriptor.kernarg_size),
            (12, Some(_), _) => put(to, 64u32),
            (13, Some(kernel), _) => put(to, kernel.descriptor.group_segment_fixed_size),
            (14, Some(kernel), _) => put(to, kernel.descriptor.private_segment_fixed_size),
            (15, Some(kernel), _) => put(to, kernel.dynamic_stack),
            (18, Some(_), _) => put(to, 0u32),
            (21, _, Some(variable)) => put(to, variable.address),
            (6 | 7, _, Some(_)) => put(to, 0u32),
            (8, _, Some(_)) => put(to, 16u32),
            (9, _, Some(variable)) => put(to, u32::try_from(variable.bytes).unwrap_or(u32::MAX)),
            (10, _, Some(_)) => put(to, false),
            _ => Err(Status::INVALID_ARGUMENT),
        }
    }
}

/// The functions of AMD's loader extension.
pub mod loader {
    use super::*;

    pub const MINOR_VERSION: u16 = 3;

    /// Returns the number of functions that a version of the table has.
    pub fn functions_of(minor: u16) -> Option<usize> {
        [3, 5, 6, 7].get(usize::from(minor)).copied()
    }

    /// Returns the table of version 1.3.
    pub fn table() -> [*const c_void; 7] {
        let refused = refused as *const c_void;
        [query_host_address as *const c_void, refused, query_executable as *const c_void, refused, refused, refused, refused]
    }

    unsafe extern "C" fn query_host_address(device: u64, host: *mut u64) -> u32 {
        // SAFETY: the caller's promise: the pointer is null or writable. Devices have the host's addresses.
        unsafe { write(host, device) }.map_or_else(|status| status.0, |()| 0)
    }

    unsafe extern "C" fn query_executable(address: u64, to: *mut Handle) -> u32 {
        let Ok(runtime) = runtime() else { return Status::NOT_INITIALIZED.0 };
        let contains = |code_object: &LoadedCodeObject| {
            let (start, words) = code_object.code();
            address >= start && address < start + 4 * words.len() as u64
        };
        let executables = lock(&runtime.executables.executables);
        let found = executables.iter().find(|(_, executable)| executable.loaded.iter().any(|(_, object)| contains(object)));
        let Some((handle, _)) = found else { return Status::INVALID_ARGUMENT.0 };
        // SAFETY: the caller's promise: the pointer is null or writable.
        unsafe { write(to, *handle) }.map_or_else(|status| status.0, |()| 0)
    }

    extern "C" fn refused() -> u32 {
        log::debug(format_args!("a function of the loader extension is not supported"));
        Status::ERROR.0
    }
}
