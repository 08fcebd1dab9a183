//! The vocabulary rule of `cargo xtask lint`: phrases that documentation, comments and messages must not use.

use std::collections::BTreeMap;
use std::path::Path;

/// Extensions of the files that are checked.
const CHECKED: [&str; 5] = ["rs", "cu", "cuh", "h", "md"];

/// A banned phrase in lowercase, the continuations that make it acceptable, and what to write instead.
struct Phrase {
    text: &'static str,
    unless: &'static [&'static str],
    instead: &'static str,
}

const fn phrase(text: &'static str, instead: &'static str) -> Phrase {
    Phrase { text, unless: &[], instead }
}

const PHRASES: &[Phrase] = &[
    Phrase { text: "is no ", unless: &["longer", "more than", "less than"], instead: "is not a ..., or: expected ..., got ..." },
    Phrase { text: "are no ", unless: &["longer", "more than", "less than"], instead: "are not ..., or: expected ..., got ..." },
    Phrase { text: "is none", unless: &["mpty"], instead: "is missing, is absent, is None (in backticks)" },
    Phrase { text: "are none", unless: &["mpty"], instead: "are missing, are absent" },
    phrase("so many", "N, the number of"),
    phrase("so much of", "P, a fraction of"),
    phrase("not known", "unknown"),
    phrase("under way", "in progress, running"),
    phrase("go on with", "continue"),
    phrase("goes on with", "continues"),
    phrase("gone on with", "continued"),
    phrase("going on with", "continuing"),
    phrase("whole number", "integer"),
    phrase(" anew", "again, from scratch"),
    phrase("said aloud", "reported, printed"),
    phrase("makes no sense", "is invalid"),
    phrase("make no sense", "are invalid"),
    phrase("come by", "obtained"),
    phrase("likeliest", "most likely"),
    phrase("vouch", "guarantee"),
    phrase("takes the place of", "replaces"),
    phrase("take the place of", "replace"),
    phrase("in the place of", "in place of, instead of"),
    phrase("for want of", "for lack of"),
    phrase(" at hand", "available, current"),
    phrase("speak of", "name, refer to"),
    phrase("speaks of", "names, refers to"),
    phrase("anybody", "anyone, a client"),
    phrase("somebody", "someone, another process"),
    phrase("not there yet", "not supported yet"),
    phrase("equally many", "the same number of"),
    phrase("that it is told", "given, passed"),
    phrase("artefact", "artifact"),
    phrase("behaviour", "behavior"),
    phrase("colour", "color"),
    phrase("neighbour", "neighbor"),
    phrase("favour", "favor"),
    phrase("honour", "honor"),
    phrase("licence", "license"),
    phrase("centre", "center"),
];

/// Stems of verbs with a British `-ise` spelling.
const BRITISH_STEMS: &[&str] = &[
    "capital", "custom", "emphas", "equal", "factor", "final", "general", "harmon", "initial", "linear", "local", "material", "maxim",
    "minim", "normal", "optim", "organ", "parallel", "penal", "priorit", "quant", "random", "recogn", "serial", "special", "standard",
    "summar", "synchron", "token", "util", "vector", "visual",
];

/// Endings after such a stem; the American spelling has a z instead of the s.
const BRITISH_ENDINGS: &[&str] = &["ise", "ising", "isation", "isable"];

/// Files that may contain the phrases: they list or quote them, are generated from checked files, or are text from elsewhere.
const ALLOWED: &[&str] = &["xtask/src/words.rs", "LICENSE", "NOTICE", "CHANGELOG.md", "docs/reference/messages.md"];

/// Returns the problems of a file that must be clean.
pub fn problems_of(file: &Path, text: &str) -> Vec<String> {
    if is_checked(file) { hits(file, text) } else { Vec::new() }
}

/// Returns the number of hits per file, in all files.
pub fn count(files: impl Iterator<Item = (std::path::PathBuf, String)>) -> BTreeMap<String, Vec<String>> {
    let mut counts = BTreeMap::new();
    for (file, text) in files.filter(|(file, _)| is_checked(file)) {
        let found = hits(&file, &text);
        if !found.is_empty() {
            counts.insert(file.display().to_string(), found);
        }
    }
    counts
}

fn is_checked(file: &Path) -> bool {
    let name = file.to_string_lossy();
    let allowed = ALLOWED.iter().any(|prefix| name.starts_with(prefix));
    !allowed && file.extension().is_some_and(|extension| CHECKED.iter().any(|checked| extension == *checked))
}

fn hits(file: &Path, text: &str) -> Vec<String> {
    let mut hits = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let lower = line.to_lowercase();
        let mut report = |found: &str, instead: &str| {
            hits.push(format!("{}:{}: `{}`; write: {instead}", file.display(), number + 1, found.trim()));
        };
        for phrase in PHRASES {
            let acceptable = |rest: &str| phrase.unless.iter().any(|word| rest.starts_with(word));
            if lower.match_indices(phrase.text).any(|(at, found)| !acceptable(&lower[at + found.len()..])) {
                report(phrase.text, phrase.instead);
            }
        }
        for word in lower.split(|c: char| !c.is_ascii_alphabetic()) {
            let stem = BRITISH_STEMS.iter().find_map(|stem| word.split_once(stem));
            if stem.is_some_and(|(_, ending)| BRITISH_ENDINGS.iter().any(|british| ending.starts_with(british))) {
                report(word, &word.replacen("is", "iz", 1));
            }
        }
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> usize {
        hits(Path::new("a.rs"), line).len()
    }

    #[test]
    fn banned_phrases_are_found_with_their_line() {
        let problems = hits(Path::new("a.rs"), "fine\n/// 3 is no small number\n");
        assert!(matches!(problems.as_slice(), [one] if one.starts_with("a.rs:2: `is no`")), "{problems:?}");
        for line in ["Whole numbers wrap", "Goes on with a text", "the so many likeliest tokens", "of a kind not known"] {
            assert!(found(line) > 0, "{line}");
        }
    }

    #[test]
    fn ordinary_english_passes() {
        for line in
            ["the device is no longer available", "No GPU found", "is nonempty", "optimistic", "an organism", "specialist", "precise"]
        {
            assert_eq!(found(line), 0, "{line}");
        }
    }

    #[test]
    fn british_spellings_are_found_in_text_and_names() {
        for word in ["quantised", "dequantise_rows", "Normalisation", "MaterialiseError", "optimiser", "behaviour", "colours"] {
            assert_eq!(found(word), 1, "{word}");
        }
        for word in ["quantized", "dequantize_rows", "Normalization", "promise", "exercise", "otherwise", "noise", "raise"] {
            assert_eq!(found(word), 0, "{word}");
        }
    }

    #[test]
    fn quoted_and_foreign_files_are_skipped() {
        assert!(!is_checked(Path::new("xtask/src/words.rs")) && !is_checked(Path::new("data.json")));
        assert!(is_checked(Path::new("xtask/src/lint.rs")) && is_checked(Path::new("README.md")));
    }
}
