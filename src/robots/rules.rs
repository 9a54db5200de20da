//! What one robots.txt says to one crawler.

use crate::time::Duration;

/// The rules that apply to us.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    rules: Vec<(bool, u32, String)>,
    delay: Option<Duration>,
    sitemaps: Vec<String>,
}

/// Whether a URL may be fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict<'a> {
    /// It may.
    Allowed,
    /// It may not.
    Denied {
        /// The line of the rule, from 1.
        line: u32,
        /// Its pattern, as it is compared: percent-encoded.
        rule: &'a str,
    },
}

impl Rules {
    /// Reads a robots.txt for the crawler `product`, whose version is of no matter. Only the first
    /// [`BODY_MAX`](super::BODY_MAX) bytes count. Never fails: what cannot be read says nothing.
    pub fn parse(body: &[u8], product: &str) -> Rules {
        let mut rules = Rules::everything_allowed();
        let mut ours = false;
        let product = product.split('/').next().unwrap_or(product);
        for (n, line) in String::from_utf8_lossy(body).lines().enumerate() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match key.trim().to_ascii_lowercase().as_str() {
                "user-agent" => ours = value == "*" || value.eq_ignore_ascii_case(product),
                "sitemap" => rules.sitemaps.push(value.into()),
                "disallow" if ours && !value.is_empty() => {
                    rules.rules.push((false, n as u32 + 1, value.into()))
                }
                "allow" if ours && !value.is_empty() => rules.rules.push((true, n as u32 + 1, value.into())),
                "crawl-delay" if ours => rules.delay = value.parse().ok().map(Duration::from_secs),
                _ => {}
            }
        }
        rules
    }

    /// No rules at all.
    pub fn everything_allowed() -> Rules {
        Rules { rules: Vec::new(), delay: None, sitemaps: Vec::new() }
    }

    /// Whether the URL with this path may be fetched. `path`: path and query as in the URL, percent-encoded,
    /// beginning with `/`.
    pub fn verdict(&self, path: &str) -> Verdict<'_> {
        let best =
            self.rules.iter().filter(|rule| path.starts_with(&rule.2)).max_by_key(|r| (r.2.len(), r.0));
        match best {
            Some((false, line, rule)) => Verdict::Denied { line: *line, rule },
            _ => Verdict::Allowed,
        }
    }

    /// The time that must lie between two requests: Crawl-delay or Request-rate, whichever is longer.
    pub fn delay(&self) -> Option<Duration> {
        self.delay
    }

    /// The values of all `Sitemap:` lines, in order, unchecked.
    pub fn sitemaps(&self) -> impl Iterator<Item = &str> {
        self.sitemaps.iter().map(String::as_str)
    }
}
