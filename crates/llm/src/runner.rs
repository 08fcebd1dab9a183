//! Sequences of tokens through a model: a paged cache, several sequences at once, long prompts in pieces, decoding as a graph.

use std::collections::HashMap;
use std::sync::Arc;

use warpwave_gpu::{GraphExec, HostBuffer};
use warpwave_kernels::DType;
use warpwave_tensor::{BLOCK, Device, Gpu, KvCache, Step, Tensor};

use crate::error::{Error, Result};
use crate::model::Model;

/// How a runner works.
#[derive(Debug, Clone, Copy)]
pub struct RunnerOptions {
    /// Tokens that the cache has room for, of all sequences together.
    pub room: usize,
    /// What the cache holds; the model's own type without it.
    pub cache: Option<DType>,
    /// Tokens that go through the model at once: prompts that are longer go in pieces.
    pub chunk: usize,
    /// Whether steps of one token of one sequence are captured as graphs, where the device has graphs.
    pub graphs: bool,
}

impl Default for RunnerOptions {
    fn default() -> Self {
        RunnerOptions { room: 4096, cache: None, chunk: 512, graphs: true }
    }
}

/// A text under way: the tokens that went through the model, and the blocks that hold their keys and values.
#[derive(Debug, Default)]
pub struct Sequence {
    len: usize,
    blocks: Vec<u32>,
}

impl Sequence {
    /// Tokens that went through the model.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none did.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Which logits are wanted of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Those behind the last token of each sequence.
    Last,
    /// Those behind every token.
    All,
}

/// Runs a model on sequences.
pub struct Runner {
    model: Model,
    cache: KvCache,
    options: RunnerOptions,
    free: Vec<u32>,
    /// Captured steps, by the width of their tables.
    graphs: HashMap<usize, Captured>,
    /// Where a GPU leaves a token that it picked, and the logarithm of its probability.
    pub(crate) picked: Option<HostBuffer<u32>>,
}

/// The numbers of a step, before they go to the device.
#[derive(Default)]
struct Numbers {
    ids: Vec<u32>,
    positions: Vec<i32>,
    slots: Vec<i32>,
    starts: Vec<i32>,
    lengths: Vec<i32>,
    table: Vec<i32>,
    width: usize,
    longest: usize,
    last: Vec<u32>,
}

/// A step as a graph: the numbers that it copies to the device, and what it writes.
struct Captured {
    numbers: HostBuffer<u8>,
    logits: Tensor,
    graph: GraphExec,
}

impl Runner {
    /// A runner with an empty cache.
    pub fn new(model: Model, options: RunnerOptions) -> Result<Runner> {
        let config = model.config();
        let options = RunnerOptions { chunk: options.chunk.max(1), ..options };
        let blocks = options.room.div_ceil(BLOCK);
        let numbers = u32::try_from(blocks).map_err(|_| Error::Room { wanted: options.room, there: u32::MAX as usize * BLOCK })?;
        let dtype = options.cache.unwrap_or(model.dtype());
        let cache = KvCache::new(model.device(), dtype, config.layers, blocks, config.kv_heads, config.head_dim)?;
        Ok(Runner { model, cache, options, free: (0..numbers).rev().collect(), graphs: HashMap::new(), picked: None })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Tokens that there is still room for.
    pub fn room(&self) -> usize {
        self.free.len() * BLOCK
    }

    /// Tokens that a sequence can still have.
    pub fn room_for(&self, sequence: &Sequence) -> usize {
        self.room() + sequence.blocks.len() * BLOCK - sequence.len
    }

    /// Gives a sequence's blocks back.
    pub fn release(&mut self, sequence: Sequence) {
        self.free.extend(sequence.blocks);
    }

    /// Cuts a sequence to its first tokens; their keys and values stay.
    pub fn truncate(&mut self, sequence: &mut Sequence, len: usize) {
        sequence.len = sequence.len.min(len);
        self.free.extend(sequence.blocks.drain(sequence.len.div_ceil(BLOCK)..));
    }

    /// Puts tokens through the model, behind those of their sequence. Gives logits, `f32` of (rows, vocabulary), on the model's device, in
    /// the order of the sequences. If it fails the sequences are as before.
    pub fn feed(&mut self, batch: &mut [(&mut Sequence, &[u32])], wanted: Wanted) -> Result<Tensor> {
        let vocab = self.model.config().vocab;
        let all = || batch.iter().flat_map(|(_, tokens)| tokens.iter());
        if let Some(token) = all().find(|token| **token as usize >= vocab) {
            return Err(Error::NoToken { token: *token, vocab });
        }
        if batch.is_empty() || batch.iter().any(|(_, tokens)| tokens.is_empty()) {
            return Err(Error::NoTokens);
        }
        let total = all().count();
        let needed: usize =
            batch.iter().map(|(sequence, tokens)| (sequence.len + tokens.len()).div_ceil(BLOCK) - sequence.blocks.len()).sum();
        if needed > self.free.len() {
            return Err(Error::Room { wanted: total, there: self.room() });
        }
        if total > self.options.chunk && batch.len() == 1 && wanted == Wanted::Last {
            return self.feed_long(batch);
        }
        let before: Vec<usize> = batch.iter().map(|(sequence, _)| sequence.len).collect();
        for (sequence, tokens) in batch.iter_mut() {
            sequence.len += tokens.len();
            let missing = sequence.len.div_ceil(BLOCK) - sequence.blocks.len();
            sequence.blocks.extend(self.free.split_off(self.free.len() - missing).into_iter().rev());
        }
        let logits = self.step(batch, wanted);
        if logits.is_err() {
            for ((sequence, _), len) in batch.iter_mut().zip(before) {
                self.truncate(sequence, len);
            }
        }
        logits
    }

    /// A long prompt, in pieces.
    fn feed_long(&mut self, batch: &mut [(&mut Sequence, &[u32])]) -> Result<Tensor> {
        let [(sequence, tokens)] = batch else { return Err(Error::NoTokens) };
        let before = sequence.len;
        let mut logits = None;
        for piece in tokens.chunks(self.options.chunk) {
            match self.feed(&mut [(&mut **sequence, piece)], Wanted::Last) {
                Ok(of_piece) => logits = Some(of_piece),
                Err(error) => {
                    self.truncate(sequence, before);
                    return Err(error);
                }
            }
        }
        logits.ok_or(Error::NoTokens)
    }

    fn step(&mut self, batch: &[(&mut Sequence, &[u32])], wanted: Wanted) -> Result<Tensor> {
        let mut numbers = Numbers::of(batch);
        let one_each = numbers.longest == 1;
        // A graph keeps all memory that its work takes on the way, which is much where the library computes products of several.
        if let (1, true, true, Device::Gpu(_)) = (batch.len(), one_each, self.options.graphs, self.model.device()) {
            numbers.widen();
            return self.captured_step(&numbers);
        }
        let device = self.model.device().clone();
        let ids = Tensor::new(&numbers.ids, &[numbers.ids.len()], &device)?;
        let step = numbers.step(&device)?;
        let last = match wanted {
            Wanted::Last if !one_each => Some(Tensor::new(&numbers.last, &[numbers.last.len()], &device)?),
            _ => None,
        };
        self.model.forward(&ids, &mut self.cache, &step, last.as_ref())
    }

    /// A step of one token: captured when it is first asked for, then launched.
    fn captured_step(&mut self, numbers: &Numbers) -> Result<Tensor> {
        let key = numbers.width;
        if !self.graphs.contains_key(&key) {
            let Device::Gpu(gpu) = self.model.device().clone() else { return Err(Error::NoTokens) };
            let words = numbers.words();
            let mut host = HostBuffer::zeroed(gpu.stream.device(), words.len())?;
            host.as_mut_slice()?.copy_from_slice(&words);
            let step = |runner: &mut Runner| {
                let (ids, step) = numbers.copied(&host, &gpu)?;
                runner.model.forward(&ids, &mut runner.cache, &step, None)
            };
            // Once as it is: what is compiled and chosen when it is first used cannot be captured.
            let logits = step(self)?;
            let mut captured = None;
            let graph = gpu.stream.capture_graph(|_| {
                captured = Some(step(self));
                Ok(())
            });
            let (graph, captured) = match (graph, captured) {
                (Ok(graph), Some(Ok(captured))) => (graph, captured),
                (_, Some(Err(error))) => return Err(error),
                (Err(error), _) => return Err(error.into()),
                (Ok(_), None) => return Err(Error::NoTokens),
            };
            let graph = graph.instantiate()?;
            self.graphs.insert(key, Captured { numbers: host, logits: captured, graph });
            return Ok(logits);
        }
        let Some(captured) = self.graphs.get_mut(&key) else { return Err(Error::NoTokens) };
        let Device::Gpu(gpu) = self.model.device() else { return Err(Error::NoTokens) };
        captured.numbers.as_mut_slice()?.copy_from_slice(&numbers.words());
        captured.graph.launch(&gpu.stream)?;
        // The next launch writes over them.
        Ok(captured.logits.copied()?)
    }
}

impl Numbers {
    fn of(batch: &[(&mut Sequence, &[u32])]) -> Numbers {
        let width = batch.iter().map(|(sequence, _)| sequence.blocks.len()).max().unwrap_or(0);
        let mut numbers = Numbers { width, starts: vec![0], ..Numbers::default() };
        for (sequence, tokens) in batch {
            let first = sequence.len - tokens.len();
            for position in first..sequence.len {
                numbers.positions.push(position as i32);
                numbers.slots.push((sequence.blocks[position / BLOCK] as usize * BLOCK + position % BLOCK) as i32);
            }
            numbers.ids.extend_from_slice(tokens);
            numbers.starts.push(numbers.ids.len() as i32);
            numbers.last.push(numbers.ids.len() as u32 - 1);
            numbers.lengths.push(sequence.len as i32);
            numbers.longest = numbers.longest.max(tokens.len());
            numbers.table.extend(sequence.blocks.iter().map(|block| *block as i32));
            numbers.table.resize(numbers.lengths.len() * width, -1);
        }
        numbers
    }

    /// Widens the table to a power of two, so that few graphs do for all lengths.
    fn widen(&mut self) {
        let wide = self.width.next_power_of_two().max(16);
        let mut table = Vec::with_capacity(wide * self.lengths.len());
        for row in self.table.chunks(self.width.max(1)) {
            table.extend_from_slice(row);
            table.resize(table.len() + wide - row.len(), -1);
        }
        (self.table, self.width) = (table, wide);
    }

    /// All that a step reads, in one piece of `i32`.
    fn words(&self) -> Vec<u8> {
        let ids = self.ids.iter().map(|id| *id as i32);
        let others = [&self.positions, &self.slots, &self.starts, &self.lengths, &self.table];
        ids.chain(others.into_iter().flatten().copied()).flat_map(i32::to_ne_bytes).collect()
    }

    /// Such words as the tensors that they are, copied in one go.
    fn copied(&self, words: &HostBuffer<u8>, gpu: &Arc<Gpu>) -> Result<(Tensor, Step)> {
        let all = Tensor::from_pinned(words, DType::I32, &[words.len() / 4], gpu)?;
        let mut at = 0;
        let mut part = |len: usize, shape: &[usize]| {
            at += len;
            all.narrow(0, at - len, len)?.reshape(shape)
        };
        let (tokens, sequences) = (self.ids.len(), self.lengths.len());
        let ids = part(tokens, &[tokens])?;
        let positions = part(tokens, &[tokens])?;
        let slots = part(tokens, &[1, tokens])?;
        let starts = part(sequences + 1, &[sequences + 1])?;
        let lengths = part(sequences, &[sequences])?;
        let table = part(sequences * self.width, &[sequences, self.width])?;
        Ok((ids, Step { positions, slots, starts, lengths, table, longest: self.longest }))
    }

    fn step(&self, device: &Device) -> Result<Step> {
        let tensor = |numbers: &[i32], shape: &[usize]| Tensor::new(numbers, shape, device);
        let sequences = self.lengths.len();
        Ok(Step {
            positions: tensor(&self.positions, &[self.positions.len()])?,
            slots: tensor(&self.slots, &[1, self.slots.len()])?,
            starts: tensor(&self.starts, &[sequences + 1])?,
            lengths: tensor(&self.lengths, &[sequences])?,
            table: tensor(&self.table, &[sequences, self.width])?,
            longest: self.longest,
        })
    }
}
