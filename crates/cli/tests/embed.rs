//! End-to-end tests of `warpwave embed`, and of encoders in `warpwave model convert`.

use std::ffi::OsString;
use std::path::Path;

use serde_json::Value;
use warpwave_test_support::workspace_root;

/// The tiny encoder, with a vocabulary of letters.
fn encoder() -> tempfile::TempDir {
    let (from, folder) = (workspace_root().join("crates/llm/tests/oracles/bert"), tempfile::tempdir().unwrap());
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(from.join(name), folder.path().join(name)).unwrap();
    }
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(str::to_owned);
    let letters = ('a'..='z').flat_map(|letter| [letter.to_string(), format!("##{letter}")]);
    let tokens: Vec<String> = special.into_iter().chain(letters).chain((57..320).map(|number| format!("[unused{number}]"))).collect();
    std::fs::write(folder.path().join("vocab.txt"), tokens.join("\n")).unwrap();
    folder
}

fn run(line: &[&str]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = std::iter::once("warpwave").chain(line.iter().copied()).map(OsString::from);
    let code = warpwave_cli::main(args, warpwave::gpu::Devices::default, &mut out, &mut err);
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn vectors(model: &Path, texts: &[&str]) -> Vec<Vec<f64>> {
    let line = [&["embed", model.to_str().unwrap()], texts, &["--device", "cpu"]].concat();
    let (code, out, err) = run(&line);
    assert_eq!(code, 0, "{err}");
    out.lines().map(|line| line.split(' ').map(|number| number.parse().unwrap()).collect()).collect()
}

#[test]
fn embed_gives_a_vector_per_text_from_folders_and_gguf_files() {
    let folder = encoder();
    let found = vectors(folder.path(), &["ab cd", "e"]);
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [32, 32]);
    for vector in &found {
        assert!((vector.iter().map(|value| value * value).sum::<f64>() - 1.0).abs() < 1e-5);
    }
    let gguf = folder.path().join("model.gguf");
    let (code, _, err) = run(&["model", "convert", folder.path().to_str().unwrap(), gguf.to_str().unwrap()]);
    assert_eq!(code, 0, "{err}");
    let off = |a: &[Vec<f64>], b: &[Vec<f64>]| a.concat().iter().zip(b.concat()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off(&vectors(&gguf, &["ab cd", "e"]), &found) < 1e-6);
    let small = folder.path().join("small.gguf");
    let (code, _, err) = run(&["model", "convert", folder.path().to_str().unwrap(), small.to_str().unwrap(), "--dtype", "q8_0"]);
    assert_eq!(code, 0, "{err}");
    let off = off(&vectors(&small, &["ab cd", "e"]), &found);
    assert!(off > 0.0 && off < 0.02, "{off}");

    let (code, out, err) = run(&["embed", gguf.to_str().unwrap(), "ab cd", "--device", "cpu", "--json"]);
    assert_eq!(code, 0, "{err}");
    let json: Value = serde_json::from_str(&out).unwrap();
    // [CLS] a ##b c ##d [SEP]
    assert_eq!((&json["data"][0]["tokens"], json["data"][0]["embedding"].as_array().unwrap().len()), (&Value::from(6), 32));
}

#[test]
fn what_embed_cannot_do_is_said() {
    let folder = encoder();
    let model = folder.path().to_str().unwrap();
    let decoder = workspace_root().join("crates/llm/tests/oracles/llama3");
    for (line, code, says) in [
        (&["embed", model, "--device", "cpu"][..], 2, "TEXT"),
        (&["embed", decoder.to_str().unwrap(), "a", "--device", "cpu"], 2, "expected an encoder"),
        (&["embed", model, &"a ".repeat(63), "--device", "cpu"], 1, "more than the context of 64"),
        (&["generate", model, "-p", "a", "--device", "cpu"], 1, "bert"),
    ] {
        let (found, _, err) = run(line);
        assert!(found == code && err.contains(says), "{line:?}: {found}, {err}");
    }
}
