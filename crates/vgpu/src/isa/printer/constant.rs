//! Inline constants and literals.

use crate::isa::operand;

/// How an operand's bits are read, as far as its text depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConstKind {
    /// 32 bits of either sort: LLVM writes both alike.
    Bits32,
    /// An integer of 16 bits.
    Int16,
    /// A half.
    Half,
    /// Two halves: a literal is both, an inline constant the lower one.
    Halves,
    /// An integer of 64 bits.
    Int64,
    /// A double: a literal is its high half.
    Double,
}

/// The constants 240 to 248, as they are written and as bits of a float and a half.
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

/// Whether an operand number is a constant, inline or literal.
pub(super) fn is_constant(number: u16) -> bool {
    matches!(number, operand::INLINE..=208 | 240..=248 | operand::LITERAL)
}

/// An inline constant by its number.
pub(super) fn inline(number: u16, kind: ConstKind) -> Option<String> {
    match number {
        operand::INLINE..=192 => Some((number - operand::INLINE).to_string()),
        193..=208 => Some(format!("-{}", number - 192)),
        240..=248 => {
            let (name, _, half) = FLOATS[usize::from(number - 240)];
            Some(match kind {
                ConstKind::Int64 | ConstKind::Double if number == 248 => "0.15915494309189532".to_owned(),
                ConstKind::Int16 => format!("{half:#x}"),
                _ => name.to_owned(),
            })
        }
        _ => None,
    }
}

/// A literal. LLVM does not tell one that has the value of an inline constant from that constant.
pub(super) fn literal(value: u32, kind: ConstKind) -> String {
    match kind {
        ConstKind::Bits32 => common(value).unwrap_or_else(|| format!("{value:#x}")),
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

/// The inline constant that has these bits as a half.
fn half(value: u32) -> Option<&'static str> {
    FLOATS.iter().find(|(.., half)| u32::from(*half) == value).map(|(name, ..)| *name)
}

/// What 32 bits have as an inline constant.
fn common(value: u32) -> Option<String> {
    let float = || FLOATS.iter().find(|(_, bits, _)| *bits == value).map(|(name, ..)| (*name).to_owned());
    small(i64::from(value as i32)).or_else(float)
}

/// Integers that have an inline constant are written in decimal.
fn small(value: i64) -> Option<String> {
    (-16..=64).contains(&value).then(|| value.to_string())
}
