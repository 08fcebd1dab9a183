//! Correct results for every datatype and operator with every algorithm.
//!
//! A sample of the cases by default, repeated with `WARPWAVE_SEED`; all of them with `WARPWAVE_TEST_FULL=1`.

use crate::common::{ALGORITHMS, Ended, Kind, Mpi, full, seed};

/// Parses `cases 4424 wrong 0 plain 3672`.
fn summary(ended: &Ended) -> [u64; 3] {
    let words = ended.out.lines().rev().find_map(|line| line.strip_prefix("cases "));
    let numbers: Vec<u64> = words.unwrap_or("").split_whitespace().filter_map(|word| word.parse().ok()).collect();
    ended.check(numbers.len() == 3, "the program printed no summary");
    [numbers[0], numbers[1], numbers[2]]
}

/// Runs the program and checks that all cases are right and were executed by the algorithm.
fn check(mpi: &Mpi, np: usize, algorithm: &str, arguments: &[String]) -> Ended {
    let program = mpi.compile("matrix.c", &[]);
    // Exclude cases in which the MPI library itself is wrong.
    let faults: &[&str] = if algorithm == "native" { &["--native"] } else { &[] };
    let ended = mpi.run(&program, np).preloaded(algorithm).args(arguments).args(faults).limit(if full() { 500 } else { 120 }).go();
    let [cases, wrong, plain] = summary(&ended);
    ended.check(ended.success && wrong == 0 && cases > 0, &format!("{:?}, np {np}, {algorithm}: {wrong} wrong of {cases}", mpi.kind));
    println!("{:?}, np {np}, {algorithm}, {}: {cases} cases, {:.1} s", mpi.kind, arguments.join(" "), ended.took.as_secs_f64());
    match algorithm {
        // The table decides, and a single rank is always forwarded.
        "auto" => assert_eq!(ended.stats(np).len(), np),
        _ if np == 1 => assert_eq!(ended.stats(np).len(), np),
        // The library executes cases in which the MPI library's result is wrong.
        "native" => ended.check_handled(np, algorithm, plain / 2),
        _ => ended.check_handled(np, algorithm, plain),
    }
    ended
}

fn sample(one_of: u64, seed: u64) -> Vec<String> {
    ["--sample", &one_of.to_string(), "--seed", &seed.to_string()].map(str::to_owned).to_vec()
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Every algorithm, auto and native.
fn all() -> impl Iterator<Item = &'static str> {
    ALGORITHMS.into_iter().chain(["auto", "native"])
}

fn every_algorithm(kind: Kind, sizes: &[usize]) {
    let (Some(mpi), seed) = (Mpi::find(kind), seed()) else { return };
    for (round, (&np, algorithm)) in sizes.iter().flat_map(|np| all().map(move |algorithm| (np, algorithm))).enumerate() {
        check(&mpi, np, algorithm, &sample(if full() { 1 } else { 8 }, seed + round as u64));
    }
}

#[test]
fn all_types_and_operations_on_open_mpi() {
    every_algorithm(Kind::OpenMpi, &[2, 3]);
}

#[test]
fn all_types_and_operations_on_mpich() {
    every_algorithm(Kind::Mpich, &[2]);
}

/// Pairs of algorithm and number of ranks: all pairs in a full run, otherwise each number and each algorithm at least once.
fn other_sizes(kind: Kind, sizes: &[usize], one_of: u64) {
    let (Some(mpi), seed) = (Mpi::find(kind), seed()) else { return };
    let algorithms: Vec<&str> = all().collect();
    for (i, &np) in sizes.iter().enumerate() {
        for (j, algorithm) in algorithms.iter().enumerate() {
            if full() || (i + j + seed as usize).is_multiple_of(sizes.len()) {
                check(&mpi, np, algorithm, &sample(one_of, seed + (i * algorithms.len() + j) as u64));
            }
        }
    }
}

#[test]
fn other_numbers_of_ranks_on_open_mpi() {
    other_sizes(Kind::OpenMpi, &[1, 4, 5, 7], if full() { 10 } else { 30 });
}

#[test]
fn other_numbers_of_ranks_on_mpich() {
    // Oversubscription costs MPICH several milliseconds per call.
    other_sizes(Kind::Mpich, &[1, 3, 4, 5, 7], if full() { 40 } else { 150 });
}

#[test]
fn large_messages_in_segments() {
    let seed = seed();
    for mpi in Mpi::all() {
        let sizes: &[usize] = if mpi.kind == Kind::OpenMpi { &[2, 3] } else { &[2] };
        for (round, (&np, algorithm)) in sizes.iter().flat_map(|np| ALGORITHMS.map(|algorithm| (np, algorithm))).enumerate() {
            let mut arguments = words("--short --base 40000");
            arguments.extend(sample(if full() { 1 } else { 24 }, seed + round as u64));
            check(&mpi, np, algorithm, &arguments);
        }
        if full() {
            let mut arguments = words("--short --base 600000");
            arguments.extend(sample(16, seed));
            ALGORITHMS.iter().for_each(|algorithm| _ = check(&mpi, 2, algorithm, &arguments));
        }
    }
}

#[test]
fn cail_cases_on_host_memory() {
    for mpi in Mpi::all() {
        for (np, algorithm) in [(2, "ring"), (2, "auto"), (3, "rabenseifner"), (4, "recursive_doubling")] {
            // CAIL's count; fewer where oversubscription makes MPICH slow.
            let base = if mpi.kind == Kind::Mpich && np > 2 { 100 } else { 1000 };
            let ended = check(&mpi, np, algorithm, &words(&format!("--cail --base {base}")));
            ended.check(ended.out.lines().any(|line| line == "160/160"), "not 160/160");
        }
    }
}

/// Checks the test program itself with a faulty interposer; one MPI library is enough.
#[test]
fn every_kind_of_fault_is_detected() {
    if let Some(mpi) = Mpi::all().first() {
        let program = mpi.compile("matrix.c", &[]);
        let faulty = mpi.compile("faulty.c", &["-shared", "-fPIC"]);
        for (fault, message) in [
            ("none", ""),
            ("last", ": element "),
            ("swapped", ": element 0: expected"),
            ("behind", "after the buffer was overwritten"),
            ("before", "byte -1 before the buffer was overwritten"),
            ("send", "of the send buffer was overwritten"),
            ("padding", "the padding of element 0 was overwritten"),
            ("bit", "ranks differ bitwise"),
            ("error", "wrong: rank 0: INT SUM normal 1: "),
        ] {
            let arguments = words("--short --native --base 40");
            let run = mpi.run(&program, 2).variable("LD_PRELOAD", faulty.to_str().unwrap()).variable("FAULT", fault);
            let ended = run.args(arguments).go();
            let [cases, wrong, _] = summary(&ended);
            ended.check(cases > 100 && ended.success == (fault == "none") && (wrong == 0) == (fault == "none"), fault);
            ended.check(ended.out.contains(message), &format!("{fault} is not named in the output"));
        }
    }
}
