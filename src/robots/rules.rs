//! What one robots.txt says to us, in a form that is asked fast.
//!
//! Only the groups that apply are kept, in two allocations: all texts, and one [`Rule`] of 16 bytes each, in the
//! order of what stands before their first wildcard (the head). All heads that a path begins with are found by
//! binary search, so plain rules cost O(log n) however many there are. The rules with wildcards behind such a head
//! are tried in turn, longest first, each in time linear in the path. That has a bound, [`WORK_MAX`]: a URL whose
//! rules take more is denied, so that a hostile file costs its own host and nobody else.

use super::parse::{Line, Said, parse};
use super::pattern::{normal_paths, rest_matches};
use crate::time::Duration;
use std::ops::ControlFlow;

/// Most work for one verdict, in octets compared, with [`RULE_WORK`] for every rule that is tried. A file that is
/// full of the shortest rules with wildcards takes it for URLs of more than 140 octets; no other comes near.
const WORK_MAX: usize = 8 << 20;

/// What beginning a search is worth.
const RULE_WORK: usize = 64;

/// The rules that apply to us.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The patterns of all rules, then the sitemaps, each with a line end behind it.
    text: Box<str>,
    /// By head, then the longer pattern first. No pattern is there twice.
    rules: Box<[Rule]>,
    sitemaps_at: u32,
    delay: Option<Duration>,
}

/// One pattern: where it is in the text, and what it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rule {
    start: u32,
    len: u32,
    head: u32,
    /// The number of its line, times two; plus one if it allows.
    line_and_allow: u32,
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
        /// Its pattern, as it is compared: percent-encoded. If there were too many to try, the first that was not.
        rule: &'a str,
    },
}

impl Rules {
    /// Reads a robots.txt for the crawler `product`, of which letters, `_` and `-` up to anything else count. Only
    /// the first [`BODY_MAX`](super::BODY_MAX) bytes are read. Never fails: what cannot be read says nothing.
    pub fn parse(body: &[u8], product: &str) -> Rules {
        let Said { rules, delay, sitemaps } = parse(body, product);
        let mut text = String::new();
        let rules = in_order(rules).iter().map(|line| Rule::append(&mut text, line)).collect();
        let sitemaps_at = text.len() as u32;
        sitemaps.iter().for_each(|sitemap| text.extend([sitemap, "\n"]));
        Rules { text: text.into(), rules, sitemaps_at, delay: delay.map(Duration::from_micros) }
    }

    /// No rules at all.
    pub fn everything_allowed() -> Rules {
        Rules { text: "".into(), rules: [].into(), sitemaps_at: 0, delay: None }
    }

    /// Whether the URL with this path may be fetched. `path`: path and query as in the URL, percent-encoded,
    /// beginning with `/`.
    pub fn verdict(&self, path: &str) -> Verdict<'_> {
        if self.rules.is_empty() {
            return Verdict::Allowed;
        }
        let (path, other) = normal_paths(path);
        if path == "/robots.txt" {
            return Verdict::Allowed;
        }
        let (mut best, mut work) = (None, 0);
        let mut forms = [Some(path), other].into_iter().flatten();
        let tried = forms.try_for_each(|path| self.improve(&mut best, &path, &mut work));
        match (tried, best) {
            (ControlFlow::Break(untried), _) => self.denied(untried),
            (ControlFlow::Continue(()), Some(rule)) if !rule.allows() => self.denied(rule),
            (ControlFlow::Continue(()), _) => Verdict::Allowed,
        }
    }

    fn denied(&self, rule: Rule) -> Verdict<'_> {
        Verdict::Denied { line: rule.line_and_allow >> 1, rule: self.pattern(rule) }
    }

    /// The time that must lie between two requests: Crawl-delay or Request-rate, whichever is longer, in whole
    /// microseconds, rounded up.
    pub fn delay(&self) -> Option<Duration> {
        self.delay
    }

    /// The values of all `Sitemap:` lines of the file, in order, unchecked.
    pub fn sitemaps(&self) -> impl Iterator<Item = &str> {
        self.text[self.sitemaps_at as usize..].lines()
    }

    fn pattern(&self, rule: Rule) -> &str {
        let start = rule.start as usize;
        &self.text[start..start + rule.len as usize]
    }

    fn head(&self, rule: Rule) -> &str {
        let start = rule.start as usize;
        &self.text[start..start + rule.head as usize]
    }

    /// Puts the strongest rule that matches `path` in the place of `best`, if it is stronger. Breaks with the
    /// rule for which `work` does not suffice.
    ///
    /// The heads that `path` begins with: the last one that is not after it, if `path` begins with that, and so on
    /// with those before; if it does not, only what the two have in common can begin with the next.
    fn improve(&self, best: &mut Option<Rule>, path: &str, work: &mut usize) -> ControlFlow<Rule> {
        let mut common = path.len();
        let mut rules = &self.rules[..];
        loop {
            rules = &rules[..rules.partition_point(|rule| self.head(*rule) <= &path[..common])];
            let Some(last) = rules.last() else { return ControlFlow::Continue(()) };
            let head = self.head(*last);
            common = common_prefix(head, &path[..common]);
            *work += 1;
            if common == head.len() {
                let first = rules.partition_point(|rule| self.head(*rule) < head);
                self.improve_by(best, &rules[first..], &path[common..], work)?;
                rules = &rules[..first];
            }
        }
    }

    /// The same for the rules of one head; `rest` is what follows it in the path.
    fn improve_by(
        &self,
        best: &mut Option<Rule>,
        rules: &[Rule],
        rest: &str,
        work: &mut usize,
    ) -> ControlFlow<Rule> {
        for rule in rules {
            // All that follow are as long or shorter.
            if best.is_some_and(|best| rule.len < best.len) {
                break;
            }
            *work += RULE_WORK;
            if *work > WORK_MAX {
                return ControlFlow::Break(*rule);
            }
            let stronger = best.is_none_or(|best| rule.strength() > best.strength());
            if stronger && rest_matches(&self.pattern(*rule)[rule.head as usize..], rest, work) {
                *best = Some(*rule);
            }
        }
        ControlFlow::Continue(())
    }
}

impl Rule {
    /// The rule of `line`, whose pattern goes to the end of `text`.
    fn append(text: &mut String, line: &Line) -> Rule {
        let start = text.len() as u32;
        text.push_str(&line.pattern);
        Rule {
            start,
            len: line.pattern.len() as u32,
            head: line.head as u32,
            line_and_allow: line.number << 1 | u32::from(line.allow),
        }
    }

    fn allows(self) -> bool {
        self.line_and_allow & 1 == 1
    }

    /// The longer rule is the stronger one; of two as long as each other the one that allows.
    fn strength(self) -> (u32, bool) {
        (self.len, self.allows())
    }
}

/// By head, then the longer pattern first. Of equal patterns the first that allows stays, else the first.
fn in_order(mut lines: Vec<Line>) -> Vec<Line> {
    lines.sort_by(|a, b| {
        let heads = a.pattern[..a.head].cmp(&b.pattern[..b.head]);
        let lengths = || b.pattern.len().cmp(&a.pattern.len());
        let patterns = || a.pattern.cmp(&b.pattern);
        heads.then_with(lengths).then_with(patterns).then_with(|| b.allow.cmp(&a.allow))
    });
    lines.dedup_by(|later, earlier| later.pattern == earlier.pattern);
    lines
}

fn common_prefix(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::robots::BODY_MAX;

    fn work(rules: &Rules, path: &str) -> usize {
        let mut work = 0;
        let _ = rules.improve(&mut None, path, &mut work);
        work
    }

    /// A file that is full of the rules that `rule` makes.
    fn full(rule: impl Fn(usize) -> String) -> Rules {
        let mut body = "User-agent: *\n".to_owned();
        for n in 0.. {
            let line = rule(n);
            if body.len() + line.len() > BODY_MAX {
                break;
            }
            body += &line;
        }
        Rules::parse(body.as_bytes(), "bot")
    }

    #[test]
    fn plain_rules_cost_nothing_however_many_there_are() {
        let rules = full(|n| format!("Allow:/{n:x}\nDisallow:/{n:x}/\n"));
        assert!(rules.rules.len() > 30_000, "{}", rules.rules.len());
        assert!(work(&rules, "/1abc/x") < 32 * RULE_WORK);
        assert!(matches!(rules.verdict("/1abc/x"), Verdict::Denied { rule: "/1abc/", .. }));
        assert_eq!(rules.verdict("/1abc"), Verdict::Allowed);
        // Every head the beginning of the next: as many as fit are as many as the root of the file's size.
        let nested = full(|n| format!("Disallow:/{}\n", "a".repeat(n)));
        assert!(work(&nested, &format!("/{}", "a".repeat(16_000))) < 3_000 * RULE_WORK);
        let beside = full(|n| format!("Disallow:/{}!\n", "a".repeat(n)));
        assert!(work(&beside, &format!("/{}", "a".repeat(16_000))) < 3_000 * RULE_WORK);
    }

    #[test]
    fn wildcards_cost_one_search_each() {
        let rules = full(|n| format!("Disallow:/*{n:x}z\n"));
        let path = "/some/directory/of/usual/length/page-number-123456.html?query=string&x=yz";
        assert!(work(&rules, path) <= rules.rules.len() * (path.len() + 8 + RULE_WORK));
        assert_eq!(rules.verdict(path), Verdict::Allowed, "usual URLs are always judged");
        assert!(matches!(rules.verdict("/some/abcz"), Verdict::Denied { rule: "/*abcz", .. }));
    }

    #[test]
    fn too_much_work_is_refused_on_the_safe_side() {
        let rules = full(|n| format!("Allow:/*{n:x}z\n"));
        let path = format!("/{}", "ab".repeat(8_000));
        assert!(work(&rules, &path) <= WORK_MAX + 2 * path.len() + RULE_WORK);
        assert!(matches!(rules.verdict(&path), Verdict::Denied { .. }));
        assert_eq!(rules.verdict("/robots.txt"), Verdict::Allowed);
    }

    #[test]
    fn rules_are_kept_small() {
        assert_eq!(size_of::<Rule>(), 16);
        assert_eq!(size_of::<Rules>(), 56);
    }
}
