//! Whether a delivery was signed by who knows the secret: Standard Webhooks, GitHub, Stripe, Slack, plain HMAC.
//!
//! ```text
//!  standard-webhooks  webhook-id, webhook-timestamp, webhook-signature: "v1,<base64>" …   over  id.timestamp.body
//!  github             x-hub-signature-256: "sha256=<hex>"                                over  body
//!  stripe             stripe-signature: "t=<seconds>,v1=<hex>,…"                         over  t.body
//!  slack              x-slack-request-timestamp, x-slack-signature: "v0=<hex>"           over  v0:timestamp:body
//!  hmac               x-signature (and its like): hex or base64, "sha256=" before it     over  body
//! ```
//! All are HMAC-SHA256 over the body's bytes as they came; `v1a` of Standard Webhooks is Ed25519. Comparisons take as long
//! for a wrong signature as for the right one. Pure: the time is a value.

use model::id::unhex_any;
use model::{Code, Problem, base64};
use ring::{hmac, signature};

use crate::caller::same;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    StandardWebhooks,
    Github,
    Stripe,
    Slack,
    Hmac,
}

impl Scheme {
    pub const ALL: [(&str, Scheme); 5] = [
        ("standard-webhooks", Scheme::StandardWebhooks),
        ("github", Scheme::Github),
        ("stripe", Scheme::Stripe),
        ("slack", Scheme::Slack),
        ("hmac", Scheme::Hmac),
    ];

    pub fn parse(name: &str) -> Result<Scheme, Problem> {
        let found = Scheme::ALL.iter().find(|(word, _)| *word == name);
        found.map(|(_, scheme)| *scheme).ok_or_else(|| {
            let words: Vec<&str> = Scheme::ALL.iter().map(|(word, _)| *word).collect();
            Problem::new(Code::HookInvalid, format!("there is no scheme \"{name}\""))
                .hint(format!("choose one of {}", words.join(", ")))
                .at("/scheme")
        })
    }

    pub fn as_str(self) -> &'static str {
        Scheme::ALL.iter().find(|(_, scheme)| *scheme == self).map_or("", |(word, _)| word)
    }
}

/// Why a delivery is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A header that the scheme needs is not there.
    Missing,
    /// A header is there and cannot be read.
    Format,
    /// Nobody with this secret signed these bytes.
    Signature,
    /// Signed, but too long ago, or too far ahead.
    Stale,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Missing => "missing",
            Reason::Format => "format",
            Reason::Signature => "signature",
            Reason::Stale => "stale",
        }
    }
}

/// What came, and when.
pub struct Delivery<'a> {
    /// The value of a header by its name in lower case.
    pub header: &'a dyn Fn(&str) -> Option<&'a str>,
    pub body: &'a [u8],
    /// Seconds since 1970.
    pub now: i64,
    /// How far its own time may be from ours; `None` asks nothing.
    pub tolerance: Option<i64>,
}

/// A secret made ready for its scheme.
pub enum Secret {
    Shared(hmac::Key),
    /// The public half of `v1a`.
    Public(Vec<u8>),
}

const PUBLIC_BYTES: usize = 32;
const PLAIN_HEADERS: [&str; 5] =
    ["x-signature", "x-signature-256", "x-webhook-signature", "x-hub-signature-256", "signature"];

impl Secret {
    /// Refused when nothing could ever be signed with it.
    pub fn parse(scheme: Scheme, text: &str) -> Result<Secret, Problem> {
        let unusable = |why: &str| {
            Problem::new(Code::HookInvalid, format!("the secret is unusable: {why}"))
                .hint("copy it from the sender's settings")
                .at("/secret")
        };
        if let (Scheme::StandardWebhooks, Some(text)) = (scheme, text.strip_prefix("whpk_")) {
            let key = base64::decode_loosely(text).filter(|key| key.len() == PUBLIC_BYTES);
            return key
                .map(Secret::Public)
                .ok_or_else(|| unusable("\"whpk_\" is followed by 32 bytes in base64"));
        }
        let bytes = match scheme {
            Scheme::StandardWebhooks => {
                let text = text.strip_prefix("whsec_").unwrap_or(text);
                base64::decode_loosely(text).ok_or_else(|| unusable("it is not base64"))?
            }
            _ => text.as_bytes().to_vec(),
        };
        match bytes.is_empty() {
            true => Err(unusable("it is empty")),
            false => Ok(Secret::Shared(hmac::Key::new(hmac::HMAC_SHA256, &bytes))),
        }
    }

    /// Whether one of `given` signs `parts` one after the other.
    fn signs(&self, parts: &[&[u8]], given: &[Vec<u8>]) -> bool {
        match self {
            Secret::Shared(key) => {
                let mut context = hmac::Context::with_key(key);
                parts.iter().for_each(|part| context.update(part));
                let tag = context.sign();
                // Every one is looked at, and each in full.
                given.iter().fold(false, |found, given| found | same(tag.as_ref(), given))
            }
            Secret::Public(key) => {
                let key = signature::UnparsedPublicKey::new(&signature::ED25519, key);
                given.iter().any(|given| key.verify(&parts.concat(), given).is_ok())
            }
        }
    }
}

/// Whether the delivery is signed, and in time.
pub fn verify(scheme: Scheme, secret: &Secret, delivery: &Delivery<'_>) -> Result<(), Reason> {
    match scheme {
        Scheme::StandardWebhooks => standard(secret, delivery),
        Scheme::Github => plain(secret, delivery, &["x-hub-signature-256"], true),
        Scheme::Hmac => plain(secret, delivery, &PLAIN_HEADERS, false),
        Scheme::Stripe => stripe(secret, delivery),
        Scheme::Slack => slack(secret, delivery),
    }
}

fn needed<'a>(delivery: &Delivery<'a>, name: &str) -> Result<&'a str, Reason> {
    (delivery.header)(name).map(str::trim).filter(|value| !value.is_empty()).ok_or(Reason::Missing)
}

/// A signature that is too old could be a recording of one that was good.
fn in_time(delivery: &Delivery<'_>, seconds: &str) -> Result<(), Reason> {
    let at: i64 = seconds.parse().map_err(|_| Reason::Format)?;
    match delivery.tolerance {
        Some(tolerance) if delivery.now.abs_diff(at) > tolerance.unsigned_abs() => Err(Reason::Stale),
        _ => Ok(()),
    }
}

/// Says whether it was signed before whether it is old: time alone tells a stranger nothing.
fn judged(signed: bool, timely: Result<(), Reason>) -> Result<(), Reason> {
    match (signed, timely) {
        (_, Err(Reason::Format)) => Err(Reason::Format),
        (false, _) => Err(Reason::Signature),
        (true, timely) => timely,
    }
}

fn standard(secret: &Secret, delivery: &Delivery<'_>) -> Result<(), Reason> {
    // The names that the scheme had before it was one.
    let either = |name: &str| {
        needed(delivery, &format!("webhook-{name}")).or_else(|_| needed(delivery, &format!("svix-{name}")))
    };
    let (id, at, signatures) = (either("id")?, either("timestamp")?, either("signature")?);
    let version = if matches!(secret, Secret::Public(_)) { "v1a" } else { "v1" };
    if !signatures.split(' ').any(|one| one.contains(',')) {
        return Err(Reason::Format);
    }
    let ours = signatures.split(' ').filter_map(|one| one.split_once(',').filter(|(of, _)| *of == version));
    let given: Vec<Vec<u8>> = ours.filter_map(|(_, text)| base64::decode_loosely(text)).collect();
    let parts = [id.as_bytes(), b".", at.as_bytes(), b".", delivery.body];
    judged(secret.signs(&parts, &given), in_time(delivery, at))
}

fn plain(secret: &Secret, delivery: &Delivery<'_>, headers: &[&str], prefixed: bool) -> Result<(), Reason> {
    let value = headers.iter().find_map(|name| needed(delivery, name).ok()).ok_or(Reason::Missing)?;
    let text = match value.strip_prefix("sha256=") {
        Some(text) => text,
        None if prefixed => return Err(Reason::Format),
        None => value,
    };
    let hex = unhex_any(text);
    let given = if prefixed { hex } else { hex.or_else(|| base64::decode_loosely(text)) };
    let given = given.filter(|bytes| bytes.len() == 32).ok_or(Reason::Format)?;
    judged(secret.signs(&[delivery.body], &[given]), Ok(()))
}

fn stripe(secret: &Secret, delivery: &Delivery<'_>) -> Result<(), Reason> {
    let value = needed(delivery, "stripe-signature")?;
    let pairs: Vec<(&str, &str)> = value.split(',').filter_map(|pair| pair.trim().split_once('=')).collect();
    let at = pairs.iter().find(|(name, _)| *name == "t").ok_or(Reason::Format)?.1;
    let given: Vec<Vec<u8>> =
        pairs.iter().filter(|(name, _)| *name == "v1").filter_map(|(_, text)| unhex_any(text)).collect();
    judged(secret.signs(&[at.as_bytes(), b".", delivery.body], &given), in_time(delivery, at))
}

fn slack(secret: &Secret, delivery: &Delivery<'_>) -> Result<(), Reason> {
    let (at, value) =
        (needed(delivery, "x-slack-request-timestamp")?, needed(delivery, "x-slack-signature")?);
    let given = value.strip_prefix("v0=").and_then(unhex_any).ok_or(Reason::Format)?;
    let parts = [b"v0:".as_slice(), at.as_bytes(), b":", delivery.body];
    judged(secret.signs(&parts, &[given]), in_time(delivery, at))
}
