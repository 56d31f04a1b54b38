//! Where a value ends, found by its quotes and brackets alone: for text that was checked when it came in.

/// The byte behind the JSON value that begins at `start`. It does not judge the value: for text that never passed
/// [`super::check`] it may be any place, or none.
pub fn value_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    let mut depth = 0u32;
    loop {
        match bytes.get(at)? {
            b'"' => at = string_end(bytes, at + 1)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            b',' | b':' if depth == 0 => return None,
            _ if depth > 0 => at += 1,
            _ => at = scalar_end(bytes, at),
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// `at` is behind the opening quote.
fn string_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

fn scalar_end(bytes: &[u8], at: usize) -> usize {
    let len = bytes[at..].iter().take_while(|b| !matches!(b, b',' | b'}' | b']')).count();
    at + len
}
