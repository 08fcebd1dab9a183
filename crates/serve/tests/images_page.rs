//! The image page, in a real browser, with a tiny image model.

#[path = "common/browser.rs"]
mod browser;

use std::path::Path;
use std::time::Duration;

use browser::{Browser, decoded};
use serde_json::{Value, json};
use warpwave_diffusion::{Checkpoint, Image, ImageLimits, LoadOptions, Preview};
use warpwave_serve::{AppOptions, ImageModel, Limits, Listen, Server};
use warpwave_tensor::Device;
use warpwave_test_support::workspace_root;

struct Running {
    server: Option<Server>,
    address: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop(Duration::ZERO);
        }
    }
}

/// A server with nothing but a tiny image model.
fn start(api_keys: &[&str]) -> Running {
    let limits = Limits { body_bytes: 64 << 20, ..Limits::default() };
    let options = AppOptions { limits, api_keys: api_keys.iter().map(|key| (*key).to_owned()).collect(), ..AppOptions::default() };
    let server = Server::start(&Listen::Tcp(([127, 0, 0, 1], 0).into()), options).unwrap();
    let folder = workspace_root().join("crates/diffusion/tests/fixtures/models/sd15");
    let model = Checkpoint::open(&folder).unwrap().load(&Device::Cpu, LoadOptions::default()).unwrap();
    let preview = Preview::fit(&model).unwrap();
    let served = ImageModel { id: "tiny".to_owned(), model, preview, loras: Some(folder), waiting: 4, threads: 0 };
    server.add_images(served).unwrap();
    let address = format!("http://{}", server.address().unwrap());
    Running { server: Some(server), address }
}

fn set(browser: &Browser, id: &str, value: &str) {
    browser.run(&format!(
        "const field = document.querySelector('#{id}'); field.value = {}; field.dispatchEvent(new Event('change'))",
        json!(value)
    ));
}

/// Starts a job and waits until the page has this many images.
fn generate(browser: &Browser, images: usize) {
    browser.click("#send");
    browser.wait(&format!("document.querySelectorAll('.tile').length === {images} && !document.querySelector('#send').hidden"));
}

/// The bytes of the newest image.
fn newest(browser: &Browser) -> Vec<u8> {
    let text = browser.run(
        "return import('/page/gallery.js').then((gallery) => gallery.images()).then((all) => new Promise((done) => {\
         const reader = new FileReader(); reader.onload = () => done(reader.result.split(',')[1]); reader.readAsDataURL(all[0].blob); }))",
    );
    decoded(text.as_str().unwrap())
}

fn picture(file: &[u8]) -> Image {
    Image::decode(file, &ImageLimits::default()).unwrap()
}

/// Records the jobs that the page sends.
const RECORD: &str = "const real = window.fetch; window.fetch = (path, options) => {\
    if (path === '/v1/jobs') window.sent = JSON.parse(options.body); return real(path, options); };";

#[test]
fn images_are_generated_and_stay_in_the_browser() {
    let server = start(&[]);
    let Some(browser) = Browser::start(1200, 900) else { return };
    // A server without a language model has no chat.
    browser.open(&format!("{}/", server.address));
    browser.wait("location.pathname === '/images' && !document.querySelector('#send').disabled");
    let form = browser.run(
        "const value = (id) => document.querySelector('#' + id).value;\
         return [value('width'), value('height'), value('steps'), value('guidance'), value('sampler'), document.querySelector('#chat-link').hidden]",
    );
    assert_eq!(form, json!(["256", "256", "20", "7.5", "euler", true]));
    browser.run(RECORD);
    browser.enter("#prompt", "a <b>fox</b>");
    browser.enter("#negative", "blurry");
    set(&browser, "steps", "2");
    set(&browser, "seed", "11");
    set(&browser, "count", "2");
    generate(&browser, 2);
    let sent = browser.run("return sent");
    for (field, value) in [
        ("operation", json!("image_generation")),
        ("prompt", json!("a <b>fox</b>")),
        ("negative_prompt", json!("blurry")),
        ("width", json!(256)),
        ("steps", json!(2)),
        ("guidance_scale", json!(7.5)),
        ("sampler", json!("euler")),
        ("seed", json!(12)),
    ] {
        assert_eq!(sent[field], value, "{field}: {sent}");
    }
    let first = newest(&browser);
    assert_eq!((picture(&first).width(), picture(&first).height()), (256, 256));
    // After a reload the images and the settings are there; the same settings make the same image.
    browser.open(&format!("{}/images", server.address));
    browser.wait("document.querySelectorAll('.tile').length === 2 && !document.querySelector('#send').disabled");
    assert!(newest(&browser) == first);
    browser.run(RECORD);
    set(&browser, "seed", "12");
    set(&browser, "count", "1");
    generate(&browser, 3);
    assert_eq!(browser.run("return [sent.prompt, sent.steps]"), json!(["a <b>fox</b>", 2]));
    assert!(newest(&browser) == first);

    browser.click(".tile");
    let text = browser.run("return [document.querySelector('#viewer').open, document.querySelector('#viewer-text').textContent]");
    assert!(text[0] == true && text[1].as_str().unwrap().starts_with("a <b>fox</b>\nWithout: blurry\n256x256, steps 2"), "{text}");
    assert!(text[1].as_str().unwrap().contains("seed 12") && browser.run("return document.querySelectorAll('#viewer-text b').length") == 0);
    let tool = |text: &str| {
        browser.run(&format!("[...document.querySelectorAll('#viewer-tools button')].find((one) => one.textContent === '{text}').click()"));
    };
    tool("Use as start image");
    browser.wait("!document.querySelector('#init').hidden");
    set(&browser, "strength", "0.7");
    generate(&browser, 4);
    assert_eq!(browser.run("return [sent.operation, sent.strength]"), json!(["image_transform", 0.7]));
    let start_image = decoded(browser.run("return sent.input_image").as_str().unwrap().rsplit(',').next().unwrap());
    assert!(picture(&start_image) == picture(&first) && newest(&browser) != first);

    // A mask: a stroke across the middle is repainted, the rest is kept.
    browser.click("#paint");
    browser.run("document.querySelector('#easel').scrollIntoView()");
    browser.drag("#easel canvas", (-60, 0), (60, 0));
    set(&browser, "strength", "1");
    generate(&browser, 5);
    assert_eq!(browser.run("return sent.operation"), "image_inpaint");
    let mask = picture(&decoded(browser.run("return sent.mask_image").as_str().unwrap().rsplit(',').next().unwrap()));
    let at = |picture: &Image, x: usize, y: usize| picture.rgb()[(y * picture.width() + x) * 3..][..3].to_vec();
    assert_eq!((at(&mask, 128, 128), at(&mask, 128, 20), at(&mask, 128, 240)), (vec![255; 3], vec![0; 3], vec![0; 3]));
    let (before, after) = (picture(&first), picture(&newest(&browser)));
    assert!(before.rgb()[..20 * 256 * 3] == after.rgb()[..20 * 256 * 3] && before.rgb() != after.rgb());
    // Without strokes the mask is absent.
    browser.click("#undo");
    generate(&browser, 6);
    assert_eq!(browser.run("return sent.operation"), "image_transform");

    // Delete one, then all.
    browser.click(".tile");
    tool("Delete");
    browser.wait("document.querySelectorAll('.tile').length === 5");
    browser.click("#settings-open");
    browser.run("window.confirm = () => true");
    browser.click("#delete-all");
    browser.wait("document.querySelectorAll('.tile').length === 0 && !document.querySelector('#empty').hidden");
    assert_eq!(browser.log(), Vec::<String>::new());
}

#[test]
fn keys_errors_and_cancelling_are_shown() {
    let server = start(&["secret"]);
    let Some(browser) = Browser::start(1200, 900) else { return };
    browser.open(&format!("{}/images", server.address));
    browser.wait("document.querySelector('#settings').open");
    browser.enter("#key", "secret");
    browser.click("#settings button[value=close]");
    browser.wait("!document.querySelector('#send').disabled");
    browser.enter("#prompt", "a fox");
    set(&browser, "steps", "2");
    set(&browser, "loras", "no.safetensors:0.5");
    browser.click("#send");
    browser.wait("document.querySelector('#state').innerText.includes('no.safetensors') && !document.querySelector('#send').hidden");
    set(&browser, "loras", "lora_kohya.safetensors:0.5");
    generate(&browser, 1);
    assert_eq!(browser.run("return document.querySelector('#state').hidden"), true);
    // A long job ends when it is cancelled, and the next one starts.
    set(&browser, "loras", "");
    set(&browser, "steps", "150");
    browser.click("#send");
    browser.wait("document.querySelector('#progress-text').textContent.includes('of 150') && document.querySelector('#picture').src");
    browser.click("#stop");
    browser.wait("!document.querySelector('#send').hidden");
    set(&browser, "steps", "2");
    generate(&browser, 2);
    // Not an image.
    browser.run(
        "const files = new DataTransfer(); files.items.add(new File(['text'], 'a.png', { type: 'image/png' }));\
         const input = document.querySelector('#file'); input.files = files.files; input.dispatchEvent(new Event('change'));",
    );
    browser.wait("document.querySelector('#state').innerText.includes('not an image')");
}

/// Screenshots for people to look at; nothing is wider than the page.
#[test]
fn the_page_fits_screens_and_phones() {
    let server = start(&[]);
    let Some(browser) = Browser::start(1200, 900) else { return };
    browser.open(&format!("{}/images", server.address));
    browser.wait("!document.querySelector('#send').disabled");
    browser.enter("#prompt", "a fox in the snow, watercolor, soft light, a long prompt that fills more than one line of the field");
    set(&browser, "steps", "2");
    set(&browser, "count", "5");
    generate(&browser, 5);
    browser.click(".tile");
    browser.run("[...document.querySelectorAll('#viewer-tools button')].find((one) => one.textContent === 'Use as start image').click()");
    browser.wait("!document.querySelector('#init').hidden");
    browser.click("#paint");
    browser.drag("#easel canvas", (-60, 0), (60, 20));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let shot = |name: &str| {
        browser.wait("document.documentElement.scrollWidth <= innerWidth");
        browser.picture(&folder.join(format!("images-{name}.png")));
    };
    browser.prefer("light");
    shot("light");
    browser.prefer("dark");
    shot("dark");
    browser.resize(390, 844);
    shot("phone");
    let overflow = browser.run("const box = document.querySelector('#studio'); return box.scrollWidth > box.clientWidth");
    assert_eq!(overflow, Value::Bool(false));
    browser.run("document.querySelector('#results').scrollIntoView()");
    shot("phone-gallery");
    browser.click(".tile");
    shot("phone-viewer");
}
