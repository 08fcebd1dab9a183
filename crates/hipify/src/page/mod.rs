//! The HTML report: a summary, a table of the files, and the changes of each file side by side with its diagnostics.
//!
//! The page is self-contained, and all text from sources is escaped. Its size is limited: changed lines and lines with a diagnostic are
//! shown with some context, and of a very large project only the first ones.

mod diff;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::diagnostic::{Diagnostic, LineIndex, Severity};
use crate::report::{Assessment, Verdict, explain};
use crate::stats::Stats;
use diff::{Row, Stretch};

/// A file of the report.
#[derive(Debug, Clone, Copy)]
pub struct FileReport<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its text before the conversion.
    pub before: &'a [u8],
    /// Its text after the conversion.
    pub after: &'a [u8],
    /// The text that the offsets of the diagnostics refer to; it has the lines of `before`.
    pub places: &'a [u8],
    /// Its diagnostics, in order.
    pub diagnostics: &'a [Diagnostic],
    /// Its statistics.
    pub stats: &'a Stats,
    /// Its verdict and effort.
    pub assessment: Assessment,
    /// Whether it was HIP already.
    pub already_hip: bool,
}

impl FileReport<'_> {
    /// The label of the verdict, and its CSS class.
    fn verdict(&self) -> (&'static str, &'static str) {
        match self.assessment.verdict {
            _ if self.already_hip => ("already HIP", "hip"),
            Verdict::Clean => ("clean", "clean"),
            Verdict::NeedsReview => ("needs review", "review"),
            Verdict::NotPortable => ("not portable", "bad"),
        }
    }
}

/// Context lines around a change.
const CONTEXT: usize = 3;
/// Limit of lines shown per file, and in all.
const FILE_LINES: usize = 2_000;
const ALL_LINES: usize = 60_000;
/// Limit of bytes shown per line.
const LINE_BYTES: usize = 600;

/// Returns the page.
pub fn html(files: &[FileReport<'_>]) -> String {
    let mut page = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str(
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>CUDA to HIP: report</title>\n<style>\n",
    );
    page.push_str(include_str!("page.css"));
    page.push_str("</style>\n</head>\n<body>\n");
    summary(&mut page, files);
    codes_table(&mut page, files);
    files_table(&mut page, files);
    page.push_str("<h2>Changes</h2>\n");
    let mut left = ALL_LINES;
    for (number, file) in files.iter().enumerate() {
        changes(&mut page, number, file, &mut left);
    }
    glossary(&mut page, files);
    page.push_str("<script>\n");
    page.push_str(include_str!("page.js"));
    page.push_str("</script>\n</body>\n</html>\n");
    page
}

/// Formats a sentence with `code` in backquotes.
fn sentence(out: &mut String, text: &str) {
    let whole = text.matches('`').count().is_multiple_of(2);
    for (at, part) in text.split('`').enumerate() {
        match (whole, at % 2 == 1) {
            (true, true) => {
                out.push_str("<code>");
                escape(out, part);
                out.push_str("</code>");
            }
            (true, false) => escape(out, part),
            (false, _) => {
                if at > 0 {
                    out.push('`');
                }
                escape(out, part);
            }
        }
    }
}

/// Escapes text for HTML. Control characters are replaced.
fn escape(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' => out.push(character),
            // Bidirectional control characters would show other text than the compiler reads.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            character if character.is_control() => out.push('\u{fffd}'),
            character => out.push(character),
        }
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape(&mut out, text);
    out
}

fn plural(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// `3 h 20 min`.
fn effort(minutes: usize) -> String {
    match (minutes / 60, minutes % 60) {
        (0, 0) => "none".to_owned(),
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

fn summary(page: &mut String, files: &[FileReport<'_>]) {
    let count = |class: &str| files.iter().filter(|file| file.verdict().1 == class).count();
    let (clean, review, bad, hip) = (count("clean"), count("review"), count("bad"), count("hip"));
    let mut total = Stats::default();
    files.iter().for_each(|file| total.add(file.stats));
    let minutes: usize = files.iter().map(|file| file.assessment.minutes).sum();
    let (done, all) = (total.translated_references(), total.references());
    let share = if all == 0 { 100.0 } else { 100.0 * done as f64 / all as f64 };
    page.push_str("<header><h1>CUDA <b>&rarr;</b> HIP</h1>\n");
    let _ = writeln!(
        page,
        "<p class=\"sub\">{}, {} lines, {} of them changed. Translated by warpwave hipify.</p></header>",
        plural(files.len(), "file"),
        total.lines,
        total.lines_changed
    );
    page.push_str("<section class=\"cards\">\n");
    let mut card = |figure: String, text: String| {
        let _ = writeln!(page, "<div class=\"card\"><strong>{figure}</strong><span>{text}</span></div>");
    };
    card(format!("{share:.1} %"), format!("{done} of {all} CUDA names translated"));
    card(clean.to_string(), "clean: no warnings or errors".to_owned());
    card(review.to_string(), "need review".to_owned());
    card(bad.to_string(), "not portable: has errors".to_owned());
    if hip > 0 {
        card(hip.to_string(), "already HIP, unchanged".to_owned());
    }
    card(effort(minutes), "estimated work left".to_owned());
    page.push_str("</section>\n<div class=\"bar\" aria-hidden=\"true\">");
    for (class, count) in [("clean", clean), ("hip", hip), ("review", review), ("bad", bad)] {
        if count > 0 {
            let _ = write!(page, "<i class=\"{class}\" style=\"flex:{count}\"></i>");
        }
    }
    page.push_str("</div>\n");
}

fn codes_table(page: &mut String, files: &[FileReport<'_>]) {
    // By severity, the worst first, then by code: counts and files.
    let mut codes: BTreeMap<(std::cmp::Reverse<Severity>, u16), (usize, usize)> = BTreeMap::new();
    for file in files {
        let mut last = BTreeMap::new();
        for diagnostic in file.diagnostics {
            let key = (std::cmp::Reverse(diagnostic.severity), diagnostic.code);
            codes.entry(key).or_default().0 += 1;
            last.insert(key, ());
        }
        last.into_keys().for_each(|key| codes.entry(key).or_default().1 += 1);
    }
    if codes.is_empty() {
        return;
    }
    page.push_str("<h2>Diagnostics</h2>\n<table class=\"list\"><thead><tr><th>Code</th><th>Severity</th><th>Title</th><th class=\"n\">Count</th><th class=\"n\">Files</th></tr></thead><tbody>\n");
    for ((severity, code), (places, files)) in codes {
        let title = explain(code).map_or("", |(title, _)| title);
        let _ = writeln!(
            page,
            "<tr><td><a href=\"#WW{code:04}\">WW{code:04}</a></td><td class=\"{0}\">{0}</td><td>{1}</td><td class=\"n\">{places}</td><td class=\"n\">{files}</td></tr>",
            severity.0,
            escaped(title)
        );
    }
    page.push_str("</tbody></table>\n");
}

fn files_table(page: &mut String, files: &[FileReport<'_>]) {
    page.push_str(
        "<h2>Files</h2>\n<input id=\"filter\" type=\"search\" placeholder=\"Filter by name or verdict\" aria-label=\"Filter the files\">\n",
    );
    page.push_str("<table class=\"list\" id=\"files\"><thead><tr>");
    for (title, number) in [
        ("File", false),
        ("Verdict", false),
        ("Effort", true),
        ("Translated", true),
        ("Left", true),
        ("Launches", true),
        ("Lines changed", true),
        ("Diagnostics", true),
    ] {
        let class = if number { " class=\"n\"" } else { "" };
        let _ = write!(page, "<th scope=\"col\"{class}><button type=\"button\">{title}</button></th>");
    }
    page.push_str("</tr></thead><tbody>\n");
    for (number, file) in files.iter().enumerate() {
        let (verdict, class) = file.verdict();
        let rank = if file.already_hip { 0 } else { file.assessment.verdict as usize + 1 };
        let minutes = file.assessment.minutes;
        let work = if minutes == 0 { "&ndash;".to_owned() } else { effort(minutes) };
        let _ = write!(page, "<tr><td><a href=\"#f{number}\">{}</a></td>", escaped(file.name));
        let _ = write!(
            page,
            "<td data-v=\"{rank}\"><span class=\"tag {class}\">{verdict}</span></td><td class=\"n\" data-v=\"{minutes}\">{work}</td>"
        );
        let figures = [
            file.stats.translated_references(),
            file.stats.untranslated_references(),
            file.stats.launches,
            file.stats.lines_changed,
            file.diagnostics.len(),
        ];
        for figure in figures {
            let _ = write!(page, "<td class=\"n\" data-v=\"{figure}\">{figure}</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table>\n");
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    if lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    lines
}

fn changes(page: &mut String, number: usize, file: &FileReport<'_>, left: &mut usize) {
    let (verdict, class) = file.verdict();
    let (old, new) = (lines(file.before), lines(file.after));
    let mut told: BTreeMap<usize, Vec<&Diagnostic>> = BTreeMap::new();
    let places = LineIndex::new(file.places);
    for diagnostic in file.diagnostics {
        let line = (places.position(diagnostic.start).0 - 1).min(old.len().saturating_sub(1));
        told.entry(line).or_default().push(diagnostic);
    }
    let mut rows: Vec<(Row, bool)> = Vec::new();
    for stretch in diff::stretches(&old, &new) {
        match stretch {
            Stretch::Same(a, b) => rows.extend(a.zip(b).map(|(a, b)| ((Some(a), Some(b)), false))),
            Stretch::Changed(a, b) => rows.extend(diff::pairs(a, b, &old, &new).into_iter().map(|row| (row, true))),
        }
    }
    let mut shown = vec![false; rows.len()];
    for (at, ((line, _), changed)) in rows.iter().enumerate() {
        if *changed || line.is_some_and(|line| told.contains_key(&line)) {
            shown[at.saturating_sub(CONTEXT)..(at + CONTEXT + 1).min(rows.len())].fill(true);
        }
    }
    let wanted = shown.iter().filter(|shown| **shown).count();
    let changed = rows.iter().filter(|(_, changed)| *changed).count();
    let _ = writeln!(
        page,
        "<details class=\"file\" id=\"f{number}\"><summary><span class=\"name\">{}</span><span class=\"tag {class}\">{verdict}</span><span class=\"dim\">{}, {}</span></summary>",
        escaped(file.name),
        plural(changed, "changed line"),
        plural(file.diagnostics.len(), "diagnostic")
    );
    if wanted == 0 {
        let text = if file.already_hip { "This file is already HIP." } else { "No changes." };
        let _ = writeln!(page, "<div class=\"nothing\">{text}</div></details>");
        return;
    }
    page.push_str("<table class=\"diff\"><colgroup><col class=\"no\"><col><col class=\"no\"><col></colgroup><tbody>\n");
    let mut room = wanted.min(FILE_LINES).min(*left);
    *left -= room;
    let (mut at, mut hidden) = (0, 0);
    while at < rows.len() {
        if !shown[at] {
            let same = shown[at..].iter().take_while(|shown| !**shown).count();
            if hidden == 0 {
                fold(page, &format!("{} unchanged", plural(same, "line")));
            }
            at += same;
            continue;
        }
        let ((a, b), changed) = rows[at];
        if room == 0 {
            hidden += usize::from(changed);
        } else {
            room -= 1;
            row(page, a.map(|line| (line, old[line])), b.map(|line| (line, new[line])), changed);
            for diagnostic in a.and_then(|line| told.get(&line)).into_iter().flatten() {
                say(page, diagnostic);
            }
        }
        at += 1;
    }
    if hidden > 0 {
        fold(page, &format!("{} more not shown", plural(hidden, "changed line")));
    }
    page.push_str("</tbody></table></details>\n");
}

fn fold(page: &mut String, text: &str) {
    let _ = writeln!(page, "<tr class=\"fold\"><td colspan=\"4\">{text}</td></tr>");
}

fn readable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    match text.char_indices().nth(LINE_BYTES) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

fn row(page: &mut String, old: Option<(usize, &[u8])>, new: Option<(usize, &[u8])>, changed: bool) {
    let texts = (old.map(|(_, line)| readable(line)), new.map(|(_, line)| readable(line)));
    let edges = match (&texts.0, &texts.1) {
        (Some(old), Some(new)) if changed => Some(diff::edges(old, new)),
        _ => None,
    };
    page.push_str("<tr>");
    for (number, text, class) in [(old, &texts.0, "del"), (new, &texts.1, "add")] {
        let (Some((number, _)), Some(text)) = (number, text) else {
            page.push_str("<td class=\"no\"></td><td></td>");
            continue;
        };
        let _ = write!(page, "<td class=\"no\">{}</td>", number + 1);
        match edges {
            Some((front, back)) => {
                let _ = write!(page, "<td class=\"{class}\">");
                escape(page, &text[..front]);
                page.push_str("<mark>");
                escape(page, &text[front..text.len() - back]);
                page.push_str("</mark>");
                escape(page, &text[text.len() - back..]);
            }
            None if changed => {
                let _ = write!(page, "<td class=\"{class}\">");
                escape(page, text);
            }
            None => {
                page.push_str("<td>");
                escape(page, text);
            }
        }
        page.push_str("</td>");
    }
    page.push_str("</tr>\n");
}

fn say(page: &mut String, diagnostic: &Diagnostic) {
    let class = match diagnostic.severity {
        Severity::Note => "",
        Severity::Warning => " w",
        Severity::Error => " e",
    };
    let Diagnostic { code, severity, .. } = diagnostic;
    let _ = write!(page, "<tr class=\"say{class}\"><td colspan=\"4\"><b>WW{code:04}</b> <span class=\"{severity}\">{severity}</span>: ");
    sentence(page, &diagnostic.message);
    let _ = write!(page, " <a href=\"#WW{code:04}\">Why?</a>");
    if let Some(help) = &diagnostic.help {
        page.push_str("<span class=\"fix\">");
        sentence(page, help);
        page.push_str("</span>");
    }
    page.push_str("</td></tr>\n");
}

fn glossary(page: &mut String, files: &[FileReport<'_>]) {
    let codes: BTreeMap<u16, ()> = files.iter().flat_map(|file| file.diagnostics).map(|diagnostic| (diagnostic.code, ())).collect();
    if codes.is_empty() {
        return;
    }
    page.push_str("<h2>Explanations</h2>\n<dl>\n");
    for code in codes.into_keys() {
        let Some((title, text)) = explain(code) else { continue };
        let _ = write!(page, "<dt id=\"WW{code:04}\">WW{code:04}: {}</dt><dd>", escaped(title));
        sentence(page, text.trim_end());
        page.push_str("</dd>\n");
    }
    page.push_str("</dl>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, translate};

    fn page_of(name: &str, source: &str) -> String {
        let done = translate(source.as_bytes(), &Options::default());
        html(&[FileReport {
            name,
            before: source.as_bytes(),
            after: &done.output,
            places: source.as_bytes(),
            diagnostics: &done.diagnostics,
            stats: &done.stats,
            assessment: Assessment::of(&done.diagnostics),
            already_hip: false,
        }])
    }

    #[test]
    fn nothing_of_a_source_reaches_the_page_as_markup() {
        let source = "// </script><img src=x onerror=alert(1)> \u{202e}\u{7}\ncudaFree(\"<b>&'\");\ncudaNewThing<int>(\"</td>\");\n";
        let page = page_of("a</script><b>.cu", source);
        assert_eq!(page.matches("</script>").count(), 1, "its own");
        assert!(!page.contains("<img") && !page.contains("<b>&amp;") && !page.contains("<b>.cu") && !page.contains('\u{202e}'));
        assert!(page.contains("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;") && page.contains("cudaNewThing&lt;int&gt;"));
        assert!(
            page.contains("<mark>cudaFree</mark>(&quot;&lt;b&gt;&amp;&#39;&quot;);") && page.contains("<mark>hipFree</mark>("),
            "{page}"
        );
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere() {
        let page = page_of("a.cu", "cudaFree(p);\n");
        assert!(!page.contains("http") && !page.contains("src=") && !page.contains("@import") && !page.contains("url("));
        assert!(page.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn unchanged_parts_are_folded_and_diagnostics_stand_at_their_lines() {
        let source = format!("cudaFree(p);\n{}cudaNewThing();\n{}", "int x;\n".repeat(50), "int y;\n".repeat(50));
        let page = page_of("a.cu", &source);
        assert!(page.contains("44 lines unchanged") && page.contains("47 lines unchanged"), "{page}");
        let (line, told) = (page.find("cudaNewThing();").unwrap(), page.find("<tr class=\"say w\">").unwrap());
        assert!(told > line && page.contains("id=\"WW0100\""));
    }

    #[test]
    fn large_files_give_pages_of_bounded_size() {
        let page = page_of("a.cu", &"cudaFree(p);\n".repeat(100_000));
        assert!(page.len() < 1_500_000, "{}", page.len());
        assert!(page.contains("more not shown"));
        let long = page_of("a.cu", &"cudaFree(p); ".repeat(100_000));
        assert!(long.len() < 100_000, "{}", long.len());
    }

    #[test]
    fn efforts_are_readable() {
        assert_eq!([0, 5, 60, 200].map(effort), ["none", "5 min", "1 h", "3 h 20 min"]);
    }
}
