//! Mutated files are opened or rejected, never a panic. `WARPWAVE_FUZZ_SECONDS` sets the duration.

mod common;

use std::time::{Duration, Instant};

use warpwave_test_support::{Random, seed};
use warpwave_weights::{Gguf, Safetensors, Value};

/// Extreme values, as a hostile file would have them.
const EDGES: [u64; 12] = [0, 1, 7, 31, 32, 0x7fff_ffff, 0xffff_ffff, 1 << 32, 1 << 40, i64::MAX as u64, u64::MAX - 31, u64::MAX];

fn mutate(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8], texts: &[&str]) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len().max(1));
        match random.below(8) {
            0 if !bytes.is_empty() => bytes[at] = random.next_u64() as u8,
            1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            2 => {
                let value = EDGES[random.below(EDGES.len())].to_le_bytes();
                let width = [1, 4, 8][random.below(3)];
                bytes.iter_mut().skip(at).zip(value.into_iter().take(width)).for_each(|(byte, new)| *byte = new);
            }
            3 => bytes.truncate(at),
            4 => {
                // A chunk of another file.
                let (from, length) = (random.below(other.len().max(1)), random.below(64));
                let chunk: Vec<u8> = other.iter().skip(from).take(length).copied().collect();
                bytes.splice(at..at, chunk);
            }
            5 => drop(bytes.drain(at..(at + random.below(32)).min(bytes.len()))),
            6 => {
                let text = texts[random.below(texts.len())];
                bytes.splice(at..(at + random.below(12)).min(bytes.len()), text.bytes());
            }
            _ => {
                // A value close to the old one.
                let step = 1 + random.below(40) as u8;
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = byte.wrapping_add(step));
            }
        }
    }
}

fn fuzz(what: &str, seeds: &[Vec<u8>], texts: &[&str], mut open: impl FnMut(Vec<u8>) -> bool) {
    let seconds = std::env::var("WARPWAVE_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(2);
    let (mut random, end) = (Random::new(seed()), Instant::now() + Duration::from_secs(seconds));
    let (mut files, mut good) = (0u64, 0u64);
    while Instant::now() < end {
        for _ in 0..64 {
            let mut bytes = seeds[random.below(seeds.len())].clone();
            let other = &seeds[random.below(seeds.len())];
            mutate(&mut random, &mut bytes, other, texts);
            files += 1;
            good += u64::from(open(bytes));
        }
    }
    println!("{what}: {files} files, {good} of them opened");
    assert!(good > 0 && good < files, "{good} of {files} files were opened");
}

/// Visits all of a value; returns its number of elements.
fn count_elements(value: &Value<'_>) -> usize {
    match value {
        Value::Array(array) => {
            let items: Vec<usize> = array.items().map(|item| count_elements(&item)).collect();
            assert_eq!(items.len(), array.len(), "a validated array has all its items");
            items.iter().sum()
        }
        Value::Str(text) => text.chars().count(),
        _ => 1,
    }
}

#[test]
fn fuzz_gguf() {
    let seeds: Vec<Vec<u8>> = [2, 3].into_iter().map(common::small_gguf).collect();
    fuzz("gguf", &seeds, &["GGUF", "general.alignment", "\u{0}", "ü", "a"], |bytes| {
        let size = bytes.len();
        let Ok(file) = Gguf::from_bytes("file", bytes) else { return false };
        for (key, value) in file.metadata() {
            assert!(count_elements(&value) <= size);
            assert!(file.value(key).is_some(), "{key}");
            let _ = (file.get_u64(key).is_ok(), file.get_f32s(key).is_ok(), file.get_i64s(key).is_ok(), file.get_bools(key).is_ok());
            if let Ok(Some(texts)) = file.get_strs(key) {
                assert_eq!(texts.len(), texts.count());
            }
        }
        let total: usize = file.tensors().map(|tensor| tensor.bytes.len()).sum();
        assert!(total <= size, "tensors are inside the file and do not overlap");
        file.tensors().for_each(|tensor| assert_eq!(Ok(tensor.bytes.len()), tensor.kind.bytes(tensor.shape)));
        true
    });
}

#[test]
fn fuzz_safetensors() {
    let nothing = common::safetensors(r#"{"e":{"dtype":"F64","shape":[0,4],"data_offsets":[0,0]}}"#, &[]);
    let texts = ["\"a\"", "F8_E4M3", "18446744073709551615", "-1", "0", "[", "}", "[0,4294967296]", "\"dtype\"", ",", "1e9", "\\ud800"];
    fuzz("safetensors", &[common::small_safetensors(), nothing], &texts, |bytes| {
        let size = bytes.len();
        let Ok(file) = Safetensors::from_bytes("file", bytes) else { return false };
        let total: usize = file.tensors().map(|tensor| tensor.bytes.len()).sum();
        assert!(total <= size);
        file.tensors().for_each(|tensor| {
            assert_eq!(Ok(tensor.bytes.len()), tensor.kind.bytes(tensor.shape));
            assert_eq!(file.tensor(tensor.name), Some(tensor));
        });
        true
    });
}
