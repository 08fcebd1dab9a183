//! Named bit fields of 32-bit hardware words.

/// Consecutive bits of a 32-bit word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BitField {
    shift: u32,
    width: u32,
}

impl BitField {
    /// The field of `width` bits (less than 32) whose lowest bit is `shift`.
    pub const fn new(shift: u32, width: u32) -> BitField {
        BitField { shift, width }
    }

    /// A single bit.
    pub const fn bit(shift: u32) -> BitField {
        BitField::new(shift, 1)
    }

    const fn mask(self) -> u32 {
        (1 << self.width) - 1
    }

    /// Returns the field's value in `word`.
    #[inline(always)]
    pub const fn get(self, word: u32) -> u32 {
        word >> self.shift & self.mask()
    }

    /// Returns whether any bit of the field is set in `word`.
    #[inline(always)]
    pub const fn is_set(self, word: u32) -> bool {
        self.get(word) != 0
    }

    /// Returns a word with `value` in this field and zeros elsewhere. Excess bits of `value` are dropped.
    pub const fn encode(self, value: u32) -> u32 {
        (value & self.mask()) << self.shift
    }

    /// Returns `word` with this field replaced by `value`. Excess bits of `value` are dropped.
    pub const fn replace(self, word: u32, value: u32) -> u32 {
        word & !(self.mask() << self.shift) | self.encode(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_reads_what_it_encodes() {
        let field = BitField::new(5, 3);
        assert_eq!((field.encode(5), field.encode(13)), (0b1010_0000, 0b1010_0000));
        assert_eq!(field.get(0xffff_ffff), 7);
        assert_eq!(field.replace(0xffff_ffff, 2), 0xffff_ff5f);
        assert!(BitField::bit(31).is_set(1 << 31) && !BitField::bit(31).is_set(!(1 << 31)));
    }
}
