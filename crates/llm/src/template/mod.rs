//! Chats to prompts, by the Jinja template that comes with a model.
//!
//! Templates are programs of whoever made the file: they run with a bounded number of steps, depth and output, and reach nothing but the
//! messages. What they hold in between is not bounded: a text can be doubled with each step. Where that matters, a process whose memory is
//! limited runs them, as the command's does.

mod clock;
mod json;

use std::time::{Duration, SystemTime};

use minijinja::value::{Serde, Value};
use minijinja::{Environment, ErrorKind, syntax::SyntaxConfig};

use self::clock::strftime;
use crate::text_error::TextError;
use crate::tokenizer::Tokenizer;

type Result<T, E = TextError> = std::result::Result<T, E>;

/// What is used where a model has no template.
const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}\
                      {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
const NAME: &str = "chat_template";
/// Bytes of a template at most.
const LARGEST_TEMPLATE: usize = 1 << 20;
/// Bytes of a prompt at most.
const LARGEST_PROMPT: usize = 1 << 26;
/// Steps of a template at most: a message takes some hundred.
const STEPS: u64 = 1_000_000;
/// Calls within calls at most.
const DEPTH: usize = 200;
/// Bytes of the stack. Lists within lists, which templates can make, are walked and freed by functions of the interpreter that call
/// themselves, some hundred bytes for each step.
const STACK: usize = 1 << 29;

/// What a template is given.
#[derive(Debug, Clone, PartialEq)]
pub struct Chat {
    /// The messages, oldest first: objects with `role`, `content` and whatever else the template knows (`tool_calls`, …).
    pub messages: Vec<serde_json::Value>,
    /// Whether the prompt ends with the beginning of the assistant's next message.
    pub add_generation_prompt: bool,
    /// Further variables, such as `tools` or `enable_thinking`.
    pub variables: serde_json::Map<String, serde_json::Value>,
    /// The time for templates that write the date, which is that of UTC.
    pub now: SystemTime,
}

impl Chat {
    /// Of roles and texts, to be answered now.
    pub fn new<'a>(messages: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let message = |(role, content)| serde_json::json!({ "role": role, "content": content });
        let messages = messages.into_iter().map(message).collect();
        Self { messages, add_generation_prompt: true, variables: serde_json::Map::new(), now: SystemTime::now() }
    }
}

/// A chat template, ready to be used.
#[derive(Debug)]
pub struct ChatTemplate {
    source: String,
    environment: Environment<'static>,
    fallback: bool,
    bos: String,
    eos: String,
}

/// What `raise_exception` of a template says.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

impl ChatTemplate {
    /// A template with the tokens that it writes as `bos_token` and `eos_token`.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self> {
        if source.len() > LARGEST_TEMPLATE {
            let reason = format!("it has {} bytes; no more than {LARGEST_TEMPLATE} are read", source.len());
            return Err(TextError::Template { line: 0, reason });
        }
        let mut environment = Environment::new();
        // As transformers sets them.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| failure(&error))?);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_fuel(Some(STEPS));
        environment.set_recursion_limit(DEPTH);
        environment.set_debug(false);
        environment.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
        });
        environment.add_filter("tojson", json::to_json);
        // Python cannot walk `none`, and templates ask before they do.
        environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
        environment.add_template_owned(NAME, without_generation_marks(source)).map_err(|error| failure(&error))?;
        Ok(Self { source: source.to_owned(), environment, fallback: false, bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// The template that came with a tokenizer, or ChatML if none came: see [`ChatTemplate::is_fallback`].
    pub fn of(tokenizer: &Tokenizer) -> Result<Self> {
        let (bos, eos) = (tokenizer.spelt(tokenizer.bos()), tokenizer.spelt(tokenizer.named_eos()));
        let template = Self::new(tokenizer.template().unwrap_or(CHATML), &bos, &eos)?;
        Ok(Self { fallback: tokenizer.template().is_none(), ..template })
    }

    /// Its text, and the tokens that it writes as `bos_token` and `eos_token`: what [`ChatTemplate::new`] takes.
    pub fn parts(&self) -> [&str; 3] {
        [&self.source, &self.bos, &self.eos]
    }

    /// Whether the model came without a template, so that ChatML is used: it may never have seen it, and the user should be told.
    pub fn is_fallback(&self) -> bool {
        self.fallback
    }

    /// Strings that end the assistant's message beside the tokens that do: a model that has no tokens for them writes them as text.
    pub fn stops(&self) -> &'static [&'static str] {
        if self.fallback { &["<|im_end|>", "<|im_start|>"] } else { &[] }
    }

    /// The prompt of a chat. It is encoded with [`Tokenizer::encode_prompt`], special tokens included.
    pub fn render(&self, chat: &Chat) -> Result<String> {
        // The time is the chat's own; everything else of the environment is shared.
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
            let mut prompt = Bounded::default();
            let done = template.render_captured_to(Serde(variables), &mut prompt);
            if prompt.full {
                let reason = format!("it writes more than {LARGEST_PROMPT} bytes");
                return Err(TextError::Template { line: 0, reason });
            }
            done.map_err(|error| failure(&error))?;
            String::from_utf8(prompt.bytes).map_err(|error| TextError::Template { line: 0, reason: error.to_string() })
        };
        let thread = std::thread::Builder::new().name(NAME.to_owned()).stack_size(STACK).spawn(work);
        let thread = thread.map_err(|error| TextError::Template { line: 0, reason: format!("no thread to run it: {error}") })?;
        thread.join().unwrap_or_else(|_| Err(TextError::Template { line: 0, reason: "it made its interpreter fail".to_owned() }))
    }
}

/// Takes so much and no more.
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    full: bool,
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.full |= self.bytes.len() + bytes.len() > LARGEST_PROMPT;
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
        return TextError::Refused(message.clone());
    }
    let reason = match error.kind() {
        ErrorKind::OutOfFuel => format!("it takes more than {STEPS} steps"),
        kind => error.detail().map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}")),
    };
    TextError::Template { line: error.line().unwrap_or(0), reason }
}

/// `{% generation %}` marks what the assistant wrote, for training; here it means nothing. Spaces around it keep their meaning.
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
