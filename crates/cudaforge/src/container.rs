//! The text that replaces PTX: a CUDA source and the headers it includes.
//!
//! A line that starts with [`MARK`] begins the text and another one each file: its length in bytes and its name as in the `#include`. The
//! first file is the source.

use std::fmt::Write;

/// What a container starts with.
pub const MARK: &str = "//@warpwave-cuda";

/// A file: its name and its text.
pub type File<'a> = (&'a str, &'a str);

/// Writes a container. Names must not contain line breaks.
pub fn pack<'a>(files: impl IntoIterator<Item = File<'a>>) -> String {
    let mut text = format!("{MARK} 1\n");
    for (name, file) in files {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{MARK} {} {name}\n{file}", file.len());
    }
    text
}

/// Reads a container: its files, the source first. `None` if the text is not a container, or a damaged one.
pub fn unpack(text: &str) -> Option<Vec<File<'_>>> {
    let mut rest = text.strip_prefix(MARK)?.strip_prefix(" 1\n")?;
    let mut files = Vec::new();
    while !rest.is_empty() {
        let (head, after) = rest.strip_prefix(MARK)?.strip_prefix(' ')?.split_once('\n')?;
        let (len, name) = head.split_once(' ')?;
        let len: usize = len.parse().ok()?;
        files.push((name, after.get(..len)?));
        rest = after.get(len..)?.strip_prefix('\n')?;
    }
    (!files.is_empty()).then_some(files)
}
