//! A TCP proxy to the database that can be cut, held up, and mended.
#![allow(dead_code, unreachable_pub, reason = "every test that includes this uses a part of it")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const OPEN: u8 = 0;
const CUT: u8 = 1;
const SILENT: u8 = 2;

/// Stands before a database.
pub struct Proxy {
    /// The database, by way of here.
    pub url: String,
    state: Arc<AtomicU8>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// To the database at `url`, as the test support writes it.
    pub fn to(url: &str) -> Proxy {
        let (front, rest) = url.split_once('@').expect("a user");
        let (target, database) = rest.split_once('/').expect("a database");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let state = Arc::new(AtomicU8::new(OPEN));
        let streams: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let proxy = Proxy {
            url: format!("{front}@{address}/{database}"),
            state: Arc::clone(&state),
            streams: Arc::clone(&streams),
        };
        let target = target.to_owned();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if state.load(Ordering::Acquire) == CUT {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&target) else { continue };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let mut all = streams.lock().expect("no panic");
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
                    all.extend(from.try_clone());
                    let state = Arc::clone(&state);
                    thread::spawn(move || pump(from, to, &state));
                }
            }
        });
        proxy
    }

    /// Ends all connections, and lets no new ones through.
    pub fn cut(&self) {
        self.state.store(CUT, Ordering::Release);
        for stream in self.streams.lock().expect("no panic").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Lets nothing through, and says nothing: the database seems to be slow without end.
    pub fn silence(&self) {
        self.state.store(SILENT, Ordering::Release);
    }

    /// All is as it was.
    pub fn mend(&self) {
        self.state.store(OPEN, Ordering::Release);
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, state: &AtomicU8) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        while state.load(Ordering::Acquire) == SILENT {
            thread::sleep(Duration::from_millis(5));
        }
        if state.load(Ordering::Acquire) == CUT || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
