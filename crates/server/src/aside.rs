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
