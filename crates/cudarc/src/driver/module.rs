//! Modules and the functions in them.

use std::sync::Arc;

use warpwave::gpu::{Kernel, Module};

use super::context::CudaContext;
use crate::error::DriverError;
use crate::nvrtc::{Code, Ptx};
use crate::source::Container;

/// Code on a device. A source is compiled function by function, when each is loaded.
pub struct CudaModule {
    context: Arc<CudaContext>,
    code: Loaded,
}

enum Loaded {
    Source(Arc<Container>),
    Module(Module),
}

impl std::fmt::Debug for CudaModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if matches!(self.code, Loaded::Source(_)) { "source" } else { "code" };
        write!(f, "CudaModule({kind} for {:?})", self.context)
    }
}

impl CudaContext {
    /// Loads code: a packed source, PTX on NVIDIA, or a binary.
    pub fn load_module(self: &Arc<Self>, code: Ptx) -> Result<Arc<CudaModule>, DriverError> {
        let binary = match code.0 {
            Code::Text(text) => match Container::read(&text) {
                Some(container) => return Ok(Arc::new(CudaModule { context: self.clone(), code: Loaded::Source(container) })),
                None => text.into_bytes(),
            },
            Code::Binary(binary) => binary,
            Code::File(path) => std::fs::read(&path)
                .map_err(|error| DriverError::invalid(&format!("cannot read the module {}: {error}", path.display())))?,
        };
        let module = Module::load(&self.gpu.device, &binary)?;
        Ok(Arc::new(CudaModule { context: self.clone(), code: Loaded::Module(module) }))
    }
}

impl CudaModule {
    /// Loads a function: of a source, compiles it if it is not in the cache.
    pub fn load_function(self: &Arc<Self>, name: &str) -> Result<CudaFunction, DriverError> {
        let kernel = match &self.code {
            Loaded::Source(container) => self.context.gpu.function(container, name)?,
            Loaded::Module(module) => Arc::new(module.kernel(name)?),
        };
        Ok(CudaFunction { kernel })
    }
}

/// A kernel to launch.
#[derive(Clone)]
pub struct CudaFunction {
    pub(crate) kernel: Arc<Kernel>,
}

impl std::fmt::Debug for CudaFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaFunction({})", self.kernel.name())
    }
}
