//! The HTTP server: `/`, `/metrics`, `/healthz`, `/readyz`, `/api/v1/frame`. It shows the newest frame that the tick
//! thread put on the shelf; a request never touches the host, the judge or the ledger.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use gpuprod_collectors::tree;
use gpuprod_snapshot::units::Nanos;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT, ALLOW, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN, X_CONTENT_TYPE_OPTIONS,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::JoinHandle;

use crate::clock::boottime;
use crate::sink::prometheus::Form;
use crate::status;

mod shelf;

pub use shelf::{Pages, Shelf};

/// At most so many connections at a time; one more ends the oldest.
const CONNECTIONS: usize = 64;
/// A request's head must be complete within this.
const HEAD: Duration = Duration::from_secs(5);
/// A connection carries one request and lives no longer than this, whatever its client does not send or read.
const LIFETIME: Duration = Duration::from_secs(10);

/// Serves until the runtime ends.
///
/// # Errors
/// When the listener cannot be handed to the runtime.
pub async fn serve(listener: TcpListener, shelf: Shelf) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let door = Door {
        loopback: listener.local_addr().is_ok_and(|address| address.ip().is_loopback()),
        own: tree::word(Path::new("/proc/sys/kernel/hostname")).get().map(|name| name.to_ascii_lowercase()),
    };
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let rendered = shelf.clone();
    tokio::spawn(async move {
        loop {
            rendered.render().await;
        }
    });
    let mut open: VecDeque<JoinHandle<()>> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors: wait instead of spinning.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        while open.len() >= CONNECTIONS {
            // Answers take milliseconds: the oldest is one that dawdles.
            open.pop_front().inspect(JoinHandle::abort);
        }
        let (shelf, door) = (shelf.clone(), door.clone());
        open.push_back(tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let response = answer(&request, &door, &shelf, boottime());
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .keep_alive(false)
                .header_read_timeout(HEAD)
                .max_buf_size(16 << 10)
                .serve_connection(TokioIo::new(stream), answer);
            // A client that breaks off or dawdles is its own business.
            let _ = tokio::time::timeout(LIFETIME, connection).await;
        }));
    }
}

/// Whom the server answers. A page of another site that a browser has open must not read what the node does: neither by
/// asking across sites, nor by letting its own name lead to the agent's address.
#[derive(Clone, Debug)]
struct Door {
    /// Whether it is reached on this node alone: then by its address, by `localhost`, or by the node's name. On other
    /// addresses any name may be one of the site's, so that none is refused.
    loopback: bool,
    /// The node's name.
    own: Option<String>,
}

/// Ends of names that nobody can own on the Internet.
const PRIVATE: &[&str] = &["localhost", "local", "localdomain", "internal", "lan", "svc", "test"];

impl Door {
    /// Why a request is not answered.
    fn refuses(&self, path: &str, host: Option<&str>, origin: Option<&str>) -> Option<&'static str> {
        let from = origin.map(|origin| origin.split_once("://").map_or(origin, |(_, authority)| authority));
        if from.is_some_and(|from| !from.eq_ignore_ascii_case(host.unwrap_or(""))) {
            return Some("asked by a page of another site (Origin)\n");
        }
        // Scrapes and probes may come through a proxy that keeps the name by which it was asked.
        let guarded = self.loopback && matches!(path, "/" | "/api/v1/frame");
        (guarded && !self.is_ours(&name(host?))).then_some(NOT_OURS)
    }

    fn is_ours(&self, name: &str) -> bool {
        let short = |name: &str| name.split('.').next().unwrap_or("").to_owned();
        let last = name.rsplit('.').next().unwrap_or("");
        name.parse::<IpAddr>().is_ok()
            || !name.contains('.')
            || PRIVATE.contains(&last)
            || self.own.as_ref().is_some_and(|own| short(own) == short(name))
    }
}

const NOT_OURS: &str = "not by this name (Host): the agent listens on this node's loopback address; ask by that address, \
                        by localhost or by the node's name\n";

/// Of an authority: without the port, brackets and the dot of the root.
fn name(authority: &str) -> String {
    let name = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.rsplit_once(':').map_or(authority, |(name, _)| name),
    };
    name.trim_end_matches('.').to_ascii_lowercase()
}

fn answer(request: &Request<Incoming>, door: &Door, shelf: &Shelf, now: Nanos) -> Response<Full<Bytes>> {
    let header = |name: HeaderName| request.headers().get(name).map(|value| value.to_str().unwrap_or("?"));
    if let Some(why) = door.refuses(request.uri().path(), header(HOST), header(ORIGIN)) {
        return plain(StatusCode::FORBIDDEN, why.into());
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".into());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let pages = shelf.newest();
    match (request.uri().path(), pages) {
        ("/healthz", pages) => told(healthy(pages.as_deref(), now)),
        ("/readyz", pages) => told(ready(pages.as_deref(), now)),
        ("/" | "/metrics" | "/api/v1/frame", None) => told(Err(NO_TICK.to_owned())),
        ("/", Some(pages)) => {
            let mut page = response(StatusCode::OK, "text/html; charset=utf-8", pages.status());
            // It carries foreign names: nothing in it may run or be fetched.
            page.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(status::POLICY));
            page
        }
        ("/metrics", Some(pages)) => {
            let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
            let form = Form::accepted(accept.unwrap_or(""));
            shelf.asked(form);
            response(StatusCode::OK, form.content_type(), pages.metrics(form))
        }
        ("/api/v1/frame", Some(pages)) => response(StatusCode::OK, "application/json", pages.public()),
        _ => plain(
            StatusCode::NOT_FOUND,
            "not here; there are /, /metrics, /healthz, /readyz and /api/v1/frame\n".into(),
        ),
    }
}

const NO_TICK: &str = "no tick yet";

/// How old the last tick of an agent may be that ticks: three periods and two seconds.
#[must_use]
pub fn limit(period: Nanos) -> Nanos {
    Nanos(period.0.saturating_mul(3)).saturating_add(Nanos::from_secs(2))
}

/// Healthy while ticks advance.
fn healthy(pages: Option<&Pages>, now: Nanos) -> Result<String, String> {
    let known = &pages.ok_or(NO_TICK)?.frame.known;
    let age = now.saturating_sub(known.stamp.boottime);
    let says = format!("last tick {:.1} s ago", age.as_secs_f64());
    if age <= limit(known.period) { Ok(says) } else { Err(says) }
}

/// Ready when what is shown can be relied on: a tick is judged, ticks go on, and the store has answered: with the
/// accounts so far, or with a failure that is said.
fn ready(pages: Option<&Pages>, now: Nanos) -> Result<String, String> {
    healthy(pages, now)?;
    let Some(store) = pages.and_then(|pages| pages.frame.own.store.as_ref()) else { return Ok("ready".to_owned()) };
    match (store.start, store.errors.is_empty()) {
        (_, false) => {
            let reasons: Vec<&str> = store.errors.keys().map(String::as_str).collect();
            Ok(format!("ready; the store has failed: {}", reasons.join(", ")))
        }
        (Some(_), true) => Ok("ready".to_owned()),
        (None, true) => Err("the store has not answered yet: no accounts are shown".to_owned()),
    }
}

fn told(says: Result<String, String>) -> Response<Full<Bytes>> {
    let (status, mut says) = match says {
        Ok(says) => (StatusCode::OK, says),
        Err(says) => (StatusCode::SERVICE_UNAVAILABLE, says),
    };
    says.push('\n');
    plain(status, says.into())
}

fn plain(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    response(status, "text/plain; charset=utf-8", body)
}

fn response(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    // Foreign names are in every body: no browser shall find a page in one.
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use gpuprod_snapshot::Tick;

    use super::*;
    use crate::own::Own;
    use crate::pipeline::Pipeline;
    use crate::store::Status;

    const fn s(seconds: u64) -> Nanos {
        Nanos::from_secs(seconds)
    }

    fn pages(store: Option<Status>) -> Pages {
        let mut tick = Tick { period: s(1), ..Tick::default() };
        tick.stamp.boottime = s(100);
        let mut frame = Pipeline::default().feed(&tick).to_owned();
        frame.own = Own { store, ..Own::default() };
        Pages::new(frame)
    }

    #[test]
    fn pages_of_other_sites_read_nothing() {
        let own = Some("node17".to_owned());
        let here = Door { loopback: true, own: own.clone() };
        let wide = Door { loopback: false, own };
        let frame = "/api/v1/frame";
        for host in
            ["127.0.0.1:9749", "[::1]:9749", "localhost:9749", "NODE17.example.com.", "x", "a.b.svc:9749", "10.0.0.7"]
        {
            assert_eq!(here.refuses(frame, Some(host), None), None, "{host}");
        }
        // A name of the other site's own that leads to our address: its page asks without an Origin.
        for host in ["evil.example:9749", "127.0.0.1.evil.example", "xnode17.example.com", "?"] {
            let told = here.refuses(frame, Some(host), None);
            assert_eq!(told.is_some(), host.contains('.'), "{host}");
            assert_eq!(here.refuses("/metrics", Some(host), None), None, "a scrape by any name: {host}");
            assert_eq!(wide.refuses(frame, Some(host), None), None, "any name may be the site's: {host}");
        }
        assert_eq!(here.refuses(frame, None, None), None, "HTTP/1.0");
        for door in [&here, &wide] {
            assert_eq!(door.refuses("/metrics", Some("node17:9749"), Some("http://node17:9749")), None);
            for origin in ["http://evil.example", "null", "http://node17:80"] {
                assert!(door.refuses("/metrics", Some("node17:9749"), Some(origin)).is_some(), "{origin}");
            }
        }
    }

    #[test]
    fn no_body_is_guessed_at() {
        let told = told(Ok("ready".to_owned()));
        assert_eq!(told.headers().get("x-content-type-options").unwrap(), "nosniff");
    }

    #[test]
    fn readiness_says_what_is_missing() {
        let fresh = Status::default();
        let begun = Status { start: Some(s(9)), ..Status::default() };
        let failing = Status { errors: [("full".to_owned(), 3)].into(), ..Status::default() };
        assert_eq!(ready(None, s(1)), Err("no tick yet".to_owned()));
        assert_eq!(ready(Some(&pages(None)), s(101)), Ok("ready".to_owned()));
        assert!(ready(Some(&pages(Some(fresh))), s(101)).is_err_and(|why| why.contains("store")));
        assert_eq!(ready(Some(&pages(Some(begun))), s(101)), Ok("ready".to_owned()));
        assert!(ready(Some(&pages(Some(failing))), s(101)).is_ok_and(|says| says.contains("full")));
        // Ticks of 1 s may be three of them and two seconds old.
        assert!(ready(Some(&pages(None)), s(105)).is_ok());
        assert_eq!(ready(Some(&pages(None)), s(106)), Err("last tick 6.0 s ago".to_owned()));
    }
}
