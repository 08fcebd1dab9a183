//! Every operator on every datatype, on each available device, bitwise against a reference written for this test.
//!
//! A seeded sample of the pairs by default, all of them with `WARPWAVE_TEST_FULL=1`; `WARPWAVE_SEED` repeats a sample.

mod common;

use std::collections::BTreeSet;

use common::contexts;
use half::{bf16, f16};
use warpwave_allreduce::datatype::{Op, Repr};
use warpwave_allreduce::gpu::{DeviceContext, Kernels, MAX_PEERS};
use warpwave_allreduce::schedule::RecvAction;
use warpwave_test_support::{Random, full_run, seed};

/// The kind of a field.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Signed,
    Unsigned,
    F16,
    Bf16,
    F32,
    F64,
}

/// Returns the fields of an element as kind, offset and size, and the operators allowed on it.
fn layout(repr: Repr) -> (Vec<(Kind, usize, usize)>, &'static [Op]) {
    use Kind::*;
    const INTEGER: &[Op] = &[Op::Sum, Op::Prod, Op::Min, Op::Max, Op::Land, Op::Lor, Op::Lxor, Op::Band, Op::Bor, Op::Bxor];
    const FLOAT: &[Op] = &[Op::Sum, Op::Prod, Op::Min, Op::Max];
    const COMPLEX: &[Op] = &[Op::Sum, Op::Prod];
    const PAIR: &[Op] = &[Op::MinLoc, Op::MaxLoc];
    match repr {
        Repr::I8 => (vec![(Signed, 0, 1)], INTEGER),
        Repr::U8 => (vec![(Unsigned, 0, 1)], INTEGER),
        Repr::I16 => (vec![(Signed, 0, 2)], INTEGER),
        Repr::U16 => (vec![(Unsigned, 0, 2)], INTEGER),
        Repr::I32 => (vec![(Signed, 0, 4)], INTEGER),
        Repr::U32 => (vec![(Unsigned, 0, 4)], INTEGER),
        Repr::I64 => (vec![(Signed, 0, 8)], INTEGER),
        Repr::U64 => (vec![(Unsigned, 0, 8)], INTEGER),
        Repr::F16 => (vec![(F16, 0, 2)], FLOAT),
        Repr::Bf16 => (vec![(Bf16, 0, 2)], FLOAT),
        Repr::F32 => (vec![(F32, 0, 4)], FLOAT),
        Repr::F64 => (vec![(F64, 0, 8)], FLOAT),
        Repr::Complex4 => (vec![(F16, 0, 2), (F16, 2, 2)], COMPLEX),
        Repr::Complex8 => (vec![(F32, 0, 4), (F32, 4, 4)], COMPLEX),
        Repr::Complex16 => (vec![(F64, 0, 8), (F64, 8, 8)], COMPLEX),
        Repr::FloatInt => (vec![(F32, 0, 4), (Signed, 4, 4)], PAIR),
        Repr::DoubleInt => (vec![(F64, 0, 8), (Signed, 8, 4)], PAIR),
        Repr::LongInt => (vec![(Signed, 0, 8), (Signed, 8, 4)], PAIR),
        Repr::IntInt => (vec![(Signed, 0, 4), (Signed, 4, 4)], PAIR),
        Repr::ShortInt => (vec![(Signed, 0, 2), (Signed, 4, 4)], PAIR),
        Repr::FloatFloat => (vec![(F32, 0, 4), (F32, 4, 4)], PAIR),
        Repr::DoubleDouble => (vec![(F64, 0, 8), (F64, 8, 8)], PAIR),
    }
}

/// Reads a field: an integer, or a float's bits in the low bytes.
fn read(bytes: &[u8], (kind, at, size): (Kind, usize, usize)) -> i128 {
    let mut buffer = [0; 16];
    buffer[..size].copy_from_slice(&bytes[at..at + size]);
    let bits = i128::from_le_bytes(buffer);
    if kind == Kind::Signed { bits << (128 - 8 * size) >> (128 - 8 * size) } else { bits }
}

fn write(bytes: &mut [u8], (_, at, size): (Kind, usize, usize), value: i128) {
    bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
}

/// Converts a float's bits to `f64`, which is exact for all kinds.
fn float(kind: Kind, bits: i128) -> f64 {
    match kind {
        Kind::F16 => f16::from_bits(bits as u16).to_f64(),
        Kind::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        Kind::F32 => f64::from(f32::from_bits(bits as u32)),
        Kind::F64 => f64::from_bits(bits as u64),
        _ => unreachable!(),
    }
}

/// Rounds a value to the kind. Half-precision kinds round through `f32`, as the kernels do.
fn round(kind: Kind, value: f64) -> i128 {
    match kind {
        Kind::F16 => f16::from_f32(value as f32).to_bits().into(),
        Kind::Bf16 => bf16::from_f32(value as f32).to_bits().into(),
        Kind::F32 => (value as f32).to_bits().into(),
        Kind::F64 => value.to_bits().into(),
        _ => unreachable!(),
    }
}

/// Computes a sum or product as the kind does: `f64` holds products of two `f32` exactly, and the double rounding of sums is innocuous.
fn arithmetic(kind: Kind, product: bool, a: f64, b: f64) -> f64 {
    let exact = if product { a * b } else { a + b };
    if kind == Kind::F64 { exact } else { f64::from(exact as f32) }
}

fn less(kind: Kind, a: i128, b: i128) -> bool {
    if matches!(kind, Kind::Signed | Kind::Unsigned) { a < b } else { float(kind, a) < float(kind, b) }
}

fn equal(kind: Kind, a: i128, b: i128) -> bool {
    if matches!(kind, Kind::Signed | Kind::Unsigned) { a == b } else { float(kind, a) == float(kind, b) }
}

/// Computes `into = a op b` field by field; padding is left unchanged.
fn reference(repr: Repr, op: Op, a: &[u8], b: &[u8], into: &mut [u8]) {
    let (fields, _) = layout(repr);
    let value = |bytes: &[u8], i: usize| float(fields[i].0, read(bytes, fields[i]));
    if matches!(repr, Repr::Complex4 | Repr::Complex8 | Repr::Complex16) {
        let kind = fields[0].0;
        let ([ar, ai], [br, bi]) = ([value(a, 0), value(a, 1)], [value(b, 0), value(b, 1)]);
        let [times, plus] = [true, false].map(|product| move |a, b| arithmetic(kind, product, a, b));
        let parts = match op {
            Op::Sum => [plus(ar, br), plus(ai, bi)],
            _ => [plus(times(ar, br), -times(ai, bi)), plus(times(ar, bi), times(ai, br))],
        };
        return parts.into_iter().zip(&fields).for_each(|(part, field)| write(into, *field, round(kind, part)));
    }
    let (kind, x, y) = (fields[0].0, read(a, fields[0]), read(b, fields[0]));
    if matches!(op, Op::MinLoc | Op::MaxLoc) {
        let better = if op == Op::MinLoc { less(kind, y, x) } else { less(kind, x, y) };
        let earlier = equal(kind, x, y) && less(fields[1].0, read(b, fields[1]), read(a, fields[1]));
        let chosen = if better || earlier { b } else { a };
        return fields.iter().for_each(|field| write(into, *field, read(chosen, *field)));
    }
    let float_kind = !matches!(kind, Kind::Signed | Kind::Unsigned);
    let result = match op {
        Op::Sum | Op::Prod if float_kind => round(kind, arithmetic(kind, op == Op::Prod, float(kind, x), float(kind, y))),
        Op::Sum => x.wrapping_add(y),
        Op::Prod => x.wrapping_mul(y),
        Op::Min => {
            if less(kind, y, x) {
                y
            } else {
                x
            }
        }
        Op::Max => {
            if less(kind, x, y) {
                y
            } else {
                x
            }
        }
        Op::Land => (x != 0 && y != 0).into(),
        Op::Lor => (x != 0 || y != 0).into(),
        Op::Lxor => ((x != 0) ^ (y != 0)).into(),
        Op::Band => x & y,
        Op::Bor => x | y,
        Op::Bxor => x ^ y,
        Op::MinLoc | Op::MaxLoc => unreachable!(),
    };
    write(into, fields[0], result);
}

/// Compares two elements bitwise, except that computed NaNs may have any payload.
fn same(repr: Repr, op: Op, a: &[u8], b: &[u8]) -> bool {
    let is_nan = |bytes: &[u8], field: (Kind, usize, usize)| {
        matches!(op, Op::Sum | Op::Prod) && !matches!(field.0, Kind::Signed | Kind::Unsigned) && float(field.0, read(bytes, field)).is_nan()
    };
    a == b || layout(repr).0.iter().all(|field| read(a, *field) == read(b, *field) || (is_nan(a, *field) && is_nan(b, *field)))
}

/// Generates elements with edge cases: random bits, signed zeros, infinities, NaN, subnormals, ties, and ordinary values.
fn elements(repr: Repr, n: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..n * repr.size()).map(|_| random.next_u32() as u8).collect();
    for element in bytes.chunks_exact_mut(repr.size()) {
        for field in layout(repr).0 {
            let ordinary = random.below(2001) as f64 / 256.0 - 4.0;
            let value = match (random.below(8), field.0) {
                (0, _) => continue,
                (1 | 2, Kind::Signed | Kind::Unsigned) => random.below(3) as i128,
                (3, Kind::Signed) => -(random.below(3) as i128),
                (_, Kind::Signed | Kind::Unsigned) => continue,
                (1, kind) => round(kind, [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN][random.below(5)]),
                (2, _) => random.below(5) as i128,
                (3, kind) => round(kind, random.below(3) as f64),
                (_, kind) => round(kind, ordinary),
            };
            write(element, field, value);
        }
    }
    bytes
}

fn check(repr: Repr, op: Op, what: &str, found: &[u8], wanted: &[u8]) {
    for (i, (found, wanted)) in found.chunks(repr.size()).zip(wanted.chunks(repr.size())).enumerate() {
        assert!(same(repr, op, found, wanted), "{repr:?} {op:?} {what}: element {i}: expected {wanted:02x?}, got {found:02x?}");
    }
}

/// Elements around the reduced ones, which must stay unchanged.
const AROUND: usize = 3;

/// Copies `buffers` to the device, lets `work` enqueue operations on their addresses, and returns the first buffer afterwards.
fn on_device(context: &DeviceContext, buffers: &[&[u8]], work: impl FnOnce(&warpwave_allreduce::gpu::PooledStream<'_>, &[u64])) -> Vec<u8> {
    let guard = context.enter().unwrap();
    let stream = guard.stream().unwrap();
    let memory: Vec<_> = buffers.iter().map(|bytes| stream.scratch(bytes.len()).unwrap()).collect();
    let addresses: Vec<u64> = memory.iter().map(|memory| memory.address()).collect();
    let mut back = vec![0u8; buffers[0].len()];
    for (bytes, to) in buffers.iter().zip(&addresses) {
        // SAFETY: the allocation has the size of the buffer.
        unsafe { stream.copy_from_host(*to, bytes.as_ptr().cast(), bytes.len()) }.unwrap();
    }
    work(&stream, &addresses);
    // SAFETY: as above.
    unsafe { stream.copy_to_host(back.as_mut_ptr().cast(), addresses[0], back.len()) }.unwrap();
    stream.synchronize().unwrap();
    back
}

fn two_buffers(context: &DeviceContext, kernels: &Kernels, repr: Repr, op: Op, n: usize, random: &mut Random) {
    let size = repr.size();
    for (first, second) in [(0, 0), (1, 1), (0, 1)] {
        for action in [RecvAction::ReduceLeft, RecvAction::ReduceRight, RecvAction::Replace] {
            let (own, other) = (elements(repr, n + AROUND, random), elements(repr, n + AROUND, random));
            let found = on_device(context, &[&own, &other], |stream, at| {
                // SAFETY: both hold `n` elements from that address on.
                unsafe { stream.apply(kernels, at[0] + (first * size) as u64, at[1] + (second * size) as u64, n, action) }.unwrap();
            });
            let mut wanted = own.clone();
            for i in 0..n {
                let (mine, theirs) = (&own[(first + i) * size..][..size], &other[(second + i) * size..][..size]);
                let into = &mut wanted[(first + i) * size..][..size];
                match action {
                    RecvAction::ReduceLeft => reference(repr, op, theirs, mine, into),
                    RecvAction::ReduceRight => reference(repr, op, mine, theirs, into),
                    RecvAction::Replace => layout(repr).0.into_iter().for_each(|field| write(into, field, read(theirs, field))),
                }
            }
            check(repr, op, &format!("{action:?} of {n} at {first} and {second}"), &found, &wanted);
        }
    }
}

fn many_buffers(context: &DeviceContext, kernels: &Kernels, repr: Repr, op: Op, n: usize, random: &mut Random) {
    let size = repr.size();
    for (peers, shifted) in [(1, false), (2, true), (3, false), (MAX_PEERS, false), (MAX_PEERS, true)] {
        let out = elements(repr, n + AROUND, random);
        let inputs: Vec<Vec<u8>> = (0..peers).map(|_| elements(repr, n + AROUND, random)).collect();
        let buffers: Vec<&[u8]> = std::iter::once(&out).chain(&inputs).map(Vec::as_slice).collect();
        // One peer has a different alignment phase.
        let shift = |peer: usize| if shifted && peer == 1 { 0 } else { 1 };
        let found = on_device(context, &buffers, |stream, at| {
            let from: Vec<u64> = (0..peers).map(|peer| at[1 + peer] + (shift(peer) * size) as u64).collect();
            // SAFETY: all hold `n` elements from that address on.
            unsafe { stream.reduce_peers(kernels, at[0] + size as u64, &from, n) }.unwrap();
        });
        let mut wanted = out.clone();
        for i in 0..n {
            let element = |peer: usize| &inputs[peer][(shift(peer) + i) * size..][..size];
            let mut so_far = element(0).to_vec();
            for peer in 1..peers {
                let before = so_far.clone();
                reference(repr, op, &before, element(peer), &mut so_far);
            }
            let into = &mut wanted[(1 + i) * size..][..size];
            layout(repr).0.into_iter().for_each(|field| write(into, field, read(&so_far, field)));
        }
        check(repr, op, &format!("{peers} peers of {n}"), &found, &wanted);
    }
}

#[test]
fn every_operator_matches_the_reference_bitwise() {
    let all: Vec<(Repr, Op)> = Repr::ALL.into_iter().flat_map(|repr| layout(repr).1.iter().map(move |op| (repr, *op))).collect();
    assert_eq!(all.len(), 116);
    let full = full_run();
    // One operator of each datatype, and one datatype of each operator.
    let (mut sample, seed) = (BTreeSet::new(), if full { 0 } else { seed() });
    let mut random = Random::new(seed);
    for repr in Repr::ALL {
        let pairs: Vec<usize> = (0..all.len()).filter(|i| all[*i].0 == repr).collect();
        sample.insert(pairs[random.below(pairs.len())]);
    }
    for op in Op::ALL {
        let pairs: Vec<usize> = (0..all.len()).filter(|i| all[*i].1 == op).collect();
        sample.insert(pairs[random.below(pairs.len())]);
    }
    let sampled = |(i, _): &(usize, &(Repr, Op))| full || sample.contains(i);
    for context in contexts() {
        let device = context.device().name().to_owned();
        let mut count = 0;
        for (i, (repr, op)) in all.iter().enumerate().filter(sampled) {
            let mut random = Random::new(seed ^ (i as u64 + 1) << 32);
            let kernels = context.kernels(*repr, *op).unwrap();
            for n in [1, 2, 3, 255, 1003] {
                two_buffers(&context, &kernels, *repr, *op, n, &mut random);
            }
            many_buffers(&context, &kernels, *repr, *op, 259, &mut random);
            count += 1;
        }
        eprintln!("{count} of {} datatype/operator pairs on {device}", all.len());
    }
}

#[test]
fn misaligned_addresses_are_rejected() {
    for context in contexts() {
        let kernels = context.kernels(Repr::F32, Op::Sum).unwrap();
        let guard = context.enter().unwrap();
        let stream = guard.stream().unwrap();
        let memory = stream.scratch(64).unwrap();
        // SAFETY: both hold 2 elements.
        let rejected = unsafe { stream.apply(&kernels, memory.address(), memory.address() + 34, 2, RecvAction::ReduceRight) };
        assert!(matches!(rejected, Err(warpwave_allreduce::gpu::Error::Misaligned { .. })));
        // SAFETY: no element is accessed.
        unsafe { stream.apply(&kernels, memory.address(), memory.address(), 0, RecvAction::ReduceRight) }.unwrap();
    }
}
