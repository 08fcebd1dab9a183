// Shared by build.rs, which lays out the table, and names.rs, which reads it: both must agree.

/// A hash of a name, eight bytes at a time.
pub fn name_hash(name: &[u8]) -> u64 {
    const K: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut hash = name.len() as u64;
    let (chunks, rest) = name.as_chunks::<8>();
    for chunk in chunks {
        hash = (hash ^ u64::from_le_bytes(*chunk)).wrapping_mul(K);
        hash ^= hash >> 29;
    }
    let mut last = 0u64;
    for byte in rest {
        last = last << 8 | u64::from(*byte);
    }
    hash = (hash ^ last).wrapping_mul(K);
    hash ^ hash >> 32
}
