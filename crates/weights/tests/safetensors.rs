//! Safetensors: files and folders are read, and what is wrong is named.

mod common;

use std::fs;

use common::{safetensors, small_safetensors};
use warpwave_kernels::DType;
use warpwave_weights::{Kind, Safetensors};

fn says(result: Result<Safetensors, warpwave_weights::Error>, words: &[&str]) {
    let error = result.expect_err("an invalid file").to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{error:?} should say {words:?}");
}

#[test]
fn a_file_made_by_hand_is_read() {
    let file = Safetensors::from_bytes("file", small_safetensors()).unwrap();
    assert_eq!(file.tensors().map(|tensor| tensor.name).collect::<Vec<_>>(), ["a", "b"]);
    let tensor = file.tensor("b").unwrap();
    assert_eq!((tensor.kind, tensor.shape, tensor.bytes), (Kind::Plain(DType::Bf16), &[2, 2][..], &(12..20).collect::<Vec<u8>>()[..]));
    assert!(file.tensor("c").is_none());
}

#[test]
fn every_cut_is_an_error() {
    let whole = small_safetensors();
    for length in 0..whole.len() {
        says(Safetensors::from_bytes("file", whole[..length].to_vec()), &["file: "]);
    }
}

#[test]
fn headers_are_checked() {
    let open = |header: &str, data: usize| Safetensors::from_bytes("file", safetensors(header, &vec![0; data]));
    assert!(open(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, 8).is_ok());
    says(open(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,7]}}"#, 7), &["header", "a"]);
    says(open(r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#, 8), &["header", "a"]);
    says(open(r#"{"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}}"#, 8), &["header", "F99"]);
    says(open(r#"{"a":{"dtype":"I8","shape":[8],"data_offsets":[0,8]}}"#, 8), &["`a`", "I8"]);
    says(open(r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}"#, 8), &["header"]);
    says(open(r#"{"a":{"dtype":"F32","shape":[0,18446744073709551615,9],"data_offsets":[0,0]}}"#, 0), &["file"]);
    let overlap = r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}}"#;
    says(open(overlap, 12), &["header", "b"]);
    says(Safetensors::from_bytes("file", u64::MAX.to_le_bytes().to_vec()), &["header"]);
    says(Safetensors::from_bytes("file", safetensors("{\"a\u{0}", &[])), &["header"]);
}

#[test]
fn folders_of_several_files_are_read_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    says(Safetensors::open(folder.path()), &["neither", "index.json"]);
    let one = |name: &str| safetensors(&format!(r#"{{"{name}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#), &[name.len() as u8]);
    let index = |map: &str| fs::write(path("model.safetensors.index.json"), format!(r#"{{"weight_map":{map}}}"#)).unwrap();
    fs::write(path("m-1.safetensors"), one("x")).unwrap();
    index(r#"{"x":"m-1.safetensors","yy":"m-2.safetensors"}"#);
    says(Safetensors::open(folder.path()), &["`yy`", "m-2.safetensors", "missing"]);
    fs::write(path("m-2.safetensors"), one("yy")).unwrap();
    let whole = Safetensors::open(folder.path()).unwrap();
    assert_eq!((whole.tensor("x").unwrap().bytes, whole.tensor("yy").unwrap().bytes), (&[1][..], &[2][..]));
    assert_eq!(whole.tensors().count(), 2);
    index(r#"{"x":"m-1.safetensors","yy":"m-1.safetensors","z":"m-2.safetensors"}"#);
    says(Safetensors::open(folder.path()), &["`yy`", "m-1.safetensors", "m-2.safetensors"]);
    index(r#"{"x":"m-1.safetensors","z":"m-1.safetensors"}"#);
    says(Safetensors::open(folder.path()), &["`z`", "no file"]);
    index(r#"{"x":"../m-1.safetensors"}"#);
    says(Safetensors::open(folder.path()), &["`x`", "not a plain file name"]);
    index(r#"{"x":7}"#);
    says(Safetensors::open(folder.path()), &["`x`", "7"]);
    index("[]");
    says(Safetensors::open(folder.path()), &["weight_map"]);
    fs::write(path("m-2.safetensors"), one("x")).unwrap();
    index(r#"{"x":"m-1.safetensors","yy":"m-2.safetensors"}"#);
    says(Safetensors::open(folder.path()), &["`x`", "duplicate"]);
}
