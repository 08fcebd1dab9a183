//! Loads, stores and copies. Cache hints are left out: they change no result.

use super::table::{Block, Store, cpp, vector};

impl Block {
    pub(super) fn load(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        let (ty, space) = self.memory(parts)?;
        let (base, offset) = self.address(&ops[1])?;
        let targets = vector(&ops[0]).unwrap_or_else(|| vec![ops[0].clone()]);
        if targets.len() != width(parts) || space {
            return None;
        }
        let volatile =
            if parts.contains(&"volatile") || parts.contains(&"relaxed") || parts.contains(&"acquire") { "volatile " } else { "" };
        let cpp = cpp(ty)?;
        // All are read before any is written: an output may be the address.
        let id = self.lines.len();
        for index in 0..targets.len() {
            self.lines.push(format!("{cpp} __ld{id}_{index} = ((const {volatile}{cpp} *)({base} + {offset}))[{index}];"));
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
        let (ty, space) = self.memory(parts)?;
        let (base, offset) = self.address(&ops[0])?;
        let sources = vector(&ops[1]).unwrap_or_else(|| vec![ops[1].clone()]);
        if sources.len() != width(parts) || space {
            return None;
        }
        if parts.contains(&"release") {
            self.lines.push("__threadfence();".to_owned());
        }
        let volatile =
            if parts.contains(&"volatile") || parts.contains(&"relaxed") || parts.contains(&"release") { "volatile " } else { "" };
        for (index, source) in sources.iter().enumerate() {
            let value = self.read(source, ty)?;
            self.lines.push(format!("(({volatile}{} *)({base} + {offset}))[{index}] = {value};", cpp(ty)?));
        }
        Some(())
    }

    /// The element's type, and whether the address counts within a space (`.shared`), which C++ pointers do not.
    fn memory<'p>(&self, parts: &[&'p str]) -> Option<(&'p str, bool)> {
        let space = parts.iter().any(|p| p.starts_with("shared") || matches!(*p, "local" | "param" | "const"));
        let unusual = parts.iter().any(|p| matches!(*p, "mmio" | "v8" | "noncoherent"));
        (!unusual).then_some((*parts.last()?, space))
    }

    /// `[%1]`, `[%1+16]`: base and offset.
    fn address(&self, operand: &str) -> Option<(String, i64)> {
        let inner = operand.trim().strip_prefix('[')?.strip_suffix(']')?.trim();
        let (base, offset) = match inner.split_once('+') {
            Some((base, offset)) => (base.trim(), offset.trim().parse().ok()?),
            None => (inner, 0),
        };
        let (variable, store) = self.registers.get(base)?;
        (*store == Store::U64).then(|| (variable.clone(), offset))
    }

    /// `cp.async` is a copy, and waiting for it nothing: it is over when the next instruction runs. Its shared address is a number of
    /// 32 bits that only NVIDIA's address space gives a meaning, so the copy itself has no counterpart here.
    pub(super) fn copy(&mut self, parts: &[&str], _ops: &[String]) -> Option<()> {
        let waits = ["commit_group", "wait_group", "wait_all"].iter().any(|w| parts.contains(w));
        waits.then_some(())
    }
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
