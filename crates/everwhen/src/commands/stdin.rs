//! Reading what is piped in or named as a file, by the line and without holding all of it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};

use bytes::Bytes;
use model::{Code, Problem};
use tokio::sync::mpsc;

/// Longest line that is read at all: the largest payload, four times over for escapes, and its envelope.
const LINE_MAX: u64 = 5 << 20;

/// Opens `-` as stdin, anything else as a file.
pub fn open(name: &str) -> Result<Box<dyn BufRead + Send>, Problem> {
    match name {
        "-" => Ok(Box::new(BufReader::new(io::stdin()))),
        path => match open_file(path) {
            Ok(file) => Ok(Box::new(BufReader::new(file))),
            Err(error) => {
                let detail = format!("\"{path}\" cannot be read: {error}");
                Err(Problem::new(Code::UsageInvalid, detail)
                    .hint("name a file that is there and readable, or - for stdin"))
            }
        },
    }
}

/// A folder opens, but nothing can be read from it.
fn open_file(path: &str) -> io::Result<File> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
}

/// All of it.
pub fn read(name: &str) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    let wrong = |error| Problem::new(Code::UsageInvalid, format!("\"{name}\" cannot be read: {error}"));
    open(name)?.read_to_end(&mut bytes).map_err(wrong)?;
    Ok(bytes)
}

/// The first line of stdin without its end; `None` where there is nothing.
pub fn line() -> Result<Option<String>, Problem> {
    let wrong = |why: &dyn std::fmt::Display| {
        Problem::new(Code::UsageInvalid, format!("stdin cannot be read: {why}"))
    };
    let line = next_line(&mut *open("-")?).map_err(|error| wrong(&error))?;
    let text =
        line.map(|line| String::from_utf8(line.to_vec())).transpose().map_err(|error| wrong(&error))?;
    Ok(text.map(|text| text.trim().to_owned()))
}

/// Whether a person at a terminal means it; a script has said so by asking.
pub fn confirms(what: &str, name: &str) -> Result<bool, Problem> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(true);
    }
    eprint!("{what} Type its name to go on: ");
    Ok(line()?.is_some_and(|line| line == name))
}

/// The lines of an input, read on a thread of their own so that a slow pipe holds nothing else up. Each keeps its
/// newline; a line that is too long is cut, which no reader of JSON accepts.
pub fn lines(name: &str) -> Result<mpsc::Receiver<Bytes>, Problem> {
    let mut input = open(name)?;
    let (sender, receiver) = mpsc::channel(1_024);
    std::thread::spawn(move || {
        while let Ok(Some(line)) = next_line(&mut *input) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

fn next_line(input: &mut dyn BufRead) -> io::Result<Option<Bytes>> {
    let mut line = Vec::new();
    input.take(LINE_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        let cut = line.len() as u64 == LINE_MAX;
        while cut && skip_some(input)? {}
        line.push(b'\n');
    }
    Ok(Some(line.into()))
}

/// Passes over the rest of a line that was cut; `false` at its end.
fn skip_some(input: &mut dyn BufRead) -> io::Result<bool> {
    let buffer = input.fill_buf()?;
    let (used, more) = match buffer.iter().position(|b| *b == b'\n') {
        Some(end) => (end + 1, false),
        None => (buffer.len(), !buffer.is_empty()),
    };
    input.consume(used);
    Ok(more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_end_and_a_last_line_gets_one() {
        let mut input = BufReader::new(&b"a\n\nb"[..]);
        let mut got = Vec::new();
        while let Some(line) = next_line(&mut input).unwrap() {
            got.push(line);
        }
        assert_eq!(got, [&b"a\n"[..], b"\n", b"b\n"]);
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_and_the_next_one_read() {
        let mut text = vec![b'x'; LINE_MAX as usize + 10];
        text.extend_from_slice(b"\nnext\n");
        let mut input = BufReader::new(&text[..]);
        assert_eq!(next_line(&mut input).unwrap().unwrap().len() as u64, LINE_MAX + 1);
        assert_eq!(next_line(&mut input).unwrap().unwrap(), &b"next\n"[..]);
    }
}
