//! Single instructions against AMD's published pseudocode; each group names its source.
//!
//! The expectations were written from public documents only. "AMD's pseudocode" is the text of the instruction descriptions in AMD's CDNA
//! ISA guides; "register layouts" are those of AMD's Matrix Instruction Calculator; whether 16-bit instructions preserve the upper half of a
//! register follows LLVM's `zeroesHigh16BitsOfDest`.

// Bit fields read as in AMD's documents, and lanes are indices.
#![allow(clippy::precedence, clippy::needless_range_loop)]

mod instructions {
    pub mod asm;
    pub mod exact;

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
    mod scalar;
    mod spaces;
}
