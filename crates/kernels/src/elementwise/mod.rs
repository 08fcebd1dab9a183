//! Elementwise operations.

pub(crate) mod glu;
pub(crate) mod launch;
pub(crate) mod plan;

use warpwave_gpu::{Arg, Stream};

use crate::dtype::{DType, Scalar};
use crate::elementwise::launch::{Call, Scalars};
use crate::elementwise::plan::{TRANSPOSE_THREADS, plan_transpose, unroll};
use crate::error::Result;
use crate::kernels::{Kernels, check_same_dtype, dtype_error, launch_error};
use crate::program::{Program, SourceFile, bits_type, source_file};
use crate::tuning::{Tuning, TuningParam};
use crate::view::{View, ViewMut};

const KERNELS: &[&str] = &["_contiguous", "_rows", "_scalar", "_scalar64"];
static UNARY: SourceFile = source_file!("elementwise/unary.cu", KERNELS);
static BINARY: SourceFile = source_file!("elementwise/binary.cu", KERNELS);
pub(crate) static COPY: SourceFile = source_file!("elementwise/copy.cu", KERNELS);

static TRANSPOSE: SourceFile = source_file!("elementwise/transpose.cu", &[""]);

/// An elementwise program before tuning.
pub(crate) struct Map {
    file: &'static SourceFile,
    op: &'static str,
    types: [&'static str; 2],
    unroll: TuningParam,
}

impl Map {
    pub(crate) fn program(&self, tuning: &Tuning) -> Program {
        Program::new(self.file, self.op, &self.types, &[("UNROLL", tuning.get(self.unroll))])
    }
}

/// A function of one element. All support floats; integers where stated.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Unary {
    /// eˣ.
    Exp,
    /// Natural logarithm.
    Log,
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// Hyperbolic tangent.
    Tanh,
    /// −x; also signed integers.
    Neg,
    /// 1/x.
    Recip,
    /// x²; also integers.
    Sqr,
    /// Square root.
    Sqrt,
    /// 1/√x.
    Rsqrt,
    /// GELU, tanh approximation.
    Gelu,
    /// GELU, exact (erf).
    GeluErf,
    /// Error function.
    Erf,
    /// max(x, 0); also signed integers.
    Relu,
    /// x · sigmoid(x).
    Silu,
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
    /// |x|; also signed integers.
    Abs,
    /// Rounds down.
    Floor,
    /// Rounds up.
    Ceil,
    /// Rounds to the nearest integer, halves away from zero.
    Round,
    /// Sign: −1, 0 or 1; also signed integers.
    Sign,
    /// x if x > 0, else α · (eˣ − 1).
    Elu(f64),
    /// x to this power.
    Powf(f64),
    /// x clamped to these bounds; NaN stays. Also integers.
    Clamp(Scalar, Scalar),
}

impl Unary {
    /// All operations, with example parameters.
    pub const ALL: [Unary; 24] = [
        Unary::Exp,
        Unary::Log,
        Unary::Sin,
        Unary::Cos,
        Unary::Tanh,
        Unary::Neg,
        Unary::Recip,
        Unary::Sqr,
        Unary::Sqrt,
        Unary::Rsqrt,
        Unary::Gelu,
        Unary::GeluErf,
        Unary::Erf,
        Unary::Relu,
        Unary::Silu,
        Unary::Sigmoid,
        Unary::Abs,
        Unary::Floor,
        Unary::Ceil,
        Unary::Round,
        Unary::Sign,
        Unary::Elu(1.0),
        Unary::Powf(2.0),
        Unary::Clamp(Scalar::Int(0), Scalar::Int(1)),
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Unary::Exp => "exp",
            Unary::Log => "log",
            Unary::Sin => "sin",
            Unary::Cos => "cos",
            Unary::Tanh => "tanh",
            Unary::Neg => "neg",
            Unary::Recip => "recip",
            Unary::Sqr => "sqr",
            Unary::Sqrt => "sqrt",
            Unary::Rsqrt => "rsqrt",
            Unary::Gelu => "gelu",
            Unary::GeluErf => "gelu_erf",
            Unary::Erf => "erf",
            Unary::Relu => "relu",
            Unary::Silu => "silu",
            Unary::Sigmoid => "sigmoid",
            Unary::Abs => "abs",
            Unary::Floor => "floor",
            Unary::Ceil => "ceil",
            Unary::Round => "round",
            Unary::Sign => "sign",
            Unary::Elu(_) => "elu",
            Unary::Powf(_) => "powf",
            Unary::Clamp(..) => "clamp",
        }
    }

    /// Whether the operation supports a type.
    pub fn takes(self, dtype: DType) -> bool {
        match self {
            Unary::Sqr | Unary::Clamp(..) => true,
            Unary::Neg | Unary::Relu | Unary::Abs | Unary::Sign => dtype.is_signed(),
            _ => !dtype.is_integer(),
        }
    }

    /// The unroll parameter by arithmetic cost. Bytes come sixteen per vector already: unrolling long functions more takes compilers
    /// seconds.
    fn unroll(self, dtype: DType) -> TuningParam {
        use Unary::*;
        match self {
            GeluErf | Erf | Powf(_) if dtype.size() > 1 => TuningParam::UnrollHeaviest,
            GeluErf | Erf | Powf(_) | Exp | Log | Sin | Cos | Tanh | Gelu | Silu | Sigmoid | Elu(_) | Sqrt | Recip | Sign | Clamp(..) => {
                TuningParam::UnrollHeavy
            }
            _ => unroll(1),
        }
    }

    fn map(self, dtype: DType) -> Map {
        Map { file: &UNARY, op: self.name(), types: [dtype.name(), ""], unroll: self.unroll(dtype) }
    }

    fn scalars(self, dtype: DType) -> Scalars {
        let zero = Scalar::Int(0);
        match self {
            Unary::Elu(alpha) => Scalars::new(alpha.into(), zero),
            Unary::Powf(exponent) => Scalars::new(exponent.into(), zero),
            Unary::Clamp(low, high) => Scalars::new(within(low, dtype), within(high, dtype)),
            _ => Scalars::new(zero, zero),
        }
    }
}

/// Clamps a bound to the range of an integer type.
fn within(bound: Scalar, dtype: DType) -> Scalar {
    let (low, high) = match dtype {
        DType::U8 => (0, i64::from(u8::MAX)),
        DType::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        DType::U32 => (0, i64::from(u32::MAX)),
        DType::I64 => (i64::MIN, i64::MAX),
        _ => return bound,
    };
    Scalar::from(bound.to_i64().clamp(low, high))
}

/// A function of two elements of one type. All but [`Binary::Pow`] support integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Binary {
    /// a + b.
    Add,
    /// a − b.
    Sub,
    /// a · b.
    Mul,
    /// a / b; integer division truncates and yields 0 if b is 0.
    Div,
    /// Maximum; NaN if one is NaN.
    Max,
    /// Minimum; NaN if one is NaN.
    Min,
    /// a to the power of b; floats only.
    Pow,
    /// a = b, as a `u8` of 0 or 1, like those below.
    Eq,
    /// a ≠ b.
    Ne,
    /// a < b.
    Lt,
    /// a ≤ b.
    Le,
    /// a > b.
    Gt,
    /// a ≥ b.
    Ge,
}

impl Binary {
    /// All operations.
    pub const ALL: [Binary; 13] = [
        Binary::Add,
        Binary::Sub,
        Binary::Mul,
        Binary::Div,
        Binary::Max,
        Binary::Min,
        Binary::Pow,
        Binary::Eq,
        Binary::Ne,
        Binary::Lt,
        Binary::Le,
        Binary::Gt,
        Binary::Ge,
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Binary::Add => "add",
            Binary::Sub => "sub",
            Binary::Mul => "mul",
            Binary::Div => "div",
            Binary::Max => "max",
            Binary::Min => "min",
            Binary::Pow => "pow",
            Binary::Eq => "eq",
            Binary::Ne => "ne",
            Binary::Lt => "lt",
            Binary::Le => "le",
            Binary::Gt => "gt",
            Binary::Ge => "ge",
        }
    }

    /// Whether the result is a `u8` of 0 or 1.
    pub fn is_comparison(self) -> bool {
        matches!(self, Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge)
    }

    /// Whether the operation supports a type.
    pub fn takes(self, dtype: DType) -> bool {
        self != Binary::Pow || !dtype.is_integer()
    }

    fn map(self, dtype: DType) -> Map {
        Map {
            file: &BINARY,
            op: self.name(),
            types: [dtype.name(), ""],
            unroll: if self == Binary::Pow { TuningParam::UnrollHeavy } else { unroll(2) },
        }
    }
}

pub(crate) const NO_SCALARS: Scalars = Scalars { floats: [0.0; 2], ints: [0; 2] };

impl Kernels {
    /// Computes `out = op(x)`.
    pub fn unary(&self, stream: &Stream, op: Unary, x: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        self.unary_to(stream, op, *x, out.as_view())
    }

    /// Computes `x = op(x)`.
    pub fn unary_in_place(&self, stream: &Stream, op: Unary, x: &mut ViewMut<'_>) -> Result<()> {
        self.unary_to(stream, op, x.as_view(), x.as_view())
    }

    pub(crate) fn unary_to(&self, stream: &Stream, op: Unary, x: View<'_>, out: View<'_>) -> Result<()> {
        let dtype = x.dtype();
        if !op.takes(dtype) {
            let expected = if op.takes(DType::I32) { "a float or signed integer" } else { "a float" };
            return Err(dtype_error(op.name(), "input", dtype, expected));
        }
        check_same_dtype(op.name(), "result", out, dtype)?;
        self.run(stream, &Call { program: op.map(dtype).program(self.tuning()), scalars: op.scalars(dtype), inputs: &[("input", x)] }, out)
    }

    /// Computes `out = op(a, b)`; the result of a comparison is a `u8` of 0 or 1.
    pub fn binary(&self, stream: &Stream, op: Binary, a: &View<'_>, b: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        self.binary_to(stream, op, *a, *b, out.as_view())
    }

    /// Computes `a = op(a, b)`.
    pub fn binary_in_place(&self, stream: &Stream, op: Binary, a: &mut ViewMut<'_>, b: &View<'_>) -> Result<()> {
        self.binary_to(stream, op, a.as_view(), *b, a.as_view())
    }

    fn binary_to(&self, stream: &Stream, op: Binary, a: View<'_>, b: View<'_>, out: View<'_>) -> Result<()> {
        let dtype = a.dtype();
        if !op.takes(dtype) {
            return Err(dtype_error(op.name(), "first input", dtype, "a float"));
        }
        check_same_dtype(op.name(), "second input", b, dtype)?;
        check_same_dtype(op.name(), "result", out, if op.is_comparison() { DType::U8 } else { dtype })?;
        let inputs = [("first input", a), ("second input", b)];
        self.run(stream, &Call { program: op.map(dtype).program(self.tuning()), scalars: NO_SCALARS, inputs: &inputs }, out)
    }

    /// Computes `out = condition ? yes : no`. The condition is of any integer type, true if not 0.
    pub fn where_cond(&self, stream: &Stream, condition: &View<'_>, yes: &View<'_>, no: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let (out, dtype) = (out.as_view(), out.dtype());
        if !condition.dtype().is_integer() {
            return Err(dtype_error("where", "condition", condition.dtype(), "an integer type"));
        }
        check_same_dtype("where", "yes", *yes, dtype)?;
        check_same_dtype("where", "no", *no, dtype)?;
        let inputs = [("condition", *condition), ("yes", *yes), ("no", *no)];
        let program = where_map(condition.dtype(), dtype).program(self.tuning());
        self.run(stream, &Call { program, scalars: NO_SCALARS, inputs: &inputs }, out)
    }

    /// Computes `out = x * factor + term`; floats are rounded once.
    pub fn affine(
        &self,
        stream: &Stream,
        x: &View<'_>,
        factor: impl Into<Scalar>,
        term: impl Into<Scalar>,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        self.affine_to(stream, *x, Scalars::new(factor.into(), term.into()), out.as_view())
    }

    /// Computes `x = x * factor + term`.
    pub fn affine_in_place(&self, stream: &Stream, x: &mut ViewMut<'_>, factor: impl Into<Scalar>, term: impl Into<Scalar>) -> Result<()> {
        self.affine_to(stream, x.as_view(), Scalars::new(factor.into(), term.into()), x.as_view())
    }

    fn affine_to(&self, stream: &Stream, x: View<'_>, scalars: Scalars, out: View<'_>) -> Result<()> {
        let dtype = x.dtype();
        check_same_dtype("affine", "result", out, dtype)?;
        self.run(stream, &Call { program: affine(dtype).program(self.tuning()), scalars, inputs: &[("input", x)] }, out)
    }

    /// Fills with `value`, rounded to the type; integers wrap.
    pub fn fill(&self, stream: &Stream, value: impl Into<Scalar>, out: &mut ViewMut<'_>) -> Result<()> {
        let dtype = out.dtype();
        let scalars = Scalars { floats: [0.0; 2], ints: [value.into().to_bits(dtype) as i64, 0] };
        self.run(stream, &Call { program: copy_map("fill", dtype, 0).program(self.tuning()), scalars, inputs: &[] }, out.as_view())
    }

    /// Copies elements from any layout to any other: transposed, broadcast, pitched (see [`crate::Layout::rows`]).
    pub fn copy(&self, stream: &Stream, x: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        check_same_dtype("copy", "result", out.as_view(), x.dtype())?;
        self.copy_to(stream, *x, out.as_view())
    }

    fn copy_to(&self, stream: &Stream, x: View<'_>, out: View<'_>) -> Result<()> {
        let call = Call { program: copy_map("copy", x.dtype(), 1).program(self.tuning()), scalars: NO_SCALARS, inputs: &[("input", x)] };
        let Some(operands) = self.checked(stream, &call, out)? else { return Ok(()) };
        let Some((params, launch)) = plan_transpose(out.layout().shape(), &operands) else {
            return self.launch(stream, &call, out, &operands);
        };
        let kernels = self.load(&transpose_program(x.dtype()))?;
        // SAFETY: the kernel takes these arguments and reaches only elements of the two views, which were checked.
        unsafe { kernels[0].launch(stream, launch, (Arg::from(out.start()), Arg::from(x.start()), Arg::value(&params))) }
            .map_err(launch_error("copy"))
    }

    /// Converts elements to another type.
    pub fn cast(&self, stream: &Stream, x: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let (from, to) = (x.dtype(), out.dtype());
        if from == to {
            return self.copy(stream, x, out);
        }
        self.run(
            stream,
            &Call { program: cast(from, to).program(self.tuning()), scalars: NO_SCALARS, inputs: &[("input", *x)] },
            out.as_view(),
        )
    }
}

/// An operation that depends only on the element size.
pub(crate) fn copy_map(op: &'static str, dtype: DType, inputs: usize) -> Map {
    Map { file: &COPY, op, types: [bits_type(dtype), ""], unroll: unroll(inputs) }
}

/// Whether a condition is 0 depends only on its bits, too.
fn where_map(condition: DType, dtype: DType) -> Map {
    Map { types: [bits_type(dtype), bits_type(condition)], ..copy_map("where", dtype, 3) }
}

fn transpose_program(dtype: DType) -> Program {
    Program::new(&TRANSPOSE, "transpose", &[bits_type(dtype)], &[("THREADS", TRANSPOSE_THREADS)])
}

fn affine(dtype: DType) -> Map {
    Map { types: [dtype.name(), ""], ..copy_map("affine", dtype, 1) }
}

fn cast(from: DType, to: DType) -> Map {
    let unroll = if from.size() == to.size() { TuningParam::UnrollOne } else { TuningParam::UnrollCast };
    Map { file: &COPY, op: "cast", types: [from.name(), to.name()], unroll }
}

/// Lists the programs.
pub(crate) fn programs(tuning: &Tuning) -> Vec<Program> {
    let mut programs = Vec::new();
    for dtype in DType::COMPUTE {
        let mut maps: Vec<Map> = Unary::ALL.into_iter().filter(|op| op.takes(dtype)).map(|op| op.map(dtype)).collect();
        maps.extend(Binary::ALL.into_iter().filter(|op| op.takes(dtype)).map(|op| op.map(dtype)));
        maps.extend([("fill", 0), ("copy", 1)].map(|(op, inputs)| copy_map(op, dtype, inputs)));
        maps.extend(DType::COMPUTE.into_iter().filter(|condition| condition.is_integer()).map(|condition| where_map(condition, dtype)));
        maps.push(affine(dtype));
        maps.extend(DType::COMPUTE.into_iter().filter(|to| *to != dtype).map(|to| cast(dtype, to)));
        programs.extend(maps.iter().map(|map| map.program(tuning)));
        programs.push(transpose_program(dtype));
    }
    // Operations that depend only on the element size are the same for several types.
    let mut seen = std::collections::HashSet::new();
    programs.retain(|program| seen.insert(*program));
    programs
}
