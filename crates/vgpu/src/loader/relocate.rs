//! Dynamic relocations of linked code objects.

use super::elf::{Object, Target};
use super::{ImageBuilder, LoadError, malformed};

const NONE: u32 = 0;
const ABS32_LO: u32 = 1;
const ABS32_HI: u32 = 2;
const ABS64: u32 = 3;
const REL32: u32 = 4;
const REL64: u32 = 5;
const ABS32: u32 = 6;
const GOTPCREL: u32 = 7;
const GOTPCREL32_LO: u32 = 8;
const GOTPCREL32_HI: u32 = 9;
const REL32_LO: u32 = 10;
const REL32_HI: u32 = 11;
const RELATIVE64: u32 = 13;

pub(super) fn apply(object: &Object<'_>, image: &mut ImageBuilder) -> Result<(), LoadError> {
    for relocation in &object.relocations {
        let kind = relocation.kind;
        let target = match (&relocation.target, kind) {
            (_, NONE) => continue,
            (_, RELATIVE64) => image.runtime_address(0),
            (Target::Nothing, _) => 0,
            (Target::Address(address), _) => image.runtime_address(*address),
            (Target::Undefined(name), _) => return Err(LoadError::Undefined { name: (*name).to_owned() }),
        };
        let value = target.wrapping_add_signed(relocation.addend);
        let relative = value.wrapping_sub(image.runtime_address(relocation.offset));
        let (low, high) = (|v: u64| (v as u32).to_le_bytes(), |v: u64| ((v >> 32) as u32).to_le_bytes());
        let written = match kind {
            RELATIVE64 | ABS64 => image.write(relocation.offset, &value.to_le_bytes()),
            ABS32_LO => image.write(relocation.offset, &low(value)),
            ABS32_HI => image.write(relocation.offset, &high(value)),
            ABS32 if value >> 32 == 0 => image.write(relocation.offset, &low(value)),
            ABS32 => return Err(malformed("the value of an R_AMDGPU_ABS32 relocation does not fit in 32 bits")),
            REL64 => image.write(relocation.offset, &relative.to_le_bytes()),
            REL32 | REL32_LO => image.write(relocation.offset, &low(relative)),
            REL32_HI => image.write(relocation.offset, &high(relative)),
            GOTPCREL | GOTPCREL32_LO | GOTPCREL32_HI => {
                return Err(malformed("unresolved GOT relocation in a linked code object"));
            }
            other => return Err(malformed(format!("unknown relocation type {other}"))),
        };
        written.ok_or_else(|| malformed(format!("the relocation at {:#x} is outside the image", relocation.offset)))?;
    }
    Ok(())
}
