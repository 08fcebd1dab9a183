//! Attention against plain loops in f64. Sequences are short, and longer than several blocks of keys.
//!
//! What is allowed: of a result, a part of the sum of its values' sizes as they are weighted, for weights and result are rounded (see
//! [`unit`]); of a logarithm, 2⁻¹⁶ of one and of itself.

use std::collections::BTreeSet;

use warpwave_kernels::{AttentionOptions, DType, KeyValues, Layout, Varlen, View, ViewMut, Window};

use crate::common::values::{Value, decode, encode, round};
use crate::common::{Random, devices, full, seed, virtual_devices};
use crate::decode::allowed;
use crate::suite::{BEHIND, Suite, on_each_device};

/// How queries, keys and values lie.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    /// One sequence behind the other, rows of heads.
    Rows,
    /// Heads outside, and keys and values in one array with their queries.
    Heads,
    /// Rows at odd places.
    Odd,
    /// Sequences of different lengths, packed.
    Varlen,
    /// Room for the longest, and how many there are.
    Lengths,
    /// Keys per cache block, with a block table.
    Paged(usize),
    /// Varlen queries, keys in blocks of which some are missing.
    PackedPaged(usize),
}

#[derive(Debug, Clone)]
struct Case {
    name: &'static str,
    way: Way,
    dim: usize,
    heads: (usize, usize),
    /// Queries and keys of each sequence.
    lengths: &'static [(usize, usize)],
    window: Window,
    cap: Option<f32>,
    alibi: bool,
    sinks: bool,
    tree: bool,
}

/// Keys on both sides.
const fn within(left: usize, right: usize) -> Window {
    Window { left: Some(left), right: Some(right) }
}

const PLAIN: Case = Case {
    name: "attention",
    way: Way::Rows,
    dim: 64,
    heads: (2, 2),
    lengths: &[(40, 70)],
    window: Window::FULL,
    cap: None,
    alibi: false,
    sinks: false,
    tree: false,
};

/// One case of each kind, of any type.
fn cases() -> Vec<Case> {
    let uneven: &[(usize, usize)] = &[(5, 17), (0, 3), (40, 75), (1, 1), (3, 0)];
    vec![
        PLAIN,
        Case { dim: 128, lengths: &[(33, 80)], ..PLAIN },
        Case { name: "causal", window: Window::CAUSAL, lengths: &[(80, 80), (80, 80)], dim: 32, ..PLAIN },
        Case { name: "causal", window: Window::CAUSAL, lengths: &[(20, 79)], dim: 128, heads: (1, 1), ..PLAIN },
        Case { name: "causal", window: Window::CAUSAL, lengths: &[(70, 30)], ..PLAIN },
        Case { name: "window", window: Window::sliding(13), lengths: &[(66, 77)], ..PLAIN },
        Case { name: "window", window: within(19, 19), lengths: &[(50, 70)], dim: 40, ..PLAIN },
        Case { name: "window", window: within(5, 21), lengths: &[(45, 70)], dim: 64, ..PLAIN },
        Case { name: "window", window: Window { left: None, right: Some(7) }, lengths: &[(60, 33)], dim: 32, ..PLAIN },
        Case { name: "window", way: Way::Varlen, window: Window { left: Some(3), right: None }, lengths: uneven, ..PLAIN },
        Case { name: "window", way: Way::PackedPaged(5), window: within(0, 4), lengths: uneven, dim: 128, ..PLAIN },
        Case { name: "sinks", sinks: true, lengths: &[(30, 70)], window: Window::CAUSAL, ..PLAIN },
        Case { name: "sinks", sinks: true, way: Way::PackedPaged(7), lengths: uneven, heads: (4, 2), cap: Some(2.0), ..PLAIN },
        Case { name: "sinks", sinks: true, lengths: &[(40, 20)], window: Window::sliding(9), dim: 128, heads: (2, 1), ..PLAIN },
        Case {
            name: "tree",
            way: Way::Lengths,
            tree: true,
            lengths: &[(12, 70), (12, 33), (12, 5)],
            window: Window::CAUSAL,
            heads: (4, 2),
            ..PLAIN
        },
        Case { name: "tree", tree: true, lengths: &[(64, 90)], alibi: true, dim: 128, heads: (2, 1), ..PLAIN },
        Case { name: "tree", tree: true, way: Way::PackedPaged(7), lengths: uneven, window: Window::sliding(20), sinks: true, ..PLAIN },
        Case {
            name: "tree",
            tree: true,
            way: Way::Varlen,
            lengths: &[(80, 130), (3, 3), (9, 4)],
            window: Window::CAUSAL,
            dim: 72,
            ..PLAIN
        },
        Case { name: "large heads", dim: 288, lengths: &[(18, 40)], window: Window::CAUSAL, heads: (2, 1), ..PLAIN },
        Case { name: "large heads", dim: 512, lengths: &[(40, 50)], sinks: true, ..PLAIN },
        Case { name: "large heads", dim: 376, way: Way::Odd, lengths: &[(20, 45)], tree: true, ..PLAIN },
        Case { name: "alibi", window: Window::CAUSAL, alibi: true, lengths: &[(30, 70)], ..PLAIN },
        Case { name: "soft cap", cap: Some(0.8), lengths: &[(30, 70)], dim: 96, ..PLAIN },
        Case { name: "shared heads", heads: (6, 2), lengths: &[(20, 40)], ..PLAIN },
        Case { name: "shared heads", heads: (3, 1), lengths: &[(17, 33)], window: Window::CAUSAL, dim: 32, ..PLAIN },
        Case { name: "strides", way: Way::Heads, lengths: &[(30, 30), (30, 30)], ..PLAIN },
        Case { name: "strides", way: Way::Odd, lengths: &[(20, 45)], window: Window::CAUSAL, dim: 72, ..PLAIN },
        Case { name: "packed", way: Way::Varlen, lengths: uneven, window: Window::CAUSAL, heads: (2, 1), ..PLAIN },
        Case { name: "lengths", way: Way::Lengths, lengths: &[(30, 70), (30, 5), (30, 0)], window: Window::CAUSAL, ..PLAIN },
        Case { name: "paged", way: Way::Paged(16), lengths: &[(20, 70), (20, 33)], window: Window::CAUSAL, heads: (4, 2), ..PLAIN },
        Case { name: "paged", way: Way::PackedPaged(7), lengths: uneven, window: within(8, 8), alibi: true, cap: Some(2.0), ..PLAIN },
        Case { name: "wide heads", dim: 256, lengths: &[(18, 40)], window: Window::CAUSAL, heads: (1, 1), ..PLAIN },
        Case { name: "small heads", dim: 16, lengths: &[(21, 50)], window: Window::CAUSAL, ..PLAIN },
        Case { name: "one key", lengths: &[(1, 1)], heads: (1, 1), ..PLAIN },
        Case { name: "no keys", lengths: &[(3, 0)], dim: 32, ..PLAIN },
        Case { name: "no queries", lengths: &[(0, 4)], ..PLAIN },
    ]
}

/// Every head size too.
fn all_cases() -> Vec<Case> {
    let sizes = [8, 16, 32, 48, 64, 96, 104, 128, 160, 192, 200, 224, 256, 264, 320, 376, 384, 448, 504, 512];
    let window = |dim: usize| if dim.is_multiple_of(64) { Window::CAUSAL } else { Window::FULL };
    let sized = sizes.map(|dim| Case { name: "attention", dim, window: window(dim), lengths: &[(35, 70)], ..PLAIN });
    cases().into_iter().chain(sized).collect()
}

/// Several tiles of queries, and more blocks of keys than are in flight, on the kernels of GPUs; each head size with each way
/// that keys lie.
fn large_cases() -> Vec<Case> {
    let uneven: &[(usize, usize)] = &[(200, 300), (1, 700), (0, 5), (330, 330), (129, 0), (64, 128)];
    let shared = Case { heads: (2, 1), window: Window::CAUSAL, ..PLAIN };
    let mut cases = vec![
        Case { name: "attention", dim: 128, lengths: &[(260, 520)], heads: (4, 2), ..PLAIN },
        Case { name: "attention", dim: 64, lengths: &[(385, 1000)], ..PLAIN },
        Case { name: "attention", dim: 256, lengths: &[(140, 400)], ..PLAIN },
        Case { name: "causal", lengths: &[(500, 200)], dim: 128, ..shared },
        Case { name: "causal", lengths: &[(200, 1200)], dim: 128, ..shared },
        Case { name: "strides", way: Way::Heads, lengths: &[(300, 300), (300, 300)], dim: 128, heads: (2, 2), ..shared },
    ];
    for dim in [32, 64, 96, 128, 192, 256, 288, 512] {
        let sized = Case { dim, ..shared };
        cases.extend([
            Case { name: "causal", lengths: &[(300, 300), (300, 300)], ..sized },
            Case { name: "window", window: Window::sliding(100), lengths: &[(400, 1000)], ..sized },
            Case { name: "window", window: within(129, 40), lengths: &[(200, 600)], ..sized },
            Case { name: "sinks", sinks: true, lengths: &[(200, 600)], ..sized },
            Case { name: "tree", way: Way::Lengths, tree: true, lengths: &[(200, 600), (200, 100)], ..sized },
            Case { name: "alibi", alibi: true, lengths: &[(200, 500)], ..sized },
            Case { name: "soft cap", cap: Some(0.8), lengths: &[(200, 500)], window: Window::FULL, ..sized },
            Case { name: "packed", way: Way::Varlen, lengths: uneven, ..sized },
            Case { name: "lengths", way: Way::Lengths, lengths: &[(200, 400), (200, 33), (200, 0)], ..sized },
            Case { name: "paged", way: Way::Paged(16), lengths: &[(200, 600), (200, 333)], ..sized },
            Case {
                name: "paged",
                way: Way::PackedPaged(7),
                lengths: uneven,
                window: Window::sliding(90),
                alibi: true,
                cap: Some(2.0),
                ..sized
            },
            // Rows at odd places are not for Hopper's kernel: the one of older cards takes them.
            Case { name: "strides", way: Way::Odd, lengths: &[(200, 300)], ..sized },
        ]);
    }
    cases
}

/// Elements of a memory, and how they lie.
struct Side {
    layout: Layout,
    bytes: Vec<u8>,
    values: Vec<f64>,
}

impl Side {
    fn new(dtype: DType, layout: Layout, random: &mut Random) -> Side {
        let last: usize = layout.shape().iter().zip(layout.strides()).map(|(n, stride)| n.saturating_sub(1) * stride).sum();
        let values: Vec<f64> = (0..layout.offset() + last + 1 + BEHIND).map(|_| round(dtype, random.unit() * 4.0 - 2.0)).collect();
        let bytes = values.iter().flat_map(|value| encode(dtype, Value::Real(*value))).collect();
        Side { layout, bytes, values }
    }

    fn place(&self, index: &[usize]) -> usize {
        self.layout.offset() + index.iter().zip(self.layout.strides()).map(|(i, stride)| i * stride).sum::<usize>()
    }
}

/// The layouts of queries, keys and values, and the table.
struct Setting {
    sides: [Side; 3],
    out: Layout,
    lse: Layout,
    /// The queries' and keys' starts, numbers of keys, table.
    starts: [Vec<i32>; 2],
    lengths: Vec<i32>,
    table: Vec<i32>,
    columns: usize,
}

fn starts(lengths: impl Iterator<Item = usize>) -> Vec<i32> {
    std::iter::once(0)
        .chain(lengths.scan(0, |at, len| {
            *at += len as i32;
            Some(*at)
        }))
        .collect()
}

fn setting(case: &Case, dtype: DType, random: &mut Random) -> Setting {
    let Case { dim, heads: (heads, kv_heads), lengths, .. } = *case;
    let batch = lengths.len();
    let (most_q, most_kv) = (lengths.iter().map(|l| l.0).max().unwrap(), lengths.iter().map(|l| l.1).max().unwrap());
    let total_q: usize = lengths.iter().map(|l| l.0).sum();
    let row = |shape: &[usize]| Layout::contiguous(shape).unwrap();
    let packed_q = matches!(case.way, Way::Varlen | Way::PackedPaged(_));
    let page = match case.way {
        Way::Paged(page) | Way::PackedPaged(page) => page,
        _ => 1,
    };
    let columns = most_kv.div_ceil(page);
    let q_shape: Vec<usize> = if packed_q { vec![total_q, heads, dim] } else { vec![batch, most_q, heads, dim] };
    let outside = |shape: [usize; 4]| row(&[shape[0], shape[2], shape[1], shape[3]]).transpose(1, 2).unwrap();
    let odd = |[b, s, h, d]: [usize; 4], offset| Layout::new(&[b, s, h, d], &[s * h * (d + 3), h * (d + 3), d + 3, 1], offset).unwrap();
    let (q, k, out) = match case.way {
        Way::Heads => {
            // Keys, values and others of a row side by side.
            let within =
                Layout::new(&[batch, most_kv, kv_heads, dim], &[most_kv * 3 * kv_heads * dim, 3 * kv_heads * dim, dim, 1], 64).unwrap();
            (outside([batch, most_q, heads, dim]), within, outside([batch, most_q, heads, dim]))
        }
        Way::Odd => (odd([batch, most_q, heads, dim], 1), odd([batch, most_kv, kv_heads, dim], 5), odd([batch, most_q, heads, dim], 3)),
        Way::Varlen => (row(&q_shape), row(&[lengths.iter().map(|l| l.1).sum(), kv_heads, dim]), row(&q_shape)),
        Way::Paged(_) | Way::PackedPaged(_) => (row(&q_shape), row(&[batch * columns + 2, page, kv_heads, dim]), row(&q_shape)),
        Way::Rows | Way::Lengths => (row(&q_shape), row(&[batch, most_kv, kv_heads, dim]), row(&q_shape)),
    };
    let mut table: Vec<i32> = (0..(batch * columns) as i32 + 2).collect();
    for i in (1..table.len()).rev() {
        table.swap(i, random.below(i + 1));
    }
    table.truncate(batch * columns);
    if matches!(case.way, Way::PackedPaged(_)) {
        // Some are out of range.
        table.iter_mut().step_by(4).for_each(|number| *number = [-1, (batch * columns) as i32 + 2, i32::MIN][random.below(3)]);
    }
    Setting {
        sides: [q, k, k].map(|layout| Side::new(dtype, layout, random)),
        out,
        lse: if packed_q { row(&[heads, total_q]) } else { row(&[batch, heads, most_q]) },
        starts: [starts(lengths.iter().map(|l| l.0)), starts(lengths.iter().map(|l| l.1))],
        lengths: lengths.iter().map(|l| l.1 as i32).collect(),
        table,
        columns,
    }
}

/// Runs a case; the largest share of the tolerance that an element took.
fn run(suite: &Suite, case: &Case, dtype: DType, random: &mut Random) -> f64 {
    let (kernels, stream) = (&suite.kernels, &suite.stream);
    let Case { dim, heads: (heads, kv_heads), lengths, .. } = *case;
    let setting = setting(case, dtype, random);
    let buffers = setting.sides.each_ref().map(|side| stream.upload(&side.bytes).unwrap());
    let view = |i: usize| View::of_bytes(&buffers[i], dtype, setting.sides[i].layout).unwrap();
    let list = |values: &[i32]| stream.upload(if values.is_empty() { &[0] } else { values }).unwrap();
    let (q_starts, kv_starts, numbers, table) =
        (list(&setting.starts[0]), list(&setting.starts[1]), list(&setting.lengths), list(&setting.table));
    let shaped = |shape: &[usize]| Layout::contiguous(shape).unwrap();
    let batch = lengths.len();
    // Slopes of all sequences, or of each.
    let slope_shape = if random.below(2) == 0 { vec![heads] } else { vec![batch, heads] };
    let slopes: Vec<f32> = (0..slope_shape.iter().product()).map(|i| 0.3 / (i + 1) as f32).collect();
    let slope_buffer = stream.upload(&slopes).unwrap();
    let sinks: Vec<f32> = (0..heads).map(|_| random.unit() as f32 * 6.0 - 3.0).collect();
    let sink_buffer = stream.upload(&sinks).unwrap();
    let packed = matches!(case.way, Way::Varlen | Way::PackedPaged(_));
    // Of varlen queries, one word each.
    let most_q = lengths.iter().map(|l| l.0).max().unwrap();
    let word_shape = if packed { [1, lengths.iter().map(|l| l.0).sum()] } else { [batch, most_q] };
    let words: Vec<i64> = (0..word_shape[0] * word_shape[1] + 1).map(|_| random.next_u64() as i64).collect();
    let word_buffer = stream.upload(&words).unwrap();
    let paged = matches!(case.way, Way::Paged(_) | Way::PackedPaged(_));
    let options = AttentionOptions {
        scale: 0.4 / (dim as f32).sqrt(),
        window: case.window,
        soft_cap: case.cap,
        alibi: case.alibi.then(|| View::new(&slope_buffer, shaped(&slope_shape)).unwrap()),
        sinks: case.sinks.then(|| View::new(&sink_buffer, shaped(&[heads])).unwrap()),
        tree: case.tree.then(|| View::new(&word_buffer, shaped(if packed { &word_shape[1..] } else { &word_shape })).unwrap()),
    };
    let key_values = KeyValues {
        keys: view(1),
        values: view(2),
        table: paged.then(|| View::new(&table, shaped(&[batch, setting.columns])).unwrap()),
        lengths: (paged || case.way == Way::Lengths).then(|| View::new(&numbers, shaped(&[batch])).unwrap()),
    };
    let last: usize = setting.out.shape().iter().zip(setting.out.strides()).map(|(n, stride)| n.saturating_sub(1) * stride).sum();
    let poison = vec![0xa5u8; (setting.out.offset() + last + 1 + BEHIND) * dtype.size()];
    let mut out = stream.upload(&poison).unwrap();
    let mut lse = stream.upload(&vec![-77.0f32; setting.lse.len() + BEHIND]).unwrap();
    {
        let mut out = ViewMut::of_bytes(&mut out, dtype, setting.out).unwrap();
        let mut lse = ViewMut::new(&mut lse, setting.lse).unwrap();
        if packed {
            let packed = Varlen {
                q_starts: View::new(&q_starts, shaped(&[batch + 1])).unwrap(),
                max_q_len: lengths.iter().map(|l| l.0).max().unwrap(),
                kv_starts: (!paged).then(|| View::new(&kv_starts, shaped(&[batch + 1])).unwrap()),
            };
            kernels.attention_varlen(stream, &view(0), &key_values, &packed, &options, &mut out, Some(&mut lse)).unwrap();
        } else {
            kernels.attention(stream, &view(0), &key_values, &options, &mut out, Some(&mut lse)).unwrap();
        }
    }
    let (found, found_lse) = (stream.download(&out).unwrap(), stream.download(&lse).unwrap());

    let mut worst = 0f64;
    let mut written = vec![false; found.len() / dtype.size()];
    let mut written_lse = vec![false; found_lse.len()];
    let [q, k, v] = &setting.sides;
    for (b, (q_len, kv_len)) in lengths.iter().copied().enumerate() {
        let q_row = |i: usize| match q.layout.shape().len() {
            3 => vec![setting.starts[0][b] as usize + i],
            _ => vec![b, i],
        };
        let key_row = |j: usize| match case.way {
            Way::Varlen => vec![setting.starts[1][b] as usize + j],
            Way::Paged(page) | Way::PackedPaged(page) => vec![setting.table[b * setting.columns + j / page] as usize, j % page],
            _ => vec![b, j],
        };
        let index = |row: Vec<usize>, head: usize| [row, vec![head, 0]].concat();
        for h in 0..heads {
            let slope = &slopes[(b * heads + h) % slopes.len()];
            let kv_head = h / (heads / kv_heads);
            // Of many queries a part, each time another; all are written.
            let (every, some) = (if q_len * kv_len > 30_000 { 3 } else { 1 }, random.below(3));
            for i in 0..q_len {
                let place = |row: &[usize]| {
                    setting.out.offset() + row.iter().zip(setting.out.strides()).map(|(i, stride)| i * stride).sum::<usize>()
                };
                let out_at = place(&index(q_row(i), h));
                written[out_at..out_at + dim].fill(true);
                let lse_at = match setting.lse.shape().len() {
                    2 => h * setting.lse.shape()[1] + setting.starts[0][b] as usize + i,
                    _ => (b * heads + h) * setting.lse.shape()[2] + i,
                };
                written_lse[lse_at] = true;
                if !(i + some).is_multiple_of(every) {
                    continue;
                }
                let own = i as i64 + kv_len as i64 - q_len as i64;
                let draft = kv_len as i64 - q_len.min(64) as i64;
                let word = words[if packed { setting.starts[0][b] as usize + i } else { b * most_q + i }];
                let sees = |j: i64| match case.tree && j >= draft {
                    true => word >> (j - draft) & 1 == 1,
                    false => {
                        case.window.left.is_none_or(|left| own - j <= left as i64)
                            && case.window.right.is_none_or(|right| j - own <= right as i64)
                    }
                };
                let there = |j: usize| match case.way {
                    Way::PackedPaged(page) => (0..k.layout.shape()[0] as i32).contains(&setting.table[b * setting.columns + j / page]),
                    _ => true,
                };
                let keys: Vec<usize> = (0..kv_len).filter(|j| sees(*j as i64) && there(*j)).collect();
                let q_at = q.place(&index(q_row(i), h));
                let score = |j: usize| {
                    let k_at = k.place(&index(key_row(j), kv_head));
                    let dot: f64 = (0..dim).map(|d| q.values[q_at + d] * k.values[k_at + d]).sum();
                    let scaled = dot * f64::from(options.scale);
                    let capped = case.cap.map_or(scaled, |cap| f64::from(cap) * (scaled / f64::from(cap)).tanh());
                    capped - if case.alibi { f64::from(*slope) * (own - j as i64).abs() as f64 } else { 0.0 }
                };
                let scores: Vec<f64> = keys.iter().map(|j| score(*j)).collect();
                let sink = if case.sinks { f64::from(sinks[h]) } else { f64::NEG_INFINITY };
                let most = scores.iter().copied().fold(sink, f64::max);
                let powers: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
                let sum: f64 = powers.iter().sum::<f64>() + if case.sinks { (sink - most).exp() } else { 0.0 };
                let rows: Vec<usize> = keys.iter().map(|j| v.place(&index(key_row(*j), kv_head))).collect();
                for d in 0..dim {
                    let terms = || rows.iter().zip(&powers).map(|(row, p)| (p / sum, v.values[row + d]));
                    let wanted: f64 = terms().map(|(weight, value)| weight * value).sum();
                    let place = out_at + d;
                    let element = decode(dtype, &found[place * dtype.size()..(place + 1) * dtype.size()]).real();
                    let error = (element - wanted).abs() / (allowed(suite, dtype, terms()) + 1e-30);
                    assert!(
                        error <= 1.0,
                        "{case:?} {dtype}: sequence {b} head {h} query {i} column {d}: {element} for {wanted}, {error} of the tolerance"
                    );
                    worst = worst.max(error);
                }
                let (element, wanted) = (f64::from(found_lse[lse_at]), most + sum.ln());
                let error = if element == wanted { 0.0 } else { (element - wanted).abs() / (2f64.powi(-16) * (1.0 + wanted.abs())) };
                assert!(error <= 1.0, "{case:?} {dtype}: sequence {b} head {h} query {i}: logarithm {element} for {wanted}");
                worst = worst.max(error);
            }
        }
    }
    // Memory outside the result is unchanged.
    let untouched = found.chunks(dtype.size()).zip(&written).all(|(element, written)| *written || element.iter().all(|byte| *byte == 0xa5));
    assert!(untouched, "{case:?} {dtype}: something else was written");
    assert!(
        found_lse.iter().zip(&written_lse).all(|(value, written)| *written || *value == -77.0),
        "{case:?} {dtype}: logarithms elsewhere"
    );
    worst
}

#[test]
fn attention_agrees_with_the_reference() {
    let seed = seed();
    let known: BTreeSet<&str> = cases().iter().map(|case| case.name).collect();
    let types = [DType::Bf16, DType::F16, DType::F32];
    on_each_device(&known, |suite, table| {
        let mut random = Random::new(seed);
        let mut all = if full() { all_cases() } else { cases() };
        all.extend(if suite.fills() { large_cases() } else { vec![] });
        for (i, case) in all.iter().enumerate() {
            // One type of each by default, the same on every device.
            let chosen = (seed as usize + i) % types.len();
            for dtype in types.into_iter().enumerate().filter(|(t, _)| full() || *t == chosen).map(|(_, dtype)| dtype) {
                table.note(case.name, dtype, run(suite, case, dtype, &mut random));
            }
        }
    });
}

/// What cards without matrix units do, which the devices above have.
#[test]
fn attention_without_matrix_units_agrees_with_the_reference() {
    let seed = seed();
    for device in virtual_devices(&["gfx908"]) {
        let (suite, mut random) = (Suite::new(&device), Random::new(seed));
        let cases = cases();
        let some: Vec<&Case> = if full() { cases.iter().collect() } else { (0..2).map(|_| &cases[random.below(cases.len())]).collect() };
        for case in some {
            run(&suite, case, [DType::F16, DType::Bf16][random.below(2)], &mut random);
        }
    }
}

#[test]
fn invalid_attention_calls_are_rejected() {
    use warpwave_kernels::Error;
    type Refusal = fn(&Error) -> bool;
    let (shape, dtype, argument): (Refusal, Refusal, Refusal) = (
        |error| matches!(error, Error::WrongShape { .. }),
        |error| matches!(error, Error::WrongType { .. }),
        |error| matches!(error, Error::BadArgument { .. }),
    );
    let all = devices();
    for (number, device) in all.iter().enumerate() {
        let suite = Suite::new(device);
        let (kernels, stream) = (&suite.kernels, &suite.stream);
        let bytes = stream.upload(&vec![0u8; 1 << 16]).unwrap();
        let of = |dtype: DType, shape: &[usize]| View::of_bytes(&bytes, dtype, Layout::contiguous(shape).unwrap()).unwrap();
        let half = |shape: &[usize]| of(DType::F16, shape);
        let q = half(&[2, 3, 4, 32]);
        let kv = KeyValues { keys: half(&[2, 5, 2, 32]), values: half(&[2, 5, 2, 32]), table: None, lengths: None };
        let usual = AttentionOptions::new(0.1);
        let paged = KeyValues { table: Some(of(DType::U32, &[2, 3])), lengths: Some(of(DType::I32, &[2])), ..kv };
        let packed = Varlen { q_starts: of(DType::I32, &[3]), max_q_len: 4, kv_starts: Some(of(DType::I32, &[3])) };
        let packed_kv = KeyValues { keys: half(&[9, 2, 32]), values: half(&[9, 2, 32]), ..kv };
        let twice = View::of_bytes(&bytes, DType::F16, Layout::new(&[2, 3, 4, 32], &[1024, 256, 64, 2], 0).unwrap()).unwrap();
        let gaps = View::of_bytes(&bytes, DType::I32, Layout::new(&[2], &[2], 0).unwrap()).unwrap();

        let refused = |what: &str,
                       expected: Refusal,
                       q: View<'_>,
                       kv: KeyValues<'_>,
                       options: AttentionOptions<'_>,
                       packed: Option<Varlen<'_>>,
                       lse: &[usize]| {
            let mut out = stream.upload(&vec![0xa5u8; q.layout().len() * q.dtype().size()]).unwrap();
            let mut room = stream.upload(&vec![-77.0f32; lse.iter().product()]).unwrap();
            {
                let mut out = ViewMut::of_bytes(&mut out, q.dtype(), Layout::contiguous(q.layout().shape()).unwrap()).unwrap();
                let mut lse = ViewMut::new(&mut room, Layout::contiguous(lse).unwrap()).unwrap();
                let result = match packed {
                    Some(packed) => kernels.attention_varlen(stream, &q, &kv, &packed, &options, &mut out, Some(&mut lse)),
                    None => kernels.attention(stream, &q, &kv, &options, &mut out, Some(&mut lse)),
                };
                let error = result.expect_err(what);
                assert!(expected(&error), "{what}: {error}");
            }
            assert!(stream.download(&out).unwrap().iter().all(|byte| *byte == 0xa5), "{what}: something was written");
            assert!(stream.download(&room).unwrap().iter().all(|value| *value == -77.0), "{what}: a logarithm was written");
        };
        let lse = &[2, 4, 3][..];
        let with = |keys, values| KeyValues { keys, values, ..kv };
        let same = |view| with(view, view);
        refused("integers", dtype, of(DType::I32, &[2, 3, 4, 32]), same(of(DType::I32, &[2, 5, 2, 32])), usual, None, lse);
        refused("two types", dtype, q, with(kv.keys, of(DType::Bf16, &[2, 5, 2, 32])), usual, None, lse);
        refused("three dimensions", shape, half(&[3, 4, 32]), kv, usual, None, &[4, 3]);
        refused("an odd head", shape, half(&[2, 3, 4, 36]), same(half(&[2, 5, 2, 36])), usual, None, lse);
        refused("a huge head", shape, half(&[2, 3, 4, 520]), same(half(&[2, 5, 2, 520])), usual, None, lse);
        refused("heads of two sizes", shape, q, same(half(&[2, 5, 2, 64])), usual, None, lse);
        refused("heads that cannot be shared", shape, q, same(half(&[2, 5, 3, 32])), usual, None, lse);
        refused("no heads of keys", shape, q, same(half(&[2, 5, 0, 32])), usual, None, lse);
        refused("other values", shape, q, with(kv.keys, half(&[2, 6, 2, 32])), usual, None, lse);
        refused("other sequences", shape, q, same(half(&[3, 5, 2, 32])), usual, None, lse);
        refused("spread elements", argument, twice, kv, usual, None, lse);
        refused("other logarithms", shape, q, kv, usual, None, &[2, 3, 4]);
        refused("no number", argument, q, kv, AttentionOptions { scale: f32::NAN, ..usual }, None, lse);
        refused("no cap", argument, q, kv, AttentionOptions { soft_cap: Some(0.0), ..usual }, None, lse);
        refused("halves as sinks", dtype, q, kv, AttentionOptions { sinks: Some(half(&[4])), ..usual }, None, lse);
        refused("too many sinks", shape, q, kv, AttentionOptions { sinks: Some(of(DType::F32, &[5])), ..usual }, None, lse);
        refused("short words", dtype, q, kv, AttentionOptions { tree: Some(of(DType::I32, &[2, 3])), ..usual }, None, lse);
        refused("words of other queries", shape, q, kv, AttentionOptions { tree: Some(of(DType::I64, &[2, 4])), ..usual }, None, lse);
        let spread = View::of_bytes(&bytes, DType::F32, Layout::new(&[4], &[2], 0).unwrap()).unwrap();
        refused("sinks with gaps", argument, q, kv, AttentionOptions { sinks: Some(spread), ..usual }, None, lse);
        refused("halves as slopes", dtype, q, kv, AttentionOptions { alibi: Some(half(&[4])), ..usual }, None, lse);
        refused("too few slopes", shape, q, kv, AttentionOptions { alibi: Some(of(DType::F32, &[2])), ..usual }, None, lse);
        refused("a table of floats", dtype, q, KeyValues { table: Some(of(DType::F32, &[2, 3])), ..paged }, usual, None, lse);
        refused("a table of other sequences", shape, q, KeyValues { table: Some(of(DType::U32, &[3, 3])), ..paged }, usual, None, lse);
        refused("a table of one dimension", shape, q, KeyValues { table: Some(of(DType::U32, &[6])), ..paged }, usual, None, lse);
        refused("too many numbers", shape, q, KeyValues { lengths: Some(of(DType::I32, &[3])), ..paged }, usual, None, lse);
        refused("numbers with gaps", argument, q, KeyValues { lengths: Some(gaps), ..paged }, usual, None, lse);
        let rows = half(&[7, 4, 32]);
        refused("packed, four dimensions", shape, q, packed_kv, usual, Some(packed), &[4, 7]);
        refused("packed, no starts", shape, rows, packed_kv, usual, Some(Varlen { q_starts: of(DType::I32, &[0]), ..packed }), &[4, 7]);
        refused("packed, wide starts", dtype, rows, packed_kv, usual, Some(Varlen { q_starts: of(DType::I64, &[3]), ..packed }), &[4, 7]);
        refused(
            "packed, other keys",
            shape,
            rows,
            packed_kv,
            usual,
            Some(Varlen { kv_starts: Some(of(DType::I32, &[4])), ..packed }),
            &[4, 7],
        );
        refused(
            "packed and paged",
            argument,
            rows,
            KeyValues { keys: packed_kv.keys, values: packed_kv.values, ..paged },
            usual,
            Some(packed),
            &[4, 7],
        );
        refused("packed, other logarithms", shape, rows, packed_kv, usual, Some(packed), &[7, 4]);
        if let Some(other) = all.get(number + 1) {
            let elsewhere = other.stream().unwrap();
            let far = elsewhere.upload(&vec![0u8; 1 << 16]).unwrap();
            let slopes = View::of_bytes(&far, DType::F32, Layout::contiguous(&[4]).unwrap()).unwrap();
            let device: Refusal = |error| matches!(error, Error::WrongDevice { .. });
            refused("slopes elsewhere", device, q, kv, AttentionOptions { alibi: Some(slopes), ..usual }, None, lse);
        }
    }
}
