//! `warpwave chat`: a conversation.

use std::io::{BufRead, IsTerminal};
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::{Value, json};
use warpwave_llm::{ChatTemplate, Ended, Generated, Request, Sampler, Sequence, Tokenizer};

use super::super::{Context, Failure, Outcome, failed};
use super::generate::{print_timings, say_fallback, timings};
use super::interrupt::Interrupt;
use super::picking::Picking;
use super::template::render;
use super::{Loaded, Which};

const HELP: &str = "\
/help          this
/reset         begin anew; the system's message stays
/system TEXT   set the system's message and begin anew; without TEXT show it
/save FILE     write the conversation as JSON
/quit          end (or Ctrl-D)
Ctrl-C ends an answer; at the prompt a second one ends the program.";

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    warpwave chat\n  \
    warpwave chat model.gguf --device cuda:0 --system 'Answer in one sentence.'\n  \
    echo 'What is the capital of France?' | warpwave chat --temperature 0\n\n\
    Lines that begin with / are commands: /help lists them. From a pipe each line is a message, and answers alone go to standard output.")]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// The system's message.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Tokens of an answer at most.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1024)]
    max_tokens: usize,
    /// End an answer before this string; may be given several times.
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Print timings on standard error after each answer.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    picking: Picking,
}

/// A conversation under way.
struct Conversation<'a> {
    loaded: Loaded,
    tokenizer: &'a Tokenizer,
    template: &'a ChatTemplate,
    request: Request,
    /// Whether the user gave the seed: every answer has it then.
    seeded: bool,
    system: Option<String>,
    /// Roles and texts, without the system's message.
    messages: Vec<(&'static str, String)>,
    sequence: Sequence,
    /// The tokens of the conversation so far: what the sequence has begins with them, or they begin with it.
    seen: Vec<u32>,
    verbose: bool,
}

pub(crate) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    args.which.with_threads(|| chat(context, args))
}

fn chat(context: &mut Context<'_>, args: &Args) -> Outcome {
    let sampler: Sampler = args.picking.sampler(0.7)?;
    // What the model's files have nothing for is refused before the weights are loaded, which may take long.
    let (path, checkpoint) = args.which.open(context)?;
    args.picking.check_tokens(checkpoint.config().vocab)?;
    let tokenizer = checkpoint.tokenizer()?;
    let template = ChatTemplate::of(&tokenizer)?;
    say_fallback(context, &template)?;
    let loaded = args.which.load_checkpoint(context, &path.display().to_string(), checkpoint)?;
    let stops = args.stop.iter().map(String::as_str).chain(template.stops().iter().copied()).map(str::to_owned).collect();
    let request = Request { tokens: args.max_tokens, sampler, stops, ignore_eos: false, top: 0 };
    let at_terminal = std::io::stdin().is_terminal();
    if at_terminal {
        let (name, device) = (loaded.checkpoint.config().name.as_deref().unwrap_or("the model"), loaded.runner.model().place());
        writeln!(context.err, "{name} on {device}, {} tokens of context. /help lists commands.", loaded.context)?;
    }
    let mut conversation = Conversation {
        loaded,
        tokenizer: &tokenizer,
        template: &template,
        request,
        seeded: args.picking.is_seeded(),
        system: args.system.clone(),
        messages: Vec::new(),
        sequence: Sequence::default(),
        seen: Vec::new(),
        verbose: args.verbose,
    };
    let mut input = std::io::stdin().lock();
    let mut refused = 0;
    loop {
        if at_terminal {
            write!(context.err, "> ")?;
            context.err.flush()?;
        }
        let mut line = Vec::new();
        // A Ctrl-C that comes when the answer has just ended is not meant for the conversation.
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
                let said = conversation.command(name, rest.trim());
                writeln!(context.err, "{said}")?;
                Ok(())
            }
            Err(error) => Err(failed(format!("a line is not UTF-8: {error}"))),
        };
        if let Err(failure) = answered {
            refused += 1;
            writeln!(context.err, "warpwave: {}", failure.message)?;
        }
    }
    // Whoever sits at a terminal has seen it.
    if refused > 0 && !at_terminal {
        return Err(failed(format!("messages that were not answered: {refused}")));
    }
    Ok(())
}

impl Conversation<'_> {
    /// What a command answers.
    fn command(&mut self, name: &str, rest: &str) -> String {
        match (name, rest) {
            ("help", _) => HELP.to_owned(),
            ("reset", _) => {
                self.messages.clear();
                "The conversation begins anew.".to_owned()
            }
            ("system", "") => self.system.clone().unwrap_or_else(|| "There is no system's message.".to_owned()),
            ("system", text) => {
                self.messages.clear();
                self.system = Some(text.to_owned());
                "The system's message is set, and the conversation begins anew.".to_owned()
            }
            ("save", "") => "/save needs the name of a file.".to_owned(),
            ("save", file) => match std::fs::write(Path::new(file), format!("{:#}\n", self.as_json())) {
                Ok(()) => format!("{} messages are in {file}.", self.messages.len()),
                Err(error) => format!("{file}: {error}"),
            },
            _ => format!("There is no command /{name}.\n{HELP}"),
        }
    }

    fn as_json(&self) -> Value {
        let message = |(role, content): (&str, &str)| json!({ "role": role, "content": content });
        self.texts().map(message).collect()
    }

    /// Roles and texts, the system's message first.
    fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        let system = self.system.as_deref().map(|text| ("system", text));
        system.into_iter().chain(self.messages.iter().map(|(role, text)| (*role, text.as_str())))
    }

    /// The model's answer to a message. A message that cannot be answered is taken back, and why is given inside: the conversation goes on.
    fn answer(&mut self, context: &mut Context<'_>, message: &str) -> Result<Outcome, Failure> {
        self.messages.push(("user", message.to_owned()));
        let made = match self.prompt() {
            Ok(prompt) => self.generate(context, prompt)?,
            Err(failure) => Err(failure),
        };
        let made = match made {
            Ok(made) => made,
            Err(failure) => {
                self.messages.pop();
                return Ok(Err(failure));
            }
        };
        if self.verbose {
            print_timings(context, &made, &timings(&self.loaded, &made))?;
        }
        if made.ended == Ended::Room {
            let room = self.loaded.context;
            writeln!(context.err, "warpwave: the context of {room} tokens is full: /reset, or begin with a larger --context")?;
        }
        if made.ended == Ended::Cancelled && made.tokens.is_empty() {
            // Before the first word: there is no answer, and the question was not asked.
            self.messages.pop();
        } else {
            self.messages.push(("assistant", made.text.trim().to_owned()));
        }
        Ok(Ok(()))
    }

    /// Goes on with the conversation's tokens and shows the text. An error of the model is given inside.
    fn generate(&mut self, context: &mut Context<'_>, prompt: Vec<u32>) -> Result<Result<Generated, Failure>, Failure> {
        // What went through the model before stays; the last token goes again, for its logits.
        let same = prompt.iter().zip(&self.seen).take_while(|(a, b)| a == b).count();
        self.loaded.runner.truncate(&mut self.sequence, same.min(prompt.len().saturating_sub(1)));
        if !self.seeded {
            // The same question may have another answer.
            self.request.sampler.seed = self.request.sampler.seed.wrapping_add(1);
        }
        let interrupt = Interrupt::listen();
        let mut failure = None;
        let mut begun = false;
        let made = self.loaded.generate(&mut self.sequence, &prompt, Some(self.tokenizer), &self.request, &mut |piece| {
            // SentencePiece writes a space before the first word.
            let text = if begun { &piece.text } else { piece.text.strip_prefix(' ').unwrap_or(&piece.text) };
            begun |= !piece.text.is_empty();
            if let Err(error) = write!(context.out, "{text}").and_then(|()| context.out.flush()) {
                failure = Some(error);
                return ControlFlow::Break(());
            }
            if interrupt.pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        drop(interrupt);
        // Where a step failed or was broken off the sequence has more or fewer: the next prompt cuts it to what both share.
        self.seen = prompt;
        if let Some(error) = failure {
            return Err(error.into());
        }
        if let Ok(made) = &made {
            self.seen.extend(made.tokens.iter().map(|picked| picked.token));
        }
        if begun || made.is_ok() {
            writeln!(context.out)?;
            context.out.flush()?;
        }
        Ok(made.map_err(Failure::from))
    }

    /// The tokens of the whole conversation.
    fn prompt(&self) -> Result<Vec<u32>, Failure> {
        let text = render(self.template, self.texts())?;
        let prompt = self.tokenizer.encode_prompt(&text, true)?;
        let room = self.loaded.context;
        match prompt.len() {
            0 => Err(failed("the chat template makes nothing of this")),
            tokens if tokens >= room => Err(failed(format!(
                "the conversation has {tokens} tokens and the context {room}: /reset, or begin with a larger --context"
            ))),
            _ => Ok(prompt),
        }
    }
}
