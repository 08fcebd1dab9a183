//! Buffer resources: the four dwords (V#) that describe a buffer to MUBUF and scalar buffer instructions.
//!
//! Field names follow the *Buffer Resource Descriptor* table of AMD's CDNA ISA documents.

use super::wave::Wave;
use crate::arch::WaveSize;
use crate::bits::BitField;

/// Fields of dword 1.
mod dword1 {
    use super::BitField;
    pub const BASE_ADDRESS_HI: BitField = BitField::new(0, 16);
    pub const STRIDE: BitField = BitField::new(16, 14);
    pub const SWIZZLE_ENABLE: BitField = BitField::bit(31);
}

/// Fields of dword 3.
mod dword3 {
    use super::BitField;
    pub const INDEX_STRIDE: BitField = BitField::new(21, 2);
    pub const ADD_TID_ENABLE: BitField = BitField::bit(23);
}

/// `INDEX_STRIDE` for 32 and 64 indices.
const INDEX_STRIDE_32: u32 = 2;
const INDEX_STRIDE_64: u32 = 3;

/// A decoded buffer resource.
pub struct BufferResource {
    pub base: u64,
    /// Bytes between records; 0 for a raw buffer.
    pub stride: u64,
    pub swizzle: bool,
    /// Records; bytes when the stride is 0.
    pub num_records: u64,
    /// Base-2 logarithm of the indices whose dwords a swizzled buffer interleaves.
    pub index_stride_log2: u32,
    /// Whether the lane number is added to the index.
    pub add_tid: bool,
}

impl BufferResource {
    /// Reads the resource from four SGPRs.
    #[inline(always)]
    pub fn read(w: &Wave, sgpr: u16) -> BufferResource {
        let (first, second, fourth) = (w.scalar(sgpr), w.scalar(sgpr + 1), w.scalar(sgpr + 3));
        BufferResource {
            base: u64::from(first) | u64::from(dword1::BASE_ADDRESS_HI.get(second)) << 32,
            stride: dword1::STRIDE.get(second).into(),
            swizzle: dword1::SWIZZLE_ENABLE.is_set(second),
            num_records: w.scalar(sgpr + 2).into(),
            index_stride_log2: 3 + dword3::INDEX_STRIDE.get(fourth),
            add_tid: dword3::ADD_TID_ENABLE.is_set(fourth),
        }
    }

    /// Returns the size in bytes of an unswizzled buffer.
    pub fn bytes(&self) -> u64 {
        if self.stride == 0 { self.num_records } else { self.num_records * self.stride }
    }
}

/// Returns the resource of a wavefront's scratch at `base`: the dwords of its lanes interleaved, the lane number added to the index, no
/// bound (scratch accesses are checked anyway).
pub fn scratch_resource(base: u64, wave_size: WaveSize) -> [u32; 4] {
    let index_stride = if wave_size == WaveSize::Wave32 { INDEX_STRIDE_32 } else { INDEX_STRIDE_64 };
    [
        base as u32,
        dword1::BASE_ADDRESS_HI.encode((base >> 32) as u32) | dword1::SWIZZLE_ENABLE.encode(1),
        u32::MAX,
        dword3::INDEX_STRIDE.encode(index_stride) | dword3::ADD_TID_ENABLE.encode(1),
    ]
}
