//! Quantized blocks against gguf-py 0.19: `data/quantized_blocks.gguf` has random blocks of each type with zero, largest, smallest and
//! subnormal scales, and their values; and numbers with their MXFP4 blocks. The values of Q8_K, which gguf-py does not read, are products
//! of scale and code made with numpy.

#[path = "../../tensor/tests/common/mod.rs"]
mod common;

use warpwave_kernels::{DType, Quant};
use warpwave_tensor::{Matrix, Tensor, cpu};
use warpwave_test_support::workspace_root;
use warpwave_weights::{Gguf, Kind};

const TYPES: [Quant; 6] = [Quant::Q2K, Quant::Q3K, Quant::Q8K, Quant::Iq4Nl, Quant::Iq4Xs, Quant::Mxfp4];

fn file() -> Gguf {
    Gguf::open(workspace_root().join("crates/llm/tests/data/quantized_blocks.gguf")).unwrap()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Bits, but one for both zeros.
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| (value + 0.0).to_bits()).collect()
}

#[test]
fn blocks_have_the_values_of_gguf() {
    let file = file();
    for quant in TYPES {
        let name = quant.name().to_uppercase();
        let blocks = file.tensor(&format!("{name}.blocks")).unwrap();
        assert_eq!(blocks.kind, Kind::Quant(quant));
        let expected = floats(file.tensor(&format!("{name}.values")).unwrap().bytes);
        let mut found = vec![0.0; expected.len()];
        cpu::dequantize(quant, blocks.bytes, &mut found);
        assert!(expected.len() >= 2048 && expected.iter().any(|value| *value != 0.0));
        assert_eq!(bits(&found), bits(&expected), "{quant}");
        for device in common::devices() {
            // Rows of a block each, through the matrix's own layout.
            let (rows, columns) = (expected.len() / quant.block_size(), quant.block_size());
            let matrix = Matrix::quantized(quant, blocks.bytes, rows, columns, &device).unwrap();
            let ids: Vec<u32> = (0..rows as u32).collect();
            let ids = Tensor::new(&ids, &[rows], &device).unwrap();
            let found = matrix.embedding(&ids, DType::F32).unwrap().to_vec::<f32>().unwrap();
            assert_eq!(bits(&found), bits(&expected), "{quant} on {}", device.name());
        }
    }
}

#[test]
fn mxfp4_is_quantized_as_gguf_does() {
    let file = file();
    let x = floats(file.tensor("MXFP4.from").unwrap().bytes);
    let expected = file.tensor("MXFP4.quantized").unwrap().bytes;
    let mut found = vec![0; expected.len()];
    cpu::quantize(Quant::Mxfp4, &x, &mut found);
    // gguf-py wraps exponents below the smallest; here they are clamped.
    let mut compared = 0;
    for ((x, found), expected) in x.chunks(32).zip(found.chunks(17)).zip(expected.chunks(17)) {
        if x.iter().any(|x| x.abs() >= 2f32.powi(-125)) || x.iter().all(|x| *x == 0.0) {
            assert_eq!(found, expected, "{x:?}");
            compared += 1;
        }
    }
    assert!(compared > 50, "{compared}");
}
