//! stub
use crate::{CollectError, Collector, Focus, Host, Missing, Part, Source};

/// stub
pub struct Devices;

impl Collector for Devices {
    fn source(&self) -> Source {
        Source::Block
    }
    fn collect(&mut self, _host: &Host, _focus: &Focus) -> Result<Part, CollectError> {
        Err(CollectError::new(Missing::Unsupported, "not built yet"))
    }
}
