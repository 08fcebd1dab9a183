//! Image files: what other programs write is read, what they read is written, and damaged files are errors.

use std::io::Cursor;

use image::{DynamicImage, GrayImage, ImageFormat, Rgb, RgbImage, RgbaImage};
use warpwave_diffusion::{Image, ImageLimits, Mask};
use warpwave_test_support::{Random, seed};

fn sample(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| Rgb([(x * 7 % 256) as u8, (y * 5 % 256) as u8, ((x + y) * 3 % 256) as u8]))
}

fn encoded(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    image.into().write_to(&mut file, format).unwrap();
    file.into_inner()
}

fn decode(file: &[u8]) -> Result<Image, String> {
    Image::decode(file, &ImageLimits::default()).map_err(|error| error.to_string())
}

#[test]
fn lossless_files_keep_their_pixels() {
    let image = sample(37, 21);
    for format in [ImageFormat::Png, ImageFormat::WebP] {
        let found = decode(&encoded(image.clone(), format)).unwrap();
        assert_eq!((found.width(), found.height(), found.rgb()), (37, 21, &image.as_raw()[..]));
    }
    let with_alpha = RgbaImage::from_fn(4, 3, |x, y| image::Rgba([x as u8, y as u8, 9, 128]));
    assert_eq!(decode(&encoded(with_alpha, ImageFormat::Png)).unwrap().rgb()[..6], [0, 0, 9, 1, 0, 9]);
    let gray = GrayImage::from_fn(4, 3, |x, _| image::Luma([x as u8 * 10]));
    assert_eq!(decode(&encoded(gray, ImageFormat::Png)).unwrap().rgb()[..6], [0, 0, 0, 10, 10, 10]);
}

#[test]
fn jpeg_files_are_read_nearly() {
    let image = RgbImage::from_fn(64, 48, |x, y| Rgb([(x * 4) as u8, (y * 5) as u8, 100]));
    let found = decode(&encoded(image.clone(), ImageFormat::Jpeg)).unwrap();
    let error: u64 = found.rgb().iter().zip(image.as_raw()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    assert!(error < 4 * found.rgb().len() as u64, "{error}");
}

/// A JPEG file with EXIF data that says how to turn it.
fn turned(orientation: u8) -> Vec<u8> {
    let file = encoded(sample(40, 24), ImageFormat::Jpeg);
    let mut exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0]);
    let mut result = file[..2].to_vec();
    result.extend([0xff, 0xe1]);
    result.extend((exif.len() as u16 + 2).to_be_bytes());
    result.extend(exif);
    result.extend(&file[2..]);
    result
}

#[test]
fn exif_data_turns_an_image_upright() {
    let upright = decode(&turned(1)).unwrap();
    let pixel = |image: &Image, x: usize, y: usize| image.rgb()[(y * image.width() + x) * 3..][..3].to_vec();
    assert_eq!((upright.width(), upright.height()), (40, 24));
    let half = decode(&turned(3)).unwrap();
    assert_eq!(pixel(&half, 0, 0), pixel(&upright, 39, 23));
    let right = decode(&turned(6)).unwrap();
    assert_eq!((right.width(), right.height()), (24, 40));
    assert_eq!(pixel(&right, 23, 0), pixel(&upright, 0, 0));
    let left = decode(&turned(8)).unwrap();
    assert_eq!(pixel(&left, 0, 39), pixel(&upright, 0, 0));
}

#[test]
fn limits_hold_before_pixels_are_decoded() {
    let file = encoded(sample(64, 32), ImageFormat::Png);
    let error = |limits: ImageLimits| Image::decode(&file, &limits).unwrap_err().to_string();
    let all = ImageLimits::default();
    assert!(error(ImageLimits { bytes: file.len() - 1, ..all }).contains("bytes"));
    assert!(!error(ImageLimits { side: 63, ..all }).is_empty());
    assert!(error(ImageLimits { pixels: 64 * 32 - 1, ..all }).contains("got 64x32"));
    assert!(Image::decode(&file, &ImageLimits { bytes: file.len(), side: 64, pixels: 64 * 32 }).is_ok());
    // A header that announces 2^31 x 2^31 pixels, with its checksum.
    for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP] {
        let mut file = encoded(sample(16, 16), format);
        match format {
            ImageFormat::Png => {
                file[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
                let mut crc = u32::MAX;
                for byte in &file[12..29] {
                    crc = (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 });
                }
                file[29..33].copy_from_slice(&(!crc).to_be_bytes());
            }
            ImageFormat::Jpeg => {
                let at = file.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
                file[at + 5..at + 9].fill(0xff);
            }
            _ => {
                let at = file.windows(4).position(|tag| tag == b"VP8L").unwrap();
                file[at + 9..at + 12].fill(0xff);
            }
        }
        assert!(decode(&file).is_err(), "{format:?}");
    }
}

#[test]
fn other_files_are_refused() {
    for file in [&b""[..], b"x", b"GIF89a\x01\0\x01\0", b"BM", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"\x89PNG\r\n\x1a\n"] {
        assert!(decode(file).is_err(), "{file:?}");
    }
    assert_eq!(decode(b"GIF89a\x01\0\x01\0").unwrap_err(), "expected a PNG, JPEG or WebP file");
}

#[test]
fn damaged_files_are_errors_or_images() {
    let mut random = Random::new(seed());
    for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP] {
        let file = encoded(sample(24, 16), format);
        for length in (0..file.len()).step_by(7) {
            // A truncated JPEG may be shown as far as it goes.
            assert!(decode(&file[..length]).is_err() || format == ImageFormat::Jpeg, "{format:?} of {length} bytes");
        }
        for _ in 0..400 {
            let mut file = file.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(file.len());
                file[at] = random.below(256) as u8;
            }
            if let Ok(image) = decode(&file) {
                assert_eq!(image.rgb().len(), image.width() * image.height() * 3);
            }
        }
    }
}

#[test]
fn png_files_say_how_they_were_made() {
    let image = Image::new(5, 4, (0..60).collect()).unwrap();
    for text in ["a fox\nSteps: 20, Sampler: Euler a", "ein Füchslein", "日本の狐 \u{1f98a}"] {
        let file = image.png(Some(text)).unwrap();
        assert_eq!(decode(&file).unwrap(), image);
        let reader = png::Decoder::new(Cursor::new(&file)).read_info().unwrap();
        let latin = reader.info().uncompressed_latin1_text.iter().map(|chunk| (chunk.keyword.clone(), chunk.text.clone()));
        let unicode = reader.info().utf8_text.iter().map(|chunk| (chunk.keyword.clone(), chunk.get_text().unwrap()));
        assert_eq!(latin.chain(unicode).collect::<Vec<_>>(), [("parameters".to_owned(), text.to_owned())]);
    }
    assert!(!image.png(None).unwrap().windows(4).any(|tag| tag == b"tEXt" || tag == b"iTXt"));
}

#[test]
fn images_and_masks_have_as_many_values_as_their_size_says() {
    assert!(Image::new(2, 2, vec![0; 11]).is_err() && Image::new(0, 0, Vec::new()).is_err());
    assert!(Image::new(usize::MAX, 2, vec![0; 12]).is_err() && Mask::new(usize::MAX, 2, vec![0; 2]).is_err());
    let image = Image::new(2, 1, vec![0, 0, 0, 200, 200, 200]).unwrap();
    let large = image.resize(8, 4).unwrap();
    assert_eq!((large.width(), large.height()), (8, 4));
    assert!(large.rgb()[0] < 60 && large.rgb()[21] > 140);
}

#[test]
fn masks_take_the_nearest_value() {
    let mask = Mask::new(4, 2, vec![0, 255, 127, 128, 1, 2, 3, 4]).unwrap();
    assert_eq!(mask.resize(2, 1).unwrap(), Mask::new(2, 1, vec![0, 127]).unwrap());
    assert_eq!(mask.resize(8, 2).unwrap().resize(4, 2).unwrap(), mask);
    let file = encoded(GrayImage::from_raw(4, 2, vec![0, 255, 127, 128, 1, 2, 3, 4]).unwrap(), ImageFormat::Png);
    assert_eq!(Mask::decode(&file, &ImageLimits::default()).unwrap(), mask);
    assert!(Mask::decode(b"no image", &ImageLimits::default()).is_err());
}
