//! A running agent's frame by HTTP.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use reqwest::{Client, Url};
use tokio::runtime::Runtime;

use crate::pipeline::Frame;
use crate::text;

/// An agent that does not answer is given up after this, for this time.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest frame that is taken.
const FRAME_CAP: usize = 64 << 20;

/// Asks `/api/v1/frame` of one agent.
pub(super) struct Web {
    runtime: Runtime,
    client: Client,
    url: Url,
}

impl Web {
    /// For an agent's base URL.
    ///
    /// # Errors
    /// When it is no URL.
    pub(super) fn new(base: &str) -> Result<Self> {
        let shown = text::masked(base);
        let base = Url::parse(base).with_context(|| format!("{shown} is not a URL; write http://host:9749"))?;
        let url = base.join("/api/v1/frame").with_context(|| format!("{shown} cannot carry a path"))?;
        // reqwest asks for a provider even for plain HTTP. If the process has one already, that one serves.
        let _already = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .tls_certs_only([])
            .timeout(PATIENCE)
            .build()
            .context("make an HTTP client")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build();
        Ok(Self { runtime: runtime.context("make a network loop")?, client, url })
    }

    /// Asks once.
    ///
    /// # Errors
    /// When it does not answer, or with something else than a frame.
    pub(super) fn ask(&self) -> Result<Frame<'static>> {
        let asked = || format!("ask {}", text::masked(self.url.as_str()));
        let body = self.runtime.block_on(self.fetch()).with_context(asked)?;
        serde_json::from_slice(&body).context("the answer is no frame of this version").with_context(asked)
    }

    async fn fetch(&self) -> Result<Vec<u8>> {
        let mut response = self.client.get(self.url.clone()).send().await.map_err(reqwest::Error::without_url)?;
        let status = response.status();
        ensure!(status.is_success(), "HTTP {}", status.as_u16());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(reqwest::Error::without_url)? {
            ensure!(body.len() + chunk.len() <= FRAME_CAP, "the answer is longer than {FRAME_CAP} bytes");
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}
