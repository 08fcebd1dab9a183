//! What a model does most, beside plain loops on all cores of the CPU.

use std::num::NonZero;

use warpwave_kernels::{DType, Layout, Matmul, Norm, View, ViewMut};

use super::case::{Bench, Case, Run, Sizes, Work};

pub fn cases(sizes: Sizes) -> Vec<Case> {
    let side = sizes.of(4096, 64);
    vec![
        product(side, side, 1, 1),
        product(sizes.of(512, 32), sizes.of(512, 32), sizes.of(512, 32), sizes.of(16, 2)),
        softmax(side),
        rms_norm(side),
    ]
}

/// Runs a function on equal parts of rows, one thread for each core.
fn by_rows(out: &mut [f32], width: usize, work: impl Fn(usize, &mut [f32]) + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let part = (out.len() / width).div_ceil(threads).max(1) * width;
    std::thread::scope(|scope| {
        for (place, rows) in out.chunks_mut(part).enumerate() {
            let work = &work;
            scope.spawn(move || rows.chunks_mut(width).enumerate().for_each(|(i, row)| work(place * part / width + i, row)));
        }
    });
}

fn numbers(len: usize) -> Vec<f32> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 16_777_216.0 - 0.5).collect()
}

/// Products of matrices, several of a size.
fn product(m: usize, k: usize, n: usize, batch: usize) -> Case {
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let of = |len| bench.normal(DType::F32, len);
        let (a, b, mut out) = (of(batch * m * k)?, of(batch * k * n)?, bench.room(DType::F32, batch * m * n)?);
        let run: Run = Box::new(move || {
            let a = View::of_bytes(&a, DType::F32, Layout::contiguous(&[batch, m, k])?)?;
            let b = View::of_bytes(&b, DType::F32, Layout::contiguous(&[batch, k, n])?)?;
            let mut out = ViewMut::of_bytes(&mut out, DType::F32, Layout::contiguous(&[batch, m, n])?)?;
            Ok(kernels.matmul(&stream, &Matmul::new(), &a, &b, &mut out)?)
        });
        Ok(run)
    };
    let cpu = move || {
        let (a, b, mut out) = (numbers(batch * m * k), numbers(batch * k * n), vec![0f32; batch * m * n]);
        let run: Run = Box::new(move || {
            by_rows(&mut out, n, |row, to| {
                let (from, b) = (&a[row * k..][..k], &b[row / m * k * n..][..k * n]);
                if n == 1 {
                    // Sixteen sums at once: the compiler makes vectors of them.
                    let mut sums = [0f32; 16];
                    for (x, y) in from.chunks_exact(16).zip(b.chunks_exact(16)) {
                        sums.iter_mut().zip(x.iter().zip(y)).for_each(|(sum, (x, y))| *sum += x * y);
                    }
                    to[0] = sums.iter().sum();
                    return;
                }
                to.fill(0.0);
                for (x, line) in from.iter().zip(b.chunks_exact(n)) {
                    to.iter_mut().zip(line).for_each(|(to, y)| *to += x * y);
                }
            });
            std::hint::black_box(&out);
            Ok(())
        });
        run
    };
    let (name, work) = match n {
        1 => (format!("matrix x vector f32 {m}x{k}"), Work::Bytes((4 * m * k) as u64)),
        _ => (format!("batched matmul f32 {batch} x {m}x{k}x{n}"), Work::Flops((2 * batch * m * k * n) as u64)),
    };
    let (setup, call) = match n {
        1 => (format!("a = randn({m}, {k}); b = randn({k})"), "torch.mv(a, b)"),
        _ => (format!("a = randn({batch}, {m}, {k}); b = randn({batch}, {k}, {n})"), "torch.bmm(a, b)"),
    };
    Case::new(name, work, make).torch(setup, call).cpu(cpu)
}

fn softmax(side: usize) -> Case {
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (x, mut out) = (bench.normal(DType::F32, side * side)?, bench.room(DType::F32, side * side)?);
        let square = Layout::contiguous(&[side, side])?;
        let run: Run = Box::new(move || {
            let mut out = ViewMut::of_bytes(&mut out, DType::F32, square)?;
            Ok(kernels.softmax(&stream, &View::of_bytes(&x, DType::F32, square)?, 1, &mut out)?)
        });
        Ok(run)
    };
    rows("softmax", side, make, "torch.softmax(x, -1)", |from, to| {
        let most = from.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        to.iter_mut().zip(from).for_each(|(to, x)| *to = (x - most).exp());
        let sum: f32 = to.iter().sum();
        to.iter_mut().for_each(|to| *to /= sum);
    })
}

fn rms_norm(side: usize) -> Case {
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let (x, mut out) = (bench.normal(DType::F32, side * side)?, bench.room(DType::F32, side * side)?);
        let square = Layout::contiguous(&[side, side])?;
        let norm = Norm { weight: None, bias: None, epsilon: 1e-5 };
        let run: Run = Box::new(move || {
            let mut out = ViewMut::of_bytes(&mut out, DType::F32, square)?;
            Ok(kernels.rms_norm(&stream, &View::of_bytes(&x, DType::F32, square)?, &norm, &mut out)?)
        });
        Ok(run)
    };
    rows("rms_norm", side, make, "F.rms_norm(x, (x.shape[1],))", |from, to| {
        let sum: f32 = from.iter().map(|x| x * x).sum();
        let factor = (sum / from.len() as f32 + 1e-5).sqrt().recip();
        to.iter_mut().zip(from).for_each(|(to, x)| *to = x * factor);
    })
}

fn rows(
    op: &str,
    side: usize,
    make: impl FnOnce(&Bench) -> Result<Run, super::super::super::Failure> + 'static,
    call: &str,
    row: fn(&[f32], &mut [f32]),
) -> Case {
    let cpu = move || {
        let (x, mut out) = (numbers(side * side), vec![0f32; side * side]);
        let run: Run = Box::new(move || {
            by_rows(&mut out, side, |i, to| row(&x[i * side..][..side], to));
            std::hint::black_box(&out);
            Ok(())
        });
        run
    };
    Case::new(format!("{op} f32 {side}x{side}"), Work::Bytes((8 * side * side) as u64), make)
        .torch(format!("x = randn({side}, {side})"), call)
        .cpu(cpu)
}
