//! The instruction table: families of instructions, and the registers they read and write.
//!
//! A register has a kind of storage ([`Store`]); an instruction reads and writes it as the type of its suffix. The C++ calls CUDA
//! intrinsics that the prelude and HIP have, and clang builtins otherwise.

use std::collections::HashMap;

use super::Dialect;

/// The storage of a register.
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
    /// A compile-time constant (constraint `n`).
    Constant,
}

impl Store {
    /// The register of a constraint letter.
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

    pub(super) fn of_type(name: &str) -> Option<Store> {
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

/// The C++ type of a PTX type.
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
    /// Notes.
    pub notes: Vec<&'static str>,
    /// The functions that the C++ may call.
    pub dialect: Dialect,
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
    ("%clock_hi", "(clock64() >> 32)"),
    ("%clock64", "clock64()"),
    ("%globaltimer", "wall_clock64()"),
    ("%globaltimer_lo", "wall_clock64()"),
    ("%globaltimer_hi", "(wall_clock64() >> 32)"),
    ("%smid", "__smid()"),
    ("WARP_SZ", "warpSize"),
];

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
        if let Some((_, value)) = SPECIAL.iter().find(|(name, _)| *name == operand) {
            return Some(format!("({want}){value}"));
        }
        if want == "bool"
            && let Some(predicate) = operand.strip_prefix('!')
        {
            return self.read(predicate, ty).map(|value| format!("!{value}"));
        }
        if let Some(hex) = hex_float(operand, ["0f", "0F"], 8) {
            return match want {
                "float" => Some(format!("__uint_as_float(0x{hex}u)")),
                "int" | "unsigned int" => Some(format!("0x{hex}u")),
                _ => None,
            };
        }
        if let Some(hex) = hex_float(operand, ["0d", "0D"], 16) {
            return match want {
                "double" => Some(format!("__longlong_as_double(0x{hex}ll)")),
                "long long" | "unsigned long long" => Some(format!("0x{hex}ull")),
                _ => None,
            };
        }
        let digits = operand.strip_prefix('-').unwrap_or(operand);
        let number = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
            Some(hex) => u64::from_str_radix(hex.trim_end_matches('U'), 16).is_ok(),
            None if digits.contains('.') && matches!(want, "float" | "double") => {
                digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') && digits.parse::<f64>().is_ok()
            }
            None => !digits.is_empty() && digits.trim_end_matches('U').bytes().all(|b| b.is_ascii_digit()),
        };
        number.then(|| if want == "int" || want == "unsigned int" { operand.to_owned() } else { format!("({want}){operand}") })
    }

    /// Stores a value of a PTX type; `_` discards it.
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

    pub(super) fn near(&mut self, note: &'static str) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Operands as values of `ty`.
    pub(super) fn values(&self, operands: &[String], ty: &str) -> Option<Vec<String>> {
        operands.iter().map(|o| self.read(o, ty)).collect()
    }

    fn emit(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        let ty = *parts.last()?;
        let has = |m: &str| parts.contains(&m);
        let count = ops.len();
        match parts[0] {
            "ld" | "ldu" if count == 2 => self.load(parts, ops),
            "st" if count == 2 => self.store(parts, ops),
            "cp" if has("async") && !has("bulk") => self.copy(parts, ops),
            "atom" | "red" if !has("async") => self.atomic(parts, ops),
            "prefetch" | "prefetchu" | "discard" | "applypriority" => {
                self.near("prefetch removed: it does not affect results");
                Some(())
            }
            "bar" | "barrier" | "membar" | "fence" => self.barrier(parts, ops),
            "shfl" if count >= 4 => self.shuffle(parts, ops),
            "vote" => self.vote(parts, ops),
            "match" if has("sync") && count == 3 => self.matches(parts, ops),
            "redux" if has("sync") && count == 3 => self.redux(parts, ops),
            "activemask" if count == 1 => {
                self.cut();
                let value = self.active();
                self.write(&ops[0], "b32", &value)
            }
            "nanosleep" if count == 1 => {
                let time = self.read(&ops[0], "u32")?;
                self.lines.push(match self.dialect {
                    Dialect::Warpwave => format!("__nanosleep({time});"),
                    // One unit is 64 cycles, about 40 ns.
                    Dialect::Hip => format!("for (unsigned int __ww_ns = 0; __ww_ns < {time}; __ww_ns += 40) __builtin_amdgcn_s_sleep(1);"),
                });
                Some(())
            }
            "trap" => {
                self.lines.push("__builtin_trap();".to_owned());
                Some(())
            }
            "brkpt" => {
                self.lines.push("__builtin_debugtrap();".to_owned());
                Some(())
            }
            "cvta" if count == 2 => self.generic(parts, ops),
            "cvt" if count >= 2 && parts.len() >= 3 => self.convert(parts, ops),
            "mov" if count == 2 => self.moves(ty, ops),
            "setp" if count == 3 => self.compare(parts, ops),
            "selp" if count == 4 => {
                let v = self.values(&ops[1..3], ty)?;
                let value = format!("{} ? {} : {}", self.read(&ops[3], "pred")?, v[0], v[1]);
                self.write(&ops[0], ty, &value)
            }
            _ if matches!(ty, "f16x2" | "bf16x2" | "bf16") => self.pairs(parts, ops),
            _ => self.compute(parts, ops),
        }
    }
}

/// The digits of a float literal given as bits.
fn hex_float<'o>(operand: &'o str, prefixes: [&str; 2], digits: usize) -> Option<&'o str> {
    let hex = prefixes.iter().find_map(|prefix| operand.strip_prefix(prefix))?;
    (hex.len() == digits && hex.bytes().all(|b| b.is_ascii_hexdigit())).then_some(hex)
}

/// `{a, b}` as its parts.
pub(super) fn vector(operand: &str) -> Option<Vec<String>> {
    let inner = operand.trim().strip_prefix('{')?.strip_suffix('}')?;
    Some(inner.split(',').map(|part| part.trim().to_owned()).collect())
}

/// Splits operands at commas outside of brackets; `%%name` is `%name`.
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
