//! Finds undeclared intrinsics: `__name(…)` in device code.
//!
//! For names with two leading underscores tokens are enough to tell a call from a declaration. The caller knows the names of the headers
//! ([`hip_has`] for HIP); compiler builtins are known here. Host code and code that no AMD compiler reads are ignored.

use std::collections::{HashMap, HashSet};

use super::codes;
use crate::diagnostic::Diagnostic;
use crate::hazard::code::Code;
use crate::heuristics;
use crate::lex::{Kind, Lexed};
use crate::names;
use crate::preprocessor::{conditionals, definition, directives, never_on_amd};

/// Prefixes of clang's and AMD's device library names.
const COMPILER: &[&[u8]] = &[
    b"__builtin_",
    b"__ocml_",
    b"__ockl_",
    b"__oclc_",
    b"__hip_",
    b"__atomic_",
    b"__sync_",
    b"__c11_",
    b"__opencl_",
    b"__clang_",
    b"__llvm_",
    b"__amdgcn_",
    b"__asan_",
    b"__is_",
    b"__has_",
    b"__cxa_",
    b"__warpwave",
    b"__ww",
];

/// Compiler keywords and macros that take arguments.
const KEYWORDS: &[&[u8]] = &[
    b"__align__",
    b"__alignof",
    b"__alignof__",
    b"__asm",
    b"__asm__",
    b"__assume",
    b"__attribute",
    b"__attribute__",
    b"__block_size__",
    b"__cluster_dims__",
    b"__declspec",
    b"__decltype",
    b"__extension__",
    b"__imag__",
    b"__launch_bounds__",
    b"__maxnreg__",
    b"__pragma",
    b"__real__",
    b"__restrict",
    b"__restrict__",
    b"__typeof",
    b"__typeof__",
    b"__underlying_type",
    b"__volatile__",
    b"__device__",
    b"__host__",
    b"__global__",
    b"__forceinline__",
    b"__noinline__",
    b"__inline__",
    b"__func__",
    b"__FUNCTION__",
    b"__VA_OPT__",
];

/// Device functions of HIP that the name tables do not list: its own, and those added in HIP 7.
const HIP_ONLY: &[&[u8]] = &[
    b"__ballot64",
    b"__bitextract_u32",
    b"__bitextract_u64",
    b"__bitinsert_u32",
    b"__bitinsert_u64",
    b"__clock",
    b"__clock64",
    b"__fns32",
    b"__fns64",
    b"__hisinf2",
    b"__lane_id",
    b"__lanemask_eq",
    b"__lanemask_gt",
    b"__lanemask_lt",
    b"__lastbit_u32_u64",
    b"__mbcnt_hi",
    b"__mbcnt_lo",
    b"__named_sync",
    b"__reduce_add_sync",
    b"__reduce_and_sync",
    b"__reduce_max_sync",
    b"__reduce_min_sync",
    b"__reduce_or_sync",
    b"__reduce_xor_sync",
    b"__smid",
    b"__syncwarp",
];

/// Whether HIP's headers have a device function of this name, or the translation reports it (WW0113).
pub fn hip_has(name: &[u8]) -> bool {
    HIP_ONLY.contains(&name) || is_texture_function(name) || names::find(name).is_some()
}

fn reserved(name: &[u8]) -> bool {
    name.len() > 2 && name.starts_with(b"__")
}

/// Whether it is a texture or surface function such as `tex2D`, `tex1Dfetch` or `surf3Dwrite`.
fn is_texture_function(name: &[u8]) -> bool {
    let rest = name.strip_prefix(b"tex").or_else(|| name.strip_prefix(b"surf"));
    rest.is_some_and(|rest| matches!(rest, [b'1' | b'2' | b'3', b'D', ..]) || rest.starts_with(b"Cubemap"))
}

/// Returns the reserved names that a file declares or defines, as functions or macros.
pub fn declared(lexed: &Lexed<'_>) -> HashSet<Vec<u8>> {
    let mut names = HashSet::new();
    for (index, token) in lexed.tokens.iter().enumerate() {
        if token.kind != Kind::Name || !reserved(lexed.text(index)) && !is_texture_function(lexed.text(index)) {
            continue;
        }
        let macro_name = token.in_directive && index >= 2 && lexed.is(index - 1, b"define") && lexed.tokens[index - 2].kind == Kind::Hash;
        // `using __other::__name;`, `auto __name = [`
        let brought = lexed.is(index + 1, b";") || lexed.is(index + 1, b"=");
        if macro_name || brought || heuristics::declares(lexed, index) {
            names.insert(lexed.text(index).to_vec());
        }
    }
    names
}

/// Reports calls in device code of names that are neither declared in the file nor `known`: one diagnostic per name, at its first call.
pub fn unknown(lexed: &Lexed<'_>, known: &dyn Fn(&[u8]) -> bool) -> Vec<Diagnostic> {
    let candidate = |index: usize| {
        let name = lexed.text(index);
        lexed.tokens[index].kind == Kind::Name
            && (reserved(name) && heuristics::calls(lexed, index) || is_texture_function(name) && matches!(lexed.text(index + 1), b"(" | b"<"))
            && !KEYWORDS.contains(&name)
            && !COMPILER.iter().any(|prefix| name.starts_with(prefix))
            && !known(name)
            // A member, or a name in a namespace.
            && !(index > 0 && matches!(lexed.text(index - 1), b"." | b"->" | b"::" | b"##"))
            && !lexed.is(index + 1, b"##")
    };
    let all: Vec<usize> = (0..lexed.tokens.len()).filter(|index| candidate(*index)).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let own = declared(lexed);
    let device = device_code(lexed);
    let elsewhere = never_on_amd(lexed, &conditionals(lexed));
    let mut found: HashMap<&[u8], (usize, usize)> = HashMap::new();
    for index in all {
        let name = lexed.text(index);
        if own.contains(name) || !device(index) || elsewhere.contains(index) {
            continue;
        }
        found.entry(name).or_insert((index, 0)).1 += 1;
    }
    let mut diagnostics: Vec<Diagnostic> = found
        .into_iter()
        .map(|(name, (index, count))| {
            let token = lexed.tokens[index];
            codes::unknown_intrinsic(token.start, token.end, &String::from_utf8_lossy(name), count)
        })
        .collect();
    diagnostics.sort_by_key(|diagnostic| diagnostic.start);
    diagnostics
}

/// Whether a token is in a device function, or in a macro body.
fn device_code(lexed: &Lexed<'_>) -> impl Fn(usize) -> bool {
    let is_mark = |word: &[u8]| matches!(word, b"__device__" | b"__global__");
    // Macros that expand to the function specifiers.
    let mut marks: HashSet<&[u8]> = HashSet::new();
    for definition in directives(lexed).filter_map(|directive| definition(lexed, &directive)) {
        let end = lexed.tokens.len().min(definition.body.end).min(definition.name + 33);
        if (definition.name + 1..end).any(|index| is_mark(lexed.text(index))) {
            marks.insert(lexed.text(definition.name));
        }
    }
    let plain = (0..lexed.tokens.len() as u32).filter(|i| !lexed.tokens[*i as usize].in_directive).collect();
    let code = Code::new(lexed, plain);
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for unit in code.units() {
        let marked = (unit.head.start..unit.body.end).any(|i| is_mark(code.text(i)) || code.is_name(i) && marks.contains(code.text(i)));
        if marked && !unit.body.is_empty() {
            ranges.push((code.token(unit.body.start), code.token(unit.body.end - 1)));
        }
    }
    let directives: Vec<bool> = lexed.tokens.iter().map(|token| token.in_directive).collect();
    move |index| {
        let at = ranges.partition_point(|(start, _)| *start <= index);
        directives.get(index) == Some(&true) || at > 0 && index <= ranges[at - 1].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<String> {
        let lexed = Lexed::new(source.as_bytes()).unwrap();
        unknown(&lexed, &hip_has).iter().map(|d| source[d.start as usize..d.end as usize].to_owned()).collect()
    }

    #[test]
    fn undeclared_intrinsics_are_reported_once() {
        let source = "__global__ void k(int *x) { *x = __new_thing(*x) + __new_thing(1) + __popc(2); __syncthreads(); }\n\
            #define GPU __device__ inline\nGPU int f(int x) { return __other_thing(x); }\nint host(int x) { return __host_thing(x); }\n";
        assert_eq!(found(source), ["__new_thing", "__other_thing"]);
        let lexed = Lexed::new(source.as_bytes()).unwrap();
        let told = unknown(&lexed, &hip_has);
        assert_eq!(told[0].code, codes::UNKNOWN_INTRINSIC);
        assert!(told[0].message.contains("`__new_thing`") && told[0].message.contains("2 times"), "{}", told[0].message);
    }

    #[test]
    fn names_of_the_file_the_compiler_or_hip_are_not_reported() {
        let source = "#define __twice(x) ((x) + (x))\ntemplate <class T> __device__ T __mine(T x) { return x; }\n\
            __device__ float *__pointer(float *x);\n__device__ __forceinline__ float __launch_bounds__(4) f();\n\
            __global__ void __launch_bounds__(64) k(float *x) {\n  x[0] = __twice(__mine(x[1])) + *__pointer(x) + __builtin_sqrtf(x[2]);\n\
              __typeof__(x) y = x; auto __local = [=](float a) { return a; }; __local(x[0]); y[0] = s.__member(1) + n::__other(2);\n\
            #ifdef __HIP_PLATFORM_NVIDIA__\n#endif\n#ifndef __HIP_PLATFORM_AMD__\n  __nvidia_only(x);\n#endif\n}\n";
        assert_eq!(found(source), [] as [&str; 0]);
    }
}
