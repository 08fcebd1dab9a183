//! Group norm of images whose channels are adjacent in memory (NHWC).

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch, Stream};

use super::{Norm, pointer};
use crate::common::rows::{Dim, PACK, merged};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::{Kernels, launch_error};
use crate::program::{Program, SourceFile, source_file};
use crate::view::View;

static SOURCE: SourceFile = source_file!("norm/group_norm_nhwc.cu", &["_stats", "_merge", "_apply"]);

const OP: &str = "group_norm";
/// The usual threads of a block; images of many channels have more.
const THREADS: usize = 256;
const MAX_THREADS: usize = 1024;
/// Vectors in flight per thread, as in the kernels.
const LOADS: usize = 4;
/// The most parts that every block joins by itself; more are joined by a kernel before.
const MAX_PARTS: usize = 64;
/// Images up to this size are divided into at most [`MAX_PARTS`] parts: a third kernel would cost more than it gains.
const SMALL: usize = 8 << 20;
/// The most shared memory of a block, in bytes.
const MAX_SHARED: usize = 48 << 10;

/// Parameters of the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Params {
    image_stride: u64,
    pixel_stride: u64,
    out_image_stride: u64,
    out_pixel_stride: u64,
    weight_stride: u64,
    bias_stride: u64,
    pixels: u32,
    chunk: u32,
    groups: u32,
    per_group: u32,
    parts: u32,
    part_pixels: u32,
    epsilon: f32,
    padding: u32,
}

/// A call of the kernels.
pub(super) struct Plan {
    images: usize,
    pixels: usize,
    channels: usize,
    /// Elements of a vector.
    width: usize,
    /// Threads of a block: vectors of a pixel, and pixels.
    columns: usize,
    rows: usize,
    /// Strides of images and pixels, of the input and the result.
    strides: [[usize; 2]; 2],
}

fn program(dtype: DType, kind: DType, width: usize, silu: bool) -> Program {
    let constants = [("VECTOR", width as u32), ("SILU", u32::from(silu))];
    Program::new(&SOURCE, "group_norm_nhwc", &[dtype.name(), kind.name()], &constants)
}

impl Plan {
    /// A plan, if the channels of both images are adjacent and the kernels handle as many.
    pub fn new(x: &View<'_>, out: &View<'_>, groups: usize) -> Option<Plan> {
        let (shape, size) = (x.layout().shape(), x.dtype().size());
        let strides = |d: usize| [x.layout().strides()[d], out.layout().strides()[d]];
        let (images, channels) = (shape[0], shape[1]);
        let spatial = (2..shape.len()).rev().map(|d| Dim { size: shape[d], strides: [strides(d)[0], strides(d)[1], 0] });
        let [Dim { size: pixels, strides: [x_pixel, out_pixel, _] }] = merged(spatial, true)[..] else { return None };
        if x.dtype() == DType::F64 || channels == 1 || strides(1) != [1, 1] || images > usize::from(u16::MAX) || pixels > 1 << 30 {
            return None;
        }
        let strides = [[strides(0)[0], x_pixel], [strides(0)[1], out_pixel]];
        let vector = PACK / size;
        let fits = |address: u64, strides: [usize; 2]| {
            let steps = if images > 1 { &strides[..] } else { &strides[1..] };
            address.is_multiple_of(PACK as u64) && steps.iter().all(|stride| stride.is_multiple_of(vector))
        };
        let whole = channels.is_multiple_of(vector) && fits(x.address(), strides[0]) && fits(out.address(), strides[1]);
        let width = if whole { vector } else { 1 };
        let columns = channels / width;
        let plan = Plan { images, pixels, channels, width, columns, rows: (THREADS / columns).max(1), strides };
        let shared = plan.stats_shared().max(plan.apply_shared(groups));
        (columns <= MAX_THREADS && shared <= MAX_SHARED).then_some(plan)
    }

    fn threads(&self) -> usize {
        self.columns * self.rows
    }

    fn stats_shared(&self) -> usize {
        let rows = 2 * self.width * (self.rows - 1) * self.columns;
        4 * rows.max(2 * self.channels + 2 * self.threads())
    }

    fn apply_shared(&self, groups: usize) -> usize {
        4 * (2 * groups + 2 * self.threads())
    }

    /// Launches the kernels. `kind` is the type of weight and bias.
    pub fn launch(
        &self,
        kernels: &Kernels,
        stream: &Stream,
        [x, out]: [&View<'_>; 2],
        (norm, kind): (&Norm<'_>, DType),
        groups: usize,
        silu: bool,
    ) -> Result<()> {
        let failed = || launch_error(OP);
        let programs = kernels.load(&program(x.dtype(), kind, self.width, silu))?;
        let step = |view: Option<View<'_>>| view.map_or(0, |view| view.layout().strides()[0] as u64);
        let per_step = self.rows * LOADS;
        let units = kernels.device().info().compute_units as usize;
        let most = if self.pixels * self.channels * x.dtype().size() <= SMALL { MAX_PARTS } else { usize::MAX };
        let wanted = (4 * units / self.images).clamp(1, self.pixels.div_ceil(per_step)).min(most);
        let part_pixels = self.pixels.div_ceil(wanted);
        let parts = self.pixels.div_ceil(part_pixels);
        let params = Params {
            image_stride: self.strides[0][0] as u64,
            pixel_stride: self.strides[0][1] as u64,
            out_image_stride: self.strides[1][0] as u64,
            out_pixel_stride: self.strides[1][1] as u64,
            weight_stride: step(norm.weight),
            bias_stride: step(norm.bias),
            pixels: self.pixels as u32,
            chunk: part_pixels as u32,
            groups: groups as u32,
            per_group: (self.channels / groups) as u32,
            parts: parts as u32,
            part_pixels: part_pixels as u32,
            epsilon: norm.epsilon as f32,
            padding: 0,
        };
        let block = [self.columns as u32, self.rows as u32, 1];
        let mut moments = stream.alloc::<f32>(2 * self.images * parts * groups).map_err(failed())?;
        let launch = Launch::new([parts as u32, self.images as u32, 1], block).shared(self.stats_shared() as u32).pdl();
        // SAFETY: the kernel was compiled for these types and takes these arguments; the plan has the image's strides, and the buffer has room
        // for the moments of every part.
        unsafe { programs[0].launch(stream, launch, (x.start(), &mut moments, Arg::value(&params))) }.map_err(failed())?;
        let mut params = params;
        if parts > MAX_PARTS {
            let mut merged = stream.alloc::<f32>(2 * self.images * groups).map_err(failed())?;
            let launch = Launch::new([self.images as u32, 1, 1], [THREADS as u32, 1, 1]).shared(8 * THREADS as u32).pdl();
            // SAFETY: as above; the result has room for one part per image.
            unsafe { programs[1].launch(stream, launch, (&moments, &mut merged, Arg::value(&params))) }.map_err(failed())?;
            moments = merged;
            (params.parts, params.part_pixels) = (1, self.pixels as u32);
        }
        params.chunk = (2 * per_step) as u32;
        let blocks = self.pixels.div_ceil(2 * per_step) as u32;
        let launch = Launch::new([blocks, self.images as u32, 1], block).shared(self.apply_shared(groups) as u32).pdl();
        let args = (x.start(), &moments, pointer(norm.weight), pointer(norm.bias), out.start(), Arg::value(&params));
        // SAFETY: as above; views were checked against their memory, and each thread writes the elements it read.
        unsafe { programs[2].launch(stream, launch, args) }.map_err(failed())
    }
}

/// Lists the programs.
pub(super) fn programs() -> Vec<Program> {
    let mut programs = Vec::new();
    for dtype in [DType::F16, DType::Bf16, DType::F32] {
        for kind in std::iter::once(dtype).chain((dtype != DType::F32).then_some(DType::F32)) {
            for (width, silu) in [(PACK / dtype.size(), false), (PACK / dtype.size(), true), (1, false), (1, true)] {
                programs.push(program(dtype, kind, width, silu));
            }
        }
    }
    programs
}
