//! Tensor maps: descriptions of tensors by which NVIDIA's copy engine (`cp.async.bulk.tensor`, compute capability 9.0 and later) moves
//! tiles to shared memory.

use bytemuck::{Pod, Zeroable};

use crate::device::Device;
use crate::error::Result;
use crate::table::DevicePtr;

/// A tensor map of 16-bit elements, passed to kernels by value ([`Arg::value`](crate::Arg::value)).
///
/// Tiles are written with the 128-byte swizzle, without interleaving; elements outside the tensor are zeros. The driver checks sizes and
/// alignment. A map holds an address, not the memory: launches that use it must keep the memory alive.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct TensorMap([u64; 16]);

/// A tensor of 16-bit elements in memory, innermost dimension first.
#[derive(Debug, Clone, Copy)]
pub struct TensorMemory<const RANK: usize> {
    /// Where it begins; a multiple of 16.
    pub address: DevicePtr,
    /// Sizes of the dimensions.
    pub sizes: [u64; RANK],
    /// Bytes between the elements of each dimension, multiples of 16. The first is not used: its elements are adjacent.
    pub strides: [u64; RANK],
}

/// The pixels of an image (channels, width, height, images) that a convolution visits.
#[derive(Debug, Clone, Copy)]
pub struct Im2col {
    /// Offset (width, height) of the first pixel from the image's first.
    pub lower: [i32; 2],
    /// Offset (width, height) of the last pixel from the image's last.
    pub upper: [i32; 2],
    /// Distance (width, height) between pixels.
    pub stride: [u32; 2],
    /// Channels of a copy.
    pub channels: u32,
    /// Pixels of a copy.
    pub pixels: u32,
}

const UINT16: i32 = 1;
const NO_INTERLEAVE: i32 = 0;
const SWIZZLE_128: i32 = 3;
const PROMOTE_256: i32 = 3;
const FILL_ZEROS: i32 = 0;

impl TensorMap {
    /// Describes tiles of `tile` elements.
    pub fn tiled<const RANK: usize>(device: &Device, memory: &TensorMemory<RANK>, tile: [u32; RANK]) -> Result<TensorMap> {
        let mut map = TensorMap::zeroed();
        let table = device.activate()?;
        let steps = [1u32; RANK];
        // SAFETY: the arrays have the rank's length (strides without the first), and the driver reads no device memory.
        device.check(unsafe {
            table.tensor_map_tiled(
                &mut map,
                UINT16,
                RANK as u32,
                memory.address,
                memory.sizes.as_ptr(),
                memory.strides.get(1..).unwrap_or_default().as_ptr(),
                tile.as_ptr(),
                steps.as_ptr(),
                NO_INTERLEAVE,
                SWIZZLE_128,
                PROMOTE_256,
                FILL_ZEROS,
            )
        })?;
        Ok(map)
    }

    /// Describes the pixels (channels, width, height, images) of a convolution.
    pub fn im2col(device: &Device, memory: &TensorMemory<4>, im2col: &Im2col) -> Result<TensorMap> {
        let mut map = TensorMap::zeroed();
        let table = device.activate()?;
        let Im2col { lower, upper, stride: [step_x, step_y], channels, pixels } = *im2col;
        let steps = [1, step_x, step_y, 1];
        // SAFETY: as in `tiled`; corners have one element for each dimension between channels and images.
        device.check(unsafe {
            table.tensor_map_im2col(
                &mut map,
                UINT16,
                4,
                memory.address,
                memory.sizes.as_ptr(),
                memory.strides[1..].as_ptr(),
                lower.as_ptr(),
                upper.as_ptr(),
                channels,
                pixels,
                steps.as_ptr(),
                NO_INTERLEAVE,
                SWIZZLE_128,
                PROMOTE_256,
                FILL_ZEROS,
            )
        })?;
        Ok(map)
    }
}
