//! Typed access to JSON files, with errors that name the key.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use super::error::{CheckpointError, Result, bad_key};

/// Reads a JSON file.
pub(crate) fn read(path: &Path) -> Result<Value> {
    let shown = path.display().to_string();
    let text = fs::read(path).map_err(|source| CheckpointError::Io { path: shown.clone(), source })?;
    serde_json::from_slice(&text).map_err(|error| bad_key(&shown, "file", format!("invalid JSON: {error}")))
}

/// The keys of one or several JSON objects; the first object that has a key wins.
#[derive(Clone)]
pub(crate) struct Keys<'a> {
    path: &'a str,
    /// The path of the objects within the file, with a trailing dot.
    within: String,
    objects: Vec<&'a Map<String, Value>>,
}

impl<'a> Keys<'a> {
    pub fn new(path: &'a str, objects: Vec<&'a Map<String, Value>>) -> Keys<'a> {
        Keys { path, within: String::new(), objects }
    }

    /// Returns an error that names a key.
    pub fn bad(&self, key: &str, reason: impl Into<String>) -> CheckpointError {
        bad_key(self.path, &format!("{}{key}", self.within), reason)
    }

    /// Returns whether the key exists, even if it is null.
    pub fn has(&self, key: &str) -> bool {
        self.objects.iter().any(|object| object.contains_key(key))
    }

    /// Returns the value of a key that exists and is not null.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.objects.iter().find_map(|object| object.get(key)).filter(|value| !value.is_null())
    }

    fn typed<T>(&self, key: &str, what: &str, to: impl FnOnce(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        to(value).map(Some).ok_or_else(|| {
            let shown: String = value.to_string().chars().take(60).collect();
            self.bad(key, format!("expected {what}, got {shown}"))
        })
    }

    pub fn usize(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "a non-negative integer", |value| value.as_u64()?.try_into().ok())
    }

    pub fn f64(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "a boolean", Value::as_bool)
    }

    pub fn str(&self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "a string", Value::as_str)
    }

    pub fn array(&self, key: &str) -> Result<Option<&'a Vec<Value>>> {
        self.typed(key, "an array", Value::as_array)
    }

    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>> {
        let number = |value: &Value| value.as_f64().map(|value| value as f32);
        self.typed(key, "an array of numbers", |value| value.as_array()?.iter().map(number).collect())
    }

    /// Returns a nested object.
    pub fn object(&self, key: &str) -> Result<Option<Keys<'a>>> {
        let object = self.typed(key, "an object", Value::as_object)?;
        Ok(object.map(|object| Keys { path: self.path, within: format!("{}{key}.", self.within), objects: vec![object] }))
    }

    /// Returns token ids, given as a number or an array.
    pub fn ids(&self, key: &str) -> Result<Vec<u32>> {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids = self.typed(key, "a token id or an array of them", |value| match value {
            Value::Array(ids) => ids.iter().map(id).collect(),
            one => Some(vec![id(one)?]),
        });
        Ok(ids?.unwrap_or_default())
    }

    /// Returns a required value.
    pub fn need<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.bad(key, "missing key"))
    }
}
