//! Keys: SHA-256 over everything that compiled code depends on.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::FORMAT;

/// The name of an entry: a SHA-256 over everything the entry depends on. Made by [`KeyBuilder`]; prints as 64 lowercase hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; 32]);

/// The text given to [`Key::from_str`] is not 64 lowercase hex digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid cache key {0:?}; expected 64 lowercase hex digits")]
pub struct ParseKeyError(String);

impl Key {
    pub(super) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes of the hash.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

impl FromStr for Key {
    type Err = ParseKeyError;

    /// Accepts exactly what `Display` prints, so that a key has one spelling and an entry one file name.
    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        let refuse = || ParseKeyError(text.to_owned());
        let digit = |c: u8| match c {
            b'0'..=b'9' => Ok(c - b'0'),
            b'a'..=b'f' => Ok(c - b'a' + 10),
            _ => Err(refuse()),
        };
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(refuse());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

/// Builds a [`Key`] from named fields.
///
/// Every name and value goes into the hash behind its length, so two different lists of fields never feed it the same bytes:
/// moving a letter from one field to its neighbor, splitting a field, or leaving out an empty one gives another key.
/// Order counts; callers with a set (of headers, of options) sort it first where order has no meaning.
///
/// ```
/// # use warpwave_jit::cache::KeyBuilder;
/// let key = KeyBuilder::new().field("source", b"__global__ void f() {}").field("target", b"gfx90a:xnack-").finish();
/// assert_eq!(key.to_string().len(), 64);
/// ```
#[derive(Clone)]
pub struct KeyBuilder(Sha256);

impl KeyBuilder {
    /// An empty list of fields. It starts with the version of the entry format, so a change of format changes every key.
    pub fn new() -> Self {
        let mut builder = Self(Sha256::new());
        builder.field("warpwave-cache-format", &FORMAT.to_le_bytes());
        builder
    }

    /// Adds one field.
    pub fn field(&mut self, name: &str, value: &[u8]) -> &mut Self {
        for part in [name.as_bytes(), value] {
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
        self
    }

    /// The key of the fields so far.
    pub fn finish(&self) -> Key {
        Key(self.0.clone().finalize().into())
    }
}

impl Default for KeyBuilder {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn key(fields: &[(String, Vec<u8>)]) -> Key {
        let mut builder = KeyBuilder::new();
        for (name, value) in fields {
            builder.field(name, value);
        }
        builder.finish()
    }

    #[test]
    fn bytes_moved_between_neighbors_change_the_key() {
        let of = |fields: &[(&str, &str)]| key(&fields.iter().map(|(n, v)| (n.to_string(), v.as_bytes().to_vec())).collect::<Vec<_>>());
        let base = of(&[("a", "bc"), ("d", "")]);
        for other in [
            of(&[("ab", "c"), ("d", "")]),
            of(&[("a", "bcd"), ("", "")]),
            of(&[("a", "bc")]),
            of(&[("a", "bcd")]),
            of(&[("d", ""), ("a", "bc")]),
        ] {
            assert_ne!(base, other);
        }
    }

    /// Pins the encoding: if this value changes, `FORMAT` must change too, or old and new binaries disagree about what a key covers.
    #[test]
    fn the_key_of_known_fields_never_changes() {
        let mut bytes = Vec::new();
        for part in [&b"warpwave-cache-format"[..], &1u32.to_le_bytes(), b"source", b"x"] {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part);
        }
        let expected = Key(Sha256::digest(&bytes).into());
        assert_eq!(KeyBuilder::new().field("source", b"x").finish(), expected);
    }

    #[test]
    fn only_the_printed_spelling_of_a_key_is_accepted() {
        let key = KeyBuilder::new().finish();
        let text = key.to_string();
        assert_eq!(text.parse(), Ok(key));
        for wrong in
            [text.to_uppercase(), text[1..].to_owned(), format!("{text}0"), text.replace(&text[..1], "g"), "é".repeat(32), String::new()]
        {
            assert!(wrong.parse::<Key>().is_err(), "{wrong:?} was accepted");
        }
    }

    proptest! {
        /// A tiny alphabet and short parts, so that lists which concatenate to the same bytes come up all the time.
        #[test]
        fn different_field_lists_have_different_keys(
            a in vec(("[ab]{0,2}", vec(97u8..99, 0..3)), 0..4),
            b in vec(("[ab]{0,2}", vec(97u8..99, 0..3)), 0..4),
        ) {
            prop_assert_eq!(a == b, key(&a) == key(&b));
        }

        #[test]
        fn cutting_the_same_bytes_elsewhere_gives_another_key(
            bytes in vec(any::<u8>(), 1..64), cut in any::<prop::sample::Index>(), other in any::<prop::sample::Index>(),
        ) {
            let at = |cut: usize| {
                let (a, b) = bytes.split_at(cut);
                KeyBuilder::new().field("", a).field("", b).finish()
            };
            let (cut, other) = (cut.index(bytes.len()), other.index(bytes.len()));
            prop_assert_eq!(cut == other, at(cut) == at(other));
        }

        #[test]
        fn keys_survive_printing_and_parsing(bytes in any::<[u8; 32]>()) {
            prop_assert_eq!(Key(bytes).to_string().parse(), Ok(Key(bytes)));
        }
    }
}
