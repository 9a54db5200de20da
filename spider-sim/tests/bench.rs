//! `spider-sim bench` from end to end, in a size that is over in seconds. Nothing here judges a speed.
#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const TINY: &str = "--hosts 20 --urls 400 --runs 2 --exact-hosts 30 --exact-gap 0.2 --exact-seconds 1 \
                    --idle-hosts 50 --idle-seconds 0.2 --load-urls 1000 --documents 500 \
                    --scale-hosts 10,40 --scale-urls 1000";

/// The server of this workspace: beside this program, made if it is not there yet.
fn server() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_spider-sim")).with_file_name("urlserver");
    if !path.exists() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--locked", "--package", "urlserver", "--bin", "urlserver"]);
        cargo.args((!cfg!(debug_assertions)).then_some("--release"));
        cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        assert!(cargo.status().unwrap().success());
    }
    path
}

/// With a `PATH` on which no peer is.
fn bench(arguments: &str, plots: &Path) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_spider-sim"))
        .arg("bench")
        .args(TINY.split_whitespace())
        .args(arguments.split_whitespace())
        .arg("--server")
        .arg(server())
        .arg("--plots")
        .arg(plots)
        .env("PATH", plots)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

fn facts(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_server_the_ideal_and_the_floor_take_turns_and_are_drawn() {
    let plots = tempfile::tempdir().unwrap();
    let facts = facts(&bench("--json --only urlserver,ideal,floor", plots.path()));
    let rows = facts["throughput"].as_array().unwrap();
    let cases: Vec<&str> = rows.iter().map(|row| row["case"].as_str().unwrap()).collect();
    assert_eq!(cases, ["urlserver", "ideal", "floor"]);
    for row in rows {
        assert_eq!((&row["hosts"], &row["urls"], &row["runs"]), (&20.into(), &400.into(), &2.into()));
        let rate = &row["urls_per_sec"];
        assert!(rate["min"].as_f64() <= rate["median"].as_f64(), "{row}");
        assert!(rate["median"].as_f64() <= rate["max"].as_f64(), "{row}");
    }
    for row in &rows[..2] {
        let all = serde_json::json!({"urls": 400, "twice": 0, "clashes": 0});
        assert_eq!(row["verified"], all, "each URL once, none of a host in flight");
    }
    let goals = facts["goals"].as_array().unwrap();
    let goal = |what: &str| goals.iter().find(|goal| goal["what"].as_str().unwrap().contains(what)).unwrap();
    assert!(goal("CPU against the ideal")["met"].is_boolean());
    assert_eq!(goal("against Redis")["measured"], "not measured");
    let svg = std::fs::read_to_string(plots.path().join("throughput.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains(">urlserver<"), "{svg}");
    assert!(!plots.path().join("exactness.svg").exists(), "what was not measured is not drawn");
}

#[test]
fn a_peer_that_is_not_there_is_said_to_be_skipped() {
    let plots = tempfile::tempdir().unwrap();
    let output = bench("--only redis,beanstalkd", plots.path());
    let table = String::from_utf8(output.stdout).unwrap();
    for program in ["redis-server", "beanstalkd"] {
        assert!(table.contains(&format!("skipped: {program} is not on this machine")), "{table}");
    }
    let facts = facts(&bench("--json --only redis", plots.path()));
    assert_eq!(facts["skipped"][0]["case"], "redis");
    assert_eq!(facts["throughput"], serde_json::json!([]));
}

#[test]
fn every_other_part_comes_to_a_figure() {
    let plots = tempfile::tempdir().unwrap();
    let facts = facts(&bench("--json --only loading,exactness,idle,start,scale", plots.path()));
    let loaded: Vec<&Value> = facts["loading"].as_array().unwrap().iter().map(|row| &row["urls"]).collect();
    assert_eq!(loaded, [&Value::from(1000); 4]);
    let exactness = &facts["exactness"];
    for side in ["urlserver", "ideal"] {
        // 30 hosts, a line every 0.2 s, for a second, of which the first lines take 0.2 s.
        assert!(exactness[side]["sends"].as_u64() > Some(30), "{exactness}");
        assert!(exactness[side]["early"].is_u64(), "{exactness}");
    }
    assert!(exactness["server_histogram"].as_array().is_some_and(|bars| !bars.is_empty()), "{exactness}");
    assert_eq!(facts["idle"]["hosts"], 50);
    assert_eq!(facts["start"]["documents"], 500);
    assert!(facts["start"]["disk_bytes"].as_u64() > Some(0));
    let scale = facts["scale"].as_array().unwrap();
    assert_eq!((&scale[0]["hosts"], &scale[1]["urls"]), (&10.into(), &1000.into()));
    let svg = std::fs::read_to_string(plots.path().join("exactness.svg")).unwrap();
    assert!(svg.contains("error of a send") && svg.ends_with("</svg>\n"), "{svg}");
}
