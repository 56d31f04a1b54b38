//! The bytes of a connection, and what else they tell: that a client has said all it will say, or stopped inside a head.
//!
//! ```text
//!  said all, an answer is made     it gets its answer; who waits for something to come is told to answer at once
//!  said all, reads a stream        heard as long as something is taken now and then
//!  said half a head                closed
//! ```
//! hyper answers also who has closed their half, and then looks no more whether anybody is there. So it is looked at here: while an
//! answer is made or streamed, one byte is read ahead of it.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;

/// How long a stream goes on in silence for a client that has closed its half.
const STREAM_FOR: Duration = Duration::from_secs(2);
/// How much of what nobody wanted is still read, so that its sender gets to read the answer instead of a reset.
const LINGER_BYTES_MAX: u64 = 256 << 20;
const LINGER_FOR: Duration = Duration::from_secs(5);

/// What a request can do about its connection, and hear of it.
#[derive(Clone, Default)]
pub struct Cut(Arc<Ends>);

#[derive(Default)]
struct Ends {
    cut: Notify,
    said_all: Notify,
}

impl Cut {
    /// Ends the connection, whatever is still to be sent on it: a client that does not read keeps it busy, and nothing else
    /// notices.
    pub fn now(&self) {
        self.0.cut.notify_one();
    }

    pub async fn asked(&self) {
        self.0.cut.notified().await;
    }

    /// Ready once the client will say no more: it may have gone. One request at a time is under way on a connection.
    pub async fn said_all(&self) {
        self.0.said_all.notified().await;
    }
}

/// What the connection is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    Nothing,
    Head,
    Answer,
    Stream,
}

pub struct Socket<S> {
    state: Arc<Mutex<State<S>>>,
    pub cut: Cut,
}

impl<S> Clone for Socket<S> {
    fn clone(&self) -> Socket<S> {
        Socket { state: self.state.clone(), cut: self.cut.clone() }
    }
}

struct State<S> {
    io: S,
    about: About,
    /// Read, and not yet taken.
    ahead: VecDeque<u8>,
    /// The other side has closed its half.
    ended: bool,
    /// Nothing more can be said to it.
    broken: bool,
    writes: u64,
}

/// What is to be watched.
enum Watched {
    Broken,
    HalfAHead,
    /// A stream to who has said all, after so many writes.
    Silent(u64),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// A connection of which this much was read already.
    pub fn new(io: S, begun: Vec<u8>) -> Socket<S> {
        let ahead = begun.into();
        let state = State { io, about: About::Nothing, ahead, ended: false, broken: false, writes: 0 };
        Socket { state: Arc::new(Mutex::new(state)), cut: Cut::default() }
    }

    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request is whole enough to be answered.
    pub fn asked(&self) {
        self.state().about = About::Answer;
    }

    /// Its answer is there, or begins.
    pub fn answered(&self, streams: bool) {
        self.state().about = if streams { About::Stream } else { About::Nothing };
    }

    /// Ready when nobody is there any more. Asked in the connection's own task and after it: what changes the state wakes both.
    pub async fn gone(&self, head: Duration) {
        loop {
            let watched = std::future::poll_fn(|cx| self.watch(cx)).await;
            let goes_on = match watched {
                Watched::Broken => return,
                Watched::HalfAHead => {
                    tokio::time::timeout(head, self.until(|state| state.about != About::Head)).await
                }
                Watched::Silent(writes) => {
                    tokio::time::timeout(STREAM_FOR, self.until(|state| state.writes != writes)).await
                }
            };
            if goes_on.is_err() {
                return;
            }
        }
    }

    /// Ready while the client is inside a head: asked after the connection has read what is there.
    pub async fn half_a_head(&self) {
        self.until(|state| state.about == About::Head).await;
    }

    async fn until(&self, done: impl Fn(&State<S>) -> bool) {
        std::future::poll_fn(|_| if done(&self.state()) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn watch(&self, cx: &mut Context<'_>) -> Poll<Watched> {
        let mut state = self.state();
        match state.about {
            About::Nothing => return Poll::Pending,
            About::Head => return Poll::Ready(Watched::HalfAHead),
            About::Answer | About::Stream => {}
        }
        if !state.ended && state.ahead.is_empty() {
            ready!(state.look_ahead(cx));
            if state.ended {
                self.cut.0.said_all.notify_one();
            }
        }
        match (state.broken, state.ended && state.about == About::Stream) {
            (true, _) => Poll::Ready(Watched::Broken),
            (_, true) => Poll::Ready(Watched::Silent(state.writes)),
            _ => Poll::Pending,
        }
    }

    /// After the last answer: what is closed while something is unread is reset, and the answer with it.
    pub async fn linger(self) {
        // On an upgraded connection somebody else goes on.
        if Arc::strong_count(&self.state) > 1 || self.state().ended {
            return;
        }
        let mut rest = self;
        let read = async {
            let _ = rest.shutdown().await;
            tokio::io::copy(&mut rest.take(LINGER_BYTES_MAX), &mut tokio::io::sink()).await
        };
        let _ = tokio::time::timeout(LINGER_FOR, read).await;
    }
}

impl<S: AsyncRead + Unpin> State<S> {
    fn look_ahead(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        let read = ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer));
        self.ahead.extend(buffer.filled());
        self.broken = read.is_err();
        self.ended = self.ahead.is_empty();
        Poll::Ready(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Socket<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state();
        if !state.ahead.is_empty() {
            let taken = state.ahead.len().min(into.remaining());
            state.ahead.drain(..taken).for_each(|byte| into.put_slice(&[byte]));
            // With what comes after it: who gets single bytes reads in ever smaller parts.
            if into.remaining() > 0 && !state.ended {
                let _ = Pin::new(&mut state.io).poll_read(cx, into);
            }
        } else if !state.ended {
            let before = into.filled().len();
            ready!(Pin::new(&mut state.io).poll_read(cx, into))?;
            state.ended = into.filled().len() == before;
        }
        if state.about == About::Nothing && !state.ended {
            state.about = About::Head;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        state.writes += 1;
        Pin::new(&mut state.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        state.writes += 1;
        Pin::new(&mut state.io).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.state().io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.state().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.state().io).poll_shutdown(cx)
    }
}
