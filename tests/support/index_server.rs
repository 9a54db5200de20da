//! A small but real document index: the index protocol over TCP, around a `MemoryIndex`.
//!
//! What it has offered and not seen reported it offers again to the next connection, as an index must
//! that wants every document fetched. It can be told to break connections.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use urlserver::document::Candidate;
use urlserver::ids::DocId;
use urlserver::index::{Added, MemoryIndex};
use urlserver::url::Url;

/// Stops when dropped.
pub(crate) struct IndexServer {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
pub(crate) struct State {
    index: MemoryIndex,
    offered: BTreeMap<DocId, Candidate>,
    again: VecDeque<DocId>,
    /// All reports by document, repeats included.
    pub(crate) reports: HashMap<DocId, Vec<String>>,
    pub(crate) connections: usize,
    pub(crate) most_given: usize,
    /// Connections are broken after a random number of lines, both ways, while there are faults left.
    faults: Option<(fastrand::Rng, usize)>,
    lines_left: Option<usize>,
}

impl IndexServer {
    pub(crate) async fn start() -> IndexServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::<Mutex<State>>::default();
        let task = tokio::spawn(accept(listener, Arc::clone(&state)));
        IndexServer { address, state, task }
    }

    pub(crate) fn break_connections(&self, seed: u64, faults: usize) {
        let mut state = self.state();
        state.faults = Some((fastrand::Rng::with_seed(seed), faults));
        state.plan_fault();
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }
}

impl Drop for IndexServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    while let Ok((stream, _)) = listener.accept().await {
        state.lock().expect("no panic").begin();
        // One server, one connection: the next one begins when this one has ended.
        let _ = serve(stream, &state).await;
    }
}

async fn serve(mut stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (reader, mut writer) = stream.split();
    let mut input = BufReader::new(reader).lines();
    let mut reject = Vec::new();
    let lives_on = || state.lock().expect("no panic").lives_on();
    while let Some(line) = input.next_line().await? {
        let answer = state.lock().expect("no panic").handle(&line, &mut reject);
        for line in answer {
            if !lives_on() {
                return writer.write_all(&line.as_bytes()[..line.len() / 2]).await;
            }
            writer.write_all(line.as_bytes()).await?;
        }
        if !lives_on() {
            break;
        }
    }
    Ok(())
}

impl State {
    fn begin(&mut self) {
        self.connections += 1;
        self.again = self.offered.keys().copied().collect();
        self.plan_fault();
    }

    fn plan_fault(&mut self) {
        self.lines_left = match &mut self.faults {
            Some((rng, left @ 1..)) => {
                *left -= 1;
                Some(rng.usize(1..200))
            }
            Some((_, 0)) | None => None,
        };
    }

    /// One line more; false if the connection ends here.
    fn lives_on(&mut self) -> bool {
        self.lines_left = self.lines_left.map(|left| left.saturating_sub(1));
        self.lines_left != Some(0)
    }

    fn handle(&mut self, line: &str, reject: &mut Vec<Box<str>>) -> Vec<String> {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["REJECT", host] => reject.push(host.into()),
            ["CANDIDATES", n] => return self.candidates(n.parse().expect(line), &std::mem::take(reject)),
            ["ADD", url] => {
                let url = Url::parse(url).expect(line);
                assert!(matches!(self.index.insert(None, &url), Added::Accepted(_) | Added::Duplicate));
            }
            [doc, "DONE" | "FAILED" | "DENIED", ..] => {
                let doc = DocId(doc.parse().expect(line));
                self.offered.remove(&doc);
                self.reports.entry(doc).or_default().push(line.to_owned());
            }
            _ => panic!("no line of the protocol: {line:?}"),
        }
        Vec::new()
    }

    fn candidates(&mut self, n: usize, reject: &[Box<str>]) -> Vec<String> {
        assert!(reject.is_sorted_by(|a, b| a < b), "sorted, each once");
        let mut list = Vec::new();
        let mut kept = VecDeque::new();
        while list.len() < n
            && let Some(doc) = self.again.pop_front()
        {
            match self.offered.get(&doc) {
                Some(old) if reject.iter().any(|host| **host == *old.url.host()) => kept.push_back(doc),
                Some(old) => list.push(old.clone()),
                None => {}
            }
        }
        self.again.extend(kept);
        let new = self.index.take(n - list.len(), reject);
        self.offered.extend(new.iter().map(|candidate| (candidate.doc, candidate.clone())));
        list.extend(new);
        self.most_given = self.most_given.max(list.len());
        let lines = list.iter().map(|candidate| format!("{} {}\n", candidate.doc, candidate.url.as_str()));
        lines.chain(["END\n".to_owned()]).collect()
    }
}
