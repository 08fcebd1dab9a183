//! Models with random weights, for benchmarks and tests.

use std::collections::HashMap;
use std::thread;

use half::{bf16, f16};
use warpwave_kernels::{DType, Glu, Quant, RopePairs};
use warpwave_weights::Kind;

use super::error::{Result, bad_key};
use super::tensors::Forms;
use super::{Checkpoint, Source, TensorSpec, Weight, tensor_specs};
use crate::config::{Config, Family, NormKind, RopeConfig};

impl Config {
    /// Returns the architecture of Llama 3.1 8B.
    pub fn llama_8b() -> Config {
        Config {
            family: Family::Llama,
            name: Some("Llama 3.1 8B with random weights".to_owned()),
            vocab: 128_256,
            hidden: 4096,
            layers: 32,
            heads: 32,
            kv_heads: 8,
            head_dim: 128,
            feed_forward: 14_336,
            context: 131_072,
            norm: NormKind::Rms,
            norm_eps: 1e-5,
            parallel: false,
            rope: RopeConfig::plain(500_000.0, 128),
            rope_sliding: None,
            pairs: RopePairs::Interleaved,
            sliding_window: None,
            sliding_layers: vec![false; 32],
            attention_scale: 128f32.sqrt().recip(),
            attention_softcap: None,
            logit_softcap: None,
            embedding_scale: 1.0,
            residual_scale: 1.0,
            logit_scale: 1.0,
            glu: Glu::Silu,
            gated: true,
            mla: None,
            moe: None,
            bos: None,
            eos: Vec::new(),
        }
    }
}

impl Checkpoint {
    /// Creates a model with random weights; `kind` is `bf16`, `Q8_0` or `Q4_K`.
    pub fn random(config: Config, kind: Kind) -> Result<Checkpoint> {
        let path = config.name.clone().unwrap_or_else(|| "random weights".to_owned());
        if !matches!(kind, Kind::Plain(DType::Bf16) | Kind::Quant(Quant::Q4K | Quant::Q8_0)) {
            return Err(bad_key(&path, "weights", format!("random weights must be bf16, q8_0 or q4_k, got {kind}")));
        }
        let all: Vec<(TensorSpec, String)> = tensor_specs(&config, Forms::of_config(&config, Some(false)))
            .into_iter()
            .filter(|spec| spec.required)
            .map(|spec| (spec, String::new()))
            .collect();
        if let Some((spec, _)) = all.iter().find(|(spec, _)| kind.bytes(&spec.shape).is_err() && spec.shape.len() > 1) {
            return Err(bad_key(
                &path,
                &spec.name,
                format!("cannot store a tensor of shape {:?} as {kind}: the row length is not a multiple of the block size", spec.shape),
            ));
        }
        let by_name: HashMap<String, usize> = all.iter().enumerate().map(|(index, (spec, _))| (spec.name.clone(), index)).collect();
        Ok(Checkpoint { path, config, source: Source::Random { kind }, tensors: all, by_name })
    }
}

/// Random weights: norms are 1, matrices keep the magnitude of their input.
pub(super) fn weight(name: &str, shape: &[usize], kind: Kind) -> Weight<'static> {
    let Some((columns, outer)) = shape.split_last().filter(|(_, outer)| !outer.is_empty()) else {
        let ones: Vec<u8> = std::iter::repeat_n(1f32.to_le_bytes(), shape.iter().product()).flatten().collect();
        return Weight { kind: Kind::Plain(DType::F32), shape: shape.to_vec(), bytes: ones.into() };
    };
    let (rows, columns): (usize, usize) = (outer.iter().product(), *columns);
    let seed = name.bytes().fold(0x9E37_79B9_7F4A_7C15u64, |seed, byte| (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    let size = 1.0 / (columns as f32).sqrt();
    let mut bytes = vec![0u8; kind.bytes(shape).unwrap_or(0)];
    let row = (bytes.len() / rows.max(1)).max(1);
    let fill = |number: usize, row: &mut [u8]| {
        // Rows must differ, or their products would be equal.
        let mut state = (seed ^ (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)).max(1);
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        match kind {
            Kind::Plain(_) => {
                for element in row.chunks_exact_mut(2) {
                    let unit = (next() >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
                    element.copy_from_slice(&bf16::from_f32(unit * size * 1.7).to_le_bytes());
                }
            }
            Kind::Quant(quant) => {
                row.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&next().to_le_bytes()));
                // Codes are arbitrary; scales must be finite and of the right magnitude.
                let (scale, minimum) = if quant == Quant::Q8_0 { (size / 74.0, None) } else { (size / 150.0, Some(size / 20.0)) };
                for block in row.chunks_exact_mut(quant.block_bytes()) {
                    block[..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
                    if let Some(minimum) = minimum {
                        block[2..4].copy_from_slice(&f16::from_f32(minimum).to_le_bytes());
                    }
                }
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let each = rows.div_ceil(threads).max(1);
    thread::scope(|scope| {
        for (part, bytes) in bytes.chunks_mut(each * row).enumerate() {
            scope.spawn(move || bytes.chunks_exact_mut(row).enumerate().for_each(|(number, row)| fill(part * each + number, row)));
        }
    });
    Weight { kind, shape: shape.to_vec(), bytes: bytes.into() }
}
