//! Attention in its parts, for any shape: the scores, and the sum that they are the weights of.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch, Stream};

use crate::dtype::DType;
use crate::error::Result;
use crate::headers;
use crate::heads::{FLOATS, one_of, pointer, same_shape, sizes, steps};
use crate::kernels::{Kernels, apart, refused, same_type, wrong_shape};
use crate::source::{File, Recipe};
use crate::view::{View, ViewMut};

static SCORES: File = File { name: "scores.cu", texts: &[headers::TYPES, include_str!("cu/scores.cu")], kernels: &[""] };

/// As the struct of the kernels.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Numbers {
    a: [i64; 4],
    b: [i64; 4],
    mask: [i64; 4],
    out: [i64; 4],
    shape: [i64; 4],
    sum: i64,
    group: i64,
    scale: f64,
}

fn recipe(op: &'static str, types: [DType; 2]) -> Recipe {
    Recipe::new(&SCORES, op, &types.map(DType::name), &[])
}

impl Kernels {
    /// `out = q · kᵀ · scale + mask`: (sequences, heads, queries, keys) of queries and keys of (sequences, tokens, heads, elements). Several
    /// heads of queries may share one of keys. The mask is `f32` or of the same type, and repeated to the result's shape.
    pub fn attention_scores(
        &self,
        stream: &Stream,
        (q, k): (&View<'_>, &View<'_>),
        scale: f64,
        mask: Option<&View<'_>>,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        let op = "scores";
        let [sequences, queries, heads, dim] = sizes(op, "the queries", q, "sequences, tokens, heads, elements")?;
        let [_, keys, kv_heads, _] = sizes(op, "the keys", k, "sequences, tokens, heads, elements")?;
        if k.layout().shape() != [sequences, keys, kv_heads, dim] || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(wrong_shape(op, "the keys", k, format!("the queries have {:?}", q.layout().shape())));
        }
        let shape = [sequences, heads, queries, keys];
        let mask = match mask {
            Some(mask) => {
                one_of(op, "the mask", mask, &[DType::F32, q.dtype()])?;
                let layout = mask.layout().broadcast_to(&shape);
                Some(mask.with_layout(layout.map_err(|_| wrong_shape(op, "the mask", mask, format!("the scores have {shape:?}")))?)?)
            }
            None => None,
        };
        self.weigh(stream, op, [("the queries", *q), ("the keys", *k)], mask, out, (shape, dim, heads / kv_heads, scale))
    }

    /// `out = weights · v`: (sequences, tokens, heads, elements) of weights (sequences, heads, queries, keys) and such values.
    pub fn weighted_sum(&self, stream: &Stream, weights: &View<'_>, v: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let op = "weighted_sum";
        let [sequences, heads, queries, keys] = sizes(op, "the weights", weights, "sequences, heads, queries, keys")?;
        let [_, _, kv_heads, dim] = sizes(op, "the values", v, "sequences, tokens, heads, elements")?;
        if v.layout().shape() != [sequences, keys, kv_heads, dim] || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(wrong_shape(op, "the values", v, format!("the weights have {:?}", weights.layout().shape())));
        }
        let of = ([sequences, queries, heads, dim], keys, heads / kv_heads, 1.0);
        // The kernel takes the weights' dimensions in the order of the result's.
        self.weigh(stream, op, [("the weights", *weights), ("the values", *v)], None, out, of)
    }

    fn weigh(
        &self,
        stream: &Stream,
        op: &'static str,
        [a, b]: [(&'static str, View<'_>); 2],
        mask: Option<View<'_>>,
        out: &mut ViewMut<'_>,
        (shape, sum, group, scale): ([usize; 4], usize, usize, f64),
    ) -> Result<()> {
        let (out, dtype) = (out.as_view(), a.1.dtype());
        one_of(op, a.0, &a.1, &FLOATS)?;
        same_type(op, b.0, b.1, dtype)?;
        same_type(op, "the result", out, dtype)?;
        same_shape(op, "the result", &out, &shape)?;
        let inputs = [Some(a), Some(b), mask.map(|mask| ("the mask", mask))];
        self.check_devices(op, stream, inputs.into_iter().flatten().chain([("the result", out)]))?;
        for (what, view) in inputs.into_iter().flatten() {
            apart(op, what, &view, &out)?;
        }
        if out.layout().is_empty() {
            return Ok(());
        }
        let numbers = Numbers {
            a: steps(a.1.layout()),
            b: steps(b.1.layout()),
            mask: mask.map_or([0; 4], |mask| steps(mask.layout())),
            out: steps(out.layout()),
            shape: shape.map(|size| size as i64),
            sum: sum as i64,
            group: group as i64,
            scale,
        };
        let n = out.layout().len() as u64;
        let kernels = self.load(&recipe(op, [dtype, mask.map_or(DType::F32, |mask| mask.dtype())]))?;
        let launch = Launch::new([n.div_ceil(128).min(1 << 20) as u32, 1, 1], [128, 1, 1]);
        let args = (a.1.start(), b.1.start(), pointer(mask), out.start(), n, Arg::value(&numbers));
        // SAFETY: the kernel was made for these types; it reaches the views' places alone, and writes the result's alone.
        unsafe { kernels[0].launch(stream, launch, args) }.map_err(refused(op))
    }
}

/// Programs of these operations.
pub(crate) fn recipes() -> Vec<Recipe> {
    ["scores", "weighted_sum"].into_iter().flat_map(|op| FLOATS.map(|dtype| recipe(op, [dtype, DType::F32]))).collect()
}
