//! stub
use crate::{CollectError, Collector, Focus, Host, Missing, Part, Source};

/// stub
pub struct KernelLog;

impl Collector for KernelLog {
    fn source(&self) -> Source {
        Source::Xid
    }
    fn collect(&mut self, _host: &Host, _focus: &Focus) -> Result<Part, CollectError> {
        Err(CollectError::new(Missing::Unsupported, "not built yet"))
    }
}
impl KernelLog {
    /// stub
    #[must_use]
    pub fn new() -> Self {
        Self
    }
}
