//! Handles of the predefined datatypes and operators in each ABI.
//!
//! Open MPI's handles are addresses of global variables; those of MPICH and the MPI-5 standard are integer constants of the ABI, 0 if
//! the ABI lacks the handle. Datatypes that are not listed (`long double` and its complex types, which GPUs lack) go to the MPI library.

use crate::datatype::{Class, Datatype, Op, Repr};

/// The handles of a predefined datatype.
pub struct DatatypeHandles {
    pub datatype: Datatype,
    pub openmpi: &'static str,
    pub mpich: u32,
    pub standard: u32,
}

/// The handles of a predefined operator.
pub struct OpHandles {
    pub op: Op,
    pub openmpi: &'static str,
    pub mpich: u32,
    pub standard: u32,
}

const fn ty(class: Class, repr: Repr, openmpi: &'static str, mpich: u32, standard: u32) -> DatatypeHandles {
    DatatypeHandles { datatype: Datatype { repr, class }, openmpi, mpich, standard }
}

const fn op(op: Op, openmpi: &'static str, mpich: u32, standard: u32) -> OpHandles {
    OpHandles { op, openmpi, mpich, standard }
}

use Class::{Byte, Complex, Float, FortranInteger, Integer, Logical, Pair};
use Repr::*;

#[rustfmt::skip]
pub const DATATYPES: &[DatatypeHandles] = &[
    // C. The standard excludes `char` from arithmetic, but every MPI library accepts it.
    ty(Integer, I8, "ompi_mpi_char", 0x4c00_0101, 0x243),
    ty(Integer, I8, "ompi_mpi_signed_char", 0x4c00_0118, 0x244),
    ty(Integer, U8, "ompi_mpi_unsigned_char", 0x4c00_0102, 0x245),
    ty(Byte, U8, "ompi_mpi_byte", 0x4c00_010d, 0x247),
    ty(Integer, I16, "ompi_mpi_short", 0x4c00_0203, 0x208),
    ty(Integer, U16, "ompi_mpi_unsigned_short", 0x4c00_0204, 0x20c),
    ty(Integer, I32, "ompi_mpi_int", 0x4c00_0405, 0x209),
    ty(Integer, U32, "ompi_mpi_unsigned", 0x4c00_0406, 0x20d),
    ty(Integer, I64, "ompi_mpi_long", 0x4c00_0807, 0x20a),
    ty(Integer, U64, "ompi_mpi_unsigned_long", 0x4c00_0808, 0x20e),
    ty(Integer, I64, "ompi_mpi_long_long_int", 0x4c00_0809, 0x20b),
    ty(Integer, U64, "ompi_mpi_unsigned_long_long", 0x4c00_0819, 0x20f),
    ty(Integer, I8, "ompi_mpi_int8_t", 0x4c00_0137, 0x240),
    ty(Integer, U8, "ompi_mpi_uint8_t", 0x4c00_013b, 0x241),
    ty(Integer, I16, "ompi_mpi_int16_t", 0x4c00_0238, 0x248),
    ty(Integer, U16, "ompi_mpi_uint16_t", 0x4c00_023c, 0x249),
    ty(Integer, I32, "ompi_mpi_int32_t", 0x4c00_0439, 0x250),
    ty(Integer, U32, "ompi_mpi_uint32_t", 0x4c00_043d, 0x251),
    ty(Integer, I64, "ompi_mpi_int64_t", 0x4c00_083a, 0x258),
    ty(Integer, U64, "ompi_mpi_uint64_t", 0x4c00_083e, 0x259),
    ty(Float, F16, "ompi_mpi_short_float", 0x4c00_0246, 0),
    ty(Float, Bf16, "", 0x4c00_024c, 0),
    ty(Float, F32, "ompi_mpi_float", 0x4c00_040a, 0x210),
    ty(Float, F64, "ompi_mpi_double", 0x4c00_080b, 0x214),
    ty(Logical, U8, "ompi_mpi_c_bool", 0x4c00_013f, 0x238),
    ty(Complex, Complex8, "ompi_mpi_c_complex", 0x4c00_0840, 0x212),
    ty(Complex, Complex8, "ompi_mpi_c_float_complex", 0x4c00_0840, 0x212),
    ty(Complex, Complex16, "ompi_mpi_c_double_complex", 0x4c00_1041, 0x216),
    ty(FortranInteger, I64, "ompi_mpi_aint", 0x4c00_0843, 0x201),
    ty(FortranInteger, I64, "ompi_mpi_offset", 0x4c00_0844, 0x203),
    ty(FortranInteger, I64, "ompi_mpi_count", 0x4c00_0845, 0x202),
    ty(Pair, FloatInt, "ompi_mpi_float_int", 0x8c00_0000, 0x228),
    ty(Pair, DoubleInt, "ompi_mpi_double_int", 0x8c00_0001, 0x229),
    ty(Pair, LongInt, "ompi_mpi_long_int", 0x8c00_0002, 0x22a),
    ty(Pair, ShortInt, "ompi_mpi_short_int", 0x8c00_0003, 0x22c),
    ty(Pair, IntInt, "ompi_mpi_2int", 0x4c00_0816, 0x22b),
    // C++
    ty(Logical, U8, "ompi_mpi_cxx_bool", 0x4c00_0133, 0x239),
    ty(Complex, Complex8, "ompi_mpi_cxx_cplex", 0x4c00_0834, 0x213),
    ty(Complex, Complex16, "ompi_mpi_cxx_dblcplex", 0x4c00_1035, 0x217),
    // Fortran
    ty(FortranInteger, I32, "ompi_mpi_integer", 0x4c00_041b, 0x219),
    ty(FortranInteger, I8, "ompi_mpi_integer1", 0x4c00_012d, 0x2c1),
    ty(FortranInteger, I16, "ompi_mpi_integer2", 0x4c00_022f, 0x2c9),
    ty(FortranInteger, I32, "ompi_mpi_integer4", 0x4c00_0430, 0x2d1),
    ty(FortranInteger, I64, "ompi_mpi_integer8", 0x4c00_0831, 0x2d9),
    ty(Float, F16, "", 0x4c00_0226, 0x2ca),
    ty(Float, F32, "ompi_mpi_real", 0x4c00_041c, 0x21a),
    ty(Float, F32, "ompi_mpi_real4", 0x4c00_0427, 0x2d2),
    ty(Float, F64, "ompi_mpi_dblprec", 0x4c00_081f, 0x21c),
    ty(Float, F64, "ompi_mpi_real8", 0x4c00_0829, 0x2da),
    ty(Complex, Complex4, "", 0x4c00_042e, 0x2d3),
    ty(Complex, Complex8, "ompi_mpi_cplex", 0x4c00_081e, 0x21b),
    ty(Complex, Complex8, "ompi_mpi_complex8", 0x4c00_0828, 0x2db),
    ty(Complex, Complex16, "ompi_mpi_dblcplex", 0x4c00_1022, 0x21d),
    ty(Complex, Complex16, "ompi_mpi_complex16", 0x4c00_102a, 0x2e3),
    ty(Logical, I32, "ompi_mpi_logical", 0x4c00_041d, 0x218),
    ty(Logical, I8, "ompi_mpi_logical1", 0x4c00_0147, 0x2c0),
    ty(Logical, I16, "ompi_mpi_logical2", 0x4c00_0248, 0x2c8),
    ty(Logical, I32, "ompi_mpi_logical4", 0x4c00_0449, 0x2d0),
    ty(Logical, I64, "ompi_mpi_logical8", 0x4c00_084a, 0x2d8),
    ty(Pair, FloatFloat, "ompi_mpi_2real", 0x4c00_0821, 0x230),
    ty(Pair, DoubleDouble, "ompi_mpi_2dblprec", 0x4c00_1023, 0x231),
    ty(Pair, IntInt, "ompi_mpi_2integer", 0x4c00_0820, 0x232),
];

#[rustfmt::skip]
pub const OPS: &[OpHandles] = &[
    op(Op::Max, "ompi_mpi_op_max", 0x5800_0001, 0x23),
    op(Op::Min, "ompi_mpi_op_min", 0x5800_0002, 0x22),
    op(Op::Sum, "ompi_mpi_op_sum", 0x5800_0003, 0x21),
    op(Op::Prod, "ompi_mpi_op_prod", 0x5800_0004, 0x24),
    op(Op::Land, "ompi_mpi_op_land", 0x5800_0005, 0x30),
    op(Op::Band, "ompi_mpi_op_band", 0x5800_0006, 0x28),
    op(Op::Lor, "ompi_mpi_op_lor", 0x5800_0007, 0x31),
    op(Op::Bor, "ompi_mpi_op_bor", 0x5800_0008, 0x29),
    op(Op::Lxor, "ompi_mpi_op_lxor", 0x5800_0009, 0x32),
    op(Op::Bxor, "ompi_mpi_op_bxor", 0x5800_000a, 0x2a),
    op(Op::MinLoc, "ompi_mpi_op_minloc", 0x5800_000b, 0x38),
    op(Op::MaxLoc, "ompi_mpi_op_maxloc", 0x5800_000c, 0x39),
];
