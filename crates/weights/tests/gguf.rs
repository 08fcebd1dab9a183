//! GGUF files: what is written is read, and what is wrong is named.

mod common;

use std::borrow::Cow;
use std::fs;

use common::{Builder, small_gguf};
use warpwave_kernels::{DType, Quant};
use warpwave_weights::{Array, Error, Gguf, Kind, TensorInfo, Value, write_gguf};

/// The words of the error for these bytes.
fn error(bytes: Vec<u8>) -> String {
    Gguf::from_bytes("file", bytes).expect_err("an invalid file").to_string()
}

fn says(bytes: Vec<u8>, words: &[&str]) {
    let error = error(bytes);
    assert!(words.iter().all(|word| error.contains(word)), "{error:?} should say {words:?}");
}

#[test]
fn a_file_made_by_hand_is_read() {
    for version in [2, 3] {
        let file = Gguf::from_bytes("file", small_gguf(version)).unwrap();
        assert_eq!((file.version(), file.alignment()), (version, 32));
        assert_eq!(file.need_str("general.architecture").unwrap(), "llama");
        assert_eq!(file.need_strs("tokens").unwrap().collect::<Vec<_>>(), ["a", "", "ü▁"]);
        assert_eq!(file.need_u64("count").unwrap(), 7);
        assert_eq!(file.need_f32("eps").unwrap(), 0.5);
        assert_eq!(file.need_i64s("types").unwrap(), [1, -2, 3]);
        assert!(file.need_bool("flag").unwrap());
        let Some(Value::Array(nested)) = file.value("nested") else { panic!() };
        let inner = nested.items().map(|item| if let Value::Array(array) = item { array.len() } else { 99 });
        assert_eq!(inner.collect::<Vec<_>>(), [2, 0]);
        let tensor = file.tensor("b").unwrap();
        assert_eq!((tensor.kind, tensor.shape, tensor.bytes.len()), (Kind::Quant(Quant::Q8_0), &[2, 64][..], 4 * 34));
        assert_eq!(tensor.bytes, vec![7; 4 * 34]);
        let tensor = file.tensor("a").unwrap();
        assert_eq!((tensor.kind, tensor.shape), (Kind::Plain(DType::F32), &[3][..]));
        assert_eq!(tensor.bytes, [1f32, 2.0, 3.0].map(f32::to_le_bytes).concat());
        assert_eq!(file.tensors().map(|tensor| tensor.name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(file.metadata().count(), 7);
    }
}

#[test]
fn a_key_of_another_type_or_none_is_named() {
    let file = Gguf::from_bytes("file", small_gguf(3)).unwrap();
    let words = file.need_u64("tokens").unwrap_err().to_string();
    assert!(words.contains("`tokens`") && words.contains("array"), "{words}");
    let words = file.need_strs("nothing").unwrap_err().to_string();
    assert!(words.contains("`nothing`") && words.contains("missing"), "{words}");
    assert!(file.get_u64("nothing").unwrap().is_none());
    assert!(file.get_u64("eps").is_err() && file.get_f32s("types").is_err());
}

#[test]
fn every_cut_is_an_error() {
    let whole = small_gguf(3);
    for length in 0..whole.len() {
        let error = error(whole[..length].to_vec());
        assert!(error.starts_with("file: "), "{error}");
    }
}

#[test]
fn other_formats_and_versions_are_refused() {
    says(b"PK\x03\x04....".to_vec(), &["byte 0", "PK"]);
    for (version, word) in [(1u32, "convert the model again"), (4, "expected 2 or 3"), (3u32.swap_bytes(), "big-endian")] {
        says(small_gguf(version), &["byte 4", word]);
    }
}

#[test]
fn counts_beyond_the_file_are_refused_before_anything_is_taken() {
    let mut tensors = small_gguf(3);
    tensors[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    says(tensors, &["byte 8", "number of tensors", "18446744073709551615"]);
    let mut keys = small_gguf(3);
    keys[16..24].copy_from_slice(&(1u64 << 40).to_le_bytes());
    says(keys, &["byte 16", "number of keys"]);
    let key = |build: fn(&mut Vec<u8>)| {
        let mut value = Vec::new();
        build(&mut value);
        Builder::default().raw_key("long", &value).build(3)
    };
    says(key(|out| out.extend([8u32.to_le_bytes(), [0xff; 4], [0xff; 4]].concat())), &["key `long`", "18446744073709551615"]);
    says(key(|out| out.extend([[9, 0, 0, 0], [4, 0, 0, 0], [0xff; 4], [0x7f; 4]].concat())), &["length of key `long`"]);
    says(key(|out| out.extend([[9, 0, 0, 0], [13, 0, 0, 0], [0; 4], [0; 4]].concat())), &["key `long`", "type 13"]);
    says(key(|out| out.extend([[13, 0, 0, 0], [0; 4]].concat())), &["key `long`", "type 13"]);
    says(key(|out| out.extend([7, 0, 0, 0, 2])), &["key `long`", "expected a boolean"]);
}

#[test]
fn arrays_are_not_nested_without_end() {
    let mut value = 9u32.to_le_bytes().to_vec();
    for _ in 0..100_000 {
        value.extend(9u32.to_le_bytes());
        value.extend(1u64.to_le_bytes());
    }
    says(Builder::default().raw_key("deep", &value).build(3), &["key `deep`", "deep"]);
}

#[test]
fn texts_that_are_not_utf8_are_named() {
    let mut value = [9u32.to_le_bytes(), 8u32.to_le_bytes()].concat();
    value.extend(3u64.to_le_bytes());
    for text in [&b"good"[..], b"bad\xff", b"good"] {
        value.extend((text.len() as u64).to_le_bytes());
        value.extend(text);
    }
    says(Builder::default().raw_key("tokenizer.ggml.tokens", &value).build(3), &["`tokenizer.ggml.tokens`", "string 1", "not UTF-8"]);
}

#[test]
fn tensors_are_checked() {
    let with = |name: &str, dims: &[u64], kind: u32, offset: u64| {
        Builder::default().tensor("first", &[8], 0, 0).tensor(name, dims, kind, offset).data(vec![0; 256]).build(3)
    };
    assert!(Gguf::from_bytes("file", with("good", &[8], 0, 32)).is_ok());
    says(with("first", &[8], 0, 32), &["`first`", "duplicate"]);
    says(with("t", &[8], 0, 0), &["`first`", "overlap", "`t`"]);
    says(with("t", &[8], 0, 36), &["`t`", "36", "multiple of 32"]);
    says(with("t", &[64], 0, 32), &["`t`", "extend past the end of the file"]);
    says(with("t", &[8], 0, u64::MAX - 31), &["`t`", "extend past the end of the file"]);
    says(with("t", &[8], 16, 32), &["`t`", "16", "IQ2_XXS"]);
    says(with("t", &[8], 24, 32), &["`t`", "24", "I8"]);
    says(with("t", &[8], 77, 32), &["`t`", "77"]);
    says(with("t", &[33], 8, 32), &["`t`", "33", "block size 32"]);
    says(with("t", &[1, 1, 1, 1, 1], 0, 32), &["`t`", "5 dimensions"]);
    says(with("t", &[1 << 40, 1 << 40], 0, 32), &["`t`", "overflows"]);
    says(with("t", &[0, 1 << 40, 1 << 40], 0, 32), &["`t`", "overflows"]);
    says(with("t", &[u64::MAX], 8, 32), &["`t`", "block size"]);
    assert!(Gguf::from_bytes("file", with("none", &[0, 3], 0, 0)).is_ok(), "no elements overlap nothing");
    for alignment in [0u32, 3, 1 << 21] {
        says(Builder::default().key("general.alignment", alignment).build(3), &["general.alignment", "power of two"]);
    }
    says(Builder::default().key("twice", 1u32).key("twice", 2u32).build(3), &["`twice`", "duplicate"]);
}

fn info(name: &str, kind: Kind, shape: &[usize]) -> TensorInfo {
    TensorInfo { name: name.to_owned(), kind, shape: shape.to_vec() }
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let texts: Vec<String> = (0..1000).map(|i| format!("token {i} ü")).collect();
    for alignment in [32u32, 64, 8] {
        let metadata: Vec<(Cow<str>, Value)> = vec![
            ("general.alignment".into(), alignment.into()),
            ("text".into(), "a b".into()),
            ("texts".into(), Array::strs(texts.iter().map(String::as_str)).into()),
            ("floats".into(), Array::f32s([1.0, f32::MIN_POSITIVE]).into()),
            ("bools".into(), Array::bools([true, false]).into()),
            ("long".into(), u64::MAX.into()),
        ];
        let tensors = [
            info("one", Kind::Plain(DType::Bf16), &[3, 5]),
            info("two", Kind::Quant(Quant::Q4K), &[2, 3, 256]),
            info("three", Kind::Plain(DType::F32), &[]),
        ];
        let data: Vec<Vec<u8>> = tensors.iter().enumerate().map(|(i, t)| vec![i as u8 + 1; t.kind.bytes(&t.shape).unwrap()]).collect();
        let mut seen = Vec::new();
        let give = |index: usize| Ok::<_, Error>(Cow::from(&data[index]));
        write_gguf(&path, &metadata, &tensors, give, |done, total| seen.push((done, total))).unwrap();
        let total = 30 + 6 * 144 + 4;
        assert_eq!(seen, [(0, total), (30, total), (30 + 864, total), (total, total)]);
        let file = Gguf::open(&path).unwrap();
        assert_eq!((file.version(), file.alignment()), (3, alignment as usize));
        let read: Vec<_> = file.metadata().collect();
        assert!(read.iter().zip(&metadata).all(|((key, value), (k, v))| key == k && value == v) && read.len() == metadata.len());
        assert!(file.need_strs("texts").unwrap().eq(texts.iter()));
        assert_eq!(file.need_bools("bools").unwrap(), [true, false]);
        for ((tensor, info), data) in file.tensors().zip(&tensors).zip(&data) {
            assert_eq!((tensor.name, tensor.kind, tensor.shape, tensor.bytes), (&*info.name, info.kind, &*info.shape, &**data));
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_failed_write_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, "old").unwrap();
    let tensors = [info("a", Kind::Plain(DType::F32), &[4]), info("b", Kind::Plain(DType::F32), &[4])];
    let bad_key = Error::Invalid { path: String::new(), location: String::new(), reason: "enough".into() };
    let mut bad_key = Some(bad_key);
    let give = |index: usize| if index == 0 { Ok(Cow::from(vec![0; 16])) } else { Err(bad_key.take().unwrap()) };
    assert!(write_gguf(&path, &[], &tensors, give, |_, _| ()).unwrap_err().to_string().contains("enough"));
    let short = write_gguf(&path, &[], &tensors, |_| Ok::<_, Error>(Cow::from(vec![0; 15])), |_, _| ()).unwrap_err().to_string();
    assert!(short.contains("`a`") && short.contains("15") && short.contains("16"), "{short}");
    let int8 = [info("c", Kind::Quant(Quant::Int8), &[32])];
    let none = write_gguf(&path, &[], &int8, |_| Ok::<_, Error>(Cow::from(vec![])), |_, _| ()).unwrap_err().to_string();
    assert!(none.contains("`c`") && none.contains("int8"), "{none}");
    assert_eq!((fs::read(&path).unwrap().as_slice(), fs::read_dir(folder.path()).unwrap().count()), (&b"old"[..], 1));
}

#[test]
fn a_vocabulary_of_256_000_is_quick() {
    let texts: Vec<String> = (0..256_000).map(|i| format!("tok{i}")).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vocab.gguf");
    let metadata = [("tokens".into(), Array::strs(texts.iter().map(String::as_str)).into())];
    write_gguf(&path, &metadata, &[], |_| Ok::<_, Error>(Cow::from(vec![])), |_, _| ()).unwrap();
    let start = std::time::Instant::now();
    let file = Gguf::open(&path).unwrap();
    assert_eq!(file.need_strs("tokens").unwrap().map(str::len).sum::<usize>(), texts.iter().map(String::len).sum::<usize>());
    assert!(start.elapsed().as_millis() < 1000, "{:?}", start.elapsed());
}

#[test]
fn folders_and_missing_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Gguf::open(folder.path()).unwrap_err().to_string().contains("not a regular file"));
    assert!(Gguf::open(folder.path().join("none.gguf")).unwrap_err().to_string().contains("none.gguf"));
    let empty = folder.path().join("empty.gguf");
    fs::write(&empty, "").unwrap();
    assert!(Gguf::open(empty).unwrap_err().to_string().contains("too short"));
}
