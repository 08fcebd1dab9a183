//! Renders chats as prompts, with the Jinja template of the model.
//!
//! Templates are untrusted programs. Their steps, recursion depth and output are limited, and they can access nothing but the messages.
//! Their memory is not limited: a string can double with each step. To limit it, render in a process with limited memory, as the `warpwave`
//! command does.

mod clock;
mod json;

use std::time::{Duration, SystemTime};

use minijinja::value::{Serde, Value};
use minijinja::{Environment, ErrorKind, syntax::SyntaxConfig};

use self::clock::strftime;
use crate::text_error::TextError;
use crate::tokenizer::Tokenizer;

type Result<T, E = TextError> = std::result::Result<T, E>;

/// The template for models without one.
const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}\
                      {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
const NAME: &str = "chat_template";
/// The largest template in bytes.
const MAX_TEMPLATE: usize = 1 << 20;
/// The largest prompt in bytes.
const MAX_PROMPT: usize = 1 << 26;
/// The maximum number of interpreter steps; a message takes some hundred.
const MAX_STEPS: u64 = 1_000_000;
/// The maximum recursion depth.
const MAX_DEPTH: usize = 200;
/// Stack size in bytes. The interpreter walks and frees nested lists recursively, with some hundred bytes per level.
const STACK: usize = 1 << 29;

/// The input of a template.
#[derive(Debug, Clone, PartialEq)]
pub struct Chat {
    /// The messages, oldest first: objects with `role`, `content` and other keys the template supports (`tool_calls`, …).
    pub messages: Vec<serde_json::Value>,
    /// Whether the prompt ends with the start of the assistant's next message.
    pub add_generation_prompt: bool,
    /// Additional variables, such as `tools` or `enable_thinking`.
    pub variables: serde_json::Map<String, serde_json::Value>,
    /// The time for templates that include the date, in UTC.
    pub now: SystemTime,
}

impl Chat {
    /// Creates a chat of (role, text) messages, to be answered by the assistant.
    pub fn new<'a>(messages: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let message = |(role, content)| serde_json::json!({ "role": role, "content": content });
        let messages = messages.into_iter().map(message).collect();
        Self { messages, add_generation_prompt: true, variables: serde_json::Map::new(), now: SystemTime::now() }
    }
}

/// A compiled chat template.
///
/// Rendering limits steps, depth and output, but not memory: render untrusted templates in a process with limited memory.
#[derive(Debug)]
pub struct ChatTemplate {
    source: String,
    environment: Environment<'static>,
    fallback: bool,
    bos: String,
    eos: String,
}

/// The message of a template's `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

impl ChatTemplate {
    /// Compiles a template, with the values of its `bos_token` and `eos_token`.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self> {
        if source.len() > MAX_TEMPLATE {
            let reason = format!("{} bytes exceed the maximum of {MAX_TEMPLATE}", source.len());
            return Err(TextError::Template { line: 0, reason });
        }
        let mut environment = Environment::new();
        // As transformers sets them.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| failure(&error))?);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_fuel(Some(MAX_STEPS));
        environment.set_recursion_limit(MAX_DEPTH);
        environment.set_debug(false);
        environment.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
        });
        environment.add_filter("tojson", json::to_json);
        // Python cannot iterate over `none`; templates test for it.
        environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
        environment.add_template_owned(NAME, without_generation_marks(source)).map_err(|error| failure(&error))?;
        Ok(Self { source: source.to_owned(), environment, fallback: false, bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// Returns the tokenizer's template, or ChatML if it has none: see [`ChatTemplate::is_fallback`].
    pub fn of(tokenizer: &Tokenizer) -> Result<Self> {
        let (bos, eos) = (tokenizer.spelling(tokenizer.bos()), tokenizer.spelling(tokenizer.named_eos()));
        let template = Self::new(tokenizer.template().unwrap_or(CHATML), &bos, &eos)?;
        Ok(Self { fallback: tokenizer.template().is_none(), ..template })
    }

    /// Returns the arguments of [`ChatTemplate::new`]: source, `bos_token` and `eos_token`.
    pub fn parts(&self) -> [&str; 3] {
        [&self.source, &self.bos, &self.eos]
    }

    /// Returns whether the model has no template and ChatML is used. The model may not be trained for it: tell the user.
    pub fn is_fallback(&self) -> bool {
        self.fallback
    }

    /// Returns stop strings of the assistant's message, in addition to EOS tokens: a model without ChatML's tokens writes them as text.
    pub fn stops(&self) -> &'static [&'static str] {
        if self.fallback { &["<|im_end|>", "<|im_start|>"] } else { &[] }
    }

    /// Renders the prompt of a chat. Encode it with [`Tokenizer::encode_prompt`] and `special`.
    pub fn render(&self, chat: &Chat) -> Result<String> {
        // The time is per chat; the rest of the environment is shared.
        let mut environment = self.environment.clone();
        let now = chat.now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        environment.add_function("strftime_now", move |format: String| strftime(&format, now));
        let mut variables = chat.variables.clone();
        for absent in ["tools", "documents"] {
            variables.entry(absent).or_insert(serde_json::Value::Null);
        }
        variables.insert("messages".into(), chat.messages.clone().into());
        variables.insert("add_generation_prompt".into(), chat.add_generation_prompt.into());
        variables.insert("bos_token".into(), self.bos.clone().into());
        variables.insert("eos_token".into(), self.eos.clone().into());
        let work = move || -> Result<String> {
            let template = environment.get_template(NAME).map_err(|error| failure(&error))?;
            let mut prompt = Limited::default();
            let done = template.render_captured_to(Serde(variables), &mut prompt);
            if prompt.full {
                let reason = format!("the prompt exceeds {MAX_PROMPT} bytes");
                return Err(TextError::Template { line: 0, reason });
            }
            done.map_err(|error| failure(&error))?;
            String::from_utf8(prompt.bytes).map_err(|error| TextError::Template { line: 0, reason: error.to_string() })
        };
        let thread = std::thread::Builder::new().name(NAME.to_owned()).stack_size(STACK).spawn(work);
        let thread = thread.map_err(|error| TextError::Template { line: 0, reason: format!("cannot start a thread: {error}") })?;
        thread.join().unwrap_or_else(|_| Err(TextError::Template { line: 0, reason: "the interpreter panicked".to_owned() }))
    }
}

/// A writer that accepts at most [`MAX_PROMPT`] bytes.
#[derive(Default)]
struct Limited {
    bytes: Vec<u8>,
    full: bool,
}

impl std::io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.full |= self.bytes.len() + bytes.len() > MAX_PROMPT;
        if self.full {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn failure(error: &minijinja::Error) -> TextError {
    let raised = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Raised>());
    if let Some(Raised(message)) = raised {
        return TextError::Rejected(message.clone());
    }
    let reason = match error.kind() {
        ErrorKind::OutOfFuel => format!("exceeds {MAX_STEPS} steps"),
        kind => error.detail().map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}")),
    };
    TextError::Template { line: error.line().unwrap_or(0), reason }
}

/// Replaces `{% generation %}`, which marks the assistant's text for training, by `{% if true %}`, which keeps its whitespace control.
fn without_generation_marks(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, block)) = rest.split_once("{%") {
        text.push_str(before);
        text.push_str("{%");
        let Some((inside, after)) = block.split_once("%}") else {
            rest = block;
            break;
        };
        let name = inside.trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
        match name {
            "generation" => text.push_str(&inside.replace(name, "if true")),
            "endgeneration" => text.push_str(&inside.replace(name, "endif")),
            _ => text.push_str(inside),
        }
        text.push_str("%}");
        rest = after;
    }
    text + rest
}
