//! Fortran programs with the library preloaded, and a C program linked with it.

use crate::common::{ALGORITHMS, Mpi, full, library, require};

fn fortran(source: &str, calls: u64) {
    let name = source.split_once('.').unwrap().0;
    for mpi in Mpi::all() {
        if !require(mpi.has_fortran(), &format!("a Fortran compiler for {:?} (apt install gfortran)", mpi.kind)) {
            continue;
        }
        let program = mpi.compile(source, &[]);
        for algorithm in &ALGORITHMS[..if full() { ALGORITHMS.len() } else { 2 }] {
            let ended = mpi.run(&program, 2).preloaded(algorithm).limit(60).go();
            ended.check(ended.success && ended.out.lines().any(|line| line.trim() == format!("ok {name}")), algorithm);
            ended.check_handled(2, algorithm, calls);
        }
    }
}

#[test]
fn programs_that_use_mpi() {
    fortran("f77.f90", 10);
}

#[test]
fn programs_that_use_mpi_f08() {
    fortran("f08.f90", 4);
}

#[test]
fn a_program_linked_with_the_library() {
    let library = library();
    let folder = library.parent().unwrap().to_str().unwrap();
    for mpi in Mpi::all() {
        let program = mpi.compile("link.c", &["-L", folder, "-Wl,--no-as-needed", "-lwarpwave_mpi"]);
        let run = mpi.run(&program, 2).variable("LD_LIBRARY_PATH", folder).variable("WARPWAVE_MPI_ALGO", "ring");
        let ended = run.variable("WARPWAVE_MPI_STATS", "1").limit(60).go();
        ended.check(ended.success && ended.out.contains("ok link"), "linked");
        ended.check_handled(2, "ring", 1);
    }
}
