//! `warpwave mpi bench`: this library beside the MPI, in the same run.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use warpwave_allreduce::table::short;

use super::super::bench::median;
use super::super::{Context, Failure, Outcome, failed, usage};
use super::{Job, Launcher, Measure, algorithms, plot};

#[derive(clap::Args)]
#[command(after_help = "Example: warpwave mpi bench -np 2 --mpi openmpi --sizes 4-16m --plot allreduce.svg\n\n\
    Times are of the slowest rank, medians of runs that take turns. The bus bandwidth is bytes / time x 2 (n - 1) / n.\n\
    On a GPU the peer is a copy to the host, the MPI's own call and a copy back, with pageable and with page-locked memory.")]
pub(super) struct Options {
    #[command(flatten)]
    measure: Measure,
    /// An algorithm for all sizes or by size; auto: as the table says.
    #[arg(long, value_name = "ALGO", value_parser = algorithms)]
    algo: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Draw the times into this file.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// What is called as fast as the MPI: within a tenth, or within the noise of a call.
const WITHIN: f64 = 1.10;
const NOISE_US: f64 = 0.15;

/// One size.
pub struct Row {
    pub bytes: u64,
    pub algorithm: String,
    /// Microseconds of the MPI's ways, each with its name.
    pub peers: Vec<(String, f64)>,
    pub ours: f64,
    raw: Value,
}

impl Row {
    /// Ours beside the first of the peers: the MPI's own call, or pageable copies around it.
    pub fn ratio(&self) -> f64 {
        self.ours / self.peers.first().map_or(f64::NAN, |(_, time)| *time)
    }

    #[cfg(test)]
    pub fn for_tests(bytes: u64, native: f64, ours: f64) -> Row {
        Row { bytes, algorithm: String::new(), peers: vec![("native".to_owned(), native)], ours, raw: Value::Null }
    }

    fn holds(&self) -> bool {
        self.peers.first().is_some_and(|(_, time)| self.ours <= time * WITHIN || self.ours <= time + NOISE_US)
    }
}

/// GB/s of each rank's link.
fn bus_bandwidth(bytes: u64, microseconds: f64, ranks: u32) -> f64 {
    let n = f64::from(ranks);
    bytes as f64 / microseconds / 1e3 * 2.0 * (n - 1.0) / n
}

/// The job of a measurement.
pub fn job(measure: &Measure) -> Result<Job, Failure> {
    if let Some(name) = measure.device.split(',').find(|name| name.split(':').next() == Some(warpwave::VIRTUAL_LABEL)) {
        return Err(usage(format!(
            "--device {name}: the library sees the GPUs of drivers alone; name a libamdhip64.so with WARPWAVE_HIP_LIB and use rocm:0"
        )));
    }
    Job::new(&measure.choice, measure.np, Launcher::choose(measure.choice.mpi.as_deref(), None)?)
}

/// Runs the ranks and collects what they measure; what they say beyond that goes to standard error.
pub fn collect(context: &mut Context<'_>, job: &Job, measure: &Measure, what: &str) -> Result<(Value, Vec<Row>), Failure> {
    let sizes: Vec<String> = measure.sizes.0.iter().map(u64::to_string).collect();
    let mut program: Vec<OsString> = vec![std::env::current_exe()?.into()];
    program.extend(["mpi", "worker", "--sizes", &sizes.join(","), "--runs", &measure.runs.to_string()].map(OsString::from));
    program.extend(["--device".into(), OsString::from(&measure.device)]);
    program.extend(measure.in_place.then(|| "--in-place".into()));
    let libraries = measure.mpi_library.clone().map_or_else(|| job.launcher.libraries(), |file| vec![file]);
    program.extend(libraries.into_iter().flat_map(|file| ["--library".into(), file.into_os_string()]));
    let line = job.line(program);
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
        return Err(failed(format!("WRONG RESULTS with {bytes} bytes ({what}); the ranks' lines above name the first")));
    }
    match head {
        Some(head) if status.success() && rows.len() == sizes.len() => Ok((head, rows)),
        _ => {
            let name = job.launcher.path.display();
            Err(failed(format!("{name} ended with {status} after {} of {} sizes; its messages are above", rows.len(), sizes.len())))
        }
    }
}

fn row(value: Value) -> Row {
    let way = |way: &Value| {
        let seconds = way["seconds"].as_array().into_iter().flatten().filter_map(Value::as_f64);
        (way["way"].as_str().unwrap_or_default().to_owned(), median(seconds.collect()) * 1e6)
    };
    let mut peers: Vec<(String, f64)> = value["times"].as_array().into_iter().flatten().map(way).collect();
    let ours = peers.pop().map_or(f64::NAN, |(_, time)| time);
    let algorithm = value["algorithm"].as_str().unwrap_or_default().to_owned();
    Row { bytes: value["bytes"].as_u64().unwrap_or_default(), algorithm, peers, ours, raw: value["times"].clone() }
}

pub(super) fn run(context: &mut Context<'_>, options: &Options) -> Outcome {
    let measure = &options.measure;
    let mut job = job(measure)?;
    job.set.extend(options.algo.iter().map(|algo| ("WARPWAVE_MPI_ALGO", algo.clone())));
    let (head, rows) = collect(context, &job, measure, job.launcher.family.title())?;
    let worst = rows.iter().map(Row::ratio).fold(0.0, f64::max);
    let place = head["place"].as_str().unwrap_or_default();
    let (title, version) = (job.launcher.family.title(), &job.launcher.version);
    let in_place = if measure.in_place { ", in place" } else { "" };
    let what = format!("{title} {version}, {} ranks, float sum{in_place}, {place}; medians of {} runs", measure.np, measure.runs);
    if let Some(file) = &options.plot {
        let mut series: Vec<(String, Vec<f64>)> = Vec::new();
        for (index, (name, _)) in rows.first().map(|row| &row.peers).into_iter().flatten().enumerate() {
            series.push((name.replace('_', "-"), rows.iter().map(|row| row.peers[index].1).collect()));
        }
        series.push(("warpwave".to_owned(), rows.iter().map(|row| row.ours).collect()));
        let sizes: Vec<u64> = rows.iter().map(|row| row.bytes).collect();
        write_file(file, &plot::svg(&what, &sizes, &series))?;
    }
    let on_host = measure.device == "cpu";
    if options.json {
        let all: Vec<Value> = rows.iter().map(|row| row_json(row, measure.np)).collect();
        return context.print_json(&json!({
            "launcher": job.launcher.path, "version": version, "mpi": head["mpi"], "flavor": head["flavor"], "library": job.library,
            "ranks": measure.np, "device": measure.device, "place": place, "in_place": measure.in_place, "runs": measure.runs,
            "rows": all, "worst_ratio": worst, "holds": on_host.then(|| rows.iter().all(Row::holds)),
        }));
    }
    let out = &mut context.out;
    let names: Vec<String> = rows[0].peers.iter().map(|(name, _)| name.replace('_', "-")).collect();
    let columns = names.iter().map(|name| format!(" {:>14}", format!("{name} µs"))).collect::<String>();
    let widths = names.iter().map(|name| format!(" {:>16}", format!("{name} GB/s"))).collect::<String>();
    writeln!(out, "{what}\n{:>10}{columns} {:>12} {:>7}{widths} {:>10}  algorithm", "bytes", "ours µs", "ratio", "ours GB/s")?;
    for row in &rows {
        let times = row.peers.iter().map(|(_, time)| format!(" {time:>14.2}")).collect::<String>();
        let bandwidth = |time: f64| bus_bandwidth(row.bytes, time, measure.np);
        let widths = row.peers.iter().map(|(_, time)| format!(" {:>16.3}", bandwidth(*time))).collect::<String>();
        let (ratio, ours) = (row.ratio(), bandwidth(row.ours));
        writeln!(out, "{:>10}{times} {:>12.2} {ratio:>7.3}{widths} {ours:>10.3}  {}", row.bytes, row.ours, row.algorithm)?;
    }
    if !on_host {
        let locked = rows.iter().map(|row| row.ours / row.peers[1].1).fold(0.0, f64::max);
        return Ok(writeln!(out, "worst ratio {worst:.3} to pageable copies, {locked:.3} to page-locked ones")?);
    }
    let failing: Vec<String> = rows.iter().filter(|row| !row.holds()).map(|row| short(row.bytes)).collect();
    let verdict = if failing.is_empty() { "holds at every size".to_owned() } else { format!("DOES NOT HOLD at {}", failing.join(", ")) };
    Ok(writeln!(out, "worst ratio {worst:.3}; ≤ {WITHIN:.2} × or + {NOISE_US} µs {verdict}")?)
}

fn row_json(row: &Row, ranks: u32) -> Value {
    let mut value = json!({
        "bytes": row.bytes, "algorithm": row.algorithm, "ratio": row.ratio(), "holds": row.holds(), "times": row.raw,
        "ours_us": row.ours, "ours_gb_s": bus_bandwidth(row.bytes, row.ours, ranks),
    });
    for (name, time) in &row.peers {
        value[format!("{name}_us")] = json!(time);
        value[format!("{name}_gb_s")] = json!(bus_bandwidth(row.bytes, *time, ranks));
    }
    value
}

/// Writes a whole file or leaves the old one.
pub fn write_file(path: &Path, text: &str) -> Outcome {
    let said = |error: std::io::Error| failed(format!("{}: {error}", path.display()));
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(said)?;
    }
    let name = path.file_name().ok_or_else(|| usage(format!("{} is no file's name", path.display())))?;
    let fresh = path.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let written = std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&fresh);
        said(error)
    })
}
