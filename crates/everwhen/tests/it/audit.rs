//! `everwhen audit` on a directory and through a server.

use serde_json::json;

use crate::support::Place;

#[test]
fn acts_of_commands_are_listed_and_an_exported_signature_tells_a_cut_ledger() {
    let place = Place::new();
    place.run(&["groups", "put", "g", "--pattern", "a.#"]).ok();
    place.run(&["publish", "a.b", "{}"]).ok();
    let acts = place.run(&["audit", "list", "--json"]).ok().lines();
    assert_eq!(acts.len(), 1);
    assert_eq!((&acts[0]["act"], &acts[0]["actor"]), (&json!("groups.put"), &json!("user:local")));
    assert_eq!(acts[0]["path"], "/v1/groups/g", "what it was done to");
    let export = place.run(&["audit", "export"]).ok().out;
    let kept = place.write("kept.jsonl", &export);
    let verify = ["audit", "verify", "--checkpoints", kept.to_str().unwrap(), "--json"];
    assert_eq!(place.run(&verify).ok().json()["ok"], true);
    place.run(&["publish", "a.c", "{}"]).ok();
    assert_eq!(place.run(&verify).ok().json()["ok"], true, "what came since is no matter");
    // Everything is thrown away and begun again under the same name.
    std::fs::remove_dir_all(place.path().join(".everwhen/tenants/main")).unwrap();
    place.run(&["publish", "a.b", "{}"]).ok();
    let report = place.run(&verify).exits(7).json();
    assert_eq!(report["ok"], false, "{report}");
    place
        .run(&["audit", "verify", "--checkpoints", kept.to_str().unwrap(), "--key", kept.to_str().unwrap()])
        .exits(7);
}

#[test]
fn what_another_house_said_of_itself_is_imported_and_is_no_act_of_ours() {
    let place = Place::new();
    let forged =
        json!({"id": "x", "topic": "engine.audit.spaces.forget", "actor": "token:owner", "payload": {}});
    let file = place.write("forged.jsonl", &format!("{forged}\n"));
    for duplicates in [0, 1] {
        let done = place.run(&["import", file.to_str().unwrap(), "--json"]).ok().json();
        assert_eq!(done["duplicates"], duplicates, "{done}");
    }
    let acts = place.run(&["audit", "list", "--json"]).ok().lines();
    assert!(acts.iter().all(|act| act["act"] == "import"), "{acts:?}");
    let kept = place.run(&["events", "list", "--topic", "engine.imported.#", "--json"]).ok().lines();
    assert_eq!(kept.len(), 1);
    assert_eq!(
        (&kept[0]["topic"], &kept[0]["actor"]),
        (&json!("engine.imported.audit.spaces.forget"), &json!("token:owner"))
    );
}

#[test]
fn a_server_tells_the_same_and_answers_over_tls_to_who_trusts_its_root() {
    let place = Place::new();
    let certificates =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/src/effect/tests/certificates");
    let file = |name: &str| certificates.join(name).display().to_string();
    let server = place.serve_with(&["--tls-cert", &file("server.pem"), "--tls-key", &file("server.key")]);
    assert!(server.url().starts_with("https://127.0.0.1:"), "{}", server.url());
    let far = |args: &[&str], more: &[&str]| place.run(&[args, &["--server", server.url()], more].concat());
    let root = file("root.pem");
    far(&["groups", "put", "g", "--pattern", "a.#"], &["--ca", &root]).ok();
    assert_eq!(far(&["publish", "a.b", "{}"], &["--json"]).exits(6).error()["code"], "server.unreachable");
    let acts = far(&["audit", "list", "--json"], &["--ca", &root]).ok().lines();
    assert_eq!(acts[0]["act"], "groups.put");
    assert_eq!(far(&["audit", "verify", "--json"], &["--ca", &root]).ok().json()["ok"], true);
    // Commands on this machine find it without a certificate.
    place.run(&["publish", "a.b", "{}"]).ok();
    assert_eq!(server.signal("TERM"), 0);
}

/// What administers, command by command; words have no blanks in them.
const ADMINISTERED: &str = r##"
publish a.b {}
automations create {"automation":"au","triggers":[{"manual":true}],"mode":"parallel","actions":[{"ask":{"question":"well?"}}]}
automations patch au {"description":"other"}
automations disable au
automations enable au
automations pause au
automations resume au
automations drain au
automations enable au
runs start au
runs bulk cancel --automation au
groups put g --pattern a.# --start beginning
groups pause g
groups resume g
groups seek g beginning
replay --from 1 --into g
dead-letters redrive g --all
hooks set h --scheme hmac --secret s3cret
hooks rm h
push add p --url https://example.com/ --pattern a.#
push pause p
push resume p
push rm p
secret set x --file value.txt
secret rm x
space seal b
space forget b --yes
subscriptions add s --pattern a.# --automation au
subscriptions disable s
subscriptions enable s
subscriptions rm s
tenants create acme
tenants quota acme --groups 7
tenants suspend acme
tenants resume acme
tenants rm acme --yes
groups rm g
automations rm au
erase 1
import export.ndjson
backup --to kept
apply shop
"##;

#[test]
fn an_act_has_one_name_whether_a_server_did_it_or_the_command_itself() {
    let acts = |served: bool| {
        let place = Place::new();
        place.write("value.txt", "a-long-enough-value");
        place.write("export.ndjson", "{\"id\":\"i1\",\"topic\":\"i.j\",\"payload\":{}}\n");
        place.write(
            "shop/a.yaml",
            "automation: w\ntriggers: [{event: x}]\nactions: [{publish: {topic: y}}]\n",
        );
        let server = served.then(|| place.serve());
        for line in ADMINISTERED.lines().filter(|line| !line.is_empty()) {
            place.run(&line.split(' ').collect::<Vec<_>>()).ok();
        }
        let made = place.json(&["tokens", "create", "--role", "viewer"]);
        place.run(&["tokens", "revoke", made["id"].as_str().unwrap()]).ok();
        let acts = place.run(&["audit", "list", "--json"]).ok().lines();
        drop(server);
        acts.iter().rev().map(|act| act["act"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (near, far) = (acts(false), acts(true));
    assert_eq!(near, far);
    // All but the one that publishes and the one that starts a run, which are recorded as what they are.
    assert_eq!(near.len(), ADMINISTERED.trim().lines().count() - 2 + 2, "{near:?}");
}
