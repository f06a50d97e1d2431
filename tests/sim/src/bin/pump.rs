//! The token pump: an inference engine reduced to what a storage story needs. Threads read random blocks of a
//! device past the page cache; the page at `/metrics` carries vLLM's names, with tokens in proportion to the
//! reads that were done. Whoever slows the device slows the tokens.
//!
//! With `--log FILE` it writes its own reads each second: the truth that a verdict on it is held against.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test tool prints, reads clocks and its own log"
)]

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const USAGE: &str = "usage: pump --read FILE [--listen 127.0.0.1:8000] [--threads 4] [--block 16384]
            [--tokens-per-read 10] [--prompt-tokens-per-read 40] [--limit-iops N] [--running 16] [--waiting 4]
            [--kv 0.62] [--model NAME] [--log FILE] [--seconds N]
The log's columns: boottime s, realtime ns, reads, time in reads ns, failed reads. The last three are totals.";

/// What O_DIRECT asks of a buffer's address, on any drive in use.
const ALIGN: usize = 4096;

/// What the command line says.
#[derive(Clone)]
struct Options {
    read: String,
    listen: String,
    threads: u64,
    block: u64,
    generated: u64,
    prompt: u64,
    limit_iops: u64,
    running: u64,
    waiting: u64,
    kv: f64,
    model: String,
    log: Option<String>,
    seconds: Option<u64>,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            read: String::new(),
            listen: "127.0.0.1:8000".into(),
            threads: 4,
            block: 16384,
            generated: 10,
            prompt: 40,
            limit_iops: 0,
            running: 16,
            waiting: 4,
            kv: 0.62,
            model: "lab/pump-8b".into(),
            log: None,
            seconds: None,
        };
        while let Some(flag) = args.next() {
            let value = args.next().ok_or(format!("{flag}: no value"))?;
            let wrong = |_| format!("{flag} {value}: not a number");
            match flag.as_str() {
                "--read" => options.read = value,
                "--listen" => options.listen = value,
                "--model" => options.model = value,
                "--log" => options.log = Some(value),
                "--kv" => options.kv = value.parse().map_err(|_| format!("--kv {value}"))?,
                "--threads" => options.threads = value.parse().map_err(wrong)?,
                "--block" => options.block = value.parse().map_err(wrong)?,
                "--tokens-per-read" => options.generated = value.parse().map_err(wrong)?,
                "--prompt-tokens-per-read" => options.prompt = value.parse().map_err(wrong)?,
                "--limit-iops" => options.limit_iops = value.parse().map_err(wrong)?,
                "--running" => options.running = value.parse().map_err(wrong)?,
                "--waiting" => options.waiting = value.parse().map_err(wrong)?,
                "--seconds" => options.seconds = Some(value.parse().map_err(wrong)?),
                _ => return Err(format!("{flag}: unknown")),
            }
        }
        let block = usize::try_from(options.block).map_err(|e| e.to_string())?;
        if options.read.is_empty() || options.threads == 0 || block == 0 || block % 512 != 0 {
            return Err("--read is needed, --threads at least 1, --block a multiple of 512".into());
        }
        Ok(options)
    }
}

/// The totals, shared by readers, page and log.
#[derive(Default)]
struct Totals {
    reads: AtomicU64,
    nanos: AtomicU64,
    failed: AtomicU64,
}

/// Numbers that need to look random, not to be it: xorshift64*.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % limit.max(1)
    }
}

/// Reads random blocks for ever. A read that fails is counted, and tried again after a while.
fn load(file: &File, size: u64, options: &Options, seed: u64, totals: &Totals) {
    let block = usize::try_from(options.block).unwrap_or(ALIGN);
    let mut memory = vec![0u8; block + ALIGN];
    let start = memory.as_ptr().align_offset(ALIGN);
    let Some(buffer) = memory.get_mut(start..start + block) else {
        return;
    };
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15 ^ (seed + 1));
    // A limit is shared out evenly: each thread keeps its own beat and does not catch up what it missed.
    let beat =
        (options.limit_iops > 0).then(|| Duration::from_nanos(1_000_000_000 * options.threads / options.limit_iops));
    let mut next = Instant::now();
    loop {
        let began = Instant::now();
        let done = file.read_exact_at(buffer, dice.below(size / options.block) * options.block);
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        match done {
            Ok(()) => {
                totals.reads.fetch_add(1, Ordering::Relaxed);
                totals.nanos.fetch_add(took, Ordering::Relaxed);
            }
            Err(_) => {
                totals.failed.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        if let Some(beat) = beat {
            let now = Instant::now();
            next = (next + beat).max(now);
            std::thread::sleep(next - now);
        }
    }
}

/// The page, as an engine of vLLM's V1 kind writes it.
fn page(options: &Options, started: f64, totals: &Totals) -> String {
    let reads = totals.reads.load(Ordering::Relaxed);
    let label = format!("{{engine=\"0\",model_name=\"{}\"}}", options.model);
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, sample: &str, value: String| {
        text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{sample} {value}\n");
    };
    let gauges = [
        (
            "vllm:num_requests_running",
            "Number of requests in model execution batches.",
            format!("{}.0", options.running),
        ),
        ("vllm:num_requests_waiting", "Number of requests waiting to be processed.", format!("{}.0", options.waiting)),
        ("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", format!("{}", options.kv)),
    ];
    for (name, help, value) in gauges {
        family(name, "gauge", help, &format!("{name}{label}"), value);
    }
    let counters = [
        ("vllm:prompt_tokens", "Number of prefill tokens processed.", options.prompt),
        ("vllm:generation_tokens", "Number of generation tokens processed.", options.generated),
    ];
    for (name, help, each) in counters {
        let total = reads.saturating_mul(each);
        family(name, "counter", help, &format!("{name}_total{label}"), format!("{total}.0"));
    }
    family(
        "process_start_time_seconds",
        "gauge",
        "Start time of the process since unix epoch in seconds.",
        "process_start_time_seconds",
        format!("{started:.2}"),
    );
    text
}

/// Answers one client; a slow one is dropped after two seconds and costs the readers nothing.
fn answer(mut client: TcpStream, options: &Options, started: f64, totals: &Totals) -> std::io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(2)))?;
    client.set_write_timeout(Some(Duration::from_secs(2)))?;
    let mut request = Vec::new();
    let mut piece = [0u8; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < 16384 {
        match client.read(&mut piece)? {
            0 => break,
            n => request.extend_from_slice(piece.get(..n).unwrap_or_default()),
        }
    }
    let (status, body) = if request.starts_with(b"GET /metrics") {
        ("200 OK", page(options, started, totals))
    } else {
        ("404 Not Found", "only /metrics is here\n".to_owned())
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
}

/// Seconds since boot, as the kernel prints them (to a hundredth).
fn boottime() -> String {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("nan").to_owned()
}

fn realtime() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn run(options: Options) -> Result<(), String> {
    let told = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| format!("{what}: {error}")
    };
    let mut file =
        OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&options.read).map_err(told(&options.read))?;
    let size = file.seek(SeekFrom::End(0)).map_err(told(&options.read))?;
    if size < options.block {
        return Err(format!("{}: {size} bytes are less than one block", options.read));
    }
    let listener = TcpListener::bind(&options.listen).map_err(told(&options.listen))?;
    let mut log = match &options.log {
        Some(path) => Some(File::create(path).map_err(told(path))?),
        None => None,
    };
    let (file, totals) = (Arc::new(file), Arc::new(Totals::default()));
    let started = realtime().as_secs_f64();
    for seed in 0..options.threads {
        let (file, totals, options) = (file.clone(), totals.clone(), options.clone());
        std::thread::spawn(move || load(&file, size, &options, seed, &totals));
    }
    {
        let (totals, options) = (totals.clone(), options.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (totals, options) = (totals.clone(), options.clone());
                std::thread::spawn(move || answer(client, &options, started, &totals));
            }
        });
    }
    println!(
        "pump: {} threads read {} ({size} bytes), page at http://{}/metrics",
        options.threads, options.read, options.listen
    );
    let mut second = 0;
    let began = Instant::now();
    while options.seconds.is_none_or(|limit| second < limit) {
        second += 1;
        std::thread::sleep(Duration::from_secs(second).saturating_sub(began.elapsed()));
        let Some(log) = &mut log else { continue };
        let line = format!(
            "{},{},{},{},{}\n",
            boottime(),
            realtime().as_nanos(),
            totals.reads.load(Ordering::Relaxed),
            totals.nanos.load(Ordering::Relaxed),
            totals.failed.load(Ordering::Relaxed)
        );
        log.write_all(line.as_bytes()).map_err(told("log"))?;
    }
    println!("pump: {} reads, {} failed", totals.reads.load(Ordering::Relaxed), totals.failed.load(Ordering::Relaxed));
    Ok(())
}

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)) {
        Err(why) => {
            eprintln!("pump: {why}\n{USAGE}");
            ExitCode::from(2)
        }
        Ok(options) => match run(options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("pump: {why}");
                ExitCode::FAILURE
            }
        },
    }
}
