//! The book's table of instructions: how many each architecture has, how many execute, and how many a test here executes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::Command;

use warpwave_test_support::{full_run, workspace_root};
use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::{TestWave, is_executed};
use warpwave_vgpu::isa::{Format, inst_descs};

/// Groups of encodings.
const GROUPS: [(&str, &[Format]); 8] = [
    ("scalar", &[Format::SOP1, Format::SOP2, Format::SOPC, Format::SOPK, Format::SOPP]),
    ("scalar memory", &[Format::SMEM]),
    ("vector", &[Format::VOP1, Format::VOP2, Format::VOP3, Format::VOPC]),
    ("packed, dot and matrix products", &[Format::VOP3P]),
    ("dual issue", &[Format::VOPDX, Format::VOPDY]),
    ("LDS", &[Format::DS]),
    ("flat, global, scratch", &[Format::FLAT, Format::GLOBAL, Format::SCRATCH]),
    ("buffers", &[Format::MUBUF]),
];

const PAGE: &str = "docs/reference/instructions.md";

/// Returns architecture and name of the instructions that the other tests execute: runs them in a process of their own.
fn tested() -> BTreeSet<(String, String)> {
    let record = std::env::temp_dir().join(format!("warpwave-instructions-{}", std::process::id()));
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--skip", "table::", "--quiet"])
        .env(TestWave::RECORD, &record)
        .env("WARPWAVE_TEST_FULL", "1")
        .env("WARPWAVE_SEED", "1")
        .output()
        .unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stdout));
    let text = std::fs::read_to_string(&record).unwrap();
    let _ = std::fs::remove_file(&record);
    text.lines().filter_map(|line| line.split_once(' ')).map(|(arch, name)| (arch.to_owned(), name.to_owned())).collect()
}

#[test]
fn the_page_of_instructions_is_current() {
    let bless = std::env::var_os("WARPWAVE_BLESS").is_some_and(|value| value == "1");
    if !full_run() && !bless {
        println!("skipped: runs the other tests again; WARPWAVE_TEST_FULL=1 does");
        return;
    }
    let tested = tested();
    let mut page = "# Instructions\n\n\
        Instructions of the virtual GPU by architecture, as executed / tested / refused. *Tested* ones are executed by a test that compares \
        the result with AMD's published description; the others run in the kernel corpus, or in tests of other architectures that share \
        their semantics. A *refused* instruction ends the launch with an error that names it. Image, interpolation and export instructions \
        belong to graphics; they are refused and not counted. Instructions with several encodings count once in a group.\n\n\
        Generated; `WARPWAVE_BLESS=1 cargo test -p warpwave-vgpu --test instructions table` writes this page.\n\n"
        .to_owned();
    let _ = writeln!(page, "| | {} |", Arch::ALL.map(Arch::name).join(" | "));
    let _ = writeln!(page, "|---|{}", "---|".repeat(Arch::ALL.len()));
    let mut totals = [[0usize; 3]; Arch::ALL.len()];
    let mut refused: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (group, formats) in GROUPS {
        let _ = write!(page, "| {group} |");
        for (arch, total) in Arch::ALL.into_iter().zip(&mut totals) {
            let rows: Vec<_> = inst_descs().iter().filter(|row| row.supports(arch) && formats.contains(&row.format)).collect();
            let executed: BTreeSet<&str> = rows.iter().filter(|row| is_executed(row)).map(|row| row.name).collect();
            let with_test = executed.iter().filter(|name| tested.contains(&(arch.name().to_owned(), (**name).to_owned()))).count();
            let without: BTreeSet<&str> = rows.iter().map(|row| row.name).filter(|name| !executed.contains(name)).collect();
            for name in &without {
                refused.entry(name).or_default().insert(arch.name());
            }
            let cell = [executed.len(), with_test, without.len()];
            for n in 0..3 {
                total[n] += cell[n];
            }
            let _ = if rows.is_empty() { write!(page, " – |") } else { write!(page, " {} / {} / {} |", cell[0], cell[1], cell[2]) };
        }
        page.push('\n');
    }
    let cells: Vec<String> = totals.iter().map(|[executed, with_test, without]| format!("{executed} / {with_test} / {without}")).collect();
    let _ = writeln!(page, "| **all** | {} |", cells.join(" | "));
    page.push_str("\n## Refused\n\n");
    let mut by_archs: BTreeMap<Vec<&str>, Vec<&str>> = BTreeMap::new();
    for (name, archs) in refused {
        by_archs.entry(archs.into_iter().collect()).or_default().push(name);
    }
    for (archs, names) in by_archs {
        let _ = writeln!(page, "- {}: `{}`", archs.join(", "), names.join("`, `"));
    }
    for (arch, [executed, with_test, _]) in Arch::ALL.into_iter().zip(totals) {
        println!("{arch}: {with_test} of {executed} executed instructions have a test");
        assert!(with_test * 2 > executed, "{arch}: only {with_test} of {executed} executed instructions have a test");
    }
    let path = workspace_root().join(PAGE);
    if bless {
        std::fs::write(&path, &page).unwrap();
    }
    let current = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = current.lines().zip(page.lines()).find(|(old, new)| old != new);
    assert!(current == page, "{PAGE} is stale, first at {differs:?}");
}
