//! The part of `/metrics` about automations: occurrences, runs, waits, timers, storms, effects (contracts §13).

use engine::metrics::automations::{Automations, Standing};

use super::{family, sample};
use crate::Doors;

/// A tenant unless it is the default one, and how it stands.
pub type Stands = (Option<String>, Standing);

/// Of tenants that are open; the runs of a closed one stand still.
pub fn standing(doors: &Doors) -> Vec<Stands> {
    let named = |name: &str| (name != doors.default_tenant).then(|| name.to_owned());
    doors.engine.open_tenants().iter().map(|tenant| (named(tenant.name()), tenant.standing())).collect()
}

pub fn render(out: &mut String, counts: &Automations, standing: &[Stands]) {
    family(out, "everwhen_occurrences_total", "counter", "Occurrences by how they ended.");
    for (name, outcome, count) in counts.occurrences() {
        sample(out, "everwhen_occurrences_total", &[("automation", &name), ("outcome", outcome)], count);
    }
    family(out, "everwhen_storms_total", "counter", "Times that an automation started too often.");
    for (name, count) in counts.storms() {
        sample(out, "everwhen_storms_total", &[("automation", &name)], count);
    }
    family(out, "everwhen_effect_attempts_total", "counter", "Answers to effects by kind and class.");
    for (kind, class, count) in counts.effects() {
        sample(out, "everwhen_effect_attempts_total", &[("kind", &kind), ("class", class)], count);
    }
    family(
        out,
        "everwhen_runs",
        "gauge",
        "Runs by status; those that ended, since the server opened their tenant.",
    );
    per_tenant(out, "everwhen_runs", standing, |of| {
        of.runs.iter().map(|(status, count)| (Some(("status", *status)), *count as f64)).collect()
    });
    family(out, "everwhen_waits", "gauge", "What runs wait for, by kind.");
    per_tenant(out, "everwhen_waits", standing, |of| {
        of.waits.iter().map(|(kind, count)| (Some(("kind", *kind)), *count as f64)).collect()
    });
    family(out, "everwhen_timers_armed", "gauge", "Timers of waits, gates and schedules.");
    per_tenant(out, "everwhen_timers_armed", standing, |of| vec![(None, of.timers as f64)]);
    family(out, "everwhen_schedule_lag_seconds", "gauge", "How late the oldest timer is that is due.");
    per_tenant(out, "everwhen_schedule_lag_seconds", standing, |of| vec![(None, of.late_seconds)]);
}

type Label<'a> = Option<(&'a str, &'a str)>;

fn per_tenant(
    out: &mut String,
    name: &str,
    standing: &[Stands],
    values: impl Fn(&Standing) -> Vec<(Label<'static>, f64)>,
) {
    for (tenant, of) in standing {
        for (label, value) in values(of) {
            let tenant = tenant.as_deref().map(|tenant| ("tenant", tenant));
            let labels: Vec<(&str, &str)> = label.into_iter().chain(tenant).collect();
            sample(out, name, &labels, value);
        }
    }
}
