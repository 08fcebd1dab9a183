//! `warpwave cache`.

use std::time::SystemTime;

use serde_json::{Value, json};

use super::{Context, Outcome, failed, human_bytes};

#[derive(clap::Args)]
#[command(
    after_help = "Example: warpwave cache stats --json\n\nEnvironment: WARPWAVE_CACHE_DIR sets the directory; WARPWAVE_CACHE_MAX_BYTES \
    sets the size limit (such as 512M; default: 2G); WARPWAVE_CACHE=off disables the cache."
)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print the cache directory.
    #[command(after_help = "Example: du -sh $(warpwave cache path)")]
    Path,
    /// Show the number of entries and their total size.
    #[command(after_help = "Example: warpwave cache stats --list")]
    Stats {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// List every entry.
        #[arg(long)]
        list: bool,
    },
    /// Verify checksums and remove corrupt entries.
    #[command(after_help = "Example: warpwave cache verify")]
    Verify,
    /// Remove every entry.
    #[command(after_help = "Example: warpwave cache clear")]
    Clear,
}

pub(super) fn run(context: &mut Context<'_>, args: &Args) -> Outcome {
    let cache = context.jit.cache().clone();
    let Some(path) = cache.path() else {
        return Err(failed("the cache is disabled (WARPWAVE_CACHE=off) or has no directory (set WARPWAVE_CACHE_DIR)"));
    };
    match args.command {
        Command::Path => writeln!(context.out, "{}", path.display())?,
        Command::Stats { json, list } => {
            let stats = cache.stats();
            let entries = if list { cache.entries() } else { Vec::new() };
            let meta =
                |text: &Option<String>| text.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok()).unwrap_or_default();
            if json {
                let entries: Vec<Value> = entries
                    .iter()
                    .map(|e| {
                        let meta = meta(&e.meta);
                        json!({ "key": e.key.to_string(), "bytes": e.bytes, "source": meta["source"], "target": meta["target"], "kernels": meta["kernels"] })
                    })
                    .collect();
                let mut value = json!({ "path": path, "entries": stats.entries, "bytes": stats.bytes, "max_bytes": stats.max_bytes });
                if list {
                    value["list"] = json!(entries);
                }
                return context.print_json(&value);
            }
            let (bytes, cap) = (usize::try_from(stats.bytes).unwrap_or(usize::MAX), usize::try_from(stats.max_bytes).unwrap_or(usize::MAX));
            writeln!(context.out, "{}: {} entries, {} of {} used", path.display(), stats.entries, human_bytes(bytes), human_bytes(cap))?;
            for entry in entries {
                let meta = meta(&entry.meta);
                let age = SystemTime::now().duration_since(entry.last_used).unwrap_or_default().as_secs();
                let text = |key: &str| meta[key].as_str().unwrap_or("?").to_owned();
                let key = entry.key.to_string();
                writeln!(context.out, "  {}  {:>9} B  used {age} s ago  {}  {}", &key[..12], entry.bytes, text("target"), text("source"))?;
            }
        }
        Command::Verify => {
            let report = cache.verify();
            writeln!(context.out, "{} valid, {} corrupt (removed)", report.good, report.damaged)?;
            if let Some(failure) = report.failed.first() {
                return Err(failed(failure.to_string()));
            }
        }
        Command::Clear => {
            let cleared = cache.clear();
            writeln!(context.out, "removed {} entries, {} bytes", cleared.entries, cleared.bytes)?;
            if let Some(failure) = cleared.failed.first() {
                return Err(failed(failure.to_string()));
            }
        }
    }
    Ok(())
}
