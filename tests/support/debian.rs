//! Programs of Debian that tests need: where one is not installed, it is, if we may.

use std::process::Command;

/// What `find` finds, if need be after `package` was installed. Panics with the reason if it cannot be had.
pub(crate) fn installed<T>(package: &str, find: impl Fn() -> Option<T>) -> T {
    if let Some(found) = find() {
        return found;
    }
    eprintln!("installing {package} for the tests");
    let update = ["update"];
    let install = ["install", "-y", "--no-install-recommends", package];
    let said: Vec<String> = [&update[..], &install].into_iter().filter_map(refusal).collect();
    find().unwrap_or_else(|| panic!("{package} is not installed, and cannot be: {}", said.join("; ")))
}

/// Why apt-get did not do it, if it did not. An update that fails is no end: the lists may be good enough.
fn refusal(arguments: &[&str]) -> Option<String> {
    let said = match Command::new("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive").output()
    {
        Ok(output) if output.status.success() => return None,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Some(format!("apt-get {}: {said}", arguments.join(" ")))
}
