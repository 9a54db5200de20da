//! Flag over environment over file over default: who gave each setting its text.

use super::file::{Content, Entry, File};
use super::groups::Tables;
use super::problem::{Origin, Problem};
use super::table::{DEFINITIONS, Definition, Preset, Texts};
use super::units::{DURATION_MAX, Kind, Reader, Time, duration_text};
use std::path::PathBuf;

/// What the user said, before anything is understood.
#[derive(Clone, Default, Debug)]
pub struct Sources {
    /// Settings by name (`queue_count`), each with its values in order.
    pub flags: Vec<(String, Vec<String>)>,
    /// Environment variables; those that do not begin with `URLSERVER_` are ignored.
    pub environment: Vec<(String, String)>,
    /// The settings file.
    pub file: Option<PathBuf>,
}

/// One setting's text and where it came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Given {
    pub(super) items: Vec<String>,
    pub(super) origin: Origin,
}

/// The text of every setting, in the order of [`DEFINITIONS`]; what was refused.
pub(super) struct Gathered {
    pub(super) given: Vec<Given>,
    pub(super) tables: Tables,
    pub(super) problems: Vec<Problem>,
    /// Names of settings whose text was refused.
    pub(super) refused: Vec<&'static str>,
}

impl Gathered {
    pub(super) fn from_sources(sources: &Sources) -> Gathered {
        let mut gathered = Gathered::empty();
        if let Some(path) = &sources.file {
            let name = path.display().to_string();
            match std::fs::read_to_string(path) {
                Ok(text) => gathered.take_file(&name, &text),
                Err(error) => gathered.problems.push(Problem::Unreadable {
                    setting: "config".into(),
                    path: name,
                    why: error.to_string(),
                }),
            }
        }
        gathered.take_environment(&sources.environment);
        gathered.take_flags(&sources.flags);
        gathered.follow_others();
        gathered
    }

    /// A file's text alone.
    pub(super) fn from_text(text: &str) -> Gathered {
        let mut gathered = Gathered::empty();
        gathered.take_file("settings.toml", text);
        gathered.follow_others();
        gathered
    }

    fn empty() -> Gathered {
        Gathered {
            given: DEFINITIONS
                .iter()
                .map(|d| Given { items: built_in(d), origin: Origin::Default })
                .collect(),
            tables: Tables::default(),
            problems: Vec::new(),
            refused: Vec::new(),
        }
    }

    pub(super) fn of(&self, name: &str) -> &Given {
        &self.given[position(name).expect("a setting's name")]
    }

    fn take_file(&mut self, path: &str, text: &str) {
        let (mut file, entries) = File::parse(path, text);
        let mut seen = Vec::new();
        for entry in &entries {
            let key = entry.key.to_ascii_lowercase();
            if seen.contains(&key) {
                file.twice(&key, entry.line);
            } else if let Some(at) = position(&key) {
                self.take_entry(at, entry, &mut file);
            } else if !self.tables.take(&key, entry, &mut file) {
                file.unknown(&entry.key, entry.line);
            }
            seen.push(key);
        }
        self.problems.append(&mut file.problems);
    }

    fn take_entry(&mut self, at: usize, entry: &Entry, file: &mut File) {
        let Definition { name, kind, allowed, .. } = DEFINITIONS[at];
        let is_list = matches!(entry.value.content, Content::List(_));
        let items = entry.value.items().filter(|_| kind == Kind::Many || !is_list);
        match items {
            Some(items) => self.given[at] = Given { items, origin: file.origin(entry.line) },
            None => {
                let (setting, origin) = (name.into(), file.origin(entry.line));
                let value = shown(kind, &[entry.value.text()]);
                self.problems.push(Problem::Value { setting, value, origin, allowed: allowed() });
                self.refused.push(name);
            }
        }
    }

    fn take_environment(&mut self, environment: &[(String, String)]) {
        for (definition, given) in DEFINITIONS.iter().zip(&mut self.given) {
            let variable = definition.variable();
            if let Some((_, text)) = environment.iter().find(|(name, _)| *name == variable) {
                let items = match definition.kind {
                    Kind::Many => text.split(',').map(str::to_owned).collect(),
                    Kind::One | Kind::Truth | Kind::Secret => vec![text.clone()],
                };
                *given = Given { items, origin: Origin::Environment(variable) };
            }
        }
    }

    fn take_flags(&mut self, flags: &[(String, Vec<String>)]) {
        for (name, items) in flags {
            let origin = Origin::Flag(name.replace('_', "-"));
            match position(name) {
                Some(at) => self.given[at] = Given { items: items.clone(), origin },
                None => self.problems.push(Problem::Unknown { key: name.clone(), origin }),
            }
        }
    }

    /// Defaults that depend on what others were given.
    fn follow_others(&mut self) {
        for (at, definition) in DEFINITIONS.iter().enumerate() {
            if self.given[at].origin != Origin::Default {
                continue;
            }
            match definition.preset {
                Preset::SameAs(other) => self.given[at].items = self.of(other).items.clone(),
                Preset::Times(times, other) => {
                    if let Some(time) = Time::read_items(&self.of(other).items) {
                        let product = time.saturating_mul(times).min(DURATION_MAX);
                        self.given[at].items = vec![duration_text(product)];
                    }
                }
                Preset::Text(_) | Preset::Empty | Preset::Random => {}
            }
        }
    }
}

impl Texts for Gathered {
    /// A text that is refused is named, and read as if nobody had given it: the rest can still be checked.
    fn read<R: Reader>(&mut self, name: &'static str) -> R::Value {
        let at = position(name).expect("a setting's name");
        let Given { items, origin } = &self.given[at];
        if let Some(value) = R::read_items(items) {
            return value;
        }
        // A default is refused only where it follows a setting that was refused itself.
        if *origin != Origin::Default {
            self.problems.push(Problem::Value {
                setting: name.into(),
                value: shown(R::KIND, items),
                origin: origin.clone(),
                allowed: R::allowed(),
            });
        }
        self.refused.push(name);
        R::read_items(&built_in(&DEFINITIONS[at])).expect("built-in defaults are allowed")
    }
}

fn position(name: &str) -> Option<usize> {
    DEFINITIONS.iter().position(|definition| definition.name == name)
}

fn shown(kind: Kind, items: &[String]) -> String {
    match kind {
        Kind::Secret => "(not shown)".into(),
        Kind::One | Kind::Many | Kind::Truth => items.join(","),
    }
}

/// What a setting is if nobody gives any.
fn built_in(definition: &Definition) -> Vec<String> {
    let of = |other| position(other).map_or_else(Vec::new, |at| built_in(&DEFINITIONS[at]));
    match definition.preset {
        Preset::Text(text) => vec![text.into()],
        Preset::Empty => Vec::new(),
        Preset::Random => vec![format!("{:016x}", fastrand::u64(..))],
        Preset::SameAs(other) => of(other),
        Preset::Times(times, other) => {
            let time = Time::read_items(&of(other)).unwrap_or_default();
            vec![duration_text(time.saturating_mul(times))]
        }
    }
}
