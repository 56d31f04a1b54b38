//! The settings file as users write it: what is read, and what each mistake is told.

use std::path::PathBuf;
use std::time::Duration;

use engine::settings::Verdict;
use model::{Code, Problem};

use super::written::Source;
use super::*;

mod reference;

fn settled(text: &str, env: &[(&str, &str)]) -> Result<Config, Problem> {
    let source = Source { path: PathBuf::from("conf/everwhen.toml"), text: text.to_owned() };
    let env = |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    settle(&source, &env)
}

#[test]
fn without_a_word_everything_has_its_default() {
    let config = settled("", &[]).unwrap();
    assert_eq!(config.listen, "127.0.0.1:3837");
    assert_eq!(config.data, PathBuf::from(".everwhen"), "not beside the file: other commands look here");
    assert_eq!(config.settings.default_space, "default");
    assert_eq!(config.settings.max_payload, 1 << 20);
    assert_eq!(config.settings.retention.age, None);
}

#[test]
fn the_template_is_understood_commented_out_or_not() {
    assert!(settled(TEMPLATE, &[]).is_ok());
    let live: String = TEMPLATE
        .lines()
        .map(|line| {
            line.strip_prefix("# ")
                .filter(|rest| rest.contains(" = ") || rest.starts_with('['))
                .unwrap_or(line)
        })
        .filter(|line| !line.contains("schema") && !line.contains("order."))
        .map(|line| format!("{line}\n"))
        .collect();
    let config = settled(&live, &[]).unwrap();
    assert_eq!(config.settings.redactions.len(), 1);
    assert_eq!(config.settings.attention.len(), 3);
}

#[test]
fn what_requests_may_reach_is_said_in_the_file_or_with_commas_in_a_variable() {
    let text = "[effects]\nallow = [\"10.1.0.0/16\"]\nworkers = 3\ntimeout = \"5s\"\n";
    let effects = settled(text, &[]).unwrap().settings.effects;
    assert_eq!((effects.workers, effects.scheduled_workers), (3, 5));
    assert_eq!((effects.allow, effects.timeout), (vec!["10.1.0.0/16".to_owned()], Duration::from_secs(5)));
    let env = [("EVERWHEN_EFFECTS_ALLOW", "127.0.0.1, hooks.internal")];
    assert_eq!(settled(text, &env).unwrap().settings.effects.allow, ["127.0.0.1", "hooks.internal"]);
    let problem = settled("[effects]\nallow = [\"10.1.0.0/99\"]\n", &[]).err().unwrap();
    assert!(problem.detail().contains("everwhen.toml:2"), "{problem}");
}

#[test]
fn a_tenant_may_switch_layers_for_itself() {
    let text =
        "idle = \"1h\"\n[layers]\nmetrics = false\n[tenants.acme.layers]\nattention = false\n[tenants.b]\n";
    let settings = settled(text, &[("EVERWHEN_LAYERS_TRACING", "false")]).unwrap().settings;
    let acme = settings.tenants["acme"];
    assert_eq!(settings.idle, Duration::from_secs(3600));
    assert_eq!((acme.attention, acme.metrics, acme.tracing, acme.validation), (false, false, false, true));
    assert!(settings.switches.attention && settings.tenants["b"] == settings.switches);
    for (text, line) in
        [("[tenants.a]\nlayer = 1", "layers"), ("[tenants.a.layers]\nmetric = true", "metrics")]
    {
        let problem = settled(text, &[]).err().unwrap();
        assert_eq!(problem.code(), Code::ConfigUnknownKey);
        assert!(problem.hint_text().unwrap().contains(line), "{problem}");
    }
}

#[test]
fn the_example_of_the_contract_is_read() {
    let text = r#"
listen = "127.0.0.1:1"
data = "d"
[events]
default_space = ""
[retention]
age = "90d"
bytes = 1000
respect_groups = false
[history]
keep = "7d"
[[redact]]
topic = "user.#"
drop = ["$.payload.password"]
detectors = ["email","phone","card","token"]
[[attention]]
topic = "sensor.#"
filter = 'event.band == "green"'
rate = "100/s"
verdict = "defer"
until = "5m"
"#;
    let Config { listen, data, settings, .. } = settled(text, &[]).unwrap();
    assert_eq!((listen.as_str(), data), ("127.0.0.1:1", PathBuf::from("conf/d")));
    assert_eq!(settings.default_space, "");
    assert_eq!(settings.retention.age, Some(Duration::from_secs(90 * 86_400)));
    assert_eq!(settings.retention.bytes, Some(1000));
    assert_eq!(settings.history, Duration::from_secs(7 * 86_400));
    assert!(!settings.retention.respect_groups);
    assert_eq!(settings.redactions[0].detectors.len(), 4);
    assert_eq!(settings.attention[0].verdict, Verdict::Defer { until: Duration::from_secs(300) });
}

#[test]
fn a_variable_wins_over_the_file_and_is_named_when_wrong() {
    let env = [("EVERWHEN_EVENTS_MAX_DEPTH", "7"), ("EVERWHEN_LISTEN", "[::1]:0")];
    let config = settled("listen = \"x\"\n[events]\nmax_depth = 9", &env).unwrap();
    assert_eq!((config.listen.as_str(), config.settings.max_depth), ("[::1]:0", 7));
    let problem = settled("", &[("EVERWHEN_RETENTION_AGE", "soon")]).err().unwrap();
    assert_eq!(problem.code(), Code::ConfigInvalid);
    assert!(problem.detail().starts_with("EVERWHEN_RETENTION_AGE: \"age\" must be a duration"), "{problem}");
}

#[test]
fn every_mistake_names_its_file_and_line() {
    let table = [
        ("listn = 1", "conf/everwhen.toml:1: unknown key \"listn\"", "did you mean \"listen\"?"),
        (
            "[events]\n\nmax_paylod = 1",
            "conf/everwhen.toml:3: unknown key \"max_paylod\" in [events]",
            "did you mean \"max_payload\"?",
        ),
        (
            "max_depth = 3",
            "conf/everwhen.toml:1: unknown key \"max_depth\"",
            "did you mean \"events.max_depth\"?",
        ),
        (
            "[[attention]]\ntopics = 1",
            "conf/everwhen.toml:2: unknown key \"topics\" in [attention]",
            "did you mean \"topic\"?",
        ),
        (
            "\n[events]\nmax_depth = 0",
            "conf/everwhen.toml:3: \"max_depth\" must be a whole number from 1 to 128, not 0",
            "",
        ),
        (
            "[events]\nmax_depth = \"x\"",
            "conf/everwhen.toml:2: \"max_depth\" must be a whole number from 1 to 128, not \"x\"",
            "",
        ),
        ("events = 1", "conf/everwhen.toml:1: \"events\" must be a table, [events], not integer", ""),
        (
            "redact = 1",
            "conf/everwhen.toml:1: \"redact\" must be a list of tables, [[redact]], not integer",
            "",
        ),
        ("[retention]\nage = true", "conf/everwhen.toml:2: \"age\" must be a duration such as", ""),
        ("[[redact]]\ndrop = []", "conf/everwhen.toml:1: [[redact]] needs \"topic\"", ""),
        (
            "[[redact]]\ntopic = \"a..b\"",
            "conf/everwhen.toml:2: \"topic\": pattern \"a..b\" has an empty word",
            "remove the extra dot",
        ),
        ("[[redact]]\ntopic = \"#\"\nmask = [\"payload\"]", "conf/everwhen.toml:3: \"mask\": ", ""),
        (
            "[[redact]]\ntopic = \"#\"\ndetectors = [\"iban\"]",
            "conf/everwhen.toml:3: \"detectors\" must be a list out of",
            "",
        ),
        (
            "[[attention]]\ntopic = \"#\"\nverdict = \"defer\"",
            "conf/everwhen.toml:3: \"verdict\" must be given together with \"until\"",
            "",
        ),
        (
            "[[attention]]\ntopic = \"#\"\nverdict = \"maybe\"",
            "conf/everwhen.toml:3: \"verdict\" must be admit, defer, boost or drop",
            "",
        ),
        (
            "[[attention]]\ntopic = \"#\"\nfilter = \"event.\"\nverdict = \"drop\"",
            "conf/everwhen.toml:3: \"filter\": ",
            "",
        ),
        (
            "[[schema]]\ntopic = \"#\"\nfile = \"none.json\"",
            "conf/everwhen.toml:3: \"file\" must be a readable JSON Schema",
            "conf/none.json",
        ),
        (
            "[[redact]]\ntopic = \"#\"",
            "conf/everwhen.toml:1: [[redact]] needs one of \"drop\", \"mask\", \"hash\" or \"detectors\"",
            "everwhen init",
        ),
        (
            "[[redact]]\ntopic = \"#\"\ndrop = [\"$.topic\"]",
            "conf/everwhen.toml:3: \"drop\": path \"$.topic\" reads \"topic\"",
            "begin it with $.payload",
        ),
        (
            "[[attention]]\ntopic = \"#\"\nrate = \"0/s\"\nverdict = \"drop\"",
            "conf/everwhen.toml:3: \"rate\" must be a rate above nothing",
            "",
        ),
        ("[events]\ndefault_space = \"a b\"", "conf/everwhen.toml:2: \"default_space\": ", ""),
        ("a = = 1", "conf/everwhen.toml:1: ", ""),
        ("listen = \"a\"\nlisten = \"b\"", "conf/everwhen.toml:2: duplicate key", ""),
    ];
    for (text, detail, hint) in table {
        let problem = settled(text, &[]).err().unwrap_or_else(|| panic!("{text:?} was accepted"));
        assert!(problem.detail().starts_with(detail), "{text:?}: {}", problem.detail());
        assert!(
            problem.hint_text().unwrap_or_default().contains(hint),
            "{text:?}: {:?}",
            problem.hint_text()
        );
        assert_eq!(problem.code().exit(), 2, "{text:?}");
    }
}

#[test]
fn an_empty_default_space_in_the_environment_refuses_events_without_a_space() {
    let space =
        |value| settled("", &[("EVERWHEN_EVENTS_DEFAULT_SPACE", value)]).unwrap().settings.default_space;
    assert_eq!((space(""), space("x")), (String::new(), "x".to_owned()));
    assert_eq!(
        settled("[events]\nmax_depth = 9", &[("EVERWHEN_EVENTS_MAX_DEPTH", "")]).unwrap().settings.max_depth,
        9
    );
}

#[test]
fn a_misspelt_variable_is_refused_with_the_one_that_was_meant() {
    let refused = |name: &str| check_variables([name.to_owned()].into_iter()).err();
    for (name, meant) in [
        ("EVERWHEN_EVENTS_MAX_DEPHT", "EVERWHEN_EVENTS_MAX_DEPTH"),
        ("EVERWHEN_RETENTION_FOREVER", "EVERWHEN_RETENTION_"),
        ("EVERWHEN_RETENTON_AGE", "EVERWHEN_RETENTION_AGE"),
        ("EVERWHEN_LISTN", "EVERWHEN_LISTEN"),
        ("EVERWHEN_TENANTS", "EVERWHEN_TENANT"),
    ] {
        let problem = refused(name).unwrap_or_else(|| panic!("{name} was accepted"));
        assert_eq!(problem.code(), Code::ConfigUnknownKey);
        assert!(problem.hint_text().unwrap().contains(meant), "{problem:?}");
    }
    for name in [
        "EVERWHEN_DATA",
        "EVERWHEN_TOPIC",
        "EVERWHEN_LOG",
        "EVERWHEN_LAYERS_TRACING",
        "EVERWHEN_HOME",
        "PATH",
    ] {
        assert_eq!(refused(name), None, "{name}");
    }
}
