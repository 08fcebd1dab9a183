//! Images: decoding files that others send, masks, and PNG files that say how they were made.

use std::io::Cursor;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, imageops};

use crate::error::{Error, Result};

/// A mask's values from here on are repainted.
const REPAINT: u8 = 128;

/// Bounds of an image file, checked before it is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageLimits {
    /// Bytes of the file.
    pub bytes: usize,
    /// Width and height.
    pub side: u32,
    /// Width times height.
    pub pixels: u64,
}

impl Default for ImageLimits {
    /// 32 MiB, sides of 8192 and 32 million pixels.
    fn default() -> Self {
        ImageLimits { bytes: 32 << 20, side: 8192, pixels: 32_000_000 }
    }
}

/// An image in RGB, 8 bits each.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image {}x{}", self.width, self.height)
    }
}

/// Which pixels inpainting repaints: those with a value of at least 128.
#[derive(Clone, PartialEq, Eq)]
pub struct Mask {
    width: usize,
    height: usize,
    values: Vec<u8>,
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mask {}x{}", self.width, self.height)
    }
}

fn bad_image(reason: impl Into<String>) -> Error {
    Error::Image { reason: reason.into() }
}

/// Decodes a PNG, JPEG or WebP file within limits, turned upright as its EXIF data says.
fn decode(file: &[u8], limits: &ImageLimits) -> Result<DynamicImage> {
    if file.len() > limits.bytes {
        return Err(bad_image(format!("expected at most {} bytes, got {}", limits.bytes, file.len())));
    }
    let format = image::guess_format(file).ok();
    let Some(format @ (ImageFormat::Png | ImageFormat::Jpeg | ImageFormat::WebP)) = format else {
        return Err(bad_image("expected a PNG, JPEG or WebP file"));
    };
    let failed = |error: image::ImageError| bad_image(format!("invalid {} file: {error}", format.extensions_str()[0]));
    let mut reader = ImageReader::with_format(Cursor::new(file), format);
    let mut bounds = image::Limits::default();
    (bounds.max_image_width, bounds.max_image_height) = (Some(limits.side), Some(limits.side));
    // 16 bits of 4 channels, and as much again to convert them.
    bounds.max_alloc = Some(limits.pixels.saturating_mul(16));
    reader.limits(bounds);
    let mut decoder = reader.into_decoder().map_err(failed)?;
    let (width, height) = decoder.dimensions();
    if width > limits.side || height > limits.side || u64::from(width) * u64::from(height) > limits.pixels {
        let (side, pixels) = (limits.side, limits.pixels);
        return Err(bad_image(format!("expected sides of at most {side} and at most {pixels} pixels, got {width}x{height}")));
    }
    if width == 0 || height == 0 {
        return Err(bad_image(format!("the image is empty: {width}x{height}")));
    }
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut image = DynamicImage::from_decoder(decoder).map_err(failed)?;
    image.apply_orientation(orientation);
    Ok(image)
}

impl Image {
    /// Creates an image from its pixels, row by row.
    pub fn new(width: usize, height: usize, rgb: Vec<u8>) -> Result<Image> {
        let expected = width.checked_mul(height).and_then(|pixels| pixels.checked_mul(3));
        if expected != Some(rgb.len()) || rgb.is_empty() {
            return Err(bad_image(format!("an image of {width}x{height} needs 3 bytes per pixel, got {} bytes", rgb.len())));
        }
        Ok(Image { width, height, rgb })
    }

    /// Decodes a PNG, JPEG or WebP file within limits, turned upright as its EXIF data says. Transparency is ignored.
    pub fn decode(file: &[u8], limits: &ImageLimits) -> Result<Image> {
        let rgb = decode(file, limits)?.into_rgb8();
        Image::new(rgb.width() as usize, rgb.height() as usize, rgb.into_raw())
    }

    /// Returns the width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the height in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Returns the pixels, row by row.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// Returns the image in another size (Lanczos filter).
    pub fn resize(&self, width: usize, height: usize) -> Result<Image> {
        if (width, height) == (self.width, self.height) {
            return Ok(self.clone());
        }
        let whole = image::RgbImage::from_raw(self.width as u32, self.height as u32, self.rgb.clone());
        let whole = whole.ok_or_else(|| bad_image("internal error: the buffer does not match the image size"))?;
        let resized = imageops::resize(&whole, width as u32, height as u32, imageops::FilterType::Lanczos3);
        Image::new(width, height, resized.into_raw())
    }

    /// The values of −1 to 1 that an autoencoder takes: all red ones, then all green ones, then all blue ones.
    pub(crate) fn planes(&self) -> Vec<f32> {
        let channel = |channel: usize| self.rgb.iter().skip(channel).step_by(3).map(|value| f32::from(*value) / 127.5 - 1.0);
        (0..3).flat_map(channel).collect()
    }

    /// The image of an autoencoder's values, clamped.
    pub fn from_planes(width: usize, height: usize, planes: &[f32]) -> Result<Image> {
        let size = width * height;
        let byte = |value: f32| ((value / 2.0 + 0.5).clamp(0.0, 1.0) * 255.0).round_ties_even() as u8;
        if planes.len() != 3 * size {
            return Err(bad_image(format!("an image of {width}x{height} needs 3 values per pixel, got {} values", planes.len())));
        }
        let rgb = (0..size).flat_map(|pixel| [0, 1, 2].map(|channel| byte(planes[channel * size + pixel])));
        Image::new(width, height, rgb.collect())
    }

    /// Keeps the pixels of `original` that the mask does not repaint. All have one size.
    pub(crate) fn paste(&mut self, original: &Image, mask: &Mask) {
        let pixels = self.rgb.chunks_exact_mut(3).zip(original.rgb.chunks_exact(3)).zip(&mask.values);
        for ((own, original), _) in pixels.filter(|(_, value)| **value < REPAINT) {
            own.copy_from_slice(original);
        }
    }

    /// Encodes a PNG file. `parameters` is the text that other programs read how the image was made from.
    pub fn png(&self, parameters: Option<&str>) -> Result<Vec<u8>> {
        let failed = |error: png::EncodingError| bad_image(format!("cannot encode the image: {error}"));
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        if let Some(text) = parameters {
            // The older kind of text has Latin-1 only.
            let key = "parameters".to_owned();
            let added = if text.chars().all(|c| (c as u32) < 256 && c != '\0') {
                encoder.add_text_chunk(key, text.to_owned())
            } else {
                encoder.add_itxt_chunk(key, text.replace('\0', " "))
            };
            added.map_err(failed)?;
        }
        let mut writer = encoder.write_header().map_err(failed)?;
        writer.write_image_data(&self.rgb).map_err(failed)?;
        writer.finish().map_err(failed)?;
        Ok(file)
    }
}

impl Mask {
    /// Creates a mask from its values, row by row.
    pub fn new(width: usize, height: usize, values: Vec<u8>) -> Result<Mask> {
        if width.checked_mul(height) != Some(values.len()) || values.is_empty() {
            return Err(bad_image(format!("a mask of {width}x{height} needs a value per pixel, got {} values", values.len())));
        }
        Ok(Mask { width, height, values })
    }

    /// Decodes a PNG, JPEG or WebP file within limits. Colors become gray.
    pub fn decode(file: &[u8], limits: &ImageLimits) -> Result<Mask> {
        let gray = decode(file, limits)?.into_luma8();
        Mask::new(gray.width() as usize, gray.height() as usize, gray.into_raw())
    }

    /// Decodes a PNG, JPEG or WebP file within limits whose transparent pixels (alpha below 128) are to be repainted, as in OpenAI's API.
    /// Returns `None` if no pixel is transparent.
    pub fn from_transparency(file: &[u8], limits: &ImageLimits) -> Result<Option<Mask>> {
        let image = decode(file, limits)?;
        if !image.color().has_alpha() {
            return Ok(None);
        }
        let rgba = image.into_rgba8();
        let values: Vec<u8> = rgba.pixels().map(|pixel| 255 - pixel.0[3]).collect();
        if values.iter().all(|value| *value < REPAINT) {
            return Ok(None);
        }
        Mask::new(rgba.width() as usize, rgba.height() as usize, values).map(Some)
    }

    /// Returns width and height in pixels.
    pub fn size(&self) -> (usize, usize) {
        (self.width, self.height)
    }

    /// Returns the mask in another size: each pixel takes the nearest value.
    pub fn resize(&self, width: usize, height: usize) -> Result<Mask> {
        let value = |y: usize, x: usize| self.values[y * self.height / height * self.width + x * self.width / width];
        Mask::new(width, height, (0..height).flat_map(|y| (0..width).map(move |x| value(y, x))).collect())
    }

    /// Whether each pixel is repainted: 1 or 0, row by row.
    pub(crate) fn repaint(&self) -> impl Iterator<Item = f32> {
        self.values.iter().map(|value| if *value >= REPAINT { 1.0 } else { 0.0 })
    }
}
