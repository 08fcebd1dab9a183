//! The heartbeat of a worker to its hive.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::time::rfc3339_now;

/// What a worker tells its hive.
#[derive(Debug, Clone)]
pub struct Worker {
    /// The worker's name.
    pub id: String,
    /// The model it serves.
    pub model: String,
    /// The device it runs on, such as `rocm:0`.
    pub device: String,
    /// The port it listens on.
    pub port: u16,
    /// The worker's version.
    pub version: String,
}

impl Worker {
    fn body(&self, status: &str) -> Value {
        json!({
            "worker": {
                "id": self.id, "model_id": self.model, "device": self.device, "port": self.port, "status": status,
                "implementation": "warpwave", "version": self.version,
            },
            "timestamp": rfc3339_now(),
        })
    }
}

/// Sends heartbeats on a thread of its own, until it is dropped; then a last one with the status `stopped`.
pub struct Heartbeat {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// Starts to send to `{hive}/v1/worker-heartbeat`, at once and then at intervals. A hive that does not answer is logged and tried again.
    pub fn start(
        hive: &str,
        worker: Worker,
        interval: Duration,
        status: impl Fn() -> &'static str + Send + 'static,
    ) -> std::io::Result<Heartbeat> {
        let url = format!("{}/v1/worker-heartbeat", hive.trim_end_matches('/'));
        let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(5))).build().into();
        let (stop, stopped) = channel();
        let send = move |status: &str| {
            let sent = agent.post(&url).header("content-type", "application/json").send(worker.body(status).to_string());
            if let Err(error) = sent {
                tracing::warn!(url, %error, "heartbeat failed");
            }
        };
        let run = move || {
            loop {
                send(status());
                match stopped.recv_timeout(interval) {
                    Err(RecvTimeoutError::Timeout) => (),
                    _ => return send("stopped"),
                }
            }
        };
        let thread = std::thread::Builder::new().name("warpwave-heartbeat".to_owned()).spawn(run)?;
        Ok(Heartbeat { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
