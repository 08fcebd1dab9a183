//! Downloads from the Hugging Face hub, against a test server that behaves like it: small files directly, large files by redirect, range
//! requests, and broken connections.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use warpwave_test_support::workspace_root;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const MODEL: &str = "tiny/llama";

fn oracle() -> PathBuf {
    workspace_root().join("crates/llm/tests/oracles/llama3")
}

#[derive(Default)]
struct Hub {
    /// Files by repository and name.
    files: HashMap<(String, String), Vec<u8>>,
    /// Bytes after which successive connections for large files break.
    breaks: Mutex<Vec<usize>>,
    /// Requests received: path and range.
    requests: Mutex<Vec<(String, String)>>,
    /// Hosts that received the token.
    trusted: Mutex<Vec<String>>,
    /// ETag of all files, instead of the SHA-256 or name.
    etag: Option<String>,
    stopped: AtomicBool,
}

struct Server {
    hub: Arc<Hub>,
    address: String,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(hub: Hub) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let hub = Arc::new(hub);
        let (here, there) = (hub.clone(), address.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if here.stopped.load(Ordering::SeqCst) {
                    return;
                }
                if let Ok(stream) = stream {
                    // Ignore clients that disconnect.
                    let _ = here.answer(stream, &there);
                }
            }
        });
        Server { hub, address, thread: Some(thread) }
    }

    fn requests(&self) -> Vec<(String, String)> {
        self.hub.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.hub.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address.trim_start_matches("http://"));
        let _ = self.thread.take().unwrap().join();
    }
}

impl Hub {
    fn answer(&self, mut stream: TcpStream, address: &str) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let first = lines.next().unwrap_or(Ok(String::new()))?;
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let (mut range, mut host) = (String::new(), String::new());
        for line in lines {
            let line = line?.to_ascii_lowercase();
            if let Some(name) = line.strip_prefix("host: ") {
                host = name.to_owned();
            }
            if line == "authorization: bearer secret" {
                self.trusted.lock().unwrap().push(host.clone());
            }
            if let Some(bytes) = line.strip_prefix("range: bytes=") {
                range = bytes.to_owned();
            }
            if line.is_empty() {
                break;
            }
        }
        self.requests.lock().unwrap().push((path.clone(), range.clone()));
        let mut say = |status: &str, headers: &str, body: &[u8], length: usize| {
            let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n");
            stream.write_all(head.as_bytes())?;
            stream.write_all(body)?;
            stream.flush()
        };
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match parts[..] {
            ["circle", ..] => say("302 Found", &format!("location: {path}\r\n"), b"", 0),
            ["api", "models", "locked", ..] => say("401 Unauthorized", "", b"", 0),
            ["api", "models", org, name, ..] => {
                let repo = format!("{org}/{name}");
                let names: Vec<Value> =
                    self.files.keys().filter(|(of, _)| *of == repo).map(|(_, name)| json!({ "rfilename": name })).collect();
                if names.is_empty() {
                    return say("404 Not Found", "", b"", 0);
                }
                let body = json!({ "siblings": names, "sha": COMMIT }).to_string();
                say("200 OK", "content-type: application/json\r\n", body.as_bytes(), body.len())
            }
            [org, name, "resolve", "main", file] | ["large", org, name, file] => {
                let Some(bytes) = self.files.get(&(format!("{org}/{name}"), file.to_owned())) else {
                    return say("404 Not Found", "", b"", 0);
                };
                let large = file.ends_with(".safetensors") || file.ends_with(".gguf");
                let usual = if large { sha(bytes) } else { file.replace('.', "-") };
                let marks = format!("etag: \"{}\"\r\nx-repo-commit: {COMMIT}\r\n", self.etag.as_ref().unwrap_or(&usual));
                if large && parts[0] != "large" {
                    // Another host's name for the same server.
                    let elsewhere = address.replace("127.0.0.1", "localhost");
                    let marks = format!("{}x-linked-size: {}\r\n", marks.replace("etag", "x-linked-etag"), bytes.len());
                    return say("302 Found", &format!("{marks}location: {elsewhere}/large/{org}/{name}/{file}\r\n"), b"", 0);
                }
                let (from, to) = range.split_once('-').unwrap_or(("0", ""));
                let from: usize = from.parse().unwrap();
                if from >= bytes.len() {
                    return say("416 Range Not Satisfiable", "", b"", 0);
                }
                let to = to.parse().map_or(bytes.len(), |to: usize| to + 1).min(bytes.len());
                let whole = &bytes[from..to];
                let marks = format!("{marks}content-range: bytes {from}-{}/{}\r\n", to.saturating_sub(1), bytes.len());
                let cut = if large && whole.len() > 1 { self.breaks.lock().unwrap().pop() } else { None };
                let sent = cut.map_or(whole, |cut| &whole[..cut.min(whole.len())]);
                say("206 Partial Content", &marks, sent, whole.len())
            }
            _ => say("404 Not Found", "", b"", 0),
        }
    }
}

fn sha(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hub() -> Hub {
    let mut hub = Hub::default();
    for name in ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"] {
        if let Ok(bytes) = std::fs::read(oracle().join(name)) {
            hub.files.insert((MODEL.to_owned(), name.to_owned()), bytes);
        }
    }
    // Unneeded files are not downloaded.
    hub.files.insert((MODEL.to_owned(), "README.md".to_owned()), b"# A model".to_vec());
    hub.files.insert((MODEL.to_owned(), "pytorch_model.bin".to_owned()), vec![0; 1000]);
    hub
}

fn run(line: &[&str], home: &Path, endpoint: &str) -> Output {
    let beside = workspace_root().join("bin/warpwave");
    let path = if beside.exists() { beside } else { PathBuf::from(env!("CARGO_BIN_EXE_warpwave")) };
    let mut command = Command::new(path);
    command.args(line).env("HF_HOME", home).env("HF_ENDPOINT", endpoint).env("WARPWAVE_DEVICE", "cpu").env("HF_TOKEN", "secret\n");
    for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env_remove(name);
    }
    command.output().unwrap()
}

fn ids(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["ids"].clone()
}

fn refusal(line: &[&str], home: &Path, endpoint: &str) -> String {
    let output = run(line, home, endpoint);
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

const GENERATE: [&str; 7] = ["generate", MODEL, "--ids", "1,2,3", "-n", "4", "--json"];

#[test]
fn a_model_is_downloaded_once_by_name() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let folder = oracle().display().to_string();
    let expected = ids(&run(&["generate", &folder, "--ids", "1,2,3", "-n", "4", "--json"], home, "http://127.0.0.1:9"));
    let hub = hub();
    let size = hub.files[&(MODEL.to_owned(), "model.safetensors".to_owned())].len();
    // The download of the weights is interrupted twice and resumes.
    hub.breaks.lock().unwrap().extend([size / 4, size / 3]);
    let server = Server::start(hub);
    let output = run(&GENERATE, home, &server.address);
    assert!(String::from_utf8_lossy(&output.stderr).contains("Downloading tiny/llama from http://127.0.0.1"), "{output:?}");
    assert_eq!(ids(&output), expected);
    let requests = server.requests();
    let from: Vec<usize> = requests
        .iter()
        .filter(|(path, range)| path.starts_with("/large/") && range.ends_with('-'))
        .map(|(_, range)| range.trim_end_matches('-').parse().unwrap())
        .collect();
    assert_eq!(from, [0, size / 3, size / 3 + size / 4], "received bytes must not be requested again");
    assert!(!requests.iter().any(|(path, _)| path.contains("README") || path.contains("pytorch")), "{requests:?}");
    let trusted = server.hub.trusted.lock().unwrap().clone();
    assert!(!trusted.is_empty() && trusted.iter().all(|host| host.starts_with("127.0.0.1:")), "hosts that received the token: {trusted:?}");
    // Same layout as the Hugging Face tools.
    let snapshot = home.join("hub/models--tiny--llama/snapshots").join(COMMIT);
    assert_eq!(std::fs::read(snapshot.join("model.safetensors")).unwrap(), std::fs::read(oracle().join("model.safetensors")).unwrap());
    let output = run(&["model", "get", MODEL, "--json"], home, &server.address);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["path"], json!(snapshot));
    assert_eq!(server.requests().len(), requests.len(), "cached files must not be requested");
    drop(server);
    assert_eq!(ids(&run(&GENERATE, home, "http://127.0.0.1:9")), expected, "without a network");
}

#[test]
fn single_files_are_downloaded_and_missing_ones_reported() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let file = home.join("llama.gguf").display().to_string();
    let converted = run(&["model", "convert", &oracle().display().to_string(), &file], home, "http://127.0.0.1:9");
    assert!(converted.status.success(), "{converted:?}");
    let mut hub = hub();
    hub.files.insert(("tiny/files".to_owned(), "llama-F32.gguf".to_owned()), std::fs::read(&file).unwrap());
    hub.files.insert(("tiny/nothing".to_owned(), "README.md".to_owned()), Vec::new());
    let server = Server::start(hub);
    let at = server.address.as_str();
    let line = |model| ["generate", model, "--ids", "1,2,3", "-n", "4", "--json"];
    let expected = ids(&run(&line(&file), home, at));
    // Left over from a process that ended between the last byte and the rename; contents are arbitrary.
    let blobs = home.join("hub/models--tiny--files/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(blobs.join(sha(&bytes)).with_extension("part"), vec![0; bytes.len()]).unwrap();
    let error = refusal(&line("tiny/files:llama-F32.gguf"), home, at);
    assert!(error.contains("SHA-256") && error.contains("discarded"), "{error}");
    assert_eq!(ids(&run(&line("tiny/files:llama-F32.gguf"), home, at)), expected);
    for (model, says) in [
        ("tiny/files", "tiny/files:llama-F32.gguf"),
        ("tiny/files:other.gguf", "model or file not found"),
        ("tiny/nothing", "unsupported repository"),
        ("tiny/none", "model or file not found"),
        ("locked/model", "HF_TOKEN"),
        ("circle/model:model.gguf", "too many redirects"),
        ("no-such-file.gguf", "file or directory not found"),
    ] {
        let error = refusal(&["model", "info", model], home, at);
        assert!(error.contains(says), "{model}: {error}");
    }
    drop(server);
    let error = refusal(&["chat", "tiny/other"], home, "http://127.0.0.1:9");
    assert!(error.contains("cannot reach") && error.contains("pass a .gguf file"), "{error}");
}

#[test]
fn file_names_from_the_server_stay_inside_the_cache() {
    for etag in ["../../../escaped", "/tmp/escaped", ".."] {
        let home = tempfile::tempdir().unwrap();
        let hub = Hub { etag: Some(etag.to_owned()), ..hub() };
        let server = Server::start(hub);
        let error = refusal(&GENERATE, home.path(), &server.address);
        assert!(error.contains("invalid metadata"), "{error}");
        assert!(!home.path().join("hub/models--tiny--llama/blobs").exists(), "nothing may be written");
    }
}

const SHARDS: [&str; 2] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];

/// The weights in two shards, and their index.
fn sharded() -> Hub {
    let mut hub = hub();
    let mut put = |name: &str, bytes: Vec<u8>| hub.files.insert((MODEL.to_owned(), name.to_owned()), bytes);
    let whole = warpwave_weights::Safetensors::open(oracle().join("model.safetensors")).unwrap();
    let tensors: Vec<_> = whole.tensors().collect();
    let (mut places, half) = (serde_json::Map::new(), tensors.len() / 2);
    for (name, tensors) in SHARDS.into_iter().zip([&tensors[..half], &tensors[half..]]) {
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for tensor in tensors {
            let from = data.len();
            data.extend_from_slice(tensor.bytes);
            let facts = json!({ "dtype": "F32", "shape": tensor.shape, "data_offsets": [from, data.len()] });
            header.insert(tensor.name.to_string(), facts);
            places.insert(tensor.name.to_string(), json!(name));
        }
        let header = Value::Object(header).to_string().into_bytes();
        put(name, [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat());
    }
    put("model.safetensors.index.json", json!({ "metadata": {}, "weight_map": places }).to_string().into_bytes());
    // Files not listed in the index are not downloaded.
    put("other.safetensors", vec![0; 1000]);
    hub
}

/// Returns the large files requested, without duplicates.
fn large(requests: &[(String, String)]) -> Vec<String> {
    let mut names: Vec<String> =
        requests.iter().filter_map(|(path, _)| Some(path.strip_prefix("/large/tiny/llama/")?.to_owned())).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn sharded_weights_are_downloaded_by_their_index() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let folder = oracle().display().to_string();
    let expected = ids(&run(&["generate", &folder, "--ids", "1,2,3", "-n", "4", "--json"], home, "http://127.0.0.1:9"));
    let server = Server::start(sharded());
    assert_eq!(ids(&run(&GENERATE, home, &server.address)), expected);
    let requests = server.requests();
    assert_eq!(large(&requests), SHARDS);
    // One file is deleted: only that one is downloaded again.
    let lost = home.join("hub/models--tiny--llama/snapshots").join(COMMIT).join(SHARDS[1]);
    std::fs::remove_file(std::fs::canonicalize(&lost).unwrap()).unwrap();
    assert_eq!(ids(&run(&GENERATE, home, &server.address)), expected);
    assert_eq!(large(&server.requests()[requests.len()..]), SHARDS[1..]);
    drop(server);
    assert_eq!(ids(&run(&GENERATE, home, "http://127.0.0.1:9")), expected, "without a network");
}

#[test]
fn an_index_cannot_name_files_outside_its_directory() {
    for name in ["../escaped.safetensors", "/tmp/escaped.safetensors", "model.bin"] {
        let home = tempfile::tempdir().unwrap();
        let mut hub = sharded();
        let index = json!({ "weight_map": { "model.norm.weight": name } }).to_string();
        hub.files.insert((MODEL.to_owned(), "model.safetensors.index.json".to_owned()), index.into_bytes());
        let server = Server::start(hub);
        let error = refusal(&GENERATE, home.path(), &server.address);
        assert!(error.contains("model.safetensors.index.json") && error.contains(name), "{error}");
        assert_eq!(large(&server.requests()), Vec::<String>::new(), "{name}");
    }
}
