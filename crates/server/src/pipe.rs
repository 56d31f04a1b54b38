//! Between a task that makes an answer bit by bit and the client that reads it: a buffer with a bound.
//!
//! The task may run ahead of the reader up to the bound, so that a client which sends everything before it
//! reads anything does not stand still; bits that pile up leave as one piece.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame};
use tokio::sync::Notify;

/// The largest piece handed to the connection at once.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// The writing end. Dropping it ends the answer.
pub struct Feed(Arc<Pipe>);

/// The reading end: the body of a response.
pub struct Outlet(Arc<Pipe>);

struct Pipe {
    bytes_max: usize,
    state: Mutex<State>,
    /// Something was taken, or the reader has gone. One task feeds a pipe, so one permit is enough.
    taken: Notify,
}

#[derive(Default)]
struct State {
    buffer: BytesMut,
    ended: bool,
    gone: bool,
    reader: Option<Waker>,
}

pub fn pipe(bytes_max: usize) -> (Feed, Outlet) {
    let pipe = Arc::new(Pipe { bytes_max, state: Mutex::default(), taken: Notify::new() });
    (Feed(pipe.clone()), Outlet(pipe))
}

impl Pipe {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Feed {
    /// Appends, also over the bound; [`Feed::room`] is where a task waits.
    pub fn push(&self, bytes: &[u8]) {
        let mut state = self.0.state();
        state.buffer.extend_from_slice(bytes);
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }

    /// Waits until less than the bound is buffered; false when the reader has gone.
    pub async fn room(&self) -> bool {
        loop {
            {
                let state = self.0.state();
                if state.gone {
                    return false;
                }
                if state.buffer.len() < self.0.bytes_max {
                    return true;
                }
            }
            self.0.taken.notified().await;
        }
    }

    /// Nothing more will come; the reader takes what is there.
    pub fn end(&self) {
        let mut state = self.0.state();
        state.ended = true;
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }

    /// Ready once the reader has gone.
    pub async fn gone(&self) {
        while !self.0.state().gone {
            self.0.taken.notified().await;
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.end();
    }
}

impl Body for Outlet {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let mut state = self.0.state();
        if state.buffer.is_empty() {
            if state.ended {
                return Poll::Ready(None);
            }
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let length = state.buffer.len().min(PIECE_BYTES_MAX);
        let piece = state.buffer.split_to(length).freeze();
        drop(state);
        self.0.taken.notify_one();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.0.state().gone = true;
        self.0.taken.notify_one();
    }
}
