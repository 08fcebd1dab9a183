//! Views with values of their own: drawn, uploaded, and looked at afterwards.

use warpwave_gpu::{Buffer, Stream};
use warpwave_kernels::{DType, Layout, View, ViewMut};

use crate::common::Random;
use crate::common::values::{Value, decode, encode, round, ulp};
use crate::suite::{places, room};

/// Memory with a layout, on the host and on a device.
pub struct Field {
    pub dtype: DType,
    pub layout: Layout,
    pub bytes: Vec<u8>,
    pub buffer: Buffer<u8>,
}

impl Field {
    /// Values that `draw` gives, in the memory between the elements too.
    pub fn drawn(stream: &Stream, dtype: DType, layout: Layout, mut draw: impl FnMut() -> f64) -> Field {
        let mut element = || match dtype.is_integer() {
            true => encode(dtype, Value::Int(draw() as i128)),
            false => encode(dtype, Value::Real(round(dtype, draw()))),
        };
        let bytes: Vec<u8> = (0..room(&layout, dtype) / dtype.size()).flat_map(|_| element()).collect();
        let buffer = stream.upload(&bytes).unwrap();
        Field { dtype, layout, bytes, buffer }
    }

    /// Numbers between -1 and 1 around zero, mostly.
    pub fn random(stream: &Stream, dtype: DType, layout: Layout, random: &mut Random) -> Field {
        Field::drawn(stream, dtype, layout, || random.unit() * 4.0 - 2.0)
    }

    /// These values, in the order of the indices.
    pub fn of(stream: &Stream, dtype: DType, layout: Layout, values: &[f64]) -> Field {
        let mut field = Field::drawn(stream, dtype, layout, || 0.0);
        for (place, value) in places(&layout).into_iter().zip(values) {
            let value = if dtype.is_integer() { Value::Int(*value as i128) } else { Value::Real(round(dtype, *value)) };
            field.bytes[place * dtype.size()..][..dtype.size()].copy_from_slice(&encode(dtype, value));
        }
        field.buffer = stream.upload(&field.bytes).unwrap();
        field
    }

    pub fn view(&self) -> View<'_> {
        View::of_bytes(&self.buffer, self.dtype, self.layout).unwrap()
    }

    pub fn view_mut(&mut self) -> ViewMut<'_> {
        ViewMut::of_bytes(&mut self.buffer, self.dtype, self.layout).unwrap()
    }

    fn numbers(&self, bytes: &[u8]) -> Vec<f64> {
        let size = self.dtype.size();
        let number = |place: usize| match decode(self.dtype, &bytes[place * size..][..size]) {
            Value::Real(value) => value,
            Value::Int(value) => value as f64,
        };
        places(&self.layout).into_iter().map(number).collect()
    }

    /// The values as they were uploaded, in the order of the indices.
    pub fn values(&self) -> Vec<f64> {
        self.numbers(&self.bytes)
    }

    /// The values that the device has now. Beside the elements nothing may have changed.
    pub fn found(&self, stream: &Stream, what: &str) -> Vec<f64> {
        let mut bytes = stream.download(&self.buffer).unwrap();
        let numbers = self.numbers(&bytes);
        for place in places(&self.layout) {
            let at = place * self.dtype.size()..(place + 1) * self.dtype.size();
            bytes[at.clone()].copy_from_slice(&self.bytes[at]);
        }
        assert!(bytes == self.bytes, "{what}: something beside the result was written");
        numbers
    }
}

/// The share of what a result may be off: half a unit of its type's last place, and `error`.
pub fn share_of(dtype: DType, found: f64, wanted: f64, error: f64) -> f64 {
    if found == round(dtype, wanted) || (found.is_nan() && wanted.is_nan()) {
        return 0.0;
    }
    let share = (found - wanted).abs() / (0.5 * ulp(dtype, wanted) + error);
    if share.is_nan() { f64::INFINITY } else { share }
}

/// The largest share of all; none may be above 1.
pub fn worst_of(dtype: DType, what: &str, found: &[f64], wanted: impl Iterator<Item = (f64, f64)>) -> f64 {
    let mut worst: f64 = 0.0;
    let mut count = 0;
    for (i, (found, (wanted, error))) in found.iter().zip(wanted).enumerate() {
        let share = share_of(dtype, *found, wanted, error);
        assert!(share <= 1.0, "{what}: element {i} is {found}, should be {wanted}: {share} of the tolerance");
        worst = worst.max(share);
        count += 1;
    }
    assert_eq!(count, found.len(), "{what}");
    worst
}

/// A layout of these sizes, in one of some ways: in order, with the second and third dimension exchanged, with gaps, or odd.
pub fn arranged(shape: &[usize], random: &mut Random) -> Layout {
    let plain = Layout::contiguous(shape).unwrap();
    match random.below(5) {
        0 | 1 => plain,
        2 if shape.len() == 4 => Layout::contiguous(&[shape[0], shape[2], shape[1], shape[3]]).unwrap().transpose(1, 2).unwrap(),
        3 => {
            // Gaps that leave all as aligned as before.
            let mut strides = vec![1; shape.len()];
            for d in (1..shape.len()).rev() {
                strides[d - 1] = (strides[d] * shape[d].max(1)).next_multiple_of(16) + 16 * random.below(2);
            }
            Layout::new(shape, &strides, 16 * random.below(3)).unwrap()
        }
        _ => {
            let mut strides = vec![1 + random.below(2); shape.len()];
            for d in (1..shape.len()).rev() {
                strides[d - 1] = strides[d] * shape[d].max(1) + random.below(3);
            }
            Layout::new(shape, &strides, random.below(7)).unwrap()
        }
    }
}
