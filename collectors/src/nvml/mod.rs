//! stub
pub mod xid;
use crate::{CollectError, Collector, Focus, Host, Missing, Part, Source};

/// stub
pub struct Nvml;

impl Collector for Nvml {
    fn source(&self) -> Source {
        Source::Gpu
    }
    fn collect(&mut self, _host: &Host, _focus: &Focus) -> Result<Part, CollectError> {
        Err(CollectError::new(Missing::Unsupported, "not built yet"))
    }
}
impl Nvml {
    /// stub
    pub fn new(_options: &crate::Options) -> Self {
        Self
    }
}
