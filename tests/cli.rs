//! The real binary, from outside: what it prints, where, and how it exits.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

const FAILED: i32 = 1;
const REFUSED: i32 = 2;

/// Runs from the project's root, in an environment that says nothing about us.
fn urlserver(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_urlserver"));
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).env_remove("RUST_LOG");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("URLSERVER_") {
            command.env_remove(name);
        }
    }
    command
}

fn run(arguments: &[&str]) -> Output {
    urlserver(arguments).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// What a clean run prints.
fn prints(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", err(&output));
    out(&output)
}

/// What is said of arguments that cannot be used; stdout stays empty.
fn refuses(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(REFUSED), "{arguments:?}: {}", err(&output));
    assert_eq!(out(&output), "");
    err(&output)
}

/// The line of one setting in what `check` prints.
fn setting(text: &str, name: &str) -> String {
    let start = format!("{name} = ");
    text.lines()
        .find(|line| line.starts_with(&start))
        .unwrap_or_else(|| panic!("{name} in\n{text}"))
        .to_owned()
}

#[test]
fn version_and_help_are_everywhere() {
    assert_eq!(prints(&["--version"]), format!("urlserver {}\n", env!("CARGO_PKG_VERSION")));
    assert!(prints(&["--help"]).contains("serve"));
    for command in ["serve", "check", "completions", "man"] {
        assert!(prints(&[command, "--help"]).contains("Usage: urlserver"), "{command}");
    }
    let help = prints(&["serve", "--help"]);
    for word in ["--queue-count", "Politeness:", "--log-format", "[default: same as queue_len]"] {
        assert!(help.contains(word), "{word}");
    }
}

#[test]
fn bad_usage_exits_2() {
    refuses(&[]);
    refuses(&["sreve"]);
    assert!(refuses(&["serve", "--queue-cuont", "1"]).contains("--queue-cuont"));
    refuses(&["serve", "extra"]);
    refuses(&["completions", "no-such-shell"]);
    refuses(&["serve", "--log-format", "xml"]);
    assert!(refuses(&["serve", "--log", "a=b=c"]).contains("log = a=b=c"));
}

#[test]
fn completions_and_man_page_know_the_settings() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(prints(&["completions", shell]).contains("req-host-per-sec"), "{shell}");
    }
    let page = prints(&["man"]);
    assert!(page.contains(".TH urlserver"), "{page}");
    assert!(page.contains("queue\\-count") && page.contains("POLITENESS"));
}

#[test]
fn check_prints_the_demo_with_its_origins() {
    let text = prints(&["check", "--config", "fixtures/demo.toml"]);
    assert!(setting(&text, "seeds").starts_with("seeds = [\"fixtures/demo-seeds.txt\"]"));
    assert!(setting(&text, "allow_private").contains("true"));
    assert!(setting(&text, "allow_private").contains("# fixtures/demo.toml:"));
    assert!(setting(&text, "queue_count").ends_with("# default"));
}

#[test]
fn what_check_prints_can_be_checked() {
    let scratch = tempfile::tempdir().unwrap();
    let first = prints(&["check", "--config", "fixtures/demo.toml", "--instance", "me"]);
    let path = scratch.path().join("again.toml");
    std::fs::write(&path, &first).unwrap();
    let second = prints(&["check", "--config", path.to_str().unwrap()]);
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(" # ").next().unwrap().trim_end().to_owned()).collect()
    };
    assert_eq!(values(&first), values(&second));
}

#[test]
fn flag_over_environment_over_file_over_default() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("x.toml");
    std::fs::write(&path, "Queue_Count = 11\nqueue_len = 12\nmax_attempts = 13\n").unwrap();
    let output = urlserver(&["check", "--config", path.to_str().unwrap(), "--queue-count", "31"])
        .env("URLSERVER_QUEUE_COUNT", "21")
        .env("URLSERVER_QUEUE_LEN", "22")
        .output()
        .unwrap();
    let text = out(&output);
    assert!(setting(&text, "queue_count").starts_with("queue_count = 31 "), "{text}");
    assert!(setting(&text, "queue_count").ends_with("# flag --queue-count"));
    assert!(setting(&text, "queue_len").starts_with("queue_len = 22 "));
    assert!(setting(&text, "queue_len").ends_with("# environment variable URLSERVER_QUEUE_LEN"));
    assert!(setting(&text, "max_attempts").starts_with("max_attempts = 13 "));
    assert!(setting(&text, "max_attempts").ends_with("x.toml:3"));
    assert!(setting(&text, "fail_window").ends_with("# default"));
}

#[test]
fn a_truth_may_stand_alone_or_take_a_value() {
    let private = |arguments: &[&str]| {
        let text = prints(&[&["check"], arguments].concat());
        setting(&text, "allow_private").contains("true")
    };
    assert!(private(&["--allow-private"]));
    assert!(private(&["--allow-private=true"]));
    assert!(private(&["--allow-private", "true"]));
    assert!(private(&["--allow-private", "--queue-len", "5"]));
    assert!(!private(&["--allow-private=false"]));
    assert!(!private(&["--allow-private", "false"]));
    assert!(!private(&[]));
    assert!(refuses(&["check", "--allow-private=yes"]).contains("allow_private = yes"));
}

#[test]
fn seeds_may_be_given_several_times() {
    let text = prints(&["check", "--seeds", "a", "--seeds", "-"]);
    assert!(setting(&text, "seeds").starts_with("seeds = [\"a\", \"-\"]"), "{text}");
}

#[test]
fn every_bad_setting_is_named_by_check_and_by_serve() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("bad.toml");
    std::fs::write(&path, "queue_cuont = 1\n\nqueue_len = 0\n[alias]\na = ['x']\nb = ['X']\n").unwrap();
    for command in ["check", "serve"] {
        let arguments = [command, "--config", path.to_str().unwrap(), "--delay-min", "-1", "--probe", "ping"];
        let output = urlserver(&arguments).env("URLSERVER_HTTP", "here").output().unwrap();
        assert_eq!(output.status.code(), Some(REFUSED));
        assert_eq!(out(&output), "");
        let text = err(&output);
        for problem in [
            "bad.toml:1): there is no such setting",
            "bad.toml:3): must be a whole number from 1 to",
            "bad.toml:6): must be in one alias only",
            "delay_min = -1 (flag --delay-min): must be",
            "probe = ping (flag --probe): must be `url` or `connect`",
            "http = here (environment variable URLSERVER_HTTP): must be",
        ] {
            assert!(text.contains(problem), "{command}: {problem}\n{text}");
        }
    }
}

#[test]
fn a_settings_file_that_cannot_be_used_exits_2() {
    assert!(refuses(&["check", "--config", "no/such.toml"]).contains("no/such.toml"));
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("broken.toml");
    std::fs::write(&path, "queue_len = 5\nqueue_count = \n").unwrap();
    assert!(refuses(&["serve", "--config", path.to_str().unwrap()]).contains("broken.toml:2"));
}

#[test]
fn a_database_that_cannot_be_meant_is_refused() {
    for command in [&["serve", "--listen", "none", "--http", "none", "--index"][..], &["index", "migrate"]] {
        let text = refuses(&[command, &["postgres://localhost/x?sslmode=sometimes"]].concat());
        assert!(text.contains("sslmode=sometimes is unknown"), "{text}");
    }
}

#[test]
fn secrets_are_not_shown() {
    let text = prints(&["check", "--spider-token", "hush-hush"]);
    assert!(text.contains("spider_token is not shown") && !text.contains("hush-hush"));
}

/// Fails at run time, after the settings were taken: the address to listen on is in use.
#[test]
fn logs_go_to_stderr_in_the_format_asked_for() {
    let in_use = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = in_use.local_addr().unwrap().to_string();
    let nowhere = ["--listen", &address, "--http", "none", "--index", "memory", "--recrawl-after", "1d"];
    let text = run(&[&["serve"], &nowhere[..]].concat());
    assert_eq!(text.status.code(), Some(FAILED));
    assert_eq!(out(&text), "");
    assert!(
        err(&text).contains(" WARN ") && err(&text).contains("recrawl_after has no effect"),
        "{}",
        err(&text)
    );
    assert!(!err(&text).contains('\u{1b}'));
    let json = err(&run(&[&["serve", "--log-format", "json"], &nowhere[..]].concat()));
    let line = json.lines().find(|line| line.contains("recrawl_after has no effect")).unwrap();
    assert!(line.starts_with('{') && line.contains("\"WARN\""), "{line}");
    let quiet = err(&run(&[&["--log", "off", "serve"], &nowhere[..]].concat()));
    assert!(!quiet.contains("recrawl_after has no effect"), "{quiet}");
}
