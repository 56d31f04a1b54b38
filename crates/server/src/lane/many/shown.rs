//! As whom a connection publishes: asked with its first request, and remembered for a moment.

use std::sync::Arc;
use std::time::Duration;

use engine::Caller;
use engine::authority::Grant;
use model::Timestamp;

use crate::caller;

/// After this the token is looked up again, so that it is known when it was last used.
const FRESH: Duration = Duration::from_secs(1);

/// A token that was shown and is good.
pub struct Shown {
    authorization: String,
    grant: Arc<Grant>,
    caller: Caller,
    until: Duration,
    /// How often tokens had lost their effect by then, any of them.
    changes: u64,
}

/// On whose behalf a request publishes.
pub enum Who {
    Local(Caller),
    Shown(Box<Shown>),
}

impl Who {
    pub fn caller(&self) -> &Caller {
        match self {
            Who::Local(caller) => caller,
            Who::Shown(shown) => &shown.caller,
        }
    }

    /// Where, if the token says so.
    pub fn tenant(&self) -> Option<&str> {
        match self {
            Who::Local(_) => None,
            Who::Shown(shown) => Some(&shown.grant.tenant),
        }
    }

    /// Of this one request.
    pub fn set_trace(&mut self, trace: Option<String>) {
        match self {
            Who::Local(caller) => caller.trace = trace,
            Who::Shown(shown) => shown.caller.trace = trace,
        }
    }
}

impl Shown {
    pub fn new(authorization: &str, grant: Arc<Grant>, now: Duration, changes: u64) -> Shown {
        let caller = caller::of_token(&grant);
        Shown { authorization: authorization.to_owned(), grant, caller, until: now + FRESH, changes }
    }

    /// Whether it is the same, and still as good: nobody has lost a token since, and this one has not expired.
    pub fn holds(&self, authorization: &str, (now, changes): (Duration, u64), at: Timestamp) -> bool {
        self.changes == changes
            && now < self.until
            && self.authorization == authorization
            && !self.grant.is_over(at)
    }
}

#[cfg(test)]
mod tests {
    use engine::authority::{Role, Terms};

    use super::*;

    #[test]
    fn it_holds_until_anything_about_it_changes() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000);
        let terms = Terms { expires_at: Some(at(100)), ..Terms::of(Role::Publisher) };
        let grant = Arc::new(Grant::new("tok_1".into(), "main".into(), terms).unwrap());
        let shown = Shown::new("Bearer x", grant, Duration::ZERO, 7);
        let soon = Duration::from_millis(999);
        assert!(shown.holds("Bearer x", (soon, 7), at(99)));
        assert!(!shown.holds("Bearer y", (soon, 7), at(99)), "another token");
        assert!(!shown.holds("Bearer x", (soon, 8), at(99)), "one was revoked");
        assert!(!shown.holds("Bearer x", (soon, 7), at(100)), "it has expired");
        assert!(!shown.holds("Bearer x", (FRESH, 7), at(99)), "that it is used is written down");
    }
}
