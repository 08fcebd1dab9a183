//! What an element is and what may be done with it, apart from how each MPI names it.

/// How an element lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Repr {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    Bf16,
    F32,
    F64,
    /// Two `f16`.
    Complex4,
    /// Two `f32`.
    Complex8,
    /// Two `f64`.
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
    /// `{ f32, f32 }`: Fortran's pair of a value and its place.
    FloatFloat,
    /// `{ f64, f64 }`
    DoubleDouble,
}

/// Which operations the MPI standard allows on an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Integers of C: arithmetic, logical and bitwise operations.
    Integer,
    /// Integers of Fortran and addresses: arithmetic and bitwise operations.
    FortranInteger,
    /// Arithmetic.
    Float,
    /// Sum and product.
    Complex,
    /// `bool` and Fortran's logical types: logical operations.
    Logical,
    /// Bitwise operations.
    Byte,
    /// Least and greatest, with their place.
    Pair,
}

/// A predefined type of MPI that this library reduces itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Element {
    pub repr: Repr,
    pub class: Class,
}

/// A predefined operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    Sum,
    Prod,
    Min,
    Max,
    Land,
    Lor,
    Lxor,
    Band,
    Bor,
    Bxor,
    MinLoc,
    MaxLoc,
}

impl Repr {
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

    /// Bytes from one element to the next.
    pub const fn size(self) -> usize {
        match self {
            Repr::I8 | Repr::U8 => 1,
            Repr::I16 | Repr::U16 | Repr::F16 | Repr::Bf16 => 2,
            Repr::I32 | Repr::U32 | Repr::F32 | Repr::Complex4 => 4,
            Repr::I64 | Repr::U64 | Repr::F64 | Repr::Complex8 | Repr::FloatInt | Repr::IntInt | Repr::ShortInt | Repr::FloatFloat => 8,
            Repr::Complex16 | Repr::DoubleInt | Repr::LongInt | Repr::DoubleDouble => 16,
        }
    }

    /// Whether bytes of an element carry nothing and must stay as they are in the receiver's memory.
    pub const fn has_padding(self) -> bool {
        matches!(self, Repr::DoubleInt | Repr::LongInt | Repr::ShortInt)
    }
}

impl Op {
    pub const ALL: [Op; 12] =
        [Op::Sum, Op::Prod, Op::Min, Op::Max, Op::Land, Op::Lor, Op::Lxor, Op::Band, Op::Bor, Op::Bxor, Op::MinLoc, Op::MaxLoc];
}

impl Element {
    /// Whether the standard allows `op` on it.
    pub const fn allows(self, op: Op) -> bool {
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
