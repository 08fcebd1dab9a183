//! The blocks of a KV cache: reference counts, and full blocks kept for prompts that begin with the same tokens.

use std::collections::{BTreeMap, HashMap};

use sha2::{Digest, Sha256};

/// Names the content of a full block: a hash of its tokens and of the key of the block before it.
pub(super) type Key = [u8; 32];

/// Returns the key before the first block of a text. Texts with different salts share nothing.
pub(super) fn root_key(salt: &str) -> Key {
    Sha256::new().chain_update(b"warpwave kv 1\0").chain_update(salt.as_bytes()).finalize().into()
}

/// Returns the key of a full block of `tokens` after the block with key `parent`.
pub(super) fn next_key(parent: &Key, tokens: &[u32]) -> Key {
    let mut hash = Sha256::new().chain_update(parent);
    tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
    hash.finalize().into()
}

/// The state of one block.
#[derive(Debug, Clone, Default)]
struct Block {
    references: u32,
    /// Its content, if it can be shared.
    key: Option<Key>,
    /// When it was last released; the place in [`Blocks::unused`].
    released: u64,
}

/// Assigns the blocks of a KV cache to sequences.
///
/// A block with a key is immutable and may be shared by any number of sequences. Once nobody refers to it, it stays until its memory is
/// needed: the least recently released goes first.
#[derive(Debug)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    /// Blocks without content.
    empty: Vec<u32>,
    /// Blocks with content that nobody refers to, by time of release.
    unused: BTreeMap<u64, u32>,
    cached: HashMap<Key, u32>,
    clock: u64,
}

impl Blocks {
    /// Manages these blocks, numbered from 0.
    pub fn new(free: Vec<u32>) -> Blocks {
        let count = free.iter().max().map_or(0, |last| *last as usize + 1);
        Blocks { blocks: vec![Block::default(); count], empty: free, unused: BTreeMap::new(), cached: HashMap::new(), clock: 0 }
    }

    /// Returns the number of blocks.
    pub fn total(&self) -> usize {
        self.blocks.len()
    }

    /// Returns how many blocks can be allocated.
    pub fn available(&self) -> usize {
        self.empty.len() + self.unused.len()
    }

    /// Allocates a block, with one reference. Prefers empty blocks, then the content that was released first.
    pub fn allocate(&mut self) -> Option<u32> {
        let block = match self.empty.pop() {
            Some(block) => block,
            None => self.unused.pop_first()?.1,
        };
        let state = &mut self.blocks[block as usize];
        if let Some(key) = state.key.take() {
            self.cached.remove(&key);
        }
        state.references = 1;
        Some(block)
    }

    /// Returns the block with this content, if it is in the cache.
    pub fn find(&self, key: &Key) -> Option<u32> {
        self.cached.get(key).copied()
    }

    /// Adds a reference to a block that [`Blocks::find`] returned.
    pub fn share(&mut self, block: u32) {
        let state = &mut self.blocks[block as usize];
        if state.references == 0 {
            self.unused.remove(&state.released);
        }
        state.references += 1;
    }

    /// Removes references, the last block's first: of an unused text, the end is the first to go.
    pub fn release(&mut self, blocks: impl DoubleEndedIterator<Item = u32>) {
        for block in blocks.rev() {
            let state = &mut self.blocks[block as usize];
            state.references = state.references.saturating_sub(1);
            if state.references > 0 {
                continue;
            }
            match state.key {
                Some(_) => {
                    self.clock += 1;
                    state.released = self.clock;
                    self.unused.insert(self.clock, block);
                }
                None => self.empty.push(block),
            }
        }
    }

    /// Names the content of a full block, so that others can share it. If another block has the same content, that one stays the shared one.
    pub fn publish(&mut self, block: u32, key: Key) {
        let state = &mut self.blocks[block as usize];
        if state.key.is_none() && !self.cached.contains_key(&key) {
            state.key = Some(key);
            self.cached.insert(key, block);
        }
    }

    /// Returns whether several sequences refer to a block.
    pub fn is_shared(&self, block: u32) -> bool {
        self.blocks[block as usize].references > 1
    }

    /// Forgets all content that nobody refers to.
    pub fn forget_unused(&mut self) {
        for block in std::mem::take(&mut self.unused).into_values() {
            if let Some(key) = self.blocks[block as usize].key.take() {
                self.cached.remove(&key);
            }
            self.empty.push(block);
        }
    }

    /// Checks the invariants against the blocks that sequences hold; returns what is wrong.
    pub fn check<'a>(&self, held: impl Iterator<Item = &'a u32>) -> Result<(), String> {
        let mut references = vec![0; self.blocks.len()];
        held.for_each(|block| references[*block as usize] += 1);
        let mut free = vec![0; self.blocks.len()];
        self.empty.iter().chain(self.unused.values()).for_each(|block| free[*block as usize] += 1);
        for (number, state) in self.blocks.iter().enumerate() {
            if state.references != references[number] {
                return Err(format!(
                    "KV block {number} has reference count {}, but sequences hold {} references",
                    state.references, references[number]
                ));
            }
            if free[number] != u32::from(state.references == 0) {
                return Err(format!(
                    "KV block {number} with reference count {} is {} times in the free list",
                    state.references, free[number]
                ));
            }
            if let Some(key) = &state.key
                && self.cached.get(key) != Some(&(number as u32))
            {
                return Err(format!("KV block {number} is marked as cached but is not in the prefix cache's index"));
            }
        }
        let named = self.blocks.iter().filter(|state| state.key.is_some()).count();
        if named != self.cached.len() {
            return Err(format!("{named} KV blocks are marked as cached, but the prefix cache's index has {}", self.cached.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_depend_on_tokens_order_salt_and_everything_before() {
        let (a, b) = (root_key(""), root_key("tenant"));
        let keys = [next_key(&a, &[1, 2]), next_key(&a, &[2, 1]), next_key(&b, &[1, 2]), next_key(&next_key(&a, &[1, 2]), &[1, 2])];
        for (number, key) in keys.iter().enumerate() {
            assert!(keys[..number].iter().all(|other| other != key));
        }
        assert_eq!(next_key(&a, &[1, 2]), next_key(&root_key(""), &[1, 2]));
    }

    #[test]
    fn released_content_is_found_until_its_block_is_needed_the_end_of_a_text_first() {
        let mut blocks = Blocks::new((0..3).rev().collect());
        let key = |number| next_key(&root_key(""), &[number]);
        let held: Vec<u32> = (0..3).map(|_| blocks.allocate().unwrap()).collect();
        assert_eq!((held.as_slice(), blocks.allocate()), (&[0, 1, 2][..], None));
        (0..3).for_each(|number| blocks.publish(held[number as usize], key(number)));
        blocks.release(held.into_iter());
        assert_eq!(blocks.available(), 3);
        blocks.share(0);
        assert_eq!(blocks.available(), 2);
        assert_eq!(blocks.allocate(), Some(2), "the end of the text goes first");
        assert_eq!([blocks.find(&key(0)), blocks.find(&key(1)), blocks.find(&key(2))], [Some(0), Some(1), None]);
        blocks.check([0, 2].iter()).unwrap();
        blocks.release([0, 2].into_iter());
        blocks.forget_unused();
        assert_eq!((blocks.find(&key(0)), blocks.available()), (None, 3));
        blocks.check([].iter()).unwrap();
    }

    #[test]
    fn equal_content_is_shared_from_one_block() {
        let mut blocks = Blocks::new(vec![1, 0]);
        let key = next_key(&root_key(""), &[7]);
        let (a, b) = (blocks.allocate().unwrap(), blocks.allocate().unwrap());
        blocks.publish(a, key);
        blocks.publish(b, key);
        assert_eq!(blocks.find(&key), Some(a));
        blocks.check([a, b].iter()).unwrap();
        blocks.release([b].into_iter());
        assert_eq!(blocks.allocate(), Some(b), "a duplicate is empty once released");
        blocks.share(a);
        assert!(blocks.is_shared(a) && !blocks.is_shared(b));
    }
}
