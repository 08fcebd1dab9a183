//! Chat templates, in a process of their own.
//!
//! A template is a program of whoever made the model. The library bounds its steps, its depth and what it writes; what it holds in between,
//! and how long one step of it takes, only the system can bound, and only for a whole process.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use serde_json::json;
use warpwave_llm::{Chat, ChatTemplate};

use super::super::{Context, Failure, Outcome, failed, human_bytes};

/// The command that [`render`] runs.
pub(crate) const COMMAND: &str = "render-template";
/// Addresses of the process: a third of them are its stack and its programs.
const MEMORY: usize = 2 << 30;
/// Seconds that it may compute.
const SECONDS: u64 = 10;
const WITHOUT: &str = "it comes with the model; `warpwave generate` without --chat needs none";

/// The prompt of these messages, roles and texts.
pub(super) fn render<'a>(template: &ChatTemplate, messages: impl Iterator<Item = (&'a str, &'a str)>) -> Result<String, Failure> {
    let [source, bos, eos] = template.parts();
    let asked = json!({ "source": source, "bos": bos, "eos": eos, "messages": messages.collect::<Vec<_>>() });
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // If it ends before it has read all, its status says why.
        let _ = input.write_all(asked.to_string().as_bytes());
    }
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    match (output.status.code(), output.status.signal()) {
        (Some(0), _) => Ok(String::from_utf8(output.stdout)?),
        (Some(_), _) => Err(failed(said.trim_start_matches("warpwave: ").trim_end())),
        (None, Some(libc::SIGXCPU)) => Err(failed(format!("the chat template computes for more than {SECONDS} seconds; {WITHOUT}"))),
        _ if said.contains("memory allocation") => {
            Err(failed(format!("the chat template takes more memory than it is given: {}; {WITHOUT}", human_bytes(MEMORY))))
        }
        _ => Err(failed(format!("the process of the chat template ended with {}: {}", output.status, said.trim_end()))),
    }
}

/// That process: the question comes in, the prompt goes out.
pub(crate) fn run(context: &mut Context<'_>) -> Outcome {
    for (what, most) in [(libc::RLIMIT_AS, MEMORY as u64), (libc::RLIMIT_CPU, SECONDS), (libc::RLIMIT_CORE, 0)] {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: it writes the struct alone.
        let read = unsafe { libc::getrlimit(what, &mut limit) };
        // Nobody may raise what is set already. One second behind the signal that says what was too much comes one that does not.
        limit.rlim_max = limit.rlim_max.min(most + 1);
        limit.rlim_cur = most.min(limit.rlim_max);
        // SAFETY: it reads the struct alone.
        if read != 0 || unsafe { libc::setrlimit(what, &limit) } != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
    }
    let mut asked = String::new();
    std::io::stdin().read_to_string(&mut asked)?;
    let asked: serde_json::Value = serde_json::from_str(&asked)?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let messages: Vec<_> = asked["messages"].as_array().into_iter().flatten().map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
    let template = ChatTemplate::new(&text(&asked["source"]), &text(&asked["bos"]), &text(&asked["eos"]))?;
    let prompt = template.render(&Chat::new(messages.iter().map(|(role, text)| (role.as_str(), text.as_str()))))?;
    Ok(context.out.write_all(prompt.as_bytes())?)
}
