//! Settings: each defined once, in `table.rs`, and read from flags, environment and a TOML file.
//!
//! What is refused is refused by name, all of it at once. Not here: any meaning. A setting that has come
//! through is a plain value of a type that cannot be wrong.

mod file;
mod groups;
mod problem;
mod rules;
mod show;
mod sources;
mod table;
#[cfg(test)]
mod tests;
mod units;
mod values;

pub use groups::{Alias, Cidr, Group, HostPattern};
pub use problem::{Origin, Problem, SettingsError};
pub use rules::NOT_YET;
pub use show::{default_in_words, markdown_table};
pub use sources::Sources;
pub use table::{DEFINITIONS, Definition, Preset, QUEUE_COUNT_MAX, QUEUE_LEN_MAX, Settings};
pub(crate) use units::duration;
pub use units::{DURATION_MAX, Kind, Rate};
pub use values::{Dns, Family, IndexAt, Probe, Robots, Secret};

use sources::{Gathered, Given};

/// Settings, and where each of them came from.
#[derive(Clone, Debug)]
pub struct Effective {
    /// The settings.
    pub settings: Settings,
    /// What the user should know: settings that were given and have no effect.
    pub warnings: Vec<String>,
    given: Vec<Given>,
}

impl Settings {
    /// Reads the settings file if one is named, and puts environment and flags over it.
    pub fn load(sources: &Sources) -> Result<Effective, SettingsError> {
        understand(Gathered::from_sources(sources))
    }

    /// The defaults, but for these: `("queue_count", "10")`, written as flags are.
    pub fn from_pairs(pairs: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let flags = pairs.iter().map(|(name, text)| (name.to_string(), vec![text.to_string()])).collect();
        Settings::load(&Sources { flags, ..Sources::default() }).map(|effective| effective.settings)
    }

    /// The defaults, but for what a settings file with this text says.
    pub fn from_toml(text: &str) -> Result<Settings, SettingsError> {
        understand(Gathered::from_text(text)).map(|effective| effective.settings)
    }

    /// The spider to dial, if there is one.
    pub fn spider_to_dial(&self) -> Option<(&str, u16)> {
        Some((self.spider_host.as_deref()?, self.spider_port?.get()))
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::from_pairs(&[]).expect("built-in defaults are allowed")
    }
}

fn understand(mut gathered: Gathered) -> Result<Effective, SettingsError> {
    let mut settings = table::read(&mut gathered);
    let tables = std::mem::take(&mut gathered.tables);
    settings.aliases = tables.aliases;
    settings.groups = tables.groups;
    settings.dns_zones = tables.dns_zones;
    rules::apply(&mut settings, &mut gathered);
    if !gathered.problems.is_empty() {
        return Err(SettingsError { problems: gathered.problems });
    }
    let warnings = rules::without_effect(&settings, &gathered);
    Ok(Effective { settings, warnings, given: gathered.given })
}
