//! A tiny chat model behind a server, and small HTTP clients.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use warpwave_llm::engine::{Engine, EngineClient, EngineOptions};
use warpwave_llm::{ChatTemplate, Checkpoint, LoadOptions, Model, Precision, Runner, RunnerOptions};
use warpwave_serve::{AppOptions, Listen, ServedModel, Server};
use warpwave_tensor::Device;
use warpwave_test_support::workspace_root;

pub const TEMPLATE: &str = "{% for message in messages %}{% if 'forbidden' in message.content %}{{ raise_exception('it is forbidden') }}{% endif %}\
                            {{ message.role[0] + ':' + message.content + ';' }}{% endfor %}{% if add_generation_prompt %}a:{% endif %}";

/// An oracle with a vocabulary of bytes.
pub fn model_folder(template: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        let from = workspace_root().join("crates/llm/tests/oracles/llama3").join(name);
        std::fs::copy(from, folder.path().join(name)).unwrap();
    }
    let marks = ["<unk>", "<s>", "</s>"].map(str::to_owned);
    let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
    let pieces = marks.into_iter().chain(bytes).chain(["\u{2581}".to_owned(), "\u{2581}yes".to_owned()]);
    let vocabulary: serde_json::Map<String, Value> = pieces.enumerate().map(|(id, piece)| (piece, id.into())).collect();
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
    let config = json!({ "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false, "chat_template": template });
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    std::fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).unwrap();
    folder
}

pub struct Running {
    pub server: Option<Server>,
    pub address: SocketAddr,
    pub client: EngineClient,
}

/// A server with the tiny model, named `tiny`.
pub fn start(options: AppOptions, engine: EngineOptions, template: &str) -> Running {
    let folder = model_folder(template);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let load = LoadOptions { precision: Precision::Exact, ..LoadOptions::default() };
    let model = Model::load(&checkpoint, &Device::Cpu, load, &mut |_| ()).unwrap();
    let runner =
        Runner::new(model, RunnerOptions { context: 512, cache_tokens: Some(4096), chunk: Some(256), ..RunnerOptions::default() }).unwrap();
    let tokenizer = Arc::new(checkpoint.tokenizer().unwrap());
    let template = ChatTemplate::of(&tokenizer).unwrap();
    let engine = Engine::new(runner, Some(tokenizer.clone()), engine).spawn(1).unwrap();
    let client = engine.client();
    let server = Server::start(&Listen::Tcp("127.0.0.1:0".parse().unwrap()), options).unwrap();
    server.add_model(ServedModel::new("tiny", tokenizer, template, engine));
    let address = server.address().unwrap();
    Running { server: Some(server), address, client }
}

pub fn simple() -> Running {
    start(AppOptions { version: "test".to_owned(), ..AppOptions::default() }, EngineOptions::default(), TEMPLATE)
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop(Duration::ZERO);
        }
    }
}

/// A response.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The data of server-sent events.
    pub fn events(&self) -> Vec<String> {
        assert_eq!(self.header("content-type"), Some("text/event-stream"), "{}", self.body);
        self.body.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
    }
}

impl Running {
    /// Sends a request with these header lines.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let mut request = ureq::http::Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = agent.run(request.body(body.to_owned()).unwrap()).unwrap();
        let headers = response.headers().iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
        Response { status: response.status().as_u16(), headers, body: response.body_mut().read_to_string().unwrap() }
    }

    pub fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Response {
        self.send("POST", path, &[("content-type", "application/json")], &body.to_string())
    }

    pub fn chat(&self, body: &Value) -> Response {
        self.post("/v1/chat/completions", body)
    }

    /// Writes bytes to a new connection.
    pub fn raw(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The server may refuse before everything is sent.
        let _ = stream.write_all(bytes);
        stream
    }

    /// Posts JSON on a new connection without reading the answer.
    pub fn raw_post(&self, path: &str, body: &Value) -> TcpStream {
        let body = body.to_string();
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        self.raw(format!("{head}{body}").as_bytes())
    }

    /// Waits until the engine has no requests; fails after some seconds.
    pub fn wait_idle(&self) {
        for _ in 0..1000 {
            let stats = self.client.stats();
            if stats.running == 0 && stats.waiting == 0 {
                assert_eq!(stats.free_blocks, stats.blocks);
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("still busy: {:?}", self.client.stats());
    }
}

/// Reads until the text appears.
pub fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut found = Vec::new();
    let mut buffer = [0; 512];
    while !String::from_utf8_lossy(&found).contains(text) {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&found));
        found.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8_lossy(&found).into_owned()
}
