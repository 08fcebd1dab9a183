//! The bytes that a token of a vocabulary stands for.

use super::Spelling;

/// Whether byte-level vocabularies write a byte as its own Latin-1 character. Other bytes are written as U+0100 and following.
fn is_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The byte that a character of a byte-level vocabulary stands for.
fn byte_of(character: char) -> Option<u8> {
    let code = character as u32;
    match u8::try_from(code) {
        Ok(byte) => is_itself(byte).then_some(byte),
        Err(_) => (0..=255u8).filter(|byte| !is_itself(*byte)).nth(code.checked_sub(256)? as usize),
    }
}

/// The byte of a token such as `<0x0A>`.
pub(super) fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// The bytes that a token stands for.
pub(super) fn bytes_of(token: &str, spelling: Spelling) -> Box<[u8]> {
    match spelling {
        // A token with other characters stands for itself.
        Spelling::ByteLevel => token.chars().map(byte_of).collect::<Option<Vec<u8>>>().unwrap_or_else(|| token.into()).into(),
        Spelling::SentencePiece => match byte_token(token) {
            Some(byte) => [byte].into(),
            None => token.replace('▁', " ").into_bytes().into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    #[test]
    fn byte_characters_match_the_tokenizers_crate() {
        let mut seen: Vec<u8> = ByteLevel::alphabet().into_iter().map(|character| byte_of(character).expect("a byte")).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..=255).collect::<Vec<u8>>());
        assert_eq!((byte_of('Ġ'), byte_of('Ċ'), byte_of('A'), byte_of('\u{1ff}')), (Some(b' '), Some(b'\n'), Some(b'A'), None));
    }

    #[test]
    fn tokens_stand_for_bytes() {
        assert_eq!(&*bytes_of("ĠcafÃ©", Spelling::ByteLevel), " café".as_bytes());
        assert_eq!(&*bytes_of("日", Spelling::ByteLevel), "日".as_bytes());
        assert_eq!(&*bytes_of("▁a▁", Spelling::SentencePiece), b" a ");
        assert_eq!(&*bytes_of("<0xE6>", Spelling::SentencePiece), [0xe6]);
        assert_eq!(&*bytes_of("<0xE6E6>", Spelling::SentencePiece), b"<0xE6E6>");
    }
}
