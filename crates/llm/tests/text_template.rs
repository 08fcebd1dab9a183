//! Chat templates against what jinja2, set up as transformers does it, makes of the same chats (`fixtures/text/make_templates.py`).

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use warpwave_llm::{Chat, ChatTemplate, TextError, Tokenizer, Vocabulary};
use warpwave_test_support::workspace_root;

/// How many prompts were made, and those that are not as they should be.
fn check(path: &Path) -> (usize, Vec<String>) {
    let file: Value = serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON");
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(file["now"].as_u64().expect("a time"));
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let (mut count, mut wrong) = (0, Vec::new());
    for entry in file["templates"].as_array().expect("templates") {
        let template = match ChatTemplate::new(&text(&entry["template"]), &text(&entry["bos"]), &text(&entry["eos"])) {
            Ok(template) => template,
            Err(error) => {
                wrong.push(format!("{}: {error}", entry["name"]));
                continue;
            }
        };
        assert!(!template.is_fallback());
        for (name, case) in entry["cases"].as_object().expect("cases") {
            let given = &file["chats"][name];
            let chat = Chat {
                messages: given["messages"].as_array().expect("messages").clone(),
                add_generation_prompt: given["add_generation_prompt"].as_bool().expect("a flag"),
                variables: given["variables"].as_object().expect("variables").clone(),
                now,
            };
            let what = format!("{} {name}", entry["name"]);
            match (template.render(&chat), case["expected"].as_str(), case["refused"].as_str()) {
                (Ok(got), Some(expected), _) if got == expected => {}
                (Err(TextError::Rejected(got)), _, Some(expected)) if got == expected => {}
                // Where jinja2 fails, what comes instead need not.
                (Ok(_) | Err(TextError::Template { .. }), None, None) => {}
                (got, ..) => wrong.push(format!("{what}: {got:?}, not {case}")),
            }
            count += 1;
        }
    }
    (count, wrong)
}

#[test]
fn templates_give_what_jinja2_gives() {
    let (count, wrong) = check(&workspace_root().join("crates/llm/tests/fixtures/text/templates.json"));
    assert_eq!((count, wrong), (56, vec![]));
}

/// The same with other templates: `make_templates.py SOURCES FILES…` writes such a file.
#[test]
#[ignore = "needs WARPWAVE_TEMPLATES, a file written by make_templates.py"]
fn other_templates_agree() {
    let path = std::env::var_os("WARPWAVE_TEMPLATES").expect("WARPWAVE_TEMPLATES");
    let (count, wrong) = check(path.as_ref());
    println!("{count} prompts, {} differ", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn without_a_template_chatml_is_used_and_said() {
    let tokens: Vec<&[u8]> = vec![b"<s>", b"</s>", b"a", b"<|im_end|>"];
    let types = vec![3, 3, 1, 3];
    let vocabulary = Vocabulary { model: "gpt2", pre: Some("gpt-2"), tokens, types, bos: Some(0), eos: Some(1), ..Vocabulary::default() };
    let tokenizer = Tokenizer::from_gguf(&vocabulary).expect("a tokenizer");
    let template = ChatTemplate::of(&tokenizer).expect("a template");
    assert!(template.is_fallback());
    assert_eq!(template.stops(), ["<|im_end|>", "<|im_start|>"]);
    assert_eq!(tokenizer.eos(), [1, 3]);
    let prompt = template.render(&Chat::new([("system", "S"), ("user", "Hi")])).expect("a prompt");
    assert_eq!(prompt, "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");

    let template = Some("{{ bos_token }}|{{ eos_token }}".to_owned());
    let with = Tokenizer::from_gguf(&Vocabulary { template, ..vocabulary }).expect("a tokenizer");
    let template = ChatTemplate::of(&with).expect("a template");
    assert!(!template.is_fallback() && template.stops().is_empty());
    assert_eq!(template.render(&Chat::new([])).expect("a prompt"), "<s>|</s>");
    // A turn's end that the template does not write ends nothing.
    assert_eq!(with.eos(), [1]);
}

/// What a template that cannot be used says.
fn refusal(source: &str) -> String {
    let start = Instant::now();
    let template = ChatTemplate::new(source, "", "");
    let error = template.and_then(|template| template.render(&Chat::new([("user", "Hi")]))).expect_err(source);
    assert!(start.elapsed() < Duration::from_secs(20), "{source:.200} took {:?}", start.elapsed());
    error.to_string()
}

#[test]
fn hostile_templates_are_refused_in_time() {
    for (source, said) in [
        ("a\n{% if %}", "line 2"),
        ("\n\n{{ messages[0].nothing.more }}", "line 3"),
        ("{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}", "exceeds 1000000 steps"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "line 1"),
        ("{% include 'chat_template' %}", "line 1"),
        ("{% extends 'chat_template' %}", "line"),
        ("{% for a in range(90000) %}{{ 'x' * 9000 }}{% endfor %}", "exceeds 67108864 bytes"),
        ("{{ 'x' * 999999999999 }}", "too large"),
        ("{{ range(999999999999) }}", "too many"),
        ("{{ open('/etc/passwd') }}", "unknown"),
        ("{{ ''.__class__.__mro__ }}", "undefined"),
        ("{{ raise_exception('no ' + 'way') }}", "rejected the messages: no way"),
        ("{{ messages | tojson(depth=3) }}", "depth"),
        ("{% generation %}", "line 1"),
        ("{% generation", "line 1"),
    ] {
        let error = refusal(source);
        assert!(error.contains(said), "{source}: {error}");
    }
    assert!(refusal(&"{{ a }}".repeat(1 << 18)).contains("1835008 bytes"));
    assert!(refusal(&("{{".to_owned() + &"(".repeat(100_000))).contains("line 1"));
    assert!(refusal(&("{{ [".to_owned() + &"[".repeat(100_000))).contains("line 1"));
    assert!(refusal(&"{% if true %}".repeat(50_000)).contains("line 1"));
}

/// Lists within lists within lists: nothing that walks them may overflow its stack.
#[test]
fn deep_values_do_no_harm() {
    let nest = "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}";
    for end in [
        "{% for j in range(9) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}{% endfor %}",
        "done",
        "{{ ns.x }}",
        "{{ ns.x | tojson }}",
        "{{ ns.x == [[ns.x]] }}",
        "{{ ns.x | string | length }}",
        "{{ ''[::-1] }}.",
    ] {
        let template = ChatTemplate::new(&format!("{nest}{end}"), "", "").expect("a template");
        match template.render(&Chat::new([])) {
            Ok(text) => assert!(!text.is_empty()),
            Err(error) => assert!(matches!(error, TextError::Template { .. }), "{error}"),
        }
    }
}
