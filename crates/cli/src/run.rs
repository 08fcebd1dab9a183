//! `warpwave run`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warpwave_gpu::code_object::{ArgKind, CodeKind};
use warpwave_gpu::{Arg, Buffer, Device, Event, Kernel, Launch, Module};
use warpwave_jit::Bundle;

use super::{Context, Failure, Outcome, compile, failed, inspect, usage};
use crate::array::{Array, format_values};
use crate::compare::compare;
use crate::npy;
use crate::spec::Spec;

#[derive(clap::Args)]
#[command(after_help = "Example:\n  warpwave run examples/kernels/vector_add.cu --kernel vector_add --grid 4 --block 256 \\\n    \
    --arg f32[1024]=iota --arg f32[1024]=ones --arg f32[1024]=zeros --arg i32:1024 --print 8\n\n\
    SPEC is a scalar (f32:2.5, i32:-7, u64:0xff, bool:true) or a buffer TYPE[SHAPE]=INIT, where INIT is zeros, ones, iota, \
    iota(START,STEP), rand(SEED), rand(SEED,LO,HI), a value or @file.npy. Types: u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64 f8e4m3 f8e5m2 bool.")]
pub(super) struct Args {
    /// CUDA C++ source or compiled code (.hsaco, .cubin, .ptx, .wwb); default: the embedded vector_add kernel.
    file: Option<PathBuf>,
    /// Launch this kernel.
    #[arg(long, short)]
    kernel: String,
    /// Set the grid size in blocks, as X[,Y[,Z]].
    #[arg(long, short, value_parser = extent)]
    grid: [u32; 3],
    /// Set the block size in threads, as X[,Y[,Z]].
    #[arg(long, short, value_parser = extent)]
    block: [u32; 3],
    /// Set the dynamic shared memory size in bytes.
    #[arg(long, default_value_t = 0)]
    shared: u32,
    /// Run on this device: cuda:0, rocm:1, vgpu:gfx90a (virtual), or auto (the first GPU found).
    #[arg(long, env = "WARPWAVE_DEVICE", default_value = "auto")]
    device: String,
    /// Also run on this device and compare all buffers.
    #[arg(long)]
    compare: Option<String>,
    /// Set the tolerance for --compare: |result - compared| <= TOL * (1 + |compared|).
    #[arg(long, default_value_t = 1e-5, requires = "compare")]
    tol: f64,
    /// Pass a kernel argument (SPEC: see below); repeat in parameter order.
    #[arg(long = "arg", short, value_name = "SPEC", allow_hyphen_values = true)]
    args: Vec<String>,
    /// Save buffer argument I (0-based) to a .npy file after the run.
    #[arg(long, value_name = "I=FILE.npy", value_parser = save)]
    save: Vec<(usize, PathBuf)>,
    /// Print the first N elements of each buffer after the run.
    #[arg(long, value_name = "N")]
    print: Option<usize>,
    /// Time the kernel: median of 20 launches after a warm-up.
    #[arg(long)]
    time: bool,
    /// Add an include directory.
    #[arg(long, short = 'I')]
    include: Vec<PathBuf>,
    /// Define a macro: NAME or NAME=VALUE.
    #[arg(long, short = 'D')]
    define: Vec<String>,
    /// Print the HIP translation of the source.
    #[arg(long, conflicts_with = "json")]
    show_hip: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn extent(text: &str) -> Result<[u32; 3], String> {
    let mut all = [1; 3];
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 3 {
        return Err("expected at most three values: X,Y,Z".to_owned());
    }
    for (slot, part) in all.iter_mut().zip(parts) {
        *slot = part.trim().parse().map_err(|_| format!("expected an integer from 1 to {}, got `{part}`", u32::MAX))?;
        if *slot == 0 {
            return Err("every dimension must be at least 1".to_owned());
        }
    }
    Ok(all)
}

fn save(text: &str) -> Result<(usize, PathBuf), String> {
    let (index, file) = text.split_once('=').ok_or("expected I=FILE.npy")?;
    let index = index.parse().map_err(|_| format!("expected an argument index, got `{index}`"))?;
    if file.is_empty() { Err("expected I=FILE.npy".to_owned()) } else { Ok((index, file.into())) }
}

/// A kernel argument with its data.
enum Input {
    Scalar(Vec<u8>),
    Buffer(Array),
}

/// Results of a run on one device.
struct Results {
    device: Device,
    arrays: Vec<Option<Array>>,
    milliseconds: Option<f64>,
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    let specs: Vec<Spec> =
        args.args.iter().map(|text| Spec::parse(text).map_err(|error| usage(error.to_string()))).collect::<Result<_, _>>()?;
    for (index, _) in &args.save {
        if !matches!(specs.get(*index), Some(Spec::Buffer(_))) {
            return Err(usage(format!(
                "--save {index}=...: argument {index} is not a buffer ({} arguments given; indices start at 0)",
                specs.len()
            )));
        }
    }
    let code = Code::open(args)?;
    let inputs: Vec<Input> = specs.iter().map(input).collect::<Result<_, _>>()?;
    let device = context.device(&args.device)?;
    let first = run_on(context, &device, args, &code, &inputs)?;
    let mut report = vec![format!("{} on {} ({})", args.kernel, first.device.name(), first.device.info().model)];
    let mut value = json!({ "kernel": args.kernel, "device": first.device.name(), "model": first.device.info().model, "milliseconds": first.milliseconds });
    if let Some(ms) = first.milliseconds {
        report.push(format!("median of 20 launches: {ms:.4} ms"));
    }
    if let Some(n) = args.print {
        for (index, array) in buffers(&first) {
            report.push(format!("  {index}: {}", format_values(array, n)));
        }
    }
    for (index, path) in &args.save {
        let array = first.arrays.get(*index).and_then(Option::as_ref).ok_or_else(|| failed("internal error: missing result buffer"))?;
        npy::write_file(path, array)?;
        report.push(format!("  {index}: saved to {}", path.display()));
    }
    value["buffers"] = buffers(&first)
        .map(|(index, array)| {
            let head: Vec<String> = array.iter().take(args.print.unwrap_or(8)).map(|scalar| scalar.to_string()).collect();
            json!({ "arg": index, "type": array.dtype.name(), "shape": array.shape, "head": head })
        })
        .collect::<Vec<Value>>()
        .into();
    let mut differ = None;
    if let Some(name) = &args.compare {
        let other = context.device(name)?;
        let second = run_on(context, &other, args, &code, &inputs)?;
        let mut compared = Vec::new();
        for ((index, a), (_, b)) in buffers(&first).zip(buffers(&second)) {
            let comparison = compare(a, b, args.tol)?;
            report.push(format!("  {index}: {} vs {}: {comparison}", first.device.name(), second.device.name()));
            compared.push(json!({
                "arg": index, "match": comparison.is_match(), "mismatches": comparison.mismatches,
                "max_abs_diff": comparison.max_abs_diff, "max_rel_diff": comparison.max_rel_diff,
            }));
            if !comparison.is_match() {
                differ = Some(format!("{} and {} differ: argument {index}: {comparison}", first.device.name(), second.device.name()));
            }
        }
        value["compared_with"] = second.device.name().into();
        value["comparison"] = compared.into();
    }
    if args.json {
        context.print_json(&value)?;
    } else {
        writeln!(context.out, "{}", report.join("\n"))?;
    }
    differ.map_or(Ok(()), |message| Err(failed(message)))
}

fn buffers(results: &Results) -> impl Iterator<Item = (usize, &Array)> {
    results.arrays.iter().enumerate().filter_map(|(index, array)| Some((index, array.as_ref()?)))
}

fn input(spec: &Spec) -> Result<Input, Failure> {
    Ok(match spec {
        Spec::Scalar(scalar) => Input::Scalar(scalar.bytes().to_vec()),
        Spec::Buffer(buffer) => Input::Buffer(buffer.materialize()?),
    })
}

/// The code to run.
enum Code {
    Source(warpwave_jit::KernelSource),
    Bundle(Bundle),
    Binary(Vec<u8>),
}

impl Code {
    fn open(args: &Args) -> Result<Code, Failure> {
        let Some(path) = &args.file else { return Ok(Code::Bundle(inspect::embedded()?)) };
        let read = |path: &Path| std::fs::read(path).map_err(|error| failed(format!("{}: {error}", path.display())));
        match path.extension().and_then(|e| e.to_str()) {
            Some("wwb") => Ok(Code::Bundle(Bundle::from_bytes(&read(path)?)?)),
            Some("hsaco" | "cubin" | "ptx") => Ok(Code::Binary(read(path)?)),
            _ => Ok(Code::Source(compile::source(path, &args.include, &args.define)?)),
        }
    }

    fn load(&self, context: &mut Context<'_>, args: &Args, device: &Device) -> Result<Module, Failure> {
        Ok(match self {
            Code::Source(source) => {
                let mut printed = Ok(());
                let module = context.jit.clone().load_inspected(device, source, |built| {
                    printed = compile::print_notes(context, &built.compiled);
                    if args.show_hip && printed.is_ok() {
                        printed = compile::print_hip(context, &built.compiled);
                    }
                })?;
                printed?;
                module
            }
            Code::Bundle(bundle) => bundle.load(device)?,
            Code::Binary(bytes) => Module::load(device, bytes)?,
        })
    }
}

fn run_on(context: &mut Context<'_>, device: &Device, args: &Args, code: &Code, inputs: &[Input]) -> Result<Results, Failure> {
    let module = code.load(context, args, device)?;
    if let Some(object) = module.code() {
        object.find(&args.kernel)?;
    }
    let kernel = module.kernel(&args.kernel)?;
    check_kinds(&module, &kernel, inputs)?;
    let stream = device.stream()?;
    let mut memory: Vec<Option<Buffer<u8>>> = Vec::new();
    for input in inputs {
        memory.push(match input {
            Input::Scalar(_) => None,
            Input::Buffer(array) => Some(stream.upload(&array.bytes)?),
        });
    }
    let launch = Launch::new(args.grid, args.block).shared(args.shared);
    let arguments: Vec<Arg<'_>> = inputs
        .iter()
        .zip(&memory)
        .map(|(input, buffer)| match (input, buffer) {
            (Input::Scalar(bytes), _) => Arg::bytes(bytes),
            (_, Some(buffer)) => buffer.into(),
            (Input::Buffer(_), None) => Arg::bytes(&[]),
        })
        .collect();
    // SAFETY: the user chose the kernel and its arguments; their number and sizes are checked, and the driver reports invalid
    // accesses.
    let launch_kernel = || unsafe { kernel.launch(&stream, launch, arguments.as_slice()) };
    launch_kernel()?;
    stream.synchronize()?;
    let mut arrays = Vec::new();
    for (input, buffer) in inputs.iter().zip(&memory) {
        arrays.push(match (input, buffer) {
            (Input::Buffer(array), Some(buffer)) => Some(Array { bytes: stream.download(buffer)?, ..array.clone() }),
            _ => None,
        });
    }
    // After the download: further launches may change the buffers.
    let milliseconds = if args.time {
        let mut times = Vec::new();
        for _ in 0..20 {
            let (start, end) = (Event::new(device)?, Event::new(device)?);
            start.record(&stream)?;
            launch_kernel()?;
            end.record(&stream)?;
            end.synchronize()?;
            times.push(f64::from(start.elapsed_ms(&end)?));
        }
        times.sort_by(f64::total_cmp);
        Some(times[times.len() / 2])
    } else {
        None
    };
    Ok(Results { device: device.clone(), arrays, milliseconds })
}

/// Checks that buffers are passed to pointer parameters and scalars to value parameters, for AMD code, which records the kinds.
fn check_kinds(module: &Module, kernel: &Kernel, inputs: &[Input]) -> Outcome {
    let Some(code) = module.code().filter(|code| code.kind == CodeKind::Hsaco) else { return Ok(()) };
    let Some(info) = code.kernels.iter().find(|info| info.name == kernel.name()) else { return Ok(()) };
    for (index, (parameter, input)) in info.explicit_args().zip(inputs).enumerate() {
        match (&parameter.kind, input) {
            (ArgKind::GlobalBuffer, Input::Scalar(_)) => {
                return Err(usage(format!(
                    "argument {index} of `{}` is a pointer, but a scalar was given; use TYPE[N]=...",
                    kernel.name()
                )));
            }
            (ArgKind::ByValue, Input::Buffer(_)) => {
                return Err(usage(format!(
                    "argument {index} of `{}` is a {}-byte value, but a buffer was given; use TYPE:VALUE",
                    kernel.name(),
                    parameter.size
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_have_one_to_three_dimensions() {
        assert_eq!(extent("4"), Ok([4, 1, 1]));
        assert_eq!(extent("4, 5,6"), Ok([4, 5, 6]));
        for bad in ["", "0", "4,0", "1,2,3,4", "-1", "4294967296", "x", "1,,2"] {
            assert!(extent(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn save_takes_an_index_and_a_file() {
        assert_eq!(save("2=out.npy"), Ok((2, "out.npy".into())));
        for bad in ["2", "=x", "x=y", "2="] {
            assert!(save(bad).is_err(), "{bad}");
        }
    }
}
