//! Compatibility with CAIL: its variables and the log lines that its users search for.

use crate::common::{Ended, Mpi, library};

/// Runs `link.c`, one sum of 5000 integers, without any variable but those given.
fn run(mpi: &Mpi, variables: &[(&'static str, &str)]) -> Ended {
    let library = library();
    let folder = library.parent().unwrap().to_str().unwrap();
    let program = mpi.compile("link.c", &["-L", folder, "-Wl,--no-as-needed", "-lwarpwave_mpi"]);
    let run = mpi.run(&program, 2).variable("LD_LIBRARY_PATH", folder).variable("XDG_CONFIG_HOME", "/nonexistent").limit(60);
    let ended = variables.iter().fold(run, |run, (name, value)| run.variable(name, *value)).go();
    ended.check(ended.success && ended.out.contains("ok link"), "wrong result");
    ended
}

/// Counts lines of standard error that start with `prefix` and contain `part`. Launchers may put a tag before a line.
fn count(ended: &Ended, prefix: &str, part: &str) -> usize {
    ended.err.lines().filter_map(|line| line.find(prefix).map(|at| &line[at..])).filter(|line| line.contains(part)).count()
}

#[test]
fn debug_lines_have_the_form_of_cail() {
    for mpi in Mpi::all() {
        let ended = run(&mpi, &[("CAIL_ALGO", "ring"), ("CAIL_MIN_MSG_SIZE", "0"), ("CAIL_DEBUG", "1")]);
        ended.check(count(&ended, "[cail] initialized: ", "algo=ring") == 2, "one line per rank at the first call");
        ended.check(count(&ended, "[cail] algorithm=ring (", "CAIL_ALGO; I32 Sum, 20000 bytes") == 2, "one line per rank and call");
        // 20000 bytes are below CAIL's default minimum.
        let ended = run(&mpi, &[("CAIL_ALGO", "ring"), ("CAIL_DEBUG", "1")]);
        ended.check(count(&ended, "[cail] algorithm=native (", "CAIL_ALGO") == 2, "small messages go to the MPI library");
        let ended = run(&mpi, &[("CAIL_MSG_SMALL_THRESHOLD", "64k"), ("CAIL_MIN_MSG_SIZE", "1k"), ("CAIL_DEBUG", "1")]);
        ended.check(count(&ended, "[cail] algorithm=recursive_doubling (", "") == 2, "below the small-message threshold");
        // Without a variable of CAIL the lines have Warpwave's form.
        let ended = run(&mpi, &[("WARPWAVE_MPI_ALGO", "ring"), ("WARPWAVE_MPI_DEBUG", "1")]);
        ended.check(count(&ended, "warpwave-mpi: rank ", "I32 Sum, 20000 bytes: ring (WARPWAVE_MPI_ALGO)") == 2, "Warpwave's form");
        ended.check(!ended.err.contains("[cail"), "CAIL's form without its variables");
    }
}

#[test]
fn invalid_settings_are_reported_in_the_form_of_cail() {
    for mpi in Mpi::all() {
        let ended = run(&mpi, &[("CAIL_ALGO", "tree"), ("CAIL_MIN_MSG_SIZE", "many"), ("CAIL_WARN", "0")]);
        ended.check(count(&ended, "[cail ERROR] CAIL_ALGO: unknown algorithm \"tree\"", "using auto") == 2, "unknown algorithm");
        ended.check(count(&ended, "[cail ERROR] CAIL_MIN_MSG_SIZE: invalid size \"many\"", "using the default") == 2, "bad number");
    }
}

#[test]
fn unsupported_operators_are_warned_about_once() {
    // The user-defined operators of `interaction.c userop`.
    for mpi in Mpi::all() {
        let program = mpi.compile("interaction.c", &[]);
        for (variable, value, warnings) in [("CAIL_WARN", "1", 2), ("CAIL_WARN", "0", 0)] {
            let ended = mpi.run(&program, 2).preloaded("ring").variable(variable, value).args(["userop"]).go();
            ended.check(ended.success, "userop");
            ended.check(count(&ended, "[cail WARN] ", "unsupported datatype or operator") == warnings, &format!("{variable}={value}"));
        }
    }
}
