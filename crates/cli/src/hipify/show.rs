//! Prints conversions: text, JSON and the report.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use warpwave_hipify::diagnostic::LineIndex;
use warpwave_hipify::page::{self, FileReport};
use warpwave_hipify::report::{self, Assessment, Verdict};
use warpwave_hipify::{Diagnostic, Remedied, Remedy, Severity, Stats};

use super::super::{Failure, Outcome, usage};
use super::Converted;

/// The format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Html,
    Json,
    Text,
}

impl Format {
    /// Returns the format for a file extension.
    pub fn of(path: &Path) -> Result<Format, Failure> {
        match path.extension().and_then(|end| end.to_str()) {
            Some("html" | "htm") => Ok(Format::Html),
            Some("json") => Ok(Format::Json),
            Some("txt" | "log") => Ok(Format::Text),
            _ => Err(usage(format!("{}: unsupported report format; expected .html, .json or .txt", path.display()))),
        }
    }
}

/// Returns the report of a run.
pub(super) fn report(all: &[Converted], format: Format) -> Result<Vec<u8>, Failure> {
    Ok(match format {
        Format::Json => format!("{:#}\n", json(all)).into_bytes(),
        Format::Text => {
            let mut text = Vec::new();
            for converted in all {
                file(&mut text, converted, &Detail { diagnostics: true, each: true, statistics: true })?;
            }
            totals(&mut text, all, true)?;
            text
        }
        Format::Html => {
            let names: Vec<String> = all.iter().map(|converted| converted.input.path.display().to_string()).collect();
            let files = all.iter().zip(&names).map(|(converted, name)| FileReport {
                name,
                // Fixes rarely change the number of lines; if they do, show the fixed source.
                before: if lines(&converted.original) == lines(converted.source()) { &converted.original } else { converted.source() },
                after: &converted.conversion.output,
                places: converted.source(),
                diagnostics: &converted.conversion.diagnostics,
                stats: &converted.conversion.stats,
                assessment: converted.conversion.assessment(),
                already_hip: converted.conversion.already_hip,
            });
            page::html(&files.collect::<Vec<_>>()).into_bytes()
        }
    })
}

fn lines(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
}

/// What is printed about a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Detail {
    /// The diagnostics.
    pub diagnostics: bool,
    /// Every diagnostic, instead of groups.
    pub each: bool,
    /// The statistics.
    pub statistics: bool,
}

/// Prints the diagnostics of a file and its summary.
pub(super) fn file(out: &mut dyn Write, converted: &Converted, detail: &Detail) -> Outcome {
    let conversion = &converted.conversion;
    let name = converted.input.path.display().to_string();
    if detail.diagnostics {
        diagnostics(out, &name, converted, detail.each)?;
    }
    if detail.statistics {
        writeln!(out, "{name}\n{}", conversion.stats)?;
    }
    if conversion.already_hip {
        let hazards = conversion.diagnostics.iter().filter(|diagnostic| (200..300).contains(&diagnostic.code)).count();
        let note = match hazards {
            0 => String::new(),
            _ => format!("; {} may assume a warp size of 32 (see --json or --report)", counted(hazards, "place")),
        };
        return Ok(writeln!(out, "{name}: already HIP, unchanged{note}")?);
    }
    let Assessment { verdict, minutes } = conversion.assessment();
    let effort = match verdict {
        Verdict::Clean => String::new(),
        _ => format!(", about {} of work left{}", counted(minutes, "minute"), remedies(converted)),
    };
    let fixed = if conversion.fixed > 0 { format!(", {} fixed", counted(conversion.fixed, "place")) } else { String::new() };
    let (translated, all) = (conversion.stats.translated_references(), conversion.stats.references());
    let what = if converted.input.build.is_some() {
        format!("build file, {translated} of {all} CUDA references converted")
    } else {
        format!("{translated} of {all} CUDA names translated, {}", counted(conversion.stats.launches, "launch"))
    };
    Ok(writeln!(out, "{name}: {verdict}: {what}{fixed}{effort}")?)
}

/// Returns a count with its noun in the right number.
pub(super) fn counted(count: usize, noun: &str) -> String {
    let plural = match noun.ends_with("ch") {
        _ if count == 1 => "",
        true => "es",
        false => "s",
    };
    format!("{count} {noun}{plural}")
}

fn option(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::Fix => "--fix",
        Remedy::Header => "--header",
    }
}

/// What `--fix` and `--header` resolve, and the effort after them.
fn remedies(converted: &Converted) -> String {
    let Some(Remedied { remedies, resolved, assessment }) = &converted.remedied else { return String::new() };
    let options: Vec<&str> = remedies.iter().map(|remedy| option(*remedy)).collect();
    let verb = if options.len() == 1 { "resolves" } else { "resolve" };
    let all = converted.conversion.problems();
    let what = match (resolved, all) {
        (1, 1) => "the diagnostic".to_owned(),
        (resolved, all) if *resolved == all => format!("all {all} diagnostics"),
        (resolved, all) => format!("{resolved} of {all} diagnostics"),
    };
    let rest = match assessment.verdict {
        Verdict::Clean => String::new(),
        _ => format!(", leaving about {}", counted(assessment.minutes, "minute")),
    };
    format!("; {} {verb} {what}{rest}", options.join(" and "))
}

/// Line numbers of a group that are listed.
const LISTED_LINES: usize = 8;

/// Prints warnings and errors. Repetitions of a message follow its first occurrence as a list of lines, unless `each` is set.
fn diagnostics(out: &mut dyn Write, name: &str, converted: &Converted, each: bool) -> Outcome {
    let shown: Vec<&Diagnostic> =
        converted.conversion.diagnostics.iter().filter(|diagnostic| diagnostic.severity > Severity::Note).collect();
    let index = LineIndex::new(converted.source());
    let mut groups: Vec<(&Diagnostic, Vec<usize>)> = Vec::new();
    let mut known: HashMap<(u16, &str), usize> = HashMap::new();
    for diagnostic in shown {
        match known.get(&(diagnostic.code, &*diagnostic.message)) {
            Some(group) if !each => groups[*group].1.push(index.position(diagnostic.start).0),
            _ => {
                known.insert((diagnostic.code, &diagnostic.message), groups.len());
                groups.push((diagnostic, Vec::new()));
            }
        }
    }
    for (diagnostic, lines) in groups {
        writeln!(out, "{}", report::line(name, converted.source(), diagnostic))?;
        if !lines.is_empty() {
            let listed: Vec<String> = lines.iter().take(LISTED_LINES).map(usize::to_string).collect();
            let rest = if lines.len() > LISTED_LINES { ", …" } else { "" };
            writeln!(out, "    and {} more, lines {}{rest} (--all shows each)", lines.len(), listed.join(", "))?;
        }
    }
    Ok(())
}

fn count(all: &[Converted]) -> ([usize; 3], usize) {
    let mut counts = [0; 3];
    all.iter().for_each(|converted| counts[converted.conversion.assessment().verdict as usize] += 1);
    (counts, all.iter().filter(|converted| converted.conversion.already_hip).count())
}

/// Prints the totals of a run over several files.
pub(super) fn totals(out: &mut dyn Write, all: &[Converted], print_stats: bool) -> Outcome {
    if print_stats {
        let mut total = Stats::default();
        all.iter().for_each(|converted| total.add(&converted.conversion.stats));
        writeln!(out, "all files\n{total}")?;
    }
    let ([clean, review, not_portable], hip) = count(all);
    let need = if review == 1 { "needs" } else { "need" };
    let mut line = format!("{}: {clean} clean, {review} {need} review, {not_portable} not portable", counted(all.len(), "file"));
    if hip > 0 {
        let _ = write!(line, "; {hip} of them already HIP");
    }
    Ok(writeln!(out, "{line}")?)
}

/// Returns all results as JSON.
pub(super) fn json(all: &[Converted]) -> Value {
    let ([clean, review, not_portable], hip) = count(all);
    let minutes: usize = all.iter().map(|converted| converted.conversion.assessment().minutes).sum();
    let totals = json!({
        "files": all.len(), "clean": clean, "needs_review": review, "not_portable": not_portable, "already_hip": hip, "minutes": minutes,
    });
    json!({ "files": all.iter().map(one).collect::<Vec<_>>(), "totals": totals })
}

fn one(converted: &Converted) -> Value {
    let index = LineIndex::new(converted.source());
    let diagnostics: Vec<Value> = converted
        .conversion
        .diagnostics
        .iter()
        .map(|diagnostic| {
            let (line, column) = index.position(diagnostic.start);
            json!({
                "code": format!("WW{:04}", diagnostic.code), "severity": diagnostic.severity.to_string(), "line": line, "column": column,
                "message": diagnostic.message, "help": diagnostic.help,
                "resolved_by": diagnostic.remedy.map(option),
            })
        })
        .collect();
    json!({
        "file": converted.input.path, "verdict": converted.conversion.assessment().verdict.to_string(), "minutes": converted.conversion.assessment().minutes,
        "minutes_after_remedies": converted.remedied.as_ref().map_or(converted.conversion.assessment(), |remedied| remedied.assessment).minutes, "fixed": converted.conversion.fixed,
        "already_hip": converted.conversion.already_hip, "build_file": converted.input.build.is_some(),
        "lines": converted.conversion.stats.lines, "translated": converted.conversion.stats.translated_references(), "untranslated": converted.conversion.stats.untranslated_references(),
        "launches": converted.conversion.stats.launches, "kernels": converted.conversion.stats.kernels, "diagnostics": diagnostics,
    })
}
