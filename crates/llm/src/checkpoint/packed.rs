//! Matrices of quantized Hugging Face folders that are unpacked while they are read: FP8 in blocks, GPTQ and AWQ with 4 bits; and MXFP4,
//! which is only reordered.

use half::{bf16, f16};
use warpwave_kernels::DType;
use warpwave_weights::{Kind, Safetensors, Tensor};

use super::error::{Result, bad_tensor};
use super::json::Keys;

/// How the matrices of a folder are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    /// `e4m3` with a scale for each block of this many rows and columns. Unpacked to `bf16`.
    Fp8 { block: [usize; 2] },
    /// 4 bits: words of 8 rows of the transposed matrix; `offset` is added to the zero points. Unpacked to `f16`.
    Gptq { group: Option<usize>, offset: u8 },
    /// 4 bits: words of 8 columns of the transposed matrix. Unpacked to `f16`.
    Awq { group: Option<usize> },
}

/// The column of the transposed matrix that nibble `i` of AWQ's words belongs to.
const AWQ_ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

impl Packing {
    /// Reads `quantization_config`, whose method this is; `None` for unknown methods.
    pub fn of_config(keys: &Keys<'_>, method: &str) -> Result<Option<Packing>> {
        let expect = |key: &str, expected: &str, found: Option<String>| match found {
            Some(found) if found != expected => Err(keys.bad(key, format!("unsupported value {found}; expected {expected}"))),
            _ => Ok(()),
        };
        let text = |key: &str| -> Result<Option<String>> { Ok(keys.get(key).map(|value| value.to_string().replace('"', ""))) };
        let group = || match keys.get("group_size").map(|value| value.as_i64()) {
            None => Ok(Some(128)),
            Some(Some(-1)) => Ok(None),
            Some(Some(size)) if size > 0 => Ok(usize::try_from(size).ok()),
            Some(_) => Err(keys.bad("group_size", "expected a positive number, or -1 for one group")),
        };
        Ok(Some(match method {
            "fp8" => {
                expect("fmt", "e4m3", text("fmt")?)?;
                let sizes = keys.need("weight_block_size", keys.array("weight_block_size")?)?;
                let sizes: Option<Vec<usize>> = sizes.iter().map(|size| usize::try_from(size.as_u64()?).ok()).collect();
                match sizes.as_deref() {
                    Some(&[rows, columns]) if rows > 0 && columns > 0 => Packing::Fp8 { block: [rows, columns] },
                    _ => return Err(keys.bad("weight_block_size", "expected two positive numbers")),
                }
            }
            "gptq" => {
                expect("bits", "4", text("bits")?)?;
                let second = keys.str("checkpoint_format")? == Some("gptq_v2");
                Packing::Gptq { group: group()?, offset: if second { 0 } else { 1 } }
            }
            "awq" => {
                expect("bits", "4", text("bits")?)?;
                expect("version", "gemm", text("version")?.map(|version| version.to_lowercase()))?;
                Packing::Awq { group: group()? }
            }
            _ => return Ok(None),
        }))
    }

    /// The packed form of a matrix, if the folder has it.
    pub fn find<'a>(self, files: &'a Safetensors, name: &str) -> Option<Packed<'a>> {
        let stem = name.strip_suffix(".weight")?;
        let (main, others) = match self {
            Packing::Fp8 { .. } => (name.to_owned(), vec![format!("{name}_scale_inv")]),
            Packing::Gptq { .. } => {
                (format!("{stem}.qweight"), ["qzeros", "scales", "g_idx"].map(|part| format!("{stem}.{part}")).to_vec())
            }
            Packing::Awq { .. } => (format!("{stem}.qweight"), ["qzeros", "scales"].map(|part| format!("{stem}.{part}")).to_vec()),
        };
        let codes = files.tensor(&main)?;
        if matches!(self, Packing::Fp8 { .. }) && codes.kind != Kind::Plain(DType::F8E4M3) {
            return None;
        }
        let others = others.into_iter().map(|name| (files.tensor(&name), name)).collect();
        Some(Packed { packing: self, codes, others })
    }
}

/// A packed matrix.
pub(super) struct Packed<'a> {
    packing: Packing,
    codes: Tensor<'a>,
    /// Scales and zero points, with their names.
    others: Vec<(Option<Tensor<'a>>, String)>,
}

impl Packed<'_> {
    /// The type it is unpacked to.
    pub fn kind(&self) -> Kind {
        Kind::Plain(if matches!(self.packing, Packing::Fp8 { .. }) { DType::Bf16 } else { DType::F16 })
    }

    /// The names of its tensors.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let others = self.others.iter().filter(|(tensor, _)| tensor.is_some()).map(|(_, name)| name.clone());
        std::iter::once(self.codes.name.to_owned()).chain(others)
    }

    /// Fails unless all tensors are there and have the types and shapes of a matrix of this shape.
    pub fn check(&self, path: &str, shape: &[usize]) -> Result<()> {
        let &[rows, columns] = shape else {
            return Err(bad_tensor(path, self.codes.name, format!("expected shape {shape:?}, got a packed matrix")));
        };
        let need = |tensor: &Option<Tensor<'_>>, name: &str, types: &[DType], shape: &[usize]| -> Result<()> {
            let shown = types.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(" or ");
            match tensor {
                Some(found) if found.shape == shape && types.iter().any(|dtype| found.kind == Kind::Plain(*dtype)) => Ok(()),
                Some(found) => {
                    Err(bad_tensor(path, name, format!("expected {shown} of shape {shape:?}, got {} of {:?}", found.kind, found.shape)))
                }
                None => Err(bad_tensor(path, name, format!("missing; expected {shown} of shape {shape:?}"))),
            }
        };
        let codes = Some(self.codes);
        let part = |number: usize, types: &[DType], shape: &[usize]| match self.others.get(number) {
            Some((tensor, name)) => need(tensor, name, types, shape),
            None => Ok(()),
        };
        let divide = |count: usize, what: &str| match count.is_multiple_of(8) {
            true => Ok(count / 8),
            false => Err(bad_tensor(path, self.codes.name, format!("{count} {what} are not a multiple of 8"))),
        };
        match self.packing {
            Packing::Fp8 { block } => {
                need(&codes, self.codes.name, &[DType::F8E4M3], shape)?;
                part(0, &[DType::F32, DType::Bf16], &[rows.div_ceil(block[0]), columns.div_ceil(block[1])])
            }
            Packing::Gptq { group, .. } => {
                let groups = columns.div_ceil(group.unwrap_or(columns).max(1));
                need(&codes, self.codes.name, &[DType::I32], &[divide(columns, "columns")?, rows])?;
                part(0, &[DType::I32], &[groups, divide(rows, "rows")?])?;
                part(1, &[DType::F16], &[groups, rows])?;
                if let Some((Some(order), name)) = self.others.get(2) {
                    part(2, &[DType::I32], &[columns])?;
                    if let Some(found) = words(order.bytes).find(|index| *index as usize >= groups) {
                        return Err(bad_tensor(path, name, format!("group {found} is out of range: there are {groups}")));
                    }
                }
                Ok(())
            }
            Packing::Awq { group } => {
                let groups = columns.div_ceil(group.unwrap_or(columns).max(1));
                need(&codes, self.codes.name, &[DType::I32], &[columns, divide(rows, "rows")?])?;
                part(0, &[DType::I32], &[groups, rows / 8])?;
                part(1, &[DType::F16], &[groups, rows])
            }
        }
    }

    /// The elements, of a matrix that was [checked](Packed::check): products of code and scale, rounded once.
    pub fn unpack(&self) -> Vec<u8> {
        let bytes = |number: usize| self.others.get(number).and_then(|(tensor, _)| tensor.as_ref()).map_or(&[][..], |tensor| tensor.bytes);
        let &[first, second] = self.codes.shape else { return Vec::new() };
        match self.packing {
            Packing::Fp8 { block } => {
                let wide = self
                    .others
                    .first()
                    .and_then(|(scales, _)| scales.as_ref())
                    .is_some_and(|scales| scales.kind == Kind::Plain(DType::F32));
                let scales = floats(bytes(0), wide);
                let in_row = second.div_ceil(block[1]);
                let value = |(i, code): (usize, &u8)| {
                    let scale = scales[i / second / block[0] * in_row + i % second / block[1]];
                    bf16::from_f32(e4m3(*code) * scale).to_le_bytes()
                };
                self.codes.bytes.iter().enumerate().flat_map(value).collect()
            }
            Packing::Gptq { group, offset } => {
                let (columns, rows) = (first * 8, second);
                let group = group.unwrap_or(columns).max(1);
                let order: Vec<usize> = match bytes(2) {
                    [] => (0..columns).map(|column| column / group).collect(),
                    order => words(order).map(|group| group as usize).collect(),
                };
                let (codes, zeros): (Vec<u32>, Vec<u32>) = (words(self.codes.bytes).collect(), words(bytes(0)).collect());
                unpacked(rows, columns, bytes(1), |row, column| {
                    let group = order[column];
                    let zero = (zeros[group * (rows / 8) + row / 8] >> (row % 8 * 4) & 15) as i32 + i32::from(offset);
                    (group, (codes[column / 8 * rows + row] >> (column % 8 * 4) & 15) as i32 - zero)
                })
            }
            Packing::Awq { group } => {
                let (columns, rows) = (first, second * 8);
                let group = group.unwrap_or(columns).max(1);
                let (codes, zeros): (Vec<u32>, Vec<u32>) = (words(self.codes.bytes).collect(), words(bytes(0)).collect());
                let shifts: [usize; 8] = std::array::from_fn(|row| AWQ_ORDER.iter().position(|own| *own == row).unwrap_or(0) * 4);
                let nibble = |words: &[u32], line: usize, row: usize| (words[line * (rows / 8) + row / 8] >> shifts[row % 8] & 15) as i32;
                unpacked(rows, columns, bytes(1), |row, column| {
                    (column / group, nibble(&codes, column, row) - nibble(&zeros, column / group, row))
                })
            }
        }
    }
}

/// `f16` elements of a matrix, from the group and the code of each, and scales of (groups, rows).
fn unpacked(rows: usize, columns: usize, scales: &[u8], code: impl Fn(usize, usize) -> (usize, i32)) -> Vec<u8> {
    let scales: Vec<f32> = scales.as_chunks::<2>().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect();
    let mut out = Vec::with_capacity(rows * columns * 2);
    for row in 0..rows {
        for column in 0..columns {
            let (group, code) = code(row, column);
            out.extend(f16::from_f32(scales[group * rows + row] * code as f32).to_le_bytes());
        }
    }
    out
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Elements of `f32`, or of `bf16`.
fn floats(bytes: &[u8], wide: bool) -> Vec<f32> {
    match wide {
        true => words(bytes).map(f32::from_bits).collect(),
        false => bytes.as_chunks::<2>().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect(),
    }
}

/// The value of an `e4m3` number (without infinities).
fn e4m3(code: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let size = match code & 127 {
        127 => f32::NAN,
        _ if exponent == 0 => mantissa / 512.0,
        _ => (1.0 + mantissa / 8.0) * f32::powi(2.0, exponent - 7),
    };
    if code & 128 == 0 { size } else { -size }
}

/// Reorders every `step`-th row, from `first` on, of Hugging Face's MXFP4 to GGUF's blocks: the scale, then bytes of elements `j` and `j + 16`
/// instead of `2j` and `2j + 1`.
pub(super) fn mxfp4(blocks: &[u8], scales: &[u8], columns: usize, first: usize, step: usize) -> Vec<u8> {
    let in_row = (columns / 32).max(1);
    let rows = blocks.chunks_exact(16 * in_row).zip(scales.chunks_exact(in_row)).skip(first).step_by(step);
    let mut out = Vec::new();
    for (block, scale) in rows.flat_map(|(blocks, scales)| blocks.as_chunks::<16>().0.iter().zip(scales)) {
        let element = |i: usize| block[i / 2] >> (i % 2 * 4) & 15;
        out.push(*scale);
        out.extend((0..16).map(|j| element(j) | element(j + 16) << 4));
    }
    out
}
