//! A client's operation under way: the engine's own future, and what the oracle must know when it ends.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use engine::entity::Written;
use engine::{Delivery, Outcome, Settled};
use model::{Position, Problem};

/// What was asked.
#[derive(Debug)]
pub enum Asked {
    Publish(Vec<usize>),
    Pull(&'static str),
    Write {
        id: &'static str,
        expected: Option<Position>,
        deletes: bool,
    },
    Ack {
        group: &'static str,
        held: Vec<(String, Position)>,
        sync: bool,
    },
    /// Nack, reject, extend: what comes of them is seen in later deliveries and dead letters.
    Other {
        group: &'static str,
        #[expect(dead_code, reason = "the transcript shows it")]
        what: &'static str,
    },
    /// Tokens that must be stale.
    Stale {
        group: &'static str,
    },
}

pub enum Answer {
    Published(Result<Vec<Outcome>, Problem>),
    Written(Box<Result<Written, Problem>>),
    Pulled(Result<Vec<Delivery>, Problem>),
    Settled(Result<Settled, Problem>),
}

pub struct Operation {
    pub id: usize,
    pub asked: Asked,
    /// Something else happened to its group or to time while it was under way.
    pub disturbed: bool,
    future: Pin<Box<dyn Future<Output = Answer>>>,
}

impl Operation {
    pub fn new(id: usize, asked: Asked, future: impl Future<Output = Answer> + 'static) -> Operation {
        Operation { id, asked, disturbed: false, future: Box::pin(future) }
    }

    pub fn poll(&mut self) -> Option<Answer> {
        match poll(self.future.as_mut()) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }

    pub fn group(&self) -> Option<&'static str> {
        match &self.asked {
            Asked::Publish(_) | Asked::Write { .. } => None,
            Asked::Pull(group)
            | Asked::Ack { group, .. }
            | Asked::Other { group, .. }
            | Asked::Stale { group } => Some(group),
        }
    }
}

pub fn poll<T>(future: Pin<&mut (dyn Future<Output = T> + '_)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
