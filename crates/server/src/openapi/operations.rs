//! A line for each route: its name, its parameters, what it is sent and what it answers.
//!
//! ```text
//!   method path | operationId | parameters | body | status shape, …
//!   parameters: names of `schemas::PARAMETERS`; `name=a|b` takes these words; `^Name` is a header; `-`: not even min_position
//!   body:       a shape, `Shape?` when it may be left out, `ndjson:Shape` for another type
//! ```

/// One line, read.
pub struct Operation<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub id: &'a str,
    pub parameters: Vec<&'a str>,
    pub body: &'a str,
    pub answers: Vec<(&'a str, &'a str)>,
}

impl<'a> Operation<'a> {
    /// The parameter of the path with this name, with the words it takes if it takes only some.
    pub fn chosen(&self, name: &'a str) -> &'a str {
        let chosen =
            self.parameters.iter().find(|given| given.split_once('=').is_some_and(|(is, _)| is == name));
        chosen.copied().unwrap_or(name)
    }
}

const LINES: &str = "
get /v1/events | listEvents | topic space subject after before since until filter order=asc|desc limit cursor | | 200 EventPage
post /v1/events | publishEvents | | json:Publication ndjson:Lines cloudevent:CloudEvent cloudevents:CloudEventList | 200 Published, 201 Published, 202 Verdict, 200 ndjson:Lines
get /v1/events/stream | followEvents | topic space filter after ^Last-Event-ID | | 200 sse:Lines
get /v1/events/deferred | listDeferredEvents | limit cursor | | 200 DeferredPage
get /v1/events/{id} | getEvent | | | 200 Event
get /v1/events/{id}/lineage | getEventLineage | | | 200 Lineage
get /v1/groups | listGroups | limit cursor | | 200 GroupPage
put /v1/groups/{name} | putGroup | ^If-Match ^If-None-Match | GroupDefinition | 200 Group, 201 Group
get /v1/groups/{name} | getGroup | | | 200 Group
delete /v1/groups/{name} | deleteGroup | ^If-Match | | 204 -
post /v1/groups/{name}/pull | pullDeliveries | | Pull? | 200 Deliveries
post /v1/groups/{name}/ack | ackDeliveries | | Ack | 200 Settled
post /v1/groups/{name}/nack | nackDeliveries | | Nack | 200 Settled
post /v1/groups/{name}/extend | extendDeliveries | | Extend | 200 Settled
post /v1/groups/{name}/reject | rejectDeliveries | | Reject | 200 Settled
post /v1/groups/{name}/seek | seekGroup | ^If-Match | Seek | 200 Group
post /v1/groups/{name}/pause | pauseGroup | ^If-Match | Nothing? | 200 Group
post /v1/groups/{name}/resume | resumeGroup | ^If-Match | Nothing? | 200 Group
get /v1/groups/{name}/dead-letters | listDeadLetters | limit cursor | | 200 DeadLetterPage
post /v1/groups/{name}/dead-letters/redrive | redriveDeadLetters | ^If-Match | Redrive | 200 Redriven
post /v1/groups/{name}/dispatch | dispatchGroup | | Dispatch? | 200 Drained
get /v1/entities/{concept} | listEntities | filter space limit cursor | | 200 EntityPage
post /v1/entities/{concept} | insertEntity | space | Row | 200 Entity, 201 Entity
post /v1/entities/{concept}/import | importEntities | space | ndjson:Lines | 200 ndjson:Lines
get /v1/entities/{concept}/{id} | getEntity | as_of space in_state_since transitions window ^If-None-Match | | 200 Entity, 304 -
put /v1/entities/{concept}/{id} | putEntity | space ^If-Match ^If-None-Match | Row | 200 Entity, 201 Entity
patch /v1/entities/{concept}/{id} | patchEntity | space ^If-Match ^If-None-Match | json:Row patch:Row | 200 Entity, 201 Entity
delete /v1/entities/{concept}/{id} | deleteEntity | space ^If-Match | | 204 -
get /v1/entities/{concept}/{id}/history | listEntityChanges | space order=asc|desc limit cursor | | 200 EntityChangePage
get /v1/concepts | listConcepts | limit cursor | | 200 ConceptPage
get /v1/concepts/{id} | getConcept | | | 200 Concept
post /v1/queries/{name} | runQuery | explain space limit cursor as_of min_position | Args? | 200 QueryResult
post /v1/mutations/{name} | runMutation | space | Args? | 200 Entity
post /v1/logic/{name} | callLogic | space | Args? | 200 Output
post /v1/plan | planWorkspace | | Workspace | 200 Plan
post /v1/apply | applyWorkspace | | Workspace | 200 Plan
get /v1/automations | listAutomations | limit cursor | | 200 AutomationPage
post /v1/automations | createAutomation | | AutomationDefinition | 201 Automation
get /v1/automations/{name} | getAutomation | | | 200 Automation
patch /v1/automations/{name} | patchAutomation | ^If-Match | json:Patch patch:Patch | 200 Automation
delete /v1/automations/{name} | deleteAutomation | runs=cancel|finish ^If-Match | | 204 -
post /v1/automations/{name}/run | runAutomation | ^Prefer | StartOne? | 200 Run, 202 Started
get /v1/automations/{name}/next | listNextInstants | count | | 200 Instants
post /v1/automations/{name}/{what} | switchAutomation | what=enable|disable|pause|resume|drain ^If-Match | | 200 Automation
get /v1/runs | listRuns | automation status=queued|running|waiting|completed|failed|cancelled since limit cursor | | 200 RunPage
get /v1/runs/stream | followRuns | automation status=queued|running|waiting|completed|failed|cancelled after ^Last-Event-ID | | 200 sse:Lines
post /v1/runs | startRun | ^Prefer | Start | 200 Run, 202 Started
post /v1/runs/bulk | operateRuns | | Bulk | 200 BulkDone
get /v1/runs/{id} | getRun | | | 200 Run
post /v1/runs/{id}/{what} | operateRun | what=cancel|retry|resume|rerun | Rerun? | 200 Run
get /v1/waits | listWaits | limit cursor | | 200 WaitPage
post /v1/waits/{id}/answer | answerWait | | Answer | 200 Answered
post /v1/waits/{id}/redrive | redriveWait | | | 200 WaitRedriven
get /v1/tasks | listTasks | limit cursor | | 200 TaskPage
post /v1/tasks/poll | pollTasks | | Poll? | 200 Tasks
post /v1/tasks/heartbeat | heartbeatTask | | TaskToken | 200 Anything
post /v1/tasks/complete | completeTask | | TaskDone | 200 Anything
post /v1/tasks/fail | failTask | | TaskFailed | 200 Anything
get /v1/decisions | listDecisions | automation outcome=pending|ran|caught_up|merged|superseded|skipped|missed|refused|expired since limit cursor | | 200 DecisionPage
get /v1/decisions/stream | followDecisions | automation outcome=pending|ran|caught_up|merged|superseded|skipped|missed|refused|expired after ^Last-Event-ID | | 200 sse:Lines
get /v1/explain/{what}/{id} | explain | what=event|automation|run since | | 200 Explanation
post /v1/simulate | simulate | | Simulate | 200 Simulated
post /v1/backtest | backtest | | Backtest | 200 Backtested
get /v1/subscriptions | listSubscriptions | limit cursor | | 200 SubscriptionPage
post /v1/subscriptions | addSubscription | ^If-Match ^If-None-Match | SubscriptionDefinition | 200 Subscription, 201 Subscription
get /v1/subscriptions/{id} | getSubscription | | | 200 Subscription
put /v1/subscriptions/{id} | putSubscription | ^If-Match ^If-None-Match | SubscriptionDefinition | 200 Subscription, 201 Subscription
patch /v1/subscriptions/{id} | patchSubscription | ^If-Match | SubscriptionPatch? | 200 Subscription
delete /v1/subscriptions/{id} | deleteSubscription | ^If-Match | | 204 -
post /v1/subscriptions/{id}/{what} | switchSubscription | what=enable|disable ^If-Match | | 200 Subscription
post /v1/clock | moveClock | | MoveClock | 200 Now
get /v1/ws | openSession | - | | 101 -
get /v1/tokens | listTokens | limit cursor | | 200 TokenPage
post /v1/tokens | createToken | | TokenTerms | 201 Token
get /v1/tokens/{id} | getToken | | | 200 Token
delete /v1/tokens/{id} | revokeToken | | | 204 -
get /v1/tenants | listTenants | limit cursor | | 200 TenantPage
post /v1/tenants | createTenant | | TenantName | 201 Tenant
get /v1/tenants/{name} | getTenant | | | 200 Tenant
delete /v1/tenants/{name} | deleteTenant | | | 204 -
put /v1/tenants/{name}/quota | putQuota | ^If-None-Match | Quota | 200 Tenant
post /v1/tenants/{name}/tokens | createTenantToken | | TokenTerms | 201 Token
post /v1/tenants/{name}/{what} | switchTenant | what=suspend|resume | | 200 Tenant
post /v1/erase | eraseEvents | | Erase | 200 Erased
post /v1/backup | backUp | | BackUp | 200 BackedUp
get /v1/verify | verify | quick=true|false | | 200 Verified
post /v1/import | importRecords | again=true|false | ndjson:Lines | 200 Imported
get /v1/records | exportRecords | from | | 200 ndjson:Lines
get /v1/secrets | listSecrets | limit cursor | | 200 SecretPage
put /v1/secrets/{name} | putSecret | ^If-Match ^If-None-Match | SecretValue | 200 Secret, 201 Secret
delete /v1/secrets/{name} | deleteSecret | ^If-Match | | 204 -
get /v1/spaces | listSpaces | limit cursor | | 200 SpacePage
post /v1/spaces/{name}/{what} | actOnSpace | what=seal|forget | | 200 Space
get /v1/audit | listActs | since limit cursor | | 200 ActPage
get /v1/audit/checkpoints | listCheckpoints | | | 200 Testimony
post /v1/audit/verify | verifyAudit | | Checked? | 200 AuditReport
get /v1/hooks | listHooks | limit cursor | | 200 HookPage
get /v1/hooks/{name} | getHook | | | 200 Hook
put /v1/hooks/{name} | putHook | ^If-Match ^If-None-Match | HookDefinition | 200 Hook, 201 Hook
delete /v1/hooks/{name} | deleteHook | ^If-Match | | 204 -
get /v1/push | listPushes | limit cursor | | 200 PushPage
get /v1/push/{name} | getPush | | | 200 Push
put /v1/push/{name} | putPush | ^If-Match ^If-None-Match | PushDefinition | 200 Push, 201 Push
delete /v1/push/{name} | deletePush | ^If-Match | | 204 -
post /v1/push/{name}/{what} | operatePush | what=pause|resume|test ^If-Match | | 200 Push
options /hooks/{tenant}/{name} | askHook | - | | 200 -
post /hooks/{tenant}/{name} | deliverHook | | Anything | 200 HookDelivered, 202 HookDelivered
post /mcp | speakMcp | | Anything | 200 Anything, 202 -, 400 Anything, 400 problem:Problem
get /livez | isLive | | | 200 Live
get /readyz | isReady | | | 200 Ready, 503 Ready
get /metrics | getMetrics | | | 200 text:Lines
get /errors/{code} | getErrorPage | | | 200 markdown:Lines
get /openapi.json | getOpenApi | | | 200 Anything
post /api/events/record | recordEvent | | SeedRecord | 200 SeedRecorded, 201 SeedRecorded, 202 Verdict
get /api/events/recent | listRecentEvents | limit event_type entity_type entity_id min_position | | 200 SeedEvents
post /api/events/drain | drainEvents | | SeedDrain? | 200 Drained
";

pub fn lines() -> impl Iterator<Item = Operation<'static>> {
    LINES.lines().filter(|line| !line.is_empty()).map(read)
}

fn read(line: &str) -> Operation<'_> {
    let mut parts = line.split(" |").map(str::trim);
    let mut next = || parts.next().unwrap_or_default();
    let (method, path) = next().split_once(' ').unwrap_or_default();
    let (id, parameters, body, answers) = (next(), next(), next(), next());
    let answers = answers.split(", ").filter_map(|answer| answer.split_once(' ')).collect();
    Operation { method, path, id, parameters: parameters.split_whitespace().collect(), body, answers }
}

/// The line of a route. A test says that there is one.
pub fn of<'a>(method: &'a str, path: &'a str) -> Operation<'a> {
    let none = || Operation {
        method,
        path,
        id: path,
        parameters: vec![],
        body: "",
        answers: vec![("200", "Anything")],
    };
    lines().find(|line| (line.method, line.path) == (method, path)).unwrap_or_else(none)
}
