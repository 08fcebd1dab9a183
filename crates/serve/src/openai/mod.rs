//! OpenAI's API: chat, completions, embeddings, models, and tokenization.

pub(crate) mod answer;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod models;
pub(crate) mod params;
pub(crate) mod prompts;
pub(crate) mod tokenize;
