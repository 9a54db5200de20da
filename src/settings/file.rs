//! The settings file: TOML with the line of everything, and keys in lower case.

use super::problem::{Origin, Problem};
use std::sync::Arc;
use toml::de::{DeInteger, DeTable, DeValue};

/// A value, and the line it stands on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) content: Content,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Content {
    /// A string, number, truth or date, as text: flags and environment know nothing else.
    Scalar(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

/// `key = value`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// As written: some keys are names.
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) value: Node,
}

impl Node {
    /// The texts of a scalar or of a list of scalars; `None` for anything deeper.
    pub(super) fn items(&self) -> Option<Vec<String>> {
        match &self.content {
            Content::Scalar(text) => Some(vec![text.clone()]),
            Content::List(nodes) => nodes.iter().map(Node::scalar).collect(),
            Content::Table(_) => None,
        }
    }

    fn scalar(&self) -> Option<String> {
        match &self.content {
            Content::Scalar(text) => Some(text.clone()),
            Content::List(_) | Content::Table(_) => None,
        }
    }

    /// For messages.
    pub(super) fn text(&self) -> String {
        match &self.content {
            Content::Scalar(text) => text.clone(),
            Content::List(nodes) => {
                let texts: Vec<_> = nodes.iter().map(Node::text).collect();
                format!("[{}]", texts.join(", "))
            }
            Content::Table(_) => "a table".into(),
        }
    }
}

/// A parsed file; its problems so far, and the place to put more.
pub(super) struct File {
    path: Arc<str>,
    pub(super) problems: Vec<Problem>,
}

impl File {
    /// The entries of a file's text, in the order of their lines.
    pub(super) fn parse(path: &str, text: &str) -> (File, Vec<Entry>) {
        let mut file = File { path: path.into(), problems: Vec::new() };
        let lines = Lines::new(text);
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            let line = lines.at(error.span().map_or(0, |span| span.start));
            let message = error.message().to_owned();
            file.problems.push(Problem::Syntax { origin: file.origin(line), message });
        }
        let entries = entries(table.get_ref(), &lines);
        (file, entries)
    }

    pub(super) fn origin(&self, line: usize) -> Origin {
        Origin::File { path: self.path.clone(), line }
    }

    /// `node` is not what `setting` may be.
    pub(super) fn refuse(&mut self, setting: impl Into<String>, node: &Node, allowed: impl Into<String>) {
        self.problems.push(Problem::Value {
            setting: setting.into(),
            value: node.text(),
            origin: self.origin(node.line),
            allowed: allowed.into(),
        });
    }

    pub(super) fn unknown(&mut self, key: impl Into<String>, line: usize) {
        self.problems.push(Problem::Unknown { key: key.into(), origin: self.origin(line) });
    }

    pub(super) fn twice(&mut self, key: impl Into<String>, line: usize) {
        self.problems.push(Problem::Twice { key: key.into(), origin: self.origin(line) });
    }
}

/// Byte offsets to line numbers.
struct Lines {
    ends: Vec<usize>,
}

impl Lines {
    fn new(text: &str) -> Lines {
        Lines { ends: text.match_indices('\n').map(|(at, _)| at).collect() }
    }

    fn at(&self, offset: usize) -> usize {
        self.ends.partition_point(|end| *end < offset) + 1
    }
}

fn entries(table: &DeTable<'_>, lines: &Lines) -> Vec<Entry> {
    let mut entries: Vec<Entry> = table
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            line: lines.at(key.span().start),
            value: node(value.get_ref(), lines.at(value.span().start), lines),
        })
        .collect();
    entries.sort_by_key(|entry| entry.line);
    entries
}

fn node(value: &DeValue<'_>, line: usize, lines: &Lines) -> Node {
    let content = match value {
        DeValue::String(text) => Content::Scalar(text.to_string()),
        DeValue::Integer(number) => Content::Scalar(integer(number)),
        DeValue::Float(number) => Content::Scalar(number.as_str().to_owned()),
        DeValue::Boolean(truth) => Content::Scalar(truth.to_string()),
        DeValue::Datetime(date) => Content::Scalar(date.to_string()),
        DeValue::Array(values) => Content::List(
            values.iter().map(|one| node(one.get_ref(), lines.at(one.span().start), lines)).collect(),
        ),
        DeValue::Table(table) => Content::Table(entries(table, lines)),
    };
    Node { line, content }
}

/// TOML writes `0x10` and `+5` where flags know only digits.
fn integer(number: &DeInteger<'_>) -> String {
    match i128::from_str_radix(number.as_str(), number.radix()) {
        Ok(value) => value.to_string(),
        Err(_) => number.as_str().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Vec<Problem>, Vec<Entry>) {
        let (file, entries) = File::parse("x.toml", text);
        (file.problems, entries)
    }

    #[test]
    fn values_are_text_with_their_lines() {
        let (problems, entries) = parse("b = 0x1_0\n\na = [1.5,\n 'x', true]\nc = +inf\nd = -5");
        assert!(problems.is_empty());
        let seen: Vec<_> = entries.iter().map(|e| (e.key.as_str(), e.line, e.value.text())).collect();
        let expected = [("b", 1, "16"), ("a", 3, "[1.5, x, true]"), ("c", 5, "+inf"), ("d", 6, "-5")];
        assert_eq!(seen, expected.map(|(key, line, text)| (key, line, text.to_owned())));
    }

    #[test]
    fn every_syntax_error_has_its_line() {
        let (problems, _) = parse("a = \nb = 1\nc = = 2\n");
        let texts: Vec<_> = problems.iter().map(Problem::to_string).collect();
        assert!(texts.iter().any(|text| text.starts_with("x.toml:1: ")), "{texts:?}");
        assert!(texts.iter().any(|text| text.starts_with("x.toml:3: ")), "{texts:?}");
    }

    #[test]
    fn no_text_panics() {
        for text in
            ["\u{0}", "[", "[[", "a.b.c = {", "a = '''", "\u{feff}a = 1", "a = 99999999999999999999999"]
        {
            parse(text);
        }
    }
}
