//! Matrix products on the CPU.

use gemm::Parallelism;

/// A type that matrices are multiplied in.
pub(crate) trait Multiply: Copy {
    const ZERO: Self;
    /// `out = a · b` of m × k and k × n, row by row without gaps.
    fn multiply(a: &[Self], b: &[Self], out: &mut [Self], sizes: [usize; 3]);
}

macro_rules! multiply {
    ($ty:ty) => {
        impl Multiply for $ty {
            const ZERO: $ty = 0.0;

            fn multiply(a: &[$ty], b: &[$ty], out: &mut [$ty], [m, k, n]: [usize; 3]) {
                assert!(a.len() == m * k && b.len() == k * n && out.len() == m * n, "matrices of other sizes");
                let (step, one) = (n as isize, 1);
                let threads = if m * n * k > 1 << 18 { Parallelism::Rayon(0) } else { Parallelism::None };
                // SAFETY: the sizes were checked above, and rows lie `k` or `n` elements apart. Only `out` is written.
                unsafe {
                    gemm::gemm(
                        m,
                        n,
                        k,
                        out.as_mut_ptr(),
                        one,
                        step,
                        false,
                        a.as_ptr(),
                        one,
                        k as isize,
                        b.as_ptr(),
                        one,
                        step,
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
multiply!(f32);
multiply!(f64);
