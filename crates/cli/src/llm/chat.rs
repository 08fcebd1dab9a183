//! `warpwave chat`: an interactive conversation.

use std::io::{BufRead, IsTerminal};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warpwave_llm::{ChatTemplate, Completion, Event, FinishReason, LanguageModel, Request, Sampler, Sequence, Tokenizer};

use warpwave_serve::OutputParser;

use super::super::{Context, Failure, Outcome, failed};
use super::generate::{print_timings, timings, warn_fallback};
use super::interrupt::Interrupt;
use super::sampling::SamplingArgs;
use super::template::render;
use super::{ModelArgs, advise};

const HELP: &str = "\
/help          show this help
/reset         clear the conversation, but keep the system prompt
/system TEXT   set the system prompt and clear the conversation; without TEXT, show the system prompt
/save FILE     save the conversation as JSON
/quit          exit (or Ctrl-D)
Ctrl-C stops the response; at the prompt, press it twice to exit.";

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    warpwave chat\n  \
    warpwave chat model.gguf --device cuda:0 --system 'Answer in one sentence.'\n  \
    warpwave chat --save trip.json\n  \
    echo 'What is the capital of France?' | warpwave chat --temperature 0\n\n\
    Lines that start with / are commands; /help lists them. If standard input is not a terminal, each line is one message, and only the \
    answers go to standard output.")]
#[command(mut_arg("temperature", |arg| arg.help("Set the sampling temperature (0: greedy); default: 0.7")))]
pub(crate) struct Args {
    #[command(flatten)]
    model_args: ModelArgs,
    /// Set the system prompt.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Generate at most N tokens per answer.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1024)]
    max_tokens: usize,
    /// Stop at this string, which is not included in the output; repeatable.
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Show the thoughts of reasoning models, on standard error.
    #[arg(long)]
    show_thinking: bool,
    /// Save the conversation to this file after each answer; an existing file is resumed.
    #[arg(long, value_name = "FILE.json")]
    save: Option<PathBuf>,
    /// Print timings to standard error after each answer.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
}

/// State of the conversation.
struct Conversation<'a> {
    loaded: LanguageModel,
    tokenizer: &'a Tokenizer,
    template: &'a ChatTemplate,
    request: Request,
    /// Whether the user gave a seed; if so, every answer uses it.
    seeded: bool,
    system: Option<String>,
    /// (role, content), without the system prompt.
    messages: Vec<(&'static str, String)>,
    sequence: Sequence,
    /// Tokens of the conversation so far. This or the sequence is a prefix of the other.
    seen: Vec<u32>,
    verbose: bool,
    show_thinking: bool,
    /// Where the conversation is kept.
    file: Option<PathBuf>,
}

pub(crate) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    args.model_args.with_threads(|| chat(context, args))
}

fn chat(context: &mut Context<'_>, args: &Args) -> Outcome {
    let sampler: Sampler = args.sampling.sampler(0.7)?;
    let saved = args.save.as_deref().map(Saved::read).transpose()?.unwrap_or_default();
    // Validate before loading the weights, which can take long.
    let checkpoint = args.model_args.open(context)?;
    args.sampling.check_tokens(checkpoint.config().vocab)?;
    let tokenizer = checkpoint.tokenizer()?;
    let template = ChatTemplate::of(&tokenizer)?;
    warn_fallback(context, &template)?;
    let loaded = args.model_args.load_checkpoint(context, checkpoint)?;
    let stop = args.stop.iter().map(String::as_str).chain(template.stops().iter().copied()).map(str::to_owned).collect();
    let request = Request { max_tokens: args.max_tokens, sampler, stop, ..Request::default() };
    let at_terminal = std::io::stdin().is_terminal();
    if at_terminal {
        let (name, device) = (loaded.checkpoint.config().name.as_deref().unwrap_or("the model"), loaded.runner.model().device_names());
        writeln!(context.err, "{name} on {device}, context {} tokens. Type /help for commands.", loaded.runner.context())?;
    }
    let mut conversation = Conversation {
        loaded,
        tokenizer: &tokenizer,
        template: &template,
        request,
        seeded: args.sampling.is_seeded(),
        system: args.system.clone().or(saved.system),
        messages: saved.messages,
        sequence: Sequence::default(),
        seen: Vec::new(),
        verbose: args.verbose,
        show_thinking: args.show_thinking,
        file: args.save.clone(),
    };
    let mut input = std::io::stdin().lock();
    let mut failures = 0;
    loop {
        if at_terminal {
            write!(context.err, "> ")?;
            context.err.flush()?;
        }
        let mut line = Vec::new();
        // A Ctrl-C just after the answer ended should not end the program.
        let interrupt = at_terminal.then(Interrupt::listen);
        if input.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        drop(interrupt);
        let line = String::from_utf8(line);
        let line = line.as_deref().map(str::trim);
        let answered = match line.map(|line| (line, line.strip_prefix('/'))) {
            Ok(("", _)) => Ok(()),
            Ok((message, None)) => conversation.answer(context, message)?,
            Ok((_, Some(command))) => {
                let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
                if matches!(name, "quit" | "exit" | "q") {
                    break;
                }
                let message = conversation.command(name, rest.trim());
                writeln!(context.err, "{message}")?;
                Ok(())
            }
            Err(error) => Err(failed(format!("input is not valid UTF-8: {error}"))),
        };
        if let Err(failure) = answered {
            failures += 1;
            writeln!(context.err, "warpwave: {}", failure.message)?;
        }
    }
    // At a terminal the user has seen the errors.
    if failures > 0 && !at_terminal {
        return Err(failed(format!("{failures} messages failed")));
    }
    Ok(())
}

/// A conversation of an earlier run.
#[derive(Default)]
struct Saved {
    system: Option<String>,
    messages: Vec<(&'static str, String)>,
}

impl Saved {
    /// Reads what `--save` and `/save` write; a file that does not exist is an empty conversation.
    fn read(file: &Path) -> Result<Saved, Failure> {
        let wrong = |what: String| failed(format!("{}: {what}", file.display()));
        let text = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Saved::default()),
            text => text.map_err(|error| wrong(error.to_string()))?,
        };
        let items: Vec<Value> = serde_json::from_str(&text).map_err(|error| wrong(format!("not a saved conversation: {error}")))?;
        let mut saved = Saved::default();
        for (number, item) in items.iter().enumerate() {
            let content = item["content"].as_str().map(str::to_owned);
            match (item["role"].as_str(), content) {
                (Some("system"), Some(text)) if number == 0 => saved.system = Some(text),
                (Some("user"), Some(text)) => saved.messages.push(("user", text)),
                (Some("assistant"), Some(text)) => saved.messages.push(("assistant", text)),
                _ => {
                    return Err(wrong(format!(
                        "not a saved conversation: message {number} must have text content and a role of system (first only), user or assistant"
                    )));
                }
            }
        }
        Ok(saved)
    }
}

impl Conversation<'_> {
    /// Runs a slash command and returns its message.
    fn command(&mut self, name: &str, rest: &str) -> String {
        match (name, rest) {
            ("help", _) => HELP.to_owned(),
            ("reset", _) => {
                self.messages.clear();
                "Conversation cleared.".to_owned()
            }
            ("system", "") => self.system.clone().unwrap_or_else(|| "No system prompt set.".to_owned()),
            ("system", text) => {
                self.messages.clear();
                self.system = Some(text.to_owned());
                "System prompt set, conversation cleared.".to_owned()
            }
            ("save", "") => "/save needs a file name.".to_owned(),
            ("save", file) => match std::fs::write(Path::new(file), format!("{:#}\n", self.as_json())) {
                Ok(()) => format!("Saved {} messages to {file}.", self.messages.len()),
                Err(error) => format!("{file}: {error}"),
            },
            _ => format!("Unknown command /{name}.\n{HELP}"),
        }
    }

    fn as_json(&self) -> Value {
        let message = |(role, content): (&str, &str)| json!({ "role": role, "content": content });
        self.all_messages().map(message).collect()
    }

    /// Iterates over (role, content), system prompt first.
    fn all_messages(&self) -> impl Iterator<Item = (&str, &str)> {
        let system = self.system.as_deref().map(|text| ("system", text));
        system.into_iter().chain(self.messages.iter().map(|(role, text)| (*role, text.as_str())))
    }

    /// Answers a message.
    ///
    /// If generation fails, the message is removed and the inner result has the error; the conversation can continue.
    fn answer(&mut self, context: &mut Context<'_>, message: &str) -> Result<Outcome, Failure> {
        self.messages.push(("user", message.to_owned()));
        let made = match self.prompt() {
            Ok(prompt) => self.generate(context, prompt)?,
            Err(failure) => Err(failure),
        };
        let (made, text) = match made {
            Ok(made) => made,
            Err(failure) => {
                self.messages.pop();
                return Ok(Err(failure));
            }
        };
        if self.verbose {
            print_timings(context, &made, &timings(&self.loaded, &made))?;
        }
        if made.finish_reason == FinishReason::Context {
            let limit = self.loaded.runner.context();
            writeln!(context.err, "warpwave: context full ({limit} tokens); use /reset, or restart with a larger --context")?;
        }
        if made.finish_reason == FinishReason::Cancelled && made.tokens.is_empty() {
            // Cancelled before the first token: drop the message.
            self.messages.pop();
        } else {
            self.messages.push(("assistant", text.trim().to_owned()));
        }
        Ok(self.keep())
    }

    /// Saves the conversation, if it is to be kept.
    fn keep(&self) -> Outcome {
        let Some(file) = &self.file else { return Ok(()) };
        // A crash leaves the old file or the new one.
        let temporary = file.with_extension("json.tmp");
        let written = std::fs::write(&temporary, format!("{:#}\n", self.as_json())).and_then(|()| std::fs::rename(&temporary, file));
        written.map_err(|error| failed(format!("{}: {error}", file.display())))
    }

    /// Generates and prints an answer; also returns its text without thoughts. The inner result has errors of the model.
    fn generate(&mut self, context: &mut Context<'_>, prompt: Vec<u32>) -> Result<Result<(Completion, String), Failure>, Failure> {
        // Reuse the common prefix in the KV cache; recompute the last token for its logits.
        let same = prompt.iter().zip(&self.seen).take_while(|(a, b)| a == b).count();
        self.loaded.runner.truncate(&mut self.sequence, same.min(prompt.len().saturating_sub(1)));
        if !self.seeded {
            // Without a fixed seed, repeated questions get different answers.
            self.request.sampler.seed = self.request.sampler.seed.wrapping_add(1);
        }
        let interrupt = Interrupt::listen();
        let mut failure = None;
        let mut started = false;
        let mut answer = String::new();
        let mut parser = OutputParser::thoughts(self.template.parts()[0], &self.tokenizer.decode(&prompt, true));
        let show_thinking = self.show_thinking;
        let listen = |event: &Event| {
            let mut parsed = parser.push(event.text());
            if matches!(event, Event::Done { .. }) {
                let rest = parser.finish();
                parsed.content.push_str(&rest.content);
                parsed.reasoning.push_str(&rest.reasoning);
            }
            if show_thinking && !parsed.reasoning.is_empty() {
                let _ = write!(context.err, "{}", parsed.reasoning).and_then(|()| context.err.flush());
            }
            if show_thinking && parsed.ended_reasoning {
                let _ = writeln!(context.err);
            }
            // SentencePiece puts a space before the first word.
            let text = if started { parsed.content.as_str() } else { parsed.content.strip_prefix(' ').unwrap_or(&parsed.content) };
            started |= !parsed.content.is_empty();
            answer.push_str(text);
            if let Err(error) = write!(context.out, "{text}").and_then(|()| context.out.flush()) {
                failure = Some(error);
                return ControlFlow::Break(());
            }
            if interrupt.pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let generation = self.loaded.runner.generate(&mut self.sequence, &prompt, Some(self.tokenizer), &self.request);
        let made = generation.and_then(|generation| generation.run(listen));
        drop(interrupt);
        // After a failed or cancelled step the sequence may differ; the next call truncates it to the common prefix.
        self.seen = prompt;
        if let Some(error) = failure {
            return Err(error.into());
        }
        if let Ok(made) = &made {
            self.seen.extend(made.tokens.iter().map(|token| token.id));
        }
        if started || made.is_ok() {
            writeln!(context.out)?;
            context.out.flush()?;
        }
        Ok(made.map(|made| (made, answer)).map_err(advise))
    }

    /// Renders and tokenizes the whole conversation.
    fn prompt(&self) -> Result<Vec<u32>, Failure> {
        let text = render(self.template, self.all_messages())?;
        let prompt = self.tokenizer.encode_prompt(&text, true)?;
        let limit = self.loaded.runner.context();
        match prompt.len() {
            0 => Err(failed("the chat template produced an empty prompt")),
            tokens if tokens >= limit => Err(failed(format!(
                "the conversation has {tokens} tokens, but the context length is {limit}; use /reset, or restart with a larger --context"
            ))),
            _ => Ok(prompt),
        }
    }
}
