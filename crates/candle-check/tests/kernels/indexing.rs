//! Indexing and sorting kernels.

use candle_core::{DType, Device, Tensor};
use warpwave_gpu::{Kernel, Launch};

use crate::bench::{A, Bench, Checked, Form, Input, Plan, Random, narrow, values, wide};
use crate::types::{Near, Ty};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Move {
    Select,
    Gather,
    IndexAdd,
    Scatter,
    ScatterAdd,
}

pub fn plan(name: &str) -> Option<Plan> {
    let (stem, ty) = Ty::at_end(name)?;
    let (kind, ids) = stem.rsplit_once('_')?;
    let ids = Ty::named(ids)?;
    let kind = match kind {
        "is" => Move::Select,
        "gather" => Move::Gather,
        "ia" => Move::IndexAdd,
        "s" => Move::Scatter,
        "sa" => Move::ScatterAdd,
        _ => return None,
    };
    Some(Box::new(move |bench, kernel| case(bench, kernel, kind, ids, ty)))
}

/// The index that selects no element.
fn none(ids: Ty) -> f64 {
    match ids {
        Ty::I64 => i64::MAX as f64,
        _ => ids.most(),
    }
}

fn element(ty: Ty) -> impl Fn(&mut Random) -> f64 {
    move |random| match ty {
        Ty::U8 | Ty::U32 => random.int(0, 20),
        Ty::I64 => random.int(-1 << 40, 1 << 40),
        _ => random.float(-4.0, 4.0),
    }
}

/// Indices below `below`, some of which select no element; 64-bit for candle.
fn indices(bench: &mut Bench, ids: Ty, dims: &[usize], form: Form, below: usize, some_none: bool) -> Checked<(Input, Tensor)> {
    let count: usize = dims.iter().product();
    let list: Vec<f64> = (0..count)
        .map(|_| if some_none && bench.random.int(0, 6) == 0.0 { none(ids) } else { bench.random.int(0, below as i64 - 1) })
        .collect();
    let given = bench.input_of(ids, dims, form, &list)?;
    let long: Vec<i64> = list.iter().map(|i| if *i == none(ids) { i64::MAX } else { *i as i64 }).collect();
    Ok((given, Tensor::from_vec(long, dims, &Device::Cpu)?))
}

fn case(bench: &mut Bench, kernel: &Kernel, kind: Move, ids: Ty, ty: Ty) -> Checked {
    for (dims, axis, form) in [([3, 6, 5], 1, Form::Plain), ([7, 4, 3], 0, Form::Offset), ([2, 3, 9], 2, Form::Plain)] {
        let outcome = match kind {
            Move::Select => select(bench, kernel, ids, ty, &dims, axis, form),
            Move::Gather => gather(bench, kernel, ids, ty, &dims, axis, form),
            _ => scatter(bench, kernel, kind, ids, ty, &dims, axis, form),
        };
        outcome.map_err(|error| format!("{dims:?} along {axis}, {form:?}: {error}"))?;
    }
    if kind == Move::Select { select(bench, kernel, ids, ty, &[3, 6, 5], 1, Form::Strided) } else { Ok(()) }
}

fn sides(dims: &[usize], axis: usize) -> (usize, usize) {
    (dims[..axis].iter().product(), dims[axis + 1..].iter().product())
}

fn select(bench: &mut Bench, kernel: &Kernel, ids: Ty, ty: Ty, dims: &[usize], axis: usize, form: Form) -> Checked {
    let x = bench.input(ty, dims, form, element(ty))?;
    let count = 8;
    let ids_form = if form == Form::Offset { Form::Offset } else { Form::Plain };
    let (given, long) = indices(bench, ids, &[count], ids_form, dims[axis], true)?;
    let (left, right) = sides(dims, axis);
    let n = left * count * right;
    // candle passes the layout of the indices, which are contiguous; the kernel uses it for the source.
    let (rank, info) = if form == Form::Strided { (dims.len(), x.info()) } else { (1, vec![count, 1]) };
    let out = bench.output(ty, n)?;
    let launch = if form == Form::Plain { wide(n) } else { narrow(n) };
    let head = [A::Size(n), A::Size(rank), A::Info(info), A::In(&given), A::In(&x), A::Out(&out)];
    let arguments: Vec<A<'_>> = head.into_iter().chain([left, dims[axis], count, right].map(A::Size)).collect();
    bench.run(kernel, launch, &arguments)?;
    bench.compare("", &out, &x.tensor.contiguous()?.index_select(&long, axis)?, Near::Exact)
}

fn gather(bench: &mut Bench, kernel: &Kernel, ids: Ty, ty: Ty, dims: &[usize], axis: usize, form: Form) -> Checked {
    let x = bench.input(ty, dims, form, element(ty))?;
    let mut to = dims.to_vec();
    to[axis] = 8;
    let (given, long) = indices(bench, ids, &to, form, dims[axis], true)?;
    let (left, right) = sides(dims, axis);
    let out = bench.output(ty, given.len())?;
    let launch = if form == Form::Plain { wide(given.len()) } else { narrow(given.len()) };
    let head = [A::Size(given.len()), A::In(&given), A::In(&x), A::Out(&out)];
    let arguments: Vec<A<'_>> = head.into_iter().chain([left, dims[axis], to[axis], right].map(A::Size)).collect();
    bench.run(kernel, launch, &arguments)?;
    bench.compare("", &out, &x.tensor.gather(&long, axis)?, Near::Exact)
}

#[allow(clippy::too_many_arguments)]
fn scatter(bench: &mut Bench, kernel: &Kernel, kind: Move, ids: Ty, ty: Ty, dims: &[usize], axis: usize, form: Form) -> Checked {
    let source = bench.input(ty, dims, form, element(ty))?;
    let mut to = dims.to_vec();
    to[axis] = 4;
    let (left, right) = sides(dims, axis);
    // candle's fp8 additions do not support the index that selects nothing.
    let some_none = ty != Ty::F8;
    let shape: Vec<usize> = if kind == Move::IndexAdd { vec![dims[axis]] } else { dims.to_vec() };
    let (given, long) = indices(bench, ids, &shape, form, to[axis], some_none)?;
    let count: usize = to.iter().product();
    let before: Vec<f64> = (0..count).map(|_| ty.round(element(ty)(&mut bench.random))).collect();
    let start = Tensor::from_vec(before.clone(), to.as_slice(), &Device::Cpu)?.to_dtype(ty.reference())?;
    let out = bench.output_of(ty, &before)?;
    let mut arguments = vec![A::In(&given)];
    arguments.extend((kind == Move::IndexAdd).then_some(A::Size(dims[axis])));
    arguments.extend([A::In(&source), A::Out(&out)]);
    arguments.extend([left, dims[axis], to[axis], right].map(A::Size));
    bench.run(kernel, if form == Form::Plain { wide(left * right) } else { narrow(left * right) }, &arguments)?;
    let apply = |start: &Tensor, source: &Tensor| match kind {
        Move::IndexAdd => start.index_add(&long, source, axis),
        Move::Scatter => start.scatter(&long, source, axis),
        _ => start.scatter_add(&long, source, axis),
    };
    let wanted = apply(&start, &source.tensor.contiguous()?)?;
    if kind == Move::Scatter || !ty.is_float() {
        return bench.compare("", &out, &wanted, Near::Exact);
    }
    // Each addition rounds to the type.
    let mass = values(&apply(&start.abs()?, &source.tensor.contiguous()?.abs()?)?)?;
    let steps = dims[axis] as f64;
    bench.compare_each("", &out, &values(&wanted)?, |i| Near::Within(0.5 * ty.epsilon() * steps * mass[i]))
}

pub fn sort(name: &str) -> Option<Plan> {
    let (stem, ty) = Ty::at_end(name)?;
    let ascending = match stem {
        "asort_asc" => true,
        "asort_desc" => false,
        _ => return None,
    };
    Some(Box::new(move |bench, kernel| sort_case(bench, kernel, ty, ascending)))
}

fn sort_case(bench: &mut Bench, kernel: &Kernel, ty: Ty, ascending: bool) -> Checked {
    for (rows, columns, form) in [(3, 32, Form::Plain), (4, 45, Form::Offset), (1, 1, Form::Plain), (1, 1300, Form::Plain)] {
        let x = bench.input(ty, &[rows, columns], form, |random| match ty {
            Ty::U8 | Ty::U32 => random.int(0, 200),
            Ty::I64 => random.int(-1 << 40, 1 << 40),
            _ => random.float(-90.0, 90.0),
        })?;
        let padded = columns.next_power_of_two();
        let launch = Launch::new([rows as u32, 1, 1], [padded.min(1024) as u32, 1, 1]).shared(4 * padded as u32);
        let out = bench.output(Ty::U32, x.len())?;
        bench.run(kernel, launch, &[A::In(&x), A::Out(&out), A::Int(columns), A::Int(padded)])?;
        let (sorted, _) = x.tensor.to_dtype(DType::F64)?.contiguous()?.sort_last_dim(ascending)?;
        let (input, wanted, named) = (x.values()?, values(&sorted)?, bench.read(&out)?);
        for row in 0..rows {
            let part = row * columns..(row + 1) * columns;
            // Equal elements may come in any order.
            let named = &named[part.clone()];
            let mut seen: Vec<usize> = named.iter().map(|i| *i as usize).collect();
            seen.sort_unstable();
            if !seen.iter().copied().eq(0..columns) {
                return Err(format!("{rows} × {columns}: row {row} is not an order of all elements").into());
            }
            let got = named.iter().map(|i| input[row * columns + *i as usize]);
            if let Some((i, (got, wanted))) = got.zip(&wanted[part]).enumerate().find(|(_, (got, wanted))| got != *wanted) {
                return Err(format!("{rows} × {columns}: place {i} of row {row} is {got}, not {wanted}").into());
            }
        }
    }
    Ok(())
}
