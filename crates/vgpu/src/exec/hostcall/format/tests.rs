use std::ffi::{CString, c_char, c_int};

use super::*;

unsafe extern "C" {
    fn snprintf(out: *mut c_char, buffer: usize, format: *const c_char, ...) -> c_int;
}

/// Returns a string as words of a message.
fn words(text: &str) -> Vec<u64> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap())).collect()
}

fn formatted(text: &str, arguments: &[u64]) -> String {
    let mut message = words(text);
    message.extend(arguments);
    String::from_utf8(format(&message)).unwrap()
}

/// Formats with the C library's `snprintf`.
macro_rules! c_printf {
    ($text:expr, $($argument:expr),*) => {{
        let text = CString::new($text).unwrap();
        let mut buffer = vec![0u8; 4096];
        // SAFETY: the buffer's size is passed, and the arguments match the format.
        let length = unsafe { snprintf(buffer.as_mut_ptr().cast(), buffer.len(), text.as_ptr(), $($argument),*) };
        buffer.truncate(usize::try_from(length).unwrap());
        String::from_utf8(buffer).unwrap()
    }};
}

const FLAGS: [&str; 14] = ["", "-", "+", " ", "#", "0", "-0", "+0", " 0", "#0", "+-", "# ", "#-", "+ #0"];
const SIZES: [&str; 14] = ["", "1", "5", "12", "30", ".", ".0", ".1", ".3", ".20", "8.3", "12.0", "3.8", "25.17"];

#[test]
fn integers_match_the_c_library() {
    let values = [0u64, 1, 7, 8, 42, 255, 32768, 65535, 0x7fff_ffff, 0x8000_0000, u64::from(u32::MAX), 1 << 40, u64::MAX, 1 << 63];
    for flags in FLAGS {
        for size in SIZES {
            for length in ["", "hh", "h", "l", "ll", "z", "j", "t"] {
                for letter in ["d", "i", "u", "x", "X", "o"] {
                    let text = format!("[%{flags}{size}{length}{letter}]");
                    for value in values {
                        assert_eq!(formatted(&text, &[value]), c_printf!(text.as_str(), value), "{text} of {value:#x}");
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
fn floats_match_the_c_library() {
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
                // Some releases of glibc drop the zeros of %#g where rounding adds a digit.
                let certain = |value: &f64| !(flags.contains('#') && letter.eq_ignore_ascii_case("g") && rounds_up(*value));
                for value in values.into_iter().filter(certain) {
                    assert_eq!(formatted(&text, &[value.to_bits()]), c_printf!(text.as_str(), value), "{text} of {value:e}");
                }
            }
        }
    }
}

#[test]
fn rounding_to_another_digit_keeps_the_zeros_of_the_alternate_form() {
    let of = |text: &str, value: f64| formatted(text, &[value.to_bits()]);
    assert_eq!(of("%#g", 999_999.5), "1.00000e+06");
    assert_eq!(of("%#.3g", 99.9999999), "100.");
    assert_eq!(of("%#.4g", 0.000_099_999_95), "0.0001000");
    assert_eq!(of("%#.1g", 9.995), "1.e+01");
}

#[test]
fn characters_strings_and_pointers_match_the_c_library() {
    for flags in ["", "-"] {
        for size in SIZES {
            let (c, s, p) = (format!("[%{flags}{size}c]"), format!("[%{flags}{size}s]"), format!("[%{flags}{size}p]"));
            assert_eq!(formatted(&c, &[65]), c_printf!(c.as_str(), 65));
            for text in ["", "a", "seven b", "eight by", "nine byte", "a string of more than a packet's fifty-six bytes, and then some"] {
                let there = CString::new(text).unwrap();
                assert_eq!(formatted(&s, &words(text)), c_printf!(s.as_str(), there.as_ptr()));
            }
            for value in [0u64, 0x1234, u64::MAX] {
                assert_eq!(formatted(&p, &[value]), c_printf!(p.as_str(), value));
            }
        }
    }
}

#[test]
fn stars_take_widths_and_precisions_from_the_arguments() {
    for (width, precision) in [(0, 0), (10, 3), (-10, 3), (10, -1), (-10, -3)] {
        let slots = [width as u64 & 0xffff_ffff, precision as u64 & 0xffff_ffff, 1.5f64.to_bits()];
        assert_eq!(formatted("[%*.*f]", &slots), c_printf!("[%*.*f]", width, precision, 1.5f64));
        assert_eq!(formatted("[%0*d]", &[slots[0], 42]), c_printf!("[%0*d]", width, 42));
    }
}

#[test]
fn invalid_conversions_are_printed_as_they_are() {
    assert_eq!(formatted("100%% sure", &[]), "100% sure");
    assert_eq!(formatted("50%", &[]), "50%");
    assert_eq!(formatted("%y %5.3", &[]), "%y %5.3");
    assert_eq!(formatted("%hhhhlld|", &[1 << 40]), "1099511627776|");
}

#[test]
fn missing_arguments_are_zero() {
    assert_eq!(format(&[]), b"");
    assert_eq!(formatted("%d %s %f %p", &[]), "0  0.000000 (nil)");
    // An unterminated string without arguments.
    assert_eq!(format(&[u64::from_le_bytes(*b"%d%s%d%d")]), b"000");
    assert_eq!(formatted("%s|", &[0x4141_4141_4141_4141]), "AAAAAAAA|");
    assert_eq!(formatted("%99999999999d", &[1]).len(), MAX_WIDTH);
    assert_eq!(formatted("%*d", &[0x8000_0000, 1]).len(), MAX_WIDTH);
    assert_eq!(formatted("%.*f", &[0x7fff_ffff, 0]).len(), MAX_WIDTH + 2);
    assert_eq!(formatted("%#.65535g", &[1e-4f64.to_bits()]).len(), MAX_WIDTH + 2);
    assert_eq!(formatted("a%nb", &[1]), "ab");
}
