//! A headless Chromium, driven over WebDriver.
#![allow(dead_code)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warpwave_test_support::require;

/// The key under which WebDriver names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

pub struct Browser {
    driver: Child,
    session: String,
    agent: ureq::Agent,
    _profile: tempfile::TempDir,
}

fn find(names: &[&str]) -> Option<PathBuf> {
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|path| path.is_file())
}

impl Browser {
    /// Starts a browser with a page of this size; `None` if the test is to be skipped.
    pub fn start(width: u32, height: u32) -> Option<Browser> {
        let programs = find(&["chromedriver"]).zip(find(&["chromium", "chromium-browser", "google-chrome"]));
        if !require(programs.is_some(), "Chromium and its driver (apt install chromium chromium-driver)") {
            return None;
        }
        let (driver, binary) = programs?;
        let mut driver = Command::new(driver).arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("successfully on port ")?;
            port.trim_end_matches('.').parse::<u16>().ok()
        });
        let profile = tempfile::tempdir().unwrap();
        let mut arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"].map(str::to_owned).to_vec();
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let session = format!("http://127.0.0.1:{}/session", port.unwrap());
        let mut browser = Browser { driver, session, agent, _profile: profile };
        let options = json!({ "binary": binary, "args": arguments });
        let wanted = json!({ "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" } });
        let created = browser.ask("", &json!({ "capabilities": { "alwaysMatch": wanted } }));
        browser.session = format!("{}/{}", browser.session, created["sessionId"].as_str().unwrap());
        browser.resize(width, height);
        Some(browser)
    }

    fn ask(&self, path: &str, body: &Value) -> Value {
        let request = self.agent.post(format!("{}{path}", self.session)).header("content-type", "application/json");
        let mut response = request.send(body.to_string()).unwrap();
        let answer: Value = serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap();
        let value = answer["value"].clone();
        assert!(value["error"].is_null(), "{path} {body}: {}", value["message"]);
        value
    }

    /// Sets the size of the page, as a device has it.
    pub fn resize(&self, width: u32, height: u32) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.ask("/goog/cdp/execute", &json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": metrics }));
    }

    /// Sets whether the system prefers dark colors.
    pub fn prefer(&self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.ask("/goog/cdp/execute", &json!({ "cmd": "Emulation.setEmulatedMedia", "params": features }));
    }

    pub fn open(&self, address: &str) {
        self.ask("/url", &json!({ "url": address }));
    }

    /// Runs the body of a function in the page.
    pub fn run(&self, script: &str) -> Value {
        self.ask("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until an expression is true.
    pub fn wait(&self, condition: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.run(&format!("return Boolean({condition})")) != true {
            assert!(Instant::now() < end, "{condition}; the page shows: {}", self.run("return document.body.innerText"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn element(&self, selector: &str) -> String {
        let found = self.ask("/element", &json!({ "using": "css selector", "value": selector }));
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    pub fn click(&self, selector: &str) {
        self.ask(&format!("/element/{}/click", self.element(selector)), &json!({}));
    }

    /// Drags the mouse over an element, from one place to another, in pixels from its center.
    pub fn drag(&self, selector: &str, from: (i32, i32), to: (i32, i32)) {
        let origin = json!({ ELEMENT: self.element(selector) });
        let move_to = |(x, y): (i32, i32)| json!({ "type": "pointerMove", "origin": origin, "x": x, "y": y, "duration": 50 });
        let steps = json!([move_to(from), { "type": "pointerDown", "button": 0 }, move_to(to), { "type": "pointerUp", "button": 0 }]);
        self.ask("/actions", &json!({ "actions": [{ "type": "pointer", "id": "mouse", "actions": steps }] }));
    }

    /// Types into a field, after what it contains.
    pub fn enter(&self, selector: &str, text: &str) {
        self.ask(&format!("/element/{}/value", self.element(selector)), &json!({ "text": text }));
    }

    /// Clicks the last button of the messages with this text.
    pub fn click_tool(&self, text: &str) {
        let found = self.run(&format!(
            "const all = [...document.querySelectorAll('.tools button')].filter((one) => one.textContent === '{text}'); \
             all.at(-1)?.click(); return all.length"
        ));
        assert!(found.as_u64().unwrap() > 0, "no button {text}");
    }

    /// Takes a picture of the page.
    pub fn picture(&self, file: &Path) {
        let mut response = self.agent.get(format!("{}/screenshot", self.session)).call().unwrap();
        let answer: Value = serde_json::from_str(&response.body_mut().with_config().limit(1 << 26).read_to_string().unwrap()).unwrap();
        std::fs::write(file, decoded(answer["value"].as_str().unwrap())).unwrap();
    }

    /// What the browser logged since the last call: errors of scripts and of the policy.
    pub fn log(&self) -> Vec<String> {
        let entries = self.ask("/se/log", &json!({ "type": "browser" }));
        entries.as_array().unwrap().iter().map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser too.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Decodes base64.
pub fn decoded(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u32> = text.bytes().filter_map(digit).map(u32::from).collect();
    let group = |group: &[u32]| {
        let bits = group.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - group.len()));
        bits.to_be_bytes()[1..group.len()].to_vec()
    };
    digits.chunks(4).flat_map(group).collect()
}
