//! Sorting, distinct elements, and counting.

use warpwave_tensor::Tensor;

use crate::Context;
use crate::reference::{Reference, compare};

/// The indices of a row in order.
fn order(row: &[f64], descending: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| if descending { row[*b].total_cmp(&row[*a]) } else { row[*a].total_cmp(&row[*b]) });
    order
}

/// The first `k` of each row along a dimension: elements and indices.
fn first(x: &Reference, dim: usize, k: usize, descending: bool) -> [Reference; 2] {
    let mut to = x.shape.clone();
    to[dim] = k;
    let at = |index: &[usize]| {
        let mut index = index.to_vec();
        let i = index[dim];
        let row: Vec<f64> = (0..x.shape[dim])
            .map(|j| {
                index[dim] = j;
                // Both zeros are equal.
                x.at(&index) + 0.0
            })
            .collect();
        let from = order(&row, descending)[i];
        (row[from], from as f64)
    };
    [Reference::new(&to, |index| at(index).0), Reference::new(&to, |index| at(index).1)]
}

pub fn sort(context: &mut Context<'_>) {
    for (shape, dim) in [(&[4, 30][..], 1), (&[3, 5, 4], 1), (&[37], 0), (&[2, 0], 1), (&[0, 3], 1)] {
        let descending = context.random.below(2) == 0;
        let (x, reference) = context.input(shape);
        let check = |what: &str, found: (Tensor, Tensor), k: usize| {
            let [values, indices] = first(&reference, dim, k, descending);
            compare(what, &found.0, &values, 0.0, 0.0);
            compare(&format!("indices of {what}"), &found.1, &indices, 0.0, 0.0);
        };
        check("sort", x.sort(dim, descending).unwrap(), shape[dim]);
        check("topk", x.topk(shape[dim].min(3), dim, descending).unwrap(), shape[dim].min(3));
        compare("argsort", &x.argsort(dim, descending).unwrap(), &first(&reference, dim, shape[dim], descending)[1], 0.0, 0.0);
    }
    let (x, _) = context.input(&[2, 3]);
    assert!(x.topk(4, 1, true).unwrap_err().to_string().contains("k of at most 3"));
    assert!(x.sort(2, true).unwrap_err().to_string().contains("out of range"));
}

pub fn unique(context: &mut Context<'_>) {
    for shape in [&[5, 6][..], &[1], &[0, 4]] {
        let (x, reference) = context.input(shape);
        let numbers: Vec<f64> = reference.values.iter().map(|x| x + 0.0).collect();
        let mut distinct = numbers.clone();
        distinct.sort_by(f64::total_cmp);
        distinct.dedup();
        let row = |values: Vec<f64>| Reference { shape: vec![values.len()], values };
        let count = |value: &f64| numbers.iter().filter(|x| *x == value).count() as f64;
        let counts = distinct.iter().map(count).collect();
        let inverse = numbers.iter().map(|x| distinct.iter().position(|y| x == y).unwrap() as f64).collect();
        let found = x.unique_all().unwrap();
        compare("inverse", &found.inverse, &Reference { shape: shape.to_vec(), values: inverse }, 0.0, 0.0);
        compare("counts", &found.counts, &row(counts), 0.0, 0.0);
        let distinct = row(distinct);
        compare("unique_all", &found.values, &distinct, 0.0, 0.0);
        compare("unique_values", &x.unique_values().unwrap(), &distinct, 0.0, 0.0);
    }
}

pub fn histogram(context: &mut Context<'_>) {
    let dtype = context.dtype;
    for (shape, bins) in [(&[7, 9][..], 4), (&[0], 3), (&[5, 2, 3], 1)] {
        let (x, reference) = context.input(shape);
        let (low, high) = (-2.0, 2.0);
        let bin = |x: &f64| (((x - low) * bins as f64 / (high - low)) as usize).min(bins - 1);
        let inside = || reference.values.iter().filter(|x| (low..=high).contains(*x));
        let expected = Reference::new(&[bins], |index| inside().filter(|x| bin(x) == index[0]).count() as f64);
        compare("histogram", &x.histogram(bins, low, high).unwrap(), &expected, 0.0, 0.0);
        let expected = Reference::new(&[bins], |index| reference.values.iter().filter(|x| **x == index[0] as f64).count() as f64);
        match x.bincount(bins) {
            Ok(found) => compare("bincount", &found, &expected, 0.0, 0.0),
            Err(error) => assert!(!dtype.is_integer() && error.to_string().contains("an integer type"), "{error}"),
        }
    }
    assert!(context.input(&[2]).0.histogram(3, 1.0, 1.0).is_err());
}
