//! Host views of memory that a device can access.
//!
//! A captured copy borrows host memory only during the capture; launched later, it could write to memory that the program holds a slice
//! of. So a slice is a guard, and a graph launch fails while one exists.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::memory::Block;
use crate::vendor::MemoryKind;

/// Prevents host views of memory while a graph that uses it is enqueued.
pub(crate) struct HostHold<'a>(Vec<&'a Arc<Block>>);

impl<'a> HostHold<'a> {
    /// Fails if the program holds a view of one of the blocks.
    pub fn of(blocks: impl Iterator<Item = &'a Arc<Block>>) -> Result<HostHold<'a>> {
        let mut hold = HostHold(Vec::new());
        for block in blocks.filter(|block| block.kind() != MemoryKind::Device) {
            if !block.begin_launch() {
                return Err(Error::HostView { device: block.device().name().to_owned() });
            }
            hold.0.push(block);
        }
        Ok(hold)
    }
}

impl Drop for HostHold<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|block| block.end_launch());
    }
}

/// A readable host slice. While it exists, graphs that use the memory cannot be launched.
pub struct HostView<'a, T> {
    elements: &'a [T],
    block: &'a Block,
}

/// A writable host slice. While it exists, graphs that use the memory cannot be launched.
pub struct HostViewMut<'a, T> {
    elements: &'a mut [T],
    block: &'a Block,
}

macro_rules! host_view {
    ($view:ident, $elements:ty) => {
        impl<'a, T> $view<'a, T> {
            /// Wraps the elements of a block after `begin_view`; dropping it calls `end_view`.
            pub(crate) fn new(elements: $elements, block: &'a Block) -> Self {
                $view { elements, block }
            }
        }

        impl<T> Deref for $view<'_, T> {
            type Target = [T];
            fn deref(&self) -> &[T] {
                self.elements
            }
        }

        impl<T> Drop for $view<'_, T> {
            fn drop(&mut self) {
                self.block.end_view();
            }
        }

        impl<T: std::fmt::Debug> std::fmt::Debug for $view<'_, T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.elements.fmt(f)
            }
        }

        impl<T: PartialEq, U: AsRef<[T]>> PartialEq<U> for $view<'_, T> {
            fn eq(&self, other: &U) -> bool {
                *self.elements == *other.as_ref()
            }
        }
    };
}
host_view!(HostView, &'a [T]);
host_view!(HostViewMut, &'a mut [T]);

impl<T> DerefMut for HostViewMut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.elements
    }
}
