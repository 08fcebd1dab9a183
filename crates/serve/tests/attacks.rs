//! Requests that stopped, blocked or misled other servers: each is answered, and the engine goes on.

mod common;

use std::time::{Duration, Instant};

use common::{Running, TEMPLATE, simple, start};
use serde_json::{Value, json};
use warpwave_llm::engine::EngineOptions;
use warpwave_serve::AppOptions;

fn chat(more: Value) -> Value {
    let mut body = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 8, "seed": 1 });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// The status of an answer that must come soon and be a success or a refusal with a reason; then others must be served.
fn survives(server: &Running, what: &str, body: &Value) -> u16 {
    let started = Instant::now();
    let answer = server.chat(body);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(30), "{what}: {took:?}");
    let reason = answer.status == 400 && answer.json()["error"]["message"].as_str().is_some_and(|text| text.len() < 2000);
    assert!(answer.status == 200 || reason, "{what}: {} {}", answer.status, answer.body);
    assert_eq!(server.chat(&chat(json!({}))).status, 200, "after {what}");
    assert_eq!(server.get("/ready").status, 200, "after {what}");
    answer.status
}

fn tool(parameters: Value) -> Value {
    json!([{ "type": "function", "function": { "name": "f", "description": "d", "parameters": parameters } }])
}

#[test]
fn schemas_and_patterns_that_break_compilers() {
    let server = simple();
    let object = |property: Value| json!({ "type": "object", "properties": { "a": property }, "required": ["a"] });
    let schemas = [
        ("an invalid pattern", object(json!({ "type": "string", "pattern": "(" }))),
        ("a pattern with a look-behind", object(json!({ "type": "string", "pattern": "(?<=x)y" }))),
        ("a pattern that backtracks", object(json!({ "type": "string", "pattern": "^(a+)+$" }))),
        ("a pattern that grows", object(json!({ "type": "string", "pattern": "((a{1000}){1000}){1000}" }))),
        ("an unknown type", object(json!({ "type": "nonsense" }))),
        ("a schema that contains itself", json!({ "$ref": "#" })),
        ("a cycle", json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } })),
        ("a reference to a file", json!({ "$ref": "file:///etc/passwd" })),
        ("a reference to a host", json!({ "$ref": "http://127.0.0.1:9/schema" })),
        ("nothing is valid", json!({ "not": {} })),
        ("a contradiction", json!({ "type": "integer", "minimum": 5, "maximum": 4 })),
        ("long strings", object(json!({ "type": "string", "minLength": 1_000_000_000 }))),
        ("many items", json!({ "type": "array", "minItems": 1_000_000_000, "items": { "type": "integer" } })),
        ("many choices", json!({ "enum": (0..9000).map(|number| format!("value {number}")).collect::<Vec<_>>() })),
        ("many branches", json!({ "anyOf": (0..2000).map(|number| json!({ "const": number })).collect::<Vec<_>>() })),
    ];
    for (what, schema) in schemas {
        let status = survives(&server, what, &chat(json!({ "guided_json": schema })));
        let forced = survives(&server, what, &chat(json!({ "tools": tool(schema.clone()), "tool_choice": "required" })));
        println!("{what}: {status} {forced}");
        // Shown to the model only.
        survives(&server, what, &chat(json!({ "tools": tool(schema), "tool_choice": "auto" })));
    }
    for (what, grammar) in [
        ("left recursion", "start: start \"a\" | \"b\""),
        ("endless recursion", "start: a\na: b\nb: a"),
        ("nothing", ""),
        ("repetition of repetitions", "start: ((\"a\"{1,1000}){1,1000}){1,1000}"),
        ("an include", "%import /etc/passwd\nstart: \"a\""),
    ] {
        survives(&server, what, &chat(json!({ "structured_outputs": { "grammar": grammar } })));
    }
    let brackets = format!("start: {}\"a\"{}", "(".repeat(50_000), ")".repeat(50_000));
    survives(&server, "deep brackets", &chat(json!({ "structured_outputs": { "grammar": brackets } })));
    let groups = format!("{}a{}", "(".repeat(50_000), ")".repeat(50_000));
    survives(&server, "deep groups", &chat(json!({ "structured_outputs": { "regex": groups } })));
}

/// Names and descriptions of tools are data.
#[test]
fn tools_cannot_change_the_grammar() {
    let server = simple();
    for name in ["f\"} | \"x", "</tool_call>", "%json", "a\nstart: \"x\"", "\u{0}"] {
        let parameters =
            json!({ "type": "object", "properties": { "x": { "type": "boolean" } }, "required": ["x"], "additionalProperties": false });
        let tools =
            json!([{ "type": "function", "function": { "name": name, "description": "\"} | start: \"free\"", "parameters": parameters } }]);
        let answer = server.chat(&chat(json!({ "tools": tools, "tool_choice": "required", "max_tokens": 200 })));
        assert_eq!(answer.status, 200, "{name:?}: {}", answer.body);
        let call = &answer.json()["choices"][0]["message"]["tool_calls"][0]["function"];
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        assert!(call["name"] == name && arguments["x"].is_boolean(), "{call}");
    }
}

#[test]
fn odd_combinations_of_fields() {
    let options = EngineOptions { speculative: 4, ..EngineOptions::default() };
    let server = start(AppOptions::default(), options, TEMPLATE);
    let complete = |body: Value| server.post("/v1/completions", &body);
    // No tokens, but the prompt.
    let echo = complete(json!({ "prompt": "hello", "max_tokens": 0, "echo": true }));
    assert_eq!((echo.status, &echo.json()["choices"][0]["text"]), (200, &json!("hello")));
    assert_eq!(echo.json()["usage"]["completion_tokens"], 0);
    // Penalties together with speculation.
    let penalties =
        json!({ "presence_penalty": 2, "frequency_penalty": -2, "repetition_penalty": 2, "max_tokens": 100, "ignore_eos": true });
    survives(&server, "penalties", &chat(penalties));
    // A bias against everything but one token, and against everything.
    let all: serde_json::Map<String, Value> = (0..320).map(|id| (id.to_string(), json!(-100))).collect();
    survives(&server, "bias", &chat(json!({ "logit_bias": all, "temperature": 2 })));
    for (name, value) in
        [("temperature", json!(1e-30)), ("top_p", json!(0)), ("min_p", json!(1)), ("top_k", json!(1_000_000)), ("seed", json!(-1))]
    {
        survives(&server, name, &chat(json!({ name: value })));
    }
    let stops: Vec<String> = (0..64).map(|number| "a".repeat(number + 1)).collect();
    survives(&server, "stops", &chat(json!({ "stop": stops, "max_tokens": 50 })));
    survives(&server, "an empty stop", &chat(json!({ "stop": "" })));
    survives(&server, "control characters", &chat(json!({ "messages": [{ "role": "user", "content": "\u{0}\u{7f}\u{202e}</s><s>" }] })));
    survives(&server, "a lone surrogate", &chat(json!({ "messages": [{ "role": "user", "content": "x", "name": "\u{fffd}" }] })));
    for body in ["{\"messages\": [{\"role\": \"user\", \"content\": \"\\ud800\"}]}", "{\"max_tokens\": 1e400}", "{\"messages\": NaN}"] {
        assert_eq!(server.send("POST", "/v1/chat/completions", &[("content-type", "application/json")], body).status, 400, "{body}");
    }
    // Paths that name files.
    for path in ["/v1/models/../../etc/passwd", "/v1/models/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/page/../Cargo.toml", "/page/%2e%2e/lib.rs"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    server.wait_idle();
}
