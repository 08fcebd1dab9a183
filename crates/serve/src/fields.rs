//! The fields of a JSON request: typed access with errors that name the field. `null` is an absent field.

use serde_json::{Map, Value};

use crate::error::{ApiError, ApiResult};

/// The fields of a request's object.
pub(crate) struct Fields(pub Map<String, Value>);

impl Fields {
    /// Parses a request body.
    pub fn parse(body: &[u8]) -> ApiResult<Fields> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Fields(fields)),
            Ok(_) => Err(ApiError::new(axum::http::StatusCode::BAD_REQUEST, "the body must be a JSON object")),
            Err(error) => Err(ApiError::new(axum::http::StatusCode::BAD_REQUEST, format!("the body is not valid JSON: {error}"))),
        }
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn typed<'a, T>(&'a self, name: &str, expected: &str, convert: impl FnOnce(&'a Value) -> Option<T>) -> ApiResult<Option<T>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match convert(value) {
            Some(value) => Ok(Some(value)),
            None => Err(ApiError::invalid(name, format!("{name}: expected {expected}, got {}", shown(value)))),
        }
    }

    pub fn string(&self, name: &str) -> ApiResult<Option<&str>> {
        self.typed(name, "a string", Value::as_str)
    }

    pub fn boolean(&self, name: &str) -> ApiResult<Option<bool>> {
        self.typed(name, "true or false", Value::as_bool)
    }

    pub fn object(&self, name: &str) -> ApiResult<Option<&Map<String, Value>>> {
        self.typed(name, "an object", Value::as_object)
    }

    pub fn array(&self, name: &str) -> ApiResult<Option<&Vec<Value>>> {
        self.typed(name, "an array", Value::as_array)
    }

    /// A number within bounds.
    pub fn number(&self, name: &str, low: f32, high: f32) -> ApiResult<Option<f32>> {
        let expected = format!("a number from {low} to {high}");
        self.typed(name, &expected, |value| value.as_f64().map(|value| value as f32).filter(|value| (low..=high).contains(value)))
    }

    /// An integer within bounds.
    pub fn integer(&self, name: &str, low: i64, high: i64) -> ApiResult<Option<i64>> {
        let expected = format!("an integer from {low} to {high}");
        self.typed(name, &expected, |value| as_integer(value).filter(|value| (low..=high).contains(value)))
    }

    /// A count of at most `high`.
    pub fn count(&self, name: &str, high: usize) -> ApiResult<Option<usize>> {
        let high = i64::try_from(high).unwrap_or(i64::MAX);
        Ok(self.integer(name, 0, high)?.map(|count| count as usize))
    }

    /// A string or a list of at most `most` strings.
    pub fn strings(&self, name: &str, most: usize) -> ApiResult<Vec<String>> {
        let expected = format!("a string or a list of up to {most} strings");
        let found = self.typed(name, &expected, |value| match value {
            Value::String(text) => Some(vec![text.clone()]),
            Value::Array(items) if items.len() <= most => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
            _ => None,
        })?;
        Ok(found.unwrap_or_default())
    }

    /// A list of token ids below `vocab`.
    pub fn token_ids(&self, name: &str, vocab: usize) -> ApiResult<Option<Vec<u32>>> {
        let expected = format!("a list of token ids below {vocab}");
        self.typed(name, &expected, |value| token_ids(value.as_array()?, vocab))
    }
}

/// Returns token ids, if all are below `vocab`.
pub(crate) fn token_ids(items: &[Value], vocab: usize) -> Option<Vec<u32>> {
    items.iter().map(|item| as_integer(item).and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < vocab)).collect()
}

/// Integers, also when written as `1.0`.
fn as_integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 9e15).map(|number| number as i64))
}

/// A value in an error message: short.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
