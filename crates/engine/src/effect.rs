//! Effects: what a run does to the world outside the ledger, on worker threads, at least once.

pub mod guard;
pub mod http;
pub mod mask;
pub(crate) mod push;
pub mod secret;
#[cfg(test)]
mod tests;
pub mod tls;
pub(crate) mod workers;

use model::Problem;

/// What an error means for the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Trying again may help.
    Transient,
    /// It will end the same way each time.
    Permanent,
    /// It will, until somebody pays or lifts a limit.
    Budget,
}

/// An effect that did not come about.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub class: Class,
    pub problem: Problem,
    /// The other side may have seen the request, or part of it.
    pub sent: bool,
}

impl Failure {
    fn new(class: Class, problem: Problem) -> Failure {
        Failure { class, problem, sent: false }
    }
}

impl Class {
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Transient => "transient",
            Class::Permanent => "permanent",
            Class::Budget => "budget",
        }
    }
}
