//! One attempt: a body is posted, and what the peer said is put into one of four words.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::time::Duration;

use hyper::body::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message as _;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, Url};

use crate::own::Failure;

/// For all of one attempt.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most that is read of an answer.
const ANSWER: usize = 64 << 10;
/// Longest message of a peer that is repeated.
const WORDS: usize = 200;

/// Where bodies go.
#[derive(Debug)]
pub struct Peer {
    client: Client,
    url: Url,
    headers: HeaderMap,
}

/// What became of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Taken, but for some points, with the peer's reason.
    Taken {
        /// Points left out.
        rejected: u64,
        /// Why, in the peer's words; also a warning without any.
        words: String,
    },
    /// To be tried again.
    Failed {
        /// What failed.
        failure: Failure,
        /// The peer asks to wait so long.
        after: Option<Duration>,
        /// In words, without secrets.
        words: String,
    },
    /// This batch will never be taken.
    Refused {
        /// In words.
        words: String,
    },
}

impl Peer {
    /// Nothing is asked or looked up yet.
    ///
    /// # Errors
    /// In words, when the URL or a header is none, or there are no certificates to trust.
    pub fn new(endpoint: &str, headers: &BTreeMap<String, String>) -> Result<Self, String> {
        let url = Url::parse(endpoint).map_err(|error| format!("otlp.endpoint is no URL: {error}"))?;
        // reqwest asks for a provider even for plain HTTP. If the process has one already, that one serves.
        let _already = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .timeout(PATIENCE)
            .pool_max_idle_per_host(1)
            .user_agent(concat!("gpuprod/", env!("CARGO_PKG_VERSION")));
        let client = if url.scheme() == "https" { client } else { client.tls_certs_only([]) };
        let client = client.build().map_err(|error| format!("make the client for otlp.endpoint: {}", cause(&error)))?;
        Ok(Self { client, url, headers: parse(headers)? })
    }

    /// Where, without credentials and query.
    #[must_use]
    pub fn shown(&self) -> String {
        let url = &self.url;
        let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
        format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or(""), url.path())
    }

    /// Posts one compressed body.
    pub async fn post(&self, body: Bytes) -> Outcome {
        let request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .header(CONTENT_ENCODING, "gzip")
            .body(body);
        match request.send().await {
            Ok(response) => answered(response).await,
            Err(error) => failed(&error),
        }
    }
}

/// As HTTP headers.
///
/// # Errors
/// Names the header that is none, never its value.
pub fn parse(headers: &BTreeMap<String, String>) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is no name of a header"))?;
        if ["content-type", "content-encoding", "content-length", "transfer-encoding", "host"].contains(&key.as_str()) {
            return Err(format!("{name} is set by gpuprod itself"));
        }
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| format!("the value of {name} has characters that a header cannot carry"))?;
        value.set_sensitive(true);
        map.insert(key, value);
    }
    Ok(map)
}

async fn answered(response: Response) -> Outcome {
    let status = response.status();
    let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let after = after.map(Duration::from_secs);
    let answer = read(response).await;
    let said = |answer: &[u8]| {
        let text: String = String::from_utf8_lossy(answer).chars().take(WORDS).collect();
        let text = crate::text::clean(&text.replace(['\r', '\n'], " "));
        let gap = if text.trim().is_empty() { "" } else { ": " };
        format!("HTTP {}{gap}{}", status.as_u16(), text.trim())
    };
    let failure = match (status.as_u16(), answer) {
        (200..=299, Ok(answer)) => return taken(&answer),
        (200..=299, Err(words)) => return Outcome::Failed { failure: Failure::Broken, after: None, words },
        (code, answer) => {
            let words = said(&answer.unwrap_or_default());
            let failure = match code {
                408 | 429 | 502..=504 => Failure::Busy,
                500.. => Failure::Server,
                300..=399 => Failure::Redirect,
                // The peer's word on us, not on this batch: the next one would fare the same.
                401 | 403 | 404 | 405 | 407 => Failure::Denied,
                _ => return Outcome::Refused { words },
            };
            (failure, words)
        }
    };
    Outcome::Failed { failure: failure.0, after, words: failure.1 }
}

/// What is behind the cap is not read: an answer is a few bytes.
async fn read(mut response: Response) -> Result<Vec<u8>, String> {
    let mut answer = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| cause(&error))? {
        if answer.len() + chunk.len() > ANSWER {
            break;
        }
        answer.extend_from_slice(&chunk);
    }
    Ok(answer)
}

/// An answer that is no protobuf message is still a yes.
fn taken(answer: &[u8]) -> Outcome {
    let partial = ExportMetricsServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
    let partial = partial.unwrap_or_default();
    let rejected = u64::try_from(partial.rejected_data_points).unwrap_or(0);
    let words = partial.error_message.chars().take(WORDS).collect::<String>();
    Outcome::Taken { rejected, words: crate::text::clean(&words) }
}

fn failed(error: &reqwest::Error) -> Outcome {
    let failure = if error.is_timeout() {
        Failure::Timeout
    } else if error.is_connect() {
        Failure::Connect
    } else {
        Failure::Broken
    };
    Outcome::Failed { failure, after: None, words: cause(error) }
}

/// The cause at the bottom says more than "error sending request", and holds no URL.
fn cause(error: &reqwest::Error) -> String {
    let Some(mut cause) = error.source() else {
        return if error.is_timeout() { "timed out".to_owned() } else { "no answer".to_owned() };
    };
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    crate::text::printable(&cause.to_string())
}
