//! The first page: what people see, that nothing of it is markup of somebody else's, and who may see it.

use serde_json::json;

use crate::client::Reply;
use crate::harness::Server;

const LOCAL: &str = "the-token-of-serve-json";

const YAML: &str = "automation: page\ntriggers:\n  - event: price.*\n    filter: event.payload.new > 9\nactions:\n  - publish: {topic: out.paged, payload: {n: 1}}\n  - wait_for: {event: never.*, timeout: 1h}\n";

#[track_caller]
fn shows(reply: &Reply, texts: &[&str]) {
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.headers["content-type"], "text/html; charset=utf-8");
    for text in texts {
        assert!(reply.text().contains(text), "no {text:?} in {}", reply.text());
    }
}

#[test]
fn an_event_is_followed_from_the_timeline_to_its_run_and_what_it_waits_for() {
    let server = Server::start();
    server.apply("a.yaml", YAML);
    let at = server.publish("price.changed", r#"{"new":12}"#);
    let low = server.publish("price.changed", r#"{"new":1}"#);
    server.put("/v1/groups/prices", r#"{"pattern":"price.*","start":"beginning"}"#).ok(201);

    shows(&server.get("/"), &["price.changed", "out.paged", &format!("/ui/events/{at}"), "/ui/live.js"]);
    let filtered = server.get("/?topic=out.*&filter=event.payload.n%20%3D%3D%201");
    shows(&filtered, &["out.paged", "topic=out.%2A", "value=\"event.payload.n == 1\""]);
    assert!(!filtered.text().contains("price.changed"));

    let event = server.get(&format!("/ui/events/{at}"));
    shows(&event, &["out.paged", "/ui/runs/run_", "ran", "/ui/groups/prices", "&quot;new&quot;: 12"]);
    shows(&server.get(&format!("/ui/events/{low}")), &["filtered", "Nothing came of it."]);

    let run = server.get("/v1/runs").ok(200)["runs"][0]["id"].as_str().unwrap().to_owned();
    shows(&server.get("/ui/runs?automation=page&status=waiting"), &[&run, "waiting"]);
    shows(&server.get(&format!("/ui/runs/{run}")), &["actions[0]", "publish", "It waits for", "Why it ran"]);
    shows(&server.get("/ui/waits"), &[&run]);
    shows(&server.get("/ui/automations"), &["/ui/automations/page"]);
    shows(
        &server.get("/ui/automations/page"),
        &["Events that nearly started it", &format!("/ui/events/{low}")],
    );
    shows(&server.get("/ui/groups"), &["prices"]);
    shows(&server.get("/ui/groups/prices"), &["There are no dead letters."]);
    shows(&server.get("/ui/health"), &["newest position", "main"]);
    for (file, kind) in [("style.css", "text/css"), ("live.js", "text/javascript")] {
        assert!(server.get(&format!("/ui/{file}")).headers["content-type"].starts_with(kind));
    }
}

#[test]
fn a_question_is_shown_with_all_that_an_answer_needs_and_the_command_that_gives_it() {
    let server = Server::start();
    let asks = r#"
automation: asks
triggers: [{event: spend.*}]
actions:
  - approve:
      question: "spend {{ event.payload.sum }}?"
      to: "{{ event.payload.who }}"
      form: {amount: "number!", why: string}
      timeout: 1h
      default: {approved: false}
"#;
    server.apply("a.yaml", asks);
    server.publish("spend.asked", r#"{"sum":"<b>7</b>","who":"ann"}"#);
    let wait = server.get("/v1/waits").ok(200)["waits"][0].clone();
    assert_eq!((&wait["approve"], &wait["to"]), (&json!(true), &json!("ann")), "{wait}");
    assert_eq!(wait["default"], json!({"approved": false}), "{wait}");
    assert!(wait["due"].is_string(), "{wait}");
    let command = format!(
        "<pre>everwhen waits answer {} --as user:ann &#39;{{&quot;amount&quot;:0,&quot;approved&quot;:true}}&#39;</pre>",
        wait["id"].as_str().unwrap()
    );
    for path in ["/ui/waits".to_owned(), format!("/ui/runs/{}", wait["run"].as_str().unwrap())] {
        let form = "<dd>amount double!, why string</dd>";
        let default = "<dd>{&quot;approved&quot;:false}</dd>";
        let question = "spend &lt;b&gt;7&lt;/b&gt;?";
        shows(&server.get(&path), &[question, "<dd>ann</dd>", "<dd>yes, no</dd>", form, default, &command]);
    }
}

#[test]
fn what_somebody_published_never_becomes_markup_of_the_page() {
    let server = Server::start();
    let evil = "<script>alert('x')</script><img src=x onerror=y>\"";
    let body = json!({
        "topic": "a.b", "payload": {"text": evil}, "source": evil, "caused_by": evil,
        "subject": {"kind": evil, "id": evil}, "ext": {"x": evil},
    });
    let reply = server.post("/v1/events", body.to_string());
    assert_eq!(reply.status, 201, "{}", reply.text());
    let at = reply.json()["position"].clone();
    let word = "%3Cscript%3Ealert(1)%3C%2Fscript%3E%22";
    let paths = [
        "/".to_owned(),
        format!("/ui/events/{at}"),
        format!("/?topic={word}"),
        format!("/?space={word}"),
        format!("/ui/runs?automation={word}"),
        format!("/ui/runs/{word}"),
        format!("/ui/groups/{word}"),
        format!("/ui/automations/{word}"),
        format!("/?{word}=1"),
    ];
    for path in paths {
        let reply = server.get(&path);
        let text = reply.text();
        assert!(reply.headers["content-security-policy"].starts_with("default-src 'self'"), "{path}");
        for markup in ["<script>", "<img", "onerror=y>"] {
            assert!(!text.contains(markup), "{markup} in {path}: {text}");
        }
    }
}

#[test]
fn what_cannot_be_shown_is_said_on_a_page_and_what_is_wrong_is_no_server_error() {
    let server = Server::start();
    for (path, status) in [
        ("/ui/events/99", 404),
        ("/ui/runs/run_nothing", 404),
        ("/ui/groups/none", 404),
        ("/ui/automations/none", 404),
        ("/?topic=a..b", 400),
        ("/?filter=1%20%2B", 400),
        ("/?cursor=xyz", 400),
        ("/?nonsense=1", 400),
        ("/ui/runs?status=nonsense", 400),
        ("/ui/nonsense", 404),
        ("/ui/runs/a/b/c", 404),
        ("/ui", 404),
    ] {
        let reply = server.get(path);
        assert_eq!(reply.headers["content-type"], "text/html; charset=utf-8", "{path}");
        assert!(reply.text().contains("<a href=\"/ui/groups\""), "{path}: one can go on: {}", reply.text());
        let said = (reply.status, reply.text().contains("role=\"alert\""));
        assert!(said.1 && (400..500).contains(&said.0), "{path}: {said:?} {}", reply.text());
        assert!(status != 404 || said.0 == 404, "{path}: {}", said.0);
    }
}

#[test]
fn a_filter_that_is_wrong_stands_in_its_form_with_what_is_wrong_and_what_to_do() {
    let server = Server::start();
    let cases = [
        ("/?topic=in.*&filter=payload.n%20%3E", 422, "<h1>Events</h1>", "value=\"payload.n &gt;\""),
        ("/?topic=a..b", 422, "<h1>Events</h1>", "value=\"a..b\""),
        ("/?since=yesterday", 400, "write it like 2026-01-31T09:30:00Z", "value=\"yesterday\""),
        ("/?topic=a.b&nonsense=1", 400, "known parameters: topic", "value=\"a.b\""),
        ("/ui/runs?automation=x&status=nonsense", 400, "<h1>Runs</h1>", "value=\"nonsense\""),
    ];
    for (path, status, words, typed) in cases {
        let reply = server.get(path);
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        for part in ["role=\"search\"", "role=\"alert\"", "aria-current=\"page\"", words, typed] {
            assert!(reply.text().contains(part), "{path}: no {part} in {}", reply.text());
        }
    }
}

#[test]
fn who_needs_no_token_is_not_asked_to_sign_out() {
    let open = Server::start();
    for path in ["/", "/ui/runs", "/ui/health", "/ui/runs/run_nothing"] {
        assert!(!open.get(path).text().contains("Sign out"), "{path}");
    }
    let asking = Server::start_with(Default::default(), Some(LOCAL));
    let kept = format!("cookie: everwhen={LOCAL}");
    for path in ["/", "/ui/runs", "/ui/health", "/ui/runs/run_nothing"] {
        let page = asking.send("GET", path, &[&kept], "");
        assert!(page.text().contains("Sign out"), "{path}: {}", page.text());
    }
}

#[test]
fn the_command_that_answers_names_nobody_where_the_token_says_who_answers() {
    let server = Server::start_with(Default::default(), Some(LOCAL));
    let bearer = format!("authorization: Bearer {LOCAL}");
    let asks = "automation: asks\ntriggers: [{manual: true}]\nactions:\n  - ask: {question: ok?, to: ann, options: [1]}\n";
    for (path, body) in
        [("/v1/apply", json!({"files": {"a.yaml": asks}})), ("/v1/runs", json!({"automation": "asks"}))]
    {
        let done = server.send("POST", path, &[&bearer, "content-type: application/json"], body.to_string());
        assert!((200..300).contains(&done.status), "{}", done.text());
    }
    let kept = format!("cookie: everwhen={LOCAL}");
    let page = server.send("GET", "/ui/waits", &[&kept], "");
    shows(&page, &["<pre>everwhen waits answer run_"]);
    assert!(!page.text().contains("--as"), "{}", page.text());
}

#[test]
fn a_browser_signs_in_with_a_token_and_sees_what_that_may_see() {
    let server = Server::start_with(Default::default(), Some(LOCAL));
    let bearer = format!("authorization: Bearer {LOCAL}");
    let token = |role: &str| -> String {
        let said = json!({ "role": role }).to_string();
        let made =
            server.send("POST", "/v1/tokens", &[&bearer, "content-type: application/json"], said).ok(201);
        made["token"].as_str().unwrap().to_owned()
    };
    let (viewer, publisher) = (token("viewer"), token("publisher"));
    let asked = server.get("/");
    assert_eq!(asked.status, 401);
    assert!(asked.text().contains("name=\"token\""), "{}", asked.text());
    assert!(asked.text().contains("<a href=\"/ui/runs\"") && !asked.text().contains("Sign out"));

    let form = ["content-type: application/x-www-form-urlencoded"];
    let signed = server.send("POST", "/ui/sign-in", &form, format!("token={viewer}"));
    assert_eq!((signed.status, signed.headers["location"].as_str()), (303, "/"));
    let cookie = signed.headers["set-cookie"].clone();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
    let kept = format!("cookie: other=1; {}", cookie.split(';').next().unwrap());
    shows(&server.send("GET", "/", &[&kept], ""), &["<h1>Events</h1>"]);
    shows(&server.send("GET", "/ui/runs", &[&kept], ""), &["There is no run"]);
    let elsewhere = server.send("GET", "/v1/runs", &[&kept], "");
    assert_eq!(elsewhere.status, 401, "the cookie is for pages alone");

    let blind = format!("cookie: everwhen={publisher}");
    for path in ["/", "/ui/runs", "/ui/groups", "/ui/events/1"] {
        let refused = server.send("GET", path, &[&blind], "");
        assert_eq!(refused.status, 403, "{path}");
        for words in ["may not read this", "name=\"token\"", "<a href=\"/ui/runs\"", "Sign out"] {
            assert!(refused.text().contains(words), "{path}: {}", refused.text());
        }
    }
    let page = server.get("/ui/sign-in");
    assert!(page.status == 200 && page.text().contains("name=\"token\""), "{}", page.text());
    for wrong in ["", "token=", "token=a%0d%0aset-cookie:x", "token=x&token=y", "nonsense"] {
        let status = server.send("POST", "/ui/sign-in", &form, wrong).status;
        assert!((400..500).contains(&status), "{wrong}: {status}");
    }
    let unknown = server.send("POST", "/ui/sign-in", &form, format!("token={}", other_end(&viewer)));
    assert_eq!((unknown.status, unknown.headers.get("set-cookie")), (401, None), "{}", unknown.text());
    let out = server.send("POST", "/ui/sign-out", &[&kept], "");
    assert!(out.headers["set-cookie"].contains("Max-Age=0"));
}

/// Where the link with these words leads, as a browser reads it.
fn leads(reply: &Reply, words: &str) -> Option<String> {
    let text = reply.text();
    let before = text.split(&format!("\">{words}</a>")).next().filter(|before| before.len() < text.len())?;
    Some(before.rsplit("href=\"").next()?.replace("&amp;", "&"))
}

#[test]
fn links_to_what_is_older_lead_there_with_and_without_filters() {
    let server = Server::start();
    server.apply(
        "a.yaml",
        "automation: each\ntriggers: [{event: go}]\nmode: parallel\nmax: 500\nstorm: {per_minute: 10000}\nactions: [{vars: {n: 1}}]\n",
    );
    let first = server.publish("go", r#"{"n":1}"#);
    for _ in 0..120 {
        server.publish("go", r#"{"n":2}"#);
    }
    let pages = [
        ("/", "Older events"),
        (
            "/?topic=go&filter=event.payload.n%20%3E%200%20%26%26%20true&since=2020-01-01T00:00:00Z",
            "Older events",
        ),
        ("/ui/runs", "Older runs"),
        ("/ui/runs?automation=each&status=completed", "Older runs"),
    ];
    for (begin, words) in pages {
        let (mut path, mut seen) = (begin.to_owned(), 0);
        loop {
            let reply = server.get(&path);
            assert_eq!(reply.status, 200, "{path}: {}", reply.text());
            seen += reply.text().matches("<tr><td>").count();
            match leads(&reply, words) {
                Some(next) => path = next,
                None => break,
            }
        }
        assert_eq!(seen, 121, "{begin}");
        let named: Vec<&str> =
            begin.split(['?', '&']).skip(1).filter_map(|part| part.split('=').next()).collect();
        assert!(named.iter().all(|name| path.contains(&format!("{name}="))), "{path} keeps {named:?}");
        let oldest =
            if words == "Older events" { format!("/ui/events/{first}\"") } else { "run_".to_owned() };
        assert!(server.get(&path).text().contains(&oldest), "{path}");
    }
}

/// The same token but for its last character.
fn other_end(token: &str) -> String {
    let (rest, last) = token.split_at(token.len() - 1);
    format!("{rest}{}", if last == "x" { "y" } else { "x" })
}
