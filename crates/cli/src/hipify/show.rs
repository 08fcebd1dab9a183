//! What is said about translations: lines for people, JSON for programs, and the report.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use warpwave_hipify::diagnostic::Places;
use warpwave_hipify::page::{self, FileReport};
use warpwave_hipify::report::{self, Assessment, Verdict};
use warpwave_hipify::{Severity, Stats};

use super::super::{Failure, Outcome, usage};
use super::Converted;

/// A report's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Html,
    Json,
    Text,
}

impl Format {
    /// By the file's ending.
    pub fn of(path: &Path) -> Result<Format, Failure> {
        match path.extension().and_then(|end| end.to_str()) {
            Some("html" | "htm") => Ok(Format::Html),
            Some("json") => Ok(Format::Json),
            Some("txt" | "log") => Ok(Format::Text),
            _ => Err(usage(format!("{}: a report is .html, .json or .txt", path.display()))),
        }
    }
}

/// The report of a run.
pub(super) fn report(all: &[Converted], format: Format) -> Result<Vec<u8>, Failure> {
    Ok(match format {
        Format::Json => format!("{:#}\n", json(all)).into_bytes(),
        Format::Text => {
            let mut text = Vec::new();
            for done in all {
                file(&mut text, done, false, true)?;
            }
            totals(&mut text, all, true)?;
            text
        }
        Format::Html => {
            let names: Vec<String> = all.iter().map(|done| done.input.path.display().to_string()).collect();
            let files = all.iter().zip(&names).map(|(done, name)| FileReport {
                name,
                // Fixes stay within their lines; where they do not, places are those of the fixed text.
                before: if lines(&done.original) == lines(done.source()) { &done.original } else { done.source() },
                after: &done.conversion.output,
                places: done.source(),
                diagnostics: &done.conversion.diagnostics,
                stats: &done.conversion.stats,
                assessment: done.conversion.assessment(),
                already_hip: done.conversion.already_hip,
            });
            page::html(&files.collect::<Vec<_>>()).into_bytes()
        }
    })
}

fn lines(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
}

/// A file's diagnostics and its verdict.
pub(super) fn file(out: &mut dyn Write, done: &Converted, quiet: bool, print_stats: bool) -> Outcome {
    let name = done.input.path.display().to_string();
    if !quiet {
        for diagnostic in done.conversion.diagnostics.iter().filter(|diagnostic| diagnostic.severity > Severity::Note) {
            writeln!(out, "{}", report::line(&name, done.source(), diagnostic))?;
        }
    }
    if print_stats {
        writeln!(out, "{name}\n{}", done.conversion.stats)?;
    }
    if done.conversion.already_hip {
        let lanes = done.conversion.diagnostics.iter().filter(|diagnostic| (200..300).contains(&diagnostic.code)).count();
        let lanes = if lanes > 0 { format!("; {lanes} places may assume 32 lanes (--json and --report show them)") } else { String::new() };
        return Ok(writeln!(out, "{name}: already HIP: left as it is{lanes}")?);
    }
    let Assessment { verdict, minutes } = done.conversion.assessment();
    let effort = if verdict == Verdict::Clean { String::new() } else { format!(", about {minutes} minutes of work left") };
    let fixed = if done.conversion.fixed > 0 { format!(", {} places fixed", done.conversion.fixed) } else { String::new() };
    let (converted, all) = (done.conversion.stats.translated_references(), done.conversion.stats.references());
    let what = if done.input.build.is_some() {
        format!("build file, {converted} of {all} references to CUDA converted")
    } else {
        format!("{converted} of {all} CUDA names translated, {} launches", done.conversion.stats.launches)
    };
    Ok(writeln!(out, "{name}: {verdict}: {what}{fixed}{effort}")?)
}

fn count(all: &[Converted]) -> ([usize; 3], usize) {
    let mut counts = [0; 3];
    all.iter().for_each(|done| counts[done.conversion.assessment().verdict as usize] += 1);
    (counts, all.iter().filter(|done| done.conversion.already_hip).count())
}

/// The last lines of a run over several files.
pub(super) fn totals(out: &mut dyn Write, all: &[Converted], print_stats: bool) -> Outcome {
    if print_stats {
        let mut total = Stats::default();
        all.iter().for_each(|done| total.add(&done.conversion.stats));
        writeln!(out, "all files\n{total}")?;
    }
    let ([clean, review, not_portable], hip) = count(all);
    let mut line = format!("{} files: {clean} clean, {review} need review, {not_portable} not portable", all.len());
    if hip > 0 {
        let _ = write!(line, "; {hip} of them already HIP");
    }
    Ok(writeln!(out, "{line}")?)
}

/// All of it for programs.
pub(super) fn json(all: &[Converted]) -> Value {
    let ([clean, review, not_portable], hip) = count(all);
    let minutes: usize = all.iter().map(|done| done.conversion.assessment().minutes).sum();
    let totals = json!({
        "files": all.len(), "clean": clean, "needs_review": review, "not_portable": not_portable, "already_hip": hip, "minutes": minutes,
    });
    json!({ "files": all.iter().map(one).collect::<Vec<_>>(), "totals": totals })
}

fn one(done: &Converted) -> Value {
    let places = Places::new(done.source());
    let diagnostics: Vec<Value> = done
        .conversion
        .diagnostics
        .iter()
        .map(|diagnostic| {
            let (line, column) = places.of(diagnostic.start);
            json!({
                "code": format!("WW{:04}", diagnostic.code), "severity": diagnostic.severity.to_string(), "line": line, "column": column,
                "message": diagnostic.message, "help": diagnostic.help,
            })
        })
        .collect();
    json!({
        "file": done.input.path, "verdict": done.conversion.assessment().verdict.to_string(), "minutes": done.conversion.assessment().minutes, "fixed": done.conversion.fixed,
        "already_hip": done.conversion.already_hip, "build_file": done.input.build.is_some(),
        "lines": done.conversion.stats.lines, "translated": done.conversion.stats.translated_references(), "untranslated": done.conversion.stats.untranslated_references(),
        "launches": done.conversion.stats.launches, "kernels": done.conversion.stats.kernels, "diagnostics": diagnostics,
    })
}
