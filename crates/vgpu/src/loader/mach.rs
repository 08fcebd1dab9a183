//! `EF_AMDGPU_MACH` names, for messages about unsupported architectures.

const MACHINES: &[(u32, &str)] = &[
    (0x2c, "gfx900"),
    (0x2d, "gfx902"),
    (0x2e, "gfx904"),
    (0x2f, "gfx906"),
    (0x30, "gfx908"),
    (0x31, "gfx909"),
    (0x32, "gfx90c"),
    (0x33, "gfx1010"),
    (0x36, "gfx1030"),
    (0x37, "gfx1031"),
    (0x38, "gfx1032"),
    (0x3f, "gfx90a"),
    (0x40, "gfx940"),
    (0x41, "gfx1100"),
    (0x44, "gfx1103"),
    (0x46, "gfx1101"),
    (0x47, "gfx1102"),
    (0x48, "gfx1200"),
    (0x4a, "gfx1151"),
    (0x43, "gfx1150"),
    (0x4b, "gfx941"),
    (0x4c, "gfx942"),
    (0x4e, "gfx1201"),
    (0x4f, "gfx950"),
    (0x51, "gfx9-generic"),
    (0x5f, "gfx9-4-generic"),
];

/// Returns the target ID that ELF's `e_flags` state (code object version 4 and later).
pub(super) fn target(flags: u32) -> String {
    let machine = flags & 0xff;
    let known = MACHINES.iter().find(|(number, _)| *number == machine);
    let mut target = known.map_or_else(|| format!("unknown AMD architecture {machine:#x}"), |(_, name)| (*name).to_owned());
    for (name, shift) in [("sramecc", 10), ("xnack", 8)] {
        match (flags >> shift) & 3 {
            OFF => target += &format!(":{name}-"),
            ON => target += &format!(":{name}+"),
            _ => {}
        }
    }
    target
}

/// Values of a feature's two bits; 0 is unsupported, 1 any.
pub(super) const OFF: u32 = 2;
pub(super) const ON: u32 = 3;
