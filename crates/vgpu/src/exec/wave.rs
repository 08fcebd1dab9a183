//! A wave: 64 lanes' registers and what they share.

use crate::isa::operand;

/// Lanes of a wave.
pub const LANES: usize = 64;
/// Vector registers, then accumulation registers, then room for an operand that runs over the end.
pub const REGISTERS: usize = 512 + 32;

/// One register of all lanes.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct Lanes(pub [u32; LANES]);

/// 64-bit values of all lanes.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct Wide(pub [u64; LANES]);

/// `MODE` bits that set a kernel's float arithmetic apart from the usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode(pub u32);

impl Mode {
    /// Round to nearest, denormals kept, IEEE on, DX10 clamp on.
    pub const USUAL: Mode = Mode(0xf0 | 1 << 8 | 1 << 9);

    /// Rounding of f32: 0 nearest, 1 up, 2 down, 3 to zero.
    pub fn round32(self) -> u32 {
        self.0 & 3
    }

    /// Rounding of f16 and f64.
    pub fn round64(self) -> u32 {
        self.0 >> 2 & 3
    }

    /// Whether f32 denormals are flushed as inputs.
    pub fn flush_in32(self) -> bool {
        self.0 >> 4 & 1 == 0
    }

    /// Whether f32 denormals are flushed as results.
    pub fn flush_out32(self) -> bool {
        self.0 >> 5 & 1 == 0
    }

    /// Whether f16 and f64 denormals are flushed as inputs.
    pub fn flush_in64(self) -> bool {
        self.0 >> 6 & 1 == 0
    }

    /// Whether f16 and f64 denormals are flushed as results.
    pub fn flush_out64(self) -> bool {
        self.0 >> 7 & 1 == 0
    }

    /// NaN is clamped to 0.
    pub fn dx10_clamp(self) -> bool {
        self.0 >> 8 & 1 != 0
    }

    /// Signalling NaNs count.
    pub fn ieee(self) -> bool {
        self.0 >> 9 & 1 != 0
    }

    /// Whether vector arithmetic takes the plain path.
    pub fn usual(self) -> bool {
        self.0 & 0x2ff == 0x2f0
    }
}

/// The lane masks of each byte of `exec`.
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

/// What a wave does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Ready,
    /// It waits for the others of its group.
    Barrier,
    /// It ended.
    Done,
}

/// A wave.
#[derive(Debug)]
pub struct Wave {
    /// Vector and accumulation registers.
    pub v: Box<[Lanes; REGISTERS]>,
    /// Scalar registers by operand number; `exec` is kept apart.
    pub s: [u32; 128],
    /// Active lanes.
    pub exec: u64,
    /// How many they are.
    pub active: u32,
    /// All bits set for active lanes.
    pub mask: Lanes,
    /// The scalar condition code.
    pub scc: bool,
    /// The next instruction, in words from the start of the code.
    pub pc: usize,
    /// `MODE`.
    pub mode: Mode,
    /// `s_set_gpr_idx_on`: vector operands are indexed as `m0` says.
    pub indexing: bool,
    /// Which opening of the grid's barrier it waits for; 0 when for none.
    pub grid_barrier: u64,
    /// State.
    pub state: State,
    /// Its number in the group.
    pub number: u32,
    /// Instructions so far.
    pub instructions: u64,
    /// Vector instructions times active lanes so far.
    pub lane_operations: u64,
    /// Its lanes' scratch, interleaved by dword.
    pub scratch: Vec<u32>,
    /// The host address of its scratch.
    pub scratch_base: u64,
    /// Bytes of scratch of each lane.
    pub scratch_size: u32,
    /// Ranges of memory that it touched lately: start, end, writable.
    pub ranges: [(u64, u64, bool); 4],
    /// Which of them goes next.
    pub next_range: u8,
}

impl Wave {
    /// A wave with no lane active.
    pub fn new() -> Wave {
        let v: Box<[Lanes]> = vec![Lanes([0; LANES]); REGISTERS].into_boxed_slice();
        Wave {
            v: v.try_into().unwrap_or_else(|_| unreachable!("the length is the array's")),
            s: [0; 128],
            exec: 0,
            active: 0,
            mask: Lanes([0; LANES]),
            scc: false,
            pc: 0,
            mode: Mode::USUAL,
            indexing: false,
            grid_barrier: 0,
            state: State::Ready,
            number: 0,
            instructions: 0,
            lane_operations: 0,
            scratch: Vec::new(),
            scratch_base: 0,
            scratch_size: 0,
            ranges: [(1, 0, false); 4],
            next_range: 0,
        }
    }

    /// Sets the active lanes.
    pub fn set_exec(&mut self, exec: u64) {
        if exec != self.exec {
            self.exec = exec;
            self.active = exec.count_ones();
            for (mask, byte) in self.mask.0.chunks_exact_mut(8).zip(exec.to_le_bytes()) {
                mask.copy_from_slice(&MASKS[usize::from(byte)]);
            }
        }
    }

    /// `vcc`.
    pub fn vcc(&self) -> u64 {
        self.pair(operand::VCC)
    }

    /// Two scalar registers as one value.
    pub fn pair(&self, number: u16) -> u64 {
        u64::from(self.scalar(number)) | u64::from(self.scalar(number + 1)) << 32
    }

    /// A scalar register, or another scalar operand that is no constant.
    pub fn scalar(&self, number: u16) -> u32 {
        match number {
            operand::EXEC => self.exec as u32,
            127 => (self.exec >> 32) as u32,
            0..128 => self.s[usize::from(number)],
            operand::VCCZ => u32::from(self.vcc() == 0),
            operand::EXECZ => u32::from(self.exec == 0),
            operand::SCC => u32::from(self.scc),
            operand::SHARED_BASE | operand::PRIVATE_BASE | operand::SHARED_LIMIT | operand::PRIVATE_LIMIT => 0,
            _ => 0,
        }
    }

    /// Writes a scalar register.
    pub fn set_scalar(&mut self, number: u16, value: u32) {
        match number {
            operand::EXEC => self.set_exec(self.exec & !0xffff_ffff | u64::from(value)),
            127 => self.set_exec(self.exec & 0xffff_ffff | u64::from(value) << 32),
            0..128 => self.s[usize::from(number)] = value,
            _ => {}
        }
    }

    /// Writes two scalar registers.
    pub fn set_pair(&mut self, number: u16, value: u64) {
        if number == operand::EXEC {
            self.set_exec(value);
        } else {
            self.set_scalar(number, value as u32);
            self.set_scalar(number + 1, (value >> 32) as u32);
        }
    }

    /// A vector register by operand number.
    #[inline(always)]
    pub fn reg(&self, number: u16) -> &Lanes {
        &self.v[usize::from(number.wrapping_sub(operand::VGPR)).min(REGISTERS - 1)]
    }

    /// A vector register by operand number.
    #[inline(always)]
    pub fn reg_mut(&mut self, number: u16) -> &mut Lanes {
        &mut self.v[usize::from(number.wrapping_sub(operand::VGPR)).min(REGISTERS - 1)]
    }

    /// Writes the active lanes of a register.
    #[inline(always)]
    pub fn write(&mut self, number: u16, value: &Lanes) {
        let mask = self.mask;
        if self.exec == u64::MAX {
            *self.reg_mut(number) = *value;
        } else {
            let old = self.reg_mut(number);
            for lane in 0..LANES {
                old.0[lane] = old.0[lane] & !mask.0[lane] | value.0[lane] & mask.0[lane];
            }
        }
    }

    /// Writes the active lanes of a register pair.
    #[inline(always)]
    pub fn write_wide(&mut self, number: u16, value: &Wide) {
        let mut low = Lanes([0; LANES]);
        let mut high = Lanes([0; LANES]);
        for lane in 0..LANES {
            low.0[lane] = value.0[lane] as u32;
            high.0[lane] = (value.0[lane] >> 32) as u32;
        }
        self.write(number, &low);
        self.write(number + 1, &high);
    }

    /// The first active lane; 0 when none is.
    pub fn first_lane(&self) -> usize {
        if self.exec == 0 { 0 } else { self.exec.trailing_zeros() as usize }
    }
}
