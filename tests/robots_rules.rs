//! Rules of robots.txt: the cases in `fixtures/robots`, a dull matcher and another parser as second opinions, and
//! random bytes.

use proptest::prelude::*;
use std::path::Path;
use urlserver::robots::{BODY_MAX, Rules, Verdict};
use urlserver::time::Duration;

/// What a case expects, for one agent.
#[derive(Default, Debug)]
struct Expected {
    agent: String,
    /// Path, whether it is allowed, and the line that denies if it is named.
    verdicts: Vec<(String, bool, Option<u32>)>,
    delay: Option<Option<Duration>>,
    sitemaps: Vec<String>,
}

struct Case {
    name: String,
    body: Vec<u8>,
    expected: Vec<Expected>,
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/robots");
    let entries = std::fs::read_dir(folder).expect("the folder of cases");
    let paths = entries.map(|entry| entry.expect("a file").path());
    let mut cases: Vec<Case> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "txt")).map(|path| read(&path)).collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

fn read(path: &Path) -> Case {
    let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).expect("a readable file");
    let (head, body) = text.split_once("---\n").unwrap_or_else(|| panic!("{name}: no ---"));
    let mut body = body.as_bytes().to_vec();
    let mut expected: Vec<Expected> = Vec::new();
    for line in head.lines().filter(|line| !line.starts_with('#')) {
        if line == "escapes" {
            body = unescaped(&body);
            continue;
        }
        let (word, rest) = line.split_once(' ').unwrap_or_else(|| panic!("{name}: {line}"));
        if word == "agent" {
            expected.push(Expected { agent: rest.to_owned(), ..Expected::default() });
            continue;
        }
        let now = expected.last_mut().unwrap_or_else(|| panic!("{name}: no agent yet"));
        match word {
            "allow" | "deny" => {
                let (path, number) = rest.split_once(" @").map_or((rest, None), |(p, n)| (p, Some(n)));
                let number = number.map(|n| n.parse().expect("a line number"));
                now.verdicts.push((path.to_owned(), word == "allow", number));
            }
            "delay" => now.delay = Some(delay(rest)),
            "sitemap" => now.sitemaps.push(rest.to_owned()),
            _ => panic!("{name}: {line}"),
        }
    }
    assert!(!expected.is_empty(), "{name}: expects nothing");
    Case { name, body, expected }
}

fn delay(text: &str) -> Option<Duration> {
    match text {
        "none" => None,
        "forever" => Some(Duration::from_micros(u64::MAX)),
        seconds => {
            let seconds: f64 = seconds.parse().expect("seconds");
            Some(Duration::from_micros((seconds * 1e6).round() as u64))
        }
    }
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(text).expect("ASCII");
    let mut parts = text.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (byte, used) = match part.as_bytes() {
            [b'n', ..] => (b'\n', 1),
            [b'r', ..] => (b'\r', 1),
            [b't', ..] => (b'\t', 1),
            [b'x', _, _, ..] => (u8::from_str_radix(&part[1..3], 16).expect("two digits"), 3),
            _ => panic!("\\{part}"),
        };
        bytes.push(byte);
        bytes.extend_from_slice(&part.as_bytes()[used..]);
    }
    bytes
}

/// What is not as expected, in words.
fn faults(case: &Case) -> Vec<String> {
    let mut faults = Vec::new();
    for expected in &case.expected {
        let rules = Rules::parse(&case.body, &expected.agent);
        let mut fault = |what: String| faults.push(format!("{}: {}: {what}", case.name, expected.agent));
        for (path, allowed, number) in &expected.verdicts {
            let good = match rules.verdict(path) {
                Verdict::Allowed => *allowed,
                Verdict::Denied { line, .. } => !allowed && number.is_none_or(|number| number == line),
            };
            if !good {
                fault(format!("{path}: {:?}", rules.verdict(path)));
            }
        }
        if expected.delay.is_some_and(|delay| delay != rules.delay()) {
            fault(format!("delay: {:?}", rules.delay()));
        }
        let sitemaps: Vec<&str> = rules.sitemaps().collect();
        if !expected.sitemaps.is_empty() && sitemaps != expected.sitemaps {
            fault(format!("sitemaps: {sitemaps:?}"));
        }
    }
    faults
}

#[test]
fn every_case_is_judged_as_written() {
    let cases = cases();
    assert!(cases.len() >= 100, "{} cases", cases.len());
    let faults: Vec<String> = cases.iter().flat_map(faults).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_rule_that_denies_is_named_as_it_is_compared() {
    let rules = Rules::parse(b"User-agent: *\nDisallow: /private\nDisallow: /%7e\xc3\xa5*$\n", "bot");
    assert_eq!(rules.verdict("/private/x"), Verdict::Denied { line: 2, rule: "/private" });
    assert_eq!(rules.verdict("/~%c3%a5b"), Verdict::Denied { line: 3, rule: "/~%C3%A5*$" });
}

#[test]
fn nothing_said_is_everything_allowed() {
    assert_eq!(Rules::parse(b"", "bot"), Rules::everything_allowed());
    assert_eq!(Rules::parse(b"User-agent: x\nDisallow: /", "bot"), Rules::everything_allowed());
    assert_eq!(Rules::everything_allowed().verdict("/"), Verdict::Allowed);
}

/// A file whose last line begins `at` this byte.
fn with_line_at(at: usize, line: &str) -> Vec<u8> {
    let mut body = b"User-agent: *\nDisallow: /first\n".to_vec();
    body.resize(at - 1, b'#');
    body.push(b'\n');
    body.extend_from_slice(line.as_bytes());
    body
}

#[test]
fn the_limit_counts_whole_lines() {
    let line = "Disallow: /last";
    let denied = |body: &[u8], path: &str| Rules::parse(body, "bot").verdict(path) != Verdict::Allowed;
    let fits = with_line_at(BODY_MAX - line.len(), line);
    assert_eq!(fits.len(), BODY_MAX);
    assert!(denied(&fits, "/last"), "the last byte counts");
    for end in ["\n", "\r\n", "\nDisallow: /\n"] {
        let body = [&fits[..], end.as_bytes()].concat();
        assert!(denied(&body, "/last") && !denied(&body, "/x"), "a line that ends at the limit counts");
    }
    let cut = with_line_at(BODY_MAX - line.len(), "Disallow: /last/but/longer\n");
    assert!(denied(&cut, "/first") && !denied(&cut, "/last"), "a line that is cut says nothing");
    let beyond = with_line_at(BODY_MAX, line);
    assert!(denied(&beyond, "/first") && !denied(&beyond, "/last"));
    assert!(!denied(&vec![b'/'; 2 * BODY_MAX], "/"));
}

/// What the other parser gets wrong, by case: it is asked for a second opinion, not believed.
const ROBOTXT_ERRORS: &[&str] = &[
    // Names of agents are compared whole, with version and all.
    "agent-version-is-of-no-matter",
    "agent-with-digits",
    // A Crawl-delay ends the list of agents.
    "crawl-delay-apart",
    "crawl-delay-does-not-split-a-group",
    // A rule that begins with no slash is given one; so is `$`.
    "dollar-alone",
    // A `$` in the middle, and `%24` and `%2A`, are wildcards.
    "dollar-in-the-middle",
    // Names again, and stars with something behind.
    "google-agent-up-to-first-space",
    "google-star-with-words",
    // A line with NUL is left out.
    "nul-bytes",
    "rfc-encoded-specials-are-literal",
    // The RFC's own row on reserved characters in queries is not there.
    "rfc-encoding-reserved-in-query",
    "rfc-encoding-reserved-in-query-of-rule",
    "rules-without-a-slash",
    "star-with-letters-is-nobody",
    // UTF-16 is not read.
    "utf-16-big-endian",
    "utf-16-little-endian",
];

#[test]
fn another_parser_differs_only_where_it_is_known_to_be_wrong() {
    let mut differing = Vec::new();
    for case in cases() {
        let differs = case.expected.iter().any(|expected| {
            let agent = expected.agent.split(['/', ' ']).next().unwrap_or_default();
            let other = robotxt::Robots::parse(&case.body, agent);
            expected.verdicts.iter().any(|(path, allowed, _)| other.is_allowed(path) != *allowed)
        });
        if differs {
            differing.push(case.name);
        }
    }
    assert_eq!(differing, ROBOTXT_ERRORS);
}

/// The dull matcher: patterns and paths as lists of tokens, every way of a `*` tried.
mod dull {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(super) enum Token {
        Plain(u8),
        Encoded(u8),
        Star,
        End,
    }

    pub(super) fn tokens(text: &str, pattern: bool, decode_query: bool) -> Vec<Token> {
        let bytes = text.as_bytes();
        let mut tokens = Vec::new();
        let (mut at, mut query) = (0, false);
        while at < bytes.len() {
            let encoded = bytes[at] == b'%';
            let byte =
                if encoded { u8::from_str_radix(&text[at + 1..at + 3], 16).expect("hex") } else { bytes[at] };
            at += if encoded { 3 } else { 1 };
            let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            let delimiter = b":/?#[]@".contains(&byte);
            tokens.push(match byte {
                b'*' if pattern && !encoded => Token::Star,
                b'$' if pattern && !encoded && at == bytes.len() => Token::End,
                b'*' | b'$' => Token::Encoded(byte),
                _ if plain || (!encoded && byte.is_ascii_graphic()) => Token::Plain(byte),
                _ if delimiter && query && decode_query => Token::Plain(byte),
                _ => Token::Encoded(byte),
            });
            query |= byte == b'?' && !encoded;
        }
        tokens
    }

    pub(super) fn matches(pattern: &[Token], path: &[Token]) -> bool {
        match (pattern, path) {
            ([], _) => true,
            ([Token::End], path) => path.is_empty(),
            ([Token::Star, rest @ ..], path) => {
                (0..=path.len()).any(|skipped| matches(rest, &path[skipped..]))
            }
            ([token, rest @ ..], [first, path @ ..]) => token == first && matches(rest, path),
            (_, []) => false,
        }
    }

    pub(super) fn len(pattern: &[Token]) -> usize {
        pattern.iter().map(|token| if matches!(token, Token::Encoded(_)) { 3 } else { 1 }).sum()
    }

    /// Whether `path` is allowed.
    pub(super) fn allowed(rules: &[(bool, String)], path: &str) -> bool {
        let paths = [tokens(path, false, false), tokens(path, false, true)];
        let patterns = rules.iter().map(|(allow, pattern)| (allow, tokens(pattern, true, true)));
        let matching = patterns.filter(|(_, pattern)| paths.iter().any(|path| matches(pattern, path)));
        let best = matching.map(|(allow, pattern)| (len(&pattern), allow)).max();
        best.is_none_or(|(_, allow)| *allow)
    }
}

fn text_of(pieces: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(pieces), 0..most).prop_map(|pieces| pieces.concat())
}

fn pattern() -> impl Strategy<Value = String> {
    let pieces = &["a", "b", "/", "*", "*", "$", "?", "%61", "%2f", "%2A", "%24", "%C3%A5", "%20", "=", ":"];
    ("[/*]", text_of(pieces, 8)).prop_map(|(first, rest)| first + &rest)
}

fn path() -> impl Strategy<Value = String> {
    let pieces =
        &["a", "b", "/", "*", "$", "?", "%62", "%2F", "%2a", "%24", "%c3%A5", "%20", "=", "%3A", ":"];
    text_of(pieces, 12).prop_map(|rest| format!("/{rest}"))
}

fn file(rules: &[(bool, String)]) -> String {
    let lines = rules
        .iter()
        .map(|(allow, pattern)| format!("{}: {pattern}\n", if *allow { "Allow" } else { "Disallow" }));
    format!("User-agent: *\n{}", lines.collect::<String>())
}

/// Lines that parsers stumble over, in any order.
const LINES: &[&str] = &[
    "User-agent: *",
    "User-agent: bot",
    "User-agent:",
    "user-agent bot/1",
    "Disallow: /",
    "Disallow:",
    "Allow: /a*$",
    "Disallow: /*a*b$",
    "Crawl-delay: 1e400",
    "Crawl-delay: -",
    "Request-rate: 1/0",
    "Request-rate: 1/",
    "Sitemap: x",
    "Disallow: %",
    "Disallow: /%",
    "Disallow: /%4",
    "Disallow: $",
    "Allow: *",
    ":",
    "#",
    "Disallow: \u{feff}/å",
    "\0",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_matcher_agrees_with_the_dull_one(
        rules in proptest::collection::vec((any::<bool>(), pattern()), 0..12),
        paths in proptest::collection::vec(path(), 1..8),
    ) {
        let parsed = Rules::parse(file(&rules).as_bytes(), "bot");
        for path in paths {
            let allowed = parsed.verdict(&path) == Verdict::Allowed;
            prop_assert_eq!(allowed, dull::allowed(&rules, &path), "{} for {}", file(&rules), path);
        }
    }

    /// Beyond its known errors the other parser is right, so nothing else may differ.
    #[test]
    fn the_matcher_agrees_with_another_on_plain_patterns(
        rules in proptest::collection::vec((any::<bool>(), "/[ab/*]{0,8}[$]?"), 0..12),
        path in "/[ab/]{0,12}",
    ) {
        let text = file(&rules);
        let allowed = Rules::parse(text.as_bytes(), "bot").verdict(&path) == Verdict::Allowed;
        prop_assert_eq!(allowed, robotxt::Robots::parse(text.as_bytes(), "bot").is_allowed(&path), "{}", text);
    }

    #[test]
    fn random_bytes_are_survived(body in any::<Vec<u8>>(), product in any::<String>(), path in any::<String>()) {
        let rules = Rules::parse(&body, &product);
        let _ = (rules.verdict(&path), rules.delay(), rules.sitemaps().count());
    }

    #[test]
    fn lines_in_any_order_are_survived(
        lines in proptest::collection::vec((proptest::sample::select(LINES), "[\r\n]{1,2}|.{0,3}"), 0..30),
        path in any::<String>(),
    ) {
        let body: String = lines.iter().flat_map(|(line, end)| [*line, end.as_str()]).collect();
        let rules = Rules::parse(body.as_bytes(), "bot");
        let _ = (rules.verdict(&path), rules.delay(), rules.sitemaps().count());
        let wide: Vec<u8> = "\u{feff}".encode_utf16().chain(body.encode_utf16()).flat_map(u16::to_le_bytes).collect();
        prop_assert_eq!(Rules::parse(&wide, "bot"), Rules::parse(body.as_bytes(), "bot"));
    }
}

#[test]
fn many_rules_are_judged_as_by_the_dull_matcher() {
    let rules: Vec<(bool, String)> = (0..3_000usize)
        .map(|n| {
            let word = format!("{:b}", n % 512).replace('0', "a").replace('1', "b");
            let end = ["", "*", "$", "/*b", "*a$"][n % 5];
            (n % 3 == 0, format!("/{word}{end}"))
        })
        .collect();
    let parsed = Rules::parse(file(&rules).as_bytes(), "bot");
    for n in 0..300usize {
        let path = format!("/{:b}/b", n * 7).replace('0', "a").replace('1', "b");
        let allowed = parsed.verdict(&path) == Verdict::Allowed;
        assert_eq!(allowed, dull::allowed(&rules, &path), "{path}");
    }
}
