//! The meta backend: allocates and frees as another device would, computes nothing, and counts the bytes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use warpwave_kernels::{Binary, Conv, DType, Distribution, Glu, PadMode, Philox, Quant, Reduce, Routing, Scalar, Unary};

use crate::backend::{
    AttentionArgs, Backend, Bins, CacheOperands, GroupedArgs, ImageOp, Operand, OperandMut, RopeArgs, RopeTables, Scatter, Storage, Weights,
};
use crate::cpu::{Interleaved, Precision};
use crate::device::Device;
use crate::error::{Result, wrong_device};
use crate::gpu;

/// A device without data that counts the memory of what runs on it. See [`Device::meta`].
pub struct Meta {
    like: Device,
    counts: Arc<Mutex<Counts>>,
}

/// Memory of a meta device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUse {
    /// Allocated now.
    pub current: u64,
    /// The most that was allocated at one time.
    pub peak: u64,
    /// What a pool or a captured graph holds, which reuse blocks of equal size only: for each size, the most blocks that were allocated at
    /// one time.
    pub pooled: u64,
}

#[derive(Debug, Default)]
struct Counts {
    current: u64,
    peak: u64,
    /// Blocks of each size: allocated now, and the most at one time since the last reset.
    sizes: HashMap<u64, [u64; 2]>,
}

/// A counted allocation.
pub(crate) struct Allocation {
    bytes: u64,
    counts: Arc<Mutex<Counts>>,
}

fn locked(counts: &Mutex<Counts>) -> std::sync::MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let mut counts = locked(&self.counts);
        counts.current -= self.bytes;
        if let Some([now, _]) = counts.sizes.get_mut(&self.bytes) {
            *now -= 1;
        }
    }
}

impl Meta {
    pub(crate) fn new(like: &Device) -> Meta {
        // A meta device like a meta device is like the real one.
        let like = if let Device::Meta(meta) = like { meta.like.clone() } else { like.clone() };
        Meta { like, counts: Arc::default() }
    }

    /// The device whose allocations are counted.
    pub fn like(&self) -> &Device {
        &self.like
    }

    /// Returns the bytes counted since the last [`Meta::reset_peak`].
    pub fn memory(&self) -> MemoryUse {
        let counts = locked(&self.counts);
        let pooled = counts.sizes.iter().fold(0u64, |sum, (size, [_, most])| sum.saturating_add(size.saturating_mul(*most)));
        MemoryUse { current: counts.current, peak: counts.peak, pooled }
    }

    /// Restarts counting: `peak` and `pooled` begin with what is allocated now.
    pub fn reset_peak(&self) {
        let mut counts = locked(&self.counts);
        counts.peak = counts.current;
        counts.sizes.retain(|_, [now, most]| {
            *most = *now;
            *now > 0
        });
    }

    fn count(&self, bytes: usize) -> Storage {
        let bytes = bytes as u64;
        let mut counts = locked(&self.counts);
        counts.current = counts.current.saturating_add(bytes);
        counts.peak = counts.peak.max(counts.current);
        let [now, most] = counts.sizes.entry(bytes).or_default();
        *now += 1;
        *most = (*most).max(*now);
        Storage::Meta(Allocation { bytes, counts: self.counts.clone() })
    }
}

impl Backend for Meta {
    fn alloc(&self, bytes: usize) -> Result<Storage> {
        Ok(self.count(bytes))
    }

    fn alloc_zeroed(&self, bytes: usize) -> Result<Storage> {
        Ok(self.count(bytes))
    }

    fn upload(&self, data: &[u8]) -> Result<Storage> {
        Ok(self.count(data.len()))
    }

    fn quantized(&self, quant: Quant, rows: usize, columns: usize, _: &[u8]) -> Result<Storage> {
        let bytes = quant.row_bytes(columns).unwrap_or(0);
        let rows = if self.like.is_cpu() { Interleaved::padded_rows(rows) } else { rows };
        Ok(self.count(rows.saturating_mul(bytes)))
    }

    fn download<'a>(&self, _: &Operand<'a>) -> Result<Cow<'a, [u8]>> {
        Err(wrong_device("download", "the tensor", "meta", "a device other than meta"))
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn copy(&self, _: &Operand<'_>, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn cast(&self, _: &Operand<'_>, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn fill(&self, _: Scalar, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn unary(&self, _: Unary, _: &Operand<'_>, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn binary(&self, _: Binary, _: &Operand<'_>, _: &Operand<'_>, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn binary_in_place(&self, _: Binary, _: &mut OperandMut<'_>, _: &Operand<'_>) -> Result<()> {
        Ok(())
    }

    fn affine(&self, _: &Operand<'_>, _: Scalar, _: Scalar, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn affine_in_place(&self, _: &mut OperandMut<'_>, _: Scalar, _: Scalar) -> Result<()> {
        Ok(())
    }

    fn soft_cap_in_place(&self, _: &mut OperandMut<'_>, _: f32) -> Result<()> {
        Ok(())
    }

    fn where_cond(&self, _: &Operand<'_>, _: &Operand<'_>, _: &Operand<'_>, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn random(&self, _: &Distribution, _: Philox, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn permutation(&self, _: Philox, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn reduce(&self, _: Reduce, _: &Operand<'_>, _: &[usize], _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn softmax(&self, _: &Operand<'_>, _: usize, _: bool, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn layer_norm(&self, _: &Operand<'_>, _: &Operand<'_>, _: &Operand<'_>, _: f32, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn group_norm(
        &self,
        _: &Operand<'_>,
        _: usize,
        _: &Operand<'_>,
        _: &Operand<'_>,
        _: f32,
        _: bool,
        _: &mut OperandMut<'_>,
    ) -> Result<()> {
        Ok(())
    }

    fn rms_norm(&self, _: &Operand<'_>, _: &Operand<'_>, _: f32, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn add_rms_norm(&self, _: &mut OperandMut<'_>, _: &Operand<'_>, _: &Operand<'_>, _: f32, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn glu(&self, _: Glu, _: &Operand<'_>, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn gather(&self, _: &Operand<'_>, _: &Operand<'_>, _: usize, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn index_select(&self, _: &Operand<'_>, _: &Operand<'_>, _: usize, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn scatter(&self, _: Scatter, _: &mut OperandMut<'_>, _: &Operand<'_>, _: &Operand<'_>, _: usize) -> Result<()> {
        Ok(())
    }

    fn order(&self, _: &Operand<'_>, _: bool, _: Option<&mut OperandMut<'_>>, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn unique(&self, _: &Operand<'_>, _: &mut OperandMut<'_>, _: Option<(&mut OperandMut<'_>, &mut OperandMut<'_>)>) -> Result<usize> {
        Err(wrong_device("unique", "the tensor", "meta", "a device other than meta"))
    }

    fn histogram(&self, _: &Operand<'_>, _: Bins, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn embedding(&self, table: &Weights<'_>, ids: &Operand<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        if !self.like.is_cpu()
            && let Some((dtype, [rows, columns])) = gpu::embedding_rows(table, ids.layout.len(), out.dtype)
        {
            self.alloc(rows * columns * dtype.size())?;
        }
        Ok(())
    }

    fn matmul(&self, _: &Operand<'_>, _: &Operand<'_>, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn linear(
        &self,
        weights: &Weights<'_>,
        x: &Operand<'_>,
        _: Option<&Operand<'_>>,
        out: &mut OperandMut<'_>,
        precision: Precision,
    ) -> Result<()> {
        if !self.like.is_cpu() {
            gpu::linear_operands(self, weights, x, precision, |_| Ok(()))?;
        } else if !out.layout.is_contiguous() {
            self.alloc(out.layout.len() * size_of::<f32>())?;
        }
        Ok(())
    }

    fn route(&self, _: &Routing, _: &Operand<'_>, _: Option<&Operand<'_>>, _: &mut OperandMut<'_>, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn sort_experts(&self, _: &Operand<'_>, _: usize, _: usize, _: &mut OperandMut<'_>, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn grouped_linear(&self, args: &GroupedArgs<'_>, out: &mut OperandMut<'_>) -> Result<()> {
        if self.like.is_cpu() {
            // The CPU gathers the rows of an expert, in the worst case all.
            let (assignments, columns) = (args.ids.layout.len(), args.x.layout.shape()[1]);
            let gathered = self.alloc(assignments * columns * size_of::<f32>())?;
            let product = self.alloc(out.layout.len() * size_of::<f32>())?;
            drop((gathered, product));
        }
        Ok(())
    }

    fn combine_experts(&self, _: &Operand<'_>, _: &Operand<'_>, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn conv2d(&self, _: &Conv, _: bool, _: &Operand<'_>, _: &Operand<'_>, _: Option<&Operand<'_>>, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn image(&self, _: &ImageOp, _: &Operand<'_>, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn pad(&self, _: PadMode, _: &[usize], _: &Operand<'_>, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn rope_tables(&self, _: &Operand<'_>, _: f64, _: &Operand<'_>) -> Result<Option<RopeTables>> {
        Ok(None)
    }

    fn rope_in_place(&self, _: &RopeArgs<'_>, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn append(&self, _: [&Operand<'_>; 2], _: &Operand<'_>, _: CacheOperands<'_, '_>) -> Result<()> {
        Ok(())
    }

    fn rope_append(
        &self,
        _: &RopeArgs<'_>,
        [_, keys, _]: [&Operand<'_>; 3],
        _: &Operand<'_>,
        _: &mut OperandMut<'_>,
        _: [&mut OperandMut<'_>; 2],
    ) -> Result<()> {
        if self.like.is_cpu() {
            // The CPU rotates keys in a copy.
            self.alloc(keys.layout.len() * size_of::<f32>())?;
        }
        Ok(())
    }

    fn attention_types(&self, cache: DType, wanted: DType, decode: bool) -> [DType; 2] {
        self.like.backend().attention_types(cache, wanted, decode)
    }

    fn attention(&self, _: &AttentionArgs<'_>, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn has_dense_attention(&self, head_dim: usize, bias: bool) -> bool {
        self.like.backend().has_dense_attention(head_dim, bias)
    }

    fn dense_attention(&self, _: [&Operand<'_>; 3], _: f32, _: Option<&Operand<'_>>, _: &mut OperandMut<'_>) -> Result<()> {
        Ok(())
    }

    fn max_head_dim(&self) -> usize {
        self.like.backend().max_head_dim()
    }
}
