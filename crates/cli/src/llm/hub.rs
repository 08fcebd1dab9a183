//! Downloads models from the Hugging Face Hub: `org/name` for all files of a model, `org/name:file.gguf` for one file. Files go to the
//! standard Hugging Face cache, and interrupted downloads resume.
//!
//! The protocol is implemented here instead of using the crate `hf-hub`, which sends the user's token to every redirect target and does
//! not validate file names from the server.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};
use ureq::http::Response;
use ureq::{Agent, Body};

use super::super::{Context, Failure, failed, usage};
use super::bytes_bar;

const INDEX: &str = "model.safetensors.index.json";
const SINGLE_FILE: &str = "model.safetensors";
const CONFIG: &str = "config.json";
/// Optional files besides config and weights.
const OPTIONAL_FILES: [&str; 5] =
    ["generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"];
/// Consecutive interruptions without progress before a download fails.
const MAX_RETRIES: usize = 3;
/// Maximum number of redirects within the hub.
const MAX_REDIRECTS: usize = 5;
/// Maximum size of a file listing in bytes.
const MAX_LISTING: u64 = 32 << 20;

/// A model name on the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModelId {
    repo: String,
    /// The requested file, if only one.
    file: Option<String>,
}

impl ModelId {
    /// Parses `ORG/NAME` or `ORG/NAME:FILE.gguf`; `None` for anything else, such as a path.
    pub fn parse(text: &str) -> Option<ModelId> {
        let (repo, file) = match text.split_once(':') {
            Some((repo, file)) => (repo, Some(file)),
            None => (text, None),
        };
        let (org, name) = repo.split_once('/')?;
        let plain = |part: &str| {
            let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !part.is_empty() && part.chars().all(letters) && !part.starts_with('.') && !part.ends_with('.')
        };
        let gguf = |file: &str| file.ends_with(".gguf") && file.split('/').all(plain);
        let fits = plain(org) && plain(name) && file.is_none_or(gguf) && !repo.ends_with(".gguf");
        fits.then(|| ModelId { repo: repo.to_owned(), file: file.map(str::to_owned) })
    }
}

/// Returns the local path of a model; downloads missing files.
pub(super) fn find(context: &mut Context<'_>, id: &ModelId) -> Result<PathBuf, Failure> {
    let set = |name: &str| env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let home = set("HF_HOME").map(PathBuf::from).or_else(|| env::home_dir().map(|home| home.join(".cache/huggingface")));
    let Some(home) = home else {
        return Err(failed("no directory for Hugging Face models; set HOME or HF_HOME"));
    };
    let cache = set("HF_HUB_CACHE").map_or_else(|| home.join("hub"), PathBuf::from);
    let repo_cache = RepoCache(cache.join(format!("models--{}", id.repo.replace('/', "--"))));
    if let Some(path) = repo_cache.cached(id) {
        return Ok(path);
    }
    let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned()).trim_end_matches('/').to_owned();
    writeln!(context.err, "Downloading {} from {endpoint} to {}", id.repo, cache.display())?;
    let stored = || fs::read_to_string(home.join("token")).ok().map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
    let agent = Agent::config_builder()
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .timeout_connect(Some(Duration::from_secs(30)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        .timeout_per_read(Some(Duration::from_secs(60)))
        .user_agent(concat!("warpwave/", env!("CARGO_PKG_VERSION")))
        .build();
    Hub { agent: agent.into(), endpoint, token: set("HF_TOKEN").or_else(stored), cache: repo_cache, id }.fetch()
}

/// Returns the weight files listed in an index.
fn shards(index: &Path) -> Result<Vec<String>, Failure> {
    let bad = |reason: &str| failed(format!("{}: {reason}", index.display()));
    let text = std::fs::read(index).map_err(|error| bad(&error.to_string()))?;
    let list: Value = serde_json::from_slice(&text).map_err(|error| bad(&error.to_string()))?;
    let map = list["weight_map"].as_object().ok_or_else(|| bad("missing `weight_map`"))?;
    let mut names: Vec<String> = map.values().filter_map(|name| name.as_str().map(str::to_owned)).collect();
    names.sort();
    names.dedup();
    match names.iter().find(|name| name.contains('/') || !name.ends_with(".safetensors")) {
        Some(name) => Err(bad(&format!("invalid weight file name `{name}`"))),
        None => Ok(names),
    }
}

/// Returns whether `text` is safe as a file name: no separators, no dots.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

/// A repository in the cache: `blobs` has the data, `snapshots` symlinks by name, `refs/main` the current commit.
struct RepoCache(PathBuf);

impl RepoCache {
    fn blob(&self, etag: &str) -> PathBuf {
        self.0.join("blobs").join(etag)
    }

    /// Returns the path of a file in the current snapshot.
    fn get(&self, name: &str) -> Option<PathBuf> {
        let commit = fs::read_to_string(self.0.join("refs/main")).ok()?;
        let path = self.0.join("snapshots").join(Some(commit.trim()).filter(|commit| is_plain(commit))?).join(name);
        path.exists().then_some(path)
    }

    /// Returns the path of a model if all its files are cached.
    fn cached(&self, id: &ModelId) -> Option<PathBuf> {
        if let Some(file) = &id.file {
            return self.get(file);
        }
        // The config is downloaded last: if it exists, all other files do.
        let config = self.get(CONFIG)?;
        let whole = match self.get(INDEX) {
            Some(index) => shards(&index).ok()?.iter().all(|shard| self.get(shard).is_some()),
            None => self.get(SINGLE_FILE).is_some(),
        };
        config.parent().filter(|_| whole).map(Path::to_owned)
    }

    /// Links a blob into a snapshot.
    fn link(&self, commit: &str, name: &str, etag: &str) -> io::Result<PathBuf> {
        let path = self.0.join("snapshots").join(commit).join(name);
        fs::create_dir_all(path.parent().unwrap_or(&self.0))?;
        let up = "../".repeat(2 + name.matches('/').count());
        let _ = fs::remove_file(&path);
        std::os::unix::fs::symlink(format!("{up}blobs/{etag}"), &path)?;
        fs::create_dir_all(self.0.join("refs"))?;
        fs::write(self.0.join("refs/main"), commit)?;
        Ok(path)
    }
}

/// Metadata of a file on the hub.
struct FileInfo {
    /// ETag; for large files the SHA-256.
    etag: String,
    commit: String,
    size: u64,
    /// Download URL.
    url: String,
}

struct Hub<'a> {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    cache: RepoCache,
    id: &'a ModelId,
}

impl Hub<'_> {
    fn fetch(&self) -> Result<PathBuf, Failure> {
        if let Some(file) = &self.id.file {
            return self.file(file);
        }
        let repo = &self.id.repo;
        let (list, _) = self.request(repo, &format!("{}/api/models/{repo}", self.endpoint), false)?;
        self.check(repo, &list)?;
        let list: Value = serde_json::from_reader(list.into_body().into_reader().take(MAX_LISTING))
            .map_err(|error| failed(format!("{repo}: cannot read the file listing from {}: {error}", self.endpoint)))?;
        let names: Vec<&str> = list["siblings"].as_array().into_iter().flatten().filter_map(|file| file["rfilename"].as_str()).collect();
        let has = |name: &str| names.contains(&name);
        if !has(CONFIG) || !(has(INDEX) || has(SINGLE_FILE)) {
            return Err(self.no_weights(&names));
        }
        let shards = match has(INDEX) {
            true => shards(&self.file(INDEX)?)?,
            false => vec![SINGLE_FILE.to_owned()],
        };
        for name in OPTIONAL_FILES.into_iter().filter(|name| has(name)).chain(shards.iter().map(String::as_str)) {
            self.file(name)?;
        }
        let config = self.file(CONFIG)?;
        config.parent().map(Path::to_owned).ok_or_else(|| failed(format!("{}: no parent directory", config.display())))
    }

    /// Returns the local path of a file; downloads it if missing.
    fn file(&self, name: &str) -> Result<PathBuf, Failure> {
        let what = format!("{}: {name}", self.id.repo);
        let info = self.file_info(&what, name)?;
        let blob = self.cache.blob(&info.etag);
        let with_path = |path: &Path, error: io::Error| failed(format!("{}: {error}", path.display()));
        fs::create_dir_all(self.cache.0.join("blobs")).map_err(|error| with_path(&blob, error))?;
        let part = blob.with_extension("part");
        let mut file = File::options().read(true).append(true).create(true).open(&part).map_err(|error| with_path(&part, error))?;
        if file.try_lock().is_err() {
            return Err(failed(format!("{what}: another process is downloading this file; wait for it to finish")));
        }
        if !fs::metadata(&blob).is_ok_and(|blob| blob.len() == info.size) {
            self.download(&what, name, &info, &mut file)?;
            fs::rename(&part, &blob).map_err(|error| with_path(&blob, error))?;
        } else {
            fs::remove_file(&part).map_err(|error| with_path(&part, error))?;
        }
        self.cache.link(&info.commit, name, &info.etag).map_err(|error| with_path(&blob, error))
    }

    /// Downloads the missing bytes of a file, with retries, and verifies the checksum.
    fn download(&self, what: &str, name: &str, info: &FileInfo, part: &mut File) -> Result<(), Failure> {
        let FileInfo { etag, size, .. } = info;
        let size = *size;
        let bar = bytes_bar(size, "downloading");
        bar.set_message(format!("downloading {name}"));
        let kept = |reason: String| failed(format!("{what}: {reason}; run the command again to resume"));
        let hashed = etag.len() == 64 && etag.chars().all(|c| c.is_ascii_hexdigit());
        let mut tries = 0;
        // A complete partial file can only be trusted if its hash is known.
        if part.metadata()?.len() > size || (part.metadata()?.len() == size && !hashed) {
            part.set_len(0)?;
        }
        let mut length = part.metadata()?.len();
        while length != size {
            bar.set_position(length);
            let reason = match self.download_range(what, name, info, part, &|bytes| bar.inc(bytes)) {
                Ok(()) => "connection closed early".to_owned(),
                Err(TransferError::Fatal(failure)) => return Err(failure),
                Err(TransferError::Interrupted(reason)) => reason,
            };
            let now = part.metadata()?.len();
            tries = if now == length { tries + 1 } else { 0 };
            if tries == MAX_RETRIES {
                return Err(kept(reason));
            }
            length = now;
        }
        bar.finish_and_clear();
        // The ETag of large files is their SHA-256.
        if hashed {
            part.seek(SeekFrom::Start(0))?;
            let mut hash = Sha256::new();
            let mut buffer = vec![0; 1 << 17];
            loop {
                match part.read(&mut buffer)? {
                    0 => break,
                    count => hash.update(&buffer[..count]),
                }
            }
            let found: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            if !found.eq_ignore_ascii_case(etag) {
                part.set_len(0)?;
                return Err(failed(format!("{what}: checksum mismatch, file discarded: expected SHA-256 {etag}, got {found}")));
            }
        }
        Ok(())
    }

    /// Downloads missing bytes over one connection; reports progress to `received`.
    fn download_range(
        &self,
        what: &str,
        name: &str,
        expected: &FileInfo,
        part: &mut File,
        received: &dyn Fn(u64),
    ) -> Result<(), TransferError> {
        // Query again: download URLs of large files expire.
        let info = self.file_info(what, name)?;
        if info.etag != expected.etag || info.size != expected.size {
            return Err(TransferError::Fatal(failed(format!("{what}: the file changed on the server during the download; try again"))));
        }
        let len =
            |part: &File| part.metadata().map(|part| part.len()).map_err(|error| TransferError::Fatal(failed(format!("{what}: {error}"))));
        let at = len(part)?;
        let mut request = self.agent.get(&info.url).header("Range", format!("bytes={at}-"));
        if let Some(token) = self.token.as_ref().filter(|_| self.is_hub(&info.url)) {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let response = request.call().map_err(|error| TransferError::Interrupted(error.to_string()))?;
        match response.status().as_u16() {
            206 if header(&response, "content-range").is_some_and(|range| range.starts_with(&format!("bytes {at}-"))) => (),
            // The server ignored the range and sends the whole file.
            200 => part.set_len(0).map_err(|error| TransferError::Interrupted(error.to_string()))?,
            status @ 400..500 => return Err(TransferError::Fatal(self.refusal(what, status))),
            status => return Err(TransferError::Interrupted(format!("{} returned status {status}", self.endpoint))),
        }
        let mut body = response.into_body().into_reader().take(info.size.saturating_sub(len(part)?));
        let mut buffer = vec![0; 1 << 17];
        loop {
            match body.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    part.write_all(&buffer[..count]).map_err(|error| TransferError::Fatal(failed(format!("{what}: {error}"))))?;
                    received(count as u64);
                }
                Err(error) => return Err(TransferError::Interrupted(error.to_string())),
            }
        }
    }

    fn file_info(&self, what: &str, name: &str) -> Result<FileInfo, Failure> {
        let url = format!("{}/{}/resolve/main/{name}", self.endpoint, self.id.repo);
        let (response, url) = self.request(what, &url, true)?;
        let redirect = header(&response, "location").filter(|_| response.status().is_redirection());
        if redirect.is_none() {
            self.check(what, &response)?;
        }
        let first = |names: [&str; 2]| names.into_iter().find_map(|name| header(&response, name));
        // Both are used as file names.
        let etag = first(["x-linked-etag", "etag"]).map(|etag| etag.trim_start_matches("W/").trim_matches('"').to_owned());
        let commit = header(&response, "x-repo-commit");
        let size = first(["x-linked-size", "content-length"]).and_then(|size| size.parse().ok());
        match (etag.filter(|etag| is_plain(etag)), commit.filter(|commit| is_plain(commit)), size) {
            (Some(etag), Some(commit), Some(size)) => Ok(FileInfo { etag, commit, size, url: redirect.unwrap_or(url) }),
            _ => Err(failed(format!("{what}: {} returned invalid metadata (size, ETag or commit)", self.endpoint))),
        }
    }

    /// Sends a request with the token and returns the response with its final URL. Redirects to other hosts are not followed.
    fn request(&self, what: &str, url: &str, head: bool) -> Result<(Response<Body>, String), Failure> {
        let mut url = url.to_owned();
        for _ in 0..MAX_REDIRECTS {
            let mut request = if head { self.agent.head(&url) } else { self.agent.get(&url) };
            if let Some(token) = &self.token {
                request = request.header("Authorization", format!("Bearer {token}"));
            }
            // The size of compressed data would not be the file size.
            let response = request.header("Accept-Encoding", "identity").call().map_err(|error| {
                failed(format!(
                    "{what}: cannot reach {}: {error}; without network access, pass a .gguf file or a directory with config.json and safetensors",
                    self.endpoint
                ))
            })?;
            let next = header(&response, "location").filter(|_| response.status().is_redirection());
            url = match next {
                Some(next) if next.starts_with('/') && !next.starts_with("//") => format!("{}{next}", self.endpoint),
                Some(next) if self.is_hub(&next) && header(&response, "x-linked-etag").is_none() => next,
                _ => return Ok((response, url)),
            };
        }
        Err(failed(format!("{what}: too many redirects from {}", self.endpoint)))
    }

    /// Returns whether a URL is on the hub itself.
    fn is_hub(&self, url: &str) -> bool {
        url.strip_prefix(&self.endpoint).is_some_and(|rest| rest.starts_with('/'))
    }

    fn check(&self, what: &str, response: &Response<Body>) -> Result<(), Failure> {
        let status = response.status();
        if status.is_success() { Ok(()) } else { Err(self.refusal(what, status.as_u16())) }
    }

    /// Returns the error for an HTTP status.
    fn refusal(&self, what: &str, status: u16) -> Failure {
        let endpoint = &self.endpoint;
        failed(match status {
            401 | 403 => format!(
                "{what}: access denied by {endpoint}: the model does not exist, or requires accepting a license; \
                 log in with `hf auth login` or set HF_TOKEN"
            ),
            404 => format!("{what}: model or file not found on {endpoint}"),
            _ => format!("{what}: {endpoint} returned status {status}; try again later"),
        })
    }

    /// Returns the error for a repository without safetensors; lists its GGUF files.
    fn no_weights(&self, names: &[&str]) -> Failure {
        let repo = &self.id.repo;
        let gguf: Vec<String> = names.iter().filter(|name| name.ends_with(".gguf")).map(|name| format!("  {repo}:{name}")).collect();
        match gguf.is_empty() {
            false => usage(format!("{repo} has GGUF files; choose one:\n{}", gguf.join("\n"))),
            true => failed(format!("{repo}: unsupported repository; expected {CONFIG} with {SINGLE_FILE} or {INDEX}")),
        }
    }
}

/// Why a transfer stopped.
enum TransferError {
    /// A retry would not help.
    Fatal(Failure),
    /// The connection was interrupted.
    Interrupted(String),
}

impl From<Failure> for TransferError {
    fn from(failure: Failure) -> Self {
        TransferError::Fatal(failure)
    }
}

fn header(response: &Response<Body>, name: &str) -> Option<String> {
    Some(response.headers().get(name)?.to_str().ok()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::ModelId;

    #[test]
    fn hub_names_are_distinguished_from_paths() {
        let id = |repo: &str, file: Option<&str>| Some(ModelId { repo: repo.to_owned(), file: file.map(str::to_owned) });
        assert_eq!(ModelId::parse("Qwen/Qwen3-0.6B"), id("Qwen/Qwen3-0.6B", None));
        assert_eq!(ModelId::parse("a/b:q4/c-Q4_K_M.gguf"), id("a/b", Some("q4/c-Q4_K_M.gguf")));
        let paths = [
            "model.gguf",
            "models/model.gguf",
            "a/b/c",
            "./model",
            "../model",
            "/model",
            "a/",
            "a/b:",
            "a/b:c.bin",
            "a/b:../c.gguf",
            "a b/c",
            "",
        ];
        for path in paths {
            assert_eq!(ModelId::parse(path), None, "{path}");
        }
    }
}
