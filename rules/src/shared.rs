//! What several owners share, saved as if it were one's own.

use alloc::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<T: Serialize, S: Serializer>(shared: &Arc<T>, serializer: S) -> Result<S::Ok, S::Error> {
    T::serialize(shared, serializer)
}

pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<T>, D::Error> {
    T::deserialize(deserializer).map(Arc::new)
}
