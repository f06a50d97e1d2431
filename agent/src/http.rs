//! The HTTP server: `/`, `/metrics`, `/healthz`, `/readyz`, `/api/v1/frame`. It shows the newest frame that the tick
//! thread put on the shelf; a request never touches the host, the judge or the ledger.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::TcpListener;
use std::time::Duration;

use gpuprod_snapshot::units::Nanos;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
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
        let shelf = shelf.clone();
        open.push_back(tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let response = answer(&request, &shelf, boottime());
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

fn answer(request: &Request<Incoming>, shelf: &Shelf, now: Nanos) -> Response<Full<Bytes>> {
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
