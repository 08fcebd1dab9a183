//! Gated units: a function of one half times the other.

use warpwave_gpu::Stream;

use crate::dtype::DType;
use crate::error::Result;
use crate::headers;
use crate::heads::{FLOATS, one_of};
use crate::kernels::{Kernels, same_type, wrong_shape};
use crate::map::{Call, Scalars};
use crate::source::{File, Recipe};
use crate::view::{View, ViewMut};

static GLU: File = File {
    name: "glu.cu",
    texts: &[headers::TYPES, headers::MATH, headers::PACK, headers::MAP, include_str!("cu/glu.cu")],
    kernels: &["_vectors", "_rows", "_single", "_single64"],
};

/// Types of results of f32.
const FROM_F32: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// What a gate goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Glu {
    /// SwiGLU: silu(gate) · up.
    Silu,
    /// GeGLU, with GELU by its approximation with tanh.
    Gelu,
    /// GeGLU, with GELU by the error function.
    GeluErf,
    /// ReGLU.
    Relu,
    /// GLU: sigmoid(gate) · up.
    Sigmoid,
}

impl Glu {
    /// All of them.
    pub const ALL: [Glu; 5] = [Glu::Silu, Glu::Gelu, Glu::GeluErf, Glu::Relu, Glu::Sigmoid];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Glu::Silu => "swiglu",
            Glu::Gelu => "geglu",
            Glu::GeluErf => "geglu_erf",
            Glu::Relu => "reglu",
            Glu::Sigmoid => "glu",
        }
    }

    fn recipe(self, dtype: DType, to: DType) -> Recipe {
        // The error function of doubles takes all registers that there are.
        let unroll = if self == Glu::GeluErf { 1 } else { 2 };
        let types = [dtype.name(), to.name()];
        Recipe::new(&GLU, self.name(), &types[..if to == dtype { 1 } else { 2 }], &[("UNROLL", unroll)])
    }
}

impl Kernels {
    /// `out = f(gate) · up`, rounded once. Of f32 the result may be of 16 bits.
    pub fn glu(&self, stream: &Stream, op: Glu, gate: &View<'_>, up: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let dtype = gate.dtype();
        one_of(op.name(), "the gate", gate, &FLOATS)?;
        same_type(op.name(), "the other factor", *up, dtype)?;
        let out = out.as_view();
        if dtype == DType::F32 {
            one_of(op.name(), "the result", &out, &FROM_F32)?;
        } else {
            same_type(op.name(), "the result", out, dtype)?;
        }
        let inputs = [("the gate", *gate), ("the other factor", *up)];
        let scalars = Scalars { floats: [0.0; 2], ints: [0; 2] };
        self.run(stream, &Call { recipe: op.recipe(dtype, out.dtype()), scalars, inputs: &inputs }, out)
    }

    /// The same of one view, whose last dimension has the gates first and the other factors behind them.
    pub fn glu_halves(&self, stream: &Stream, op: Glu, x: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let Some((d, last)) = x.layout().shape().iter().copied().enumerate().next_back().filter(|(_, last)| last.is_multiple_of(2)) else {
            return Err(wrong_shape(op.name(), "the input", x, "its last dimension is not two halves"));
        };
        let half = |start| x.with_layout(x.layout().narrow(d, start, last / 2)?);
        self.glu(stream, op, &half(0)?, &half(last / 2)?, out)
    }
}

/// Every program of these operations.
pub(crate) fn recipes() -> Vec<Recipe> {
    let types = FLOATS.map(|dtype| (dtype, dtype)).into_iter().chain([DType::F16, DType::Bf16].map(|to| (DType::F32, to)));
    types.flat_map(|(dtype, to)| Glu::ALL.map(|op| op.recipe(dtype, to))).collect()
}
