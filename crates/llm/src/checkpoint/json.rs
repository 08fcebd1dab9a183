//! Keys of JSON files, with errors that name them.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use super::error::{CheckpointError, Result, bad_key};

/// Reads a JSON file.
pub(super) fn read(path: &Path) -> Result<Value> {
    let shown = path.display().to_string();
    let text = fs::read(path).map_err(|source| CheckpointError::Io { path: shown.clone(), source })?;
    serde_json::from_slice(&text).map_err(|error| bad_key(&shown, "the text", format!("it is no JSON: {error}")))
}

/// Keys of objects, of which the first that has a key counts.
#[derive(Clone)]
pub(super) struct Keys<'a> {
    path: &'a str,
    /// Where the objects lie, with its dot.
    within: String,
    objects: Vec<&'a Map<String, Value>>,
}

impl<'a> Keys<'a> {
    pub fn new(path: &'a str, objects: Vec<&'a Map<String, Value>>) -> Keys<'a> {
        Keys { path, within: String::new(), objects }
    }

    /// An error that names a key.
    pub fn bad(&self, key: &str, reason: impl Into<String>) -> CheckpointError {
        bad_key(self.path, &format!("{}{key}", self.within), reason)
    }

    /// Whether the key is there, be it null.
    pub fn has(&self, key: &str) -> bool {
        self.objects.iter().any(|object| object.contains_key(key))
    }

    /// The value of a key that is there and not null.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.objects.iter().find_map(|object| object.get(key)).filter(|value| !value.is_null())
    }

    fn typed<T>(&self, key: &str, what: &str, to: impl FnOnce(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        to(value).map(Some).ok_or_else(|| {
            let shown: String = value.to_string().chars().take(60).collect();
            self.bad(key, format!("it should be {what}, and is {shown}"))
        })
    }

    pub fn usize(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "a whole number from 0", |value| value.as_u64()?.try_into().ok())
    }

    pub fn f64(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub fn str(&self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "a text", Value::as_str)
    }

    pub fn array(&self, key: &str) -> Result<Option<&'a Vec<Value>>> {
        self.typed(key, "an array", Value::as_array)
    }

    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>> {
        let number = |value: &Value| value.as_f64().map(|value| value as f32);
        self.typed(key, "an array of numbers", |value| value.as_array()?.iter().map(number).collect())
    }

    /// An object within, if the key is there.
    pub fn object(&self, key: &str) -> Result<Option<Keys<'a>>> {
        let object = self.typed(key, "an object", Value::as_object)?;
        Ok(object.map(|object| Keys { path: self.path, within: format!("{}{key}.", self.within), objects: vec![object] }))
    }

    /// The ids of tokens, one or several.
    pub fn ids(&self, key: &str) -> Result<Vec<u32>> {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids = self.typed(key, "the id of a token, or several", |value| match value {
            Value::Array(ids) => ids.iter().map(id).collect(),
            one => Some(vec![id(one)?]),
        });
        Ok(ids?.unwrap_or_default())
    }

    /// The value of a key that has to be there.
    pub fn need<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.bad(key, "the key is missing"))
    }
}
