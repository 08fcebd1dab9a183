// Teaches: recording work once as a graph, and launching it many times with one call each.
//
// A graph pays off where many small launches follow each other. It keeps the buffers it touches alive, so a graph never writes
// to memory that was handed to someone else.
//
// Run it: `cargo run --example 05-graphs`

use std::error::Error;

use warpwave::gpu::{Buffer, Graph, Kernel, Launch, Stream};
use warpwave::jit::embed;

const N: usize = 4096;

/// Records `total += step` as two nodes: a kernel and a copy of its result.
fn record(
    stream: &Stream,
    add: &Kernel,
    step: &Buffer<f32>,
    sum: &mut Buffer<f32>,
    total: &mut Buffer<f32>,
) -> Result<Graph, Box<dyn Error>> {
    let graph = stream.capture_graph(|stream| {
        // SAFETY: `vector_add(const float*, const float*, float*, int)` touches the first N elements of each buffer only.
        unsafe { add.launch(stream, Launch::for_elements(N, 256), (&*total, step, &mut *sum, N as i32))? };
        stream.copy(&*sum, &mut *total)
    })?;
    Ok(graph)
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = warpwave::device("auto")?;
    let stream = device.stream()?;
    let add = embed!("../../../examples/kernels/vector_add.wwb")?.load(&device)?.kernel("vector_add")?;

    let ones = stream.upload(&vec![1.0f32; N])?;
    let tens = stream.upload(&vec![10.0f32; N])?;
    let mut sum = stream.alloc_zeroed::<f32>(N)?;
    let mut total = stream.alloc_zeroed::<f32>(N)?;

    // Recording runs nothing.
    let graph = record(&stream, &add, &ones, &mut sum, &mut total)?;
    assert_eq!(stream.download(&total)?[0], 0.0);

    // Each launch runs all of it.
    let mut ready = graph.instantiate()?;
    for _ in 0..100 {
        ready.launch(&stream)?;
    }
    assert!(stream.download(&total)?.iter().all(|value| *value == 100.0));
    println!("{}: 100 launches of a graph of two steps gave 100", device.name());

    // Other buffers, same shape: the executable graph is updated without instantiating it again.
    ready.update(&record(&stream, &add, &tens, &mut sum, &mut total)?)?;
    ready.launch(&stream)?;
    assert!(stream.download(&total)?.iter().all(|value| *value == 110.0));
    println!("updated in place, it added 10 more");

    // What cannot be part of a graph is refused: a copy to ordinary memory would be done when nobody holds it any more.
    let refused = stream.capture_graph(|stream| stream.download(&total).map(drop));
    println!("refused: {}", refused.err().ok_or("a download was recorded")?);
    Ok(())
}
