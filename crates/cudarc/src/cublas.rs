//! Matrix products under cuBLAS's names: by the vendor's library, or by Warpwave's kernels.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_longlong};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::driver::{CudaStream, DevicePtr, DevicePtrMut};
use crate::gpu::lock;
use result::CublasError;

/// Types and numbers of the library below.
pub mod sys {
    #![allow(non_camel_case_types)]

    /// What a handle points to.
    #[repr(C)]
    pub struct cublasContext {
        _private: [u8; 0],
    }
    /// A handle of this crate's, not of the library's.
    pub type cublasHandle_t = *mut cublasContext;

    /// How a matrix is stored.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[repr(u32)]
    pub enum cublasOperation_t {
        /// Column after column.
        CUBLAS_OP_N = 0,
        /// Row after row.
        CUBLAS_OP_T = 1,
    }

    /// Element types.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    #[repr(u32)]
    pub enum cudaDataType_t {
        /// `f32`.
        CUDA_R_32F = 0,
        /// `f64`.
        CUDA_R_64F = 1,
        /// `f16`.
        CUDA_R_16F = 2,
        /// `bf16`.
        CUDA_R_16BF = 14,
    }
    /// The same under its other name.
    pub use cudaDataType_t as cudaDataType;

    /// How sums are computed, and what `alpha` and `beta` point to. Sums are of `f32` at least.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    #[repr(u32)]
    pub enum cublasComputeType_t {
        /// Factors of `f16`.
        CUBLAS_COMPUTE_16F = 64,
        /// Factors of `f32`.
        CUBLAS_COMPUTE_32F = 68,
        /// Factors of `f32`; `f32` elements may be rounded to `bf16`.
        CUBLAS_COMPUTE_32F_FAST_16BF = 75,
        /// Factors of `f32`; `f32` elements may be rounded to tf32.
        CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
        /// Factors of `f64`.
        CUBLAS_COMPUTE_64F = 70,
    }

    /// Which algorithm is used: always the fastest one known.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    #[repr(i32)]
    pub enum cublasGemmAlgo_t {
        /// Any.
        CUBLAS_GEMM_DEFAULT = -1,
        /// Any, with matrix units.
        CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99,
    }
}

/// Calls by handle and address.
pub mod result {
    use std::ffi::{c_int, c_longlong, c_void};

    use half::f16;
    use warpwave::kernels::{DType, Layout, Matmul, View, ViewMut};

    use super::sys::{self, cublasComputeType_t as Compute, cublasOperation_t as Operation, cudaDataType_t as Type};
    use super::{CudaBlas, CudaStream};
    use crate::driver::DriverError;

    /// Why a product could not be computed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
    #[error("matrix product: {0}")]
    pub struct CublasError(pub DriverError);

    impl From<DriverError> for CublasError {
        fn from(error: DriverError) -> CublasError {
            CublasError(error)
        }
    }

    impl From<warpwave::kernels::Error> for CublasError {
        fn from(error: warpwave::kernels::Error) -> CublasError {
            CublasError(error.into())
        }
    }

    fn dtype(ty: Type) -> DType {
        match ty {
            Type::CUDA_R_32F => DType::F32,
            Type::CUDA_R_64F => DType::F64,
            Type::CUDA_R_16F => DType::F16,
            Type::CUDA_R_16BF => DType::Bf16,
        }
    }

    /// A matrix of each of `batch` products: its address, its type, and the strides of its rows, columns and batch.
    struct Matrix {
        address: u64,
        dtype: DType,
        shape: [usize; 3],
        strides: [usize; 3],
    }

    impl Matrix {
        /// `shape` is batch, rows and columns. Stored by columns, or by rows if transposed.
        fn new(
            address: *const c_void,
            ty: Type,
            transposed: bool,
            leading: c_int,
            stride: c_longlong,
            shape: [usize; 3],
        ) -> Result<Matrix, CublasError> {
            let wrong = |what: &str, value: i64| DriverError::invalid(&format!("matrix product: {what}: expected at least 0, got {value}"));
            let leading = usize::try_from(leading).map_err(|_| wrong("the leading dimension", leading.into()))?;
            let stride = usize::try_from(stride).map_err(|_| wrong("the batch stride", stride))?;
            let (row, column) = if transposed { (leading, 1) } else { (1, leading) };
            Ok(Matrix { address: address.addr() as u64, dtype: dtype(ty), shape, strides: [stride, row, column] })
        }

        /// The layout, and the bytes from the first element to the last.
        fn layout(&self) -> Result<(Layout, usize), CublasError> {
            let layout = Layout::new(&self.shape, &self.strides, 0)?;
            // The layout was checked: its last element is below `isize::MAX`.
            let last: usize = self.shape.iter().zip(self.strides).map(|(size, stride)| (size - 1) * stride).sum();
            let too_large = || DriverError::invalid("matrix product: a matrix exceeds the address space");
            Ok((layout, (last + 1).checked_mul(self.dtype.size()).ok_or_else(too_large)?))
        }
    }

    /// Reads a factor.
    ///
    /// # Safety
    /// The address must be that of a number of the type that the sums' type asks for.
    unsafe fn factor(address: *const c_void, compute: Compute) -> f64 {
        // SAFETY: the caller guarantees the type.
        unsafe {
            match compute {
                Compute::CUBLAS_COMPUTE_16F => address.cast::<f16>().read_unaligned().to_f64(),
                Compute::CUBLAS_COMPUTE_64F => address.cast::<f64>().read_unaligned(),
                _ => f64::from(address.cast::<f32>().read_unaligned()),
            }
        }
    }

    /// Computes `c = alpha * a * b + beta * c` for each product of a batch, with matrices in device memory. A batch stride of 0 repeats a
    /// matrix. The addresses are looked up, and the matrices checked against the memory they are in.
    ///
    /// # Safety
    /// `alpha` and `beta` must be addresses in host memory of numbers of the type that `compute` names. Nothing else may use the result
    /// until the work on the handle's stream is done.
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn gemm_strided_batched_ex(
        handle: sys::cublasHandle_t,
        transa: Operation,
        transb: Operation,
        m: c_int,
        n: c_int,
        k: c_int,
        alpha: *const c_void,
        a: *const c_void,
        a_type: sys::cudaDataType,
        lda: c_int,
        stride_a: c_longlong,
        b: *const c_void,
        b_type: sys::cudaDataType,
        ldb: c_int,
        stride_b: c_longlong,
        beta: *const c_void,
        c: *mut c_void,
        c_type: sys::cudaDataType,
        ldc: c_int,
        stride_c: c_longlong,
        batch_count: c_int,
        compute: Compute,
        _algorithm: sys::cublasGemmAlgo_t,
    ) -> Result<(), CublasError> {
        let stream = CudaBlas::stream_of(handle).ok_or_else(|| DriverError::invalid("matrix product: the handle was dropped"))?;
        let size = |what: &str, value: c_int| {
            usize::try_from(value).map_err(|_| DriverError::invalid(&format!("matrix product: {what}: expected at least 0, got {value}")))
        };
        let (m, n, k, batch) = (size("m", m)?, size("n", n)?, size("k", k)?, size("the batch size", batch_count)?);
        stream.context().gpu.check()?;
        if m == 0 || n == 0 || batch == 0 {
            return Ok(());
        }
        if k == 0 {
            return Err(DriverError::invalid("matrix product: k: expected at least 1, got 0").into());
        }
        let a = Matrix::new(a, a_type, transa == Operation::CUBLAS_OP_T, lda, stride_a, [batch, m, k])?;
        let b = Matrix::new(b, b_type, transb == Operation::CUBLAS_OP_T, ldb, stride_b, [batch, k, n])?;
        let c = Matrix::new(c, c_type, false, ldc, stride_c, [batch, m, n])?;
        // SAFETY: the caller guarantees the types of the factors.
        let (alpha, beta) = unsafe { (factor(alpha, compute), factor(beta, compute)) };
        let options = Matmul::new().scaled(alpha, beta).tf32(compute == Compute::CUBLAS_COMPUTE_32F_FAST_TF32);
        multiply(&stream, &options, &a, &b, &c)
    }

    fn multiply(stream: &CudaStream, options: &Matmul<'_>, a: &Matrix, b: &Matrix, c: &Matrix) -> Result<(), CublasError> {
        let gpu = &stream.context().gpu;
        let [(a_layout, a_bytes), (b_layout, b_bytes), (c_layout, c_bytes)] = [a.layout()?, b.layout()?, c.layout()?];
        let parts = [
            gpu.find_range(a.address, a_bytes, "matrix product: a")?,
            gpu.find_range(b.address, b_bytes, "matrix product: b")?,
            gpu.find_range(c.address, c_bytes, "matrix product: c")?,
        ];
        for part in &parts {
            part.memory.acquire(stream.raw())?;
        }
        let [a_part, b_part, c_part] = &parts;
        let a = View::of_bytes(a_part.slice()?, a.dtype, a_layout)?;
        let b = View::of_bytes(b_part.slice()?, b.dtype, b_layout)?;
        // SAFETY: nothing else uses the result, as the caller of the only caller guarantees.
        let mut c = ViewMut::of_bytes(unsafe { c_part.slice()?.assume_mut() }, c.dtype, c_layout)?;
        Ok(gpu.kernels.matmul(stream.raw(), options, &a, &b, &mut c)?)
    }
}

/// The streams of live handles.
static HANDLES: Mutex<BTreeMap<usize, Arc<CudaStream>>> = Mutex::new(BTreeMap::new());

/// A handle, and the stream that its products are queued on.
#[derive(Debug)]
pub struct CudaBlas {
    handle: sys::cublasHandle_t,
    stream: Arc<CudaStream>,
}

// SAFETY: the handle is a number.
unsafe impl Send for CudaBlas {}
// SAFETY: as above.
unsafe impl Sync for CudaBlas {}

impl CudaBlas {
    /// Creates a handle for a stream.
    pub fn new(stream: Arc<CudaStream>) -> Result<CudaBlas, CublasError> {
        // Numbers of dropped handles are not used again.
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        lock(&HANDLES).insert(number, stream.clone());
        Ok(CudaBlas { handle: std::ptr::without_provenance_mut(number), stream })
    }

    /// Returns the handle, for [`result::gemm_strided_batched_ex`].
    pub fn handle(&self) -> &sys::cublasHandle_t {
        &self.handle
    }

    fn stream_of(handle: sys::cublasHandle_t) -> Option<Arc<CudaStream>> {
        lock(&HANDLES).get(&handle.addr()).cloned()
    }
}

impl Drop for CudaBlas {
    fn drop(&mut self) {
        let stream = lock(&HANDLES).remove(&self.handle.addr());
        // Dropped without the lock.
        drop(stream);
    }
}

/// A matrix product: `c = alpha * a * b + beta * c`, with matrices stored by columns.
#[derive(Debug, Clone, Copy)]
pub struct GemmConfig<T> {
    /// How `a` is stored.
    pub transa: sys::cublasOperation_t,
    /// How `b` is stored.
    pub transb: sys::cublasOperation_t,
    /// Rows of `a` and `c`.
    pub m: c_int,
    /// Columns of `b` and `c`.
    pub n: c_int,
    /// Columns of `a`, rows of `b`.
    pub k: c_int,
    /// Factor of the product.
    pub alpha: T,
    /// Elements from one column of `a` to the next (rows, if it is transposed).
    pub lda: c_int,
    /// The same of `b`.
    pub ldb: c_int,
    /// Factor of the previous `c`.
    pub beta: T,
    /// The same of `c`.
    pub ldc: c_int,
}

/// A batch of products.
#[derive(Debug, Clone, Copy)]
pub struct StridedBatchedConfig<T> {
    /// Each product.
    pub gemm: GemmConfig<T>,
    /// The number of products.
    pub batch_size: c_int,
    /// Elements from one `a` to the next; 0 repeats it.
    pub stride_a: c_longlong,
    /// The same of `b`.
    pub stride_b: c_longlong,
    /// The same of `c`.
    pub stride_c: c_longlong,
}

/// Matrix products of elements of a type.
pub trait Gemm<T> {
    /// Computes a product.
    ///
    /// # Safety
    /// None is needed: the matrices are checked against their memory. The real crate's function is unsafe.
    unsafe fn gemm<A: DevicePtr<T>, B: DevicePtr<T>, C: DevicePtrMut<T>>(
        &self,
        config: GemmConfig<T>,
        a: &A,
        b: &B,
        c: &mut C,
    ) -> Result<(), CublasError>;

    /// Computes a batch of products.
    ///
    /// # Safety
    /// As [`Gemm::gemm`].
    unsafe fn gemm_strided_batched<A: DevicePtr<T>, B: DevicePtr<T>, C: DevicePtrMut<T>>(
        &self,
        config: StridedBatchedConfig<T>,
        a: &A,
        b: &B,
        c: &mut C,
    ) -> Result<(), CublasError>;
}

macro_rules! products {
    ($($ty:ty: $data:ident, $compute:ident, $factor:ty, $convert:expr;)*) => { $(
        impl Gemm<$ty> for CudaBlas {
            unsafe fn gemm<A: DevicePtr<$ty>, B: DevicePtr<$ty>, C: DevicePtrMut<$ty>>(
                &self,
                gemm: GemmConfig<$ty>,
                a: &A,
                b: &B,
                c: &mut C,
            ) -> Result<(), CublasError> {
                let config = StridedBatchedConfig { gemm, batch_size: 1, stride_a: 0, stride_b: 0, stride_c: 0 };
                // SAFETY: as the caller guarantees.
                unsafe { self.gemm_strided_batched(config, a, b, c) }
            }

            unsafe fn gemm_strided_batched<A: DevicePtr<$ty>, B: DevicePtr<$ty>, C: DevicePtrMut<$ty>>(
                &self,
                config: StridedBatchedConfig<$ty>,
                a: &A,
                b: &B,
                c: &mut C,
            ) -> Result<(), CublasError> {
                let (a, _a) = a.device_ptr(&self.stream);
                let (b, _b) = b.device_ptr(&self.stream);
                let (c, _c) = c.device_ptr_mut(&self.stream);
                let convert: fn($ty) -> $factor = $convert;
                let (alpha, beta) = (convert(config.gemm.alpha), convert(config.gemm.beta));
                let (data, compute) = (sys::cudaDataType_t::$data, sys::cublasComputeType_t::$compute);
                let GemmConfig { transa, transb, m, n, k, lda, ldb, ldc, .. } = config.gemm;
                let [alpha, beta] = [&raw const alpha, &raw const beta].map(|factor| factor.cast());
                let [a, b] = [a, b].map(|address| std::ptr::without_provenance(address as usize));
                // SAFETY: the factors are of the type that the sums' type asks for, and `c` is borrowed exclusively.
                unsafe {
                    result::gemm_strided_batched_ex(
                        self.handle, transa, transb, m, n, k, alpha, a, data, lda, config.stride_a, b, data, ldb, config.stride_b, beta,
                        std::ptr::without_provenance_mut(c as usize), data, ldc, config.stride_c, config.batch_size, compute,
                        sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
                    )
                }
            }
        }
    )* };
}
products! {
    f32: CUDA_R_32F, CUBLAS_COMPUTE_32F, f32, |x| x;
    f64: CUDA_R_64F, CUBLAS_COMPUTE_64F, f64, |x| x;
    half::f16: CUDA_R_16F, CUBLAS_COMPUTE_32F, f32, half::f16::to_f32;
    half::bf16: CUDA_R_16BF, CUBLAS_COMPUTE_32F, f32, half::bf16::to_f32;
}
