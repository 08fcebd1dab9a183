//! Printing of tensors: values in rows as PyTorch prints them, with long dimensions elided.

use std::fmt;

use half::{bf16, f16};
use warpwave_kernels::DType;

use crate::device::Device;
use crate::error::Result;
use crate::tensor::Tensor;

/// Tensors of more elements are elided.
const ELIDE_FROM: usize = 1000;
/// Elements shown at each end of an elided dimension.
const EDGE: usize = 3;
/// Characters of a line.
const WIDTH: usize = 80;

/// Indices of a dimension that are printed; `None` stands for an ellipsis.
fn shown(size: usize, elide: bool) -> Vec<Option<usize>> {
    if elide && size > 2 * EDGE {
        let ends = [0..EDGE, size - EDGE..size];
        let [start, end] = ends.map(|range| range.map(Some));
        return start.chain([None]).chain(end).collect();
    }
    (0..size).map(Some).collect()
}

enum Printable {
    Floats(Vec<f64>),
    Ints(Vec<i64>),
}

impl Printable {
    fn of(tensor: &Tensor) -> Result<Printable> {
        // Rounding is exact: from narrower types to the widest.
        Ok(match tensor.dtype() {
            DType::F64 => Printable::Floats(tensor.to_vec()?),
            DType::F32 => Printable::Floats(tensor.to_vec::<f32>()?.into_iter().map(f64::from).collect()),
            DType::F16 => Printable::Floats(tensor.to_vec::<f16>()?.into_iter().map(f64::from).collect()),
            DType::Bf16 => Printable::Floats(tensor.to_vec::<bf16>()?.into_iter().map(f64::from).collect()),
            dtype if dtype.is_integer() => Printable::Ints(tensor.cast(DType::I64)?.to_vec()?),
            _ => Printable::Floats(tensor.cast(DType::F64)?.to_vec()?),
        })
    }

    /// Each element as text, all of one style.
    fn texts(self) -> Vec<String> {
        let all = match self {
            Printable::Ints(all) => return all.iter().map(i64::to_string).collect(),
            Printable::Floats(all) => all,
        };
        let finite = || all.iter().copied().filter(|x| x.is_finite());
        let sizes = || finite().map(f64::abs).filter(|x| *x != 0.0);
        let (low, high) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
        let integers = finite().all(|x| x.fract() == 0.0);
        let scientific = high >= 1e8 || (high > 0.0 && (low < 1e-4 || high / low > 1e3) && !integers);
        let text = |x: f64| match x {
            x if !x.is_finite() => format!("{x}").replace("NaN", "nan"),
            x if scientific => format!("{x:.4e}"),
            x if integers => format!("{x:.0}."),
            x => format!("{x:.4}"),
        };
        all.iter().map(|x| text(*x)).collect()
    }
}

/// The part of a tensor that is printed, on the host.
fn corner(tensor: &Tensor, elide: bool) -> Result<Tensor> {
    let mut part = tensor.clone();
    for d in 0..tensor.rank() {
        let size = tensor.shape()[d];
        if elide && size > 2 * EDGE {
            part = Tensor::cat(&[part.narrow(d, 0, EDGE)?, part.narrow(d, size - EDGE, EDGE)?], d)?;
        }
    }
    part.to_device(&Device::Cpu)
}

struct Writer<'a> {
    texts: &'a [String],
    width: usize,
    shape: &'a [usize],
    elide: bool,
}

impl Writer<'_> {
    /// Writes dimension `d`; `next` is the index of the next element.
    fn write(&self, f: &mut fmt::Formatter<'_>, d: usize, next: &mut usize) -> fmt::Result {
        if d == self.shape.len() {
            write!(f, "{:>1$}", self.texts[*next], self.width)?;
            *next += 1;
            return Ok(());
        }
        let innermost = d + 1 == self.shape.len();
        let per_line = ((WIDTH - d.min(WIDTH / 2)) / (self.width + 2)).max(1);
        f.write_str("[")?;
        for (i, index) in shown(self.shape[d], self.elide).into_iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
                match innermost {
                    true if !i.is_multiple_of(per_line) => f.write_str(" ")?,
                    true => write!(f, "\n{:1$}", "", d + 1)?,
                    false => write!(f, "{}{:2$}", "\n".repeat(self.shape.len() - d - 1), "", d + 1)?,
                }
            }
            match index {
                Some(_) => self.write(f, d + 1, next)?,
                None => f.write_str("...")?,
            }
        }
        f.write_str("]")
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let elide = self.len() > ELIDE_FROM;
        let texts =
            if self.is_empty() { Ok(Vec::new()) } else { corner(self, elide).and_then(|part| Printable::of(&part)).map(Printable::texts) };
        match texts {
            Ok(texts) => {
                let width = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
                // Without elements only the brackets of the first dimension are left.
                let shape = if self.is_empty() { &[0][..] } else { self.shape() };
                Writer { texts: &texts, width, shape, elide }.write(f, 0, &mut 0)?;
                f.write_str("\n")?;
            }
            // The meta device has no data; a failed device has none to show.
            Err(error) => writeln!(f, "[{error}]")?,
        }
        write!(f, "{self:?}")
    }
}
