//! Matrix products of every type in every layout, against sums in f64.
//!
//! What a result may differ by: for the sums, whose order is free, a few times f32's precision of the sum of all products' sizes, which
//! grows with the root of their number; tf32's own precision where it is allowed; f16 too small to be normal numbers; one rounding to the
//! result's type. Integers are
//! exact. Whatever lies between and behind the elements is NaN, or the largest number.

use std::collections::BTreeSet;
use std::process::Command;

use warpwave_kernels::{Activation, DType, Layout, Matmul, MatmulBackend, View, ViewMut};

use crate::common::values::{Value, decode, encode, round, ulp};
use crate::common::{Random, full, require, seed, virtual_devices};
use crate::suite::{Suite, on_each_device, places, room};

/// How a matrix lies.
const LAYOUTS: [&str; 6] = ["rows", "columns", "padded rows", "odd rows", "every other", "padded columns"];

/// The layout of matrices of `batch`, each `rows` × `columns`.
fn layout(kind: &str, batch: &[usize], rows: usize, columns: usize, offset: usize) -> Layout {
    let (strides, one) = match kind {
        "rows" => ([columns, 1], rows * columns),
        "columns" => ([1, rows], rows * columns),
        "padded rows" => ([columns.next_multiple_of(16) + 16, 1], rows * (columns.next_multiple_of(16) + 16)),
        "odd rows" => ([columns + 3, 1], rows * (columns + 3)),
        "every other" => ([columns * 2 + 1, 2], rows * (columns * 2 + 1)),
        "padded columns" => ([1, rows.next_multiple_of(16) + 16], columns * (rows.next_multiple_of(16) + 16)),
        _ => unreachable!(),
    };
    // Batches begin at multiples of 16 elements, but where rows are odd.
    let mut step = if kind == "odd rows" { one } else { one.next_multiple_of(16) };
    let mut steps = vec![0; batch.len()];
    for d in (0..batch.len()).rev() {
        steps[d] = step;
        step *= batch[d].max(1);
    }
    steps.extend(strides);
    Layout::new(&[batch, &[rows, columns]].concat(), &steps, offset).unwrap()
}

/// An element of a product: of ordinary size; signed bytes for integers.
fn draw(dtype: DType, random: &mut Random) -> Vec<u8> {
    match dtype {
        DType::U8 => vec![random.next_u64() as u8],
        DType::I32 => ((random.below(2001) as i32) - 1000).to_le_bytes().to_vec(),
        _ => encode(dtype, Value::Real(round(dtype, random.unit() * 2.0 - 1.0))),
    }
}

/// What no one may read.
fn poison(dtype: DType) -> Vec<u8> {
    match dtype {
        DType::U8 => vec![0x7f],
        DType::I32 => i32::MAX.to_le_bytes().to_vec(),
        _ => encode(dtype, Value::Real(f64::NAN)),
    }
}

fn number(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::U8 => f64::from(bytes[0] as i8),
        DType::I32 => f64::from(i32::from_le_bytes(bytes.try_into().unwrap())),
        _ => decode(dtype, bytes).real(),
    }
}

fn activate(x: f64, activation: Option<Activation>) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match activation {
        None => x,
        Some(Activation::Relu) => x.max(0.0),
        Some(Activation::Gelu) => 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh()),
        Some(Activation::GeluErf) => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
        Some(Activation::Silu) => x * sigmoid(x),
        Some(Activation::Sigmoid) => sigmoid(x),
        Some(Activation::Tanh) => x.tanh(),
        Some(other) => panic!("no reference of {other:?}"),
    }
}

/// By a series of terms of one sign, which loses no digits.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    sum * (-x * x).exp() * 2.0 / std::f64::consts::PI.sqrt()
}

#[derive(Debug, Clone)]
struct Case {
    dtype: DType,
    out: DType,
    tf32: bool,
    size: [usize; 3],
    batch: Vec<usize>,
    /// Of a, b and the result.
    kinds: [&'static str; 3],
    /// Whether a or b is repeated over the batch.
    repeated: [bool; 2],
    factors: (f64, f64),
    /// Along n, along m, or neither.
    bias: Option<usize>,
    activation: Option<Activation>,
    by: MatmulBackend,
}

struct Operand {
    layout: Layout,
    bytes: Vec<u8>,
}

fn operand(dtype: DType, layout: Layout, random: &mut Random) -> Operand {
    let mut bytes: Vec<u8> = poison(dtype).repeat(room(&layout, dtype) / dtype.size());
    for place in places(&layout) {
        bytes[place * dtype.size()..][..dtype.size()].copy_from_slice(&draw(dtype, random));
    }
    Operand { layout, bytes }
}

/// Runs a case; the largest share of its tolerance that an element took.
fn run(suite: &Suite, case: &Case, random: &mut Random) -> f64 {
    let [m, n, k] = case.size;
    let offset = |kind: &str, random: &mut Random| if kind == "odd rows" || kind == "every other" { random.below(7) } else { 16 };
    let side = |index: usize, rows: usize, columns: usize, random: &mut Random| {
        let batch: &[usize] = if case.repeated[index] { &[] } else { &case.batch };
        let kind = case.kinds[index];
        operand(case.dtype, layout(kind, batch, rows, columns, offset(kind, random)), random)
    };
    let (a, b) = (side(0, m, k, random), side(1, k, n, random));
    let out = operand(case.out, layout(case.kinds[2], &case.batch, m, n, offset(case.kinds[2], random)), random);
    let bias = case.bias.map(|along| {
        let shape = if along == 0 { [1, n] } else { [m, 1] };
        operand(case.out, Layout::contiguous(&shape).unwrap(), random)
    });

    let stream = &suite.stream;
    let (device_a, device_b) = (stream.upload(&a.bytes).unwrap(), stream.upload(&b.bytes).unwrap());
    let device_bias = bias.as_ref().map(|bias| stream.upload(&bias.bytes).unwrap());
    let mut device_out = stream.upload(&out.bytes).unwrap();
    let mut matmul = Matmul::new().scaled(case.factors.0, case.factors.1).tf32(case.tf32).backend(case.by);
    if let (Some(bias), Some(device)) = (&bias, &device_bias) {
        matmul = matmul.bias(View::of_bytes(device, case.out, bias.layout).unwrap());
    }
    if let Some(activation) = case.activation {
        matmul = matmul.activation(activation);
    }
    let view_a = View::of_bytes(&device_a, case.dtype, a.layout).unwrap();
    let view_b = View::of_bytes(&device_b, case.dtype, b.layout).unwrap();
    let mut view_out = ViewMut::of_bytes(&mut device_out, case.out, out.layout).unwrap();
    suite.kernels.matmul(stream, &matmul, &view_a, &view_b, &mut view_out).unwrap_or_else(|error| panic!("{case:?}: {error}"));
    let found = stream.download(&device_out).unwrap();

    let numbers = |dtype: DType, operand: &Operand, shape: &[usize]| -> Vec<f64> {
        let layout = operand.layout.broadcast_to(shape).unwrap();
        places(&layout).into_iter().map(|place| number(dtype, &operand.bytes[place * dtype.size()..][..dtype.size()])).collect()
    };
    let shape = |rows: usize, columns: usize| [&case.batch[..], &[rows, columns]].concat();
    let (xs, ys) = (numbers(case.dtype, &a, &shape(m, k)), numbers(case.dtype, &b, &shape(k, n)));
    let before = numbers(case.out, &out, &shape(m, n));
    let biases = bias.map(|bias| numbers(case.out, &bias, &shape(m, n)));
    let (alpha, beta) = case.factors;
    let (mut untouched, mut worst) = (out.bytes.clone(), 0f64);
    let precision = if case.dtype == DType::F64 { 2f64.powi(-53) } else { 2f64.powi(-24) };
    // Of many elements a part, each time another; beside all nothing is written.
    let every = (m * n * k * case.batch.iter().product::<usize>()).div_ceil(20_000_000).max(1);
    let some = random.below(every);
    for (i, place) in places(&out.layout).into_iter().enumerate() {
        let (batch, row, column) = (i / (m * n), i / n % m, i % n);
        let range = place * case.out.size()..(place + 1) * case.out.size();
        untouched[range.clone()].copy_from_slice(&found[range.clone()]);
        if !(i + some).is_multiple_of(every) {
            continue;
        }
        let (mut sum, mut sizes, mut tiny) = (0.0, 0.0, 0.0);
        for x in 0..k {
            let product = xs[(batch * m + row) * k + x] * ys[(batch * k + x) * n + column];
            sum += product;
            sizes += product.abs();
            // gfx90a's matrix units take f16 below its normal numbers for 0.
            let normal = [xs[(batch * m + row) * k + x], ys[(batch * k + x) * n + column]].iter().all(|x| x.abs() >= 2f64.powi(-14));
            tiny += if case.dtype == DType::F16 && !normal { (alpha * product).abs() } else { 0.0 };
        }
        let mut wanted = alpha * sum;
        let mut size = (alpha * sizes).abs();
        if beta != 0.0 {
            wanted += beta * before[i];
            size += (beta * before[i]).abs();
        }
        if let Some(biases) = &biases {
            wanted += biases[i];
            size += biases[i].abs();
        }
        // The library's GELU is coarse, and only narrow results get it; what it is of may be rounded to the result's type before.
        let coarse = case.activation == Some(Activation::Gelu) && case.by != MatmulBackend::Kernels && case.out.size() == 2;
        let coarse = if coarse { 2f64.powi(-10) * wanted.abs() + 0.6 * ulp(case.out, wanted) } else { 0.0 };
        let wanted = activate(wanted, case.activation);
        let result = number(case.out, &found[range]);
        let tolerance = if case.out == DType::I32 {
            0.0
        } else {
            // Functions have slopes of at most 1.13, and are right to a few digits of f32 themselves.
            let sums = precision * (8.0 + 4.0 * (k as f64).sqrt()) * size;
            let cut = if case.tf32 && case.dtype == DType::F32 { 2f64.powi(-10) * sizes * alpha.abs() } else { 0.0 };
            1.2 * (sums + cut + tiny) + coarse + 16.0 * precision * wanted.abs() + ulp(case.out, wanted)
        };
        let off = (result - wanted).abs();
        let share = if off == 0.0 { 0.0 } else { off / tolerance };
        assert!(share <= 1.0, "{case:?}: element {batch}, {row}, {column} is {result}, should be {wanted}: {share} of the tolerance");
        worst = worst.max(share);
    }
    assert!(untouched == found, "{case:?}: something beside the result was written");
    worst
}

const TYPES: [(DType, DType, bool); 8] = [
    (DType::F32, DType::F32, false),
    (DType::F32, DType::F32, true),
    (DType::F16, DType::F16, false),
    (DType::F16, DType::F32, false),
    (DType::Bf16, DType::Bf16, false),
    (DType::Bf16, DType::F32, false),
    (DType::F64, DType::F64, false),
    (DType::U8, DType::I32, false),
];

/// The rows of the table. `vectors` are matrices with few vectors, `large` those that fill the device with large tiles.
const OPS: [&str; 3] = ["matmul", "matmul vectors", "matmul large"];

fn cases(random: &mut Random) -> Vec<(&'static str, Case)> {
    let mut cases = Vec::new();
    let pick = |random: &mut Random, from: &[&'static str]| from[random.below(from.len())];
    let activation = |random: &mut Random, out: DType| match random.below(3) {
        0 => None,
        _ if out == DType::I32 => Some(Activation::Relu),
        _ => Some(Activation::ALL[random.below(Activation::ALL.len())]),
    };
    for (dtype, out, tf32) in TYPES {
        let plain = Case {
            dtype,
            out,
            tf32,
            size: [1; 3],
            batch: vec![],
            kinds: ["rows"; 3],
            repeated: [false; 2],
            factors: (1.0, 0.0),
            bias: None,
            activation: None,
            by: MatmulBackend::Auto,
        };
        // Each way that A and B can lie, on sizes that fill no tile, and at least one of several tiles.
        let every = if full() { 36 } else { 5 };
        for i in 0..every {
            let some = random.below(36);
            let (first, second) = if full() { (i % 6, i / 6) } else { ([0, 1, some % 6, 0, 1][i], [0, 0, some / 6, 1, 1][i]) };
            let size = if i % 3 == 2 {
                [70 + random.below(70), 65 + random.below(20), 9 + random.below(60)]
            } else {
                [9 + random.below(50), 9 + random.below(40), 1 + random.below(150)]
            };
            let size = if i == 0 { [40, 72, 96] } else { size };
            let factors = if random.below(2) == 0 { (1.0, 0.0) } else { ([2.0, -1.0][random.below(2)], [1.0, 3.0][random.below(2)]) };
            let bias = [None, Some(0), Some(1)][random.below(3)];
            let kinds = [LAYOUTS[first], LAYOUTS[second], pick(random, &LAYOUTS)];
            let by = if i % 2 == 0 { MatmulBackend::Kernels } else { MatmulBackend::Auto };
            cases.push(("matmul", Case { size, factors, bias, activation: activation(random, out), kinds, by, ..plain.clone() }));
        }
        // A bias, where rows begin at multiples of 16 bytes: the library's own.
        for size in [[64, 128, 256], [96, 40, 512]] {
            cases.push(("matmul", Case { size, bias: Some(0), ..plain.clone() }));
        }
        // Batches, and the smallest.
        let kinds = [pick(random, &LAYOUTS), pick(random, &LAYOUTS), pick(random, &["rows", "padded rows", "columns"])];
        let repeated = [random.below(2) == 0, random.below(2) == 0];
        cases.push(("matmul", Case { size: [17, 20, 33], batch: vec![2, 3], kinds, repeated, bias: Some(0), ..plain.clone() }));
        cases.push(("matmul", Case { batch: vec![2], repeated: [true, false], ..plain.clone() }));
        cases.push(("matmul", Case { size: [3, 10, 0], factors: (1.0, 2.0), bias: Some(0), ..plain.clone() }));
        cases.push(("matmul", Case { size: [0, 10, 3], ..plain.clone() }));
        // Few vectors, on either side, of rows and of columns.
        if matches!(dtype, DType::F32 | DType::F16 | DType::Bf16) {
            let all = [1, 2, 3, 4, 5, 8];
            for i in 0..if full() { 24 } else { 4 } {
                let few = if full() { all[i % 6] } else { [1, all[random.below(6)]][i / 2] };
                let matrix = match random.below(4) {
                    // More than all threads read at a time.
                    0 if full() => [30 + random.below(30), 8 * (1000 + random.below(1500))],
                    some => [30 + random.below(300), [random.below(700) + 1, 1024, 8 * (1 + random.below(200))][some % 3]],
                };
                let size = if random.below(2) == 0 { [matrix[0], few, matrix[1]] } else { [few, matrix[0], matrix[1]] };
                let transposed = size[0] == few;
                let (matrix_kind, vectors_kind) =
                    if i % 2 == 0 { ("padded rows", "padded columns") } else { ("padded columns", pick(random, &LAYOUTS)) };
                // Seen from the other side rows are columns.
                let swap = |kind: &'static str| match kind {
                    "padded rows" => "padded columns",
                    "padded columns" => "padded rows",
                    kind => kind,
                };
                let kinds = if transposed { [swap(vectors_kind), swap(matrix_kind)] } else { [matrix_kind, vectors_kind] };
                let kinds = [kinds[0], kinds[1], pick(random, &["rows", "columns", "every other"])];
                let batch = if i % 4 == 3 { vec![2, 2] } else { vec![] };
                let bias = [None, Some(0), Some(1)][random.below(3)];
                let factors = [(1.0, 0.0), (2.0, 1.0)][random.below(2)];
                let by = if i % 2 == 0 { MatmulBackend::Auto } else { MatmulBackend::Kernels };
                cases.push((
                    "matmul vectors",
                    Case { size, kinds, batch, bias, factors, activation: activation(random, out), by, ..plain.clone() },
                ));
            }
        }
    }
    // More blocks of large tiles than the device has units.
    let large: &[(DType, DType, bool)] = if full() { &TYPES } else { &[TYPES[1], TYPES[4], TYPES[7]] };
    for (i, (dtype, out, tf32)) in large.iter().enumerate() {
        let kinds = [["padded rows", "padded columns"][i % 2], ["padded rows", "padded columns"][random.below(2)], "padded rows"];
        let case = Case {
            dtype: *dtype,
            out: *out,
            tf32: *tf32,
            size: [67, 70, 9 + random.below(30)],
            batch: vec![310],
            kinds,
            repeated: [true, false],
            factors: (1.0, 0.0),
            bias: Some(0),
            activation: None,
            by: MatmulBackend::Kernels,
        };
        cases.push(("matmul large", case));
    }
    cases
}

/// Products of our own with more steps along k than are in flight, of small tiles and of large ones; on a virtual GPU of small
/// ones, in one layout.
fn long_cases(fills: bool, random: &mut Random) -> Vec<(&'static str, Case)> {
    let pairs = [
        ["padded rows", "padded columns"],
        ["rows", "rows"],
        ["columns", "columns"],
        ["padded columns", "padded rows"],
        ["odd rows", "every other"],
    ];
    let mut cases = Vec::new();
    for (dtype, out, tf32) in TYPES {
        for [first, second] in pairs.into_iter().take(if fills { pairs.len() } else { 1 }) {
            let case = Case {
                dtype,
                out,
                tf32,
                size: [130 + random.below(20), 100 + random.below(60), 500 + random.below(200)],
                batch: vec![],
                kinds: [first, second, ["rows", "padded rows", "columns"][random.below(3)]],
                repeated: [false; 2],
                factors: (1.0, 0.0),
                bias: [None, Some(0), Some(1)][random.below(3)],
                activation: None,
                by: MatmulBackend::Kernels,
            };
            cases.push(("matmul", case.clone()));
            if fills {
                let size = [300 + random.below(100), 520 + random.below(100), 400 + random.below(300)];
                cases.push(("matmul large", Case { size, batch: vec![17], repeated: [random.below(2) == 0, false], ..case }));
            }
        }
    }
    cases
}

#[test]
fn products_agree_with_the_reference() {
    let seed = seed();
    on_each_device(&BTreeSet::from(OPS), |suite, table| {
        let mut random = Random::new(seed);
        let long = if full() { long_cases(suite.fills(), &mut random) } else { vec![] };
        for (op, case) in cases(&mut random).into_iter().chain(long) {
            table.note(op, case.dtype, run(suite, &case, &mut random));
        }
    });
}

/// What cards without matrix units do, which the devices above have.
#[test]
fn products_without_matrix_units_agree_with_the_reference() {
    let seed = seed();
    for device in virtual_devices(&["gfx908"]) {
        let (suite, mut random) = (Suite::new(&device), Random::new(seed));
        let mut all: Vec<Case> = cases(&mut random).into_iter().filter(|(op, _)| *op == "matmul").map(|(_, case)| case).collect();
        all.retain(|case| case.dtype.size() <= 2);
        let some: Vec<Case> = if full() { all } else { (0..3).map(|_| all[random.below(all.len())].clone()).collect() };
        for case in some {
            run(&suite, &Case { by: MatmulBackend::Kernels, ..case }, &mut random);
        }
    }
}

/// The same by the vendor's library, on devices that have one.
#[test]
fn library_products_agree_with_the_reference() {
    let seed = seed();
    on_each_device(&BTreeSet::new(), |suite, table| {
        let name = suite.kernels.device().name();
        let library = match suite.kernels.matmul_library() {
            Ok(library) => library,
            Err(error) => {
                // Every NVIDIA GPU has one, unless it was taken away on purpose.
                require(!name.starts_with("cuda:") || std::env::var_os("WARPWAVE_CUBLASLT_LIB").is_some(), &error.to_string());
                return eprintln!("skipped on {name}: {error}");
            }
        };
        eprintln!("{name}: {library}");
        let mut random = Random::new(seed);
        for (op, mut case) in cases(&mut random) {
            case.by = MatmulBackend::Library;
            if matches!(case.dtype, DType::F64 | DType::U8) {
                (case.bias, case.activation) = (None, None);
            }
            // Libraries know matrices with a dimension without gaps; cuBLASLt does not say which products of bytes it has.
            let known = case.size[2] > 0 && case.kinds.iter().all(|kind| *kind != "every other");
            if known && op != "matmul large" && (case.dtype != DType::U8 || library == "rocBLAS") {
                table.note(library, case.dtype, run(suite, &case, &mut random));
            }
            // These it has.
            if case.dtype == DType::U8 && case.batch.is_empty() && case.size.iter().all(|size| *size > 0) {
                let size = case.size.map(|size| size.next_multiple_of(16));
                let case = Case { size, kinds: ["padded rows", "padded columns", "padded rows"], factors: (1.0, 0.0), ..case };
                table.note(library, case.dtype, run(suite, &case, &mut random));
            }
        }
    });
}

/// No virtual device has rocBLAS: what stands in for it sees that the arguments are in their order, and computes what they say.
#[test]
fn rocblas_calls_match_its_header() {
    let library = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("librocblas-stand-in.so");
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/matrix/rocblas.c");
    let compile = |compiler: &str| {
        let built = Command::new(compiler).args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).output();
        built.is_ok_and(|built| built.status.success())
    };
    if !require(["cc", "gcc", "clang", "clang-19"].into_iter().any(compile), "a C compiler with _Float16") {
        return;
    }
    let test = "matrix::library_products_agree_with_the_reference";
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).env("WARPWAVE_ROCBLAS_LIB", &library).output().unwrap();
    let (log, results) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success() && results.contains("1 passed"), "{results}\n{log}");
    assert!(log.contains("vgpu:gfx90a: rocBLAS") || !log.contains("vgpu:gfx90a"), "{log}");
}
