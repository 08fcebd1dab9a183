use super::*;

/// Returns a file with this version, header text and data.
fn file(version: u8, dict: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend([version, 0]);
    match version {
        1 => bytes.extend((dict.len() as u16).to_le_bytes()),
        _ => bytes.extend((dict.len() as u32).to_le_bytes()),
    }
    bytes.extend(dict.as_bytes());
    bytes.extend(data);
    bytes
}

fn dict(descr: &str, fortran: &str, shape: &str) -> String {
    format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n")
}

fn read_bytes(bytes: &[u8]) -> Result<Array, NpyError> {
    read(&mut &bytes[..])
}

fn message(bytes: &[u8]) -> String {
    read_bytes(bytes).unwrap_err().to_string()
}

fn message_for(dict: &str) -> String {
    message(&file(1, dict, &[]))
}

fn array(dtype: DType, shape: &[usize], bytes: &[u8]) -> Array {
    Array::new(dtype, shape.to_vec(), bytes.to_vec()).unwrap()
}

fn written(array: &Array) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes, array).unwrap();
    bytes
}

/// Each is the header `numpy.save` 2.4 wrote for such an array.
#[test]
fn headers_are_those_numpy_writes() {
    let golden = |dict: &str, total: usize| {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((total as u16 - 10).to_le_bytes());
        bytes.extend(dict.as_bytes());
        bytes.resize(total - 1, b' ');
        bytes.push(b'\n');
        bytes
    };
    assert_eq!(header::format("<f4", &[2, 3]), golden("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 128));
    assert_eq!(header::format("|b1", &[]), golden("{'descr': '|b1', 'fortran_order': False, 'shape': (), }", 128));
    assert_eq!(header::format("<u8", &[0]), golden("{'descr': '<u8', 'fortran_order': False, 'shape': (0,), }", 128));
    let ones = vec!["1"; 30].join(", ");
    let long = format!("{{'descr': '<i2', 'fortran_order': False, 'shape': ({ones}), }}");
    assert_eq!(header::format("<i2", &[1; 30]), golden(&long, 192));
}

#[test]
fn a_file_is_header_plus_data() {
    let bytes = written(&array(DType::F32, &[1], &1.0f32.to_le_bytes()));
    assert_eq!(bytes[..10], *b"\x93NUMPY\x01\x00v\x00");
    assert_eq!(bytes[10..68], *b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } ");
    assert_eq!(bytes[127..], *b"\n\x00\x00\x80\x3f");
}

#[test]
fn every_type_and_odd_shape_round_trips() {
    for dtype in dtypes() {
        for shape in [&[][..], &[0], &[5], &[2, 3], &[3, 0, 2], &[1; 64]] {
            let count = shape.iter().product::<usize>() * dtype.size();
            let original = array(dtype, shape, &(0..count as u8).collect::<Vec<_>>());
            assert_eq!(read_bytes(&written(&original)).unwrap(), original);
        }
    }
}

#[test]
fn descr_round_trips_and_agrees_with_the_size() {
    for dtype in dtypes() {
        let descr = header::descr(dtype).unwrap();
        assert_eq!(header::parse_descr(descr), Some((dtype, header::ByteOrder::Little)));
        assert!(descr.ends_with(&dtype.size().to_string()));
    }
    assert_eq!(dtypes().len(), 13);
}

#[test]
fn descr_byte_order_is_parsed() {
    assert_eq!(header::parse_descr(">f4"), Some((DType::F32, header::ByteOrder::Big)));
    assert_eq!(header::parse_descr("<V2"), Some((DType::Bf16, header::ByteOrder::Little)));
    for rejected in [">V2", "|f4", "=f4", "<f16", "<c8", "<U4", "<M8[ns]", "f4", "", "é", "|O"] {
        assert_eq!(header::parse_descr(rejected), None, "{rejected}");
    }
}

#[test]
fn types_without_a_numpy_type_are_not_written() {
    let error = write(&mut Vec::new(), &array(DType::F8E4M3, &[1], &[0x38])).unwrap_err();
    assert!(error.to_string().starts_with("f8e4m3 cannot be stored in a .npy file; expected one of u8, "), "{error}");
}

#[test]
fn all_three_versions_are_read() {
    for version in 1..=3 {
        let bytes = file(version, &dict("<i2", "False", "(2,)"), &[1, 0, 2, 0]);
        assert_eq!(read_bytes(&bytes).unwrap(), array(DType::I16, &[2], &[1, 0, 2, 0]));
    }
    assert_eq!(message(&file(4, "{}", &[])), "unsupported .npy version 4.0; expected 1.0, 2.0 or 3.0");
    assert_eq!(message(b"\x93NUMPY\x01\x01"), "unsupported .npy version 1.1; expected 1.0, 2.0 or 3.0");
}

#[test]
fn header_spelling_may_vary() {
    let spelling = "{\"shape\":( 2L , 1L ),\"descr\":\"|u1\",\"fortran_order\":False}";
    assert_eq!(read_bytes(&file(1, spelling, &[7, 8])).unwrap(), array(DType::U8, &[2, 1], &[7, 8]));
}

#[test]
fn big_endian_is_swapped() {
    let bytes = file(1, &dict(">i4", "False", "(2,)"), &[0, 0, 0, 1, 0, 0, 1, 0]);
    assert_eq!(read_bytes(&bytes).unwrap(), array(DType::I32, &[2], &[1, 0, 0, 0, 0, 1, 0, 0]));
}

#[test]
fn fortran_order_becomes_c_order() {
    // As numpy.save wrote asfortranarray(arange(6, dtype='>i2').reshape(2, 3)).
    let bytes = file(1, &dict(">i2", "True", "(2, 3)"), &[0, 0, 0, 3, 0, 1, 0, 4, 0, 2, 0, 5]);
    assert_eq!(read_bytes(&bytes).unwrap(), array(DType::I16, &[2, 3], &[0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0]));
    // (2, 3, 4): element [i, j, k] is at offset i + 2j + 6k.
    let bytes = file(1, &dict("|u1", "True", "(2, 3, 4)"), &(0..24).collect::<Vec<u8>>());
    let expected: Vec<u8> = (0..24).map(|c| c / 12 + 2 * (c / 4 % 3) + 6 * (c % 4)).collect();
    assert_eq!(read_bytes(&bytes).unwrap().bytes, expected);
    assert_eq!(read_bytes(&file(1, &dict("|u1", "True", "(2, 0)"), &[])).unwrap(), array(DType::U8, &[2, 0], &[]));
    assert_eq!(read_bytes(&file(1, &dict("|u1", "True", "()"), &[9])).unwrap(), array(DType::U8, &[], &[9]));
}

#[test]
fn bfloat16_is_two_raw_bytes() {
    let original = array(DType::Bf16, &[1], &[0x80, 0x3f]);
    assert!(written(&original)[10..].starts_with(b"{'descr': '|V2'"));
    assert_eq!(read_bytes(&file(1, &dict("<V2", "False", "(1,)"), &[0x80, 0x3f])).unwrap(), original);
    assert_eq!(read_bytes(&file(1, &dict("<u2", "False", "(1,)"), &[0x80, 0x3f])).unwrap().dtype, DType::U16);
}

#[test]
fn foreign_and_truncated_files_have_different_errors() {
    assert_eq!(message(b"PK\x03\x04 zip"), r#"not a .npy file: expected magic "\x93NUMPY", got "PK\x03\x04 zip""#);
    assert_eq!(message(b""), r#"not a .npy file: expected magic "\x93NUMPY", got """#);
    assert_eq!(message(b"\x93NUMPY\x01"), "truncated header: expected 8 bytes, got 7");
    assert_eq!(message(b"\x93NUMPY\x01\x00v"), "truncated header: expected 10 bytes, got 9");
    assert_eq!(message(b"\x93NUMPY\x01\x00v\x00{'de"), "truncated header: expected 128 bytes, got 14");
    assert_eq!(message(b"\x93NUMPY\x02\x00v\x00\x00\x00{"), "truncated header: expected 130 bytes, got 13");
    assert_eq!(message(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{"), "header too long: 4294967295 bytes; the maximum is 65535");
}

#[test]
fn data_length_must_match_the_header() {
    let header = dict("<f4", "False", "(2,)");
    assert_eq!(message(&file(1, &header, &[0; 7])), "truncated file: the header declares 8 bytes of data, but the file has 7");
    assert_eq!(message(&file(1, &header, &[0; 9])), "trailing data after the 8 bytes declared in the header");
    assert!(read_bytes(&file(1, &header, &[0; 8])).is_ok());
}

/// 64 TiB fits the address space but no machine: allocating it up front would give a different error.
#[test]
fn an_oversized_header_allocates_nothing() {
    let bytes = file(1, &dict("<f4", "False", "(17592186044416,)"), &[0; 4]);
    let expected = "truncated file: the header declares 70368744177664 bytes of data, but the file has 4";
    assert_eq!(message(&bytes), expected);
    let path = tempfile::NamedTempFile::new().unwrap();
    fs::write(&path, &bytes).unwrap();
    assert_eq!(read_file(path.path()).unwrap_err().error.to_string(), expected);
}

#[test]
fn impossible_shapes_are_rejected() {
    assert_eq!(
        message_for(&dict("<f4", "False", "(4294967296, 4294967296)")),
        "f32[4294967296,4294967296] exceeds the maximum array size of 140737488355328 bytes"
    );
    let many = format!("({})", "1, ".repeat(65));
    assert_eq!(message_for(&dict("<f4", "False", &many)), "too many dimensions: 65; the maximum is 64");
    for (shape, offset, expected) in [
        ("(-1,)", 51, "a dimension, or ')'"),
        ("(99999999999999999999,)", 51, "a dimension that fits in 64 bits"),
        ("(3)", 52, "',' after a single dimension"),
        ("(3, 4 5)", 56, "',' or ')'"),
        ("3", 50, "'(' and the shape"),
        ("None", 50, "'(' and the shape"),
    ] {
        assert_eq!(message_for(&dict("<f4", "False", shape)), format!("malformed header at byte {offset}: expected {expected}"), "{shape}");
    }
}

#[test]
fn unsupported_types_are_named() {
    assert_eq!(
        message_for(&dict("|O", "False", "(1,)")),
        "unsupported dtype 'object' (pickled Python objects); save the array with a numeric dtype"
    );
    assert_eq!(
        message_for(&dict("<c8", "False", "(1,)")),
        "unsupported NumPy type '<c8'; expected one of u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64, bool"
    );
    let records = "{'descr': [('x', '<f4'), ('y', '<f4')], 'fortran_order': False, 'shape': (1,), }";
    assert_eq!(message_for(records), "structured arrays are not supported; save each field separately");
}

#[test]
fn malformed_headers_report_the_offset() {
    let keys = "each of the keys 'descr', 'fortran_order' and 'shape' once";
    for (text, offset, expected) in [
        ("", 0, "'{'"),
        ("[]", 0, "'{'"),
        ("{descr: '<f4'}", 1, "a quoted key"),
        ("{'descr' '<f4'}", 9, "':'"),
        ("{'descr': 4}", 10, "a quoted type such as '<f4'"),
        ("{'descr': '<f4}", 15, "a closing quote"),
        ("{'descr': '<f4' 'shape'", 16, "',' or '}'"),
        ("{'fortran_order': 1, }", 18, "True or False"),
        ("{'descr': '<f4', 'descr': '<f4'}", 17, keys),
        ("{'name': '<f4'}", 1, ""),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': ()} x", 54, "nothing after '}'"),
    ] {
        let NpyError::Header { offset: found, expected: wanted } = read_bytes(&file(1, text, &[])).unwrap_err() else { panic!("{text}") };
        assert_eq!((found, wanted), (offset, if expected.is_empty() { keys } else { expected }), "{text}");
    }
    assert_eq!(message_for("{'descr': '<f4', 'shape': (), }"), "malformed header: missing key 'fortran_order'");
    assert_eq!(message_for("{}"), "malformed header: missing key 'descr'");
}

#[test]
fn inconsistent_arrays_are_not_written() {
    let mut out = Vec::new();
    let broken = Array { dtype: DType::F32, shape: vec![2], bytes: vec![0; 4] };
    assert_eq!(write(&mut out, &broken).unwrap_err().to_string(), "f32[2] needs 8 bytes, got 4");
    assert!(out.is_empty());
}

#[test]
fn files_are_replaced_atomically() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.npy");
    let first = array(DType::U8, &[2], &[1, 2]);
    write_file(&path, &first).unwrap();
    assert_eq!(read_file(&path).unwrap(), first);
    let second = array(DType::U8, &[1], &[3]);
    write_file(&path, &second).unwrap();
    assert_eq!(read_file(&path).unwrap(), second);

    let broken = Array { dtype: DType::U8, shape: vec![9], bytes: vec![] };
    assert!(write_file(&path, &broken).is_err());
    assert_eq!(read_file(&path).unwrap(), second);
    let names: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a.npy"], "no temporary file is left");
}

#[test]
fn a_file_error_names_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing.npy");
    let message = read_file(&missing).unwrap_err().to_string();
    assert!(message.starts_with(&format!("{}: ", missing.display())), "{message}");
    let nowhere = directory.path().join("no/such/place.npy");
    let message = write_file(&nowhere, &array(DType::U8, &[], &[0])).unwrap_err().to_string();
    assert!(message.starts_with(&format!("{}: ", nowhere.display())), "{message}");
}

#[cfg(unix)]
#[test]
fn links_are_followed_when_writing() {
    let directory = tempfile::tempdir().unwrap();
    let (target, link) = (directory.path().join("target.npy"), directory.path().join("link.npy"));
    let value = array(DType::U8, &[1], &[3]);
    fs::write(&target, b"old").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    write_file(&link, &value).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(read_file(&target).unwrap(), value);
    assert!(write_file(directory.path(), &value).is_err(), "a directory is not a file");
}

/// A pipe behind a link in `/proc`, which is what `/dev/stdout` is too.
#[cfg(target_os = "linux")]
#[test]
fn a_pipe_is_written_to_and_not_replaced() {
    use std::os::fd::AsRawFd;
    let (mut reader, writer) = io::pipe().unwrap();
    let value = array(DType::U8, &[1], &[3]);
    write_file(format!("/proc/self/fd/{}", writer.as_raw_fd()), &value).unwrap();
    drop(writer);
    assert_eq!(read(&mut reader).unwrap(), value);
}
