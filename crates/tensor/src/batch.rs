//! A batch of sequences for one forward pass: token ids, positions, and where their keys and values are in the cache.

use std::sync::Arc;

use warpwave_gpu::HostBuffer;
use warpwave_kernels::DType;

use crate::device::Device;
use crate::error::{Result, shape};
use crate::gpu::Gpu;
use crate::kv_cache::BLOCK_SIZE;
use crate::tensor::Tensor;

const OP: &str = "batch";
/// Each array starts at a multiple of this many `u32`: 16 bytes.
const ALIGNMENT: usize = 4;

/// The inputs of a forward pass, on the host. Sequences are packed without padding (varlen).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchInput {
    /// Token ids of all sequences, one sequence after the other.
    pub token_ids: Vec<u32>,
    /// Position ids of the tokens.
    pub positions: Vec<u32>,
    /// Cache slots of the tokens: block · [`BLOCK_SIZE`] + offset in the block.
    pub slots: Vec<u32>,
    /// Index of each sequence's first token, and the number of tokens at the end.
    pub query_starts: Vec<u32>,
    /// Keys of each sequence, those of this batch included.
    pub kv_lengths: Vec<u32>,
    /// Cache blocks of each sequence: `table_width` entries, of which those past its keys are ignored.
    pub block_table: Vec<u32>,
    /// Blocks of the longest sequence.
    pub table_width: usize,
}

/// A [`BatchInput`] on a device. It was validated on the host, so that no kernel goes out of bounds; all arrays share one allocation,
/// since one copy is faster than several.
pub struct Batch {
    storage: Tensor,
    tokens: usize,
    sequences: usize,
    table_width: usize,
    max_query_len: usize,
    /// One more than the largest block that is read or written.
    blocks: usize,
}

#[derive(Clone, Copy)]
enum Array {
    TokenIds,
    Positions,
    Slots,
    QueryStarts,
    KvLengths,
    LastTokens,
    BlockTable,
}

impl BatchInput {
    /// Validates the input. Returns the longest query and one more than the largest block.
    fn check(&self) -> Result<(usize, usize)> {
        let invalid = |reason: String| Err(shape(OP, reason));
        let (tokens, sequences) = (self.token_ids.len(), self.kv_lengths.len());
        if self.positions.len() != tokens || self.slots.len() != tokens {
            let (positions, slots) = (self.positions.len(), self.slots.len());
            return invalid(format!("expected {tokens} positions and slots, one per token, got {positions} positions and {slots} slots"));
        }
        if self.query_starts.len() != sequences + 1 || self.query_starts[0] != 0 || self.query_starts[sequences] as usize != tokens {
            return invalid(format!("query_starts {:?} do not split {tokens} tokens into {sequences} sequences", self.query_starts));
        }
        if self.block_table.len() != sequences.saturating_mul(self.table_width) {
            let (found, width) = (self.block_table.len(), self.table_width);
            return invalid(format!("block table has {found} entries, expected {width} for each of {sequences} sequences"));
        }
        // Kernels read positions, slots and lengths as signed 32-bit integers.
        let max = i32::MAX as u32;
        if let Some(value) = self.slots.iter().chain(&self.positions).chain(&self.kv_lengths).find(|value| **value > max) {
            return invalid(format!("slot, position or length {value} exceeds {max}"));
        }
        let mut longest = 0;
        let mut blocks = self.slots.iter().map(|slot| *slot as usize / BLOCK_SIZE + 1).max().unwrap_or(0);
        for (sequence, keys) in self.kv_lengths.iter().enumerate() {
            let (start, end, keys) = (self.query_starts[sequence], self.query_starts[sequence + 1], *keys as usize);
            if end < start || (end - start) as usize > keys {
                return invalid(format!(
                    "sequence {sequence}: expected at most {keys} tokens (at most one per key), got tokens {start}..{end}"
                ));
            }
            if keys.div_ceil(BLOCK_SIZE) > self.table_width {
                return invalid(format!(
                    "sequence {sequence} has {keys} keys, more than fit in {} blocks of {BLOCK_SIZE}",
                    self.table_width
                ));
            }
            longest = longest.max((end - start) as usize);
            let row = &self.block_table[sequence * self.table_width..][..keys.div_ceil(BLOCK_SIZE)];
            blocks = row.iter().map(|block| *block as usize + 1).fold(blocks, usize::max);
        }
        Ok((longest, blocks))
    }

    fn pack(&self) -> Vec<u32> {
        let last: Vec<u32> = self.query_starts[1..].iter().map(|end| end.saturating_sub(1)).collect();
        let arrays = [&self.token_ids, &self.positions, &self.slots, &self.query_starts, &self.kv_lengths, &last, &self.block_table];
        let mut all = Vec::new();
        for array in arrays {
            all.extend_from_slice(array);
            all.resize(all.len().next_multiple_of(ALIGNMENT), 0);
        }
        all
    }

    /// Returns page-locked memory with this input, for [`Batch::from_pinned`].
    pub fn to_pinned(&self, gpu: &Gpu) -> Result<HostBuffer<u8>> {
        self.check()?;
        let all = self.pack();
        let mut memory = HostBuffer::zeroed(gpu.stream.device(), size_of_val(&all[..]))?;
        memory.as_mut_slice()?.copy_from_slice(bytemuck::cast_slice(&all));
        Ok(memory)
    }

    /// Overwrites page-locked memory of an input with as many tokens, sequences and blocks, once no work reads it. A graph captured with
    /// it uses the new input at its next launch.
    pub fn write_pinned(&self, memory: &mut HostBuffer<u8>) -> Result<()> {
        self.check()?;
        let all = self.pack();
        if size_of_val(&all[..]) != memory.len() {
            let reason = format!("the input needs {} bytes, but the pinned buffer has {}", size_of_val(&all[..]), memory.len());
            return Err(shape(OP, reason));
        }
        memory.as_mut_slice()?.copy_from_slice(bytemuck::cast_slice(&all));
        Ok(())
    }
}

impl Batch {
    /// Copies an input to a device.
    pub fn new(input: &BatchInput, device: &Device) -> Result<Batch> {
        // First: packing relies on it.
        input.check()?;
        let all = input.pack();
        Batch::with_storage(input, Tensor::new(&all, &[all.len()], device)?)
    }

    /// Copies an input from page-locked memory in stream order; in a captured graph, at each launch.
    pub fn from_pinned(input: &BatchInput, memory: &HostBuffer<u8>, gpu: &Arc<Gpu>) -> Result<Batch> {
        Batch::with_storage(input, Tensor::from_pinned(memory, DType::U32, &[memory.len() / 4], gpu)?)
    }

    fn with_storage(input: &BatchInput, storage: Tensor) -> Result<Batch> {
        let (max_query_len, blocks) = input.check()?;
        let (tokens, sequences) = (input.token_ids.len(), input.kv_lengths.len());
        Ok(Batch { storage, tokens, sequences, table_width: input.table_width, max_query_len, blocks })
    }

    /// Returns the number of tokens.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Returns the number of sequences.
    pub fn sequences(&self) -> usize {
        self.sequences
    }

    /// Returns the most tokens of one sequence.
    pub fn max_query_len(&self) -> usize {
        self.max_query_len
    }

    /// Returns one more than the largest block that is read or written.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        self.storage.device()
    }

    fn array(&self, array: Array) -> Result<Tensor> {
        let [tokens, sequences] = [self.tokens, self.sequences].map(|count| count.next_multiple_of(ALIGNMENT));
        let starts = (self.sequences + 1).next_multiple_of(ALIGNMENT);
        let (start, len) = match array {
            Array::TokenIds => (0, self.tokens),
            Array::Positions => (tokens, self.tokens),
            Array::Slots => (2 * tokens, self.tokens),
            Array::QueryStarts => (3 * tokens, self.sequences + 1),
            Array::KvLengths => (3 * tokens + starts, self.sequences),
            Array::LastTokens => (3 * tokens + starts + sequences, self.sequences),
            Array::BlockTable => (3 * tokens + starts + 2 * sequences, self.sequences * self.table_width),
        };
        self.storage.narrow(0, start, len)
    }

    /// Returns the token ids, `u32` of (tokens).
    pub fn token_ids(&self) -> Result<Tensor> {
        self.array(Array::TokenIds)
    }

    /// Returns the position ids, `u32` of (tokens).
    pub fn positions(&self) -> Result<Tensor> {
        self.array(Array::Positions)
    }

    /// Returns the index of each sequence's last token, `u32` of (sequences).
    pub fn last_tokens(&self) -> Result<Tensor> {
        self.array(Array::LastTokens)
    }

    /// (tokens)
    pub(crate) fn slots(&self) -> Result<Tensor> {
        self.array(Array::Slots)
    }

    /// (sequences + 1)
    pub(crate) fn query_starts(&self) -> Result<Tensor> {
        self.array(Array::QueryStarts)
    }

    /// (sequences)
    pub(crate) fn kv_lengths(&self) -> Result<Tensor> {
        self.array(Array::KvLengths)
    }

    /// (sequences, table_width)
    pub(crate) fn block_table(&self) -> Result<Tensor> {
        self.array(Array::BlockTable)?.reshape(&[self.sequences, self.table_width])
    }

    /// Fails unless a tensor has one row for each token.
    pub(crate) fn check_tokens(&self, op: &'static str, tokens: usize) -> Result<()> {
        if tokens != self.tokens {
            return Err(shape(op, format!("expected {} tokens (the size of the batch), got {tokens}", self.tokens)));
        }
        Ok(())
    }
}
