//! Bad input to the transformer operations: an error that says what is wrong, before anything is written.

mod common;

use common::devices;
use half::bf16;
use warpwave_gpu::{Device, Stream};
use warpwave_jit::Jit;
use warpwave_kernels::{
    AttentionOptions, CachePositions, DType, Error, Glu, Kernels, KeyValues, Layout, Penalties, Positions, RandomSource, Result, Rope,
    RopeAngles, RopePairs, Sampling, View, ViewMut,
};

fn of(shape: &[usize]) -> Layout {
    Layout::contiguous(shape).unwrap()
}

const SHAPE: [usize; 4] = [2, 3, 4, 8];
const LEN: usize = 2 * 3 * 4 * 8;

/// Refused, and by this error; the result is as it was.
fn refuses(device: &Device, what: &str, expected: fn(&Error) -> bool, run: impl FnOnce(&Kernels, &Stream, &mut ViewMut<'_>) -> Result<()>) {
    let (kernels, stream) = (Kernels::new(device, &Jit::default()), device.stream().unwrap());
    let mut out = stream.upload(&[-77.0f32; LEN]).unwrap();
    let mut view = ViewMut::new(&mut out, of(&SHAPE)).unwrap();
    let error = run(&kernels, &stream, &mut view).expect_err(what);
    assert!(expected(&error), "{what}: {error}");
    assert!(stream.download(&out).unwrap().iter().all(|value| *value == -77.0), "{what}: something was written");
}

const WRONG_TYPE: fn(&Error) -> bool = |error| matches!(error, Error::WrongType { .. });
const WRONG_SHAPE: fn(&Error) -> bool = |error| matches!(error, Error::WrongShape { .. });
const BAD_ARGUMENT: fn(&Error) -> bool = |error| matches!(error, Error::BadArgument { .. });
const WRONG_DEVICE: fn(&Error) -> bool = |error| matches!(error, Error::WrongDevice { .. });

#[test]
fn rope_rejects_invalid_calls() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let (floats, halves) = (stream.upload(&[1.0f32; LEN]).unwrap(), stream.alloc_zeroed::<bf16>(LEN).unwrap());
        let whole = stream.alloc_zeroed::<i32>(LEN).unwrap();
        let x = View::new(&floats, of(&SHAPE)).unwrap();
        let row = |n: usize| View::new(&floats, of(&[n])).unwrap();
        let rope = |angles, positions| Rope { pairs: RopePairs::Halves, angles, positions };
        let angles = |frequencies| RopeAngles::Frequencies { frequencies, factor: 1.0 };
        let plain = rope(angles(row(4)), Positions::From(0));
        let check = |what: &str, expected, rope: Rope<'_>, x: View<'_>| {
            refuses(&device, what, expected, |kernels, stream, out| kernels.rope(stream, &rope, &x, out));
        };
        check("another type", WRONG_TYPE, plain, View::new(&halves, of(&SHAPE)).unwrap());
        check("integers", WRONG_TYPE, plain, View::new(&whole, of(&SHAPE)).unwrap());
        check("three dimensions", WRONG_SHAPE, plain, View::new(&floats, of(&[2, 3, 8])).unwrap());
        check("another shape", WRONG_SHAPE, plain, View::new(&floats, of(&[2, 3, 2, 8])).unwrap());
        check("more pairs than there are", WRONG_SHAPE, rope(angles(row(5)), Positions::From(0)), x);
        check("no pairs", WRONG_SHAPE, rope(angles(row(0)), Positions::From(0)), x);
        check("frequencies of another type", WRONG_TYPE, rope(angles(View::new(&halves, of(&[4])).unwrap()), Positions::From(0)), x);
        check("places of floats", WRONG_TYPE, rope(angles(row(4)), Positions::Ids(row(3))), x);
        check("places of others", WRONG_SHAPE, rope(angles(row(4)), Positions::Ids(View::new(&whole, of(&[4])).unwrap())), x);
        let (cos, sin) = (View::new(&floats, of(&[5, 4])).unwrap(), View::new(&floats, of(&[5, 3])).unwrap());
        check("tables of two shapes", WRONG_SHAPE, rope(RopeAngles::Tables { cos, sin }, Positions::From(0)), x);
        check("tables that are too short", WRONG_SHAPE, rope(RopeAngles::Tables { cos, sin: cos }, Positions::From(3)), x);
    }
}

#[test]
fn append_rejects_invalid_calls() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let (floats, whole) = (stream.upload(&[1.0f32; LEN]).unwrap(), stream.alloc_zeroed::<i32>(LEN).unwrap());
        let view = |shape: &[usize]| View::new(&floats, of(shape)).unwrap();
        let count = |shape: &[usize]| View::new(&whole, of(shape)).unwrap();
        let mut other = stream.upload(&[-77.0f32; LEN]).unwrap();
        let mut check = |what: &str, expected, keys: View<'_>, values: View<'_>, at: CachePositions<'_>| {
            refuses(&device, what, expected, |kernels, stream, out| {
                let mut cache = ViewMut::new(&mut other, of(&SHAPE)).unwrap();
                kernels.append(stream, (&keys, &values), at, (out, &mut cache))
            });
        };
        let new = [2, 1, 4, 8];
        check("values of another shape", WRONG_SHAPE, view(&new), view(&[2, 2, 4, 8]), CachePositions::Start(0));
        check("other heads", WRONG_SHAPE, view(&[2, 1, 3, 8]), view(&[2, 1, 3, 8]), CachePositions::Start(0));
        check("more sequences", WRONG_SHAPE, view(&[3, 1, 4, 8]), view(&[3, 1, 4, 8]), CachePositions::Start(0));
        check("no room", WRONG_SHAPE, view(&new), view(&new), CachePositions::Start(3));
        check("no room at all", WRONG_SHAPE, view(&new), view(&new), CachePositions::Start(usize::MAX));
        check("values of another type", WRONG_TYPE, view(&new), count(&new), CachePositions::Start(0));
        check("places of floats", WRONG_TYPE, view(&new), view(&new), CachePositions::Starts(view(&[2])));
        check("places of others", WRONG_SHAPE, view(&new), view(&new), CachePositions::Starts(count(&[3])));
        check("slots of others", WRONG_SHAPE, view(&new), view(&new), CachePositions::Slots(count(&[2])));
        check(
            "a table of others",
            WRONG_SHAPE,
            view(&new),
            view(&new),
            CachePositions::Paged { starts: count(&[2]), table: count(&[3, 1]) },
        );
        assert!(stream.download(&other).unwrap().iter().all(|value| *value == -77.0));
    }
}

#[test]
fn rope_append_rejects_invalid_calls() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let (floats, halves) = (stream.upload(&[1.0f32; LEN]).unwrap(), stream.alloc_zeroed::<bf16>(LEN).unwrap());
        let (whole, other_whole) = (stream.alloc_zeroed::<i32>(LEN).unwrap(), stream.alloc_zeroed::<u32>(LEN).unwrap());
        let view = |shape: &[usize]| View::new(&floats, of(shape)).unwrap();
        let count = |shape: &[usize]| View::new(&whole, of(shape)).unwrap();
        let angles = |frequencies| RopeAngles::Frequencies { frequencies, factor: 1.0 };
        let rope = |angles, positions| Rope { pairs: RopePairs::Halves, angles, positions };
        let good = rope(angles(view(&[4])), Positions::Ids(count(&[2, 3])));
        let caches = [0; 2].map(|_| stream.upload(&[-77.0f32; LEN]).unwrap());
        let [mut first, mut second] = caches;
        let mut check = |what: &str, expected, rope: Rope<'_>, [q, k, v]: [View<'_>; 3], slots: View<'_>, pool: &[usize]| {
            refuses(&device, what, expected, |kernels, stream, out| {
                let mut keys = ViewMut::new(&mut first, of(pool)).unwrap();
                let mut values = ViewMut::new(&mut second, of(pool)).unwrap();
                kernels.rope_append(stream, &rope, [&q, &k, &v], &slots, out, (&mut keys, &mut values))
            });
        };
        let (kv, pool, slots) = ([2, 3, 2, 8], [3, 4, 2, 8], count(&[2, 3]));
        let all = [view(&SHAPE), view(&kv), view(&kv)];
        let (cos, sin) = (view(&[5, 4]), view(&[5, 4]));
        check("tables", BAD_ARGUMENT, rope(RopeAngles::Tables { cos, sin }, good.positions), all, slots, &pool);
        check("places that are not given", BAD_ARGUMENT, rope(good.angles, Positions::From(0)), all, slots, &pool);
        check("more pairs than there are", WRONG_SHAPE, rope(angles(view(&[5])), good.positions), all, slots, &pool);
        check(
            "frequencies of another type",
            WRONG_TYPE,
            rope(angles(View::new(&halves, of(&[4])).unwrap()), good.positions),
            all,
            slots,
            &pool,
        );
        check("places of others", WRONG_SHAPE, rope(good.angles, Positions::Ids(count(&[2, 4]))), all, slots, &pool);
        check("places of floats", WRONG_TYPE, rope(good.angles, Positions::Ids(view(&[2, 3]))), all, slots, &pool);
        check("slots of others", WRONG_SHAPE, good, all, count(&[3]), &pool);
        check("slots of another type", WRONG_TYPE, good, all, View::new(&other_whole, of(&[2, 3])).unwrap(), &pool);
        check("other queries", WRONG_SHAPE, good, [view(&[2, 3, 2, 8]), all[1], all[2]], slots, &pool);
        check("keys of other tokens", WRONG_SHAPE, good, [all[0], view(&[2, 2, 2, 8]), all[2]], slots, &pool);
        check("values of other heads", WRONG_SHAPE, good, [all[0], all[1], view(&SHAPE)], slots, &pool);
        check("keys of another type", WRONG_TYPE, good, [all[0], View::new(&halves, of(&kv)).unwrap(), all[2]], slots, &pool);
        check("a pool of other heads", WRONG_SHAPE, good, all, slots, &[3, 2, 4, 8]);
        // Blocks of size 0 are valid and hold nothing.
        let (kernels, mut rotated) = (Kernels::new(&device, &Jit::default()), stream.upload(&[-77.0f32; LEN]).unwrap());
        let (mut keys, mut values) =
            (ViewMut::new(&mut first, of(&[3, 0, 2, 8])).unwrap(), ViewMut::new(&mut second, of(&[3, 0, 2, 8])).unwrap());
        let mut out = ViewMut::new(&mut rotated, of(&SHAPE)).unwrap();
        kernels.rope_append(&stream, &good, [&all[0], &all[1], &all[2]], &slots, &mut out, (&mut keys, &mut values)).unwrap();
        assert!(stream.download(&rotated).unwrap().iter().all(|value| *value == 1.0));
        for cache in [&first, &second] {
            assert!(stream.download(cache).unwrap().iter().all(|value| *value == -77.0));
        }
    }
}

#[test]
fn decode_attention_rejects_invalid_calls() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let (floats, halves) = (stream.upload(&[1.0f32; 4 * LEN]).unwrap(), stream.alloc_zeroed::<bf16>(LEN).unwrap());
        let whole = stream.alloc_zeroed::<i32>(LEN).unwrap();
        let view = |shape: &[usize]| View::new(&floats, of(shape)).unwrap();
        let count = |shape: &[usize]| View::new(&whole, of(shape)).unwrap();
        let (q, kv) = (view(&SHAPE), |shape: &[usize]| KeyValues { keys: view(shape), values: view(shape), table: None, lengths: None });
        let check = |what: &str, expected, q: View<'_>, kv: KeyValues<'_>, options: AttentionOptions<'_>| {
            refuses(&device, what, expected, |kernels, stream, out| kernels.decode_attention(stream, &q, &kv, &options, out));
        };
        let (good, plain) = (kv(&[2, 5, 2, 8]), AttentionOptions::new(1.0));
        check("queries of another type", WRONG_TYPE, View::new(&halves, of(&SHAPE)).unwrap(), good, plain);
        check("other queries", WRONG_SHAPE, view(&[2, 3, 2, 8]), good, plain);
        check("heads that do not divide", WRONG_SHAPE, q, kv(&[2, 5, 3, 8]), plain);
        check("another dimension", WRONG_SHAPE, q, kv(&[2, 5, 2, 4]), plain);
        check("other sequences", WRONG_SHAPE, q, kv(&[3, 5, 2, 8]), plain);
        check("other values", WRONG_SHAPE, q, KeyValues { values: view(&[2, 4, 2, 8]), ..good }, plain);
        check("a table of floats", WRONG_TYPE, q, KeyValues { table: Some(view(&[2, 1])), ..good }, plain);
        check("a table of others", WRONG_SHAPE, q, KeyValues { table: Some(count(&[3, 1])), ..good }, plain);
        check("lengths of others", WRONG_SHAPE, q, KeyValues { lengths: Some(count(&[3])), ..good }, plain);
        check("slopes of others", WRONG_SHAPE, q, good, AttentionOptions { alibi: Some(view(&[3])), ..plain });
        check("sinks of others", WRONG_SHAPE, q, good, AttentionOptions { sinks: Some(view(&[3])), ..plain });
        check("short words", WRONG_TYPE, q, good, AttentionOptions { tree: Some(count(&[2, 3])), ..plain });
        check("no cap", BAD_ARGUMENT, q, good, AttentionOptions { soft_cap: Some(0.0), ..plain });
        check("no scale", BAD_ARGUMENT, q, good, AttentionOptions::new(f32::NAN));
        refuses(&device, "scores of others", WRONG_SHAPE, |kernels, stream, out| {
            kernels.attention_scores(stream, (&q, &good.keys), 1.0, None, out)
        });
        refuses(&device, "weights of others", WRONG_SHAPE, |kernels, stream, out| kernels.weighted_sum(stream, &q, &good.values, out));
    }
}

#[test]
fn glu_and_sampling_reject_invalid_calls() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let (floats, whole) = (stream.upload(&[1.0f32; 2 * LEN]).unwrap(), stream.alloc_zeroed::<u32>(LEN).unwrap());
        let view = |shape: &[usize]| View::new(&floats, of(shape)).unwrap();
        let count = |shape: &[usize]| View::new(&whole, of(shape)).unwrap();
        refuses(&device, "another factor", WRONG_SHAPE, |kernels, stream, out| {
            kernels.glu(stream, Glu::Silu, &view(&SHAPE), &view(&[2, 3, 4, 4]), out)
        });
        refuses(&device, "whole gates", WRONG_TYPE, |kernels, stream, out| {
            kernels.glu(stream, Glu::Gelu, &count(&SHAPE), &count(&SHAPE), out)
        });
        refuses(&device, "a wider result", WRONG_TYPE, |kernels, stream, out| {
            let narrow = View::of_bytes(floats.view().into_bytes(), DType::F16, of(&SHAPE)).unwrap();
            kernels.glu(stream, Glu::Silu, &narrow, &narrow, out)
        });
        refuses(&device, "no halves", WRONG_SHAPE, |kernels, stream, out| kernels.glu_halves(stream, Glu::Silu, &view(&[2, 3, 4, 7]), out));
        refuses(&device, "other halves", WRONG_SHAPE, |kernels, stream, out| {
            kernels.glu_halves(stream, Glu::Silu, &view(&[2, 3, 4, 8]), out)
        });

        let (seed, plain) = (RandomSource::Seed { seed: 1, offset: 0 }, Sampling { temperature: 1.0, ..Sampling::GREEDY });
        let kernels = Kernels::new(&device, &Jit::default());
        let mut tokens = stream.upload(&[77u32; 8]).unwrap();
        let mut check =
            |what: &str, expected: fn(&Error) -> bool, logits: View<'_>, sampling: Sampling, random: RandomSource<'_>, rows: usize| {
                let mut out = ViewMut::new(&mut tokens, of(&[rows])).unwrap();
                let error = kernels.sample(&stream, &logits, &sampling, random, &mut out, None).expect_err(what);
                assert!(expected(&error), "{what}: {error}");
            };
        check("whole logits", WRONG_TYPE, count(&[2, 5]), plain, seed, 2);
        check("tokens of others", WRONG_SHAPE, view(&[2, 5]), plain, seed, 3);
        check("nothing to pick", WRONG_SHAPE, view(&[2, 0]), plain, seed, 2);
        check("random numbers of others", WRONG_SHAPE, view(&[2, 5]), plain, RandomSource::Values(view(&[3])), 2);
        check("whole random numbers", WRONG_TYPE, view(&[2, 5]), plain, RandomSource::Values(count(&[2])), 2);
        for sampling in [
            Sampling { temperature: -1.0, ..plain },
            Sampling { temperature: f32::NAN, ..plain },
            Sampling { top_p: 1.5, ..plain },
            Sampling { min_p: -0.1, ..plain },
        ] {
            check("a bad choice", BAD_ARGUMENT, view(&[2, 5]), sampling, seed, 2);
        }
        let penalties = Penalties { repetition: 0.0, presence: 0.0, frequency: 0.0 };
        let mut logits = stream.upload(&[-77.0f32; 8]).unwrap();
        let mut out = ViewMut::new(&mut logits, of(&[2, 4])).unwrap();
        assert!(BAD_ARGUMENT(&kernels.penalize(&stream, &penalties, &count(&[2, 3]), &mut out).unwrap_err()));
        let penalties = Penalties { repetition: 1.5, ..penalties };
        assert!(WRONG_SHAPE(&kernels.penalize(&stream, &penalties, &count(&[3, 3]), &mut out).unwrap_err()));
        assert!(WRONG_TYPE(&kernels.penalize(&stream, &penalties, &view(&[2, 3]), &mut out).unwrap_err()));
        assert!(stream.download(&logits).unwrap().iter().all(|value| *value == -77.0));
        assert!(stream.download(&tokens).unwrap().iter().all(|value| *value == 77), "something was written");
        // Of no rows nothing is picked.
        let mut none = ViewMut::new(&mut tokens, of(&[0])).unwrap();
        kernels.sample(&stream, &view(&[0, 5]), &plain, seed, &mut none, None).unwrap();
    }
}

#[test]
fn views_of_other_devices_are_rejected() {
    for pair in devices().windows(2) {
        let elsewhere = pair[1].stream().unwrap();
        let far = elsewhere.upload(&[1.0f32; 4 * LEN]).unwrap();
        let view = |shape: &[usize]| View::new(&far, of(shape)).unwrap();
        let rope = Rope {
            pairs: RopePairs::Halves,
            angles: RopeAngles::Frequencies { frequencies: view(&[4]), factor: 1.0 },
            positions: Positions::From(0),
        };
        refuses(&pair[0], "frequencies elsewhere", WRONG_DEVICE, |kernels, stream, out| kernels.rope_in_place(stream, &rope, out));
        let kv = KeyValues { keys: view(&[2, 5, 2, 8]), values: view(&[2, 5, 2, 8]), table: None, lengths: None };
        let options = AttentionOptions::new(1.0);
        refuses(&pair[0], "keys elsewhere", WRONG_DEVICE, |kernels, stream, out| {
            kernels.decode_attention(stream, &view(&SHAPE), &kv, &options, out)
        });
        refuses(&pair[0], "gates elsewhere", WRONG_DEVICE, |kernels, stream, out| {
            kernels.glu(stream, Glu::Silu, &view(&SHAPE), &view(&SHAPE), out)
        });
        assert!(elsewhere.download(&far).unwrap().iter().all(|value| *value == 1.0));
    }
}
