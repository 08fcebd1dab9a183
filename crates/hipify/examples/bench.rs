//! Times the translator on all sources under a folder, beside hipify-perl in the same run when it is given.
//!
//! `cargo run --release -p warpwave-hipify --example bench -- FOLDER [--perl PATH] [--rounds N]`; PATH is the script or a checkout of HIPIFY,
//! and comes from `HIPIFY_PERL` when it is not given.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use warpwave_hipify::lex::Lexed;
use warpwave_hipify::{LaunchSyntax, Options, hazard, kernels, names, translate, translate_lexed};

fn main() -> ExitCode {
    let (mut folder, mut perl, mut rounds) = (None, std::env::var("HIPIFY_PERL").ok(), 20u32);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--perl" => perl = words.next(),
            "--rounds" => rounds = words.next().and_then(|text| text.parse().ok()).unwrap_or(rounds).max(1),
            _ => folder = Some(PathBuf::from(word)),
        }
    }
    let Some(folder) = folder else {
        eprintln!("usage: bench FOLDER [--perl PATH] [--rounds N]");
        return ExitCode::from(2);
    };
    let mut files = Vec::new();
    collect(&folder, &mut files, 0);
    files.sort();
    let sources: Vec<Vec<u8>> = files.iter().filter_map(|file| std::fs::read(file).ok()).collect();
    let bytes: usize = sources.iter().map(Vec::len).sum();
    if bytes == 0 {
        eprintln!("error: no CUDA source under {}", folder.display());
        return ExitCode::FAILURE;
    }
    let options = Options { launch: LaunchSyntax::Call, ..Options::default() };
    let mut best = Duration::MAX;
    let (mut references, mut diagnostics) = (0, 0);
    for _ in 0..rounds {
        let start = Instant::now();
        (references, diagnostics) = (0, 0);
        for source in &sources {
            let translation = black_box(translate(black_box(source), &options));
            references += translation.stats.references();
            diagnostics += translation.diagnostics.len();
        }
        best = best.min(start.elapsed());
    }
    let speed = |time: Duration| bytes as f64 / 1e6 / time.as_secs_f64();
    println!("{} files, {bytes} bytes, {references} references, {diagnostics} diagnostics", sources.len());
    println!("warpwave-hipify, best of {rounds} rounds: {:.4} s, {:.1} MB/s", best.as_secs_f64(), speed(best));
    let mut all = Duration::MAX;
    let mut found = 0;
    for _ in 0..rounds {
        let start = Instant::now();
        found = sources.iter().map(|source| everything(source, &options)).sum();
        all = all.min(start.elapsed());
    }
    println!("with all diagnostics (32 lanes, PTX, intrinsics): {:.4} s, {:.1} MB/s, {found} diagnostics", all.as_secs_f64(), speed(all));
    println!("a lookup: {:.1} ns for names of no table, {:.1} ns for CUDA's", lookup(&FOREIGN), lookup(&CUDA));
    if let Some(perl) = perl {
        let checkout = Path::new(&perl).join("bin/hipify-perl");
        let perl = if checkout.is_file() { checkout } else { PathBuf::from(perl) };
        if !perl.is_file() {
            eprintln!("error: {}: no hipify-perl there", perl.display());
            return ExitCode::FAILURE;
        }
        let start = Instant::now();
        for file in &files {
            let run = Command::new("perl").arg(&perl).arg("-quiet-warnings").arg(file).output();
            if let Err(error) = run {
                eprintln!("error: perl {}: {error}", perl.display());
                return ExitCode::FAILURE;
            }
        }
        let time = start.elapsed();
        println!("hipify-perl, a process per file: {:.2} s, {:.3} MB/s", time.as_secs_f64(), speed(time));
        println!("ratio to hipify-perl in this run: {:.0}", time.as_secs_f64() / best.as_secs_f64());
    }
    ExitCode::SUCCESS
}

/// All that the command does with a file; how much it has to say.
fn everything(source: &[u8], options: &Options) -> usize {
    let Ok(lexed) = Lexed::new(source) else { return 0 };
    let translation = translate_lexed(&lexed, options);
    let half = kernels::translate_ptx(&lexed);
    if half.text != source {
        black_box(Lexed::new(&translation.output).map(|lexed| kernels::translate_ptx(&lexed)).ok());
    }
    let unknown = kernels::intrinsics::unknown(&lexed, &kernels::intrinsics::hip_has);
    translation.diagnostics.len() + hazard::check(&lexed).len() + half.diagnostics.len() + unknown.len()
}

const FOREIGN: [&str; 8] = ["i", "threadIdx", "current", "std", "blockDim", "float", "customers", "__syncthreads"];
const CUDA: [&str; 8] = [
    "cudaMalloc",
    "cudaMemcpyHostToDevice",
    "cuMemAlloc",
    "cublasSgemm",
    "CUDNN_STATUS_SUCCESS",
    "cudaStream_t",
    "cufftExecC2C",
    "cudaSuccess",
];

/// Nanoseconds for one name.
fn lookup(words: &[&str]) -> f64 {
    const ROUNDS: u32 = 1_000_000;
    let start = Instant::now();
    for _ in 0..ROUNDS {
        for word in words {
            black_box(names::find(black_box(word.as_bytes())));
        }
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS) / words.len() as f64
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>, depth: usize) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let cuda = path.extension().is_some_and(|end| ["cu", "cuh", "cpp", "h", "hpp"].iter().any(|known| end == *known));
        if path.is_dir() && depth < 32 {
            collect(&path, files, depth + 1);
        } else if cuda {
            files.push(path);
        }
    }
}
