//! Models of the Hugging Face hub, by their names there: `org/name` for a folder's files, `org/name:file.gguf` for one file. They are kept
//! in the cache that Hugging Face's own tools use, and a download that broke off goes on where it was.
//!
//! The hub's protocol is spoken here rather than by the crate `hf-hub`, which sends the user's token wherever a server redirects it to, and
//! takes names of files from a server unseen.

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
const ONE_FILE: &str = "model.safetensors";
const CONFIG: &str = "config.json";
/// What else a model may have beside its weights.
const BESIDE: [&str; 5] =
    ["generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"];
/// Times that a download may break off one after the other without a byte between.
const TRIES: usize = 3;
/// Redirects of one host that are followed.
const TURNS: usize = 5;
/// What a list of files may have.
const MOST_OF_A_LIST: u64 = 32 << 20;

/// A model's name on the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Id {
    repo: String,
    /// The one file that is wanted.
    file: Option<String>,
}

impl Id {
    /// A name that may be one of the hub.
    pub fn parse(text: &str) -> Option<Id> {
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
        fits.then(|| Id { repo: repo.to_owned(), file: file.map(str::to_owned) })
    }
}

/// Where a model's files are: those of the cache if they are all there, else fetched.
pub(super) fn find(context: &mut Context<'_>, id: &Id) -> Result<PathBuf, Failure> {
    let set = |name: &str| env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let home = set("HF_HOME").map(PathBuf::from).or_else(|| env::home_dir().map(|home| home.join(".cache/huggingface")));
    let Some(home) = home else {
        return Err(failed("there is no place for models of Hugging Face: set HOME, or HF_HOME to a folder"));
    };
    let cache = set("HF_HUB_CACHE").map_or_else(|| home.join("hub"), PathBuf::from);
    let folder = Folder(cache.join(format!("models--{}", id.repo.replace('/', "--"))));
    if let Some(path) = folder.cached(id) {
        return Ok(path);
    }
    let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned()).trim_end_matches('/').to_owned();
    writeln!(context.err, "Fetching {} from {endpoint} to {}", id.repo, cache.display())?;
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
    Hub { agent: agent.into(), endpoint, token: set("HF_TOKEN").or_else(stored), folder, id }.fetch()
}

/// The files of weights that an index names.
fn shards(index: &Path) -> Result<Vec<String>, Failure> {
    let bad = |reason: &str| failed(format!("{}: {reason}", index.display()));
    let text = std::fs::read(index).map_err(|error| bad(&error.to_string()))?;
    let list: Value = serde_json::from_slice(&text).map_err(|error| bad(&error.to_string()))?;
    let map = list["weight_map"].as_object().ok_or_else(|| bad("it has no `weight_map`"))?;
    let mut names: Vec<String> = map.values().filter_map(|name| name.as_str().map(str::to_owned)).collect();
    names.sort();
    names.dedup();
    match names.iter().find(|name| name.contains('/') || !name.ends_with(".safetensors")) {
        Some(name) => Err(bad(&format!("`{name}` is no file of weights"))),
        None => Ok(names),
    }
}

/// A name of a file that no path hides in.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

/// A repository in the cache: `blobs` have the bytes, `snapshots` the names, and `refs/main` says which snapshot is the newest.
struct Folder(PathBuf);

impl Folder {
    fn blob(&self, mark: &str) -> PathBuf {
        self.0.join("blobs").join(mark)
    }

    /// A file of the newest snapshot.
    fn get(&self, name: &str) -> Option<PathBuf> {
        let commit = fs::read_to_string(self.0.join("refs/main")).ok()?;
        let path = self.0.join("snapshots").join(Some(commit.trim()).filter(|commit| is_plain(commit))?).join(name);
        path.exists().then_some(path)
    }

    /// The files of a model, if they are all there.
    fn cached(&self, id: &Id) -> Option<PathBuf> {
        if let Some(file) = &id.file {
            return self.get(file);
        }
        // It is fetched last: where it is, all the others are.
        let config = self.get(CONFIG)?;
        let whole = match self.get(INDEX) {
            Some(index) => shards(&index).ok()?.iter().all(|shard| self.get(shard).is_some()),
            None => self.get(ONE_FILE).is_some(),
        };
        config.parent().filter(|_| whole).map(Path::to_owned)
    }

    /// Gives a blob its name in a snapshot.
    fn link(&self, commit: &str, name: &str, mark: &str) -> io::Result<PathBuf> {
        let path = self.0.join("snapshots").join(commit).join(name);
        fs::create_dir_all(path.parent().unwrap_or(&self.0))?;
        let up = "../".repeat(2 + name.matches('/').count());
        let _ = fs::remove_file(&path);
        std::os::unix::fs::symlink(format!("{up}blobs/{mark}"), &path)?;
        fs::create_dir_all(self.0.join("refs"))?;
        fs::write(self.0.join("refs/main"), commit)?;
        Ok(path)
    }
}

/// What the hub says about a file.
struct Facts {
    /// What its bytes are known by: for large files their SHA-256.
    mark: String,
    commit: String,
    size: u64,
    /// Where its bytes are.
    from: String,
}

struct Hub<'a> {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    folder: Folder,
    id: &'a Id,
}

impl Hub<'_> {
    fn fetch(&self) -> Result<PathBuf, Failure> {
        if let Some(file) = &self.id.file {
            return self.file(file);
        }
        let repo = &self.id.repo;
        let (list, _) = self.ask(repo, &format!("{}/api/models/{repo}", self.endpoint), false)?;
        self.check(repo, &list)?;
        let list: Value = serde_json::from_reader(list.into_body().into_reader().take(MOST_OF_A_LIST))
            .map_err(|error| failed(format!("{repo}: {} has no list of its files: {error}", self.endpoint)))?;
        let names: Vec<&str> = list["siblings"].as_array().into_iter().flatten().filter_map(|file| file["rfilename"].as_str()).collect();
        let has = |name: &str| names.contains(&name);
        if !has(CONFIG) || !(has(INDEX) || has(ONE_FILE)) {
            return Err(self.no_weights(&names));
        }
        let shards = match has(INDEX) {
            true => shards(&self.file(INDEX)?)?,
            false => vec![ONE_FILE.to_owned()],
        };
        for name in BESIDE.into_iter().filter(|name| has(name)).chain(shards.iter().map(String::as_str)) {
            self.file(name)?;
        }
        let config = self.file(CONFIG)?;
        config.parent().map(Path::to_owned).ok_or_else(|| failed(format!("{}: it is in no folder", config.display())))
    }

    /// A file, in the cache.
    fn file(&self, name: &str) -> Result<PathBuf, Failure> {
        let what = format!("{}: {name}", self.id.repo);
        let facts = self.facts(&what, name)?;
        let blob = self.folder.blob(&facts.mark);
        let here = |path: &Path, error: io::Error| failed(format!("{}: {error}", path.display()));
        fs::create_dir_all(self.folder.0.join("blobs")).map_err(|error| here(&blob, error))?;
        let part = blob.with_extension("part");
        let mut file = File::options().read(true).append(true).create(true).open(&part).map_err(|error| here(&part, error))?;
        if file.try_lock().is_err() {
            return Err(failed(format!("{what}: another program is fetching it")));
        }
        if !fs::metadata(&blob).is_ok_and(|blob| blob.len() == facts.size) {
            self.download(&what, name, &facts, &mut file)?;
            fs::rename(&part, &blob).map_err(|error| here(&blob, error))?;
        } else {
            fs::remove_file(&part).map_err(|error| here(&part, error))?;
        }
        self.folder.link(&facts.commit, name, &facts.mark).map_err(|error| here(&blob, error))
    }

    /// The bytes behind those that are there, until they are all there and are what they should be.
    fn download(&self, what: &str, name: &str, facts: &Facts, part: &mut File) -> Result<(), Failure> {
        let Facts { mark, size, .. } = facts;
        let size = *size;
        let bar = bytes_bar(size, "fetching");
        bar.set_message(format!("fetching {name}"));
        let kept = |reason: String| failed(format!("{what}: {reason}; what came is kept: the same command goes on from there"));
        let hashed = mark.len() == 64 && mark.chars().all(|c| c.is_ascii_hexdigit());
        let mut tries = 0;
        // What is whole and has no name yet can only be trusted if its hash is known.
        if part.metadata()?.len() > size || (part.metadata()?.len() == size && !hashed) {
            part.set_len(0)?;
        }
        let mut there = part.metadata()?.len();
        while there != size {
            bar.set_position(there);
            let reason = match self.piece(what, name, facts, part, &|bytes| bar.inc(bytes)) {
                Ok(()) => "the connection ended too soon".to_owned(),
                Err(Piece::Refused(failure)) => return Err(failure),
                Err(Piece::Broke(reason)) => reason,
            };
            let now = part.metadata()?.len();
            tries = if now == there { tries + 1 } else { 0 };
            if tries == TRIES {
                return Err(kept(reason));
            }
            there = now;
        }
        bar.finish_and_clear();
        // Large files are known by what they hold.
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
            if !found.eq_ignore_ascii_case(mark) {
                part.set_len(0)?;
                return Err(failed(format!("{what}: its SHA-256 is {found} and not {mark}: it came damaged, and is not kept")));
            }
        }
        Ok(())
    }

    /// As many of the bytes that are missing as come over one connection.
    fn piece(&self, what: &str, name: &str, wanted: &Facts, part: &mut File, came: &dyn Fn(u64)) -> Result<(), Piece> {
        // Asked each time: places of large files are given for a while only.
        let facts = self.facts(what, name)?;
        if facts.mark != wanted.mark || facts.size != wanted.size {
            return Err(Piece::Refused(failed(format!("{what}: it changed meanwhile; fetch it again"))));
        }
        let len = |part: &File| part.metadata().map(|part| part.len()).map_err(|error| Piece::Refused(failed(format!("{what}: {error}"))));
        let at = len(part)?;
        let mut request = self.agent.get(&facts.from).header("Range", format!("bytes={at}-"));
        if let Some(token) = self.token.as_ref().filter(|_| self.is_hub(&facts.from)) {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let answer = request.call().map_err(|error| Piece::Broke(error.to_string()))?;
        match answer.status().as_u16() {
            206 if header(&answer, "content-range").is_some_and(|range| range.starts_with(&format!("bytes {at}-"))) => (),
            // All of it, whatever was asked for.
            200 => part.set_len(0).map_err(|error| Piece::Broke(error.to_string()))?,
            status @ 400..500 => return Err(Piece::Refused(self.refusal(what, status))),
            status => return Err(Piece::Broke(format!("{} answered with status {status}", self.endpoint))),
        }
        let mut body = answer.into_body().into_reader().take(facts.size.saturating_sub(len(part)?));
        let mut buffer = vec![0; 1 << 17];
        loop {
            match body.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    part.write_all(&buffer[..count]).map_err(|error| Piece::Refused(failed(format!("{what}: {error}"))))?;
                    came(count as u64);
                }
                Err(error) => return Err(Piece::Broke(error.to_string())),
            }
        }
    }

    fn facts(&self, what: &str, name: &str) -> Result<Facts, Failure> {
        let url = format!("{}/{}/resolve/main/{name}", self.endpoint, self.id.repo);
        let (answer, url) = self.ask(what, &url, true)?;
        let away = header(&answer, "location").filter(|_| answer.status().is_redirection());
        if away.is_none() {
            self.check(what, &answer)?;
        }
        let first = |names: [&str; 2]| names.into_iter().find_map(|name| header(&answer, name));
        // They become names of files.
        let mark = first(["x-linked-etag", "etag"]).map(|mark| mark.trim_start_matches("W/").trim_matches('"').to_owned());
        let commit = header(&answer, "x-repo-commit");
        let size = first(["x-linked-size", "content-length"]).and_then(|size| size.parse().ok());
        match (mark.filter(|mark| is_plain(mark)), commit.filter(|commit| is_plain(commit)), size) {
            (Some(mark), Some(commit), Some(size)) => Ok(Facts { mark, commit, size, from: away.unwrap_or(url) }),
            _ => Err(failed(format!("{what}: {} says nothing of its size and versions that can be used", self.endpoint))),
        }
    }

    /// Asks the hub, as whoever has the token, and says where the answer came from; what it passes on to other hosts is given as it is.
    fn ask(&self, what: &str, url: &str, head: bool) -> Result<(Response<Body>, String), Failure> {
        let mut url = url.to_owned();
        for _ in 0..TURNS {
            let mut request = if head { self.agent.head(&url) } else { self.agent.get(&url) };
            if let Some(token) = &self.token {
                request = request.header("Authorization", format!("Bearer {token}"));
            }
            // A size of what is packed is not the file's.
            let answer = request.header("Accept-Encoding", "identity").call().map_err(|error| {
                failed(format!(
                    "{what}: {} cannot be reached: {error}; without a network, name a .gguf file or a folder with config.json and safetensors",
                    self.endpoint
                ))
            })?;
            let next = header(&answer, "location").filter(|_| answer.status().is_redirection());
            url = match next {
                Some(next) if next.starts_with('/') && !next.starts_with("//") => format!("{}{next}", self.endpoint),
                Some(next) if self.is_hub(&next) && header(&answer, "x-linked-etag").is_none() => next,
                _ => return Ok((answer, url)),
            };
        }
        Err(failed(format!("{what}: {} redirects in circles", self.endpoint)))
    }

    /// Whether an address is the hub's own.
    fn is_hub(&self, url: &str) -> bool {
        url.strip_prefix(&self.endpoint).is_some_and(|rest| rest.starts_with('/'))
    }

    fn check(&self, what: &str, answer: &Response<Body>) -> Result<(), Failure> {
        let status = answer.status();
        if status.is_success() { Ok(()) } else { Err(self.refusal(what, status.as_u16())) }
    }

    /// What went wrong, and what to do.
    fn refusal(&self, what: &str, status: u16) -> Failure {
        let endpoint = &self.endpoint;
        failed(match status {
            401 | 403 => format!(
                "{what}: {endpoint} does not give it without permission: there may be no such model, or its page asks to accept a licence; \
                 then log in with `hf auth login`, or set HF_TOKEN"
            ),
            404 => format!("{what}: {endpoint} has no such model or file"),
            _ => format!("{what}: {endpoint} answered with status {status}; try again later"),
        })
    }

    /// Why there is nothing to run, and what there is instead.
    fn no_weights(&self, names: &[&str]) -> Failure {
        let repo = &self.id.repo;
        let gguf: Vec<String> = names.iter().filter(|name| name.ends_with(".gguf")).map(|name| format!("  {repo}:{name}")).collect();
        match gguf.is_empty() {
            false => usage(format!("{repo} has GGUF files: name one of them\n{}", gguf.join("\n"))),
            true => failed(format!("{repo} has no {CONFIG} with {ONE_FILE} or {INDEX}: it is no model that can be run here")),
        }
    }
}

/// Why a connection brought no more.
enum Piece {
    /// Another try would not help.
    Refused(Failure),
    Broke(String),
}

impl From<Failure> for Piece {
    fn from(failure: Failure) -> Self {
        Piece::Refused(failure)
    }
}

fn header(answer: &Response<Body>, name: &str) -> Option<String> {
    Some(answer.headers().get(name)?.to_str().ok()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::Id;

    #[test]
    fn names_of_the_hub_are_told_from_paths() {
        let id = |repo: &str, file: Option<&str>| Some(Id { repo: repo.to_owned(), file: file.map(str::to_owned) });
        assert_eq!(Id::parse("Qwen/Qwen3-0.6B"), id("Qwen/Qwen3-0.6B", None));
        assert_eq!(Id::parse("a/b:q4/c-Q4_K_M.gguf"), id("a/b", Some("q4/c-Q4_K_M.gguf")));
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
            assert_eq!(Id::parse(path), None, "{path}");
        }
    }
}
