//! The database's URL: what libpq understands of TLS in it and tokio-postgres does not.

use super::database::DatabaseError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::sync::Arc;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// Whether the server's certificate is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Check {
    No,
    Yes,
}

/// What the URL says, as settings of the connection.
pub(super) fn configure(url: &str) -> Result<(tokio_postgres::Config, MakeRustlsConnect), DatabaseError> {
    let (plain, mode, roots) = split(url)?;
    let mut config: tokio_postgres::Config =
        plain.parse().map_err(|error: tokio_postgres::Error| DatabaseError::Url(reason(&error)))?;
    let (mode, check) = match mode.as_deref() {
        None | Some("prefer" | "allow") => (SslMode::Prefer, Check::No),
        Some("disable") => (SslMode::Disable, Check::No),
        Some("require") if roots.is_none() => (SslMode::Require, Check::No),
        Some("require" | "verify-ca" | "verify-full") => (SslMode::Require, Check::Yes),
        Some(other) => return Err(DatabaseError::Url(format!("sslmode={other} is unknown"))),
    };
    config.ssl_mode(mode);
    Ok((config, MakeRustlsConnect::new(client_config(check, roots.as_deref())?)))
}

fn reason(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

/// The URL without `sslmode` and `sslrootcert`, and what these say.
fn split(url: &str) -> Result<(String, Option<String>, Option<String>), DatabaseError> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut mode, mut roots, mut rest) = (None, None, Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let value = || {
            let (_, value) = url::form_urlencoded::parse(pair.as_bytes()).next()?;
            Some(value.into_owned())
        };
        match pair.split_once('=').map_or(pair, |(name, _)| name) {
            "sslmode" => mode = value(),
            "sslrootcert" => roots = value(),
            "sslcert" | "sslkey" => {
                return Err(DatabaseError::Url("certificates of our own are not supported".into()));
            }
            _ => rest.push(pair),
        }
    }
    let plain = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    Ok((plain, mode, roots))
}

fn client_config(check: Check, roots: Option<&str>) -> Result<ClientConfig, DatabaseError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| DatabaseError::Url(error.to_string()))?;
    Ok(match check {
        Check::Yes => builder.with_root_certificates(trusted(roots)?).with_no_client_auth(),
        Check::No => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unchecked(provider)))
            .with_no_client_auth(),
    })
}

fn trusted(roots: Option<&str>) -> Result<RootCertStore, DatabaseError> {
    let Some(path) = roots.filter(|path| *path != "system") else {
        return Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() });
    };
    let bad = |what: &dyn std::fmt::Display| DatabaseError::Url(format!("sslrootcert={path}: {what}"));
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(&error))? {
        let certificate = certificate.map_err(|error| bad(&error))?;
        store.add(certificate).map_err(|error| bad(&error))?;
    }
    if store.is_empty() { Err(bad(&"no certificate in it")) } else { Ok(store) }
}

/// Encrypted, to whomever: what `prefer` and `require` promise, and no more.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libpq_knows_of_tls_is_taken_out_of_the_url() {
        let parts = |url| split(url).expect(url);
        let url = "postgres://u:p@h/d?sslmode=verify-full&application_name=x&sslrootcert=%2Ftmp%2Fca.pem";
        assert_eq!(
            parts(url),
            (
                "postgres://u:p@h/d?application_name=x".into(),
                Some("verify-full".into()),
                Some("/tmp/ca.pem".into())
            )
        );
        assert_eq!(parts("postgres://h/d"), ("postgres://h/d".into(), None, None));
        assert_eq!(parts("postgres://h?sslmode=disable").0, "postgres://h");
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (url, named) in [
            ("postgres://h/d?sslmode=sometimes", "sslmode=sometimes"),
            ("postgres://h/d?sslmode=verify-full&sslrootcert=/nowhere/ca.pem", "/nowhere/ca.pem"),
            ("postgres://h/d?sslcert=x", "certificates of our own"),
            ("postgres://h/d?colour=red", "colour"),
        ] {
            let error = configure(url).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(named), "{url}: {error:?}");
        }
    }
}
