//! The C functions that candle's crates link: products with quantized weights and with the weights of experts.
//!
//! They get addresses and a stream's handle. Both are looked up, and sizes checked against the memory. They return nothing: an error is
//! returned by the next call on the device that can, and the result's memory returns it at every later use.
//!
//! Vectors are quantized to rows of GGUF's `q8_1` blocks without padding, whatever layout the real functions use: only these functions read
//! them.

mod dot;

use std::ffi::c_void;
use std::sync::Arc;

use warpwave::kernels::{DType, Layout, Quant, QuantView, QuantViewMut, View, ViewMut};

use crate::error::DriverError;
use crate::gpu::{Gpu, Part, Queue};
use dot::{Dot, Format, Routes};

type Result<T> = std::result::Result<T, DriverError>;

/// A call of a C function: its stream.
struct Call {
    name: &'static str,
    queue: Arc<Queue>,
}

impl Call {
    fn gpu(&self) -> &Arc<Gpu> {
        &self.queue.gpu
    }

    /// Finds memory that the work of this call uses.
    fn part(&self, address: *const c_void, bytes: Result<usize>, what: &str) -> Result<Part> {
        let name = format!("{}: {what}", self.name);
        let part = self.gpu().find_range(address.addr() as u64, bytes?, &name)?;
        // Some uses pass addresses, which the pool does not see.
        part.memory.acquire_external(&self.queue.stream)?;
        Ok(part)
    }
}

/// Runs the body of a C function. If it fails, the memory of the result and the device keep the error.
fn call(name: &'static str, stream: *const c_void, result: *const c_void, body: impl FnOnce(&Call) -> Result<()>) {
    let Some(queue) = Queue::find(stream.addr()) else {
        // Without the stream, no device can keep the error.
        tracing::error!("{name}: the stream {stream:?} does not exist; nothing was computed");
        return;
    };
    let call = Call { name, queue };
    // After an earlier failure the inputs may not be what they should be.
    let outcome = call.gpu().pending().map_or_else(|| body(&call), Err);
    if let Err(error) = outcome {
        let error = DriverError::new(error.0, &format!("{name}: {}", error.reason().trim_start_matches(name).trim_start_matches(": ")));
        if let Ok((memory, _)) = call.gpu().find(result.addr() as u64, name) {
            memory.fail(error);
        }
        call.gpu().record(error);
    }
}

/// A size that C passes as a signed number.
fn size(what: &str, value: impl TryInto<usize> + Copy + std::fmt::Display) -> Result<usize> {
    value.try_into().map_err(|_| DriverError::invalid(&format!("{what}: expected at least 0, got {value}")))
}

fn product(sizes: &[usize]) -> Result<usize> {
    let too_large = || DriverError::invalid(&format!("sizes {sizes:?} exceed the address space"));
    sizes.iter().try_fold(1usize, |product, size| product.checked_mul(*size)).ok_or_else(too_large)
}

/// Quantizes `rows` rows of `columns` numbers, `stride` apart.
fn quantize(call: &Call, dtype: DType, x: *const c_void, out: *const c_void, [rows, columns, stride]: [usize; 3]) -> Result<()> {
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let elements = product(&[rows - 1, stride])?.saturating_add(columns);
    let from = call.part(x, product(&[elements, dtype.size()]), "the vectors")?;
    let to = call.part(out, product(&[rows, Format::Q8_1.row_bytes(columns)?]), "the quantized vectors")?;
    let from = View::of_bytes(from.slice()?, dtype, Layout::rows(rows, columns, stride, 0)?)?;
    // SAFETY: the caller of the C function guarantees that nothing else uses its result.
    let mut to = QuantViewMut::new(Quant::Q8_1, unsafe { to.slice()?.assume_mut() }, rows, columns)?;
    Ok(call.gpu().kernels.quantize(&call.queue.stream, &from, &mut to)?)
}

/// Formats of weights in C functions' names.
#[derive(Clone, Copy)]
enum Weights {
    /// Of the kernel library.
    Library(Quant),
    /// Of `dot.cu`.
    Own(Format),
}

impl Weights {
    fn row_bytes(self, columns: usize) -> Result<usize> {
        match self {
            Weights::Own(format) => format.row_bytes(columns),
            Weights::Library(quant) => quant.row_bytes(columns).ok_or_else(|| {
                DriverError::invalid(&format!("{columns} columns are not a multiple of {}, the block size of {quant}", quant.block_size()))
            }),
        }
    }
}

/// Multiplies quantized vectors with the rows of quantized weights.
fn multiply(
    call: &Call,
    weights: Weights,
    dtype: DType,
    [w, x, out]: [*const c_void; 3],
    [rows, columns, vectors, out_stride]: [usize; 4],
) -> Result<()> {
    if out_stride != rows {
        return Err(DriverError::invalid(&format!("the row stride of the result is {out_stride}, expected {rows}")));
    }
    if rows == 0 || columns == 0 || vectors == 0 {
        return Ok(());
    }
    let w = call.part(w, product(&[rows, weights.row_bytes(columns)?]), "the weights")?;
    let x = call.part(x, product(&[vectors, Format::Q8_1.row_bytes(columns)?]), "the quantized vectors")?;
    let out = call.part(out, product(&[vectors, rows, dtype.size()]), "the result")?;
    let (w, x, out) = (w.slice()?, x.slice()?, out.slice()?);
    match weights {
        Weights::Library(quant) => {
            let w = QuantView::new(quant, w, rows, columns)?;
            let x = QuantView::new(Quant::Q8_1, x, vectors, columns)?;
            // SAFETY: the caller of the C function guarantees that nothing else uses its result.
            let mut out = ViewMut::of_bytes(unsafe { out.assume_mut() }, dtype, Layout::contiguous(&[vectors, rows])?)?;
            Ok(call.gpu().kernels.quant_matmul_q8(&call.queue.stream, &w, &x, &mut out)?)
        }
        Weights::Own(format) => {
            let (weights, vectors_of, out) = ((format, w), (Format::Q8_1, x), (dtype, out));
            let dot = Dot { weights, vectors: vectors_of, out, rows, columns, vector_rows: vectors, entries: vectors, routes: None };
            dot.launch(call.gpu(), &call.queue.stream)
        }
    }
}

/// Functions that quantize vectors for products with few of them.
macro_rules! mmvq_quantize {
    ($($name:ident $dtype:ident),*) => { $(
        /// # Safety
        /// Nothing else may use the result until the work on the stream is done.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(x: *const c_void, out: *mut c_void, columns: i32, _padded: i32, rows: i32, stream: *mut c_void) {
            call(stringify!($name), stream, out, |call| {
                let (rows, columns) = (size("the number of vectors", rows)?, size("the number of columns", columns)?);
                quantize(call, DType::$dtype, x, out, [rows, columns, columns])
            });
        }
    )* };
}
mmvq_quantize!(
    launch_mmvq_gguf_quantize_q8_1_f32 F32,
    launch_mmvq_gguf_quantize_q8_1_f16 F16,
    launch_mmvq_gguf_quantize_q8_1_bf16 Bf16
);

/// Functions for products with few vectors.
macro_rules! mmvq {
    ($($weights:expr => $f32:ident $f16:ident $bf16:ident),* $(,)?) => { $(
        mmvq!(@function $f32, $weights, F32);
        mmvq!(@function $f16, $weights, F16);
        mmvq!(@function $bf16, $weights, Bf16);
    )* };
    (@function $name:ident, $weights:expr, $dtype:ident) => {
        /// # Safety
        /// Nothing else may use the result until the work on the stream is done.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            weights: *const c_void,
            x: *const c_void,
            out: *mut c_void,
            columns: i32,
            rows: i32,
            _x_stride: i32,
            out_stride: i32,
            vectors: i32,
            stream: *mut c_void,
        ) {
            call(stringify!($name), stream, out, |call| {
                let sizes = [size("rows", rows)?, size("columns", columns)?, size("vectors", vectors)?, size("the stride", out_stride)?];
                multiply(call, $weights, DType::$dtype, [weights, x, out], sizes)
            });
        }
    };
}
mmvq! {
    Weights::Library(Quant::Q4_0) => launch_mmvq_gguf_q4_0_f32_plain launch_mmvq_gguf_q4_0_f16_plain launch_mmvq_gguf_q4_0_bf16_plain,
    Weights::Library(Quant::Q4_1) => launch_mmvq_gguf_q4_1_f32_plain launch_mmvq_gguf_q4_1_f16_plain launch_mmvq_gguf_q4_1_bf16_plain,
    Weights::Library(Quant::Q5_0) => launch_mmvq_gguf_q5_0_f32_plain launch_mmvq_gguf_q5_0_f16_plain launch_mmvq_gguf_q5_0_bf16_plain,
    Weights::Library(Quant::Q5_1) => launch_mmvq_gguf_q5_1_f32_plain launch_mmvq_gguf_q5_1_f16_plain launch_mmvq_gguf_q5_1_bf16_plain,
    Weights::Library(Quant::Q8_0) => launch_mmvq_gguf_q8_0_f32_plain launch_mmvq_gguf_q8_0_f16_plain launch_mmvq_gguf_q8_0_bf16_plain,
    Weights::Own(Format::Q2K) => launch_mmvq_gguf_q2_k_f32_plain launch_mmvq_gguf_q2_k_f16_plain launch_mmvq_gguf_q2_k_bf16_plain,
    Weights::Own(Format::Q3K) => launch_mmvq_gguf_q3_k_f32_plain launch_mmvq_gguf_q3_k_f16_plain launch_mmvq_gguf_q3_k_bf16_plain,
    Weights::Library(Quant::Q4K) => launch_mmvq_gguf_q4_k_f32_plain launch_mmvq_gguf_q4_k_f16_plain launch_mmvq_gguf_q4_k_bf16_plain,
    Weights::Library(Quant::Q5K) => launch_mmvq_gguf_q5_k_f32_plain launch_mmvq_gguf_q5_k_f16_plain launch_mmvq_gguf_q5_k_bf16_plain,
    Weights::Library(Quant::Q6K) => launch_mmvq_gguf_q6_k_f32_plain launch_mmvq_gguf_q6_k_f16_plain launch_mmvq_gguf_q6_k_bf16_plain,
}

/// Functions that quantize vectors for products with many of them. The real ones differ in their layout.
macro_rules! mmq_quantize {
    ($($name:ident),*) => { $(
        /// # Safety
        /// Nothing else may use the result until the work on the stream is done.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            x: *const c_void,
            ids: *const i32,
            out: *mut c_void,
            _type: i32,
            columns: i64,
            stride: i64,
            _stride_2: i64,
            _stride_3: i64,
            _padded: i64,
            rows: i64,
            channels: i64,
            samples: i64,
            stream: *mut c_void,
        ) {
            call(stringify!($name), stream, out, |call| {
                if !ids.is_null() || channels != 1 || samples != 1 {
                    let found = format!("{channels} channels, {samples} samples and ids at {ids:?}");
                    return Err(DriverError::invalid(&format!("expected 1 channel, 1 sample and no ids, got {found}")));
                }
                let sizes = [size("the number of vectors", rows)?, size("the number of columns", columns)?, size("the stride", stride)?];
                quantize(call, DType::F32, x, out, sizes)
            });
        }
    )* };
}
mmq_quantize!(launch_mmq_quantize_q8_1_D4, launch_mmq_quantize_q8_1_DS4, launch_mmq_quantize_q8_1_D2S6);

/// Functions for products with many vectors.
macro_rules! mmq {
    ($($name:ident $weights:expr, $block:literal;)*) => { $(
        /// # Safety
        /// Nothing else may use the result until the work on the stream is done.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            _fixup: *mut c_void,
            weights: *const c_void,
            x: *const c_void,
            out: *mut c_void,
            columns: i64,
            rows: i64,
            vectors: i64,
            row_blocks: i64,
            out_stride: i64,
            _capability: i32,
            _multiprocessors: i32,
            _shared: i64,
            _warp: i32,
            stream: *mut c_void,
        ) {
            call(stringify!($name), stream, out, |call| {
                let [rows, columns] = [size("rows", rows)?, size("columns", columns)?];
                if size("the row stride", row_blocks)? != columns / $block {
                    let reason = format!("the row stride of the weights is {row_blocks} blocks, expected {}", columns / $block);
                    return Err(DriverError::invalid(&reason));
                }
                let sizes = [rows, columns, size("vectors", vectors)?, size("the stride", out_stride)?];
                multiply(call, $weights, DType::F32, [weights, x, out], sizes)
            });
        }
    )* };
}
mmq! {
    launch_mmq_gguf_q4_0 Weights::Library(Quant::Q4_0), 32;
    launch_mmq_gguf_q4_1 Weights::Library(Quant::Q4_1), 32;
    launch_mmq_gguf_q5_0 Weights::Library(Quant::Q5_0), 32;
    launch_mmq_gguf_q5_1 Weights::Library(Quant::Q5_1), 32;
    launch_mmq_gguf_q8_0 Weights::Library(Quant::Q8_0), 32;
    launch_mmq_gguf_q2_k Weights::Own(Format::Q2K), 256;
    launch_mmq_gguf_q3_k Weights::Own(Format::Q3K), 256;
    launch_mmq_gguf_q4_k Weights::Library(Quant::Q4K), 256;
    launch_mmq_gguf_q5_k Weights::Library(Quant::Q5K), 256;
    launch_mmq_gguf_q6_k Weights::Library(Quant::Q6K), 256;
}

/// The addresses of a product with the weights of experts.
struct Experts {
    x: *const c_void,
    weights: *const c_void,
    tokens: *const i32,
    experts: *const i32,
    scales: *const f32,
    out: *const c_void,
    /// Experts, entries per token, entries, rows and columns.
    sizes: [i32; 5],
}

impl Experts {
    /// Multiplies each entry's vector with the weights of its expert. With scales each entry has a vector, without them those of a token
    /// share one.
    fn multiply(&self, call: &Call, weights: Format, vectors: Format, dtype: DType) -> Result<()> {
        let [count, top, entries, rows, columns] = self.sizes;
        let (count, top) = (size("the number of experts", count)?, size("the number of experts per token", top)?);
        let (entries, rows, columns) = (size("the number of entries", entries)?, size("rows", rows)?, size("columns", columns)?);
        let top = if self.scales.is_null() { top } else { 1 };
        if entries == 0 || rows == 0 || columns == 0 {
            return Ok(());
        }
        if top == 0 || count == 0 {
            return Err(DriverError::invalid(&format!("{count} experts, {top} per token; expected at least one of each")));
        }
        let vector_rows = entries.div_ceil(top);
        let w = call.part(self.weights, product(&[count, rows, weights.row_bytes(columns)?]), "the weights")?;
        let x = call.part(self.x, product(&[vector_rows, vectors.row_bytes(columns)?]), "the vectors")?;
        let out = call.part(self.out, product(&[entries, rows, dtype.size()]), "the result")?;
        let tokens = call.part(self.tokens.cast(), product(&[entries, 4]), "the tokens")?;
        let experts = call.part(self.experts.cast(), product(&[entries, 4]), "the experts")?;
        let scales = match self.scales.is_null() {
            true => None,
            false => Some(call.part(self.scales.cast(), product(&[entries, 4]), "the routing weights")?),
        };
        let routes = Routes {
            tokens: tokens.slice()?,
            experts: experts.slice()?,
            scales: scales.as_ref().map(Part::slice).transpose()?,
            count,
            top,
        };
        let (weights, vectors, out) = ((weights, w.slice()?), (vectors, x.slice()?), (dtype, out.slice()?));
        Dot { weights, vectors, out, rows, columns, vector_rows, entries, routes: Some(routes) }.launch(call.gpu(), &call.queue.stream)
    }
}

/// The weights that candle numbers.
fn numbered(number: i32) -> Result<Format> {
    let all = [Format::Q8_0, Format::Q4K, Format::Q2K, Format::Q3K, Format::Q5K, Format::Q6K];
    let found = usize::try_from(number).ok().and_then(|number| all.get(number).copied());
    found.ok_or_else(|| DriverError::invalid(&format!("weights of type {number}; expected 0 to 5")))
}

/// 16-bit floats that candle numbers.
fn numbered_float(number: i32) -> Result<(Format, DType)> {
    match number {
        0 => Ok((Format::F16, DType::F16)),
        1 => Ok((Format::Bf16, DType::Bf16)),
        other => Err(DriverError::invalid(&format!("elements of type {other}; expected 0 (f16) or 1 (bf16)"))),
    }
}

/// # Safety
/// Nothing else may use the result until the work on the stream is done.
#[unsafe(no_mangle)]
unsafe extern "C" fn moe_gemm_wmma(
    x: *const c_void,
    weights: *const c_void,
    tokens: *const i32,
    experts: *const i32,
    scales: *const f32,
    out: *mut c_void,
    _counts: *mut i32,
    _offsets: *mut i32,
    count: i32,
    top: i32,
    entries: i32,
    rows: i32,
    columns: i32,
    dtype: i32,
    _prefill: bool,
    stream: i64,
) {
    let product = Experts { x, weights, tokens, experts, scales, out, sizes: [count, top, entries, rows, columns] };
    call("moe_gemm_wmma", std::ptr::without_provenance(stream as usize), out, |call| {
        let (format, dtype) = numbered_float(dtype)?;
        product.multiply(call, format, format, dtype)
    });
}

/// # Safety
/// Nothing else may use the result until the work on the stream is done.
#[unsafe(no_mangle)]
unsafe extern "C" fn moe_gemm_gguf(
    x: *const f32,
    weights: *const c_void,
    tokens: *const i32,
    experts: *const i32,
    scales: *const f32,
    out: *mut c_void,
    count: i32,
    top: i32,
    entries: i32,
    rows: i32,
    columns: i32,
    ty: i32,
    stream: i64,
) {
    let product = Experts { x: x.cast(), weights, tokens, experts, scales, out, sizes: [count, top, entries, rows, columns] };
    call("moe_gemm_gguf", std::ptr::without_provenance(stream as usize), out, |call| {
        product.multiply(call, numbered(ty)?, Format::F32, DType::F32)
    });
}

/// # Safety
/// Nothing else may use the result until the work on the stream is done.
#[unsafe(no_mangle)]
unsafe extern "C" fn moe_gemm_gguf_prefill(
    x: *const c_void,
    weights: *const u8,
    tokens: *const i32,
    experts: *const i32,
    scales: *const f32,
    out: *mut c_void,
    count: i32,
    top: i32,
    entries: i32,
    rows: i32,
    columns: i32,
    dtype: i32,
    ty: i32,
    stream: i64,
) {
    let product = Experts { x, weights: weights.cast(), tokens, experts, scales, out, sizes: [count, top, entries, rows, columns] };
    call("moe_gemm_gguf_prefill", std::ptr::without_provenance(stream as usize), out, |call| {
        product.multiply(call, numbered(ty)?, numbered_float(dtype)?.0, DType::F32)
    });
}
