//! What must hold between settings that are each allowed alone, and what this version cannot do yet.

use super::problem::{Origin, Problem};
use super::sources::Gathered;
use super::table::Settings;
use super::units::Reader;
use super::values::{IndexAt, Secret, Token};
use std::cmp::Ordering;
use std::path::Path;
use std::time::Duration;

/// Settings that are understood but change nothing in this version.
pub const NOT_YET: &[(&str, &str)] =
    &[("recrawl_after", "only an index in a directory (`dir:`) takes a finished URL again")];

/// Most active cells: a cell is named by 32 bits in a TRANS_ID.
const CELLS_MAX: u64 = 1 << 32;

/// Checks `settings`, and reads the secrets that are kept in files.
pub(super) fn apply(settings: &mut Settings, gathered: &mut Gathered) {
    let mut rules = Rules { gathered };
    rules.queues(settings);
    rules.spider_to_dial(settings);
    rules.order("delay_min", settings.delay_min, "delay_max", settings.delay_max);
    rules.order("dns_ttl_min", settings.dns_ttl_min, "dns_ttl_max", settings.dns_ttl_max);
    rules.order("claim_expiry_1", settings.claim_expiry_1, "claim_expiry_2", settings.claim_expiry_2);
    rules.group_delays(settings);
    rules.token("spider_token", "spider_token_file", &mut settings.spider_token, &settings.spider_token_file);
    rules.token("http_token", "http_token_file", &mut settings.http_token, &settings.http_token_file);
}

/// Warnings about settings that were given and have no effect.
pub(super) fn without_effect(settings: &Settings, gathered: &Gathered) -> Vec<String> {
    let given = |name: &str| gathered.of(name).origin != Origin::Default;
    NOT_YET
        .iter()
        .filter(|(name, _)| match *name {
            "recrawl_after" => given(name) && !matches!(settings.index, IndexAt::Dir(_)),
            _ => given(name),
        })
        .map(|(name, what)| format!("{name} has no effect in this version: {what}"))
        .collect()
}

struct Rules<'a> {
    gathered: &'a mut Gathered,
}

impl Rules<'_> {
    fn queues(&mut self, settings: &Settings) {
        let concurrent = settings.req_host_concurrent.get();
        if settings.queue_len < concurrent {
            self.refuse(&["queue_len", "req_host_concurrent"], "queue_len must not be the smaller one");
        }
        let cells = u64::from(settings.queue_count) * u64::from(concurrent);
        if cells > CELLS_MAX {
            let why = format!("their product must be at most {CELLS_MAX}");
            self.refuse(&["queue_count", "req_host_concurrent"], &why);
        }
    }

    fn spider_to_dial(&mut self, settings: &Settings) {
        if settings.spider_host.is_some() != settings.spider_port.is_some() {
            self.refuse(&["spider_host", "spider_port"], "give both or neither");
        }
    }

    fn order(&mut self, least_name: &str, least: Duration, most_name: &str, most: Duration) {
        if least > most {
            self.refuse(&[least_name, most_name], "the first must not be the greater one");
        }
    }

    fn group_delays(&mut self, settings: &Settings) {
        for group in &settings.groups {
            let least = group.delay_min.unwrap_or(settings.delay_min);
            let most = group.delay_max.unwrap_or(settings.delay_max);
            let given = group.delay_min.is_some() || group.delay_max.is_some();
            if given && least > most {
                let problem = format!(
                    "group.{}: delay_min = {least:?} and delay_max = {most:?}: the first must not be the greater one",
                    group.name
                );
                self.gathered.problems.push(Problem::Together(problem));
            }
        }
    }

    /// The stronger of token and file wins; of two equally strong ones neither is meant.
    fn token(
        &mut self,
        name: &'static str,
        file_name: &'static str,
        token: &mut Option<Secret>,
        file: &Option<impl AsRef<Path>>,
    ) {
        let Some(path) = file else { return };
        let strength = |name| self.gathered.of(name).origin.strength();
        match strength(name).cmp(&strength(file_name)) {
            Ordering::Greater => {}
            Ordering::Equal if token.is_some() => self.refuse(&[name, file_name], "give one of them"),
            Ordering::Equal | Ordering::Less => *token = self.token_in(file_name, path.as_ref()),
        }
    }

    fn token_in(&mut self, file_name: &str, path: &Path) -> Option<Secret> {
        let content = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let must_hold = || format!("the file must hold {}", Token::allowed());
        match content.and_then(|content| Token::in_file(&content).ok_or_else(must_hold)) {
            Ok(secret) => Some(secret),
            Err(why) => {
                let (setting, path) = (file_name.into(), path.display().to_string());
                self.gathered.problems.push(Problem::Unreadable { setting, path, why });
                None
            }
        }
    }

    /// Names settings that do not go together, unless one of them was refused on its own already.
    fn refuse(&mut self, names: &[&str], why: &str) {
        if names.iter().any(|name| self.gathered.refused.contains(name)) {
            return;
        }
        let parts: Vec<String> = names.iter().map(|name| self.shown(name)).collect();
        self.gathered.problems.push(Problem::Together(format!("{}: {why}", parts.join(" and "))));
    }

    fn shown(&self, name: &str) -> String {
        let given = self.gathered.of(name);
        if name.ends_with("_token") {
            return format!("{name} ({})", given.origin);
        }
        format!("{name} = {} ({})", given.items.join(","), given.origin)
    }
}
