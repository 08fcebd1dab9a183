//! Vector instructions of the CPU that have the same form at both widths.

use iced_x86::Code;

/// A CPU instruction at both widths.
#[derive(Clone, Copy)]
pub struct Op(pub Code, pub Code);

macro_rules! vector_ops {
    ($($name:ident = $wide:ident | $narrow:ident;)*) => {
        $(pub const $name: Op = Op(Code::$wide, Code::$narrow);)*
    };
}

vector_ops! {
    MOVE = EVEX_Vmovaps_zmm_k1z_zmmm512 | VEX_Vmovaps_ymm_ymmm256;
    STORE = EVEX_Vmovaps_zmmm512_k1z_zmm | VEX_Vmovaps_ymmm256_ymm;
    BROADCAST = EVEX_Vbroadcastss_zmm_k1z_xmmm32 | VEX_Vbroadcastss_ymm_m32;
    ADD_F32 = EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er | VEX_Vaddps_ymm_ymm_ymmm256;
    SUB_F32 = EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er | VEX_Vsubps_ymm_ymm_ymmm256;
    MUL_F32 = EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er | VEX_Vmulps_ymm_ymm_ymmm256;
    DIV_F32 = EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er | VEX_Vdivps_ymm_ymm_ymmm256;
    SQRT_F32 = EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er | VEX_Vsqrtps_ymm_ymmm256;
    FMA_F32 = EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er | VEX_Vfmadd213ps_ymm_ymm_ymmm256;
    FMA_TO_C_F32 = EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er | VEX_Vfmadd231ps_ymm_ymm_ymmm256;
    ADD_F64 = EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er | VEX_Vaddpd_ymm_ymm_ymmm256;
    MUL_F64 = EVEX_Vmulpd_zmm_k1z_zmm_zmmm512b64_er | VEX_Vmulpd_ymm_ymm_ymmm256;
    FMA_F64 = EVEX_Vfmadd213pd_zmm_k1z_zmm_zmmm512b64_er | VEX_Vfmadd213pd_ymm_ymm_ymmm256;
    ADD_I32 = EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32 | VEX_Vpaddd_ymm_ymm_ymmm256;
    SUB_I32 = EVEX_Vpsubd_zmm_k1z_zmm_zmmm512b32 | VEX_Vpsubd_ymm_ymm_ymmm256;
    MUL_I32 = EVEX_Vpmulld_zmm_k1z_zmm_zmmm512b32 | VEX_Vpmulld_ymm_ymm_ymmm256;
    ADD_I64 = EVEX_Vpaddq_zmm_k1z_zmm_zmmm512b64 | VEX_Vpaddq_ymm_ymm_ymmm256;
    MUL_U32_WIDE = EVEX_Vpmuludq_zmm_k1z_zmm_zmmm512b64 | VEX_Vpmuludq_ymm_ymm_ymmm256;
    MUL_I32_WIDE = EVEX_Vpmuldq_zmm_k1z_zmm_zmmm512b64 | VEX_Vpmuldq_ymm_ymm_ymmm256;
    AND = EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32 | VEX_Vpand_ymm_ymm_ymmm256;
    AND_NOT = EVEX_Vpandnd_zmm_k1z_zmm_zmmm512b32 | VEX_Vpandn_ymm_ymm_ymmm256;
    OR = EVEX_Vpord_zmm_k1z_zmm_zmmm512b32 | VEX_Vpor_ymm_ymm_ymmm256;
    XOR = EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32 | VEX_Vpxor_ymm_ymm_ymmm256;
    MIN_I32 = EVEX_Vpminsd_zmm_k1z_zmm_zmmm512b32 | VEX_Vpminsd_ymm_ymm_ymmm256;
    MAX_I32 = EVEX_Vpmaxsd_zmm_k1z_zmm_zmmm512b32 | VEX_Vpmaxsd_ymm_ymm_ymmm256;
    MIN_U32 = EVEX_Vpminud_zmm_k1z_zmm_zmmm512b32 | VEX_Vpminud_ymm_ymm_ymmm256;
    MAX_U32 = EVEX_Vpmaxud_zmm_k1z_zmm_zmmm512b32 | VEX_Vpmaxud_ymm_ymm_ymmm256;
    SHL = EVEX_Vpsllvd_zmm_k1z_zmm_zmmm512b32 | VEX_Vpsllvd_ymm_ymm_ymmm256;
    SHR = EVEX_Vpsrlvd_zmm_k1z_zmm_zmmm512b32 | VEX_Vpsrlvd_ymm_ymm_ymmm256;
    SAR = EVEX_Vpsravd_zmm_k1z_zmm_zmmm512b32 | VEX_Vpsravd_ymm_ymm_ymmm256;
    SHL_64 = EVEX_Vpsllvq_zmm_k1z_zmm_zmmm512b64 | VEX_Vpsllvq_ymm_ymm_ymmm256;
    SHR_64 = EVEX_Vpsrlvq_zmm_k1z_zmm_zmmm512b64 | VEX_Vpsrlvq_ymm_ymm_ymmm256;
    SHL_IMM = EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8 | VEX_Vpslld_ymm_ymm_imm8;
    SHR_IMM = EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8 | VEX_Vpsrld_ymm_ymm_imm8;
    SAR_IMM = EVEX_Vpsrad_zmm_k1z_zmmm512b32_imm8 | VEX_Vpsrad_ymm_ymm_imm8;
    SHL_16_IMM = EVEX_Vpsllw_zmm_k1z_zmmm512_imm8 | VEX_Vpsllw_ymm_ymm_imm8;
    SHR_16_IMM = EVEX_Vpsrlw_zmm_k1z_zmmm512_imm8 | VEX_Vpsrlw_ymm_ymm_imm8;
    SAR_16_IMM = EVEX_Vpsraw_zmm_k1z_zmmm512_imm8 | VEX_Vpsraw_ymm_ymm_imm8;
    MULTIPLY_ADD_16 = EVEX_Vpmaddwd_zmm_k1z_zmm_zmmm512 | VEX_Vpmaddwd_ymm_ymm_ymmm256;
    MIN_U8 = EVEX_Vpminub_zmm_k1z_zmm_zmmm512 | VEX_Vpminub_ymm_ymm_ymmm256;
    SHUFFLE_BYTES = EVEX_Vpshufb_zmm_k1z_zmm_zmmm512 | VEX_Vpshufb_ymm_ymm_ymmm256;
    SHR_64_IMM = EVEX_Vpsrlq_zmm_k1z_zmmm512b64_imm8 | VEX_Vpsrlq_ymm_ymm_imm8;
    SHL_64_IMM = EVEX_Vpsllq_zmm_k1z_zmmm512b64_imm8 | VEX_Vpsllq_ymm_ymm_imm8;
    ROUND_F32 = EVEX_Vrndscaleps_zmm_k1z_zmmm512b32_imm8_sae | VEX_Vroundps_ymm_ymmm256_imm8;
    I32_TO_F32 = EVEX_Vcvtdq2ps_zmm_k1z_zmmm512b32_er | VEX_Vcvtdq2ps_ymm_ymmm256;
    F32_TO_I32 = EVEX_Vcvttps2dq_zmm_k1z_zmmm512b32_sae | VEX_Vcvttps2dq_ymm_ymmm256;
    MAX_F32 = EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae | VEX_Vmaxps_ymm_ymm_ymmm256;
    RANGE_F32 = EVEX_Vrangeps_zmm_k1z_zmm_zmmm512b32_imm8_sae | INVALID;
    U32_TO_F32 = EVEX_Vcvtudq2ps_zmm_k1z_zmmm512b32_er | INVALID;
    F32_TO_U32 = EVEX_Vcvttps2udq_zmm_k1z_zmmm512b32_sae | INVALID;
    SCALE_F32 = EVEX_Vscalefps_zmm_k1z_zmm_zmmm512b32_er | INVALID;
    SAR_64 = EVEX_Vpsravq_zmm_k1z_zmm_zmmm512b64 | INVALID;
    UNPACK_LOW = EVEX_Vpunpckldq_zmm_k1z_zmm_zmmm512b32 | VEX_Vpunpckldq_ymm_ymm_ymmm256;
    UNPACK_HIGH = EVEX_Vpunpckhdq_zmm_k1z_zmm_zmmm512b32 | VEX_Vpunpckhdq_ymm_ymm_ymmm256;
    SHUFFLE = EVEX_Vshufps_zmm_k1z_zmm_zmmm512b32_imm8 | VEX_Vshufps_ymm_ymm_ymmm256_imm8;
    SUB_F64 = EVEX_Vsubpd_zmm_k1z_zmm_zmmm512b64_er | VEX_Vsubpd_ymm_ymm_ymmm256;
    DIV_F64 = EVEX_Vdivpd_zmm_k1z_zmm_zmmm512b64_er | VEX_Vdivpd_ymm_ymm_ymmm256;
    SQRT_F64 = EVEX_Vsqrtpd_zmm_k1z_zmmm512b64_er | VEX_Vsqrtpd_ymm_ymmm256;
    MIN_F64 = EVEX_Vminpd_zmm_k1z_zmm_zmmm512b64_sae | VEX_Vminpd_ymm_ymm_ymmm256;
    MAX_F64 = EVEX_Vmaxpd_zmm_k1z_zmm_zmmm512b64_sae | VEX_Vmaxpd_ymm_ymm_ymmm256;
    ROUND_F64 = EVEX_Vrndscalepd_zmm_k1z_zmmm512b64_imm8_sae | VEX_Vroundpd_ymm_ymmm256_imm8;
    RANGE_F64 = EVEX_Vrangepd_zmm_k1z_zmm_zmmm512b64_imm8_sae | INVALID;
    SCALE_F64 = EVEX_Vscalefpd_zmm_k1z_zmm_zmmm512b64_er | INVALID;
    MIN_F32 = EVEX_Vminps_zmm_k1z_zmm_zmmm512b32_sae | VEX_Vminps_ymm_ymm_ymmm256;
    GET_EXPONENT_F32 = EVEX_Vgetexpps_zmm_k1z_zmmm512b32_sae | INVALID;
    GET_MANTISSA_F32 = EVEX_Vgetmantps_zmm_k1z_zmmm512b32_imm8_sae | INVALID;
    COUNT_LEADING_ZEROS = EVEX_Vplzcntd_zmm_k1z_zmmm512b32 | INVALID;
}
