//! The real binary: what it prints, with which code it ends, and that it ends.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use gpuprod_fake_nvml::{Fault, Gpu, STATE, State};
use gpuprod_snapshot::Tick;

const BINARY: &str = env!("CARGO_BIN_EXE_gpuprod");

/// A directory of one test, gone with it.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("gpuprod-cli-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
    /// A file in it, as text for an argument.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The binary, with its state in the test's own directory.
pub(crate) fn gpuprod(scratch: &Scratch, args: &[&str]) -> Command {
    let config = scratch.0.join("cli.yaml");
    if !config.exists() {
        fs::write(&config, format!("state_dir: {}/state\n", scratch.0.display())).unwrap();
    }
    let mut command = Command::new(BINARY);
    command.args(args);
    if matches!(args.first(), Some(&("check" | "snapshot" | "doctor" | "top" | "record" | "selftest")))
        && !args.contains(&"--config")
    {
        command.arg("--config").arg(config);
    }
    command
}

fn run(scratch: &Scratch, args: &[&str]) -> Output {
    gpuprod(scratch, args).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Without a library there is no GPU, whatever the machine has.
const BLIND: [&str; 2] = ["--nvml-library", "/nonexistent/libnvidia-ml.so.1"];

fn blind_check(mut command: Command) {
    let output = command.args(["--for", "1s"]).args(BLIND).output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{out}{err}");
    assert!(out.contains("cannot tell") && out.contains("/nonexistent/libnvidia-ml.so.1"), "{out}");
    assert!(out.contains("pci:") && out.contains("md:") && out.contains("psi:"), "what was seen: {out}");
    assert_eq!(err, "", "no noise");
}

#[test]
fn check_without_a_gpu_says_why_it_cannot_tell() {
    let scratch = Scratch::new("blind");
    blind_check(gpuprod(&scratch, &["check"]));
}

#[test]
fn check_as_an_ordinary_user_says_the_same() {
    if gpuprod::state_dir::own_uid() != 0 {
        println!("skipped: the test before this ran as an ordinary user already");
        return;
    }
    let scratch = Scratch::new("ordinary");
    let binary = scratch.0.join("gpuprod");
    fs::copy(BINARY, &binary).unwrap();
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = Command::new(binary);
    command.arg("check").env("XDG_RUNTIME_DIR", &scratch.0).uid(65_534).gid(65_534);
    blind_check(command);
}

#[test]
fn check_as_json_has_a_verdict_for_the_node() {
    let scratch = Scratch::new("json");
    let mut command = gpuprod(&scratch, &["check", "--json", "--for", "1s"]);
    let output = command.args(BLIND).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["node"]["level"], "cannot_tell");
    assert_eq!(report["by"], "alone");
    assert_eq!(report["gpus"], serde_json::json!([]));
}

#[test]
fn snapshot_is_a_tick() {
    let scratch = Scratch::new("snapshot");
    let output = run(&scratch, &["snapshot", "--json", "--only", "psi,md"]);
    assert_eq!(output.status.code(), Some(0));
    let tick: Tick = serde_json::from_slice(&output.stdout).unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(shown["derived"]["md"].is_object() && shown["derived"]["pci"].is_null(), "{shown}");
    assert!(tick.md.is_some() && tick.psi.is_some() && tick.gpu.is_none() && tick.pci.is_none());
    assert_eq!(tick.stamp.boot_id.0.len(), 36, "the kernel's boot id");
    assert!(tick.stamp.realtime.0 > 1_700_000_000_000_000_000, "a wall clock");
    let table = run(&scratch, &["snapshot"]);
    assert!(text(&table.stdout).lines().any(|line| line.starts_with("psi ")), "{}", text(&table.stdout));
}

#[test]
fn a_lost_gpu_is_never_fine() {
    let Some(library) = gpuprod_fake_nvml::library() else {
        println!("skipped: the fake NVML is not built beside this test");
        return;
    };
    let scratch = Scratch::new("lost");
    let state = State { gpus: vec![Gpu::default(); 2], faults: vec![Fault::Lost(vec![0])], ..State::default() };
    let state_file = scratch.0.join("nvml.json");
    state.write(&state_file).unwrap();
    let check = |args: &[&str]| {
        let mut command = gpuprod(&scratch, &["check", "--for", "2s"]);
        command.args(args).args(["--nvml-library", library.to_str().unwrap()]).env(STATE, &state_file);
        command.output().unwrap()
    };
    let output = check(&[]);
    let out = text(&output.stdout);
    // Alone it suspects at most: 1.
    assert_eq!(output.status.code(), Some(1), "{out}{}", text(&output.stderr));
    let line = out.lines().find(|line| line.starts_with("GPU 0 ")).unwrap_or_else(|| panic!("{out}"));
    assert!(line.contains("WARNING") && line.contains("lost"), "{out}");
    assert!(!out.contains("lists no GPU"), "{out}");
    let report: serde_json::Value = serde_json::from_slice(&check(&["--json"]).stdout).unwrap();
    let gpus = report["gpus"].as_array().unwrap();
    assert_eq!(gpus.iter().filter(|gpu| gpu["about"] == "GPU 0").count(), 1, "{report}");
    assert_eq!((gpus.len(), report["node"]["level"].as_str()), (2, Some("warning")), "{report}");
}

#[test]
fn doctor_on_another_root_does_not_ask_for_a_driver() {
    let scratch = Scratch::new("doctor");
    let root = scratch.path("root");
    fs::create_dir_all(scratch.0.join("root/proc")).unwrap();
    let output = run(&scratch, &["doctor", "--host-root", &root]);
    let out = text(&output.stdout);
    assert!(out.contains("mend: --nvml-library names a library"), "{out}");
    assert!(!out.contains("install"), "{out}");
}

#[test]
fn wrong_usage_is_three_and_help_is_zero() {
    let scratch = Scratch::new("usage");
    let no_rate = ["check", "--for", "ten"];
    for args in [
        &["check", "--nope"][..],
        &[],
        &["nope"],
        &no_rate,
        &["snapshot", "--only", "md,nope"],
        &["top", "--attach", "ftp://x"],
    ] {
        let output = run(&scratch, args);
        assert_eq!(output.status.code(), Some(3), "{args:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{args:?}");
    }
    for args in [&["--help"][..], &["check", "--help"], &["--version"]] {
        assert_eq!(run(&scratch, args).status.code(), Some(0), "{args:?}");
    }
    let help = run(&scratch, &["check", "--help"]);
    assert!(text(&help.stdout).contains("Exit codes: 0 fine, 1 warning, 2 critical, 3 cannot tell"));
}

/// Slurm drains a node for any code but 0; the others have a code of their own for "cannot tell".
#[test]
fn a_typing_error_in_fit_drains_no_node() {
    let scratch = Scratch::new("fit-usage");
    for (args, code, says) in [
        (
            &["fit", "--format", "slurm", "--nope"][..],
            0,
            "cannot tell: wrong usage: unexpected argument '--nope' found\n",
        ),
        (&["fit", "--format", "slrum"], 0, "cannot tell: wrong usage: invalid value 'slrum' for '--format <FORM>'\n"),
        (&["fit", "--fromat=slurm"], 0, "cannot tell: wrong usage: unexpected argument '--fromat' found\n"),
        (&["fit", "--format"], 0, "cannot tell: wrong usage: "),
        (&["fit", "--format=npd", "--nope"], 2, "cannot tell: wrong usage: "),
        (&["fit", "--nope", "--format", "nagios"], 3, "GPUPROD UNKNOWN - cannot tell: wrong usage: "),
        (&["fit", "--unfit-on", "nope"], 3, "{\"verdict\":\"cannot_tell\","),
        (&["fit", "--format", "slurm", "--config", "/nonexistent/c.yaml"], 0, "cannot tell: "),
    ] {
        let output = run(&scratch, args);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{args:?}: {out}{err}");
        assert!(out.starts_with(says), "{args:?}: {out}");
        assert!(out.contains("c.yaml") || err.contains("--help"), "{args:?}: the right usage is told: {err}");
    }
    assert_eq!(run(&scratch, &["fit", "--help"]).status.code(), Some(0));
}

#[test]
fn a_wrong_config_is_shown_once_and_check_cannot_tell() {
    let scratch = Scratch::new("config");
    let path = scratch.path("bad.yaml");
    fs::write(&path, "http:\n  lissten: 1\n").unwrap();
    for (args, code) in [(["config", "check", &path], 1), (["check", "--config", &path], 3)] {
        let output = run(&scratch, &args);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{err}");
        assert_eq!(err.matches("unknown key `lissten`").count(), 1, "{err}");
        assert!(err.contains(":2:3:") && err.contains("did you mean `listen`?"), "{err}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let scratch = Scratch::new("pipe");
    for args in [&["metrics"][..], &["config", "schema"], &["snapshot", "--json"]] {
        let mut command = gpuprod(&scratch, args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{args:?}");
    }
}

#[test]
fn what_is_recorded_is_replayed_to_the_same_bytes() {
    let scratch = Scratch::new("record");
    let file = scratch.path("node.ticks");
    let output = run(&scratch, &["record", &file, "--for", "2s"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // At 0, 1 and 2 seconds.
    assert!(text(&output.stderr).starts_with("3 ticks"), "{}", text(&output.stderr));
    let replay = || run(&scratch, &["replay", &file]).stdout;
    assert!(text(&replay()).contains("3 ticks of 1.0 s"), "{}", text(&replay()));
    assert_eq!(replay(), replay());
    let whole = fs::metadata(&file).unwrap().len();
    fs::File::options().write(true).open(&file).unwrap().set_len(whole - 10).unwrap();
    let torn = run(&scratch, &["replay", &file]);
    assert_eq!(torn.status.code(), Some(0));
    let note = format!("note: {file}: the recording is torn after line");
    assert!(text(&torn.stderr).contains(&note), "{}", text(&torn.stderr));
    fs::File::options().write(true).open(&file).unwrap().set_len(0).unwrap();
    for args in [&["replay", &file][..], &["top", "--once", "--replay", &file]] {
        let empty = run(&scratch, args);
        assert_eq!(empty.status.code(), Some(1), "{args:?}");
        assert!(text(&empty.stderr).contains(&format!("{file}: it is empty")), "{args:?}: {}", text(&empty.stderr));
    }
}

#[test]
fn a_root_that_is_none_is_refused() {
    let scratch = Scratch::new("root");
    let output = run(&scratch, &["check", "--host-root", scratch.0.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("not the root of a host"));
}

#[test]
fn an_error_names_what_was_tried_and_the_cause_once() {
    let scratch = Scratch::new("errors");
    let (dir, file) = (scratch.path("dir"), scratch.path("file"));
    fs::create_dir(&dir).unwrap();
    fs::write(&file, "").unwrap();
    // TEST-NET-1: no machine has it.
    let away = scratch.path("away.yaml");
    fs::write(&away, format!("state_dir: {dir}\nstore: {{dir: {dir}}}\nhttp: {{listen: \"192.0.2.1:9749\"}}\n"))
        .unwrap();
    let missing = scratch.path("missing.yaml");
    let cases = [
        (vec!["config", "check", &missing], "cannot be read: No such file", "missing.yaml"),
        (vec!["config", "check", &dir], "cannot be read: a directory, and no regular file", "/dir"),
        (vec!["report", "--dir", &file], "Not a directory", "look for the store"),
        (vec!["agent", "--config", &away], "no address of this machine", "listen on 192.0.2.1:9749"),
    ];
    for (args, cause, tried) in cases {
        let output = run(&scratch, &args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert_eq!((said.matches(cause).count(), said.matches(tried).count()), (1, 1), "{args:?}: {said}");
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = gpuprod(&scratch, &["metrics"]).stdout(full).output().unwrap();
    assert_eq!(text(&output.stderr), "gpuprod: write to stdout: No space left on device (os error 28)\n");
    assert_eq!(output.status.code(), Some(1));
}
