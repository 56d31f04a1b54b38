//! Every door as data: the router is built from this list, `docs/http.md` shows it, and whoever asks for a path that is not
//! there is told what is.

use std::sync::Arc;

use axum::Router;
use axum::routing::{MethodRouter, delete, get, options, patch, post, put};

use crate::{
    Doors, audit, automations, clock, declared, entities, events, groups, health, hooks, maintain, mcp,
    metrics, openapi, page, problem, publish, pushes, runs, secrets, seed003, spaces, stream, subscriptions,
    tasks, tenants, tokens, ws,
};

/// One method of one path.
pub struct Route {
    /// The chapter of the page.
    pub part: &'static str,
    /// In lower case.
    pub method: &'static str,
    /// With its variables in braces.
    pub path: &'static str,
    /// What a token must allow.
    pub needs: &'static str,
    pub what: &'static str,
    door: fn() -> MethodRouter<Arc<Doors>>,
}

macro_rules! routes {
    ($($part:literal { $($method:ident $path:literal $door:path, $needs:literal, $what:literal;)* })*) => {
        /// In the order of the page.
        pub const ROUTES: &[Route] = &[$($(Route {
            part: $part,
            method: stringify!($method),
            path: $path,
            needs: $needs,
            what: $what,
            door: || $method($door),
        }),*),*];
    };
}

routes! {
    "Events" {
        get "/v1/events" events::find, "event:read",
            "Events, by `topic space subject after before since until filter order limit cursor`";
        post "/v1/events" publish::publish, "event:write",
            "Publish: one event, an array as one commit, NDJSON line by line, or CloudEvents";
        get "/v1/events/stream" stream::stream, "event:read",
            "Follow as server-sent events, by `topic space filter after`; `Last-Event-ID` goes on";
        get "/v1/events/deferred" events::deferred, "event:read",
            "Publishes that an attention rule holds back";
        get "/v1/events/{id}" events::get, "event:read",
            "One event, by position or id";
        get "/v1/events/{id}/lineage" events::lineage, "event:read",
            "What caused it and what it led to, events and runs";
    }
    "Groups" {
        get "/v1/groups" groups::list, "group:read",
            "Every group with its lag";
        put "/v1/groups/{name}" groups::put, "group:write",
            "Make or change a group: `pattern`, and optionally `filter space start ack_deadline …`";
        get "/v1/groups/{name}" groups::get, "group:read",
            "One group, its floor, lag and dead letters counted";
        delete "/v1/groups/{name}" groups::delete, "group:write",
            "Forget a group and its cursor";
        post "/v1/groups/{name}/pull" groups::deliver::pull, "group:consume",
            "Up to `max` deliveries, waiting up to `wait`";
        post "/v1/groups/{name}/ack" groups::deliver::ack, "group:consume",
            "Deliveries are done: `tokens`, `sync`";
        post "/v1/groups/{name}/nack" groups::deliver::nack, "group:consume",
            "Deliveries failed and come again: `tokens`, `delay`, `error`";
        post "/v1/groups/{name}/extend" groups::deliver::extend, "group:consume",
            "More time: `tokens`, `by`";
        post "/v1/groups/{name}/reject" groups::deliver::reject, "group:consume",
            "Dead letters at once: `tokens`, `error`";
        post "/v1/groups/{name}/seek" groups::seek, "group:write",
            "Move the cursor `to` `\"beginning\"`, `\"end\"`, a position or a time";
        post "/v1/groups/{name}/pause" groups::pause, "group:write",
            "Give out nothing";
        post "/v1/groups/{name}/resume" groups::resume, "group:write",
            "Give out again";
        get "/v1/groups/{name}/dead-letters" groups::dead_letters, "group:read",
            "What it gave up on, `limit cursor`";
        post "/v1/groups/{name}/dead-letters/redrive" groups::redrive, "group:write",
            "Try dead letters again: `positions`, `filter` or `all`";
        post "/v1/groups/{name}/dispatch" subscriptions::dispatch, "admin",
            "One pass of the subscriptions of a group, up to `limit` events";
    }
    "Entities" {
        get "/v1/entities/{concept}" entities::list, "entity:read",
            "Rows, by `filter space limit cursor`";
        post "/v1/entities/{concept}" entities::insert, "entity:write",
            "A new row; without an id, under the hash of what it says";
        post "/v1/entities/{concept}/import" entities::import::import, "entity:write",
            "Rows as NDJSON, line by line";
        get "/v1/entities/{concept}/{id}" entities::get, "entity:read",
            "One row, now or `as_of` a position or instant";
        put "/v1/entities/{concept}/{id}" entities::put, "entity:write",
            "The whole row; `If-Match`, `If-None-Match: *`";
        patch "/v1/entities/{concept}/{id}" entities::patch, "entity:write",
            "A merge patch (RFC 7396)";
        delete "/v1/entities/{concept}/{id}" entities::delete, "entity:write",
            "Remove a row";
        get "/v1/entities/{concept}/{id}/history" entities::history, "entity:read",
            "Its changes, `limit cursor`";
        get "/v1/concepts" declared::concepts, "read",
            "Every concept";
        get "/v1/concepts/{id}" declared::concept, "read",
            "One concept, by id or unique name";
        post "/v1/queries/{name}" declared::query, "entity:read",
            "Run a query with `args`; `explain space limit cursor as_of`";
        post "/v1/mutations/{name}" declared::mutate, "entity:write",
            "Run a mutation with `args`";
        post "/v1/logic/{name}" automations::logic, "automation:write",
            "Call logic with `args`; what it writes is one commit";
        post "/v1/plan" declared::plan, "automation:write",
            "What applying `files` would change";
        post "/v1/apply" declared::apply, "automation:admin",
            "Put `files` of a `workspace` into force, in one commit";
    }
    "Automations" {
        get "/v1/automations" runs::automations, "read",
            "Every automation: on or off, runs, next instant";
        post "/v1/automations" automations::create, "automation:write",
            "Declare one that no workspace manages; one that names a `secret` needs `automation:admin`";
        get "/v1/automations/{name}" runs::automation, "read",
            "One automation with its definition";
        patch "/v1/automations/{name}" automations::patch, "automation:write",
            "Change keys of one; `null` takes a key away";
        delete "/v1/automations/{name}" automations::delete, "automation:write",
            "Delete one; `runs=cancel` or `finish`";
        post "/v1/automations/{name}/run" runs::operate::run, "automation:write",
            "Start it by hand, with `input event dry_run`; `Prefer: wait=10` waits for the end";
        get "/v1/automations/{name}/next" runs::next, "read",
            "The next instants at which time starts it, `count`";
        post "/v1/automations/{name}/{what}" runs::toggle, "automation:write",
            "`enable`, `disable`, `pause`, `resume` or `drain`";
        get "/v1/runs" runs::list, "read",
            "Runs, newest first, by `automation status since limit cursor`";
        get "/v1/runs/stream" stream::changes::runs, "read",
            "Follow runs as they change, as server-sent events, by `automation status after`; `Last-Event-ID` goes on";
        post "/v1/runs" runs::operate::start, "automation:write",
            "Start `automation` by hand, with `input event dry_run`; `Prefer: wait=10`";
        post "/v1/runs/bulk" runs::operate::bulk, "automation:write",
            "`do` cancel, retry or resume to all runs `where`, or run to all that was refused; `dry_run`";
        get "/v1/runs/{id}" runs::get, "read",
            "One run with its steps and waits";
        post "/v1/runs/{id}/{what}" runs::operate::again, "automation:write",
            "`cancel`, `retry`, `resume` or `rerun` (with `from_step allow_side_effects`)";
        get "/v1/waits" runs::waits, "read",
            "What runs wait for";
        post "/v1/waits/{id}/answer" runs::answer, "automation:write",
            "Answer a question with `value`; the first answer counts";
        post "/v1/waits/{id}/redrive" runs::redrive, "automation:write",
            "Try a request again that was out at ten crashes";
        get "/v1/tasks" tasks::list, "read",
            "Tasks that runs wait for, and whether a worker has them";
        post "/v1/tasks/poll" tasks::poll, "task:work",
            "Up to `max` tasks of `kinds` for this worker, waiting up to `wait`";
        post "/v1/tasks/heartbeat" tasks::heartbeat, "task:work",
            "The worker is still at it: `token`";
        post "/v1/tasks/complete" tasks::complete, "task:work",
            "The task is done: `token`, `output`";
        post "/v1/tasks/fail" tasks::fail, "task:work",
            "The task is not done: `token`, `error`, `retryable`";
        get "/v1/decisions" runs::decisions, "read",
            "What became of occurrences, by `automation outcome since limit cursor`";
        get "/v1/decisions/stream" stream::changes::decisions, "read",
            "Follow decisions as they fall, as server-sent events, by `automation outcome after`; `Last-Event-ID` goes on";
        get "/v1/explain/{what}/{id}" runs::explain, "read",
            "Why an `event`, an `automation` (`since`) or a `run` did what it did";
        post "/v1/simulate" runs::operate::simulate, "automation:write",
            "What `event` would start, and what `advance` would bring; nothing is written";
        post "/v1/backtest" declared::backtest, "automation:write",
            "What `files` would have done from `from` to `to`: positions, instants, or how long ago";
        get "/v1/subscriptions" subscriptions::list, "read",
            "Every subscription";
        post "/v1/subscriptions" subscriptions::add, "automation:write",
            "Add one, its `id` in the body";
        get "/v1/subscriptions/{id}" subscriptions::get, "read",
            "One subscription and its last run";
        put "/v1/subscriptions/{id}" subscriptions::put, "automation:write",
            "`pattern automation`, optionally `filter input_mapper enabled group`";
        patch "/v1/subscriptions/{id}" subscriptions::patch, "automation:write",
            "Change keys; `null` takes a key away";
        delete "/v1/subscriptions/{id}" subscriptions::delete, "automation:write",
            "Remove one";
        post "/v1/subscriptions/{id}/{what}" subscriptions::switch, "automation:write",
            "`enable` or `disable`";
        post "/v1/clock" clock::advance, "node",
            "Move the clock of a `serve --clock`: `advance` or `to`";
    }
    "Streams" {
        get "/v1/ws" ws::open, "token",
            "WebSocket: subscribe, consume from groups, watch automations; each message needs what its route would";
    }
    "Tokens" {
        get "/v1/tokens" tokens::list, "admin",
            "Every token, revoked ones too, without its text";
        post "/v1/tokens" tokens::create, "admin",
            "Give one out: `role`, optionally `name scopes spaces max_band expires_in`; its text is in this answer and nowhere else";
        get "/v1/tokens/{id}" tokens::get, "admin",
            "One token, without its text";
        delete "/v1/tokens/{id}" tokens::revoke, "admin",
            "Revoke one, from the next request on";
    }
    "Tenants" {
        get "/v1/tenants" tenants::list, "admin",
            "Every tenant, for who owns the house; for others their own";
        post "/v1/tenants" tenants::create, "node",
            "Make one: `name`; its owner's token is in this answer and nowhere else";
        get "/v1/tenants/{name}" tenants::get, "admin",
            "One tenant and what it takes up";
        delete "/v1/tenants/{name}" tenants::delete, "node",
            "Remove one for ever, with everything in it";
        put "/v1/tenants/{name}/quota" tenants::quota, "node",
            "What it may use: `bytes events_per_s groups automations runs_per_day`, each a number or nothing";
        post "/v1/tenants/{name}/tokens" tenants::create_token, "node",
            "A token of that tenant, as `POST /v1/tokens` gives one out";
        post "/v1/tenants/{name}/{what}" tenants::toggle, "node",
            "`suspend`: nobody reaches it and nothing of it runs; `resume`: it goes on where it stood";
    }
    "Secrets" {
        get "/v1/secrets" secrets::list, "admin",
            "Names and times of secrets, never their values";
        put "/v1/secrets/{name}" secrets::put, "admin",
            "Set or replace one: `value`";
        delete "/v1/secrets/{name}" secrets::delete, "admin",
            "Remove one";
    }
    "Spaces" {
        get "/v1/spaces" spaces::list, "admin",
            "Every space that is sealed or was forgotten, `limit cursor`";
        post "/v1/spaces/{name}/{what}" spaces::act, "admin",
            "`seal`: what is written there from now on is encrypted in the ledger (`*`: wherever no other key is); `forget`: its key is destroyed, and what its events left is wiped, for ever";
    }
    "Audit" {
        get "/v1/audit" audit::list, "admin",
            "What was administered and by whom, newest first, by `since limit cursor`";
        get "/v1/audit/checkpoints" audit::checkpoints, "admin",
            "Signed statements of where the ledger stood, the newest made now, and the `key` that checks them";
        post "/v1/audit/verify" audit::verify, "admin",
            "Whether the ledger is the one that `checkpoints` signed for `key` speak of; without them, its own";
    }
    "The house" {
        post "/v1/erase" maintain::erase, "admin",
            "Remove the bodies of events at `positions` for ever";
        post "/v1/backup" maintain::backup, "node",
            "Copy the whole data directory `to` a new one among the backups of this machine";
        get "/v1/verify" maintain::verify, "node",
            "Whether files, chain and state agree; `quick`";
        post "/v1/import" maintain::import, "admin",
            "The lines of an export as NDJSON; `again`";
        get "/v1/records" maintain::records, "admin",
            "Every record as NDJSON, `from` a position";
        get "/v1/hooks" hooks::list, "admin",
            "Every inbound webhook, without its secret";
        get "/v1/hooks/{name}" hooks::get, "admin",
            "One inbound webhook, without its secret";
        put "/v1/hooks/{name}" hooks::put, "admin",
            "Make or change one: `scheme`, `secret`, `topic`";
        delete "/v1/hooks/{name}" hooks::delete, "admin",
            "Remove one";
        get "/v1/push" pushes::list, "admin",
            "Every push, without its secret";
        get "/v1/push/{name}" pushes::get, "admin",
            "One push: where to, whether it is active, how far its group has come";
        put "/v1/push/{name}" pushes::put, "admin",
            "Post events to `url`, signed: `pattern`, optionally `filter space start ordered format secret timeout backoff …`";
        delete "/v1/push/{name}" pushes::delete, "admin",
            "Remove one and its group";
        post "/v1/push/{name}/{what}" pushes::act, "admin",
            "`pause`, `resume` or `test` (sends an event that nobody published)";
        options "/hooks/{tenant}/{name}" hooks::handshake, "open",
            "What a sender of CloudEvents asks before it delivers: `WebHook-Request-Origin` is allowed";
        post "/hooks/{tenant}/{name}" hooks::deliver, "open",
            "What a sender delivers: its signature is its token; a repetition is told from a first";
        post "/mcp" mcp::post, "token",
            "The Model Context Protocol: tools for agents, each with the rights of the token";
        get "/livez" health::live, "open",
            "The process answers";
        get "/readyz" health::ready, "open",
            "It can take events; if not, what is failing";
        get "/metrics" metrics::metrics, "metrics",
            "For Prometheus";
        get "/openapi.json" openapi::page, "open",
            "All of this for programs, in OpenAPI 3.1";
        get "/errors/{code}" problem::page, "open",
            "What an error code means";
    }
    "The first page" {
        get "/" page::timeline, "event:read",
            "What was recorded, newest first, for people; `topic space subject filter since until cursor`";
        get "/ui/events/{id}" page::event, "event:read",
            "One event with its causes, its effects, and what automations and groups made of it";
        get "/ui/runs" page::runs, "read",
            "Runs, by `automation status cursor`";
        get "/ui/runs/{id}" page::run, "read",
            "One run with its steps and waits, and why it ran";
        get "/ui/waits" page::waits, "read",
            "What runs wait for";
        get "/ui/automations" page::automations, "read",
            "Every automation";
        get "/ui/automations/{name}" page::automation, "read",
            "Why one ran, and why it did not";
        get "/ui/groups" page::groups, "group:read",
            "Every group with its lag";
        get "/ui/groups/{name}" page::group, "group:read",
            "One group with its dead letters, `cursor`";
        get "/ui/health" page::health, "read",
            "Whether it can take events";
        get "/ui/stream" page::stream, "event:read",
            "The stream that keeps the first page live";
        get "/ui/{file}" page::file, "open",
            "`style.css` and `live.js`";
        get "/ui/sign-in" page::sign_in_page, "open",
            "Where a browser gives its token";
        post "/ui/sign-in" page::sign_in, "open",
            "A form with `token`, which the browser then keeps in a cookie";
        post "/ui/sign-out" page::sign_out, "open",
            "Forgets it";
    }
    "Doors of seed 003" {
        post "/api/events/record" seed003::record, "admin",
            "Record an event in the seed's words";
        get "/api/events/recent" seed003::recent, "event:read",
            "The newest events as the seed's rows";
        post "/api/events/drain" seed003::drain, "admin",
            "One pass of a drainer";
    }
}

/// Every route under its path.
pub(crate) fn router() -> Router<Arc<Doors>> {
    ROUTES.iter().fold(Router::new(), |router, route| router.route(route.path, (route.door)()))
}

/// The beginnings of all paths, for somebody who is lost: `/v1/events`, `/livez`.
pub(crate) fn beginnings() -> String {
    let mut names: Vec<String> = Vec::new();
    for route in ROUTES {
        let many = if route.path.starts_with("/v1/") || route.path.starts_with("/api/") { 2 } else { 1 };
        let name: String = route.path.split('/').skip(1).take(many).map(|word| format!("/{word}")).collect();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}
