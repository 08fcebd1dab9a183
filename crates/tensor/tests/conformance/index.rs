//! Indexing: valid, negative and out-of-range indices.

use warpwave_tensor::Tensor;

use crate::Context;
use crate::reference::{Reference, compare, indices};

/// Random indices of `0..size`, some out of range, as `i64`.
fn random_indices(context: &mut Context<'_>, shape: &[usize], size: usize) -> (Tensor, Reference) {
    let ids: Vec<i64> = (0..shape.iter().product()).map(|_| context.random.below(size + 2) as i64 - 1).collect();
    let tensor = Tensor::new(&ids, shape, context.device).unwrap();
    (tensor, Reference { shape: shape.to_vec(), values: ids.iter().map(|id| *id as f64).collect() })
}

/// The element at an index whose dimension `dim` is replaced; 0 if that is out of range.
fn at(x: &Reference, index: &[usize], dim: usize, id: f64) -> f64 {
    if id < 0.0 || id >= x.shape[dim] as f64 {
        return 0.0;
    }
    let mut index = index.to_vec();
    index[dim] = id as usize;
    x.at(&index)
}

pub fn gather(context: &mut Context<'_>) {
    for dim in 0..2usize {
        let (x, reference) = context.input(&[3, 5]);
        let (ids, ids_reference) = random_indices(context, &[3, 4], reference.shape[dim]);
        let expected = Reference::new(&[3, 4], |index| at(&reference, index, dim, ids_reference.at(index)));
        compare("gather", &x.gather(&ids, dim).unwrap(), &expected, 0.0, 0.0);
    }
    let (x, _) = context.input(&[2, 3]);
    let (ids, _) = random_indices(context, &[3, 2], 3);
    assert!(x.gather(&ids, 1).unwrap_err().to_string().contains("is too small for indices"));
    assert_eq!(x.gather(&random_indices(context, &[2, 0], 3).0, -1).unwrap().shape(), [2, 0]);
}

pub fn index_select(context: &mut Context<'_>) {
    for dim in 0..3usize {
        let (x, reference) = context.input(&[3, 5, 4]);
        let (ids, ids_reference) = random_indices(context, &[6], reference.shape[dim]);
        let mut to = reference.shape.clone();
        to[dim] = 6;
        let expected = Reference::new(&to, |index| at(&reference, index, dim, ids_reference.values[index[dim]]));
        compare("index_select", &x.index_select(&ids, dim as i32 - 3).unwrap(), &expected, 0.0, 0.0);
    }
}

pub fn scatter(context: &mut Context<'_>) {
    for dim in 0..2usize {
        let ((out, out_reference), (x, reference)) = (context.input_within(&[4, 5], 1.9), context.input_within(&[3, 5], 1.9));
        let (ids, ids_reference) = random_indices(context, &[3, 5], out_reference.shape[dim]);
        let target = |index: &[usize]| {
            let id = ids_reference.at(index);
            (id >= 0.0 && id < out_reference.shape[dim] as f64).then(|| {
                let mut index = index.to_vec();
                index[dim] = id as usize;
                index[0] * 5 + index[1]
            })
        };
        let (mut set, mut sum) = (out_reference.clone(), out_reference.clone());
        for index in indices(&[3, 5]) {
            if let Some(target) = target(&index) {
                set.values[target] = reference.at(&index);
                sum.values[target] += reference.at(&index);
            }
        }
        compare("scatter", &out.scatter(&ids, &x, dim).unwrap(), &set, 0.0, 0.0);
        compare("scatter_add", &out.scatter_add(&ids, &x, dim).unwrap(), &sum, 4.0, 8.0);
        compare("scatter_add_unordered", &out.scatter_add_unordered(&ids, &x, dim).unwrap(), &sum, 8.0, 16.0);
        compare("the original", &out, &out_reference, 0.0, 0.0);
    }
    // Indices that differ: the order does not matter.
    let ((out, mut set), (x, reference)) = (context.input(&[6, 4]), context.input(&[3, 4]));
    let ids: Vec<u8> = (0..12).map(|i| (i / 4 * 2 + i % 2) as u8).collect();
    for (i, id) in ids.iter().enumerate() {
        set.values[usize::from(*id) * 4 + i % 4] = reference.values[i];
    }
    let ids = Tensor::new(&ids, &[3, 4], context.device).unwrap();
    compare("scatter_unordered", &out.scatter_unordered(&ids, &x, 0).unwrap(), &set, 0.0, 0.0);
}

pub fn index_add(context: &mut Context<'_>) {
    let ((out, mut sum), (x, reference)) = (context.input_within(&[3, 5], 1.9), context.input_within(&[3, 4], 1.9));
    let (ids, ids_reference) = random_indices(context, &[4], 5);
    for index in indices(&[3, 4]) {
        let id = ids_reference.values[index[1]];
        if (0.0..5.0).contains(&id) {
            sum.values[index[0] * 5 + id as usize] += reference.at(&index);
        }
    }
    compare("index_add", &out.index_add(&ids, &x, 1).unwrap(), &sum, 4.0, 8.0);
    compare("index_add_unordered", &out.index_add_unordered(&ids, &x, 1).unwrap(), &sum, 8.0, 16.0);
}
