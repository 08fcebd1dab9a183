//! `atom` and `red`, translated to clang's atomics with memory order and scope.

use super::table::{Block, cpp};

impl Block {
    /// `atom{.order}{.scope}{.space}.operation.type d, [a], b{, c}`; `red` has no result.
    pub(super) fn atomic(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        const OPERATIONS: &[&str] = &["add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"];
        const OTHERS: &[&str] =
            &["relaxed", "acquire", "release", "acq_rel", "cta", "gpu", "sys", "global", "shared", "shared::cta", "noftz"];
        let (ty, inner) = (*parts.last()?, parts.get(1..parts.len() - 1)?);
        let operation = inner.iter().copied().find(|p| OPERATIONS.contains(p))?;
        if !inner.iter().all(|p| OPERATIONS.contains(p) || OTHERS.contains(p)) {
            return None;
        }
        let has = |m: &str| inner.contains(&m);
        let (result, rest) = if parts[0] == "atom" { ops.split_first().map(|(d, rest)| (Some(d), rest))? } else { (None, ops) };
        let integer = matches!(ty, "u32" | "s32" | "b32" | "u64" | "s64" | "b64");
        let fits = match operation {
            "add" => integer || matches!(ty, "f32" | "f64"),
            "inc" | "dec" => ty == "u32",
            _ => integer,
        };
        if !fits || rest.len() != if operation == "cas" { 3 } else { 2 } {
            return None;
        }
        let order = match () {
            () if has("acq_rel") => "__ATOMIC_ACQ_REL",
            () if has("acquire") => "__ATOMIC_ACQUIRE",
            () if has("release") => "__ATOMIC_RELEASE",
            () => "__ATOMIC_RELAXED",
        };
        let (scope, scope_name) = match () {
            () if has("sys") => ("__HIP_MEMORY_SCOPE_SYSTEM", ""),
            () if has("cta") => ("__HIP_MEMORY_SCOPE_WORKGROUP", "workgroup"),
            () => ("__HIP_MEMORY_SCOPE_AGENT", "agent"),
        };
        let shared = inner.iter().any(|p| p.starts_with("shared"));
        let address = self.pointer(&rest[0], cpp(ty)?, shared, "")?;
        let value = self.read(&rest[1], ty)?;
        let (cpp, id) = (cpp(ty)?, self.lines.len());
        let expression = match operation {
            "cas" => {
                let new = self.read(&rest[2], ty)?;
                // A failed exchange writes nothing, so it cannot release.
                let failed = if has("acquire") || has("acq_rel") { "__ATOMIC_ACQUIRE" } else { "__ATOMIC_RELAXED" };
                self.lines.push(format!(
                    "{cpp} __ww_old{id} = {value}; __hip_atomic_compare_exchange_strong({address}, &__ww_old{id}, {new}, {order}, {failed}, {scope});"
                ));
                format!("__ww_old{id}")
            }
            "exch" => format!("__hip_atomic_exchange({address}, {value}, {order}, {scope})"),
            "inc" | "dec" => format!("__builtin_amdgcn_atomic_{operation}32({address}, {value}, {order}, \"{scope_name}\")"),
            _ => format!("__hip_atomic_fetch_{operation}({address}, {value}, {order}, {scope})"),
        };
        match result {
            Some(result) if result.trim() != "_" => self.write(result, ty, &expression),
            _ => {
                self.lines.push(format!("(void){expression};"));
                Some(())
            }
        }
    }
}
