//! What a web server says to a request for its robots.txt, as text.

use super::script::seconds;
use urlserver::document::Outcome;
use urlserver::robots::{Answer, Rules};
use urlserver::time::Duration;
use urlserver::url::Url;

/// The crawler that all rules are for.
const PRODUCT: &str = "urlserver";

/// Reads an answer: a status or an outcome, and what belongs to it.
pub(super) fn answer(said: &str) -> Result<Answer, String> {
    let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
    let Ok(status) = word.parse::<u16>() else {
        return match word {
            "connect-failed" => Ok(Answer::Unreachable(Outcome::ConnectFailed)),
            "timeout" => Ok(Answer::Unreachable(Outcome::Timeout)),
            "tls-failed" => Ok(Answer::Unreachable(Outcome::TlsFailed)),
            _ => Err(format!("`{word}` is no answer of a web server")),
        };
    };
    match status {
        200..=299 => {
            let (max_age, rules) = option(rest, "max-age=")?;
            let body = format!("User-agent: *\n{}", rules.split("; ").collect::<Vec<_>>().join("\n"));
            Ok(Answer::Rules { rules: Rules::parse(body.as_bytes(), PRODUCT), max_age })
        }
        300..=399 => {
            let to = Url::parse(rest).map_err(|error| format!("{error}: `{rest}`"))?;
            Ok(Answer::Moved { to })
        }
        429 | 500.. => Ok(Answer::Refused { status, retry_after: option(rest, "retry-after=")?.0 }),
        _ => Ok(Answer::Missing { status }),
    }
}

/// `name=SECONDS`, if the text begins with it, and what stands behind it.
fn option<'a>(text: &'a str, name: &str) -> Result<(Option<Duration>, &'a str), String> {
    let Some(value) = text.strip_prefix(name) else { return Ok((None, text)) };
    let (value, rest) = value.split_once(' ').unwrap_or((value, ""));
    let time = seconds(value).ok_or(format!("`{value}` is no time"))?;
    Ok((Some(time), rest))
}
