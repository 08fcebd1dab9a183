//! From source to loaded module: cache key, disk cache, compiler, device.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use warpwave_gpu::code_object::CodeObject;
use warpwave_gpu::{Arch, Device, Module};

use crate::archive::{Archive, source_key};
use crate::cache::{Cache, Entry, Key, KeyBuilder, Memo, Outcome};
use crate::compile::{CompileError, Compiled, CompilerChoice, Job, compile_with, key_material};
use crate::source::KernelSource;
use crate::target::Target;
use crate::toolchain::{Identity, Tool, Toolchains, VersionCache};
use crate::translate::{HipFile, Note};

/// Compiles sources, caches the results on disk and loads them on devices. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Jit(Arc<Inner>);

struct Inner {
    cache: Cache,
    toolchains: OnceLock<Toolchains>,
    archives: OnceLock<Vec<Archive>>,
    /// By device name and key. A module keeps its device open, so the name stays unique.
    loaded: Mutex<HashMap<(String, Key), Module>>,
}

/// Why a source could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JitError {
    /// Compilation failed.
    #[error(transparent)]
    Compile(Box<CompileError>),
    /// Archives have code for the device, but not of this source, and it could not be compiled either.
    #[error("the kernel archives for {arch} do not contain {kernel}, and it cannot be compiled: {error}")]
    NotArchived {
        /// The source's name and macros.
        kernel: String,
        /// The device's architecture.
        arch: Arch,
        /// Why it could not be compiled.
        #[source]
        error: Box<CompileError>,
    },
    /// The device rejected the code.
    #[error(transparent)]
    Gpu(#[from] warpwave_gpu::Error),
}

/// What the archives have of a source.
enum Archived {
    /// The module.
    Module(Module),
    /// No archive has code for the device's architecture.
    NoArchive,
    /// There are archives for the architecture, but the source is in none.
    NotFound,
    /// The device rejected the code.
    Rejected(warpwave_gpu::Error),
}

impl From<CompileError> for JitError {
    fn from(error: CompileError) -> Self {
        JitError::Compile(Box::new(error))
    }
}

/// Compiled code and its provenance.
#[derive(Debug, Clone)]
pub struct Built {
    /// The code.
    pub compiled: Compiled,
    /// The compiler's version string.
    pub compiler: String,
    /// Whether it came from the cache.
    pub outcome: Outcome,
    /// The cache key.
    pub key: Key,
    /// Time from request to code.
    pub took: Duration,
}

/// The metadata that the cache stores beside the code.
#[derive(Serialize, Deserialize)]
struct Meta {
    source: String,
    target: String,
    compiler: String,
    log: String,
    kernels: Vec<String>,
    /// Kept because NVRTC reports spills in its log only.
    spills: Vec<(u32, u32)>,
    #[serde(default)]
    notes: Vec<Note>,
    #[serde(default)]
    hip: Vec<HipFile>,
}

impl Default for Jit {
    fn default() -> Self {
        Jit::new(Cache::from_env())
    }
}

impl Jit {
    /// Creates a compiler with a cache. [`Jit::default`] uses [`Cache::from_env`].
    pub fn new(cache: Cache) -> Jit {
        Jit(Arc::new(Inner { cache, toolchains: OnceLock::new(), archives: OnceLock::new(), loaded: Mutex::default() }))
    }

    /// Creates a compiler with a cache, given toolchains, and given archives only.
    pub fn with_toolchains(cache: Cache, toolchains: Toolchains, archives: Vec<Archive>) -> Jit {
        let (toolchains, archives) = (OnceLock::from(toolchains), OnceLock::from(archives));
        Jit(Arc::new(Inner { cache, toolchains, archives, loaded: Mutex::default() }))
    }

    /// Creates a compiler like [`Jit::default`] that takes code from `archives` too, such as one embedded in the program. They come before
    /// the installed ones.
    pub fn with_archives(mut archives: Vec<Archive>) -> Jit {
        archives.extend(Archive::installed());
        let archives = OnceLock::from(archives);
        Jit(Arc::new(Inner { cache: Cache::from_env(), toolchains: OnceLock::new(), archives, loaded: Mutex::default() }))
    }

    /// Returns the cache.
    pub fn cache(&self) -> &Cache {
        &self.0.cache
    }

    /// Returns the toolchains, searched at the first use.
    pub fn toolchains(&self) -> &Toolchains {
        self.0.toolchains.get_or_init(Toolchains::find)
    }

    /// Returns the archives that [`Jit::load`] takes code from; [`Archive::installed`] at the first use, unless others were given.
    pub fn archives(&self) -> &[Archive] {
        self.0.archives.get_or_init(Archive::installed)
    }

    /// Returns machine code of `source` for `target`, from the cache or compiled now. Of several processes that request the same code, one
    /// compiles and the others wait.
    pub fn build(&self, source: &KernelSource, target: &Target, compiler: CompilerChoice) -> Result<Built, CompileError> {
        let job = Job { source, target, compiler };
        self.build_request(&job, &self.request(&job)?)
    }

    /// Loads `source` as a module on `device`: from an archive, from the cache, or compiled. A second call returns the same module without
    /// reading the disk.
    pub fn load(&self, device: &Device, source: &KernelSource) -> Result<Module, JitError> {
        let archived = match self.load_archived(device, source) {
            Archived::Module(module) => return Ok(module),
            archived => archived,
        };
        let target = Target::of(device).for_source(source);
        let job = Job { source, target: &target, compiler: CompilerChoice::Auto };
        let request = match (self.request(&job), archived) {
            (Ok(request), _) => request,
            // Why the archive's code was not used matters more than what is missing to compile it.
            (Err(CompileError::NoCompiler(_)), Archived::Rejected(error)) => return Err(error.into()),
            (Err(error), Archived::NotFound) => {
                return Err(JitError::NotArchived { kernel: describe(source), arch: device.info().arch, error: Box::new(error) });
            }
            (Err(error), _) => return Err(error.into()),
        };
        if let Some(module) = self.known(device, request.key) {
            return Ok(module);
        }
        self.load_built(device, self.build_request(&job, &request)?)
    }

    /// Loads `source` from the first archive with code for the device.
    fn load_archived(&self, device: &Device, source: &KernelSource) -> Archived {
        let arch = device.info().arch;
        let mut fitting = self.archives().iter().filter(|archive| archive.supports(arch)).peekable();
        if fitting.peek().is_none() {
            return Archived::NoArchive;
        }
        let key = source_key(source);
        if let Some(module) = self.known(device, key) {
            return Archived::Module(module);
        }
        let mut outcome = Archived::NotFound;
        for archive in fitting {
            match archive.code(key, arch).map(|code| code.map(|code| Module::load(device, &code))) {
                Ok(Some(Ok(module))) => {
                    tracing::debug!(source = source.name(), archive = archive.name(), "loaded from an archive");
                    self.loaded().insert((device.name().to_owned(), key), module.clone());
                    return Archived::Module(module);
                }
                // A driver may be older than the compiler the archive was made with.
                Ok(Some(Err(error))) => {
                    tracing::warn!("{} contains code that {} cannot load: {error}", archive.name(), device.name());
                    outcome = Archived::Rejected(error);
                }
                Ok(None) => {}
                Err(error) => tracing::warn!("{error}; its kernels will be compiled"),
            }
        }
        if matches!(outcome, Archived::NotFound) {
            tracing::debug!(kernel = describe(source), %arch, "not in the archives");
        }
        outcome
    }

    /// The module that was loaded under a key.
    fn known(&self, device: &Device, key: Key) -> Option<Module> {
        self.loaded().get(&(device.name().to_owned(), key)).filter(|module| module.device() == device).cloned()
    }

    /// Does the same as [`Jit::load`] and passes the compiled code to `inspect` first: its log, the translator's notes, the HIP source.
    pub fn load_inspected(&self, device: &Device, source: &KernelSource, inspect: impl FnOnce(&Built)) -> Result<Module, JitError> {
        let built = self.build(source, &Target::of(device).for_source(source), CompilerChoice::Auto)?;
        inspect(&built);
        self.load_built(device, built)
    }

    fn load_built(&self, device: &Device, built: Built) -> Result<Module, JitError> {
        let Compiled { binary, code_object, .. } = built.compiled;
        // SAFETY: `build_request` parsed this binary, and nobody could change it or its code object since.
        let module = unsafe { Module::load_parsed(device, &binary, code_object) }?;
        self.loaded().insert((device.name().to_owned(), built.key), module.clone());
        Ok(module)
    }

    fn loaded(&self) -> MutexGuard<'_, HashMap<(String, Key), Module>> {
        self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self, job: &Job<'_>) -> Result<Request<'_>, CompileError> {
        let start = Instant::now();
        let tool = self.toolchains().choose(job.target, job.compiler)?;
        let version = tool.version(&StoredVersions { memo: self.0.cache.memo(), tool })?;
        let key = key_of(job, tool, &version);
        Ok(Request { start, tool, version, key })
    }

    fn build_request(&self, job: &Job<'_>, request: &Request<'_>) -> Result<Built, CompileError> {
        let Request { start, tool, version, key } = request;
        let mut fresh = None;
        let (entry, outcome) = self.0.cache.get_or_try_insert(key, || {
            let compiled = compile_with(job, tool)?;
            let entry = to_entry(job, version, &compiled);
            fresh = Some(compiled);
            Ok::<_, CompileError>(entry)
        })?;
        let compiled = match fresh {
            Some(compiled) => compiled,
            None => from_entry(entry, tool, job.target)?,
        };
        let took = start.elapsed();
        tracing::debug!(source = job.source.name(), target = %job.target, ?outcome, ?took, "built");
        Ok(Built { compiled, compiler: version.clone(), outcome, key: *key, took })
    }
}

/// A job with its compiler and cache key.
struct Request<'a> {
    start: Instant,
    tool: &'a Tool,
    version: String,
    key: Key,
}

/// Returns the name of a source and its macros, which distinguish kernels of one file.
fn describe(source: &KernelSource) -> String {
    let macros = source.defines().iter().map(|(name, value)| format!(" {name}={value}"));
    std::iter::once(source.name().to_owned()).chain(macros).collect()
}

/// Returns the cache key, which covers everything the code depends on.
fn key_of(job: &Job<'_>, tool: &Tool, version: &str) -> Key {
    let mut key = KeyBuilder::new();
    key.field("compiler version", version.as_bytes());
    for (label, value) in key_material(job, tool) {
        key.field(&label, value.as_bytes());
    }
    key.finish()
}

fn to_entry(job: &Job<'_>, version: &str, compiled: &Compiled) -> Entry {
    let kernels = &compiled.code_object.kernels;
    let meta = Meta {
        source: job.source.name().to_owned(),
        target: job.target.to_string(),
        compiler: version.to_owned(),
        log: compiled.log.clone(),
        kernels: kernels.iter().map(|k| k.name.clone()).collect(),
        spills: kernels.iter().map(|k| (k.sgpr_spills, k.vgpr_spills)).collect(),
        notes: compiled.notes.clone(),
        hip: compiled.hip.clone(),
    };
    // A struct of strings and numbers always serializes.
    let meta = serde_json::to_string(&meta).unwrap_or_default();
    Entry { meta, payload: compiled.binary.clone() }
}

fn from_entry(entry: Entry, tool: &Tool, target: &Target) -> Result<Compiled, CompileError> {
    let mut code_object = CodeObject::parse(&entry.payload).map_err(|error| CompileError::BadOutput {
        compiler: tool.name().to_owned(),
        target: target.to_string(),
        error,
    })?;
    let meta: Option<Meta> = serde_json::from_str(&entry.meta).ok();
    let (log, spills, notes, hip) = meta.map(|meta| (meta.log, meta.spills, meta.notes, meta.hip)).unwrap_or_default();
    for (kernel, (sgpr, vgpr)) in code_object.kernels.iter_mut().zip(spills) {
        (kernel.sgpr_spills, kernel.vgpr_spills) = (sgpr, vgpr);
    }
    Ok(Compiled { binary: entry.payload, log, code_object, notes, hip })
}

/// Compiler versions, stored beside the cache: querying clang starts a process, querying NVRTC opens a 100 MB library.
struct StoredVersions<'a> {
    memo: &'a Memo,
    tool: &'a Tool,
}

impl VersionCache for StoredVersions<'_> {
    fn version(&self, identity: &Identity, query: &mut dyn FnMut() -> Result<String, CompileError>) -> Result<String, CompileError> {
        let mut failed = None;
        let answer = self.memo.get_or(self.tool.path(), &format!("version of {identity}"), || {
            query().map_err(|error| {
                let text = error.to_string();
                failed = Some(error);
                std::io::Error::other(text)
            })
        });
        answer.map_err(|error| {
            failed.unwrap_or(CompileError::Io { what: format!("cannot query the version of {}", self.tool.path().display()), error })
        })
    }
}
