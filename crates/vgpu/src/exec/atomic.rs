//! The read-modify-write operations of atomics, for every memory.

use super::float::{F16, bf16_to_f32, f32_to_bf16, max_num32, max_num64, max32, max64, min_num32, min_num64, min32, min64};

/// Computes the new value from the old value, the data and the comparison value. Values are in the low bits.
pub type Rmw = fn(u64, u64, u64) -> u64;

fn s32(value: u64) -> i32 {
    value as u32 as i32
}

fn f32s(value: u64) -> f32 {
    f32::from_bits(value as u32)
}

fn raw32(value: f32) -> u64 {
    u64::from(value.to_bits())
}

fn halves(old: u64, data: u64, add: fn(u16, u16) -> u16) -> u64 {
    let low = add(old as u16, data as u16);
    let high = add((old >> 16) as u16, (data >> 16) as u16);
    u64::from(low) | u64::from(high) << 16
}

fn add_f16(a: u16, b: u16) -> u16 {
    F16::from_f32(F16(a).to_f32() + F16(b).to_f32()).0
}

fn add_bf16(a: u16, b: u16) -> u16 {
    f32_to_bf16(bf16_to_f32(a) + bf16_to_f32(b))
}

/// Returns the operation called `name` on values of `bytes` bytes.
pub fn find(name: &str, bytes: u32) -> Option<Rmw> {
    let wide = bytes == 8;
    Some(match (name, wide) {
        ("swap" | "wrxchg", _) => |_, data, _| data,
        ("cmpswap" | "cmpst", _) => |old, data, compare| if old == compare { data } else { old },
        ("add", false) => |old, data, _| u64::from((old as u32).wrapping_add(data as u32)),
        ("add", true) => |old, data, _| old.wrapping_add(data),
        ("sub", false) => |old, data, _| u64::from((old as u32).wrapping_sub(data as u32)),
        ("sub", true) => |old, data, _| old.wrapping_sub(data),
        ("rsub", false) => |old, data, _| u64::from((data as u32).wrapping_sub(old as u32)),
        ("rsub", true) => |old, data, _| data.wrapping_sub(old),
        ("smin", false) => |old, data, _| u64::from(s32(old).min(s32(data)) as u32),
        ("smin", true) => |old, data, _| (old as i64).min(data as i64) as u64,
        ("smax", false) => |old, data, _| u64::from(s32(old).max(s32(data)) as u32),
        ("smax", true) => |old, data, _| (old as i64).max(data as i64) as u64,
        ("umin", _) => |old, data, _| old.min(data),
        ("umax", _) => |old, data, _| old.max(data),
        ("and", _) => |old, data, _| old & data,
        ("or", _) => |old, data, _| old | data,
        ("xor", _) => |old, data, _| old ^ data,
        ("inc", _) => |old, data, _| if old >= data { 0 } else { old + 1 },
        ("dec", _) => |old, data, _| if old == 0 || old > data { data } else { old - 1 },
        ("add_f32", _) => |old, data, _| raw32(f32s(old) + f32s(data)),
        ("min_f32", _) => |old, data, _| raw32(min32(f32s(old), f32s(data))),
        ("max_f32", _) => |old, data, _| raw32(max32(f32s(old), f32s(data))),
        ("cmpst_f32", _) => |old, data, compare| if f32s(old) == f32s(compare) { data } else { old },
        ("add_f64", _) => |old, data, _| (f64::from_bits(old) + f64::from_bits(data)).to_bits(),
        ("min_f64", _) => |old, data, _| min64(f64::from_bits(old), f64::from_bits(data)).to_bits(),
        ("max_f64", _) => |old, data, _| max64(f64::from_bits(old), f64::from_bits(data)).to_bits(),
        ("cmpst_f64", _) => |old, data, compare| if f64::from_bits(old) == f64::from_bits(compare) { data } else { old },
        ("pk_add_f16", _) => |old, data, _| halves(old, data, add_f16),
        ("pk_add_bf16", _) => |old, data, _| halves(old, data, add_bf16),
        ("min_num_f32", _) => |old, data, _| raw32(min_num32(f32s(data), f32s(old))),
        ("max_num_f32", _) => |old, data, _| raw32(max_num32(f32s(data), f32s(old))),
        ("min_num_f64", _) => |old, data, _| min_num64(f64::from_bits(data), f64::from_bits(old)).to_bits(),
        ("max_num_f64", _) => |old, data, _| max_num64(f64::from_bits(data), f64::from_bits(old)).to_bits(),
        ("fcmpswap" | "cmpswap_f32", false) => |old, data, compare| if f32s(old) == f32s(compare) { data } else { old },
        ("fcmpswap", true) => |old, data, compare| if f64::from_bits(old) == f64::from_bits(compare) { data } else { old },
        ("csub" | "csub_u32" | "sub_clamp" | "sub_clamp_u32", _) => |old, data, _| old.saturating_sub(data),
        ("cond_sub" | "cond_sub_u32", _) => |old, data, _| if old >= data { old - data } else { old },
        // The first operand is the mask to clear, the second the bits to set.
        ("mskor", _) => |old, clear, set| old & !clear | set,
        ("wrap", _) => |old, data, other| if old >= data { old.wrapping_sub(data) } else { old.wrapping_add(other) } & 0xffff_ffff,
        _ => return None,
    })
}
