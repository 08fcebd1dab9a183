//! JSON as Python writes it, for templates that show objects to a model.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Values within values at most.
const DEPTH: usize = 100;

/// What Python's `json.dumps` can be told.
struct Style {
    /// Spaces of a level, each item on a line of its own; none for one line.
    indent: Option<usize>,
    /// Whether characters beyond ASCII are written as numbers.
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
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "separators are two strings")),
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
            return bad(format!("more than {DEPTH} values within values"));
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
            other => return bad(format!("{other} cannot be written as JSON")),
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
