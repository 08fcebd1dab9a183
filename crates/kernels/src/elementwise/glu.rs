//! Gated linear units.

use warpwave_gpu::Stream;

use crate::common::heads::{FLOATS, check_dtype};
use crate::dtype::DType;
use crate::elementwise::launch::{Call, Scalars};
use crate::error::Result;
use crate::kernels::{Kernels, check_same_dtype, shape_error};
use crate::program::{Program, SourceFile, source_file};
use crate::view::{View, ViewMut};

static GLU: SourceFile = source_file!("elementwise/glu.cu", &["_contiguous", "_rows", "_scalar", "_scalar64"]);

/// Result types for f32 inputs.
const FROM_F32: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// The activation of the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Glu {
    /// SwiGLU: silu(gate) · up.
    Silu,
    /// GeGLU with the tanh approximation of GELU.
    Gelu,
    /// GeGLU with exact GELU (erf).
    GeluErf,
    /// ReGLU: relu(gate) · up.
    Relu,
    /// GLU: sigmoid(gate) · up.
    Sigmoid,
    /// gpt-oss: g · sigmoid(1.702 · g) · (u + 1), where g is gate, at most 7, and u is up, from -7 to 7.
    Clamped,
}

impl Glu {
    /// All variants.
    pub const ALL: [Glu; 6] = [Glu::Silu, Glu::Gelu, Glu::GeluErf, Glu::Relu, Glu::Sigmoid, Glu::Clamped];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Glu::Silu => "swiglu",
            Glu::Gelu => "geglu",
            Glu::GeluErf => "geglu_erf",
            Glu::Relu => "reglu",
            Glu::Sigmoid => "glu",
            Glu::Clamped => "swiglu_clamped",
        }
    }

    fn program(self, dtype: DType, to: DType) -> Program {
        // erf in double precision takes all registers.
        let unroll = if self == Glu::GeluErf { 1 } else { 2 };
        let types = [dtype.name(), to.name()];
        Program::new(&GLU, self.name(), &types[..if to == dtype { 1 } else { 2 }], &[("UNROLL", unroll)])
    }
}

impl Kernels {
    /// Computes `out = f(gate) · up`, rounded once. An f32 input may yield a 16-bit result.
    pub fn glu(&self, stream: &Stream, op: Glu, gate: &View<'_>, up: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let dtype = gate.dtype();
        check_dtype(op.name(), "gate", gate, &FLOATS)?;
        check_same_dtype(op.name(), "up", *up, dtype)?;
        let out = out.as_view();
        if dtype == DType::F32 {
            check_dtype(op.name(), "result", &out, &FROM_F32)?;
        } else {
            check_same_dtype(op.name(), "result", out, dtype)?;
        }
        let inputs = [("gate", *gate), ("up", *up)];
        let scalars = Scalars { floats: [0.0; 2], ints: [0; 2] };
        self.run(stream, &Call { program: op.program(dtype, out.dtype()), scalars, inputs: &inputs }, out)
    }

    /// Like [`Kernels::glu`] for one view whose last dimension holds the gates, then the up projections.
    pub fn glu_halves(&self, stream: &Stream, op: Glu, x: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let Some((d, last)) = x.layout().shape().iter().copied().enumerate().next_back().filter(|(_, last)| last.is_multiple_of(2)) else {
            return Err(shape_error(op.name(), "input", x, "with an even last dimension"));
        };
        let half = |start| x.with_layout(x.layout().narrow(d, start, last / 2)?);
        self.glu(stream, op, &half(0)?, &half(last / 2)?, out)
    }
}

/// Lists the programs.
pub(crate) fn programs() -> Vec<Program> {
    let types = FLOATS.map(|dtype| (dtype, dtype)).into_iter().chain([DType::F16, DType::Bf16].map(|to| (DType::F32, to)));
    types.flat_map(|(dtype, to)| Glu::ALL.map(|op| op.program(dtype, to))).collect()
}
