//! The HTTP server: `/metrics`, `/healthz`, `/api/v1/frame`. It serves pages that the tick thread rendered; a
//! request never touches the host, the judge or the ledger.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpuprod_snapshot::units::Nanos;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::JoinHandle;

use crate::clock::boottime;
use crate::pipeline::Frame;
use crate::sink::prometheus::{Form, page};

/// At most so many connections at a time; one more ends the oldest.
const CONNECTIONS: usize = 64;
/// A request's head must be complete within this.
const HEAD: Duration = Duration::from_secs(5);
/// A connection carries one request and lives no longer than this, whatever its client does not send or read.
const LIFETIME: Duration = Duration::from_secs(10);

/// Everything that can be asked for, rendered.
#[derive(Debug)]
pub struct Pages {
    at: Nanos,
    period: Nanos,
    text: Bytes,
    open_metrics: Bytes,
    /// Without pids, commands and users: any user of the node can read a loopback port.
    frame: Bytes,
    /// All of it, one line: for the unix socket.
    pub(crate) whole: Bytes,
}

/// Where the tick thread puts pages and the `net` thread takes them.
#[derive(Clone, Debug, Default)]
pub struct Shelf(Arc<Mutex<Option<Arc<Pages>>>>);

impl Shelf {
    /// Renders a frame; the lock is held for the exchange of a pointer only.
    pub fn put(&self, frame: &Frame<'_>) {
        let json = |frame: &Frame<'_>| {
            let mut line = serde_json::to_vec(frame).unwrap_or_default();
            line.push(b'\n');
            Bytes::from(line)
        };
        let pages = Arc::new(Pages {
            at: frame.known.stamp.boottime,
            period: frame.known.period,
            text: page(frame, Form::Text).into(),
            open_metrics: page(frame, Form::OpenMetrics).into(),
            frame: json(&frame.public()),
            whole: json(frame),
        });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(pages);
    }

    /// The newest pages; none before the first tick.
    #[must_use]
    pub fn newest(&self) -> Option<Arc<Pages>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Serves until the runtime ends.
///
/// # Errors
/// When the listener cannot be handed to the runtime.
pub async fn serve(listener: TcpListener, shelf: Shelf) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
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
        ("/healthz", pages) => healthz(pages.as_deref(), now),
        ("/metrics" | "/api/v1/frame", None) => plain(StatusCode::SERVICE_UNAVAILABLE, "no tick yet\n".into()),
        ("/metrics", Some(pages)) => {
            let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
            let form = Form::accepted(accept.unwrap_or(""));
            let body = match form {
                Form::Text => pages.text.clone(),
                Form::OpenMetrics => pages.open_metrics.clone(),
            };
            response(StatusCode::OK, form.content_type(), body)
        }
        ("/api/v1/frame", Some(pages)) => response(StatusCode::OK, "application/json", pages.frame.clone()),
        _ => plain(StatusCode::NOT_FOUND, "not here; there are /metrics, /healthz and /api/v1/frame\n".into()),
    }
}

/// How old the last tick of an agent may be that ticks: three periods and two seconds.
#[must_use]
pub fn limit(period: Nanos) -> Nanos {
    Nanos(period.0.saturating_mul(3)).saturating_add(Nanos::from_secs(2))
}

/// Healthy while ticks advance.
fn healthz(pages: Option<&Pages>, now: Nanos) -> Response<Full<Bytes>> {
    let Some(pages) = pages else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "no tick yet\n".into());
    };
    let age = now.saturating_sub(pages.at);
    let status = if age <= limit(pages.period) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    plain(status, format!("last tick {:.1} s ago\n", age.as_secs_f64()).into())
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
