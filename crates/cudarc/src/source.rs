//! CUDA sources that stand in for PTX, and the part of one that a kernel needs.
//!
//! Sources of tensor libraries have a hundred kernels, and a program uses a few. Compiling all takes minutes, so each kernel is compiled
//! alone: what defines only other kernels is taken out of the source. What is taken out becomes blank, so messages keep their lines.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use warpwave::gpu::Vendor;
use warpwave::hipify::lex::{Kind, Lexed};
use warpwave::jit::{KernelSource, kernels};

use crate::driver::sys::CUresult;
use crate::error::DriverError;
use crate::gpu::lock;

/// A CUDA source with its headers.
pub(crate) struct Container {
    name: String,
    text: String,
    headers: Vec<(String, String)>,
    contents: OnceLock<Option<Contents>>,
}

/// What kernels a source has.
struct Contents {
    names: HashSet<String>,
    definitions: Vec<Definition>,
}

/// Text that defines kernels: a function, or the use of a macro.
struct Definition {
    range: Range<usize>,
    kernels: Vec<String>,
}

/// What NVRTC lacks of `<cmath>`: most of it is built in.
const CMATH: &str = "#pragma once\n#define INFINITY __int_as_float(0x7f800000)\n#define NAN __int_as_float(0x7fffffff)\n";

impl Container {
    /// Reads a container, or returns the one that was read from the same text before. `None` if the text is not a container.
    pub fn read(text: &str) -> Option<Arc<Container>> {
        static KNOWN: Mutex<Option<HashMap<String, Arc<Container>>>> = Mutex::new(None);
        let mut known = lock(&KNOWN);
        let known = known.get_or_insert_default();
        if let Some(container) = known.get(text) {
            return Some(container.clone());
        }
        let files = cudaforge::container::unpack(text)?;
        let (name, main) = files[0];
        let headers = files[1..].iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let container = Container { name: name.to_owned(), text: main.to_owned(), headers, contents: OnceLock::new() };
        Some(known.entry(text.to_owned()).or_insert(Arc::new(container)).clone())
    }

    /// Returns the source of one kernel: without the definitions of others, where they are found. Fails if the source has no such kernel.
    pub fn only(&self, kernel: &str, vendor: Vendor) -> Result<KernelSource, DriverError> {
        let whole = self.with_headers(&self.text, vendor)?;
        let Some(Contents { names, definitions }) = self.contents.get_or_init(|| contents(&whole)) else { return Ok(whole) };
        // A C++ symbol is a mangled name, which depends on the compiler.
        if !names.contains(kernel) && !kernel.starts_with("_Z") {
            let mut known: Vec<&str> = names.iter().map(String::as_str).collect();
            known.sort_unstable();
            let reason = format!("kernel `{kernel}` not found in {}; available: {}", self.name, known.join(", "));
            return Err(DriverError::new(CUresult::CUDA_ERROR_NOT_FOUND, &reason));
        }
        let mut text = self.text.clone().into_bytes();
        for definition in definitions.iter().filter(|definition| !definition.kernels.iter().any(|name| name == kernel)) {
            text[definition.range.clone()].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        }
        // Definitions begin and end with whole characters.
        self.with_headers(&String::from_utf8_lossy(&text), vendor)
    }

    fn with_headers(&self, text: &str, vendor: Vendor) -> Result<KernelSource, DriverError> {
        let mut source = KernelSource::from_text(&self.name, text)?.headers(self.headers.clone())?;
        if vendor == Vendor::Nvidia && !self.headers.iter().any(|(name, _)| name == "cmath") {
            source = source.header("cmath", CMATH)?;
        }
        Ok(source)
    }
}

/// Finds the kernels of a source, and the text that defines each. Kernels whose text is not found stay in the source. `None` if the source
/// cannot be read.
fn contents(source: &KernelSource) -> Option<Contents> {
    let (found, lexed) = (kernels(source)?, Lexed::new(source.text().as_bytes()).ok()?);
    let mut definitions: Vec<(u32, Definition)> = Vec::new();
    for kernel in found.iter().filter(|kernel| kernel.file == 0 && kernel.extern_c && !kernel.template) {
        if let Some((_, known)) = definitions.iter_mut().find(|(at, _)| *at == kernel.at) {
            known.kernels.push(kernel.name.clone());
            continue;
        }
        let token = lexed.tokens.partition_point(|token| token.start < kernel.at);
        let is_function = token < lexed.tokens.len() && lexed.is(token, kernel.name.as_bytes());
        let range = if is_function { function(&lexed, token) } else { macro_use(&lexed, token) };
        if let Some(range) = range {
            definitions.push((kernel.at, Definition { range, kernels: vec![kernel.name.clone()] }));
        }
    }
    let definitions: Vec<Definition> = definitions.into_iter().map(|(_, definition)| definition).collect();
    // One within another would be taken out with it.
    let overlap = |a: &Definition, b: &Definition| a.range.start < b.range.end && b.range.start < a.range.end;
    let alone = |i: usize| definitions.iter().enumerate().all(|(j, other)| i == j || !overlap(&definitions[i], other));
    let keep: Vec<bool> = (0..definitions.len()).map(alone).collect();
    let definitions = definitions.into_iter().zip(keep).filter_map(|(definition, keep)| keep.then_some(definition)).collect();
    Some(Contents { names: found.into_iter().map(|kernel| kernel.name).collect(), definitions })
}

/// The text of a macro's use, whose name is at a token: up to the closing parenthesis and a semicolon.
fn macro_use(lexed: &Lexed<'_>, name: usize) -> Option<Range<usize>> {
    let close = closing(lexed, name + 1, b"(", b")")?;
    let end = if close + 1 < lexed.tokens.len() && lexed.is(close + 1, b";") { close + 1 } else { close };
    whole(lexed, name..end + 1)
}

/// The text of a function, whose name is at a token: from `extern` or the end of what precedes it, to its closing brace.
fn function(lexed: &Lexed<'_>, name: usize) -> Option<Range<usize>> {
    let mut start = name;
    for token in (0..name).rev().filter(|token| !lexed.tokens[*token].in_directive) {
        if [&b";"[..], b"{", b"}"].iter().any(|end| lexed.is(token, end)) {
            break;
        }
        start = token;
        if lexed.is(token, b"extern") {
            break;
        }
    }
    let arguments = closing(lexed, name + 1, b"(", b")")?;
    let close = closing(lexed, arguments + 1, b"{", b"}")?;
    whole(lexed, start..close + 1)
}

/// The bracket that closes the one at a token.
fn closing(lexed: &Lexed<'_>, open: usize, opens: &[u8], closes: &[u8]) -> Option<usize> {
    let mut depth = 0usize;
    let mut opened = false;
    for token in (open..lexed.tokens.len()).filter(|token| !lexed.tokens[*token].in_directive) {
        if lexed.is(token, opens) {
            depth += 1;
            opened = true;
        } else if lexed.is(token, closes) {
            depth = depth.checked_sub(1)?;
        }
        if depth == 0 {
            // Anything but an opening bracket at the start ends here.
            return opened.then_some(token);
        }
    }
    None
}

/// The text of tokens, if no directive is among them: a condition would lose its begin or its end.
fn whole(lexed: &Lexed<'_>, tokens: Range<usize>) -> Option<Range<usize>> {
    let is_condition = |token: usize| lexed.tokens[token].kind == Kind::Hash;
    let (first, last) = (lexed.tokens.get(tokens.start)?, lexed.tokens.get(tokens.end.checked_sub(1)?)?);
    (!tokens.clone().any(is_condition)).then_some(first.start as usize..last.end as usize)
}

#[cfg(test)]
mod tests {
    use warpwave::gpu::Vendor;
    use warpwave::jit::kernels;

    use super::Container;

    const SOURCE: &str = r#"
#include "op.cuh"
template <class T> __device__ T twice(T x) { return x + x; } // ä
OP(float, add_f32, x + 1)
OP(int, add_i32, x + 1);
#if __CUDA_ARCH__ >= 800
TWO(double, f64)
#endif
extern "C" __global__ void plain(float *x) { if (x) { *x = twice(*x); } }
extern "C" __global__ void
#ifdef NEVER
__launch_bounds__(1)
#endif
guarded(float *x) { *x = 1; }
extern "C" { __global__ void inner(int *x) { *x = 2; }
__global__ void second(int *x) { *x = 3; } }
"#;
    const HEADER: &str = "#define OP(T, NAME, E) extern \"C\" __global__ void NAME(T *p) { T x = *p; *p = E; }\n\
        #define TWO(T, N) OP(T, inc_##N, x + 1) OP(T, dec_##N, x - 1)\n";

    fn names(kernel: &str) -> Vec<String> {
        let text = cudaforge::container::pack([("a.cu", SOURCE), ("op.cuh", HEADER)]);
        let source = Container::read(&text).unwrap().only(kernel, Vendor::Amd).unwrap();
        assert_eq!(source.text().lines().count(), SOURCE.lines().count());
        assert!(source.text().contains("T twice(T x)") && source.text().contains("ä"));
        kernels(&source).unwrap().into_iter().map(|kernel| kernel.name).collect()
    }

    #[test]
    fn only_the_kernel_asked_for_remains() {
        // The text of a function with a directive stays: taking it out could take the begin or end of a condition.
        assert_eq!(names("add_f32"), ["add_f32", "guarded"]);
        assert_eq!(names("add_i32"), ["add_i32", "guarded"]);
        assert_eq!(names("dec_f64"), ["inc_f64", "dec_f64", "guarded"]);
        assert_eq!(names("plain"), ["plain", "guarded"]);
        assert_eq!(names("second"), ["guarded", "second"]);
        assert_eq!(names("guarded"), ["guarded"]);
    }

    #[test]
    fn a_kernel_that_is_missing_is_an_error_without_a_compilation() {
        let text = cudaforge::container::pack([("a.cu", SOURCE), ("op.cuh", HEADER)]);
        let error = Container::read(&text).unwrap().only("absent", Vendor::Amd).unwrap_err().to_string();
        assert!(error.contains("`absent`") && error.contains("add_i32, dec_f64"), "{error}");
    }

    #[test]
    fn text_that_is_not_a_container_is_left_alone() {
        assert!(Container::read(".version 8.0\n.target sm_90\n").is_none());
    }
}
