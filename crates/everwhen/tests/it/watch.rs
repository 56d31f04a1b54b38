//! `everwhen serve WORKSPACE`: applied before the doors open, and with `--watch` again on every save.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, ChildStdout};

use crate::support::{Place, examples};

const CONCEPT: &str = "concept system {\n  status string\n}\n";

/// A server whose remarks are read line by line.
struct Watched {
    child: Child,
    out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
}

impl Watched {
    fn start(place: &Place, workspace: &str) -> Watched {
        let args = ["serve", "--listen", "127.0.0.1:0", "--no-auth", "--watch", workspace];
        let mut child = place.command(&args).spawn().unwrap();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        Watched { child, out: BufReader::new(out), err: BufReader::new(err) }
    }

    fn ready(&mut self) {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        assert!(line.starts_with("listening on http://127.0.0.1:"), "{line:?}");
    }

    /// Everything said on stderr up to the line that has `words`.
    fn said(&mut self, words: &str) -> String {
        let mut said = String::new();
        loop {
            let mut line = String::new();
            assert!(self.err.read_line(&mut line).unwrap() > 0, "ended without {words:?}:\n{said}");
            said.push_str(&line);
            if line.contains(words) {
                return said;
            }
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_watched_workspace_is_reloaded_on_save_and_a_bad_version_changes_nothing() {
    let place = Place::new();
    place.write("other.ew", "concept foreign {\n  a string\n}\n");
    place.run(&["apply", "other.ew", "--workspace", "theirs"]).ok();
    place.write("ws/health/concepts.ew", CONCEPT);
    let mut server = Watched::start(&place, "ws");
    server.said("1 added, 0 changed, 0 removed");
    server.ready();
    place.json(&["entity", "put", "system", "api", r#"{"status":"ok"}"#]);

    let query =
        "query system byStatus {\n  args { status string! }\n  filter payload.staus == args.status\n}\n";
    place.write("ws/health/queries.ew", query);
    let said = server.said("was not reloaded, the version before stays in force");
    assert!(said.contains("ws/health/queries.ew:3:10: error: "), "{said}");
    assert!(said.contains("did you mean \"status\"?"), "{said}");
    place.run(&["query", "byStatus", "status=ok"]).exits(3);
    assert_eq!(place.json(&["entity", "get", "system", "api"])["fields"]["status"], "ok");

    place.write("ws/health/queries.ew", &query.replace("staus", "status"));
    server.said("1 added, 0 changed, 0 removed");
    assert_eq!(place.json(&["query", "byStatus", "status=ok"])["rows"].as_array().unwrap().len(), 1);

    place.write("ws/health/concepts.ew", &CONCEPT.replace("string", "int"));
    let said = server.said("was not reloaded");
    assert!(said.contains("1 rows of \"v1:health:system\" do not fit"), "{said}");
    place.write("ws/health/concepts.ew", CONCEPT);
    server.said("0 added, 0 changed, 0 removed");

    std::fs::remove_file(place.path().join("ws/health/queries.ew")).unwrap();
    server.said("0 added, 0 changed, 1 removed");
    place.run(&["query", "byStatus", "status=ok"]).exits(3);
    place.json(&["entity", "put", "foreign", "f", r#"{"a":"x"}"#]);
}

#[test]
fn a_workspace_with_errors_is_not_served_and_its_findings_are_printed() {
    let place = Place::new();
    place.write("ws/health/concepts.ew", "concept system {\n  status strin\n}\n");
    let args = ["serve", "--listen", "127.0.0.1:0", "--no-auth", "ws"];
    let done = place.run(&args).exits(1);
    assert!(done.err.contains("ws/health/concepts.ew:2:10: error: "), "{done:?}");
    assert_eq!(done.out, "");
    let done = place.run(&[&args[..], &["--json"]].concat()).exits(1);
    let finding: serde_json::Value = serde_json::from_str(done.err.lines().next().unwrap()).unwrap();
    assert_eq!((&finding["line"], &finding["severity"]), (&2.into(), &"error".into()));
    place.run(&["serve", "--watch"]).exits(2);
    place.run(&["serve", "nowhere"]).exits(3);
    // Rows that do not fit stop it, too.
    place.write("ws/health/concepts.ew", CONCEPT);
    place.run(&["apply", "ws"]).ok();
    place.run(&["entity", "put", "system", "api", r#"{"status":"ok"}"#]).ok();
    place.write("ws/health/concepts.ew", &CONCEPT.replace("string", "int"));
    assert!(place.run(&args).exits(4).err.contains("1 rows"));
}

#[test]
fn the_example_workspace_is_served() {
    let place = Place::new();
    let mut server = Watched::start(&place, examples().join("cognition").to_str().unwrap());
    server.said(" added, 0 changed, 0 removed");
    server.ready();
    let made = place.json(&["mutate", "mutationEnsureDailySpace", "userId=ann", "date=2026-01-01"]);
    assert_eq!((&made["changed"], &made["fields"]["kind"]), (&true.into(), &"daily".into()), "{made}");
    let found = place.json(&["query", "queryDailySpace", "userId=ann", "date=2026-01-01"]);
    assert_eq!(found["rows"].as_array().unwrap().len(), 1, "{found}");
}
