//! Pooling, resampling, im2col and padding.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Stream};

use crate::conv::Conv;
use crate::dtype::{DType, Scalar};
use crate::elementwise::plan::{Dim, MAX_OPERANDS, launch, to_dims};
use crate::error::{Error, Result};
use crate::kernels::{Kernels, check_no_overlap, check_same_dtype, dtype_error, launch_error, shape_error};
use crate::layout::{Layout, MAX_DIMS};
use crate::program::{Program, SourceFile, bits_type, source_file};
use crate::view::{View, ViewMut};

static IMAGE: SourceFile = source_file!("image/image.cu", &[""]);
static PAD: SourceFile = source_file!("image/pad.cu", &[""]);

/// Threads of a block.
const BLOCK: u32 = 256;

/// The largest size of a dimension, and the limit of elements, which kernels count in 32 bits.
const LIMIT: usize = 1 << 30;

/// Operations that compute with elements, and the types they take.
const COMPUTING: [&str; 4] = ["avg_pool2d", "max_pool2d", "upsample_bilinear2d", "col2im"];
const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::Bf16, DType::F64];

/// Windows that are pooled, by height and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// Size of a window.
    pub kernel: [usize; 2],
    /// Step of the window.
    pub stride: [usize; 2],
    /// Positions around the input, on both sides; at most half a window.
    pub padding: [usize; 2],
    /// Whether an average counts padding as zeros; otherwise it is of the elements of the input only. Maxima never count padding.
    pub count_include_pad: bool,
}

impl Pool {
    /// Windows side by side, without padding.
    pub fn new(kernel: [usize; 2]) -> Pool {
        Pool { kernel, stride: kernel, padding: [0; 2], count_include_pad: true }
    }

    /// Sets the step.
    pub fn stride(self, stride: [usize; 2]) -> Pool {
        Pool { stride, ..self }
    }

    /// Sets the padding.
    pub fn padding(self, padding: [usize; 2]) -> Pool {
        Pool { padding, ..self }
    }

    /// Returns the shape of the result for an input of (images, channels, height, width). The error says what does not fit.
    pub fn output_shape(&self, x: &[usize]) -> Result<[usize; 4], String> {
        let Pool { kernel, padding, .. } = *self;
        if (0..2).any(|d| padding[d] > kernel[d] / 2) {
            return Err(format!("padding {padding:?} exceeds half the window {kernel:?}"));
        }
        let conv = Conv { stride: self.stride, padding, ..Conv::new() };
        let &[_, channels, ..] = x else { return Err(format!("expected (images, channels, height, width), got {x:?}")) };
        let [images, _, height, width] = conv.output_shape(x, &[1, channels, kernel[0], kernel[1]], false)?;
        Ok([images, channels, height, width])
    }
}

/// What positions beyond a tensor hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PadMode {
    /// A value, rounded to the type.
    Constant(Scalar),
    /// The elements within, mirrored at the first and last one, which are not repeated. Fewer positions than the dimension has.
    Reflect,
    /// The first and the last element.
    Replicate,
}

impl PadMode {
    /// Returns the shape of a tensor with positions added before and after each dimension. The error says what does not fit.
    pub fn output_shape(&self, x: &[usize], pads: &[(usize, usize)]) -> Result<Vec<usize>, String> {
        if pads.len() != x.len() {
            return Err(format!("expected a pair of sizes for each of {} dimensions, got {}", x.len(), pads.len()));
        }
        let padded = |(size, (before, after)): (&usize, &(usize, usize))| {
            let most = match self {
                PadMode::Constant(_) => usize::MAX,
                PadMode::Reflect => size.saturating_sub(1),
                PadMode::Replicate if *size == 0 => 0,
                PadMode::Replicate => usize::MAX,
            };
            if *before.max(after) > most {
                return Err(format!("cannot pad a dimension of size {size} by ({before}, {after}) with {self:?}"));
            }
            size.checked_add(*before)
                .and_then(|size| size.checked_add(*after))
                .ok_or_else(|| format!("{x:?} padded by {pads:?} exceeds the address space"))
        };
        x.iter().zip(pads).map(padded).collect()
    }
}

/// Parameters of the kernels; mirrors `Window` in `image.cu`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Window {
    x: [u64; 4],
    size: [i32; 2],
    kernel: [i32; 2],
    stride: [i32; 2],
    padding: [i32; 2],
    dilation: [i32; 2],
    out: [i32; 2],
    channels_last: u32,
    include_padding: u32,
    align_corners: u32,
    unused: u32,
}

/// Parameters of the padding kernel; mirrors `Pad` in `pad.cu`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Pad {
    before: [i64; MAX_DIMS],
    size: [i64; MAX_DIMS],
    value: u64,
    mode: u32,
    unused: u32,
}

fn program(op: &'static str, dtype: DType) -> Program {
    match op {
        "pad" => Program::new(&PAD, op, &[bits_type(dtype)], &[]),
        _ if COMPUTING.contains(&op) => Program::new(&IMAGE, op, &[dtype.name()], &[]),
        _ => Program::new(&IMAGE, op, &[bits_type(dtype)], &[]),
    }
}

fn bad(op: &str, reason: impl Into<String>) -> Error {
    Error::BadArgument { op: op.to_owned(), reason: reason.into() }
}

fn small([a, b]: [usize; 2]) -> [i32; 2] {
    [a as i32, b as i32]
}

/// The window of a convolution, for [`Kernels::im2col`].
fn window(kernel: [usize; 2], conv: &Conv) -> Window {
    let Conv { stride, padding, dilation, .. } = *conv;
    let [kernel, stride, padding, dilation] = [kernel, stride, padding, dilation].map(small);
    Window { kernel, stride, padding, dilation, ..Window::zeroed() }
}

/// (images, output height, output width, taps) as (images, taps, output height, output width).
fn columns_first(columns: &Layout) -> Result<Layout> {
    columns.transpose(2, 3)?.transpose(1, 2)
}

impl Conv {
    /// Returns the shape of the columns of an image: (images, output height, output width, channels · kernel height · kernel width).
    pub fn columns_shape(&self, x: &[usize], kernel: [usize; 2]) -> Result<[usize; 4], String> {
        let &[images, channels, ..] = x else { return Err(format!("expected (images, channels, height, width), got {x:?}")) };
        let conv = Conv { groups: 1, output_padding: [0; 2], ..*self };
        let [_, _, height, width] = conv.output_shape(x, &[1, channels, kernel[0], kernel[1]], false)?;
        let taps = channels.checked_mul(kernel[0]).and_then(|taps| taps.checked_mul(kernel[1]));
        Ok([images, height, width, taps.ok_or_else(|| format!("{channels} channels times kernel {kernel:?} overflows usize"))?])
    }
}

impl Kernels {
    /// Computes the averages of windows of (images, channels, height, width), in f32, f16, bf16 or f64. Strides are arbitrary.
    pub fn avg_pool2d(&self, stream: &Stream, pool: &Pool, x: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        self.pooled(stream, "avg_pool2d", pool, *x, out.as_view())
    }

    /// Computes the maxima of windows; NaN if a window has one. See [`Kernels::avg_pool2d`].
    pub fn max_pool2d(&self, stream: &Stream, pool: &Pool, x: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        self.pooled(stream, "max_pool2d", pool, *x, out.as_view())
    }

    fn pooled(&self, stream: &Stream, op: &'static str, pool: &Pool, x: View<'_>, out: View<'_>) -> Result<()> {
        let shape = pool.output_shape(x.layout().shape()).map_err(|reason| bad(op, reason))?;
        let conv = Conv { stride: pool.stride, padding: pool.padding, ..Conv::new() };
        let window = Window { include_padding: pool.count_include_pad.into(), ..window(pool.kernel, &conv) };
        self.image(stream, op, window, x, out, &shape)
    }

    /// Resizes (images, channels, height, width) to the result's height and width: position `i` of `m` is of position `i · n / m` of `n`,
    /// rounded down. Of any type.
    pub fn upsample_nearest2d(&self, stream: &Stream, x: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        self.upsampled(stream, "upsample_nearest2d", Window::zeroed(), *x, out.as_view())
    }

    /// Resizes (images, channels, height, width) to the result's height and width by bilinear interpolation, in f32, f16, bf16 or f64.
    ///
    /// Pixels are areas, whose outer edges meet; with `align_corners` they are points, of which the outer ones meet.
    pub fn upsample_bilinear2d(&self, stream: &Stream, align_corners: bool, x: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let window = Window { align_corners: align_corners.into(), ..Window::zeroed() };
        self.upsampled(stream, "upsample_bilinear2d", window, *x, out.as_view())
    }

    fn upsampled(&self, stream: &Stream, op: &'static str, window: Window, x: View<'_>, out: View<'_>) -> Result<()> {
        let (&[images, channels, ..], &[.., height, width]) = (x.layout().shape(), out.layout().shape()) else {
            return Err(bad(op, format!("expected four dimensions, got {:?} and {:?}", x.layout().shape(), out.layout().shape())));
        };
        self.image(stream, op, window, x, out, &[images, channels, height, width])
    }

    /// Copies what each position of a kernel meets, zeros outside: from (images, channels, height, width) to (images, positions high,
    /// positions wide, channels · kernel height · kernel width). Of any type; groups of `conv` do not count.
    pub fn im2col(&self, stream: &Stream, kernel: [usize; 2], conv: &Conv, x: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let (op, out) = ("im2col", out.as_view());
        let shape = conv.columns_shape(x.layout().shape(), kernel).map_err(|reason| bad(op, reason))?;
        if out.layout().shape() != shape {
            return Err(shape_error(op, "result", &out, format!("{shape:?}")));
        }
        let [images, height, width, taps] = shape;
        check_no_overlap(op, "input", x, &out)?;
        let out = out.with_layout(columns_first(out.layout())?)?;
        self.image(stream, op, window(kernel, conv), *x, out, &[images, taps, height, width])
    }

    /// Adds columns, as [`Kernels::im2col`] makes them, up where they are from, in f32, f16, bf16 or f64.
    pub fn col2im(&self, stream: &Stream, kernel: [usize; 2], conv: &Conv, columns: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let (op, out) = ("col2im", out.as_view());
        let shape = conv.columns_shape(out.layout().shape(), kernel).map_err(|reason| bad(op, reason))?;
        if columns.layout().shape() != shape {
            return Err(shape_error(op, "input", columns, format!("{shape:?}")));
        }
        let to: [usize; 4] = std::array::from_fn(|d| out.layout().shape()[d]);
        let columns = columns.with_layout(columns_first(columns.layout())?)?;
        self.image(stream, op, window(kernel, conv), columns, out, &to)
    }

    /// Checks and launches an operation from (images, channels, height, width) to another such shape.
    fn image(&self, stream: &Stream, op: &'static str, window: Window, x: View<'_>, out: View<'_>, shape: &[usize; 4]) -> Result<()> {
        let dtype = x.dtype();
        if COMPUTING.contains(&op) && !FLOATS.contains(&dtype) {
            return Err(dtype_error(op, "input", dtype, "f32, f16, bf16 or f64"));
        }
        let &[_, _, height, width] = x.layout().shape() else {
            return Err(shape_error(op, "input", &x, "(images, channels, height, width)"));
        };
        if out.layout().shape() != shape {
            return Err(shape_error(op, "result", &out, format!("{shape:?}")));
        }
        self.check_pair(stream, op, x, out)?;
        if out.layout().is_empty() {
            return Ok(());
        }
        if height * width == 0 && op != "col2im" {
            return Err(bad(op, format!("an input of {height} × {width} has no elements")));
        }
        let sizes = [[height, width], [shape[2], shape[3]]].concat();
        if out.layout().len() >= LIMIT || sizes.iter().any(|size| *size >= LIMIT) {
            return Err(bad(op, format!("a result of {shape:?} exceeds the limit of 2^30 elements; split the batch")));
        }
        let to = out.layout().strides();
        let channels_last = to[1] < to[3] || shape[3] == 1 && to[1] < to[2];
        let order = if channels_last { [1, 3, 2, 0] } else { [3, 2, 1, 0] };
        let window = Window {
            x: std::array::from_fn(|d| x.layout().strides()[d] as u64),
            size: small([height, width]),
            out: small([shape[2], shape[3]]),
            channels_last: channels_last.into(),
            ..window
        };
        let dims = to_dims(&order.map(|d| dim(shape[d], &[to[d]])));
        let kernels = self.load(&program(op, dtype))?;
        let args = (out.start(), x.start(), Arg::value(&window), Arg::value(&dims));
        // SAFETY: the kernel was compiled for this type and takes these arguments; sizes and strides are those of views that were checked
        // against their memory, positions outside the input are not read, and only the result is written.
        unsafe { kernels[0].launch(stream, launch(dims.n(), BLOCK), args) }.map_err(launch_error(op))
    }

    /// Copies a tensor with positions added before each dimension, and after it up to the size of the result. Of any type.
    pub fn pad(&self, stream: &Stream, mode: PadMode, before: &[usize], x: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let (op, out) = ("pad", out.as_view());
        let (from, to) = (x.layout().shape(), out.layout().shape());
        let fits =
            from.len() == to.len() && from.len() == before.len() && (0..to.len()).all(|d| from[d].saturating_add(before[d]) <= to[d]);
        if !fits {
            return Err(shape_error(op, "result", &out, format!("at least {from:?} plus {before:?}")));
        }
        let pads: Vec<(usize, usize)> = (0..to.len()).map(|d| (before[d], to[d] - from[d] - before[d])).collect();
        mode.output_shape(from, &pads).map_err(|reason| bad(op, reason))?;
        self.check_pair(stream, op, *x, out)?;
        if out.layout().is_empty() {
            return Ok(());
        }
        if out.layout().len() >= LIMIT {
            return Err(bad(op, format!("a result of {to:?} exceeds the limit of 2^30 elements")));
        }
        let mut order: Vec<usize> = (0..to.len()).collect();
        order.sort_by_key(|d| (out.layout().strides()[*d], std::cmp::Reverse(*d)));
        let (number, value) = match mode {
            PadMode::Constant(value) => (0, value.to_bits(x.dtype())),
            PadMode::Reflect => (1, 0),
            PadMode::Replicate => (2, 0),
        };
        let mut params = Pad { mode: number, value, ..Pad::zeroed() };
        for (i, d) in order.iter().enumerate() {
            (params.before[i], params.size[i]) = (before[*d] as i64, from[*d] as i64);
        }
        let dims = to_dims(&order.iter().map(|d| dim(to[*d], &[out.layout().strides()[*d], x.layout().strides()[*d]])).collect::<Vec<_>>());
        let kernels = self.load(&program(op, x.dtype()))?;
        let args = (out.start(), x.start(), Arg::value(&params), Arg::value(&dims));
        // SAFETY: as in `image`; the sizes of the mode were checked, so that every position is within the input or constant.
        unsafe { kernels[0].launch(stream, launch(dims.n(), BLOCK), args) }.map_err(launch_error(op))
    }

    /// Checks devices, types and overlap of an input and a result.
    fn check_pair(&self, stream: &Stream, op: &'static str, x: View<'_>, out: View<'_>) -> Result<()> {
        self.check_devices(op, stream, [("input", x), ("result", out)].into_iter())?;
        check_same_dtype(op, "result", out, x.dtype())?;
        check_no_overlap(op, "input", &x, &out)
    }
}

fn dim(size: usize, of: &[usize]) -> Dim {
    let mut strides = [0; MAX_OPERANDS];
    strides[..of.len()].copy_from_slice(of);
    Dim { size, strides }
}

/// Lists the programs.
pub(crate) fn programs() -> Vec<Program> {
    let mut programs: Vec<Program> = COMPUTING.iter().flat_map(|op| FLOATS.map(|dtype| program(op, dtype))).collect();
    for dtype in [DType::U8, DType::F16, DType::F32, DType::F64] {
        programs.extend(["upsample_nearest2d", "im2col", "pad"].map(|op| program(op, dtype)));
    }
    programs
}
