//! Products with the matrices of experts on matrix units, of 16-bit floats.

use warpwave_gpu::MatrixUnits;
use warpwave_kernels::{DType, Error, ExpertTiles, ExpertWeights, Kernels, Layout, Quant, QuantView, View, ViewMut};

use super::reference::Varlen;
use super::{FLOATS, compare, draw, placed};
use crate::common::values::round;
use crate::common::{Random, devices, seed};
use crate::suite::{Suite, room};

/// The weights of some experts: of a plain type, or blocks.
enum Weights {
    Plain(DType, Vec<f32>),
    Blocks(Varlen),
}

impl Weights {
    /// The weight, and how large what it is computed from.
    fn at(&self, row: usize, column: usize, columns: usize) -> (f64, f64) {
        match self {
            Weights::Plain(_, values) => {
                let value = f64::from(values[row * columns + column]);
                (value, value.abs())
            }
            Weights::Blocks(blocks) => {
                let weight = blocks.weight(row, column);
                (weight.value(), weight.size())
            }
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Weights::Plain(dtype, values) => placed(values, *dtype, &Layout::contiguous(&[values.len()]).unwrap()),
            Weights::Blocks(blocks) => blocks.codes.clone(),
        }
    }
}

/// Experts, rows and columns of their matrices, tokens, and experts of a token.
#[derive(Debug, Clone, Copy)]
struct Shape {
    experts: usize,
    rows: usize,
    columns: usize,
    tokens: usize,
    used: usize,
}

/// Sums of an assignment's products, and how far each may be off.
fn product(weights: &Weights, x: &[f32], expert: usize, shape: Shape) -> Vec<(f64, f64)> {
    let row = |row: usize| {
        let (mut sum, mut allowed) = (0.0, 0.0);
        for (column, x) in x.iter().enumerate() {
            let ((weight, size), x) = (weights.at(expert * shape.rows + row, column, shape.columns), f64::from(*x));
            sum += weight * x;
            // Activations are rounded to the type of the weights. To f16, scales, minimums and weights too; small numbers may become 0.
            allowed += match weights {
                Weights::Plain(DType::Bf16, _) => size * x.abs() * 2f64.powi(-8),
                _ => 3.02 * size * x.abs() * 2f64.powi(-11) + size * 2f64.powi(-10) + x.abs() * 2f64.powi(-14),
            } + size * x.abs() * 2f64.powi(-19);
        }
        (sum, allowed)
    };
    (0..shape.rows).map(row).collect()
}

/// silu(gate) · up with its error: silu is not steeper than 1.1.
fn swiglu((gate, gate_off): (f64, f64), (up, up_off): (f64, f64)) -> (f64, f64) {
    let silu = gate / (1.0 + (-gate).exp());
    let value = silu * up;
    (value, 1.1 * gate_off * (up.abs() + up_off) + silu.abs() * up_off + value.abs() * 2f64.powi(-18) + 1e-30)
}

fn case(suite: &Suite, quant: Option<Quant>, plain: DType, [from, to]: [DType; 2], shape: Shape, random: &mut Random) {
    let Suite { kernels, stream } = suite;
    let Shape { experts, rows, columns, tokens, used } = shape;
    let mut weights = || match quant {
        Some(quant) => Weights::Blocks(draw(quant, experts * rows, columns, false, random)),
        None => {
            let values = (0..experts * rows * columns).map(|_| round(plain, random.unit() - 0.5) as f32);
            Weights::Plain(plain, values.collect())
        }
    };
    let all = [weights(), weights()];
    let on_device = [0, 1].map(|i: usize| stream.upload(&all[i].bytes()).unwrap());
    let view = |i: usize| match quant {
        Some(quant) => ExpertWeights::Quant(QuantView::new(quant, &on_device[i], experts * rows, columns).unwrap(), experts),
        None => {
            let layout = Layout::contiguous(&[experts, rows, columns]).unwrap();
            ExpertWeights::Plain(View::of_bytes(&on_device[i], plain, layout).unwrap())
        }
    };
    let assignments = tokens * used;
    let ids: Vec<u32> = (0..assignments).map(|_| random.below(experts) as u32).collect();
    let biases: Vec<Vec<f32>> = (0..2).map(|_| (0..experts * rows).map(|_| random.unit() as f32 - 0.5).collect()).collect();
    // A row of x for each token, or for each assignment.
    let share = if random.below(2) == 0 { used } else { 1 };
    let x: Vec<f32> = (0..assignments / share * columns).map(|_| round(from, random.unit() * 2.0 - 1.0) as f32).collect();
    let x_layout = Layout::rows(assignments / share, columns, columns + random.below(3), random.below(3)).unwrap();
    let input = stream.upload(&placed(&x, from, &x_layout)).unwrap();
    let x_view = View::of_bytes(&input, from, x_layout).unwrap();

    let Some(tile_rows) = kernels.matrix_tile_rows(&view(0), assignments) else {
        assert_eq!(kernels.device().info().matrix_units, MatrixUnits::None);
        return;
    };
    assert!(tile_rows >= 16 && tile_rows.is_power_of_two());
    let count = ExpertTiles::count(assignments, experts, tile_rows);
    let layout = |shape: &[usize]| Layout::contiguous(shape).unwrap();
    let ids_there = stream.upload(&ids).unwrap();
    let (mut order, mut tiles) = (stream.alloc::<u32>(assignments).unwrap(), stream.alloc::<u32>(count * 3).unwrap());
    let ids_view = View::new(&ids_there, layout(&[tokens, used])).unwrap();
    let mut order_view = ViewMut::new(&mut order, layout(&[assignments])).unwrap();
    let mut tiles_view = ViewMut::new(&mut tiles, layout(&[count, 3])).unwrap();
    kernels.moe_sort(stream, &ids_view, experts, tile_rows, &mut order_view, &mut tiles_view).unwrap();
    let tiles = ExpertTiles { order: order_view.as_view(), tiles: tiles_view.as_view(), rows: tile_rows };
    let biases_there = [0, 1].map(|i: usize| stream.upload(&biases[i]).unwrap());
    let bias_views = [0, 1].map(|i: usize| View::new(&biases_there[i], layout(&[experts, rows])).unwrap());
    let biased = random.below(2) == 0;

    let sums = |i: usize, assignment: usize| {
        let expert = ids[assignment] as usize;
        let mut sums = product(&all[i], &x[assignment / share * columns..][..columns], expert, shape);
        let bias = &biases[i][expert * rows..][..rows];
        sums.iter_mut().zip(bias).filter(|_| biased).for_each(|(sum, bias)| sum.0 += f64::from(*bias));
        sums
    };
    let out_layout = Layout::rows(assignments, rows, rows + random.below(3), random.below(3)).unwrap();
    for fused in [false, true] {
        let poison: Vec<u8> = (0..room(&out_layout, to)).map(|_| random.next_u64() as u8).collect();
        let mut out = stream.upload(&poison).unwrap();
        let mut target = ViewMut::of_bytes(&mut out, to, out_layout).unwrap();
        if fused {
            let both = biased.then_some([&bias_views[0], &bias_views[1]]);
            kernels.grouped_swiglu(stream, &view(0), &view(1), &tiles, &x_view, both, &mut target).unwrap();
        } else {
            kernels.grouped_matmul(stream, &view(0), &tiles, &x_view, biased.then_some(&bias_views[0]), &mut target).unwrap();
        }
        let found = stream.download(&out).unwrap();
        let mut wanted = Vec::new();
        for assignment in 0..assignments {
            let gate = sums(0, assignment);
            match fused {
                true => wanted.extend(gate.into_iter().zip(sums(1, assignment)).map(|(gate, up)| swiglu(gate, up))),
                false => wanted.extend(gate),
            }
        }
        compare(&format!("grouped (swiglu {fused}) of {quant:?} {plain} {shape:?}"), to, &out_layout, &poison, &found, &wanted);
    }
}

#[test]
fn products_with_experts_on_matrix_units_agree_with_the_reference() {
    let seed = seed();
    for device in devices() {
        let suite = Suite::new(&device);
        let mut random = Random::new(seed);
        let quants = [Quant::Q4K, Quant::Q8_0, Quant::Q4_0, Quant::Mxfp4, Quant::Q6K, Quant::Q5_1];
        let mut formats = vec![(None, DType::Bf16), (None, DType::F16)];
        let first = random.below(quants.len());
        formats.extend([0, 1].map(|i| (Some(quants[(first + i) % quants.len()]), DType::F32)));
        for (quant, plain) in formats {
            let types = [FLOATS[random.below(3)], FLOATS[random.below(3)]];
            let columns = if quant.is_some() { 256 * (1 + random.below(2)) } else { 8 * (1 + random.below(50)) };
            let shape = Shape { experts: 3, rows: 1 + random.below(70), columns, tokens: 1 + random.below(30), used: 1 + random.below(3) };
            case(&suite, quant, plain, types, shape, &mut random);
        }
    }
}

#[test]
fn products_with_experts_that_matrix_units_cannot_do_are_rejected() {
    for device in devices() {
        let Suite { kernels, stream } = Suite::new(&device);
        let weights = stream.alloc_zeroed::<f32>(2 * 8 * 16).unwrap();
        let experts = ExpertWeights::Plain(View::new(&weights, Layout::contiguous(&[2, 8, 16]).unwrap()).unwrap());
        assert_eq!(kernels.matrix_tile_rows(&experts, 40), None);
        let refused = run(&kernels, &stream, &experts, 4);
        assert!(matches!(refused, Err(Error::BadArgument { .. })), "{refused:?}");
        // Nothing to do.
        run(&kernels, &stream, &experts, 0).unwrap();
    }
}

/// A fused product of some tokens, whose operands are zeros.
fn run(kernels: &Kernels, stream: &warpwave_gpu::Stream, experts: &ExpertWeights<'_>, tokens: usize) -> Result<(), Error> {
    let layout = |shape: &[usize]| Layout::contiguous(shape).unwrap();
    let count = ExpertTiles::count(tokens, 2, 16);
    let (order, tiles) = (stream.alloc_zeroed::<u32>(tokens).unwrap(), stream.alloc_zeroed::<u32>(count * 3).unwrap());
    let (x, mut out) = (stream.alloc_zeroed::<f32>(tokens * 16).unwrap(), stream.alloc_zeroed::<f32>(tokens * 8).unwrap());
    let tiles = ExpertTiles {
        order: View::new(&order, layout(&[tokens])).unwrap(),
        tiles: View::new(&tiles, layout(&[count, 3])).unwrap(),
        rows: 16,
    };
    let x = View::new(&x, layout(&[tokens, 16])).unwrap();
    kernels.grouped_swiglu(stream, experts, experts, &tiles, &x, None, &mut ViewMut::new(&mut out, layout(&[tokens, 8])).unwrap())
}
