//! `urlserver top`: how things stand, once a second on a terminal; once, where nobody looks.

use super::{ClientError, Remote, print};
use crate::observe::words::grouped;
use crate::time::Duration;
use console::{Key, Term};
use serde_json::Value;
use std::fmt::Write;
use std::process::ExitCode;
use tokio::sync::mpsc;

const REFRESH: Duration = Duration::from_secs(1);
/// Hosts asked for, of which those with the most to do are shown.
const HOSTS_ASKED: usize = 1_000;
/// Lines of hosts where there is no terminal to be filled.
const HOSTS_SHOWN: usize = 20;
/// Lines above them.
const HEAD_LINES: usize = 12;

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_REST: &str = "\x1b[J";

pub(super) async fn run(remote: &Remote) -> Result<ExitCode, ClientError> {
    let first = Sight::look(remote).await?;
    let terminal = Term::stdout();
    if !terminal.is_term() {
        print(&first.shown(None, HOSTS_SHOWN, 110))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(ENTER)?;
    let ended = watch(remote, &terminal, first).await;
    print(LEAVE)?;
    ended.map(|()| ExitCode::SUCCESS)
}

/// Until `q` or Ctrl-C.
async fn watch(remote: &Remote, terminal: &Term, first: Sight) -> Result<(), ClientError> {
    let mut keys = read_keys(terminal.clone());
    let mut seen = first;
    let mut before: Option<Sight> = None;
    loop {
        let (rows, columns) = terminal.size();
        let hosts = usize::from(rows).saturating_sub(HEAD_LINES);
        let text = seen.shown(before.as_ref(), hosts, columns.into());
        let lines: Vec<String> = text.lines().map(|line| format!("{line}{CLEAR_LINE}\r\n")).collect();
        print(&format!("{HOME}{}{CLEAR_REST}q ends", lines.concat()))?;
        tokio::select! {
            _ = keys.recv() => return Ok(()),
            _ = tokio::signal::ctrl_c() => return Ok(()),
            () = tokio::time::sleep(REFRESH) => {}
        }
        before = Some(std::mem::replace(&mut seen, Sight::look(remote).await?));
    }
}

/// Says so when a key is pressed that means the end. It reads in a thread of its own, which ends with the program.
fn read_keys(terminal: Term) -> mpsc::Receiver<()> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        loop {
            match terminal.read_key_raw() {
                Ok(Key::Char('q' | 'Q') | Key::CtrlC | Key::Escape) | Err(_) => break,
                Ok(_) => {}
            }
        }
        let _ = sender.blocking_send(());
    });
    receiver
}

/// What there is to see at one moment.
struct Sight {
    stats: Value,
    hosts: Vec<Value>,
}

impl Sight {
    async fn look(remote: &Remote) -> Result<Sight, ClientError> {
        let stats = remote.get("/api/stats").await?;
        let mut answer = remote.get(&format!("/api/hosts?limit={HOSTS_ASKED}")).await?;
        let mut hosts = match answer["hosts"].take() {
            Value::Array(hosts) => hosts,
            _ => Vec::new(),
        };
        let pending = |host: &Value| -> u64 {
            ["queued", "leftover", "in_flight"].iter().map(|name| host[*name].as_u64().unwrap_or(0)).sum()
        };
        hosts.sort_by_key(|host| std::cmp::Reverse(pending(host)));
        Ok(Sight { stats, hosts })
    }

    fn number(&self, name: &str) -> u64 {
        self.stats[name].as_u64().unwrap_or(0)
    }

    /// Per second since `before`, or as the server says where there was no before.
    fn rates(&self, before: Option<&Sight>) -> (f64, Option<f64>) {
        let float = |sight: &Sight, name: &str| sight.stats[name].as_f64().unwrap_or(0.0);
        let Some(before) = before else { return (float(self, "urls_per_sec"), None) };
        let time = (float(self, "uptime") - float(before, "uptime")).max(0.001);
        let rate = |name: &str| (float(self, name) - float(before, name)).max(0.0) / time;
        (rate("sent"), Some(rate("done")))
    }

    fn shown(&self, before: Option<&Sight>, hosts: usize, columns: usize) -> String {
        let mut out = String::new();
        self.write_figures(&mut out, before);
        self.write_hosts(&mut out, hosts);
        let cut = |line: &str| line.chars().take(columns).collect::<String>() + "\n";
        out.lines().map(cut).collect()
    }

    fn write_figures(&self, out: &mut String, before: Option<&Sight>) {
        let n = |name: &str| grouped(self.number(name));
        let waits = |name: &str| grouped(self.stats["waiting"][name].as_u64().unwrap_or(0));
        let (sent, done) = self.rates(before);
        let done = done.map_or_else(String::new, |done| format!("   {done:.1} done/s"));
        let index = if self.stats["index_up"] == true { "reachable" } else { "NOT REACHABLE" };
        let uptime = self.stats["uptime"].as_f64().unwrap_or(0.0);
        let _ = write!(
            out,
            "urlserver   up {uptime:.0} s   {} spiders   index {index}\n\n\
             rate      {sent:.1} sent/s{done}\n\
             pending   {} queued   {} in the leftover   {} in flight\n\
             slots     {} of {} bound   {} hosts known   {} addresses\n\
             waiting   {} for a spider   {} for their host   {} for an ip   {} for a group\n\
             \x20         {} for a name   {} documents for their time   {} hosts benched\n\
             ended     {} done   {} failed   {} denied\n\
             sends     {} sent   {} retried   {} expired   {} stale\n\n",
            n("spiders"),
            n("queued"),
            n("leftover"),
            n("in_flight"),
            n("slots_bound"),
            n("slots"),
            n("hosts"),
            n("addresses"),
            waits("spider"),
            waits("host"),
            waits("ip"),
            waits("group"),
            waits("address"),
            waits("time"),
            waits("benched"),
            n("done"),
            n("failed"),
            n("denied"),
            n("sent"),
            n("retried"),
            n("expired"),
            n("stale_status"),
        );
    }

    fn write_hosts(&self, out: &mut String, shown: usize) {
        let known = self.number("hosts");
        let which = match self.hosts.len() as u64 {
            all if all >= known => String::new(),
            some => format!(" (of the first {} by name)", grouped(some)),
        };
        let _ = writeln!(
            out,
            "{:>9} {:>9} {:>9}  {:<10} host{which}",
            "queued", "leftover", "in flight", "state"
        );
        for host in self.hosts.iter().take(shown) {
            let n = |name: &str| grouped(host[name].as_u64().unwrap_or(0));
            let text = |name: &str| host[name].as_str().unwrap_or_default().to_owned();
            let (queued, leftover, in_flight) = (n("queued"), n("leftover"), n("in_flight"));
            let _ = writeln!(
                out,
                "{queued:>9} {leftover:>9} {in_flight:>9}  {:<10} {}",
                text("state"),
                text("host")
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sight(sent: u64, uptime: f64) -> Sight {
        let stats = json!({
            "sent": sent, "done": sent / 2, "uptime": uptime, "urls_per_sec": 9.0, "hosts": 2_000,
            "index_up": true, "waiting": {"ip": 7},
        });
        let host =
            json!({"host": "a.example", "state": "ready", "queued": 1_234, "leftover": 0, "in_flight": 1});
        Sight { stats, hosts: vec![host] }
    }

    #[test]
    fn rates_are_those_of_the_time_between() {
        assert_eq!(sight(100, 10.0).rates(None), (9.0, None));
        assert_eq!(sight(140, 12.0).rates(Some(&sight(100, 10.0))), (20.0, Some(10.0)));
        assert_eq!(sight(5, 1.0).rates(Some(&sight(100, 10.0))).0, 0.0, "another server, just started");
    }

    #[test]
    fn a_screen_fits_the_terminal() {
        let text = sight(0, 1.0).shown(None, 5, 60);
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert!(text.contains("1,234") && text.contains("ready      a.example"), "{text}");
        assert!(text.lines().count() <= HEAD_LINES, "{text}");
    }
}
