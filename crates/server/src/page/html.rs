//! How HTML is written: every text escaped, one frame around all pages.

use std::fmt::{Display, Write};

use axum::body::Body;
use axum::response::Response;
use hyper::StatusCode;
use serde_json::Value;

use super::{Frame, guarded};

/// What stands around a page.
pub struct Head<'a> {
    pub title: &'a str,
    /// The part of the page that the reader is in, as its path.
    pub at: &'static str,
}

/// A page without what stands around it.
pub struct Page {
    status: StatusCode,
    title: String,
    at: &'static str,
    body: String,
}

const PARTS: [(&str, &str); 6] = [
    ("/", "Events"),
    ("/ui/runs", "Runs"),
    ("/ui/waits", "Waits"),
    ("/ui/automations", "Automations"),
    ("/ui/groups", "Groups"),
    ("/ui/health", "Health"),
];

/// Text as it is read, not as HTML.
pub fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// One word of a path or a query.
pub fn word(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte.into()),
            // Writing to a String cannot fail.
            byte => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

pub fn link(to: &str, shown: &str) -> String {
    format!("<a href=\"{}\">{}</a>", text(to), text(shown))
}

/// The items of a list; none when it is no list.
pub fn list(items: &Value) -> &[Value] {
    items.as_array().map_or(&[], Vec::as_slice)
}

pub fn to_run(id: &Value) -> String {
    let id = id.as_str().unwrap_or_default();
    link(&format!("/ui/runs/{}", word(id)), id)
}

pub fn to_automation(name: &Value) -> String {
    let name = name.as_str().unwrap_or_default();
    link(&format!("/ui/automations/{}", word(name)), name)
}

pub fn to_group(name: &Value) -> String {
    let name = name.as_str().unwrap_or_default();
    link(&format!("/ui/groups/{}", word(name)), name)
}

/// A value as people read it: text without its quotes, nothing for what is absent.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(said) => text(said),
        other => text(&other.to_string()),
    }
}

/// An instant without what a table needs not show; the whole of it for who asks.
pub fn instant(value: &Value) -> String {
    let Some(said) = value.as_str() else { return String::new() };
    let short = said.get(..19).map_or(said.to_owned(), |short| short.replace('T', " "));
    format!("<time datetime=\"{}\">{}</time>", text(said), text(&short))
}

/// A state, marked so that the eye finds the bad ones; the word is there for who sees no colour.
pub fn state(word: &str) -> String {
    let kind = match word {
        "failed" | "dead" | "refused" | "expired" | "missed" => "bad",
        "waiting" | "queued" | "pending" | "paused" | "running" | "in_flight" | "ready" => "open",
        _ => "good",
    };
    format!("<span class=\"state {kind}\">{}</span>", text(word))
}

pub fn json(value: &Value) -> String {
    format!("<pre>{}</pre>", text(&serde_json::to_string_pretty(value).unwrap_or_default()))
}

/// Rows whose cells are HTML already. Without rows: `none`, a sentence.
pub fn table(caption: &str, columns: &[&str], rows: &[Vec<String>], none: &str) -> String {
    if rows.is_empty() {
        return format!("<p class=\"none\">{none}</p>");
    }
    let cells = |tag: &str, cells: &mut dyn Iterator<Item = &str>| -> String {
        cells.map(|cell| format!("<{tag}>{cell}</{}>", &tag[..2])).collect()
    };
    let head = cells("th scope=\"col\"", &mut columns.iter().copied());
    let body: String = rows
        .iter()
        .map(|row| format!("<tr>{}</tr>\n", cells("td", &mut row.iter().map(String::as_str))))
        .collect();
    format!(
        "<table><caption>{}</caption><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>",
        text(caption)
    )
}

/// Names and what stands for them; what is empty is left out.
pub fn facts(facts: &[(&str, String)]) -> String {
    let shown = facts.iter().filter(|(_, fact)| !fact.is_empty());
    let items: String = shown.map(|(name, fact)| format!("<dt>{name}</dt><dd>{fact}</dd>")).collect();
    format!("<dl>{items}</dl>")
}

/// One field of a form of filters.
pub fn field(name: &str, label: &str, value: &str, hint: impl Display) -> String {
    format!("<label>{label} <input name=\"{name}\" value=\"{}\" placeholder=\"{hint}\"></label>", text(value))
}

pub fn page(status: StatusCode, head: &Head<'_>, body: &str) -> Page {
    Page { status, title: text(head.title), at: head.at, body: body.to_owned() }
}

impl Page {
    pub fn framed(self, frame: Frame) -> Response {
        let Page { status, title, at, body } = self;
        let (parts, sign_out) = (parts(at), if frame.has_tokens { SIGN_OUT } else { "" });
        let whole = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <title>{title} · Everwhen</title><link rel=\"stylesheet\" href=\"/ui/style.css\"></head>\n\
             <body><a class=\"skip\" href=\"#main\">To the content</a>\
             <header><strong>Everwhen</strong><nav aria-label=\"Parts\">{parts}</nav>{sign_out}</header>\n\
             <main id=\"main\"><h1>{title}</h1>\n{body}</main></body></html>\n"
        );
        let mut response = Response::new(Body::from(whole));
        *response.status_mut() = status;
        guarded(response)
    }
}

const SIGN_OUT: &str = "<form method=\"post\" action=\"/ui/sign-out\"><button>Sign out</button></form>";

fn parts(at: &str) -> String {
    let part = |(path, name): &(&str, &str)| match at == *path {
        true => format!("<a href=\"{path}\" aria-current=\"page\">{name}</a>"),
        false => format!("<a href=\"{path}\">{name}</a>"),
    };
    PARTS.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_was_said_becomes_markup() {
        assert_eq!(text("<a href='x'>&\"</a>"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;&lt;/a&gt;");
        assert_eq!(word("a b/ü?#"), "a%20b%2F%C3%BC%3F%23");
        assert_eq!(link("/ui/\"><b>", "<b>"), "<a href=\"/ui/&quot;&gt;&lt;b&gt;\">&lt;b&gt;</a>");
    }
}
