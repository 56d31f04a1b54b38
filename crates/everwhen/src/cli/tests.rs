//! The tree of commands teaches: every command and argument has words, every command examples, and they are true.

use super::*;

/// Every command with the words that lead to it.
fn walk(command: &clap::Command, path: &str, each: &mut dyn FnMut(&clap::Command, &str)) {
    each(command, path);
    for inner in command.get_subcommands() {
        walk(inner, &format!("{path} {}", inner.get_name()), each);
    }
}

fn help(command: &clap::Command) -> String {
    command.get_after_long_help().map(ToString::to_string).unwrap_or_default()
}

/// The calls of ourselves in a command's examples, word by word as a shell would pass them.
fn examples(command: &clap::Command) -> Vec<Vec<String>> {
    let help = help(command);
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    lines.flat_map(|line| calls(line.trim())).collect()
}

/// Cuts a line at `|`, `&&`, `>` and `$(`, outside quotes, and keeps the parts that begin with our name.
fn calls(line: &str) -> Vec<Vec<String>> {
    let (mut parts, mut words) = (Vec::new(), Vec::new());
    let (mut word, mut quote, mut quoted) = (String::new(), None, false);
    for c in line.chars().chain([' ']) {
        match (quote, c) {
            (None, '\'' | '"') => (quote, quoted) = (Some(c), true),
            (Some(open), _) if open == c => quote = None,
            (Some(_), _) => word.push(c),
            (None, ' ' | '|' | '&' | '>' | '(' | ')') => {
                if quoted || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                quoted = false;
                if c != ' ' {
                    parts.push(std::mem::take(&mut words));
                }
            }
            (None, _) => word.push(c),
        }
    }
    parts.push(words);
    parts.retain(|part| part.first().is_some_and(|first| first == "everwhen"));
    parts
}

/// One of its own that is called like one that stands everywhere would be taken for it: `tasks complete TOKEN` for `--token`.
#[test]
fn no_argument_hides_one_that_stands_everywhere() {
    let tree = tree();
    let everywhere: Vec<&clap::Arg> = tree.get_arguments().filter(|arg| arg.is_global_set()).collect();
    assert!(everywhere.len() > 5);
    walk(&tree, "everwhen", &mut |command, path| {
        for arg in command.get_arguments().filter(|arg| !arg.is_global_set()) {
            let hides = everywhere.iter().any(|other| other.get_id() == arg.get_id());
            assert!(!hides, "{path}: {}", arg.get_id());
        }
    });
}

#[test]
fn every_command_and_every_argument_has_words() {
    let tree = tree();
    tree.clone().debug_assert();
    walk(&tree, "everwhen", &mut |command, path| {
        assert!(command.get_about().is_some(), "{path} has no about");
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let name = arg.get_id();
            assert!(arg.get_help().is_some_and(|help| !help.to_string().is_empty()), "{path}: {name}");
        }
    });
}

#[test]
fn every_command_shows_examples_of_itself_that_are_understood() {
    let tree = tree();
    walk(&tree, "everwhen", &mut |command, path| {
        if path == "everwhen" {
            return;
        }
        let examples = examples(command);
        let of_itself = examples.iter().any(|words| words.join(" ").starts_with(path));
        assert!(of_itself, "{path} has no example of itself: {}", help(command));
        for words in examples {
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{path}: {words:?}\n{error}");
            }
        }
    });
}

fn told(words: &[&str]) -> Problem {
    let error = Cli::try_parse_from([&["everwhen"], words].concat()).err().unwrap();
    usage(&error, &words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
}

#[test]
fn what_was_misspelt_is_told_the_nearest() {
    for (words, hint) in [
        (&["pubish"][..], "publish"),
        (&["publish", "a", "{}", "--kye", "x"], "did you mean \"--key\"?"),
        (&["publish", "a", "{}", "--jsno"], "did you mean \"--json\"?"),
        (&["groups", "put", "g", "--patern", "a"], "did you mean \"--pattern\"?"),
        (&["groups", "pull", "g", "--colour", "red"], "everwhen groups pull --help lists the flags"),
        (&["groups", "pull", "g", "--wait", "soon"], "everwhen groups pull --help shows examples"),
        (&["publish", "a", "{}", "--ttl", "soon"], "everwhen publish --help shows examples"),
    ] {
        let problem = told(words);
        assert_eq!(problem.code(), Code::UsageInvalid);
        assert!(problem.hint_text().unwrap().contains(hint), "{words:?}: {problem:?}");
    }
    assert!(told(&["publish", "a", "{}", "--ttl", "soon"]).detail().contains("30s"));
    let redrive = told(&["dead-letters", "redrive", "g"]);
    for way in ["--all", "--position", "--filter"] {
        assert!(redrive.detail().contains(way), "{redrive:?}");
    }
}

/// Commands that change nothing, or only what is recorded anyway, or nothing that a server holds.
const NO_ACTS: &str = "init, serve, publish, tail, events list, events get, events deferred, events lineage, groups list, groups get, \
    groups pull, groups ack, groups nack, groups extend, groups reject, plan, entity get, entity put, entity patch, entity rm, \
    entity list, entity history, entity watch, entity import, query, mutate, automations list, automations get, automations next, \
    runs list, runs get, runs start, waits list, tasks list, tasks poll, tasks heartbeat, tasks complete, tasks fail, \
    subscriptions list, subscriptions show, hooks list, push list, push show, tokens list, tenants list, tenants show, mcp, \
    secret list, space list, audit list, audit export, audit verify, explain event, explain automation, explain run, call, \
    backtest, simulate, dead-letters list, replay, drain, verify, salvage, export, restore, doctor, db, check, test, fmt, \
    schema, profiles set, profiles list, profiles use, profiles rm, completions, man";

#[test]
fn every_command_that_administers_is_an_act_under_the_name_of_its_route() {
    use crate::reach::audit::{ACTS, act_of};
    let none: Vec<&str> = NO_ACTS.split(", ").collect();
    walk(&tree(), "", &mut |command, path| {
        let path = path.trim_start();
        let tries = path.starts_with("try") || path.starts_with("bench");
        if command.has_subcommands() || path.is_empty() || tries {
            return;
        }
        let named = act_of(path).is_some();
        assert_ne!(named, none.contains(&path), "\"{path}\" is an act, or is listed as none");
    });
    for (command, method, path) in ACTS {
        assert!(act_of(command).is_some(), "{command}: {method} {path} is no act");
        let words: Vec<String> =
            command.split(' ').filter(|word| *word != "--into").map(str::to_owned).collect();
        assert_eq!(
            meant(&tree(), &words).1,
            format!("everwhen {}", words.join(" ")),
            "there is such a command"
        );
    }
    let named = |command: &str| act_of(command).unwrap_or_default();
    assert_eq!(named("tokens revoke"), "tokens.delete");
    assert_eq!(named("secret set"), "secrets.put");
    assert_eq!(named("space seal"), "spaces.seal");
    assert_eq!(named("tenants quota"), "tenants.quota.put");
    assert_eq!(named("dead-letters redrive"), "groups.dead-letters.redrive");
}

#[test]
fn a_command_is_known_by_what_was_matched_and_not_by_words_that_are_called_like_one() {
    let of = |line: &str| named(&tree().try_get_matches_from(line.split(' ')).unwrap()).command;
    assert_eq!(of("everwhen --data groups tokens list"), "tokens list");
    assert_eq!(of("everwhen groups put pause --pattern a.#"), "groups put");
    assert_eq!(of("everwhen runs show run_1"), "runs get");
    assert_eq!(of("everwhen replay --from 1"), "replay");
    assert_eq!(of("everwhen replay --from 1 --into g"), "replay --into");
    let path = |line: &str| {
        let Called { command, subject } = named(&tree().try_get_matches_from(line.split(' ')).unwrap());
        crate::reach::audit::path_of(&command, subject.as_deref()).unwrap_or_default()
    };
    assert_eq!(path("everwhen --json groups put a/b --pattern x.#"), "/v1/groups/a%2Fb");
    assert_eq!(path("everwhen erase 42 43"), "/v1/erase");
    assert_eq!(path("everwhen tokens revoke --data d tok_1"), "/v1/tokens/tok_1");
}
