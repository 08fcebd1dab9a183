//! Integer arithmetic, 16 to 64 bits.

use super::ops;
use crate::exec::valu::Unused;

fn shift(count: u32) -> u32 {
    count & 31
}

fn signed24(value: u32) -> i64 {
    i64::from((value << 8) as i32 >> 8)
}

fn unsigned24(value: u32) -> u64 {
    u64::from(value & 0x00ff_ffff)
}

fn byte(value: u32, n: u32) -> u32 {
    value >> (8 * n) & 0xff
}

fn sad8(a: u32, b: u32) -> u32 {
    (0..4).map(|n| byte(a, n).abs_diff(byte(b, n))).sum()
}

/// Sum of absolute differences; bytes of `b` that are 0 are skipped.
fn masked_sad8(a: u32, b: u32) -> u32 {
    (0..4).map(|n| if byte(b, n) == 0 { 0 } else { byte(a, n).abs_diff(byte(b, n)) }).sum()
}

/// Extracts `width` bits at `offset`.
fn field(value: u32, offset: u32, width: u32) -> u32 {
    match (offset & 31, width & 31) {
        (_, 0) => 0,
        (offset, width) => value >> offset & (1u32 << width).wrapping_sub(1),
    }
}

fn signed_field(value: u32, offset: u32, width: u32) -> i32 {
    match (offset & 31, width & 31) {
        (_, 0) => 0,
        (offset, width) if offset + width < 32 => ((value << (32 - offset - width)) as i32) >> (32 - width),
        (offset, _) => (value as i32) >> offset,
    }
}

/// Selects each byte from eight, or a constant made of sign bits. Without branches, so that the compiler vectorizes it.
#[inline(always)]
fn permute(high: u32, low: u32, selector: u32) -> u32 {
    let bytes = u64::from(high) << 32 | u64::from(low);
    let mut out = 0;
    for n in 0..4 {
        let selected = byte(selector, n);
        let picked = (bytes >> (8 * (selected & 7))) as u32 & 0xff;
        // 8 to 11: the sign of bytes 1, 3, 5 and 7.
        let sign = 0u32.wrapping_sub((bytes >> (16 * (selected & 3) + 15)) as u32 & 1) & 0xff;
        let constant = if selected == 12 { 0 } else { 0xff };
        let other = if selected < 12 { sign } else { constant };
        out |= (if selected < 8 { picked } else { other }) << (8 * n);
    }
    out
}

fn median<T: Ord>(a: T, b: T, c: T) -> T {
    if a > b {
        if b > c { b } else { a.min(c) }
    } else if a > c {
        a
    } else {
        b.min(c)
    }
}

ops! {
    v_mov_b32(a: u32) -> u32 { a };
    v_mov_b64(a: u64) -> u64 { a };
    v_accvgpr_mov_b32(a: u32) -> u32 { a };
    v_accvgpr_read_b32(a: u32) -> u32 { a };
    v_accvgpr_write_b32(a: u32) -> u32 { a };
    v_not_b32(a: u32) -> u32 { !a };
    v_bfrev_b32(a: u32) -> u32 { a.reverse_bits() };
    v_ffbh_u32(a: u32) -> u32 { if a == 0 { u32::MAX } else { a.leading_zeros() } };
    v_ffbl_b32(a: u32) -> u32 { if a == 0 { u32::MAX } else { a.trailing_zeros() } };
    v_ffbh_i32(a: i32) -> u32 {
        let folded = if a < 0 { !a } else { a } as u32;
        if folded == 0 { u32::MAX } else { folded.leading_zeros() }
    };
    v_sat_pk_u8_i16(a: u32) -> u16 {
        let saturate = |half: u32| (half as u16 as i16).clamp(0, 255) as u16;
        saturate(a) | saturate(a >> 16) << 8
    };

    v_and_b32(a: u32, b: u32) -> u32 { a & b };
    v_or_b32(a: u32, b: u32) -> u32 { a | b };
    v_xor_b32(a: u32, b: u32) -> u32 { a ^ b };
    v_xnor_b32(a: u32, b: u32) -> u32 { !(a ^ b) };
    v_lshrrev_b32(a: u32, b: u32) -> u32 { b >> shift(a) };
    v_ashrrev_i32(a: u32, b: i32) -> i32 { b >> shift(a) };
    v_lshlrev_b32(a: u32, b: u32) -> u32 { b << shift(a) };
    v_lshrrev_b64(a: u32, b: u64) -> u64 { b >> (a & 63) };
    v_ashrrev_i64(a: u32, b: i64) -> i64 { b >> (a & 63) };
    v_lshlrev_b64(a: u32, b: u64) -> u64 { b << (a & 63) };
    v_bfm_b32(a: u32, b: u32) -> u32 { ((1u32 << shift(a)) - 1) << shift(b) };

    v_add_u32(a: u32, b: u32) -> u32 { a.wrapping_add(b) } { fn saturated(a: u32, b: u32, _: Unused) -> u32 { a.saturating_add(b) } };
    v_sub_u32(a: u32, b: u32) -> u32 { a.wrapping_sub(b) } { fn saturated(a: u32, b: u32, _: Unused) -> u32 { a.saturating_sub(b) } };
    v_subrev_u32(a: u32, b: u32) -> u32 { b.wrapping_sub(a) } { fn saturated(a: u32, b: u32, _: Unused) -> u32 { b.saturating_sub(a) } };
    v_add_i32(a: i32, b: i32) -> i32 { a.wrapping_add(b) } { fn saturated(a: i32, b: i32, _: Unused) -> i32 { a.saturating_add(b) } };
    v_sub_i32(a: i32, b: i32) -> i32 { a.wrapping_sub(b) } { fn saturated(a: i32, b: i32, _: Unused) -> i32 { a.saturating_sub(b) } };
    v_mul_lo_u32(a: u32, b: u32) -> u32 { a.wrapping_mul(b) };
    v_mul_hi_u32(a: u32, b: u32) -> u32 { (u64::from(a) * u64::from(b) >> 32) as u32 };
    v_mul_hi_i32(a: i32, b: i32) -> i32 { (i64::from(a) * i64::from(b) >> 32) as i32 };
    v_mul_i32_i24(a: u32, b: u32) -> u32 { (signed24(a) * signed24(b)) as u32 };
    v_mul_hi_i32_i24(a: u32, b: u32) -> u32 { ((signed24(a) * signed24(b)) >> 32) as u32 };
    v_mul_u32_u24(a: u32, b: u32) -> u32 { (unsigned24(a) * unsigned24(b)) as u32 };
    v_mul_hi_u32_u24(a: u32, b: u32) -> u32 { (unsigned24(a) * unsigned24(b) >> 32) as u32 };
    v_min_i32(a: i32, b: i32) -> i32 { a.min(b) };
    v_max_i32(a: i32, b: i32) -> i32 { a.max(b) };
    v_min_u32(a: u32, b: u32) -> u32 { a.min(b) };
    v_max_u32(a: u32, b: u32) -> u32 { a.max(b) };
    v_bcnt_u32_b32(a: u32, b: u32) -> u32 { a.count_ones().wrapping_add(b) };

    v_mad_i32_i24(a: u32, b: u32, c: u32) -> u32 { ((signed24(a) * signed24(b)) as u32).wrapping_add(c) }
        { fn saturated(a: u32, b: u32, c: u32) -> u32 {
            (signed24(a) * signed24(b) + i64::from(c as i32)).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32
        } };
    v_mad_u32_u24(a: u32, b: u32, c: u32) -> u32 { ((unsigned24(a) * unsigned24(b)) as u32).wrapping_add(c) }
        { fn saturated(a: u32, b: u32, c: u32) -> u32 {
            (unsigned24(a) * unsigned24(b) + u64::from(c)).min(u64::from(u32::MAX)) as u32
        } };
    v_bfe_u32(a: u32, b: u32, c: u32) -> u32 { field(a, b, c) };
    v_bfe_i32(a: u32, b: u32, c: u32) -> i32 { signed_field(a, b, c) };
    v_bfi_b32(a: u32, b: u32, c: u32) -> u32 { a & b | !a & c };
    v_lerp_u8(a: u32, b: u32, c: u32) -> u32 {
        (0..4).fold(0, |out, n| out | (byte(a, n) + byte(b, n) + (byte(c, n) & 1) >> 1) << (8 * n))
    };
    v_alignbit_b32(a: u32, b: u32, c: u32) -> u32 { ((u64::from(a) << 32 | u64::from(b)) >> shift(c)) as u32 };
    v_alignbyte_b32(a: u32, b: u32, c: u32) -> u32 { ((u64::from(a) << 32 | u64::from(b)) >> (8 * (c & 3))) as u32 };
    v_min3_i32(a: i32, b: i32, c: i32) -> i32 { a.min(b).min(c) };
    v_min3_u32(a: u32, b: u32, c: u32) -> u32 { a.min(b).min(c) };
    v_max3_i32(a: i32, b: i32, c: i32) -> i32 { a.max(b).max(c) };
    v_max3_u32(a: u32, b: u32, c: u32) -> u32 { a.max(b).max(c) };
    v_med3_i32(a: i32, b: i32, c: i32) -> i32 { median(a, b, c) };
    v_med3_u32(a: u32, b: u32, c: u32) -> u32 { median(a, b, c) };
    v_sad_u8(a: u32, b: u32, c: u32) -> u32 { sad8(a, b).wrapping_add(c) }
        { fn saturated(a: u32, b: u32, c: u32) -> u32 { sad8(a, b).saturating_add(c) } };
    v_sad_hi_u8(a: u32, b: u32, c: u32) -> u32 { (sad8(a, b) << 16).wrapping_add(c) };
    v_sad_u16(a: u32, b: u32, c: u32) -> u32 {
        (a & 0xffff).abs_diff(b & 0xffff).wrapping_add((a >> 16).abs_diff(b >> 16)).wrapping_add(c)
    };
    v_sad_u32(a: u32, b: u32, c: u32) -> u32 { a.abs_diff(b).wrapping_add(c) }
        { fn saturated(a: u32, b: u32, c: u32) -> u32 { a.abs_diff(b).saturating_add(c) } };
    v_msad_u8(a: u32, b: u32, c: u32) -> u32 { masked_sad8(a, b).wrapping_add(c) };
    v_qsad_pk_u16_u8(a: u64, b: u32, c: u64) -> u64 {
        (0..4u32).fold(0, |out, n| {
            let sum = (c >> (16 * n)) as u16;
            out | u64::from(sum.wrapping_add(sad8((a >> (8 * n)) as u32, b) as u16)) << (16 * n)
        })
    };
    v_mqsad_pk_u16_u8(a: u64, b: u32, c: u64) -> u64 {
        (0..4u32).fold(0, |out, n| {
            let sum = (c >> (16 * n)) as u16;
            out | u64::from(sum.wrapping_add(masked_sad8((a >> (8 * n)) as u32, b) as u16)) << (16 * n)
        })
    };
    v_perm_b32(a: u32, b: u32, c: u32) -> u32 { permute(a, b, c) };
    v_xad_u32(a: u32, b: u32, c: u32) -> u32 { (a ^ b).wrapping_add(c) };
    v_lshl_add_u32(a: u32, b: u32, c: u32) -> u32 { (a << shift(b)).wrapping_add(c) };
    v_add_lshl_u32(a: u32, b: u32, c: u32) -> u32 { a.wrapping_add(b) << shift(c) };
    v_add3_u32(a: u32, b: u32, c: u32) -> u32 { a.wrapping_add(b).wrapping_add(c) };
    v_lshl_or_b32(a: u32, b: u32, c: u32) -> u32 { a << shift(b) | c };
    v_and_or_b32(a: u32, b: u32, c: u32) -> u32 { a & b | c };
    v_or3_b32(a: u32, b: u32, c: u32) -> u32 { a | b | c };
    v_lshl_add_u64(a: u64, b: u32, c: u64) -> u64 { (a << (b & 7)).wrapping_add(c) };
    v_mad_u32_u16(a: u16, b: u16, c: u32) -> u32 { (u32::from(a) * u32::from(b)).wrapping_add(c) };
    v_mad_i32_i16(a: i16, b: i16, c: i32) -> i32 { (i32::from(a) * i32::from(b)).wrapping_add(c) };
    v_xor3_b32(a: u32, b: u32, c: u32) -> u32 { a ^ b ^ c };
    v_maxmin_u32(a: u32, b: u32, c: u32) -> u32 { a.max(b).min(c) };
    v_minmax_u32(a: u32, b: u32, c: u32) -> u32 { a.min(b).max(c) };
    v_maxmin_i32(a: i32, b: i32, c: i32) -> i32 { a.max(b).min(c) };
    v_minmax_i32(a: i32, b: i32, c: i32) -> i32 { a.min(b).max(c) };
    v_cvt_i32_i16(a: i16) -> i32 { i32::from(a) };
    v_cvt_u32_u16(a: u16) -> u32 { u32::from(a) };

    v_mov_b16(a: u16) -> u16 { a };
    v_not_b16(a: u16) -> u16 { !a };
    v_and_b16(a: u16, b: u16) -> u16 { a & b };
    v_or_b16(a: u16, b: u16) -> u16 { a | b };
    v_xor_b16(a: u16, b: u16) -> u16 { a ^ b };

    v_add_u16(a: u16, b: u16) -> u16 { a.wrapping_add(b) } { fn saturated(a: u16, b: u16, _: Unused) -> u16 { a.saturating_add(b) } };
    v_sub_u16(a: u16, b: u16) -> u16 { a.wrapping_sub(b) } { fn saturated(a: u16, b: u16, _: Unused) -> u16 { a.saturating_sub(b) } };
    v_subrev_u16(a: u16, b: u16) -> u16 { b.wrapping_sub(a) } { fn saturated(a: u16, b: u16, _: Unused) -> u16 { b.saturating_sub(a) } };
    v_mul_lo_u16(a: u16, b: u16) -> u16 { a.wrapping_mul(b) };
    v_lshlrev_b16(a: u16, b: u16) -> u16 { b << (a & 15) };
    v_lshrrev_b16(a: u16, b: u16) -> u16 { b >> (a & 15) };
    v_ashrrev_i16(a: u16, b: i16) -> i16 { b >> (a & 15) };
    v_max_u16(a: u16, b: u16) -> u16 { a.max(b) };
    v_max_i16(a: i16, b: i16) -> i16 { a.max(b) };
    v_min_u16(a: u16, b: u16) -> u16 { a.min(b) };
    v_min_i16(a: i16, b: i16) -> i16 { a.min(b) };
    v_add_i16(a: i16, b: i16) -> i16 { a.wrapping_add(b) }
        { const KEEP: bool = true; fn saturated(a: i16, b: i16, _: Unused) -> i16 { a.saturating_add(b) } };
    v_sub_i16(a: i16, b: i16) -> i16 { a.wrapping_sub(b) }
        { const KEEP: bool = true; fn saturated(a: i16, b: i16, _: Unused) -> i16 { a.saturating_sub(b) } };
    v_mad_u16(a: u16, b: u16, c: u16) -> u16 { a.wrapping_mul(b).wrapping_add(c) }
        { const KEEP: bool = true; fn saturated(a: u16, b: u16, c: u16) -> u16 {
            (u32::from(a) * u32::from(b) + u32::from(c)).min(0xffff) as u16
        } };
    v_mad_i16(a: i16, b: i16, c: i16) -> i16 { a.wrapping_mul(b).wrapping_add(c) }
        { const KEEP: bool = true; fn saturated(a: i16, b: i16, c: i16) -> i16 {
            (i32::from(a) * i32::from(b) + i32::from(c)).clamp(-0x8000, 0x7fff) as i16
        } };
    v_mad_legacy_u16(a: u16, b: u16, c: u16) -> u16 { a.wrapping_mul(b).wrapping_add(c) };
    v_mad_legacy_i16(a: i16, b: i16, c: i16) -> i16 { a.wrapping_mul(b).wrapping_add(c) };
    v_min3_i16(a: i16, b: i16, c: i16) -> i16 { a.min(b).min(c) } { const KEEP: bool = true; };
    v_min3_u16(a: u16, b: u16, c: u16) -> u16 { a.min(b).min(c) } { const KEEP: bool = true; };
    v_max3_i16(a: i16, b: i16, c: i16) -> i16 { a.max(b).max(c) } { const KEEP: bool = true; };
    v_max3_u16(a: u16, b: u16, c: u16) -> u16 { a.max(b).max(c) } { const KEEP: bool = true; };
    v_med3_i16(a: i16, b: i16, c: i16) -> i16 { median(a, b, c) } { const KEEP: bool = true; };
    v_med3_u16(a: u16, b: u16, c: u16) -> u16 { median(a, b, c) } { const KEEP: bool = true; };
    v_cvt_pk_u16_u32(a: u32, b: u32) -> u32 { a.min(0xffff) | b.min(0xffff) << 16 };
    v_cvt_pk_i16_i32(a: i32, b: i32) -> u32 {
        let saturate = |x: i32| x.clamp(-0x8000, 0x7fff) as u32 & 0xffff;
        saturate(a) | saturate(b) << 16
    };

    v_dot2c_i32_i16(a: u32, b: u32, c: u32) -> u32 { super::packed::dot2_i16(a, b, c) } { const ACCUMULATE: bool = true; };
    v_dot4c_i32_i8(a: u32, b: u32, c: u32) -> u32 { super::packed::dot4_i8(a, b, c) } { const ACCUMULATE: bool = true; };
    v_dot8c_i32_i4(a: u32, b: u32, c: u32) -> u32 { super::packed::dot8_i4(a, b, c) } { const ACCUMULATE: bool = true; };
}
