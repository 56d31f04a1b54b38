//! Tells a plain publish from everything else: reads the head of a request as strictly as it can be read.
//!
//! Only headers that are known to change nothing, or that are understood here, may stand in it. A head that is odd in any way is not
//! refused but left to hyper, so there is one place that says what is wrong with it.

/// What a head begins with.
const LINE: &[u8] = b"POST /v1/events HTTP/1.1\r\n";

/// As many as hyper takes.
const HEADERS_MAX: usize = 100;

/// What stands at the beginning of a connection's bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Begun<'a> {
    /// Too little to tell, and nothing that is not plain.
    Partly,
    /// All but the body: who asks can be judged already.
    Headed(Headed<'a>),
    Plain(Plain<'a>),
    /// For the long way.
    Other,
}

/// A whole head whose body is still coming.
#[derive(Debug, PartialEq, Eq)]
pub struct Headed<'a> {
    pub host: &'a str,
    pub authorization: Option<&'a str>,
    /// Of head and body, once that is there.
    pub length: usize,
}

/// One event in a body that is all there.
#[derive(Debug, PartialEq, Eq)]
pub struct Plain<'a> {
    pub host: &'a str,
    pub authorization: Option<&'a str>,
    pub traceparent: Option<&'a str>,
    pub body: &'a [u8],
    /// Of head and body.
    pub length: usize,
}

/// The headers of a head that is not yet whole.
#[derive(Default)]
struct Headers<'a> {
    host: Option<&'a str>,
    authorization: Option<&'a str>,
    traceparent: Option<&'a str>,
    length: Option<usize>,
    json: bool,
}

pub fn read(bytes: &[u8]) -> Begun<'_> {
    let line = &LINE[..LINE.len().min(bytes.len())];
    if !bytes.starts_with(line) {
        return Begun::Other;
    }
    let mut headers = Headers::default();
    let mut at = LINE.len();
    for _ in 0..=HEADERS_MAX {
        let Some(rest) = bytes.get(at..) else { return Begun::Partly };
        let Some(end) = memchr::memchr(b'\n', rest) else { return Begun::Partly };
        at += end + 1;
        match rest[..end].strip_suffix(b"\r") {
            Some(b"") => return headers.whole(bytes, at),
            Some(line) if headers.take(line).is_some() => {}
            _ => return Begun::Other,
        }
    }
    Begun::Other
}

impl<'a> Headers<'a> {
    /// `None` for a header that is not for here, or one that comes twice and must not.
    fn take(&mut self, line: &'a [u8]) -> Option<()> {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        let plain = value.iter().all(|byte| matches!(byte, b' '..=b'~'));
        let value = std::str::from_utf8(value).ok().filter(|_| plain)?.trim_matches(' ');
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name.len() {
            4 if is("host") => once(&mut self.host, value),
            13 if is("authorization") => once(&mut self.authorization, value),
            11 if is("traceparent") => once(&mut self.traceparent, value),
            14 if is("content-length") => once(&mut self.length, number(value)?),
            12 if is("content-type") => {
                let json = ["application/json", "application/json; charset=utf-8"];
                let known = json.iter().any(|json| value.eq_ignore_ascii_case(json));
                (known && !std::mem::replace(&mut self.json, true)).then_some(())
            }
            10 if is("connection") => value.eq_ignore_ascii_case("keep-alive").then_some(()),
            10 if is("user-agent") => Some(()),
            6 if is("accept") => Some(()),
            15 if is("accept-encoding") || is("accept-language") => Some(()),
            _ => None,
        }
    }

    fn whole(self, bytes: &'a [u8], head: usize) -> Begun<'a> {
        let (Some(host), Some(length), true) = (self.host, self.length, self.json) else {
            return Begun::Other;
        };
        let Headers { authorization, traceparent, .. } = self;
        match bytes.get(head..head + length) {
            Some(body) => {
                Begun::Plain(Plain { host, authorization, traceparent, body, length: head + length })
            }
            None => Begun::Headed(Headed { host, authorization, length: head + length }),
        }
    }
}

fn once<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.replace(value).is_none().then_some(())
}

/// Digits and nothing else, and few of them: what is long is not for here.
fn number(text: &str) -> Option<usize> {
    let digits = (1..=7).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = "Host: a:1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n";

    fn request(more: &str) -> String {
        format!("POST /v1/events HTTP/1.1\r\n{REST}{more}\r\n{{}}")
    }

    #[test]
    fn a_plain_publish_is_known_once_all_of_it_is_there() {
        let text = request("authorization: Bearer x\r\nuser-agent: y\r\n");
        let Begun::Plain(plain) = read(text.as_bytes()) else { panic!("it is plain") };
        assert_eq!((plain.host, plain.authorization, plain.body), ("a:1", Some("Bearer x"), &b"{}"[..]));
        assert_eq!(plain.length, text.len());
        let head = text.len() - 2;
        for end in 0..head {
            assert_eq!(read(&text.as_bytes()[..end]), Begun::Partly, "{end}");
        }
        let headed = Headed { host: "a:1", authorization: Some("Bearer x"), length: text.len() };
        assert_eq!(read(&text.as_bytes()[..head]), Begun::Headed(headed));
    }

    #[test]
    fn what_follows_is_left_for_the_next_time() {
        let two = request("").repeat(2);
        let Begun::Plain(plain) = read(two.as_bytes()) else { panic!("the first is plain") };
        assert_eq!(plain.length, two.len() / 2);
    }

    #[test]
    fn whatever_is_not_understood_here_goes_the_long_way() {
        for more in [
            "expect: 100-continue\r\n",
            "transfer-encoding: chunked\r\n",
            "content-length: 2\r\n",
            "host: b\r\n",
            "origin: http://evil.example\r\n",
            "idempotency-key: k\r\n",
            "ce-id: 1\r\n",
            "content-encoding: gzip\r\n",
            "connection: close\r\n",
            "everwhen-tenant: other\r\n",
            "x-request-id: mine\r\n",
            "authorization : Bearer x\r\n",
            "user-agent: \u{7f}\r\n",
            " folded: x\r\n",
            "no colon\r\n",
            "accept: x\n",
        ] {
            assert_eq!(read(request(more).as_bytes()), Begun::Other, "{more:?}");
        }
    }

    #[test]
    fn a_head_has_a_hundred_headers_at_most() {
        let more = |count: usize| request(&"accept: x\r\n".repeat(count));
        assert!(matches!(read(more(97).as_bytes()), Begun::Plain(_)));
        assert_eq!(read(more(98).as_bytes()), Begun::Other);
    }

    #[test]
    fn other_methods_paths_types_and_lengths_go_the_long_way() {
        let plain = request("");
        for (from, to) in [
            ("POST", "PUT "),
            ("/v1/events ", "/v1/events?x "),
            ("HTTP/1.1", "HTTP/1.0"),
            ("application/json", "application/x-ndjson"),
            ("Content-Length: 2", "Content-Length: +2"),
            ("Content-Length: 2", "Content-Length: 99999999"),
            ("Content-Length: 2\r\n", ""),
            ("Content-Type: application/json\r\n", ""),
            ("Host: a:1\r\n", ""),
        ] {
            assert_eq!(read(plain.replacen(from, to, 1).as_bytes()), Begun::Other, "{to:?}");
        }
    }
}
