//! Typed access to configuration files, with errors that name file and key.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{Error, Result, bad_key};

/// The largest configuration file or vocabulary, in bytes.
const MAX_FILE: u64 = 1 << 26;
/// The largest size that a configuration may ask for: above every known model, and its square fits in 64 bits.
const MAX_SIZE: usize = 1 << 20;

/// Reads a small file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    let shown = path.display().to_string();
    let io = |source| Error::Io { path: shown.clone(), source };
    let size = std::fs::metadata(path).map_err(io)?.len();
    if size > MAX_FILE {
        return Err(Error::Unknown { path: shown, reason: format!("{size} bytes exceed the maximum of {MAX_FILE}") });
    }
    std::fs::read(path).map_err(io)
}

/// An object of a JSON file.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    path: String,
    object: Map<String, Value>,
}

impl Config {
    /// Reads a file that holds an object.
    pub fn read(path: &Path) -> Result<Config> {
        let shown = path.display().to_string();
        match serde_json::from_slice(&read(path)?) {
            Ok(Value::Object(object)) => Ok(Config { path: shown, object }),
            Ok(_) => Err(bad_key(&shown, "file", "expected a JSON object")),
            Err(error) => Err(bad_key(&shown, "file", format!("invalid JSON: {error}"))),
        }
    }

    /// The whole object.
    pub fn value(&self) -> Value {
        Value::Object(self.object.clone())
    }

    /// An error that names a key.
    pub fn bad(&self, key: &str, reason: impl Into<String>) -> Error {
        bad_key(&self.path, key, reason)
    }

    /// The value of a key that exists and is not null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    fn typed<'a, T>(&'a self, key: &str, what: &str, to: impl FnOnce(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        to(value).map(Some).ok_or_else(|| {
            let shown: String = value.to_string().chars().take(60).collect();
            self.bad(key, format!("expected {what}, got {shown}"))
        })
    }

    fn need<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.bad(key, "missing key"))
    }

    /// A required positive size.
    pub fn size(&self, key: &str) -> Result<usize> {
        self.need(key, self.typed(key, &format!("a size from 1 to {MAX_SIZE}"), size)?)
    }

    /// A positive size that has a default.
    pub fn size_or(&self, key: &str, default: usize) -> Result<usize> {
        Ok(self.typed(key, &format!("a size from 1 to {MAX_SIZE}"), size)?.unwrap_or(default))
    }

    /// A required list of positive sizes, at most 16.
    pub fn sizes(&self, key: &str) -> Result<Vec<usize>> {
        let found = self.typed(key, "1 to 16 sizes", |value| value.as_array()?.iter().map(size).collect::<Option<Vec<_>>>());
        self.need(key, found?.filter(|sizes| (1..=16).contains(&sizes.len())))
    }

    /// A size, or one for each of `levels`.
    pub fn size_per_level(&self, key: &str, levels: usize, default: usize) -> Result<Vec<usize>> {
        match self.get(key) {
            Some(Value::Array(_)) => {
                let sizes = self.sizes(key)?;
                if sizes.len() != levels {
                    return Err(self.bad(key, format!("expected {levels} sizes, one per level, got {}", sizes.len())));
                }
                Ok(sizes)
            }
            _ => Ok(vec![self.size_or(key, default)?; levels]),
        }
    }

    /// A list of strings.
    pub fn strings(&self, key: &str) -> Result<Vec<&str>> {
        let found = self.typed(key, "an array of strings", |value| value.as_array()?.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        self.need(key, found?)
    }

    pub fn string(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string", Value::as_str)
    }

    pub fn number(&self, key: &str, default: f64) -> Result<f64> {
        let finite = |value: &Value| value.as_f64().filter(|value| value.is_finite());
        Ok(self.typed(key, "a number", finite)?.unwrap_or(default))
    }

    pub fn flag(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.typed(key, "a boolean", Value::as_bool)?.unwrap_or(default))
    }

    /// Fails if a key that changes what the model computes has another value than the supported one; `null` always passes.
    pub fn expect(&self, key: &str, supported: &Value) -> Result<()> {
        match self.get(key) {
            Some(found) if found != supported => Err(self.bad(key, format!("unsupported value {found}; expected {supported}"))),
            _ => Ok(()),
        }
    }
}

fn size(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|value| usize::try_from(value).ok()).filter(|value| (1..=MAX_SIZE).contains(value))
}
