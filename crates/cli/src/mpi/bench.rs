//! `warpwave mpi bench`: this library and the MPI library, interleaved in the same run.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use warpwave_allreduce::table::format_size;

use super::super::bench::median;
use super::super::plot::{self, Axes};
use super::super::{Context, Failure, Outcome, failed, usage};
use super::{Job, Launcher, MeasureArgs, algorithms};

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave mpi bench -n 2 --mpi openmpi --sizes 4-16m --plot allreduce.svg\n\n\
    Times are those of the slowest rank (median of interleaved runs). GB/s is the bus bandwidth: (bytes / time) x 2(n-1)/n. With --device, \
    the baselines copy to the host (pageable or pinned), call the MPI library and copy back. --csv prints \
    size_bytes,min_us,max_us,avg_us,bw_gbps as the CAIL benchmark does: minimum, maximum and mean over the runs, and bus bandwidth in \
    GB/s at avg_us. Use --algo native to time the MPI library.")]
pub(super) struct Options {
    #[command(flatten)]
    measure: MeasureArgs,
    /// Force an algorithm for all sizes (ring) or per size range (native:0-64k;ring:64k-); auto uses the tuning table. Algorithms:
    /// native, recursive_doubling, ring, segmented_ring, rabenseifner, hierarchical, ipc, nccl.
    #[arg(long, value_name = "ALGO", value_parser = algorithms)]
    algo: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print CSV with the columns of the CAIL benchmark (see below).
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Plot the times to an SVG file.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// The target: at most 10 % slower than the MPI library, or within the noise of a call.
const MAX_RATIO: f64 = 1.10;
const NOISE_US: f64 = 0.15;

/// The measurements of one message size.
pub struct Row {
    pub bytes: u64,
    pub algorithm: String,
    /// Baselines: name and median in microseconds.
    pub baselines: Vec<(String, f64)>,
    /// Median of this library in microseconds.
    pub ours: f64,
    /// This library's time in each run, in microseconds.
    runs: Vec<f64>,
    raw: Value,
}

impl Row {
    /// Returns this library's time relative to the first baseline: the MPI library's call, or that with pageable copies.
    pub fn ratio(&self) -> f64 {
        self.ours / self.baselines.first().map_or(f64::NAN, |(_, time)| *time)
    }

    #[cfg(test)]
    pub fn for_tests(bytes: u64, native: f64, ours: f64) -> Row {
        Row { bytes, algorithm: String::new(), baselines: vec![("native".to_owned(), native)], ours, runs: vec![ours], raw: Value::Null }
    }

    fn holds(&self) -> bool {
        self.baselines.first().is_some_and(|(_, time)| self.ours <= time * MAX_RATIO || self.ours <= time + NOISE_US)
    }
}

/// Returns the bus bandwidth in GB/s.
fn bus_bandwidth(bytes: u64, microseconds: f64, ranks: u32) -> f64 {
    let n = f64::from(ranks);
    bytes as f64 / microseconds / 1e3 * 2.0 * (n - 1.0) / n
}

/// Creates the job of a measurement.
pub fn job(measure: &MeasureArgs) -> Result<Job, Failure> {
    if let Some(name) = measure.device.split(',').find(|name| name.split(':').next() == Some(warpwave::VIRTUAL_LABEL)) {
        return Err(usage(format!(
            "--device {name}: in-process virtual GPUs are not supported with MPI; set WARPWAVE_HIP_LIB to the virtual GPU's libamdhip64.so \
             and use rocm:0"
        )));
    }
    let job = Job::new(&measure.launcher, measure.np, Launcher::choose(measure.launcher.mpi.as_deref(), None)?)?;
    job.check_root()?;
    Ok(job)
}

/// Runs the ranks and collects their measurements. Other output of the ranks goes to standard error.
pub fn collect(context: &mut Context<'_>, job: &Job, measure: &MeasureArgs, what: &str) -> Result<(Value, Vec<Row>), Failure> {
    let sizes: Vec<String> = measure.sizes.0.iter().map(u64::to_string).collect();
    let mut program: Vec<OsString> = vec![std::env::current_exe()?.into()];
    program.extend(["mpi", "worker", "--sizes", &sizes.join(","), "--runs", &measure.runs.to_string()].map(OsString::from));
    program.extend(["--device".into(), OsString::from(&measure.device)]);
    program.extend(measure.in_place.then(|| "--in-place".into()));
    let libraries = measure.mpi_library.clone().map_or_else(|| job.launcher.libraries(), |file| vec![file]);
    program.extend(libraries.into_iter().flat_map(|file| ["--library".into(), file.into_os_string()]));
    let line = job.command_line(program);
    let mut child = Command::new(&line[0]).args(&line[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let (mut head, mut rows) = (None, Vec::new());
    let mut wrong = None;
    for text in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        let text = text?;
        match serde_json::from_str::<Value>(&text) {
            Ok(value) if value["flavor"].is_string() => head = Some(value),
            Ok(value) if value["bytes"].is_u64() => {
                if value["correct"] != true {
                    wrong = wrong.or_else(|| value["bytes"].as_u64());
                }
                rows.push(row(value));
                let (done, all) = (rows.len(), sizes.len());
                writeln!(context.err, "{what}: {} bytes ({done} of {all})", rows[done - 1].bytes)?;
            }
            _ => writeln!(context.err, "{text}")?,
        }
    }
    let status = child.wait()?;
    if let Some(bytes) = wrong {
        return Err(failed(format!("wrong results at {bytes} bytes ({what}); see above for the first wrong element")));
    }
    match head {
        Some(head) if status.success() && rows.len() == sizes.len() => Ok((head, rows)),
        _ => {
            let name = job.launcher.path.display();
            Err(failed(format!("{name} failed ({status}) after {} of {} sizes; see its messages above", rows.len(), sizes.len())))
        }
    }
}

fn row(value: Value) -> Row {
    let runs = |method: &Value| -> Vec<f64> {
        let seconds = method["seconds"].as_array().into_iter().flatten().filter_map(Value::as_f64);
        seconds.map(|seconds| seconds * 1e6).collect()
    };
    let name = |method: &Value| method["method"].as_str().unwrap_or_default().to_owned();
    let methods = value["times"].as_array().map_or(&[][..], Vec::as_slice);
    let (ours_runs, baselines) = methods.split_last().map_or((Vec::new(), &[][..]), |(ours, others)| (runs(ours), others));
    let baselines = baselines.iter().map(|method| (name(method), median(runs(method)))).collect();
    let ours = if ours_runs.is_empty() { f64::NAN } else { median(ours_runs.clone()) };
    let algorithm = value["algorithm"].as_str().unwrap_or_default().to_owned();
    Row { bytes: value["bytes"].as_u64().unwrap_or_default(), algorithm, baselines, ours, runs: ours_runs, raw: value["times"].clone() }
}

pub(super) fn run(context: &mut Context<'_>, options: &Options) -> Outcome {
    let measure = &options.measure;
    let mut job = job(measure)?;
    job.env.extend(options.algo.iter().map(|algo| ("WARPWAVE_MPI_ALGO", algo.clone())));
    let (head, rows) = collect(context, &job, measure, job.launcher.family.title())?;
    let worst = rows.iter().map(Row::ratio).fold(0.0, f64::max);
    let memory = head["memory"].as_str().unwrap_or_default();
    let (title, version) = (job.launcher.family.title(), &job.launcher.version);
    let in_place = if measure.in_place { ", in place" } else { "" };
    let what = format!("{title} {version}, {} ranks, float sum{in_place}, {memory}; medians of {} runs", measure.np, measure.runs);
    if let Some(file) = &options.plot {
        let mut series: Vec<(String, Vec<f64>)> = Vec::new();
        for (index, (name, _)) in rows.first().map(|row| &row.baselines).into_iter().flatten().enumerate() {
            series.push((name.replace('_', "-"), rows.iter().map(|row| row.baselines[index].1).collect()));
        }
        series.push(("warpwave".to_owned(), rows.iter().map(|row| row.ours).collect()));
        let sizes: Vec<u64> = rows.iter().map(|row| row.bytes).collect();
        let axes = Axes { title: &what, x: "bytes", label: format_size, unit: "µs" };
        write_file(file, &plot::svg(&axes, &sizes, &series))?;
    }
    let on_host = measure.device == "cpu";
    if options.json {
        let all: Vec<Value> = rows.iter().map(|row| row_json(row, measure.np)).collect();
        return context.print_json(&json!({
            "launcher": job.launcher.path, "version": version, "mpi": head["mpi"], "flavor": head["flavor"], "library": job.library,
            "ranks": measure.np, "device": measure.device, "memory": memory, "in_place": measure.in_place, "runs": measure.runs,
            "rows": all, "worst_ratio": worst, "holds": on_host.then(|| rows.iter().all(Row::holds)),
        }));
    }
    let out = &mut context.out;
    if options.csv {
        writeln!(out, "{CSV_HEADER}")?;
        for row in &rows {
            writeln!(out, "{}", csv_line(row, measure.np))?;
        }
        return Ok(());
    }
    let names: Vec<String> = rows[0].baselines.iter().map(|(name, _)| name.replace('_', "-")).collect();
    let time_headers = names.iter().map(|name| format!(" {:>14}", format!("{name} µs"))).collect::<String>();
    let bandwidth_headers = names.iter().map(|name| format!(" {:>16}", format!("{name} GB/s"))).collect::<String>();
    writeln!(
        out,
        "{what}\n{:>10}{time_headers} {:>12} {:>7}{bandwidth_headers} {:>10}  algorithm",
        "bytes", "ours µs", "ratio", "ours GB/s"
    )?;
    for row in &rows {
        let times = row.baselines.iter().map(|(_, time)| format!(" {time:>14.2}")).collect::<String>();
        let bandwidth = |time: f64| bus_bandwidth(row.bytes, time, measure.np);
        let bandwidths = row.baselines.iter().map(|(_, time)| format!(" {:>16.3}", bandwidth(*time))).collect::<String>();
        let (ratio, ours) = (row.ratio(), bandwidth(row.ours));
        writeln!(out, "{:>10}{times} {:>12.2} {ratio:>7.3}{bandwidths} {ours:>10.3}  {}", row.bytes, row.ours, row.algorithm)?;
    }
    if !on_host {
        let pinned = rows.iter().map(|row| row.ours / row.baselines[1].1).fold(0.0, f64::max);
        return Ok(writeln!(out, "worst time ratio: {worst:.3} vs. pageable copies, {pinned:.3} vs. pinned copies")?);
    }
    let missed: Vec<String> = rows.iter().filter(|row| !row.holds()).map(|row| format_size(row.bytes)).collect();
    let verdict = if missed.is_empty() { "met at every size".to_owned() } else { format!("target missed at {}", missed.join(", ")) };
    Ok(writeln!(out, "worst ratio {worst:.3}; target (ratio <= {MAX_RATIO:.2}, or {NOISE_US} µs more) {verdict}")?)
}

/// The columns of CAIL's benchmark.
const CSV_HEADER: &str = "size_bytes,min_us,max_us,avg_us,bw_gbps";

/// Returns a row of CSV for this library's times.
fn csv_line(row: &Row, ranks: u32) -> String {
    let (min, max) = row.runs.iter().fold((f64::INFINITY, 0f64), |(min, max), time| (min.min(*time), max.max(*time)));
    let mean = row.runs.iter().sum::<f64>() / row.runs.len() as f64;
    format!("{},{min:.2},{max:.2},{mean:.2},{:.3}", row.bytes, bus_bandwidth(row.bytes, mean, ranks))
}

fn row_json(row: &Row, ranks: u32) -> Value {
    let mut value = json!({
        "bytes": row.bytes, "algorithm": row.algorithm, "ratio": row.ratio(), "holds": row.holds(), "times": row.raw,
        "ours_us": row.ours, "ours_gb_s": bus_bandwidth(row.bytes, row.ours, ranks),
    });
    for (name, time) in &row.baselines {
        value[format!("{name}_us")] = json!(time);
        value[format!("{name}_gb_s")] = json!(bus_bandwidth(row.bytes, *time, ranks));
    }
    value
}

/// Writes a file atomically.
pub fn write_file(path: &Path, text: &str) -> Outcome {
    let with_path = |error: std::io::Error| failed(format!("{}: {error}", path.display()));
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(with_path)?;
    }
    let name = path.file_name().ok_or_else(|| usage(format!("{}: expected a file name", path.display())))?;
    let temporary = path.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let written = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&temporary);
        with_path(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_the_columns_of_cail() {
        let times = json!([{ "method": "native", "seconds": [9e-6] }, { "method": "ours", "seconds": [2e-6, 4e-6, 3e-6] }]);
        let row = row(json!({ "bytes": 4096, "algorithm": "ring", "times": times }));
        // 4096 bytes / 3 us x 2 (4 - 1) / 4 = 2.048 GB/s.
        assert_eq!(csv_line(&row, 4), "4096,2.00,4.00,3.00,2.048");
        assert_eq!(CSV_HEADER.split(',').count(), 5);
        assert_eq!((row.baselines.as_slice(), row.ours), (&[("native".to_owned(), 9.0)][..], 3.0));
    }
}
