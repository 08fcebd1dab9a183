//! Arithmetic, logic and comparisons.

use super::Dialect;
use super::convert::{bf16_bits, f16_bits};
use super::table::{Block, Store, cpp};

/// Supported modifiers: rounding to nearest, approximation, halves of a product, kinds of a shift.
const PLAIN: &[&str] = &["rn", "ftz", "approx", "full", "lo", "hi", "wrap", "clamp", "l", "r"];

impl Block {
    pub(super) fn compare(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        let ty = *parts.last()?;
        if parts.len() > 3 && parts[2] != "ftz" || parts.len() > 4 {
            return None;
        }
        let v = self.values(&ops[1..], ty)?;
        let (a, b, float) = (&v[0], &v[1], ty.starts_with('f'));
        let value = match *parts.get(1)? {
            "eq" => format!("{a} == {b}"),
            // Unlike in C++, `ne` is false for NaN.
            "ne" if float => format!("{a} < {b} || {a} > {b}"),
            "ne" => format!("{a} != {b}"),
            "lt" | "lo" => format!("{a} < {b}"),
            "le" | "ls" => format!("{a} <= {b}"),
            "gt" | "hi" => format!("{a} > {b}"),
            "ge" | "hs" => format!("{a} >= {b}"),
            // Comparisons that are true for NaN.
            "equ" if float => format!("!({a} < {b} || {a} > {b})"),
            "neu" if float => format!("{a} != {b}"),
            "ltu" if float => format!("!({a} >= {b})"),
            "leu" if float => format!("!({a} > {b})"),
            "gtu" if float => format!("!({a} <= {b})"),
            "geu" if float => format!("!({a} < {b})"),
            "num" if float => format!("{a} == {a} && {b} == {b}"),
            "nan" if float => format!("{a} != {a} || {b} != {b}"),
            _ => return None,
        };
        self.write(&ops[0], "pred", &value)
    }

    /// Half and bfloat16 values, packed or single: elementwise, in float where the instruction is missing.
    pub(super) fn pairs(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        let (ty, plain) = (*parts.last()?, parts.get(1..parts.len() - 1)?);
        if !plain.iter().all(|p| matches!(*p, "rn" | "ftz" | "noftz")) {
            return None;
        }
        let bits: Vec<String> = self.values(ops.get(1..)?, if ty == "bf16" { "b16" } else { "b32" })?;
        let half = |upper: bool| {
            let value = |word: &String| match (ty, upper) {
                ("f16x2", false) => format!("__builtin_bit_cast(_Float16, (unsigned short)({word}))"),
                ("f16x2", true) => format!("__builtin_bit_cast(_Float16, (unsigned short)({word} >> 16))"),
                (_, false) => format!("__uint_as_float((unsigned int){word} << 16)"),
                (_, true) => format!("__uint_as_float({word} & 0xffff0000u)"),
            };
            let v: Vec<String> = bits.iter().map(value).collect();
            Some(match (parts[0], v.as_slice()) {
                ("add", [a, b]) => format!("{a} + {b}"),
                ("sub", [a, b]) => format!("{a} - {b}"),
                ("mul", [a, b]) => format!("{a} * {b}"),
                ("fma", [a, b, c]) if ty == "f16x2" => format!("__builtin_fmaf16({a}, {b}, {c})"),
                ("fma", [a, b, c]) => format!("fmaf({a}, {b}, {c})"),
                ("min" | "max", [a, b]) => format!("f{}f((float){a}, (float){b})", parts[0]),
                ("neg", [a]) => format!("-{a}"),
                _ => return None,
            })
        };
        let id = self.lines.len();
        let (kind, lower) = (if ty == "f16x2" { "_Float16" } else { "float" }, half(false)?);
        self.lines.push(format!("{kind} __ww_lo{id} = {lower};"));
        let pack = |name: &str| if ty == "f16x2" { f16_bits(name) } else { bf16_bits(name) };
        if ty == "bf16" {
            return self.write(&ops[0], "b16", &pack(&format!("__ww_lo{id}")));
        }
        let upper = half(true)?;
        self.lines.push(format!("{kind} __ww_hi{id} = {upper};"));
        let value = format!("(unsigned int){} << 16 | {}", pack(&format!("__ww_hi{id}")), pack(&format!("__ww_lo{id}")));
        self.write(&ops[0], "b32", &value)
    }

    /// Dot product of four bytes with accumulation.
    fn dot(&self, ty: &str, v: &[String]) -> String {
        if self.dialect == Dialect::Warpwave {
            return format!("__dp4a({})", v.join(", "));
        }
        let byte = if ty == "s32" { "(int)(signed char)" } else { "(unsigned int)(unsigned char)" };
        let product = |i: u32| format!("{byte}({0} >> {2}) * {byte}({1} >> {2})", v[0], v[1], 8 * i);
        format!("{} + {} + {} + {} + {}", v[2], product(0), product(1), product(2), product(3))
    }

    pub(super) fn compute(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        let ty = *parts.last()?;
        let has = |m: &str| parts.contains(&m);
        let call = |name: &str, v: &[String]| format!("{name}({})", v.join(", "));
        if matches!(parts[0], "mul" | "mad") && has("wide") {
            return self.wide(parts, ops);
        }
        let float = matches!(ty, "f32" | "f64" | "f16");
        let suffix = if ty == "f32" { "f" } else { "" };
        let v = self.values(ops.get(1..)?, ty)?;
        let n = v.len();
        // Unsupported modifiers (`.sat`, `.NaN`, `.rz`, `.cc`) change the result.
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
            "ex2" | "tanh" if n == 1 && ty == "f16" => format!("{}((float){})", if parts[0] == "ex2" { "exp2f" } else { "tanhf" }, v[0]),
            "lg2" if n == 1 && ty == "f32" => call("__log2f", &v),
            "rsqrt" if n == 1 && ty == "f32" => call("rsqrtf", &v),
            "sqrt" if n == 1 && ty != "f16" => call(&format!("sqrt{suffix}"), &v),
            "rcp" if n == 1 && ty != "f16" => format!("1 / {}", v[0]),
            "sin" | "cos" if n == 1 && ty == "f32" => call(&format!("__{}f", parts[0]), &v),
            "tanh" if n == 1 && ty == "f32" => call("tanhf", &v),
            "bfind" if n == 1 && ty == "u32" && parts.len() == 2 => {
                format!("{0} == 0 ? 0xffffffffu : (unsigned int)(31 - __clz((int){0}))", v[0])
            }
            "sad" if n == 3 && matches!(ty, "u32" | "s32") => call(if ty == "u32" { "__usad" } else { "__sad" }, &v),
            "copysign" if n == 2 && matches!(ty, "f32" | "f64") => format!("copysign{suffix}({}, {})", v[1], v[0]),
            "dp4a" if n == 3 && parts.get(1) == Some(&ty) && parts.len() == 3 => self.dot(ty, &v),
            "dp2a" if n == 3 && parts.len() == 4 && self.dialect == Dialect::Warpwave => {
                call(if has("lo") { "__dp2a_lo" } else { "__dp2a_hi" }, &v)
            }
            _ => return None,
        };
        self.write(&ops[0], ty, &value)
    }

    /// A widening product.
    fn wide(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        let ty = *parts.last()?;
        let wide = match ty {
            "u32" => "u64",
            "s32" => "s64",
            "u16" => "u32",
            "s16" => "s32",
            _ => return None,
        };
        let v = self.values(ops.get(1..3)?, ty)?;
        let sum = if parts[0] == "mad" { format!(" + {}", self.read(ops.get(3)?, wide)?) } else { String::new() };
        self.write(&ops[0], wide, &format!("({0}){1} * ({0}){2}{sum}", cpp(wide)?, v[0], v[1]))
    }

    /// A bitwise function of three words, from its lookup table.
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
}

/// The low eight bits of a count, at most `limit`.
fn at_most(count: &str, limit: u32) -> String {
    format!("(({count} & 255u) > {limit}u ? {limit}u : ({count} & 255u))")
}
