//! What HTTP/1.1 asks of the head of every request and hyper lets pass: one host, and a body whose coding is known.
//!
//! A proxy in front that reads such a head in another way than we do would send one client's words as another's.

use hyper::header::{HOST, HeaderValue, TRANSFER_ENCODING};
use hyper::{Request, Version};
use model::Problem;

use crate::problem::bad_request;

pub fn check<B>(request: &Request<B>) -> Result<(), Problem> {
    if request.version() != Version::HTTP_11 {
        return Ok(());
    }
    let headers = request.headers();
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(_), None) => {}
        (None, _) => return Err(bad_request("host", "is missing").hint("HTTP/1.1 asks for it")),
        (Some(_), Some(_)) => return Err(bad_request("host", "is given twice").hint("give one")),
    }
    let coded = |value: &HeaderValue| !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    if headers.get_all(TRANSFER_ENCODING).iter().any(coded) {
        let why = "names a coding other than \"chunked\"";
        return Err(bad_request("transfer-encoding", why).hint("send the body as it is, in chunks or not"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(version: Version, headers: &[(&str, &str)]) -> Result<(), Problem> {
        let request = Request::builder().version(version).uri("/v1/events");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        check(&request.body(()).unwrap())
    }

    #[test]
    fn a_request_has_one_host() {
        ask(Version::HTTP_11, &[("host", "a")]).unwrap();
        ask(Version::HTTP_11, &[]).unwrap_err();
        ask(Version::HTTP_11, &[("host", "a"), ("host", "b")]).unwrap_err();
        ask(Version::HTTP_10, &[]).unwrap();
        ask(Version::HTTP_2, &[]).unwrap();
    }

    #[test]
    fn a_body_is_sent_in_chunks_or_as_it_is() {
        ask(Version::HTTP_11, &[("host", "a"), ("transfer-encoding", "Chunked")]).unwrap();
        for coded in ["gzip, chunked", "identity", "chunked, chunked"] {
            ask(Version::HTTP_11, &[("host", "a"), ("transfer-encoding", coded)]).unwrap_err();
        }
    }
}
