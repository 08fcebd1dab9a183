//! 16-bit convolutions in NHWC on Hopper: copies by tensor maps, products by wgmma.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arch, Arg, DeviceInfo, Im2col, Launch, Stream, TensorMap, TensorMemory};

use super::{Conv, ConvParams, Work, strides};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::{Kernels, launch_error};
use crate::program::{Program, SourceFile, source_file};
use crate::view::View;

static SM90A: SourceFile = source_file!("conv/conv_sm90a.cu", &[""]);
static FINISH: SourceFile = source_file!("conv/conv_finish.cu", &[""]);

/// Channels of a step.
const STEP: u32 = 64;
/// The driver with tensor maps.
const TENSOR_MAPS_SINCE: u32 = 12;
const MAX_SPLITS: u32 = 16;
/// The largest workspace for partial sums, in bytes.
const MAX_PARTIAL: u64 = 256 << 20;

/// Pixels and filters of a block, and its time on an H200 in picoseconds for each element of a step.
#[derive(Debug, Clone, Copy)]
struct Tile {
    bm: u32,
    bn: u32,
    stages: u32,
    picoseconds: f64,
}

const TILES: [Tile; 5] = [
    Tile { bm: 128, bn: 64, stages: 8, picoseconds: 30.0 },
    Tile { bm: 128, bn: 160, stages: 6, picoseconds: 22.3 },
    Tile { bm: 128, bn: 256, stages: 4, picoseconds: 21.4 },
    Tile { bm: 256, bn: 128, stages: 4, picoseconds: 21.4 },
    Tile { bm: 256, bn: 160, stages: 4, picoseconds: 19.8 },
];

/// Mirrors `Split` in `conv_sm90a.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Split {
    splits: u32,
    steps: u32,
    tap_steps: u32,
    unused: u32,
}

impl Tile {
    fn program(&self, dtype: DType) -> Program {
        Program::new(&SM90A, "conv_sm90a", &[dtype.name()], &[("BM", self.bm), ("BN", self.bn), ("STAGES", self.stages)])
    }

    /// Dynamic shared memory: tiles aligned to 1024 bytes, then the barriers.
    fn shared(&self) -> u32 {
        1024 + self.stages * ((self.bm + self.bn) * STEP * 2 + 16)
    }

    /// Estimates the time in microseconds, from measurements on an H200: waves of blocks, a tile's epilogue, and the sum of splits.
    fn time(&self, pixels: u64, filters: u64, steps: u32, splits: u32, units: u64) -> f64 {
        let area = f64::from(self.bm * self.bn);
        let tiles = pixels.div_ceil(self.bm.into()) * filters.div_ceil(self.bn.into());
        let waves = (tiles * u64::from(splits)).div_ceil(units) as f64;
        let sum = if splits == 1 { 0.0 } else { 3.0 + (u64::from(splits) * pixels * filters * 8) as f64 / 6e6 };
        waves * (f64::from(steps.div_ceil(splits)) * area * self.picoseconds * 1e-6 + 1.0 + area * 6e-5) + sum
    }

    /// The fastest tile and number of splits.
    fn choose(pixels: u64, filters: u64, steps: u32, units: u64) -> (Tile, u32) {
        let fits = |splits: u32| splits == 1 || u64::from(splits) * pixels * filters * 4 <= MAX_PARTIAL;
        let candidates =
            TILES.iter().flat_map(|tile| (1..=MAX_SPLITS.min(steps)).filter(|splits| fits(*splits)).map(|splits| (*tile, splits)));
        let time = |(tile, splits): &(Tile, u32)| tile.time(pixels, filters, steps, *splits, units);
        candidates.min_by(|a, b| time(a).total_cmp(&time(b))).unwrap_or((TILES[1], 1))
    }
}

/// Whether a result can be written in whole chunks of adjacent channels.
pub(super) fn is_nhwc(view: &View<'_>) -> bool {
    let strides = strides(view);
    strides[1] == 1 && [0, 2, 3].iter().all(|d| strides[*d].is_multiple_of(8)) && view.address().is_multiple_of(16)
}

/// The input's tensor map, if the copy engine can visit the taps of this convolution.
fn input_memory(conv: &Conv, params: &ConvParams, x: &View<'_>) -> Option<(TensorMemory<4>, Im2col)> {
    let shape: [u64; 4] = std::array::from_fn(|d| x.layout().shape()[d] as u64);
    let [images, channels, height, width] = shape;
    let sizes = [channels, width, height, images];
    // Strides of dimensions of size 1 are not used, but must be valid.
    let mut strides = [2; 4];
    let mut least = channels;
    for (d, stride) in [(1, params.x[3]), (2, params.x[2]), (3, params.x[0])] {
        let stride = if sizes[d] == 1 { least } else { stride };
        if stride < least || !stride.is_multiple_of(8) || stride >= 1 << 39 {
            return None;
        }
        strides[d] = stride * 2;
        least = stride * sizes[d];
    }
    let reach = |d: usize| (params.kernel[d] - 1).checked_mul(params.dilation[d]).filter(|reach| *reach < 256);
    let padding = |d: usize| i32::try_from(conv.padding[d]).ok().filter(|padding| *padding <= 128);
    let upper = |d: usize| Some(padding(d)? - reach(d)?).filter(|corner| (-128..128).contains(corner));
    let step = |d: usize| u32::try_from(conv.stride[d]).ok().filter(|step| *step <= 8);
    let im2col = Im2col {
        lower: [-padding(1)?, -padding(0)?],
        upper: [upper(1)?, upper(0)?],
        stride: [step(1)?, step(0)?],
        channels: STEP,
        pixels: 0,
    };
    Some((TensorMemory { address: x.address(), sizes, strides }, im2col))
}

impl Kernels {
    /// Whether the device has the copy engine and wgmma, and the operands fit them.
    pub(super) fn has_conv_sm90a(&self, conv: &Conv, dtype: DType, channels: usize, filters: usize) -> bool {
        let device = self.device();
        runs_on(device.info())
            && device.driver().version().major >= TENSOR_MAPS_SINCE
            && matches!(dtype, DType::F16 | DType::Bf16)
            && conv.groups == 1
            && channels.is_multiple_of(8)
            && filters.is_multiple_of(8)
    }

    /// Convolves 16-bit NHWC with packed weights; `false` if the copy engine cannot visit these taps.
    pub(super) fn conv_sm90a(&self, stream: &Stream, work: &Work<'_>, conv: &Conv, params: &ConvParams, weight: &View<'_>) -> Result<bool> {
        let dtype = work.x.dtype();
        if !is_nhwc(&work.out) {
            return Ok(false);
        }
        let Some((input, im2col)) = input_memory(conv, params, &work.x) else { return Ok(false) };
        let (pixels, filters) = (u64::from(params.pixels), u64::from(params.filters));
        let taps = u64::from(params.k / params.channels);
        let tap_steps = params.channels.div_ceil(STEP);
        let Some(steps) = tap_steps.checked_mul(taps as u32) else { return Ok(false) };
        let device = self.device();
        let units = u64::from(device.info().compute_units.max(1));
        let (tile, splits) = Tile::choose(pixels, filters, steps, units);
        let pixel_map = TensorMap::im2col(device, &input, &Im2col { pixels: tile.bm, ..im2col }).map_err(launch_error(work.op))?;
        let channels = u64::from(params.channels);
        let weights =
            TensorMemory { address: weight.address(), sizes: [channels, taps, filters], strides: [2, channels * 2, channels * taps * 2] };
        let weight_map = TensorMap::tiled(device, &weights, [STEP, 1, tile.bn]).map_err(launch_error(work.op))?;

        let mut params = *params;
        params.tiles = [params.pixels.div_ceil(tile.bm), params.filters.div_ceil(tile.bn)];
        let blocks = u64::from(params.tiles[0]) * u64::from(params.tiles[1]) * u64::from(splits);
        let launch = Launch::new([blocks.min(units) as u32, 1, 1], [384, 1, 1]).shared(tile.shared());
        // Activations are large code, which the finishing kernel has once.
        let is_finished = splits == 1 && params.activation == 0;
        let sums = if is_finished { 0 } else { u64::from(splits) * pixels * filters };
        let partial = stream.alloc::<f32>(sums as usize).map_err(launch_error(work.op))?;
        let bias = work.bias.map_or(Arg::from(0u64), |bias| Arg::from(bias.start()));
        let to = if is_finished { Arg::from(0u64) } else { Arg::from(&partial) };
        let split = Split { splits, steps, tap_steps, unused: 0 };
        let kernels = self.load(&tile.program(dtype))?;
        let touched = (work.x.start(), weight.start());
        let args = (
            work.out.start(),
            bias,
            to,
            Arg::value(&params),
            Arg::value(&split),
            Arg::value(&pixel_map),
            Arg::value(&weight_map),
            touched.0,
            touched.1,
        );
        // SAFETY: the kernel was compiled for this type and takes these arguments, the last two only so that the memory behind the tensor
        // maps counts as used; the copy engine reads inside the tensors, and blocks write pixels and filters inside the result, or
        // inside as many partial sums as were allocated.
        unsafe { kernels[0].launch(stream, launch, args) }.map_err(launch_error(work.op))?;
        if !is_finished {
            let kernels = self.load(&finish(dtype))?;
            let chunks = (pixels * filters / 4).div_ceil(256).min(units * 8) as u32;
            // SAFETY: as above; the kernel reads all partial sums and writes each element of the result once.
            unsafe {
                kernels[0].launch(
                    stream,
                    Launch::new([chunks.max(1), 1, 1], [256, 1, 1]),
                    (work.out.start(), bias, Arg::from(&partial), Arg::value(&params), splits),
                )
            }
            .map_err(launch_error(work.op))?;
        }
        Ok(true)
    }
}

fn finish(dtype: DType) -> Program {
    Program::new(&FINISH, "conv_finish", &[dtype.name()], &[])
}

/// Whether a device executes the kernel's instructions.
pub(super) fn runs_on(info: &DeviceInfo) -> bool {
    info.arch == Arch::compute_capability(9, 0)
}

/// Lists the programs.
pub(super) fn programs() -> Vec<Program> {
    let types = [DType::F16, DType::Bf16];
    types.into_iter().flat_map(|dtype| TILES.iter().map(move |tile| tile.program(dtype)).chain([finish(dtype)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_fit_shared_memory() {
        for tile in TILES {
            assert!(tile.shared() <= 227 << 10, "{tile:?}");
        }
    }

    #[test]
    fn few_tiles_are_split() {
        // A UNet's deepest level: 128 pixels, 1280 filters, 180 steps on 132 multiprocessors.
        let (_, splits) = Tile::choose(128, 1280, 180, 132);
        assert!(splits > 4, "{splits}");
        // Many tiles are not.
        assert_eq!(Tile::choose(1 << 18, 512, 72, 132).1, 1);
        assert_eq!(Tile::choose(8192, 320, 45, 132).1, 1);
    }
}
