use super::*;
use crate::{array::format_values, npy};

fn parsed(text: &str) -> Spec {
    Spec::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn array(text: &str) -> Array {
    let Spec::Buffer(buffer) = parsed(text) else { panic!("{text} is not a buffer") };
    buffer.materialize().unwrap_or_else(|error| panic!("{error}"))
}

/// All values, without type and shape.
fn values(text: &str) -> String {
    let shown = format_values(&array(text), usize::MAX);
    shown.split_once(" = ").unwrap().1.to_owned()
}

/// Offset and message of the error.
fn error(text: &str) -> (usize, String) {
    let error = Spec::parse(text).unwrap_err();
    (error.offset(), error.message().to_owned())
}

#[track_caller]
fn assert_error(text: &str, offset: usize, message: &str) {
    assert_eq!(error(text), (offset, message.to_owned()), "{text}");
}

#[test]
fn scalars_carry_type_and_bytes() {
    let Spec::Scalar(value) = parsed("f32:2.5") else { panic!() };
    assert_eq!((value.dtype(), value.bytes()), (DType::F32, &2.5f32.to_le_bytes()[..]));
    let Spec::Scalar(value) = parsed("i32:-7") else { panic!() };
    assert_eq!(value.bytes(), (-7i32).to_le_bytes());
    for (text, canonical) in [
        ("u64:1", "u64:1"),
        ("bool:true", "bool:true"),
        ("u32:0xff", "u32:255"),
        ("f32:inf", "f32:inf"),
        ("f32:-inf", "f32:-inf"),
        ("f32:nan", "f32:nan"),
        ("float:1e9", "f32:1000000000.0"),
        ("half:0.1", "f16:0.099975586"),
    ] {
        assert_eq!(parsed(text).to_string(), canonical);
    }
}

#[test]
fn an_error_marks_its_position() {
    assert_eq!(Spec::parse("u8:300").unwrap_err().to_string(), "300 does not fit in u8 (0 to 255)\n  u8:300\n     ^");
    assert_eq!(
        Spec::parse("f33[4]").unwrap_err().to_string(),
        "unknown type \"f33\"; valid types: u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2, bool\n  f33[4]\n  ^"
    );
    // Columns count characters; a control character takes one.
    assert_eq!(Spec::parse("f32[4]=\té,").unwrap_err().to_string().split_once('\n').unwrap().1, "  f32[4]=\u{fffd}é,\n         ^");
    assert_eq!(Spec::parse("f32:é").unwrap_err().to_string().lines().last().unwrap(), "      ^");
    assert_eq!(Spec::parse("é").unwrap_err().offset(), 0);
}

#[test]
fn the_type_comes_first() {
    assert_error("f32", 3, "expected ':' and a value, or '[' and a shape, after type f32");
    assert_eq!(error("").0, 0);
    assert!(error("").1.starts_with("unknown type \"\"; valid types: u8, "));
    assert!(error("2.5").1.starts_with("unknown type \"2.5\""));
}

#[test]
fn shapes_take_dimensions_and_units() {
    for (text, shape) in [
        ("u8[3]", &[3][..]),
        ("u8[2K]", &[2048]),
        ("u8[1M,0]", &[1048576, 0]),
        ("u8[64, 32]", &[64, 32]),
        ("u8 [ 1 , 2 ] = ones ", &[1, 2]),
    ] {
        let Spec::Buffer(buffer) = parsed(text) else { panic!() };
        assert_eq!(buffer.shape(), Some(shape), "{text}");
    }
    assert_error("u8[x]", 3, "expected a size such as 1024, 4K or 1M, got \"x\"");
    assert_error("u8[4,]", 5, "expected a size such as 1024, 4K or 1M, got \"\"");
    assert_error("u8[-4]", 3, "expected a size such as 1024, 4K or 1M, got \"-4\"");
    assert_error("u8[K]", 3, "expected a size such as 1024, 4K or 1M, got \"K\"");
    assert_error("u8[4k]", 3, "expected a size such as 1024, 4K or 1M, got \"4k\"");
    assert_error("u8[4", 4, "expected ',' or ']'");
    assert_error("u8[4 5]", 5, "expected ',' or ']'");
    assert_error("u8[4]x", 5, "expected '=' and an initial value, or the end of the argument");
    assert_error("u8[4]=1 2", 8, "unexpected trailing text");
}

#[test]
fn impossible_sizes_are_rejected_before_allocating() {
    assert_error("u8[99999999999999999999]", 3, "size 99999999999999999999 does not fit in 64 bits");
    assert_error("u8[99999999999999M]", 3, "size 99999999999999M does not fit in 64 bits");
    let message = "f32[1099511627776,1099511627776] exceeds the maximum array size of 140737488355328 bytes";
    assert_error("f32[1048576M,1048576M]", 4, message);
    assert_error(&format!("u8[{}1]", "1,".repeat(64)), 3, "too many dimensions: 65; the maximum is 64");
}

/// Within the limit, but never available as one block in an address space of that size: an error, not an abort.
#[cfg(target_arch = "x86_64")]
#[test]
fn out_of_memory_is_an_error() {
    let Spec::Buffer(buffer) = parsed("u8[134217727M]") else { panic!() };
    let message = buffer.materialize().unwrap_err().to_string();
    assert_eq!(message, "out of memory: u8[140737487306752] needs 140737487306752 bytes");
}

#[test]
fn constants_fill_every_element() {
    assert_eq!(values("f32[3]"), "0.0, 0.0, 0.0");
    assert_eq!(values("i16[2]=zeros"), "0, 0");
    assert_eq!(values("bf16[2]=ones"), "1.0, 1.0");
    assert_eq!(values("bool[2]=ones"), "true, true");
    assert_eq!(values("f32[2]=3.5"), "3.5, 3.5");
    assert_eq!(values("u8[2,1]=0x10"), "16, 16");
    assert_eq!(values("f64[1]=-inf"), "-inf");
    assert_eq!(values("f16[0]=1"), "(no values)");
    assert_eq!(array("f32[2,3]").shape, [2, 3]);
    assert_error("u8[4]=256", 6, "256 does not fit in u8 (0 to 255)");
    assert_error("u8[4]=randd", 6, "expected zeros, ones, iota, rand(SEED), @FILE or a value of type u8, got \"randd\"");
}

#[test]
fn iota_counts_from_start_by_step() {
    assert_eq!(values("f32[4]=iota"), "0.0, 1.0, 2.0, 3.0");
    assert_eq!(values("i8[2,2]=iota(-1)"), "-1, 0, 1, 2");
    assert_eq!(values("u8[3]=iota(10,-5)"), "10, 5, 0");
    assert_eq!(values("f64[3]=iota( 0.5 , 0.25 )"), "0.5, 0.75, 1.0");
    assert_eq!(values("f16[2]=iota(2049,2)"), "2048.0, 2052.0", "ties go to even");
    assert_eq!(values("u64[2]=iota(18446744073709551614)"), "18446744073709551614, 18446744073709551615");
    assert_eq!(values("u8[0]=iota(300)"), "(no values)");
}

#[test]
fn iota_stays_within_the_type() {
    assert_eq!(array("u8[256]=iota").bytes, (0..=255).collect::<Vec<u8>>());
    assert_error("u8[257]=iota", 8, "last element: 256 does not fit in u8 (0 to 255)");
    assert_error("u8[3]=iota(1,-1)", 6, "last element: -1 does not fit in u8 (0 to 255)");
    assert_error("u8[3]=iota(300,-100)", 6, "first element: 300 does not fit in u8 (0 to 255)");
    assert_error("f16[3]=iota(0,40000)", 7, "last element: 80000.0 does not fit in f16 (largest finite value 65504)");
    assert!(error("f64[3]=iota(0,1e308)").1.starts_with("last element: inf does not fit in f64"));
    assert!(error("i8[2]=iota(0,99999999999999999999)").1.starts_with("99999999999999999999 does not fit in i8"));
    assert_error("f32[3]=iota(nan)", 12, "expected a finite number, got \"nan\"");
    assert_error("f32[3]=iota(1,2", 15, "expected ')', as in iota(START,STEP)");
    assert_error("i32[3]=iota()", 12, "expected an integer such as 7, -7 or 0xff, got \"\"");
}

/// These values must not change: users and tests depend on them. They were computed from the documented rule by an independent
/// program.
#[test]
fn random_values_never_change() {
    assert_eq!(values("u64[2]=rand(0)"), "16294208416658607535, 7960286522194355700");
    assert_eq!(values("i8[4]=rand(0)"), "-30, 110, 6, -8");
    assert_eq!(values("f32[2]=rand(1234567)"), "0.35007954, 0.17364407");
    assert_eq!(values("f64[2]=rand(1234567)"), "0.3500795420214081, 0.17364409667091263");
    assert_eq!(values("f16[2]=rand(1234567)"), "0.34960938, 0.17333984");
    assert_eq!(values("bf16[2]=rand(1234567)"), "0.34765625, 0.171875");
    assert_eq!(values("bool[5]=rand(1234567)"), "false, false, true, false, true");
    assert_eq!(values("i32[5]=rand(1234567,-10,10)"), "-3, -7, 0, -6, 7");
    assert_eq!(values("f32[2]=rand(1234567,-1,1)"), "-0.29984093, -0.6527118");
}

#[test]
fn random_values_cover_their_range_and_stay_in_it() {
    let small = array("u8[4K]=rand(7,3,6)");
    assert!([3, 4, 5].iter().all(|value| small.bytes.contains(value)));
    assert!(small.bytes.iter().all(|value| (3..6).contains(value)));
    let full = array("u8[16K]=rand(7)");
    assert!((0..=255).all(|value| full.bytes.contains(&value)));
    let mean = array("f32[16K]=rand(7)").iter().map(|value| value.to_f64()).sum::<f64>() / 16384.0;
    assert!((mean - 0.5).abs() < 0.01, "{mean}");
    assert!(array("f16[16K]=rand(7,1,1.25)").iter().all(|value| (1.0..1.25).contains(&value.to_f64())));
    assert_ne!(array("u64[4]=rand(1)"), array("u64[4]=rand(2)"));
}

#[test]
fn random_arguments_are_checked() {
    assert_error("f32[2]=rand", 11, "expected '(' and a seed, as in rand(42)");
    assert_error("f32[2]=rand(-1)", 12, "-1 does not fit in u64 (0 to 18446744073709551615)");
    assert_error("f32[2]=rand(1,2)", 15, "expected ',' and the upper bound, as in rand(SEED,LO,HI)");
    assert_error("f32[2]=rand(1,2,3", 17, "expected ')', as in rand(SEED) or rand(SEED,LO,HI)");
    assert_error("f32[2]=rand(1,2,2)", 16, "expected an upper bound greater than 2.0, got 2.0");
    assert_error("f16[2]=rand(1,1,1.0001)", 16, "expected an upper bound greater than 1.0, got 1.0");
    assert_error("u8[2]=rand(1,0,257)", 15, "257 does not fit in u8 (0 to 255)");
    assert_error("u8[2]=rand(1,-1,4)", 13, "-1 does not fit in u8 (0 to 255)");
    assert_error("f64[2]=rand(1,-1e308,1e308)", 21, "expected HI - LO to be finite");
    assert_error("f32[2]=rand(1,0,inf)", 16, "expected a finite number, got \"inf\"");
    assert!(Spec::parse("u64[1]=rand(1,18446744073709551615,18446744073709551616)").is_ok());
}

fn saved(dtype: DType, shape: &[usize], bytes: &[u8]) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("in [1], (2)=.npy");
    npy::write_file(&path, &Array::new(dtype, shape.to_vec(), bytes.to_vec()).unwrap()).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (directory, path)
}

fn load(text: &str) -> Result<Array, MaterializeError> {
    let Spec::Buffer(buffer) = parsed(text) else { panic!("{text} is not a buffer") };
    buffer.materialize()
}

#[test]
fn files_must_match_the_requested_type_and_shape() {
    let (_directory, path) = saved(DType::I16, &[2, 1], &[1, 0, 2, 0]);
    assert_eq!(load(&format!("i16[2,1]=@{path}")).unwrap().bytes, [1, 0, 2, 0]);
    assert_eq!(load(&format!("i16[]=@{path}")).unwrap().shape, [2, 1]);
    let message = load(&format!("u16[2,1]=@{path}")).unwrap_err().to_string();
    assert_eq!(message, format!("{path}: expected u16, but the file has i16"));
    let message = load(&format!("i16[2]=@{path}")).unwrap_err().to_string();
    assert_eq!(message, format!("{path}: expected shape [2], but the file has [2,1]"));
    let message = load("f32[]=@/no/such/file.npy").unwrap_err().to_string();
    assert!(message.starts_with("/no/such/file.npy: "), "{message}");
}

#[test]
fn a_u16_file_is_accepted_as_bf16_but_not_vice_versa() {
    let (_directory, path) = saved(DType::U16, &[1], &[0x80, 0x3f]);
    assert_eq!(format_values(&load(&format!("bf16[]=@{path}")).unwrap(), 1), "bf16[1] = 1.0");
    assert!(matches!(load(&format!("f16[]=@{path}")), Err(MaterializeError::WrongDType { .. })));
    let (_directory, path) = saved(DType::Bf16, &[1], &[0x80, 0x3f]);
    assert!(matches!(load(&format!("u16[]=@{path}")), Err(MaterializeError::WrongDType { .. })));
    assert!(load(&format!("bf16[1]=@{path}")).is_ok());
}

#[test]
fn a_path_is_taken_verbatim() {
    let Spec::Buffer(buffer) = parsed("f32[] = @ a, b=[c].npy ") else { panic!() };
    assert_eq!(buffer.path(), Some(Path::new(" a, b=[c].npy ")));
    assert_error("f32[4]=@", 8, "expected the name of a .npy file");
    assert_error("f32[4]=@a\0b", 8, "expected the name of a .npy file");
}

#[test]
fn only_a_file_can_give_the_shape() {
    let message = "expected a shape such as 1024 or 64,32; it can be omitted only with =@FILE";
    assert_error("f32[]", 4, message);
    assert_error("f32[]=3.5", 4, message);
}

#[test]
fn text_parses_back_to_the_same_spec() {
    for text in [
        "f32:nan",
        "f64:-0.0",
        "u8[4]=zeros",
        "u8[4]=ones",
        "f16[2,2]=0.1",
        "f32[4]=iota(0.0,1.0)",
        "u64[2]=iota(5,-1)",
        "bf16[4]=rand(9)",
        "u8[4]=rand(9,0,256)",
        "f32[]=@in.npy",
        "f32[4]=@ spaced .npy",
    ] {
        let spec = parsed(text);
        assert_eq!(parsed(&spec.to_string()), spec, "{text}");
    }
    assert_eq!(parsed("float[1K]").to_string(), "f32[1024]=zeros");
    assert_eq!(parsed("f32[8]=iota").to_string(), "f32[8]=iota(0.0,1.0)");
}
