//! The autoencoder in tiles that overlap by a quarter and are blended there.

use warpwave_tensor::Tensor;

use crate::error::{Result, bad_argument};

/// Checks the size of tiles in pixels.
pub(crate) fn size(call: &'static str, tile: Option<usize>, scale: usize) -> Result<Option<usize>> {
    match tile {
        // A quarter of a tile must be whole latents.
        Some(tile) if tile == 0 || !tile.is_multiple_of(8 * scale) => {
            Err(bad_argument(call, format!("expected tiles of a multiple of {} pixels, got {tile}", 8 * scale)))
        }
        tile => Ok(tile),
    }
}

/// Runs `f` on tiles of (images, channels, height, width). A side of the result is `up / down` times that of the input.
pub(crate) fn run(x: &Tensor, tile: usize, up: usize, down: usize, f: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let (height, width) = (x.size(2), x.size(3));
    let step = tile - tile / 4;
    let blend = tile / 4 * up / down;
    let mut rows: Vec<Tensor> = Vec::new();
    for y in starts(height, tile, step) {
        let band = x.narrow(2, y, tile.min(height - y))?;
        let mut row: Vec<Tensor> = Vec::new();
        for x in starts(width, tile, step) {
            row.push(f(&band.narrow(3, x, tile.min(width - x))?.contiguous()?)?);
        }
        rows.push(joined(&row, 3, step * up / down, blend)?);
    }
    joined(&rows, 2, step * up / down, blend)
}

/// Where tiles start; the last one reaches the end.
fn starts(size: usize, tile: usize, step: usize) -> impl Iterator<Item = usize> {
    let count = 1 + size.saturating_sub(tile).div_ceil(step);
    (0..count).map(move |i| i * step)
}

/// Joins tiles that start every `step` positions: the first `blend` positions of a tile fade from the one before to it.
fn joined(tiles: &[Tensor], dim: usize, step: usize, blend: usize) -> Result<Tensor> {
    let mut parts = Vec::new();
    for (i, tile) in tiles.iter().enumerate() {
        let last = i + 1 == tiles.len();
        let end = if last { tile.size(dim) } else { step };
        let Some(before) = i.checked_sub(1).map(|before| &tiles[before]) else {
            parts.push(tile.narrow(dim, 0, end)?);
            continue;
        };
        let overlap = blend.min(before.size(dim) - step).min(end);
        let ramp: Vec<f32> = (0..overlap).map(|i| i as f32 / blend as f32).collect();
        let shape = if dim == 2 { [1, 1, overlap, 1] } else { [1, 1, 1, overlap] };
        let ramp = Tensor::new(&ramp, &shape, tile.device())?;
        let (old, new) = (before.narrow(dim, step, overlap)?, tile.narrow(dim, 0, overlap)?);
        parts.push((&old + ((&new - &old)? * &ramp)?)?);
        parts.push(tile.narrow(dim, overlap, end - overlap)?);
    }
    Ok(Tensor::cat(&parts, dim)?)
}
