//! Canaries: fifty secrets through a server that repeats them in every way it can; none is found anywhere afterwards.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::support::Place;
use crate::traces::Sink;

const MANY: usize = 50;

fn secret(n: usize) -> String {
    format!("canary-{n:02}-{:08x}/+\"\\ <ü&%>", (n as u32 + 1).wrapping_mul(2_654_435_761))
}

fn quoted(text: &str) -> String {
    json!(text).to_string().trim_matches('"').to_owned()
}

fn url(text: &str) -> String {
    let coded = |byte: &u8| match *byte as char {
        c if c.is_ascii_alphanumeric() || "-._~".contains(c) => c.to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.as_bytes().iter().map(coded).collect()
}

/// UTF-16, the little end first.
fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// Forms that are the same wherever they stand.
fn fixed(secret: &str) -> Vec<String> {
    let hex = model::id::hex(secret.as_bytes());
    let page = secret.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;");
    let numbered = secret.chars().map(|c| format!("&#x{:x};", c as u32)).collect();
    let twice = url(secret).replace('%', "%25");
    let upper = hex.to_uppercase();
    vec![
        secret.to_owned(),
        quoted(secret),
        url(secret),
        hex,
        upper,
        page,
        numbered,
        twice,
        model::id::hex(&wide(secret)),
    ]
}

/// Base64 in both alphabets and wherever it may begin, of UTF-8 and of UTF-16.
fn coded(secret: &str) -> Vec<String> {
    let aligned = |bytes: &[u8], before: usize| model::base64::encode(&[&vec![b'x'; before], bytes].concat());
    let mut forms: Vec<String> = (0..3).map(|before| aligned(secret.as_bytes(), before)).collect();
    forms.extend((0..3).map(|before| aligned(&wide(secret), before)));
    let other: Vec<String> = forms.iter().map(|form| form.replace('+', "-").replace('/', "_")).collect();
    [forms, other].concat()
}

fn forms(secret: &str) -> Vec<String> {
    [fixed(secret), coded(secret)].concat()
}

/// What is looked for: of base64 the part that does not depend on what stands around.
fn sought(secret: &str) -> Vec<String> {
    let cores = coded(secret).into_iter().map(|form| form[4..form.len() - 4].to_owned());
    fixed(secret).into_iter().chain(cores).collect()
}

/// A text in pieces of 1 to 40 bytes, as HTTP sends them.
fn chunked(text: &str) -> Vec<u8> {
    let (mut out, mut rest, mut long) = (Vec::new(), text.as_bytes(), 7);
    while !rest.is_empty() {
        long = (long * 29 + 11) % 40 + 1;
        let (chunk, more) = rest.split_at(long.min(rest.len()));
        out.extend([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
        rest = more;
    }
    [out, b"0\r\n\r\n".to_vec()].concat()
}

/// Repeats what it was sent: as JSON, as text in small chunks, in headers, in refusals, by the path that was asked.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().for_each(|stream| answer(stream.unwrap())));
    address
}

fn answer(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut line) = (String::new(), String::new());
    while reader.read_line(&mut line).unwrap() > 2 {
        head.push_str(&line);
        line.clear();
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    let sent: Map<String, Value> = serde_json::from_slice(&body).unwrap_or_default();
    let said: Vec<&str> = sent.values().filter_map(Value::as_str).collect();
    let all: Vec<Vec<String>> = said
        .iter()
        .map(|text| {
            let basic = model::base64::encode(format!("user:{text}").as_bytes());
            [forms(text), vec![basic]].concat()
        })
        .collect();
    let text = all.concat().join("\n");
    let reply = match head.split(' ').nth(1).unwrap() {
        "/json" => format!(
            "200 OK\r\ncontent-type: application/json\r\n\r\n{}",
            json!({"all": all, "again": sent, "text": text})
        ),
        "/headers" => {
            let shown = said
                .iter()
                .enumerate()
                .map(|(n, text)| format!("x-{n}: {}\r\nx-{n}: {}\r\n", url(text), forms(text)[3]));
            format!("200 OK\r\n{}\r\n", shown.collect::<String>())
        }
        "/chunks" => {
            let head = b"200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
            let whole = [head, chunked(&text)].concat();
            stream.write_all(b"HTTP/1.1 ").unwrap();
            return stream.write_all(&whole).unwrap();
        }
        _ => format!("418 {}\r\n\r\n{text}", quoted(said[0]).replace('ü', "u")),
    };
    stream.write_all(format!("HTTP/1.1 {reply}").as_bytes()).unwrap();
}

fn automation(address: SocketAddr) -> String {
    let body = |range: std::ops::Range<usize>| -> String {
        range.map(|n| format!("        s{n}: \"{{{{ secret('s{n}') }}}}\"\n")).collect()
    };
    let mut steps = String::new();
    for way in ["json", "headers", "chunks", "refused"] {
        steps += &format!(
            "  - id: {way}\n    on_error: continue\n    http:\n      url: \"http://{address}/{way}\"\n      body:\n{}",
            body(0..MANY)
        );
        steps += &format!("  - publish: {{topic: out.{way}, payload: {{got: \"{{{{ steps.{way} }}}}\"}}}}\n");
    }
    steps += "  - id: nowhere\n    on_error: continue\n    http: {url: \"http://{{ secret('s1') }}.invalid/{{ secret('s2') }}\"}\n";
    steps += &format!(
        "  - id: last\n    http:\n      url: \"http://{address}/refused\"\n      body:\n{}",
        body(0..MANY)
    );
    format!("automation: leaks\ntriggers: [{{manual: true}}, {{event: go}}]\nactions:\n{steps}")
}

fn files(dir: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for path in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => files(&path, found),
            false => found.push((path.display().to_string(), std::fs::read(&path).unwrap_or_default())),
        }
    }
}

/// Where secrets were found after a run whose requests were answered with them, in every form.
fn leaks(env: &[(&str, &str)]) -> Vec<String> {
    let place = Place::new();
    place.write("everwhen.toml", "[effects]\nallow = [\"127.0.0.1\"]\n");
    place.write("w/leaks.yaml", &automation(echo()));
    let (spans, collector) = Sink::start();
    let collector = format!("http://{collector}");
    let env = [env, &[("OTEL_EXPORTER_OTLP_ENDPOINT", collector.as_str())]].concat();
    let server = place.serve_under(&env, &["--no-auth", "w"]);
    for n in 0..MANY {
        place.run_with_input(&["secret", "set", &format!("s{n}")], &format!("{}\n", secret(n))).ok();
    }
    let pid = server.ready["pid"].as_u64().unwrap();
    let run = place.run(&["runs", "start", "leaks", "--wait", "60s", "--json"]);
    let id = run.lines()[0]["id"].as_str().unwrap().to_owned();
    let mut told = vec![("run".to_owned(), run.out.into_bytes())];
    for args in [
        &["runs", "get", &id] as &[&str],
        &["explain", "run", &id],
        &["explain", "automation", "leaks"],
        &["events", "list"],
        &["export"],
        &["secret", "list"],
        &["automations", "get", "leaks"],
    ] {
        let done = place.run(&[args, &["--json"]].concat()).ok();
        told.push((args.join(" "), [done.out, done.err].concat().into_bytes()));
    }
    for file in ["environ", "cmdline"] {
        told.push((file.to_owned(), std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default()));
    }
    assert_eq!(server.signal("TERM"), 0);
    files(&place.path().join(".everwhen"), &mut told);
    told.push(("spans".to_owned(), spans.bytes()));
    told.push(("serve.log".to_owned(), std::fs::read(place.path().join("serve.log")).unwrap()));
    let text = |name: &str| {
        String::from_utf8_lossy(&told.iter().find(|(what, _)| what == name).unwrap().1).into_owned()
    };
    let whole = text(&format!("runs get {id}"));
    assert!(
        whole.contains("***") && whole.contains("http.status"),
        "the requests were made and answered: {whole}"
    );
    assert!(text("spans").matches("\"effect\"").count() > 4, "{}", text("spans"));
    assert!(text("events list").matches("***").count() > 4 * MANY, "{}", text("events list"));
    let mut leaks = Vec::new();
    for (what, bytes) in &told {
        // Files are filled ahead with line breaks, which hold nothing.
        let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        let text = String::from_utf8_lossy(&lines.join(&b'\n')).into_owned();
        let held = (0..MANY).flat_map(|n| sought(&secret(n))).filter(|form| text.contains(form));
        leaks.extend(held.map(|form| format!("{form} in {what}")));
    }
    leaks
}

#[test]
fn fifty_secrets_repeated_in_every_form_are_found_nowhere() {
    let leaks = leaks(&[]);
    assert!(leaks.is_empty(), "{leaks:#?}");
}

#[cfg(feature = "faults")]
#[test]
fn the_fault_mask_raw_only_is_found_by_the_canaries() {
    assert!(leaks(&[("EVERWHEN_FAULT", "mask_raw_only")]).len() > MANY);
}

#[test]
fn a_secret_is_set_from_stdin_or_a_file_listed_by_name_and_removed() {
    let place = Place::new();
    place.run_with_input(&["secret", "set", "a"], "first value\n").ok();
    let file = place.write("key.pem", "-----BEGIN\nline\n");
    place.run(&["secret", "set", "b", "--file", file.to_str().unwrap()]).ok();
    let names: Vec<Value> = place.run(&["secret", "list", "--json"]).ok().lines();
    assert_eq!((&names[0]["name"], &names[1]["name"], names.len()), (&json!("a"), &json!("b"), 2));
    assert!(names[0].get("value").is_none());
    assert_eq!(
        place.run_with_input(&["secret", "set", "a", "--json"], "abc\n").exits(4).error()["code"],
        "secret.invalid"
    );
    place.run(&["secret", "rm", "a"]).ok();
    assert_eq!(place.run(&["secret", "rm", "a", "--json"]).exits(3).error()["code"], "secret.not_found");
    // A value among the words of the command is not taken.
    place.run(&["secret", "set", "a", "value"]).exits(2);
}
