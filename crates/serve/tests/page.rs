//! The chat page, in a real browser.

#[path = "common/browser.rs"]
mod browser;
mod common;

use std::path::Path;

use browser::Browser;
use common::{Running, TEMPLATE, simple, start};
use serde_json::{Value, json};
use warpwave_llm::engine::EngineOptions;
use warpwave_serve::AppOptions;

/// What a page would do if any of it became markup or a program.
const HOSTILE: &str = r#"<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>
[click](javascript:window.hacked=3) [data](data:text/html,<script>window.hacked=4</script>) ![picture](http://127.0.0.1:9/x.png)
**<b onclick="window.hacked=5">bold</b>** `<i>code</i>` <https://example.org/"onmouseover="window.hacked=6>

| <svg onload=window.hacked=7> | b |
|---|---|
| </td><script>window.hacked=8</script> | c |

```html"><script>window.hacked=9</script>
</code></pre><script>window.hacked=10</script>
```
- <iframe srcdoc="<script>parent.hacked=11</script>"></iframe>
> <style>body{display:none}</style>"#;

/// Makes the page believe that the server streams these deltas. An answer without an end waits until it is stopped.
fn answer_with(browser: &Browser, deltas: &[Value], ends: bool) {
    let chunks: Vec<Value> =
        deltas.iter().map(|delta| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })).collect();
    let script = format!(
        "const chunks = {}, ends = {ends}; window.realFetch ??= window.fetch;\n\
         window.fetch = async (path, options) => {{\n\
           if (!path.includes('completions')) return window.realFetch(path, options);\n\
           window.sent = JSON.parse(options.body);\n\
           const text = (one) => new TextEncoder().encode('data: ' + (typeof one === 'string' ? one : JSON.stringify(one)) + '\\n\\n');\n\
           const usage = {{ choices: [], usage: {{ prompt_tokens: 10, completion_tokens: 20, total_tokens: 30 }} }};\n\
           return new Response(new ReadableStream({{ start(stream) {{\n\
             options.signal.addEventListener('abort', () => {{ window.aborted = true; stream.error(new DOMException('', 'AbortError')); }});\n\
             stream.enqueue(new TextEncoder().encode(': comment\\n\\n'));\n\
             for (const chunk of chunks) stream.enqueue(text(chunk));\n\
             if (ends) {{ stream.enqueue(text(usage)); stream.enqueue(text('[DONE]')); stream.close(); }}\n\
           }} }}));\n\
         }};",
        Value::from(chunks)
    );
    browser.run(&script);
}

fn opened(server: &Running, width: u32, height: u32) -> Option<Browser> {
    let browser = Browser::start(width, height)?;
    browser.open(&format!("http://{}/", server.address));
    Some(browser)
}

fn send(browser: &Browser, text: &str) {
    browser.enter("#text", text);
    browser.click("#send");
    browser.wait("!document.querySelector('#send').hidden");
}

/// The texts of the messages.
fn messages(browser: &Browser) -> Vec<String> {
    let found = browser.run("return [...document.querySelectorAll('.message .body')].map((one) => one.innerText)");
    found.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_page_is_served_with_a_strict_policy_and_without_a_key() {
    let server = start(AppOptions { api_keys: vec!["k".to_owned()], ..AppOptions::default() }, EngineOptions::default(), TEMPLATE);
    let page = server.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'") && !policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    assert_eq!((page.header("x-content-type-options"), page.header("referrer-policy")), (Some("nosniff"), Some("no-referrer")));
    let files = page.body.split(['"', '\'']).filter(|text| text.starts_with("/page/"));
    assert_eq!(files.map(|file| server.get(file).status).collect::<Vec<_>>(), [200; 3]);
    assert_eq!(server.get("/page/mod.rs").status, 401);
    assert_eq!(server.get("/v1/models").status, 401);
}

/// A conversation with a real model: answers, storage, key, edit, regenerate, and what remains after a reload.
#[test]
fn conversations_work_and_stay_in_the_browser() {
    let server = start(AppOptions { api_keys: vec!["secret".to_owned()], ..AppOptions::default() }, EngineOptions::default(), TEMPLATE);
    let Some(browser) = opened(&server, 1200, 800) else { return };
    // The page asks for the key.
    browser.wait("document.querySelector('#settings').open");
    browser.enter("#key", "secret");
    browser.enter("[data-setting=temperature]", "0");
    browser.enter("[data-setting=max_tokens]", "12");
    browser.enter("#system", "be brief");
    browser.click("#settings button[value=close]");
    browser.wait("document.querySelector('#model').value === 'tiny' && !document.querySelector('#send').disabled");
    send(&browser, "hello");
    let asked = json!({
        "messages": [{ "role": "system", "content": "be brief" }, { "role": "user", "content": "hello" }], "max_tokens": 12, "temperature": 0,
    });
    let key = [("authorization", "Bearer secret"), ("content-type", "application/json")];
    let whole = server.send("POST", "/v1/chat/completions", &key, &asked.to_string()).json();
    let saved =
        "const name = Object.keys(localStorage).find((name) => name.startsWith('warpwave.chat.')); return JSON.parse(localStorage[name])";
    let chat = browser.run(saved);
    assert_eq!(chat["messages"][1]["content"], whole["choices"][0]["message"]["content"], "{chat}");
    assert_eq!((&chat["used"], &chat["title"]), (&whole["usage"]["total_tokens"], &json!("hello")));
    let shown = browser.run("return document.querySelector('.stats').textContent + '|' + document.querySelector('#used').textContent");
    let tokens = &whole["usage"]["completion_tokens"];
    assert!(
        shown.as_str().unwrap().starts_with(&format!("{tokens} tokens")) && shown.as_str().unwrap().ends_with("of 512 tokens"),
        "{shown}"
    );
    // The key was not to be kept.
    assert_eq!(browser.run("return [localStorage['warpwave.key'], sessionStorage['warpwave.key']]"), json!([null, "secret"]));

    answer_with(&browser, &[json!({ "role": "assistant", "content": "" }), json!({ "content": "second" })], true);
    browser.click_tool("Regenerate");
    browser.wait("document.querySelector('#log').innerText.includes('second') && !document.querySelector('#send').hidden");
    assert_eq!(messages(&browser), ["hello", "second"]);
    browser.click_tool("Continue");
    browser.wait("document.querySelector('#log').innerText.includes('secondsecond') && !document.querySelector('#send').hidden");
    assert_eq!(browser.run("return [sent.continue_final_message, sent.messages.at(-1).content]"), json!([true, "second"]));
    browser.click_tool("Edit");
    browser.run("document.querySelector('.message textarea').value = 'changed'");
    browser.click_tool("Send");
    browser.wait("document.querySelectorAll('.message').length === 2 && !document.querySelector('#send').hidden");
    assert_eq!(messages(&browser), ["changed", "second"]);
    assert_eq!(browser.run("return sent.messages.length"), 2);

    // An answer that was stopped keeps what it has.
    answer_with(&browser, &[json!({ "content": "partial" })], false);
    browser.enter("#text", "more");
    browser.click("#send");
    browser.wait("document.querySelector('#log').innerText.includes('partial')");
    browser.click("#stop");
    browser.wait("!document.querySelector('#send').hidden");
    assert_eq!((browser.run("return aborted"), messages(&browser).last().unwrap().as_str()), (json!(true), "partial"));

    // A second conversation; then both are there after a reload.
    browser.click("#new");
    answer_with(&browser, &[json!({ "content": "other" })], true);
    send(&browser, "new topic");
    browser.open(&format!("http://{}/", server.address));
    browser.wait("document.querySelectorAll('.chat').length === 2");
    assert_eq!(messages(&browser), ["new topic", "other"]);
    browser.click(".chat:nth-child(2) .title");
    assert_eq!(messages(&browser), ["changed", "second", "more", "partial"]);
    // Export, remove, import.
    let exported = browser.run(
        "URL.createObjectURL = (blob) => { window.blob = blob; return 'blob:none'; }; HTMLAnchorElement.prototype.click = () => {};\n\
         document.querySelector('#export').click(); return blob.size",
    );
    assert!(exported.as_u64().unwrap() > 200);
    browser.run("window.confirm = () => true; for (let i = 0; i < 2; i += 1) document.querySelector('.chat .remove').click()");
    assert_eq!(browser.run("return document.querySelectorAll('.chat').length"), 0);
    browser.run(
        "const files = new DataTransfer(); files.items.add(new File([blob], 'c.json'));\n\
         const input = document.querySelector('#file'); input.files = files.files; input.dispatchEvent(new Event('change'));",
    );
    browser.wait("document.querySelectorAll('.chat').length === 2");
    let log = browser.log();
    // Before the key was entered.
    assert!(log.iter().all(|line| line.contains("401 (Unauthorized)")), "{log:?}");
}

#[test]
fn hostile_answers_stay_text() {
    let server = simple();
    let Some(browser) = opened(&server, 1000, 800) else { return };
    browser.wait("!document.querySelector('#send').disabled");
    // In every part of an answer, in pieces of a few characters, in a question and thereby in the title.
    let characters: Vec<char> = HOSTILE.chars().collect();
    let pieces = |name: &str| characters.chunks(7).map(|piece| json!({ name: piece.iter().collect::<String>() })).collect::<Vec<_>>();
    answer_with(&browser, &[pieces("reasoning_content"), pieces("content")].concat(), true);
    browser.run(&format!("document.querySelector('#text').value = {}", Value::from(HOSTILE)));
    send(&browser, " ");
    browser.run("document.querySelector('.reasoning').open = true");
    let counted = browser.run(
        "return ['img', 'script', 'svg', 'iframe', 'style', 'b', 'i', '[onerror]', '[onclick]', '[onmouseover]'].map((name) => \
         document.querySelectorAll('#log ' + name + ', #chats ' + name).length)",
    );
    assert_eq!(counted, Value::from(vec![0; 10]));
    let links = browser.run("return [...document.querySelectorAll('#log a')].map((one) => one.href)");
    let links: Vec<&str> = links.as_array().unwrap().iter().map(|link| link.as_str().unwrap()).collect();
    assert!(!links.is_empty() && links.iter().all(|link| link.starts_with("http")), "{links:?}");
    let shown = messages(&browser);
    for text in
        ["<img src=x onerror=\"window.hacked=1\">", "</code></pre><script>window.hacked=10</script>", "<style>body{display:none}</style>"]
    {
        assert_eq!(shown[1].matches(text).count(), 2, "{text} in {}", shown[1]);
        assert_eq!(shown[0].matches(text).count(), 1);
    }
    assert_eq!(browser.run("return document.querySelectorAll('#log table').length"), 2);
    // The policy holds what the code might not: inline programs and other hosts.
    browser.run(
        "const one = document.createElement('script'); one.textContent = 'window.hacked = 12'; document.body.append(one);\n\
         const two = document.createElement('img'); two.src = 'http://127.0.0.1:9/x.png'; document.body.append(two);\n\
         const three = document.createElement('p'); three.setAttribute('onclick', 'window.hacked = 13'); document.body.append(three); three.click();",
    );
    browser.wait("true");
    assert_eq!(browser.run("return window.hacked ?? null"), Value::Null);
    let log = browser.log().join("\n");
    assert!(log.contains("Executing inline script violates") && log.contains("Loading the image"), "{log}");
    // Damaged and hostile files of conversations.
    browser.run("localStorage['warpwave.chat.bad'] = '{'; localStorage['warpwave.chat.odd'] = JSON.stringify({ id: '../x', title: 5, messages: [null, { role: 'system' }, { role: 'user', content: {} }] })");
    browser.open(&format!("http://{}/", server.address));
    browser.wait("document.querySelectorAll('.chat').length === 2 && document.querySelectorAll('.message').length === 1");
    // Long repetitions of marks end soon.
    let slow = browser.run(
        "return import('/page/markdown.js').then(({ markdown }) => { const started = performance.now();\n\
         for (const mark of ['*', '**', '[', '`', '_ ', '> ', '- ', '|', '[a](', '~~a', ' ', '#', '    - ']) {\n\
           markdown(mark.repeat(5000)); markdown((mark + '\\n').repeat(2000)); }\n\
         return performance.now() - started; })",
    );
    assert!(slow.as_f64().unwrap() < 15_000.0, "{slow} ms");
}

/// Pictures for people to look at, and what they must show: nothing wider than the page, readable colors.
#[test]
fn the_page_fits_screens_and_phones_in_light_and_dark() {
    let server = simple();
    let Some(browser) = opened(&server, 1200, 800) else { return };
    browser.wait("!document.querySelector('#send').disabled");
    let text = "Here is a **short** program in `Rust`, with a [link](https://www.rust-lang.org):\n\n```rust\nfn main() {\n    println!(\"{}\", (1..=10).map(|x| x * x).filter(|x| x % 2 == 0).sum::<u32>() + 12345678901234567890);\n}\n```\n\n\
                1. It squares the numbers\n2. and keeps the even ones:\n   - 4\n   - 16\n\n| n | square |\n|---|---|\n| 2 | 4 |\n| 4 | 16 |\n\n> A quote.";
    answer_with(&browser, &[json!({ "reasoning": "The user wants an example.\nI show a sum." }), json!({ "content": text })], true);
    send(&browser, "Show me a program that sums even squares.");
    let structure = browser.run("return ['pre', 'ol > li', 'ol ul > li', 'table', 'strong', 'blockquote', 'details'].map((name) => document.querySelectorAll('#log ' + name).length)");
    assert_eq!(structure, json!([1, 2, 2, 1, 1, 1, 1]));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let colors = |name: &str| {
        browser.wait("document.documentElement.scrollWidth <= innerWidth && document.querySelector('#log').scrollWidth <= innerWidth");
        browser.picture(&folder.join(format!("page-{name}.png")));
        browser.run("const style = getComputedStyle(document.body); return style.backgroundColor + ' ' + style.color").to_string()
    };
    browser.prefer("light");
    let light = colors("light");
    browser.prefer("dark");
    let dark = colors("dark");
    assert!(light.contains("rgb(255, 255, 255)") && dark.contains("rgb(22, 24, 28)"), "{light} {dark}");
    browser.resize(390, 844);
    assert_eq!(browser.run("return getComputedStyle(document.querySelector('#side')).visibility"), "hidden");
    colors("phone-dark");
    browser.prefer("light");
    colors("phone-light");
    browser.click("#menu");
    browser.wait("document.querySelector('#side').getBoundingClientRect().left >= 0");
    colors("phone-side");
    browser.click(".chat .title");
    browser.click("#settings-open");
    colors("phone-settings");
    println!("pictures are in {}", folder.display());
}
