//! Prompts as texts or as token ids, one or several.

use serde_json::Value;

use crate::error::{ApiError, ApiResult};
use crate::fields::{Fields, token_ids};
use crate::model::ServedModel;

/// A prompt and the text that is repeated before its answer.
pub(crate) struct Prompt {
    pub tokens: Vec<u32>,
    pub echo: String,
}

/// Reads a field with a text, a list of texts, token ids, or a list of lists of token ids.
pub(crate) fn prompts(model: &ServedModel, fields: &Fields, name: &str) -> ApiResult<Vec<Prompt>> {
    let text = |text: &str| Ok(Prompt { tokens: model.tokenizer.encode_prompt(text, true)?, echo: text.to_owned() });
    inputs(fields, name, model.client.vocab(), text, |tokens| Prompt { echo: model.tokenizer.decode(&tokens, true), tokens })
}

/// Reads the same kinds of field; `text` and `tokens` convert each.
pub(crate) fn inputs<T>(
    fields: &Fields,
    name: &str,
    vocab: usize,
    text: impl Fn(&str) -> ApiResult<T>,
    tokens: impl Fn(Vec<u32>) -> T,
) -> ApiResult<Vec<T>> {
    let wrong = || ApiError::invalid(name, format!("{name}: expected text, a list of texts, or token ids below {vocab}"));
    let ids = |items: &[Value]| -> ApiResult<T> { Ok(tokens(token_ids(items, vocab).ok_or_else(wrong)?)) };
    match fields.get(name) {
        Some(Value::String(prompt)) => Ok(vec![text(prompt)?]),
        Some(Value::Array(items)) => match items.first() {
            Some(Value::String(_)) => items.iter().map(|item| text(item.as_str().ok_or_else(wrong)?)).collect(),
            Some(Value::Array(_)) => items.iter().map(|item| ids(item.as_array().ok_or_else(wrong)?)).collect(),
            Some(Value::Number(_)) => Ok(vec![ids(items)?]),
            _ => Err(wrong()),
        },
        None => Err(ApiError::invalid(name, format!("{name} is missing"))),
        _ => Err(wrong()),
    }
}
