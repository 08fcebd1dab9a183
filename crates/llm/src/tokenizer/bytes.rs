//! The bytes that a piece of a vocabulary stands for.

use super::Spelling;

/// The character that byte-level vocabularies write for a byte: printable ones of Latin-1 stand for themselves, the others for the
/// characters from U+0100 on, in order.
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

/// The byte that a piece such as `<0x0A>` stands for.
pub(super) fn byte_token(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// The bytes that a piece stands for.
pub(super) fn bytes_of(piece: &str, spelling: Spelling) -> Box<[u8]> {
    match spelling {
        // A piece that cannot have been made of bytes stands for itself.
        Spelling::ByteLevel => piece.chars().map(byte_of).collect::<Option<Vec<u8>>>().unwrap_or_else(|| piece.into()).into(),
        Spelling::SentencePiece => match byte_token(piece) {
            Some(byte) => [byte].into(),
            None => piece.replace('▁', " ").into_bytes().into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    #[test]
    fn every_byte_has_the_character_that_the_library_gives_it() {
        let mut seen: Vec<u8> = ByteLevel::alphabet().into_iter().map(|character| byte_of(character).expect("a byte")).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..=255).collect::<Vec<u8>>());
        assert_eq!((byte_of('Ġ'), byte_of('Ċ'), byte_of('A'), byte_of('\u{1ff}')), (Some(b' '), Some(b'\n'), Some(b'A'), None));
    }

    #[test]
    fn pieces_stand_for_bytes() {
        assert_eq!(&*bytes_of("ĠcafÃ©", Spelling::ByteLevel), " café".as_bytes());
        assert_eq!(&*bytes_of("日", Spelling::ByteLevel), "日".as_bytes());
        assert_eq!(&*bytes_of("▁a▁", Spelling::SentencePiece), b" a ");
        assert_eq!(&*bytes_of("<0xE6>", Spelling::SentencePiece), [0xe6]);
        assert_eq!(&*bytes_of("<0xE6E6>", Spelling::SentencePiece), b"<0xE6E6>");
    }
}
