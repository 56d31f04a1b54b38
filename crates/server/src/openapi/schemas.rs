//! The shapes that requests and answers have, a line each.
//!
//! ```text
//!   Name: field type; field! type        `!`: always there
//!   +Name: …                             nothing else may be there; what clients send is read so
//!   field type?                          null is as good as left out
//!   string boolean integer count position number any object instant duration   [type]  {type}  =word|word  Name
//! ```

use serde_json::{Map, Value, json};

const LINES: &str = "
Problem: type! string; title! string; status! integer; code! string; detail! string; hint string; pointer string; request_id string
Event: id! string; position position; topic! string; space! string; time! instant; recorded_at! instant; actor! string; source string; subject Subject; cause position; depth integer; trace string; key string; ttl number; priority integer; band =green|amber|red|black; schema string; type string; caused_by string; run string; sequence integer; content_type string; ext object; payload any
+Subject: kind! string; id! string
+Draft: topic! string; payload any; id string; space string; time instant; source string; subject Subject; cause position; trace string; key string; ttl duration; priority integer; band =green|amber|red|black; schema string; type string; caused_by string; sequence integer; content_type string; ext object
EventPage: events! [Event]; next string
Receipt: id string; position position; recorded_at instant; duplicate boolean; verdict string; until instant; rule string
Published: id string; position position; recorded_at instant; duplicate boolean; events [Receipt]
Verdict: verdict! =defer|drop; until instant; rule string
DeferredPage: deferred! [any]; next string
Lineage: event! Event; causes! [Event]; effects! [any]
CloudEvent: specversion! string; type! string; source! string; id! string; subject string; time instant; datacontenttype string; dataschema string; data any; data_base64 string
+GroupDefinition: pattern! any; filter any; space string; start any; ack_deadline duration; max_inflight integer; max_retries integer; backoff object; ordering =none|key|strict; key string; on_exhausted string; on_expired string; max_band =green|amber|red|black; on_lag object
Group: name! string; pattern! any; floor! count; lag! count; lag_exact boolean; inflight! count; oldest_unacked_s! number; dead_letters! count; paused! boolean; halted_on position; last_drained_at instant; events_processed_total! count
GroupPage: groups! [Group]; next string
+Pull: max integer; wait duration; min_position count
Delivery: token! string; attempt! integer; deadline! instant; event! Event
Deliveries: deliveries! [Delivery]
+Ack: tokens! [string]; sync boolean
+Nack: tokens! [string]; delay duration; error string; halt boolean
+Extend: tokens! [string]; by! duration
+Reject: tokens! [string]; error string
Settled: done! count; stale! [string]
+Seek: to! any
DeadLetter: position! position; event! Event; attempts! count; reason! =exhausted|rejected|expired|quarantined; error string; at! instant
DeadLetterPage: dead_letters! [DeadLetter]; next string
+Redrive: positions [position]; filter any; all boolean
Redriven: redriven! count
+Dispatch: limit integer
Drained: processed! count; triggered! [any]; halted_on_event_id any; halted_on_position position; halted_because string; last_event_id any; skipped_due_to_lock! boolean
Row:
Entity: concept! string; id! string; space! string; version! position; created_at instant; updated_at instant; fields! object; provenance any; changed boolean; in_state_since instant; transitions integer
EntityPage: entities! [Entity]; next string
EntityChange: position! position; time! instant; kind! =created|updated|deleted; prev any; next any; delta any; changed_fields [string]; actor string; provenance any
EntityChangePage: changes! [EntityChange]; next string
Concept: managed_by string; hash string
ConceptPage: concepts! [Concept]; next string
+Args: args any
QueryResult: rows [any]; next string; count count; plan any
Output: output any
+Workspace: files! {string}; workspace string?
Plan: added! [string]; changed! [string]; removed! [string]; replaces {string}; runs_on_old_versions! {count}; runs_by_old_version {{count}}; runs_cancelled {count}; position! count
AutomationDefinition: automation! string
Patch:
Automation: name! string; version! string; enabled! boolean; paused! boolean; managed_by any; runs count; runs_total count; next! [instant]; description string; reason string; definition any
AutomationPage: automations! [Automation]; next string
+StartOne: input any; event any; dry_run boolean?
+Start: automation! string; input any; event any; dry_run boolean?
Started: id! string
Instants: next! [instant]
Run: id string; automation string; version string; status string; trigger string; triggered_by string; occurrence any; started_at instant; ended_at instant; attempt count; depth count; output any; error any; steps [any]; waits [any]; rerun_of string
RunPage: runs! [Run]; next string
+Bulk: do! =cancel|retry|resume|run; where! RunChoice; dry_run boolean?
+RunChoice: automation string?; status =queued|running|waiting|completed|failed|cancelled?; outcome =refused?; reason =storm_paused|max_runs|budget?; since instant?
BulkDone: matched! count; done! count
+Rerun: from_step string?; allow_side_effects boolean?
Wait: id! string; kind! string; step string; run! string; automation! string; since! instant; due instant; refs [string]; question any; to any; options [any]; form [any]; approve boolean; default any; effect any; quarantined any
WaitPage: waits! [Wait]; next string
+Answer: value! any
Answered: answered! boolean
WaitRedriven: redriven! boolean
TaskPage: tasks! [any]; next string
Poll: kinds [string]; max integer; wait duration
Tasks: tasks! [any]
TaskToken: token! string
TaskDone: token! string; output any
TaskFailed: token! string; error any; retryable boolean
Decision: occurrence! any; automation! string; trigger! string; version string; outcome! string; reason string; gate string; at! instant; until instant; settled_at instant; event position; values any; run string
DecisionPage: decisions! [Decision]; next string
Explanation:
+Simulate: event! any; advance duration
Simulated:
+Backtest: files! {string}; from any; to any
Backtested:
+SubscriptionDefinition: id string?; pattern! string; filter any; input_mapper any; automation! string; enabled boolean?; group string?
+SubscriptionPatch: id string?; pattern string; filter any; input_mapper any; automation string; enabled any; group any
Subscription: id! string; pattern! string; automation! string; enabled! boolean; group string; last any
SubscriptionPage: subscriptions! [Subscription]; next string
+MoveClock: advance duration; to instant
Now: now! instant
+TokenTerms: name string?; role! =owner|admin|editor|viewer|publisher; scopes [string]?; spaces [string]?; max_band =green|amber|red|black?; expires_in duration?
Token: id! string; token string; name string; role! string; scopes [string]; spaces [string]; max_band string; expires_at instant; revoked_at instant; created_at! instant; created_by! string; last_used_at instant
TokenPage: tokens! [Token]; next string
+SecretValue: value! string
Secret: name! string
SecretPage: secrets! [Secret]; next string
Space: name! string; sealed! boolean; key string; key_of string; sealed_at instant; forgotten_at instant; events count
SpacePage: spaces! [Space]
ActPage: acts! [any]; next string
Testimony: key! string; checkpoints! [any]
+Checked: key any; checkpoints any; algorithm any
AuditReport:
+TenantName: name! string
Tenant: name! string
TenantPage: tenants! [Tenant]; next string
+Quota: bytes any; events_per_s any; groups any; automations any; runs_per_day any
+Erase: positions! [position]
Erased: erased! count
+BackUp: to! string
BackedUp:
Verified:
Imported:
+HookDefinition: scheme! string; secret string?; topic string?; space string?
Hook: name! string; scheme! string; topic string; space string
HookPage: hooks! [Hook]; next string
PushDefinition:
Push: name string; group string; url string; pattern any; format string; ordered boolean; timeout number; state =active|paused|disabled; reason string; failing_since instant; last_error string; floor count; lag count; inflight count; delayed count; dead_letters count
PushPage: pushes! [Push]; next string
HookDelivered: id string; position position; duplicate boolean; verdict string
Live: live! boolean
Ready: ready! boolean; failing! [string]
+Nothing:
+SeedRecord: event_type! string; entity_type string?; entity_id string?; payload any; caused_by string?; source_system string?; occurred_at instant?; idempotency_key string?
SeedRecorded: event_id! string; position! position; collapsed! boolean
SeedEvents: events! [object]
+SeedDrain: drainer_id string?; limit integer
";

/// Parameters whose name says more than that they are a text.
const PARAMETERS: &[(&str, &str)] = &[
    ("after", "count"),
    ("before", "count"),
    ("from", "count"),
    ("min_position", "count"),
    ("Last-Event-ID", "count"),
    ("Idempotency-Key", "key"),
    ("limit", "limit"),
    ("count", "limit"),
    ("since", "instant"),
    ("until", "instant"),
];

pub fn all() -> Value {
    let mut all = Map::new();
    for line in LINES.lines().filter(|line| !line.is_empty()) {
        let (name, fields) = line.split_once(':').unwrap_or((line, ""));
        let closed = name.starts_with('+');
        all.insert(name.trim_start_matches('+').to_owned(), shape(fields.trim(), closed));
    }
    // One event, or several in one commit.
    all.insert(
        "Publication".to_owned(),
        json!({"oneOf": [kind("Draft"), {"type": "array", "items": kind("Draft"), "maxItems": 1000}]}),
    );
    all.insert(
        "CloudEventList".to_owned(),
        json!({"type": "array", "items": kind("CloudEvent"), "maxItems": 1000}),
    );
    Value::Object(all)
}

fn shape(fields: &str, closed: bool) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for (name, of) in fields.split("; ").filter_map(|field| field.split_once(' ')) {
        if let Some(name) = name.strip_suffix('!') {
            required.push(name);
        }
        properties.insert(name.trim_end_matches('!').to_owned(), kind(of));
    }
    let mut shape = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        shape["required"] = json!(required);
    }
    if closed {
        shape["additionalProperties"] = false.into();
    }
    shape
}

fn kind(text: &str) -> Value {
    // Null is as good as left out.
    if let Some(or_null) = text.strip_suffix('?') {
        return json!({"anyOf": [kind(or_null), {"type": "null"}]});
    }
    if let Some(words) = text.strip_prefix('=') {
        return one_of(words);
    }
    if let Some(item) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        return json!({"type": "array", "items": kind(item)});
    }
    if let Some(value) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
        return json!({"type": "object", "additionalProperties": kind(value)});
    }
    match text {
        "string" | "boolean" | "integer" | "number" | "object" => json!({ "type": text }),
        "any" => json!({}),
        "count" => json!({"type": "integer", "minimum": 0}),
        "position" => json!({"type": "integer", "minimum": 1}),
        "limit" => json!({"type": "integer", "minimum": 1, "maximum": 1000}),
        "key" => json!({"type": "string", "minLength": 1, "maxLength": 255}),
        "instant" => json!({"type": "string", "format": "date-time"}),
        "duration" => json!({"type": ["string", "number"], "examples": ["30s", 1.5]}),
        name => json!({ "$ref": format!("#/components/schemas/{name}") }),
    }
}

pub fn one_of(words: &str) -> Value {
    json!({"type": "string", "enum": words.split('|').collect::<Vec<_>>()})
}

/// What a body or an answer is: a shape by name, lines of text, or any JSON.
pub fn named(name: &str) -> Value {
    match name {
        "Lines" | "Anything" => json!({}),
        name => kind(name),
    }
}

pub fn parameter(name: &str) -> Value {
    let found = PARAMETERS.iter().find(|(known, _)| *known == name);
    kind(found.map_or("string", |(_, of)| of))
}
