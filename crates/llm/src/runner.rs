//! Runs sequences of tokens through a model: paged KV cache, batches, chunked prefill, decoding as a captured graph.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpwave_gpu::{GraphExec, HostBuffer};
use warpwave_kernels::DType;
use warpwave_tensor::{BLOCK_SIZE, Batch, BatchInput, Device, Gpu, KvCache, KvCacheType, Tensor};

use crate::error::{Error, Result};
use crate::model::{Logits, Model};

/// Context length, KV cache and batching of a [`Runner`].
#[derive(Debug, Clone, Copy)]
pub struct RunnerOptions {
    /// The maximum number of tokens of a sequence, prompt and generated tokens together.
    pub context: usize,
    /// Capacity of the KV cache in tokens, of all sequences together. Rounded up to whole blocks. Default: `context`.
    pub cache_tokens: Option<usize>,
    /// Type of the KV cache. Default: [`Model::kv_cache_type`].
    pub kv_cache: Option<KvCacheType>,
    /// The maximum number of tokens computed in one step; longer prompts and larger batches are split. Default:
    /// [`RunnerOptions::default_chunk`], or less if memory is short.
    pub chunk: Option<usize>,
    /// Whether single-token steps of one sequence are captured as graphs. Applies to GPUs and to models on one device.
    pub graphs: bool,
}

impl Default for RunnerOptions {
    fn default() -> Self {
        RunnerOptions { context: 4096, cache_tokens: None, kv_cache: None, chunk: None, graphs: true }
    }
}

impl RunnerOptions {
    /// The smallest chunk chosen automatically; smaller ones save little memory.
    pub const SMALLEST_CHUNK: usize = 512;

    /// Returns the chunk size for a device: large GPUs are faster with thousands of tokens, which take memory.
    pub fn default_chunk(device: &Device) -> usize {
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

/// The free blocks of a KV cache.
#[derive(Debug)]
struct FreeBlocks(Mutex<Vec<u32>>);

impl FreeBlocks {
    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        // Each update is complete when the lock is released: the list is valid even after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tokens of one text that are in the KV cache of a runner. Dropping it frees its blocks.
#[derive(Debug, Default)]
pub struct Sequence {
    len: usize,
    blocks: Vec<u32>,
    /// The runner's free list that the blocks come from; `None` until the first step.
    owner: Option<Arc<FreeBlocks>>,
}

impl Drop for Sequence {
    fn drop(&mut self) {
        self.truncate(0);
    }
}

impl Sequence {
    /// Returns the number of tokens in the KV cache.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no token is in the KV cache.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The input of a step of `tokens` that begins a sequence, in the first blocks of a KV cache.
    pub(crate) fn input_of(tokens: usize) -> BatchInput {
        let blocks: Vec<u32> = (0..tokens.div_ceil(BLOCK_SIZE) as u32).collect();
        step_inputs(&[Span { blocks: &blocks, len: tokens, tokens: &vec![0; tokens] }], false)
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        if let Some(owner) = &self.owner {
            owner.lock().extend(self.blocks.drain(self.len.div_ceil(BLOCK_SIZE)..));
        }
    }
}

/// The part of a sequence that a step computes: its last tokens, with the blocks of the whole sequence.
pub(crate) struct Span<'a> {
    /// At least as many blocks as `len` tokens take.
    pub blocks: &'a [u32],
    /// Tokens of the sequence, those of this step included.
    pub len: usize,
    /// The tokens to compute.
    pub tokens: &'a [u32],
}

/// Runs a model on sequences.
pub struct Runner {
    model: Model,
    /// One on each of the model's devices.
    caches: Vec<KvCache>,
    context: usize,
    chunk: usize,
    use_graphs: bool,
    free: Arc<FreeBlocks>,
    /// Captured steps, by the width of their block tables.
    graphs: HashMap<usize, CapturedStep>,
    /// Pinned memory that a GPU writes a sampled token and its logprob to.
    pub(crate) sampled: Option<HostBuffer<u32>>,
}

/// A decode step captured as a graph, with its input and output buffers.
struct CapturedStep {
    inputs: HostBuffer<u8>,
    logits: Tensor,
    graph: GraphExec,
}

impl Runner {
    /// Creates a runner with an empty KV cache. If memory is short, the model is freed.
    pub fn new(model: Model, options: RunnerOptions) -> Result<Runner> {
        let mut chunk = options.chunk.unwrap_or_else(|| RunnerOptions::default_chunk(model.device())).max(1);
        let most = i32::MAX as usize / BLOCK_SIZE;
        let capacity = options.cache_tokens.unwrap_or(options.context);
        let blocks = capacity.div_ceil(BLOCK_SIZE);
        if blocks > most {
            return Err(Error::CacheFull { tokens: capacity, free: most * BLOCK_SIZE });
        }
        let kind = options.kv_cache.unwrap_or_else(|| model.kv_cache_type());
        let mut caches = Vec::new();
        let devices: Vec<Device> = model.devices().cloned().collect();
        for (number, device) in devices.iter().enumerate() {
            let before = device.free_memory();
            match model.new_cache(number, kind, blocks) {
                Ok(cache) => caches.push(cache),
                Err(error) => {
                    let all = (model.kv_bytes_per_token(number, kind) * blocks * BLOCK_SIZE) as u64;
                    // First the model, then what it leaves in the pool.
                    drop((model, caches));
                    devices.iter().for_each(|device| _ = device.trim());
                    let mut error = error.out_of_memory_for(|| format!("the KV cache of {} tokens", blocks * BLOCK_SIZE), 0);
                    if let Error::OutOfMemory { needed, free, missing, .. } = &mut error {
                        // Of all layers, not only of the one that failed.
                        (*needed, *free, *missing) = (all, before, all.saturating_sub(before.unwrap_or(0)));
                    }
                    return Err(error);
                }
            }
        }
        for (number, device) in devices.iter().enumerate() {
            let Device::Gpu(gpu) = device else { continue };
            // The pool keeps about as much as was ever allocated at once. Allocating everything a long step takes keeps it from freeing
            // and allocating memory at each layer. Without that much memory, steps get shorter.
            loop {
                let step = model.step_bytes(number, chunk.min(blocks * BLOCK_SIZE), kind)?;
                let fits = gpu.stream.alloc::<u8>(usize::try_from(step).unwrap_or(usize::MAX)).is_ok();
                if fits || options.chunk.is_some() || chunk <= RunnerOptions::SMALLEST_CHUNK {
                    break;
                }
                chunk /= 2;
            }
            let _ = device.trim();
        }
        let free = Arc::new(FreeBlocks(Mutex::new((0..blocks as u32).rev().collect())));
        let (context, use_graphs) = (options.context, options.graphs);
        Ok(Runner { model, caches, context, chunk, use_graphs, free, graphs: HashMap::new(), sampled: None })
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the maximum number of tokens of a sequence.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Returns the number of captured graphs.
    pub fn graphs(&self) -> usize {
        self.graphs.len()
    }

    /// Sets whether single-token steps are launched as graphs. Captured graphs are kept.
    pub fn use_graphs(&mut self, on: bool) {
        self.use_graphs = on;
    }

    /// Returns the free capacity of the KV cache in tokens.
    pub fn free_tokens(&self) -> usize {
        self.free.lock().len() * BLOCK_SIZE
    }

    /// Returns by how many tokens a sequence can grow in the KV cache.
    pub fn free_tokens_for(&self, sequence: &Sequence) -> usize {
        self.free_tokens() + sequence.blocks.len() * BLOCK_SIZE - sequence.len
    }

    /// Frees a sequence's blocks, as dropping it does.
    pub fn release(&mut self, sequence: Sequence) {
        drop(sequence);
    }

    /// Truncates a sequence to its first `len` tokens, which stay in the KV cache.
    pub fn truncate(&mut self, sequence: &mut Sequence, len: usize) {
        sequence.truncate(len);
    }

    /// Computes a batch: appends tokens to each sequence and returns logits.
    ///
    /// The logits are `f32` of (rows, vocabulary) on the model's first device, in the order of the sequences. On failure the sequences are
    /// unchanged.
    pub fn forward(&mut self, batch: &mut [(&mut Sequence, &[u32])], logits: Logits) -> Result<Tensor> {
        let total = self.check(batch)?;
        let before: Vec<usize> = batch.iter().map(|(sequence, _)| sequence.len).collect();
        let found = if total > self.chunk { self.forward_chunked(batch, logits) } else { self.forward_step(batch, logits) };
        if found.is_err() {
            for ((sequence, _), len) in batch.iter_mut().zip(before) {
                sequence.truncate(len);
            }
        }
        found
    }

    /// Computes the next chunk of `tokens`, of which the sequence holds the first ones; the logits are those of the chunk's last token. On
    /// failure the sequence is unchanged.
    pub(crate) fn forward_chunk(&mut self, sequence: &mut Sequence, tokens: &[u32]) -> Result<Tensor> {
        let before = sequence.len;
        let rest = tokens.get(before..).unwrap_or_default();
        let chunk = &rest[..rest.len().min(self.chunk)];
        self.check(&[(sequence, chunk)])?;
        let logits = self.forward_step(&mut [(&mut *sequence, chunk)], Logits::Last);
        if logits.is_err() {
            sequence.truncate(before);
        }
        logits
    }

    /// Checks that a batch can be computed; returns its number of tokens.
    pub(crate) fn check(&self, batch: &[(&mut Sequence, &[u32])]) -> Result<usize> {
        let vocab = self.model.config().vocab;
        let all = || batch.iter().flat_map(|(_, tokens)| tokens.iter());
        if let Some(token) = all().find(|token| **token as usize >= vocab) {
            return Err(Error::TokenOutOfRange { token: *token, vocab });
        }
        if batch.is_empty() || batch.iter().any(|(_, tokens)| tokens.is_empty()) {
            return Err(Error::NoTokens);
        }
        if batch.iter().filter_map(|(sequence, _)| sequence.owner.as_ref()).any(|owner| !Arc::ptr_eq(owner, &self.free)) {
            return Err(Error::OtherRunner);
        }
        let lengths = batch.iter().map(|(sequence, tokens)| sequence.len + tokens.len());
        if let Some(tokens) = lengths.clone().find(|tokens| *tokens > self.context) {
            return Err(Error::ContextExceeded { tokens, context: self.context });
        }
        let total = all().count();
        let needed: usize = lengths.zip(batch).map(|(len, (sequence, _))| len.div_ceil(BLOCK_SIZE) - sequence.blocks.len()).sum();
        if needed > self.free.lock().len() {
            return Err(Error::CacheFull { tokens: total, free: self.free_tokens() });
        }
        Ok(total)
    }

    /// A batch of more tokens than a step takes: chunks, one sequence after the other.
    fn forward_chunked(&mut self, batch: &mut [(&mut Sequence, &[u32])], logits: Logits) -> Result<Tensor> {
        let mut found = Vec::new();
        let mut rest: Vec<&[u32]> = batch.iter().map(|(_, tokens)| *tokens).collect();
        while rest.iter().any(|tokens| !tokens.is_empty()) {
            let mut free = self.chunk;
            let (mut step, mut ends) = (Vec::new(), Vec::new());
            for ((sequence, _), rest) in batch.iter_mut().zip(&mut rest).filter(|(_, rest)| !rest.is_empty()) {
                if free == 0 {
                    break;
                }
                let (chunk, behind) = rest.split_at(rest.len().min(free));
                free -= chunk.len();
                *rest = behind;
                ends.push(behind.is_empty());
                step.push((&mut **sequence, chunk));
            }
            let of_step = self.forward_step(&mut step, logits)?;
            // Only the step's last sequence may be incomplete: its last logits are not those of the sequence's last token.
            let rows = if logits == Logits::Last { ends.iter().filter(|end| **end).count() } else { of_step.size(0) };
            if rows > 0 {
                found.push(of_step.narrow(0, 0, rows)?);
            }
        }
        Ok(Tensor::cat(&found, 0)?)
    }

    /// One step. On failure the sequences keep the blocks and lengths of the step: the caller truncates them.
    fn forward_step(&mut self, batch: &mut [(&mut Sequence, &[u32])], logits: Logits) -> Result<Tensor> {
        let total: usize = batch.iter().map(|(_, tokens)| tokens.len()).sum();
        for (sequence, tokens) in batch.iter_mut() {
            sequence.len += tokens.len();
            let missing = sequence.len.div_ceil(BLOCK_SIZE) - sequence.blocks.len();
            let mut free = self.free.lock();
            let rest = free.len() - missing;
            sequence.blocks.extend(free.drain(rest..).rev());
            sequence.owner = Some(self.free.clone());
        }
        let spans: Vec<Span<'_>> =
            batch.iter().map(|(sequence, tokens)| Span { blocks: &sequence.blocks, len: sequence.len, tokens }).collect();
        self.launch(&spans, logits).map_err(|error| error.out_of_memory_for(|| format!("a step of {total} tokens"), 0))
    }

    /// Takes all free blocks: from then on the caller assigns blocks to sequences, for [`Runner::forward_spans`].
    pub(crate) fn take_blocks(&mut self) -> Vec<u32> {
        std::mem::take(&mut *self.free.lock())
    }

    /// Returns the maximum number of tokens of a step.
    pub(crate) fn chunk(&self) -> usize {
        self.chunk
    }

    /// Computes one step of sequences whose blocks the caller manages; returns the logits after the last token of each. The caller keeps
    /// within [`Runner::chunk`] and the vocabulary.
    pub(crate) fn forward_spans(&mut self, spans: &[Span<'_>]) -> Result<Tensor> {
        let total: usize = spans.iter().map(|span| span.tokens.len()).sum();
        self.launch(spans, Logits::Last).map_err(|error| error.out_of_memory_for(|| format!("a step of {total} tokens"), 0))
    }

    /// As [`Runner::forward_spans`], but returns the logits after every token.
    pub(crate) fn forward_all(&mut self, spans: &[Span<'_>]) -> Result<Tensor> {
        let total: usize = spans.iter().map(|span| span.tokens.len()).sum();
        self.launch(spans, Logits::All).map_err(|error| error.out_of_memory_for(|| format!("a step of {total} tokens"), 0))
    }

    /// As [`Runner::forward_spans`], but returns the hidden states, `f32` of (tokens, hidden size), after the last norm.
    pub(crate) fn forward_hidden(&mut self, spans: &[Span<'_>]) -> Result<Tensor> {
        let total: usize = spans.iter().map(|span| span.tokens.len()).sum();
        let hidden = self.launch(spans, Logits::Hidden).and_then(|hidden| Ok(hidden.cast(DType::F32)?));
        hidden.map_err(|error| error.out_of_memory_for(|| format!("a step of {total} tokens"), 0))
    }

    fn launch(&mut self, batch: &[Span<'_>], logits: Logits) -> Result<Tensor> {
        let decode = batch.iter().all(|span| span.tokens.len() == 1);
        // A graph keeps all memory of its kernels, which is much for the library's products of several rows. It covers one device.
        let graphs = self.use_graphs && logits != Logits::Hidden;
        if let (1, 1, true, true, Device::Gpu(_)) = (batch.len(), self.caches.len(), decode, graphs, self.model.device()) {
            return self.graph_step(&step_inputs(batch, true));
        }
        let inputs = step_inputs(batch, false);
        let steps = self.model.devices().map(|device| Batch::new(&inputs, device)).collect::<warpwave_tensor::Result<Vec<_>>>()?;
        self.model.forward(&mut self.caches, &steps, logits)
    }

    /// A single-token step: captured at first use, then launched as a graph.
    fn graph_step(&mut self, inputs: &BatchInput) -> Result<Tensor> {
        let Device::Gpu(gpu) = self.model.device().clone() else { return Err(Error::NoTokens) };
        if let Some(captured) = self.graphs.get_mut(&inputs.table_width) {
            inputs.write_pinned(&mut captured.inputs)?;
            captured.graph.launch(&gpu.stream)?;
            // The next launch overwrites the graph's logits.
            return Ok(captured.logits.copied()?);
        }
        let pinned = inputs.to_pinned(&gpu)?;
        // The first run is not captured: kernels are compiled and selected at first use.
        let logits = self.pinned_step(inputs, &pinned, &gpu)?;
        let name = |error: Error| error.out_of_memory_for(|| "a captured step".to_owned(), 0);
        let mut captured = self.capture(inputs, &pinned, &gpu).map_err(name);
        if let Err(Error::OutOfMemory { .. }) = captured {
            // During a capture the pool cannot free memory.
            self.model.device().trim()?;
            captured = self.capture(inputs, &pinned, &gpu).map_err(name);
        }
        match captured {
            Ok((logits, graph)) => _ = self.graphs.insert(inputs.table_width, CapturedStep { inputs: pinned, logits, graph }),
            Err(Error::OutOfMemory { .. }) => {
                // A graph keeps all memory of a step. Without that much, steps run without graphs.
                self.use_graphs = false;
                self.graphs.clear();
            }
            // Another thread synchronized the device: the next step tries again.
            Err(Error::Gpu(warpwave_gpu::Error::CaptureEnded { .. })) => (),
            Err(error) => return Err(error),
        }
        Ok(logits)
    }

    fn pinned_step(&mut self, inputs: &BatchInput, pinned: &HostBuffer<u8>, gpu: &Arc<Gpu>) -> Result<Tensor> {
        let step = Batch::from_pinned(inputs, pinned, gpu)?;
        self.model.forward(&mut self.caches, &[step], Logits::Last)
    }

    fn capture(&mut self, inputs: &BatchInput, pinned: &HostBuffer<u8>, gpu: &Arc<Gpu>) -> Result<(Tensor, GraphExec)> {
        let mut logits = None;
        let graph = gpu.stream.capture_graph(|_| {
            logits = Some(self.pinned_step(inputs, pinned, gpu));
            Ok(())
        });
        let graph = match graph {
            Err(ended @ warpwave_gpu::Error::CaptureEnded { .. }) => return Err(ended.into()),
            graph => graph,
        };
        // An error inside is the cause of the capture's failure: report it first.
        let logits = logits.transpose()?;
        let graph = graph?.instantiate()?;
        Ok((logits.ok_or(Error::NoTokens)?, graph))
    }
}

/// The inputs of a step for the last tokens of sequences, whose blocks are allocated. With `padded` the block table has a power of two of
/// columns, so that few graphs cover all lengths.
fn step_inputs(batch: &[Span<'_>], padded: bool) -> BatchInput {
    let width = batch.iter().map(|span| span.blocks.len()).max().unwrap_or(0);
    let width = if padded { width.next_power_of_two().max(16) } else { width };
    let mut inputs = BatchInput { table_width: width, query_starts: vec![0], ..BatchInput::default() };
    for Span { blocks, len, tokens } in batch {
        for position in len - tokens.len()..*len {
            inputs.positions.push(position as u32);
            inputs.slots.push(blocks[position / BLOCK_SIZE] * BLOCK_SIZE as u32 + (position % BLOCK_SIZE) as u32);
        }
        inputs.token_ids.extend_from_slice(tokens);
        inputs.query_starts.push(inputs.token_ids.len() as u32);
        inputs.kv_lengths.push(*len as u32);
        inputs.block_table.extend_from_slice(blocks);
        // Unused entries are -1 to the kernels.
        inputs.block_table.resize(inputs.kv_lengths.len() * width, u32::MAX);
    }
    inputs
}
