//! The whole conversion of a source file: names, launches, device code, inline PTX, wave-size hazards.

use std::cell::OnceCell;
use std::collections::HashSet;

use crate::diagnostic::{Diagnostic, Remedy, Severity};
use crate::edit::Edits;
use crate::hazard::Hazard;
use crate::headers::Headers;
use crate::include::{REPLACED_BY_COMPATIBILITY, TYPE_HEADERS};
use crate::kernels::{self, intrinsics, ptx::Dialect};
use crate::lex::{Kind, Lexed};
use crate::names::{self, Family};
use crate::options::{COMPATIBILITY_HEADER, LaunchSyntax, Options, RuntimeHeader, UseHeader};
use crate::preprocessor::platform;
use crate::report::Assessment;
use crate::stats::Stats;
use crate::translate::{Draft, Translator, too_large, translate_lexed};
use crate::{api_checks, codes, hazard, heuristics, launch};

/// A converted source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversion {
    /// The HIP source.
    pub output: Vec<u8>,
    /// The source with the fixes of [`Options::fix`] applied and with launch brackets joined (`<< <`), which the offsets of the
    /// diagnostics refer to; `None` if it is unchanged.
    pub fixed_source: Option<Vec<u8>>,
    /// The diagnostics, in order of the source.
    pub diagnostics: Vec<Diagnostic>,
    /// The number of hazards that [`Options::fix`] repaired.
    pub fixed: usize,
    /// Counts.
    pub stats: Stats,
    /// The source was HIP already and is unchanged, except for includes of renamed files.
    pub already_hip: bool,
    /// The text to write beside the output as [`COMPATIBILITY_HEADER`], if the output includes it.
    pub compatibility_header: Option<String>,
}

impl Conversion {
    /// The verdict and the effort left.
    pub fn assessment(&self) -> Assessment {
        Assessment::of(&self.diagnostics)
    }

    /// The number of warnings and errors.
    pub fn problems(&self) -> usize {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.severity > Severity::Note).count()
    }

    /// Converts the source again with the options that its diagnostics recommend, and returns what they change.
    ///
    /// `None` if no unused option resolves anything. The arguments are those of [`convert`] that made this conversion.
    pub fn with_remedies(&self, source: &[u8], options: &Options, headers: &Headers<'_>) -> Option<Remedied> {
        let recommended = |remedy| self.diagnostics.iter().any(|diagnostic| diagnostic.remedy == Some(remedy));
        let fix = !options.fix && recommended(Remedy::Fix);
        let header = !options.with_header() && recommended(Remedy::Header);
        if !fix && !header {
            return None;
        }
        let mut options = Options { fix: options.fix || fix, ..options.clone() };
        if header {
            options.compatibility_header = UseHeader::Always;
        }
        let conversion = convert(source, &options, headers);
        let resolved = self.problems().saturating_sub(conversion.problems());
        let remedies = [(fix, Remedy::Fix), (header, Remedy::Header)].into_iter().filter(|(used, _)| *used).map(|(_, remedy)| remedy);
        (resolved > 0).then(|| Remedied { remedies: remedies.collect(), resolved, assessment: conversion.assessment() })
    }
}

/// The result of a conversion with the options that the diagnostics of another conversion recommend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedied {
    /// The options added.
    pub remedies: Vec<Remedy>,
    /// The number of warnings and errors they resolve.
    pub resolved: usize,
    /// The verdict and the effort left with them.
    pub assessment: Assessment,
}

/// Converts a CUDA source to HIP.
///
/// Names, hazards, device code and inline PTX are processed over one lexing of the source (with [`Options::fix`], of the fixed source).
/// Any bytes are accepted; bytes that no edit touches stay. `headers` tells which names the included files declare and supplies the
/// compatibility header.
///
/// ```
/// use warpwave_hipify::{Headers, Options, convert};
/// let source = b"__global__ void k(int *n, int x) { *n = __popc(__ballot_sync(0xffffffff, x)); }\n";
/// let options = Options { fix: true, ..Options::default() };
/// let hip = convert(source, &options, &Headers::default());
/// assert!(hip.output.ends_with(b"{ *n = __popcll(__ballot_sync(~0ull, x)); }\n"));
/// assert_eq!(hip.fixed, 2);
/// ```
pub fn convert(source: &[u8], options: &Options, headers: &Headers<'_>) -> Conversion {
    let lexed = match Lexed::new(source) {
        Ok(lexed) => lexed,
        Err(error) => {
            let diagnostics = vec![too_large(error)];
            return Conversion { diagnostics, ..Conversion::unchanged(source) };
        }
    };
    if options.keep_ported && platform::is_hip(&lexed, options) {
        return keep_hip(&lexed, options);
    }
    let joined = launch::join_brackets(&lexed);
    if !joined.is_empty() {
        let source = joined.apply(source);
        let conversion = convert(&source, options, headers);
        return Conversion { fixed_source: Some(conversion.fixed_source.unwrap_or(source)), ..conversion };
    }
    let hazards = hazard::check(&lexed);
    let fixable = hazards.iter().filter(|hazard| hazard.fix.is_some()).count();
    if options.fix && fixable > 0 {
        let fixed_source = hazard::fixes(&hazards).apply(source);
        let conversion = convert(&fixed_source, &Options { fix: false, ..options.clone() }, headers);
        return Conversion { fixed_source: Some(fixed_source), fixed: fixable, ..conversion };
    }

    let mut pass = Pass::run(&lexed, options, headers);
    let needed = || pass.diagnostics.iter().any(|diagnostic| diagnostic.remedy == Some(Remedy::Header));
    let with_header = match options.compatibility_header {
        UseHeader::Never => false,
        UseHeader::Always => true,
        UseHeader::WhenNeeded => headers.compatibility.is_some() && (needed() || uses_supplied_types(&lexed, options, headers)),
    };
    if with_header && options.compatibility_header == UseHeader::WhenNeeded {
        pass = Pass::run(&lexed, &Options { compatibility_header: UseHeader::Always, ..options.clone() }, headers);
    }
    let Pass { mut edits, mut diagnostics, mut stats } = pass;
    let with_remedy = |hazard: Hazard| Diagnostic { remedy: hazard.fix.map(|_| Remedy::Fix), ..hazard.diagnostic };
    let mut hazards: Vec<Diagnostic> = hazards.into_iter().map(with_remedy).collect();
    drop_nvidia_branches(&lexed, &mut hazards);
    diagnostics.extend(hazards);
    diagnostics.sort_by_key(|diagnostic| (diagnostic.start, diagnostic.code));
    stats.count_changes(source, &mut edits);
    let output = edits.apply(source);
    let directive = format!("#include \"{COMPATIBILITY_HEADER}\"");
    let included = with_header && output.windows(directive.len()).any(|window| window == directive.as_bytes());
    let compatibility_header = headers.compatibility.filter(|_| included).map(|header| header.text().to_owned());
    Conversion { output, diagnostics, stats, compatibility_header, ..Conversion::unchanged(b"") }
}

/// Names and device code of a source, with or without the compatibility header.
struct Pass {
    edits: Edits,
    diagnostics: Vec<Diagnostic>,
    stats: Stats,
}

impl Pass {
    fn run(lexed: &Lexed<'_>, options: &Options, headers: &Headers<'_>) -> Pass {
        let (source, with_header) = (lexed.source, options.with_header());
        let Draft { mut edits, mut diagnostics, stats } = Translator::new(lexed, options, headers.compatibility).run();
        if with_header {
            kernels::rewrite(lexed, Dialect::Hip, &mut edits, &mut diagnostics);
        } else {
            kernels::rewrite_ptx(lexed, &mut edits, &mut diagnostics);
        }
        let declared: OnceCell<HashSet<Vec<u8>>> = OnceCell::new();
        let known = |name: &[u8]| intrinsics::hip_has(name) || declared.get_or_init(|| headers.declared(source)).contains(name);
        diagnostics.extend(intrinsics::unknown(lexed, &known));
        api_checks::check(lexed, with_header, options.rocm, &mut edits, &mut diagnostics);
        let supplied = |diagnostic: &Diagnostic| supplied_by_header(diagnostic, source, headers);
        if with_header {
            diagnostics.retain(|diagnostic| !supplied(diagnostic));
        } else {
            for diagnostic in diagnostics.iter_mut().filter(|diagnostic| supplied(diagnostic)) {
                diagnostic.remedy = Some(Remedy::Header);
                if diagnostic.code != kernels::codes::ARCH_GUARD {
                    diagnostic.help = Some("use `--header`, which provides it".into());
                }
            }
        }
        Pass { edits, diagnostics, stats }
    }
}

/// Whether the compatibility header resolves a diagnostic.
fn supplied_by_header(diagnostic: &Diagnostic, source: &[u8], headers: &Headers<'_>) -> bool {
    let text = diagnostic.text(source);
    match diagnostic.code {
        code if code == codes::DEVICE_FUNCTION.number || code == codes::UNKNOWN.number || code == codes::WARP_SYNC.number => {
            headers.supplies(text)
        }
        kernels::codes::UNKNOWN_INTRINSIC => headers.supplies(text),
        kernels::codes::ARCH_GUARD => headers.compatibility.is_some(),
        code if code == codes::UNKNOWN_HEADER.number || code == codes::UNSUPPORTED_HEADER.number => {
            let name = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
            headers.compatibility.is_some() && REPLACED_BY_COMPATIBILITY.iter().any(|header| header.as_bytes() == name)
        }
        _ => false,
    }
}

/// Whether device types get other names or headers without the compatibility header: the files of a project must agree on them.
fn uses_supplied_types(lexed: &Lexed<'_>, options: &Options, headers: &Headers<'_>) -> bool {
    if TYPE_HEADERS.iter().any(|header| heuristics::includes(lexed, header)) {
        return true;
    }
    (0..lexed.tokens.len()).filter(|index| lexed.tokens[*index].kind == Kind::Name).any(|index| {
        names::find(lexed.text(index)).map(|row| row.for_rocm(options.rocm)).is_some_and(|row| {
            let device_type = row.family() == Family::Device && !row.is_function();
            device_type && row.translated(options.target) != row.cuda() && headers.supplies(row.cuda().as_bytes())
        })
    })
}

impl Conversion {
    /// The result for a source that stays as it is.
    pub(crate) fn unchanged(source: &[u8]) -> Conversion {
        Conversion {
            output: source.to_vec(),
            fixed_source: None,
            diagnostics: Vec::new(),
            fixed: 0,
            stats: Stats::default(),
            already_hip: false,
            compatibility_header: None,
        }
    }
}

/// Removes the diagnostics of branches that only NVIDIA compiles.
fn drop_nvidia_branches(lexed: &Lexed<'_>, diagnostics: &mut Vec<Diagnostic>) {
    for branch in platform::branches(lexed).iter().filter(|branch| !branch.for_amd && !branch.tokens.is_empty()) {
        let (start, end) = (lexed.tokens[branch.tokens.start].start, lexed.tokens[branch.tokens.end - 1].end);
        diagnostics.retain(|diagnostic| !(start..end).contains(&diagnostic.start));
    }
}

/// A file that is HIP already stays as it is, except for includes of renamed files. Hazards become notes: its authors ported it for
/// waves of 64.
fn keep_hip(lexed: &Lexed<'_>, options: &Options) -> Conversion {
    let mut diagnostics: Vec<Diagnostic> =
        hazard::check(lexed).into_iter().map(|hazard| Diagnostic { severity: Severity::Note, ..hazard.diagnostic }).collect();
    drop_nvidia_branches(lexed, &mut diagnostics);
    let renames = options.local_includes.iter().any(|(old, new)| old != new);
    let translation =
        translate_lexed(lexed, &Options { runtime_header: RuntimeHeader::Never, launch: LaunchSyntax::Kept, ..options.clone() });
    diagnostics.extend(translation.diagnostics.into_iter().filter(|diagnostic| diagnostic.code == codes::PORTED.number));
    diagnostics.sort_by_key(|diagnostic| (diagnostic.start, diagnostic.code));
    let output = if renames { translation.output } else { lexed.source.to_vec() };
    let stats = Stats { lines: translation.stats.lines, bytes: translation.stats.bytes, ..Stats::default() };
    Conversion { output, diagnostics, stats, already_hip: true, ..Conversion::unchanged(b"") }
}
