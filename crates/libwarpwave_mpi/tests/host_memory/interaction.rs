//! Interaction with everything else that MPI programs do: other messages, communicators, threads, errors, killed ranks.

use crate::common::{ALGORITHMS, Kind, Mpi, full};

/// Runs a subject of `interaction.c` with each algorithm.
fn interaction(kind: Kind, np: usize, algorithms: &[&str], arguments: &str) {
    let Some(mpi) = Mpi::find(kind) else { return };
    let program = mpi.compile("interaction.c", &[]);
    let subject = arguments.split(' ').next().unwrap();
    for algorithm in algorithms {
        let ended = mpi.run(&program, np).preloaded(algorithm).args(arguments.split(' ')).go();
        ended.check(ended.success && ended.out.lines().any(|line| line == format!("ok {subject}")), &format!("{arguments}, {algorithm}"));
        if let Some(skipped) = ended.out.lines().find(|line| line.starts_with("skipped: ")) {
            println!("{kind:?}: {skipped}");
        } else if *algorithm != "auto" {
            ended.check_handled(np, algorithm, 1);
        }
        println!("{kind:?}, np {np}, {algorithm}, {arguments}: {:.1} s", ended.took.as_secs_f64());
    }
}

/// Runs a subject with both MPI libraries on two and three ranks: one algorithm each, or all of them in a full run.
fn everywhere(arguments: &str) {
    let all: Vec<&str> = ALGORITHMS.into_iter().chain(["auto"]).collect();
    for (i, (kind, np)) in [(Kind::OpenMpi, 2), (Kind::OpenMpi, 3), (Kind::Mpich, 2), (Kind::Mpich, 3)].into_iter().enumerate() {
        // Rotated by subject, so that every algorithm runs with most subjects.
        let chosen = (i + arguments.len()) % all.len();
        interaction(kind, np, if full() { &all } else { &all[chosen..=chosen] }, arguments);
    }
}

#[test]
fn wildcard_receives_match_only_the_programs_messages() {
    everywhere("wildcard");
}

#[test]
fn communicators_of_all_kinds() {
    everywhere("split");
}

#[test]
fn intercommunicators_are_forwarded() {
    everywhere("inter");
}

#[test]
fn concurrent_calls_from_threads() {
    for kind in [Kind::OpenMpi, Kind::Mpich] {
        interaction(kind, 2, if full() { &ALGORITHMS } else { &["ring"] }, "threads");
    }
}

#[test]
fn a_thousand_communicators_twice() {
    for kind in [Kind::OpenMpi, Kind::Mpich] {
        interaction(kind, 2, &["recursive_doubling"], "comms");
    }
}

#[test]
fn errors_are_those_of_the_mpi_library() {
    everywhere("errors");
}

#[test]
fn zero_elements() {
    everywhere("zero");
}

#[test]
fn more_than_two_gibibytes() {
    if !full() {
        return println!("skipped: needs 6 GiB and a minute; WARPWAVE_TEST_FULL=1 runs it");
    }
    for kind in [Kind::OpenMpi, Kind::Mpich] {
        interaction(kind, 2, &["ring", "recursive_doubling", "rabenseifner"], "large");
    }
}

#[test]
fn user_defined_operators_and_datatypes() {
    everywhere("userop");
}

#[test]
fn nothing_leaks() {
    for kind in [Kind::OpenMpi, Kind::Mpich] {
        let (algorithms, calls): (&[&str], _) = if full() { (&ALGORITHMS, 100_000) } else { (&["segmented_ring"], 20_000) };
        interaction(kind, 2, algorithms, &format!("leak {calls}"));
    }
}

#[test]
fn communicators_that_were_never_freed() {
    everywhere("finalize");
}

#[test]
fn nonblocking_persistent_and_large_count_calls() {
    everywhere("iallreduce");
}

#[test]
fn a_driver_without_devices() {
    everywhere("driver");
}

#[test]
fn a_killed_rank_ends_the_program() {
    for mpi in Mpi::all() {
        let program = mpi.compile("interaction.c", &[]);
        let ended = mpi.run(&program, 2).preloaded("ring").args(["killed"]).limit(30).go();
        ended.check(!ended.timed_out && !ended.success && !ended.out.contains("ok killed"), "a killed rank");
    }
}
