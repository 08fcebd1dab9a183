//! Fuzz tests of untrusted input: no panics, and accepted input round-trips.

use proptest::prelude::*;
use warpwave_cli::{
    array::{Array, byte_len},
    compare::compare,
    npy,
    spec::Spec,
};
use warpwave_kernels::DType;

fn any_dtype() -> impl Strategy<Value = DType> {
    proptest::sample::select(DType::ALL.to_vec())
}

/// Types that a `.npy` file can store.
fn any_npy_dtype() -> impl Strategy<Value = DType> {
    proptest::sample::select(npy::dtypes())
}

fn any_array() -> impl Strategy<Value = Array> {
    (any_npy_dtype(), prop::collection::vec(0..5usize, 0..5)).prop_flat_map(|(dtype, shape)| {
        let size = byte_len(dtype, &shape).unwrap();
        prop::collection::vec(any::<u8>(), size).prop_map(move |bytes| Array::new(dtype, shape.clone(), bytes).unwrap())
    })
}

fn written(array: &Array) -> Vec<u8> {
    let mut bytes = Vec::new();
    npy::write(&mut bytes, array).unwrap();
    bytes
}

/// A random edit of a sequence: overwrite, insert, remove or truncate at an index.
#[derive(Clone, Debug)]
enum Edit<T> {
    Set(prop::sample::Index, T),
    Insert(prop::sample::Index, T),
    Remove(prop::sample::Index),
    Truncate(prop::sample::Index),
}

fn any_edit<T: std::fmt::Debug + Clone>(element: impl Strategy<Value = T> + Clone) -> impl Strategy<Value = Edit<T>> {
    prop_oneof![
        4 => (any::<prop::sample::Index>(), element.clone()).prop_map(|(at, value)| Edit::Set(at, value)),
        2 => (any::<prop::sample::Index>(), element).prop_map(|(at, value)| Edit::Insert(at, value)),
        2 => any::<prop::sample::Index>().prop_map(Edit::Remove),
        1 => any::<prop::sample::Index>().prop_map(Edit::Truncate),
    ]
}

/// Applies edits within the first `reach` elements, where the header is.
fn apply<T: Clone>(sequence: &mut Vec<T>, edits: Vec<Edit<T>>, reach: usize) {
    for edit in edits {
        let length = sequence.len().min(reach);
        if length == 0 {
            return;
        }
        match edit {
            Edit::Set(at, value) => sequence[at.index(length)] = value,
            Edit::Insert(at, value) => sequence.insert(at.index(length), value),
            Edit::Remove(at) => drop(sequence.remove(at.index(length))),
            Edit::Truncate(at) => sequence.truncate(at.index(length)),
        }
    }
}

/// A written file with edits in its first bytes.
fn damaged_file() -> impl Strategy<Value = Vec<u8>> {
    (any_array(), prop::collection::vec(any_edit(header_byte()), 1..4)).prop_map(|(array, edits)| {
        let mut file = written(&array);
        apply(&mut file, edits, 90);
        file
    })
}

/// A file as another writer might produce it: the header text may be edited, its length field is correct.
fn foreign_file() -> impl Strategy<Value = Vec<u8>> {
    let order = proptest::sample::select(vec!["<", ">", "|"]);
    let fortran = proptest::sample::select(vec!["True", "False"]);
    let edits = prop::collection::vec(any_edit(header_byte()), 0..2);
    (any_array(), order, fortran, 1..=3u8, edits).prop_map(|(array, order, fortran, version, edits)| {
        let shape: String = array.shape.iter().map(|length| format!("{length},")).collect();
        let descr = &npy::descr(array.dtype).unwrap()[1..];
        let mut text = format!("{{'descr':'{order}{descr}','fortran_order':{fortran},'shape':({shape})}}").into_bytes();
        apply(&mut text, edits, usize::MAX);
        let length = (text.len() as u32).to_le_bytes();
        let length = if version == 1 { &length[..2] } else { &length[..] };
        [b"\x93NUMPY", &[version, 0][..], length, &text, &array.bytes].concat()
    })
}

/// Arbitrary bytes mixed with header characters, so that some edited headers still parse.
fn header_byte() -> impl Strategy<Value = u8> + Clone {
    prop_oneof![any::<u8>(), proptest::sample::select(b"0123456789,()' {}<>|fiubVOLTrueFalse".to_vec())]
}

fn number_text() -> impl Strategy<Value = String> + Clone {
    prop_oneof![
        any::<i64>().prop_map(|value| value.to_string()),
        (-300..300i32).prop_map(|value| value.to_string()),
        any::<u32>().prop_map(|value| format!("{value:#x}")),
        any::<f64>().prop_map(|value| value.to_string()),
        (-9.0..9.0f32).prop_map(|value| value.to_string()),
        proptest::sample::select(vec!["inf", "-inf", "nan", "true", "false", "0", "1e400", "-0.0"]).prop_map(str::to_owned),
    ]
}

/// Well-formed text; values may be out of range for the type.
fn spec_text() -> impl Strategy<Value = String> {
    let type_name = prop_oneof![
        any_dtype().prop_map(|dtype| dtype.to_string()),
        proptest::sample::select(vec!["half", "float", "double", "int", "uint"]).prop_map(str::to_owned),
    ];
    let init = prop_oneof![
        proptest::sample::select(vec!["", "=zeros", "=ones", "=iota", " = iota", "=@in.npy"]).prop_map(str::to_owned),
        number_text().prop_map(|value| format!("={value}")),
        (number_text(), number_text()).prop_map(|(start, step)| format!("=iota({start},{step})")),
        (any::<u64>(), number_text(), number_text()).prop_map(|(seed, lo, hi)| format!("=rand({seed}, {lo}, {hi})")),
        any::<u64>().prop_map(|seed| format!("=rand({seed})")),
    ];
    let shape = prop::collection::vec(0..9usize, 0..4).prop_map(|shape| format!("{shape:?}"));
    prop_oneof![
        1 => (type_name.clone(), number_text()).prop_map(|(name, value)| format!("{name}:{value}")),
        3 => (type_name, shape, init).prop_map(|(name, shape, init)| format!("{name}{shape}{init}")),
    ]
}

fn spec_char() -> impl Strategy<Value = char> + Clone {
    prop_oneof![any::<char>(), proptest::sample::select("0123456789.-+xe:[]()=@, KMiufbnatorzs\0\n".chars().collect::<Vec<_>>())]
}

/// Invariant for any text: an error with a valid offset, or a spec that round-trips and can be materialized.
fn check_spec(text: &str) -> Result<bool, TestCaseError> {
    let spec = match Spec::parse(text) {
        Ok(spec) => spec,
        Err(error) => {
            prop_assert!(text.is_char_boundary(error.offset()), "{text:?}: {error}");
            prop_assert_eq!(error.to_string().lines().count(), 3);
            return Ok(false);
        }
    };
    let shown = spec.to_string();
    prop_assert_eq!(&Spec::parse(&shown).map_err(|error| TestCaseError::fail(error.to_string()))?, &spec, "{} from {:?}", shown, text);
    if let Spec::Buffer(buffer) = &spec {
        let size = buffer.shape().and_then(|shape| byte_len(buffer.dtype(), shape).ok());
        if buffer.path().is_none() && size.is_some_and(|size| size <= 1 << 16) {
            let array = buffer.materialize().map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(Some(array.bytes.len()), size);
            prop_assert_eq!(&buffer.materialize().unwrap(), &array);
            prop_assert!(compare(&array, &array, 0.0).unwrap().is_match());
            if npy::descr(array.dtype).is_some() {
                prop_assert_eq!(&npy::read(&mut written(&array).as_slice()).unwrap(), &array);
            }
        }
    }
    Ok(true)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arrays_round_trip_through_a_file(array in any_array()) {
        prop_assert_eq!(npy::read(&mut written(&array).as_slice()).unwrap(), array);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), signed in any::<bool>(), version in 1..4u8) {
        let mut file = if signed { vec![0x93, b'N', b'U', b'M', b'P', b'Y', version, 0] } else { Vec::new() };
        file.extend(bytes);
        prop_assert!(npy::read(&mut file.as_slice()).is_err());
    }

    #[test]
    fn corrupt_files_are_errors_or_arrays(file in prop_oneof![damaged_file(), foreign_file()]) {
        if let Ok(read) = npy::read(&mut file.as_slice()) {
            prop_assert_eq!(read.check(), Ok(()));
            prop_assert!(read.bytes.len() < file.len());
            prop_assert_eq!(npy::read(&mut written(&read).as_slice()).unwrap(), read);
        }
    }

    #[test]
    fn truncation_and_trailing_bytes_are_detected(array in any_array(), cut in any::<prop::sample::Index>(), extra in any::<u8>()) {
        let mut file = written(&array);
        prop_assert!(npy::read(&mut &file[..cut.index(file.len())]).is_err());
        file.push(extra);
        let noticed = matches!(npy::read(&mut file.as_slice()), Err(npy::NpyError::TrailingBytes { .. }));
        prop_assert!(noticed);
    }

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>(), prefix in proptest::sample::select(vec!["", "f32:", "u8[", "f32[2]=", "i8[2]=rand(", "f16[2]=iota("])) {
        check_spec(&format!("{prefix}{text}"))?;
    }

    #[test]
    fn well_formed_text_round_trips(text in spec_text()) {
        check_spec(&text)?;
    }

    #[test]
    fn corrupt_text_is_an_error_or_a_spec(text in spec_text(), edits in prop::collection::vec(any_edit(spec_char()), 1..4)) {
        let mut characters: Vec<char> = text.chars().collect();
        apply(&mut characters, edits, usize::MAX);
        check_spec(&characters.into_iter().collect::<String>())?;
    }
}

/// Checks that the strategies produce enough valid input.
#[test]
fn the_fuzzing_reaches_accepted_input() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let accepted = (0..1_000).filter(|_| check_spec(&spec_text().new_tree(&mut runner).unwrap().current()).unwrap()).count();
    assert!((300..1_000).contains(&accepted), "{accepted} of 1000 specs accepted");
    let readable =
        (0..1_000).filter(|_| npy::read(&mut foreign_file().new_tree(&mut runner).unwrap().current().as_slice()).is_ok()).count();
    assert!((300..1_000).contains(&readable), "{readable} of 1000 files read");
}
