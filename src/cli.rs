//! The command line: its flags are the settings, from their one definition.

use crate::client::{self, Task};
use crate::index_tool::{self, IndexCommand};
use crate::logs::{LogFormat, LogOptions};
use crate::settings::{DEFINITIONS, Definition, Kind, Preset, Sources, default_in_words};
use clap::builder::EnumValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// What the user asked for.
#[derive(Debug)]
pub enum Request {
    /// Run the server.
    Serve(Sources, LogOptions),
    /// Print the effective settings.
    Check(Sources),
    /// Speak to a running server.
    Client(Task),
    /// Look after an index that no server has open.
    Index(IndexCommand, LogOptions),
    /// Print completions for a shell.
    Completions(Shell),
    /// Print the man page.
    Man,
}

/// Reads the command line. The error prints itself, help and version included, and knows its exit code.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, clap::Error> {
    let matches = command().try_get_matches_from(arguments)?;
    match matches.subcommand() {
        Some(("serve", matches)) => Ok(Request::Serve(sources(matches), log_options(matches))),
        Some(("check", matches)) => Ok(Request::Check(sources(matches))),
        Some((name @ ("add" | "explain" | "top"), matches)) => {
            Ok(Request::Client(client::arguments::task(name, matches)))
        }
        Some(("index", matches)) => {
            Ok(Request::Index(IndexCommand::from_matches(matches), log_options(matches)))
        }
        Some(("completions", matches)) => Ok(Request::Completions(shell(matches))),
        _ => Ok(Request::Man),
    }
}

/// The completions of one shell.
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "urlserver", &mut text);
    text
}

/// The man page: one for all commands, with the settings of `serve` in it.
pub fn man() -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let all = Man::new(command());
    all.render_title(&mut text)?;
    all.render_name_section(&mut text)?;
    all.render_synopsis_section(&mut text)?;
    all.render_description_section(&mut text)?;
    commands_section().to_writer(&mut text)?;
    Man::new(serve()).render_options_section(&mut text)?;
    all.render_options_section(&mut text)?;
    all.render_version_section(&mut text)?;
    Ok(text)
}

/// clap's own section would refer to a page for each command.
fn commands_section() -> Roff {
    let mut section = Roff::new();
    section.control("SH", ["COMMANDS"]);
    for command in command().get_subcommands() {
        section.control("TP", []);
        section.text([bold(command.get_name())]);
        section.text([roman(command.get_about().map(|about| about.to_string()).unwrap_or_default())]);
    }
    for mut command in client::arguments::commands() {
        command.build();
        for argument in command.get_arguments().filter(|argument| argument.get_id() != "help") {
            section.control("TP", []);
            section.text([bold(format!("{} {argument}", command.get_name()))]);
            section.text([roman(argument.get_help().map(|help| help.to_string()).unwrap_or_default())]);
        }
    }
    section
}

const HOW_TO_GIVE: &str = "\
Every setting is a flag (--queue-count), an environment variable (URLSERVER_QUEUE_COUNT) and a key of the \
settings file (queue_count). Flag goes over environment, environment over file, file over default. Durations are \
seconds (0.5) or have a unit (500ms, 2m, 1h, 1d). The tables [alias], [[group]] and [dns_zones] are known to the \
file only.";

fn command() -> Command {
    Command::new("urlserver")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Decides which URL may be fetched now: a polite URL server for web crawlers")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(serve())
        .subcommand(check())
        .subcommands(client::arguments::commands())
        .subcommand(index_tool::command())
        .subcommand(Command::new("completions").about("Prints shell completions").arg(shell_argument()))
        .subcommand(Command::new("man").about("Prints the man page"))
        .args(log_arguments())
}

fn serve() -> Command {
    Command::new("serve").about("Runs the server").after_help(HOW_TO_GIVE).args(settings_arguments())
}

fn check() -> Command {
    Command::new("check")
        .about("Prints the effective settings and where each came from, or names every bad one")
        .after_help(HOW_TO_GIVE)
        .args(settings_arguments())
}

fn settings_arguments() -> Vec<Arg> {
    let config = Arg::new("config")
        .long("config")
        .env("URLSERVER_CONFIG")
        .hide_env_values(true)
        .value_name("FILE")
        .value_hint(ValueHint::FilePath)
        .value_parser(clap::value_parser!(PathBuf))
        .help("The settings file (TOML)");
    std::iter::once(config).chain(DEFINITIONS.iter().map(setting_argument)).collect()
}

fn setting_argument(definition: &'static Definition) -> Arg {
    // clap keeps names for the life of the process.
    let flag: &'static str = definition.flag().leak();
    let arg = Arg::new(definition.name)
        .long(flag)
        .help(help(definition, ""))
        .long_help(help(definition, &format!(". Must be {}", (definition.allowed)())))
        .help_heading(definition.heading)
        .value_name(definition.unit)
        .value_hint(if definition.unit == "FILE" { ValueHint::FilePath } else { ValueHint::Unknown })
        .allow_negative_numbers(true);
    match definition.kind {
        Kind::One | Kind::Secret => arg.action(ArgAction::Set),
        Kind::Many => arg.action(ArgAction::Append),
        Kind::Truth => arg.action(ArgAction::Set).num_args(0..=1).default_missing_value("true"),
    }
}

fn help(definition: &Definition, more: &str) -> String {
    let meaning = definition.meaning.trim().trim_end_matches('.');
    let several = if definition.preset == Preset::Empty { "; may be given several times" } else { "" };
    format!("{meaning}{several}{more} [default: {}]", default_in_words(definition)).replace('`', "")
}

fn log_arguments() -> [Arg; 2] {
    let format = Arg::new("log_format")
        .long("log-format")
        .env("URLSERVER_LOG_FORMAT")
        .value_name("text|json")
        .hide_possible_values(true)
        .value_parser(EnumValueParser::<LogFormat>::new())
        .default_value("text")
        .help("How log lines are written to stderr");
    let filter = Arg::new("log")
        .long("log")
        .env("RUST_LOG")
        .value_name("FILTER")
        .help("What is logged: a level, or target=level,… [default: info]");
    [format, filter].map(|arg| arg.global(true).hide_env_values(true).help_heading("Logs"))
}

fn shell_argument() -> Arg {
    Arg::new("shell").value_name("SHELL").required(true).value_parser(EnumValueParser::<Shell>::new())
}

fn sources(matches: &ArgMatches) -> Sources {
    let given = |definition: &Definition| {
        let items: Vec<String> = matches.get_many::<String>(definition.name)?.cloned().collect();
        Some((definition.name.to_owned(), items))
    };
    Sources {
        flags: DEFINITIONS.iter().filter_map(given).collect(),
        environment: environment(),
        file: matches.get_one::<PathBuf>("config").cloned(),
    }
}

/// Settings are Unicode: of other text only what is replaced remains, and is refused or not found.
fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
        .filter(|(name, _)| name.starts_with("URLSERVER_"))
        .collect()
}

fn log_options(matches: &ArgMatches) -> LogOptions {
    let filter = matches.get_one::<String>("log").filter(|filter| !filter.is_empty());
    LogOptions {
        format: matches.get_one::<LogFormat>("log_format").copied().unwrap_or_default(),
        filter: filter.map_or_else(|| "info,hickory_net=error,hickory_resolver=error".into(), String::clone),
    }
}

fn shell(matches: &ArgMatches) -> Shell {
    matches.get_one::<Shell>("shell").copied().unwrap_or(Shell::Bash)
}
