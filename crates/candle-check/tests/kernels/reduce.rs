//! Sums, minima and maxima, norms, softmax, rotary embeddings.

use candle_core::{D, Tensor};
use warpwave_gpu::{Kernel, Launch};

use crate::bench::{A, Bench, Checked, Form, Input, Plan, Random, narrow, values, wide};
use crate::types::{Near, Ty};

pub fn plan(name: &str) -> Option<Plan> {
    let (stem, ty) = Ty::at_end(name)?;
    Some(match stem {
        "fast_sum" | "fast_sum_small" | "fast_min" | "fast_max" | "fast_argmin" | "fast_argmax" => {
            let stem = stem.to_owned();
            Box::new(move |bench, kernel| fast_case(bench, kernel, &stem, ty))
        }
        "sum" => Box::new(move |bench, kernel| sum_case(bench, kernel, ty)),
        "softmax" => Box::new(move |bench, kernel| softmax_case(bench, kernel, ty)),
        "rmsnorm" => Box::new(move |bench, kernel| norm_case(bench, kernel, ty, false)),
        "layernorm" => Box::new(move |bench, kernel| norm_case(bench, kernel, ty, true)),
        "rope" => Box::new(move |bench, kernel| rope_case(bench, kernel, ty, Rope::Halves)),
        "rope_i" => Box::new(move |bench, kernel| rope_case(bench, kernel, ty, Rope::Pairs)),
        "rope_thd" => Box::new(move |bench, kernel| rope_case(bench, kernel, ty, Rope::HeadsLast)),
        _ => return None,
    })
}

/// Elements whose sums fit the type.
fn element(ty: Ty, most: i64) -> impl Fn(&mut Random) -> f64 + use<> {
    move |random| match ty {
        Ty::U8 | Ty::U32 => random.int(0, most),
        Ty::I64 => random.int(-1 << 40, 1 << 40),
        _ => random.float(-4.0, 4.0),
    }
}

/// The error of a sum: half an ulp of the partial sums at each of `steps` additions.
fn sum_near(ty: Ty, steps: usize, mass: f64) -> Near {
    if ty.is_float() { Near::Within(0.5 * ty.epsilon() * steps as f64 * mass) } else { Near::Exact }
}

fn fast_case(bench: &mut Bench, kernel: &Kernel, stem: &str, ty: Ty) -> Checked {
    let small = stem == "fast_sum_small";
    // Larger than a block, for types that can hold the sum.
    let long = if ty == Ty::U8 && stem == "fast_sum" { 200 } else { 1500 };
    let cases: &[(&[usize], usize, Form)] = match small {
        true => &[(&[70, 8], 1, Form::Plain), (&[300, 3], 1, Form::Offset), (&[6, 31], 1, Form::Strided), (&[4, 9, 7], 1, Form::Plain)],
        false => &[
            (&[5, 70], 1, Form::Plain),
            (&[2, long], 1, Form::Plain),
            (&[3, 45], 1, Form::Offset),
            (&[3, 70], 1, Form::Strided),
            (&[3, 80, 4], 1, Form::Plain),
        ],
    };
    for (dims, axis, form) in cases {
        // Distinct enough that there are few ties.
        let most = if stem.contains("sum") { 255 / dims[*axis] as i64 } else { 250 };
        let x = bench.input(ty, dims, *form, element(ty, most))?;
        fast_launch(bench, kernel, stem, &x, *axis).map_err(|error| format!("{dims:?} {form:?}: {error}"))?;
    }
    Ok(())
}

fn fast_launch(bench: &mut Bench, kernel: &Kernel, stem: &str, x: &Input, axis: usize) -> Checked {
    let (length, ty) = (x.dims()[axis], x.ty);
    let count = x.len() / length;
    // The kernels reduce the last axes: the others come first.
    let order: Vec<usize> = (0..x.dims().len()).filter(|a| *a != axis).chain([axis]).collect();
    let info = [order.iter().map(|a| x.dims()[*a]).collect::<Vec<_>>(), order.iter().map(|a| x.tensor.stride()[*a]).collect()].concat();
    let small = stem == "fast_sum_small";
    let block = length.min(1024).next_power_of_two();
    let launch = if small { Launch::for_elements(count, 256) } else { Launch::new([count as u32, 1, 1], [block as u32, 1, 1]) };
    let index = stem.contains("arg");
    let out = bench.output(if index { Ty::U32 } else { ty }, count)?;
    let first = if small { count } else { x.len() };
    bench.run(kernel, launch, &[A::Size(first), A::Size(length), A::Size(order.len()), A::Info(info), A::In(x), A::Out(&out)])?;
    if index {
        // Of equal extremes any index is correct.
        let extreme = if stem.ends_with("min") { x.tensor.min(axis)? } else { x.tensor.max(axis)? };
        let named = bench.read(&out)?;
        let rows = values(&x.tensor.permute(order)?.contiguous()?)?;
        for ((row, index), wanted) in rows.chunks(length).zip(named).zip(values(&extreme)?) {
            if row.get(index as usize) != Some(&wanted) {
                return Err(format!("index {index} is {:?}, the extreme is {wanted}", row.get(index as usize)).into());
            }
        }
        return Ok(());
    }
    if !stem.contains("sum") {
        let extreme = if stem == "fast_min" { x.tensor.min(axis)? } else { x.tensor.max(axis)? };
        return bench.compare("", &out, &extreme, Near::Exact);
    }
    let steps = if small { length } else { length.div_ceil(block) + block.ilog2() as usize + 2 };
    let wanted = values(&x.tensor.sum(axis)?)?;
    let mass = if ty.is_float() { values(&x.tensor.abs()?.sum(axis)?)? } else { wanted.clone() };
    bench.compare_each("", &out, &wanted, |i| sum_near(ty, steps, mass[i]))
}

fn sum_case(bench: &mut Bench, kernel: &Kernel, ty: Ty) -> Checked {
    let dims = [3, 4, 6];
    for (axes, form) in [(&[1][..], Form::Plain), (&[0, 2], Form::Plain), (&[2], Form::Offset), (&[0, 1], Form::Strided)] {
        let x = bench.input(ty, &dims, form, element(ty, 50))?;
        let lengths = axes.iter().map(|a| dims[*a]);
        let strides = axes.iter().map(|a| dims[a + 1..].iter().product());
        let info: Vec<usize> = x.info().into_iter().chain(lengths.clone()).chain(strides).collect();
        // The sum over an axis that is kept in the shape has the order of the kernel's result.
        let wanted = values(&x.tensor.sum(axes)?)?;
        let mass = if ty.is_float() { values(&x.tensor.abs()?.sum(axes)?)? } else { wanted.clone() };
        let out = bench.output_of(ty, &vec![0.0; wanted.len()])?;
        let arguments = [A::Size(x.len()), A::Size(dims.len()), A::Size(axes.len()), A::Info(info), A::In(&x), A::Out(&out)];
        bench.run(kernel, if form == Form::Plain { wide(x.len()) } else { narrow(x.len()) }, &arguments)?;
        let steps = lengths.product();
        bench.compare_each(&format!("axes {axes:?} {form:?}"), &out, &wanted, |i| sum_near(ty, steps, mass[i]))?;
    }
    Ok(())
}

fn softmax_case(bench: &mut Bench, kernel: &Kernel, ty: Ty) -> Checked {
    for (rows, columns, form) in [(5, 32, Form::Plain), (3, 7, Form::Offset), (4, 100, Form::Offset)] {
        let x = bench.input(ty, &[rows, columns], form, element(ty, 0))?;
        let out = bench.output(ty, x.len())?;
        bench.run(kernel, Launch::new([rows as u32, 1, 1], [1, 32, 1]), &[A::In(&x), A::Out(&out), A::Int(columns)])?;
        let exp = x.tensor.broadcast_sub(&x.tensor.max_keepdim(D::Minus1)?)?.exp()?;
        let wanted = exp.broadcast_div(&exp.sum_keepdim(D::Minus1)?)?;
        // The difference of two elements, up to 8, is rounded, and its error is relative in the result: 4 half-epsilons. The exponential adds 2,
        // the sum of the row 3, its inverse and the product one each.
        let right = values(&wanted)?;
        bench.compare_each(&format!("{rows} × {columns}"), &out, &right, |i| Near::Within(5.5 * ty.epsilon() * right[i]))?;
    }
    Ok(())
}

fn norm_case(bench: &mut Bench, kernel: &Kernel, ty: Ty, layer: bool) -> Checked {
    const EPSILON: f32 = 1e-5;
    for (rows, columns, form, weighted) in
        [(3, 40, Form::Plain, true), (2, 31, Form::Offset, false), (2, 1100, Form::Plain, true), (1, 1024, Form::Plain, false)]
    {
        let x = bench.input(ty, &[rows, columns], form, element(ty, 0))?;
        let alpha = bench.input(ty, &[columns], Form::Offset, |random| random.float(0.5, 1.5))?;
        let beta = bench.input(ty, &[columns], Form::Plain, |random| random.float(-1.0, 1.0))?;
        let block = if columns < 1024 { 32 } else { 1024 };
        let weights = |input| if weighted { A::In(input) } else { A::Null };
        let out = bench.output(ty, x.len())?;
        let mut arguments = vec![A::In(&x), A::Out(&out), weights(&alpha)];
        arguments.extend(layer.then(|| weights(&beta)));
        arguments.extend([A::Int(columns), A::Int(block), A::Single(EPSILON)]);
        bench.run(kernel, Launch::new([rows as u32, 1, 1], [block as u32, 1, 1]), &arguments)?;
        let mean = x.tensor.mean_keepdim(D::Minus1)?;
        let centered = if layer { x.tensor.broadcast_sub(&mean)? } else { x.tensor.clone() };
        let scale = (centered.sqr()?.mean_keepdim(D::Minus1)? + f64::from(EPSILON))?.sqrt()?.recip()?;
        let mut wanted = centered.broadcast_mul(&scale)?;
        if weighted {
            wanted = wanted.broadcast_mul(&alpha.tensor)?;
        }
        if weighted && layer {
            wanted = wanted.broadcast_add(&beta.tensor)?;
        }
        // All types accumulate in `float`, in order within a thread and in trees among threads; the result is near 1.
        let steps = columns.div_ceil(block) + 12;
        let near = Near::Within(Ty::F32.epsilon() * steps as f64 + if ty == Ty::F64 { 0.0 } else { 0.01 * ty.epsilon() });
        bench.compare(&format!("{rows} × {columns}, weights {weighted}"), &out, &wanted, near)?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rope {
    /// The first half of a head pairs with the second (NeoX).
    Halves,
    /// Adjacent elements pair (interleaved).
    Pairs,
    /// Halves, with the heads after the positions (thd).
    HeadsLast,
}

fn rope_case(bench: &mut Bench, kernel: &Kernel, ty: Ty, kind: Rope) -> Checked {
    let (b, h, t, d) = (2, 3, 5, 8);
    for (form, per_batch) in [(Form::Plain, false), (Form::Offset, true)] {
        let dims = if kind == Rope::HeadsLast { [b, t, h, d] } else { [b, h, t, d] };
        let x = bench.input(ty, &dims, form, element(ty, 0))?;
        let angles: &[usize] = if per_batch { &[b, t, d / 2] } else { &[t, d / 2] };
        let cos = bench.input(ty, angles, form, |random| random.float(-1.0, 1.0))?;
        let sin = bench.input(ty, angles, Form::Plain, |random| random.float(-1.0, 1.0))?;
        let stride = A::Int(if per_batch { h * t * d } else { 0 });
        let out = bench.output(ty, x.len())?;
        let mut arguments = vec![A::In(&x), A::In(&cos), A::In(&sin), A::Out(&out)];
        arguments.extend(match kind {
            Rope::Halves => vec![A::Int(b * h), A::Int(t * d), A::Int(d), stride],
            Rope::Pairs => vec![A::Int(b * h), A::Int(t * d), stride],
            Rope::HeadsLast => vec![A::Int(b), A::Int(t), A::Int(h), A::Int(d), stride],
        });
        bench.run(kernel, wide(x.len() / 2), &arguments)?;
        let heads_first = if kind == Rope::HeadsLast { x.tensor.transpose(1, 2)? } else { x.tensor.clone() };
        let lift = |angle: &Tensor| if per_batch { angle.unsqueeze(1) } else { Ok(angle.clone()) };
        let mut wanted = rotated(&heads_first, &lift(&cos.tensor)?, &lift(&sin.tensor)?, kind == Rope::Pairs)?;
        if kind == Rope::HeadsLast {
            wanted = wanted.transpose(1, 2)?.contiguous()?;
        }
        // Two products of up to 4 and their sum are rounded.
        bench.compare(&format!("{form:?}"), &out, &wanted, Near::Within(4.0 * ty.epsilon()))?;
    }
    Ok(())
}

/// Rotates each pair of elements by its angle.
fn rotated(x: &Tensor, cos: &Tensor, sin: &Tensor, interleaved: bool) -> candle_core::Result<Tensor> {
    let (b, h, t, d) = x.dims4()?;
    let (first, second) = if interleaved {
        let pairs = x.reshape((b, h, t, d / 2, 2))?;
        (pairs.narrow(4, 0, 1)?.squeeze(4)?, pairs.narrow(4, 1, 1)?.squeeze(4)?)
    } else {
        (x.narrow(3, 0, d / 2)?, x.narrow(3, d / 2, d / 2)?)
    };
    let left = (first.broadcast_mul(cos)? - second.broadcast_mul(sin)?)?;
    let right = (first.broadcast_mul(sin)? + second.broadcast_mul(cos)?)?;
    if interleaved { Tensor::stack(&[left, right], 4)?.reshape((b, h, t, d)) } else { Tensor::cat(&[left, right], 3) }
}
