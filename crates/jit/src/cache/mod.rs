//! The disk cache's building blocks: keys, the entry file, the folder, the lock.
#![allow(dead_code)]

mod entry;
mod folder;
mod key;
mod lock;

pub use entry::Entry;
pub use key::{Key, KeyBuilder, ParseKeyError};

/// The version of the entry format and of the key's encoding.
const FORMAT: u32 = 1;
