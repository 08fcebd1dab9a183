//! Operations that compute each element by itself.

use warpwave_gpu::{Arg, Stream};

use crate::dtype::{DType, Scalar};
use crate::error::Result;
use crate::headers;
use crate::kernels::{Kernels, refused, same_type, wrong_type};
use crate::map::{Call, Scalars};
use crate::plan::{TURNING, turned, unroll};
use crate::source::{File, Recipe, carrier};
use crate::tuning::{Knob, Tuning};
use crate::view::{View, ViewMut};

const WAYS: &[&str] = &["_vectors", "_rows", "_single", "_single64"];
static UNARY: File = File {
    name: "unary.cu",
    texts: &[headers::TYPES, headers::MATH, headers::PACK, headers::MAP, include_str!("cu/unary.cu")],
    kernels: WAYS,
};
static BINARY: File = File {
    name: "binary.cu",
    texts: &[headers::TYPES, headers::MATH, headers::PACK, headers::MAP, include_str!("cu/binary.cu")],
    kernels: WAYS,
};
pub(crate) static MOVING: File =
    File { name: "moving.cu", texts: &[headers::TYPES, headers::PACK, headers::MAP, include_str!("cu/moving.cu")], kernels: WAYS };

static TURN: File = File { name: "turn.cu", texts: &[headers::TYPES, headers::PACK, include_str!("cu/turn.cu")], kernels: &[""] };

/// What a function of elements is made of; a tuning makes a recipe of it.
pub(crate) struct Map {
    file: &'static File,
    op: &'static str,
    types: [&'static str; 2],
    unroll: Knob,
}

impl Map {
    pub(crate) fn recipe(&self, tuning: &Tuning) -> Recipe {
        Recipe::new(self.file, self.op, &self.types, &[("UNROLL", tuning.get(self.unroll))])
    }
}

/// A function of one element. All take floats; those that say so take whole numbers too.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Unary {
    /// eˣ.
    Exp,
    /// The natural logarithm.
    Log,
    /// The sine.
    Sin,
    /// The cosine.
    Cos,
    /// The hyperbolic tangent.
    Tanh,
    /// −x; of signed whole numbers too.
    Neg,
    /// 1/x.
    Recip,
    /// x²; of whole numbers too.
    Sqr,
    /// The square root.
    Sqrt,
    /// 1/√x.
    Rsqrt,
    /// GELU by its approximation with tanh.
    Gelu,
    /// GELU by the error function.
    GeluErf,
    /// The error function.
    Erf,
    /// x, or 0 where it is less; of signed whole numbers too.
    Relu,
    /// x · sigmoid(x).
    Silu,
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
    /// |x|; of signed whole numbers too.
    Abs,
    /// The whole number below.
    Floor,
    /// The whole number above.
    Ceil,
    /// The nearest whole number, halves away from zero.
    Round,
    /// −1, 0 or 1; of signed whole numbers too.
    Sign,
    /// x, or α · (eˣ − 1) where it is not above 0.
    Elu(f64),
    /// x to this power.
    Powf(f64),
    /// x within these bounds; NaN stays. Of whole numbers too.
    Clamp(Scalar, Scalar),
}

impl Unary {
    /// All of them, with some numbers.
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

    /// Its name.
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

    /// Whether it is there for a type.
    pub fn takes(self, dtype: DType) -> bool {
        match self {
            Unary::Sqr | Unary::Clamp(..) => true,
            Unary::Neg | Unary::Relu | Unary::Abs | Unary::Sign => dtype.is_signed(),
            _ => !dtype.is_integer(),
        }
    }

    /// Beside the memory it touches it costs little, as much, or more. Of bytes there are sixteen to a turn already: more of a function this
    /// long takes compilers seconds.
    fn unroll(self, dtype: DType) -> Knob {
        use Unary::*;
        match self {
            GeluErf | Erf | Powf(_) if dtype.size() > 1 => Knob::UnrollHeaviest,
            GeluErf | Erf | Powf(_) | Exp | Log | Sin | Cos | Tanh | Gelu | Silu | Sigmoid | Elu(_) | Sqrt | Recip | Sign | Clamp(..) => {
                Knob::UnrollHeavy
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

/// A bound that elements of whole numbers can be compared with.
fn within(bound: Scalar, dtype: DType) -> Scalar {
    let (low, high) = match dtype {
        DType::U8 => (0, i64::from(u8::MAX)),
        DType::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        DType::U32 => (0, i64::from(u32::MAX)),
        DType::I64 => (i64::MIN, i64::MAX),
        _ => return bound,
    };
    Scalar::Int(bound.as_i64().clamp(low, high))
}

/// A function of two elements of one type. All but [`Binary::Pow`] take whole numbers too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Binary {
    /// a + b.
    Add,
    /// a − b.
    Sub,
    /// a · b.
    Mul,
    /// a / b; of whole numbers cut off, and 0 where b is 0.
    Div,
    /// The larger, or NaN.
    Max,
    /// The smaller, or NaN.
    Min,
    /// a to the power of b; floats alone.
    Pow,
    /// a = b, as a `u8` of 0 or 1, like the following.
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
    /// All of them.
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

    /// Its name.
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

    /// Whether its result is a `u8` of 0 or 1.
    pub fn is_comparison(self) -> bool {
        matches!(self, Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge)
    }

    /// Whether it is there for a type.
    pub fn takes(self, dtype: DType) -> bool {
        self != Binary::Pow || !dtype.is_integer()
    }

    fn map(self, dtype: DType) -> Map {
        Map {
            file: &BINARY,
            op: self.name(),
            types: [dtype.name(), ""],
            unroll: if self == Binary::Pow { Knob::UnrollHeavy } else { unroll(2) },
        }
    }
}

pub(crate) const NO_SCALARS: Scalars = Scalars { floats: [0.0; 2], ints: [0; 2] };

impl Kernels {
    /// `out = op(x)`.
    pub fn unary(&self, stream: &Stream, op: Unary, x: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        self.unary_to(stream, op, *x, out.as_view())
    }

    /// `x = op(x)`.
    pub fn unary_in_place(&self, stream: &Stream, op: Unary, x: &mut ViewMut<'_>) -> Result<()> {
        self.unary_to(stream, op, x.as_view(), x.as_view())
    }

    fn unary_to(&self, stream: &Stream, op: Unary, x: View<'_>, out: View<'_>) -> Result<()> {
        let dtype = x.dtype();
        if !op.takes(dtype) {
            let expected = if op.takes(DType::I32) { "floats and signed whole numbers" } else { "floats" };
            return Err(wrong_type(op.name(), "the input", dtype, expected));
        }
        same_type(op.name(), "the result", out, dtype)?;
        self.run(
            stream,
            &Call { recipe: op.map(dtype).recipe(self.tuning()), scalars: op.scalars(dtype), inputs: &[("the input", x)] },
            out,
        )
    }

    /// `out = op(a, b)`; the result of a comparison is a `u8` of 0 or 1.
    pub fn binary(&self, stream: &Stream, op: Binary, a: &View<'_>, b: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        self.binary_to(stream, op, *a, *b, out.as_view())
    }

    /// `a = op(a, b)`.
    pub fn binary_in_place(&self, stream: &Stream, op: Binary, a: &mut ViewMut<'_>, b: &View<'_>) -> Result<()> {
        self.binary_to(stream, op, a.as_view(), *b, a.as_view())
    }

    fn binary_to(&self, stream: &Stream, op: Binary, a: View<'_>, b: View<'_>, out: View<'_>) -> Result<()> {
        let dtype = a.dtype();
        if !op.takes(dtype) {
            return Err(wrong_type(op.name(), "the first input", dtype, "floats"));
        }
        same_type(op.name(), "the second input", b, dtype)?;
        same_type(op.name(), "the result", out, if op.is_comparison() { DType::U8 } else { dtype })?;
        let inputs = [("the first input", a), ("the second input", b)];
        self.run(stream, &Call { recipe: op.map(dtype).recipe(self.tuning()), scalars: NO_SCALARS, inputs: &inputs }, out)
    }

    /// `out = condition ? yes : no`. The condition is a `u8`, and holds where it is not 0.
    pub fn where_cond(&self, stream: &Stream, condition: &View<'_>, yes: &View<'_>, no: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let (out, dtype) = (out.as_view(), out.dtype());
        same_type("where", "the condition", *condition, DType::U8)?;
        same_type("where", "the first choice", *yes, dtype)?;
        same_type("where", "the second choice", *no, dtype)?;
        let inputs = [("the condition", *condition), ("the first choice", *yes), ("the second choice", *no)];
        self.run(stream, &Call { recipe: moving("where", dtype, 3).recipe(self.tuning()), scalars: NO_SCALARS, inputs: &inputs }, out)
    }

    /// `out = x * factor + term`, of floats rounded once.
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

    /// `x = x * factor + term`.
    pub fn affine_in_place(&self, stream: &Stream, x: &mut ViewMut<'_>, factor: impl Into<Scalar>, term: impl Into<Scalar>) -> Result<()> {
        self.affine_to(stream, x.as_view(), Scalars::new(factor.into(), term.into()), x.as_view())
    }

    fn affine_to(&self, stream: &Stream, x: View<'_>, scalars: Scalars, out: View<'_>) -> Result<()> {
        let dtype = x.dtype();
        same_type("affine", "the result", out, dtype)?;
        self.run(stream, &Call { recipe: affine(dtype).recipe(self.tuning()), scalars, inputs: &[("the input", x)] }, out)
    }

    /// Every element is `value`, rounded to the type; a whole number wraps.
    pub fn fill(&self, stream: &Stream, value: impl Into<Scalar>, out: &mut ViewMut<'_>) -> Result<()> {
        let dtype = out.dtype();
        let scalars = Scalars { floats: [0.0; 2], ints: [value.into().bits(dtype) as i64, 0] };
        self.run(stream, &Call { recipe: moving("fill", dtype, 0).recipe(self.tuning()), scalars, inputs: &[] }, out.as_view())
    }

    /// The elements as they are, from any layout to any other: transposed, repeated, in rows (see [`crate::Layout::rows`]).
    pub fn copy(&self, stream: &Stream, x: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        same_type("copy", "the result", out.as_view(), x.dtype())?;
        self.copy_to(stream, *x, out.as_view())
    }

    fn copy_to(&self, stream: &Stream, x: View<'_>, out: View<'_>) -> Result<()> {
        let call = Call { recipe: moving("copy", x.dtype(), 1).recipe(self.tuning()), scalars: NO_SCALARS, inputs: &[("the input", x)] };
        let Some(operands) = self.checked(stream, &call, out)? else { return Ok(()) };
        let Some((turn, launch)) = turned(out.layout().shape(), &operands) else { return self.launch(stream, &call, out, &operands) };
        let kernels = self.load(&turning(x.dtype()))?;
        // SAFETY: the kernel takes these arguments, and reaches the places of the two views alone, which were checked.
        unsafe { kernels[0].launch(stream, launch, (Arg::from(out.start()), Arg::from(x.start()), Arg::value(&turn))) }
            .map_err(refused("copy"))
    }

    /// The elements as another type.
    pub fn cast(&self, stream: &Stream, x: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let (from, to) = (x.dtype(), out.dtype());
        if from == to {
            return self.copy(stream, x, out);
        }
        self.run(
            stream,
            &Call { recipe: cast(from, to).recipe(self.tuning()), scalars: NO_SCALARS, inputs: &[("the input", *x)] },
            out.as_view(),
        )
    }
}

/// The recipe of what looks at sizes alone.
pub(crate) fn moving(op: &'static str, dtype: DType, inputs: usize) -> Map {
    Map { file: &MOVING, op, types: [carrier(dtype), ""], unroll: unroll(inputs) }
}

fn turning(dtype: DType) -> Recipe {
    Recipe::new(&TURN, "turn", &[carrier(dtype)], &[("THREADS", TURNING)])
}

fn affine(dtype: DType) -> Map {
    Map { types: [dtype.name(), ""], ..moving("affine", dtype, 1) }
}

fn cast(from: DType, to: DType) -> Map {
    let unroll = if from.size() == to.size() { Knob::UnrollOne } else { Knob::UnrollCast };
    Map { file: &MOVING, op: "cast", types: [from.name(), to.name()], unroll }
}

/// Every program of these operations.
pub(crate) fn recipes(tuning: &Tuning) -> Vec<Recipe> {
    let mut recipes = Vec::new();
    for dtype in DType::ALL {
        let mut maps: Vec<Map> = Unary::ALL.into_iter().filter(|op| op.takes(dtype)).map(|op| op.map(dtype)).collect();
        maps.extend(Binary::ALL.into_iter().filter(|op| op.takes(dtype)).map(|op| op.map(dtype)));
        maps.extend([("where", 3), ("fill", 0), ("copy", 1)].map(|(op, inputs)| moving(op, dtype, inputs)));
        maps.push(affine(dtype));
        maps.extend(DType::ALL.into_iter().filter(|to| *to != dtype).map(|to| cast(dtype, to)));
        recipes.extend(maps.iter().map(|map| map.recipe(tuning)));
        recipes.push(turning(dtype));
    }
    // What looks at sizes alone is the same for several types.
    let mut seen = std::collections::HashSet::new();
    recipes.retain(|recipe| seen.insert(*recipe));
    recipes
}
