//! A small encoder over the instruction table, and a runner that executes 64 cases in the lanes of one instruction.
//!
//! [`Vop3`] and the scalar encodings serve every generation; `rdna_asm` has what only RDNA encodes in its own way.

use warpwave_vgpu::Arch;
use warpwave_vgpu::exec::TestWave;
use warpwave_vgpu::isa::{Field, Format, InstDesc, inst_descs};

/// The architectures whose encodings the tests write.
pub const GFX9: [Arch; 4] = [Arch::Gfx906, Arch::Gfx908, Arch::Gfx90a, Arch::Gfx942];

/// The architectures of RDNA.
pub const RDNA: [Arch; 4] = [Arch::Gfx1010, Arch::Gfx1030, Arch::Gfx1100, Arch::Gfx1201];

/// The default `MODE`: nearest even, denormals kept, DX10 clamp, IEEE.
pub const USUAL: u32 = 0x3f0;

/// The first VGPR as an operand.
pub const V: u16 = 256;

/// The destination's value before the instruction.
pub const OLD: u64 = 0xdead_beef_cafe_b00b;

pub fn row(arch: Arch, format: Format, name: &str) -> &'static InstDesc {
    inst_descs()
        .iter()
        .find(|row| row.format == format && row.supports(arch) && row.name == name)
        .unwrap_or_else(|| panic!("{arch:?} has no {name} in {format:?}"))
}

/// VOP3, which encodes every VOP1, VOP2 and VOPC instruction, and VOP3P.
#[derive(Clone, Copy, Debug)]
pub struct Vop3 {
    pub opcode: u32,
    pub packed: bool,
    pub rdna: bool,
    pub dst: u16,
    pub sdst: Option<u16>,
    pub src: [u16; 3],
    /// VOP3P: `neg_hi`.
    pub abs: u32,
    pub neg: u32,
    pub op_sel: u32,
    pub op_sel_hi: u32,
    pub omod: u32,
    pub clamp: bool,
}

impl Vop3 {
    pub fn words(&self) -> [u32; 2] {
        let mut first = u32::from(self.dst & 0xff) | u32::from(self.clamp) << 15 | self.opcode << 16;
        let mut second = u32::from(self.src[0]) | u32::from(self.src[1]) << 9 | u32::from(self.src[2]) << 18 | self.neg << 29;
        if self.packed {
            first |= if self.rdna { 0b1_1001_1000 } else { 0b1_1010_0111 } << 23
                | self.abs << 8
                | self.op_sel << 11
                | (self.op_sel_hi >> 2 & 1) << 14;
            second |= (self.op_sel_hi & 3) << 27;
        } else {
            first |= if self.rdna { 0b110101 } else { 0b110100 } << 26;
            first |= self.sdst.map_or(self.abs << 8 | self.op_sel << 11, |sdst| u32::from(sdst) << 8);
            second |= self.omod << 27;
        }
        [first, second]
    }
}

/// Encodes the instruction as VOP3 or VOP3P: destination `v2`, sources `v10`, `v20`, `v30`.
pub fn vop3(arch: Arch, name: &str) -> Vop3 {
    let rows = || inst_descs().iter().filter(|row| row.supports(arch) && row.name == name);
    // RDNA's tables list VOP1, VOP2 and VOPC instructions as VOP3 too.
    let own = rows().find(|row| matches!(row.format, Format::VOP3 | Format::VOP3P));
    let row = own
        .or_else(|| rows().find(|row| matches!(row.format, Format::VOP1 | Format::VOP2 | Format::VOPC)))
        .unwrap_or_else(|| panic!("{arch:?} has no {name}"));
    vop3_of(arch, row)
}

/// Encodes the instruction of a row, as [`vop3`].
pub fn vop3_of(arch: Arch, row: &InstDesc) -> Vop3 {
    let name = row.name;
    let rdna = RDNA.contains(&arch);
    let base = match row.format {
        Format::VOP2 => 0x100,
        Format::VOP1 if rdna => 0x180,
        Format::VOP1 => 0x140,
        _ => 0,
    };
    let has = |field| row.operands.iter().any(|operand| operand.field == field);
    let carry = has(Field::Sdst) || row.format == Format::VOP2 && name.contains("_co_");
    let mut src = [V + 10, V + 20, if has(Field::Src(2)) { V + 30 } else { 0 }];
    if row.format == Format::VOP2 && row.operands.last().is_some_and(|operand| operand.field == Field::Vcc) {
        src[2] = 106;
    }
    if !has(Field::Src(1)) {
        src[1] = 0;
    }
    let scalar = |field| row.operands.iter().any(|operand| operand.field == field && operand.scalar);
    for n in 0..3u8 {
        if scalar(Field::Src(n)) {
            // A carry or a condition is the last source; a lane number the second.
            src[usize::from(n)] = if n == 2 { 106 } else { 12 };
        }
    }
    let compare = row.format == Format::VOPC || name.starts_with("v_cmp");
    let dst = match scalar(Field::Dst) {
        _ if rdna && name.starts_with("v_cmpx_") => 126,
        _ if compare => 106,
        true => 20,
        false => 2,
    };
    let packed = row.format == Format::VOP3P;
    Vop3 {
        opcode: u32::from(row.opcode) + base,
        packed,
        rdna,
        dst,
        sdst: carry.then_some(106),
        src,
        abs: 0,
        neg: 0,
        op_sel: 0,
        op_sel_hi: if packed { 7 } else { 0 },
        omod: 0,
        clamp: false,
    }
}

/// Encodes VOP1, VOP2 or VOPC in 32 bits; `src0` may be 249 (SDWA) or 250 (DPP).
pub fn vop32(arch: Arch, name: &str, dst: u32, src0: u32, src1: u32) -> u32 {
    let row = inst_descs()
        .iter()
        .find(|row| row.supports(arch) && row.name == name && matches!(row.format, Format::VOP1 | Format::VOP2 | Format::VOPC))
        .unwrap_or_else(|| panic!("{arch:?} has no {name}"));
    let opcode = u32::from(row.opcode);
    match row.format {
        Format::VOP1 => 0b0111111 << 25 | dst << 17 | opcode << 9 | src0,
        Format::VOPC => 0b0111110 << 25 | opcode << 17 | src1 << 9 | src0,
        _ => opcode << 25 | dst << 17 | src1 << 9 | src0,
    }
}

pub fn sop2(arch: Arch, name: &str, dst: u32, a: u32, b: u32) -> u32 {
    0b10 << 30 | u32::from(row(arch, Format::SOP2, name).opcode) << 23 | dst << 16 | b << 8 | a
}

pub fn sop1(arch: Arch, name: &str, dst: u32, a: u32) -> u32 {
    0b1_0111_1101 << 23 | dst << 16 | u32::from(row(arch, Format::SOP1, name).opcode) << 8 | a
}

pub fn sopc(arch: Arch, name: &str, a: u32, b: u32) -> u32 {
    0b1_0111_1110 << 23 | u32::from(row(arch, Format::SOPC, name).opcode) << 16 | b << 8 | a
}

pub fn sopk(arch: Arch, name: &str, dst: u32, imm: u16) -> u32 {
    0b1011 << 28 | u32::from(row(arch, Format::SOPK, name).opcode) << 23 | dst << 16 | u32::from(imm)
}

/// Encodes DS: the address in `addr`, data in `data0` and `data1`.
pub fn ds(arch: Arch, name: &str, dst: u32, addr: u32, data: [u32; 2], offset: u32) -> [u32; 2] {
    let opcode = u32::from(row(arch, Format::DS, name).opcode);
    [0b110110 << 26 | opcode << 17 | offset, dst << 24 | data[1] << 16 | data[0] << 8 | addr]
}

/// The result of an instruction: the destination and its bit of VCC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Out {
    pub d: u64,
    pub vcc: bool,
}

/// Runs `inst` over `cases`, 64 at a time: three sources and the destination's old value; VCC is `carry` in every lane.
pub fn run_with(arch: Arch, mode: u32, inst: &[u32], cases: &[[u64; 4]], carry: bool) -> Vec<Out> {
    let mut bench = TestWave::new(arch);
    let mut outs = Vec::with_capacity(cases.len());
    for chunk in cases.chunks(64) {
        bench.set_mode(mode);
        for (which, base) in [(0, 10), (1, 20), (2, 30), (3, 2)] {
            let (mut low, mut high) = ([0; 64], [0; 64]);
            for (lane, case) in chunk.iter().enumerate() {
                low[lane] = case[which] as u32;
                high[lane] = (case[which] >> 32) as u32;
            }
            bench.set_v(base, low);
            bench.set_v(base + 1, high);
        }
        bench.set_s(106, if carry { u32::MAX } else { 0 });
        bench.set_s(107, if carry { u32::MAX } else { 0 });
        bench.run(inst).unwrap_or_else(|fault| panic!("{inst:08x?}: {fault}"));
        let (low, high, vcc) = (bench.v(2), bench.v(3), bench.vcc());
        outs.extend((0..chunk.len()).map(|lane| Out { d: u64::from(low[lane]) | u64::from(high[lane]) << 32, vcc: vcc >> lane & 1 != 0 }));
    }
    outs
}

/// [`run_with`] with [`OLD`] in the destination.
pub fn run(arch: Arch, mode: u32, inst: Vop3, cases: &[[u64; 3]]) -> Vec<Out> {
    let cases: Vec<[u64; 4]> = cases.iter().map(|&[a, b, c]| [a, b, c, OLD]).collect();
    run_with(arch, mode, &inst.words(), &cases, false)
}

/// Returns all pairs, or with `three` all triples, of `values`.
pub fn grid(values: &[u64], sources: usize) -> Vec<[u64; 3]> {
    let mut cases = Vec::new();
    for &a in values {
        for &b in if sources > 1 { values } else { &[0] } {
            for &c in if sources > 2 { values } else { &[0] } {
                cases.push([a, b, c]);
            }
        }
    }
    cases
}

/// A deterministic random number generator.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

/// Checks the low 32 bits of the destination against `expect` over a grid and random cases, on every architecture that has it.
pub fn check32(name: &str, sources: usize, values: &[u64], expect: impl Fn(u32, u32, u32) -> u32) {
    let mut cases = grid(values, sources);
    let mut numbers = Numbers(7);
    cases.extend((0..500).map(|_| [numbers.next() & 0xffff_ffff, numbers.next() & 0xffff_ffff, numbers.next() & 0xffff_ffff]));
    for arch in having(name) {
        for (case, out) in cases.iter().zip(run(arch, USUAL, vop3(arch, name), &cases)) {
            let [a, b, c] = case.map(|value| value as u32);
            let expected = expect(a, b, c);
            assert_eq!(out.d as u32, expected, "{arch:?} {name} {a:#x} {b:#x} {c:#x}: {:#x}, not {expected:#x}", out.d as u32);
            assert_eq!(out.d >> 32, OLD >> 32, "{arch:?} {name} wrote a second register");
        }
    }
}

/// Returns the architectures that have a vector instruction of that name.
pub fn having(name: &str) -> Vec<Arch> {
    let archs: Vec<Arch> = GFX9.into_iter().filter(|&arch| inst_descs().iter().any(|row| row.supports(arch) && row.name == name)).collect();
    assert!(!archs.is_empty(), "{name} is in no table");
    archs
}
