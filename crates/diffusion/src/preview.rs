//! Previews: what latents will about look like, without the autoencoder's decoder.

use warpwave_tensor::{Device, Tensor};

use crate::error::Result;
use crate::image::Image;
use crate::model::Model;
use crate::tiny::TinyAutoencoder;

/// Colors of the fit in each channel, from dark to bright.
const LEVELS: [f32; 3] = [-0.8, 0.0, 0.8];
/// The side of a field of one color, in pixels.
const FIELD: usize = 32;
/// Fields side by side, and below each other.
const FIELDS: (usize, usize) = (6, 5);

/// Shows latents while a run is not at its end.
pub struct Preview(Kind);

enum Kind {
    Linear(Colors),
    Tiny(TinyAutoencoder),
}

/// A linear map from latents to colors.
struct Colors {
    /// Of each color the factors of the channels, then a constant.
    factors: [Vec<f64>; 3],
}

impl std::fmt::Debug for Preview {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.0 {
            Kind::Linear(_) => "Preview (linear approximation)",
            Kind::Tiny(_) => "Preview (tiny autoencoder)",
        })
    }
}

impl Preview {
    /// Previews with a small autoencoder (TAESD), in the size of the image. It must be on the model's device.
    pub fn tiny(autoencoder: TinyAutoencoder) -> Preview {
        Preview(Kind::Tiny(autoencoder))
    }

    /// Previews with a linear map from latents to colors, in one eighth of the image's size.
    ///
    /// It is fitted to the model's own autoencoder, so it works for every model: fields of known colors are encoded, as a small image.
    pub fn fit(model: &Model) -> Result<Preview> {
        let (width, height) = (FIELDS.0 * FIELD, FIELDS.1 * FIELD);
        let color = |x: usize, y: usize| {
            let field = (y / FIELD * FIELDS.0 + x / FIELD) % 27;
            [LEVELS[field % 3], LEVELS[field / 3 % 3], LEVELS[field / 9]]
        };
        let plane = |channel: usize| (0..width * height).map(move |i| color(i % width, i / width)[channel]);
        let planes: Vec<f32> = (0..3).flat_map(plane).collect();
        let (mean, _) = model.vae_encode(&Tensor::new(&planes, &[1, 3, height, width], model.device())?, None)?;
        let info = model.info();
        let scaled = |value: f32| (f64::from(value) - info.vae_shift) * info.vae_scaling;
        let latents: Vec<f64> = mean.to_vec::<f32>()?.into_iter().map(scaled).collect();
        let (columns, rows) = (width / info.latent_scale, height / info.latent_scale);
        let pixel = |i: usize| (i % columns * info.latent_scale, i / columns * info.latent_scale);
        let colors: Vec<[f32; 3]> = (0..columns * rows).map(pixel).map(|(x, y)| color(x, y)).collect();
        Ok(Preview(Kind::Linear(Colors { factors: fit(&latents, &colors) })))
    }

    /// The image of latents of (1, channels, height, width).
    pub(crate) fn image(&self, latents: &[f32], shape: &[usize; 4], device: &Device) -> Result<Image> {
        match &self.0 {
            Kind::Linear(colors) => colors.image(shape[3], shape[2], latents),
            Kind::Tiny(autoencoder) => {
                let image = autoencoder.decode(&Tensor::new(latents, shape, device)?)?;
                Image::from_planes(image.size(3), image.size(2), &image.floats()?)
            }
        }
    }
}

impl Colors {
    /// The image of latents of (channels, height, width).
    fn image(&self, width: usize, height: usize, latents: &[f32]) -> Result<Image> {
        let size = width * height;
        let value = |factors: &Vec<f64>, i: usize| {
            let (constant, factors) = factors.split_last().unwrap_or((&0.0, &[]));
            let sum: f64 = factors.iter().enumerate().map(|(c, factor)| factor * f64::from(latents[c * size + i])).sum();
            (sum + constant) as f32
        };
        let planes: Vec<f32> = self.factors.iter().flat_map(|factors| (0..size).map(move |i| value(factors, i))).collect();
        Image::from_planes(width, height, &planes)
    }
}

/// Least squares: the factors that come nearest to the colors. `latents` are channels of as many values as there are colors.
fn fit(latents: &[f64], colors: &[[f32; 3]]) -> [Vec<f64>; 3] {
    let count = colors.len();
    let unknowns = latents.len() / count + 1;
    let value = |c: usize, i: usize| if c + 1 == unknowns { 1.0 } else { latents[c * count + i] };
    let sum = |f: &dyn Fn(usize) -> f64| (0..count).map(f).sum::<f64>();
    let mut rows: Vec<Vec<f64>> = (0..unknowns)
        .map(|a| {
            let products = (0..unknowns).map(|b| sum(&|i| value(a, i) * value(b, i)));
            let targets = (0..3).map(|color| sum(&|i| value(a, i) * f64::from(colors[i][color])));
            products.chain(targets).collect()
        })
        .collect();
    // A little of the diagonal keeps channels that say the same from large factors of opposite signs.
    let scale = (0..unknowns).map(|a| rows[a][a]).fold(0.0, f64::max) * 1e-6;
    for (a, row) in rows.iter_mut().enumerate() {
        row[a] += scale.max(f64::MIN_POSITIVE);
    }
    // Gauss-Jordan; the matrix is positive definite, so its diagonal can be divided by.
    for a in 0..unknowns {
        let pivot = rows[a].clone();
        for (b, row) in rows.iter_mut().enumerate() {
            let factor = if a == b { 1.0 - 1.0 / pivot[a] } else { row[a] / pivot[a] };
            row.iter_mut().zip(&pivot).for_each(|(value, own)| *value -= factor * own);
        }
    }
    [0, 1, 2].map(|color| rows.iter().map(|row| row[unknowns + color]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_autoencoder_is_found() {
        // Four channels that mix three colors and a constant.
        let colors: Vec<[f32; 3]> =
            (0..64).map(|i| [(i % 4) as f32 / 2.0 - 0.75, (i / 4 % 4) as f32 / 2.0 - 0.75, (i / 16) as f32 / 2.0 - 0.75]).collect();
        let mix = [[0.5, -1.0, 0.2], [1.5, 0.3, -0.7], [-0.4, 0.9, 1.1], [0.1, 0.1, -2.0]];
        let latents: Vec<f64> = mix
            .iter()
            .flat_map(|mix| colors.iter().map(move |color| 0.3 + mix.iter().zip(color).map(|(a, b)| a * f64::from(*b)).sum::<f64>()))
            .collect();
        let preview = Colors { factors: fit(&latents, &colors) };
        let image = preview.image(8, 8, &latents.iter().map(|value| *value as f32).collect::<Vec<_>>()).unwrap();
        for (color, rgb) in colors.iter().zip(image.rgb().chunks_exact(3)) {
            for (value, byte) in color.iter().zip(rgb) {
                assert!(((value / 2.0 + 0.5) * 255.0 - f32::from(*byte)).abs() <= 1.0, "{color:?} {rgb:?}");
            }
        }
    }

    #[test]
    fn constant_latents_have_finite_factors() {
        let factors = fit(&[0.0; 16], &[[0.5, 0.5, 0.5]; 4]);
        assert!(factors.iter().flatten().all(|factor| factor.is_finite()), "{factors:?}");
    }
}
