//! RDNA.

use warpwave_vgpu::arch::Generation;
use warpwave_vgpu::isa::{Field, Format, Half, Operand, inst_descs};
use warpwave_vgpu::{Target, WaveSize};

use super::{Encoding, Random, Shape, dpp, literal, sdst, sdwa, src, ssrc, swizzle, vgpr};

/// The encodings that are the same in every generation.
const COMMON: [Encoding; 11] = [
    (Format::SOP2, 0b10 << 30, 96),
    (Format::SOPK, 0b1011 << 28, 29),
    (Format::SOP1, 0b1_0111_1101 << 23, 256),
    (Format::SOPC, 0b1_0111_1110 << 23, 128),
    (Format::SOPP, 0b1_0111_1111 << 23, 128),
    (Format::VOP2, 0, 62),
    (Format::VOP1, 0b0111111 << 25, 256),
    (Format::VOPC, 0b0111110 << 25, 256),
    (Format::VOP3, 0b110101 << 26, 1024),
    (Format::VOP3P, 0b1_1001_1000 << 23, 128),
    (Format::DS, 0b110110 << 26, 256),
];

/// Returns every encoding.
pub fn encodings(target: Target) -> Vec<Encoding> {
    let segments: [u32; 3] = match target.arch.generation() {
        Generation::Gfx12 => [0xec << 24, 0xed << 24, 0xee << 24],
        generation => {
            let at = if generation == Generation::Gfx11 { 16 } else { 14 };
            [0, 1, 2].map(|segment| 0b110111 << 26 | segment << at)
        }
    };
    let gfx12 = target.arch.generation() == Generation::Gfx12;
    let mut all = COMMON.to_vec();
    all.extend([Format::FLAT, Format::SCRATCH, Format::GLOBAL].into_iter().zip(segments).map(|(format, bits)| (format, bits, 128)));
    all.push((Format::SMEM, 0b111101 << 26, if gfx12 { 64 } else { 256 }));
    all.push((Format::MUBUF, (if gfx12 { 0b110001 } else { 0b111000 }) << 26, if gfx12 { 128 } else { 256 }));
    if target.arch.generation() >= Generation::Gfx11 && target.wave_size == WaveSize::Wave32 {
        all.extend([(Format::VOPDX, 0b110010 << 26, 16), (Format::VOPDY, 0b110010 << 26, 32)]);
    }
    all
}

/// Returns a source of VOP3, by what the table says of it.
fn vector_source(random: &mut Random, shape: &Shape, n: u8) -> u32 {
    let operand = shape.operand(Field::Src(n));
    let value = match operand {
        Some(operand) if operand.scalar => ssrc(random),
        Some(operand) if operand.registers > 2 => 256 + vgpr(random),
        _ => src(random),
    };
    shape.keep(Field::Src(n), value)
}

/// Returns a VGPR of VOP1, VOP2 and VOPC. LLVM 19 rejects the high halves of most.
fn short_vgpr(random: &mut Random, operand: Option<&Operand>) -> u32 {
    let half = operand.is_some_and(|operand| operand.half == Half::Named);
    if half && !random.once_in(8) { vgpr(random) % 128 } else { vgpr(random) }
}

/// Returns the cache policy bits of gfx12's second dword.
fn policy(random: &mut Random) -> u32 {
    random.rare(2) << 18 | random.rare(3) << 20
}

/// Returns three dwords with random fields.
pub fn fields(random: &mut Random, shape: &Shape, target: Target, format: Format, opcode: u32) -> Vec<u32> {
    let generation = target.arch.generation();
    let gfx12 = generation == Generation::Gfx12;
    let null = if generation == Generation::Gfx10 { 125 } else { 124 };
    let two = |first: u32, second: u32| vec![first, second, 0];
    match format {
        Format::SOP2 => two(opcode << 23 | sdst(random) << 16 | ssrc(random) << 8 | ssrc(random), literal(random)),
        Format::SOP1 => {
            let source = if shape.operand(Field::Imm).is_some() { random.below(256) } else { shape.keep(Field::Src(0), ssrc(random)) };
            two(opcode << 8 | shape.keep(Field::Dst, sdst(random)) << 16 | source, literal(random))
        }
        Format::SOPC => two(opcode << 16 | ssrc(random) << 8 | ssrc(random), literal(random)),
        Format::SOPK => two(opcode << 23 | shape.keep(Field::Dst, sdst(random)) << 16 | random.below(0x10000), literal(random)),
        Format::SOPP => {
            let bits = match random.below(5) {
                0 => random.below(0x10000),
                1 => random.below(0x10000) & 0x37f,
                2 => random.below(0x10000) & 0xff9f,
                3 => random.below(0x5a0) & 0x5bb,
                _ => random.below(16),
            };
            two(opcode << 16 | shape.keep(Field::Imm, bits), 0)
        }
        Format::SMEM => {
            let width = if gfx12 { 24 } else { 21 };
            let offset = if random.once_in(4) { 0 } else { random.below(1 << width) };
            let offset = offset | if random.tame || random.once_in(2) { null } else { sdst(random) } << 25;
            let (at, flags) = match generation {
                Generation::Gfx10 => (18, random.rare(1) << 14 | random.rare(1) << 16),
                Generation::Gfx11 => (18, random.rare(1) << 13 | random.rare(1) << 14),
                _ => (13, random.rare(2) << 21 | random.rare(2) << 23),
            };
            match shape.row {
                // Without an address there is only a destination.
                None if random.once_in(2) => two(opcode << at, 0),
                Some(row) if row.registers(Field::Base) == 0 && row.registers(Field::Imm) == 0 && !shape.loose => {
                    two(opcode << at | shape.keep(Field::Dst, sdst(random)) << 6, 0)
                }
                _ => two(opcode << at | flags | sdst(random) << 6 | shape.keep(Field::Base, random.below(50)), offset),
            }
        }
        Format::VOP1 | Format::VOP2 | Format::VOPC => {
            let (low, second) = match random.below(6) {
                _ if random.tame => (shape.keep(Field::Src(0), 256 + short_vgpr(random, shape.operand(Field::Src(0)))), literal(random)),
                0 => (249, sdwa(random, format)),
                1 => (250, dpp(random)),
                2 => (233 + random.below(2), random.word() & !0xff | short_vgpr(random, shape.operand(Field::Src(0)))),
                3 => (256 + short_vgpr(random, shape.operand(Field::Src(0))), literal(random)),
                _ => (src(random), literal(random)),
            };
            let scalar = shape.operand(Field::Dst).is_some_and(|operand| operand.scalar);
            let destination = if scalar { sdst(random) } else { short_vgpr(random, shape.operand(Field::Dst)) };
            let other = match low == 249 && second >> 31 != 0 && format != Format::VOP1 {
                true => ssrc(random) % 250,
                false => short_vgpr(random, shape.operand(Field::Src(1))),
            };
            let first = match format {
                Format::VOP1 => opcode << 9 | shape.keep(Field::Dst, destination) << 17,
                Format::VOP2 => opcode << 25 | shape.keep(Field::Dst, destination) << 17 | shape.keep(Field::Src(1), other) << 9,
                _ => opcode << 17 | other << 9,
            };
            two(first | low, second)
        }
        Format::VOP3 => {
            let scalar = shape.operand(Field::Dst).is_some_and(|operand| operand.scalar);
            let destination = shape.keep(Field::Dst, if scalar { sdst(random) } else { vgpr(random) });
            // VOP3B has a scalar destination in place of modifiers.
            let middle = match shape.operand(Field::Sdst) {
                Some(_) => sdst(random),
                None => random.rare(3) | random.rare(4) << 3,
            };
            let first = opcode << 16 | random.rare(1) << 15 | middle << 8 | destination;
            let mut sources: Vec<u32> = (0..3).map(|n| vector_source(random, shape, n)).collect();
            let third = extension(random, &mut sources[0]);
            let packed = sources[0] | sources[1] << 9 | sources[2] << 18;
            vec![first, packed | random.rare(2) << 27 | random.rare(3) << 29, third]
        }
        Format::VOP3P => {
            // Matrix instructions and dot products of fp8 have few modifiers.
            let fixed = shape.row.is_some_and(|row| ["wmma", "dot4_f32"].iter().any(|part| row.name.contains(part)));
            let matrix = fixed || shape.row.is_some_and(|row| row.name.contains("swmmac"));
            let modifiers = random.rare(1) << 15 | random.rare(3) << 8 | random.rare(3) << 11 | random.below(2) << 14;
            let (modifiers, high, neg) = match random.below(4) {
                0 if !random.tame => (modifiers, random.below(4), random.rare(3)),
                1 if matrix && !random.tame => (1 << 14 | random.rare(1) << 15 | random.rare(2) << 11, 3, random.rare(2)),
                _ if matrix => (1 << 14 | if fixed { 0 } else { random.rare(2) << 11 }, 3, 0),
                _ => (modifiers, random.below(4), random.rare(3)),
            };
            let mut sources: Vec<u32> = (0..3).map(|n| vector_source(random, shape, n)).collect();
            if fixed && !random.tame && random.once_in(4) {
                sources[2] = 128 + random.below(81);
            }
            let third = extension(random, &mut sources[0]);
            let packed = sources[0] | sources[1] << 9 | sources[2] << 18;
            vec![opcode << 16 | modifiers | vgpr(random), packed | high << 27 | neg << 29, third]
        }
        Format::VOPDX | Format::VOPDY => {
            let known = |wanted| inst_descs().iter().filter(move |row| row.format == wanted && row.supports(target.arch));
            let other = |random: &mut Random, wanted| {
                let all: Vec<u32> = known(wanted).map(|row| u32::from(row.opcode)).collect();
                random.pick(&all)
            };
            let (x, y) = match format {
                Format::VOPDX => (opcode, other(random, Format::VOPDY)),
                _ => (other(random, Format::VOPDX), opcode),
            };
            let uses = |format, opcode: u32| known(format).any(|row| u32::from(row.opcode) == opcode && row.registers(Field::Src(1)) > 0);
            let second_x = if uses(Format::VOPDX, x) { vgpr(random) } else { 0 };
            let second_y = if uses(Format::VOPDY, y) { vgpr(random) } else { 0 };
            let first = x << 22 | y << 17 | src(random) | second_x << 9;
            vec![first, src(random) | second_y << 9 | random.below(128) << 17 | vgpr(random) << 24, literal(random)]
        }
        Format::DS => {
            let gws = shape.row.is_some_and(|row| ["_gws_", "_gs_reg_", "ordered_count"].iter().any(|part| row.name.contains(part)));
            let gds = if gws && (random.tame || !random.once_in(8)) { 1 } else { random.rare(1) };
            let offset = match shape.row {
                Some(row) if row.name == "ds_swizzle_b32" => swizzle(random),
                _ => random.rare(8) << 8 | random.rare(8),
            };
            let registers = [Field::Addr, Field::Data0, Field::Data1, Field::Dst].map(|field| shape.keep(field, vgpr(random)));
            two(opcode << 18 | gds << 17 | offset, registers[0] | registers[1] << 8 | registers[2] << 16 | registers[3] << 24)
        }
        Format::MUBUF => {
            let offset = if random.once_in(3) && !gfx12 { ssrc(random) % 255 } else { sdst(random) };
            let offset = if gfx12 && random.once_in(2) { null } else { offset };
            let (address, data, resource) = (vgpr(random), vgpr(random), random.below(26));
            let bare = match shape.row {
                None => random.once_in(2),
                Some(row) => row.operands.is_empty() && !shape.loose,
            };
            match generation {
                Generation::Gfx10 if bare => two(opcode << 18, 0),
                Generation::Gfx11 if bare => two(opcode << 18, 0),
                _ if bare => vec![opcode << 14, 0, 0],
                Generation::Gfx10 => {
                    let flags = random.below(if random.tame { 4 } else { 8 }) << 12 | random.rare(2) << 15;
                    let second = address | data << 8 | resource << 16 | random.rare(2) << 22 | offset << 24;
                    two(opcode << 18 | random.rare(12) | flags, second)
                }
                Generation::Gfx11 => {
                    let second = address | data << 8 | resource << 16 | random.rare(1) << 21 | random.below(4) << 22 | offset << 24;
                    two(opcode << 18 | random.rare(12) | random.rare(3) << 12, second)
                }
                _ => {
                    let second = data | resource << 11 | policy(random) | random.below(4) << 30;
                    vec![opcode << 14 | offset & 127 | random.rare(1) << 22, second, address | random.rare(23) << 8]
                }
            }
        }
        Format::FLAT | Format::SCRATCH | Format::GLOBAL => {
            let base = match (format, random.below(3)) {
                (Format::FLAT, _) if !shape.loose => null,
                (_, 0) => null,
                (Format::SCRATCH | Format::GLOBAL, 1) if generation == Generation::Gfx10 => 0x7f,
                _ => sdst(random),
            };
            let atomic = shape.row.is_some_and(|row| row.name.contains("_atomic_"));
            // An atomic has a destination only when it returns.
            let returns = random.once_in(2) || shape.row.is_some_and(|row| row.name.contains("csub"));
            let destination = if !atomic || returns { shape.keep(Field::Dst, vgpr(random)) } else { 0 };
            let data = shape.keep(Field::Data0, vgpr(random));
            // An unused address is 0 too.
            let address = if format == Format::SCRATCH && random.once_in(2) { 0 } else { shape.keep(Field::Addr, vgpr(random)) };
            let vector = u32::from(format == Format::SCRATCH && address != 0 || random.rare(1) != 0);
            let returns = u32::from(if atomic { returns } else { random.rare(1) != 0 });
            let second = address | data << 8 | base << 16 | destination << 24;
            match generation {
                Generation::Gfx10 => {
                    let offset = random.rare(if format == Format::FLAT { 11 } else { 12 });
                    two(opcode << 18 | offset | random.rare(2) << 12 | returns << 16 | random.rare(1) << 17, second)
                }
                Generation::Gfx11 => {
                    let offset = random.rare(if format == Format::FLAT { 12 } else { 13 });
                    two(opcode << 18 | offset | random.rare(1) << 13 | returns << 14 | random.rare(1) << 15, second | vector << 23)
                }
                _ => {
                    let second = destination | vector << 17 | policy(random) & !(1 << 20) | returns << 20 | data << 23;
                    vec![opcode << 14 | base, second, address | random.rare(24) << 8]
                }
            }
        }
    }
}

/// Returns the third dword of VOP3 and VOP3P: mostly a literal, sometimes DPP.
fn extension(random: &mut Random, source: &mut u32) -> u32 {
    if random.tame || *source == 0 {
        return literal(random);
    }
    match random.below(8) {
        0 => {
            *source = 250;
            dpp(random) & !(15 << 20)
        }
        1 => {
            *source = 233 + random.below(2);
            random.word()
        }
        _ => literal(random),
    }
}
