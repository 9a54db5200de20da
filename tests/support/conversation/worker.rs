//! What workers say that reserve hosts: `reserve 2`, `renew R1`, `release R1 7=200 8=429,retry-after=30`; and what they
//! are told.

use urlserver::document::Done;
use urlserver::ids::DocId;
use urlserver::scheduler::{Scheduler, Token};
use urlserver::time::{Duration, Instant};
use urlserver::wire::command;

/// Says `text` for a worker; the answer.
pub(super) fn answer(
    scheduler: &mut Scheduler,
    last: &mut u128,
    now: Instant,
    text: &str,
) -> Result<String, String> {
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        ["reserve", urls] => {
            let urls = urls.parse().map_err(|_| format!("`{urls}` is no number"))?;
            let token = Token(*last + 1);
            let Some(reserved) = scheduler.poll_reservation(now, token, urls) else {
                return Ok("nothing".into());
            };
            *last += 1;
            let docs = reserved.urls.iter().map(|url| format!(" {} {} {}", url.doc, url.ip, url.url));
            let times = (reserved.expires_in.as_secs_f64(), reserved.gap.as_secs_f64());
            let (host, docs) = (&reserved.host, docs.collect::<Vec<_>>().join(","));
            Ok(format!("R{last} {host} expires_in={} gap={}:{docs}", times.0, times.1))
        }
        ["renew", name] => Ok(match scheduler.handle_renewed(now, token(name)?) {
            Some(time) => format!("{name} expires_in={}", time.as_secs_f64()),
            None => "gone".into(),
        }),
        ["release", name, ref said @ ..] => {
            let outcomes = said.iter().map(|said| outcome(said)).collect::<Result<Vec<_>, _>>()?;
            Ok(match scheduler.handle_released(now, token(name)?, &outcomes) {
                Ok(()) => format!("{name} released"),
                Err(error) => error.to_string(),
            })
        }
        _ => Err(format!("`{text}` is nothing that a worker says")),
    }
}

fn token(name: &str) -> Result<Token, String> {
    let number = name.strip_prefix('R').and_then(|digits| digits.parse().ok());
    number.map(Token).ok_or(format!("`{name}` is no reservation"))
}

fn outcome(said: &str) -> Result<(DocId, Done), String> {
    let read = |(doc, text): (&str, &str)| {
        let outcome = command::outcome(&text.replace(',', " "))?;
        Some((DocId(doc.parse().ok()?), outcome.at(Duration::ZERO)))
    };
    said.split_once('=').and_then(read).ok_or(format!("`{said}` is no outcome"))
}
