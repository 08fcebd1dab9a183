//! Models of the Hugging Face hub, by their names there: `org/name` for a folder's files, `org/name:file.gguf` for one file. They are kept
//! in the cache that Hugging Face's own tools use, and a download that broke off goes on where it was.

use std::env;
use std::path::{Path, PathBuf};

use hf_hub::api::Progress;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, CacheRepo};
use indicatif::ProgressBar;
use serde_json::Value;

use super::super::{Context, Failure, failed, usage};
use super::bytes_bar;
use super::memory::human;

const INDEX: &str = "model.safetensors.index.json";
const ONE_FILE: &str = "model.safetensors";
const CONFIG: &str = "config.json";
/// What else a model may have beside its weights.
const BESIDE: [&str; 5] =
    ["generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"];
const TRIES: usize = 3;
/// What hf-hub's unfinished files end in.
const PART: &str = "part";

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
    if env::var_os("HF_HOME").is_none() && env::home_dir().is_none() {
        return Err(failed("there is no place for models of Hugging Face: set HOME, or HF_HOME to a folder"));
    }
    let cache = Cache::from_env();
    if let Some(path) = cached(&cache.model(id.repo.clone()), id) {
        return Ok(path);
    }
    let endpoint = env::var("HF_ENDPOINT").unwrap_or_else(|_| "https://huggingface.co".to_owned());
    writeln!(context.err, "Fetching {} from {endpoint} to {}", id.repo, cache.path().display())?;
    let mut builder = ApiBuilder::from_env().with_retries(TRIES).with_progress(false);
    if let Ok(token) = env::var("HF_TOKEN") {
        builder = builder.with_token(Some(token));
    }
    let api = builder.build().map_err(|error| explained(&id.repo, &endpoint, error))?;
    let hub = Hub { repo: api.model(id.repo.clone()), api, id, endpoint };
    hub.fetch()
}

/// The files of the cache, if they are all there.
fn cached(cache: &CacheRepo, id: &Id) -> Option<PathBuf> {
    if let Some(file) = &id.file {
        return cache.get(file);
    }
    // It is fetched last: where it is, all the others are.
    let config = cache.get(CONFIG)?;
    let whole = match cache.get(INDEX) {
        Some(index) => shards(&index).ok()?.iter().all(|shard| cache.get(shard).is_some()),
        None => cache.get(ONE_FILE).is_some(),
    };
    config.parent().filter(|_| whole).map(Path::to_owned)
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

struct Hub<'a> {
    api: Api,
    repo: ApiRepo,
    id: &'a Id,
    endpoint: String,
}

impl Hub<'_> {
    fn fetch(&self) -> Result<PathBuf, Failure> {
        if let Some(file) = &self.id.file {
            return self.file(file);
        }
        let info = self.repo.info().map_err(|error| explained(&self.id.repo, &self.endpoint, error))?;
        let names: Vec<&str> = info.siblings.iter().map(|file| file.rfilename.as_str()).collect();
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
        let explain = |error| explained(&format!("{}: {name}", self.id.repo), &self.endpoint, error);
        let metadata = self.api.metadata(&self.repo.url(name)).map_err(explain)?;
        // They become names of files.
        let plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        if !plain(metadata.etag()) || !plain(metadata.commit_hash()) {
            return Err(failed(format!("{}: {name}: the server's marks of the file are no names", self.id.repo)));
        }
        let cache = Cache::from_env().model(self.id.repo.clone());
        // A part that is whole was not renamed in time: a server has nothing to go on with.
        let part = cache.blob_path(metadata.etag()).with_extension(PART);
        if std::fs::metadata(&part).is_ok_and(|part| part.len() >= metadata.size() as u64) {
            std::fs::remove_file(&part)?;
        }
        let there = cache.pointer_path(metadata.commit_hash()).join(name);
        let path = match there.exists() {
            true => there,
            false => self.repo.download_with_progress(name, Bar(bytes_bar(0, "fetching"))).map_err(explain)?,
        };
        let bytes = std::fs::metadata(&path)?.len();
        if bytes != metadata.size() as u64 {
            let expected = human(metadata.size() as u64);
            return Err(failed(format!(
                "{}: it has {}, and should have {expected}; remove it and fetch it again",
                path.display(),
                human(bytes)
            )));
        }
        Ok(path)
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

/// Shows how far a file is.
struct Bar(ProgressBar);

impl Progress for Bar {
    fn init(&mut self, size: usize, name: &str) {
        self.0.set_length(size as u64);
        self.0.set_position(0);
        self.0.set_message(format!("fetching {name}"));
    }

    fn update(&mut self, size: usize) {
        self.0.inc(size as u64);
    }

    fn finish(&mut self) {
        self.0.finish_and_clear();
    }
}

/// What went wrong, and what to do.
fn explained(what: &str, endpoint: &str, error: ApiError) -> Failure {
    let status = match &error {
        ApiError::RequestError(error) => match **error {
            ureq::Error::StatusCode(status) => Some(status),
            _ => None,
        },
        _ => None,
    };
    failed(match (status, &error) {
        (Some(401 | 403), _) => format!(
            "{what}: {endpoint} does not give it without permission: there may be no such model, or its page asks to accept a licence; \
             then log in with `hf auth login`, or set HF_TOKEN"
        ),
        (Some(404), _) => format!("{what}: {endpoint} has no such model or file"),
        (Some(status), _) => format!("{what}: {endpoint} answered with status {status}; try again later"),
        (None, ApiError::LockAcquisition(_)) => format!("{what}: another program is fetching it"),
        (None, ApiError::IoError(error)) => format!("{what}: {error}; what came is kept: the same command goes on from there"),
        (None, ApiError::TooManyRetries(error)) => format!("{what}: {error}; what came is kept: the same command goes on from there"),
        (None, error) => format!(
            "{what}: {endpoint} cannot be reached: {error}; without a network, name a .gguf file or a folder with config.json and safetensors"
        ),
    })
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
