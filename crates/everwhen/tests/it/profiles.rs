//! Servers by name, the settings in force, and the pages of the manual.

use serde_json::json;

use crate::support::Place;

/// A profile file of its own, whatever the tester keeps at home.
fn run(place: &Place, args: &[&str], input: &str) -> std::process::Output {
    let mut command = place.command(args);
    command.env("EVERWHEN_PROFILES", place.path().join("profiles.toml"));
    let file = place.write("input", input);
    command.stdin(std::fs::File::open(file).unwrap()).output().unwrap()
}

#[track_caller]
fn said(output: std::process::Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_profile_names_the_server_its_token_and_its_tenant() {
    let place = Place::new();
    let server = place.serve_asking(&["--data", "data"]);
    let owner = server.ready["owner_token"].as_str().unwrap().to_owned();
    said(run(&place, &["profiles", "set", "here", server.url(), "--tenant", "main"], &owner));
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(place.path().join("profiles.toml")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600, "it holds a token");
    said(run(&place, &["publish", "a.b", "{}", "--profile", "here"], ""));
    let listed = said(run(&place, &["events", "list", "--json", "--profile", "here"], ""));
    assert!(listed.contains("a.b"), "{listed}");

    let before = run(&place, &["events", "list", "--data", "other"], "");
    assert!(!before.status.success(), "without the profile it is another place");
    said(run(&place, &["profiles", "use", "here"], ""));
    assert!(said(run(&place, &["events", "list"], "")).contains("a.b"));
    let shown = said(run(&place, &["profiles", "list", "--json"], ""));
    let lines: Vec<serde_json::Value> =
        shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        json!(lines),
        json!([{"name": "here", "server": server.url(), "token": true, "in_use": true, "tenant": "main"}])
    );
    let elsewhere = run(&place, &["publish", "a.b", "{}", "--profile", "here", "--tenant", "acme"], "");
    assert_eq!(elsewhere.status.code(), Some(5), "the token is of another tenant: {elsewhere:?}");
    assert!(!shown.contains(&owner), "a token is never shown");
    let both = run(&place, &["events", "list", "--profile", "here", "--data", "other"], "");
    assert!(String::from_utf8_lossy(&both.stderr).contains("other"), "--data wins: {both:?}");
    let at = ["tokens", "list", "--profile", "here", "--server", server.url()];
    assert_eq!(run(&place, &at, "").status.code(), Some(5), "the token is not sent elsewhere");
    assert!(run(&place, &[&at[..], &["--token", &owner]].concat(), "").status.success());
    said(run(&place, &["profiles", "rm", "here"], ""));
    let gone = run(&place, &["events", "list", "--profile", "here"], "");
    assert!(String::from_utf8_lossy(&gone.stderr).contains("there is no profile"), "{gone:?}");
}

#[test]
fn a_token_that_nobody_can_have_been_given_is_not_kept() {
    let place = Place::new();
    let server = place.serve_asking(&["--data", "data"]);
    let owner = server.ready["owner_token"].as_str().unwrap().to_owned();
    let last = if owner.ends_with('x') { "y" } else { "x" };
    let mistyped = format!("{}{last}", &owner[..owner.len() - 1]);
    for (token, said) in [
        (mistyped.as_str(), "its checksum does not fit"),
        (&owner[..owner.len() - 3], "its checksum does not fit"),
        ("hunter2", "is no token"),
    ] {
        let refused = run(&place, &["profiles", "set", "here", server.url()], token);
        assert_eq!(refused.status.code(), Some(2), "{token}: {refused:?}");
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(told.contains(said) && told.contains("help: copy all of it"), "{told}");
        assert!(!told.contains(token), "a secret is not repeated: {told}");
    }
    assert!(!place.path().join("profiles.toml").exists(), "nothing is kept");
    for token in [&*owner, ""] {
        said(run(&place, &["profiles", "set", "here", server.url()], token));
    }
}

#[test]
fn a_token_is_kept_from_the_flag_else_from_stdin_else_from_the_variable() {
    let place = Place::new();
    let whole = |n: u8| format!("ew_local_{}", n.to_string().repeat(32));
    let cases = [
        (Some(1), "", None, Some(1)),
        (Some(1), "2", None, Some(1)),
        (Some(1), "2", Some(3), Some(1)),
        (None, "2", Some(3), Some(2)),
        (None, "", Some(3), Some(3)),
        (None, "", None, None),
    ];
    for (flag, stdin, variable, kept) in cases {
        let mut command = place.command(&["profiles", "set", "here", "http://127.0.0.1:1"]);
        command.env("EVERWHEN_PROFILES", place.path().join("profiles.toml"));
        flag.map(|n| command.args(["--token", &whole(n)]));
        variable.map(|n| command.env("EVERWHEN_TOKEN", whole(n)));
        let input = stdin.parse().map(whole).unwrap_or_default();
        let file = std::fs::File::open(place.write("input", &input)).unwrap();
        let told = said(command.stdin(file).output().unwrap());
        assert_eq!(told.contains("without a token"), kept.is_none(), "{told}");
        let text = std::fs::read_to_string(place.path().join("profiles.toml")).unwrap();
        let is = (1..=3).find(|n| text.contains(&whole(*n)));
        assert_eq!(is, kept, "{flag:?}, {stdin:?}, {variable:?}: {text}");
    }
    for slip in ["hunter2", "ew_owner_1", ""] {
        let set = ["profiles", "set", "here", "http://127.0.0.1:1", "--token", slip];
        assert_eq!(run(&place, &set, &whole(2)).status.code(), Some(2), "{slip:?}");
    }
}

#[test]
fn a_variable_wins_over_the_profile_in_use_and_loses_to_one_that_is_named() {
    let place = Place::new();
    let server = place.serve_asking(&["--data", "data"]);
    let owner = server.ready["owner_token"].as_str().unwrap().to_owned();
    said(run(&place, &["profiles", "set", "here", server.url()], &owner));
    said(run(&place, &["profiles", "use", "here"], ""));
    let listed = |more: &[&str]| {
        let mut command = place.command(&[&["tokens", "list"], more].concat());
        command.env("EVERWHEN_PROFILES", place.path().join("profiles.toml")).env("EVERWHEN_TOKEN", "bad");
        command.output().unwrap().status.code()
    };
    assert_eq!((listed(&[]), listed(&["--profile", "here"])), (Some(5), Some(0)));
}

#[test]
fn a_profile_file_that_cannot_be_read_is_named() {
    let place = Place::new();
    place.write("profiles.toml", "use = 7\n");
    let output = run(&place, &["profiles", "list"], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("profiles.toml"), "{output:?}");
}

#[test]
fn the_settings_in_force_are_shown_with_where_each_came_from() {
    let place = Place::new();
    place.write("everwhen.toml", "# mine\n[events]\nmax_depth = 64\n");
    let mut command = place.command(&["serve", "--print-config", "--listen", "127.0.0.1:0", "--json"]);
    let output = command.env("EVERWHEN_HISTORY_KEEP", "7d").output().unwrap();
    let shown: serde_json::Value = serde_json::from_str(&said(output)).unwrap();
    assert_eq!(shown["events.max_depth"], json!({"value": 64, "from": "everwhen.toml:3"}));
    assert_eq!(shown["history.keep"], json!({"value": "7d", "from": "EVERWHEN_HISTORY_KEEP"}));
    assert_eq!(shown["listen"], json!({"value": "127.0.0.1:0", "from": "--listen"}));
    assert_eq!(shown["retention.respect_groups"], json!({"value": true, "from": "default"}));
    assert_eq!(shown["tls.cert"], json!({"from": "default"}));
    let secure = ["serve", "--print-config", "--tls-cert", "c.pem", "--tls-key", "k.pem", "--json"];
    let shown: serde_json::Value =
        serde_json::from_str(&said(place.command(&secure).output().unwrap())).unwrap();
    assert_eq!(shown["tls.key"], json!({"value": "k.pem", "from": "--tls-key"}));
    assert!(!place.path().join(".everwhen").exists(), "nothing is served and nothing made");
    // What is printed for people is a file that says the same.
    let text = said(place.command(&["serve", "--print-config"]).output().unwrap());
    place.write("again.toml", &text);
    let again = said(place.command(&["serve", "--print-config", "--config", "again.toml"]).output().unwrap());
    let values = |text: &str| {
        text.lines().map(|line| line.split("  #").next().unwrap().trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(values(&again), values(&text));
}

#[test]
fn every_command_has_a_page_of_the_manual() {
    let place = Place::new();
    let page = place.run(&["man", "groups", "put"]).ok().out;
    assert!(page.contains(".TH") && page.contains("Examples"), "{page}");
    place.run(&["man", "--to", "pages"]).ok();
    for name in ["everwhen.1", "everwhen-publish.1", "everwhen-groups.1"] {
        assert!(place.path().join("pages").join(name).exists(), "{name}");
    }
    let pages = std::fs::read_dir(place.path().join("pages")).unwrap().count();
    assert!(pages < 80, "one for each command, not {pages}");
    let groups = std::fs::read_to_string(place.path().join("pages/everwhen-groups.1")).unwrap();
    assert!(groups.contains(".SH EVERWHEN GROUPS PUT") && groups.contains("Examples"), "{groups}");
    place.run(&["man", "nonsense"]).exits(2);
}
