// Teaches: two streams that work side by side, events that order them, time between events, and a call back to the host.
//
// Work on one stream runs in order; work on different streams does not, unless one waits for an event of the other. Waiting is
// queued too: the host goes on at once.
//
// Run it: `cargo run --example 04-streams-and-events`

use std::error::Error;
use std::sync::mpsc;

use warpwave::gpu::HostBuffer;

const CHUNKS: usize = 4;
const CHUNK: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let device = warpwave::device("auto")?;

    // The producer writes chunks on the device; the consumer brings each to the host while the next is being written.
    let producer = device.stream()?;
    let consumer = device.stream_with_priority(device.stream_priorities()?.greatest)?;
    let mut data = producer.alloc::<u32>(CHUNKS * CHUNK)?;
    let mut host = (0..CHUNKS).map(|_| HostBuffer::<u32>::zeroed(&device, CHUNK)).collect::<Result<Vec<_>, _>>()?;

    let start = producer.record()?;
    for (number, host) in host.iter_mut().enumerate() {
        let chunk = number * CHUNK..(number + 1) * CHUNK;
        producer.fill(data.slice_mut(chunk.clone())?, number as u32 + 1)?;
        // Without this line the consumer could copy what the producer has not written yet.
        consumer.wait(&producer.record()?)?;
        consumer.copy_to_pinned(data.slice(chunk)?, host)?;
    }
    let end = consumer.record()?;

    // A function that runs once everything before it is done. It must not use the GPU itself.
    let (done, finished) = mpsc::channel();
    consumer.on_host(move || _ = done.send("the consumer is done"))?;

    end.synchronize()?;
    assert!(end.is_done()? && start.is_done()?);
    let milliseconds = start.elapsed_ms(&end)?;
    assert!(milliseconds >= 0.0);
    println!("{}: {CHUNKS} chunks of {CHUNK} numbers filled and fetched in {milliseconds:.3} ms", device.name());

    consumer.synchronize()?;
    println!("{}", finished.recv()?);

    for (number, host) in host.iter().enumerate() {
        assert!(host.as_slice()?.iter().all(|value| *value == number as u32 + 1), "chunk {number} is wrong");
    }
    Ok(())
}
