//! The verdict on a converted file, and an estimate of the work left.

use std::collections::HashSet;
use std::fmt;

use crate::diagnostic::{Diagnostic, Severity};

/// The state of a file after its conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// No warnings or errors.
    Clean,
    /// Has warnings to check.
    NeedsReview,
    /// Has errors: it does not compile or does not work as it is.
    NotPortable,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Clean => "clean",
            Verdict::NeedsReview => "needs review",
            Verdict::NotPortable => "not portable",
        })
    }
}

/// A verdict with the estimated work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assessment {
    /// The verdict.
    pub verdict: Verdict,
    /// Estimated minutes of work: 30 for each distinct error, 10 for each distinct warning, 1 for each repetition.
    pub minutes: usize,
}

impl Assessment {
    /// Assesses a file with these diagnostics.
    pub fn of<'a>(diagnostics: impl IntoIterator<Item = &'a Diagnostic>) -> Assessment {
        let mut assessment = Assessment { verdict: Verdict::Clean, minutes: 0 };
        let mut kinds = HashSet::new();
        for diagnostic in diagnostics {
            let (verdict, minutes) = match diagnostic.severity {
                Severity::Note => continue,
                Severity::Warning => (Verdict::NeedsReview, 10),
                Severity::Error => (Verdict::NotPortable, 30),
            };
            assessment.verdict = assessment.verdict.max(verdict);
            // A repeated message is the same work again, which takes less time.
            assessment.minutes += if kinds.insert((diagnostic.code, &diagnostic.message)) { minutes } else { 1 };
        }
        assessment
    }
}

/// Formats a diagnostic as `FILE:LINE:COLUMN: WW0107 warning: …`, with the help on the next line.
pub fn line(file: &str, source: &[u8], diagnostic: &Diagnostic) -> String {
    let (line, column) = crate::diagnostic::line_and_column(source, diagnostic.start);
    let Diagnostic { code, severity, message, help, .. } = diagnostic;
    let help = help.as_ref().map(|help| format!("\n    help: {help}")).unwrap_or_default();
    format!("{file}:{line}:{column}: WW{code:04} {severity}: {message}{help}")
}

/// Returns the title and explanation of a diagnostic code.
pub fn explain(code: u16) -> Option<(&'static str, &'static str)> {
    let translator = crate::codes::find(code).map(|code| (code.title, code.explanation));
    let kernels = || crate::kernels::codes::find(code).map(|code| (code.title, code.explanation));
    let build = || crate::build::codes::find(code).map(|code| (code.title, code.explanation));
    translator
        .or_else(kernels)
        .or_else(build)
        .or_else(|| crate::hazard::CODES.iter().find(|(number, ..)| *number == code).map(|(_, title, text)| (*title, *text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnostic(severity: Severity, message: &'static str) -> Diagnostic {
        Diagnostic { code: 101, severity, start: 4, end: 5, message: message.into(), help: Some("do so".into()), remedy: None }
    }

    #[test]
    fn the_worst_diagnostic_decides_the_verdict() {
        use Severity::{Error, Note, Warning};
        assert_eq!(Assessment::of(&[]), Assessment { verdict: Verdict::Clean, minutes: 0 });
        assert_eq!(Assessment::of(&[diagnostic(Note, "a")]).verdict, Verdict::Clean);
        let two = [diagnostic(Warning, "a"), diagnostic(Warning, "a")];
        assert_eq!(Assessment::of(&two), Assessment { verdict: Verdict::NeedsReview, minutes: 11 });
        let both = [diagnostic(Error, "a"), diagnostic(Warning, "b")];
        assert_eq!(Assessment::of(&both), Assessment { verdict: Verdict::NotPortable, minutes: 40 });
    }

    #[test]
    fn a_line_has_file_position_and_code() {
        let text = line("a.cu", b"int\nx", &diagnostic(Severity::Warning, "odd"));
        assert_eq!(text, "a.cu:2:1: WW0101 warning: odd\n    help: do so");
    }

    #[test]
    fn every_code_has_an_explanation() {
        for code in crate::codes::ALL {
            assert!(explain(code.number).is_some());
        }
        for code in crate::build::codes::ALL {
            assert!(explain(code.number).is_some());
        }
        for (code, ..) in crate::hazard::CODES {
            assert!(explain(*code).is_some());
        }
        assert!(explain(9999).is_none());
    }
}
