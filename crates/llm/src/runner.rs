//! Sequences of tokens through a model: a paged cache, several sequences at once, long prompts in pieces, decoding as a graph.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpwave_gpu::{GraphExec, HostBuffer};
use warpwave_kernels::DType;
use warpwave_tensor::{BLOCK_SIZE, Batch, BatchInput, Device, Gpu, KvCache, Tensor};

use crate::error::{Error, Result};
use crate::model::{Model, Wanted};

/// How a runner works.
#[derive(Debug, Clone, Copy)]
pub struct RunnerOptions {
    /// Tokens that the cache has room for, of all sequences together.
    pub room: usize,
    /// What the cache holds; without it what [`Model::cache_type`] says.
    pub cache: Option<DType>,
    /// Tokens that go through the model at once: more of them, of one prompt or of several, go in pieces. Without it [`RunnerOptions::chunk_on`] the device.
    pub chunk: Option<usize>,
    /// Whether steps of one token of one sequence are captured as graphs, where the device has graphs and the model is on one.
    pub graphs: bool,
}

impl Default for RunnerOptions {
    fn default() -> Self {
        RunnerOptions { room: 4096, cache: None, chunk: None, graphs: true }
    }
}

impl RunnerOptions {
    /// Steps of fewer tokens than these save little memory.
    pub const SMALLEST_CHUNK: usize = 512;

    /// Tokens that a device computes together well: a large GPU gains by thousands, which take memory.
    pub fn chunk_on(device: &Device) -> usize {
        const LARGE: usize = 32 << 30;
        match device {
            Device::Gpu(gpu) if !device.is_virtual() => {
                if gpu.stream.device().info().total_memory >= LARGE {
                    4096
                } else {
                    2048
                }
            }
            _ => RunnerOptions::SMALLEST_CHUNK,
        }
    }
}

/// The blocks of a cache that no sequence has.
#[derive(Debug)]
struct Free(Mutex<Vec<u32>>);

impl Free {
    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        // Blocks move whole: the list is right even where someone panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A text under way: the tokens that went through the model, and the blocks that hold their keys and values. They are the blocks of one
/// runner, and go back to it when the sequence is dropped.
#[derive(Debug, Default)]
pub struct Sequence {
    len: usize,
    blocks: Vec<u32>,
    /// Where the blocks are from; nowhere yet while there are none.
    home: Option<Arc<Free>>,
}

impl Drop for Sequence {
    fn drop(&mut self) {
        self.cut(0);
    }
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

    /// Keeps the first tokens.
    fn cut(&mut self, len: usize) {
        self.len = self.len.min(len);
        if let Some(home) = &self.home {
            home.lock().extend(self.blocks.drain(self.len.div_ceil(BLOCK_SIZE)..));
        }
    }
}

/// Runs a model on sequences.
pub struct Runner {
    model: Model,
    /// One on each of the model's devices.
    caches: Vec<KvCache>,
    chunk: usize,
    captures: bool,
    free: Arc<Free>,
    /// Captured steps, by the width of their tables.
    graphs: HashMap<usize, Captured>,
    /// Where a GPU leaves a token that it picked, and the logarithm of its probability.
    pub(crate) picked: Option<HostBuffer<u32>>,
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
        let mut chunk = options.chunk.unwrap_or_else(|| RunnerOptions::chunk_on(model.device())).max(1);
        let most = i32::MAX as usize / BLOCK_SIZE;
        let blocks = options.room.div_ceil(BLOCK_SIZE);
        if blocks > most {
            return Err(Error::Room { wanted: options.room, there: most * BLOCK_SIZE });
        }
        let dtype = options.cache.unwrap_or_else(|| model.cache_type());
        let mut caches = Vec::new();
        let devices: Vec<Device> = model.devices().cloned().collect();
        for (number, device) in devices.iter().enumerate() {
            let before = device.free_memory();
            match model.cache_on(number, dtype, blocks) {
                Ok(cache) => caches.push(cache),
                Err(error) => {
                    let all = (model.kv_bytes(number, dtype) * blocks * BLOCK_SIZE) as u64;
                    // The model goes first, then what it leaves in the pool.
                    drop((model, caches));
                    devices.iter().for_each(|device| _ = device.trim());
                    let mut error = error.at(|| format!("keys and values of {} tokens", blocks * BLOCK_SIZE), 0);
                    if let Error::OutOfMemory { needed, free, missing, .. } = &mut error {
                        // Of all layers, not of the one that was too many.
                        (*needed, *free, *missing) = (all, before, all.saturating_sub(before.unwrap_or(0)));
                    }
                    return Err(error);
                }
            }
        }
        for (number, device) in devices.iter().enumerate() {
            let Device::Gpu(gpu) = device else { continue };
            // The pool keeps as much as was asked for at once, and a little more: it is asked for all that a long step's layers take, so that
            // it does not give memory back at each of them to take other. Where there is not as much, steps are shorter.
            loop {
                let step = model.step_bytes(number, chunk.min(blocks * BLOCK_SIZE), dtype);
                let had = gpu.stream.alloc::<u8>(usize::try_from(step).unwrap_or(usize::MAX)).is_ok();
                if had || options.chunk.is_some() || chunk <= RunnerOptions::SMALLEST_CHUNK {
                    break;
                }
                chunk /= 2;
            }
            let _ = device.trim();
        }
        let free = Arc::new(Free(Mutex::new((0..blocks as u32).rev().collect())));
        Ok(Runner { model, caches, chunk, captures: options.graphs, free, graphs: HashMap::new(), picked: None })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Graphs that were captured: of steps that are launched as one from now on.
    pub fn graphs(&self) -> usize {
        self.graphs.len()
    }

    /// Whether steps of one token are launched as graphs from now on; captured ones stay.
    pub fn use_graphs(&mut self, on: bool) {
        self.captures = on;
    }

    /// Tokens that there is still room for.
    pub fn room(&self) -> usize {
        self.free.lock().len() * BLOCK_SIZE
    }

    /// Tokens that a sequence can still have.
    pub fn room_for(&self, sequence: &Sequence) -> usize {
        self.room() + sequence.blocks.len() * BLOCK_SIZE - sequence.len
    }

    /// Gives a sequence's blocks back, as dropping it does.
    pub fn release(&mut self, sequence: Sequence) {
        drop(sequence);
    }

    /// Cuts a sequence to its first tokens; their keys and values stay.
    pub fn truncate(&mut self, sequence: &mut Sequence, len: usize) {
        sequence.cut(len);
    }

    /// Puts tokens through the model, behind those of their sequence. Gives logits, `f32` of (rows, vocabulary), on the model's device, in
    /// the order of the sequences. If it fails the sequences are as before.
    pub fn feed(&mut self, batch: &mut [(&mut Sequence, &[u32])], wanted: Wanted) -> Result<Tensor> {
        let total = self.check(batch)?;
        let before: Vec<usize> = batch.iter().map(|(sequence, _)| sequence.len).collect();
        let logits = if total > self.chunk { self.in_pieces(batch, wanted) } else { self.at_once(batch, wanted) };
        if logits.is_err() {
            for ((sequence, _), len) in batch.iter_mut().zip(before) {
                sequence.cut(len);
            }
        }
        logits
    }

    /// One text that may be long, piece by piece: between two of them `go_on` is asked. The logits behind the text, or none where it is to
    /// go on no further: the sequence then has the pieces until there. If it fails the sequence is as before.
    pub(crate) fn feed_while(
        &mut self,
        sequence: &mut Sequence,
        tokens: &[u32],
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Tensor>> {
        self.check(&[(sequence, tokens)])?;
        let before = sequence.len;
        let logits = self.while_asked(sequence, tokens, go_on);
        if logits.is_err() {
            sequence.cut(before);
        }
        logits
    }

    fn while_asked(&mut self, sequence: &mut Sequence, tokens: &[u32], go_on: &mut dyn FnMut() -> bool) -> Result<Option<Tensor>> {
        let (first, rest) = tokens.split_at(tokens.len().min(self.chunk));
        let mut logits = self.at_once(&mut [(&mut *sequence, first)], Wanted::Last)?;
        let mut queued = None;
        for piece in rest.chunks(self.chunk) {
            // A GPU takes work without waiting for it: at most one piece is ahead of what is asked, and it is never without work.
            if let Device::Gpu(gpu) = self.model.device()
                && let Some(before) = queued.replace(gpu.stream.record()?)
            {
                before.synchronize()?;
            }
            if !go_on() {
                return Ok(None);
            }
            logits = self.at_once(&mut [(&mut *sequence, piece)], Wanted::Last)?;
        }
        Ok(Some(logits))
    }

    /// Whether tokens can go through the model, all of them; how many there are.
    fn check(&self, batch: &[(&mut Sequence, &[u32])]) -> Result<usize> {
        let vocab = self.model.config().vocab;
        let all = || batch.iter().flat_map(|(_, tokens)| tokens.iter());
        if let Some(token) = all().find(|token| **token as usize >= vocab) {
            return Err(Error::NoToken { token: *token, vocab });
        }
        if batch.is_empty() || batch.iter().any(|(_, tokens)| tokens.is_empty()) {
            return Err(Error::NoTokens);
        }
        if batch.iter().filter_map(|(sequence, _)| sequence.home.as_ref()).any(|home| !Arc::ptr_eq(home, &self.free)) {
            return Err(Error::OtherRunner);
        }
        let total = all().count();
        let needed: usize =
            batch.iter().map(|(sequence, tokens)| (sequence.len + tokens.len()).div_ceil(BLOCK_SIZE) - sequence.blocks.len()).sum();
        if needed > self.free.lock().len() {
            return Err(Error::Room { wanted: total, there: self.room() });
        }
        Ok(total)
    }

    /// More tokens than go through the model at once: as many at a time, one sequence after the other.
    fn in_pieces(&mut self, batch: &mut [(&mut Sequence, &[u32])], wanted: Wanted) -> Result<Tensor> {
        let mut logits = Vec::new();
        let mut rest: Vec<&[u32]> = batch.iter().map(|(_, tokens)| *tokens).collect();
        while rest.iter().any(|tokens| !tokens.is_empty()) {
            let mut room = self.chunk;
            let (mut step, mut ends) = (Vec::new(), Vec::new());
            for ((sequence, _), rest) in batch.iter_mut().zip(&mut rest).filter(|(_, rest)| !rest.is_empty()) {
                if room == 0 {
                    break;
                }
                let (piece, behind) = rest.split_at(rest.len().min(room));
                room -= piece.len();
                *rest = behind;
                ends.push(behind.is_empty());
                step.push((&mut **sequence, piece));
            }
            let found = self.at_once(&mut step, wanted)?;
            // Of a text that goes on, the logits behind its last token are not those that are wanted. It is the last of the step.
            let rows = if wanted == Wanted::All { found.size(0) } else { ends.iter().filter(|end| **end).count() };
            if rows > 0 {
                logits.push(found.narrow(0, 0, rows)?);
            }
        }
        Ok(Tensor::cat(&logits, 0)?)
    }

    /// One step. Where it fails, lengths and blocks are left as they are then.
    fn at_once(&mut self, batch: &mut [(&mut Sequence, &[u32])], wanted: Wanted) -> Result<Tensor> {
        let total: usize = batch.iter().map(|(_, tokens)| tokens.len()).sum();
        for (sequence, tokens) in batch.iter_mut() {
            sequence.len += tokens.len();
            let missing = sequence.len.div_ceil(BLOCK_SIZE) - sequence.blocks.len();
            let mut free = self.free.lock();
            let rest = free.len() - missing;
            sequence.blocks.extend(free.drain(rest..).rev());
            sequence.home = Some(self.free.clone());
        }
        self.step(batch, wanted).map_err(|error| error.at(|| format!("a step of {total} tokens"), 0))
    }

    fn step(&mut self, batch: &[(&mut Sequence, &[u32])], wanted: Wanted) -> Result<Tensor> {
        let one_each = batch.iter().all(|(_, tokens)| tokens.len() == 1);
        // A graph keeps all memory that its work takes on the way, which is much where the library computes products of several. It is of
        // one device.
        if let (1, 1, true, true, Device::Gpu(_)) = (batch.len(), self.caches.len(), one_each, self.captures, self.model.device()) {
            return self.captured_step(&numbers(batch, true));
        }
        let numbers = numbers(batch, false);
        let steps = self.model.devices().map(|device| Batch::new(&numbers, device)).collect::<warpwave_tensor::Result<Vec<_>>>()?;
        self.model.forward(&mut self.caches, &steps, wanted)
    }

    /// A step of one token: captured when it is first asked for, then launched.
    fn captured_step(&mut self, numbers: &BatchInput) -> Result<Tensor> {
        let Device::Gpu(gpu) = self.model.device().clone() else { return Err(Error::NoTokens) };
        if let Some(captured) = self.graphs.get_mut(&numbers.table_width) {
            numbers.write_pinned(&mut captured.numbers)?;
            captured.graph.launch(&gpu.stream)?;
            // The next launch writes over them.
            return Ok(captured.logits.copied()?);
        }
        let pinned = numbers.to_pinned(&gpu)?;
        // Once as it is: what is compiled and chosen when it is first used cannot be captured.
        let logits = self.pinned_step(numbers, &pinned, &gpu)?;
        let short = |error: Error| error.at(|| "a captured step".to_owned(), 0);
        let mut captured = self.capture(numbers, &pinned, &gpu).map_err(short);
        if let Err(Error::OutOfMemory { .. }) = captured {
            // Within a capture the pool cannot give back what it holds.
            self.model.device().trim()?;
            captured = self.capture(numbers, &pinned, &gpu).map_err(short);
        }
        match captured {
            Ok((logits, graph)) => _ = self.graphs.insert(numbers.table_width, Captured { numbers: pinned, logits, graph }),
            Err(Error::OutOfMemory { .. }) => {
                // A graph keeps all that a step takes: where that is not there, steps go on as they are.
                self.captures = false;
                self.graphs.clear();
            }
            // Someone else in this program waited for the whole device: the next step tries again.
            Err(Error::Gpu(warpwave_gpu::Error::CaptureEnded { .. })) => (),
            Err(error) => return Err(error),
        }
        Ok(logits)
    }

    fn pinned_step(&mut self, numbers: &BatchInput, pinned: &HostBuffer<u8>, gpu: &Arc<Gpu>) -> Result<Tensor> {
        let step = Batch::from_pinned(numbers, pinned, gpu)?;
        self.model.forward(&mut self.caches, &[step], Wanted::Last)
    }

    fn capture(&mut self, numbers: &BatchInput, pinned: &HostBuffer<u8>, gpu: &Arc<Gpu>) -> Result<(Tensor, GraphExec)> {
        let mut logits = None;
        let graph = gpu.stream.capture_graph(|_| {
            logits = Some(self.pinned_step(numbers, pinned, gpu));
            Ok(())
        });
        let graph = match graph {
            Err(ended @ warpwave_gpu::Error::CaptureEnded { .. }) => return Err(ended.into()),
            graph => graph,
        };
        // What went wrong inside is why the capture did.
        let logits = logits.transpose()?;
        let graph = graph?.instantiate()?;
        Ok((logits.ok_or(Error::NoTokens)?, graph))
    }
}

/// The last tokens of sequences, which have blocks for them. A `wide` table has a power of two of columns, so that few graphs do for all
/// lengths.
fn numbers(batch: &[(&mut Sequence, &[u32])], wide: bool) -> BatchInput {
    let width = batch.iter().map(|(sequence, _)| sequence.blocks.len()).max().unwrap_or(0);
    let width = if wide { width.next_power_of_two().max(16) } else { width };
    let mut numbers = BatchInput { table_width: width, query_starts: vec![0], ..BatchInput::default() };
    for (sequence, tokens) in batch {
        for position in sequence.len - tokens.len()..sequence.len {
            numbers.positions.push(position as u32);
            numbers.slots.push(sequence.blocks[position / BLOCK_SIZE] * BLOCK_SIZE as u32 + (position % BLOCK_SIZE) as u32);
        }
        numbers.token_ids.extend_from_slice(tokens);
        numbers.query_starts.push(numbers.token_ids.len() as u32);
        numbers.kv_lengths.push(sequence.len as u32);
        numbers.block_table.extend_from_slice(&sequence.blocks);
        // No block: the largest number, which kernels take for -1.
        numbers.block_table.resize(numbers.kv_lengths.len() * width, u32::MAX);
    }
    numbers
}
