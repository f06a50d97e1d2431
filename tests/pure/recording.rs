//! Recordings: what is written is read back; a torn, damaged, newer or crafted file is told apart and bounded.

use std::io::{Cursor, Write};
use std::path::Path;

use gpuprod::recording::{Error, Header, LINE_CAP, Recording, Writer};
use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{Missing, Reading, Sample, Source, Stamp, Tick};
use proptest::prelude::*;

/// A tick with a time and one source that says why it gives nothing.
fn tick(second: u64) -> Tick {
    let at = Nanos::from_secs(1_000 + second);
    let stamp = Stamp { boottime: at, monotonic: at, realtime: at, ..Stamp::default() };
    let mut tick = Tick { stamp, period: Nanos::from_secs(1), ..Tick::default() };
    let why = format!("read {second}");
    tick.put_missing(
        Source::Md,
        Sample { at, took: Nanos(7), value: Reading::Missing(Missing::Denied), why, hung: None },
    );
    tick
}

fn recorded(ticks: u64) -> Vec<u8> {
    let header = Header::new(Nanos::from_secs(1), "node1");
    let mut writer = Writer::new(Vec::new(), &header, 1).unwrap();
    for second in 0..ticks {
        writer.write(&tick(second)).unwrap();
    }
    writer.finish().unwrap()
}

fn read(bytes: Vec<u8>) -> Result<(Vec<Tick>, Option<String>), Error> {
    let mut recording = Recording::read(Cursor::new(bytes))?;
    let ticks = recording.by_ref().collect::<Result<Vec<_>, _>>()?;
    Ok((ticks, recording.torn().map(str::to_owned)))
}

#[test]
fn what_is_written_is_read_back() {
    let (ticks, torn) = read(recorded(5)).unwrap();
    assert_eq!(ticks, (0..5).map(tick).collect::<Vec<_>>());
    assert_eq!(torn, None);
}

#[test]
fn plain_json_lines_are_a_recording_too() {
    let plain = zstd::decode_all(Cursor::new(recorded(3))).unwrap();
    let header: serde_json::Value = serde_json::from_slice(plain.split(|b| *b == b'\n').next().unwrap()).unwrap();
    assert_eq!(header["format"], "gpuprod-ticks");
    assert_eq!(header["schema"], 1);
    assert_eq!(header["period_ns"], 1_000_000_000);
    let (ticks, torn) = read(plain).unwrap();
    assert_eq!((ticks.len(), torn), (3, None));
}

#[test]
fn a_file_cut_anywhere_gives_every_tick_that_was_flushed() {
    let whole = recorded(4);
    let all: Vec<Tick> = (0..4).map(tick).collect();
    let mut most = 0;
    for length in 0..whole.len() {
        match read(whole[..length].to_vec()) {
            Ok((ticks, torn)) => {
                assert_eq!(ticks, all[..ticks.len()], "cut at {length}");
                // Only the frame's end can be missing without a line being torn.
                assert!(torn.is_some(), "cut at {length}");
                most = most.max(ticks.len());
            }
            // Cut inside the header.
            Err(Error::NotARecording | Error::Empty | Error::NoHeader | Error::Read { line: 0, .. }) => {
                assert_eq!(most, 0, "cut at {length}")
            }
            Err(error) => panic!("cut at {length}: {error}"),
        }
    }
    assert_eq!(most, 4, "each tick was flushed before the next");
}

#[test]
fn a_newer_schema_is_refused_by_name() {
    let line = b"{\"format\":\"gpuprod-ticks\",\"schema\":2,\"version\":\"9.1.0\",\"shape\":[1]}\n";
    let error = read(line.to_vec()).unwrap_err();
    assert!(matches!(error, Error::Newer { found: 2, .. }));
    assert!(error.to_string().contains("9.1.0") && error.to_string().contains("use a newer gpuprod"), "{error}");
}

#[test]
fn what_is_no_recording_says_so() {
    assert!(matches!(read(Vec::new()), Err(Error::Empty)));
    for text in ["\n", "{}\n", "{\"format\":\"other\",\"schema\":1}\n", "hello\n", "[1,2]\n"] {
        assert!(matches!(read(text.into()), Err(Error::NotARecording)), "{text:?}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let dir = std::env::temp_dir().join(format!("gpuprod-recording-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("cut.ticks");
    for bytes in [&b""[..], b"abc", &recorded(1)[..20]] {
        std::fs::write(&path, bytes).unwrap();
        let Err(error) = Recording::open(&path) else { panic!("{bytes:?} was opened") };
        assert!(error.to_string().contains("cut.ticks"), "{error}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_simulated_recording_carries_its_checksum_too() {
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios/notebook_pause.scn");
    let path = std::env::temp_dir().join(format!("gpuprod-sim-{}.ticks", std::process::id()));
    gpuprod_sim::write_recording(&gpuprod_sim::load(&scenario).unwrap(), &path).unwrap();
    let written = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    // RFC 8878, 3.1.1.1: the frame header's descriptor follows the magic number; its bit 2 says that a checksum ends it.
    assert_eq!(written[4] & 4, 4);
    assert_eq!(recorded(1)[4] & 4, 4);
}

#[test]
fn a_bad_line_is_named() {
    let mut plain = zstd::decode_all(Cursor::new(recorded(2))).unwrap();
    plain.extend_from_slice(b"{\"stamp\":5}\n");
    assert!(matches!(read(plain), Err(Error::Line { line: 4, .. })));
}

#[test]
fn a_line_without_end_is_bounded_even_when_it_unpacks_from_little() {
    let mut packed = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    let header = serde_json::to_vec(&Header::new(Nanos(1), "")).unwrap();
    packed.write_all(&header).unwrap();
    packed.write_all(b"\n").unwrap();
    let zeros = vec![b'0'; 1 << 20];
    for _ in 0..((4 * LINE_CAP) >> 20) {
        packed.write_all(&zeros).unwrap();
    }
    let packed = packed.finish().unwrap();
    assert!(packed.len() < 100_000, "a bomb: {} bytes", packed.len());
    assert!(matches!(read(packed), Err(Error::TooLong { line: 2 })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn damaged_bytes_never_panic(at in 0_usize..600, with in any::<u8>()) {
        let mut bytes = recorded(6);
        let at = at % bytes.len();
        bytes[at] = with;
        let _ = read(bytes);
    }

    #[test]
    fn any_text_after_a_header_never_panics(text in "\\PC{0,200}") {
        let mut bytes = serde_json::to_vec(&Header::new(Nanos(1), "")).unwrap();
        bytes.push(b'\n');
        bytes.extend_from_slice(text.as_bytes());
        let _ = read(bytes);
    }
}
