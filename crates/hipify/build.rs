//! Packs `data/*.tsv` into static tables: one text pool, rows of offsets into it, an open-addressing index and the argument rules.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

include!("src/hash.rs");

/// In the order in which a name that two families know is looked up.
const FAMILIES: [&str; 16] = [
    "driver",
    "runtime",
    "complex",
    "blas",
    "rand",
    "dnn",
    "fft",
    "sparse",
    "caffe2",
    "cub",
    "rtc",
    "device",
    "solver",
    "tensor",
    "file",
    "exceptions",
];

const FLAGS: [&str; 15] = [
    "no-hip",
    "no-roc",
    "none",
    "cuda-deprecated",
    "hip-deprecated",
    "roc-deprecated",
    "deprecated",
    "cuda-removed",
    "hip-removed",
    "roc-removed",
    "removed",
    "experimental",
    "v2-only",
    "miopen-only",
    "overloaded",
];

const SLOTS: usize = 1 << 15;

/// Texts, each held once.
#[derive(Default)]
struct Pool {
    text: String,
    known: HashMap<String, (usize, usize)>,
}

impl Pool {
    fn add(&mut self, text: &str) -> (usize, usize) {
        if let Some(found) = self.known.get(text) {
            return *found;
        }
        let place = (self.text.len(), text.len());
        assert!(text.len() < 256, "a name of more than 255 bytes: {text}");
        self.text.push_str(text);
        self.known.insert(text.to_owned(), place);
        place
    }
}

fn lines(folder: &Path, name: &str) -> Vec<Vec<String>> {
    let path = folder.join(format!("{name}.tsv"));
    println!("cargo::rerun-if-changed={}", path.display());
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().skip(1).filter(|line| !line.is_empty()).map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

fn flags(words: &str) -> u32 {
    words.split(',').filter_map(|word| FLAGS.iter().position(|flag| *flag == word)).fold(0, |all, bit| all | 1 << bit)
}

/// `8.0/11.0` style numbers as they are in the data: added, deprecated, removed.
fn versions(text: &str) -> [u32; 3] {
    let mut parts = text.split('/').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

/// A row of the table, as the library's `Row` has it.
#[derive(Clone)]
struct Row<'a> {
    cuda: &'a str,
    hip: String,
    roc: &'a str,
    family: usize,
    function: bool,
    flags: u32,
    rules: [usize; 2],
    cuda_versions: [u32; 3],
    hip_versions: [u32; 3],
    /// The number of its row for ROCm 7, from 1 on; 0 without one.
    row_7: usize,
}

impl Row<'_> {
    /// The same name for ROCm 7: with another HIP name, without one (`-`), or only with other rules.
    fn for_rocm_7(&self, hip: Option<String>, rules: [usize; 2]) -> Self {
        let mut row = Row { rules, ..self.clone() };
        let Some(hip) = hip else { return row };
        let unsupported = flags("none,no-hip");
        if row.flags & flags("miopen-only") != 0 {
            // For ROCm 7 the name is HIP's in every mode.
            row.roc = "";
        }
        if row.flags & unsupported == 0 {
            // The versions are those of the other name.
            row.hip_versions = [0; 3];
        }
        row.flags &= !(unsupported | flags("hip-deprecated,hip-removed,miopen-only"));
        if hip == "-" {
            row.flags |= flags("no-hip");
        } else {
            row.hip = hip;
        }
        row
    }

    fn text(&self, pool: &mut Pool) -> String {
        let (c, h, r) = (pool.add(self.cuda), pool.add(&self.hip), pool.add(self.roc));
        format!(
            "Row {{ at: [{}, {}, {}], len: [{}, {}, {}], family: {}, function: {}, flags: {}, rules: {:?}, cuda: {:?}, hip: {:?}, row_7: {} }}",
            c.0,
            h.0,
            r.0,
            c.1,
            h.1,
            r.1,
            self.family,
            self.function,
            self.flags,
            self.rules,
            self.cuda_versions,
            self.hip_versions,
            self.row_7
        )
    }
}

/// Adds the rules of a function for a ROCm version. Returns their range.
fn add_rules(rows: &mut Vec<String>, rules: &[Vec<String>], rocm: &str) -> [usize; 2] {
    let first = rows.len();
    let mut own: Vec<_> = rules.iter().filter(|rule| rule[0].split_once('-').is_none_or(|(_, only)| only == rocm)).collect();
    own.sort_by_key(|rule| rule[1].parse::<u32>().expect("an argument's number"));
    for rule in own {
        let [mode, argument, action, text, to, count] = &rule[..] else { panic!("arguments.tsv: {rule:?}") };
        let mode = match mode.as_str() {
            "hip" | "hip-6" | "hip-7" => "Hip",
            "roc" => "Roc",
            "miopen" => "Miopen",
            _ => panic!("arguments.tsv: mode {mode}"),
        };
        let action = match action.as_str() {
            "wrap" => "Wrap",
            "remove" => "Remove",
            "add" => "Add",
            "copy" => "Copy",
            "move" => "Move",
            "replace" => "Replace",
            "rename-if-count" => "RenameIfCount",
            _ => panic!("arguments.tsv: action {action}"),
        };
        let or_zero = |text: &str| if text.is_empty() { "0".to_owned() } else { text.to_owned() };
        rows.push(format!(
            "Rule {{ mode: Target::{mode}, argument: {argument}, action: Action::{action}, text: {text:?}, to: {}, count: {} }}",
            or_zero(to),
            or_zero(count)
        ));
    }
    [first, rows.len()]
}

fn main() {
    println!("cargo::rerun-if-changed=src/hash.rs");
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("data");
    let mut pool = Pool::default();
    let mut out = String::new();

    // Rules of arguments, by function; `?` stands for the four element types.
    let mut rules: HashMap<String, Vec<Vec<String>>> = HashMap::new();
    for line in lines(&folder, "arguments") {
        let names: Vec<String> = match line[0].split_once('?') {
            Some((front, back)) => ["S", "D", "C", "Z"].iter().map(|letter| format!("{front}{letter}{back}")).collect(),
            None => vec![line[0].clone()],
        };
        for name in names {
            rules.entry(name).or_default().push(line[1..].to_vec());
        }
    }
    let mut rule_rows = Vec::new();

    let (mut rows, mut rows_7) = (Vec::new(), Vec::new());
    let mut names: Vec<String> = Vec::new();
    for (family, file) in FAMILIES.iter().enumerate() {
        for line in lines(&folder, file) {
            let (cells, hip_7) = line.split_at(line.len().min(7));
            let [kind, cuda, hip, roc, words, cuda_versions, hip_versions] = cells else { panic!("{file}.tsv: {line:?}") };
            let own_rules = rules.remove(cuda).unwrap_or_default();
            let named = |name: &String| if name == "=" { cuda.clone() } else { name.clone() };
            let mut row = Row {
                cuda,
                hip: named(hip),
                roc,
                family,
                function: kind == "function",
                flags: flags(words),
                rules: add_rules(&mut rule_rows, &own_rules, "6"),
                cuda_versions: versions(cuda_versions),
                hip_versions: versions(hip_versions),
                row_7: 0,
            };
            if !hip_7.is_empty() || own_rules.iter().any(|rule| rule[0].ends_with("-7")) {
                let rules_7 = add_rules(&mut rule_rows, &own_rules, "7");
                rows_7.push(row.for_rocm_7(hip_7.first().map(named), rules_7).text(&mut pool));
                row.row_7 = rows_7.len();
            }
            rows.push(row.text(&mut pool));
            names.push(cuda.clone());
        }
    }
    assert!(rules.is_empty(), "arguments.tsv names functions that no family has: {:?}", rules.keys());

    let mut slots = vec![0u16; SLOTS];
    let mut pairs = vec![0u64; 1024];
    for (index, name) in names.iter().enumerate() {
        let bytes = name.as_bytes();
        let pair = usize::from(bytes[0]) << 8 | usize::from(*bytes.get(1).unwrap_or(&0));
        pairs[pair / 64] |= 1 << (pair % 64);
        let mut slot = name_hash(bytes) as usize % SLOTS;
        loop {
            match slots[slot] {
                0 => {
                    slots[slot] = index as u16 + 1;
                    break;
                }
                // Two families know it: the first one stays.
                taken if names[usize::from(taken) - 1] == *name => break,
                _ => slot = (slot + 1) % SLOTS,
            }
        }
    }

    let includes: Vec<String> = lines(&folder, "includes")
        .iter()
        .map(|line| {
            let (cells, hip_7) = line.split_at(line.len().min(7));
            let [cuda, hip, roc, role, once, once_roc, words] = cells else { panic!("includes.tsv: {line:?}") };
            let hip_7 = hip_7.first().map_or("", String::as_str);
            let role = match role.as_str() {
                "main" => "Main",
                "main-v2" => "MainV2",
                "plain" => "Plain",
                _ => panic!("includes.tsv: role {role}"),
            };
            let (family, rest) = words.split_once(',').unwrap_or((words, ""));
            let family = FAMILIES.iter().position(|name| *name == family).expect("a family of includes.tsv");
            format!(
                "Include {{ cuda: {cuda:?}, hip: {hip:?}, hip_7: {hip_7:?}, roc: {roc:?}, role: Role::{role}, once: {once:?}, once_roc: {once_roc:?}, family: {family}, unsupported: {} }}",
                rest == "none"
            )
        })
        .collect();

    let list = |out: &mut String, head: &str, items: &[String]| {
        writeln!(out, "pub(crate) static {head}: &[{}] = &[", head_type(head)).expect("a string");
        for item in items {
            writeln!(out, "{item},").expect("a string");
        }
        out.push_str("];\n");
    };
    list(&mut out, "ROWS", &rows);
    list(&mut out, "ROWS_7", &rows_7);
    list(&mut out, "RULES", &rule_rows);
    list(&mut out, "INCLUDES", &includes);
    writeln!(out, "static SLOTS: [u16; {SLOTS}] = {slots:?};").expect("a string");
    writeln!(out, "static PAIRS: [u64; 1024] = {pairs:?};").expect("a string");
    writeln!(out, "static TEXT: &str = {:?};", pool.text).expect("a string");
    let target = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("tables.rs");
    fs::write(&target, out).unwrap_or_else(|error| panic!("{}: {error}", target.display()));
}

fn head_type(head: &str) -> &'static str {
    match head {
        "ROWS" | "ROWS_7" => "Row",
        "RULES" => "Rule",
        _ => "Include",
    }
}
