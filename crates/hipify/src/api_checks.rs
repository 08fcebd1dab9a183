//! Code that compiles with CUDA but not with HIP although no name is missing: changed signatures, overloads that HIP already has, and
//! warp intrinsics that not every ROCm version has (WW0119 to WW0124, WW0126).

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use crate::brackets::Brackets;
use crate::codes::{self, Code};
use crate::diagnostic::Diagnostic;
use crate::edit::Edits;
use crate::heuristics;
use crate::lex::{Kind, Lexed};
use crate::options::RocmVersion;
use crate::preprocessor::excluded;

/// The number that `__CUDA_ARCH__` guards see with the compatibility header.
const HEADER_ARCH: &str = "900";

/// Runs all checks. `with_header`: the compatibility header is included.
pub(crate) fn check(lexed: &Lexed<'_>, with_header: bool, rocm: RocmVersion, edits: &mut Edits, diagnostics: &mut Vec<Diagnostic>) {
    let triggers = (0..lexed.tokens.len()).filter(|index| lexed.tokens[*index].kind == Kind::Name && is_trigger(lexed.text(*index)));
    let triggers: Vec<usize> = triggers.collect();
    if triggers.is_empty() {
        return;
    }
    let defines: &[(String, String)] =
        if with_header { &[("__CUDA_ARCH__".to_owned(), HEADER_ARCH.to_owned()), amd_macro()] } else { &[amd_macro()] };
    let skipped = excluded(lexed, defines);
    let brackets = Brackets::new(lexed);
    let has_properties = triggers.iter().any(|index| lexed.is(*index, b"cudaDeviceProp"));
    let mut checker = Checker { lexed, brackets, wide: None, pointers: HashSet::new(), warp_calls: BTreeMap::new(), diagnostics };
    for index in triggers {
        let before = skipped.partition_point(|range| range.start <= index);
        if before > 0 && skipped[before - 1].contains(&index) {
            continue;
        }
        match lexed.text(index) {
            b"cudaMemPrefetchAsync" | b"cudaMemAdvise" => checker.memory_location(index, rocm),
            b"__ffsll" => checker.ffsll(index, edits),
            b"operator" => checker.vector_operator(index),
            b"CUdeviceptr" => checker.device_pointers(index),
            name if has_properties && is_later_property(name) && is_member(lexed, index) => checker.property(index, edits),
            name if name == b"cudaDeviceProp" || is_later_property(name) => {}
            name if name.starts_with(b"atomic") => checker.atomic(index),
            _ if heuristics::calls(lexed, index) => {
                checker.warp_calls.entry(lexed.text(index)).or_insert((index, 0)).1 += 1;
            }
            _ => {}
        }
    }
    checker.pointer_arithmetic();
    if !with_header {
        checker.report_warp_calls();
    }
}

fn amd_macro() -> (String, String) {
    ("__HIP_PLATFORM_AMD__".to_owned(), "1".to_owned())
}

fn is_trigger(name: &[u8]) -> bool {
    match name {
        b"cudaMemPrefetchAsync" | b"cudaMemAdvise" | b"__ffsll" | b"operator" | b"__syncwarp" | b"__activemask" | b"cudaDeviceProp" => true,
        b"CUdeviceptr" => true,
        [b'a', b't', b'o', b'm', b'i', b'c', ..] => ATOMICS.iter().any(|(known, _)| *known == name),
        [b'_', b'_', ..] => is_warp_sync(name),
        _ => is_later_property(name),
    }
}

/// Members of `cudaDeviceProp` that `hipDeviceProp_t` has only since ROCm 6.0.
const LATER_PROPERTIES: &[&str] = &[
    "accessPolicyMaxWindowSize",
    "asyncEngineCount",
    "canUseHostPointerForRegisteredMem",
    "computePreemptionSupported",
    "deviceOverlap",
    "globalL1CacheSupported",
    "gpuDirectRDMASupported",
    "hostNativeAtomicSupported",
    "hostRegisterSupported",
    "localL1CacheSupported",
    "maxBlocksPerMultiProcessor",
    "maxSurface1D",
    "maxSurface2D",
    "maxSurface3D",
    "maxTexture1DLayered",
    "maxTexture2DLayered",
    "maxTexture2DLinear",
    "maxTextureCubemap",
    "memoryPoolsSupported",
    "multiGpuBoardGroupID",
    "persistingL2CacheMaxSize",
    "regsPerMultiprocessor",
    "reservedSharedMemPerBlock",
    "sharedMemPerBlockOptin",
    "sharedMemPerMultiprocessor",
    "singleToDoublePrecisionPerfRatio",
    "streamPrioritiesSupported",
    "surfaceAlignment",
    "unifiedAddressing",
    "unifiedFunctionPointers",
];

fn is_later_property(name: &[u8]) -> bool {
    matches!(name.len(), 12..=33) && LATER_PROPERTIES.binary_search_by(|known| known.as_bytes().cmp(name)).is_ok()
}

fn is_member(lexed: &Lexed<'_>, index: usize) -> bool {
    index > 0 && matches!(lexed.text(index - 1), b"." | b"->")
}

/// Warp intrinsics that HIP has only since ROCm 6.2 or 7.0.
fn is_warp_sync(name: &[u8]) -> bool {
    const STEMS: [&[u8]; 5] = [b"__shfl", b"__match_", b"__reduce_", b"__any_", b"__all_"];
    name.ends_with(b"_sync") && STEMS.iter().any(|stem| name.starts_with(stem)) || matches!(name, b"__ballot_sync" | b"__uni_sync")
}

/// Atomic functions with the types that HIP's headers overload them for.
const ATOMICS: &[(&[u8], &[&str])] = &[
    (b"atomicAdd", &["int", "unsigned int", "unsigned long", "unsigned long long", "float", "double"]),
    (b"atomicSub", &["int", "unsigned int", "unsigned long", "unsigned long long", "float", "double"]),
    (b"atomicExch", &["int", "unsigned int", "unsigned long", "unsigned long long", "float", "double"]),
    (b"atomicMin", &["int", "unsigned int", "unsigned long", "unsigned long long", "long long", "float", "double"]),
    (b"atomicMax", &["int", "unsigned int", "unsigned long", "unsigned long long", "long long", "float", "double"]),
    (b"atomicAnd", &["int", "unsigned int", "unsigned long", "unsigned long long"]),
    (b"atomicOr", &["int", "unsigned int", "unsigned long", "unsigned long long"]),
    (b"atomicXor", &["int", "unsigned int", "unsigned long", "unsigned long long"]),
    (b"atomicCAS", &["int", "unsigned int", "unsigned long", "unsigned long long", "float", "double"]),
];

struct Checker<'c, 'a> {
    lexed: &'c Lexed<'a>,
    brackets: Brackets,
    /// Names of variables of type `uint64_t` and the like.
    wide: Option<HashSet<&'a [u8]>>,
    /// Names of variables of type `CUdeviceptr`.
    pointers: HashSet<&'a [u8]>,
    /// Calls of warp intrinsics: first token and count of each.
    warp_calls: BTreeMap<&'a [u8], (usize, usize)>,
    diagnostics: &'c mut Vec<Diagnostic>,
}

impl<'a> Checker<'_, 'a> {
    fn report(&mut self, code: Code, first: usize, last: usize, message: String, help: Option<&'static str>) {
        let (start, end) = (self.lexed.tokens[first].start, self.lexed.tokens[last].end);
        let (number, severity) = (code.number, code.severity);
        self.diagnostics.push(Diagnostic {
            code: number,
            severity,
            start,
            end,
            message: message.into(),
            help: help.map(Cow::Borrowed),
            remedy: None,
        });
    }

    /// The arguments of the call whose name is at `index`, as token ranges, and its closing parenthesis.
    fn arguments(&self, index: usize) -> Option<(usize, Vec<std::ops::Range<usize>>)> {
        let open = index + 1;
        let close = self.brackets.partner(open).filter(|_| self.lexed.is(open, b"("))?;
        Some((close, self.brackets.split(self.lexed, open, close)?))
    }

    /// `cudaMemPrefetchAsync(p, n, location, flags, stream)`, `cudaMemAdvise(p, n, advice, location)`.
    fn memory_location(&mut self, index: usize, rocm: RocmVersion) {
        let Some((_, arguments)) = self.arguments(index) else { return };
        let prefetch = self.lexed.is(index, b"cudaMemPrefetchAsync");
        if prefetch && arguments.len() == 5 && rocm == RocmVersion::V7 {
            let message = "`hipMemPrefetchAsync_v2` requires HIP 7.2 or later".to_owned();
            return self.report(codes::NEWER_HIP, index, index, message, None);
        }
        let location = arguments.get(if prefetch { 2 } else { 3 }).cloned();
        let is_location = location.is_some_and(|range| {
            let text = self.lexed.text(range.start);
            text == b"{" || text == b"cudaMemLocation" || range.len() == 1 && self.declared_as(text, b"cudaMemLocation")
        });
        if is_location || prefetch && arguments.len() == 5 {
            let name = String::from_utf8_lossy(self.lexed.text(index)).into_owned();
            let message = format!("`{name}` takes a `cudaMemLocation` (CUDA 13); HIP takes a device number");
            let help = match rocm {
                RocmVersion::V6 => "pass the device number (`location.id`, or `hipCpuDeviceId`) and drop the flags",
                RocmVersion::V7 => "pass the device number (`location.id`, or `hipCpuDeviceId`), or call `hipMemAdvise_v2` (HIP 7.2)",
            };
            self.report(codes::MEMORY_LOCATION, index, index, message, Some(help));
        }
    }

    /// Whether the file declares `name` directly behind the type `of`.
    fn declared_as(&self, name: &[u8], of: &[u8]) -> bool {
        (1..self.lexed.tokens.len()).any(|index| self.lexed.is(index, name) && self.lexed.is(index - 1, of))
    }

    /// Casts the argument of `__ffsll` where its type is `unsigned long`.
    fn ffsll(&mut self, index: usize, edits: &mut Edits) {
        let Some((_, arguments)) = self.arguments(index).filter(|_| heuristics::calls(self.lexed, index)) else { return };
        let [argument] = &arguments[..] else { return };
        let lexed = self.lexed;
        let wide = self.wide.get_or_insert_with(|| wide_variables(lexed));
        let is_wide = |token: usize| is_wide_type(lexed, token) || wide.contains(lexed.text(token));
        let cast = lexed.is(argument.start, b"(") && (lexed.is(argument.start + 1, b"unsigned") || lexed.is(argument.start + 1, b"long"));
        if cast || !argument.clone().any(is_wide) {
            return;
        }
        edits.insert(lexed.tokens[argument.start].start, "(unsigned long long)(");
        edits.insert(lexed.tokens[argument.end - 1].end, ")");
        let message = "`__ffsll` of an `unsigned long` is ambiguous in HIP; its argument is cast to `unsigned long long`";
        self.report(codes::AMBIGUOUS_CALL, index, index, message.to_owned(), None);
    }

    /// `float4 &operator-=(float4 &a, const float4 &b)`.
    fn vector_operator(&mut self, index: usize) {
        const OPERATORS: [&[u8]; 12] = [b"+", b"-", b"*", b"/", b"+=", b"-=", b"*=", b"/=", b"==", b"!=", b"%", b"%="];
        let operator = self.lexed.text(index + 1);
        let open = index + 2;
        // A member of a class is another operator.
        if !OPERATORS.contains(&operator) || !self.lexed.is(open, b"(") {
            return;
        }
        let Some(close) = self.brackets.partner(open) else { return };
        let Some(parameters) = self.brackets.split(self.lexed, open, close) else { return };
        let vectors = parameters.iter().map(|range| range.clone().map(|token| self.lexed.text(token)).find(|text| is_vector_type(text)));
        let vectors: Vec<Option<&[u8]>> = vectors.collect();
        if let [Some(_), ..] = vectors[..]
            && (parameters.len() == 2 || operator == b"-")
        {
            // Without the type: a header with all of them gets one message for each operator.
            let message = format!("HIP already defines `operator{}` for its vector types", String::from_utf8_lossy(operator));
            self.report(codes::VECTOR_OPERATOR, index, index + 1, message, Some("guard it with `#ifndef __HIP_PLATFORM_AMD__`"));
        }
    }

    /// `__device__ double atomicMax(double *address, double value) { … }`.
    fn atomic(&mut self, index: usize) {
        let lexed = self.lexed;
        let name = lexed.text(index);
        let Some((close, parameters)) = self.arguments(index).filter(|_| heuristics::declares(lexed, index)) else { return };
        let Some(first) = parameters.first().filter(|_| matches!(lexed.text(close + 1), b"{" | b";")) else { return };
        // A template is another overload.
        let words: Vec<&[u8]> = first.clone().map(|token| lexed.text(token)).collect();
        let Some(star) = words.iter().position(|word| *word == b"*") else { return };
        let type_words = words[..star].iter().filter(|word| !matches!(**word, b"volatile" | b"const"));
        let spelled = type_words.map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ");
        let plain = match spelled.as_str() {
            "unsigned" | "uint" | "uint32_t" => "unsigned int",
            "uint64_t" | "unsigned long int" => "unsigned long",
            "unsigned long long int" => "unsigned long long",
            "long long int" => "long long",
            other => other,
        };
        let known = ATOMICS.iter().any(|(known, types)| *known == name && types.contains(&plain));
        if known {
            let message = format!("HIP already defines `{}({spelled} *, …)`", String::from_utf8_lossy(name));
            self.report(codes::ATOMIC_REDEFINITION, index, index, message, Some("guard it with `#ifndef __HIP_PLATFORM_AMD__`"));
        }
    }

    /// Collects the variables that are declared behind the `CUdeviceptr` at `index`.
    fn device_pointers(&mut self, index: usize) {
        let mut at = index + 1;
        while self.lexed.tokens.get(at).is_some_and(|token| token.kind == Kind::Name) && !self.lexed.is(at + 1, b"(") {
            self.pointers.insert(self.lexed.text(at));
            at += if self.lexed.is(at + 1, b",") { 2 } else { return };
        }
    }

    /// `pointer + offset`: an integer in CUDA, `void *` in HIP.
    fn pointer_arithmetic(&mut self) {
        if self.pointers.is_empty() {
            return;
        }
        for index in 1..self.lexed.tokens.len() {
            let name = self.lexed.text(index);
            let arithmetic = matches!(self.lexed.text(index + 1), b"+" | b"-" | b"+=" | b"-=");
            // `(char *)pointer + 1` has a cast already.
            let plain = !matches!(self.lexed.text(index - 1), b"." | b"->" | b"::" | b")" | b"*");
            if arithmetic && plain && self.lexed.tokens[index].kind == Kind::Name && self.pointers.contains(name) {
                let message = format!("arithmetic on `{}`: `hipDeviceptr_t` is `void *`, not an integer", String::from_utf8_lossy(name));
                let help = "cast it: `(hipDeviceptr_t)((char *)pointer + offset)`";
                self.report(codes::DEVICE_POINTER, index, index, message, Some(help));
            }
        }
    }

    /// `properties.deviceOverlap`.
    fn property(&mut self, index: usize, edits: &mut Edits) {
        // HIP has always had this one, under a name of its own.
        if self.lexed.is(index, b"sharedMemPerMultiprocessor") {
            let token = self.lexed.tokens[index];
            return edits.replace(token.start, token.end, "maxSharedMemoryPerMultiProcessor");
        }
        let message = format!("`hipDeviceProp_t` has `{}` since ROCm 6.0 only", String::from_utf8_lossy(self.lexed.text(index)));
        self.report(codes::DEVICE_PROPERTY, index, index, message, Some("for ROCm 5, use `hipDeviceGetAttribute`, or remove this use"));
    }

    fn report_warp_calls(&mut self) {
        for (name, (index, count)) in std::mem::take(&mut self.warp_calls) {
            let times = if count > 1 { format!(" ({count} calls)") } else { String::new() };
            let since = if name.starts_with(b"__reduce_") || name == b"__syncwarp" { "7.0" } else { "6.2" };
            let message = format!("`{}`{times} needs ROCm {since} or later", String::from_utf8_lossy(name));
            let help = "before ROCm 7.0, define `HIP_ENABLE_WARP_SYNC_BUILTINS`, or use `--header`";
            self.report(codes::WARP_SYNC, index, index, message, Some(help));
        }
    }
}

fn is_wide_type(lexed: &Lexed<'_>, token: usize) -> bool {
    match lexed.text(token) {
        b"uint64_t" | b"size_t" | b"int64_t" | b"uintptr_t" => true,
        b"long" => !lexed.is(token + 1, b"long") && (token == 0 || !lexed.is(token - 1, b"long")),
        _ => false,
    }
}

/// The names that a file declares with a 64-bit type other than `long long`.
fn wide_variables<'a>(lexed: &Lexed<'a>) -> HashSet<&'a [u8]> {
    let name_after = |token: usize| {
        let mut at = token + 1;
        while matches!(lexed.text(at), b"const" | b"int" | b"&") {
            at += 1;
        }
        lexed.tokens.get(at).filter(|token| token.kind == Kind::Name).map(|_| lexed.text(at))
    };
    (0..lexed.tokens.len()).filter(|token| is_wide_type(lexed, *token)).filter_map(name_after).collect()
}

/// `float4`, `uchar2`, `longlong1`, …
fn is_vector_type(name: &[u8]) -> bool {
    const STEMS: [&[u8]; 12] =
        [b"char", b"uchar", b"short", b"ushort", b"int", b"uint", b"long", b"ulong", b"longlong", b"ulonglong", b"float", b"double"];
    matches!(name, [stem @ .., b'1'..=b'4'] if STEMS.contains(&stem))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str, with_header: bool) -> (Vec<(u16, String)>, String) {
        let lexed = Lexed::new(source.as_bytes()).unwrap();
        let (mut edits, mut diagnostics) = (Edits::default(), Vec::new());
        check(&lexed, with_header, RocmVersion::V6, &mut edits, &mut diagnostics);
        let text = |d: &Diagnostic| String::from_utf8_lossy(d.text(source.as_bytes())).into_owned();
        let list = diagnostics.iter().map(|d| (d.code, text(d))).collect();
        (list, String::from_utf8(edits.apply(source.as_bytes())).unwrap())
    }

    fn codes_of(source: &str) -> Vec<u16> {
        found(source, true).0.into_iter().map(|(code, _)| code).collect()
    }

    #[test]
    fn cuda_13_memory_locations_are_reported() {
        assert_eq!(codes_of("void f() { cudaMemPrefetchAsync(p, n, location, 0, stream); }"), [120]);
        assert_eq!(codes_of("void f() { cudaMemPrefetchAsync(p, n, device, stream); cudaMemAdvise(p, n, advice, device); }"), []);
        assert_eq!(codes_of("void f() { cudaMemLocation where; cudaMemAdvise(p, n, advice, where); }"), [120]);
        assert_eq!(codes_of("void f() { cudaMemAdvise(p, n, advice, {cudaMemLocationTypeDevice, 0}); }"), [120]);
    }

    #[test]
    fn ffsll_of_an_unsigned_long_is_cast() {
        let (list, text) = found("__device__ int f(uint64_t m) { return __ffsll(m); }", false);
        assert_eq!(list, [(121, "__ffsll".to_owned())]);
        assert_eq!(text, "__device__ int f(uint64_t m) { return __ffsll((unsigned long long)(m)); }");
        for source in ["int f(unsigned long long m) { return __ffsll(m); }", "int f(uint64_t m) { return __ffsll((unsigned long long)m); }"]
        {
            assert_eq!(found(source, false).0, [], "{source}");
        }
    }

    #[test]
    fn operators_and_atomics_that_hip_has_are_reported() {
        assert_eq!(codes_of("inline __device__ void operator-=(float4 &a, const float4 &b) { a.x -= b.x; }"), [122]);
        assert_eq!(codes_of("inline __device__ float4 operator-(const float4 &a) { return a; }"), [122]);
        assert_eq!(codes_of("struct Mine {}; Mine operator+(Mine a, Mine b); struct V { V &operator+=(const V &); };"), []);
        assert_eq!(codes_of("__device__ double atomicMax(double *address, double value) { return 0; }"), [123]);
        assert_eq!(codes_of("__device__ float atomicMax(my_type *address, my_type value) { return 0; }"), []);
        assert_eq!(codes_of("__device__ void f(double *x) { atomicAdd(x, 1.0); }"), []);
    }

    #[test]
    fn arithmetic_on_device_pointers_is_reported() {
        let source = "void f(size_t n) { CUdeviceptr a, b; CUdeviceptr *all; g(a + n, (char *)b + n, all + 1); b += n; x.a + 1; }";
        assert_eq!(found(source, true).0, [(126, "a".to_owned()), (126, "b".to_owned())]);
        assert_eq!(codes_of("void f(char *a) { g(a + 1); CUdeviceptr make(int a); }"), []);
    }

    #[test]
    fn device_properties_of_later_versions_are_reported() {
        let source = "void f(cudaDeviceProp *p) { use(p->deviceOverlap, p->warpSize); cudaDeviceProp q; use(q.sharedMemPerBlockOptin); }";
        let list = [(124, "deviceOverlap".to_owned()), (124, "sharedMemPerBlockOptin".to_owned())];
        assert_eq!(found(source, true).0, list);
        let shared = found("size_t f(cudaDeviceProp &p) { return p.sharedMemPerMultiprocessor; }", false);
        assert_eq!((shared.0.len(), shared.1.contains("p.maxSharedMemoryPerMultiProcessor;")), (0, true), "{shared:?}");
        assert_eq!(codes_of("struct Mine { int deviceOverlap; }; int f(Mine m) { return m.deviceOverlap; }"), []);
        assert!(LATER_PROPERTIES.is_sorted() && LATER_PROPERTIES.iter().all(|name| is_later_property(name.as_bytes())));
    }

    #[test]
    fn code_that_amd_does_not_compile_is_not_reported() {
        let atomic = "__device__ double atomicAdd(double *a, double v) { return 0; }\n";
        assert_eq!(codes_of(&format!("#ifndef __HIP_PLATFORM_AMD__\n{atomic}#endif\n")), []);
        let guarded = format!("#if __CUDA_ARCH__ < 600\n{atomic}#endif\n");
        assert_eq!(codes_of(&guarded), [], "with the header the guard sees 900");
        assert_eq!(found(&guarded, false).0.len(), 1, "without it the macro is 0");
    }

    #[test]
    fn warp_intrinsics_are_reported_once_per_name_without_the_header() {
        let source =
            "__global__ void k(int *p) { p[0] = __shfl_sync(m, p[1], 0) + __shfl_sync(m, p[2], 0); __syncwarp(); __syncthreads(); }";
        let (list, _) = found(source, false);
        assert_eq!(list, [(119, "__shfl_sync".to_owned()), (119, "__syncwarp".to_owned())]);
        assert_eq!(found(source, true).0, []);
    }
}
