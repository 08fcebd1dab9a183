//! Launches over views of one shape.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Stream};

use crate::dtype::Scalar;
use crate::elementwise::plan::{Operand, Plan, Variant, plan};
use crate::error::{Error, Result};
use crate::kernels::{Kernels, launch_error, shape_error};
use crate::layout::MAX_DIMS;
use crate::program::Program;
use crate::tuning::TuningParam;
use crate::view::View;

/// Scalar arguments; mirrors `Scalars` in `elementwise.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Scalars {
    pub floats: [f64; 2],
    pub ints: [i64; 2],
}

impl Scalars {
    pub fn new(a: Scalar, b: Scalar) -> Scalars {
        Scalars { floats: [a.to_f64(), b.to_f64()], ints: [a.to_i64(), b.to_i64()] }
    }
}

/// A call with views of one shape and of types the program was compiled for.
pub(crate) struct Call<'a> {
    pub program: Program,
    pub scalars: Scalars,
    pub inputs: &'a [(&'static str, View<'a>)],
}

/// The program for launches with PDL.
pub(crate) fn dependent(program: Program) -> Program {
    program.with("PDL", 1)
}

/// Whether [`Kernels::launch`] loads the program, and so [`dependent`] of it.
pub(crate) fn may_depend(program: &Program) -> bool {
    program.file.path.starts_with("elementwise/") && program.op != "transpose"
}

/// Up to this many blocks per multiprocessor a launch uses PDL.
const FEW_BLOCKS: u32 = 4;

impl Kernels {
    /// Runs the checks common to all elementwise operations, then launches. `out` was borrowed mutably.
    pub(crate) fn run(&self, stream: &Stream, call: &Call<'_>, out: View<'_>) -> Result<()> {
        let operands = self.checked(stream, call, out)?;
        operands.map_or(Ok(()), |operands| self.launch(stream, call, out, &operands))
    }

    /// Returns the operands, the result first; `None` if there is nothing to do.
    pub(crate) fn checked(&self, stream: &Stream, call: &Call<'_>, out: View<'_>) -> Result<Option<Vec<Operand>>> {
        let op = call.program.name();
        let views = || std::iter::once(("result", out)).chain(call.inputs.iter().copied());
        self.check_devices(&op, stream, views())?;
        let shape = out.layout().shape();
        for (what, view) in call.inputs {
            if view.layout().shape() != shape {
                let expected = format!("{shape:?} (see `Layout::broadcast_to`)");
                return Err(shape_error(&op, what, view, expected));
            }
            if view.aliases(&out) {
                return Err(Error::Overlap { op, what: format!("{what} partially overlaps the result") });
            }
        }
        if out.layout().is_empty() {
            return Ok(None);
        }
        let operand = |view: View<'_>| {
            let mut strides = [0; MAX_DIMS];
            strides[..shape.len()].copy_from_slice(view.layout().strides());
            Operand { address: view.address(), size: view.dtype().size(), strides }
        };
        Ok(Some(views().map(|(_, view)| operand(view)).collect()))
    }

    /// Launches a checked call.
    pub(crate) fn launch(&self, stream: &Stream, call: &Call<'_>, out: View<'_>, operands: &[Operand]) -> Result<()> {
        let Plan { variant, launch } =
            plan(out.layout().shape(), operands, call.program.constant("UNROLL"), self.tuning().get(TuningParam::Block));
        let info = self.device().info();
        let few = info.dependent_launch && launch.grid[0] <= FEW_BLOCKS * info.compute_units;
        let (launch, program) = if few { (launch.pdl(), dependent(call.program)) } else { (launch, call.program) };
        let kernels = self.load(&program)?;
        let mut pointers = [Arg::from(0u64); 4];
        let views = std::iter::once(&out).chain(call.inputs.iter().map(|(_, view)| view));
        for (pointer, view) in pointers.iter_mut().zip(views) {
            *pointer = Arg::from(view.start());
        }
        let [out, a, b, c] = pointers;
        let scalars = Arg::value(&call.scalars);
        // SAFETY: the kernels were compiled for these types and take these arguments; all views were checked against their memory, and only
        // the result is written, whose elements are distinct.
        let launched = unsafe {
            match &variant {
                Variant::Contiguous { n, head } => kernels[0].launch(stream, launch, (out, a, b, c, scalars, *n, *head)),
                Variant::Rows(dims) => kernels[1].launch(stream, launch, (out, a, b, c, scalars, Arg::value(dims))),
                Variant::Scalar(dims) => kernels[2].launch(stream, launch, (out, a, b, c, scalars, Arg::value(dims))),
                Variant::Scalar64(dims) => kernels[3].launch(stream, launch, (out, a, b, c, scalars, Arg::value(dims))),
            }
        };
        launched.map_err(launch_error(&call.program.name()))
    }
}

#[cfg(test)]
mod tests {

    use warpwave_jit::Jit;
    use warpwave_test_support::virtual_driver;

    use super::*;
    use crate::dtype::DType;
    use crate::layout::Layout;

    /// Safe code cannot create overlapping views: only tests inside the crate can.
    #[test]
    fn inputs_that_overlap_the_result_otherwise_than_in_place_are_refused() {
        let device = virtual_driver().device(0).unwrap();
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
            assert_eq!(input.aliases(&out), overlaps, "{input:?}");
            if overlaps {
                let program =
                    crate::elementwise::programs(kernels.tuning()).into_iter().find(|program| program.name() == "copy_u32").unwrap();
                let scalars = Scalars::new(Scalar::Int(0), Scalar::Int(0));
                let rejected = kernels.run(&stream, &Call { program, scalars, inputs: &[("input", input)] }, out);
                assert!(matches!(rejected, Err(Error::Overlap { .. })), "{input:?}");
            }
        }
        assert!(stream.download(&buffer).unwrap().iter().all(|byte| *byte == 0x5a));
    }
}
