//! TLS at the door: a certificate and its key from files, read again when they change.
//!
//! ```text
//!  handshake ─▶ did the files change? ─▶ yes: read them; what cannot be used is said, and the pair before stays in force
//! ```

#![expect(clippy::disallowed_methods, reason = "certificates are files of the machine")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use model::{Code, Problem};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A certificate and its key, in force for every connection that begins.
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: Mutex<(Seen, Arc<ServerConfig>)>,
}

/// How both files looked when they were read.
type Seen = [Option<(SystemTime, u64)>; 2];

impl Tls {
    /// Files in PEM: a chain with the server's own certificate first, and its private key.
    pub fn new(certificate: PathBuf, key: PathBuf) -> Result<Tls, Problem> {
        let seen = look(&certificate, &key);
        let config = read(&certificate, &key)?;
        Ok(Tls { certificate, key, current: Mutex::new((seen, config)) })
    }

    pub(crate) async fn accept(&self, socket: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        TlsAcceptor::from(self.config()).accept(socket).await
    }

    fn config(&self) -> Arc<ServerConfig> {
        let seen = look(&self.certificate, &self.key);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 != seen {
            // Also when it cannot be used: it is said once, and tried again when it changes again.
            current.0 = seen;
            match read(&self.certificate, &self.key) {
                Ok(config) => {
                    current.1 = config;
                    tracing::info!(certificate = %self.certificate.display(), "a new certificate is in force");
                }
                Err(problem) => tracing::error!(%problem, "the certificate before stays in force"),
            }
        }
        current.1.clone()
    }
}

fn look(certificate: &Path, key: &Path) -> Seen {
    [certificate, key].map(|path| {
        let data = std::fs::metadata(path).ok()?;
        Some((data.modified().ok()?, data.len()))
    })
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, Problem> {
    let wrong = |path: &Path, why: &dyn std::fmt::Display| {
        Problem::new(Code::ConfigInvalid, format!("\"{}\" cannot be used for TLS: {why}", path.display()))
            .hint("a certificate chain and its private key, each in PEM, that belong together")
    };
    let chain = CertificateDer::pem_file_iter(certificate).map_err(|error| wrong(certificate, &error))?;
    let chain: Result<Vec<_>, _> = chain.collect();
    let chain = chain.map_err(|error| wrong(certificate, &error))?;
    if chain.is_empty() {
        return Err(wrong(certificate, &"there is no certificate in it"));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(certificate, &error))?;
    let mut config =
        config.with_no_client_auth().with_single_cert(chain, private).map_err(|error| wrong(key, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
