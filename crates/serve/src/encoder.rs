//! An encoder that is served: it makes embeddings only.

use std::sync::Arc;

use tokio::sync::Mutex;
use warpwave_llm::{Encoder, EncoderConfig, EncoderInput, EncoderTokenizer};

use crate::error::{ApiError, ApiResult};
use crate::model::unix_time;

/// A loaded encoder.
pub struct ServedEncoder {
    /// The name that requests use.
    pub id: String,
    pub(crate) created: u64,
    pub(crate) config: EncoderConfig,
    pub(crate) tokenizer: EncoderTokenizer,
    /// One batch at a time: it uses the whole device.
    encoder: Arc<Mutex<Encoder>>,
}

impl ServedEncoder {
    /// Serves an encoder under a name.
    pub fn new(id: impl Into<String>, tokenizer: EncoderTokenizer, encoder: Encoder) -> ServedEncoder {
        let config = encoder.config().clone();
        ServedEncoder { id: id.into(), created: unix_time(), config, tokenizer, encoder: Arc::new(Mutex::new(encoder)) }
    }

    /// The tokens of a text, with those around it.
    pub(crate) fn encode(&self, text: &str) -> ApiResult<Vec<u32>> {
        Ok(self.tokenizer.encode(text)?)
    }

    /// Fails for texts that are longer than the context.
    pub(crate) fn check(&self, tokens: &[u32]) -> ApiResult<()> {
        let (found, context) = (tokens.len(), self.config.context);
        if found <= context {
            return Ok(());
        }
        Err(ApiError::invalid("input", format!("input: a text has {found} tokens, more than the context of {context}"))
            .code("context_length_exceeded"))
    }

    /// Returns the embeddings of texts. Requests wait here in their order, without a thread each.
    pub(crate) async fn embed(&self, inputs: Vec<Vec<u32>>) -> Result<Vec<Vec<f32>>, String> {
        let encoder = self.encoder.clone().lock_owned().await;
        let embed = move || {
            let inputs: Vec<EncoderInput<'_>> = inputs.iter().map(|tokens| EncoderInput::new(tokens)).collect();
            encoder.embed(&inputs).map_err(|error| error.to_string())
        };
        tokio::task::spawn_blocking(embed).await.unwrap_or_else(|error| Err(format!("the text encoder failed: {error}")))
    }
}
