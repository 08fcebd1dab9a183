//! The text inside a `.npy` header: a Python dictionary literal with exactly three keys.
//!
//! Accepts what NumPy writes, plus Python 2's `3L`, both quotes, and any key order and spacing. Nothing is evaluated.

use warpwave_kernels::DType;

use super::NpyError;

/// Byte order of the elements in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteOrder {
    /// Little-endian, or single bytes.
    Little,
    Big,
}

/// Returns the `descr` string that a header has for little-endian data; `None` for types without a NumPy type.
pub fn descr(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::U8 => "|u1",
        DType::I8 => "|i1",
        DType::U16 => "<u2",
        DType::I16 => "<i2",
        DType::U32 => "<u4",
        DType::I32 => "<i4",
        DType::U64 => "<u8",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::Bf16 => "|V2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::Bool => "|b1",
        DType::F8E4M3 | DType::F8E5M2 => return None,
    })
}

/// Returns the type and byte order of a `descr` string; `None` if no type matches.
pub(super) fn parse_descr(text: &str) -> Option<(DType, ByteOrder)> {
    let (order, code) = text.split_at_checked(1)?;
    let (dtype, little) = super::dtypes().into_iter().find_map(|dtype| Some((dtype, descr(dtype).filter(|descr| &descr[1..] == code)?)))?;
    match order {
        "<" => Some((dtype, ByteOrder::Little)),
        "|" if little.starts_with('|') => Some((dtype, ByteOrder::Little)),
        // Raw bytes have no byte order, so `>V2` is ambiguous.
        ">" if dtype != DType::Bf16 => Some((dtype, ByteOrder::Big)),
        _ => None,
    }
}

/// A parsed header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub dtype: DType,
    pub order: ByteOrder,
    pub fortran: bool,
    pub shape: Vec<usize>,
}

/// Returns the complete version 1.0 preamble, from magic to newline, byte for byte as NumPy 2.4 writes it.
pub(super) fn format(descr: &str, shape: &[usize]) -> Vec<u8> {
    const ALIGNMENT: usize = 64;
    // NumPy reserves space to rewrite the first dimension in place when rows are appended.
    const GROWTH_DIGITS: usize = 21;

    let mut dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (");
    for (axis, length) in shape.iter().enumerate() {
        dict += &format!("{}{length}", if axis == 0 { "" } else { ", " });
    }
    dict += if shape.len() == 1 { ",), }" } else { "), }" };
    if let Some(first) = shape.first() {
        dict += &" ".repeat(GROWTH_DIGITS.saturating_sub(first.to_string().len()));
    }
    let unpadded = super::MAGIC.len() + 4 + dict.len() + 1;
    // NumPy pads by a full 64 bytes if already aligned; kept for identical files.
    dict += &" ".repeat(ALIGNMENT - unpadded % ALIGNMENT);
    dict.push('\n');

    let mut bytes = super::MAGIC.to_vec();
    bytes.extend([1, 0]);
    // At most 64 dimensions of 20 digits each, so the length fits in 16 bits.
    bytes.extend((dict.len() as u16).to_le_bytes());
    bytes.extend(dict.as_bytes());
    bytes
}

/// Parses the dictionary.
pub(super) fn parse(text: &[u8]) -> Result<Header, NpyError> {
    let mut cursor = Cursor { text, position: 0 };
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    cursor.expect(b'{', "'{'")?;
    while !cursor.eat(b'}') {
        let at = cursor.position;
        let key = cursor.string("a quoted key")?;
        cursor.expect(b':', "':'")?;
        let repeated = match key {
            "descr" => descr.replace(cursor.descr()?).is_some(),
            "fortran_order" => fortran.replace(cursor.boolean()?).is_some(),
            "shape" => shape.replace(cursor.shape()?).is_some(),
            _ => true,
        };
        if repeated {
            return Err(NpyError::Header { offset: at, expected: "each of the keys 'descr', 'fortran_order' and 'shape' once" });
        }
        if !cursor.eat(b',') {
            cursor.expect(b'}', "',' or '}'")?;
            break;
        }
    }
    cursor.skip_space();
    if cursor.position != text.len() {
        return Err(cursor.error("nothing after '}'"));
    }
    let missing = |key| NpyError::MissingKey { key };
    let descr = descr.ok_or(missing("descr"))?;
    let fortran = fortran.ok_or(missing("fortran_order"))?;
    let shape = shape.ok_or(missing("shape"))?;
    if descr.ends_with('O') {
        return Err(NpyError::ObjectArray);
    }
    let Some((dtype, order)) = parse_descr(descr) else {
        return Err(NpyError::UnsupportedDType { found: descr.to_owned() });
    };
    Ok(Header { dtype, order, fortran, shape })
}

struct Cursor<'a> {
    text: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    fn error(&self, expected: &'static str) -> NpyError {
        NpyError::Header { offset: self.position, expected }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.position).copied()
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.position += 1;
        }
    }

    fn eat(&mut self, wanted: u8) -> bool {
        self.skip_space();
        let found = self.peek() == Some(wanted);
        self.position += usize::from(found);
        found
    }

    fn expect(&mut self, wanted: u8, expected: &'static str) -> Result<(), NpyError> {
        if self.eat(wanted) { Ok(()) } else { Err(self.error(expected)) }
    }

    fn take_while(&mut self, accept: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = &self.text[self.position..];
        let length = rest.iter().position(|&byte| !accept(byte)).unwrap_or(rest.len());
        self.position += length;
        &rest[..length]
    }

    /// Parses a quoted string. Escapes are not supported: no valid key or type needs them.
    fn string(&mut self, expected: &'static str) -> Result<&'a str, NpyError> {
        self.skip_space();
        let Some(quote @ (b'\'' | b'"')) = self.peek() else { return Err(self.error(expected)) };
        self.position += 1;
        let content = self.take_while(|byte| byte != quote && (byte.is_ascii_graphic() || byte == b' ') && byte != b'\\');
        self.expect(quote, "a closing quote")?;
        str::from_utf8(content).map_err(|_| self.error(expected))
    }

    fn descr(&mut self) -> Result<&'a str, NpyError> {
        self.skip_space();
        match self.peek() {
            Some(b'[' | b'(') => Err(NpyError::StructuredArray),
            _ => self.string("a quoted type such as '<f4'"),
        }
    }

    fn boolean(&mut self) -> Result<bool, NpyError> {
        self.skip_space();
        let at = self.position;
        match self.take_while(|byte| byte.is_ascii_alphanumeric()) {
            b"True" => Ok(true),
            b"False" => Ok(false),
            _ => Err(NpyError::Header { offset: at, expected: "True or False" }),
        }
    }

    fn shape(&mut self) -> Result<Vec<usize>, NpyError> {
        let mut shape = Vec::new();
        self.expect(b'(', "'(' and the shape")?;
        while !self.eat(b')') {
            let at = self.position;
            let digits = self.take_while(|byte| byte.is_ascii_digit());
            let length = str::from_utf8(digits).ok().filter(|digits| !digits.is_empty());
            let length = length.ok_or(NpyError::Header { offset: at, expected: "a dimension, or ')'" })?;
            shape.push(length.parse().map_err(|_| NpyError::Header { offset: at, expected: "a dimension that fits in 64 bits" })?);
            if self.peek() == Some(b'L') {
                self.position += 1;
            }
            if !self.eat(b',') {
                // `(3)` is a number in Python, not a shape.
                if shape.len() == 1 {
                    return Err(self.error("',' after a single dimension"));
                }
                self.expect(b')', "',' or ')'")?;
                break;
            }
        }
        Ok(shape)
    }
}
