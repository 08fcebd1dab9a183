//! End-to-end tests of `warpwave serve` and `warpwave worker`: the real program, a tiny model, real HTTP clients.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warpwave_test_support::{full_run, test_model, virtual_device, workspace_root};

/// A tiny chat model: an oracle with a vocabulary of bytes.
fn chat_model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let oracle = workspace_root().join("crates/llm/tests/oracles/llama3");
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(oracle.join(name), folder.path().join(name)).unwrap();
    }
    let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
    let pieces = ["<unk>", "<s>", "</s>"].map(str::to_owned).into_iter().chain(bytes).chain(["\u{2581}".to_owned()]);
    let vocabulary: serde_json::Map<String, Value> = pieces.enumerate().map(|(id, piece)| (piece, id.into())).collect();
    let special = |id: u32, piece: &str| {
        let no = false;
        json!({ "id": id, "content": piece, "special": true, "single_word": no, "lstrip": no, "rstrip": no, "normalized": no })
    };
    let replace = |from: &str, to: &str| json!({ "type": "Replace", "pattern": { "String": from }, "content": to });
    let tokenizer = json!({
        "version": "1.0",
        "normalizer": replace(" ", "\u{2581}"),
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "decoder": { "type": "Sequence", "decoders": [replace("\u{2581}", " "), { "type": "ByteFallback" }, { "type": "Fuse" }] },
        "model": { "type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "vocab": vocabulary, "merges": [] },
    });
    let template = "{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}{% for message in messages %}{% if message.content == 'grow' %}\
                    {% set ns = namespace(text='x') %}{% for i in range(60) %}{% set ns.text = ns.text + ns.text %}{% endfor %}{% endif %}\
                    {{ message.role[0] + ':' + message.content + ';' }}{% endfor %}a:";
    let config = json!({ "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false, "chat_template": template });
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    std::fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).unwrap();
    folder
}

/// A running program, killed at the end of a test.
struct Program {
    child: Child,
    address: Option<SocketAddr>,
    lines: Mutex<mpsc::Receiver<String>>,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    /// Starts the program and waits until it serves.
    fn start(line: &[&str], variables: &[(&str, &str)]) -> Program {
        let beside = workspace_root().join("bin/warpwave");
        let path = if beside.exists() { beside } else { PathBuf::from(env!("CARGO_BIN_EXE_warpwave")) };
        let mut command = Command::new(path);
        command.args(line).stderr(Stdio::piped()).stdin(Stdio::null()).env_remove("WARPWAVE_DEVICE").env_remove("WARPWAVE_API_KEY");
        command.env_remove("LLORCH_API_TOKEN").envs(variables.iter().copied());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).for_each(|line| _ = sender.send(line)));
        let mut program = Program { child, address: None, lines: Mutex::new(lines) };
        let mut said = Vec::new();
        loop {
            let line = program.lines.lock().unwrap().recv_timeout(Duration::from_secs(120));
            let line = line.unwrap_or_else(|error| panic!("{error}: {said:?}"));
            said.push(line.clone());
            if let Some((_, address)) = line.split_once("listening on http://") {
                program.address = Some(address.parse().unwrap());
            }
            if line.contains("warpwave: serving ") {
                return program;
            }
        }
    }

    fn send(&self, method: &str, path: &str, key: Option<&str>, body: Option<&Value>) -> (u16, String) {
        send(self.address.unwrap(), method, path, key, body)
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, body) = self.send("POST", path, None, Some(body));
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    /// Sends a signal and waits for the end.
    fn signal(&mut self, signal: &str, within: Duration) -> ExitStatus {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
        let end = Instant::now() + within;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("still running after {signal}");
    }
}

fn send(address: SocketAddr, method: &str, path: &str, key: Option<&str>, body: Option<&Value>) -> (u16, String) {
    try_send(address, method, path, key, body).unwrap()
}

fn try_send(address: SocketAddr, method: &str, path: &str, key: Option<&str>, body: Option<&Value>) -> Result<(u16, String), ureq::Error> {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut request = ureq::http::Request::builder().method(method).uri(format!("http://{}{path}", address));
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    if body.is_some() {
        request = request.header("content-type", "application/json");
    }
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut response = agent.run(request.body(body).unwrap())?;
    Ok((response.status().as_u16(), response.body_mut().read_to_string()?))
}

fn data(text: &str) -> Vec<Value> {
    let events = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|event| *event != "[DONE]");
    events.map(|event| serde_json::from_str(event).unwrap()).collect()
}

#[test]
fn serve_answers_chats_and_ends_with_sigterm() {
    let model = chat_model();
    let path = model.path().display().to_string();
    let mut program = Program::start(&["serve", &path, "--device", "cpu", "--port", "0", "--context", "512", "--name", "tiny"], &[]);
    let ask = |more: Value| {
        let mut body = json!({ "model": "tiny", "messages": [{ "role": "user", "content": "hello" }], "max_tokens": 8, "temperature": 0 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        program.send("POST", "/v1/chat/completions", None, Some(&body))
    };
    let (status, whole) = ask(json!({}));
    assert_eq!(status, 200, "{whole}");
    let whole: Value = serde_json::from_str(&whole).unwrap();
    let (status, streamed) = ask(json!({ "stream": true }));
    let text: String = data(&streamed).iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!((status, Value::from(text)), (200, whole["choices"][0]["message"]["content"].clone()));
    assert!(streamed.trim_end().ends_with("data: [DONE]"));
    let (_, models) = program.send("GET", "/v1/models", None, None);
    assert!(models.contains("\"id\":\"tiny\"") && models.contains("\"max_model_len\":512"), "{models}");
    // A template without bounds ends in its own process.
    let (status, refused) = ask(json!({ "messages": [{ "role": "user", "content": "grow" }] }));
    assert!(status == 400 && refused.contains("memory limit"), "{status}: {refused}");
    // A request in progress ends, then the program does.
    let body = json!({ "prompt": "x", "max_tokens": 400, "ignore_eos": true, "stream": true }).to_string();
    let mut stream = TcpStream::connect(program.address.unwrap()).unwrap();
    write!(
        stream,
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut first = [0; 200];
    stream.read_exact(&mut first).unwrap();
    assert!(program.signal("-TERM", Duration::from_secs(30)).success());
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"), "{rest}");
    let logged: Vec<String> = program.lines.lock().unwrap().try_iter().collect();
    assert!(logged.iter().any(|line| line.contains("path=\"/v1/chat/completions\"") && line.contains("status=200")), "{logged:?}");
}

#[test]
fn serve_takes_keys_sockets_and_several_models() {
    let (first, second) = (chat_model(), chat_model());
    let (one, two) = (first.path().display().to_string(), second.path().display().to_string());
    let line = ["serve", &one, &two, "--device", "cpu", "--port", "0", "--context", "256", "--api-key", "secret", "--vllm-metrics"];
    let program = Program::start(&line, &[]);
    let (status, refused) = program.send("GET", "/v1/models", None, None);
    assert!(status == 401 && refused.contains("missing_api_key"));
    let name = |path: &str| Path::new(path).file_name().unwrap().to_str().unwrap().to_owned();
    // The second is loaded after the first is served.
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let (_, models) = program.send("GET", "/v1/models", Some("secret"), None);
        if models.contains(&name(&one)) && models.contains(&name(&two)) {
            break;
        }
        assert!(Instant::now() < end, "{models}");
    }
    for path in [&one, &two] {
        let body = json!({ "model": name(path), "prompt": "x", "max_tokens": 2 });
        assert_eq!(program.send("POST", "/v1/completions", Some("secret"), Some(&body)).0, 200);
    }
    assert!(program.send("GET", "/metrics", Some("secret"), None).1.contains("vllm:num_requests_running"));
    drop(program);

    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("w.sock").display().to_string();
    let mut program = Program::start(&["serve", &one, "--device", "cpu", "--context", "256", "--socket", &socket], &[]);
    let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GET /ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert!(program.signal("-INT", Duration::from_secs(10)).success() && !Path::new(&socket).exists());
}

#[test]
fn a_worker_runs_jobs_and_reports_to_its_hive() {
    let model = chat_model();
    let path = model.path().display().to_string();
    let hive = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", hive.local_addr().unwrap());
    let (sender, beats) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in hive.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut length, mut line) = (0, String::new());
            while stream.read_line(&mut line).unwrap() > 2 {
                if let Some(count) = line.to_lowercase().strip_prefix("content-length: ") {
                    length = count.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\nconnection: close\r\n\r\n{\"status\":\"ok\"}").unwrap();
            let _ = sender.send(serde_json::from_slice::<Value>(&body).unwrap());
        }
    });
    let line = [
        "worker",
        "llm",
        "--worker-id",
        "w1",
        "--model",
        &path,
        "--model-ref",
        "hf:org/tiny",
        "--port",
        "0",
        "--hive-url",
        &url,
        "--device",
        "cpu",
        "--context",
        "256",
    ];
    let mut program = Program::start(&line, &[("LLORCH_API_TOKEN", "token")]);
    let beat = beats.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(
        (&beat["worker"]["id"], &beat["worker"]["model_id"], &beat["worker"]["device"]),
        (&json!("w1"), &json!("hf:org/tiny"), &json!("cpu"))
    );
    assert_eq!(beat["worker"]["port"], program.address.unwrap().port());
    let job =
        json!({ "operation": "infer", "hive_id": "h", "model": "hf:org/tiny", "prompt": "hello", "max_tokens": 5, "temperature": 0.0 });
    assert_eq!(program.send("POST", "/v1/jobs", None, Some(&job)).0, 401);
    let (status, created) = program.send("POST", "/v1/jobs", Some("token"), Some(&job));
    assert_eq!(status, 200, "{created}");
    let created: Value = serde_json::from_str(&created).unwrap();
    let (_, events) = program.send("GET", created["sse_url"].as_str().unwrap(), Some("token"), None);
    let kinds: Vec<String> = data(&events).iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    assert!(
        kinds[0] == "started" && kinds.contains(&"token".to_owned()) && kinds.ends_with(&["metrics".to_owned(), "end".to_owned()]),
        "{events}"
    );
    assert!(program.signal("-TERM", Duration::from_secs(20)).success());
    assert_eq!(beats.try_iter().last().unwrap()["worker"]["status"], "stopped");
}

#[test]
fn wrong_arguments_are_explained() {
    let run = |line: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_warpwave")).args(line).env_remove("WARPWAVE_DEVICE").output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (code, message) = run(&["serve", "none.gguf", "--port", &port]);
    assert!(code == Some(1) && message.contains("cannot listen on 127.0.0.1:"), "{message}");
    let (code, message) = run(&["serve", "none.gguf", "--port", "0"]);
    assert!(code == Some(1) && message.contains("none.gguf: file or directory not found"), "{message}");
    assert_eq!(run(&["serve", "--api-key", "", "--port", "0"]).0, Some(2));
    assert_eq!(run(&["serve", "--socket", "x", "--port", "1"]).0, Some(2));
    assert_eq!(run(&["worker", "llm", "--model", "x"]).0, Some(2));
}

/// The AMD path of the server, emulated.
#[test]
fn serve_works_on_the_virtual_gpu() {
    if virtual_device("gfx90a").is_none() {
        return;
    }
    let model = chat_model();
    let path = model.path().display().to_string();
    let program =
        Program::start(&["serve", &path, "--device", "vgpu:gfx90a", "--port", "0", "--context", "64", "--cache-tokens", "128"], &[]);
    let (status, answer) =
        program.post("/v1/completions", &json!({ "prompt": "ab", "max_tokens": 2, "temperature": 0, "ignore_eos": true }));
    assert!(status == 200 && answer["usage"]["completion_tokens"] == 2, "{answer}");
}

/// Models are loaded when they are named, and the least recently used makes room, while clients wait.
#[test]
fn models_are_loaded_on_demand_and_unloaded() {
    let folders = [chat_model(), chat_model(), chat_model()];
    let paths = folders.each_ref().map(|folder| folder.path().display().to_string());
    let names = paths.each_ref().map(|path| Path::new(path).file_name().unwrap().to_str().unwrap().to_owned());
    let limits = ["--device", "cpu", "--port", "0", "--context", "256", "--cache-tokens", "512", "--max-models", "2"];
    let program = Program::start(&[&["serve"], &paths.each_ref().map(String::as_str)[..], &limits].concat(), &[]);
    let statuses = || {
        let models: Value = serde_json::from_str(&program.send("GET", "/v1/models", None, None).1).unwrap();
        let data = models["data"].as_array().unwrap().clone();
        data.iter().map(|model| (model["status"].as_str().unwrap().to_owned(), model["max_model_len"].as_u64())).collect::<Vec<_>>()
    };
    let unloaded = ("unloaded".to_owned(), None);
    let loaded = ("loaded".to_owned(), Some(256));
    assert_eq!(statuses(), [loaded.clone(), unloaded.clone(), unloaded.clone()]);
    let ask = |number: usize| {
        program.post("/v1/completions", &json!({ "model": names[number], "prompt": "x", "max_tokens": 2, "ignore_eos": true }))
    };
    assert_eq!(ask(1).0, 200);
    assert_eq!(ask(0).0, 200);
    assert_eq!(statuses(), [loaded.clone(), loaded.clone(), unloaded.clone()]);
    assert_eq!(ask(2).0, 200);
    assert_eq!(statuses(), [loaded.clone(), unloaded, loaded], "the least recently used was unloaded");
    // All three at once: each request gets its model.
    std::thread::scope(|scope| {
        for client in 0..6 {
            let ask = &ask;
            scope.spawn(move || {
                for round in 0..3 {
                    let (status, answer) = ask((client + round) % 3);
                    assert_eq!((status, &answer["usage"]["completion_tokens"]), (200, &json!(2)), "{answer}");
                }
            });
        }
    });
    // A model whose files are gone is an error of its requests; others continue.
    assert_eq!((ask(1).0, ask(2).0), (200, 200));
    std::fs::remove_file(folders[0].path().join("config.json")).unwrap();
    let (status, answer) = ask(0);
    assert_eq!((status, &answer["error"]["code"]), (500, &json!("load_failed")), "{answer}");
    assert_eq!((ask(1).0, program.send("GET", "/ready", None, None).0), (200, 200));
}

#[test]
fn bench_serve_measures_servers_and_counts_errors() {
    let model = chat_model();
    let path = model.path().display().to_string();
    let program = Program::start(&["serve", &path, "--device", "cpu", "--port", "0", "--context", "128", "--name", "tiny"], &[]);
    let url = format!("http://{}", program.address.unwrap());
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("plot.svg").display().to_string();
    let bench = |more: &[&str]| {
        let common = ["bench", "serve", "--prompt", "20", "--tokens", "6", "--json"];
        let output =
            Command::new(env!("CARGO_BIN_EXE_warpwave")).args([&common, more].concat()).env_remove("WARPWAVE_DEVICE").output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned());
        (output.status.code(), serde_json::from_str::<Value>(&out).unwrap_or_default(), err)
    };
    let (code, report, err) = bench(&[
        "--workload",
        "fixed",
        "--url",
        &url,
        "--peer",
        &url,
        "--vocab",
        "250",
        "--streams",
        "1,3",
        "--requests",
        "5",
        "--plot",
        &plot,
    ]);
    assert_eq!(code, Some(0), "{err}");
    for (level, streams) in report["levels"].as_array().unwrap().iter().zip([1, 3]) {
        assert_eq!(level["streams"], streams);
        for results in [&level["ours"], &level["peer"]] {
            let counts = ["completed", "failed", "prompt_tokens", "output_tokens"].map(|name| results[name].as_u64().unwrap());
            assert_eq!(counts, [5, 0, 100, 30], "{results}");
            let time = |name: &str, of: &str| results[name][of].as_f64().unwrap();
            assert!(time("ttft_ms", "p50") > 0.0 && time("ttft_ms", "p99") <= time("latency_ms", "max"));
            assert!(time("tpot_ms", "mean") > 0.0 && time("itl_ms", "p50") <= time("itl_ms", "p99"));
            let speed = results["output_tokens_per_second"].as_f64().unwrap() * results["seconds"].as_f64().unwrap();
            assert!((speed - 30.0).abs() < 1e-6);
        }
    }
    assert!(std::fs::read_to_string(&plot).unwrap().contains("streams"));
    // Requests that the server refuses are counted by their reason.
    let (code, report, err) = bench(&["--url", &url, "--vocab", "250", "--streams", "2", "--requests", "30"]);
    let ours = &report["levels"][0]["ours"];
    if code == Some(0) {
        let errors = ours["errors"].as_object().unwrap();
        assert_eq!(errors.values().map(|count| count.as_u64().unwrap()).sum::<u64>() + ours["completed"].as_u64().unwrap(), 30);
        assert!(errors.keys().all(|error| error.starts_with("status 400: the prompt has")), "{errors:?}");
    } else {
        // Already the warm-up was too long.
        assert!(err.contains("status 400: the prompt has"), "{err}");
    }
    let (code, _, err) = bench(&["--url", "http://127.0.0.1:9"]);
    assert!(code == Some(1) && err.contains("http://127.0.0.1:9"), "{err}");
    // A model, served by the benchmark itself.
    let (code, report, err) =
        bench(&[&path, "--workload", "fixed", "--device", "cpu", "--context", "128", "--streams", "2", "--requests", "4"]);
    assert_eq!((code, &report["levels"][0]["ours"]["output_tokens"]), (Some(0), &json!(24)), "{err}");
    let (code, _, err) = bench(&[&path, "--workload", "fixed", "--device", "cpu", "--context", "16"]);
    assert!(code == Some(1) && err.contains("increase --context"), "{err}");
}

/// HAProxy in front of workers, with the documented configuration: an even split, streams that are not collected, a worker that ends
/// and one that is killed.
#[test]
fn workers_behind_haproxy_share_and_end_without_losses() {
    if !full_run() {
        return;
    }
    let haproxy = ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy", "/usr/bin/haproxy"].into_iter().find(|path| Path::new(path).exists());
    if !warpwave_test_support::require(haproxy.is_some(), "HAProxy (apt install haproxy)") {
        return;
    }
    let model = chat_model();
    let path = model.path().display().to_string();
    let start = || Program::start(&["serve", &path, "--device", "cpu", "--port", "0", "--context", "512", "--name", "tiny"], &[]);
    let mut workers = [start(), start(), start()];
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut text = std::fs::read_to_string(workspace_root().join("examples/serving/haproxy.cfg")).unwrap();
    text = text.replace("bind :8000", &format!("bind 127.0.0.1:{port}"));
    for (number, worker) in workers.iter().enumerate() {
        let documented = format!("10.0.0.{}:8080", number + 1);
        assert!(text.contains(&documented));
        text = text.replace(&documented, &worker.address.unwrap().to_string());
    }
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("haproxy.cfg");
    std::fs::write(&config, text).unwrap();
    let proxy = Command::new(haproxy.unwrap()).args(["-db", "-f"]).arg(&config).stderr(Stdio::null()).stdout(Stdio::null()).spawn();
    let front = SocketAddr::from(([127, 0, 0, 1], port));
    let mut proxy = Program { child: proxy.unwrap(), address: Some(front), lines: Mutex::new(mpsc::channel().1) };
    let end = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(front).is_err() || send(front, "GET", "/ready", None, None).0 != 200 {
        assert!(proxy.child.try_wait().unwrap().is_none() && Instant::now() < end, "HAProxy does not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    let body = |tokens: usize, stream: bool| json!({ "prompt": "x", "max_tokens": tokens, "ignore_eos": true, "stream": stream });
    // Statuses and complete answers of some clients, each with several requests in turn.
    let load = |clients: usize, requests: usize, during: &mut dyn FnMut()| -> Vec<(u16, bool)> {
        std::thread::scope(|scope| {
            let ask = || {
                (0..requests)
                    .map(|number| {
                        // A stream that breaks is an error of the client.
                        let sent = try_send(front, "POST", "/v1/completions", None, Some(&body(60, number % 2 == 0)));
                        let (status, text) = sent.unwrap_or_default();
                        (status, text.contains("[DONE]") || text.contains("\"completion_tokens\":60"))
                    })
                    .collect::<Vec<_>>()
            };
            let threads: Vec<_> = (0..clients).map(|_| scope.spawn(ask)).collect();
            during();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        })
    };
    let served = |worker: &Program| {
        let metrics = worker.send("GET", "/metrics", None, None).1;
        let lines = metrics.lines().filter(|line| line.starts_with("warpwave_request_success_total{model_name=\"tiny\""));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<usize>().unwrap()).sum::<usize>()
    };
    let all = load(6, 10, &mut || ());
    let split = workers.each_ref().map(served);
    println!("{split:?}");
    assert!(
        all.iter().all(|answer| *answer == (200, true)) && split.iter().sum::<usize>() >= 60 && split.iter().all(|count| *count >= 12),
        "{split:?}"
    );
    // The first text arrives long before the last.
    let mut stream = TcpStream::connect(front).unwrap();
    let text = body(400, true).to_string();
    write!(stream, "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{text}", text.len()).unwrap();
    let started = Instant::now();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0);
    }
    let first = started.elapsed();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    let last = started.elapsed();
    println!("first after {first:?}, last after {last:?}");
    assert!(rest.contains("[DONE]") && first < last / 2);
    // One ends under load: nothing fails.
    let [one, two, three] = &mut workers;
    let ended = load(4, 30, &mut || {
        std::thread::sleep(Duration::from_millis(100));
        assert!(one.signal("-TERM", Duration::from_secs(40)).success());
    });
    assert!(ended.iter().all(|answer| *answer == (200, true)), "{ended:?}");
    // One is killed: at most the requests that it had fail, and the other serves on.
    let killed = load(4, 30, &mut || {
        std::thread::sleep(Duration::from_millis(100));
        two.child.kill().unwrap();
    });
    let lost = killed.iter().filter(|answer| **answer != (200, true)).count();
    println!("{lost} lost");
    assert!(lost <= 4, "{killed:?}");
    assert_eq!(three.send("GET", "/ready", None, None).0, 200);
}

/// A real model follows a JSON schema, and answers several clients at once.
#[test]
fn a_real_model_follows_a_schema() {
    let Some(model) = test_model() else { return };
    let path = model.display().to_string();
    let program = Program::start(&["serve", &path, "--device", "cpu", "--port", "0", "--context", "512", "--cache-tokens", "2048"], &[]);
    let schema = json!({
        "type": "object",
        "properties": { "city": { "type": "string", "maxLength": 20 }, "capital": { "type": "boolean" }, "size": { "enum": ["small", "large"] } },
        "required": ["city", "capital", "size"], "additionalProperties": false,
    });
    let rounds = if full_run() { 20 } else { 2 };
    std::thread::scope(|scope| {
        for client in 0..2 {
            let (program, schema) = (&program, &schema);
            scope.spawn(move || {
                for round in 0..rounds {
                    let format = json!({ "type": "json_schema", "json_schema": { "name": "city", "schema": schema } });
                    let body = json!({
                        "messages": [{ "role": "user", "content": "Describe Paris as JSON." }], "max_tokens": 80, "seed": client * 100 + round,
                        "temperature": 0.8, "response_format": format,
                    });
                    let (status, answer) = program.post("/v1/chat/completions", &body);
                    let text = answer["choices"][0]["message"]["content"].as_str().unwrap_or_default();
                    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{status}, {error}: {answer}"));
                    assert!(value["city"].is_string() && value["capital"].is_boolean() && value["size"].is_string());
                    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
                }
            });
        }
    });
}

/// Runs a client's script against a server with a tiny model. A client is not one of the tools that the tests require: without its
/// package the test is skipped.
fn client_works(interpreter: &str, probe: [&str; 2], script: &str) {
    if !Command::new(interpreter).args(probe).output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: `{interpreter} {} {:?}` failed", probe[0], probe[1]);
        return;
    }
    let model = chat_model();
    let path = model.path().display().to_string();
    let program =
        Program::start(&["serve", &path, "--device", "cpu", "--port", "0", "--context", "512", "--name", "tiny", "--api-key", "k"], &[]);
    let script = workspace_root().join("crates/cli/tests").join(script);
    let output = Command::new(interpreter).arg(script).arg(format!("http://{}/v1", program.address.unwrap())).output().unwrap();
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_official_python_client_works() {
    client_works("python3", ["-c", "import openai"], "openai_client.py");
}

#[test]
fn the_official_javascript_client_works() {
    client_works("node", ["-e", "require('openai')"], "openai_client.cjs");
}

#[test]
fn langchain_works() {
    client_works("python3", ["-c", "import langchain_openai"], "langchain_client.py");
}

#[test]
fn serve_offers_encoders_beside_models() {
    let (model, folder) = (chat_model(), tempfile::tempdir().unwrap());
    let (from, to) = (warpwave_test_support::workspace_root().join("crates/llm/tests/oracles/bert"), folder.path().join("bert"));
    std::fs::create_dir(&to).unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
    let tokens: Vec<String> =
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"].map(str::to_owned).into_iter().chain((5..320).map(|n| format!("[{n}]"))).collect();
    std::fs::write(to.join("vocab.txt"), tokens.join("\n")).unwrap();
    let (model, encoder) = (model.path().display().to_string(), to.display().to_string());
    for paths in [&[&*model, &*encoder][..], &[&encoder]] {
        let program = Program::start(&[&["serve"], paths, &["--device", "cpu", "--port", "0"]].concat(), &[]);
        let body = json!({ "model": "bert", "input": ["a", "a a"], "encoding_format": "base64" });
        let (status, answer) = program.send("POST", "/v1/embeddings", None, Some(&body));
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let length = answer["data"][1]["embedding"].as_str().map(str::len);
        assert_eq!((status, length, &answer["usage"]["total_tokens"]), (200, Some((32usize * 4).div_ceil(3) * 4), &json!(7)), "{answer}");
    }
}
