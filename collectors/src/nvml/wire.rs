//! What goes through the pipes between the agent and its NVML child.
//!
//! To the child: one byte per request. From it: per request a frame, a length (u32, little-endian) and a
//! [`Reply`] as JSON.

use gpuprod_snapshot::gpu::Gpus;
use serde::{Deserialize, Serialize};

use crate::{Missing, Reading};

/// "Give a sample", and take the device back first if it was let go of.
pub(super) const SAMPLE: u8 = b's';
/// "Let go of the device."
pub(super) const RELEASE: u8 = b'r';

/// A frame is never larger: 8 GPUs with 100 processes each are 150 KiB.
pub(super) const LARGEST: usize = 16 << 20;

/// The answer to one request.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Reply {
    /// The GPUs, or why there are none.
    pub(super) gpus: Reading<Gpus>,
    /// What was tried, when there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) tried: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) hint: String,
    /// What else is to be known: why there is no lock. With the first reply alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) note: String,
}

impl Reply {
    pub(super) fn failed(missing: Missing, tried: impl Into<String>, hint: &str) -> Self {
        Self { gpus: Reading::Missing(missing), tried: tried.into(), hint: hint.to_owned(), note: String::new() }
    }
}

/// A frame with its length.
///
/// # Errors
/// When the reply is larger than a frame may be.
pub(super) fn frame(reply: &Reply) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, reply)?;
    let length = u32::try_from(bytes.len() - 4).ok().filter(|_| bytes.len() - 4 <= LARGEST);
    let length = length.ok_or_else(|| serde::ser::Error::custom("a reply larger than a frame"))?;
    if let Some(head) = bytes.first_chunk_mut() {
        *head = length.to_le_bytes();
    }
    Ok(bytes)
}

/// Bytes of the child until they are a frame.
#[derive(Debug, Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    /// More bytes came.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A whole reply, if there is one.
    ///
    /// # Errors
    /// In words, when what came can be no reply; nothing after it can be trusted.
    pub(super) fn next(&mut self) -> Result<Option<Reply>, String> {
        let Some((head, rest)) = self.bytes.split_first_chunk() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*head)).unwrap_or(usize::MAX);
        if length > LARGEST {
            return Err(format!("a frame of {length} bytes"));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let reply = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        // One request is outstanding at a time: whatever follows was not asked for.
        if rest.len() > length {
            return Err("bytes after the answer".to_owned());
        }
        self.bytes.clear();
        Ok(Some(reply))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_survives_any_cut() {
        let reply = Reply::failed(Missing::Denied, "nvmlInit_v2", "");
        let bytes = frame(&reply).unwrap();
        for cut in 0..bytes.len() {
            let mut frames = Frames::default();
            frames.push(&bytes[..cut]);
            assert_eq!(frames.next(), Ok(None), "cut at {cut}");
            frames.push(&bytes[cut..]);
            assert_eq!(frames.next().unwrap().as_ref(), Some(&reply));
            assert_eq!(frames.next(), Ok(None));
        }
    }

    #[test]
    fn hostile_bytes_are_refused_without_waiting_for_more() {
        let mut huge = Frames::default();
        huge.push(&u32::MAX.to_le_bytes());
        assert!(huge.next().is_err());
        let mut garbage = Frames::default();
        garbage.push(b"\x04\0\0\0nope");
        assert!(garbage.next().is_err());
        let mut twice = Frames::default();
        let bytes = frame(&Reply::failed(Missing::Gone, "x", "")).unwrap();
        twice.push(&bytes);
        twice.push(&bytes);
        assert!(twice.next().is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let mut frames = Frames::default();
            frames.push(&bytes);
            let _ = frames.next();
        }
    }
}
