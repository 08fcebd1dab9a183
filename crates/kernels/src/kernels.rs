//! The kernels of a device, compiled on first use, and checks that all operations share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use warpwave_gpu::{Device, Kernel, Stream};
use warpwave_jit::{CompilerChoice, Jit, JitError, Target};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::matmul::blas::Blas;
use crate::program::Program;
use crate::tuning::Tuning;
use crate::view::View;

/// The operations of a device. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Kernels(Arc<Inner>);

struct Inner {
    device: Device,
    jit: Jit,
    tuning: Tuning,
    loaded: Mutex<HashMap<Program, Arc<[Kernel]>>>,
    blas: OnceLock<Result<Blas, Arc<warpwave_gpu::Error>>>,
}

impl Kernels {
    /// Creates the kernels of a device with the tuning saved for its model. Programs come from the archives of `jit`, its cache, or its
    /// compiler. Archives have the default tuning, which is used without a compiler.
    pub fn new(device: &Device, jit: &Jit) -> Kernels {
        let saved = jit.cache().path().map_or_else(Tuning::default, |cache| Tuning::load(cache, &device.info().model));
        let can_compile = || jit.toolchains().choose(&Target::of(device), CompilerChoice::Auto).is_ok();
        let tuning = if saved == Tuning::default() || can_compile() { saved } else { Tuning::default() };
        Kernels::with_tuning(device, jit, tuning)
    }

    /// Creates the kernels of a device with a given tuning.
    pub fn with_tuning(device: &Device, jit: &Jit, tuning: Tuning) -> Kernels {
        Kernels(Arc::new(Inner { device: device.clone(), jit: jit.clone(), tuning, loaded: Mutex::default(), blas: OnceLock::new() }))
    }

    /// The tuning in use.
    pub fn tuning(&self) -> &Tuning {
        &self.0.tuning
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The vendor's BLAS library; looked up once.
    pub(crate) fn blas(&self) -> Result<&Blas, Arc<warpwave_gpu::Error>> {
        self.0.blas.get_or_init(|| Blas::open(&self.0.device).map_err(Arc::new)).as_ref().map_err(Arc::clone)
    }

    /// Fails if the stream or a view is on another device.
    pub(crate) fn check_devices<'a>(
        &self,
        op: &str,
        stream: &Stream,
        mut views: impl Iterator<Item = (&'static str, View<'a>)>,
    ) -> Result<()> {
        self.check_device(op, "stream", stream.device())?;
        views.try_for_each(|(what, view)| self.check_device(op, what, view.device()))
    }

    fn check_device(&self, op: &str, what: &'static str, device: &Device) -> Result<()> {
        let expected = &self.0.device;
        if device == expected {
            return Ok(());
        }
        let [found, expected] = [device, expected].map(|device| device.name().to_owned());
        Err(Error::WrongDevice { op: op.to_owned(), what, found, expected })
    }

    /// Returns the kernels of a program, in the order of its file's list.
    pub(crate) fn load(&self, program: &Program) -> Result<Arc<[Kernel]>> {
        let known = || self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = known().get(program) {
            return Ok(loaded.clone());
        }
        // Not under the lock: other kernels need not wait for this compilation.
        let name = program.name();
        let load = || -> Result<Arc<[Kernel]>, JitError> {
            let module = self.0.jit.load(&self.0.device, &program.source())?;
            program.file.kernels.iter().map(|kernel| Ok(module.kernel(&format!("{name}{kernel}"))?)).collect()
        };
        let failed = |reason| Error::Kernel { op: name.clone(), device: self.0.device.name().to_owned(), reason: Arc::new(reason) };
        let loaded = load().map_err(failed)?;
        Ok(known().entry(*program).or_insert(loaded).clone())
    }
}

/// An [`Error::WrongType`].
pub(crate) fn dtype_error(op: &str, what: &'static str, found: DType, expected: impl ToString) -> Error {
    Error::WrongType { op: op.to_owned(), what, found, expected: expected.to_string() }
}

/// Fails if a view has another type.
pub(crate) fn check_same_dtype(op: &str, what: &'static str, view: View<'_>, expected: DType) -> Result<()> {
    if view.dtype() == expected { Ok(()) } else { Err(dtype_error(op, what, view.dtype(), expected)) }
}

/// An [`Error::WrongShape`].
pub(crate) fn shape_error(op: &str, what: &'static str, view: &View<'_>, expected: impl ToString) -> Error {
    Error::WrongShape { op: op.to_owned(), what, found: view.layout().shape().to_vec(), expected: expected.to_string() }
}

/// Fails if an input shares memory with the result.
pub(crate) fn check_no_overlap(op: &str, what: &'static str, input: &View<'_>, out: &View<'_>) -> Result<()> {
    if !input.overlaps(out) {
        return Ok(());
    }
    Err(Error::Overlap { op: op.to_owned(), what: format!("{what} overlaps the result") })
}

/// Wraps the driver's error for a launch or an allocation.
pub(crate) fn launch_error(op: &str) -> impl FnOnce(warpwave_gpu::Error) -> Error {
    move |reason| Error::Launch { op: op.to_owned(), reason: Arc::new(reason) }
}
