//! The environment variables that place, size and switch off the cache.

use std::ffi::OsString;
use std::path::PathBuf;

use super::Cache;

/// The cap when `WARPWAVE_CACHE_MAX_BYTES` does not say otherwise: 2 GiB.
pub const DEFAULT_MAX_BYTES: u64 = 2 << 30;

/// The cache the variables describe. `var` looks one up, so that tests need not change the environment of the whole process.
pub(super) fn cache(var: impl Fn(&str) -> Option<OsString>) -> Cache {
    // A variable set to nothing counts as not set, as everywhere in the XDG rules.
    let var = |name: &str| var(name).filter(|value| !value.is_empty());
    match var("WARPWAVE_CACHE").map(|value| value.to_string_lossy().to_ascii_lowercase()).as_deref() {
        Some("off" | "0" | "no" | "false") => return Cache::disabled(),
        None | Some("on" | "1" | "yes" | "true") => {}
        Some(other) => tracing::warn!("WARPWAVE_CACHE={other} is invalid; expected `on` or `off`; the cache stays on"),
    }
    let max_bytes = match var("WARPWAVE_CACHE_MAX_BYTES") {
        None => DEFAULT_MAX_BYTES,
        Some(text) => text.to_str().and_then(parse_bytes).unwrap_or_else(|| {
            tracing::warn!(
                "invalid WARPWAVE_CACHE_MAX_BYTES={}; expected a size such as 1000000, 512M or 2G; using {DEFAULT_MAX_BYTES} bytes",
                text.to_string_lossy()
            );
            DEFAULT_MAX_BYTES
        }),
    };
    // The XDG rules say that relative paths in XDG variables are to be ignored.
    let base = |name: &str| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = var("WARPWAVE_CACHE_DIR")
        .map(PathBuf::from)
        .or_else(|| base("XDG_CACHE_HOME").map(|base| base.join("warpwave")))
        .or_else(|| base("HOME").map(|home| home.join(".cache/warpwave")));
    match folder {
        Some(folder) => Cache::at(folder, max_bytes),
        None => {
            tracing::warn!("no directory for the kernel cache; set WARPWAVE_CACHE_DIR, XDG_CACHE_HOME or HOME; kernels are not cached");
            Cache::disabled()
        }
    }
}

/// A number of bytes: `1048576`, `64K`, `512M`, `2G`, `1T` (powers of 1024; `MB`, `MiB` and lower case mean the same).
fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text[digits.len()..].trim_start() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    if !digits.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << unit)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn with(vars: &[(&str, &str)]) -> Cache {
        cache(|name| vars.iter().find(|(set, _)| *set == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn sizes_are_read_with_and_without_a_unit() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("512M", 512 << 20), ("2g", 2 << 30), ("1 GiB", 1 << 30), ("64kb", 64 << 10), ("1T", 1 << 40)]
        {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for text in ["", "G", "-1", "+1", "1.5G", "2X", "1 2", "99999999999T", "99999999999999999999999", "1\u{661}"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn the_folder_comes_from_the_first_variable_that_gives_one() {
        let all = [("WARPWAVE_CACHE_DIR", "/a"), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")];
        for (vars, folder) in [(&all[..], "/a"), (&all[1..], "/b/warpwave"), (&all[2..], "/c/.cache/warpwave")] {
            assert_eq!(with(vars).path(), Some(Path::new(folder)));
        }
        assert_eq!(
            with(&[("WARPWAVE_CACHE_DIR", ""), ("XDG_CACHE_HOME", "relative"), ("HOME", "/c")]).path(),
            Some(Path::new("/c/.cache/warpwave"))
        );
        assert_eq!(with(&[("WARPWAVE_CACHE_DIR", "here")]).path(), Some(&*std::path::absolute("here").unwrap()));
        assert_eq!(with(&[]).path(), None);
        assert_eq!(with(&[("HOME", "not/absolute")]).path(), None);
    }

    #[test]
    fn the_cache_can_be_switched_off_and_only_by_a_clear_word() {
        for (word, on) in [("off", false), ("OFF", false), ("0", false), ("on", true), ("", true), ("perhaps", true)] {
            assert_eq!(with(&[("HOME", "/c"), ("WARPWAVE_CACHE", word)]).path().is_some(), on, "{word:?}");
        }
    }

    #[test]
    fn a_cap_that_makes_no_sense_is_the_default_cap() {
        for (text, cap) in [("3M", 3 << 20), ("lots", DEFAULT_MAX_BYTES), ("", DEFAULT_MAX_BYTES)] {
            assert_eq!(with(&[("HOME", "/c"), ("WARPWAVE_CACHE_MAX_BYTES", text)]).stats().max_bytes, cap, "{text:?}");
        }
    }
}
