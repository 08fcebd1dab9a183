//! The events of requests on their way from the engine's thread to a connection.

use tokio::sync::mpsc::{Receiver, Sender, channel};
use warpwave_llm::engine::{EngineEvent, EventSink};

/// Events that wait for a reader before its requests pause.
const CAPACITY: usize = 256;
/// Places kept for events that come even if a request pauses: its start, the token of a prompt, and its end.
const RESERVE: usize = 8;

/// Sends the events of one request. Several requests share a channel.
pub(crate) struct ChannelSink {
    choice: usize,
    events: Sender<(usize, EngineEvent)>,
    reserve: usize,
}

/// Returns a sink for each of `count` requests, and the end that reads them. Dropping it cancels the requests.
pub(crate) fn channels(count: usize) -> (Vec<ChannelSink>, Receiver<(usize, EngineEvent)>) {
    let reserve = RESERVE * count;
    let (sender, receiver) = channel(CAPACITY + reserve);
    ((0..count).map(|choice| ChannelSink { choice, events: sender.clone(), reserve }).collect(), receiver)
}

impl EventSink for ChannelSink {
    fn send(&mut self, event: EngineEvent) {
        // It fails only without a reader: the reserve holds what comes while the request is paused.
        let _ = self.events.try_send((self.choice, event));
    }

    fn is_closed(&self) -> bool {
        self.events.is_closed()
    }

    fn is_full(&self) -> bool {
        self.events.capacity() < self.reserve
    }
}
