//! Conversions and moves.

use super::table::{Block, Store, cpp, vector};

/// The bits of a float rounded to bfloat16.
pub(super) fn bf16_bits(value: &str) -> String {
    format!(
        "(unsigned short)({value} != {value} ? 0x7fffu : (__float_as_uint({value}) + 0x7fffu + (__float_as_uint({value}) >> 16 & 1u)) >> 16)"
    )
}

/// The bits of a float rounded to half.
pub(super) fn f16_bits(value: &str) -> String {
    format!("__builtin_bit_cast(unsigned short, (_Float16)({value}))")
}

impl Block {
    /// Converts between generic and address-space addresses. Shared addresses are the low half of generic ones on AMD.
    pub(super) fn generic(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        let ty = *parts.last()?;
        let value = self.read(&ops[1], ty)?;
        let shared = parts.iter().any(|p| p.starts_with("shared"));
        if parts.iter().any(|p| matches!(*p, "local" | "param")) {
            return None;
        }
        let value = match (shared, parts.contains(&"to")) {
            (false, _) => value,
            (true, true) => format!("{value} & 0xffffffff"),
            (true, false) => format!("({})(void *)(__attribute__((address_space(3))) char *)(unsigned int){value}", cpp(ty)?),
        };
        self.write(&ops[0], ty, &value)
    }

    pub(super) fn moves(&mut self, ty: &str, ops: &[String]) -> Option<()> {
        if let Some(parts) = vector(&ops[1]) {
            let (part, shift) = parts_of(ty, parts.len())?;
            let v = self.values(&parts, part)?;
            let all: Vec<String> = v.iter().enumerate().map(|(i, v)| joined(ty, v, shift * i)).collect::<Option<_>>()?;
            return self.write(&ops[0], ty, &all.join(" | "));
        }
        if let Some(parts) = vector(&ops[0]) {
            let (part, shift) = parts_of(ty, parts.len())?;
            let id = self.lines.len();
            // Read first: a part may be the source.
            let value = self.read(&ops[1], ty)?;
            self.lines.push(format!("{} __mv{id} = {value};", cpp(ty)?));
            for (i, target) in parts.iter().enumerate() {
                let by = shift * i;
                self.write(
                    target,
                    part,
                    &format!("({})({})", cpp(part)?, if by == 0 { format!("__mv{id}") } else { format!("__mv{id} >> {by}") }),
                )?;
            }
            return Some(());
        }
        let value = self.read(&ops[1], ty)?;
        if ops[1].contains("%lanemask") {
            self.cut();
        } else if ops[1].contains("%laneid") {
            self.near("lane indices reach 63 on wave64");
        } else if ops[1].contains("%smid") {
            self.near("`%smid` becomes the compute unit id; the ids may have gaps");
        }
        self.write(&ops[0], ty, &value)
    }

    pub(super) fn convert(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        let (to, from) = (parts[parts.len() - 2], parts[parts.len() - 1]);
        let modifiers = &parts[1..parts.len() - 2];
        let only = |allowed: &[&str]| modifiers.iter().all(|m| allowed.contains(m));
        match (to, from) {
            // The first source is the upper half.
            ("f16x2" | "bf16x2", "f32") if ops.len() == 3 && only(&["rn", "ftz"]) => {
                let v = self.values(&ops[1..], "f32")?;
                let bits = |value: &str| if to == "f16x2" { f16_bits(value) } else { bf16_bits(value) };
                return self.write(&ops[0], "b32", &format!("(unsigned int){} << 16 | {}", bits(&v[0]), bits(&v[1])));
            }
            _ if ops.len() != 2 => return None,
            ("bf16", "f32") if only(&["rn", "ftz"]) => {
                let value = bf16_bits(&self.read(&ops[1], "f32")?);
                return self.write(&ops[0], "b16", &value);
            }
            ("bf16", "f32") if only(&["rz"]) => {
                let value = self.read(&ops[1], "f32")?;
                return self.write(&ops[0], "b16", &format!("(unsigned short)(__float_as_uint({value}) >> 16)"));
            }
            ("f32", "bf16") if only(&["ftz"]) => {
                let value = self.read(&ops[1], "b16")?;
                return self.write(&ops[0], "f32", &format!("__uint_as_float((unsigned int){value} << 16)"));
            }
            ("tf32", "f32") if only(&["rna"]) => {
                let value = format!("(__float_as_uint({}) + 0x1000u) & 0xffffe000u", self.read(&ops[1], "f32")?);
                return self.write(&ops[0], "b32", &value);
            }
            _ => {}
        }
        let float = |t: &str| t.starts_with('f');
        let value = self.read(&ops[1], from)?;
        let rounding = modifiers.iter().copied().find(|p| matches!(*p, "rz" | "rm" | "rp" | "rna" | "rzi" | "rni" | "rmi" | "rpi"));
        if !only(&["rn", "ftz", "sat", "rzi", "rni", "rmi", "rpi"]) {
            return None;
        }
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
}

/// One part of a word, shifted to its position.
fn joined(ty: &str, value: &str, shift: usize) -> Option<String> {
    let word = cpp(ty)?;
    Some(if shift == 0 { format!("({word}){value}") } else { format!("({word}){value} << {shift}") })
}

/// The type and the bits of a part, for a number of parts per word.
fn parts_of(ty: &str, count: usize) -> Option<(&'static str, usize)> {
    let bits = match Store::of_type(ty)? {
        Store::U16 => 16,
        Store::U32 => 32,
        Store::U64 => 64,
        _ => return None,
    };
    match (bits, count) {
        (16, 2) | (32, 4) => Some(("b8", 8)),
        (32, 2) | (64, 4) => Some(("b16", 16)),
        (64, 2) => Some(("b32", 32)),
        _ => None,
    }
}
