//! How thresholds are written down: once, with default, limits and reason, beside the rule that looks at them.

use alloc::format;
use alloc::string::String;
use core::ops::RangeInclusive;

use gpuprod_snapshot::units::Nanos;

use crate::Part;

/// What is known of a threshold besides its value: config keys and the documentation come from this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Its key.
    pub key: &'static str,
    /// What it decides, why it has this value, and where that comes from.
    pub why: &'static str,
}

/// Whether a value lies within its limits. A number that is none lies within none.
///
/// # Errors
/// What must hold, with the key's name.
pub(crate) fn within<T: Limit>(key: &str, value: &T, limits: &RangeInclusive<T>) -> Result<(), String> {
    if limits.contains(value) {
        return Ok(());
    }
    Err(format!("{key} must lie between {} and {}", limits.start().plain(), limits.end().plain()))
}

/// What a threshold may be made of.
pub(crate) trait Limit: PartialOrd {
    /// As it stands in a config file.
    fn plain(&self) -> String;
}

macro_rules! limits {
    ($($type:ty: |$value:ident| $plain:expr;)+) => {
        $(impl Limit for $type {
            fn plain(&self) -> String { let $value = self; format!("{}", $plain) }
        })+
    };
}

limits! {
    Part: |part| part.0;
    Nanos: |nanos| nanos.0;
    f64: |number| number;
    u32: |number| number;
    u64: |number| number;
}

/// Declares thresholds: `/// why` above `key: Type = default, least..=most;`. Gives the struct with its defaults, `TABLE`
/// and `check`.
macro_rules! thresholds {
    ($(#[doc = $about:literal])+ $vis:vis struct $name:ident {
        $($(#[doc = $why:literal])+ $key:ident: $type:ty = $default:expr, $limits:expr;)*
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        $vis struct $name { $($(#[doc = $why])+ pub $key: $type,)* }

        impl Default for $name {
            fn default() -> Self { Self { $($key: $default,)* } }
        }

        impl $name {
            /// Every threshold with its reason, in order.
            pub const TABLE: &[$crate::policy::Threshold] =
                &[$($crate::policy::Threshold { key: stringify!($key), why: concat!($($why),+) },)*];

            /// Whether all of them lie within their limits.
            ///
            /// # Errors
            /// The first that does not, and what must hold.
            pub fn check(&self) -> Result<(), alloc::string::String> {
                $($crate::policy::table::within(stringify!($key), &self.$key, &$limits)?;)*
                Ok(())
            }
        }
    };
}

/// Hangs thresholds into the policy: one line for a room that serves several rules, one line a rule.
macro_rules! sections {
    ($(#[$meta:meta])* pub struct $name:ident { $($head:tt)* } rooms { $($room:ident,)* } rules { $($rule:ident,)* } default { $($default:tt)* }) => {
        $(#[$meta])*
        pub struct $name {
            $($head)*
            $(#[doc = concat!("What all rules share in `", stringify!($room), "`.")] pub $room: $crate::$room::Thresholds,)*
            $(#[doc = concat!("Of the rule `", stringify!($rule), "`.")] pub $rule: $crate::rule::$rule::Thresholds,)*
        }

        impl Default for $name {
            fn default() -> Self { Self { $($default)* $($room: Default::default(),)* $($rule: Default::default(),)* } }
        }

        impl $name {
            /// The thresholds of rooms that serve several rules: the room's name, which is the section's key, and its table.
            pub const ROOMS: &[(&str, &[$crate::policy::Threshold])] =
                &[$((stringify!($room), $crate::$room::Thresholds::TABLE),)*];

            /// The rules' own thresholds: the rule's name, which is the section's key, and its table.
            pub const SECTIONS: &[(&str, &[$crate::policy::Threshold])] =
                &[$((stringify!($rule), $crate::rule::$rule::Thresholds::TABLE),)*];

            /// Whether the thresholds of all sections lie within their limits.
            ///
            /// # Errors
            /// `SECTION.KEY` of the first that does not, and what must hold.
            pub fn check_sections(&self) -> Result<(), alloc::string::String> {
                $(self.$room.check().map_err(|what| alloc::format!("{}.{what}", stringify!($room)))?;)*
                $(self.$rule.check().map_err(|what| alloc::format!("{}.{what}", stringify!($rule)))?;)*
                Ok(())
            }
        }
    };
}

pub(crate) use {sections, thresholds};
