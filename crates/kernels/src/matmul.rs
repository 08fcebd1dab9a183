//! Matrix products: by the vendor's library where there is one, else by kernels of our own.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, DeviceInfo, Launch, MatrixUnits, Stream, Vendor};

use crate::blas::{Blas, Epilogue, Matrix, Places, Refusal, Shape, WORKSPACE};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::headers;
use crate::kernels::{Kernels, apart, refused, same_type, wrong_shape, wrong_type};
use crate::source::{File, Recipe};
use crate::view::{View, ViewMut};

/// A matrix product: `out = activation(alpha · a · b + beta · out + bias)`, for each of a batch.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Matmul<'a> {
    /// What the product is multiplied with.
    pub alpha: f64,
    /// What the result's elements before are multiplied with; of 0 they are not read.
    pub beta: f64,
    /// What is added: of the result's type, and of its shape or one that [`crate::Layout::broadcast_to`] repeats to it.
    pub bias: Option<View<'a>>,
    /// What becomes of the sums.
    pub activation: Option<Activation>,
    /// Whether f32 may be cut to tf32 (10 bits of mantissa) on the way into the matrix units. Sums are f32 all the same.
    pub tf32: bool,
    /// Who computes it.
    pub by: MatmulBy,
}

impl Default for Matmul<'_> {
    fn default() -> Self {
        Matmul { alpha: 1.0, beta: 0.0, bias: None, activation: None, tf32: false, by: MatmulBy::Auto }
    }
}

impl<'a> Matmul<'a> {
    /// The product alone.
    pub fn new() -> Matmul<'a> {
        Matmul::default()
    }

    /// The same with other factors.
    pub fn scaled(self, alpha: f64, beta: f64) -> Matmul<'a> {
        Matmul { alpha, beta, ..self }
    }

    /// The same with a bias.
    pub fn bias(self, bias: View<'a>) -> Matmul<'a> {
        Matmul { bias: Some(bias), ..self }
    }

    /// The same with a function of the sums. For results of 16 bits a library may round the sums to them before.
    pub fn activation(self, activation: Activation) -> Matmul<'a> {
        Matmul { activation: Some(activation), ..self }
    }

    /// The same with tf32 allowed, or not.
    pub fn tf32(self, tf32: bool) -> Matmul<'a> {
        Matmul { tf32, ..self }
    }

    /// The same computed by someone in particular.
    pub fn by(self, by: MatmulBy) -> Matmul<'a> {
        Matmul { by, ..self }
    }
}

/// What becomes of a product's sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// x, or 0 where it is less; of i32 too.
    Relu,
    /// GELU by its approximation with tanh. cuBLASLt's own, which results of f16 and bf16 may get, is right to 2⁻¹⁰ of the sum.
    Gelu,
    /// GELU by the error function.
    GeluErf,
    /// x · sigmoid(x).
    Silu,
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
}

impl Activation {
    /// All of them.
    pub const ALL: [Activation; 6] =
        [Activation::Relu, Activation::Gelu, Activation::GeluErf, Activation::Silu, Activation::Sigmoid, Activation::Tanh];

    /// Its number in the kernels.
    fn number(self) -> u32 {
        1 + Activation::ALL.iter().position(|known| *known == self).unwrap_or(0) as u32
    }
}

/// Who computes a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MatmulBy {
    /// Whoever is the fastest: the library, but for matrices with few vectors.
    #[default]
    Auto,
    /// The vendor's library (cuBLASLt, rocBLAS), or an error.
    Library,
    /// Our own kernels.
    Kernels,
}

const MOST_BATCHES: usize = 4;

/// A product as the kernels see it; the struct of `product.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Product {
    m: u64,
    n: u64,
    k: u64,
    batches: u64,
    /// Steps between elements: of A by m and k, of B by k and n, of the result and of the bias by m and n.
    a: [u64; 2],
    b: [u64; 2],
    c: [u64; 2],
    bias: [u64; 2],
    /// The batch, the innermost dimension first, and the steps of A, B, the result and the bias.
    batch: [u64; MOST_BATCHES],
    steps: [[u64; MOST_BATCHES]; 4],
    alpha: f64,
    beta: f64,
    activation: u32,
    has_bias: u32,
    tiles: [u32; 2],
    parts: u32,
    part: u32,
}

/// A product with its operands.
#[derive(Clone, Copy)]
struct Work<'a> {
    product: Product,
    a: View<'a>,
    b: View<'a>,
    out: View<'a>,
    bias: Option<View<'a>>,
    tf32: bool,
}

const OP: &str = "matmul";
const PRODUCT: &str = include_str!("cu/product.cuh");
static TILES: File =
    File { name: "matmul.cu", texts: &[headers::TYPES, headers::TILE, PRODUCT, include_str!("cu/matmul.cu")], kernels: &[""] };
static PLAIN: File = File { name: "plain.cu", texts: &[headers::TYPES, PRODUCT, include_str!("cu/plain.cu")], kernels: &[""] };
static VECTORS: File = File {
    name: "gemv.cu",
    texts: &[headers::TYPES, PRODUCT, headers::EARLY, include_str!("cu/gemv.cu")],
    kernels: &["_rows", "_columns", "_combine"],
};

/// Pieces of columns of a matrix by columns, and threads, that a block has: as in the kernels.
const ACROSS: u64 = 8;
const COLUMN_THREADS: u32 = 512;

/// Vectors that a matrix is multiplied with at once: with more, matrix units are faster.
fn most_vectors(dtype: DType) -> u64 {
    match dtype {
        DType::F32 => 8,
        DType::F16 | DType::Bf16 => 4,
        _ => 0,
    }
}

impl Kernels {
    /// A matrix product.
    ///
    /// `a` is m × k, `b` k × n and `out` m × n, each with the batch's dimensions in front; those that `a` or `b` lacks, or has only one of,
    /// are repeated. Any strides will do. `a` and `b` are of one type: f32 and f64 give their own type, f16 and bf16 their own or f32,
    /// `u8`, taken for the bits of signed bytes, gives i32. Sums are f32 (i32 of bytes, f64 of f64), and rounded once. The matrix units of
    /// AMD's gfx90a take f16 too small to be normal numbers for 0.
    ///
    /// A batch of several dimensions that cannot be walked in one step goes to the library in parts, one after the other: should it fail
    /// at a later one, [`Error::Library`], those before are written.
    pub fn matmul(&self, stream: &Stream, matmul: &Matmul<'_>, a: &View<'_>, b: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        self.multiply(stream, matmul, *a, *b, out.as_view())
    }

    /// The same, to a view that is to be written.
    pub(crate) fn multiply(&self, stream: &Stream, matmul: &Matmul<'_>, a: View<'_>, b: View<'_>, out: View<'_>) -> Result<()> {
        let work = self.check_matmul(stream, matmul, a, b, out)?;
        if out.layout().is_empty() {
            return Ok(());
        }
        let library = || self.blas().map_err(|reason| Error::NotAvailable { op: OP.to_owned(), reason });
        match matmul.by {
            MatmulBy::Kernels => self.multiply_here(stream, &work),
            MatmulBy::Library => match self.multiply_there(stream, &work, library()?)? {
                true => Ok(()),
                false => {
                    let reason = "it has no product of these types, sizes and strides".to_owned();
                    Err(Error::Library { op: OP.to_owned(), library: library()?.name(), reason })
                }
            },
            MatmulBy::Auto => {
                // Of several vectors of 16 bits the library reads the matrix as fast as we.
                let few = |work: &Work<'_>| work.product.n == 1 || work.a.dtype() == DType::F32;
                if let Some((way, work)) = work.with_vectors().filter(|(_, work)| few(work)) {
                    return self.multiply_vectors(stream, way, &work);
                }
                match self.blas() {
                    Ok(library) if self.multiply_there(stream, &work, library)? => Ok(()),
                    _ => self.multiply_here(stream, &work),
                }
            }
        }
    }

    /// The library that [`Kernels::matmul`] uses, or why there is none.
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
            _ => return Err(wrong_type(OP, "the first matrix", dtype, "f32, f64, f16, bf16, and u8 for signed bytes")),
        };
        same_type(OP, "the second matrix", b, dtype)?;
        if !results.contains(&out.dtype()) {
            let expected = results.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(" or ");
            return Err(wrong_type(OP, "the result", out.dtype(), expected));
        }
        let whole = |value: f64| value.fract() == 0.0 && value.abs() < 2f64.powi(31);
        if out.dtype() == DType::I32
            && !(whole(matmul.alpha) && whole(matmul.beta) && matches!(matmul.activation, None | Some(Activation::Relu)))
        {
            return Err(wrong_type(OP, "the result", out.dtype(), "whole factors and no function but relu"));
        }
        if let Some(bias) = matmul.bias {
            same_type(OP, "the bias", bias, out.dtype())?;
        }

        let shape = out.layout().shape();
        let rank = shape.len();
        if rank < 2 {
            return Err(wrong_shape(OP, "the result", &out, "it takes matrices: two dimensions or more"));
        }
        let (batch, m, n) = (&shape[..rank - 2], shape[rank - 2], shape[rank - 1]);
        let k = a.layout().shape().last().copied().unwrap_or(0);
        let repeated = |what, view: View<'a>, rows, columns| {
            let wanted = [batch, &[rows, columns]].concat();
            let fits = view.layout().shape().ends_with(&[rows, columns]);
            let layout = view.layout().broadcast_to(&wanted).ok().filter(|_| fits);
            layout.ok_or_else(|| {
                wrong_shape(OP, what, &view, format!("the result has {shape:?}: it takes {wanted:?}, the batch may be repeated"))
            })
        };
        let layout_a = repeated("the first matrix", a, m, k)?;
        let layout_b = repeated("the second matrix", b, k, n)?;
        let layout_bias = match matmul.bias {
            Some(bias) => {
                let layout = bias.layout().broadcast_to(shape);
                Some(
                    layout
                        .map_err(|_| wrong_shape(OP, "the bias", &bias, format!("the result has {shape:?}, and it is repeated to that")))?,
                )
            }
            None => None,
        };

        let views = [("the first matrix", a), ("the second matrix", b)].into_iter().chain(matmul.bias.map(|bias| ("the bias", bias)));
        self.check_devices(OP, stream, views.clone().chain([("the result", out)]))?;
        views.into_iter().try_for_each(|(what, view)| apart(OP, what, &view, &out))?;

        // Where there is one alone the next is never read, but its address counts.
        let stride = |layout: &crate::layout::Layout, d: usize| if layout.shape()[d] == 1 { 0 } else { layout.strides()[d] as u64 };
        let strides = |layout: Option<&crate::layout::Layout>, d: usize| layout.map_or(0, |layout| stride(layout, d));
        let layouts = [Some(&layout_a), Some(&layout_b), Some(out.layout()), layout_bias.as_ref()];
        // The batch, innermost first: what can be walked in one step is.
        let mut dims: Vec<(u64, [u64; 4])> = Vec::new();
        for d in (0..rank - 2).rev().filter(|d| shape[*d] != 1) {
            let (size, steps) = (shape[d] as u64, layouts.map(|layout| strides(layout, d)));
            match dims.last_mut() {
                Some((inner, inner_steps)) if (0..4).all(|i| steps[i] == inner_steps[i].wrapping_mul(*inner)) => *inner *= size,
                _ => dims.push((size, steps)),
            }
        }
        let mut product = Product {
            m: m as u64,
            n: n as u64,
            k: k as u64,
            batches: batch.iter().map(|size| *size as u64).product(),
            batch: [1; MOST_BATCHES],
            alpha: matmul.alpha,
            beta: matmul.beta,
            activation: matmul.activation.map_or(0, Activation::number),
            has_bias: u32::from(matmul.bias.is_some()),
            ..Product::zeroed()
        };
        for (i, (size, steps)) in dims.into_iter().enumerate() {
            product.batch[i] = size;
            (0..4).for_each(|operand| product.steps[operand][i] = steps[operand]);
        }
        let pair = |layout: Option<&crate::layout::Layout>| [strides(layout, rank - 2), strides(layout, rank - 1)];
        [product.a, product.b, product.c, product.bias] = layouts.map(pair);
        Ok(Work { product, a, b, out, bias: matmul.bias, tf32: matmul.tf32 })
    }

    /// By our own kernels.
    fn multiply_here(&self, stream: &Stream, work: &Work<'_>) -> Result<()> {
        if let Some((way, work)) = work.with_vectors() {
            return self.multiply_vectors(stream, way, &work);
        }
        let info = self.device().info();
        let nvidia = info.vendor == Vendor::Nvidia;
        // f32 stays whole in AMD's matrix units, and in NVIDIA's does not.
        let units = if nvidia { work.tf32 && has_mma(info) } else { info.matrix_units == MatrixUnits::Mfma };
        // Tiles are stored by rows.
        let work = if work.product.c[1] != 1 && work.product.c[0] == 1 { work.turned() } else { *work };
        let mut product = work.product;
        let (recipe, threads, shared) = match work.a.dtype() {
            dtype @ (DType::F32 | DType::F64) if dtype == DType::F64 || !units => {
                let tile: u64 = if dtype == DType::F64 { 64 } else { 128 };
                product.tiles = [product.m, product.n].map(|size| u32::try_from(size.div_ceil(tile)).unwrap_or(u32::MAX));
                (Recipe::new(&PLAIN, "plain", &[dtype.name()], &[]), 256, 0)
            }
            dtype => {
                let layout = work.layout();
                let blocks = |tile: &Tile| product.m.div_ceil(tile.bm.into()) * product.n.div_ceil(tile.bn.into()) * product.batches;
                let [small, large] = [false, true].map(|large| Tile::of(nvidia, dtype, large, info.shared_per_block_max));
                // Large tiles read less, small ones leave fewer units without work.
                let is_large = blocks(&large) >= u64::from(info.compute_units);
                let tile = if is_large { large } else { small };
                product.tiles = [product.m.div_ceil(tile.bm.into()), product.n.div_ceil(tile.bn.into())]
                    .map(|tiles| u32::try_from(tiles).unwrap_or(u32::MAX));
                let threads = tile.bm / tile.wm * (tile.bn / tile.wn) * info.wave_size;
                (
                    tiles_recipe(dtype, work.out.dtype(), layout, is_large, tile.deep),
                    threads,
                    tile.stages * (tile.bm + tile.bn) * tile.k_bytes,
                )
            }
        };
        let blocks = product.tiles[0].saturating_mul(product.tiles[1]);
        let launch = Launch::new([blocks, product.batches.min(0xffff) as u32, 1], [threads, 1, 1]).shared(shared);
        let kernels = self.load(&recipe)?;
        // SAFETY: the kernel was made for these types and takes these arguments; the sizes and strides are those of views that were checked
        // against their memory, and it writes the result's places alone.
        unsafe {
            kernels[0].launch(stream, launch, (work.out.start(), work.a.start(), work.b.start(), work.bias_start(), Arg::value(&product)))
        }
        .map_err(refused(OP))
    }

    /// A matrix with few vectors.
    fn multiply_vectors(&self, stream: &Stream, way: Way, work: &Work<'_>) -> Result<()> {
        let (mut product, dtype) = (work.product, work.a.dtype());
        let recipe = vectors_recipe(dtype, work.out.dtype(), product.n.next_power_of_two() as u32);
        let kernels = self.load(&recipe)?;
        let each = 16 / dtype.size() as u64;
        let (out, a, b, bias) = (work.out.start(), work.a.start(), work.b.start(), work.bias_start());
        let grid = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
        match way {
            Way::Rows => {
                // Short rows are no work for many threads.
                let threads = product.k.div_ceil(each * u64::from(recipe.number("UNROLL"))).next_power_of_two().clamp(64, 256) as u32;
                let blocks = product.m.div_ceil(recipe.number("ROWS").into());
                let launch = Launch::new([grid(blocks), product.batches.min(0xffff) as u32, 1], [threads, 1, 1]).pdl();
                // SAFETY: as in `multiply_here`; everything lies as the kernel needs it.
                unsafe { kernels[0].launch(stream, launch, (out, a, b, bias, Arg::value(&product))) }.map_err(refused(OP))
            }
            Way::Columns => {
                let across = product.m.div_ceil(ACROSS * each);
                // Parts of k for all units to have two blocks at once; the sums of many would take longer.
                let wanted = u64::from(self.device().info().compute_units) * 2 / (across * product.batches).max(1);
                let parts = wanted.min(product.k / 256).clamp(1, 0xffff);
                product.part = product.k.div_ceil(parts) as u32;
                product.parts = product.k.div_ceil(product.part.into()) as u32;
                let sums = if product.parts > 1 { u64::from(product.parts) * product.batches * product.n * product.m } else { 0 };
                let mut sums = stream.alloc::<f32>(sums as usize).map_err(refused(OP))?;
                let launch = Launch::new([grid(across), product.parts, product.batches.min(0xffff) as u32], [COLUMN_THREADS, 1, 1]).pdl();
                let to = if product.parts > 1 { Arg::from(&mut sums) } else { Arg::from(out) };
                // SAFETY: as in `multiply_here`; there is a sum for each part of each element, where there are several.
                unsafe { kernels[1].launch(stream, launch, (to, a, b, bias, Arg::value(&product))) }.map_err(refused(OP))?;
                if product.parts == 1 {
                    return Ok(());
                }
                self.combine(stream, work, product, Arg::from(&sums), true)
            }
        }
    }

    /// The last step of products whose sums are elsewhere: m by m, for each of n, for each part, for each of the batch. `early` says that
    /// they are from a kernel of ours.
    fn combine(&self, stream: &Stream, work: &Work<'_>, product: Product, sums: Arg<'_>, early: bool) -> Result<()> {
        let vectors = if product.n <= most_vectors(work.a.dtype()) { product.n.next_power_of_two() as u32 } else { 1 };
        let kernels = self.load(&vectors_recipe(work.a.dtype(), work.out.dtype(), vectors))?;
        let Launch { grid: [blocks, ..], .. } = Launch::for_elements(product.m as usize, 256);
        let launch = Launch::new([blocks, product.n.min(0xffff) as u32, product.batches.min(0xffff) as u32], [256, 1, 1]);
        let launch = Launch { pdl: early, ..launch };
        // SAFETY: as in `multiply_here`; the kernel waits for the one before.
        unsafe { kernels[2].launch(stream, launch, (Arg::from(work.out.start()), sums, work.bias_start(), Arg::value(&product))) }
            .map_err(refused(OP))
    }

    /// By the library; false where it has no such product.
    fn multiply_there(&self, stream: &Stream, work: &Work<'_>, library: &Blas) -> Result<bool> {
        let product = &work.product;
        let bias = product.bias == [0, 1] || (product.bias[1] == 1 && product.m == 1);
        // The library is not told where a bias begins: it takes what suits any way to read it.
        let aligned = work.bias.is_none_or(|bias| bias.address().is_multiple_of(16));
        let bias = bias && aligned && product.steps[3] == [0; MOST_BATCHES];
        let epilogue = Epilogue { bias: product.has_bias != 0, relu: product.activation == 1, gelu: product.activation == 2 };
        let float = matches!(work.out.dtype(), DType::F32 | DType::F16 | DType::Bf16);
        // It may round sums to 16 bits before it adds what was there, or the bias, unless all rows begin at multiples of 16 bytes, 8 elements,
        // and are as long.
        let odd = |view: &View<'_>| {
            let mut dims = view.layout().strides().iter().zip(view.layout().shape()).filter(|(_, size)| **size > 1);
            let whole = |(stride, size): (&usize, &usize)| if *stride == 1 { size } else { stride }.is_multiple_of(8);
            !view.address().is_multiple_of(16) || !dims.all(whole)
        };
        let narrow = work.out.dtype().size() == 2;
        let twice = narrow && (product.beta != 0.0 || epilogue.bias && [&work.a, &work.b, &work.out].into_iter().any(odd));
        // Its GELU has too few digits for f32.
        let itself = product.activation <= 2
            && library.has(epilogue)
            && !twice
            && !(epilogue.gelu && work.out.dtype() == DType::F32)
            && (epilogue == Epilogue::default() || float && (bias || !epilogue.bias) && product.beta == 0.0);
        if itself && self.through_library(stream, work, library, epilogue)? {
            return Ok(true);
        }
        if epilogue == Epilogue::default() && product.activation == 0 && !twice || !float {
            return Ok(false);
        }
        // Sums of f32 first, and then what becomes of them, which is rounded once.
        let (m, n) = (product.m, product.n);
        let mut sums = stream.alloc::<f32>((m * n * product.batches) as usize).map_err(refused(OP))?;
        let mut alone = Product { c: [n, 1], alpha: 1.0, beta: 0.0, activation: 0, has_bias: 0, ..*product };
        let mut step = m * n;
        for d in 0..MOST_BATCHES {
            alone.steps[2][d] = step;
            step *= alone.batch[d];
        }
        let layout = crate::layout::Layout::contiguous(&[(m * n * product.batches) as usize])?;
        let view = ViewMut::new(&mut sums, layout)?;
        let there = self.through_library(stream, &Work { product: alone, out: view.as_view(), ..*work }, library, Epilogue::default())?;
        if there {
            let turned = work.turned();
            self.combine(stream, &turned, Product { parts: 1, ..turned.product }, Arg::from(&sums), false)?;
        }
        Ok(there)
    }

    fn through_library(&self, stream: &Stream, work: &Work<'_>, library: &Blas, epilogue: Epilogue) -> Result<bool> {
        let Some((work, shape)) = work.columns(epilogue) else { return Ok(false) };
        let product = work.product;
        let workspace = stream.alloc::<u8>(WORKSPACE).map_err(refused(OP))?;
        let size = work.a.dtype().size() as u64;
        let places = |batch: u64| {
            let at = |operand: usize| {
                let (mut rest, mut at) = (batch, 0);
                for d in 1..MOST_BATCHES {
                    at += rest % product.batch[d] * product.steps[operand][d];
                    rest /= product.batch[d];
                }
                at
            };
            Places {
                // What the library calls the first is our second: it sees everything transposed.
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
            // The library knows one dimension of batches.
            for outer in 0..product.batches / product.batch[0] {
                // SAFETY: the device is current and the stream its own; the shape is that of views that were checked against their memory, and
                // the result's places differ for each element.
                match unsafe { library.multiply(handle, &shape, places(outer)) } {
                    Ok(()) => {}
                    Err(Refusal::NoSuchProduct) if outer == 0 => return Ok(false),
                    Err(refusal) => return Err(refusal),
                }
            }
            Ok(true)
        };
        let outcome = stream.through_library(touched, queue).map_err(refused(OP))?;
        outcome.map_err(|refusal| Error::Library { op: OP.to_owned(), library: library.name(), reason: refusal.to_string() })
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::NoSuchProduct => f.write_str("it has no such product"),
            Refusal::Failed { call, code } => write!(f, "{call} failed with status {code}"),
        }
    }
}

/// How a matrix lies that is multiplied with few vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Rows,
    Columns,
}

impl<'a> Work<'a> {
    /// The same as a product of the transposed matrices: b's times a's.
    fn turned(&self) -> Work<'a> {
        let Product { m, n, a, b, c, bias, steps: [step_a, step_b, step_c, step_bias], .. } = self.product;
        let turn = |[x, y]: [u64; 2]| [y, x];
        let product = Product {
            m: n,
            n: m,
            a: turn(b),
            b: turn(a),
            c: turn(c),
            bias: turn(bias),
            steps: [step_b, step_a, step_c, step_bias],
            ..self.product
        };
        Work { product, a: self.b, b: self.a, ..*self }
    }

    fn bias_start(&self) -> Arg<'a> {
        self.bias.map_or(Arg::from(0u64), |bias| Arg::from(bias.start()))
    }

    /// Whether an operand's elements along one dimension are without gaps, and all rows of them aligned to 16 bytes.
    fn in_rows(&self, operand: usize, [along, across]: [(u64, u64); 2]) -> bool {
        let view = [self.a, self.b][operand];
        let size = view.dtype().size() as u64;
        let aligned = |stride: u64| stride.is_multiple_of(16 / size);
        let batch = self.product.batch.iter().zip(&self.product.steps[operand]);
        (along.0 == 1 || along.1 == 1)
            && (across.0 == 1 || aligned(across.1))
            && batch.into_iter().all(|(size, step)| *size == 1 || aligned(*step))
            && view.address().is_multiple_of(16)
    }

    /// `LAYOUT` of `matmul.cu`.
    fn layout(&self) -> u32 {
        let Product { m, n, k, a, b, .. } = self.product;
        let of = |operand, along: (u64, u64), by_k: (u64, u64)| {
            let sides = [(by_k, along), (along, by_k)];
            sides.iter().position(|(first, second)| self.in_rows(operand, [*first, *second]))
        };
        match (of(0, (m, a[0]), (k, a[1])), of(1, (n, b[1]), (k, b[0]))) {
            (Some(0), Some(0)) => 0,
            // Bytes are not transposed on the way out of shared memory.
            _ if self.a.dtype() == DType::U8 => 4,
            (Some(a), Some(b)) => (a + 2 * b) as u32,
            _ => 4,
        }
    }

    /// As a matrix and few vectors, if it is one whose lines are without gaps.
    fn with_vectors(&self) -> Option<(Way, Work<'a>)> {
        let way = |work: &Work<'a>| {
            let Product { m, n, k, a, b, .. } = work.product;
            let whole = k.is_multiple_of(16 / work.a.dtype().size() as u64);
            if n > most_vectors(work.a.dtype()) || k == 0 || k > i32::MAX as u64 {
                None
            } else if whole && work.in_rows(0, [(k, a[1]), (m, a[0])]) && work.in_rows(1, [(k, b[0]), (n, b[1])]) {
                Some(Way::Rows)
            } else if work.in_rows(0, [(m, a[0]), (k, a[1])]) {
                Some(Way::Columns)
            } else {
                None
            }
        };
        // The longer side is the matrix's.
        let (first, second) = if self.product.m >= self.product.n { (*self, self.turned()) } else { (self.turned(), *self) };
        [first, second].into_iter().find_map(|work| Some((way(&work)?, work)))
    }

    /// As the libraries see it: the result transposed, column by column. None where strides are beyond what they know.
    fn columns(&self, epilogue: Epilogue) -> Option<(Work<'a>, Shape)> {
        let Product { c, m, n, .. } = self.product;
        // A bias goes along n, and cannot be turned.
        let by_rows = (c[1] == 1 || n == 1) && (m == 1 || c[0] >= n);
        let work = if by_rows {
            *self
        } else if (c[0] == 1 || m == 1) && !epilogue.bias {
            self.turned()
        } else {
            return None;
        };
        let Product { m, n, k, a, b, c, steps, batch, .. } = work.product;
        let alignment = |view: View<'_>, strides: &[u64]| {
            let size = view.dtype().size() as u64;
            let bits = strides.iter().fold(view.address() | 256, |bits, stride| bits | (stride * size));
            1u32 << bits.trailing_zeros()
        };
        // Of rows × columns, one step is 1 and the other leads from a row or column to the next.
        let matrix = |view: View<'_>, rows: u64, columns: u64, [by_row, by_column]: [u64; 2], operand: usize| {
            let leading =
                |size: u64, other: u64, stride: u64| if other <= 1 { Some(size.max(1)) } else { (stride >= size.max(1)).then_some(stride) };
            let alignment = alignment(view, &steps[operand]);
            let make = |transposed, leading| Matrix { transposed, leading, step: steps[operand][0], alignment };
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

/// The sizes of a block's and a wave's tiles, and how many bytes of k are copied at a time, in how many stages: as `matmul.cu` has them.
#[derive(Debug, Clone, Copy)]
struct Tile {
    bm: u32,
    bn: u32,
    wm: u32,
    wn: u32,
    k_bytes: u32,
    stages: u32,
    deep: bool,
}

impl Tile {
    /// In so many bytes of shared memory.
    fn of(nvidia: bool, dtype: DType, large: bool, shared: usize) -> Tile {
        let (bm, bn, wm, wn) = match (nvidia, large) {
            (_, false) => (64, 64, 32, 32),
            (true, true) if dtype == DType::F32 => (128, 128, 64, 32),
            (true, true) => (128, 256, 64, 64),
            (false, true) => (128, 128, 64, 64),
        };
        // Of AMD's there is one way.
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

fn tiles_recipe(dtype: DType, out: DType, layout: u32, large: bool, deep: bool) -> Recipe {
    let element = if dtype == DType::U8 { "i8" } else { dtype.name() };
    Recipe::new(&TILES, "matmul", &[element, out.name()], &[("LAYOUT", layout), ("LARGE", large.into()), ("DEEP", deep.into())])
}

fn vectors_recipe(dtype: DType, out: DType, vectors: u32) -> Recipe {
    // As many loads under way as registers allow, found on an H200.
    let (rows, unroll, depth) = [(2, 4, 8), (2, 4, 4), (4, 2, 8), (4, 1, 2)][vectors.trailing_zeros().min(3) as usize];
    let numbers = [("VECTORS", vectors), ("ROWS", rows), ("UNROLL", unroll), ("DEPTH", depth)];
    Recipe::new(&VECTORS, "gemv", &[dtype.name(), out.name()], &numbers)
}

/// Whether an NVIDIA GPU has the matrix units that `tile.cuh` knows.
pub(crate) fn has_mma(info: &DeviceInfo) -> bool {
    info.matrix_units == MatrixUnits::TensorCores
}

/// Every program of these operations.
pub(crate) fn recipes() -> Vec<Recipe> {
    let floats = [DType::F32, DType::F16, DType::Bf16];
    let results = |dtype| if dtype == DType::F32 { vec![dtype] } else { vec![dtype, DType::F32] };
    let mut recipes: Vec<Recipe> = [DType::F32, DType::F64].map(|dtype| Recipe::new(&PLAIN, "plain", &[dtype.name()], &[])).to_vec();
    for (dtype, out) in floats.into_iter().flat_map(|dtype| results(dtype).into_iter().map(move |out| (dtype, out))) {
        recipes.extend(
            [1, 2, 4, 8]
                .into_iter()
                .filter(|vectors| *vectors <= most_vectors(dtype))
                .map(|vectors| vectors_recipe(dtype, out, vectors as u32)),
        );
    }
    for large in [true, false] {
        for (dtype, out) in floats.into_iter().flat_map(|dtype| results(dtype).into_iter().map(move |out| (dtype, out))) {
            recipes.extend([0, 1, 2, 3, 4].map(|layout| tiles_recipe(dtype, out, layout, large, large)));
        }
        recipes.extend([0, 4].map(|layout| tiles_recipe(DType::U8, DType::I32, layout, large, large)));
    }
    recipes
}
