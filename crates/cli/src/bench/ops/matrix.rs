//! Matrix products.

use warpwave_kernels::{Activation, DType, Layout, Matmul, MatmulBackend, View, ViewMut};

use super::case::{Bench, Case, Run, Sizes, Work, torch_type};

/// A call: sizes, how B lies, who computes it.
#[derive(Clone, Copy)]
struct Call {
    dtype: DType,
    tf32: bool,
    size: [usize; 3],
    /// B is stored by columns, as weights are.
    transposed: bool,
    by: MatmulBackend,
    gelu: bool,
}

pub fn cases(sizes: Sizes) -> Vec<Case> {
    use DType::{Bf16, F16, F32, F64, U8};
    let cube = |n: usize| [sizes.of(n, n / 128); 3];
    let usual = Call { dtype: Bf16, tf32: false, size: cube(8192), transposed: false, by: MatmulBackend::Auto, gelu: false };
    let mut calls = Vec::new();
    for n in [8192, 4096] {
        calls.extend([(Bf16, false), (F16, false), (F32, true), (F32, false)].map(|(dtype, tf32)| Call {
            dtype,
            tf32,
            size: cube(n),
            ..usual
        }));
    }
    calls.push(Call { transposed: true, ..usual });
    calls.push(Call { size: cube(4096), transposed: true, gelu: true, ..usual });
    calls.push(Call { dtype: U8, size: cube(4096), transposed: true, ..usual });
    let own = Call { by: MatmulBackend::Kernels, ..usual };
    calls.extend([own, Call { transposed: true, ..own }, Call { dtype: F16, ..own }]);
    calls.extend([(F32, true), (F32, false), (F64, false)].map(|(dtype, tf32)| Call { dtype, tf32, size: cube(4096), ..own }));
    calls.push(Call { dtype: U8, size: cube(4096), transposed: true, ..own });
    let n = sizes.of(16_384, 256);
    for dtype in [F32, F16, Bf16] {
        // One row times a matrix by columns, and by rows.
        calls.extend([true, false].map(|transposed| Call { dtype, size: [1, n, n], transposed, ..usual }));
    }
    calls.push(Call { dtype: F32, size: [4, n, n], transposed: true, ..usual });
    calls.push(Call { size: [4, n, n], transposed: true, ..usual });
    // What a language model multiplies for each of few sequences' next tokens.
    for [n, k] in [[14_336, 4096], [4096, 14_336]] {
        calls.extend([1, 4, 16].map(|m| Call { size: [m, sizes.of(n, n / 64), sizes.of(k, k / 64)], transposed: true, ..usual }));
    }
    calls.into_iter().map(case).collect()
}

/// The weights of a feed-forward layer times the tokens of a batch.
pub fn batch_cases(sizes: Sizes, batch: &[usize]) -> Vec<Case> {
    let shapes = [[14_336, 4096], [4096, 14_336]].map(|shape| shape.map(|dim: usize| sizes.of(dim, dim / 64)));
    let call = |[n, k]: [usize; 2], m| {
        let (dtype, by) = (DType::Bf16, MatmulBackend::Auto);
        Call { dtype, tf32: false, size: [m, n, k], transposed: true, by, gelu: false }
    };
    shapes.iter().flat_map(|shape| batch.iter().map(|m| case(call(*shape, *m)))).collect()
}

/// A large product of `bf16` with weights, which lie by columns.
pub fn weights() -> Case {
    case(Call { dtype: DType::Bf16, tf32: false, size: [8192; 3], transposed: true, by: MatmulBackend::Auto, gelu: false })
}

fn case(call: Call) -> Case {
    let Call { dtype, tf32, size: [m, n, k], transposed, by, gelu } = call;
    let out_type = if dtype == DType::U8 { DType::I32 } else { dtype };
    let make = move |bench: &Bench| {
        let (kernels, stream) = (bench.kernels.clone(), bench.stream.clone());
        let fill = |len: usize| if dtype == DType::U8 { bench.bytes(len) } else { bench.normal(dtype, len) };
        let (a, b, bias) = (fill(m * k)?, fill(k * n)?, bench.normal(out_type, n)?);
        let mut out = bench.room(out_type, m * n)?;
        let run: Run = Box::new(move || {
            let a = View::of_bytes(&a, dtype, Layout::contiguous(&[m, k])?)?;
            let layout = if transposed { Layout::contiguous(&[n, k])?.transpose(0, 1)? } else { Layout::contiguous(&[k, n])? };
            let mut matmul = Matmul::new().tf32(tf32).backend(by);
            if gelu {
                matmul = matmul.bias(View::of_bytes(&bias, out_type, Layout::contiguous(&[n])?)?).activation(Activation::Gelu);
            }
            let mut out = ViewMut::of_bytes(&mut out, out_type, Layout::contiguous(&[m, n])?)?;
            Ok(kernels.matmul(&stream, &matmul, &a, &View::of_bytes(&b, dtype, layout)?, &mut out)?)
        });
        Ok(run)
    };
    // A matrix with few vectors is bound by reading it.
    let few = m <= 16;
    let work = if few { Work::Bytes((n * k * dtype.size()) as u64) } else { Work::Flops((2 * m * n * k) as u64) };
    let op = if few { "matvec" } else { "matmul" };
    let how = [(tf32, " tf32"), (gelu, " bias gelu"), (transposed, " B transposed"), (by == MatmulBackend::Kernels, " without BLAS")];
    let how: String = how.into_iter().filter(|(on, _)| *on).map(|(_, word)| word).collect();
    let ty = if dtype == DType::U8 { "i8".to_owned() } else { dtype.to_string() };
    let shape = if transposed { format!("{n}, {k}") } else { format!("{k}, {n}") };
    let (b, call) = (if transposed { "b.t()" } else { "b" }, "torch.mm(a, w, out=o)");
    let setup = match dtype {
        DType::U8 => {
            format!("a = randint(-128, 128, ({m}, {k})).to(torch.int8); b = randint(-128, 128, ({shape})).to(torch.int8); w = {b}")
        }
        _ => format!(
            "torch.backends.cuda.matmul.allow_tf32 = {tf32}\n\
             a = randn({m}, {k}, dtype={ty}); b = randn({shape}, dtype={ty}); w = {b}; v = randn({n}, dtype={ty})\n\
             o = torch.empty({m}, {n}, dtype={ty}, device='cuda')",
            tf32 = if tf32 { "True" } else { "False" },
            ty = torch_type(dtype),
        ),
    };
    let call = match (dtype, gelu, m) {
        (DType::U8, ..) => "torch._int_mm(a, w)",
        (_, true, _) => "F.gelu(torch.addmm(v, a, w), approximate='tanh')",
        (_, _, 1) => "torch.mv(w.t(), a[0], out=o[0])",
        _ => call,
    };
    Case::new(format!("{op} {ty} {m}x{n}x{k}{how}"), work, make).torch(setup, call)
}
