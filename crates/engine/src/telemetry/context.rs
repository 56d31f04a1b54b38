//! Where a span belongs: the W3C trace context, read, written and derived. Pure.
//!
//! ```text
//!  traceparent   00-<trace, 32 hex>-<span, 16 hex>-<flags, 2 hex>   flags & 1: sampled
//! ```
//! What a publish stores as the event's `trace` is the context of its own span. All below an event have spans that are derived
//! from what is recorded, not drawn: a run that goes on after a restart has the one it had before, and its effects know it.

use std::fmt;

use model::event::Event;
use model::id::{hex, unhex};
use sha2::{Digest, Sha256};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    pub sampled: bool,
}

impl Context {
    /// `None` for what is no traceparent; of a version that is not known yet, the part that is.
    pub fn parse(text: &str) -> Option<Context> {
        let mut parts = text.splitn(4, '-');
        let version: [u8; 1] = unhex(parts.next()?)?;
        let (trace, span) = (unhex(parts.next()?)?, unhex(parts.next()?)?);
        let (flags, more) = parts.next()?.split_at_checked(2)?;
        let flags: [u8; 1] = unhex(flags)?;
        let whole = more.is_empty() || (version != [0] && more.starts_with('-'));
        let meant = version != [0xff] && trace != [0; 16] && span != [0; 8];
        (whole && meant).then_some(Context { trace, span, sampled: flags[0] & 1 == 1 })
    }

    pub(super) fn of_random(random: [u8; 24]) -> Context {
        let mut context = Context { trace: [0; 16], span: [0; 8], sampled: false };
        context.trace.copy_from_slice(&random[..16]);
        context.span.copy_from_slice(&random[16..]);
        context
    }

    /// A trace of its own, the same for the same words. Nothing is before it.
    pub(super) fn root(parts: &[&str]) -> Context {
        let (hash, mut trace) = (digest(&[0; 16], parts), [0; 16]);
        trace.copy_from_slice(&hash[..16]);
        Context { trace, span: [0; 8], sampled: false }
    }

    /// Another span of the same trace, the same for the same words.
    pub fn child(&self, parts: &[&str]) -> Context {
        let (hash, mut span) = (digest(&self.trace, parts), [0; 8]);
        span.copy_from_slice(&hash[..8]);
        Context { span, ..*self }
    }

    /// The span that what belongs here has before it; none where a trace begins.
    pub fn parent(&self) -> Option<[u8; 8]> {
        (self.span != [0; 8]).then_some(self.span)
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (hex(&self.trace), hex(&self.span));
        write!(f, "00-{trace}-{span}-{:02x}", u8::from(self.sampled))
    }
}

/// What an event's readers go on from. One that a run published has a span that nobody stored.
pub fn base(event: &Event) -> Option<Context> {
    let said = Context::parse(event.envelope.trace.as_deref()?)?;
    Some(match &event.envelope.run {
        Some(_) => said.child(&["publish", &event.envelope.id]),
        None => said,
    })
}

/// What goes out with a request when nothing is told anywhere: the trace of the event, as it came.
pub fn passed_on(trace: Option<&str>) -> Option<String> {
    trace.filter(|trace| Context::parse(trace).is_some()).map(str::to_owned)
}

fn digest(trace: &[u8; 16], parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(trace);
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}
