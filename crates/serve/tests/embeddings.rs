//! Embeddings over HTTP, with a tiny model.

mod common;

use common::{Running, TEMPLATE, simple, start};
use serde_json::{Value, json};
use warpwave_llm::engine::EngineOptions;
use warpwave_llm::{Encoder, EncoderCheckpoint};
use warpwave_serve::{AppOptions, Limits, ServedEncoder};
use warpwave_tensor::Device;
use warpwave_test_support::workspace_root;

/// The elements of an embedding's floats.
const SIZE: usize = 64;

fn vectors(server: &Running, body: &Value) -> Vec<Vec<f64>> {
    let answer = server.post("/v1/embeddings", body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let data = answer.json()["data"].as_array().unwrap().clone();
    let vector = |item: &Value| item["embedding"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
    data.iter().map(vector).collect()
}

fn difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// The sums of a batch may have another order.
fn assert_near(a: &[f64], b: &[f64]) {
    assert!(difference(a, b) < 1e-5, "{a:?} {b:?}");
}

#[test]
fn embeddings_have_the_shape_of_openai() {
    let server = simple();
    let answer = server.post("/v1/embeddings", &json!({ "model": "tiny", "input": "hello" })).json();
    assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!("tiny")));
    assert_eq!(answer["usage"], json!({ "prompt_tokens": 5, "total_tokens": 5 }));
    assert_eq!((&answer["data"][0]["object"], &answer["data"][0]["index"]), (&json!("embedding"), &json!(0)));
    let one = vectors(&server, &json!({ "input": "hello" })).remove(0);
    assert!(one.len() == SIZE && (one.iter().map(|value| value * value).sum::<f64>() - 1.0).abs() < 1e-5);
    // Texts and their tokens, one or several: always the same vector.
    let ids: Vec<u32> = "hello".bytes().map(|byte| u32::from(byte) + 3).collect();
    let several = vectors(&server, &json!({ "input": ["x", "hello", "a longer text"] }));
    assert_eq!(several.len(), 3);
    assert_near(&several[1], &one);
    assert_near(&vectors(&server, &json!({ "input": ids }))[0], &one);
    assert_near(&vectors(&server, &json!({ "input": [[5], ids] }))[1], &one);
    assert!(difference(&vectors(&server, &json!({ "input": "hello", "pooling": "mean" }))[0], &one) > 0.01);
    assert_eq!(server.client.stats().free_blocks, server.client.stats().blocks);
}

#[test]
fn base64_and_dimensions_work() {
    let server = simple();
    let body = json!({ "input": "hello", "encoding_format": "base64", "dimensions": 10 });
    let answer = server.post("/v1/embeddings", &body).json();
    let text = answer["data"][0]["embedding"].as_str().unwrap();
    assert_eq!(text.len(), (10usize * 4).div_ceil(3) * 4);
    let floats = vectors(&server, &json!({ "input": "hello", "encoding_format": "float", "dimensions": 10 })).remove(0);
    let whole = vectors(&server, &json!({ "input": "hello" })).remove(0);
    let norm = whole[..10].iter().map(|value| value * value).sum::<f64>().sqrt();
    assert!(floats.len() == 10 && floats.iter().zip(&whole).all(|(short, long)| (short - long / norm).abs() < 1e-6));
    // The first number's bytes are the first digits of base64.
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = text.chars().take(6).fold(0u64, |bits, digit| bits << 6 | digits.find(digit).unwrap() as u64);
    let bytes = ((bits >> 4) as u32).to_be_bytes();
    assert_eq!(f64::from(f32::from_le_bytes(bytes)), f64::from(floats[0] as f32));
}

#[test]
fn many_texts_pass_a_short_queue() {
    let engine = EngineOptions { max_waiting: 40, max_running: 4, ..EngineOptions::default() };
    let server = start(AppOptions::default(), engine, TEMPLATE);
    let texts: Vec<String> = (0..150).map(|number| format!("text {number}")).collect();
    let found = vectors(&server, &json!({ "input": texts }));
    assert_eq!(found.len(), 150);
    assert_near(&found[149], &vectors(&server, &json!({ "input": "text 149" }))[0]);
}

#[test]
fn wrong_requests_get_400_with_the_field() {
    let limits = Limits { body_bytes: 1 << 20, ..Limits::default() };
    let server = start(AppOptions { limits, ..AppOptions::default() }, EngineOptions::default(), TEMPLATE);
    for (field, value) in [
        ("input", Value::Null),
        ("input", json!("")),
        ("input", json!([])),
        ("input", json!(["a", ""])),
        ("input", json!(["a", 5])),
        ("input", json!([100_000])),
        ("input", json!({ "text": "a" })),
        ("input", json!(vec!["a"; 2049])),
        ("encoding_format", json!("int8")),
        ("dimensions", json!(0)),
        ("dimensions", json!(65)),
        ("pooling", json!("max")),
    ] {
        let mut body = json!({ "input": "hello" });
        body[field] = value;
        let answer = server.post("/v1/embeddings", &body);
        let error = &answer.json()["error"];
        assert_eq!((answer.status, &error["param"]), (400, &json!(field)), "{body}: {error}");
    }
    let long = server.post("/v1/embeddings", &json!({ "input": "x".repeat(513) }));
    assert_eq!((long.status, &long.json()["error"]["code"]), (400, &json!("context_length_exceeded")));
    assert_eq!(server.post("/v1/embeddings", &json!({ "input": "x", "model": "none" })).status, 404);
    server.wait_idle();
}

/// The small BERT of the tests of language models, with a vocabulary.
fn encoder() -> ServedEncoder {
    let from = workspace_root().join("crates/llm/tests/oracles/bert");
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(from.join(name), folder.path().join(name)).unwrap();
    }
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(str::to_owned);
    let letters = ('a'..='z').flat_map(|letter| [letter.to_string(), format!("##{letter}")]);
    let tokens: Vec<String> = special.into_iter().chain(letters).chain((57..320).map(|number| format!("[unused{number}]"))).collect();
    std::fs::write(folder.path().join("vocab.txt"), tokens.join("\n")).unwrap();
    let files = EncoderCheckpoint::open(folder.path()).unwrap();
    ServedEncoder::new("bert", files.tokenizer().unwrap(), Encoder::load(&files, &Device::Cpu).unwrap())
}

#[test]
fn encoders_are_served_beside_models() {
    let server = simple();
    server.server.as_ref().unwrap().add_encoder(encoder());
    let models = server.get("/v1/models").json();
    let names: Vec<&str> = models["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["tiny", "bert"]);
    assert_eq!(server.get("/v1/models/bert").json()["max_model_len"], 64);

    let answer = server.post("/v1/embeddings", &json!({ "model": "bert", "input": ["ab cd", "e"] })).json();
    assert_eq!((&answer["model"], &answer["usage"]["prompt_tokens"]), (&json!("bert"), &json!(6 + 3)));
    let one = vectors(&server, &json!({ "model": "bert", "input": "ab cd" })).remove(0);
    assert!(one.len() == 32 && (one.iter().map(|value| value * value).sum::<f64>() - 1.0).abs() < 1e-5);
    // Texts of several lengths in one request, tokens, and the default model of embeddings.
    let texts: Vec<String> = (0..40).map(|number| "ab ".repeat(number % 20 + 1)).chain(["ab cd".to_owned()]).collect();
    assert_near(&vectors(&server, &json!({ "model": "bert", "input": texts }))[40], &one);
    // [CLS], a, ##b, c, ##d, [SEP]
    assert_near(&vectors(&server, &json!({ "model": "bert", "input": [2, 5, 8, 9, 12, 3] }))[0], &one);
    assert_near(&vectors(&server, &json!({ "input": "ab cd" }))[0], &one);
    assert_eq!(vectors(&server, &json!({ "model": "tiny", "input": "ab cd" }))[0].len(), SIZE);

    let body = json!({ "model": "bert", "input": "ab cd", "encoding_format": "base64", "dimensions": 8 });
    let text = server.post("/v1/embeddings", &body).json()["data"][0]["embedding"].as_str().unwrap().to_owned();
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<u8> = text
        .trim_end_matches('=')
        .bytes()
        .flat_map(|digit| {
            let value = digits.bytes().position(|own| own == digit).unwrap();
            (0..6).rev().map(move |bit| (value >> bit & 1) as u8)
        })
        .collect();
    let bytes: Vec<u8> = bits.chunks_exact(8).map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | bit)).collect();
    let floats: Vec<f64> = bytes.chunks_exact(4).map(|four| f64::from(f32::from_le_bytes(four.try_into().unwrap()))).collect();
    let norm = one[..8].iter().map(|value| value * value).sum::<f64>().sqrt();
    assert_near(&floats, &one[..8].iter().map(|value| value / norm).collect::<Vec<_>>());

    for (path, body, param) in [
        ("/v1/embeddings", json!({ "model": "bert", "input": "" , "pooling": "mean" }), "pooling"),
        ("/v1/embeddings", json!({ "model": "bert", "input": [320] }), "input"),
        ("/v1/embeddings", json!({ "model": "bert", "input": "a ".repeat(63) }), "input"),
        ("/v1/embeddings", json!({ "model": "bert", "input": "a", "dimensions": 33 }), "dimensions"),
        ("/v1/completions", json!({ "model": "bert", "prompt": "a" }), "model"),
        ("/v1/chat/completions", json!({ "model": "bert", "messages": [{ "role": "user", "content": "a" }] }), "model"),
    ] {
        let answer = server.post(path, &body);
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!(param)), "{path} {body}: {}", answer.body);
    }
    assert_eq!(server.post("/v1/embeddings", &json!({ "model": "none", "input": "a" })).status, 404);
    server.wait_idle();
}
