//! Enums of foreign words: known ones as variants, all others kept as they were.

/// Declares an enum whose values are words of the kernel, the driver or an engine. An unknown word is kept in
/// `Other`, so that a newer kernel is never misread as an older one.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "most variants say no more than their word")]
        pub enum $name {
            $($(#[$vmeta])* $variant,)+
            /// A word that this version does not know, kept as it was read.
            Other(alloc::string::String),
        }

        impl $name {
            /// The word as the source writes it.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self { $(Self::$variant => $word,)+ Self::Other(word) => word }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word { $($word => Self::$variant,)+ other => Self::Other(other.into()) }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result { f.write_str(self.as_str()) }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Word;
                impl serde::de::Visitor<'_> for Word {
                    type Value = $name;
                    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                        f.write_str("a word")
                    }
                    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<$name, E> { Ok($name::from(word)) }
                }
                deserializer.deserialize_str(Word)
            }
        }
    };
}
