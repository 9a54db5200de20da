//! What each phase cost when it was last written down, and whether that still holds.

use std::fmt;

/// Growth of a phase's ratio that is a regression, as a factor. Seeds of hashes move it by 0.2 %, a compiler that cuts the
/// crate into other pieces (`CARGO_INCREMENTAL=0`) by up to 8 %.
const GROWN: f64 = 1.15;
/// A ratio that has shrunk to less than this of what is written down hides the next regression.
const SHRUNK: f64 = 0.70;

const HEADER: &str = "\
# Instructions for each operation of the scheduler's hot paths, counted by callgrind: ours, those of a dull structure
# that hands out the same URLs, and how many times as many ours are. Only the last column is compared.
# Written by: UPDATE_FIXTURES=1 cargo test --test instructions
";

/// What one operation of a phase costs.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Cost {
    pub(crate) phase: String,
    /// Instructions of ours.
    pub(crate) ours: f64,
    /// Instructions of the dull structure.
    pub(crate) dull: f64,
}

impl Cost {
    /// How many times as many instructions ours needs. Compilers and libraries change both.
    fn ratio(&self) -> f64 {
        self.ours / self.dull
    }
}

/// The text of all costs.
pub(crate) fn write(costs: &[Cost]) -> String {
    let lines = costs.iter().map(|cost| {
        format!("{:<12} {:>8.1} {:>8.1} {:>7.3}\n", cost.phase, cost.ours, cost.dull, cost.ratio())
    });
    let titles = format!("# {:<10} {:>8} {:>8} {:>7}\n", "phase", "ours", "dull", "ratio");
    [HEADER.to_owned(), titles].into_iter().chain(lines).collect()
}

/// Reads what [`write`] wrote. The ratio is there for people: it follows from the rest.
pub(crate) fn read(text: &str) -> Result<Vec<Cost>, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| cost(line).ok_or_else(|| format!("no phase with three numbers: {line}"))).collect()
}

fn cost(line: &str) -> Option<Cost> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let &[phase, ours, dull, ratio] = words.as_slice() else { return None };
    let number = |word: &str| word.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number(ratio)?;
    Some(Cost { phase: phase.to_owned(), ours: number(ours)?, dull: number(dull)? })
}

/// Why a phase is not what is written down.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Fault {
    Grown {
        was: Cost,
        is: Cost,
    },
    Shrunk {
        was: Cost,
        is: Cost,
    },
    /// Measured, and not written down.
    New {
        is: Cost,
    },
    /// Written down, and not measured.
    Gone {
        was: Cost,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Grown { was, is } => {
                write!(f, "{} costs more: {}", is.phase, Change { was, is })
            }
            Fault::Shrunk { was, is } => {
                write!(f, "{} costs less, write the new figure down: {}", is.phase, Change { was, is })
            }
            Fault::New { is } => write!(f, "{} is not written down", is.phase),
            Fault::Gone { was } => write!(f, "{} is written down, and is no phase", was.phase),
        }
    }
}

struct Change<'a> {
    was: &'a Cost,
    is: &'a Cost,
}

impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { was, is } = self;
        let percent = (is.ratio() / was.ratio() - 1.0) * 100.0;
        write!(
            f,
            "{:.3} times the dull structure's instructions, was {:.3} ({percent:+.0} %); {:.1} for each operation, were {:.1}",
            is.ratio(),
            was.ratio(),
            is.ours,
            was.ours
        )
    }
}

/// All that is not as it was.
pub(crate) fn compare(was: &[Cost], is: &[Cost]) -> Vec<Fault> {
    let in_list = |list: &[Cost], phase: &str| list.iter().find(|cost| cost.phase == phase).cloned();
    let now = is.iter().filter_map(|is| match in_list(was, &is.phase) {
        None => Some(Fault::New { is: is.clone() }),
        Some(was) => judge(was, is.clone()),
    });
    let gone = was.iter().filter(|was| in_list(is, &was.phase).is_none());
    now.chain(gone.map(|was| Fault::Gone { was: was.clone() })).collect()
}

fn judge(was: Cost, is: Cost) -> Option<Fault> {
    let change = is.ratio() / was.ratio();
    if change > GROWN {
        Some(Fault::Grown { was, is })
    } else if change < SHRUNK {
        Some(Fault::Shrunk { was, is })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(phase: &str, ours: f64, dull: f64) -> Cost {
        Cost { phase: phase.to_owned(), ours, dull }
    }

    /// What is said when `send` cost 300 and 100, and now costs this.
    fn verdict(ours: f64, dull: f64) -> Vec<String> {
        let faults = compare(&[cost("send", 300.0, 100.0)], &[cost("send", ours, dull)]);
        faults.iter().map(Fault::to_string).collect()
    }

    #[test]
    fn what_is_much_more_has_grown() {
        let said = "send costs more: 3.480 times the dull structure's instructions, was 3.000 (+16 %); 348.0 for each \
                    operation, were 300.0";
        assert_eq!(verdict(348.0, 100.0), [said]);
        assert_eq!(verdict(300.0, 80.0).len(), 1, "the dull structure alone became cheaper");
    }

    #[test]
    fn what_is_much_less_is_to_be_written_down() {
        let said = "send costs less, write the new figure down: 2.000 times the dull structure's instructions, was 3.000 \
                    (-33 %); 200.0 for each operation, were 300.0";
        assert_eq!(verdict(200.0, 100.0), [said]);
    }

    #[test]
    fn a_little_more_or_less_is_fine_and_so_is_what_changes_both() {
        let none = Vec::<String>::new();
        for (ours, dull) in [(300.0, 100.0), (344.0, 100.0), (212.0, 100.0), (900.0, 300.0), (30.0, 10.0)] {
            assert_eq!(verdict(ours, dull), none, "{ours} {dull}");
        }
    }

    #[test]
    fn every_phase_is_written_down_and_nothing_else_is() {
        let (send, done) = (cost("send", 3.0, 1.0), cost("done", 3.0, 1.0));
        let faults = compare(std::slice::from_ref(&send), std::slice::from_ref(&done));
        assert_eq!(faults, [Fault::New { is: done }, Fault::Gone { was: send }]);
    }

    #[test]
    fn what_is_written_is_read() {
        let costs = [cost("admit_known", 1708.5, 891.5), cost("send", 625.0, 84.5)];
        assert_eq!(read(&write(&costs)).as_deref(), Ok(&costs[..]));
        for bad in ["send 1 2", "send 1 2 3 4", "send 1 x 3", "send 1 0 3", "send NaN 1 1", "send -1 1 1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
