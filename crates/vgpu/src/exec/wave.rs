//! A wavefront: the registers of 64 lanes and the state they share.
//!
//! In wave32 the upper 32 lanes are never active, and a lane mask is one SGPR instead of a pair.

use crate::arch::WaveSize;
use crate::isa::operand;

/// Lanes of a wavefront's registers; wave32 uses the lower half.
pub const LANES: usize = 64;
/// 256 VGPRs, 256 AGPRs, and padding for multi-register operands that run past the end.
pub const REGISTERS: usize = 512 + 32;

/// Entries of [`Wave::recent_ranges`].
pub const RECENT_RANGES: usize = 8;
/// An entry of [`Wave::recent_ranges`] that contains no address.
pub const NO_RANGE: (u64, u64, bool) = (1, 0, false);

/// A 32-bit value for each lane: one VGPR.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub struct Lanes(pub [u32; LANES]);

/// A 64-bit value for each lane: a VGPR pair.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct Lanes64(pub [u64; LANES]);

/// Fields of the `MODE` register.
mod mode {
    use crate::bits::BitField;
    pub const FLOAT: BitField = BitField::new(0, 8);
    pub const ROUND_32: BitField = BitField::new(0, 2);
    pub const ROUND_16_64: BitField = BitField::new(2, 2);
    pub const ALLOW_SOURCE_DENORMS_32: BitField = BitField::bit(4);
    pub const ALLOW_RESULT_DENORMS_32: BitField = BitField::bit(5);
    pub const ALLOW_SOURCE_DENORMS_16_64: BitField = BitField::bit(6);
    pub const ALLOW_RESULT_DENORMS_16_64: BitField = BitField::bit(7);
    pub const DX10_CLAMP: BitField = BitField::bit(8);
    pub const IEEE: BitField = BitField::bit(9);
    /// Round to nearest even, denormals kept.
    pub const FLOAT_DEFAULT: u32 = 0xf0;
    /// The bits that [`super::Mode::is_default`] compares: `DX10_CLAMP` matters to clamps alone.
    pub const DEFAULT_MASK: u32 = FLOAT.encode(0xff) | IEEE.encode(1);
}

/// The `MODE` register: how float instructions round and treat denormals and NaNs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode(pub u32);

impl Mode {
    /// Round to nearest even, denormals kept, IEEE on, DX10 clamp on.
    pub const DEFAULT: Mode = Mode::new(mode::FLOAT_DEFAULT, true, true);

    /// Creates a mode from the rounding and denormal modes of the low byte.
    pub const fn new(float: u32, dx10_clamp: bool, ieee: bool) -> Mode {
        Mode(mode::FLOAT.encode(float) | mode::DX10_CLAMP.encode(dx10_clamp as u32) | mode::IEEE.encode(ieee as u32))
    }

    /// Returns the rounding mode of f32: 0 nearest even, 1 toward +∞, 2 toward -∞, 3 toward zero.
    pub fn round32(self) -> u32 {
        mode::ROUND_32.get(self.0)
    }

    /// Returns the rounding mode of f16 and f64.
    pub fn round64(self) -> u32 {
        mode::ROUND_16_64.get(self.0)
    }

    /// Returns whether f32 sources are flushed.
    pub fn flush_in32(self) -> bool {
        !mode::ALLOW_SOURCE_DENORMS_32.is_set(self.0)
    }

    /// Returns whether f32 results are flushed.
    pub fn flush_out32(self) -> bool {
        !mode::ALLOW_RESULT_DENORMS_32.is_set(self.0)
    }

    /// Returns whether f16 and f64 sources are flushed.
    pub fn flush_in64(self) -> bool {
        !mode::ALLOW_SOURCE_DENORMS_16_64.is_set(self.0)
    }

    /// Returns whether f16 and f64 results are flushed.
    pub fn flush_out64(self) -> bool {
        !mode::ALLOW_RESULT_DENORMS_16_64.is_set(self.0)
    }

    /// Returns whether clamping turns NaN into 0.
    pub fn dx10_clamp(self) -> bool {
        mode::DX10_CLAMP.is_set(self.0)
    }

    /// Returns whether signaling NaNs are honored.
    pub fn ieee(self) -> bool {
        mode::IEEE.is_set(self.0)
    }

    /// Returns whether float instructions may take the fast path.
    #[inline(always)]
    pub fn is_default(self) -> bool {
        self.0 & mode::DEFAULT_MASK == Mode::DEFAULT.0 & mode::DEFAULT_MASK
    }
}

/// Fields of M0 under VGPR indexing.
pub mod gpr_index {
    use crate::bits::BitField;
    pub const INDEX: BitField = BitField::new(0, 8);
    pub const SRC: [BitField; 3] = [BitField::bit(12), BitField::bit(13), BitField::bit(14)];
    pub const DST: BitField = BitField::bit(15);
    /// All of the bits that enable indexing of an operand.
    pub const MODE: BitField = BitField::new(12, 4);
}

/// Lane masks for each value of a byte of EXEC.
static MASKS: [[u32; 8]; 256] = {
    let mut masks = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut lane = 0;
        while lane < 8 {
            masks[byte][lane] = if byte >> lane & 1 != 0 { u32::MAX } else { 0 };
            lane += 1;
        }
        byte += 1;
    }
    masks
};

/// A wavefront's scheduling state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Can run.
    Ready,
    /// Waits at `s_barrier` for the other wavefronts of its workgroup.
    Barrier,
    /// Executed `s_endpgm`.
    Done,
}

/// A wavefront.
#[derive(Debug)]
pub struct Wave {
    /// VGPRs, then AGPRs.
    pub vgprs: Box<[Lanes; REGISTERS]>,
    /// SGPRs and special scalar registers by operand number; EXEC is in [`Wave::exec`].
    pub sgprs: [u32; 128],
    /// The lanes that it has.
    pub wave_size: WaveSize,
    /// The EXEC mask; the upper half is 0 in wave32.
    pub exec: u64,
    /// Set bits of EXEC.
    pub active_lanes: u32,
    /// EXEC as a mask per lane: all bits set for active lanes.
    pub mask: Lanes,
    /// The scalar condition code.
    pub scc: bool,
    /// The next instruction, in dwords from the start of the code.
    pub pc: usize,
    /// The `MODE` register.
    pub mode: Mode,
    /// Whether VGPR indexing is on (`s_set_gpr_idx_on`).
    pub gpr_indexing: bool,
    /// Which opening of the GWS barrier it waits for; 0 for none.
    pub gws_ticket: u64,
    /// The scheduling state.
    pub state: State,
    /// Index in the workgroup.
    pub index: u32,
    /// The lanes' scratch, interleaved by dword.
    pub scratch: Vec<u32>,
    /// Host address of the scratch.
    pub scratch_base: u64,
    /// Bytes of scratch of each lane.
    pub scratch_size: u32,
    /// Recently accessed allocations (start, end, writable), to skip the lookup. The first is the wavefront's scratch.
    pub recent_ranges: [(u64, u64, bool); RECENT_RANGES],
    /// The entry of `recent_ranges` to replace next.
    pub next_range: u8,
}

impl Wave {
    /// Creates a wavefront with no active lane.
    pub fn new() -> Wave {
        let v: Box<[Lanes]> = vec![Lanes([0; LANES]); REGISTERS].into_boxed_slice();
        Wave {
            vgprs: v.try_into().unwrap_or_else(|_| unreachable!("slice length does not match the array")),
            sgprs: [0; 128],
            wave_size: WaveSize::Wave64,
            exec: 0,
            active_lanes: 0,
            mask: Lanes([0; LANES]),
            scc: false,
            pc: 0,
            mode: Mode::DEFAULT,
            gpr_indexing: false,
            gws_ticket: 0,
            state: State::Ready,
            index: 0,
            scratch: Vec::new(),
            scratch_base: 0,
            scratch_size: 0,
            recent_ranges: [NO_RANGE; RECENT_RANGES],
            next_range: 0,
        }
    }

    /// Returns the number of lanes.
    #[inline(always)]
    pub fn lanes(&self) -> usize {
        self.wave_size.lanes() as usize
    }

    /// Returns EXEC with every lane active.
    #[inline(always)]
    pub fn full_exec(&self) -> u64 {
        u64::MAX >> (LANES - self.lanes())
    }

    /// Sets vector registers to 0, by index.
    pub fn clear_vgprs(&mut self, registers: std::ops::Range<usize>) {
        // One fill: a call for each register takes longer than the zeros.
        bytemuck::cast_slice_mut::<Lanes, u32>(&mut self.vgprs[registers]).fill(0);
    }

    /// Sets EXEC.
    pub fn set_exec(&mut self, exec: u64) {
        let exec = exec & self.full_exec();
        if exec != self.exec {
            self.exec = exec;
            self.active_lanes = exec.count_ones();
            for (mask, byte) in self.mask.0.chunks_exact_mut(8).zip(exec.to_le_bytes()) {
                mask.copy_from_slice(&MASKS[usize::from(byte)]);
            }
        }
    }

    /// Returns VCC as a lane mask.
    pub fn vcc(&self) -> u64 {
        self.lane_mask(operand::VCC)
    }

    /// Returns a lane mask: a pair of scalar registers, or one in wave32.
    pub fn lane_mask(&self, number: u16) -> u64 {
        match self.wave_size {
            WaveSize::Wave32 => u64::from(self.scalar(number)),
            WaveSize::Wave64 => self.scalar64(number),
        }
    }

    /// Writes a lane mask.
    pub fn set_lane_mask(&mut self, number: u16, mask: u64) {
        match self.wave_size {
            WaveSize::Wave32 => self.set_scalar(number, mask as u32),
            WaveSize::Wave64 => self.set_scalar64(number, mask),
        }
    }

    /// Returns a pair of scalar registers.
    pub fn scalar64(&self, number: u16) -> u64 {
        if number == operand::NULL {
            return 0;
        }
        u64::from(self.scalar(number)) | u64::from(self.scalar(number + 1)) << 32
    }

    /// Returns a scalar register or another scalar operand that is not a constant.
    pub fn scalar(&self, number: u16) -> u32 {
        match number {
            operand::EXEC => self.exec as u32,
            operand::EXEC_HI => (self.exec >> 32) as u32,
            0..128 => self.sgprs[usize::from(number)],
            operand::VCCZ => u32::from(self.vcc() == 0),
            operand::EXECZ => u32::from(self.exec == 0),
            operand::SCC => u32::from(self.scc),
            _ => 0,
        }
    }

    /// Writes a scalar register.
    pub fn set_scalar(&mut self, number: u16, value: u32) {
        match number {
            operand::NULL => {}
            operand::EXEC => self.set_exec(self.exec & !0xffff_ffff | u64::from(value)),
            operand::EXEC_HI => self.set_exec(self.exec & 0xffff_ffff | u64::from(value) << 32),
            0..128 => self.sgprs[usize::from(number)] = value,
            _ => {}
        }
    }

    /// Writes a pair of scalar registers.
    pub fn set_scalar64(&mut self, number: u16, value: u64) {
        if number == operand::EXEC {
            self.set_exec(value);
        } else if number != operand::NULL {
            self.set_scalar(number, value as u32);
            self.set_scalar(number + 1, (value >> 32) as u32);
        }
    }

    /// Returns a VGPR or AGPR by operand number.
    #[inline(always)]
    pub fn vgpr(&self, number: u16) -> &Lanes {
        &self.vgprs[usize::from(number.wrapping_sub(operand::VGPR)).min(REGISTERS - 1)]
    }

    /// Returns a VGPR or AGPR by operand number.
    #[inline(always)]
    pub fn vgpr_mut(&mut self, number: u16) -> &mut Lanes {
        &mut self.vgprs[usize::from(number.wrapping_sub(operand::VGPR)).min(REGISTERS - 1)]
    }

    /// Writes the active lanes of a VGPR or AGPR.
    #[inline(always)]
    pub fn write_vgpr(&mut self, number: u16, value: &Lanes) {
        let mask = self.mask;
        if self.exec == u64::MAX {
            *self.vgpr_mut(number) = *value;
        } else {
            let old = self.vgpr_mut(number);
            for lane in 0..LANES {
                old.0[lane] = old.0[lane] & !mask.0[lane] | value.0[lane] & mask.0[lane];
            }
        }
    }

    /// Writes the active lanes of a VGPR pair.
    #[inline(always)]
    pub fn write_vgpr_pair(&mut self, number: u16, value: &Lanes64) {
        let mut low = Lanes([0; LANES]);
        let mut high = Lanes([0; LANES]);
        for lane in 0..LANES {
            low.0[lane] = value.0[lane] as u32;
            high.0[lane] = (value.0[lane] >> 32) as u32;
        }
        self.write_vgpr(number, &low);
        self.write_vgpr(number + 1, &high);
    }

    /// Returns the first active lane; 0 when EXEC is 0.
    pub fn first_lane(&self) -> usize {
        if self.exec == 0 { 0 } else { self.exec.trailing_zeros() as usize }
    }
}
