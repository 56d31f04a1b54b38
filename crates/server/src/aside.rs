//! What a door runs beside its own request: connections, streams, and reads that may touch the disk.

#![expect(clippy::disallowed_methods, reason = "the one file of the server that starts tasks")]

use std::future::Future;

use model::{Code, Problem};

/// A task bound to one client: a connection, or a stream on it. When it dies its client sees the connection
/// end and nothing else in the engine rests on it, so nobody watches it.
pub fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

/// A task that ends with whoever holds this.
pub struct Task(tokio::task::AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub fn task(task: impl Future<Output = ()> + Send + 'static) -> Task {
    Task(tokio::spawn(task).abort_handle())
}

/// A thread of the server's own.
pub struct Thread(std::thread::JoinHandle<()>);

/// `None`, and said: there is none to be had.
pub fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Option<Thread> {
    let started = std::thread::Builder::new().name(format!("ew-{name}")).spawn(run);
    started.inspect_err(|error| tracing::error!(%error, name, "a thread cannot be started")).ok().map(Thread)
}

impl Thread {
    pub async fn ended(self) {
        // One that died by a panic has ended, too.
        let _ = tokio::task::spawn_blocking(move || self.0.join()).await;
    }
}

/// Work that may read the disk, off the threads that serve connections.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Problem::new(Code::ShuttingDown, "the server is stopping")),
        },
    }
}
