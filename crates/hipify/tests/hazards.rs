//! The hazard checker on the labeled kernels in `tests/hazards`.
//!
//! The first lines of each file list the expected diagnostics: `// expect: WW0203@7, WW0207@12`, or `// expect: safe`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// The expected diagnostics of a file.
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
fn labeled_kernels_have_high_precision_and_recall() {
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

fn fixed(source: &[u8]) -> Vec<u8> {
    let lexed = Lexed::new(source).unwrap();
    hazard::fixes(&hazard::check(&lexed)).apply(source)
}

/// Text before, text after.
const FIXES: &[(&str, &str)] = &[
    // Masks, in place and by name.
    (
        "__device__ bool f(bool p) { return __all_sync(0xFFFFFFFFu, p) && __any_sync(-1, p); }",
        "__device__ bool f(bool p) { return __all_sync(~0ull, p) && __any_sync(~0ull, p); }",
    ),
    (
        "#define FULL_MASK 0xffffffff\n__device__ int f(int v) { return __shfl_xor_sync(FULL_MASK, v, 1); }",
        "#define FULL_MASK ~0ull\n__device__ int f(int v) { return __shfl_xor_sync(FULL_MASK, v, 1); }",
    ),
    (
        "__device__ bool f(bool p) { const unsigned int all = 0xffffffff; return __any_sync(all, p); }",
        "__device__ bool f(bool p) { const unsigned long long all = ~0ull; return __any_sync(all, p); }",
    ),
    // A name that is more than a mask stays.
    (
        "__device__ unsigned f(bool p) { const unsigned all = 0xffffffff; __any_sync(all, p); return all; }",
        "__device__ unsigned f(bool p) { const unsigned all = 0xffffffff; __any_sync(all, p); return all; }",
    ),
    // Where only 32 threads run, no mask is right.
    (
        "__global__ void f(int *x) { if (threadIdx.x < 32) *x = __any_sync(0xffffffff, *x); }",
        "__global__ void f(int *x) { if (threadIdx.x < 32) *x = __any_sync(0xffffffff, *x); }",
    ),
    // Ballots, and what counts them.
    (
        "__device__ int f(bool p, int lane) { unsigned m = __ballot_sync(~0ull, p); return __popc(m & ((1u << lane) - 1)) + __ffs(m); }",
        "__device__ int f(bool p, int lane) { unsigned long long m = __ballot_sync(~0ull, p); return __popcll(m & ((1ull << lane) - 1)) + \
         __ffsll(m); }",
    ),
    (
        "__device__ int f(bool p) { const uint32_t m = __activemask(); if (m) return 31 - __clz(__ballot_sync(m, p)); return 0; }",
        "__device__ int f(bool p) { const uint32_t m = __activemask(); if (m) return 63 - __clzll(__ballot_sync(m, p)); return 0; }",
    ),
    (
        "__device__ int f(bool p) { int m = __ballot_sync(~0ull, p); return m == 0 ? -1 : __popc(m); }",
        "__device__ int f(bool p) { unsigned long long m = __ballot_sync(~0ull, p); return m == 0 ? -1 : __popcll(m); }",
    ),
    // The complement differs between the widths, and a sign would be extended.
    (
        "__device__ int f(bool p) { unsigned m = __ballot_sync(~0ull, p); return ~m == 0; }",
        "__device__ int f(bool p) { unsigned m = __ballot_sync(~0ull, p); return ~m == 0; }",
    ),
    (
        "__device__ int f(bool p, int *o) { int m = __ballot_sync(~0ull, p); *o = m; return __popc(m); }",
        "__device__ int f(bool p, int *o) { int m = __ballot_sync(~0ull, p); *o = m; return __popc(m); }",
    ),
    (
        "__device__ int f(unsigned long long m, int lane) { unsigned below = (1u << lane) - 1; return __popcll(m & below); }",
        "__device__ int f(unsigned long long m, int lane) { unsigned long long below = (1ull << lane) - 1; return __popcll(m & below); }",
    ),
    (
        "__device__ int f(bool p) { auto m = __ballot_sync(~0ull, p); return __popc(~m) + __popc(m << 1); }",
        "__device__ int f(bool p) { auto m = __ballot_sync(~0ull, p); return __popc(~m) + __popc(m << 1); }",
    ),
    // Widths.
    (
        "__device__ int f(int v) { for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(~0ull, v, d); return v; }",
        "__device__ int f(int v) { for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(~0ull, v, d, 32); return v; }",
    ),
    (
        "__device__ int f(int v) { v += __shfl_xor(v, 16); v += __shfl_xor(v, 8); return __shfl(v, 31); }",
        "__device__ int f(int v) { v += __shfl_xor(v, 16, 32); v += __shfl_xor(v, 8, 32); return __shfl(v, 31, 32); }",
    ),
    (
        "__global__ void f(int *x) { int lane = threadIdx.x & 31; int v = __shfl_sync(~0ull, lane, 0); x[lane] = v; }",
        "__global__ void f(int *x) { int lane = threadIdx.x & 31; int v = __shfl_sync(~0ull, lane, 0, 32); x[lane] = v; }",
    ),
    // Whole waves are counted elsewhere: segments of 32 would leave half of each out.
    (
        "__device__ int f(int v) { return v + __shfl_xor(v, 16); }\n__device__ int g() { return threadIdx.x / warpSize; }",
        "__device__ int f(int v) { return v + __shfl_xor(v, 16); }\n__device__ int g() { return threadIdx.x / warpSize; }",
    ),
];

#[test]
fn fixes_are_as_expected_and_idempotent() {
    for (before, after) in FIXES {
        let once = fixed(before.as_bytes());
        assert_eq!(String::from_utf8_lossy(&once), *after);
        assert_eq!(fixed(&once), once, "a second time: {after}");
    }
    for path in corpus() {
        let once = fixed(&fs::read(&path).unwrap());
        assert_eq!(fixed(&once), once, "a second time: {}", path.display());
    }
}

#[test]
fn a_fix_removes_its_hazard_and_adds_none() {
    for path in corpus() {
        let source = fs::read(&path).unwrap();
        let lexed = Lexed::new(&source).unwrap();
        let hazards = hazard::check(&lexed);
        let left = hazards.iter().filter(|hazard| hazard.fix.is_none()).count();
        let after = found_all(&fixed(&source));
        assert!(after.len() <= left, "{}: {} left of {}, {left} without a fix", path.display(), after.len(), hazards.len());
    }
}

fn found_all(source: &[u8]) -> Vec<u16> {
    hazard::check(&Lexed::new(source).unwrap()).iter().map(|hazard| hazard.diagnostic.code).collect()
}

#[test]
fn a_block_reduction_by_32_is_right_after_its_fixes() {
    let source = b"__device__ float warp_sum(float v) {\n\
        for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffff, v, d);\n return v; }\n\
        __global__ void sum(const float *x, float *y) {\n int lane = threadIdx.x % 32;\n int warp = threadIdx.x / 32;\n\
        float v = warp_sum(x[threadIdx.x]);\n if (lane == 0) y[warp] = v; }";
    assert_eq!(found_all(source), [210, 201, 207, 207]);
    assert_eq!(found_all(&fixed(source)), [0; 0], "segments of 32 are right on any wave");
}

#[test]
fn every_code_has_an_explanation_and_a_labeled_kernel() {
    let mut labelled = BTreeSet::new();
    for path in corpus() {
        labelled.extend(expected(&fs::read_to_string(&path).unwrap()).iter().map(|(code, _)| *code));
    }
    let codes: Vec<u16> = hazard::CODES.iter().map(|(code, _, _)| *code).collect();
    assert!(codes.is_sorted() && codes.iter().all(|code| (200..300).contains(code)));
    assert_eq!(codes, labelled.into_iter().collect::<Vec<_>>());
    for (code, title, page) in hazard::CODES {
        assert!(!title.is_empty() && page.contains("\nbefore:\n") && page.contains("\nafter"), "{code}");
    }
}

/// The example of each explanation: the code before is reported, the code after is not.
#[test]
fn the_examples_are_hazards_before_and_not_after() {
    for (code, _, page) in hazard::CODES {
        let (before, after) = page.split_once("\nbefore:\n").and_then(|(_, rest)| rest.split_once("\nafter")).unwrap();
        // Directives stay outside of the function that the rest is put into.
        let whole = |text: &str| {
            let text = text.split_once(":\n").map_or(text, |(_, lines)| lines);
            let (directives, lines): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.trim_start().starts_with('#'));
            let directives: Vec<&str> = directives.iter().map(|line| line.trim_start()).collect();
            let parameters = "float *s, float *sums, float v, bool p, bool keep, bool done, int tid, int warps, int cols, float *row";
            let lane = if text.contains("int lane") { "" } else { "int lane = threadIdx.x % warpSize;\n" };
            let votes = if text.contains(" votes =") || !text.contains("votes") { "" } else { "auto votes = __activemask();\n" };
            let group = if text.contains("group") { "auto group = coalesced_threads();\n" } else { "" };
            format!(
                "{}\n__global__ void k({parameters}) {{\n{lane}{votes}{group}__syncwarp();\nfloat total = warp_sum(v);\n{}\n}}\n",
                directives.join("\n"),
                lines.join("\n")
            )
        };
        let before = format!("x:\n{before}");
        assert!(found_all(whole(&before).as_bytes()).contains(code), "{code} before:\n{}", whole(&before));
        assert!(!found_all(whole(after).as_bytes()).contains(code), "{code} after:\n{}", whole(after));
    }
}

/// Compiles for a wave64 with Warpwave's headers; `None` if clang cannot run.
fn compiles(clang: &str, folder: &Path, source: &[u8]) -> Option<bool> {
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../jit/src/headers");
    let file = folder.join("kernel.cu");
    fs::write(&file, source).unwrap();
    let output = Command::new(clang)
        .args(["-x", "hip", "--offload-device-only", "--no-default-config", "--offload-arch=gfx90a", "-std=c++17", "-fsyntax-only"])
        .args(["-nogpuinc", "-nogpulib", "-nostdinc", "-w", "-DWARPWAVE_WAVE_SIZE=64", "-DWARPWAVE_ISA_VERSION=9010"])
        .args(["-DWARPWAVE_CODE_OBJECT_VERSION=5", "-include", "stdint.h", "-include", "warpwave_prelude.h", "-isystem"])
        .arg(headers)
        .arg(&file)
        .output()
        .ok()?;
    Some(output.status.success())
}

#[test]
fn fixed_kernels_compile() {
    let folder = std::env::temp_dir().join(format!("warpwave-hazards-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let clang = ["clang-19", "clang-20", "clang"]
        .into_iter()
        .find(|clang| compiles(clang, &folder, b"__global__ void k(int *x) { *x = warpSize; }") == Some(true));
    if let Some(clang) = clang {
        let corpus = corpus().into_iter().map(|path| (path.display().to_string(), fs::read(&path).unwrap()));
        let golden = FIXES.iter().map(|(before, _)| ((*before).to_owned(), before.as_bytes().to_vec()));
        let mut checked = 0;
        for (name, source) in corpus.chain(golden) {
            let after = fixed(&source);
            // Some need libraries that the headers do not have; those prove nothing.
            if after != source && compiles(clang, &folder, &source) == Some(true) {
                assert_eq!(compiles(clang, &folder, &after), Some(true), "{name}:\n{}", String::from_utf8_lossy(&after));
                checked += 1;
            }
        }
        println!("{checked} fixed kernels compile with {clang}");
        assert!(checked >= 20);
    } else {
        println!("no clang for AMD here: fixed kernels were not compiled");
    }
    fs::remove_dir_all(&folder).unwrap();
}

mod any_text {
    use super::*;
    use proptest::prelude::*;

    /// Words that the rules look for, so that random texts reach into them.
    const WORDS: &[&str] = &[
        "__global__",
        "void",
        "k",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ";",
        ",",
        "=",
        "==",
        "<",
        ">",
        ">>",
        "<<",
        "&",
        "%",
        "/",
        "*",
        "+",
        "-",
        "~",
        "+=",
        "&=",
        "?",
        ":",
        ".",
        "x",
        "threadIdx",
        "blockIdx",
        "lane",
        "warp",
        "31",
        "32",
        "16",
        "5",
        "1u",
        "0xffffffff",
        "unsigned",
        "int",
        "for",
        "if",
        "return",
        "__shfl_xor_sync",
        "__ballot_sync",
        "__popc",
        "__activemask",
        "warpSize",
        "\n#define ",
        "WARP_SIZE",
        "FULL_MASK",
        "asm",
        "\"%laneid\"",
        "\n",
        "constexpr",
        "static_assert",
        "coalesced_threads",
        "size",
        "struct",
        "template",
        "volatile",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        /// Never a panic; spans and changes lie inside the source, and fixing ends.
        #[test]
        fn any_words_are_read(words in proptest::collection::vec(proptest::sample::select(WORDS), 0..200)) {
            let source = words.join(" ").into_bytes();
            let lexed = Lexed::new(&source).unwrap();
            for hazard in hazard::check(&lexed) {
                let d = &hazard.diagnostic;
                prop_assert!(d.start < d.end && d.end as usize <= source.len(), "{d:?}");
            }
            let _ = fixed(&source);
        }

        #[test]
        fn any_bytes_are_read(source in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = fixed(&source);
        }
    }

    /// Nesting and repetition that would take a careless scan quadratic time.
    #[test]
    fn deep_nesting_takes_linear_time() {
        const UNITS: &[&str] = &[
            "(",
            "{",
            "(1 << ",
            "(threadIdx.x / 32 ",
            "__popc(",
            "__shfl_sync(m, ",
            "a = b = ",
            "struct ",
            "if (threadIdx.x < 32) ",
            "for (int o = 16; o > 0; o /= 2) ",
            "__shfl_xor_sync(m, v, 16) ",
            "unsigned m = __ballot_sync(0xffffffff, p); ",
            "const unsigned f = 0xffffffff; __any_sync(f, p); ",
        ];
        for unit in UNITS {
            let source = format!("__global__ void k(int lane) {{ {} __shfl_sync(0xffffffff, v, 31); }}", unit.repeat(10_000));
            let started = std::time::Instant::now();
            let _ = fixed(source.as_bytes());
            assert!(started.elapsed().as_secs() < 10, "{unit}: {:?}", started.elapsed());
        }
    }
}
