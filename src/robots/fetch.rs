//! One request for a robots.txt, to the address that HostDB chose.
//!
//! Every request ends within its time, reads no more than it may, and leaves nothing behind when its future is
//! dropped. A body that ends before its time is no robots.txt: the part that is missing may be the part that
//! denies, so it counts as no answer. Not here: redirects, other addresses, a second try, how many at once.

use super::freshness::max_age;
use super::{Answer, Rules, body};
use crate::document::Outcome;
use crate::time::Duration;
use crate::url::{Scheme, Url};
use crate::wire::RetryAfter;
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

/// Most headers of an answer, and most bytes of all of them together.
const HEADERS_MAX: usize = 256;
const HEAD_MAX: usize = 64 * 1024;

/// Longer limits are cut to this: the runtime's clock overflows on absurd ones.
const LIMIT_MAX: Duration = Duration::from_secs(3600);

/// How long one request may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchLimits {
    /// Longest time until the TCP connection stands.
    pub connect: Duration,
    /// Longest time in all, whatever the web server does.
    pub total: Duration,
}

impl Default for FetchLimits {
    fn default() -> Self {
        FetchLimits { connect: Duration::from_secs(10), total: Duration::from_secs(30) }
    }
}

/// Asks web servers for their robots.txt. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Fetcher {
    limits: FetchLimits,
    user_agent: HeaderValue,
    product: Arc<str>,
    roots: Arc<RootCertStore>,
    tls: Arc<ClientConfig>,
}

impl Fetcher {
    /// One that introduces itself as `user_agent` (of which only printable ASCII is said), obeys the rules for
    /// the product at its beginning, and trusts the roots that browsers trust.
    pub fn new(limits: FetchLimits, user_agent: &str) -> Fetcher {
        let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        let printable: String = user_agent.chars().filter(|c| matches!(c, ' '..='~')).collect();
        Fetcher {
            limits: FetchLimits {
                connect: limits.connect.min(LIMIT_MAX),
                total: limits.total.min(LIMIT_MAX),
            },
            user_agent: HeaderValue::from_str(&printable).expect("printable ASCII is a header's value"),
            product: user_agent.into(),
            tls: client_config(&roots),
            roots: Arc::new(roots),
        }
    }

    /// Trusts this root too; one that cannot be read changes nothing.
    #[must_use]
    pub fn trusting(self, root: CertificateDer<'static>) -> Fetcher {
        let mut roots = (*self.roots).clone();
        roots.add_parsable_certificates([root]);
        Fetcher { tls: client_config(&roots), roots: Arc::new(roots), ..self }
    }

    /// Asks for `url` at `ip`: one connection, one request, no redirect followed, no name looked up.
    pub async fn fetch(&self, url: &Url, ip: IpAddr) -> Answer {
        let asked = timeout(self.limits.total, self.ask(url, ip)).await;
        asked.unwrap_or(Err(Outcome::Timeout)).unwrap_or_else(Answer::Unreachable)
    }

    async fn ask(&self, url: &Url, ip: IpAddr) -> Result<Answer, Outcome> {
        let target = Target::of(url);
        let connecting = timeout(self.limits.connect, TcpStream::connect((ip, target.port)));
        let tcp = connecting.await.map_err(|_| Outcome::Timeout)?.map_err(|_| Outcome::ConnectFailed)?;
        let request = self.request(&target)?;
        if !target.tls {
            return self.exchange(tcp, request, url).await;
        }
        let name = server_name(url.host()).ok_or(Outcome::TlsFailed)?;
        let connecting = TlsConnector::from(Arc::clone(&self.tls)).connect(name, tcp);
        let tls = connecting.await.map_err(|_| Outcome::TlsFailed)?;
        self.exchange(tls, request, url).await
    }

    fn request(&self, target: &Target) -> Result<Request<Empty<Bytes>>, Outcome> {
        let request = Request::get(target.path.as_str())
            .header(header::HOST, target.authority.as_str())
            .header(header::USER_AGENT, &self.user_agent)
            .header(header::ACCEPT, "text/plain, */*;q=0.5")
            .header(header::ACCEPT_ENCODING, "gzip, deflate")
            .header(header::CONNECTION, "close");
        // Some URLs are none for the HTTP library; it is as if nobody could be asked.
        request.body(Empty::new()).map_err(|_| Outcome::ConnectFailed)
    }

    async fn exchange(
        &self,
        io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        request: Request<Empty<Bytes>>,
        url: &Url,
    ) -> Result<Answer, Outcome> {
        let handshake = http1::Builder::new()
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_MAX)
            .ignore_invalid_headers_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .allow_spaces_after_header_name_in_responses(true)
            .handshake(TokioIo::new(io));
        let (mut sender, connection) = handshake.await.map_err(|_| Outcome::ConnectFailed)?;
        let _driver = AbortOnDropHandle::new(tokio::spawn(connection));
        let response = sender.send_request(request).await.map_err(|_| Outcome::ConnectFailed)?;
        self.judge(response, url).await
    }

    /// What the status says. A body is read only if it is the robots.txt.
    async fn judge(&self, response: Response<Incoming>, url: &Url) -> Result<Answer, Outcome> {
        let status = response.status().as_u16();
        let headers = response.headers();
        match status {
            ..200 => Err(Outcome::ConnectFailed),
            200..300 => {
                let max_age = max_age(headers, since_1970());
                let body = body::read(response).await.ok_or(Outcome::ConnectFailed)?;
                Ok(Answer::Rules { rules: Rules::parse(&body, &self.product), max_age })
            }
            300..400 => Ok(moved(headers, url).map_or(Answer::Missing { status }, |to| Answer::Moved { to })),
            429 | 500.. => Ok(Answer::Refused { status, retry_after: retry_after(headers) }),
            400..500 => Ok(Answer::Missing { status }),
        }
    }
}

/// Where a request goes, and what it asks for there.
struct Target {
    tls: bool,
    port: u16,
    authority: String,
    path: String,
}

impl Target {
    fn of(url: &Url) -> Target {
        let tail = url.tail();
        let port = tail.port();
        let tls = match tail.scheme {
            Scheme::Http => false,
            Scheme::Https => true,
            Scheme::Whole => url.as_str().starts_with("https:"),
        };
        let default = if tls { 443 } else { 80 };
        let authority =
            if port == default { url.host().to_owned() } else { format!("{}:{port}", url.host()) };
        let path = url::Url::parse(url.as_str()).map_or_else(
            |_| "/robots.txt".to_owned(),
            |url| url[url::Position::BeforePath..url::Position::AfterQuery].to_owned(),
        );
        Target { tls, port, authority, path }
    }
}

fn server_name(host: &str) -> Option<ServerName<'static>> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(bare.to_owned()).ok()
}

fn client_config(roots: &RootCertStore) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = versions.expect("ring speaks the default versions of TLS");
    let mut config = builder.with_root_certificates(roots.clone()).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Where a redirect leads, if that is an http or https URL.
fn moved(headers: &HeaderMap, from: &Url) -> Option<Url> {
    let location = String::from_utf8_lossy(headers.get(header::LOCATION)?.as_bytes());
    let to = url::Url::parse(from.as_str()).ok()?.join(&location).ok()?;
    Url::parse(to.as_str()).ok()
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let said = headers.get(header::RETRY_AFTER)?.as_bytes().trim_ascii();
    RetryAfter::parse(said).map(|said| said.delay(since_1970()))
}

/// Dates in headers are about the wall clock, which is read nowhere else but at the server's own rim.
fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
