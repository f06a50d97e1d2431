//! stub
use crate::{CollectError, Collector, Focus, Host, Missing, Part, Source};

/// stub
pub struct PressureFiles;

impl Collector for PressureFiles {
    fn source(&self) -> Source {
        Source::Psi
    }
    fn collect(&mut self, _host: &Host, _focus: &Focus) -> Result<Part, CollectError> {
        Err(CollectError::new(Missing::Unsupported, "not built yet"))
    }
}
