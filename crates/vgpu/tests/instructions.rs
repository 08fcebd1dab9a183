//! Single instructions against AMD's published pseudocode; each group names its source.
//!
//! The expectations were written from public documents only. "AMD's pseudocode" is the text of the instruction descriptions in AMD's CDNA
//! and RDNA 3 ISA guides; "register layouts" are those of AMD's Matrix Instruction Calculator; whether 16-bit instructions preserve the
//! upper half of a register follows LLVM's `zeroesHigh16BitsOfDest`.

// Bit fields read as in AMD's documents, and lanes are indices.
#![allow(clippy::precedence, clippy::needless_range_loop)]

mod instructions {
    pub mod asm;
    pub mod exact;
    pub mod rdna_asm;

    mod approximate;
    mod compare;
    mod control;
    mod convert;
    mod coverage;
    mod division;
    mod float;
    mod int;
    mod lanes;
    mod matrix;
    mod memory;
    mod operands;
    mod packed;
    mod rdna;
    mod rdna_coverage;
    mod rdna_dual;
    mod rdna_lanes;
    mod rdna_matrix;
    mod rdna_memory;
    mod rdna_parity;
    mod scalar;
    mod spaces;
    mod table;
    mod wmma;
}
