//! The one error that reaches a user: a code with a page in `docs/errors/`, what happened where, and what to do next.

mod advice;

use std::fmt;

use serde_json::{Map, Value, json};

/// Who has to act. Decides where a problem is shown and how it is logged, never how it is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The one who wrote the request, the filter or the definition.
    Author,
    /// The one who runs the machine: disk, config, data directory.
    Operator,
    /// Something outside this process; trying again may help.
    Outside,
    /// We: an impossible state.
    Us,
}

macro_rules! codes {
    ($($name:ident $text:literal $status:literal $exit:literal $who:ident $title:literal;)*) => {
        /// Every code a user may see. `tidy` keeps this list and `docs/errors/` equal.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $($name),* }

        impl Code {
            pub const ALL: &[Code] = &[$(Code::$name),*];

            /// The code as users see it, `noun.what`.
            pub fn as_str(self) -> &'static str { match self { $(Code::$name => $text),* } }
            /// The HTTP status it answers with.
            pub fn status(self) -> u16 { match self { $(Code::$name => $status),* } }
            /// The exit code of a command that ends with it (contracts §1).
            pub fn exit(self) -> u8 { match self { $(Code::$name => $exit),* } }
            pub fn who(self) -> Who { match self { $(Code::$name => Who::$who),* } }
            pub fn title(self) -> &'static str { match self { $(Code::$name => $title),* } }
            /// Its page, `docs/errors/<code>.md`.
            pub fn page(self) -> &'static str {
                match self { $(Code::$name => include_str!(concat!("../../../docs/errors/", $text, ".md"))),* }
            }
        }
    };
}

codes! {
    JsonInvalid "json.invalid" 400 4 Author "not readable as JSON";
    JsonDuplicateKey "json.duplicate_key" 422 4 Author "an object has the same key twice";
    BodyTooLarge "body.too_large" 413 4 Author "the body is too large";
    BodyTimeout "body.timeout" 408 6 Outside "the body did not arrive";
    BodyType "body.type" 415 4 Author "this content type is not understood here";
    RequestInvalid "request.invalid" 400 2 Author "a parameter of the request is wrong";
    MethodNotAllowed "request.method" 405 2 Author "this path does not answer that method";
    RequestTimeout "request.timeout" 503 6 Outside "the request took too long";
    EventInvalid "event.invalid" 422 4 Author "the event is not a valid envelope";
    EventTopicInvalid "event.topic_invalid" 422 4 Author "the topic is not valid";
    EventTopicReserved "event.topic_reserved" 422 4 Author "this topic is published by the engine only";
    EventSpaceRequired "event.space_required" 422 4 Author "the event has no space";
    EventKeyConflict "event.key_conflict" 409 4 Author "this key was used with another event";
    EventSchema "event.schema" 422 4 Author "the payload does not fit the topic's schema";
    EventTooDeep "event.too_deep" 422 4 Author "the chain of causes is too long";
    EventRefused "event.refused" 422 4 Author "a layer refused the event";
    EventGone "event.gone" 410 3 Operator "the position is below the retention floor";
    EventNotFound "event.not_found" 404 3 Author "there is no such event";
    EventErased "event.erased" 410 3 Operator "the event's content was erased";
    PositionAhead "position.ahead" 503 6 Outside "the position is not reached yet";
    PatternInvalid "pattern.invalid" 422 4 Author "the topic pattern is not valid";
    FilterInvalid "filter.invalid" 422 4 Author "the filter is not valid";
    JsonpathInvalid "jsonpath.invalid" 422 4 Author "the JSONPath is not valid";
    MapperInvalid "mapper.invalid" 422 4 Author "the input mapper is not valid";
    GroupNotFound "group.not_found" 404 3 Author "there is no such group";
    GroupInvalid "group.invalid" 422 4 Author "the group is not valid";
    GroupLagging "group.lagging" 429 6 Operator "a group that must not fall behind has fallen behind";
    GroupPaused "group.paused" 409 4 Operator "the group is paused";
    StorageFull "storage.full" 507 6 Operator "the disk is full";
    StorageReadOnly "storage.read_only" 503 6 Operator "the disk is read-only";
    StorageFailed "storage.failed" 503 7 Operator "the disk failed";
    StoreLocked "store.locked" 503 6 Operator "another process holds the data directory";
    StoreNewer "store.newer" 503 7 Operator "the data was written by a newer version";
    StoreCorrupt "store.corrupt" 503 7 Operator "committed data is damaged";
    StoreNotFound "store.not_found" 404 3 Operator "there is no data directory here";
    StoreExists "store.exists" 409 4 Operator "the target directory is not empty";
    NotFound "not_found" 404 3 Author "there is nothing here";
    NotAvailable "not_available" 409 4 Author "this is not there yet";
    AuthRequired "auth.required" 401 5 Author "a token is required";
    AuthDenied "auth.denied" 403 5 Author "not allowed";
    TenantExists "tenant.exists" 409 4 Author "there is such a tenant already";
    TenantInvalid "tenant.invalid" 422 4 Author "a tenant cannot be like that";
    TenantNotFound "tenant.not_found" 404 3 Author "there is no such tenant";
    TenantSuspended "tenant.suspended" 403 5 Operator "the tenant is suspended";
    TokenInvalid "token.invalid" 422 4 Author "a token cannot be made like that";
    HookRefused "hook.refused" 401 5 Outside "the delivery is not believed";
    HookInvalid "hook.invalid" 422 4 Author "the hook is not valid";
    PushInvalid "push.invalid" 422 4 Author "the push is not valid";
    SecretInvalid "secret.invalid" 422 4 Author "the secret cannot be kept like that";
    SecretNotFound "secret.not_found" 404 3 Operator "there is no such secret";
    QuotaExceeded "quota.exceeded" 429 6 Author "a limit was reached";
    IfMatchFailed "if_match.failed" 412 4 Author "it changed in between";
    IdempotencyMismatch "idempotency.mismatch" 422 4 Author "the key was used for another request";
    IdempotencyBusy "idempotency.busy" 409 6 Outside "a request with this key is in progress";
    IdempotencyDone "idempotency.done" 409 4 Author "it was done before, and its answer is not kept";
    ConfigUnknownKey "config.unknown_key" 422 2 Operator "the configuration has an unknown key";
    ConfigInvalid "config.invalid" 422 2 Operator "the configuration has a wrong value";
    UsageInvalid "usage.invalid" 422 2 Author "the command was not understood";
    ServerUnreachable "server.unreachable" 503 6 Outside "the server does not answer";
    ServerAddressTaken "server.address_taken" 503 6 Operator "another program listens there";
    DefinitionInvalid "definition.invalid" 422 4 Author "the definition is not valid";
    DefinitionSecret "definition.secret" 422 4 Author "a secret is used where it cannot be";
    DefinitionBreaking "definition.breaking" 409 4 Author "rows that are there do not fit the new definition";
    DefinitionConflict "definition.conflict" 409 4 Author "what is declared already is in the way";
    ConceptNotFound "concept.not_found" 404 3 Author "there is no such concept";
    EntityInvalid "entity.invalid" 422 4 Author "the row does not fit its concept";
    EntityExists "entity.exists" 409 4 Author "there is another row with this id";
    QueryNotFound "query.not_found" 404 3 Author "there is no such query";
    MutationNotFound "mutation.not_found" 404 3 Author "there is no such mutation";
    LogicNotFound "logic.not_found" 404 3 Author "there is no such logic";
    LogicFailed "logic.failed" 422 4 Author "the logic says that it failed";
    QueryTooSlow "query.too_slow" 422 4 Author "the query looks at too much inside a run";
    RunNotFound "run.not_found" 404 3 Author "there is no such run in progress";
    RunNotResumable "run.not_resumable" 409 4 Author "the run cannot go on from there";
    RunRefused "run.refused" 409 4 Author "a gate held the run back";
    RunFailed "run.failed" 422 4 Author "the run says that it failed";
    RunTimeout "run.timeout" 422 4 Author "the run took longer than its automation allows";
    StepTimeout "step.timeout" 422 4 Author "a step took longer than it may";
    WaitTimeout "wait.timeout" 422 4 Author "what a run waited for did not come in time";
    RepeatLimit "repeat.limit" 422 4 Author "a loop goes on and on";
    WalkTooBig "walk.too_big" 422 4 Author "a run wrote more than one commit can hold";
    EffectUnknown "effect.unknown" 422 4 Outside "nobody knows whether a request was made";
    EffectStopped "effect.stopped" 422 4 Author "a request was given up, because nobody waits for it";
    EffectNoRunner "effect.no_runner" 422 4 Operator "nothing here can do this step";
    TaskStale "task.stale" 409 4 Outside "the task is not this worker's any more";
    TaskFailed "task.failed" 422 4 Outside "a worker says that it could not do its task";
    TaskLost "task.lost" 422 4 Outside "worker after worker was lost with a task";
    ClockReal "clock.real" 409 4 Operator "the clock of this server cannot be moved";
    WaitAnswered "wait.answered" 409 4 Author "the question was answered before";
    AnswerRefused "answer.refused" 422 4 Author "the answer does not fit the question";
    ExprSyntax "expr.syntax" 422 4 Author "the expression cannot be read";
    ExprUnknownName "expr.unknown_name" 422 4 Author "the expression uses an unknown name";
    ExprType "expr.type" 422 4 Author "the expression mixes types that do not go together";
    ExprOverflow "expr.overflow" 422 4 Author "a number in the expression is out of range";
    ExprDivideByZero "expr.divide_by_zero" 422 4 Author "the expression divides by zero";
    ExprIndex "expr.index" 422 4 Author "an index is outside its list";
    ExprLimit "expr.limit" 422 4 Author "the expression is too large";
    DefinitionUnknownName "definition.unknown_name" 422 4 Author "the definition names something that is not declared";
    DefinitionUnknownKey "definition.unknown_key" 422 4 Author "the definition has an unknown key or annotation";
    DefinitionDuplicate "definition.duplicate" 422 4 Author "something is declared twice";
    DefinitionReserved "definition.reserved_name" 422 4 Author "the name is reserved";
    DefinitionType "definition.type" 422 4 Author "a value does not fit its field";
    DefinitionArguments "definition.arguments" 422 4 Author "a call passes the wrong arguments";
    ScenarioInvalid "scenario.invalid" 422 4 Author "the scenario is not valid";
    DefinitionCall "definition.nested_call" 422 4 Author "a call stands inside an expression";
    DefinitionCycle "definition.cycle" 422 4 Author "definitions go round in a circle";
    DefinitionTrigger "definition.trigger" 422 4 Author "the trigger is not valid";
    DefinitionFilter "definition.filter" 422 4 Author "the filter contradicts or repeats its trigger";
    DefinitionNotPure "definition.not_pure" 422 4 Author "logic or `atomic` waits or reaches outside";
    DefinitionNoIndex "definition.no_index" 422 4 Author "no index serves the query";
    CronInvalid "cron.invalid" 422 4 Author "the schedule cannot be read";
    CronNever "cron.never" 422 4 Author "the schedule never fires";
    HttpInvalid "http.invalid" 422 4 Author "the request of a step cannot be sent";
    HttpRefused "http.refused" 422 5 Author "a step may not connect there";
    HttpFailed "http.failed" 503 6 Outside "the server of a step's request did not answer";
    HttpAnswer "http.answer" 422 4 Outside "the answer to a step's request cannot be used";
    HttpStatus "http.status" 422 4 Outside "the answer to a step's request is not a success";
    YamlInvalid "yaml.invalid" 400 4 Author "not readable as YAML";
    DrainNoDispatcher "drain.no_dispatcher" 409 4 Operator "nothing dispatches this drain yet";
    DrainFailed "drain.failed" 422 1 Author "the drained command failed";
    StreamSlow "stream.slow" 503 6 Outside "the reader is too slow";
    ShuttingDown "engine.closing" 503 6 Operator "the engine is shutting down";
    TaskDied "engine.task_died" 503 6 Us "a part of the engine stopped";
    Internal "engine.bug" 500 8 Us "this is our bug";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What went wrong, for a person and for a program. Boxed inside, because errors are rare and results are many.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem(Box<Inner>);

#[derive(Clone, Debug, PartialEq)]
struct Inner {
    code: Code,
    detail: String,
    hint: Option<String>,
    pointer: Option<String>,
    extra: Map<String, Value>,
}

impl Problem {
    /// `detail` names what and where: lower case, no full stop, the thing in quotes.
    pub fn new(code: Code, detail: impl Into<String>) -> Problem {
        let inner = Inner { code, detail: detail.into(), hint: None, pointer: None, extra: Map::new() };
        Problem(Box::new(inner))
    }

    /// The next thing to do or to type.
    pub fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.0.hint = Some(hint.into());
        self
    }

    /// Where in the body, as a JSON pointer.
    pub fn at(mut self, pointer: impl Into<String>) -> Problem {
        self.0.pointer = Some(pointer.into());
        self
    }

    /// The same problem seen from an enclosing value: `/topic` inside element 3 becomes `/3/topic`.
    pub fn within(mut self, prefix: &str) -> Problem {
        let inner = self.0.pointer.take().unwrap_or_default();
        self.0.pointer = Some(format!("{prefix}{inner}"));
        self
    }

    /// A further field of the answer, such as `offset`, `first` or `position`.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Problem {
        self.0.extra.insert(name.to_owned(), value.into());
        self
    }

    pub fn code(&self) -> Code {
        self.0.code
    }

    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The next thing to do: its own hint, or what holds for every problem of its kind.
    pub fn advice(&self) -> &str {
        self.0.hint.as_deref().unwrap_or_else(|| self.0.code.advice())
    }

    pub fn pointer(&self) -> Option<&str> {
        self.0.pointer.as_deref()
    }

    pub fn extra(&self) -> &Map<String, Value> {
        &self.0.extra
    }

    /// The problem+json document of contracts §3, without a request id.
    pub fn to_json(&self) -> Map<String, Value> {
        let code = self.0.code;
        let mut out = Map::new();
        out.insert("type".into(), json!(format!("/errors/{code}")));
        out.insert("title".into(), json!(code.title()));
        out.insert("status".into(), json!(code.status()));
        out.insert("code".into(), json!(code.as_str()));
        out.insert("detail".into(), json!(self.0.detail));
        out.insert("hint".into(), json!(self.advice()));
        if let Some(pointer) = &self.0.pointer {
            out.insert("pointer".into(), json!(pointer));
        }
        for (name, value) in &self.0.extra {
            out.entry(name.clone()).or_insert_with(|| value.clone());
        }
        out
    }

    /// Reads back what [`Problem::to_json`] wrote; an unknown code becomes `engine.bug` with the text kept.
    pub fn from_json(doc: &Map<String, Value>) -> Problem {
        let text = |name: &str| doc.get(name).and_then(Value::as_str).map(str::to_owned);
        let code = text("code").and_then(|c| Code::ALL.iter().copied().find(|k| k.as_str() == c));
        let mut problem = Problem::new(code.unwrap_or(Code::Internal), text("detail").unwrap_or_default());
        problem.0.hint = text("hint");
        problem.0.pointer = text("pointer");
        let known = ["type", "title", "status", "code", "detail", "hint", "pointer"];
        problem.0.extra = doc
            .iter()
            .filter(|(k, _)| !known.contains(&k.as_str()))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        problem
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.detail)
    }
}

impl std::error::Error for Problem {}
