//! The hazard checker against the labelled kernels in `tests/hazards`.
//!
//! The first lines of each file say what must be found: `// expect: WW0203@7, WW0207@12`, or `// expect: safe`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use warpwave_hipify::diagnostic::line_and_column;
use warpwave_hipify::hazard;
use warpwave_hipify::lex::Lexed;

type Findings = BTreeSet<(u16, usize)>;

fn corpus() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hazards");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "cu"));
    files.sort();
    files
}

/// What a file's first lines promise.
fn expected(source: &str) -> Findings {
    let mut out = Findings::new();
    let mut labelled = false;
    for line in source.lines().map_while(|line| line.strip_prefix("// expect:")) {
        labelled = true;
        for item in line.split(',').map(str::trim).filter(|item| *item != "safe") {
            let (code, line) = item.strip_prefix("WW").and_then(|item| item.split_once('@')).unwrap_or_else(|| panic!("label {item:?}"));
            out.insert((code.parse().unwrap(), line.parse().unwrap()));
        }
    }
    assert!(labelled, "a file without a label");
    out
}

fn found(source: &[u8]) -> Findings {
    let lexed = Lexed::new(source).unwrap();
    hazard::check(&lexed).iter().map(|h| (h.diagnostic.code, line_and_column(source, h.diagnostic.start).0)).collect()
}

#[test]
fn labelled_kernels_are_judged_with_precision_and_recall() {
    let files = corpus();
    let (mut right, mut spurious, mut missed, mut safe) = (0, 0, 0, 0);
    for path in &files {
        let source = fs::read_to_string(path).unwrap();
        let (expected, found) = (expected(&source), found(source.as_bytes()));
        safe += usize::from(expected.is_empty());
        right += expected.intersection(&found).count();
        for (code, line) in found.difference(&expected) {
            println!("spurious WW{code:04} at {}:{line}", path.display());
            spurious += 1;
        }
        for (code, line) in expected.difference(&found) {
            println!("missed   WW{code:04} at {}:{line}", path.display());
            missed += 1;
        }
    }
    let precision = right as f64 / (right + spurious) as f64;
    let recall = right as f64 / (right + missed) as f64;
    println!("{} files ({safe} safe), {} places: precision {precision:.3}, recall {recall:.3}", files.len(), right + missed);
    assert!(precision >= 0.95, "precision {precision:.3}");
    assert!(recall >= 0.95, "recall {recall:.3}");
}
