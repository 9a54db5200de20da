//! The index in a directory: how fast it takes URLs, how soon it is open, what a document costs on the disk and in RAM;
//! beside it the index in RAM, in the same run.
//!
//!     cargo bench --bench embedded -- [DOCUMENTS in millions, 10] [DIRECTORY]
//!
//! A measurement, not a test: nothing is asserted, and nothing runs under `cargo test`.

use std::path::Path;
use std::time::Instant;
use urlserver::index::{Addition, DocumentIndex, EmbeddedIndex, IndexEvent, MemoryIndex};
use urlserver::url::Url;

const BATCH: usize = 1_000;
const MILLION: usize = 1_000_000;
const HOSTS: usize = 100_000;

/// URLs of about 70 bytes on hosts of skewed sizes, each new.
fn url(n: usize) -> Addition {
    // Cheap, and always the same: the square of a fraction favours low numbers.
    let fraction = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1 << 24) as f64;
    let host = (fraction * fraction * HOSTS as f64) as usize;
    let text = format!("http://www.host-{host:06}.example.com/section{:02}/page-{n:010}-abcdefgh", n % 100);
    Addition { doc: None, url: Url::parse(&text).expect("a URL"), not_before: None }
}

/// URLs per second that `index` takes, without the time to make and parse them.
async fn fill(index: &mut impl DocumentIndex, range: std::ops::Range<usize>) -> f64 {
    let mut spent = std::time::Duration::ZERO;
    let count = range.len();
    for first in range.step_by(BATCH) {
        let urls: Vec<Addition> = (first..first + BATCH).map(url).collect();
        let (reply, answer) = tokio::sync::oneshot::channel();
        let start = Instant::now();
        index.add(urls, reply);
        let answered = answer.await.is_ok();
        spent += start.elapsed();
        assert!(answered);
        // What it has to do beside.
        let _ = tokio::time::timeout(std::time::Duration::ZERO, index.event()).await;
    }
    count as f64 / spent.as_secs_f64()
}

async fn take(index: &mut impl DocumentIndex, n: usize) -> usize {
    index.ask(n, Vec::new());
    loop {
        if let IndexEvent::Answered { given, .. } = index.event().await {
            return given;
        }
    }
}

fn bytes(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory).expect("a directory");
    files.filter_map(|file| file.ok()?.metadata().ok()).map(|meta| meta.len()).sum()
}

async fn run(millions: usize, directory: &Path) {
    let mut memory = MemoryIndex::default();
    let rate = fill(&mut memory, 0..MILLION).await;
    println!("memory: {:.2} M URLs/s to 1 M", rate / 1e6);
    drop(memory);
    let mut index = EmbeddedIndex::open(directory, None).expect("an index");
    let mut last = 0;
    for upto in [1, 5, 10, 20, 50].into_iter().filter(|upto| *upto < millions).chain([millions]) {
        let rate = fill(&mut index, last * MILLION..upto * MILLION).await;
        let documents = (upto * MILLION) as f64;
        let (disk, memory) = (bytes(directory) as f64 / documents, index.memory() as f64 / documents);
        println!(
            "dir: {:.2} M URLs/s from {last} M to {upto} M; {disk:.1} bytes on the disk, {memory:.1} in RAM",
            rate / 1e6
        );
        last = upto;
    }
    let again = fill(&mut index, 0..MILLION).await;
    println!("dir: {:.2} M known URLs/s", again / 1e6);
    index.close().await;
    drop(index);
    let start = Instant::now();
    let mut index = EmbeddedIndex::open(directory, None).expect("an index");
    let first = take(&mut index, 1).await;
    println!("dir: opened, {first} URL out after {:.3} s", start.elapsed().as_secs_f64());
    while !index.is_loaded() {
        let _ = tokio::time::timeout(std::time::Duration::from_millis(1), index.event()).await;
    }
    println!(
        "dir: all read after {:.3} s; {:.1} bytes each in RAM",
        start.elapsed().as_secs_f64(),
        index.memory() as f64 / (last * MILLION) as f64
    );
    let start = Instant::now();
    let mut given = 0;
    while given < MILLION {
        match take(&mut index, 1_000).await {
            0 => break,
            more => given += more,
        }
    }
    println!("dir: {:.2} M URLs/s given out", given as f64 / start.elapsed().as_secs_f64() / 1e6);
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if std::env::args().any(|argument| argument == "--test")
        || !std::env::args().any(|argument| argument == "--bench")
    {
        return;
    }
    let millions = arguments.first().map_or(10, |text| text.parse().expect("millions of documents"));
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = arguments.get(1).map_or(scratch.path().to_owned(), Into::into);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(run(millions, &directory));
}
