//! Matrix products, random numbers, and the C functions for quantized weights, on the virtual GPU.

mod common;

use std::ffi::c_void;
use std::sync::Arc;

use common::context;
use cudarc::cublas::{CudaBlas, Gemm, GemmConfig, StridedBatchedConfig, sys::cublasOperation_t as Op};
use cudarc::curand::CudaRng;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DeviceRepr};
use half::f16;
use warpwave::jit::Jit;
use warpwave::kernels::{Kernels, Layout, Quant, QuantView, ViewMut};
use warpwave_test_support::{Random, seed};

unsafe extern "C" {
    fn launch_mmvq_gguf_quantize_q8_1_f32(x: *const c_void, y: *mut c_void, k: i32, padded: i32, rows: i32, stream: *mut c_void);
    fn launch_mmvq_gguf_q3_k_f32_plain(
        w: *const c_void,
        x: *const c_void,
        out: *mut c_void,
        k: i32,
        rows: i32,
        x_stride: i32,
        out_stride: i32,
        vectors: i32,
        stream: *mut c_void,
    );
    fn moe_gemm_gguf(
        x: *const f32,
        w: *const c_void,
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
    );
    fn moe_gemm_wmma(
        x: *const c_void,
        w: *const c_void,
        tokens: *const i32,
        experts: *const i32,
        scales: *const f32,
        out: *mut c_void,
        counts: *mut i32,
        offsets: *mut i32,
        count: i32,
        top: i32,
        entries: i32,
        rows: i32,
        columns: i32,
        dtype: i32,
        prefill: bool,
        stream: i64,
    );
}

fn address<T>(slice: &CudaSlice<T>) -> *mut c_void {
    std::ptr::without_provenance_mut(slice.device_ptr(slice.stream()).0 as usize)
}

/// Products of a batch with random strides and both ways of storing, against sums in doubles.
fn products<T: DeviceRepr + Copy>(stream: &Arc<CudaStream>, from: fn(f64) -> T, to: fn(T) -> f64, tolerance: f64)
where
    CudaBlas: Gemm<T>,
{
    let mut random = Random::new(seed());
    let blas = CudaBlas::new(stream.clone()).unwrap();
    for (m, n, k, batch) in [(1, 1, 1, 1), (3, 5, 7, 2), (17, 9, 33, 3), (64, 2, 16, 1)] {
        for (ta, tb, repeat) in [(false, false, false), (true, false, true), (false, true, false), (true, true, true)] {
            let (lda, ldb, ldc) = (if ta { k } else { m } + 1, if tb { n } else { k } + 2, m + 3);
            let (step_a, step_b, step_c) =
                (if repeat { 0 } else { lda * if ta { m } else { k } + 1 }, ldb * if tb { k } else { n }, ldc * n);
            let mut numbers = |len: usize| -> Vec<T> { (0..len).map(|_| from(random.uniform(-1.0, 1.0))).collect() };
            let (a, b) = (numbers(lda * m.max(k) + step_a * batch), numbers(ldb * n.max(k) * batch));
            let c = numbers(step_c * batch);
            let (da, db, mut dc) = (stream.clone_htod(&a).unwrap(), stream.clone_htod(&b).unwrap(), stream.clone_htod(&c).unwrap());
            let op = |transposed| if transposed { Op::CUBLAS_OP_T } else { Op::CUBLAS_OP_N };
            let [im, in_, ik, ia, ib, ic] = [m, n, k, lda, ldb, ldc].map(|x| x as i32);
            let gemm = GemmConfig {
                transa: op(ta),
                transb: op(tb),
                m: im,
                n: in_,
                k: ik,
                alpha: from(0.5),
                lda: ia,
                ldb: ib,
                beta: from(2.0),
                ldc: ic,
            };
            let [stride_a, stride_b, stride_c] = [step_a, step_b, step_c].map(|step| step as i64);
            let config = StridedBatchedConfig { gemm, batch_size: batch as i32, stride_a, stride_b, stride_c };
            // SAFETY: none is needed.
            unsafe { blas.gemm_strided_batched(config, &da, &db, &mut dc) }.unwrap();
            let found = stream.clone_dtoh(&dc).unwrap();
            for i in 0..batch {
                for column in 0..ldc * n {
                    let (row, column) = (column % ldc, column / ldc);
                    let at = i * step_c + column * ldc + row;
                    if row >= m {
                        assert_eq!(to(found[at]), to(c[at]), "between the columns");
                        continue;
                    }
                    let a = |p: usize| to(a[i * step_a + if ta { row * lda + p } else { p * lda + row }]);
                    let b = |p: usize| to(b[i * step_b + if tb { p * ldb + column } else { column * ldb + p }]);
                    let wanted = 0.5 * (0..k).map(|p| a(p) * b(p)).sum::<f64>() + 2.0 * to(c[at]);
                    assert!((to(found[at]) - wanted).abs() < tolerance, "{m} {n} {k} {ta} {tb}: {} {wanted}", to(found[at]));
                }
            }
        }
    }
}

#[test]
fn products_of_all_types() {
    let Some(context) = context() else { return };
    let stream = context.default_stream();
    products::<f32>(&stream, |x| x as f32, f64::from, 1e-5);
    products::<f64>(&stream, |x| x, |x| x, 1e-13);
    products::<f16>(&stream, f16::from_f64, f64::from, 2e-2);
    products::<half::bf16>(&stream, half::bf16::from_f64, f64::from, 0.1);
}

#[test]
fn products_beyond_their_memory_are_refused() {
    let Some(context) = context() else { return };
    let stream = context.default_stream();
    let blas = CudaBlas::new(stream.clone()).unwrap();
    let (a, b, mut c) =
        (stream.clone_htod(&[1f32; 6]).unwrap(), stream.clone_htod(&[1f32; 6]).unwrap(), stream.clone_htod(&[7f32; 4]).unwrap());
    let good =
        GemmConfig { transa: Op::CUBLAS_OP_N, transb: Op::CUBLAS_OP_N, m: 2, n: 2, k: 3, alpha: 1.0, lda: 2, ldb: 3, beta: 0.0, ldc: 2 };
    for bad in [
        GemmConfig { lda: 3, ..good },
        GemmConfig { ldb: 4, ..good },
        GemmConfig { ldc: 3, ..good },
        GemmConfig { k: 4, ..good },
        GemmConfig { k: 0, ..good },
        GemmConfig { m: -1, ..good },
        GemmConfig { ldc: 0, ..good },
        GemmConfig { lda: i32::MAX, ..good },
    ] {
        // SAFETY: none is needed.
        let error = unsafe { blas.gemm(bad, &a, &b, &mut c) }.unwrap_err();
        assert!(error.to_string().starts_with("matrix product: "), "{error}");
    }
    assert_eq!(stream.clone_dtoh(&c).unwrap(), [7.0; 4]);
    // SAFETY: none is needed.
    unsafe { blas.gemm(good, &a, &b, &mut c) }.unwrap();
    assert_eq!(stream.clone_dtoh(&c).unwrap(), [3.0; 4]);
}

#[test]
fn random_numbers_follow_their_seed() {
    let Some(context) = context() else { return };
    let stream = context.default_stream();
    let draw = |seed: u64| {
        let rng = CudaRng::new(seed, stream.clone()).unwrap();
        let (mut uniform, mut normal) = (stream.alloc_zeros::<f32>(5001).unwrap(), stream.alloc_zeros::<f64>(4000).unwrap());
        rng.fill_with_uniform(&mut uniform).unwrap();
        rng.fill_with_normal(&mut normal, 3.0, 0.5).unwrap();
        let mut next = stream.alloc_zeros::<f32>(5001).unwrap();
        rng.fill_with_uniform(&mut next).unwrap();
        [&uniform, &next]
            .map(|x| stream.clone_dtoh(x).unwrap())
            .into_iter()
            .chain([stream.clone_dtoh(&normal).unwrap().into_iter().map(|x| x as f32).collect()])
            .collect::<Vec<_>>()
    };
    let (first, again, other) = (draw(1), draw(1), draw(2));
    assert_eq!(first, again);
    assert!(first[0] != first[1] && first[0] != other[0] && first[2] != other[2]);
    assert!(first[0].iter().all(|x| (0.0..1.0).contains(x)));
    let mean = |x: &[f32]| x.iter().map(|x| f64::from(*x)).sum::<f64>() / x.len() as f64;
    assert!((mean(&first[0]) - 0.5).abs() < 0.02 && (mean(&first[2]) - 3.0).abs() < 0.03);
    let spread = first[2].iter().map(|x| (f64::from(*x) - 3.0).powi(2)).sum::<f64>() / 4000.0;
    assert!((spread.sqrt() - 0.5).abs() < 0.02, "{spread}");
    let mut none = stream.alloc_zeros::<f32>(0).unwrap();
    CudaRng::new(1, stream.clone()).unwrap().fill_with_uniform(&mut none).unwrap();
}

/// Blocks of `q8_0`: a scale, and 32 signed bytes. Returns them with their values.
fn q8_0(random: &mut Random, blocks: usize) -> (Vec<u8>, Vec<f64>) {
    let (mut bytes, mut values) = (Vec::new(), Vec::new());
    for _ in 0..blocks {
        let scale = f16::from_f64(random.uniform(0.01, 0.1));
        bytes.extend(scale.to_le_bytes());
        for _ in 0..32 {
            let code = random.below(255) as i32 - 127;
            bytes.push(code as i8 as u8);
            values.push(f64::from(scale) * f64::from(code));
        }
    }
    (bytes, values)
}

#[test]
fn experts_weights_are_those_of_the_routes() {
    let Some(context) = context() else { return };
    let stream = context.default_stream();
    let raw = stream.cu_stream() as i64;
    let mut random = Random::new(seed());
    let (count, top, vectors, rows, columns) = (3usize, 2usize, 4usize, 5usize, 64usize);
    let entries = vectors * top;
    let (bytes, weights) = q8_0(&mut random, count * rows * columns / 32);
    let x: Vec<f32> = (0..entries * columns).map(|_| random.uniform(-1.0, 1.0) as f32).collect();
    let tokens: Vec<i32> = (0..entries as i32).rev().collect();
    // The last route names an expert that does not exist.
    let experts: Vec<i32> = (0..entries).map(|e| if e + 1 == entries { 9 } else { random.below(count) as i32 }).collect();
    let scales: Vec<f32> = (0..entries).map(|_| random.uniform(0.1, 1.0) as f32).collect();
    let [dt, de] = [&tokens, &experts].map(|list| stream.clone_htod(list).unwrap());
    let (dw, dx, ds) = (stream.clone_htod(&bytes).unwrap(), stream.clone_htod(&x).unwrap(), stream.clone_htod(&scales).unwrap());
    let halves = |list: &[f64]| list.iter().map(|x| f16::from_f64(*x)).collect::<Vec<_>>();
    let (hw, hx) = (halves(&weights), halves(&x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>()));
    let (dhw, dhx) = (stream.clone_htod(&hw).unwrap(), stream.clone_htod(&hx).unwrap());
    let wanted = |weight: &dyn Fn(usize) -> f64, vector: &dyn Fn(usize) -> f64, scaled: bool, entry: usize, row: usize| {
        let (token, expert) = (tokens[entry] as usize, experts[entry] as usize);
        let from = if scaled { token } else { token / top };
        let sum: f64 = match expert < count {
            true => (0..columns).map(|i| weight((expert * rows + row) * columns + i) * vector(from * columns + i)).sum(),
            false => 0.0,
        };
        sum * if scaled { f64::from(scales[token]) } else { 1.0 }
    };
    let sizes = [count, top, entries, rows, columns].map(|x| x as i32);
    for scaled in [true, false] {
        let scale = if scaled { address(&ds).cast::<f32>().cast_const() } else { std::ptr::null() };
        let out = stream.alloc_zeros::<f32>(entries * rows).unwrap();
        let half_out = stream.alloc_zeros::<f16>(entries * rows).unwrap();
        let [c, t, e, r, k] = sizes;
        // SAFETY: the memory is as long as the sizes say.
        unsafe {
            let (tokens, experts) = (address(&dt).cast(), address(&de).cast());
            moe_gemm_gguf(address(&dx).cast(), address(&dw), tokens, experts, scale, address(&out), c, t, e, r, k, 0, raw);
            let (counts, offsets) = (std::ptr::null_mut(), std::ptr::null_mut());
            let (x, w, y) = (address(&dhx), address(&dhw), address(&half_out));
            moe_gemm_wmma(x, w, tokens, experts, scale, y, counts, offsets, c, t, e, r, k, 0, true, raw);
        }
        let (found, half_found) = (stream.clone_dtoh(&out).unwrap(), stream.clone_dtoh(&half_out).unwrap());
        for (entry, token) in tokens.iter().enumerate() {
            for row in 0..rows {
                let at = *token as usize * rows + row;
                let exact = wanted(&|i| weights[i], &|i| f64::from(x[i]), scaled, entry, row);
                assert!((f64::from(found[at]) - exact).abs() < 1e-3, "{entry} {row}: {} {exact}", found[at]);
                let exact = wanted(&|i| f64::from(hw[i]), &|i| f64::from(hx[i]), scaled, entry, row);
                assert!(
                    (f64::from(half_found[at]) - exact).abs() < 1e-3 * exact.abs().max(1.0),
                    "{entry} {row}: {} {exact}",
                    half_found[at]
                );
            }
        }
    }
}

#[test]
fn formats_of_experts_weights_are_those_of_the_kernel_library() {
    let Some(context) = context() else { return };
    let stream = context.default_stream();
    let kernels = Kernels::new(context.device(), &Jit::default());
    let own = context.device().stream().unwrap();
    let mut random = Random::new(seed());
    let (rows, columns) = (3usize, 512usize);
    // candle's numbers of the formats, and where their blocks have scales.
    for (number, quant, halves) in [(1, Quant::Q4K, &[0usize, 2][..]), (4, Quant::Q5K, &[0, 2]), (5, Quant::Q6K, &[208])] {
        let mut bytes: Vec<u8> = (0..quant.row_bytes(columns).unwrap() * rows).map(|_| random.below(256) as u8).collect();
        for block in bytes.chunks_mut(quant.block_bytes()) {
            halves.iter().for_each(|at| block[*at..at + 2].copy_from_slice(&f16::from_f64(random.uniform(0.001, 0.01)).to_le_bytes()));
        }
        let packed = own.upload(&bytes).unwrap();
        let mut values = own.alloc::<f32>(rows * columns).unwrap();
        let mut view = ViewMut::new(&mut values, Layout::contiguous(&[rows, columns]).unwrap()).unwrap();
        kernels.dequantize(&own, &QuantView::new(quant, &packed, rows, columns).unwrap(), &mut view).unwrap();
        let values = own.download(&values).unwrap();

        let x: Vec<f32> = (0..columns).map(|_| random.uniform(-1.0, 1.0) as f32).collect();
        let (w, dx, route) = (stream.clone_htod(&bytes).unwrap(), stream.clone_htod(&x).unwrap(), stream.clone_htod(&[0i32]).unwrap());
        let out = stream.alloc_zeros::<f32>(rows).unwrap();
        let [r, k] = [rows, columns].map(|x| x as i32);
        // SAFETY: the memory is as long as the sizes say.
        unsafe {
            let (ids, raw) = (address(&route).cast(), stream.cu_stream() as i64);
            moe_gemm_gguf(address(&dx).cast(), address(&w), ids, ids, std::ptr::null(), address(&out), 1, 1, 1, r, k, number, raw);
        }
        for (row, found) in stream.clone_dtoh(&out).unwrap().into_iter().enumerate() {
            let terms = values[row * columns..].iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x));
            let (sum, mass) = terms.fold((0.0, 0.0), |(sum, mass), term| (sum + term, mass + term.abs()));
            assert!((f64::from(found) - sum).abs() < 1e-5 * mass && mass > 1.0, "{quant} {row}: {found} {sum}");
        }
    }
}

#[test]
fn a_failed_c_function_is_reported_and_its_result_unusable() {
    let Some(context) = context() else { return };
    let stream = context.default_stream();
    let raw = stream.cu_stream().cast::<c_void>();
    let (x, quantized) = (stream.clone_htod(&[1f32; 512]).unwrap(), stream.alloc_zeros::<u8>(2 * 16 * 36).unwrap());
    let weights = stream.alloc_zeros::<u8>(3 * 110 * 2).unwrap();
    let (good, bad) = (stream.alloc_zeros::<f32>(3).unwrap(), stream.alloc_zeros::<f32>(3).unwrap());
    // SAFETY: sizes that do not fit are refused.
    unsafe {
        launch_mmvq_gguf_quantize_q8_1_f32(address(&x), address(&quantized), 512, 512, 1, raw);
        launch_mmvq_gguf_q3_k_f32_plain(address(&weights), address(&quantized), address(&good), 512, 3, 16, 3, 1, raw);
    }
    assert_eq!(stream.clone_dtoh(&good).unwrap(), [0.0; 3]);
    // One row more than the weights have.
    // SAFETY: as above.
    unsafe { launch_mmvq_gguf_q3_k_f32_plain(address(&weights), address(&quantized), address(&bad), 512, 4, 16, 4, 1, raw) };
    let error = stream.synchronize().unwrap_err();
    assert!(error.to_string().contains("launch_mmvq_gguf_q3_k_f32_plain: the weights"), "{error}");
    // It was returned, and the device works; the result that was not written does not.
    stream.synchronize().unwrap();
    for _ in 0..2 {
        let error = stream.clone_dtoh(&bad).unwrap_err();
        assert!(error.to_string().contains("launch_mmvq_gguf_q3_k_f32_plain"), "{error}");
    }
    assert_eq!(stream.clone_dtoh(&good).unwrap(), [0.0; 3]);
    // Addresses and streams of nothing.
    let nowhere = std::ptr::without_provenance_mut(64);
    // SAFETY: as above.
    unsafe { launch_mmvq_gguf_quantize_q8_1_f32(nowhere, address(&quantized), 512, 512, 1, raw) };
    assert!(context.check_err().unwrap_err().to_string().contains("0x40"));
    assert!(stream.clone_dtoh(&quantized).unwrap_err().to_string().contains("0x40"), "the vectors that were not quantized are unusable");
    let quantized = stream.alloc_zeros::<u8>(16 * 36).unwrap();
    // SAFETY: as above.
    unsafe { launch_mmvq_gguf_quantize_q8_1_f32(address(&x), address(&quantized), 512, 512, 1, nowhere) };
    context.check_err().unwrap();
}
