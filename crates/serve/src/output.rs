//! Splits what a model writes into content, reasoning and tool calls, while it is written.

use serde_json::{Map, Value};

/// How a model writes tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolFormat {
    /// `<tool_call>{"name", "arguments"}</tool_call>`: Hermes, Qwen.
    Tagged,
    /// The whole answer is `{"name", "parameters"}`, several separated by `;`: Llama 3.
    Json,
    /// `[TOOL_CALLS][{"name", "arguments"}, …]`: Mistral.
    Bracketed,
}

impl ToolFormat {
    /// The format that a chat template asks for.
    pub fn of(template: &str) -> ToolFormat {
        if template.contains("<tool_call>") {
            ToolFormat::Tagged
        } else if template.contains("[TOOL_CALLS]") {
            ToolFormat::Bracketed
        } else {
            ToolFormat::Json
        }
    }
}

const THINK: &str = "<think>";
const END_THINK: &str = "</think>";
const TOOL: &str = "<tool_call>";
const END_TOOL: &str = "</tool_call>";
const TOOLS: &str = "[TOOL_CALLS]";

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The function's name.
    pub name: String,
    /// The arguments as JSON text.
    pub arguments: String,
}

/// What new text turned out to be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parsed {
    /// Text of the answer.
    pub content: String,
    /// Text of the reasoning before it.
    pub reasoning: String,
    /// Whether the reasoning ended here.
    pub ended_reasoning: bool,
    /// Calls that are complete.
    pub calls: Vec<ToolCall>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing but whitespace came yet.
    Start,
    Content,
    Reasoning,
    /// Inside a tool call, which is parsed when it is complete.
    Call,
}

/// A parser of one answer. Text that may be the start of a mark is held back.
#[derive(Debug, Clone)]
pub struct OutputParser {
    reasoning: bool,
    tools: Option<ToolFormat>,
    /// The answer is one tool call by a grammar.
    forced: bool,
    /// There is nothing to find.
    plain: bool,
    state: State,
    held: String,
}

impl OutputParser {
    /// Creates a parser that separates reasoning, for the prompt that a chat template rendered.
    pub fn thoughts(template: &str, prompt: &str) -> OutputParser {
        OutputParser::for_prompt(template, prompt, None, false)
    }

    /// As [`OutputParser::thoughts`], and finds tool calls.
    pub(crate) fn for_prompt(template: &str, prompt: &str, tools: Option<ToolFormat>, forced: bool) -> OutputParser {
        let inside = prompt.trim_end().ends_with(THINK);
        OutputParser::new(template.contains(THINK) || inside, inside, tools, forced)
    }

    /// Creates a parser; `inside` if the prompt already began the reasoning.
    pub(crate) fn new(reasoning: bool, inside: bool, tools: Option<ToolFormat>, forced: bool) -> OutputParser {
        let state = if reasoning && inside { State::Reasoning } else { State::Start };
        let plain = !reasoning && tools.is_none() && !forced;
        OutputParser { reasoning, tools, forced, plain, state, held: String::new() }
    }

    /// Adds text.
    pub fn push(&mut self, text: &str) -> Parsed {
        let mut parsed = Parsed::default();
        if self.plain {
            parsed.content.push_str(text);
            return parsed;
        }
        self.held.push_str(text);
        while self.advance(&mut parsed) {}
        parsed
    }

    /// Ends the text.
    pub fn finish(&mut self) -> Parsed {
        let mut parsed = Parsed::default();
        let rest = std::mem::take(&mut self.held);
        match self.state {
            State::Reasoning => parsed.reasoning = rest,
            State::Call => match calls_in(&rest) {
                Some(calls) => parsed.calls = calls,
                // Not a call after all.
                None => parsed.content = rest,
            },
            _ => parsed.content = rest,
        }
        parsed
    }

    /// Handles the next part of the held text; returns whether there may be more.
    fn advance(&mut self, parsed: &mut Parsed) -> bool {
        match self.state {
            State::Start => self.begin(parsed),
            State::Reasoning => match self.held.find(END_THINK) {
                Some(at) => {
                    parsed.reasoning.push_str(&self.held[..at]);
                    parsed.ended_reasoning = true;
                    self.held.drain(..at + END_THINK.len());
                    self.state = State::Start;
                    // After the reasoning there are line breaks.
                    self.reasoning = false;
                    true
                }
                None => {
                    parsed.reasoning.push_str(&self.release(END_THINK, false));
                    false
                }
            },
            State::Content => {
                let mark = match self.tools {
                    Some(ToolFormat::Tagged) => TOOL,
                    Some(ToolFormat::Bracketed) => TOOLS,
                    _ => {
                        parsed.content.push_str(&std::mem::take(&mut self.held));
                        return false;
                    }
                };
                match self.held.find(mark) {
                    Some(at) => {
                        parsed.content.push_str(self.held[..at].trim_end());
                        self.held.drain(..at + mark.len());
                        self.state = State::Call;
                        true
                    }
                    None => {
                        parsed.content.push_str(&self.release(mark, true));
                        false
                    }
                }
            }
            State::Call => {
                let Some(at) = self.held.find(END_TOOL).filter(|_| self.tools == Some(ToolFormat::Tagged) && !self.forced) else {
                    return false;
                };
                let call = self.held[..at].to_owned();
                self.held.drain(..at + END_TOOL.len());
                match calls_in(&call) {
                    Some(calls) => parsed.calls.extend(calls),
                    None => parsed.content.push_str(&format!("{TOOL}{call}{END_TOOL}")),
                }
                self.state = State::Start;
                true
            }
        }
    }

    /// Decides what an answer, or what follows a mark, begins with.
    fn begin(&mut self, parsed: &mut Parsed) -> bool {
        let begins = self.held.trim_start();
        if begins.is_empty() {
            return false;
        }
        if self.forced {
            self.state = State::Call;
            return false;
        }
        if self.reasoning {
            if let Some(rest) = begins.strip_prefix(THINK) {
                self.held = rest.to_owned();
                self.state = State::Reasoning;
                return true;
            }
            if THINK.starts_with(begins) {
                return false;
            }
        }
        match self.tools {
            Some(ToolFormat::Json) if begins.starts_with('{') => {
                self.state = State::Call;
                return false;
            }
            Some(ToolFormat::Tagged) if TOOL.starts_with(begins) && begins.len() < TOOL.len() => return false,
            Some(ToolFormat::Bracketed) if TOOLS.starts_with(begins) && begins.len() < TOOLS.len() => return false,
            Some(ToolFormat::Tagged) if begins.starts_with(TOOL) => self.held = begins.to_owned(),
            // A plain answer keeps its whitespace, but not that between marks.
            _ if !parsed.calls.is_empty() || !self.reasoning => self.held = begins.to_owned(),
            _ => (),
        }
        self.state = State::Content;
        true
    }

    /// Takes the held text, except an end that may begin the mark; with `trim`, without the whitespace before that.
    fn release(&mut self, mark: &str, trim: bool) -> String {
        let mut starts = self.held.char_indices().map(|(at, _)| at);
        let mut keep = starts.find(|at| mark.starts_with(&self.held[*at..])).unwrap_or(self.held.len());
        if trim {
            keep = self.held[..keep].trim_end().len();
        }
        let rest = self.held.split_off(keep);
        std::mem::replace(&mut self.held, rest)
    }
}

/// The calls in a JSON object, a list, or several objects separated by `;`. `None` if it is anything else.
fn calls_in(text: &str) -> Option<Vec<ToolCall>> {
    let text = text.trim();
    if let Ok(Value::Array(items)) = serde_json::from_str(text) {
        let calls: Option<Vec<_>> = items.iter().map(|item| call_of(item.as_object()?)).collect();
        return calls.filter(|calls| !calls.is_empty());
    }
    let mut calls = Vec::new();
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let mut at = 0;
    loop {
        match values.next() {
            Some(Ok(value)) => calls.push(call_of(value.as_object()?)?),
            Some(Err(_)) => return None,
            None => return (!calls.is_empty()).then_some(calls),
        }
        at += values.byte_offset();
        let rest = text[at..].trim_start();
        let skipped = text[at..].len() - rest.len() + usize::from(rest.starts_with(';'));
        at += skipped;
        values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
    }
}

fn call_of(call: &Map<String, Value>) -> Option<ToolCall> {
    let name = call.get("name")?.as_str()?.to_owned();
    let arguments = match call.get("arguments").or_else(|| call.get("parameters")) {
        Some(Value::String(text)) => text.clone(),
        Some(arguments) => arguments.to_string(),
        None => "{}".to_owned(),
    };
    Some(ToolCall { name, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a text in pieces of `size` characters.
    fn parse(mut parser: OutputParser, text: &str, size: usize) -> Parsed {
        let mut all = Parsed::default();
        let characters: Vec<char> = text.chars().collect();
        let pieces = characters.chunks(size).map(|piece| piece.iter().collect::<String>());
        let mut add = |parsed: Parsed| {
            all.content.push_str(&parsed.content);
            all.reasoning.push_str(&parsed.reasoning);
            all.calls.extend(parsed.calls);
        };
        for piece in pieces {
            add(parser.push(&piece));
        }
        add(parser.finish());
        all
    }

    fn call(name: &str, arguments: &str) -> ToolCall {
        ToolCall { name: name.to_owned(), arguments: arguments.to_owned() }
    }

    /// The same result for every size of the pieces.
    fn check(parser: &OutputParser, text: &str, content: &str, reasoning: &str, calls: &[ToolCall]) {
        for size in 1..=text.chars().count().max(1) {
            let parsed = parse(parser.clone(), text, size);
            let found = (parsed.content.as_str(), parsed.reasoning.as_str(), parsed.calls.as_slice());
            assert_eq!(found, (content, reasoning, calls), "{text:?} in pieces of {size}");
        }
    }

    #[test]
    fn plain_text_is_unchanged() {
        check(&OutputParser::new(false, false, None, false), " <think> {\"a\": 1} <tool_call>", " <think> {\"a\": 1} <tool_call>", "", &[]);
        check(
            &OutputParser::new(true, false, Some(ToolFormat::Tagged), false),
            "a < b, <thin> and <tool",
            "a < b, <thin> and <tool",
            "",
            &[],
        );
    }

    #[test]
    fn reasoning_is_separated() {
        let parser = OutputParser::new(true, false, None, false);
        check(&parser, "<think>\none < two</think>\n\nyes", "yes", "\none < two", &[]);
        check(&parser, "no thoughts", "no thoughts", "", &[]);
        check(&parser, "<think>cut of", "", "cut of", &[]);
        check(&OutputParser::new(true, true, None, false), "so</think>yes", "yes", "so", &[]);
    }

    #[test]
    fn tagged_calls_are_found() {
        let parser = OutputParser::new(true, false, Some(ToolFormat::Tagged), false);
        let text = "<think>hm</think>\nI call.\n<tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": \"</b>\"}}\n</tool_call>\n<tool_call>{\"name\":\"b\"}</tool_call>";
        check(&parser, text, "I call.", "hm", &[call("a", "{\"x\":\"</b>\"}"), call("b", "{}")]);
        check(&parser, "<tool_call>{\"name\": \"a\", \"arguments\": {}}", "", "", &[call("a", "{}")]);
        check(&parser, "<tool_call>not json</tool_call>", "<tool_call>not json</tool_call>", "", &[]);
    }

    #[test]
    fn json_and_bracketed_calls_are_found() {
        let json = OutputParser::new(false, false, Some(ToolFormat::Json), false);
        let text = "{\"name\": \"a\", \"parameters\": {\"x\": 1}}; {\"name\": \"b\", \"parameters\": {}}";
        check(&json, text, "", "", &[call("a", "{\"x\":1}"), call("b", "{}")]);
        check(&json, "{\"x\": 1}", "{\"x\": 1}", "", &[]);
        check(&json, "plain {\"name\": 1}", "plain {\"name\": 1}", "", &[]);
        let mistral = OutputParser::new(false, false, Some(ToolFormat::Bracketed), false);
        check(&mistral, "[TOOL_CALLS][{\"name\": \"a\", \"arguments\": {\"x\": [1]}}]", "", "", &[call("a", "{\"x\":[1]}")]);
        check(&mistral, "[TOOL", "[TOOL", "", &[]);
        let forced = OutputParser::new(false, false, Some(ToolFormat::Tagged), true);
        check(&forced, "{\"name\": \"a\", \"arguments\": {\"t\": \"</tool_call>\"}}", "", "", &[call("a", "{\"t\":\"</tool_call>\"}")]);
    }

    #[test]
    fn formats_follow_the_template() {
        assert_eq!(ToolFormat::of("… <tool_call> …"), ToolFormat::Tagged);
        assert_eq!(ToolFormat::of("… [TOOL_CALLS] …"), ToolFormat::Bracketed);
        assert_eq!(ToolFormat::of("…"), ToolFormat::Json);
    }
}
