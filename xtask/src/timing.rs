//! Times of test programs and tests, from the output of `cargo test`.
//!
//! Stable test programs report their total time only. The time of a single test follows from the order of events: the harness starts tests
//! in order of their names on a fixed number of threads, so test number `n + threads` starts when the `n`-th test ends.

use std::io::{BufRead, BufReader, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::run::{Doing, Result, failed, seconds, shown};

/// Entries printed of each list.
const SHOWN: usize = 12;

/// A running test program.
struct Program {
    name: String,
    started: Instant,
    finished: Vec<(String, Instant)>,
}

/// Times collected from one or more runs.
#[derive(Default)]
pub struct Timings {
    threads: usize,
    program: Option<Program>,
    programs: Vec<(String, Duration)>,
    tests: Vec<(String, Duration)>,
}

impl Timings {
    /// Creates empty timings for programs that run `threads` tests in parallel.
    pub fn new(threads: usize) -> Timings {
        Timings { threads: threads.max(1), ..Timings::default() }
    }

    /// Runs a `cargo test` command, passes its output on, and collects times.
    pub fn run(&mut self, command: &mut Command) -> Result<()> {
        self.run_to(command, &mut std::io::stdout().lock())
    }

    fn run_to(&mut self, command: &mut Command, out: &mut dyn Write) -> Result<()> {
        let line = shown(command, std::path::Path::new(""));
        let (reader, writer) = std::io::pipe().doing(|| "open a pipe".into())?;
        // One pipe for both streams: cargo names the program on stderr, the program reports its tests on stdout.
        let stderr = writer.try_clone().doing(|| "copy a pipe".into())?;
        let mut child = command.stdout(writer).stderr(stderr).spawn().doing(|| format!("run `{line}`"))?;
        // The command keeps the write ends open otherwise, and the pipe would never end.
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut bytes = Vec::new();
        let mut reader = BufReader::new(reader);
        while reader.read_until(b'\n', &mut bytes).doing(|| format!("read the output of `{line}`"))? > 0 {
            let _ = out.write_all(&bytes);
            self.line(String::from_utf8_lossy(&bytes).trim_end(), Instant::now());
            bytes.clear();
        }
        let status = child.wait().doing(|| format!("wait for `{line}`"))?;
        if status.success() { Ok(()) } else { failed(format!("`{line}` failed ({status}); see its output above")) }
    }

    /// Takes one line of output.
    fn line(&mut self, line: &str, now: Instant) {
        let started = |text: &str| line.trim_start().strip_prefix(text).map(str::to_owned);
        if let Some(rest) = started("Running ").or_else(|| started("Doc-tests ").map(|rest| format!("doc tests of {rest}"))) {
            self.program = Some(Program { name: program_name(&rest), started: now, finished: Vec::new() });
        } else if line.starts_with("test result: ") {
            self.end_program(now);
        } else if let Some((name, _)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
            && let Some(program) = &mut self.program
        {
            program.finished.push((name.trim_end_matches(" - should panic").to_owned(), now));
        }
    }

    fn end_program(&mut self, now: Instant) {
        let Some(Program { name, started, finished }) = self.program.take() else { return };
        self.programs.push((name.clone(), now - started));
        if name.starts_with("doc tests") {
            // They are compiled first, in an order of their own.
            return;
        }
        let mut in_order: Vec<&(String, Instant)> = finished.iter().collect();
        in_order.sort();
        for (index, (test, ended)) in in_order.into_iter().enumerate() {
            let began = index.checked_sub(self.threads).map_or(started, |earlier| finished[earlier].1);
            self.tests.push((format!("{name} {test}"), ended.saturating_duration_since(began)));
        }
    }

    /// Prints the slowest programs and tests.
    pub fn print(&self) {
        for (title, list) in [("slowest test programs", &self.programs), ("slowest tests", &self.tests)] {
            let slowest = slowest(list);
            if !slowest.is_empty() {
                println!("\n{title}:");
            }
            for (name, time) in slowest {
                println!("{:>12}  {name}", seconds(*time));
            }
        }
    }
}

fn slowest(list: &[(String, Duration)]) -> Vec<&(String, Duration)> {
    let mut sorted: Vec<_> = list.iter().filter(|(_, time)| *time >= Duration::from_secs(1)).collect();
    sorted.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    sorted.truncate(SHOWN);
    sorted
}

/// Returns `warpwave_gpu` or `conformance` from `tests/conformance.rs (target/debug/deps/conformance-0123456789abcdef)`.
fn program_name(rest: &str) -> String {
    let path = rest.rsplit_once('(').map_or(rest, |(_, path)| path.trim_end_matches(')'));
    let file = path.rsplit('/').next().unwrap_or(path);
    let is_hash = |hash: &str| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    file.rsplit_once('-').filter(|(_, hash)| is_hash(hash)).map_or(file, |(name, _)| name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_named_without_path_and_hash() {
        assert_eq!(program_name("unittests src/lib.rs (target/debug/deps/warpwave_gpu-0123456789abcdef)"), "warpwave_gpu");
        assert_eq!(program_name("tests/run-it.rs (/t/debug/deps/run-it-0123456789abcdef)"), "run-it");
    }

    #[test]
    fn times_of_tests_follow_from_the_order_of_events() {
        let mut timings = Timings::new(2);
        let start = Instant::now();
        let at = |secs: u64| start + Duration::from_secs(secs);
        timings.line("     Running tests/x.rs (target/debug/deps/x-0123456789abcdef)", at(0));
        // `a` and `b` start at 0; `c` starts when `b` ends, `d` when `a` ends.
        for (name, end) in [("b", 2), ("a", 5), ("d", 6), ("c", 9)] {
            timings.line(&format!("test {name} ... ok"), at(end));
        }
        timings.line("test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.00s", at(9));
        assert_eq!(timings.programs, [("x".to_owned(), Duration::from_secs(9))]);
        let tests: Vec<_> = timings.tests.iter().map(|(name, time)| (name.as_str(), time.as_secs())).collect();
        assert_eq!(tests, [("x a", 5), ("x b", 2), ("x c", 7), ("x d", 1)]);
        assert_eq!(slowest(&timings.tests)[0].0, "x c");
    }

    #[test]
    fn the_output_of_a_command_is_read_to_its_end() {
        let mut timings = Timings::new(1);
        let script = "echo '   Running a (b/c-0123456789abcdef)' >&2; echo 'test t ... ok'; echo 'test result: ok. 1 passed'";
        let mut out = Vec::new();
        timings.run_to(Command::new("sh").args(["-c", script]), &mut out).expect("sh runs");
        assert!(String::from_utf8_lossy(&out).starts_with("   Running a"));
        assert_eq!((timings.programs.len(), timings.tests.len()), (1, 1));
        assert!(timings.run_to(Command::new("sh").args(["-c", "exit 3"]), &mut out).is_err());
    }
}
