//! End-to-end tests of `warpwave image` and `warpwave worker image`: reference results of tiny models, messages and exit codes, real HTTP.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use warpwave_diffusion::{Checkpoint, Image, ImageLimits, LoadOptions, Preview};
use warpwave_serve::{AppOptions, ImageModel, Limits, Listen, Server};
use warpwave_tensor::{Device, Tensor, safetensors};
use warpwave_test_support::workspace_root;

/// A tiny model; see crates/diffusion/tests/fixtures/models/README.md.
fn model(name: &str) -> PathBuf {
    workspace_root().join("crates/diffusion/tests/fixtures/models").join(name)
}

fn shown(path: impl AsRef<Path>) -> String {
    path.as_ref().display().to_string()
}

/// Runs a command line in this process.
fn run(line: &[&str]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = std::iter::once("warpwave").chain(line.iter().copied()).map(OsString::from);
    let code = warpwave_cli::main(args, warpwave::gpu::Devices::default, &mut out, &mut err);
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn decoded(file: &[u8]) -> Image {
    Image::decode(file, &ImageLimits::default()).unwrap()
}

fn tensors(path: impl AsRef<Path>) -> HashMap<String, Tensor> {
    safetensors::load(path, &Device::Cpu).unwrap()
}

#[test]
fn images_are_those_of_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let (sd15, out) = (model("sd15"), shown(folder.path().join("out.png")));
    let (latents, draws) = (shown(folder.path().join("latents.safetensors")), shown(sd15.join("samplers.safetensors")));
    let preview = shown(folder.path().join("preview.png"));
    let prompt = "A photo of a red fox sitting in the snow, 4k, highly detailed";
    let sd15 = shown(sd15);
    let line = [
        "image",
        prompt,
        "--model",
        &sd15,
        "-o",
        &out,
        "--negative",
        "blurry, low quality",
        "--steps",
        "8",
        "--sampler",
        "euler_ancestral",
        "--width",
        "64",
        "--height",
        "64",
        "--guidance",
        "7.5",
        "--draws",
        &draws,
        "--latents-out",
        &latents,
        "--preview",
        &preview,
        "--device",
        "cpu",
        "--seed",
        "5",
        "--json",
    ];
    let (code, facts, err) = run(&line);
    assert_eq!(code, 0, "{err}");
    let facts: Value = serde_json::from_str(&facts).unwrap();
    assert_eq!((&facts["steps"], &facts["images"][0]["seed"], &facts["device"]), (&json!(8), &json!(5), &json!("cpu")));
    assert!(facts["steps_per_second"].as_f64().unwrap() > 0.0);
    let expected = tensors(&draws);
    let saved = tensors(&latents);
    for name in ["latents", "final"] {
        let (found, wanted) = (&saved[name], &expected[&format!("native/euler_ancestral/{name}")]);
        assert_eq!(found.shape(), wanted.shape(), "{name}");
        let (found, wanted) = (found.floats().unwrap(), wanted.floats().unwrap());
        let largest = wanted.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        assert!(found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() <= 5e-5 * largest), "{name}");
    }
    let file = std::fs::read(&out).unwrap();
    let image = expected["native/euler_ancestral/image"].to_vec::<u8>().unwrap();
    assert!(decoded(&file).rgb().iter().zip(&image).all(|(a, b)| a.abs_diff(*b) <= 2));
    let text = format!(
        "{prompt}\nNegative prompt: blurry, low quality\nSteps: 8, Sampler: Euler a, CFG scale: 7.5, Seed: 5, Size: 64x64, Model: sd15"
    );
    assert!(file.windows(text.len()).any(|bytes| bytes == text.as_bytes()));
    let preview = decoded(&std::fs::read(preview).unwrap());
    assert_eq!((preview.width(), preview.height()), (8, 8));
}

#[test]
fn a_batch_has_a_file_for_each_image_and_starts_from_an_image() {
    let folder = tempfile::tempdir().unwrap();
    let sd15 = shown(model("sd15"));
    let (out, init, mask) = (shown(folder.path().join("fox.png")), folder.path().join("init.png"), folder.path().join("mask.png"));
    let original = Image::new(72, 64, (0..72 * 64 * 3).map(|i| (i % 251) as u8).collect()).unwrap();
    std::fs::write(&init, original.png(None).unwrap()).unwrap();
    // The right half is repainted.
    let white = (0..72 * 64).flat_map(|i| [if i % 72 < 36 { 0 } else { 255 }; 3]).collect();
    std::fs::write(&mask, Image::new(72, 64, white).unwrap().png(None).unwrap()).unwrap();
    let line = [
        "image",
        "a (red:1.3) fox",
        "--model",
        &sd15,
        "-o",
        &out,
        "--init",
        &shown(init),
        "--mask",
        &shown(mask),
        "--strength",
        "0.6",
        "--steps",
        "5",
        "--batch",
        "2",
        "--seed",
        "7",
        "--schedule",
        "karras",
        "--clip-skip",
        "2",
        "--device",
        "cpu",
        "--lora",
        &format!("{sd15}/lora_kohya.safetensors:0.5"),
    ];
    let (code, said, err) = run(&line);
    assert_eq!(code, 0, "{err}");
    assert!(said.contains("fox-1.png: 72x64, seed 7\n") && said.contains("fox-2.png: 72x64, seed 8\n"), "{said}");
    assert!(err.contains("3 steps in "), "{err}");
    let images = [1, 2].map(|number| decoded(&std::fs::read(folder.path().join(format!("fox-{number}.png"))).unwrap()));
    assert_ne!(images[0], images[1]);
    for image in &images {
        let column = |image: &Image, x: usize| (0..64).map(|y| image.rgb()[(y * 72 + x) * 3]).collect::<Vec<_>>();
        assert!((0..36).all(|x| column(image, x) == column(&original, x)) && column(image, 50) != column(&original, 50));
    }
}

#[test]
fn info_shows_what_a_model_is() {
    for (name, family, inpaint) in
        [("sd15", "sd1", false), ("sd15-inpaint", "sd1", true), ("sdxl", "sdxl", false), ("flux-dev", "flux-dev", false)]
    {
        let path = shown(model(name));
        let (code, facts, err) = run(&["image", "info", &path, "--json"]);
        assert_eq!(code, 0, "{err}");
        let facts: Value = serde_json::from_str(&facts).unwrap();
        assert_eq!((&facts["family"], &facts["inpaint"]), (&json!(family), &json!(inpaint)), "{name}");
        let (code, text, _) = run(&["image", "info", &path]);
        assert!(code == 0 && text.contains(family) && text.contains("parameters"), "{text}");
    }
}

#[test]
fn wrong_command_lines_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let (sd15, inpaint, flux) = (shown(model("sd15")), shown(model("sd15-inpaint")), shown(model("flux-dev")));
    let text = shown(folder.path().join("text.png"));
    std::fs::write(&text, "not an image").unwrap();
    let cases: [(u8, &str, &[&str]); 14] = [
        (2, "--model", &["image", "a fox"]),
        (2, "required", &["image"]),
        (1, "absent", &["image", "a fox", "--model", "absent"]),
        (1, "absent", &["image", "info", "absent"]),
        (2, "151", &["image", "a fox", "--model", &sd15, "--steps", "151"]),
        (2, "multiple of 8", &["image", "a fox", "--model", &sd15, "--width", "65"]),
        (2, "multiple of 16", &["image", "a fox", "--model", &flux, "--width", "72"]),
        (2, "euler_ancestral", &["image", "a fox", "--model", &sd15, "--sampler", "best"]),
        (2, "--init", &["image", "a fox", "--model", &sd15, "--mask", &text]),
        (1, "expected a PNG, JPEG or WebP file", &["image", "a fox", "--model", &sd15, "--init", &text]),
        (2, "must end in .png", &["image", "a fox", "--model", &sd15, "-o", "out.jpg"]),
        (2, "inpainting model needs", &["image", "a fox", "--model", &inpaint]),
        (2, "rectified-flow", &["image", "a fox", "--model", &flux, "--sampler", "ddpm"]),
        (1, "lora.safetensors", &["image", "a fox", "--model", &sd15, "--lora", "lora.safetensors:0.5", "--device", "cpu"]),
    ];
    for (expected, part, line) in cases {
        let (code, _, err) = run(line);
        assert!(code == expected && err.contains(part), "{line:?}: {code}: {err}");
    }
}

/// A server in this process with a tiny model.
struct Worker {
    server: Option<Server>,
    address: SocketAddr,
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop(Duration::ZERO);
        }
    }
}

impl Worker {
    fn start(name: &str, waiting: usize, limits: Limits) -> Worker {
        let server = Server::start(&Listen::Tcp(([127, 0, 0, 1], 0).into()), AppOptions { limits, ..AppOptions::default() }).unwrap();
        let address = server.address().unwrap();
        let worker = Worker { server: Some(server), address };
        assert_eq!(send(address, "GET", "/ready", None).0, 503);
        assert_eq!(send(address, "POST", "/v1/jobs", Some(&job("x"))).0, 503);
        let loaded = Checkpoint::open(model(name)).unwrap().load(&Device::Cpu, LoadOptions::default()).unwrap();
        let preview = Preview::fit(&loaded).unwrap();
        let served = ImageModel { id: name.to_owned(), model: loaded, preview, loras: Some(model(name)), waiting, threads: 0 };
        worker.server.as_ref().unwrap().add_images(served).unwrap();
        worker
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = send(self.address, "POST", path, Some(body));
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// The events of a job, by their names.
    fn events(&self, body: &Value) -> Vec<(String, Value)> {
        let (status, created) = self.post("/v1/jobs", body);
        assert_eq!(status, 200, "{created}");
        let (status, text) = send(self.address, "GET", created["sse_url"].as_str().unwrap(), None);
        assert_eq!(status, 200, "{text}");
        events(&text)
    }
}

fn events(text: &str) -> Vec<(String, Value)> {
    let one = |block: &str| {
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
        Some((field("event: ")?.to_owned(), serde_json::from_str(field("data: ")?).unwrap()))
    };
    text.split("\n\n").filter_map(one).collect()
}

fn send(address: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let request = ureq::http::Request::builder().method(method).uri(format!("http://{address}{path}"));
    let request = request.header("content-type", "application/json").body(body.map(Value::to_string).unwrap_or_default());
    let mut response = agent.run(request.unwrap()).unwrap();
    (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
}

fn job(prompt: &str) -> Value {
    json!({
        "operation": "image_generation", "hive_id": "h", "model": "any", "prompt": prompt, "negative_prompt": "blurry", "width": 256,
        "height": 256, "steps": 2, "seed": 11,
    })
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn image_of(event: &Value) -> Image {
    decoded(&BASE64_STANDARD.decode(event.as_str().unwrap()).unwrap())
}

#[test]
fn jobs_stream_progress_previews_and_the_image() {
    let worker = Worker::start("sd15", 4, Limits::default());
    assert_eq!(send(worker.address, "GET", "/health", None).0, 200);
    assert_eq!(send(worker.address, "GET", "/ready", None).0, 200);
    assert!(send(worker.address, "GET", "/v1/models", None).1.contains("\"id\":\"sd15\""));
    let seen = worker.events(&job("a fox"));
    let progress: Vec<&Value> = seen.iter().filter(|(name, _)| name == "progress").map(|(_, data)| data).collect();
    let expected = [1, 2].map(|step| json!({ "step": step, "total": 2, "percent": 50.0 * f64::from(step) }));
    assert_eq!(progress, expected.iter().collect::<Vec<_>>());
    let preview = seen.iter().find(|(name, _)| name == "preview").map(|(_, data)| data).unwrap();
    assert_eq!((preview["format"].as_str(), image_of(&preview["image"]).width()), (Some("png"), 32));
    let Some((last, complete)) = seen.last() else { panic!("no event") };
    assert_eq!((last.as_str(), &complete["format"], &complete["seed"]), ("complete", &json!("png"), &json!(11)));
    let whole = image_of(&complete["image"]);
    assert_eq!((whole.width(), whole.height()), (256, 256));

    // The same through OpenAI's API, twice as many.
    let body = json!({ "prompt": "a fox", "negative_prompt": "blurry", "size": "256x256", "steps": 2, "seed": 11, "n": 2 });
    let (status, answer) = worker.post("/v1/images/generations", &body);
    assert_eq!(status, 200, "{answer}");
    let data = answer["data"].as_array().unwrap();
    assert!(data.len() == 2 && answer["created"].is_u64());
    let near = |a: &Image, b: &Image| a.rgb().iter().zip(b.rgb()).all(|(a, b)| a.abs_diff(*b) <= 2);
    assert!(near(&image_of(&data[0]["b64_json"]), &whole) && !near(&image_of(&data[1]["b64_json"]), &whole));

    // From this image, and only a part of it.
    let image = &complete["image"];
    let transform = json!({ "operation": "ImageTransform", "input_image": image, "strength": 0.7, "width": null, "height": null });
    let (name, changed) = worker.events(&with(job("a fox"), transform)).pop().unwrap();
    assert_eq!(name, "complete");
    let changed = image_of(&changed["image"]);
    assert!(changed.width() == 256 && !near(&changed, &whole));
    let half = (0..256 * 256).flat_map(|i| [if i < 256 * 128 { 0 } else { 255 }; 3]).collect();
    let mask = BASE64_STANDARD.encode(Image::new(256, 256, half).unwrap().png(None).unwrap());
    let image = format!("data:image/png;base64,{}", image.as_str().unwrap());
    let inpaint = json!({
        "operation": "image_inpaint", "init_image": image, "mask_image": mask, "strength": 1,
        "loras": [{ "path": "lora_kohya.safetensors", "strength": 0.5 }],
    });
    let (name, painted) = worker.events(&with(job("a fox"), inpaint)).pop().unwrap();
    assert_eq!(name, "complete", "{painted}");
    let painted = image_of(&painted["image"]);
    let upper = 256 * 128 * 3;
    assert!(painted.rgb()[..upper] == whole.rgb()[..upper] && painted.rgb()[upper..] != whole.rgb()[upper..]);
    // LoRAs of one job are not those of the next.
    let (_, again) = worker.events(&job("a fox")).pop().unwrap();
    assert_eq!(again["image"], complete["image"]);
}

#[test]
fn wrong_jobs_are_refused() {
    let worker = Worker::start("sd15", 4, Limits::default());
    let image = BASE64_STANDARD.encode(Image::new(64, 64, vec![0; 64 * 64 * 3]).unwrap().png(None).unwrap());
    for (field, part, more) in [
        ("operation", "image_inpaint", json!({ "operation": "image_delete" })),
        ("prompt", "prompt", json!({ "prompt": null })),
        ("steps", "150", json!({ "steps": 151 })),
        ("steps", "150", json!({ "steps": 0 })),
        ("guidance_scale", "20", json!({ "guidance_scale": 21 })),
        ("width", "2048", json!({ "width": 128 })),
        ("height", "2048", json!({ "height": 4096 })),
        ("sampler", "euler_ancestral", json!({ "sampler": "best" })),
        ("schedule", "karras", json!({ "schedule": "smooth" })),
        ("seed", "integer", json!({ "seed": -1 })),
        ("input_image", "input_image", json!({ "operation": "image_transform" })),
        ("input_image", "base64", json!({ "operation": "image_transform", "input_image": "?" })),
        ("input_image", "PNG, JPEG or WebP", json!({ "operation": "image_transform", "input_image": "AAAA" })),
        ("width", "256 to 2048", json!({ "operation": "image_transform", "input_image": image, "width": null })),
        ("mask_image", "mask_image", json!({ "operation": "image_inpaint", "init_image": image })),
        ("strength", "0 to 1", json!({ "operation": "image_transform", "input_image": image, "strength": 2 })),
        ("loras", "not a file", json!({ "loras": [{ "path": "../sdxl/lora_kohya.safetensors" }] })),
        ("loras", "not a file", json!({ "loras": [{ "path": "/etc/passwd" }] })),
    ] {
        let (status, answer) = worker.post("/v1/jobs", &with(job("a fox"), more.clone()));
        let error = &answer["error"];
        assert!(status == 400 && error["message"].as_str().is_some_and(|message| message.contains(part)), "{more}: {status}: {answer}");
        assert!(error["param"] == field || error["param"].is_null(), "{more}: {answer}");
    }
    // A size that only the model refuses.
    let (status, answer) = worker.post("/v1/jobs", &with(job("a fox"), json!({ "width": 257 })));
    assert!(status == 400 && answer["error"]["message"].as_str().unwrap().contains("multiple of 8"), "{answer}");
    for (part, more) in [
        ("WIDTHxHEIGHT", json!({ "size": "large" })),
        ("b64_json", json!({ "response_format": "url" })),
        ("not found", json!({ "model": "dall-e-3" })),
        ("16", json!({ "n": 17 })),
    ] {
        let (status, answer) = worker.post("/v1/images/generations", &with(json!({ "prompt": "a fox" }), more));
        assert!((400..500).contains(&status) && answer.to_string().contains(part), "{answer}");
    }
    assert_eq!(send(worker.address, "GET", "/v1/jobs/job-none/stream", None).0, 404);
    let (status, answer) = worker.post("/v1/jobs", &json!({ "operation": "infer", "prompt": "x" }));
    assert!(status >= 400, "{answer}");
}

/// Sends a form: text fields, and PNG files by name.
fn send_form(address: SocketAddr, texts: &[(&str, &str)], files: &[(&str, &[u8])], origin: Option<&str>) -> (u16, Value) {
    let mut body = Vec::new();
    for (name, text) in texts {
        body.extend(format!("--edge\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n").bytes());
    }
    for (name, file) in files {
        let head =
            format!("--edge\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"a.png\"\r\nContent-Type: image/png\r\n\r\n");
        body.extend([head.as_bytes(), file, b"\r\n"].concat());
    }
    body.extend(b"--edge--\r\n");
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut request = ureq::http::Request::builder().method("POST").uri(format!("http://{address}/v1/images/edits"));
    request = request.header("content-type", "multipart/form-data; boundary=edge");
    if let Some(origin) = origin {
        request = request.header("origin", origin);
    }
    let mut response = agent.run(request.body(body).unwrap()).unwrap();
    let text = response.body_mut().with_config().limit(1 << 26).read_to_string().unwrap();
    (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// A PNG of one color whose upper half is transparent or not.
fn half_transparent(side: u32, alpha: u8) -> Vec<u8> {
    let pixels: Vec<u8> = (0..side * side).flat_map(|place| [200, 40, 90, if place < side * side / 2 { alpha } else { 255 }]).collect();
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, side, side);
    encoder.set_color(png::ColorType::Rgba);
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    file
}

#[test]
fn openai_edits_repaint_what_is_transparent() {
    let worker = Worker::start("sd15", 4, Limits::default());
    let (clear, opaque) = (half_transparent(256, 0), half_transparent(256, 255));
    let texts = [("prompt", "a fox"), ("steps", "2"), ("seed", "11"), ("response_format", "b64_json"), ("n", "1")];
    let edit = |texts: &[(&str, &str)], files: &[(&str, &[u8])]| send_form(worker.address, texts, files, None);
    let (status, masked) = edit(&texts, &[("image", &opaque), ("mask", &clear)]);
    assert_eq!(status, 200, "{masked}");
    assert_eq!(masked["data"][0]["seed"], 11);
    let painted = image_of(&masked["data"][0]["b64_json"]);
    let half = 256 * 128 * 3;
    assert!(painted.rgb()[half..].chunks(3).all(|pixel| pixel == [200, 40, 90]));
    assert!(painted.rgb()[..half].chunks(3).any(|pixel| pixel != [200, 40, 90]));
    // The image's own transparency is a mask too; without any, the whole image changes. `image[]` is how clients send lists.
    assert_eq!(edit(&texts, &[("image[]", &clear)]).1["data"], masked["data"]);
    let (status, changed) = edit(&[&texts[..], &[("strength", "0.5")]].concat(), &[("image", &opaque)]);
    let changed = image_of(&changed["data"][0]["b64_json"]);
    assert!(status == 200 && changed.rgb()[half..].chunks(3).any(|pixel| pixel != [200, 40, 90]));
    for (part, texts, files) in [
        ("`image`", &texts[..], vec![]),
        ("`prompt`", &texts[1..], vec![("image", &opaque)]),
        ("no pixel is transparent", &texts, vec![("image", &opaque), ("mask", &opaque)]),
        ("expected one value", &texts, vec![("image", &opaque), ("image[]", &opaque)]),
        ("256x256, got 64x64", &texts, vec![("image", &opaque), ("mask", &half_transparent(64, 0))]),
        ("strength", &[&texts[..], &[("strength", "much")]].concat(), vec![("image", &opaque)]),
        ("n: expected", &[&texts[..4], &[("n", "many")]].concat(), vec![("image", &opaque)]),
        ("PNG, JPEG or WebP", &texts, vec![("image", &b"text".to_vec())]),
    ] {
        let files: Vec<(&str, &[u8])> = files.iter().map(|(name, file)| (*name, file.as_slice())).collect();
        let (status, answer) = edit(texts, &files);
        assert!(status == 400 && answer["error"]["message"].as_str().is_some_and(|message| message.contains(part)), "{part}: {answer}");
    }
    // A page of another site cannot send forms; a page of this server can.
    let (status, answer) = send_form(worker.address, &texts, &[("image", &opaque)], Some("http://evil.example"));
    assert!(status == 403 && answer["error"]["code"] == "unknown_origin", "{answer}");
    let own = format!("http://{}", worker.address);
    assert_eq!(send_form(worker.address, &texts, &[("image", &opaque)], Some(&own)).0, 200);
    let (status, answer) = worker.post("/v1/images/edits", &json!({ "prompt": "a fox" }));
    assert!(status == 415 && answer["error"]["message"].as_str().unwrap().contains("multipart/form-data"), "{answer}");
}

/// Starts to read a job's events; dropping the connection leaves the job.
fn follow(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut seen = Vec::new();
    while !seen.windows(15).any(|bytes| bytes == b"event: progress") {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend(&bytes[..count]);
    }
    stream
}

#[test]
fn a_full_queue_refuses_and_a_job_ends_when_its_reader_leaves() {
    let worker = Worker::start("sd15", 1, Limits::default());
    let long = with(job("a fox"), json!({ "steps": 150, "width": 512, "height": 512 }));
    let (status, first) = worker.post("/v1/jobs", &long);
    assert_eq!(status, 200, "{first}");
    // It runs when it reports a step; then one more may wait.
    let reader = follow(worker.address, first["sse_url"].as_str().unwrap());
    let path = first["sse_url"].as_str().unwrap();
    assert_eq!(send(worker.address, "GET", path, None).0, 409, "a second reader");
    let (status, second) = worker.post("/v1/jobs", &job("next"));
    assert_eq!(status, 200, "{second}");
    let (status, third) = worker.post("/v1/jobs", &job("one too many"));
    assert_eq!((status, &third["error"]["code"]), (429, &json!("queue_full")), "{third}");
    drop(reader);
    let started = Instant::now();
    let (_, text) = send(worker.address, "GET", second["sse_url"].as_str().unwrap(), None);
    assert_eq!(events(&text).last().unwrap().0, "complete");
    assert!(started.elapsed() < Duration::from_secs(60), "the long job was not cancelled");
    assert_eq!(send(worker.address, "GET", path, None).0, 404, "a job that ended is gone");
}

#[test]
fn jobs_have_a_time_limit() {
    let worker = Worker::start("sd15", 4, Limits { image: Duration::from_millis(1), ..Limits::default() });
    let seen = worker.events(&with(job("a fox"), json!({ "steps": 150 })));
    let (name, error) = seen.last().unwrap();
    assert!(name == "error" && error["message"].as_str().unwrap().contains("within 0.001 s"), "{error}");
}

/// The running program, killed at the end of a test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_program_serves_jobs_and_ends_with_sigterm() {
    let beside = workspace_root().join("bin/warpwave");
    let path = if beside.exists() { beside } else { PathBuf::from(env!("CARGO_BIN_EXE_warpwave")) };
    let model = shown(model("sdxl-turbo"));
    let line = ["worker", "image", "--worker-id", "w", "--model-path", &model, "--port", "0", "--device", "cpu"];
    let mut command = Command::new(path);
    command.args(line).env("LLORCH_API_TOKEN", "secret").stderr(Stdio::piped()).stdin(Stdio::null()).env_remove("WARPWAVE_DEVICE");
    let mut program = Program(command.spawn().unwrap());
    let mut lines = BufReader::new(program.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let address = lines.find_map(|line| Some(line.split_once("listening on http://")?.1.parse::<SocketAddr>().unwrap())).unwrap();
    assert!(lines.any(|line| line.contains("serving sdxl-turbo on cpu")));
    assert_eq!(send(address, "GET", "/ready", None).0, 200);
    assert_eq!(send(address, "POST", "/v1/jobs", Some(&job("x"))).0, 401);
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let body = json!({ "prompt": "a fox", "size": "256x256", "steps": 1 }).to_string();
    let request = agent.post(format!("http://{address}/v1/images/generations")).header("authorization", "Bearer secret");
    let mut answer = request.header("content-type", "application/json").send(body).unwrap();
    let answer: Value = serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap();
    assert_eq!(image_of(&answer["data"][0]["b64_json"]).height(), 256);
    assert!(Command::new("kill").args(["-TERM", &program.0.id().to_string()]).status().unwrap().success());
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(status) = program.0.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            break;
        }
        assert!(Instant::now() < end, "still running after SIGTERM");
        std::thread::sleep(Duration::from_millis(20));
    }
}
