//! `warpwave mpi` with the installed MPI libraries, and its error messages.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

fn root() -> PathBuf {
    std::env::var_os("WARPWAVE_ROOT").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), PathBuf::from)
}

/// Returns the command: that of the bundle, or the one built with the tests.
fn command() -> PathBuf {
    let beside = root().join("bin/warpwave");
    if beside.exists() { beside } else { PathBuf::from(env!("CARGO_BIN_EXE_warpwave")) }
}

/// Runs the command with an environment of its own, in which Open MPI may run as root.
fn program(line: &[&str], variables: &[(&str, &str)]) -> Output {
    // Containers run tests as root.
    program_as_user(line, &[variables, &[("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]].concat())
}

/// Runs the command with an environment of its own.
fn program_as_user(line: &[&str], variables: &[(&str, &str)]) -> Output {
    // One at a time: ranks spin while waiting, and those of several tests would slow each other down.
    static LOCK: Mutex<()> = Mutex::new(());
    let _lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let path = command();
    let mut command = Command::new(&path);
    let clears = |name: &str| ["WARPWAVE_MPI", "CAIL_", "OMPI_ALLOW_RUN_AS_ROOT"].iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in std::env::vars_os().filter(|(name, _)| clears(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    // The library built with the tests, not an older one next to the command.
    if let Some(library) = path.parent().map(|folder| folder.join("deps/libwarpwave_mpi.so")).filter(|library| library.exists()) {
        command.env("WARPWAVE_MPI_LIB", library);
    }
    // Ignore the user's tuning table.
    command.env("XDG_CONFIG_HOME", "/nonexistent");
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

/// Returns the names of the installed MPI libraries.
fn mpis() -> Vec<String> {
    let info = json(&program(&["info", "--json"], &[]));
    let mut names: Vec<String> = info["mpis"].as_array().unwrap().iter().map(|mpi| mpi["mpi"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names.dedup();
    warpwave_test_support::require(names.len() == 2, &format!("Open MPI and MPICH, found {names:?}"));
    names
}

/// Checks the exit code and a part of the error message.
fn fails(line: &[&str], variables: &[(&str, &str)], code: i32, part: &str) {
    let output = program(line, variables);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{line:?}: {err}");
    assert!(err.contains(part), "{line:?}: {err}");
}

#[test]
fn errors_name_what_is_wrong() {
    fails(&["run", "-np", "0", "--", "sh"], &[], 2, "expected 1 to 1048576 ranks, got 0");
    fails(&["run", "-np", "2"], &[], 2, "PROGRAM");
    fails(&["run", "-np", "2", "--", "./no-such-program"], &[], 2, "program not found: ./no-such-program");
    fails(&["run", "-np", "2", "--algo", "rong", "--", "sh"], &[], 2, "unknown algorithm \"rong\"");
    fails(&["run", "-np", "2", "--algo", "ring:9-8", "--", "sh"], &[], 2, "empty");
    fails(&["run", "-np", "2", "--mpi", "/nonexistent/mpirun", "--", "sh"], &[], 2, "/nonexistent/mpirun");
    fails(&["run", "-np", "2", "--mpi", "/bin/true", "--", "sh"], &[], 2, "not an Open MPI or MPICH launcher");
    fails(&["bench", "--sizes", "3-8"], &[], 2, "expected a multiple of 4 bytes");
    fails(&["bench", "--runs", "0"], &[], 2, "runs");
    fails(&["bench", "--device", "vgpu:gfx90a"], &[], 2, "vgpu:gfx90a");
    fails(&["tune", "-np", "1"], &[], 2, "at least 2");
    fails(&["run", "-np", "2", "--", "/bin/sh"], &[("PATH", "/nonexistent")], 1, "no MPI launcher found in PATH");
    let table = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&table, "openmpi host two ring\n").unwrap();
    fails(&["tune", "-o", table.path().to_str().unwrap()], &[], 1, "line 1");
}

#[test]
fn info_succeeds_without_an_mpi_library() {
    let output = program(&["info"], &[("PATH", "/nonexistent")]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert!(out.contains("no MPI launcher found") && out.contains("table    built-in"), "{out}");
}

#[test]
fn dry_run_prints_the_command_line() {
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
fn a_missing_library_is_reported_with_its_path() {
    for mpi in mpis() {
        let line = ["run", "-np", "2", "--mpi", &mpi, "--", "sh"];
        fails(&line, &[("WARPWAVE_MPI_LIB", "/nonexistent/lib.so")], 1, "/nonexistent/lib.so");
    }
}

#[test]
fn ranks_inherit_library_and_settings_and_the_exit_code_is_returned() {
    for mpi in mpis() {
        let script = "case $LD_PRELOAD in *libwarpwave_mpi.so*) ;; *) exit 3;; esac; test \"$WARPWAVE_MPI_ALGO\" = 'ring:0-8k;native:8k-' || exit 4; exit 7";
        let line = ["run", "-np", "2", "--mpi", &mpi, "--algo", "ring:0-8k;native:8k-", "--", "sh", "-c", script];
        let output = program(&line, &[]);
        assert_eq!(output.status.code(), Some(7), "{mpi}: {}", text(&output.stderr));
    }
}

#[test]
fn bench_measures_correct_results_on_every_mpi() {
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
        // In place, with one algorithm for all sizes, more ranks, and the text table.
        let line = ["bench", "-np", "3", "--mpi", &mpi, "--sizes", "64,100,8k", "--runs", "1", "--algo", "ring", "--in-place"];
        let output = program(&line, &[]);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{mpi}: {err}");
        assert!(out.contains("3 ranks, float sum, in place") && out.contains("worst ratio") && out.matches("ring\n").count() == 3, "{out}");
    }
}

#[test]
fn counters_show_that_the_library_was_used() {
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
fn tune_writes_its_rule_and_keeps_the_others() {
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
        // Larger sizes than measured keep the previous algorithm.
        let last = lines[1].rsplit([';', ' ']).next().unwrap();
        assert!(lines[1].starts_with(&format!("{mpi:8} host    2      ")) && last.starts_with("ring:") && last.ends_with('-'), "{written}");
        assert!(out.contains(lines[1]) && out.contains("speedup") && err.contains("WARPWAVE_MPI_TABLE="), "{out}{err}");
        let info = json(&program(&["info", "--json"], &[("WARPWAVE_MPI_TABLE", table.to_str().unwrap())]));
        assert_eq!(info["table"].as_str(), table.to_str());
    }
}

#[test]
fn bench_compares_device_buffers_with_both_kinds_of_host_copies() {
    // The virtual GPU's HIP library, if all tests are built together.
    let hip = command().parent().map(|folder| folder.join("deps/libamdhip64.so")).filter(|library| library.exists());
    let Some(hip) = hip else {
        eprintln!("skipped: libamdhip64.so was not built with these tests");
        return;
    };
    let gpu = [("WARPWAVE_HIP_LIB", hip.to_str().unwrap()), ("WARPWAVE_VGPU_DEVICES", "gfx90a")];
    for mpi in mpis() {
        for in_place in [&[][..], &["--in-place"]] {
            let line = ["bench", "--mpi", &mpi, "--device", "rocm:0", "--sizes", "64,64k", "--runs", "1", "--json"];
            let output = program(&[&line[..], in_place].concat(), &gpu);
            if text(&output.stderr).contains("cannot build the") && !warpwave_test_support::require(false, "a compiler for AMD GPUs") {
                return;
            }
            let value = json(&output);
            assert!(value["memory"].as_str().unwrap().contains("rocm:0") && value["holds"].is_null(), "{value}");
            for row in value["rows"].as_array().unwrap() {
                assert!(["pageable_us", "pinned_us", "ours_us"].iter().all(|name| row[name].as_f64().unwrap() > 0.0), "{row}");
            }
        }
    }
}

#[test]
fn open_mpi_as_root_needs_allow_run_as_root() {
    // SAFETY: geteuid has no preconditions.
    if !mpis().contains(&"openmpi".to_owned()) || unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: needs Open MPI and root");
        return;
    }
    for line in [&["run", "-np", "2", "--mpi", "openmpi", "--", "true"][..], &["bench", "--mpi", "openmpi"], &["tune", "--mpi", "openmpi"]]
    {
        let output = program_as_user(line, &[]);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line:?}: {err}");
        assert!(err.contains("--allow-run-as-root"), "{line:?}: {err}");
    }
    let allowed = ["run", "-np", "2", "--mpi", "openmpi", "--allow-run-as-root"];
    let output = program_as_user(&[&allowed[..], &["--", "sh", "-c", "exit 5"]].concat(), &[]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    let output = program_as_user(&[&allowed[..], &["--dry-run", "--", "true"]].concat(), &[]);
    assert!(text(&output.stdout).contains(" -np 2 --allow-run-as-root "), "{}", text(&output.stdout));
    // The launcher's own option, and MPICH, which has no such rule.
    let line = ["run", "-np", "1", "--mpi", "openmpi", "--launcher-args", "--allow-run-as-root", "--", "true"];
    assert_eq!(program_as_user(&line, &[]).status.code(), Some(0));
    if mpis().contains(&"mpich".to_owned()) {
        let line = ["run", "-np", "1", "--mpi", "mpich", "--allow-run-as-root", "--", "true"];
        assert_eq!(program_as_user(&line, &[]).status.code(), Some(0));
    }
}

#[test]
fn csv_has_the_columns_of_cail() {
    for mpi in mpis() {
        let output = program(&["bench", "--mpi", &mpi, "--sizes", "64,1k", "--runs", "2", "--csv"], &[]);
        let out = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{mpi}: {}", text(&output.stderr));
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!((lines.len(), lines[0]), (3, "size_bytes,min_us,max_us,avg_us,bw_gbps"), "{out}");
        for (line, bytes) in lines[1..].iter().zip([64.0, 1024.0]) {
            let fields: Vec<f64> = line.split(',').map(|field| field.parse().unwrap()).collect();
            let [size, min, max, avg, bandwidth] = fields[..] else { panic!("{line}") };
            assert!(size == bytes && 0.0 < min && min <= avg && avg <= max && bandwidth >= 0.0, "{line}");
        }
    }
    fails(&["bench", "--csv", "--json"], &[], 2, "--json");
}
