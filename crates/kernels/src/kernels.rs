//! The kernels of a device, compiled when first asked for; and the checks that all operations share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use warpwave_gpu::{Device, Kernel, Stream};
use warpwave_jit::{Jit, JitError};

use crate::blas::Blas;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::source::Recipe;
use crate::tuning::Tuning;
use crate::view::View;

/// The operations of a device. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Kernels(Arc<Inner>);

struct Inner {
    device: Device,
    jit: Jit,
    tuning: Tuning,
    loaded: Mutex<HashMap<Recipe, Arc<[Kernel]>>>,
    blas: OnceLock<Result<Blas, Arc<warpwave_gpu::Error>>>,
}

impl Kernels {
    /// For a device, as tuned for its model; what is compiled goes through `jit` and its cache.
    pub fn new(device: &Device, jit: &Jit) -> Kernels {
        let tuning = jit.cache().path().map_or_else(Tuning::default, |cache| Tuning::load(cache, &device.info().model));
        Kernels::with_tuning(device, jit, tuning)
    }

    /// For a device, with these choices.
    pub fn with_tuning(device: &Device, jit: &Jit, tuning: Tuning) -> Kernels {
        Kernels(Arc::new(Inner { device: device.clone(), jit: jit.clone(), tuning, loaded: Mutex::default(), blas: OnceLock::new() }))
    }

    /// The choices that the kernels are made with.
    pub fn tuning(&self) -> &Tuning {
        &self.0.tuning
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The vendor's library of matrix products; it is looked for once.
    pub(crate) fn blas(&self) -> Result<&Blas, Arc<warpwave_gpu::Error>> {
        self.0.blas.get_or_init(|| Blas::open(&self.0.device).map_err(Arc::new)).as_ref().map_err(Arc::clone)
    }

    /// Refuses a stream or views of another device.
    pub(crate) fn check_devices<'a>(
        &self,
        op: &str,
        stream: &Stream,
        mut views: impl Iterator<Item = (&'static str, View<'a>)>,
    ) -> Result<()> {
        self.check_device(op, "the stream", stream.device())?;
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

    /// The kernels of a recipe, in the order of its file's list.
    pub(crate) fn load(&self, recipe: &Recipe) -> Result<Arc<[Kernel]>> {
        let known = || self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = known().get(recipe) {
            return Ok(loaded.clone());
        }
        // Not under the lock: others' kernels need not wait for this compile.
        let name = recipe.name();
        let load = || -> Result<Arc<[Kernel]>, JitError> {
            let module = self.0.jit.load(&self.0.device, &recipe.source())?;
            recipe.file.kernels.iter().map(|kernel| Ok(module.kernel(&format!("{name}{kernel}"))?)).collect()
        };
        let failed = |reason| Error::Kernel { op: name.clone(), device: self.0.device.name().to_owned(), reason: Arc::new(reason) };
        let loaded = load().map_err(failed)?;
        Ok(known().entry(*recipe).or_insert(loaded).clone())
    }
}

/// Refuses a type, in words.
pub(crate) fn wrong_type(op: &str, what: &'static str, found: DType, expected: impl ToString) -> Error {
    Error::WrongType { op: op.to_owned(), what, found, expected: expected.to_string() }
}

/// Refuses a type that is not this one.
pub(crate) fn same_type(op: &str, what: &'static str, view: View<'_>, expected: DType) -> Result<()> {
    if view.dtype() == expected { Ok(()) } else { Err(wrong_type(op, what, view.dtype(), expected)) }
}

/// Refuses a shape, in words.
pub(crate) fn wrong_shape(op: &str, what: &'static str, view: &View<'_>, expected: impl ToString) -> Error {
    Error::WrongShape { op: op.to_owned(), what, found: view.layout().shape().to_vec(), expected: expected.to_string() }
}

/// Refuses an input that shares memory with what is written.
pub(crate) fn apart(op: &str, what: &'static str, input: &View<'_>, out: &View<'_>) -> Result<()> {
    if !input.overlaps(out) {
        return Ok(());
    }
    Err(Error::Overlap { op: op.to_owned(), what: format!("{what} overlaps the result") })
}

/// The driver's refusal of a launch, or of memory for it.
pub(crate) fn refused(op: &str) -> impl FnOnce(warpwave_gpu::Error) -> Error {
    move |reason| Error::Launch { op: op.to_owned(), reason: Arc::new(reason) }
}
