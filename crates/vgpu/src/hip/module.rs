//! Modules: loaded code objects, their kernels and variables.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex};

use super::error::{self, HipError, Status};
use super::model;
use super::runtime::{Device, lock, runtime};
use super::types::{DevicePtr, Handle, Out, Text};
use super::{capture, occupancy};
use crate::code_object::{Kernel, LoadedCodeObject};
use crate::loader::{self, LoadError};

/// `hipFunction_attribute`.
pub(super) mod function_attr {
    use std::ffi::c_int;
    pub const MAX_THREADS_PER_BLOCK: c_int = 0;
    pub const SHARED_SIZE_BYTES: c_int = 1;
    pub const CONST_SIZE_BYTES: c_int = 2;
    pub const LOCAL_SIZE_BYTES: c_int = 3;
    pub const NUM_REGS: c_int = 4;
    pub const PTX_VERSION: c_int = 5;
    pub const BINARY_VERSION: c_int = 6;
    pub const CACHE_MODE_CA: c_int = 7;
    pub const MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;
    pub const PREFERRED_SHARED_MEMORY_CARVEOUT: c_int = 9;
}

/// A module. Queued work keeps the code object alive.
pub(super) struct Module {
    pub device: Arc<Device>,
    pub code_object: Arc<LoadedCodeObject>,
    /// Function handles by kernel index.
    functions: Mutex<HashMap<usize, usize>>,
}

/// A kernel of a module.
pub(super) struct Function {
    pub device: Arc<Device>,
    pub code_object: Arc<LoadedCodeObject>,
    /// Index among the code object's kernels.
    index: usize,
}

impl Function {
    pub fn named(device: &Arc<Device>, code_object: &Arc<LoadedCodeObject>, name: &str) -> Option<Function> {
        let index = code_object.kernels.iter().position(|kernel| kernel.name == name)?;
        Some(Function { device: device.clone(), code_object: code_object.clone(), index })
    }

    pub fn kernel(&self) -> Result<&Kernel, HipError> {
        self.code_object.kernels.get(self.index).ok_or(HipError::INVALID_HANDLE)
    }
}

/// Returns the bytes of an image that is passed without a length.
///
/// # Safety
/// `image` must point to a complete code object or offload bundle, or to text that ends with a NUL.
unsafe fn image_bytes<'a>(image: *const c_void) -> Result<&'a [u8], LoadError> {
    let start = image.cast::<u8>();
    // SAFETY: the caller's promise: what the headers refer to is part of the image.
    let read = |offset: u64, bytes: u64| unsafe { std::slice::from_raw_parts(start.add(offset as usize), bytes as usize) };
    // Byte by byte: text that is passed by mistake may be shorter than a magic number.
    let begins = |magic: &[u8]| magic.iter().zip(0..).all(|(byte, at)| read(at, 1) == [*byte]);
    if !begins(b"\x7fELF") && !begins(b"__CLANG_OFFLOAD_BUNDLE__") && !begins(b"CCOB") {
        return Err(LoadError::UnknownFormat { bytes: 4 });
    }
    let bytes = loader::image_size(&read)?;
    Ok(read(0, bytes))
}

/// Returns the error code of a failed load, and sets its text.
fn refused(error: &LoadError) -> HipError {
    let code = match error {
        LoadError::OtherArch { .. } | LoadError::NotInBundle { .. } => HipError::NO_BINARY_FOR_GPU,
        LoadError::Undefined { .. } => HipError::UNDEFINED_SYMBOL,
        LoadError::OutOfMemory { .. } => HipError::OUT_OF_MEMORY,
        _ => HipError::INVALID_IMAGE,
    };
    error::set_detail(code, &error.to_string());
    code
}

/// Loads an image that is passed without a length.
///
/// # Safety
/// `image` must point to a complete code object or offload bundle, or to text that ends with a NUL.
pub(super) unsafe fn load_image(image: *const c_void, device: &Device) -> Result<LoadedCodeObject, HipError> {
    let memory = &runtime()?.memory;
    // SAFETY: the caller's promise.
    let bytes = unsafe { image_bytes(image) };
    let loaded = bytes.and_then(|bytes| LoadedCodeObject::load(bytes, device.arch, device.ordinal, memory));
    loaded.map_err(|error| refused(&error))
}

fn load_bytes(out: Out<Handle>, bytes: Result<&[u8], LoadError>) -> Status {
    let runtime = runtime()?;
    let device = runtime.healthy()?.clone();
    let loaded = bytes.and_then(|bytes| LoadedCodeObject::load(bytes, device.arch, device.ordinal, &runtime.memory));
    let code_object = Arc::new(loaded.map_err(|error| refused(&error))?);
    out.put(runtime.modules.add(Arc::new(Module { device, code_object, functions: Mutex::default() })))
}

/// # Safety
/// `image` must point to a complete code object or offload bundle, or to text that ends with a NUL.
pub(super) unsafe fn load_data(out: Out<Handle>, image: *const c_void) -> Status {
    if out.is_null() || image.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    capture::reject_during()?;
    // SAFETY: the caller's promise.
    load_bytes(out, unsafe { image_bytes(image) })
}

/// The options are for a JIT compiler, which machine code does not need.
///
/// # Safety
/// `image` must point to a complete code object or offload bundle, or to text that ends with a NUL.
pub(super) unsafe fn load_data_ex(
    out: Out<Handle>,
    image: *const c_void,
    _count: u32,
    _options: *mut c_int,
    _values: *mut *mut c_void,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { load_data(out, image) }
}

pub(super) fn load(out: Out<Handle>, path: Text) -> Status {
    let path = path.read()?;
    if out.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    capture::reject_during()?;
    let bytes = std::fs::read(&path).map_err(|error| {
        error::set_detail(HipError::FILE_NOT_FOUND, &format!("{path}: {error}"));
        HipError::FILE_NOT_FOUND
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
        return Err(HipError::INVALID_VALUE);
    }
    let index = module.code_object.kernels.iter().position(|kernel| kernel.name == name).ok_or(HipError::NOT_FOUND)?;
    let mut functions = lock(&module.functions);
    let handle = *functions.entry(index).or_insert_with(|| {
        let (device, code_object) = (module.device.clone(), module.code_object.clone());
        runtime.functions.add(Arc::new(Function { device, code_object, index })) as usize
    });
    out.put(handle as Handle)
}

pub(super) fn global(out: Out<DevicePtr>, bytes: Out<usize>, module: Handle, name: Text) -> Status {
    let (module, name) = (runtime()?.modules.get(module)?, name.read()?);
    let variable = module.code_object.variable(&name).ok_or(HipError::NOT_FOUND)?;
    bytes.put_if_non_null(variable.bytes as usize);
    out.put_if_non_null(variable.address);
    Ok(())
}

/// Returns a function attribute ([`function_attr`]).
pub(super) fn function_attribute(out: Out<c_int>, attribute: c_int, function: Handle) -> Status {
    out.put(attribute_of(&*runtime()?.functions.get(function)?, attribute)?)
}

pub(super) fn attribute_of(function: &Function, attribute: c_int) -> Result<c_int, HipError> {
    let kernel = function.kernel()?;
    let value = match attribute {
        function_attr::MAX_THREADS_PER_BLOCK => occupancy::largest_block(function.device.model, function.device.arch, kernel),
        function_attr::SHARED_SIZE_BYTES => kernel.descriptor.group_segment_fixed_size,
        function_attr::CONST_SIZE_BYTES => 0,
        function_attr::LOCAL_SIZE_BYTES => kernel.descriptor.private_segment_fixed_size,
        function_attr::NUM_REGS => kernel.vgprs,
        function_attr::PTX_VERSION | function_attr::BINARY_VERSION => {
            10 * super::properties::capability(function.device.arch).0 + super::properties::capability(function.device.arch).1
        }
        function_attr::CACHE_MODE_CA => 0,
        function_attr::MAX_DYNAMIC_SHARED_SIZE_BYTES => model::LDS.saturating_sub(kernel.descriptor.group_segment_fixed_size),
        function_attr::PREFERRED_SHARED_MEMORY_CARVEOUT => 0,
        _ => return Err(HipError::INVALID_VALUE),
    };
    Ok(c_int::try_from(value).unwrap_or(c_int::MAX))
}

/// Returns the kernel's name, which lives as long as the process.
pub(super) fn function_name(function: Handle) -> *const c_char {
    let named = runtime().and_then(|runtime| runtime.functions.get(function));
    let name = named.and_then(|function| function.kernel().map(|kernel| kernel.name.clone())).unwrap_or_default();
    super::device::leak(&name)
}
