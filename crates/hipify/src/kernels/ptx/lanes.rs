//! Barriers and warp-level operations: shuffles, votes, matches, reductions.
//!
//! HIP has the forms with a mask since 6.2 and rejects 32-bit masks. So plain HIP gets the forms without a mask, in which every active
//! lane participates, and the mask is applied to the result.

use super::Dialect;
use super::table::{Block, cpp};

const TRUNCATED_MASK: &str = "32-bit lane mask: lanes 32 to 63 of a wave64 are dropped";

impl Block {
    /// Notes that lanes 32 and up are not in the result.
    pub(super) fn cut(&mut self) {
        self.near(TRUNCATED_MASK);
    }

    /// The active lanes.
    pub(super) fn active(&self) -> String {
        match self.dialect {
            Dialect::Warpwave => "__activemask()".to_owned(),
            Dialect::Hip => "__ballot(1)".to_owned(),
        }
    }

    /// ` & mask` for plain HIP; empty if the mask is full.
    fn masked(&self, mask: &str) -> Option<String> {
        let literal = mask.trim().trim_end_matches('U').to_ascii_lowercase();
        if matches!(literal.as_str(), "0xffffffff" | "-1" | "4294967295") {
            return Some(String::new());
        }
        let mask = self.read(mask, "b32")?;
        Some(format!(" & ({mask} == 0xffffffffu ? ~0ull : (unsigned long long){mask})"))
    }

    pub(super) fn barrier(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        let has = |m: &str| parts.contains(&m);
        let line = match parts[0] {
            "bar" | "barrier" if has("warp") => match self.dialect {
                Dialect::Warpwave => "__syncwarp();",
                Dialect::Hip => {
                    "__builtin_amdgcn_fence(__ATOMIC_RELEASE, \"wavefront\"); __builtin_amdgcn_wave_barrier(); \
                     __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"wavefront\");"
                }
            },
            // Only barrier 0 includes all threads of the block.
            "bar" | "barrier" if has("sync") && !has("cluster") && ops.len() == 1 && ops[0].trim() == "0" => "__syncthreads();",
            "membar" | "fence" if !has("proxy") && !has("mbarrier_init") => {
                if has("sys") {
                    "__threadfence_system();"
                } else if has("cta") {
                    "__threadfence_block();"
                } else {
                    "__threadfence();"
                }
            }
            _ => return None,
        };
        self.lines.push(line.to_owned());
        Some(())
    }

    pub(super) fn vote(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        let sync = parts.contains(&"sync");
        if ops.len() != if sync { 3 } else { 2 } {
            return None;
        }
        let name = ["ballot", "any", "all", "uni"].into_iter().find(|n| parts.contains(n))?;
        let vote = self.read(&ops[1], "pred")?;
        let mask = ops.get(2).map_or("0xffffffff", String::as_str);
        let value = match (self.dialect, name) {
            (Dialect::Warpwave, _) => format!("__{name}_sync({}, {vote})", self.read(mask, "b32")?),
            (Dialect::Hip, "ballot") => format!("__ballot({vote}){}", self.masked(mask)?),
            (Dialect::Hip, "any") => format!("(__ballot({vote}){}) != 0", self.masked(mask)?),
            (Dialect::Hip, "all") => format!("(__ballot(!({vote})){}) == 0", self.masked(mask)?),
            (Dialect::Hip, _) => {
                let mask = self.masked(mask)?;
                format!("(__ballot({vote}){mask}) == 0 || (__ballot(!({vote})){mask}) == 0")
            }
        };
        if name == "ballot" {
            self.cut();
        }
        self.write(&ops[0], if name == "ballot" { "b32" } else { "pred" }, &value)
    }

    pub(super) fn matches(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        let ty = *parts.last()?;
        let value = self.read(&ops[1], ty)?;
        self.cut();
        let all = parts.contains(&"all");
        if !all && !parts.contains(&"any") {
            return None;
        }
        let (mask_out, predicate) = ops[0].split_once('|').map_or((ops[0].as_str(), None), |(mask, p)| (mask, Some(p)));
        if predicate.is_some() && !all {
            return None;
        }
        let id = self.lines.len();
        match self.dialect {
            Dialect::Warpwave if all => {
                let mask = self.read(&ops[2], "b32")?;
                self.lines.push(format!("int __ww_all{id} = 0; auto __ww_same{id} = __match_all_sync({mask}, {value}, &__ww_all{id});"));
            }
            Dialect::Warpwave => {
                let mask = self.read(&ops[2], "b32")?;
                self.lines.push(format!("auto __ww_same{id} = __match_any_sync({mask}, {value});"));
            }
            Dialect::Hip => {
                let mask = self.masked(&ops[2])?;
                self.lines.push(format!(
                    "unsigned long long __ww_same{id} = 0, __ww_run{id} = __ballot(1){mask}; \
                     for (unsigned long long __ww_rest = __ww_run{id}; __ww_rest;) {{ \
                     unsigned long long __ww_one = __ballot(__shfl({value}, __ffsll(__ww_rest) - 1) == {value}) & __ww_rest; \
                     if (__ww_one >> __lane_id() & 1) __ww_same{id} = __ww_one; __ww_rest &= ~__ww_one; }}"
                ));
                if all {
                    self.lines.push(format!("int __ww_all{id} = __ww_same{id} == __ww_run{id}; if (!__ww_all{id}) __ww_same{id} = 0;"));
                }
            }
        }
        self.write(mask_out, "b32", &format!("__ww_same{id}"))?;
        predicate.map_or(Some(()), |p| self.write(p, "pred", &format!("__ww_all{id} != 0")))
    }

    pub(super) fn redux(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        let ty = *parts.last()?;
        let name = ["add", "min", "max", "and", "or", "xor"].into_iter().find(|n| parts.contains(n))?;
        let value = self.read(&ops[1], ty)?;
        if self.dialect == Dialect::Warpwave {
            let value = format!("__reduce_{name}_sync({}, {value})", self.read(&ops[2], "b32")?);
            return self.write(&ops[0], ty, &value);
        }
        let (mask, cpp, id) = (self.masked(&ops[2])?, cpp(ty)?, self.lines.len());
        let step = match name {
            "add" => "__ww_a + __ww_b",
            "and" => "__ww_a & __ww_b",
            "or" => "__ww_a | __ww_b",
            "xor" => "__ww_a ^ __ww_b",
            "min" => "__ww_a < __ww_b ? __ww_a : __ww_b",
            _ => "__ww_a > __ww_b ? __ww_a : __ww_b",
        };
        self.lines.push(format!(
            "unsigned long long __ww_rest{id} = __ballot(1){mask}; {cpp} __ww_all{id} = __shfl({value}, __ffsll(__ww_rest{id}) - 1); \
             for (__ww_rest{id} &= __ww_rest{id} - 1; __ww_rest{id}; __ww_rest{id} &= __ww_rest{id} - 1) {{ \
             {cpp} __ww_a = __ww_all{id}, __ww_b = __shfl({value}, __ffsll(__ww_rest{id}) - 1); __ww_all{id} = {step}; }}"
        ));
        self.write(&ops[0], ty, &format!("__ww_all{id}"))
    }

    pub(super) fn shuffle(&mut self, parts: &[&str], ops: &[String]) -> Option<()> {
        let sync = parts.contains(&"sync");
        if parts.last() != Some(&"b32") || ops.len() != if sync { 5 } else { 4 } {
            return None;
        }
        let mode = parts.iter().copied().find(|p| matches!(*p, "bfly" | "up" | "down" | "idx"))?;
        let (value, by) = (self.read(&ops[1], "b32")?, self.read(&ops[2], "b32")?);
        let mask = ops.get(4).map_or_else(|| Some("0xffffffffu".to_owned()), |o| self.read(o, "b32"))?;
        let (target, predicate) = ops[0].split_once('|').map_or((ops[0].as_str(), None), |(target, p)| (target, Some(p)));
        if let (None, Some(width)) = (predicate, width(mode, &ops[3])) {
            let name = match mode {
                "bfly" => "__shfl_xor",
                "up" => "__shfl_up",
                "down" => "__shfl_down",
                _ => "__shfl",
            };
            let call = match self.dialect {
                Dialect::Warpwave => format!("{name}_sync({mask}, {value}, (int){by}, {width})"),
                Dialect::Hip => format!("{name}({value}, (int)({by}), {width})"),
            };
            return self.write(target, "b32", &call);
        }
        // PTX: bits 8 to 12 are the segment mask, bits 0 to 4 the clamp value.
        let (limits, id) = (self.read(&ops[3], "b32")?, self.lines.len());
        let (source, inside) = match mode {
            "up" => ("__ww_lane - __ww_by", "__ww_from >= __ww_last"),
            "down" => ("__ww_lane + __ww_by", "__ww_from <= __ww_last"),
            "bfly" => ("__ww_lane ^ __ww_by", "__ww_from <= __ww_last"),
            _ => ("(__ww_lane & __ww_keep) | (__ww_by & ~__ww_keep)", "__ww_from <= __ww_last"),
        };
        self.lines.push(format!(
            "bool __ww_in{id}; unsigned int __ww_got{id}; {{ int __ww_lane = (int)(__lane_id() & 31), __ww_by = (int)(({by}) & 31), \
             __ww_keep = (int)(({limits}) >> 8 & 31), __ww_last = (__ww_lane & __ww_keep) | ((int)({limits}) & 31 & ~__ww_keep), \
             __ww_from = {source}; __ww_in{id} = {inside}; __ww_got{id} = __shfl({value}, __ww_in{id} ? __ww_from : __ww_lane, 32); }}"
        ));
        self.write(target, "b32", &format!("__ww_got{id}"))?;
        predicate.map_or(Some(()), |p| self.write(p, "pred", &format!("__ww_in{id}")))
    }
}

/// The shuffle width for the fourth operand, if it is a constant that CUDA's functions produce.
fn width(mode: &str, operand: &str) -> Option<u32> {
    let text = operand.trim();
    let number = text.strip_prefix("0x").map_or_else(|| text.parse::<u32>().ok(), |hex| u32::from_str_radix(hex, 16).ok())?;
    let width = 32u32.checked_sub(number >> 8)?;
    let clamp = if mode == "up" { 0 } else { 31 };
    (width.is_power_of_two() && number & 0xff == clamp).then_some(width)
}
