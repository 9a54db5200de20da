//! A web server on loopback that answers as the test wants, well or badly; HTTP, or HTTPS with a certificate of
//! its own making.
//!
//! Threads and blocking sockets, so that it serves tests with and without a runtime. It stops, and closes what is
//! open, when dropped. Use it from any integration test with `#[path = "support/web.rs"] mod web;`.
#![allow(dead_code, unreachable_pub, reason = "every test that includes this uses a part of it")]

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What a request is answered with.
#[derive(Clone, Debug)]
pub enum Reply {
    /// These bytes, then the connection is closed.
    Raw(Vec<u8>),
    /// These bytes, then the connection is closed without TLS's good-bye.
    Rude(Vec<u8>),
    /// These bytes, then those again and again, as fast as they are read.
    Endless(Vec<u8>, Vec<u8>),
    /// These bytes, then those again and again, with this pause before each.
    Drip(Vec<u8>, Vec<u8>, Duration),
    /// These bytes, and the connection stays open.
    Stuck(Vec<u8>),
}

impl Reply {
    /// A well-formed answer. `headers`: whole lines without their ends.
    pub fn status(status: u16, headers: &[&str], body: &[u8]) -> Reply {
        let mut head = format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n", body.len());
        headers.iter().for_each(|line| head += &format!("{line}\r\n"));
        Reply::Raw([head.as_bytes(), b"\r\n", body].concat())
    }

    /// A robots.txt.
    pub fn ok(body: impl AsRef<[u8]>) -> Reply {
        Reply::status(200, &["Content-Type: text/plain"], body.as_ref())
    }

    /// A redirect.
    pub fn moved(to: &str) -> Reply {
        Reply::status(301, &[&format!("Location: {to}")], b"gone there")
    }

    /// These bytes as they are.
    pub fn raw(text: impl AsRef<[u8]>) -> Reply {
        Reply::Raw(text.as_ref().to_vec())
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    /// When all of it was there.
    pub at: Instant,
    /// Path and query.
    pub path: String,
    /// The request line and all headers.
    pub head: String,
}

impl Request {
    /// The value of a header, if it is there.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let mut values = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        values.next().map(|(_, value)| value.trim())
    }
}

type Answering = dyn Fn(&Request) -> Reply + Send + Sync;

struct Shared {
    answer: Box<Answering>,
    tls: Option<Arc<ServerConfig>>,
    stopped: AtomicBool,
    requests: Mutex<Vec<Request>>,
    open: Mutex<Vec<TcpStream>>,
}

/// The running server.
pub struct Web {
    address: SocketAddr,
    root: Option<CertificateDer<'static>>,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Web {
    /// HTTP on a free port of `ip`.
    pub fn http(ip: &str, answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Web {
        Web::start(ip, None, Box::new(answer))
    }

    /// HTTPS on a free port of `ip`, with a certificate for `names` that [`Web::root`] vouches for.
    pub fn https(
        ip: &str,
        names: &[&str],
        answer: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Web {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let root = made.cert.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![root.clone()], key)
            .expect("a certificate with its key");
        Web::start(ip, Some((Arc::new(config), root)), Box::new(answer))
    }

    fn start(
        ip: &str,
        tls: Option<(Arc<ServerConfig>, CertificateDer<'static>)>,
        answer: Box<Answering>,
    ) -> Web {
        let ip: IpAddr = ip.parse().expect("an address");
        let listener = TcpListener::bind((ip, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (tls, root) = tls.unzip();
        let shared = Arc::new(Shared {
            answer,
            tls,
            stopped: AtomicBool::new(false),
            requests: Mutex::default(),
            open: Mutex::default(),
        });
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Web { address, root, shared, acceptor: Some(acceptor) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who vouches for its certificate.
    pub fn root(&self) -> CertificateDer<'static> {
        self.root.clone().expect("a server with TLS")
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().expect("requests").clone()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut serving = Vec::new();
    for tcp in listener.incoming() {
        if shared.stopped.load(Ordering::SeqCst) {
            break;
        }
        let Ok(tcp) = tcp else { continue };
        let Ok(handle) = tcp.try_clone() else { continue };
        shared.open.lock().expect("connections").push(handle);
        let shared = Arc::clone(shared);
        serving.push(thread::spawn(move || {
            let _ = serve(tcp, &shared);
        }));
    }
    for tcp in shared.open.lock().expect("connections").drain(..) {
        let _ = tcp.shutdown(Shutdown::Both);
    }
    for thread in serving {
        let _ = thread.join();
    }
}

fn serve(tcp: TcpStream, shared: &Shared) -> io::Result<()> {
    let Some(config) = &shared.tls else {
        let mut plain = tcp;
        talk(&mut plain, shared)?;
        return leave(&mut plain);
    };
    let session = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    let mut tls = StreamOwned::new(session, tcp);
    if talk(&mut tls, shared)? {
        tls.conn.send_close_notify();
        tls.flush()?;
    }
    leave(&mut tls.sock)
}

/// Nothing more is sent; what the client still says is read, so that the kernel resets nothing.
fn leave(tcp: &mut TcpStream) -> io::Result<()> {
    tcp.shutdown(Shutdown::Write)?;
    io::copy(tcp, &mut io::sink()).map(drop)
}

/// One request and its answer; whether to say good-bye.
fn talk(client: &mut (impl Read + Write), shared: &Shared) -> io::Result<bool> {
    let request = read_request(client)?;
    shared.requests.lock().expect("requests").push(request.clone());
    match (shared.answer)(&request) {
        Reply::Raw(bytes) => say(client, &bytes).map(|()| true),
        Reply::Rude(bytes) => say(client, &bytes).map(|()| false),
        Reply::Endless(first, again) => {
            say(client, &first)?;
            loop {
                say(client, &again)?;
            }
        }
        Reply::Drip(first, again, pause) => {
            say(client, &first)?;
            while !shared.stopped.load(Ordering::SeqCst) {
                thread::sleep(pause);
                say(client, &again)?;
            }
            Ok(false)
        }
        Reply::Stuck(bytes) => {
            say(client, &bytes)?;
            io::copy(client, &mut io::sink()).map(|_| false)
        }
    }
}

fn say(client: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    client.write_all(bytes)?;
    client.flush()
}

fn read_request(client: &mut impl Read) -> io::Result<Request> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    Ok(Request { at: Instant::now(), path, head })
}
