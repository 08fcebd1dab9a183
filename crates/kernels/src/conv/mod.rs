//! Convolutions as implicit matrix products.

mod sm90a;

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Buffer, DeviceInfo, Launch, Stream, Vendor};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::{Kernels, check_no_overlap, check_same_dtype, dtype_error, launch_error, shape_error};
use crate::layout::Layout;
use crate::matmul::{Activation, Matmul, Tile};
use crate::program::{Program, SourceFile, bits_type, source_file};
use crate::view::{View, ViewMut};

static MMA: SourceFile = source_file!("conv/conv_mma.cu", &[""]);
static SIMT: SourceFile = source_file!("conv/conv_simt.cu", &[""]);
static DIRECT: SourceFile = source_file!("conv/conv_direct.cu", &[""]);
static PACK: SourceFile = source_file!("conv/conv_pack.cu", &[""]);

const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// With fewer filters in a group a matrix tile would be mostly empty.
const FEW_FILTERS: usize = 8;

/// Sizes of kernels whose weights `conv_pack.cu` reorders, in taps, and the channels of its blocks.
const PACKED_TAPS: [usize; 2] = [9, 25];
const PACK_CHANNELS: usize = 256;

/// Pixels and filters of a block of `conv_simt.cu`.
const SIMT_TILE: u32 = 64;

/// The largest size of a dimension, offset or number of pixels, which kernels keep in 32 bits.
const LIMIT: usize = 1 << 30;

/// How a convolution moves over its input, by height and width, and its epilogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv {
    /// Step of the kernel.
    pub stride: [usize; 2],
    /// Zeros around the input, on both sides.
    pub padding: [usize; 2],
    /// Distance between taps of the kernel.
    pub dilation: [usize; 2],
    /// Groups of channels, each convolved by itself.
    pub groups: usize,
    /// Rows and columns added to the end of the result; of transposed convolutions only.
    pub output_padding: [usize; 2],
    /// Activation, applied after the bias.
    pub activation: Option<Activation>,
}

impl Default for Conv {
    fn default() -> Conv {
        Conv { stride: [1; 2], padding: [0; 2], dilation: [1; 2], groups: 1, output_padding: [0; 2], activation: None }
    }
}

impl Conv {
    /// A convolution with stride 1, without padding.
    pub fn new() -> Conv {
        Conv::default()
    }

    /// Sets the stride of both dimensions.
    pub fn stride(self, stride: usize) -> Conv {
        Conv { stride: [stride; 2], ..self }
    }

    /// Sets the padding of both dimensions.
    pub fn padding(self, padding: usize) -> Conv {
        Conv { padding: [padding; 2], ..self }
    }

    /// Sets the dilation of both dimensions.
    pub fn dilation(self, dilation: usize) -> Conv {
        Conv { dilation: [dilation; 2], ..self }
    }

    /// Sets the number of groups.
    pub fn groups(self, groups: usize) -> Conv {
        Conv { groups, ..self }
    }

    /// Sets the output padding of both dimensions.
    pub fn output_padding(self, output_padding: usize) -> Conv {
        Conv { output_padding: [output_padding; 2], ..self }
    }

    /// Applies an activation after the bias.
    pub fn activation(self, activation: Activation) -> Conv {
        Conv { activation: Some(activation), ..self }
    }

    /// Returns the shape of the result for an input of (images, channels, height, width).
    ///
    /// The weights are (filters, channels / groups, kernel height, kernel width), of a transposed convolution (channels, filters / groups,
    /// kernel height, kernel width). The error says what does not fit.
    pub fn output_shape(&self, x: &[usize], weight: &[usize], transposed: bool) -> Result<[usize; 4], String> {
        let (&[images, channels, height, width], &[first, second, kernel_height, kernel_width]) = (x, weight) else {
            return Err(format!("expected 4-D input and weights, got shapes {x:?} and {weight:?}"));
        };
        let Conv { stride, padding, dilation, groups, output_padding, .. } = *self;
        if groups == 0 || [stride, dilation].concat().contains(&0) {
            return Err(format!("expected stride, dilation and groups of at least 1, got {stride:?}, {dilation:?} and {groups}"));
        }
        let (expected, filters) = if transposed { (first, second.saturating_mul(groups)) } else { (second.saturating_mul(groups), first) };
        if expected != channels || !channels.is_multiple_of(groups) || !filters.is_multiple_of(groups) {
            return Err(format!("weights of shape {weight:?} do not fit {channels} channels in {groups} groups"));
        }
        let mut out = [images, filters, 0, 0];
        for (d, (size, kernel)) in [(height, kernel_height), (width, kernel_width)].into_iter().enumerate() {
            let sizes = [size, kernel, stride[d], padding[d], dilation[d], output_padding[d]];
            if kernel == 0 || sizes.iter().any(|size| *size >= LIMIT) {
                return Err(format!(
                    "expected a kernel of at least 1 × 1 and all sizes below 2^30, got input {x:?} and weights {weight:?} with {self:?}"
                ));
            }
            let reach = dilation[d] * (kernel - 1) + 1;
            out[2 + d] = if transposed {
                if output_padding[d] >= stride[d].max(dilation[d]) {
                    return Err(format!("output padding {output_padding:?} must be less than the stride or the dilation"));
                }
                let whole = size.checked_sub(1).map_or(0, |last| last * stride[d] + reach + output_padding[d]);
                whole
                    .checked_sub(2 * padding[d])
                    .ok_or_else(|| format!("padding {padding:?} leaves no output for input {x:?} and weights {weight:?}"))?
            } else {
                let padded = size + 2 * padding[d];
                if reach > padded {
                    return Err(format!("the dilated kernel size {reach} exceeds the padded input size {padded}"));
                }
                (padded - reach) / stride[d] + 1
            };
        }
        Ok(out)
    }
}

/// Parameters of the kernels; mirrors `Conv` in `conv.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ConvParams {
    x: [u64; 4],
    out: [u64; 4],
    w: [u64; 4],
    w_group: u64,
    bias: u64,
    channels: u32,
    filters: u32,
    groups: u32,
    k: u32,
    pixels: u32,
    sizes: [i32; 4],
    kernel: [i32; 2],
    stride: [i32; 2],
    padding: [i32; 2],
    dilation: [i32; 2],
    activation: u32,
    has_bias: u32,
    tiles: [u32; 2],
    unused: u32,
}

fn strides(view: &View<'_>) -> [u64; 4] {
    // The stride of a dimension of size 1 is not used, but would overflow address arithmetic.
    std::array::from_fn(|d| if view.layout().shape()[d] == 1 { 0 } else { view.layout().strides()[d] as u64 })
}

/// An image in NCHW as (images, channels, pixels), if its planes are contiguous.
fn as_planes<'a>(view: &View<'a>) -> Result<Option<View<'a>>> {
    let ([n, c, h, w], strides) = (std::array::from_fn(|d| view.layout().shape()[d]), view.layout().strides());
    if c == 1 || (w > 1 && strides[3] != 1) || (h > 1 && strides[2] != w) || strides[1] < h * w {
        return Ok(None);
    }
    let layout = Layout::new(&[n, c, h * w], &[strides[0], strides[1], 1], view.layout().offset())?;
    Ok(Some(view.with_layout(layout)?))
}

/// (filters, channels, height, width) of all groups with channels innermost and rows of a filter padded to 16 bytes.
fn packed_layout([filters, channels, height, width]: [usize; 4], each: usize) -> Result<Layout> {
    let row = (channels * height * width).next_multiple_of(each);
    Layout::new(&[filters, channels, height, width], &[row, 1, width * channels, channels], 0)
}

fn program(file: &'static SourceFile, transposed: bool, dtype: DType, constants: &[(&'static str, u32)]) -> Program {
    let ops = if std::ptr::eq(file, &MMA) {
        ["conv_mma", "conv_transpose_mma"]
    } else if std::ptr::eq(file, &SIMT) {
        ["conv_simt", "conv_transpose_simt"]
    } else {
        ["conv_direct", "conv_transpose_direct"]
    };
    Program::new(file, ops[usize::from(transposed)], &[dtype.name()], constants).with("TRANSPOSED", transposed.into())
}

impl Kernels {
    /// Computes a 2-D convolution: `out = activation(conv(x, weight) + bias)`.
    ///
    /// `x` is (images, channels, height, width), `weight` (filters, channels / groups, kernel height, kernel width), `bias` (filters) and
    /// `out` as [`Conv::output_shape`] says, all of f32, f16 or bf16. Strides are arbitrary: NHWC is a permuted view. Sums are f32 and
    /// rounded once. 16-bit convolutions are fastest with input, weights and result of adjacent channels (NHWC) in multiples of 8; other
    /// layouts are copied first.
    pub fn conv2d(
        &self,
        stream: &Stream,
        conv: &Conv,
        x: &View<'_>,
        weight: &View<'_>,
        bias: Option<&View<'_>>,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        let shape = out.layout().shape();
        if let (&[_, filters, h, w], [_, channels, ..]) = (shape, x.layout().shape())
            && self.has_conv_sm90a(conv, x.dtype(), *channels, filters)
            && !sm90a::is_nhwc(&out.as_view())
            && weight.layout().shape().get(2..) != Some(&[1; 2])
        {
            // The fast kernel writes NHWC.
            let dtype = x.dtype();
            let nhwc = Layout::new(shape, &[h * w * filters, 1, w * filters, filters], 0)?;
            let mut memory = stream.alloc::<u8>(nhwc.len() * dtype.size()).map_err(launch_error("conv2d"))?;
            self.conv2d(stream, conv, x, weight, bias, &mut ViewMut::of_bytes(&mut memory, dtype, nhwc)?)?;
            return self.copy(stream, &View::of_bytes(&memory, dtype, nhwc)?, out);
        }
        self.convolve(stream, "conv2d", conv, [*x, *weight, out.as_view()], bias.copied(), false)
    }

    /// Computes a transposed 2-D convolution, the gradient of [`Kernels::conv2d`] by its input.
    ///
    /// `weight` is (channels, filters / groups, kernel height, kernel width).
    pub fn conv_transpose2d(
        &self,
        stream: &Stream,
        conv: &Conv,
        x: &View<'_>,
        weight: &View<'_>,
        bias: Option<&View<'_>>,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        self.convolve(stream, "conv_transpose2d", conv, [*x, *weight, out.as_view()], bias.copied(), true)
    }

    fn convolve(
        &self,
        stream: &Stream,
        op: &'static str,
        conv: &Conv,
        [x, weight, out]: [View<'_>; 3],
        bias: Option<View<'_>>,
        transposed: bool,
    ) -> Result<()> {
        let dtype = x.dtype();
        if !TYPES.contains(&dtype) {
            return Err(dtype_error(op, "input", dtype, "f32, f16 or bf16"));
        }
        let inputs = [("input", x), ("weights", weight)].into_iter().chain(bias.map(|bias| ("bias", bias)));
        self.check_devices(op, stream, inputs.clone().chain([("result", out)]))?;
        for (what, view) in inputs {
            check_same_dtype(op, what, view, dtype)?;
            check_no_overlap(op, what, &view, &out)?;
        }
        check_same_dtype(op, "result", out, dtype)?;
        let bad = |reason: String| Error::BadArgument { op: op.to_owned(), reason };
        let shape = conv.output_shape(x.layout().shape(), weight.layout().shape(), transposed).map_err(bad)?;
        if out.layout().shape() != shape {
            return Err(shape_error(op, "result", &out, format!("{shape:?}")));
        }
        let filters = shape[1];
        if let Some(bias) = bias.filter(|bias| bias.layout().shape() != [filters]) {
            return Err(shape_error(op, "bias", &bias, format!("[{filters}]")));
        }
        if out.layout().is_empty() {
            return Ok(());
        }
        let [images, channels, height, width] = std::array::from_fn(|d| x.layout().shape()[d]);
        let kernel = [weight.layout().shape()[2], weight.layout().shape()[3]];
        let (channels, filters) = (channels / conv.groups, filters / conv.groups);
        let pixels = [images, shape[2], shape[3]].iter().try_fold(1usize, |n, size| n.checked_mul(*size)).filter(|n| *n < LIMIT);
        let k = [channels, kernel[0], kernel[1]].iter().try_fold(1usize, |n, size| n.checked_mul(*size)).filter(|n| *n < LIMIT);
        let (Some(pixels), Some(k)) = (pixels, k) else {
            return Err(bad(format!("a result of shape {shape:?} exceeds the limit of 2^30 pixels or kernel elements; split the batch")));
        };
        let small = |[a, b]: [usize; 2]| [a as i32, b as i32];
        let params = ConvParams {
            x: strides(&x),
            out: strides(&out),
            bias: bias.map_or(0, |bias| bias.layout().strides()[0] as u64),
            channels: channels as u32,
            filters: filters as u32,
            groups: conv.groups as u32,
            k: k as u32,
            pixels: pixels as u32,
            sizes: [height as i32, width as i32, shape[2] as i32, shape[3] as i32],
            kernel: small(kernel),
            stride: small(conv.stride),
            padding: small(conv.padding),
            dilation: small(conv.dilation),
            activation: conv.activation.map_or(0, Activation::number),
            has_bias: bias.is_some().into(),
            ..ConvParams::zeroed()
        };
        let (by_filter, by_channel) = if transposed { (1, 0) } else { (0, 1) };
        let work = Work { op, x, out, bias, transposed };
        if !transposed && self.conv_1x1(stream, conv, [&x, &weight, &out], bias.as_ref())? {
            return Ok(());
        }
        if filters < FEW_FILTERS || conv.groups > 0xffff || k == 0 {
            let w = strides(&weight);
            let step = weight.layout().strides()[0] as u64 * if transposed { channels } else { filters } as u64;
            let params = ConvParams { w: [w[by_filter], w[by_channel], w[2], w[3]], w_group: step, ..params };
            let blocks = (pixels as u64 * (filters * conv.groups) as u64).div_ceil(256).min(1 << 20) as u32;
            let launch = Launch::new([blocks, 1, 1], [256, 1, 1]);
            return self.launch_conv(stream, &work, program(&DIRECT, transposed, dtype, &[]), launch, params, weight);
        }

        // Weights with the channels of a group innermost, which is the order of k.
        let each = 16 / dtype.size();
        let wanted = packed_layout([filters * conv.groups, channels, kernel[0], kernel[1]], each)?;
        let in_order = !transposed
            && (0..4).all(|d| wanted.shape()[d] == 1 || weight.layout().strides()[d] == wanted.strides()[d])
            && weight.address().is_multiple_of(16);
        let mut memory: Option<Buffer<u8>> = None;
        if !in_order {
            let rows = filters * conv.groups;
            let mut packed = stream.alloc::<u8>(rows * wanted.strides()[0] * dtype.size()).map_err(launch_error(op))?;
            let reordered = !transposed && self.pack_weights(stream, op, &weight, &mut packed, wanted.strides()[0])?;
            for group in 0..if reordered {
                0
            } else if transposed {
                conv.groups
            } else {
                1
            } {
                let (to, from) = if transposed {
                    let from = weight.layout().narrow(0, group * channels, channels)?.transpose(0, 1)?;
                    (wanted.narrow(0, group * filters, filters)?, from)
                } else {
                    (wanted, *weight.layout())
                };
                self.copy(stream, &weight.with_layout(from)?, &mut ViewMut::of_bytes(&mut packed, dtype, to)?)?;
            }
            memory = Some(packed);
        }
        let weight = match &memory {
            Some(packed) => View::of_bytes(packed, dtype, wanted)?,
            None => weight,
        };
        let row = wanted.strides()[0] as u64;
        let params = ConvParams { w: [row, 1, 0, 0], w_group: row * filters as u64, ..params };
        if dtype == DType::F32 {
            let tiles = [params.pixels, params.filters].map(|size| size.div_ceil(SIMT_TILE));
            let launch = Launch::new([tiles[0].saturating_mul(tiles[1]), params.groups, 1], [256, 1, 1]);
            let params = ConvParams { tiles, ..params };
            return self.launch_conv(stream, &work, program(&SIMT, transposed, dtype, &[]), launch, params, weight);
        }
        self.conv_mma(stream, conv, &work, params, weight)
    }

    /// Writes contiguous weights with their channels innermost to `packed`, whose filters are `row` elements apart; `false` if they have
    /// another layout or number of taps.
    fn pack_weights(&self, stream: &Stream, op: &'static str, weight: &View<'_>, packed: &mut Buffer<u8>, row: usize) -> Result<bool> {
        let [filters, channels, height, width] = std::array::from_fn(|d| weight.layout().shape()[d]);
        let taps = height * width;
        let is_contiguous = weight.layout().strides()[1..] == [taps, width, 1];
        if !is_contiguous || !PACKED_TAPS.contains(&taps) || filters > 0xffff {
            return Ok(false);
        }
        let kernels = self.load(&pack_program(bits_type(weight.dtype()), taps))?;
        let launch = Launch::new([channels.div_ceil(PACK_CHANNELS) as u32, filters as u32, 1], [256, 1, 1]);
        let args = (packed, weight.start(), weight.layout().strides()[0] as u64, row as u64, channels as u32);
        // SAFETY: the kernel was compiled for elements of this size and takes these arguments; it reads the weights, checked against their
        // memory, and writes as many elements of each of the packed rows.
        unsafe { kernels[0].launch(stream, launch, args) }.map_err(launch_error(op))?;
        Ok(true)
    }

    /// 1 × 1 convolutions in NCHW are matrix products, which need no copy; `false` if this is another convolution.
    fn conv_1x1(&self, stream: &Stream, conv: &Conv, [x, weight, out]: [&View<'_>; 3], bias: Option<&View<'_>>) -> Result<bool> {
        let is_plain = conv.stride == [1; 2] && conv.padding == [0; 2] && conv.groups == 1 && weight.layout().shape()[2..] == [1; 2];
        let (Some(from), Some(to), true) = (as_planes(x)?, as_planes(out)?, is_plain) else { return Ok(false) };
        let strides = weight.layout().strides();
        let shape = weight.layout().shape();
        let weight = weight.with_layout(Layout::new(&shape[..2], &strides[..2], weight.layout().offset())?)?;
        let rows = match bias {
            Some(bias) => {
                let column = Layout::new(&[shape[0], 1], &[bias.layout().strides()[0], 0], bias.layout().offset())?;
                Some(bias.with_layout(column)?)
            }
            None => None,
        };
        let matmul = Matmul { bias: rows, activation: conv.activation, ..Matmul::new() };
        self.multiply(stream, &matmul, weight, from, to)?;
        Ok(true)
    }

    /// 16-bit types on matrix units; an input that is not NHWC is copied if whole chunks can be read then.
    fn conv_mma(&self, stream: &Stream, conv: &Conv, work: &Work<'_>, mut params: ConvParams, weight: View<'_>) -> Result<()> {
        let (dtype, info) = (work.x.dtype(), self.device().info());
        let chunks = |x: &View<'_>, strides: [u64; 4]| {
            let aligned = [strides[0], strides[2], strides[3]].iter().all(|stride| stride.is_multiple_of(8));
            (strides[1] == 1 || x.layout().shape()[1] == 1) && aligned && x.address().is_multiple_of(16)
        };
        let whole = params.channels.is_multiple_of(8);
        let mut memory: Option<Buffer<u8>> = None;
        let shape: [usize; 4] = std::array::from_fn(|d| work.x.layout().shape()[d]);
        let nhwc = Layout::new(&shape, &[shape[1] * shape[2] * shape[3], 1, shape[3] * shape[1], shape[1]], 0)?;
        if whole && !chunks(&work.x, params.x) {
            let mut copy = stream.alloc::<u8>(nhwc.len() * dtype.size()).map_err(launch_error(work.op))?;
            self.copy(stream, &work.x, &mut ViewMut::of_bytes(&mut copy, dtype, nhwc)?)?;
            memory = Some(copy);
        }
        let x = match &memory {
            Some(copy) => View::of_bytes(copy, dtype, nhwc)?,
            None => work.x,
        };
        params.x = strides(&x);
        if !work.transposed
            && self.has_conv_sm90a(conv, dtype, params.channels as usize, params.filters as usize)
            && self.conv_sm90a(stream, &Work { x, ..*work }, conv, &params, &weight)?
        {
            return Ok(());
        }
        let nvidia = info.vendor == Vendor::Nvidia;
        let [small, large] = [false, true].map(|large| Tile::of(nvidia, dtype, large, info.shared_per_block_max));
        let tiles = |tile: &Tile| [params.pixels.div_ceil(tile.bm), params.filters.div_ceil(tile.bn)];
        let blocks = |tile: &Tile| tiles(tile).iter().map(|tiles| u64::from(*tiles)).product::<u64>() * u64::from(params.groups);
        // Large tiles read less, small ones occupy more multiprocessors.
        let is_large = blocks(&large) >= u64::from(info.compute_units);
        let tile = if is_large { large } else { small };
        params.tiles = tiles(&tile);
        let threads = tile.bm / tile.wm * (tile.bn / tile.wn) * info.wave_size;
        let shared = tile.stages * (tile.bm + tile.bn) * tile.k_bytes;
        let launch = Launch::new([params.tiles[0].saturating_mul(params.tiles[1]), params.groups, 1], [threads, 1, 1]).shared(shared);
        let program = mma_program(work.transposed, dtype, whole, is_large, tile.deep);
        self.launch_conv(stream, &Work { x, ..*work }, program, launch, params, weight)
    }

    fn launch_conv(
        &self,
        stream: &Stream,
        work: &Work<'_>,
        program: Program,
        launch: Launch,
        params: ConvParams,
        weight: View<'_>,
    ) -> Result<()> {
        let kernels = self.load(&program)?;
        let bias = work.bias.map_or(Arg::from(0u64), |bias| Arg::from(bias.start()));
        // SAFETY: the kernel was compiled for this type and takes these arguments; sizes and strides are those of views that were checked
        // against their memory, taps outside the input are not read, and only the result is written.
        unsafe { kernels[0].launch(stream, launch, (work.out.start(), work.x.start(), weight.start(), bias, Arg::value(&params))) }
            .map_err(launch_error(work.op))
    }
}

/// A checked convolution with its operands.
#[derive(Clone, Copy)]
struct Work<'a> {
    op: &'static str,
    x: View<'a>,
    out: View<'a>,
    bias: Option<View<'a>>,
    transposed: bool,
}

fn pack_program(ty: &'static str, taps: usize) -> Program {
    Program::new(&PACK, "conv_pack", &[ty], &[("TAPS", taps as u32)])
}

fn mma_program(transposed: bool, dtype: DType, fast: bool, large: bool, deep: bool) -> Program {
    program(&MMA, transposed, dtype, &[("FAST", fast.into()), ("LARGE", large.into()), ("DEEP", deep.into())])
}

/// The programs that run on any device.
fn common() -> Vec<Program> {
    let mut programs: Vec<Program> = ["u16", "u32"].into_iter().flat_map(|ty| PACKED_TAPS.map(|taps| pack_program(ty, taps))).collect();
    for transposed in [false, true] {
        programs.push(program(&SIMT, transposed, DType::F32, &[]));
        programs.extend(TYPES.map(|dtype| program(&DIRECT, transposed, dtype, &[])));
    }
    programs
}

/// The programs for 16-bit types; `deep` tells whether large and small tiles are.
fn mma_programs(deep: impl Fn(DType, bool) -> bool) -> Vec<Program> {
    let mut programs = Vec::new();
    for (transposed, dtype) in [false, true].into_iter().flat_map(|transposed| [DType::F16, DType::Bf16].map(|dtype| (transposed, dtype))) {
        for fast in [false, true] {
            programs.extend([false, true].map(|large| mma_program(transposed, dtype, fast, large, deep(dtype, large))));
        }
    }
    programs
}

/// Lists the programs.
pub(crate) fn programs() -> Vec<Program> {
    [sm90a::programs(), common(), mma_programs(|_, large| large)].concat()
}

/// Lists the programs of a device.
pub(crate) fn of_models(info: &DeviceInfo) -> Vec<Program> {
    let deep = |dtype, large| Tile::of(info.vendor == Vendor::Nvidia, dtype, large, info.shared_per_block_max).deep;
    let own = if sm90a::runs_on(info) { sm90a::programs() } else { Vec::new() };
    [own, common(), mma_programs(deep)].concat()
}
