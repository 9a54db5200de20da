//! Plays a conversation: what the text says happens, and the server must say exactly what the text says it
//! does, in order, at those times, and nothing else.
//!
//! - Lines that are said without an answer between them arrive together.
//! - `@` says how late it is. Whatever the server says by itself it says at the time of the `@` above it.
//! - What is said in the very moment when a clock runs out comes before it.

#[path = "../notebook.rs"]
mod notebook;
mod operator;
mod robots;
mod script;
mod stage;
mod worker;

use script::{Line, SEPARATOR, time_line};
use stage::Stage;
use std::collections::VecDeque;
use urlserver::time::Instant;

/// Turns of the server in one moment; more is a loop.
const TURNS_MAX: usize = 1000;

/// What to do about lines that the server should say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// Compare them.
    Compare,
    /// Put in what it says.
    Rewrite,
}

/// Plays `text` and gives it back, rewritten if asked for. An error says which line, and what was wrong.
pub(super) fn play(text: &str, mode: Mode) -> Result<String, String> {
    let dashes = text.lines().position(|line| line.trim_end() == SEPARATOR);
    let dashes = dashes.ok_or(format!("1: no line `{SEPARATOR}` behind the settings"))?;
    let settings: Vec<&str> = text.lines().take(dashes).collect();
    let stage = Stage::new(&settings.join("\n")).map_err(|error| format!("1: {error}"))?;
    let text_so_far = text.lines().take(dashes + 1).map(str::to_owned).collect();
    let mut player =
        Player { stage, mode, text: text_so_far, said: VecDeque::new(), clock_due: false, left: 0 };
    for (index, line) in text.lines().enumerate().skip(dashes + 1) {
        player.play(line).map_err(|error| format!("{}: {error}", index + 1))?;
    }
    player.end().map_err(|error| format!("{}: {error}", text.lines().count()))?;
    Ok(player.text.join("\n") + "\n")
}

struct Player {
    stage: Stage,
    mode: Mode,
    /// The text as it should be, so far.
    text: Vec<String>,
    /// What the server said that the text has not said yet.
    said: VecDeque<String>,
    /// The clocks of this moment have not run out yet.
    clock_due: bool,
    /// Documents that need not end.
    left: u64,
}

impl Player {
    fn play(&mut self, line: &str) -> Result<(), String> {
        match script::read(line)? {
            Line::Remark => {}
            Line::Hears => return self.hear(line.trim_end()),
            Line::Says { who, text } => {
                self.expect_silence()?;
                self.stage.say(who, text)?;
            }
            Line::Does { who, what } => {
                self.expect_silence()?;
                self.stage.happen(who, what)?;
            }
            Line::Time(at) => {
                self.end_moment()?;
                self.pass(at)?;
            }
            Line::Counts(wanted) => {
                self.end_moment()?;
                return self.count(line, wanted);
            }
            Line::Left(left) => {
                self.end_moment()?;
                self.left = left;
            }
        }
        self.text.push(line.to_owned());
        self.stage.check()
    }

    /// The server's turn: clocks first, then whatever there is to say, until there is nothing more to do now.
    fn listen(&mut self) -> Result<(), String> {
        for _ in 0..TURNS_MAX {
            if std::mem::take(&mut self.clock_due) {
                self.stage.handle_timeout();
                self.stage.check()?;
            }
            self.said.extend(self.stage.speak());
            self.stage.check()?;
            self.clock_due = self.stage.deadline().is_some_and(|deadline| deadline <= self.stage.now);
            if !self.clock_due {
                return Ok(());
            }
        }
        Err(format!("{}: the clock stands still", self.when()))
    }

    /// The text says that the server speaks.
    fn hear(&mut self, expected: &str) -> Result<(), String> {
        self.listen()?;
        match (self.mode, self.said.pop_front()) {
            (Mode::Rewrite, said) => self.text.extend(said),
            (Mode::Compare, Some(said)) if said == expected => self.text.push(said),
            (Mode::Compare, said) => {
                let got = said.unwrap_or("silence".into());
                return Err(format!("{}\n  expected: {expected}\n       got: {got}", self.when()));
            }
        }
        Ok(())
    }

    /// The text says nothing more that the server has said before this.
    fn expect_silence(&mut self) -> Result<(), String> {
        let unexpected: Vec<String> = self.said.drain(..).collect();
        if self.mode == Mode::Rewrite {
            let is_remark = |line: &&String| line.is_empty() || line.starts_with('#');
            let remarks = self.text.iter().rev().take_while(is_remark).count();
            let at = self.text.len() - remarks;
            self.text.splice(at..at, unexpected);
            return Ok(());
        }
        if unexpected.is_empty() {
            return Ok(());
        }
        let got = unexpected.join("\n            ");
        Err(format!("{}\n  expected: silence before this line\n       got: {got}", self.when()))
    }

    fn when(&self) -> String {
        time_line(self.stage.now)
    }

    fn end_moment(&mut self) -> Result<(), String> {
        self.listen()?;
        self.expect_silence()
    }

    /// Time passes; what happens on the way happens at its own time.
    fn pass(&mut self, until: Instant) -> Result<(), String> {
        if until < self.stage.now {
            return Err(format!("time does not go back: it was {} already", self.when()));
        }
        while let Some(next) = self.stage.deadline().filter(|&next| next < until) {
            self.stage.now = next;
            self.clock_due = true;
            self.listen()?;
            if !self.said.is_empty() {
                self.text.extend((self.mode == Mode::Rewrite).then(|| self.when()));
                self.expect_silence()?;
            }
        }
        self.stage.now = until;
        self.clock_due = true;
        Ok(())
    }

    fn count(&mut self, line: &str, wanted: &str) -> Result<(), String> {
        let got = self.stage.counts(wanted)?;
        if self.mode == Mode::Compare && got != wanted {
            return Err(format!("{}\n  expected: {line}\n       got: counts: {got}", self.when()));
        }
        self.text.push(format!("counts: {got}"));
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        self.end_moment()?;
        match self.stage.left() {
            left if left == self.left => Ok(()),
            left => {
                Err(format!("{}\n  expected: {} documents left\n       got: {left}", self.when(), self.left))
            }
        }
    }
}
