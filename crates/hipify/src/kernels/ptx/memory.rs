//! Loads, stores and copies. Cache hints are dropped: they do not change results.

use super::table::{Block, Store, cpp, vector};

impl Block {
    pub(super) fn load(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        let (ty, shared) = element(parts)?;
        let targets = vector(&ops[0]).unwrap_or_else(|| vec![ops[0].clone()]);
        if targets.len() != width(parts) {
            return None;
        }
        let ordered = ["volatile", "relaxed", "acquire"].iter().any(|p| parts.contains(p));
        let cpp = cpp(ty)?;
        let address = self.pointer(&ops[1], cpp, shared, if ordered { "const volatile " } else { "const " })?;
        // Read all before writing any: an output may be the address.
        let id = self.lines.len();
        for index in 0..targets.len() {
            self.lines.push(format!("{cpp} __ld{id}_{index} = ({address})[{index}];"));
        }
        if parts.contains(&"acquire") {
            self.lines.push("__threadfence();".to_owned());
        }
        for (index, target) in targets.iter().enumerate() {
            self.write(target, ty, &format!("__ld{id}_{index}"))?;
        }
        Some(())
    }

    pub(super) fn store(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        let (ty, shared) = element(parts)?;
        let sources = vector(&ops[1]).unwrap_or_else(|| vec![ops[1].clone()]);
        if sources.len() != width(parts) {
            return None;
        }
        if parts.contains(&"release") {
            self.lines.push("__threadfence();".to_owned());
        }
        let ordered = ["volatile", "relaxed", "release"].iter().any(|p| parts.contains(p));
        let address = self.pointer(&ops[0], cpp(ty)?, shared, if ordered { "volatile " } else { "" })?;
        for (index, source) in sources.iter().enumerate() {
            let value = self.read(source, ty)?;
            self.lines.push(format!("({address})[{index}] = {value};"));
        }
        Some(())
    }

    /// `[%1]`, `[%1+16]`, `[%1 + %2]` with a constant, as a pointer to `cpp`. A shared-memory address is an offset.
    pub(super) fn pointer(&self, operand: &str, cpp: &str, shared: bool, qualifier: &str) -> Option<String> {
        let inner = operand.trim().strip_prefix('[')?.strip_suffix(']')?.trim();
        let (base, offset) = match inner.split_once(['+', '-']) {
            None => (inner, "0".to_owned()),
            Some((base, offset)) if offset.trim().starts_with('%') => {
                let (variable, store) = self.registers.get(offset.trim())?;
                (base, (*store == Store::Constant && inner.contains('+')).then(|| variable.clone())?)
            }
            Some((base, offset)) => {
                let offset = offset.trim();
                let (minus, digits) = offset.strip_prefix('-').map_or((inner[base.len()..].starts_with('-'), offset), |d| (true, d));
                let number =
                    digits.strip_prefix("0x").map_or_else(|| digits.parse::<i64>().ok(), |hex| i64::from_str_radix(hex, 16).ok())?;
                (base, if minus { number.checked_neg()? } else { number }.to_string())
            }
        };
        let (variable, store) = self.registers.get(base.trim())?;
        match (shared, store) {
            (true, Store::U32 | Store::U64) => {
                Some(format!("(__attribute__((address_space(3))) {qualifier}{cpp} *)(unsigned int)({variable} + {offset})"))
            }
            (false, Store::U64) => Some(format!("({qualifier}{cpp} *)({variable} + {offset})")),
            _ => None,
        }
    }

    /// `cp.async` becomes a synchronous copy, and waiting for it a no-op.
    pub(super) fn copy(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        const MODIFIERS: &[&str] = &["async", "ca", "cg", "shared", "shared::cta", "global", "L2::64B", "L2::128B", "L2::256B"];
        if ["commit_group", "wait_group", "wait_all"].iter().any(|w| parts.contains(w)) {
            self.near("asynchronous copy replaced by a synchronous one; waits become no-ops");
            return Some(());
        }
        if !parts[1..].iter().all(|p| MODIFIERS.contains(p)) || !parts.contains(&"global") || !matches!(ops.len(), 3 | 4) {
            return None;
        }
        let bytes = self.read(&ops[2], "s32")?;
        let (to, from) = (self.pointer(&ops[0], "unsigned char", true, "")?, self.pointer(&ops[1], "unsigned char", false, "const ")?);
        let words = |kind: &str| Some((self.pointer(&ops[0], kind, true, "")?, self.pointer(&ops[1], kind, false, "const ")?));
        let ((to4, from4), (to1, from1)) = (words("__ww_words")?, words("unsigned int")?);
        let vector = format!("{{ typedef unsigned int __ww_words __attribute__((ext_vector_type(4))); *({to4}) = *({from4}); }}");
        let words = format!("for (int __ww_i = 0; __ww_i < {bytes} / 4; __ww_i++) ({to1})[__ww_i] = ({from1})[__ww_i];");
        let whole = match bytes.parse::<u32>() {
            Ok(16) => vector,
            Ok(_) => words,
            Err(_) => format!("if ({bytes} == 16) {vector} else {words}"),
        };
        self.near("asynchronous copy replaced by a synchronous one; waits become no-ops");
        let line = match ops.get(3) {
            None => whole,
            // Copies the given number of bytes and fills the rest with zeros.
            Some(given) => {
                let given = self.read(given, "s32")?;
                format!(
                    "if ({given} >= {bytes}) {{ {whole} }} else for (int __ww_i = 0; __ww_i < {bytes}; __ww_i++) \
                     ({to})[__ww_i] = __ww_i < {given} ? ({from})[__ww_i] : 0;"
                )
            }
        };
        self.lines.push(line);
        Some(())
    }
}

/// The element type, and whether the address is a shared-memory offset.
fn element<'p>(parts: &[&'p str]) -> Option<(&'p str, bool)> {
    let unusual = parts.iter().any(|p| matches!(*p, "mmio" | "v8" | "noncoherent" | "local" | "param" | "shared::cluster"));
    (!unusual).then_some((*parts.last()?, parts.iter().any(|p| p.starts_with("shared"))))
}

fn width(parts: &[&str]) -> usize {
    if parts.contains(&"v2") {
        2
    } else if parts.contains(&"v4") {
        4
    } else {
        1
    }
}
