//! Kernel descriptors: the 64 bytes that say how the wavefronts of a kernel start.
//!
//! Names and bit positions follow the kernel descriptor section of LLVM's *User Guide for AMDGPU Backend*.

use crate::arch::{Arch, Generation, WaveSize};
use crate::bits::BitField;

/// Bytes of a kernel descriptor.
pub(crate) const DESCRIPTOR_BYTES: u64 = 64;

/// Byte offsets of the descriptor's fields.
mod offset {
    pub const GROUP_SEGMENT_FIXED_SIZE: usize = 0;
    pub const PRIVATE_SEGMENT_FIXED_SIZE: usize = 4;
    pub const KERNARG_SIZE: usize = 8;
    pub const KERNEL_CODE_ENTRY_BYTE_OFFSET: usize = 16;
    pub const COMPUTE_PGM_RSRC3: usize = 44;
    pub const COMPUTE_PGM_RSRC1: usize = 48;
    pub const COMPUTE_PGM_RSRC2: usize = 52;
    pub const KERNEL_CODE_PROPERTIES: usize = 56;
    pub const KERNARG_PRELOAD: usize = 58;
}

/// Fields of `compute_pgm_rsrc1`.
mod rsrc1 {
    use super::BitField;
    pub const GRANULATED_WORKITEM_VGPR_COUNT: BitField = BitField::new(0, 6);
    pub const GRANULATED_WAVEFRONT_SGPR_COUNT: BitField = BitField::new(6, 4);
    /// Rounding and denormal modes, in the layout of the `MODE` register's low byte.
    pub const FLOAT_MODE: BitField = BitField::new(12, 8);
    pub const FLOAT_DENORM_MODE_32: BitField = BitField::new(16, 2);
    pub const FLOAT_DENORM_MODE_16_64: BitField = BitField::new(18, 2);
    pub const ENABLE_DX10_CLAMP: BitField = BitField::bit(21);
    pub const ENABLE_IEEE_MODE: BitField = BitField::bit(23);
}

/// Fields of `compute_pgm_rsrc2`.
mod rsrc2 {
    use super::BitField;
    pub const ENABLE_PRIVATE_SEGMENT: BitField = BitField::bit(0);
    pub const USER_SGPR_COUNT: BitField = BitField::new(1, 5);
    pub const ENABLE_SGPR_WORKGROUP_ID: [BitField; 3] = [BitField::bit(7), BitField::bit(8), BitField::bit(9)];
    pub const ENABLE_SGPR_WORKGROUP_INFO: BitField = BitField::bit(10);
    pub const ENABLE_VGPR_WORKITEM_ID: BitField = BitField::new(11, 2);
}

/// Fields of `compute_pgm_rsrc3` on gfx90a and gfx942.
mod rsrc3 {
    use super::BitField;
    pub const ACCUM_OFFSET: BitField = BitField::new(0, 6);
}

/// Fields of `kernel_code_properties`.
mod properties {
    use super::BitField;
    pub const ENABLE_SGPR_PRIVATE_SEGMENT_BUFFER: BitField = BitField::bit(0);
    pub const ENABLE_SGPR_DISPATCH_PTR: BitField = BitField::bit(1);
    pub const ENABLE_SGPR_QUEUE_PTR: BitField = BitField::bit(2);
    pub const ENABLE_SGPR_KERNARG_SEGMENT_PTR: BitField = BitField::bit(3);
    pub const ENABLE_SGPR_DISPATCH_ID: BitField = BitField::bit(4);
    pub const ENABLE_SGPR_FLAT_SCRATCH_INIT: BitField = BitField::bit(5);
    pub const ENABLE_SGPR_PRIVATE_SEGMENT_SIZE: BitField = BitField::bit(6);
    pub const ENABLE_WAVEFRONT_SIZE32: BitField = BitField::bit(10);
}

/// Fields of `kernarg_preload`.
mod preload {
    use super::BitField;
    pub const SPEC_LENGTH: BitField = BitField::new(0, 7);
    pub const SPEC_OFFSET: BitField = BitField::new(7, 9);
}

/// A kernel descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelDescriptor {
    /// Bytes of LDS that every workgroup has, without the dynamic LDS of a launch.
    pub group_segment_fixed_size: u32,
    /// Bytes of scratch that every lane has.
    pub private_segment_fixed_size: u32,
    /// Bytes of the kernarg segment, hidden arguments included.
    pub kernarg_size: u32,
    /// Bytes from the descriptor to the kernel's first instruction.
    pub kernel_code_entry_byte_offset: i64,
    pub(crate) compute_pgm_rsrc1: u32,
    pub(crate) compute_pgm_rsrc2: u32,
    pub(crate) compute_pgm_rsrc3: u32,
    pub(crate) kernel_code_properties: u16,
    pub(crate) kernarg_preload: u16,
}

/// What happens to denormals of a float type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenormMode {
    /// Flushed as sources and as results.
    FlushSourceAndResult,
    /// Flushed as results only.
    FlushResult,
    /// Flushed as sources only.
    FlushSource,
    /// Kept.
    Preserve,
}

impl DenormMode {
    fn from_bits(bits: u32) -> DenormMode {
        match bits {
            0 => DenormMode::FlushSourceAndResult,
            1 => DenormMode::FlushResult,
            2 => DenormMode::FlushSource,
            _ => DenormMode::Preserve,
        }
    }
}

/// The user SGPRs that a kernel asks for, in the order in which the hardware fills them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserSgpr {
    /// Four SGPRs: the buffer resource of the scratch memory.
    PrivateSegmentBuffer,
    /// Two SGPRs: the address of the dispatch packet.
    DispatchPtr,
    /// Two SGPRs: the address of the queue.
    QueuePtr,
    /// Two SGPRs: the address of the kernarg segment.
    KernargSegmentPtr,
    /// Two SGPRs: the dispatch's id.
    DispatchId,
    /// Two SGPRs: the initial value of `FLAT_SCRATCH`.
    FlatScratchInit,
    /// One SGPR: the bytes of scratch of each lane.
    PrivateSegmentSize,
}

impl KernelDescriptor {
    /// Reads a descriptor. Returns `None` when `raw` is shorter than 64 bytes.
    pub(crate) fn parse(raw: &[u8]) -> Option<KernelDescriptor> {
        let dword = |at: usize| Some(u32::from_le_bytes(raw.get(at..at + 4)?.try_into().ok()?));
        let half = |at: usize| Some(u16::from_le_bytes(raw.get(at..at + 2)?.try_into().ok()?));
        let entry = raw.get(offset::KERNEL_CODE_ENTRY_BYTE_OFFSET..offset::KERNEL_CODE_ENTRY_BYTE_OFFSET + 8)?;
        Some(KernelDescriptor {
            group_segment_fixed_size: dword(offset::GROUP_SEGMENT_FIXED_SIZE)?,
            private_segment_fixed_size: dword(offset::PRIVATE_SEGMENT_FIXED_SIZE)?,
            kernarg_size: dword(offset::KERNARG_SIZE)?,
            kernel_code_entry_byte_offset: i64::from_le_bytes(entry.try_into().ok()?),
            compute_pgm_rsrc1: dword(offset::COMPUTE_PGM_RSRC1)?,
            compute_pgm_rsrc2: dword(offset::COMPUTE_PGM_RSRC2)?,
            compute_pgm_rsrc3: dword(offset::COMPUTE_PGM_RSRC3)?,
            kernel_code_properties: half(offset::KERNEL_CODE_PROPERTIES)?,
            kernarg_preload: half(offset::KERNARG_PRELOAD)?,
        })
    }

    /// Returns the wave size that the kernel was compiled for.
    pub fn wave_size(&self) -> WaveSize {
        let wave32 = properties::ENABLE_WAVEFRONT_SIZE32.is_set(self.kernel_code_properties.into());
        if wave32 { WaveSize::Wave32 } else { WaveSize::Wave64 }
    }

    /// Returns the vector registers of a lane that are allocated, VGPRs and AGPRs together where they share one file.
    fn allocated_vector_registers(&self, arch: Arch) -> u32 {
        (rsrc1::GRANULATED_WORKITEM_VGPR_COUNT.get(self.compute_pgm_rsrc1) + 1) * arch.vgpr_encoding_granule(self.wave_size())
    }

    /// Returns the VGPRs allocated for each lane.
    pub fn vgprs(&self, arch: Arch) -> u32 {
        let all = self.allocated_vector_registers(arch);
        // In a unified register file the AGPRs begin at ACCUM_OFFSET, which counts in fours.
        if arch.has_unified_vgprs() { all.min((rsrc3::ACCUM_OFFSET.get(self.compute_pgm_rsrc3) + 1) * 4) } else { all }
    }

    /// Returns the AGPRs allocated for each lane of a unified register file; 0 where AGPRs have a file of their own.
    pub fn agprs(&self, arch: Arch) -> u32 {
        self.allocated_vector_registers(arch) - self.vgprs(arch)
    }

    /// Returns the SGPRs allocated for each wavefront; always 128 on RDNA, whose descriptors do not count them.
    pub fn sgprs(&self, arch: Arch) -> u32 {
        if arch.is_rdna() {
            return 128;
        }
        (rsrc1::GRANULATED_WAVEFRONT_SGPR_COUNT.get(self.compute_pgm_rsrc1) / 2 + 1) * 16
    }

    /// Returns the number of user SGPRs.
    pub fn user_sgprs(&self) -> u32 {
        rsrc2::USER_SGPR_COUNT.get(self.compute_pgm_rsrc2)
    }

    /// Returns the denormal mode of f32.
    pub fn denorm_mode_32(&self) -> DenormMode {
        DenormMode::from_bits(rsrc1::FLOAT_DENORM_MODE_32.get(self.compute_pgm_rsrc1))
    }

    /// Returns the denormal mode of f16 and f64.
    pub fn denorm_mode_16_64(&self) -> DenormMode {
        DenormMode::from_bits(rsrc1::FLOAT_DENORM_MODE_16_64.get(self.compute_pgm_rsrc1))
    }

    /// Returns the initial rounding and denormal modes, in the layout of the `MODE` register's low byte.
    pub(crate) fn float_mode(&self) -> u32 {
        rsrc1::FLOAT_MODE.get(self.compute_pgm_rsrc1)
    }

    /// Returns whether clamping turns NaN into 0. Always on gfx12, which lacks the bit.
    pub(crate) fn enable_dx10_clamp(&self, arch: Arch) -> bool {
        arch.generation() >= Generation::Gfx12 || rsrc1::ENABLE_DX10_CLAMP.is_set(self.compute_pgm_rsrc1)
    }

    /// Returns whether signaling NaNs are honored. Always on gfx12, which lacks the bit.
    pub(crate) fn enable_ieee_mode(&self, arch: Arch) -> bool {
        arch.generation() >= Generation::Gfx12 || rsrc1::ENABLE_IEEE_MODE.is_set(self.compute_pgm_rsrc1)
    }

    /// Returns whether the kernel uses scratch.
    pub(crate) fn enable_private_segment(&self) -> bool {
        rsrc2::ENABLE_PRIVATE_SEGMENT.is_set(self.compute_pgm_rsrc2)
    }

    /// Returns whether an SGPR holds the workgroup id of dimension `axis`.
    pub(crate) fn enable_sgpr_workgroup_id(&self, axis: usize) -> bool {
        rsrc2::ENABLE_SGPR_WORKGROUP_ID[axis].is_set(self.compute_pgm_rsrc2)
    }

    /// Returns whether an SGPR holds the workgroup info.
    pub(crate) fn enable_sgpr_workgroup_info(&self) -> bool {
        rsrc2::ENABLE_SGPR_WORKGROUP_INFO.is_set(self.compute_pgm_rsrc2)
    }

    /// Returns how many workitem ids beyond X arrive in VGPRs: 0 to 2.
    pub(crate) fn extra_workitem_ids(&self) -> u32 {
        rsrc2::ENABLE_VGPR_WORKITEM_ID.get(self.compute_pgm_rsrc2)
    }

    /// Returns the user SGPRs that are enabled, in the order in which the hardware fills them.
    pub(crate) fn enabled_user_sgprs(&self) -> impl Iterator<Item = UserSgpr> {
        const ORDER: [(BitField, UserSgpr); 7] = [
            (properties::ENABLE_SGPR_PRIVATE_SEGMENT_BUFFER, UserSgpr::PrivateSegmentBuffer),
            (properties::ENABLE_SGPR_DISPATCH_PTR, UserSgpr::DispatchPtr),
            (properties::ENABLE_SGPR_QUEUE_PTR, UserSgpr::QueuePtr),
            (properties::ENABLE_SGPR_KERNARG_SEGMENT_PTR, UserSgpr::KernargSegmentPtr),
            (properties::ENABLE_SGPR_DISPATCH_ID, UserSgpr::DispatchId),
            (properties::ENABLE_SGPR_FLAT_SCRATCH_INIT, UserSgpr::FlatScratchInit),
            (properties::ENABLE_SGPR_PRIVATE_SEGMENT_SIZE, UserSgpr::PrivateSegmentSize),
        ];
        let enabled = u32::from(self.kernel_code_properties);
        ORDER.into_iter().filter(move |(bit, _)| bit.is_set(enabled)).map(|(_, sgpr)| sgpr)
    }

    /// Returns the dwords of the kernarg segment that are preloaded into SGPRs: the first one, and how many.
    pub(crate) fn kernarg_preload(&self) -> (u32, u32) {
        let spec = u32::from(self.kernarg_preload);
        (preload::SPEC_OFFSET.get(spec), preload::SPEC_LENGTH.get(spec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_from_their_offsets() {
        let mut raw: Vec<u8> = (0..64).collect();
        raw[56..58].copy_from_slice(&0b1000_1001u16.to_le_bytes());
        let descriptor = KernelDescriptor::parse(&raw).unwrap();
        assert_eq!((descriptor.group_segment_fixed_size, descriptor.kernarg_size), (0x0302_0100, 0x0b0a_0908));
        assert_eq!(descriptor.kernel_code_entry_byte_offset, 0x1716_1514_1312_1110);
        assert_eq!((descriptor.compute_pgm_rsrc1, descriptor.compute_pgm_rsrc3), (0x3332_3130, 0x2f2e_2d2c));
        let enabled: Vec<_> = descriptor.enabled_user_sgprs().collect();
        assert_eq!(enabled, [UserSgpr::PrivateSegmentBuffer, UserSgpr::KernargSegmentPtr]);
        assert!(KernelDescriptor::parse(&raw[..59]).is_none());
    }

    #[test]
    fn register_counts_follow_the_granules() {
        let descriptor = KernelDescriptor { compute_pgm_rsrc1: 2 | 3 << 6, compute_pgm_rsrc3: 3, ..KernelDescriptor::default() };
        assert_eq!((descriptor.vgprs(Arch::Gfx908), descriptor.agprs(Arch::Gfx908)), (12, 0));
        assert_eq!((descriptor.vgprs(Arch::Gfx90a), descriptor.agprs(Arch::Gfx90a)), (16, 8));
        assert_eq!((descriptor.sgprs(Arch::Gfx90a), descriptor.sgprs(Arch::Gfx1100)), (32, 128));
    }
}
