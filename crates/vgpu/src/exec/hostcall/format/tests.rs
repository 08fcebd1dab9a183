use std::ffi::{CString, c_char, c_int};

use super::*;

unsafe extern "C" {
    fn snprintf(out: *mut c_char, room: usize, format: *const c_char, ...) -> c_int;
}

/// A string as a message holds it.
fn words(text: &str) -> Vec<u64> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap())).collect()
}

fn ours(text: &str, arguments: &[u64]) -> String {
    let mut message = words(text);
    message.extend(arguments);
    String::from_utf8(format(&message)).unwrap()
}

/// What the C library writes for one argument, behind up to two stars.
macro_rules! theirs {
    ($text:expr, $($argument:expr),*) => {{
        let text = CString::new($text).unwrap();
        let mut room = vec![0u8; 4096];
        // SAFETY: the room's size is given, and each test names arguments that fit its format.
        let length = unsafe { snprintf(room.as_mut_ptr().cast(), room.len(), text.as_ptr(), $($argument),*) };
        room.truncate(usize::try_from(length).unwrap());
        String::from_utf8(room).unwrap()
    }};
}

const FLAGS: [&str; 14] = ["", "-", "+", " ", "#", "0", "-0", "+0", " 0", "#0", "+-", "# ", "#-", "+ #0"];
const SIZES: [&str; 14] = ["", "1", "5", "12", "30", ".", ".0", ".1", ".3", ".20", "8.3", "12.0", "3.8", "25.17"];

#[test]
fn integers_are_written_as_the_c_library_writes_them() {
    let values = [0u64, 1, 7, 8, 42, 255, 32768, 65535, 0x7fff_ffff, 0x8000_0000, u64::from(u32::MAX), 1 << 40, u64::MAX, 1 << 63];
    for flags in FLAGS {
        for size in SIZES {
            for length in ["", "hh", "h", "l", "ll", "z", "j", "t"] {
                for letter in ["d", "i", "u", "x", "X", "o"] {
                    let text = format!("[%{flags}{size}{length}{letter}]");
                    for value in values {
                        assert_eq!(ours(&text, &[value]), theirs!(text.as_str(), value), "{text} of {value:#x}");
                    }
                }
            }
        }
    }
}

fn rounds_up(value: f64) -> bool {
    [9.995, 99.9999999, 999_999.5, 0.000_099_999_95, 15.999_999_999_999_998].contains(&value)
}

#[test]
fn floats_are_written_as_the_c_library_writes_them() {
    let values = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        0.5,
        2.5,
        0.125,
        9.995,
        99.9999999,
        999_999.5,
        0.0001,
        0.000_099_999_95,
        123_456_789.0,
        1e15,
        1e100,
        1.0 / 3.0,
        f64::MIN_POSITIVE,
        5e-324,
        1.2e-310,
        f64::MAX,
        std::f64::consts::PI,
        15.999_999_999_999_998,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    for flags in FLAGS {
        for size in SIZES {
            for letter in ["f", "F", "e", "E", "g", "G", "a", "A"] {
                let text = format!("[%{flags}{size}{letter}]");
                // Some releases of glibc lose the zeros of %#g where rounding adds a digit.
                let certain = |value: &f64| !(flags.contains('#') && letter.eq_ignore_ascii_case("g") && rounds_up(*value));
                for value in values.into_iter().filter(certain) {
                    assert_eq!(ours(&text, &[value.to_bits()]), theirs!(text.as_str(), value), "{text} of {value:e}");
                }
            }
        }
    }
}

#[test]
fn rounding_that_adds_a_digit_keeps_the_zeros_that_are_asked_for() {
    let of = |text: &str, value: f64| ours(text, &[value.to_bits()]);
    assert_eq!(of("%#g", 999_999.5), "1.00000e+06");
    assert_eq!(of("%#.3g", 99.9999999), "100.");
    assert_eq!(of("%#.4g", 0.000_099_999_95), "0.0001000");
    assert_eq!(of("%#.1g", 9.995), "1.e+01");
}

#[test]
fn characters_strings_and_pointers_are_written_as_the_c_library_writes_them() {
    for flags in ["", "-"] {
        for size in SIZES {
            let (c, s, p) = (format!("[%{flags}{size}c]"), format!("[%{flags}{size}s]"), format!("[%{flags}{size}p]"));
            assert_eq!(ours(&c, &[65]), theirs!(c.as_str(), 65));
            for text in ["", "a", "seven b", "eight by", "nine byte", "a string of more than a packet's fifty-six bytes, and then some"] {
                let there = CString::new(text).unwrap();
                assert_eq!(ours(&s, &words(text)), theirs!(s.as_str(), there.as_ptr()));
            }
            for value in [0u64, 0x1234, u64::MAX] {
                assert_eq!(ours(&p, &[value]), theirs!(p.as_str(), value));
            }
        }
    }
}

#[test]
fn stars_take_widths_and_precisions_from_the_arguments() {
    for (width, precision) in [(0, 0), (10, 3), (-10, 3), (10, -1), (-10, -3)] {
        let slots = [width as u64 & 0xffff_ffff, precision as u64 & 0xffff_ffff, 1.5f64.to_bits()];
        assert_eq!(ours("[%*.*f]", &slots), theirs!("[%*.*f]", width, precision, 1.5f64));
        assert_eq!(ours("[%0*d]", &[slots[0], 42]), theirs!("[%0*d]", width, 42));
    }
}

#[test]
fn what_is_no_directive_stands_for_itself() {
    assert_eq!(ours("100%% sure", &[]), "100% sure");
    assert_eq!(ours("50%", &[]), "50%");
    assert_eq!(ours("%y %5.3", &[]), "%y %5.3");
    assert_eq!(ours("%hhhhlld|", &[1 << 40]), "1099511627776|");
}

#[test]
fn messages_that_lack_what_they_name_are_harmless() {
    assert_eq!(format(&[]), b"");
    assert_eq!(ours("%d %s %f %p", &[]), "0  0.000000 (nil)");
    // No end of the string, and no argument for it.
    assert_eq!(format(&[u64::from_le_bytes(*b"%d%s%d%d")]), b"000");
    assert_eq!(ours("%s|", &[0x4141_4141_4141_4141]), "AAAAAAAA|");
    assert_eq!(ours("%99999999999d", &[1]).len(), MOST);
    assert_eq!(ours("%*d", &[0x8000_0000, 1]).len(), MOST);
    assert_eq!(ours("%.*f", &[0x7fff_ffff, 0]).len(), MOST + 2);
    assert_eq!(ours("%#.65535g", &[1e-4f64.to_bits()]).len(), MOST + 2);
    assert_eq!(ours("a%nb", &[1]), "ab");
}
