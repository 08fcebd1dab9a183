//! Finds kernels and device functions in a source as written.
//!
//! [`inventory`] reads all branches of `#if` and the bodies of macros; a kernel that a macro defines is listed for each use of the macro.
//! Names built with `##` or by nested macros are not: use [`crate::preprocessor::expand`] for those. Only definitions are listed.

use std::ops::Range;

use crate::lex::{Kind, Lexed};
use crate::preprocessor::{Conditional, conditionals, definition, directives, enclosing_conditions};

/// A kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Its name, without namespaces.
    pub name: String,
    /// The index of its file in the translation unit; 0 for a single file.
    pub file: u32,
    /// Offset of its name, or of the macro use that defines it.
    pub at: u32,
    /// Whether it is a template, which generates code only where instantiated.
    pub template: bool,
    /// Whether it is `extern "C"`, so that its symbol is its name.
    pub extern_c: bool,
    /// The macro that defines it.
    pub defined_by_macro: Option<String>,
    /// The conditions around it, the outermost first.
    pub conditions: Vec<String>,
}

/// The device code of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The kernels.
    pub kernels: Vec<Kernel>,
    /// Names of `__device__` functions.
    pub device_functions: Vec<String>,
    /// Offsets of `__CUDA_ARCH__`.
    pub arch_uses: Vec<u32>,
    /// Offsets of inline assembly.
    pub assembly: Vec<u32>,
}

/// A token text with its position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Word<'a> {
    pub text: &'a [u8],
    pub file: u32,
    pub at: u32,
}

/// Words before a function's name that take arguments.
const WITH_ARGUMENTS: &[&[u8]] = &[
    b"__launch_bounds__",
    b"__attribute__",
    b"__maxnreg__",
    b"__cluster_dims__",
    b"__block_size__",
    b"__align__",
    b"alignas",
    b"__declspec",
];

/// Limit of tokens between `__global__` and the name.
const REACH: usize = 400;

/// The end of the brackets that open at `at`.
fn closing(words: &[Word<'_>], at: usize, open: &[u8], close: &[u8], reach: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (index, word) in words.iter().enumerate().skip(at).take(reach) {
        if word.text == open {
            depth += 1;
        } else if word.text == close {
            depth = depth.checked_sub(1)?;
            if depth == 0 {
                return Some(index);
            }
        }
    }
    None
}

/// The name of the function whose declaration continues at `from`, and whether it has a body.
fn function(words: &[Word<'_>], from: usize) -> Option<(usize, bool)> {
    let mut at = from;
    let mut name = None;
    while at < words.len().min(from + REACH) {
        match words[at].text {
            word if WITH_ARGUMENTS.contains(&word) => at = closing(words, at + 1, b"(", b")", REACH)?,
            b"<" => at = closing(words, at, b"<", b">", REACH)?,
            b"(" => break,
            b";" | b"{" | b"}" | b"=" | b"__global__" => return None,
            [b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' | 0x80.., ..] => name = Some(at),
            _ => {}
        }
        at += 1;
    }
    let end = closing(words, at, b"(", b")", 1 << 16)?;
    // After the parameters: attributes, `noexcept`, `requires`; then a body or `;`.
    let body = words[end + 1..].iter().take(REACH).find(|w| matches!(w.text, b"{" | b";" | b"}")).is_some_and(|w| w.text == b"{");
    Some((name?, body))
}

/// Finds the kernels in tokens without directives.
pub(crate) fn kernels_in(words: &[Word<'_>]) -> Vec<Kernel> {
    let mut kernels = Vec::new();
    // For each open brace, whether it is `extern "C" {`.
    let mut open: Vec<bool> = Vec::new();
    for (index, word) in words.iter().enumerate() {
        match word.text {
            b"{" => open.push(index >= 2 && words[index - 1].text == b"\"C\"" && words[index - 2].text == b"extern"),
            b"}" => drop(open.pop()),
            b"__global__" => {
                let Some((name, true)) = function(words, index + 1) else { continue };
                let begin = words[..index].iter().rev().take(REACH).take_while(|w| !matches!(w.text, b";" | b"{" | b"}")).count();
                let before = &words[index - begin..name];
                kernels.push(Kernel {
                    name: String::from_utf8_lossy(words[name].text).into_owned(),
                    file: words[name].file,
                    at: words[name].at,
                    template: before.iter().any(|w| w.text == b"template"),
                    extern_c: open.contains(&true) || before.windows(2).any(|w| w[0].text == b"extern" && w[1].text == b"\"C\""),
                    defined_by_macro: None,
                    conditions: Vec::new(),
                });
            }
            _ => {}
        }
    }
    kernels
}

/// Returns the device code of a file.
pub fn inventory(lexed: &Lexed<'_>) -> Inventory {
    let conditionals = conditionals(lexed);
    let mut found = Inventory::default();
    let plain: Vec<usize> = (0..lexed.tokens.len()).filter(|i| !lexed.tokens[*i].in_directive).collect();
    let words = words_of(lexed, &plain);
    for mut kernel in kernels_in(&words) {
        kernel.conditions = conditions(lexed, &conditionals, kernel.at);
        found.kernels.push(kernel);
    }
    for (name, parameters, body) in macros(lexed) {
        let body: Vec<usize> = body.collect();
        let words_in_body = words_of(lexed, &body);
        for kernel in kernels_in(&words_in_body) {
            made(lexed, &conditionals, &plain, name, &parameters, &kernel, &mut found.kernels);
        }
    }
    found.kernels.sort_by_key(|k| k.at);
    for (index, word) in words.iter().enumerate() {
        if word.text == b"__device__"
            && let Some((name, true)) = function(&words, index + 1)
        {
            let name = String::from_utf8_lossy(words[name].text).into_owned();
            if !found.device_functions.contains(&name) {
                found.device_functions.push(name);
            }
        }
    }
    for (index, token) in lexed.tokens.iter().enumerate() {
        match lexed.text(index) {
            b"__CUDA_ARCH__" => found.arch_uses.push(token.start),
            b"asm" | b"__asm__" | b"__asm" if token.kind == Kind::Name => found.assembly.push(token.start),
            _ => {}
        }
    }
    found
}

fn words_of<'a>(lexed: &Lexed<'a>, tokens: &[usize]) -> Vec<Word<'a>> {
    tokens.iter().map(|i| Word { text: lexed.text(*i), file: 0, at: lexed.tokens[*i].start }).collect()
}

fn conditions(lexed: &Lexed<'_>, all: &[Conditional], at: u32) -> Vec<String> {
    let token = lexed.tokens.partition_point(|t| t.start < at);
    enclosing_conditions(lexed, all, token)
}

/// A macro: its name, its parameters, and the tokens of its body.
type MacroText<'a> = (&'a [u8], Vec<&'a [u8]>, Range<usize>);

/// The function-like macros of a file.
fn macros<'a>(lexed: &Lexed<'a>) -> Vec<MacroText<'a>> {
    let read = directives(lexed).filter_map(|directive| definition(lexed, &directive));
    read.filter_map(|macro_| Some((lexed.text(macro_.name), macro_.parameters?, macro_.body))).collect()
}

/// Adds the kernels that uses of the macro `name` define.
fn made(
    lexed: &Lexed<'_>,
    conditionals: &[Conditional],
    plain: &[usize],
    name: &[u8],
    parameters: &[&[u8]],
    kernel: &Kernel,
    found: &mut Vec<Kernel>,
) {
    let words = words_of(lexed, plain);
    let parameter = parameters.iter().position(|p| *p == kernel.name.as_bytes());
    for use_at in (0..words.len()).filter(|i| words[*i].text == name) {
        if words.get(use_at + 1).is_none_or(|w| w.text != b"(") {
            continue;
        }
        let Some(end) = closing(&words, use_at + 1, b"(", b")", 1 << 16) else { continue };
        let own = match parameter {
            None => kernel.name.clone(),
            Some(wanted) => {
                let (mut depth, mut argument, mut text) = (0usize, 0, Vec::new());
                for word in &words[use_at + 2..end] {
                    match word.text {
                        b"(" => depth += 1,
                        b")" => depth = depth.saturating_sub(1),
                        b"," if depth == 0 => {
                            argument += 1;
                            continue;
                        }
                        _ => {}
                    }
                    if argument == wanted {
                        text.extend_from_slice(word.text);
                    }
                }
                String::from_utf8_lossy(&text).into_owned()
            }
        };
        let at = words[use_at].at;
        found.push(Kernel {
            name: own,
            at,
            defined_by_macro: Some(String::from_utf8_lossy(name).into_owned()),
            conditions: conditions(lexed, conditionals, at),
            ..kernel.clone()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_however_they_are_written() {
        let source = b"#define OP(T, NAME) extern \"C\" __global__ void NAME(const T *x) { }\n\
            __global__ void declared(int);\n\
            template <typename T, int N> static __global__ void __launch_bounds__(N, 2) t(T *x) { if (x) {} }\n\
            template __global__ void t<float, 4>(float *);\n\
            namespace a { __global__ __attribute__((noinline)) void plain(int n) {} }\n\
            extern \"C\" {\n__global__ void c(void) {}\n}\n\
            __device__ __forceinline__ float helper(float x) { return x; }\n\
            #if __CUDA_ARCH__ >= 800\nOP(__half, op_f16)\n#else\nOP(float, op_f32)\n#endif\n\
            // __global__ void comment() {}\nconst char *s = \"__global__ void string() {}\";\nasm(\"\");";
        let lexed = Lexed::new(source).unwrap();
        let found = inventory(&lexed);
        let rows: Vec<_> = found
            .kernels
            .iter()
            .map(|k| (k.name.as_str(), k.template, k.extern_c, k.defined_by_macro.as_deref(), k.conditions.len()))
            .collect();
        let expected = [
            ("t", true, false, None, 0),
            ("plain", false, false, None, 0),
            ("c", false, true, None, 0),
            ("op_f16", false, true, Some("OP"), 1),
            ("op_f32", false, true, Some("OP"), 1),
        ];
        assert_eq!(rows, expected);
        assert_eq!(found.kernels[3].conditions, ["if __CUDA_ARCH__ >= 800"]);
        assert_eq!(found.device_functions, ["helper"]);
        assert_eq!((found.arch_uses.len(), found.assembly.len()), (1, 1));
    }

    proptest::proptest! {
        #[test]
        fn any_text_has_an_inventory(
            parts in proptest::collection::vec(proptest::sample::select(vec![
                "__global__ ", "void ", "f", "(", ")", "{", "}", "<", ">", ";", "template", "extern \"C\" ", "#define M(x) ", "M(a)", "\n",
                "__launch_bounds__(", "__device__ ", "#if x\n", "#else\n", "#endif\n", ",", "\"", "\\\n",
            ]), 0..60)
        ) {
            let text = parts.concat();
            inventory(&Lexed::new(text.as_bytes()).unwrap());
        }
    }
}
