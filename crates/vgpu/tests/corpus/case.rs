//! A kernel of the corpus: its source, its inputs, and its expected outputs.

use bytemuck::Pod;
use warpwave_gpu::Launch;

use super::data::{Elem, ElemType, Tolerance};
use super::rng::Rng;

/// Device facts that a reference may need.
#[derive(Debug, Clone)]
pub struct Gpu {
    /// `gfx90a`, `sm_90`.
    pub arch: String,
    /// Lanes of a wavefront.
    pub wave: usize,
}

type Make = Box<dyn Fn(&mut Rng, &Gpu) -> Run + Send + Sync>;

/// A `__global__` function with its reference.
pub struct Case {
    pub kernel: String,
    /// The file in `corpus/`.
    pub source: &'static str,
    /// The architectures that support it; all if empty.
    pub only: &'static [&'static str],
    pub make: Make,
}

impl Case {
    /// Creates a case from the kernel's name, its file, and the function that creates inputs and expected outputs.
    pub fn new(kernel: impl Into<String>, source: &'static str, make: impl Fn(&mut Rng, &Gpu) -> Run + Send + Sync + 'static) -> Case {
        Case { kernel: kernel.into(), source, only: &[], make: Box::new(make) }
    }

    /// Restricts it to these architectures.
    pub fn only(self, archs: &'static [&'static str]) -> Case {
        Case { only: archs, ..self }
    }

    /// Returns whether an architecture supports the kernel.
    pub fn runs_on(&self, arch: &str) -> bool {
        self.only.is_empty() || self.only.contains(&arch)
    }
}

/// A launch: arguments in the order of the calls below, each buffer with its expected contents.
pub struct Run {
    pub launch: Launch,
    pub args: Vec<Value>,
    /// Module variables, written before the launch.
    pub globals: Vec<(&'static str, Vec<u8>)>,
}

/// An argument.
pub enum Value {
    Scalar(Vec<u8>),
    Buffer { kind: ElemType, len: usize, before: Option<Vec<u8>>, after: Expect },
}

type Judge = Box<dyn Fn(&[u8]) -> Result<(), String> + Send + Sync>;

/// The expected contents of a buffer.
pub enum Expect {
    /// These bytes.
    Exact(Vec<u8>),
    /// Numbers within a tolerance.
    Close(Vec<f64>, Tolerance),
    /// Anything that the function accepts.
    Judged(Judge),
}

impl Run {
    /// A grid of blocks.
    pub fn shape(grid: [u32; 3], block: [u32; 3]) -> Run {
        Run { launch: Launch::new(grid, block), args: Vec::new(), globals: Vec::new() }
    }

    /// One dimension.
    pub fn blocks(grid: usize, block: usize) -> Run {
        Run::shape([grid as u32, 1, 1], [block as u32, 1, 1])
    }

    /// A thread for each of `n` elements, in blocks of 128.
    pub fn flat(n: usize) -> Run {
        Run::blocks(n.div_ceil(128).max(1), 128)
    }

    /// Dynamic shared memory.
    pub fn shared(mut self, bytes: usize) -> Run {
        self.launch.shared = bytes as u32;
        self
    }

    fn push<T: Elem>(mut self, len: usize, before: Option<&[T]>, after: Expect) -> Run {
        let before = before.map(|data| bytemuck::cast_slice(data).to_vec());
        self.args.push(Value::Buffer { kind: T::KIND, len, before, after });
        self
    }

    /// A number or a struct by value.
    pub fn scalar<T: Pod>(mut self, value: T) -> Run {
        self.args.push(Value::Scalar(bytemuck::bytes_of(&value).to_vec()));
        self
    }

    /// Adds the element count, usually the last argument.
    pub fn n(self, n: usize) -> Run {
        self.scalar(n as i32)
    }

    /// Adds an input buffer, which must be unchanged afterwards.
    pub fn input<T: Elem>(self, data: &[T]) -> Run {
        let after = Expect::Exact(bytemuck::cast_slice(data).to_vec());
        self.push(data.len(), Some(data), after)
    }

    /// Adds an output buffer with exact contents.
    pub fn exact<T: Elem>(self, expected: &[T]) -> Run {
        let after = Expect::Exact(bytemuck::cast_slice(expected).to_vec());
        self.push::<T>(expected.len(), None, after)
    }

    /// Adds an output buffer with a tolerance.
    pub fn close<T: Elem>(self, expected: Vec<f64>, tolerance: Tolerance) -> Run {
        self.push::<T>(expected.len(), None, Expect::Close(expected, tolerance))
    }

    /// Adds an in-out buffer with exact contents.
    pub fn update<T: Elem>(self, before: &[T], expected: &[T]) -> Run {
        assert_eq!(before.len(), expected.len());
        let after = Expect::Exact(bytemuck::cast_slice(expected).to_vec());
        self.push(before.len(), Some(before), after)
    }

    /// Adds an in-out buffer with a tolerance.
    pub fn update_close<T: Elem>(self, before: &[T], expected: Vec<f64>, tolerance: Tolerance) -> Run {
        assert_eq!(before.len(), expected.len());
        self.push(before.len(), Some(before), Expect::Close(expected, tolerance))
    }

    /// Adds a buffer that a function judges.
    pub fn judged<T: Elem>(self, before: &[T], judge: impl Fn(&[T]) -> Result<(), String> + Send + Sync + 'static) -> Run {
        let judge = move |bytes: &[u8]| judge(&bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect::<Vec<T>>());
        self.push(before.len(), Some(before), Expect::Judged(Box::new(judge)))
    }

    /// Sets a `__device__` or `__constant__` variable before the launch.
    pub fn global<T: Pod>(mut self, name: &'static str, data: &[T]) -> Run {
        self.globals.push((name, bytemuck::cast_slice(data).to_vec()));
        self
    }
}
