//! Inline constants and literals.

use crate::isa::operand;

/// The type of an operand, as far as its text depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConstKind {
    /// 32 bits, integer or float: LLVM prints both alike.
    Bits32,
    /// 32 bits whose literal always prints as a number.
    Number,
    /// A 16-bit integer.
    Int16,
    /// An f16.
    Half,
    /// Packed f16.
    Halves,
    /// A bf16.
    Bfloat,
    /// Packed bf16.
    Bfloats,
    /// A 64-bit integer.
    Int64,
    /// An f64; a literal is the high half.
    Double,
}

/// The inline floats: text, f32 bits, f16 bits.
const FLOATS: [(&str, u32, u16); 9] = [
    ("0.5", 0x3f00_0000, 0x3800),
    ("-0.5", 0xbf00_0000, 0xb800),
    ("1.0", 0x3f80_0000, 0x3c00),
    ("-1.0", 0xbf80_0000, 0xbc00),
    ("2.0", 0x4000_0000, 0x4000),
    ("-2.0", 0xc000_0000, 0xc000),
    ("4.0", 0x4080_0000, 0x4400),
    ("-4.0", 0xc080_0000, 0xc400),
    ("0.15915494", 0x3e22_f983, 0x3118),
];

/// Returns whether an operand is an inline constant or a literal.
pub(super) fn is_constant(number: u16) -> bool {
    matches!(number, operand::INLINE..=operand::INLINE_INT_MIN | operand::INLINE_FLOAT..=operand::INLINE_INV_2PI | operand::LITERAL)
}

/// Prints an inline constant.
pub(super) fn inline(number: u16, kind: ConstKind) -> Option<String> {
    match number {
        operand::INLINE..=operand::INLINE_INT_MAX => Some((number - operand::INLINE).to_string()),
        operand::INLINE_INT_MINUS_1..=operand::INLINE_INT_MIN => Some(format!("-{}", number - operand::INLINE_INT_MAX)),
        operand::INLINE_FLOAT..=operand::INLINE_INV_2PI => {
            let (name, _, half) = FLOATS[usize::from(number - operand::INLINE_FLOAT)];
            Some(match kind {
                ConstKind::Int64 | ConstKind::Double if number == operand::INLINE_INV_2PI => "0.15915494309189532".to_owned(),
                ConstKind::Int16 => format!("{half:#x}"),
                _ => name.to_owned(),
            })
        }
        _ => None,
    }
}

/// Prints a literal. LLVM prints one that equals an inline constant like that constant.
pub(super) fn literal(value: u32, kind: ConstKind) -> String {
    match kind {
        ConstKind::Bits32 => common(value).unwrap_or_else(|| format!("{value:#x}")),
        ConstKind::Number => format!("{value:#x}"),
        ConstKind::Int16 => common(value).unwrap_or_else(|| format!("{:#x}", value & 0xffff)),
        ConstKind::Halves => match (small(i64::from(value as i32)), half(value)) {
            (Some(text), _) => text,
            (None, Some(name)) => name.to_owned(),
            (None, None) => format!("{value:#x}"),
        },
        ConstKind::Half => match small(i64::from(value as i16)) {
            Some(text) => text,
            None => half(value & 0xffff).map_or_else(|| format!("{:#x}", value & 0xffff), str::to_owned),
        },
        ConstKind::Bfloat => match (small(i64::from(value as i16)), bfloat(value & 0xffff)) {
            (Some(text), _) => text,
            (None, Some(name)) => name.to_owned(),
            (None, None) => format!("{value:#x}"),
        },
        ConstKind::Bfloats => match (small(i64::from(value as i32)), bfloat(value)) {
            (Some(text), _) => text,
            (None, Some(name)) => name.to_owned(),
            (None, None) => format!("{value:#x}"),
        },
        ConstKind::Int64 => small(i64::from(value)).unwrap_or_else(|| format!("{value:#x}")),
        ConstKind::Double => {
            let bits = u64::from(value) << 32;
            let same = FLOATS[..8].iter().find(|(name, ..)| name.parse::<f64>().is_ok_and(|number| number.to_bits() == bits));
            match same {
                _ if value == 0 => "0".to_owned(),
                Some((name, ..)) => (*name).to_owned(),
                None => format!("{value:#x}"),
            }
        }
    }
}

/// Returns the inline float with these f16 bits.
fn half(value: u32) -> Option<&'static str> {
    FLOATS.iter().find(|(.., half)| u32::from(*half) == value).map(|(name, ..)| *name)
}

/// Returns the inline float with these bf16 bits.
fn bfloat(value: u32) -> Option<&'static str> {
    FLOATS.iter().find(|(_, bits, _)| bits >> 16 == value).map(|(name, ..)| *name)
}

/// Prints 32 bits that equal an inline constant.
fn common(value: u32) -> Option<String> {
    let float = || FLOATS.iter().find(|(_, bits, _)| *bits == value).map(|(name, ..)| (*name).to_owned());
    small(i64::from(value as i32)).or_else(float)
}

/// Prints integers that have an inline constant, in decimal.
fn small(value: i64) -> Option<String> {
    (-16..=64).contains(&value).then(|| value.to_string())
}
