//! Normalization of groups of channels.

use super::pool::parallel;
use super::values::{Values, floats};
use crate::backend::{Operand, OperandMut};
use crate::error::Result;

/// Elements of a task.
const CHUNK: usize = 1 << 15;

/// A slice whose disjoint parts are written by several threads.
struct Parts<T>(*mut T);

// SAFETY: every task writes a part of its own.
unsafe impl<T> Sync for Parts<T> {}

/// Calls `run` with parts of `size` elements of `x`, the last one shorter, on several threads.
fn by_parts<T: Send>(x: &mut [T], size: usize, run: &(dyn Fn(usize, &mut [T]) + Sync)) {
    let (len, target) = (x.len(), Parts(x.as_mut_ptr()));
    parallel(len.div_ceil(size.max(1)), &|task| {
        let target = &target;
        let start = task * size;
        // SAFETY: the part is within the slice, and no other task has it.
        run(task, unsafe { std::slice::from_raw_parts_mut(target.0.add(start), size.min(len - start)) });
    });
}

/// Normalizes (images, channels, height, width) in the order its memory has, with `silu` followed by SiLU. Sums are in `f64`.
pub(super) fn group_norm(
    x: &Operand<'_>,
    groups: usize,
    weight: &Operand<'_>,
    bias: &Operand<'_>,
    eps: f32,
    silu: bool,
    out: &mut OperandMut<'_>,
) -> Result<()> {
    let [images, channels, height, width] = [0, 1, 2, 3].map(|d| x.layout.shape()[d]);
    let (area, per_group) = (height * width, channels / groups);
    let (weight, bias) = (floats(weight)?, floats(bias)?);
    let last = x.layout.strides()[1] == 1 && channels > 1;
    let reordered = |layout: warpwave_kernels::Layout| -> Result<warpwave_kernels::Layout> {
        if last { Ok(layout.transpose(1, 2)?.transpose(2, 3)?) } else { Ok(layout) }
    };
    let mut values = floats(&x.with_layout(reordered(x.layout)?))?.into_owned();
    if values.is_empty() {
        return Values::F32(values).store(out);
    }
    // The channel of an element, given its place in its image.
    let pixels = (CHUNK / channels).clamp(1, area);
    let (chunk, chunks) = if last { (pixels * channels, area.div_ceil(pixels)) } else { (area, channels) };
    let image = channels * area;
    // Sums and sums of squares of each chunk, by group.
    let mut sums = vec![[0.0f64; 2]; images * chunks * groups];
    by_parts(&mut sums, groups, &|task, sums| {
        let start = task % chunks * chunk;
        let part = &values[task / chunks * image..][start..(start + chunk).min(image)];
        let mut add = |group: usize, part: &[f32]| {
            for x in part {
                sums[group][0] += f64::from(*x);
                sums[group][1] += f64::from(*x) * f64::from(*x);
            }
        };
        if last {
            part.chunks_exact(per_group).enumerate().for_each(|(i, part)| add(i % groups, part));
        } else {
            add(task % chunks / per_group, part);
        }
    });
    // Mean and factor of each group of each image.
    let count = (per_group * area) as f64;
    let statistics: Vec<[f32; 2]> = (0..images * groups)
        .map(|i| {
            let chunks = (0..chunks).map(|chunk| sums[(i / groups * chunks + chunk) * groups + i % groups]);
            let [sum, squares] = chunks.fold([0.0, 0.0], |all, one| [all[0] + one[0], all[1] + one[1]]);
            let mean = sum / count;
            let variance = (squares / count - mean * mean).max(0.0);
            [mean as f32, (1.0 / (variance + f64::from(eps)).sqrt()) as f32]
        })
        .collect();
    for (i, values) in values.chunks_exact_mut(image).enumerate() {
        let statistics = &statistics[i * groups..][..groups];
        let normal = |x: &mut f32, channel: usize| {
            let [mean, factor] = statistics[channel / per_group];
            let y = (*x - mean) * factor * weight[channel] + bias[channel];
            *x = if silu { y / (1.0 + (-y).exp()) } else { y };
        };
        by_parts(values, chunk, &|task, part| match last {
            true => part.chunks_exact_mut(channels).for_each(|pixel| pixel.iter_mut().enumerate().for_each(|(c, x)| normal(x, c))),
            false => part.iter_mut().for_each(|x| normal(x, task)),
        });
    }
    let layout = reordered(out.layout)?;
    Values::F32(values).store(&mut OperandMut::new(out.storage, out.dtype, layout))
}
