//! Drives spiders over real TCP, and keeps the auditor told.
//!
//! All on one thread, on purpose: between a spider's decision and the auditor's knowledge of it there is
//! no other task, so the order of events is the true one, without locks.
//!
//! When a line was *written* is known from below: a few hundred times a second each socket is asked
//! whether it is empty, and what is read later was written later. A driver that gets no CPU for
//! a while therefore knows less, but never accuses the server of its own lateness.

use crate::audit::Auditor;
use crate::event::{Event, Sent};
use crate::machine::{Action, Counts, Persona, Spider};
use socket2::SockRef;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::rc::Rc;
use tokio::io::{Interest, Ready};
use tokio::net::{TcpListener, TcpStream};
use urlserver::document::Done;
use urlserver::time::{Duration, Instant};

/// How often a socket is asked whether it is empty, for each [`SPIDERS_PER_TICK`] spiders.
const TICK: Duration = Duration::from_millis(5);
const SPIDERS_PER_TICK: usize = 64;
/// Longest sleep of a spider without connection: so soon it hears that the run is over.
const IDLE_TICK: Duration = Duration::from_millis(50);
const READ_MAX: usize = 64 * 1024;

/// How spider and server find each other.
#[derive(Debug)]
pub enum Meeting {
    /// Spiders connect to the server.
    Connect(SocketAddr),
    /// Spiders connect to several servers, each to one of them, in turn.
    ConnectEach(Vec<SocketAddr>),
    /// The server dials this listener.
    Listen(std::net::TcpListener),
}

/// When a run is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Until {
    /// So many documents have come to an end.
    pub urls: Option<u64>,
    /// So much time has passed.
    pub time: Option<Duration>,
    /// No URL came for so long.
    pub idle: Duration,
    /// No spider had a connection for so long.
    pub patience: Duration,
}

/// Why a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// All that was asked for is done.
    AllDone,
    /// Time is up.
    TimeUp,
    /// The server is silent.
    Silent,
    /// The server is gone.
    ServerGone,
    /// The server was never there.
    NeverConnected,
}

impl Ended {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Ended::AllDone => "all done",
            Ended::TimeUp => "time is up",
            Ended::Silent => "the server is silent",
            Ended::ServerGone => "the server is gone",
            Ended::NeverConnected => "no connection was ever made",
        }
    }
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// Why it ended.
    pub ended: Ended,
    /// How long it took.
    pub took: Duration,
    /// The audit, finished.
    pub auditor: Auditor,
    /// What each spider did.
    pub counts: Vec<Counts>,
    /// Different hosts seen.
    pub hosts: usize,
    /// Different addresses seen.
    pub addresses: usize,
}

/// A look at a run while it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Time since the start.
    pub took: Duration,
    /// URLs received.
    pub urls: u64,
    /// Documents ended.
    pub ended: u64,
    /// In flight.
    pub in_flight: usize,
    /// Spiders with a connection.
    pub connected: usize,
    /// Violations so far.
    pub violations: u64,
}

/// The web that spiders fetch from, as far as it has a will of its own: how the fetch of this URL ends, and
/// after how long. `None` leaves it to the spider.
type Web = Box<dyn FnMut(&Sent) -> Option<(Done, Duration)>>;

/// What all spiders of a run share.
struct Run {
    start: std::time::Instant,
    web: RefCell<Web>,
    auditor: RefCell<Auditor>,
    hosts: RefCell<BTreeSet<Box<str>>>,
    addresses: RefCell<BTreeSet<IpAddr>>,
    urls: Cell<u64>,
    last_url: Cell<Instant>,
    connected: Cell<usize>,
    ever_connected: Cell<bool>,
    last_connected: Cell<Instant>,
    over: Cell<bool>,
}

impl Run {
    fn new(auditor: Auditor, web: Web) -> Run {
        Run {
            start: std::time::Instant::now(),
            web: RefCell::new(web),
            auditor: RefCell::new(auditor),
            hosts: RefCell::default(),
            addresses: RefCell::default(),
            urls: Cell::new(0),
            last_url: Cell::new(Instant::ZERO),
            connected: Cell::new(0),
            ever_connected: Cell::new(false),
            last_connected: Cell::new(Instant::ZERO),
            over: Cell::new(false),
        }
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }

    fn handle_event(&self, spider: usize, event: Event) {
        if let Event::Sent(sent) = &event {
            self.urls.set(self.urls.get() + 1);
            self.last_url.set(sent.at);
            let mut hosts = self.hosts.borrow_mut();
            if !hosts.contains(sent.url.host()) {
                hosts.insert(sent.url.host().into());
            }
            self.addresses.borrow_mut().insert(sent.ip);
        }
        self.auditor.borrow_mut().handle(spider, event);
    }

    fn handle_link(&self, up: bool) {
        self.connected.set(if up { self.connected.get() + 1 } else { self.connected.get() - 1 });
        self.ever_connected.set(true);
        self.last_connected.set(self.now());
    }

    fn progress(&self) -> Progress {
        let auditor = self.auditor.borrow();
        Progress {
            took: self.now().since(Instant::ZERO),
            urls: self.urls.get(),
            ended: auditor.documents_ended(),
            in_flight: auditor.in_flight(),
            connected: self.connected.get(),
            violations: auditor.violation_count(),
        }
    }

    /// Why the run is over, if it is.
    fn end(&self, until: &Until) -> Option<Ended> {
        let now = self.now();
        let alone = self.connected.get() == 0 && now.since(self.last_connected.get()) >= until.patience;
        if until.urls.is_some_and(|n| self.auditor.borrow().documents_ended() >= n) {
            Some(Ended::AllDone)
        } else if until.time.is_some_and(|t| now.since(Instant::ZERO) >= t) {
            Some(Ended::TimeUp)
        } else if alone && self.ever_connected.get() {
            Some(Ended::ServerGone)
        } else if alone {
            Some(Ended::NeverConnected)
        } else if self.connected.get() > 0 && now.since(self.last_url.get()) >= until.idle {
            Some(Ended::Silent)
        } else {
            None
        }
    }
}

/// Runs one spider per persona until the end; `watch` is called a few times a second.
pub fn run(
    meeting: Meeting,
    personas: Vec<Persona>,
    auditor: Auditor,
    until: Until,
    mut watch: impl FnMut(&Progress),
) -> io::Result<Outcome> {
    let watch = |progress: &Progress| {
        watch(progress);
        ControlFlow::Continue(())
    };
    run_on_web(meeting, personas, auditor, until, |_| None, watch)
}

/// The same, and `web` is asked how the fetch of each URL ends, and after how long; `None` leaves it to the
/// spider. `watch` breaks off if it knows that no server will come back: once no spider has a connection, that is
/// the end.
pub fn run_on_web(
    meeting: Meeting,
    personas: Vec<Persona>,
    auditor: Auditor,
    until: Until,
    web: impl FnMut(&Sent) -> Option<(Done, Duration)> + 'static,
    mut watch: impl FnMut(&Progress) -> ControlFlow<()>,
) -> io::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let run = Rc::new(Run::new(auditor, Box::new(web)));
    let tick = TICK * personas.len().div_ceil(SPIDERS_PER_TICK).max(1) as u32;
    let work = async {
        let door = Rc::new(Door::open(meeting)?);
        let tasks: Vec<_> = personas
            .into_iter()
            .enumerate()
            .map(|(number, persona)| Driver::new(number, persona, run.clone(), door.clone(), tick))
            .map(|driver| tokio::task::spawn_local(driver.drive()))
            .collect();
        let ended = watch_over(&run, &until, &mut watch).await;
        run.over.set(true);
        let mut counts = Vec::with_capacity(tasks.len());
        for task in tasks {
            counts.push(task.await.map_err(io::Error::other)?);
        }
        Ok::<_, io::Error>((ended, counts))
    };
    let (ended, counts) = tokio::task::LocalSet::new().block_on(&runtime, work)?;
    drop(runtime);
    let run = Rc::into_inner(run).ok_or_else(|| io::Error::other("a spider outlived its run"))?;
    Ok(conclude(run, ended, counts))
}

fn conclude(run: Run, ended: Ended, counts: Vec<Counts>) -> Outcome {
    let now = run.now();
    let mut auditor = run.auditor.into_inner();
    auditor.finish(now, &[]);
    Outcome {
        ended,
        took: now.since(Instant::ZERO),
        auditor,
        counts,
        hosts: run.hosts.into_inner().len(),
        addresses: run.addresses.into_inner().len(),
    }
}

async fn watch_over(run: &Run, until: &Until, watch: &mut impl FnMut(&Progress) -> ControlFlow<()>) -> Ended {
    loop {
        run.auditor.borrow_mut().handle_timeout(run.now());
        let gone = watch(&run.progress()).is_break();
        if let Some(ended) = run.end(until) {
            return ended;
        }
        if gone && run.connected.get() == 0 {
            return Ended::ServerGone;
        }
        tokio::time::sleep(IDLE_TICK).await;
    }
}

/// [`Meeting`], inside the runtime.
enum Door {
    Connect(Vec<SocketAddr>),
    Listen(TcpListener),
}

impl Door {
    fn open(meeting: Meeting) -> io::Result<Door> {
        match meeting {
            Meeting::Connect(addr) => Ok(Door::Connect(vec![addr])),
            Meeting::ConnectEach(addrs) => Ok(Door::Connect(addrs)),
            Meeting::Listen(listener) => {
                listener.set_nonblocking(true)?;
                Ok(Door::Listen(TcpListener::from_std(listener)?))
            }
        }
    }

    async fn pass(&self, spider: usize) -> io::Result<TcpStream> {
        let stream = match self {
            Door::Connect(addrs) => {
                let addr = addrs.get(spider % addrs.len().max(1)).ok_or(io::ErrorKind::AddrNotAvailable)?;
                TcpStream::connect(addr).await?
            }
            Door::Listen(listener) => listener.accept().await?.0,
        };
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// A connection, and what is known of it.
struct Link {
    stream: TcpStream,
    reading: bool,
    /// Whatever is read from now on was written later than this.
    empty_at: Instant,
    /// Still to be written.
    output: VecDeque<Vec<u8>>,
}

struct Driver {
    number: usize,
    spider: Spider,
    run: Rc<Run>,
    door: Rc<Door>,
    tick: Duration,
    link: Option<Link>,
    buffer: Vec<u8>,
}

impl Driver {
    fn new(number: usize, persona: Persona, run: Rc<Run>, door: Rc<Door>, tick: Duration) -> Driver {
        let (spider, buffer) = (Spider::new(persona), vec![0; READ_MAX]);
        Driver { number, spider, run, door, tick, link: None, buffer }
    }

    async fn drive(mut self) -> Counts {
        while !self.run.over.get() {
            self.spider.handle_timeout(self.run.now());
            self.pump().await;
            match self.link.take() {
                Some(link) => self.link = self.use_link(link).await,
                None => tokio::time::sleep(self.wait().min(IDLE_TICK)).await,
            }
        }
        if self.link.take().is_some() {
            self.run.handle_link(false);
        }
        self.spider.counts().clone()
    }

    /// Does what the spider wants. What it saw goes to the auditor first: the server must not be able to
    /// react to a DONE that the auditor does not know.
    async fn pump(&mut self) {
        loop {
            self.tell_auditor();
            if let Some(link) = &mut self.link {
                link.output.extend(std::iter::from_fn(|| self.spider.poll_output()));
                if !flush(link) {
                    self.lose_link();
                }
            }
            match self.spider.poll_action() {
                None => return self.tell_auditor(),
                Some(Action::Connect) => self.connect().await,
                Some(Action::Close) => self.drop_link(),
                Some(Action::StopReading) => self.set_reading(false),
                Some(Action::ResumeReading) => self.set_reading(true),
            }
        }
    }

    fn tell_auditor(&mut self) {
        while let Some(event) = self.spider.poll_event() {
            if let Event::Sent(sent) = &event {
                self.fetch(sent);
            }
            self.run.handle_event(self.number, event);
        }
    }

    /// The web server may have a will of its own.
    fn fetch(&mut self, sent: &Sent) {
        let answer = (self.run.web.borrow_mut())(sent);
        if let Some((done, latency)) = answer {
            self.spider.handle_answer(self.run.now(), sent.trans, done, latency);
        }
    }

    async fn connect(&mut self) {
        let door = self.door.clone();
        // What is written comes after the connection, and that comes after we dialled. A server that dials
        // may have written long before we accept.
        let empty_at = match *door {
            Door::Connect(_) => self.run.now(),
            Door::Listen(_) => Instant::ZERO,
        };
        let over = async {
            while !self.run.over.get() {
                tokio::time::sleep(IDLE_TICK).await;
            }
        };
        let passed = tokio::select! {
            passed = door.pass(self.number) => passed,
            () = over => return,
        };
        let now = self.run.now();
        match passed {
            Ok(stream) => {
                self.link = Some(Link { stream, reading: true, empty_at, output: VecDeque::new() });
                self.run.handle_link(true);
                self.spider.handle_connected(now);
            }
            Err(_) => self.spider.handle_closed(now),
        }
    }

    fn drop_link(&mut self) {
        if self.link.take().is_some() {
            self.run.handle_link(false);
        }
    }

    /// The server closed.
    fn lose_link(&mut self) {
        self.drop_link();
        self.spider.handle_closed(self.run.now());
    }

    fn set_reading(&mut self, reading: bool) {
        if let Some(link) = &mut self.link {
            link.reading = reading;
        }
    }

    fn wait(&self) -> Duration {
        self.spider.deadline().since(self.run.now())
    }

    /// Waits for the socket or the time, and reads. Gives the link back if it is still good.
    async fn use_link(&mut self, mut link: Link) -> Option<Link> {
        let now = self.run.now();
        if link.reading && is_empty(&link.stream) {
            link.empty_at = now;
        }
        let ready = tokio::time::timeout(self.wait().min(self.tick), readiness(&link)).await;
        let good = match ready {
            Ok(ready) if ready.is_readable() && link.reading => self.read(&mut link),
            Ok(_) | Err(_) => true,
        };
        if good {
            return Some(link);
        }
        self.link = Some(link);
        self.lose_link();
        None
    }

    /// False at the end of the connection.
    fn read(&mut self, link: &mut Link) -> bool {
        let before = self.run.now();
        match link.stream.try_read(&mut self.buffer) {
            Ok(0) => false,
            Ok(n) => {
                self.spider.handle_bytes(self.run.now(), link.empty_at, &self.buffer[..n]);
                // Before any time passes: the fastest fetch must not end before the web has its say.
                self.tell_auditor();
                if n < self.buffer.len() {
                    link.empty_at = before;
                }
                true
            }
            Err(e) => e.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

async fn readiness(link: &Link) -> Ready {
    let interest = match (link.reading, link.output.is_empty()) {
        (true, true) => Interest::READABLE,
        (true, false) => Interest::READABLE | Interest::WRITABLE,
        (false, false) => Interest::WRITABLE,
        (false, true) => return std::future::pending().await,
    };
    link.stream.ready(interest).await.unwrap_or(Ready::ALL)
}

/// True if there is certainly nothing to read. Asks the kernel: tokio's readiness may be a while old.
fn is_empty(stream: &TcpStream) -> bool {
    let mut byte = [std::mem::MaybeUninit::uninit()];
    matches!(SockRef::from(stream).peek(&mut byte), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
}

/// Writes what fits, each chunk in a write of its own. False if the connection is broken.
fn flush(link: &mut Link) -> bool {
    while let Some(chunk) = link.output.front_mut() {
        match link.stream.try_write(chunk) {
            Ok(n) if n == chunk.len() => drop(link.output.pop_front()),
            Ok(n) => drop(chunk.drain(..n)),
            Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
        }
    }
    true
}
