//! Instruction semantics: small functions, found by mnemonic.

pub mod compare;
pub mod convert;
pub mod cross_lane;
pub mod float;
mod int;
pub mod matrix;
pub mod packed;
mod power;
mod special;
pub mod wmma;

use std::sync::{LazyLock, OnceLock};

use super::decoded::{OperandType, Step};
use super::simd::SimdVariants;
use super::valu::{Compare, LaneType, Op, arithmetic, comparison};
use super::wave::Wave;
use super::{Env, Outcome};
use crate::isa::{Field, Format, Inst, InstDesc, decode, inst_descs, operand};

/// What an instruction does, and how its sources are prepared.
pub struct Semantics {
    /// The handler for each SIMD level.
    pub variants: SimdVariants,
    /// How constant sources are encoded.
    pub types: [OperandType; 3],
    /// Whether the third source is the destination.
    pub accumulate: bool,
}

/// The semantics of a lane-wise operation.
fn lane_op<O: Op>() -> Semantics {
    Semantics { variants: arithmetic::<O>(), types: [O::A::TYPE, O::B::TYPE, O::C::TYPE], accumulate: O::ACCUMULATE }
}

fn compare_op<O: Compare>() -> Semantics {
    Semantics { variants: comparison::<O>(), types: [O::A::TYPE, O::B::TYPE, OperandType::B32], accumulate: false }
}

/// The semantics of a handler without SIMD variants.
fn single(handler: super::decoded::Handler, types: [OperandType; 3]) -> Semantics {
    Semantics { variants: [handler; 3], types, accumulate: false }
}

/// The semantics of a memory instruction, which has no constant sources.
fn memory_op(variants: SimdVariants) -> Semantics {
    Semantics { variants, types: [OperandType::B32; 3], accumulate: false }
}

/// Lane-wise operations: name, sources, result, and overrides of [`Op`](crate::exec::valu::Op).
macro_rules! ops {
    ($( $name:ident ( $($args:tt)* ) -> $out:ty $body:block $({ $($extra:tt)* })? ;)*) => {
        $( ops!(@one $name ($($args)*) $out, $body, { $($($extra)*)? }); )*

        /// Returns the semantics of the operation called `name`.
        pub fn find(name: &str) -> Option<super::Semantics> {
            Some(match name {
                $( stringify!($name) => super::lane_op::<$name>(), )*
                _ => return None,
            })
        }
    };
    (@one $name:ident ($a:ident: $A:ty) $out:ty, $body:block, { $($extra:tt)* }) => {
        ops!(@is $name, $a: $A, _b: $crate::exec::valu::Unused, _c: $crate::exec::valu::Unused, $out, $body, { $($extra)* });
    };
    (@one $name:ident ($a:ident: $A:ty, $b:ident: $B:ty) $out:ty, $body:block, { $($extra:tt)* }) => {
        ops!(@is $name, $a: $A, $b: $B, _c: $crate::exec::valu::Unused, $out, $body, { $($extra)* });
    };
    (@one $name:ident ($a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty) $out:ty, $body:block, { $($extra:tt)* }) => {
        ops!(@is $name, $a: $A, $b: $B, $c: $C, $out, $body, { $($extra)* });
    };
    (@is $name:ident, $a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty, $out:ty, $body:block, { $($extra:tt)* }) => {
        #[allow(non_camel_case_types)]
        pub struct $name;
        impl $crate::exec::valu::Op for $name {
            type A = $A;
            type B = $B;
            type C = $C;
            type D = $out;
            #[inline(always)]
            fn f($a: $A, $b: $B, $c: $C) -> $out $body
            $($extra)*
        }
    };
}
use ops;

/// What is found by the mnemonic of an instruction, for each row of the table, looked up once per process.
pub struct PerRow<T>(LazyLock<Vec<OnceLock<Option<T>>>>);

impl<T> PerRow<T> {
    pub const fn new() -> PerRow<T> {
        PerRow(LazyLock::new(|| inst_descs().iter().map(|_| OnceLock::new()).collect()))
    }

    /// Returns what `find` finds.
    pub fn get(&self, row: &'static InstDesc, find: impl FnOnce(&'static InstDesc) -> Option<T>) -> Option<&T> {
        let index = (std::ptr::from_ref(row) as usize - inst_descs().as_ptr() as usize) / size_of::<InstDesc>();
        self.0.get(index)?.get_or_init(|| find(row)).as_ref()
    }
}

/// Returns the semantics of an instruction; `None` when it is not implemented.
pub fn semantics(row: &'static InstDesc) -> Option<&'static Semantics> {
    static KNOWN: PerRow<Semantics> = PerRow::new();
    KNOWN.get(row, find)
}

fn find(row: &'static InstDesc) -> Option<Semantics> {
    let name = row.semantics;
    match row.format {
        Format::SOP1 | Format::SOP2 | Format::SOPC | Format::SOPK | Format::SOPP => super::salu::find(name).map(|handler| {
            // Constants of 64-bit scalar operands are 64 bits wide.
            let ty = |n| if row.registers(Field::Src(n)) == 2 { OperandType::B64 } else { OperandType::B32 };
            single(handler, [ty(0), ty(1), OperandType::B32])
        }),
        Format::SMEM => super::smem::find(name).map(|handler| single(handler, [OperandType::B32; 3])),
        Format::DS => super::lds::find(name).map(memory_op),
        Format::FLAT | Format::GLOBAL | Format::SCRATCH | Format::MUBUF => super::vmem::find(row).map(memory_op),
        Format::VOPC => compare::find(name),
        Format::VOP1 | Format::VOP2 | Format::VOP3 | Format::VOPDX | Format::VOPDY => int::find(name)
            .or_else(|| float::find(name))
            .or_else(|| convert::find(name))
            .or_else(|| compare::find(name))
            .or_else(|| special::find(name))
            .or_else(|| cross_lane::find(name)),
        Format::VOP3P => int::find(name).or_else(|| packed::find(name)).or_else(|| matrix::find(name)).or_else(|| wmma::find(name)),
    }
}

/// Fills in sources that the encoding omits: VCC as a carry or condition, the literal of a multiply-add.
pub fn add_implicit_operands(inst: &mut Inst) {
    let dual = matches!(inst.desc.format, Format::VOPDX | Format::VOPDY);
    if inst.desc.format != Format::VOP2 && !dual {
        return;
    }
    let field = |n: usize| inst.desc.operands.get(n).map(|operand| operand.field);
    if inst.desc.operands.last().is_some_and(|operand| operand.field == Field::Vcc) || dual && inst.desc.semantics == "v_cndmask_b32" {
        inst.src[2] = operand::VCC;
        return;
    }
    match (field(2), field(3)) {
        _ if inst.desc.semantics == "v_pk_fmac_f16" => inst.op_sel_hi = 7,
        (Some(Field::Literal), Some(_)) => {
            inst.src[2] = inst.src[1];
            inst.src[1] = operand::LITERAL;
            // The half belongs to the register, not to the literal.
            inst.op_sel = inst.op_sel & !6 | inst.op_sel << 1 & 4;
        }
        (_, Some(Field::Literal)) => inst.src[2] = operand::LITERAL,
        _ => {}
    }
}

/// Faults: the instruction is in the table but not implemented.
pub fn unsupported(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    e.unsupported(w, s, format!("instruction `{}`", s.inst.desc.name))
}

/// Faults: RDNA has no shift, rotation or broadcast across rows.
pub fn reserved_dpp(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    e.illegal(w, s, "reserved DPP control on RDNA".to_owned())
}

/// Faults: the dwords are not a valid instruction.
pub fn illegal(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let at = w.pc.saturating_sub(1);
    let why = match decode(e.code.arch, e.code.words().get(at..).unwrap_or(&[])) {
        Err(error) => error.to_string(),
        Ok(_) => "invalid encoding".to_owned(),
    };
    e.illegal(w, s, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;

    #[test]
    fn a_semantics_column_names_an_implemented_instruction() {
        for row in inst_descs().iter().filter(|row| row.semantics != row.name) {
            assert!(find(row).is_some(), "{:?} {}: {}", row.format, row.name, row.semantics);
        }
    }

    /// Instructions of the table that are not implemented.
    const UNIMPLEMENTED: &[&str] = &[
        "s_cbranch_i_fork",
        "s_cbranch_g_fork",
        "s_cbranch_join",
        "s_rfe_b64",
        "s_rfe_restore_b64",
        "s_atc_probe",
        "s_atc_probe_buffer",
        "s_dcache_discard",
        "s_dcache_discard_x2",
        "s_setvskip",
        "s_cbranch_cdbgsys",
        "s_cbranch_cdbguser",
        "s_cbranch_cdbgsys_or_user",
        "s_cbranch_cdbgsys_and_user",
        "s_endpgm_ordered_ps_done",
        "s_sethalt",
        "s_setkill",
        "s_sendmsghalt",
        "s_code_end",
        "s_subvector_loop_begin",
        "s_subvector_loop_end",
        "s_barrier_signal_isfirst",
        "s_get_barrier_state",
        "s_barrier_init",
        "s_barrier_join",
        "s_barrier_leave",
        "s_wakeup_barrier",
        "v_illegal",
        "v_screen_partition_4se_b32",
        "ds_ordered_count",
        "buffer_store_lds_dword",
        // Of GDS and of ray tracing.
        "ds_add_gs_reg_rtn",
        "ds_sub_gs_reg_rtn",
        "ds_bvh_stack_rtn_b32",
        // Compilers do not emit them.
        "global_load_dword_addtid",
        "global_store_dword_addtid",
        "global_load_addtid_b32",
        "global_store_addtid_b32",
        "global_load_block",
        "global_store_block",
        "scratch_load_block",
        "scratch_store_block",
        "global_load_tr_b128",
        "global_load_tr_b64",
        "global_atomic_ordered_add_b64",
    ];

    #[test]
    fn every_instruction_is_implemented_or_listed_as_unimplemented() {
        let missing: Vec<_> = inst_descs()
            .iter()
            .filter(|row| Arch::ALL.into_iter().any(|arch| row.supports(arch)) && find(row).is_none())
            .map(|row| row.name)
            // Typed buffers belong to graphics; compilers do not emit scalar scratch, GWS semaphores or LDS-internal atomics.
            .filter(|name| !UNIMPLEMENTED.contains(name) && !name.contains("_format_") && !name.starts_with("s_scratch_"))
            .filter(|name| !name.starts_with("ds_gws_sema_") && !name.contains("_src2_"))
            .collect();
        assert!(missing.is_empty(), "{} not implemented: {missing:?}", missing.len());
    }
}
