//! `warpwave bench compile`: compile time and cache hits.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};
use warpwave_jit::cache::{Cache, Outcome as CacheOutcome};
use warpwave_jit::{CompilerChoice, Jit, KernelSource, Target};

use super::super::{Context, Failure, Outcome, failed};
use super::median;

/// Targets for a compilation, and for a cache hit from request to loaded module.
const COMPILE_LIMIT_MS: f64 = 5000.0;
const HIT_LIMIT_MS: f64 = 5.0;
const HIT_RUNS: usize = 9;

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave bench compile kernel.cu --device cuda:0")]
pub(super) struct Options {
    /// CUDA C++ source files; default: the embedded vector_add kernel.
    files: Vec<PathBuf>,
    /// Load the code on this device; without a GPU, compile for gfx90a and sm_90 without loading.
    #[arg(long, env = "WARPWAVE_DEVICE", default_value = "auto")]
    device: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Internal: measure one cache hit in this process, with this cache directory.
    #[arg(long, hide = true)]
    one_hit: Option<PathBuf>,
    /// Internal: target of that hit.
    #[arg(long, hide = true)]
    target: Option<Target>,
}

pub(super) fn run(context: &mut Context<'_>, options: &Options) -> Outcome {
    if let (Some(folder), Some(target)) = (&options.one_hit, &options.target) {
        return one_hit(context, options, folder.clone(), target);
    }
    let device = context.device(&options.device).ok();
    if device.is_none() && options.device != "auto" {
        context.device(&options.device)?;
    }
    let targets: Vec<Target> = match &device {
        Some(device) => vec![Target::of(device)],
        None => ["gfx90a", "sm_90"].iter().filter_map(|name| name.parse().ok()).collect(),
    };
    let folder = tempfolder()?;
    let jit = Jit::new(Cache::at(&folder, 1 << 30));
    let mut rows: Vec<Value> = Vec::new();
    let outcome = sources(options).and_then(|sources| {
        for (path, source) in &sources {
            for target in &targets {
                rows.push(measure(&jit, &folder, path.as_ref(), source, target, device.as_ref().map(|d| d.name()))?);
            }
        }
        Ok(())
    });
    let _ = std::fs::remove_dir_all(&folder);
    outcome?;
    if options.json {
        return context.print_json(&json!({ "device": device.map(|d| d.info().model.clone()), "rows": rows }));
    }
    writeln!(
        context.out,
        "{:28} {:24} {:>12} {:>25} {:>27}",
        "source", "target", "compile (ms)", "cache hit: load code (ms)", "cache hit: load module (ms)"
    )?;
    for row in &rows {
        let text = |key: &str| row[key].as_str().unwrap_or("-").to_owned();
        let number = |key: &str| row[key].as_f64().map_or_else(|| row[key].as_str().unwrap_or("-").to_owned(), |ms| format!("{ms:.2}"));
        writeln!(
            context.out,
            "{:28} {:24} {:>12} {:>25} {:>27}",
            text("source"),
            text("target"),
            number("compile_ms"),
            number("hit_code_ms"),
            number("hit_module_ms")
        )?;
    }
    writeln!(
        context.out,
        "compile <= {COMPILE_LIMIT_MS} ms and cache hit <= {HIT_LIMIT_MS} ms in a new process: {}",
        if rows.iter().all(|row| row["holds"] != json!(false)) { "met" } else { "MISSED" }
    )?;
    Ok(())
}

fn sources(options: &Options) -> Result<Vec<(Option<PathBuf>, KernelSource)>, Failure> {
    if options.files.is_empty() {
        return Ok(vec![(None, embedded_source()?)]);
    }
    options.files.iter().map(|path| Ok((Some(path.clone()), KernelSource::from_file(path)?))).collect()
}

fn embedded_source() -> Result<KernelSource, Failure> {
    Ok(KernelSource::from_text("vector_add.cu", include_str!("../../../../examples/kernels/vector_add.cu"))?)
}

fn measure(
    jit: &Jit,
    folder: &PathBuf,
    path: Option<&PathBuf>,
    source: &KernelSource,
    target: &Target,
    device: Option<&str>,
) -> Result<Value, Failure> {
    let name = source.name().rsplit('/').next().unwrap_or_default().to_owned();
    let target = (*target).for_source(source);
    let built = match jit.build(source, &target, CompilerChoice::Auto) {
        Ok(built) => built,
        Err(warpwave_jit::CompileError::NoCompiler(_)) => {
            return Ok(json!({ "source": name, "target": target.to_string(), "compile_ms": "no compiler" }));
        }
        Err(error) => return Err(error.into()),
    };
    let compile_ms = built.took.as_secs_f64() * 1e3;
    let (mut code, mut module) = (Vec::new(), Vec::new());
    for _ in 0..HIT_RUNS {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "compile", "--json", "--one-hit"]).arg(folder).args(["--target", &target.to_string()]);
        command.args(["--device", device.unwrap_or("cpu")]).args(path);
        let output = command.output()?;
        if !output.status.success() {
            return Err(failed(format!("loading from the cache in a new process failed: {}", String::from_utf8_lossy(&output.stderr))));
        }
        let answer: Value = serde_json::from_slice(&output.stdout)?;
        code.extend(answer["code_ms"].as_f64());
        module.extend(answer["module_ms"].as_f64());
    }
    let hit_code = median(code);
    let hit_module = (!module.is_empty()).then(|| median(module));
    let holds = compile_ms <= COMPILE_LIMIT_MS && hit_module.unwrap_or(hit_code) <= HIT_LIMIT_MS;
    Ok(
        json!({ "source": name, "target": target.to_string(), "compile_ms": compile_ms, "hit_code_ms": hit_code, "hit_module_ms": hit_module, "holds": holds }),
    )
}

fn one_hit(context: &mut Context<'_>, options: &Options, folder: PathBuf, target: &Target) -> Outcome {
    // Open the device first: creating its context is not part of the measurement.
    let device = if options.device == "cpu" { None } else { Some(context.device(&options.device)?) };
    let start = Instant::now();
    let jit = Jit::new(Cache::at(folder, 1 << 30));
    let source = options.files.first().map_or_else(embedded_source, |path| Ok(KernelSource::from_file(path)?))?;
    let built = jit.build(&source, target, CompilerChoice::Auto)?;
    let code_ms = start.elapsed().as_secs_f64() * 1e3;
    if built.outcome != CacheOutcome::Hit {
        return Err(failed("expected a cache hit, got a miss"));
    }
    let module_ms = match &device {
        None => None,
        Some(device) => {
            warpwave_gpu::Module::load(device, &built.compiled.binary)?;
            Some(start.elapsed().as_secs_f64() * 1e3)
        }
    };
    context.print_json(&json!({ "code_ms": code_ms, "module_ms": module_ms }))
}

fn tempfolder() -> Result<PathBuf, Failure> {
    let folder = std::env::temp_dir().join(format!("warpwave-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
