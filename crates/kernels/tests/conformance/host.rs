//! Tensors on the host, their elements found by index; what must stay as it is around them.

use warpwave_gpu::Buffer;
use warpwave_kernels::{DType, Layout, View, ViewMut};

use crate::common::Random;
use crate::common::values::{Value, decode, draw};
use crate::suite::{Suite, room};

pub struct Host {
    pub dtype: DType,
    pub layout: Layout,
    pub bytes: Vec<u8>,
}

impl Host {
    /// Of elements that `make` makes.
    pub fn of(dtype: DType, layout: Layout, mut make: impl FnMut() -> Vec<u8>) -> Host {
        let bytes = (0..room(&layout, dtype) / dtype.size()).flat_map(|_| make()).collect();
        Host { dtype, layout, bytes }
    }

    pub fn random(dtype: DType, layout: Layout, random: &mut Random) -> Host {
        Host::of(dtype, layout, || draw(dtype, random))
    }

    pub fn place(&self, index: &[usize]) -> usize {
        self.layout.offset() + index.iter().zip(self.layout.strides()).map(|(i, stride)| i * stride).sum::<usize>()
    }

    pub fn element(&self, place: usize) -> &[u8] {
        &self.bytes[place * self.dtype.size()..][..self.dtype.size()]
    }

    pub fn set(&mut self, place: usize, bytes: &[u8]) {
        let size = self.dtype.size();
        self.bytes[place * size..][..size].copy_from_slice(bytes);
    }

    pub fn value(&self, place: usize) -> Value {
        decode(self.dtype, self.element(place))
    }

    pub fn upload(&self, suite: &Suite) -> Buffer<u8> {
        suite.stream.upload(&self.bytes).unwrap()
    }

    pub fn view<'a>(&self, buffer: &'a Buffer<u8>) -> View<'a> {
        View::of_bytes(buffer, self.dtype, self.layout).unwrap()
    }

    pub fn view_mut<'a>(&self, buffer: &'a mut Buffer<u8>) -> ViewMut<'a> {
        ViewMut::of_bytes(buffer, self.dtype, self.layout).unwrap()
    }

    /// Fails unless the memory is as it should be, every byte.
    pub fn must_be(&self, found: &[u8], what: &str) {
        if let Some(at) = self.bytes.iter().zip(found).position(|(a, b)| a != b) {
            let element = at / self.dtype.size();
            let found = decode(self.dtype, &found[element * self.dtype.size()..][..self.dtype.size()]);
            panic!("{what}: the element at {element} is {found:?}, should be {:?}", self.value(element));
        }
    }
}

/// Every index of a shape, in order.
pub fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for size in shape {
        all = all.into_iter().flat_map(|index: Vec<usize>| (0..*size).map(move |i| [&index[..], &[i]].concat())).collect();
    }
    all
}

/// A layout of this shape: contiguous, or one of those that are awkward.
pub fn arranged(name: &str, shape: &[usize], random: &mut Random) -> Layout {
    let contiguous = Layout::contiguous(shape).unwrap();
    let rank = shape.len();
    match name {
        "contiguous" => contiguous,
        "offset" => Layout::new(shape, contiguous.strides(), 1 + random.below(9)).unwrap(),
        // A multiple of packs: rows are further apart than they are long.
        "apart" => {
            let strides: Vec<usize> =
                (0..rank)
                    .map(|d| {
                        if d + 1 == rank { 1 } else { contiguous.strides()[d] + 16 * (rank - d) * shape[d + 1..].iter().product::<usize>() }
                    })
                    .collect();
            Layout::new(shape, &strides, 16).unwrap()
        }
        "transposed" => {
            let transposed: Vec<usize> = shape.iter().rev().copied().collect();
            let strides: Vec<usize> = Layout::contiguous(&transposed).unwrap().strides().iter().rev().copied().collect();
            Layout::new(shape, &strides, random.below(3)).unwrap()
        }
        "every third" => {
            let strides: Vec<usize> = contiguous.strides().iter().map(|stride| stride * 3).collect();
            Layout::new(shape, &strides, random.below(5)).unwrap()
        }
        "repeated" => {
            let mut strides = contiguous.strides().to_vec();
            strides[0] = 0;
            Layout::new(shape, &strides, random.below(5)).unwrap()
        }
        _ => unreachable!(),
    }
}
