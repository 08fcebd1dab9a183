//! The entry file: its layout, writing it, and reading it back without trusting a byte of it.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic `WWCACHE\n` |
//! | 8 | 4 | format version, little endian |
//! | 12 | 32 | the key the entry was made for |
//! | 44 | 8 | length of the meta text |
//! | 52 | 8 | length of the payload |
//! | 60 | 32 | SHA-256 of the payload |
//! | 92 | 32 | SHA-256 of bytes 0..92 and the meta text |
//! | 124 | | meta text (UTF-8), then the payload, then nothing |
//!
//! Every byte of the file stands under a hash: the payload under the first, everything else (with the first hash and the key) under
//! the second. Two hashes and not one over the whole, so that a listing can check and show the meta text of a large entry without
//! reading its payload. The hashes find damage, not malice: who can write the folder can write a valid entry.

use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};

use super::{FORMAT, Key};

const MAGIC: &[u8; 8] = b"WWCACHE\n";
const HEAD: usize = 124;
const HEAD_HASHED: usize = 92;
/// A length field is read before anything validates it, so it must not be able to ask for the machine's memory.
const META_MAX: u64 = 16 << 20;

/// What the cache keeps for a key: the caller's description and the caller's bytes, both opaque to the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The caller's text about the payload, by custom a JSON object. At most 16 MiB; an entry with more is not stored.
    pub meta: String,
    /// The compiled code.
    pub payload: Vec<u8>,
}

/// Why a file did not give an entry.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The file could not be read; it may be fine.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file was read and is not the entry it should be.
    #[error("{0}")]
    Damaged(String),
}

fn damaged(reason: impl Into<String>) -> ReadError {
    ReadError::Damaged(reason.into())
}

/// The checked front part of an entry file.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) meta: String,
    payload_len: usize,
    payload_sha: [u8; 32],
}

/// The size of the file that [`write`] makes.
pub(super) fn file_len(entry: &Entry) -> u64 {
    HEAD as u64 + entry.meta.len() as u64 + entry.payload.len() as u64
}

/// Writes `entry` as the entry of `key`.
pub(super) fn write(mut out: impl Write, key: &Key, entry: &Entry) -> io::Result<()> {
    if entry.meta.len() as u64 > META_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("the metadata is {} bytes; the maximum is {META_MAX}", entry.meta.len()),
        ));
    }
    let mut head = Vec::with_capacity(HEAD + entry.meta.len());
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&FORMAT.to_le_bytes());
    head.extend_from_slice(key.as_bytes());
    head.extend_from_slice(&(entry.meta.len() as u64).to_le_bytes());
    head.extend_from_slice(&(entry.payload.len() as u64).to_le_bytes());
    head.extend_from_slice(&Sha256::digest(&entry.payload));
    let sha = head_sha(&head, entry.meta.as_bytes());
    head.extend_from_slice(&sha);
    head.extend_from_slice(entry.meta.as_bytes());
    out.write_all(&head)?;
    out.write_all(&entry.payload)
}

/// Reads and checks everything. `file_len` is the size the file system reports, against which the lengths are held.
pub(super) fn read(mut from: impl Read, file_len: u64, key: &Key) -> Result<Entry, ReadError> {
    let head = read_head(&mut from, file_len, key)?;
    let mut payload = vec![0; head.payload_len];
    fill(&mut from, &mut payload)?;
    if Sha256::digest(&payload)[..] != head.payload_sha {
        return Err(damaged("checksum mismatch in the payload"));
    }
    Ok(Entry { meta: head.meta, payload })
}

/// Reads and checks everything in front of the payload.
pub(super) fn read_head(mut from: impl Read, file_len: u64, key: &Key) -> Result<Head, ReadError> {
    let mut head = [0; HEAD];
    fill(&mut from, &mut head)?;
    if field::<8>(&head, 0) != *MAGIC {
        return Err(damaged("invalid magic number: not a cache entry"));
    }
    let version = u32::from_le_bytes(field(&head, 8));
    if version != FORMAT {
        return Err(damaged(format!("unsupported format version {version}; expected {FORMAT}")));
    }
    if field::<32>(&head, 12) != *key.as_bytes() {
        return Err(damaged("the entry belongs to a different key"));
    }
    let meta_len = u64::from_le_bytes(field(&head, 44));
    let payload_len = u64::from_le_bytes(field(&head, 52));
    if meta_len > META_MAX {
        return Err(damaged(format!("the metadata is {meta_len} bytes; the maximum is {META_MAX}")));
    }
    let expected_len = HEAD as u128 + u128::from(meta_len) + u128::from(payload_len);
    if expected_len != u128::from(file_len) {
        return Err(damaged(format!("file size mismatch: the header gives {expected_len} bytes, the file has {file_len}")));
    }
    let payload_len = usize::try_from(payload_len).map_err(|_| damaged("the entry exceeds the address space"))?;
    let mut meta = vec![0; meta_len as usize];
    fill(&mut from, &mut meta)?;
    if head_sha(&head[..HEAD_HASHED], &meta) != field::<32>(&head, HEAD_HASHED) {
        return Err(damaged("checksum mismatch in the header or metadata"));
    }
    let meta = String::from_utf8(meta).map_err(|_| damaged("the metadata is not valid UTF-8"))?;
    Ok(Head { meta, payload_len, payload_sha: field(&head, 60) })
}

fn head_sha(head: &[u8], meta: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(head).chain_update(meta).finalize().into()
}

fn field<const N: usize>(head: &[u8; HEAD], at: usize) -> [u8; N] {
    std::array::from_fn(|i| head[at + i])
}

fn fill(mut from: impl Read, buffer: &mut [u8]) -> Result<(), ReadError> {
    from.read_exact(buffer).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged("the file is truncated"),
        _ => ReadError::Io(error),
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::cache::KeyBuilder;

    fn key() -> Key {
        KeyBuilder::new().field("test", b"entry").finish()
    }

    fn bytes_of(entry: &Entry) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, &key(), entry).unwrap();
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<Entry, ReadError> {
        read(bytes, bytes.len() as u64, &key())
    }

    fn sample() -> Entry {
        Entry { meta: r#"{"kernel":"axpy"}"#.into(), payload: b"\x7fELF and so on".to_vec() }
    }

    #[test]
    fn no_changed_bit_gets_through() {
        let good = bytes_of(&sample());
        assert_eq!(good.len() as u64, file_len(&sample()));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(parse(&bad), Err(ReadError::Damaged(_))), "bit {bit} was not noticed");
        }
    }

    #[test]
    fn no_other_length_gets_through() {
        let good = bytes_of(&sample());
        for len in 0..good.len() {
            assert!(matches!(parse(&good[..len]), Err(ReadError::Damaged(_))), "cut to {len} bytes");
        }
        let longer = [&good[..], b"\0"].concat();
        assert!(matches!(parse(&longer), Err(ReadError::Damaged(_))));
    }

    #[test]
    fn lengths_from_the_file_cannot_ask_for_memory() {
        // The header is honest about its own checksum and lies about what follows.
        for (meta_len, payload_len) in [(u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX), (META_MAX + 1, 0), (1 << 40, 1 << 40)] {
            let mut bytes = bytes_of(&Entry { meta: String::new(), payload: Vec::new() });
            bytes[44..52].copy_from_slice(&u64::to_le_bytes(meta_len));
            bytes[52..60].copy_from_slice(&u64::to_le_bytes(payload_len));
            let sha = head_sha(&bytes[..HEAD_HASHED], &[]);
            bytes[HEAD_HASHED..HEAD].copy_from_slice(&sha);
            let claimed = (HEAD as u64).wrapping_add(meta_len).wrapping_add(payload_len);
            assert!(matches!(parse(&bytes), Err(ReadError::Damaged(_))));
            if meta_len > META_MAX {
                assert!(matches!(read(&bytes[..], claimed, &key()), Err(ReadError::Damaged(_))));
            }
        }
    }

    #[test]
    fn another_format_version_is_refused_even_with_valid_checksums() {
        let mut bytes = bytes_of(&sample());
        bytes[8..12].copy_from_slice(&(FORMAT + 1).to_le_bytes());
        let sha = head_sha(&bytes[..HEAD_HASHED], sample().meta.as_bytes());
        bytes[HEAD_HASHED..HEAD].copy_from_slice(&sha);
        let error = parse(&bytes).unwrap_err().to_string();
        assert_eq!(error, format!("unsupported format version {}; expected {FORMAT}", FORMAT + 1));
    }

    #[test]
    fn meta_over_the_limit_is_not_written() {
        let entry = Entry { meta: "x".repeat(META_MAX as usize + 1), payload: Vec::new() };
        assert_eq!(write(io::sink(), &key(), &entry).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(meta in ".*", payload in vec(any::<u8>(), 0..300)) {
            let entry = Entry { meta, payload };
            prop_assert_eq!(parse(&bytes_of(&entry)).unwrap(), entry);
        }

        #[test]
        fn arbitrary_bytes_are_refused_without_a_panic(bytes in vec(any::<u8>(), 0..400), len in any::<u64>()) {
            prop_assert!(parse(&bytes).is_err());
            prop_assert!(read(&bytes[..], len, &key()).is_err());
        }

        /// A plausible front part takes the parser further in than noise does.
        #[test]
        fn a_true_start_with_an_arbitrary_rest_is_refused(keep in 0usize..124, rest in vec(any::<u8>(), 0..300)) {
            let good = bytes_of(&sample());
            let bytes = [&good[..keep], &rest[..]].concat();
            prop_assume!(bytes != good);
            prop_assert!(parse(&bytes).is_err());
        }
    }
}
