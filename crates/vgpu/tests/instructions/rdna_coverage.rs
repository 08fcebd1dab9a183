//! The instructions that public test cases with hardware results use, and the share of them that the tests of RDNA here cover.

use super::asm::*;
use super::rdna_parity::compared;
use std::collections::BTreeSet;
use warpwave_vgpu::Arch;
use warpwave_vgpu::isa::inst_descs;

/// Mnemonics of the cases that tinygrad keeps in `test/amd/hw`, without encoding suffixes.
const CASES: &str = "
    ds_add_rtn_u32 ds_add_u32 ds_and_rtn_b32 ds_bpermute_b32 ds_cmpstore_b32 ds_dec_rtn_u32 ds_inc_rtn_u32 ds_load_2addr_b32
    ds_load_2addr_b64 ds_load_2addr_stride64_b32 ds_load_2addr_stride64_b64 ds_load_b128 ds_load_b32 ds_load_b64 ds_load_b96
    ds_max_rtn_u32 ds_max_u32 ds_min_rtn_u32 ds_or_rtn_b32 ds_permute_b32 ds_store_2addr_b32 ds_store_2addr_b64
    ds_store_2addr_stride64_b32 ds_store_2addr_stride64_b64 ds_store_b128 ds_store_b16 ds_store_b16_d16_hi ds_store_b32 ds_store_b64
    ds_store_b96 ds_storexchg_2addr_rtn_b32 ds_storexchg_2addr_stride64_rtn_b32 ds_storexchg_2addr_stride64_rtn_b64
    ds_storexchg_rtn_b32 ds_storexchg_rtn_b64 ds_xor_rtn_b32 flat_atomic_add_u32 flat_atomic_add_u64 flat_atomic_and_b32
    flat_atomic_dec_u32 flat_atomic_inc_u32 flat_atomic_inc_u64 flat_atomic_max_u32 flat_atomic_min_u32 flat_atomic_or_b32
    flat_atomic_sub_u32 flat_atomic_swap_b32 flat_atomic_swap_b64 flat_atomic_xor_b32 flat_load_b128 flat_load_b32 flat_load_b64
    flat_load_b96 global_atomic_add_u32 global_atomic_add_u64 global_load_b128 global_load_b32 global_load_b64 global_load_b96
    global_load_d16_hi_b16 global_load_d16_hi_i8 global_load_d16_hi_u8 global_load_u16 global_load_u8 global_store_b128
    global_store_b16 global_store_b32 global_store_b64 global_store_b8 global_store_b96 s_add_i32 s_add_u32 s_addc_u32 s_and_b32
    s_and_b64 s_barrier s_bfe_i64 s_bitset0_b32 s_bitset1_b32 s_brev_b32 s_cbranch_vccnz s_cbranch_vccz s_cmp_eq_u32 s_cmp_eq_u64
    s_cmp_lg_u64 s_cselect_b32 s_dcache_inv s_endpgm s_gl1_inv s_load_b128 s_load_b256 s_load_b32 s_load_b512 s_load_b64 s_mov_b32
    s_mov_b64 s_mul_hi_i32 s_mul_hi_u32 s_mul_i32 s_nop s_not_b32 s_or_b32 s_or_b64 s_pack_hh_b32_b16 s_pack_hl_b32_b16
    s_pack_lh_b32_b16 s_pack_ll_b32_b16 s_quadmask_b32 s_sub_i32 s_wait_idle s_wait_kmcnt s_waitcnt s_waitcnt_lgkmcnt
    s_waitcnt_vmcnt s_wqm_b32 scratch_load_b128 scratch_load_b32 scratch_load_b64 scratch_load_b96 scratch_load_i16 scratch_load_i8
    scratch_load_u16 scratch_load_u8 scratch_store_b128 scratch_store_b16 scratch_store_b32 scratch_store_b64 scratch_store_b8
    scratch_store_b96 v_add_co_ci_u32 v_add_co_u32 v_add_f16 v_add_f32 v_add_f64 v_add_nc_i32 v_add_nc_u16 v_add_nc_u32
    v_alignbit_b32 v_alignbyte_b32 v_and_b32 v_ashrrev_i32 v_bfe_i32 v_bfe_u32 v_bfi_b32 v_ceil_f32 v_clz_i32_u32 v_cmp_class_f16
    v_cmp_class_f32 v_cmp_eq_f16 v_cmp_eq_u16 v_cmp_eq_u32 v_cmp_ge_f32 v_cmp_gt_f16 v_cmp_gt_u16 v_cmp_lg_f16 v_cmp_lg_f32
    v_cmp_lt_f16 v_cmp_lt_f64 v_cmp_lt_i64 v_cmp_lt_u32 v_cmp_lt_u64 v_cmp_ne_u32 v_cmp_neq_f32 v_cmp_nge_f16 v_cmp_nge_f32
    v_cmp_nlt_f64 v_cmpx_eq_u32 v_cmpx_gt_f32 v_cmpx_gt_u32 v_cmpx_le_u32 v_cmpx_ne_u32 v_cmpx_ngt_f32 v_cndmask_b16 v_cndmask_b32
    v_cos_f32 v_ctz_i32_b32 v_cvt_f16_f32 v_cvt_f32_f16 v_cvt_f32_f64 v_cvt_f32_i32 v_cvt_f32_u32 v_cvt_f64_f32 v_cvt_f64_i32
    v_cvt_f64_u32 v_cvt_i16_f16 v_cvt_i32_f32 v_cvt_i32_f64 v_cvt_norm_i16_f16 v_cvt_norm_u16_f16 v_cvt_pk_i16_f32 v_cvt_pk_i16_i32
    v_cvt_pk_norm_i16_f32 v_cvt_pk_norm_u16_f32 v_cvt_pk_rtz_f16_f32 v_cvt_pk_u16_f32 v_cvt_pk_u16_u32 v_cvt_pk_u8_f32 v_cvt_u32_f32
    v_cvt_u32_f64 v_div_fixup_f32 v_div_fmas_f32 v_div_fmas_f64 v_div_scale_f32 v_div_scale_f64 v_dot2_f16_f16 v_dot2_f32_bf16
    v_dot2_f32_f16 v_dot4_i32_iu8 v_dot4_u32_u8 v_dot8_i32_iu4 v_dot8_u32_u4 v_dual_add_nc_u32 v_dual_dot2acc_f32_f16
    v_dual_fmaak_f32 v_dual_fmamk_f32 v_dual_mov_b32 v_exp_f32 v_floor_f32 v_floor_f64 v_fma_f16 v_fma_f32 v_fma_f64 v_fma_mix_f32
    v_fma_mixlo_f16 v_fmaak_f16 v_fmaak_f32 v_fmac_f16 v_fmac_f32 v_fmamk_f32 v_fract_f32 v_frexp_exp_i32_f64 v_frexp_mant_f64
    v_ldexp_f64 v_log_f32 v_lshlrev_b32 v_lshlrev_b64 v_lshrrev_b32 v_mad_u16 v_mad_u64_u32 v_max3_f16 v_max3_u16 v_max_f16
    v_max_f32 v_max_u32 v_maxmin_f16 v_med3_f16 v_med3_f32 v_med3_i32 v_med3_u32 v_min3_f16 v_min3_u16 v_min3_u32 v_min_f16
    v_min_f32 v_min_i32 v_min_u16 v_minmax_f16 v_mov_b16 v_mov_b32 v_msad_u8 v_mul_f16 v_mul_f32 v_mul_f64 v_mul_hi_i32 v_mul_hi_u32
    v_mul_lo_u32 v_mul_u32_u24 v_mullit_f32 v_or_b32 v_pack_b32_f16 v_perm_b32 v_permlane16_b32 v_permlane16_var_b32
    v_permlane64_b32 v_permlanex16_b32 v_permlanex16_var_b32 v_pk_add_f16 v_pk_add_u16 v_pk_fma_f16 v_pk_max_f16 v_pk_min_f16
    v_pk_mul_f16 v_rcp_f16 v_rcp_f32 v_readfirstlane_b32 v_readlane_b32 v_rndne_f32 v_rsq_f32 v_sad_hi_u8 v_sad_u16 v_sad_u32
    v_sad_u8 v_sin_f32 v_sqrt_f32 v_sub_co_ci_u32 v_sub_co_u32 v_sub_f32 v_sub_nc_i32 v_sub_nc_u16 v_sub_nc_u32 v_subrev_co_ci_u32
    v_subrev_co_u32 v_swap_b32 v_trig_preop_f64 v_trunc_f32 v_trunc_f64 v_wmma_f16_16x16x16_f16 v_wmma_f32_16x16x16_bf16
    v_wmma_f32_16x16x16_f16 v_writelane_b32 v_xor_b32
";

const TESTS: [&str; 5] = [
    include_str!("rdna.rs"),
    include_str!("rdna_dual.rs"),
    include_str!("rdna_lanes.rs"),
    include_str!("rdna_matrix.rs"),
    include_str!("rdna_memory.rs"),
];

#[test]
fn share_of_the_public_cases() {
    let named: BTreeSet<&str> = TESTS.iter().flat_map(|text| text.split('"').skip(1).step_by(2)).collect();
    let compared: BTreeSet<&str> = RDNA.into_iter().flat_map(compared).map(|row| row.name).collect();
    let covered = |name: &str| named.contains(name) || compared.contains(name) || name.starts_with("v_cmpx_");
    let known =
        |name: &str| inst_descs().iter().any(|row| row.name == name && (row.supports(Arch::Gfx1100) || row.supports(Arch::Gfx1201)));
    let all: Vec<&str> = CASES.split_whitespace().collect();
    let unknown: Vec<_> = all.iter().filter(|name| !known(name)).collect();
    assert!(unknown.is_empty(), "not in the tables: {unknown:?}");
    let missing: Vec<_> = all.iter().filter(|name| !covered(name)).collect();
    println!(
        "{} of {} instructions ({} %); not covered: {missing:?}",
        all.len() - missing.len(),
        all.len(),
        100 * (all.len() - missing.len()) / all.len()
    );
    assert!(missing.len() * 20 < all.len(), "{} not covered: {missing:?}", missing.len());
}
