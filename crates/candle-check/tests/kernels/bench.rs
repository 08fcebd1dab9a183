//! The device, the compiled kernels, their buffers, and the comparison of results.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use candle_core::{DType, Device as Cpu, Tensor};
use warpwave_gpu::{Arg, Buffer, Device, Driver, Kernel, Launch, Module, Stream, Vendor};
use warpwave_jit::{CompilerChoice, Jit, KernelSource};
use warpwave_test_support::{full_run, require, seed};

use crate::types::{Near, Ty};

pub type Checked<T = ()> = Result<T, Box<dyn Error>>;

/// How to check one kernel.
pub type Plan = Box<dyn Fn(&mut Bench, &Kernel) -> Checked>;

/// The virtual GPUs of which the families run on one by default, as a seed selects.
const DEVICES: [&str; 3] = ["gfx90a", "gfx1030", "gfx1100"];

/// Fills outputs before a kernel runs. No reference consists of this byte only.
const POISON: u8 = 0xA5;

/// Guard bytes around each output.
const GUARD: usize = 256;

/// SplitMix64. The seed is printed; `WARPWAVE_SEED` repeats it.
pub struct Random(u64);

impl Random {
    fn new() -> Random {
        Random(seed())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// Returns a number in `low..high`.
    pub fn float(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * ((self.next() >> 11) as f64 / (1u64 << 53) as f64)
    }

    /// Returns a number in `low..=high`.
    pub fn int(&mut self, low: i64, high: i64) -> f64 {
        (low + (self.next() % (high - low + 1) as u64) as i64) as f64
    }
}

/// The memory layout of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Contiguous, from the start of its memory.
    Plain,
    /// Contiguous, at an odd offset.
    Offset,
    /// Last two axes transposed, with gaps and an offset.
    Strided,
    /// One row broadcast to many.
    Repeated,
}

/// A tensor on the device, and the same for candle on the CPU.
pub struct Input {
    pub ty: Ty,
    pub tensor: Tensor,
    memory: Buffer<u8>,
}

impl Input {
    pub fn dims(&self) -> &[usize] {
        self.tensor.dims()
    }

    /// Returns dimensions and strides, as the kernels take them.
    pub fn info(&self) -> Vec<usize> {
        [self.tensor.dims(), self.tensor.stride()].concat()
    }

    pub fn len(&self) -> usize {
        self.tensor.elem_count()
    }

    /// Returns the elements in order.
    pub fn values(&self) -> Checked<Vec<f64>> {
        values(&self.tensor)
    }

    fn address(&self) -> u64 {
        self.memory.device_ptr() + (self.tensor.layout().start_offset() * self.ty.bytes()) as u64
    }
}

/// An output buffer.
pub struct Output {
    pub ty: Ty,
    bytes: usize,
    memory: Buffer<u8>,
}

/// A kernel argument.
pub enum A<'a> {
    In(&'a Input),
    Bytes(&'a Buffer<u8>),
    Out(&'a Output),
    Null,
    Size(usize),
    Int(usize),
    Long(i64),
    Single(f32),
    Double(f64),
    Bool(bool),
    Val(Ty, f64),
    Info(Vec<usize>),
}

pub struct Bench {
    stream: Stream,
    module: Module,
    pub random: Random,
}

impl Bench {
    /// Creates a tensor of random elements.
    pub fn input(&mut self, ty: Ty, dims: &[usize], form: Form, mut element: impl FnMut(&mut Random) -> f64) -> Checked<Input> {
        let mut base = dims.to_vec();
        let last = base.len() - 1;
        match form {
            Form::Plain => {}
            Form::Offset => base = vec![dims.iter().product::<usize>() + 3],
            Form::Strided if last == 0 => base = vec![dims[0], 2],
            Form::Strided => {
                base.swap(last - 1, last);
                base[last] += 2;
                base[0] += 1;
            }
            Form::Repeated => base[0] = 1,
        }
        let count: usize = base.iter().product();
        let values: Vec<f64> = (0..count).map(|_| ty.round(element(&mut self.random))).collect();
        let memory = self.stream.upload(&ty.encode(&values))?;
        let whole = Tensor::from_vec(values, base, &Cpu::Cpu)?.to_dtype(ty.reference())?;
        let tensor = match form {
            Form::Plain => whole,
            Form::Offset => whole.narrow(0, 3, dims.iter().product())?.reshape(dims)?,
            Form::Strided if last == 0 => whole.narrow(1, 1, 1)?.squeeze(1)?,
            Form::Strided => {
                let first = whole.dim(0)? - 1;
                whole.narrow(0, 1, first)?.narrow(last, 1, dims[last - 1])?.transpose(last - 1, last)?
            }
            Form::Repeated => whole.broadcast_as(dims)?,
        };
        if tensor.dims() != dims {
            return Err(format!("the input has the shape {:?} in place of {dims:?}", tensor.dims()).into());
        }
        Ok(Input { ty, tensor, memory })
    }

    /// Creates a tensor of these elements.
    pub fn input_of(&mut self, ty: Ty, dims: &[usize], form: Form, values: &[f64]) -> Checked<Input> {
        if !matches!(form, Form::Plain | Form::Offset) {
            return Err("given elements have no gaps".into());
        }
        let mut pad = if form == Form::Offset { 3 } else { 0 };
        let mut rest = values.iter();
        self.input(ty, dims, form, |_| {
            if pad > 0 {
                pad -= 1;
                return 1.0;
            }
            rest.next().copied().unwrap_or(0.0)
        })
    }

    pub fn upload(&self, bytes: &[u8]) -> Checked<Buffer<u8>> {
        Ok(self.stream.upload(bytes)?)
    }

    pub fn output(&self, ty: Ty, len: usize) -> Checked<Output> {
        self.output_holding(ty, &vec![POISON; len * ty.bytes()])
    }

    /// Creates an output that the kernel accumulates into.
    pub fn output_of(&self, ty: Ty, values: &[f64]) -> Checked<Output> {
        self.output_holding(ty, &ty.encode(values))
    }

    fn output_holding(&self, ty: Ty, bytes: &[u8]) -> Checked<Output> {
        let guard = [POISON; GUARD];
        Ok(Output { ty, bytes: bytes.len(), memory: self.stream.upload(&[&guard[..], bytes, &guard[..]].concat())? })
    }

    pub fn kernel(&self, name: &str) -> Checked<Kernel> {
        Ok(self.module.kernel(name)?)
    }

    /// Launches a kernel and waits for it.
    pub fn run(&self, kernel: &Kernel, launch: Launch, arguments: &[A<'_>]) -> Checked {
        let mut kept = Vec::new();
        let mut bytes = Vec::new();
        for argument in arguments {
            bytes.push(match argument {
                A::In(input) => input.address().to_le_bytes().to_vec(),
                A::Bytes(buffer) => buffer.device_ptr().to_le_bytes().to_vec(),
                A::Out(output) => output.address().to_le_bytes().to_vec(),
                A::Null => vec![0; 8],
                A::Size(n) => n.to_le_bytes().to_vec(),
                A::Int(n) => i32::try_from(*n)?.to_le_bytes().to_vec(),
                A::Long(n) => n.to_le_bytes().to_vec(),
                A::Single(x) => x.to_le_bytes().to_vec(),
                A::Double(x) => x.to_le_bytes().to_vec(),
                A::Bool(b) => vec![u8::from(*b)],
                A::Val(ty, x) => ty.encode(&[*x]),
                A::Info(info) => {
                    let buffer = self.stream.upload(info)?;
                    let address = buffer.device_ptr().to_le_bytes().to_vec();
                    kept.push(buffer);
                    address
                }
            });
        }
        let arguments: Vec<Arg<'_>> = bytes.iter().map(|bytes| Arg::bytes(bytes)).collect();
        // SAFETY: the arguments are those that the kernel's source declares, and their memory lives until the stream is done.
        unsafe { kernel.launch(&self.stream, launch, &arguments[..]) }?;
        self.stream.synchronize()?;
        Ok(())
    }

    /// Returns the bytes that a kernel wrote, after checking the guards.
    pub fn read_bytes(&self, output: &Output) -> Checked<Vec<u8>> {
        let all = self.stream.download(&output.memory)?;
        let (before, rest) = all.split_at(GUARD);
        let (inside, after) = rest.split_at(output.bytes);
        if before.iter().chain(after).any(|byte| *byte != POISON) {
            return Err("it wrote outside of its output".into());
        }
        Ok(inside.to_vec())
    }

    pub fn read(&self, output: &Output) -> Checked<Vec<f64>> {
        Ok(output.ty.decode(&self.read_bytes(output)?))
    }

    /// Compares a kernel's output with the reference.
    pub fn compare(&self, what: &str, output: &Output, wanted: &Tensor, near: Near) -> Checked {
        self.compare_each(what, output, &values(wanted)?, |_| near)
    }

    /// Compares with a tolerance for each element.
    pub fn compare_each(&self, what: &str, output: &Output, wanted: &[f64], near: impl Fn(usize) -> Near) -> Checked {
        let got = self.read(output).map_err(|error| format!("{what}: {error}"))?;
        if got.len() != wanted.len() {
            return Err(format!("{what}: {} elements, the reference has {}", got.len(), wanted.len()).into());
        }
        let wrong: Vec<usize> = (0..got.len()).filter(|i| !near(*i).accepts(output.ty, got[*i], wanted[*i])).collect();
        let Some(first) = wrong.first() else { return Ok(()) };
        let shown: Vec<String> = wrong.iter().take(4).map(|i| format!("[{i}] is {:e}, not {:e}", got[*i], wanted[*i])).collect();
        let n = got.len();
        Err(format!("{what}: {} of {n} elements are wrong ({:?} asked for): {}", wrong.len(), near(*first), shown.join(", ")).into())
    }
}

impl Output {
    fn address(&self) -> u64 {
        self.memory.device_ptr() + GUARD as u64
    }
}

/// Returns a tensor's elements in order.
pub fn values(tensor: &Tensor) -> Checked<Vec<f64>> {
    // candle 0.11.1 does not terminate when it converts fp8 to doubles.
    let single = if tensor.dtype() == DType::F8E4M3 { &tensor.to_dtype(DType::F32)? } else { tensor };
    Ok(single.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?)
}

/// Returns candle's launch for elementwise kernels: a thread per element, blocks of 1024.
pub fn wide(elements: usize) -> Launch {
    Launch::for_elements(elements, 1024)
}

/// Returns a launch with fewer threads than elements, so that grid-stride loops iterate.
pub fn narrow(elements: usize) -> Launch {
    Launch::for_elements(elements.div_ceil(3), 64)
}

/// Returns the folder of candle's kernels, from cargo's cache or the registry. They are only read.
fn sources() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(find_sources).as_deref()
}

fn find_sources() -> Option<PathBuf> {
    let folder = tempfile::tempdir().ok()?;
    let manifest = "[package]\nname = \"probe\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[dependencies]\n\
        candle-kernels = { version = \"=0.11.1\", optional = true }\n[workspace]\n";
    std::fs::create_dir(folder.path().join("src")).ok()?;
    std::fs::write(folder.path().join("src/lib.rs"), "").ok()?;
    std::fs::write(folder.path().join("Cargo.toml"), manifest).ok()?;
    let cargo = |args: &[&str]| {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        Command::new(program).args(args).current_dir(folder.path()).output().ok().filter(|output| output.status.success())
    };
    cargo(&["fetch", "--offline"]).or_else(|| cargo(&["fetch"]))?;
    let output = cargo(&["metadata", "--offline", "--all-features", "--format-version", "1"])?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let package = metadata["packages"].as_array()?.iter().find(|p| p["name"] == "candle-kernels")?;
    Some(Path::new(package["manifest_path"].as_str()?).parent()?.join("src"))
}

/// Returns the virtual GPUs to run on: one that a seed selects, or all.
fn devices() -> Vec<Device> {
    static DRIVER: OnceLock<Arc<Driver>> = OnceLock::new();
    let start = || {
        let names = warpwave_vgpu::hip::Config::from_env().expect("the virtual GPU's settings are right").names();
        // SAFETY: the virtual GPU's functions have the shapes of HIP's, which the table's rows declare.
        unsafe { Driver::in_process("vgpu", Vendor::Amd, warpwave_vgpu::hip::lookup, Some(names)) }.expect("the virtual GPU starts")
    };
    let driver = DRIVER.get_or_init(start);
    let names = driver.device_names();
    let all = full_run() || std::env::var_os("WARPWAVE_VGPU_DEVICES").is_some();
    let one = DEVICES[seed() as usize % DEVICES.len()];
    let wanted = |name: &String| all || name.strip_prefix("vgpu:") == Some(one);
    let devices: Vec<Device> =
        (0..names.len()).filter(|i| wanted(&names[*i])).map(|i| driver.device(i).expect("the device opens")).collect();
    assert!(!devices.is_empty(), "{one} is not among {names:?}");
    devices
}

/// Prints why the tests are skipped; fails if nothing may be skipped.
fn skip(missing: &str) {
    require(false, missing);
}

/// Runs the kernels of a file: each once, or with `WARPWAVE_TEST_FULL=1` several times on each virtual GPU.
pub fn family(file: &str, plan: fn(&str) -> Option<Plan>) {
    let Some(folder) = sources() else { return skip("the crate candle-kernels 0.11.1, in cargo's cache or the registry") };
    let jit = Jit::default();
    if let Err(error) = jit.toolchains().choose(&DEVICES[0].parse().expect("a target"), CompilerChoice::Clang) {
        return skip(&format!("clang for the virtual GPU: {error}"));
    }
    let source = KernelSource::from_file(folder.join(file).with_extension("cu")).expect("the source is readable");
    // The newest `__CUDA_ARCH__`, so that no kernel is excluded.
    let source = source.define("WARPWAVE_CUDA_ARCH", "900");
    let failed: Vec<String> = devices().iter().flat_map(|device| family_on(device, file, &jit, &source, plan)).collect();
    assert!(failed.is_empty(), "{file}: {} kernels are wrong:\n{}", failed.len(), failed.join("\n"));
}

/// Returns the kernels that fail on this device.
fn family_on(device: &Device, file: &str, jit: &Jit, source: &KernelSource, plan: fn(&str) -> Option<Plan>) -> Vec<String> {
    let module = jit.load(device, source).unwrap_or_else(|error| panic!("{file}: {error}"));
    let names: Vec<String> = module.kernel_names().into_iter().filter(|name| !name.starts_with("_Z")).collect();
    assert!(!names.is_empty(), "{file}: the code has no kernels");
    let mut bench = Bench { stream: device.stream().expect("a stream"), module, random: Random::new() };
    let only = std::env::var("WARPWAVE_TEST_KERNEL").ok();
    let rounds = if full_run() { 10 } else { 1 };
    let (mut run, mut unknown, mut failed) = (0, Vec::new(), Vec::new());
    for name in &names {
        let Some(plan) = plan(name) else {
            unknown.push(name);
            continue;
        };
        if only.as_ref().is_some_and(|part| !name.contains(part)) {
            continue;
        }
        run += 1;
        let kernel = bench.kernel(name);
        let outcome = kernel.and_then(|kernel| (0..rounds).try_for_each(|_| plan(&mut bench, &kernel)));
        failed.extend(outcome.err().map(|error| format!("  {} {name}: {error}", device.name())));
    }
    let there = names.len();
    println!("{}: {file}: {run} / {there} kernels run, {} right", device.name(), run - failed.len());
    if !unknown.is_empty() {
        println!("{file}: without a check, for no rule knows their names: {unknown:?}");
    }
    assert!(only.is_some() || run * 100 >= there * 95, "{file}: only {run} of {there} kernels ran");
    failed
}
