//! Kernel arguments: values, buffers and views, as the kernel's parameters expect them.

use std::sync::Arc;

use bytemuck::Pod;

use crate::memory::{Block, Buffer, HostBuffer, Slice, SliceMut, UnifiedBuffer};

/// A kernel argument: its bytes and the memory it points to.
#[derive(Clone, Copy)]
pub struct Arg<'a> {
    data: Data<'a>,
    pub(crate) block: Option<&'a Arc<Block>>,
}

#[derive(Clone, Copy)]
enum Data<'a> {
    Inline([u8; 8], u8),
    Borrowed(&'a [u8]),
}

impl<'a> Arg<'a> {
    /// Passes a value of any size, such as a struct.
    pub fn value<T: Pod>(value: &'a T) -> Arg<'a> {
        Arg { data: Data::Borrowed(bytemuck::bytes_of(value)), block: None }
    }

    /// Passes raw bytes as a value.
    pub fn bytes(bytes: &'a [u8]) -> Arg<'a> {
        Arg { data: Data::Borrowed(bytes), block: None }
    }

    fn inline<T: Pod>(value: T) -> Arg<'static> {
        const { assert!(size_of::<T>() <= 8) };
        let mut bytes = [0; 8];
        bytes[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
        Arg { data: Data::Inline(bytes, size_of::<T>() as u8), block: None }
    }

    fn pointer(ptr: u64, block: &'a Arc<Block>) -> Arg<'a> {
        Arg { data: Data::Inline(ptr.to_ne_bytes(), 8), block: Some(block) }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.data {
            Data::Inline(bytes, len) => &bytes[..usize::from(*len)],
            Data::Borrowed(bytes) => bytes,
        }
    }
}

macro_rules! scalars {
    ($($ty:ty),*) => { $(
        impl From<$ty> for Arg<'_> {
            #[inline]
            fn from(value: $ty) -> Self {
                Arg::inline(value)
            }
        }
    )* };
}
scalars!(u8, i8, u16, i16, u32, i32, u64, i64, usize, isize, f32, f64, half::f16, half::bf16);

impl From<bool> for Arg<'_> {
    fn from(value: bool) -> Self {
        Arg::inline(u8::from(value))
    }
}

impl<'a, T: Pod> From<Slice<'a, T>> for Arg<'a> {
    fn from(view: Slice<'a, T>) -> Self {
        Arg::pointer(view.device_ptr(), view.block)
    }
}

impl<'a, T: Pod> From<SliceMut<'a, T>> for Arg<'a> {
    fn from(view: SliceMut<'a, T>) -> Self {
        Arg::pointer(view.device_ptr(), view.block)
    }
}

macro_rules! buffers {
    ($($buffer:ident),*) => { $(
        impl<'a, T: Pod> From<&'a $buffer<T>> for Arg<'a> {
            #[inline]
            fn from(buffer: &'a $buffer<T>) -> Self {
                buffer.view().into()
            }
        }
        impl<'a, T: Pod> From<&'a mut $buffer<T>> for Arg<'a> {
            #[inline]
            fn from(buffer: &'a mut $buffer<T>) -> Self {
                buffer.view_mut().into()
            }
        }
    )* };
}
buffers!(Buffer, HostBuffer, UnifiedBuffer);

/// The arguments of a kernel: a tuple of scalars, buffers and views, or a slice of [`Arg`]s.
pub trait Args<'a> {
    /// The arguments as an array.
    type Array: AsRef<[Arg<'a>]>;
    /// Converts the arguments to an array.
    fn into_array(self) -> Self::Array;
}

impl<'s, 'a: 's> Args<'a> for &'s [Arg<'a>] {
    type Array = &'s [Arg<'a>];
    fn into_array(self) -> Self::Array {
        self
    }
}

impl<'a> Args<'a> for () {
    type Array = [Arg<'a>; 0];
    fn into_array(self) -> Self::Array {
        []
    }
}

macro_rules! tuples {
    ($($name:ident)+) => {
        impl<'a, $($name: Into<Arg<'a>>),+> Args<'a> for ($($name,)+) {
            type Array = [Arg<'a>; { [$(stringify!($name)),+].len() }];
            #[inline]
            #[allow(non_snake_case)]
            fn into_array(self) -> Self::Array {
                let ($($name,)+) = self;
                [$($name.into()),+]
            }
        }
    };
}
tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);
tuples!(A B C D E F G H I);
tuples!(A B C D E F G H I J);
tuples!(A B C D E F G H I J K);
tuples!(A B C D E F G H I J K L);
tuples!(A B C D E F G H I J K L M);
tuples!(A B C D E F G H I J K L M N);
tuples!(A B C D E F G H I J K L M N O);
tuples!(A B C D E F G H I J K L M N O P);
