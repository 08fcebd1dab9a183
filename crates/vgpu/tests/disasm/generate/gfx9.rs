//! GFX9.

use warpwave_vgpu::isa::{Field, Format};

use super::{Encoding, Random, Shape, dpp, literal, sdst, sdwa, src, ssrc, swizzle, vgpr};

/// Every encoding: its fixed bits, and the size of its opcode space.
pub const ENCODINGS: [Encoding; 16] = [
    (Format::SOP2, 0b10 << 30, 96),
    (Format::SOPK, 0b1011 << 28, 29),
    (Format::SOP1, 0b1_0111_1101 << 23, 256),
    (Format::SOPC, 0b1_0111_1110 << 23, 128),
    (Format::SOPP, 0b1_0111_1111 << 23, 128),
    (Format::SMEM, 0b110000 << 26, 256),
    (Format::VOP2, 0, 62),
    (Format::VOP1, 0b0111111 << 25, 256),
    (Format::VOPC, 0b0111110 << 25, 256),
    (Format::VOP3, 0b110100 << 26, 896),
    (Format::VOP3P, 0b1_1010_0111 << 23, 128),
    (Format::DS, 0b110110 << 26, 256),
    (Format::MUBUF, 0b111000 << 26, 128),
    (Format::FLAT, 0b110111 << 26, 128),
    (Format::SCRATCH, 0b110111 << 26 | 1 << 14, 128),
    (Format::GLOBAL, 0b110111 << 26 | 2 << 14, 128),
];

/// Returns two dwords with random fields.
pub fn fields(random: &mut Random, shape: &Shape, format: Format, opcode: u32) -> Vec<u32> {
    let (first, second) = match format {
        Format::SOP2 => (opcode << 23 | sdst(random) << 16 | ssrc(random) << 8 | ssrc(random), literal(random)),
        Format::SOP1 => {
            let first = opcode << 8 | shape.keep(Field::Dst, sdst(random)) << 16 | shape.keep(Field::Src(0), ssrc(random));
            (first, literal(random))
        }
        Format::SOPC => (opcode << 16 | ssrc(random) << 8 | ssrc(random), literal(random)),
        Format::SOPK => (opcode << 23 | sdst(random) << 16 | random.below(0x10000), literal(random)),
        Format::SOPP => {
            let bits = match random.below(4) {
                0 => random.below(0x10000),
                1 => random.below(0x10000) & 0x37f,
                2 => random.below(0x400) & 0x33f,
                _ => random.below(16),
            };
            (opcode << 16 | shape.keep(Field::Imm, bits), 0)
        }
        Format::SMEM => {
            let offset = if random.once_in(2) { random.below(1 << 21) } else { sdst(random) };
            let control = random.below(2) << 14 | random.rare(1) << 16 | random.below(2) << 17;
            let first = opcode << 18 | control | sdst(random) << 6 | random.below(50);
            let second = if control >> 14 & 1 != 0 { sdst(random) << 25 } else { 0 } | offset;
            match shape.row {
                // Without an address there is only a destination.
                None if random.once_in(2) => (opcode << 18, 0),
                Some(row) if row.registers(Field::Base) == 0 && !shape.loose => {
                    (opcode << 18 | shape.keep(Field::Dst, sdst(random)) << 6, 0)
                }
                _ => (first, second),
            }
        }
        Format::VOP1 | Format::VOP2 | Format::VOPC => {
            let (low, second) = match random.below(4) {
                _ if random.tame => (shape.keep(Field::Src(0), src(random)), literal(random)),
                0 => (249, sdwa(random, format)),
                1 => (250, dpp(random)),
                _ => (src(random), literal(random)),
            };
            let first = match format {
                Format::VOP1 => opcode << 9 | shape.keep(Field::Dst, if opcode == 2 { sdst(random) } else { vgpr(random) }) << 17,
                Format::VOP2 => opcode << 25 | vgpr(random) << 17 | vgpr(random) << 9,
                _ => opcode << 17 | vgpr(random) << 9,
            };
            let first = if low == 249 && second >> 31 != 0 && format != Format::VOP1 {
                first & !(0xff << 9) | (ssrc(random) % 250) << 9
            } else {
                first
            };
            (first | low, second)
        }
        Format::VOP3 => {
            // Compares and lane reads have a scalar destination.
            let destination = if opcode < 256 || opcode == 649 { sdst(random) } else { vgpr(random) };
            // VOP3B has a scalar destination in place of modifiers.
            let wide = matches!(opcode, 281..=286 | 480 | 481 | 488 | 489);
            let middle = if wide { sdst(random) } else { random.rare(3) | random.rare(4) << 3 };
            let third = if opcode == 256 || (281..=286).contains(&opcode) { sdst(random) } else { src(random) };
            let first = opcode << 16 | random.rare(1) << 15 | middle << 8 | shape.keep(Field::Dst, destination);
            let scalar = |random: &mut Random, when: bool| if when { ssrc(random) } else { src(random) };
            let sources = [scalar(random, opcode == 650), scalar(random, matches!(opcode, 649 | 650)), third];
            let sources = (0..3).fold(0, |all, n| all | shape.keep(Field::Src(n), sources[usize::from(n)]) << (9 * n));
            (first, sources | random.rare(2) << 27 | random.rare(3) << 29)
        }
        Format::VOP3P => {
            let first =
                opcode << 16 | random.rare(1) << 15 | random.rare(3) << 8 | random.rare(3) << 11 | random.below(2) << 14 | vgpr(random);
            // Matrices are in vector registers.
            let sources = (0..3).fold(0, |all, n| {
                let vector = (62..88).contains(&opcode) || opcode > 89 || opcode == 88 && n == 0;
                let inline = n == 2 && !random.tame && random.once_in(4);
                let value = match (vector, inline) {
                    (true, false) => 256 + vgpr(random),
                    (true, true) => 128 + random.below(81),
                    _ => src(random),
                };
                all | shape.keep(Field::Src(n), value) << (9 * n)
            });
            (first, sources | random.below(4) << 27 | random.rare(3) << 29)
        }
        Format::DS => {
            let first = opcode << 17 | random.rare(1) << 25 | random.rare(1) << 16 | random.rare(8) << 8 | random.rare(8);
            // GWS instructions have the GDS bit set.
            let first = first | if matches!(opcode, 152..=157 | 191) && (random.tame || !random.once_in(8)) { 1 << 16 } else { 0 };
            let first = if opcode == 61 { first & !0xffff | swizzle(random) } else { first };
            let registers = [Field::Addr, Field::Data0, Field::Data1, Field::Dst].map(|field| shape.keep(field, vgpr(random)));
            (first, registers[0] | registers[1] << 8 | registers[2] << 16 | registers[3] << 24)
        }
        Format::MUBUF => {
            let first = opcode << 18 | random.rare(12) | random.below(if random.tame { 4 } else { 8 }) << 12 | random.rare(3) << 15;
            let offset = if random.once_in(3) { ssrc(random) % 255 } else { sdst(random) };
            match shape.row {
                None if random.once_in(2) => (opcode << 18, 0),
                Some(row) if row.name == "buffer_store_lds_dword" && !shape.loose => {
                    (opcode << 18 | random.rare(12) | 1 << 16 | random.rare(1) << 17, random.below(25) << 16 | sdst(random) << 24)
                }
                Some(row) if row.operands.is_empty() && !shape.loose => (opcode << 18 | random.rare(4) << 14, 0),
                _ => (first, vgpr(random) | vgpr(random) << 8 | random.below(32) << 16 | random.rare(1) << 23 | offset << 24),
            }
        }
        Format::FLAT | Format::SCRATCH | Format::GLOBAL => {
            let offset = random.rare(12) | if format == Format::FLAT { 0 } else { random.rare(2) << 12 };
            let first = opcode << 18 | offset | if random.tame { 0 } else { random.below(4) << 16 } | random.rare(1) << 25;
            let base = match (format, random.once_in(2)) {
                (Format::FLAT, _) if !shape.loose => 0,
                (_, true) => 0x7f,
                _ => sdst(random),
            };
            // An atomic has a destination only with `glc`.
            let returns = !(64..109).contains(&opcode) || first >> 16 & 1 != 0;
            let destination = if returns { shape.keep(Field::Dst, vgpr(random)) } else { 0 };
            let data = shape.keep(Field::Data0, vgpr(random));
            // An unused address is 0 too.
            let address = if format == Format::SCRATCH && random.once_in(2) { 0 } else { vgpr(random) };
            (first, address | data << 8 | base << 16 | random.rare(1) << 23 | destination << 24)
        }
        Format::VOPDX | Format::VOPDY => unreachable!("GFX9 has no VOPD"),
    };
    vec![first, second]
}
