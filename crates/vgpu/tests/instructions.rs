//! Single instructions against AMD's published pseudocode: every group names the text it is from.
//!
//! The expectations were written from the public documents alone. "AMD's pseudocode" below is the text of the instruction
//! descriptions in AMD's "CDNA" ISA guides; "the register layouts" are those of AMD's Matrix Instruction Calculator; what
//! becomes of the upper half of a register after 16-bit instructions is LLVM's `zeroesHigh16BitsOfDest`.

// Bit fields read as in AMD's text; lanes are numbers.
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
