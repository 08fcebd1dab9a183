//! `POST /v1/chat/completions`.

use std::sync::Arc;
use std::time::SystemTime;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use warpwave_llm::Chat;

use crate::access::read_json;
use crate::app::{App, Limits};
use crate::error::{ApiError, ApiResult};
use crate::fields::Fields;
use crate::grammar::Grammar;
use crate::model::ServedModel;
use crate::openai::answer::{Answer, Form};
use crate::openai::params::Params;
use crate::openai::prompts::Prompt;
use crate::output::{OutputParser, ToolFormat};

/// Fields that ask for something this server does not have.
const REFUSED: [&str; 4] = ["audio", "functions", "function_call", "web_search_options"];
/// Variables that belong to the server.
const RESERVED: [&str; 8] =
    ["messages", "tools", "add_generation_prompt", "continue_final_message", "tokenize", "chat_template", "bos_token", "eos_token"];
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

pub(crate) async fn create(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
    let fields = match read_json(&app, &headers, body).await {
        Ok(fields) => fields,
        Err(error) => return error.into_response(),
    };
    // Rendering and tokenizing take a while: not on a thread that serves connections.
    let prepared = tokio::task::spawn_blocking(move || prepare(&app, &fields)).await;
    match prepared {
        Ok(Ok(answer)) => answer.respond().await,
        Ok(Err(error)) => error.into_response(),
        Err(_) => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error while preparing the request; see the server's log")
            .into_response(),
    }
}

fn prepare(app: &Arc<App>, fields: &Fields) -> ApiResult<Answer> {
    let limits = &app.options.limits;
    if let Some(name) = REFUSED.iter().find(|name| fields.get(name).is_some()) {
        return Err(ApiError::invalid(name, format!("{name} is not supported")));
    }
    if fields.strings("modalities", 4)?.iter().any(|kind| kind != "text") {
        return Err(ApiError::invalid("modalities", "modalities: only text is supported"));
    }
    let model = app.model(fields.string("model")?)?;
    let mut params = Params::parse(fields, limits, &model, usize::MAX)?;
    params.logprobs = fields.boolean("logprobs")?.unwrap_or(false);
    let top = fields.count("top_logprobs", 20)?.unwrap_or(0);
    if top > 0 && !params.logprobs {
        return Err(ApiError::invalid("top_logprobs", "top_logprobs requires logprobs"));
    }
    params.request.top_logprobs = top;
    let tools = Tools::parse(fields, limits)?;
    if let Some(grammar) = tools.grammar() {
        if params.grammar.is_some() {
            return Err(ApiError::invalid("tool_choice", "tool_choice cannot be combined with a grammar"));
        }
        grammar.check("tools", limits)?;
        params.grammar = Some(grammar);
    }
    let (prompt, parser) = prompt(&model, fields, &tools)?;
    params.special |= tools.format(&model) == Some(ToolFormat::Bracketed);
    params.request.stop.extend(model.template.stops().iter().map(|stop| (*stop).to_owned()));
    let tokens = model.tokenizer.encode_prompt(&prompt, true)?;
    Answer::submit(app.clone(), model, Form::Chat, params, vec![Prompt { tokens, echo: String::new() }], &parser)
}

/// Renders the messages; returns the prompt and the parser of its answer.
fn prompt(model: &ServedModel, fields: &Fields, tools: &Tools) -> ApiResult<(String, OutputParser)> {
    let prompt = render(model, fields, &tools.shown)?;
    let parser = OutputParser::for_prompt(model.template.parts()[0], &prompt, tools.format(model), tools.forced());
    Ok((prompt, parser))
}

/// Renders the messages of a request.
pub(crate) fn render(model: &ServedModel, fields: &Fields, tools: &[Value]) -> ApiResult<String> {
    let Some(items) = fields.array("messages")? else { return Err(ApiError::invalid("messages", "missing required field `messages`")) };
    if items.is_empty() {
        return Err(ApiError::invalid("messages", "messages: expected at least one message"));
    }
    let messages = items.iter().enumerate().map(|(number, item)| message(number, item)).collect::<ApiResult<Vec<_>>>()?;
    let mut variables = fields.object("chat_template_kwargs")?.cloned().unwrap_or_default();
    if let Some(name) = RESERVED.iter().find(|name| variables.contains_key(**name)) {
        return Err(ApiError::invalid("chat_template_kwargs", format!("chat_template_kwargs: {name} cannot be set")));
    }
    if let Some(effort) = fields.string("reasoning_effort")? {
        variables.insert("reasoning_effort".to_owned(), effort.into());
    }
    if !tools.is_empty() {
        variables.insert("tools".to_owned(), tools.to_vec().into());
    }
    let continues = fields.boolean("continue_final_message")?.unwrap_or(false);
    let add_generation_prompt = fields.boolean("add_generation_prompt")?.unwrap_or(!continues);
    let end = if continues {
        if add_generation_prompt {
            return Err(ApiError::invalid(
                "continue_final_message",
                "continue_final_message cannot be combined with add_generation_prompt",
            ));
        }
        let last = messages.last().and_then(|message| message["content"].as_str()).filter(|content| !content.trim().is_empty());
        Some(
            last.ok_or_else(|| {
                ApiError::invalid("continue_final_message", "continue_final_message requires the last message to have text content")
            })?
            .to_owned(),
        )
    } else {
        None
    };
    let chat = Chat { messages, add_generation_prompt, variables, now: SystemTime::now() };
    let mut prompt = (model.render)(&model.template, &chat).map_err(|error| ApiError::invalid("messages", error))?;
    if let Some(end) = end {
        let Some(at) = prompt.rfind(end.trim()) else {
            return Err(ApiError::invalid(
                "continue_final_message",
                "continue_final_message: the rendered chat template does not contain the last message",
            ));
        };
        prompt.truncate(at + end.trim().len());
    }
    Ok(prompt)
}

/// A message as templates expect it: text content, and the arguments of tool calls as objects.
fn message(number: usize, item: &Value) -> ApiResult<Value> {
    let place = format!("messages[{number}]");
    let wrong = |what: &str| ApiError::invalid(&place, format!("{place}: {what}"));
    let Some(fields) = item.as_object() else { return Err(wrong("expected an object with role and content")) };
    let role = fields.get("role").and_then(Value::as_str).filter(|role| ROLES.contains(role));
    let Some(role) = role else { return Err(wrong(&format!("role: expected one of {}", ROLES.join(", ")))) };
    let content = match fields.get("content") {
        None | Some(Value::Null) if role == "assistant" => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let text = |part: &Value| part["text"].as_str().filter(|_| part["type"] == "text").map(str::to_owned);
            let texts: Option<Vec<String>> = parts.iter().map(text).collect();
            texts.ok_or_else(|| wrong("content: only parts of type text are supported"))?.join("")
        }
        _ => return Err(wrong("content: expected a string or a list of text parts")),
    };
    // Templates know `system`.
    let role = if role == "developer" { "system" } else { role };
    let mut message = json!({ "role": role, "content": content });
    for name in ["name", "tool_call_id", "reasoning_content"] {
        if let Some(text) = fields.get(name).and_then(Value::as_str) {
            message[name] = text.into();
        }
    }
    if let Some(calls) = fields.get("tool_calls").filter(|calls| !calls.is_null()) {
        let Some(calls) = calls.as_array() else { return Err(wrong("tool_calls: expected a list")) };
        let mut calls = calls.clone();
        for call in &mut calls {
            let arguments = call.get("function").and_then(|function| function.get("arguments")).and_then(Value::as_str);
            if let Some(parsed) = arguments.and_then(|text| serde_json::from_str::<Value>(text).ok()).filter(Value::is_object) {
                call["function"]["arguments"] = parsed;
            }
        }
        message["tool_calls"] = calls.into();
    }
    Ok(message)
}

/// The tools of a request, and which of them must be called.
struct Tools {
    /// As the template shows them.
    shown: Vec<Value>,
    /// The functions of which one must be called.
    forced: Vec<Map<String, Value>>,
}

impl Tools {
    fn parse(fields: &Fields, limits: &Limits) -> ApiResult<Tools> {
        let mut tools = Tools { shown: Vec::new(), forced: Vec::new() };
        let wrong = |what: String| ApiError::invalid("tools", format!("tools: {what}"));
        let mut functions = Vec::new();
        for tool in fields.array("tools")?.into_iter().flatten() {
            let function = tool.get("function").and_then(Value::as_object).filter(|_| tool["type"] == "function");
            let Some(function) = function else { return Err(wrong("expected objects of type function".to_owned())) };
            if function.get("name").and_then(Value::as_str).is_none_or(str::is_empty) {
                return Err(wrong("`function.name` is missing".to_owned()));
            }
            if let Some(schema) = function.get("parameters").filter(|schema| !schema.is_null()) {
                Grammar::Schema(schema.clone()).check("tools", limits)?;
            }
            tools.shown.push(tool.clone());
            functions.push(function.clone());
        }
        let choice_error = || ApiError::invalid("tool_choice", "tool_choice: expected none, auto, required, or a function listed in tools");
        match fields.get("tool_choice") {
            None => (),
            Some(Value::String(choice)) => match choice.as_str() {
                "none" => tools.shown.clear(),
                "auto" => (),
                "required" if !functions.is_empty() => tools.forced = functions,
                _ => return Err(choice_error()),
            },
            Some(choice) => {
                let name = &choice["function"]["name"];
                let named = functions.into_iter().find(|function| function.get("name") == Some(name));
                tools.forced.push(named.ok_or_else(choice_error)?);
            }
        }
        Ok(tools)
    }

    fn forced(&self) -> bool {
        !self.forced.is_empty()
    }

    fn format(&self, model: &ServedModel) -> Option<ToolFormat> {
        (!self.shown.is_empty()).then(|| ToolFormat::of(model.template.parts()[0]))
    }

    /// The grammar of a call that must be made.
    fn grammar(&self) -> Option<Grammar> {
        let schema = |function: &Map<String, Value>| {
            let arguments = function.get("parameters").filter(|schema| !schema.is_null()).cloned().unwrap_or(json!({ "type": "object" }));
            json!({
                "type": "object", "properties": { "name": { "const": function["name"] }, "arguments": arguments },
                "required": ["name", "arguments"], "additionalProperties": false,
            })
        };
        match self.forced.as_slice() {
            [] => None,
            [one] => Some(Grammar::Schema(schema(one))),
            several => Some(Grammar::Schema(json!({ "anyOf": several.iter().map(schema).collect::<Vec<_>>() }))),
        }
    }
}
