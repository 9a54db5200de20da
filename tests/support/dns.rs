//! A name server on loopback that says what the test wants: UDP and TCP on one port.
//!
//! Threads and blocking sockets, so that it serves tests with and without a runtime. It stops
//! when dropped. Use it from any integration test with `#[path = "support/dns.rs"] mod dns;`.
#![allow(dead_code, unreachable_pub, reason = "every test that includes this uses a part of it")]

use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME, NS, SOA};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What a question is answered with.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Those of the addresses that are of the family asked for; NODATA if there are none.
    Addresses(Vec<IpAddr>, u32),
    /// These records, whatever was asked.
    Records(Vec<Record>),
    /// NXDOMAIN, with an SOA of this negative TTL.
    NoName(Option<u32>),
    /// NODATA, with an SOA of this negative TTL.
    NoAddress(Option<u32>),
    /// An empty message with this code.
    Code(ResponseCode),
    /// "Ask them": no answer, other name servers in the authority section.
    Referral,
    /// No packet at all.
    Silence,
    /// The right id, and nonsense after it.
    Garbage,
    /// Packets with a wrong id and too short packets first, then the reply.
    Spoofed(Box<Reply>),
    /// The reply, later.
    After(Duration, Box<Reply>),
    /// Over UDP only the wish to be asked over TCP; there, the reply.
    Truncated(Box<Reply>),
    /// One reply per packet, the last one again and again.
    Each(Vec<Reply>),
    /// This reply to A, that one to AAAA questions.
    PerFamily(Box<Reply>, Box<Reply>),
}

impl Reply {
    /// Addresses from texts.
    pub fn ips(texts: &[&str], ttl: u32) -> Reply {
        Reply::Addresses(texts.iter().map(|text| text.parse().expect("an address")).collect(), ttl)
    }

    /// This reply to A, that one to AAAA questions.
    pub fn per_family(v4: Reply, v6: Reply) -> Reply {
        Reply::PerFamily(Box::new(v4), Box::new(v6))
    }
}

/// An alias record.
pub fn alias(name: &str, target: &str, ttl: u32) -> Record {
    Record::from_rdata(absolute(name), ttl, RData::CNAME(CNAME(absolute(target))))
}

/// An A or AAAA record.
pub fn address(name: &str, ip: &str, ttl: u32) -> Record {
    Record::from_rdata(absolute(name), ttl, data(ip.parse().expect("an address")))
}

fn data(ip: IpAddr) -> RData {
    match ip {
        IpAddr::V4(ip) => RData::A(A(ip)),
        IpAddr::V6(ip) => RData::AAAA(AAAA(ip)),
    }
}

fn absolute(name: &str) -> Name {
    Name::from_ascii(format!("{name}.")).expect("a name")
}

/// How a question came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    Udp,
    Tcp,
}

/// A question that was asked. A packet that is sent again has the same id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Lower case, no trailing dot.
    pub name: String,
    pub record_type: RecordType,
    pub transport: Transport,
    pub id: u16,
}

/// The running server.
pub struct DnsServer {
    address: SocketAddr,
    zone: Arc<Zone>,
    threads: Vec<JoinHandle<()>>,
}

struct Zone {
    replies: Mutex<HashMap<String, Reply>>,
    otherwise: Box<dyn Fn(&Asked) -> Reply + Send + Sync>,
    packets: Mutex<Vec<Asked>>,
    stopped: AtomicBool,
}

impl DnsServer {
    /// Knows the names it is told with [`DnsServer::set`]; all others do not exist.
    pub fn start() -> DnsServer {
        DnsServer::answering(|_| Reply::NoName(Some(60)))
    }

    /// Asks `otherwise` about names it was not told.
    pub fn answering(otherwise: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> DnsServer {
        let (udp, tcp) = bind().expect("a free port on loopback");
        let address = udp.local_addr().expect("a bound socket");
        let zone = Arc::new(Zone {
            replies: Mutex::default(),
            otherwise: Box::new(otherwise),
            packets: Mutex::default(),
            stopped: AtomicBool::new(false),
        });
        let threads = vec![
            thread::spawn({
                let zone = Arc::clone(&zone);
                move || serve_udp(&udp, &zone)
            }),
            thread::spawn({
                let zone = Arc::clone(&zone);
                move || serve_tcp(&tcp, &zone)
            }),
        ];
        DnsServer { address, zone, threads }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on `name` is answered with `reply`.
    pub fn set(&self, name: &str, reply: Reply) {
        self.zone.replies.lock().expect("no panic").insert(name.into(), reply);
    }

    /// Every question so far; one whose packet was sent again counts once.
    pub fn asked(&self) -> Vec<Asked> {
        let mut asked = Vec::new();
        for packet in self.zone.packets.lock().expect("no panic").iter() {
            if !asked.contains(packet) {
                asked.push(packet.clone());
            }
        }
        asked
    }

    /// How often `name` was asked about.
    pub fn count(&self, name: &str) -> usize {
        self.asked().iter().filter(|asked| asked.name == name).count()
    }

    /// How often `name` was asked about with this type.
    pub fn count_of(&self, name: &str, record_type: RecordType) -> usize {
        self.asked().iter().filter(|asked| asked.name == name && asked.record_type == record_type).count()
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.zone.stopped.store(true, Ordering::Release);
        // Both threads sleep in a system call: wake them.
        if let Ok(waker) = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) {
            let _ = waker.send_to(&[], self.address);
        }
        drop(TcpStream::connect(self.address));
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// One port that is free for both; somebody may have the TCP one, so a few are tried.
fn bind() -> io::Result<(UdpSocket, TcpListener)> {
    let mut result = Err(io::Error::other("not tried"));
    for _ in 0..100 {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        result = TcpListener::bind(udp.local_addr()?).map(|tcp| (udp, tcp));
        if result.is_ok() {
            break;
        }
    }
    result
}

fn serve_udp(socket: &UdpSocket, zone: &Arc<Zone>) {
    let mut buffer = [0; 4096];
    while !zone.stopped.load(Ordering::Acquire) {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        let Some((delay, packets)) = zone.handle(&buffer[..length], Transport::Udp) else { continue };
        let Ok(socket) = socket.try_clone() else { continue };
        later(delay, move || {
            for packet in packets {
                let _ = socket.send_to(&packet, from);
            }
        });
    }
}

fn serve_tcp(listener: &TcpListener, zone: &Arc<Zone>) {
    while !zone.stopped.load(Ordering::Acquire) {
        let Ok((stream, _)) = listener.accept() else { continue };
        let zone = Arc::clone(zone);
        // Ends when the client hangs up.
        thread::spawn(move || serve_stream(stream, &zone));
    }
}

fn serve_stream(mut stream: TcpStream, zone: &Zone) -> io::Result<()> {
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut message = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut message)?;
        let Some((delay, packets)) = zone.handle(&message, Transport::Tcp) else { continue };
        let mut stream = stream.try_clone()?;
        later(delay, move || {
            for packet in packets {
                let length = u16::try_from(packet.len()).expect("a DNS message");
                let _ = stream.write_all(&[&length.to_be_bytes(), &packet[..]].concat());
            }
        });
    }
}

fn later(delay: Duration, send: impl FnOnce() + Send + 'static) {
    if delay.is_zero() {
        send();
    } else {
        thread::spawn(move || {
            thread::sleep(delay);
            send();
        });
    }
}

impl Zone {
    /// When to send which packets.
    fn handle(&self, packet: &[u8], transport: Transport) -> Option<(Duration, Vec<Vec<u8>>)> {
        let request = Message::from_vec(packet).ok()?;
        let query = request.queries.first()?;
        let name = query.name().to_ascii().to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name).to_owned();
        let asked = Asked { name, record_type: query.query_type(), transport, id: request.metadata.id };
        let nth = self.note(&asked);
        let reply = self.replies.lock().expect("no panic").get(&asked.name).cloned();
        let reply = reply.unwrap_or_else(|| (self.otherwise)(&asked));
        let mut sending =
            Sending { request: &request, asked: &asked, nth, delay: Duration::ZERO, packets: vec![] };
        sending.add(&reply);
        Some((sending.delay, sending.packets))
    }

    /// How many packets have asked the same before.
    fn note(&self, asked: &Asked) -> usize {
        let mut packets = self.packets.lock().expect("no panic");
        let same = |packet: &&Asked| {
            (&packet.name, packet.record_type, packet.transport)
                == (&asked.name, asked.record_type, asked.transport)
        };
        let before = packets.iter().filter(same).count();
        packets.push(asked.clone());
        before
    }
}

struct Sending<'a> {
    request: &'a Message,
    asked: &'a Asked,
    nth: usize,
    delay: Duration,
    packets: Vec<Vec<u8>>,
}

impl Sending<'_> {
    fn add(&mut self, reply: &Reply) {
        match reply {
            Reply::Addresses(ips, ttl) => self.add_addresses(ips, *ttl),
            Reply::Records(records) => self.message(|message| {
                message.add_answers(records.iter().cloned());
            }),
            Reply::NoName(ttl) => self.nothing(ResponseCode::NXDomain, *ttl),
            Reply::NoAddress(ttl) => self.nothing(ResponseCode::NoError, *ttl),
            Reply::Code(code) => self.message(|message| message.metadata.response_code = *code),
            Reply::Referral => self.message(|message| {
                let other = RData::NS(NS(absolute("ns.elsewhere.test")));
                message.add_authority(Record::from_rdata(absolute("test"), 60, other));
            }),
            Reply::Silence => {}
            Reply::Garbage => {
                let [high, low] = self.request.metadata.id.to_be_bytes();
                self.packets.push(vec![high, low, 0x80, 0, 0xff, 0xff, 0xff, 0xff, 0xff]);
            }
            Reply::Spoofed(reply) => self.add_spoofed(reply),
            Reply::After(delay, reply) => {
                self.delay += *delay;
                self.add(reply);
            }
            Reply::Truncated(_) if self.asked.transport == Transport::Udp => {
                self.message(|message| message.metadata.truncation = true);
            }
            Reply::Truncated(reply) => self.add(reply),
            Reply::Each(replies) => self.add(&replies[self.nth.min(replies.len() - 1)]),
            Reply::PerFamily(v4, v6) => {
                self.add(if self.asked.record_type == RecordType::AAAA { v6 } else { v4 });
            }
        }
    }

    fn add_addresses(&mut self, ips: &[IpAddr], ttl: u32) {
        let records: Vec<Record> = ips
            .iter()
            .map(|ip| Record::from_rdata(absolute(&self.asked.name), ttl, data(*ip)))
            .filter(|record| record.record_type() == self.asked.record_type)
            .collect();
        if records.is_empty() {
            self.nothing(ResponseCode::NoError, Some(ttl));
        } else {
            self.message(|message| {
                message.add_answers(records);
            });
        }
    }

    fn add_spoofed(&mut self, reply: &Reply) {
        self.packets.push(vec![0]);
        self.message(|message| {
            message.metadata.id = message.metadata.id.wrapping_add(1);
            message.metadata.response_code = ResponseCode::NXDomain;
        });
        self.add(reply);
    }

    fn nothing(&mut self, code: ResponseCode, negative_ttl: Option<u32>) {
        self.message(|message| {
            message.metadata.response_code = code;
            if let Some(ttl) = negative_ttl {
                let (primary, mailbox) = (absolute("ns.test"), absolute("hostmaster.test"));
                // The record's own TTL is longer: the smaller of the two counts (RFC 2308).
                let soa = SOA::new(primary, mailbox, 1, 3600, 600, 86400, ttl);
                message.add_authority(Record::from_rdata(absolute("test"), ttl + 1000, RData::SOA(soa)));
            }
        });
    }

    fn message(&mut self, fill: impl FnOnce(&mut Message)) {
        let mut message =
            Message::new(self.request.metadata.id, MessageType::Response, self.request.metadata.op_code);
        message.metadata.recursion_desired = self.request.metadata.recursion_desired;
        message.metadata.recursion_available = true;
        message.add_queries(self.request.queries.iter().cloned());
        fill(&mut message);
        self.packets.push(message.to_vec().expect("a message that can be written"));
    }
}
