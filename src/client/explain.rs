//! `urlserver explain`: the sentence, then the facts behind it.

use super::{ClientError, Remote, print};
use crate::url::Url;
use serde_json::Value;
use std::fmt::Write;
use std::process::ExitCode;

pub(super) async fn run(remote: &Remote, text: &str) -> Result<ExitCode, ClientError> {
    let url = Url::parse(text).map_err(|error| ClientError::Usage(format!("{text:?}: {error}")))?;
    let answer = remote.get(&format!("/api/explain?url={}", escaped(url.as_str()))).await?;
    let mut out = format!("{}\n\n", answer["why"].as_str().unwrap_or_default());
    write_facts(&mut out, &answer, 0);
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Letters and digits as they are, all else as `%41`.
fn escaped(url: &str) -> String {
    let mut text = String::with_capacity(url.len() * 3);
    for byte in url.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// One per line; what is not known is left out, and so is the sentence.
fn write_facts(out: &mut String, facts: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    for (name, value) in facts.as_object().into_iter().flatten() {
        let _ = match value {
            Value::Null => Ok(()),
            Value::String(_) if name == "why" && depth == 0 => Ok(()),
            Value::Array(items) if items.is_empty() => Ok(()),
            Value::Object(_) => {
                let _ = writeln!(out, "{indent}{name}:");
                write_facts(out, value, depth + 1);
                Ok(())
            }
            Value::String(text) => writeln!(out, "{indent}{name}: {text}"),
            Value::Array(_) | Value::Bool(_) | Value::Number(_) => writeln!(out, "{indent}{name}: {value}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn facts_are_lines_and_what_is_unknown_is_left_out() {
        let mut out = String::new();
        let facts =
            json!({"why": "so", "a": 1, "b": null, "c": [], "d": ["x"], "e": {"why": "thus", "f": true}});
        write_facts(&mut out, &facts, 0);
        assert_eq!(out, "a: 1\nd: [\"x\"]\ne:\n  f: true\n  why: thus\n");
    }

    #[test]
    fn a_url_is_one_parameter() {
        assert_eq!(escaped("http://a/?x=1&y=%20+"), "http://a/%3Fx%3D1%26y%3D%2520%2B");
    }
}
