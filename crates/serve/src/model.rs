//! A model that is served: tokenizer, chat template and engine.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use warpwave_llm::engine::{EngineClient, EngineThread};
use warpwave_llm::{Chat, ChatTemplate, Tokenizer};

use crate::grammar::Grammars;

/// Renders a chat. Templates are untrusted programs: a server's owner may render them in a process with limited memory.
pub type Render = Arc<dyn Fn(&ChatTemplate, &Chat) -> Result<String, String> + Send + Sync>;

/// A loaded model.
pub struct ServedModel {
    /// The name that requests use.
    pub id: String,
    /// Further names of it.
    pub aliases: Vec<String>,
    /// The devices it runs on.
    pub device: String,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) template: ChatTemplate,
    pub(crate) render: Render,
    pub(crate) engine: EngineThread,
    pub(crate) client: EngineClient,
    pub(crate) grammars: Grammars,
}

impl ServedModel {
    /// Serves an engine under a name. Chats are rendered in this process; see [`ServedModel::render_with`].
    pub fn new(id: impl Into<String>, tokenizer: Arc<Tokenizer>, template: ChatTemplate, engine: EngineThread) -> ServedModel {
        let client = engine.client();
        let render: Render = Arc::new(|template, chat| template.render(chat).map_err(|error| error.to_string()));
        let (id, aliases, device) = (id.into(), Vec::new(), "cpu".to_owned());
        ServedModel { id, aliases, device, tokenizer, template, render, engine, client, grammars: Grammars::default() }
    }

    /// Sets how chats are rendered.
    #[must_use]
    pub fn render_with(self, render: Render) -> Self {
        ServedModel { render, ..self }
    }
}

/// Seconds since 1970.
pub(crate) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
