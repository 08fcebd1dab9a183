//! Random instructions and programs.

use warpwave_vgpu::Arch;
use warpwave_vgpu::arch::Generation;
use warpwave_vgpu::isa::{Format, InstDesc, decode, inst_descs};

/// Random choices.
pub struct Random(warpwave_test_support::Random);

impl Random {
    /// Creates the generator of a program of a run.
    pub fn of_program(seed: u64, number: u64) -> Random {
        Random(warpwave_test_support::Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number)))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0.below(n.max(1))
    }

    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// A value that makes a difference: special floats, small integers, or any bits.
    pub fn value(&mut self) -> u32 {
        const SPECIAL: [u32; 22] = [
            0,
            0x8000_0000,
            1,
            2,
            u32::MAX,
            0x7fff_ffff,
            0x3f80_0000,
            0xbf80_0000,
            0x4000_0000,
            0x7f80_0000,
            0xff80_0000,
            0x7fc0_0000,
            0x0000_0400,
            0x0040_0000,
            0x807f_ffff,
            0x7f7f_ffff,
            0x4f00_0000,
            0x4f80_0000,
            0xcf00_0000,
            0x3c00_3c00,
            0x7c00_fc00,
            0x0001_8001,
        ];
        match self.below(4) {
            0 => self.of(&SPECIAL),
            1 => self.below(70) as u32,
            2 => ((self.below(2000) as f32 - 1000.0) / 16.0).to_bits(),
            _ => self.next() as u32,
        }
    }
}

/// Registers that programs write: `v0..v12` and `s0..s20`. Addresses are in others, so that accesses stay within memory.
const VECTORS: usize = 12;
const SCALARS: usize = 20;
/// `v[40:41]`: an address of the buffer for each lane; `v42`: a small offset; `s[40:41]`: the buffer, which `s[44:47]` describe; `s48`: a
/// small offset; `s50`: counts the repetitions of a loop.
pub const ADDRESS: u32 = 40;
pub const OFFSET: u32 = 42;
pub const BUFFER: u32 = 40;
pub const RESOURCE: u32 = 44;
pub const SMALL: u32 = 48;
const COUNTER: u32 = 50;

/// Instructions that jump, wait, read clocks, or address registers beyond those that are compared.
pub fn is_excluded(row: &InstDesc) -> bool {
    let name = row.name;
    [
        "s_setpc",
        "s_swappc",
        "s_call",
        "s_cbranch",
        "s_branch",
        "s_endpgm",
        "s_trap",
        "s_sleep",
        "s_rfe",
        "s_movrel",
        "s_set_gpr",
        "s_getreg",
        "s_sendmsg",
        "s_barrier",
        "s_get_barrier",
        "s_code_end",
        "s_setreg",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
        || name.starts_with("ds_gws")
        || matches!(name, "s_memtime" | "s_memrealtime" | "s_wakeup" | "ds_append" | "ds_consume")
        || name.contains("addtid")
        || name.starts_with("s_scratch")
}

/// A source of a scalar instruction.
fn scalar_source(random: &mut Random) -> u32 {
    match random.below(8) {
        0 => random.of(&[106, 107, 124, 126, 127, 251, 252, 253]),
        1 => 128 + random.below(81) as u32,
        2 => 240 + random.below(9) as u32,
        3 => 255,
        _ => random.below(SCALARS) as u32,
    }
}

fn scalar_destination(random: &mut Random) -> u32 {
    match random.below(12) {
        0 => 106,
        1 => 126,
        _ => random.below(SCALARS) as u32,
    }
}

fn vector_source(random: &mut Random) -> u32 {
    if random.chance(3) { scalar_source(random) } else { 256 + random.below(VECTORS) as u32 }
}

fn vgpr(random: &mut Random) -> u32 {
    random.below(VECTORS) as u32
}

/// Where an architecture has the fields in which the encodings differ.
struct Layout {
    generation: Generation,
    /// VOP3's and VOP3P's fixed bits.
    vop3: u32,
    vop3p: u32,
    /// The operand `null`; on GFX9, which has none, "no scalar address".
    null: u32,
}

impl Layout {
    fn of(arch: Arch) -> Layout {
        let generation = arch.generation();
        match generation {
            Generation::Gfx9 => Layout { generation, vop3: 0b110100 << 26, vop3p: 0b1_1010_0111 << 23, null: 0x7f },
            Generation::Gfx10 => Layout { generation, vop3: 0b110101 << 26, vop3p: 0b110011 << 26, null: 125 },
            _ => Layout { generation, vop3: 0b110101 << 26, vop3p: 0b110011 << 26, null: 124 },
        }
    }

    fn global(&self, [opcode, segment]: [u32; 2], data: [u32; 2], [address, base, offset]: [u32; 3], glc: u32) -> Vec<u32> {
        let second = data[0] << 24 | base << 16 | data[1] << 8 | address;
        match self.generation {
            Generation::Gfx9 | Generation::Gfx10 => {
                vec![0b110111 << 26 | opcode << 18 | glc << 16 | segment << 14 | offset, second]
            }
            Generation::Gfx11 => vec![0b110111 << 26 | opcode << 18 | segment << 16 | glc << 14 | offset, second],
            Generation::Gfx12 => {
                vec![0b111011 << 26 | segment << 24 | opcode << 14 | base, data[0] | glc << 20 | data[1] << 23, address | offset << 8]
            }
        }
    }

    fn buffer(&self, opcode: u32, [data, address]: [u32; 2], [scalar, offset]: [u32; 2], offen: u32) -> Vec<u32> {
        let second = scalar << 24 | RESOURCE >> 2 << 16 | data << 8 | address;
        match self.generation {
            Generation::Gfx9 | Generation::Gfx10 => vec![0b111000 << 26 | opcode << 18 | offen << 12 | offset, second],
            Generation::Gfx11 => vec![0b111000 << 26 | opcode << 18 | offset, second | offen << 22],
            // A scalar offset cannot be a constant.
            Generation::Gfx12 => vec![
                0b110001 << 26 | opcode << 14 | if scalar < 128 { scalar } else { self.null },
                offen << 30 | RESOURCE << 9 | data,
                offset << 8 | address,
            ],
        }
    }

    fn scalar_memory(&self, opcode: u32, dst: u32, imm: u32) -> Vec<u32> {
        let operands = dst << 6 | BUFFER >> 1;
        match self.generation {
            Generation::Gfx9 => vec![0b110000 << 26 | opcode << 18 | 1 << 17 | operands, imm],
            Generation::Gfx12 => vec![0b111101 << 26 | opcode << 13 | operands, imm | self.null << 25],
            _ => vec![0b111101 << 26 | opcode << 18 | operands, imm | self.null << 25],
        }
    }
}

/// Returns a random instance of an instruction, without its literal.
fn instance(arch: Arch, row: &InstDesc, random: &mut Random) -> Vec<u32> {
    let opcode = u32::from(row.opcode);
    let layout = Layout::of(arch);
    // Modifiers are rare in real code.
    let mut rare = |bits: u32| if random.chance(4) { random.next() as u32 & ((1 << bits) - 1) } else { 0 };
    let (abs, neg, op_sel, omod, clamp) = (rare(3), rare(3), rare(4), rare(2), rare(1));
    match row.format {
        Format::SOP2 => {
            vec![0b10 << 30 | opcode << 23 | scalar_destination(random) << 16 | scalar_source(random) << 8 | scalar_source(random)]
        }
        Format::SOP1 => vec![0b1_0111_1101 << 23 | scalar_destination(random) << 16 | opcode << 8 | scalar_source(random)],
        Format::SOPC => vec![0b1_0111_1110 << 23 | opcode << 16 | scalar_source(random) << 8 | scalar_source(random)],
        Format::SOPK => vec![0b1011 << 28 | opcode << 23 | scalar_destination(random) << 16 | random.next() as u32 & 0xffff],
        Format::SOPP => vec![0b1_0111_1111 << 23 | opcode << 16],
        Format::VOPDX => {
            let (x, y) = (vgpr(random), vgpr(random));
            vec![
                0b110010 << 26 | opcode << 22 | (random.below(19) as u32) << 17 | vgpr(random) << 9 | vector_source(random),
                x << 24 | y >> 1 << 17 | vgpr(random) << 9 | vector_source(random),
            ]
        }
        Format::VOP1 => {
            let dst = if row.name.contains("readfirstlane") { random.below(SCALARS) as u32 } else { vgpr(random) };
            vec![0b0111111 << 25 | dst << 17 | opcode << 9 | vector_source(random)]
        }
        Format::VOP2 => vec![opcode << 25 | vgpr(random) << 17 | vgpr(random) << 9 | vector_source(random)],
        Format::VOPC => vec![0b0111110 << 25 | opcode << 17 | vgpr(random) << 9 | vector_source(random)],
        Format::VOP3 => {
            let scalar = row.name.starts_with("v_cmp") || row.name.starts_with("v_readlane");
            let dst = if scalar { scalar_destination(random) } else { vgpr(random) };
            let modifiers =
                if row.operands.iter().any(|operand| operand.field == warpwave_vgpu::isa::Field::Sdst) || row.name.contains("_co_") {
                    random.of(&[106, 10, 12, 13, 126, layout.null]) << 8
                } else {
                    abs << 8 | op_sel << 11
                };
            let third = if row.name.contains("cndmask") || row.name.contains("c_co") || row.name.contains("b_co") {
                random.of(&[106, 10, 12, 13, 126])
            } else {
                vector_source(random)
            };
            vec![
                layout.vop3 | opcode << 16 | clamp << 15 | modifiers | dst,
                neg << 29 | omod << 27 | third << 18 | vector_source(random) << 9 | vector_source(random),
            ]
        }
        Format::VOP3P => {
            // `op_sel_hi` is set unless another half is chosen.
            let high = 7 ^ op_sel & 7;
            let select = if random.chance(2) { op_sel & 7 } else { 0 };
            // The 32 registers of the largest matrices must not reach the addresses: the fault of a wild one depends on other threads.
            let dst = if row.name.contains("32x32") { random.below(8) as u32 } else { vgpr(random) };
            vec![
                layout.vop3p | opcode << 16 | clamp << 15 | (high >> 2 & 1) << 14 | select << 11 | abs << 8 | dst,
                neg << 29 | (high & 3) << 27 | vector_source(random) << 18 | vector_source(random) << 9 | vector_source(random),
            ]
        }
        Format::DS => {
            let address = if random.chance(200) { vgpr(random) } else { OFFSET };
            let data = [vgpr(random), vgpr(random), vgpr(random)];
            let offset = if random.chance(2) { 0 } else { random.next() as u32 & if random.chance(16) { 0x0f0f } else { 0x0808 } };
            let opcode = opcode << if layout.generation == Generation::Gfx9 { 17 } else { 18 };
            vec![0b110110 << 26 | opcode | offset, data[0] << 24 | data[1] << 16 | data[2] << 8 | address]
        }
        Format::GLOBAL | Format::FLAT => {
            let global = row.format == Format::GLOBAL;
            let (address, base) = match random.below(200) {
                0 => (vgpr(random), layout.null),
                1..100 if global => (OFFSET, BUFFER),
                _ => (ADDRESS, layout.null),
            };
            let offset = if random.chance(2) { 0 } else { random.below(64) as u32 & if random.chance(16) { !0 } else { !15 } };
            let glc = random.below(2) as u32;
            let segment = if global { 2 } else { 0 };
            layout.global([opcode, segment], [vgpr(random), vgpr(random)], [address, base, offset], glc)
        }
        Format::SCRATCH => {
            let offset = if random.chance(2) { 0 } else { random.below(64) as u32 & if random.chance(16) { !0 } else { !3 } };
            let base = if random.chance(2) { SMALL } else { layout.null };
            let data = [vgpr(random), vgpr(random)];
            let mut words = layout.global([opcode, 1], data, [OFFSET, base, offset], random.below(2) as u32);
            // gfx11 and later say so when there is a vector address.
            let vector = random.below(2) as u32;
            match layout.generation {
                Generation::Gfx11 => words[1] |= vector << 23,
                Generation::Gfx12 => words[1] |= vector << 17,
                _ => {}
            }
            words
        }
        Format::MUBUF => {
            let offset = random.below(64) as u32 & if random.chance(64) { !0 } else { !15 };
            let (offen, scalar) = (random.below(2) as u32, random.of(&[SMALL, 128]));
            layout.buffer(opcode, [vgpr(random), OFFSET], [scalar, offset], offen)
        }
        Format::SMEM => {
            // Atomics of 64 bits are aligned.
            let imm = random.below(64) as u32 * if row.name.contains("atomic") { 8 } else { 4 };
            layout.scalar_memory(opcode, random.below(SCALARS / 4) as u32 * 4, imm)
        }
        _ => Vec::new(),
    }
}

/// Returns a random instruction of `arch` that decodes, with its extension and literal.
fn instruction(arch: Arch, rows: &[&InstDesc], random: &mut Random) -> Vec<u32> {
    loop {
        let row = rows[random.below(rows.len())];
        let mut words = instance(arch, row, random);
        let Some(first) = words.first_mut() else { continue };
        if matches!(row.format, Format::VOP1 | Format::VOP2 | Format::VOPC) && random.chance(6) {
            let source = vgpr(random);
            *first &= !0x1ff;
            if random.chance(2) || !arch.has_sdwa() {
                *first |= 250;
                let control = match random.below(5) {
                    0 => random.below(256) as u32,
                    1 => 0x101 + random.below(15) as u32,
                    2 => 0x111 + random.below(15) as u32,
                    3 => 0x121 + random.below(15) as u32,
                    // The others are reserved on RDNA.
                    _ if arch.is_rdna() => random.of(&[0x140, 0x141, 0x150, 0x157, 0x15f, 0x160, 0x161, 0x163, 0x168, 0x16f]),
                    _ => random.of(&[0x130, 0x134, 0x138, 0x13c, 0x140, 0x141, 0x142, 0x143]),
                };
                let masks = if random.chance(3) { random.next() as u32 & 0xff } else { 0xff };
                let fetch_inactive = u32::from(arch.is_rdna() && random.chance(4)) << 18;
                words.push(source | control << 8 | fetch_inactive | (random.below(2) as u32) << 19 | masks << 24);
            } else {
                *first |= 249;
                let mut select = || random.of(&[0u32, 1, 2, 3, 4, 5, 6]);
                let (dst, src0, src1) = (select(), select(), select());
                // No part of a NaN, and no copies of its sign.
                let (dst, kinds) = match () {
                    () if row.name.contains("_f16") => (dst.max(4), 1),
                    () if row.name.contains("_f32") => (6, 3),
                    () => (dst, 3),
                };
                let unused = random.below(kinds) as u32;
                let sext = random.next() as u32 & (1 << 19 | 1 << 27);
                // Comparisons have a scalar destination here.
                let result = if row.format == Format::VOPC { 0 } else { dst << 8 | unused << 11 };
                words.push(source | result | src0 << 16 | src1 << 24 | sext);
            }
        }
        words.push(random.value());
        if let Ok(inst) = decode(arch, &words) {
            words.truncate(usize::from(inst.words));
            return words;
        }
    }
}

/// A part of a program.
#[derive(Clone)]
pub enum Part {
    /// An instruction with its extension and literal.
    Instruction(Vec<u32>),
    /// Parts that a branch skips if its condition holds.
    Skipped(&'static str, Vec<Part>),
    /// Parts that are repeated.
    Repeated(u32, Vec<Part>),
}

/// Returns the opcode of an instruction of every architecture by the name of what it does.
fn opcode(arch: Arch, semantics: &str) -> u32 {
    let row = inst_descs().iter().find(|row| row.supports(arch) && row.semantics == semantics);
    u32::from(row.unwrap_or_else(|| panic!("{arch} has no {semantics}")).opcode)
}

/// Returns the code of a program.
pub fn assemble(arch: Arch, parts: &[Part]) -> Vec<u32> {
    let branch = |name: &str, by: i32| 0b1_0111_1111 << 23 | opcode(arch, name) << 16 | by as u32 & 0xffff;
    let mut words = Vec::new();
    for part in parts {
        match part {
            Part::Instruction(instruction) => words.extend(instruction),
            Part::Skipped(condition, parts) => {
                let body = assemble(arch, parts);
                words.push(branch(condition, body.len() as i32));
                words.extend(body);
            }
            Part::Repeated(times, parts) => {
                let body = assemble(arch, parts);
                let immediate = |name: &str, value: u32| 0b1011 << 28 | opcode(arch, name) << 23 | COUNTER << 16 | value & 0xffff;
                words.push(immediate("s_movk_i32", *times));
                let length = body.len() as i32;
                words.extend(body);
                words.push(immediate("s_addk_i32", u32::MAX));
                // Compares with the inline constant 0.
                words.push(0b1_0111_1110 << 23 | opcode(arch, "s_cmp_lg_u32") << 16 | 128 << 8 | COUNTER);
                words.push(branch("s_cbranch_scc1", -(length + 3)));
            }
        }
    }
    words
}

/// Returns random parts: `length` instructions, some of them in branches and loops if there are `levels` of those.
pub fn parts(arch: Arch, rows: &[&InstDesc], mut length: usize, levels: u32, random: &mut Random) -> Vec<Part> {
    const CONDITIONS: [&str; 7] =
        ["s_cbranch_scc0", "s_cbranch_scc1", "s_cbranch_vccz", "s_cbranch_vccnz", "s_cbranch_execz", "s_cbranch_execnz", "s_branch"];
    let mut out = Vec::new();
    while length > 0 {
        let inner = if levels > 0 && random.chance(6) { random.below(length.min(20) + 1) } else { 0 };
        if inner == 0 {
            out.push(Part::Instruction(instruction(arch, rows, random)));
            length -= 1;
            continue;
        }
        length -= inner;
        // There is one counter: no loops in loops.
        out.push(if random.chance(2) {
            Part::Repeated(1 + random.below(4) as u32, parts(arch, rows, inner, 0, random))
        } else {
            Part::Skipped(random.of(&CONDITIONS), parts(arch, rows, inner, levels - 1, random))
        });
    }
    out
}

/// Returns the programs that lack one part of this one, or one loop.
pub fn shorter(parts: &[Part]) -> Vec<Vec<Part>> {
    let mut all = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let with = |other: Vec<Part>| [&parts[..at], &other, &parts[at + 1..]].concat();
        all.push(with(Vec::new()));
        if let Part::Skipped(_, inner) | Part::Repeated(_, inner) = part {
            all.push(with(inner.clone()));
            all.extend(shorter(inner).into_iter().map(|inner| {
                with(vec![match part {
                    Part::Repeated(times, _) => Part::Repeated(*times, inner),
                    Part::Skipped(condition, _) => Part::Skipped(condition, inner),
                    Part::Instruction(words) => Part::Instruction(words.clone()),
                }])
            }));
        }
    }
    // Last, because it is longer: iterations of their own, of which one may be enough.
    for (at, part) in parts.iter().enumerate() {
        if let Part::Repeated(times, inner) = part {
            let iterations: Vec<Part> = (0..*times).flat_map(|_| inner.iter().cloned()).collect();
            all.push([&parts[..at], &iterations, &parts[at + 1..]].concat());
        }
    }
    all
}
