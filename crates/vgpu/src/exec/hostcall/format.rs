//! C's `printf` for hostcall messages: the format string, then arguments in slots of 64 bits, strings inline.

/// The largest width or precision. Both come from the kernel; Rust's formatting supports no more.
const MAX_WIDTH: usize = u16::MAX as usize;

/// Formats a message. `words` begin with the format string; nothing outside `words` is accessed.
pub fn format(words: &[u64]) -> Vec<u8> {
    let mut arguments = Arguments { words, at: 0 };
    let text = arguments.string();
    let mut out = Vec::with_capacity(2 * text.len());
    let mut rest = text.as_slice();
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        match Directive::parse(rest, &mut arguments) {
            Some((directive, length)) => {
                directive.write(&mut out, &mut arguments);
                rest = &rest[length..];
            }
            // Not a conversion: printed as it is.
            None => {
                out.push(b'%');
                rest = &rest[1..];
            }
        }
    }
    out.extend_from_slice(rest);
    out
}

/// Reads a message's words in order.
struct Arguments<'a> {
    words: &'a [u64],
    at: usize,
}

impl Arguments<'_> {
    /// Returns the next slot; 0 when the kernel passed fewer arguments than its format names.
    fn next(&mut self) -> u64 {
        let word = self.words.get(self.at).copied().unwrap_or(0);
        self.at = (self.at + 1).min(self.words.len());
        word
    }

    /// Returns the next string, which ends with a NUL; the rest of its slot is skipped.
    fn string(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.at < self.words.len() {
            let word = self.next().to_le_bytes();
            if let Some(end) = word.iter().position(|byte| *byte == 0) {
                bytes.extend_from_slice(&word[..end]);
                break;
            }
            bytes.extend_from_slice(&word);
        }
        bytes
    }
}

/// A conversion specification: flags, width, precision, length and conversion character.
#[derive(Debug, Clone, Copy, Default)]
struct Directive {
    left: bool,
    plus: bool,
    space: bool,
    alternative: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
    /// Bits of an integer: 8 for `hh`, 16 for `h`, 32, or 64.
    bits: u32,
    letter: u8,
}

impl Directive {
    /// Parses the conversion that `text` begins with, and returns its length. `*` takes an argument.
    fn parse(text: &[u8], arguments: &mut Arguments<'_>) -> Option<(Directive, usize)> {
        let mut d = Directive { bits: 32, ..Directive::default() };
        let mut at = 1;
        loop {
            match text.get(at)? {
                b'-' => d.left = true,
                b'+' => d.plus = true,
                b' ' => d.space = true,
                b'#' => d.alternative = true,
                b'0' => d.zero = true,
                _ => break,
            }
            at += 1;
        }
        let known = letter(&text[at..])?;
        if text[at] == b'*' {
            at += 1;
            let width = arguments.next() as u32 as i32;
            d.left |= width < 0;
            d.width = (width.unsigned_abs() as usize).min(MAX_WIDTH);
        } else {
            d.width = number(text, &mut at);
        }
        if text.get(at) == Some(&b'.') {
            at += 1;
            if text.get(at) == Some(&b'*') {
                at += 1;
                // A negative precision is ignored.
                d.precision = usize::try_from(arguments.next() as u32 as i32).ok().map(|n| n.min(MAX_WIDTH));
            } else {
                d.precision = Some(number(text, &mut at));
            }
        }
        loop {
            d.bits = match text.get(at)? {
                b'h' if d.bits <= 16 => 8,
                b'h' => 16,
                b'l' | b'j' | b'z' | b't' | b'L' | b'q' => 64,
                _ => break,
            };
            at += 1;
        }
        d.letter = known;
        (text[at] == known).then_some((d, at + 1))
    }

    fn write(&self, out: &mut Vec<u8>, arguments: &mut Arguments<'_>) {
        match self.letter {
            b'%' => out.push(b'%'),
            b'n' => {
                // The pointer is the device's: nothing is written.
                arguments.next();
            }
            b'c' => {
                let byte = arguments.next() as u8;
                self.pad(out, b"", &[byte], false);
            }
            b's' => {
                let mut text = arguments.string();
                text.truncate(self.precision.unwrap_or(text.len()));
                self.pad(out, b"", &text, false);
            }
            b'p' => self.pointer(out, arguments.next()),
            b'd' | b'i' => {
                let shift = 64 - self.bits;
                let value = ((arguments.next() << shift) as i64) >> shift;
                let digits = value.unsigned_abs().to_string();
                self.integer(out, self.sign(value < 0), digits, value == 0);
            }
            b'u' | b'x' | b'X' | b'o' => {
                let value = arguments.next() & (u64::MAX >> (64 - self.bits));
                let (prefix, digits): (&[u8], _) = match self.letter {
                    b'x' => (b"0x", format!("{value:x}")),
                    b'X' => (b"0X", format!("{value:X}")),
                    b'o' => (b"", format!("{value:o}")),
                    _ => (b"", value.to_string()),
                };
                let prefix = if self.alternative && value != 0 { prefix } else { b"" };
                self.integer(out, prefix, digits, value == 0);
            }
            _ => self.float(out, f64::from_bits(arguments.next())),
        }
    }

    fn sign(&self, negative: bool) -> &'static [u8] {
        match (negative, self.plus, self.space) {
            (true, ..) => b"-",
            (_, true, _) => b"+",
            (_, _, true) => b" ",
            _ => b"",
        }
    }

    fn integer(&self, out: &mut Vec<u8>, prefix: &[u8], mut digits: String, zero: bool) {
        if zero && self.precision == Some(0) {
            digits.clear();
        }
        let mut min_digits = self.precision.unwrap_or(1);
        if self.alternative && self.letter == b'o' && !digits.starts_with('0') {
            min_digits = min_digits.max(digits.len() + 1);
        }
        let digits = format!("{digits:0>min_digits$}");
        // A precision overrides the zero flag.
        let digits = if zero && min_digits == 0 { "" } else { digits.as_str() };
        self.pad(out, prefix, digits.as_bytes(), self.precision.is_none());
    }

    /// Formats a pointer as glibc does.
    fn pointer(&self, out: &mut Vec<u8>, value: u64) {
        if value == 0 {
            return self.pad(out, b"", b"(nil)", false);
        }
        let prefix: &[u8] = match self.sign(false) {
            b"+" => b"+0x",
            b" " => b" 0x",
            _ => b"0x",
        };
        self.integer(out, prefix, format!("{value:x}"), false);
    }

    fn float(&self, out: &mut Vec<u8>, value: f64) {
        let sign = self.sign(value.is_sign_negative());
        let upper = self.letter.is_ascii_uppercase();
        let size = value.abs();
        if !size.is_finite() {
            let text: &[u8] = match (size.is_nan(), upper) {
                (true, false) => b"nan",
                (true, true) => b"NAN",
                (false, false) => b"inf",
                (false, true) => b"INF",
            };
            return self.pad(out, sign, text, false);
        }
        let mut prefix = sign.to_vec();
        let mut text = match self.letter.to_ascii_lowercase() {
            b'f' => self.point(format!("{size:.*}", self.precision.unwrap_or(6))),
            b'e' => self.scientific(size, self.precision.unwrap_or(6)),
            b'g' => self.general(size),
            _ => {
                prefix.extend_from_slice(b"0x");
                self.hexadecimal(size)
            }
        };
        if upper {
            text.make_ascii_uppercase();
            prefix.make_ascii_uppercase();
        }
        self.pad(out, &prefix, text.as_bytes(), true);
    }

    /// `#` keeps the decimal point of a number without a fraction.
    fn point(&self, mut text: String) -> String {
        if self.alternative && !text.contains('.') {
            text.push('.');
        }
        text
    }

    fn scientific(&self, size: f64, precision: usize) -> String {
        let text = format!("{size:.precision$e}");
        let (digits, exponent) = parts(&text);
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", self.point(digits.to_owned()), exponent.unsigned_abs())
    }

    /// `%g`: chooses by the exponent of the rounded number.
    fn general(&self, size: f64) -> String {
        let precision = self.precision.unwrap_or(6).max(1);
        let (_, exponent) = parts(&format!("{size:.*e}", precision - 1));
        let text = if exponent < -4 || exponent >= precision as i32 {
            self.scientific(size, precision - 1)
        } else {
            let places = usize::try_from(precision as i32 - 1 - exponent).unwrap_or(0).min(MAX_WIDTH);
            self.point(format!("{size:.places$}"))
        };
        if self.alternative || !text.contains('.') {
            return text;
        }
        let (digits, exponent) = text.split_at(text.find('e').unwrap_or(text.len()));
        format!("{}{exponent}", digits.trim_end_matches('0').trim_end_matches('.'))
    }

    /// `%a`: the fraction's bits, rounded to even at the precision.
    fn hexadecimal(&self, size: f64) -> String {
        let bits = size.to_bits();
        let (field, fraction) = ((bits >> 52) as i32, bits & ((1 << 52) - 1));
        let exponent = match (field, fraction) {
            (0, 0) => 0,
            (0, _) => -1022,
            _ => field - 1023,
        };
        let mut whole = fraction | u64::from(field != 0) << 52;
        let mut places = 13;
        match self.precision {
            Some(precision) if precision < 13 => {
                let cut = 4 * (13 - precision as u32);
                let (rest, half) = (whole & ((1 << cut) - 1), 1 << (cut - 1));
                whole >>= cut;
                whole += u64::from(rest > half || rest == half && whole & 1 != 0);
                places = precision;
            }
            Some(_) => {}
            None => {
                while places > 0 && whole & 15 == 0 {
                    whole >>= 4;
                    places -= 1;
                }
            }
        }
        let lead = whole >> (4 * places);
        let tail = whole & ((1 << (4 * places)) - 1);
        let mut digits = if places == 0 { String::new() } else { format!("{tail:0places$x}") };
        if let Some(precision) = self.precision {
            digits = format!("{digits:0<precision$}");
        }
        let point = if digits.is_empty() && !self.alternative { "" } else { "." };
        format!("{lead}{point}{digits}p{exponent:+}")
    }

    /// Pads to the width, with zeros after the prefix where the conversion allows it.
    fn pad(&self, out: &mut Vec<u8>, prefix: &[u8], text: &[u8], zeros: bool) {
        let fill = self.width.saturating_sub(prefix.len() + text.len());
        let zeros = zeros && self.zero && !self.left;
        if !self.left && !zeros {
            out.resize(out.len() + fill, b' ');
        }
        out.extend_from_slice(prefix);
        if zeros {
            out.resize(out.len() + fill, b'0');
        }
        out.extend_from_slice(text);
        if self.left {
            out.resize(out.len() + fill, b' ');
        }
    }
}

/// Returns the conversion character after the flags; `None` when C does not define it.
fn letter(text: &[u8]) -> Option<u8> {
    let found = text.iter().find(|byte| !matches!(byte, b'0'..=b'9' | b'*' | b'.' | b'h' | b'l' | b'j' | b'z' | b't' | b'L' | b'q'))?;
    b"diuxXocspnfFeEgGaA%".contains(found).then_some(*found)
}

/// Parses the decimal number at `at`, saturating.
fn number(text: &[u8], at: &mut usize) -> usize {
    let mut value = 0usize;
    while let Some(digit) = text.get(*at).filter(|byte| byte.is_ascii_digit()) {
        value = (10 * value + usize::from(digit - b'0')).min(MAX_WIDTH);
        *at += 1;
    }
    value
}

/// Splits `1.5e-7` into digits and exponent.
fn parts(text: &str) -> (&str, i32) {
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    (digits, exponent.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests;
