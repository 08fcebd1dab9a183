//! Bad input: an error that says what is wrong, before anything is written.

mod common;

use common::devices;
use half::f16;
use warpwave_gpu::{Buffer, Device, Stream};
use warpwave_jit::Jit;
use warpwave_kernels::{
    Activation, Binary, DType, Error, Kernels, Layout, Matmul, MatmulBackend, Norm, Reduce, Result, Unary, View, ViewMut,
};

fn row(n: usize) -> Layout {
    Layout::contiguous(&[n]).unwrap()
}

fn setting(device: &Device) -> (Kernels, Stream) {
    (Kernels::new(device, &Jit::default()), device.stream().unwrap())
}

/// Elements of a known value, and a check that they still have it.
fn poisoned(stream: &Stream, n: usize) -> Buffer<f32> {
    stream.upload(&vec![-77.0f32; n]).unwrap()
}

fn untouched(stream: &Stream, buffer: &Buffer<f32>) {
    assert!(stream.download(buffer).unwrap().iter().all(|value| *value == -77.0), "something was written");
}

#[test]
fn views_are_bounds_checked() {
    for device in devices() {
        let (_, stream) = setting(&device);
        let mut buffer = poisoned(&stream, 16);
        for layout in [row(17), Layout::rows(3, 4, 7, 0).unwrap(), Layout::rows(2, 8, 8, 1).unwrap(), Layout::new(&[2], &[16], 0).unwrap()]
        {
            let read = View::new(&buffer, layout).unwrap_err();
            assert!(matches!(read, Error::OutOfBounds { len: 16, last, .. } if last >= 16), "{layout:?}: {read}");
            assert!(matches!(ViewMut::new(&mut buffer, layout), Err(Error::OutOfBounds { .. })), "{layout:?}");
        }
        assert!(View::new(&buffer, Layout::rows(2, 8, 8, 0).unwrap()).is_ok());
        assert!(View::new(&buffer, Layout::rows(3, 4, 6, 0).unwrap()).is_ok());
        // A part of the buffer is all there is to its view.
        assert!(matches!(View::new(buffer.slice(4..8).unwrap(), row(5)), Err(Error::OutOfBounds { len: 4, .. })));
        // Of no elements none is out of bounds, nor misaligned.
        assert!(View::new(buffer.slice(16..).unwrap(), row(0)).is_ok());
        let bytes = stream.alloc::<u8>(64).unwrap();
        let odd = bytes.slice(2..).unwrap();
        assert!(matches!(View::of_bytes(odd, DType::F32, row(4)), Err(Error::Misaligned { .. })));
        assert!(View::of_bytes(odd, DType::F16, row(4)).is_ok());
        assert!(View::of_bytes(odd, DType::F32, row(0)).is_ok());
        for dtype in DType::ALL.into_iter().filter(|dtype| !DType::COMPUTE.contains(dtype)) {
            let rejected = View::of_bytes(&bytes, dtype, row(4)).unwrap_err();
            assert!(matches!(rejected, Error::WrongType { found, .. } if found == dtype), "{dtype}: {rejected}");
        }
    }
}

#[test]
fn mutable_views_must_not_repeat_elements() {
    for device in devices() {
        let (_, stream) = setting(&device);
        let mut buffer = poisoned(&stream, 64);
        for layout in
            [row(1).broadcast_to(&[4]).unwrap(), Layout::new(&[4, 4], &[2, 1], 0).unwrap(), Layout::new(&[3, 3], &[1, 1], 0).unwrap()]
        {
            let refused = ViewMut::new(&mut buffer, layout);
            assert!(matches!(refused, Err(Error::BadLayout { .. })), "{layout:?}");
        }
        assert!(ViewMut::new(&mut buffer, Layout::new(&[4, 1, 4], &[1, 0, 5], 0).unwrap()).is_ok());
    }
}

#[test]
fn empty_views_launch_nothing() {
    for device in devices() {
        let (kernels, stream) = setting(&device);
        let (buffer, mut out) = (poisoned(&stream, 8), poisoned(&stream, 8));
        let far = Layout::new(&[4, 0], &[1 << 40, 1 << 50], 1 << 61).unwrap();
        let mut view = ViewMut::new(&mut out, far).unwrap();
        kernels.unary(&stream, Unary::Exp, &View::new(&buffer, far).unwrap(), &mut view).unwrap();
        kernels.fill(&stream, 1, &mut view).unwrap();
        untouched(&stream, &out);
        let mut nothing = stream.alloc::<f32>(0).unwrap();
        kernels.fill(&stream, 1, &mut ViewMut::new(&mut nothing, row(0)).unwrap()).unwrap();
    }
}

/// Refused, and by this error; the result is as it was.
fn refuses(device: &Device, what: &str, expected: fn(&Error) -> bool, run: impl FnOnce(&Kernels, &Stream, &mut ViewMut<'_>) -> Result<()>) {
    let (kernels, stream) = setting(device);
    let mut out = poisoned(&stream, 64);
    let mut view = ViewMut::new(&mut out, Layout::contiguous(&[8, 8]).unwrap()).unwrap();
    let error = run(&kernels, &stream, &mut view).expect_err(what);
    assert!(expected(&error), "{what}: {error}");
    untouched(&stream, &out);
}

#[test]
fn wrong_shapes_and_types_are_rejected() {
    let square = Layout::contiguous(&[8, 8]).unwrap();
    for device in devices() {
        let (_, stream) = setting(&device);
        let floats = poisoned(&stream, 64);
        let (halves, whole) = (stream.alloc_zeroed::<f16>(64).unwrap(), stream.alloc_zeroed::<i32>(64).unwrap());
        let bytes = stream.alloc_zeroed::<u8>(64).unwrap();
        let x = View::new(&floats, square).unwrap();
        let flat = View::new(&floats, row(64)).unwrap();
        let half = View::new(&halves, square).unwrap();
        let shape: fn(&Error) -> bool = |error| matches!(error, Error::WrongShape { .. });
        let dtype: fn(&Error) -> bool = |error| matches!(error, Error::WrongType { .. });
        let refuses = |what: &str, expected, run: &dyn Fn(&Kernels, &Stream, &mut ViewMut<'_>) -> Result<()>| {
            refuses(&device, what, expected, run);
        };
        refuses("another shape", shape, &|kernels, stream, out| kernels.unary(stream, Unary::Exp, &flat, out));
        refuses("a shape to repeat", shape, &|kernels, stream, out| {
            kernels.binary(stream, Binary::Add, &x, &View::new(&floats, row(8)).unwrap(), out)
        });
        refuses("another result", dtype, &|kernels, stream, out| kernels.unary(stream, Unary::Exp, &half, out));
        refuses("two types", dtype, &|kernels, stream, out| kernels.binary(stream, Binary::Add, &x, &half, out));
        refuses("a comparison to floats", dtype, &|kernels, stream, out| kernels.binary(stream, Binary::Lt, &x, &x, out));
        refuses("a float condition", dtype, &|kernels, stream, out| kernels.where_cond(stream, &x, &x, &x, out));
        refuses("choices of two types", dtype, &|kernels, stream, out| {
            kernels.where_cond(stream, &View::new(&bytes, square).unwrap(), &x, &half, out)
        });
        refuses("a copy that is a cast", dtype, &|kernels, stream, out| kernels.copy(stream, &half, out));
        refuses("affine to another type", dtype, &|kernels, stream, out| kernels.affine(stream, &half, 1, 2, out));
        let (kernels, stream) = setting(&device);
        let mut out = stream.alloc_zeroed::<i32>(64).unwrap();
        let (whole, mut out) = (View::new(&whole, square).unwrap(), ViewMut::new(&mut out, square).unwrap());
        for op in [Unary::Exp, Unary::Recip, Unary::Floor, Unary::Powf(2.0)] {
            assert!(matches!(kernels.unary(&stream, op, &whole, &mut out), Err(Error::WrongType { .. })), "{op:?}");
        }
        assert!(matches!(kernels.binary(&stream, Binary::Pow, &whole, &whole, &mut out), Err(Error::WrongType { .. })));
        let mut out = stream.alloc_zeroed::<u8>(64).unwrap();
        let mut out = ViewMut::new(&mut out, square).unwrap();
        assert!(matches!(kernels.unary(&stream, Unary::Neg, &View::new(&bytes, square).unwrap(), &mut out), Err(Error::WrongType { .. })));
    }
}

#[test]
fn reductions_reject_invalid_calls() {
    let square = Layout::contiguous(&[8, 8]).unwrap();
    let shape: fn(&Error) -> bool = |error| matches!(error, Error::WrongShape { .. });
    let dtype: fn(&Error) -> bool = |error| matches!(error, Error::WrongType { .. });
    let argument: fn(&Error) -> bool = |error| matches!(error, Error::BadArgument { .. });
    for device in devices() {
        let (_, stream) = setting(&device);
        let (floats, whole, bytes) =
            (poisoned(&stream, 512), stream.alloc_zeroed::<i32>(64).unwrap(), stream.alloc_zeroed::<u8>(512).unwrap());
        let x = View::new(&floats, Layout::contiguous(&[8, 8, 8]).unwrap()).unwrap();
        let flat = View::new(&floats, square).unwrap();
        let ints = View::new(&whole, square).unwrap();
        let fp8 = View::of_bytes(&bytes, DType::F8E4M3, square).unwrap();
        let [eight, nine] = [8, 9].map(|n| View::new(&floats, row(n)).unwrap());
        let half = stream.alloc_zeroed::<f16>(8).unwrap();
        let half = View::new(&half, row(8)).unwrap();
        let norm = |weight, bias, epsilon| Norm { weight, bias, epsilon };
        let plain = norm(Some(eight), None, 1e-5);
        let refuses = |what: &str, expected, run: &dyn Fn(&Kernels, &Stream, &mut ViewMut<'_>) -> Result<()>| {
            refuses(&device, what, expected, run);
        };
        refuses("no such axis", argument, &|kernels, stream, out| kernels.reduce(stream, Reduce::Sum, &x, &[3], out));
        refuses("an axis twice", argument, &|kernels, stream, out| kernels.reduce(stream, Reduce::Sum, &x, &[1, 1], out));
        refuses("too few axes", shape, &|kernels, stream, out| kernels.reduce(stream, Reduce::Sum, &x, &[], out));
        refuses("too many axes", shape, &|kernels, stream, out| kernels.reduce(stream, Reduce::Sum, &x, &[0, 2], out));
        refuses("an index as a float", dtype, &|kernels, stream, out| kernels.reduce(stream, Reduce::ArgMax, &x, &[0], out));
        refuses("a truth as a float", dtype, &|kernels, stream, out| kernels.reduce(stream, Reduce::Any, &x, &[0], out));
        refuses("a mean of integers", dtype, &|kernels, stream, out| kernels.reduce(stream, Reduce::Mean, &ints, &[0], out));
        refuses("a sum of another type", dtype, &|kernels, stream, out| kernels.reduce(stream, Reduce::Sum, &ints, &[], out));
        refuses("sums of integers as floats", dtype, &|kernels, stream, out| kernels.cumsum(stream, &ints, 0, out));
        refuses("sums along no axis", argument, &|kernels, stream, out| kernels.cumsum(stream, &flat, 2, out));
        refuses("sums of another shape", shape, &|kernels, stream, out| kernels.cumsum(stream, &x, 0, out));
        refuses("softmax along no axis", argument, &|kernels, stream, out| kernels.softmax(stream, &flat, 2, out));
        refuses("softmax of another shape", shape, &|kernels, stream, out| kernels.log_softmax(stream, &x, 0, out));
        refuses("softmax of integers", dtype, &|kernels, stream, out| kernels.softmax(stream, &ints, 1, out));
        refuses("a norm of fp8", dtype, &|kernels, stream, out| kernels.rms_norm(stream, &fp8, &norm(None, None, 0.0), out));
        refuses("a weight too long", shape, &|kernels, stream, out| kernels.rms_norm(stream, &flat, &norm(Some(nine), None, 0.0), out));
        refuses("a weight of f16", dtype, &|kernels, stream, out| kernels.layer_norm(stream, &flat, &norm(Some(half), None, 0.0), out));
        refuses("a bias of f16", dtype, &|kernels, stream, out| {
            kernels.layer_norm(stream, &flat, &norm(Some(eight), Some(half), 0.0), out)
        });
        refuses("a bias", argument, &|kernels, stream, out| kernels.rms_norm(stream, &flat, &norm(None, Some(eight), 0.0), out));
        refuses("a negative ε", argument, &|kernels, stream, out| kernels.rms_norm(stream, &flat, &norm(None, None, -1.0), out));
        refuses("a wider result", dtype, &|kernels, stream, out| {
            let halves = stream.alloc_zeroed::<f16>(64).unwrap();
            kernels.rms_norm(stream, &View::new(&halves, square)?, &norm(None, None, 0.0), out)
        });
        refuses("groups that do not fit", argument, &|kernels, stream, out| kernels.group_norm(stream, &flat, 3, &plain, false, out));
        refuses("no groups", argument, &|kernels, stream, out| kernels.group_norm(stream, &flat, 0, &plain, false, out));
        let mut other = poisoned(&stream, 64);
        let mut residual = ViewMut::new(&mut other, row(64)).unwrap();
        let mut out = poisoned(&stream, 64);
        let (kernels, stream) = setting(&device);
        let mut view = ViewMut::new(&mut out, square).unwrap();
        assert!(matches!(kernels.add_rms_norm(&stream, &flat, &mut residual, &plain, &mut view), Err(Error::WrongShape { .. })));
        assert!(matches!(kernels.add_layer_norm(&stream, &flat, &mut residual, &plain, &mut view), Err(Error::WrongShape { .. })));
        // Results of 16 bits: of an rms norm of f32 alone.
        let mut halves = ViewMut::of_bytes(out.view_mut().into_bytes(), DType::F16, square).unwrap();
        assert!(matches!(kernels.layer_norm(&stream, &flat, &plain, &mut halves), Err(Error::WrongType { .. })));
        assert!(matches!(kernels.softmax(&stream, &flat, 1, &mut halves), Err(Error::WrongType { .. })));
        let mut bytes = ViewMut::of_bytes(out.view_mut().into_bytes(), DType::U8, square).unwrap();
        assert!(matches!(kernels.rms_norm(&stream, &flat, &plain, &mut bytes), Err(Error::WrongType { .. })));
        untouched(&stream, &other);
        untouched(&stream, &out);
    }
}

#[test]
fn views_of_other_devices_are_rejected() {
    let square = Layout::contiguous(&[8, 8]).unwrap();
    for pair in devices().windows(2) {
        let (_, elsewhere) = setting(&pair[1]);
        let far = poisoned(&elsewhere, 64);
        let far_view = View::new(&far, square).unwrap();
        let expected = |error: &Error| matches!(error, Error::WrongDevice { .. });
        refuses(&pair[0], "an input elsewhere", expected, |kernels, stream, out| kernels.unary(stream, Unary::Exp, &far_view, out));
        refuses(&pair[0], "a stream elsewhere", expected, |kernels, _, out| kernels.fill(&elsewhere, 1, out));
        refuses(&pair[0], "a reduction from elsewhere", expected, |kernels, stream, out| {
            kernels.reduce(stream, Reduce::Sum, &far_view, &[], out)
        });
        refuses(&pair[0], "a weight from elsewhere", expected, |kernels, stream, out| {
            let weight = Some(View::new(&far, row(8)).unwrap());
            let here = poisoned(stream, 64);
            kernels.rms_norm(stream, &View::new(&here, square).unwrap(), &Norm { weight, bias: None, epsilon: 0.0 }, out)
        });
        refuses(&pair[0], "kernels elsewhere", expected, |_, stream, out| Kernels::new(&pair[1], &Jit::default()).fill(stream, 1, out));
        untouched(&elsewhere, &far);
    }
}

#[test]
fn invalid_indices_are_rejected() {
    let shape: fn(&Error) -> bool = |error| matches!(error, Error::WrongShape { .. });
    let dtype: fn(&Error) -> bool = |error| matches!(error, Error::WrongType { .. });
    let argument: fn(&Error) -> bool = |error| matches!(error, Error::BadArgument { .. });
    let of = |shape: &[usize]| Layout::contiguous(shape).unwrap();
    for device in devices() {
        let (_, stream) = setting(&device);
        let (floats, halves) = (poisoned(&stream, 64), stream.alloc_zeroed::<f16>(64).unwrap());
        let (whole, bytes) = (stream.alloc_zeroed::<i32>(64).unwrap(), stream.alloc_zeroed::<u8>(64).unwrap());
        let (x, half) = (View::new(&floats, of(&[8, 8])).unwrap(), View::new(&halves, of(&[8, 8])).unwrap());
        let ids = |shape: &[usize]| View::new(&whole, of(shape)).unwrap();
        let (square, eight, small) = (ids(&[8, 8]), ids(&[8]), View::new(&floats, of(&[4, 4])).unwrap());
        let refuses = |what: &str, expected, run: &dyn Fn(&Kernels, &Stream, &mut ViewMut<'_>) -> Result<()>| {
            refuses(&device, what, expected, run);
        };
        refuses("float indices", dtype, &|kernels, stream, out| kernels.gather(stream, &x, &x, 0, out));
        refuses("gathering another type", dtype, &|kernels, stream, out| kernels.gather(stream, &half, &square, 0, out));
        refuses("no such axis", argument, &|kernels, stream, out| kernels.gather(stream, &x, &square, 2, out));
        refuses("too few indices", shape, &|kernels, stream, out| kernels.gather(stream, &x, &ids(&[7, 8]), 0, out));
        refuses("too small an input", shape, &|kernels, stream, out| kernels.gather(stream, &small, &square, 0, out));
        refuses("an input of one dimension", shape, &|kernels, stream, out| {
            kernels.gather(stream, &View::new(&floats, row(64)).unwrap(), &square, 0, out)
        });
        refuses("indices in two dimensions", shape, &|kernels, stream, out| kernels.index_select(stream, &x, &square, 0, out));
        refuses("selecting too few", shape, &|kernels, stream, out| kernels.index_select(stream, &x, &ids(&[7]), 0, out));
        refuses("selecting from rows of another length", shape, &|kernels, stream, out| {
            kernels.index_select(stream, &small, &eight, 0, out)
        });
        refuses("a table of one dimension", shape, &|kernels, stream, out| {
            kernels.embedding(stream, &View::new(&floats, row(64)).unwrap(), &eight, out)
        });
        refuses("rows of another length", shape, &|kernels, stream, out| kernels.embedding(stream, &small, &eight, out));
        refuses("a table of another type", dtype, &|kernels, stream, out| kernels.embedding(stream, &half, &eight, out));
        refuses("scattering by floats", dtype, &|kernels, stream, out| kernels.scatter(stream, out, &x, &x, 0));
        refuses("scattering another type", dtype, &|kernels, stream, out| kernels.scatter_add(stream, out, &square, &half, 0));
        refuses("scattering more", shape, &|kernels, stream, out| {
            let (ids, x) = (ids(&[4, 16]), View::new(&floats, of(&[4, 16])).unwrap());
            kernels.scatter(stream, out, &ids, &x, 0)
        });
        refuses("an axis too far", argument, &|kernels, stream, out| kernels.scatter_add(stream, out, &square, &x, 3));
        refuses("adding too few", shape, &|kernels, stream, out| kernels.index_add(stream, out, &ids(&[5]), &x, 0));
        refuses("adding rows of another length", shape, &|kernels, stream, out| kernels.index_add(stream, out, &ids(&[4]), &small, 0));
        refuses("a mask of floats", dtype, &|kernels, stream, out| kernels.masked_fill(stream, &x, &x, 0, out));
        refuses("a mask of another shape", shape, &|kernels, stream, out| {
            kernels.masked_fill(stream, &x, &View::new(&bytes, row(8)).unwrap(), 0, out)
        });
        refuses("float indices of an order", dtype, &|kernels, stream, out| kernels.argsort(stream, &x, false, out));
        refuses("values of another type", dtype, &|kernels, stream, out| {
            let mut indices = stream.alloc_zeroed::<u32>(64).unwrap();
            kernels.topk(stream, &half, true, out, &mut ViewMut::new(&mut indices, of(&[8, 8])).unwrap())
        });
        refuses("more than there are", shape, &|kernels, stream, out| {
            let mut indices = stream.alloc_zeroed::<u32>(64).unwrap();
            let narrow = View::new(&floats, of(&[8, 7])).unwrap();
            kernels.topk(stream, &narrow, true, out, &mut ViewMut::new(&mut indices, of(&[8, 8])).unwrap())
        });
        refuses("fewer indices than values", shape, &|kernels, stream, out| {
            let mut indices = stream.alloc_zeroed::<u32>(64).unwrap();
            kernels.topk(stream, &x, true, out, &mut ViewMut::new(&mut indices, of(&[8, 7])).unwrap())
        });
        refuses("sorted rows of another length", shape, &|kernels, stream, out| {
            kernels.sort(stream, &View::new(&floats, of(&[8, 7])).unwrap(), false, out, None)
        });
        refuses("sorted elements of another type", dtype, &|kernels, stream, out| kernels.sort(stream, &half, false, out, None));
        refuses("distinct elements of rows", shape, &|kernels, stream, out| kernels.unique(stream, &x, out, None, None).map(drop));
        refuses("counts of floats", dtype, &|kernels, stream, out| kernels.bincount(stream, &x, out));
        refuses("counts as floats", dtype, &|kernels, stream, out| kernels.histogram(stream, &x, 0.0, 1.0, out));
        refuses("no width", argument, &|kernels, stream, out| kernels.histogram(stream, &x, 1.0, 1.0, out));
        refuses("no limits", argument, &|kernels, stream, out| kernels.histogram(stream, &x, f64::NEG_INFINITY, f64::NAN, out));
        let (kernels, stream) = setting(&device);
        let mut out = stream.alloc_zeroed::<u32>(64).unwrap();
        let mut view = ViewMut::new(&mut out, of(&[8, 8])).unwrap();
        assert!(matches!(kernels.bincount(&stream, &square, &mut view), Err(Error::WrongShape { .. })));
        let mut view = ViewMut::new(&mut out, of(&[64])).unwrap();
        assert!(matches!(kernels.argsort(&stream, &x, false, &mut view), Err(Error::WrongShape { .. })));
        let mut view = ViewMut::new(&mut out, of(&[])).unwrap();
        let one = View::new(&floats, of(&[])).unwrap();
        assert!(matches!(kernels.argsort(&stream, &one, false, &mut view), Err(Error::WrongShape { .. })));
        assert!(stream.download(&out).unwrap().iter().all(|index| *index == 0));
    }
}

#[test]
fn indices_of_other_devices_are_rejected() {
    let square = Layout::contiguous(&[8, 8]).unwrap();
    for pair in devices().windows(2) {
        let ((_, here), (_, elsewhere)) = (setting(&pair[0]), setting(&pair[1]));
        let (near, far) = (here.alloc_zeroed::<i32>(64).unwrap(), elsewhere.alloc_zeroed::<i32>(64).unwrap());
        let x = poisoned(&here, 64);
        let (x, near, far) = (View::new(&x, square).unwrap(), View::new(&near, square).unwrap(), View::new(&far, square).unwrap());
        let expected = |error: &Error| matches!(error, Error::WrongDevice { .. });
        refuses(&pair[0], "indices elsewhere", expected, |kernels, stream, out| kernels.gather(stream, &x, &far, 0, out));
        refuses(&pair[0], "scattering by far indices", expected, |kernels, stream, out| kernels.scatter_add(stream, out, &far, &x, 0));
        refuses(&pair[0], "a stream elsewhere", expected, |kernels, _, out| kernels.gather(&elsewhere, &x, &near, 0, out));
        let mut indices = elsewhere.alloc_zeroed::<u32>(64).unwrap();
        refuses(&pair[0], "results elsewhere", expected, |kernels, stream, out| {
            kernels.topk(stream, &x, true, out, &mut ViewMut::new(&mut indices, square).unwrap())
        });
    }
}

#[test]
fn invalid_matrix_products_are_rejected() {
    let matrix = |rows: usize, columns: usize| Layout::contiguous(&[rows, columns]).unwrap();
    for device in devices() {
        let (_, stream) = setting(&device);
        let floats = poisoned(&stream, 64);
        let (halves, bytes) = (stream.alloc_zeroed::<f16>(64).unwrap(), stream.alloc_zeroed::<u8>(64).unwrap());
        let view = |rows, columns| View::new(&floats, matrix(rows, columns)).unwrap();
        let half = View::new(&halves, matrix(8, 8)).unwrap();
        let byte = View::new(&bytes, matrix(8, 8)).unwrap();
        let shape: fn(&Error) -> bool = |error| matches!(error, Error::WrongShape { .. });
        let dtype: fn(&Error) -> bool = |error| matches!(error, Error::WrongType { .. });
        let refuses = |what: &str, expected, matmul: Matmul<'_>, a: View<'_>, b: View<'_>| {
            refuses(&device, what, expected, |kernels, stream, out| kernels.matmul(stream, &matmul, &a, &b, out));
        };
        let plain = Matmul::new();
        refuses("another m", shape, plain, view(7, 8), view(8, 8));
        refuses("another n", shape, plain, view(8, 8), view(8, 7));
        refuses("another k", shape, plain, view(8, 7), view(8, 8));
        refuses("a vector", shape, plain, View::new(&floats, row(8)).unwrap(), view(8, 8));
        refuses(
            "a batch that the result lacks",
            shape,
            plain,
            View::new(&floats, Layout::new(&[2, 8, 8], &[0, 8, 1], 0).unwrap()).unwrap(),
            view(8, 8),
        );
        refuses("a bias that does not repeat", shape, plain.bias(view(8, 4)), view(8, 8), view(8, 8));
        refuses("a bias of another type", dtype, plain.bias(half), view(8, 8), view(8, 8));
        refuses("two types", dtype, plain, view(8, 8), half);
        refuses("bytes to floats", dtype, plain, byte, byte);
        let whole = stream.alloc_zeroed::<i32>(64).unwrap();
        let whole = View::new(&whole, matrix(8, 8)).unwrap();
        refuses("integers", dtype, plain, whole, whole);
        // Of bytes no fractions come.
        let mut sums = stream.alloc_zeroed::<i32>(64).unwrap();
        let mut sums = ViewMut::new(&mut sums, matrix(8, 8)).unwrap();
        let (kernels, stream) = setting(&device);
        for matmul in [plain.scaled(0.5, 0.0), plain.scaled(1.0, 0.25), plain.activation(Activation::Silu)] {
            assert!(matches!(kernels.matmul(&stream, &matmul, &byte, &byte, &mut sums), Err(Error::WrongType { .. })));
        }
        if kernels.matmul_library().is_err() {
            let missing: fn(&Error) -> bool = |error| matches!(error, Error::NotAvailable { .. });
            refuses("no library", missing, plain.backend(MatmulBackend::Library), view(8, 8), view(8, 8));
        }
    }
}
