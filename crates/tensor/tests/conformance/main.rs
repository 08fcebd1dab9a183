//! One table of operations, run on every device against an independent reference: fresh random inputs, every layout, empty tensors.
//!
//! The CPU runs all types and layouts; a GPU, where each type of an operation is compiled first, a sample (`WARPWAVE_TEST_FULL=1`: all).

#[path = "../common/mod.rs"]
mod common;
mod conv;
mod dense;
mod image;
mod index;
mod model;
mod moe;
mod random;
mod reference;
mod sort;

use reference::{FLOATS, LAYOUTS, Layout, Reference, TYPES, compare, indices, input, stored};
use warpwave_kernels::{Binary, DType, Reduce, Unary};
use warpwave_tensor::{Device, Tensor};
use warpwave_test_support::{Random, full_run, seed};

/// What a row of the table runs with.
pub struct Context<'a> {
    pub device: &'a Device,
    pub random: &'a mut Random,
    pub dtype: DType,
    pub layout: Layout,
}

impl Context<'_> {
    /// A random input of the row's type and layout.
    pub fn input(&mut self, shape: &[usize]) -> (Tensor, Reference) {
        self.input_within(shape, 3.9)
    }

    pub fn input_within(&mut self, shape: &[usize], limit: f64) -> (Tensor, Reference) {
        input(self.random, self.dtype, shape, self.layout, limit, self.device)
    }

    /// Some of many cases, unless all are to run.
    pub fn sample<T>(&mut self, all: impl IntoIterator<Item = T>, most: usize) -> Vec<T> {
        let mut all: Vec<T> = all.into_iter().collect();
        while !self.device.is_cpu() && !full_run() && all.len() > most {
            all.swap_remove(self.random.below(all.len()));
        }
        all
    }
}

type Row = (&'static str, &'static [DType], fn(&mut Context<'_>));

/// Operations, the types they take, and their tests.
const TABLE: &[Row] = &[
    ("unary", &TYPES, unary),
    ("binary", &TYPES, binary),
    ("scalar", &TYPES, scalar),
    ("affine", &TYPES, affine),
    ("cast", &TYPES, cast),
    ("fill", &TYPES, fill),
    ("where_cond", &TYPES, where_cond),
    ("reduce", &TYPES, reduce),
    ("argmax", &TYPES, argmax),
    ("softmax", &FLOATS, softmax),
    ("matmul", &FLOATS, matmul),
    ("conv", &[DType::F32, DType::F16, DType::Bf16], conv::conv),
    ("pool", &FLOATS, image::pool),
    ("upsample", &TYPES, image::upsample),
    ("im2col", &TYPES, image::im2col),
    ("pad", &TYPES, image::pad),
    ("cat", &TYPES, cat),
    ("in_place", &FLOATS, in_place),
    ("gather", &TYPES, index::gather),
    ("index_select", &TYPES, index::index_select),
    ("scatter", &TYPES, index::scatter),
    ("index_add", &TYPES, index::index_add),
    ("sort", &TYPES, sort::sort),
    ("unique", &TYPES, sort::unique),
    ("histogram", &TYPES, sort::histogram),
    ("norm", &FLOATS, model::norm),
    ("group_norm", &[DType::F32, DType::F16, DType::Bf16], dense::group_norm),
    ("dense_attention", &[DType::F32, DType::F16, DType::Bf16], dense::attention),
    ("glu", &FLOATS, model::glu),
    ("rope", &FLOATS, model::rope),
    ("linear", &FLOATS, model::linear),
    ("moe", &[DType::F32, DType::F16, DType::Bf16], moe::moe),
    ("embedding", &FLOATS, model::embedding),
    ("attention", &[DType::F32, DType::F16, DType::Bf16], model::attention),
];

#[test]
fn every_device_matches_the_reference() {
    let mut random = Random::new(seed());
    for device in common::devices() {
        for (name, types, test) in TABLE {
            let mut cases: Vec<(DType, Layout)> = types.iter().flat_map(|dtype| LAYOUTS.map(|layout| (*dtype, layout))).collect();
            while !device.is_cpu() && !full_run() && cases.len() > 2 {
                cases.swap_remove(random.below(cases.len()));
            }
            for (dtype, layout) in cases {
                println!("{device} {name} {dtype} {layout:?}");
                test(&mut Context { device: &device, random: &mut random, dtype, layout });
            }
        }
    }
}

const SHAPES: [&[usize]; 3] = [&[3, 5, 4], &[7], &[2, 0, 3]];

fn unary_reference(op: Unary, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match op {
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Tanh => x.tanh(),
        Unary::Neg => -x,
        Unary::Recip => 1.0 / x,
        Unary::Sqr => x * x,
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Gelu => 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()),
        Unary::GeluErf => 0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt())),
        Unary::Erf => libm::erf(x),
        Unary::Relu => x.max(0.0),
        Unary::Silu => x * sigmoid(x),
        Unary::Sigmoid => sigmoid(x),
        Unary::Abs => x.abs(),
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round(),
        Unary::Sign => {
            if x == 0.0 {
                0.0
            } else {
                x.signum()
            }
        }
        Unary::Elu(alpha) => {
            if x > 0.0 {
                x
            } else {
                alpha * x.exp_m1()
            }
        }
        Unary::Powf(exponent) => x.powf(exponent),
        Unary::Clamp(..) => x.clamp(0.0, 1.0),
        _ => panic!("{op:?} has no reference"),
    }
}

fn unary(context: &mut Context<'_>) {
    let dtype = context.dtype;
    for op in context.sample(Unary::ALL.into_iter().filter(|op| op.takes(dtype)), 3) {
        for shape in SHAPES {
            let (x, expected) = context.input(shape);
            compare(op.name(), &x.unary(op).unwrap(), &expected.map(|x| unary_reference(op, x)), 8.0, 0.25);
        }
    }
    assert_eq!(context.input(&[2]).0.exp().is_ok(), !dtype.is_integer());
}

fn binary_reference(op: Binary, a: f64, b: f64, integer: bool) -> f64 {
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div if integer => {
            if b == 0.0 {
                0.0
            } else {
                (a / b).trunc()
            }
        }
        Binary::Div => a / b,
        Binary::Max => a.max(b),
        Binary::Min => a.min(b),
        Binary::Pow => a.powf(b),
        Binary::Eq => f64::from(a == b),
        Binary::Ne => f64::from(a != b),
        Binary::Lt => f64::from(a < b),
        Binary::Le => f64::from(a <= b),
        Binary::Gt => f64::from(a > b),
        Binary::Ge => f64::from(a >= b),
        _ => panic!("{op:?} has no reference"),
    }
}

fn binary(context: &mut Context<'_>) {
    let dtype = context.dtype;
    for op in context.sample(Binary::ALL.into_iter().filter(|op| op.takes(dtype)), 3) {
        for (a, b, to) in [(&[3, 4, 2][..], &[4, 1][..], [3, 4, 2]), (&[1, 4, 2], &[3, 1, 2], [3, 4, 2]), (&[0, 4, 2], &[2], [0, 4, 2])] {
            let ((a, a_reference), (b, b_reference)) = (context.input(a), context.input(b));
            let expected =
                Reference::new(&to, |index| binary_reference(op, a_reference.at(index), b_reference.at(index), dtype.is_integer()));
            compare(op.name(), &a.binary(op, &b).unwrap(), &expected, 8.0, 0.01);
        }
    }
    let (a, b) = (context.input(&[2, 3]).0, context.input(&[2]).0);
    assert!((&a + &b).unwrap_err().to_string().contains("cannot be broadcast together"));
}

fn scalar(context: &mut Context<'_>) {
    let (x, reference) = context.input(&[4, 3]);
    let integer = context.dtype.is_integer();
    let check = |what: &str, found: warpwave_tensor::Result<Tensor>, f: &dyn Fn(f64) -> f64| {
        compare(what, &found.unwrap(), &reference.map(f), 2.0, 4.0);
    };
    check("x + 2", &x + 2, &|x| x + 2.0);
    check("x - 2", &x - 2, &|x| x - 2.0);
    check("x * 3", &x * 3, &|x| x * 3.0);
    check("x / 2", &x / 2, &|x| binary_reference(Binary::Div, x, 2.0, integer));
    check("5 - x", 5 - &x, &|x| 5.0 - x);
    check("a - a * 2", &x - &x * 2, &|x| stored(context.dtype, x - stored(context.dtype, x * 2.0)));
    match integer {
        true => assert!((&x + 0.5).unwrap_err().to_string().contains("cast the tensor first")),
        false => check("x * 0.5", &x * 0.5, &|x| x * 0.5),
    }
}

fn affine(context: &mut Context<'_>) {
    for shape in SHAPES {
        let (x, reference) = context.input(shape);
        compare("affine", &x.affine(3, -1).unwrap(), &reference.map(|x| 3.0 * x - 1.0), 1.0, 0.0);
    }
}

fn cast(context: &mut Context<'_>) {
    for to in context.sample(TYPES, 3) {
        let (x, reference) = context.input(&[3, 2, 5]);
        let expected = match to {
            // Floats saturate to integers, integers wrap.
            _ if to.is_integer() && !context.dtype.is_integer() => {
                reference.map(|x| if to.is_signed() { x.trunc() } else { x.trunc().max(0.0) })
            }
            _ => reference,
        };
        compare(&format!("cast to {to}"), &x.cast(to).unwrap(), &expected, 1.0, 0.0);
    }
}

fn fill(context: &mut Context<'_>) {
    let (dtype, device) = (context.dtype, context.device);
    for (found, value) in [
        (Tensor::full(2.5, dtype, &[2, 3], device), 2.5),
        (Tensor::ones(dtype, &[2, 3], device), 1.0),
        (Tensor::zeros(dtype, &[2, 3], device), 0.0),
    ] {
        let value = if dtype.is_integer() { f64::trunc(value) } else { value };
        compare("full", &found.unwrap(), &Reference::new(&[2, 3], |_| value), 1.0, 0.0);
    }
    let x = context.input(&[0, 2]).0;
    assert_eq!((x.zeros_like().unwrap().shape(), x.ones_like().unwrap().dtype()), (&[0, 2][..], dtype));
}

fn where_cond(context: &mut Context<'_>) {
    // Values with a zero in their low bits only are true, too.
    let mask: Vec<i64> = (0..12).map(|_| [0, 1, 0, 256, 1 << 16, -1, 1 << 40][context.random.below(7)]).collect();
    for dtype in context.sample([DType::I64, DType::U8, DType::I16, DType::I32, DType::U32], 2) {
        let condition = Tensor::new(&mask, &[3, 4], context.device).unwrap().cast(dtype).unwrap();
        let ((yes, yes_reference), (no, no_reference)) = (context.input(&[2, 3, 4]), context.input(&[3, 1]));
        let is_set = |index: &[usize]| stored(dtype, mask[index[1] * 4 + index[2]] as f64) != 0.0;
        let expected = Reference::new(&[2, 3, 4], |index| if is_set(index) { yes_reference.at(index) } else { no_reference.at(index) });
        compare("where_cond", &condition.where_cond(&yes, &no).unwrap(), &expected, 0.0, 0.0);
    }
    let float = Tensor::ones(DType::F32, &[2], context.device).unwrap();
    assert!(float.where_cond(&float, &float).unwrap_err().to_string().contains("an integer type, got f32"));
}

fn reduce_reference(op: Reduce, row: &[f64]) -> f64 {
    let (sum, n) = (row.iter().sum::<f64>(), row.len() as f64);
    match op {
        Reduce::Sum => sum,
        Reduce::Prod => row.iter().product(),
        Reduce::Min => row.iter().copied().fold(f64::INFINITY, f64::min),
        Reduce::Max => row.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        Reduce::Any => f64::from(row.iter().any(|x| *x != 0.0)),
        Reduce::All => f64::from(row.iter().all(|x| *x != 0.0)),
        Reduce::Mean => sum / n,
        Reduce::Var(correction) => row.iter().map(|x| (x - sum / n).powi(2)).sum::<f64>() / (n - correction),
        Reduce::ArgMin => row.iter().position(|x| *x == row.iter().copied().fold(f64::INFINITY, f64::min)).unwrap() as f64,
        Reduce::ArgMax => row.iter().position(|x| *x == row.iter().copied().fold(f64::NEG_INFINITY, f64::max)).unwrap() as f64,
        _ => panic!("{op:?} has no reference"),
    }
}

fn reduce(context: &mut Context<'_>) {
    let dtype = context.dtype;
    for op in context.sample(Reduce::ALL.into_iter().filter(|op| !op.results(dtype).is_empty()), 3) {
        for dims in [&[2][..], &[0], &[0, -1], &[0, 1, 2]] {
            // Small values: products of many stay in range.
            let (x, reference) = context.input_within(&[3, 4, 2], 1.9);
            let reduced: Vec<usize> = dims.iter().map(|d| (d + 3) as usize % 3).collect();
            let kept: Vec<usize> = [3, 4, 2].iter().enumerate().map(|(d, size)| if reduced.contains(&d) { 1 } else { *size }).collect();
            let expected = Reference::new(&kept, |index| {
                let row: Vec<f64> = indices(&reference.shape)
                    .iter()
                    .filter(|at| (0..3).all(|d| reduced.contains(&d) || at[d] == index[d]))
                    .map(|at| reference.at(at))
                    .collect();
                reduce_reference(op, &row)
            });
            compare(op.name(), &x.reduce(op, dims).unwrap(), &expected, 16.0, 4.0);
        }
    }
    let (empty, _) = context.input(&[2, 0]);
    assert!(empty.max(&[1]).is_err());
    compare("sum of nothing", &empty.sum(&[1]).unwrap(), &Reference::new(&[2], |_| 0.0), 0.0, 0.0);
}

fn argmax(context: &mut Context<'_>) {
    let (x, reference) = context.input(&[3, 6]);
    let row = |index: &[usize]| reference.values[index[0] * 6..][..6].to_vec();
    compare("argmax", &x.argmax(-1).unwrap(), &Reference::new(&[3], |index| reduce_reference(Reduce::ArgMax, &row(index))), 0.0, 0.0);
    compare("argmin", &x.argmin(1).unwrap(), &Reference::new(&[3], |index| reduce_reference(Reduce::ArgMin, &row(index))), 0.0, 0.0);
    assert!(x.argmax(2).unwrap_err().to_string().contains("out of range"));
}

fn softmax(context: &mut Context<'_>) {
    for dim in 0..3usize {
        let (x, reference) = context.input(&[3, 5, 2]);
        let total = |index: &[usize]| {
            (0..reference.shape[dim])
                .map(|i| {
                    let mut index = index.to_vec();
                    index[dim] = i;
                    reference.at(&index).exp()
                })
                .sum::<f64>()
        };
        let expected = Reference::new(&reference.shape, |index| reference.at(index).exp() / total(index));
        compare("softmax", &x.softmax(dim).unwrap(), &expected, 16.0, 0.05);
        let expected = Reference::new(&reference.shape, |index| reference.at(index) - total(index).ln());
        compare("log_softmax", &x.log_softmax(dim as i32 - 3).unwrap(), &expected, 16.0, 4.0);
    }
    assert_eq!(context.input(&[0, 3]).0.softmax(-1).unwrap().shape(), [0, 3]);
}

fn matmul(context: &mut Context<'_>) {
    for (a, b, to) in [
        (&[5, 7][..], &[7, 3][..], &[5, 3][..]),
        (&[2, 1, 5, 7], &[3, 7, 2], &[2, 3, 5, 2]),
        (&[0, 7], &[7, 3], &[0, 3]),
        (&[4, 0], &[0, 3], &[4, 3]),
    ] {
        let ((x, x_reference), (y, y_reference)) = (context.input(a), context.input(b));
        let k = a[a.len() - 1];
        let expected = Reference::new(to, |index| {
            let (outer, [row, column]) = (&index[..index.len() - 2], [index[index.len() - 2], index[index.len() - 1]]);
            let at = |x: &Reference, tail: [usize; 2]| x.at(&outer.iter().copied().chain(tail).collect::<Vec<_>>());
            (0..k).map(|i| at(&x_reference, [row, i]) * at(&y_reference, [i, column])).sum()
        });
        compare("matmul", &x.matmul(&y).unwrap(), &expected, 8.0, 16.0);
    }
    let a = context.input(&[2, 3]).0;
    assert!(a.matmul(&a).unwrap_err().to_string().contains("inner dimensions"));
}

fn cat(context: &mut Context<'_>) {
    for dim in 0..3usize {
        let parts: Vec<_> = [2, 0, 3]
            .map(|size| {
                let mut shape = [3, 4, 2];
                shape[dim] = size;
                context.input(&shape)
            })
            .into();
        let mut to = [3, 4, 2];
        to[dim] = 5;
        let expected = Reference::new(&to, |index| {
            let (part, at) = if index[dim] < 2 { (0, index[dim]) } else { (2, index[dim] - 2) };
            let mut index = index.to_vec();
            index[dim] = at;
            parts[part].1.at(&index)
        });
        let tensors: Vec<Tensor> = parts.iter().map(|(tensor, _)| tensor.clone()).collect();
        compare("cat", &Tensor::cat(&tensors, dim).unwrap(), &expected, 0.0, 0.0);
    }
    let ((a, a_reference), (b, b_reference)) = (context.input(&[2, 3]), context.input(&[2, 3]));
    let expected =
        Reference::new(&[2, 3, 2], |index| if index[2] == 0 { a_reference.at(&index[..2]) } else { b_reference.at(&index[..2]) });
    compare("stack", &Tensor::stack(&[a, b], -1).unwrap(), &expected, 0.0, 0.0);
}

fn in_place(context: &mut Context<'_>) {
    for shape in SHAPES {
        let ((x, reference), (y, y_reference)) = (context.input(shape), context.input(shape));
        let changed = |change: &dyn Fn(&mut Tensor)| {
            let mut copy = x.clone();
            change(&mut copy);
            compare("the original", &x, &reference, 0.0, 0.0);
            copy
        };
        let sum = Reference::new(shape, |index| reference.at(index) + y_reference.at(index));
        compare("add_in_place", &changed(&|x| x.add_in_place(&y).unwrap()), &sum, 1.0, 0.0);
        compare("scale_in_place", &changed(&|x| x.scale_in_place(1.5).unwrap()), &reference.map(|x| 1.5 * x), 1.0, 0.0);
        // Rounded after each of up to three operations.
        compare("soft_cap", &changed(&|x| x.soft_cap_in_place(2.0).unwrap()), &reference.map(|x| 2.0 * (x / 2.0).tanh()), 16.0, 1.0);
    }
}
