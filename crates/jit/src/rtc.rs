//! The runtime compilers' calls: NVRTC and hipRTC share every one, with equal shapes and numbers.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use warpwave_gpu::library::Library;
use warpwave_gpu::{Failure, Source, Vendor, two_vendor_table};

use crate::compile::CompileError;

type Handle = *mut std::ffi::c_void;

two_vendor_table! {
    /// The compilers' calls, resolved lazily.
    pub(crate) struct Rtc;

    /// Major and minor version.
    version(major: *mut c_int, minor: *mut c_int) = "nvrtcVersion" | "hiprtcVersion";
    /// HIP's version, where the runtime library holds the compiler: 10⁷·major + 10⁵·minor + patch.
    runtime_version(out: *mut c_int) = - | "hipRuntimeGetVersion";
    /// Makes a program of a source and the headers given with it.
    create(out: *mut Handle, source: *const c_char, name: *const c_char, count: c_int, headers: *const *const c_char, names: *const *const c_char) = "nvrtcCreateProgram" | "hiprtcCreateProgram";
    /// Compiles it.
    compile(program: Handle, count: c_int, options: *const *const c_char) = "nvrtcCompileProgram" | "hiprtcCompileProgram";
    /// Destroys it.
    destroy(program: *mut Handle) = "nvrtcDestroyProgram" | "hiprtcDestroyProgram";
    /// Bytes of the log, its NUL included.
    log_size(program: Handle, out: *mut usize) = "nvrtcGetProgramLogSize" | "hiprtcGetProgramLogSize";
    /// The log.
    log(program: Handle, out: *mut c_char) = "nvrtcGetProgramLog" | "hiprtcGetProgramLog";
    /// Bytes of the machine code.
    code_size(program: Handle, out: *mut usize) = "nvrtcGetCUBINSize" | "hiprtcGetCodeSize";
    /// The machine code.
    code(program: Handle, out: *mut c_char) = "nvrtcGetCUBIN" | "hiprtcGetCode";
    /// Bytes of the PTX, its NUL included.
    ptx_size(program: Handle, out: *mut usize) = "nvrtcGetPTXSize" | -;
    /// The PTX.
    ptx(program: Handle, out: *mut c_char) = "nvrtcGetPTX" | -;
}

/// The answer that the source, not the call, is at fault.
const COMPILATION: i32 = 6;
const INVALID_OPTION: i32 = 5;

/// Names of the answers 0 to 11, which both compilers share.
const ANSWERS: &[&str] = &[
    "success",
    "out of memory",
    "program creation failed",
    "invalid input",
    "invalid program",
    "invalid option",
    "compilation failed",
    "builtin operation failed",
    "no name expressions after compilation",
    "no lowered names before compilation",
    "name expression not valid",
    "internal error",
];

/// Opened libraries, for the life of the process: closing them is unsafe, opening them slow.
static OPENED: Mutex<Option<HashMap<PathBuf, Arc<Rtc>>>> = Mutex::new(None);

/// The calls of the library at `path`.
pub(crate) fn open(vendor: Vendor, path: &Path) -> Result<Arc<Rtc>, CompileError> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let opened = opened.get_or_insert_default();
    if let Some(known) = opened.get(path) {
        return Ok(known.clone());
    }
    let library = Library::open_file(name(vendor), path).map_err(CompileError::Library)?;
    let table = Arc::new(Rtc::new(vendor, Source::Library(library)));
    opened.insert(path.to_owned(), table.clone());
    Ok(table)
}

/// Major and minor version, as the compiler counts.
pub(crate) fn version(table: &Rtc) -> Result<(i32, i32), CompileError> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers are to integers of this function.
    unsafe { table.version(&mut major, &mut minor) }.map_err(|f| failed(table.vendor(), f))?;
    Ok((major, minor))
}

/// HIP's version. What `hiprtcVersion` answers is another number, and has been the same for years (9.0), so it is read from the
/// library's file name (`libamdhip64.so.5.2.21153`), or asked of the runtime where the compiler is part of it.
pub(crate) fn hip_version(table: &Rtc, path: &Path) -> Result<(i32, i32), CompileError> {
    if let Some(version) = version_in_name(path) {
        return Ok(version);
    }
    let mut packed = 0;
    // SAFETY: the pointer is to an integer of this function.
    match unsafe { table.runtime_version(&mut packed) } {
        Ok(()) => Ok((packed / 10_000_000, packed / 100_000 % 100)),
        // Packages ship `libhiprtc.so.7` alone: its major version then, and the oldest minor.
        Err(failure) => major_in_name(path).map(|major| (major, 0)).ok_or_else(|| failed(table.vendor(), failure)),
    }
}

fn major_in_name(path: &Path) -> Option<i32> {
    path.file_name()?.to_str()?.split(".so.").nth(1)?.split('.').next()?.parse().ok()
}

/// Major and minor of `name.so.MAJOR.MINOR…`, of the file behind any links.
fn version_in_name(path: &Path) -> Option<(i32, i32)> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = real.file_name()?.to_str()?;
    let mut numbers = name.split(".so.").nth(1)?.split('.').map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// `NVRTC 12.9`.
pub(crate) fn version_text(vendor: Vendor, path: &Path) -> Result<String, CompileError> {
    let table = open(vendor, path)?;
    let (major, minor) = match vendor {
        Vendor::Nvidia => version(&table)?,
        Vendor::Amd => hip_version(&table, path)?,
    };
    Ok(format!("{} {major}.{minor}", name(vendor)))
}

fn name(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::Nvidia => "NVRTC",
        Vendor::Amd => "hipRTC",
    }
}

fn failed(vendor: Vendor, failure: Failure) -> CompileError {
    let compiler = name(vendor).to_owned();
    let (call, text) = match failure {
        Failure::Code { call, code } => {
            let meaning = usize::try_from(code).ok().and_then(|c| ANSWERS.get(c)).unwrap_or(&"unknown answer");
            (call, format!("{meaning} ({code})"))
        }
        Failure::MissingSymbol(call) => (call, "the library does not export it".to_owned()),
        Failure::NoSuchCall(call) => (call, "this compiler does not provide this function".to_owned()),
    };
    CompileError::Call { compiler, call, text }
}

/// Which output to fetch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    Code,
    Ptx,
}

/// What a compiler made of a source: the code, or nothing where it found errors; and its log.
pub(crate) struct Outcome {
    pub(crate) binary: Option<Vec<u8>>,
    pub(crate) log: String,
    /// The answer was "invalid option".
    pub(crate) bad_option: bool,
}

/// A program of one compiler. It is destroyed whatever happens.
struct Program<'a> {
    table: &'a Rtc,
    handle: Handle,
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `create` and is destroyed once.
        if let Err(failure) = unsafe { self.table.destroy(&mut self.handle) } {
            tracing::warn!(?failure, "cannot destroy a runtime compilation program");
        }
    }
}

/// Compiles `text`, called `name`, with `headers` (name and text).
pub(crate) fn compile(
    table: &Rtc,
    name: &str,
    text: &str,
    headers: &[(&str, &str)],
    options: &[String],
    output: Output,
) -> Result<Outcome, CompileError> {
    let bad = |f| failed(table.vendor(), f);
    let (source, name) = (c_string(text)?, c_string(name)?);
    let header_names = headers.iter().map(|(n, _)| c_string(n)).collect::<Result<Vec<_>, _>>()?;
    let header_texts = headers.iter().map(|(_, t)| c_string(t)).collect::<Result<Vec<_>, _>>()?;
    let options = options.iter().map(|o| c_string(o)).collect::<Result<Vec<_>, _>>()?;
    let pointers = |strings: &[CString]| strings.iter().map(|s| s.as_ptr()).collect::<Vec<_>>();
    let (names, texts, flags) = (pointers(&header_names), pointers(&header_texts), pointers(&options));
    let mut handle = std::ptr::null_mut();
    // SAFETY: every pointer is to a NUL-terminated string that lives until the end of this function; the counts are those of
    // the arrays.
    unsafe { table.create(&mut handle, source.as_ptr(), name.as_ptr(), names.len() as c_int, texts.as_ptr(), names.as_ptr()) }
        .map_err(bad)?;
    let program = Program { table, handle };
    // SAFETY: as above.
    let answer = unsafe { table.compile(program.handle, flags.len() as c_int, flags.as_ptr()) };
    // SAFETY: the program is alive, and the number is one of `fetch`.
    let log_size = |out| unsafe { table.log_size(program.handle, out) };
    // SAFETY: the program is alive, and the buffer has the size it stated.
    let read_log = |out| unsafe { table.log(program.handle, out) };
    let log = fetch(log_size, read_log).map_err(bad)?;
    let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
    let refused = |bad_option| Outcome { binary: None, log: log.clone(), bad_option };
    match answer {
        Ok(()) => {}
        Err(Failure::Code { code: COMPILATION, .. }) => return Ok(refused(false)),
        Err(Failure::Code { code: INVALID_OPTION, .. }) => return Ok(refused(true)),
        Err(other) if log.is_empty() => return Err(bad(other)),
        // hipRTC answers "internal error" for some errors of the source.
        Err(_) => return Ok(refused(false)),
    }
    let handle = program.handle;
    let binary = match output {
        // SAFETY: the program was compiled; `fetch` gives a buffer of the size the first call states.
        Output::Code => fetch(|out| unsafe { table.code_size(handle, out) }, |out| unsafe { table.code(handle, out) }),
        // SAFETY: as above.
        Output::Ptx => fetch(|out| unsafe { table.ptx_size(handle, out) }, |out| unsafe { table.ptx(handle, out) }),
    };
    Ok(Outcome { binary: Some(binary.map_err(bad)?), log, bad_option: false })
}

/// The bytes of a pair of calls: one for the size, one for the content.
fn fetch(
    size: impl Fn(*mut usize) -> Result<(), Failure>,
    content: impl Fn(*mut c_char) -> Result<(), Failure>,
) -> Result<Vec<u8>, Failure> {
    let mut bytes = 0;
    size(&mut bytes)?;
    let mut buffer = vec![0u8; bytes];
    if bytes > 0 {
        content(buffer.as_mut_ptr().cast())?;
    }
    Ok(buffer)
}

fn c_string(text: &str) -> Result<CString, CompileError> {
    CString::new(text).map_err(|_| CompileError::BadOption { option: text.to_owned(), reason: "contains a NUL byte".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_file_names() {
        for (name, version) in [
            ("/x/libamdhip64.so.5.2.21153", Some((5, 2))),
            ("/x/libhiprtc.so.6.2.60204-1", Some((6, 2))),
            ("/x/libhiprtc.so.7", None),
            ("/x/libhiprtc.so", None),
            ("/x.so.5.2/libhiprtc.so", None),
        ] {
            assert_eq!(version_in_name(Path::new(name)), version, "{name}");
        }
    }

    /// Each row's symbol is declared in the vendor's header with parameters of the row's sizes, and returns an `int`-sized enum.
    fn compare_with_header(vendor: Vendor, header: &Path, include_dirs: &[&str]) {
        let mut text = format!("#include <stddef.h>\n#include \"{}\"\n", header.display());
        text += "template <class R, class... A> constexpr bool fits(R (*)(A...), size_t result, const size_t (&sizes)[sizeof...(A)]) {\n";
        text += "  const size_t actual[] = {sizeof(A)...};\n  for (size_t i = 0; i < sizeof...(A); i++) if (actual[i] != sizes[i]) return false;\n";
        text += "  return sizeof(R) == result;\n}\n";
        for row in Rtc::ROWS {
            // The runtime's call stands in another header.
            if let Some(symbol) = row.symbol(vendor).filter(|s| !s.starts_with("hipRuntime")) {
                let sizes = row.parameters.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
                text += &format!("static_assert(fits(&{symbol}, 4, {{{sizes}}}), \"{symbol}\");\n");
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rows.cc");
        std::fs::write(&file, text).unwrap();
        for compiler in ["c++", "g++", "clang++", "clang++-19"] {
            let mut command = std::process::Command::new(compiler);
            command.args(["-std=c++17", "-fsyntax-only", "-D__HIP_PLATFORM_AMD__"]).args(include_dirs).arg(&file);
            if let Ok(output) = command.output() {
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                return;
            }
        }
        eprintln!("skipped: no C++ compiler to read {} with", header.display());
    }

    #[test]
    fn rows_have_the_shapes_of_nvrtcs_header() {
        let found = crate::toolchain::Toolchains::find();
        let beside = found.nvrtc.first().and_then(|t| Some(t.path().parent()?.parent()?.join("include/nvrtc.h")));
        match beside.filter(|h| h.is_file()) {
            Some(header) => compare_with_header(Vendor::Nvidia, &header, &[]),
            None => eprintln!("skipped: nvrtc.h is not installed"),
        }
    }

    #[test]
    fn rows_have_the_shapes_of_hiprtcs_header() {
        match ["/opt/rocm/include", "/usr/include"].iter().find(|f| Path::new(f).join("hip/hiprtc.h").is_file()) {
            Some(folder) => compare_with_header(Vendor::Amd, &Path::new(folder).join("hip/hiprtc.h"), &[&format!("-I{folder}")]),
            None => eprintln!("skipped: hip/hiprtc.h is not installed"),
        }
    }
}
