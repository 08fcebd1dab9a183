//! Parses a [`Spec`] and reports the offset of the first error.

use super::{Buffer, Init, Spec, SpecError, fill::iota_element};
use crate::{
    array::byte_len,
    value::{Value, ValueError, parse_scalar},
};

use warpwave_kernels::{DType, Scalar};

pub(super) fn parse(text: &str) -> Result<Spec, SpecError> {
    let mut cursor = Cursor { text, position: 0 };
    let name = cursor.take_until(&[':', '[']);
    let dtype: DType = name.trim_end_matches(' ').parse().map_err(|unknown| cursor.error_at(0, unknown))?;
    if cursor.eat(':') {
        let value = Value::parse(dtype, cursor.rest());
        return value.map(Spec::Scalar).map_err(|error| cursor.error(error));
    }
    if !cursor.eat('[') {
        return Err(cursor.error(format!("expected ':' and a value, or '[' and a shape, after type {dtype}")));
    }
    cursor.buffer(dtype).map(Spec::Buffer)
}

struct Cursor<'a> {
    text: &'a str,
    /// Always on a character boundary.
    position: usize,
}

impl<'a> Cursor<'a> {
    fn error(&self, message: impl ToString) -> SpecError {
        self.error_at(self.position, message)
    }

    fn error_at(&self, offset: usize, message: impl ToString) -> SpecError {
        SpecError { text: self.text.to_owned(), offset, message: message.to_string() }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn skip_spaces(&mut self) {
        self.position += self.rest().len() - self.rest().trim_start_matches(' ').len();
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.rest().starts_with(wanted);
        self.position += if found { wanted.len_utf8() } else { 0 };
        found
    }

    /// Like [`eat`](Self::eat), skipping spaces before and after.
    fn eat_spaced(&mut self, wanted: char) -> bool {
        self.skip_spaces();
        let found = self.eat(wanted);
        self.skip_spaces();
        found
    }

    fn expect(&mut self, wanted: char, message: &str) -> Result<(), SpecError> {
        if self.eat_spaced(wanted) { Ok(()) } else { Err(self.error(message)) }
    }

    fn take_until(&mut self, ends: &[char]) -> &'a str {
        let rest = self.rest();
        let taken = &rest[..rest.find(ends).unwrap_or(rest.len())];
        self.position += taken.len();
        taken
    }

    /// Returns the text up to the next delimiter, and its offset.
    fn word(&mut self) -> (usize, &'a str) {
        self.skip_spaces();
        (self.position, self.take_until(&[' ', ',', '(', ')', '[', ']', '=']))
    }

    fn buffer(&mut self, dtype: DType) -> Result<Buffer, SpecError> {
        let shape_at = self.position;
        let shape = self.shape()?;
        let bytes = byte_len(dtype, shape.as_deref().unwrap_or_default()).map_err(|error| self.error_at(shape_at, error))?;
        self.skip_spaces();
        let assigned = self.eat('=');
        self.skip_spaces();
        if assigned && self.eat('@') {
            return Ok(Buffer { dtype, shape, init: self.path()? });
        }
        if shape.is_none() {
            return Err(self.error_at(shape_at, "expected a shape such as 1024 or 64,32; it can be omitted only with =@FILE"));
        }
        let init = if assigned { self.computed(dtype, bytes / dtype.size())? } else { Init::Zeros };
        self.skip_spaces();
        if !self.rest().is_empty() {
            let missing = "expected '=' and an initial value, or the end of the argument";
            return Err(self.error(if assigned { "unexpected trailing text" } else { missing }));
        }
        Ok(Buffer { dtype, shape, init })
    }

    /// Parses the shape and the closing bracket; `None` for `[]`.
    fn shape(&mut self) -> Result<Option<Vec<usize>>, SpecError> {
        if self.eat_spaced(']') {
            return Ok(None);
        }
        let mut shape = vec![self.size()?];
        while self.eat_spaced(',') {
            shape.push(self.size()?);
        }
        self.expect(']', "expected ',' or ']'")?;
        Ok(Some(shape))
    }

    fn size(&mut self) -> Result<usize, SpecError> {
        let (at, word) = self.word();
        let (digits, unit) = match word.as_bytes() {
            [.., b'K'] => (&word[..word.len() - 1], 1 << 10),
            [.., b'M'] => (&word[..word.len() - 1], 1 << 20),
            _ => (word, 1),
        };
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(self.error_at(at, format!("expected a size such as 1024, 4K or 1M, got {word:?}")));
        }
        let size = digits.parse::<usize>().ok().and_then(|size| size.checked_mul(unit));
        size.ok_or_else(|| self.error_at(at, format!("size {word} does not fit in {} bits", usize::BITS)))
    }

    fn path(&mut self) -> Result<Init, SpecError> {
        // The operating system does not allow NUL in a path.
        let path = self.rest();
        if path.is_empty() || path.contains('\0') {
            return Err(self.error("expected the name of a .npy file"));
        }
        Ok(Init::File(path.into()))
    }

    fn computed(&mut self, dtype: DType, count: usize) -> Result<Init, SpecError> {
        let (at, word) = self.word();
        match word {
            "zeros" => Ok(Init::Zeros),
            "ones" => Ok(Init::Ones),
            "iota" => self.iota(dtype, count, at),
            "rand" => self.rand(dtype),
            _ => Value::parse(dtype, word).map(Init::Fill).map_err(|error| match error {
                ValueError::Malformed { .. } => {
                    let message = format!("expected zeros, ones, iota, rand(SEED), @FILE or a value of type {dtype}, got {word:?}");
                    self.error_at(at, message)
                }
                error => self.error_at(at, error),
            }),
        }
    }

    fn iota(&mut self, dtype: DType, count: usize, at: usize) -> Result<Init, SpecError> {
        let scalar = |value: i32| if dtype.is_float() { Scalar::Float(value.into()) } else { Scalar::Int(value.into()) };
        let (mut start, mut step) = (scalar(0), scalar(1));
        if self.eat_spaced('(') {
            start = self.number(dtype)?.1;
            if self.eat_spaced(',') {
                step = self.number(dtype)?.1;
            }
            self.expect(')', "expected ')', as in iota(START,STEP)")?;
        }
        // The sequence is monotonic, so checking both ends is enough.
        for (which, index) in [("first", 0), ("last", count.saturating_sub(1))] {
            let value = iota_element(start, step, index);
            let fits = value.to_f64().is_finite() && Value::new(dtype, value).is_some();
            if count > 0 && !fits {
                let error = ValueError::OutOfRange { dtype, found: value.to_string() };
                return Err(self.error_at(at, format!("{which} element: {error}")));
            }
        }
        Ok(Init::Iota { start, step })
    }

    fn rand(&mut self, dtype: DType) -> Result<Init, SpecError> {
        self.expect('(', "expected '(' and a seed, as in rand(42)")?;
        let (at, word) = self.word();
        let seed = Value::parse(DType::U64, word).map_err(|error| self.error_at(at, error))?;
        let seed = u64::from_le_bytes(seed.bytes().try_into().unwrap_or_default());
        let range = if self.eat_spaced(',') { Some(self.rand_range(dtype)?) } else { None };
        self.expect(')', "expected ')', as in rand(SEED) or rand(SEED,LO,HI)")?;
        Ok(Init::Rand { seed, range })
    }

    fn rand_range(&mut self, dtype: DType) -> Result<(Scalar, Scalar), SpecError> {
        let (lo_at, lo) = self.number(dtype)?;
        self.expect(',', "expected ',' and the upper bound, as in rand(SEED,LO,HI)")?;
        let (hi_at, hi) = self.number(dtype)?;
        let out_of_range = |at, number: Scalar| self.error_at(at, ValueError::OutOfRange { dtype, found: number.to_string() });
        let lo = Value::new(dtype, lo).ok_or_else(|| out_of_range(lo_at, lo))?.scalar();
        let hi = match (dtype.int_range(), hi) {
            // The upper bound is exclusive, so it may be one past the maximum.
            (Some((_, max)), Scalar::Int(bound)) if bound == max + 1 => hi,
            _ => Value::new(dtype, hi).ok_or_else(|| out_of_range(hi_at, hi))?.scalar(),
        };
        let ordered = match (lo, hi) {
            // As f64, adjacent 64-bit integers could compare equal.
            (Scalar::Int(lo), Scalar::Int(hi)) => lo < hi,
            _ => lo.to_f64() < hi.to_f64(),
        };
        if !ordered {
            return Err(self.error_at(hi_at, format!("expected an upper bound greater than {lo}, got {hi}")));
        }
        if !(hi.to_f64() - lo.to_f64()).is_finite() {
            return Err(self.error_at(hi_at, "expected HI - LO to be finite"));
        }
        Ok((lo, hi))
    }

    /// Parses a finite number and returns it with its offset. It may be out of range for the type (a negative step of an unsigned
    /// type), but not so large that later arithmetic could overflow.
    fn number(&mut self, dtype: DType) -> Result<(usize, Scalar), SpecError> {
        const LIMIT: u128 = 1 << 64;
        let (at, word) = self.word();
        match parse_scalar(dtype, word).map_err(|error| self.error_at(at, error))? {
            Scalar::Float(value) if !value.is_finite() => Err(self.error_at(at, format!("expected a finite number, got {word:?}"))),
            Scalar::Int(value) if value.unsigned_abs() > LIMIT => {
                Err(self.error_at(at, ValueError::OutOfRange { dtype, found: word.to_owned() }))
            }
            number => Ok((at, number)),
        }
    }
}
