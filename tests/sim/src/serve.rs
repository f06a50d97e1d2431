//! Serves an engine's page on a port of the loopback, one connection after the other.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A page at `http://127.0.0.1:PORT/metrics`. Without a text it answers 503. It ends when it is dropped.
#[derive(Debug)]
pub struct Responder {
    port: u16,
    text: Arc<Mutex<Option<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// Listens on a port; 0 takes a free one.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn start(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        let port = listener.local_addr()?.port();
        let text = Arc::new(Mutex::new(None));
        let stop = Arc::new(AtomicBool::new(false));
        let (shown, over) = (Arc::clone(&text), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                if let Ok(stream) = stream {
                    let text = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    let _ = answer(stream, text);
                }
            }
        });
        Ok(Self { port, text, stop, thread: Some(thread) })
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What `--engine` takes.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/metrics", self.port)
    }

    /// A way to show texts from another thread.
    pub fn clone_screen(&self) -> impl Fn(Option<String>) + Send + 'static {
        let text = Arc::clone(&self.text);
        move |page| *text.lock().unwrap_or_else(PoisonError::into_inner) = page
    }

    /// Shows another text from now on.
    pub fn show(&self, text: Option<String>) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The listener waits for a connection: it gets one.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads a request's head (at most 16 KiB, at most 2 s) and answers.
fn answer(mut stream: TcpStream, text: Option<String>) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.set_write_timeout(Some(Duration::from_secs(2)))?;
    let mut head = Vec::new();
    let mut chunk = [0_u8; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < 16 << 10 {
        let len = stream.read(&mut chunk)?;
        if len == 0 {
            break;
        }
        head.extend_from_slice(chunk.get(..len).unwrap_or_default());
    }
    let (status, body) = match text {
        Some(text) if head.starts_with(b"GET /metrics") => ("200 OK", text),
        Some(_) => ("404 Not Found", String::new()),
        None => ("503 Service Unavailable", String::new()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
