//! Everything is found by index: the plans of all statements on tables that are so large that it matters.

#[path = "support/postgres.rs"]
mod postgres;

use postgres::{new_database, sql};
use std::collections::BTreeMap;
use std::path::Path;

const HOSTS: usize = 30_000;
const DOCS: usize = 300_000;

/// Nine tenths of all hosts have open documents; some are held, some promised, some late.
fn big_database() -> String {
    let url = new_database();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(urlserver::index::postgres::migrate(&url)).expect("tables");
    sql(
        &url,
        &format!(
            "INSERT INTO instances (epoch, name, expires_1, expires_2)
                 SELECT n, 'server' || n, clock_timestamp() + (n - 3) * interval '1 hour',
                     clock_timestamp() + (n - 3) * interval '2 hours'
                 FROM generate_series(1, 20) AS n;
             INSERT INTO hosts (host_id, host, next_place, turn, holder, in_flight, affinity, affinity_until,
                     paused, blocked_until, stopped, ordered, unheard)
                 SELECT n, 'h' || n || '.example', 11, CASE WHEN n % 10 > 0 THEN n END,
                     CASE WHEN n % 7 = 0 THEN 1 + n % 20 END, n % 14 = 0,
                     CASE WHEN n % 70 = 1 THEN 1 + n % 20 END,
                     CASE WHEN n % 70 = 1 THEN clock_timestamp() + n * interval '1 second' END,
                     n % 200 = 3, CASE WHEN n % 50 = 3 THEN clock_timestamp() + (n - 9000) * interval '1 second' END,
                     n % 50 = 3, CASE WHEN n % 50 = 3 THEN n ELSE 0 END, n % 350 = 203
                 FROM generate_series(1, {HOSTS}) AS n;
             INSERT INTO keys (key, shared, held_until)
                 SELECT 'group:g' || n, true, clock_timestamp() + (n - 250) * interval '1 hour'
                 FROM generate_series(1, 300) AS n;
             INSERT INTO guards SELECT generate_series(1, 5000);
             INSERT INTO keys (key, holder, in_flight, wanted_by)
                 SELECT 'ip:10.0.' || n / 250 || '.' || n % 250, CASE WHEN n % 3 = 0 THEN 1 + n % 20 END, true,
                     CASE WHEN n % 300 = 0 THEN 1 END
                 FROM generate_series(1, 20000) AS n;
             INSERT INTO docs (doc, host_id, place, print, url, state)
                 SELECT n, 1 + n % {HOSTS}, 1 + n / {HOSTS}, n, 'http://h' || 1 + n % {HOSTS} || '.example/' || n,
                     CASE WHEN n % 3 = 0 THEN 1 ELSE 0 END
                 FROM generate_series(0, {DOCS} - 1) AS n;
             ANALYZE"
        ),
    );
    url
}

/// Arguments for the parameters of a statement, by their number and what they are compared with.
fn arguments(name: &str) -> &'static str {
    match name {
        "bury" | "bury_guard" | "guard" | "held_hosts" | "held_keys" | "leave" | "open_under_us"
        | "outlook" | "wanted" => "1",
        "candidates" => "ARRAY[11, 12, 13], ARRAY[0, 1, 2], 100",
        "claim_hosts" | "claim_hosts_for_us" => "1, 100, ARRAY['h11.example', 'h12.example']",
        "count_losses" => "1, 5",
        "draw_ids" | "draw_turns" => "5",
        "ended_by_us" => "1, ARRAY[1, 2, 3]",
        "expired" => "1",
        "late" => "1, 16",
        "free_forgotten" => "500",
        "free_hosts" | "free_keys" => "1, true, 500",
        "free_promised" => "1, 500",
        "give_hosts_back" => {
            "1, ARRAY['h11.example', 'h12.example'], 1000, ARRAY[1, 2], ARRAY[1, 2], ARRAY[1, 2]::smallint[], ARRAY[1, 2], ARRAY['ip:10.0.1.1', NULL]"
        }
        "heard" => "1, ARRAY['h11.example', 'h12.example'], ARRAY[1, 2]",
        "hold_keys" => "ARRAY['group:a', 'group:b'], ARRAY[1, 2], ARRAY[1, 2]::smallint[]",
        "holds" | "lift_blocks" => "500",
        "order" => "'h11.example', true, NULL, NULL",
        "order_all" => "true",
        "tried" => "1, ARRAY[1, 2, 3], ARRAY[1, 1, 1], ARRAY[0, 0, 1], ARRAY[5, 5, 5]",
        "unheard" => "1, 500",
        "give_keys_back" | "note_keys" | "rest_keys" => {
            "1, ARRAY['ip:10.0.1.1', 'ip:10.0.1.2'], ARRAY[1, 2], ARRAY[1, 2], ARRAY[1, 2]::smallint[]"
        }
        "note_hosts" | "rest_hosts" => {
            "1, ARRAY['h11.example', 'h12.example'], ARRAY[1, 2], ARRAY[1, 2], ARRAY[1, 2]::smallint[], ARRAY[1, 2]"
        }
        "holders" => "ARRAY['ip:10.0.1.1', 'ip:10.0.1.2']",
        "insist" | "want_keys" => "1, ARRAY['ip:10.0.1.1', 'ip:10.0.1.2']",
        "known" => "ARRAY[11, 12, 13], ARRAY[1, 2, 3]",
        "lengthen_lines" => "ARRAY[11, 12, 13], ARRAY[1, 2, 3], ARRAY[1, 2, 3]",
        "lines" => "ARRAY['h11.example', 'h12.example']",
        "lock_hosts" | "want_hosts" | "want_any_hosts" => "1, ARRAY['h11.example', 'h12.example']",
        "new_docs" => {
            "ARRAY[1, 2], ARRAY[11, 12], ARRAY[50, 51], ARRAY[1, 2], ARRAY['http://a/', 'http://b/'], ARRAY[NULL, 5]"
        }
        "new_hosts" => "ARRAY['new.example', 'h12.example']",
        "register" => "'name', 1000, 2000",
        "renew" => "1, 1000, 2000",
        "report" => "1, ARRAY[1, 2, 3], ARRAY[1, 1, 1]::smallint[], ARRAY['200', '200', '404']",
        other => panic!("{other}.sql is new: what are its arguments?"),
    }
}

/// Types of the parameters, as the program sends them.
fn types(name: &str) -> &'static str {
    match name {
        "candidates" => "(bigint[], bigint[], bigint)",
        "claim_hosts" | "claim_hosts_for_us" => "(bigint, bigint, text[])",
        "draw_ids" | "draw_turns" | "free_forgotten" | "holds" | "lift_blocks" => "(bigint)",
        "ended_by_us" => "(bigint, bigint[])",
        "late" | "count_losses" | "free_promised" | "unheard" => "(bigint, bigint)",
        "free_hosts" | "free_keys" => "(bigint, boolean, bigint)",
        "give_hosts_back" => "(bigint, text[], bigint, bigint[], bigint[], smallint[], bigint[], text[])",
        "give_keys_back" | "note_keys" | "rest_keys" => "(bigint, text[], bigint[], bigint[], smallint[])",
        "note_hosts" | "rest_hosts" => "(bigint, text[], bigint[], bigint[], smallint[], bigint[])",
        "heard" => "(bigint, text[], bigint[])",
        "hold_keys" => "(text[], bigint[], smallint[])",
        "order" => "(text, boolean, bigint, bigint)",
        "order_all" => "(boolean)",
        "tried" => "(bigint, bigint[], integer[], integer[], bigint[])",
        "holders" | "lines" | "new_hosts" => "(text[])",
        "insist" | "want_keys" | "lock_hosts" | "want_hosts" | "want_any_hosts" => "(bigint, text[])",
        "known" => "(bigint[], bigint[])",
        "lengthen_lines" => "(bigint[], bigint[], bigint[])",
        "new_docs" => "(bigint[], bigint[], bigint[], bigint[], text[], bigint[])",
        "register" => "(text, bigint, bigint)",
        "renew" => "(bigint, bigint, bigint)",
        "report" => "(bigint, bigint[], smallint[], text[])",
        _ => "(bigint)",
    }
}

/// All statements, by name.
fn statements() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/index/postgres/sql");
    let files = std::fs::read_dir(folder).expect("statements").map(|entry| entry.expect("a file").path());
    let all: BTreeMap<String, String> = files
        .map(|path| {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).expect("a statement"))
        })
        .collect();
    assert!(all.len() > 30, "{:?}", all.keys());
    all
}

#[test]
fn no_statement_needs_what_only_one_engine_has() {
    for (name, text) in statements() {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("--"));
        let code = code.collect::<Vec<_>>().join("\n").to_ascii_lowercase();
        for word in ["advisory", "listen", "notify", "extension", "pg_", "ctid", "xmin", "lock table"] {
            assert!(!code.contains(word), "{name}.sql: {word}");
        }
    }
}

#[test]
fn no_statement_reads_a_whole_table() {
    let url = big_database();
    let mut scans = Vec::new();
    for (name, statement) in statements().iter().filter(|(name, _)| !name.starts_with("schema_")) {
        let (types, arguments) = (types(name), arguments(name));
        // As for a statement that was prepared long ago: with no knowledge of the arguments; and with it.
        for mode in ["force_generic_plan", "force_custom_plan"] {
            let plan = sql(
                &url,
                &format!(
                    "SET plan_cache_mode = {mode}; PREPARE it {types} AS {statement}; EXPLAIN EXECUTE it({arguments})"
                ),
            );
            // The few servers there are may be read as they stand, and so may the one row about all of them.
            let few = |line: &&str| {
                ["instances", "fleet"].iter().any(|few| line.contains(&format!("Seq Scan on {few}")))
            };
            let whole = plan.lines().filter(|line| line.contains("Seq Scan on") && !few(line));
            scans.extend(whole.map(|line| format!("{name} ({mode}): {}\n{plan}", line.trim())));
        }
    }
    assert!(scans.is_empty(), "{}", scans.join("\n\n"));
}
