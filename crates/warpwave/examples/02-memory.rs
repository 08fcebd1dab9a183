// Teaches: memory on the device, views of parts of it, page-locked memory on the host, and the pool behind it all.
//
// Every allocation and copy names a stream, a queue that the device works through in order. Buffers are freed when they are
// dropped; lengths, bounds and devices are checked before a driver sees them.
//
// Run it: `cargo run --example 02-memory`

use warpwave::gpu::{Error, HostBuffer};

fn main() -> Result<(), Error> {
    let device = warpwave::device("auto")?;
    let stream = device.stream()?;

    // There and back. The element type can be any plain-data type; it stays with the buffer.
    let numbers: Vec<u32> = (0..1000).collect();
    let mut buffer = stream.upload(&numbers)?;
    assert_eq!(stream.download(&buffer)?, numbers);

    // Views of parts: read only the middle, overwrite only the start.
    assert_eq!(stream.download(buffer.slice(500..503)?)?, [500, 501, 502]);
    stream.fill(buffer.slice_mut(..10)?, 7)?;
    assert_eq!(stream.download(buffer.slice(8..12)?)?, [7, 7, 10, 11]);

    // Two writable views that cannot overlap, and a copy within the device.
    let second = stream.upload(&numbers)?;
    let (front, back) = buffer.view_mut().split_at(500)?;
    stream.copy(second.slice(500..)?, front)?;
    stream.zero(back)?;
    assert_eq!(stream.download(&buffer)?[499..501], [999, 0]);

    // Mistakes are errors that say the sizes, and nothing is copied.
    let too_short = stream.copy(&second, buffer.slice_mut(..10)?);
    println!("refused: {}", too_short.unwrap_err());
    let outside = buffer.slice(900..1001).map(|view| view.len());
    println!("refused: {}", outside.unwrap_err());

    // Page-locked host memory: copies to it are queued, not waited for. Reading it waits for the copies that touch it.
    let mut pinned = HostBuffer::<u32>::zeroed(&device, second.len())?;
    stream.copy_to_pinned(&second, &mut pinned)?;
    assert_eq!(pinned.as_slice()?, numbers);

    // A dropped buffer goes to the device's pool; the next of its size on this stream comes from there, not from the driver.
    let before = device.pool_stats();
    drop(second);
    let third = stream.alloc::<u32>(numbers.len())?;
    let after = device.pool_stats();
    assert_eq!((after.hits, after.misses), (before.hits + 1, before.misses));
    println!("{}: {} bytes in use, {} hits, {} misses", device.name(), after.in_use, after.hits, after.misses);

    // What nobody uses can go back to the driver.
    drop((buffer, third));
    let freed = device.trim_pool()?;
    assert_eq!(device.pool_stats().in_use, 0);
    println!("{freed} bytes given back to the driver");
    Ok(())
}
