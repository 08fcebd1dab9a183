//! Products with the matrices of experts (mixture of experts).

use warpwave_gpu::Buffer;
use warpwave_kernels::{DType, ExpertTiles, ExpertWeights, Layout, Quant, View, ViewMut};

use super::case::{Bench, Case, Run, Sizes, Work};
use super::quant::Weights;

/// Experts of a token.
const USED: usize = 8;

/// Experts, and rows and columns of their matrices.
#[derive(Clone, Copy)]
struct Shape {
    experts: usize,
    rows: usize,
    columns: usize,
}

pub fn cases(sizes: Sizes) -> Vec<Case> {
    let shape = Shape { experts: sizes.of(128, 8), rows: sizes.of(768, 64), columns: sizes.of(2048, 256) };
    let mut cases = Vec::new();
    for quant in [None, Some(Quant::Q4K), Some(Quant::Mxfp4)] {
        for fused in [false, true] {
            let tokens = [(1, 1), (16, 2), (256, 3), (4096, 4)].map(|(real, small)| sizes.of(real, small));
            cases.extend(tokens.map(|tokens| product(quant, fused, shape, tokens)));
        }
    }
    cases
}

enum Matrices {
    Plain(Buffer<u8>),
    Quantized(Weights),
}

impl Matrices {
    fn view(&self, Shape { experts, rows, columns }: Shape) -> Result<ExpertWeights<'_>, warpwave_kernels::Error> {
        Ok(match self {
            Matrices::Plain(data) => {
                ExpertWeights::Plain(View::of_bytes(data, DType::Bf16, Layout::contiguous(&[experts, rows, columns])?)?)
            }
            Matrices::Quantized(weights) => ExpertWeights::Quant(weights.view()?, experts),
        })
    }
}

/// A product of tokens with their experts' matrices, or silu(gate) · up of two. All experts have as many tokens; few tokens read only some.
fn product(quant: Option<Quant>, fused: bool, shape: Shape, tokens: usize) -> Case {
    let Shape { experts, rows, columns } = shape;
    let assignments = tokens * USED;
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let matrices = || -> Result<Matrices, super::super::super::Failure> {
            Ok(match quant {
                None => Matrices::Plain(bench.normal(DType::Bf16, experts * rows * columns)?),
                Some(quant) => Matrices::Quantized(Weights::new(bench, quant, experts * rows, columns)?),
            })
        };
        let (gate, up) = (matrices()?, if fused { Some(matrices()?) } else { None });
        let ids: Vec<u32> = (0..assignments).map(|i| (i * 67 % experts) as u32).collect();
        let ids = stream.upload(&ids)?;
        let tile_rows = kernels.matrix_tile_rows(&gate.view(shape)?, assignments).unwrap_or(8);
        let count = ExpertTiles::count(assignments, experts, tile_rows);
        let (mut order, mut tiles) = (stream.alloc::<u32>(assignments)?, stream.alloc::<u32>(count * 3)?);
        let (order_layout, tiles_layout) = (Layout::contiguous(&[assignments])?, Layout::contiguous(&[count, 3])?);
        kernels.moe_sort(
            &stream,
            &View::new(&ids, Layout::contiguous(&[tokens, USED])?)?,
            experts,
            tile_rows,
            &mut ViewMut::new(&mut order, order_layout)?,
            &mut ViewMut::new(&mut tiles, tiles_layout)?,
        )?;
        let (x, mut out) = (bench.normal(DType::Bf16, tokens * columns)?, bench.room(DType::Bf16, assignments * rows)?);
        let run: Run = Box::new(move || {
            let tiles = ExpertTiles { order: View::new(&order, order_layout)?, tiles: View::new(&tiles, tiles_layout)?, rows: tile_rows };
            let x = View::of_bytes(&x, DType::Bf16, Layout::contiguous(&[tokens, columns])?)?;
            let mut out = ViewMut::of_bytes(&mut out, DType::Bf16, Layout::contiguous(&[assignments, rows])?)?;
            let gate = gate.view(shape)?;
            match &up {
                Some(up) => kernels.grouped_swiglu(&stream, &gate, &up.view(shape)?, &tiles, &x, None, &mut out)?,
                None => kernels.grouped_matmul(&stream, &gate, &tiles, &x, None, &mut out)?,
            }
            Ok(())
        });
        Ok(run)
    };
    let matrices = if fused { 2 } else { 1 };
    let row_bytes = quant.map_or(2 * columns, |quant| columns / quant.block_size() * quant.block_bytes());
    let work = if assignments <= experts {
        Work::Bytes((assignments * matrices * rows * row_bytes) as u64)
    } else {
        Work::Flops((2 * assignments * matrices * rows * columns) as u64)
    };
    let (op, name) = (if fused { "grouped_swiglu" } else { "grouped_matmul" }, quant.map_or("bf16", Quant::name));
    let plural = if tokens == 1 { "" } else { "s" };
    let setup = format!(
        "n = {assignments}; w = randn({experts}, {rows}, {columns}, dtype=torch.bfloat16).transpose(-2, -1); \
         v = randn({experts}, {rows}, {columns}, dtype=torch.bfloat16).transpose(-2, -1); x = randn(n, {columns}, dtype=torch.bfloat16); \
         ends = torch.cumsum(torch.bincount(torch.arange(n, device='cuda') * 67 % {experts}, minlength={experts}), 0).to(torch.int32)"
    );
    let first = "torch._grouped_mm(x, w, offs=ends)";
    let call = if fused { format!("F.silu({first}) * torch._grouped_mm(x, v, offs=ends)") } else { first.to_owned() };
    Case::new(format!("{op} {name} {rows}x{columns}, {USED} of {experts} experts, {tokens} token{plural}"), work, make).torch(setup, call)
}
