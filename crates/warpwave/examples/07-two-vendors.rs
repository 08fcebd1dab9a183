// Teaches: an NVIDIA and an AMD GPU in one process, and copies between them.
//
// Both drivers are open at the same time; which one a call goes to follows from the device of its stream. Between GPUs of one
// driver `copy_to_peer` copies directly; between vendors it goes through the host.
//
// Run it: `cargo run --example 07-two-vendors`

use warpwave::gpu::{Device, Error};

fn main() -> Result<(), Error> {
    match (warpwave::device("cuda:0"), warpwave::device("rocm:0")) {
        (Ok(nvidia), Ok(amd)) => there_and_back(&nvidia, &amd),
        (nvidia, amd) => {
            println!("This needs a GPU of each vendor, so nothing was copied.");
            for (name, found) in [("cuda:0", nvidia), ("rocm:0", amd)] {
                match found {
                    Ok(device) => println!("  {name}: {}", device.info().model),
                    Err(error) => println!("  {name}: {error}"),
                }
            }
            Ok(())
        }
    }
}

fn there_and_back(nvidia: &Device, amd: &Device) -> Result<(), Error> {
    println!("{} is a {}, {} is a {}", nvidia.name(), nvidia.info().model, amd.name(), amd.info().model);
    let (here, there) = (nvidia.stream()?, amd.stream()?);
    let numbers: Vec<f64> = (0..100_000).map(f64::from).collect();

    let first = here.upload(&numbers)?;
    let mut second = there.alloc::<f64>(numbers.len())?;

    // A stream works on its own device only. An address of the other vendor's memory never reaches a driver.
    match there.download(&first) {
        Err(error @ Error::WrongDevice { .. }) => println!("refused: {error}"),
        other => panic!("memory of {} was read by {}: {:?}", nvidia.name(), amd.name(), other.map(|data| data.len())),
    }
    assert!(!nvidia.can_access(amd)?);

    // From the stream of the one to the stream of the other, all of it or a part.
    here.copy_to_peer(&first, &there, &mut second)?;
    assert_eq!(there.download(&second)?, numbers);

    let mut tail = here.alloc::<f64>(10)?;
    there.copy_to_peer(second.slice(numbers.len() - 10..)?, &here, &mut tail)?;
    assert_eq!(here.download(&tail)?, numbers[numbers.len() - 10..]);
    println!("{} numbers went there, 10 came back, all of them right", numbers.len());
    Ok(())
}
