//! Random instructions: every opcode, mostly with valid fields.

mod gfx9;
mod rdna;

use warpwave_vgpu::Target;
use warpwave_vgpu::isa::{Field, Format, InstDesc, Operand, inst_descs};

/// An encoding: its fixed bits, and the size of its opcode space.
pub type Encoding = (Format, u32, u32);

/// Returns every encoding.
pub fn encodings(target: impl Into<Target>) -> Vec<Encoding> {
    let target = target.into();
    if target.arch.is_rdna() { rdna::encodings(target) } else { gfx9::ENCODINGS.to_vec() }
}

/// Returns an instruction of an opcode. Dwords after the first may not belong to it.
pub fn instruction(random: &mut Random, target: impl Into<Target>, format: Format, opcode: u32) -> Vec<u32> {
    let target = target.into();
    let fixed = encodings(target).iter().find(|(known, ..)| *known == format).map_or(0, |(_, bits, _)| *bits);
    let wild = !random.tame && random.once_in(12);
    let row = inst_descs().iter().find(|row| row.format == format && u32::from(row.opcode) == opcode && row.supports(target.arch));
    let shape = Shape { row, loose: !random.tame && random.once_in(8), guess: random.word() };
    let mut words = match target.arch.is_rdna() {
        true => rdna::fields(random, &shape, target, format, opcode),
        false => gfx9::fields(random, &shape, format, opcode),
    };
    words[0] |= fixed;
    if wild {
        // Any bit except those that select the instruction.
        let at = random.below(64) as usize;
        words[at / 32] ^= 1 << (at % 32);
    }
    words
}

/// What is known of an instruction's fields.
struct Shape {
    row: Option<&'static InstDesc>,
    /// Whether to fill unused fields too. LLVM requires most of them to be 0.
    loose: bool,
    /// The fields of an unknown opcode are a guess.
    guess: u32,
}

impl Shape {
    /// Returns whether to fill a field.
    fn has(&self, field: Field) -> bool {
        let guess =
            || self.guess >> [Field::Dst, Field::Addr, Field::Data0, Field::Data1].iter().take_while(|known| **known != field).count();
        match self.row {
            Some(row) => self.loose || row.registers(field) > 0,
            None => guess() & 1 != 0,
        }
    }

    /// Returns the operand in a field.
    fn operand(&self, field: Field) -> Option<&'static Operand> {
        self.row?.operands.iter().find(|operand| operand.field == field)
    }

    /// Returns `value` for a field that the instruction has, else 0.
    fn keep(&self, field: Field, value: u32) -> u32 {
        if self.has(field) { value } else { 0 }
    }
}

/// A seeded generator.
pub struct Random {
    state: u64,
    /// Whether to use plain registers only, so that LLVM accepts the instruction.
    pub tame: bool,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random { state: seed, tame: false }
    }

    /// Returns 32 random bits.
    pub fn word(&mut self) -> u32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) as u32
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u32) -> u32 {
        self.word() % end
    }

    /// Returns true once in `times`.
    pub fn once_in(&mut self, times: u32) -> bool {
        self.below(times) == 0
    }

    /// Returns bits that are mostly zero.
    fn rare(&mut self, width: u32) -> u32 {
        if !self.tame && self.once_in(4) { self.below(1 << width) } else { 0 }
    }

    fn pick(&mut self, list: &[u32]) -> u32 {
        list[self.below(list.len() as u32) as usize]
    }
}

/// Returns a scalar destination, mostly aligned for wide operands.
fn sdst(random: &mut Random) -> u32 {
    match random.below(8) {
        _ if random.tame => random.below(10) * 8,
        0 => random.below(128),
        1 => random.pick(&[102, 104, 106, 107, 124, 125, 126]),
        _ => random.below(12) * 8,
    }
}

/// Returns an 8-bit source.
fn ssrc(random: &mut Random) -> u32 {
    match random.below(6) {
        _ if random.tame => sdst(random),
        0 => random.below(256),
        1 => 128 + random.below(81),
        2 => 240 + random.below(9),
        3 if random.once_in(2) => 255,
        _ => sdst(random),
    }
}

/// Returns a 9-bit source.
fn src(random: &mut Random) -> u32 {
    if random.tame || random.once_in(2) { 256 + vgpr(random) } else { ssrc(random) }
}

fn vgpr(random: &mut Random) -> u32 {
    if !random.tame && random.once_in(4) { random.below(256) } else { random.below(112) * 2 }
}

/// Returns a literal, often one that equals an inline constant.
fn literal(random: &mut Random) -> u32 {
    match random.below(6) {
        0 => random.below(80).wrapping_sub(20),
        1 => random.pick(&[
            0x3f00_0000,
            0x3f80_0000,
            0xc080_0000,
            0x3e22_f983,
            0x3ff0_0000,
            0x3800,
            0x3118,
            0x3f80,
            0xc080,
            0xffff,
            0xffff_fff0,
            0xfff0,
        ]),
        2 => random.below(0x10000),
        _ => random.word(),
    }
}

fn sdwa(random: &mut Random, format: Format) -> u32 {
    let mut word = vgpr(random);
    if format == Format::VOPC {
        word |= random.below(2) << 15;
        if word >> 15 & 1 != 0 {
            word |= sdst(random) << 8;
        }
    } else {
        word |= random.below(7) << 8 | random.below(3) << 11 | random.rare(1) << 13 | random.rare(2) << 14;
    }
    word |= random.below(7) << 16 | random.rare(1) << 19 | random.rare(2) << 20;
    if random.once_in(4) {
        word = word & !0xff | 1 << 23 | (ssrc(random) % 250);
    }
    if format != Format::VOP1 || random.once_in(8) {
        word |= random.below(7) << 24 | random.rare(1) << 27 | random.rare(2) << 28 | random.rare(1) << 31;
    } else {
        word |= 6 << 24;
    }
    word
}

fn dpp(random: &mut Random) -> u32 {
    let ctrl = match random.below(4) {
        0 => random.below(256),
        1 => 0x100 + random.below(0x70),
        2 => random.pick(&[0x130, 0x134, 0x138, 0x13c, 0x140, 0x141, 0x142, 0x143]),
        _ => 0x150 + random.below(16),
    };
    vgpr(random) | ctrl << 8 | random.rare(1) << 18 | random.below(2) << 19 | random.rare(4) << 20 | random.below(256) << 24
}

fn swizzle(random: &mut Random) -> u32 {
    match random.below(4) {
        0 => 0x8000 | random.below(256),
        1 => 31 | random.pick(&[1, 2, 3, 4, 7, 8, 15, 16, 31]) << 10,
        2 => random.pick(&[30, 28, 24, 16, 0]) | random.below(32) << 5,
        _ => random.below(0x10000),
    }
}
