//! What a spider is like: every probability and distribution, and named characters.

use std::str::FromStr;
use urlserver::document::Outcome;
use urlserver::time::Duration;

/// How long fetches take.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Latency {
    /// Always the same.
    Constant(Duration),
    /// Anything between the two.
    Uniform(Duration, Duration),
    /// Memoryless, with this mean.
    Exponential(Duration),
    /// Heavy tail: median and sigma of the logarithm.
    Lognormal(Duration, f64),
    /// Very heavy tail: least value and alpha.
    Pareto(Duration, f64),
}

/// No fetch takes longer, however heavy the tail.
pub const LATENCY_MAX: Duration = Duration::from_secs(600);

impl Latency {
    /// One fetch.
    pub fn draw(&self, rng: &mut fastrand::Rng) -> Duration {
        let seconds = match *self {
            Latency::Constant(d) => d.as_secs_f64(),
            Latency::Uniform(a, b) => a.as_secs_f64() + rng.f64() * (b.as_secs_f64() - a.as_secs_f64()),
            Latency::Exponential(mean) => -(1.0 - rng.f64()).ln() * mean.as_secs_f64(),
            Latency::Lognormal(median, sigma) => median.as_secs_f64() * (sigma * normal(rng)).exp(),
            Latency::Pareto(least, alpha) => least.as_secs_f64() * (1.0 - rng.f64()).powf(-1.0 / alpha),
        };
        Duration::try_from_secs_f64(seconds).unwrap_or(LATENCY_MAX).min(LATENCY_MAX)
    }
}

/// A standard normal number (Box–Muller).
fn normal(rng: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

impl FromStr for Latency {
    type Err = String;

    /// `constant:S`, `uniform:A:B`, `exponential:MEAN`, `lognormal:MEDIAN:SIGMA`, `pareto:MIN:ALPHA`; seconds.
    fn from_str(text: &str) -> Result<Latency, String> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let numbers: Vec<f64> = parts
            .map(|p| p.parse().ok().filter(|n: &f64| n.is_finite() && *n >= 0.0))
            .collect::<Option<_>>()
            .ok_or_else(|| format!("`{text}`: numbers of seconds expected behind the name"))?;
        let seconds = Duration::from_secs_f64;
        match (name, numbers.as_slice()) {
            ("constant", &[d]) => Ok(Latency::Constant(seconds(d))),
            ("uniform", &[a, b]) if a <= b => Ok(Latency::Uniform(seconds(a), seconds(b))),
            ("exponential", &[mean]) => Ok(Latency::Exponential(seconds(mean))),
            ("lognormal", &[median, sigma]) => Ok(Latency::Lognormal(seconds(median), sigma)),
            ("pareto", &[least, alpha]) if alpha > 0.0 => Ok(Latency::Pareto(seconds(least), alpha)),
            _ => Err(format!(
                "`{text}`: constant:S, uniform:A:B, exponential:MEAN, lognormal:MEDIAN:SIGMA or pareto:MIN:ALPHA"
            )),
        }
    }
}

/// The character of a spider. Probabilities are per URL received unless they say otherwise.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// How long fetches take.
    pub latency: Latency,
    /// How fetches end, with weights; at least one.
    pub outcomes: Vec<(u32, Outcome)>,
    /// Of the 429 and 503: how many say `retry-after`.
    pub retry_after: f64,
    /// Longest `retry-after`.
    pub retry_after_max: Duration,
    /// Of those, and of what web servers say of themselves: in another form than seconds.
    pub wait_forms: f64,
    /// DONE with the verb first (and so without outcome).
    pub verb_first: f64,
    /// CR before LF.
    pub crlf: f64,
    /// Unknown keys behind the outcome.
    pub keys: f64,
    /// No outcome said.
    pub unsaid: f64,
    /// No WORKING during the fetch, however long.
    pub silent: f64,
    /// The connection is dropped during the fetch.
    pub crash: f64,
    /// Longest wait before a reconnect.
    pub reconnect_max: Duration,
    /// DONEs of the last connection, said on the new one: probability per connection.
    pub late: f64,
    /// The URL is held for ever.
    pub hang: f64,
    /// Stops reading for a while.
    pub stall: f64,
    /// Longest such while.
    pub stall_max: Duration,
    /// A burst of repeated, late and invented statuses.
    pub flood: f64,
    /// A line that makes no sense.
    pub garbage: f64,
    /// The DONE is said twice.
    pub repeat: f64,
    /// Lines written byte by byte: probability per line said.
    pub dribble: f64,
    /// An ADD of a URL found.
    pub add: f64,
    /// Most ADDs in a life, so that a crawl comes to an end.
    pub adds_max: u32,
    /// Pull mode: credit to keep up.
    pub pull: Option<u32>,
}

impl Profile {
    /// The names that [`Profile::named`] knows.
    pub const NAMES: [&'static str; 4] = ["polite", "chaos", "original", "pull"];

    /// A character by name.
    pub fn named(name: &str) -> Option<Profile> {
        match name {
            "polite" => Some(Profile::polite()),
            "chaos" => Some(Profile::chaos()),
            "original" => Some(Profile::original()),
            "pull" => Some(Profile::pull()),
            _ => None,
        }
    }

    /// Fetches what it is given and says how it went; some pages are missing, some are slow.
    pub fn polite() -> Profile {
        Profile {
            latency: Latency::Lognormal(Duration::from_millis(50), 0.8),
            outcomes: vec![(90, Outcome::Status(200)), (4, Outcome::Status(301)), (6, Outcome::Status(404))],
            retry_after: 0.0,
            retry_after_max: Duration::from_secs(3),
            wait_forms: 0.0,
            verb_first: 0.0,
            crlf: 0.0,
            keys: 0.0,
            unsaid: 0.0,
            silent: 0.0,
            crash: 0.0,
            reconnect_max: Duration::from_secs(1),
            late: 0.0,
            hang: 0.0,
            stall: 0.0,
            stall_max: Duration::from_secs(2),
            flood: 0.0,
            garbage: 0.0,
            repeat: 0.0,
            dribble: 0.0,
            add: 0.0,
            adds_max: 0,
            pull: None,
        }
    }

    /// The spider of the original protocol: an id and a verb, nothing else.
    pub fn original() -> Profile {
        Profile { unsaid: 1.0, ..Profile::polite() }
    }

    /// Polite, but asks for each URL.
    pub fn pull() -> Profile {
        Profile { pull: Some(16), ..Profile::polite() }
    }

    /// Everything that can go wrong does, now and then.
    pub fn chaos() -> Profile {
        Profile {
            latency: Latency::Pareto(Duration::from_millis(5), 1.1),
            outcomes: chaos_outcomes(),
            retry_after: 0.5,
            wait_forms: 0.5,
            verb_first: 0.2,
            crlf: 0.2,
            keys: 0.2,
            unsaid: 0.1,
            silent: 0.1,
            crash: 0.004,
            late: 0.7,
            hang: 0.003,
            stall: 0.004,
            flood: 0.004,
            garbage: 0.03,
            repeat: 0.05,
            dribble: 0.02,
            add: 0.02,
            adds_max: 50,
            ..Profile::polite()
        }
    }
}

fn chaos_outcomes() -> Vec<(u32, Outcome)> {
    vec![
        (70, Outcome::Status(200)),
        (3, Outcome::Status(204)),
        (3, Outcome::Status(302)),
        (6, Outcome::Status(404)),
        (1, Outcome::Status(408)),
        (1, Outcome::Status(410)),
        (2, Outcome::Status(429)),
        (2, Outcome::Status(500)),
        (2, Outcome::Status(503)),
        (2, Outcome::ConnectFailed),
        (2, Outcome::Timeout),
        (1, Outcome::TlsFailed),
        (1, Outcome::DnsFailed),
        (2, Outcome::Aborted),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_read_and_refused() {
        assert_eq!("constant:0.5".parse(), Ok(Latency::Constant(Duration::from_millis(500))));
        assert_eq!("pareto:1:2".parse(), Ok(Latency::Pareto(Duration::from_secs(1), 2.0)));
        for bad in ["", "constant", "constant:x", "constant:-1", "uniform:2:1", "pareto:1:0", "slow:1"] {
            assert!(bad.parse::<Latency>().is_err(), "{bad}");
        }
    }

    #[test]
    fn draws_have_the_median_they_should() {
        let one = Duration::from_secs(1);
        let cases = [
            (Latency::Constant(one), 1.0),
            (Latency::Uniform(Duration::ZERO, one), 0.5),
            (Latency::Exponential(one), std::f64::consts::LN_2),
            (Latency::Lognormal(one, 0.8), 1.0),
            (Latency::Pareto(one, 1.0), 2.0),
        ];
        for (latency, median) in cases {
            let mut rng = fastrand::Rng::with_seed(1);
            let mut draws: Vec<Duration> = (0..10_001).map(|_| latency.draw(&mut rng)).collect();
            draws.sort_unstable();
            let seen = draws[5_000].as_secs_f64();
            assert!((seen / median - 1.0).abs() < 0.1, "{latency:?}: {seen}");
        }
    }

    #[test]
    fn every_name_is_known() {
        assert!(Profile::NAMES.iter().all(|name| Profile::named(name).is_some()));
        assert_eq!(Profile::named("rude"), None);
    }
}
