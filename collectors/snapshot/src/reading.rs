//! A value, or the reason why there is none.

use alloc::string::String;
use core::fmt;
use core::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// Why a value is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Missing {
    /// This kernel, driver, device or engine does not have it.
    Unsupported,
    /// It is there, and we may not read it.
    Denied,
    /// It was there and is not any more (device removed, process ended, engine closed).
    Gone,
    /// The read did not come back in time.
    TimedOut,
    /// It came back and made no sense.
    Malformed,
    /// The last value is older than three periods of its source.
    Stale,
    /// It was not read yet.
    NotYet,
    /// The operator asked us to let go of the device.
    Released,
}

impl Missing {
    /// All reasons, in order of declaration.
    pub const ALL: [Self; 8] = [
        Self::Unsupported,
        Self::Denied,
        Self::Gone,
        Self::TimedOut,
        Self::Malformed,
        Self::Stale,
        Self::NotYet,
        Self::Released,
    ];

    /// The word in recordings, JSON and series.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unsupported => "unsupported",
            Self::Denied => "denied",
            Self::Gone => "gone",
            Self::TimedOut => "timed_out",
            Self::Malformed => "malformed",
            Self::Stale => "stale",
            Self::NotYet => "not_yet",
            Self::Released => "released",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|missing| missing.as_str() == word)
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A value, or why it is missing.
///
/// In JSON a value stands as itself and a missing one as `{"missing":"denied"}`; no type of the vocabulary has
/// a first field named `missing`, so the two cannot be mistaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading<T> {
    /// What was read.
    Value(T),
    /// Why nothing was.
    Missing(Missing),
}

impl<T> Default for Reading<T> {
    fn default() -> Self {
        Self::Missing(Missing::NotYet)
    }
}

impl<T> Reading<T> {
    /// The value, if there is one.
    pub const fn get(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Missing(_) => None,
        }
    }
    /// The reason, if there is no value.
    pub const fn missing(&self) -> Option<Missing> {
        match self {
            Self::Value(_) => None,
            Self::Missing(missing) => Some(*missing),
        }
    }
    /// Whether it was simply not read: such a field may be left out of a recording, absent reads the same.
    pub const fn is_not_yet(&self) -> bool {
        matches!(self, Self::Missing(Missing::NotYet))
    }
    /// The same reading of something else.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Self::Value(value) => Reading::Value(f(value)),
            Self::Missing(missing) => Reading::Missing(missing),
        }
    }
    /// By reference.
    pub const fn as_ref(&self) -> Reading<&T> {
        match self {
            Self::Value(value) => Reading::Value(value),
            Self::Missing(missing) => Reading::Missing(*missing),
        }
    }
    /// The value or, when absent, the given reason.
    pub fn from_option(value: Option<T>, missing: Missing) -> Self {
        value.map_or(Self::Missing(missing), Self::Value)
    }
}

impl<T: Copy> Reading<T> {
    /// The value by copy, if there is one.
    pub const fn copied(&self) -> Option<T> {
        match self {
            Self::Value(value) => Some(*value),
            Self::Missing(_) => None,
        }
    }
}

impl<T> From<T> for Reading<T> {
    fn from(value: T) -> Self {
        Self::Value(value)
    }
}

impl<T: Serialize> Serialize for Reading<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => value.serialize(serializer),
            Self::Missing(missing) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("missing", missing.as_str())?;
                map.end()
            }
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Reading<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReadingVisitor(PhantomData))
    }
}

/// Hands whatever it meets on to `T`, unless it is an object whose first key is `missing`. Nothing is buffered:
/// recordings are decoded by the million.
struct ReadingVisitor<T>(PhantomData<T>);

macro_rules! forward {
    ($($visit:ident: $ty:ty),+ $(,)?) => {
        $(fn $visit<E: de::Error>(self, value: $ty) -> Result<Self::Value, E> {
            T::deserialize(value.into_deserializer()).map(Reading::Value)
        })+
    };
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for ReadingVisitor<T> {
    type Value = Reading<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or {\"missing\": reason}")
    }

    forward!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str, visit_string: String);

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        T::deserialize(().into_deserializer()).map(Reading::Value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        T::deserialize(de::value::SeqAccessDeserializer::new(seq)).map(Reading::Value)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let first: Option<String> = map.next_key()?;
        if first.as_deref() == Some("missing") {
            let word: String = map.next_value()?;
            if map.next_key::<de::IgnoredAny>()?.is_some() {
                return Err(de::Error::custom("a missing value has no other field"));
            }
            return Missing::from_word(&word).map(Reading::Missing).ok_or_else(|| {
                de::Error::unknown_variant(&word, &["unsupported", "denied", "gone", "timed_out", "..."])
            });
        }
        let peeked = Peeked { first, rest: map };
        T::deserialize(de::value::MapAccessDeserializer::new(peeked)).map(Reading::Value)
    }
}

/// A map whose first key was already taken out.
struct Peeked<A> {
    first: Option<String>,
    rest: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Peeked<A> {
    type Error = A::Error;

    fn next_key_seed<K: de::DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        match self.first.take() {
            Some(key) => seed.deserialize(key.into_deserializer()).map(Some),
            None => self.rest.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: de::DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.rest.next_value_seed(seed)
    }
}
