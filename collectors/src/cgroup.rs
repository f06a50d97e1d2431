//! stub
use crate::{CollectError, Collector, Focus, Host, Missing, Part, Source};

/// stub
pub struct GpuCgroups;

impl Collector for GpuCgroups {
    fn source(&self) -> Source {
        Source::Cgroup
    }
    fn collect(&mut self, _host: &Host, _focus: &Focus) -> Result<Part, CollectError> {
        Err(CollectError::new(Missing::Unsupported, "not built yet"))
    }
}
