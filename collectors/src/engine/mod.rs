//! stub
use crate::{CollectError, Collector, Focus, Host, Missing, Part, Source};

/// stub
pub struct Scraper;

impl Collector for Scraper {
    fn source(&self) -> Source {
        Source::Engine
    }
    fn collect(&mut self, _host: &Host, _focus: &Focus) -> Result<Part, CollectError> {
        Err(CollectError::new(Missing::Unsupported, "not built yet"))
    }
}
impl Scraper {
    /// stub
    pub fn new(_urls: &[String]) -> Self {
        Self
    }
}
