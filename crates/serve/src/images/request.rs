//! The fields of requests for images.

use std::path::{Component, Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use warpwave_diffusion::{Image, ImageLimits, Mask, ModelInfo, Request, Sampler, Schedule};

use super::Service;
use crate::error::{ApiError, ApiResult};
use crate::fields::Fields;

/// The sides of images in pixels.
const SIDES: std::ops::RangeInclusive<usize> = 256..=2048;
/// The side of images, if neither the request nor an image has another.
const SIDE: usize = 512;
/// Bounds of the images that clients send.
const LIMITS: ImageLimits = ImageLimits { bytes: 32 << 20, side: 4096, pixels: 4096 * 4096 };
/// The most pixels of a request, in all its images: memory grows with them.
const MAX_PIXELS: usize = 2048 * 2048;
/// The most LoRAs of a request.
const MAX_LORAS: usize = 8;

/// Reads what all requests for images have in common.
pub(super) fn read(service: &Service, fields: &Fields) -> ApiResult<Request> {
    let Some(prompt) = fields.string("prompt")? else { return Err(ApiError::invalid("prompt", "missing required field `prompt`")) };
    let mut request = Request::new(&service.info, prompt);
    request.negative = fields.string("negative_prompt")?.filter(|text| !text.is_empty()).map(str::to_owned);
    if let Some(steps) = fields.integer("steps", 1, 150)? {
        request.steps = steps as usize;
    }
    if let Some(guidance) = fields.number("guidance_scale", 0.0, 20.0)? {
        request.guidance = f64::from(guidance);
    }
    request.seed = match fields.integer("seed", 0, i64::MAX)? {
        Some(seed) => seed as u64,
        None => std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0) & 0xffff_ffff,
    };
    if let Some(name) = fields.string("sampler")? {
        request.sampler = Sampler::from_name(name).ok_or_else(|| unknown("sampler", name, &Sampler::ALL.map(Sampler::name)))?;
    }
    if let Some(name) = fields.string("schedule")? {
        request.schedule = Some(Schedule::from_name(name).ok_or_else(|| unknown("schedule", name, &Schedule::ALL.map(Schedule::name)))?);
    }
    let side = |name: &str| fields.integer(name, *SIDES.start() as i64, *SIDES.end() as i64);
    request.width = side("width")?.map(|side| side as usize);
    request.height = side("height")?.map(|side| side as usize);
    Ok(request)
}

/// What a client must know of the model to make requests, with the values of absent fields.
pub(super) fn described(service: &Service) -> Value {
    let info = &service.info;
    let usual = Request::new(info, "");
    json!({
        "samplers": Sampler::ALL.map(Sampler::name), "schedules": Schedule::ALL.map(Schedule::name), "min_size": SIDES.start(),
        "max_size": SIDES.end(), "size_multiple": info.size_multiple, "default_size": info.default_size.clamp(*SIDES.start(), *SIDES.end()),
        "steps": usual.steps, "guidance_scale": usual.guidance, "sampler": usual.sampler.name(), "strength": usual.strength,
        "negative_prompt": !info.family.is_flux(), "loras": service.loras.is_some(),
    })
}

fn unknown(field: &str, found: &str, names: &[&str]) -> ApiError {
    ApiError::invalid(field, format!("{field}: expected one of {}, got {found:?}", names.join(", ")))
}

/// Sets the size and checks the whole request.
pub(super) fn finish(request: &mut Request, info: &ModelInfo) -> ApiResult<()> {
    if request.init.is_none() {
        request.width = request.width.or(Some(SIDE));
        request.height = request.height.or(Some(SIDE));
    }
    let invalid = |error: warpwave_diffusion::Error| ApiError::new(axum::http::StatusCode::BAD_REQUEST, error.to_string());
    let (width, height) = request.size(info).map_err(invalid)?;
    if !SIDES.contains(&width) || !SIDES.contains(&height) {
        let (low, high) = (SIDES.start(), SIDES.end());
        let message = format!("the image has {width}x{height} pixels; set width and height to values from {low} to {high}");
        return Err(ApiError::invalid("width", message));
    }
    if request.images * width * height > MAX_PIXELS {
        let message = format!("n: expected at most {} images of {width}x{height}, got {}", MAX_PIXELS / (width * height), request.images);
        return Err(ApiError::invalid("n", message));
    }
    request.plan(info).map_err(invalid)?;
    Ok(())
}

/// The bytes of a required file in base64, with or without the head of a data URL.
fn file(fields: &Fields, name: &str) -> ApiResult<Vec<u8>> {
    let Some(text) = fields.string(name)? else { return Err(ApiError::invalid(name, format!("missing required field `{name}`"))) };
    let data = text.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")).map_or(text, |(_, data)| data);
    BASE64_STANDARD.decode(data.trim()).map_err(|error| ApiError::invalid(name, format!("{name}: expected an image in base64: {error}")))
}

pub(super) fn image(fields: &Fields, name: &str) -> ApiResult<Image> {
    image_of(&file(fields, name)?, name)
}

/// Decodes the image of a field.
pub(super) fn image_of(file: &[u8], name: &str) -> ApiResult<Image> {
    Image::decode(file, &LIMITS).map_err(|error| ApiError::invalid(name, format!("{name}: {error}")))
}

pub(super) fn mask(fields: &Fields, name: &str) -> ApiResult<Mask> {
    Mask::decode(&file(fields, name)?, &LIMITS).map_err(|error| ApiError::invalid(name, format!("{name}: {error}")))
}

/// The mask of a file whose transparent pixels are to be repainted, if there are some.
pub(super) fn transparency_of(file: &[u8], name: &str) -> ApiResult<Option<Mask>> {
    Mask::from_transparency(file, &LIMITS).map_err(|error| ApiError::invalid(name, format!("{name}: {error}")))
}

/// How much of a start image changes.
pub(super) fn strength(fields: &Fields) -> ApiResult<Option<f64>> {
    let Some(value) = fields.get("strength") else { return Ok(None) };
    let strength = value.as_f64().filter(|strength| (0.0..=1.0).contains(strength));
    strength.map(Some).ok_or_else(|| ApiError::invalid("strength", "strength: expected a number from 0 to 1"))
}

/// The LoRA files of a request: plain names in the server's folder.
pub(super) fn loras(service: &Service, fields: &Fields) -> ApiResult<Vec<(PathBuf, f32)>> {
    let items = fields.array("loras")?.map(Vec::as_slice).unwrap_or_default();
    if items.len() > MAX_LORAS {
        return Err(ApiError::invalid("loras", format!("loras: expected at most {MAX_LORAS}, got {}", items.len())));
    }
    let one = |item: &Value| {
        let Value::Object(item) = item else {
            return Err(ApiError::invalid("loras", "loras: expected objects with `path` and `strength`"));
        };
        let item = Fields(item.clone());
        let Some(name) = item.string("path")? else { return Err(ApiError::invalid("loras", "loras: missing required field `path`")) };
        let strength = item.number("strength", -10.0, 10.0)?.unwrap_or(1.0);
        let Some(folder) = &service.loras else {
            return Err(ApiError::invalid("loras", "this server has no LoRA files; start it with --lora-dir"));
        };
        // Clients must not reach files outside the folder.
        let plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        let path = folder.join(name);
        if !plain || !path.is_file() {
            return Err(ApiError::invalid("loras", format!("loras: {name:?} is not a file in the server's LoRA directory")));
        }
        Ok((path, strength))
    };
    items.iter().map(one).collect()
}

/// Base64 of a file.
pub(super) fn encoded(file: &[u8]) -> String {
    BASE64_STANDARD.encode(file)
}
