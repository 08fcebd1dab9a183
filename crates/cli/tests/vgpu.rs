//! `warpwave vgpu`.

use std::process::{Command, Output};

fn warpwave(line: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpwave"));
    command.env_remove("WARPWAVE_VGPU_DEVICES").args(["vgpu"]).args(line).envs(environment.iter().copied());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn exec_passes_arguments_the_cards_and_the_exit_code() {
    let script = "echo \"$1|$WARPWAVE_VGPU_DEVICES|$LD_PRELOAD\"; exit 37";
    let output = warpwave(&["exec", "--arch", "gfx90a,gfx908", "--", "sh", "-c", script, "sh", "--arch=x y"], &[]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(37), "{said}{}", text(&output.stderr));
    let parts: Vec<&str> = said.trim().split('|').collect();
    assert_eq!(parts[..2], ["--arch=x y", "gfx90a,gfx908"]);
    assert!(parts[2].ends_with("libhsa_runtime64.so"), "{said}");
    let output = warpwave(&["exec", "--", "sh", "-c", "echo $WARPWAVE_VGPU_DEVICES"], &[("WARPWAVE_VGPU_DEVICES", "gfx1100")]);
    assert_eq!((output.status.code(), text(&output.stdout).trim()), (Some(0), "gfx1100"));
    let output = warpwave(&["exec", "--", "sh", "-c", "kill -9 $$"], &[]);
    assert_eq!(output.status.code(), None, "a signal is passed on");
}

#[test]
fn wrong_cards_programs_and_libraries_are_named() {
    for (line, environment, code, words) in [
        (&["exec", "--arch", "gfx90b", "--", "true"][..], None, 2, "`gfx90b`; expected one of gfx906"),
        (&["exec", "--arch", "", "--", "true"], None, 2, "unknown architecture"),
        (&["exec"], None, 2, "PROGRAM"),
        (&["exec", "--", "/nonexistent/program"], None, 1, "/nonexistent/program"),
        (&["exec", "--", "true"], Some(("WARPWAVE_HSA_LIB", "/nonexistent.so")), 1, "WARPWAVE_HSA_LIB"),
        (&["info"], Some(("WARPWAVE_VGPU_DEVICES", "gfx1")), 2, "WARPWAVE_VGPU_DEVICES"),
    ] {
        let output = warpwave(line, environment.as_slice());
        let errors = text(&output.stderr);
        assert!(output.status.code() == Some(code) && errors.contains(words), "{line:?}: {:?} {errors}", output.status);
    }
}

#[test]
fn info_shows_the_library_and_the_cards() {
    let output = warpwave(&["info", "--json"], &[("WARPWAVE_VGPU_DEVICES", "gfx942,gfx908")]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(value["library"].as_str().unwrap().ends_with("libhsa_runtime64.so"));
    let cards: Vec<_> = value["devices"].as_array().unwrap().iter().map(|card| card["arch"].as_str().unwrap()).collect();
    assert_eq!(cards, ["gfx942", "gfx908"]);
    assert_eq!(value["devices"][0]["compute_units"], 304);
    let said = text(&warpwave(&["info"], &[]).stdout);
    assert!(said.contains("libhsa_runtime64.so") && said.contains("gfx90a   Virtual Instinct MI210"), "{said}");
}
