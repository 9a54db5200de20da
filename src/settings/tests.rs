//! Settings from all sources together, and what they print.

#![allow(clippy::unwrap_used)]

use super::*;
use std::collections::HashSet;
use std::num::NonZeroU32;
use std::time::Duration;

fn sources(flags: &[(&str, &str)], environment: &[(&str, &str)]) -> Sources {
    Sources {
        flags: flags.iter().map(|(name, text)| (name.to_string(), vec![text.to_string()])).collect(),
        environment: environment.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect(),
        file: None,
    }
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn problems(result: Result<Settings, SettingsError>) -> Vec<String> {
    result.unwrap_err().problems.iter().map(Problem::to_string).collect()
}

#[test]
fn names_are_single_and_what_they_follow_exists() {
    let names: HashSet<_> = DEFINITIONS.iter().map(|definition| definition.name).collect();
    assert_eq!(names.len(), DEFINITIONS.len());
    for definition in DEFINITIONS {
        if let Preset::SameAs(other) | Preset::Times(_, other) = definition.preset {
            assert!(names.contains(other), "{other}");
        }
    }
    for (name, _) in NOT_YET {
        assert!(names.contains(name), "{name}");
    }
}

#[test]
fn defaults_are_those_of_the_contract() {
    let settings = Settings::default();
    assert_eq!(settings.listen, Some("127.0.0.1:4332".parse().unwrap()));
    assert_eq!(settings.http, Some("127.0.0.1:4333".parse().unwrap()));
    assert_eq!(settings.index, IndexAt::Dir("urlserver-data".into()));
    assert_eq!((settings.queue_count, settings.queue_len), (1000, 100));
    assert_eq!(settings.req_host_concurrent.get(), 1);
    assert_eq!(settings.req_ip_concurrent, NonZeroU32::new(1));
    assert_eq!(settings.req_ip_per_sec.gap(), Duration::from_secs(1));
    assert_eq!(settings.ip_max_urls, NonZeroU32::new(100));
    assert_eq!(settings.lease_max, Some(Duration::from_secs(1200)));
    assert_eq!(settings.max_attempts, NonZeroU32::new(3));
    assert_eq!(settings.dns_ttl_max, Duration::from_secs(86_400));
    assert_eq!(settings.dns_serve_stale, Duration::from_secs(3_600));
    assert_eq!(settings.address_family, [Family::Ipv4, Family::Ipv6]);
    assert_eq!(settings.spider_to_dial(), None);
    assert!(settings.seeds.is_empty() && !settings.allow_private && !settings.exit_when_done);
}

#[test]
fn every_server_has_a_name_of_its_own() {
    assert_ne!(Settings::default().instance, Settings::default().instance);
    assert_eq!(Settings::from_pairs(&[("instance", "a")]).unwrap().instance, "a");
}

#[test]
fn some_defaults_follow_others() {
    let settings = Settings::from_pairs(&[
        ("queue_len", "7"),
        ("req_host_concurrent", "3"),
        ("req_host_per_sec", "inf"),
        ("timeout_spider_status", "500ms"),
    ])
    .unwrap();
    assert_eq!(settings.ip_max_urls, NonZeroU32::new(7));
    assert_eq!(settings.req_ip_concurrent, NonZeroU32::new(3));
    assert!(settings.req_ip_per_sec.is_unlimited());
    assert_eq!(settings.lease_max, Some(Duration::from_secs(10)));
}

#[test]
fn zero_and_none_switch_off() {
    let settings = Settings::from_pairs(&[
        ("ip_max_urls", "0"),
        ("lease_max", "0"),
        ("max_attempts", "0"),
        ("listen", "none"),
        ("spider_window", "none"),
        ("req_ip_concurrent", "inf"),
    ])
    .unwrap();
    assert_eq!((settings.ip_max_urls, settings.lease_max, settings.max_attempts), (None, None, None));
    assert_eq!((settings.listen, settings.spider_window, settings.req_ip_concurrent), (None, None, None));
}

#[test]
fn the_longest_timeout_has_a_lease_that_is_no_shorter() {
    let settings = Settings::from_pairs(&[("timeout_spider_status", "36500d")]).unwrap();
    assert_eq!(settings.lease_max, Some(DURATION_MAX));
}

#[test]
fn flag_over_environment_over_file_over_default() {
    let file = file("queue_count = 1\nqueue_len = 11\nfail_threshold = 21\n");
    let mut sources = sources(
        &[("queue_count", "3")],
        &[
            ("URLSERVER_QUEUE_COUNT", "2"),
            ("URLSERVER_QUEUE_LEN", "12"),
            ("URLSERVER_NOTHING", "x"),
            ("HOME", "/"),
        ],
    );
    sources.file = Some(file.path().into());
    let effective = Settings::load(&sources).unwrap();
    let settings = &effective.settings;
    assert_eq!((settings.queue_count, settings.queue_len, settings.fail_threshold.get()), (3, 12, 21));
    let text = effective.to_toml();
    for (setting, origin) in [
        ("queue_count = 3", "# flag --queue-count"),
        ("queue_len = 12", "# environment variable URLSERVER_QUEUE_LEN"),
        ("fail_threshold = 21", &format!("# {}:3", file.path().display())),
        ("fail_window = 60", "# default"),
        ("ip_max_urls = 12", "# default: same as queue_len"),
    ] {
        let line = text.lines().find(|line| line.starts_with(setting)).expect(setting);
        assert!(line.ends_with(origin), "{line}");
    }
}

#[test]
fn keys_are_case_insensitive() {
    let settings = Settings::from_toml(
        "Queue_Count = 5\nREQ_HOST_PER_SEC = 2\n[Alias]\na = 'x.example'\n[DNS_Zones]\nlan = '::1'",
    );
    let settings = settings.unwrap();
    assert_eq!(settings.queue_count, 5);
    assert_eq!(settings.req_host_per_sec.gap(), Duration::from_millis(500));
    assert_eq!((settings.aliases.len(), settings.dns_zones.len()), (1, 1));
    assert_eq!(
        problems(Settings::from_toml("queue_count = 1\nQueue_Count = 2")),
        ["queue_count (settings.toml:2): given twice"]
    );
}

#[test]
fn every_bad_setting_is_named_with_its_origin() {
    let file = file("queue_length = 5\nqueue_len = 0\nlisten = 7\nseeds = [['x']]\nrobots = ['obey']\n");
    let mut sources = sources(
        &[("delay_min", "-1"), ("max_attempts", "many"), ("queue-len", "1")],
        &[("URLSERVER_DELAY_MAX", "nan"), ("URLSERVER_SPIDER_TOKEN", "top secret")],
    );
    sources.file = Some(file.path().into());
    let text = Settings::load(&sources).unwrap_err().to_string();
    let path = file.path().display();
    for expected in [
        format!("queue_length ({path}:1): there is no such setting"),
        format!("queue_len = 0 ({path}:2): must be a whole number from 1 to 16777216"),
        format!("listen = 7 ({path}:3): must be IP:PORT"),
        format!("seeds = [[x]] ({path}:4): must be files"),
        format!("robots = [obey] ({path}:5): must be `obey` or `ignore`"),
        "delay_min = -1 (flag --delay-min): must be seconds".into(),
        "max_attempts = many (flag --max-attempts): must be a whole number".into(),
        "queue-len (flag --queue-len): there is no such setting".into(),
        "delay_max = nan (environment variable URLSERVER_DELAY_MAX): must be seconds".into(),
        "spider_token = (not shown) (environment variable URLSERVER_SPIDER_TOKEN): must be 1 to".into(),
    ] {
        assert_eq!(text.matches(&expected).count(), 1, "{expected}\n{text}");
    }
    assert_eq!(text.lines().count(), 11, "{text}");
}

#[test]
fn a_bad_setting_is_not_blamed_on_those_that_follow_it() {
    assert_eq!(problems(Settings::from_pairs(&[("req_host_per_sec", "0")])).len(), 1);
    assert_eq!(problems(Settings::from_pairs(&[("req_host_concurrent", "0"), ("queue_len", "1")])).len(), 1);
    assert_eq!(problems(Settings::from_pairs(&[("timeout_spider_status", "x")])).len(), 1);
}

#[test]
fn a_slot_holds_what_may_be_active() {
    assert!(Settings::from_pairs(&[("queue_len", "3"), ("req_host_concurrent", "3")]).is_ok());
    assert_eq!(
        problems(Settings::from_pairs(&[("queue_len", "3"), ("req_host_concurrent", "4")])),
        ["queue_len = 3 (flag --queue-len) and req_host_concurrent = 4 (flag --req-host-concurrent): \
          queue_len must not be the smaller one"]
    );
}

#[test]
fn active_cells_can_be_named_by_32_bits() {
    let cells = |count, concurrent| {
        Settings::from_pairs(&[
            ("queue_count", count),
            ("req_host_concurrent", concurrent),
            ("queue_len", "1000"),
        ])
    };
    assert!(cells("16777216", "256").is_ok());
    assert!(problems(cells("16777216", "257"))[0].contains("at most 4294967296"));
    assert!(problems(cells("16777217", "1"))[0].starts_with("queue_count = 16777217"));
}

#[test]
fn settings_that_do_not_go_together_are_refused() {
    for (pairs, names) in [
        ([("spider_host", "a"), ("queue_count", "1")], ["spider_host", "spider_port"]),
        ([("spider_port", "1"), ("queue_count", "1")], ["spider_host", "spider_port"]),
        ([("delay_min", "31"), ("queue_count", "1")], ["delay_min = 31", "delay_max = 30"]),
        ([("dns_ttl_min", "2"), ("dns_ttl_max", "1")], ["dns_ttl_min", "dns_ttl_max"]),
        ([("claim_expiry_1", "2"), ("claim_expiry_2", "1")], ["claim_expiry_1", "claim_expiry_2"]),
    ] {
        let problems = problems(Settings::from_pairs(&pairs));
        assert!(names.iter().all(|name| problems[0].contains(name)), "{problems:?}");
        assert_eq!(problems.len(), 1);
    }
    let settings = Settings::from_pairs(&[("spider_host", "Spider"), ("spider_port", "99")]).unwrap();
    assert_eq!(settings.spider_to_dial(), Some(("spider", 99)));
    let group = "[[group]]\nname = 'a'\nhosts = 'a'\ndelay_min = 31";
    assert!(problems(Settings::from_toml(group))[0].starts_with("group.a: delay_min = 31s"));
}

#[test]
fn settings_without_effect_are_warned_of_when_given() {
    let warnings = |pairs: &[(&str, &str)]| Settings::load(&sources(pairs, &[])).unwrap().warnings;
    assert!(warnings(&[]).is_empty());
    let pairs = [("robots", "ignore"), ("recrawl_after", "1d"), ("queue_len", "5")];
    assert!(warnings(&pairs).is_empty());
    let given = warnings(&[&pairs[..], &[("index", "memory")]].concat());
    assert!(given.len() == 1 && given[0].starts_with("recrawl_after has no effect"), "{given:?}");
}

#[test]
fn tokens_may_be_kept_in_files() {
    let secret = file("from-file\n");
    let path = secret.path().to_str().unwrap();
    let token = |sources: &Sources| {
        Settings::load(sources).map(|e| e.settings.spider_token.unwrap().expose().to_owned())
    };
    let by_file = sources(&[("spider_token_file", path)], &[]);
    assert_eq!(token(&by_file).unwrap(), "from-file");
    let file_flag = sources(&[("spider_token_file", path)], &[("URLSERVER_SPIDER_TOKEN", "weaker")]);
    assert_eq!(token(&file_flag).unwrap(), "from-file");
    let token_flag = sources(&[("spider_token", "stronger")], &[("URLSERVER_SPIDER_TOKEN_FILE", path)]);
    assert_eq!(token(&token_flag).unwrap(), "stronger");
    let not_both = sources(&[("spider_token", "none"), ("spider_token_file", path)], &[]);
    assert_eq!(token(&not_both).unwrap(), "from-file");
    let both = sources(&[("spider_token", "hush"), ("spider_token_file", path)], &[]);
    let refusal = token(&both).unwrap_err().to_string();
    assert!(refusal.contains("give one of them") && !refusal.contains("hush"), "{refusal}");
}

#[test]
fn token_files_that_cannot_be_used_are_refused() {
    let blank = file(" \n");
    let path = blank.path().to_str().unwrap();
    let empty = problems(Settings::from_pairs(&[("http_token_file", path)]));
    assert!(empty[0].contains("http_token_file") && empty[0].contains("must hold 1 to"), "{empty:?}");
    let missing = problems(Settings::from_pairs(&[("http_token_file", "no/such/file")]));
    assert!(missing[0].starts_with("http_token_file = no/such/file: "), "{missing:?}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let sources = Sources { file: Some("no/such.toml".into()), ..Sources::default() };
    let text = Settings::load(&sources).unwrap_err().to_string();
    assert!(text.contains("config = no/such.toml"), "{text}");
}

#[test]
fn seeds_may_be_one_or_many() {
    let seeds = |text| Settings::from_toml(text).unwrap().seeds;
    assert_eq!(seeds("seeds = 'a,b.txt'"), [std::path::PathBuf::from("a,b.txt")]);
    assert_eq!(seeds("seeds = ['a', '-']").len(), 2);
    assert!(seeds("seeds = []").is_empty());
    let listed = Settings::load(&sources(&[], &[("URLSERVER_SEEDS", "a,b")])).unwrap();
    assert_eq!(listed.settings.seeds.len(), 2);
}

#[test]
fn what_is_printed_is_read_back() {
    let text = "seeds = ['a \"b\"', 'c']\nreq_host_per_sec = 3\nreq_ip_per_sec = inf\ndelay_max = '2m'\n\
        dns = ['1.1.1.1', '::1']\nuser_agent = 'a \\ \"5\"'\nhosts_file = 'true'\nallow_private = true\n\
        [alias]\nA-1 = ['a.example', 'b.example']\n[dns_zones]\n'corp.example' = '10.0.0.1'\n\
        [[group]]\nname = 'g'\nhosts = ['*.c.example', 'd.example']\ncidr = '10.0.0.0/8'\nper_sec = 0.3\n\
        concurrent = inf\ndelay_factor = 0.5\ndelay_min = '1ms'\ndelay_max = 10\nrobots = 'obey'\n";
    let effective = understand(Gathered::from_text(text)).unwrap();
    let printed = effective.to_toml();
    assert_eq!(Settings::from_toml(&printed).unwrap(), effective.settings, "{printed}");
}

#[test]
fn secrets_are_not_printed() {
    let effective = Settings::load(&sources(&[("http_token", "hush")], &[])).unwrap();
    assert!(!effective.to_toml().contains("hush"));
    assert!(!format!("{:?}", effective.settings).contains("hush"));
    let refused = problems(Settings::from_toml("http_token = ['hush']"));
    assert!(refused[0].starts_with("http_token = (not shown) (settings.toml:1)"), "{refused:?}");
    assert!(effective.to_toml().contains("# http_token is not shown  # flag --http-token"));
}

#[test]
fn the_table_has_a_row_for_every_setting() {
    let table = markdown_table();
    for definition in DEFINITIONS {
        assert!(table.contains(&format!("\n| `{}` | ", definition.name)), "{}", definition.name);
        assert!(definition.meaning.trim().ends_with('.'), "{}", definition.name);
    }
    assert_eq!(table.lines().count(), DEFINITIONS.len() + 5);
}

#[test]
fn passwords_in_urls_are_not_shown() {
    let shown = |index: &str| Settings::load(&sources(&[("index", index)], &[])).unwrap().to_toml();
    for index in
        ["postgres://u:hush@h/d", "postgres://u@h/d?password=hush", "postgresql://h/d?a=b&password=hush"]
    {
        assert!(!shown(index).contains("hush") && shown(index).contains("# index is not shown"), "{index}");
    }
    assert!(shown("postgres://u@h:5432/d").contains("index = \"postgres://u@h:5432/d\""));
}
