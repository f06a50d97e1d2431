//! Alerts posted directly to every Alertmanager of the config, API v2. One task on `net` per Alertmanager: one that is
//! down, slow or refuses costs the others, and the tick thread, nothing.

pub mod body;
pub mod courier;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpuprod_snapshot::units::Nanos;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Url};
use tokio::runtime::Handle;
use tokio::sync::watch;

use self::body::{Item, Postable, items};
use self::courier::{Courier, Now};
use super::Sink;
use crate::alerts::Posts;
use crate::clock;
use crate::config::Config;
use crate::pipeline::Frame;
use crate::text;

/// A post that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most of an answer that is read: the reason of a refusal.
const ANSWER: usize = 4_096;

/// How the posts fare, one per Alertmanager: the tasks write, the tick thread reads.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Mutex<Vec<Posts>>>);

impl Tally {
    /// As of now.
    #[must_use]
    pub fn posts(&self) -> Vec<Posts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Those of a new config; who was there before goes on counting.
    fn begin(&self, shown: impl Iterator<Item = String>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = std::mem::take(&mut *all);
        let of = |name: String| {
            let before = known.iter().find(|posts| posts.alertmanager == name);
            before.cloned().unwrap_or_else(|| Posts { alertmanager: name, ..Posts::default() })
        };
        *all = shown.map(of).collect();
    }

    fn note(&self, shown: &str, note: impl FnOnce(&mut Posts)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(posts) = all.iter_mut().find(|posts| posts.alertmanager == shown) {
            note(posts);
        }
    }
}

/// Hands the list to the tasks; whoever is late sees only the newest.
#[derive(Debug)]
pub struct Alertmanager {
    site: BTreeMap<String, String>,
    list: watch::Sender<Arc<Vec<Item>>>,
}

impl Sink for Alertmanager {
    fn accept(&mut self, frame: &Frame<'_>) {
        let items = items(&frame.alerts, &frame.judgement.findings, &frame.own.costs, &self.site);
        // What changes with each tick, the annotations, goes along with the next post.
        let same = |a: &Item, b: &Item| a.labels == b.labels && a.ended_at == b.ended_at;
        self.list.send_if_modified(|known| {
            let news = known.len() != items.len() || !known.iter().zip(&items).all(|(a, b)| same(a, b));
            *known = Arc::new(items);
            news
        });
    }
}

/// The sink of the config's Alertmanagers; none when it names none.
#[must_use]
pub fn start(config: &Config, net: &Handle, tally: &Tally) -> Option<Alertmanager> {
    let alerts = &config.alerts;
    tally.begin(alerts.alertmanagers.iter().map(|base| shown(base)));
    if alerts.alertmanagers.is_empty() {
        return None;
    }
    let (list, seen) = watch::channel(Arc::default());
    for base in &alerts.alertmanagers {
        net.spawn(deliver(base.clone(), alerts.repeat, seen.clone(), tally.clone()));
    }
    Some(Alertmanager { site: config.labels.clone(), list })
}

/// Posts what is due until the sink is gone.
async fn deliver(base: String, repeat: Nanos, mut seen: watch::Receiver<Arc<Vec<Item>>>, tally: Tally) {
    let name = shown(&base);
    let mut courier = Courier::new(repeat);
    let mut client = None;
    loop {
        let list = Arc::clone(&seen.borrow_and_update());
        let now = now();
        let posts = courier.due(&list, now);
        if !posts.is_empty() {
            match post(&mut client, &base, &posts).await {
                Ok(()) => {
                    courier.taken(&list, now);
                    tally.note(&name, |posts| {
                        posts.taken += 1;
                        posts.last_taken = Some(now.realtime);
                        posts.why = None;
                    });
                }
                Err(why) => {
                    courier.failed(now);
                    tally.note(&name, |posts| {
                        posts.failed += 1;
                        posts.why = Some(text::clip(&text::clean(&text::masked(&why)), 200));
                    });
                }
            }
        }
        let wait = Duration::from_nanos(courier.wait(&list, self::now()).0);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            changed = seen.changed() => if changed.is_err() {
                return;
            }
        }
    }
}

fn now() -> Now {
    Now { boottime: clock::boottime(), realtime: clock::realtime() }
}

async fn post(client: &mut Option<Client>, base: &str, posts: &[Postable]) -> Result<(), String> {
    let body = serde_json::to_vec(posts).map_err(|error| error.to_string())?;
    let url = Url::parse(&format!("{}/api/v2/alerts", base.trim_end_matches('/')))
        .map_err(|error| format!("not a URL: {error}"))?;
    let client = match client {
        Some(client) => client,
        None => client.insert(open(url.scheme() == "https")?),
    };
    let request = client.post(url).header(CONTENT_TYPE, "application/json").timeout(PATIENCE).body(body);
    let mut answer = request.send().await.map_err(in_words)?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let mut said = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        said.extend(chunk.iter().take(ANSWER - said.len()));
        if said.len() >= ANSWER {
            break;
        }
    }
    Err(format!("HTTP {}: {}", status.as_u16(), String::from_utf8_lossy(&said).trim()))
}

fn open(tls: bool) -> Result<Client, String> {
    // reqwest asks for a provider even for plain HTTP. If the process has one already, that one serves.
    let _already = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).referer(false);
    let client = if tls { client } else { client.tls_certs_only([]) };
    client.pool_max_idle_per_host(1).build().map_err(in_words)
}

/// The cause at the bottom says more than "error sending request".
fn in_words(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &(dyn Error + 'static) = &error;
    while let Some(below) = cause.source() {
        cause = below;
    }
    cause.to_string()
}

/// The address without a password, for series and people.
fn shown(base: &str) -> String {
    match Url::parse(base) {
        Ok(mut url) => {
            // Both fail only for URLs without a host, which the config refuses.
            let _ = (url.set_username(""), url.set_password(None));
            text::clean(&text::masked(url.as_str()))
        }
        Err(_) => text::clean(&text::masked(base)),
    }
}
