//! The lines of a robots.txt, and which of them are for us (RFC 9309, 2.2.1).
//!
//! Read as the parsers of the large search engines read it: no line is an error, the usual misspellings are
//! understood, and a group ends only where a User-agent follows a rule. Other lines neither begin nor end one.
//!
//! So a Crawl-delay, which the RFC does not know, can stand among the agents of one group. It is said to all that are
//! named before it, and to those behind it up to a blank line: what people part by one they mean to be apart.

use super::BODY_MAX;
use super::delay::{crawl_delay, request_rate};
use super::pattern::{head_len, normal_pattern};
use std::borrow::Cow;

/// What the file says to us.
#[derive(Default)]
pub(super) struct Said {
    pub(super) rules: Vec<Line>,
    /// Microseconds between two requests.
    pub(super) delay: Option<u64>,
    pub(super) sitemaps: Vec<String>,
}

/// One `Allow` or `Disallow`.
pub(super) struct Line {
    pub(super) number: u32,
    pub(super) allow: bool,
    pub(super) pattern: String,
    /// How much of the pattern stands before its first wildcard.
    pub(super) head: usize,
}

/// Reads the whole file for `product`.
pub(super) fn parse(body: &[u8], product: &str) -> Said {
    let text = decoded(body);
    let mut reader = Reader::new(product_token(product.as_bytes()));
    let mut number = 0;
    for line in lines(whole_lines(&text)) {
        number += 1;
        if trim(line).is_empty() {
            reader.handle_blank();
        } else if let Some((key, value)) = key_and_value(line) {
            reader.read(number, &key, value);
        }
    }
    reader.said()
}

/// The product at the beginning of a user agent: letters, `_` and `-`.
fn product_token(agent: &[u8]) -> &[u8] {
    let end = agent.iter().position(|byte| !(byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'-')));
    &agent[..end.unwrap_or(agent.len())]
}

/// Without byte order marks; UTF-16, which should not be, as UTF-8.
fn decoded(body: &[u8]) -> Cow<'_, [u8]> {
    let unit: fn([u8; 2]) -> u16 = match body {
        [0xef, 0xbb, 0xbf, rest @ ..] => return Cow::Borrowed(rest),
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => return Cow::Borrowed(body),
    };
    let pairs = body[2..body.len().min(BODY_MAX + 3)].chunks_exact(2);
    let units: Vec<u16> = pairs.map(|pair| unit([pair[0], pair[1]])).collect();
    Cow::Owned(String::from_utf16_lossy(&units).into_bytes())
}

/// What counts of a long file. A line that the limit cuts could mean anything: it is left out.
fn whole_lines(text: &[u8]) -> &[u8] {
    if text.len() <= BODY_MAX {
        return text;
    }
    let read = &text[..BODY_MAX];
    if is_line_end(text[BODY_MAX]) {
        return read;
    }
    let end = read.iter().rposition(|byte| is_line_end(*byte));
    &read[..end.unwrap_or(0)]
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// Lines, each with any of the ends CR, LF and CRLF.
fn lines(mut text: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        if text.is_empty() {
            return None;
        }
        let Some(end) = memchr::memchr2(b'\n', b'\r', text) else { return Some(std::mem::take(&mut text)) };
        let line = &text[..end];
        let width = if text[end..].starts_with(b"\r\n") { 2 } else { 1 };
        text = &text[end + width..];
        Some(line)
    })
}

/// What a line is about.
enum Key {
    UserAgent,
    Allow,
    Disallow,
    CrawlDelay,
    RequestRate,
    Sitemap,
}

impl Key {
    fn of(name: &[u8]) -> Option<Key> {
        match name.to_ascii_lowercase().as_slice() {
            b"user-agent" | b"useragent" | b"user agent" => Some(Key::UserAgent),
            b"allow" => Some(Key::Allow),
            b"disallow" | b"dissallow" | b"dissalow" | b"disalow" | b"diasllow" | b"disallaw" => {
                Some(Key::Disallow)
            }
            b"crawl-delay" | b"crawldelay" | b"crawl delay" => Some(Key::CrawlDelay),
            b"request-rate" => Some(Key::RequestRate),
            b"sitemap" | b"site-map" => Some(Key::Sitemap),
            _ => None,
        }
    }
}

/// Longest name of a key: longer ones are none, and need not be looked at.
const KEY_MAX: usize = 16;

/// `key: value # comment`; the colon may be missing between two words.
fn key_and_value(line: &[u8]) -> Option<(Key, &[u8])> {
    let end = memchr::memchr(b'#', line).unwrap_or(line.len());
    let line = trim(&line[..end]);
    let (name, value) = match memchr::memchr(b':', line) {
        Some(colon) => (trim(&line[..colon]), trim(&line[colon + 1..])),
        None => {
            let gap = line.iter().position(|byte| is_blank(*byte))?;
            let (name, value) = (&line[..gap], trim(&line[gap..]));
            if value.iter().any(|byte| is_blank(*byte)) {
                return None;
            }
            (name, value)
        }
    };
    if name.len() > KEY_MAX { None } else { Key::of(name).map(|key| (key, value)) }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0b | 0x0c)
}

fn trim(mut text: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = text
        && is_blank(*first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && is_blank(*last)
    {
        text = rest;
    }
    text
}

/// What the groups of one kind of agent say: ours by name, or those of `*`.
#[derive(Default)]
struct Groups {
    /// The group that is being read is of this kind.
    open: bool,
    /// There is at least one.
    found: bool,
    rules: Vec<Line>,
    delay: Option<u64>,
}

struct Reader<'a> {
    product: &'a [u8],
    /// The next User-agent begins another group. So does the first of all.
    closed: bool,
    /// The delay that was said to this group, for the agents that are still to be named.
    delay: Option<u64>,
    ours: Groups,
    everyones: Groups,
    sitemaps: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(product: &'a [u8]) -> Self {
        let (ours, everyones) = (Groups::default(), Groups::default());
        Reader { product, closed: true, delay: None, ours, everyones, sitemaps: Vec::new() }
    }

    fn read(&mut self, number: u32, key: &Key, value: &[u8]) {
        match key {
            Key::UserAgent => self.handle_agent(value),
            Key::Allow => self.handle_rule(number, true, value),
            Key::Disallow => self.handle_rule(number, false, value),
            Key::CrawlDelay => self.handle_delay(crawl_delay(&String::from_utf8_lossy(value))),
            Key::RequestRate => self.handle_delay(request_rate(&String::from_utf8_lossy(value))),
            Key::Sitemap if value.is_empty() => {}
            Key::Sitemap => self.sitemaps.push(String::from_utf8_lossy(value).into_owned()),
        }
    }

    fn handle_agent(&mut self, name: &[u8]) {
        if std::mem::take(&mut self.closed) {
            self.delay = None;
            self.ours.open = false;
            self.everyones.open = false;
        }
        if name == b"*" || (name.starts_with(b"*") && is_blank(name[1])) {
            self.everyones.begin(self.delay);
        } else if !self.product.is_empty() && product_token(name).eq_ignore_ascii_case(self.product) {
            self.ours.begin(self.delay);
        }
    }

    fn handle_rule(&mut self, number: u32, allow: bool, value: &[u8]) {
        self.closed = true;
        // An empty value is no rule, but ends the list of agents as one.
        if value.is_empty() {
            return;
        }
        for groups in [&mut self.ours, &mut self.everyones] {
            if groups.open {
                let pattern = normal_pattern(value);
                let head = head_len(&pattern);
                groups.rules.push(Line { number, allow, pattern, head });
            }
        }
    }

    fn handle_blank(&mut self) {
        self.delay = None;
    }

    fn handle_delay(&mut self, delay: Option<u64>) {
        self.delay = self.delay.max(delay);
        for groups in [&mut self.ours, &mut self.everyones] {
            if groups.open {
                groups.delay = groups.delay.max(delay);
            }
        }
    }

    fn said(self) -> Said {
        let groups = if self.ours.found { self.ours } else { self.everyones };
        Said { rules: groups.rules, delay: groups.delay, sitemaps: self.sitemaps }
    }
}

impl Groups {
    fn begin(&mut self, delay: Option<u64>) {
        self.open = true;
        self.found = true;
        self.delay = self.delay.max(delay);
    }
}
