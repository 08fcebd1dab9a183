//! Renders chat templates in a child process.
//!
//! A template is untrusted code that comes with the model. The library limits its steps, depth and output; memory use and the time of
//! a single step can only be limited by the operating system, per process.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use serde_json::json;
use warpwave_llm::{Chat, ChatTemplate};

use super::super::{Context, Failure, Outcome, failed, human_bytes};

/// The hidden subcommand that [`render`] runs.
pub(crate) const COMMAND: &str = "render-template";
/// Address space limit of the process; about a third is used by its stack and code.
const MEMORY: usize = 2 << 30;
/// CPU time limit.
const SECONDS: u64 = 10;
const HINT: &str = "the chat template is part of the model; to skip it, run `warpwave generate` without --chat";

/// Renders messages (role, content) to a prompt.
pub(super) fn render<'a>(template: &ChatTemplate, messages: impl Iterator<Item = (&'a str, &'a str)>) -> Result<String, Failure> {
    render_chat(template, &Chat::new(messages))
}

/// Renders a chat to a prompt, at the time of rendering.
pub(crate) fn render_chat(template: &ChatTemplate, chat: &Chat) -> Result<String, Failure> {
    let [source, bos, eos] = template.parts();
    let request = json!({
        "source": source, "bos": bos, "eos": eos,
        "messages": chat.messages, "variables": chat.variables, "add_generation_prompt": chat.add_generation_prompt,
    });
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // If the child exits early, its status has the reason.
        let _ = input.write_all(request.to_string().as_bytes());
    }
    let output = child.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    match (output.status.code(), output.status.signal()) {
        (Some(0), _) => Ok(String::from_utf8(output.stdout)?),
        (Some(_), _) => Err(failed(stderr.trim_start_matches("warpwave: ").trim_end())),
        (None, Some(libc::SIGXCPU)) => Err(failed(format!("chat template exceeded the CPU time limit of {SECONDS} s; {HINT}"))),
        _ if stderr.contains("memory allocation") => {
            Err(failed(format!("chat template exceeded the memory limit of {}; {HINT}", human_bytes(MEMORY))))
        }
        _ => Err(failed(format!("chat template process failed ({}): {}", output.status, stderr.trim_end()))),
    }
}

/// The child process: reads the request from standard input and writes the prompt to standard output.
pub(crate) fn run(context: &mut Context<'_>) -> Outcome {
    for (resource, most) in [(libc::RLIMIT_AS, MEMORY as u64), (libc::RLIMIT_CPU, SECONDS), (libc::RLIMIT_CORE, 0)] {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: getrlimit only writes `limit`.
        let read = unsafe { libc::getrlimit(resource, &mut limit) };
        // Never raise an existing hard limit. One above the soft limit, so that SIGXCPU arrives before SIGKILL.
        limit.rlim_max = limit.rlim_max.min(most + 1);
        limit.rlim_cur = most.min(limit.rlim_max);
        // SAFETY: setrlimit only reads `limit`.
        if read != 0 || unsafe { libc::setrlimit(resource, &limit) } != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
    }
    let mut request = String::new();
    std::io::stdin().read_to_string(&mut request)?;
    let request: serde_json::Value = serde_json::from_str(&request)?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let template = ChatTemplate::new(&text(&request["source"]), &text(&request["bos"]), &text(&request["eos"]))?;
    let prompt = template.render(&Chat {
        messages: request["messages"].as_array().cloned().unwrap_or_default(),
        add_generation_prompt: request["add_generation_prompt"].as_bool().unwrap_or(true),
        variables: request["variables"].as_object().cloned().unwrap_or_default(),
        now: SystemTime::now(),
    })?;
    Ok(context.out.write_all(prompt.as_bytes())?)
}
