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
