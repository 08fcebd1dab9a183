//! The kernels of a device: compiled when first asked for, checked input, one launch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Device, Kernel, Slice, Stream};
use warpwave_jit::{Jit, JitError};

use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::layout::MOST_DIMS;
use crate::plan::{Operand, Plan, Way, plan};
use crate::source::Recipe;
use crate::view::View;

/// The operations of a device. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Kernels(Arc<Inner>);

struct Inner {
    device: Device,
    jit: Jit,
    loaded: Mutex<HashMap<Recipe, Arc<Loaded>>>,
}

/// The kernels of one recipe, as the sources name them.
struct Loaded {
    vectors: Kernel,
    rows: Kernel,
    single: Kernel,
    single64: Kernel,
}

/// Numbers of a call, as the struct of the kernels.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Scalars {
    pub floats: [f64; 2],
    pub ints: [i64; 2],
}

impl Scalars {
    pub fn new(a: Scalar, b: Scalar) -> Scalars {
        Scalars { floats: [a.as_f64(), b.as_f64()], ints: [a.as_i64(), b.as_i64()] }
    }
}

/// A checked call: views of one shape, of types that the recipe's kernels take.
pub(crate) struct Call<'a> {
    pub recipe: Recipe,
    pub scalars: Scalars,
    pub inputs: &'a [(&'static str, View<'a>)],
}

impl Kernels {
    /// For a device; what is compiled goes through `jit` and its cache.
    pub fn new(device: &Device, jit: &Jit) -> Kernels {
        Kernels(Arc::new(Inner { device: device.clone(), jit: jit.clone(), loaded: Mutex::default() }))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Checks what all operations have in common, then launches. `out` was borrowed to be written.
    pub(crate) fn run(&self, stream: &Stream, call: &Call<'_>, out: View<'_>) -> Result<()> {
        let op = call.recipe.name();
        let views = || std::iter::once(("the result", out)).chain(call.inputs.iter().copied());
        self.check_device(&op, "the stream", stream.device())?;
        views().try_for_each(|(what, view)| self.check_device(&op, what, view.device()))?;
        let shape = out.layout().shape();
        for (what, view) in call.inputs {
            if view.layout().shape() != shape {
                return Err(Error::WrongShape { op, what, found: view.layout().shape().to_vec(), expected: shape.to_vec() });
            }
            if view.clashes(&out) {
                return Err(Error::Overlap { op, what: format!("{what} overlaps the result, and is not the same elements") });
            }
        }
        if out.layout().is_empty() {
            return Ok(());
        }
        let operand = |view: View<'_>| {
            let mut strides = [0; MOST_DIMS];
            strides[..shape.len()].copy_from_slice(view.layout().strides());
            Operand { address: view.address(), size: view.dtype().size(), strides }
        };
        let operands: Vec<Operand> = views().map(|(_, view)| operand(view)).collect();
        let Plan { way, launch } = plan(shape, &operands, call.recipe.unroll);
        let loaded = self.loaded(&call.recipe)?;
        let mut pointers = [Arg::from(0u64); 4];
        for (pointer, (_, view)) in pointers.iter_mut().zip(views()) {
            *pointer = Arg::from(first(&view));
        }
        let [out, a, b, c] = pointers;
        let scalars = Arg::value(&call.scalars);
        // SAFETY: the kernels were made for these types and take these arguments; every place they reach was checked against its
        // view's memory when the view was made, and they write the result's alone, whose places differ for each element.
        let launched = unsafe {
            match &way {
                Way::Vectors { n, head } => loaded.vectors.launch(stream, launch, (out, a, b, c, scalars, *n, *head)),
                Way::Rows(dims) => loaded.rows.launch(stream, launch, (out, a, b, c, scalars, Arg::value(dims))),
                Way::Single(dims) => loaded.single.launch(stream, launch, (out, a, b, c, scalars, Arg::value(dims))),
                Way::Single64(dims) => loaded.single64.launch(stream, launch, (out, a, b, c, scalars, Arg::value(dims))),
            }
        };
        launched.map_err(|reason| Error::Launch { op, reason: Arc::new(reason) })
    }

    fn check_device(&self, op: &str, what: &'static str, device: &Device) -> Result<()> {
        let expected = &self.0.device;
        if device == expected {
            return Ok(());
        }
        let [found, expected] = [device, expected].map(|device| device.name().to_owned());
        Err(Error::WrongDevice { op: op.to_owned(), what, found, expected })
    }

    fn loaded(&self, recipe: &Recipe) -> Result<Arc<Loaded>> {
        let known = || self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = known().get(recipe) {
            return Ok(loaded.clone());
        }
        // Not under the lock: others' kernels need not wait for this compile.
        let name = recipe.name();
        let load = || -> Result<Loaded, JitError> {
            let module = self.0.jit.load(&self.0.device, &recipe.source())?;
            let kernel = |way: &str| module.kernel(&format!("{name}_{way}"));
            Ok(Loaded { vectors: kernel("vectors")?, rows: kernel("rows")?, single: kernel("single")?, single64: kernel("single64")? })
        };
        let failed = |reason| Error::Kernel { op: name.clone(), device: self.0.device.name().to_owned(), reason: Arc::new(reason) };
        let loaded = Arc::new(load().map_err(failed)?);
        Ok(known().entry(*recipe).or_insert(loaded).clone())
    }
}

/// The memory from a view's first element on.
fn first<'a>(view: &View<'a>) -> Slice<'a, u8> {
    let start = view.layout().offset() * view.dtype().size();
    view.data().slice(start..).unwrap_or_else(|error| unreachable!("checked when the view was made: {error}"))
}

/// Refuses a type, in words.
pub(crate) fn wrong_type(op: &str, what: &'static str, found: DType, expected: impl ToString) -> Error {
    Error::WrongType { op: op.to_owned(), what, found, expected: expected.to_string() }
}

#[cfg(test)]
mod tests {
    use warpwave_gpu::{Driver, Vendor};

    use super::*;
    use crate::layout::Layout;
    use crate::source::File;

    /// Borrows keep views of safe code apart: only in here can they be made to overlap.
    #[test]
    fn inputs_that_overlap_the_result_otherwise_than_in_place_are_refused() {
        let names = warpwave_vgpu::hip::Config::from_env().unwrap().names();
        // SAFETY: the virtual GPU's functions have the shapes of HIP's, which the table's rows declare.
        let driver = unsafe { Driver::in_process("vgpu", Vendor::Amd, warpwave_vgpu::hip::lookup, Some(names)) }.unwrap();
        let device = driver.device(0).unwrap();
        let (kernels, stream) = (Kernels::new(&device, &Jit::default()), device.stream().unwrap());
        let buffer = stream.upload(&vec![0x5au8; 1024]).unwrap();
        let view = |shape: &[usize], strides: &[usize], offset, dtype| {
            View::of_bytes(&buffer, dtype, Layout::new(shape, strides, offset).unwrap()).unwrap()
        };
        let out = view(&[4, 4], &[8, 1], 8, DType::F32);
        for (input, overlaps) in [
            (view(&[4, 4], &[8, 1], 8, DType::F32), false),
            (view(&[4, 4], &[8, 1], 8, DType::I32), false),
            (view(&[4, 4], &[4, 1], 64, DType::F32), false),
            (view(&[4, 4], &[8, 1], 9, DType::F32), true),
            (view(&[4, 4], &[1, 8], 8, DType::F32), true),
            (view(&[4, 4], &[0, 1], 8, DType::F32), true),
            (view(&[4, 4], &[8, 1], 16, DType::F16), true),
            (view(&[4, 4], &[2, 1], 0, DType::F32), true),
            (view(&[4, 4], &[2, 1], 0, DType::F16), false),
        ] {
            assert_eq!(input.clashes(&out), overlaps, "{input:?}");
            if overlaps {
                let recipe = Recipe { file: File::Moving, op: "copy", ty: "u32", from: None, unroll: 4 };
                let scalars = Scalars::new(Scalar::Int(0), Scalar::Int(0));
                let refused = kernels.run(&stream, &Call { recipe, scalars, inputs: &[("the input", input)] }, out);
                assert!(matches!(refused, Err(Error::Overlap { .. })), "{input:?}");
            }
        }
        assert!(stream.download(&buffer).unwrap().iter().all(|byte| *byte == 0x5a));
    }
}
