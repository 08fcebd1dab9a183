//! Elementwise kernels: unary, binary, affine, fill, ternary, cast.

use candle_core::{DType, Result, Tensor};
use warpwave_gpu::{Kernel, Launch};

use crate::bench::{A, Bench, Checked, Form, Input, Plan, Random, narrow, values, wide};
use crate::types::{Near, Ty};

/// Odd, so that vectors of four and eight leave a remainder.
const DIMS: [usize; 3] = [3, 5, 9];

/// Returns the launch for a number of elements.
type Shape = fn(usize) -> Launch;

/// Input layouts with their launches.
const FORMS: [(Form, Shape); 4] = [(Form::Plain, wide), (Form::Offset, narrow), (Form::Strided, wide), (Form::Repeated, narrow)];

/// The layout argument of a kernel. candle passes null for contiguous inputs.
fn info<'a>(input: &Input) -> A<'a> {
    let plain = input.tensor.is_contiguous() && input.tensor.layout().start_offset() == 0;
    if plain { A::Null } else { A::Info(input.info()) }
}

/// The tolerance for `x`, where `wanted` is the exact result.
type Nearness = fn(ty: Ty, x: f64, wanted: f64) -> Near;

struct Unary {
    name: &'static str,
    right: fn(&Tensor, f64) -> Result<Tensor>,
    range: (f64, f64),
    near: Nearness,
}

/// Rounded once.
fn once(_: Ty, _: f64, _: f64) -> Near {
    Near::Ulps(0.501)
}

/// A math library function, computed in `float` for the smaller types and rounded once more.
fn function(ty: Ty, _: f64, _: f64) -> Near {
    Near::Ulps(if matches!(ty, Ty::F32 | Ty::F64) { 2.0 } else { 0.51 })
}

/// A product of `x` and a number between 0 and 1 that has an error of a few ulps of 1.
fn gated(ty: Ty, x: f64, _: f64) -> Near {
    Near::Within(4.0 * ty.epsilon() * x.abs())
}

fn exact(_: Ty, _: f64, _: f64) -> Near {
    Near::Exact
}

const UNARY: [Unary; 24] = [
    Unary { name: "ucopy", right: |x, _| Ok(x.clone()), range: (-90.0, 90.0), near: exact },
    Unary { name: "uneg", right: |x, _| x.neg(), range: (-90.0, 90.0), near: exact },
    Unary { name: "uabs", right: |x, _| x.abs(), range: (-90.0, 90.0), near: exact },
    Unary { name: "uceil", right: |x, _| x.ceil(), range: (-9.0, 9.0), near: exact },
    Unary { name: "ufloor", right: |x, _| x.floor(), range: (-9.0, 9.0), near: exact },
    Unary { name: "uround", right: |x, _| x.round(), range: (-9.0, 9.0), near: exact },
    Unary { name: "urelu", right: |x, _| x.relu(), range: (-9.0, 9.0), near: exact },
    Unary { name: "usign", right: |x, _| x.sign(), range: (-2.0, 2.0), near: exact },
    Unary { name: "usqr", right: |x, _| x.sqr(), range: (-15.0, 15.0), near: once },
    Unary { name: "urecip", right: |x, _| x.recip(), range: (0.2, 9.0), near: once },
    Unary { name: "usqrt", right: |x, _| x.sqrt(), range: (0.0, 90.0), near: root },
    Unary { name: "uexp", right: |x, _| x.exp(), range: (-5.0, 5.0), near: function },
    Unary { name: "ulog", right: |x, _| x.log(), range: (0.02, 90.0), near: function },
    Unary { name: "usin", right: |x, _| x.sin(), range: (-40.0, 40.0), near: function },
    Unary { name: "ucos", right: |x, _| x.cos(), range: (-40.0, 40.0), near: function },
    Unary { name: "utanh", right: |x, _| x.tanh(), range: (-4.0, 4.0), near: function },
    Unary { name: "uerf", right: |x, _| x.erf(), range: (-3.0, 3.0), near: function },
    Unary { name: "unormcdf", right: |x, _| normal_cdf(x), range: (-3.0, 3.0), near: cdf },
    Unary { name: "ugelu", right: |x, _| x.gelu(), range: (-5.0, 5.0), near: gated },
    Unary { name: "ugelu_erf", right: |x, _| x * normal_cdf(x)?, range: (-5.0, 5.0), near: gated },
    Unary { name: "usilu", right: |x, _| x.silu(), range: (-8.0, 8.0), near: quotient },
    Unary { name: "usigmoid", right: |x, _| (x.neg()?.exp()? + 1.0)?.recip(), range: (-8.0, 8.0), near: quotient },
    // e^x − 1 cancels the leading digits.
    Unary {
        name: "uelu",
        right: |x, p| x.elu(p),
        range: (-4.0, 4.0),
        near: |ty, _, wanted| Near::Within(if wanted > 0.0 { 0.0 } else { 3.0 * ty.epsilon() }),
    },
    Unary { name: "upowf", right: |x, p| x.powf(p), range: (0.1, 9.0), near: function },
];

/// OCML's f64 square root is within one ulp; the others are rounded once.
fn root(ty: Ty, x: f64, wanted: f64) -> Near {
    if ty == Ty::F64 { Near::Ulps(1.0) } else { once(ty, x, wanted) }
}

/// x / (1 + e^−x): three roundings, and the error of the exponential.
fn quotient(ty: Ty, _: f64, _: f64) -> Near {
    Near::Ulps(if ty == Ty::F8 { 0.51 } else { 3.0 })
}

/// The argument's rounding error grows as the result shrinks, by x² at most. The reference loses what 1 + erf(x) loses.
fn cdf(ty: Ty, _: f64, wanted: f64) -> Near {
    Near::Within(f64::EPSILON + if matches!(ty, Ty::F32 | Ty::F64) { 6.0 * ty.epsilon() * wanted } else { 0.01 * ty.ulp(wanted) })
}

fn normal_cdf(x: &Tensor) -> Result<Tensor> {
    (x * std::f64::consts::FRAC_1_SQRT_2)?.erf()?.affine(0.5, 0.5)
}

pub fn unary(name: &str) -> Option<Plan> {
    let (stem, ty) = Ty::at_end(name)?;
    let op = UNARY.iter().find(|op| op.name == stem)?;
    // These read vectors at address 0 without an input.
    let in_place = !matches!(name, "ucopy_bf16" | "usilu_bf16" | "usigmoid_bf16");
    Some(Box::new(move |bench, kernel| unary_case(bench, kernel, op, ty, in_place)))
}

fn unary_case(bench: &mut Bench, kernel: &Kernel, op: &Unary, ty: Ty, in_place: bool) -> Checked {
    let parameter = match op.name {
        "uelu" => Some(ty.round(bench.random.float(0.5, 1.5))),
        "upowf" => Some(ty.round(bench.random.float(-1.5, 1.5))),
        _ => None,
    };
    let (low, high) = match (op.name, ty) {
        ("uexp", Ty::F32 | Ty::F64 | Ty::Bf16) => (-80.0, 80.0),
        _ => op.range,
    };
    let element = |random: &mut Random| match (ty.is_float(), random.int(0, 3) as u8) {
        (false, _) => random.int(0, 255),
        // Integers, halves and small numbers among the others.
        (true, 0) => ((random.float(low, high) * 2.0).round() / 2.0).max(low),
        (true, 1) => (random.float(low, high) * 2f64.powi(-random.int(0, 20) as i32)).max(low),
        (true, _) => random.float(low, high),
    };
    for (form, launch) in FORMS {
        let x = bench.input(ty, &DIMS, form, element)?;
        let wanted = values(&(op.right)(&x.tensor, parameter.unwrap_or(0.0))?)?;
        let input = x.values()?;
        let near = |i: usize| (op.near)(ty, input[i], wanted[i]);
        let n = x.len();
        let run = |bench: &Bench, from: A<'_>, to: &crate::bench::Output| {
            let mut arguments = vec![A::Size(n), A::Size(DIMS.len()), info(&x)];
            arguments.extend(parameter.map(|p| A::Val(ty, p)));
            arguments.extend([from, A::Out(to)]);
            bench.run(kernel, launch(n), &arguments)
        };
        let out = bench.output(ty, n)?;
        run(bench, A::In(&x), &out)?;
        bench.compare_each(&format!("{form:?}"), &out, &wanted, near)?;
        if in_place && form == Form::Plain {
            let out = bench.output_of(ty, &input)?;
            run(bench, A::Null, &out)?;
            bench.compare_each("in place", &out, &wanted, near)?;
        }
    }
    Ok(())
}

type BinaryOp = fn(&Tensor, &Tensor) -> Result<Tensor>;

const BINARY: [(&str, BinaryOp); 12] = [
    ("badd", |x, y| x + y),
    ("bsub", |x, y| x - y),
    ("bmul", |x, y| x * y),
    ("bdiv", |x, y| x / y),
    ("bmaximum", |x, y| x.maximum(y)),
    ("bminimum", |x, y| x.minimum(y)),
    ("eq", |x, y| x.eq(y)),
    ("ne", |x, y| x.ne(y)),
    ("lt", |x, y| x.lt(y)),
    ("le", |x, y| x.le(y)),
    ("gt", |x, y| x.gt(y)),
    ("ge", |x, y| x.ge(y)),
];

pub fn binary(name: &str) -> Option<Plan> {
    let (stem, ty) = Ty::at_end(name)?;
    let (op, right) = BINARY.iter().find(|(known, _)| *known == stem)?;
    Some(Box::new(move |bench, kernel| binary_case(bench, kernel, op, *right, ty)))
}

/// Operands whose result fits the type, coarse enough that some are equal.
fn operand(op: &str, ty: Ty, left: bool) -> impl Fn(&mut Random) -> f64 + use<> {
    let (low, high) = match (op, ty, left) {
        ("bsub", Ty::U8 | Ty::U32, true) => (100, 200),
        ("bsub" | "badd", Ty::U8 | Ty::U32, _) => (0, 100),
        ("bmul", Ty::U8, _) => (0, 15),
        ("bmul", Ty::U32, _) => (0, 60_000),
        ("bdiv", Ty::U8 | Ty::U32, true) => (0, 255),
        ("bdiv", Ty::U8 | Ty::U32, false) => (1, 40),
        ("bmul", Ty::I64, _) => (-60_000_000, 60_000_000),
        ("bdiv", Ty::I64, true) => (-1 << 50, 1 << 50),
        ("bdiv", Ty::I64, false) => (1, 1 << 34),
        ("badd" | "bsub", Ty::I64, _) => (-1 << 50, 1 << 50),
        (_, Ty::U8 | Ty::U32, _) => (0, 9),
        _ => (-9, 9),
    };
    let comparison = !op.starts_with('b') || op.contains("imum");
    let divisor = op == "bdiv" && !left;
    move |random| match ty.is_float() {
        false => random.int(low, high),
        true if comparison => random.int(-6, 6) / 4.0,
        true if divisor => random.float(0.3, 9.0) * (random.int(0, 1) * 2.0 - 1.0),
        true => random.float(-9.0, 9.0),
    }
}

fn binary_case(bench: &mut Bench, kernel: &Kernel, op: &str, right: BinaryOp, ty: Ty) -> Checked {
    use Form::{Offset, Plain, Repeated, Strided};
    let out_ty = if op.starts_with('b') { ty } else { Ty::U8 };
    let near = if out_ty.is_float() && !op.contains("imum") { Near::Ulps(0.501) } else { Near::Exact };
    for (left_form, right_form) in [(Plain, Plain), (Offset, Plain), (Plain, Strided), (Strided, Offset), (Strided, Repeated)] {
        let x = bench.input(ty, &DIMS, left_form, operand(op, ty, true))?;
        let y = bench.input(ty, &DIMS, right_form, operand(op, ty, false))?;
        let n = x.len();
        let plain = x.tensor.is_contiguous() && y.tensor.is_contiguous();
        let info = if plain { A::Null } else { A::Info([x.dims(), x.tensor.stride(), y.tensor.stride()].concat()) };
        let out = bench.output(out_ty, n)?;
        let launch = if plain { wide(n) } else { narrow(n) };
        bench.run(kernel, launch, &[A::Size(n), A::Size(DIMS.len()), info, A::In(&x), A::In(&y), A::Out(&out)])?;
        bench.compare(&format!("{left_form:?} and {right_form:?}"), &out, &right(&x.tensor, &y.tensor)?, near)?;
    }
    Ok(())
}

pub fn affine(name: &str) -> Option<Plan> {
    let ("affine", ty) = Ty::at_end(name)? else { return None };
    Some(Box::new(move |bench, kernel| affine_case(bench, kernel, ty)))
}

fn affine_case(bench: &mut Bench, kernel: &Kernel, ty: Ty) -> Checked {
    let number = |random: &mut Random, most: i64| match ty {
        Ty::U8 => random.int(0, most.min(12)),
        Ty::U32 => random.int(0, most),
        _ if ty.is_float() => random.float(-6.0, 6.0),
        _ => random.int(-most, most),
    };
    for (form, launch) in FORMS {
        let x = bench.input(ty, &DIMS, form, |random| number(random, 150))?;
        let (mul, add) = (ty.round(number(&mut bench.random, 90)), ty.round(number(&mut bench.random, 100)));
        let wanted = values(&x.tensor.affine(mul, add)?)?;
        let input = x.values()?;
        let n = x.len();
        // The product may be rounded before the sum (unfused) or not.
        let near = |i: usize| match ty {
            Ty::F8 => Near::Ulps(0.501),
            _ if ty.is_float() => Near::Within(0.51 * ty.epsilon() * (input[i] * mul).abs()),
            _ => Near::Exact,
        };
        let rest = |from, to| [A::Size(n), A::Size(DIMS.len()), info(&x), from, to, A::Val(ty, mul), A::Val(ty, add)];
        let out = bench.output(ty, n)?;
        bench.run(kernel, launch(n), &rest(A::In(&x), A::Out(&out)))?;
        bench.compare_each(&format!("{form:?}"), &out, &wanted, near)?;
        if form == Form::Plain {
            let out = bench.output_of(ty, &input)?;
            bench.run(kernel, launch(n), &rest(A::Null, A::Out(&out)))?;
            bench.compare_each("in place", &out, &wanted, near)?;
        }
    }
    Ok(())
}

pub fn fill(name: &str) -> Option<Plan> {
    let (stem, ty) = Ty::at_end(name)?;
    match stem {
        "fill" => Some(Box::new(move |bench, kernel| fill_case(bench, kernel, ty))),
        "copy2d" => Some(Box::new(move |bench, kernel| copy2d_case(bench, kernel, ty))),
        "const_set" => Some(Box::new(move |bench, kernel| const_set_case(bench, kernel, ty))),
        _ => None,
    }
}

fn any(ty: Ty) -> impl Fn(&mut Random) -> f64 {
    move |random| if ty.is_float() { random.float(-90.0, 90.0) } else { random.int(0, 120) }
}

fn fill_case(bench: &mut Bench, kernel: &Kernel, ty: Ty) -> Checked {
    for (n, launch) in [(1000, wide as Shape), (333, narrow)] {
        let value = any(ty)(&mut bench.random);
        let out = bench.output(ty, n)?;
        bench.run(kernel, launch(n), &[A::Out(&out), A::Val(ty, value), A::Size(n)])?;
        bench.compare_each(&format!("{n} elements"), &out, &vec![ty.round(value); n], |_| Near::Exact)?;
    }
    Ok(())
}

fn copy2d_case(bench: &mut Bench, kernel: &Kernel, ty: Ty) -> Checked {
    let (rows, columns, to_row) = (7, 11, 14);
    for (form, from_row) in [(Form::Plain, 11), (Form::Offset, 13)] {
        let x = bench.input(ty, &[rows, from_row], form, any(ty))?;
        let before: Vec<f64> = (0..rows * to_row).map(|_| ty.round(any(ty)(&mut bench.random))).collect();
        let out = bench.output_of(ty, &before)?;
        let arguments = [A::In(&x), A::Out(&out), A::Int(rows), A::Int(columns), A::Int(from_row), A::Int(to_row)];
        bench.run(kernel, wide(rows * columns), &arguments)?;
        let part = x.tensor.narrow(1, 0, columns)?;
        let whole = Tensor::from_vec(before, (rows, to_row), x.tensor.device())?.to_dtype(ty.reference())?;
        let wanted = Tensor::cat(&[&part, &whole.narrow(1, columns, to_row - columns)?], 1)?;
        bench.compare(&format!("{form:?}"), &out, &wanted, Near::Exact)?;
    }
    Ok(())
}

fn const_set_case(bench: &mut Bench, kernel: &Kernel, ty: Ty) -> Checked {
    let (rows, columns, row) = (7, 11, 15);
    let value = any(ty)(&mut bench.random);
    let n = rows * columns;
    for (what, info) in [("without a layout", None), ("whole", Some([rows, columns, columns, 1]))] {
        let out = bench.output(ty, n)?;
        let info = info.map_or(A::Null, |info| A::Info(info.to_vec()));
        bench.run(kernel, wide(n), &[A::Size(n), A::Size(2), info, A::Val(ty, value), A::Out(&out)])?;
        bench.compare_each(what, &out, &vec![ty.round(value); n], |_| Near::Exact)?;
    }
    let mut wanted: Vec<f64> = (0..rows * row).map(|_| ty.round(any(ty)(&mut bench.random))).collect();
    let out = bench.output_of(ty, &wanted)?;
    let info = A::Info(vec![columns, rows, 1, row]);
    bench.run(kernel, narrow(n), &[A::Size(n), A::Size(2), info, A::Val(ty, value), A::Out(&out)])?;
    (0..rows).for_each(|r| wanted[r * row..][..columns].fill(ty.round(value)));
    bench.compare_each("strided", &out, &wanted, |_| Near::Exact)
}

pub fn ternary(name: &str) -> Option<Plan> {
    let (stem, ty) = Ty::at_end(name)?;
    let ids = Ty::named(stem.strip_prefix("where_")?)?;
    Some(Box::new(move |bench, kernel| where_case(bench, kernel, ids, ty)))
}

fn where_case(bench: &mut Bench, kernel: &Kernel, ids: Ty, ty: Ty) -> Checked {
    use Form::{Offset, Plain, Repeated, Strided};
    for forms in [[Plain; 3], [Offset; 3], [Strided, Plain, Repeated], [Plain, Strided, Strided]] {
        // High bits alone count too.
        let high = if ids == Ty::I64 { (1i64 << 40) as f64 } else { 100.0 };
        let condition = bench.input(ids, &DIMS, forms[0], |random| random.int(0, 1) * high)?;
        let yes = bench.input(ty, &DIMS, forms[1], any(ty))?;
        let no = bench.input(ty, &DIMS, forms[2], any(ty))?;
        let n = yes.len();
        let info = [condition.info(), yes.tensor.stride().to_vec(), no.tensor.stride().to_vec()].concat();
        let out = bench.output(ty, n)?;
        let launch = if forms[0] == Plain { wide(n) } else { narrow(n) };
        let arguments = [A::Size(n), A::Size(DIMS.len()), A::Info(info), A::In(&condition), A::In(&yes), A::In(&no), A::Out(&out)];
        bench.run(kernel, launch, &arguments)?;
        let wanted = condition.tensor.ne(0i64)?.where_cond(&yes.tensor, &no.tensor)?;
        bench.compare(&format!("{forms:?}"), &out, &wanted, Near::Exact)?;
    }
    Ok(())
}

pub fn cast(name: &str) -> Option<Plan> {
    let (stem, to) = Ty::at_end(name)?;
    let from = Ty::named(stem.strip_prefix("cast_")?)?;
    Some(Box::new(move |bench, kernel| cast_case(bench, kernel, from, to)))
}

fn cast_case(bench: &mut Bench, kernel: &Kernel, from: Ty, to: Ty) -> Checked {
    // Beyond the range of the other type the result is undefined.
    let most = from.most().min(to.most()).min(4e9);
    let least = if matches!(from, Ty::U8 | Ty::U32) || matches!(to, Ty::U8 | Ty::U32) { 0.0 } else { -most };
    for (form, launch) in FORMS {
        let element = |random: &mut Random| {
            // Large and small ones alike.
            let size = if random.int(0, 1) == 0.0 { 1.0 } else { (20.0 / most).min(1.0) };
            let mut value = from.round(random.float(least * size, most * size));
            if to.is_float() && random.int(0, 1) == 0.0 {
                // Midpoints of two numbers of the other type, or next to one.
                let middle = to.round(value) + to.ulp(value) / 2.0;
                let step = if from.is_float() { from.ulp(middle) } else { 1.0 };
                value = from.round(middle + step * random.int(-1, 1));
            }
            if value.abs() > most || value < least { 0.0 } else { value }
        };
        let x = bench.input(from, &DIMS, form, element)?;
        let n = x.len();
        let out = bench.output(to, n)?;
        bench.run(kernel, launch(n), &[A::Size(n), A::Size(DIMS.len()), info(&x), A::In(&x), A::Out(&out)])?;
        let wanted = match to {
            // candle converts doubles to these with `half`, which may round wrongly.
            Ty::F16 | Ty::Bf16 => x.values()?.into_iter().map(|x| to.round(x)).collect(),
            // The kernels convert through `float`.
            Ty::F8 => values(&x.tensor.to_dtype(DType::F32)?.to_dtype(DType::F8E4M3)?)?,
            Ty::F32 => values(&x.tensor.to_dtype(DType::F32)?)?,
            _ => values(&x.tensor.to_dtype(to.reference())?)?,
        };
        bench.compare_each(&format!("{form:?}"), &out, &wanted, |_| Near::Exact)?;
    }
    Ok(())
}
