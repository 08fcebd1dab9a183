//! `warpwave mpi`, as a user meets it: ranks started by the MPIs of this machine, and clear messages for what makes no sense.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

fn root() -> PathBuf {
    std::env::var_os("WARPWAVE_ROOT").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), PathBuf::from)
}

/// The command: built with the tests, or packed with them.
fn command() -> PathBuf {
    let beside = root().join("bin/warpwave");
    if beside.exists() { beside } else { PathBuf::from(env!("CARGO_BIN_EXE_warpwave")) }
}

/// The command with an environment of its own.
fn program(line: &[&str], variables: &[(&str, &str)]) -> Output {
    // Ranks wait in busy loops: those of several tests at once would hold each other up.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let path = command();
    let mut command = Command::new(&path);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WARPWAVE_MPI")) {
        command.env_remove(name);
    }
    // The tests' own build, not an older one beside the command.
    if let Some(library) = path.parent().map(|folder| folder.join("deps/libwarpwave_mpi.so")).filter(|library| library.exists()) {
        command.env("WARPWAVE_MPI_LIB", library);
    }
    // Containers run tests as root, which Open MPI wants to be asked for; a table of this machine's user is not for tests.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").env("XDG_CONFIG_HOME", "/nonexistent");
    command.env("WARPWAVE_CUDA_LIB", "/nonexistent/libcuda.so.1").env("WARPWAVE_HIP_LIB", "/nonexistent/libamdhip64.so");
    command.arg("mpi").args(line).envs(variables.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
}

/// The families of MPIs that are here.
fn mpis() -> Vec<String> {
    let info = json(&program(&["info", "--json"], &[]));
    let mut names: Vec<String> = info["mpis"].as_array().unwrap().iter().map(|mpi| mpi["mpi"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names.dedup();
    if names.len() < 2 {
        let required = std::env::var_os("WARPWAVE_REQUIRE_ALL").is_some_and(|v| v == "1");
        assert!(!required, "Open MPI and MPICH are not both here, and WARPWAVE_REQUIRE_ALL is set: {names:?}");
        eprintln!("skipped for what is not here: only {names:?} of openmpi and mpich");
    }
    names
}

/// Wrong input: the exit code, and a part of the message.
fn refused(line: &[&str], variables: &[(&str, &str)], code: i32, part: &str) {
    let output = program(line, variables);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{line:?}: {err}");
    assert!(err.contains(part), "{line:?}: {err}");
}

#[test]
fn what_makes_no_sense_is_said() {
    refused(&["run", "-np", "0", "--", "sh"], &[], 2, "at least 1");
    refused(&["run", "-np", "2"], &[], 2, "PROGRAM");
    refused(&["run", "-np", "2", "--", "./no-such-program"], &[], 2, "no program ./no-such-program");
    refused(&["run", "-np", "2", "--algo", "rong", "--", "sh"], &[], 2, "no algorithm is called \"rong\"");
    refused(&["run", "-np", "2", "--algo", "ring:9-8", "--", "sh"], &[], 2, "empty");
    refused(&["run", "-np", "2", "--mpi", "/nonexistent/mpirun", "--", "sh"], &[], 2, "/nonexistent/mpirun");
    refused(&["run", "-np", "2", "--mpi", "/bin/true", "--", "sh"], &[], 2, "names no MPI");
    refused(&["bench", "--sizes", "3-8"], &[], 2, "no whole floats");
    refused(&["bench", "--runs", "0"], &[], 2, "runs");
    refused(&["bench", "--device", "vgpu:gfx90a"], &[], 2, "vgpu:gfx90a");
    refused(&["tune", "-np", "1"], &[], 2, "at least 2");
    refused(&["run", "-np", "2", "--", "/bin/sh"], &[("PATH", "/nonexistent")], 1, "no MPI launcher is in PATH");
    let table = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&table, "openmpi host two ring\n").unwrap();
    refused(&["tune", "-o", table.path().to_str().unwrap()], &[], 1, "line 1");
}

#[test]
fn a_machine_without_an_mpi_is_told_so_with_exit_0() {
    let output = program(&["info"], &[("PATH", "/nonexistent")]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert!(out.contains("no MPI found") && out.contains("table    built in"), "{out}");
}

#[test]
fn dry_runs_show_the_line() {
    for mpi in mpis() {
        let line = ["run", "-np", "1000", "--mpi", &mpi, "--algo", "native:0-8k;ring:8k-", "--stats", "--launcher-args", "--x 'a b'"];
        let output = program(
            &[&line[..], &["--dry-run", "--", "sh", "-np", "it's"]].concat(),
            &[("LD_PRELOAD", "/lib/other.so"), ("CAIL_WARN", "0")],
        );
        let out = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let (count, assign) =
            if mpi == "openmpi" { ("-np 1000 --oversubscribe -x LD_PRELOAD=/", "=") } else { ("-n 1000 -genv LD_PRELOAD /", " ") };
        assert!(out.contains(count) && out.contains("libwarpwave_mpi.so:/lib/other.so"), "{out}");
        assert!(out.contains(&format!("WARPWAVE_MPI_STATS{assign}1")) && out.contains(&format!("CAIL_WARN{assign}0")), "{out}");
        assert!(out.contains("native:0-8k;ring:8k-'") && out.trim_end().ends_with(r"--x 'a b' sh -np 'it'\''s'"), "{out}");
    }
}

#[test]
fn a_library_that_is_missing_is_named_with_its_places() {
    for mpi in mpis() {
        let line = ["run", "-np", "2", "--mpi", &mpi, "--", "sh"];
        refused(&line, &[("WARPWAVE_MPI_LIB", "/nonexistent/lib.so")], 1, "/nonexistent/lib.so");
    }
}

#[test]
fn ranks_get_the_library_and_settings_and_their_exit_code_comes_back() {
    for mpi in mpis() {
        let script = "case $LD_PRELOAD in *libwarpwave_mpi.so*) ;; *) exit 3;; esac; test \"$WARPWAVE_MPI_ALGO\" = 'ring:0-8k;native:8k-' || exit 4; exit 7";
        let line = ["run", "-np", "2", "--mpi", &mpi, "--algo", "ring:0-8k;native:8k-", "--", "sh", "-c", script];
        let output = program(&line, &[]);
        assert_eq!(output.status.code(), Some(7), "{mpi}: {}", text(&output.stderr));
    }
}

#[test]
fn measurements_are_right_on_every_mpi() {
    for mpi in mpis() {
        let folder = tempfile::tempdir().unwrap();
        let plot = folder.path().join("plot.svg");
        let line = ["bench", "--mpi", &mpi, "--sizes", "4-4k", "--runs", "3", "--json", "--plot", plot.to_str().unwrap()];
        let value = json(&program(&line, &[]));
        assert_eq!((value["flavor"].as_str(), value["ranks"].as_u64()), (Some(mpi.as_str()), Some(2)), "{value}");
        let rows = value["rows"].as_array().unwrap();
        let sizes: Vec<u64> = rows.iter().map(|row| row["bytes"].as_u64().unwrap()).collect();
        assert_eq!(sizes, [4, 16, 64, 256, 1024, 2048, 4096]);
        for row in rows {
            let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
            assert!(number("native_us") > 0.0 && number("ours_us") > 0.0 && number("ours_gb_s") > 0.0, "{row}");
            assert!((number("ratio") - number("ours_us") / number("native_us")).abs() < 1e-6, "{row}");
            assert_eq!(row["times"][1]["seconds"].as_array().unwrap().len(), 3, "{row}");
            assert!(!row["algorithm"].as_str().unwrap().is_empty(), "{row}");
        }
        assert!(value["worst_ratio"].as_f64().unwrap() > 0.0 && value["holds"].is_boolean(), "{value}");
        assert!(std::fs::read_to_string(plot).unwrap().contains("</svg>"));
        // In place, with an algorithm of ours for all sizes, more ranks, and the table for people.
        let line = ["bench", "-np", "3", "--mpi", &mpi, "--sizes", "64,100,8k", "--runs", "1", "--algo", "ring", "--in-place"];
        let output = program(&line, &[]);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{mpi}: {err}");
        assert!(out.contains("3 ranks, float sum, in place") && out.contains("worst ratio") && out.matches("ring\n").count() == 3, "{out}");
    }
}

#[test]
fn the_library_s_counters_show_that_it_did_the_work() {
    for mpi in mpis() {
        let worker = command();
        let names: &[&str] = if mpi == "openmpi" { &["libmpi.so.40"] } else { &["libmpi.so.12", "libmpich.so.12"] };
        let mut line = vec!["run", "-np", "2", "--mpi", &mpi, "--stats", "--algo", "recursive_doubling", "--"];
        line.extend([worker.to_str().unwrap(), "mpi", "worker", "--sizes", "64", "--runs", "1"]);
        line.extend(names.iter().flat_map(|name| ["--library", name]));
        let output = program(&line, &[]);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{mpi}: {err}");
        assert_eq!(out.lines().filter(|line| line.contains("\"correct\":true")).count(), 1, "{out}");
        assert_eq!(err.matches("warpwave-mpi stats").count(), 2, "{err}");
        assert!(err.contains("\"recursive_doubling\":"), "{err}");
    }
}

#[test]
fn tuning_writes_the_rule_and_keeps_the_others() {
    for mpi in mpis() {
        let folder = tempfile::tempdir().unwrap();
        let table = folder.path().join("new/mpi.table");
        let line = ["tune", "--mpi", &mpi, "--sizes", "64,4k", "--runs", "1", "-o", table.to_str().unwrap()];
        let output = program(&[&line[..], &["--dry-run"]].concat(), &[]);
        assert_eq!(output.status.code(), Some(0), "{mpi}: {}", text(&output.stderr));
        assert!(!table.exists());
        std::fs::create_dir(folder.path().join("new")).unwrap();
        std::fs::write(&table, format!("# kept\n{mpi} host 2 ring:0-\nany device 2- ring:0-\n")).unwrap();
        let output = program(&line, &[]);
        let (out, err, written) = (text(&output.stdout), text(&output.stderr), std::fs::read_to_string(&table).unwrap());
        assert_eq!(output.status.code(), Some(0), "{mpi}: {err}");
        let lines: Vec<&str> = written.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[2]), (3, "# kept", "any device 2- ring:0-"), "{written}");
        // Beyond what was measured the older rule goes on.
        let last = lines[1].rsplit([';', ' ']).next().unwrap();
        assert!(lines[1].starts_with(&format!("{mpi:8} host    2      ")) && last.starts_with("ring:") && last.ends_with('-'), "{written}");
        assert!(out.contains(lines[1]) && out.contains("gain") && err.contains("WARPWAVE_MPI_TABLE="), "{out}{err}");
        let info = json(&program(&["info", "--json"], &[("WARPWAVE_MPI_TABLE", table.to_str().unwrap())]));
        assert_eq!(info["table"].as_str(), table.to_str());
    }
}

#[test]
fn buffers_of_a_gpu_are_measured_beside_both_ways_over_the_host() {
    // The virtual GPU as a library, where all tests are built at once.
    let Some(hip) = command().parent().map(|folder| folder.join("deps/libamdhip64.so")).filter(|library| library.exists()) else {
        eprintln!("skipped: libamdhip64.so was not built with these tests");
        return;
    };
    let gpu = [("WARPWAVE_HIP_LIB", hip.to_str().unwrap()), ("WARPWAVE_VGPU_DEVICES", "gfx90a")];
    for mpi in mpis() {
        for in_place in [&[][..], &["--in-place"]] {
            let line = ["bench", "--mpi", &mpi, "--device", "rocm:0", "--sizes", "64,64k", "--runs", "1", "--json"];
            let output = program(&[&line[..], in_place].concat(), &gpu);
            if text(&output.stderr).contains("no kernel for") && std::env::var_os("WARPWAVE_REQUIRE_ALL").is_none_or(|v| v != "1") {
                eprintln!("skipped: no compiler for AMD GPUs");
                return;
            }
            let value = json(&output);
            assert!(value["place"].as_str().unwrap().contains("rocm:0") && value["holds"].is_null(), "{value}");
            for row in value["rows"].as_array().unwrap() {
                assert!(["pageable_us", "page_locked_us", "ours_us"].iter().all(|name| row[name].as_f64().unwrap() > 0.0), "{row}");
            }
        }
    }
}
