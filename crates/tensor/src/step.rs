//! What goes through a model at once: tokens of sequences, and where their keys and values are.

use std::sync::Arc;

use warpwave_gpu::HostBuffer;
use warpwave_kernels::DType;

use crate::cache::BLOCK;
use crate::device::{Device, Gpu};
use crate::error::{Result, shape};
use crate::tensor::Tensor;

const OP: &str = "a step";
/// Numbers that parts of the memory begin at multiples of: 16 bytes.
const ALIGNED: usize = 4;

/// The numbers of a step, on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepNumbers {
    /// The tokens of all sequences, one sequence behind the other.
    pub ids: Vec<u32>,
    /// Their positions.
    pub positions: Vec<u32>,
    /// Where their keys and values go: block · [`BLOCK`] + place.
    pub slots: Vec<u32>,
    /// Where each sequence's tokens start, and behind the last where they end.
    pub starts: Vec<u32>,
    /// Keys of each sequence, those of this step included.
    pub lengths: Vec<u32>,
    /// The blocks of each sequence: `width` numbers, of which those behind its keys mean nothing.
    pub table: Vec<u32>,
    /// Blocks of the longest sequence.
    pub width: usize,
}

/// A step on a device. Its numbers were checked on the host, so that no operation is led outside of anything; they lie in one piece of
/// memory, for one copy is quicker than several.
pub struct Step {
    memory: Tensor,
    tokens: usize,
    sequences: usize,
    width: usize,
    longest: usize,
    /// One more than the largest block that is read or written.
    blocks: usize,
}

#[derive(Clone, Copy)]
enum Part {
    Ids,
    Positions,
    Slots,
    Starts,
    Lengths,
    Last,
    Table,
}

impl StepNumbers {
    /// Tokens of the sequence that has the most of them in this step, and one more than the largest block; an error where the numbers
    /// contradict each other.
    fn check(&self) -> Result<(usize, usize)> {
        let wrong = |reason: String| Err(shape(OP, reason));
        let (tokens, sequences) = (self.ids.len(), self.lengths.len());
        if self.positions.len() != tokens || self.slots.len() != tokens {
            return wrong(format!("{} positions and {} slots for {tokens} tokens", self.positions.len(), self.slots.len()));
        }
        if self.starts.len() != sequences + 1 || self.starts[0] != 0 || self.starts[sequences] as usize != tokens {
            return wrong(format!("starts {:?} do not divide {tokens} tokens among {sequences} sequences", self.starts));
        }
        if self.table.len() != sequences.saturating_mul(self.width) {
            return wrong(format!("a table of {} blocks for {sequences} sequences of {} each", self.table.len(), self.width));
        }
        // The numbers of keys and slots are 32-bit signed numbers in kernels.
        let most = i32::MAX as u32;
        if let Some(number) = self.slots.iter().chain(&self.positions).chain(&self.lengths).find(|number| **number > most) {
            return wrong(format!("{number} is no place of a token: they end at {most}"));
        }
        let mut longest = 0;
        let mut blocks = self.slots.iter().map(|slot| *slot as usize / BLOCK + 1).max().unwrap_or(0);
        for (number, keys) in self.lengths.iter().enumerate() {
            let (start, end, keys) = (self.starts[number], self.starts[number + 1], *keys as usize);
            if end < start || (end - start) as usize > keys {
                return wrong(format!("sequence {number} has {keys} keys, and the tokens from {start} to {end}"));
            }
            if keys.div_ceil(BLOCK) > self.width {
                return wrong(format!("sequence {number} has {keys} keys, which are more than {} blocks of {BLOCK}", self.width));
            }
            longest = longest.max((end - start) as usize);
            let row = &self.table[number * self.width..][..keys.div_ceil(BLOCK)];
            blocks = row.iter().map(|block| *block as usize + 1).fold(blocks, usize::max);
        }
        Ok((longest, blocks))
    }

    fn to_memory(&self) -> Vec<u32> {
        let last: Vec<u32> = self.starts[1..].iter().map(|end| end.saturating_sub(1)).collect();
        let mut all = Vec::new();
        for part in [&self.ids, &self.positions, &self.slots, &self.starts, &self.lengths, &last, &self.table] {
            all.extend_from_slice(part);
            all.resize(all.len().next_multiple_of(ALIGNED), 0);
        }
        all
    }

    /// Page-locked memory with these numbers, for [`Step::from_pinned`].
    pub fn to_pinned(&self, gpu: &Gpu) -> Result<HostBuffer<u8>> {
        self.check()?;
        let all = self.to_memory();
        let mut memory = HostBuffer::zeroed(gpu.stream.device(), size_of_val(&all[..]))?;
        memory.as_mut_slice()?.copy_from_slice(bytemuck::cast_slice(&all));
        Ok(memory)
    }

    /// Writes these numbers over others, once no work reads them: as many tokens of as many sequences. A graph that copies them computes
    /// them when it is next launched.
    pub fn write_pinned(&self, memory: &mut HostBuffer<u8>) -> Result<()> {
        self.check()?;
        let all = self.to_memory();
        if size_of_val(&all[..]) != memory.len() {
            return Err(shape(OP, format!("{} bytes of numbers for {}", size_of_val(&all[..]), memory.len())));
        }
        memory.as_mut_slice()?.copy_from_slice(bytemuck::cast_slice(&all));
        Ok(())
    }
}

impl Step {
    /// Takes numbers to a device.
    pub fn new(numbers: &StepNumbers, device: &Device) -> Result<Step> {
        // Before their memory is made: it takes them at their word.
        numbers.check()?;
        let all = numbers.to_memory();
        Step::of(numbers, Tensor::new(&all, &[all.len()], device)?)
    }

    /// The same from page-locked memory, in the order of the GPU's stream; in a graph, of the numbers that are there when it is launched.
    pub fn from_pinned(numbers: &StepNumbers, memory: &HostBuffer<u8>, gpu: &Arc<Gpu>) -> Result<Step> {
        Step::of(numbers, Tensor::from_pinned(memory, DType::U32, &[memory.len() / 4], gpu)?)
    }

    fn of(numbers: &StepNumbers, memory: Tensor) -> Result<Step> {
        let (longest, blocks) = numbers.check()?;
        Ok(Step { memory, tokens: numbers.ids.len(), sequences: numbers.lengths.len(), width: numbers.width, longest, blocks })
    }

    /// Tokens.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Sequences.
    pub fn sequences(&self) -> usize {
        self.sequences
    }

    /// Tokens of the sequence that has the most of them.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// One more than the largest block that is read or written.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Where it is.
    pub fn device(&self) -> &Device {
        self.memory.device()
    }

    fn part(&self, part: Part) -> Result<Tensor> {
        let [tokens, sequences] = [self.tokens, self.sequences].map(|count| count.next_multiple_of(ALIGNED));
        let starts = (self.sequences + 1).next_multiple_of(ALIGNED);
        let (at, len) = match part {
            Part::Ids => (0, self.tokens),
            Part::Positions => (tokens, self.tokens),
            Part::Slots => (2 * tokens, self.tokens),
            Part::Starts => (3 * tokens, self.sequences + 1),
            Part::Lengths => (3 * tokens + starts, self.sequences),
            Part::Last => (3 * tokens + starts + sequences, self.sequences),
            Part::Table => (3 * tokens + starts + 2 * sequences, self.sequences * self.width),
        };
        self.memory.narrow(0, at, len)
    }

    /// The tokens, `u32` of (tokens).
    pub fn ids(&self) -> Result<Tensor> {
        self.part(Part::Ids)
    }

    /// Their positions, `u32` of (tokens).
    pub fn positions(&self) -> Result<Tensor> {
        self.part(Part::Positions)
    }

    /// The number of each sequence's last token, `u32` of (sequences).
    pub fn last(&self) -> Result<Tensor> {
        self.part(Part::Last)
    }

    /// Where keys and values go: (1, tokens).
    pub(crate) fn slots(&self) -> Result<Tensor> {
        self.part(Part::Slots)?.reshape(&[1, self.tokens])
    }

    /// Where sequences start: (sequences + 1).
    pub(crate) fn starts(&self) -> Result<Tensor> {
        self.part(Part::Starts)
    }

    /// Keys of each sequence: (sequences).
    pub(crate) fn lengths(&self) -> Result<Tensor> {
        self.part(Part::Lengths)
    }

    /// The blocks of each sequence: (sequences, width).
    pub(crate) fn table(&self) -> Result<Tensor> {
        self.part(Part::Table)?.reshape(&[self.sequences, self.width])
    }

    /// Refuses tensors of other tokens.
    pub(crate) fn check_tokens(&self, op: &'static str, tokens: usize) -> Result<()> {
        if tokens != self.tokens {
            return Err(shape(op, format!("{tokens} tokens in a step of {}", self.tokens)));
        }
        Ok(())
    }
}
