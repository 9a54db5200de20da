//! A TCP proxy to the database that can be cut, held up, slowed down, sent elsewhere and mended; and that knows which
//! statement is about to be carried out, so that something can happen right before or right after it.
#![allow(dead_code, unreachable_pub, reason = "every test that includes this uses a part of it")]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

const OPEN: u8 = 0;
const CUT: u8 = 1;
const SILENT: u8 = 2;
const SLOW: u8 = 3;

/// What a slow way adds to everything.
const SLOWNESS: Duration = Duration::from_millis(40);

/// Where a statement is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Before the database hears of it.
    Before,
    /// The database has carried it out, and nobody knows yet.
    After,
    /// The same, for one that is part of a transaction: it is committed.
    Committed,
}

/// Stands before a database.
pub struct Proxy {
    /// The database, by way of here.
    pub url: String,
    shared: Arc<Shared>,
}

struct Shared {
    target: Mutex<String>,
    state: AtomicU8,
    streams: Mutex<Vec<TcpStream>>,
    /// Connections that were asked for.
    knocks: AtomicUsize,
    trap: Mutex<Trap>,
    sprung: Condvar,
}

enum Trap {
    Off,
    Armed {
        statement: String,
        when: When,
    },
    /// One connection waits.
    Sprung,
}

impl Proxy {
    /// To the database at `url`, as the test support writes it.
    pub fn to(url: &str) -> Proxy {
        let (front, rest) = url.split_once('@').expect("a user");
        let (target, database) = rest.split_once('/').expect("a database");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let shared = Arc::new(Shared {
            target: Mutex::new(target.to_owned()),
            state: AtomicU8::new(OPEN),
            streams: Mutex::default(),
            knocks: AtomicUsize::new(0),
            trap: Mutex::new(Trap::Off),
            sprung: Condvar::new(),
        });
        let proxy = Proxy { url: format!("{front}@{address}/{database}"), shared: Arc::clone(&shared) };
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                shared.knocks.fetch_add(1, Ordering::AcqRel);
                if shared.state.load(Ordering::Acquire) == CUT {
                    continue;
                }
                let target = shared.target.lock().expect("no panic").clone();
                let Ok(server) = TcpStream::connect(target) else { continue };
                connect(&shared, &client, &server);
            }
        });
        proxy
    }

    /// Ends all connections, and lets no new ones through. Whatever is in the trap never arrives.
    pub fn cut(&self) {
        self.shared.state.store(CUT, Ordering::Release);
        for stream in self.shared.streams.lock().expect("no panic").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.release();
    }

    /// Lets nothing through, and says nothing: the database seems to be slow without end.
    pub fn silence(&self) {
        self.shared.state.store(SILENT, Ordering::Release);
    }

    /// Everything takes a while.
    pub fn slow_down(&self) {
        self.shared.state.store(SLOW, Ordering::Release);
    }

    /// All is as it was.
    pub fn mend(&self) {
        self.shared.state.store(OPEN, Ordering::Release);
    }

    /// New connections go to another port.
    pub fn send_to_port(&self, port: u16) {
        *self.shared.target.lock().expect("no panic") = format!("127.0.0.1:{port}");
    }

    /// How many connections were asked for.
    pub fn knocks(&self) -> usize {
        self.shared.knocks.load(Ordering::Acquire)
    }

    /// Stops the next statement of this file in `src/index/postgres/sql`, and everything on its connection.
    pub fn arm(&self, statement: &str, when: When) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/index/postgres/sql");
        let statement =
            std::fs::read_to_string(folder.join(format!("{statement}.sql"))).expect("a statement");
        *self.shared.trap.lock().expect("no panic") = Trap::Armed { statement, when };
    }

    /// Whether something is in the trap.
    pub fn has_sprung(&self) -> bool {
        matches!(*self.shared.trap.lock().expect("no panic"), Trap::Sprung)
    }

    /// Lets go on what is in the trap, and takes the trap away.
    pub fn release(&self) {
        *self.shared.trap.lock().expect("no panic") = Trap::Off;
        self.shared.sprung.notify_all();
    }
}

fn connect(shared: &Arc<Shared>, client: &TcpStream, server: &TcpStream) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let talk = Arc::new(Talk::default());
    let mut all = shared.streams.lock().expect("no panic");
    for asks in [true, false] {
        let (from, to) = if asks { (client, server) } else { (server, client) };
        let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
        all.extend(from.try_clone());
        let (shared, talk) = (Arc::clone(shared), Arc::clone(&talk));
        thread::spawn(move || {
            let mut side = Side { shared, talk, asks, greeted: !asks, statements: HashMap::new() };
            side.pump(from, to);
        });
    }
}

/// What both directions of a connection know.
#[derive(Default)]
struct Talk {
    /// The answer to what was asked last is not to be passed on.
    withhold: std::sync::atomic::AtomicBool,
    /// The next COMMIT is the one.
    await_commit: std::sync::atomic::AtomicBool,
}

/// One direction of a connection.
struct Side {
    shared: Arc<Shared>,
    talk: Arc<Talk>,
    /// From the client.
    asks: bool,
    /// The first message, which has no type, is over.
    greeted: bool,
    statements: HashMap<Vec<u8>, String>,
}

impl Side {
    fn pump(&mut self, mut from: TcpStream, mut to: TcpStream) {
        let (mut buffer, mut pending) = (vec![0; 64 * 1024], Vec::new());
        'all: while let Ok(read @ 1..) = from.read(&mut buffer) {
            self.wait_if_told();
            pending.extend_from_slice(&buffer[..read]);
            while let Some(length) = self.message_length(&pending) {
                let message: Vec<u8> = pending.drain(..length).collect();
                self.mind(&message);
                if self.shared.state.load(Ordering::Acquire) == CUT || to.write_all(&message).is_err() {
                    break 'all;
                }
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }

    fn wait_if_told(&self) {
        while self.shared.state.load(Ordering::Acquire) == SILENT {
            thread::sleep(Duration::from_millis(5));
        }
        if self.shared.state.load(Ordering::Acquire) == SLOW {
            thread::sleep(SLOWNESS);
        }
    }

    /// The length of the first message, if all of it is there.
    fn message_length(&self, bytes: &[u8]) -> Option<usize> {
        let head = usize::from(self.greeted);
        let length: [u8; 4] = bytes.get(head..head + 4)?.try_into().ok()?;
        let length = head + u32::from_be_bytes(length) as usize;
        (bytes.len() >= length).then_some(length)
    }

    fn mind(&mut self, message: &[u8]) {
        if !std::mem::replace(&mut self.greeted, true) {
            return;
        }
        let mut words = message[5..].split(|&byte| byte == 0);
        match message[0] {
            b'P' if self.asks => {
                let (name, text) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                self.statements.insert(name.to_vec(), String::from_utf8_lossy(text).into_owned());
            }
            b'B' if self.asks => {
                let text = words.nth(1).and_then(|name| self.statements.get(name)).cloned();
                self.handle_statement(&text.unwrap_or_default());
            }
            b'Q' if self.asks => self.handle_command(words.next().unwrap_or_default()),
            // The first word of an answer; the answer has been given by the time that there is a word of it.
            _ if !self.asks && self.talk.withhold.swap(false, Ordering::AcqRel) => self.spring(),
            _ => {}
        }
    }

    fn handle_command(&self, text: &[u8]) {
        if text == b"COMMIT" && self.talk.await_commit.swap(false, Ordering::AcqRel) {
            self.talk.withhold.store(true, Ordering::Release);
        }
    }

    fn handle_statement(&self, text: &str) {
        let mut trap = self.shared.trap.lock().expect("no panic");
        let Trap::Armed { statement, when } = &*trap else { return };
        if statement != text {
            return;
        }
        match when {
            When::Before => {
                drop(trap);
                self.spring();
            }
            When::After => {
                self.talk.withhold.store(true, Ordering::Release);
                *trap = Trap::Off;
            }
            When::Committed => {
                self.talk.await_commit.store(true, Ordering::Release);
                *trap = Trap::Off;
            }
        }
    }

    /// Waits until whoever has set the trap lets go.
    fn spring(&self) {
        let mut trap = self.shared.trap.lock().expect("no panic");
        *trap = Trap::Sprung;
        while matches!(*trap, Trap::Sprung) {
            trap = self.shared.sprung.wait(trap).expect("no panic");
        }
    }
}
