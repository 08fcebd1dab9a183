//! Mixture of experts on the CPU.

use warpwave_kernels::{ExpertScore, Routing};

use super::Precision;
use super::matmul::Matrix;

/// The indices of the `count` largest scores, largest first; of equal ones the first.
fn best(scores: &[f32], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    order.truncate(count);
    order
}

/// Eᵉ / Σ eˣ of each.
fn softmax(x: &mut [f32]) {
    let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    x.iter_mut().for_each(|x| *x = (*x - largest).exp());
    let sum: f32 = x.iter().sum();
    x.iter_mut().for_each(|x| *x /= sum);
}

/// Makes the experts of all groups but the best ineligible.
fn limit_groups(routing: &Routing, choices: &mut [f32]) {
    let each = choices.len() / routing.groups;
    let score = |group: &[f32]| match best(group, 2)[..] {
        [first, second] if routing.group_sum_of_two => group[first] + group[second],
        [first, ..] => group[first],
        [] => f32::NEG_INFINITY,
    };
    let scores: Vec<f32> = choices.chunks_exact(each).map(score).collect();
    let kept = best(&scores, routing.used_groups);
    let others = choices.chunks_exact_mut(each).enumerate().filter(|(group, _)| !kept.contains(group));
    others.for_each(|(_, group)| group.fill(f32::NEG_INFINITY));
}

/// Chooses the experts of one token.
pub(super) fn route(routing: &Routing, logits: &[f32], bias: Option<&[f32]>, ids: &mut [u32], weights: &mut [f32]) {
    let mut scores = logits.to_vec();
    match routing.score {
        ExpertScore::Softmax => softmax(&mut scores),
        ExpertScore::Sigmoid => scores.iter_mut().for_each(|x| *x = 1.0 / (1.0 + (-*x).exp())),
        ExpertScore::ChosenSoftmax | ExpertScore::SparseMixer { .. } => {}
    }
    let mut choices = scores.clone();
    if let Some(bias) = bias {
        choices.iter_mut().zip(bias).for_each(|(choice, bias)| *choice += bias);
    }
    if routing.groups > 1 {
        limit_groups(routing, &mut choices);
    }
    for (position, expert) in best(&choices, routing.used).into_iter().enumerate() {
        ids[position] = expert as u32;
        weights[position] = scores[expert];
        if let ExpertScore::SparseMixer { epsilon } = routing.score {
            let most = logits[expert];
            // Those chosen before are out.
            let near =
                |(other, x): (usize, &f32)| !ids[..position].contains(&(other as u32)) && (most - x) / x.abs().max(most) <= 2.0 * epsilon;
            let sum: f32 = logits.iter().enumerate().filter(|each| near(*each)).map(|(_, x)| (x - most).exp()).sum();
            weights[position] = 1.0 / sum;
        }
    }
    let chosen = routing.score == ExpertScore::ChosenSoftmax;
    if chosen {
        softmax(weights);
    } else if routing.normalize {
        let sum = weights.iter().sum::<f32>() + 1e-20;
        weights.iter_mut().for_each(|weight| *weight /= sum);
    }
    weights.iter_mut().for_each(|weight| *weight *= routing.scale);
}

/// Multiplies each assignment with its expert's matrix. `matrix` gives the matrix of an expert; `x` has a row for every `share` assignments.
pub(super) struct Grouped<'a> {
    pub experts: usize,
    pub rows: usize,
    pub columns: usize,
    pub ids: &'a [u32],
    pub x: &'a [f32],
    pub share: usize,
    pub bias: Option<&'a [f32]>,
    pub precision: Precision,
}

impl Grouped<'_> {
    pub fn run<'m>(&self, matrix: impl Fn(usize) -> Matrix<'m>, out: &mut [f32]) {
        let Grouped { rows, columns, .. } = *self;
        if rows == 0 {
            return;
        }
        for expert in 0..self.experts {
            let places: Vec<usize> = (0..self.ids.len()).filter(|place| self.ids[*place] as usize == expert).collect();
            if places.is_empty() {
                continue;
            }
            let x: Vec<f32> = places.iter().flat_map(|place| &self.x[place / self.share * columns..][..columns]).copied().collect();
            let mut product = vec![0.0; places.len() * rows];
            super::matmul(matrix(expert), rows, columns, &x, places.len(), &mut product, self.precision);
            for (place, product) in places.iter().zip(product.chunks_exact(rows)) {
                let out = &mut out[place * rows..][..rows];
                out.copy_from_slice(product);
                if let Some(bias) = self.bias {
                    out.iter_mut().zip(&bias[expert * rows..]).for_each(|(out, bias)| *out += bias);
                }
            }
        }
    }
}

/// Sums the results of each token's experts.
pub(super) fn combine(x: &[f32], weights: &[f32], columns: usize, used: usize, out: &mut [f32]) {
    if columns == 0 || used == 0 {
        return out.fill(0.0);
    }
    for ((out, x), weights) in out.chunks_exact_mut(columns).zip(x.chunks_exact(used * columns)).zip(weights.chunks_exact(used)) {
        out.fill(0.0);
        for (x, weight) in x.chunks_exact(columns).zip(weights) {
            out.iter_mut().zip(x).for_each(|(out, x)| *out += weight * x);
        }
    }
}
