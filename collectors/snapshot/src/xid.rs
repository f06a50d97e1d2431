//! What the driver's error codes are about: the catalogue of Xids, by class.

words! {
    /// Whose trouble a code is.
    XidClass {
        /// The program's own fault, first of all: an exception, a bad address.
        App = "app",
        /// Follows an earlier code; look there.
        Consequence = "consequence",
        /// The device, its memory beyond repair, its slot.
        Hardware = "hardware",
        /// Memory errors that were dealt with; nothing to do now.
        MemoryInfo = "memory_info",
        /// A memory error that hit one program; the device goes on.
        MemoryApp = "memory_app",
        /// NVLink or C2C.
        Link = "link",
        /// Firmware or driver: GSP, PMU, context switch.
        Firmware = "firmware",
        /// The driver says what it needs: reset, reboot.
        RecoveryAction = "recovery_action",
        /// Not in this table.
        Unknown = "unknown",
    }
}

/// First and last code of a range, and its class. Ascending. Source: NVIDIA's Xid catalogue, as far as public.
const CLASSES: &[(u32, u32, XidClass)] = &[
    (13, 13, XidClass::App),
    (31, 32, XidClass::App),
    (43, 43, XidClass::App),
    (45, 45, XidClass::Consequence),
    (46, 46, XidClass::Hardware),
    (48, 48, XidClass::Hardware),
    (54, 54, XidClass::Hardware),
    (61, 62, XidClass::Firmware),
    (63, 63, XidClass::MemoryInfo),
    (64, 64, XidClass::Hardware),
    (69, 69, XidClass::App),
    (74, 74, XidClass::Link),
    (79, 79, XidClass::Hardware),
    (92, 92, XidClass::MemoryInfo),
    (94, 94, XidClass::MemoryApp),
    (95, 95, XidClass::Hardware),
    (109, 110, XidClass::Firmware),
    (119, 120, XidClass::Firmware),
    (121, 121, XidClass::Link),
    (122, 125, XidClass::Firmware),
    (136, 137, XidClass::Link),
    (140, 140, XidClass::Hardware),
    (143, 143, XidClass::Hardware),
    (144, 150, XidClass::Link),
    (154, 154, XidClass::RecoveryAction),
    (155, 155, XidClass::Link),
    (156, 156, XidClass::MemoryInfo),
    (157, 158, XidClass::Hardware),
    (160, 160, XidClass::MemoryInfo),
    (161, 161, XidClass::Hardware),
    (167, 167, XidClass::Hardware),
    (171, 172, XidClass::Hardware),
];

/// The class of a code.
#[must_use]
pub fn class(code: u32) -> XidClass {
    CLASSES
        .iter()
        .find(|(first, last, _)| (*first..=*last).contains(&code))
        .map_or(XidClass::Unknown, |(_, _, class)| class.clone())
}
