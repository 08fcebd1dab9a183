//! General matrix products, by the `gemm` crate.

use gemm::Parallelism;

/// An element type of matrix products.
pub(super) trait Gemm: Copy {
    const ZERO: Self;
    /// `out = a · b` of m × k and k × n, row-major and contiguous.
    fn gemm(a: &[Self], b: &[Self], out: &mut [Self], sizes: [usize; 3]);
}

/// Products of contiguous batches of matrices.
pub(super) fn batched<T: Gemm>(a: &[T], b: &[T], [batches, m, k, n]: [usize; 4]) -> Vec<T> {
    let mut out = vec![T::ZERO; batches * m * n];
    for i in 0..batches {
        T::gemm(&a[i * m * k..(i + 1) * m * k], &b[i * k * n..(i + 1) * k * n], &mut out[i * m * n..(i + 1) * m * n], [m, k, n]);
    }
    out
}

macro_rules! gemm {
    ($ty:ty) => {
        impl Gemm for $ty {
            const ZERO: $ty = 0.0;

            fn gemm(a: &[$ty], b: &[$ty], out: &mut [$ty], [m, k, n]: [usize; 3]) {
                assert!(a.len() == m * k && b.len() == k * n && out.len() == m * n, "slice lengths do not match the matrix sizes");
                let (stride, one) = (n as isize, 1);
                let threads = if m * n * k > 1 << 18 { Parallelism::Rayon(0) } else { Parallelism::None };
                // SAFETY: the sizes were checked above, and rows are `k` or `n` elements apart. Only `out` is written.
                unsafe {
                    gemm::gemm(
                        m,
                        n,
                        k,
                        out.as_mut_ptr(),
                        one,
                        stride,
                        false,
                        a.as_ptr(),
                        one,
                        k as isize,
                        b.as_ptr(),
                        one,
                        stride,
                        0.0,
                        1.0,
                        false,
                        false,
                        false,
                        threads,
                    );
                }
            }
        }
    };
}
gemm!(f32);
gemm!(f64);
