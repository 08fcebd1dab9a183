//! Fuzzing with random mutations of the crate's test sources: no panic, no hang, no lost byte.
//!
//! Five seconds of fresh cases, a minute with `WARPWAVE_TEST_FULL=1`. The seed is printed; `WARPWAVE_SEED=N` repeats a run.

use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};

use warpwave_hipify::hazard;
use warpwave_hipify::kernels::{self, find, intrinsics, ptx::Dialect};
use warpwave_hipify::lex::{Kind, Lexed};
use warpwave_hipify::preprocessor::expand;
use warpwave_hipify::{Diagnostic, ExcludedBlocks, LaunchSyntax, Options, Target, UseHeader, translate};
use warpwave_test_support::{Random, full_run, seed};

/// Time limit of a case: loose, for test builds on busy machines.
const LIMIT: Duration = Duration::from_secs(10);

/// A range within `length` of at most `most`.
fn range(random: &mut Random, length: usize, most: usize) -> std::ops::Range<usize> {
    let start = random.below(length + 1);
    start..(start + random.below(most)).min(length)
}

fn sources() -> Vec<Vec<u8>> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut files: Vec<_> = ["golden", "hazards", "kernels"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(tests.join(folder)).unwrap().map(|entry| entry.unwrap().path()))
        .filter(|path| path.extension().is_some_and(|end| end == "cu"))
        .collect();
    files.sort();
    files.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

fn mutate(random: &mut Random, sources: &[Vec<u8>]) -> Vec<u8> {
    let mut text = sources[random.below(sources.len())].clone();
    for _ in 0..1 + random.below(8) {
        match random.below(7) {
            // Another byte, or one bit of it.
            0 if !text.is_empty() => {
                let at = random.below(text.len());
                text[at] = if random.below(2) == 0 { random.next_u64() as u8 } else { text[at] ^ 1 << random.below(8) };
            }
            1 => drop(text.drain(range(random, text.len(), 200))),
            2 => text.truncate(random.below(text.len() + 1)),
            // A fragment of another source, or of this one again.
            3 => {
                let other = &sources[random.below(sources.len())];
                let piece = other[range(random, other.len(), 400)].to_vec();
                let at = random.below(text.len() + 1);
                text.splice(at..at, piece);
            }
            4 => {
                let piece = text[range(random, text.len(), 200)].to_vec().repeat(1 + random.below(8));
                let at = random.below(text.len() + 1);
                text.splice(at..at, piece);
            }
            5 => swap_tokens(random, &mut text),
            _ => {
                const PIECES: &[&[u8]] =
                    &[b"(", b")", b"{", b"}", b"<<<", b">>>", b"\"", b"\\\n", b"#", b"\n#endif\n", b"asm(\"", b"/*", b"\r", b"\0"];
                let at = random.below(text.len() + 1);
                text.splice(at..at, PIECES[random.below(PIECES.len())].iter().copied());
            }
        }
    }
    text
}

fn swap_tokens(random: &mut Random, text: &mut Vec<u8>) {
    let Ok(lexed) = Lexed::new(text) else { return };
    if lexed.tokens.is_empty() {
        return;
    }
    let (a, b) = (random.below(lexed.tokens.len()), random.below(lexed.tokens.len()));
    let (first, second) = (lexed.tokens[a.min(b)], lexed.tokens[a.max(b)]);
    if first.end > second.start {
        return;
    }
    let part = |from: u32, to: u32| &text[from as usize..to as usize];
    let end = text.len() as u32;
    let swapped = [
        part(0, first.start),
        part(second.start, second.end),
        part(first.end, second.start),
        part(first.start, first.end),
        part(second.end, end),
    ]
    .concat();
    *text = swapped;
}

/// The source without CUDA: names and literals are replaced by letters, and launches removed.
fn neutral(source: &[u8]) -> Vec<u8> {
    let mut text = source.to_vec();
    // An `#include` without its name leaves no header name: `<a/*b>` opens a comment then, and other names come to light.
    loop {
        let before = text.clone();
        let Ok(lexed) = Lexed::new(&before) else { break };
        for token in &lexed.tokens {
            if matches!(token.kind, Kind::Name | Kind::String | Kind::HeaderName) {
                let inside = &mut text[token.start as usize..token.end as usize];
                inside.iter_mut().filter(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').for_each(|byte| *byte = b'z');
            }
        }
        if text == before {
            break;
        }
    }
    for at in 0..text.len().saturating_sub(2) {
        if text[at..].starts_with(b"<<<") {
            text[at + 1] = b' ';
        }
    }
    text
}

fn in_bounds(source: &[u8], diagnostics: &[Diagnostic]) {
    for diagnostic in diagnostics {
        assert!(diagnostic.start <= diagnostic.end && diagnostic.end as usize <= source.len(), "{diagnostic:?}");
    }
}

fn check(source: &[u8]) {
    let plain = Options::default();
    let call = Options { launch: LaunchSyntax::Call, target: Target::Miopen, excluded: ExcludedBlocks::Kept, ..Options::default() };
    let header = Options { compatibility_header: UseHeader::Always, ..Options::default() };
    for options in [&plain, &call, &header] {
        let once = translate(source, options);
        in_bounds(source, &once.diagnostics);
        // A launch across unmatched brackets, written as a call, may close them for the next.
        if options.launch == LaunchSyntax::Call {
            continue;
        }
        let twice = translate(&once.output, options).output;
        let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        assert!(twice == once.output, "a second translation with {options:?} changes\n{}\nto\n{}", shown(&once.output), shown(&twice));
    }
    let other = neutral(source);
    assert!(translate(&other, &plain).output == other, "a source without CUDA was changed:\n{}", String::from_utf8_lossy(&other));

    let lexed = Lexed::new(source).unwrap();
    let hazards = hazard::check(&lexed);
    for hazard in &hazards {
        in_bounds(source, std::slice::from_ref(&hazard.diagnostic));
    }
    hazard::check(&Lexed::new(&hazard::fixes(&hazards).apply(source)).unwrap());

    let lines = |text: &[u8]| text.iter().filter(|byte| **byte == b'\n').count();
    let halves = {
        let lexed = Lexed::new(source).unwrap();
        [kernels::translate(source).unwrap(), kernels::translate_for(&lexed, Dialect::Hip), kernels::translate_ptx(&lexed)]
    };
    for done in &halves {
        in_bounds(source, &done.diagnostics);
        assert_eq!(lines(&done.text), lines(source), "the number of lines changed");
    }
    in_bounds(source, &intrinsics::unknown(&lexed, &intrinsics::hip_has));
    find::inventory(&lexed);
    let unit = expand::Unit { files: vec![source], include: Box::new(|_, _, _| Some(0)), defines: Vec::new() };
    expand::expand(&unit).unwrap().kernels();
}

#[test]
fn mutated_sources_are_accepted() {
    let time = Duration::from_secs(if full_run() { 60 } else { 5 });
    let seed = seed();
    let sources = sources();
    let (mut random, begin, mut cases) = (Random::new(seed), Instant::now(), 0u32);
    while begin.elapsed() < time {
        let source = mutate(&mut random, &sources);
        let start = Instant::now();
        let outcome = catch_unwind(|| check(&source));
        let took = start.elapsed();
        if outcome.is_err() || took > LIMIT {
            panic!("WARPWAVE_SEED={seed}, case {cases}, {took:?}:\n{}", source.escape_ascii().to_string().replace("\\n", "\n"));
        }
        cases += 1;
    }
    println!("{cases} broken sources in {time:?}");
    assert!(cases >= 10, "{cases} cases");
}
