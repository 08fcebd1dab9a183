//! The example kernels on every real GPU of the machine and on the virtual ones, against results computed here; and the whole way from source to
//! loaded module on fake devices of both vendors, with the real compilers.

mod common;

use common::{example, jit, temporary_jit, virtual_devices};
use warpwave_gpu::fake::Fake;
use warpwave_gpu::{Device, Devices, Error, Launch, Stream};
use warpwave_jit::cache::Outcome;
use warpwave_jit::{CompilerChoice, Jit, JitError, KernelSource, Target};

fn on_every_gpu(test: impl Fn(&Jit, &Device, &Stream)) {
    let jit = jit();
    let mut devices = Devices::hardware().physical();
    devices.extend(virtual_devices().into_iter().map(Ok));
    for device in devices {
        let device = device.unwrap();
        eprintln!("on {} ({})", device.name(), device.info().model);
        test(&jit, &device, &device.stream().unwrap());
    }
}

/// Numbers that differ from run to run; the seed is printed.
fn random(n: usize) -> Vec<f32> {
    use std::hash::{BuildHasher, Hasher};
    let mut state = std::hash::RandomState::new().build_hasher().finish();
    eprintln!("  seed {state}");
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z >> 40) as f32 / (1u64 << 24) as f32).mul_add(2.0, -1.0)
    };
    (0..n).map(|_| next()).collect()
}

#[test]
fn vector_add_and_saxpy_are_right() {
    on_every_gpu(|jit, device, stream| {
        let add = jit.load(device, &example("vector_add.cu")).unwrap().kernel("vector_add").unwrap();
        let saxpy = jit.load(device, &example("saxpy.cu")).unwrap().kernel("saxpy").unwrap();
        for n in [1usize, 63, 64, 65, 1000, 1 << 20] {
            let (a, b) = (random(n), random(n));
            let (x, mut y) = (stream.upload(&a).unwrap(), stream.upload(&b).unwrap());
            let mut sum = stream.alloc::<f32>(n).unwrap();
            // SAFETY: the types are the kernels', and they stay within n elements.
            unsafe {
                add.launch(stream, Launch::for_elements(n, 256), (&x, &y, &mut sum, n as i32)).unwrap();
                saxpy.launch(stream, Launch::new([7, 1, 1], [128, 1, 1]), (1.5f32, &x, &mut y, n as i32)).unwrap();
            }
            let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
            assert!(stream.download(&sum).unwrap() == expected);
            let y = stream.download(&y).unwrap();
            assert!(y.iter().zip(a.iter().zip(&b)).all(|(y, (a, b))| (y - 1.5f32.mul_add(*a, *b)).abs() < 1e-6));
        }
    });
}

#[test]
fn block_reduce_sums_with_shuffles_of_the_devices_width() {
    on_every_gpu(|jit, device, stream| {
        let kernel = jit.load(device, &example("block_reduce.cu")).unwrap().kernel("block_reduce").unwrap();
        for (n, block) in [(1usize, 64u32), (1000, 64), (100_000, 256), (1 << 20, 1024)] {
            let data = random(n);
            let input = stream.upload(&data).unwrap();
            let mut out = stream.alloc_zeroed::<f32>(1).unwrap();
            // SAFETY: the types are the kernel's, and it stays within n elements and one.
            unsafe { kernel.launch(stream, Launch::new([32, 1, 1], [block, 1, 1]), (&input, &mut out, n as i32)).unwrap() };
            let expected: f64 = data.iter().map(|x| f64::from(*x)).sum();
            let got = f64::from(stream.download(&out).unwrap()[0]);
            assert!((got - expected).abs() <= 1e-6 * n as f64, "{n}: {got} instead of {expected}");
        }
    });
}

/// Fusing multiplications with additions is for the user's code: within a mathematical library it spoils numbers that are carried in
/// two parts.
#[test]
fn functions_are_accurate_though_products_and_sums_are_fused() {
    const SOURCE: &str = r#"
extern "C" __global__ void functions(const float* x, float* exponential, const double* y, double* tangent, float* fused, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    exponential[i] = expf(x[i]);
    tangent[i] = tanh(y[i]);
    fused[i] = x[i] * x[i] - 1.0f;
}
"#;
    on_every_gpu(|jit, device, stream| {
        let source = KernelSource::from_text("functions.cu", SOURCE).unwrap();
        let kernel = jit.load(device, &source).unwrap().kernel("functions").unwrap();
        let n = 4096;
        let x: Vec<f32> = random(n).into_iter().map(|x| 80.0 * x).collect();
        let y: Vec<f64> = random(n).into_iter().map(|y| f64::from(y) * 1e-3).collect();
        let (from_x, from_y) = (stream.upload(&x).unwrap(), stream.upload(&y).unwrap());
        let mut exponential = stream.alloc::<f32>(n).unwrap();
        let mut tangent = stream.alloc::<f64>(n).unwrap();
        let mut fused = stream.alloc::<f32>(n).unwrap();
        let arguments = (&from_x, &mut exponential, &from_y, &mut tangent, &mut fused, n as i32);
        // SAFETY: the types are the kernel's, and it stays within n elements.
        unsafe { kernel.launch(stream, Launch::for_elements(n, 256), arguments).unwrap() };
        for (x, got) in x.iter().zip(stream.download(&exponential).unwrap()) {
            let right = f64::from(*x).exp();
            assert!((f64::from(got) - right).abs() <= 2.0 * f64::from(f32::EPSILON) * right, "exp({x}) is {got:e}, not {right:e}");
        }
        for (y, got) in y.iter().zip(stream.download(&tangent).unwrap()) {
            let right = y.tanh();
            assert!((got - right).abs() <= 4.0 * f64::EPSILON * right.abs(), "tanh({y}) is {got:e}, not {right:e}");
        }
        for (x, got) in x.iter().zip(stream.download(&fused).unwrap()) {
            assert_eq!(got, x.mul_add(*x, -1.0), "{x} squared less one is rounded twice");
        }
    });
}

#[test]
fn shared_memory_atomics_halves_and_templates_are_right() {
    on_every_gpu(|jit, device, stream| {
        let n = 10_007;
        let data = random(n);
        let input = stream.upload(&data).unwrap();

        let mean = jit.load(device, &example("shared_memory_mean.cu")).unwrap().kernel("mean3").unwrap();
        let mut out = stream.alloc::<f32>(n).unwrap();
        // SAFETY: the types are the kernels', and they stay within their buffers, here and below.
        unsafe { mean.launch(stream, Launch::for_elements(n, 256), (&input, &mut out, n as i32)).unwrap() };
        let out = stream.download(&out).unwrap();
        let at = |i: isize| data[i.clamp(0, n as isize - 1) as usize];
        assert!((0..n as isize).all(|i| (out[i as usize] - (at(i - 1) + at(i) + at(i + 1)) / 3.0).abs() < 1e-6));

        let histogram = jit.load(device, &example("histogram.cu")).unwrap().kernel("histogram").unwrap();
        let bytes: Vec<u8> = data.iter().map(|x| (x.to_bits() >> 7) as u8).collect();
        let input_bytes = stream.upload(&bytes).unwrap();
        let mut bins = stream.alloc_zeroed::<u32>(256).unwrap();
        // SAFETY: as above.
        unsafe { histogram.launch(stream, Launch::new([13, 1, 1], [192, 1, 1]), (&input_bytes, &mut bins, n as i32)).unwrap() };
        let mut expected = vec![0u32; 256];
        bytes.iter().for_each(|b| expected[usize::from(*b)] += 1);
        assert_eq!(stream.download(&bins).unwrap(), expected);

        let axpy = jit.load(device, &example("half_axpy.cu")).unwrap().kernel("half_axpy").unwrap();
        let halves: Vec<half::f16> = data[..10_000].iter().map(|x| half::f16::from_f32(*x)).collect();
        let x = stream.upload(&halves).unwrap();
        let mut y = stream.upload(&halves).unwrap();
        // SAFETY: as above.
        unsafe { axpy.launch(stream, Launch::for_elements(5000, 128), (half::f16::from_f32(0.5), &x, &mut y, 5000i32)).unwrap() };
        let y = stream.download(&y).unwrap();
        assert!(y.iter().zip(&halves).all(|(y, x)| (y.to_f32() - 1.5 * x.to_f32()).abs() < 2e-3));

        let templates = jit.load(device, &example("templates.cu")).unwrap();
        let error = templates.kernel("map").err().unwrap();
        assert!(matches!(&error, Error::NotInModule { available, .. } if available.len() == 4), "{error}");
        let add_one = templates.kernel("ns::add_one").unwrap();
        let mut buffer = stream.upload(&data).unwrap();
        // SAFETY: as above.
        unsafe { add_one.launch(stream, Launch::for_elements(n, 256), (&mut buffer, n as i32)).unwrap() };
        assert!(stream.download(&buffer).unwrap().iter().zip(&data).all(|(y, x)| *y == x + 1.0));
    });
}

#[test]
fn the_drivers_parameters_are_those_we_read_in_the_file() {
    on_every_gpu(|jit, device, stream| {
        // Twelve parameters of mixed sizes, a struct by value among them.
        let text = "struct Pair { double a; char b; };\n\
            extern \"C\" __global__ void many(char a, short b, int c, long long d, float e, double f, Pair g, void* h, bool i, char j, char k, int* out) { *out = c + g.b; }\n";
        let source = KernelSource::from_text("many.cu", text).unwrap();
        let module = jit.load(device, &source).unwrap();
        let sizes: Vec<u32> = module.code().unwrap().find("many").unwrap().explicit_args().map(|arg| arg.size).collect();
        assert_eq!(sizes, [1, 2, 4, 8, 4, 8, 16, 8, 1, 1, 1, 8]);
        let kernel = module.kernel("many").unwrap();
        let mut out = stream.alloc_zeroed::<i32>(1).unwrap();
        let pair = [1.0f64.to_bits(), 5];
        // SAFETY: the types are the kernel's, and it writes one element.
        unsafe {
            let args = (1i8, 2i16, 30i32, 4i64, 5.0f32, 6.0f64, warpwave_gpu::Arg::value(&pair), 0u64, true, 7i8, 8i8, &mut out);
            kernel.launch(stream, Launch::for_elements(1, 1), args).unwrap();
        }
        assert_eq!(stream.download(&out).unwrap(), [35]);
    });
}

#[test]
fn wrong_arguments_are_caught_before_the_driver() {
    on_every_gpu(|jit, device, stream| {
        let kernel = jit.load(device, &example("vector_add.cu")).unwrap().kernel("vector_add").unwrap();
        let buffer = stream.alloc::<f32>(4).unwrap();
        let launch = Launch::for_elements(4, 4);
        // SAFETY: refused before it runs.
        let few = unsafe { kernel.launch(stream, launch, (&buffer, &buffer)) };
        // SAFETY: refused before it runs.
        let wide = unsafe { kernel.launch(stream, launch, (&buffer, &buffer, &buffer, 4i64)) };
        for outcome in [few, wide] {
            assert!(matches!(outcome, Err(Error::ArgumentMismatch { .. })), "{outcome:?}");
        }
    });
}

#[test]
fn source_becomes_a_module_on_either_vendor_and_then_a_cache_hit() {
    for fake in [Fake::amd(), Fake::amd().card("gfx1100", "Radeon RX 7900 XTX"), Fake::nvidia(), Fake::amd().version(50_221_153)] {
        let fakes = fake.install();
        let device = fakes.driver().unwrap().device(0).unwrap();
        let target = Target::of(&device);
        let Some((jit, _folder)) = temporary_jit(&target) else { continue };
        fakes.kernel("vector_add", &[8, 8, 8, 4], |call| {
            let n = call.value::<i32>(3) as usize;
            // SAFETY: the buffers below have n elements.
            let (a, b, c) = unsafe { (call.memory::<f32>(0, n), call.memory::<f32>(1, n), call.memory::<f32>(2, n)) };
            c.iter_mut().zip(a.iter().zip(&*b)).for_each(|(c, (a, b))| *c = a + b);
        });
        let source = example("vector_add.cu");
        let built = jit.build(&source, &target, CompilerChoice::Auto).unwrap();
        assert_eq!(built.outcome, Outcome::Miss);
        let module = jit.load(&device, &source).unwrap();
        assert_eq!(module.code().unwrap().arch.base(), device.info().arch.base());
        let kernel = module.kernel("vector_add").unwrap();
        let stream = device.stream().unwrap();
        let x = stream.upload(&[1.0f32; 10]).unwrap();
        let mut sum = stream.alloc::<f32>(10).unwrap();
        // SAFETY: the types are the kernel's, and it stays within 10 elements.
        unsafe { kernel.launch(&stream, Launch::for_elements(10, 64), (&x, &x, &mut sum, 10i32)).unwrap() };
        assert_eq!(stream.download(&sum).unwrap(), [2.0; 10]);
        // The code object, not the fake, says what the parameters are.
        // SAFETY: refused before it runs.
        let error = unsafe { kernel.launch(&stream, Launch::for_elements(10, 64), (&x, &x, 10i32)) }.unwrap_err();
        assert!(matches!(error, Error::ArgumentMismatch { .. }), "{error}");
        let again = jit.build(&source, &target, CompilerChoice::Auto).unwrap();
        assert_eq!((again.outcome, again.key, &again.compiled.binary), (Outcome::Hit, built.key, &built.compiled.binary));
        fakes.clear_log();
        assert_eq!(jit.load(&device, &source).unwrap().kernel_names(), ["vector_add"]);
        assert!(!fakes.log().iter().any(|call| call.ends_with("ModuleLoadData")), "loaded twice");
    }
}

#[test]
fn code_of_another_architecture_is_refused_with_both_names() {
    let fakes = Fake::amd().install();
    let device = fakes.driver().unwrap().device(0).unwrap();
    let Some((jit, _folder)) = temporary_jit(&"gfx942".parse().unwrap()) else { return };
    let other = jit.build(&example("vector_add.cu"), &"gfx942".parse().unwrap(), CompilerChoice::Auto).unwrap();
    let error = warpwave_gpu::Module::load(&device, &other.compiled.binary).err().unwrap();
    assert!(matches!(&error, Error::BadModule { .. }), "{error}");
    assert!(error.to_string().contains("gfx942") && error.to_string().contains("gfx90a"), "{error}");
}

#[test]
fn the_key_changes_with_everything_the_code_depends_on() {
    let target: Target = "gfx90a".parse().unwrap();
    let Some((jit, folder)) = temporary_jit(&target) else { return };
    let header = folder.path().join("value.cuh");
    std::fs::write(&header, "#define VALUE 1\n").unwrap();
    let file = folder.path().join("k.cu");
    std::fs::write(&file, "#include \"value.cuh\"\nextern \"C\" __global__ void k(int* p) { *p = VALUE; }\n").unwrap();
    let key = |source: KernelSource, target: &str| jit.build(&source, &target.parse().unwrap(), CompilerChoice::Auto).unwrap().key;
    let read = || KernelSource::from_file(&file).unwrap();
    let mut keys = vec![
        key(read(), "gfx90a"),
        key(read(), "gfx90a:xnack-"),
        key(read(), "gfx908"),
        key(read().define("EXTRA", "1"), "gfx90a"),
        key(read().define("EXTRA", "2"), "gfx90a"),
        key(read().option("-DOTHER"), "gfx90a"),
    ];
    std::fs::write(&header, "#define VALUE 2\n").unwrap();
    keys.push(key(read(), "gfx90a"));
    let count = keys.len();
    keys.sort_by_key(ToString::to_string);
    keys.dedup();
    assert_eq!(keys.len(), count, "two different jobs had one key");
}

#[test]
fn a_source_that_needs_a_variant_gets_it_on_that_device_alone() {
    let source = KernelSource::from_text("w.cu", "// warpwave: needs sm_90a\nextern \"C\" __global__ void k() {}\n").unwrap();
    let of = |name: &str| name.parse::<Target>().unwrap().for_source(&source).to_string();
    assert_eq!([of("sm_90"), of("sm_80"), of("gfx90a")], ["sm_90a", "sm_80", "gfx90a"]);
}

#[test]
fn compile_errors_reach_the_caller_with_file_and_line() {
    let fakes = Fake::amd().install();
    let device = fakes.driver().unwrap().device(0).unwrap();
    let Some((jit, _folder)) = temporary_jit(&Target::of(&device)) else { return };
    let source = KernelSource::from_text("mine.cu", "\n\nextern \"C\" __global__ void k(int* p) { *p = undefined_name; }\n").unwrap();
    let error = jit.load(&device, &source).err().unwrap();
    assert!(matches!(error, JitError::Compile(_)));
    let text = error.to_string();
    assert!(text.contains("mine.cu:3:") && text.contains("undefined_name"), "{text}");
}
