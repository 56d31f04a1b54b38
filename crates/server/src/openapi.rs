//! `GET /openapi.json`: what every route takes and answers, in OpenAPI 3.1, written from the list that the router is built
//! from and the two tables beside it.
//!
//! ```text
//!   ROUTES                what there is, what a token needs, what it does
//!   openapi/operations    its name, parameters, body and answers      a line each
//!   openapi/schemas       the shapes that these name                  a line each
//! ```
//! `docs/openapi.json` is a copy that a test holds equal.

mod operations;
mod schemas;

use std::collections::HashSet;
use std::sync::LazyLock;

use axum::response::Response;
use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::publish::json as json_answer;
use crate::{ROUTES, Route};
use operations::Operation;

/// `GET /openapi.json`
pub async fn page() -> Response {
    json_answer(StatusCode::OK, document().to_string())
}

/// The whole document.
pub fn document() -> Value {
    let mut paths = Map::new();
    for route in doors() {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Everwhen",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "A durable event ledger that acts",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "tags": tags(),
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "headers": {"Everwhen-Position": {
                "description": "How far the ledger is: what a read elsewhere gives as `min_position`",
                "schema": {"type": "integer", "minimum": 1},
            }},
            "responses": {"Problem": {
                "description": "Why not: `code` has a page at `/errors/{code}`",
                "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
            }},
            "securitySchemes": {"bearer": {
                "type": "http", "scheme": "bearer", "bearerFormat": "ew_<kind>_<base62>_<crc>",
                "description": "Given out by `POST /v1/tokens` or `everwhen tokens create`",
            }},
        },
    })
}

/// Those for programs; pages are for people.
fn doors() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().filter(|route| route.path != "/" && !route.path.starts_with("/ui/"))
}

fn tags() -> Vec<Value> {
    let mut names: Vec<&str> = doors().map(|route| route.part).collect();
    names.dedup();
    names.iter().map(|name| json!({ "name": name })).collect()
}

/// Whether a route looks at this header itself.
pub fn takes_header(method: &str, path: &str, name: &str) -> bool {
    let line = operations::of(method, path);
    line.parameters.iter().any(|parameter| parameter.strip_prefix('^') == Some(name))
}

/// What is sent nothing: requests that do something and whose line has no body.
static BARE: LazyLock<HashSet<(&'static str, &'static str)>> = LazyLock::new(|| {
    let bare = operations::lines().filter(|line| line.body.is_empty() && DOING.contains(&line.method));
    bare.map(|line| (line.method, line.path)).collect()
});
const DOING: [&str; 4] = ["post", "put", "patch", "delete"];

/// Whether a route does what its path says, and takes no field.
pub fn takes_nothing(method: &Method, path: &str) -> bool {
    let of = DOING.iter().find(|word| method.as_str().eq_ignore_ascii_case(word));
    of.is_some_and(|method| BARE.contains(&(*method, path)))
}

fn operation(route: &Route) -> Value {
    let line = operations::of(route.method, route.path);
    let mut operation = json!({
        "operationId": line.id, "tags": [route.part], "summary": route.what.replace('`', ""),
        "description": described(route), "responses": answers(&line),
    });
    let parameters = parameters(route, &line);
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if !line.body.is_empty() {
        operation["requestBody"] = body(line.body);
    }
    if matches!(route.needs, "open" | "metrics") {
        operation["security"] = json!([]);
    }
    operation
}

fn described(route: &Route) -> String {
    match route.needs {
        "open" => "Open: no token is asked for.".to_owned(),
        "token" => "Needs a token; what is said then needs its own permission.".to_owned(),
        "metrics" => "Needs a token that may read, except on loopback.".to_owned(),
        needs => format!("Needs `{needs}`."),
    }
}

/// Those of the path, of the query and of the headers.
fn parameters(route: &Route, line: &Operation<'_>) -> Vec<Value> {
    let in_path = route.path.split('/').filter_map(|word| word.strip_prefix('{')?.strip_suffix('}'));
    let mut all: Vec<Value> = in_path.map(|name| parameter("path", line.chosen(name))).collect();
    let in_query =
        line.parameters.iter().filter(|name| !route.path.contains(&format!("{{{}}}", first(name))));
    all.extend(in_query.map(|name| match name.strip_prefix('^') {
        Some(header) => parameter("header", header),
        None => parameter("query", name),
    }));
    if route.method == "get" && route.path.starts_with("/v1/") && line.parameters.first() != Some(&"-") {
        all.push(parameter("query", "min_position"));
    }
    // A delivery has its sender's id; one that only signs its body may say it here.
    if route.method == "post" && (route.needs != "open" || route.path.starts_with("/hooks/")) {
        let mut key = parameter("header", "Idempotency-Key");
        if route.path == "/v1/events" {
            // Here it is the event's own key.
            key["schema"]["maxLength"] = 1024.into();
        }
        all.push(key);
    }
    all.retain(|parameter| parameter["name"] != "-");
    all
}

/// A name may say which words it takes: `order=asc|desc`.
fn first(name: &str) -> &str {
    name.split_once('=').map_or(name, |(name, _)| name)
}

fn parameter(place: &str, name: &str) -> Value {
    let (name, schema) = match name.split_once('=') {
        Some((name, words)) => (name, schemas::one_of(words)),
        None => (name, schemas::parameter(name)),
    };
    // An empty one counts as absent.
    let narrow =
        ["enum", "format"].iter().any(|rule| schema.get(rule).is_some()) || schema["type"] != "string";
    let schema = if place == "query" && narrow { json!({"anyOf": [schema, {"const": ""}]}) } else { schema };
    let mut parameter = json!({"name": name, "in": place, "schema": schema});
    if place == "path" {
        parameter["required"] = true.into();
    }
    parameter
}

/// `Name`, `Name?` when it may be left out, or several of `type:Name`.
fn body(text: &str) -> Value {
    let mut content = Map::new();
    for part in text.trim_end_matches('?').split(' ') {
        let (media, name) = part.split_once(':').unwrap_or(("json", part));
        content.insert(media_type(media).to_owned(), json!({ "schema": schemas::named(name) }));
    }
    json!({"required": !text.ends_with('?'), "content": content})
}

fn media_type(short: &str) -> &'static str {
    match short {
        "ndjson" => "application/x-ndjson",
        "cloudevent" => "application/cloudevents+json",
        "cloudevents" => "application/cloudevents-batch+json",
        "patch" => "application/merge-patch+json",
        "sse" => "text/event-stream",
        "text" => "text/plain",
        "markdown" => "text/markdown",
        "html" => "text/html",
        "problem" => "application/problem+json",
        _ => "application/json",
    }
}

fn answers(line: &Operation<'_>) -> Value {
    let mut all = Map::new();
    for (status, what) in &line.answers {
        let described = json!({ "description": meaning(status) });
        let answer = all.entry(*status).or_insert(described);
        if *what == "-" {
            continue;
        }
        let (media, name) = what.split_once(':').unwrap_or(("json", what));
        answer["content"][media_type(media)] = json!({ "schema": schemas::named(name) });
    }
    // An answer line by line says it in its lines.
    for (_, answer) in all.iter_mut().filter(|(status, _)| line.method != "get" && status.starts_with('2')) {
        answer["headers"]["Everwhen-Position"] = json!({"$ref": "#/components/headers/Everwhen-Position"});
    }
    for status in ["4XX", "5XX"] {
        all.insert(status.to_owned(), json!({"$ref": "#/components/responses/Problem"}));
    }
    Value::Object(all)
}

fn meaning(status: &str) -> &'static str {
    match status {
        "101" => "From here on it is a WebSocket",
        "200" => "Done",
        "201" => "Made and synced to disk",
        "202" => "Taken",
        "204" => "Done; there is nothing to say",
        "304" => "It is as `If-None-Match` says",
        "503" => "Not ready",
        _ => "Answered",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_has_its_line_and_every_line_its_route() {
        let routes: BTreeSet<(&str, &str)> = doors().map(|route| (route.method, route.path)).collect();
        let lines: BTreeSet<(&str, &str)> =
            operations::lines().map(|line| (line.method, line.path)).collect();
        assert_eq!(
            routes.difference(&lines).collect::<Vec<_>>(),
            Vec::<&(&str, &str)>::new(),
            "routes without a line"
        );
        assert_eq!(
            lines.difference(&routes).collect::<Vec<_>>(),
            Vec::<&(&str, &str)>::new(),
            "lines without a route"
        );
    }

    #[test]
    fn every_operation_has_a_name_of_its_own() {
        let mut seen = BTreeSet::new();
        for line in operations::lines() {
            assert!(seen.insert(line.id), "{} twice", line.id);
        }
    }

    #[test]
    fn every_shape_that_is_named_is_there() {
        let document = document();
        let known = document["components"]["schemas"].as_object().unwrap().clone();
        let mut named = BTreeSet::new();
        collect(&document, &mut named);
        for name in &named {
            let shape = name.strip_prefix("#/components/schemas/");
            assert!(shape.is_none_or(|shape| known.contains_key(shape)), "{name}");
        }
        for name in known.keys() {
            assert!(named.contains(&format!("#/components/schemas/{name}")), "nothing names {name}");
        }
    }

    fn collect(value: &Value, named: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| match value {
                Value::String(text) if key == "$ref" => drop(named.insert(text.clone())),
                value => collect(value, named),
            }),
            Value::Array(list) => list.iter().for_each(|value| collect(value, named)),
            _ => {}
        }
    }
}
