//! The instructions: what each means in C++.
//!
//! A register has a kind of storage ([`Store`]); an instruction reads it as the type its suffix names and writes it back the same
//! way. The functions called are CUDA's own intrinsics, which the prelude and HIP have, and clang's builtins.

use std::collections::HashMap;

/// What a register holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// A predicate.
    Bool,
    /// 16 bits.
    U16,
    /// 32 bits.
    U32,
    /// 64 bits.
    U64,
    /// A float.
    F32,
    /// A double.
    F64,
    /// A constant of the compiler (constraint `n`).
    Constant,
}

impl Store {
    /// The register a constraint's letter asks for.
    pub fn of_constraint(letter: char) -> Option<Store> {
        Some(match letter {
            'h' => Store::U16,
            'r' => Store::U32,
            'l' => Store::U64,
            'f' => Store::F32,
            'd' => Store::F64,
            'n' | 'i' => Store::Constant,
            _ => return None,
        })
    }

    fn of_type(name: &str) -> Option<Store> {
        Some(match name {
            "pred" => Store::Bool,
            "b8" | "u8" | "s8" | "b16" | "u16" | "s16" | "f16" | "bf16" => Store::U16,
            "b32" | "u32" | "s32" | "f16x2" | "bf16x2" => Store::U32,
            "b64" | "u64" | "s64" => Store::U64,
            "f32" => Store::F32,
            "f64" => Store::F64,
            _ => return None,
        })
    }

    /// The C++ type of its variable.
    pub fn cpp(self) -> &'static str {
        match self {
            Store::Bool => "bool",
            Store::U16 => "unsigned short",
            Store::U32 => "unsigned int",
            Store::U64 => "unsigned long long",
            Store::F32 => "float",
            Store::F64 => "double",
            Store::Constant => "long long",
        }
    }
}

/// The C++ type that a PTX type stands for.
pub(super) fn cpp(name: &str) -> Option<&'static str> {
    Some(match name {
        "pred" => "bool",
        "b8" | "u8" => "unsigned char",
        "s8" => "signed char",
        "b16" | "u16" => "unsigned short",
        "s16" => "short",
        "f16" => "_Float16",
        "b32" | "u32" => "unsigned int",
        "s32" => "int",
        "b64" | "u64" => "unsigned long long",
        "s64" => "long long",
        "f32" => "float",
        "f64" => "double",
        _ => return None,
    })
}

/// The registers of a statement and the C++ written so far.
#[derive(Debug)]
pub struct Block {
    /// PTX name to variable and kind.
    pub registers: HashMap<String, (String, Store)>,
    /// Statements.
    pub lines: Vec<String>,
    /// What a reader should know.
    pub notes: Vec<&'static str>,
}

/// Special registers.
const SPECIAL: &[(&str, &str)] = &[
    ("%tid.x", "threadIdx.x"),
    ("%tid.y", "threadIdx.y"),
    ("%tid.z", "threadIdx.z"),
    ("%ntid.x", "blockDim.x"),
    ("%ntid.y", "blockDim.y"),
    ("%ntid.z", "blockDim.z"),
    ("%ctaid.x", "blockIdx.x"),
    ("%ctaid.y", "blockIdx.y"),
    ("%ctaid.z", "blockIdx.z"),
    ("%nctaid.x", "gridDim.x"),
    ("%nctaid.y", "gridDim.y"),
    ("%nctaid.z", "gridDim.z"),
    ("%laneid", "__lane_id()"),
    ("%warpid", "((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / warpSize)"),
    ("%lanemask_eq", "(1ull << __lane_id())"),
    ("%lanemask_lt", "((1ull << __lane_id()) - 1)"),
    ("%lanemask_le", "((2ull << __lane_id()) - 1)"),
    ("%lanemask_gt", "~((2ull << __lane_id()) - 1)"),
    ("%lanemask_ge", "~((1ull << __lane_id()) - 1)"),
    ("%clock", "clock64()"),
    ("%clock64", "clock64()"),
    ("%globaltimer", "wall_clock64()"),
];

/// Modifiers that the table's C++ covers: rounding to nearest, allowed inexactness, halves of a product, kinds of a shift.
const PLAIN: &[&str] = &["rn", "ftz", "approx", "full", "lo", "hi", "wrap", "clamp", "l", "r"];

impl Block {
    /// Translates one instruction; `Err` names what is not in the table.
    pub fn instruction(&mut self, text: &str) -> Result<(), String> {
        let (mut text, mut guard) = (text.trim(), None);
        if let Some(rest) = text.strip_prefix('@') {
            let (predicate, rest) = rest.split_once(char::is_whitespace).ok_or_else(|| text.to_owned())?;
            let (not, name) = predicate.strip_prefix('!').map_or(("", predicate), |name| ("!", name));
            guard = Some(format!("{not}{}", self.read(name, "pred").ok_or_else(|| text.to_owned())?));
            text = rest.trim();
        }
        let (opcode, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let parts: Vec<&str> = opcode.split('.').collect();
        if parts[0].is_empty() {
            return self.declare(&parts, rest).ok_or_else(|| opcode.to_owned());
        }
        let operands = operands(rest);
        let lines = self.lines.len();
        self.emit(&parts, &operands).ok_or_else(|| opcode.to_owned())?;
        if let Some(guard) = guard {
            let guarded: String = self.lines.drain(lines..).collect::<Vec<_>>().join(" ");
            self.lines.push(format!("if ({guard}) {{ {guarded} }}"));
        }
        Ok(())
    }

    /// `.reg .b32 a, b;` and `.reg .b32 t<3>;`
    fn declare(&mut self, parts: &[&str], rest: &str) -> Option<()> {
        let (ty, names) = match parts {
            ["", "reg"] => rest.trim().strip_prefix('.')?.split_once(char::is_whitespace)?,
            ["", "reg", ty] => (*ty, rest),
            _ => return None,
        };
        let store = Store::of_type(ty)?;
        for name in names.split(',').map(str::trim) {
            let all: Vec<String> = match name.strip_suffix('>').and_then(|n| n.split_once('<')) {
                Some((stem, count)) => (0..count.parse::<u32>().ok().filter(|n| *n <= 64)?).map(|i| format!("{stem}{i}")).collect(),
                None => vec![name.to_owned()],
            };
            for name in all {
                let bare = name.trim_start_matches('%');
                let variable = format!("__ww_{bare}");
                if bare.is_empty() || !bare.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                    return None;
                }
                self.lines.push(format!("{} {variable} = {{}};", store.cpp()));
                self.registers.insert(name, (variable, store));
            }
        }
        Some(())
    }

    /// An operand as a value of a PTX type.
    pub(super) fn read(&self, operand: &str, ty: &str) -> Option<String> {
        let want = cpp(ty)?;
        let operand = operand.trim();
        if let Some((variable, store)) = self.registers.get(operand) {
            let same = store.cpp() == want;
            return Some(match (store, want) {
                _ if same => variable.clone(),
                (Store::F32, "unsigned int") => format!("__float_as_uint({variable})"),
                (Store::F32, "int") => format!("__float_as_int({variable})"),
                (Store::F64, "unsigned long long" | "long long") => format!("__double_as_longlong({variable})"),
                (Store::U32, "float") => format!("__uint_as_float({variable})"),
                (Store::U64, "double") => format!("__longlong_as_double((long long){variable})"),
                (Store::U16, "_Float16") => format!("__builtin_bit_cast(_Float16, {variable})"),
                (Store::U32, "_Float16") => format!("__builtin_bit_cast(_Float16, (unsigned short){variable})"),
                (Store::F32 | Store::F64 | Store::Bool, _) => return None,
                _ => format!("({want}){variable}"),
            });
        }
        let special = operand.trim_start_matches('%');
        if operand.starts_with('%')
            && let Some((_, value)) = SPECIAL.iter().find(|(name, _)| &name[1..] == special)
        {
            return Some(format!("({want}){value}"));
        }
        if let Some(hex) = operand.strip_prefix("0f").or_else(|| operand.strip_prefix("0F")).filter(|h| h.len() == 8) {
            u32::from_str_radix(hex, 16).ok()?;
            return Some(format!("__uint_as_float(0x{hex}u)"));
        }
        let digits = operand.strip_prefix('-').unwrap_or(operand);
        let number = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
            Some(hex) => u64::from_str_radix(hex.trim_end_matches('U'), 16).is_ok(),
            None => !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()),
        };
        number.then(|| if want == "int" || want == "unsigned int" { operand.to_owned() } else { format!("({want}){operand}") })
    }

    /// Stores a value of a PTX type; `_` takes nothing.
    pub(super) fn write(&mut self, operand: &str, ty: &str, value: &str) -> Option<()> {
        let operand = operand.trim();
        if operand == "_" {
            return Some(());
        }
        let (variable, store) = self.registers.get(operand)?.clone();
        let have = cpp(ty)?;
        let value = match (store, have) {
            (Store::Constant, _) => return None,
            (Store::F32, "unsigned int" | "int") => format!("__uint_as_float((unsigned int)({value}))"),
            (Store::F64, "unsigned long long" | "long long") => format!("__longlong_as_double((long long)({value}))"),
            (Store::U32, "float") => format!("__float_as_uint({value})"),
            (Store::U64, "double") => format!("(unsigned long long)__double_as_longlong({value})"),
            (Store::U16 | Store::U32, "_Float16") => format!("__builtin_bit_cast(unsigned short, (_Float16)({value}))"),
            _ if store.cpp() == have => value.to_owned(),
            _ => format!("({})({value})", store.cpp()),
        };
        self.lines.push(format!("{variable} = {value};"));
        Some(())
    }

    fn near(&mut self, note: &'static str) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Inputs `from..` as values of `ty`.
    fn values(&self, operands: &[String], ty: &str) -> Option<Vec<String>> {
        operands.iter().map(|o| self.read(o, ty)).collect()
    }

    fn emit(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        let ty = *parts.last()?;
        let has = |m: &str| parts.contains(&m);
        let count = ops.len();
        // A function of the inputs, all of the instruction's type.
        let call = |name: &str, v: &[String]| format!("{name}({})", v.join(", "));
        match parts[0] {
            "ld" | "ldu" if count == 2 => return self.load(parts, ops),
            "st" if count == 2 => return self.store(parts, ops),
            "bar" if has("warp") => {
                self.lines.push("__syncwarp();".to_owned());
                return Some(());
            }
            "bar" | "barrier" if has("sync") || has("arrive") => {
                // One barrier per block: others name a part of it.
                let all = !has("arrive") && count == 1 && ops[0].trim() == "0";
                return all.then(|| self.lines.push("__syncthreads();".to_owned()));
            }
            "membar" | "fence" => {
                let fence = if has("sys") {
                    "__threadfence_system"
                } else if has("cta") {
                    "__threadfence_block"
                } else {
                    "__threadfence"
                };
                self.lines.push(format!("{fence}();"));
                return (!has("proxy")).then_some(());
            }
            "nanosleep" if count == 1 => {
                let time = self.read(&ops[0], "u32")?;
                self.lines.push(format!("__nanosleep({time});"));
                return Some(());
            }
            "trap" | "brkpt" => {
                self.lines.push(format!("__{}();", parts[0]));
                return Some(());
            }
            "prefetch" | "prefetchu" | "discard" | "applypriority" => {
                self.near("a prefetch is left out: it changes no result");
                return Some(());
            }
            "cp" if has("async") && !has("bulk") => return self.copy(parts, ops),
            "shfl" if has("sync") && count >= 4 => return self.shuffle(parts, ops),
            "vote" if has("sync") && count == 3 => {
                let name = ["ballot", "any", "all", "uni"].into_iter().find(|n| has(n))?;
                let value = format!("__{name}_sync({}, {})", self.read(&ops[2], "b32")?, self.read(&ops[1], "pred")?);
                return self.write(&ops[0], ty, &value);
            }
            "activemask" if count == 1 => return self.write(&ops[0], "b32", "__activemask()"),
            "match" if has("any") && count == 3 => {
                let value = format!("__match_any_sync({}, {})", self.read(&ops[2], "b32")?, self.read(&ops[1], ty)?);
                return self.write(&ops[0], "b32", &value);
            }
            "redux" if has("sync") && count == 3 => {
                let name = ["add", "min", "max", "and", "or", "xor"].into_iter().find(|n| has(n))?;
                let value = format!("__reduce_{name}_sync({}, {})", self.read(&ops[2], "b32")?, self.read(&ops[1], ty)?);
                return self.write(&ops[0], ty, &value);
            }
            "cvta" if count == 2 => {
                let value = self.read(&ops[1], "u64")?;
                return self.write(&ops[0], "u64", &value);
            }
            "cvt" if count == 2 && parts.len() >= 3 => return self.convert(parts, ops),
            "setp" if count == 3 => {
                let compare =
                    ["eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"].into_iter().position(|n| parts.get(1) == Some(&n))?;
                let operator = ["==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">="][compare];
                let v = self.values(&ops[1..], ty)?;
                if parts.len() > 3 && parts[2] != "ftz" {
                    return None;
                }
                // Unlike C++'s, PTX's `ne` is false where a value is not a number.
                let value = if operator == "!=" && ty.starts_with('f') {
                    format!("{0} < {1} || {0} > {1}", v[0], v[1])
                } else {
                    format!("{} {operator} {}", v[0], v[1])
                };
                return self.write(&ops[0], "pred", &value);
            }
            "selp" if count == 4 => {
                let v = self.values(&ops[1..3], ty)?;
                let value = format!("{} ? {} : {}", self.read(&ops[3], "pred")?, v[0], v[1]);
                return self.write(&ops[0], ty, &value);
            }
            "mov" if count == 2 => return self.moves(ty, ops),
            "mul" | "mad" if has("wide") => {
                let wide = match ty {
                    "u32" => "u64",
                    "s32" => "s64",
                    "u16" => "u32",
                    "s16" => "s32",
                    _ => return None,
                };
                let v = self.values(ops.get(1..3)?, ty)?;
                let sum = if parts[0] == "mad" { format!(" + {}", self.read(ops.get(3)?, wide)?) } else { String::new() };
                return self.write(&ops[0], wide, &format!("({0}){1} * ({0}){2}{sum}", cpp(wide)?, v[0], v[1]));
            }
            _ => {}
        }
        let float = matches!(ty, "f32" | "f64" | "f16");
        let suffix = if ty == "f32" { "f" } else { "" };
        let v = self.values(ops.get(1..)?, ty)?;
        let n = v.len();
        // A modifier that is not known to change nothing (`.sat`, `.NaN`, `.rz`, `.cc`) is not passed over.
        if !parts[1..].iter().all(|part| PLAIN.contains(part) || Store::of_type(part).is_some()) {
            return None;
        }
        let value = match parts[0] {
            "add" | "sub" if n == 2 && !has("cc") => format!("{} {} {}", v[0], if parts[0] == "add" { "+" } else { "-" }, v[1]),
            "mul" if n == 2 && (float || has("lo")) => format!("{} * {}", v[0], v[1]),
            "mad" if n == 3 && has("lo") && !has("cc") => format!("{} * {} + {}", v[0], v[1], v[2]),
            "mul" | "mad" if has("hi") && !has("cc") && n >= 2 => {
                let name = match ty {
                    "u32" => "__umulhi",
                    "s32" => "__mulhi",
                    "u64" => "__umul64hi",
                    "s64" => "__mul64hi",
                    _ => return None,
                };
                let product = call(name, &v[..2]);
                if n == 3 { format!("{product} + {}", v[2]) } else { product }
            }
            "div" if n == 2 && !has("approx") => format!("{} / {}", v[0], v[1]),
            "div" if n == 2 && ty == "f32" => call("__fdividef", &v),
            "rem" if n == 2 && !float => format!("{} % {}", v[0], v[1]),
            "fma" | "mad" if n == 3 && matches!(ty, "f32" | "f64") => call(&format!("fma{suffix}"), &v),
            "fma" if n == 3 && ty == "f16" => format!("__builtin_fmaf16({})", v.join(", ")),
            "min" | "max" if n == 2 && float && ty != "f16" => call(&format!("f{}{suffix}", parts[0]), &v),
            "min" | "max" if n == 2 && !float => {
                format!("{0} {2} {1} ? {0} : {1}", v[0], v[1], if parts[0] == "min" { "<" } else { ">" })
            }
            "abs" if n == 1 && float && ty != "f16" => call(&format!("fabs{suffix}"), &v),
            "abs" if n == 1 && !float => format!("{0} < 0 ? -{0} : {0}", v[0]),
            "neg" if n == 1 => format!("-{}", v[0]),
            "not" if n == 1 && ty == "pred" => format!("!{}", v[0]),
            "not" if n == 1 => format!("~{}", v[0]),
            "and" | "or" | "xor" if n == 2 && !float => {
                format!(
                    "{} {} {}",
                    v[0],
                    match parts[0] {
                        "and" => "&",
                        "or" => "|",
                        _ => "^",
                    },
                    v[1]
                )
            }
            "shl" | "shr" if n == 2 && !float => {
                // PTX clamps the count; C++ leaves it undefined.
                let by = self.read(&ops[2], "u32")?;
                let bits = if ty.ends_with("64") { 64 } else { 32 };
                let past = if parts[0] == "shr" && ty.starts_with('s') { format!("{} >> {}", v[0], bits - 1) } else { "0".to_owned() };
                format!("{by} < {bits} ? {} {} {by} : {past}", v[0], if parts[0] == "shl" { "<<" } else { ">>" })
            }
            "shf" if n == 3 => {
                let name = match (has("l"), has("clamp")) {
                    (true, false) => "__funnelshift_l",
                    (true, true) => "__funnelshift_lc",
                    (false, false) => "__funnelshift_r",
                    (false, true) => "__funnelshift_rc",
                };
                call(name, &v)
            }
            "popc" | "clz" | "brev" if n == 1 => format!("__{}{}({})", parts[0], if ty.ends_with("64") { "ll" } else { "" }, v[0]),
            "prmt" if n == 3 && parts.len() == 2 => call("__byte_perm", &v),
            "bfe" if n == 3 && matches!(ty, "u32" | "s32") => {
                // In 64 bits, so that no count is out of C++'s range; PTX reads eight bits of each.
                let (from, len) = (at_most(&self.read(&ops[2], "u32")?, 32), at_most(&self.read(&ops[3], "u32")?, 32));
                if ty == "u32" {
                    format!("(unsigned int)(((unsigned long long){} >> {from}) & ((1ull << {len}) - 1))", v[0])
                } else {
                    format!("{len} == 0 ? 0 : (int)((((long long){} >> {from}) << (64 - {len})) >> (64 - {len}))", v[0])
                }
            }
            "bfi" if n == 4 && ty == "b32" => {
                let (from, len) = (at_most(&v[2], 32), at_most(&v[3], 32));
                let mask = format!("(unsigned int)(((1ull << {len}) - 1) << {from})");
                format!("({1} & ~{mask}) | ((unsigned int)((unsigned long long){0} << {from}) & {mask})", v[0], v[1])
            }
            "lop3" if n == 4 => return self.lop3(ops, &v),
            "ex2" if n == 1 && ty == "f32" => call("exp2f", &v),
            "lg2" if n == 1 && ty == "f32" => call("__log2f", &v),
            "rsqrt" if n == 1 && ty == "f32" => call("rsqrtf", &v),
            "sqrt" if n == 1 && ty != "f16" => call(&format!("sqrt{suffix}"), &v),
            "rcp" if n == 1 && ty != "f16" => format!("1 / {}", v[0]),
            "sin" | "cos" if n == 1 && ty == "f32" => call(&format!("__{}f", parts[0]), &v),
            "tanh" if n == 1 && ty == "f32" => call("tanhf", &v),
            "dp4a" if n == 3 && parts.get(1) == Some(&ty) && parts.len() == 3 => call("__dp4a", &v),
            "dp2a" if n == 3 && parts.len() == 4 => call(if has("lo") { "__dp2a_lo" } else { "__dp2a_hi" }, &v),
            _ => return None,
        };
        self.write(&ops[0], ty, &value)
    }

    fn moves(&mut self, ty: &str, ops: &[String]) -> Option<()> {
        if let Some(parts) = vector(&ops[1]).filter(|p| p.len() == 2) {
            let (half, whole, shift) = halves(ty)?;
            let v = self.values(&parts, half)?;
            return self.write(&ops[0], whole, &format!("({0}){1} | ({0}){2} << {shift}", cpp(whole)?, v[0], v[1]));
        }
        if let Some(parts) = vector(&ops[0]).filter(|p| p.len() == 2) {
            let (half, whole, shift) = halves(ty)?;
            let value = self.read(&ops[1], whole)?;
            self.write(&parts[0], half, &format!("({}){value}", cpp(half)?))?;
            return self.write(&parts[1], half, &format!("({})({value} >> {shift})", cpp(half)?));
        }
        let value = self.read(&ops[1], ty)?;
        if ops[1].contains("%lanemask") {
            self.near("a lane mask of 32 bits is cut off on a wave of 64 lanes");
        } else if ops[1].contains("%laneid") {
            self.near("lanes count to 63 on a wave of 64 lanes");
        }
        self.write(&ops[0], ty, &value)
    }

    /// Any function of three words, from its truth table.
    fn lop3(&mut self, ops: &[String], v: &[String]) -> Option<()> {
        let text = ops[4].trim();
        let table = text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| u8::from_str_radix(hex, 16).ok())?;
        let mut terms = Vec::new();
        for row in (0..8u8).filter(|row| table >> row & 1 == 1) {
            let literal = |bit: u8, value: &str| if row >> bit & 1 == 1 { value.to_owned() } else { format!("~{value}") };
            terms.push(format!("({} & {} & {})", literal(2, &v[0]), literal(1, &v[1]), literal(0, &v[2])));
        }
        let value = if terms.is_empty() { "0u".to_owned() } else { terms.join(" | ") };
        self.write(&ops[0], "b32", &value)
    }

    fn convert(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        let (to, from) = (parts[parts.len() - 2], parts[parts.len() - 1]);
        let float = |t: &str| t.starts_with('f');
        let value = self.read(&ops[1], from)?;
        let rounding = parts[1..parts.len() - 2].iter().copied().find(|p| matches!(*p, "rz" | "rm" | "rp" | "rzi" | "rni" | "rmi" | "rpi"));
        let value = match (rounding, float(to), float(from)) {
            (Some("rzi"), false, true) | (None, _, false) | (None, true, true) => value,
            (Some("rni"), _, true) => format!("rint({value})"),
            (Some("rmi"), _, true) => format!("floor({value})"),
            (Some("rpi"), _, true) => format!("ceil({value})"),
            _ => return None,
        };
        let value = match (float(from) && !float(to), to, parts.contains(&"sat")) {
            (true, "s32", _) => format!("__float2int_rz({value})"),
            (true, "u32", _) => format!("__float2uint_rz({value})"),
            (_, "f32", true) => format!("__saturatef((float)({value}))"),
            (_, _, true) => return None,
            _ => format!("({})({value})", cpp(to)?),
        };
        if from == "f64" && value.starts_with("__float2") {
            return self.write(&ops[0], to, &value.replace("__float2", "__double2"));
        }
        self.write(&ops[0], to, &value)
    }

    fn shuffle(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        let name = match *parts.get(2)? {
            "bfly" => "__shfl_xor_sync",
            "up" => "__shfl_up_sync",
            "down" => "__shfl_down_sync",
            "idx" => "__shfl_sync",
            _ => return None,
        };
        // A width other than the whole warp, and the predicate output, are in the fourth operand's bits: left to the reader.
        let clamp = ops[3].trim();
        let whole = matches!(clamp, "0x1f" | "31") || (name == "__shfl_up_sync" && matches!(clamp, "0" | "0x0"));
        if !whole || ops[0].contains('|') {
            return None;
        }
        let mask = ops.get(4).map_or_else(|| Some("0xffffffffu".to_owned()), |o| self.read(o, "b32"))?;
        let value = format!("{name}({mask}, {}, (int){}, 32)", self.read(&ops[1], "b32")?, self.read(&ops[2], "b32")?);
        self.write(&ops[0], "b32", &value)
    }
}

/// The low eight bits of a count, no more than `limit`.
fn at_most(count: &str, limit: u32) -> String {
    format!("(({count} & 255u) > {limit}u ? {limit}u : ({count} & 255u))")
}

/// The halves of a word: their type, the word's, and the shift between them.
fn halves(ty: &str) -> Option<(&'static str, &'static str, u32)> {
    match ty {
        "b32" => Some(("b16", "b32", 16)),
        "b64" => Some(("b32", "b64", 32)),
        _ => None,
    }
}

/// `{a, b}` as its parts.
pub(super) fn vector(operand: &str) -> Option<Vec<String>> {
    let inner = operand.trim().strip_prefix('{')?.strip_suffix('}')?;
    Some(inner.split(',').map(|part| part.trim().to_owned()).collect())
}

/// Operands between commas, those within brackets kept together; `%%name` is `%name`.
fn operands(text: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut depth = 0i32;
    for c in text.replace("%%", "%").chars() {
        match c {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                all.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = all.last_mut() {
            last.push(c);
        }
    }
    let all: Vec<String> = all.into_iter().map(|o| o.trim().to_owned()).collect();
    if all == [""] { Vec::new() } else { all }
}
