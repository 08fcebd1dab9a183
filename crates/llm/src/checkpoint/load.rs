//! Weights as models take them.

use warpwave_weights::{Kind, TensorInfo};

use super::convert::{convert, target, to_f32};
use super::error::Result;
use super::{Checkpoint, Weight};

impl Checkpoint {
    /// Whether there is a weight of this name.
    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// A weight, as [`Checkpoint::write_gguf`] would write it.
    pub fn get_as(&self, name: &str, to: Option<Kind>) -> Result<Weight<'_>> {
        let weight = self.get(name)?;
        let info = TensorInfo { name: name.to_owned(), kind: weight.kind, shape: weight.shape.clone() };
        let kind = target(&info, to, self.is_tied());
        if kind == weight.kind {
            return Ok(weight);
        }
        let bytes = convert(weight.kind, &weight.bytes, kind).into();
        Ok(Weight { kind, bytes, ..weight })
    }

    /// A weight's numbers.
    pub fn numbers(&self, name: &str) -> Result<Vec<f32>> {
        let weight = self.get(name)?;
        Ok(to_f32(weight.kind, &weight.bytes))
    }
}
