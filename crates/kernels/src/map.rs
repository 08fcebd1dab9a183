//! One launch over the elements of views of one shape.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Stream};

use crate::dtype::Scalar;
use crate::error::{Error, Result};
use crate::kernels::{Kernels, refused, wrong_shape};
use crate::layout::MOST_DIMS;
use crate::plan::{Operand, Plan, Way, plan};
use crate::source::Recipe;
use crate::tuning::Knob;
use crate::view::View;

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

/// Blocks of each unit up to which a launch starts early.
const FEW_BLOCKS: u32 = 4;

impl Kernels {
    /// Checks what all elementwise operations have in common, then launches. `out` was borrowed to be written.
    pub(crate) fn run(&self, stream: &Stream, call: &Call<'_>, out: View<'_>) -> Result<()> {
        let operands = self.checked(stream, call, out)?;
        operands.map_or(Ok(()), |operands| self.launch(stream, call, out, &operands))
    }

    /// The operands, the result first, if there is anything to do.
    pub(crate) fn checked(&self, stream: &Stream, call: &Call<'_>, out: View<'_>) -> Result<Option<Vec<Operand>>> {
        let op = call.recipe.name();
        let views = || std::iter::once(("the result", out)).chain(call.inputs.iter().copied());
        self.check_devices(&op, stream, views())?;
        let shape = out.layout().shape();
        for (what, view) in call.inputs {
            if view.layout().shape() != shape {
                let expected = format!("the result has {shape:?}; `Layout::broadcast_to` repeats dimensions");
                return Err(wrong_shape(&op, what, view, expected));
            }
            if view.clashes(&out) {
                return Err(Error::Overlap { op, what: format!("{what} overlaps the result, and is not the same elements") });
            }
        }
        if out.layout().is_empty() {
            return Ok(None);
        }
        let operand = |view: View<'_>| {
            let mut strides = [0; MOST_DIMS];
            strides[..shape.len()].copy_from_slice(view.layout().strides());
            Operand { address: view.address(), size: view.dtype().size(), strides }
        };
        Ok(Some(views().map(|(_, view)| operand(view)).collect()))
    }

    /// One launch over what was checked.
    pub(crate) fn launch(&self, stream: &Stream, call: &Call<'_>, out: View<'_>, operands: &[Operand]) -> Result<()> {
        let Plan { way, launch } = plan(out.layout().shape(), operands, call.recipe.number("UNROLL"), self.tuning().get(Knob::Block));
        let info = self.device().info();
        let few = info.dependent_launch && launch.grid[0] <= FEW_BLOCKS * info.compute_units;
        let (launch, recipe) = if few { (launch.pdl(), call.recipe.with("EARLY", 1)) } else { (launch, call.recipe) };
        let kernels = self.load(&recipe)?;
        let mut pointers = [Arg::from(0u64); 4];
        let views = std::iter::once(&out).chain(call.inputs.iter().map(|(_, view)| view));
        for (pointer, view) in pointers.iter_mut().zip(views) {
            *pointer = Arg::from(view.start());
        }
        let [out, a, b, c] = pointers;
        let scalars = Arg::value(&call.scalars);
        // SAFETY: the kernels were made for these types and take these arguments; every place they reach was checked against its
        // view's memory when the view was made, and they write the result's alone, whose places differ for each element.
        let launched = unsafe {
            match &way {
                Way::Vectors { n, head } => kernels[0].launch(stream, launch, (out, a, b, c, scalars, *n, *head)),
                Way::Rows(dims) => kernels[1].launch(stream, launch, (out, a, b, c, scalars, Arg::value(dims))),
                Way::Single(dims) => kernels[2].launch(stream, launch, (out, a, b, c, scalars, Arg::value(dims))),
                Way::Single64(dims) => kernels[3].launch(stream, launch, (out, a, b, c, scalars, Arg::value(dims))),
            }
        };
        launched.map_err(refused(&call.recipe.name()))
    }
}

#[cfg(test)]
mod tests {
    use warpwave_gpu::{Driver, Vendor};

    use warpwave_jit::Jit;

    use super::*;
    use crate::dtype::DType;
    use crate::layout::Layout;

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
                let recipe = crate::elementwise::recipes(kernels.tuning()).into_iter().find(|recipe| recipe.name() == "copy_u32").unwrap();
                let scalars = Scalars::new(Scalar::Int(0), Scalar::Int(0));
                let refused = kernels.run(&stream, &Call { recipe, scalars, inputs: &[("the input", input)] }, out);
                assert!(matches!(refused, Err(Error::Overlap { .. })), "{input:?}");
            }
        }
        assert!(stream.download(&buffer).unwrap().iter().all(|byte| *byte == 0x5a));
    }
}
