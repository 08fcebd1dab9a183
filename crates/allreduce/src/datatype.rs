//! Datatypes and reduction operators, independent of any MPI library's handles.

/// The memory representation of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Repr {
    /// 8-bit signed integer.
    I8,
    /// 8-bit unsigned integer.
    U8,
    /// 16-bit signed integer.
    I16,
    /// 16-bit unsigned integer.
    U16,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit signed integer.
    I64,
    /// 64-bit unsigned integer.
    U64,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Complex number of two `f16`.
    Complex4,
    /// Complex number of two `f32`.
    Complex8,
    /// Complex number of two `f64`.
    Complex16,
    /// `{ f32, i32 }`
    FloatInt,
    /// `{ f64, i32 }` and four bytes of padding.
    DoubleInt,
    /// `{ i64, i32 }` and four bytes of padding.
    LongInt,
    /// `{ i32, i32 }`
    IntInt,
    /// `{ i16, i32 }` with two bytes of padding between.
    ShortInt,
    /// `{ f32, f32 }`: Fortran's pair of value and location.
    FloatFloat,
    /// `{ f64, f64 }`
    DoubleDouble,
}

/// The class that decides which operators the MPI standard allows on a datatype.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// C integers: arithmetic, logical and bitwise operators.
    Integer,
    /// Fortran integers and multi-language types (`MPI_AINT`, …): arithmetic and bitwise operators.
    FortranInteger,
    /// Floating point: arithmetic operators.
    Float,
    /// Complex: sum and product.
    Complex,
    /// `bool` and Fortran's logical types: logical operators.
    Logical,
    /// `MPI_BYTE`: bitwise operators.
    Byte,
    /// Pairs of value and location: `MPI_MINLOC` and `MPI_MAXLOC`.
    Pair,
}

/// A predefined MPI datatype that this library reduces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Datatype {
    /// Memory representation.
    pub repr: Repr,
    /// Class of allowed operators.
    pub class: Class,
}

/// A predefined reduction operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// Sum.
    Sum,
    /// Product.
    Prod,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
    /// Logical and.
    Land,
    /// Logical or.
    Lor,
    /// Logical exclusive or.
    Lxor,
    /// Bitwise and.
    Band,
    /// Bitwise or.
    Bor,
    /// Bitwise exclusive or.
    Bxor,
    /// Minimum and its location.
    MinLoc,
    /// Maximum and its location.
    MaxLoc,
}

impl Repr {
    /// Every representation.
    pub const ALL: [Repr; 22] = [
        Repr::I8,
        Repr::U8,
        Repr::I16,
        Repr::U16,
        Repr::I32,
        Repr::U32,
        Repr::I64,
        Repr::U64,
        Repr::F16,
        Repr::Bf16,
        Repr::F32,
        Repr::F64,
        Repr::Complex4,
        Repr::Complex8,
        Repr::Complex16,
        Repr::FloatInt,
        Repr::DoubleInt,
        Repr::LongInt,
        Repr::IntInt,
        Repr::ShortInt,
        Repr::FloatFloat,
        Repr::DoubleDouble,
    ];

    /// Returns the extent in bytes.
    pub const fn size(self) -> usize {
        match self {
            Repr::I8 | Repr::U8 => 1,
            Repr::I16 | Repr::U16 | Repr::F16 | Repr::Bf16 => 2,
            Repr::I32 | Repr::U32 | Repr::F32 | Repr::Complex4 => 4,
            Repr::I64 | Repr::U64 | Repr::F64 | Repr::Complex8 | Repr::FloatInt | Repr::IntInt | Repr::ShortInt | Repr::FloatFloat => 8,
            Repr::Complex16 | Repr::DoubleInt | Repr::LongInt | Repr::DoubleDouble => 16,
        }
    }

    /// Returns whether an element contains padding, which a reduction must not overwrite in the receive buffer.
    pub const fn has_padding(self) -> bool {
        matches!(self, Repr::DoubleInt | Repr::LongInt | Repr::ShortInt)
    }
}

impl Op {
    /// Every operator.
    pub const ALL: [Op; 12] =
        [Op::Sum, Op::Prod, Op::Min, Op::Max, Op::Land, Op::Lor, Op::Lxor, Op::Band, Op::Bor, Op::Bxor, Op::MinLoc, Op::MaxLoc];
}

impl Datatype {
    /// Returns whether the MPI standard allows `op` on this datatype.
    pub const fn supports(self, op: Op) -> bool {
        let arithmetic = matches!(op, Op::Sum | Op::Prod | Op::Min | Op::Max);
        let logical = matches!(op, Op::Land | Op::Lor | Op::Lxor);
        let bitwise = matches!(op, Op::Band | Op::Bor | Op::Bxor);
        match self.class {
            Class::Integer => arithmetic || logical || bitwise,
            Class::FortranInteger => arithmetic || bitwise,
            Class::Float => arithmetic,
            Class::Complex => matches!(op, Op::Sum | Op::Prod),
            Class::Logical => logical,
            Class::Byte => bitwise,
            Class::Pair => matches!(op, Op::MinLoc | Op::MaxLoc),
        }
    }
}
