//! Modules: loaded programs, their kernels and variables.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex};

use super::card;
use super::code::{self, Code, Status};
use super::runtime::{Device, lock, runtime};
use super::types::{DevicePtr, Handle, Out, Text};
use super::{capture, occupancy};
use crate::loader::{self, LoadError};
use crate::program::{Kernel, Program};

/// A loaded program. Queued work keeps the program itself.
pub(super) struct Module {
    pub device: Arc<Device>,
    pub program: Arc<Program>,
    /// Handles given out for its kernels, by the kernel's place.
    functions: Mutex<HashMap<usize, usize>>,
}

/// A kernel of a module.
pub(super) struct Function {
    pub device: Arc<Device>,
    pub program: Arc<Program>,
    /// Its place among the program's kernels.
    index: usize,
}

impl Function {
    pub fn named(device: &Arc<Device>, program: &Arc<Program>, name: &str) -> Option<Function> {
        let index = program.kernels.iter().position(|kernel| kernel.name == name)?;
        Some(Function { device: device.clone(), program: program.clone(), index })
    }

    pub fn kernel(&self) -> Result<&Kernel, Code> {
        self.program.kernels.get(self.index).ok_or(Code::INVALID_HANDLE)
    }
}

/// The bytes of an image that comes without a length.
fn image_bytes<'a>(image: *const c_void) -> Result<&'a [u8], LoadError> {
    let start = image.cast::<u8>();
    // SAFETY: the application hands a whole image: what its headers refer to is there.
    let read = |offset: u64, bytes: u64| unsafe { std::slice::from_raw_parts(start.add(offset as usize), bytes as usize) };
    // Byte by byte at first: text that is handed over may be shorter than any magic number.
    let begins = |magic: &[u8]| magic.iter().zip(0..).all(|(byte, at)| read(at, 1) == [*byte]);
    if !begins(b"\x7fELF") && !begins(b"__CLANG_OFFLOAD_BUNDLE__") && !begins(b"CCOB") {
        return Err(LoadError::UnknownFormat { bytes: 4 });
    }
    let bytes = loader::extent(&read)?;
    Ok(read(0, bytes))
}

/// The number of a failed load, whose sentence is remembered.
fn refused(error: &LoadError) -> Code {
    let code = match error {
        LoadError::OtherArch { .. } | LoadError::NotInBundle { .. } => Code::NO_BINARY_FOR_GPU,
        LoadError::Undefined { .. } => Code::UNDEFINED_SYMBOL,
        LoadError::NoMemory { .. } => Code::OUT_OF_MEMORY,
        _ => Code::INVALID_IMAGE,
    };
    code::say(code, &error.to_string());
    code
}

/// Loads an image that comes without a length.
pub(super) fn load_image(image: *const c_void, device: &Device) -> Result<Program, Code> {
    let memory = &runtime()?.memory;
    let loaded = image_bytes(image).and_then(|bytes| Program::load(bytes, device.arch, device.ordinal, memory));
    loaded.map_err(|error| refused(&error))
}

fn load_bytes(out: Out<Handle>, bytes: Result<&[u8], LoadError>) -> Status {
    let runtime = runtime()?;
    let device = runtime.working()?.clone();
    let loaded = bytes.and_then(|bytes| Program::load(bytes, device.arch, device.ordinal, &runtime.memory));
    let program = Arc::new(loaded.map_err(|error| refused(&error))?);
    out.put(runtime.modules.add(Arc::new(Module { device, program, functions: Mutex::default() })))
}

pub(super) fn load_data(out: Out<Handle>, image: *const c_void) -> Status {
    if out.is_null() || image.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    capture::forbid()?;
    load_bytes(out, image_bytes(image))
}

/// The options tell a compiler how to make machine code, which this is already.
pub(super) fn load_data_ex(out: Out<Handle>, image: *const c_void, _count: u32, _options: *mut c_int, _values: *mut *mut c_void) -> Status {
    load_data(out, image)
}

pub(super) fn load(out: Out<Handle>, path: Text) -> Status {
    let path = path.read()?;
    if out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    capture::forbid()?;
    let bytes = std::fs::read(&path).map_err(|error| {
        code::say(Code::FILE_NOT_FOUND, &format!("{path}: {error}"));
        Code::FILE_NOT_FOUND
    })?;
    load_bytes(out, Ok(&bytes))
}

pub(super) fn unload(handle: Handle) -> Status {
    let runtime = runtime()?;
    let module = runtime.modules.remove(handle)?;
    for function in lock(&module.functions).values() {
        let _ = runtime.functions.remove(*function as Handle);
    }
    Ok(())
}

pub(super) fn function(out: Out<Handle>, module: Handle, name: Text) -> Status {
    let runtime = runtime()?;
    let (module, name) = (runtime.modules.get(module)?, name.read()?);
    if out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let index = module.program.kernels.iter().position(|kernel| kernel.name == name).ok_or(Code::NOT_FOUND)?;
    let mut functions = lock(&module.functions);
    let handle = *functions.entry(index).or_insert_with(|| {
        let (device, program) = (module.device.clone(), module.program.clone());
        runtime.functions.add(Arc::new(Function { device, program, index })) as usize
    });
    out.put(handle as Handle)
}

pub(super) fn global(out: Out<DevicePtr>, bytes: Out<usize>, module: Handle, name: Text) -> Status {
    let (module, name) = (runtime()?.modules.get(module)?, name.read()?);
    let variable = module.program.variable(&name).ok_or(Code::NOT_FOUND)?;
    bytes.put_if_wanted(variable.bytes as usize);
    out.put_if_wanted(variable.address);
    Ok(())
}

/// `hipFunction_attribute`.
pub(super) fn function_attribute(out: Out<c_int>, attribute: c_int, function: Handle) -> Status {
    out.put(attribute_of(&*runtime()?.functions.get(function)?, attribute)?)
}

pub(super) fn attribute_of(function: &Function, attribute: c_int) -> Result<c_int, Code> {
    let kernel = function.kernel()?;
    let value = match attribute {
        // The most threads of a block.
        0 => occupancy::largest_block(function.device.card, function.device.arch, kernel),
        // Bytes of shared, constant and local memory.
        1 => kernel.descriptor.group_segment,
        2 => 0,
        3 => kernel.descriptor.private_segment,
        // Registers.
        4 => kernel.vgprs,
        // The versions of PTX and machine code.
        5 | 6 => 10 * super::properties::capability(function.device.arch).0 + super::properties::capability(function.device.arch).1,
        // How caches were asked for.
        7 => 0,
        // The most dynamic shared memory, and the share of it that is preferred.
        8 => card::LDS.saturating_sub(kernel.descriptor.group_segment),
        9 => 0,
        _ => return Err(Code::INVALID_VALUE),
    };
    Ok(c_int::try_from(value).unwrap_or(c_int::MAX))
}

/// The kernel's name; it lives as long as the process.
pub(super) fn function_name(function: Handle) -> *const c_char {
    let named = runtime().and_then(|runtime| runtime.functions.get(function));
    let name = named.and_then(|function| function.kernel().map(|kernel| kernel.name.clone())).unwrap_or_default();
    super::device::leak(&name)
}
