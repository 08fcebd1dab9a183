//! Matrix products, by the vendor's BLAS library or by own kernels.

pub(crate) mod blas;

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, DeviceInfo, Launch, MatrixUnits, Stream, Vendor};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::{Kernels, check_no_overlap, check_same_dtype, dtype_error, launch_error, shape_error};
use crate::matmul::blas::{Blas, Epilogue, Matrix, Pointers, Refusal, Shape, WORKSPACE};
use crate::program::{Program, SourceFile, source_file};
use crate::view::{View, ViewMut};

/// A matrix product: `out = activation(alpha · a · b + beta · out + bias)`, batched.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Matmul<'a> {
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of the previous result, which is not read if this is 0.
    pub beta: f64,
    /// Bias of the result's type, broadcast to its shape.
    pub bias: Option<View<'a>>,
    /// Activation, applied in the epilogue.
    pub activation: Option<Activation>,
    /// Whether f32 inputs may be rounded to tf32 (10 bits of mantissa) for the matrix units. Accumulation is f32 in any case.
    pub tf32: bool,
    /// The implementation.
    pub backend: MatmulBackend,
}

impl Default for Matmul<'_> {
    fn default() -> Self {
        Matmul { alpha: 1.0, beta: 0.0, bias: None, activation: None, tf32: false, backend: MatmulBackend::Auto }
    }
}

impl<'a> Matmul<'a> {
    /// The plain product.
    pub fn new() -> Matmul<'a> {
        Matmul::default()
    }

    /// Sets the factors.
    pub fn scaled(self, alpha: f64, beta: f64) -> Matmul<'a> {
        Matmul { alpha, beta, ..self }
    }

    /// Adds a bias.
    pub fn bias(self, bias: View<'a>) -> Matmul<'a> {
        Matmul { bias: Some(bias), ..self }
    }

    /// Applies an activation. For 16-bit results a library may round the sums first.
    pub fn activation(self, activation: Activation) -> Matmul<'a> {
        Matmul { activation: Some(activation), ..self }
    }

    /// Allows or forbids tf32.
    pub fn tf32(self, tf32: bool) -> Matmul<'a> {
        Matmul { tf32, ..self }
    }

    /// Selects the implementation.
    pub fn backend(self, backend: MatmulBackend) -> Matmul<'a> {
        Matmul { backend, ..self }
    }
}

/// An activation function of the epilogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// max(x, 0); also for i32.
    Relu,
    /// GELU, tanh approximation. cuBLASLt's, used for f16 and bf16 results, is accurate to 2⁻¹⁰ of the sum.
    Gelu,
    /// GELU, exact (erf).
    GeluErf,
    /// x · sigmoid(x).
    Silu,
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
}

impl Activation {
    /// All activations.
    pub const ALL: [Activation; 6] =
        [Activation::Relu, Activation::Gelu, Activation::GeluErf, Activation::Silu, Activation::Sigmoid, Activation::Tanh];

    /// Its code in the kernels.
    pub(crate) fn number(self) -> u32 {
        1 + Activation::ALL.iter().position(|known| *known == self).unwrap_or(0) as u32
    }
}

/// The implementation of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MatmulBackend {
    /// The fastest: the library, except for matrix-vector products.
    #[default]
    Auto,
    /// The vendor's library (cuBLASLt, rocBLAS); fails if it is missing.
    Library,
    /// The kernels of this crate.
    Kernels,
}

const MAX_BATCH_DIMS: usize = 4;

/// Parameters of the kernels; mirrors `Gemm` in `gemm.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GemmParams {
    m: u64,
    n: u64,
    k: u64,
    batches: u64,
    /// Strides: of A by m and k, of B by k and n, of the result and the bias by m and n.
    a: [u64; 2],
    b: [u64; 2],
    c: [u64; 2],
    bias: [u64; 2],
    /// Batch dimensions, innermost first, and the batch strides of A, B, the result and the bias.
    batch: [u64; MAX_BATCH_DIMS],
    batch_strides: [[u64; MAX_BATCH_DIMS]; 4],
    alpha: f64,
    beta: f64,
    activation: u32,
    has_bias: u32,
    tiles: [u32; 2],
    parts: u32,
    part: u32,
}

/// A checked product with its operands.
#[derive(Clone, Copy)]
struct Work<'a> {
    product: GemmParams,
    a: View<'a>,
    b: View<'a>,
    out: View<'a>,
    bias: Option<View<'a>>,
    tf32: bool,
}

const OP: &str = "matmul";
static GEMM_MMA: SourceFile = source_file!("matmul/gemm_mma.cu", &[""]);
static GEMM_SIMT: SourceFile = source_file!("matmul/gemm_simt.cu", &[""]);
static GEMV: SourceFile = source_file!("matmul/gemv.cu", &["_rows", "_columns", "_combine"]);

/// 16-byte column vectors and threads per block of the column kernel, as in `gemv.cu`.
const ACROSS: u64 = 8;
const COLUMN_THREADS: u32 = 512;

/// The most vectors of a matrix-vector kernel; with more, matrix units are faster.
fn max_gemv_vectors(dtype: DType) -> u64 {
    match dtype {
        DType::F32 => 8,
        DType::F16 | DType::Bf16 => 4,
        _ => 0,
    }
}

impl Kernels {
    /// Computes a matrix product.
    ///
    /// `a` is m × k, `b` k × n and `out` m × n, each with leading batch dimensions, which are broadcast in `a` and `b`. Strides are
    /// arbitrary. `a` and `b` have one type: f32 and f64 yield their own type, f16 and bf16 their own or f32, and `u8`, read as signed
    /// bytes, yields i32. Accumulation is f32 (i32 for bytes, f64 for f64), rounded once. The matrix units of AMD's gfx90a flush subnormal
    /// f16 to 0.
    ///
    /// Batch dimensions that cannot be merged into one are passed to the library one by one: if a later call fails ([`Error::Library`]),
    /// earlier results have been written.
    pub fn matmul(&self, stream: &Stream, matmul: &Matmul<'_>, a: &View<'_>, b: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        self.multiply(stream, matmul, *a, *b, out.as_view())
    }

    /// [`Kernels::matmul`] into a view that may be written.
    pub(crate) fn multiply(&self, stream: &Stream, matmul: &Matmul<'_>, a: View<'_>, b: View<'_>, out: View<'_>) -> Result<()> {
        let work = self.check_matmul(stream, matmul, a, b, out)?;
        if out.layout().is_empty() {
            return Ok(());
        }
        let library = || self.blas().map_err(|reason| Error::NotAvailable { op: OP.to_owned(), reason });
        match matmul.backend {
            MatmulBackend::Kernels => self.multiply_with_kernels(stream, &work),
            MatmulBackend::Library => match self.multiply_with_library(stream, &work, library()?)? {
                true => Ok(()),
                false => {
                    let reason = "unsupported types, sizes or strides".to_owned();
                    Err(Error::Library { op: OP.to_owned(), library: library()?.name(), reason })
                }
            },
            MatmulBackend::Auto => {
                // For several 16-bit vectors the library is as fast.
                let few = |work: &Work<'_>| work.product.n == 1 || work.a.dtype() == DType::F32;
                if let Some((layout, work)) = work.with_vectors().filter(|(_, work)| few(work)) {
                    return self.multiply_gemv(stream, layout, &work);
                }
                match self.blas() {
                    Ok(library) if self.multiply_with_library(stream, &work, library)? => Ok(()),
                    _ => self.multiply_with_kernels(stream, &work),
                }
            }
        }
    }

    /// Returns the name of the library that [`Kernels::matmul`] uses.
    pub fn matmul_library(&self) -> Result<&'static str> {
        self.blas().map(Blas::name).map_err(|reason| Error::NotAvailable { op: OP.to_owned(), reason })
    }

    fn check_matmul<'a>(&self, stream: &Stream, matmul: &Matmul<'a>, a: View<'a>, b: View<'a>, out: View<'a>) -> Result<Work<'a>> {
        let dtype = a.dtype();
        let results: &[DType] = match dtype {
            DType::F32 => &[DType::F32],
            DType::F64 => &[DType::F64],
            DType::F16 => &[DType::F16, DType::F32],
            DType::Bf16 => &[DType::Bf16, DType::F32],
            DType::U8 => &[DType::I32],
            _ => return Err(dtype_error(OP, "a", dtype, "f32, f64, f16, bf16, or u8 (interpreted as i8)")),
        };
        check_same_dtype(OP, "b", b, dtype)?;
        if !results.contains(&out.dtype()) {
            let expected = results.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(" or ");
            return Err(dtype_error(OP, "result", out.dtype(), expected));
        }
        let whole = |value: f64| value.fract() == 0.0 && value.abs() < 2f64.powi(31);
        if out.dtype() == DType::I32
            && !(whole(matmul.alpha) && whole(matmul.beta) && matches!(matmul.activation, None | Some(Activation::Relu)))
        {
            let expected = "a float type (i32 output requires integer alpha and beta, and supports only relu as activation)";
            return Err(dtype_error(OP, "result", out.dtype(), expected));
        }
        if let Some(bias) = matmul.bias {
            check_same_dtype(OP, "bias", bias, out.dtype())?;
        }

        let shape = out.layout().shape();
        let rank = shape.len();
        if rank < 2 {
            return Err(shape_error(OP, "result", &out, "of at least two dimensions"));
        }
        let (batch, m, n) = (&shape[..rank - 2], shape[rank - 2], shape[rank - 1]);
        let k = a.layout().shape().last().copied().unwrap_or(0);
        let repeated = |what, view: View<'a>, rows, columns| {
            let wanted = [batch, &[rows, columns]].concat();
            let fits = view.layout().shape().ends_with(&[rows, columns]);
            let layout = view.layout().broadcast_to(&wanted).ok().filter(|_| fits);
            layout.ok_or_else(|| shape_error(OP, what, &view, format!("{wanted:?} (the batch may be broadcast)")))
        };
        let layout_a = repeated("a", a, m, k)?;
        let layout_b = repeated("b", b, k, n)?;
        let layout_bias = match matmul.bias {
            Some(bias) => {
                let layout = bias.layout().broadcast_to(shape);
                Some(layout.map_err(|_| shape_error(OP, "bias", &bias, format!("that broadcasts to {shape:?}")))?)
            }
            None => None,
        };

        let views = [("a", a), ("b", b)].into_iter().chain(matmul.bias.map(|bias| ("bias", bias)));
        self.check_devices(OP, stream, views.clone().chain([("result", out)]))?;
        views.into_iter().try_for_each(|(what, view)| check_no_overlap(OP, what, &view, &out))?;

        // The stride of a dimension of size 1 is not used, but would overflow address arithmetic.
        let stride = |layout: &crate::layout::Layout, d: usize| if layout.shape()[d] == 1 { 0 } else { layout.strides()[d] as u64 };
        let stride_of = |layout: Option<&crate::layout::Layout>, d: usize| layout.map_or(0, |layout| stride(layout, d));
        let layouts = [Some(&layout_a), Some(&layout_b), Some(out.layout()), layout_bias.as_ref()];
        // Batch dimensions, innermost first, merged where contiguous.
        let mut dims: Vec<(u64, [u64; 4])> = Vec::new();
        for d in (0..rank - 2).rev().filter(|d| shape[*d] != 1) {
            let (size, strides) = (shape[d] as u64, layouts.map(|layout| stride_of(layout, d)));
            match dims.last_mut() {
                Some((inner, inner_strides)) if (0..4).all(|i| strides[i] == inner_strides[i].wrapping_mul(*inner)) => *inner *= size,
                _ => dims.push((size, strides)),
            }
        }
        let mut product = GemmParams {
            m: m as u64,
            n: n as u64,
            k: k as u64,
            batches: batch.iter().map(|size| *size as u64).product(),
            batch: [1; MAX_BATCH_DIMS],
            alpha: matmul.alpha,
            beta: matmul.beta,
            activation: matmul.activation.map_or(0, Activation::number),
            has_bias: u32::from(matmul.bias.is_some()),
            ..GemmParams::zeroed()
        };
        for (i, (size, strides)) in dims.into_iter().enumerate() {
            product.batch[i] = size;
            (0..4).for_each(|operand| product.batch_strides[operand][i] = strides[operand]);
        }
        let pair = |layout: Option<&crate::layout::Layout>| [stride_of(layout, rank - 2), stride_of(layout, rank - 1)];
        [product.a, product.b, product.c, product.bias] = layouts.map(pair);
        Ok(Work { product, a, b, out, bias: matmul.bias, tf32: matmul.tf32 })
    }

    /// Uses the kernels of this crate.
    fn multiply_with_kernels(&self, stream: &Stream, work: &Work<'_>) -> Result<()> {
        if let Some((layout, work)) = work.with_vectors() {
            return self.multiply_gemv(stream, layout, &work);
        }
        let info = self.device().info();
        let nvidia = info.vendor == Vendor::Nvidia;
        // MFMA keeps full f32 precision, NVIDIA's matrix units do not, WMMA has no f32.
        let units = if nvidia { work.tf32 && has_mma(info) } else { info.matrix_units == MatrixUnits::Mfma };
        // Tiles are stored by rows.
        let work = if work.product.c[1] != 1 && work.product.c[0] == 1 { work.transposed() } else { *work };
        let mut product = work.product;
        let (program, threads, shared) = match work.a.dtype() {
            dtype @ (DType::F32 | DType::F64) if dtype == DType::F64 || !units => {
                let tile: u64 = if dtype == DType::F64 { 64 } else { 128 };
                product.tiles = [product.m, product.n].map(|size| u32::try_from(size.div_ceil(tile)).unwrap_or(u32::MAX));
                (Program::new(&GEMM_SIMT, "gemm_simt", &[dtype.name()], &[]), 256, 0)
            }
            dtype => {
                let layout = work.layout();
                let blocks = |tile: &Tile| product.m.div_ceil(tile.bm.into()) * product.n.div_ceil(tile.bn.into()) * product.batches;
                let [small, large] = [false, true].map(|large| Tile::of(nvidia, dtype, large, info.shared_per_block_max));
                // Large tiles read less, small ones occupy more multiprocessors.
                let is_large = blocks(&large) >= u64::from(info.compute_units);
                let tile = if is_large { large } else { small };
                product.tiles = [product.m.div_ceil(tile.bm.into()), product.n.div_ceil(tile.bn.into())]
                    .map(|tiles| u32::try_from(tiles).unwrap_or(u32::MAX));
                let threads = tile.bm / tile.wm * (tile.bn / tile.wn) * info.wave_size;
                (
                    gemm_mma_program(dtype, work.out.dtype(), layout, is_large, tile.deep),
                    threads,
                    tile.stages * (tile.bm + tile.bn) * tile.k_bytes,
                )
            }
        };
        let blocks = product.tiles[0].saturating_mul(product.tiles[1]);
        let launch = Launch::new([blocks, product.batches.min(0xffff) as u32, 1], [threads, 1, 1]).shared(shared);
        let kernels = self.load(&program)?;
        // SAFETY: the kernel was compiled for these types and takes these arguments; sizes and strides are those of views that were checked
        // against their memory, and only the result is written.
        unsafe {
            kernels[0].launch(stream, launch, (work.out.start(), work.a.start(), work.b.start(), work.bias_start(), Arg::value(&product)))
        }
        .map_err(launch_error(OP))
    }

    /// Uses the matrix-vector kernels.
    fn multiply_gemv(&self, stream: &Stream, layout: GemvLayout, work: &Work<'_>) -> Result<()> {
        let (mut product, dtype) = (work.product, work.a.dtype());
        let program = gemv_program(dtype, work.out.dtype(), product.n.next_power_of_two() as u32);
        let kernels = self.load(&program)?;
        let each = 16 / dtype.size() as u64;
        let (out, a, b, bias) = (work.out.start(), work.a.start(), work.b.start(), work.bias_start());
        let grid = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
        match layout {
            GemvLayout::Rows => {
                // Short rows do not need many threads.
                let threads = product.k.div_ceil(each * u64::from(program.constant("UNROLL"))).next_power_of_two().clamp(64, 256) as u32;
                let blocks = product.m.div_ceil(program.constant("ROWS").into());
                let launch = Launch::new([grid(blocks), product.batches.min(0xffff) as u32, 1], [threads, 1, 1]).pdl();
                // SAFETY: as in `multiply_with_kernels`; the layout is the one the kernel needs.
                unsafe { kernels[0].launch(stream, launch, (out, a, b, bias, Arg::value(&product))) }.map_err(launch_error(OP))
            }
            GemvLayout::Columns => {
                let across = product.m.div_ceil(ACROSS * each);
                // Split-K for two blocks per multiprocessor; more splits would take longer to combine.
                let wanted = u64::from(self.device().info().compute_units) * 2 / (across * product.batches).max(1);
                let parts = wanted.min(product.k / 256).clamp(1, 0xffff);
                product.part = product.k.div_ceil(parts) as u32;
                product.parts = product.k.div_ceil(product.part.into()) as u32;
                let sums = if product.parts > 1 { u64::from(product.parts) * product.batches * product.n * product.m } else { 0 };
                let mut sums = stream.alloc::<f32>(sums as usize).map_err(launch_error(OP))?;
                let launch = Launch::new([grid(across), product.parts, product.batches.min(0xffff) as u32], [COLUMN_THREADS, 1, 1]).pdl();
                let to = if product.parts > 1 { Arg::from(&mut sums) } else { Arg::from(out) };
                // SAFETY: as in `multiply_with_kernels`; with several splits there is a partial sum per split and element.
                unsafe { kernels[1].launch(stream, launch, (to, a, b, bias, Arg::value(&product))) }.map_err(launch_error(OP))?;
                if product.parts == 1 {
                    return Ok(());
                }
                self.combine(stream, work, product, Arg::from(&sums), true)
            }
        }
    }

    /// Combines split-K partial sums of (batch, split, n, m) and applies the epilogue. `pdl`: they come from a kernel of this crate
    /// (PDL).
    fn combine(&self, stream: &Stream, work: &Work<'_>, product: GemmParams, sums: Arg<'_>, pdl: bool) -> Result<()> {
        let vectors = if product.n <= max_gemv_vectors(work.a.dtype()) { product.n.next_power_of_two() as u32 } else { 1 };
        let kernels = self.load(&gemv_program(work.a.dtype(), work.out.dtype(), vectors))?;
        let Launch { grid: [blocks, ..], .. } = Launch::for_elements(product.m as usize, 256);
        let launch = Launch::new([blocks, product.n.min(0xffff) as u32, product.batches.min(0xffff) as u32], [256, 1, 1]);
        let launch = Launch { pdl, ..launch };
        // SAFETY: as in `multiply_with_kernels`; the kernel waits for the previous one.
        unsafe { kernels[2].launch(stream, launch, (Arg::from(work.out.start()), sums, work.bias_start(), Arg::value(&product))) }
            .map_err(launch_error(OP))
    }

    /// Uses the library; returns false if it does not support the product.
    fn multiply_with_library(&self, stream: &Stream, work: &Work<'_>, library: &Blas) -> Result<bool> {
        let product = &work.product;
        let bias = product.bias == [0, 1] || (product.bias[1] == 1 && product.m == 1);
        // The library is not given the alignment of a bias and assumes 16 bytes.
        let aligned = work.bias.is_none_or(|bias| bias.address().is_multiple_of(16));
        let bias = bias && aligned && product.batch_strides[3] == [0; MAX_BATCH_DIMS];
        let epilogue = Epilogue { bias: product.has_bias != 0, relu: product.activation == 1, gelu: product.activation == 2 };
        let float = matches!(work.out.dtype(), DType::F32 | DType::F16 | DType::Bf16);
        // The library may round sums to 16 bits before it adds `beta · out` or the bias, unless rows are aligned to 16 bytes and multiples
        // of 8 elements.
        let odd = |view: &View<'_>| {
            let mut dims = view.layout().strides().iter().zip(view.layout().shape()).filter(|(_, size)| **size > 1);
            let whole = |(stride, size): (&usize, &usize)| if *stride == 1 { size } else { stride }.is_multiple_of(8);
            !view.address().is_multiple_of(16) || !dims.all(whole)
        };
        let narrow = work.out.dtype().size() == 2;
        let twice = narrow && (product.beta != 0.0 || epilogue.bias && [&work.a, &work.b, &work.out].into_iter().any(odd));
        // The library's GELU is too inaccurate for f32.
        let itself = product.activation <= 2
            && library.has(epilogue)
            && !twice
            && !(epilogue.gelu && work.out.dtype() == DType::F32)
            && (epilogue == Epilogue::default() || float && (bias || !epilogue.bias) && product.beta == 0.0);
        if itself && self.call_library(stream, work, library, epilogue)? {
            return Ok(true);
        }
        if epilogue == Epilogue::default() && product.activation == 0 && !twice || !float {
            return Ok(false);
        }
        // Compute f32 sums first, then apply the epilogue, which rounds once.
        let (m, n) = (product.m, product.n);
        let mut sums = stream.alloc::<f32>((m * n * product.batches) as usize).map_err(launch_error(OP))?;
        let mut alone = GemmParams { c: [n, 1], alpha: 1.0, beta: 0.0, activation: 0, has_bias: 0, ..*product };
        let mut step = m * n;
        for d in 0..MAX_BATCH_DIMS {
            alone.batch_strides[2][d] = step;
            step *= alone.batch[d];
        }
        let layout = crate::layout::Layout::contiguous(&[(m * n * product.batches) as usize])?;
        let view = ViewMut::new(&mut sums, layout)?;
        let there = self.call_library(stream, &Work { product: alone, out: view.as_view(), ..*work }, library, Epilogue::default())?;
        if there {
            let transposed = work.transposed();
            self.combine(stream, &transposed, GemmParams { parts: 1, ..transposed.product }, Arg::from(&sums), false)?;
        }
        Ok(there)
    }

    fn call_library(&self, stream: &Stream, work: &Work<'_>, library: &Blas, epilogue: Epilogue) -> Result<bool> {
        let Some((work, shape)) = work.columns(epilogue) else { return Ok(false) };
        let product = work.product;
        let workspace = stream.alloc::<u8>(WORKSPACE).map_err(launch_error(OP))?;
        let size = work.a.dtype().size() as u64;
        let pointers = |batch: u64| {
            let at = |operand: usize| {
                let (mut rest, mut at) = (batch, 0);
                for d in 1..MAX_BATCH_DIMS {
                    at += rest % product.batch[d] * product.batch_strides[operand][d];
                    rest /= product.batch[d];
                }
                at
            };
            Pointers {
                // The library is column-major and sees everything transposed, so its first operand is our second.
                a: work.b.address() + at(1) * size,
                b: work.a.address() + at(0) * size,
                c: work.out.address() + at(2) * work.out.dtype().size() as u64,
                bias: work.bias.map_or(0, |bias| bias.address()),
                alpha: product.alpha,
                beta: product.beta,
                workspace: workspace.device_ptr(),
            }
        };
        let touched = (work.out.start(), work.a.start(), work.b.start(), work.bias_start(), &workspace);
        let queue = |handle| {
            // The library supports one batch dimension.
            for outer in 0..product.batches / product.batch[0] {
                // SAFETY: the device is current and owns the stream; the shape is that of views that were checked against their memory, and
                // elements of the result are distinct.
                match unsafe { library.multiply(handle, &shape, pointers(outer)) } {
                    Ok(()) => {}
                    Err(Refusal::NoSuchProduct) if outer == 0 => return Ok(false),
                    Err(refusal) => return Err(refusal),
                }
            }
            Ok(true)
        };
        let outcome = stream.enqueue_external(touched, queue).map_err(launch_error(OP))?;
        outcome.map_err(|refusal| Error::Library { op: OP.to_owned(), library: library.name(), reason: refusal.to_string() })
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::NoSuchProduct => f.write_str("unsupported product"),
            Refusal::Failed { call, code } => write!(f, "{call} failed with status {code}"),
        }
    }
}

/// The layout of the matrix of a matrix-vector product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GemvLayout {
    Rows,
    Columns,
}

impl<'a> Work<'a> {
    /// The equivalent product of the transposed matrices.
    fn transposed(&self) -> Work<'a> {
        let GemmParams { m, n, a, b, c, bias, batch_strides: [stride_a, stride_b, stride_c, stride_bias], .. } = self.product;
        let swap = |[x, y]: [u64; 2]| [y, x];
        let product = GemmParams {
            m: n,
            n: m,
            a: swap(b),
            b: swap(a),
            c: swap(c),
            bias: swap(bias),
            batch_strides: [stride_b, stride_a, stride_c, stride_bias],
            ..self.product
        };
        Work { product, a: self.b, b: self.a, ..*self }
    }

    fn bias_start(&self) -> Arg<'a> {
        self.bias.map_or(Arg::from(0u64), |bias| Arg::from(bias.start()))
    }

    /// Whether an operand is contiguous along one dimension, with rows aligned to 16 bytes.
    fn in_rows(&self, operand: usize, [along, across]: [(u64, u64); 2]) -> bool {
        let view = [self.a, self.b][operand];
        let size = view.dtype().size() as u64;
        let aligned = |stride: u64| stride.is_multiple_of(16 / size);
        let batch = self.product.batch.iter().zip(&self.product.batch_strides[operand]);
        (along.0 == 1 || along.1 == 1)
            && (across.0 == 1 || aligned(across.1))
            && batch.into_iter().all(|(size, step)| *size == 1 || aligned(*step))
            && view.address().is_multiple_of(16)
    }

    /// `LAYOUT` of `gemm_mma.cu`.
    fn layout(&self) -> u32 {
        let GemmParams { m, n, k, a, b, .. } = self.product;
        let of = |operand, along: (u64, u64), by_k: (u64, u64)| {
            let sides = [(by_k, along), (along, by_k)];
            sides.iter().position(|(first, second)| self.in_rows(operand, [*first, *second]))
        };
        match (of(0, (m, a[0]), (k, a[1])), of(1, (n, b[1]), (k, b[0]))) {
            (Some(0), Some(0)) => 0,
            // Bytes cannot be transposed when loaded from shared memory.
            _ if self.a.dtype() == DType::U8 => 4,
            (Some(a), Some(b)) => (a + 2 * b) as u32,
            _ => 4,
        }
    }

    /// Returns the product as a matrix and few vectors, if its layout suits the kernels.
    fn with_vectors(&self) -> Option<(GemvLayout, Work<'a>)> {
        let layout = |work: &Work<'a>| {
            let GemmParams { m, n, k, a, b, .. } = work.product;
            let whole = k.is_multiple_of(16 / work.a.dtype().size() as u64);
            if n > max_gemv_vectors(work.a.dtype()) || k == 0 || k > i32::MAX as u64 {
                None
            } else if whole && work.in_rows(0, [(k, a[1]), (m, a[0])]) && work.in_rows(1, [(k, b[0]), (n, b[1])]) {
                Some(GemvLayout::Rows)
            } else if work.in_rows(0, [(m, a[0]), (k, a[1])]) {
                Some(GemvLayout::Columns)
            } else {
                None
            }
        };
        // The longer side is the matrix.
        let (first, second) = if self.product.m >= self.product.n { (*self, self.transposed()) } else { (self.transposed(), *self) };
        [first, second].into_iter().find_map(|work| Some((layout(&work)?, work)))
    }

    /// Returns the product in the libraries' column-major form, or `None` if they do not support the strides.
    fn columns(&self, epilogue: Epilogue) -> Option<(Work<'a>, Shape)> {
        let GemmParams { c, m, n, .. } = self.product;
        // A bias runs along n and cannot be transposed.
        let by_rows = (c[1] == 1 || n == 1) && (m == 1 || c[0] >= n);
        let work = if by_rows {
            *self
        } else if (c[0] == 1 || m == 1) && !epilogue.bias {
            self.transposed()
        } else {
            return None;
        };
        let GemmParams { m, n, k, a, b, c, batch_strides, batch, .. } = work.product;
        let alignment = |view: View<'_>, strides: &[u64]| {
            let size = view.dtype().size() as u64;
            let bits = strides.iter().fold(view.address() | 256, |bits, stride| bits | (stride * size));
            1u32 << bits.trailing_zeros()
        };
        // One stride is 1, the other is the leading dimension.
        let matrix = |view: View<'_>, rows: u64, columns: u64, [by_row, by_column]: [u64; 2], operand: usize| {
            let leading =
                |size: u64, other: u64, stride: u64| if other <= 1 { Some(size.max(1)) } else { (stride >= size.max(1)).then_some(stride) };
            let alignment = alignment(view, &batch_strides[operand]);
            let make = |transposed, leading| Matrix { transposed, leading, step: batch_strides[operand][0], alignment };
            if by_row == 1 || rows == 1 {
                Some(make(false, leading(rows, columns, by_column)?))
            } else if by_column == 1 || columns == 1 {
                Some(make(true, leading(columns, rows, by_row)?))
            } else {
                None
            }
        };
        let shape = Shape {
            dtype: work.a.dtype(),
            out: work.out.dtype(),
            tf32: work.tf32,
            size: [n, m, k],
            a: matrix(work.b, n, k, [b[1], b[0]], 1)?,
            b: matrix(work.a, k, m, [a[1], a[0]], 0)?,
            c: matrix(work.out, n, m, [c[1], c[0]], 2).filter(|matrix| !matrix.transposed)?,
            batches: batch[0],
            epilogue,
        };
        let fits =
            [n, m, k, shape.a.leading, shape.b.leading, shape.c.leading, batch[0]].into_iter().all(|size| i32::try_from(size).is_ok());
        (fits && k > 0).then_some((work, shape))
    }
}

/// Tile sizes of a block and a wave, bytes of k per stage, and stages, as in `gemm_mma.cu`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tile {
    pub bm: u32,
    pub bn: u32,
    pub wm: u32,
    pub wn: u32,
    pub k_bytes: u32,
    pub stages: u32,
    pub deep: bool,
}

impl Tile {
    /// The tile for a shared memory of this many bytes.
    pub fn of(nvidia: bool, dtype: DType, large: bool, shared: usize) -> Tile {
        let (bm, bn, wm, wn) = match (nvidia, large) {
            (_, false) => (64, 64, 32, 32),
            (true, true) if dtype == DType::F32 => (128, 128, 64, 32),
            (true, true) => (128, 256, 64, 64),
            (false, true) => (128, 128, 64, 64),
        };
        // AMD has one configuration.
        let deep = large && (!nvidia || (3 * (bm + bn) * 128) as usize <= shared);
        let (k_bytes, stages) = match (nvidia, large) {
            (true, true) if deep => (128, 3),
            (true, true) => (64, 4),
            (true, false) => (128, 4),
            (false, _) => (64, 2),
        };
        Tile { bm, bn, wm, wn, k_bytes, stages, deep }
    }
}

fn gemm_mma_program(dtype: DType, out: DType, layout: u32, large: bool, deep: bool) -> Program {
    let element = if dtype == DType::U8 { "i8" } else { dtype.name() };
    Program::new(&GEMM_MMA, "gemm_mma", &[element, out.name()], &[("LAYOUT", layout), ("LARGE", large.into()), ("DEEP", deep.into())])
}

fn gemv_program(dtype: DType, out: DType, vectors: u32) -> Program {
    // As many loads in flight as registers allow, found on an H200.
    let (rows, unroll, depth) = [(2, 4, 8), (2, 4, 4), (4, 2, 8), (4, 1, 2)][vectors.trailing_zeros().min(3) as usize];
    let constants = [("VECTORS", vectors), ("ROWS", rows), ("UNROLL", unroll), ("DEPTH", depth)];
    Program::new(&GEMV, "gemv", &[dtype.name(), out.name()], &constants)
}

/// Whether an NVIDIA GPU has the matrix units used by `tile.cuh`.
pub(crate) fn has_mma(info: &DeviceInfo) -> bool {
    info.matrix_units == MatrixUnits::TensorCores
}

/// Pairs of input and result types of float products.
fn float_types() -> impl Iterator<Item = (DType, DType)> {
    [DType::F32, DType::F16, DType::Bf16]
        .into_iter()
        .flat_map(|dtype| [dtype, DType::F32].into_iter().take(if dtype == DType::F32 { 1 } else { 2 }).map(move |out| (dtype, out)))
}

/// The programs of all matrix-vector kernels.
fn gemv_programs() -> impl Iterator<Item = Program> {
    float_types().flat_map(|(dtype, out)| {
        let vectors = [1, 2, 4, 8].into_iter().filter(move |vectors| *vectors <= max_gemv_vectors(dtype));
        vectors.map(move |vectors| gemv_program(dtype, out, vectors as u32))
    })
}

/// Lists the programs.
pub(crate) fn programs() -> Vec<Program> {
    let mut programs: Vec<Program> =
        [DType::F32, DType::F64].map(|dtype| Program::new(&GEMM_SIMT, "gemm_simt", &[dtype.name()], &[])).to_vec();
    programs.extend(gemv_programs());
    for large in [true, false] {
        programs.extend(
            float_types().flat_map(|(dtype, out)| [0, 1, 2, 3, 4].map(|layout| gemm_mma_program(dtype, out, layout, large, large))),
        );
        programs.extend([0, 4].map(|layout| gemm_mma_program(DType::U8, DType::I32, layout, large, large)));
    }
    programs
}

/// Lists the programs that models load on a device: float products without tf32.
pub(crate) fn of_models(info: &DeviceInfo) -> Vec<Program> {
    let mut programs = vec![Program::new(&GEMM_SIMT, "gemm_simt", &[DType::F32.name()], &[])];
    programs.extend(gemv_programs());
    for large in [true, false] {
        for (dtype, out) in float_types().filter(|(dtype, _)| *dtype != DType::F32 || info.matrix_units == MatrixUnits::Mfma) {
            let tile = Tile::of(info.vendor == Vendor::Nvidia, dtype, large, info.shared_per_block_max);
            programs.extend([0, 1, 2, 3, 4].map(|layout| gemm_mma_program(dtype, out, layout, large, tile.deep)));
        }
    }
    programs
}
