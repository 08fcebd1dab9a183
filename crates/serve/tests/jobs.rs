//! The job API of workers, and the heartbeat to a hive.

mod common;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use common::{TEMPLATE, read_until, simple, start};
use serde_json::{Value, json};
use warpwave_llm::engine::EngineOptions;
use warpwave_serve::{AppOptions, Heartbeat, Limits, Worker};

fn infer(tokens: usize) -> Value {
    json!({ "operation": "infer", "hive_id": "h", "model": "tiny", "prompt": "hello", "max_tokens": tokens, "temperature": 0.7, "top_k": 40, "stream": true })
}

#[test]
fn a_job_streams_every_event_to_one_reader() {
    let server = simple();
    for path in ["/v1/jobs", "/v1/inference"] {
        let created = server.post(path, &infer(8));
        assert_eq!(created.status, 200, "{}", created.body);
        let job = created.json();
        let id = job["job_id"].as_str().unwrap().to_owned();
        assert_eq!(job["sse_url"], format!("/v1/jobs/{id}/stream"));
        let mut events = server.get(job["sse_url"].as_str().unwrap()).events();
        assert_eq!(events.pop().as_deref(), Some("[DONE]"));
        let events: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
        let [started, tokens @ .., metrics, end] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((&started["type"], &started["job_id"], &started["model"]), (&json!("started"), &json!(id), &json!("tiny")));
        let at = started["started_at"].as_str().unwrap();
        assert!(at.len() == 20 && at.ends_with('Z'));
        for (number, token) in tokens.iter().enumerate() {
            assert_eq!((&token["type"], &token["i"], token["t"].is_string()), (&json!("token"), &json!(number), true));
        }
        assert!(tokens.len() >= 8 || end["stop_reason"] == "EOS");
        assert!(metrics["type"] == "metrics" && metrics["tokens_per_sec"].is_number() && metrics["vram_bytes"].is_number());
        assert!(end["type"] == "end" && end["decode_time_ms"].is_u64() && end["tokens_out"].as_u64().unwrap() <= 8);
        assert_eq!(server.get(&format!("{path}/{id}/stream")).status, 404, "a job that ended is gone");
    }
    let stop = with_stop();
    let job = server.post("/v1/jobs", &stop).json();
    let events = server.get(job["sse_url"].as_str().unwrap()).events();
    let end: Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
    assert!(end["stop_reason"] == "STOP_SEQUENCE" && end["stop_sequence_matched"].is_string(), "{end}");
}

/// A job that ends at its first character.
fn with_stop() -> Value {
    let mut job = infer(300);
    job["stop"] = json!(["e", "a", "i", " "]);
    job["temperature"] = json!(2.0);
    job
}

#[test]
fn wrong_jobs_are_refused_and_a_second_reader_too() {
    let server = simple();
    for (field, value) in [
        ("operation", json!("image_generation")),
        ("operation", Value::Null),
        ("prompt", Value::Null),
        ("max_tokens", json!(0)),
        ("temperature", json!(3)),
    ] {
        let mut job = infer(5);
        job[field] = value;
        let refused = server.post("/v1/jobs", &job);
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(field)), "{}", refused.body);
    }
    let mut other = infer(5);
    other["model"] = "another".into();
    assert_eq!(server.post("/v1/jobs", &other).status, 404);
    assert_eq!(server.get("/v1/jobs/job-none/stream").json()["error"]["code"], "job_not_found");
    let job = server.post("/v1/jobs", &infer(400)).json();
    let url = job["sse_url"].as_str().unwrap();
    let mut first = server.raw(format!("GET {url} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes());
    read_until(&mut first, "started");
    let second = server.get(url).status;
    assert!(second == 409 || second == 404, "{second}: taken, or already over");
    drop(first);
    server.wait_idle();
}

#[test]
fn a_reader_that_leaves_or_never_comes_cancels_the_job() {
    let limits = Limits { unread_job: Duration::from_secs(1), ..Limits::default() };
    let server = start(AppOptions { limits, ..AppOptions::default() }, EngineOptions::default(), TEMPLATE);
    for _ in 0..10 {
        let job = server.post("/v1/jobs", &infer(480)).json();
        let mut stream = server.raw(format!("GET {} HTTP/1.1\r\nhost: localhost\r\n\r\n", job["sse_url"].as_str().unwrap()).as_bytes());
        read_until(&mut stream, "started");
    }
    server.wait_idle();
    let unread = server.post("/v1/jobs", &infer(480)).json();
    std::thread::sleep(Duration::from_millis(1050));
    server.wait_idle();
    assert_eq!(server.get(unread["sse_url"].as_str().unwrap()).status, 404);
}

/// A small hive: the bodies of its requests. The first is answered with an error.
fn hive() -> (String, mpsc::Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut text = Vec::new();
            let mut buffer = [0; 1024];
            let body = loop {
                let count = stream.read(&mut buffer).unwrap();
                text.extend_from_slice(&buffer[..count]);
                let all = String::from_utf8_lossy(&text).into_owned();
                let Some((head, body)) = all.split_once("\r\n\r\n") else { continue };
                let length = head
                    .to_lowercase()
                    .split_once("content-length: ")
                    .map(|(_, rest)| rest.lines().next().unwrap().parse::<usize>().unwrap());
                if length.is_some_and(|length| body.len() >= length) {
                    break (head.lines().next().unwrap().to_owned(), serde_json::from_str(body).unwrap());
                }
            };
            let status = if number == 0 { "500 Error" } else { "200 OK" };
            let answer = "{\"status\":\"ok\",\"message\":\"\"}";
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}", answer.len()).unwrap();
            if sender.send(body).is_err() {
                return;
            }
        }
    });
    (url, received)
}

#[test]
fn the_hive_gets_heartbeats_until_the_end_even_after_failures() {
    let server = simple();
    let (url, received) = hive();
    let worker = Worker {
        id: "w1".to_owned(),
        model: "tiny".to_owned(),
        device: "rocm:0".to_owned(),
        port: server.address.port(),
        version: "1".to_owned(),
    };
    let status = server.server.as_ref().unwrap().status();
    let heartbeat = Heartbeat::start(&format!("{url}/"), worker, Duration::from_millis(20), status).unwrap();
    for _ in 0..3 {
        let (line, body) = received.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(line, "POST /v1/worker-heartbeat HTTP/1.1");
        let worker = &body["worker"];
        assert_eq!((&worker["id"], &worker["model_id"], &worker["device"]), (&json!("w1"), &json!("tiny"), &json!("rocm:0")));
        assert_eq!((&worker["status"], &worker["port"]), (&json!("ready"), &json!(server.address.port())));
        assert!(worker["implementation"] == "warpwave" && body["timestamp"].as_str().unwrap().ends_with('Z'));
    }
    drop(heartbeat);
    let last = received.try_iter().last().map(|(_, body)| body["worker"]["status"].clone());
    assert_eq!(last, Some(json!("stopped")));
}
