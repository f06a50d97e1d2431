use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;

use gpuprod_snapshot::Reading;
use gpuprod_snapshot::engine::EngineKind;

use super::*;

const PAGE_TEXT: &str =
    "vllm:num_requests_running{model_name=\"m\"} 2\nvllm:generation_tokens_total{model_name=\"m\"} 9\n";

/// A server of one kind of answer on a port of its own; its threads end with the test's process.
fn serve(answer: fn(&mut TcpStream, &str) -> io::Result<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            std::thread::spawn(move || {
                let mut request = [0_u8; 4096];
                let len = stream.read(&mut request).unwrap_or(0);
                let text = String::from_utf8_lossy(&request[..len]).into_owned();
                let _ = answer(&mut stream, &text);
                let _ = stream.shutdown(Shutdown::Both);
            });
        }
    });
    format!("http://{address}")
}

fn write(stream: &mut TcpStream, status: &str, body: &str) -> io::Result<()> {
    let len = body.len();
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {len}\r\nconnection: close\r\n\r\n{body}")
}

fn good(stream: &mut TcpStream, request: &str) -> io::Result<()> {
    // Only what was agreed gets the page: the path, and the plain text form.
    let asked =
        request.starts_with("GET /metrics HTTP/1.1\r\n") && request.contains("accept: text/plain;version=0.0.4\r\n");
    write(stream, if asked { "200 OK" } else { "400 Bad Request" }, PAGE_TEXT)
}

fn endless(stream: &mut TcpStream, _: &str) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    let line = "vllm:num_requests_running 1\n".repeat(4096);
    loop {
        stream.write_all(line.as_bytes())?;
    }
}

fn trickle(stream: &mut TcpStream, _: &str) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    for _ in 0..100 {
        stream.write_all(b"vllm:num_requests_running 1\n")?;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn silent(_: &mut TcpStream, _: &str) -> io::Result<()> {
    std::thread::sleep(Duration::from_secs(5));
    Ok(())
}

fn cut(stream: &mut TcpStream, _: &str) -> io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nvllm:generation_tokens_total 12")
}

fn ask_all(urls: &[String]) -> Vec<Engine> {
    let mut scraper = Scraper::new(urls);
    match scraper.collect(&Host::at(Path::new("/nowhere")), &Focus::default()) {
        Ok(Part::Engine(engines)) => engines.engines,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_bad_engine_costs_the_others_nothing() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let urls = [
        serve(good),
        format!("http://{closed}/metrics"),
        serve(silent),
        serve(endless),
        serve(trickle),
        serve(cut),
        serve(|stream, _| write(stream, "500 Internal Server Error", "oops")),
        serve(|stream, _| write(stream, "403 Forbidden", "")),
        serve(|stream, _| write(stream, "200 OK", "")),
        serve(|stream, _| write(stream, "200 OK", "<html>hello</html>\n")),
        serve(|stream, _| {
            write!(stream, "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")
        }),
        serve(|stream, _| write!(stream, "SSH-2.0-OpenSSH_9.2\r\n")),
        "ftp://127.0.0.1/metrics".to_owned(),
        serve(good),
    ];
    let before = now::boottime();
    let engines = ask_all(&urls);
    let took = now::boottime().saturating_sub(before);
    assert!(took.0 < 2_500_000_000, "all at once: {took}");
    let found: Vec<(Option<Missing>, &str)> = engines.iter().map(|e| (e.page.missing(), e.why.as_str())).collect();
    let gone = Some(Missing::Gone);
    let malformed = Some(Missing::Malformed);
    let wanted = [
        (None, ""),
        (gone, "refused"),
        (Some(Missing::TimedOut), "timed out after 800 ms"),
        (malformed, "larger than 8388608 bytes"),
        (Some(Missing::TimedOut), "timed out after 800 ms"),
        (gone, found[5].1),
        (gone, "HTTP 500"),
        (Some(Missing::Denied), "HTTP 403"),
        (malformed, "empty body"),
        (malformed, "not a metrics page"),
        (Some(Missing::Unsupported), "HTTP 302"),
        (gone, found[11].1),
        (malformed, "not a URL of http or https: ftp"),
        (None, ""),
    ];
    assert_eq!(found, wanted);
    for (engine, url) in engines.iter().zip(&urls) {
        assert!(engine.url.starts_with(url.as_str()), "{} of {url}", engine.url);
        assert!(engine.at >= before, "{url}");
    }
    for good in [&engines[0], &engines[13]] {
        assert_eq!(good.kind, Reading::Value(EngineKind::Vllm));
        assert_eq!((good.running.copied(), good.generation_tokens.copied()), (Some(2), Some(9)));
        assert!(good.url.ends_with("/metrics"));
    }
    // Nothing of a broken page is taken for a value, and the reason stands at each signal.
    assert_eq!(engines[5].generation_tokens, Reading::Missing(Missing::Gone));
    assert_eq!(engines[2].running, Reading::Missing(Missing::TimedOut));
}

#[test]
fn the_same_scraper_asks_again() {
    let urls = [serve(good)];
    let mut scraper = Scraper::new(&urls);
    for round in 0..3 {
        match scraper.collect(&Host::at(Path::new("/nowhere")), &Focus::default()) {
            Ok(Part::Engine(engines)) => {
                assert_eq!(engines.engines[0].running.copied(), Some(2), "{round}")
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn without_an_engine_it_says_what_to_give() {
    let mut scraper = Scraper::new(&[]);
    let error = scraper.collect(&Host::at(Path::new("/nowhere")), &Focus::default()).unwrap_err();
    assert_eq!(error.missing, Missing::Unsupported);
    assert_eq!(error.to_string(), "no engine URL is configured: unsupported; --engine URL");
}

#[test]
fn no_url_shows_a_password() {
    let shown = |url: &str| Target::new(url).shown;
    assert_eq!(shown("http://me:secret@host:8000"), "http://host:8000/metrics");
    assert_eq!(shown("https://host/prometheus/metrics?x=1#y"), "https://host/prometheus/metrics");
    assert_eq!(shown("http://host:8000/?token=sesame"), "http://host:8000/metrics");
    assert_eq!(shown("http://host/m?token=sesame@home"), "http://host/m");
    for slashed in ["http://user:1234/s3cr3t@host/", "http://user:1234/s3@cr3t@host/", "http://user:1234#s3cr3t@host/"]
    {
        assert_eq!(shown(slashed), "http://host/", "{slashed}");
    }
    assert_eq!(shown("http://user:12/s3@cr3t@host/?token=sesame"), "http://host/");
    assert_eq!(shown("http://user:12/s3@host/?token=s3same@home"), HIDDEN);
    for broken in
        ["me:secret@host:8000", "http://me:secret@", "//me:se@cret@host", "me:pa?sesame@host", "x?token=sesame"]
    {
        assert!(!shown(broken).contains("se"), "{broken}: {}", shown(broken));
    }
    let why = Target::new("s3cr3t:word@host:8000").url.unwrap_err();
    assert_eq!(why, "not a URL of http or https");
}

#[test]
fn a_query_is_sent_and_never_shown_and_two_of_a_kind_stay_two() {
    fn asks(stream: &mut TcpStream, request: &str) -> io::Result<()> {
        let known = request.starts_with("GET /metrics?token=sesame HTTP/1.1\r\n");
        write(stream, if known { "200 OK" } else { "403 Forbidden" }, PAGE_TEXT)
    }
    let host = serve(asks);
    let engines = ask_all(&[format!("{host}/?token=sesame"), format!("{host}/?token=wrong")]);
    assert_eq!((engines[0].running.copied(), engines[1].why.as_str()), (Some(2), "HTTP 403"));
    assert_eq!(engines[0].url, format!("{host}/metrics"));
    assert_eq!(engines[1].url, format!("{host}/metrics#2"));
}

#[test]
fn a_page_in_single_bytes_ends_with_a_reason() {
    fn crumbs(stream: &mut TcpStream, _: &str) -> io::Result<()> {
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
        let crumbs = "1\r\n#\r\n".repeat(1000);
        loop {
            stream.write_all(crumbs.as_bytes())?;
        }
    }
    let url = serve(crumbs);
    // On a busy machine the deadline can come first.
    let mut reasons = (0..10).map(|_| ask_all(std::slice::from_ref(&url)).remove(0).why);
    assert!(reasons.any(|why| why == "in more than 20000 pieces"));
}

#[test]
fn tls_gets_its_client_and_says_when_nobody_speaks_it() {
    let plain = serve(good).replace("http://", "https://");
    let engines = ask_all(&[plain, serve(good)]);
    assert_eq!(engines[0].page.missing(), Some(Missing::Gone), "{}", engines[0].why);
    assert_eq!(engines[1].running.copied(), Some(2));
}
