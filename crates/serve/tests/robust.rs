//! Access, limits, disconnects, slow readers, overload and draining.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{TEMPLATE, read_until, simple, start};
use serde_json::{Value, json};
use warpwave_llm::engine::EngineOptions;
use warpwave_serve::{AppOptions, Limits, Listen, Server};
use warpwave_test_support::{Random, seed};

fn long(tokens: usize) -> Value {
    json!({ "prompt": "x", "max_tokens": tokens, "ignore_eos": true, "temperature": 0, "stream": true })
}

#[test]
fn keys_are_required_except_for_health_and_readiness() {
    let options = AppOptions { api_keys: vec!["one".to_owned(), "two".to_owned()], ..AppOptions::default() };
    let server = start(options, EngineOptions::default(), TEMPLATE);
    for path in ["/health", "/ready", "/v1/ready"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    for path in ["/v1/models", "/metrics", "/version", "/openapi.json", "/nothing", "/v1/jobs/x/stream"] {
        let refused = server.get(path);
        assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")), "{path}");
        assert_eq!(refused.json()["error"]["type"], "authentication_error");
    }
    let with = |value: &str| server.send("GET", "/v1/models", &[("authorization", value)], "").status;
    assert_eq!(["Bearer one", "bearer two"].map(with), [200, 200]);
    assert_eq!(["Bearer", "Bearer ", "Bearer thre", "Bearer one1", "Basic one", "one"].map(with), [401; 6]);
}

/// A page that rebinds its own name to this machine, and pages of other origins.
#[test]
fn unknown_hosts_and_other_origins_are_refused() {
    let options = AppOptions { hosts: vec!["gpu.example".to_owned()], ..AppOptions::default() };
    let server = start(options, EngineOptions::default(), TEMPLATE);
    let host = |name: &str| server.send("GET", "/v1/models", &[("host", name)], "").status;
    assert_eq!(["localhost:8080", "127.0.0.1", "[::1]:80", "GPU.example:1"].map(host), [200; 4]);
    assert_eq!(["evil.example", "localhost.evil.example:8080"].map(host), [403; 2]);
    let origin = server.send("GET", "/v1/models", &[("origin", "https://page.example")], "");
    assert_eq!((origin.status, origin.header("access-control-allow-origin")), (200, None));
    let preflight = server.send("OPTIONS", "/v1/chat/completions", &[("origin", "https://page.example")], "");
    assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (405, None));
    let plain = server.send("POST", "/v1/completions", &[("content-type", "text/plain")], "{\"prompt\": \"x\"}");
    assert_eq!(plain.status, 415, "what pages may send without asking is refused");
    let options = AppOptions { cors: vec!["https://page.example".to_owned()], api_keys: vec!["key".to_owned()], ..AppOptions::default() };
    let server = start(options, EngineOptions::default(), TEMPLATE);
    let preflight = server.send("OPTIONS", "/v1/chat/completions", &[("origin", "https://page.example")], "");
    assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (204, Some("https://page.example")));
    assert!(preflight.header("access-control-allow-headers").unwrap().contains("authorization"));
    let other = server.send("OPTIONS", "/v1/chat/completions", &[("origin", "https://evil.example")], "");
    assert_eq!((other.status, other.header("access-control-allow-origin")), (401, None));
}

#[test]
fn sizes_are_limited() {
    let limits = Limits { body_bytes: 2000, receive: Duration::from_millis(300), ..Limits::default() };
    let server = start(AppOptions { limits, ..AppOptions::default() }, EngineOptions::default(), TEMPLATE);
    let answer = |bytes: &[u8]| {
        let mut text = String::new();
        // The connection may be reset once the answer was sent.
        let _ = server.raw(bytes).read_to_string(&mut text);
        text
    };
    let head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n";
    let huge_header = format!("{head}x-large: {}\r\n\r\n", "x".repeat(100_000));
    assert!(answer(huge_header.as_bytes()).starts_with("HTTP/1.1 431"), "a huge header");
    let many: String = (0..200).map(|number| format!("x-{number}: 1\r\n")).collect();
    assert!(answer(format!("{head}{many}\r\n").as_bytes()).starts_with("HTTP/1.1 431"), "many headers");
    let announced = answer(format!("{head}content-length: 5000000\r\n\r\n").as_bytes());
    assert!(announced.starts_with("HTTP/1.1 413") && announced.contains("the body exceeds 2000 bytes"), "{announced}");
    let chunk = format!("{head}transfer-encoding: chunked\r\n\r\nbb8\r\n{}\r\n0\r\n\r\n", "x".repeat(3000));
    assert!(answer(chunk.as_bytes()).starts_with("HTTP/1.1 413"), "a body of unknown length");
    assert!(answer(format!("{head}content-length: 50\r\n\r\n{{").as_bytes()).starts_with("HTTP/1.1 408"), "a slow body");
    assert!(answer(b"\x16\x03\x01 not http\r\n\r\n").starts_with("HTTP/1.1 400"));
    for (body, status) in [("", 400), ("[]", 400), ("{", 400), ("{\"prompt\": 5}", 400), ("{}", 400)] {
        let found = server.send("POST", "/v1/completions", &[("content-type", "application/json")], body);
        assert_eq!((found.status, found.json()["error"]["type"].as_str()), (status, Some("invalid_request_error")), "{body}");
    }
    let nested = format!("{{\"prompt\": {}1{}}}", "[".repeat(900), "]".repeat(900));
    assert_eq!(server.send("POST", "/v1/completions", &[], &nested).status, 400);
    assert_eq!((server.get("/nothing").status, server.get("/v1/completions").status), (404, 405));
    assert_eq!(server.get("/nothing").json()["error"]["code"], "not_found");
    assert_eq!(server.get("/health").status, 200);
}

/// Ids of clients are kept if they are harmless.
#[test]
fn request_ids_are_returned() {
    let server = simple();
    let id = |value: &str| server.send("GET", "/health", &[("x-request-id", value)], "").header("x-request-id").unwrap().to_owned();
    assert_eq!(id("abc-1"), "abc-1");
    assert!(id("a b").starts_with("req-") && id(&"x".repeat(500)).starts_with("req-"));
}

#[test]
fn a_client_that_leaves_cancels_its_request() {
    let server = simple();
    let mut random = Random::new(seed());
    for round in 0..40 {
        let mut body = long(400);
        let streamed = round % 2 == 0;
        body["stream"] = streamed.into();
        body["n"] = (1 + random.below(3)).into();
        let mut connection = server.raw_post("/v1/completions", &body);
        if streamed && random.below(2) == 0 {
            read_until(&mut connection, "data: ");
        }
        std::thread::sleep(Duration::from_millis(random.below(8) as u64));
        drop(connection);
    }
    let started = Instant::now();
    server.wait_idle();
    println!("idle after {:?}, {:?}", started.elapsed(), server.client.stats());
    assert!(server.client.stats().generated_tokens < 40 * 2 * 400, "most were cancelled");
}

/// Its request pauses, others continue, and it is disconnected in the end.
#[test]
fn a_client_that_does_not_read_stops_only_itself() {
    let limits = Limits { stalled: Duration::from_secs(1), ..Limits::default() };
    let server = start(AppOptions { limits, ..AppOptions::default() }, EngineOptions::default(), TEMPLATE);
    // Log probabilities make large events: buffers of the connection fill.
    let mut body =
        json!({ "messages": [{ "role": "user", "content": "x" }], "max_tokens": 500, "ignore_eos": true, "stream": true, "n": 16 });
    body["logprobs"] = true.into();
    body["top_logprobs"] = 20.into();
    let _slow = server.raw_post("/v1/chat/completions", &body);
    std::thread::sleep(Duration::from_millis(300));
    let other = server.post("/v1/completions", &json!({ "prompt": "y", "max_tokens": 20, "ignore_eos": true }));
    assert_eq!(other.json()["usage"]["completion_tokens"], 20);
    server.wait_idle();
    assert!(server.client.stats().generated_tokens < 16 * 490, "{:?}", server.client.stats());
}

#[test]
fn overload_is_refused_with_retry_after_and_the_rest_is_served() {
    let engine = EngineOptions { max_running: 2, max_waiting: 4, ..EngineOptions::default() };
    let server = start(AppOptions::default(), engine, TEMPLATE);
    let answers: Vec<_> = std::thread::scope(|scope| {
        let ask = || {
            let mut body = long(60);
            body["stream"] = false.into();
            server.post("/v1/completions", &body)
        };
        let threads: Vec<_> = (0..40).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let served = answers.iter().filter(|answer| answer.status == 200).count();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    println!("{served} served, {} refused", refused.len());
    // The queue takes four before the engine's first step; how many follow depends on timing.
    assert!(served >= 4 && served + refused.len() == 40 && !refused.is_empty());
    for answer in refused {
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!((&answer.json()["error"]["type"], &answer.json()["error"]["code"]), (&json!("rate_limit_error"), &json!("queue_full")));
    }
    server.wait_idle();
}

#[test]
fn connections_are_limited_and_wait_for_a_place() {
    let limits = Limits { connections: 2, ..Limits::default() };
    let server = start(AppOptions { limits, ..AppOptions::default() }, EngineOptions::default(), TEMPLATE);
    let held: Vec<TcpStream> = (0..2).map(|_| server.raw(b"")).collect();
    let mut third = server.raw(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    third.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(third.read(&mut [0; 16]).is_err(), "it waits");
    drop(held);
    third.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut text = String::new();
    third.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"));
}

#[test]
fn draining_finishes_requests_and_refuses_new_ones() {
    let mut running = simple();
    let mut stream = running.raw_post("/v1/completions", &long(300));
    read_until(&mut stream, "data: ");
    let server = running.server.take().unwrap();
    let status = server.status();
    assert_eq!(status(), "busy");
    let stopping = std::thread::spawn(move || server.stop(Duration::from_secs(20)));
    while status() != "stopped" {
        std::thread::sleep(Duration::from_millis(1));
    }
    let ready = running.get("/ready");
    let refused = running.post("/v1/completions", &long(5));
    // The long request may have ended in the meantime; then nobody listens.
    assert_eq!((ready.status, ready.json()["status"].as_str()), (503, Some("draining")));
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"finish_reason\":\"length\"") && rest.contains("data: [DONE]"), "{rest}");
    stopping.join().unwrap();
    assert!(TcpStream::connect(running.address).is_err());
}

#[test]
fn a_server_without_a_model_is_loading() {
    let server = Server::start(&Listen::Tcp("127.0.0.1:0".parse().unwrap()), AppOptions::default()).unwrap();
    server.loading().report(25, 100);
    assert_eq!(server.status()(), "starting");
    let address = server.address().unwrap();
    let ask = |request: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .write_all(
                format!("{request}\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 15\r\n\r\n{{\"prompt\": \"x\"}}").as_bytes(),
            )
            .unwrap();
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    };
    assert!(ask("GET /health HTTP/1.1").starts_with("HTTP/1.1 200"));
    assert!(ask("GET /ready HTTP/1.1").starts_with("HTTP/1.1 503"));
    let progress = ask("GET /v1/loading/progress HTTP/1.1");
    assert!(progress.contains("\"status\":\"loading\"") && progress.contains("\"percent\":25"), "{progress}");
    let refused = ask("POST /v1/completions HTTP/1.1");
    assert!(refused.starts_with("HTTP/1.1 503") && refused.to_lowercase().contains("retry-after: 1"), "{refused}");
    server.stop(Duration::ZERO);
}

#[test]
fn a_unix_socket_works_and_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("serve.sock");
    // Of a server that was killed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let server = Server::start(&Listen::Unix(path.clone()), AppOptions::default()).unwrap();
    assert_eq!(server.address(), None);
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("{\"status\":\"healthy\"}"), "{text}");
    assert!(Server::start(&Listen::Unix(path.clone()), AppOptions::default()).is_err(), "a socket in use is kept");
    server.stop(Duration::ZERO);
    assert!(!path.exists());
}

/// Every documented path exists, and refuses other methods.
#[test]
fn the_openapi_document_describes_the_routes() {
    let server = simple();
    let document = server.get("/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 20);
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys() {
            let concrete = path.replace("{name}", "tiny").replace("{id}", "none");
            let found = server.send(&method.to_uppercase(), &concrete, &[("content-type", "application/json")], "");
            let absent = path.contains("{id}");
            assert!(
                found.status == if absent { 404 } else { 200 }
                    || (found.status == 400 && method == "post")
                    // It takes forms.
                    || (found.status == 415 && path == "/v1/images/edits"),
                "{method} {path}: {}",
                found.status
            );
            assert!(!absent || found.json()["error"]["code"] == "job_not_found");
            let other = if method == "get" { "DELETE" } else { "GET" };
            assert_eq!(server.send(other, &concrete, &[], "").status, 405, "{other} {path}");
            assert!(methods[method]["responses"]["200"].is_object());
            let body = &methods[method]["requestBody"]["content"]["application/json"]["schema"]["$ref"];
            let schema = body.as_str().map(|name| name.trim_start_matches("#/components/schemas/"));
            assert!(schema.is_none_or(|name| document["components"]["schemas"][name]["properties"].is_object()), "{path}");
        }
    }
}
