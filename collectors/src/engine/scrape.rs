//! Fetches the engines' pages, all at once, each within its own time and size. One that is down, slow, endless
//! or no engine at all costs the others nothing.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::time::Duration;

use gpuprod_snapshot::engine::{Engine, EngineKind, Engines};
use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::page;
use crate::{CollectError, Collector, Focus, Host, Missing, Part, Reading, Source, now};

/// A page that takes longer is late; an engine answers from the same loop that serves its requests.
const PATIENCE: Duration = Duration::from_millis(800);
/// A page of eight data-parallel engines is a third of a megabyte.
const PAGE: usize = 8 << 20;
/// Pieces of a page: a server that sends a byte a piece would cost a processor of ours. Our largest page in
/// these is still 400 bytes a piece.
const PIECES: usize = 20_000;
/// Shown for what may be a password from end to end.
const HIDDEN: &str = "(a URL that is not shown)";
/// The plain text form: with OpenMetrics, some exporters name samples and types differently.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain;version=0.0.4");

/// Asks the engines.
pub struct Scraper {
    targets: Vec<Target>,
    net: Option<Net>,
}

struct Target {
    /// As it is shown: without credentials and without a query, and no two alike.
    shown: String,
    url: Result<Url, String>,
    /// The name of its counter of steps, where the operator gives one.
    steps: Option<String>,
    /// Its last page was a training job's: it stays one while it cannot be read.
    trains: bool,
}

/// The collector's own loop on its own thread.
struct Net {
    runtime: Runtime,
    plain: Client,
    /// With certificates; only when an engine speaks TLS.
    tls: Option<Client>,
}

impl Scraper {
    /// For these URLs. One without a path is asked for `/metrics`.
    #[must_use]
    pub fn new(urls: &[String]) -> Self {
        let mut targets: Vec<Target> = urls.iter().map(|url| Target::new(url)).collect();
        // What tells two apart can be what is hidden: they are numbered then.
        let mut times: BTreeMap<String, u32> = BTreeMap::new();
        for target in &mut targets {
            let count = times.entry(target.shown.clone()).or_default();
            *count += 1;
            if *count > 1 {
                target.shown = format!("{}#{count}", target.shown);
            }
        }
        Self { targets, net: None }
    }
}

impl Collector for Scraper {
    fn source(&self) -> Source {
        Source::Engine
    }

    fn collect(&mut self, _host: &Host, _focus: &Focus) -> Result<Part, CollectError> {
        if self.targets.is_empty() {
            return Err(CollectError::new(Missing::Unsupported, "no engine URL is configured").hint("--engine URL"));
        }
        let net = match self.net.take() {
            Some(net) => net,
            None => Net::open(&self.targets)?,
        };
        let mut engines = net.fetch_all(&self.targets);
        self.net = Some(net);
        for (engine, target) in engines.iter_mut().zip(&mut self.targets) {
            if engine.page.get().is_some() {
                target.trains = engine.trains();
            } else if target.trains || target.steps.is_some() {
                engine.kind = Reading::Value(EngineKind::Trainer);
            }
        }
        Ok(Part::Engine(Engines { engines }))
    }
}

impl Target {
    fn new(text: &str) -> Self {
        let url = Url::parse(text).map_err(|error| format!("not a URL: {error}")).and_then(|url| match url.scheme() {
            "http" | "https" => Ok(url),
            // In `user:password@host` the scheme is a name, or worse.
            _ if text.contains('@') => Err("not a URL of http or https".to_owned()),
            other => Err(format!("not a URL of http or https: {}", page::short(other))),
        });
        let mut this = Self { shown: String::new(), url: Err(String::new()), steps: None, trains: false };
        match url {
            Ok(mut url) => {
                if url.path() == "/" {
                    url.set_path("/metrics");
                }
                this.shown = without_secrets(text, &url);
                // With an `@` in it, it is most likely the end of a password, and nobody's name.
                let named = url.fragment().filter(|name| !name.contains('@')).map(super::steps::name).transpose();
                url.set_fragment(None);
                this.url = named.map_err(str::to_owned).map(|name| {
                    this.steps = name;
                    url
                });
            }
            Err(why) => {
                this.shown = page::short(&after_credentials(text));
                this.url = Err(why);
            }
        }
        this
    }
}

/// Scheme, host, port and path: a query can hold a token.
fn without_secrets(text: &str, url: &Url) -> String {
    // An `@` behind the host is most likely the end of a password with a `/` or `#` in it.
    if url.path().contains('@') || url.fragment().is_some_and(|rest| rest.contains('@')) {
        return match after_credentials(text) {
            hidden if hidden == HIDDEN => hidden,
            rest => format!("{}://{rest}", url.scheme()),
        };
    }
    let mut shown = url.clone();
    // Both fail only for URLs without a host, which http has not.
    let _ = (shown.set_username(""), shown.set_password(None));
    shown.set_query(None);
    shown.set_fragment(None);
    shown.into()
}

/// What stands behind the last `@`, since everything before it may be a password, up to the query. With an `@`
/// behind a `?`, the one may be of a password or the other of a token: then nothing is sure.
fn after_credentials(text: &str) -> String {
    let (secret, rest) = text.rsplit_once('@').unwrap_or(("", text));
    if secret.contains('?') {
        return HIDDEN.to_owned();
    }
    rest.split(['?', '#']).next().unwrap_or_default().to_owned()
}

impl Net {
    fn open(targets: &[Target]) -> Result<Self, CollectError> {
        let failed = |what: &str, error: Box<dyn Error + Send + Sync>| CollectError {
            missing: Missing::Unsupported,
            tried: format!("start the {what}"),
            hint: None,
            source: Some(error),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Names are looked up on threads; one that hangs must not gather more of them each second.
            .max_blocking_threads(8)
            .build()
            .map_err(|error| failed("network loop", error.into()))?;
        // reqwest asks for a provider even for plain HTTP. If the process has one already, that one serves.
        let _already = rustls::crypto::ring::default_provider().install_default();
        let client = || {
            Client::builder()
                .no_proxy()
                .redirect(reqwest::redirect::Policy::none())
                .referer(false)
                .pool_max_idle_per_host(1)
        };
        let plain = client().tls_certs_only([]).build().map_err(|error| failed("HTTP client", error.into()))?;
        let wants_tls = |target: &Target| target.url.as_ref().is_ok_and(|url| url.scheme() == "https");
        let tls = targets.iter().any(wants_tls).then(|| client().build().ok()).flatten();
        Ok(Self { runtime, plain, tls })
    }

    /// In the order of the targets.
    fn fetch_all(&self, targets: &[Target]) -> Vec<Engine> {
        self.runtime.block_on(async {
            let mut tasks = JoinSet::new();
            let mut engines: Vec<Engine> = Vec::with_capacity(targets.len());
            for (index, target) in targets.iter().enumerate() {
                // Stands if the task breaks; it never should.
                engines.push(unread(Missing::Malformed, "the request broke off"));
                let steps = target.steps.clone();
                let (url, client) = match (&target.url, &self.tls) {
                    (Err(why), _) => {
                        engines[index] = unread(Missing::Malformed, why);
                        continue;
                    }
                    (Ok(url), Some(tls)) if url.scheme() == "https" => (url.clone(), tls.clone()),
                    (Ok(url), None) if url.scheme() == "https" => {
                        engines[index] = unread(Missing::Unsupported, "no certificates for TLS");
                        continue;
                    }
                    (Ok(url), _) => (url.clone(), self.plain.clone()),
                };
                tasks.spawn(async move { (index, ask(&client, url, steps.as_deref()).await) });
            }
            while let Some(done) = tasks.join_next().await {
                if let Ok((index, engine)) = done
                    && let Some(slot) = engines.get_mut(index)
                {
                    *slot = engine;
                }
            }
            for (engine, target) in engines.iter_mut().zip(targets) {
                engine.url.clone_from(&target.shown);
            }
            engines
        })
    }
}

fn unread(missing: Missing, why: &str) -> Engine {
    Engine { at: now::boottime(), why: page::short(why), ..page::blank(missing) }
}

async fn ask(client: &Client, url: Url, steps: Option<&str>) -> Engine {
    let fetched = tokio::time::timeout(PATIENCE, fetch(client, url)).await;
    let at = now::boottime();
    let read = match fetched {
        Ok(Ok(text)) => page::read_as(&text, steps),
        Ok(Err(failure)) => Err(failure),
        Err(_) => Err((Missing::TimedOut, format!("timed out after {} ms", PATIENCE.as_millis()))),
    };
    match read {
        Ok(engine) => Engine { at, ..engine },
        Err((missing, why)) => unread(missing, &why),
    }
}

async fn fetch(client: &Client, url: Url) -> Result<String, (Missing, String)> {
    let request = client.get(url).header(ACCEPT, TEXT);
    let mut response = request.send().await.map_err(in_words)?;
    let status = response.status();
    if status != StatusCode::OK {
        return Err((meaning(status), format!("HTTP {}", status.as_u16())));
    }
    let mut bytes = Vec::new();
    let mut pieces = 0;
    while let Some(chunk) = response.chunk().await.map_err(in_words)? {
        if bytes.len() + chunk.len() > PAGE {
            return Err((Missing::Malformed, format!("larger than {PAGE} bytes")));
        }
        pieces += 1;
        if pieces > PIECES {
            return Err((Missing::Malformed, format!("in more than {PIECES} pieces")));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

fn meaning(status: StatusCode) -> Missing {
    match status.as_u16() {
        401 | 403 => Missing::Denied,
        // Not there, moved, or switched off (llama.cpp answers 501).
        300..=399 | 404 | 405 | 410 | 501 => Missing::Unsupported,
        _ => Missing::Gone,
    }
}

/// The cause at the bottom, in a word where there is one: "refused" says more than "error sending request".
fn in_words(error: reqwest::Error) -> (Missing, String) {
    let error = error.without_url();
    let mut cause: &(dyn Error + 'static) = &error;
    loop {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            match io.kind() {
                io::ErrorKind::ConnectionRefused => return (Missing::Gone, "refused".into()),
                io::ErrorKind::ConnectionReset => return (Missing::Gone, "reset".into()),
                io::ErrorKind::TimedOut => return (Missing::TimedOut, "timed out".into()),
                _ => {}
            }
        }
        match cause.source() {
            Some(below) => cause = below,
            None => return (Missing::Gone, cause.to_string()),
        }
    }
}

#[cfg(test)]
#[path = "scrape_tests.rs"]
mod tests;
