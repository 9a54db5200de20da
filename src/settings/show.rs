//! Settings for people to read: as TOML with the origin of each, and as the README's table.

use super::Effective;
use super::groups::Group;
use super::problem::Origin;
use super::sources::Given;
use super::table::{DEFINITIONS, Definition, Preset};
use super::units::{Kind, NONE, duration_text};
use super::values::Robots;
use std::fmt::Write;

impl Effective {
    /// The settings as a file that can be read again, each with where it came from. Secrets are not shown.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        let mut heading = "";
        for (definition, given) in DEFINITIONS.iter().zip(&self.given) {
            if definition.heading != heading {
                heading = definition.heading;
                let gap = if text.is_empty() { "" } else { "\n" };
                text += &format!("{gap}# {heading}\n");
            }
            text += &setting(definition, given);
        }
        text + &self.tables()
    }

    fn tables(&self) -> String {
        let mut text = String::new();
        if !self.settings.dns_zones.is_empty() {
            text += "\n[dns_zones]\n";
        }
        for (zone, servers) in &self.settings.dns_zones {
            text += &format!("{} = {}\n", quoted(zone), list(servers));
        }
        if !self.settings.aliases.is_empty() {
            text += "\n[alias]\n";
        }
        for alias in &self.settings.aliases {
            text += &format!("{} = {}\n", quoted(&alias.name), list(&alias.hosts));
        }
        for one in &self.settings.groups {
            text += &group(one);
        }
        text
    }
}

/// Whether the text is a URL with a password in it.
fn has_password(text: &str) -> bool {
    let in_user = text.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
    let in_query = || text.split(['?', '&']).skip(1).any(|pair| pair.starts_with("password="));
    in_user.is_some_and(|(user, _)| user.contains(':') && !user.contains('/')) || in_query()
}

fn setting(definition: &Definition, given: &Given) -> String {
    let name = definition.name;
    let secret = definition.kind == Kind::Secret && given.items != [NONE];
    if secret || given.items.iter().any(|item| has_password(item)) {
        return format!("# {name} is not shown  # {}\n", given.origin);
    }
    let value = match (&given.items[..], definition.kind) {
        ([one], Kind::One | Kind::Truth | Kind::Secret) => scalar(one),
        ([one], Kind::Many) if !matches!(definition.preset, Preset::Empty) => scalar(one),
        (items, _) => list(items),
    };
    let origin = match (&given.origin, definition.preset) {
        (Origin::Default, Preset::SameAs(_) | Preset::Times(..) | Preset::Random) => {
            format!("default: {}", default_in_words(definition))
        }
        (origin, _) => origin.to_string(),
    };
    format!("{:<40} # {origin}\n", format!("{name} = {value}"))
}

fn group(group: &Group) -> String {
    let mut text = format!("\n[[group]]\nname = {}\n", quoted(&group.name));
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            text += &format!("{key} = {value}\n");
        }
    };
    put("hosts", (!group.hosts.is_empty()).then(|| list(&group.hosts)));
    put("cidr", (!group.cidr.is_empty()).then(|| list(&group.cidr)));
    put("concurrent", group.concurrent.map(|most| most.map_or("inf".into(), |most| most.to_string())));
    put("per_sec", group.per_sec.map(|rate| format!("{:?}", rate.per_sec())));
    put("delay_factor", group.delay_factor.map(|factor| factor.to_string()));
    put("delay_min", group.delay_min.map(duration_text));
    put("delay_max", group.delay_max.map(duration_text));
    put("robots", group.robots.map(|robots| quoted(if robots == Robots::Obey { "obey" } else { "ignore" })));
    text
}

/// Numbers and truths as TOML knows them; everything else in quotes, which is read as well.
fn scalar(text: &str) -> String {
    let is_whole = text.parse::<u64>().is_ok_and(|n| n.to_string() == text);
    let is_number = text.parse::<f64>().is_ok_and(|x| format!("{x:?}") == text);
    if is_whole || is_number || matches!(text, "true" | "false") { text.into() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn list<T: ToString>(items: &[T]) -> String {
    let items: Vec<_> = items.iter().map(|item| quoted(&item.to_string())).collect();
    format!("[{}]", items.join(", "))
}

/// The default in words.
pub fn default_in_words(definition: &Definition) -> String {
    match definition.preset {
        Preset::Text(text) => text.replace(env!("CARGO_PKG_VERSION"), "VERSION"),
        Preset::Empty => "none".into(),
        Preset::SameAs(other) => format!("same as {other}"),
        Preset::Times(times, other) => format!("{times} × {other}"),
        Preset::Random => "random".into(),
    }
}

/// The settings file's tables: name and meaning.
const TABLES: &[(&str, &str)] = &[
    (
        "[dns_zones]",
        "`\"corp.example\" = [\"10.0.0.1:53\"]`: names in this domain are asked of these servers.",
    ),
    ("[alias]", "`kommune = [\"rana.kommune.no\", \"vefsn.kommune.no\"]`: these hosts share one politeness."),
    (
        "[[group]]",
        "`name`, and members as `hosts` (names; `*.example.com` = every name below) or `cidr` lists; own \
         `concurrent`, `per_sec`, `delay_factor`, `delay_min`, `delay_max`, `robots`. `concurrent = inf` with \
         `per_sec = inf` over a `cidr` lifts the IP limit there (CDN).",
    ),
];

/// The README's table of settings.
pub fn markdown_table() -> String {
    let mut text = String::from("| setting | default | allowed | meaning |\n|---|---|---|---|\n");
    for d in DEFINITIONS {
        let allowed = (d.allowed)().replace('|', "\\|");
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "| `{}` | {} | {allowed} | {} |", d.name, markdown_preset(d), d.meaning.trim());
    }
    for (name, meaning) in TABLES {
        let _ = writeln!(text, "| `{name}` | | table, in the file only | {meaning} |");
    }
    text
}

fn markdown_preset(definition: &Definition) -> String {
    let words = default_in_words(definition);
    match definition.preset {
        Preset::Text(_) => format!("`{words}`"),
        Preset::SameAs(other) | Preset::Times(_, other) => words.replace(other, &format!("`{other}`")),
        Preset::Empty | Preset::Random => words,
    }
}
