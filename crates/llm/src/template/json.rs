//! JSON formatted as by Python's `json.dumps`, for templates.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// The maximum nesting.
const DEPTH: usize = 100;

/// Options of Python's `json.dumps`.
struct Style {
    /// Spaces per level, with one item per line; `None` for a single line.
    indent: Option<usize>,
    /// Whether non-ASCII characters are escaped.
    ascii: bool,
    sorted: bool,
    between: String,
    behind_key: String,
}

/// The filter `tojson`, as transformers defines it.
pub(super) fn to_json(value: Value, arguments: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = arguments.get("indent")?;
    let separators: Option<Vec<String>> = arguments.get("separators")?;
    let (between, behind_key) = match separators.as_deref() {
        Some([between, behind_key]) => (between.clone(), behind_key.clone()),
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "separators: expected two strings")),
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
    };
    let flag = |name| arguments.get::<Option<bool>>(name).map(|flag| flag.unwrap_or(false));
    let (ascii, sorted) = (flag("ensure_ascii")?, flag("sort_keys")?);
    arguments.assert_all_used()?;
    let mut text = String::new();
    Style { indent: indent.map(|indent| indent.min(16)), ascii, sorted, between, behind_key }.write(&value, 0, &mut text)?;
    Ok(text)
}

impl Style {
    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let bad = |reason: String| Err(Error::new(ErrorKind::BadSerialization, reason));
        if depth > DEPTH {
            return bad(format!("nested more than {DEPTH} levels"));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&value.to_string()),
            ValueKind::String => self.text(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                out.push('[');
                let mut count = 0;
                for item in value.try_iter()? {
                    self.begin(count, depth, out);
                    self.write(&item, depth + 1, out)?;
                    count += 1;
                }
                self.end(count, depth, out);
                out.push(']');
            }
            ValueKind::Map => {
                out.push('{');
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sorted {
                    keys.sort();
                }
                for (number, key) in keys.iter().enumerate() {
                    self.begin(number, depth, out);
                    self.text(&key.to_string(), out);
                    out.push_str(&self.behind_key);
                    self.write(&value.get_item(key)?, depth + 1, out)?;
                }
                self.end(keys.len(), depth, out);
                out.push('}');
            }
            other => return bad(format!("cannot convert {other} to JSON")),
        }
        Ok(())
    }

    fn begin(&self, number: usize, depth: usize, out: &mut String) {
        if number > 0 {
            out.push_str(&self.between);
        }
        self.line(depth + 1, out);
    }

    fn end(&self, count: usize, depth: usize, out: &mut String) {
        if count > 0 {
            self.line(depth, out);
        }
    }

    fn line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn text(&self, text: &str, out: &mut String) {
        let quoted = serde_json::Value::from(text).to_string();
        if !self.ascii {
            out.push_str(&quoted);
            return;
        }
        for unit in quoted.encode_utf16() {
            match char::from_u32(unit.into()).filter(char::is_ascii) {
                Some(character) => out.push(character),
                None => out.push_str(&format!("\\u{unit:04x}")),
            }
        }
    }
}
