//! Grammars that restrict answers: JSON schema, regular expressions, Lark and choices, through `llguidance`.

use std::sync::{Arc, OnceLock};

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};
use warpwave_llm::Tokenizer;
use warpwave_llm::engine::Constraint;

use crate::app::Limits;
use crate::error::{ApiError, ApiResult};
use crate::fields::Fields;

/// What an answer must match.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Grammar {
    Schema(Value),
    Regex(String),
    Lark(String),
    Choice(Vec<String>),
}

impl Grammar {
    /// Reads `response_format`, `structured_outputs` and the older fields for the same.
    pub fn of(fields: &Fields, limits: &Limits) -> ApiResult<Option<Grammar>> {
        let mut found: Vec<(String, Grammar)> = Vec::new();
        if let Some(format) = fields.object("response_format")? {
            match format.get("type").and_then(Value::as_str) {
                Some("text") => (),
                Some("json_object") => found.push(("response_format".to_owned(), Grammar::Schema(json!({ "type": "object" })))),
                Some("json_schema") => {
                    let schema = format.get("json_schema").and_then(|schema| schema.get("schema"));
                    let schema =
                        schema.ok_or_else(|| ApiError::invalid("response_format", "response_format: json_schema.schema is missing"))?;
                    found.push(("response_format".to_owned(), Grammar::Schema(schema.clone())));
                }
                _ => return Err(ApiError::invalid("response_format", "response_format.type: expected text, json_object or json_schema")),
            }
        }
        let nested = fields.object("structured_outputs")?.cloned().unwrap_or_default();
        let nested = Fields(nested);
        for (prefix, fields) in [("", &nested), ("guided_", fields)] {
            let name = |key: &str| format!("{prefix}{key}");
            if let Some(schema) = fields.get(&name("json")) {
                let schema = match schema {
                    Value::String(text) => serde_json::from_str(text)
                        .map_err(|error| ApiError::invalid(&name("json"), format!("{}: not valid JSON: {error}", name("json"))))?,
                    schema => schema.clone(),
                };
                found.push((name("json"), Grammar::Schema(schema)));
            }
            if let Some(regex) = fields.string(&name("regex"))? {
                found.push((name("regex"), Grammar::Regex(regex.to_owned())));
            }
            if let Some(grammar) = fields.string(&name("grammar"))? {
                found.push((name("grammar"), Grammar::Lark(grammar.to_owned())));
            }
            let choices = fields.strings(&name("choice"), 1024)?;
            if !choices.is_empty() {
                found.push((name("choice"), Grammar::Choice(choices)));
            }
        }
        if let Some(schema) = fields.get("json_schema") {
            found.push(("json_schema".to_owned(), Grammar::Schema(schema.clone())));
        }
        if fields.get("grammar").is_some() {
            return Err(ApiError::invalid("grammar", "grammar: GBNF is not supported; use structured_outputs.grammar with a Lark grammar"));
        }
        if found.len() > 1 {
            let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
            return Err(ApiError::invalid(&found[1].0, format!("only one grammar per request is allowed, got {}", names.join(" and "))));
        }
        let Some((name, grammar)) = found.pop() else { return Ok(None) };
        grammar.check(&name, limits)?;
        Ok(Some(grammar))
    }

    /// Refuses grammars that are too large before they are compiled.
    pub fn check(&self, name: &str, limits: &Limits) -> ApiResult<()> {
        let bytes = match self {
            Grammar::Schema(schema) => {
                if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
                    return Err(ApiError::invalid(name, format!("{name}: expected a JSON schema object")));
                }
                if depth(schema, limits.schema_depth) > limits.schema_depth {
                    return Err(ApiError::invalid(
                        name,
                        format!("{name}: the schema is nested deeper than {} levels", limits.schema_depth),
                    ));
                }
                schema.to_string().len()
            }
            Grammar::Regex(text) | Grammar::Lark(text) => text.len(),
            Grammar::Choice(choices) => choices.iter().map(String::len).sum(),
        };
        if bytes > limits.grammar_bytes {
            return Err(ApiError::invalid(name, format!("{name}: {bytes} bytes exceed the maximum of {}", limits.grammar_bytes)));
        }
        Ok(())
    }

    fn compiled(&self) -> TopLevelGrammar {
        match self {
            Grammar::Schema(schema) => TopLevelGrammar::from_json_schema(schema.clone()),
            Grammar::Regex(regex) => TopLevelGrammar::from_regex(regex),
            Grammar::Lark(text) => TopLevelGrammar::from_lark(text.clone()),
            Grammar::Choice(choices) => {
                let rules: Vec<String> = choices.iter().map(|choice| Value::from(choice.as_str()).to_string()).collect();
                TopLevelGrammar::from_lark(format!("start: {}", rules.join(" | ")))
            }
        }
    }
}

/// The depth of a value, counted up to one more than `most`.
fn depth(value: &Value, most: usize) -> usize {
    if most == 0 {
        return 1;
    }
    let deepest = match value {
        Value::Array(items) => items.iter().map(|item| depth(item, most - 1)).max(),
        Value::Object(fields) => fields.values().map(|item| depth(item, most - 1)).max(),
        _ => return 0,
    };
    1 + deepest.unwrap_or(0)
}

/// Compiles grammars for one tokenizer. The token trie is built at the first use.
#[derive(Default)]
pub(crate) struct Grammars {
    factory: OnceLock<Result<Arc<ParserFactory>, String>>,
}

struct Tokens {
    trie: TokTrie,
    tokenizer: Arc<Tokenizer>,
}

impl TokenizerEnv for Tokens {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| self.tokenizer.encode(text, false).unwrap_or_default())
    }
}

impl Grammars {
    fn factory(&self, tokenizer: &Arc<Tokenizer>, vocab: usize) -> Result<Arc<ParserFactory>, String> {
        let build = || {
            let eos = tokenizer.eos().first().copied().ok_or("the tokenizer has no end-of-sequence token")?;
            let word = |id: u32| match tokenizer.token(id) {
                // Special tokens are not text: the marker keeps them out of it.
                Some(bytes) if tokenizer.is_special(id) => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat(),
                Some(bytes) => bytes.to_vec(),
                None => Vec::new(),
            };
            let words: Vec<Vec<u8>> = (0..vocab as u32).map(word).collect();
            let trie = TokTrie::from(&TokRxInfo::new(vocab as u32, eos), &words);
            let tokens: TokEnv = Arc::new(Tokens { trie, tokenizer: tokenizer.clone() });
            let mut factory = ParserFactory::new_simple(&tokens).map_err(|error| error.to_string())?;
            factory.quiet();
            factory.limits_mut().verbose_errors = false;
            Ok(Arc::new(factory))
        };
        self.factory.get_or_init(build).clone()
    }

    /// Compiles a grammar to a constraint of one answer.
    pub fn constraint(&self, grammar: &Grammar, tokenizer: &Arc<Tokenizer>, vocab: usize) -> Result<Box<dyn Constraint>, String> {
        let factory = self.factory(tokenizer, vocab)?;
        // The compiler is not ours: a panic in it must end one request only.
        let compile = std::panic::AssertUnwindSafe(|| Matcher::new(factory.create_parser(grammar.compiled())));
        let mut matcher =
            std::panic::catch_unwind(compile).map_err(|_| "internal error while compiling the grammar; see the server's log".to_owned())?;
        match matcher.get_error() {
            Some(error) => Err(first_line(&error)),
            None => {
                // An impossible grammar is found here instead of in the first step.
                matcher.compute_mask_or_eos().map_err(|error| first_line(&error.to_string()))?;
                Ok(Box::new(Guide { matcher }))
            }
        }
    }
}

/// The beginning of an error: some repeat the whole grammar.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(300).collect()
}

struct Guide {
    matcher: Matcher,
}

impl Constraint for Guide {
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), String> {
        let compute = std::panic::AssertUnwindSafe(|| self.matcher.compute_mask_or_eos());
        let mask =
            std::panic::catch_unwind(compute).map_err(|_| "internal error in constrained decoding; see the server's log".to_owned())?;
        let mask = mask.map_err(|error| first_line(&error.to_string()))?;
        for (token, logit) in logits.iter_mut().enumerate() {
            if token >= mask.len() || !mask.is_allowed(token as u32) {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<bool, String> {
        let consume = std::panic::AssertUnwindSafe(|| self.matcher.consume_token(token));
        let consumed =
            std::panic::catch_unwind(consume).map_err(|_| "internal error in constrained decoding; see the server's log".to_owned())?;
        consumed.map_err(|error| first_line(&error.to_string()))?;
        Ok(self.matcher.is_stopped())
    }
}
