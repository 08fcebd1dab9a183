//! OpenAI's API over HTTP, with a tiny model.

mod common;

use std::time::{Duration, Instant};

use common::{simple, start};
use serde_json::{Value, json};
use warpwave_llm::engine::EngineOptions;
use warpwave_serve::AppOptions;

fn hello() -> Value {
    json!({ "model": "tiny", "messages": [{ "role": "user", "content": "hello" }], "max_tokens": 12, "temperature": 0, "ignore_eos": true })
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn a_chat_is_answered_whole_and_as_a_stream_with_the_same_text() {
    let server = simple();
    let whole = server.chat(&hello());
    assert_eq!(whole.status, 200, "{}", whole.body);
    assert!(whole.header("x-request-id").is_some_and(|id| id.starts_with("req-")));
    let whole = whole.json();
    assert_eq!((&whole["object"], &whole["model"]), (&json!("chat.completion"), &json!("tiny")));
    assert!(whole["id"].as_str().unwrap().starts_with("chatcmpl-") && whole["created"].as_u64().unwrap() > 1_700_000_000);
    let choice = &whole["choices"][0];
    assert_eq!(
        (&choice["index"], &choice["finish_reason"], &choice["message"]["role"]),
        (&json!(0), &json!("length"), &json!("assistant"))
    );
    // "u:hello;a:" in bytes.
    let usage = &whole["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"], &usage["total_tokens"]), (&json!(10), &json!(12), &json!(22)));
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);

    let streamed = server.chat(&with(hello(), json!({ "stream": true, "stream_options": { "include_usage": true } })));
    assert_eq!(streamed.header("cache-control"), Some("no-cache"));
    assert_eq!(streamed.header("x-accel-buffering"), Some("no"));
    let mut events = streamed.events();
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    let chunks: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
    assert!(chunks.iter().all(|chunk| chunk["object"] == "chat.completion.chunk" && chunk["id"] == chunks[0]["id"]));
    let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(Value::from(text), choice["message"]["content"]);
    let [.., last, usage] = chunks.as_slice() else { panic!("{chunks:?}") };
    assert_eq!(last["choices"][0]["finish_reason"], "length");
    assert_eq!((&usage["choices"], &usage["usage"]["completion_tokens"]), (&json!([]), &json!(12)));
    // Nobody asked for usage: no chunk without choices.
    let plain = server.chat(&with(hello(), json!({ "stream": true }))).events();
    assert!(plain.iter().all(|event| event == "[DONE]" || !event.contains("\"choices\":[]")));
}

#[test]
fn choices_seeds_stops_and_logprobs_work() {
    let server = simple();
    let sampled = |seed: u64| server.chat(&with(hello(), json!({ "n": 3, "temperature": 1.0, "seed": seed }))).json();
    let (a, b) = (sampled(5), sampled(5));
    assert_eq!(a["choices"], b["choices"]);
    assert_ne!(a["choices"][0]["message"], a["choices"][1]["message"]);
    assert_eq!((a["choices"].as_array().unwrap().len(), &a["usage"]["completion_tokens"]), (3, &json!(36)));
    let indexes: std::collections::BTreeSet<String> = server
        .chat(&with(hello(), json!({ "n": 3, "stream": true })))
        .events()
        .iter()
        .filter_map(|event| Some(serde_json::from_str::<Value>(event).ok()?["choices"][0]["index"].to_string()))
        .collect();
    assert_eq!(indexes.len(), 3);
    let answer = server.chat(&with(hello(), json!({ "logprobs": true, "top_logprobs": 2 }))).json();
    let tokens = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(tokens.len(), 12);
    let first = &tokens[0];
    assert_eq!((first["token"] == first["top_logprobs"][0]["token"], first["top_logprobs"].as_array().unwrap().len()), (true, 2));
    assert!(first["logprob"].as_f64().unwrap() <= 0.0 && first["bytes"].is_array());
    // A token that is all but forbidden, and one that is all but forced.
    let forced = server.chat(&with(hello(), json!({ "logit_bias": { "68": 100 }, "max_tokens": 3 }))).json();
    assert_eq!(forced["choices"][0]["message"]["content"], "AAA");
    let stopped = server.chat(&with(hello(), json!({ "logit_bias": { "68": 100 }, "stop": "AA" }))).json();
    assert_eq!((&stopped["choices"][0]["message"]["content"], &stopped["choices"][0]["finish_reason"]), (&json!(""), &json!("stop")));
    let included = server.chat(&with(hello(), json!({ "logit_bias": { "68": 100 }, "stop": ["AA"], "include_stop_str_in_output": true })));
    assert_eq!(included.json()["choices"][0]["message"]["content"], "AA");
    let ids = server.chat(&with(hello(), json!({ "logit_bias": { "68": 100 }, "max_tokens": 2, "return_token_ids": true }))).json();
    assert_eq!(ids["choices"][0]["token_ids"], json!([68, 68]));
}

#[test]
fn a_repeated_prompt_is_cached_and_counted() {
    let server = simple();
    let long = json!({ "messages": [{ "role": "user", "content": "word ".repeat(20) }], "max_tokens": 4, "temperature": 0 });
    let (cold, warm) = (server.chat(&long).json(), server.chat(&long).json());
    assert_eq!(cold["choices"][0]["message"], warm["choices"][0]["message"]);
    assert_eq!(cold["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(warm["usage"]["prompt_tokens_details"]["cached_tokens"], 96);
    let other = server.chat(&with(long, json!({ "cache_salt": "tenant" }))).json();
    assert_eq!(other["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

#[test]
fn completions_take_texts_and_ids_and_echo() {
    let server = simple();
    let complete = |body: Value| server.post("/v1/completions", &with(json!({ "temperature": 0, "logit_bias": { "68": 100 } }), body));
    let answer = complete(json!({ "prompt": ["ab", "cd"], "max_tokens": 2, "echo": true, "n": 2 })).json();
    let texts: Vec<&Value> = answer["choices"].as_array().unwrap().iter().map(|choice| &choice["text"]).collect();
    assert_eq!(texts, ["abAA", "abAA", "cdAA", "cdAA"]);
    assert_eq!((&answer["object"], &answer["usage"]["prompt_tokens"]), (&json!("text_completion"), &json!(4)));
    assert_eq!(complete(json!({ "prompt": [100, 101], "max_tokens": 1 })).json()["choices"][0]["text"], "A");
    assert_eq!(complete(json!({ "prompt": [[100], [101]], "max_tokens": 1 })).json()["choices"].as_array().unwrap().len(), 2);
    assert_eq!(complete(json!({ "prompt": "x" })).json()["usage"]["completion_tokens"], 16, "the default length");
    // Nothing to generate, but the prompt.
    let none = complete(json!({ "prompt": "x", "max_tokens": 0, "echo": true })).json();
    assert_eq!((&none["choices"][0]["text"], &none["choices"][0]["finish_reason"]), (&json!("x"), &json!("length")));
    let logprobs = complete(json!({ "prompt": "x", "max_tokens": 2, "logprobs": 3 })).json()["choices"][0]["logprobs"].clone();
    assert_eq!(logprobs["tokens"], json!(["A", "A"]));
    assert_eq!((logprobs["text_offset"].clone(), logprobs["top_logprobs"][0].as_object().unwrap().len()), (json!([0, 1]), 3));
    let events = complete(json!({ "prompt": "x", "max_tokens": 2, "stream": true, "echo": true })).events();
    let text: String = events
        .iter()
        .filter_map(|event| Some(serde_json::from_str::<Value>(event).ok()?["choices"][0]["text"].as_str()?.to_owned()))
        .collect();
    assert_eq!((text.as_str(), events.last().unwrap().as_str()), ("xAA", "[DONE]"));
}

#[test]
fn models_tokens_and_states_are_reported() {
    let server = simple();
    let models = server.get("/v1/models").json();
    assert_eq!((&models["data"][0]["id"], &models["data"][0]["max_model_len"]), (&json!("tiny"), &json!(512)));
    assert_eq!(server.get("/v1/models/tiny").json()["id"], "tiny");
    assert_eq!(server.get("/v1/models/other").json()["error"]["code"], "model_not_found");
    let tokens = server.post("/tokenize", &json!({ "prompt": "ab", "return_token_strs": true })).json();
    assert_eq!((&tokens["tokens"], &tokens["count"], &tokens["token_strs"]), (&json!([100, 101]), &json!(2), &json!(["a", "b"])));
    assert_eq!(server.post("/tokenize", &json!({ "content": "a" })).json()["tokens"], json!([100]));
    assert_eq!(server.post("/tokenize", &json!({ "messages": [{ "role": "user", "content": "x" }] })).json()["count"], 6);
    assert_eq!(server.post("/detokenize", &json!({ "tokens": [100, 101] })).json()["prompt"], "ab");
    assert_eq!(server.post("/detokenize", &json!({ "tokens": [100_000] })).status, 400);
    assert_eq!(server.get("/health").json(), json!({ "status": "healthy" }));
    assert_eq!((server.get("/ready").status, server.get("/v1/ready").status), (200, 200));
    assert_eq!(server.get("/version").json()["version"], "test");
    assert_eq!(server.get("/v1/loading/progress").json()["status"], "ready");
    server.chat(&hello());
    let expected = [
        "warpwave_generation_tokens_total{model_name=\"tiny\"} 12",
        "warpwave_request_success_total{model_name=\"tiny\",finished_reason=\"length\"} 1",
        "warpwave_num_requests_running{model_name=\"tiny\"} 0",
        "warpwave_inter_token_latency_seconds_count{model_name=\"tiny\"} 11",
        "warpwave_http_responses_total{status=\"404\"} 1",
    ];
    // The engine publishes its numbers after a step, the last token of the step may have arrived before.
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let metrics = server.get("/metrics");
        assert!(metrics.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
        let Some(line) = expected.iter().find(|line| !metrics.body.lines().any(|found| found == **line)) else { break };
        assert!(Instant::now() < end, "{line} in {}", metrics.body);
        std::thread::sleep(Duration::from_millis(10));
    }
    let vllm = start(AppOptions { vllm_metrics: true, ..AppOptions::default() }, EngineOptions::default(), common::TEMPLATE);
    assert!(vllm.get("/metrics").body.contains("vllm:kv_cache_usage_perc{model_name=\"tiny\"} 0"));
}

/// Each wrong field is named.
#[test]
fn invalid_requests_get_400_with_the_field() {
    let server = simple();
    for (field, value) in [
        ("temperature", json!(-1)),
        ("temperature", json!("hot")),
        ("top_p", json!(2)),
        ("top_k", json!(-2)),
        ("max_tokens", json!(-1)),
        ("n_predict", json!(-5)),
        ("n", json!(0)),
        ("n", json!(1_000_000)),
        ("logit_bias", json!({ "999999": 1 })),
        ("logit_bias", json!({ "x": 1 })),
        ("logit_bias", json!({ "5": 1000 })),
        ("stop", json!([1])),
        ("stop_token_ids", json!([999_999])),
        ("top_logprobs", json!(21)),
        ("top_logprobs", json!(2)),
        ("seed", json!(1.5)),
        ("messages", json!([])),
        ("messages[0]", json!([{ "role": "robot", "content": "x" }])),
        ("messages[0]", json!([{ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "http://localhost/" } }] }])),
        ("messages", json!([{ "role": "user", "content": "forbidden" }])),
        ("functions", json!([])),
        ("audio", json!({})),
        ("prompt_logprobs", json!(1)),
        ("best_of", json!(5)),
        ("chat_template_kwargs", json!({ "tokenize": true })),
        ("chat_template_kwargs", json!({ "chat_template": "{{ 1 }}" })),
        ("response_format", json!({ "type": "yaml" })),
        ("response_format", json!({ "type": "json_schema", "json_schema": { "name": "x" } })),
        ("structured_outputs", json!("json")),
        ("grammar", json!("root ::= \"a\"")),
        ("tools", json!([{ "type": "function" }])),
        ("tool_choice", json!("required")),
        ("priority", json!(100_000)),
        ("min_tokens", json!(100)),
        ("stream_options", json!([])),
    ] {
        let name = field.split('[').next().unwrap();
        let answer = server.chat(&with(hello(), json!({ name: value })));
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, &error["param"], &error["type"]),
            (400, &json!(field), &json!("invalid_request_error")),
            "{field}: {error}"
        );
        assert!(error["message"].is_string() && error.get("code").is_some());
        assert!(!error["message"].as_str().unwrap().contains("0x"), "no addresses: {error}");
    }
    let long = server.chat(&with(hello(), json!({ "messages": [{ "role": "user", "content": "x".repeat(600) }] })));
    assert_eq!((long.status, &long.json()["error"]["code"]), (400, &json!("context_length_exceeded")));
    let unknown = server.chat(&with(hello(), json!({ "model": "other" })));
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (404, &json!("model_not_found")));
    // Known to OpenAI's clients, without effect here; and unknown fields.
    let ignored = json!({ "user": "x", "metadata": {}, "store": true, "service_tier": "auto", "verbosity": "low", "something": [1] });
    assert_eq!(server.chat(&with(hello(), ignored)).status, 200);
    assert_eq!(server.chat(&with(hello(), json!({ "temperature": null, "stop": null, "n": null, "tools": null }))).status, 200);
}

#[test]
fn the_final_message_can_be_continued_and_parts_are_joined() {
    let server = simple();
    let count = |body: Value| server.post("/tokenize", &body).json()["count"].clone();
    let messages = json!([{ "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] }]);
    assert_eq!(count(json!({ "messages": messages })), 7, "u:ab;a:");
    let messages = json!([{ "role": "developer", "content": "b" }, { "role": "assistant", "content": "so" }]);
    assert_eq!(count(json!({ "messages": messages, "continue_final_message": true })), 8, "s:b;a:so");
}

#[test]
fn grammars_hold() {
    let server = simple();
    let ask = |more: Value| {
        let body = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 200, "temperature": 1.0, "seed": 3 });
        let answer = server.chat(&with(body, more));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let choice = answer.json()["choices"][0].clone();
        (choice["message"]["content"].as_str().unwrap_or_default().to_owned(), choice["finish_reason"].clone())
    };
    for seed in 0..5 {
        let (text, reason) = ask(json!({ "structured_outputs": { "choice": ["red", "green"] }, "seed": seed }));
        assert!(["red", "green"].contains(&text.as_str()) && reason == "stop", "{text}");
        let (text, _) = ask(json!({ "guided_regex": "[0-9]{3}-[a-f]{2}", "seed": seed }));
        assert!(text.len() == 6 && text.as_bytes()[3] == b'-' && text[..3].parse::<u32>().is_ok(), "{text}");
        let schema = json!({
            "type": "object", "properties": { "ok": { "type": "boolean" }, "size": { "enum": ["s", "m"] } },
            "required": ["ok", "size"], "additionalProperties": false,
        });
        let format = json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema, "strict": true } });
        let (text, reason) = ask(json!({ "response_format": format, "seed": seed }));
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!(value["ok"].is_boolean() && value["size"].is_string() && reason == "stop");
        let (text, _) = ask(json!({ "structured_outputs": { "grammar": "start: \"a\" \"b\"+ \"c\"" }, "seed": seed }));
        assert!(text.starts_with("ab"), "{text}");
    }
    // What cannot be compiled is refused, and the engine lives.
    let deep = (0..100).fold(json!({}), |inner, _| json!({ "properties": { "a": inner } }));
    let huge: Vec<String> = (0..60_000).map(|number| format!("value {number}")).collect();
    for bad in [
        json!({ "guided_regex": "(" }),
        json!({ "structured_outputs": { "grammar": "start: unknown" } }),
        json!({ "guided_json": { "type": "object", "properties": { "a": { "type": "string", "pattern": "(" } }, "required": ["a"] } }),
        json!({ "guided_json": deep }),
        json!({ "guided_json": { "enum": huge } }),
        json!({ "guided_json": 5 }),
        json!({ "guided_json": {}, "guided_regex": "a" }),
    ] {
        let answer = server.chat(&with(hello(), bad));
        assert_eq!(answer.status, 400, "{}", answer.body);
    }
    assert_eq!(server.chat(&hello()).status, 200);
}

#[test]
fn tools_are_shown_called_and_forced() {
    let template = "{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}{% for message in messages %}{{ message.role[0] + ':' + message.content }}{% for call in message.tool_calls %}{{ call.function.arguments.x }}{% endfor %}{% endfor %}a:";
    let server = start(AppOptions::default(), EngineOptions::default(), template);
    let tool = |name: &str| {
        let parameters =
            json!({ "type": "object", "properties": { "x": { "enum": [1, 2] } }, "required": ["x"], "additionalProperties": false });
        json!({ "type": "function", "function": { "name": name, "parameters": parameters } })
    };
    let ask = |more: Value| {
        let body = json!({ "messages": [{ "role": "user", "content": "q" }], "tools": [tool("f"), tool("g")], "max_tokens": 90, "temperature": 1, "seed": 2 });
        server.chat(&with(body, more))
    };
    for (choice, names) in [(json!("required"), &["f", "g"][..]), (json!({ "type": "function", "function": { "name": "g" } }), &["g"])] {
        let answer = ask(json!({ "tool_choice": choice }));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let found = answer.json()["choices"][0].clone();
        assert_eq!((&found["finish_reason"], &found["message"]["content"]), (&json!("tool_calls"), &Value::Null), "{found}");
        let call = &found["message"]["tool_calls"][0];
        assert!(call["id"].as_str().unwrap().starts_with("call_") && call["type"] == "function" && call.get("index").is_none());
        assert!(names.contains(&call["function"]["name"].as_str().unwrap()));
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        assert!(arguments["x"] == 1 || arguments["x"] == 2);
        let events = ask(json!({ "tool_choice": choice, "stream": true })).events();
        let chunks: Vec<Value> = events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
        let calls: Vec<&Value> = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"].get("tool_calls")).collect();
        assert_eq!((calls.len(), &calls[0][0]["index"], &calls[0][0]["function"]), (1, &json!(0), &call["function"]));
        assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    }
    let count = |more: Value| {
        let body = json!({ "messages": [{ "role": "user", "content": "q" }] });
        server.post("/tokenize", &with(body, more)).json()["count"].as_u64().unwrap()
    };
    assert!(count(json!({ "tools": [tool("f")] })) > count(json!({})) + 50, "the template shows tools");
    // Arguments of earlier calls reach templates as objects.
    let call = json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{\"x\": 1234}" } });
    let messages = json!([{ "role": "assistant", "content": null, "tool_calls": [call] }]);
    assert_eq!(count(json!({ "messages": messages })), 8, "a:1234a:");
}
