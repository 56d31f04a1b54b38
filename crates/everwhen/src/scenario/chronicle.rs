//! What became of runs and occurrences, read from the records of the ledger: the ended ones, too.

use std::collections::BTreeMap;

use engine::Tenant;
use model::{Position, Problem, Timestamp};
use serde_json::{Map, Value, json};

#[derive(Default)]
pub struct Chronicle {
    next: Position,
    /// By the position of the start.
    pub runs: BTreeMap<Position, RunSeen>,
    /// By the place of the verdict.
    decisions: BTreeMap<Place, Value>,
    /// What each one that is pending has taken along.
    taken: BTreeMap<Place, Vec<Place>>,
}

/// Of a verdict: its record, and which of the verdicts there.
type Place = (Position, u64);

#[derive(Default)]
pub struct RunSeen {
    pub automation: String,
    pub status: String,
    error: Value,
    /// Steps that failed, also those after which it went on.
    failed: Vec<Value>,
    vars: Map<String, Value>,
    wait: Value,
    /// When what it waits for is due; set while something is open.
    open: Option<Value>,
    output: Value,
}

impl RunSeen {
    pub fn has_ended(&self) -> bool {
        matches!(self.status.as_str(), "completed" | "failed" | "cancelled")
    }

    pub fn to_json(&self) -> Value {
        json!({
            "automation": self.automation, "status": self.status, "error": self.error, "vars": self.vars,
            "wait": self.wait, "output": self.output,
        })
    }

    /// Why it failed: the innermost step with the error that ended it, if one did.
    fn failure(&self) -> Value {
        let ended_it = |step: &&Value| {
            step["error"]["code"] == self.error["code"] && step["error"]["message"] == self.error["message"]
        };
        let inner = |step: &&Value| step["path"].as_str().map_or(0, str::len);
        let step = self.failed.iter().filter(ended_it).max_by_key(inner);
        json!({
            "automation": self.automation, "step": step.map(|step| &step["path"]),
            "kind": step.map(|step| &step["kind"]), "code": self.error["code"],
            "message": self.error["message"],
        })
    }

    /// What steps leave behind: variables, and how the last wait ended.
    fn steps(&mut self, steps: &Value) {
        for step in steps.as_array().into_iter().flatten() {
            if let Value::Object(vars) = &step["vars"] {
                self.vars.extend(vars.clone());
            }
            if step["status"] == "failed" {
                self.failed.push(step.clone());
            }
            let waits = matches!(step["kind"].as_str(), Some("wait_until" | "wait_for"));
            match step["status"].as_str() {
                Some("completed") if waits => self.wait = step["output"].clone(),
                Some("failed") if waits && step["error"]["code"] == "wait.timeout" => {
                    self.wait = json!({"completed": false, "remaining": 0});
                }
                _ => {}
            }
        }
    }

    fn moved(&mut self, state: &Value) {
        self.vars = state["vars"].as_object().cloned().unwrap_or_default();
        let waits = state["waits"].as_array().into_iter().flatten();
        let mut looks = waits.filter(|wait| {
            let kind = &wait["kind"];
            wait["ended"].is_null() && (kind.get("until").is_some() || kind.get("for").is_some())
        });
        self.open = looks.next().map(|wait| wait["due"].clone());
    }

    /// Cancelled inside a wait: it was not completed.
    fn cut_short(&mut self, now: Option<Timestamp>) {
        let Some(due) = self.open.take() else { return };
        let due = due.as_str().and_then(|due| Timestamp::parse(due).ok());
        let left = due.zip(now).map(|(due, now)| due.since(now).as_secs_f64());
        self.wait = json!({"completed": false, "remaining": left});
    }
}

impl Chronicle {
    /// Reads what was committed since it last looked.
    pub fn follow(&mut self, tenant: &Tenant) -> Result<(), Problem> {
        let from = self.next.max(1);
        if tenant.head() < from {
            return Ok(());
        }
        let mut records = Vec::new();
        engine::maintain::records(tenant, from, |line| -> Result<(), Problem> {
            records.extend(serde_json::from_str::<Value>(line).ok());
            Ok(())
        })?;
        for record in &records {
            self.record(record);
        }
        self.next = tenant.head() + 1;
        Ok(())
    }

    fn record(&mut self, record: &Value) {
        let (position, data, body) = (record["position"].as_u64().unwrap_or(0), &record["d"], &record["b"]);
        let run = data["run"].as_u64().and_then(|run| self.runs.get_mut(&run));
        match (record["k"].as_str(), run) {
            (Some("routed"), _) => self.routed(position, data, body),
            (Some("occurrence.moved" | "occurrence.settled"), _) => self.settled(data),
            (Some("run.started"), _) => {
                let automation = text(&data["automation"]);
                self.runs.insert(
                    position,
                    RunSeen { automation, status: "running".to_owned(), ..RunSeen::default() },
                );
            }
            (Some("run.moved"), Some(run)) => {
                run.status = text(&data["status"]);
                run.steps(&body["steps"]);
                run.moved(&body["state"]);
            }
            (Some("wait.ended"), Some(run)) => run.status = "running".to_owned(),
            (Some("run.ended"), Some(run)) => {
                run.status = text(&data["status"]);
                run.steps(&body["steps"]);
                run.output = body["output"].clone();
                if run.status == "cancelled" {
                    run.cut_short(record["time"].as_str().and_then(|time| Timestamp::parse(time).ok()));
                }
                if let Some(code) = data["code"].as_str() {
                    run.error = json!({"code": code, "message": body["message"], "class": data["class"]});
                }
            }
            _ => {}
        }
    }

    fn routed(&mut self, position: Position, data: &Value, bodies: &Value) {
        for (n, verdict) in data["of"].as_array().into_iter().flatten().enumerate() {
            let mut decision = verdict.clone();
            decision["values"] = bodies[n]["values"].clone();
            self.decisions.insert((position, n as u64), decision);
        }
    }

    fn settled(&mut self, data: &Value) {
        let of = place(&data["of"]);
        if data["reason"] == "replaced" && data["outcome"] == "superseded" {
            // It waits at another gate, under the name of a later verdict.
            self.decisions.remove(&of);
        }
        // What another one took along is pending as long as that is, and shares its fate.
        let taker = Some(&data["into"]).filter(|into| into.is_array()).map(place);
        if let Some(fate) = taker.and_then(|taker| self.decisions.get(&taker)).cloned() {
            match fate["outcome"] == "pending" {
                true => self.taken.entry(taker.unwrap_or_default()).or_default().push(of),
                false => self.share(of, &fate),
            }
            return;
        }
        let Some(decision) = self.decisions.get_mut(&of) else { return };
        for key in ["outcome", "reason", "gate"] {
            decision[key] = data[key].clone();
        }
        let fate = decision.clone();
        if fate["outcome"] != "pending" {
            let mut open = self.taken.remove(&of).unwrap_or_default();
            while let Some(member) = open.pop() {
                self.share(member, &fate);
                open.extend(self.taken.remove(&member).unwrap_or_default());
            }
        }
    }

    /// Merged into the run of the one that took it, else as that one ended.
    fn share(&mut self, of: Place, fate: &Value) {
        let Some(decision) = self.decisions.get_mut(&of) else { return };
        if matches!(fate["outcome"].as_str(), Some("ran" | "caught_up" | "merged")) {
            decision["outcome"] = "merged".into();
            return;
        }
        for key in ["outcome", "reason", "gate"] {
            decision[key] = fate[key].clone();
        }
    }

    /// Why runs failed, in the order in which they started.
    pub fn failed_runs(&self) -> Vec<Value> {
        self.runs.values().filter(|run| run.status == "failed").map(RunSeen::failure).collect()
    }

    /// One verdict may stand for many instants with one fate.
    pub fn decisions(&self) -> impl Iterator<Item = (&Value, u64)> {
        self.decisions.values().map(|decision| (decision, decision["values"]["count"].as_u64().unwrap_or(1)))
    }
}

fn place(value: &Value) -> Place {
    (value[0].as_u64().unwrap_or(0), value[1].as_u64().unwrap_or(0))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
