//! Folders with packed matrices: FP8 in blocks, GPTQ and AWQ. Small checkpoints made here, whose values are known.

use std::collections::HashMap;
use std::path::Path;

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use warpwave_kernels::DType;
use warpwave_llm::Checkpoint;
use warpwave_test_support::{Random, seed, workspace_root};
use warpwave_weights::Kind;

/// A matrix that is packed: its tensors, and its values.
struct Packed {
    tensors: Vec<(&'static str, Dtype, Vec<usize>, Vec<u8>)>,
    values: Vec<f32>,
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn halves(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect()
}

/// Random codes below 16 and scales, exact in `f16`.
fn codes(count: usize, random: &mut Random) -> Vec<u32> {
    (0..count).map(|_| random.below(16) as u32).collect()
}

fn scales(count: usize, random: &mut Random) -> Vec<f32> {
    (0..count).map(|_| f16::from_f32(0.01 + random.unit() as f32 * 0.02).to_f32()).collect()
}

/// `order`: whether columns have a group of their own choice.
fn gptq(rows: usize, columns: usize, group: usize, first: bool, order: bool, random: &mut Random) -> Packed {
    let groups = columns / group;
    let (q, z, s) = (codes(rows * columns, random), codes(rows * groups, random), scales(rows * groups, random));
    let own: Vec<usize> = (0..columns).map(|column| if order { column % groups } else { column / group }).collect();
    let mut words = vec![0u32; rows * columns / 8];
    let mut zeros = vec![0u32; rows * groups / 8];
    for row in 0..rows {
        for column in 0..columns {
            words[column / 8 * rows + row] |= q[row * columns + column] << (column % 8 * 4);
        }
        for group in 0..groups {
            zeros[group * rows / 8 + row / 8] |= z[group * rows + row] << (row % 8 * 4);
        }
    }
    let value = |row: usize, column: usize| {
        let at = own[column] * rows + row;
        let zero = z[at] as f32 + if first { 1.0 } else { 0.0 };
        f16::from_f32(s[at] * (q[row * columns + column] as f32 - zero)).to_f32()
    };
    let mut tensors = vec![
        ("qweight", Dtype::I32, vec![columns / 8, rows], bytes(&words)),
        ("qzeros", Dtype::I32, vec![groups, rows / 8], bytes(&zeros)),
        ("scales", Dtype::F16, vec![groups, rows], halves(&s)),
    ];
    if order {
        tensors.push(("g_idx", Dtype::I32, vec![columns], bytes(&own.iter().map(|group| *group as u32).collect::<Vec<_>>())));
    }
    Packed { tensors, values: (0..rows * columns).map(|i| value(i / columns, i % columns)).collect() }
}

fn awq(rows: usize, columns: usize, group: usize, random: &mut Random) -> Packed {
    let groups = columns / group;
    let (q, z, s) = (codes(rows * columns, random), codes(rows * groups, random), scales(rows * groups, random));
    // Even rows come first in a word.
    let nibble = |row: usize| if row.is_multiple_of(2) { row % 8 / 2 } else { 4 + row % 8 / 2 };
    let mut words = vec![0u32; rows * columns / 8];
    let mut zeros = vec![0u32; rows * groups / 8];
    for row in 0..rows {
        for column in 0..columns {
            words[column * rows / 8 + row / 8] |= q[row * columns + column] << (nibble(row) * 4);
        }
        for group in 0..groups {
            zeros[group * rows / 8 + row / 8] |= z[group * rows + row] << (nibble(row) * 4);
        }
    }
    let value = |row: usize, column: usize| {
        let at = column / group * rows + row;
        f16::from_f32(s[at] * (q[row * columns + column] as f32 - z[at] as f32)).to_f32()
    };
    let tensors = vec![
        ("qweight", Dtype::I32, vec![columns, rows / 8], bytes(&words)),
        ("qzeros", Dtype::I32, vec![groups, rows / 8], bytes(&zeros)),
        ("scales", Dtype::F16, vec![groups, rows], halves(&s)),
    ];
    Packed { tensors, values: (0..rows * columns).map(|i| value(i / columns, i % columns)).collect() }
}

/// Blocks of 24 rows and 40 columns, which do not divide the matrices.
fn fp8(rows: usize, columns: usize, random: &mut Random) -> Packed {
    let (down, across) = (rows.div_ceil(24), columns.div_ceil(40));
    let s: Vec<f32> = (0..down * across).map(|_| 0.001 + random.unit() as f32 * 0.01).collect();
    // All but the two NaNs.
    let q: Vec<u8> = (0..rows * columns).map(|_| random.next_u64() as u8).map(|code| if code & 127 == 127 { 0 } else { code }).collect();
    let number = |code: u8| {
        let (sign, exponent, mantissa) = (code >> 7, i32::from(code >> 3 & 15), f64::from(code & 7));
        let size = if exponent == 0 { mantissa / 8.0 * 2f64.powi(-6) } else { (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7) };
        (if sign == 1 { -size } else { size }) as f32
    };
    let value = |i: usize| bf16::from_f32(number(q[i]) * s[i / columns / 24 * across + i % columns / 40]).to_f32();
    let values = (0..rows * columns).map(value).collect();
    let scales = s.iter().flat_map(|scale| scale.to_le_bytes()).collect();
    let tensors =
        vec![("weight", Dtype::F8_E4M3, vec![rows, columns], q.clone()), ("weight_scale_inv", Dtype::F32, vec![down, across], scales)];
    Packed { tensors, values }
}

/// A model of a family without biases, whose down projections are packed. Returns their values by GGUF's names.
fn make(folder: &Path, config: &str, pack: &mut dyn FnMut(usize, usize) -> Packed) -> HashMap<String, Vec<f32>> {
    let oracle = workspace_root().join("crates/llm/tests/oracles/mistral");
    let bytes = std::fs::read(oracle.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut all: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
    let mut values = HashMap::new();
    for (name, tensor) in file.tensors() {
        let (shape, data) = (tensor.shape().to_vec(), tensor.data().to_vec());
        match name.strip_suffix(".mlp.down_proj.weight") {
            Some(stem) => {
                let packed = pack(shape[0], shape[1]);
                values.insert(format!("blk.{}.ffn_down.weight", stem.rsplit('.').next().unwrap()), packed.values);
                all.extend(
                    packed
                        .tensors
                        .into_iter()
                        .map(|(part, dtype, shape, data)| (format!("{stem}.mlp.down_proj.{part}"), dtype, shape, data)),
                );
            }
            None => all.push((name, tensor.dtype(), shape, data)),
        }
    }
    let views = all.iter().map(|(name, dtype, shape, data)| (name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
    std::fs::write(folder.join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    let own = std::fs::read_to_string(oracle.join("config.json")).unwrap();
    let end = own.rfind('}').unwrap();
    std::fs::write(folder.join("config.json"), format!("{}, \"quantization_config\": {config} }}", &own[..end])).unwrap();
    values
}

const GPTQ: &str = r#"{ "quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": false }"#;
const GPTQ2: &str = r#"{ "quant_method": "gptq", "bits": 4, "group_size": 16, "checkpoint_format": "gptq_v2" }"#;
const AWQ: &str = r#"{ "quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemm", "zero_point": true }"#;
const FP8: &str = r#"{ "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [24, 40] }"#;

#[test]
fn packed_matrices_have_their_values() {
    let mut random = Random::new(seed());
    for number in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let expected = match number {
            0 => make(folder.path(), GPTQ, &mut |rows, columns| gptq(rows, columns, 16, true, false, &mut random)),
            1 => make(folder.path(), GPTQ, &mut |rows, columns| gptq(rows, columns, 16, true, true, &mut random)),
            2 => make(folder.path(), GPTQ2, &mut |rows, columns| gptq(rows, columns, 16, false, false, &mut random)),
            3 => make(folder.path(), AWQ, &mut |rows, columns| awq(rows, columns, 16, &mut random)),
            _ => make(folder.path(), FP8, &mut |rows, columns| fp8(rows, columns, &mut random)),
        };
        assert!(expected.len() >= 2);
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let gguf = folder.path().join("model.gguf");
        checkpoint.write_gguf(&gguf, None, |_, _| ()).unwrap();
        let gguf = Checkpoint::open(&gguf).unwrap();
        let kind = Kind::Plain(if number == 4 { DType::Bf16 } else { DType::F16 });
        for (name, values) in expected {
            for checkpoint in [&checkpoint, &gguf] {
                assert_eq!(checkpoint.infos().find(|info| info.name == name).unwrap().kind, kind);
                assert_eq!(checkpoint.get(&name).unwrap().kind, kind);
                assert_eq!(checkpoint.get_f32(&name).unwrap(), values, "{number}: {name} of {}", checkpoint.path());
            }
        }
    }
}

#[test]
fn damaged_packed_matrices_are_errors() {
    let mut random = Random::new(seed());
    let mut refuse = |config: &str, change: &dyn Fn(&mut Packed), fp8_too: bool, expected: &str| {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path(), config, &mut |rows, columns| {
            let mut packed = if fp8_too { fp8(rows, columns, &mut random) } else { gptq(rows, columns, 16, true, true, &mut random) };
            change(&mut packed);
            packed
        });
        let error = Checkpoint::open(folder.path()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    };
    let remove = |part: &'static str| move |packed: &mut Packed| packed.tensors.retain(|tensor| tensor.0 != part);
    refuse(GPTQ, &remove("scales"), false, "scales`: missing");
    refuse(GPTQ, &remove("qzeros"), false, "qzeros`: missing");
    refuse(GPTQ, &remove("qweight"), false, "missing");
    refuse(GPTQ, &|packed| packed.tensors[3].3[3] = 0x7f, false, "out of range");
    refuse(GPTQ, &|packed| packed.tensors[0].2.swap(0, 1), false, "expected i32 of shape");
    refuse(FP8, &remove("weight_scale_inv"), true, "weight_scale_inv`: missing");
    refuse(FP8, &|packed| packed.tensors[1].2 = vec![9, 1], true, "expected f32 or bf16 of shape");
    refuse(&FP8.replace("[24, 40]", "[0, 40]"), &|_| (), true, "two positive numbers");
    refuse(&FP8.replace("e4m3", "e5m2"), &|_| (), true, "expected e4m3");
    refuse(&GPTQ.replace("\"bits\": 4", "\"bits\": 3"), &|_| (), false, "expected 4");
    refuse(&GPTQ.replace("16", "0"), &|_| (), false, "group_size");
    refuse(&GPTQ.replace("gptq", "bitsandbytes"), &|_| (), false, "unsupported method bitsandbytes");
    refuse(AWQ, &|_| (), false, "expected i32 of shape");
}
