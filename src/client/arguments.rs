//! The command lines of these commands.

use super::{Remote, Task};
use clap::{Arg, ArgMatches, Command, ValueHint};
use std::path::PathBuf;

/// `add`, `explain` and `top`.
pub fn commands() -> [Command; 3] {
    let files = Arg::new("files")
        .value_name("FILE")
        .num_args(0..)
        .value_hint(ValueHint::FilePath)
        .value_parser(clap::value_parser!(PathBuf))
        .default_value("-")
        .help("Files of URLs, a line each: URL or DOC_ID URL; - is the standard input");
    let url = Arg::new("url").value_name("URL").required(true).value_hint(ValueHint::Url).help("Which URL");
    [
        Command::new("add").about("Feeds URLs to a running server").arg(files),
        Command::new("explain")
            .about("Says why a URL has, or has not, been sent, and when it will be")
            .arg(url),
        Command::new("top").about("Shows how a running server is doing, live on a terminal"),
    ]
    .map(|command| command.args(remote_arguments()))
}

fn remote_arguments() -> [Arg; 2] {
    let http = Arg::new("http")
        .long("http")
        .env("URLSERVER_HTTP")
        .value_name("ADDR")
        .value_parser(address)
        .default_value("127.0.0.1:4333")
        .help("Where the server's HTTP interface is");
    let token = Arg::new("token")
        .long("token")
        .env("URLSERVER_HTTP_TOKEN")
        .value_name("TOKEN")
        .value_parser(token)
        .help("The server's http_token; better given in the environment, where others do not see it");
    [http, token].map(|argument| argument.hide_env_values(true))
}

/// `HOST:PORT`, also as `http://HOST:PORT/`.
fn address(text: &str) -> Result<String, String> {
    let bare = text.strip_prefix("http://").unwrap_or(text);
    let bare = bare.strip_suffix('/').unwrap_or(bare);
    let port = bare.rsplit_once(':').filter(|(host, _)| !host.is_empty() && !host.contains(['/', '@', ' ']));
    match port.and_then(|(_, port)| port.parse::<u16>().ok()) {
        Some(1..) => Ok(bare.to_owned()),
        Some(0) | None => Err("must be HOST:PORT".to_owned()),
    }
}

fn token(text: &str) -> Result<String, String> {
    let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { Ok(text.to_owned()) } else { Err("must be printable ASCII without space".to_owned()) }
}

/// What a command line asks for.
pub fn task(name: &str, matches: &ArgMatches) -> Task {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let remote = Remote { address: text("http").unwrap_or_default(), token: text("token") };
    match name {
        "add" => {
            let files = matches.get_many("files").unwrap_or_default().cloned().collect();
            Task::Add(remote, files)
        }
        "explain" => Task::Explain(remote, text("url").unwrap_or_default()),
        _ => Task::Top(remote),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port() {
        for good in ["127.0.0.1:4333", "http://127.0.0.1:4333", "http://localhost:4333/", "[::1]:4333"] {
            assert!(address(good).is_ok(), "{good}");
        }
        for bad in ["", "none", ":1", "a", "a:", "a:0", "a:65536", "https://a:1", "http://a:1/x", "u@a:1"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
