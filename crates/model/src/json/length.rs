//! How long a value is as JSON text, without writing that text anywhere.

use std::io::{self, Write};

struct Count(usize);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// 0 for what cannot be written as JSON.
pub fn length<T: serde::Serialize + ?Sized>(value: &T) -> usize {
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).map_or(0, |()| count.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn the_length_is_that_of_the_text() {
        for value in [json!(null), json!({"a": [1, 2.5, "é\n"], "b": {"c": true}}), json!("")] {
            assert_eq!(super::length(&value), value.to_string().len(), "{value}");
        }
    }
}
