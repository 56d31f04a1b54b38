//! Whom a request over https, of a run or of a command, believes: the machine's root certificates and what the operator adds to them.

#![expect(clippy::disallowed_methods, reason = "certificates are files of the machine")]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use model::{Code, Problem};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Class, Failure};

/// Where systems keep the roots that they trust; the first that is there counts.
const BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/local/etc/ssl/cert.pem",
];

pub struct Tls {
    own: Vec<CertificateDer<'static>>,
    /// Made with the first request that needs it: the machine's roots are some hundred.
    config: OnceLock<Result<Arc<ClientConfig>, Problem>>,
}

impl Tls {
    /// `ca_file` holds certificates in PEM that are trusted beside the machine's.
    pub fn new(ca_file: Option<&PathBuf>) -> Result<Tls, Problem> {
        let own = ca_file.map(|path| read(path)).transpose()?.unwrap_or_default();
        Ok(Tls { own, config: OnceLock::new() })
    }

    pub async fn connect(&self, host: &str, stream: TcpStream) -> Result<TlsStream<TcpStream>, Failure> {
        let config = self.config.get_or_init(|| config(&self.own)).clone();
        let config = config.map_err(|problem| Failure::new(Class::Transient, problem))?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            let what = format!("\"{host}\" is no name of a server");
            Failure::new(Class::Permanent, Problem::new(Code::HttpInvalid, what))
        })?;
        let connected = TlsConnector::from(config).connect(name, stream).await;
        connected.map_err(|error| not_secure(host, &error))
    }
}

/// A certificate that is not believed is not believed next time either.
fn not_secure(host: &str, error: &io::Error) -> Failure {
    let why = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    let what = format!("no secure connection to \"{host}\": {error}");
    match why {
        Some(rustls::Error::InvalidCertificate(_)) => {
            let hint = "`[effects] ca_file` names further roots to trust";
            Failure::new(Class::Permanent, Problem::new(Code::HttpFailed, what).hint(hint))
        }
        _ => Failure::new(Class::Transient, Problem::new(Code::HttpFailed, what)),
    }
}

fn config(own: &[CertificateDer<'static>]) -> Result<Arc<ClientConfig>, Problem> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = BUNDLES.iter().map(Path::new).find(|path| path.exists()) {
        // One that cannot be read is of no use, and no reason to distrust the others.
        roots.add_parsable_certificates(read(path)?);
    }
    roots.add_parsable_certificates(own.iter().cloned());
    if roots.is_empty() {
        let what = "this machine has no root certificates";
        let hint = "install its package of CA certificates, or name a file with `[effects] ca_file`";
        return Err(Problem::new(Code::HttpFailed, what).hint(hint));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let wrong = |why: String| {
        Problem::new(Code::ConfigInvalid, format!("\"{}\" holds no certificates: {why}", path.display()))
            .hint("a file in PEM, with -----BEGIN CERTIFICATE-----")
    };
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() { Err(wrong("there is none in it".to_owned())) } else { Ok(found) }
}
