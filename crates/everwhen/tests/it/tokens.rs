//! `everwhen tokens`, and a server that asks for them.

use crate::support::Place;

#[test]
fn the_first_start_makes_an_owner_who_gives_out_the_rest() {
    let place = Place::new();
    let server = place.serve_asking(&[]);
    let owner = server.ready["owner_token"].as_str().unwrap().to_owned();
    assert!(owner.starts_with("ew_owner_"), "{owner}");
    let far = |token: &str, args: &[&str]| {
        place.run(&[args, &["--server", server.url(), "--token", token, "--json"]].concat())
    };
    let made =
        far(&owner, &["tokens", "create", "--role", "publisher", "--name", "sensors"]).ok().lines().remove(0);
    let publisher = made["token"].as_str().unwrap().to_owned();
    far(&publisher, &["publish", "a.b", "{}"]).ok();
    assert_eq!(
        far(&publisher, &["groups", "put", "g", "--pattern", "#"]).exits(5).error()["code"],
        "auth.denied"
    );
    assert_eq!(far("ew_x", &["tokens", "list"]).exits(5).error()["code"], "auth.required");
    let listed = far(&owner, &["tokens", "list"]).ok().lines();
    assert_eq!((listed.len(), &listed[1]["name"]), (2, &"sensors".into()));
    far(&owner, &["tokens", "revoke", made["id"].as_str().unwrap()]).ok();
    far(&publisher, &["publish", "a.b", "{}"]).exits(5);
    // Who can read the directory needs no token.
    place.run(&["publish", "a.c", "{}"]).ok();
    drop(server);
    let again = place.serve_asking(&[]);
    assert!(again.ready.get("owner_token").is_none(), "only once");
    place.run(&["tokens", "list", "--server", again.url(), "--token", &owner]).ok();
}
