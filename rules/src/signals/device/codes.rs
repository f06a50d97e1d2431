//! What the driver's error codes mean for a node (NVIDIA's Xid catalogue).

/// How bad a code is for the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// The application's own doing, or a consequence of an earlier line.
    App,
    /// Noted by the driver, or contained: the GPU can be used.
    Noted,
    /// The catalogue asks for a reset or a look, and the GPU may work on.
    Serious,
    /// The GPU does no work until somebody acts.
    Fatal,
}

/// First and last code, class, meaning, what to do.
type Row = (u32, u32, Class, &'static str, &'static str);

const RESET: &str = "drain the node and reset the GPU";
const CHECK: &str = "look at the application first: restart it; on one GPU again and again, test the board";

const CODES: &[Row] = &[
    (13, 13, Class::App, "graphics engine exception", CHECK),
    (31, 31, Class::App, "MMU page fault", CHECK),
    (32, 32, Class::App, "bad push buffer", CHECK),
    (43, 43, Class::App, "channel reset after an application's fault", CHECK),
    (45, 45, Class::App, "clean-up after an earlier error", "follow the earlier line"),
    (46, 46, Class::Serious, "the GPU stopped processing", RESET),
    (48, 48, Class::Fatal, "double-bit memory error", "drain the node and reset the GPU; if it comes back, replace it"),
    (54, 54, Class::Serious, "auxiliary power is not connected", "check the board's power cables"),
    (61, 61, Class::Serious, "breakpoint of the power management unit", "drain the node and ask the vendor"),
    (62, 62, Class::Fatal, "the power management unit halted", RESET),
    (
        63,
        63,
        Class::Noted,
        "a row remap or page retirement was recorded",
        "nothing now: it takes effect at the next reset",
    ),
    (64, 64, Class::Fatal, "a row remap or page retirement failed", "reset the GPU; if it comes back, replace it"),
    (
        74,
        74,
        Class::Fatal,
        "NVLink error",
        "look at both ends of the link, then reset the GPUs; if it comes back, reseat or replace",
    ),
    (79, 79, Class::Fatal, "fallen off the bus", "reboot the node; if it comes back, reseat or replace the GPU"),
    (92, 92, Class::Noted, "many corrected memory errors", "keep an eye on it: replace it when it gets worse"),
    (
        94,
        94,
        Class::Noted,
        "contained memory error",
        "restart the application that was hit; reset the GPU when it suits",
    ),
    (95, 95, Class::Fatal, "uncontained memory error", "drain the node and reset the GPU"),
    (109, 109, Class::Serious, "context switch timed out", RESET),
    (110, 110, Class::Serious, "security fault", RESET),
    (
        119,
        119,
        Class::Fatal,
        "the GPU's system processor (GSP) does not answer",
        "reset the GPU; often a reboot alone helps",
    ),
    (120, 120, Class::Fatal, "the GPU's system processor (GSP) failed", "reset the GPU; often a reboot alone helps"),
    (121, 121, Class::Noted, "corrected error between CPU and GPU", "keep an eye on it"),
    (
        122,
        125,
        Class::Serious,
        "the board's flash memory cannot be read or written",
        "drain the node and ask the vendor",
    ),
    (136, 136, Class::Serious, "NVLink training failed", RESET),
    (
        137,
        137,
        Class::Serious,
        "NVLink privilege error, of a peer or the application",
        "restart the application; if it comes back, reset the GPUs",
    ),
    (140, 140, Class::Fatal, "unrecovered memory error", RESET),
    (143, 143, Class::Fatal, "the GPU could not be initialised", RESET),
    (144, 150, Class::Serious, "NVLink error", "look at both ends of the link, then reset the GPUs"),
    (151, 151, Class::Serious, "key rotation failed", "restart the virtual machine"),
    (154, 154, Class::Noted, "the driver says what it asks for", "do what it asks for"),
    (155, 158, Class::Serious, "NVLink software error or a resource that was retired", RESET),
    (160, 160, Class::Noted, "a memory channel was retired", "nothing now"),
    (161, 161, Class::Serious, "a memory channel could not be retired", "drain the node and ask the vendor"),
    (167, 167, Class::Serious, "fatal PCIe timeout", "reboot the node; if it comes back, reseat the GPU"),
    (171, 172, Class::Noted, "details of a memory error", "follow the line that it belongs to"),
];

/// Class, meaning and remedy of a code.
pub(crate) fn meaning(code: u32) -> (Class, &'static str, &'static str) {
    let row = CODES.iter().find(|(first, last, ..)| (*first..=*last).contains(&code));
    row.map_or((Class::Noted, "a code that is not in the catalogue", "look it up in NVIDIA's Xid catalogue"), |row| {
        (row.2, row.3, row.4)
    })
}
