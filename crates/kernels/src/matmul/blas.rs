//! The vendors' BLAS libraries, loaded at run time: cuBLASLt and rocBLAS.
//!
//! Both are column-major: `c (m × n) = alpha · a (m × k) · b (k × n) + beta · c`.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use warpwave_gpu::library::{Library, Search, python_folders, versioned_folders};
use warpwave_gpu::{Device, Handle, Vendor, rocm_library_folders};

use crate::dtype::DType;

/// A matrix: whether it is transposed, its leading dimension, and its batch stride.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Matrix {
    pub transposed: bool,
    pub leading: u64,
    pub step: u64,
    /// The alignment of the address.
    pub alignment: u32,
}

/// A library epilogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Epilogue {
    /// A vector added to each column.
    pub bias: bool,
    pub relu: bool,
    /// tanh approximation.
    pub gelu: bool,
}

/// A product without addresses and factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// Type of `a` and `b`; `u8` stands for signed bytes.
    pub dtype: DType,
    pub out: DType,
    pub tf32: bool,
    pub size: [u64; 3],
    pub a: Matrix,
    pub b: Matrix,
    pub c: Matrix,
    pub batches: u64,
    pub epilogue: Epilogue,
}

/// Addresses of the operands, and the factors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pointers {
    pub a: u64,
    pub b: u64,
    pub c: u64,
    pub bias: u64,
    pub alpha: f64,
    pub beta: f64,
    pub workspace: u64,
}

/// Workspace of a product, in bytes.
pub(crate) const WORKSPACE: usize = 32 << 20;

/// Why a library did not compute a product: unsupported, or a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoSuchProduct,
    Failed { call: &'static str, code: c_int },
}

fn checked(call: &'static str, code: c_int) -> Result<(), Refusal> {
    if code == 0 { Ok(()) } else { Err(Refusal::Failed { call, code }) }
}

macro_rules! functions {
    ($table:ident { $( $name:ident = $symbol:literal ( $($ty:ty),* ); )* }) => {
        /// The library's functions; all return a status.
        #[derive(Clone, Copy)]
        pub(crate) struct $table {
            $( $name: unsafe extern "C" fn($($ty),*) -> c_int, )*
        }

        impl $table {
            /// The symbols, each with the sizes of its parameters.
            #[cfg(test)]
            const ROWS: &'static [(&'static str, &'static [usize])] = &[$( ($symbol, &[$( size_of::<$ty>() ),*]) ),*];

            fn of_library(library: &Library, what: &str) -> warpwave_gpu::Result<$table> {
                let missing = |symbol| warpwave_gpu::Error::MissingSymbol { symbol, library: what.to_owned() };
                $( let $name = library.symbol($symbol).ok_or_else(|| missing($symbol))?; )*
                Ok($table {
                    // SAFETY: the library's header fixes the signature of the function of this name.
                    $( $name: unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($ty),*) -> c_int>($name) }, )*
                })
            }
        }
    };
}

functions!(LtFunctions {
    create = "cublasLtCreate" (*mut Handle);
    describe = "cublasLtMatmulDescCreate" (*mut Handle, c_int, c_int);
    set = "cublasLtMatmulDescSetAttribute" (Handle, c_int, *const c_void, usize);
    forget = "cublasLtMatmulDescDestroy" (Handle);
    layout = "cublasLtMatrixLayoutCreate" (*mut Handle, c_int, u64, u64, i64);
    set_layout = "cublasLtMatrixLayoutSetAttribute" (Handle, c_int, *const c_void, usize);
    forget_layout = "cublasLtMatrixLayoutDestroy" (Handle);
    prefer = "cublasLtMatmulPreferenceCreate" (*mut Handle);
    set_preference = "cublasLtMatmulPreferenceSetAttribute" (Handle, c_int, *const c_void, usize);
    forget_preference = "cublasLtMatmulPreferenceDestroy" (Handle);
    choose = "cublasLtMatmulAlgoGetHeuristic" (Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut Choice, *mut c_int);
    multiply = "cublasLtMatmul" (Handle, Handle, *const c_void, u64, Handle, u64, Handle, *const c_void, u64, Handle, u64, Handle,
        *const Choice, u64, usize, Handle);
});

functions!(RocFunctions {
    create = "rocblas_create_handle" (*mut Handle);
    set_stream = "rocblas_set_stream" (Handle, Handle);
    set_workspace = "rocblas_set_workspace" (Handle, u64, usize);
    multiply = "rocblas_gemm_strided_batched_ex" (Handle, c_int, c_int, i32, i32, i32, *const c_void, u64, c_int, i32, i64, u64, c_int, i32,
        i64, *const c_void, u64, c_int, i32, i64, u64, c_int, i32, i64, i32, c_int, c_int, i32, u32);
});

/// `cublasLtMatmulHeuristicResult_t`; it starts with the algorithm.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Choice {
    algorithm: [u64; 8],
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// Constants of `cublasLt.h`, `cublas_api.h` and `library_types.h`.
mod lt {
    use super::{DType, c_int};

    pub const TRANSPOSE_A: c_int = 3;
    pub const TRANSPOSE_B: c_int = 4;
    pub const EPILOGUE: c_int = 7;
    pub const BIAS_POINTER: c_int = 8;
    pub const BATCHES: c_int = 5;
    pub const STEP: c_int = 6;
    pub const MOST_WORKSPACE: c_int = 1;
    pub const REDUCTIONS: c_int = 3;
    /// Partial sums are reduced in the accumulator's type, not in the result's.
    pub const OF_SUMS: u32 = 2;
    /// For `a`, `b`, `c` and the result.
    pub const ALIGNMENTS: [c_int; 4] = [5, 6, 7, 8];
    pub const RELU: u32 = 2;
    pub const BIAS: u32 = 4;
    pub const GELU: u32 = 32;
    pub const NOTHING: u32 = 1;
    pub const OP_N: c_int = 0;
    pub const OP_T: c_int = 1;
    pub const COMPUTE_32F: c_int = 68;
    pub const COMPUTE_TF32: c_int = 77;
    pub const COMPUTE_64F: c_int = 70;
    pub const COMPUTE_32I: c_int = 72;

    pub fn datatype(dtype: DType) -> Option<c_int> {
        Some(match dtype {
            DType::F32 => 0,
            DType::F64 => 1,
            DType::F16 => 2,
            DType::U8 => 3,
            DType::I32 => 10,
            DType::Bf16 => 14,
            _ => return None,
        })
    }
}

/// Constants of `rocblas-types.h`.
mod roc {
    use super::{DType, c_int};

    pub const OP_N: c_int = 111;
    pub const OP_T: c_int = 112;
    pub const STANDARD: c_int = 0;

    pub fn datatype(dtype: DType) -> Option<c_int> {
        Some(match dtype {
            DType::F16 => 150,
            DType::F32 => 151,
            DType::F64 => 152,
            DType::U8 => 160,
            DType::I32 => 162,
            DType::Bf16 => 168,
            _ => return None,
        })
    }
}

/// A library handle for one device.
pub(crate) enum Blas {
    Lt { functions: LtFunctions, handle: Lent, plans: Mutex<HashMap<Shape, Option<LtPlan>>> },
    Roc { functions: RocFunctions, handle: Mutex<Lent> },
}

// SAFETY: cuBLASLt's handle may be used from any thread; rocBLAS's is used by one at a time. So are the plans.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

type Create = unsafe extern "C" fn(*mut Handle) -> c_int;

/// A library handle for a device, used by one [`Blas`]. It is never destroyed, as cuBLASLt would synchronize the device, which ends every
/// stream capture on it, of other threads too. It is reused instead.
pub(crate) struct Lent {
    raw: Handle,
    create: Create,
    device: String,
}

/// Unused handles.
static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());

struct Idle(Handle, Create, String);

// SAFETY: handles may be used from any thread, one at a time.
unsafe impl Send for Idle {}

impl Lent {
    /// Creates or reuses a handle for the device of this name, which must be current.
    fn new(create: Create, device: &str) -> Result<Lent, c_int> {
        let device = device.to_owned();
        let mut idle = held(&IDLE);
        let known = idle.iter().position(|Idle(_, of, on)| std::ptr::fn_addr_eq(*of, create) && *on == device);
        if let Some(known) = known {
            let raw = idle.swap_remove(known).0;
            return Ok(Lent { raw, create, device });
        }
        drop(idle);
        let mut raw: Handle = std::ptr::null_mut();
        // SAFETY: the output outlives the call.
        match unsafe { create(&mut raw) } {
            0 => Ok(Lent { raw, create, device }),
            code => Err(code),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        held(&IDLE).push(Idle(self.raw, self.create, std::mem::take(&mut self.device)));
    }
}

/// The descriptors of a shape and the algorithm cuBLASLt chose.
pub(crate) struct LtPlan {
    description: Handle,
    layouts: [Handle; 3],
    choice: Choice,
}

/// Where to search for a vendor's library.
pub(crate) fn search(vendor: Vendor) -> Search {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    match vendor {
        Vendor::Nvidia => {
            let mut folders = versioned_folders("/usr/local", "cuda", "lib64");
            folders.extend(
                python_folders().into_iter().flat_map(|folder| ["cu13/lib", "cublas/lib"].map(|tail| folder.join("nvidia").join(tail))),
            );
            Search {
                what: "cuBLASLt",
                variable: "WARPWAVE_CUBLASLT_LIB",
                names: names(&["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"]),
                folders,
            }
        }
        Vendor::Amd => Search {
            what: "rocBLAS",
            variable: "WARPWAVE_ROCBLAS_LIB",
            names: names(&["librocblas.so.5", "librocblas.so.4", "librocblas.so.3", "librocblas.so.0", "librocblas.so"]),
            folders: rocm_library_folders(),
        },
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Blas {
    pub fn open(device: &Device) -> warpwave_gpu::Result<Blas> {
        let (driver, search) = (device.driver(), search(device.driver().vendor()));
        // A vendor's library needs the vendor's driver; a replacement is named by the variable.
        if !driver.library().is_absolute() && std::env::var_os(search.variable).is_none_or(|value| value.is_empty()) {
            let reason = format!("no BLAS library is available for {}", driver.label());
            return Err(warpwave_gpu::Error::NotAvailable { library: search.what.to_owned(), tried: Vec::new(), reason });
        }
        let library = Library::open(&search)?;
        device.make_current()?;
        let failed = |code| {
            let (library, reason) = (search.what.to_owned(), format!("cannot create a BLAS handle: error {code}"));
            warpwave_gpu::Error::NotAvailable { library, tried: Vec::new(), reason }
        };
        match driver.vendor() {
            Vendor::Nvidia => {
                let functions = LtFunctions::of_library(&library, search.what)?;
                let handle = Lent::new(functions.create, device.name()).map_err(failed)?;
                Ok(Blas::Lt { functions, handle, plans: Mutex::default() })
            }
            Vendor::Amd => {
                let functions = RocFunctions::of_library(&library, search.what)?;
                let handle = Lent::new(functions.create, device.name()).map_err(failed)?;
                Ok(Blas::Roc { functions, handle: Mutex::new(handle) })
            }
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Blas::Lt { .. } => "cuBLASLt",
            Blas::Roc { .. } => "rocBLAS",
        }
    }

    /// Whether the library supports an epilogue.
    pub fn has(&self, epilogue: Epilogue) -> bool {
        matches!(self, Blas::Lt { .. }) || epilogue == Epilogue::default()
    }

    /// Queues a product.
    ///
    /// # Safety
    /// The device is current and owns the stream, and the matrices and [`WORKSPACE`] bytes are in its memory, of which `c` and the
    /// workspace may be written.
    pub unsafe fn multiply(&self, stream: Handle, shape: &Shape, pointers: Pointers) -> Result<(), Refusal> {
        match self {
            Blas::Lt { functions, handle, plans } => {
                let mut plans = held(plans);
                // Shapes repeat; a program with ever new ones must not exhaust the memory.
                if plans.len() >= 4096 {
                    plans.drain().filter_map(|(_, plan)| plan).for_each(|plan| functions.drop_plan(&plan));
                }
                let plan = match plans.get(shape) {
                    Some(plan) => plan,
                    None => {
                        let plan = functions.plan(handle.raw, shape)?;
                        plans.entry(*shape).or_insert(plan)
                    }
                };
                let plan = plan.as_ref().ok_or(Refusal::NoSuchProduct)?;
                // SAFETY: as promised by the caller; the lock makes this call the only user of the descriptors.
                unsafe { functions.multiply(handle.raw, plan, stream, shape, pointers) }
            }
            // SAFETY: as promised by the caller; the lock makes this call the only user of the handle.
            Blas::Roc { functions, handle } => unsafe { functions.multiply(held(handle).raw, stream, shape, pointers) },
        }
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        match self {
            Blas::Lt { functions, plans, .. } => {
                held(plans).drain().filter_map(|(_, plan)| plan).for_each(|plan| functions.drop_plan(&plan));
            }
            // SAFETY: the handle is live. The stream it was given may be destroyed before its next use.
            Blas::Roc { functions, handle } => _ = unsafe { (functions.set_stream)(held(handle).raw, std::ptr::null_mut()) },
        }
    }
}

/// Factors in the accumulator's type.
#[derive(Clone, Copy)]
#[repr(C)]
union Factor {
    float: f32,
    double: f64,
    int: i32,
}

fn factor(dtype: DType, value: f64) -> Factor {
    match dtype {
        DType::F64 => Factor { double: value },
        DType::U8 => Factor { int: value as i32 },
        _ => Factor { float: value as f32 },
    }
}

/// Runs a closure when dropped.
struct Guard<F: FnMut()>(F);
impl<F: FnMut()> Drop for Guard<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl LtFunctions {
    /// Returns `None` if the library does not support the product.
    fn plan(&self, handle: Handle, shape: &Shape) -> Result<Option<LtPlan>, Refusal> {
        let Shape { dtype, out, size: [m, n, k], a, b, c, batches, epilogue, .. } = *shape;
        let (Some(input), Some(output)) = (lt::datatype(dtype), lt::datatype(out)) else { return Ok(None) };
        let (compute, scale) = match dtype {
            DType::F64 => (lt::COMPUTE_64F, DType::F64),
            DType::U8 => (lt::COMPUTE_32I, DType::I32),
            DType::F32 if shape.tf32 => (lt::COMPUTE_TF32, DType::F32),
            _ => (lt::COMPUTE_32F, DType::F32),
        };
        let Some(scale) = lt::datatype(scale) else { return Ok(None) };
        let mut plan = LtPlan { description: std::ptr::null_mut(), layouts: [std::ptr::null_mut(); 3], choice: Choice::default() };
        // Destroys what was created unless everything succeeded.
        let outcome = (|| -> Result<bool, Refusal> {
            // SAFETY: every output outlives its call, every value has the stated size, and the handles are live.
            unsafe {
                checked("cublasLtMatmulDescCreate", (self.describe)(&mut plan.description, compute, scale))?;
                let set = |attribute, value: *const c_void, size| {
                    checked("cublasLtMatmulDescSetAttribute", (self.set)(plan.description, attribute, value, size))
                };
                for (attribute, transposed) in [(lt::TRANSPOSE_A, a.transposed), (lt::TRANSPOSE_B, b.transposed)] {
                    let op = if transposed { lt::OP_T } else { lt::OP_N };
                    set(attribute, (&raw const op).cast(), size_of::<c_int>())?;
                }
                let after = match epilogue {
                    Epilogue { relu: true, .. } => lt::RELU,
                    Epilogue { gelu: true, .. } => lt::GELU,
                    _ => 0,
                } | if epilogue.bias { lt::BIAS } else { 0 };
                let after = if after == 0 { lt::NOTHING } else { after };
                set(lt::EPILOGUE, (&raw const after).cast(), size_of::<u32>())?;
                let sides = |matrix: Matrix, rows: u64, columns: u64| if matrix.transposed { (columns, rows) } else { (rows, columns) };
                for (layout, (matrix, ty, (rows, columns))) in
                    plan.layouts.iter_mut().zip([(a, input, sides(a, m, k)), (b, input, sides(b, k, n)), (c, output, (m, n))])
                {
                    checked("cublasLtMatrixLayoutCreate", (self.layout)(layout, ty, rows, columns, matrix.leading as i64))?;
                    if batches > 1 {
                        let (count, step) = (batches as i32, matrix.step as i64);
                        let set = |attribute, value: *const c_void, size| {
                            checked("cublasLtMatrixLayoutSetAttribute", (self.set_layout)(*layout, attribute, value, size))
                        };
                        set(lt::BATCHES, (&raw const count).cast(), size_of::<i32>())?;
                        set(lt::STEP, (&raw const step).cast(), size_of::<i64>())?;
                    }
                }
                let mut preference: Handle = std::ptr::null_mut();
                checked("cublasLtMatmulPreferenceCreate", (self.prefer)(&mut preference))?;
                let _forget = Guard(|| _ = (self.forget_preference)(preference));
                let set = |attribute, value: *const c_void, size| {
                    checked("cublasLtMatmulPreferenceSetAttribute", (self.set_preference)(preference, attribute, value, size))
                };
                let workspace = WORKSPACE;
                set(lt::MOST_WORKSPACE, (&raw const workspace).cast(), size_of::<usize>())?;
                let reductions = lt::OF_SUMS;
                set(lt::REDUCTIONS, (&raw const reductions).cast(), size_of::<u32>())?;
                for (attribute, matrix) in lt::ALIGNMENTS.into_iter().zip([a, b, c, c]) {
                    set(attribute, (&raw const matrix.alignment).cast(), size_of::<u32>())?;
                }
                let [la, lb, lc] = plan.layouts;
                let mut count = 0;
                let code = (self.choose)(handle, plan.description, la, lb, lc, lc, preference, 1, &mut plan.choice, &mut count);
                // An unsupported product is a status, not a failure.
                Ok(code == 0 && count > 0 && plan.choice.state == 0)
            }
        })();
        if outcome != Ok(true) {
            self.drop_plan(&plan);
        }
        outcome.map(|there| there.then_some(plan))
    }

    fn drop_plan(&self, plan: &LtPlan) {
        // SAFETY: created once each, and not used afterwards.
        unsafe {
            if !plan.description.is_null() {
                (self.forget)(plan.description);
            }
            for layout in plan.layouts.into_iter().filter(|layout| !layout.is_null()) {
                (self.forget_layout)(layout);
            }
        }
    }

    /// # Safety
    /// As [`Blas::multiply`].
    unsafe fn multiply(&self, handle: Handle, plan: &LtPlan, stream: Handle, shape: &Shape, pointers: Pointers) -> Result<(), Refusal> {
        let LtPlan { description, layouts: [a, b, c], choice } = plan;
        let (alpha, beta) = (factor(shape.dtype, pointers.alpha), factor(shape.dtype, pointers.beta));
        // SAFETY: the handles are live, the factors outlive the call, and the memory is as promised by the caller.
        unsafe {
            if shape.epilogue.bias {
                let set = (self.set)(*description, lt::BIAS_POINTER, (&raw const pointers.bias).cast(), size_of::<u64>());
                checked("cublasLtMatmulDescSetAttribute", set)?;
            }
            let (alpha, beta) = ((&raw const alpha).cast(), (&raw const beta).cast());
            let code = (self.multiply)(
                handle,
                *description,
                alpha,
                pointers.a,
                *a,
                pointers.b,
                *b,
                beta,
                pointers.c,
                *c,
                pointers.c,
                *c,
                choice,
                pointers.workspace,
                WORKSPACE,
                stream,
            );
            checked("cublasLtMatmul", code)
        }
    }
}

impl RocFunctions {
    /// # Safety
    /// As [`Blas::multiply`], and nobody else uses the handle.
    unsafe fn multiply(&self, handle: Handle, stream: Handle, shape: &Shape, pointers: Pointers) -> Result<(), Refusal> {
        let Shape { dtype, out, size, a, b, c, batches, epilogue, .. } = *shape;
        let types = roc::datatype(dtype).zip(roc::datatype(out));
        let sum = roc::datatype(match dtype {
            DType::F64 => DType::F64,
            DType::U8 => DType::I32,
            _ => DType::F32,
        });
        let int = |value: u64| i32::try_from(value).map_err(|_| Refusal::NoSuchProduct);
        let (Some((input, output)), Some(sum), true) = (types, sum, epilogue == Epilogue::default()) else {
            return Err(Refusal::NoSuchProduct);
        };
        let [m, n, k] = [int(size[0])?, int(size[1])?, int(size[2])?];
        let [lda, ldb, ldc] = [int(a.leading)?, int(b.leading)?, int(c.leading)?];
        let [step_a, step_b, step_c] = [a, b, c].map(|matrix| matrix.step as i64);
        let [op_a, op_b] = [a, b].map(|matrix| if matrix.transposed { roc::OP_T } else { roc::OP_N });
        let (alpha, beta) = (factor(dtype, pointers.alpha), factor(dtype, pointers.beta));
        let (alpha, beta) = ((&raw const alpha).cast(), (&raw const beta).cast());
        let Pointers { a, b, c, workspace, .. } = pointers;
        let batches = int(batches)?;
        // SAFETY: the handle is live and used only by this call, the factors outlive the call, and the memory is as promised by the caller.
        unsafe {
            checked("rocblas_set_stream", (self.set_stream)(handle, stream))?;
            checked("rocblas_set_workspace", (self.set_workspace)(handle, workspace, WORKSPACE))?;
            let code = (self.multiply)(
                handle,
                op_a,
                op_b,
                m,
                n,
                k,
                alpha,
                a,
                input,
                lda,
                step_a,
                b,
                input,
                ldb,
                step_b,
                beta,
                c,
                output,
                ldc,
                step_c,
                c,
                output,
                ldc,
                step_c,
                batches,
                sum,
                roc::STANDARD,
                0,
                0,
            );
            // rocblas_status_not_implemented
            if code == 2 { Err(Refusal::NoSuchProduct) } else { checked("rocblas_gemm_strided_batched_ex", code) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use super::*;

    #[test]
    fn a_handle_goes_to_the_next_of_its_device() {
        unsafe extern "C" fn create(out: *mut Handle) -> c_int {
            static MADE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
            let number = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            // SAFETY: the caller's output.
            unsafe { out.write(std::ptr::without_provenance_mut(number)) };
            0
        }
        let lent = |device: &str| Lent::new(create, device).unwrap();
        let number = |lent: &Lent| lent.raw.addr();
        let (first, second) = (lent("one"), lent("one"));
        assert_eq!((number(&first), number(&second)), (1, 2));
        drop(first);
        assert_eq!(number(&lent("other")), 3);
        assert_eq!(number(&lent("one")), 1);
    }

    /// Compares parameter sizes and constants with the vendor's header, through the C compiler.
    fn agrees(header: &str, prologue: &str, includes: &[PathBuf], rows: &[(&str, &[usize])], numbers: &[(&str, i64)]) {
        let mut text = format!(
            "{prologue}\n#include <{header}>\n\
             template <class R, class... A, unsigned long N> constexpr bool fits(R (*)(A...), const unsigned long (&wanted)[N]) {{\n\
             const unsigned long sizes[] = {{sizeof(A)...}};\n\
             if (sizeof...(A) != N || sizeof(R) != 4) return false;\n\
             for (unsigned long i = 0; i < N; ++i) if (sizes[i] != wanted[i]) return false;\n\
             return true;\n}}\n"
        );
        for (i, (symbol, sizes)) in rows.iter().enumerate() {
            let sizes = sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            writeln!(text, "constexpr unsigned long s{i}[] = {{{sizes}}};\nstatic_assert(fits(&{symbol}, s{i}), \"{symbol}\");").unwrap();
        }
        for (name, number) in numbers {
            writeln!(text, "static_assert((long)({name}) == {number}, \"{name}\");").unwrap();
        }
        let file = std::env::temp_dir().join(format!("warpwave-{}-{}.cpp", header.replace('/', "-"), std::process::id()));
        std::fs::write(&file, text).unwrap();
        let mut compilers = ["g++", "clang++", "c++", "clang++-19", "clang-19"].into_iter().map(|compiler| {
            let mut command = Command::new(compiler);
            command.args(["-std=c++17", "-fsyntax-only", "-w", "-x", "c++", "-D__HIP_PLATFORM_AMD__"]);
            includes.iter().for_each(|include| _ = command.arg("-I").arg(include));
            command.arg(&file).output()
        });
        let output = compilers.find_map(Result::ok);
        std::fs::remove_file(&file).unwrap();
        let output = output.expect("no C++ compiler found");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        eprintln!("{header}: {} functions and {} numbers agree", rows.len(), numbers.len());
    }

    fn folder_of(header: &str, folders: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
        folders.into_iter().find(|folder: &PathBuf| folder.join(header).exists())
    }

    #[test]
    #[ignore = "needs cublasLt.h, part of a large package (pip install nvidia-cublas-cu12 nvidia-cuda-nvcc-cu12)"]
    fn constants_and_signatures_match_cublaslt() {
        let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let wheels = || {
            python_folders().into_iter().flat_map(|f| ["cu13", "cublas", "cuda_runtime"].map(|p| f.join("nvidia").join(p).join("include")))
        };
        let usual = || versioned_folders("/usr/local", "cuda", "include").into_iter().chain(wheels());
        let lt = folder_of("cublasLt.h", named("WARPWAVE_CUBLAS_INCLUDE").into_iter().chain(usual()));
        let cuda = folder_of("library_types.h", named("WARPWAVE_CUDA_INCLUDE").into_iter().chain(usual()));
        let (lt, cuda) = (lt.expect("cublasLt.h (pip install nvidia-cublas-cu12)"), cuda.expect("library_types.h"));
        let defines = [&lt, &cuda].iter().any(|folder| folder.join("crt/host_defines.h").exists());
        assert!(defines, "missing: crt/host_defines.h (pip install nvidia-cuda-nvcc-cu12)");
        let number = |dtype| i64::from(lt::datatype(dtype).unwrap());
        let constants = [
            ("CUBLASLT_MATMUL_DESC_TRANSA", i64::from(lt::TRANSPOSE_A)),
            ("CUBLASLT_MATMUL_DESC_TRANSB", i64::from(lt::TRANSPOSE_B)),
            ("CUBLASLT_MATMUL_DESC_EPILOGUE", i64::from(lt::EPILOGUE)),
            ("CUBLASLT_MATMUL_DESC_BIAS_POINTER", i64::from(lt::BIAS_POINTER)),
            ("CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT", i64::from(lt::BATCHES)),
            ("CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET", i64::from(lt::STEP)),
            ("CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES", i64::from(lt::MOST_WORKSPACE)),
            ("CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK", i64::from(lt::REDUCTIONS)),
            ("CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE", i64::from(lt::OF_SUMS)),
            ("CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES", i64::from(lt::ALIGNMENTS[0])),
            ("CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES", i64::from(lt::ALIGNMENTS[1])),
            ("CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES", i64::from(lt::ALIGNMENTS[2])),
            ("CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES", i64::from(lt::ALIGNMENTS[3])),
            ("CUBLASLT_EPILOGUE_DEFAULT", i64::from(lt::NOTHING)),
            ("CUBLASLT_EPILOGUE_RELU", i64::from(lt::RELU)),
            ("CUBLASLT_EPILOGUE_BIAS", i64::from(lt::BIAS)),
            ("CUBLASLT_EPILOGUE_RELU_BIAS", i64::from(lt::RELU | lt::BIAS)),
            ("CUBLASLT_EPILOGUE_GELU", i64::from(lt::GELU)),
            ("CUBLASLT_EPILOGUE_GELU_BIAS", i64::from(lt::GELU | lt::BIAS)),
            ("CUBLAS_OP_N", i64::from(lt::OP_N)),
            ("CUBLAS_OP_T", i64::from(lt::OP_T)),
            ("CUBLAS_COMPUTE_32F", i64::from(lt::COMPUTE_32F)),
            ("CUBLAS_COMPUTE_32F_FAST_TF32", i64::from(lt::COMPUTE_TF32)),
            ("CUBLAS_COMPUTE_64F", i64::from(lt::COMPUTE_64F)),
            ("CUBLAS_COMPUTE_32I", i64::from(lt::COMPUTE_32I)),
            ("CUDA_R_32F", number(DType::F32)),
            ("CUDA_R_64F", number(DType::F64)),
            ("CUDA_R_16F", number(DType::F16)),
            ("CUDA_R_16BF", number(DType::Bf16)),
            ("CUDA_R_8I", number(DType::U8)),
            ("CUDA_R_32I", number(DType::I32)),
            ("sizeof(cublasLtMatmulHeuristicResult_t)", size_of::<Choice>() as i64),
            ("offsetof(cublasLtMatmulHeuristicResult_t, state)", std::mem::offset_of!(Choice, state) as i64),
        ];
        // Its 16-bit types need more headers than the constants do.
        let types = "#define __CUDA_FP16_H__\n#define __CUDA_BF16_H__\nstruct __half { short x; }; struct __nv_bfloat16 { short x; };";
        agrees("cublasLt.h", types, &[lt, cuda], LtFunctions::ROWS, &constants);
    }

    #[test]
    #[ignore = "needs rocblas/rocblas.h, part of a large package (librocblas-dev)"]
    fn constants_and_signatures_match_rocblas() {
        let named = std::env::var_os("WARPWAVE_ROCBLAS_INCLUDE").map(PathBuf::from).into_iter();
        let usual = versioned_folders("/opt", "rocm", "include").into_iter().chain([PathBuf::from("/usr/include")]);
        let folder = folder_of("rocblas/rocblas.h", named.chain(usual)).expect("rocblas/rocblas.h (librocblas-dev)");
        let number = |dtype| i64::from(roc::datatype(dtype).unwrap());
        let constants = [
            ("rocblas_operation_none", i64::from(roc::OP_N)),
            ("rocblas_operation_transpose", i64::from(roc::OP_T)),
            ("rocblas_gemm_algo_standard", i64::from(roc::STANDARD)),
            ("rocblas_status_not_implemented", 2),
            ("rocblas_datatype_f16_r", number(DType::F16)),
            ("rocblas_datatype_f32_r", number(DType::F32)),
            ("rocblas_datatype_f64_r", number(DType::F64)),
            ("rocblas_datatype_bf16_r", number(DType::Bf16)),
            ("rocblas_datatype_i8_r", number(DType::U8)),
            ("rocblas_datatype_i32_r", number(DType::I32)),
        ];
        let hip = Path::new("/usr/include").to_owned();
        agrees("rocblas/rocblas.h", "", &[folder, hip], RocFunctions::ROWS, &constants);
    }
}
