//! What to do about a problem that brings no hint of its own: the next thing to type, true for every problem of its code.

use super::Code;

const DAMAGED: &str = "`everwhen verify` shows the damage; on the machine that has the data, \
     `everwhen salvage --data DIR --to NEW` copies the sound part";
const QUOTA: &str = "wait for `retry_after` and try again, or ask who owns the server for more \
     (`everwhen tenants quota NAME`)";
const ENDED: &str = "`everwhen runs get ID` shows how it ended; `everwhen runs rerun ID` makes a new one";
const OURS: &str =
    "nothing that was acknowledged is lost; please report it with what was asked and the server's log";

impl Code {
    /// Commands that work on files alone are named with where those are: whoever reads this may sit at another machine.
    pub(super) fn advice(self) -> &'static str {
        use Code::*;
        match self {
            JsonInvalid => "it must be JSON as RFC 8259 has it, in UTF-8; `jq .` shows where it is not",
            JsonDuplicateKey => "leave one of the two out",
            BodyTooLarge => {
                "send less at once; put what is large elsewhere, and its address into the payload"
            }
            BodyTimeout | RequestTimeout => "try again; what has a key or an Idempotency-Key is done once",
            BodyType => "send it with content-type: application/json",
            RequestInvalid => "/openapi.json lists what each route takes; of a command, its --help",
            MethodNotAllowed => {
                "the header `allow` says which methods there are; /openapi.json lists all routes"
            }
            EventInvalid => {
                "correct the field that is named; docs/http.md shows an event with all it may have"
            }
            EventTopicInvalid => "words with dots between, such as order.created",
            EventTopicReserved => {
                "choose a topic that begins with another word than graph, automation or engine"
            }
            EventSpaceRequired => "name one: --space NAME, or \"space\" in the event",
            EventKeyConflict => "a key names one event for ever: use a new key for a new event",
            EventSchema => "correct the payload, or the schema that everwhen.toml names for the topic",
            EventTooDeep => {
                "two automations set each other off: `everwhen events lineage ID` shows the chain"
            }
            EventRefused => "change the event so that the rule that is named lets it pass",
            EventGone => "begin at `first`, or leave --after out",
            EventNotFound => "give a position or an id; `everwhen events list` shows both",
            EventErased => "its content is gone for good; `everwhen events get ID` shows what is left",
            PositionAhead => "try again in a moment, or without min_position",
            PatternInvalid => "such as order.* or order.#; `everwhen try topic` tries one",
            FilterInvalid => "such as 'payload.total > 50'; `everwhen try filter` tries one",
            JsonpathInvalid => "such as $.payload.total; `everwhen try jsonpath` tries one",
            MapperInvalid => {
                "a mapper is an object whose values are paths, such as {\"id\": \"$.payload.id\"}"
            }
            GroupNotFound => "`everwhen groups list` shows those there are",
            GroupInvalid => "`everwhen groups put --help` lists what a group may say",
            GroupLagging => "let its workers catch up (`everwhen groups list` shows the lag), then try again",
            GroupPaused => "everwhen groups resume NAME",
            StorageFull => "free space on that disk, then try again",
            StorageReadOnly => {
                "let the user that the server runs as write there, or remount the disk writable"
            }
            StorageFailed => "look at the disk on that machine: dmesg, `everwhen doctor --data DIR`",
            StoreLocked => "wait for the other process, or ask the server that it is (--server URL)",
            StoreNewer => "use the everwhen version that wrote it",
            StoreCorrupt => DAMAGED,
            StoreNotFound => "name one with --data DIR, or make one: everwhen init",
            StoreExists => "name a directory that does not exist yet",
            NotFound => {
                "look at how it is spelt: `everwhen --help` lists the commands, /openapi.json the routes"
            }
            NotAvailable => "leave it out; docs/streams.md lists what there is",
            AuthRequired => "give a token: --token T, or EVERWHEN_TOKEN; `everwhen tokens create` makes one",
            AuthDenied => "ask an owner or admin for a token that may (`everwhen tokens create`)",
            TenantExists | TenantNotFound => "`everwhen tenants list` shows those there are",
            TenantInvalid => {
                "a name has up to 64 of a-z, 0-9, - and _; `everwhen tenants create --help` shows one"
            }
            TenantSuspended => "who owns the server lets it go on: everwhen tenants resume NAME",
            TokenInvalid => "`everwhen tokens create --help` lists roles, scopes and times",
            HookRefused => {
                "sign it with the secret that the hook has; `everwhen hooks list` shows its scheme"
            }
            HookInvalid => "`everwhen hooks set --help` shows one; docs/hooks.md lists the schemes",
            PushInvalid => "`everwhen push add --help` shows one; docs/push.md lists the fields",
            SecretInvalid => "a text of 4 bytes to 64 KiB: printf %s \"$VALUE\" | everwhen secret set NAME",
            SecretNotFound => {
                "`everwhen secret list` shows those there are, `everwhen secret set NAME` sets one"
            }
            QuotaExceeded => QUOTA,
            IfMatchFailed => "read it again and decide anew with the version that it has now",
            IdempotencyMismatch => "use a new Idempotency-Key for a new request",
            IdempotencyBusy => "try again in a moment, with the same key",
            IdempotencyDone => "read what it made; to do it once more, use a new key",
            ConfigUnknownKey | ConfigInvalid => "`everwhen serve --print-config` shows all keys and values",
            UsageInvalid => "`everwhen COMMAND --help` shows what it takes, with examples",
            ServerUnreachable => "try again; `everwhen doctor` says whether the server is well",
            ServerAddressTaken => "choose another address with --listen; port 0 picks a free one",
            DefinitionInvalid
            | DefinitionType
            | DefinitionUnknownKey
            | DefinitionUnknownName
            | DefinitionDuplicate
            | DefinitionReserved
            | DefinitionCall
            | DefinitionCycle
            | DefinitionTrigger
            | DefinitionFilter
            | DefinitionNotPure
            | DefinitionNoIndex
            | DefinitionSecret => {
                "correct it; `everwhen check FILES` shows all that is wrong, with its place"
            }
            DefinitionBreaking => {
                "change the rows first, or declare it so that they fit; `everwhen plan` shows what"
            }
            DefinitionConflict => "`everwhen plan` shows what is declared, and by whom",
            DefinitionArguments => {
                "the declaration says what it takes: `everwhen automations get NAME` shows it"
            }
            ConceptNotFound => "declare it and `everwhen apply`; the full id is such as v1:health:system",
            EntityInvalid => "correct the field that is named, or change the concept and `everwhen apply` it",
            EntityExists => "use another id, or `everwhen entity patch` to change the one that is there",
            QueryNotFound | MutationNotFound | LogicNotFound => "declare it, then: everwhen apply",
            LogicFailed => "its `fail` says why: give other arguments, or change the declaration",
            QueryTooSlow => "narrow it by what an index serves, or move it out of the run",
            RunNotFound => "`everwhen runs list` shows runs",
            RunNotResumable => ENDED,
            RunRefused => "`everwhen explain automation NAME` shows its decisions, and at which gate",
            RunFailed | RunTimeout | StepTimeout | WaitTimeout | RepeatLimit | WalkTooBig | EffectStopped
            | TaskFailed | TaskLost | HttpFailed | HttpAnswer | HttpStatus => {
                "`everwhen runs get ID` shows the step; once it is mended: everwhen runs retry ID"
            }
            EffectUnknown => "look on the other side whether it was done, then: everwhen runs retry ID",
            EffectNoRunner => "start a server (everwhen serve), or a worker for tasks of this kind",
            TaskStale => "drop it: another worker has it, or it is done; claim the next",
            ClockReal => "only a server that was started with `serve --clock INSTANT` has a clock to move",
            WaitAnswered => "the first answer stands: `everwhen runs get ID` shows what the run made of it",
            AnswerRefused => "`everwhen waits list --kind ask` shows what the question takes",
            ExprSyntax | ExprUnknownName | ExprType | ExprOverflow | ExprDivideByZero | ExprIndex
            | ExprLimit => "`everwhen try expr 'EXPR'` tries it; docs/expressions.md says what there is",
            ScenarioInvalid => "correct it; `everwhen test --help` shows one, docs/scenarios.md all keys",
            CronInvalid | CronNever => "`everwhen try cron 'EXPR'` shows when it is due",
            HttpInvalid => "correct the step's url, method or headers; `everwhen runs get ID` shows the step",
            HttpRefused => "who runs the server lets steps reach it: [effects] allow in everwhen.toml",
            YamlInvalid => "correct the line that is named; `everwhen check FILE` tries it again",
            DrainNoDispatcher => "hand the events to a command: everwhen drain GROUP --exec CMD",
            DrainFailed => "`sh` must be on the PATH of this process",
            StreamSlow => "come back with the last position that was seen, and read faster",
            ShuttingDown => "try again when the server is back; nothing of this was recorded",
            TaskDied => {
                "start the server again; what was acknowledged is there; please report what its log says"
            }
            Internal => OURS,
        }
    }
}
